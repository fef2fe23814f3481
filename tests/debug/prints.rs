//! What `tl::device_print` writes, read from a process of its own.

use std::process::Command;

use dsl_runtime::prelude::*;

use crate::kernels::shown;
use crate::{alone, checks, devices, run};

/// Tells a process that it is the one that prints, and where.
const PRINTS_ON: &str = "FUSE_TESTS_PRINT_ON";

/// Runs a macro on each element type, values of it, and how they are written.
macro_rules! each_type {
    ($run:ident) => {
        $run!(bool, [true, false, true, true], ["1", "0", "1"]);
        $run!(i8, [-128, 127, -1, 5], ["-128", "127", "-1"]);
        $run!(i16, [-32768, 32767, -1, 5], ["-32768", "32767", "-1"]);
        $run!(i32, [i32::MIN, i32::MAX, -1, 5], ["-2147483648", "2147483647", "-1"]);
        $run!(i64, [i64::MIN, i64::MAX, -1, 5], ["-9223372036854775808", "9223372036854775807", "-1"]);
        $run!(u8, [255, 128, 0, 5], ["255", "128", "0"]);
        $run!(u16, [65535, 32768, 0, 5], ["65535", "32768", "0"]);
        $run!(u32, [u32::MAX, 1 << 31, 0, 5], ["4294967295", "2147483648", "0"]);
        $run!(u64, [u64::MAX, 1 << 63, 0, 5], ["18446744073709551615", "9223372036854775808", "0"]);
        $run!(f8e4m3, [0.1, 448.0, -3.0, 5.0].map(<f8e4m3 as Element>::from_f64), ["0.102", "448", "-3"]);
        $run!(
            f8e5m2,
            [0.1, 57344.0, -3.0, 5.0].map(<f8e5m2 as Element>::from_f64),
            ["0.094", "5.7e+04", "-3"]
        );
        $run!(f16, [0.1, 65504.0, -3.0, 5.0].map(<f16 as Element>::from_f64), ["0.099976", "65504", "-3"]);
        $run!(bf16, [0.1, 1000.0, -3.0, 5.0].map(<bf16 as Element>::from_f64), ["0.1001", "1000", "-3"]);
        $run!(f32, [0.1, f32::INFINITY, -1e-30, 5.0], ["0.100000001", "inf", "-1e-30"]);
        $run!(f64, [0.1, f64::NEG_INFINITY, 1e100, 5.0], ["0.10000000000000001", "-inf", "1e+100"]);
    };
}

/// The lines that a program of each launch prints, in the order in which a CPU prints them.
fn expected(program: u32) -> Vec<String> {
    let mut lines = vec![];
    macro_rules! lines {
        ($ty:ty, $values:expr, $texts:expr) => {
            let places = [(0, 0), (0, 1), (1, 0)];
            for (i, (text, (row, col))) in $texts.into_iter().zip(places).enumerate() {
                let element = format!("element ({row}, {col})");
                lines.push(format!("100% x: program ({program}, 0, 0), {element}: {text}, {i}"));
            }
            lines.push(format!("n: program ({program}, 0, 0): 3"));
            lines.push(format!("here: program ({program}, 0, 0)"));
        };
    }
    each_type!(lines);
    lines
}

/// Not a test by itself: prints in the process that [`printed`] starts.
#[test]
fn printer() {
    let Ok(backend) = std::env::var(PRINTS_ON) else { return };
    let device = if backend == "cpu" { Device::cpu() } else { Device::cuda(0).expect("a GPU") };
    macro_rules! print {
        ($ty:ty, $values:expr, $texts:expr) => {
            let values: [$ty; 4] = $values;
            let x = device.upload(&values).expect("four elements");
            run(shown::<$ty>(&x, 3), &device, 2).expect("nothing is checked");
        };
    }
    each_type!(print);
}

/// The lines that launches on a device print.
fn printed(device: &Device) -> Vec<String> {
    let own = std::env::current_exe().expect("this test's binary");
    let backend = if *device == Device::cpu() { "cpu" } else { "cuda" };
    let arguments = ["prints::printer", "--exact", "--nocapture", "--test-threads=1"];
    let output = Command::new(own).args(arguments).env(PRINTS_ON, backend).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = if backend == "cpu" { output.stderr } else { output.stdout };
    let text = String::from_utf8(text).expect("lines are text");
    text.lines().filter(|line| line.contains(": program (")).map(str::to_string).collect()
}

#[test]
fn each_element_is_a_line() {
    let _alone = alone();
    for device in devices() {
        let lines = printed(&device);
        if !checks() {
            assert_eq!(lines, [""; 0], "{device}");
            continue;
        }
        for program in 0..2 {
            let own = format!("program ({program}, ");
            let mut lines: Vec<&str> =
                lines.iter().map(|line| own_part(line)).filter(|line| line.contains(&own)).collect();
            let mut wanted = expected(program);
            if device != Device::cpu() {
                // A GPU's warps print as they run.
                lines.sort_unstable();
                wanted.sort_unstable();
            }
            assert_eq!(lines, wanted, "{device}");
        }
    }
}

/// A line without what the test runner left standing in front of it.
fn own_part(line: &str) -> &str {
    line.rsplit(" ... ").next().unwrap_or(line)
}

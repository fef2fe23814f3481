//! Accesses outside their slice: masked off in every build, reported in a debug build, on every device.

mod kernels;

use dsl_runtime::kernel::Variant;
use dsl_runtime::prelude::*;
use dsl_runtime::{Error, Result};

use fuse_tests::{alone, devices};
use kernels::{gather, gather_or_zero, row_sums, scatter, shifted};

/// Whether this build reports.
fn reports() -> bool {
    gather::KERNEL.variants[0].hosts.iter().any(|host| host.reports)
}

/// Launches and waits.
fn run<const N: usize>(launch: Launch<'_, N>, device: &Device, grid: (usize, usize)) -> Result<()> {
    launch.grid(grid).launch(device)?;
    device.synchronize()
}

/// What a launch that leaves a slice comes to.
fn check(found: Result<()>, message: &str) {
    if reports() {
        assert_eq!(found.expect_err("an access is outside").to_string(), message);
    } else {
        assert_eq!(found, Ok(()));
    }
}

#[test]
fn debug_builds_report_unless_told_otherwise() {
    let _alone = alone();
    let wanted = match option_env!("FUSE_BOUNDS_REPORT") {
        Some("0") => false,
        Some("1") => true,
        _ => cfg!(debug_assertions),
    };
    let variants = || gather::KERNEL.variants.iter().chain(shifted::KERNEL.variants);
    assert!(variants().flat_map(|variant| variant.hosts).all(|host| host.reports == wanted));
    // The specialization with guards has no access that could be outside.
    let any = |variant: &Variant| variant.modules.iter().any(|module| module.reports);
    assert!(variants().filter(|variant| !variant.modules.is_empty()).all(|variant| any(variant) == wanted));
    let silent = &gather_or_zero::KERNEL.variants[0];
    assert!(silent.hosts.iter().all(|host| !host.reports));
    assert!(silent.modules.iter().all(|module| !module.reports));
}

/// Gathers 130 elements of 100 by an index that is good but at `bad`, where it is `at`.
fn gathered<T: Element>(device: Device, bad: usize, at: i32) -> Result<()>
where
    gather::Choice<T, 64>: gather::Declared,
{
    let x: Vec<T> = (0..100).map(|i| T::from_f64(f64::from(i + 1))).collect();
    let mut index: Vec<i32> = (0..130).map(|i| (i * 7) % 100).collect();
    index[bad] = at;
    let (device_x, device_index) = (device.upload(&x)?, device.upload(&index)?);
    let mut out = device.zeros::<T>(130)?;
    let result = run(gather::<T, 64>(&device_x, &device_index, &mut out, 130), &device, (3, 1));
    let wanted: Vec<T> = index
        .iter()
        .map(|&at| usize::try_from(at).ok().and_then(|at| x.get(at).copied()).unwrap_or_default())
        .collect();
    assert_eq!(out.download()?, wanted);
    result
}

#[test]
fn a_read_outside_names_the_element_and_the_line() {
    let _alone = alone();
    let one_past = "kernel `gather`: program (2, 0, 0) reads element 100 of `x`, which has 100 (tests/bounds/kernels.rs:10:17)";
    let negative = "kernel `gather`: program (0, 0, 0) reads element -1 of `x`, which has 100 (tests/bounds/kernels.rs:10:17)";
    let far = "kernel `gather`: program (1, 0, 0) reads element -2147483648 of `x`, which has 100 (tests/bounds/kernels.rs:10:17)";
    for device in devices() {
        check(gathered::<f32>(device, 129, 100), one_past);
        check(gathered::<u8>(device, 0, -1), negative);
        check(gathered::<bf16>(device, 64, i32::MIN), far);
        assert_eq!(gathered::<f32>(device, 77, 99), Ok(()));
    }
}

#[test]
fn a_write_outside_is_reported_as_one() {
    let _alone = alone();
    let wide = "kernel `scatter`: program (1, 0, 0) writes element 4611686018427387904 of `out`, which has 70 (tests/bounds/kernels.rs:19:5)";
    for device in devices() {
        let x: Vec<f64> = (0..70).map(f64::from).collect();
        let mut index: Vec<i64> = (0..70).rev().collect();
        index[66] = 1 << 62;
        let (device_x, device_index) = (device.upload(&x).unwrap(), device.upload(&index).unwrap());
        let mut out = device.upload(&[-1.0; 70]).unwrap();
        let launch = scatter::<64>(&device_x, &device_index, &mut out, 70);
        check(run(launch, &device, (2, 1)), wide);
        let mut wanted: Vec<f64> = x.iter().rev().copied().collect();
        wanted[3] = -1.0;
        assert_eq!(out.download().unwrap(), wanted);
    }
}

/// Copies `n` elements from a slice of 1500, from `shift` on.
fn shift(device: Device, shift: i32, n: i32) -> Result<()> {
    let x: Vec<f32> = (0..1500).map(|i| i as f32).collect();
    let device_x = device.upload(&x)?;
    let mut out = device.zeros::<f32>(n as usize)?;
    let grid = ((n as usize).div_ceil(1024), 1);
    let result = run(shifted::<1024>(&device_x, &mut out, shift, n), &device, grid);
    let at = |i: i32| usize::try_from(i + shift).ok().and_then(|i| x.get(i).copied()).unwrap_or(-1.0);
    assert_eq!(out.download()?, (0..n).map(at).collect::<Vec<f32>>());
    result
}

#[test]
fn one_element_past_the_end_is_enough() {
    let _alone = alone();
    let end = "kernel `shifted`: program (1, 0, 0) reads element 1500 of `x`, which has 1500 (tests/bounds/kernels.rs:27:24)";
    let start = "kernel `shifted`: program (0, 0, 0) reads element -1 of `x`, which has 1500 (tests/bounds/kernels.rs:27:24)";
    for device in devices() {
        check(shift(device, 3, 1498), end);
        check(shift(device, -1, 1300), start);
        for (by, n) in [(3, 1497), (0, 1500), (1499, 1), (100, 1025)] {
            assert_eq!(shift(device, by, n), Ok(()));
        }
    }
}

#[test]
fn many_elements_outside_are_one_report() {
    let _alone = alone();
    if !reports() {
        return;
    }
    for device in devices() {
        let Err(Error::OutOfBounds {
            param: "x", writes: false, index, len: 1500, program, line: 27, ..
        }) = shift(device, 700, 1500)
        else {
            panic!("700 elements are outside");
        };
        // Which of them was first is not known, but it is one of them.
        assert!((1500..2200).contains(&index), "{index}");
        assert_eq!(program, [(index as u32 - 700) / 1024, 0, 0]);
    }
}

#[test]
fn a_loop_reports_the_element_it_came_to() {
    let _alone = alone();
    let short = "kernel `row_sums`: program (1, 2, 0) reads element 599 of `x`, which has 599 (tests/bounds/kernels.rs:37:24)";
    let missing = "kernel `row_sums`: program (1, 2, 0) writes element 5 of `out`, which has 5 (tests/bounds/kernels.rs:39:5)";
    for device in devices() {
        let x = device.upload(&[1.0f32; 600]).unwrap();
        let sums = |x_len: usize, out_len: usize| {
            let mut out = device.zeros::<f32>(out_len)?;
            let result = run(row_sums::<32>(x.slice(..x_len), &mut out, 100), &device, (2, 3));
            let mut wanted = vec![100.0; out_len];
            if x_len < 600 {
                wanted[5] -= 1.0;
            }
            assert_eq!(out.download()?, wanted);
            result
        };
        check(sums(599, 6), short);
        check(sums(600, 5), missing);
        assert_eq!(sums(600, 6), Ok(()));
    }
}

#[test]
fn an_unreported_kernel_relies_on_the_mask() {
    let _alone = alone();
    for device in devices() {
        let (x, index) = (device.upload(&[5.0f32; 4]).unwrap(), device.upload(&[0, -1, 3, 4, 1000]).unwrap());
        let mut out = device.zeros::<f32>(5).unwrap();
        assert_eq!(run(gather_or_zero::<64>(&x, &index, &mut out, 5), &device, (1, 1)), Ok(()));
        assert_eq!(out.download().unwrap(), [5.0, 0.0, 5.0, 0.0, 0.0]);
    }
}

#[test]
fn whatever_waits_for_a_gpu_gets_the_report_once() {
    let _alone = alone();
    let Ok(device) = Device::cuda(0) else { return };
    // A launch that waits gets the report itself.
    if !reports() || std::env::var_os("FUSE_LAUNCH_BLOCKING").is_some() {
        return;
    }
    let (x, index) = (device.upload(&[1.0f32; 4]).unwrap(), device.upload(&[7]).unwrap());
    let mut out = device.upload(&[2.0f32]).unwrap();
    let stream = device.new_stream().unwrap();
    let launch = |out: &mut Buffer<f32>| gather::<f32, 64>(&x, &index, out, 1).grid(1).launch(&stream);
    let reported = |result: Result<()>| matches!(result, Err(Error::OutOfBounds { index: 7, len: 4, .. }));
    launch(&mut out).unwrap();
    assert!(reported(stream.synchronize()));
    assert_eq!((stream.synchronize(), device.synchronize()), (Ok(()), Ok(())));
    // The copy waits for the kernel, though it is on another stream.
    launch(&mut out).unwrap();
    assert!(reported(out.download().map(|_| ())));
    assert_eq!(out.download().unwrap(), [0.0]);
    assert_eq!((stream.synchronize(), device.synchronize()), (Ok(()), Ok(())));
}

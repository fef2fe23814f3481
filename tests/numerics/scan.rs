//! Scans against loops, on whole numbers so small that every result is exact.

use fuse_test_kernels::case::Job;
use fuse_test_kernels::scan::{IN_PARTS, SCANS, SCANS_ALONG, SCANS_DOWN, Scan};
use libtest_mimic::{Failed, Trial};

use crate::compare::integer;
use crate::devices::{Backend, backends};
use crate::float::Format;
use crate::values::{Random, mask};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for (which, scans) in [("all", SCANS), ("down", SCANS_DOWN), ("along", SCANS_ALONG)] {
            for scan in scans {
                let [m, n] = scan.shape;
                let name =
                    format!("scan::{which}::{}::[{m},{n}]::{}_warps::{backend}", scan.dtype, scan.warps);
                trials.push(Trial::test(name, move || check(scan, backend)));
            }
        }
        trials.push(Trial::test(format!("scan::in_parts::{backend}"), move || check(&IN_PARTS, backend)));
    }
    trials
}

/// The positions of a line, in the order that way `way` goes through it: axis 0, axis 1, and both backwards.
fn lines([m, n]: [usize; 2], way: usize) -> Vec<Vec<usize>> {
    let mut lines: Vec<Vec<usize>> = if way.is_multiple_of(2) {
        (0..n).map(|col| (0..m).map(|row| row * n + col).collect()).collect()
    } else {
        (0..m).map(|row| (0..n).map(|col| row * n + col).collect()).collect()
    };
    if way >= 2 {
        lines.iter_mut().for_each(|line| line.reverse());
    }
    lines
}

fn check(scan: &'static Scan, backend: Backend) -> Result<(), Failed> {
    let [m, n] = scan.shape;
    let mut random = Random((m * n) as u64);
    let numbers: Vec<i64> = (0..m * n).map(|_| random.below(7) as i64 - 3).collect();
    let bits = |number: i64| match scan.dtype.is_float() {
        true => Format::of(scan.dtype).round(number as f64),
        false => number as u64 & mask(scan.dtype),
    };
    let x = numbers.iter().map(|&number| bits(number)).collect();
    let job = Job { device: backend.device()?, operands: vec![x], shift: 1 };
    let results = (scan.run)(&job)?;
    for (which, result) in results.iter().enumerate() {
        let is_sum = which < scan.ways.len();
        for line in lines(scan.shape, scan.ways[which % scan.ways.len()]) {
            let (mut sum, mut factor) = (0i64, 1i64);
            for position in line {
                let number = numbers[position];
                let own = if number > 0 { 1 } else { -1 };
                // Applied in turn: t -> own * t + number, after what came before.
                sum = if is_sum { sum + number } else { sum * own + number };
                factor *= own;
                let wanted = if is_sum { sum } else { sum + factor };
                let found = found(scan, result[position], is_sum);
                if found != wanted as f64 {
                    return Err(format!("result {which}, element {position} is {found}, not {wanted}").into());
                }
            }
        }
    }
    Ok(())
}

/// A result as an `f64`; sums of 16-bit floats are `f32`.
fn found(scan: &Scan, bits: u64, is_sum: bool) -> f64 {
    use dsl_runtime::DType;
    let dtype = if is_sum && scan.dtype == DType::F16 { DType::F32 } else { scan.dtype };
    if dtype.is_float() { Format::of(dtype).value(bits) } else { integer(bits, dtype) as f64 }
}

//! Reductions against loops: exact on integers and on floats that are small whole numbers, and with NaN at each position.

use dsl_runtime::DType;
use fuse_test_kernels::case::Job;
use fuse_test_kernels::reduce::{Folds, RANK_1, RANK_2, RANK_3, Reduce};
use libtest_mimic::{Failed, Trial};

use crate::compare::{integer, show};
use crate::devices::{Backend, backends};
use crate::float::Format;
use crate::values::{Random, mask};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for case in [RANK_1, RANK_2, RANK_3].into_iter().flatten() {
            let name = format!("reduce::{}::{:?}::{}_warps::{backend}", case.dtype, case.shape, case.warps);
            trials.push(Trial::test(name.replace(' ', ""), move || check(case, backend)));
        }
    }
    trials
}

fn check(case: &'static Reduce, backend: Backend) -> Result<(), Failed> {
    let elements: usize = case.shape.iter().product();
    let mut inputs = vec![whole_numbers(case.dtype, 5 * elements)];
    if case.dtype.is_float() {
        inputs.push(one_nan(case.dtype, elements));
        inputs.push(zeros(case.dtype, 4 * elements));
    }
    for input in inputs {
        for shift in [0, 1] {
            let job = Job { device: backend.device()?, operands: vec![input.clone()], shift };
            let folds = (case.run)(&job)?;
            Reference { case, input: &input }.compare(&folds)?;
        }
    }
    Ok(())
}

/// Integers of any size; floats that are integers so small that every sum is exact.
fn whole_numbers(dtype: DType, count: usize) -> Vec<u64> {
    let mut random = Random(count as u64);
    (0..count)
        .map(|_| {
            if dtype.is_float() {
                Format::of(dtype).round(random.below(33) as f64 - 16.0)
            } else {
                random.bits() & mask(dtype)
            }
        })
        .collect()
}

/// A program for each of up to 300 positions, with NaN at that position and nowhere else.
fn one_nan(dtype: DType, elements: usize) -> Vec<u64> {
    let programs = elements.min(300);
    let mut values = whole_numbers(dtype, programs * elements);
    for program in 0..programs {
        values[program * elements + program * elements / programs] = Format::of(dtype).round(f64::NAN);
    }
    values
}

/// Zeros of either sign, infinities among them in the last two programs.
fn zeros(dtype: DType, count: usize) -> Vec<u64> {
    let format = Format::of(dtype);
    let mut random = Random(3);
    let choice = |i: usize, random: &mut Random| match random.below(8) {
        7 if i >= count / 2 => format.infinity() | if i >= count / 4 * 3 { format.sign() } else { 0 },
        n if n % 2 == 0 => 0,
        _ => format.sign(),
    };
    (0..count).map(|i| if i < count / 4 { format.sign() } else { choice(i, &mut random) }).collect()
}

struct Reference<'a> {
    case: &'a Reduce,
    input: &'a [u64],
}

impl Reference<'_> {
    fn compare(&self, folds: &Folds) -> Result<(), Failed> {
        let rank = self.case.shape.len();
        for axis in 0..=rank {
            let groups = self.groups(axis);
            for (i, group) in groups.iter().enumerate() {
                let what = if axis == rank { "everything".to_string() } else { format!("axis {axis}") };
                let dtype = self.case.dtype;
                self.same(
                    &format!("max of {what}, result {i}"),
                    dtype,
                    largest(dtype, group),
                    folds.max[axis][i],
                )?;
                self.same(
                    &format!("min of {what}, result {i}"),
                    dtype,
                    smallest(dtype, group),
                    folds.min[axis][i],
                )?;
                let wanted = self.sum(group);
                self.same(&format!("sum of {what}, result {i}"), self.case.sum, wanted, folds.sum[axis][i])?;
            }
        }
        let last = self.case.shape[rank - 1];
        let rows = self.input.chunks(last).map(|row| (row, largest(self.case.dtype, row)));
        let centered = rows.flat_map(|(row, max)| row.iter().map(move |&value| (value, max)));
        for (i, (value, max)) in centered.enumerate() {
            let wanted = difference(self.case.dtype, value, max);
            self.same(&format!("element {i} less the maximum"), self.case.dtype, wanted, folds.centered[i])?;
        }
        Ok(())
    }

    /// The elements that each result folds, results in order; `axis` beyond the last folds all.
    fn groups(&self, axis: usize) -> Vec<Vec<u64>> {
        let shape = self.case.shape;
        let elements: usize = shape.iter().product();
        let (extent, inner) = match shape.get(axis) {
            Some(&extent) => (extent, shape[axis + 1..].iter().product::<usize>()),
            None => (elements, 1),
        };
        let starts = (0..self.input.len()).filter(|start| start / inner % extent == 0);
        starts.map(|start| (0..extent).map(|k| self.input[start + k * inner]).collect()).collect()
    }

    fn sum(&self, group: &[u64]) -> u64 {
        let (from, to) = (self.case.dtype, self.case.sum);
        if to.is_float() {
            let total: f64 = group.iter().map(|&bits| Format::of(from).value(bits)).sum();
            return Format::of(to).round(total);
        }
        let total: i128 = group.iter().map(|&bits| integer(bits, from)).sum();
        total as u64 & mask(to)
    }

    fn same(&self, what: &str, dtype: DType, wanted: u64, found: u64) -> Result<(), Failed> {
        if dtype.is_float() {
            let values = [wanted, found].map(|bits| Format::of(dtype).value(bits));
            // The sign of a sum that is zero is unspecified.
            let zeros = what.starts_with("sum") && values == [0.0, 0.0];
            if zeros || values[0].is_nan() && values[1].is_nan() {
                return Ok(());
            }
        }
        if wanted == found {
            return Ok(());
        }
        Err(format!("{what} is {}, found {}", show(wanted, dtype), show(found, dtype)).into())
    }
}

fn largest(dtype: DType, group: &[u64]) -> u64 {
    if !dtype.is_float() {
        return group.iter().copied().max_by_key(|&bits| integer(bits, dtype)).unwrap_or(0);
    }
    let value = |bits: u64| Format::of(dtype).value(bits);
    let by_order = |a: &u64, b: &u64| value(*a).total_cmp(&value(*b));
    let nan = group.iter().copied().find(|&bits| value(bits).is_nan());
    nan.or_else(|| group.iter().copied().max_by(by_order)).unwrap_or(0)
}

fn smallest(dtype: DType, group: &[u64]) -> u64 {
    if !dtype.is_float() {
        return group.iter().copied().min_by_key(|&bits| integer(bits, dtype)).unwrap_or(0);
    }
    let value = |bits: u64| Format::of(dtype).value(bits);
    let by_order = |a: &u64, b: &u64| value(*a).total_cmp(&value(*b));
    let nan = group.iter().copied().find(|&bits| value(bits).is_nan());
    nan.or_else(|| group.iter().copied().min_by(by_order)).unwrap_or(0)
}

/// The difference of two elements; floats here are such that it is exact or not a number.
fn difference(dtype: DType, a: u64, b: u64) -> u64 {
    if dtype.is_float() {
        let format = Format::of(dtype);
        return format.round(format.value(a) - format.value(b));
    }
    a.wrapping_sub(b) & mask(dtype)
}

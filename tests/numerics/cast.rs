//! Every element type converted to every element type: what `as` gives in Rust where Rust has the pair, bit for bit; and
//! floats rounded toward zero.

use dsl_runtime::DType;
use libtest_mimic::{Failed, Trial};

use fuse_test_kernels::case::{Job, Run};
use fuse_test_kernels::rounding::{ROUNDED, TOWARD_ZERO};
use fuse_test_kernels::table::CASTS;

use crate::compare::{integer, show};
use crate::devices::{Backend, backends};
use crate::float::Format;
use crate::values;

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for run in CASTS {
            let name = format!("cast::{}::{backend}", run.dtype);
            trials.push(Trial::test(name, move || check(run, backend)));
        }
        for run in TOWARD_ZERO {
            let name = format!("cast::toward_zero::{}::{backend}", run.dtype);
            trials.push(Trial::test(name, move || check_toward_zero(run, backend)));
        }
    }
    trials
}

fn check(run: &'static Run, backend: Backend) -> Result<(), Failed> {
    for shift in [0, 1] {
        let mut operands = values::operands(&[run.dtype], Job::BLOCK);
        operands[0].extend(values::ties(run.dtype));
        let whole = operands[0].len() / 16 * 16;
        operands[0].truncate(whole - 3 * shift);
        let job = Job { device: backend.device()?, operands, shift };
        let results = (run.run)(&job)?;
        for (to, found) in DType::ALL.into_iter().zip(&results) {
            for (&value, &found) in job.operands[0].iter().zip(found) {
                let wanted = convert(value, run.dtype, to);
                let nan = to.is_float() && Format::of(to).value(wanted).is_nan();
                if found != wanted && !(nan && Format::of(to).value(found).is_nan()) {
                    let text = format!(
                        "{} as {to} is {}, found {}",
                        show(value, run.dtype),
                        show(wanted, to),
                        show(found, to)
                    );
                    return Err(text.into());
                }
            }
        }
    }
    Ok(())
}

fn check_toward_zero(run: &'static Run, backend: Backend) -> Result<(), Failed> {
    let mut operands = values::operands(&[run.dtype], Job::BLOCK);
    operands[0].extend(values::ties(run.dtype));
    let job = Job { device: backend.device()?, operands, shift: 1 };
    let results = (run.run)(&job)?;
    for (to, found) in ROUNDED.into_iter().zip(&results) {
        for (&bits, &found) in job.operands[0].iter().zip(found) {
            let value = Format::of(run.dtype).value(bits);
            if !is_toward_zero(value, found, to) {
                let (value, found) = (show(bits, run.dtype), show(found, to));
                return Err(format!("{value} toward zero as {to} is found as {found}").into());
            }
        }
    }
    Ok(())
}

/// Whether a number is the largest of its sign whose magnitude is not above that of `value`. What is no finite number is
/// converted as ever.
fn is_toward_zero(value: f64, found: u64, to: DType) -> bool {
    let number = Format::of(to).value(found);
    if !value.is_finite() {
        return found == convert(value.to_bits(), DType::F64, to) || value.is_nan() && number.is_nan();
    }
    let next = Format::of(to).value(found + 1);
    let is_last = !next.is_finite() || next.abs() > value.abs();
    number.is_sign_negative() == value.is_sign_negative() && number.abs() <= value.abs() && is_last
}

/// The language's conversion.
pub fn convert(bits: u64, from: DType, to: DType) -> u64 {
    if from == to {
        return bits;
    }
    let result = if from.is_float() {
        let value = Format::of(from).value(bits);
        match to {
            DType::Bool => u64::from(value != 0.0),
            DType::I8 => value as i8 as u64,
            DType::I16 => value as i16 as u64,
            DType::I32 => value as i32 as u64,
            DType::I64 => value as i64 as u64,
            DType::U8 => value as u8 as u64,
            DType::U16 => value as u16 as u64,
            DType::U32 => value as u32 as u64,
            DType::U64 => value as u64,
            // Infinity too becomes the largest number.
            _ if to.is_f8() => Format::of(to).round(value.clamp(-f64::MAX, f64::MAX)),
            _ => Format::of(to).round(value),
        }
    } else {
        let value = integer(bits, from);
        match to {
            DType::Bool => u64::from(value != 0),
            // By way of `f32`.
            DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => {
                Format::of(to).round(f64::from(value as f32))
            }
            DType::F32 => u64::from((value as f32).to_bits()),
            DType::F64 => (value as f64).to_bits(),
            _ => value as u64,
        }
    };
    result & values::mask(to)
}

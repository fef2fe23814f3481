//! What a result must be: the oracle's value, as exactly as the row states.
//!
//! NaN first, then exact rows bit for bit, the sign of zero included, then distances in units in the last place.

use dsl_runtime::DType;
use fuse_test_kernels::case::{Row, Subnormal, TypeRule};

use crate::devices::Backend;
use crate::float::Format;

/// One row on one element type.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    pub row: &'static Row,
    pub rule: TypeRule,
    pub dtype: DType,
    pub backend: Backend,
}

impl Law {
    /// The element type of operand `index`.
    pub fn operand(&self, index: usize) -> DType {
        if self.rule == TypeRule::Select && index == 0 { DType::Bool } else { self.dtype }
    }

    pub fn result(&self) -> DType {
        if self.rule == TypeRule::Compare { DType::Bool } else { self.dtype }
    }

    /// The error in units in the last place, or what was wanted.
    pub fn check(&self, operands: &[u64], found: u64) -> Result<f64, String> {
        if self.dtype.is_float() {
            let mut values = [0.0; 3];
            for (i, (value, &bits)) in values.iter_mut().zip(operands).enumerate() {
                *value = decode(bits, self.operand(i));
            }
            let values = &values[..operands.len()];
            let oracle = self.row.float.ok_or("the row has no oracle for floats")?;
            return self.check_float(values, oracle(values), found);
        }
        let values: Vec<i128> =
            operands.iter().enumerate().map(|(i, &bits)| integer(bits, self.operand(i))).collect();
        let oracle = self.row.int.ok_or("the row has no oracle for integers")?;
        let wanted = oracle(&values, self.dtype) as u64 & crate::values::mask(self.result());
        if found == wanted { Ok(0.0) } else { Err(show(wanted, self.result())) }
    }

    fn check_float(&self, operands: &[f64], wanted: f64, found: u64) -> Result<f64, String> {
        if self.rule == TypeRule::Compare {
            let wanted = u64::from(wanted != 0.0);
            return if found == wanted { Ok(0.0) } else { Err(show(wanted, DType::Bool)) };
        }
        let format = Format::of(self.dtype);
        let value = format.value(found);
        if self.rounds_twice() && same(operands[0] * operands[1] + operands[2], value) {
            return Ok(0.5);
        }
        if self.backend == Backend::Cuda && self.dtype != DType::F64 && self.flushed(operands, wanted, value)
        {
            return Ok(0.0);
        }
        if wanted.is_nan() || value.is_nan() {
            return if wanted.is_nan() && value.is_nan() { Ok(0.0) } else { Err(format!("{wanted:e}")) };
        }
        if self.row.ulp_f32 == 0.5 && self.row.ulp_f64 == 0.5 {
            let rounded = self.roundings(wanted);
            return if rounded.contains(&found) { Ok(0.5) } else { Err(show(rounded[0], self.dtype)) };
        }
        let zeros = value == 0.0 && wanted == 0.0;
        let distance = format.distance(value, wanted);
        let infinities = value.is_infinite() && wanted.is_infinite();
        let signs = value.is_sign_negative() == wanted.is_sign_negative();
        let floor = self.row.error_floor.map_or(0.0, |floor| floor(operands));
        let units = format.unit(wanted.abs().max(floor)) / format.unit(wanted);
        let allowed = if zeros || infinities { signs } else { distance <= self.bound(units) };
        if allowed { Ok(distance / units) } else { Err(format!("{wanted:e}, {distance:.2} units away")) }
    }

    /// The bits that a correctly rounded result may have. A 16-bit result is that of `f32`, rounded. For two operands
    /// the oracle's `f64` rounds to the same as the exact result would (53 bits are twice 24 and more); with three, it
    /// is known to half of its last place only.
    fn roundings(&self, wanted: f64) -> Vec<u64> {
        let format = Format::of(self.dtype);
        let through_f32 = |value: f64| match self.dtype {
            DType::F16 | DType::BF16 => format.round(f64::from(value as f32)),
            _ => format.round(value),
        };
        if self.row.name == "fma" && self.dtype != DType::F64 && wanted.is_finite() && wanted != 0.0 {
            return [wanted, wanted.next_up(), wanted.next_down()].map(through_f32).to_vec();
        }
        vec![through_f32(wanted)]
    }

    /// Whether this is an `f64` of `fma` without the instruction.
    fn rounds_twice(&self) -> bool {
        self.row.name == "fma" && self.dtype == DType::F64 && crate::levels::is_baseline()
    }

    /// In units of the result, given how many of these are a unit of the row's bound. The oracle is itself a unit off in `f64`.
    fn bound(&self, units: f64) -> f64 {
        match self.dtype {
            DType::F16 => 0.5 + units * self.row.ulp_f32 / 8192.0,
            DType::BF16 => 0.5 + units * self.row.ulp_f32 / 65536.0,
            DType::F32 => units * self.row.ulp_f32,
            _ => units * (self.row.ulp_f64 + 1.0),
        }
    }

    /// Whether the row says that such a result may be what it is on a GPU for the sake of numbers below the smallest
    /// normal `f32`.
    fn flushed(&self, operands: &[f64], wanted: f64, found: f64) -> bool {
        let tiny = f64::from(f32::MIN_POSITIVE);
        match self.row.subnormal {
            Subnormal::Kept => false,
            Subnormal::Result => wanted.abs() < tiny && found == 0.0,
            Subnormal::Argument => {
                let zeros: Vec<f64> =
                    operands.iter().map(|&x| if x.abs() < tiny { 0.0f64.copysign(x) } else { x }).collect();
                self.row.float.is_some_and(|oracle| oracle(&zeros) == found)
            }
        }
    }
}

/// Equal to the bit, or NaN both.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// A float operand, or a bool as 0 or 1.
fn decode(bits: u64, dtype: DType) -> f64 {
    if dtype.is_float() { Format::of(dtype).value(bits) } else { integer(bits, dtype) as f64 }
}

/// The integer that bits stand for.
pub fn integer(bits: u64, dtype: DType) -> i128 {
    match dtype {
        DType::I8 => bits as i8 as i128,
        DType::I16 => bits as i16 as i128,
        DType::I32 => bits as i32 as i128,
        DType::I64 => bits as i64 as i128,
        _ => i128::from(bits),
    }
}

/// A value as a message writes it.
pub fn show(bits: u64, dtype: DType) -> String {
    if dtype.is_float() {
        format!("{:e} ({bits:#x})", Format::of(dtype).value(bits))
    } else {
        integer(bits, dtype).to_string()
    }
}

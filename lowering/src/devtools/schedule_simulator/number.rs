//! Numbers of the simulator: exact integers, and floats rounded to their type.

use tile_ir::support::dtype::{DType, F8_NAN, Float8Format, to_bf16, to_f16};

/// One element.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    pub fn int(self) -> i128 {
        match self {
            Number::Int(value) => value,
            Number::Float(value) => value as i128,
        }
    }

    pub fn float(self) -> f64 {
        match self {
            // From 64 bits it is one instruction.
            Number::Int(value) => i64::try_from(value).map_or(value as f64, |value| value as f64),
            Number::Float(value) => value,
        }
    }

    pub fn is_true(self) -> bool {
        match self {
            Number::Int(value) => value != 0,
            Number::Float(value) => value != 0.0,
        }
    }
}

/// The nearest number of a float type, halves to the even one.
pub fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => to_f16(value).into(),
        DType::BF16 => to_bf16(value).into(),
        DType::F8E4M3 | DType::F8E5M2 => f8_value(dtype, Float8Format::of(dtype).bits(value)),
        DType::F64
        | DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => value,
    }
}

/// The nearest number of eleven digits, halves to the even one: what tensor cores take of an `f32`.
pub fn round_tf32(value: f64) -> f64 {
    const DROPPED: u32 = 13;
    let bits = (value as f32).to_bits();
    if !value.is_finite() {
        return value;
    }
    let half = (1 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
    f32::from_bits((bits + half) >> DROPPED << DROPPED).into()
}

fn f8_value(dtype: DType, bits: u8) -> f64 {
    let Float8Format { fraction, bias, max } = Float8Format::of(dtype);
    let magnitude = u32::from(bits & 0x7f);
    let (exponent, digits) = (magnitude >> fraction, magnitude & ((1 << fraction) - 1));
    let unit = 2f64.powi((exponent.max(1) as i32) - bias - fraction as i32);
    let implied = if exponent > 0 { 1 << fraction } else { 0 };
    let value = f64::from(implied + digits) * unit;
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    if bits & 0x7f == F8_NAN || value > max && dtype == DType::F8E4M3 {
        f64::NAN
    } else if value > max {
        sign * if digits == 0 { f64::INFINITY } else { f64::NAN }
    } else {
        sign * value
    }
}

/// The conversion of `as` and of `.to::<..>()`.
pub fn cast(number: Number, to: DType) -> Number {
    match (number, to) {
        (_, DType::Bool) => Number::Int(number.is_true().into()),
        (Number::Float(value), to) if to.is_float() => Number::Float(round(to, value)),
        (Number::Float(value), to) => {
            let (low, high) = to.range();
            Number::Int((value as i128).clamp(low, high))
        }
        (Number::Int(value), DType::F64) => Number::Float(value as f64),
        // To the short floats by way of `f32`.
        (Number::Int(value), to) if to.is_float() => Number::Float(round(to, f64::from(value as f32))),
        (Number::Int(value), to) => Number::Int(to.wrap(value)),
    }
}

/// The bits of an element as a number that is not negative.
pub fn to_bits(number: Number, dtype: DType) -> i128 {
    match (number, dtype) {
        (Number::Float(value), DType::F64) => value.to_bits().into(),
        (Number::Float(value), DType::F32) => (value as f32).to_bits().into(),
        (Number::Float(value), DType::F16) => to_f16(value).to_bits().into(),
        (Number::Float(value), DType::BF16) => to_bf16(value).to_bits().into(),
        (Number::Float(value), dtype) => Float8Format::of(dtype).bits(value).into(),
        (Number::Int(value), dtype) => value & ((1 << (8 * dtype.bytes())) - 1),
    }
}

pub fn from_bits(bits: i128, dtype: DType) -> Number {
    match dtype {
        DType::F64 => Number::Float(f64::from_bits(bits as u64)),
        DType::F32 => Number::Float(f32::from_bits(bits as u32).into()),
        DType::F16 => Number::Float(half::f16::from_bits(bits as u16).into()),
        DType::BF16 => Number::Float(half::bf16::from_bits(bits as u16).into()),
        DType::F8E4M3 | DType::F8E5M2 => Number::Float(f8_value(dtype, bits as u8)),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => Number::Int(dtype.wrap(bits)),
    }
}

/// Four words of Philox-4x32-10: a function of a key and a counter.
pub fn philox(seed: u64, mut words: [u32; 4]) -> [u32; 4] {
    const ROUNDS: u32 = 10;
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..ROUNDS {
        let products = [u64::from(words[0]) * 0xD251_1F53, u64::from(words[2]) * 0xCD9E_8D57]
            .map(|p| [(p >> 32) as u32, p as u32]);
        let [[high0, low0], [high1, low1]] = products;
        words = [high1 ^ words[1] ^ key[0], low1, high0 ^ words[3] ^ key[1], low0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    words
}

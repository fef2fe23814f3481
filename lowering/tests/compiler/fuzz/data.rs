//! What is in memory before a launch: each element follows from a seed and its index alone, so that any program can
//! make it again.

use tile_ir::support::dtype::DType;

use super::element::{Element, round};

/// How elements are chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Data {
    /// Whole numbers from `-limit` to `limit`, not below 0 in unsigned types.
    Whole { limit: u32 },
    /// Numbers of 8 bits below the point, between -2 and 2.
    Fraction,
    /// Between -2 and 2 times a power of two, down to `2^-16` and up to `2^15`.
    Scaled,
    /// 0, or `value` where something is masked off: throughout in a quarter of the rows of so many elements.
    Mask { value: f64, row: usize },
}

/// A random number from the seed and an index: a step of SplitMix64.
fn hash(seed: u64, index: u64) -> u64 {
    let mut z =
        seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Data {
    pub fn element(self, dtype: DType, seed: u64, index: usize) -> Element {
        let bits = hash(seed, index as u64);
        let fraction = (bits >> 54) as f64 / 256.0 - 2.0;
        let value = match self {
            Data::Whole { limit } => {
                let value = ((bits >> 32) % u64::from(2 * limit + 1)) as i128 - i128::from(limit);
                if !dtype.is_float() {
                    let value = if dtype.is_signed() { value } else { value.abs() };
                    return Element::wrapped(dtype, value);
                }
                value as f64
            }
            Data::Fraction => fraction,
            Data::Scaled => fraction * 2f64.powi((bits & 31) as i32 - 16),
            Data::Mask { value, row } => {
                let whole_row = hash(seed ^ 1, (index / row.max(1)) as u64).is_multiple_of(4);
                if whole_row || bits.is_multiple_of(2) { value } else { 0.0 }
            }
        };
        Element::Float(round(dtype, value))
    }
}

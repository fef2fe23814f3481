//! Whether two variants of one call gave the same outputs.
//!
//! Variants differ in the order of additions, so floats may differ by rounding; a variant that leaves elements out
//! or computes something else differs by far more than that.

use crate::dtype::{DType, bf16, f8e4m3, f8e5m2, f16};

/// What an output of a call holds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Output {
    pub(crate) dtype: DType,
    pub(crate) bytes: Vec<u8>,
}

/// How the outputs of a call differ from the reference outputs, if they do.
pub(super) fn difference(reference: &[Output], other: &[Output]) -> Option<String> {
    let pairs = reference.iter().zip(other).enumerate();
    pairs.into_iter().find_map(|(position, (reference, other))| {
        let how = Elements { reference, other }.difference()?;
        Some(if position > 0 { format!("in output {position}, {how}") } else { how })
    })
}

struct Elements<'o> {
    reference: &'o Output,
    other: &'o Output,
}

impl Elements<'_> {
    fn difference(&self) -> Option<String> {
        if self.reference.bytes == self.other.bytes {
            return None;
        }
        match self.reference.dtype {
            DType::F16 => self.floats(0.02, |bytes: [u8; 2]| f16::from_le_bytes(bytes).into()),
            DType::BF16 => self.floats(0.1, |bytes: [u8; 2]| bf16::from_le_bytes(bytes).into()),
            // Adjacent values: a sum in another order may round to the next one.
            DType::F8E4M3 => self.floats(0.13, |bytes: [u8; 1]| f8e4m3::from_bits(bytes[0]).to_f32().into()),
            DType::F8E5M2 => self.floats(0.26, |bytes: [u8; 1]| f8e5m2::from_bits(bytes[0]).to_f32().into()),
            DType::F32 => self.floats(1e-3, |bytes: [u8; 4]| f32::from_le_bytes(bytes).into()),
            DType::F64 => self.floats(1e-6, f64::from_le_bytes),
            dtype => self.integers(dtype),
        }
    }

    /// Floats are the same within `bound`, relative to the larger of the two and of what is usual in the output: where
    /// terms cancel, what is left of them is rounding. NaN and infinities are the same in the same places.
    fn floats<const N: usize>(&self, bound: f64, value: impl Fn([u8; N]) -> f64) -> Option<String> {
        let values = |output: &Output| -> Vec<f64> {
            output.bytes.as_chunks::<N>().0.iter().map(|&bytes| value(bytes)).collect()
        };
        let (reference, other) = (values(self.reference), values(self.other));
        let squares = reference.iter().filter(|value| value.is_finite()).map(|value| value * value);
        let rms = (squares.sum::<f64>() / reference.len() as f64).sqrt();
        let same = |&(&reference, &other): &(&f64, &f64)| {
            reference == other
                || reference.is_nan() && other.is_nan()
                || reference.is_finite()
                    && other.is_finite()
                    && (reference - other).abs() <= bound * reference.abs().max(other.abs()).max(rms)
        };
        let wrong: Vec<usize> = reference
            .iter()
            .zip(&other)
            .enumerate()
            .filter(|(_, pair)| !same(pair))
            .map(|(at, _)| at)
            .collect();
        let &first = wrong.first()?;
        Some(text(first, reference.len(), (other[first], reference[first]), wrong.len()))
    }

    /// Integers are the same, but that one in a hundred may be off by one: a value that was rounded to an integer, on the
    /// edge between two. So may an element of a type that is not known here, in its last bit. A `bool` is the same.
    fn integers(&self, dtype: DType) -> Option<String> {
        let size = dtype.bytes();
        let value = |bytes: &[u8]| {
            let mut bits = [0; 8];
            bits[..size].copy_from_slice(bytes);
            let bits = u64::from_le_bytes(bits);
            dtype.integer(bits).unwrap_or(i128::from(bits))
        };
        let pairs = self.reference.bytes.chunks_exact(size).zip(self.other.bytes.chunks_exact(size));
        let pairs: Vec<(i128, i128)> =
            pairs.map(|(reference, other)| (value(reference), value(other))).collect();
        let wrong: Vec<usize> = (0..pairs.len()).filter(|&at| pairs[at].0 != pairs[at].1).collect();
        let rounded = |at: &usize| dtype != DType::Bool && pairs[*at].0.abs_diff(pairs[*at].1) == 1;
        if wrong.len() * 100 <= pairs.len() && wrong.iter().all(rounded) {
            return None;
        }
        let first = wrong.iter().copied().find(|at| !rounded(at)).or(wrong.first().copied())?;
        Some(text(first, pairs.len(), (pairs[first].1, pairs[first].0), wrong.len()))
    }
}

fn text<T: std::fmt::Display>(at: usize, of: usize, (found, expected): (T, T), wrong: usize) -> String {
    let others = match wrong - 1 {
        0 => String::new(),
        1 => ", as is another".to_string(),
        others => format!(", as are {others} others"),
    };
    format!("element {at} of {of} is {found} and not {expected}{others}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<Output> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        vec![Output { dtype: DType::F32, bytes }]
    }

    fn bytes(dtype: DType, values: &[u8]) -> Vec<Output> {
        vec![Output { dtype, bytes: values.to_vec() }]
    }

    #[test]
    fn floats_may_be_rounded_otherwise_and_not_be_others() {
        let reference = f32s(&[1.0, -2.0, 1e-9, f32::NAN, f32::INFINITY, 3.0]);
        let same = [1.0001, -2.0001, -1e-7, f32::NAN, f32::INFINITY, 3.0];
        assert_eq!(difference(&reference, &f32s(&same)), None);
        let wrong = |at: usize, value: f32| {
            let mut values = same;
            values[at] = value;
            difference(&reference, &f32s(&values))
        };
        assert_eq!(wrong(5, 3.1).unwrap(), "element 5 of 6 is 3.0999999046325684 and not 3");
        for (at, value) in
            [(0, f32::NAN), (2, 0.1), (3, 0.0), (4, f32::MAX), (4, f32::NEG_INFINITY), (5, 0.0)]
        {
            assert!(wrong(at, value).is_some(), "{at}: {value}");
        }
    }

    #[test]
    fn integers_may_be_rounded_the_other_way_now_and_then() {
        let reference = vec![7u8; 200];
        let check = |dtype, changes: &[(usize, u8)]| {
            let mut other = reference.clone();
            changes.iter().for_each(|&(at, value)| other[at] = value);
            difference(&bytes(dtype, &reference), &bytes(dtype, &other))
        };
        assert_eq!(check(DType::I8, &[(3, 8), (9, 6)]), None);
        assert_eq!(
            check(DType::I8, &[(3, 8), (9, 6), (10, 6)]).unwrap(),
            "element 3 of 200 is 8 and not 7, as are 2 others"
        );
        assert_eq!(
            check(DType::U8, &[(3, 8), (9, 9)]).unwrap(),
            "element 9 of 200 is 9 and not 7, as is another"
        );
        assert_eq!(check(DType::I8, &[(0, 0xff)]).unwrap(), "element 0 of 200 is -1 and not 7");
        assert!(check(DType::Bool, &[(0, 0)]).is_some());
    }

    #[test]
    fn every_output_counts() {
        let (one, two) = (f32s(&[1.0]), f32s(&[2.0]));
        let both = |second: &[Output]| [one.clone(), second.to_vec()].concat();
        assert_eq!(difference(&both(&two), &both(&two)), None);
        assert_eq!(
            difference(&both(&two), &both(&one)).unwrap(),
            "in output 1, element 0 of 1 is 1 and not 2"
        );
    }
}

//! What [`crate::moe`] computes, in `f64`, and the bound of each element that its documentation states.

use dsl_runtime::{DType, Float};

use crate::activation::Activation;
use crate::moe_kernels::BLOCK;
use crate::reference::{Expected, unit_roundoff};

/// The weights of all experts on the host, in the shapes of [`crate::moe::Experts`].
#[derive(Clone, Copy, Debug)]
pub struct HostExperts<'a> {
    /// `[experts, 2 f, k]`
    pub gate_up: &'a [i8],
    /// `[experts, 2 f]`
    pub gate_up_scales: &'a [f32],
    /// `[experts, k, f]`
    pub down: &'a [i8],
    /// `[experts, k]`
    pub down_scales: &'a [f32],
    /// `f` and `k`.
    pub extents: [usize; 2],
}

impl HostExperts<'_> {
    fn count(&self) -> usize {
        self.down_scales.len().checked_div(self.extents[1]).unwrap_or(0)
    }

    /// The output of an expert for a row that is known within bounds, up to the rounding of the result.
    fn row(&self, expert: usize, x: &[Expected]) -> Vec<Expected> {
        let ([f, k], unit) = (self.extents, 2.0 * unit_roundoff(DType::F32));
        let channels = |i: usize| {
            let channel = expert * 2 * f + i;
            let weights = &self.gate_up[channel * k..(channel + 1) * k];
            let Expected { value, within } = dot(x, weights, self.gate_up_scales[channel]);
            Expected { value, within: within + 4.0 * unit * (value.abs() + within) }
        };
        let gated = |i: usize| {
            let (gate, up) = (Activation::Silu.propagated(channels(i), DType::F32), channels(f + i));
            let value = gate.value * up.value;
            let within = gate.within * (up.value.abs() + up.within) + gate.value.abs() * up.within;
            Expected { value, within: within + unit * (value.abs() + within) }
        };
        let mut intermediate: Vec<Expected> = (0..f).map(gated).collect();
        for block in intermediate.chunks_mut(BLOCK) {
            let largest = block.iter().map(|h| h.value.abs() + h.within).fold(0.0, f64::max);
            for h in block {
                h.within += largest / 254.0 + 4.0 * unit * largest + 1e-30;
            }
        }
        let steps = f.div_ceil(BLOCK) as f64;
        let output = |i: usize| {
            let channel = expert * k + i;
            let (weights, scale) = (&self.down[channel * f..(channel + 1) * f], self.down_scales[channel]);
            let size = |(h, weight): (&Expected, &i8)| (h.value.abs() + h.within) * f64::from(*weight).abs();
            let size = intermediate.iter().zip(weights).map(size).sum::<f64>() * f64::from(scale).abs();
            let Expected { value, within } = dot(&intermediate, weights, scale);
            Expected { value, within: within + (steps + 4.0) * unit * size }
        };
        (0..k).map(output).collect()
    }
}

/// The dot of values that are known within bounds and exact weights.
fn dot(x: &[Expected], weights: &[i8], scale: f32) -> Expected {
    let (mut value, mut within) = (0.0, 0.0);
    for (x, weight) in x.iter().zip(weights) {
        value += x.value * f64::from(*weight);
        within += x.within * f64::from(*weight).abs();
    }
    Expected { value: value * f64::from(scale), within: within * f64::from(scale).abs() }
}

/// What [`crate::moe::Moe`] computes of rows `x`, in `f64`, and the bound that the module's documentation states, for results
/// of type `T`. `routing` has the experts of each token and their weights. Rows that are given quantized are exact; how far
/// others are moved, [`crate::quantize::reference`] says.
pub fn reference<T: Float>(
    x: &[Expected],
    experts: HostExperts<'_>,
    routing: &[Vec<(i32, f32)>],
) -> Vec<Expected> {
    let ([_, k], unit) = (experts.extents, 2.0 * unit_roundoff(DType::F32));
    let token = |(x, choices): (&[Expected], &Vec<(i32, f32)>)| {
        let (mut sums, mut sizes) = (vec![Expected { value: 0.0, within: 0.0 }; k], vec![0.0; k]);
        for (expert, weight) in choices {
            let Some(expert) = usize::try_from(*expert).ok().filter(|expert| *expert < experts.count())
            else {
                continue;
            };
            let weight = f64::from(*weight);
            for (i, y) in experts.row(expert, x).into_iter().enumerate() {
                sums[i].value += weight * y.value;
                sums[i].within += weight.abs() * y.within;
                sizes[i] += weight.abs() * (y.value.abs() + y.within);
            }
        }
        let arithmetic = (choices.len() + 2) as f64 * unit;
        let rounded = |(sum, size): (Expected, f64)| {
            let within = sum.within + arithmetic * size + f64::from(f32::MIN_POSITIVE);
            Expected { value: sum.value, within }.rounded(T::DTYPE)
        };
        sums.into_iter().zip(sizes).map(rounded).collect::<Vec<_>>()
    };
    x.chunks(k.max(1)).zip(routing).flat_map(token).collect()
}

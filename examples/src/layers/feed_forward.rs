//! The feed-forward sub-layer of a transformer, norm and residual included: `out = x + act(norm(x) · W1 + b1) · W2 + b2`
//! ([`FeedForward`]), and with a gate `out = x + (act(g) * u) · W2 + b2`, where `[g, u] = norm(x) · W1 + b1` ([`GatedFeedForward`]; SwiGLU
//! with SiLU, GeGLU with GELU).
//!
//! **Launches.** Operation by operation there are five (norm, matmul with bias, activation, matmul with bias, addition), six with
//! a gate. Here the norm is fused into the first matmul where rows are few ([`crate::norm_linear`]), and a launch of its own otherwise.
//! The activation is in the epilogue of that matmul. The residual is in the epilogue of the second one, unless tiles with registers for
//! it take more time than a launch that adds it. That makes two or three, and one more with a gate: different programs compute the
//! columns of gate and value. All in one kernel would need a row's intermediate, `f` elements, on an SM, and one program for each tile
//! of rows would read both matrices: of few rows too few to read them quickly. [`FeedForward::cost`] counts launches and bytes of both.
//!
//! **Rounding.** That of [`crate::norm_linear`], [`crate::act_and_mul`] and [`crate::matmul`] one after the other: what is between
//! kernels is rounded to `T`.
//!
//! **Source.** Vaswani and others, 2017, arXiv:1706.03762, section 3.3, with the norm before it as in GPT-2; Shazeer, *GLU Variants Improve
//! Transformer*, 2020, arXiv:2002.05202.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::act_and_mul::ActAndMul;
use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::form::{Cost, Form};
use crate::matmul::{Matmul, adds_separately};
use crate::norm_linear::{self, FoldedLinear, HostLayer, NormLinear};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The second linear layer: its weights `[f, k]` with any strides, and a bias of `k` elements if there is one.
#[derive(Clone, Copy)]
pub struct Down<'a, T: LibraryFloat> {
    /// `[f, k]`
    pub weight: View<'a, T, 2>,
    /// `k` elements.
    pub bias: Option<Slice<'a, T>>,
}

impl<'a, T: LibraryFloat> Down<'a, T> {
    /// `out = intermediate · W2 + b2 + x`
    fn launch(
        &self,
        on: impl LaunchOn,
        intermediate: View<'_, T, 2>,
        x: Slice<'_, T>,
        out: SliceMut<'_, T>,
    ) -> Result<()> {
        let linear = Matmul::new(intermediate, self.weight);
        let linear = self.bias.map_or(linear, |bias| linear.bias(bias));
        linear.launch_with_residual(on, x, out)
    }

    /// The rows of `x` and `out`, if all fits together, where the first layer makes `f` elements of a row for the second one.
    fn rows(&self, checks: Checks, f: usize, x: usize, out: usize) -> Result<usize> {
        let [terms, k] = self.weight.shape();
        checks.extents("the second layer's weights", [terms, k], [f, k])?;
        checks.same(("x", x), ("out", out))?;
        checks.rows(("x", x), k)
    }
}

/// A sub-layer without a gate: `FeedForward::new(&first, down, Activation::Gelu)`. The activation is the identity, ReLU, GELU or SiLU.
#[derive(Clone, Copy)]
pub struct FeedForward<'a, T: LibraryFloat> {
    first: &'a FoldedLinear<T>,
    down: Down<'a, T>,
    activation: Activation,
    eps: f32,
}

impl<'a, T: LibraryFloat> FeedForward<'a, T> {
    /// The first layer with the norm in it, and the second one; `eps` is 1e-5.
    pub fn new(first: &'a FoldedLinear<T>, down: Down<'a, T>, activation: Activation) -> Self {
        FeedForward { first, down, activation, eps: 1e-5 }
    }

    /// What is added to the variance or the mean square.
    pub fn eps(self, eps: f32) -> Self {
        FeedForward { eps, ..self }
    }

    /// Computes `out`, rows of `k` elements like those of `x`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; if there is no kernel with the activation; if there is no temporary memory for the
    /// intermediate; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        x: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (x, out, checks) = (x.into(), out.into(), Checks("feed_forward"));
        let f = self.first.columns();
        let rows = self.down.rows(checks, f, x.len(), out.len())?;
        let mut intermediate = on.temporary::<T>(rows * f)?;
        let first = NormLinear::new(x, self.first).activation(self.activation).eps(self.eps);
        first.launch(on, intermediate.slice_mut().view_mut([rows, f])?)?;
        self.down.launch(on, intermediate.slice().view([rows, f])?, x, out)
    }

    /// Launches and bytes for so many rows: of [`FeedForward::launch`], and operation by operation.
    pub fn cost(&self, on: impl LaunchOn, rows: usize) -> [Cost; 2] {
        let [f, k] = self.down.weight.shape();
        let first = norm_linear_cost::<T>(on, rows, [k, f]);
        let down = added_cost(on, rows, self.down.weight);
        [
            first + down,
            norm_cost::<T>(rows, k)
                + linear_cost::<T>(rows, k, f)
                + activation_cost::<T>(rows, f)
                + down_cost::<T>(rows, f, k),
        ]
    }
}

/// A sub-layer with a gate: `GatedFeedForward::new(&first, down, Activation::Silu)`. The first half of the first layer's columns is
/// activated, with SiLU, GELU or GELU-tanh.
#[derive(Clone, Copy)]
pub struct GatedFeedForward<'a, T: LibraryFloat> {
    first: &'a FoldedLinear<T>,
    down: Down<'a, T>,
    activation: Activation,
    eps: f32,
}

impl<'a, T: LibraryFloat> GatedFeedForward<'a, T> {
    /// The first layer, with `2 f` columns and the norm in it, and the second one; `eps` is 1e-5.
    pub fn new(first: &'a FoldedLinear<T>, down: Down<'a, T>, activation: Activation) -> Self {
        GatedFeedForward { first, down, activation, eps: 1e-5 }
    }

    /// What is added to the variance or the mean square.
    pub fn eps(self, eps: f32) -> Self {
        GatedFeedForward { eps, ..self }
    }

    /// Computes `out`, rows of `k` elements like those of `x`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; if there is no kernel with the activation; if there is no temporary memory for the
    /// intermediate; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        x: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (x, out, checks) = (x.into(), out.into(), Checks("feed_forward"));
        let (gate_up, f) = (self.first.columns(), self.first.columns() / 2);
        checks.extents("the first layer", [gate_up], [2 * f])?;
        let rows = self.down.rows(checks, f, x.len(), out.len())?;
        let mut intermediate = on.temporary::<T>(rows * f)?;
        let mut gate_up_out = on.temporary::<T>(rows * gate_up)?;
        let first = NormLinear::new(x, self.first).eps(self.eps);
        first.launch(on, gate_up_out.slice_mut().view_mut([rows, gate_up])?)?;
        ActAndMul::new(gate_up_out.slice(), f, self.activation).launch(on, intermediate.slice_mut())?;
        self.down.launch(on, intermediate.slice().view([rows, f])?, x, out)
    }

    /// Launches and bytes for so many rows: of [`GatedFeedForward::launch`], and operation by operation.
    pub fn cost(&self, on: impl LaunchOn, rows: usize) -> [Cost; 2] {
        let ([f, k], size) = (self.down.weight.shape(), size_of::<T>());
        let first = norm_linear_cost::<T>(on, rows, [k, 2 * f]);
        let gate = Cost::of(size, 3 * rows * f);
        let down = added_cost(on, rows, self.down.weight);
        let separate = norm_cost::<T>(rows, k)
            + linear_cost::<T>(rows, k, 2 * f)
            + activation_cost::<T>(rows, f)
            + Cost::of(size, 3 * rows * f)
            + down_cost::<T>(rows, f, k);
        [first + gate + down, separate]
    }
}

fn norm_linear_cost<T: LibraryFloat>(on: impl LaunchOn, rows: usize, [k, n]: [usize; 2]) -> Cost {
    let linear = linear_cost::<T>(rows, k, n);
    match norm_linear::form::<T>(on, rows, [k, n]) {
        Form::Fused => linear,
        Form::Separate => norm_cost::<T>(rows, k) + linear,
    }
}

fn norm_cost<T>(rows: usize, k: usize) -> Cost {
    Cost::of(size_of::<T>(), 2 * rows * k)
}

fn linear_cost<T>(rows: usize, k: usize, n: usize) -> Cost {
    Cost::of(size_of::<T>(), rows * k + k * n + rows * n)
}

fn activation_cost<T>(rows: usize, f: usize) -> Cost {
    Cost::of(size_of::<T>(), 2 * rows * f)
}

/// A matmul and a residual, as [`Matmul::launch_with_residual`] computes them.
pub(crate) fn added_cost<T: LibraryFloat>(on: impl LaunchOn, rows: usize, weight: View<'_, T, 2>) -> Cost {
    let [f, k] = weight.shape();
    if adds_separately(on, rows, weight) {
        down_cost::<T>(rows, f, k)
    } else {
        Cost::of(size_of::<T>(), rows * f + f * k + 2 * rows * k)
    }
}

/// The second matmul and a separate addition.
fn down_cost<T>(rows: usize, f: usize, k: usize) -> Cost {
    linear_cost::<T>(rows, f, k) + Cost::of(size_of::<T>(), 3 * rows * k)
}

/// What [`FeedForward`] computes, in `f64`, and the bound that follows from its kernels': `weight` is `[f, k]` row by row.
pub fn reference<T: Float>(
    x: &[T],
    first: HostLayer<'_, T>,
    activation: Activation,
    [weight, bias]: [&[T]; 2],
) -> Vec<Expected> {
    let intermediate = norm_linear::reference(x, first, activation);
    down(x, &intermediate, weight, bias)
}

/// What [`GatedFeedForward`] computes, in `f64`, and the bound that follows from its kernels'.
pub fn gated_reference<T: Float>(
    x: &[T],
    first: HostLayer<'_, T>,
    activation: Activation,
    [weight, bias]: [&[T]; 2],
) -> Vec<Expected> {
    let gate_up = first.bias.len();
    let gate_up_out = norm_linear::reference(x, first, Activation::Identity);
    let mut intermediate = Vec::with_capacity(gate_up_out.len() / 2);
    for row in gate_up_out.chunks(gate_up.max(1)) {
        for (gate, up) in row[..gate_up / 2].iter().zip(&row[gate_up / 2..]) {
            let gate = activation.propagated(*gate, T::DTYPE);
            let value = gate.value * up.value;
            let within = gate.within * (up.value.abs() + up.within) + gate.value.abs() * up.within;
            let single = 2.0 * unit_roundoff(DType::F32) * value.abs();
            intermediate.push(Expected { value, within: within + single }.rounded(T::DTYPE));
        }
    }
    down(x, &intermediate, weight, bias)
}

/// The second layer and the residual, of an intermediate that is known within bounds.
fn down<T: Float>(x: &[T], intermediate: &[Expected], weight: &[T], bias: &[T]) -> Vec<Expected> {
    let k = bias.len();
    let (f, unit) = (weight.len() / k.max(1), 2.0 * unit_roundoff(DType::F32));
    let rows = intermediate.chunks(f.max(1)).zip(x.chunks(k.max(1)));
    let element = |(col, (row, x)): (usize, (&[Expected], &T))| {
        let (mut sum, mut size, mut within) = (0.0, 0.0, 0.0);
        for (i, intermediate) in row.iter().enumerate() {
            let weight = weight[i * k + col].to_f64();
            sum += intermediate.value * weight;
            size += ((intermediate.value.abs() + intermediate.within) * weight).abs();
            within += intermediate.within * weight.abs();
        }
        // The matmul is rounded before the residual where that has a launch of its own.
        let linear = sum + bias[col].to_f64();
        let within = within + (f + 3) as f64 * unit * size + unit * linear.abs();
        let linear = Expected { value: linear, within }.rounded(T::DTYPE);
        let value = linear.value + x.to_f64();
        let arithmetic = unit * (value.abs() + x.to_f64().abs());
        Expected { value, within: linear.within + arithmetic }.rounded(T::DTYPE)
    };
    rows.flat_map(|(row, x)| x.iter().enumerate().map(move |(col, x)| element((col, (row, x))))).collect()
}

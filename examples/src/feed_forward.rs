//! The feed-forward sub-layer of a transformer, norm and residual included: `out = x + act(norm(x) · W1 + b1) · W2 + b2`
//! ([`FeedForward`]), and with a gate `out = x + (act(g) * u) · W2 + b2`, where `[g, u] = norm(x) · W1 + b1` ([`GatedFeedForward`]; SwiGLU
//! with SiLU, GeGLU with GELU).
//!
//! **Launches.** Operation by operation there are five (norm, product with its bias, activation, product with its bias, addition), six with
//! a gate. Here the norm is in the first product where rows are few ([`crate::norm_linear`]), and a launch of its own otherwise; an
//! activation is behind that product; the residual is behind the second one, but for products that are so large that the time of tiles
//! with registers for it is more than that of a launch that adds it. That makes two or three, and one more with a
//! gate: the columns of gate and value are made by different programs. Norm, both products and the residual in one kernel would hold a
//! row's middle, `f` elements, on a multiprocessor, and read both matrices by as many programs as there are tiles of rows: of few rows too few
//! to read them quickly. [`FeedForward::cost`] counts launches and bytes of both.
//!
//! **Rounding.** That of [`crate::norm_linear`], [`crate::act_and_mul`] and [`crate::matmul`] one after the other: what is between
//! kernels is rounded to `T`.
//!
//! **Source.** Vaswani and others, 2017, arXiv:1706.03762, section 3.3, with the norm before it as in GPT-2; Shazeer, *GLU Variants Improve
//! Transformer*, 2020, arXiv:2002.05202.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::act_and_mul::{ActAndMul, act_and_mul};
use crate::activation::{self, IDENTITY};
use crate::form::{Cost, Form};
use crate::matmul::{Matmul, Multiply, adds_separately};
use crate::norm_linear::{FoldedLinear, HostLayer, NormLinear, Normalize};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The second linear layer: its weights `[f, k]` with any strides, and a bias of `k` numbers if there is one.
#[derive(Clone, Copy)]
pub struct Down<'a, T: Float> {
    /// `[f, k]`
    pub weight: View<'a, T, 2>,
    /// `k` numbers.
    pub bias: Option<Slice<'a, T>>,
}

impl<'a, T: Float> Down<'a, T> {
    /// `out = middle · W2 + b2 + x`
    fn launch(
        &self,
        on: impl LaunchOn,
        middle: View<'_, T, 2>,
        x: Slice<'_, T>,
        out: SliceMut<'_, T>,
    ) -> Result<()>
    where
        T: Multiply<IDENTITY>,
    {
        let product = Matmul::<T, IDENTITY>::new(middle, self.weight);
        let product = self.bias.map_or(product, |bias| product.bias(bias));
        product.launch_with_residual(on, x, out)
    }

    /// The rows of `x` and `out`, if all fits together, where the first layer makes `f` elements of a row for the second one.
    fn rows(&self, checks: Checks, f: usize, x: usize, out: usize) -> Result<usize> {
        let [terms, k] = self.weight.shape();
        checks.extents("the second layer's weights", [terms, k], [f, k])?;
        checks.same(("x", x), ("out", out))?;
        checks.rows(("x", x), k)
    }
}

/// A sub-layer without a gate: `FeedForward::<bf16, GELU>::new(&first, down)`. `T` is `f32`, `f16` or `bf16`; `ACT` is `IDENTITY`,
/// `RELU`, `GELU` or `SILU` of [`crate::activation`].
#[derive(Clone, Copy)]
pub struct FeedForward<'a, T: Float, const ACT: usize> {
    first: &'a FoldedLinear<T>,
    down: Down<'a, T>,
    eps: f32,
}

impl<'a, T: Normalize + Multiply<ACT> + Multiply<IDENTITY>, const ACT: usize> FeedForward<'a, T, ACT> {
    /// The first layer with the norm in it, and the second one; `eps` is 1e-5.
    pub fn new(first: &'a FoldedLinear<T>, down: Down<'a, T>) -> Self {
        FeedForward { first, down, eps: 1e-5 }
    }

    /// What is added to the variance or the mean square.
    pub fn eps(self, eps: f32) -> Self {
        FeedForward { eps, ..self }
    }

    /// Computes `out`, rows of `k` elements like those of `x`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; if there is no memory for what is between the layers; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        x: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (x, out, checks) = (x.into(), out.into(), Checks("feed_forward"));
        let f = self.first.columns();
        let rows = self.down.rows(checks, f, x.len(), out.len())?;
        let mut middle = on.temporary::<T>(rows * f)?;
        let first = NormLinear::<T, ACT>::new(x, self.first).eps(self.eps);
        first.launch(on, middle.slice_mut().view_mut([rows, f])?)?;
        self.down.launch(on, middle.slice().view([rows, f])?, x, out)
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

/// A sub-layer with a gate: `GatedFeedForward::<bf16, SILU>::new(&first, down)`. The first half of the first layer's columns is
/// activated. `T` is `f32`, `f16` or `bf16`; `ACT` is `SILU`, `GELU` or `GELU_TANH` of [`crate::activation`].
#[derive(Clone, Copy)]
pub struct GatedFeedForward<'a, T: Float, const ACT: usize> {
    first: &'a FoldedLinear<T>,
    down: Down<'a, T>,
    eps: f32,
}

impl<'a, T: Normalize + Multiply<IDENTITY>, const ACT: usize> GatedFeedForward<'a, T, ACT>
where
    act_and_mul::Choice<T, ACT>: act_and_mul::Declared,
{
    /// The first layer, with `2 f` columns and the norm in it, and the second one; `eps` is 1e-5.
    pub fn new(first: &'a FoldedLinear<T>, down: Down<'a, T>) -> Self {
        GatedFeedForward { first, down, eps: 1e-5 }
    }

    /// What is added to the variance or the mean square.
    pub fn eps(self, eps: f32) -> Self {
        GatedFeedForward { eps, ..self }
    }

    /// Computes `out`, rows of `k` elements like those of `x`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; if there is no memory for what is between the layers; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        x: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (x, out, checks) = (x.into(), out.into(), Checks("feed_forward"));
        let (both, f) = (self.first.columns(), self.first.columns() / 2);
        checks.extents("the first layer", [both], [2 * f])?;
        let rows = self.down.rows(checks, f, x.len(), out.len())?;
        let (mut halves, mut middle) = (on.temporary::<T>(rows * both)?, on.temporary::<T>(rows * f)?);
        let first = NormLinear::<T, IDENTITY>::new(x, self.first).eps(self.eps);
        first.launch(on, halves.slice_mut().view_mut([rows, both])?)?;
        ActAndMul::<T, ACT>::new(halves.slice(), f).launch(on, middle.slice_mut())?;
        self.down.launch(on, middle.slice().view([rows, f])?, x, out)
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

fn norm_linear_cost<T: Normalize>(on: impl LaunchOn, rows: usize, [k, n]: [usize; 2]) -> Cost {
    let linear = linear_cost::<T>(rows, k, n);
    match T::form(on, rows, [k, n]) {
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

/// A product and a residual, as [`Matmul::launch_with_residual`] computes them.
pub(crate) fn added_cost<T: Float>(on: impl LaunchOn, rows: usize, weight: View<'_, T, 2>) -> Cost {
    let [f, k] = weight.shape();
    if adds_separately(on, rows, weight) {
        down_cost::<T>(rows, f, k)
    } else {
        Cost::of(size_of::<T>(), rows * f + f * k + 2 * rows * k)
    }
}

/// The second product and the addition behind it.
fn down_cost<T>(rows: usize, f: usize, k: usize) -> Cost {
    linear_cost::<T>(rows, f, k) + Cost::of(size_of::<T>(), 3 * rows * k)
}

/// What [`FeedForward`] computes, in `f64`, and the bound that follows from its kernels': `weight` is `[f, k]` row by row.
pub fn reference<T: Float, const ACT: usize>(
    x: &[T],
    first: HostLayer<'_, T>,
    weight: &[T],
    bias: &[T],
) -> Vec<Expected> {
    let middle = crate::norm_linear::reference::<T, ACT>(x, first);
    down(x, &middle, weight, bias)
}

/// What [`GatedFeedForward`] computes, in `f64`, and the bound that follows from its kernels'.
pub fn gated_reference<T: Float, const ACT: usize>(
    x: &[T],
    first: HostLayer<'_, T>,
    weight: &[T],
    bias: &[T],
) -> Vec<Expected> {
    let both = first.bias.len();
    let halves = crate::norm_linear::reference::<T, IDENTITY>(x, first);
    let mut middle = Vec::with_capacity(halves.len() / 2);
    for row in halves.chunks(both.max(1)) {
        for (gate, up) in row[..both / 2].iter().zip(&row[both / 2..]) {
            let gate = activation::propagated::<ACT>(*gate, T::DTYPE);
            let value = gate.value * up.value;
            let within = gate.within * (up.value.abs() + up.within) + gate.value.abs() * up.within;
            let single = 2.0 * unit_roundoff(DType::F32) * value.abs();
            middle.push(Expected { value, within: within + single }.rounded(T::DTYPE));
        }
    }
    down(x, &middle, weight, bias)
}

/// The second layer and the residual, of a middle that is known within bounds.
fn down<T: Float>(x: &[T], middle: &[Expected], weight: &[T], bias: &[T]) -> Vec<Expected> {
    let k = bias.len();
    let (f, unit) = (weight.len() / k.max(1), 2.0 * unit_roundoff(DType::F32));
    let rows = middle.chunks(f.max(1)).zip(x.chunks(k.max(1)));
    let element = |(col, (row, x)): (usize, (&[Expected], &T))| {
        let (mut sum, mut size, mut within) = (0.0, 0.0, 0.0);
        for (i, middle) in row.iter().enumerate() {
            let weight = weight[i * k + col].to_f64();
            sum += middle.value * weight;
            size += ((middle.value.abs() + middle.within) * weight).abs();
            within += middle.within * weight.abs();
        }
        // The product is rounded before the residual where that has a launch of its own.
        let product = sum + bias[col].to_f64();
        let within = within + (f + 3) as f64 * unit * size + unit * product.abs();
        let product = Expected { value: product, within }.rounded(T::DTYPE);
        let value = product.value + x.to_f64();
        let arithmetic = unit * (value.abs() + x.to_f64().abs());
        Expected { value, within: product.within + arithmetic }.rounded(T::DTYPE)
    };
    rows.flat_map(|(row, x)| x.iter().enumerate().map(move |(col, x)| element((col, (row, x))))).collect()
}

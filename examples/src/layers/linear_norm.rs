//! `out = act(norm(x · W + bias + residual))`: a linear layer and the norm of its rows, LayerNorm or RMSNorm, with an activation of
//! [`crate::activation`] behind it; `gelu(layer_norm(linear(x)))` is one of them.
//!
//! **Shapes.** `x` is `[rows, k]`, `weight` `[k, n]` with any strides, `bias`, `gamma` and `beta` `n` elements, `residual` and `out`
//! `[rows, n]`.
//!
//! **Forms.** In [`Form::Fused`] a program has whole rows of the result in its accumulator, up to [`MAX_COLS`] columns: its epilogue takes the
//! mean of a row, then the mean of its squared deviations, and writes the norm. Columns past a row count in neither. Every program reads
//! all of `W`, and there are as many programs as tiles of rows: 64 rows, 16 where rows are few. As measured (docs/decisions/0170) that
//! pays where tiles of 64 rows occupy half of the SMs, or where `W` is small enough for one program to read it in the time of a
//! launch; [`LinearNorm::launch`] takes it then. [`Form::Separate`] is a [`Matmul`] with the bias and the residual in its epilogue, and a kernel
//! for norm and activation. `FUSE_TRACE=1` says which.
//!
//! **Traffic.** `(rows * k + k * n + rows * n) * size_of::<T>()` bytes, and a residual once; the separate form writes and reads the result
//! once more.
//!
//! **Rounding.** A sum is within `E = (k + 3) * 2^-23` of its terms' magnitudes, `2^-23` of itself, and in the separate form a rounding to
//! `T`. With `r` the root mean square of a row's `E`, `m` their mean (0 for RMSNorm) and `s` the root of variance and `eps`, the
//! normalized row is within `(E + m + r * |y|) / max(s - r, sqrt(eps))` of `y`. The norm adds the bound of [`crate::layer_norm`] or
//! [`crate::rms_norm`], the activation its own (see [`crate::activation`]); the result is rounded to `T` once.
//!
//! **Source.** Ba, Kiros, Hinton, *Layer Normalization*, 2016, arXiv:1607.06450, equation 3: the norm of a layer's summed inputs; an
//! epilogue over whole rows of an accumulator as in CUTLASS's `gemm_layernorm` example.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, trace_choice};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::form::{Cost, Form, check_fused};
use crate::layer_norm::LayerNorm;
use crate::layer_norm_gelu::{self, LayerNormGelu};
use crate::matmul::{Matmul, TileShape};
use crate::matmul_operands::is_aligned;
use crate::norm_activation::NormActivation;
use crate::norm_linear::Norm;
use crate::reference::{Expected, unit_roundoff};
use crate::rms_norm::RmsNorm;
use crate::shape::Checks;

const CHECKS: Checks = Checks("linear_norm");

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::activate;
    use crate::float::LibraryFloat;
    use crate::mainloop::matmul_mainloop;
    use crate::matmul_block::TileShape;

    /// A program computes `M` rows of up to `N` columns in steps of `K`. It is RMSNorm where `subtract_mean` is 0. Absent
    /// arguments have no elements: `bias`, `residual` and `beta`.
    #[fuse_kernel(
        T = [f16, bf16],
        configs = [
            { M: 16, N: 128, K: 64, num_warps: 4, num_stages: 4 },
            { M: 64, N: 128, K: 64 },
            { M: 16, N: 256, K: 64, num_warps: 4, num_stages: 4 },
            { M: 64, N: 256, K: 64, num_warps: 8 },
        ],
        when = tile == TileShape::new(M, N),
    )]
    pub fn linear_norm<T: LibraryFloat, const M: usize, const N: usize, const K: usize>(
        x: &View<T, 2>,
        weight: &View<T, 2>,
        bias: &View<T, 2>,
        residual: &View<T, 2>,
        gamma: &View<T, 2>,
        beta: &View<T, 2>,
        out: &mut View<T, 2>,
        subtract_mean: i32,
        act: i32,
        eps: f32,
        #[host] tile: TileShape,
    ) {
        let (row, n) = (tl::program_id(0) * M, out.shape::<i32>(1));
        let acc = matmul_mainloop::<T, i64, M, N, K, false>(x, weight, row, 0, 0, x.shape(1));
        let v = acc + bias.load::<1, N>(0, 0).to::<f32>();
        let v = if residual.shape(1) > 0 { v + residual.load::<M, N>(row, 0).to::<f32>() } else { v };
        let count = n.to::<f32>();
        // Columns past a row are 0 here, and have to be 0 again once the mean is subtracted.
        let mean = tl::select(subtract_mean != 0, tl::sum(v, 1) / count, 0.0);
        let centered = tl::select((tl::arange(0, N) < n).row(), v - mean.col(), 0.0);
        let scale = tl::rsqrt(tl::sum(centered * centered, 1) / count + eps);
        let y = centered * scale.col() * gamma.load::<1, N>(0, 0).to::<f32>()
            + beta.load::<1, N>(0, 0).to::<f32>();
        out.store(activate::<T>(y, act).to::<T>(), row, 0);
    }
}

pub use kernels::linear_norm;

/// The longest row of a result that the fused form makes.
pub const MAX_COLS: usize = 256;

/// A linear layer with a norm behind it: `LinearNorm::new(&x, weight, norm).bias(&bias).activation(Activation::Gelu)`.
#[derive(Clone, Copy)]
pub struct LinearNorm<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    weight: View<'a, T, 2>,
    norm: Norm<'a, T>,
    bias: Option<Slice<'a, T>>,
    residual: Option<Slice<'a, T>>,
    activation: Activation,
    eps: f32,
}

impl<'a, T: LibraryFloat> LinearNorm<'a, T> {
    /// Rows of `x` as long as the columns of `weight`, `[k, n]` with any strides, and a norm of `n` columns; `eps` is 1e-5, for RMSNorm 1e-6.
    pub fn new(x: impl Into<Slice<'a, T>>, weight: View<'a, T, 2>, norm: Norm<'a, T>) -> Self {
        let eps = if matches!(norm, Norm::Rms { .. }) { 1e-6 } else { 1e-5 };
        let (x, activation) = (x.into(), Activation::Identity);
        LinearNorm { x, weight, norm, bias: None, residual: None, activation, eps }
    }

    /// Applies an activation to the norm.
    pub fn activation(self, activation: Activation) -> Self {
        LinearNorm { activation, ..self }
    }

    /// Adds a bias to each column, before the norm.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        LinearNorm { bias: Some(bias.into()), ..self }
    }

    /// Adds a matrix like the result, before the norm.
    pub fn residual(self, residual: impl Into<Slice<'a, T>>) -> Self {
        LinearNorm { residual: Some(residual.into()), ..self }
    }

    /// What is added to the variance or the mean square, so that a constant row does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        LinearNorm { eps, ..self }
    }

    /// Computes into `out`, `n` elements for each row of `x`, on a device or stream, in the form that is faster there.
    ///
    /// # Errors
    /// If the lengths do not fit each other; if there is no temporary memory; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, [k, n]) = (out.into(), self.weight.shape());
        let rows = self.rows(out.len())?;
        let form = self.form(on, rows);
        trace_choice("linear_norm", format_args!("{form:?}: {rows} rows of {k}, {n} columns"));
        self.launch_as(on, out, form)
    }

    /// The same in a form of the caller's.
    ///
    /// # Errors
    /// Those of [`LinearNorm::launch`]; [`Form::Fused`] of rows longer than [`MAX_COLS`], and of `f32`, which has none.
    pub fn launch_as<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<SliceMut<'o, T>>,
        form: Form,
    ) -> Result<()> {
        let (mut out, [k, n]) = (out.into(), self.weight.shape());
        let rows = self.rows(out.len())?;
        CHECKS.extents("x", [self.x.len()], [rows * k])?;
        CHECKS.extents("out", [out.len()], [rows * n])?;
        let (gamma, beta) = match self.norm {
            Norm::Layer { gamma, beta } => (gamma, Some(beta)),
            Norm::Rms { gamma } => (gamma, None),
        };
        CHECKS.extents("gamma", [gamma.len()], [n])?;
        for (name, columns) in [("beta", beta), ("bias", self.bias)] {
            if let Some(columns) = columns {
                CHECKS.extents(name, [columns.len()], [n])?;
            }
        }
        if let Some(residual) = &self.residual {
            CHECKS.same(("residual", residual.len()), ("out", out.len()))?;
        }
        if rows * n == 0 {
            return Ok(());
        }
        let (x, is_layer_norm) = (self.x.view([rows, k])?, beta.is_some());
        if form == Form::Fused {
            let tile = fused_tile::<T>(on, [rows, n])?;
            let line = |of: Slice<'a, T>| of.view([1, of.len()]);
            let nothing = gamma.slice(..0);
            let [bias, gamma, beta] = [self.bias.unwrap_or(nothing), gamma, beta.unwrap_or(nothing)];
            let residual = self.residual.map_or(nothing.view([0, 0]), |residual| residual.view([rows, n]))?;
            let (bias, gamma, beta, out) = (line(bias)?, line(gamma)?, line(beta)?, out.view_mut([rows, n])?);
            let (subtract_mean, act) = (is_layer_norm.into(), self.activation as i32);
            return linear_norm(
                x,
                self.weight,
                bias,
                residual,
                gamma,
                beta,
                out,
                subtract_mean,
                act,
                self.eps,
                tile,
            )
            .grid(rows.div_ceil(tile.rows))
            .launch(on);
        }
        let mut pre_norm = on.temporary::<T>(rows * n)?;
        let linear = Matmul::new(x, self.weight);
        let linear = self.bias.map_or(linear, |bias| linear.bias(bias));
        let residual = self.residual.map(|residual| residual.view([rows, n])).transpose()?;
        let linear = residual.map_or(linear, |residual| linear.residual(residual));
        linear.launch(on, pre_norm.slice_mut().view_mut([rows, n])?)?;
        self.normalize(on, pre_norm.slice(), out)
    }

    /// Launches norm and activation after the matmul.
    fn normalize(&self, on: impl LaunchOn, x: Slice<'_, T>, out: SliceMut<'_, T>) -> Result<()> {
        let (activation, eps) = (self.activation, self.eps);
        match (self.norm, activation) {
            (Norm::Layer { gamma, beta }, Activation::Identity) => {
                LayerNorm::new(x, gamma, beta).eps(eps).launch(on, out)
            }
            (Norm::Layer { gamma, beta }, Activation::Gelu) if gamma.len() <= layer_norm_gelu::MAX_COLS => {
                LayerNormGelu::new(x, gamma, beta).eps(eps).launch(on, out)
            }
            (Norm::Layer { gamma, beta }, _) => {
                NormActivation::layer_norm(x, gamma, beta, activation).eps(eps).launch(on, out)
            }
            (Norm::Rms { gamma }, Activation::Identity) => RmsNorm::new(x, gamma).eps(eps).launch(on, out),
            (Norm::Rms { gamma }, _) => {
                NormActivation::rms_norm(x, gamma, activation).eps(eps).launch(on, out)
            }
        }
    }

    /// The rows of a result with so many elements.
    fn rows(&self, out: usize) -> Result<usize> {
        let [k, n] = self.weight.shape();
        if n > 0 { CHECKS.rows(("out", out), n) } else { CHECKS.rows(("x", self.x.len()), k) }
    }

    fn form(&self, on: impl LaunchOn, rows: usize) -> Form {
        let [k, n] = self.weight.shape();
        let in_vectors = [k, n].into_iter().all(|extent| extent.is_multiple_of(16 / size_of::<T>()));
        let is_small = k * n * size_of::<T>() <= SMALL_WEIGHT;
        let pays = |tile: TileShape| is_small || occupies_half(on, tile, rows);
        let fuses = size_of::<T>() == 2
            && is_aligned(&self.weight.batch())
            && on.shared_bytes().is_some()
            && in_vectors
            && tile(on, [rows, n]).is_some_and(pays);
        if fuses { Form::Fused } else { Form::Separate }
    }

    /// Launches and bytes for so many rows: of [`LinearNorm::launch`], and operation by operation.
    pub fn cost(&self, on: impl LaunchOn, rows: usize) -> [Cost; 2] {
        let ([k, n], size) = (self.weight.shape(), size_of::<T>());
        let added = if self.residual.is_some() { rows * n } else { 0 };
        let linear = |added: usize| Cost::of(size, rows * k + k * n + rows * n + added);
        let pass = Cost::of(size, 2 * rows * n);
        let ours = match self.form(on, rows) {
            Form::Fused => linear(added),
            Form::Separate => linear(added) + pass,
        };
        let addition = if added > 0 { Cost::of(size, 3 * added) } else { Cost::default() };
        let has_activation = self.activation != Activation::Identity;
        let activation = if has_activation { pass } else { Cost::default() };
        [ours, linear(0) + addition + pass + activation]
    }
}

/// Bytes of weights that one program reads in about the time of a launch: 2.6 us at 100 GB/s.
const SMALL_WEIGHT: usize = 256 << 10;

/// The tiles for rows of up to so many columns: for few rows, and for rows that occupy the SMs.
const NARROW: [TileShape; 2] = [TileShape::new(16, 128), TileShape::new(64, 128)];
const MIDDLE: [TileShape; 2] = [TileShape::new(16, 256), TileShape::new(64, 256)];

/// The tile of the fused form, if it has one.
fn fused_tile<T: LibraryFloat>(on: impl LaunchOn, [rows, n]: [usize; 2]) -> Result<TileShape> {
    check_fused::<T>(CHECKS)?;
    let none = || format!("rows have {n} columns, the most of the fused form is {MAX_COLS}");
    tile(on, [rows, n]).ok_or_else(|| CHECKS.error(none()))
}

/// The tile for so many rows: the large one where programs of it occupy half of the SMs.
fn tile(on: impl LaunchOn, [rows, n]: [usize; 2]) -> Option<TileShape> {
    let [small, large] = match n {
        0..=128 => NARROW,
        129..=MAX_COLS => MIDDLE,
        _ => return None,
    };
    Some(if occupies_half(on, large, rows) { large } else { small })
}

fn occupies_half(on: impl LaunchOn, tile: TileShape, rows: usize) -> bool {
    2 * rows.div_ceil(tile.rows) >= on.parallelism()
}

/// A linear layer and the norm behind it on the host: `beta` where the norm is LayerNorm, `weight` row by row.
#[derive(Clone, Copy, Debug)]
pub struct HostLinear<'a, T> {
    /// `[k, n]`
    pub weight: &'a [T],
    /// `n` elements.
    pub bias: Option<&'a [T]>,
    /// `[rows, n]`
    pub residual: Option<&'a [T]>,
    /// The scale of each column of the result.
    pub gamma: &'a [T],
    /// What LayerNorm adds; RMSNorm has none.
    pub beta: Option<&'a [T]>,
    /// What is added to the variance.
    pub eps: f32,
}

/// What a form computes of `x`, rows of `k` elements, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(
    (x, k): (&[T], usize),
    layer: HostLinear<'_, T>,
    activation: Activation,
    form: Form,
) -> Vec<Expected> {
    let (n, unit) = (layer.gamma.len(), unit_roundoff(DType::F32));
    // Without terms only a residual says how many rows there are.
    let without_terms = || layer.residual.map_or(1, |residual| residual.len() / n.max(1));
    let rows = x.len().checked_div(k).unwrap_or_else(without_terms);
    let mut expected = Vec::with_capacity(rows * n);
    for row in 0..rows {
        let sum = |col: usize| {
            let terms = (0..k).map(|i| x[row * k + i].to_f64() * layer.weight[i * n + col].to_f64());
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let biased = sum + layer.bias.map_or(0.0, |bias| bias[col].to_f64());
            let value = biased + layer.residual.map_or(0.0, |residual| residual[row * n + col].to_f64());
            let within = (k + 3) as f64 * 2.0 * unit * size + unit * (biased.abs() + value.abs());
            let sum = Expected { value, within };
            if form == Form::Fused { sum } else { sum.rounded(T::DTYPE) }
        };
        let pre_norm: Vec<Expected> = (0..n).map(sum).collect();
        let x_hat = normalized(&pre_norm, &layer);
        expected.extend(x_hat.into_iter().map(|y| activation.propagated_rounded(y, T::DTYPE)));
    }
    expected
}

/// The norm of a row that is known within bounds.
fn normalized<T: Float>(row: &[Expected], layer: &HostLinear<'_, T>) -> Vec<Expected> {
    let subtract_mean = layer.beta.is_some();
    let mean_of = |of: &dyn Fn(&Expected) -> f64| row.iter().map(of).sum::<f64>() / row.len() as f64;
    let if_subtracted = |mean: f64| if subtract_mean { mean } else { 0.0 };
    let mean = if_subtracted(mean_of(&|v| v.value));
    let (magnitude, mean_error) =
        (if_subtracted(mean_of(&|v| v.value.abs())), if_subtracted(mean_of(&|v| v.within)));
    let eps = f64::from(layer.eps);
    let root = (mean_of(&|v| (v.value - mean).powi(2)) + eps).sqrt();
    // The root of a row with errors differs from the exact one by at most their root mean square.
    let rms_error = mean_of(&|v| v.within.powi(2)).sqrt();
    let min_root = (root - rms_error).max(eps.sqrt());
    let arithmetic = (8.0 + (row.len() as f64).sqrt()) * unit_roundoff(DType::F32);
    let element = |(col, v): (usize, &Expected)| {
        let (gamma, beta) = (layer.gamma[col].to_f64(), layer.beta.map_or(0.0, |beta| beta[col].to_f64()));
        let x_hat = (v.value - mean) / root;
        let x_hat_error = (v.within + mean_error + rms_error * x_hat.abs()) / min_root;
        let magnitude_hat = x_hat.abs() + x_hat_error + (magnitude + mean_error) / min_root;
        Expected {
            value: x_hat * gamma + beta,
            within: x_hat_error * gamma.abs() + arithmetic * (magnitude_hat * gamma.abs() + beta.abs()),
        }
    };
    row.iter().enumerate().map(element).collect()
}

/// The bytes that the fused form must move for `rows` rows of `k` elements and `n` columns, without a residual.
pub const fn traffic<T>(rows: usize, k: usize, n: usize) -> usize {
    (rows * k + k * n + rows * n) * size_of::<T>()
}

//! `out = act(norm(x) · W + bias)`: LayerNorm or RMSNorm of the rows of a matrix, and the linear layer behind it.
//!
//! **Folding.** The norm's parameters belong to the weights: with `W' = diag(gamma) · W`, its column sums `u` and
//! `c = beta · W + bias`, a row of the result is `act((x · W' - mean(x) * u) * rstd(x) + c)`. RMSNorm has no mean and no `beta`.
//! [`FoldedLinear`] computes `W'`, `u` and `c` once, when weights are loaded.
//!
//! **Forms.** [`Form::Fused`] is one kernel: it accumulates a row's statistics in the main loop of the matmul, and scales the accumulator.
//! Every program of a row computes them again, so this pays for few rows, where the time is that of reading the weights: the
//! separate norm would be a launch and a wait. [`Form::Separate`] is a norm and a [`Matmul`], which has the larger tiles. [`NormLinear::launch`] takes the fused form of
//! up to [`FEW_ROWS`] rows on a GPU; `FUSE_TRACE=1` says which. docs/decisions/0159 has the measurement.
//!
//! **Traffic.** The fused form reads `x` and `W'` and writes `out` once: `(rows * k + k * n + rows * n) * size_of::<T>()` bytes. The
//! separate form writes the normalized rows and reads them again, `2 * rows * k * size_of::<T>()` bytes more.
//!
//! **Rounding.** `W'`, and in the separate form the normalized rows and `c`, are rounded to `T`; the rest is `f32`. Before the last
//! rounding a result is within `(2 u + (k + 3) * 2^-23) * sum |norm(x) * W'| + u * |c|` of the exact one, `u` the unit roundoff of `T`.
//! The fused LayerNorm multiplies rows that were not centered: of a row with a mean `d` away from its first element that sum is
//! of `(|x| + |mean|) * rstd` instead, and the variance errs by `(8 + sqrt(k)) * 2^-22 * (1 + d^2 / variance)`, relatively.
//!
//! **Source.** LayerNorm: Ba, Kiros, Hinton, 2016, arXiv:1607.06450. RMSNorm: Zhang, Sennrich, 2019, arXiv:1910.07467. Folding follows
//! from both being linear in `gamma` and `beta`.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, trace_choice};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::form::{Form, check_fused};
use crate::layer_norm::LayerNorm;
use crate::matmul::{Matmul, TileShape};
use crate::matmul_dispatch::EPILOGUE;
use crate::reference::{Expected, unit_roundoff};
use crate::rms_norm::RmsNorm;
use crate::shape::Checks;

/// The most rows that [`NormLinear::launch`] normalizes and multiplies in one kernel: those of one tile.
pub const FEW_ROWS: usize = 16;

/// The tiles of the fused form: of a single wave, and of others.
const TILES: [TileShape; 2] = [TileShape::new(FEW_ROWS, 32), TileShape::new(FEW_ROWS, 64)];

/// The columns of a program that folds weights.
const FOLD_COLS: usize = 32;

const CHECKS: Checks = Checks("norm_linear");

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::activate_in_epilogue;
    use crate::float::LibraryFloat;

    /// Scales `N` columns of `weight` by `gamma`, one for each row, and writes their sums and `beta · weight + bias`. There may be
    /// no `beta` and no `bias`.
    #[fuse_kernel(T = [f32, f16, bf16], K = [128], N = [32], num_warps = 4)]
    pub fn fold_norm<T: LibraryFloat, const K: usize, const N: usize>(
        weight: &View<T, 2>,
        gamma: &[T],
        beta: &[T],
        bias: &[T],
        folded: &mut View<T, 2>,
        sums: &mut [f32],
        constants: &mut [f32],
    ) {
        let (terms, n) = (weight.shape::<i32>(0), weight.shape::<i32>(1));
        let col = tl::program_id(0) * N;
        let cols = col + tl::arange(0, N);
        let mut sum = tl::zeros::<f32>([N]);
        let mut constant =
            if bias.len() > 0 { tl::load(bias + cols, cols < n).to::<f32>() } else { tl::zeros::<f32>([N]) };
        for start in (0..terms).step_by(K) {
            let rows = start + tl::arange(0, K);
            let w = weight.load::<K, N>(start, col).to::<f32>();
            let scaled = (w * tl::load(gamma + rows, rows < terms).to::<f32>().col()).to::<T>();
            folded.store(scaled, start, col);
            sum += tl::sum(scaled.to::<f32>(), 0);
            if beta.len() > 0 {
                constant += tl::sum(w * tl::load(beta + rows, rows < terms).to::<f32>().col(), 0);
            }
        }
        tl::store(sums + cols, sum, cols < n);
        tl::store(constants + cols, constant, cols < n);
    }

    /// A program computes `M x N` elements in steps of `K`, with tiles in row-major order. Sums of squares are accumulated for each
    /// column of a `K` block, and reduced once after the loop.
    #[fuse_kernel(
        T = [f16, bf16],
        configs = [
            { SUBTRACT_MEAN: false, M: 16, N: 32, K: 256 },
            { SUBTRACT_MEAN: false, M: 16, N: 64, K: 128 },
            { SUBTRACT_MEAN: true, M: 16, N: 32, K: 128 },
            { SUBTRACT_MEAN: true, M: 16, N: 64, K: 128 },
        ],
        num_warps = 4, num_stages = 4, when = SUBTRACT_MEAN == subtract_mean && N == cols,
    )]
    pub fn norm_linear<
        T: LibraryFloat,
        const SUBTRACT_MEAN: bool,
        const M: usize,
        const N: usize,
        const K: usize,
    >(
        x: &View<T, 2>,
        weight: &View<T, 2>,
        weight_sums: &View<f32, 2>,
        bias: &View<f32, 2>,
        out: &mut View<T, 2>,
        act: i32,
        eps: f32,
        #[host] subtract_mean: bool,
        #[host] cols: usize,
    ) {
        let grid_n = tl::cdiv(out.shape::<i32>(1), N);
        let (row, col) = (tl::program_id(0) / grid_n * M, tl::program_id(0) % grid_n * N);
        let terms = x.shape(1);
        let count = terms.to::<f32>();
        let mut acc = tl::zeros::<f32>([M, N]);
        let mut squares = tl::zeros::<f32>([M, K]);
        let normalized = if SUBTRACT_MEAN {
            // Deviations from the first element: their squares do not cancel as those of elements far from 0 would.
            let origin = x.load::<M, 1>(row, 0).to::<f32>();
            let mut deviations = tl::zeros::<f32>([M, K]);
            for start in (0..terms).step_by(K) {
                let x_tile = x.load::<M, K>(row, start);
                let is_in_bounds = start.to::<i32>() + tl::arange(0, K) < terms.to::<i32>();
                let deviation = tl::select(is_in_bounds.row(), x_tile.to::<f32>() - origin, 0.0);
                deviations += deviation;
                squares += deviation * deviation;
                acc = tl::dot(x_tile, weight.load::<K, N>(start, col), acc);
            }
            let shift = tl::sum(deviations, 1) / count;
            let variance = tl::maximum(tl::sum(squares, 1) / count - shift * shift, 0.0);
            let mean = shift.col() + origin;
            (acc - mean * weight_sums.load::<1, N>(0, col)) * tl::rsqrt(variance + eps).col()
        } else {
            for start in (0..terms).step_by(K) {
                let x_tile = x.load::<M, K>(row, start);
                let wide = x_tile.to::<f32>();
                squares += wide * wide;
                acc = tl::dot(x_tile, weight.load::<K, N>(start, col), acc);
            }
            acc * tl::rsqrt(tl::sum(squares, 1) / count + eps).col()
        };
        let y = activate_in_epilogue::<T>(normalized + bias.load::<1, N>(0, col), act);
        out.store(y.to::<T>(), row, col);
    }
}

pub use kernels::{fold_norm, norm_linear};

/// A norm's parameters, each as long as a row.
#[derive(Clone, Copy)]
pub enum Norm<'a, T: LibraryFloat> {
    /// `(x - mean) / sqrt(variance + eps) * gamma + beta`
    Layer {
        /// The scale of each column.
        gamma: Slice<'a, T>,
        /// What is added to each column.
        beta: Slice<'a, T>,
    },
    /// `x / sqrt(mean(x^2) + eps) * gamma`
    Rms {
        /// The scale of each column.
        gamma: Slice<'a, T>,
    },
}

/// The weights of a linear layer with the parameters of the norm before it folded in.
#[derive(Debug)]
pub struct FoldedLinear<T: LibraryFloat> {
    /// `W'`, column by column: `n` rows of `k`.
    weight: Buffer<T>,
    sums: Buffer<f32>,
    constants: Buffer<f32>,
    /// `c` as the separate matmul takes it, absent where it is zero, and the parameters of a norm without any.
    bias: Option<Buffer<T>>,
    ones: Buffer<T>,
    zeros: Buffer<T>,
    extents: [usize; 2],
    subtract_mean: bool,
}

impl<T: LibraryFloat> FoldedLinear<T> {
    /// Folds a norm into the weights `[k, n]`, with any strides, and the bias, `n` elements if there is one.
    ///
    /// # Errors
    /// If the parameters are not `k` and `n` elements; those of an allocation and a launch.
    pub fn new(
        device: &Device,
        norm: Norm<'_, T>,
        weight: View<'_, T, 2>,
        bias: Option<Slice<'_, T>>,
    ) -> Result<Self> {
        let [k, n] = weight.shape();
        let nothing = device.zeros::<T>(0)?;
        let (gamma, beta) = match norm {
            Norm::Layer { gamma, beta } => (gamma, Some(beta)),
            Norm::Rms { gamma } => (gamma, None),
        };
        CHECKS.extents("gamma", [gamma.len()], [k])?;
        if let Some(beta) = &beta {
            CHECKS.extents("beta", [beta.len()], [k])?;
        }
        if let Some(bias) = &bias {
            CHECKS.extents("bias", [bias.len()], [n])?;
        }
        let (subtract_mean, adds) = (beta.is_some(), beta.is_some() || bias.is_some());
        let (mut folded, mut sums, mut constants) =
            (device.zeros::<T>(n * k)?, device.zeros::<f32>(n)?, device.zeros::<f32>(n)?);
        if n > 0 {
            let (beta, bias) = (beta.unwrap_or(nothing.slice(..)), bias.unwrap_or(nothing.slice(..)));
            let out = folded.view_mut([n, k])?.permute([1, 0]);
            fold_norm::<T, 128, FOLD_COLS>(weight, gamma, beta, bias, out, &mut sums, &mut constants)
                .grid(n.div_ceil(FOLD_COLS))
                .launch(device)?;
        }
        let rounded = || -> Result<Buffer<T>> {
            let constants = constants.download()?;
            device.upload(&constants.iter().map(|&c| T::from_f64(f64::from(c))).collect::<Vec<T>>())
        };
        let bias = adds.then(rounded).transpose()?;
        Ok(FoldedLinear {
            weight: folded,
            sums,
            constants,
            bias,
            ones: device.upload(&vec![T::from_f64(1.0); k])?,
            zeros: device.zeros(k)?,
            extents: [k, n],
            subtract_mean,
        })
    }

    /// `n`, the elements of a row of the result.
    pub fn columns(&self) -> usize {
        self.extents[1]
    }

    /// `beta · W + bias`, as a matmul takes it, where there is either.
    pub fn bias(&self) -> Option<Slice<'_, T>> {
        self.bias.as_ref().map(|bias| bias.slice(..))
    }

    /// The weights `[k, n]`, scaled by `gamma`.
    pub fn weight(&self) -> Result<View<'_, T, 2>> {
        let [k, n] = self.extents;
        Ok(self.weight.view([n, k])?.permute([1, 0]))
    }

    /// Launches the norm without parameters, for the separate form.
    pub(crate) fn normalize(
        &self,
        on: impl LaunchOn,
        x: Slice<'_, T>,
        out: SliceMut<'_, T>,
        eps: f32,
    ) -> Result<()> {
        if self.subtract_mean {
            LayerNorm::new(x, &self.ones, &self.zeros).eps(eps).launch(on, out)
        } else {
            RmsNorm::new(x, &self.ones).eps(eps).launch(on, out)
        }
    }
}

/// The norm of the rows of `x`, and the linear layer behind it: `NormLinear::new(&x, &folded).activation(Activation::Gelu)`.
#[derive(Clone, Copy)]
pub struct NormLinear<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    layer: &'a FoldedLinear<T>,
    activation: Activation,
    eps: f32,
}

impl<'a, T: LibraryFloat> NormLinear<'a, T> {
    /// Rows of `x` as long as those that the layer was folded for; `eps` is 1e-5.
    pub fn new(x: impl Into<Slice<'a, T>>, layer: &'a FoldedLinear<T>) -> Self {
        NormLinear { x: x.into(), layer, activation: Activation::Identity, eps: 1e-5 }
    }

    /// Applies the identity, ReLU, GELU or SiLU.
    pub fn activation(self, activation: Activation) -> Self {
        NormLinear { activation, ..self }
    }

    /// What is added to the variance or the mean square, so that a row of zeros does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        NormLinear { eps, ..self }
    }

    /// Computes into `out`, `[rows, n]`, on a device or stream, in the form that is faster there.
    ///
    /// # Errors
    /// If the lengths do not fit each other; if there is no kernel with the activation; if there is no memory for the normalized rows;
    /// those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: ViewMut<'o, T, 2>) -> Result<()> {
        let [rows, _] = out.shape();
        let [k, n] = self.layer.extents;
        let form = form::<T>(on, rows, [k, n]);
        trace_choice(
            "norm_linear",
            format_args!("{form:?}: {rows} rows of {k}, {n} columns; {FEW_ROWS} rows are fused at most"),
        );
        self.launch_as(on, out, form)
    }

    /// The same in a form of the caller's.
    ///
    /// # Errors
    /// Those of [`NormLinear::launch`]; [`Form::Fused`] of `f32`, which has none.
    pub fn launch_as<'o>(&self, on: impl LaunchOn, out: ViewMut<'o, T, 2>, form: Form) -> Result<()> {
        let ([k, n], [rows, cols], activation) = (self.layer.extents, out.shape(), self.activation);
        activation.check(CHECKS, &EPILOGUE)?;
        CHECKS.extents("out", [rows, cols], [rows, n])?;
        CHECKS.extents("x", [self.x.len()], [rows * k])?;
        if rows * n == 0 {
            return Ok(());
        }
        let x = self.x.view([rows, k])?;
        match form {
            Form::Fused => {
                check_fused::<T>(CHECKS)?;
                let (layer, subtract_mean) = (self.layer, self.layer.subtract_mean);
                let (sums, bias) = (layer.sums.view([1, n])?, layer.constants.view([1, n])?);
                let tile = tile(on, [rows, n], subtract_mean);
                norm_linear(
                    x,
                    layer.weight()?,
                    sums,
                    bias,
                    out,
                    activation as i32,
                    self.eps,
                    subtract_mean,
                    tile.cols,
                )
                .grid(tile.count([1, rows, n]))
                .launch(on)
            }
            Form::Separate => {
                let mut normalized = on.temporary::<T>(rows * k)?;
                self.layer.normalize(on, self.x, normalized.slice_mut(), self.eps)?;
                let normalized = normalized.slice().view([rows, k])?;
                let linear = Matmul::new(normalized, self.layer.weight()?).activation(activation);
                self.layer.bias().map_or(linear, |bias| linear.bias(bias)).launch(on, out)
            }
        }
    }
}

/// The form that is faster for so many rows of a layer `[k, n]`.
pub(crate) fn form<T: LibraryFloat>(on: impl LaunchOn, rows: usize, layer: [usize; 2]) -> Form {
    let in_vectors = layer.iter().all(|extent| extent.is_multiple_of(16 / size_of::<T>()));
    // A single row is a matrix-vector product, which is sooner done behind a norm of its own.
    let fuses = on.shared_bytes().is_some() && (2..=FEW_ROWS).contains(&rows) && in_vectors;
    if size_of::<T>() == 2 && fuses { Form::Fused } else { Form::Separate }
}

/// The tile of the fused form.
fn tile(on: impl LaunchOn, [rows, n]: [usize; 2], subtract_mean: bool) -> TileShape {
    let [small, large] = TILES;
    let programs = |tile: TileShape| tile.count([1, rows, n]);
    // An SM runs two blocks of small tiles.
    let is_small = if subtract_mean {
        2 * programs(large) < on.parallelism()
    } else {
        programs(small) <= 2 * on.parallelism()
    };
    if is_small { small } else { large }
}

/// The parameters of a norm and a linear layer on the host: `beta` where the norm is LayerNorm, `weight` row by row.
#[derive(Clone, Copy, Debug)]
pub struct HostLayer<'a, T> {
    /// The scale of each column of `x`.
    pub gamma: &'a [T],
    /// What LayerNorm adds; RMSNorm has none.
    pub beta: Option<&'a [T]>,
    /// `[k, n]`
    pub weight: &'a [T],
    /// `n` elements.
    pub bias: &'a [T],
    /// What is added to the variance.
    pub eps: f32,
}

/// What either form computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], layer: HostLayer<'_, T>, activation: Activation) -> Vec<Expected> {
    let HostLayer { gamma, beta, weight, bias, eps } = layer;
    let (k, n, unit) = (gamma.len(), bias.len(), unit_roundoff(T::DTYPE));
    let wide = |of: &[T]| of.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let (gamma, weight, bias) = (wide(gamma), wide(weight), wide(bias));
    let single = unit_roundoff(DType::F32);
    let mut expected = Vec::new();
    for row in x.chunks(k) {
        let row = wide(row);
        let mean = if beta.is_some() { row.iter().sum::<f64>() / k as f64 } else { 0.0 };
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / k as f64;
        let denominator = variance + f64::from(eps);
        let rstd = 1.0 / denominator.sqrt();
        let first_deviation = if beta.is_some() { (row[0] - mean).powi(2) } else { 0.0 };
        // Half of the relative error of the variance is that of the scale.
        let scale_error =
            (8.0 + (k as f64).sqrt()) * 2.0 * single * (variance + 2.0 * first_deviation) / denominator;
        for col in 0..n {
            let (mut sum, mut magnitude, mut constant) = (0.0, 0.0, bias[col]);
            for i in 0..k {
                let scaled = gamma[i] * weight[i * n + col];
                sum += (row[i] - mean) * scaled;
                magnitude += (row[i].abs() + mean.abs()) * scaled.abs();
                constant += beta.map_or(0.0, |beta| beta[i].to_f64() * weight[i * n + col]);
            }
            let value = sum * rstd + constant;
            let relative = 2.0 * unit + (k + 3) as f64 * 2.0 * single;
            let within =
                relative * magnitude * rstd + scale_error * (sum * rstd).abs() + unit * constant.abs();
            expected.push(activation.propagated_rounded(Expected { value, within }, T::DTYPE));
        }
    }
    expected
}

/// The bytes that the fused form must move for `rows` rows of `k` elements and `n` columns.
pub const fn traffic<T>(rows: usize, k: usize, n: usize) -> usize {
    (rows * k + k * n + rows * n) * size_of::<T>()
}

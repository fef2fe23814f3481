//! `out = dropout(act(x + bias)) + residual`, the activation GELU in its exact or its tanh form, with or without a residual;
//! and its gradients.
//!
//! Element `(r, c)` is dropped where `tl::rand(seed, r * cols + c) < p`, and is divided by `1 - p` otherwise: the mask is a
//! function of the seed and the element's offset, so that backward computes it again and nothing is saved. `tl::rand` gives `2^23`
//! numbers, of which `ceil(p * 2^23)` are below `p`: at `p = 0` nothing is dropped, beyond `1 - 2^-23` everything, whatever it is.
//!
//! **Traffic.** Forward reads `x` (and the residual) and writes `out` once; backward reads `dy` and `x` and writes `dx` once,
//! and partial sums of `dbias` to `scratch`, which a second kernel reduces. `bias` is found in the cache. One Philox block
//! gives the random numbers of four contiguous elements.
//!
//! **Rounding.** In `f32`, rounded to `T` once: before that forward is within 1.13 times the rounding of `x + bias`, the
//! activation's own bound (see [`crate::activation`]) and three roundings; `dx` within `|dy| / (1 - p)` times `2^-11` for
//! 16-bit types, and times `(32 + 4 v^2) * 2^-24 * (1 + |v|)` at `v = x + bias` otherwise; `dbias` within the sum of those and
//! `(8 + sqrt(rows)) * 2^-24 * sum(|dx|)`.
//!
//! **Source.** Srivastava and others, *Dropout*, 2014; Salmon and others, *Parallel Random Numbers: As Easy as 1, 2, 3*, 2011,
//! for Philox; fused as in Megatron-LM's `bias_dropout_add`.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation::{Activation, MAX_SLOPE, normal_below};
use crate::float::LibraryFloat;
use crate::partials;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, MAX_GRID_YZ};

/// The activations that there are kernels for.
const ACTIVATIONS: [Activation; 2] = [Activation::Gelu, Activation::GeluTanh];

/// The rows that a program takes.
const ROWS: usize = 4;

/// The columns of a program of backward, and of forward where there are more than 128.
pub(crate) const COLS: usize = 1024;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::{Activation, activate};
    use crate::float::LibraryFloat;

    /// Program `(i, j)` handles `COLS` columns from `i * COLS` on of the 4 rows from `first_row + 4 * j` on, for which it reads
    /// the bias once. `residual` may be empty where it is not added.
    #[fuse_kernel(
        configs = [{ HAS_RESIDUAL: false, num_warps: 2 }, { HAS_RESIDUAL: true, num_warps: 4 }],
        T = [f32, f16, bf16], activation = [Activation::Gelu, Activation::GeluTanh], COLS = n_cols.min(1024) in [128, 1024],
    )]
    pub fn bias_gelu_dropout<T: LibraryFloat, const HAS_RESIDUAL: bool, const COLS: usize>(
        x: &[T],
        bias: &[T],
        residual: &[T],
        out: &mut [T],
        activation: Activation,
        first_row: i32,
        n_rows: i32,
        n_cols: i32,
        p: f32,
        seed: u64,
    ) {
        let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
        let bias = tl::load(bias + cols, cols < n_cols).to::<f32>();
        // `tl::rand(seed, offset) < p`, compared as bits: so many of its 2^23 values are below `p`.
        let n_dropped = tl::ceil(p * 8388608.0).to::<u32>();
        let scale = 1.0 / (1.0 - p);
        for r in tl::static_range(0, 4) {
            let row = first_row + tl::program_id(1) * 4 + r;
            let mask = (cols < n_cols) & (row < n_rows);
            let offsets = row * n_cols + cols;
            let residual_values = if HAS_RESIDUAL {
                tl::load(residual + offsets, mask).to::<f32>()
            } else {
                tl::zeros::<f32>([COLS])
            };
            let v = tl::load(x + offsets, mask).to::<f32>() + bias;
            let y = activate::<T>(v, activation);
            let rng_offsets = row.to::<i64>() * n_cols.to::<i64>() + cols.to::<i64>();
            let is_dropped = tl::randint(seed, rng_offsets) >> 9 < n_dropped;
            let y = tl::select(is_dropped, 0.0, y * scale);
            let y = if HAS_RESIDUAL { y + residual_values } else { y };
            tl::store(out + offsets, y.to::<T>(), mask);
        }
    }

    /// The gradient of `x`, 4 rows at a time: program `(i, j)` takes fours `i`, `i + programs`, and so on of its columns, and
    /// writes its partial sums of the gradient of `bias`, which it reads once.
    #[fuse_kernel(
        configs = [{ T: f32, num_warps: 8 }, { T: f16 }, { T: bf16 }], activation = [Activation::Gelu, Activation::GeluTanh], COLS = [1024], num_warps = 4,
    )]
    pub fn bias_gelu_dropout_backward<T: LibraryFloat, const COLS: usize>(
        dy: &[T],
        x: &[T],
        bias: &[T],
        dx: &mut [T],
        partials: &mut [f32],
        activation: Activation,
        n_rows: i32,
        n_cols: i32,
        p: f32,
        seed: u64,
    ) {
        let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
        let bias = tl::load(bias + cols, cols < n_cols).to::<f32>();
        let n_dropped = tl::ceil(p * 8388608.0).to::<u32>();
        let scale = 1.0 / (1.0 - p);
        let weight = tl::log2(scale);
        let mut dbias = tl::zeros::<f32>([COLS]);
        for first in (tl::program_id(0) * 4..n_rows).step_by(tl::num_programs(0) * 4) {
            for r in tl::static_range(0, 4) {
                let row = first + r;
                let mask = (cols < n_cols) & (row < n_rows);
                let offsets = row * n_cols + cols;
                let v = tl::load(x + offsets, mask).to::<f32>() + bias;
                let dy = tl::load(dy + offsets, mask).to::<f32>();
                // `scale` times the slope.
                let slope = if activation == Activation::GeluTanh {
                    let v = tl::minimum(tl::maximum(v, -10.0), 10.0);
                    let square = v * v;
                    let root = tl::rsqrt(1.0 + tl::exp2(v * (square * -0.10294324 - 2.3022082)));
                    let s = root * root;
                    scale * s * (1.0 + v * (1.0 - s) * (1.5957691 + 0.21406445 * square))
                } else {
                    let t = tl::minimum(tl::abs(v), 14.0);
                    let bell = tl::exp2(tl::fma(t * t, -0.72134752, weight));
                    // The slope at -t: half of erfc(t / sqrt 2), less t times the normal density.
                    let below = if T::EPSILON > 0.0005 {
                        let p = (-0.0027395732 * t + 0.025279991) * t - 0.099661180;
                        let p = ((p * t + 0.23543251) * t - 0.79550956) * t + 0.49993726;
                        p * bell
                    } else {
                        let r = 1.0 / (1.0 + 0.35 * t);
                        let p = (-0.029164834 * r + 0.14406510) * r - 0.25591040;
                        let p = ((p * r + 0.15940221) * r - 0.023269875) * r + 0.10557718;
                        let p = ((p * r + 0.11981495) * r + 0.1398644) * r + 0.13962126;
                        p * r * bell - t * (bell * 0.3989423)
                    };
                    tl::select(v > 0.0, scale - below, below)
                };
                let rng_offsets = row.to::<i64>() * n_cols.to::<i64>() + cols.to::<i64>();
                let is_dropped = tl::randint(seed, rng_offsets) >> 9 < n_dropped;
                let y = tl::select(is_dropped | !mask, 0.0, dy * slope);
                tl::store(dx + offsets, y.to::<T>(), mask);
                dbias += y;
            }
        }
        tl::store(partials + tl::program_id(0) * n_cols + cols, dbias, cols < n_cols);
    }
}

pub use kernels::{bias_gelu_dropout, bias_gelu_dropout_backward};

/// Bias, GELU and dropout of each row of a matrix: `BiasGeluDropout::new(&x, &bias)`.
#[derive(Clone, Copy)]
pub struct BiasGeluDropout<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    bias: Slice<'a, T>,
    activation: Activation,
    residual: Option<Slice<'a, T>>,
    p: f32,
    seed: u64,
}

/// The outputs of backward.
pub struct DropoutGradients<'o, T: LibraryFloat> {
    /// As long as the matrix.
    pub dx: SliceMut<'o, T>,
    /// As long as a row.
    pub dbias: SliceMut<'o, T>,
    /// Workspace of [`scratch_len`] floats.
    pub scratch: SliceMut<'o, f32>,
}

impl<T: LibraryFloat> DropoutGradients<'_, T> {
    /// The rows of `x`, of `cols` elements, if all lengths fit together and `p` is a probability.
    pub(crate) fn rows(&self, checks: Checks, [x, cols, dy]: [usize; 3], p: f32) -> Result<usize> {
        checks.same(("x", x), ("dy", dy))?;
        checks.same(("x", x), ("dx", self.dx.len()))?;
        checks.same(("bias", cols), ("dbias", self.dbias.len()))?;
        let rows = rows_of(checks, [x, cols], p)?;
        checks.same(("scratch", self.scratch.len()), ("what it should be", scratch_len(rows, cols)))?;
        Ok(rows)
    }
}

/// The rows of `x`, of `cols` elements, if they are whole and `p` is a probability.
pub(crate) fn rows_of(checks: Checks, [x, cols]: [usize; 2], p: f32) -> Result<usize> {
    if !(0.0..=1.0).contains(&p) {
        return Err(checks.error(format!("{p} is not a probability")));
    }
    checks.rows(("x", x), cols)
}

/// The launches over a matrix: the first row of each and its grid, of as many rows as a grid's second axis allows.
pub(crate) fn launches(rows: usize, cols: usize) -> impl Iterator<Item = (i32, (usize, usize))> {
    let width = if cols <= 128 { 128 } else { COLS };
    let most = ROWS * MAX_GRID_YZ;
    let grid = move |first: usize| (cols.div_ceil(width), (rows - first).min(most).div_ceil(ROWS));
    (0..rows).step_by(most).map(move |first| (first as i32, grid(first)))
}

/// How many programs of backward share the rows: together with those of other columns, 7 for each of an H200's 132
/// SMs, which run concurrently.
pub(crate) fn backward_programs(rows: usize, cols: usize) -> usize {
    rows.div_ceil(ROWS).min((7 * 132 / cols.div_ceil(COLS).max(1)).max(1))
}

/// The length of backward's workspace for a matrix of this shape.
pub fn scratch_len(rows: usize, cols: usize) -> usize {
    backward_programs(rows, cols) * cols
}

impl<'a, T: LibraryFloat> BiasGeluDropout<'a, T> {
    /// The rows of `x`, each as long as `bias`; GELU in its exact form, no residual, a probability of 0.1, the seed 0.
    pub fn new(x: impl Into<Slice<'a, T>>, bias: impl Into<Slice<'a, T>>) -> Self {
        let (x, bias) = (x.into(), bias.into());
        BiasGeluDropout { x, bias, activation: Activation::Gelu, residual: None, p: 0.1, seed: 0 }
    }

    /// Which GELU: [`Activation::Gelu`] or [`Activation::GeluTanh`].
    pub fn activation(self, activation: Activation) -> Self {
        BiasGeluDropout { activation, ..self }
    }

    /// What is added at the end.
    pub fn residual(self, residual: impl Into<Slice<'a, T>>) -> Self {
        BiasGeluDropout { residual: Some(residual.into()), ..self }
    }

    /// The fraction of elements that are dropped, and the seed of the random numbers that choose them.
    pub fn dropout(self, p: f32, seed: u64) -> Self {
        BiasGeluDropout { p, seed, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other or the probability is not one; if there is no kernel with the activation; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks) = (out.into(), Checks("bias_gelu_dropout"));
        self.activation.check(checks, &ACTIVATIONS)?;
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        if let Some(residual) = self.residual {
            checks.same(("x", self.x.len()), ("residual", residual.len()))?;
        }
        let cols = self.bias.len();
        let rows = rows_of(checks, [self.x.len(), cols], self.p)?;
        if rows == 0 {
            return Ok(());
        }
        let (n_rows, n_cols) = (rows as i32, cols as i32);
        let (x, bias, p, seed) = (self.x, self.bias, self.p, self.seed);
        let residual = self.residual.unwrap_or(bias.slice(..0));
        let has_residual = self.residual.is_some();
        let mut out = out;
        for (first, grid) in launches(rows, cols) {
            let out = out.slice_mut(..);
            let call =
                if has_residual { bias_gelu_dropout::<T, true> } else { bias_gelu_dropout::<T, false> };
            call(x, bias, residual, out, self.activation, first, n_rows, n_cols, p, seed)
                .grid(grid)
                .launch(on)?;
        }
        Ok(())
    }

    /// Computes the gradients of `x` and `bias` from that of the result, `dy`, which is also the residual's.
    ///
    /// # Errors
    /// If the lengths do not fit each other or the probability is not one; if there is no kernel with the activation; those of a launch.
    pub fn backward<'o>(
        &self,
        on: impl LaunchOn,
        dy: impl Into<Slice<'a, T>>,
        gradients: DropoutGradients<'o, T>,
    ) -> Result<()> {
        let (dy, cols, checks) = (dy.into(), self.bias.len(), Checks("bias_gelu_dropout"));
        self.activation.check(checks, &ACTIVATIONS)?;
        let rows = gradients.rows(checks, [self.x.len(), cols, dy.len()], self.p)?;
        let DropoutGradients { dx, dbias, mut scratch } = gradients;
        if cols == 0 {
            return Ok(());
        }
        if rows > 0 {
            let (n_rows, n_cols, p, seed) = (rows as i32, cols as i32, self.p, self.seed);
            let (x, bias, partials) = (self.x, self.bias, &mut scratch);
            let grid = (backward_programs(rows, cols), cols.div_ceil(COLS));
            let call = bias_gelu_dropout_backward::<T, COLS>;
            call(dy, x, bias, dx, partials, self.activation, n_rows, n_cols, p, seed)
                .grid(grid)
                .launch(on)?;
        }
        partials::reduce(on, scratch.slice(..), dbias, None)
    }
}

/// The uniform random number of an element, as `tl::rand` gives it: Philox-4x32-10.
pub fn rand(seed: u64, offset: u64) -> f32 {
    let block = offset / 4;
    let mut counter = [block as u32, (block >> 32) as u32, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let low = u64::from(counter[0]) * 0xD251_1F53;
        let high = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    (counter[offset as usize % 4] >> 9) as f32 * 2f32.powi(-23)
}

/// How elements are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The fraction of elements that are dropped.
    pub p: f32,
    /// The seed of the random numbers that choose them.
    pub seed: u64,
}

impl Dropout {
    /// The scale of the element at this offset.
    pub(crate) fn scale_of(self, offset: usize) -> f64 {
        let dropped = rand(self.seed, offset as u64) < self.p;
        if dropped { 0.0 } else { 1.0 / (1.0 - f64::from(self.p)) }
    }
}

/// What forward computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(
    [x, bias]: [&[T]; 2],
    residual: Option<&[T]>,
    activation: Activation,
    dropout: Dropout,
) -> Vec<Expected> {
    let single = unit_roundoff(DType::F32);
    let exact = |(i, (x, bias)): (usize, (&T, &T))| {
        let v = x.to_f64() + bias.to_f64();
        let (act, dropout_scale) = (activation.exact(v, T::DTYPE), dropout.scale_of(i));
        let added = residual.map_or(0.0, |residual| residual[i].to_f64());
        let dropped = if dropout_scale == 0.0 { 0.0 } else { act.value * dropout_scale };
        let act_error = (act.within + MAX_SLOPE * single * v.abs()) * dropout_scale;
        let within = act_error + 3.0 * single * (dropped.abs() + added.abs());
        Expected { value: dropped + added, within }.rounded(T::DTYPE)
    };
    x.iter().zip(bias.iter().cycle()).enumerate().map(exact).collect()
}

/// What backward computes, in `f64`, and the bounds that the module's documentation states: `dx`, `dbias`.
pub fn backward_reference<T: Float>(
    [dy, x, bias]: [&[T]; 3],
    activation: Activation,
    dropout: Dropout,
) -> [Vec<Expected>; 2] {
    let (cols, single) = (bias.len(), unit_roundoff(DType::F32));
    let over_rows = (8.0 + (x.len() as f64 / cols.max(1) as f64).sqrt()) * single;
    let mut dbias = vec![Expected { value: 0.0, within: 0.0 }; cols];
    let mut all_dx = Vec::with_capacity(x.len());
    for (i, (dy, x)) in dy.iter().zip(x).enumerate() {
        let (v, dy) = (x.to_f64() + bias[i % cols].to_f64(), dy.to_f64());
        let dropout_scale = dropout.scale_of(i);
        let slope = if activation == Activation::Gelu {
            normal_below(v) + v * (-v * v / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
        } else {
            let (c, s) = (0.044715, (2.0 / std::f64::consts::PI).sqrt());
            let sigmoid = 1.0 / (1.0 + (-2.0 * s * (v + c * v * v * v)).exp());
            sigmoid + v * sigmoid * (1.0 - sigmoid) * 2.0 * s * (1.0 + 3.0 * c * v * v)
        };
        let value = if dropout_scale == 0.0 { 0.0 } else { dy * slope * dropout_scale };
        let relative = if T::DTYPE.bytes() == 2 {
            2f64.powi(-11)
        } else {
            (32.0 + 4.0 * v * v) * single * (1.0 + v.abs())
        };
        let within = dy.abs() * dropout_scale * (relative + f64::from(f32::MIN_POSITIVE));
        all_dx.push(Expected { value, within }.rounded(T::DTYPE));
        dbias[i % cols].value += value;
        dbias[i % cols].within += within + over_rows * value.abs();
    }
    [all_dx, dbias.into_iter().map(|sum| sum.rounded(T::DTYPE)).collect()]
}

/// The bytes that forward must move without a residual.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    (2 * rows + 1) * cols * size_of::<T>()
}

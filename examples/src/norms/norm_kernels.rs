//! The kernels of [`crate::layer_norm`], [`crate::rms_norm`], [`crate::add_layer_norm`], [`crate::layer_norm_gelu`] and
//! [`crate::norm_activation`]: LayerNorm where there is a `beta`, else RMSNorm. Rows of matrices may be any distance apart.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::partials::LARGEST_CLUSTERS;
use crate::shape::{Checks, SHORT_ROW, longest, row_stride, short_programs, use_cluster};

/// The longest row that the tile of a block holds.
pub const BLOCK_TILE: usize = 32768;

/// The longest row that a cluster of blocks shares; longer ones are read in pieces.
pub const CLUSTER_TILE: usize = 131072;

/// Longer rows of LayerNorm of `f32`, and longer ones of 16-bit elements, are in one tile, of [`layer_norm_wide`], where they divide evenly.
const NARROW: usize = 16384;
const NARROW_16_BIT: usize = 20480;

/// Longer rows of 16-bit elements are in that tile even where they do not divide evenly: on an H100 5380 rows of 29989 take 334 us so,
/// and 368 shared by clusters.
const WIDE: usize = 24576;

/// The elements of a piece of a long row.
pub const PIECE: usize = 8192;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryFloat;
    use crate::norms::{center, mean_and_variance, normalize, welford};

    /// What is normalized, and written to the residual.
    #[fuse_fn]
    fn residual_sum<T: Float>(x: Tile<T>, residual: Tile<T>) -> Tile<T> {
        x + residual
    }

    /// The norm of a program's row.
    #[fuse_fn]
    fn normalize_row<T: Float, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: Option<&[T]>,
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
        let x = tl::load(x + row * x_stride + cols, cols < n_cols, 0.0).to::<f32>();
        let y = normalize::<T, 0>(x, gamma, beta, cols, n_cols, eps);
        tl::store(out + row * out_stride + cols, y.to::<T>(), cols < n_cols);
    }

    /// A program for eight short rows, or four of more than 512 elements, in the smallest tile declared whose rows cover them.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = n_cols in [128, 256, 384, 512, 768], num_warps = 4)]
    pub fn norm_short<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        gamma: &[T],
        beta: Option<&[T]>,
        out: &mut [T],
        n_rows: i32,
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        let first = tl::program_id(0) * (if COLS <= 512 { 8 } else { 4 });
        let rows = (first + tl::arange(0, if COLS <= 512 { 8 } else { 4 })).col();
        let cols = tl::arange(0, COLS).row();
        let mask = (rows < n_rows) & (cols < n_cols);
        let x = tl::load(x + rows * x_stride + cols, mask, 0.0).to::<f32>();
        let y = normalize::<T, 1>(x, gamma, beta, cols, n_cols, eps);
        tl::store(out + rows * out_stride + cols, y.to::<T>(), mask);
    }

    /// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared. A cluster of blocks shares the
    /// longest. Of LayerNorm, which takes more registers, three 16-bit rows of 16384 fit on an SM, and two of 20480.
    #[fuse_kernel(
        T = [f32, f16, bf16],
        BLOCK = n_cols in [
            1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 20480, 24576, 32768, 40960, 49152, 65536, 131072
        ],
        num_ctas = if BLOCK > 24576 { 8 }
            else if BLOCK < 24576 && (BLOCK < 20480 || size_of::<T>() == 2) { 1 }
            else if beta_is_some { 8 } else { 2 },
        maxnreg = if beta_is_some && size_of::<T>() == 2 && BLOCK == 16384 { 80 } else { 255 },
    )]
    pub fn norm<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: Option<&[T]>,
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        normalize_row::<T, BLOCK>(x, gamma, beta, out, n_cols, x_stride, out_stride, eps);
    }

    /// As [`norm()`], for so few rows that a cluster of blocks is faster for each than the block that could hold it.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [32768], num_ctas = 8)]
    pub fn norm_cluster<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: Option<&[T]>,
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        normalize_row::<T, BLOCK>(x, gamma, beta, out, n_cols, x_stride, out_stride, eps);
    }

    /// LayerNorm of rows that take half of the registers of an SM; or all of them, as those of `f32` do: then a persistent cluster of blocks
    /// takes one row after the other, and prefetches the next one, with `gamma` and `beta` in registers.
    #[fuse_kernel(configs = [
        { T: f32, BLOCK: 32768, num_ctas: 4, num_warps: 4, num_stages: 2 },
        { T: f16, BLOCK: 32768, num_warps: 8 },
        { T: bf16, BLOCK: 32768, num_warps: 8 },
    ])]
    pub fn layer_norm_wide<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        n_rows: i32,
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        if T::EPSILON < 1e-6 {
            let cols = tl::arange(0, BLOCK);
            let mask = cols < n_cols;
            let gamma = tl::load(gamma + cols, mask).to::<f32>();
            let beta = tl::load(beta + cols, mask).to::<f32>();
            for row in (tl::program_id(0)..n_rows).step_by(tl::num_programs(0)) {
                let x = tl::load(x + row * x_stride + cols, mask, 0.0).to::<f32>();
                let (centered, _, var) = center::<0>(x, mask, n_cols);
                let y = centered * tl::rsqrt(var + eps) * gamma + beta;
                tl::store(out + row * out_stride + cols, y.to::<T>(), mask);
            }
        } else {
            normalize_row::<T, BLOCK>(x, gamma, Some(beta), out, n_cols, x_stride, out_stride, eps);
        }
    }

    /// The norm of `x + residual`, which is written to `residual`: one program for each row, in the smallest block declared that covers it.
    #[fuse_kernel(
        T = [f32, f16, bf16],
        BLOCK = n_cols in [256, 1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 32768],
        num_ctas = (BLOCK / 16384 * 4).max(1),
    )]
    pub fn add_norm<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        residual: &mut [T],
        gamma: &[T],
        beta: Option<&[T]>,
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
        let mask = cols < n_cols;
        let residual = residual + row * out_stride + cols;
        let x = tl::load(x + row * x_stride + cols, mask, 0.0);
        let sum = residual_sum::<T>(x, tl::load(residual, mask, 0.0));
        // Not behind the sums over the row, which its loads would wait for.
        let gamma = tl::load(gamma + cols, mask).to::<f32>();
        tl::store(residual, sum, mask);
        let sum = sum.to::<f32>();
        let y = if let Some(beta) = beta {
            let beta = tl::load(beta + cols, mask).to::<f32>();
            let (centered, _, var) = center::<0>(sum, mask, n_cols);
            centered * tl::rsqrt(var + eps) * gamma + beta
        } else {
            sum * tl::rsqrt(tl::sum(sum * sum, 0) / n_cols as f32 + eps) * gamma
        };
        tl::store(out + row * out_stride + cols, y.to::<T>(), mask);
    }

    /// The norm of rows of any length, or with a `residual` that of `x + residual`, which is written to it. One program reads a row twice,
    /// `BLOCK` elements at a time. Each of `BLOCK` lanes keeps the sum of its squares, or the mean of its elements and the sum of
    /// their squared deviations from it.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192])]
    pub fn norm_long<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        residual: Option<&mut [T]>,
        gamma: &[T],
        beta: Option<&[T]>,
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        let row = tl::program_id(0);
        let cols = tl::arange(0, BLOCK);
        let mut means = tl::zeros::<f32>([BLOCK]);
        let mut squares = tl::zeros::<f32>([BLOCK]);
        let mut n_seen = 0.0;
        for first in (0..n_cols).step_by(BLOCK) {
            n_seen += 1.0;
            let mask = first + cols < n_cols;
            let x = tl::load(x + row * x_stride + first + cols, mask, 0.0);
            let x = if let Some(residual) = residual {
                let residual = residual + row * out_stride + first + cols;
                let sum = residual_sum::<T>(x, tl::load(residual, mask, 0.0));
                tl::store(residual, sum, mask);
                sum.to::<f32>()
            } else {
                x.to::<f32>()
            };
            if let Some(_) = beta {
                (means, squares) = welford(means, squares, x, mask, n_seen);
            } else {
                squares += x * x;
            }
        }
        let counts = tl::cdiv(n_cols - cols, BLOCK).to::<f32>();
        let (mean, var) = if let Some(_) = beta {
            mean_and_variance(means, squares, counts, n_cols)
        } else {
            (0.0, tl::sum(squares, 0) / n_cols as f32)
        };
        let scale = tl::rsqrt(var + eps);
        for first in (0..n_cols).step_by(BLOCK) {
            let mask = first + cols < n_cols;
            let x = if let Some(residual) = residual {
                tl::load(residual + row * out_stride + first + cols, mask).to::<f32>()
            } else {
                tl::load(x + row * x_stride + first + cols, mask).to::<f32>()
            };
            let gamma = tl::load(gamma + first + cols, mask).to::<f32>();
            let y = if let Some(beta) = beta {
                (x - mean) * scale * gamma + tl::load(beta + first + cols, mask).to::<f32>()
            } else {
                x * scale * gamma
            };
            tl::store(out + row * out_stride + first + cols, y.to::<T>(), mask);
        }
    }

    /// GELU of LayerNorm; a cluster of blocks takes the longest rows of `f32`. It is bound by instructions: a thread has at least 32 elements
    /// for each reduction, and the register limit leaves an SM several rows, which hide each other's latency.
    #[fuse_kernel(
        T = [f32, f16, bf16], BLOCK = n_cols in [1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 32768],
        num_ctas = if size_of::<T>() == 4 && BLOCK == 32768 { 4 } else { 1 },
        num_warps = if BLOCK == 32768 { 8 }
            else if size_of::<T>() == 4 { (BLOCK / 512).next_power_of_two().min(if BLOCK > 8192 { 16 } else { 8 }) }
            else { (BLOCK / 1024).next_power_of_two().min(if BLOCK == 16384 { 8 } else { 4 }) },
        maxnreg = if size_of::<T>() == 4 || BLOCK < 4096 { 255 }
            else if BLOCK == 4096 { 56 } else if BLOCK == 5120 { 72 } else if BLOCK == 12288 { 128 } else if BLOCK == 32768 { 160 } else { 80 },
    )]
    pub fn layer_norm_gelu<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
        let mask = cols < n_cols;
        let x = tl::load(x + row * x_stride + cols, mask, 0.0).to::<f32>();
        let (centered, mean, var) = center::<0>(x, mask, n_cols);
        let scale = tl::rsqrt(var + eps);
        // A longer row is converted again, and one fma shifts and scales it.
        let x_hat = if BLOCK > 4096 { tl::fma(x, scale, -mean * scale) } else { centered * scale };
        let gamma = tl::load(gamma + cols, mask).to::<f32>();
        let y = x_hat * gamma + tl::load(beta + cols, mask).to::<f32>();
        tl::store(out + row * out_stride + cols, tl::gelu::<T>(y).to::<T>(), mask);
    }
}

pub use kernels::{add_norm, layer_norm_gelu, layer_norm_wide, norm, norm_cluster, norm_long, norm_short};

/// LayerNorm where there is a `beta`, else RMSNorm, of the rows of `x`, which are as long as `gamma`.
#[derive(Clone, Copy)]
pub(crate) struct RowNorm<'a, T: LibraryFloat> {
    pub x: Rows<'a, T>,
    pub gamma: Slice<'a, T>,
    pub beta: Option<Slice<'a, T>>,
    pub eps: f32,
}

impl<T: LibraryFloat> RowNorm<'_, T> {
    /// Computes into `out`, on a device or stream.
    pub fn launch(&self, checks: Checks, on: impl LaunchOn, out: RowsMut<T>) -> Result<()> {
        let &RowNorm { x, gamma, beta, eps } = self;
        let cols = gamma.len();
        self.check_beta(checks)?;
        let rows = checks.matrices(("x", x.layout()), [("out", out.layout())], cols)?;
        if rows == 0 {
            return Ok(());
        }
        let (n_rows, n_cols) = (rows as i32, cols as i32);
        let [x_stride, out_stride] = [x.layout(), out.layout()].map(|layout| row_stride(layout, cols));
        let (x, out) = (x.memory(), out.into_memory());
        if cols <= SHORT_ROW {
            let call = norm_short::<T>(x, gamma, beta, out, n_rows, n_cols, x_stride, out_stride, eps);
            return call.grid(short_programs(rows, cols)).launch(on);
        }
        if cols <= BLOCK_TILE && use_cluster(on, rows, cols) {
            let call = norm_cluster::<T, BLOCK_TILE>(x, gamma, beta, out, n_cols, x_stride, out_stride, eps);
            return call.grid(rows).launch(on);
        }
        match (tile_for::<T>(on, cols, beta.is_some()), beta) {
            (NormTile::Block, _) => {
                let call = norm::<T>(x, gamma, beta, out, n_cols, x_stride, out_stride, eps);
                call.grid(rows).launch(on)
            }
            (NormTile::Wide, Some(beta)) => {
                let call = layer_norm_wide::<T, BLOCK_TILE>;
                let call = call(x, gamma, beta, out, n_rows, n_cols, x_stride, out_stride, eps);
                // Clusters of `f32` are persistent, and two have blocks on an SM.
                let concurrent = if size_of::<T>() == 4 { 2 * LARGEST_CLUSTERS } else { rows };
                call.grid(rows.min(concurrent)).launch(on)
            }
            (NormTile::Wide | NormTile::Piece, _) => {
                let call = norm_long::<T, PIECE>;
                call(x, None, gamma, beta, out, n_cols, x_stride, out_stride, eps).grid(rows).launch(on)
            }
        }
    }

    /// Adds `x` to `residual` and computes the norm of the sum into `out`, whose rows are as far apart, on a device or stream.
    pub fn launch_add(
        &self,
        checks: Checks,
        on: impl LaunchOn,
        residual: RowsMut<T>,
        out: RowsMut<T>,
    ) -> Result<()> {
        let &RowNorm { x, gamma, beta, eps } = self;
        let cols = gamma.len();
        self.check_beta(checks)?;
        let others = [("residual", residual.layout()), ("out", out.layout())];
        let rows = checks.matrices(("x", x.layout()), others, cols)?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, residual_stride, out_stride] =
            [x.layout(), residual.layout(), out.layout()].map(|layout| row_stride(layout, cols));
        if residual_stride != out_stride {
            let reason = format!(
                "rows of residual are {residual_stride} elements apart and those of out {out_stride}"
            );
            return Err(checks.error(reason));
        }
        let (x, residual, out, n_cols) = (x.memory(), residual.into_memory(), out.into_memory(), cols as i32);
        if cols > BLOCK_TILE {
            let (call, residual) = (norm_long::<T, PIECE>, Some(residual));
            let call = call(x, residual, gamma, beta, out, n_cols, x_stride, out_stride, eps);
            return call.grid(rows).launch(on);
        }
        let call = add_norm::<T>;
        let call = call(x, residual, gamma, beta, out, n_cols, x_stride, out_stride, eps);
        call.grid(rows).launch(on)
    }

    fn check_beta(&self, checks: Checks) -> Result<()> {
        let beta = self.beta.map_or(self.gamma.len(), |beta| beta.len());
        checks.same(("gamma", self.gamma.len()), ("beta", beta))
    }
}

/// Where a row is between its load and its store.
enum NormTile {
    /// In a tile of [`norm()`].
    Block,
    /// In one of [`layer_norm_wide()`].
    Wide,
    /// In pieces of [`norm_long()`].
    Piece,
}

/// Where a row of `cols` elements is, of LayerNorm or of RMSNorm, on this device or stream.
fn tile_for<T>(on: impl LaunchOn, cols: usize, is_layer_norm: bool) -> NormTile {
    if !is_layer_norm {
        let fits = cols <= longest(on, CLUSTER_TILE, BLOCK_TILE);
        return if fits { NormTile::Block } else { NormTile::Piece };
    }
    let is_f32 = size_of::<T>() == 4;
    let is_unaligned = !cols.is_multiple_of(8) && (is_f32 || cols <= WIDE);
    // Clusters of blocks share rows that are longer than the widest tile of a block, and most of those of which no vector is aligned.
    let in_cluster = cols <= longest(on, CLUSTER_TILE, NARROW) && (is_unaligned || cols > BLOCK_TILE);
    if cols <= (if is_f32 { NARROW } else { NARROW_16_BIT }) || in_cluster {
        return NormTile::Block;
    }
    // Rows that do not divide evenly, but for those, are faster in pieces than in the widest tile. So are rows of `f32` where no
    // cluster of blocks shares them.
    let widest = if is_f32 { longest(on, BLOCK_TILE, NARROW) } else { BLOCK_TILE };
    if cols > widest || is_unaligned { NormTile::Piece } else { NormTile::Wide }
}

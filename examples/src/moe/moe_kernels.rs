//! The kernels of [`crate::moe`]: choices grouped by their expert, the two grouped matmuls, and the weighted sum over the
//! choices of a token. A choice is a token and one of its experts.

use dsl_runtime::prelude::*;

/// Columns of the intermediate rows that share a scale: those of a program of [`experts_gate_up()`], and an iteration of
/// [`experts_down()`].
pub const BLOCK: usize = 128;
/// The most experts that the kernels were built for.
pub const MAX_EXPERTS: usize = 256;

/// Rows of a tile where experts have few tokens.
pub(crate) const SMALL_TILE_ROWS: usize = 16;
/// Rows of a tile where they have many.
pub(crate) const LARGE_TILE_ROWS: usize = 64;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryElement;

    /// Where the absolute maximum is smaller, all elements become 0: the inverse scale stays within the range of `f32`.
    const MIN_ABS_MAX: f32 = 1e-30;
    /// The scale, where the absolute maximum is 1.
    const UNIT_SCALE: f32 = 0.007_874_016;

    /// The inverse scale of elements with this absolute maximum.
    #[fuse_fn]
    fn inv_scale(abs_max: Tile<f32>) -> Tile<f32> {
        tl::select(abs_max < MIN_ABS_MAX, 0.0, 127.0 / abs_max)
    }

    /// Elements `start..start + K` of rows of `x`; those of absent rows are 0.
    #[fuse_fn]
    fn gather_rows<const K: usize>(
        x: &[i8],
        row: Tile<i32>,
        is_valid_row: Tile<bool>,
        start: i32,
        n_cols: i32,
    ) -> Tile<i8> {
        let col = start + tl::arange(0, K);
        tl::load(x + (row * n_cols).col() + col.row(), is_valid_row.col() & (col < n_cols).row(), 0)
    }

    /// Program `e` writes the choices of expert `e` to `sorted`, in order, behind those of the experts before it. Each expert's
    /// are padded to whole tiles of `M` with `n_choices`. `tile_experts` says which expert a tile belongs to, `n_tiles` how
    /// many tiles there are. Every program counts all choices, so that none waits for another; a choice of an expert that does
    /// not exist is left out.
    #[fuse_kernel(M = [16, 64], EXPERTS = [256], STEP = [1024], num_warps = 4)]
    pub fn group_by_expert<const M: usize, const EXPERTS: usize, const STEP: usize>(
        experts: &[i32],
        sorted: &mut [i32],
        tile_experts: &mut [i32],
        n_tiles: &mut [i32],
        n_choices: i32,
        n_experts: i32,
    ) {
        let expert = tl::program_id(0);
        let ids = tl::arange(0, EXPERTS);
        let mut counts = tl::zeros::<i32>([EXPERTS]);
        for start in (0..n_choices).step_by(STEP) {
            let choice = start + tl::arange(0, STEP);
            let id = tl::load(experts + choice, choice < n_choices, -1);
            counts += tl::histogram(id, EXPERTS, (id >= 0) & (id < n_experts));
        }
        let tiles = tl::cdiv(counts, M);
        let first = tl::sum(tl::select(ids < expert, tiles, 0), 0);
        let end = first + tl::sum(tl::select(ids == expert, tiles, 0), 0);
        let mut write_row = first * M;
        for start in (0..n_choices).step_by(STEP) {
            let choice = start + tl::arange(0, STEP);
            let is_own = tl::load(experts + choice, choice < n_choices, -1) == expert;
            let own_flags = is_own.to::<i32>();
            tl::store(sorted + write_row + tl::cumsum(own_flags, 0) - 1, choice, is_own);
            write_row += tl::sum(own_flags, 0);
        }
        let padding_rows = write_row + tl::arange(0, M);
        tl::store(sorted + padding_rows, n_choices, padding_rows < end * M);
        for tile in first..end {
            tl::store(tile_experts + tile, expert);
        }
        if expert == n_experts - 1 {
            tl::store(n_tiles, end);
        }
    }

    /// `silu(x · gate) * (x · up)` of `M` choices and `N` intermediate columns, to `i8` with a scale for each choice and
    /// program. The weights are `[experts, 2, f, k]`, gates first.
    #[fuse_kernel(M = [16, 64], N = [128], K = [128], num_warps = 8, maxnreg = if M == 16 { 128 } else { 255 })]
    pub fn experts_gate_up<const M: usize, const N: usize, const K: usize>(
        x: &[i8],
        x_scales: &[f32],
        weights: &View<i8, 4>,
        weight_scales: &View<f32, 3>,
        sorted: &[i32],
        tile_experts: &[i32],
        n_tiles: &[i32],
        intermediate: &mut [i8],
        intermediate_scales: &mut [f32],
        n_choices: i32,
        top_k: i32,
    ) {
        let (f, k) = (weights.shape::<i32>(2), weights.shape::<i32>(3));
        let blocks = tl::cdiv(f, N);
        let (tile, block) = (tl::program_id(0) / blocks, tl::program_id(0) % blocks);
        if tile >= tl::load(n_tiles) {
            return;
        }
        let expert = tl::load(tile_experts + tile);
        let choice = tl::load(sorted + tile * M + tl::arange(0, M));
        let (is_valid_row, token) = (choice < n_choices, choice / top_k);
        let col = block * N;
        let (mut gate, mut up) = (tl::zeros::<i32>([M, N]), tl::zeros::<i32>([M, N]));
        for start in (0..k).step_by(K) {
            let rows = gather_rows::<K>(x, token, is_valid_row, start, k);
            let gate_tile = weights.at(expert).at(0).load::<N, K>(col, start);
            let up_tile = weights.at(expert).at(1).load::<N, K>(col, start);
            gate = tl::dot(rows, tl::trans(gate_tile), gate);
            up = tl::dot(rows, tl::trans(up_tile), up);
        }
        let scale = tl::load(x_scales + token, is_valid_row, 0.0).col();
        let gate_tile = weight_scales.at(expert).load::<1, N>(0, col);
        let up_tile = weight_scales.at(expert).load::<1, N>(1, col);
        let h = tl::silu::<f32>(gate.to::<f32>() * scale * gate_tile) * (up.to::<f32>() * scale * up_tile);
        let abs_max = tl::max(tl::abs(h), 1);
        let q = tl::round_ties_even(h * inv_scale(abs_max).col()).to::<i8>();
        let cols = col + tl::arange(0, N);
        tl::store(intermediate + (choice * f).col() + cols.row(), q, is_valid_row.col() & (cols < f).row());
        tl::store(intermediate_scales + choice * blocks + block, abs_max * UNIT_SCALE, is_valid_row);
    }

    /// The intermediate rows times the second weights, `[experts, k, f]`, and times the routing weight: `M` choices and `N`
    /// columns. An iteration takes the `K` intermediate columns that share a scale; iterations are added in `f32`, in order.
    #[fuse_kernel(M = [16, 64], N = [128], K = [128], num_warps = 8, maxnreg = if M == 16 { 128 } else { 255 })]
    pub fn experts_down<const M: usize, const N: usize, const K: usize>(
        intermediate: &[i8],
        intermediate_scales: &[f32],
        weights: &View<i8, 3>,
        weight_scales: &View<f32, 2>,
        routing: &[f32],
        sorted: &[i32],
        tile_experts: &[i32],
        n_tiles: &[i32],
        weighted_rows: &mut [f32],
        n_choices: i32,
    ) {
        let (n, f) = (weights.shape::<i32>(1), weights.shape::<i32>(2));
        let grid_n = tl::cdiv(n, N);
        let (tile, col) = (tl::program_id(0) / grid_n, tl::program_id(0) % grid_n * N);
        if tile >= tl::load(n_tiles) {
            return;
        }
        let expert = tl::load(tile_experts + tile);
        let choice = tl::load(sorted + tile * M + tl::arange(0, M));
        let (is_valid_row, blocks) = (choice < n_choices, tl::cdiv(f, K));
        let mut acc = tl::zeros::<f32>([M, N]);
        for block in 0..blocks {
            let rows = gather_rows::<K>(intermediate, choice, is_valid_row, block * K, f);
            let b_tile = weights.at(expert).load::<N, K>(col, block * K);
            let scale = tl::load(intermediate_scales + choice * blocks + block, is_valid_row, 0.0);
            acc += tl::dot(rows, tl::trans(b_tile)).to::<f32>() * scale.col();
        }
        let weight = tl::load(routing + choice, is_valid_row, 0.0);
        let y = acc * weight_scales.load::<1, N>(expert, col) * weight.col();
        let cols = col + tl::arange(0, N);
        tl::store(weighted_rows + (choice * n).col() + cols.row(), y, is_valid_row.col() & (cols < n).row());
    }

    /// The sum over the choices of a token, in order, of those whose expert exists. For `i8` it is divided by the scale of
    /// the token and rounded; elsewhere `out_scales` may be empty.
    #[fuse_kernel(O = [f32, f16, bf16, i8], N = [1024], num_warps = 4)]
    pub fn combine_choices<O: LibraryElement, const N: usize>(
        weighted_rows: &[f32],
        experts: &[i32],
        out_scales: &[f32],
        out: &mut [O],
        n_experts: i32,
        top_k: i32,
        n_cols: i32,
    ) {
        let (token, cols) = (tl::program_id(0), tl::program_id(1) * N + tl::arange(0, N));
        let mut sum = tl::zeros::<f32>([N]);
        for choice in token * top_k..(token + 1) * top_k {
            let id = tl::load(experts + choice);
            let is_valid = (id >= 0) & (id < n_experts);
            sum += tl::load(weighted_rows + choice * n_cols + cols, (cols < n_cols) & is_valid, 0.0);
        }
        let is_integer = O::MAX as f32 == 127.0;
        let y = if is_integer { tl::round_ties_even(sum / tl::load(out_scales + token)) } else { sum };
        tl::store(out + token * n_cols + cols, y.to::<O>(), cols < n_cols);
    }
}

pub use kernels::{combine_choices, experts_down, experts_gate_up, group_by_expert};

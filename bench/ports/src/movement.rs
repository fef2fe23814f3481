//! Tiles and tensors that are copied in another order, and a stencil.

use dsl_runtime::prelude::*;

/// Copies an `m x n` matrix with any strides into one with any strides: a transpose where the strides are exchanged.
/// **Source.** The contiguous copy of PyTorch's Triton backends, one program for each `ROWS x COLS` tile.
#[fuse_kernel(ROWS = [64], COLS = [64], num_warps = 4)]
pub fn transpose<const ROWS: usize, const COLS: usize>(
    x: &[bf16],
    out: &mut [bf16],
    m: i32,
    n: i32,
    x_stride_m: i32,
    x_stride_n: i32,
    out_stride_m: i32,
    out_stride_n: i32,
) {
    let rows = tl::program_id(0) * ROWS + tl::arange(0, ROWS);
    let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let mask = (rows < m).col() & (cols < n).row();
    let tile = tl::load(x + rows.col() * x_stride_m + cols.row() * x_stride_n, mask);
    tl::store(out + rows.col() * out_stride_m + cols.row() * out_stride_n, tile, mask);
}

/// Gathers a paged KV cache: `out` of `[sequences, length, dim]` is made of the pages of 16 rows that `table`, `[sequences,
/// max_pages]`, names for each sequence; `cache` is `[pages, 16, dim]`. Program `(p, s)` copies page `p` of sequence `s`, `BLOCK` columns a
/// turn. **Source.** The cache of Kwon and others, *PagedAttention*, 2023, arXiv:2309.06180, gathered as vLLM does for prefill.
#[fuse_kernel(BLOCK = [256], num_warps = 4)]
pub fn copy_pages<const BLOCK: usize>(
    cache: &[bf16],
    table: &[i32],
    out: &mut [bf16],
    length: i32,
    max_pages: i32,
    dim: i32,
) {
    let page = tl::program_id(0);
    let sequence = tl::program_id(1);
    let block = tl::load(table + sequence * max_pages + page);
    let slots = tl::arange(0, 16);
    let positions = page * 16 + slots;
    for start in (0..dim).step_by(BLOCK) {
        let cols = start + tl::arange(0, BLOCK);
        let mask = (positions < length).col() & (cols < dim).row();
        let x = tl::load(cache + (block * 16 + slots).col() * dim + cols.row(), mask);
        tl::store(out + (sequence * length + positions).col() * dim + cols.row(), x, mask);
    }
}

/// Exchanges the axes of a tensor of four: `out` is contiguous, with `n1`, `n2` and `n3` elements along its last axes, and neighbors along axis
/// `i` of `out` are `stride_i` elements apart in `x`. Program `i` makes `BLOCK` of the `total` elements in the order of `out`.
/// **Source.** `torch.permute` and `contiguous`, as attention and convolutions change their layouts.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn permute4<const BLOCK: usize>(
    x: &[bf16],
    out: &mut [bf16],
    total: i32,
    n1: i32,
    n2: i32,
    n3: i32,
    stride_0: i32,
    stride_1: i32,
    stride_2: i32,
    stride_3: i32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < total;
    let i3 = offsets % n3;
    let i2 = offsets / n3 % n2;
    let i1 = offsets / (n3 * n2) % n1;
    let i0 = offsets / (n3 * n2 * n1);
    let at = i0 * stride_0 + i1 * stride_1 + i2 * stride_2 + i3 * stride_3;
    tl::store(out + offsets, tl::load(x + at, mask), mask);
}

/// One step of a 5-point stencil on an `m x n` grid, zeros outside: `out = x + k * (north + south + east + west - 4 x)`.
/// **Source.** The explicit step of the heat equation, as in any text on finite differences.
#[fuse_kernel(ROWS = [16], COLS = [128], num_warps = 4)]
pub fn stencil<const ROWS: usize, const COLS: usize>(x: &[f32], out: &mut [f32], m: i32, n: i32, k: f32) {
    let rows = (tl::program_id(0) * ROWS + tl::arange(0, ROWS)).col();
    let cols = (tl::program_id(1) * COLS + tl::arange(0, COLS)).row();
    let mask = (rows < m) & (cols < n);
    let here = x + rows * n + cols;
    let center = tl::load(here, mask, 0.0);
    let north = tl::load(here - n, mask & (rows >= 1), 0.0);
    let south = tl::load(here + n, mask & (rows + 1 < m), 0.0);
    let west = tl::load(here - 1, mask & (cols >= 1), 0.0);
    let east = tl::load(here + 1, mask & (cols + 1 < n), 0.0);
    let y = center + k * (north + south + east + west - 4.0 * center);
    tl::store(out + rows * n + cols, y, mask);
}

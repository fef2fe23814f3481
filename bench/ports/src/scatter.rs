//! Rows that are read or written where an index says, and counts.

use dsl_runtime::prelude::*;

/// Adds row `i` of `src`, `[rows, cols]`, to row `index[i]` of `out`, by atomic additions. Program `(i, j)` takes the `j`th `BLOCK`
/// columns of a row. **Source.** `torch.Tensor.index_add_` along the first axis, by atomics as in FlagGems.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn index_add<const BLOCK: usize>(out: &mut [f32], index: &[i64], src: &[bf16], cols: i32) {
    let row = tl::program_id(0);
    let offsets = tl::program_id(1) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < cols;
    let target = tl::load(index + row);
    let x = tl::load(src + row * cols + offsets, mask, 0.0).to::<f32>();
    tl::atomic_add(out + target * cols.to::<i64>() + offsets, x, mask).sem("relaxed");
}

/// `out[i] = table[ids[i]]`, rows of `dim` elements, in tiles of `ROWS x COLS`. **Source.** `torch.nn.functional.embedding`, by tiles
/// as in Liger.
#[fuse_kernel(ROWS = [32], COLS = [128], num_warps = 4)]
pub fn embedding<const ROWS: usize, const COLS: usize>(
    table: &[bf16],
    ids: &[i64],
    out: &mut [bf16],
    n: i32,
    dim: i32,
) {
    let rows = tl::program_id(0) * ROWS + tl::arange(0, ROWS);
    let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let ids = tl::load(ids + rows, rows < n, 0);
    let mask = (rows < n).col() & (cols < dim).row();
    let x = tl::load(table + ids.col() * dim.to::<i64>() + cols.row().to::<i64>(), mask, 0.0);
    tl::store(out + rows.col() * dim + cols.row(), x, mask);
}

/// The gradient of [`embedding()`]: adds row `i` of `dy` to row `ids[i]` of `grad`, by atomic additions.
#[fuse_kernel(ROWS = [32], COLS = [128], num_warps = 4)]
pub fn embedding_gradient<const ROWS: usize, const COLS: usize>(
    dy: &[bf16],
    ids: &[i64],
    grad: &mut [f32],
    n: i32,
    dim: i32,
) {
    let rows = tl::program_id(0) * ROWS + tl::arange(0, ROWS);
    let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let ids = tl::load(ids + rows, rows < n, 0);
    let mask = (rows < n).col() & (cols < dim).row();
    let x = tl::load(dy + rows.col() * dim + cols.row(), mask, 0.0).to::<f32>();
    let offsets = ids.col() * dim.to::<i64>() + cols.row().to::<i64>();
    tl::atomic_add(grad + offsets, x, mask).sem("relaxed");
}

/// `out[s]` is the sum of the rows `starts[s]..starts[s + 1]` of `x`, `[rows, cols]`. Program `(s, j)` adds the `j`th `COLS` columns,
/// `ROWS` rows an iteration. **Source.** `torch.segment_reduce` with offsets, as sorted message passing of graph networks uses it.
#[fuse_kernel(ROWS = [16], COLS = [128], num_warps = 4)]
pub fn segment_sum<const ROWS: usize, const COLS: usize>(
    x: &[bf16],
    starts: &[i32],
    out: &mut [bf16],
    cols: i32,
) {
    let segment = tl::program_id(0);
    let columns = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let first = tl::load(starts + segment);
    let end = tl::load(starts + segment + 1);
    let mut acc = tl::zeros::<f32>([ROWS, COLS]);
    for start in (first..end).step_by(ROWS) {
        let rows = start + tl::arange(0, ROWS);
        let mask = (rows < end).col() & (columns < cols).row();
        acc += tl::load(x + rows.col() * cols + columns.row(), mask, 0.0).to::<f32>();
    }
    let sum = tl::sum(acc, 0);
    tl::store(out + segment * cols + columns, sum.to::<bf16>(), columns < cols);
}

/// Adds to 256 counters how often each number from 0 to 255 occurs in `x`: each program counts its block, then adds its counts.
/// **Source.** `torch.histc` of integers, with `tl.histogram`.
#[fuse_kernel(BLOCK = [4096], num_warps = 4)]
pub fn histogram<const BLOCK: usize>(x: &[i32], counts: &mut [i32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let found = tl::histogram(tl::load(x + offsets, mask, 0), 256, mask);
    tl::atomic_add(counts + tl::arange(0, 256), found).sem("relaxed");
}

/// `out[i]` is the sum of the rows of `table`, `[entries, dim]`, that `ids[starts[i]..starts[i + 1]]` names. Program `(i, j)` makes the `j`th `COLS`
/// columns of bag `i`, from `ROWS` rows an iteration. **Source.** `torch.nn.EmbeddingBag` with `mode="sum"`, as recommendation models use it.
#[fuse_kernel(ROWS = [8], COLS = [128], num_warps = 4)]
pub fn embedding_bag<const ROWS: usize, const COLS: usize>(
    table: &[bf16],
    ids: &[i32],
    starts: &[i32],
    out: &mut [bf16],
    dim: i32,
) {
    let bag = tl::program_id(0);
    let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let first = tl::load(starts + bag);
    let end = tl::load(starts + bag + 1);
    let mut acc = tl::zeros::<f32>([COLS]);
    for start in (first..end).step_by(ROWS) {
        let at = start + tl::arange(0, ROWS);
        let id = tl::load(ids + at, at < end, 0);
        let mask = (at < end).col() & (cols < dim).row();
        let rows = tl::load(table + id.col() * dim + cols.row(), mask, 0.0);
        acc += tl::sum(rows.to::<f32>(), 0);
    }
    tl::store(out + bag * dim + cols, acc.to::<bf16>(), cols < dim);
}

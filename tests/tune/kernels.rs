//! Kernels with several configs, some of which do not suit every call.

use dsl_runtime::prelude::*;

/// `out = x + x`.
#[fuse_kernel(
    T = [f32, i8],
    configs = [{ BLOCK: 64, num_warps: 1 }, { BLOCK: 1024 }, { BLOCK: 1024, num_warps: 8, maxnreg: 32 }],
    tune(key = [n, x.len()]),
)]
pub fn double<T: Number, const BLOCK: usize>(x: &[T], out: &mut [T], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    tl::store(out + offsets, x + x, mask);
}

/// `out = x`, `+ bias` where there is one; `sums` of programs where they are asked for.
#[fuse_kernel(BLOCK = [256])]
pub fn optional_parts<const BLOCK: usize>(
    x: &[f32],
    bias: Option<&[f32]>,
    out: &mut View<f32, 1>,
    sums: Option<&mut View<f32, 1>>,
    n: i32,
) {
    let start = tl::program_id(0) * BLOCK;
    let at = start + tl::arange(0, BLOCK);
    let y = tl::load(x + at, at < n);
    let y = match bias {
        Some(bias) => y + tl::load(bias + at, at < n),
        None => y,
    };
    out.store(y, start);
    if let Some(sums) = sums {
        sums.store(tl::full([1], tl::sum(y, 0)), tl::program_id(0));
    }
}

/// `x += 1`, in place: a kernel that runs once too often shows.
#[fuse_kernel(BLOCK = _ in [64, 256, 1024], tune(key = [n]), num_stages = 2)]
pub fn count<const BLOCK: usize>(x: &mut [i32], seen: &mut [i32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let value = tl::load(x + offsets, mask) + 1;
    tl::store(x + offsets, value, mask);
    tl::store(seen + offsets, tl::load(seen + offsets, mask) + value, mask);
}

/// Sums of rows. A block must cover the row, which `when` sees to.
#[fuse_kernel(
    configs = [{ BLOCK: 64 }, { BLOCK: 256 }, { BLOCK: 256, num_warps: 8 }, { BLOCK: 1024 }],
    tune(key = [n_cols], when = BLOCK >= n_cols as usize),
)]
pub fn row_sums<const BLOCK: usize>(x: &[f32], out: &mut [f32], n_cols: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let x = tl::load(x + row * n_cols + cols, cols < n_cols);
    tl::store(out + row, tl::sum(x, 0));
}

/// The same with nothing that sees to it: blocks of 64 and 128 leave columns out.
#[fuse_kernel(
    configs = [{ BLOCK: 1024 }, { BLOCK: 64 }, { BLOCK: 128 }],
    tune(key = [n_cols]),
)]
pub fn careless_row_sums<const BLOCK: usize>(x: &[f32], out: &mut [f32], n_cols: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let x = tl::load(x + row * n_cols + cols, cols < n_cols);
    tl::store(out + row, tl::sum(x, 0));
}

/// Block by expression, warps by measurement; the scale is named at the call.
#[fuse_kernel(
    BLOCK = n_cols in [64, 256],
    SCALE = [2, 3],
    configs = [{ num_warps: 1 }, { num_warps: 2 }, { num_warps: 4 }],
    tune(key = [n_cols]),
)]
pub fn scaled_row_sums<const BLOCK: usize, const SCALE: i32>(x: &[i32], out: &mut [i32], n_cols: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let x = tl::load(x + row * n_cols + cols, cols < n_cols);
    tl::store(out + row, tl::sum(x, 0) * SCALE);
}

/// `out = x + x`, with choices that ship with this crate.
#[fuse_kernel(
    configs = [{ BLOCK: 64 }, { BLOCK: 128 }, { BLOCK: 256 }],
    tune(key = [n]),
    tuned = "tune/tuned.json",
)]
pub fn shipped<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    tl::store(out + offsets, x + x, mask);
}

/// Reads beyond its slice where a block is too large for it: in a debug build that config fails.
#[fuse_kernel(configs = [{ BLOCK: 1024 }, { BLOCK: 64 }, { BLOCK: 128 }], tune(key = []))]
pub fn unmasked<const BLOCK: usize>(x: &[f32], out: &mut [f32]) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(out + offsets, tl::load(x + offsets) * 2.0);
}

/// `out = x + x` of matrices: columns by expression and the rest by measurement, both over what a view knows.
#[fuse_kernel(
    COLS = x.shape()[1] in [16, 64],
    configs = [{ ROWS: 1 }, { ROWS: 4 }, { ROWS: 8, num_warps: 1 }],
    tune(key = [x.shape()[0], x.strides()[1]], when = ROWS <= x.shape()[0]),
)]
pub fn double_blocks<const ROWS: usize, const COLS: usize>(x: &View<f32, 2>, out: &mut View<f32, 2>) {
    let row = tl::program_id(0) * ROWS;
    let block = x.load::<ROWS, COLS>(row, 0);
    out.store(block + block, row, 0);
}

/// A kernel whose variant follows from an enum and from the device.
#[fuse_module]
pub mod by_device {
    use dsl_runtime::prelude::*;

    /// What becomes of a row.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reduction {
        Sum,
        Maximum = 3,
    }

    /// A number for each row of `x`, which has `n_cols` columns.
    #[fuse_kernel(
        when = n_cols as usize <= BLOCK,
        configs = [
            { BLOCK: 64, num_warps: 2, when: device.parallelism() > 1_000_000 },
            { BLOCK: 64, num_warps: 1, when: device.shared_bytes().is_none() || reduction == Reduction::Sum },
            { BLOCK: 256 },
        ],
    )]
    pub fn reduced_rows<const BLOCK: usize>(x: &[i32], reduction: Reduction, n_cols: i32, out: &mut [i32]) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
        let neutral = match reduction {
            Reduction::Sum => 0,
            Reduction::Maximum => i32::MIN,
        };
        let x = tl::load(x + row * n_cols + cols, cols < n_cols, neutral);
        let reduced = match reduction {
            Reduction::Sum => tl::sum(x, 0),
            Reduction::Maximum => tl::max(x, 0),
        };
        tl::store(out + row, reduced);
    }
}

/// A block of rows and columns, as the host names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    pub rows: usize,
    pub cols: usize,
}

/// `out = x + x` of matrices, by the block that the host chose: constants of a list and of configs.
#[fuse_kernel(
    T = [f32, i32], COLS = [16, 64], configs = [{ ROWS: 1, num_warps: 1 }, { ROWS: 4 }],
    when = Some(block) == preferred || block == (Block { rows: ROWS, cols: COLS }),
)]
pub fn double_chosen<T: Number, const ROWS: usize, const COLS: usize>(
    x: &View<T, 2>,
    #[host] block: Block,
    out: &mut View<T, 2>,
    #[host] preferred: Option<Block>,
) {
    let (row, col) = (tl::program_id(0) * ROWS, tl::program_id(1) * COLS);
    let tile = x.load::<ROWS, COLS>(row, col);
    out.store(tile + tile, row, col);
}

/// Sums of rows. The arguments choose the config: the first whose condition holds.
#[fuse_kernel(
    T = [f32, i32],
    configs = [
        { BLOCK: 64, num_warps: 1, when: n_cols <= 64 },
        { BLOCK: 256, num_warps: 1, when: n_cols as usize <= BLOCK && x.len() > 1000 },
        { BLOCK: 256, num_warps: 4, when: n_cols as usize <= BLOCK },
        { BLOCK: 1024, when: n_cols <= 1024 },
    ],
)]
pub fn chosen_row_sums<T: Number, const BLOCK: usize>(x: &[T], out: &mut [T], n_cols: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let x = tl::load(x + row * n_cols + cols, cols < n_cols);
    tl::store(out + row, tl::sum(x, 0));
}

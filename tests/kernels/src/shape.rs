//! Shape operations with a copy on either side: elements that move between layouts must arrive as they were.

use dsl_runtime::prelude::*;

use crate::case::{Job, Output, Results};

/// A kernel that moves a tile's elements in several ways, one result of the tile's size for each.
#[derive(Debug)]
pub struct Moves {
    pub dtype: DType,
    pub shape: &'static [usize],
    pub warps: usize,
    pub run: fn(&Job) -> Results,
}

macro_rules! matrices {
    ($($elem:ident, [$m:tt, $n:tt], $warps:tt;)*) => {
        /// See `numerics/shape.rs` for what each result is.
        #[fuse_kernel(configs = [$({ T: $elem, M: $m, N: $n, WARPS: $warps, num_warps: $warps }),*])]
        fn matrix<T: Element, const M: usize, const N: usize, const WARPS: usize>(x: &[T], out: &mut [T]) {
            let size = M * N;
            let (rows, cols, flat) = (tl::arange(0, M), tl::arange(0, N), tl::arange(0, M * N));
            let by_row = rows.col() * N + cols.row();
            let by_col = cols.col() * M + rows.row();
            let tile = tl::load(x + by_row);
            tl::store(out + by_row, tile);
            tl::store(out + size + by_col, tl::trans(tile));
            tl::store(out + 2 * size + flat, tl::ravel(tile));
            tl::store(out + 3 * size + by_col, tl::reshape(tile, [N, M]));
            tl::store(out + 4 * size + flat, tl::ravel(tl::trans(tile)));
            tl::store(out + 5 * size + by_row, tl::trans(tl::reshape(tile, [N, M])));
            let row = tl::load(x + cols);
            tl::store(out + 6 * size + by_row, tl::broadcast_to(row, [M, N]));
            let col = tl::load(x + rows * N);
            tl::store(out + 7 * size + by_row, tl::broadcast_to(col.col(), [M, N]));
            tl::store(out + 8 * size + tl::expand_dims(by_row, 1), tl::expand_dims(tile, 1));
            // An axis that comes and goes; the one element of a tile as a scalar.
            tl::store(out + 10 * size + by_row, tl::squeeze(tl::expand_dims(tile, 1), 1));
            let first = tl::squeeze(tl::load(x + tl::arange(0, 1)), 0);
            tl::store(out + 11 * size + by_row, tl::broadcast_to(first, [M, N]));
            tl::store(out + 9 * size + by_row, tl::select(tl::trans(by_col) == by_row, tile, tl::trans(tl::reshape(tile, [N, M]))));
        }

        pub static MATRICES: &[Moves] = &[$(Moves {
            dtype: <$elem as Element>::DTYPE, shape: &[$m, $n], warps: $warps,
            run: |job| {
                let x = job.operand::<$elem>(0)?;
                let mut out = Output::<$elem>::new(&job.device, vec![$m * $n; 12], job.shift)?;
                matrix::<$elem, $m, $n, $warps>(&x, &mut out).grid(1).launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

macro_rules! cubes {
    ($($elem:ident, [$a:tt, $b:tt, $c:tt], $warps:tt;)*) => {
        /// Every order of three axes.
        #[fuse_kernel(configs = [$({ T: $elem, A: $a, B: $b, C: $c, WARPS: $warps, num_warps: $warps }),*])]
        fn cube<T: Element, const A: usize, const B: usize, const C: usize, const WARPS: usize>(x: &[T], out: &mut [T]) {
            let size = A * B * C;
            let flat = tl::arange(0, A * B * C);
            let tile = tl::reshape(tl::load(x + flat), [A, B, C]);
            tl::store(out + flat, tl::reshape(tl::permute(tile, [0, 1, 2]), [A * B * C]));
            tl::store(out + size + flat, tl::reshape(tl::permute(tile, [0, 2, 1]), [A * B * C]));
            tl::store(out + 2 * size + flat, tl::reshape(tl::permute(tile, [1, 0, 2]), [A * B * C]));
            tl::store(out + 3 * size + flat, tl::reshape(tl::permute(tile, [1, 2, 0]), [A * B * C]));
            tl::store(out + 4 * size + flat, tl::reshape(tl::permute(tile, [2, 0, 1]), [A * B * C]));
            tl::store(out + 5 * size + flat, tl::reshape(tl::permute(tile, [2, 1, 0]), [A * B * C]));
        }

        pub static CUBES: &[Moves] = &[$(Moves {
            dtype: <$elem as Element>::DTYPE, shape: &[$a, $b, $c], warps: $warps,
            run: |job| {
                let x = job.operand::<$elem>(0)?;
                let mut out = Output::<$elem>::new(&job.device, vec![$a * $b * $c; 6], job.shift)?;
                cube::<$elem, $a, $b, $c, $warps>(&x, &mut out).grid(1).launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

matrices! {
    bool, [12, 20], 4;
    i8, [12, 20], 4;
    i16, [12, 20], 4;
    i32, [12, 20], 4;
    i64, [12, 20], 4;
    u8, [12, 20], 4;
    u16, [12, 20], 4;
    u32, [12, 20], 4;
    u64, [12, 20], 4;
    f16, [12, 20], 4;
    bf16, [12, 20], 4;
    f32, [12, 20], 4;
    f64, [12, 20], 4;
    u8, [8, 128], 4;
    u16, [8, 128], 4;
    u32, [8, 128], 4;
    u64, [8, 128], 4;
    u32, [32, 16], 1;
    u32, [32, 16], 2;
    u32, [32, 16], 8;
    u32, [32, 16], 16;
    u32, [32, 16], 32;
    f16, [64, 64], 8;
    u8, [64, 64], 16;
    u64, [16, 128], 2;
    bool, [32, 8], 8;
    u32, [1, 1], 4;
    u16, [1, 32], 4;
    u8, [32, 1], 4;
    u32, [3, 5], 2;
    u64, [5, 3], 1;
    f16, [128, 8], 4;
    u32, [2, 256], 4;
}

cubes! {
    u8, [4, 6, 8], 4;
    u16, [4, 6, 8], 1;
    u32, [4, 6, 8], 4;
    u64, [4, 6, 8], 32;
    u32, [16, 4, 16], 8;
    u32, [1, 8, 3], 2;
    f16, [2, 16, 32], 4;
    bool, [5, 2, 8], 4;
}

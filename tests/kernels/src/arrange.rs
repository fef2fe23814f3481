//! Rearranged elements: flips, joins, slices, look-ups and orders, at every warp count.

use dsl_runtime::prelude::*;

use crate::case::{Failure, Job, Output};

/// A kernel that moves a tile's elements in every way there is.
#[derive(Debug)]
pub struct Moves {
    pub dtype: DType,
    pub shape: [usize; 2],
    pub warps: usize,
    pub run: fn(&Job) -> Result<Vec<Vec<u64>>, Failure>,
}

macro_rules! moves {
    ($($elem:ident, [$m:tt, $n:tt], $warps:tt;)*) => {
        #[fuse_kernel(configs = [$({ T: $elem, M: $m, N: $n, WARPS: $warps, num_warps: $warps }),*])]
        fn moved<T: Element, const M: usize, const N: usize, const WARPS: usize>(x: &[T], out: &mut [T]) {
            let (rows, cols) = (tl::arange(0, M), tl::arange(0, N));
            let same = rows.col() * N + cols.row();
            let wide = rows.col() * (2 * N) + tl::arange(0, 2 * N).row();
            let half = rows.col() * (N / 2) + tl::arange(0, N / 2).row();
            let tall = tl::arange(0, 2 * M).col() * N + cols.row();
            let x = tl::load(x + same);
            tl::store(out + same, tl::flip(x, 0));
            let y = tl::flip(x, 1);
            tl::store(out + M * N + same, y);
            tl::store(out + 2 * M * N + wide, tl::interleave(x, y));
            tl::store(out + 4 * M * N + tall, tl::cat(x, y, 0));
            tl::store(out + 6 * M * N + wide, tl::cat(x, y, 1));
            let (even, odd) = tl::split(tl::reshape(x, [M, N / 2, 2]));
            tl::store(out + 8 * M * N + wide, tl::reshape(tl::join(tl::cat(even, odd, 1), x), [M, 2 * N]));
            tl::store(out + 10 * M * N + half, tl::slice(x, 1, 1, N / 2 + 1));
            tl::store(out + 10 * M * N + M * (N / 2) + half, tl::slice(x, 1, N / 2, N));
            let at = (rows.col() + cols.row() * 7) % (N + 1) as i32;
            tl::store(out + 11 * M * N + same, tl::gather(x, at, 1));
            let at = ((rows.col() * 5 + cols.row()) % (M + 1) as i32).to::<i64>() - 1;
            tl::store(out + 12 * M * N + same, tl::gather(x, at, 0));
            tl::store(out + 13 * M * N + rows, tl::index(x, 1, N - 1));
            tl::store(out + 13 * M * N + M + cols, tl::index(x, 0, M - 1));
            tl::store(out + 13 * M * N + M + N, tl::index(tl::index(x, 0, M / 2), 0, N / 2));
            let mut y = x;
            for _ in tl::static_range(0, 6) {
                let (even, odd) = tl::split(tl::reshape(y, [M, N / 2, 2]));
                y = tl::reshape(tl::permute(tl::join(even, odd), [0, 2, 1]), [M, N]);
            }
            tl::store(out + 13 * M * N + M + N + 1 + same, y);
        }

        pub static MOVES: &[Moves] = &[$(Moves {
            dtype: <$elem as Element>::DTYPE, shape: [$m, $n], warps: $warps,
            run: |job| {
                let x = job.operand::<$elem>(0)?;
                let mut out = Output::<$elem>::new(&job.device, vec![14 * $m * $n + $m + $n + 1], job.shift)?;
                moved::<$elem, $m, $n, $warps>(&x, &mut out).grid(1).launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

macro_rules! orders {
    ($($elem:ident, [$m:tt, $n:tt], $k:tt, $warps:tt;)*) => {
        #[fuse_kernel(configs = [$({ T: $elem, M: $m, N: $n, K: $k, WARPS: $warps, num_warps: $warps }),*])]
        fn ordered<T: Number, const M: usize, const N: usize, const K: usize, const WARPS: usize>(
            x: &[T], out: &mut [T], positions: &mut [i32],
        ) {
            let (rows, cols) = (tl::arange(0, M), tl::arange(0, N));
            let same = rows.col() * N + cols.row();
            let first = rows.col() * K + tl::arange(0, K).row();
            let x = tl::load(x + same);
            tl::store(out + same, tl::sort(x, 1));
            tl::store(out + M * N + same, tl::sort(x, 0, true));
            tl::store(positions + same, tl::argsort(x, 1));
            tl::store(positions + M * N + same, tl::argsort(x, 0, true));
            let (values, at) = tl::topk(x, K, 1);
            tl::store(out + 2 * M * N + first, values);
            tl::store(positions + 2 * M * N + first, at);
        }

        /// What comes first, `k` of each row, is part of what each gives.
        pub static ORDERS: &[(Moves, usize)] = &[$((Moves {
            dtype: <$elem as Element>::DTYPE, shape: [$m, $n], warps: $warps,
            run: |job| {
                let x = job.operand::<$elem>(0)?;
                let parts = vec![$m * $n, $m * $n, $m * $k];
                let mut out = Output::<$elem>::new(&job.device, parts.clone(), job.shift)?;
                let mut positions = Output::<i32>::new(&job.device, parts, job.shift)?;
                ordered::<$elem, $m, $n, $k, $warps>(&x, &mut out, &mut positions).grid(1).launch(&job.device)?;
                Ok(out.finish()?.into_iter().chain(positions.finish()?).collect())
            },
        }, $k)),*];
    };
}

moves! {
    f32, [16, 64], 1;
    f32, [16, 64], 4;
    f32, [16, 64], 16;
    f32, [1, 4], 4;
    u8, [12, 40], 4;
    bool, [4, 64], 2;
    f16, [64, 16], 2;
    bf16, [3, 10], 1;
    i64, [7, 6], 8;
    f64, [2, 128], 4;
    i16, [128, 2], 4;
    u32, [64, 128], 8;
}

orders! {
    f32, [1, 256], 8, 4;
    f32, [8, 64], 6, 1;
    f32, [16, 64], 6, 8;
    i32, [2, 2], 1, 4;
    u8, [64, 16], 16, 4;
    bf16, [8, 32], 5, 2;
    i64, [4, 128], 2, 16;
    f16, [32, 1], 1, 1;
    f64, [1, 512], 4, 8;
}

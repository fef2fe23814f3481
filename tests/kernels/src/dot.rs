//! Dots: every element type, straight and transposed operands, tiles of many sizes, in loops, computed
//! and chained.

use dsl_runtime::prelude::*;

use crate::case::{Job, Output, Results};

/// A kernel that multiplies `[m, k]` by `[k, n]`, any of them, in tiles.
#[derive(Debug)]
pub struct Dots {
    pub dtype: DType,
    pub acc: DType,
    /// Rows, columns and steps of a tile.
    pub tile: [usize; 3],
    /// Whether operands A and B are transposed in memory.
    pub transposed: [bool; 2],
    /// How many TF32 dots replace one of `f32`: 1, 3, or 0 where it is not split.
    pub tf32: usize,
    /// How many dots of `bf16` do: 3, 6, or 0.
    pub bf16: usize,
    /// For these numbers of rows, columns and steps.
    pub run: fn(&Job, [usize; 3]) -> Results,
}

macro_rules! dots {
    ($($elem:ident, $acc:ident, [$m:tt, $n:tt, $k:tt], $a_transposed:tt, $b_transposed:tt, $tf32:tt, $bf16:tt;)*) => {
        #[fuse_kernel(configs = [
            $({ T: $elem, S: $acc, M: $m, N: $n, K: $k, LEFT: $a_transposed, RIGHT: $b_transposed, TF32: $tf32, BF16: $bf16 }),*
        ])]
        fn multiplied<
            T: Element, S: Number, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool,
            const TF32: usize, const BF16: usize,
        >(a: &[T], b: &[T], out: &mut [S], m: i32, n: i32, k: i32) {
            let rows = tl::program_id(0) * M + tl::arange(0, M);
            let cols = tl::program_id(1) * N + tl::arange(0, N);
            let mut acc = tl::zeros::<S>([M, N]);
            for start in (0..k).step_by(K) {
                let inner = start + tl::arange(0, K);
                let operand_a = if LEFT {
                    tl::trans(tl::load(a + inner.col() * m + rows.row(), (inner.col() < k) & (rows.row() < m)))
                } else {
                    tl::load(a + rows.col() * k + inner.row(), (rows.col() < m) & (inner.row() < k))
                };
                let operand_b = if RIGHT {
                    tl::trans(tl::load(b + cols.col() * k + inner.row(), (cols.col() < n) & (inner.row() < k)))
                } else {
                    tl::load(b + inner.col() * n + cols.row(), (inner.col() < k) & (cols.row() < n))
                };
                acc = if TF32 == 3 {
                    tl::dot(operand_a, operand_b, acc).input_precision("tf32x3")
                } else if TF32 == 1 {
                    tl::dot(operand_a, operand_b, acc).input_precision("tf32")
                } else if BF16 == 3 {
                    tl::dot(operand_a, operand_b, acc).input_precision("bf16x3")
                } else if BF16 == 6 {
                    tl::dot(operand_a, operand_b, acc).input_precision("bf16x6")
                } else {
                    tl::dot(operand_a, operand_b, acc)
                };
            }
            tl::store(out + rows.col() * n + cols.row(), acc, (rows.col() < m) & (cols.row() < n));
        }

        pub static DOTS: &[Dots] = &[$(Dots {
            dtype: <$elem as Element>::DTYPE, acc: <$acc as Element>::DTYPE, tile: [$m, $n, $k],
            transposed: [$a_transposed, $b_transposed], tf32: $tf32, bf16: $bf16,
            run: |job, [m, n, k]| {
                let (a, b) = (job.operand::<$elem>(0)?, job.operand::<$elem>(1)?);
                let mut out = Output::<$acc>::new(&job.device, vec![m * n], job.shift)?;
                multiplied::<$elem, $acc, $m, $n, $k, $a_transposed, $b_transposed, $tf32, $bf16>(&a, &b, &mut out, m as i32, n as i32, k as i32)
                    .grid((m.div_ceil($m), n.div_ceil($n)))
                    .launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

dots! {
    f16, f32, [64, 64, 32], false, false, 0, 0;
    f16, f32, [16, 8, 16], true, false, 0, 0;
    f16, f32, [128, 64, 32], false, true, 0, 0;
    f16, f32, [1, 64, 64], false, true, 0, 0;
    f16, f32, [8, 32, 16], true, true, 0, 0;
    f16, f32, [48, 24, 48], false, false, 0, 0;
    bf16, f32, [64, 128, 32], false, false, 0, 0;
    bf16, f32, [32, 32, 64], true, true, 0, 0;
    bf16, f32, [128, 128, 32], false, true, 0, 0;
    bf16, f32, [5, 12, 16], true, false, 0, 0;
    f32, f32, [64, 64, 16], false, false, 0, 0;
    f32, f32, [16, 32, 8], false, true, 0, 0;
    f32, f32, [32, 16, 4], true, false, 0, 0;
    f32, f32, [7, 5, 12], false, false, 0, 0;
    f64, f64, [32, 32, 8], false, false, 0, 0;
    f64, f64, [16, 16, 16], true, true, 0, 0;
    f64, f64, [4, 64, 4], false, true, 0, 0;
    i8, i32, [64, 64, 64], false, false, 0, 0;
    i8, i32, [16, 16, 32], true, true, 0, 0;
    i8, i32, [128, 32, 32], false, true, 0, 0;
    f8e4m3, f32, [32, 32, 32], false, true, 0, 0;
    f8e5m2, f32, [16, 64, 16], true, false, 0, 0;
    f8e5m2, f32, [64, 16, 64], false, true, 0, 0;
    f8e4m3, f32, [8, 24, 96], false, true, 0, 0;
    f32, f32, [64, 64, 16], false, false, 1, 0;
    f32, f32, [16, 32, 8], false, true, 1, 0;
    f32, f32, [128, 64, 32], true, false, 1, 0;
    f32, f32, [8, 128, 24], false, true, 1, 0;
    f32, f32, [64, 64, 16], false, false, 3, 0;
    f32, f32, [16, 32, 8], false, true, 3, 0;
    f32, f32, [128, 64, 32], true, false, 3, 0;
    f32, f32, [8, 128, 24], false, true, 3, 0;
    f32, f32, [64, 64, 16], false, false, 0, 3;
    f32, f32, [128, 64, 32], false, true, 0, 3;
    f32, f32, [64, 32, 32], true, false, 0, 6;
    f32, f32, [8, 16, 16], false, true, 0, 6;
}

/// A kernel of one program on square matrices, one after the other in memory.
#[derive(Debug)]
pub struct ComputedDots {
    pub dtype: DType,
    pub acc: DType,
    pub warps: usize,
    pub run: fn(&Job) -> Results,
}

/// The extent of the matrices of [`ComputedDots`].
pub const SIDE: usize = 32;

macro_rules! computed {
    ($($elem:ident, $acc:ident, $warps:tt;)*) => {
        #[fuse_kernel(configs = [$({ T: $elem, S: $acc, WARPS: $warps, num_warps: $warps }),*])]
        fn computed<T: Number, S: Number, const WARPS: usize>(a: &[T], b: &[T], c: &[S], out: &mut [S]) {
            let (rows, cols) = (tl::arange(0, 32), tl::arange(0, 32));
            let at = rows.col() * 32 + cols.row();
            let (a, b, c) = (tl::load(a + at), tl::load(b + at), tl::load(c + at));
            // An operand from arithmetic, an accumulator from memory.
            tl::store(out + at, tl::dot((a + a).to::<T>(), b, c));
            // Both operands one tile, and its transpose.
            tl::store(out + 1024 + at, tl::dot(a, tl::trans(a)));
            // The result of one is operand A or B of the next.
            let ab = tl::dot(a, b);
            tl::store(out + 2048 + at, tl::dot(ab.to::<T>(), b));
            tl::store(out + 3072 + at, tl::dot(a, ab.to::<T>(), ab));
            // Batched dots.
            let pair = tl::reshape(tl::join(a, b), [32, 32, 2]);
            let pair = tl::permute(pair, [2, 0, 1]);
            let both = (tl::arange(0, 2) * 1024).col().expand_dims(2) + tl::expand_dims(at, 0);
            tl::store(out + 4096 + both, tl::dot(pair, tl::trans(pair)));
        }

        pub static COMPUTED_DOTS: &[ComputedDots] = &[$(ComputedDots {
            dtype: <$elem as Element>::DTYPE, acc: <$acc as Element>::DTYPE, warps: $warps,
            run: |job| {
                let (a, b) = (job.operand::<$elem>(0)?, job.operand::<$elem>(1)?);
                let c = job.operand::<$acc>(2)?;
                let mut out = Output::<$acc>::new(&job.device, vec![6 * SIDE * SIDE], job.shift)?;
                computed::<$elem, $acc, $warps>(&a, &b, &c, &mut out).grid(1).launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

computed! {
    f16, f32, 1;
    f16, f32, 4;
    bf16, f32, 2;
    bf16, f32, 8;
    f32, f32, 1;
    f32, f32, 4;
    f64, f64, 2;
    f64, f64, 8;
    i8, i32, 1;
    i8, i32, 4;
}

/// A kernel that averages the rows of a third matrix by the softmax of the matmul of the first two.
#[derive(Debug)]
pub struct ChainedDots {
    pub dtype: DType,
    /// Queries and keys of a tile, and the extent of a row.
    pub tile: [usize; 3],
    /// For this many keys.
    pub run: fn(&Job, usize) -> Results,
}

macro_rules! chained {
    ($($elem:ident, [$m:tt, $n:tt, $d:tt];)*) => {
        #[fuse_kernel(configs = [$({ T: $elem, M: $m, N: $n, D: $d }),*])]
        fn chained<T: Float, const M: usize, const N: usize, const D: usize>(
            q: &[T], k: &[T], v: &[T], out: &mut [f32], keys: i32,
        ) {
            let (rows, cols) = (tl::arange(0, M), tl::arange(0, D));
            let q = tl::load(q + rows.col() * D + cols.row());
            let mut acc = tl::zeros::<f32>([M, D]);
            let mut m_i = tl::full([M], f32::NEG_INFINITY);
            let mut l_i = tl::zeros::<f32>([M]);
            for start in (0..keys).step_by(N) {
                let at = start + tl::arange(0, N);
                let k = tl::load(k + at.col() * D + cols.row(), at.col() < keys);
                let scores = tl::select(at.row() < keys, tl::dot(q, tl::trans(k)), f32::NEG_INFINITY);
                let next = tl::maximum(m_i, tl::max(scores, 1));
                let p = tl::exp2(scores - next.col());
                let alpha = tl::exp2(m_i - next);
                l_i = l_i * alpha + tl::sum(p, 1);
                m_i = next;
                let v = tl::load(v + at.col() * D + cols.row(), at.col() < keys);
                acc = tl::dot(p.to::<T>(), v, acc * alpha.col());
            }
            tl::store(out + rows.col() * D + cols.row(), acc / l_i.col());
        }

        pub static CHAINED_DOTS: &[ChainedDots] = &[$(ChainedDots {
            dtype: <$elem as Element>::DTYPE, tile: [$m, $n, $d],
            run: |job, keys| {
                let (q, k, v) = (job.operand::<$elem>(0)?, job.operand::<$elem>(1)?, job.operand::<$elem>(2)?);
                let mut out = Output::<f32>::new(&job.device, vec![$m * $d], job.shift)?;
                chained::<$elem, $m, $n, $d>(&q, &k, &v, &mut out, keys as i32).grid(1).launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

chained! {
    f16, [64, 64, 64];
    bf16, [64, 32, 64];
    bf16, [128, 64, 32];
    f16, [16, 16, 16];
    bf16, [16, 128, 64];
    f32, [32, 16, 32];
}

/// A kernel of one program whose loops copy smem operands for all warps: for two dots, as both operands of one, in a loop inside
/// of another and in one behind it, beside rows that each thread copies for itself.
#[derive(Debug)]
pub struct SmemDots {
    pub dtype: DType,
    pub acc: DType,
    /// Rows, columns and steps of a tile.
    pub tile: [usize; 3],
    pub warps: usize,
    pub stages: usize,
    /// For so many iterations of the outer loop, and steps.
    pub run: fn(&Job, usize, usize) -> Results,
}

macro_rules! copied {
    ($($elem:ident, $acc:ident, [$m:tt, $n:tt, $k:tt], $warps:tt, $stages:tt;)*) => {
        #[fuse_kernel(num_warps = W, num_stages = STAGES, configs = [
            $({ T: $elem, S: $acc, M: $m, N: $n, K: $k, W: $warps, STAGES: $stages }),*
        ])]
        fn copied<
            T: Element, S: Number, const M: usize, const N: usize, const K: usize, const W: usize, const STAGES: usize,
        >(a: &[T], b: &[T], c: &[T], added: &[S], out: &mut [S], squares: &mut [S], rounds: i32, k: i32) {
            let (rows, cols) = (tl::arange(0, M), tl::arange(0, N));
            let mut acc = tl::zeros::<S>([M, N]);
            let mut square = tl::zeros::<S>([M, M]);
            for _ in 0..rounds {
                for start in (0..k).step_by(K) {
                    let inner = start + tl::arange(0, K);
                    let operand_a = tl::load(a + rows.col() * k + inner.row(), inner.row() < k);
                    let operand_b = tl::load(b + cols.col() * k + inner.row(), inner.row() < k);
                    acc = tl::dot(operand_a, tl::trans(operand_b), acc);
                    square = tl::dot(operand_a, tl::trans(operand_a), square);
                    acc += tl::load(added + start + cols).row();
                }
            }
            for start in (0..k).step_by(K) {
                let inner = start + tl::arange(0, K);
                let operand_a = tl::load(a + rows.col() * k + inner.row(), inner.row() < k);
                let operand_b = tl::load(c + inner.col() * N + cols.row(), inner.col() < k);
                acc = tl::dot(operand_a, operand_b, acc);
            }
            tl::store(out + rows.col() * N + cols.row(), acc);
            tl::store(squares + rows.col() * M + tl::arange(0, M).row(), square);
        }

        pub static SMEM_DOTS: &[SmemDots] = &[$(SmemDots {
            dtype: <$elem as Element>::DTYPE, acc: <$acc as Element>::DTYPE, tile: [$m, $n, $k], warps: $warps,
            stages: $stages,
            run: |job, rounds, k| {
                let (a, b, c) = (job.operand::<$elem>(0)?, job.operand::<$elem>(1)?, job.operand::<$elem>(2)?);
                let added = job.operand::<$acc>(3)?;
                let mut out = Output::<$acc>::new(&job.device, vec![$m * $n], job.shift)?;
                let mut squares = Output::<$acc>::new(&job.device, vec![$m * $m], job.shift)?;
                copied::<$elem, $acc, $m, $n, $k, $warps, $stages>(
                    &a, &b, &c, &added, &mut out, &mut squares, rounds as i32, k as i32,
                ).grid(1).launch(&job.device)?;
                Ok([out.finish()?, squares.finish()?].concat())
            },
        }),*];
    };
}

copied! {
    f16, f32, [32, 64, 32], 4, 1;
    f16, f32, [32, 64, 32], 4, 2;
    f16, f32, [32, 64, 32], 4, 3;
    f16, f32, [32, 64, 32], 4, 4;
    f16, f32, [32, 64, 32], 4, 5;
    bf16, f32, [64, 128, 64], 8, 3;
    bf16, f32, [16, 8, 128], 1, 2;
    bf16, f32, [64, 48, 16], 2, 3;
    f16, f32, [128, 32, 48], 8, 2;
    i8, i32, [32, 64, 64], 4, 3;
    i8, i32, [64, 16, 32], 2, 2;
    f8e4m3, f32, [32, 64, 64], 4, 3;
    f8e5m2, f32, [16, 16, 128], 2, 4;
    f32, f32, [32, 32, 16], 4, 3;
    f64, f64, [16, 32, 16], 2, 3;
}

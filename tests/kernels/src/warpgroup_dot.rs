//! Warpgroup dots of TMA-loaded blocks of views: shared along rows and
//! columns, straight and transposed, in loops of any trip count and stages, outside of loops, and chained.

use dsl_runtime::prelude::*;

use crate::case::{Job, Output, Results};

/// A kernel that adds the matmul of the first `limit` columns of `[m, k]` and rows of `[k, n]` to a matrix, and half of the
/// matmul of the first blocks.
#[derive(Debug)]
pub struct AccumulatedDots {
    pub dtype: DType,
    /// Rows, columns and steps of a tile.
    pub tile: [usize; 3],
    /// Whether operands A and B are transposed in memory.
    pub transposed: [bool; 2],
    pub warps: usize,
    pub stages: usize,
    /// For these numbers of rows, columns and steps, and the limit.
    pub run: fn(&Job, [usize; 3], usize) -> Results,
}

macro_rules! added {
    ($($elem:ident, [$m:tt, $n:tt, $k:tt], $a_transposed:tt, $b_transposed:tt, $warps:tt, $stages:tt;)*) => {
        #[fuse_kernel(num_warps = W, num_stages = S, configs = [
            $({ T: $elem, M: $m, N: $n, K: $k, LEFT: $a_transposed, RIGHT: $b_transposed, W: $warps, S: $stages }),*
        ])]
        fn added<
            T: Float, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool,
            const W: usize, const S: usize,
        >(a: &View<T, 2>, b: &View<T, 2>, c: &View<f32, 2>, out: &mut View<f32, 2>, limit: i32) {
            let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * N);
            let mut acc = tl::zeros::<f32>([M, N]);
            for start in (0..limit).step_by(K) {
                let operand_a = if LEFT { tl::trans(a.load::<K, M>(start, row)) } else { a.load::<M, K>(row, start) };
                let operand_b = if RIGHT { tl::trans(b.load::<N, K>(col, start)) } else { b.load::<K, N>(start, col) };
                acc = tl::dot(operand_a, operand_b, acc).input_precision("tf32");
            }
            let operand_a = if LEFT { tl::trans(a.load::<K, M>(0, row)) } else { a.load::<M, K>(row, 0) };
            let operand_b = if RIGHT { tl::trans(b.load::<N, K>(col, 0)) } else { b.load::<K, N>(0, col) };
            // A computed operand, and a loaded accumulator.
            let first = tl::dot((operand_a * 0.5).to::<T>(), operand_b, c.load::<M, N>(row, col)).input_precision("tf32");
            out.store(acc + first, row, col);
        }

        pub static ACCUMULATED_DOTS: &[AccumulatedDots] = &[$(AccumulatedDots {
            dtype: <$elem as Element>::DTYPE, tile: [$m, $n, $k], transposed: [$a_transposed, $b_transposed], warps: $warps,
            stages: $stages,
            run: |job, [m, n, k], limit| {
                let (a, b, c) = (job.operand::<$elem>(0)?, job.operand::<$elem>(1)?, job.operand::<f32>(2)?);
                let shape = |transposed: bool, [rows, columns]: [usize; 2]| {
                    if transposed { [columns, rows] } else { [rows, columns] }
                };
                let a = Slice::from(&a).view(shape($a_transposed, [m, k]))?;
                let b = Slice::from(&b).view(shape($b_transposed, [k, n]))?;
                let c = Slice::from(&c).view([m, n])?;
                let mut out = Output::<f32>::new(&job.device, vec![m * n], job.shift)?;
                let into = ViewMut::new(&mut out, [m, n])?;
                added::<$elem, $m, $n, $k, $a_transposed, $b_transposed, $warps, $stages>(a, b, c, into, limit as i32)
                    .grid((m.div_ceil($m), n.div_ceil($n)))
                    .launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

added! {
    bf16, [64, 64, 64], false, false, 4, 1;
    bf16, [64, 64, 64], false, true, 4, 2;
    f16, [64, 64, 64], true, false, 4, 3;
    f16, [64, 64, 64], true, true, 4, 5;
    bf16, [128, 128, 64], false, false, 8, 4;
    bf16, [128, 128, 64], false, true, 4, 2;
    f16, [64, 128, 64], false, false, 8, 2;
    bf16, [64, 48, 64], false, true, 4, 3;
    bf16, [192, 64, 64], false, false, 4, 2;
    f16, [128, 256, 64], false, false, 8, 3;
    bf16, [256, 128, 64], false, true, 16, 2;
    bf16, [128, 64, 128], false, false, 8, 2;
    f32, [64, 64, 32], false, false, 4, 2;
    f32, [64, 64, 32], false, true, 4, 2;
    f32, [64, 64, 32], true, false, 4, 2;
    f32, [64, 64, 32], true, true, 4, 1;
    f32, [128, 128, 32], false, false, 8, 3;
    f32, [128, 128, 32], false, true, 8, 4;
    f32, [128, 128, 32], true, true, 8, 2;
    f32, [48, 128, 64], false, false, 4, 2;
    f32, [64, 192, 32], false, false, 4, 2;
    f32, [128, 256, 32], false, false, 8, 3;
}

/// A kernel that adds the matmul of the first `limit` elements of the rows of `[m, k]` and `[n, k]` to a matrix, and
/// the matmul of the first blocks.
#[derive(Debug)]
pub struct ByteDots {
    pub dtype: DType,
    /// The accumulator's type.
    pub acc: DType,
    /// Rows, columns and steps of a tile.
    pub tile: [usize; 3],
    pub warps: usize,
    pub stages: usize,
    /// For these numbers of rows, columns and steps, and the limit.
    pub run: fn(&Job, [usize; 3], usize) -> Results,
}

macro_rules! bytes {
    ($($elem:ident, $acc:ident, [$m:tt, $n:tt, $k:tt], $most:tt, $warps:tt, $stages:tt;)*) => {
        #[fuse_kernel(num_warps = W, num_stages = STAGES, configs = [
            $({ T: $elem, S: $acc, M: $m, N: $n, K: $k, MOST: $most, W: $warps, STAGES: $stages }),*
        ])]
        fn bytes<
            T: Element, S: Element, const M: usize, const N: usize, const K: usize, const MOST: usize,
            const W: usize, const STAGES: usize,
        >(a: &View<T, 2>, b: &View<T, 2>, c: &View<S, 2>, out: &mut View<S, 2>, limit: i32) {
            let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * N);
            let mut acc = tl::zeros::<S>([M, N]);
            for start in (0..limit).step_by(K) {
                let operand_b = tl::trans(b.load::<N, K>(col, start));
                acc = tl::dot(a.load::<M, K>(row, start), operand_b, acc).max_num_imprecise_acc(MOST);
            }
            let (operand_a, operand_b) = (a.load::<M, K>(row, 0), tl::trans(b.load::<N, K>(col, 0)));
            let first = tl::dot(operand_a, operand_b, c.load::<M, N>(row, col)).max_num_imprecise_acc(MOST);
            out.store(acc + first, row, col);
        }

        pub static BYTE_DOTS: &[ByteDots] = &[$(ByteDots {
            dtype: <$elem as Element>::DTYPE, acc: <$acc as Element>::DTYPE, tile: [$m, $n, $k], warps: $warps,
            stages: $stages,
            run: |job, [m, n, k], limit| {
                let (a, b, c) = (job.operand::<$elem>(0)?, job.operand::<$elem>(1)?, job.operand::<$acc>(2)?);
                let (a, b) = (Slice::from(&a).view([m, k])?, Slice::from(&b).view([n, k])?);
                let c = Slice::from(&c).view([m, n])?;
                let mut out = Output::<$acc>::new(&job.device, vec![m * n], job.shift)?;
                let into = ViewMut::new(&mut out, [m, n])?;
                bytes::<$elem, $acc, $m, $n, $k, $most, $warps, $stages>(a, b, c, into, limit as i32)
                    .grid((m.div_ceil($m), n.div_ceil($n)))
                    .launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

bytes! {
    i8, i32, [64, 64, 128], 128, 4, 1;
    i8, i32, [128, 128, 128], 128, 8, 4;
    i8, i32, [64, 48, 256], 128, 4, 2;
    i8, i32, [64, 128, 128], 128, 8, 3;
    f8e4m3, f32, [64, 64, 128], 128, 4, 2;
    f8e4m3, f32, [128, 128, 128], 128, 8, 4;
    f8e5m2, f32, [64, 48, 256], 128, 4, 2;
    f8e5m2, f32, [128, 64, 128], 32, 8, 3;
}

/// A kernel that adds the dot of the same two blocks a number of times.
#[derive(Debug)]
pub struct RepeatedDot {
    /// Rows and columns of a tile; K is 64.
    pub tile: [usize; 2],
    /// For these numbers of rows and columns, and so many times.
    pub run: fn(&Job, [usize; 2], usize) -> Results,
}

macro_rules! again {
    ($all:ident = $again:ident($($settings:tt)*) $([$m:tt, $n:tt], $warps:tt;)*) => {
        #[fuse_kernel($($settings)* configs = [$({ M: $m, N: $n, W: $warps }),*])]
        fn $again<const M: usize, const N: usize, const W: usize>(
            a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>, count: i32,
        ) {
            let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * N);
            let mut acc = tl::zeros::<f32>([M, N]);
            for _ in 0..count {
                acc = tl::dot(a.load::<M, 64>(row, 0), b.load::<64, N>(0, col), acc);
            }
            out.store(acc, row, col);
        }

        pub static $all: &[RepeatedDot] = &[$(RepeatedDot {
            tile: [$m, $n],
            run: |job, [m, n], count| {
                let (a, b) = (job.operand::<bf16>(0)?, job.operand::<bf16>(1)?);
                let (a, b) = (Slice::from(&a).view([m, 64])?, Slice::from(&b).view([64, n])?);
                let mut out = Output::<f32>::new(&job.device, vec![m * n], job.shift)?;
                $again::<$m, $n, $warps>(a, b, ViewMut::new(&mut out, [m, n])?, count as i32)
                    .grid((m.div_ceil($m), n.div_ceil($n)))
                    .launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

again! {
    REPEATED = again(num_warps = W,)
    [64, 64], 4;
    [128, 64], 8;
}

// Three warpgroups, which only the compiler chooses.
again! {
    REPEATED_3_WARPGROUPS = again_in_three()
    [192, 64], 12;
    [192, 128], 12;
}

/// A kernel whose rows are sums of rows of `c`, weighted by the dots of rows of `a` and `b`: the accumulator is halved in each
/// iteration, without those behind the diagonal. To each row the sum of its weights is added, halved alike.
#[derive(Debug)]
pub struct MaskedAttention {
    pub dtype: DType,
    /// Rows of `a` and of `b` of a tile, and the extent of a row.
    pub tile: [usize; 3],
    /// Whether later programs have fewer iterations.
    pub falling: bool,
    /// For these numbers of rows of `a` and `b`.
    pub run: fn(&Job, [usize; 2]) -> Results,
}

macro_rules! turned {
    ($all:ident = $turned:ident($($settings:tt)*) $($elem:ident, [$m:tt, $n:tt, $d:tt], $warps:tt, $falling:tt;)*) => {
        #[fuse_kernel($($settings)* configs = [
            $({ T: $elem, M: $m, N: $n, D: $d, W: $warps, FALLING: $falling }),*
        ])]
        fn $turned<T: Float, const M: usize, const N: usize, const D: usize, const W: usize, const FALLING: bool>(
            a: &View<T, 3>, b: &View<T, 3>, c: &View<T, 3>, out: &mut View<f32, 3>,
        ) {
            let (row, batch) = (tl::program_id(0) * M, tl::program_id(1));
            let count = b.shape(1).to::<i32>();
            let end = if FALLING { count - row } else { count };
            let operand_a = tl::reshape(a.load::<1, M, D>(batch, row, 0), [M, D]);
            let mut acc = tl::zeros::<f32>([M, D]);
            let mut total = tl::zeros::<f32>([M]);
            for start in (0..end).step_by(N) {
                let operand_b = tl::reshape(b.load::<1, N, D>(batch, start, 0), [N, D]);
                let p = tl::dot(operand_a, tl::trans(operand_b));
                let p = if start + N as i32 > row {
                    let causal = (start + tl::arange(0, N)).row() <= (row + tl::arange(0, M)).col();
                    tl::select(causal, p, 0.0)
                } else {
                    p
                };
                total = total * 0.5 + tl::sum(p, 1);
                let rows = tl::reshape(c.load::<1, N, D>(batch, start, 0), [N, D]);
                acc = tl::dot(p.to::<T>(), rows, acc * 0.5);
            }
            out.store(tl::reshape(acc + total.col(), [1, M, D]), batch, row, 0);
        }

        pub static $all: &[MaskedAttention] = &[$(MaskedAttention {
            dtype: <$elem as Element>::DTYPE, tile: [$m, $n, $d], falling: $falling,
            run: |job, [rows, count]| {
                let (a, b, c) = (job.operand::<$elem>(0)?, job.operand::<$elem>(1)?, job.operand::<$elem>(2)?);
                let a = Slice::from(&a).view([2, rows, $d])?;
                let [b, c] = [Slice::from(&b), Slice::from(&c)].map(|rows| rows.view([2, count, $d]));
                let mut out = Output::<f32>::new(&job.device, vec![2 * rows * $d], job.shift)?;
                let into = ViewMut::new(&mut out, [2, rows, $d])?;
                $turned::<$elem, $m, $n, $d, $warps, $falling>(a, b?, c?, into)
                    .grid((rows.div_ceil($m), 2))
                    .launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

turned! {
    MASKED_ATTENTION_3_WARPGROUPS = turned_in_three()
    bf16, [192, 128, 64], 12, false;
    f16, [192, 64, 128], 12, true;
}

turned! {
    MASKED_ATTENTION = turned(num_warps = W,)
    bf16, [64, 64, 64], 4, false;
    f16, [128, 64, 64], 8, false;
    bf16, [128, 128, 64], 8, true;
    f16, [128, 32, 128], 4, true;
    bf16, [128, 64, 128], 8, false;
}

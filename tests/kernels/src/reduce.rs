//! Reductions over each axis and over all, of tiles of one to three axes, at every warp count.

use dsl_runtime::prelude::*;

use crate::case::{Failure, Job, Output};

/// A kernel that reduces a tile in every way there is.
#[derive(Debug)]
pub struct Reduce {
    pub dtype: DType,
    pub sum: DType,
    pub shape: &'static [usize],
    pub warps: usize,
    pub run: fn(&Job) -> Result<Folds, Failure>,
}

/// What one launch gave, program by program: for each axis in turn and then for all of them.
#[derive(Debug)]
pub struct Folds {
    pub max: Vec<Vec<u64>>,
    pub min: Vec<Vec<u64>>,
    pub sum: Vec<Vec<u64>>,
    /// The tile less the largest element along its last axis, which is kept for that.
    pub centered: Vec<u64>,
}

/// The lengths of a program's results, times the number of programs.
fn parts(shape: &[usize], programs: usize) -> Vec<usize> {
    let elements: usize = shape.iter().product();
    shape.iter().map(|extent| elements / extent).chain([1]).map(|part| part * programs).collect()
}

/// The launch that all the kernels share: they differ in how many axes they know.
macro_rules! launch {
    ($job:ident, $elem:ident, $sum:ident, [$($extent:tt),*], $kernel:expr) => {{
        let shape: &[usize] = &[$($extent),*];
        let programs = $job.operands[0].len() / shape.iter().product::<usize>();
        let x = $job.operand::<$elem>(0)?;
        let lengths = parts(shape, programs);
        let mut max = Output::<$elem>::new(&$job.device, lengths.clone(), $job.shift)?;
        let mut min = Output::<$elem>::new(&$job.device, lengths.clone(), $job.shift)?;
        let mut sum = Output::<$sum>::new(&$job.device, lengths, $job.shift)?;
        let mut centered = $job.output::<$elem>(1)?;
        $kernel(&x, &mut max, &mut min, &mut sum, &mut centered).grid(programs).launch(&$job.device)?;
        Ok(Folds { max: max.finish()?, min: min.finish()?, sum: sum.finish()?, centered: centered.finish()?.concat() })
    }};
}

macro_rules! rank_1 {
    ($($elem:ident, $sum:ident, [$n:tt], $warps:tt;)*) => {
        #[fuse_kernel(unreported, configs = [$({ T: $elem, S: $sum, N: $n, WARPS: $warps, num_warps: $warps }),*])]
        fn reduce_1<T: Number, S: Number, const N: usize, const WARPS: usize>(
            x: &[T], max: &mut [T], min: &mut [T], sum: &mut [S], centered: &mut [T],
        ) {
            let (program, programs) = (tl::program_id(0), tl::num_programs(0));
            let offsets = program * N + tl::arange(0, N);
            let x = tl::load(x + offsets);
            tl::store(max + program, tl::max(x, 0));
            tl::store(min + program, tl::min(x, 0));
            tl::store(sum + program, tl::sum(x, 0));
            tl::store(max + programs + program, tl::max(x));
            tl::store(min + programs + program, tl::min(x));
            tl::store(sum + programs + program, tl::sum(x));
            tl::store(centered + offsets, x - tl::max(x, 0, true));
        }

        pub static RANK_1: &[Reduce] = &[$(Reduce {
            dtype: <$elem as Element>::DTYPE, sum: <$sum as Element>::DTYPE, shape: &[$n], warps: $warps,
            run: |job| launch!(job, $elem, $sum, [$n], reduce_1::<$elem, $sum, $n, $warps>),
        }),*];
    };
}

macro_rules! rank_2 {
    ($($elem:ident, $sum:ident, [$m:tt, $n:tt], $warps:tt;)*) => {
        #[fuse_kernel(unreported, configs = [$({ T: $elem, S: $sum, M: $m, N: $n, WARPS: $warps, num_warps: $warps }),*])]
        fn reduce_2<T: Number, S: Number, const M: usize, const N: usize, const WARPS: usize>(
            x: &[T], max: &mut [T], min: &mut [T], sum: &mut [S], centered: &mut [T],
        ) {
            let (program, programs) = (tl::program_id(0), tl::num_programs(0));
            let (rows, cols) = (tl::arange(0, M), tl::arange(0, N));
            let offsets = program * (M * N) + rows.col() * N + cols.row();
            let x = tl::load(x + offsets);
            let by_col = program * N + cols;
            tl::store(max + by_col, tl::max(x, 0));
            tl::store(min + by_col, tl::min(x, 0));
            tl::store(sum + by_col, tl::sum(x, 0));
            let by_row = programs * N + program * M + rows;
            let largest = tl::max(x, 1, true);
            tl::store(max + by_row.col(), largest);
            tl::store(min + by_row, tl::min(x, 1));
            tl::store(sum + by_row, tl::sum(x, 1));
            let whole = programs * (M + N) + program;
            tl::store(max + whole, tl::max(x));
            tl::store(min + whole, tl::min(x));
            tl::store(sum + whole, tl::sum(x));
            tl::store(centered + offsets, x - largest);
        }

        pub static RANK_2: &[Reduce] = &[$(Reduce {
            dtype: <$elem as Element>::DTYPE, sum: <$sum as Element>::DTYPE, shape: &[$m, $n], warps: $warps,
            run: |job| launch!(job, $elem, $sum, [$m, $n], reduce_2::<$elem, $sum, $m, $n, $warps>),
        }),*];
    };
}

macro_rules! rank_3 {
    ($($elem:ident, $sum:ident, [$a:tt, $b:tt, $c:tt], $warps:tt;)*) => {
        #[fuse_kernel(unreported, configs = [$({ T: $elem, S: $sum, A: $a, B: $b, C: $c, WARPS: $warps, num_warps: $warps }),*])]
        fn reduce_3<T: Number, S: Number, const A: usize, const B: usize, const C: usize, const WARPS: usize>(
            x: &[T], max: &mut [T], min: &mut [T], sum: &mut [S], centered: &mut [T],
        ) {
            let (program, programs) = (tl::program_id(0), tl::num_programs(0));
            let (i, j, k) = (tl::arange(0, A), tl::arange(0, B), tl::arange(0, C));
            let i = tl::expand_dims(i.col(), 2);
            let offsets = program * (A * B * C) + i * (B * C) + j.col() * C + k.row();
            let x = tl::load(x + offsets);
            let without_0 = program * (B * C) + j.col() * C + k.row();
            tl::store(max + without_0, tl::max(x, 0));
            tl::store(min + without_0, tl::min(x, 0));
            tl::store(sum + without_0, tl::sum(x, 0));
            let without_1 = programs * (B * C) + program * (A * C) + i * C + k.row();
            tl::store(max + without_1, tl::max(x, 1, true));
            tl::store(min + without_1, tl::min(x, 1, true));
            tl::store(sum + without_1, tl::sum(x, 1, true));
            let without_2 = programs * (B * C + A * C) + program * (A * B) + tl::arange(0, A).col() * B + j.row();
            tl::store(max + without_2, tl::max(x, 2));
            tl::store(min + without_2, tl::min(x, 2));
            tl::store(sum + without_2, tl::sum(x, 2));
            let whole = programs * (B * C + A * C + A * B) + program;
            tl::store(max + whole, tl::max(x));
            tl::store(min + whole, tl::min(x));
            tl::store(sum + whole, tl::sum(x));
            tl::store(centered + offsets, x - tl::max(x, 2, true));
        }

        pub static RANK_3: &[Reduce] = &[$(Reduce {
            dtype: <$elem as Element>::DTYPE, sum: <$sum as Element>::DTYPE, shape: &[$a, $b, $c], warps: $warps,
            run: |job| launch!(job, $elem, $sum, [$a, $b, $c], reduce_3::<$elem, $sum, $a, $b, $c, $warps>),
        }),*];
    };
}

rank_1! {
    f32, f32, [1], 4;
    f32, f32, [2], 1;
    f32, f32, [40], 8;
    f32, f32, [4096], 4;
    bf16, f32, [7], 2;
    i8, i32, [1024], 2;
    u64, u64, [13], 1;
    i32, i32, [96], 1;
    i32, i32, [96], 4;
    i32, i32, [96], 16;
    i32, i32, [96], 32;
    i64, i64, [1920], 32;
    f64, f64, [1024], 32;
    i16, i32, [4096], 32;
}

rank_2! {
    i8, i32, [12, 40], 4;
    i16, i32, [12, 40], 4;
    i32, i32, [12, 40], 4;
    i64, i64, [12, 40], 4;
    u8, u32, [12, 40], 4;
    u16, u32, [12, 40], 4;
    u32, u32, [12, 40], 4;
    u64, u64, [12, 40], 4;
    f16, f32, [12, 40], 4;
    bf16, f32, [12, 40], 4;
    f32, f32, [12, 40], 4;
    f64, f64, [12, 40], 4;
    i32, i32, [16, 64], 1;
    i32, i32, [16, 64], 2;
    i32, i32, [16, 64], 4;
    i32, i32, [16, 64], 8;
    i32, i32, [16, 64], 16;
    i32, i32, [16, 64], 32;
    f16, f32, [16, 64], 1;
    f16, f32, [16, 64], 32;
    f64, f64, [16, 64], 2;
    i8, i32, [64, 32], 8;
    f32, f32, [1, 1], 4;
    i32, i32, [1, 64], 4;
    i32, i32, [64, 1], 4;
    f32, f32, [2, 512], 4;
    f32, f32, [256, 3], 4;
    u16, u32, [3, 5], 1;
    f32, f32, [7, 9], 32;
    bf16, f32, [128, 128], 8;
}

rank_3! {
    i32, i32, [4, 6, 8], 1;
    i32, i32, [4, 6, 8], 4;
    i32, i32, [4, 6, 8], 32;
    f32, f32, [2, 3, 40], 4;
    f16, f32, [8, 1, 16], 2;
    i64, i64, [1, 1, 1], 4;
    u8, u32, [16, 5, 4], 8;
}

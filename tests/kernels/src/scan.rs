//! Scans along both axes and both ways, at every warp count, by a function that does not commute.

use dsl_runtime::prelude::*;

use crate::case::{Failure, Job, Output};

/// A kernel that scans a tile in these ways: 0 and 1 along that axis, 2 and 3 along axes 0 and 1 backwards. Its results are
/// sums for each way, then the two parts of the composition of affine functions `t -> a t + b`, added up, for each way.
#[derive(Debug)]
pub struct Scan {
    pub ways: &'static [usize],
    pub dtype: DType,
    pub shape: [usize; 2],
    pub warps: usize,
    pub run: fn(&Job) -> Result<Vec<Vec<u64>>, Failure>,
}

macro_rules! scans {
    ($($(#[$doc:meta])* $list:ident: $ways:expr, $down:tt, $along:tt, [$($elem:ident, $sum:ident, [$m:tt, $n:tt], $warps:tt;)*];)*) => {
        #[fuse_kernel(configs = [$($(
            { T: $elem, S: $sum, M: $m, N: $n, WARPS: $warps, DOWN: $down, ALONG: $along, num_warps: $warps }
        ),*),*])]
        fn scanned<
            T: Number, S: Number, const M: usize, const N: usize, const WARPS: usize, const DOWN: bool, const ALONG: bool,
        >(
            x: &[T], sums: &mut [S], out: &mut [T],
        ) {
            let offsets = tl::arange(0, M).col() * N + tl::arange(0, N).row();
            let x = tl::load(x + offsets);
            let factor = tl::select(x > 0, x - x + 1, x - x - 1);
            // Where the scans along axis 1, and those backwards, begin.
            let (along, back) = if DOWN && ALONG { (M * N, 2 * M * N) } else { (0, M * N) };
            if DOWN {
                tl::store(sums + offsets, tl::cumsum(x, 0));
                tl::store(sums + back + offsets, tl::cumsum(x, 0, true));
                let (a, b) = tl::associative_scan((factor, x), 0, |(a, b), (c, d)| (a * c, b * c + d));
                tl::store(out + offsets, a + b);
                let (a, b) = tl::associative_scan((factor, x), 0, |(a, b), (c, d)| (a * c, b * c + d), true);
                tl::store(out + back + offsets, a + b);
            }
            if ALONG {
                tl::store(sums + along + offsets, tl::cumsum(x, 1));
                tl::store(sums + along + back + offsets, tl::cumsum(x, 1, true));
                let (a, b) = tl::associative_scan((factor, x), 1, |(a, b), (c, d)| (a * c, b * c + d));
                tl::store(out + along + offsets, a + b);
                let (a, b) = tl::associative_scan((factor, x), 1, |(a, b), (c, d)| (a * c, b * c + d), true);
                tl::store(out + along + back + offsets, a + b);
            }
        }

        $(
            $(#[$doc])*
            pub static $list: &[Scan] = &[$(Scan {
                ways: $ways,
                dtype: <$elem as Element>::DTYPE, shape: [$m, $n], warps: $warps,
                run: |job| {
                    let x = job.operand::<$elem>(0)?;
                    let ways: &[usize] = $ways;
                    let lengths = vec![$m * $n; ways.len()];
                    let mut sums = Output::<$sum>::new(&job.device, lengths.clone(), job.shift)?;
                    let mut out = Output::<$elem>::new(&job.device, lengths, job.shift)?;
                    scanned::<$elem, $sum, $m, $n, $warps, $down, $along>(&x, &mut sums, &mut out).grid(1).launch(&job.device)?;
                    Ok(sums.finish()?.into_iter().chain(out.finish()?).collect())
                },
            }),*];
        )*
    };
}

scans! {
    /// In every way there is.
    SCANS: &[0, 1, 2, 3], true, true, [
        i32, i32, [1, 1], 4;
        i32, i32, [2, 2], 1;
        i32, i32, [1, 256], 4;
        i32, i32, [256, 1], 4;
        i32, i32, [1, 2048], 8;
        i32, i32, [16, 64], 1;
        i32, i32, [16, 64], 8;
        i32, i32, [64, 16], 16;
        i32, i32, [12, 40], 4;
        i32, i32, [3, 10], 32;
        i64, i64, [4, 128], 4;
        f32, f32, [8, 96], 2;
        f32, f32, [128, 128], 8;
        f16, f32, [2, 16], 1;
        f64, f64, [64, 4], 2;
    ];
    /// Down the columns alone, which are in a thread's registers then.
    SCANS_DOWN: &[0, 2], true, false, [
        f32, f32, [32, 128], 4;
        f32, f32, [64, 16], 2;
        f32, f32, [4, 1024], 8;
        f16, f32, [64, 128], 8;
        f16, f32, [24, 40], 4;
        i32, i32, [256, 1], 4;
        i32, i32, [96, 32], 16;
        i64, i64, [16, 12], 1;
        f64, f64, [128, 8], 4;
    ];
    /// Along the rows alone, whose elements a thread holds in one run where memory gives them one by one.
    SCANS_ALONG: &[1, 3], false, true, [
        i32, i32, [1, 2048], 4;
        i32, i32, [2, 1024], 1;
        f32, f32, [8, 512], 4;
        f32, f32, [1, 4096], 8;
        f16, f32, [16, 256], 2;
        i64, i64, [4, 256], 2;
        f64, f64, [3, 320], 4;
    ];
}

/// Sums down 32 rows in the layout of a tile of four times eight rows: eight warps have the upper two bits of a row's number and the
/// lowest one, registers those between.
#[fuse_kernel(num_warps = 8)]
pub fn scanned_in_parts(x: &[i32], sums: &mut [i32]) {
    let rows = tl::reshape(tl::arange(0, 32), [4, 8, 1]);
    let offsets = rows * 128 + tl::reshape(tl::arange(0, 128), [1, 1, 128]);
    let x = tl::reshape(tl::load(x + offsets), [32, 128]);
    tl::store(sums + offsets, tl::reshape(tl::cumsum(x, 0), [4, 8, 128]));
    tl::store(sums + 4096 + offsets, tl::reshape(tl::cumsum(x, 0, true), [4, 8, 128]));
}

/// The numbers' sums down their columns, and backwards.
pub fn in_parts(job: &Job) -> Result<Vec<Vec<u64>>, Failure> {
    let x = job.operand::<i32>(0)?;
    let mut sums = Output::<i32>::new(&job.device, vec![4096; 2], job.shift)?;
    scanned_in_parts(&x, &mut sums).grid(1).launch(&job.device)?;
    sums.finish()
}

/// That kernel, of sums alone.
pub static IN_PARTS: Scan =
    Scan { ways: &[0, 2], dtype: DType::I32, shape: [32, 128], warps: 8, run: in_parts };

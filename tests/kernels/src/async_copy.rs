//! Software-pipelined loads on a GPU: however many iterations are in flight, the result is the same. Products of integers
//! are modulo 2^32, so that every element that was read counts: their overflows are not reported.

use dsl_runtime::prelude::*;

/// Chunks of three widths in one loop, masked, with something else than zeros outside. Program `i` takes row `i`.
#[fuse_kernel(
    unreported,
    configs = [
        { STAGES: 0 },
        { STAGES: 1, num_stages: 1, num_warps: 2 },
        { STAGES: 2, num_stages: 2, num_warps: 1 },
        { STAGES: 3, num_stages: 3, num_warps: 4 },
        { STAGES: 4, num_stages: 4, num_warps: 1 },
        { STAGES: 5, num_stages: 5, num_warps: 2 },
    ]
)]
pub fn chunks<const STAGES: usize>(
    x: &[f32],
    y: &[f16],
    z: &[i64],
    products: &mut [f32],
    powers: &mut [i64],
    last: &mut [f32],
    n: i32,
) {
    let (row, lanes) = (tl::program_id(0), tl::arange(0, 256));
    let mut product = tl::zeros::<f32>([256]);
    let mut power = tl::zeros::<i64>([256]);
    let (mut newer, mut older) = (tl::full::<f32>([256], -1.0), tl::full::<f32>([256], -2.0));
    for start in (0..n).step_by(256) {
        let i = start + lanes;
        let x = tl::load(x + row * n + i, i < n, 3.0);
        let y = tl::load(y + row * n + i, i < n).to::<f32>();
        product += x * (y + 1.0);
        power = power * 3 + tl::load(z + i, i < n, -7);
        older = newer;
        newer = x;
    }
    tl::store(products + row * 256 + lanes, product);
    tl::store(powers + row * 256 + lanes, power);
    tl::store(last + row * 256 + lanes, older);
}

/// Loops in a loop, one after the other, in a branch and in a `while`: their copies share memory.
#[fuse_kernel(
    unreported,
    configs = [
        { STAGES: 0, num_warps: 4 },
        { STAGES: 1, num_stages: 1, num_warps: 4 },
        { STAGES: 3, num_stages: 3, num_warps: 1 },
        { STAGES: 8, num_stages: 8, num_warps: 2 },
    ]
)]
pub fn nested<const STAGES: usize>(x: &[i32], y: &[i16], out: &mut [i32], rows: i32, choice: i32) {
    let (lanes, wide) = (tl::arange(0, 256), tl::arange(0, 1024));
    let mut total = tl::zeros::<i32>([256]);
    let mut largest = 0;
    for i in 0..rows {
        total += tl::load(x + i * 256 + lanes);
        for j in 0..i {
            total = total * 3 + tl::load(x + j * 256 + lanes);
        }
    }
    for i in 0..rows {
        largest = largest * 5 + tl::max(tl::load(x + i * 256 + lanes), 0);
        // Read when the reduction's barriers are passed: some threads go on to the next loop while others still read.
        total += tl::load(y + i * 256 + lanes).to::<i32>() * largest;
    }
    let mut weighted = tl::zeros::<i32>([1024]);
    for i in tl::range(0, rows, choice) {
        weighted = weighted * 3 + tl::load(y + i * 1024 + wide).to::<i32>();
    }
    // No alignment follows from a step that may be 0.
    for i in tl::range(0, rows, choice) {
        total = total * 3 + tl::load(x + i + lanes);
    }
    if choice > 0 {
        for i in 0..rows {
            total = total * choice - tl::load(x + i * 256 + lanes);
        }
    }
    let mut k = 0;
    while k < choice {
        for i in 0..rows {
            total = total * 5 + tl::load(x + i * 256 + lanes) * tl::load(y + i * 256 + lanes).to::<i32>();
        }
        k += 2;
    }
    tl::store(out + lanes, total);
    tl::store(out + 256 + wide, weighted);
    tl::store(out + 1280, largest);
}

/// Loads that cannot be pipelined beside those that can: offsets that were loaded or carried, and memory that an earlier iteration wrote.
#[fuse_kernel(
    configs = [
        { STAGES: 0 },
        { STAGES: 2, num_stages: 2, num_warps: 1 },
        { STAGES: 5, num_stages: 5, num_warps: 4 },
    ],
    unchecked,
    unreported
)]
pub fn chased<const STAGES: usize>(x: &[i32], index: &[i32], out: &mut [i32], totals: &mut [i32], n: i32) {
    let lanes = tl::arange(0, 128);
    let mut at = lanes;
    let mut total = tl::zeros::<i32>([128]);
    for i in 0..n {
        let hop = tl::load(index + i * 128 + lanes);
        total = total * 3 + tl::load(x + hop) - tl::load(x + at);
        at = tl::load(index + at);
        let before = tl::load(out + i * 128 + lanes);
        tl::store(out + (i + 1) * 128 + lanes, before * 7 + total);
    }
    tl::store(totals + lanes, total);
}

/// One long row after the other: the pending copies take more shared memory than a ring may have to spare, so that an
/// iteration's buffer slot is refilled when the iteration has read it, which is after a reduction here.
#[fuse_kernel(STAGES = [1, 2, 4, 5], num_stages = STAGES, num_warps = 8, unreported)]
pub fn long_rows<const STAGES: usize>(
    x: &[i32],
    y: &[i16],
    out: &mut [i32],
    rest: &mut [i32],
    n_rows: i32,
    n: i32,
) {
    let lanes = tl::arange(0, 8192);
    for row in (tl::program_id(0)..n_rows).step_by(tl::num_programs(0)) {
        let mask = lanes < n;
        let x = tl::load(x + row * n + lanes, mask, 0);
        let total = tl::sum(x, 0);
        let y = tl::load(y + row * n + lanes, mask, 0).to::<i32>();
        let most = tl::max(x * 3 + y, 0);
        tl::store(out + row * n + lanes, x * total + y * most, mask);
        tl::store(rest + row, total - most);
    }
}

/// Pointers that loops move on: by a stride, by scalars forward and back in one iteration, in a loop in a loop, and by another
/// amount for each element. The first one is used behind its loop.
#[fuse_kernel(STAGES = [1, 3], num_stages = STAGES, unreported)]
pub fn moved<const STAGES: usize>(x: &[i32], out: &mut [i32], n: i32, stride: i32) {
    let lanes = tl::arange(0, 128);
    let mut total = tl::zeros::<i32>([128]);
    let mut by_stride = x + lanes;
    for _i in 0..n {
        total = total * 3 + tl::load(by_stride);
        by_stride += stride;
    }
    total = total * 5 + tl::load(by_stride);
    let mut back = x + (lanes + n * 96);
    for _i in (stride..stride + 32 * n).step_by(32) {
        back -= 64;
        total = total * 7 + tl::load(back);
        back -= 32;
    }
    let mut outer = x + lanes;
    for i in 0..n {
        let mut inner = outer;
        for _j in 0..i {
            total = total * 3 + tl::load(inner, lanes < 100, -5);
            inner += stride;
        }
        outer += 16;
    }
    let mut spread = x + lanes;
    for _i in 0..n {
        total = total * 11 + tl::load(spread);
        spread += lanes * 2;
    }
    tl::store(out + lanes, total);
}

//! Where integers wrap and where they are exact.

use dsl_runtime::prelude::*;

/// Comparisons of an argument, of the same scalar loaded, and of it carried by a loop, each with 7 more, and what a
/// store makes of it.
#[fuse_kernel(unreported)]
pub fn comparisons(x: &[i32], out: &mut [i32], n: i32) {
    let lane = tl::arange(0, 16);
    let loaded = tl::load(x + 0);
    tl::store(out + lane, (lane > n + 7) as i32);
    tl::store(out + 16 + lane, (lane > loaded + 7) as i32);
    tl::store(out + 32 + lane, (lane > tl::load(x + lane * 0) + 7) as i32);
    let m = n + 7;
    let mut taken = 0;
    if m < n {
        taken += 1;
    }
    if loaded + 7 < loaded {
        taken += 2;
    }
    if 0 > m {
        taken += 4;
    }
    if (m as i64) < n as i64 {
        taken += 8;
    }
    tl::store(out + 48, taken);
    tl::store(out + 49, m);
    tl::store(out + 50, loaded + 7);
    let mut carried = n;
    for i in 0..7 {
        carried += 1 + i * 0;
    }
    tl::store(out + 51, (carried < n) as i32);
    tl::store(out + 52, (tl::wrapping_add(n, 7) < n) as i32);
}

/// An offset beyond 32 bits, stored and used as an address: the element that it names is outside of the slice.
#[fuse_kernel(unreported)]
pub fn offsets(out: &mut [i32], wide: &mut [i64], n: i32) {
    let lane = tl::arange(0, 16);
    let o = lane * n * n;
    tl::store(out + lane, o);
    tl::store(out + 16 + o + lane, 1);
    tl::store(out + 32 + o as i64 - lane as i64, 2, lane < 1);
    tl::store(wide + lane, o as i64);
    tl::store(wide + 16 + lane, (o as i64 > 0) as i64);
    let s = (n << 16) + lane;
    tl::store(out + 48 + s, 3);
    tl::store(out + 64 + lane, s);
}

/// The bounds of a loop are integers of their type: what wraps runs as it says, and no access leaves its slice.
#[fuse_kernel(unreported)]
pub fn ends(x: &[i32], out: &mut [i32], low: i32, high: i32, by: i32, step: i32) {
    let lane = tl::arange(0, 16);
    let mut sum = lane * 0;
    let mut iterations = 0;
    for i in tl::range(low + by, high - by, step) {
        sum += tl::load(x + i + lane);
        iterations += 1;
    }
    tl::store(out + lane, sum);
    tl::store(out + 16, iterations);
}

/// Maxima and minima of three numbers, some of them negated.
#[fuse_kernel]
pub fn extrema(x: &[i32], out: &mut [i32]) {
    let lane = tl::arange(0, 64);
    let (x, y, z) = (tl::load(x + lane), tl::load(x + 64 + lane), tl::load(x + 128 + lane));
    tl::store(out + lane, tl::maximum(tl::maximum(x, -y), z));
    tl::store(out + 64 + lane, tl::minimum(tl::minimum(-x, -y), -z));
    tl::store(out + 128 + lane, tl::maximum(-z, tl::maximum(-x, y)));
}

/// Quotients, remainders and quotients rounded up by an argument, which all elements share: of loaded numbers, and of places in
/// blocks of rows, whose runs share theirs.
#[fuse_kernel(BLOCK = [1024], unreported)]
pub fn divisions<const BLOCK: usize>(x: &[i32], wide: &[i64], out: &mut [i32], wide_out: &mut [i64], d: i32) {
    let at = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let v = tl::load(x + at);
    tl::store(out + 4 * at, v / d);
    tl::store(out + 4 * at + 1, v % d);
    tl::store(out + 4 * at + 2, at / d);
    tl::store(out + 4 * at + 3, at % d);
    let w = tl::load(wide + at);
    let d = d as i64 * 3;
    tl::store(wide_out + 4 * at, w / d);
    tl::store(wide_out + 4 * at + 1, w % d);
    tl::store(wide_out + 4 * at + 2, tl::cdiv(w, d));
    tl::store(wide_out + 4 * at + 3, (w as u64 / d as u64) as i64);
}

/// An image read by rows and columns that are quotients and remainders: vectors share them where the width is a multiple of one.
#[fuse_kernel(BLOCK = [1024], unreported)]
pub fn image<const BLOCK: usize>(
    x: &[f32],
    out: &mut [f32],
    planes: i32,
    height: i32,
    width: i32,
    shift: i32,
) {
    let at = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = at < planes * height * width;
    let col = at % width - shift;
    let row = at / width % height + shift;
    let plane = at / (height * width);
    let inside = mask & (col >= 0) & (col < width) & (row >= 0) & (row < height);
    tl::store(out + at, tl::load(x + (plane * height + row) * width + col, inside, -1.0), mask);
}

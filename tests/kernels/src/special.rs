//! Formulas on values where a rewrite would show: scores with finite masks, maxima of large numbers, exact quotients.

use dsl_runtime::prelude::*;

/// Rows of 64 scores beside a mask: softmax, its logarithm, and the formula written out.
#[fuse_kernel]
pub fn masked_softmax(x: &[f32], mask: &[f32], out: &mut [f32], scale: f32) {
    let (row, rows) = (tl::program_id(0), tl::num_programs(0));
    let at = row * 64 + tl::arange(0, 64);
    let s = tl::load(x + at) * scale + tl::load(mask + at);
    let p = tl::exp(s - tl::max(s, 0));
    tl::store(out + at, tl::softmax(s, 0));
    tl::store(out + rows * 64 + at, tl::log_softmax(s, 0));
    tl::store(out + 2 * rows * 64 + at, p / tl::sum(p, 0));
}

/// `softmax(q · kᵀ * scale)` in blocks of 16 keys, where row `r` sees key `first[r]` and those after it and others score `masked`: sums of
/// exponentials, and weighted values divided by them. With `DEFERRED` the masked score is minus infinity, as in kernels whose scale is
/// taken after the maximum.
#[fuse_kernel(DEFERRED = [false, true])]
pub fn online_softmax<const DEFERRED: bool>(
    q: &[f16],
    k: &[f16],
    v: &[f16],
    first: &[i32],
    out: &mut [f32],
    keys: i32,
    scale: f32,
    masked: f32,
) {
    let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
    let at = i.col() * 16 + j.row();
    let q = tl::load(q + at);
    let first = tl::load(first + i);
    let mut l = tl::zeros::<f32>([16]);
    let mut m = tl::full([16], f32::NEG_INFINITY);
    let mut acc = tl::zeros::<f32>([16, 16]);
    for start in (0..keys).step_by(16) {
        let s = tl::dot(q, tl::trans(tl::load(k + start * 16 + at))) * scale;
        let fill = if DEFERRED { f32::NEG_INFINITY } else { masked };
        let s = tl::select((start + j).row() >= first.col(), s, fill);
        let new = tl::maximum(m, tl::max(s, 1));
        let p = tl::exp(s - new.col());
        let alpha = tl::exp(m - new);
        l = l * alpha + tl::sum(p, 1);
        acc = tl::dot(p.to::<f16>(), tl::load(v + start * 16 + at), acc * alpha.col());
        m = new;
    }
    tl::store(out + i, l);
    tl::store(out + 16 + at, acc / l.col());
}

/// Rows of 256: where a product is the largest of its row, `exp(y - m)` and `exp2(y - m)`; elsewhere what was there.
#[fuse_kernel]
pub fn at_maximum(x: &[f32], out: &mut [f32], scale: f32) {
    let (row, rows) = (tl::program_id(0), tl::num_programs(0));
    let at = row * 256 + tl::arange(0, 256);
    let y = tl::load(x + at) * scale;
    let m = tl::max(y, 0);
    tl::store(out + at, tl::exp(y - m), y == m);
    tl::store(out + rows * 256 + at, tl::exp2(y - m), y == m);
}

/// Rows of 256 divided by an argument, a value per row, a constant, and element by element, plainly and correctly rounded.
#[fuse_kernel]
pub fn quotients(x: &[f32], rows: &[f32], divisors: &[f32], out: &mut [f32], d: f32) {
    let (row, programs) = (tl::program_id(0), tl::num_programs(0));
    let at = row * 256 + tl::arange(0, 256);
    let x = tl::load(x + at);
    let divisors = tl::load(divisors + at);
    tl::store(out + at, x / d);
    tl::store(out + programs * 256 + at, x / tl::load(rows + row));
    tl::store(out + 2 * programs * 256 + at, x / 7.0);
    tl::store(out + 3 * programs * 256 + at, x / divisors);
    tl::store(out + 4 * programs * 256 + at, tl::div_rn(x, divisors));
}

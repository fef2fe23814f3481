//! Rows whose elements meet: transforms, sorts, scans and dynamic programs.

use dsl_runtime::prelude::*;

/// The Walsh-Hadamard transform of rows of `N` elements, times `scale`. A stage adds and subtracts neighbors, then makes the last bit of their
/// indices the first. After `STAGES`, the logarithm of `N`, the bits are in their order again. Program `i` takes `ROWS` rows.
/// **Source.** Fino, Algazi, *Unified matrix treatment of the fast Walsh-Hadamard transform*, 1976, by `tl.split` and `tl.join`.
#[fuse_kernel(configs = [{ N: 256, STAGES: 8 }, { N: 1024, STAGES: 10 }], ROWS = [4], num_warps = 4)]
pub fn hadamard<const N: usize, const STAGES: usize, const ROWS: usize>(
    x: &[f32],
    out: &mut [f32],
    rows: i32,
    scale: f32,
) {
    let row = tl::program_id(0) * ROWS + tl::arange(0, ROWS);
    let offsets = row.col() * N + tl::arange(0, N).row();
    let mut y = tl::load(x + offsets, (row < rows).col());
    for _ in tl::static_range(0, STAGES) {
        let (a, b) = tl::split(tl::reshape(y, [ROWS, N / 2, 2]));
        y = tl::reshape(tl::permute(tl::join(a + b, a - b), [0, 2, 1]), [ROWS, N]);
    }
    tl::store(out + offsets, y * scale, (row < rows).col());
}

/// The discrete Fourier transform of rows of `N` complex elements, real and imaginary parts side by side. Stage `i` joins halves of what is left
/// to transform, and puts the bit that says which of both results it is before the `i` bits of the frequency so far. `cosines` and `sines`
/// are those of `-2 pi j / N` for `j` below `N / 2`. Program `i` takes `ROWS` rows.
/// **Source.** Stockham's form of the fast Fourier transform, 1966, by `tl.split` and `tl.join`.
#[fuse_kernel(N = [64], STAGES = [6], ROWS = [16], num_warps = 4)]
pub fn fft_rows<const N: usize, const STAGES: usize, const ROWS: usize>(
    x: &[f32],
    cosines: &[f32],
    sines: &[f32],
    out: &mut [f32],
    rows: i32,
) {
    let row = tl::program_id(0) * ROWS + tl::arange(0, ROWS);
    let offsets = (row.col() * N + tl::arange(0, N).row()) * 2;
    let mask = (row < rows).col();
    let mut re = tl::load(x + offsets, mask);
    let mut im = tl::load(x + offsets + 1, mask);
    let places = tl::arange(0, N / 2);
    for stage in tl::static_range(0, STAGES) {
        let (a_re, b_re) = tl::split(tl::permute(tl::reshape(re, [ROWS, 2, N / 2]), [0, 2, 1]));
        let (a_im, b_im) = tl::split(tl::permute(tl::reshape(im, [ROWS, 2, N / 2]), [0, 2, 1]));
        let angle = (places >> stage) << stage;
        let cosine = tl::load(cosines + angle).row();
        let sine = tl::load(sines + angle).row();
        let (d_re, d_im) = (a_re - b_re, a_im - b_im);
        let pair_re = tl::join(a_re + b_re, d_re * cosine - d_im * sine);
        let pair_im = tl::join(a_im + b_im, d_re * sine + d_im * cosine);
        let left = N >> (stage + 1);
        re = tl::reshape(
            tl::permute(tl::reshape(pair_re, [ROWS, left, 1 << stage, 2]), [0, 1, 3, 2]),
            [ROWS, N],
        );
        im = tl::reshape(
            tl::permute(tl::reshape(pair_im, [ROWS, left, 1 << stage, 2]), [0, 1, 3, 2]),
            [ROWS, N],
        );
    }
    tl::store(out + offsets, re, mask);
    tl::store(out + offsets + 1, im, mask);
}

/// Sorts rows of `n` elements in ascending order; `BLOCK >= n`. **Source.** `torch.sort` along the last axis, by `tl.sort`.
#[fuse_kernel(BLOCK = [512, 1024], num_warps = 4)]
pub fn sort_rows<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let x = tl::load(x + row * n + cols, cols < n, f32::INFINITY);
    tl::store(out + row * n + cols, tl::sort(x, 0), cols < n);
}

/// Logarithms of the running sums of exponentials along rows of `n` elements, each read at once: `BLOCK >= n`. The scan is over pairs of a maximum
/// and a sum of exponentials below it. **Source.** `torch.logcumsumexp`, by `tl.associative_scan`.
#[fuse_kernel(BLOCK = [1024, 4096], num_warps = 8)]
pub fn logcumsumexp<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let x = tl::load(x + row * n + cols, cols < n, f32::MIN);
    let (peaks, sums) = tl::associative_scan((x, tl::full([BLOCK], 1.0)), 0, |(a, p), (b, q)| {
        let peak = tl::maximum(a, b);
        (peak, p * tl::exp(a - peak) + q * tl::exp(b - peak))
    });
    tl::store(out + row * n + cols, peaks + tl::log(sums), cols < n);
}

/// The edit distance of each pair of strings: `a` is `[pairs, len_a]`, `b` is `[pairs, len_b]`, with `1 <= len_b <= LEN`. An iteration makes one
/// row of the table for `PAIRS` pairs: what replaces or deletes comes from the row before, what inserts is a running minimum.
/// **Source.** Wagner, Fischer, *The string-to-string correction problem*, 1974, rows by a scan.
#[fuse_kernel(LEN = [128], PAIRS = [4], num_warps = 4)]
pub fn edit_distance<const LEN: usize, const PAIRS: usize>(
    a: &[u8],
    b: &[u8],
    out: &mut [i32],
    pairs: i32,
    len_a: i32,
    len_b: i32,
) {
    let pair = tl::program_id(0) * PAIRS + tl::arange(0, PAIRS);
    let cols = tl::arange(0, LEN).row();
    let mask = (pair < pairs).col() & (cols < len_b);
    let b = tl::load(b + pair.col() * len_b + cols, mask, 0);
    let before = tl::broadcast_to(tl::maximum(cols - 1, 0), [PAIRS, LEN]);
    let mut row = tl::broadcast_to(cols + 1, [PAIRS, LEN]);
    for i in 0..len_a {
        let letter = tl::load(a + pair * len_a + i, pair < pairs, 0);
        let diagonal = tl::select(cols == 0, i, tl::gather(row, before, 1));
        let replaced = diagonal + (letter.col() != b).to::<i32>();
        let reached = tl::minimum(row + 1, replaced);
        row = cols + tl::associative_scan(reached - cols, 1, |p, q| tl::minimum(p, q));
    }
    let last = tl::sum(tl::select(cols == len_b - 1, row, 0), 1);
    tl::store(out + pair, last, pair < pairs);
}

/// Counts the elements above `limit` in each `BLOCK` of `n` elements. **Source.** The first pass of `torch.masked_select`.
#[fuse_kernel(BLOCK = [2048], num_warps = 4)]
pub fn count_kept<const BLOCK: usize>(x: &[f32], counts: &mut [i32], n: i32, limit: f32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let x = tl::load(x + offsets, offsets < n, 0.0);
    let keep = (x > limit) & (offsets < n);
    tl::store(counts + tl::program_id(0), tl::sum(keep.to::<i32>(), 0));
}

/// Moves the elements above `limit` together, in their order. Those of block `i` begin at `starts[i]` of `out`, the sum of the counts of the
/// blocks before it, which [`count_kept()`] makes. **Source.** The last pass of `torch.masked_select`.
#[fuse_kernel(BLOCK = [2048], num_warps = 4)]
pub fn compact<const BLOCK: usize>(x: &[f32], starts: &[i32], out: &mut [f32], n: i32, limit: f32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let x = tl::load(x + offsets, offsets < n, 0.0);
    let keep = (x > limit) & (offsets < n);
    let places = tl::load(starts + tl::program_id(0)) + tl::cumsum(keep.to::<i32>(), 0) - 1;
    tl::store(out + places, x, keep);
}

//! Programs that several blocks run together, where the GPU has clusters: what crosses from block to block.

use dsl_runtime::prelude::*;

/// Every exchange between threads, over all blocks: tiles of 1024 elements of `out`, and of 16 of `scalars`. As many warps
/// as there are elements for.
#[fuse_kernel(CTAS = [1, 2, 4, 8], num_ctas = CTAS, num_warps = if CTAS == 8 { 4 } else { 2 })]
pub fn crossed<const CTAS: usize>(x: &[i32], out: &mut [i32], scalars: &mut [i64], counter: &mut [i32]) {
    let program = tl::program_id(0);
    let lanes = tl::arange(0, 1024);
    let x = tl::load(x + program * 1024 + lanes);
    let (offset, scalar_offset) = (program * 9 * 1024, program * 16);
    let tile = tl::reshape(x, [32, 32]);
    let indices = tl::arange(0, 32).col() * 32 + tl::arange(0, 32).row();
    // Layout conversions, and permuted elements.
    tl::store(out + offset + indices, tl::trans(tile));
    tl::store(
        out + (offset + 1024) + indices,
        tile + tl::sum(tile, 0, true) * 3 + tl::sum(tile, 1, true) * 5,
    );
    tl::store(out + (offset + 2 * 1024) + lanes, tl::cumsum(x, 0));
    tl::store(out + (offset + 3 * 1024) + lanes, tl::sort(x));
    tl::store(out + (offset + 4 * 1024) + lanes, tl::gather(x, x & 1023, 0));
    tl::store(out + (offset + 5 * 1024) + lanes, tl::flip(x, 0));
    tl::store(out + (offset + 6 * 1024) + tl::arange(0, 256), tl::histogram(x & 255, 256));
    // Numbers of eight, four, two and one bytes, of one and of several tiles.
    tl::store(scalars + scalar_offset, tl::sum(x.to::<i64>() * 1_000_003, 0));
    tl::store(scalars + (scalar_offset + 1), tl::max(x, 0).to::<i64>());
    tl::store(scalars + (scalar_offset + 2), tl::max(x.to::<i16>(), 0).to::<i64>());
    tl::store(scalars + (scalar_offset + 3), tl::min(x.to::<i8>(), 0).to::<i64>());
    tl::store(scalars + (scalar_offset + 4), tl::argmax(x).to::<i64>());
    let (low, high) = tl::reduce((x, x * 7), 0, |(a, b), (c, d)| (tl::minimum(a, c), tl::maximum(b, d)));
    tl::store(scalars + (scalar_offset + 5), (low - high).to::<i64>());
    tl::store(scalars + (scalar_offset + 6), tl::max(x.to::<f64>(), 0).to::<i64>());
    // A tile that not every block has a share of, and what one thread learns for all.
    let few = tl::arange(0, 32);
    tl::store(scalars + (scalar_offset + 7), tl::sum(tl::gather(x, few, 0), 0).to::<i64>());
    let old = tl::atomic_add(counter + program, 5);
    tl::store(out + (offset + 7 * 1024) + lanes, x + old);
    tl::store(out + (offset + 8 * 1024) + lanes, tl::load(out + offset + (1023 - lanes)));
}

/// One row after the other, with one reduction or with several in an iteration, some of which wait for each other.
#[fuse_kernel(CTAS = [1, 2, 4, 8], SUMS = [1, 3], num_ctas = CTAS, num_warps = 1, num_stages = 2, unreported)]
pub fn rows<const CTAS: usize, const SUMS: usize>(x: &[i32], out: &mut [i32], n_rows: i32, n: i32) {
    let lanes = tl::arange(0, 2048);
    for row in (tl::program_id(0)..n_rows).step_by(tl::num_programs(0)) {
        let x = tl::load(x + row * n + lanes, lanes < n, 0);
        let total = tl::sum(x, 0);
        let y = if SUMS == 1 {
            x * 3 + total
        } else {
            let most = tl::max(x, 0);
            x * 3 + total + tl::sum((x - most) * total, 0)
        };
        tl::store(out + row * n + lanes, y, lanes < n);
    }
}

/// Loops in loops, each of which reduces, with any trip count; nothing at all for a program beyond `programs`.
#[fuse_kernel(CTAS = [1, 2, 4, 8], num_ctas = CTAS, num_warps = 2, unreported)]
pub fn nested<const CTAS: usize>(x: &[i32], trip_counts: &[i32], out: &mut [i32], programs: i32, n: i32) {
    let program = tl::program_id(0);
    if program >= programs {
        return;
    }
    let lanes = tl::arange(0, 1024);
    let mut state = tl::load(x + program * 1024 + lanes);
    for i in 0..n {
        let count = tl::load(trip_counts + i);
        for _ in 0..count {
            state = state * 5 + tl::sum(state, 0);
        }
        state += tl::max(state, 0);
        if count > 1 {
            state ^= tl::min(state, 0);
        }
    }
    let mut remaining = n;
    while remaining > 0 {
        state = state * 3 + tl::sum(state & 255, 0);
        remaining -= 1 + (tl::max(state, 0) & 1);
    }
    tl::store(out + program * 1024 + lanes, state);
}

//! Loops and branches: what they carry, how often they run, and reductions inside them.

use dsl_runtime::prelude::*;

/// Sums rows `low..high` by `step`, counts them and remembers the last one.
#[fuse_kernel(T = [i8, i32, u64, bf16, f32, f64], unreported)]
pub fn sum_rows<T: Number>(x: &[T], out: &mut [T], counts: &mut [i32], low: i32, high: i32, step: i32) {
    let cols = tl::arange(0, 64);
    let mut total = tl::zeros::<T>([64]);
    let (mut count, mut last) = (0, -1000);
    for row in (low..high).step_by(step) {
        total += tl::load(x + row * 64 + cols);
        count += 1;
        last = row;
    }
    tl::store(out + cols, total);
    tl::store(counts + 0, count);
    tl::store(counts + 1, last);
}

/// The same with the loop's hints, which change nothing, and ends of 64 bits.
#[fuse_kernel(unreported)]
pub fn sum_rows_hinted(x: &[i32], out: &mut [i32], low: i64, high: i64, step: i64) {
    let cols = tl::arange(0, 64);
    let mut piped = tl::zeros::<i32>([64]);
    for row in tl::range(low, high, step).num_stages(3) {
        piped += tl::load(x + row * 64 + cols);
    }
    tl::store(out + cols, piped);
    let mut unrolled = tl::zeros::<i32>([64]);
    for row in tl::range(low, high, step).unroll(4) {
        unrolled += tl::load(x + row * 64 + cols);
    }
    tl::store(out + 64 + cols, unrolled);
    let mut inclusive = 0i64;
    for row in low..=high {
        inclusive += row;
    }
    tl::store(out + 128, inclusive as i32);
}

/// The trip count of `low..=high` by `step`, and the sum of its values, in both integers.
#[fuse_kernel(unreported)]
pub fn closed(
    out: &mut [i64],
    low: i32,
    high: i32,
    step: i32,
    low_wide: i64,
    high_wide: i64,
    step_wide: i64,
) {
    let (mut iterations, mut sum) = (0i64, 0i64);
    for i in (low..=high).step_by(step) {
        iterations += 1;
        sum += i as i64;
    }
    tl::store(out + 0, iterations);
    tl::store(out + 1, sum);
    let (mut iterations, mut sum) = (0i64, 0i64);
    for i in (low_wide..=high_wide).step_by(step_wide) {
        iterations += 1;
        sum += i;
    }
    tl::store(out + 2, iterations);
    tl::store(out + 3, sum);
}

/// Parts of tuples, assignments in arms and to several variables at once, and complements of unsigned constants:
/// `n` iterations of Euclid's algorithm and what each iteration was.
#[fuse_kernel(unreported)]
pub fn parts(pairs: &[u32], out: &mut [u32], n: i32) {
    let mut pair = (tl::load(pairs + 0), tl::load(pairs + 1));
    let (mut steps, mut odd, mut even) = (0u32, 0u32, 0u32);
    for iteration in 0..n {
        if pair.1 != 0 {
            pair = (pair.1, pair.0 % pair.1);
            steps += 1;
        }
        match iteration % 2 {
            0 => even += pair.0,
            _ => odd = odd * 3 + pair.0,
        }
    }
    (odd, even) = (even, odd);
    let low;
    ((low, _), steps) = ((odd & !0xff, 1), steps | !0xffff_0000);
    tl::store(out + 0, pair.0);
    tl::store(out + 1, steps);
    tl::store(out + 2, odd);
    tl::store(out + 3, even);
    tl::store(out + 4, low);
}

/// Values that are swapped in each iteration: a lost copy would show.
#[fuse_kernel(T = [i32, f32])]
pub fn rotate<T: Number>(x: &[T], out: &mut [T], n: i32) {
    let lanes = tl::arange(0, 32);
    let mut a = tl::load(x + lanes);
    let mut b = tl::load(x + 32 + lanes);
    let mut c = tl::load(x + 64 + lanes);
    let (mut older, mut newer) = (0, 1);
    for _ in 0..n {
        let (next_a, next_b) = (b, c);
        c = a;
        a = next_a;
        b = next_b;
        let sum = older + newer;
        older = newer;
        newer = sum;
    }
    tl::store(out + lanes, a);
    tl::store(out + 32 + lanes, b);
    tl::store(out + 64 + lanes, c);
    tl::store(out + 96 + lanes, tl::full([32], older).to::<T>());
}

/// Loops in loops whose ends depend on the outer one.
#[fuse_kernel]
pub fn triangle(out: &mut [i32], n: i32) {
    let mut total = 0;
    let mut iterations = tl::zeros::<i32>([32]);
    for i in 0..n {
        for j in 0..i {
            for k in j..i {
                total += i * 100 + j * 10 + k;
                iterations += 1;
            }
            total -= 1;
        }
    }
    tl::store(out + 0, total);
    tl::store(out + 1 + tl::arange(0, 32), iterations);
}

/// Branches on scalars, with and without an `else`, as values and as statements.
#[fuse_kernel(FLAG = [false, true])]
pub fn branches<const FLAG: bool>(x: &[i32], out: &mut [i32], choice: i32) {
    let lanes = tl::arange(0, 32);
    let x = tl::load(x + lanes);
    let mut y = x;
    if choice > 2 {
        y = x * 10;
    }
    tl::store(out + lanes, y);
    let (a, b) = if choice == 1 {
        (x, 1)
    } else if choice == 2 {
        (x + x, 2)
    } else {
        (x - 7, 3)
    };
    tl::store(out + 32 + lanes, a * b);
    if choice % 2 == 0 && choice > 0 || choice == -1 {
        if choice > 3 {
            y += 5;
        } else {
            y -= 5;
        }
        tl::store(out + 64 + lanes, y);
    }
    let kind = if FLAG { 1 } else { 2 };
    if FLAG && choice > 0 {
        y = -y;
    }
    tl::store(out + 96 + lanes, y * kind);
    let early;
    if choice > 0 {
        early = 3;
    } else {
        early = 4;
    }
    tl::store(out + 128 + lanes, x + early);
}

/// The steps of Collatz's sequence, and the powers of a number below a limit.
#[fuse_kernel]
pub fn whiles(out: &mut [i64], start: i64, limit: i64) {
    let mut n = start;
    let mut steps = 0i64;
    while n != 1 && steps < 1000 {
        n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    tl::store(out + 0, steps);
    let mut power = 1i64;
    let mut tile = tl::full([16], 1i64);
    while power < limit {
        power *= 3;
        tile = tile * 3 + tl::arange(0, 16).to::<i64>();
    }
    tl::store(out + 1, power);
    tl::store(out + 2 + tl::arange(0, 16), tile);
}

/// Programs that go different ways, each with reductions on its way: whoever shares a block must not wait for another.
#[fuse_kernel(WARPS = [1, 2, 8], num_warps = WARPS)]
pub fn uneven<const WARPS: usize>(x: &[i32], out: &mut [i32]) {
    let program = tl::program_id(0);
    let lanes = tl::arange(0, 256);
    let x = tl::load(x + lanes);
    let mut total = 0;
    for i in 0..program % 5 {
        let largest = tl::max(x + i * lanes, 0);
        total += tl::sum(tl::select(lanes < i * 50, x, largest), 0);
    }
    if program % 3 == 1 {
        total += tl::min(x * program, 0);
    } else if program % 3 == 2 {
        let matrix = tl::reshape(x, [16, 16]);
        total += tl::sum(tl::max(matrix, 0), 0) - tl::sum(tl::max(matrix, 1), 0);
    }
    tl::store(out + program, total);
}

/// Two reductions in each iteration of a loop, and a tile that changes its layout: their scratch memory is used again.
#[fuse_kernel(WARPS = [1, 4, 16], num_warps = WARPS, unreported)]
pub fn reused<const WARPS: usize>(x: &[i32], out: &mut [i32], n: i32) {
    let by_row = tl::arange(0, 32).col() * 32 + tl::arange(0, 32).row();
    let mut tile = tl::load(x + by_row);
    let mut row_sums = tl::zeros::<i32>([32]);
    for i in 0..n {
        row_sums += tl::sum(tile, 1) - tl::max(tile, 0) * i;
        tile = tl::trans(tile) + row_sums.row();
    }
    tl::store(out + by_row, tile);
    tl::store(out + 1024 + tl::arange(0, 32), row_sums);
}

/// Every compound assignment.
#[fuse_kernel(T = [i32, u8], unreported)]
pub fn compound<T: Integer>(x: &[T], y: &[T], out: &mut [T]) {
    let lanes = tl::arange(0, 64);
    let y = tl::load(y + lanes);
    let mut z = tl::load(x + lanes);
    z += y;
    z *= 3;
    z -= y;
    z /= 2;
    z ^= y;
    z |= 4;
    z &= 123;
    z <<= 2;
    z >>= 1;
    z %= 50;
    tl::store(out + lanes, z);
}

/// A loop of constants, and literals that take the type of the other operand.
#[fuse_kernel(T = [f16, bf16, f32, f64])]
pub fn literals<T: Float>(out: &mut [T]) {
    let lanes = tl::arange(0, 16);
    let mut total = tl::zeros::<T>([16]);
    for i in tl::static_range(0, 4) {
        total += tl::full([16], i + 1).to::<T>() * 0.5;
    }
    tl::store(out + lanes, total);
    // Just above the tie between two adjacent values, in f16 and in bf16.
    tl::store(out + 16 + lanes, tl::full::<T>([16], 1.00048828125000022));
    tl::store(out + 32 + lanes, tl::full::<T>([16], 1.00390625000000022));
    tl::store(out + 48 + lanes, tl::full::<T>([16], 0.1));
    tl::store(out + 64 + lanes, tl::full::<T>([16], 1e-40));
    tl::store(out + 80 + lanes, tl::full::<T>([16], T::MAX));
    tl::store(out + 96 + lanes, tl::full::<T>([16], T::NEG_INFINITY));
    tl::store(out + 112 + lanes, tl::full::<T>([16], -0.0));
}

//! [`fuse_ports::transforms`].

use fuse_ports::transforms::{
    compact, count_kept, edit_distance, fft_rows, hadamard, logcumsumexp, sort_rows,
};

use crate::data::{Expected, Output, SINGLE, devices, integers, normal};

fn check_hadamard<const N: usize, const STAGES: usize>(rows: usize)
where
    hadamard::Choice<N, STAGES, 4>: hadamard::Declared,
{
    let scale = (N as f32).powf(-0.5);
    for device in devices() {
        let x = normal::<f32>(rows * N, 1);
        let mut out = Output::<f32>::poisoned(&device, x.len());
        let x_in = device.upload(&x).unwrap();
        hadamard::<N, STAGES, 4>(&x_in, out.slot(), rows as i32, scale)
            .grid(rows.div_ceil(4))
            .launch(&device)
            .unwrap();
        let mut expected = vec![];
        for row in x.chunks(N) {
            let size: f64 = row.iter().map(|x| f64::from(x.abs())).sum();
            let within = (STAGES as f64 + 2.0) * SINGLE * size * f64::from(scale);
            expected.extend((0..N).map(|i| {
                let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let sum: f64 = row.iter().enumerate().map(|(j, x)| sign(j) * f64::from(*x)).sum();
                Expected { value: sum * f64::from(scale), within }
            }));
        }
        out.check(&format!("{rows} x {N} on {device}"), &expected);
    }
}

#[test]
fn rows_are_transformed_by_butterflies() {
    check_hadamard::<256, 8>(7);
    check_hadamard::<256, 8>(4);
    check_hadamard::<1024, 10>(5);
}

/// Cosine and sine of `-2 pi j / 64`.
fn turned(j: usize) -> (f64, f64) {
    let (sine, cosine) = (-2.0 * std::f64::consts::PI * (j % 64) as f64 / 64.0).sin_cos();
    (cosine, sine)
}

#[test]
fn rows_are_made_of_their_frequencies() {
    const N: usize = 64;
    for device in devices() {
        for rows in [1, 21, 32] {
            let x = normal::<f32>(rows * N * 2, 1);
            let of_table = |pick: fn((f64, f64)) -> f64| -> Vec<f32> {
                (0..N / 2).map(|j| pick(turned(j)) as f32).collect()
            };
            let tables = [of_table(|at| at.0), of_table(|at| at.1)];
            let mut out = Output::<f32>::poisoned(&device, x.len());
            let x_in = device.upload(&x).unwrap();
            let [cosines_in, sines_in] = [&tables[0], &tables[1]].map(|x| device.upload(x).unwrap());
            fft_rows::<64, 6, 16>(&x_in, &cosines_in, &sines_in, out.slot(), rows as i32)
                .grid(rows.div_ceil(16))
                .launch(&device)
                .unwrap();
            let mut expected = vec![];
            for row in x.chunks(2 * N) {
                let size: f64 = row.iter().map(|x| f64::from(x.abs())).sum();
                // A stage rounds its factors, two products and two sums.
                let within = 6.0 * 8.0 * SINGLE * size;
                for k in 0..N {
                    let (mut re, mut im) = (0.0, 0.0);
                    for (j, z) in row.chunks(2).enumerate() {
                        let ((cosine, sine), [a, b]) = (turned(j * k), [z[0], z[1]].map(f64::from));
                        re += a * cosine - b * sine;
                        im += a * sine + b * cosine;
                    }
                    expected.extend([re, im].map(|value| Expected { value, within }));
                }
            }
            out.check(&format!("{rows} rows on {device}"), &expected);
        }
    }
}

fn check_sort<const BLOCK: usize>(rows: usize, n: usize)
where
    sort_rows::Choice<BLOCK>: sort_rows::Declared,
{
    for device in devices() {
        let x = normal::<f32>(rows * n, 1);
        let mut out = Output::<f32>::poisoned(&device, x.len());
        let x_in = device.upload(&x).unwrap();
        sort_rows::<BLOCK>(&x_in, out.slot(), n as i32).grid(rows).launch(&device).unwrap();
        let mut sorted = x.clone();
        sorted.chunks_mut(n).for_each(|row| row.sort_by(f32::total_cmp));
        let expected: Vec<Expected> = sorted.into_iter().map(Expected::exact).collect();
        out.check(&format!("{rows} x {n} on {device}"), &expected);
    }
}

#[test]
fn rows_are_sorted() {
    check_sort::<512>(3, 301);
    check_sort::<512>(2, 512);
    check_sort::<1024>(3, 1000);
}

fn check_logcumsumexp<const BLOCK: usize>(rows: usize, n: usize)
where
    logcumsumexp::Choice<BLOCK>: logcumsumexp::Declared,
{
    for device in devices() {
        let x: Vec<f32> = normal::<f32>(rows * n, 1).into_iter().map(|x| 4.0 * x).collect();
        let mut out = Output::<f32>::poisoned(&device, x.len());
        let x_in = device.upload(&x).unwrap();
        logcumsumexp::<BLOCK>(&x_in, out.slot(), n as i32).grid(rows).launch(&device).unwrap();
        let mut expected = vec![];
        for row in x.chunks(n) {
            let mut sum = 0.0;
            expected.extend(row.iter().map(|x| {
                sum += f64::from(*x).exp();
                Expected { value: sum.ln(), within: 256.0 * SINGLE * (1.0 + sum.ln().abs()) }
            }));
        }
        out.check(&format!("{rows} x {n} on {device}"), &expected);
    }
}

#[test]
fn logarithms_of_running_sums_stay_finite() {
    check_logcumsumexp::<1024>(3, 301);
    check_logcumsumexp::<1024>(2, 1024);
    check_logcumsumexp::<4096>(2, 4001);
}

/// The least number of insertions, deletions and replacements that make one string the other.
fn distance(a: &[u8], b: &[u8]) -> i32 {
    let mut row: Vec<i32> = (0..=b.len() as i32).collect();
    for (i, letter) in a.iter().enumerate() {
        let before = row.clone();
        row[0] = i as i32 + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = before[j] + i32::from(letter != other);
            row[j + 1] = replaced.min(before[j + 1] + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[test]
fn pairs_of_strings_have_an_edit_distance() {
    for device in devices() {
        for (pairs, len_a, len_b) in [(7, 45, 67), (3, 1, 1), (4, 128, 128)] {
            let [a, b] = [(len_a, 1), (len_b, 2)].map(|(len, seed)| integers::<u8>(pairs * len, 0..4, seed));
            let mut out = Output::<i32>::of(&device, &vec![-1; pairs]);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            edit_distance::<128, 4>(&a_in, &b_in, out.slot(), pairs as i32, len_a as i32, len_b as i32)
                .grid(pairs.div_ceil(4))
                .launch(&device)
                .unwrap();
            let of = a.chunks(len_a).zip(b.chunks(len_b)).map(|(a, b)| Expected::exact(distance(a, b)));
            out.check(&format!("{pairs} of {len_a} and {len_b} on {device}"), &of.collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_is_kept_moves_together() {
    for device in devices() {
        for (n, limit) in [(5001, 0.3f32), (1, -100.0), (4096, 0.0)] {
            let x = normal::<f32>(n, 1);
            let x_in = device.upload(&x).unwrap();
            let blocks = n.div_ceil(2048);
            let mut counts = Output::<i32>::of(&device, &vec![-1; blocks]);
            count_kept::<2048>(&x_in, counts.slot(), n as i32, limit).grid(blocks).launch(&device).unwrap();
            let kept = |part: &[f32]| -> Vec<f32> { part.iter().copied().filter(|x| *x > limit).collect() };
            let of_blocks: Vec<i32> = x.chunks(2048).map(|part| kept(part).len() as i32).collect();
            let expected: Vec<Expected> = of_blocks.iter().map(|count| Expected::exact(*count)).collect();
            counts.check(&format!("counts of {n} above {limit} on {device}"), &expected);

            let starts: Vec<i32> = (0..blocks).map(|block| of_blocks[..block].iter().sum()).collect();
            let expected: Vec<Expected> = kept(&x).into_iter().map(Expected::exact).collect();
            let mut out = Output::<f32>::poisoned(&device, expected.len());
            let starts_in = device.upload(&starts).unwrap();
            compact::<2048>(&x_in, &starts_in, out.slot(), n as i32, limit)
                .grid(blocks)
                .launch(&device)
                .unwrap();
            out.check(&format!("{n} above {limit} on {device}"), &expected);
        }
    }
}

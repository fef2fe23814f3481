//! Programs of several blocks against the same in plain Rust.

use std::cmp::Reverse;

use dsl_runtime::prelude::*;
use fuse_test_kernels::case::{Failure, Operand, Output, untyped};
use fuse_test_kernels::cluster;
use libtest_mimic::Trial;

use crate::async_copy::{integers, same};
use crate::devices::{Backend, backends};

type Check = fn(&Device) -> Result<(), Failure>;

pub fn trials() -> Vec<Trial> {
    let checks: [(&'static str, Check); 12] = [
        ("crossed::1_block", crossed::<1>),
        ("crossed::2_blocks", crossed::<2>),
        ("crossed::4_blocks", crossed::<4>),
        ("crossed::8_blocks", crossed::<8>),
        ("rows::1_block", rows::<1>),
        ("rows::2_blocks", rows::<2>),
        ("rows::4_blocks", rows::<4>),
        ("rows::8_blocks", rows::<8>),
        ("nested::1_block", nested::<1>),
        ("nested::2_blocks", nested::<2>),
        ("nested::4_blocks", nested::<4>),
        ("nested::8_blocks", nested::<8>),
    ];
    let trial = |backend: Backend, (name, check): (&'static str, Check)| {
        Trial::test(format!("cluster::{name}::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    backends()
        .into_iter()
        .flat_map(|backend| checks.into_iter().map(move |check| trial(backend, check)))
        .collect()
}

fn some(seed: u64, len: usize, limit: usize) -> Vec<i32> {
    integers(seed, len, limit).iter().map(|&v| v as i32).collect()
}

// ---- crossed

const TILE: usize = 1024;
const SIDE: usize = 32;

fn crossed<const CTAS: usize>(device: &Device) -> Result<(), Failure>
where
    cluster::crossed::Choice<CTAS>: cluster::crossed::Declared,
{
    let programs = 37;
    let x = some(1, programs * TILE, 1 << 20);
    for shift in [0, 1] {
        let operand = Operand::new(device, &x, shift)?;
        let mut counter = device.upload(&vec![3i32; programs])?;
        let mut out = device.zeros::<i32>(programs * 9 * TILE)?;
        let mut found = device.zeros::<i64>(programs * 16)?;
        cluster::crossed::<CTAS>(&operand, &mut out, &mut found, &mut counter)
            .grid(programs)
            .launch(device)?;
        let (out, found) = (out.download()?, found.download()?);
        assert_eq!(counter.download()?, vec![8; programs], "once for each program");
        for (program, x) in x.chunks(TILE).enumerate() {
            let tiles = moved(x);
            for (i, tile) in tiles.iter().enumerate() {
                let got = &out[(program * 9 + i) * TILE..][..tile.len()];
                same(&format!("part {i} of program {program}"), &untyped(got), &untyped(tile))?;
            }
            let got = &found[program * 16..][..8];
            same(&format!("numbers of program {program}"), &untyped(got), &untyped(&reduced(x)))?;
        }
    }
    Ok(())
}

fn moved(x: &[i32]) -> [Vec<i32>; 9] {
    let at = |row: usize, col: usize| x[row * SIDE + col];
    let each =
        |f: &dyn Fn(usize, usize) -> i32| -> Vec<i32> { (0..TILE).map(|i| f(i / SIDE, i % SIDE)).collect() };
    let turned = each(&|row, col| at(col, row));
    let column = |col: usize| (0..SIDE).map(|row| at(row, col)).sum::<i32>();
    let row_sum = |row: usize| (0..SIDE).map(|col| at(row, col)).sum::<i32>();
    let summed = each(&|row, col| at(row, col) + column(col) * 3 + row_sum(row) * 5);
    let mut sorted = x.to_vec();
    sorted.sort_unstable();
    let running = x.iter().scan(0i32, |sum, &v| {
        *sum = sum.wrapping_add(v);
        Some(*sum)
    });
    let mut counts = vec![0; 256];
    x.iter().for_each(|v| counts[(v & 255) as usize] += 1);
    [
        turned.clone(),
        summed,
        running.collect(),
        sorted,
        x.iter().map(|v| x[(v & 1023) as usize]).collect(),
        x.iter().rev().copied().collect(),
        counts,
        x.iter().map(|v| v + 3).collect(),
        turned.into_iter().rev().collect(),
    ]
}

fn reduced(x: &[i32]) -> Vec<i64> {
    let largest = *x.iter().max().expect("not empty");
    let first = x.iter().enumerate().min_by_key(|(i, v)| (Reverse(**v), *i)).expect("not empty").0;
    let low = *x.iter().min().expect("not empty");
    let high = x.iter().map(|v| v * 7).max().expect("not empty");
    vec![
        x.iter().map(|&v| i64::from(v) * 1_000_003).sum(),
        largest.into(),
        x.iter().map(|&v| v as i16).max().expect("not empty").into(),
        x.iter().map(|&v| v as i8).min().expect("not empty").into(),
        first as i64,
        (low - high).into(),
        largest.into(),
        x[..32].iter().sum::<i32>().into(),
    ]
}

// ---- rows

fn rows<const CTAS: usize>(device: &Device) -> Result<(), Failure>
where
    cluster::rows::Choice<CTAS, 1>: cluster::rows::Declared,
    cluster::rows::Choice<CTAS, 3>: cluster::rows::Declared,
{
    // No iteration, one, an odd count and an even one; rows that fill the tile, and others.
    for (rows, n, programs) in
        [(0, 8, 2), (1, 2048, 3), (10, 2048, 2), (700, 2048, 40), (9, 1001, 2), (3, 1, 1)]
    {
        let x = some(8, rows * n, 1 << 20);
        for shift in [0, 1] {
            let operand = Operand::new(device, &x, shift)?;
            let (n_rows, n_cols) = (rows as i32, n as i32);
            for sums in [1, 3] {
                let mut out = Output::<i32>::new(device, vec![n; rows], shift)?;
                if sums == 1 {
                    cluster::rows::<CTAS, 1>(&operand, &mut out, n_rows, n_cols)
                        .grid(programs)
                        .launch(device)?;
                } else {
                    cluster::rows::<CTAS, 3>(&operand, &mut out, n_rows, n_cols)
                        .grid(programs)
                        .launch(device)?;
                }
                let wanted: Vec<i32> = x.chunks(n).flat_map(|row| row_of(row, sums, n < 2048)).collect();
                let what = format!("{sums} sums, {rows} rows of {n} in {programs} programs, {shift} off");
                same(&what, &out.finish()?.concat(), &untyped(&wanted))?;
            }
        }
    }
    Ok(())
}

/// Zeros stand beside a row that is shorter than its tile.
fn row_of(x: &[i32], sums: usize, padded: bool) -> Vec<i32> {
    let total = x.iter().fold(0i32, |total, &v| total.wrapping_add(v));
    let mut more = total;
    if sums == 3 {
        let most = x.iter().copied().chain(padded.then_some(0)).max().expect("not empty");
        let product = |v: i32| v.wrapping_sub(most).wrapping_mul(total);
        let beside = (2048 - x.len()) as i32;
        more = x.iter().fold(total, |sum, &v| sum.wrapping_add(product(v)));
        more = more.wrapping_add(product(0).wrapping_mul(beside));
    }
    x.iter().map(|v| v.wrapping_mul(3).wrapping_add(more)).collect()
}

// ---- nested

fn nested<const CTAS: usize>(device: &Device) -> Result<(), Failure>
where
    cluster::nested::Choice<CTAS>: cluster::nested::Declared,
{
    let (programs, n) = (300, 1024);
    let x = some(3, programs * n, 1 << 10);
    for trip_counts in [vec![], vec![1], vec![0, 3, 1, 1, 2, 0], vec![2; 9]] {
        let operands = (device.upload(&x)?, device.upload(&trip_counts)?);
        let mut out = Output::<i32>::new(device, vec![n; programs], 0)?;
        cluster::nested::<CTAS>(
            &operands.0,
            &operands.1,
            &mut out,
            programs as i32,
            trip_counts.len() as i32,
        )
        .grid(programs + 3)
        .launch(device)?;
        let wanted: Vec<i32> = x.chunks(n).flat_map(|state| state_after(state, &trip_counts)).collect();
        same(&format!("turns {trip_counts:?}"), &out.finish()?.concat(), &untyped(&wanted))?;
    }
    Ok(())
}

fn state_after(state: &[i32], trip_counts: &[i32]) -> Vec<i32> {
    let mut state = state.to_vec();
    let sum = |state: &[i32]| state.iter().fold(0i32, |sum, &v| sum.wrapping_add(v));
    let most = |state: &[i32]| *state.iter().max().expect("not empty");
    for &count in trip_counts {
        for _ in 0..count {
            let total = sum(&state);
            state.iter_mut().for_each(|v| *v = v.wrapping_mul(5).wrapping_add(total));
        }
        let largest = most(&state);
        state.iter_mut().for_each(|v| *v = v.wrapping_add(largest));
        if count > 1 {
            let least = *state.iter().min().expect("not empty");
            state.iter_mut().for_each(|v| *v ^= least);
        }
    }
    let mut remaining = trip_counts.len() as i32;
    while remaining > 0 {
        let low: Vec<i32> = state.iter().map(|v| v & 255).collect();
        let total = sum(&low);
        state.iter_mut().for_each(|v| *v = v.wrapping_mul(3).wrapping_add(total));
        remaining -= 1 + (most(&state) & 1);
    }
    state
}

//! Measures the CPU that this runs on: a copy that all cores share, as STREAM has it, multiply-adds that stay in
//! registers, and an empty parallel loop.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use multiversion::multiversion;
use rayon::prelude::*;

use super::ceilings::{Ceiling, Device};

/// Larger than the caches of the CPUs that this was tried on.
const COPY_ELEMENTS: usize = 32 << 20;
const COPY_ROUNDS: usize = 7;
/// So many accumulators that the latency of one multiply-add is hidden by the others, and all fit into registers.
const ACCUMULATORS: usize = 128;
const STEPS: usize = 2_000_000;

/// The ceilings of this CPU, in about a second. Other work on it makes them lower than they are.
pub fn measure() -> Device {
    let cores = rayon::current_num_threads();
    let bandwidth = copy_bandwidth();
    let peak = multiply_adds();
    let launch = empty_loop();
    let measured = |value: f64, source: &str| Ceiling {
        nominal: None,
        measured: Some(value),
        source: format!("{source}, {cores} threads"),
    };
    Device {
        // So that `cpu` finds it.
        name: format!("CPU {}", model_name().unwrap_or_default()).trim().to_owned(),
        bandwidth: measured(bandwidth, "a copy of 128 MB, read and written bytes"),
        l2_bandwidth: None,
        l2_bytes: 0,
        tensor: BTreeMap::new(),
        scalar: [("f32".to_owned(), measured(peak, "independent multiply-adds of f32"))].into(),
        launch_overhead: measured(launch, "an empty parallel loop"),
        following_launch: None,
        product_overhead: None,
        multiprocessors: cores as u32,
        // Vector registers of 512 bits hold 16 numbers each; what spills goes to the first cache, at little cost.
        registers_per_thread: 32 * 16,
        // A row of this size stays in the second cache of a core.
        on_chip_bytes: 1 << 20,
    }
}

/// Bytes a second, of the best round.
fn copy_bandwidth() -> f64 {
    let from = vec![1.0f32; COPY_ELEMENTS];
    let mut to = vec![0.0f32; COPY_ELEMENTS];
    let chunk = COPY_ELEMENTS.div_ceil(8 * rayon::current_num_threads());
    let best = fastest(COPY_ROUNDS, || {
        to.par_chunks_mut(chunk).zip(from.par_chunks(chunk)).for_each(|(to, from)| to.copy_from_slice(from));
        black_box(&to);
    });
    (2 * COPY_ELEMENTS * size_of::<f32>()) as f64 / best
}

/// Operations a second of all cores, two for a multiply-add.
fn multiply_adds() -> f64 {
    let threads = rayon::current_num_threads();
    let best = fastest(3, || {
        (0..threads).into_par_iter().for_each(|_| {
            black_box(fma_chains(black_box(0.999), black_box(0.001)));
        });
    });
    (2 * threads * ACCUMULATORS * STEPS) as f64 / best
}

#[multiversion(targets("x86_64+avx512f+avx2+fma", "x86_64+avx+avx2+fma", "aarch64+neon"))]
fn fma_chains(multiplier: f32, term: f32) -> f32 {
    let mut fma_chains = [0.5f32; ACCUMULATORS];
    for _ in 0..STEPS {
        for sum in &mut fma_chains {
            *sum = sum.mul_add(multiplier, term);
        }
    }
    fma_chains.iter().sum()
}

/// The seconds that a parallel loop takes which does nothing.
fn empty_loop() -> f64 {
    const LOOPS: usize = 200;
    let threads = rayon::current_num_threads();
    let best = fastest(5, || {
        for _ in 0..LOOPS {
            (0..threads).into_par_iter().for_each(|thread| {
                black_box(thread);
            });
        }
    });
    best / LOOPS as f64
}

fn fastest(rounds: usize, mut run: impl FnMut()) -> f64 {
    run();
    let times = (0..rounds).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    // A clock that stood still would make a rate infinite.
    times.fold(f64::INFINITY, f64::min).max(1e-9)
}

/// The CPU's name in Linux.
fn model_name() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

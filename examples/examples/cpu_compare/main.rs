//! Kernels on the CPU beside loops written by hand with rayon, on the same data:
//! `cargo run --release --example cpu_compare`
//!
//! The contenders' rounds are interleaved. Each run finds cold caches, except where a line says that they stay warm.

mod by_hand;

use std::io::Write;

use anyhow::Result;
use by_hand::Lane;
use dsl_runtime::bench::{BenchOptions, Timing, do_bench};
use dsl_runtime::prelude::*;
use fused_kernels::add_mul::{self, AddMul};
use fused_kernels::float::LibraryFloat;
use fused_kernels::layer_norm::{self, LayerNorm};
use fused_kernels::reference::compare;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};

/// Rounds of each contender; the medians are of the runs of all rounds.
const ROUNDS: usize = 5;
const EPS: f32 = 1e-5;

fn main() -> Result<()> {
    let mut print = std::io::stdout().lock();
    writeln!(print, "{}", Device::cpu().name())?;
    writeln!(print, "| kernel | shape | kernel, us | by hand, us | by hand / kernel | kernel, GB/s |")?;
    writeln!(print, "| --- | --- | ---: | ---: | ---: | ---: |")?;
    add_mul_row::<f32>(&mut print, 1 << 24, Caches::Cold)?;
    add_mul_row::<bf16>(&mut print, 1 << 24, Caches::Cold)?;
    add_mul_row::<f32>(&mut print, 1 << 15, Caches::Warm)?;
    layer_norm_row::<f32>(&mut print, (16384, 1024), Caches::Cold)?;
    layer_norm_row::<f32>(&mut print, (4096, 4096), Caches::Cold)?;
    layer_norm_row::<f32>(&mut print, (16384, 1000), Caches::Cold)?;
    layer_norm_row::<bf16>(&mut print, (16384, 1024), Caches::Cold)?;
    layer_norm_row::<bf16>(&mut print, (4096, 4096), Caches::Cold)?;
    layer_norm_row::<f32>(&mut print, (32, 1024), Caches::Warm)?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caches {
    Cold,
    Warm,
}

impl Caches {
    fn options(self) -> BenchOptions {
        match self {
            Caches::Cold => BenchOptions { warmup_ms: 50.0, rep_ms: 400.0, ..BenchOptions::default() },
            Caches::Warm => BenchOptions { warmup_ms: 20.0, rep_ms: 100.0, flush_bytes: 0 },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Caches::Cold => "",
            Caches::Warm => ", warm",
        }
    }
}

fn normal<T: Float>(len: usize, seed: u64) -> Vec<T> {
    let rng = StdRng::seed_from_u64(seed);
    StandardNormal.sample_iter(rng).take(len).map(|value: f64| T::from_f64(value)).collect()
}

/// One way to compute an operation.
type Run<'r> = &'r mut dyn FnMut() -> dsl_runtime::Result<()>;

/// Median microseconds of two contenders in interleaved rounds.
fn duel(caches: Caches, one: Run<'_>, other: Run<'_>) -> Result<[f64; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let timing: Timing = do_bench(&Device::cpu(), caches.options(), &mut *one)?;
        times[0].extend_from_slice(timing.samples());
        let timing = do_bench(&Device::cpu(), caches.options(), &mut *other)?;
        times[1].extend_from_slice(timing.samples());
    }
    Ok(times.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        1e3 * samples[samples.len() / 2]
    }))
}

fn write_row(print: &mut impl Write, shape: &str, traffic: usize, [kernel, by_hand]: [f64; 2]) -> Result<()> {
    let (ratio, rate) = (by_hand / kernel, traffic as f64 / kernel / 1e3);
    writeln!(print, "| {shape} | {kernel:.1} | {by_hand:.1} | {ratio:.2} | {rate:.1} |")?;
    Ok(())
}

fn add_mul_row<T: LibraryFloat + Lane>(print: &mut impl Write, n: usize, caches: Caches) -> Result<()> {
    let cpu = Device::cpu();
    let [x, y, z] = [1, 2, 3].map(|seed| normal::<T>(n, seed));
    let (mut out, mut by_hand) = (vec![T::from_f64(f64::NAN); n], vec![T::from_f64(f64::NAN); n]);
    let times = duel(caches, &mut || AddMul::new(&x, &y, &z).launch(&cpu, &mut out), &mut || {
        by_hand::add_mul([&x, &y, &z], &mut by_hand);
        Ok(())
    })?;
    let expected = add_mul::reference(&x, &y, &z);
    compare(&out, &expected).map_err(anyhow::Error::msg)?;
    compare(&by_hand, &expected).map_err(anyhow::Error::msg)?;
    let shape = format!("add_mul | {n} {}{}", T::DTYPE, caches.name());
    write_row(print, &shape, add_mul::traffic::<T>(n), times)
}

fn layer_norm_row<T: LibraryFloat + Lane>(
    print: &mut impl Write,
    (rows, cols): (usize, usize),
    caches: Caches,
) -> Result<()> {
    let cpu = Device::cpu();
    let (x, gamma, beta) = (normal::<T>(rows * cols, 1), normal::<T>(cols, 2), normal::<T>(cols, 3));
    let mut out = vec![T::from_f64(f64::NAN); rows * cols];
    let mut by_hand = out.clone();
    let times =
        duel(caches, &mut || LayerNorm::new(&x, &gamma, &beta).eps(EPS).launch(&cpu, &mut out), &mut || {
            by_hand::layer_norm([&x, &gamma, &beta], &mut by_hand, EPS);
            Ok(())
        })?;
    let expected = layer_norm::reference(&x, &gamma, &beta, EPS);
    compare(&out, &expected).map_err(anyhow::Error::msg)?;
    compare(&by_hand, &expected).map_err(anyhow::Error::msg)?;
    let shape = format!("layer_norm | {rows} x {cols} {}{}", T::DTYPE, caches.name());
    write_row(print, &shape, layer_norm::traffic::<T>(rows, cols), times)
}

//! A matmul on tensor cores, as plain as a tile language has it: `cargo run --release --example tensor_core -- --m 4096 --n 4096 --k 4096`
//!
//! Three views, a loop over `k` and `tl::dot`: the mma instructions, shared memory and software pipelining
//! are the compiler's business, and bounds are the views'. `fused_kernels::matmul` is the same with what a library adds: tiles for each
//! shape, a tile order for the cache, split-K, a bias, an activation and a residual.

use std::io::Write;

use anyhow::{Result, ensure};
use clap::Parser;
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::prelude::*;

/// A program's tile of the result, and the step along `k`.
const M: usize = 128;
const N: usize = 128;
const K: usize = 64;

/// `out = a b`: program `(i, j)` computes tile `(i, j)`.
#[fuse_kernel(M = [128], N = [128], K = [64], num_warps = 8, num_stages = 3)]
fn matmul<const M: usize, const N: usize, const K: usize>(
    a: &View<f16, 2>,
    b: &View<f16, 2>,
    out: &mut View<f32, 2>,
) {
    let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * N);
    let mut acc = tl::zeros::<f32>([M, N]);
    for k in (0..a.shape(1)).step_by(K) {
        acc = tl::dot(a.load::<M, K>(row, k), b.load::<K, N>(k, col), acc);
    }
    out.store(acc, row, col);
}

/// Multiplies two matrices of f16, checks the product and measures it
#[derive(Parser)]
struct Options {
    /// The rows of a
    #[arg(long, default_value_t = 1000)]
    m: usize,
    /// The columns of b
    #[arg(long, default_value_t = 1000)]
    n: usize,
    /// The columns of a and rows of b
    #[arg(long, default_value_t = 1000)]
    k: usize,
    /// Runs on the CPU even where there is a GPU
    #[arg(long)]
    cpu: bool,
}

fn main() -> Result<()> {
    let Options { m, n, k, cpu } = Options::parse();
    let device = if cpu { Device::cpu() } else { Device::best()? };
    let values = |len: usize, times: usize| -> Vec<f16> {
        (0..len).map(|i| f16::from_f64((i * times % 1021) as f64 / 510.5 - 1.0)).collect()
    };
    let (a, b) = (values(m * k, 7919), values(k * n, 6007));
    let (ba, bb, mut out) = (device.upload(&a)?, device.upload(&b)?, device.zeros::<f32>(m * n)?);
    let mut launch = || {
        let (a, b) = (ba.view([m, k])?, bb.view([k, n])?);
        matmul::<M, N, K>(a, b, out.view_mut([m, n])?).grid((m.div_ceil(M), n.div_ceil(N))).launch(&device)
    };
    launch()?;
    let timing = do_bench(&device, BenchOptions { rep_ms: 500.0, ..BenchOptions::default() }, &mut launch)?;
    let share = check([m, n, k], [&a, &b], &out.download()?)?;
    let mut print = std::io::stdout().lock();
    writeln!(print, "{m} x {k} by {k} x {n}, f16 to f32, on {device}: {}", device.name())?;
    writeln!(print, "  error  at most {:.1} % of what rounding allows", 100.0 * share)?;
    let flops = 2.0 * (m * n * k) as f64;
    writeln!(
        print,
        "  time   {:.4} ms, {:.2} TFLOP/s",
        timing.median_ms(),
        flops / timing.median_ms() / 1e9
    )?;
    Ok(())
}

/// The largest error of some rows, as a share of its bound: a sum of `k` products, each exact in `f32`, errs by `k` roundings or
/// truncations of their sizes' sum.
fn check([m, n, k]: [usize; 3], [a, b]: [&[f16]; 2], got: &[f32]) -> Result<f64> {
    let mut worst = 0f64;
    for row in (0..m).step_by((m / 16).max(1)) {
        let (mut sums, mut sizes) = (vec![0f64; n], vec![0f64; n]);
        for (a, b) in a[row * k..(row + 1) * k].iter().zip(b.chunks(n.max(1))) {
            for ((sum, size), b) in sums.iter_mut().zip(&mut sizes).zip(b) {
                let product = a.to_f64() * b.to_f64();
                *sum += product;
                *size += product.abs();
            }
        }
        for (col, (sum, size)) in sums.into_iter().zip(sizes).enumerate() {
            let error = (f64::from(got[row * n + col]) - sum).abs();
            let bound = k as f64 * 2f64.powi(-23) * size;
            ensure!(error <= bound, "element ({row}, {col}) is {}, expected {sum}", got[row * n + col]);
            worst = worst.max(if bound > 0.0 { error / bound } else { 0.0 });
        }
    }
    Ok(worst)
}

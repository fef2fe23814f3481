//! PTX of one's own in a kernel, for instructions that the language lacks: `cargo run --release --example inline_ptx`
//!
//! `tl::inline_ptx` takes the statements, the registers and the operands, and a function that says what a CPU computes instead.
//! Two instructions stand for two uses: `tanh.approx.f32` is faster and less exact than `tl::tanh`, and what that does to GELU is
//! measured; `dp4a` multiplies four bytes by four and adds the products up, exactly.

use std::io::Write;

use anyhow::{Result, ensure};
use clap::Parser;
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::prelude::*;

/// The elements that one program handles.
const BLOCK: usize = 1024;

/// GELU's tanh form, the hyperbolic tangent the language's or, where `FAST`, an instruction of a GPU.
#[fuse_kernel(FAST = [false, true], BLOCK = [1024])]
fn gelu<const FAST: bool, const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let x = tl::load(x + offsets, offsets < n);
    let u = 0.7978845608 * (x + 0.044715 * x * x * x);
    let t = if FAST {
        tl::inline_ptx::<f32>("tanh.approx.f32 $0, $1;", "=f,f", (u,), |u| tl::tanh(u))
    } else {
        tl::tanh(u)
    };
    tl::store(out + offsets, 0.5 * x * (1.0 + t), offsets < n);
}

/// `out[i]` is the sum of the products of the four signed bytes of `a[i]` and `b[i]`.
#[fuse_kernel(BLOCK = [1024])]
fn dot_bytes<const BLOCK: usize>(a: &[i32], b: &[i32], out: &mut [i32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let (a, b) = (tl::load(a + offsets, offsets < n), tl::load(b + offsets, offsets < n));
    // What the function computes is not checked for overflow, and says so.
    let sum = tl::inline_ptx::<i32>("dp4a.s32.s32 $0, $1, $2, 0;", "=r,r,r", (a, b), |a, b| {
        let low = tl::wrapping_add(
            tl::wrapping_mul(a << 24 >> 24, b << 24 >> 24),
            tl::wrapping_mul(a << 16 >> 24, b << 16 >> 24),
        );
        let high = tl::wrapping_add(
            tl::wrapping_mul(a << 8 >> 24, b << 8 >> 24),
            tl::wrapping_mul(a >> 24, b >> 24),
        );
        tl::wrapping_add(low, high)
    });
    tl::store(out + offsets, sum, offsets < n);
}

/// Runs kernels with PTX of their own, checks and measures them
#[derive(Parser)]
struct Options {
    /// The number of elements
    #[arg(long, default_value_t = 1 << 24)]
    n: usize,
    /// Runs on the CPU even where there is a GPU
    #[arg(long)]
    cpu: bool,
}

fn main() -> Result<()> {
    let Options { n, cpu } = Options::parse();
    let device = if cpu { Device::cpu() } else { Device::best()? };
    let mut print = std::io::stdout().lock();
    writeln!(print, "{n} elements on {device}: {}", device.name())?;
    let bench = BenchOptions { rep_ms: 300.0, ..BenchOptions::default() };

    let x: Vec<f32> = (0..n).map(|i| (i % 16_001) as f32 / 1000.0 - 8.0).collect();
    let (bx, mut out) = (device.upload(&x)?, device.zeros::<f32>(n)?);
    for (name, fast) in [("tl::tanh", false), ("tanh.approx.f32", true)] {
        let mut launch = || {
            let (programs, n) = (n.div_ceil(BLOCK), n as i32);
            if fast {
                gelu::<true, BLOCK>(&bx, &mut out, n).grid(programs).launch(&device)
            } else {
                gelu::<false, BLOCK>(&bx, &mut out, n).grid(programs).launch(&device)
            }
        };
        launch()?;
        let timing = do_bench(&device, bench, &mut launch)?;
        let error = largest_error(&x, &out.download()?);
        // The instruction's bound is 2^-11 of the tangent, relatively; half of `x` multiplies it.
        ensure!(error < if fast { 4.0 * 2f64.powi(-11) } else { 1e-5 }, "GELU with {name} errs by {error:e}");
        writeln!(
            print,
            "  GELU with {name:<16} {:>9.4} ms, errs by {error:.1e} at most",
            timing.median_ms()
        )?;
    }

    let word = |i: usize, times: u32| (i as u32).wrapping_mul(times) as i32;
    let (a, b): (Vec<i32>, Vec<i32>) = (0..n).map(|i| (word(i, 0x9E37_79B9), word(i, 0x85EB_CA6B))).unzip();
    let (ba, bb, mut sums) = (device.upload(&a)?, device.upload(&b)?, device.zeros::<i32>(n)?);
    let mut launch =
        || dot_bytes::<BLOCK>(&ba, &bb, &mut sums, n as i32).grid(n.div_ceil(BLOCK)).launch(&device);
    launch()?;
    let timing = do_bench(&device, bench, &mut launch)?;
    let product = |(a, b): (i8, i8)| i32::from(a) * i32::from(b);
    let bytes = |word: i32| word.to_le_bytes().map(|byte| byte as i8);
    let exact = |(a, b): (&i32, &i32)| bytes(*a).into_iter().zip(bytes(*b)).map(product).sum::<i32>();
    ensure!(sums.download()?.into_iter().eq(a.iter().zip(&b).map(exact)), "dp4a: a wrong sum");
    writeln!(print, "  dp4a, exact                {:>9.4} ms", timing.median_ms())?;
    Ok(())
}

/// How far results are from GELU's tanh form at most.
fn largest_error(x: &[f32], got: &[f32]) -> f64 {
    let error = |(x, got): (&f32, &f32)| {
        let x = f64::from(*x);
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        (f64::from(*got) - 0.5 * x * (1.0 + u.tanh())).abs()
    };
    x.iter().zip(got).map(error).fold(0.0, f64::max)
}

//! What whole vectors are worth: one elementwise kernel, `out = 2 x + y`, whose threads move 16 bytes at a time, and the same where they cannot.
//! `cargo run --release --example vector_access -- --n 16777216 --dtype bf16`
//!
//! - On a boundary, elements are contiguous and every access is of whole vectors.
//! - One element off it, no vector of memory is a vector of the tile. The kernel has a specialization for that, which is chosen at launch.
//! - With a stride of 1 that is read from memory, contiguity is unknown: every element is an access of its own,
//!   of the same bytes. (A stride argument is checked at launch, and 1 has a specialization of its own.) `FUSE_TRACE=1` says
//!   of a GPU's launches which accesses are narrow.

use std::io::Write;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::prelude::*;

/// The elements that one program handles.
const BLOCK: usize = 2048;

/// Interleaved rounds, of which the best counts.
const ROUNDS: usize = 5;

/// `out[i] = 2 x[i] + y[i]` for `i < n`, element `i` at `i`, or at `i * stride[0]` where `STRIDED`.
#[fuse_kernel(T = [f32, f16, bf16], STRIDED = [false, true], BLOCK = [2048], num_warps = 8)]
fn scale_add<T: Float, const STRIDED: bool, const BLOCK: usize>(
    x: &[T],
    y: &[T],
    out: &mut [T],
    stride: &[i32],
    n: i32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let indices = if STRIDED { offsets * tl::load(stride) } else { offsets };
    let (x, y) = (tl::load(x + indices, mask).to::<f32>(), tl::load(y + indices, mask).to::<f32>());
    tl::store(out + indices, (2.0 * x + y).to::<T>(), mask);
}

/// Measures an elementwise kernel with whole vectors, and with single elements
#[derive(Parser)]
struct Options {
    /// The number of elements
    #[arg(long, default_value_t = 1 << 24)]
    n: usize,
    /// The element type
    #[arg(long, default_value = "bf16")]
    dtype: Type,
    /// Runs on the CPU even where there is a GPU
    #[arg(long)]
    cpu: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Type {
    F32,
    F16,
    Bf16,
}

fn main() -> Result<()> {
    let options = Options::parse();
    match options.dtype {
        Type::F32 => run::<f32>(&options),
        Type::F16 => run::<f16>(&options),
        Type::Bf16 => run::<bf16>(&options),
    }
}

/// How a launch reaches its elements.
#[derive(Clone, Copy)]
struct Access {
    name: &'static str,
    /// By how many elements everything is off a boundary.
    shift: usize,
    strided: bool,
}

fn run<T: Float>(options: &Options) -> Result<()>
where
    scale_add::Choice<T, false, BLOCK>: scale_add::Declared,
    scale_add::Choice<T, true, BLOCK>: scale_add::Declared,
{
    let device = if options.cpu { Device::cpu() } else { Device::best()? };
    let n = options.n;
    // Small integers, of which the result is exact in every type.
    let values =
        |times: usize| -> Vec<T> { (0..n + 1).map(|i| T::from_f64((i * times % 13) as f64 - 6.0)).collect() };
    let (x, y) = (values(7), values(5));
    let (bx, by, mut out) = (device.upload(&x)?, device.upload(&y)?, device.zeros::<T>(n + 1)?);
    let stride = device.upload(&[1i32])?;
    let mut print = std::io::stdout().lock();
    writeln!(print, "2 x + y, {n} elements of {}, on {device}: {}", T::DTYPE, device.name())?;
    let bytes = 3 * n * size_of::<T>();
    let accesses = [
        Access { name: "whole vectors", shift: 0, strided: false },
        Access { name: "one element off a boundary", shift: 1, strided: false },
        Access { name: "single elements: a stride of 1", shift: 0, strided: true },
    ];
    let mut best = [f64::INFINITY; 3];
    for round in 0..ROUNDS * accesses.len() {
        let (i, Access { name, shift, strided }) = (round % accesses.len(), accesses[round % accesses.len()]);
        let range = shift..shift + n;
        let mut launch = || {
            let (x, y, out) =
                (bx.slice(range.clone()), by.slice(range.clone()), out.slice_mut(range.clone()));
            let programs = n.div_ceil(BLOCK);
            if strided {
                scale_add::<T, true, BLOCK>(x, y, out, &stride, n as i32).grid(programs).launch(&device)
            } else {
                scale_add::<T, false, BLOCK>(x, y, out, &stride, n as i32).grid(programs).launch(&device)
            }
        };
        best[i] = best[i].min(do_bench(&device, BenchOptions::default(), &mut launch)?.median_ms());
        let got = out.download()?;
        let exact = |i: usize| T::from_f64(2.0 * x[i].to_f64() + y[i].to_f64());
        ensure!(range.clone().all(|i| got[i] == exact(i)), "{name}: a wrong result");
    }
    for (Access { name, .. }, ms) in accesses.into_iter().zip(best) {
        let (speed, times) = (bytes as f64 / ms / 1e6, ms / best[0]);
        writeln!(print, "  {name:<32} {ms:>9.4} ms {speed:>8.1} GB/s, {times:.2} times as long")?;
    }
    Ok(())
}

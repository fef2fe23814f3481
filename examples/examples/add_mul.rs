//! `(x + y) * z` on random data or on `.npy` files:
//! `cargo run --release --example add_mul -- --n 16777216 --dtype bf16`

mod demo;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Parser;
use demo::{Common, Demo, Matrix, Type};
use dsl_runtime::prelude::*;
use fused_kernels::add_mul::{self, AddMul};
use fused_kernels::float::LibraryFloat;

/// Computes (x + y) * z, checks it against float64 and measures it
#[derive(Parser)]
struct Options {
    /// The number of random elements, where no files are given
    #[arg(long, default_value_t = 1 << 24)]
    n: usize,
    /// Three .npy files of one shape
    #[arg(long, num_args = 3, value_names = ["X", "Y", "Z"])]
    input: Option<Vec<PathBuf>>,
    #[command(flatten)]
    common: Common,
}

fn main() -> Result<()> {
    let options = Options::parse();
    match options.common.dtype {
        Type::F32 => run::<f32>(&options),
        Type::F16 => run::<f16>(&options),
        Type::Bf16 => run::<bf16>(&options),
    }
}

fn run<T: LibraryFloat>(options: &Options) -> Result<()> {
    let file = |i: usize| options.input.as_ref().map(|paths| paths[i].as_path());
    let input = |i: usize| Matrix::<T>::read_or_normal(file(i), (1, options.n), i as u64);
    let (x, y, z) = (input(0)?, input(1)?, input(2)?);
    let shapes = [&x, &y, &z].map(|matrix| (matrix.rows, matrix.cols));
    if shapes != [shapes[0]; 3] {
        bail!("the inputs have the shapes {shapes:?}");
    }
    let expected = add_mul::reference(&x.elements, &y.elements, &z.elements);
    let device = options.common.device;
    let [bx, by, bz] = [&x, &y, &z].map(|matrix| device.upload(&matrix.elements));
    let (bx, by, bz) = (bx?, by?, bz?);
    let n = x.elements.len();
    let demo = Demo {
        common: &options.common,
        title: format!("add_mul: (x + y) * z, {n} elements of {}", T::DTYPE),
        traffic: add_mul::traffic::<T>(n),
    };
    let mut out = Matrix { elements: Vec::new(), ..x };
    demo.run(&mut out, &expected, &mut |device, memory| AddMul::new(&bx, &by, &bz).launch(device, memory))
}

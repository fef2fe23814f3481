//! LayerNorm of each row of a matrix, on random data or on `.npy` files:
//! `cargo run --release --example layer_norm -- --rows 8192 --cols 4096 --dtype bf16`

mod demo;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use demo::{Common, Demo, Matrix, Type};
use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::layer_norm::{self, LayerNorm};

/// Normalizes each row of a matrix, checks it against float64 and measures it
#[derive(Parser)]
struct Options {
    /// The number of rows, where no file is given
    #[arg(long, default_value_t = 4096)]
    rows: usize,
    /// The length of a row, where no file is given
    #[arg(long, default_value_t = 4096)]
    cols: usize,
    /// A .npy file with the matrix
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// A .npy file with what each column is multiplied by
    #[arg(long, value_name = "FILE")]
    gamma: Option<PathBuf>,
    /// A .npy file with what is added to each column
    #[arg(long, value_name = "FILE")]
    beta: Option<PathBuf>,
    /// Added to the variance
    #[arg(long, default_value_t = 1e-5)]
    eps: f32,
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
    let x = Matrix::<T>::read_or_normal(options.input.as_deref(), (options.rows, options.cols), 0)?;
    let gamma = Matrix::<T>::read_or_normal(options.gamma.as_deref(), (1, x.cols), 1)?.elements;
    let beta = Matrix::<T>::read_or_normal(options.beta.as_deref(), (1, x.cols), 2)?.elements;
    let device = options.common.device;
    let (bx, bg, bb) = (device.upload(&x.elements)?, device.upload(&gamma)?, device.upload(&beta)?);
    // Shapes are checked where the kernel is launched, so an expectation is computed only for shapes that fit.
    LayerNorm::new(&bx, &bg, &bb).launch(&device, &mut device.zeros::<T>(x.elements.len())?)?;
    let expected = layer_norm::reference(&x.elements, &gamma, &beta, options.eps);
    let demo = Demo {
        common: &options.common,
        title: format!("layer_norm: {} rows of {} elements of {}", x.rows, x.cols, T::DTYPE),
        traffic: layer_norm::traffic::<T>(x.rows, x.cols),
    };
    let mut out = Matrix { elements: Vec::new(), ..x };
    demo.run(&mut out, &expected, &mut |device, memory| {
        LayerNorm::new(&bx, &bg, &bb).eps(options.eps).launch(device, memory)
    })
}

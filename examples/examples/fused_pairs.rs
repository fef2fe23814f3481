//! Chains of operations in one launch and in a launch each, on a GPU or on the CPU:
//! `cargo run --release --example fused_pairs -- --cpu --measurements pairs.json`
//!
//! The file is what `fuse-analysis roofline` draws and `fuse-analysis check` compares with its predictions. Both forms are compared with
//! each other here; the library's tests compare each kernel with float64. Caches are overwritten before each run.

#[path = "points/mod.rs"]
mod points;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::add_activation::AddActivation;
use fused_kernels::bias_activation::BiasActivation;
use fused_kernels::layer_norm::LayerNorm;
use fused_kernels::linear_combination::LinearCombination;
use fused_kernels::matmul::Matmul;
use fused_kernels::norm_activation::NormActivation;
use fused_kernels::scale_relu::ScaleRelu;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Value, json};

/// Measures chains of operations in one launch and in a launch each, in f32
#[derive(Parser)]
struct Options {
    /// The number of rows
    #[arg(long, default_value_t = 4096)]
    rows: usize,
    /// The length of a row, and of the sides of a product
    #[arg(long, default_value_t = 1024)]
    cols: usize,
    /// Runs on the CPU even where there is a GPU
    #[arg(long)]
    cpu: bool,
    /// Computes and compares, and measures nothing
    #[arg(long)]
    once: bool,
    /// Writes the times to a file as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    measurements: Option<PathBuf>,
}

/// A chain as the analyzer knows it.
struct Chain {
    /// The model, its operations in one launch, and in the launches of the other form.
    model: &'static str,
    fused: &'static str,
    apart: &'static str,
    set: Value,
    /// Elements that either form reads and writes.
    elements: [usize; 2],
    flops: f64,
}

/// Runs both forms, and keeps what was measured.
struct Bench {
    device: Device,
    once: bool,
    points: Vec<Value>,
}

type Launch<'a> = &'a mut dyn FnMut(&Device, &mut Buffer<f32>) -> dsl_runtime::Result<()>;

impl Bench {
    fn run(&mut self, chain: &Chain, len: usize, forms: [Launch<'_>; 2]) -> Result<()> {
        let mut results = Vec::new();
        let mut times = Vec::new();
        let names = [("fused", chain.fused), ("unfused", chain.apart)];
        for (launch, ((form, ops), elements)) in forms.into_iter().zip(names.into_iter().zip(chain.elements))
        {
            let mut out = self.device.upload(&vec![f32::NAN; len])?;
            launch(&self.device, &mut out)?;
            results.push(out.download()?);
            if self.once {
                continue;
            }
            let options = BenchOptions { rep_ms: 500.0, ..BenchOptions::default() };
            let device = self.device;
            let time = do_bench(&device, options, || launch(&device, &mut out))?.median_ms();
            times.push(time);
            self.points.push(json!({
                "name": format!("{} {len}", chain.fused),
                "form": form,
                "ops": ops,
                "model": chain.model,
                "set": chain.set,
                "bytes": elements * size_of::<f32>(),
                "flops": chain.flops,
                "seconds": time * 1e-3,
                "unit": "f32",
            }));
        }
        let far = |(a, b): (&f32, &f32)| {
            (a - b).abs().partial_cmp(&(1e-4 * (1.0 + a.abs()))) != Some(std::cmp::Ordering::Less)
        };
        let differ = results[0].iter().zip(&results[1]).filter(|&pair| far(pair)).count();
        ensure!(differ == 0, "{}: {differ} of {len} elements of the two forms differ", chain.fused);
        let mut print = std::io::stdout().lock();
        match times[..] {
            [fused, apart] => {
                let rate = |elements: usize, ms: f64| (elements * size_of::<f32>()) as f64 / ms / 1e6;
                writeln!(
                    print,
                    "{}: {fused:.4} ms, {:.1} GB/s; {}: {apart:.4} ms, {:.1} GB/s; {:.2} times as fast",
                    chain.fused,
                    rate(chain.elements[0], fused),
                    chain.apart,
                    rate(chain.elements[1], apart),
                    apart / fused
                )?;
            }
            _ => writeln!(print, "{} and {}: the same results", chain.fused, chain.apart)?,
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let Options { rows, cols, cpu, once, measurements } = Options::parse();
    let device = if cpu { Device::cpu() } else { Device::best()? };
    let n = rows * cols;
    let normal = |len: usize, seed: u64| {
        let values = StandardNormal.sample_iter(StdRng::seed_from_u64(seed)).take(len);
        device.upload(&values.map(|value: f64| value as f32).collect::<Vec<_>>())
    };
    let [x, y, z] = [normal(n, 1)?, normal(n, 2)?, normal(n, 3)?];
    let [gamma, beta] = [normal(cols, 4)?, normal(cols, 5)?];
    let zeros = device.zeros::<f32>(cols)?;
    let [mut one, mut two, mut three] = [device.zeros::<f32>(n)?, device.zeros(n)?, device.zeros(n)?];
    writeln!(std::io::stdout(), "{rows} x {cols} of f32 on {device}: {}", device.name())?;
    let mut bench = Bench { device, once, points: Vec::new() };
    let (of_rows, flops) = (json!({ "rows": rows, "cols": cols }), n as f64);

    let chain = Chain {
        model: "add_gelu",
        fused: "add + act",
        apart: "add ; act",
        set: json!({ "n": n }),
        elements: [3 * n, 5 * n],
        flops: 9.0 * flops,
    };
    bench.run(
        &chain,
        n,
        [&mut |on, out| AddActivation::new(&x, &y, Activation::Gelu).launch(on, out), &mut |on, out| {
            LinearCombination::new(1.0, &x).y(1.0, &y).launch(on, &mut one)?;
            BiasActivation::new(&one, &zeros, Activation::Gelu).launch(on, out)
        }],
    )?;

    let chain = Chain {
        model: "elementwise_chain",
        fused: "relu + scale + bias",
        apart: "relu ; scale ; bias",
        set: of_rows.clone(),
        elements: [2 * n, 6 * n],
        flops: 3.0 * flops,
    };
    bench.run(
        &chain,
        n,
        [&mut |on, out| ScaleRelu::new(&x).scale(1.5).column_bias(&beta).launch(on, out), &mut |on, out| {
            ScaleRelu::new(&x).launch(on, &mut one)?;
            LinearCombination::new(1.5, &one).launch(on, &mut two)?;
            BiasActivation::new(&two, &beta, Activation::Identity).launch(on, out)
        }],
    )?;

    let chain = Chain {
        model: "linear_combination",
        fused: "scale_x + scale_y + scale_z + add_xy + add_z",
        apart: "scale_x ; scale_y ; scale_z ; add_xy ; add_z",
        set: json!({ "n": n }),
        elements: [4 * n, 12 * n],
        flops: 5.0 * flops,
    };
    let scaled = |on: &Device, alpha: f32, x: &Buffer<f32>, out: &mut Buffer<f32>| {
        LinearCombination::new(alpha, x).launch(on, out)
    };
    let sum = |on: &Device, x: &Buffer<f32>, y: &Buffer<f32>, out: &mut Buffer<f32>| {
        LinearCombination::new(1.0, x).y(1.0, y).launch(on, out)
    };
    bench.run(
        &chain,
        n,
        [
            &mut |on, out| LinearCombination::new(1.5, &x).y(-0.25, &y).z(0.5, &z).launch(on, out),
            &mut |on, out| {
                scaled(on, 1.5, &x, &mut one)?;
                scaled(on, -0.25, &y, &mut two)?;
                sum(on, &one, &two, &mut three)?;
                scaled(on, 0.5, &z, &mut one)?;
                sum(on, &three, &one, out)
            },
        ],
    )?;

    let chain = Chain {
        model: "norm_activation_add",
        fused: "norm + act + add",
        apart: "norm ; act ; add",
        set: of_rows,
        elements: [3 * n, 7 * n],
        flops: 16.0 * flops,
    };
    bench.run(
        &chain,
        n,
        [
            &mut |on, out| {
                NormActivation::layer_norm(&x, &gamma, &beta, Activation::Gelu).residual(&y).launch(on, out)
            },
            &mut |on, out| {
                LayerNorm::new(&x, &gamma, &beta).launch(on, &mut one)?;
                BiasActivation::new(&one, &zeros, Activation::Gelu).launch(on, &mut two)?;
                sum(on, &two, &y, out)
            },
        ],
    )?;

    let product = cols * cols;
    let (a, b) = (normal(product, 6)?, normal(product, 7)?);
    let chain = Chain {
        model: "matmul_bias_gelu",
        fused: "matmul + bias + act",
        apart: "matmul ; bias + act",
        set: json!({ "m": cols, "n": cols, "k": cols }),
        elements: [3 * product, 5 * product],
        flops: product as f64 * (2.0 * cols as f64 + 9.0),
    };
    let mut plain = device.zeros::<f32>(product)?;
    let [a, b] = [a.view([cols, cols])?, b.view([cols, cols])?];
    bench.run(
        &chain,
        product,
        [
            &mut |on, out| {
                Matmul::new(a, b)
                    .activation(Activation::Gelu)
                    .bias(&beta)
                    .launch(on, out.view_mut([cols, cols])?)
            },
            &mut |on, out| {
                Matmul::new(a, b).launch(on, plain.view_mut([cols, cols])?)?;
                BiasActivation::new(&plain, &beta, Activation::Gelu).launch(on, out)
            },
        ],
    )?;

    if let Some(path) = measurements {
        points::write(&path, &device, &format!("fused_pairs --rows {rows} --cols {cols}"), &bench.points)?;
    }
    Ok(())
}

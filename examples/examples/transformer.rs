//! The layers of a decoder, fused and operation by operation: launches, bytes, time.
//! `cargo run --release --example transformer -- --model 8b --tokens 16`
//!
//! Weights are random, `bf16`. Both forms of each operation are compared with each other, as far as rounding lets them differ; the
//! library's tests compare each with float64.

use std::io::Write;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::prelude::*;
use fused_kernels::act_and_mul::ActAndMul;
use fused_kernels::activation::{IDENTITY, SILU};
use fused_kernels::attention::Attention;
use fused_kernels::decoder_layer::{DecoderLayer, Weights};
use fused_kernels::feed_forward::{Down, GatedFeedForward};
use fused_kernels::form::{Cost, Form};
use fused_kernels::linear_combination::LinearCombination;
use fused_kernels::linear_rope::rotate_in_place;
use fused_kernels::matmul::Matmul;
use fused_kernels::norm_linear::{FoldedLinear, Norm, NormLinear};
use fused_kernels::rope::{Angles, Heads};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};

/// Measures the layers of a decoder, fused and operation by operation
#[derive(Parser)]
struct Options {
    /// The sizes of a model
    #[arg(long, default_value = "tiny")]
    model: Model,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 16)]
    tokens: usize,
    /// Runs on the CPU even where there is a GPU
    #[arg(long)]
    cpu: bool,
    /// Computes and compares, and measures nothing
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    Tiny,
    #[value(name = "1b")]
    B1,
    #[value(name = "8b")]
    B8,
}

/// Extents of a layer: elements of a row, of the middle, heads, elements of a head.
#[derive(Clone, Copy)]
struct Sizes {
    k: usize,
    f: usize,
    heads: Heads,
    dim: usize,
}

impl Model {
    fn sizes(self) -> Sizes {
        let heads = Heads { queries: 32, keys: 8 };
        match self {
            Model::Tiny => Sizes { k: 128, f: 256, heads: Heads { queries: 4, keys: 2 }, dim: 32 },
            Model::B1 => Sizes { k: 2048, f: 8192, heads, dim: 64 },
            Model::B8 => Sizes { k: 4096, f: 14336, heads, dim: 128 },
        }
    }
}

/// Numbers as weights have them: small enough that sums stay near 1.
fn random(device: &Device, len: usize, terms: usize, seed: u64) -> Result<Buffer<bf16>> {
    let scale = 1.0 / (terms as f64).sqrt();
    let values = StandardNormal.sample_iter(StdRng::seed_from_u64(seed)).take(len);
    Ok(device.upload(&values.map(|x: f64| bf16::from_f64(scale * x)).collect::<Vec<_>>())?)
}

struct Layer {
    sizes: Sizes,
    qkv: FoldedLinear<bf16>,
    up: FoldedLinear<bf16>,
    output: Buffer<bf16>,
    down: Buffer<bf16>,
    positions: Buffer<i32>,
    cos: Buffer<f32>,
    sin: Buffer<f32>,
}

impl Layer {
    fn new(device: &Device, sizes: Sizes, tokens: usize) -> Result<Layer> {
        let Sizes { k, f, heads, dim } = sizes;
        let gamma = device.upload(&vec![bf16::ONE; k])?;
        let folded = |columns: usize, seed: u64| -> Result<FoldedLinear<bf16>> {
            let weight = random(device, columns * k, k, seed)?;
            let weight = weight.view([columns, k])?.permute([1, 0]);
            Ok(FoldedLinear::new(device, Norm::Rms { gamma: gamma.slice(..) }, weight, None)?)
        };
        let half = dim / 2;
        let angle = |i: usize| (i / half) as f32 * 10000f32.powf(-((i % half) as f32) / half as f32);
        let angles: Vec<f32> = (0..tokens * half).map(angle).collect();
        Ok(Layer {
            sizes,
            qkv: folded((heads.queries + 2 * heads.keys) * dim, 1)?,
            up: folded(2 * f, 2)?,
            output: random(device, heads.queries * dim * k, heads.queries * dim, 3)?,
            down: random(device, f * k, f, 4)?,
            positions: device.upload(&(0..tokens as i32).collect::<Vec<_>>())?,
            cos: device.upload(&angles.iter().map(|angle| angle.cos()).collect::<Vec<_>>())?,
            sin: device.upload(&angles.iter().map(|angle| angle.sin()).collect::<Vec<_>>())?,
        })
    }

    fn angles(&self) -> Angles<'_> {
        let half = self.sizes.dim / 2;
        Angles { positions: self.positions.slice(..), cos: self.cos.slice(..), sin: self.sin.slice(..), half }
    }

    fn down(&self) -> dsl_runtime::Result<View<'_, bf16, 2>> {
        Ok(self.down.view([self.sizes.k, self.sizes.f])?.permute([1, 0]))
    }

    fn output(&self) -> dsl_runtime::Result<View<'_, bf16, 2>> {
        let Sizes { k, heads, dim, .. } = self.sizes;
        Ok(self.output.view([k, heads.queries * dim])?.permute([1, 0]))
    }

    fn weights(&self) -> dsl_runtime::Result<Weights<'_, bf16>> {
        Ok(Weights { qkv: &self.qkv, output: self.output()?, up: &self.up, down: self.down()? })
    }
}

/// What is between operations that run one by one.
struct Between {
    qkv: Buffer<bf16>,
    attended: Buffer<bf16>,
    projected: Buffer<bf16>,
    middle: Buffer<bf16>,
    halves: Buffer<bf16>,
    gated: Buffer<bf16>,
}

impl Between {
    fn new(device: &Device, Sizes { k, f, heads, dim }: Sizes, tokens: usize) -> Result<Between> {
        let zeros = |len: usize| device.zeros::<bf16>(tokens * len);
        Ok(Between {
            qkv: zeros((heads.queries + 2 * heads.keys) * dim)?,
            attended: zeros(heads.queries * dim)?,
            projected: zeros(k)?,
            middle: zeros(k)?,
            halves: zeros(2 * f)?,
            gated: zeros(f)?,
        })
    }
}

/// Norm, product, gate, product, addition.
fn feed_forward(
    device: &Device,
    layer: &Layer,
    x: &Buffer<bf16>,
    between: &mut [&mut Buffer<bf16>; 3],
    out: &mut Buffer<bf16>,
) -> dsl_runtime::Result<()> {
    let Sizes { k, f, .. } = layer.sizes;
    let (tokens, [halves, gated, projected]) = (layer.positions.len(), between);
    let first = NormLinear::<bf16, IDENTITY>::new(x, &layer.up);
    first.launch_as(device, halves.view_mut([tokens, 2 * f])?, Form::Separate)?;
    ActAndMul::<bf16, SILU>::new(&**halves, f).launch(device, &mut **gated)?;
    let product = Matmul::<bf16, IDENTITY>::new(gated.view([tokens, f])?, layer.down()?);
    product.launch(device, projected.view_mut([tokens, k])?)?;
    LinearCombination::new(1.0, &**projected).y(1.0, x).launch(device, out)
}

/// The layer, one operation after the other.
fn step_by_step(
    device: &Device,
    layer: &Layer,
    x: &Buffer<bf16>,
    between: &mut Between,
    out: &mut Buffer<bf16>,
) -> dsl_runtime::Result<()> {
    let Sizes { k, heads: Heads { queries, keys }, dim, .. } = layer.sizes;
    let (tokens, heads) = (layer.positions.len(), queries + 2 * keys);
    let Between { qkv, attended, projected, middle, halves, gated } = between;
    let first = NormLinear::<bf16, IDENTITY>::new(x, &layer.qkv);
    first.launch_as(device, qkv.view_mut([tokens, heads * dim])?, Form::Separate)?;
    rotate_in_place(device, layer.angles(), [heads * dim, (queries + keys) * dim], &mut *qkv)?;
    let rows = qkv.view([tokens, heads, dim])?.permute([1, 0, 2]);
    let view = attended.view_mut([tokens, queries, dim])?.permute([1, 0, 2]);
    let mut lse = device.temporary::<f32>(queries * tokens)?;
    let [q, key, value] = [(0, queries), (queries, keys), (queries + keys, keys)]
        .map(|(first, count)| rows.slice(0, first..first + count));
    Attention::new(q, key, value).causal().launch(device, view, lse.slice_mut())?;
    let product = Matmul::<bf16, IDENTITY>::new(attended.view([tokens, queries * dim])?, layer.output()?);
    product.launch(device, projected.view_mut([tokens, k])?)?;
    LinearCombination::new(1.0, &*projected).y(1.0, x).launch(device, &mut *middle)?;
    feed_forward(device, layer, middle, &mut [halves, gated, projected], out)
}

/// The largest difference of two results, as a share of their root mean square.
fn difference(one: &[bf16], other: &[bf16]) -> f64 {
    let size = one.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / one.len() as f64;
    let pairs = one.iter().zip(other);
    pairs.map(|(a, b)| (a.to_f64() - b.to_f64()).abs()).fold(0.0, f64::max) / size.sqrt()
}

/// A line of the report.
fn line(name: &str, [ours, separate]: [Cost; 2], times: Option<[f64; 2]>, differs: f64) -> Result<()> {
    let mut print = std::io::stdout().lock();
    let megabytes = |cost: Cost| cost.bytes as f64 / 1e6;
    write!(
        print,
        "{name:14} {:2} launches {:9.2} MB, one by one {:2} and {:9.2} MB",
        ours.launches,
        megabytes(ours),
        separate.launches,
        megabytes(separate)
    )?;
    if let Some([fused, unfused]) = times {
        write!(print, ": {fused:9.4} ms, {unfused:9.4} ms, {:.2} times as fast", unfused / fused)?;
    }
    writeln!(print, "; they differ by {:.1} % of the root mean square at most", 100.0 * differs)?;
    Ok(())
}

fn main() -> Result<()> {
    let Options { model, tokens, cpu, once } = Options::parse();
    let device = if cpu { Device::cpu() } else { Device::best()? };
    let sizes = model.sizes();
    let layer = Layer::new(&device, sizes, tokens)?;
    let x = random(&device, tokens * sizes.k, 1, 5)?;
    let mut between = Between::new(&device, sizes, tokens)?;
    let [mut ours, mut separate] = [device.zeros::<bf16>(x.len())?, device.zeros::<bf16>(x.len())?];
    writeln!(std::io::stdout(), "{tokens} tokens of {} on {device}: {}", sizes.k, device.name())?;
    let measure = |launch: &mut dyn FnMut() -> dsl_runtime::Result<()>| -> Result<f64> {
        Ok(do_bench(&device, BenchOptions { rep_ms: 300.0, ..BenchOptions::default() }, launch)?.median_ms())
    };

    let second = Down { weight: layer.down()?, bias: None };
    let gated = GatedFeedForward::<bf16, SILU>::new(&layer.up, second);
    let mut fused = || gated.launch(&device, &x, &mut ours);
    fused()?;
    let Between { projected, halves, gated: products, .. } = &mut between;
    let mut one_by_one =
        || feed_forward(&device, &layer, &x, &mut [halves, products, projected], &mut separate);
    one_by_one()?;
    let times = if once { None } else { Some([measure(&mut fused)?, measure(&mut one_by_one)?]) };
    let differs = difference(&ours.download()?, &separate.download()?);
    ensure!(differs < 0.1, "the two forms differ by {differs}");
    line("feed-forward", gated.cost(&device, tokens), times, differs)?;

    let decoder = DecoderLayer::new(layer.weights()?, sizes.heads, layer.angles());
    let mut fused = || decoder.launch(&device, &x, &mut ours);
    fused()?;
    let mut one_by_one = || step_by_step(&device, &layer, &x, &mut between, &mut separate);
    one_by_one()?;
    let times = if once { None } else { Some([measure(&mut fused)?, measure(&mut one_by_one)?]) };
    let differs = difference(&ours.download()?, &separate.download()?);
    ensure!(differs < 0.1, "the two forms differ by {differs}");
    line("decoder layer", decoder.cost(&device), times, differs)
}

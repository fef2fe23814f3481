//! The layers of a decoder, fused and operation by operation: launches, bytes, time.
//! `cargo run --release --example transformer -- --model 8b --tokens 16`
//!
//! Weights are random, `bf16`. Both forms are compared with each other, as far as rounding lets them differ; the library's tests compare
//! each with float64. `--measurements FILE` writes the times of the layer and of each operation as `fuse-analysis check` reads them, by the
//! names of `analysis/models/llama_3_8b_layer.toml`.

#[path = "points/mod.rs"]
mod points;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::prelude::*;
use fused_kernels::act_and_mul::ActAndMul;
use fused_kernels::activation::Activation;
use fused_kernels::attention::Attention;
use fused_kernels::decoder_layer::{DecoderLayer, LayerWeights};
use fused_kernels::feed_forward::{Down, GatedFeedForward};
use fused_kernels::form::Cost;
use fused_kernels::linear_combination::LinearCombination;
use fused_kernels::linear_rope::rotate_in_place;
use fused_kernels::matmul::Matmul;
use fused_kernels::norm_linear::{FoldedLinear, Norm};
use fused_kernels::rms_norm::RmsNorm;
use fused_kernels::rope::{Angles, Heads};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Value, json};

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
    /// Writes the times to a file as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    measurements: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    Tiny,
    #[value(name = "1b")]
    B1,
    #[value(name = "8b")]
    B8,
}

/// What is added to mean squares.
const EPS: f32 = 1e-5;

/// Extents of a layer: elements of a row, of the middle, heads, elements of a head.
#[derive(Clone, Copy)]
struct Sizes {
    k: usize,
    f: usize,
    heads: Heads,
    dim: usize,
}

impl Model {
    /// The name among the analyzer's models.
    fn analyzed(self) -> Option<&'static str> {
        match self {
            Model::Tiny => None,
            Model::B1 => Some("llama_3_2_1b_layer"),
            Model::B8 => Some("llama_3_8b_layer"),
        }
    }

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
    gamma: Buffer<bf16>,
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
            gamma,
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

    fn weights(&self) -> dsl_runtime::Result<LayerWeights<'_, bf16>> {
        Ok(LayerWeights { qkv: &self.qkv, output: self.output()?, up: &self.up, down: self.down()? })
    }
}

/// The operations of a layer, each a launch.
#[derive(Clone, Copy)]
enum Op {
    Norm1,
    Qkv,
    Rope,
    Attend,
    OProj,
    Add1,
    Norm2,
    GateUp,
    Swiglu,
    DownProj,
    Add2,
}

use Op::{Add1, Add2, Attend, DownProj, GateUp, Norm1, Norm2, OProj, Qkv, Rope, Swiglu};

/// In their order, by their names in the analyzer's models.
const OPS: [(Op, &str); 11] = [
    (Norm1, "norm1"),
    (Qkv, "qkv"),
    (Rope, "rope_q + rope_k"),
    (Attend, "attention"),
    (OProj, "o_proj"),
    (Add1, "add1"),
    (Norm2, "norm2"),
    (GateUp, "gate_up"),
    (Swiglu, "swiglu"),
    (DownProj, "down"),
    (Add2, "add2"),
];

/// The index of the first operation of the feed-forward layer.
const FEED_FORWARD: usize = 6;

/// What is between operations that run one by one, and the result.
struct OneByOne<'a> {
    layer: &'a Layer,
    x: &'a Buffer<bf16>,
    normalized: Buffer<bf16>,
    qkv: Buffer<bf16>,
    attended: Buffer<bf16>,
    lse: Buffer<f32>,
    projected: Buffer<bf16>,
    middle: Buffer<bf16>,
    halves: Buffer<bf16>,
    gated: Buffer<bf16>,
    out: Buffer<bf16>,
}

impl<'a> OneByOne<'a> {
    fn new(device: &Device, layer: &'a Layer, x: &'a Buffer<bf16>) -> Result<OneByOne<'a>> {
        let Sizes { k, f, heads, dim } = layer.sizes;
        let tokens = layer.positions.len();
        let zeros = |len: usize| device.zeros::<bf16>(tokens * len);
        Ok(OneByOne {
            layer,
            x,
            normalized: zeros(k)?,
            qkv: zeros((heads.queries + 2 * heads.keys) * dim)?,
            attended: zeros(heads.queries * dim)?,
            lse: device.zeros(heads.queries * tokens)?,
            projected: zeros(k)?,
            middle: zeros(k)?,
            halves: zeros(2 * f)?,
            gated: zeros(f)?,
            out: zeros(k)?,
        })
    }

    fn launch(&mut self, device: &Device, op: Op) -> dsl_runtime::Result<()> {
        let OneByOne { layer, x, normalized, qkv, attended, lse, projected, middle, halves, gated, out } =
            self;
        let Sizes { f, heads: Heads { queries, keys }, dim, .. } = layer.sizes;
        let (tokens, heads) = (layer.positions.len(), queries + 2 * keys);
        let linear = |a: &Buffer<bf16>, b: View<'_, bf16, 2>, out: &mut Buffer<bf16>| {
            let [k, n] = b.shape();
            let linear = Matmul::new(a.view([tokens, k])?, b);
            linear.launch(device, out.view_mut([tokens, n])?)
        };
        match op {
            Norm1 => RmsNorm::new(*x, &layer.gamma).eps(EPS).launch(device, normalized),
            Qkv => linear(normalized, layer.qkv.weight()?, qkv),
            Rope => rotate_in_place(device, layer.angles(), [heads * dim, (queries + keys) * dim], qkv),
            Attend => {
                let rows = qkv.view([tokens, heads, dim])?.permute([1, 0, 2]);
                let view = attended.view_mut([tokens, queries, dim])?.permute([1, 0, 2]);
                let [q, key, value] = [(0, queries), (queries, keys), (queries + keys, keys)]
                    .map(|(first, count)| rows.slice(0, first..first + count));
                Attention::new(q, key, value).causal().launch_with_lse(device, view, lse)
            }
            OProj => linear(attended, layer.output()?, projected),
            Add1 => LinearCombination::new(1.0, &*projected).y(1.0, *x).launch(device, middle),
            Norm2 => RmsNorm::new(&*middle, &layer.gamma).eps(EPS).launch(device, normalized),
            GateUp => linear(normalized, layer.up.weight()?, halves),
            Swiglu => ActAndMul::new(&*halves, f, Activation::Silu).launch(device, gated),
            DownProj => linear(gated, layer.down()?, projected),
            Add2 => LinearCombination::new(1.0, &*projected).y(1.0, &*middle).launch(device, out),
        }
    }

    fn launch_all(&mut self, device: &Device, ops: &[(Op, &str)]) -> dsl_runtime::Result<()> {
        ops.iter().try_for_each(|&(op, _)| self.launch(device, op))
    }
}

/// The largest difference of two results, as a share of their root mean square.
fn difference(one: &[bf16], other: &[bf16]) -> f64 {
    let size = one.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / one.len() as f64;
    let pairs = one.iter().zip(other);
    pairs.map(|(a, b)| (a.to_f64() - b.to_f64()).abs()).fold(0.0, f64::max) / size.sqrt()
}

/// Turns of the forms that are compared.
const ROUNDS: usize = 3;

/// Launches that are timed together.
struct Form<'a> {
    name: &'a str,
    form: &'static str,
    launch: &'a mut dyn FnMut() -> dsl_runtime::Result<()>,
}

/// What is measured, and what was.
struct Measured<'a> {
    device: &'a Device,
    /// The analyzer's model.
    model: Option<&'static str>,
    tokens: usize,
    once: bool,
    points: Vec<Value>,
}

impl Measured<'_> {
    /// The median times in milliseconds of forms, kept under their names; nothing where nothing is to be measured. Their rounds are interleaved, so that
    /// a drift of the clock meets all of them alike.
    fn time<const N: usize>(&mut self, mut forms: [Form<'_>; N]) -> Result<[Option<f64>; N]> {
        for Form { launch, .. } in &mut forms {
            launch()?;
        }
        if self.once {
            return Ok([None; N]);
        }
        let options = BenchOptions { rep_ms: 300.0 / ROUNDS as f64, ..BenchOptions::default() };
        let mut times = [[0.0; ROUNDS]; N];
        for round in 0..ROUNDS {
            for (Form { launch, .. }, times) in forms.iter_mut().zip(&mut times) {
                times[round] = do_bench(self.device, options, launch)?.median_ms();
            }
        }
        for (Form { name, form, .. }, times) in forms.iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            let mut point = json!({ "name": name, "form": form, "seconds": times[ROUNDS / 2] * 1e-3 });
            if let Some(model) = self.model {
                point["model"] = json!(model);
                point["set"] = json!({ "tokens": self.tokens });
            }
            self.points.push(point);
        }
        Ok(times.map(|times| Some(times[ROUNDS / 2])))
    }
}

/// A line of the report: launches of both forms, bytes of the fused one, times.
fn line(name: &str, ours: Cost, one_by_one: usize, times: [Option<f64>; 2], differs: f64) -> Result<()> {
    let mut print = std::io::stdout().lock();
    let megabytes = ours.bytes as f64 / 1e6;
    write!(
        print,
        "{name:14} {} launches, {megabytes:.2} MB; one by one {one_by_one} launches",
        ours.launches
    )?;
    if let [Some(fused), Some(unfused)] = times {
        write!(print, ": {fused:.4} ms, {unfused:.4} ms, {:.2} times as fast", unfused / fused)?;
    }
    writeln!(print, "; they differ by {:.1} % of the root mean square at most", 100.0 * differs)?;
    Ok(())
}

/// Names with ` ; ` between launches.
fn joined<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(" ; ")
}

fn main() -> Result<()> {
    let Options { model, tokens, cpu, once, measurements } = Options::parse();
    let device = if cpu { Device::cpu() } else { Device::best()? };
    let sizes = model.sizes();
    let layer = Layer::new(&device, sizes, tokens)?;
    let x = random(&device, tokens * sizes.k, 1, 5)?;
    let mut apart = OneByOne::new(&device, &layer, &x)?;
    let mut ours = device.zeros::<bf16>(x.len())?;
    writeln!(std::io::stdout(), "{tokens} tokens of {} on {device}: {}", sizes.k, device.name())?;
    let mut measured =
        Measured { device: &device, model: model.analyzed(), tokens, once, points: Vec::new() };

    let decoder = DecoderLayer::new(layer.weights()?, sizes.heads, layer.angles()).eps(EPS);
    let [cost, _] = decoder.cost(&device);
    let gated =
        GatedFeedForward::new(&layer.up, Down { weight: layer.down()?, bias: None }, Activation::Silu)
            .eps(EPS);
    let [gated_cost, _] = gated.cost(&device, tokens);
    // A norm is fused into the matmul of few rows; a rotation is separate beyond one wave of tiles, and a residual of large matmuls.
    let first = if gated_cost.launches == 3 { "norm2 + gate_up" } else { "norm2 ; gate_up" };
    let last = if gated_cost.launches == 5 { "down ; add2" } else { "down + add2" };
    let second = joined([first, "swiglu", last]);
    let before = cost.launches - gated_cost.launches;
    let rotated = if before == 4 { "qkv + rope_q + rope_k" } else { "qkv ; rope_q + rope_k" };
    let projected = if before == 6 { "o_proj ; add1" } else { "o_proj + add1" };
    let whole = joined(["norm1", rotated, "attention", projected, &second]);

    let times = measured.time([
        Form { name: &whole, form: "fused", launch: &mut || decoder.launch(&device, &x, &mut ours) },
        Form {
            name: &joined(OPS.map(|(_, name)| name)),
            form: "unfused",
            launch: &mut || apart.launch_all(&device, &OPS),
        },
    ])?;
    let differs = difference(&ours.download()?, &apart.out.download()?);
    ensure!(differs < 0.1, "the two forms differ by {differs}");
    line("decoder layer", cost, OPS.len(), times, differs)?;

    // Of what attention left, in both forms.
    let middle = device.upload(&apart.middle.download()?)?;
    let (_, ops) = OPS.split_at(FEED_FORWARD);
    let name = joined(ops.iter().map(|&(_, name)| name));
    let times = measured.time([
        Form { name: &second, form: "fused", launch: &mut || gated.launch(&device, &middle, &mut ours) },
        Form { name: &name, form: "unfused", launch: &mut || apart.launch_all(&device, ops) },
    ])?;
    let differs = difference(&ours.download()?, &apart.out.download()?);
    ensure!(differs < 0.1, "the two forms differ by {differs}");
    line("feed-forward", gated_cost, ops.len(), times, differs)?;

    if let Some(path) = measurements {
        for (op, name) in OPS {
            let form = if matches!(op, Rope) { "fused" } else { "unfused" };
            measured.time([Form { name, form, launch: &mut || apart.launch(&device, op) }])?;
        }
        points::write(&path, &device, &format!("transformer --tokens {tokens}"), &measured.points)?;
    }
    Ok(())
}

//! `decoder_layer`: the same, to the bit, as its operations one by one, each of which is compared with `f64` in its own test.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::attention::Attention;
use fused_kernels::decoder_layer::{DecoderLayer, LayerWeights};
use fused_kernels::feed_forward::{Down, GatedFeedForward};
use fused_kernels::linear_rope::LinearRope;
use fused_kernels::matmul::Matmul;
use fused_kernels::norm_linear::{FoldedLinear, Norm};
use fused_kernels::rms_norm::RmsNorm;
use fused_kernels::rope::{Angles, Heads};

use crate::data::{devices, normal};

const K: usize = 48;
const F: usize = 40;
const HEADS: Heads = Heads { queries: 4, keys: 2 };
const HALF: usize = 8;
const COLUMNS: usize = (4 + 2 * 2) * 2 * HALF;

struct Layer {
    qkv: FoldedLinear<bf16>,
    up: FoldedLinear<bf16>,
    output: Buffer<bf16>,
    down: Buffer<bf16>,
    table: Buffer<f32>,
}

impl Layer {
    fn new(device: &Device) -> Layer {
        let scaled = |len: usize, seed: u64| -> Vec<bf16> {
            normal::<f64>(len, seed).into_iter().map(|x| bf16::from_f64(0.2 * x)).collect()
        };
        let folded = |columns: usize, seed: u64| {
            let gamma = device.upload(&normal::<bf16>(K, seed)).unwrap();
            let weight = device.upload(&scaled(K * columns, seed + 1)).unwrap();
            let norm = Norm::Rms { gamma: gamma.slice(..) };
            FoldedLinear::new(device, norm, weight.view([K, columns]).unwrap(), None).unwrap()
        };
        Layer {
            qkv: folded(COLUMNS, 1),
            up: folded(2 * F, 3),
            output: device.upload(&scaled(4 * 2 * HALF * K, 5)).unwrap(),
            down: device.upload(&scaled(F * K, 6)).unwrap(),
            table: device.upload(&normal::<f32>(100 * HALF, 7)).unwrap(),
        }
    }

    fn weights(&self) -> LayerWeights<'_, bf16> {
        let output = self.output.view([4 * 2 * HALF, K]).unwrap();
        LayerWeights { qkv: &self.qkv, output, up: &self.up, down: self.down.view([F, K]).unwrap() }
    }

    fn angles<'a>(&'a self, positions: &'a Buffer<i32>) -> Angles<'a> {
        Angles {
            positions: positions.slice(..),
            cos: self.table.slice(..),
            sin: self.table.slice(..),
            half: HALF,
        }
    }

    /// One operation after the other, of one sequence.
    fn step_by_step(&self, device: &Device, x: &Buffer<bf16>, positions: &Buffer<i32>) -> Vec<bf16> {
        let (tokens, queries, weights) = (positions.len(), 4 * 2 * HALF, self.weights());
        let ones = device.upload(&[bf16::ONE; K]).unwrap();
        let zeros = |len: usize| device.zeros::<bf16>(len).unwrap();
        let (mut normalized, mut qkv) = (zeros(tokens * K), zeros(tokens * COLUMNS));
        RmsNorm::new(x, &ones).eps(1e-5).launch(device, &mut normalized).unwrap();
        let linear = LinearRope::new(&normalized, self.qkv.weight().unwrap(), self.angles(positions));
        let rotated = (HEADS.queries + HEADS.keys) * 2 * HALF;
        assert!(self.qkv.bias().is_none(), "neither the norm nor the layer adds anything");
        linear.rotated(rotated).launch(device, &mut qkv).unwrap();
        let (mut attended, mut lse) = (zeros(tokens * queries), device.zeros::<f32>(4 * tokens).unwrap());
        let heads = qkv.view([tokens, 8, 2 * HALF]).unwrap().permute([1, 0, 2]);
        let out = attended.view_mut([tokens, 4, 2 * HALF]).unwrap().permute([1, 0, 2]);
        let attention = Attention::new(heads.slice(0, ..4), heads.slice(0, 4..6), heads.slice(0, 6..8));
        attention.causal().launch_with_lse(device, out, &mut lse).unwrap();
        let (mut attention_out, mut out) = (zeros(tokens * K), zeros(tokens * K));
        let linear = Matmul::new(attended.view([tokens, queries]).unwrap(), weights.output);
        let linear = linear.residual(x.view([tokens, K]).unwrap());
        linear.launch(device, attention_out.view_mut([tokens, K]).unwrap()).unwrap();
        let second =
            GatedFeedForward::new(&self.up, Down { weight: weights.down, bias: None }, Activation::Silu);
        second.launch(device, &attention_out, &mut out).unwrap();
        out.download().unwrap()
    }
}

#[test]
fn a_layer_is_its_operations_one_by_one() {
    for device in devices() {
        let layer = Layer::new(&device);
        for tokens in [1, 16, 33] {
            let x = device.upload(&normal::<bf16>(2 * tokens * K, 8)).unwrap();
            let position_ids: Vec<i32> = (0..tokens as i32).collect();
            let positions = device.upload(&position_ids).unwrap();
            let twice = device.upload(&[&position_ids[..], &position_ids].concat()).unwrap();
            let mut out = device.zeros::<bf16>(2 * tokens * K).unwrap();
            let both = DecoderLayer::new(layer.weights(), HEADS, layer.angles(&twice)).sequences(2);
            both.launch(&device, &x, &mut out).unwrap();
            let got = out.download().unwrap();
            assert!(got.iter().all(|y| y.is_finite()), "{tokens} tokens on {device}");
            let first = device.upload(&x.download().unwrap()[..tokens * K]).unwrap();
            let mut alone = device.zeros::<bf16>(tokens * K).unwrap();
            let one = DecoderLayer::new(layer.weights(), HEADS, layer.angles(&positions));
            one.launch(&device, &first, &mut alone).unwrap();
            let expected = layer.step_by_step(&device, &first, &positions);
            assert_eq!(alone.download().unwrap(), expected, "{tokens} tokens on {device}");
            if device == Device::cpu() {
                assert_eq!(got[..tokens * K], expected, "the first of two sequences of {tokens} tokens");
            }
        }
    }
}

#[test]
fn launches_are_counted_and_what_does_not_fit_is_named() {
    let device = Device::cpu();
    let layer = Layer::new(&device);
    let positions = device.zeros::<i32>(3).unwrap();
    let decoder = DecoderLayer::new(layer.weights(), HEADS, layer.angles(&positions));
    let [ours, separate] = decoder.cost(&device);
    assert_eq!((ours.launches, separate.launches), (9, 16));
    assert!(ours.bytes < separate.bytes, "{ours:?}, {separate:?}");
    let (x, mut out) = (device.zeros::<bf16>(3 * K).unwrap(), device.zeros::<bf16>(3 * K).unwrap());
    assert_eq!(
        decoder.sequences(2).launch(&device, &x, &mut out).unwrap_err().to_string(),
        "decoder_layer: 3 tokens are no 2 sequences of one length"
    );
    let short = device.zeros::<bf16>(2 * K).unwrap();
    assert_eq!(
        decoder.launch(&device, &short, &mut out).unwrap_err().to_string(),
        "decoder_layer: x has the shape [96], expected [144]"
    );
}

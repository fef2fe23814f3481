//! `feed_forward`.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::feed_forward::{Down, FeedForward, GatedFeedForward, gated_reference, reference};
use fused_kernels::float::LibraryFloat;
use fused_kernels::form::Cost;
use fused_kernels::norm_linear::{FoldedLinear, HostLayer, Norm};
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal};

/// Rows, elements of a row and of the middle.
const SHAPES: [[usize; 3]; 5] = [[1, 64, 96], [16, 136, 72], [33, 40, 64], [3, 7, 5], [0, 8, 8]];

#[track_caller]
fn check<T: LibraryFloat>() {
    for ([rows, k, f], gated) in SHAPES.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
        let columns = if gated { 2 * f } else { f };
        let scaled = |len: usize, seed: u64, by: f64| -> Vec<T> {
            normal::<f64>(len, seed).into_iter().map(|x| T::from_f64(x * by)).collect()
        };
        let (x, gamma, beta) = (normal::<T>(rows * k, 1), normal::<T>(k, 2), normal::<T>(k, 3));
        let (up, up_bias) = (scaled(k * columns, 4, 0.1), normal::<T>(columns, 5));
        let (down, down_bias) = (scaled(f * k, 6, 0.1), normal::<T>(k, 7));
        let host = HostLayer {
            gamma: &gamma,
            beta: (!gated).then_some(&beta[..]),
            weight: &up,
            bias: &up_bias,
            eps: 1e-5,
        };
        let expected = if gated {
            gated_reference::<T>(&x, host, Activation::Silu, [&down, &down_bias])
        } else {
            reference::<T>(&x, host, Activation::Gelu, [&down, &down_bias])
        };
        for device in devices() {
            let [x, gamma, beta, up, up_bias, down, down_bias] =
                [&x, &gamma, &beta, &up, &up_bias, &down, &down_bias].map(|of| device.upload(of).unwrap());
            let norm = if gated {
                Norm::Rms { gamma: gamma.slice(..) }
            } else {
                Norm::Layer { gamma: gamma.slice(..), beta: beta.slice(..) }
            };
            let first =
                FoldedLinear::new(&device, norm, up.view([k, columns]).unwrap(), Some(up_bias.slice(..)));
            let first = first.unwrap();
            let second = Down { weight: down.view([f, k]).unwrap(), bias: Some(down_bias.slice(..)) };
            let mut out = Guarded::<T>::new(device, rows * k, 0);
            if gated {
                GatedFeedForward::new(&first, second, Activation::Silu)
                    .launch(&device, &x, out.output())
                    .unwrap();
            } else {
                FeedForward::new(&first, second, Activation::Gelu).launch(&device, &x, out.output()).unwrap();
            }
            compare(&out.content(), &expected).unwrap_or_else(|error| {
                panic!("{rows} x {k}, {f} of {} on {device}, gated {gated}: {error}", T::DTYPE)
            });
        }
    }
}

#[test]
fn sub_layers_of_f32_are_as_exact_as_stated() {
    check::<f32>();
}

#[test]
fn sub_layers_of_f16_are_as_exact_as_stated() {
    check::<f16>();
}

#[test]
fn sub_layers_of_bf16_are_as_exact_as_stated() {
    check::<bf16>();
}

#[test]
fn launches_and_bytes_are_counted() {
    let device = Device::cpu();
    let (gamma, up, down) = (
        device.zeros::<f32>(8).unwrap(),
        device.zeros::<f32>(8 * 12).unwrap(),
        device.zeros::<f32>(6 * 8).unwrap(),
    );
    let norm = Norm::Rms { gamma: gamma.slice(..) };
    let first = FoldedLinear::new(&device, norm, up.view([8, 12]).unwrap(), None).unwrap();
    let second = Down { weight: down.view([6, 8]).unwrap(), bias: None };
    let layer = GatedFeedForward::new(&first, second, Activation::Silu);
    let [ours, separate] = layer.cost(&device, 2);
    assert_eq!(ours, Cost { launches: 4, bytes: 4 * (32 + (16 + 96 + 24) + 36 + (12 + 48 + 32)) });
    let matmuls = (16 + 96 + 24) + (12 + 48 + 16);
    assert_eq!(separate, Cost { launches: 6, bytes: 4 * (32 + matmuls + 24 + 36 + 48) });
    let (x, mut out) = (device.zeros::<f32>(16).unwrap(), device.zeros::<f32>(24).unwrap());
    assert_eq!(
        layer.launch(&device, &x, &mut out).unwrap_err().to_string(),
        "feed_forward: x has 16 elements and out has 24"
    );
}

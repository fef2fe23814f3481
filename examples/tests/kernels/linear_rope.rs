//! `linear_rope`: both forms, on the CPU and the GPU there is, and the order of pairs.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::form::Form;
use fused_kernels::linear_rope::{LinearRope, interleave_pairs, reference};
use fused_kernels::reference::compare;
use fused_kernels::rope::{Angles, HostAngles};

use crate::data::{Guarded, devices, normal, shifted};

/// Rows, terms, heads, rotated heads, pairs of a head.
const CASES: [[usize; 5]; 9] = [
    [16, 256, 3, 2, 32],
    [1, 512, 2, 2, 16],
    [5, 200, 6, 4, 64],
    [70, 136, 3, 3, 32],
    [130, 64, 4, 2, 64],
    [3, 7, 3, 1, 3],
    [1, 1, 1, 1, 1],
    [2, 8, 2, 0, 4],
    [0, 8, 2, 1, 4],
];

/// Angles of 50 positions, which tokens are at in any order.
fn tables(rows: usize, half: usize) -> (Vec<i32>, Vec<f32>, Vec<f32>) {
    let angle = |i: usize| (i / half) as f32 * 1000f32.powf(-((i % half) as f32) / half as f32);
    let (cos, sin) = (0..50 * half).map(|i| (angle(i).cos(), angle(i).sin())).unzip();
    ((0..rows).map(|i| (i * 37 % 50) as i32).collect(), cos, sin)
}

#[track_caller]
fn check<T: LibraryFloat>(forms: &[Form]) {
    for [rows, k, heads, rotated, half] in CASES {
        let (n, rotated) = (heads * 2 * half, rotated * 2 * half);
        let (x, weight, bias) = (normal::<T>(rows * k, 1), normal::<T>(k * n, 2), normal::<T>(n, 3));
        let (positions, cos, sin) = tables(rows, half);
        let host = HostAngles { positions: &positions, cos: &cos, sin: &sin, half, interleaved: true };
        let expected = reference(&x, &weight, &bias, host, rotated);
        for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
            let [x, weight, bias] = [&x, &weight, &bias].map(|of| shifted(device, of, shift));
            let [cos, sin] = [&cos, &sin].map(|of| shifted(device, of, shift));
            let positions = shifted(device, &positions, shift);
            let angles = Angles {
                positions: positions.slice(shift..),
                cos: cos.slice(shift..),
                sin: sin.slice(shift..),
                half,
            };
            let weight = weight.slice(shift..).view([k, n]).unwrap();
            for &form in forms {
                let mut out = Guarded::<T>::new(device, rows * n, shift);
                let layer = LinearRope::new(x.slice(shift..), weight, angles);
                let layer = layer.bias(bias.slice(shift..)).rotated(rotated);
                layer.launch_as(&device, out.output(), form).unwrap();
                let found = compare(&out.content(), &expected);
                let what =
                    format!("{form:?}, {rows} x {k} x {n} of {} on {device}, shifted by {shift}", T::DTYPE);
                found.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
        }
    }
}

#[test]
fn rotated_layers_of_f32_are_as_exact_as_stated() {
    check::<f32>(&[Form::Separate]);
}

#[test]
fn rotated_layers_of_f16_are_as_exact_as_stated() {
    check::<f16>(&[Form::Fused, Form::Separate]);
}

#[test]
fn rotated_layers_of_bf16_are_as_exact_as_stated() {
    check::<bf16>(&[Form::Fused, Form::Separate]);
}

#[test]
fn halves_of_heads_become_adjacent_pairs() {
    let ([k, n, rotated, half], device) = ([3, 14, 8, 2], Device::cpu());
    let weight: Vec<f32> = (0..n * k).map(|i| i as f32).collect();
    let mut out = device.zeros::<f32>(n * k).unwrap();
    let uploaded = device.upload(&weight).unwrap();
    interleave_pairs(&device, uploaded.slice(..), [k, rotated, half], &mut out).unwrap();
    let rows: Vec<usize> = out.download().unwrap().chunks(k).map(|row| row[0] as usize / k).collect();
    assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11, 12, 13]);
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let (x, weight) = (device.zeros::<f32>(16).unwrap(), device.zeros::<f32>(8 * 12).unwrap());
    let (positions, table) = (device.zeros::<i32>(2).unwrap(), device.zeros::<f32>(30).unwrap());
    let launch = |half: usize, rotated: usize, len: usize| {
        let angles =
            Angles { positions: positions.slice(..), cos: table.slice(..), sin: table.slice(..), half };
        let mut out = device.zeros::<f32>(len).unwrap();
        let layer = LinearRope::new(&x, weight.view([8, 12]).unwrap(), angles).rotated(rotated);
        layer.launch(&device, &mut out).unwrap_err().to_string()
    };
    assert_eq!(launch(3, 9, 24), "linear_rope: 9 of 12 columns turn, in heads of 6");
    assert_eq!(launch(3, 18, 24), "linear_rope: 18 of 12 columns turn, in heads of 6");
    assert_eq!(launch(3, 12, 25), "linear_rope: out has the shape [25], expected [24]");
    assert_eq!(launch(0, 12, 24), "linear_rope: 0 pairs turn, from 1 to 128 can");
}

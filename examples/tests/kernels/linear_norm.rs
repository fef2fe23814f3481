//! `linear_norm`: both forms, on the CPU and the GPU there is.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::float::LibraryFloat;
use fused_kernels::form::{Cost, Form};
use fused_kernels::linear_norm::{HostLinear, LinearNorm, reference};
use fused_kernels::norm_linear::Norm;
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal, shifted};

/// Rows, terms and columns: tiles that are full, cut and almost empty, for each width of a tile; a single element and none.
const SHAPES: [[usize; 3]; 12] = [
    [64, 128, 128],
    [16, 64, 256],
    [32, 64, 256],
    [70, 136, 120],
    [5, 200, 70],
    [65, 40, 200],
    [17, 33, 129],
    [9, 24, 200],
    [1, 1, 1],
    [0, 8, 8],
    [4, 0, 8],
    [4, 8, 0],
];

/// The parameters and rows of a case; what may be absent is there in some.
struct Data<T> {
    x: Vec<T>,
    weight: Vec<T>,
    bias: Option<Vec<T>>,
    residual: Option<Vec<T>>,
    gamma: Vec<T>,
    beta: Option<Vec<T>>,
}

impl<T: Float> Data<T> {
    fn new([rows, k, n]: [usize; 3], is_layer_norm: bool, has_bias: bool) -> Data<T> {
        Data {
            x: normal(rows * k, 1),
            weight: normal(k * n, 2),
            // Without terms the number of rows is the residual's.
            bias: has_bias.then(|| normal(n, 3)),
            residual: (has_bias || k == 0).then(|| normal(rows * n, 4)),
            gamma: normal(n, 5),
            beta: is_layer_norm.then(|| normal(n, 6)),
        }
    }
}

#[track_caller]
fn check<T: LibraryFloat>(data: &Data<T>, [rows, k, n]: [usize; 3], forms: &[Form], activation: Activation) {
    let Data { x, weight, bias, residual, gamma, beta } = data;
    let eps = 1e-5;
    for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
        let [x, weight, gamma] = [x, weight, gamma].map(|of| shifted(device, of, shift));
        let [bias, residual, beta] =
            [bias, residual, beta].map(|of| of.as_ref().map(|of| shifted(device, of, shift)));
        let norm = match &beta {
            Some(beta) => Norm::Layer { gamma: gamma.slice(shift..), beta: beta.slice(shift..) },
            None => Norm::Rms { gamma: gamma.slice(shift..) },
        };
        let weight = weight.slice(shift..).view([k, n]).unwrap();
        let mut layer = LinearNorm::new(x.slice(shift..), weight, norm).activation(activation).eps(eps);
        if let Some(bias) = &bias {
            layer = layer.bias(bias.slice(shift..));
        }
        if let Some(residual) = &residual {
            layer = layer.residual(residual.slice(shift..));
        }
        for &form in forms {
            let host = HostLinear {
                weight: &data.weight,
                bias: data.bias.as_deref(),
                residual: data.residual.as_deref(),
                gamma: &data.gamma,
                beta: data.beta.as_deref(),
                eps,
            };
            let expected = reference::<T>((&data.x, k), host, activation, form);
            let mut out = Guarded::<T>::new(device, rows * n, shift);
            layer.launch_as(&device, out.output(), form).unwrap();
            let found = compare(&out.content(), &expected);
            let what =
                format!("{form:?}, {rows} x {k} x {n} of {} on {device}, shifted by {shift}", T::DTYPE);
            found.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

fn check_all<T: LibraryFloat>(forms: &[Form]) {
    for shape in SHAPES {
        check::<T>(&Data::new(shape, true, false), shape, forms, Activation::Identity);
        check::<T>(&Data::new(shape, true, true), shape, forms, Activation::Gelu);
        check::<T>(&Data::new(shape, false, true), shape, forms, Activation::Identity);
    }
    let shape = [6, 136, 40];
    check::<T>(&Data::new(shape, true, false), shape, forms, Activation::Relu);
    check::<T>(&Data::new(shape, true, false), shape, forms, Activation::GeluTanh);
    check::<T>(&Data::new(shape, false, false), shape, forms, Activation::Gelu);
    check::<T>(&Data::new(shape, false, false), shape, forms, Activation::Silu);
}

#[test]
fn linear_layers_of_f32_before_norms_are_as_exact_as_stated() {
    check_all::<f32>(&[Form::Separate]);
}

#[test]
fn linear_layers_of_f16_before_norms_are_as_exact_as_stated() {
    check_all::<f16>(&[Form::Fused, Form::Separate]);
}

#[test]
fn linear_layers_of_bf16_before_norms_are_as_exact_as_stated() {
    check_all::<bf16>(&[Form::Fused, Form::Separate]);
}

/// Rows that are too few for the SMs, and rows that occupy them, for both tiles of a width on any device.
#[test]
fn few_and_many_rows_are_as_exact_as_stated() {
    for (rows, n) in [(20, 100), (20, 256), (4300, 100), (4300, 160)] {
        let shape = [rows, 16, n];
        let data = Data::<bf16>::new(shape, true, true);
        // As many CPU cores as a GPU has SMs.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(64).build().unwrap();
        pool.install(|| check::<bf16>(&data, shape, &[Form::Fused], Activation::Gelu));
    }
}

#[test]
fn long_rows_are_as_exact_as_stated() {
    let shape = [3, 24, 1000];
    check::<f16>(&Data::new(shape, true, true), shape, &[Form::Separate], Activation::Gelu);
    check::<f16>(&Data::new(shape, false, false), shape, &[Form::Separate], Activation::Identity);
}

#[test]
fn columns_of_weights_may_be_contiguous() {
    let ([rows, k, n], eps) = ([18, 72, 96], 1e-5);
    let data = Data::<f16>::new([rows, k, n], true, false);
    let columns: Vec<f16> = (0..n * k).map(|i| data.weight[i % k * n + i / k]).collect();
    let beta = data.beta.as_deref();
    let host = HostLinear { weight: &data.weight, bias: None, residual: None, gamma: &data.gamma, beta, eps };
    for device in devices() {
        let [x, columns, gamma] = [&data.x, &columns, &data.gamma].map(|of| device.upload(of).unwrap());
        let beta = device.upload(beta.unwrap()).unwrap();
        let norm = Norm::Layer { gamma: gamma.slice(..), beta: beta.slice(..) };
        let weight = columns.view([n, k]).unwrap().permute([1, 0]);
        for form in [Form::Fused, Form::Separate] {
            let mut out = device.zeros::<f16>(rows * n).unwrap();
            LinearNorm::new(&x, weight, norm).launch_as(&device, &mut out, form).unwrap();
            let expected = reference::<f16>((&data.x, k), host, Activation::Identity, form);
            let found = compare(&out.download().unwrap(), &expected);
            found.unwrap_or_else(|error| panic!("{form:?} on {device}: {error}"));
        }
    }
}

/// A row of zeros, one whose sums are all the same, and sums far from zero.
#[test]
fn constant_rows_are_as_exact_as_stated() {
    let shape @ [_, k, n] = [3, 64, 104];
    for is_layer_norm in [true, false] {
        let mut data = Data::<f16>::new(shape, is_layer_norm, false);
        data.x[..k].fill(f16::ZERO);
        data.x[2 * k..].iter_mut().for_each(|x| *x += f16::from_f32(20.0));
        check::<f16>(&data, shape, &[Form::Fused, Form::Separate], Activation::Identity);
        // Weights that are the same in all columns.
        for (i, weight) in data.weight.iter_mut().enumerate() {
            *weight = f16::from_f32(0.03 * (i / n) as f32);
        }
        check::<f16>(&data, shape, &[Form::Fused, Form::Separate], Activation::Gelu);
    }
}

#[test]
fn a_row_with_nan_leaves_others_alone() {
    let ([rows, k, n], device) = ([3, 64, 32], Device::cpu());
    let mut data = Data::<bf16>::new([rows, k, n], true, false);
    data.x[k + 5] = bf16::NAN;
    let [gamma, weight, x] = [&data.gamma, &data.weight, &data.x].map(|of| device.upload(of).unwrap());
    let beta = device.upload(&data.beta.unwrap()).unwrap();
    let norm = Norm::Layer { gamma: gamma.slice(..), beta: beta.slice(..) };
    for form in [Form::Fused, Form::Separate] {
        let mut out = device.zeros::<bf16>(rows * n).unwrap();
        let layer = LinearNorm::new(&x, weight.view([k, n]).unwrap(), norm).activation(Activation::Gelu);
        layer.launch_as(&device, &mut out, form).unwrap();
        let out = out.download().unwrap();
        let is_nan: Vec<bool> = out.chunks(n).map(|row| row.iter().all(|y| y.is_nan())).collect();
        assert_eq!(is_nan, [false, true, false], "{form:?}");
        assert!(out[..n].iter().chain(&out[2 * n..]).all(|y| y.is_finite()), "{form:?}");
    }
}

#[test]
fn launches_and_bytes_are_counted() {
    let device = Device::cpu();
    let (x, weight) = (device.zeros::<f32>(16).unwrap(), device.zeros::<f32>(8 * 3).unwrap());
    let (gamma, residual) = (device.zeros::<f32>(3).unwrap(), device.zeros::<f32>(6).unwrap());
    let norm = Norm::Rms { gamma: gamma.slice(..) };
    let layer = LinearNorm::new(&x, weight.view([8, 3]).unwrap(), norm)
        .activation(Activation::Gelu)
        .residual(&residual);
    let [ours, separate] = layer.cost(&device, 2);
    assert_eq!(ours, Cost { launches: 2, bytes: 4 * ((16 + 24 + 6 + 6) + 12) });
    assert_eq!(separate, Cost { launches: 4, bytes: 4 * ((16 + 24 + 6) + 18 + 12 + 12) });
    for device in devices().into_iter().filter(|device| device.has_wgmma()) {
        let (gamma, weight) = (device.zeros::<bf16>(128).unwrap(), device.zeros::<bf16>(1 << 14).unwrap());
        let x = device.zeros::<bf16>(128).unwrap();
        let norm = Norm::Rms { gamma: gamma.slice(..) };
        let layer = LinearNorm::new(&x, weight.view([128, 128]).unwrap(), norm).activation(Activation::Gelu);
        assert_eq!(layer.cost(&device, 1)[0].launches, 1, "a small layer on {device}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let memory = device.zeros::<f32>(64).unwrap();
    let weight = memory.view([8, 3]).unwrap();
    let norm =
        |gamma: usize, beta: usize| Norm::Layer { gamma: memory.slice(..gamma), beta: memory.slice(..beta) };
    let layer = |norm| LinearNorm::new(memory.slice(..16), weight, norm).activation(Activation::Gelu);
    let mut out = device.zeros::<f32>(9).unwrap();
    let mut said = |layer: LinearNorm<'_, f32>, len: usize, form: Form| {
        layer.launch_as(&device, out.slice_mut(..len), form).unwrap_err().to_string()
    };
    let separate = Form::Separate;
    let found = said(layer(norm(3, 3)), 7, separate);
    assert_eq!(found, "linear_norm: out has 7 elements, which are no whole rows of 3");
    let found = said(layer(norm(3, 3)), 9, separate);
    assert_eq!(found, "linear_norm: x has the shape [16], expected [24]");
    let found = said(layer(norm(4, 3)), 6, separate);
    assert_eq!(found, "linear_norm: gamma has the shape [4], expected [3]");
    let found = said(layer(norm(3, 2)), 6, separate);
    assert_eq!(found, "linear_norm: beta has the shape [2], expected [3]");
    let found = said(layer(norm(3, 3)).bias(memory.slice(..2)), 6, separate);
    assert_eq!(found, "linear_norm: bias has the shape [2], expected [3]");
    let found = said(layer(norm(3, 3)).residual(memory.slice(..5)), 6, separate);
    assert_eq!(found, "linear_norm: residual has 5 elements and out has 6");
    let found = said(layer(norm(3, 3)), 6, Form::Fused);
    assert_eq!(found, "linear_norm: there is no fused form of f32, only of f16 and bf16");
    let halves = device.zeros::<bf16>(600).unwrap();
    let norm = Norm::Rms { gamma: halves.slice(..) };
    let layer =
        LinearNorm::new(halves.slice(..1), halves.view([1, 600]).unwrap(), norm).activation(Activation::Gelu);
    let mut out = device.zeros::<bf16>(600).unwrap();
    assert_eq!(
        layer.launch_as(&device, &mut out, Form::Fused).unwrap_err().to_string(),
        "linear_norm: rows have 600 columns, the most of the fused form is 256"
    );
}

//! `norm_linear`: both forms, on the CPU and the GPU there is.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::float::LibraryFloat;
use fused_kernels::form::Form;
use fused_kernels::norm_linear::{FoldedLinear, HostLayer, Norm, NormLinear, reference};
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal, shifted};

/// Rows, terms and columns: tiles that are full, cut and almost empty, a single element and none.
const SHAPES: [[usize; 3]; 9] = [
    [16, 256, 64],
    [1, 4096, 96],
    [5, 200, 70],
    [17, 264, 65],
    [33, 1000, 32],
    [3, 7, 5],
    [1, 1, 1],
    [0, 8, 8],
    [4, 8, 0],
];

/// The parameters and rows of a case.
struct Data<T> {
    x: Vec<T>,
    gamma: Vec<T>,
    beta: Option<Vec<T>>,
    weight: Vec<T>,
    bias: Vec<T>,
}

impl<T: Float> Data<T> {
    fn new([rows, k, n]: [usize; 3], is_layer_norm: bool) -> Data<T> {
        Data {
            x: normal(rows * k, 1),
            gamma: normal(k, 2),
            beta: is_layer_norm.then(|| normal(k, 3)),
            weight: normal(k * n, 4),
            bias: normal(n, 5),
        }
    }
}

#[track_caller]
fn check<T: LibraryFloat>(data: &Data<T>, [rows, k, n]: [usize; 3], forms: &[Form], activation: Activation) {
    let Data { x, gamma, beta, weight, bias } = data;
    let eps = 1e-5;
    let layer = HostLayer { gamma, beta: beta.as_deref(), weight, bias, eps };
    let expected = reference::<T>(x, layer, activation);
    for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
        let [gamma, weight, bias, x] = [gamma, weight, bias, x].map(|of| shifted(device, of, shift));
        let beta = beta.as_ref().map(|beta| shifted(device, beta, shift));
        let norm = match &beta {
            Some(beta) => Norm::Layer { gamma: gamma.slice(shift..), beta: beta.slice(shift..) },
            None => Norm::Rms { gamma: gamma.slice(shift..) },
        };
        let weight = weight.slice(shift..).view([k, n]).unwrap();
        let folded = FoldedLinear::new(&device, norm, weight, Some(bias.slice(shift..))).unwrap();
        for &form in forms {
            let mut out = Guarded::<T>::new(device, rows * n, shift);
            let layer = NormLinear::new(x.slice(shift..), &folded).activation(activation).eps(eps);
            layer.launch_as(&device, out.output().view_mut([rows, n]).unwrap(), form).unwrap();
            let found = compare(&out.content(), &expected);
            let what =
                format!("{form:?}, {rows} x {k} x {n} of {} on {device}, shifted by {shift}", T::DTYPE);
            found.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

fn check_all<T: LibraryFloat>(forms: &[Form]) {
    for shape in SHAPES {
        for is_layer_norm in [false, true] {
            check::<T>(&Data::new(shape, is_layer_norm), shape, forms, Activation::Identity);
        }
    }
    let shape = [6, 136, 40];
    check::<T>(&Data::new(shape, true), shape, forms, Activation::Relu);
    check::<T>(&Data::new(shape, false), shape, forms, Activation::Gelu);
    check::<T>(&Data::new(shape, false), shape, forms, Activation::Silu);
}

#[test]
fn norms_of_f32_before_linear_layers_are_as_exact_as_stated() {
    check_all::<f32>(&[Form::Separate]);
}

#[test]
fn norms_of_f16_before_linear_layers_are_as_exact_as_stated() {
    check_all::<f16>(&[Form::Fused, Form::Separate]);
}

#[test]
fn norms_of_bf16_before_linear_layers_are_as_exact_as_stated() {
    check_all::<bf16>(&[Form::Fused, Form::Separate]);
}

/// Wide enough for both tiles of the fused kernel on any GPU.
#[test]
fn wide_layers_are_as_exact_as_stated() {
    let shape = [2, 64, 32 * 700];
    check::<bf16>(&Data::new(shape, false), shape, &[Form::Fused], Activation::Identity);
}

#[test]
fn rows_of_one_number_and_far_from_zero_are_as_exact_as_stated() {
    let shape = [3, 512, 48];
    let mut data = Data::<f16>::new(shape, true);
    data.x[..512].fill(f16::ZERO);
    data.x[512..1024].fill(f16::from_f32(3.5));
    data.x[1024..].iter_mut().for_each(|x| *x += f16::from_f32(100.0));
    check::<f16>(&data, shape, &[Form::Fused, Form::Separate], Activation::Identity);
}

#[test]
fn a_row_with_nan_leaves_others_alone() {
    let ([rows, k, n], device) = ([3, 64, 32], Device::cpu());
    let mut data = Data::<bf16>::new([rows, k, n], true);
    data.x[k + 5] = bf16::NAN;
    let [gamma, weight, x] = [&data.gamma, &data.weight, &data.x].map(|of| device.upload(of).unwrap());
    let beta = device.upload(&data.beta.unwrap()).unwrap();
    let norm = Norm::Layer { gamma: gamma.slice(..), beta: beta.slice(..) };
    let folded = FoldedLinear::new(&device, norm, weight.view([k, n]).unwrap(), None).unwrap();
    for form in [Form::Fused, Form::Separate] {
        let mut out = device.zeros::<bf16>(rows * n).unwrap();
        let layer = NormLinear::new(&x, &folded);
        layer.launch_as(&device, out.view_mut([rows, n]).unwrap(), form).unwrap();
        let out = out.download().unwrap();
        let is_nan: Vec<bool> = out.chunks(n).map(|row| row.iter().all(|y| y.is_nan())).collect();
        assert_eq!(is_nan, [false, true, false], "{form:?}");
        assert!(out[..n].iter().chain(&out[2 * n..]).all(|y| y.is_finite()), "{form:?}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let (gamma, weight) = (device.zeros::<f32>(8).unwrap(), device.zeros::<f32>(24).unwrap());
    let fold = |gamma: Slice<'_, f32>, bias: usize| {
        let bias = device.zeros::<f32>(bias).unwrap();
        FoldedLinear::new(&device, Norm::Rms { gamma }, weight.view([8, 3]).unwrap(), Some(bias.slice(..)))
    };
    let said = |error: dsl_runtime::Error| error.to_string();
    assert_eq!(
        said(fold(gamma.slice(..7), 3).unwrap_err()),
        "norm_linear: gamma has the shape [7], expected [8]"
    );
    assert_eq!(
        said(fold(gamma.slice(..), 2).unwrap_err()),
        "norm_linear: bias has the shape [2], expected [3]"
    );
    let folded = fold(gamma.slice(..), 3).unwrap();
    let (x, mut out) = (device.zeros::<f32>(16).unwrap(), device.zeros::<f32>(9).unwrap());
    let mut launch = |form: Form, shape: [usize; 2]| {
        let mut out = out.slice_mut(..shape[0] * shape[1]);
        let out = out.view_mut(shape).unwrap();
        said(NormLinear::new(&x, &folded).launch_as(&device, out, form).unwrap_err())
    };
    assert_eq!(launch(Form::Separate, [2, 4]), "norm_linear: out has the shape [2, 4], expected [2, 3]");
    assert_eq!(launch(Form::Separate, [3, 3]), "norm_linear: x has the shape [16], expected [24]");
    assert_eq!(
        launch(Form::Fused, [2, 3]),
        "norm_linear: there is no fused form of f32, only of f16 and bf16"
    );
}

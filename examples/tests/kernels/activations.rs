//! The kernels that are generic over an activation: `add_activation`, `bias_activation`, `act_and_mul`, `swiglu_backward`;
//! and `scale_relu`.

use dsl_runtime::prelude::*;
use fused_kernels::act_and_mul::{self, ActAndMul, Gate, SwigluBackward};
use fused_kernels::activation::Activation;
use fused_kernels::add_activation::{self, AddActivation};
use fused_kernels::bias_activation::{self, BiasActivation};
use fused_kernels::float::LibraryFloat;
use fused_kernels::scale_relu::{self, ScaleRelu};

use crate::data::{check, check_on, devices, normal};

const LENGTHS: [usize; 8] = [0, 1, 7, 1000, 2048, 2049, 4097, 50_003];

/// Numbers from far in the negative tail to far in the other one.
fn wide<T: Float>(len: usize, seed: u64) -> Vec<T> {
    normal::<T>(len, seed).iter().map(|x| T::from_f64(x.to_f64() * 4.0)).collect()
}

fn check_scale_relu<T: LibraryFloat>() {
    for n in LENGTHS {
        let x = normal::<T>(n, 1);
        let expected = [scale_relu::reference(&x, 1.7, -0.3)];
        check(&format!("{n} elements"), &[&x], &expected, |on, inputs, outs| {
            ScaleRelu::new(inputs[0]).scale(1.7).bias(-0.3).launch(on, &mut outs[0])
        });
    }
    let x = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-30].map(T::from_f64);
    check("special numbers", &[&x], &[scale_relu::reference(&x, 2.0, 1.0)], |on, inputs, outs| {
        ScaleRelu::new(inputs[0]).scale(2.0).bias(1.0).launch(on, &mut outs[0])
    });
    for (rows, cols) in [(0, 3), (1, 1), (100, 7), (33, 128), (5, 129), (3, 1000), (2, 4096), (3, 9001)] {
        let (mut x, bias) = (normal::<T>(rows * cols, 1), normal::<T>(cols, 2));
        x.iter_mut().skip(3).take(1).for_each(|x| *x = T::from_f64(f64::NAN));
        let expected = [scale_relu::column_reference(&x, 1.7, &bias)];
        check(&format!("{rows} rows of {cols}"), &[&x, &bias], &expected, |on, inputs, outs| {
            ScaleRelu::new(inputs[0]).scale(1.7).column_bias(inputs[1]).launch(on, &mut outs[0])
        });
    }
}

#[test]
fn scale_relu_is_as_exact_as_stated() {
    check_scale_relu::<f32>();
    check_scale_relu::<f16>();
    check_scale_relu::<bf16>();
}

fn check_add<T: LibraryFloat>(activation: Activation) {
    for n in LENGTHS {
        let (x, y) = (wide::<T>(n, 1), wide::<T>(n, 2));
        let expected = [add_activation::reference::<T>(&x, &y, activation)];
        check(&format!("{activation} of {n} elements"), &[&x, &y], &expected, |on, inputs, outs| {
            AddActivation::new(inputs[0], inputs[1], activation).launch(on, &mut outs[0])
        });
    }
}

fn check_adds<T: LibraryFloat>() {
    check_add::<T>(Activation::Relu);
    check_add::<T>(Activation::Gelu);
    check_add::<T>(Activation::GeluTanh);
    check_add::<T>(Activation::Silu);
}

#[test]
fn add_activation_is_as_exact_as_stated() {
    check_adds::<f32>();
    check_adds::<f16>();
    check_adds::<bf16>();
}

/// Every 64th `f32` from -16 to 16: the tail keeps its digits.
#[test]
fn activations_keep_their_digits_in_the_tail() {
    fn check_one(least_digits: f64, activation: Activation) {
        let up_to = 16f32.to_bits();
        let x: Vec<f32> = (0..up_to)
            .step_by(4096)
            .flat_map(|bits| [1.0, -1.0].map(|sign| sign * f32::from_bits(bits)))
            .collect();
        let zeros = vec![0.0f32; x.len()];
        let expected = [add_activation::reference::<f32>(&x, &zeros, activation)];
        check("the tail", &[&x, &zeros], &expected, |on, inputs, outs| {
            AddActivation::new(inputs[0], inputs[1], activation).launch(on, &mut outs[0])
        });
        let bound = activation.exact(-5.0, DType::F32);
        assert!(bound.within / bound.value.abs() < least_digits, "the bound itself says something");
    }
    check_one(1e-5, Activation::Gelu);
    check_one(1e-5, Activation::GeluTanh);
    check_one(2e-6, Activation::Silu);
}

/// A launch of two inputs and one output.
type Run<'l> = &'l dyn Fn(&Device, &[Slice<f32>], &mut [SliceMut<f32>]) -> dsl_runtime::Result<()>;

#[test]
fn special_numbers_pass_through_activations() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, f32::MAX, -f32::MAX, 1e-40];
    let zeros = [0.0f32; 7];
    for device in devices() {
        let run = |launch: Run| {
            let (x, zeros) = (device.upload(&x).unwrap(), device.upload(&zeros).unwrap());
            let mut out = device.zeros::<f32>(7).unwrap();
            launch(&device, &[x.slice(..), zeros.slice(..)], &mut [out.slice_mut(..)]).unwrap();
            out.download().unwrap()
        };
        let relu = run(&|on, i, o| AddActivation::new(i[0], i[1], Activation::Relu).launch(on, &mut o[0]));
        let gelu = run(&|on, i, o| AddActivation::new(i[0], i[1], Activation::Gelu).launch(on, &mut o[0]));
        assert_eq!(relu[1..], [f32::INFINITY, 0.0, 0.0, f32::MAX, 0.0, 1e-40], "{device}");
        assert!(relu[0].is_nan(), "{device}");
        let tanh =
            run(&|on, i, o| AddActivation::new(i[0], i[1], Activation::GeluTanh).launch(on, &mut o[0]));
        let silu = run(&|on, i, o| AddActivation::new(i[0], i[1], Activation::Silu).launch(on, &mut o[0]));
        for out in [gelu, tanh, silu] {
            assert!(out[0].is_nan(), "{device}");
            assert_eq!([out[1], out[4]], [f32::INFINITY, f32::MAX], "{device}");
            assert!([2, 3, 5, 6].iter().all(|&i| out[i].abs() < f32::MIN_POSITIVE), "{device}: {out:?}");
        }
    }
}

fn check_bias<T: LibraryFloat>(activation: Activation) {
    for (rows, cols) in
        [(0, 3), (1, 1), (100, 7), (33, 128), (5, 129), (3, 1000), (5, 1024), (2, 4096), (3, 9001)]
    {
        let (x, bias) = (wide::<T>(rows * cols, 1), normal::<T>(cols, 2));
        let expected = [bias_activation::reference::<T>(&x, &bias, activation)];
        check(&format!("{activation} of {rows} x {cols}"), &[&x, &bias], &expected, |on, inputs, outs| {
            BiasActivation::new(inputs[0], inputs[1], activation).launch(on, &mut outs[0])
        });
    }
}

#[test]
fn bias_activation_is_as_exact_as_stated() {
    check_bias::<f32>(Activation::Identity);
    check_bias::<f32>(Activation::Gelu);
    check_bias::<f16>(Activation::Relu);
    check_bias::<f16>(Activation::GeluTanh);
    check_bias::<bf16>(Activation::Silu);
    check_bias::<bf16>(Activation::Gelu);
}

const HALVES: [(usize, usize); 7] = [(0, 4), (1, 1), (3, 7), (2, 1000), (3, 2048), (2, 2049), (3, 5000)];

fn check_act_and_mul<T: LibraryFloat>(activation: Activation) {
    for (rows, d) in HALVES {
        for gate in [Gate::First, Gate::Second] {
            let x = wide::<T>(rows * 2 * d, 1);
            let expected = [act_and_mul::reference::<T>(&x, d, activation, gate)];
            check(&format!("{activation} of {rows} x 2 x {d}"), &[&x], &expected, |on, inputs, outs| {
                ActAndMul::new(inputs[0], d, activation).gate(gate).launch(on, &mut outs[0])
            });
        }
    }
}

#[test]
fn act_and_mul_is_as_exact_as_stated() {
    check_act_and_mul::<f32>(Activation::Silu);
    check_act_and_mul::<f32>(Activation::Gelu);
    check_act_and_mul::<f16>(Activation::GeluTanh);
    check_act_and_mul::<f16>(Activation::Silu);
    check_act_and_mul::<bf16>(Activation::Silu);
    check_act_and_mul::<bf16>(Activation::GeluTanh);
}

fn check_swiglu_backward<T: LibraryFloat>() {
    for (rows, d) in HALVES {
        for gate in [Gate::First, Gate::Second] {
            let (dy, x) = (normal::<T>(rows * d, 2), wide::<T>(rows * 2 * d, 1));
            let expected = [act_and_mul::backward_reference(&dy, &x, d, gate)];
            check(&format!("{rows} x 2 x {d}"), &[&dy, &x], &expected, |on, inputs, outs| {
                SwigluBackward::new(inputs[0], inputs[1], d).gate(gate).launch(on, &mut outs[0])
            });
        }
    }
}

#[test]
fn swiglu_backward_is_as_exact_as_stated() {
    check_swiglu_backward::<f32>();
    check_swiglu_backward::<f16>();
    check_swiglu_backward::<bf16>();
}

/// The reference itself: a gradient is what the function's values differ by.
#[test]
fn swiglu_backward_is_the_slope_of_swiglu() {
    let d = 50;
    let (x, dy) = (normal::<f64>(2 * d, 1), vec![1.0f64; d]);
    let gradient = act_and_mul::backward_reference(&dy, &x, d, Gate::First);
    let value = |x: &[f64]| -> f64 {
        act_and_mul::reference::<f64>(x, d, Activation::Silu, Gate::First).iter().map(|e| e.value).sum()
    };
    for i in 0..2 * d {
        let (mut up, mut down) = (x.clone(), x.clone());
        up[i] += 1e-6;
        down[i] -= 1e-6;
        let slope = (value(&up) - value(&down)) / 2e-6;
        assert!((slope - gradient[i].value).abs() < 1e-7, "{i}: {slope} and {}", gradient[i].value);
    }
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let say = |result: dsl_runtime::Result<()>| result.unwrap_err().to_string();
    let (long, short) = ([1.0f32; 8], [1.0f32; 7]);
    let mut out = [0.0f32; 8];
    assert_eq!(
        say(ScaleRelu::new(&short).launch(&device, &mut out)),
        "scale_relu: x has 7 elements and out has 8"
    );
    assert_eq!(
        say(ScaleRelu::new(&long).column_bias(&[1.0f32; 3]).launch(&device, &mut out)),
        "scale_relu: x has 8 elements, which are no whole rows of 3"
    );
    assert_eq!(
        say(AddActivation::new(&long, &short, Activation::Relu).launch(&device, &mut out)),
        "add_activation: y has 7 elements and out has 8"
    );
    assert_eq!(
        say(BiasActivation::new(&long, &[1.0f32; 3], Activation::Relu).launch(&device, &mut out)),
        "bias_activation: x has 8 elements, which are no whole rows of 3"
    );
    assert_eq!(
        say(ActAndMul::new(&long, 4, Activation::Silu).launch(&device, &mut out)),
        "act_and_mul: half of x has 4 elements and out has 8"
    );
    assert_eq!(
        say(ActAndMul::new(&long, 4, Activation::Relu).launch(&device, &mut out[..4])),
        "act_and_mul: there is no kernel with the activation ReLU, expected one of GELU, GELU-tanh, SiLU"
    );
    assert_eq!(
        say(SwigluBackward::new(&long, &long, 4).launch(&device, &mut out)),
        "swiglu_backward: half of x has 4 elements and dy has 8"
    );
    check_on(device, 0, "all is well", &[&long], &[scale_relu::reference(&long, 1.0, 0.0)], &|on, i, o| {
        ScaleRelu::new(i[0]).launch(on, &mut o[0])
    });
}

//! `fused_kernels::fusion_flags`.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::fusion_flags::{BiasRelu, reference};

use crate::data::{check, normal};

fn check_flags<T: LibraryFloat, const RELU: bool>() {
    for n in [0, 1, 7, 1000, 2048, 2049, 50_003] {
        let (mut x, bias) = (normal::<T>(n, 1), normal::<T>(n, 2));
        for (x, special) in x.iter_mut().skip(3).zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
            *x = T::from_f64(special);
        }
        let what = format!("{n} elements, ReLU {RELU}");
        check(&what, &[&x], &[reference::<T, RELU>(&x, None)], |on, inputs, outs| {
            BiasRelu::<T, false, RELU>::new(inputs[0]).launch(on, &mut outs[0])
        });
        check(&what, &[&x, &bias], &[reference::<T, RELU>(&x, Some(&bias))], |on, inputs, outs| {
            BiasRelu::<T, true, RELU>::new(inputs[0]).bias(inputs[1]).launch(on, &mut outs[0])
        });
    }
}

#[test]
fn all_flags_are_as_exact_as_stated() {
    check_flags::<f32, false>();
    check_flags::<f32, true>();
    check_flags::<f16, false>();
    check_flags::<f16, true>();
    check_flags::<bf16, false>();
    check_flags::<bf16, true>();
}

#[test]
fn lengths_that_differ_are_an_error_in_words() {
    let device = Device::cpu();
    let (x, bias, mut out) = ([1.0f32; 8], [1.0f32; 7], [0.0f32; 8]);
    let plain = BiasRelu::<f32, true, true>::new(&x);
    let mut say = |op: BiasRelu<f32, true, true>| op.launch(&device, &mut out).unwrap_err().to_string();
    assert_eq!(say(plain), "bias_relu: bias has 0 elements and out has 8");
    assert_eq!(say(plain.bias(&bias)), "bias_relu: bias has 7 elements and out has 8");
    assert_eq!(say(BiasRelu::new(&bias)), "bias_relu: x has 7 elements and out has 8");
}

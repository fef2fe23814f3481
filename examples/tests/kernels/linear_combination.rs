//! `fused_kernels::linear_combination`.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::linear_combination::{LinearCombination, reference};

use crate::data::{check, devices, normal};

const FACTORS: [f32; 3] = [1.7, -0.3, 1e-3];

/// One, two or three inputs, and `x` and `z` alone.
fn check_all<T: LibraryFloat>() {
    let [alpha, beta, gamma] = FACTORS;
    for n in [0, 1, 7, 1000, 2048, 2049, 50_003] {
        let [x, y, z] = [1, 2, 3].map(|seed| normal::<T>(n, seed));
        let (inputs, what) = ([&x[..], &y[..], &z[..]], format!("{n} elements"));
        for given in 1..=3 {
            let expected = [reference(&inputs[..given], &FACTORS)];
            check(&what, &inputs, &expected, |on, inputs, outs| {
                let mut sum = LinearCombination::new(alpha, inputs[0]);
                sum = if given > 1 { sum.y(beta, inputs[1]) } else { sum };
                sum = if given > 2 { sum.z(gamma, inputs[2]) } else { sum };
                sum.launch(on, &mut outs[0])
            });
        }
        check(&what, &inputs, &[reference(&[&x, &z], &[alpha, gamma])], |on, inputs, outs| {
            LinearCombination::new(alpha, inputs[0]).z(gamma, inputs[2]).launch(on, &mut outs[0])
        });
    }
}

#[test]
fn sums_are_as_exact_as_stated() {
    check_all::<f32>();
    check_all::<f16>();
    check_all::<bf16>();
}

#[test]
fn nan_and_infinity_stay_in_their_element() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, f32::MAX, 0.0];
    let y = [1.0, 1.0, f32::INFINITY, f32::NAN, f32::MAX, 0.0];
    check("special numbers", &[&x, &y], &[reference(&[&x, &y], &[1.0, 2.0])], |on, inputs, outs| {
        LinearCombination::new(1.0, inputs[0]).y(2.0, inputs[1]).launch(on, &mut outs[0])
    });
    // What is not given is no number times 0.
    check("one input", &[&x], &[reference(&[&x], &[2.0])], |on, inputs, outs| {
        LinearCombination::new(2.0, inputs[0]).launch(on, &mut outs[0])
    });
    for device in devices() {
        let zeros = device.zeros::<f32>(6).unwrap();
        let mut out = device.zeros::<f32>(6).unwrap();
        let (x, y) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
        LinearCombination::new(0.0, &x).y(1.0, &zeros).launch(&device, &mut out).unwrap();
        let y_alone = out.download().unwrap();
        assert!(y_alone[..3].iter().all(|y| y.is_nan()) && y_alone[3..] == [0.0; 3], "{device}");
        LinearCombination::new(1.0, &y).launch(&device, &mut out).unwrap();
        assert_eq!(out.download().unwrap()[4], f32::MAX, "{device}");
    }
}

#[test]
fn lengths_that_differ_are_an_error_in_words() {
    let device = Device::cpu();
    let (long, short, mut out) = ([1.0f32; 8], [1.0f32; 7], [0.0f32; 8]);
    let mut say = |sum: LinearCombination<f32>| sum.launch(&device, &mut out).unwrap_err().to_string();
    let sum = LinearCombination::new(1.0, &long);
    let error = |name: &str| format!("linear_combination: {name} has 7 elements and out has 8");
    assert_eq!(say(LinearCombination::new(1.0, &short)), error("x"));
    assert_eq!(say(sum.y(1.0, &short)), error("y"));
    assert_eq!(say(sum.y(1.0, &long).z(1.0, &short)), error("z"));
}

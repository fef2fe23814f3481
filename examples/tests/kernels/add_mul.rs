//! `fused_kernels::add_mul` against `f64`, on every device.

use crate::data::{Guarded, devices, normal};
use dsl_runtime::prelude::*;
use fused_kernels::add_mul::{AddMul, reference};
use fused_kernels::float::LibraryFloat;
use fused_kernels::reference::compare;

/// Computes with every input and the output `shift` elements off a boundary, and compares.
fn check_data<T: LibraryFloat>(device: Device, [x, y, z]: [&[T]; 3], shift: usize) {
    let shifted = |values: &[T]| {
        let padded: Vec<T> = vec![T::default(); shift].into_iter().chain(values.iter().copied()).collect();
        device.upload(&padded).unwrap()
    };
    let inputs = [x, y, z].map(shifted);
    let [x_in, y_in, z_in] = [0, 1, 2].map(|i: usize| inputs[i].slice(shift..));
    let mut out = Guarded::new(device, x.len(), shift);
    AddMul::new(x_in, y_in, z_in).launch(&device, out.output()).unwrap();
    if let Err(found) = compare(&out.content(), &reference(x, y, z)) {
        panic!("{} elements of {} on {device}, shifted by {shift}: {found}", x.len(), T::DTYPE);
    }
}

fn check<T: LibraryFloat>() {
    for device in devices() {
        for n in [0, 1, 7, 1000, 1023, 1024, 1025, 4097, 100_003] {
            let [x, y, z] = [1, 2, 3].map(|seed| normal::<T>(n, seed));
            for shift in [0, 1] {
                check_data(device, [&x, &y, &z], shift);
            }
        }
    }
}

#[test]
fn f32_is_as_exact_as_stated() {
    check::<f32>();
}

#[test]
fn f16_is_as_exact_as_stated() {
    check::<f16>();
}

#[test]
fn bf16_is_as_exact_as_stated() {
    check::<bf16>();
}

fn check_specials<T: LibraryFloat>() {
    let specials = [0.0, -0.0, 1.0, -3.5, 1e-7, 300.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let count = specials.len();
    let pick = |stride: usize| -> Vec<T> {
        (0..count.pow(3)).map(|i| T::from_f64(specials[i / stride % count])).collect()
    };
    let [x, y, z] = [1, count, count * count].map(pick);
    for device in devices() {
        check_data(device, [&x, &y, &z], 0);
    }
}

#[test]
fn nan_infinity_and_signs_pass_through() {
    check_specials::<f32>();
    check_specials::<bf16>();
    check_specials::<f16>();
}

#[test]
fn lengths_that_differ_are_an_error_in_words() {
    let device = Device::cpu();
    let (long, short) = (vec![1.0f32; 8], vec![1.0f32; 7]);
    let mut out = vec![0.0f32; 8];
    let mut message = |x: &[f32], y: &[f32], z: &[f32]| {
        AddMul::new(x, y, z).launch(&device, &mut out).map_err(|error| error.to_string())
    };
    assert_eq!(message(&long, &long, &long), Ok(()));
    assert_eq!(message(&short, &long, &long), Err("add_mul: x has 7 elements and out has 8".to_string()));
    assert_eq!(message(&long, &short, &long), Err("add_mul: y has 7 elements and out has 8".to_string()));
    assert_eq!(message(&long, &long, &short), Err("add_mul: z has 7 elements and out has 8".to_string()));
}

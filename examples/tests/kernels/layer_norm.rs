//! `fused_kernels::layer_norm` against `f64`, on every device.

use crate::data::{Guarded, devices, normal};
use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::layer_norm::{LayerNorm, reference};
use fused_kernels::norm_kernels::{BLOCK_TILE, CLUSTER_TILE};
use fused_kernels::reference::compare;

const EPS: f32 = 1e-5;

/// Computes with input and output `shift` elements off a boundary, compares, and gives what was computed.
fn check_data<T: LibraryFloat>(device: Device, [x, gamma, beta]: [&[T]; 3], shift: usize) -> Vec<T> {
    let padded: Vec<T> = vec![T::default(); shift].into_iter().chain(x.iter().copied()).collect();
    let x_in = device.upload(&padded).unwrap();
    let (gamma_in, beta_in) = (device.upload(gamma).unwrap(), device.upload(beta).unwrap());
    let mut out = Guarded::new(device, x.len(), shift);
    LayerNorm::new(x_in.slice(shift..), &gamma_in, &beta_in).eps(EPS).launch(&device, out.output()).unwrap();
    let content = out.content();
    if let Err(found) = compare(&content, &reference(x, gamma, beta, EPS)) {
        let (len, cols) = (x.len(), gamma.len());
        panic!("{len} elements of {} in rows of {cols} on {device}, shifted by {shift}: {found}", T::DTYPE);
    }
    content
}

fn check<T: LibraryFloat>() {
    for device in devices() {
        for cols in [
            1,
            2,
            7,
            100,
            128,
            129,
            300,
            512,
            700,
            768,
            1000,
            1023,
            1024,
            1025,
            2048,
            4097,
            8192,
            16385,
            20_000,
            38_001,
            BLOCK_TILE,
            BLOCK_TILE + 1,
            CLUSTER_TILE + 1,
        ] {
            // Several programs of several short rows, and the last one not as many; enough long ones for one block each.
            for rows in [0, 1, if cols < 1024 || cols == 20_000 { 21 } else { 5 }] {
                let x = normal::<T>(rows * cols, 1);
                let (gamma, beta) = (normal::<T>(cols, 2), normal::<T>(cols, 3));
                for shift in [0, 1] {
                    check_data(device, [&x, &gamma, &beta], shift);
                }
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

/// Clusters take such rows of `f32` one after the other, fewer of them than there are rows.
#[test]
fn rows_that_are_taken_in_turn_are_as_exact_as_stated() {
    let (rows, cols) = (131, 16_392);
    let x = normal::<f32>(rows * cols, 1);
    let (gamma, beta) = (normal::<f32>(cols, 2), normal::<f32>(cols, 3));
    for device in devices() {
        for shift in [0, 1] {
            check_data(device, [&x, &gamma, &beta], shift);
        }
    }
}

/// Fewer rows of this length are shared by the blocks of a cluster.
#[test]
fn many_wide_rows_of_halves_are_as_exact_as_stated() {
    let (rows, cols) = (131, 16_392);
    let x = normal::<bf16>(rows * cols, 1);
    let (gamma, beta) = (normal::<bf16>(cols, 2), normal::<bf16>(cols, 3));
    for device in devices() {
        check_data(device, [&x, &gamma, &beta], 0);
    }
}

#[test]
fn a_mean_far_from_zero_does_not_cancel_the_variance() {
    for cols in [4097, BLOCK_TILE + 4097] {
        let x: Vec<f32> = normal::<f32>(3 * cols, 1).iter().map(|x| x + 1000.0).collect();
        let (gamma, beta) = (vec![1.0; cols], vec![0.0; cols]);
        for device in devices() {
            check_data(device, [&x, &gamma, &beta], 0);
        }
    }
}

#[test]
fn a_constant_row_gives_beta_and_a_nan_stays_in_its_row() {
    for (device, cols) in devices().into_iter().flat_map(|device| [(device, 1000), (device, BLOCK_TILE + 1)])
    {
        let mut x = normal::<f32>(3 * cols, 1);
        x[..cols].fill(0.25);
        x[cols + 17] = f32::NAN;
        let (gamma, beta) = (normal::<f32>(cols, 2), normal::<f32>(cols, 3));
        // A GPU's quotient may miss the mean of a constant row by an ulp; `check_data` knows what that may cost.
        let out = check_data(device, [&x, &gamma, &beta], 0);
        assert!(device.is_cuda() || out[..cols] == beta, "{device}");
        assert!(out[cols..2 * cols].iter().all(|y| y.is_nan()), "{device}");
        assert!(out[2 * cols..].iter().all(|y| y.is_finite()), "{device}");
    }
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let message = |x: usize, gamma: usize, beta: usize, out: usize| {
        let [x, gamma, beta, mut out] = [x, gamma, beta, out].map(|len| vec![1.0f32; len]);
        let launched = LayerNorm::new(&x, &gamma, &beta).launch(&device, &mut out);
        launched.map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("layer_norm: {reason}"));
    assert_eq!(message(12, 4, 4, 12), Ok(()));
    assert_eq!(message(0, 4, 4, 0), Ok(()));
    assert_eq!(message(0, 0, 0, 0), Ok(()));
    assert_eq!(message(12, 4, 4, 11), error("x has 12 elements and out has 11"));
    assert_eq!(message(12, 4, 5, 12), error("gamma has 4 elements and beta has 5"));
    assert_eq!(message(12, 5, 5, 12), error("x has 12 elements, which are no whole rows of 5"));
    assert_eq!(message(12, 0, 0, 12), error("x has 12 elements, which are no whole rows of 0"));
}

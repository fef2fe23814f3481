//! Layer norm of rows.

use dsl_runtime::prelude::*;
use fuse_book::layer_norm::LayerNorm;
use fuse_book::readme::normalized;

use crate::check::{BRAIN, Expected, SINGLE, assert_close, numbers, to_f64};
use fuse_tests::{alone, devices};

const EPS: f32 = 1e-5;

// ANCHOR: reference
/// The norm of a row in `f64`. Mean and variance err by at most `n` roundings each, and the result is rounded to `bf16`.
fn reference(row: &[f64], gamma: &[f32], beta: &[f32]) -> Vec<Expected> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let var = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let rstd = 1.0 / (var + f64::from(EPS)).sqrt();
    let largest = row.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let expected = |(x, (&gamma, &beta)): (&f64, (&f32, &f32))| {
        let (gamma, beta) = (f64::from(gamma), f64::from(beta));
        let value = (x - mean) * rstd * gamma + beta;
        let single = SINGLE * 4.0 * (n + 8.0) * ((1.0 + largest) * rstd * gamma.abs() + beta.abs());
        Expected { value, within: BRAIN * value.abs() + single }
    };
    row.iter().zip(gamma.iter().zip(beta)).map(expected).collect()
}
// ANCHOR_END: reference

#[test]
fn each_row_is_normalized() {
    let _alone = alone();
    for device in devices() {
        for n_cols in [2, 100, 256, 1000] {
            let x = numbers::<bf16>(5 * n_cols, 6);
            let (gamma, beta) = (numbers::<f32>(n_cols, 7), numbers::<f32>(n_cols, 8));
            let (device_gamma, device_beta) = (device.upload(&gamma).unwrap(), device.upload(&beta).unwrap());
            let device_x = device.upload(&x).unwrap();
            let mut out = device.zeros::<bf16>(x.len()).unwrap();
            let norm = LayerNorm { gamma: &device_gamma, beta: &device_beta, eps: EPS };
            norm.launch(&device, &device_x, &mut out).unwrap();
            let expected: Vec<Expected> =
                to_f64(&x).chunks(n_cols).flat_map(|row| reference(row, &gamma, &beta)).collect();
            assert_close(&out.download().unwrap(), &expected);
        }
    }
}

#[test]
fn the_readme_s_kernel_normalizes_rows() {
    let _alone = alone();
    let n_cols = 1500;
    let (x, gamma, beta) =
        (numbers::<f32>(3 * n_cols, 6), numbers::<f32>(n_cols, 7), numbers::<f32>(n_cols, 8));
    let expected: Vec<Expected> =
        to_f64(&x).chunks(n_cols).flat_map(|row| reference(row, &gamma, &beta)).collect();
    // An `f32` result is not rounded to `bf16`.
    let expected: Vec<Expected> = expected
        .into_iter()
        .map(|Expected { value, within }| Expected { value, within: within - BRAIN * value.abs() })
        .collect();
    assert_close(&normalized(&x, &gamma, &beta).unwrap(), &expected);
}

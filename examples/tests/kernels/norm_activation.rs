//! `fused_kernels::norm_activation`.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::float::LibraryFloat;
use fused_kernels::norm_activation::{HostNorm, MAX_TILE, NormActivation, reference};

use crate::data::{check, check_on, devices, normal};

const WIDTHS: [usize; 11] = [1, 7, 256, 257, 1000, 2048, 4097, 8191, 16_384, MAX_TILE, MAX_TILE + 1001];

/// Both norms, with and without a residual.
fn check_rows<T: LibraryFloat>(widths: &[usize], activation: Activation) {
    for &cols in widths {
        for rows in [0, 1, 3] {
            let [x, residual] = [1, 2].map(|seed| normal::<T>(rows * cols, seed));
            let [gamma, beta] = [3, 4].map(|seed| normal::<T>(cols, seed));
            let inputs = [&x[..], &gamma[..], &beta[..], &residual[..]];
            for (is_layer_norm, has_residual) in [(true, false), (false, true), (false, false), (true, true)]
            {
                let norm = HostNorm { gamma: &gamma, beta: is_layer_norm.then_some(&beta[..]), eps: 1e-5 };
                let added = has_residual.then_some(&residual[..]);
                let expected = [reference::<T>(&x, norm, activation, added)];
                let what = format!(
                    "{activation} of {rows} x {cols}, centered {is_layer_norm}, added {has_residual}"
                );
                check(&what, &inputs, &expected, |on, inputs, outs| {
                    let op = if is_layer_norm {
                        NormActivation::layer_norm(inputs[0], inputs[1], inputs[2], activation)
                    } else {
                        NormActivation::rms_norm(inputs[0], inputs[1], activation)
                    };
                    let op = if has_residual { op.residual(inputs[3]) } else { op };
                    op.eps(1e-5).launch(on, &mut outs[0])
                });
            }
        }
    }
}

#[test]
fn f32_is_as_exact_as_stated() {
    check_rows::<f32>(&WIDTHS, Activation::Silu);
    check_rows::<f32>(&[1000], Activation::Gelu);
    check_rows::<f32>(&[1000, MAX_TILE + 1], Activation::GeluTanh);
}

#[test]
fn f16_is_as_exact_as_stated() {
    check_rows::<f16>(&WIDTHS, Activation::Gelu);
    check_rows::<f16>(&[1000], Activation::Relu);
}

#[test]
fn bf16_is_as_exact_as_stated() {
    check_rows::<bf16>(&WIDTHS, Activation::Relu);
    check_rows::<bf16>(&[1000], Activation::Identity);
    check_rows::<bf16>(&[1000], Activation::Silu);
    check_rows::<bf16>(&[1000, MAX_TILE + 1], Activation::GeluTanh);
}

#[test]
fn extremes_stay_in_their_row() {
    for cols in [1000, MAX_TILE + 1000] {
        let mut x = normal::<f16>(5 * cols, 1);
        x[..cols].fill(f16::MAX);
        x[cols + 3] = f16::NAN;
        x[2 * cols + 5] = f16::INFINITY;
        x[3 * cols..4 * cols].fill(f16::ZERO);
        let (gamma, beta) = (vec![f16::ONE; cols], vec![f16::ZERO; cols]);
        for device in devices() {
            let inputs = [&x[..], &gamma[..], &beta[..]];
            let norm = HostNorm { gamma: &gamma[..], beta: Some(&beta[..]), eps: 1e-5 };
            let expected = [reference::<f16>(&x, norm, Activation::Silu, None)];
            let out = check_on(device, 0, "LayerNorm", &inputs, &expected, &|on, inputs, outs| {
                let op = NormActivation::layer_norm(inputs[0], inputs[1], inputs[2], Activation::Silu);
                op.eps(1e-5).launch(on, &mut outs[0])
            });
            let rows: Vec<&[f16]> = out[0].chunks(cols).collect();
            assert!(rows[1..3].iter().all(|row| row.iter().all(|y| y.is_nan())), "{device}");
            assert!(rows[3].iter().all(|y| *y == f16::ZERO), "{device}");
            let norm = HostNorm { beta: None, eps: 1e-6, ..norm };
            let expected = [reference::<f16>(&x, norm, Activation::Relu, None)];
            let out = check_on(device, 0, "RMSNorm", &inputs, &expected, &|on, inputs, outs| {
                NormActivation::rms_norm(inputs[0], inputs[1], Activation::Relu).launch(on, &mut outs[0])
            });
            let rows: Vec<&[f16]> = out[0].chunks(cols).collect();
            assert!(rows[0].iter().all(|y| *y == f16::ONE), "{device}");
            assert!(rows[1].iter().all(|y| y.is_nan()), "{device}");
            assert!(rows[3].iter().all(|y| *y == f16::ZERO), "{device}");
            assert!(rows[4].iter().all(|y| y.is_finite()), "{device}");
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let (x, long, short, mut out) = ([1.0f32; 8], [1.0f32; 4], [1.0f32; 3], [0.0f32; 8]);
    let mut say = |op: NormActivation<f32>| op.launch(&device, &mut out).map_err(|error| error.to_string());
    let error = |reason: &str| Err(format!("norm_activation: {reason}"));
    let op = NormActivation::rms_norm(&x, &long, Activation::Relu);
    assert_eq!(say(op), Ok(()));
    assert_eq!(say(op.residual(&long)), error("x has 8 elements and residual has 4"));
    assert_eq!(
        say(NormActivation::layer_norm(&x, &long, &short, Activation::Relu)),
        error("gamma has 4 elements and beta has 3")
    );
    assert_eq!(
        say(NormActivation::rms_norm(&x, &short, Activation::Relu)),
        error("x has 8 elements, which are no whole rows of 3")
    );
    assert_eq!(
        say(NormActivation::rms_norm(&long, &long, Activation::Relu)),
        error("x has 4 elements and out has 8")
    );
}

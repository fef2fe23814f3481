//! `fused_kernels::norm_activation`.

use dsl_runtime::prelude::*;
use fused_kernels::activation::{GELU, GELU_TANH, IDENTITY, RELU, SILU};
use fused_kernels::norm_activation::{
    MAX_TILE, NormActivation, PIECE, norm_activation, norm_activation_long, reference,
};

use crate::data::{check, check_on, devices, normal};

const WIDTHS: [usize; 11] = [1, 7, 256, 257, 1000, 2048, 4097, 8191, 16_384, MAX_TILE, MAX_TILE + 1001];

/// Both norms, with and without a residual.
fn check_rows<T: Float, const ACT: usize>(widths: &[usize])
where
    norm_activation::Choice<T>: norm_activation::Declared,
    norm_activation_long::Choice<T, PIECE>: norm_activation_long::Declared,
{
    for &cols in widths {
        for rows in [0, 1, 3] {
            let [x, residual] = [1, 2].map(|seed| normal::<T>(rows * cols, seed));
            let [gamma, beta] = [3, 4].map(|seed| normal::<T>(cols, seed));
            let inputs = [&x[..], &gamma[..], &beta[..], &residual[..]];
            for (is_layer_norm, has_residual) in [(true, false), (false, true), (false, false), (true, true)]
            {
                let parameters = (&gamma[..], is_layer_norm.then_some(&beta[..]));
                let expected =
                    [reference::<T, ACT>(&x, parameters, has_residual.then_some(&residual[..]), 1e-5)];
                let what = format!(
                    "activation {ACT} of {rows} x {cols}, centered {is_layer_norm}, added {has_residual}"
                );
                check(&what, &inputs, &expected, |on, inputs, outs| {
                    let op = if is_layer_norm {
                        NormActivation::<T, ACT>::layer_norm(inputs[0], inputs[1], inputs[2])
                    } else {
                        NormActivation::<T, ACT>::rms_norm(inputs[0], inputs[1])
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
    check_rows::<f32, SILU>(&WIDTHS);
    check_rows::<f32, GELU>(&[1000]);
    check_rows::<f32, GELU_TANH>(&[1000, MAX_TILE + 1]);
}

#[test]
fn f16_is_as_exact_as_stated() {
    check_rows::<f16, GELU>(&WIDTHS);
    check_rows::<f16, RELU>(&[1000]);
}

#[test]
fn bf16_is_as_exact_as_stated() {
    check_rows::<bf16, RELU>(&WIDTHS);
    check_rows::<bf16, IDENTITY>(&[1000]);
    check_rows::<bf16, SILU>(&[1000]);
    check_rows::<bf16, GELU_TANH>(&[1000, MAX_TILE + 1]);
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
            let expected = [reference::<f16, SILU>(&x, (&gamma, Some(&beta)), None, 1e-5)];
            let out = check_on(device, 0, "LayerNorm", &inputs, &expected, &|on, inputs, outs| {
                let op = NormActivation::<f16, SILU>::layer_norm(inputs[0], inputs[1], inputs[2]);
                op.eps(1e-5).launch(on, &mut outs[0])
            });
            let rows: Vec<&[f16]> = out[0].chunks(cols).collect();
            assert!(rows[1..3].iter().all(|row| row.iter().all(|y| y.is_nan())), "{device}");
            assert!(rows[3].iter().all(|y| *y == f16::ZERO), "{device}");
            let expected = [reference::<f16, RELU>(&x, (&gamma, None), None, 1e-6)];
            let out = check_on(device, 0, "RMSNorm", &inputs, &expected, &|on, inputs, outs| {
                NormActivation::<f16, RELU>::rms_norm(inputs[0], inputs[1]).launch(on, &mut outs[0])
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
    let mut say =
        |op: NormActivation<f32, RELU>| op.launch(&device, &mut out).map_err(|error| error.to_string());
    let error = |reason: &str| Err(format!("norm_activation: {reason}"));
    let op = NormActivation::<f32, RELU>::rms_norm(&x, &long);
    assert_eq!(say(op), Ok(()));
    assert_eq!(say(op.residual(&long)), error("x has 8 elements and residual has 4"));
    assert_eq!(
        say(NormActivation::<f32, RELU>::layer_norm(&x, &long, &short)),
        error("gamma has 4 elements and beta has 3")
    );
    assert_eq!(
        say(NormActivation::<f32, RELU>::rms_norm(&x, &short)),
        error("x has 8 elements, which are no whole rows of 3")
    );
    assert_eq!(
        say(NormActivation::<f32, RELU>::rms_norm(&long, &long)),
        error("x has 4 elements and out has 8")
    );
}

//! `layer_norm_backward` and `rms_norm_backward`.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::layer_norm_backward::{self, Gradients, LayerNormBackward, scratch_len};
use fused_kernels::partials::{BLOCK_COLS, MAX_COLS};
use fused_kernels::rms_norm_backward::{self, RmsNormBackward};
use fused_kernels::{layer_norm, rms_norm};

use crate::data::{check, devices, normal};

/// Few rows and many: more than there are programs. Rows that fit in registers, and longer ones.
const SHAPES: [(usize, usize); 15] = [
    (0, 5),
    (1, 1),
    (5, 7),
    (3, 1000),
    (2, 1024),
    (3000, 33),
    (3, 2048),
    (2, 4097),
    (300, BLOCK_COLS),
    (0, BLOCK_COLS + 1),
    (500, BLOCK_COLS + 8),
    (70, MAX_COLS - 8),
    (3, MAX_COLS + 1),
    (7, 16_385),
    (2, 40_000),
];

fn check_both<T: LibraryFloat>() {
    for (rows, cols) in SHAPES {
        let what = format!("{rows} rows of {cols}");
        let (dy, x) = (normal::<T>(rows * cols, 1), normal::<T>(rows * cols, 2));
        let gamma = normal::<T>(cols, 3);
        let inputs: [&[T]; 3] = [&dy, &x, &gamma];
        let expected = layer_norm_backward::reference(&dy, &x, &gamma, 1e-5);
        check(&what, &inputs, &expected, |on, inputs, outs| {
            let [dx, dgamma, dbeta] = outs else { panic!("three gradients") };
            let mut scratch = on.upload(&vec![f32::NAN; scratch_len(rows, cols)])?;
            let gradients =
                Gradients { dgamma: dgamma.into(), dbeta: dbeta.into(), scratch: (&mut scratch).into() };
            LayerNormBackward::new(inputs[0], inputs[1], inputs[2]).launch(on, dx, gradients)
        });
        let expected = rms_norm_backward::reference(&dy, &x, &gamma, 1e-6);
        check(&what, &inputs, &expected, |on, inputs, outs| {
            let [dx, dgamma] = outs else { panic!("two gradients") };
            let mut scratch = on.upload(&vec![f32::NAN; rms_norm_backward::scratch_len(rows, cols)])?;
            RmsNormBackward::new(inputs[0], inputs[1], inputs[2]).launch(on, dx, dgamma, &mut scratch)
        });
    }
}

#[test]
fn f32_is_as_exact_as_stated() {
    check_both::<f32>();
}

#[test]
fn f16_is_as_exact_as_stated() {
    check_both::<f16>();
}

#[test]
fn bf16_is_as_exact_as_stated() {
    check_both::<bf16>();
}

#[test]
fn the_same_gradients_run_after_run() {
    let (rows, cols) = (5000, 100);
    let (dy, x, gamma) =
        (normal::<f32>(rows * cols, 1), normal::<f32>(rows * cols, 2), normal::<f32>(cols, 3));
    for device in devices() {
        let run = || {
            let [dy, x, gamma] = [&dy, &x, &gamma].map(|values| device.upload(values).unwrap());
            let mut dx = device.zeros::<f32>(rows * cols).unwrap();
            let mut dgamma = device.zeros::<f32>(cols).unwrap();
            let mut scratch = device.zeros::<f32>(rms_norm_backward::scratch_len(rows, cols)).unwrap();
            RmsNormBackward::new(&dy, &x, &gamma)
                .launch(&device, &mut dx, &mut dgamma, &mut scratch)
                .unwrap();
            dgamma.download().unwrap()
        };
        assert_eq!(run(), run(), "{device}");
    }
}

/// The references themselves: a gradient is what the function's values differ by.
#[test]
fn the_gradients_are_the_slopes_of_the_norms() {
    let (rows, cols) = (3, 10);
    let (dy, x) = (normal::<f64>(rows * cols, 1), normal::<f64>(rows * cols, 2));
    let (gamma, beta) = (normal::<f64>(cols, 3), normal::<f64>(cols, 4));
    let weighed = |values: Vec<fused_kernels::reference::Expected>| -> f64 {
        values.iter().zip(&dy).map(|(value, dy)| value.value * dy).sum()
    };
    let layer = |[x, gamma, beta]: [&[f64]; 3]| weighed(layer_norm::reference(x, gamma, beta, 1e-5));
    let rms = |[x, gamma, _]: [&[f64]; 3]| weighed(rms_norm::reference(x, gamma, 1e-6));
    let slope = |of: &dyn Fn([&[f64]; 3]) -> f64, which: usize, i: usize| {
        let at = |step: f64| {
            let mut inputs = [x.clone(), gamma.clone(), beta.clone()];
            inputs[which][i] += step;
            of([&inputs[0], &inputs[1], &inputs[2]])
        };
        (at(1e-6) - at(-1e-6)) / 2e-6
    };
    let of_layer = layer_norm_backward::reference(&dy, &x, &gamma, 1e-5);
    let of_rms = rms_norm_backward::reference(&dy, &x, &gamma, 1e-6);
    for (which, gradient) in of_layer.iter().enumerate() {
        for (i, gradient) in gradient.iter().enumerate() {
            let slope = slope(&layer, which, i);
            assert!(
                (slope - gradient.value).abs() < 1e-6,
                "LayerNorm, {which}, {i}: {slope} and {gradient:?}"
            );
        }
    }
    for (which, gradient) in of_rms.iter().enumerate() {
        for (i, gradient) in gradient.iter().enumerate() {
            let slope = slope(&rms, which, i);
            assert!((slope - gradient.value).abs() < 1e-6, "RMSNorm, {which}, {i}: {slope} and {gradient:?}");
        }
    }
}

#[test]
fn a_nan_stays_in_its_row_and_its_column() {
    let (rows, cols) = (4, 50);
    let mut x = normal::<f32>(rows * cols, 2);
    x[cols + 7] = f32::NAN;
    let (dy, gamma) = (normal::<f32>(rows * cols, 1), normal::<f32>(cols, 3));
    let expected = layer_norm_backward::reference(&dy, &x, &gamma, 1e-5);
    check("a NaN", &[&dy, &x, &gamma], &expected, |on, inputs, outs| {
        let [dx, dgamma, dbeta] = outs else { panic!("three gradients") };
        let mut scratch = on.zeros(scratch_len(rows, cols))?;
        let gradients =
            Gradients { dgamma: dgamma.into(), dbeta: dbeta.into(), scratch: (&mut scratch).into() };
        LayerNormBackward::new(inputs[0], inputs[1], inputs[2]).launch(on, dx, gradients)
    });
    assert!(expected[0][..cols].iter().all(|dx| dx.value.is_finite()));
    assert!(expected[1].iter().all(|dgamma| dgamma.value.is_nan()), "every column has the row's x_hat");
    assert!(expected[2].iter().all(|dbeta| dbeta.value.is_finite()));
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let launch = |x: usize, dy: usize, cols: usize, scratch: usize| {
        let [x, dy, gamma, mut dx, mut dgamma] = [x, dy, cols, x, cols].map(|len| vec![1.0f32; len]);
        let mut scratch = vec![0.0f32; scratch];
        let norm = RmsNormBackward::new(&dy, &x, &gamma);
        norm.launch(&device, &mut dx, &mut dgamma, &mut scratch).map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("rms_norm_backward: {reason}"));
    assert_eq!(launch(12, 12, 4, 12), Ok(()));
    assert_eq!(launch(12, 8, 4, 12), error("x has 12 elements and dy has 8"));
    assert_eq!(launch(12, 12, 5, 10), error("x has 12 elements, which are no whole rows of 5"));
    assert_eq!(launch(12, 12, 4, 8), error("scratch has 8 elements and what it should be has 12"));
    // Partial sums for every four rows, and a float for each row.
    assert_eq!(launch(9000, 9000, 9000, 9001), Ok(()));
    let text = "scratch has 9000 elements and what it should be has 9001";
    assert_eq!(launch(9000, 9000, 9000, 9000), error(text));
}

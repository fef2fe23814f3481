//! `fused_kernels::add_layer_norm`.

use dsl_runtime::prelude::*;
use fused_kernels::add_layer_norm::AddLayerNorm;
use fused_kernels::float::LibraryFloat;
use fused_kernels::layer_norm::reference;
use fused_kernels::norm_kernels::BLOCK_TILE;
use fused_kernels::reference::compare;
use fused_kernels::rms_norm::sum;

use crate::data::{Guarded, devices, normal, shifted};

const WIDTHS: [usize; 12] =
    [1, 7, 256, 257, 1000, 1025, 4097, 8192, 16_384, 22_111, BLOCK_TILE, BLOCK_TILE + 1001];

/// Adds and normalizes on a device, everything `shift` elements off a boundary; gives what is normalized.
#[track_caller]
fn check_on<T: LibraryFloat>(device: Device, [x, residual, gamma, beta]: [&[T]; 4], shift: usize) -> Vec<T> {
    let sum = sum(x, residual);
    let mut stream = Guarded::of(device, residual, shift);
    let mut out = Guarded::<T>::new(device, x.len(), shift);
    let [bx, bg, bb] = [x, gamma, beta].map(|values| shifted(device, values, shift));
    let norm = AddLayerNorm::new(bx.slice(shift..), bg.slice(shift..), bb.slice(shift..));
    norm.eps(1e-5).launch(&device, stream.output(), out.output()).unwrap();
    let (stream, out) = (stream.content(), out.content());
    let what = format!("{} elements in rows of {} of {} on {device}", x.len(), gamma.len(), T::DTYPE);
    let same = |(a, b): (&T, &T)| a == b || a.to_f64().is_nan() && b.to_f64().is_nan();
    assert!(stream.iter().zip(&sum).all(same), "{what}");
    compare(&out, &reference(&sum, gamma, beta, 1e-5)).unwrap_or_else(|found| panic!("{what}: {found}"));
    out
}

fn check_rows<T: LibraryFloat>() {
    for cols in WIDTHS {
        for rows in [0, 1, 3] {
            let [x, residual] = [1, 2].map(|seed| normal::<T>(rows * cols, seed));
            let [gamma, beta] = [3, 4].map(|seed| normal::<T>(cols, seed));
            for device in devices() {
                for shift in [0, 1] {
                    check_on(device, [&x, &residual, &gamma, &beta], shift);
                }
            }
        }
    }
}

#[test]
fn rows_are_as_exact_as_stated() {
    check_rows::<f32>();
    check_rows::<f16>();
    check_rows::<bf16>();
}

#[test]
fn extremes_stay_in_their_row() {
    for cols in [1000, BLOCK_TILE + 1000] {
        let (mut x, mut residual) = (normal::<f16>(5 * cols, 1), normal::<f16>(5 * cols, 2));
        x[3] = f16::NAN;
        x[cols + 5] = f16::INFINITY;
        for row in [2, 3] {
            x[row * cols..(row + 1) * cols].fill(f16::ZERO);
            residual[row * cols..(row + 1) * cols].fill(f16::from_f64(if row == 2 { 0.0 } else { 1000.0 }));
        }
        let (gamma, beta) = (vec![f16::ONE; cols], vec![f16::from_f64(0.5); cols]);
        for device in devices() {
            let out = check_on(device, [&x, &residual, &gamma, &beta], 0);
            let rows: Vec<&[f16]> = out.chunks(cols).collect();
            assert!(rows[..2].iter().all(|row| row.iter().all(|y| y.is_nan())), "{device}");
            // A row of zeros has no deviation; one of another number has what the rounding of its mean leaves, which is compared above.
            assert!(rows[2].iter().all(|y| *y == beta[0]), "{device}");
            assert!(rows[3..].concat().iter().all(|y| y.is_finite()), "{device}");
        }
    }
}

/// A mean far above the deviation: the variance is that of the centered row.
#[test]
fn a_large_mean_does_not_cancel() {
    for cols in [1000, BLOCK_TILE + 1000] {
        let x: Vec<f32> = normal::<f32>(cols, 1).into_iter().map(|x| 1000.0 + x).collect();
        let (residual, gamma, beta) = (vec![3000.0f32; cols], vec![1.0f32; cols], vec![0.0f32; cols]);
        for device in devices() {
            let out = check_on(device, [&x, &residual, &gamma, &beta], 0);
            let square = out.iter().map(|y| f64::from(*y).powi(2)).sum::<f64>() / cols as f64;
            assert!((square - 1.0).abs() < 1e-3, "{device}: {square}");
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let say = |x: usize, gamma: usize, beta: usize, [residual, out]: [usize; 2]| {
        let [x, gamma, beta, mut residual, mut out] =
            [x, gamma, beta, residual, out].map(|len| vec![1.0f32; len]);
        let norm = AddLayerNorm::new(&x, &gamma, &beta);
        norm.launch(&device, &mut residual, &mut out).map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("add_layer_norm: {reason}"));
    assert_eq!(say(8, 4, 4, [8, 8]), Ok(()));
    assert_eq!(say(0, 0, 0, [0, 0]), Ok(()));
    assert_eq!(say(8, 4, 4, [9, 8]), error("x has 8 elements and residual has 9"));
    assert_eq!(say(8, 4, 4, [8, 4]), error("x has 8 elements and out has 4"));
    assert_eq!(say(8, 4, 3, [8, 8]), error("gamma has 4 elements and beta has 3"));
    assert_eq!(say(8, 3, 3, [8, 8]), error("x has 8 elements, which are no whole rows of 3"));
}

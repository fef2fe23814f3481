//! `fused_kernels::rms_norm`.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::norm_kernels::{BLOCK_TILE, CLUSTER_TILE};
use fused_kernels::reference::compare;
use fused_kernels::rms_norm::{AddRmsNorm, RmsNorm, reference, sum};

use crate::data::{Guarded, check, check_on, devices, normal, shifted};

const EPS: f32 = 1e-6;
const WIDTHS: [usize; 13] = [
    1,
    7,
    1000,
    1024,
    1025,
    4097,
    16384,
    22_111,
    BLOCK_TILE,
    BLOCK_TILE + 1,
    65_536,
    CLUSTER_TILE,
    CLUSTER_TILE + 1,
];
/// Rows of which a program has several, and those of the tiles that nothing else takes.
const PLAIN: [usize; 9] = [100, 128, 129, 300, 512, 700, 768, 17_001, 40_000];

fn check_plain<T: LibraryFloat>() {
    for cols in WIDTHS.into_iter().chain(PLAIN) {
        // Several programs of several short rows, and the last one not as many; enough long ones for one block each.
        for rows in [0, 1, if cols < 1024 || cols == 17_001 { 21 } else { 3 }] {
            let (x, gamma) = (normal::<T>(rows * cols, 1), normal::<T>(cols, 2));
            let expected = [reference(&x, &gamma, EPS)];
            check(&format!("{rows} rows of {cols}"), &[&x, &gamma], &expected, |on, inputs, outs| {
                RmsNorm::new(inputs[0], inputs[1]).eps(EPS).launch(on, &mut outs[0])
            });
        }
    }
}

#[test]
fn rows_are_as_exact_as_stated() {
    check_plain::<f32>();
    check_plain::<f16>();
    check_plain::<bf16>();
}

fn check_add<T: LibraryFloat>() {
    for cols in WIDTHS {
        let rows = 3;
        let [x, residual] = [1, 3].map(|seed| normal::<T>(rows * cols, seed));
        let gamma = normal::<T>(cols, 2);
        let sum = sum(&x, &residual);
        let expected = [reference(&sum, &gamma, EPS)];
        for device in devices() {
            for shift in [0, 1] {
                let mut stream = Guarded::of(device, &residual, shift);
                let mut out = Guarded::<T>::new(device, x.len(), shift);
                let (x, gamma) = (shifted(device, &x, shift), shifted(device, &gamma, shift));
                let norm = AddRmsNorm::new(x.slice(shift..), gamma.slice(shift..)).eps(EPS);
                norm.launch(&device, stream.output(), out.output()).unwrap();
                assert_eq!(stream.content(), sum, "rows of {cols} {} on {device}", T::DTYPE);
                compare(&out.content(), &expected[0]).unwrap();
            }
        }
    }
}

#[test]
fn a_residual_is_updated_and_normalized() {
    check_add::<f32>();
    check_add::<f16>();
    check_add::<bf16>();
}

#[test]
fn extremes_stay_in_their_row() {
    for cols in [1000, CLUSTER_TILE + 1000] {
        let mut x = normal::<f16>(5 * cols, 1);
        x[..cols].fill(f16::MAX); // Squares and their sum are far beyond f16.
        x[cols + 3] = f16::NAN;
        x[2 * cols + 5] = f16::INFINITY;
        x[3 * cols..4 * cols].fill(f16::ZERO);
        let gamma = vec![f16::ONE; cols];
        let expected = [reference(&x, &gamma, EPS)];
        for device in devices() {
            let out = check_on(device, 0, "extremes", &[&x, &gamma], &expected, &|on, inputs, outs| {
                RmsNorm::new(inputs[0], inputs[1]).eps(EPS).launch(on, &mut outs[0])
            });
            let rows: Vec<&[f16]> = out[0].chunks(cols).collect();
            assert!(rows[0].iter().all(|y| *y == f16::ONE), "{device}");
            assert!(rows[1].iter().all(|y| y.is_nan()), "{device}");
            assert!(rows[2].iter().enumerate().all(|(i, y)| if i == 5 {
                y.is_nan()
            } else {
                *y == f16::ZERO
            }));
            assert!(rows[3].iter().all(|y| *y == f16::ZERO), "{device}");
            assert!(rows[4].iter().all(|y| y.is_finite()), "{device}");
        }
    }
}

#[test]
fn a_square_beyond_f32_makes_its_row_zero() {
    let (x, gamma) = ([1e20f32, 1.0, -1e25], [1.0f32; 3]);
    for device in devices() {
        let mut out = device.zeros::<f32>(3).unwrap();
        let (x, gamma) = (device.upload(&x).unwrap(), device.upload(&gamma).unwrap());
        RmsNorm::new(&x, &gamma).launch(&device, &mut out).unwrap();
        assert_eq!(out.download().unwrap(), [0.0, 0.0, -0.0], "{device}");
    }
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let plain = |x: usize, gamma: usize, out: usize| {
        let [x, gamma, mut out] = [x, gamma, out].map(|len| vec![1.0f32; len]);
        RmsNorm::new(&x, &gamma).launch(&device, &mut out).map_err(|error| error.to_string())
    };
    assert_eq!(plain(12, 4, 12), Ok(()));
    assert_eq!(plain(0, 0, 0), Ok(()));
    assert_eq!(plain(12, 4, 11), Err("rms_norm: x has 12 elements and out has 11".into()));
    assert_eq!(plain(12, 5, 12), Err("rms_norm: x has 12 elements, which are no whole rows of 5".into()));
    let add = |x: usize, residual: usize, out: usize| {
        let [x, mut residual, mut out] = [x, residual, out].map(|len| vec![1.0f32; len]);
        let launched = AddRmsNorm::new(&x, &[1.0f32; 4]).launch(&device, &mut residual, &mut out);
        launched.map_err(|error| error.to_string())
    };
    assert_eq!(add(8, 8, 8), Ok(()));
    assert_eq!(add(8, 9, 8), Err("add_rms_norm: x has 8 elements and residual has 9".into()));
    assert_eq!(add(8, 8, 4), Err("add_rms_norm: x has 8 elements and out has 4".into()));
}

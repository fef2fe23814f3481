//! `center`, `l2_norm`, `layer_norm_gelu` and `group_norm`.

use dsl_runtime::prelude::*;
use fused_kernels::center::{self, Center};
use fused_kernels::float::LibraryFloat;
use fused_kernels::group_norm::{self, GroupNorm};
use fused_kernels::l2_norm::{self, L2Norm};
use fused_kernels::layer_norm_gelu::{self, LayerNormGelu};

use crate::data::{check, check_on, devices, normal};

const WIDTHS: [usize; 10] = [1, 7, 1000, 1024, 1025, 4097, 16384, 16385, 32768, 40_000];

fn check_rows<T: LibraryFloat>() {
    for cols in WIDTHS {
        for rows in [0, 1, 3] {
            let what = format!("{rows} rows of {cols}");
            let x = normal::<T>(rows * cols, 1);
            check(&what, &[&x], &[center::reference(&x, cols)], |on, inputs, outs| {
                Center::new(inputs[0], cols).launch(on, &mut outs[0])
            });
            check(&what, &[&x], &[l2_norm::reference(&x, cols, 1e-12)], |on, inputs, outs| {
                L2Norm::new(inputs[0], cols).launch(on, &mut outs[0])
            });
            if cols <= layer_norm_gelu::MAX_COLS {
                let (gamma, beta) = (normal::<T>(cols, 2), normal::<T>(cols, 3));
                let expected = [layer_norm_gelu::reference(&x, &gamma, &beta, 1e-5)];
                check(&what, &[&x, &gamma, &beta], &expected, |on, inputs, outs| {
                    LayerNormGelu::new(inputs[0], inputs[1], inputs[2]).launch(on, &mut outs[0])
                });
            }
        }
    }
}

#[test]
fn rows_of_f32_are_as_exact_as_stated() {
    check_rows::<f32>();
}

#[test]
fn rows_of_f16_are_as_exact_as_stated() {
    check_rows::<f16>();
}

#[test]
fn rows_of_bf16_are_as_exact_as_stated() {
    check_rows::<bf16>();
}

/// An SM has room for three rows of that length at most.
#[test]
fn more_rows_than_run_at_once_are_as_exact_as_stated() {
    let cols = 12_296;
    let (gamma, beta) = (normal::<bf16>(cols, 2), normal::<bf16>(cols, 3));
    for device in devices() {
        let rows = 4 * device.parallelism() + 3;
        let x = normal::<bf16>(rows * cols, 1);
        let expected = [layer_norm_gelu::reference(&x, &gamma, &beta, 1e-5)];
        check_on(device, 0, &format!("{rows} rows"), &[&x, &gamma, &beta], &expected, &|on, inputs, outs| {
            LayerNormGelu::new(inputs[0], inputs[1], inputs[2]).launch(on, &mut outs[0])
        });
    }
}

#[test]
fn extremes_stay_in_their_row() {
    for cols in [1000, 20_000] {
        let mut x = normal::<f16>(4 * cols, 1);
        x[..cols].fill(f16::MAX);
        x[cols + 3] = f16::NAN;
        x[2 * cols..3 * cols].fill(f16::ZERO);
        for device in devices() {
            let expected = [l2_norm::reference(&x, cols, 1e-12)];
            let out = check_on(device, 0, "length 1", &[&x], &expected, &|on, inputs, outs| {
                L2Norm::new(inputs[0], cols).launch(on, &mut outs[0])
            });
            assert!(out[0][cols..2 * cols].iter().all(|y| y.is_nan()), "{device}");
            assert!(out[0][2 * cols..3 * cols].iter().all(|y| *y == f16::ZERO), "{device}");
            let out = check_on(
                device,
                0,
                "centered",
                &[&x],
                &[center::reference(&x, cols)],
                &|on, inputs, outs| Center::new(inputs[0], cols).launch(on, &mut outs[0]),
            );
            assert!(out[0][cols..2 * cols].iter().all(|y| y.is_nan()), "{device}");
        }
    }
    let x = [3e-13f32, 4e-13];
    check("shorter than eps", &[&x], &[l2_norm::reference(&x, 2, 1e-12)], |on, inputs, outs| {
        L2Norm::new(inputs[0], 2).launch(on, &mut outs[0])
    });
}

fn check_groups<T: LibraryFloat>() {
    let shapes = [
        [0, 4, 2, 9],
        [1, 1, 1, 1],
        [2, 6, 3, 7],
        [1, 200, 2, 1],
        [3, 32, 8, 64],
        [2, 8, 2, 1000],
        [1, 10, 2, 4095],
        [2, 20, 2, 1024],
        [1, 10, 2, 4097],
        [1, 6, 2, 12_000],
    ];
    for [images, channels, groups, pixels] in shapes {
        let x = normal::<T>(images * channels * pixels, 1);
        let (gamma, beta) = (normal::<T>(channels, 2), normal::<T>(channels, 3));
        let expected = [group_norm::reference(&x, [&gamma, &beta], [groups, pixels], 1e-5)];
        let what = format!("{images} images of {channels} channels in {groups} groups of {pixels} pixels");
        check(&what, &[&x, &gamma, &beta], &expected, |on, inputs, outs| {
            let norm = GroupNorm::new(inputs[0], inputs[1], inputs[2]).groups(groups).pixels(pixels);
            norm.launch(on, &mut outs[0])
        });
    }
}

#[test]
fn groups_are_as_exact_as_stated() {
    check_groups::<f32>();
    check_groups::<f16>();
    check_groups::<bf16>();
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let say = |result: dsl_runtime::Result<()>| result.unwrap_err().to_string();
    let (x, mut out) = ([1.0f32; 12], [0.0f32; 12]);
    assert_eq!(
        say(Center::new(&x, 5).launch(&device, &mut out)),
        "center: x has 12 elements, which are no whole rows of 5"
    );
    assert_eq!(
        say(L2Norm::new(&x, 4).launch(&device, &mut out[..8])),
        "l2_norm: x has 12 elements and out has 8"
    );
    let gamma = vec![1.0f32; 40_000];
    let mut wide = gamma.clone();
    assert_eq!(
        say(LayerNormGelu::new(&gamma, &gamma, &gamma).launch(&device, &mut wide)),
        "layer_norm_gelu: rows have 40000 columns, the most is 32768"
    );
    let (gamma, beta) = ([1.0f32; 6], [1.0f32; 6]);
    let norm = GroupNorm::new(&x, &gamma, &beta).pixels(2);
    assert_eq!(say(norm.groups(4).launch(&device, &mut out)), "group_norm: 6 channels are no 4 groups");
    assert_eq!(say(norm.groups(0).launch(&device, &mut out)), "group_norm: 6 channels are no 0 groups");
    assert_eq!(
        say(norm.pixels(5).launch(&device, &mut out)),
        "group_norm: x has 12 elements, which are no whole rows of 30"
    );
}

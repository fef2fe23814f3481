//! `softmax` and `masked_softmax`.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::masked_softmax::{self, HostMask, Mask, MaskedSoftmax};
use fused_kernels::softmax::{BLOCK_TILE, MAX_TILE, Softmax, SoftmaxOutput, reference};

use crate::data::{check, check_on, devices, normal, shifted};

const WIDTHS: [usize; 19] = [
    1,
    7,
    100,
    128,
    129,
    300,
    512,
    768,
    1000,
    1024,
    1025,
    4097,
    16385,
    BLOCK_TILE,
    65536,
    131_072,
    131_080,
    MAX_TILE,
    MAX_TILE + 1,
];
/// The most elements of a matrix.
const MOST: usize = 2 * MAX_TILE;

fn check_plain<T: LibraryFloat>(form: SoftmaxOutput) {
    for cols in WIDTHS {
        // Several programs of which each has several short rows, and the last one not as many.
        for (rows, scale) in [(0, 1.0), (1, 1.0), (3, 3.5), (if cols < 1024 { 21 } else { 2 }, -0.7)] {
            let rows = rows.min(MOST / cols);
            let x = normal::<T>(rows * cols, 1);
            let expected = [reference(&x, cols, scale, form)];
            check(&format!("{form:?}, {rows} rows of {cols}"), &[&x], &expected, |on, inputs, outs| {
                let softmax = Softmax::new(inputs[0], cols).scale(scale);
                let softmax = if form == SoftmaxOutput::Logarithm { softmax.log() } else { softmax };
                softmax.launch(on, &mut outs[0])
            });
        }
    }
}

#[test]
fn probabilities_are_as_exact_as_stated() {
    check_plain::<f32>(SoftmaxOutput::Probability);
    check_plain::<f16>(SoftmaxOutput::Probability);
    check_plain::<bf16>(SoftmaxOutput::Probability);
}

#[test]
fn logarithms_are_as_exact_as_stated() {
    check_plain::<f32>(SoftmaxOutput::Logarithm);
    check_plain::<f16>(SoftmaxOutput::Logarithm);
    check_plain::<bf16>(SoftmaxOutput::Logarithm);
}

/// Rows of nothing, of one thing, with infinities, with NaN, and far from zero.
fn rows_of_every_kind(cols: usize) -> Vec<f32> {
    let mut x = normal::<f32>(7 * cols, 1);
    x[..cols].fill(f32::NEG_INFINITY);
    x[cols..2 * cols].fill(f32::NEG_INFINITY);
    x[2 * cols - 1] = -60_000.0;
    x[2 * cols + cols / 2] = f32::NAN;
    x[3 * cols] = f32::INFINITY;
    x[4 * cols..5 * cols].iter_mut().for_each(|x| *x += 60_000.0);
    x[5 * cols..6 * cols].iter_mut().for_each(|x| *x *= 1e30);
    x[6 * cols..7 * cols].iter_mut().step_by(2).for_each(|x| *x = f32::NEG_INFINITY);
    x
}

#[test]
fn special_rows_are_as_documented() {
    for cols in [300, 1000, MAX_TILE + 1000] {
        let x = rows_of_every_kind(cols);
        for form in [SoftmaxOutput::Probability, SoftmaxOutput::Logarithm] {
            // Special rows as documented, the rest against float64.
            let expected = [reference(&x, cols, 1.0, form)];
            for device in devices() {
                let out = check_on(device, 0, "special rows", &[&x], &expected, &|on, inputs, outs| {
                    let softmax = Softmax::new(inputs[0], cols);
                    let softmax = if form == SoftmaxOutput::Logarithm { softmax.log() } else { softmax };
                    softmax.launch(on, &mut outs[0])
                });
                let rows: Vec<&[f32]> = out[0].chunks(cols).collect();
                let (nothing, one) =
                    if form == SoftmaxOutput::Logarithm { (f32::NEG_INFINITY, 0.0) } else { (0.0, 1.0) };
                assert!(rows[0].iter().all(|y| *y == nothing), "{device}");
                assert_eq!((rows[1][0], rows[1][cols - 1]), (nothing, one), "{device}");
                assert!(rows[2].iter().chain(rows[3]).all(|y| y.is_nan()), "{device}");
            }
        }
    }
}

/// Half the scores, in the form that is asked for.
fn in_form<T: LibraryFloat>(softmax: MaskedSoftmax<T>, form: SoftmaxOutput) -> MaskedSoftmax<T> {
    let softmax = softmax.scale(0.5);
    if form == SoftmaxOutput::Logarithm { softmax.log() } else { softmax }
}

fn check_masked<T: LibraryFloat>() {
    for cols in [1, 7, 1000, 1025, 4097, 16384, 16385, 40_000] {
        for (rows, mask_rows, form) in [
            (4, 2, SoftmaxOutput::Probability),
            (3, 3, SoftmaxOutput::Logarithm),
            (2, 1, SoftmaxOutput::Probability),
        ] {
            let x = normal::<T>(rows * cols, 1);
            // The first row of the mask lets nothing through.
            let kept: Vec<bool> = normal::<f32>(mask_rows * cols, 2)
                .iter()
                .enumerate()
                .map(|(i, v)| i >= cols && *v > -0.5)
                .collect();
            let added: Vec<T> = normal::<T>(mask_rows * cols, 3)
                .into_iter()
                .zip(&kept)
                .map(|(value, kept)| if *kept { value } else { T::from_f64(f64::NEG_INFINITY) })
                .collect();
            let what = format!("{form:?}, {rows} rows of {cols}, {mask_rows} of the mask");
            let expected = [masked_softmax::reference(&x, HostMask::Add(&added), (cols, form), 0.5)];
            check(&what, &[&x, &added], &expected, |on, inputs, outs| {
                in_form(MaskedSoftmax::new(inputs[0], Mask::Add(inputs[1]), cols), form)
                    .launch(on, &mut outs[0])
            });
            let expected = [masked_softmax::reference(&x, HostMask::Keep(&kept), (cols, form), 0.5)];
            check(&what, &[&x], &expected, |on, inputs, outs| {
                let kept = shifted(*on, &kept, 1);
                let softmax = MaskedSoftmax::new(inputs[0], Mask::Keep(kept.slice(1..)), cols);
                in_form(softmax, form).launch(on, &mut outs[0])
            });
        }
    }
}

/// More rows for each of the mask than a grid has.
#[test]
fn one_row_of_a_mask_serves_any_number() {
    let (rows, cols) = (65_535 + 3, 2);
    let x = normal::<f32>(rows * cols, 1);
    let kept = [true, false];
    let expected =
        [masked_softmax::reference(&x, HostMask::Keep(&kept), (cols, SoftmaxOutput::Probability), 1.0)];
    check("one row of a mask", &[&x], &expected, |on, inputs, outs| {
        let kept = shifted(*on, &kept, 1);
        MaskedSoftmax::new(inputs[0], Mask::Keep(kept.slice(1..)), cols).launch(on, &mut outs[0])
    });
}

/// Each row once and in order, with its own row of the mask, in grids that a GPU takes.
#[test]
fn launches_cover_the_rows_of_a_mask() {
    for along in [false, true] {
        for (matrices, mask_rows) in [(1, 1), (3, 5), (70_000, 2), (1, 200_000), (3, 65_536), (3, 65_535)] {
            let mut next = 0;
            for launch in masked_softmax::row_launches(matrices * mask_rows, mask_rows, along) {
                let (x, y) = launch.grid;
                let (height, count) = if along { (x, y) } else { (y, x) };
                assert!(y <= 65_535 && (count == 1 || height == mask_rows), "{launch:?}");
                assert_eq!(launch.rows, next..next + height * count);
                assert_eq!(launch.mask_rows, next % mask_rows..next % mask_rows + height);
                next = launch.rows.end;
            }
            assert_eq!(next, matrices * mask_rows);
        }
    }
}

/// More rows than a GPU runs clusters concurrently.
#[test]
fn many_long_rows_are_as_exact_as_stated() {
    let (rows, cols) = (400, BLOCK_TILE - 7);
    let x = normal::<bf16>(rows * cols, 1);
    let expected = [reference(&x, cols, 1.0, SoftmaxOutput::Probability)];
    check("many long rows", &[&x], &expected, |on, inputs, outs| {
        Softmax::new(inputs[0], cols).launch(on, &mut outs[0])
    });
}

#[test]
fn masks_are_as_exact_as_stated() {
    check_masked::<f32>();
    check_masked::<f16>();
    check_masked::<bf16>();
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let say = |result: dsl_runtime::Result<()>| result.unwrap_err().to_string();
    let (x, mut out) = ([1.0f32; 12], [0.0f32; 12]);
    assert_eq!(
        say(Softmax::new(&x, 5).launch(&device, &mut out)),
        "softmax: x has 12 elements, which are no whole rows of 5"
    );
    assert_eq!(
        say(Softmax::new(&x, 4).launch(&device, &mut out[..8])),
        "softmax: x has 12 elements and out has 8"
    );
    let masked = |mask: &[bool], out: &mut [f32]| {
        MaskedSoftmax::new(&x, Mask::Keep(mask.into()), 4)
            .launch(&device, out)
            .map_err(|error| error.to_string())
    };
    assert_eq!(masked(&[true; 12], &mut out), Ok(()));
    assert_eq!(masked(&[true; 4], &mut out), Ok(()));
    let error = |reason: &str| Err(format!("masked_softmax: {reason}"));
    assert_eq!(masked(&[true; 8], &mut out), error("3 rows do not share a mask of 2 evenly"));
    assert_eq!(masked(&[true; 0], &mut out), error("3 rows do not share a mask of 0 evenly"));
    assert_eq!(masked(&[true; 5], &mut out), error("the mask has 5 elements, which are no whole rows of 4"));
}

//! Softmax of rows.

use fuse_book::softmax::softmax_rows;

use crate::check::{Expected, SINGLE, assert_close, numbers, to_f64};
use fuse_tests::{alone, devices};

// ANCHOR: reference
/// The softmax of a row in `f64`. The sum of `n` terms errs by at most `n` roundings, and the exponential by a few.
pub fn reference(row: &[f64]) -> Vec<Expected> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    let expected = |x: &f64| {
        let value = (x - max).exp() / sum;
        Expected { value, within: value * SINGLE * (32 + row.len()) as f64 }
    };
    row.iter().map(expected).collect()
}
// ANCHOR_END: reference

// ANCHOR: test
#[test]
fn each_row_is_its_softmax() {
    let _alone = alone();
    for device in devices() {
        for n_cols in [1, 100, 256, 1000] {
            let x = numbers::<f32>(7 * n_cols, 3);
            let expected: Vec<Expected> = to_f64(&x).chunks(n_cols).flat_map(reference).collect();
            assert_close(&softmax_rows(&device, &x, n_cols).unwrap(), &expected);
        }
    }
}
// ANCHOR_END: test

#[test]
fn a_row_that_no_block_covers_is_an_error() {
    let device = dsl_runtime::Device::cpu();
    let error = softmax_rows(&device, &[0.0; 2000], 2000).unwrap_err();
    expect_test::expect_file!["../../output/softmax_too_long.txt"].assert_eq(&format!("{error}\n"));
}

//! Matrix product.

use dsl_runtime::prelude::*;
use fuse_book::matmul::{product, product_transposed};

use crate::check::{BRAIN, Expected, SINGLE, assert_close, numbers};
use fuse_tests::{alone, devices};

// ANCHOR: test
/// `a · b` in `f64`: sums of `k` products in `f32`, rounded to `bf16` once.
fn reference(a: &[bf16], b: &[bf16], [m, k, n]: [usize; 3]) -> Vec<Expected> {
    let element = |i: usize| {
        let (row, col) = (i / n, i % n);
        let terms = (0..k).map(|j| a[row * k + j].to_f64() * b[j * n + col].to_f64());
        let (value, magnitude) =
            terms.fold((0.0, 0.0), |(sum, sizes), term: f64| (sum + term, sizes + term.abs()));
        Expected { value, within: BRAIN * value.abs() + 2.0 * k as f64 * SINGLE * magnitude }
    };
    (0..m * n).map(element).collect()
}

#[test]
fn products_of_any_extents() {
    let _alone = alone();
    for device in devices() {
        for shape @ [m, k, n] in [[64, 64, 64], [70, 50, 90], [1, 1, 1], [128, 256, 192]] {
            let (a, b) = (numbers::<bf16>(m * k, 4), numbers::<bf16>(k * n, 5));
            assert_close(&product(&device, &a, &b, shape).unwrap(), &reference(&a, &b, shape));
        }
    }
}
// ANCHOR_END: test

#[test]
fn a_transposed_operand() {
    let _alone = alone();
    let shape @ [m, k, n] = [70, 50, 90];
    let (a, b) = (numbers::<bf16>(m * k, 4), numbers::<bf16>(k * n, 5));
    let transposed: Vec<bf16> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
    for device in devices() {
        let found = product_transposed(&device, &a, &transposed, shape).unwrap();
        assert_close(&found, &reference(&a, &b, shape));
    }
}

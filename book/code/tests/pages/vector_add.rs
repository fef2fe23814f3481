//! Vector addition.

use dsl_runtime::prelude::*;
use fuse_book::vector_add::{add, vector_add};

use crate::check::numbers;
use fuse_tests::{alone, devices};

// ANCHOR: test
#[test]
fn every_element_is_the_sum() {
    let _alone = alone();
    for device in devices() {
        for n in [1, 1000, 1024, 1025, 10_000] {
            let (x, y) = (numbers::<f32>(n, 1), numbers::<f32>(n, 2));
            let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            assert_eq!(add(&device, &x, &y).unwrap(), sums, "{device}, {n} elements");
        }
    }
}
// ANCHOR_END: test

#[test]
fn sums_of_bf16_are_rounded_once() {
    let _alone = alone();
    for device in devices() {
        let (x, y) = (numbers::<bf16>(1500, 1), numbers::<bf16>(1500, 2));
        let (device_x, device_y) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
        let mut out = device.zeros::<bf16>(1500).unwrap();
        vector_add::<bf16, 1024>(&device_x, &device_y, &mut out, 1500).grid(2).launch(&device).unwrap();
        let sums: Vec<bf16> =
            x.iter().zip(&y).map(|(x, y)| bf16::from_f32(x.to_f32() + y.to_f32())).collect();
        assert_eq!(out.download().unwrap(), sums, "{device}");
    }
}

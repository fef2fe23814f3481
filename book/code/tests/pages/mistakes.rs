//! What becomes of wrong kernels, in the words that pages show.

use dsl_runtime::Error;
use dsl_runtime::prelude::*;
use expect_test::expect_file;
use fuse_book::mistakes::{add_without_mask, softmax_with_zeros, sum_of_exponentials};

use crate::check::numbers;
use crate::reports;
use fuse_tests::{alone, devices};

#[test]
fn an_access_without_a_mask_is_reported() {
    let _alone = alone();
    for device in devices() {
        let x = device.upload(&[1.0f32; 1000]).unwrap();
        let mut out = device.zeros::<f32>(1000).unwrap();
        let launched = add_without_mask::<1024>(&x, &x, &mut out)
            .grid(1)
            .launch(&device)
            .and_then(|()| device.synchronize());
        // What is inside the slices is right all the same.
        assert_eq!(out.download().unwrap(), [2.0; 1000], "{device}");
        if !reports() {
            assert_eq!(launched, Ok(()), "{device}");
            continue;
        }
        let error = launched.expect_err("element 1000 is not there");
        assert!(matches!(error, Error::OutOfBounds { len: 1000, .. }), "{device}: {error}");
        if device == Device::cpu() {
            expect_file!["../../output/add_without_mask.txt"].assert_eq(&format!("{error}\n"));
        }
    }
}

#[test]
fn zeros_take_part_in_a_softmax() {
    let _alone = alone();
    for device in devices() {
        let x = device.upload(&[1.0f32; 100]).unwrap();
        let mut out = device.zeros::<f32>(100).unwrap();
        softmax_with_zeros(&x, &mut out, 100).grid(1).launch(&device).unwrap();
        let sum: f32 = out.download().unwrap().iter().sum();
        // 100 ones among 156 zeros: each counts as exp(-1).
        let expected = 100.0 / (100.0 + 156.0 * (-1f32).exp());
        assert!((sum - expected).abs() < 1e-5, "{device}: {sum}, not {expected}");
        if device == Device::cpu() {
            expect_file!["../../output/softmax_with_zeros.txt"]
                .assert_eq(&format!("the probabilities of a row of 100 add up to {sum:.3}\n"));
        }
    }
}

#[test]
fn a_sum_that_is_not_corrected_is_too_large() {
    let _alone = alone();
    // In rising order, so that the maximum changes with each block.
    let mut x = numbers::<f32>(256, 12);
    x.sort_by(f32::total_cmp);
    let exact: f64 = x.iter().map(|x| f64::from(*x).exp()).sum();
    for device in devices() {
        let device_x = device.upload(&x).unwrap();
        let mut out = device.zeros::<f32>(1).unwrap();
        sum_of_exponentials::<64>(&device_x, &mut out, 256).grid(1).launch(&device).unwrap();
        let found = out.download().unwrap()[0];
        assert!(f64::from(found) > 2.0 * exact, "{device}: {found} beside {exact}");
        if device == Device::cpu() {
            expect_file!["../../output/sum_of_exponentials.txt"]
                .assert_eq(&format!("the sum of exponentials is {found:.1}, expected {exact:.1}\n"));
        }
    }
}

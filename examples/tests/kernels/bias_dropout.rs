//! `fused_kernels::bias_dropout`, forward and backward.

use dsl_runtime::prelude::*;
use fused_kernels::bias_dropout::{BiasDropout, backward_reference, reference};
use fused_kernels::dropout::{BiasGeluDropout, Dropout, DropoutGradients, scratch_len};
use fused_kernels::float::LibraryFloat;

use crate::data::{check, devices, normal};
use crate::dropout::{ENDS, inputs_at};

const SHAPES: [(usize, usize); 8] =
    [(0, 3), (1, 1), (100, 7), (33, 128), (5, 129), (3, 1025), (2, 4096), (3, 9001)];
const SEED: u64 = 0x1234_5678_9abc_def0;

fn check_both<T: LibraryFloat>() {
    for ((rows, cols), p) in SHAPES.into_iter().zip([0.3, 0.5, 0.0, 0.3, 1.0, 0.9, 0.1, 0.3]) {
        let (what, dropout) = (format!("{p} of {rows} x {cols}"), Dropout { p, seed: SEED });
        let [x, residual, dy] = [1, 2, 3].map(|seed| normal::<T>(rows * cols, seed));
        let bias = normal::<T>(cols, 4);
        for added in [None, Some(&residual[..])] {
            let expected = [reference(&x, &bias, added, dropout)];
            check(&what, &[&x, &bias, &residual], &expected, |on, inputs, outs| {
                let op = BiasDropout::new(inputs[0], inputs[1]).dropout(p, SEED);
                let op = if added.is_some() { op.residual(inputs[2]) } else { op };
                op.launch(on, &mut outs[0])
            });
        }
        check(&what, &[&x, &bias, &dy], &backward_reference(&dy, cols, dropout), |on, inputs, outs| {
            let [dx, dbias] = outs else { panic!("two gradients") };
            let mut scratch = on.upload(&vec![f32::NAN; scratch_len(rows, cols)])?;
            let gradients =
                DropoutGradients { dx: dx.into(), dbias: dbias.into(), scratch: (&mut scratch).into() };
            BiasDropout::new(inputs[0], inputs[1]).dropout(p, SEED).backward(on, inputs[2], gradients)
        });
    }
}

#[test]
fn results_are_as_exact_as_stated() {
    check_both::<f32>();
    check_both::<f16>();
    check_both::<bf16>();
}

#[test]
fn every_probability_drops_what_is_documented() {
    let (rows, cols) = (40, 1025);
    let (residual, bias) = (normal::<f32>(rows * cols, 1), normal::<f32>(cols, 2));
    for p in ENDS {
        let [x, dy] = [3, 4].map(|seed| inputs_at(p, rows * cols, seed));
        let (what, dropout) = (format!("p = {p:e}"), Dropout { p, seed: SEED });
        let expected = [reference(&x, &bias, Some(&residual), dropout)];
        check(&what, &[&x, &bias, &residual], &expected, |on, inputs, outs| {
            let op = BiasDropout::new(inputs[0], inputs[1]).dropout(p, SEED);
            op.residual(inputs[2]).launch(on, &mut outs[0])
        });
        check(&what, &[&x, &bias, &dy], &backward_reference(&dy, cols, dropout), |on, inputs, outs| {
            let [dx, dbias] = outs else { panic!("two gradients") };
            let mut scratch = on.upload(&vec![f32::NAN; scratch_len(rows, cols)])?;
            let gradients =
                DropoutGradients { dx: dx.into(), dbias: dbias.into(), scratch: (&mut scratch).into() };
            BiasDropout::new(inputs[0], inputs[1]).dropout(p, SEED).backward(on, inputs[2], gradients)
        });
    }
}

/// The same elements as with an activation; all of them at 1, where NaN and infinity go as well, none at 0.
#[test]
fn the_mask_is_a_function_of_seed_and_number() {
    let (rows, cols) = (30, 1000);
    let bias = vec![0.0f32; cols];
    let mut x = vec![1.0f32; rows * cols];
    for device in devices() {
        let bb = device.upload(&bias).unwrap();
        let mut out = device.zeros::<f32>(rows * cols).unwrap();
        let bx = device.upload(&x).unwrap();
        BiasDropout::new(&bx, &bb).dropout(0.25, SEED).launch(&device, &mut out).unwrap();
        let plain: Vec<bool> = out.download().unwrap().iter().map(|y| *y == 0.0).collect();
        let op = BiasGeluDropout::new(&bx, &bb);
        op.dropout(0.25, SEED).launch(&device, &mut out).unwrap();
        let activated: Vec<bool> = out.download().unwrap().iter().map(|y| *y == 0.0).collect();
        assert_eq!(plain, activated, "{device}");
        let share = plain.iter().filter(|dropped| **dropped).count();
        assert!((7_100..7_900).contains(&share), "{device}: {share}");
    }
    (x[7], x[8]) = (f32::NAN, f32::INFINITY);
    for device in devices() {
        let (bx, bb) = (device.upload(&x).unwrap(), device.upload(&bias).unwrap());
        let mut out = device.zeros::<f32>(rows * cols).unwrap();
        BiasDropout::new(&bx, &bb).dropout(1.0, SEED).launch(&device, &mut out).unwrap();
        assert!(out.download().unwrap().iter().all(|y| *y == 0.0), "{device}");
        BiasDropout::new(&bx, &bb).dropout(0.0, SEED).launch(&device, &mut out).unwrap();
        let out = out.download().unwrap();
        assert!(out[7].is_nan() && out[8] == f32::INFINITY, "{device}");
        assert!(out[9..].iter().all(|y| *y == 1.0), "{device}");
    }
}

#[test]
fn what_does_not_fit_is_an_error_in_words() {
    let device = Device::cpu();
    let (x, bias, mut out) = ([1.0f32; 8], [1.0f32; 4], [0.0f32; 8]);
    let op = BiasDropout::new(&x, &bias);
    let mut say = |op: BiasDropout<f32>| op.launch(&device, &mut out).map_err(|error| error.to_string());
    assert_eq!(say(op), Ok(()));
    let error = |reason: &str| Err(format!("bias_dropout: {reason}"));
    assert_eq!(say(op.dropout(1.5, 0)), error("1.5 is not a probability"));
    assert_eq!(say(op.dropout(f32::NAN, 0)), error("NaN is not a probability"));
    assert_eq!(say(op.residual(&bias)), error("x has 8 elements and residual has 4"));
    assert_eq!(say(BiasDropout::new(&x, &x[..3])), error("x has 8 elements, which are no whole rows of 3"));
}

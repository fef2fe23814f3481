//! `cross_entropy`, forward and backward.

use dsl_runtime::prelude::*;
use fused_kernels::cross_entropy::{CrossEntropy, Label, Saved, backward_reference, reference};
use fused_kernels::float::LibraryFloat;
use fused_kernels::reference::{Expected, compare};

use crate::data::{Guarded, check, devices, normal, shifted};

const IGNORED: i64 = -100;

/// A case: logits in rows, and what their rows are compared with.
struct Rows<T> {
    logits: Vec<T>,
    targets: Vec<i64>,
    classes: usize,
    smoothing: f32,
}

impl<T: LibraryFloat> Rows<T> {
    /// Random logits; the second row does not count.
    fn normal(rows: usize, classes: usize, smoothing: f32) -> Self {
        let logits =
            normal::<f32>(rows * classes, 1).iter().map(|x| T::from_f64(f64::from(*x) * 3.0)).collect();
        let target = |row: usize| if row == 1 { IGNORED } else { (row * 7919 % classes) as i64 };
        Rows { logits, targets: (0..rows).map(target).collect(), classes, smoothing }
    }

    fn label(&self, row: usize) -> Label {
        Label { target: self.targets[row], ignored: IGNORED, smoothing: self.smoothing }
    }

    fn rows(&self) -> impl Iterator<Item = (usize, &[T])> {
        self.logits.chunks(self.classes).enumerate()
    }

    /// Computes forward on every device; gives what the first one computed.
    fn forward(&self) -> (Vec<f32>, Vec<f32>) {
        let expected: Vec<[Expected; 2]> =
            self.rows().map(|(i, row)| reference(row, self.label(i))).collect();
        let column = |i: usize| expected.iter().map(|both| both[i]).collect::<Vec<_>>();
        let mut first = None;
        for device in devices() {
            for shift in [0, 1] {
                let x = shifted(device, &self.logits, shift);
                let targets = device.upload(&self.targets).unwrap();
                let mut loss = Guarded::<f32>::new(device, self.targets.len(), shift);
                let mut lse = Guarded::<f32>::new(device, self.targets.len(), shift);
                let entropy = CrossEntropy::new(&targets, self.classes).smoothing(self.smoothing);
                entropy.forward(&device, x.slice(shift..), loss.output(), lse.output()).unwrap();
                let (loss, lse) = (loss.content(), lse.content());
                for (what, got, i) in [("loss", &loss, 0), ("lse", &lse, 1)] {
                    if let Err(found) = compare(got, &column(i)) {
                        panic!("{what} of {} classes, {} on {device}: {found}", self.classes, T::DTYPE);
                    }
                }
                first.get_or_insert((loss, lse));
            }
        }
        first.unwrap()
    }
}

fn check_both<T: LibraryFloat>() {
    for classes in [
        1, 7, 256, 300, 700, 1000, 1200, 4096, 4097, 8192, 8200, 20_001, 40_000, 50_257, 70_000, 70_001,
        98_304,
    ] {
        for smoothing in [0.0, 0.1] {
            let case = Rows::<T>::normal(3, classes, smoothing);
            let (_, lse) = case.forward();
            let grad = [0.5f32, 2.0, -1.0];
            let exact = |(i, row)| backward_reference(row, case.label(i), [lse[i], grad[i]]);
            let expected: Vec<Expected> = case.rows().flat_map(exact).collect();
            let what = format!("the gradient of {classes} classes smoothed by {smoothing}");
            check(&what, &[&case.logits], std::slice::from_ref(&expected), |on, inputs, outs| {
                let (targets, lse, grad) = (on.upload(&case.targets)?, on.upload(&lse)?, on.upload(&grad)?);
                let saved = Saved { lse: lse.slice(..), grad: grad.slice(..) };
                let entropy = CrossEntropy::new(&targets, classes).smoothing(smoothing);
                entropy.backward(on, inputs[0], saved, &mut outs[0])?;
                // Over the logits: the same to the bit.
                let mut over = Guarded::of(*on, &case.logits, 1);
                entropy.backward_in_place(on, over.output(), saved)?;
                assert_eq!(over.content(), outs[0].download()?, "{what} on {on}");
                Ok(())
            });
        }
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
fn special_rows_are_as_documented() {
    let classes = 9000;
    let mut case = Rows::<f32>::normal(8, classes, 0.0);
    case.targets = vec![3, IGNORED, -1, 9000, 5, 5, 5, 1 << 40];
    case.logits[4 * classes..5 * classes].fill(f32::NEG_INFINITY);
    case.logits[5 * classes + 17] = f32::NAN;
    // Some classes are out of the question, and the row is far from zero.
    case.logits[6 * classes..7 * classes].iter_mut().for_each(|x| *x += 50_000.0);
    case.logits[6 * classes..7 * classes].iter_mut().step_by(2).for_each(|x| *x = f32::NEG_INFINITY);
    let (loss, lse) = case.forward();
    let is_nan: Vec<bool> = loss.iter().map(|loss| loss.is_nan()).collect();
    assert_eq!(is_nan, [false, false, true, true, true, true, false, true]);
    assert_eq!(loss[1], 0.0);
    assert_eq!(lse[4], f32::NEG_INFINITY);
    let grad = [1.0f32; 8];
    for device in devices() {
        let (x, targets) = (device.upload(&case.logits).unwrap(), device.upload(&case.targets).unwrap());
        let (lse, grad) = (device.upload(&lse).unwrap(), device.upload(&grad).unwrap());
        let saved = Saved { lse: lse.slice(..), grad: grad.slice(..) };
        let mut dx = Guarded::<f32>::new(device, case.logits.len(), 0);
        CrossEntropy::new(&targets, classes).backward(&device, &x, saved, dx.output()).unwrap();
        let dx = dx.content();
        let row = |i: usize| &dx[i * classes..(i + 1) * classes];
        assert!(row(1).iter().all(|dx| *dx == 0.0), "{device}");
        assert!([2, 3, 4, 5, 7].iter().all(|i| row(*i).iter().all(|dx| dx.is_nan())), "{device}");
        assert!(row(6).iter().all(|dx| dx.is_finite()), "{device}");
    }
}

/// The reference itself: a gradient is what the loss differs by.
#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let row = normal::<f64>(40, 1);
    let label = Label { target: 7, ignored: IGNORED, smoothing: 0.2 };
    let value = |row: &[f64]| reference(row, label)[0].value;
    let lse = reference(&row, label)[1].value as f32;
    let gradient = backward_reference(&row, label, [lse, 1.0]);
    for i in 0..row.len() {
        let (mut up, mut down) = (row.clone(), row.clone());
        up[i] += 1e-6;
        down[i] -= 1e-6;
        let slope = (value(&up) - value(&down)) / 2e-6;
        assert!((slope - gradient[i].value).abs() < 1e-6, "{i}: {slope} and {}", gradient[i].value);
    }
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let forward = |x: usize, classes: usize, loss: usize, lse: usize| {
        let (x, mut loss, mut lse) = (vec![1.0f32; x], vec![0.0f32; loss], vec![0.0f32; lse]);
        let launched = CrossEntropy::new(&[0i64; 3], classes).forward(&device, &x, &mut loss, &mut lse);
        launched.map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("cross_entropy: {reason}"));
    assert_eq!(forward(12, 4, 3, 3), Ok(()));
    assert_eq!(forward(12, 5, 3, 3), error("logits has 12 elements, which are no whole rows of 5"));
    assert_eq!(forward(8, 4, 3, 3), error("targets has 3 elements and a column of logits has 2"));
    assert_eq!(forward(12, 4, 2, 3), error("targets has 3 elements and loss has 2"));
    assert_eq!(forward(12, 4, 3, 4), error("targets has 3 elements and lse has 4"));
}

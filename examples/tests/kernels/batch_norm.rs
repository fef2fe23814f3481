//! `fused_kernels::batch_norm`, in inference and in training.

use dsl_runtime::prelude::*;
use fused_kernels::batch_norm::{
    BatchNorm, Channel, Host, Running, Statistics, infer_reference, n_partials, scratch_len, statistics,
    train_reference,
};
use fused_kernels::float::LibraryFloat;
use fused_kernels::reference::{Expected, compare, unit_roundoff};

use crate::data::{Guarded, check, devices, normal, shifted};

const EPS: f32 = 1e-5;

/// Images, channels and pixels.
const SHAPES: [[usize; 3]; 14] = [
    [1, 1, 2],
    [2, 1, 1],
    [3, 5, 1],
    [100, 130, 1],
    [2000, 3, 1],
    [5, 1030, 1],
    [2, 3, 7],
    [70, 3, 49],
    [4, 20, 196],
    [3, 2, 1000],
    [2, 3, 4096],
    [2, 3, 4097],
    [1, 2, 40_000],
    [9, 1, 9001],
];

/// What of one shape is computed from.
struct Images<T> {
    x: Vec<T>,
    gamma: Vec<T>,
    beta: Vec<T>,
    residual: Vec<T>,
    pixels: usize,
}

impl<T: Float> Images<T> {
    fn normal([images, channels, pixels]: [usize; 3]) -> Self {
        let [x, residual] = [1, 2].map(|seed| normal::<T>(images * channels * pixels, seed));
        let [gamma, beta] = [3, 4].map(|seed| normal::<T>(channels, seed));
        Images { x, gamma, beta, residual, pixels }
    }

    /// With a residual and ReLU, or without both.
    fn host(&self, follows: bool) -> Host<'_, T> {
        let residual = follows.then_some(&self.residual[..]);
        let Images { x, gamma, beta, pixels, .. } = self;
        Host { x, gamma, beta, residual, pixels: *pixels, relu: follows }
    }
}

fn check_inference<T: LibraryFloat>() {
    for shape in SHAPES.into_iter().chain([[0, 3, 1], [0, 3, 5]]) {
        let of = Images::<T>::normal(shape);
        let mean = normal::<f32>(shape[1], 5);
        let var: Vec<f32> = normal::<f32>(shape[1], 6).into_iter().map(|x| x * x).collect();
        for follows in [false, true] {
            let inputs = [&of.x[..], &of.gamma[..], &of.beta[..], &of.residual[..]];
            let expected = [infer_reference(of.host(follows), [&mean, &var], EPS)];
            check(&format!("{shape:?}"), &inputs, &expected, |on, inputs, outs| {
                let norm = BatchNorm::new(inputs[0], inputs[1], inputs[2]).pixels(of.pixels).eps(EPS);
                let norm = if follows { norm.residual(inputs[3]).relu() } else { norm };
                norm.infer(on, &on.upload(&mean)?, &on.upload(&var)?, &mut outs[0])
            });
        }
    }
}

#[test]
fn inference_is_as_exact_as_stated() {
    check_inference::<f32>();
    check_inference::<f16>();
    check_inference::<bf16>();
}

/// What training leaves: the result, the mean and `rstd`, the running mean and variance.
#[derive(PartialEq)]
struct Left<T> {
    out: Vec<T>,
    saved: [Vec<f32>; 2],
    running: [Vec<f32>; 2],
}

/// Trains with everything `shift` elements off a boundary.
fn trained<T: LibraryFloat>(device: Device, of: &Images<T>, shift: usize, follows: bool) -> Left<T> {
    let channels = of.gamma.len();
    let images = of.x.len() / (channels * of.pixels);
    let buffers = [&of.x, &of.gamma, &of.beta, &of.residual].map(|values| shifted(device, values, shift));
    let [x, gamma, beta, residual] = buffers.each_ref().map(|buffer| buffer.slice(shift..));
    let norm = BatchNorm::new(x, gamma, beta).pixels(of.pixels).eps(EPS);
    let norm = if follows { norm.residual(residual).relu() } else { norm };
    let mut out = Guarded::<T>::new(device, of.x.len(), shift);
    let [mut mean, mut rstd] = [0, 1].map(|_| Guarded::<f32>::new(device, channels, shift));
    let [mut running_mean, mut running_var] =
        [0.5, 2.0].map(|value| Guarded::of(device, &vec![value; channels], shift));
    let scratch = vec![f32::NAN; scratch_len([images, channels, of.pixels])];
    let mut scratch = device.upload(&scratch).unwrap();
    let running = Running { mean: running_mean.output(), var: running_var.output(), momentum: 0.1 };
    let left = Statistics {
        mean: mean.output(),
        rstd: rstd.output(),
        running: Some(running),
        scratch: (&mut scratch).into(),
    };
    norm.train(&device, left, out.output()).unwrap();
    let saved = [mean.content(), rstd.content()];
    Left { out: out.content(), saved, running: [running_mean.content(), running_var.content()] }
}

/// What the statistics should be: mean, `rstd`, running mean and variance.
fn expected_statistics(channel: Channel, size: usize) -> [Expected; 4] {
    let single = unit_roundoff(DType::F32);
    let Channel { mean, var, .. } = channel;
    let shifted = var.value + f64::from(EPS);
    let rstd = 1.0 / shifted.sqrt();
    let correction = size as f64 / (size as f64 - 1.0);
    let moved = |old: f64, own: Expected| {
        let value = 0.9 * old + 0.1 * own.value;
        Expected { value, within: 0.1 * own.within + 4.0 * single * (old.abs() + own.value.abs()) }
    };
    let unbiased = Expected { value: var.value * correction, within: var.within * correction };
    [
        mean,
        Expected { value: rstd, within: rstd * (var.within / shifted + 4.0 * single) },
        moved(0.5, mean),
        moved(2.0, unbiased),
    ]
}

#[track_caller]
fn check_training<T: LibraryFloat>(shape: [usize; 3], of: &Images<T>) {
    let size = shape[0] * shape[2];
    let channels = statistics(&of.x, shape[1], shape[2]);
    let of_channels: Vec<[Expected; 4]> =
        channels.into_iter().map(|channel| expected_statistics(channel, size)).collect();
    for device in devices() {
        for (shift, follows) in [(0, false), (1, true)] {
            let left = trained(device, of, shift, follows);
            let what = format!("{shape:?} of {} on {device}, shifted by {shift}", T::DTYPE);
            let [mean, rstd] = &left.saved;
            let [running_mean, running_var] = &left.running;
            for (i, got) in [mean, rstd, running_mean, running_var].into_iter().enumerate() {
                let expected: Vec<Expected> = of_channels.iter().map(|channel| channel[i]).collect();
                compare(got, &expected).unwrap_or_else(|found| panic!("{what}, statistic {i}: {found}"));
            }
            let expected = train_reference(of.host(follows), EPS);
            compare(&left.out, &expected).unwrap_or_else(|found| panic!("{what}: {found}"));
            assert!(left == trained(device, of, shift, follows), "{what}: another run gives something else");
        }
    }
}

fn check_shapes<T: LibraryFloat>() {
    for shape in SHAPES {
        check_training(shape, &Images::<T>::normal(shape));
    }
}

#[test]
fn training_is_as_exact_as_stated() {
    check_shapes::<f32>();
    check_shapes::<f16>();
    check_shapes::<bf16>();
}

#[test]
fn few_channels_are_shared_by_many_programs() {
    assert_eq!(n_partials([1, 2, 40_000]), 40);
    assert_eq!(n_partials([256, 3, 50_176]), 256);
    assert_eq!(n_partials([1 << 20, 3, 1]), 1056);
    assert_eq!(n_partials([32, 2048, 49]), 1);
}

/// A mean a thousand deviations from 0, and means of images that differ by as much: `E[x^2] - E[x]^2` would leave nothing.
#[test]
fn a_large_mean_does_not_cancel() {
    for shape in [[300, 2, 1], [6, 2, 5000], [40, 3, 49]] {
        let mut of = Images::<f32>::normal(shape);
        of.x.iter_mut().for_each(|x| *x += 1000.0);
        check_training(shape, &of);
        let image = shape[1] * shape[2];
        of.x.iter_mut().enumerate().for_each(|(i, x)| *x += (i / image % 2) as f32 * 2000.0);
        check_training(shape, &of);
    }
}

#[test]
fn extremes_stay_in_their_channel() {
    for pixels in [1, 100, 5000] {
        let (images, channels) = (20, 4);
        let mut of = Images::<f16>::normal([images, channels, pixels]);
        of.gamma.fill(f16::ONE);
        of.beta.fill(f16::from_f64(0.25));
        of.x[0] = f16::NAN;
        of.x[pixels] = f16::INFINITY;
        for image in of.x.chunks_mut(channels * pixels) {
            image[2 * pixels..3 * pixels].fill(f16::from_f64(3.0));
        }
        for device in devices() {
            let left = trained(device, &of, 0, false);
            for image in left.out.chunks(channels * pixels) {
                assert!(image[..2 * pixels].iter().all(|y| y.is_nan()), "{device}");
                // A channel of one number has no deviation but that of its mean's rounding.
                let constant = &image[2 * pixels..3 * pixels];
                assert!(constant.iter().all(|y| (y.to_f64() - 0.25).abs() < 1e-3), "{device}");
                assert!(image[3 * pixels..].iter().all(|y| y.is_finite()), "{device}");
            }
            assert!(left.running[1][..2].iter().all(|var| var.is_nan()), "{device}");
            assert!((left.running[1][2] - 1.8).abs() < 1e-6, "{device}");
        }
    }
}

/// Without running statistics, with a residual and ReLU behind the norm.
#[test]
fn running_statistics_may_be_left_out() {
    let shape = [6, 5, 9];
    let of = Images::<f32>::normal(shape);
    let expected = train_reference(of.host(true), EPS);
    for device in devices() {
        let [x, gamma, beta, residual] =
            [&of.x, &of.gamma, &of.beta, &of.residual].map(|values| device.upload(values).unwrap());
        let [mut mean, mut rstd] = [0, 1].map(|_| device.zeros::<f32>(shape[1]).unwrap());
        let mut scratch = device.zeros::<f32>(scratch_len(shape)).unwrap();
        let mut out = device.zeros::<f32>(of.x.len()).unwrap();
        let left = Statistics {
            mean: (&mut mean).into(),
            rstd: (&mut rstd).into(),
            running: None,
            scratch: (&mut scratch).into(),
        };
        let norm = BatchNorm::new(&x, &gamma, &beta).pixels(of.pixels).eps(EPS).residual(&residual).relu();
        norm.train(&device, left, &mut out).unwrap();
        compare(&out.download().unwrap(), &expected).unwrap_or_else(|found| panic!("{device}: {found}"));
    }
}

/// Without images nothing moves; one value a channel is its mean; what is left out is left out.
#[test]
fn least_lengths_train() {
    let device = Device::cpu();
    let (gamma, beta) = ([2.0f32, 3.0], [0.5f32, -0.5]);
    let run = |x: &[f32], running: Option<Running>| {
        let [mut mean, mut rstd] = [[-7.0f32; 2]; 2];
        let (mut out, mut scratch) = (vec![0.0f32; x.len()], vec![0.0f32; scratch_len([x.len() / 2, 2, 1])]);
        let left = Statistics {
            mean: (&mut mean).into(),
            rstd: (&mut rstd).into(),
            running,
            scratch: (&mut scratch).into(),
        };
        let trained = BatchNorm::new(x, &gamma, &beta).train(&device, left, &mut out);
        trained.map(|()| (mean, out)).map_err(|error| error.to_string())
    };
    assert_eq!(run(&[], None), Ok(([-7.0; 2], vec![])));
    assert_eq!(run(&[4.0, 5.0], None), Ok(([4.0, 5.0], vec![0.5, -0.5])));
    let (mut mean, mut var) = ([0.0f32; 2], [1.0f32; 2]);
    let running = Running { mean: (&mut mean).into(), var: (&mut var).into(), momentum: 0.1 };
    assert_eq!(
        run(&[4.0, 5.0], Some(running)).unwrap_err(),
        "batch_norm: a channel has one value, which has no unbiased variance to move the running one by"
    );
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let (x, three, two, mut out) = ([1.0f32; 12], [1.0f32; 3], [1.0f32; 2], [0.0f32; 12]);
    let mut say = |norm: BatchNorm<f32>, mean: &[f32], var: &[f32]| {
        norm.infer(&device, mean, var, &mut out).map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("batch_norm: {reason}"));
    let norm = BatchNorm::new(&x, &three, &three);
    assert_eq!(say(norm, &three, &three), Ok(()));
    assert_eq!(say(norm.pixels(4), &three, &three), Ok(()));
    assert_eq!(say(norm, &two, &three), error("gamma has 3 elements and the running mean has 2"));
    assert_eq!(say(norm, &three, &two), error("gamma has 3 elements and the running variance has 2"));
    assert_eq!(say(norm.pixels(5), &three, &three), error("x has 12 elements, which are no whole rows of 5"));
    assert_eq!(say(norm.residual(&two), &three, &three), error("x has 12 elements and residual has 2"));
    assert_eq!(
        say(BatchNorm::new(&x, &three, &two), &three, &three),
        error("gamma has 3 elements and beta has 2")
    );
    let (mut saved, mut rstd, mut scratch) = ([0.0f32; 3], [0.0f32; 3], [0.0f32; 2]);
    let left = Statistics {
        mean: (&mut saved).into(),
        rstd: (&mut rstd).into(),
        running: None,
        scratch: (&mut scratch).into(),
    };
    assert_eq!(
        norm.train(&device, left, &mut out).unwrap_err().to_string(),
        "batch_norm: scratch has 2 elements and what it should be has 9"
    );
}

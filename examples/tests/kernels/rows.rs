//! Rows that are not one behind the other: of matrices inside wider ones, which are read and written in place.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;
use fused_kernels::act_and_mul::{self, ActAndMul, Gate, SwigluBackward};
use fused_kernels::activation::Activation;
use fused_kernels::add_layer_norm::AddLayerNorm;
use fused_kernels::center::{self, Center};
use fused_kernels::float::LibraryFloat;
use fused_kernels::l2_norm::{self, L2Norm};
use fused_kernels::layer_norm::{self, LayerNorm};
use fused_kernels::layer_norm_gelu::{self, LayerNormGelu};
use fused_kernels::masked_softmax::{self, HostMask, Mask, MaskedSoftmax};
use fused_kernels::norm_activation::{self, HostNorm, NormActivation};
use fused_kernels::quantize::{DequantizeAdd, dequantized};
use fused_kernels::reference::{Expected, compare};
use fused_kernels::rms_norm::{self, AddRmsNorm, RmsNorm, sum};
use fused_kernels::softmax::{self, Softmax, SoftmaxOutput};

use crate::data::{devices, normal};

/// Short rows and those of a block, aligned and not, and those that are read in pieces on a CPU.
const WIDTHS: [usize; 5] = [6, 512, 1024, 1030, 33_003];
const ROWS: usize = 5;
const GUARD: f64 = -77.0;

/// Rows inside a wider matrix, `gap` elements apart and behind its start; between them a value that nobody computes.
struct Inside<T: Element> {
    buffer: Buffer<T>,
    cols: usize,
    gap: usize,
}

impl<T: Number> Inside<T> {
    fn new(device: Device, values: &[T], cols: usize, gap: usize, guard: T) -> Self {
        let mut content = vec![guard; gap];
        for row in values.chunks(cols) {
            content.extend_from_slice(row);
            content.extend(std::iter::repeat_n(guard, gap));
        }
        Inside { buffer: device.upload(&content).unwrap(), cols, gap }
    }

    fn rows(&self) -> usize {
        (self.buffer.len() - self.gap) / (self.cols + self.gap)
    }

    fn view(&self) -> View<'_, T, 2> {
        let (shape, stride) = ([self.rows(), self.cols], self.cols + self.gap);
        View::strided(self.buffer.slice(self.gap..), shape, [stride, 1]).unwrap()
    }

    fn view_mut(&mut self) -> ViewMut<'_, T, 2> {
        let (shape, stride) = ([self.rows(), self.cols], self.cols + self.gap);
        ViewMut::strided(self.buffer.slice_mut(self.gap..), shape, [stride, 1]).unwrap()
    }

    /// The rows, once it is sure that nothing was written between them.
    fn content(&self, guard: T) -> Vec<T> {
        let content = self.buffer.download().unwrap();
        let (before, rows) = content.split_at(self.gap);
        let (inner, outer): (Vec<&[T]>, Vec<&[T]>) =
            rows.chunks(self.cols + self.gap).map(|row| row.split_at(self.cols)).unzip();
        assert!(before.iter().chain(outer.concat().iter()).all(|value| *value == guard));
        inner.concat()
    }
}

/// Runs an operation on rows at distances that keep vectors aligned, and that do not.
#[track_caller]
fn check<T: LibraryFloat>(
    what: &str,
    inputs: &[(&[T], usize)],
    (expected, cols): (&[Expected], usize),
    launch: impl Fn(&Device, &[View<T, 2>], ViewMut<T, 2>) -> Result<()>,
) {
    let guard = T::from_f64(GUARD);
    for device in devices() {
        for gap in [16, 3] {
            // Each at another distance.
            let inside = |(i, (values, cols)): (usize, &(&[T], usize))| {
                Inside::new(device, values, *cols, gap * (i + 1), guard)
            };
            let inputs: Vec<Inside<T>> = inputs.iter().enumerate().map(inside).collect();
            let views: Vec<View<T, 2>> = inputs.iter().map(Inside::view).collect();
            let nothing = vec![T::from_f64(f64::NAN); expected.len()];
            let mut out = Inside::new(device, &nothing, cols, 5 * gap, guard);
            launch(&device, &views, out.view_mut()).unwrap();
            let what = format!("{what} of {} in rows of {cols}, {gap} apart, on {device}", T::DTYPE);
            compare(&out.content(guard), expected).unwrap_or_else(|found| panic!("{what}: {found}"));
        }
    }
}

fn check_norms<T: LibraryFloat>() {
    for cols in WIDTHS {
        let [x, residual] = [1, 2].map(|seed| normal::<T>(ROWS * cols, seed));
        let [gamma, beta] = [3, 4].map(|seed| normal::<T>(cols, seed));
        let on = |device: &Device| [&gamma, &beta].map(|values| device.upload(values).unwrap());
        let input = [(&x[..], cols)];
        let expected = layer_norm::reference(&x, &gamma, &beta, 1e-5);
        check("layer_norm", &input, (&expected, cols), |device, inputs, out| {
            let [gamma, beta] = on(device);
            LayerNorm::new(inputs[0], &gamma, &beta).launch(device, out)
        });
        let expected = rms_norm::reference(&x, &gamma, 1e-6);
        check("rms_norm", &input, (&expected, cols), |device, inputs, out| {
            RmsNorm::new(inputs[0], &on(device)[0]).launch(device, out)
        });
        check("center", &input, (&center::reference(&x, cols), cols), |device, inputs, out| {
            Center::new(inputs[0], cols).launch(device, out)
        });
        check("l2_norm", &input, (&l2_norm::reference(&x, cols, 1e-12), cols), |device, inputs, out| {
            L2Norm::new(inputs[0], cols).launch(device, out)
        });
        if cols <= layer_norm_gelu::MAX_COLS {
            let expected = layer_norm_gelu::reference(&x, &gamma, &beta, 1e-5);
            check("layer_norm_gelu", &input, (&expected, cols), |device, inputs, out| {
                let [gamma, beta] = on(device);
                LayerNormGelu::new(inputs[0], &gamma, &beta).launch(device, out)
            });
        }
        let norm = HostNorm { gamma: &gamma, beta: None, eps: 1e-6 };
        let expected = norm_activation::reference(&x, norm, Activation::Silu, Some(&residual));
        let inputs = [(&x[..], cols), (&residual[..], cols)];
        check("norm_activation", &inputs, (&expected, cols), |device, inputs, out| {
            let [gamma, _] = on(device);
            let norm = NormActivation::rms_norm(inputs[0], &gamma, Activation::Silu);
            norm.residual(inputs[1]).launch(device, out)
        });
    }
}

#[test]
fn norms_of_rows_inside_a_matrix() {
    check_norms::<f32>();
    check_norms::<bf16>();
}

fn check_residuals<T: LibraryFloat>() {
    let guard = T::from_f64(GUARD);
    for (cols, device) in WIDTHS.into_iter().flat_map(|cols| devices().into_iter().map(move |on| (cols, on)))
    {
        let [x, residual] = [1, 2].map(|seed| normal::<T>(ROWS * cols, seed));
        let [gamma, beta] = [3, 4].map(|seed| normal::<T>(cols, seed));
        let sum = sum(&x, &residual);
        let (x, nothing) = (Inside::new(device, &x, cols, 24, guard), vec![T::default(); ROWS * cols]);
        let [on_gamma, on_beta] = [&gamma, &beta].map(|values| device.upload(values).unwrap());
        let check = |is_layer_norm: bool, gap: usize, expected: &[Expected]| {
            let mut stream = Inside::new(device, &residual, cols, gap, guard);
            let mut out = Inside::new(device, &nothing, cols, gap, guard);
            let launched = if is_layer_norm {
                let norm = AddLayerNorm::new(x.view(), &on_gamma, &on_beta);
                norm.launch(&device, stream.view_mut(), out.view_mut())
            } else {
                AddRmsNorm::new(x.view(), &on_gamma).launch(&device, stream.view_mut(), out.view_mut())
            };
            launched.unwrap();
            assert_eq!(stream.content(guard), sum, "rows of {cols} on {device}");
            compare(&out.content(guard), expected).unwrap_or_else(|found| panic!("rows of {cols}: {found}"));
        };
        for gap in [5, 8] {
            check(false, gap, &rms_norm::reference(&sum, &gamma, 1e-6));
            check(true, gap, &layer_norm::reference(&sum, &gamma, &beta, 1e-5));
        }
    }
}

#[test]
fn residuals_inside_a_matrix() {
    check_residuals::<f32>();
    check_residuals::<bf16>();
}

fn check_softmax_and_gates<T: LibraryFloat>() {
    for cols in WIDTHS {
        let x = normal::<T>(ROWS * cols, 1);
        let expected = softmax::reference(&x, cols, 0.5, SoftmaxOutput::Logarithm);
        check("softmax", &[(&x, cols)], (&expected, cols), |device, inputs, out| {
            Softmax::new(inputs[0], cols).scale(0.5).log().launch(device, out)
        });
        let mask = normal::<T>(cols, 2);
        let form = (cols, SoftmaxOutput::Probability);
        let expected = masked_softmax::reference(&x, HostMask::Add(&mask), form, 0.5);
        check("masked_softmax", &[(&x, cols)], (&expected, cols), |device, inputs, out| {
            let mask = device.upload(&mask)?;
            MaskedSoftmax::new(inputs[0], Mask::Add(mask.slice(..)), cols).scale(0.5).launch(device, out)
        });
        let d = cols.div_ceil(2);
        let (x, dy) = (normal::<T>(ROWS * 2 * d, 1), normal::<T>(ROWS * d, 2));
        let expected = act_and_mul::reference(&x, d, Activation::Silu, Gate::Second);
        check("act_and_mul", &[(&x, 2 * d)], (&expected, d), |device, inputs, out| {
            ActAndMul::new(inputs[0], d, Activation::Silu).gate(Gate::Second).launch(device, out)
        });
        let expected = act_and_mul::backward_reference(&dy, &x, d, Gate::First);
        let inputs = [(&dy[..], d), (&x[..], 2 * d)];
        check("swiglu_backward", &inputs, (&expected, 2 * d), |device, inputs, out| {
            SwigluBackward::new(inputs[0], inputs[1], d).launch(device, out)
        });
    }
}

#[test]
fn softmax_and_gates_of_rows_inside_a_matrix() {
    check_softmax_and_gates::<f32>();
    check_softmax_and_gates::<f16>();
}

#[test]
fn dequantization_of_rows_inside_a_matrix() {
    let guard = f16::from_f64(GUARD);
    for (cols, device) in
        [96, 1030, 20_000].into_iter().flat_map(|cols| devices().into_iter().map(move |on| (cols, on)))
    {
        let residual = normal::<f16>(ROWS * cols, 1);
        let q: Vec<i8> = (0..ROWS * cols).map(|i| (i % 255) as i8).collect();
        let scales = normal::<f32>(ROWS, 2);
        let (on_q, on_scales) = (Inside::new(device, &q, cols, 7, -77), device.upload(&scales).unwrap());
        let on_residual = Inside::new(device, &residual, cols, 3, guard);
        let mut sums = Inside::new(device, &residual, cols, 11, guard);
        let add = DequantizeAdd::new(on_q.view(), &on_scales).residual(on_residual.view());
        add.launch(&device, sums.view_mut()).unwrap();
        let products: Vec<f64> =
            q.iter().enumerate().map(|(i, q)| f64::from(*q) * f64::from(scales[i / cols])).collect();
        compare(&sums.content(guard), &dequantized(&products, Some(&residual))).unwrap();
    }
}

#[test]
fn views_that_are_no_rows_are_an_error_in_words() {
    let device = Device::cpu();
    let x = device.upload(&[1.0f32; 24]).unwrap();
    let (gamma, mut out) = ([1.0f32; 4], [0.0f32; 24]);
    let mut say = |x: View<f32, 2>, rows: usize| {
        let out = ViewMut::new(&mut out, [rows, 4]).unwrap();
        RmsNorm::new(x, &gamma).launch(&device, out).map_err(|error| error.to_string())
    };
    let view = |shape, strides| x.view_strided(shape, strides).unwrap();
    assert_eq!(say(view([3, 4], [6, 1]), 3), Ok(()));
    assert_eq!(say(view([3, 4], [0, 1]), 3), Ok(()));
    let error = |text: &str| Err(format!("rms_norm: {text}"));
    assert_eq!(say(view([3, 5], [6, 1]), 3), error("x has the shape [3, 5], expected [3, 4]"));
    assert_eq!(say(view([4, 4], [6, 1]), 3), error("x has 4 rows and out has 3"));
    let text = "x has elements of a row 3 apart, which must be contiguous";
    assert_eq!(say(view([3, 4], [1, 3]), 3), error(text));
}

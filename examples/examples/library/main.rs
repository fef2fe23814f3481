//! Every other kernel of the library on random data, checked against `f64` and measured:
//! `cargo run --release --example library -- rms-norm --rows 8192 --cols 4096 --dtype bf16`

#[path = "../demo/mod.rs"]
mod demo;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use demo::{Common, Demo, Matrix, Type};
use dsl_runtime::prelude::*;
use fused_kernels::act_and_mul::{self, ActAndMul, Gate, SwigluBackward};
use fused_kernels::activation::{GELU, GELU_TANH, RELU, SILU};
use fused_kernels::add_activation::{self, AddActivation};
use fused_kernels::bias_activation::{self, BiasActivation};
use fused_kernels::center::{self, Center};
use fused_kernels::cross_entropy::{self, CrossEntropy, Label, Saved};
use fused_kernels::group_norm::{self, GroupNorm};
use fused_kernels::l2_norm::{self, L2Norm};
use fused_kernels::layer_norm_backward::{self, Gradients, LayerNormBackward};
use fused_kernels::layer_norm_gelu::{self, LayerNormGelu};
use fused_kernels::masked_softmax::{self, HostMask, Mask, MaskedSoftmax};
use fused_kernels::reference::Expected;
use fused_kernels::rms_norm::{self, AddRmsNorm, RmsNorm};
use fused_kernels::rms_norm_backward::{self, RmsNormBackward};
use fused_kernels::scale_relu::{self, ScaleRelu};
use fused_kernels::softmax::{self, Form, Softmax};

/// Runs a kernel on a random matrix, checks it against float64 and measures it
#[derive(Parser)]
struct Options {
    /// The kernel
    kernel: Kernel,
    /// The number of rows
    #[arg(long, default_value_t = 4096)]
    rows: usize,
    /// The length of a row
    #[arg(long, default_value_t = 4096)]
    cols: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kernel {
    ScaleRelu,
    AddRelu,
    AddGelu,
    AddGeluTanh,
    AddSilu,
    BiasGelu,
    SiluAndMul,
    GeluAndMul,
    GeluTanhAndMul,
    SwigluBackward,
    RmsNorm,
    AddRmsNorm,
    RmsNormBackward,
    LayerNormGelu,
    LayerNormBackward,
    Center,
    L2Norm,
    GroupNorm,
    Softmax,
    LogSoftmax,
    MaskedSoftmax,
    CrossEntropy,
    CrossEntropyBackward,
}

fn main() -> Result<()> {
    let options = Options::parse();
    match options.common.dtype {
        Type::F32 => in_f32(&options),
        Type::F16 => in_f16(&options),
        Type::Bf16 => in_bf16(&options),
    }
}

/// The classes of a row each, in turn.
fn targets(options: &Options) -> Vec<i64> {
    (0..options.rows).map(|row| (row * 7919 % options.cols.max(1)) as i64).collect()
}

/// The parts that the demos share.
impl Options {
    /// Random elements, here and on the device.
    fn normal<T: Float>(&self, len: usize, seed: u64) -> Result<(Vec<T>, Buffer<T>)> {
        let elements = Matrix::<T>::normal(1, len, seed).elements;
        let buffer = self.common.device.upload(&elements)?;
        Ok((elements, buffer))
    }

    /// Runs, checks, measures and reports.
    fn show<T: Float>(
        &self,
        traffic: usize,
        expected: &[Expected],
        launch: impl FnMut(&Device, &mut Buffer<T>) -> dsl_runtime::Result<()>,
    ) -> Result<()> {
        let (rows, cols) = (self.rows, self.cols);
        let title = format!("{:?}: {rows} rows of {cols} elements of {:?}", self.kernel, self.common.dtype);
        let demo = Demo { common: &self.common, title, traffic };
        let mut out = Matrix { rows, cols: expected.len() / rows.max(1), elements: Vec::new() };
        demo.run(&mut out, expected, launch)
    }
}

/// All demos in one element type: which kernels there are for it, the macro's expansion shows to the compiler.
macro_rules! demos {
    ($name:ident, $T:ty) => {
        fn $name(options: &Options) -> Result<()> {
            let (rows, cols) = (options.rows, options.cols);
            let n = rows * cols;
            let (x, bx) = options.normal::<$T>(n, 0)?;
            let (y, by) = options.normal::<$T>(n, 1)?;
            let (gamma, bg) = options.normal::<$T>(cols, 2)?;
            let (beta, bb) = options.normal::<$T>(cols, 3)?;
            macro_rules! add {
                ($ACT:ident) => {{
                    let expected = add_activation::reference::<$T, $ACT>(&x, &y);
                    options.show(add_activation::traffic::<$T>(n), &expected, |on, out| {
                        AddActivation::<$T, $ACT>::new(&bx, &by).launch(on, out)
                    })
                }};
            }
            macro_rules! gate {
                ($ACT:ident) => {{
                    let (wide, bw) = options.normal::<$T>(2 * n, 4)?;
                    let expected = act_and_mul::reference::<$T, $ACT>(&wide, cols, Gate::First);
                    options.show(act_and_mul::traffic::<$T>(rows, cols), &expected, |on, out| {
                        ActAndMul::<$T, $ACT>::new(&bw, cols).launch(on, out)
                    })
                }};
            }
            match options.kernel {
                Kernel::ScaleRelu => {
                    let expected = scale_relu::reference(&x, 1.5, 0.25);
                    options.show(scale_relu::traffic::<$T>(n), &expected, |on, out| {
                        ScaleRelu::new(&bx).scale(1.5).bias(0.25).launch(on, out)
                    })
                }
                Kernel::AddRelu => add!(RELU),
                Kernel::AddGelu => add!(GELU),
                Kernel::AddGeluTanh => add!(GELU_TANH),
                Kernel::AddSilu => add!(SILU),
                Kernel::BiasGelu => {
                    let expected = bias_activation::reference::<$T, GELU>(&x, &beta);
                    options.show(bias_activation::traffic::<$T>(rows, cols), &expected, |on, out| {
                        BiasActivation::<$T, GELU>::new(&bx, &bb).launch(on, out)
                    })
                }
                Kernel::SiluAndMul => gate!(SILU),
                Kernel::GeluAndMul => gate!(GELU),
                Kernel::GeluTanhAndMul => gate!(GELU_TANH),
                Kernel::SwigluBackward => {
                    let (wide, bw) = options.normal::<$T>(2 * n, 4)?;
                    let expected = act_and_mul::backward_reference(&y, &wide, cols, Gate::First);
                    options.show(act_and_mul::backward_traffic::<$T>(rows, cols), &expected, |on, out| {
                        SwigluBackward::new(&by, &bw, cols).launch(on, out)
                    })
                }
                Kernel::RmsNorm => {
                    let expected = rms_norm::reference(&x, &gamma, 1e-6);
                    options.show(rms_norm::traffic::<$T>(rows, cols), &expected, |on, out| {
                        RmsNorm::new(&bx, &bg).launch(on, out)
                    })
                }
                Kernel::AddRmsNorm => {
                    // Measured runs go on adding to the stream; the one that is checked is the first.
                    let mut stream = options.common.device.upload(&y)?;
                    let expected = rms_norm::reference(&rms_norm::sum(&x, &y), &gamma, 1e-6);
                    options.show(2 * rms_norm::traffic::<$T>(rows, cols), &expected, |on, out| {
                        AddRmsNorm::new(&bx, &bg).launch(on, &mut stream, out)
                    })
                }
                Kernel::RmsNormBackward => {
                    let [expected, _] = rms_norm_backward::reference(&y, &x, &gamma, 1e-6);
                    let device = options.common.device;
                    let mut dgamma = device.zeros::<$T>(cols)?;
                    let mut scratch = device.zeros(rms_norm_backward::scratch_len(rows, cols))?;
                    options.show(rms_norm_backward::traffic::<$T>(rows, cols), &expected, |on, out| {
                        RmsNormBackward::new(&by, &bx, &bg).launch(on, out, &mut dgamma, &mut scratch)
                    })
                }
                Kernel::LayerNormGelu => {
                    let expected = layer_norm_gelu::reference(&x, &gamma, &beta, 1e-5);
                    options.show(
                        fused_kernels::layer_norm::traffic::<$T>(rows, cols),
                        &expected,
                        |on, out| LayerNormGelu::new(&bx, &bg, &bb).launch(on, out),
                    )
                }
                Kernel::LayerNormBackward => {
                    let [expected, ..] = layer_norm_backward::reference(&y, &x, &gamma, 1e-5);
                    let device = options.common.device;
                    let (mut dgamma, mut dbeta) = (device.zeros::<$T>(cols)?, device.zeros::<$T>(cols)?);
                    let mut scratch = device.zeros(layer_norm_backward::scratch_len(rows, cols))?;
                    options.show(layer_norm_backward::traffic::<$T>(rows, cols), &expected, |on, out| {
                        let gradients = Gradients {
                            dgamma: (&mut dgamma).into(),
                            dbeta: (&mut dbeta).into(),
                            scratch: (&mut scratch).into(),
                        };
                        LayerNormBackward::new(&by, &bx, &bg).launch(on, out, gradients)
                    })
                }
                Kernel::Center => {
                    let expected = center::reference(&x, cols);
                    options.show(center::traffic::<$T>(rows, cols), &expected, |on, out| {
                        Center::new(&bx, cols).launch(on, out)
                    })
                }
                Kernel::L2Norm => {
                    let expected = l2_norm::reference(&x, cols, 1e-12);
                    options.show(l2_norm::traffic::<$T>(rows, cols), &expected, |on, out| {
                        L2Norm::new(&bx, cols).launch(on, out)
                    })
                }
                Kernel::GroupNorm => {
                    // A row is an image; 32 channels in 8 groups where they divide it, else one.
                    let (channels, groups) = if cols.is_multiple_of(32) { (32, 8) } else { (1, 1) };
                    let pixels = cols / channels;
                    let parameters = [&gamma[..channels.min(cols)], &beta[..channels.min(cols)]];
                    let expected = group_norm::reference(&x, parameters, [groups, pixels], 1e-5);
                    options.show(group_norm::traffic::<$T>(n), &expected, |on, out| {
                        let (gamma, beta) = (bg.slice(..channels), bb.slice(..channels));
                        GroupNorm::new(&bx, gamma, beta).groups(groups).pixels(pixels).launch(on, out)
                    })
                }
                Kernel::Softmax => {
                    let expected = softmax::reference(&x, cols, 1.0, Form::Probability);
                    options.show(softmax::traffic::<$T>(rows, cols), &expected, |on, out| {
                        Softmax::new(&bx, cols).launch(on, out)
                    })
                }
                Kernel::LogSoftmax => {
                    let expected = softmax::reference(&x, cols, 1.0, Form::Logarithm);
                    options.show(softmax::traffic::<$T>(rows, cols), &expected, |on, out| {
                        Softmax::new(&bx, cols).log().launch(on, out)
                    })
                }
                Kernel::MaskedSoftmax => {
                    let kept: Vec<bool> = (0..n).map(|i| i % 7 != 3).collect();
                    let bk = options.common.device.upload(&kept)?;
                    let form = (cols, Form::Probability);
                    let expected = masked_softmax::reference(&x, HostMask::Keep(&kept), form, 1.0);
                    options.show(softmax::traffic::<$T>(rows, cols) + n, &expected, |on, out| {
                        MaskedSoftmax::new(&bx, Mask::Keep(bk.slice(..)), cols).launch(on, out)
                    })
                }
                Kernel::CrossEntropy => {
                    let targets = targets(options);
                    let label = |row: usize| Label { target: targets[row], ignored: -100, smoothing: 0.1 };
                    let rows_of_x = x.chunks(cols.max(1)).enumerate();
                    let expected: Vec<Expected> =
                        rows_of_x.map(|(i, row)| cross_entropy::reference(row, label(i))[0]).collect();
                    let (bt, mut lse) =
                        (options.common.device.upload(&targets)?, options.common.device.zeros(rows)?);
                    options.show(
                        cross_entropy::traffic::<$T>(rows, cols),
                        &expected,
                        |on, out: &mut Buffer<f32>| {
                            CrossEntropy::new(&bt, cols).smoothing(0.1).forward(on, &bx, out, &mut lse)
                        },
                    )
                }
                Kernel::CrossEntropyBackward => {
                    let targets = targets(options);
                    let label = |row: usize| Label { target: targets[row], ignored: -100, smoothing: 0.0 };
                    let rows_of_x = || x.chunks(cols.max(1)).enumerate();
                    let lse: Vec<f32> = rows_of_x()
                        .map(|(i, row)| cross_entropy::reference(row, label(i))[1].value as f32)
                        .collect();
                    let gradient = |(i, row)| cross_entropy::backward_reference(row, label(i), [lse[i], 1.0]);
                    let expected: Vec<Expected> = rows_of_x().flat_map(gradient).collect();
                    let device = options.common.device;
                    let (bt, bl) = (device.upload(&targets)?, device.upload(&lse)?);
                    let ones = device.upload(&vec![1.0f32; rows])?;
                    options.show(cross_entropy::backward_traffic::<$T>(rows, cols), &expected, |on, out| {
                        let saved = Saved { lse: bl.slice(..), grad: ones.slice(..) };
                        CrossEntropy::new(&bt, cols).backward(on, &bx, saved, out)
                    })
                }
            }
        }
    };
}

demos!(in_f32, f32);
demos!(in_f16, f16);
demos!(in_bf16, bf16);

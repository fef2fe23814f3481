//! Every other kernel of the library on random data, checked against `f64` and measured:
//! `cargo run --release --example library -- rms-norm --rows 8192 --cols 4096 --dtype bf16`

#[path = "../demo/mod.rs"]
mod demo;

mod beside;
mod moe;
mod projection;
mod rotary;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use demo::{Common, Demo, DynLaunch, Matrix, Type};
use dsl_runtime::prelude::*;
use fused_kernels::act_and_mul::{self, ActAndMul, Gate, SwigluBackward};
use fused_kernels::activation::Activation;
use fused_kernels::add_activation::{self, AddActivation};
use fused_kernels::attention::{Attention, AttentionExtents as Heads};
use fused_kernels::attention_decode;
use fused_kernels::attention_reference::{self, Rules};
use fused_kernels::bias_activation::{self, BiasActivation};
use fused_kernels::center::{self, Center};
use fused_kernels::cross_entropy::{self, CrossEntropy, Label, Saved};
use fused_kernels::dropout::{self, BiasGeluDropout, Dropout};
use fused_kernels::embedding::{self, Embedding};
use fused_kernels::float::HalfFloat;
use fused_kernels::gating::{self, TopkGating, Weights};
use fused_kernels::group_norm::{self, GroupNorm};
use fused_kernels::l2_norm::{self, L2Norm};
use fused_kernels::layer_norm_backward::{self, Gradients, LayerNormBackward};
use fused_kernels::layer_norm_gelu::{self, LayerNormGelu};
use fused_kernels::masked_softmax::{self, HostMask, Mask, MaskedSoftmax};
use fused_kernels::matmul::{self, Epilogue, Extents, Matmul};
use fused_kernels::quantize::{self, DequantizeAdd, Quantize};
use fused_kernels::quantized_matmul::{self, Quantized, QuantizedMatmul};
use fused_kernels::recurrence::{self, HostSteps, Recurrence};
use fused_kernels::reference::Expected;
use fused_kernels::rms_norm::{self, AddRmsNorm, RmsNorm};
use fused_kernels::rms_norm_backward::{self, RmsNormBackward};
use fused_kernels::rope::{self, Angles, HostAngles, Rope};
use fused_kernels::scale_relu::{self, ScaleRelu};
use fused_kernels::softmax::{self, Softmax, SoftmaxOutput};

/// Runs a kernel on a random matrix, checks it against float64 and measures it
#[derive(Parser)]
struct Options {
    /// The kernel
    #[arg(required_unless_present = "list")]
    kernel: Option<Kernel>,
    /// Names the kernels, and runs none
    #[arg(long)]
    list: bool,
    /// The number of rows
    #[arg(long, default_value_t = 4096)]
    rows: usize,
    /// The length of a row
    #[arg(long, default_value_t = 4096)]
    cols: usize,
    /// A .npy file with the matrix, whose shape then counts
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kernel {
    ScaleRelu,
    ScaleReluColumns,
    FusedBiasRelu,
    LinearCombination,
    AddRelu,
    AddGelu,
    AddGeluTanh,
    AddSilu,
    BiasGelu,
    MatmulBiasGelu,
    QuantizedMatmul,
    SiluAndMul,
    GeluAndMul,
    GeluTanhAndMul,
    SwigluBackward,
    RmsNorm,
    AddRmsNorm,
    RmsNormBackward,
    AddLayerNorm,
    LayerNormGelu,
    LayerNormSiluAdd,
    RmsNormSilu,
    LayerNormBackward,
    Center,
    L2Norm,
    GroupNorm,
    BatchNormRelu,
    BatchNormTrain,
    Softmax,
    LogSoftmax,
    MaskedSoftmax,
    CrossEntropy,
    CrossEntropyBackward,
    BiasGeluDropout,
    BiasDropoutAdd,
    RmsNormQuantize,
    Attention,
    AttentionDecode,
    LinearNorm,
    AttentionProjection,
    Rope,
    PackedQkvNormRope,
    PackedQkvCache,
    RotaryAttention,
    Recurrence,
    TopkGating,
    Moe,
    Embedding,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if options.list {
        let names = Kernel::value_variants().iter().filter_map(Kernel::to_possible_value);
        let names: Vec<String> = names.map(|name| name.get_name().to_string()).collect();
        writeln!(std::io::stdout(), "{}", names.join("\n"))?;
        return Ok(());
    }
    match (options.kernel, options.common.dtype) {
        (Some(Kernel::RmsNormQuantize), Type::F32) => bail!("16-bit types are quantised"),
        (Some(Kernel::RmsNormQuantize), Type::F16) => quantized::<f16>(&options),
        (Some(Kernel::RmsNormQuantize), Type::Bf16) => quantized::<bf16>(&options),
        (Some(Kernel::Attention), Type::F32) => bail!("attention is of 16-bit types"),
        (Some(Kernel::Attention), Type::F16) => attended::<f16>(&options),
        (Some(Kernel::Attention), Type::Bf16) => attended::<bf16>(&options),
        (Some(Kernel::AttentionDecode), Type::F32) => bail!("attention is of 16-bit types"),
        (Some(Kernel::AttentionDecode), Type::F16) => decoded::<f16>(&options),
        (Some(Kernel::AttentionDecode), Type::Bf16) => decoded::<bf16>(&options),
        (Some(Kernel::QuantizedMatmul), Type::F32) => {
            bail!("products of quantised matrices are of 16-bit types here")
        }
        (Some(Kernel::QuantizedMatmul), Type::F16) => multiplied::<f16>(&options),
        (Some(Kernel::QuantizedMatmul), Type::Bf16) => multiplied::<bf16>(&options),
        (Some(Kernel::LinearNorm), Type::F32) => projection::normalized::<f32>(&options),
        (Some(Kernel::LinearNorm), Type::F16) => projection::normalized::<f16>(&options),
        (Some(Kernel::LinearNorm), Type::Bf16) => projection::normalized::<bf16>(&options),
        (Some(Kernel::AttentionProjection), Type::F32) => bail!("attention is of 16-bit types"),
        (Some(Kernel::AttentionProjection), Type::F16) => projection::projected::<f16>(&options),
        (Some(Kernel::AttentionProjection), Type::Bf16) => projection::projected::<bf16>(&options),
        (Some(Kernel::Moe), Type::F32) => moe::routed::<f32>(&options),
        (Some(Kernel::Moe), Type::F16) => moe::routed::<f16>(&options),
        (Some(Kernel::Moe), Type::Bf16) => moe::routed::<bf16>(&options),
        (Some(Kernel::PackedQkvNormRope | Kernel::PackedQkvCache), Type::F32) => {
            rotary::packed::<f32>(&options)
        }
        (Some(Kernel::PackedQkvNormRope | Kernel::PackedQkvCache), Type::F16) => {
            rotary::packed::<f16>(&options)
        }
        (Some(Kernel::PackedQkvNormRope | Kernel::PackedQkvCache), Type::Bf16) => {
            rotary::packed::<bf16>(&options)
        }
        (Some(Kernel::RotaryAttention), Type::F32) => bail!("attention is of 16-bit types"),
        (Some(Kernel::RotaryAttention), Type::F16) => rotary::attended::<f16>(&options),
        (Some(Kernel::RotaryAttention), Type::Bf16) => rotary::attended::<bf16>(&options),
        (_, Type::F32) => in_f32(&options),
        (_, Type::F16) => in_f16(&options),
        (_, Type::Bf16) => in_bf16(&options),
    }
}

/// The class of each row.
fn targets(options: &Options) -> Vec<i64> {
    (0..options.rows).map(|row| (row * 7919 % options.cols.max(1)) as i64).collect()
}

/// The methods that the demos share.
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
        mut launch: impl FnMut(&Device, &mut Buffer<T>) -> dsl_runtime::Result<()>,
    ) -> Result<()> {
        self.show_launch(traffic, expected, &mut launch)
    }

    fn show_launch<T: Float>(
        &self,
        traffic: usize,
        expected: &[Expected],
        launch: &mut DynLaunch<T>,
    ) -> Result<()> {
        let (rows, cols) = (self.rows, self.cols);
        let name = self.kernel.and_then(|kernel| kernel.to_possible_value());
        let name = name.map(|name| name.get_name().to_string()).unwrap_or_default();
        let title = format!("{name}: {rows} rows of {cols} elements of {:?}", self.common.dtype);
        let demo = Demo { common: &self.common, title, traffic };
        let mut out = Matrix { rows, cols: expected.len() / rows.max(1), elements: Vec::new() };
        demo.run(&mut out, expected, launch)
    }
}

/// The norm of each row to 8 bits, and back: both are measured, and the error is that of 8 bits.
fn quantized<T: HalfFloat>(options: &Options) -> Result<()> {
    let (rows, cols, device) = (options.rows, options.cols, options.common.device);
    let (x, bx) = options.normal::<T>(rows * cols, 0)?;
    let (gamma, bg) = options.normal::<T>(cols, 1)?;
    let (mut q, mut scales) = (device.zeros::<i8>(rows * cols)?, device.zeros::<f32>(rows)?);
    let wide = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
    let normed = rms_norm::reference(&wide(&x), &wide(&gamma), 1e-6);
    let expected: Vec<Expected> =
        normed.chunks(cols.max(1)).flat_map(|row| quantize::reference(row, true).1).collect();
    let rounded = |Expected { value, within }: &Expected| Expected {
        value: *value,
        within: within + fused_kernels::reference::unit_roundoff(T::DTYPE) * (value.abs() + within),
    };
    let expected: Vec<Expected> = expected.iter().map(rounded).collect();
    let traffic = 2 * quantize::traffic::<T>(rows, cols);
    options.show(traffic, &expected, |on, out: &mut Buffer<T>| {
        Quantize::rms_norm(&bx, &bg).to_i8(on, &mut q, &mut scales)?;
        DequantizeAdd::new(&q, &scales).launch(on, out)
    })
}

/// The GELU of a matmul of `i8` with a scale for each row and column, and a bias. Operand B is narrow: the reference is
/// slow.
fn multiplied<T: HalfFloat>(options: &Options) -> Result<()> {
    let (device, (m, k)) = (options.common.device, (options.rows, options.cols));
    let extents = Extents { m, k, n: k.min(256) };
    let n = extents.n;
    let integers = |len: usize, seed: u64| -> Result<(Vec<f64>, Buffer<i8>)> {
        let (floats, _) = options.normal::<f32>(len, seed)?;
        let integers: Vec<i8> = floats.into_iter().map(|x| (40.0 * x) as i8).collect();
        Ok((integers.iter().map(|&x| f64::from(x)).collect(), device.upload(&integers)?))
    };
    let scales = |len: usize, seed: u64| -> Result<(Vec<f32>, Buffer<f32>)> {
        let (floats, _) = options.normal::<f32>(len, seed)?;
        let scales: Vec<f32> = floats.into_iter().map(|x| 0.01 + 0.005 * x.abs()).collect();
        let buffer = device.upload(&scales)?;
        Ok((scales, buffer))
    };
    let ((a, ba), (weights, bb)) = (integers(m * k, 0)?, integers(n * k, 1)?);
    let ((row_scales, br), (col_scales, bc)) = (scales(m, 2)?, scales(n, 3)?);
    let (bias, bs) = options.normal::<f32>(n, 4)?;
    let b: Vec<f64> = (0..k * n).map(|i| weights[i % n * k + i / n]).collect();
    let of = Quantized {
        a: &a,
        b: &b,
        row_scales: &row_scales,
        col_scales: &col_scales,
        bias: Some(&bias),
        integers: true,
    };
    let expected = quantized_matmul::reference(of, extents, Activation::Gelu);
    let expected: Vec<Expected> = expected.into_iter().map(|y| y.rounded(T::DTYPE)).collect();
    options.show(quantized_matmul::traffic::<i8, T>(extents), &expected, |on, out: &mut Buffer<T>| {
        let columns = bb.view([n, k])?.permute([1, 0]);
        let matmul_call = QuantizedMatmul::new(ba.view([m, k])?, &br, columns, &bc).bias(&bs);
        matmul_call.activation(Activation::Gelu).launch(on, out.view_mut([m, n])?)
    })
}

/// Causal attention of two heads of 64 elements that share a head of keys, of as many queries and keys as there are
/// rows.
fn attended<T: HalfFloat>(options: &Options) -> Result<()> {
    let extents = Heads { heads: 2, key_heads: 1, queries: options.rows, keys: options.rows, elements: 64 };
    let [of_q, of_k] = [[2, options.rows, 64], [1, options.rows, 64]];
    let len = |shape: [usize; 3]| shape.iter().product::<usize>();
    let ((q, bq), (k, bk)) = (options.normal::<T>(len(of_q), 0)?, options.normal::<T>(len(of_k), 1)?);
    let (v, bv) = options.normal::<T>(len(of_k), 2)?;
    let mut lse = options.common.device.zeros::<f32>(2 * options.rows)?;
    let [expected, _] = attention_reference::reference([&q, &k, &v], extents, Rules::scaled(0.125).causal());
    options.show(attention_reference::traffic::<T>(extents), &expected, |on, out| {
        let attention = Attention::new(bq.view(of_q)?, bk.view(of_k)?, bv.view(of_k)?).causal();
        attention.launch_with_lse(on, out.view_mut(of_q)?, &mut lse)
    })
}

/// A query for each of 32 heads of 128 elements, of which four share a head of keys, of as many keys as there are rows.
fn decoded<T: HalfFloat>(options: &Options) -> Result<()> {
    let extents = Heads { heads: 32, key_heads: 8, queries: 1, keys: options.rows, elements: 128 };
    let [of_q, of_k] = [[32, 1, 128], [8, options.rows, 128]];
    let len = |shape: [usize; 3]| shape.iter().product::<usize>();
    let ((q, bq), (k, bk)) = (options.normal::<T>(len(of_q), 0)?, options.normal::<T>(len(of_k), 1)?);
    let (v, bv) = options.normal::<T>(len(of_k), 2)?;
    let device = options.common.device;
    let attention = Attention::new(bq.view(of_q)?, bk.view(of_k)?, bv.view(of_k)?);
    let mut workspace = device.zeros::<f32>(attention.workspace_len(&device))?;
    let mut lse = device.zeros::<f32>(32)?;
    let scale = 1.0 / 128f32.sqrt();
    let [expected, _] = attention_decode::reference([&q, &k, &v], extents, Rules::scaled(scale));
    options.show(attention_reference::traffic::<T>(extents), &expected, |on, out| {
        attention.launch_split_with_lse(on, out.view_mut(of_q)?, &mut lse, &mut workspace)
    })
}

/// All demos in one element type: which kernels there are for it, the macro's expansion shows to the compiler.
macro_rules! demos {
    ($name:ident, $T:ty) => {
        fn $name(options: &Options) -> Result<()> {
            let shape = (options.rows, options.cols);
            let Matrix { rows, cols, elements: x } =
                Matrix::<$T>::read_or_normal(options.input.as_deref(), shape, 0)?;
            let options = &Options { rows, cols, input: None, common: options.common.clone(), ..*options };
            let (n, bx) = (x.len(), options.common.device.upload(&x)?);
            let (y, by) = options.normal::<$T>(n, 1)?;
            let (gamma, bg) = options.normal::<$T>(cols, 2)?;
            let (beta, bb) = options.normal::<$T>(cols, 3)?;
            macro_rules! add {
                ($Activation:ident) => {{
                    let expected = add_activation::reference::<$T>(&x, &y, Activation::$Activation);
                    options.show(add_activation::traffic::<$T>(n), &expected, |on, out| {
                        AddActivation::new(&bx, &by, Activation::$Activation).launch(on, out)
                    })
                }};
            }
            macro_rules! gate {
                ($Activation:ident) => {{
                    let (wide, bw) = options.normal::<$T>(2 * n, 4)?;
                    let expected =
                        act_and_mul::reference::<$T>(&wide, cols, Activation::$Activation, Gate::First);
                    options.show(act_and_mul::traffic::<$T>(rows, cols), &expected, |on, out| {
                        ActAndMul::new(&bw, cols, Activation::$Activation).launch(on, out)
                    })
                }};
            }
            let Some(kernel) = options.kernel else { return Ok(()) };
            match kernel {
                Kernel::ScaleRelu => {
                    let expected = scale_relu::reference(&x, 1.5, 0.25);
                    options.show(scale_relu::traffic::<$T>(n), &expected, |on, out| {
                        ScaleRelu::new(&bx).scale(1.5).bias(0.25).launch(on, out)
                    })
                }
                Kernel::ScaleReluColumns
                | Kernel::FusedBiasRelu
                | Kernel::LinearCombination
                | Kernel::AddLayerNorm
                | Kernel::LayerNormSiluAdd
                | Kernel::RmsNormSilu
                | Kernel::BiasDropoutAdd
                | Kernel::BatchNormRelu
                | Kernel::BatchNormTrain => beside::$name(options, &x),
                Kernel::AddRelu => add!(Relu),
                Kernel::AddGelu => add!(Gelu),
                Kernel::AddGeluTanh => add!(GeluTanh),
                Kernel::AddSilu => add!(Silu),
                Kernel::BiasGelu => {
                    let expected = bias_activation::reference::<$T>(&x, &beta, Activation::Gelu);
                    options.show(bias_activation::traffic::<$T>(rows, cols), &expected, |on, out| {
                        BiasActivation::new(&bx, &bb, Activation::Gelu).launch(on, out)
                    })
                }
                Kernel::MatmulBiasGelu => {
                    // A narrow operand B: the reference is slow.
                    let narrow = cols.min(256);
                    let (w, bw) = options.normal::<$T>(cols * narrow, 4)?;
                    let extents = Extents { m: rows, k: cols, n: narrow };
                    let (bias, activation) = (Some(&beta[..narrow]), Activation::Gelu);
                    let epilogue = Epilogue { bias, activation, ..Epilogue::default() };
                    let expected = matmul::reference::<$T>([&x, &w], extents, epilogue);
                    options.show(matmul::traffic::<$T>(extents), &expected, |on, out| {
                        let matmul_call = Matmul::new(bx.view([rows, cols])?, bw.view([cols, narrow])?);
                        let matmul_call = matmul_call.bias(bb.slice(..narrow)).activation(activation);
                        matmul_call.launch(on, out.view_mut([rows, narrow])?)
                    })
                }
                Kernel::SiluAndMul => gate!(Silu),
                Kernel::GeluAndMul => gate!(Gelu),
                Kernel::GeluTanhAndMul => gate!(GeluTanh),
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
                    let expected = softmax::reference(&x, cols, 1.0, SoftmaxOutput::Probability);
                    options.show(softmax::traffic::<$T>(rows, cols), &expected, |on, out| {
                        Softmax::new(&bx, cols).launch(on, out)
                    })
                }
                Kernel::LogSoftmax => {
                    let expected = softmax::reference(&x, cols, 1.0, SoftmaxOutput::Logarithm);
                    options.show(softmax::traffic::<$T>(rows, cols), &expected, |on, out| {
                        Softmax::new(&bx, cols).log().launch(on, out)
                    })
                }
                Kernel::MaskedSoftmax => {
                    let kept: Vec<bool> = (0..n).map(|i| i % 7 != 3).collect();
                    let bk = options.common.device.upload(&kept)?;
                    let form = (cols, SoftmaxOutput::Probability);
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
                Kernel::BiasGeluDropout => {
                    let dropout = Dropout { p: 0.1, seed: 42 };
                    let expected = dropout::reference::<$T>([&x, &beta], None, Activation::Gelu, dropout);
                    options.show(dropout::traffic::<$T>(rows, cols), &expected, |on, out| {
                        BiasGeluDropout::new(&bx, &bb).dropout(0.1, 42).launch(on, out)
                    })
                }
                Kernel::RmsNormQuantize
                | Kernel::QuantizedMatmul
                | Kernel::Attention
                | Kernel::AttentionDecode => {
                    bail!("16-bit types, by themselves")
                }
                Kernel::Rope => {
                    // A row is a token: heads of 128 elements where they divide it, else one head.
                    let dim = if cols.is_multiple_of(128) { 128 } else { cols.min(256) };
                    let (heads, half) = (cols / dim.max(1), dim / 2);
                    let angle = |i: usize| (i / half) as f32 / (i % half + 1) as f32;
                    let cos: Vec<f32> = (0..rows * half).map(|i| angle(i).cos()).collect();
                    let sin: Vec<f32> = (0..rows * half).map(|i| angle(i).sin()).collect();
                    let positions: Vec<i32> = (0..rows as i32).collect();
                    let angles =
                        HostAngles { positions: &positions, cos: &cos, sin: &sin, half, interleaved: false };
                    let expected = rope::reference(&x, angles, heads, dim);
                    let device = options.common.device;
                    let (positions, cos, sin) =
                        (device.upload(&positions)?, device.upload(&cos)?, device.upload(&sin)?);
                    options.show(rope::traffic::<$T>(n), &expected, |on, out| {
                        let angles = Angles {
                            positions: positions.slice(..),
                            cos: cos.slice(..),
                            sin: sin.slice(..),
                            half,
                        };
                        Rope::<$T, false>::new(&bx, angles, heads, dim).launch(on, out)
                    })
                }
                Kernel::Recurrence => {
                    // Rows are steps of one sequence, columns its channels.
                    let a: Vec<$T> = x.iter().map(|x| <$T>::from_f64(x.to_f64().tanh())).collect();
                    let ba = options.common.device.upload(&a)?;
                    let (b, bb) = options.normal::<$T>(n, 5)?;
                    let first = vec![0.0f32; cols];
                    let steps = HostSteps { a: &a, b: &b, gate: &y, first: &first };
                    let [expected, _] = recurrence::reference(steps, cols);
                    let mut last = options.common.device.zeros::<f32>(cols)?;
                    options.show(recurrence::traffic::<$T>(n), &expected, |on, out| {
                        Recurrence::new(&ba, &bb, &by, cols).launch(on, out, &mut last)
                    })
                }
                Kernel::TopkGating => {
                    let mut experts = options.common.device.zeros::<i32>(2 * rows)?;
                    let weights = |row: &[$T]| gating::reference(row, 2, Weights::Renormalized).1;
                    let expected: Vec<Expected> = x.chunks(cols.max(1)).flat_map(weights).collect();
                    let traffic = gating::traffic::<$T>(rows, cols, 2);
                    options.show(traffic, &expected, |on, out: &mut Buffer<f32>| {
                        TopkGating::new(&bx, cols, 2).launch(on, out, &mut experts)
                    })
                }
                Kernel::PackedQkvNormRope | Kernel::PackedQkvCache | Kernel::RotaryAttention => {
                    bail!("rotary embedding has rows of its own")
                }
                Kernel::LinearNorm | Kernel::AttentionProjection => {
                    bail!("projections have rows of their own")
                }
                Kernel::Moe => bail!("a mixture of experts has rows of its own"),
                Kernel::Embedding => {
                    let ids: Vec<i64> = (0..rows).map(|i| (i * 7919 % rows.max(1)) as i64).collect();
                    let exact = |x: &$T| Expected { value: x.to_f64(), within: 0.0 };
                    let expected: Vec<Expected> =
                        embedding::reference(&x, &ids, cols).iter().map(exact).collect();
                    let ids = options.common.device.upload(&ids)?;
                    options.show(embedding::traffic::<$T>(rows, cols), &expected, |on, out| {
                        Embedding::new(&bx, &ids, cols).launch(on, out)
                    })
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

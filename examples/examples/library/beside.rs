//! Demos of kernels, each measured beside the same in several launches.

use std::io::Write;

use anyhow::{Result, bail};
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::add_layer_norm::{self, AddLayerNorm};
use fused_kernels::batch_norm::{self, BatchNorm, Host, Statistics};
use fused_kernels::bias_activation::BiasActivation;
use fused_kernels::bias_dropout::{self, BiasDropout};
use fused_kernels::dropout::Dropout;
use fused_kernels::fusion_flags::{self, BiasRelu};
use fused_kernels::layer_norm::{self, LayerNorm};
use fused_kernels::linear_combination::{self, LinearCombination};
use fused_kernels::norm_activation::{self, HostNorm, NormActivation};
use fused_kernels::rms_norm::{self, RmsNorm};
use fused_kernels::scale_relu::{self, ScaleRelu};

use crate::{Kernel, Options};

impl Options {
    /// Zeros on the device.
    fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Ok(self.common.device.zeros(len)?)
    }

    /// Measures what does the same in several launches.
    pub fn unfused(
        &self,
        launches: &str,
        mut launch: impl FnMut(&Device) -> dsl_runtime::Result<()>,
    ) -> Result<()> {
        self.unfused_launches(launches, &mut launch)
    }

    fn unfused_launches(
        &self,
        launches: &str,
        launch: &mut dyn FnMut(&Device) -> dsl_runtime::Result<()>,
    ) -> Result<()> {
        if self.common.once {
            return Ok(());
        }
        let (device, options) = (
            self.common.device,
            BenchOptions { warmup_ms: 200.0, rep_ms: 1000.0, ..BenchOptions::default() },
        );
        let timing = do_bench(&device, options, || launch(&device))?;
        writeln!(std::io::stdout(), "  unfused    {:.4} ms as {launches}", timing.median_ms())?;
        Ok(())
    }
}

/// A row is an image: 32 channels where they divide it, else a column is a channel.
fn channels_of(cols: usize) -> (usize, usize) {
    if cols.is_multiple_of(32) { (32, cols / 32) } else { (cols, 1) }
}

/// The demos in one element type.
macro_rules! demos {
    ($name:ident, $T:ty) => {
        pub fn $name(options: &Options, x: &[$T]) -> Result<()> {
            let (rows, cols, n) = (options.rows, options.cols, x.len());
            let bx = options.common.device.upload(x)?;
            let (y, by) = options.normal::<$T>(n, 1)?;
            let (gamma, bg) = options.normal::<$T>(cols, 2)?;
            let (beta, bb) = options.normal::<$T>(cols, 3)?;
            let [mut middle, mut last] = [options.zeros::<$T>(n)?, options.zeros::<$T>(n)?];
            match options.kernel {
                Some(Kernel::LinearCombination) => {
                    let (z, bz) = options.normal::<$T>(n, 4)?;
                    let expected = linear_combination::reference(&[x, &y, &z], &[1.5, -0.25, 0.5]);
                    options.show(linear_combination::traffic::<$T>(n, 3), &expected, |on, out| {
                        LinearCombination::new(1.5, &bx).y(-0.25, &by).z(0.5, &bz).launch(on, out)
                    })?;
                    options.unfused("two sums of two", |on| {
                        LinearCombination::new(1.5, &bx).y(-0.25, &by).launch(on, &mut middle)?;
                        LinearCombination::new(1.0, &middle).y(0.5, &bz).launch(on, &mut last)
                    })
                }
                Some(Kernel::AddLayerNorm) => {
                    // Measured runs go on adding to the stream; the one that is checked is the first.
                    let mut stream = options.common.device.upload(&y)?;
                    let expected = layer_norm::reference(&rms_norm::sum(x, &y), &gamma, &beta, 1e-5);
                    options.show(add_layer_norm::traffic::<$T>(rows, cols), &expected, |on, out| {
                        AddLayerNorm::new(&bx, &bg, &bb).launch(on, &mut stream, out)
                    })?;
                    options.unfused("a sum and a norm", |on| {
                        LinearCombination::new(1.0, &bx).y(1.0, &by).launch(on, &mut middle)?;
                        LayerNorm::new(&middle, &bg, &bb).launch(on, &mut last)
                    })
                }
                Some(Kernel::LayerNormSiluAdd) => {
                    let norm = HostNorm { gamma: &gamma[..], beta: Some(&beta[..]), eps: 1e-5 };
                    let expected = norm_activation::reference(x, norm, Activation::Silu, Some(&y));
                    let traffic = norm_activation::traffic::<$T>(rows, cols) + n * size_of::<$T>();
                    options.show(traffic, &expected, |on, out| {
                        NormActivation::layer_norm(&bx, &bg, &bb, Activation::Silu)
                            .residual(&by)
                            .launch(on, out)
                    })?;
                    let zeros = options.zeros::<$T>(cols)?;
                    options.unfused("a norm, an activation and a sum", |on| {
                        LayerNorm::new(&bx, &bg, &bb).launch(on, &mut middle)?;
                        BiasActivation::new(&middle, &zeros, Activation::Silu).launch(on, &mut last)?;
                        LinearCombination::new(1.0, &last).y(1.0, &by).launch(on, &mut middle)
                    })
                }
                Some(Kernel::RmsNormSilu) => {
                    let norm = HostNorm { gamma: &gamma[..], beta: None, eps: 1e-6 };
                    let expected = norm_activation::reference(x, norm, Activation::Silu, None);
                    options.show(norm_activation::traffic::<$T>(rows, cols), &expected, |on, out| {
                        NormActivation::rms_norm(&bx, &bg, Activation::Silu).launch(on, out)
                    })?;
                    let zeros = options.zeros::<$T>(cols)?;
                    options.unfused("a norm and an activation", |on| {
                        RmsNorm::new(&bx, &bg).launch(on, &mut middle)?;
                        BiasActivation::new(&middle, &zeros, Activation::Silu).launch(on, &mut last)
                    })
                }
                Some(Kernel::BiasDropoutAdd) => {
                    let dropout = Dropout { p: 0.1, seed: 42 };
                    let expected = bias_dropout::reference(x, &beta, Some(&y), dropout);
                    let traffic = bias_dropout::traffic::<$T>(rows, cols) + n * size_of::<$T>();
                    options.show(traffic, &expected, |on, out| {
                        BiasDropout::new(&bx, &bb).residual(&by).dropout(0.1, 42).launch(on, out)
                    })?;
                    let zeros = options.zeros::<$T>(cols)?;
                    options.unfused("a bias, dropout and a sum", |on| {
                        BiasActivation::new(&bx, &bb, Activation::Identity).launch(on, &mut middle)?;
                        BiasDropout::new(&middle, &zeros).dropout(0.1, 42).launch(on, &mut last)?;
                        LinearCombination::new(1.0, &last).y(1.0, &by).launch(on, &mut middle)
                    })
                }
                Some(Kernel::BatchNormRelu) => {
                    let (channels, pixels) = channels_of(cols);
                    let mean: Vec<f32> = (0..channels).map(|c| 0.01 * c as f32).collect();
                    let var = vec![1.5f32; channels];
                    let (bm, bv) =
                        (options.common.device.upload(&mean)?, options.common.device.upload(&var)?);
                    let (gamma, beta) = (&gamma[..channels], &beta[..channels]);
                    let host = Host { x, gamma, beta, residual: None, pixels, relu: true };
                    let expected = batch_norm::infer_reference(host, [&mean, &var], 1e-5);
                    let norm = BatchNorm::new(&bx, bg.slice(..channels), bb.slice(..channels)).pixels(pixels);
                    options.show(batch_norm::traffic::<$T>(n), &expected, |on, out| {
                        norm.relu().infer(on, &bm, &bv, out)
                    })?;
                    options.unfused("a norm and ReLU", |on| {
                        norm.infer(on, &bm, &bv, &mut middle)?;
                        ScaleRelu::new(&middle).launch(on, &mut last)
                    })
                }
                Some(Kernel::BatchNormTrain) => {
                    let (channels, pixels) = channels_of(cols);
                    let (gamma, beta) = (&gamma[..channels], &beta[..channels]);
                    let host = Host { x, gamma, beta, residual: Some(&y[..]), pixels, relu: true };
                    let expected = batch_norm::train_reference(host, 1e-5);
                    let norm = BatchNorm::new(&bx, bg.slice(..channels), bb.slice(..channels)).pixels(pixels);
                    let [mut mean, mut rstd] = [options.zeros::<f32>(channels)?, options.zeros(channels)?];
                    let mut scratch = options.zeros(batch_norm::scratch_len([rows, channels, pixels]))?;
                    let mut train = |norm: BatchNorm<$T>, on: &Device, out: &mut Buffer<$T>| {
                        let statistics = Statistics {
                            mean: (&mut mean).into(),
                            rstd: (&mut rstd).into(),
                            running: None,
                            scratch: (&mut scratch).into(),
                        };
                        norm.train(on, statistics, out)
                    };
                    let traffic = 2 * batch_norm::traffic::<$T>(n);
                    options.show(traffic, &expected, |on, out| train(norm.residual(&by).relu(), on, out))?;
                    options.unfused("training's norm, a sum and ReLU", |on| {
                        train(norm, on, &mut middle)?;
                        LinearCombination::new(1.0, &middle).y(1.0, &by).launch(on, &mut last)?;
                        ScaleRelu::new(&last).launch(on, &mut middle)
                    })
                }
                Some(Kernel::ScaleReluColumns) => {
                    let expected = scale_relu::column_reference(x, 1.5, &beta);
                    options.show(scale_relu::traffic::<$T>(n), &expected, |on, out| {
                        ScaleRelu::new(&bx).scale(1.5).column_bias(&bb).launch(on, out)
                    })?;
                    options.unfused("a scaled activation and a bias", |on| {
                        ScaleRelu::new(&bx).scale(1.5).launch(on, &mut middle)?;
                        BiasActivation::new(&middle, &bb, Activation::Identity).launch(on, &mut last)
                    })
                }
                Some(Kernel::FusedBiasRelu) => {
                    let expected = fusion_flags::reference::<$T, true>(x, Some(&y));
                    let traffic = fusion_flags::traffic::<$T>(n) + n * size_of::<$T>();
                    options.show(traffic, &expected, |on, out| {
                        BiasRelu::<$T, true, true>::new(&bx).bias(&by).launch(on, out)
                    })?;
                    options.unfused("a kernel for each flag", |on| {
                        BiasRelu::<$T, true, false>::new(&bx).bias(&by).launch(on, &mut middle)?;
                        BiasRelu::<$T, false, true>::new(&middle).launch(on, &mut last)
                    })
                }
                _ => bail!("this kernel has no unfused form"),
            }
        }
    };
}

demos!(in_f32, f32);
demos!(in_f16, f16);
demos!(in_bf16, bf16);

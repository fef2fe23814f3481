//! Demos of a linear layer with a norm behind it, and of attention with a linear layer behind it, each measured beside its separate form.

use std::io::Write;

use anyhow::Result;
use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::attention::AttentionExtents;
use fused_kernels::attention_projection::{self, AttentionProjection, HostProjection};
use fused_kernels::attention_reference::Rules;
use fused_kernels::float::{HalfFloat, LibraryFloat};
use fused_kernels::form::{Cost, Form};
use fused_kernels::linear_norm::{self, HostLinear, LinearNorm};
use fused_kernels::norm_linear::Norm;

use crate::Options;

/// Launches and bytes of an operation, and of its separate kernels.
fn report([ours, separate]: [Cost; 2]) -> Result<()> {
    let megabytes = [ours, separate].map(|cost| cost.bytes as f64 / 1e6);
    writeln!(
        std::io::stdout(),
        "  launches   {} with {:.1} MB; operation by operation {} with {:.1} MB",
        ours.launches,
        megabytes[0],
        separate.launches,
        megabytes[1]
    )?;
    Ok(())
}

/// `gelu(layer_norm(linear(x)))`. The layer is narrow: the fused form has its rows in registers, and the reference is slow.
pub fn normalized<T: LibraryFloat>(options: &Options) -> Result<()> {
    let (rows, k, device) = (options.rows, options.cols, options.common.device);
    let n = k.min(256);
    let (x, bx) = options.normal::<T>(rows * k, 0)?;
    let (weight, bw) = options.normal::<T>(k * n, 1)?;
    let (bias, bb) = options.normal::<T>(n, 2)?;
    let (gamma, b_gamma) = options.normal::<T>(n, 3)?;
    let (beta, b_beta) = options.normal::<T>(n, 4)?;
    let host = HostLinear {
        weight: &weight,
        bias: Some(&bias),
        residual: None,
        gamma: &gamma,
        beta: Some(&beta),
        eps: 1e-5,
    };
    let norm = Norm::Layer { gamma: b_gamma.slice(..), beta: b_beta.slice(..) };
    let layer = LinearNorm::new(&bx, bw.view([k, n])?, norm).activation(Activation::Gelu).bias(&bb);
    let costs = layer.cost(&device, rows);
    let form = if costs[0].launches == 1 { Form::Fused } else { Form::Separate };
    let expected = linear_norm::reference::<T>((&x, k), host, Activation::Gelu, form);
    options.show(linear_norm::traffic::<T>(rows, k, n), &expected, |on, out: &mut Buffer<T>| {
        layer.launch(on, out)
    })?;
    report(costs)?;
    let mut out = device.zeros::<T>(rows * n)?;
    options.unfused("a product and a norm", |on| layer.launch_as(on, &mut out, Form::Separate))
}

/// Causal attention of sequences of up to 128 tokens with four heads of 64 elements, that share two heads of keys, and a residual.
pub fn projected<T: HalfFloat>(options: &Options) -> Result<()> {
    const HEADS: usize = 4;
    const KEY_HEADS: usize = 2;
    const DIM: usize = 64;
    let device = options.common.device;
    let length = (1..=options.rows.min(128)).rev().find(|&length| options.rows.is_multiple_of(length));
    let length = length.unwrap_or(1);
    let (sequences, n) = (options.rows / length, options.cols.min(256));
    let extents =
        AttentionExtents { heads: HEADS, key_heads: KEY_HEADS, queries: length, keys: length, elements: DIM };
    let (of_q, of_k) = ([sequences, HEADS, length, DIM], [sequences, KEY_HEADS, length, DIM]);
    let len = |shape: [usize; 4]| shape.iter().product::<usize>();
    let ((q, bq), (k, bk)) = (options.normal::<T>(len(of_q), 0)?, options.normal::<T>(len(of_k), 1)?);
    let (v, bv) = options.normal::<T>(len(of_k), 2)?;
    let (weight, bw) = options.normal::<T>(HEADS * DIM * n, 3)?;
    let (bias, bb) = options.normal::<T>(n, 4)?;
    let (residual, br) = options.normal::<T>(options.rows * n, 5)?;
    let host = HostProjection { weight: &weight, bias: &bias, residual: Some(&residual) };
    let expected =
        attention_projection::reference([&q, &k, &v], extents, Rules::scaled(0.125).causal(), host);
    let shape = [options.rows, n];
    let layer = AttentionProjection::new(
        [bq.view(of_q)?, bk.view(of_k)?, bv.view(of_k)?],
        bw.view([HEADS * DIM, n])?,
    );
    let layer = layer.causal().bias(&bb).residual(br.view(shape)?);
    let costs = layer.cost(&device);
    options
        .show(costs[0].bytes, &expected, |on, out: &mut Buffer<T>| layer.launch(on, out.view_mut(shape)?))?;
    report(costs)?;
    let mut out = device.zeros::<T>(options.rows * n)?;
    options.unfused("attention for each sequence, and a product", |on| {
        layer.launch_as(on, out.view_mut(shape)?, Form::Separate)
    })
}

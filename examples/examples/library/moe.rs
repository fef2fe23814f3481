//! The demo of a mixture of experts.

use std::io::Write;

use anyhow::Result;
use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::gating::TopkGating;
use fused_kernels::moe::{Experts, Moe, Routing};
use fused_kernels::moe_reference::{HostExperts, reference};
use fused_kernels::quantize::Quantize;
use fused_kernels::reference::Expected;

use crate::Options;

const EXPERTS: usize = 8;
const TOP_K: usize = 2;

/// Rows through two of eight experts each, as a softmax of random logits chooses them. Intermediate rows are short: the reference
/// takes its time.
pub fn routed<T: LibraryFloat>(options: &Options) -> Result<()> {
    let (tokens, k, device) = (options.rows, options.cols, options.common.device);
    let f = k.min(192);
    let integers = |len: usize, seed: u64| -> Result<(Vec<i8>, Buffer<i8>)> {
        let (numbers, _) = options.normal::<f32>(len, seed)?;
        let integers: Vec<i8> = numbers.into_iter().map(|x| (40.0 * x) as i8).collect();
        let buffer = device.upload(&integers)?;
        Ok((integers, buffer))
    };
    let scales = |len: usize, seed: u64| -> Result<(Vec<f32>, Buffer<f32>)> {
        let (numbers, _) = options.normal::<f32>(len, seed)?;
        let scales: Vec<f32> = numbers.into_iter().map(|x| 0.001 + 0.0005 * x.abs()).collect();
        let buffer = device.upload(&scales)?;
        Ok((scales, buffer))
    };
    let (_, bx) = options.normal::<T>(tokens * k, 0)?;
    let (gate_up, b_gate_up) = integers(EXPERTS * 2 * f * k, 1)?;
    let (gate_up_scales, b_gate_up_scales) = scales(EXPERTS * 2 * f, 2)?;
    let (down, b_down) = integers(EXPERTS * k * f, 3)?;
    let (down_scales, b_down_scales) = scales(EXPERTS * k, 4)?;
    let (_, logits) = options.normal::<f32>(tokens * EXPERTS, 5)?;
    let mut weights = device.zeros::<f32>(tokens * TOP_K)?;
    let mut ids = device.zeros::<i32>(tokens * TOP_K)?;
    TopkGating::new(&logits, EXPERTS, TOP_K).launch(&device, &mut weights, &mut ids)?;

    // The reference begins with quantized rows: what half a step in each of thousands of terms could make would hide all else.
    let (mut rows, mut row_scales) = (device.zeros::<i8>(tokens * k)?, device.zeros::<f32>(tokens)?);
    if !bx.is_empty() {
        Quantize::new(&bx, k).to_i8(&device, rows.slice_mut(..), row_scales.slice_mut(..))?;
    }
    let (rows, row_scales) = (rows.download()?, row_scales.download()?);
    let exact =
        |(i, q): (usize, &i8)| Expected { value: f64::from(*q) * f64::from(row_scales[i / k]), within: 0.0 };
    let rows: Vec<Expected> = rows.iter().enumerate().map(exact).collect();
    let choices: Vec<(i32, f32)> = ids.download()?.into_iter().zip(weights.download()?).collect();
    let routing: Vec<Vec<(i32, f32)>> = choices.chunks(TOP_K).map(<[_]>::to_vec).collect();
    let host = HostExperts {
        gate_up: &gate_up,
        gate_up_scales: &gate_up_scales,
        down: &down,
        down_scales: &down_scales,
        extents: [f, k],
    };
    let expected = reference::<T>(&rows, host, &routing);

    let experts = Experts {
        gate_up: b_gate_up.view([EXPERTS, 2 * f, k])?,
        gate_up_scales: b_gate_up_scales.view([EXPERTS, 2 * f])?,
        down: b_down.view([EXPERTS, k, f])?,
        down_scales: b_down_scales.view([EXPERTS, k])?,
    };
    let moe = Moe::new(experts, Routing { experts: ids.slice(..), weights: weights.slice(..), top_k: TOP_K });
    let [ours, separate] = moe.cost::<T>();
    options.show(ours.bytes, &expected, |on, out: &mut Buffer<T>| moe.launch(on, &bx, out))?;
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

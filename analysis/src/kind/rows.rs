//! What needs all elements of a row, a group or a column.

use super::declaration::{Kind, Operands, Pattern, Shapes};
use super::shapes::{self, count};
use crate::dtype::DType;
use crate::graph::TensorType;

const fn row(
    name: &'static str,
    formula: &'static str,
    shapes: Shapes,
    flops: fn(&Operands<'_>) -> f64,
) -> Kind {
    Kind::new(name, formula, Pattern::RowReduction, shapes).flops(flops).live(10)
}

/// Operations for each element, and one more for each scalar that columns have.
fn affine(operands: &Operands<'_>, each: f64) -> f64 {
    (each + (operands.inputs.len() - 1) as f64) * operands.elements_in(0)
}

/// Row and column reductions.
pub(super) static KINDS: &[Kind] = &[
    // The sum, the difference, the square and its sum, and the scale.
    row(
        "layer_norm",
        "(x - mean) / sqrt(var + eps) * gamma + beta",
        |o, _| shapes::columns(o, 1, 3),
        |o| affine(o, 5.0),
    )
    .also(&["layernorm"]),
    // The square, its sum, and the scale.
    row("rms_norm", "x / sqrt(mean(x^2) + eps) * gamma", |o, _| shapes::columns(o, 1, 2), |o| affine(o, 3.0))
        .also(&["rmsnorm"]),
    row("l2_norm", "x / max(sqrt(sum(x^2)), eps)", shapes::one, |o| 3.0 * o.elements_in(0)),
    row("mean_center", "x - mean(x)", shapes::one, |o| 2.0 * o.elements_in(0)).also(&["center"]),
    // The largest, the difference, exp, the sum, the quotient.
    row("softmax", "exp(x - max) / sum", shapes::one, |o| 5.0 * o.elements_in(0)),
    // Without the quotient.
    row("cross_entropy", "ln(sum(exp(x))) - x[target]", losses, |o| 4.0 * o.elements_in(0)),
    row("qk_norm", "rms_norm of each head * gamma", heads, |o| affine(o, 3.0)).row(|o| o.row_len(1)),
    row("group_norm", "(x - mean) / sqrt(var + eps) * gamma[c] + beta[c]; groups", channels, |o| {
        affine(o, 5.0)
    })
    .row(group_len),
    // The magnitude, the largest, the quotient, the rounding.
    row("quantize", "round(x / scale), scale = max|x| / largest; dtype", quantized, |o| {
        4.0 * o.elements_in(0)
    }),
    row("topk", "the k largest of softmax(x) and their places; k", chosen, |o| 5.0 * o.elements_in(0)),
    row("reduce", "sum, mean or largest of each row", shapes::reduced, |o| o.elements_in(0))
        .also(&["row_sum", "mean"]),
    Kind::new("column_sum", "the sum of each column", Pattern::ColumnReduction, columns_summed)
        .flops(|o| o.elements_in(0))
        .live(10),
    Kind::new(
        "batch_norm",
        "(x - mean) / sqrt(var + eps) * gamma[c] + beta[c] over images and pixels",
        Pattern::ColumnReduction,
        channels,
    )
    .flops(|o| affine(o, 5.0))
    .live(10)
    .passes(2),
];

fn losses(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 2, 2)?;
    let rows = shapes::a_number_each(operands.inputs[0], operands.inputs[1])?;
    Ok(vec![TensorType::new(rows, DType::F32)])
}

/// Rows of whole heads, each as long as gamma.
fn heads(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 2, 2)?;
    let ((name, x), (other, gamma)) = (operands.inputs[0], operands.inputs[1]);
    match gamma.shape[..] {
        [dim] if dim > 0 && x.row_len().is_multiple_of(dim) => Ok(vec![x.clone()]),
        _ => Err(format!(
            "`{name}` is {x} and `{other}` is {gamma}: rows of whole heads of gamma's length are needed"
        )),
    }
}

/// `[images, channels, ..]` and two numbers for each channel, or none.
fn channels(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 1, 3)?;
    let (name, x) = operands.inputs[0];
    let Some(&channels) = x.shape.get(1) else {
        return Err(format!("`{name}` is {x}: [images, channels, ..] is needed"));
    };
    let groups = operands.params.groups.unwrap_or(1);
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(format!("`{name}` is {x}: its {channels} channels do not make {groups} groups"));
    }
    for (other, numbers) in &operands.inputs[1..] {
        if numbers.shape != [channels] {
            let needed = "there must be a number for each channel, the second extent";
            return Err(format!("`{name}` is {x} and `{other}` is {numbers}: {needed}"));
        }
    }
    Ok(vec![x.clone()])
}

fn group_len(operands: &Operands<'_>) -> u64 {
    let (_, x) = operands.inputs[0];
    let channels = x.shape.get(1).copied().unwrap_or(1);
    let pixels = x.shape.iter().skip(2).product::<u64>();
    channels / operands.params.groups.unwrap_or(1).max(1) * pixels
}

/// Rows of 8-bit elements, and a scale for each.
fn quantized(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 1, 1)?;
    let (name, x) = operands.inputs[0];
    let Some((_, outer)) = x.shape.split_last() else {
        return Err(format!("`{name}` is {x}: rows to quantize are needed"));
    };
    let q = TensorType::new(x.shape.clone(), operands.params.dtype.unwrap_or(DType::I8));
    Ok(vec![q, TensorType::new(outer, DType::F32)])
}

fn chosen(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 1, 1)?;
    let (name, x) = operands.inputs[0];
    let k = operands.params.k.ok_or("needs `k`, how many are chosen")?;
    let Some((_, outer)) = x.shape.split_last().filter(|(cols, _)| k <= **cols) else {
        return Err(format!("`{name}` is {x}: {k} of each row are to be chosen"));
    };
    let shape = [outer, &[k]].concat();
    Ok(vec![TensorType::new(shape.clone(), DType::F32), TensorType::new(shape, DType::I32)])
}

fn columns_summed(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 1, 1)?;
    let x = operands.inputs[0].1;
    Ok(vec![TensorType::new([x.row_len()], x.dtype)])
}

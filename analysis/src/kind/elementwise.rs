//! What is computed for each element on its own.

use super::declaration::{Kind, Operands, Pattern, Shapes};
use super::shapes::{self, count};
use crate::dtype::DType;
use crate::graph::TensorType;

const fn each(
    name: &'static str,
    formula: &'static str,
    shapes: Shapes,
    flops: fn(&Operands<'_>) -> f64,
) -> Kind {
    Kind::new(name, formula, Pattern::Elementwise, shapes).flops(flops).live(5)
}

/// The elementwise kinds.
pub(super) static KINDS: &[Kind] = &[
    each("add", "x + y + ..", shapes::alike, |o| (o.inputs.len() - 1) as f64 * o.elements_out())
        .also(&["residual_add", "add_residual"]),
    each("sub", "x - y", shapes::alike, |o| o.elements_out()),
    each("mul", "x * y * ..", shapes::alike, |o| (o.inputs.len() - 1) as f64 * o.elements_out()),
    each(
        "scale",
        "x * factor, or x * factors[column]",
        |o, _| shapes::columns(o, 1, 2),
        |o| o.elements_out(),
    ),
    each("bias", "x + bias[column]", |o, _| shapes::columns(o, 2, 2), |o| o.elements_out())
        .also(&["add_bias", "bias_add"]),
    each("relu", "max(x, 0)", shapes::one, |o| o.elements_out()),
    each("gelu", "x * Phi(x)", shapes::one, |o| 8.0 * o.elements_out()),
    each("gelu_tanh", "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))", shapes::one, |o| {
        8.0 * o.elements_out()
    }),
    each("silu", "x / (1 + exp(-x))", shapes::one, |o| 4.0 * o.elements_out()).also(&["swish"]),
    each("tanh", "tanh(x)", shapes::one, |o| o.elements_out()),
    each("sigmoid", "1 / (1 + exp(-x))", shapes::one, |o| 3.0 * o.elements_out()),
    each("exp", "exp(x)", shapes::one, |o| o.elements_out()),
    // An activation of one half and a product with the other.
    each("silu_and_mul", "silu(a) * b of rows [a, b]", shapes::halves, |o| 5.0 * o.elements_out())
        .also(&["gate", "swiglu"]),
    each("gelu_and_mul", "gelu(a) * b of rows [a, b]", shapes::halves, |o| 9.0 * o.elements_out())
        .also(&["geglu"]),
    // The comparison, the choice and the division; the random number is made by integer units.
    each("dropout", "x / (1 - p) where rand >= p, else 0", shapes::one, |o| 3.0 * o.elements_out()),
    // Two products and a sum for each element of a pair.
    each("rope", "pairs of x turned by cos and sin of their position", rotation, |o| 3.0 * o.elements_out())
        .also(&["rotary"]),
    each("dequantize", "q * scales[row], or one scale; dtype", dequantized, |o| o.elements_out()),
    each("quantize_static", "round(x / scales[row]), or one scale; dtype", quantized, |o| {
        3.0 * o.elements_out()
    })
    .also(&["requantize"]),
    each(
        "batch_norm_inference",
        "x * scale[c] + shift[c] of [images, c, pixels] or [rows, c]",
        channels,
        |o| 2.0 * o.elements_out(),
    ),
    each("cast", "x as another type; dtype", cast, |o| o.elements_out()),
];

fn rotation(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 1, 3)?;
    // Tables are small, and their rows are positions: any that are long enough do.
    Ok(vec![operands.inputs[0].1.clone()])
}

fn cast(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 1, 1)?;
    let (_, from) = operands.inputs[0];
    let to = operands.params.dtype.ok_or("needs `dtype`, the type to convert to")?;
    Ok(vec![TensorType::new(from.shape.clone(), to)])
}

/// A scale for each row, or one scalar.
fn scaled(operands: &Operands<'_>, to: DType) -> Result<Vec<TensorType>, String> {
    count(operands, 2, 2)?;
    let (from, scales) = (operands.inputs[0], operands.inputs[1]);
    if scales.1.elements() != 1 {
        shapes::a_number_each(from, scales)?;
    }
    Ok(vec![TensorType::new(from.1.shape.clone(), to)])
}

fn dequantized(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    scaled(operands, operands.params.dtype.unwrap_or(DType::F32))
}

fn quantized(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    scaled(operands, operands.params.dtype.unwrap_or(DType::I8))
}

/// Two numbers for each channel: the second extent.
fn channels(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 3, 3)?;
    let (name, x) = operands.inputs[0];
    for (other, numbers) in &operands.inputs[1..] {
        if x.shape.get(1).is_none_or(|channels| numbers.shape != [*channels]) {
            let needed = "there must be a number for each channel, the second extent";
            return Err(format!("`{name}` is {x} and `{other}` is {numbers}: {needed}"));
        }
    }
    Ok(vec![x.clone()])
}

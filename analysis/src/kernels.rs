//! Which kernel of the library computes a group of operations in one launch.

use serde::Serialize;

use crate::graph::{Graph, OpId, OpKind};

/// A kernel of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LibraryKernel {
    /// The module and the struct: `rms_norm::AddRmsNorm`.
    pub path: &'static str,
    /// What of the struct does it, if not the plain one: its methods or constants.
    pub how: &'static str,
}

/// A slot of a pattern.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One of these kinds.
    One(&'static [&'static str]),
    /// One of these kinds, or nothing.
    Maybe(&'static [&'static str]),
}

use Step::{Maybe, One};

struct Row {
    path: &'static str,
    how: &'static str,
    steps: &'static [Step],
}

const fn row(path: &'static str, how: &'static str, steps: &'static [Step]) -> Row {
    Row { path, how, steps }
}

const ACTIVATION: &[&str] = &["relu", "gelu", "gelu_tanh", "silu"];
const GELU: &[&str] = &["gelu", "gelu_tanh"];
const MATMUL: &[&str] = &["matmul"];
const NORM: &[&str] = &["layer_norm", "rms_norm"];

/// The first that fits is taken.
static ROWS: &[Row] = &[
    row("add_mul::AddMul", "", &[One(&["add"]), One(&["mul"])]),
    row("add_activation::AddActivation", "", &[One(&["add"]), One(ACTIVATION)]),
    row("bias_activation::BiasActivation", "", &[One(&["bias"]), One(ACTIVATION)]),
    row("scale_relu::ScaleRelu", "", &[One(&["relu"]), One(&["scale"]), Maybe(&["bias"])]),
    row("bias_dropout::BiasDropout", "residual", &[One(&["bias"]), One(&["dropout"]), Maybe(&["add"])]),
    row(
        "dropout::BiasGeluDropout",
        "residual",
        &[One(&["bias"]), One(GELU), One(&["dropout"]), Maybe(&["add"])],
    ),
    row("act_and_mul::ActAndMul", "halves of one row", &[One(&["silu", "gelu", "gelu_tanh"]), One(&["mul"])]),
    row("act_and_mul::ActAndMul", "", &[One(&["silu_and_mul", "gelu_and_mul"])]),
    row(
        "linear_combination::LinearCombination",
        "",
        &[One(&["scale"]), One(&["scale"]), Maybe(&["scale"]), One(&["add"]), Maybe(&["add"])],
    ),
    row("layer_norm_gelu::LayerNormGelu", "", &[One(&["layer_norm"]), One(&["gelu"])]),
    row("norm_activation::NormActivation", "residual", &[One(NORM), One(ACTIVATION), Maybe(&["add"])]),
    row("rms_norm::AddRmsNorm", "", &[One(&["add"]), One(&["rms_norm"])]),
    row("add_layer_norm::AddLayerNorm", "", &[One(&["add"]), One(&["layer_norm"])]),
    row("quantize::Quantize", "rms_norm, layer_norm", &[One(NORM), One(&["quantize"])]),
    row("quantize::DequantizeAdd", "residual", &[One(&["dequantize"]), One(&["add"])]),
    row("masked_softmax::MaskedSoftmax", "", &[One(&["scale"]), One(&["add"]), One(&["softmax"])]),
    row("masked_softmax::MaskedSoftmax", "", &[One(&["add"]), One(&["softmax"])]),
    row("softmax::Softmax", "scale", &[One(&["scale"]), One(&["softmax"])]),
    row("rope::QkNormRope", "", &[One(&["qk_norm"]), One(&["rope"])]),
    row("rope::QkNormRope", "", &[One(&["qk_norm"]), One(&["rope"]), One(&["qk_norm"]), One(&["rope"])]),
    row("rope::QkNormRope", "", &[One(&["qk_norm"]), One(&["qk_norm"]), One(&["rope"]), One(&["rope"])]),
    row(
        "quantized_matmul::QuantizedMatmul",
        "bias, activation, quantized result",
        &[
            One(&["dequantize"]),
            One(&["dequantize"]),
            One(MATMUL),
            Maybe(&["bias"]),
            Maybe(ACTIVATION),
            Maybe(&["quantize_static"]),
        ],
    ),
    row(
        "matmul::Matmul",
        "bias, activation, residual",
        &[One(MATMUL), Maybe(&["scale"]), Maybe(&["bias"]), Maybe(ACTIVATION), Maybe(&["add"])],
    ),
    row(
        "norm_linear::NormLinear",
        "bias, activation",
        &[One(NORM), One(MATMUL), Maybe(&["bias"]), Maybe(ACTIVATION)],
    ),
    row(
        "linear_rope::LinearRope",
        "bias",
        &[One(MATMUL), Maybe(&["bias"]), One(&["rope"]), Maybe(&["rope"])],
    ),
    row(
        "linear_norm::LinearNorm",
        "bias, residual, activation",
        &[One(MATMUL), Maybe(&["bias"]), Maybe(&["add"]), One(NORM), Maybe(ACTIVATION)],
    ),
    row(
        "attention_projection::AttentionProjection",
        "bias, residual",
        &[One(&["attention"]), One(MATMUL), Maybe(&["bias"]), Maybe(&["add"])],
    ),
    row("rotary_attention::RotaryAttention", "", &[One(&["rope"]), Maybe(&["rope"]), One(&["attention"])]),
    row(
        "attention::Attention",
        "scale, bias, dropout",
        &[
            One(MATMUL),
            Maybe(&["scale"]),
            Maybe(&["add"]),
            One(&["softmax"]),
            Maybe(&["dropout"]),
            One(MATMUL),
        ],
    ),
    row("attention::Attention", "strided views", &[One(&["attention"])]),
    row("softmax::Softmax", "log", &[One(&["softmax"])]),
    row("cross_entropy::CrossEntropy", "", &[One(&["cross_entropy"])]),
    row("layer_norm::LayerNorm", "", &[One(&["layer_norm"])]),
    row("rms_norm::RmsNorm", "", &[One(&["rms_norm"])]),
    row("group_norm::GroupNorm", "", &[One(&["group_norm"])]),
    row(
        "batch_norm::BatchNorm",
        "residual, relu",
        &[One(&["batch_norm", "batch_norm_inference"]), Maybe(&["add"]), Maybe(&["relu"])],
    ),
    row("l2_norm::L2Norm", "", &[One(&["l2_norm"])]),
    row("center::Center", "", &[One(&["mean_center"])]),
    row("quantize::Quantize", "", &[One(&["quantize"])]),
    row("rope::Rope", "", &[One(&["rope"])]),
    row("gating::TopkGating", "", &[One(&["topk"])]),
    row("embedding::Embedding", "", &[One(&["embedding"])]),
];

/// The paths of all kernels that the table names.
pub fn paths() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.path)
}

/// The kinds that the table's patterns name.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    ROWS.iter().flat_map(|row| row.steps).flat_map(|step| match step {
        One(names) | Maybe(names) => names.iter().copied(),
    })
}

/// The kernel that computes operations in one launch, if the library has one. Views count as nothing: kernels take strides.
pub fn of_group(graph: &Graph, ops: &[OpId]) -> Option<LibraryKernel> {
    let mut kinds = Vec::with_capacity(ops.len());
    for &id in ops {
        match graph.op(id).kind {
            OpKind::Known(kind) if kind.pattern != crate::kind::Pattern::View => kinds.push(kind.name),
            OpKind::Known(_) => {}
            OpKind::Unknown => return None,
        }
    }
    if kinds.is_empty() {
        return None;
    }
    let row = ROWS.iter().find(|row| fits(row.steps, &kinds))?;
    Some(LibraryKernel { path: row.path, how: row.how })
}

fn fits(steps: &[Step], kinds: &[&str]) -> bool {
    let Some((step, later)) = steps.split_first() else { return kinds.is_empty() };
    let taken = |names: &[&str]| {
        kinds.split_first().is_some_and(|(kind, rest)| names.contains(kind) && fits(later, rest))
    };
    match step {
        One(names) => taken(names),
        Maybe(names) => taken(names) || fits(later, kinds),
    }
}

"""The pairs that `pairs.py` measures: an entry of the library, its unfused form and what a document expects of it."""

import dataclasses
import typing

import torch

import elementwise
import fused
import fused_norms
import linear
import norms
import products
import softmax
import unfused
from elementwise import GELU, GELU_TANH, RELU, SILU
from entry import BF16, F32


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a document expects: by how much the fused form is faster than the unfused one, or than PyTorch's."""

    low: float
    high: float
    where: str
    over: str = "unfused"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of `analysis/models` with its extents, and the names of its operations: those of the fused form's launch, and those
    of the unfused form's launches, None where it has no such operations."""

    name: str
    fused: str
    unfused: str | None
    set: dict


@dataclasses.dataclass(frozen=True)
class Pair:
    """An operation fused and unfused, at one size.

    `steps` gives the unfused form of a case and its arguments. `slack` gives, for each output, how much what is rounded
    between the steps may move it, from the arguments and the exact results. `flops` counts operations as
    `fuse-analysis` does. `why` says what a difference from the document comes from, where its formula alone tells.
    `model` is what the analyzer predicts.
    """

    name: str
    entry: typing.Any
    case: tuple
    steps: typing.Callable
    flops: typing.Callable
    slack: typing.Callable = lambda args, exact: [0.0] * len(exact)
    expected: Expected | None = None
    why: str = ""
    unit: str = "f32"
    model: Model | None = None

    @property
    def label(self):
        return self.entry.label(self.case)

    def loosened(self, args, exact):
        """The exact results with the bounds of the unfused form."""
        return [(value, bound + slack) for (value, bound), slack in zip(exact, self.slack(args, exact))]


def each(count):
    """So many operations for each element of the first input."""
    return lambda args: count * args["x"].numel()


def of_product(extra):
    """Two for each term, and so many for each result."""
    return lambda args: args["out"].numel() * (2 * args["a"].shape[1] + extra)


def chain(name, ops, **extents):
    """A model of which each operation is a launch of the unfused form."""
    return Model(name, ops, ops, extents)


def single(name, op, **extents):
    """A model that has the operation as one alone."""
    return Model(name, op, None, extents)


TWO = Expected(1.5, 2.0, "2 elementwise operations")
THREE = Expected(2.0, 3.0, "3 elementwise operations")
ROWS = Expected(1.3, 1.8, "reduction and elementwise")
RESIDUAL = Expected(1.8, 2.5, "residual and norm")
KEPT_SUM = "the sum is a result too, so it is written either way"
BOUND_BY_WEIGHTS = "the weights are read either way, and are nearly all bytes"
MADE_BY_PARTS = "the document counts each of 4 to 5 kernels; 3 of the library's do it"


def add_gelu(name, count, expected):
    return Pair(name, elementwise.AddActivation(GELU_TANH), (count << 20, F32), unfused.add_then_activation(GELU_TANH),
                each(9), unfused.slack_of_sum, expected, model=chain("add_gelu", "add + act", n=count << 20))


def matmul_pair(name, dtype, unit):
    return Pair(name, products.Matmul(GELU), (4096, 4096, 4096, dtype), unfused.matmul_bias_gelu, of_product(9),
                unfused.slack_of_product, unit=unit,
                why="arithmetic bounds the product: less traffic saves the time of two passes over its result")


def of_linear(args):
    """The operations of a matmul of `x` and a weight."""
    return 2 * args["x"].shape[0] * args["weight"].numel()


ELEMENTWISE = [
    add_gelu("add_gelu_1m", 1, Expected(1.5, 2.0, "add and GELU: 1.86 at 1M, 2 elementwise operations")),
    add_gelu("add_gelu_10m", 10, TWO),
    add_gelu("add_gelu_100m", 100, TWO),
    Pair("add_relu_16m", elementwise.AddActivation(RELU), (16 << 20, F32), unfused.add_then_activation(RELU), each(2),
         unfused.slack_of_sum, TWO, model=chain("add_gelu", "add + act", n=16 << 20)),
    Pair("add_mul_100m", elementwise.AddMul(), (100 << 20, F32), unfused.add_then_mul, each(2),
         expected=Expected(1.5, 3.0, "(x + y) * z: 2.3 at 100M"), why="6 passes become 4",
         model=chain("add_mul", "add + mul", n=100 << 20)),
    Pair("relu_scale_bias", elementwise.ScaleReluColumns(), (4096, 4096, F32), unfused.relu_scale_bias, each(3),
         unfused.slack_of_scale, THREE, model=chain("elementwise_chain", "relu + scale + bias", rows=4096, cols=4096)),
    Pair("linear_combination_100m", elementwise.LinearCombination(), (100 << 20, F32), unfused.products_then_sums,
         each(5), unfused.slack_of_products, THREE, "five operations, so 12 passes become 4",
         model=chain("linear_combination", "scale_x + scale_y + scale_z + add_xy + add_z", n=100 << 20)),
    Pair("silu_and_mul", elementwise.ActAndMul(SILU), (8192, 11008, BF16), unfused.silu_then_mul,
         lambda args: 5 * args["out"].numel(), unfused.slack_of_gate, Expected(1.5, 2.0, "activation and gate"),
         model=chain("silu_mul", "silu + mul", rows=8192, cols=11008)),
    Pair("bias_gelu_dropout", fused.Dropout(), (16384, 4096, BF16), unfused.bias_gelu_dropout, each(12),
         unfused.slack_of_dropout, Expected(2.0, 3.0, "bias, GELU and dropout"),
         model=chain("bias_gelu_dropout", "bias + act + dropout", rows=16384, cols=4096)),
    Pair("bias_dropout_add", fused.BiasDropout(True), (16384, 4096, BF16), unfused.bias_dropout_add, each(5),
         unfused.slack_of_kept, THREE, model=chain("bias_dropout_add", "bias + dropout + add", rows=16384, cols=4096)),
]

OF_ROWS = [
    Pair("layer_norm", norms.LayerNorm(), (4096, 1024, F32), unfused.layer_norm_in_parts, each(7),
         unfused.slack_of_parts, Expected(2.0, 4.0, "LayerNorm: 2.6 at 4096 x 1024"), MADE_BY_PARTS,
         model=chain("layer_norm_in_parts", "center + norm + bias", rows=4096, cols=1024)),
    Pair("softmax", softmax.Softmax(), (1024, 512, F32), unfused.softmax_in_parts, each(5),
         expected=Expected(1.0, 1.05, "softmax: 1.02, as PyTorch's is fused", "PyTorch"),
         model=single("rows", "softmax", rows=1024, cols=512)),
    Pair("l2_norm", norms.L2Norm(), (128, 4096, F32), unfused.l2_norm_in_parts, each(3),
         expected=Expected(3.0, 5.0, "L2 norm"), model=single("rows", "l2_norm", rows=128, cols=4096)),
    Pair("center", norms.Center(), (4096, 4096, F32), unfused.mean_then_subtract, each(2), expected=ROWS,
         model=single("rows", "center", rows=4096, cols=4096)),
    Pair("add_rms_norm", norms.AddRmsNorm(), (16384, 4096, BF16), unfused.add_then_norm(norms.RmsNorm()), each(5),
         expected=RESIDUAL, why=KEPT_SUM, model=chain("add_rms_norm", "add + norm", rows=16384, cols=4096)),
    Pair("add_layer_norm", fused_norms.AddLayerNorm(), (16384, 4096, BF16), unfused.add_then_norm(norms.LayerNorm()),
         each(8), expected=RESIDUAL, why=KEPT_SUM, model=chain("add_layer_norm", "add + norm", rows=16384, cols=4096)),
    Pair("layer_norm_gelu", norms.LayerNormGelu(), (32768, 4096, BF16), unfused.layer_norm_then_gelu, each(15),
         unfused.slack_of_norm, ROWS, model=chain("layer_norm_gelu", "norm + act", tokens=32768, hidden=4096)),
    Pair("layer_norm_relu_add", fused_norms.NormActivation("layer_norm", RELU, True), (4096, 4096, F32),
         unfused.layer_norm_relu_add, each(9), unfused.slack_of_norm,
         Expected(4.6, 4.6, "LayerNorm, activation and add: 5 passes to 1, and launches"),
         "the document counts no inputs: 7 passes become 3",
         model=chain("norm_activation_add", "norm + act + add", rows=4096, cols=4096)),
    Pair("layer_norm_quantize", fused.Quantize("layer_norm", torch.int8), (16384, 4096, BF16),
         unfused.layer_norm_then_quantize, each(11), unfused.slack_of_quantized,
         Expected(2.5, 3.0, "LayerNorm and quantization"), "with rows of 16-bit floats 7 bytes an element become 3",
         model=chain("layer_norm_quantize", "norm + quantize", rows=16384, cols=4096)),
]

OF_PRODUCTS = [
    matmul_pair("matmul_bias_gelu_bf16", BF16, "bf16"),
    matmul_pair("matmul_bias_gelu_f32", F32, "f32"),
    Pair("attention", products.Attention(False), (64, 2048, 128, BF16), unfused.matmul_softmax_matmul,
         lambda args: 4 * args["q"].numel() * args["k"].shape[2], unfused.slack_of_scores,
         Expected(2.0, 3.0, "attention"), "scores of length x length are never in memory", "bf16"),
    Pair("rms_norm_linear", linear.NormLinear(norms.RmsNorm(), "fused"), (16, 4096, 6144, BF16),
         unfused.norm_then_linear, lambda args: 4 * args["x"].numel() + of_linear(args), why=BOUND_BY_WEIGHTS,
         unit="bf16", model=chain("llama_3_8b_layer", "norm1 + qkv", tokens=16)),
    Pair("linear_rope", linear.LinearRope(), (16, 4096, 32, 8, 128, BF16), unfused.linear_then_rope,
         lambda args: of_linear(args) + 3 * args["x"].shape[0] * args["rotated"], why=BOUND_BY_WEIGHTS, unit="bf16",
         model=Model("llama_3_8b_layer", "qkv + rope_q + rope_k", "qkv ; rope_q + rope_k", {"tokens": 16})),
]

PAIRS = [*ELEMENTWISE, *OF_ROWS, *OF_PRODUCTS]

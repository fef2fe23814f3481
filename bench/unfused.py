"""Unfused forms of what the library computes in one launch: one launch for each step, with memory between them.

A step is a launch of a plain kernel of the library, or PyTorch's operation where the library has none for it alone. A
bias of zeros makes `bias_activation` a plain activation: a row of zeros stays in the cache and counts for nothing. A
`slack_..` function gives, for each output, how much what is rounded between the steps may move it, from the arguments
and the exact results.
"""

import torch

import elementwise
import fused
import heuristic
import linear
import norms
import products
import softmax
from elementwise import GELU, IDENTITY, RELU, SILU
from entry import UNIT
from linear import with_all


class Step:
    """One step of an unfused form: what it computes, the tensors that it moves, and our launches or PyTorch's call."""

    def __init__(self, what, moved, launches=(), call=None):
        self.what, self.launches, self.call = what if launches else f"{what} (PyTorch)", launches, call
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in moved)


# ---- plain kernels


class Columns(elementwise.BiasActivation):
    """`act(x + bias)` with any activation, or none."""

    def __init__(self, act):
        self.act = act


def between(like):
    """Memory for what is between two steps; it holds NaN."""
    tensor = torch.empty_like(like, memory_format=torch.contiguous_format)
    tensor.view(torch.uint8).fill_(0xFF)
    return tensor


def of_entry(entry, case, **taken):
    """The launches of an entry on these arguments."""
    return with_all(entry.launches(case, taken), taken)


def added(x, y, out):
    """The kernel with compile-time flags, without its activation."""
    launches = of_entry(elementwise.BiasRelu(True, False), (out.numel(), out.dtype), x=x.flatten(), bias=y.flatten(),
                        out=out.flatten(), n=out.numel())
    return Step("add", [x, y, out], launches)


def scaled_by(factor, x, out):
    """A sum of one step."""
    of = x.flatten()
    launches = of_entry(elementwise.LinearCombination(), (out.numel(), out.dtype), x=of, y=of, z=of, out=out.flatten(),
                        n=out.numel(), alpha=factor, beta=0.0, gamma=0.0, adds_y=0, adds_z=0)
    return Step("scale", [x, out], launches)


def multiplied(x, y, out):
    """The library has no elementwise multiplication alone."""
    return Step("multiply", [x, y, out], call=lambda: torch.mul(x, y, out=out))


def activated(act, x, out, bias=None):
    """`act(x + bias)`; elements without rows are taken in rows of 4096."""
    rows = x if x.dim() == 2 else x.view(-1, 4096)
    zeros = torch.zeros(rows.shape[1], dtype=x.dtype, device="cuda")
    launches = of_entry(Columns(act), (*rows.shape, x.dtype), x=rows, bias=zeros if bias is None else bias,
                        out=out.view_as(rows), n_rows=rows.shape[0], n_cols=rows.shape[1])
    word = elementwise.ACTIVATIONS[act][0] if act else "bias"
    return Step(word, [x, out] if bias is None else [x, bias, out], launches)


def normed(entry, args, x, out):
    """A norm of rows with the parameters and the epsilon of the pair."""
    taken = {name: args[name] for name in (*entry.parameters, "n_rows", "n_cols")}
    launches = of_entry(entry, (*x.shape, x.dtype), x=x, out=out, eps=args.get("eps", 0.0), **taken)
    return Step(entry.name, [x, *(args[name] for name in entry.parameters), out], launches)


def dropped(args, x, out):
    """Dropout with the numbers of the pair."""
    zeros = torch.zeros_like(args["bias"])
    taken = {name: args[name] for name in ("first_row", "n_rows", "n_cols", "p", "seed")}
    launches = of_entry(fused.BiasDropout(), (*x.shape, x.dtype), x=x, bias=zeros, out=out, **taken)
    return Step("dropout", [x, out], launches)


# ---- elementwise


def add_then_activation(act):
    def steps(case, args):
        total = between(args["x"])
        return [added(args["x"], args["y"], total), activated(act, total, args["out"])]
    return steps


def slack_of_sum(args, exact):
    """No activation here has a slope above 1.13."""
    total = args["x"].double() + args["y"].double()
    return [1.13 * UNIT[args["x"].dtype] * total.abs()]


def add_then_mul(case, args):
    total = between(args["x"])
    return [added(args["x"], args["y"], total),
            multiplied(total, args["z"], args["out"])]


def relu_scale_bias(case, args):
    positive, scaled = between(args["x"]), between(args["x"])
    return [activated(RELU, args["x"], positive), scaled_by(args["scale"], positive, scaled),
            activated(IDENTITY, scaled, args["out"], args["bias"])]


def slack_of_scale(args, exact):
    return [UNIT[args["x"].dtype] * args["scale"] * args["x"].double().clamp(min=0)]


def products_then_sums(case, args):
    parts = [between(args["x"]) for _ in range(4)]
    factors = [args[name] for name in ("alpha", "beta", "gamma")]
    scales = [scaled_by(factor, args[name], part)
              for name, factor, part in zip(("x", "y", "z"), factors, parts)]
    return [*scales, added(parts[0], parts[1], parts[3]), added(parts[3], parts[2], args["out"])]


def slack_of_products(args, exact):
    factors = [args[name] for name in ("alpha", "beta", "gamma")]
    sizes = sum((args[name].double() * factor).abs() for name, factor in zip(("x", "y", "z"), factors))
    return [2 * UNIT[args["x"].dtype] * sizes]


def silu_then_mul(case, args):
    """The halves are two tensors, as two matmuls leave them."""
    gate, up = (half.contiguous() for half in args["x"].chunk(2, 1))
    silu = between(args["out"])
    return [activated(SILU, gate, silu),
            multiplied(silu, up, args["out"])]


def slack_of_gate(args, exact):
    # What is rounded between is a factor of the result.
    return [1.01 * UNIT[args["x"].dtype] * exact[0][0].abs() + 2.0**-126 * args["x"].chunk(2, 1)[1].double().abs()]


def bias_gelu_dropout(case, args):
    total, gelu = between(args["x"]), between(args["x"])
    return [activated(IDENTITY, args["x"], total, args["bias"]), activated(GELU, total, gelu),
            dropped(args, gelu, args["out"])]


def slack_of_dropout(args, exact):
    """A result of 0 was dropped, and must be."""
    total = args["x"].double() + args["bias"].double()
    value, factor = exact[0][0], 1 / (1 - args["p"])
    moved = 1.01 * UNIT[args["x"].dtype] * (1.13 * factor * total.abs() + value.abs())
    return [torch.where(value == 0, torch.zeros_like(value), moved)]


def bias_dropout_add(case, args):
    total, kept = between(args["x"]), between(args["x"])
    return [activated(IDENTITY, args["x"], total, args["bias"]), dropped(args, total, kept),
            added(kept, args["residual"], args["out"])]


def slack_of_kept(args, exact):
    return [2.02 * UNIT[args["x"].dtype] * (exact[0][0] - args["residual"].double()).abs()]


# ---- norms and other rows


def layer_norm_in_parts(case, args):
    """The mean is taken off, RMSNorm of that is LayerNorm without a shift, and then the shift."""
    centered, scaled = between(args["x"]), between(args["x"])
    return [normed(norms.Center(), args, args["x"], centered), normed(norms.RmsNorm(), args, centered, scaled),
            activated(IDENTITY, scaled, args["out"], args["beta"])]


def slack_of_parts(args, exact):
    return [norms.layer_norm(args, args["eps"])[1]]


def add_then_norm(norm):
    def steps(case, args):
        """The sum is a result as well: `original` is what `residual` was."""
        return [added(args["x"], args["original"], args["residual"]), normed(norm, args, args["residual"], args["out"])]
    return steps


def layer_norm_then_gelu(case, args):
    norm = between(args["x"])
    return [normed(norms.LayerNorm(), args, args["x"], norm), activated(GELU, norm, args["out"])]


def layer_norm_relu_add(case, args):
    norm, positive = between(args["x"]), between(args["x"])
    return [normed(norms.LayerNorm(), args, args["x"], norm), activated(RELU, norm, positive),
            added(positive, args["residual"], args["out"])]


def slack_of_norm(args, exact):
    return [1.15 * UNIT[args["x"].dtype] * norms.layer_norm(args, args["eps"])[0].abs()]


def layer_norm_then_quantize(case, args):
    norm = between(args["x"])
    nothing = args["gamma"][:0]
    taken = {name: args[name] for name in ("out", "scales", "n_rows", "n_cols", "eps")}
    launches = of_entry(fused.Quantize("plain", torch.int8), case, x=norm, gamma=nothing, beta=nothing, **taken)
    return [normed(norms.LayerNorm(), args, args["x"], norm),
            Step("quantize", [norm, args["out"], args["scales"]], launches)]


def slack_of_quantized(args, exact):
    """An element moves by its rounding, and with the largest one by that of the scale."""
    scale, unit = exact[1][0], UNIT[args["x"].dtype]
    return [(2.2 * unit * 127 * scale)[:, None], 1.01 * unit * scale]


def softmax_in_parts(case, args):
    x, out = args["x"], args["out"]
    peak, total = (torch.empty_like(x[:, :1]) for _ in range(2))
    away, powers = between(x), between(x)
    return [Step("max", [x, peak], call=lambda: torch.amax(x, 1, keepdim=True, out=peak)),
            Step("subtract", [x, peak, away], call=lambda: torch.sub(x, peak, out=away)),
            Step("exp", [away, powers], call=lambda: torch.exp(away, out=powers)),
            Step("sum", [powers, total], call=lambda: torch.sum(powers, 1, keepdim=True, out=total)),
            Step("divide", [powers, total, out], call=lambda: torch.div(powers, total, out=out))]


def l2_norm_in_parts(case, args):
    x, out = args["x"], args["out"]
    squares, total, length = between(x), torch.empty_like(x[:, :1]), torch.empty_like(x[:, :1])
    return [Step("square", [x, squares], call=lambda: torch.mul(x, x, out=squares)),
            Step("sum", [squares, total], call=lambda: torch.sum(squares, 1, keepdim=True, out=total)),
            Step("sqrt", [total, length], call=lambda: torch.sqrt(total, out=length)),
            Step("divide", [x, length, out], call=lambda: torch.div(x, length, out=out))]


def mean_then_subtract(case, args):
    x, mean = args["x"], torch.empty_like(args["x"][:, :1])
    return [Step("mean", [x, mean], call=lambda: torch.mean(x, 1, keepdim=True, out=mean)),
            Step("subtract", [x, mean, args["out"]], call=lambda: torch.sub(x, mean, out=args["out"]))]


# ---- matmuls


def matmul_bias_gelu(case, args):
    product, total = between(args["out"]), between(args["out"])
    launches = of_entry(products.Matmul(IDENTITY), case, a=args["a"], b=args["b"], out=product)
    return [Step("matmul", [args["a"], args["b"], product], launches),
            activated(IDENTITY, product, total, args["bias"]), activated(GELU, total, args["out"])]


def slack_of_product(args, exact):
    product = args["a"].double() @ args["b"].double()
    total = product + args["bias"].double()
    return [1.14 * UNIT[args["a"].dtype] * (product.abs() + total.abs())]


def of_matrices(a, b, out):
    """Matmuls of a batch, each in whole tiles: those that the library chooses for as many rows."""
    (batches, m, k), n = a.shape, out.shape[2]
    aligned, within = ([test(factor) for factor in (a[0], b[0])]
                       for test in (heuristic.is_aligned, heuristic.within_sectors))
    block, parts, _ = heuristic.fastest((batches * m, k, n), aligned, within, heuristic.is_column_major(b))
    if parts > 1 or m % block[0]:
        raise ValueError(f"{batches} products of {m} x {k} x {n} are not computed in whole tiles of {block[0]} rows")
    taken = {"a": a, "b": b, "out": out, "bias": a[0, :0, :0], "residual": a[:0, :0, :0], "alpha": 1.0, "act": IDENTITY}
    launches = products.Matmul(IDENTITY).in_config((batches * m, k, n, a.dtype), block, 1, taken, taken)
    return Step("matmul", [a, b, out], with_all(launches, taken))


def matmul_softmax_matmul(case, args):
    """The scores are in memory, twice."""
    heads, length, d, dtype = case
    q, k, v, out = (args[name][0] for name in ("q", "k", "v", "out"))
    scores = torch.empty(heads, length, length, dtype=dtype, device="cuda")
    weights = between(scores)
    scores.copy_(weights)  # NaN.
    flat = {"x": scores.view(-1, length), "out": weights.view(-1, length)}
    launches = of_entry(softmax.Softmax(), (heads * length, length, dtype), **flat, n_rows=heads * length,
                        n_cols=length, scale=d**-0.5, log=False)
    return [of_matrices(q, k.transpose(1, 2), scores), Step("softmax", flat.values(), launches),
            of_matrices(weights, v, out)]


def slack_of_scores(args, exact):
    """A score that is rounded changes every weight of its row; weights are rounded as the fused form does."""
    unit, slack = UNIT[args["q"].dtype], torch.empty_like(exact[0][0])
    for head in range(slack.shape[1]):
        q, k, v = (args[name][0, head].double() for name in ("q", "k", "v"))
        scores = q @ k.T * q.shape[1] ** -0.5
        moved = torch.expm1(2 * unit * scores.abs().amax(1, keepdim=True)) + unit
        slack[0, head] = 1.1 * moved * (torch.softmax(scores, 1) @ v.abs())
    return [slack]


def norm_then_linear(case, args):
    launches = linear.NormLinear(norms.RmsNorm(), "separate").launches(case, args)
    return [Step("rms_norm", [args["x"], args["middle"]], launches[:1]),
            Step("matmul", [args["middle"], args["folded"], args["out"]], launches[1:])]


def linear_then_rope(case, args):
    launches = linear.LinearRope("separate").launches(case, args)
    turned = args["out"][:, : args["rotated"]]
    return [Step("matmul", [args["x"], args["weight"], args["out"]], launches[:-1]),
            Step("rope", [turned, turned], launches[-1:])]

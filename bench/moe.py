"""A mixture of experts in 8 bits."""

import torch
import torch.nn.functional as F

import fused
from entry import BF16, F16, F32, NAMES, SINGLE, TINY, Entry, Launch, cdiv, empty, normal, rounded
from linear import with_all

#: Intermediate columns that share a scale.
BLOCK = 128
#: The standard deviation of rounding to a step, where the largest element is 1.
OF_STEP = 1 / 127 / 12**0.5
#: Rows of a tile where experts have few tokens, and where they have many.
FEW, MANY = 16, 64


def integers(count, seed, shift):
    """Elements of a quantized normal distribution."""
    values = normal(count, F32, seed).mul_(40).round_().clamp_(-127, 127)
    out = empty(count, torch.int8, shift)
    return out.copy_(values)


def scales(count, seed, shift, size):
    """Scales around `size`, none near 0."""
    return (normal(count + shift, F32, seed).abs_() * size + size / 2)[shift:]


def quantized(rows):
    """Rows to `i8` with a scale each, along the last axis."""
    largest = rows.float().abs().amax(-1, keepdim=True)
    scale = largest / 127
    steps = torch.where(largest == 0, 0, 127 / largest)
    return (rows.float() * steps).round().to(torch.int8), scale


def dequantized(q, scale, dtype):
    return (q.float() * scale).to(dtype)


def blocks_of(rows):
    """Rows cut into blocks of columns that share a scale, padded with zeros."""
    return F.pad(rows, (0, -rows.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))


class Moe(Entry):
    """A case is (tokens, experts, experts of a token, hidden size, intermediate size, element type). PyTorch has an operation
    for each step, in 16 bits between them: quantize and dequantize rows, for each expert select its tokens, dequantize its
    weights, matmul, activate, requantize and dequantize, matmul, and add to its tokens. torch.compile is given the tokens
    of each expert: a number of rows that is known on the device alone would break its graph."""

    name, group = "moe_i8", "moe"
    inputs = ("x", "gate_up", "gate_up_scales", "down", "down_scales", "routing", "groups")
    cases = [*((tokens, 8, 2, 2048, 1024, BF16) for tokens in (1, 16, 128, 1024, 4096)), (1024, 64, 6, 2048, 1408, BF16)]
    small = [(*shape, dtype) for shape in ((1, 1, 1, 128, 128), (5, 4, 2, 45, 70), (1, 8, 2, 272, 144), (3, 2, 1, 33, 300),
                                           (96, 4, 2, 144, 256), (110, 3, 2, 150, 130), (40, 256, 8, 16, 16))
             for dtype in (F32, F16, BF16)]

    def label(self, case):
        tokens, experts, top_k, k, f, dtype = case
        return f"{tokens} x {k} x {f}, {top_k} of {experts} {NAMES[dtype]}"

    def size(self, case):
        return case[0], NAMES[case[-1]]

    def make(self, case, shift=0):
        tokens, experts, top_k, k, f, dtype = case
        choices, tiles = tokens * top_k, self.tiles(case)
        generator = torch.Generator("cuda").manual_seed(7)
        order = torch.rand(tokens, experts, device="cuda", generator=generator).argsort(1)
        routing = F.softmax(normal(choices, F32, 8).view(tokens, top_k), 1)
        # Gates of about 1, so that all of SiLU is met.
        gate_up_scales = scales(experts * 2 * f, 3, shift, 1 / (40 * k**0.5)).view(experts, 2 * f)
        args = {
            "x": normal(tokens * k, dtype, 1, shift).view(tokens, k), "experts": order[:, :top_k].int().contiguous(),
            "gate_up": integers(experts * 2 * f * k, 2, shift).view(experts, 2 * f, k), "gate_up_scales": gate_up_scales,
            "down": integers(experts * k * f, 4, shift).view(experts, k, f),
            "down_scales": scales(experts * k, 5, shift, 1 / (40 * f**0.5)).view(experts, k), "routing": routing,
            "rows": empty(tokens * k, torch.int8, shift).view(tokens, k), "row_scales": empty(tokens, F32, shift),
            "sorted": empty(tiles * self.tile(case), torch.int32), "tile_experts": empty(tiles, torch.int32),
            "n_tiles": empty(1, torch.int32), "intermediate": empty(choices * f, torch.int8, shift),
            "intermediate_scales": empty(choices * cdiv(f, BLOCK), F32, shift),
            "weighted_rows": empty(choices * k, F32, shift), "out": empty(tokens * k, dtype, shift).view(tokens, k),
            "n_choices": choices, "n_experts": experts, "top_k": top_k, "n_cols": k,
        }
        return {**args, "groups": self.groups(args["experts"], experts)}

    @staticmethod
    def groups(experts, count):
        """The choices of each expert."""
        return [(experts.flatten() == expert).nonzero().flatten() for expert in range(count)]

    @staticmethod
    def tile(case):
        """Rows of a tile, as the library chooses them."""
        tokens, experts, top_k = case[:3]
        return FEW if tokens * top_k <= FEW * experts else MANY

    def tiles(self, case):
        """The most tiles that experts can fill."""
        tokens, experts, top_k = case[:3]
        choices, rows = tokens * top_k, self.tile(case)
        return (choices + (rows - 1) * min(experts, choices)) // rows

    def launches(self, case, args):
        tokens, experts, _, k, f, dtype = case
        rows, tiles = self.tile(case), self.tiles(case)
        of_gate_up = {"x": args["rows"], "x_scales": args["row_scales"], "weights": args["gate_up"].view(experts, 2, f, k),
                      "weight_scales": args["gate_up_scales"].view(experts, 2, f)}
        of_down = {"weights": args["down"], "weight_scales": args["down_scales"]}

        def in_tiles(tile, *_):
            return tile == rows

        return [*self.quantize(case, args),
                Launch("group_by_expert", [], in_tiles, lambda *_: (experts,)),
                Launch("experts_gate_up", [], in_tiles, lambda *_: (tiles * cdiv(f, BLOCK),), **of_gate_up),
                Launch("experts_down", [], in_tiles, lambda *_: (tiles * cdiv(k, BLOCK),), **of_down),
                Launch("combine_choices", [NAMES[dtype]], lambda *_: True, lambda width: (tokens, cdiv(k, width)),
                       out_scales=args["row_scales"][:0])]

    @staticmethod
    def quantize(case, args):
        """The launch that makes `i8` of rows."""
        tokens, _, _, k, _, dtype = case
        nothing = args["x"].flatten()[:0]
        taken = {"x": args["x"], "gamma": nothing, "beta": nothing, "out": args["rows"], "scales": args["row_scales"],
                 "n_rows": tokens, "n_cols": k, "eps": 0.0}
        if dtype == F32:
            return [Launch("quantize_long", ["f32", "i8"], lambda norm, _: norm == 0, lambda *_: (tokens,), **taken,
                           x_stride=k, out_stride=k)]
        return with_all(fused.Quantize("plain", torch.int8).launches((tokens, k, dtype), taken), taken)

    def exact(self, args):
        """Quantization moves elements by up to half a step, some up and some down: eight standard deviations of what that makes
        of results are allowed. The worst case grows with the number of terms, and of thousands it would allow anything."""
        x, top_k = args["x"].double(), args["top_k"]
        deviation = x.abs().amax(1, keepdim=True) * OF_STEP
        value, variance, sizes = (torch.zeros_like(x) for _ in range(3))
        for expert, choices in enumerate(args["groups"]):
            if not choices.numel():
                continue
            tokens = choices // top_k
            y, of_y, size = self.of_expert(args, expert, x[tokens], deviation[tokens])
            weight = args["routing"].flatten()[choices].double()[:, None]
            # No token has an expert twice.
            value[tokens] += weight * y
            variance[tokens] += (weight * of_y).square()
            sizes[tokens] += weight.abs() * size
        arithmetic = (cdiv(args["gate_up"].shape[1] // 2, BLOCK) + top_k + 20) * 2 * SINGLE * sizes
        return [rounded(value, 8 * variance.sqrt() + arithmetic + TINY, args["x"].dtype)]

    @staticmethod
    def of_expert(args, expert, x, deviation):
        """What an expert makes of rows whose elements have such a standard deviation, that of its results, and the sum of the
        sizes of their terms."""
        weight = args["gate_up"][expert].double() * args["gate_up_scales"][expert].double()[:, None]
        (gate, up), (of_gate, of_up) = (x @ weight.T).chunk(2, 1), (deviation * weight.square().sum(1).sqrt()).chunk(2, 1)
        silu = F.silu(gate)
        h, of_h = silu * up, 1.13 * of_gate * (up.abs() + of_up) + silu.abs() * of_up
        largest = blocks_of(h.abs() + 8 * of_h).amax(2).repeat_interleave(BLOCK, 1)[:, : h.shape[1]]
        variance = of_h.square() + (largest * OF_STEP).square()
        weight = args["down"][expert].double() * args["down_scales"][expert].double()[:, None]
        return h @ weight.T, (variance @ weight.square().T).sqrt(), (h.abs() + 8 * of_h) @ weight.abs().T

    def eager(self, args):
        """The tokens of each expert are found in the run, as they are in a model."""
        groups = self.groups(args["experts"], args["n_experts"])
        return self.compute(*(args[name] for name in self.inputs[:-1]), groups)

    @staticmethod
    def compute(x, gate_up, gate_up_scales, down, down_scales, routing, groups):
        dtype, top_k, of_choices = x.dtype, routing.shape[1], routing.flatten()
        rows = dequantized(*quantized(x), dtype)
        out = torch.zeros_like(x, dtype=F32)
        for expert, choices in enumerate(groups):
            if not choices.numel():
                continue
            tokens = choices // top_k
            weight = dequantized(gate_up[expert], gate_up_scales[expert][:, None], dtype)
            gate, up = F.linear(rows.index_select(0, tokens), weight).chunk(2, 1)
            h = F.silu(gate) * up
            h = dequantized(*quantized(blocks_of(h)), dtype).flatten(1)[:, : h.shape[1]]
            y = F.linear(h, dequantized(down[expert], down_scales[expert][:, None], dtype))
            out.index_add_(0, tokens, y.float() * of_choices[choices][:, None])
        return out.to(dtype)

    def traffic(self, args):
        """Rows of `x` and of results, and the weights of the experts that have tokens."""
        taken = sum(bool(choices.numel()) for choices in args["groups"])
        weights = sum(args[name][0].numel() * args[name].element_size()
                      for name in ("gate_up", "gate_up_scales", "down", "down_scales"))
        return taken * weights + 2 * args["x"].numel() * args["x"].element_size() + 8 * args["n_choices"]


ENTRIES = [Moe()]

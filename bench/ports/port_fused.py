"""Ports of `fused.rs`."""

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from entry import BF16, F16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port, inner_product

try:
    from triton.language.extra.libdevice import tanh
except ModuleNotFoundError:
    from triton.language.extra.cuda.libdevice import tanh


class BatchedMatmulBiasGelu(Port):
    """A case is (batch, m, n, k)."""

    name = "batched_matmul_bias_gelu"
    cases = [(16, 1024, 1024, 1024), (12, 1000, 1500, 776)]
    strides = ("stride_xb", "stride_xm", "stride_xk", "stride_wb", "stride_wn", "stride_wk", "stride_bias", "stride_ob",
               "stride_om", "stride_on")

    def make(self, case, shift=0):
        batch, m, n, k = case
        x = normal(batch * m * k, BF16, 1).view(batch, m, k)
        w = normal(batch * n * k, BF16, 2, scale=k**-0.5).view(batch, n, k)
        bias = normal(batch * n, BF16, 3).view(batch, n)
        out = empty(batch * m * n, BF16).view(batch, m, n)
        strides = (*x.stride(), *w.stride(), bias.stride(0), *out.stride())
        return {"x": x, "w": w, "bias": bias, "out": out, "m": m, "n": n, "k": k, **dict(zip(self.strides, strides))}

    def grid(self, case, args, *consts):
        batch, m, n, _ = case
        return cdiv(n, 128), cdiv(m, 128), batch

    def exact(self, args):
        parts = []
        for x, w, bias in zip(*(args[name].double() for name in ("x", "w", "bias"))):
            value, within = inner_product(x, w.T)
            value, within = value + bias, within + 2 * SINGLE * bias.abs()
            # The slope of GELU is below 1.13.
            moved = 1.13 * within + 16 * SINGLE * value.abs() + TINY
            parts.append(rounded(F.gelu(value, approximate="tanh"), moved, BF16))
        return [tuple(torch.stack(of) for of in zip(*parts))]

    def run_triton(self, case, args):
        names = ("x", "w", "bias", "out", "m", "n", "k", *self.strides)
        batched_matmul_bias_gelu[self.grid(case, args)](*(args[name] for name in names), M=128, N=128, K=32, num_warps=4,
                                                        num_stages=4)


class Conv1d(Port):
    """A case is (sequences, length, channels, channels of the result, taps, steps between them)."""

    name = "conv1d"
    cases = [(16, 4096, 256, 256, 5, 2), (10, 3001, 200, 300, 3, 4)]

    def label(self, case):
        sequences, length, c_in, c_out, taps, dilation = case
        return f"{sequences} x {length} x {c_in} to {c_out}, {taps} taps by {dilation}"

    def make(self, case, shift=0):
        sequences, length, c_in, c_out, taps, dilation = case
        return {"x": normal(sequences * length * c_in, F16, 1).view(sequences, length, c_in),
                "w": normal(taps * c_in * c_out, F16, 2).view(taps, c_in, c_out),
                "out": empty(sequences * length * c_out, F16).view(sequences, length, c_out), "length": length, "c_in": c_in,
                "c_out": c_out, "taps": taps, "dilation": dilation}

    def grid(self, case, args, *consts):
        sequences, length, _, c_out, _, _ = case
        return cdiv(length, 128), cdiv(c_out, 64), sequences

    def exact(self, args):
        x, w = args["x"].double(), args["w"].double()
        value, size = (torch.zeros_like(args["out"], dtype=torch.float64) for _ in range(2))
        taps, length = args["taps"], args["length"]
        for tap in range(taps):
            first = (tap - taps // 2) * args["dilation"]
            to = slice(max(-first, 0), length - max(first, 0))
            of = slice(max(first, 0), length - max(-first, 0))
            value[:, to] += x[:, of] @ w[tap]
            size[:, to] += x[:, of].abs() @ w[tap].abs()
        return [rounded(value, (taps * args["c_in"] + 2) * 2 * SINGLE * size, F16)]

    def run_triton(self, case, args):
        names = ("x", "w", "out", "length", "c_in", "c_out", "taps", "dilation")
        conv1d[self.grid(case, args)](*(args[name] for name in names), M=128, N=64, K=64, num_warps=4, num_stages=3)


class NewtonSchulz(Port):
    """A case is (matrices,)."""

    name = "newton_schulz"
    cases = [(4096,), (5001,)]
    size = 64
    #: The coefficients of Muon.
    coefficients = {"a": 3.4445, "b": -4.775, "c": 2.0315}

    def label(self, case):
        return super().label((*case, self.size, self.size))

    def make(self, case, shift=0):
        shape = (*case, self.size, self.size)
        return {"x": normal(math.prod(shape), F32, 1).view(shape), "out": empty(math.prod(shape), F32).view(shape),
                **self.coefficients}

    def grid(self, case, args, *consts):
        return case

    def iterations(self, args, operand):
        """The iteration in float64, with the operands of its products as `operand` makes them."""
        a, b, c = (torch.tensor(args[name], dtype=F32).double().item() for name in self.coefficients)
        x = args["x"].double()
        x = x / (x.square().sum((1, 2), keepdim=True).sqrt() + 1e-7)
        for _ in range(5):
            narrow = operand(x)
            square = narrow @ narrow.mT
            narrow_square = operand(square)
            change = b * square + c * (narrow_square @ narrow_square)
            x = a * x + operand(change) @ narrow
        return x

    def exact(self, args):
        value = self.iterations(args, lambda x: x)
        narrow = self.iterations(args, lambda x: x.to(F16).double())
        # What rounding to `f16` changes is spread over all elements, by a factor of up to 10 from its root mean square.
        moved = (value - narrow).square().mean().sqrt()
        return [(value, (16 * moved).expand_as(value))]

    def run_triton(self, case, args):
        newton_schulz[self.grid(case, args)](*(args[name] for name in ("x", "out", "a", "b", "c")), SIZE=self.size,
                                             num_warps=4)


class WindowAttention(Port):
    """A case is (windows, heads, places along a side of a window)."""

    name = "window_attention"
    cases = [(4096, 3, 7), (3001, 6, 6)]
    dim = 32

    def label(self, case):
        windows, heads, side = case
        return f"{windows} x {side} x {side}, {heads} heads of {self.dim}"

    def index(self, side):
        """Which bias a query and a key have: that of their distances along both axes."""
        at = torch.arange(side, device="cuda")
        rows, cols = at.repeat_interleave(side), at.repeat(side)
        down, right = (of[:, None] - of + side - 1 for of in (rows, cols))
        return (down * (2 * side - 1) + right).to(torch.int32).contiguous()

    def make(self, case, shift=0):
        windows, heads, side = case
        tokens, distances = side**2, (2 * side - 1)**2
        shape = windows, tokens, 3, heads, self.dim
        return {"qkv": normal(math.prod(shape), F16, 1).view(shape),
                "table": normal(distances * heads, F16, 2).view(distances, heads), "index": self.index(side),
                "out": empty(windows * tokens * heads * self.dim, F16).view(windows, tokens, heads, self.dim),
                "scale": self.dim**-0.5, "heads": heads, "tokens": tokens}

    def grid(self, case, args, *consts):
        windows, heads, _ = case
        return heads, windows

    def exact(self, args):
        tokens, parts = args["tokens"], []
        bias = args["table"].double()[args["index"].long()].permute(2, 0, 1)
        for qkv in args["qkv"].split(512):
            # Windows, heads, places, elements of a head.
            q, k, v = qkv.double().permute(2, 0, 3, 1, 4)
            scores = q @ k.mT * args["scale"] + bias
            sizes = q.abs() @ k.abs().mT * args["scale"]
            moved = (self.dim + 2) * 2 * SINGLE * sizes + 4 * SINGLE * (scores.abs() + bias.abs())
            powers = torch.exp(scores - scores.amax(3, keepdim=True))
            total = powers.sum(3, keepdim=True)
            # A weight is rounded to `f16`, of which the smallest ones are multiples of 2^-24.
            relative = 2.0**-11 + 2 * moved.amax(3, keepdim=True) + (tokens + 64) * 2 * SINGLE
            within = (relative * (powers @ v.abs()) + 2.0**-24 * v.abs().sum(2, keepdim=True)) / total
            value, bound = rounded(powers @ v / total, within, F16)
            parts.append((value.transpose(1, 2), bound.transpose(1, 2)))
        return [tuple(torch.cat(of) for of in zip(*parts))]

    def run_triton(self, case, args):
        names = ("qkv", "table", "index", "out", "scale", "heads", "tokens")
        window_attention[self.grid(case, args)](*(args[name] for name in names), D=self.dim, N=64, num_warps=4)


PORTS = [BatchedMatmulBiasGelu(), Conv1d(), NewtonSchulz(), WindowAttention()]


@triton.jit
def batched_matmul_bias_gelu(x_ptr, w_ptr, bias_ptr, out_ptr, m, n, k, stride_xb, stride_xm, stride_xk, stride_wb, stride_wn,
                             stride_wk, stride_bias, stride_ob, stride_om, stride_on, M: tl.constexpr, N: tl.constexpr,
                             K: tl.constexpr):
    offs_n = tl.program_id(0) * N + tl.arange(0, N)
    offs_m = tl.program_id(1) * M + tl.arange(0, M)
    batch = tl.program_id(2)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        at_x = offs_m[:, None] * stride_xm + inner[None, :] * stride_xk
        at_w = offs_n[None, :] * stride_wn + inner[:, None] * stride_wk
        x = tl.load(x_ptr + batch * stride_xb + at_x, (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
        w = tl.load(w_ptr + batch * stride_wb + at_w, (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
        acc = tl.dot(x, w, acc)
    bias = tl.load(bias_ptr + batch * stride_bias + offs_n, offs_n < n, 0.0).to(tl.float32)
    y = acc + bias[None, :]
    s = 0.7978845608028654
    y = 0.5 * y * (tanh(s * y * (1.0 + 0.044715 * y * y)) + 1.0)
    at = offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    tl.store(out_ptr + batch * stride_ob + at, y.to(tl.bfloat16), (offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit
def conv1d(x_ptr, w_ptr, out_ptr, length, c_in, c_out, taps, dilation, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    steps = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    first_row = tl.program_id(2) * length
    acc = tl.zeros((M, N), dtype=tl.float32)
    for tap in range(0, taps):
        source = steps + (tap - taps // 2) * dilation
        inside = (source >= 0) & (source < length)
        for start in range(0, c_in, K):
            channels = start + tl.arange(0, K)
            x = tl.load(x_ptr + (first_row + source)[:, None] * c_in + channels[None, :],
                        inside[:, None] & (channels[None, :] < c_in), 0.0)
            w = tl.load(w_ptr + (tap * c_in + channels)[:, None] * c_out + offs_n[None, :],
                        (channels[:, None] < c_in) & (offs_n[None, :] < c_out), 0.0)
            acc = tl.dot(x, w, acc)
    tl.store(out_ptr + (first_row + steps)[:, None] * c_out + offs_n[None, :], acc.to(tl.float16),
             (steps[:, None] < length) & (offs_n[None, :] < c_out))


@triton.jit
def newton_schulz(x_ptr, out_ptr, a, b, c, SIZE: tl.constexpr):
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    offsets = rows[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    given = tl.load(x_ptr + offsets)
    x = given / (tl.sqrt(tl.sum(given * given)) + 1e-7)
    for _ in range(5):
        half = x.to(tl.float16)
        square = tl.dot(half, tl.trans(half))
        half_square = square.to(tl.float16)
        change = b * square + c * tl.dot(half_square, half_square)
        x = tl.dot(change.to(tl.float16), half, a * x)
    tl.store(out_ptr + offsets, x)


@triton.jit
def window_attention(qkv_ptr, table_ptr, index_ptr, out_ptr, scale, heads, tokens, D: tl.constexpr, N: tl.constexpr):
    head = tl.program_id(0)
    window = tl.program_id(1)
    places = tl.arange(0, N)
    offs_d = tl.arange(0, D)
    present = places < tokens
    at = ((window * tokens + places) * 3 * heads + head) * D
    q = tl.load(qkv_ptr + at[:, None] + offs_d[None, :], present[:, None], 0.0)
    k = tl.load(qkv_ptr + at[:, None] + heads * D + offs_d[None, :], present[:, None], 0.0)
    v = tl.load(qkv_ptr + at[:, None] + 2 * heads * D + offs_d[None, :], present[:, None], 0.0)
    both = present[:, None] & present[None, :]
    distance = tl.load(index_ptr + places[:, None] * tokens + places[None, :], both, 0)
    bias = tl.load(table_ptr + distance * heads + head, both, 0.0).to(tl.float32)
    scores = tl.dot(q, tl.trans(k)) * scale + bias
    scores = tl.where(present[None, :], scores, -float("inf"))
    p = tl.exp(scores - tl.max(scores, 1)[:, None])
    y = tl.dot(p.to(tl.float16), v) / tl.sum(p, 1)[:, None]
    at_out = ((window * tokens + places) * heads + head) * D
    tl.store(out_ptr + at_out[:, None] + offs_d[None, :], y.to(tl.float16), present[:, None])

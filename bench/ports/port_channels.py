"""Ports of `channels.rs` and `scan.rs`."""

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port


class GroupNorm(Port):
    """A case is (images, pixels, groups, channels of a group)."""

    name = "group_norm"
    cases = [(128, 1024, 32, 16), (64, 4096, 32, 10)]
    eps = 1e-5

    def make(self, case, shift=0):
        images, pixels, groups, size = case
        channels = groups * size
        shape = (images, pixels, channels)
        count = math.prod(shape)
        return {"x": normal(count, BF16, 1).view(shape), "weight": normal(channels, BF16, 2),
                "bias": normal(channels, BF16, 3), "out": empty(count, BF16).view(shape), "pixels": pixels,
                "channels": channels, "group_channels": size, "eps": self.eps}

    def grid(self, case, args, *consts):
        return (case[0], case[2])

    def exact(self, args):
        size, parts = args["group_channels"], []
        weight, bias = (args[name].double().view(-1, size) for name in ("weight", "bias"))
        for part in args["x"].split(8):
            x = part.double().view(*part.shape[:2], -1, size)
            mean, square = (of.mean((1, 3), keepdim=True) for of in (x, x.square()))
            rstd = 1 / (square - mean * mean + self.eps).sqrt()
            x_hat = (x - mean) * rstd
            error = (16 + math.sqrt(x.shape[1] * size)) * 2 * SINGLE
            sizes = (x_hat.abs() * (1 + square * rstd * rstd) + square.sqrt() * rstd) * weight.abs() + bias.abs()
            parts.append(rounded(x_hat * weight + bias, error * sizes, BF16))
        return [tuple(torch.cat(of) for of in zip(*parts))]

    def run_triton(self, case, args):
        group_norm[self.grid(case, args)](
            *(args[name] for name in ("x", "weight", "bias", "out", "pixels", "channels", "group_channels", "eps")),
            PIXELS=128, CHANNELS=16, num_warps=4)


class CausalConv(Port):
    """A case is (sequences, steps, channels)."""

    name = "causal_conv"
    cases = [(8, 4096, 4096), (8, 4001, 2056)]

    def make(self, case, shift=0):
        channels, count = case[2], math.prod(case)
        return {"x": normal(count, BF16, 1).view(case), "weight": normal(channels * 4, BF16, 2).view(channels, 4),
                "bias": normal(channels, BF16, 3), "out": empty(count, BF16).view(case), "n": case[1],
                "channels": channels}

    def grid(self, case, args, *consts):
        sequences, n, channels = case
        return cdiv(channels, 128), cdiv(n, 32), sequences

    def exact(self, args):
        parts, weight, bias = [], args["weight"].double(), args["bias"].double()
        for part in args["x"].split(1):
            x = F.pad(part.double(), (0, 0, 3, 0))
            products = [x[:, j:j + part.shape[1]] * weight[:, j] for j in range(4)]
            total, size = sum(products) + bias, sum(product.abs() for product in products) + bias.abs()
            value = total * torch.sigmoid(total)
            within = 1.1 * 8 * SINGLE * size + 16 * SINGLE * value.abs() + TINY
            parts.append(rounded(value, within, BF16))
        return [tuple(torch.cat(of) for of in zip(*parts))]

    def run_triton(self, case, args):
        causal_conv[self.grid(case, args)](
            *(args[name] for name in ("x", "weight", "bias", "out", "n", "channels")), STEPS=32, CHANNELS=128, num_warps=4)


class Rope(Port):
    """Queries in a packed matrix of queries, keys and values. A case is (tokens, heads, half a head)."""

    name = "rope"
    cases = [(16384, 32, 64), (16384, 32, 48)]

    def make(self, case, shift=0):
        tokens, heads, half = case
        dim = 2 * half
        angle = torch.rand(tokens, half, device="cuda") * 6.28
        return {"x": normal(tokens * 3 * heads * dim, BF16, 1).view(tokens, 3 * heads, dim), "cos": angle.cos().to(BF16),
                "sin": angle.sin().to(BF16), "out": empty(tokens * heads * dim, BF16).view(tokens, heads, dim),
                "x_token_stride": 3 * heads * dim, "x_head_stride": dim, "out_token_stride": heads * dim,
                "out_head_stride": dim, "heads": heads, "half": half}

    def grid(self, case, args, *consts):
        return (case[0],)

    def exact(self, args):
        a, b = args["x"][:, :args["heads"]].double().chunk(2, 2)
        cos, sin = args["cos"].double()[:, None], args["sin"].double()[:, None]
        value = torch.cat([a * cos - b * sin, b * cos + a * sin], 2)
        size = torch.cat([(a * cos).abs() + (b * sin).abs(), (b * cos).abs() + (a * sin).abs()], 2)
        return [rounded(value, 4 * SINGLE * size, BF16)]

    def run_triton(self, case, args):
        names = ("x", "cos", "sin", "out", "x_token_stride", "x_head_stride", "out_token_stride", "out_head_stride",
                 "heads", "half")
        rope[self.grid(case, args)](*(args[name] for name in names), HEADS=32, HALF=64, num_warps=4)


class SelectiveScan(Port):
    """A case is (sequences, steps, channels)."""

    name = "selective_scan"
    cases = [(8, 2048, 4096)]
    state = 16

    def make(self, case, shift=0):
        sequences, n, channels = case
        count = math.prod(case)
        of = {name: normal(count, BF16, seed).view(case) for seed, name in enumerate(("u", "dt", "z"), 1)}
        of |= {name: normal(sequences * n * self.state, BF16, seed).view(sequences, n, self.state)
               for seed, name in enumerate(("b", "c"), 4)}
        a = -torch.arange(1, self.state + 1, device="cuda", dtype=F32).repeat(channels, 1)
        return {**of, "a": a, "d": normal(channels, F32, 6), "out": empty(count, BF16).view(case), "n": n,
                "channels": channels}

    def grid(self, case, args, *consts):
        return cdiv(case[2], 64), case[0]

    def exact(self, args):
        a, d, n = args["a"].double(), args["d"].double(), args["n"]
        value, within = (torch.empty_like(args["u"], dtype=torch.float64) for _ in range(2))
        h, size = (torch.zeros(args["u"].shape[0], *a.shape, dtype=torch.float64, device="cuda") for _ in range(2))
        for t in range(n):
            u, dt, z = (args[name][:, t].double() for name in ("u", "dt", "z"))
            b, c = (args[name][:, t].double()[:, None] for name in ("b", "c"))
            dt = F.softplus(dt)
            decay, added = torch.exp(dt[..., None] * a), (dt * u)[..., None] * b
            h, size = decay * h + added, decay * size + added.abs()
            gate = z * torch.sigmoid(z)
            value[:, t] = ((h * c).sum(2) + u * d) * gate
            within[:, t] = (n + 128) * 4 * SINGLE * ((size * c.abs()).sum(2) + (u * d).abs()) * gate.abs() + TINY
        return [rounded(value, within, BF16)]

    def run_triton(self, case, args):
        names = ("u", "dt", "a", "b", "c", "d", "z", "out", "n", "channels")
        selective_scan[self.grid(case, args)](*(args[name] for name in names), CHANNELS=64, STATE=16, num_warps=4)


PORTS = [GroupNorm(), CausalConv(), Rope(), SelectiveScan()]


@triton.jit
def group_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, pixels, channels, group_channels, eps, PIXELS: tl.constexpr,
               CHANNELS: tl.constexpr):
    image = tl.program_id(0)
    group = tl.program_id(1)
    group_cols = tl.arange(0, CHANNELS)
    cols = group * group_channels + group_cols
    present = group_cols < group_channels
    base = image * pixels * channels
    sums = tl.zeros([PIXELS, CHANNELS], dtype=tl.float32)
    squares = tl.zeros([PIXELS, CHANNELS], dtype=tl.float32)
    for start in range(0, pixels, PIXELS):
        rows = start + tl.arange(0, PIXELS)
        mask = (rows < pixels)[:, None] & present[None, :]
        x = tl.load(x_ptr + base + rows[:, None] * channels + cols[None, :], mask, 0.0).to(tl.float32)
        sums += x
        squares += x * x
    count = (pixels * group_channels).to(tl.float32)
    mean = tl.sum(sums) / count
    variance = tl.sum(squares) / count - mean * mean
    rstd = tl.rsqrt(variance + eps)
    w = tl.load(weight_ptr + cols, present, 0.0).to(tl.float32)
    b = tl.load(bias_ptr + cols, present, 0.0).to(tl.float32)
    for start in range(0, pixels, PIXELS):
        rows = start + tl.arange(0, PIXELS)
        mask = (rows < pixels)[:, None] & present[None, :]
        offsets = base + rows[:, None] * channels + cols[None, :]
        x = tl.load(x_ptr + offsets, mask, 0.0).to(tl.float32)
        y = (x - mean) * rstd * w[None, :] + b[None, :]
        tl.store(out_ptr + offsets, y.to(tl.bfloat16), mask)


@triton.jit
def causal_conv(x_ptr, weight_ptr, bias_ptr, out_ptr, n, channels, STEPS: tl.constexpr, CHANNELS: tl.constexpr):
    cols = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    i = tl.program_id(1) * STEPS + tl.arange(0, STEPS)
    base = tl.program_id(2) * n * channels
    present = cols < channels
    b = tl.load(bias_ptr + cols, present, 0.0).to(tl.float32)
    acc = tl.zeros([STEPS, CHANNELS], dtype=tl.float32) + b[None, :]
    for j in tl.static_range(4):
        t = i - 3 + j
        mask = ((t >= 0) & (t < n))[:, None] & present[None, :]
        w = tl.load(weight_ptr + cols * 4 + j, present, 0.0).to(tl.float32)
        x = tl.load(x_ptr + base + t[:, None] * channels + cols[None, :], mask, 0.0).to(tl.float32)
        acc += x * w[None, :]
    y = acc * tl.sigmoid(acc)
    mask = (i < n)[:, None] & present[None, :]
    tl.store(out_ptr + base + i[:, None] * channels + cols[None, :], y.to(tl.bfloat16), mask)


@triton.jit
def rope(x_ptr, cos_ptr, sin_ptr, out_ptr, x_token_stride, x_head_stride, out_token_stride, out_head_stride, heads, half,
         HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    rows = tl.arange(0, HEADS)
    cols = tl.arange(0, HALF)
    present = cols < half
    cos = tl.load(cos_ptr + token * half + cols, present, 0.0).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + token * half + cols, present, 0.0).to(tl.float32)[None, :]
    mask = (rows < heads)[:, None] & present[None, :]
    first = x_ptr + token * x_token_stride + rows[:, None] * x_head_stride + cols[None, :]
    x1 = tl.load(first, mask, 0.0).to(tl.float32)
    x2 = tl.load(first + half, mask, 0.0).to(tl.float32)
    first = out_ptr + token * out_token_stride + rows[:, None] * out_head_stride + cols[None, :]
    tl.store(first, (x1 * cos - x2 * sin).to(tl.bfloat16), mask)
    tl.store(first + half, (x2 * cos + x1 * sin).to(tl.bfloat16), mask)


@triton.jit
def selective_scan(u_ptr, dt_ptr, a_ptr, b_ptr, c_ptr, d_ptr, z_ptr, out_ptr, n, channels, CHANNELS: tl.constexpr,
                   STATE: tl.constexpr):
    cols = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    sequence = tl.program_id(1)
    states = tl.arange(0, STATE)
    mask = cols < channels
    a = tl.load(a_ptr + cols[:, None] * STATE + states[None, :], mask[:, None], 0.0)
    d = tl.load(d_ptr + cols, mask, 0.0)
    h = tl.zeros([CHANNELS, STATE], dtype=tl.float32)
    for t in range(0, n):
        at = (sequence * n + t) * channels + cols
        at_state = (sequence * n + t) * STATE + states
        u = tl.load(u_ptr + at, mask, 0.0).to(tl.float32)
        dt = tl.load(dt_ptr + at, mask, 0.0).to(tl.float32)
        z = tl.load(z_ptr + at, mask, 0.0).to(tl.float32)
        b = tl.load(b_ptr + at_state).to(tl.float32)
        c = tl.load(c_ptr + at_state).to(tl.float32)
        dt = tl.where(dt <= 20.0, tl.log(1.0 + tl.exp(dt)), dt)
        h = tl.exp(dt[:, None] * a) * h + (dt * u)[:, None] * b[None, :]
        y = tl.sum(h * c[None, :], 1) + u * d
        tl.store(out_ptr + at, (y * z * tl.sigmoid(z)).to(tl.bfloat16), mask)

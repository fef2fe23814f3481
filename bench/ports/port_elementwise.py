"""Ports of `elementwise.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Mismatch, Port, Rows

try:
    from triton.language.extra.libdevice import tanh
except ModuleNotFoundError:
    from triton.language.extra.cuda.libdevice import tanh


class Elements(Port):
    """On `n` elements in blocks of 1024: a case is (n,)."""

    block, warps = 1024, 4
    dtype = F32

    def label(self, case):
        n, = case
        return f"{n >> 20} Mi" if n % (1 << 20) == 0 else str(n)

    def grid(self, case, args, *consts):
        return (cdiv(case[0], self.block),)


class VectorAdd(Elements):
    name = "vector_add"
    cases = [(100 << 20,), ((100 << 20) + 1,)]

    def make(self, case, shift=0):
        n, = case
        return {"x": normal(n, F32, 1), "y": normal(n, F32, 2), "out": empty(n, F32), "n": n}

    def exact(self, args):
        value = args["x"].double() + args["y"].double()
        return [rounded(value, torch.zeros_like(value), F32)]

    def run_triton(self, case, args):
        vector_add[self.grid(case, args)](args["x"], args["y"], args["out"], args["n"], BLOCK=1024, num_warps=4)


class Dropout(Elements):
    name = "dropout"
    random = True
    cases = [(64 << 20,)]

    def make(self, case, shift=0):
        n, = case
        return {"x": normal(n, F32, 1), "out": empty(n, F32), "n": n, "p": 0.3, "seed": 123}

    def exact(self, args):
        return None

    def check_random(self, args, results):
        x, y = args["x"].double(), results[0].double()
        kept = x / (1 - torch.tensor(args["p"], dtype=F32).double().item())
        wrong = int(((y != 0) & ~((y - kept).abs() <= 8 * SINGLE * kept.abs())).sum())
        share, n = float((y != 0).double().mean()), x.numel()
        if wrong:
            raise Mismatch(f"{wrong} of {n} elements are neither 0 nor scaled")
        if abs(share - 0.7) > 6 * math.sqrt(0.21 / n):
            raise Mismatch(f"a share of {share} is kept")

    def run_triton(self, case, args):
        dropout[self.grid(case, args)](args["x"], args["out"], args["n"], args["p"], args["seed"], BLOCK=1024,
                                       num_warps=4)


class Swiglu(Rows):
    name = "swiglu"
    cases = [(16384, 11008), (16384, 16384)]

    def make(self, case, shift=0):
        rows, cols = case
        of = {name: normal(rows * cols, BF16, seed).view(rows, cols) for seed, name in enumerate(("gate", "up"))}
        return {**of, "out": empty(rows * cols, BF16).view(rows, cols), "stride": cols, "n_cols": cols}

    def exact(self, args):
        gate, up = args["gate"].double(), args["up"].double()
        value = gate * torch.sigmoid(gate) * up
        return [rounded(value, value.abs() * (2.0**-8 + 16 * SINGLE) + TINY, BF16)]

    def run_triton(self, case, args):
        swiglu[self.grid(case, args)](args["gate"], args["up"], args["out"], args["stride"], args["n_cols"], BLOCK=16384,
                                      num_warps=16)


class Geglu(Elements):
    name = "geglu"
    cases = [(128 << 20,)]

    def make(self, case, shift=0):
        n, = case
        return {"gate": normal(n, BF16, 1), "up": normal(n, BF16, 2), "out": empty(n, BF16), "n": n}

    def exact(self, args):
        e, g = args["gate"].double(), args["up"].double()
        f = 0.5 * e * (torch.tanh(math.sqrt(2 / math.pi) * e * (1 + 0.044715 * e * e)) + 1)
        return [rounded(f * g, (f.abs() * 2.0**-8 + 16 * SINGLE * e.abs()) * g.abs() + TINY, BF16)]

    def run_triton(self, case, args):
        geglu[self.grid(case, args)](args["gate"], args["up"], args["out"], args["n"], BLOCK=1024, num_warps=4)


class Adamw(Elements):
    name = "adamw"
    outputs = ("param", "exp_avg", "exp_avg_sq")
    cases = [(64 << 20,)]
    numbers = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}

    def make(self, case, shift=0):
        n, = case
        before = {name: normal(n, F32, seed) for seed, name in enumerate(("param", "exp_avg", "exp_avg_sq"), 1)}
        before["exp_avg_sq"].square_()
        return {**{name: empty(n, F32) for name in before}, "grad": normal(n, F32, 4), "n": n, **self.numbers,
                "bias1": 1 - 0.9**3, "bias2": 1 - 0.999**3, "before": before}

    def prepare(self, args):
        for name, values in args["before"].items():
            args[name].copy_(values)

    def exact(self, args):
        p, m, v = (args["before"][name].double() for name in self.outputs)
        g = args["grad"].double()
        # The numbers as the kernels have them.
        lr, beta1, beta2, eps, decay, bias1, bias2 = (
            torch.tensor(args[name], dtype=F32).double().item()
            for name in (*self.numbers, "bias1", "bias2"))
        next_m, next_v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        m_within = 4 * SINGLE * (m.abs() + g.abs())
        step = lr * (next_m / bias1) / ((next_v / bias2).sqrt() + eps)
        moved = m_within / next_m.abs().clamp(min=1e-30) + 2 * SINGLE * (v + g * g) / next_v + 64 * SINGLE
        value = p * (1 - lr * decay) - step
        return [(value, 4 * SINGLE * p.abs() + step.abs() * (moved + 2 * SINGLE) + TINY),
                (next_m, m_within + TINY), (next_v, 4 * SINGLE * (v + g * g) + TINY)]

    def run_triton(self, case, args):
        adamw[self.grid(case, args)](
            *(args[name] for name in ("param", "grad", "exp_avg", "exp_avg_sq", "n", *self.numbers, "bias1", "bias2")),
            BLOCK=1024, num_warps=4)


PORTS = [VectorAdd(), Dropout(), Swiglu(), Geglu(), Adamw()]


@triton.jit
def vector_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask)
    y = tl.load(y_ptr + offsets, mask)
    tl.store(out_ptr + offsets, x + y, mask)


@triton.jit
def dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask)


@triton.jit
def swiglu(gate_ptr, up_ptr, out_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride + cols, mask, 0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride + cols, mask, 0.0)
    act = (gate * tl.sigmoid(gate)).to(up.dtype)
    tl.store(out_ptr + row * stride + cols, act * up, mask)


@triton.jit
def geglu(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    e = tl.load(gate_ptr + offsets, mask, 0.0).to(tl.float32)
    g = tl.load(up_ptr + offsets, mask, 0.0)
    s = 0.7978845608028654
    f = 0.5 * e * (tanh(s * e * (1.0 + 0.044715 * e * e)) + 1.0)
    tl.store(out_ptr + offsets, f.to(g.dtype) * g, mask)


@triton.jit
def adamw(param_ptr, grad_ptr, exp_avg_ptr, exp_avg_sq_ptr, n, lr, beta1, beta2, eps, weight_decay, bias1, bias2,
          BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(grad_ptr + offsets, mask)
    p = tl.load(param_ptr + offsets, mask) * (1.0 - lr * weight_decay)
    m = tl.load(exp_avg_ptr + offsets, mask) * beta1 + g * (1.0 - beta1)
    v = tl.load(exp_avg_sq_ptr + offsets, mask) * beta2 + g * g * (1.0 - beta2)
    denominator = tl.sqrt(v / bias2) + eps
    tl.store(param_ptr + offsets, p - lr * (m / bias1) / denominator, mask)
    tl.store(exp_avg_ptr + offsets, m, mask)
    tl.store(exp_avg_sq_ptr + offsets, v, mask)

"""Ports of `rows.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, empty, normal, over, rounded
from port import Rows, integers, over_rows


class Softmax(Rows):
    name = "softmax"
    cases = [(32768, 4096), (20000, 5003)]

    def consts(self, case):
        return lambda block: block >= case[1]

    def make(self, case, shift=0):
        rows, cols = case
        return {"x": normal(rows * cols, BF16, 1, 0, 3.0).view(rows, cols), "out": empty(rows * cols, BF16).view(rows, cols),
                "x_row_stride": cols, "out_row_stride": cols, "n_cols": cols}

    def exact(self, args):
        def of(part):
            x = part.double()
            peak, value = x.amax(1, keepdim=True), torch.softmax(x, 1)
            relative = (32 + math.sqrt(x.shape[1]) + 2 * (peak - x)) * SINGLE
            return rounded(value, relative * value + TINY, BF16)
        return [over_rows(of, args["x"])]

    def run_triton(self, case, args):
        softmax[self.grid(case, args)](
            args["x"], args["out"], args["x_row_stride"], args["out_row_stride"], args["n_cols"],
            BLOCK=4096 if case[1] <= 4096 else 8192, num_warps=8)


class LayerNorm(Rows):
    name = "layer_norm"
    outputs = ("out", "mean", "rstd")
    #: Rows of up to 4096 are one iteration, as the tutorial has it.
    cases = [(32768, 4096), (16384, 8192), (16384, 4095)]
    eps = 1e-5

    def block(self, case):
        return 4096 if case[1] <= 4096 else 1024

    def consts(self, case):
        return lambda block: block == self.block(case)

    def make(self, case, shift=0):
        rows, cols = case
        return {"x": normal(rows * cols, BF16, 1).view(rows, cols), "out": empty(rows * cols, BF16).view(rows, cols),
                "weight": normal(cols, BF16, 2), "bias": normal(cols, BF16, 3), "mean": empty(rows, F32),
                "rstd": empty(rows, F32), "stride": cols, "n": cols, "eps": self.eps}

    def exact(self, args):
        weight, bias = args["weight"].double(), args["bias"].double()

        def of(part):
            x = part.double()
            mean, size = x.mean(1, keepdim=True), x.abs().mean(1, keepdim=True)
            rstd = 1 / (x.var(1, keepdim=True, correction=0) + self.eps).sqrt()
            x_hat, error = (x - mean) * rstd, over(x.shape[1])
            inner = error * ((x_hat.abs() + size * rstd) * weight.abs() + bias.abs())
            value, bound = rounded(x_hat * weight + bias, inner, BF16)
            return value, bound, mean[:, 0], error * size[:, 0], rstd[:, 0], (error * rstd * (1 + size * rstd))[:, 0]

        found = over_rows(of, args["x"])
        return [found[0:2], found[2:4], found[4:6]]

    def run_triton(self, case, args):
        layer_norm[self.grid(case, args)](
            *(args[name] for name in ("x", "out", "weight", "bias", "mean", "rstd", "stride", "n", "eps")),
            BLOCK=self.block(case), num_warps=8)


class LayerNormDx(Rows):
    name = "layer_norm_dx"
    outputs = ("dx",)
    cases = [(32768, 4096), (32768, 3000)]
    eps = 1e-5

    def make(self, case, shift=0):
        rows, cols = case
        args = {name: normal(rows * cols, BF16, seed).view(rows, cols) for seed, name in enumerate(("dy", "x"), 1)}
        statistics = [[part.float().mean(1), 1 / (part.float().var(1, correction=0) + self.eps).sqrt()]
                      for part in args["x"].split(4096)]
        mean, rstd = (torch.cat(of) for of in zip(*statistics))
        return {**args, "dx": empty(rows * cols, BF16).view(rows, cols), "weight": normal(cols, BF16, 3), "mean": mean,
                "rstd": rstd, "stride": cols, "n": cols}

    def exact(self, args):
        weight, n = args["weight"].double(), args["n"]
        parts = []
        for part in torch.arange(args["x"].shape[0], device="cuda").split(4096):
            dy, x = args["dy"][part].double(), args["x"][part].double()
            mean, rstd = args["mean"][part].double()[:, None], args["rstd"][part].double()[:, None]
            x_hat, wdy = (x - mean) * rstd, weight * dy
            c1, c2 = (x_hat * wdy).mean(1, keepdim=True), wdy.mean(1, keepdim=True)
            sizes = (x_hat * wdy).abs().mean(1, keepdim=True), wdy.abs().mean(1, keepdim=True)
            within = 2 * over(n) * (wdy.abs() + (x_hat.abs() + 1) * sizes[0] + sizes[1]) * rstd
            parts.append(rounded((wdy - (x_hat * c1 + c2)) * rstd, within, BF16))
        return [tuple(torch.cat(of) for of in zip(*parts))]

    def run_triton(self, case, args):
        layer_norm_dx[self.grid(case, args)](
            *(args[name] for name in ("dx", "dy", "x", "weight", "mean", "rstd", "stride", "n")), BLOCK=4096, num_warps=8)


class RmsNorm(Rows):
    name = "rms_norm"
    cases = [(16384, 8192), (30000, 4097)]
    eps = 1e-6

    def make(self, case, shift=0):
        rows, cols = case
        return {"x": normal(rows * cols, BF16, 1).view(rows, cols), "weight": normal(cols, BF16, 2),
                "out": empty(rows * cols, BF16).view(rows, cols), "x_row_stride": cols, "out_row_stride": cols, "n": cols,
                "eps": self.eps}

    def exact(self, args):
        weight = args["weight"].double()

        def of(part):
            x = part.double()
            value = x / (x.square().mean(1, keepdim=True) + self.eps).sqrt() * weight
            return rounded(value, over(x.shape[1]) * value.abs(), BF16)
        return [over_rows(of, args["x"])]

    def run_triton(self, case, args):
        rms_norm[self.grid(case, args)](
            *(args[name] for name in ("x", "weight", "out", "x_row_stride", "out_row_stride", "n", "eps")), BLOCK=2048,
            num_warps=8)


class CrossEntropy(Rows):
    name = "cross_entropy"
    outputs = ("loss", "lse")
    cases = [(8192, 32000), (4096, 50257)]

    def make(self, case, shift=0):
        rows, classes = case
        targets = integers(0, classes, rows, torch.int64, 2)
        targets[1::7] = -100
        return {"logits": normal(rows * classes, BF16, 1, 0, 3.0).view(rows, classes), "targets": targets,
                "loss": empty(rows, F32), "lse": empty(rows, F32), "row_stride": classes, "n_classes": classes,
                "ignored": -100}

    def exact(self, args):
        classes, parts = args["n_classes"], []
        for part in torch.arange(args["targets"].numel(), device="cuda").split(512):
            x, targets = args["logits"][part].double(), args["targets"][part]
            lse, hit = torch.logsumexp(x, 1), x.gather(1, targets.clamp(min=0)[:, None])[:, 0]
            within = (16 + math.sqrt(classes) + 2 * (x.amax(1) - x.amin(1))) * SINGLE + 2 * SINGLE * lse.abs()
            counts = targets != args["ignored"]
            loss_within = torch.where(counts, within + 4 * SINGLE * hit.abs(), TINY)
            parts.append((torch.where(counts, lse - hit, 0.0), loss_within, lse, within))
        found = tuple(torch.cat(of) for of in zip(*parts))
        return [found[0:2], found[2:4]]

    def run_triton(self, case, args):
        cross_entropy[self.grid(case, args)](
            *(args[name] for name in ("logits", "targets", "loss", "lse", "row_stride", "n_classes", "ignored")),
            BLOCK=4096, num_warps=8)


PORTS = [Softmax(), LayerNorm(), LayerNormDx(), RmsNorm(), CrossEntropy()]


@triton.jit
def softmax(x_ptr, out_ptr, x_row_stride, out_row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_row_stride + cols, mask, -float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, 0))
    y = numerator / tl.sum(numerator, 0)
    tl.store(out_ptr + row * out_row_stride + cols, y.to(tl.bfloat16), mask)


@triton.jit
def layer_norm(x_ptr, out_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    out_ptr += row * stride
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + cols, cols < n, 0.0).to(tl.float32)
    mean = tl.sum(sums, 0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, cols < n, 0.0).to(tl.float32)
        x = tl.where(cols < n, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, 0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n
        w = tl.load(weight_ptr + cols, mask).to(tl.float32)
        b = tl.load(bias_ptr + cols, mask).to(tl.float32)
        x = tl.load(x_ptr + cols, mask, 0.0).to(tl.float32)
        tl.store(out_ptr + cols, ((x - mean) * rstd * w + b).to(tl.bfloat16), mask)


@triton.jit
def layer_norm_dx(dx_ptr, dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * stride + cols, mask, 0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + cols, mask, 0.0).to(tl.float32)
    w = tl.load(weight_ptr + cols, mask).to(tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    x_hat = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(x_hat * wdy, 0) / n
    c2 = tl.sum(wdy, 0) / n
    dx = (wdy - (x_hat * c1 + c2)) * rstd
    tl.store(dx_ptr + row * stride + cols, dx.to(tl.bfloat16), mask)


@triton.jit
def rms_norm(x_ptr, weight_ptr, out_ptr, x_row_stride, out_row_stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row_stride + cols, cols < n, 0.0).to(tl.float32)
        squares += x * x
    rrms = tl.rsqrt(tl.sum(squares, 0) / n + eps)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n
        x = tl.load(x_ptr + row * x_row_stride + cols, mask, 0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask, 0.0).to(tl.float32)
        tl.store(out_ptr + row * out_row_stride + cols, (x * rrms * w).to(tl.bfloat16), mask)


@triton.jit
def cross_entropy(logits_ptr, targets_ptr, loss_ptr, lse_ptr, row_stride, n_classes, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(targets_ptr + row)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_classes, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * row_stride + cols, cols < n_classes, -float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, 0))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), 0)
        m = m_new
    lse = m + tl.log(d)
    hit = tl.load(logits_ptr + row * row_stride + target, target != ignored, 0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(target == ignored, 0.0, lse - hit))
    tl.store(lse_ptr + row, lse)

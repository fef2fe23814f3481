"""Ports of `sequences.rs`."""

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from entry import BF16, F16, F32, NAMES, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port, Rows, exactly, over_rows

try:
    from triton.language.extra.libdevice import rint, tanh
except ModuleNotFoundError:
    from triton.language.extra.cuda.libdevice import rint, tanh


class InstanceNorm(Port):
    """A case is (images, channels, height, width)."""

    name = "instance_norm"
    cases = [(16, 64, 128, 128), (24, 96, 101, 77)]

    def make(self, case, shift=0):
        images, channels, height, width = case
        total = math.prod(case)
        return {"x": normal(total, F16, 1).view(case), "weight": normal(channels, F16, 2), "bias": normal(channels, F16, 3),
                "out": empty(total, F16).view(case), "channels": channels, "n": height * width, "eps": 1e-5}

    def grid(self, case, args, *consts):
        return (case[0] * case[1],)

    def exact(self, args):
        x, n = args["x"].double(), args["n"]
        w, b = (args[name].double()[:, None, None] for name in ("weight", "bias"))
        mean, square = (of.mean((2, 3), keepdim=True) for of in (x, x.square()))
        rstd = (square - mean.square() + args["eps"]).rsqrt()
        x_hat = (x - mean) * rstd
        # The variance is a difference of a mean square and a square of a mean.
        sizes = (x_hat.abs() * (1 + square * rstd.square()) + square.sqrt() * rstd) * w.abs() + b.abs()
        return [rounded(x_hat * w + b, (16 + math.sqrt(n)) * 2 * SINGLE * sizes, F16)]

    def run_triton(self, case, args):
        names = ("x", "weight", "bias", "out", "channels", "n", "eps")
        instance_norm[self.grid(case, args)](*(args[name] for name in names), BLOCK=2048, num_warps=8)


class QuantizeGroups(Rows):
    name = "quantize_groups"
    outputs = ("q", "scales")
    cases = [(8192, 8192), (5000, 7000)]
    size = 64

    def make(self, case, shift=0):
        rows, n = case
        groups = cdiv(n, self.size)
        return {"x": normal(rows * n, BF16, 1).view(rows, n), "q": empty(rows * n, torch.int8).view(rows, n),
                "scales": empty(rows * groups, F32).view(rows, groups), "n": n}

    def grid(self, case, args, *consts):
        return case[0], cdiv(cdiv(case[1], self.size), 16)

    def exact(self, args):
        n = args["n"]

        def quantized(x):
            groups = F.pad(x.double(), (0, -n % self.size)).view(x.shape[0], -1, self.size)
            scale = groups.abs().amax(2).clamp(min=1e-10) / 127
            value = (groups / scale[..., None]).flatten(1)[:, :n]
            # A quotient is within 2 ULP.
            return value, 0.5 + 16 * SINGLE * value.abs(), scale, 4 * SINGLE * scale

        found = over_rows(quantized, args["x"])
        return [found[0:2], found[2:4]]

    def run_triton(self, case, args):
        quantize_groups[self.grid(case, args)](*(args[name] for name in ("x", "q", "scales", "n")), GROUPS=16, SIZE=self.size,
                                               num_warps=4)


class LstmCell(Port):
    """A case is (rows, elements of a state)."""

    name = "lstm_cell"
    outputs = ("c", "h")
    cases = [(8192, 1024), (5001, 1500)]

    def make(self, case, shift=0):
        rows, hidden = case
        count = rows * hidden
        return {"gates": normal(4 * count, F16, 1).view(rows, 4 * hidden), "before": normal(count, F32, 2).view(case),
                "c": empty(count, F32).view(case), "h": empty(count, F16).view(case), "hidden": hidden}

    def grid(self, case, args, *consts):
        return cdiv(case[1], 1024), case[0]

    def exact(self, args):
        gates = args["gates"].double().chunk(4, 1)
        kept = torch.sigmoid(gates[1]) * args["before"].double()
        added = torch.sigmoid(gates[0]) * torch.tanh(gates[2])
        # A sigmoid is within 4 ULP, or as exact as its exponential; a hyperbolic tangent is within 2.
        unit = (16 + 4 * args["gates"].double().abs().max()) * SINGLE
        c, within = kept + added, unit * (kept.abs() + added.abs()) + TINY
        h = torch.sigmoid(gates[3]) * torch.tanh(c)
        return [(c, within), rounded(h, unit * h.abs() + within, F16)]

    def run_triton(self, case, args):
        lstm_cell[self.grid(case, args)](*(args[name] for name in ("gates", "before", "c", "h", "hidden")), BLOCK=1024,
                                         num_warps=4)


class SingleRows(Port):
    """On rows of a matrix of `f32`: a case is (rows, columns)."""

    def label(self, case):
        return f"{super().label(case)} {NAMES[F32]}"

    def grid(self, case, args, *consts):
        return (case[0],)


class MovingAverage(SingleRows):
    name = "moving_average"
    cases = [(4096, 4096), (3000, 5001)]

    def make(self, case, shift=0):
        rows, n = case
        return {"x": normal(rows * n, F32, 1).view(case), "a": torch.sigmoid(3 + normal(rows * n, F32, 2)).view(case),
                "out": empty(rows * n, F32).view(case), "n": n}

    def exact(self, args):
        # Steps first, then rows.
        x, a = (args[name].double().T.contiguous() for name in ("x", "a"))
        value, bound = torch.empty_like(x), torch.empty_like(x)
        last, size, within = (torch.zeros_like(x[0]) for _ in range(3))
        for t in range(args["n"]):
            added = (1 - a[t]) * x[t]
            # A term has 34 roundings when it comes in, of which 32 are those of a tree of sums, and 2 more each step.
            within = a[t] * (within + 2 * SINGLE * size) + 34 * SINGLE * added.abs()
            last, size = a[t] * last + added, a[t] * size + added.abs()
            value[t], bound[t] = last, within + TINY
        return [(value.T, bound.T)]

    def run_triton(self, case, args):
        moving_average[self.grid(case, args)](*(args[name] for name in ("x", "a", "out", "n")), BLOCK=1024, num_warps=4)


class TopK(SingleRows):
    name = "top_k"
    outputs = ("values", "columns")
    cases = [(65536, 1024), (50000, 777)]
    k = 8

    def label(self, case):
        return f"{self.k} of {super().label(case)}"

    def make(self, case, shift=0):
        rows, n = case
        return {"x": normal(rows * n, F32, 1).view(case), "values": empty(rows * self.k, F32).view(rows, self.k),
                "columns": empty(rows * self.k, torch.int32).view(rows, self.k), "n": n}

    def exact(self, args):
        # The first of equal elements comes first.
        values, columns = args["x"].sort(dim=1, descending=True, stable=True)
        return [exactly(of[:, :self.k]) for of in (values, columns)]

    def run_triton(self, case, args):
        top_k[self.grid(case, args)](*(args[name] for name in ("x", "values", "columns", "n")), BLOCK=1024, K=self.k,
                                     num_warps=4)


class AvgPool3d(Port):
    """A case is (images, channels, depth, height, width)."""

    name = "avg_pool3d"
    cases = [(4, 32, 32, 112, 112), (5, 30, 33, 101, 91)]

    def make(self, case, shift=0):
        images, channels, *extents = case
        shape = images, channels, *(extent // 2 for extent in extents)
        total = math.prod(shape)
        return {"x": normal(math.prod(case), F16, 1).view(case), "out": empty(total, F16).view(shape), "total": total,
                **dict(zip(("depth", "height", "width"), extents))}

    def grid(self, case, args, *consts):
        return (cdiv(args["total"], 1024),)

    def exact(self, args):
        x = args["x"].double()
        return [rounded(F.avg_pool3d(x, 2), 8 * SINGLE * F.avg_pool3d(x.abs(), 2), F16)]

    def run_triton(self, case, args):
        names = ("x", "out", "total", "depth", "height", "width")
        avg_pool3d[self.grid(case, args)](*(args[name] for name in names), BLOCK=1024, num_warps=4)


PORTS = [InstanceNorm(), QuantizeGroups(), LstmCell(), MovingAverage(), TopK(), AvgPool3d()]


@triton.jit
def instance_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, channels, n, eps, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + plane * n + cols, cols < n, 0.0).to(tl.float32)
        sums += x
        squares += x * x
    mean = tl.sum(sums, 0) / n
    variance = tl.sum(squares, 0) / n - mean * mean
    rstd = tl.rsqrt(variance + eps)
    w = tl.load(weight_ptr + plane % channels).to(tl.float32)
    b = tl.load(bias_ptr + plane % channels).to(tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + plane * n + cols, cols < n, 0.0).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(out_ptr + plane * n + cols, y.to(tl.float16), cols < n)


@triton.jit
def quantize_groups(x_ptr, q_ptr, scales_ptr, n, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    row = tl.program_id(0)
    groups = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    cols = groups[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    x = tl.load(x_ptr + row * n + cols, cols < n, 0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 1), 1e-10) / 127.0
    quantized = rint(x / scale[:, None]).to(tl.int8)
    count = tl.cdiv(n, SIZE)
    tl.store(q_ptr + row * n + cols, quantized, cols < n)
    tl.store(scales_ptr + row * count + groups, scale, groups < count)


@triton.jit
def lstm_cell(gates_ptr, before_ptr, c_ptr, h_ptr, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < hidden
    of_row = gates_ptr + row * 4 * hidden + cols
    i = tl.sigmoid(tl.load(of_row, mask, 0.0).to(tl.float32))
    f = tl.sigmoid(tl.load(of_row + hidden, mask, 0.0).to(tl.float32))
    g = tanh(tl.load(of_row + 2 * hidden, mask, 0.0).to(tl.float32))
    o = tl.sigmoid(tl.load(of_row + 3 * hidden, mask, 0.0).to(tl.float32))
    c = f * tl.load(before_ptr + row * hidden + cols, mask, 0.0) + i * g
    tl.store(c_ptr + row * hidden + cols, c, mask)
    tl.store(h_ptr + row * hidden + cols, (o * tanh(c)).to(tl.float16), mask)


@triton.jit
def follow(a, p, b, q):
    return a * b, p * b + q


@triton.jit
def moving_average(x_ptr, a_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    last = 0.0
    for start in range(0, n, BLOCK):
        cols = start + lanes
        x = tl.load(x_ptr + row * n + cols, cols < n, 0.0)
        a = tl.load(a_ptr + row * n + cols, cols < n, 1.0)
        factors, sums = tl.associative_scan((a, (1.0 - a) * x), 0, follow)
        y = factors * last + sums
        last = tl.sum(tl.where(lanes == BLOCK - 1, y, 0.0), 0)
        tl.store(out_ptr + row * n + cols, y, cols < n)


@triton.jit
def top_k(x_ptr, values_ptr, columns_ptr, n, BLOCK: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    left = tl.load(x_ptr + row * n + cols, cols < n, -float("inf"))
    for i in tl.static_range(0, K):
        value, column = tl.max(left, 0, return_indices=True)
        tl.store(values_ptr + row * K + i, value)
        tl.store(columns_ptr + row * K + i, column)
        left = tl.where(cols == column, -float("inf"), left)


@triton.jit
def avg_pool3d(x_ptr, out_ptr, total, depth, height, width, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    out_depth = depth // 2
    out_height = height // 2
    out_width = width // 2
    col = offsets % out_width * 2
    row = offsets // out_width % out_height * 2
    plane = offsets // (out_width * out_height) % out_depth * 2
    volume = offsets // (out_width * out_height * out_depth)
    first = x_ptr + ((volume * depth + plane) * height + row) * width + col
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for dz in tl.static_range(2):
        for dy in tl.static_range(2):
            for dx in tl.static_range(2):
                acc += tl.load(first + (dz * height + dy) * width + dx, mask, 0.0).to(tl.float32)
    tl.store(out_ptr + offsets, (acc * 0.125).to(tl.float16), mask)

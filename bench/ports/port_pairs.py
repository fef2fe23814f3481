"""Ports of `pairs.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import BF16, F16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port, over_rows


class Gram(Port):
    """A case is (n, k)."""

    name = "gram"
    cases = [(4096, 4096), (5000, 1304)]

    def make(self, case, shift=0):
        n, k = case
        return {"x": normal(n * k, F16, 1).view(n, k), "out": empty(n * n, F16).view(n, n), "n": n, "k": k}

    def grid(self, case, args, *consts):
        tiles = cdiv(case[0], 128)
        return tiles, tiles

    def exact(self, args):
        x, k = args["x"].double(), args["k"]
        value, bound = rounded(x @ x.T, (k + 2) * 2 * SINGLE * (x.abs() @ x.T.abs()), F16)
        return [(value.tril_(), bound)]

    def results(self, results):
        """Without what is above the diagonal, which nobody writes."""
        return [out.tril() for out in results]

    def run_triton(self, case, args):
        gram[self.grid(case, args)](*(args[name] for name in ("x", "out", "n", "k")), M=128, K=64, num_warps=4, num_stages=3)


class RbfMatvec(Port):
    """A case is (rows, rows that are summed)."""

    name = "rbf_matvec"
    cases = [(16384, 16384), (20000, 9001)]
    dim = 64

    def label(self, case):
        return super().label((*case, self.dim))

    def make(self, case, shift=0):
        n, m = case
        return {"x": normal(n * self.dim, BF16, 1).view(n, self.dim), "z": normal(m * self.dim, BF16, 2).view(m, self.dim),
                "w": normal(m, F32, 3), "out": empty(n, F32), "gamma": 1 / 128, "n": n, "m": m}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 128),)

    def exact(self, args):
        z, w, gamma = args["z"].double(), args["w"].double(), args["gamma"]
        squares = z.square().sum(1)

        def summed(x):
            x = x.double()
            sizes = gamma * (x.square().sum(1, keepdim=True) + squares)
            exponents = sizes - 2 * gamma * x @ z.T
            terms = torch.exp(-exponents) * w
            # A dot is at most the mean of the squares, and both are sums of as many terms as a row has.
            moved = (self.dim + 8) * 4 * SINGLE * sizes
            of_sum = (args["m"] + 16 + 4 * exponents) * 2 * SINGLE
            return terms.sum(1), (terms.abs() * (moved + of_sum)).sum(1) + TINY

        return [over_rows(summed, args["x"])]

    def run_triton(self, case, args):
        names = ("x", "z", "w", "out", "gamma", "n", "m")
        rbf_matvec[self.grid(case, args)](*(args[name] for name in names), D=self.dim, M=128, N=128, num_warps=8,
                                          num_stages=3)


class BoxIou(Port):
    """A case is (boxes, boxes)."""

    name = "box_iou"
    cases = [(8192, 8192), (10007, 3001)]

    def boxes(self, count, seed):
        """Boxes of positive extents that often overlap."""
        places = 100 * normal(count * 4, F32, seed).view(count, 4)
        corner = places[:, :2]
        return torch.cat([corner, corner + 1 + places[:, 2:].abs()], 1).contiguous()

    def make(self, case, shift=0):
        n, m = case
        return {"a": self.boxes(n, 1), "b": self.boxes(m, 2), "out": empty(n * m, F32).view(n, m), "n": n, "m": m}

    def grid(self, case, args, *consts):
        return cdiv(case[0], 32), cdiv(case[1], 128)

    def exact(self, args):
        b = args["b"].double()

        def area(of):
            return (of[:, 2] - of[:, 0]) * (of[:, 3] - of[:, 1])

        def overlaps(a):
            a = a.double()
            sides = torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])
            common = sides.clamp_(min=0).prod(2)
            value = common / (area(a)[:, None] + area(b) - common)
            # The intersection has 3 roundings, the union 12 of its own size, a quotient is within 2 ULP.
            return value, 20 * SINGLE * value + TINY

        return [over_rows(overlaps, args["a"], 1024)]

    def run_triton(self, case, args):
        box_iou[self.grid(case, args)](*(args[name] for name in ("a", "b", "out", "n", "m")), ROWS=32, COLS=128, num_warps=4)


class MaxPlus(Port):
    """A case is (m, n, k)."""

    name = "max_plus"
    outputs = ("c",)
    cases = [(1024, 1024, 512), (1000, 777, 300)]

    def make(self, case, shift=0):
        m, n, k = case
        return {"a": normal(m * k, F32, 1).view(m, k), "b": normal(k * n, F32, 2).view(k, n),
                "c": empty(m * n, F32).view(m, n), "m": m, "n": n, "k": k}

    def grid(self, case, args, *consts):
        m, n, _ = case
        return cdiv(m, 32), cdiv(n, 32)

    def exact(self, args):
        a, b = args["a"].double(), args["b"].double()
        value = torch.full_like(args["c"], -math.inf, dtype=torch.float64)
        for inner in range(args["k"]):
            value = torch.maximum(value, a[:, inner, None] + b[inner])
        # Rounding keeps the order of the sums.
        return [rounded(value, torch.zeros_like(value), F32)]

    def run_triton(self, case, args):
        max_plus[self.grid(case, args)](*(args[name] for name in ("a", "b", "c", "m", "n", "k")), M=32, N=32, K=8,
                                        num_warps=4)


PORTS = [Gram(), RbfMatvec(), BoxIou(), MaxPlus()]


@triton.jit
def gram(x_ptr, out_ptr, n, k, M: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M
    col = tl.program_id(1) * M
    if col > row:
        return
    offs_m = row + tl.arange(0, M)
    offs_n = col + tl.arange(0, M)
    acc = tl.zeros((M, M), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a = tl.load(x_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < n) & (inner[None, :] < k), 0.0)
        b = tl.load(x_ptr + offs_n[None, :] * k + inner[:, None], (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
        acc = tl.dot(a, b, acc)
    tl.store(out_ptr + offs_m[:, None] * n + offs_n[None, :], acc.to(tl.float16),
             (offs_m[:, None] < n) & (offs_n[None, :] <= offs_m[:, None]))


@triton.jit
def rbf_matvec(x_ptr, z_ptr, w_ptr, out_ptr, gamma, n, m, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    offs_d = tl.arange(0, D)
    x = tl.load(x_ptr + rows[:, None] * D + offs_d[None, :], rows[:, None] < n, 0.0)
    wide_x = x.to(tl.float32)
    x_norm = tl.sum(wide_x * wide_x, 1)
    acc = tl.zeros([M], dtype=tl.float32)
    for start in range(0, m, N):
        cols = start + tl.arange(0, N)
        z = tl.load(z_ptr + cols[:, None] * D + offs_d[None, :], cols[:, None] < m, 0.0)
        w = tl.load(w_ptr + cols, cols < m, 0.0)
        wide_z = z.to(tl.float32)
        z_norm = tl.sum(wide_z * wide_z, 1)
        distance = x_norm[:, None] + z_norm[None, :] - 2.0 * tl.dot(x, tl.trans(z))
        acc += tl.sum(tl.exp(-gamma * distance) * w[None, :], 1)
    tl.store(out_ptr + rows, acc, rows < n)


@triton.jit
def box_iou(a_ptr, b_ptr, out_ptr, n, m, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    of_a = a_ptr + rows * 4
    of_b = b_ptr + cols * 4
    a_x1 = tl.load(of_a, rows < n, 0.0)
    a_y1 = tl.load(of_a + 1, rows < n, 0.0)
    a_x2 = tl.load(of_a + 2, rows < n, 0.0)
    a_y2 = tl.load(of_a + 3, rows < n, 0.0)
    b_x1 = tl.load(of_b, cols < m, 0.0)
    b_y1 = tl.load(of_b + 1, cols < m, 0.0)
    b_x2 = tl.load(of_b + 2, cols < m, 0.0)
    b_y2 = tl.load(of_b + 3, cols < m, 0.0)
    a_area = (a_x2 - a_x1) * (a_y2 - a_y1)
    b_area = (b_x2 - b_x1) * (b_y2 - b_y1)
    width = tl.minimum(a_x2[:, None], b_x2[None, :]) - tl.maximum(a_x1[:, None], b_x1[None, :])
    height = tl.minimum(a_y2[:, None], b_y2[None, :]) - tl.maximum(a_y1[:, None], b_y1[None, :])
    common = tl.maximum(width, 0.0) * tl.maximum(height, 0.0)
    iou = common / (a_area[:, None] + b_area[None, :] - common)
    tl.store(out_ptr + rows[:, None] * m + cols[None, :], iou, (rows[:, None] < n) & (cols[None, :] < m))


@triton.jit
def max_plus(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.full((M, N), -float("inf"), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k),
                    -float("inf"))
        b = tl.load(b_ptr + inner[:, None] * n + offs_n[None, :], (inner[:, None] < k) & (offs_n[None, :] < n),
                    -float("inf"))
        sums = tl.expand_dims(a, 2) + tl.expand_dims(b, 0)
        acc = tl.maximum(acc, tl.max(sums, 1))
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc, (offs_m[:, None] < m) & (offs_n[None, :] < n))

"""Ports of `transforms.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import F32, NAMES, SINGLE, cdiv, empty, normal
from port import Port, exactly, integers, over_rows


class SingleRows(Port):
    """On rows of a matrix of `f32`: a case is (rows, columns)."""

    def label(self, case):
        return f"{super().label(case)} {NAMES[F32]}"

    def make(self, case, shift=0):
        rows, n = case
        return {"x": normal(rows * n, F32, 1).view(rows, n), "out": empty(rows * n, F32).view(rows, n), "n": n}

    def grid(self, case, args, *consts):
        return (case[0],)


class Hadamard(SingleRows):
    name = "hadamard"
    cases = [(131072, 256), (65536, 1024)]

    def consts(self, case):
        return lambda n, *_: n == case[1]

    def make(self, case, shift=0):
        return {**super().make(case), "rows": case[0], "scale": case[1]**-0.5}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 4),)

    def exact(self, args):
        signs, n = torch.ones(1, 1, dtype=torch.float64, device="cuda"), args["n"]
        while signs.shape[0] < n:
            signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
        stages, scale = n.bit_length() - 1, args["scale"]

        def transformed(x):
            x = x.double()
            size = x.abs().sum(1, keepdim=True)
            return x @ signs * scale, ((stages + 2) * SINGLE * scale * size).expand_as(x)

        return [over_rows(transformed, args["x"])]

    def run_triton(self, case, args):
        n = case[1]
        hadamard[self.grid(case, args)](*(args[name] for name in ("x", "out", "rows", "scale")), N=n,
                                        STAGES=n.bit_length() - 1, ROWS=4, num_warps=4)


class FftRows(Port):
    """A case is (rows,) of 64 complex numbers."""

    name = "fft_rows"
    cases = [(524288,), (100003,)]
    n = 64

    def label(self, case):
        return f"{case[0]} x {self.n} complex {NAMES[F32]}"

    def make(self, case, shift=0):
        rows, = case
        angles = -2 * math.pi / self.n * torch.arange(self.n // 2, dtype=torch.float64, device="cuda")
        return {"x": normal(rows * self.n * 2, F32, 1).view(rows, self.n, 2), "cosines": angles.cos().to(F32),
                "sines": angles.sin().to(F32), "out": empty(rows * self.n * 2, F32).view(rows, self.n, 2), "rows": rows}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 16),)

    def exact(self, args):
        value = torch.view_as_real(torch.fft.fft(torch.view_as_complex(args["x"].double()), dim=1))
        size = args["x"].double().abs().sum((1, 2), keepdim=True)
        # A stage rounds its factors, two products and two sums.
        return [(value, (6 * 8 * SINGLE * size).expand_as(value))]

    def run_triton(self, case, args):
        fft_rows[self.grid(case, args)](*(args[name] for name in ("x", "cosines", "sines", "out", "rows")), N=self.n, STAGES=6,
                                        ROWS=16, num_warps=4)


class SortRows(SingleRows):
    name = "sort_rows"
    cases = [(65536, 512), (32768, 1000)]

    def block(self, case):
        return 512 if case[1] <= 512 else 1024

    def consts(self, case):
        return lambda block: block == self.block(case)

    def exact(self, args):
        return [exactly(args["x"].sort(1)[0])]

    def run_triton(self, case, args):
        sort_rows[self.grid(case, args)](*(args[name] for name in ("x", "out", "n")), BLOCK=self.block(case), num_warps=4)


class LogCumSumExp(SortRows):
    name = "logcumsumexp"
    cases = [(16384, 4096), (65536, 1000)]

    def block(self, case):
        return 1024 if case[1] <= 1024 else 4096

    def exact(self, args):
        value = torch.logcumsumexp(args["x"].double(), 1)
        return [(value, 256 * SINGLE * (1 + value.abs()))]

    def run_triton(self, case, args):
        logcumsumexp[self.grid(case, args)](*(args[name] for name in ("x", "out", "n")), BLOCK=self.block(case), num_warps=8)


class EditDistance(Port):
    """A case is (pairs, length of the first string, length of the second)."""

    name = "edit_distance"
    cases = [(65536, 128, 128), (65536, 100, 77)]

    def make(self, case, shift=0):
        pairs, len_a, len_b = case
        return {"a": integers(0, 4, pairs * len_a, torch.uint8, 1).view(pairs, len_a),
                "b": integers(0, 4, pairs * len_b, torch.uint8, 2).view(pairs, len_b),
                "out": empty(pairs, torch.int32), "pairs": pairs, "len_a": len_a, "len_b": len_b}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 4),)

    def exact(self, args):
        a, b = args["a"], args["b"]
        # Columns of the table first, then pairs.
        row = torch.arange(args["len_b"] + 1, device=a.device)[:, None].repeat(1, args["pairs"])
        for i in range(args["len_a"]):
            changed = (a[:, i] != b.T).long()
            reached = torch.minimum(row[:-1] + changed, row[1:] + 1)
            row[0] = i + 1
            for j in range(args["len_b"]):
                row[j + 1] = torch.minimum(reached[j], row[j] + 1)
        return [exactly(row[-1])]

    def run_triton(self, case, args):
        names = ("a", "b", "out", "pairs", "len_a", "len_b")
        edit_distance[self.grid(case, args)](*(args[name] for name in names), LEN=128, PAIRS=4, num_warps=4)


class CountKept(Port):
    """A case is (n,), half of which is kept."""

    name = "count_kept"
    outputs = ("counts",)
    cases = [(64 << 20,)]

    def label(self, case):
        return f"{case[0] >> 20} Mi {NAMES[F32]}, half is kept"

    def make(self, case, shift=0):
        n, = case
        return {"x": normal(n, F32, 1), "counts": empty(cdiv(n, 2048), torch.int32), "n": n, "limit": 0.0}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 2048),)

    def counts(self, args):
        kept = args["x"] > args["limit"]
        return torch.nn.functional.pad(kept, (0, -args["n"] % 2048)).view(-1, 2048).sum(1)

    def exact(self, args):
        return [exactly(self.counts(args))]

    def run_triton(self, case, args):
        count_kept[self.grid(case, args)](*(args[name] for name in ("x", "counts", "n", "limit")), BLOCK=2048, num_warps=4)


class Compact(CountKept):
    name = "compact"
    outputs = ("out",)

    def make(self, case, shift=0):
        args = super().make(case)
        counts = self.counts(args)
        starts = (counts.cumsum(0) - counts).to(torch.int32)
        return {**args, "starts": starts, "out": empty(int(counts.sum()), F32)}

    def exact(self, args):
        return [exactly(args["x"][args["x"] > args["limit"]])]

    def run_triton(self, case, args):
        compact[self.grid(case, args)](*(args[name] for name in ("x", "starts", "out", "n", "limit")), BLOCK=2048,
                                       num_warps=4)

    def traffic(self, args):
        return sum(args[name].numel() * args[name].element_size() for name in ("x", "starts", "out"))


PORTS = [Hadamard(), FftRows(), SortRows(), LogCumSumExp(), EditDistance(), CountKept(), Compact()]


@triton.jit
def hadamard(x_ptr, out_ptr, rows, scale, N: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = row[:, None] * N + tl.arange(0, N)[None, :]
    y = tl.load(x_ptr + offsets, row[:, None] < rows, 0.0)
    for _ in tl.static_range(0, STAGES):
        a, b = tl.split(tl.reshape(y, (ROWS, N // 2, 2)))
        y = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (ROWS, N))
    tl.store(out_ptr + offsets, y * scale, row[:, None] < rows)


@triton.jit
def fft_rows(x_ptr, cosines_ptr, sines_ptr, out_ptr, rows, N: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = (row[:, None] * N + tl.arange(0, N)[None, :]) * 2
    mask = row[:, None] < rows
    re = tl.load(x_ptr + offsets, mask, 0.0)
    im = tl.load(x_ptr + offsets + 1, mask, 0.0)
    places = tl.arange(0, N // 2)
    for stage in tl.static_range(0, STAGES):
        a_re, b_re = tl.split(tl.permute(tl.reshape(re, (ROWS, 2, N // 2)), (0, 2, 1)))
        a_im, b_im = tl.split(tl.permute(tl.reshape(im, (ROWS, 2, N // 2)), (0, 2, 1)))
        angle = (places >> stage) << stage
        cosine = tl.load(cosines_ptr + angle)[None, :]
        sine = tl.load(sines_ptr + angle)[None, :]
        d_re = a_re - b_re
        d_im = a_im - b_im
        pair_re = tl.join(a_re + b_re, d_re * cosine - d_im * sine)
        pair_im = tl.join(a_im + b_im, d_re * sine + d_im * cosine)
        re = tl.reshape(tl.permute(tl.reshape(pair_re, (ROWS, N >> (stage + 1), 1 << stage, 2)), (0, 1, 3, 2)), (ROWS, N))
        im = tl.reshape(tl.permute(tl.reshape(pair_im, (ROWS, N >> (stage + 1), 1 << stage, 2)), (0, 1, 3, 2)), (ROWS, N))
    tl.store(out_ptr + offsets, re, mask)
    tl.store(out_ptr + offsets + 1, im, mask)


@triton.jit
def sort_rows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, cols < n, float("inf"))
    tl.store(out_ptr + row * n + cols, tl.sort(x, 0), cols < n)


@triton.jit
def add_exponentials(a, p, b, q):
    peak = tl.maximum(a, b)
    return peak, p * tl.exp(a - peak) + q * tl.exp(b - peak)


@triton.jit
def logcumsumexp(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, cols < n, -3.4028234663852886e38)
    peaks, sums = tl.associative_scan((x, tl.full([BLOCK], 1.0, tl.float32)), 0, add_exponentials)
    tl.store(out_ptr + row * n + cols, peaks + tl.log(sums), cols < n)


@triton.jit
def smaller(p, q):
    return tl.minimum(p, q)


@triton.jit
def edit_distance(a_ptr, b_ptr, out_ptr, pairs, len_a, len_b, LEN: tl.constexpr, PAIRS: tl.constexpr):
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    cols = tl.arange(0, LEN)[None, :]
    mask = (pair < pairs)[:, None] & (cols < len_b)
    b = tl.load(b_ptr + pair[:, None] * len_b + cols, mask, 0)
    before = tl.broadcast_to(tl.maximum(cols - 1, 0), (PAIRS, LEN))
    row = tl.broadcast_to(cols + 1, (PAIRS, LEN))
    for i in range(0, len_a):
        letter = tl.load(a_ptr + pair * len_a + i, pair < pairs, 0)
        diagonal = tl.where(cols == 0, i, tl.gather(row, before, 1))
        replaced = diagonal + (letter[:, None] != b).to(tl.int32)
        reached = tl.minimum(row + 1, replaced)
        row = cols + tl.associative_scan(reached - cols, 1, smaller)
    last = tl.sum(tl.where(cols == len_b - 1, row, 0), 1)
    tl.store(out_ptr + pair, last, pair < pairs)


@triton.jit
def count_kept(x_ptr, counts_ptr, n, limit, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n, 0.0)
    keep = (x > limit) & (offsets < n)
    tl.store(counts_ptr + tl.program_id(0), tl.sum(keep.to(tl.int32), 0))


@triton.jit
def compact(x_ptr, starts_ptr, out_ptr, n, limit, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n, 0.0)
    keep = (x > limit) & (offsets < n)
    places = tl.load(starts_ptr + tl.program_id(0)) + tl.cumsum(keep.to(tl.int32), 0) - 1
    tl.store(out_ptr + places, x, keep)

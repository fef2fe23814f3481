"""Ports of `movement.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, cdiv, empty, normal
from port import Port, exactly

class Transpose(Port):
    """A case is (m, n)."""

    name = "transpose"
    cases = [(8192, 8192), (8191, 5003)]

    def make(self, case, shift=0):
        m, n = case
        return {"x": normal(m * n, BF16, 1).view(m, n), "out": empty(m * n, BF16).view(n, m), "m": m, "n": n,
                "x_stride_m": n, "x_stride_n": 1, "out_stride_m": 1, "out_stride_n": m}

    def grid(self, case, args, *consts):
        return cdiv(case[0], 64), cdiv(case[1], 64)

    def exact(self, args):
        return [exactly(args["x"].T)]

    def run_triton(self, case, args):
        names = ("x", "out", "m", "n", "x_stride_m", "x_stride_n", "out_stride_m", "out_stride_n")
        transpose[self.grid(case, args)](*(args[name] for name in names), ROWS=64, COLS=64, num_warps=4)


class CopyPages(Port):
    """A case is (sequences, length, elements of a row)."""

    name = "copy_pages"
    cases = [(64, 2048, 1024), (64, 2001, 1000)]

    def make(self, case, shift=0):
        sequences, length, dim = case
        max_pages = cdiv(length, 16)
        pages = sequences * max_pages
        generator = torch.Generator("cuda").manual_seed(2)
        table = torch.randperm(pages, generator=generator, device="cuda").to(torch.int32).view(sequences, max_pages)
        return {"cache": normal(pages * 16 * dim, BF16, 1).view(pages, 16, dim), "table": table,
                "out": empty(sequences * length * dim, BF16).view(case), "length": length, "max_pages": max_pages,
                "dim": dim}

    def grid(self, case, args, *consts):
        return args["max_pages"], case[0]

    def exact(self, args):
        return [exactly(args["cache"][args["table"].long()].flatten(1, 2)[:, :args["length"]])]

    def run_triton(self, case, args):
        copy_pages[self.grid(case, args)](
            *(args[name] for name in ("cache", "table", "out", "length", "max_pages", "dim")), BLOCK=256, num_warps=4)


class Permute4(Port):
    """A case is (extents, their order in the result)."""

    name = "permute4"
    cases = [((8, 1024, 24, 128), (0, 2, 1, 3)), ((64, 128, 56, 56), (0, 2, 3, 1))]

    def label(self, case):
        return f"{super().label(case[0])} by {case[1]}"

    def make(self, case, shift=0):
        shape, order = case
        total = math.prod(shape)
        x = normal(total, BF16, 1).view(shape)
        moved = x.permute(order)
        return {"x": x, "out": empty(total, BF16).view(moved.shape), "order": order, "total": total,
                **{f"n{axis}": moved.shape[axis] for axis in (1, 2, 3)},
                **{f"stride_{axis}": moved.stride(axis) for axis in range(4)}}

    def grid(self, case, args, *consts):
        return (cdiv(args["total"], 1024),)

    def exact(self, args):
        return [exactly(args["x"].permute(args["order"]))]

    def run_triton(self, case, args):
        names = ("x", "out", "total", "n1", "n2", "n3", "stride_0", "stride_1", "stride_2", "stride_3")
        permute4[self.grid(case, args)](*(args[name] for name in names), BLOCK=1024, num_warps=4)


class Stencil(Port):
    """A case is (m, n)."""

    name = "stencil"
    cases = [(8192, 8192), (8000, 8001)]

    def make(self, case, shift=0):
        m, n = case
        return {"x": normal(m * n, F32, 1).view(m, n), "out": empty(m * n, F32).view(m, n), "m": m, "n": n, "k": 0.1}

    def grid(self, case, args, *consts):
        return cdiv(case[0], 16), cdiv(case[1], 128)

    def exact(self, args):
        x, k = args["x"].double(), torch.tensor(args["k"], dtype=F32).double().item()
        padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
        around = [padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]]
        size = x.abs() + sum(part.abs() for part in around)
        return [(x + k * (sum(around) - 4 * x), 8 * SINGLE * size + TINY)]

    def run_triton(self, case, args):
        stencil[self.grid(case, args)](*(args[name] for name in ("x", "out", "m", "n", "k")), ROWS=16, COLS=128,
                                       num_warps=4)


PORTS = [Transpose(), CopyPages(), Permute4(), Stencil()]


@triton.jit
def transpose(x_ptr, out_ptr, m, n, x_stride_m, x_stride_n, out_stride_m, out_stride_n, ROWS: tl.constexpr,
              COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    mask = (rows < m)[:, None] & (cols < n)[None, :]
    tile = tl.load(x_ptr + rows[:, None] * x_stride_m + cols[None, :] * x_stride_n, mask)
    tl.store(out_ptr + rows[:, None] * out_stride_m + cols[None, :] * out_stride_n, tile, mask)


@triton.jit
def copy_pages(cache_ptr, table_ptr, out_ptr, length, max_pages, dim, BLOCK: tl.constexpr):
    page = tl.program_id(0)
    sequence = tl.program_id(1)
    block = tl.load(table_ptr + sequence * max_pages + page)
    slots = tl.arange(0, 16)
    positions = page * 16 + slots
    for start in range(0, dim, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = (positions < length)[:, None] & (cols < dim)[None, :]
        x = tl.load(cache_ptr + (block * 16 + slots)[:, None] * dim + cols[None, :], mask)
        tl.store(out_ptr + (sequence * length + positions)[:, None] * dim + cols[None, :], x, mask)


@triton.jit
def permute4(x_ptr, out_ptr, total, n1, n2, n3, stride_0, stride_1, stride_2, stride_3, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    i3 = offsets % n3
    i2 = offsets // n3 % n2
    i1 = offsets // (n3 * n2) % n1
    i0 = offsets // (n3 * n2 * n1)
    at = i0 * stride_0 + i1 * stride_1 + i2 * stride_2 + i3 * stride_3
    tl.store(out_ptr + offsets, tl.load(x_ptr + at, mask), mask)


@triton.jit
def stencil(x_ptr, out_ptr, m, n, k, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = (tl.program_id(1) * COLS + tl.arange(0, COLS))[None, :]
    mask = (rows < m) & (cols < n)
    here = x_ptr + rows * n + cols
    center = tl.load(here, mask, 0.0)
    north = tl.load(here - n, mask & (rows >= 1), 0.0)
    south = tl.load(here + n, mask & (rows + 1 < m), 0.0)
    west = tl.load(here - 1, mask & (cols >= 1), 0.0)
    east = tl.load(here + 1, mask & (cols + 1 < n), 0.0)
    y = center + k * (north + south + east + west - 4.0 * center)
    tl.store(out_ptr + rows * n + cols, y, mask)

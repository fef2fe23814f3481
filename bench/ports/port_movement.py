"""Ports of `scatter.rs` and `movement.rs`."""

import inspect
import math

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port, exactly, integers

#: Earlier versions count every element.
MASKED_HISTOGRAM = "mask" in inspect.signature(tl.histogram).parameters


def added(target, index, src):
    """`target` once rows of `src` were added to those that `index` names, and by how much the order may move sums."""
    value, size = target.double(), target.double().abs()
    counts = torch.bincount(index, minlength=target.shape[0])[:, None]
    for part in torch.arange(index.numel(), device="cuda").split(16384):
        x = src[part].double()
        value.index_add_(0, index[part], x)
        size.index_add_(0, index[part], x.abs())
    return value, counts * SINGLE * size + TINY


class IndexAdd(Port):
    """A case is (rows, columns, rows to add to)."""

    name = "index_add"
    cases = [(131072, 1024, 65536), (131072, 1000, 2048)]

    def make(self, case, shift=0):
        rows, cols, targets = case
        return {"out": empty(targets * cols, F32).view(targets, cols), "index": integers(0, targets, rows, torch.int64, 2),
                "src": normal(rows * cols, BF16, 1).view(rows, cols), "cols": cols}

    def prepare(self, args):
        args["out"].zero_()

    def grid(self, case, args, *consts):
        return case[0], cdiv(case[1], 1024)

    def exact(self, args):
        return [added(torch.zeros_like(args["out"]), args["index"], args["src"])]

    def run_triton(self, case, args):
        index_add[self.grid(case, args)](args["out"], args["index"], args["src"], args["cols"], BLOCK=1024, num_warps=4)


class Embedding(Port):
    """A case is (indices, elements of a row, rows of the table)."""

    name = "embedding"
    cases = [(65536, 4096, 32000), (65536, 1000, 50257)]

    def make(self, case, shift=0):
        n, dim, entries = case
        return {"table": normal(entries * dim, BF16, 1).view(entries, dim), "ids": integers(0, entries, n, torch.int64, 2),
                "out": empty(n * dim, BF16).view(n, dim), "n": n, "dim": dim}

    def grid(self, case, args, *consts):
        return cdiv(case[0], 32), cdiv(case[1], 128)

    def exact(self, args):
        return [exactly(args["table"][args["ids"]])]

    def run_triton(self, case, args):
        embedding[self.grid(case, args)](args["table"], args["ids"], args["out"], args["n"], args["dim"], ROWS=32, COLS=128,
                                         num_warps=4)


class EmbeddingGradient(Embedding):
    name = "embedding_gradient"
    outputs = ("grad",)
    cases = [(32768, 4096, 32000)]

    def make(self, case, shift=0):
        n, dim, entries = case
        return {"dy": normal(n * dim, BF16, 1).view(n, dim), "ids": integers(0, entries, n, torch.int64, 2),
                "grad": empty(entries * dim, F32).view(entries, dim), "n": n, "dim": dim}

    def prepare(self, args):
        args["grad"].zero_()

    def exact(self, args):
        return [added(torch.zeros_like(args["grad"]), args["ids"], args["dy"])]

    def run_triton(self, case, args):
        embedding_gradient[self.grid(case, args)](args["dy"], args["ids"], args["grad"], args["n"], args["dim"], ROWS=32,
                                                  COLS=128, num_warps=4)


class SegmentSum(Port):
    """A case is (rows, columns, segments), of lengths drawn at random."""

    name = "segment_sum"
    cases = [(262144, 512, 16384), (262144, 500, 1024)]

    def make(self, case, shift=0):
        rows, cols, segments = case
        inner = integers(0, rows + 1, segments - 1, torch.int32, 2).sort()[0]
        ends = torch.tensor([0, rows], dtype=torch.int32, device="cuda")
        return {"x": normal(rows * cols, BF16, 1).view(rows, cols), "starts": torch.cat([ends[:1], inner, ends[1:]]),
                "out": empty(segments * cols, BF16).view(segments, cols), "cols": cols}

    def grid(self, case, args, *consts):
        return case[2], cdiv(case[1], 128)

    def exact(self, args):
        lengths = args["starts"].diff().long()
        segment = torch.repeat_interleave(torch.arange(lengths.numel(), device="cuda"), lengths)
        nothing = torch.zeros_like(args["out"], dtype=F32)
        return [rounded(*added(nothing, segment, args["x"]), BF16)]

    def run_triton(self, case, args):
        segment_sum[self.grid(case, args)](args["x"], args["starts"], args["out"], args["cols"], ROWS=16, COLS=128,
                                           num_warps=4)


class Histogram(Port):
    """A case is (n,)."""

    name = "histogram"
    outputs = ("counts",)
    cases = [(64 << 20,)]

    def label(self, case):
        return f"{case[0] >> 20} Mi i32"

    def make(self, case, shift=0):
        n, = case
        return {"x": integers(0, 256, n, torch.int32, 1), "counts": empty(256, torch.int32), "n": n}

    def prepare(self, args):
        args["counts"].zero_()

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 4096),)

    def exact(self, args):
        return [exactly(torch.bincount(args["x"], minlength=256))]

    def run_triton(self, case, args):
        if not MASKED_HISTOGRAM and case[0] % 4096:
            raise NotImplementedError("this Triton has no histogram with a mask")
        histogram[self.grid(case, args)](args["x"], args["counts"], args["n"], BLOCK=4096, MASKED=MASKED_HISTOGRAM,
                                         num_warps=4)


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


PORTS = [IndexAdd(), Embedding(), EmbeddingGradient(), SegmentSum(), Histogram(), Transpose(), CopyPages(), Permute4(),
         Stencil()]


@triton.jit
def index_add(out_ptr, index_ptr, src_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < cols
    target = tl.load(index_ptr + row)
    x = tl.load(src_ptr + row * cols + offsets, mask, 0.0).to(tl.float32)
    tl.atomic_add(out_ptr + target * cols + offsets, x, mask, sem="relaxed")


@triton.jit
def embedding(table_ptr, ids_ptr, out_ptr, n, dim, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    ids = tl.load(ids_ptr + rows, rows < n, 0)
    mask = (rows < n)[:, None] & (cols < dim)[None, :]
    x = tl.load(table_ptr + ids[:, None] * dim + cols[None, :], mask, 0.0)
    tl.store(out_ptr + rows[:, None] * dim + cols[None, :], x, mask)


@triton.jit
def embedding_gradient(dy_ptr, ids_ptr, grad_ptr, n, dim, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    ids = tl.load(ids_ptr + rows, rows < n, 0)
    mask = (rows < n)[:, None] & (cols < dim)[None, :]
    x = tl.load(dy_ptr + rows[:, None] * dim + cols[None, :], mask, 0.0).to(tl.float32)
    tl.atomic_add(grad_ptr + ids[:, None] * dim + cols[None, :], x, mask, sem="relaxed")


@triton.jit
def segment_sum(x_ptr, starts_ptr, out_ptr, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    segment = tl.program_id(0)
    columns = tl.program_id(1) * COLS + tl.arange(0, COLS)
    first = tl.load(starts_ptr + segment)
    end = tl.load(starts_ptr + segment + 1)
    acc = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for start in range(first, end, ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows < end)[:, None] & (columns < cols)[None, :]
        acc += tl.load(x_ptr + rows[:, None] * cols + columns[None, :], mask, 0.0).to(tl.float32)
    tl.store(out_ptr + segment * cols + columns, tl.sum(acc, 0).to(tl.bfloat16), columns < cols)


@triton.jit
def histogram(x_ptr, counts_ptr, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask, 0)
    if MASKED:
        found = tl.histogram(x, 256, mask=mask)
    else:
        found = tl.histogram(x, 256)
    tl.atomic_add(counts_ptr + tl.arange(0, 256), found, sem="relaxed")


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

"""Ports of `scatter.rs`."""

import inspect

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port, exactly, integers, ragged_starts

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


class EmbeddingBag(Port):
    """A case is (bags, elements of a row, rows of the table, fewest and most rows of a bag)."""

    name = "embedding_bag"
    cases = [(32768, 128, 1 << 20, 32, 32), (16384, 100, 50257, 0, 60)]

    def label(self, case):
        bags, dim, entries, fewest, most = case
        return f"{bags} bags of {fewest} to {most}, {entries} x {dim}"

    def make(self, case, shift=0):
        bags, dim, entries, fewest, most = case
        starts = ragged_starts(fewest, most, bags, 2)
        return {"table": normal(entries * dim, BF16, 1).view(entries, dim), "starts": starts,
                "ids": integers(0, entries, int(starts[-1]), torch.int32, 3), "out": empty(bags * dim, BF16).view(bags, dim),
                "dim": dim}

    def grid(self, case, args, *consts):
        return case[0], cdiv(case[1], 128)

    def exact(self, args):
        lengths = args["starts"].diff().long()
        bag = torch.repeat_interleave(torch.arange(lengths.numel(), device="cuda"), lengths)
        rows = args["table"][args["ids"].long()]
        return [rounded(*added(torch.zeros_like(args["out"], dtype=F32), bag, rows), BF16)]

    def run_triton(self, case, args):
        embedding_bag[self.grid(case, args)](*(args[name] for name in ("table", "ids", "starts", "out", "dim")), ROWS=8,
                                             COLS=128, num_warps=4)


PORTS = [IndexAdd(), Embedding(), EmbeddingGradient(), EmbeddingBag(), SegmentSum(), Histogram()]


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
def embedding_bag(table_ptr, ids_ptr, starts_ptr, out_ptr, dim, ROWS: tl.constexpr, COLS: tl.constexpr):
    bag = tl.program_id(0)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    first = tl.load(starts_ptr + bag)
    end = tl.load(starts_ptr + bag + 1)
    acc = tl.zeros([COLS], dtype=tl.float32)
    for start in range(first, end, ROWS):
        at = start + tl.arange(0, ROWS)
        id = tl.load(ids_ptr + at, at < end, 0)
        mask = (at < end)[:, None] & (cols < dim)[None, :]
        rows = tl.load(table_ptr + id[:, None] * dim + cols[None, :], mask, 0.0)
        acc += tl.sum(rows.to(tl.float32), 0)
    tl.store(out_ptr + bag * dim + cols, acc.to(tl.bfloat16), cols < dim)

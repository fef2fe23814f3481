"""Softmax of rows, and cross-entropy."""

import math

import torch
import torch.nn.functional as F

from entry import (BF16, F16, F32, NAMES, SHORT_ROW, SINGLE, TINY, Entry, Launch, RowEntry, cdiv, empty, normal, sm_count,
                   rounded, short_programs, triton)


def softmax(scores, within, log, dtype):
    """The softmax of float64 scores that are known within `within`."""
    cols = scores.shape[1]
    peak = scores.amax(1, keepdim=True)
    base = torch.where(peak == -math.inf, 0.0, peak)
    total = (scores - base).exp().sum(1, keepdim=True)
    nats = torch.where(total == 0, 0.0, total.log())
    distance = base - scores
    moved = 2 * (within + within.amax(1, keepdim=True))
    if log:
        value = scores - base - nats
        inner = (8 + math.sqrt(cols) + 2 * (distance + math.log(cols))) * SINGLE + moved
    else:
        value = (scores - base - nats).exp()
        inner = ((32 + math.sqrt(cols) + 2 * distance) * SINGLE + moved) * value + TINY
    return rounded(value, torch.where(torch.isfinite(inner), inner, TINY), dtype)


class Softmax(RowEntry):
    group = "softmax"
    inputs = ("x",)
    kernel, short, long, tile = "softmax", "softmax_short", "softmax_long", 262144

    def __init__(self, log=False):
        self.log = log
        self.name = "log_softmax" if log else "softmax"
        self.compute = (lambda x: F.log_softmax(x, 1)) if log else (lambda x: F.softmax(x, 1))
        # Long rows: peers hold them in one tile up to 65536.
        self.columns = (1024, 4096) if log else (1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144)

    @property
    def sweep(self):
        return [case for case in super().sweep if case[1] <= 32768]

    def make(self, case, shift=0):
        rows, cols, dtype = case
        return {"x": normal(rows * cols, dtype, 1, shift, 3.0).view(rows, cols),
                "out": empty(rows * cols, dtype, shift).view(rows, cols), "n_rows": rows, "n_cols": cols, "scale": 1.0,
                "log": self.log}

    def launches(self, case, args):
        rows, cols, dtype = case
        if cols <= SHORT_ROW:
            return [Launch(self.short, [NAMES[dtype]], lambda width: width >= cols,
                           lambda width: (cdiv(rows, 8 if width % 256 else 4),))]
        if 6144 < cols <= 32768 and 8 * rows <= sm_count():
            return [Launch("softmax_cluster", [NAMES[dtype]], lambda block: True, lambda block: (rows,))]
        if cols > self.tile:
            return [Launch(self.long, [NAMES[dtype]], lambda block: True, lambda block: (rows,))]
        return [Launch(self.kernel, [NAMES[dtype]], lambda block: block >= cols, lambda block: (rows,))]

    def exact(self, args):
        scores = args["x"].double()
        return [softmax(scores, 2 * SINGLE * scores.abs(), self.log, args["x"].dtype)]

    def traffic(self, args):
        return 2 * args["x"].numel() * args["x"].element_size()

    def triton(self, args):
        rows, cols = args["x"].shape
        if cols > 65536:
            return triton_softmax_long[(rows,)](args["x"], args["out"], cols, LOG=self.log)
        triton_softmax[(rows,)](args["x"], args["out"], cols, BLOCK=triton.next_power_of_2(cols), LOG=self.log)


class MaskedSoftmax(RowEntry):
    """Attention's scores: a mask of bools for each of 2048 rows serves all heads."""

    name, group = "masked_softmax", "softmax"
    inputs = ("x", "mask_values")
    scale = 0.125
    columns = (1024, 4096, 16384)

    def make(self, case, shift=0):
        rows, cols, dtype = case
        mask_rows = min(rows, 2048)
        mask_values = normal(mask_rows * cols, F32, 2, shift).view(mask_rows, cols) > -0.5
        return {"x": normal(rows * cols, dtype, 1, shift, 3.0).view(rows, cols), "mask_values": mask_values,
                "out": empty(rows * cols, dtype, shift).view(rows, cols), "mask_rows": mask_rows, "n_cols": cols,
                "scale": self.scale, "log": False}

    def launches(self, case, args):
        rows, cols, dtype = case
        types = [NAMES[dtype], "bool"]
        if cols > 16384:
            return [Launch("masked_softmax_long", types, lambda add, block: not add, lambda add, block: (rows,))]
        along = (args["mask_rows"], rows // args["mask_rows"])
        return [Launch("masked_softmax", types, lambda add, block: not add and block >= cols,
                       lambda add, block: along[::-1] if block > 1024 else along)]

    def exact(self, args):
        rows, cols = args["x"].shape
        scores = args["x"].double() * self.scale
        kept = args["mask_values"].repeat(rows // args["mask_rows"], 1)
        within = torch.where(kept, 3 * SINGLE * scores.abs(), 0.0)
        return [softmax(scores.masked_fill(~kept, -math.inf), within, False, args["x"].dtype)]

    def traffic(self, args):
        return 2 * args["x"].numel() * args["x"].element_size() + args["mask_values"].numel()

    @staticmethod
    def compute(x, mask_values):
        heads = x.view(-1, *mask_values.shape)
        scores = (heads * MaskedSoftmax.scale).masked_fill(~mask_values, -math.inf)
        # As PyTorch's own, a row of nothing would be NaN.
        return F.softmax(scores, -1).nan_to_num(0.0).view_as(x)

    def triton(self, args):
        rows, cols = args["x"].shape
        triton_masked_softmax[(rows,)](args["x"], args["mask_values"], args["out"], args["mask_rows"], cols, self.scale,
                                       BLOCK=triton.next_power_of_2(cols))


class CrossEntropy(Entry):
    """A case is (rows, classes, element type)."""

    name, group = "cross_entropy", "cross_entropy"
    inputs = ("x", "targets")
    outputs = ("loss",)
    cases = [(8192, 32000, BF16), (4096, 128256, BF16), (2048, 262144, BF16), (4096, 32000, F32)]
    small = [(3, classes, dtype) for classes in (1, 7, 1000, 8192, 8193, 50257) for dtype in (F32, F16, BF16)]

    def __init__(self, smoothing=0.0):
        self.smoothing = smoothing
        if smoothing:
            self.name, self.cases = "cross_entropy_smoothed", [(4096, 128256, BF16)]
        self.compute = lambda x, targets: F.cross_entropy(
            x.float(), targets, reduction="none", label_smoothing=smoothing)

    def label(self, case):
        return f"{case[0]} x {case[1]} {NAMES[case[2]]}"

    def size(self, case):
        return case[1], NAMES[case[2]]

    def make(self, case, shift=0):
        rows, classes, dtype = case
        targets = torch.arange(rows, device="cuda") * 7919 % classes
        targets[1::7] = -100
        return {"x": normal(rows * classes, dtype, 1, shift, 3.0).view(rows, classes), "targets": targets,
                "loss": empty(rows, F32), "lse": empty(rows, F32), "classes": classes, "ignored": -100,
                "smoothing": self.smoothing}

    def launches(self, case, args):
        rows, classes, _ = case
        odd, few = classes * case[2].itemsize % 16 > 0, 8 * rows <= sm_count()
        if classes <= 1024:
            programs = short_programs(rows, classes)
            return [Launch("cross_entropy_short", [NAMES[case[2]]], lambda width: width >= classes,
                           lambda width: (programs,), n_rows=rows)]
        if classes <= (65536 if odd or few else 8192):
            return [Launch("cross_entropy_row", [NAMES[case[2]]], lambda width: width >= classes, lambda width: (rows,),
                           n_rows=rows)]
        if odd:
            return [Launch("cross_entropy_unaligned", [NAMES[case[2]]], lambda block: True, lambda block: (rows,))]
        lanes = 1024 if classes >= 1 << 16 and 6 * (-classes % (1 << 15)) <= classes else 256
        return [Launch("cross_entropy", [NAMES[case[2]]], lambda found: found == lanes, lambda found: (case[0],))]

    def exact(self, args):
        """Row by row: all of it in float64 at once would be large."""
        losses = [self.exact_rows(args, part) for part in torch.arange(args["x"].shape[0], device="cuda").split(256)]
        return [tuple(torch.cat(parts) for parts in zip(*losses))]

    def exact_rows(self, args, part):
        x, targets, classes = args["x"][part].double(), args["targets"][part], args["classes"]
        lse = torch.logsumexp(x, 1)
        hit = x.gather(1, targets.clamp(min=0)[:, None])[:, 0]
        mean, magnitude = x.mean(1), x.abs().mean(1)
        value = lse - (1 - self.smoothing) * hit - self.smoothing * mean
        lse_within = (16 + math.sqrt(classes) + 2 * (x.amax(1) - x.amin(1))) * SINGLE + 2 * SINGLE * lse.abs()
        within = lse_within + 4 * SINGLE * (hit.abs() + magnitude) * (1 + math.sqrt(classes) / 8)
        ignored = targets == args["ignored"]
        return torch.where(ignored, 0.0, value), torch.where(ignored, TINY, within)

    def traffic(self, args):
        return args["x"].numel() * args["x"].element_size() + 16 * args["targets"].numel()

    def floor(self, args):
        from entry import read_only
        return read_only(self.traffic(args))

    def triton(self, args):
        triton_cross_entropy[(args["x"].shape[0],)](
            args["x"], args["targets"], args["loss"], args["lse"], args["classes"], args["ignored"], self.smoothing,
            SMOOTH=self.smoothing > 0)


class CrossEntropyBackward(CrossEntropy):
    inputs = ("x", "targets", "lse", "grad")
    outputs = ("dx",)
    cases = [(8192, 32000, BF16), (4096, 128256, BF16)]

    def __init__(self):
        super().__init__()
        self.name = "cross_entropy_backward"
        self.compute = cross_entropy_backward

    def make(self, case, shift=0):
        args = super().make(case, shift)
        args["lse"] = torch.logsumexp(args["x"].float(), 1)
        args["grad"] = normal(case[0], F32, 5)
        return {**args, "dx": empty(args["x"].numel(), case[2], shift).view_as(args["x"])}

    def launches(self, case, args):
        return [Launch("cross_entropy_backward", [NAMES[case[2]]], lambda block: True,
                       lambda block: (case[0], cdiv(case[1], block)))]

    def exact(self, args):
        x, lse, grad = args["x"].double(), args["lse"].double()[:, None], args["grad"].double()[:, None]
        away = x - lse
        counts = args["targets"] != args["ignored"]
        hit = torch.zeros_like(x).scatter_(1, args["targets"].clamp(min=0)[:, None], 1.0)
        value = torch.where(counts[:, None], grad * (away.exp() - hit), 0.0)
        within = away.exp() * (16 + 2 * away.abs() + 4 * lse.abs()) + 2
        return [rounded(value, grad.abs() * (within * SINGLE + TINY), args["x"].dtype)]

    def floor(self, args):
        return Entry.floor(self, args)

    def traffic(self, args):
        return 2 * args["x"].numel() * args["x"].element_size() + 16 * args["targets"].numel()

    def triton(self, args):
        rows, classes = args["x"].shape
        triton_cross_entropy_backward[lambda meta: (rows, triton.cdiv(classes, meta["BLOCK"]))](
            args["x"], args["targets"], args["lse"], args["grad"], args["dx"], classes, args["ignored"])


def cross_entropy_backward(x, targets, lse, grad):
    share = (x.float() - lse[:, None]).exp()
    hit = torch.arange(x.shape[1], device=x.device)[None, :] == targets[:, None]
    return torch.where((targets != -100)[:, None], (share - hit.float()) * grad[:, None], 0.0).to(x.dtype)


ENTRIES = [Softmax(), Softmax(log=True), MaskedSoftmax(), CrossEntropy(), CrossEntropy(0.1), CrossEntropyBackward()]


# ---- Triton peers

if triton is not None:
    import triton.language as tl

    from entry import for_elements, for_rows, quick

    LOOPS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (4096, 8192, 16384) for warps in (4, 8, 16)]

    @for_rows(key=("cols", "LOG"))
    @triton.jit
    def triton_softmax(x_ptr, out_ptr, cols, BLOCK: tl.constexpr, LOG: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask, other=-float("inf")).to(tl.float32)
        x -= tl.max(x, 0)
        total = tl.sum(tl.exp(x), 0)
        y = x - tl.log(total) if LOG else tl.exp(x) / total
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

    @for_rows()
    @triton.jit
    def triton_masked_softmax(x_ptr, mask_ptr, out_ptr, mask_rows, cols, scale, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + row * cols + column, mask, other=0.0).to(tl.float32) * scale
        kept = tl.load(mask_ptr + row % mask_rows * cols + column, mask, other=0)
        x = tl.where(kept != 0, x, -float("inf"))
        peak = tl.max(x, 0)
        e = tl.exp(x - tl.where(peak == -float("inf"), 0.0, peak))
        total = tl.sum(e, 0)
        y = e / tl.where(total == 0, 1.0, total)
        tl.store(out_ptr + row * cols + column, y.to(out_ptr.dtype.element_ty), mask)

    @triton.autotune(LOOPS, key=["cols", "LOG"], do_bench=quick)
    @triton.jit
    def triton_softmax_long(x_ptr, out_ptr, cols, BLOCK: tl.constexpr, LOG: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        peaks = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
        totals = tl.zeros([BLOCK], dtype=tl.float32)
        for first in range(0, cols, BLOCK):
            column = first + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + start + column, column < cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(peaks, x)
            base = tl.where(higher == -float("inf"), 0.0, higher)
            totals = totals * tl.exp(peaks - base) + tl.exp(x - base)
            peaks = higher
        peak = tl.max(peaks, 0)
        total = tl.sum(totals * tl.exp(peaks - peak), 0)
        for first in range(0, cols, BLOCK):
            column = first + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + start + column, column < cols).to(tl.float32) - peak
            y = x - tl.log(total) if LOG else tl.exp(x) / total
            tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), column < cols)

    @triton.autotune(LOOPS, key=["classes", "SMOOTH"], do_bench=quick)
    @triton.jit
    def triton_cross_entropy(x_ptr, targets_ptr, loss_ptr, lse_ptr, classes, ignored, smoothing, BLOCK: tl.constexpr,
                             SMOOTH: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        target = tl.load(targets_ptr + row)
        hit = tl.load(x_ptr + row * classes + tl.maximum(target, 0)).to(tl.float32)
        peak = -float("inf")
        total = 0.0
        sums = 0.0
        for first in range(0, classes, BLOCK):
            column = first + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * classes + column, column < classes, other=-float("inf")).to(tl.float32)
            if SMOOTH:
                sums += tl.sum(tl.where(column < classes, x, 0.0), 0)
            higher = tl.maximum(peak, tl.max(x, 0))
            total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher), 0)
            peak = higher
        lse = peak + tl.log(total)
        loss = lse - (1 - smoothing) * hit - smoothing * sums / classes
        tl.store(loss_ptr + row, tl.where(target == ignored, 0.0, loss))
        tl.store(lse_ptr + row, lse)

    @for_elements(key=("classes",), blocks=(2048, 4096, 8192))
    @triton.jit
    def triton_cross_entropy_backward(x_ptr, targets_ptr, lse_ptr, grad_ptr, dx_ptr, classes, ignored,
                                      BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = column < classes
        target = tl.load(targets_ptr + row)
        lse, grad = tl.load(lse_ptr + row), tl.load(grad_ptr + row)
        x = tl.load(x_ptr + row * classes + column, mask).to(tl.float32)
        dx = (tl.exp(x - lse) - tl.where(column == target, 1.0, 0.0)) * grad
        dx = tl.where(target == ignored, 0.0, dx)
        tl.store(dx_ptr + row * classes + column, dx.to(dx_ptr.dtype.element_ty), mask)

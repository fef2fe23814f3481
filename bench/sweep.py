#!/usr/bin/env python3
"""The library on shapes drawn at random: matmuls beside cuBLAS, rows beside a copy of as many bytes, attention beside cuDNN.

    cargo run --release --example export -- kernels
    python3 bench/sweep.py --kernels kernels --seed 1
    python3 bench/sweep.py --group matmul --count 100 --limit 300

Needs what `compare.py` needs, and measures as it does: results are first compared with float64 in outputs filled with NaN, the
contenders alternate with the L2 cache overwritten before each run, and times are medians. A case depends on the seed, its group and
its number alone, and groups alternate: a run that `--limit` ends is a sample of all of them. What is printed for each group is
the peer's time as a share of ours: the median, the tenth percentile, and the worst with its shape.
"""

import argparse
import contextlib
import math
import pathlib
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import batch_norm
import elementwise
import fused
import fused_norms
import heuristic
import norms
import products
import report
import softmax
from compare import Mismatch, deviations, into_outputs, prepare, quantile, start, time_all
from entry import BF16, F32, NAMES, Launch, cdiv

OURS = "ours"
#: The most bytes that a case of rows moves, and elements that a sequence of attention takes.
MOST_BYTES, MOST_ELEMENTS = 1 << 30, 1 << 26
#: The most scores of all heads, which bounds the time of the reference.
MOST_SCORES = 1 << 32


def extent(draw, low, high):
    """A number between two, as likely to be in one octave as in another: any, or a multiple of 8 or of 64."""
    number = round(math.exp(draw.uniform(math.log(low), math.log(high))))
    step = draw.choice((1, 8, 64))
    return min(max(number // step * step, low), high)


# ---- matmuls


class Product(products.FewRows):
    """The matmul of two matrices, row-major (N) or column-major (T)."""

    def __init__(self, layout):
        super().__init__()
        self.name, self.layout, self.transposed = f"matmul {layout}", layout, layout[1] == "T"

    def few_tile(self, case):
        return super().few_tile(case) if self.layout == "NT" else None

    def make(self, case, shift=0):
        m, k, n, _ = case
        args = products.Matmul.make(self, case, shift)
        if self.transposed:
            args["b"] = args["b"].view(n, k)
        if self.layout[0] == "T":
            args["a"] = args["a"].view(k, m).T
        return args

    def exact(self, args):
        return products.Matmul.exact(self, {**args, "b": self.right(args)})

    def peer(self, args):
        a, b, out = args["a"], self.right(args), torch.empty_like(args["out"])
        return lambda: torch.matmul(a, b, out=out)


def draw_product(draw):
    layout = draw.choice(("NN", "NT", "TN", "TT"))
    return Product(layout), (*(extent(draw, 16, 8192) for _ in range(3)), BF16), "cuBLAS"


class Tf32(Product):
    """The same of `f32` in TF32."""

    tf32 = True

    def __init__(self, layout):
        super().__init__(layout)
        self.name = f"matmul_tf32 {layout}"

    def launches(self, case, args):
        m, k, n, dtype = case
        taken = {**self.batch(args), "act": products.IDENTITY}
        operands = args["a"], self.right(args)
        aligned, transposed_operand = [heuristic.is_aligned(operand) for operand in operands], None
        left, right = map(heuristic.is_column_major, operands)
        if left and not right:
            transposed_operand = int(operands[1].numel() < operands[0].numel())
            aligned[transposed_operand] = False
        block, parts, copies = heuristic.fastest(
            (m, k, n), aligned, [heuristic.within_sectors(operand) for operand in operands], right, dtype.itemsize)
        copied = {name: heuristic.aligned_copy(taken[name]) for number, name in enumerate(("a", "b"))
                  if copies[number] and number != transposed_operand}
        launches = heuristic.copy_rows([pair[:2] for pair in copied.values()], dtype)
        if transposed_operand is not None and copies[transposed_operand]:
            name = ("a", "b")[transposed_operand]
            copied[name] = lines, copy, _ = heuristic.aligned_copy(taken[name], transposed=True)
            launches.append(heuristic.copy_transposed(lines, copy, dtype))
        taken.update({name: copy for name, (_, _, copy) in copied.items()})
        args["copies"] = copied  # A launch keeps addresses alone.
        return launches + self.in_config(case, block, parts, taken, args)

    def exact(self, args):
        def rounded(matrix):
            bits = matrix.contiguous().view(torch.int32)
            return ((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).view(torch.float32)

        return super().exact({**args, "a": rounded(args["a"]), "b": rounded(args["b"])})

    def peer(self, args):
        torch.backends.cuda.matmul.allow_tf32 = True
        return super().peer(args)


class Ieee(Product):
    """The same of `f32` by the arithmetic of threads."""

    def __init__(self, layout):
        super().__init__(layout)
        self.name = f"matmul_f32 {layout}"

    def peer(self, args):
        torch.backends.cuda.matmul.allow_tf32 = False
        return super().peer(args)


def draw_ieee(draw):
    layout = draw.choice(("NN", "NT", "TN", "TT"))
    return Ieee(layout), (*(extent(draw, 16, 8192) for _ in range(3)), F32), "cuBLAS"


def draw_tf32(draw):
    layout = draw.choice(("NN", "NT", "TN", "TT"))
    return Tf32(layout), (*(extent(draw, 16, 8192) for _ in range(3)), F32), "cuBLAS"


class Quantized(products.QuantizedMatmul):
    """The matmul of two 8-bit matrices, `b` column-major, with scales. Of extents that cuBLASLt does not take, its operands are padded
    with zeros to those that it does, before it is timed."""

    def peer(self, args):
        def padded(name, steps):
            rows, cols = args[name].shape
            wide = torch.zeros(cdiv(rows, steps) * steps, cdiv(cols, 16) * 16, dtype=self.dtype, device="cuda")
            wide[:rows, :cols] = args[name]
            return wide

        a, b = padded("a", 32 if self.dtype == torch.int8 else 1), padded("b", 16)
        scales = [F.pad(args[name], (0, 0, 0, operand.shape[0] - args[name].shape[0]))
                  for name, operand in (("row_scales", a), ("col_scales", b))]
        if self.dtype == torch.int8:
            return lambda: torch._int_mm(a, b.T)
        return lambda: self.of_floats(a, b, *scales)


def draw_quantized(draw):
    return Quantized(draw.choice((torch.int8, products.F8))), tuple(extent(draw, 16, 8192) for _ in range(3)), "cuBLASLt"


# ---- rows

ROWS = [softmax.Softmax(), norms.LayerNorm(), norms.RmsNorm(), softmax.CrossEntropy(), elementwise.ActAndMul(elementwise.SILU),
        fused.Quantize("plain", torch.int8)]


def draw_rows(draw):
    entry = draw.choice(ROWS)
    # The library's quantizing kernels take rows of at most 32768 columns.
    cols = extent(draw, 100, 32768 if isinstance(entry, fused.Quantize) else 70000)
    rows = min(extent(draw, 1, 200_000), MOST_BYTES // (4 * cols))
    # A gate's rows are halves side by side.
    return entry, (rows, cols // 2 if isinstance(entry, elementwise.ActAndMul) else cols, BF16), "copy"


FUSED = [*fused_norms.ENTRIES, fused.Dropout(), fused.BiasDropout(True), elementwise.ScaleReluColumns()]


def draw_fused(draw):
    if draw.random() < 0.3:
        entry = draw.choice(batch_norm.ENTRIES)
        channels, pixels = extent(draw, 1, 4096), draw.choice((1, extent(draw, 2, 70000)))
        return entry, (max(2, min(extent(draw, 1, 65536), MOST_BYTES // (4 * channels * pixels))), channels, pixels, BF16), "copy"
    cols = extent(draw, 100, 70000)
    return draw.choice(FUSED), (min(extent(draw, 1, 200_000), MOST_BYTES // (6 * cols)), cols, BF16), "copy"


# ---- attention


class Attention(products.Attention):
    def peer(self, args):
        q, k, v = (args[name] for name in self.inputs)
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def draw_attention(draw):
    entry, d, heads = Attention(draw.random() < 0.5), draw.choice((64, 80, 96, 128, 192)), extent(draw, 1, 128)
    most = min(math.isqrt(MOST_SCORES // heads), MOST_ELEMENTS // (heads * d), 16384)
    return entry, (heads, extent(draw, 64, max(most, 64)), d, BF16), "cuDNN"


GROUPS = {"matmul": draw_product, "f32": draw_ieee, "tf32": draw_tf32, "quantized": draw_quantized, "rows": draw_rows, "fused": draw_fused,
          "attention": draw_attention}


def cases(options):
    """Group, operation, case and peer, of each in turn."""
    for number in range(options.count):
        for group in options.group or GROUPS:
            yield group, *GROUPS[group](random.Random(f"{options.seed} {group} {number}"))


# ---- time


@contextlib.contextmanager
def backend(peer, args):
    """Where attention is cuDNN's, if it takes these."""
    if peer != "cuDNN":
        yield peer
        return
    try:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(args["q"], args["k"], args["v"])
    except RuntimeError:
        yield "PyTorch"  # The fused operation that it chooses by itself.
        return
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        yield peer


def measure(entry, case, peer, options):
    """The row of one case."""
    args = entry.make(case)
    entry.prepare(args)
    run, names, _ = prepare(entry, case, args, options)
    share = None
    if not options.no_check:
        _, share = deviations(entry, into_outputs(entry, args, run)(), entry.exact(args))
        torch.cuda.empty_cache()
    with backend(peer, args) as peer:
        other = entry.floor(args) if peer == "copy" else entry.peer(args)
        other()
        times = time_all({OURS: run, peer: other}, options.rounds, options.warmup)
    ours, theirs = (quantile(times[name], 0.5) for name in (OURS, peer))
    return {"kernel": entry.name, "shape": entry.label(case), "case": [NAMES.get(of, of) for of in case], "peer": peer,
            "us": ours, "peer_us": theirs, "of_peer": theirs / ours, "share_of_bound": share, "entries": names}


# ---- report


def summary(rows):
    """For each group and each operation in it, how its cases compare with the peer."""
    lines = ["| group | cases | median | tenth percentile | worst | its shape |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    found = {}
    for row in rows:
        for name in (row["group"], f"{row['group']}: {row['kernel']}"):
            found.setdefault(name, []).append(row)
    for name, of in sorted(found.items()):
        ratios, worst = sorted(row["of_peer"] for row in of), min(of, key=lambda row: row["of_peer"])
        lines.append(f"| {name} | {len(of)} | {quantile(ratios, 0.5):.2f} | {quantile(ratios, 0.1):.2f} | {ratios[0]:.2f} | "
                     f"{worst['kernel']} {worst['shape']}: {worst['us']:.1f} us, {worst['peer']} {worst['peer_us']:.1f} |")
    return "\n".join(lines)


def parse_options():
    beside = pathlib.Path(__file__).resolve().parent.parent / "kernels"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=pathlib.Path, default=beside, help="folder with the exported kernels")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write instead of one in bench/results/<gpu>")
    parser.add_argument("--seed", type=int, default=0, help="what shapes are drawn from")
    parser.add_argument("--count", type=int, default=40, help="cases of each group")
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="only this group")
    parser.add_argument("--limit", type=float, help="begin no case after so many seconds")
    parser.add_argument("--rounds", type=int, default=20, help="timed runs of each contender")
    parser.add_argument("--warmup", type=int, default=5, help="runs before that")
    parser.add_argument("--no-check", action="store_true", help="measure, and compare no results")
    parser.add_argument("--arch", help="load this architecture, such as sm_80, instead of the latest")
    parser.add_argument("--ptx", action="store_true", help="load PTX where there is a cubin")
    parser.add_argument("--list", action="store_true", help="name the cases, and do nothing")
    return parser.parse_args()


def main():
    options = parse_options()
    if options.list:
        for group, entry, case, _ in cases(options):
            print(f"{group}: {entry.name} {entry.label(case)}")
        return
    begin, machine, rows, failed, left = time.monotonic(), start(options), [], {}, 0
    report.place(options, machine, "-".join(["sweep", *(options.group or ())]), options.seed)
    print(", ".join(f"{key} {value}" for key, value in machine.items()) + f", seed {options.seed}", flush=True)
    for group, entry, case, peer in cases(options):
        if options.limit and time.monotonic() - begin > options.limit:
            left += 1
            continue
        label = f"{entry.name} {entry.label(case)}"
        try:
            rows.append({"group": group, **measure(entry, case, peer, options)})
            print(f"{label}: {rows[-1]['us']:.1f} us, {rows[-1]['of_peer']:.2f} of {rows[-1]['peer']}", flush=True)
        except Mismatch as mismatch:
            failed[label] = str(mismatch)
            print(f"WRONG: {label}: {mismatch}", flush=True)
        except (Exception, SystemExit) as error:  # One case that cannot is no reason to stop.
            failed[label] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            print(f"FAILED: {label}: {failed[label]}", flush=True)
        # After each case: a run that is cut short leaves what it measured.
        report.write(options.out, machine, rows, seed=options.seed, rounds=options.rounds, failed=failed)
        torch.cuda.empty_cache()
    if rows:
        print("\n" + summary(rows))
    for label, reason in failed.items():
        print(f"FAILED: {label}: {reason}")
    if left:
        print(f"\nnot measured within {options.limit:.0f} s: {left} cases")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

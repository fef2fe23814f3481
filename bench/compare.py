#!/usr/bin/env python3
"""Our kernels beside Triton, torch.compile, PyTorch and a plain copy, on the same tensors in one process.

    cargo run --release --example export -- kernels
    python3 bench/compare.py --kernels kernels --out results.json

Needs an NVIDIA GPU, PyTorch, Triton and cuda-python (cuda.bindings). Each result is first compared with float64, in
outputs that held NaN. Then the contenders take turns, round after round, so that a drift of clocks meets all of them
alike; the L2 cache is overwritten before each run, and each run is timed by itself with device events. Times are medians.
torch.compile runs as `max-autotune-no-cudagraphs`: a graph would copy its inputs in each run.
"""

import argparse
import datetime
import json
import pathlib
import sys

import torch

import exported
from kernels import ENTRIES, NAMES, triton

OURS, COPY = "ours", "copy"


class Mismatch(Exception):
    """A result that rounding does not explain."""


# ---- correctness


def deviation(got, exact):
    """The largest error, and the largest share of its bound that an element's error takes."""
    value, bound = exact
    got = got.double().view_as(value)
    error = (got - value).abs()
    if not bool(torch.isfinite(got).all()):
        bad = int((~torch.isfinite(got)).sum())
        raise Mismatch(f"{bad} of {got.numel()} elements are NaN or infinite")
    share = float((error / bound).max())
    if share > 1:
        index = int((error / bound).argmax())
        raise Mismatch(f"element {index} is {float(got.flatten()[index])}, expected {float(value.flatten()[index])}")
    return float(error.max()), share


def slices(args):
    """The arguments as the exported kernel takes them."""
    is_tensor = torch.is_tensor
    return {name: exported.Slice(arg.data_ptr(), arg.numel()) if is_tensor(arg) else arg for name, arg in args.items()}


def prepare(entry, case, args, options):
    """Our launch, the entry point and what was loaded."""
    types = [NAMES[args["out"].dtype]]
    record = exported.find(
        options.kernels, entry.kernel, types, entry.consts(case), options.capability, options.arch)
    key = (record.folder, record.json["bodies"][0]["ptx"])
    if key not in options.loaded:
        options.loaded[key] = exported.Loaded(record, options.capability, options.ptx)
    loaded = options.loaded[key]
    grid = entry.grid(args, record.json["consts"])
    launch, name = loaded.prepare(slices(args), grid, torch.cuda.current_stream().cuda_stream)
    return launch, name, loaded.image


def check_small(entry, options):
    """Small shapes, on and off a boundary; gives how many and the entry points that ran."""
    count, names = 0, set()
    for case in entry.small:
        for shift in (0, 1):
            args = entry.make(case, shift)
            launch, name, _ = prepare(entry, case, args, options)
            args["out"].fill_(float("nan"))
            launch()
            try:
                deviation(args["out"], entry.exact(args))
            except Mismatch as mismatch:
                raise Mismatch(f"{entry.kernel} {entry.label(case)}, shifted by {shift}, {name}: {mismatch}") from None
            count += 1
            names.add(name)
    return count, names


# ---- time


def contenders(entry, case, args, options):
    """By name: what to run, and where its result is found (None for a copy)."""
    launch, name, image = prepare(entry, case, args, options)
    print(f"  {entry.label(case)}: {name}, {image}", flush=True)
    source, target = entry.copy(args)
    fast = torch.compile(entry.compute, mode="max-autotune-no-cudagraphs", dynamic=False)
    inputs = [args[name] for name in entry.inputs]

    def into_out(run):
        def result():
            args["out"].fill_(float("nan"))
            run()
            return args["out"]
        return run, result

    found = {OURS: into_out(launch)}
    if triton is not None:
        found["Triton"] = into_out(lambda: entry.triton(args))
    if not options.no_compile:
        found["torch.compile"] = (lambda: fast(*inputs),) * 2
    found["PyTorch"] = (lambda: entry.eager(args),) * 2
    found[COPY] = (lambda: target.copy_(source)), None
    return found


def time_all(runs, rounds, warmup):
    """Microseconds of each of `rounds` runs, by name; the contenders take turns."""
    flushed = torch.empty(256_000_000, dtype=torch.uint8, device="cuda")
    names = list(runs)
    events = {name: [] for name in names}
    for turn in range(warmup + rounds):
        # The order rotates, so that no contender always follows the same one.
        for name in names[turn % len(names):] + names[: turn % len(names)]:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flushed.zero_()
            start.record()
            runs[name]()
            end.record()
            if turn >= warmup:
                events[name].append((start, end))
    torch.cuda.synchronize()
    return {name: sorted(1e3 * start.elapsed_time(end) for start, end in pairs) for name, pairs in events.items()}


def quantile(ordered, share):
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def measure(entry, case, options):
    """The rows of one case."""
    args = entry.make(case)
    found = contenders(entry, case, args, options)
    exact = entry.exact(args)
    errors = {}
    for name, (_, result) in found.items():
        if result is None:
            continue
        try:
            errors[name] = deviation(result(), exact)
        except Mismatch as mismatch:
            if name == OURS:
                raise Mismatch(f"{entry.kernel} {entry.label(case)}: {mismatch}") from None
            errors[name] = (float("nan"), float("nan"))
            print(f"  note: {name} is beyond the bound: {mismatch}", flush=True)
    del exact
    torch.cuda.synchronize()
    times = time_all({name: run for name, (run, _) in found.items()}, options.rounds, options.warmup)
    traffic, median = entry.traffic(args), {name: quantile(ordered, 0.5) for name, ordered in times.items()}
    best_peer = min(median[name] for name in median if name not in (OURS, COPY))
    rows = []
    for name, ordered in times.items():
        error = errors.get(name)
        rows.append({
            "kernel": entry.kernel, "shape": entry.label(case), "contender": name, "us": median[name],
            "p20": quantile(ordered, 0.2), "p80": quantile(ordered, 0.8), "min": ordered[0], "runs": len(ordered),
            "gb_per_s": traffic / median[name] / 1e3, "bytes": traffic,
            "of_best_peer": best_peer / median[name], "of_copy": median[COPY] / median[name],
            "max_error": error[0] if error else None, "share_of_bound": error[1] if error else None,
        })
    return rows


# ---- report


def markdown(rows):
    lines = ["| kernel | shape | | us | 20 to 80 % | GB/s | of best peer | of copy | max error |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        error = "" if row["max_error"] is None else f"{row['max_error']:.1e}"
        lines.append(
            f"| {row['kernel']} | {row['shape']} | {row['contender']} | {row['us']:.1f} "
            f"| {row['p20']:.1f} to {row['p80']:.1f} | {row['gb_per_s']:.0f} | {row['of_best_peer']:.3f} "
            f"| {row['of_copy']:.3f} | {error} |")
    return "\n".join(lines)


def parse_options():
    beside = pathlib.Path(__file__).resolve().parent.parent / "kernels"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=pathlib.Path, default=beside, help="folder with the exported kernels")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write")
    parser.add_argument("--only", action="append", choices=[entry.kernel for entry in ENTRIES], help="only this kernel")
    parser.add_argument("--rounds", type=int, default=100, help="timed runs of each contender")
    parser.add_argument("--warmup", type=int, default=20, help="runs before that")
    parser.add_argument("--arch", help="load this architecture, such as sm_80, instead of the latest")
    parser.add_argument("--ptx", action="store_true", help="load PTX where there is a cubin")
    parser.add_argument("--check", action="store_true", help="check small shapes and measure nothing")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes a while")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no NVIDIA GPU that PyTorch can use")
    major, minor = torch.cuda.get_device_capability()
    options.capability = 10 * major + minor
    options.loaded = {}
    torch.cuda.init()
    torch.empty(1, device="cuda")  # Makes PyTorch's context the current one.
    return options


def main():
    options = parse_options()
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
               "triton": triton.__version__ if triton else None}
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    rows, failed = [], False
    for entry in ENTRIES:
        if options.only and entry.kernel not in options.only:
            continue
        try:
            count, names = check_small(entry, options)
            print(f"{entry.kernel}: {count} small shapes agree with float64 ({len(names)} entry points)", flush=True)
            for case in entry.cases if not options.check else ():
                rows += measure(entry, case, options)
                torch._dynamo.reset()
                torch.cuda.empty_cache()
        except Mismatch as mismatch:
            print(f"WRONG: {mismatch}", flush=True)
            failed = True
    if rows:
        print("\n" + markdown(rows))
    if options.out:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        report = {"machine": machine, "when": now, "rounds": options.rounds, "rows": rows}
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Ports of Triton kernels beside their originals: the same algorithm, the same tiles and warps, no tuning on either side.

    cargo run --release -p fuse-ports --example export_ports -- ports
    python3 bench/ports.py --kernels ports
    python3 bench/ports.py --only matmul --only rope --rounds 50 --limit 300
    python3 bench/ports.py --limit 500 --resume    # again and again, until nothing is left

Needs an NVIDIA GPU, PyTorch, Triton and cuda-python (cuda.bindings). Both versions are first compared with float64 in
outputs filled with NaN. Then they alternate, round after round; the L2 cache is overwritten before each run, and each run is
timed by itself with device events. Times are medians. What does not run, or is wrong, is reported, and the others go on.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import torch

# The Triton versions stand beside ours.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "ports"))

import port_attention
import port_backward
import port_channels
import port_decoding
import port_dequantized
import port_elementwise
import port_fused
import port_images
import port_indexed
import port_movement
import port_pairs
import port_persistent
import port_products
import port_recurrent
import port_reduced
import port_rows
import port_scatter
import port_sequences
import port_serving
import port_transforms
import report
from compare import deviations, into_outputs, prepare, quantile, start, time_all, within

MODULES = [port_elementwise, port_rows, port_channels, port_products, port_dequantized, port_persistent, port_indexed,
           port_reduced, port_attention, port_backward, port_decoding, port_serving, port_recurrent, port_scatter,
           port_movement, port_images, port_transforms, port_pairs, port_fused, port_sequences]
PORTS = [port for module in MODULES for port in module.PORTS]
OURS, TRITON, LIBRARY = "ours", "Triton", "library"
#: Seconds for a version's first run, which compiles it.
FIRST_RUN = 180


class Lost(Exception):
    """A kernel left the CUDA context unusable."""


def first_line(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def versions(port, case, args, options):
    """By name, how to make each version's launch."""
    def ours():
        run, names, image = prepare(port, case, args, options)
        print(f"  {port.name} {port.label(case)}: {', '.join(names)}, {image}", flush=True)
        return run

    def library():
        return prepare(*of_library, options)[0]

    found = {OURS: ours, TRITON: lambda: lambda: port.run_triton(case, args)}
    of_library = port.library(case, args) if options.library else None
    return {**found, LIBRARY: library} if of_library else found


def check(port, args, run, exact):
    """Runs into outputs filled with NaN, and compares; returns the worst error and its share of the bound."""
    with within(FIRST_RUN):
        results = into_outputs(port, args, run)()
        torch.cuda.synchronize()
    if port.random:
        port.check_random(args, results)
        return None, None
    return deviations(port, results, exact)


def survive(failed, name, error):
    """Notes what failed; raises Lost where nothing can run after it."""
    failed[name] = first_line(error)
    print(f"FAILED: {name}: {failed[name]}", flush=True)
    try:
        torch.cuda.synchronize()
        torch.empty(1, device="cuda").zero_().item()
    except Exception as lost:
        raise Lost(first_line(lost)) from None


def measure(port, case, options, failed):
    """The row of one case: what ran of it."""
    args = port.make(case)
    port.prepare(args)
    exact = port.exact(args)
    runs, errors = {}, {}
    for name, make in versions(port, case, args, options).items():
        try:
            run = make()
            errors[name] = check(port, args, run, exact)
            runs[name] = run
        except (Exception, SystemExit) as error:  # One version that cannot is no reason to stop.
            survive(failed, f"{port.name} {port.label(case)}, {name}", error)
    del exact
    port.prepare(args)
    torch.cuda.synchronize()
    times = time_all(runs, options.rounds, options.warmup) if runs else {}
    row = {"kernel": port.name, "shape": port.label(case), "bytes": port.traffic(args)}
    for name, ordered in times.items():
        error, share = errors[name]
        row[name] = {"us": quantile(ordered, 0.5), "p20": quantile(ordered, 0.2), "p80": quantile(ordered, 0.8),
                     "min": ordered[0], "runs": len(ordered), "max_error": error, "share_of_bound": share}
    row["of_triton"] = row[TRITON]["us"] / row[OURS]["us"] if OURS in row and TRITON in row else None
    return row


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(rows):
    """A line for each case, and the means."""
    lines = ["| kernel | shape | ours us | Triton us | library us | ours of Triton |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        cells = " | ".join(f"{row[name]['us']:.1f}" if name in row else "" for name in (OURS, TRITON, LIBRARY))
        ratio = f"{row['of_triton']:.2f}" if row["of_triton"] else ""
        lines.append(f"| {row['kernel']} | {row['shape']} | {cells} | {ratio} |")
    ratios = [row["of_triton"] for row in rows if row["of_triton"]]
    of_kernel = {row["kernel"]: [other["of_triton"] for other in rows if other["kernel"] == row["kernel"]
                                 and other["of_triton"]] for row in rows}
    means = [geometric_mean(of) for of in of_kernel.values() if of]
    lines.append(f"\ngeometric mean: {geometric_mean(ratios):.3f} of {len(ratios)} cases, {geometric_mean(means):.3f} of "
                 f"{len(means)} kernels; below 0.9: {sum(ratio < 0.9 for ratio in ratios)} cases")
    return "\n".join(lines)


def write(options, machine, rows, failed):
    """The report as JSON, after each case: a run that is cut short leaves what it measured."""
    mean = geometric_mean([row["of_triton"] for row in rows if row["of_triton"]])
    report.write(options.out, machine, rows, rounds=options.rounds, geometric_mean=mean, failed=failed)


def parse_options():
    beside = pathlib.Path(__file__).resolve().parent.parent / "ports"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=pathlib.Path, default=beside, help="folder with the exported ports")
    parser.add_argument("--library", action="store_true", help="the library's kernels are in that folder too: measure them beside")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write instead of one in bench/results/<gpu>")
    parser.add_argument("--only", action="append", choices=[port.name for port in PORTS], help="only this kernel")
    parser.add_argument("--limit", type=float, help="begin no case after so many seconds")
    parser.add_argument("--rounds", type=int, default=50, help="timed runs of each version")
    parser.add_argument("--warmup", type=int, default=10, help="runs before that")
    parser.add_argument("--resume", action="store_true", help="keep what the report holds, and measure what it does not name")
    parser.add_argument("--arch", help="load this architecture, such as sm_80, instead of the latest")
    parser.add_argument("--ptx", action="store_true", help="load PTX where there is a cubin")
    parser.add_argument("--list", action="store_true", help="name the kernels and cases, and do nothing")
    return parser.parse_args()


def chosen(options, rows, failed):
    """The ports and cases that are to be measured."""
    done = {(row["kernel"], row["shape"]) for row in rows}
    given_up = {name.rpartition(", ")[0] for name in failed}
    for port in PORTS:
        if options.only and port.name not in options.only:
            continue
        for case in port.cases:
            label = port.label(case)
            if (port.name, label) not in done and f"{port.name} {label}" not in given_up:
                yield port, case


def main():
    options = parse_options()
    rows, failed = [], {}
    if options.list:
        for port, case in chosen(options, rows, failed):
            print(f"{port.name} {port.label(case)}")
        return
    begin, left = time.monotonic(), []
    machine = start(options)
    report.place(options, machine, "ports")
    if options.resume and options.out.exists():
        before = json.loads(options.out.read_text())
        rows, failed = before["rows"], before["failed"]
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    try:
        for port, case in chosen(options, rows, dict(failed)):
            if options.limit and time.monotonic() - begin > options.limit:
                left.append(f"{port.name} {port.label(case)}")
                continue
            try:
                rows.append(measure(port, case, options, failed))
            except Lost:
                raise
            except (Exception, SystemExit) as error:  # One kernel that cannot is no reason to stop.
                survive(failed, f"{port.name} {port.label(case)}, inputs", error)
            write(options, machine, rows, failed)
            torch.cuda.empty_cache()
    except Lost as lost:
        print(f"the CUDA context is lost ({lost}): run again with --resume for the rest", flush=True)
        write(options, machine, rows, failed)
    print("\n" + summary(rows))
    for name, error in failed.items():
        print(f"FAILED: {name}: {error}")
    if left:
        print(f"\nnot measured within {options.limit:.0f} s: {', '.join(left)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

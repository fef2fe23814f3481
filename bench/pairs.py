#!/usr/bin/env python3
"""Fused against unfused: what the library computes in one launch beside the same in a launch for each step, PyTorch,
torch.compile and Triton, at the sizes of the documents on fusion.

    cargo run --release --example export -- kernels
    python3 bench/pairs.py --kernels kernels --roofline roofline.json
    python3 bench/pairs.py --only add_mul_100m --only layer_norm --ncu
    python3 bench/pairs.py --limit 500 --resume    # again and again, until nothing is left
    cargo run --release -p fuse-analysis -- roofline roofline.json --out roofline

Measures as `compare.py` does: each result is first compared with float64, in outputs filled with NaN; then the forms
alternate, each after a write of all of the L2 cache, and times are medians. All launches of a form are timed together. Bytes are
those of a formula: each step's tensors once. With --ncu each form runs once more, in a process of its own under Nsight
Compute, which counts bytes read from DRAM and written to it, of a cache that holds nothing of the inputs; what a form
leaves in the cache is not written yet. Where ncu may not read counters, this is said, and the rest goes on. A
difference from what a document expects has a reason beside it.
"""

import argparse
import csv
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
import types

import torch

import report
from compare import (FLOOR, OURS, Mismatch, check_all, contenders, deviations, into_outputs, measured_before, prepare,
                     quantile, start, time_all)
from pair_cases import PAIRS

FUSED, UNFUSED, PYTORCH, COMPILED, TRITON = "fused", "unfused", "PyTorch", "torch.compile", "Triton"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
#: Seconds for a process under ncu.
UNDER_NCU = 300


class Unfused:
    """The steps of an unfused form on its arguments, ready to run."""

    def __init__(self, pair, args, options):
        self.steps = pair.steps(pair.case, args)
        self.runs, self.launches = [], 0
        for step in self.steps:
            if step.call:
                self.runs.append(step.call)
                self.launches += 1
                continue
            plain = types.SimpleNamespace(launches=lambda case, args, of=step.launches: of)
            run, names, _ = prepare(plain, pair.case, args, options)
            self.runs.append(run)
            self.launches += len(names)
        self.bytes = sum(step.bytes for step in self.steps)

    def run(self):
        for run in self.runs:
            run()

    @property
    def words(self):
        return ", ".join(step.what for step in self.steps)

    @property
    def peer(self):
        """Whose code it is, where it is not the library's alone."""
        theirs = sum(step.call is not None for step in self.steps)
        return None if not theirs else PYTORCH if theirs == len(self.steps) else f"the library and {PYTORCH}"


# ---- measuring


def count_launches(run):
    """The kernels that a run launches, as PyTorch's profiler sees them; None where it sees none."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run()
            torch.cuda.synchronize()
        on_device = torch.autograd.DeviceType.CUDA
        return sum(event.device_type == on_device for event in profile.events()) or None
    except Exception as error:  # A count that is missing is no reason to stop.
        print(f"  note: launches are not counted: {type(error).__name__}", flush=True)
        return None


def check(pair, args, found, plain):
    """The deviation of each form; raises Mismatch for ours."""
    exact = pair.entry.exact(args)
    errors = check_all(pair.entry, pair.case, found, exact)
    try:
        results = into_outputs(pair.entry, args, plain.run)()
        errors[UNFUSED] = deviations(pair.entry, results, pair.loosened(args, exact))
    except Mismatch as mismatch:
        raise Mismatch(f"{pair.name} {pair.label}, unfused ({plain.words}): {mismatch}") from None
    return errors


def measure(pair, options):
    """The row of a pair."""
    args = pair.entry.make(pair.case)
    pair.entry.prepare(args)
    found = contenders(pair.entry, pair.case, args, options)
    del found[FLOOR]
    plain = Unfused(pair, args, options)
    print(f"  unfused: {plain.words}", flush=True)
    errors = check(pair, args, found, plain)
    pair.entry.prepare(args)
    torch.cuda.synchronize()
    runs = {FUSED if name == OURS else name: run for name, (run, _) in found.items()}
    runs[UNFUSED], errors[FUSED] = plain.run, errors.pop(OURS)
    times = time_all(runs, options.rounds, options.warmup)
    moved = {FUSED: pair.entry.traffic(args), UNFUSED: plain.bytes}
    # Of a copy of the arguments: they keep what the launches above point to.
    launches = {FUSED: len(pair.entry.launches(pair.case, dict(args))), UNFUSED: plain.launches}
    forms = {}
    for name, ordered in times.items():
        us, error = quantile(ordered, 0.5), errors.get(name)
        forms[name] = {
            "us": us, "p20": quantile(ordered, 0.2), "p80": quantile(ordered, 0.8), "min": ordered[0],
            "runs": len(ordered), "launches": launches.get(name) or count_launches(runs[name]),
            "bytes": moved.get(name), "gb_per_s": moved[name] / us / 1e3 if name in moved else None,
            "max_error": error[0] if error else None, "share_of_bound": error[1] if error else None,
        }
    row = {"pair": pair.name, "shape": pair.label, "flops": pair.flops(args), "unit": pair.unit, "forms": forms,
           "unfused": plain.words, "unfused_peer": plain.peer,
           "over_unfused": forms[UNFUSED]["us"] / forms[FUSED]["us"],
           "over_eager": forms[PYTORCH]["us"] / forms[FUSED]["us"] if PYTORCH in forms else None}
    largest = max(step.bytes for step in plain.steps)
    return {**row, **beside_document(pair, row, largest)}


# ---- beside the documents


def beside_document(pair, row, largest_step):
    """What a document expects of a pair, and why it is otherwise; `largest_step` is in bytes."""
    expected = pair.expected
    if expected is None:
        return {"expected": None, "where": None, "reason": pair.why}
    told = {"expected": [expected.low, expected.high], "over": expected.over, "where": expected.where}
    forms = row["forms"]
    if expected.over not in forms:
        return {**told, "reason": f"{expected.over} does not run"}
    found = forms[expected.over]["us"] / forms[FUSED]["us"]
    if 0.95 * expected.low <= found <= 1.05 * expected.high:
        return {**told, "reason": ""}
    reasons = [pair.why] if pair.why else []
    if expected.over == UNFUSED:
        reasons.append(by_bytes(forms, found, largest_step))
    else:
        peer = forms[expected.over]
        reasons.append(f"{expected.over} takes {peer['us']:.1f} us in {peer['launches'] or 'uncounted'} launches")
    return {**told, "reason": "; ".join(reasons)}


def by_bytes(forms, found, largest_step):
    """How far the bytes explain by how much the fused form is faster."""
    fused, unfused = forms[FUSED], forms[UNFUSED]
    ratio = unfused["bytes"] / fused["bytes"]
    if abs(found / ratio - 1) <= 0.1:
        return f"the time follows the bytes, which fall by {ratio:.2f}"
    rates = f"bytes fall by {ratio:.2f}; {unfused['gb_per_s']:.0f} GB/s unfused, {fused['gb_per_s']:.0f} fused"
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    if largest_step > cache:
        return rates
    if found < ratio:
        return f"{rates}: what a step leaves is found in the L2 cache of {cache >> 20} MiB"
    return f"{rates}: the tensors of a step fit in the L2 cache of {cache >> 20} MiB, and launches weigh more"


def roofline(machine, rows):
    """The points as `fuse-analysis roofline` and `fuse-analysis check` read them."""
    points, models = [], {pair.name: pair.model for pair in PAIRS}
    for row in rows:
        for form in (FUSED, UNFUSED):
            of = row["forms"][form]
            point = {"name": f"{row['pair']} {row['shape']}", "form": form, "bytes": of["bytes"], "flops": row["flops"],
                     "seconds": of["us"] * 1e-6, "unit": row["unit"]}
            model = models[row["pair"]]
            ops = model and (model.fused if form == FUSED else model.unfused)
            if ops:
                point.update(ops=ops, model=model.name, set=model.set)
            if form == UNFUSED and row["unfused_peer"]:
                point["peer"] = row["unfused_peer"]
            points.append(point)
    source = f"python3 bench/pairs.py, medians of {rows[0]['forms'][FUSED]['runs']} behind a write of all of L2"
    return {"device": machine["gpu"], "cache": "cold", "source": source, "points": points}


# ---- DRAM bytes


def run_once(pair, form, options):
    """Runs a form once where a profiler looks, with none of its inputs in the cache and nothing there to be written."""
    args = pair.entry.make(pair.case)
    pair.entry.prepare(args)
    plain = Unfused(pair, args, options) if form == UNFUSED else None
    run = {FUSED: lambda: prepare(pair.entry, pair.case, args, options)[0], UNFUSED: lambda: plain.run,
           PYTORCH: lambda: lambda: pair.entry.eager(args)}[form]()
    run()
    pair.entry.prepare(args)
    torch.zeros(64_000_000, dtype=torch.float32, device="cuda").sum().item()
    torch.cuda.profiler.start()
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


class Refused(Exception):
    """ncu may not read the counters, or does not run."""


def counted(text):
    """The sums of both counters in ncu's CSV, of all kernels that it profiled."""
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        said = next((line for line in lines if "ERR" in line), lines[-1] if lines else "nothing")
        raise Refused(said.strip())
    sums, kernels = {READ: 0.0, WRITTEN: 0.0}, set()
    for record in csv.DictReader(line for line in lines[first:] if line.startswith('"')):
        if record["Metric Name"] in sums:
            sums[record["Metric Name"]] += float(record["Metric Value"].replace(",", ""))
            kernels.add(record["ID"])
    return {"dram_read": sums[READ], "dram_written": sums[WRITTEN], "dram_kernels": len(kernels)}


def dram_bytes(pair, form, options):
    """Bytes that one run of a form reads from DRAM and writes to it."""
    command = ["ncu", "--csv", "--print-units", "base", "--profile-from-start", "off", "--cache-control", "none",
               "--metrics", f"{READ},{WRITTEN}", sys.executable, str(pathlib.Path(__file__).resolve()),
               "--kernels", str(options.kernels), "--only", pair.name, "--form", form, "--once"]
    command += ["--ptx"] * options.ptx + (["--arch", options.arch] if options.arch else [])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=UNDER_NCU)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{shlex.join(command[:1])}: {error}") from None
    return counted(done.stdout + "\n" + done.stderr)


def add_dram(pair, row, options):
    """Adds DRAM bytes to the forms of a row; without counters it says so, once."""
    for form in (FUSED, UNFUSED, PYTORCH):
        if options.ncu and form in row["forms"]:
            try:
                row["forms"][form].update(dram_bytes(pair, form, options))
            except Refused as refused:
                print(f"note: no DRAM bytes: ncu says: {refused}", flush=True)
                options.ncu = False


# ---- report


def cell(value, text="{:.1f}"):
    return "" if value is None else text.format(value)


def expected_words(row):
    if not row["expected"]:
        return ""
    low, high = row["expected"]
    figures = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{figures} ({row['where']})" + (f", over {row['over']}" if row["over"] != UNFUSED else "")


def summary(rows):
    """A line for each pair, and what the unfused forms are."""
    dram = any("dram_read" in row["forms"][FUSED] for row in rows)
    names = ["pair", "shape", "launches", "MB by formula", *(["MB of DRAM"] * dram), "fused us", "unfused us",
             *(f"{name} us" for name in (PYTORCH, COMPILED, TRITON)), "GB/s", "over unfused", "over eager", "expected",
             "reason"]
    lines = ["Launches, bytes and bandwidth: fused / unfused / PyTorch / torch.compile, as far as they are known.\n",
             f"| {' | '.join(names)} |", "| --- | --- |" + " ---: |" * (len(names) - 4) + " --- | --- |"]
    for row in rows:
        forms = row["forms"]

        def beside(key, scale=1.0):
            known = [forms[name].get(key) for name in (FUSED, UNFUSED, PYTORCH, COMPILED) if name in forms]
            return " / ".join(f"{value / scale:.{1 if scale > 1 else 0}f}" for value in known if value is not None)

        def moved_in_dram(form):
            of = forms.get(form, {})
            return f"{(of['dram_read'] + of['dram_written']) / 1e6:.1f}" if "dram_read" in of else None

        in_dram = " / ".join(filter(None, map(moved_in_dram, (FUSED, UNFUSED, PYTORCH))))
        cells = [row["pair"], row["shape"], beside("launches"), beside("bytes", 1e6), *([in_dram] * dram),
                 *(cell(forms.get(name, {}).get("us")) for name in (FUSED, UNFUSED, PYTORCH, COMPILED, TRITON)),
                 beside("gb_per_s"), cell(row["over_unfused"], "{:.2f}"), cell(row["over_eager"], "{:.2f}"),
                 expected_words(row), row["reason"]]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| pair | unfused form |", "| --- | --- |"]
    lines += [f"| {row['pair']} | {row['unfused']} |" for row in rows]
    return "\n".join(lines)


def write(options, machine, rows):
    """Both files, after each pair: a run that is cut short leaves what it measured."""
    report.write(options.out, machine, rows, rounds=options.rounds)
    if options.roofline:
        options.roofline.write_text(json.dumps(roofline(machine, rows), indent=1) + "\n")


def parse_options():
    beside = pathlib.Path(__file__).resolve().parent.parent / "kernels"
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernels", type=pathlib.Path, default=beside, help="folder with the exported kernels")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write instead of one in bench/results/<gpu>")
    parser.add_argument("--roofline", type=pathlib.Path, help="JSON file to write for `fuse-analysis roofline`")
    parser.add_argument("--only", action="append", choices=[pair.name for pair in PAIRS], help="only this pair")
    parser.add_argument("--limit", type=float, help="begin no pair after so many seconds")
    parser.add_argument("--rounds", type=int, default=100, help="timed runs of each form")
    parser.add_argument("--warmup", type=int, default=20, help="runs before that")
    parser.add_argument("--resume", action="store_true", help="keep what the report holds and measure the other pairs")
    parser.add_argument("--ncu", action="store_true", help="count bytes of DRAM too, where ncu is on the PATH")
    parser.add_argument("--form", choices=(FUSED, UNFUSED, PYTORCH), help="the form that --once runs")
    parser.add_argument("--once", action="store_true", help="run one form of one pair once, and report nothing")
    parser.add_argument("--arch", help="load this architecture, such as sm_80, instead of the latest")
    parser.add_argument("--ptx", action="store_true", help="load PTX where there is a cubin")
    parser.add_argument("--compile-limit", type=float, default=120, help="seconds for torch.compile of a pair")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes a while")
    parser.add_argument("--list", action="store_true", help="name the pairs and their shapes, and do nothing")
    options = parser.parse_args()
    if options.once and not (options.form and options.only and len(options.only) == 1):
        parser.error("--once needs --form and one --only")
    return options


def measure_all(pairs, options, machine):
    """The rows, what failed, and what was left when the time was over."""
    begin, rows, failed, left = time.monotonic(), measured_before(options), [], []
    done = {row["pair"] for row in rows}
    for pair in pairs:
        if pair.name in done:
            continue
        if options.limit and time.monotonic() - begin > options.limit:
            left.append(pair.name)
            continue
        print(f"{pair.name} {pair.label}", flush=True)
        try:
            row = measure(pair, options)
        except (Exception, SystemExit) as error:  # One pair that cannot is no reason to stop.
            failed.append(f"{pair.name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
            print(f"FAILED: {failed[-1]}", flush=True)
        else:
            torch.cuda.empty_cache()
            add_dram(pair, row, options)
            rows.append(row)
            write(options, machine, rows)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    return rows, failed, left


def main():
    options = parse_options()
    pairs = [pair for pair in PAIRS if not options.only or pair.name in options.only]
    if options.list:
        for pair in pairs:
            print(f"{pair.name}: {pair.label}")
        return
    machine = start(options)
    if options.once:
        run_once(pairs[0], options.form, options)
        return
    report.place(options, machine, "pairs-dram" if options.ncu else "pairs")
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    if options.ncu and not shutil.which("ncu"):
        print("note: no DRAM bytes: there is no ncu on the PATH", flush=True)
        options.ncu = False
    rows, failed, left = measure_all(pairs, options, machine)
    if rows:
        print("\n" + summary(rows))
    for failure in failed:
        print(f"FAILED: {failure}")
    if left:
        print(f"\nnot measured within {options.limit:.0f} s: {', '.join(left)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

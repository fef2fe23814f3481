#!/usr/bin/env python3
"""Our kernels beside Triton, torch.compile, PyTorch and a plain copy, on the same tensors in one process.

    cargo run --release --example export -- kernels
    python3 bench/compare.py --kernels kernels
    python3 bench/compare.py --only softmax --only layer_norm --limit 300 --no-compile
    python3 bench/compare.py --limit 500 --resume    # again and again, until nothing is left
    python3 bench/compare.py --group norms --sweep --dtype bf16
    python3 bench/compare.py --group norms --graphs

Needs an NVIDIA GPU, PyTorch, Triton and cuda-python (cuda.bindings). Each result is first compared with float64, in
outputs filled with NaN. Then the contenders alternate, round after round, so that a drift of clocks meets all of them
alike; the L2 cache is overwritten before each run, and each run is timed by itself with device events, once its launches
are made: the device waits for them. Times are medians.
torch.compile runs as `max-autotune-no-cudagraphs`: a graph would copy its inputs in each run; it is left out of a case for
which it takes longer than --compile-limit. With --limit no case is begun after so many seconds, and what was measured by
then is reported; with --resume the cases that the report has are not measured again. With --graphs the shapes have few
rows and are in warm caches: a time is then that of one launch of a hundred in a CUDA graph, beside a kernel that does nothing.
The report goes to bench/results/<gpu>, under the names of what was chosen or as --what says.
"""

import argparse
import contextlib
import json
import pathlib
import re
import signal
import sys
import time

import torch

import exported
import report
from entry import NAMES, Entry, nothing, triton
from kernels import ENTRIES, GROUPS

OURS, FLOOR, EMPTY = "ours", "copy", "empty"
#: What a run waits for on the device, so that all its launches are made by then: cycles.
AHEAD = 1_000_000
#: Launches in a graph.
IN_GRAPH = 100


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
    share = error / bound
    worst = float(share.max())
    if worst > 1:
        index = int(share.argmax())
        raise Mismatch(f"element {index} is {float(got.flatten()[index])}, expected {float(value.flatten()[index])}")
    return float(error.max()), worst


def deviations(entry, results, exact):
    """The worst of all outputs."""
    results = entry.results(results if isinstance(results, (list, tuple)) else [results])
    found = [deviation(got, wanted) for got, wanted in zip(results, exact)]
    return max(error for error, _ in found), max(share for _, share in found)


def as_taken(args, params):
    """The arguments as an exported kernel with these parameters takes them, and the distance between the rows of each matrix. What is
    optional, and not there, has no elements."""
    ranks = {param["name"]: param.get("rank") for param in params}
    strides = {f"{name}_stride": arg.stride(0) for name, arg in args.items() if torch.is_tensor(arg) and arg.dim() == 2}
    absent = {param["name"]: exported.Slice(0, 0) for param in params if param["kind"].startswith("slice")}

    def taken(name, arg):
        if not torch.is_tensor(arg):
            return arg
        if not ranks.get(name):
            return exported.Slice(arg.data_ptr(), arg.numel())
        shape, strides = tuple(arg.shape), arg.stride()
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        return exported.View(arg.data_ptr(), last + 1 if arg.numel() else 0, shape, strides)

    return {**absent, **strides, **{name: taken(name, arg) for name, arg in args.items()}}


def prepare(entry, case, args, options):
    """Our launches as one function, their entry points and what was loaded."""
    runs, names, images = [], [], []
    for launch in entry.launches(case, args):
        record = exported.find(
            options.kernels, launch.kernel, launch.types, launch.consts, options.capability, options.arch)
        key = (record.folder, record.json["bodies"][0]["ptx"])
        if key not in options.loaded:
            options.loaded[key] = exported.Loaded(record, options.capability, options.ptx)
        loaded = options.loaded[key]
        grid = launch.grid(*record.json["consts"])
        taken = as_taken({**args, **launch.args}, record.json["params"])
        run, name = loaded.prepare(taken, grid, torch.cuda.current_stream().cuda_stream)
        runs.append(run)
        names.append(name)
        images.append(loaded.image)

    def all_of_them():
        for run in runs:
            run()

    return runs[0] if len(runs) == 1 else all_of_them, names, images[0]


def into_outputs(entry, args, run):
    """Runs in outputs filled with NaN; returns them."""
    def results():
        for name in entry.outputs:
            # All bits set: NaN in every float type.
            args[name].view(torch.uint8).fill_(0xFF)
        entry.prepare(args)
        run()
        return [args[name] for name in entry.outputs]
    return results


def check_small(entry, options):
    """Small shapes, on and off a boundary; gives how many and the entry points that ran."""
    count, names = 0, set()
    for case in entry.small:
        for shift in (0, 1):
            args = entry.make(case, shift)
            entry.prepare(args)
            exact = entry.exact(args)
            run, entries, _ = prepare(entry, case, args, options)
            try:
                deviations(entry, into_outputs(entry, args, run)(), exact)
            except Mismatch as mismatch:
                text = f"{entry.name} {entry.label(case)}, shifted by {shift}, {', '.join(entries)}: {mismatch}"
                raise Mismatch(text) from None
            count += 1
            names.update(entries)
    return count, names


# ---- time


@contextlib.contextmanager
def within(seconds):
    """Raises TimeoutError in what runs longer, wherever it is."""
    def stop(*_):
        raise TimeoutError(f"longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compile_in_time(entry, args, options):
    """The operation as torch.compile has it, compiled; None where that takes too long or fails."""
    inputs = [args[name] for name in entry.inputs]
    fast = torch.compile(entry.compute, mode="max-autotune-no-cudagraphs", dynamic=False)
    try:
        with within(options.compile_limit):
            fast(*inputs)
    except Exception as error:  # A peer that cannot is no reason to stop.
        first = (str(error).splitlines() or [""])[0]
        print(f"  note: torch.compile is left out: {type(error).__name__}: {first}", flush=True)
        torch._dynamo.reset()
        return None
    return lambda: fast(*inputs)


def contenders(entry, case, args, options):
    """By name: what to run, and what gives its results (None for a copy)."""
    run, names, image = prepare(entry, case, args, options)
    print(f"  {entry.label(case)}: {', '.join(names)}, {image}", flush=True)
    found = {OURS: (run, into_outputs(entry, args, run))}
    if triton is not None and type(entry).triton is not Entry.triton:
        def by_triton():
            entry.triton(args)
        found["Triton"] = by_triton, into_outputs(entry, args, by_triton)
    if not options.no_compile and (compiled := compile_in_time(entry, args, options)):
        found["torch.compile"] = (compiled,) * 2
    found["PyTorch"] = (lambda: entry.eager(args),) * 2
    found.update({name: (run,) * 2 for name, run in entry.others(args).items()})
    if entry.random:
        found = {name: (run, results if name == OURS else None) for name, (run, results) in found.items()}
    found[FLOOR] = entry.floor(args), None
    return found


def time_all(runs, rounds, warmup, flush=True):
    """Microseconds of each of `rounds` runs, by name; the contenders alternate, with a flushed L2 cache or a warm one."""
    flushed = torch.empty(256_000_000 if flush else 0, dtype=torch.uint8, device="cuda")
    names = list(runs)
    events = {name: [] for name in names}
    for turn in range(warmup + rounds):
        # The order rotates, so that no contender always runs after the same one.
        for name in names[turn % len(names):] + names[: turn % len(names)]:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flushed.zero_()
            torch.cuda._sleep(AHEAD)
            start.record()
            runs[name]()
            end.record()
            if turn >= warmup:
                events[name].append((start, end))
    torch.cuda.synchronize()
    return {name: sorted(1e3 * start.elapsed_time(end) for start, end in pairs) for name, pairs in events.items()}


def graph_of(run):
    """A hundred launches, one after the other; the current stream is not the default one."""
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for _ in range(IN_GRAPH):
            run()
    return graph


def time_graphs(runs, rounds, warmup):
    """As `time_all`, of one launch of a graph's, on warm caches."""
    graphs = {name: graph_of(run).replay for name, run in runs.items()}
    times = time_all(graphs, rounds, warmup, flush=False)
    return {name: [us / IN_GRAPH for us in of] for name, of in times.items()}


def quantile(ordered, share):
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def check_all(entry, case, found, exact):
    """The deviation of each contender; drops those that do not run at all."""
    errors = {}
    for name in list(found):
        result = found[name][1]
        if result is None:
            continue
        try:
            errors[name] = deviations(entry, result(), exact)
        except Mismatch as mismatch:
            if name == OURS:
                raise Mismatch(f"{entry.name} {entry.label(case)}: {mismatch}") from None
            errors[name] = (float("nan"), float("nan"))
            print(f"  note: {name} is beyond the bound: {mismatch}", flush=True)
        except Exception as error:  # A peer that cannot is no reason to stop.
            if name == OURS:
                raise
            first = (str(error).splitlines() or [""])[0]
            print(f"  note: {name} does not run: {type(error).__name__}: {first}", flush=True)
            del found[name]
    return errors


def measure(entry, case, options):
    """The rows of one case."""
    args = entry.make(case)
    entry.prepare(args)
    exact = entry.exact(args)
    found = contenders(entry, case, args, options)
    errors = check_all(entry, case, found, exact)
    del exact
    entry.prepare(args)
    torch.cuda.synchronize()
    runs = {name: run for name, (run, _) in found.items()}
    if options.graphs:
        runs[EMPTY] = nothing
    times = (time_graphs if options.graphs else time_all)(runs, options.rounds, options.warmup)
    traffic, flops, median = entry.traffic(args), entry.flops(case), {name: quantile(ordered, 0.5) for name, ordered in times.items()}
    best_peer = min((median[name] for name in median if name not in (OURS, FLOOR, EMPTY)), default=float("nan"))
    size, dtype = entry.size(case)
    rows = []
    for name, ordered in times.items():
        error = errors.get(name)
        rows.append({
            "kernel": entry.name, "group": entry.group, "shape": entry.label(case), "size": size, "dtype": dtype,
            "contender": name, "us": median[name], "p20": quantile(ordered, 0.2), "p80": quantile(ordered, 0.8),
            "min": ordered[0], "runs": len(ordered), "gb_per_s": traffic / median[name] / 1e3, "bytes": traffic,
            **({"tflops": flops / median[name] / 1e6} if flops and name != FLOOR else {}),
            "of_best_peer": best_peer / median[name], "of_copy": median[FLOOR] / median[name],
            "max_error": error[0] if error else None, "share_of_bound": error[1] if error else None,
        })
    return rows


# ---- report


def summary(rows):
    """One line a case: ours, each peer, and how they compare."""
    known = ["Triton", "torch.compile", "PyTorch"]
    more = dict.fromkeys(row["contender"] for row in rows if row["contender"] not in (OURS, *known, FLOOR, EMPTY))
    others = [*known, *more, FLOOR] + [EMPTY] * any(row["contender"] == EMPTY for row in rows)
    lines = [f"| kernel | shape | ours | {' | '.join(others)} | ours, of the best peer | of copy |",
             f"| --- | --- | ---: | {'---: | ' * len(others)}---: | ---: |"]
    cases = dict.fromkeys((row["kernel"], row["shape"]) for row in rows)
    for case in cases:
        of = {row["contender"]: row for row in rows if (row["kernel"], row["shape"]) == case}
        digits = 2 if EMPTY in of else 1
        cells = [f"{of[name]['us']:.{digits}f}" if name in of else "" for name in others]
        ours = of[OURS]
        lines.append(f"| {case[0]} | {case[1]} | {ours['us']:.{digits}f} us, {ours['gb_per_s']:.0f} GB/s | " + " | ".join(cells)
                     + f" | {ours['of_best_peer']:.3f} | {ours['of_copy']:.3f} |")
    return "\n".join(lines)


def chosen_words(options):
    """What was chosen, as the name of a report: `library` is all of it."""
    words = [*(options.group or ()), *(options.only or ()), *filter(None, (options.dtype, options.shape))]
    words += ["sweep"] * options.sweep + ["graphs"] * options.graphs
    return re.sub("[^a-z0-9_.]+", "-", "-".join(words).lower()) or "library"


def measured_before(options):
    """The rows of a report that is gone on with."""
    if not options.resume or not options.out.exists():
        return []
    return json.loads(options.out.read_text())["rows"]


def parse_options():
    beside = pathlib.Path(__file__).resolve().parent.parent / "kernels"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=pathlib.Path, default=beside, help="folder with the exported kernels")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write instead of one in bench/results/<gpu>")
    parser.add_argument("--what", help="name of the report in bench/results/<gpu>")
    parser.add_argument("--only", action="append", choices=[entry.name for entry in ENTRIES], help="only this operation")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group")
    parser.add_argument("--shape", help="only cases whose label has this in it, such as `x 4096 bf16`")
    parser.add_argument("--dtype", choices=list(NAMES.values()), help="only cases of this element type")
    parser.add_argument("--sweep", action="store_true", help="time the sizes of a sweep, for pictures")
    parser.add_argument("--graphs", action="store_true", help="time shapes of few rows, in CUDA graphs")
    parser.add_argument("--limit", type=float, help="begin no case after so many seconds")
    parser.add_argument("--rounds", type=int, default=100, help="timed runs of each contender")
    parser.add_argument("--warmup", type=int, default=20, help="runs before that")
    parser.add_argument("--arch", help="load this architecture, such as sm_80, instead of the latest")
    parser.add_argument("--ptx", action="store_true", help="load PTX where there is a cubin")
    parser.add_argument("--check", action="store_true", help="check small shapes and measure nothing")
    parser.add_argument("--no-check", action="store_true", help="measure, and check no small shapes")
    parser.add_argument("--resume", action="store_true", help="keep what the report holds and measure the other cases")
    parser.add_argument("--compile-limit", type=float, default=120, help="seconds for torch.compile of a case")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes a while")
    parser.add_argument("--list", action="store_true", help="name the operations and cases, and do nothing")
    return parser.parse_args()


def chosen(options):
    """The operations and cases to measure."""
    for entry in ENTRIES:
        if (options.only or options.group) and not (
                entry.name in (options.only or ()) or entry.group in (options.group or ())):
            continue
        cases = entry.sweep if options.sweep else entry.few if options.graphs else entry.cases
        labels = [(case, entry.label(case)) for case in cases]
        yield entry, [case for case, label in labels if (options.shape or "") in label
                      and (not options.dtype or label.split()[-1] == options.dtype)]


def start(options):
    """The machine in words; the CUDA context."""
    if not torch.cuda.is_available():
        raise SystemExit("there is no NVIDIA GPU that PyTorch can use")
    major, minor = torch.cuda.get_device_capability()
    options.capability = 10 * major + minor
    options.loaded = {}
    torch.cuda.init()
    torch.empty(1, device="cuda")  # Makes PyTorch's context the current one.
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
            "triton": triton.__version__ if triton else None}


def main():
    options = parse_options()
    if options.list:
        for entry, cases in chosen(options):
            print(f"{entry.group}: {entry.name}: {', '.join(entry.label(case) for case in cases)}")
        return
    begin = time.monotonic()
    machine = start(options)
    report.place(options, machine, options.what or chosen_words(options))
    if options.graphs:
        # The default stream cannot be captured.
        torch.cuda.set_stream(torch.cuda.Stream())
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    rows, failed, left = measured_before(options), False, []
    done = {(row["kernel"], row["shape"]) for row in rows}
    for entry, cases in chosen(options):
        cases = [case for case in cases if (entry.name, entry.label(case)) not in done]
        if not cases and done and not options.check:
            continue
        try:
            if not options.no_check:
                count, names = check_small(entry, options)
                print(f"{entry.name}: {count} small shapes agree with float64 ({len(names)} entry points)", flush=True)
            for case in cases if not options.check else ():
                if options.limit and time.monotonic() - begin > options.limit:
                    left.append(f"{entry.name} {entry.label(case)}")
                    continue
                rows += measure(entry, case, options)
                # After each case: a run that is cut short leaves what it measured.
                report.write(options.out, machine, rows, rounds=options.rounds)
                torch._dynamo.reset()
                torch.cuda.empty_cache()
        except Mismatch as mismatch:
            print(f"WRONG: {mismatch}", flush=True)
            failed = True
    if rows:
        print("\n" + summary(rows))
    if left:
        print(f"\nnot measured within {options.limit:.0f} s: {', '.join(left)}")
    sys.exit(failed)


if __name__ == "__main__":
    main()

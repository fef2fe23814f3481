#!/usr/bin/env python3
"""The time of every configuration of a matmul, on shapes drawn at random, and the library's model fitted to that.

    python3 bench/configs.py --kernels kernels --seed 1
    python3 bench/configs.py --fit bench/results/h100/configs-1128.json bench/results/h200/configs-1127.json

The first measures every block, split-K count and copy of misaligned operands beside cuBLAS, as `sweep.py` does, and checks each against
a matmul in f32. The second needs NumPy and SciPy and no GPU: it fits the model of `matmul_heuristic` to such files and says how
far the configuration that it chooses is from the best one.
"""

import argparse
import json
import math
import pathlib
import random
import time

import heuristic
import report
from heuristic import BLOCKS, PARTS, kernels


def drawn(seed, number):
    """Layout and extents of a case."""
    from sweep import extent
    draw = random.Random(f"{seed} configs {number}")
    return draw.choice(("NN", "NT", "TN", "TT")), [extent(draw, 16, 8192) for _ in range(3)]


def configs(extents, aligned, by_columns):
    """Every configuration that the model chooses among, with its name."""
    m, k, n = extents
    for block, _, _, in_parts, _ in BLOCKS:
        for parts in PARTS:
            many = heuristic.cdiv(m, block[0]) * heuristic.cdiv(n, block[1]) * parts > 2 * heuristic.sm_count()
            whole, in_parts = kernels(block, in_parts, 2, by_columns)
            few = parts > 1 and (not in_parts or many or k // parts < 128 or 4 * parts * m * n > 1 << 28)
            if few or parts == 1 and not whole:
                continue
            for copies in (False,) if all(aligned) else (False, True):
                yield f"{'x'.join(map(str, block))} {parts} {int(copies)}", block, parts, copies


# ---- measuring


def measure(options):
    import torch
    import sweep
    from compare import prepare, quantile, start, time_all
    from entry import BF16

    machine, begin, rows = start(options), time.monotonic(), []
    report.place(options, machine, "configs", options.seed)
    for number in range(options.count):
        if time.monotonic() - begin > options.limit:
            break
        layout, (m, k, n) = drawn(options.seed, number)
        entry, case = sweep.Product(layout), (m, k, n, BF16)
        args = entry.make(case)
        operands = args["a"], entry.right(args)
        aligned = [heuristic.is_aligned(operand) for operand in operands]
        by_columns = operands[1].stride(0) == 1 != operands[1].stride(1)
        exact = operands[0].float() @ operands[1].float()
        runs, kept = {"cuBLAS": entry.peer(args)}, []
        for name, block, parts, copies in configs((m, k, n), aligned, by_columns):
            entry.few_tile = lambda _: None
            entry.config = lambda *_: (block, parts, [copies and not even for even in aligned])
            own = dict(args)
            run, _, _ = prepare(entry, case, own, options)
            kept.append(own)
            args["out"].fill_(math.nan)
            run()
            if not ((args["out"].float() - exact).abs() <= 0.05 * (exact.abs() + k**0.5)).all():
                raise SystemExit(f"wrong: {layout} {m} x {k} x {n} by {name}")
            runs[name] = run
        times = {name: quantile(of, 0.5) for name, of in time_all(runs, options.rounds, 2).items()}
        rows.append({"layout": layout, "extents": [m, k, n], "aligned": aligned, "by_columns": by_columns, "us": times})
        report.write(options.out, machine, rows, seed=options.seed, rounds=options.rounds)
        torch.cuda.empty_cache()
    print(f"{len(rows)} products in {options.out}")


# ---- fitting


#: How much less a configuration counts that takes twice as long as the best one of its matmul: the choice is among those near the best.
NEAR = 3


def fit(files):
    import numpy
    from scipy.optimize import least_squares

    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    heuristic.sm_count = lambda: 132
    names = [(f"{kind} {'x'.join(map(str, block))}") for block, *_ in BLOCKS for kind in ("copied", "loaded")]

    def within(row):
        """Whether rows or columns of each operand begin within sectors, by the extents."""
        m, k, n = row["extents"]
        lines = k if row["layout"][0] == "N" else m, n if row["layout"][1] == "N" else k
        return [2 * line % 32 != 0 for line in lines]

    def estimate(x, row, config):
        launch, *costs = x[:9]
        times, stored = x[9:-len(BLOCKS)].reshape(len(BLOCKS), 2, 2), x[-len(BLOCKS):]
        _, block, parts, copies = config
        place = [of[0] for of in BLOCKS].index(block)
        own = BLOCKS[place]
        timed = (block, *((*times[place][kind], own[1 + kind][2]) for kind in range(2)), own[3], stored[place])
        return launch + heuristic.estimate(row["extents"], timed, parts, copies, row["aligned"], costs, within=within(row),
                                           odd=row["extents"][2] % 8 != 0)

    def all_configs(row):
        return [config for config in configs(row["extents"], row["aligned"], row["by_columns"]) if config[0] in row["us"]]

    def best_of(row):
        return min(us for name, us in row["us"].items() if name != "cuBLAS")

    samples = [(row, config, row["us"][config[0]]) for row in rows for config in all_configs(row)]
    weights = numpy.array([(best_of(row) / us) ** NEAR for row, _, us in samples])
    start = numpy.array([5.0, *heuristic.COSTS] + [max(number, 0.02) for of in BLOCKS for kind in (1, 2) for number in of[kind][:2]]
                        + [of[4] for of in BLOCKS])

    def errors(y):
        return numpy.array([math.log(estimate(start * numpy.exp(y), row, config) / us) for row, config, us in samples])

    def weighed(y):
        # What no sample says anything of stays as it was.
        return numpy.concatenate([errors(y) * weights, 0.05 * y])

    y = least_squares(weighed, numpy.zeros(len(start)), bounds=(-4, 2), loss="soft_l1", f_scale=0.1, diff_step=1e-3, max_nfev=40).x
    x = start * numpy.exp(y)
    print(f"launch {x[0]:.2f}, costs " + ", ".join(f"{number:.3g}" for number in x[1:9]))
    for name, (step, fixed) in zip(names, x[9:-len(BLOCKS)].reshape(-1, 2)):
        print(f"{name}: step {step:.3f}, fixed {fixed:.2f}")
    print("stored by threads: " + ", ".join(f"{number:.2f}" for number in x[-len(BLOCKS):]))
    print(f"half of {len(samples)} estimates are within {numpy.median(numpy.abs(errors(y))):.3f}")
    chosen, best = [], []
    for row in rows:
        config = min(all_configs(row), key=lambda config: estimate(x, row, config))
        chosen.append(row["us"]["cuBLAS"] / row["us"][config[0]])
        best.append(row["us"]["cuBLAS"] / best_of(row))
    for name, of in (("the config chosen", chosen), ("the best config", best)):
        print(f"cuBLAS of {name}: median {numpy.median(of):.2f}, tenth percentile {numpy.quantile(of, 0.1):.2f}, worst {min(of):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=pathlib.Path, help="folder with the exported kernels")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write instead of one in bench/results/<gpu>")
    parser.add_argument("--seed", type=int, default=0, help="what shapes are drawn from")
    parser.add_argument("--count", type=int, default=200, help="products")
    parser.add_argument("--limit", type=float, default=150, help="begin none after so many seconds")
    parser.add_argument("--rounds", type=int, default=10, help="timed runs of each configuration")
    parser.add_argument("--fit", type=pathlib.Path, nargs="+", metavar="FILE", help="fit the model to these, and measure nothing")
    options = parser.parse_args()
    options.arch, options.ptx = None, False
    fit(options.fit) if options.fit else measure(options)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Pictures of what `compare.py --sweep` measured: bandwidth against size, one line for each contender.

    python3 bench/plot.py bench/results/h200/norms-bf16-sweep.json --to docs/pictures

Writes one SVG for each operation and element type. Needs matplotlib.
"""

import argparse
import collections
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend)

STYLE = {
    "ours": {"color": "#c0392b", "linewidth": 2.4, "marker": "o", "zorder": 5},
    "Triton": {"color": "#2980b9", "marker": "s"},
    "torch.compile": {"color": "#27ae60", "marker": "^"},
    "PyTorch": {"color": "#8e44ad", "marker": "v"},
    "copy": {"color": "#7f8c8d", "linestyle": "--"},
}


def lines(rows):
    """By operation and element type, by contender: sizes and bandwidths."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        if row["size"] is not None:
            found[row["kernel"], row["dtype"]][row["contender"]].append((row["size"], row["gb_per_s"]))
    return {key: of for key, of in found.items() if any(len(points) > 1 for points in of.values())}


def draw(title, contenders, machine, path):
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, style in STYLE.items():
        points = sorted(contenders.get(name, ()))
        if points:
            axes.plot(*zip(*points), label=name, **{"linewidth": 1.5, "markersize": 5, **style})
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("columns, or elements of what has no rows")
    axes.set_ylabel("GB/s of bytes that must move")
    axes.set_title(f"{title}, {machine}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    # No date in the file, so that the same measurements give the same picture.
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=pathlib.Path, nargs="+", help="JSON files of compare.py")
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("docs/pictures"), help="folder to write to")
    options = parser.parse_args()
    plt.rcParams["svg.hashsalt"] = "fuse"
    options.to.mkdir(parents=True, exist_ok=True)
    reports = [json.loads(path.read_text()) for path in options.results]
    rows = [row for report in reports for row in report["rows"]]
    for (kernel, dtype), contenders in lines(rows).items():
        path = options.to / f"{kernel}_{dtype}.svg"
        draw(f"{kernel} {dtype}", contenders, reports[0]["machine"]["gpu"], path)
        print(path)


if __name__ == "__main__":
    main()

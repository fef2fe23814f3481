#!/usr/bin/env python3
"""Measures what a GPU attains, for `fuse-analysis`: bandwidths, matmuls, and launch overheads.

    python3 bench/ceilings.py --out ~/.cache/fuse/devices
    cargo run --release -p fuse-analysis -- analyze analysis/models/llama_3_8b_layer.toml

Writes `<folder>/<name>.json`, which the analyzer uses instead of its built-in values. Everything is measured with PyTorch's
kernels, so that the library's own times are compared with independent ceilings. Bandwidth is that of an
elementwise kernel that reads and writes 512 MB. A launch's overhead is what an elementwise kernel of few megabytes takes
beyond its bytes, the median of several sizes; that of a following launch is what a chain of them takes for each further
one beyond its bytes. The bandwidth of the L2 cache is that of a chain whose tensors stay there, by what larger ones take more.
A matmul's overhead is the time of cuBLAS for 16 rows beyond the weights' bytes and a launch.
"""

import argparse
import json
import pathlib
import re
import statistics

import torch

from compare import quantile, time_all
from entry import BF16, F16, F8

MIB = 1 << 20


def median(run, rounds=30, flush=True):
    """Seconds, in the median."""
    return 1e-6 * quantile(time_all({"run": run}, rounds, 5, flush)["run"], 0.5)


def chain(buffers, cold=True):
    """Seconds of a kernel for each pair of buffers."""
    def run():
        for x, y in buffers:
            torch.neg(x, out=y)
    return median(run, flush=cold)


def pairs(count, size):
    """Buffers of `size` bytes, two for each launch."""
    return [tuple(torch.zeros(size // 4, device="cuda") for _ in range(2)) for _ in range(count)]


def launches(bandwidth):
    """What a first launch adds, and a following one, in seconds."""
    sizes = [size * MIB for size in (2, 4, 8, 16)]
    first, following = [], []
    for size in sizes:
        one, several = chain(pairs(1, size)), chain(pairs(9, size))
        first.append(one - 2 * size / bandwidth)
        following.append((several - one) / 8 - 2 * size / bandwidth)
    print("first", [f"{1e6 * s:.2f}" for s in first], "following", [f"{1e6 * s:.2f}" for s in following], flush=True)
    return statistics.median(first), statistics.median(following)


def cached():
    """The bandwidth of the L2 cache: bytes a second of what the larger of two sizes takes more, in and out."""
    small, large = 2 * MIB, 12 * MIB
    times = [chain(pairs(1, size) * 9, cold=False) for size in (small, large)]
    return 9 * 2 * (large - small) / (times[1] - times[0])


def product_overhead(bandwidth, first):
    """The time of matmuls of 16 rows beyond their bytes and a launch, in seconds."""
    found = []
    for k, n in ((2048, 3072), (4096, 4096), (4096, 6144), (2048, 16384)):
        x, weight = torch.randn(16, k, device="cuda").to(BF16), torch.randn(n, k, device="cuda").to(BF16)
        found.append(median(lambda: x @ weight.T) - 2 * n * k / bandwidth - first)
    print("products", [f"{1e6 * s:.2f}" for s in found], flush=True)
    return statistics.median(found)


def products():
    """Operations a second of cuBLAS, by the type of operands."""
    n, found = 8192, {}
    a = torch.randn(n, n, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    runs = {"tf32": lambda: a @ a}
    for name, dtype in (("bf16", BF16), ("f16", F16)):
        runs[name] = lambda of=a.to(dtype): of @ of
    int8 = (10 * a).clamp(-100, 100).to(torch.int8)
    runs["i8"] = lambda: torch._int_mm(int8, int8.T)
    narrow, one = a.to(F8), torch.ones((), device="cuda")
    runs["f8e4m3"] = lambda: torch._scaled_mm(narrow, narrow.T, scale_a=one, scale_b=one, out_dtype=BF16)
    for name, run in runs.items():
        try:
            found[name] = 2 * n**3 / median(run, 10)
        except RuntimeError as error:  # A card without such a matmul.
            print(f"note: no product of {name}: {str(error).splitlines()[0]}", flush=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    b = a[:4096, :4096].contiguous()
    return found, 2 * 4096**3 / median(lambda: b @ b, 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder to write to")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no NVIDIA GPU that PyTorch can use")
    properties = torch.cuda.get_device_properties(0)

    (x, y), = pairs(1, 512 * MIB)
    bandwidth = 2 * 512 * MIB / median(lambda: torch.neg(x, out=y))
    first, following = launches(bandwidth)
    tensor, scalar = products()

    def measured(value, source):
        return {"nominal": None, "measured": value, "source": f"bench/ceilings.py: {source}"}

    device = {
        "name": properties.name,
        "bandwidth": measured(bandwidth, "an elementwise kernel of 512 MiB"),
        "l2_bandwidth": measured(cached(), "elementwise kernels of 2 and 12 MiB, warm, by the difference"),
        "l2_bytes": properties.L2_cache_size,
        "tensor": {name: measured(value, "cuBLAS, 8192^3") for name, value in tensor.items()},
        "scalar": {"f32": measured(scalar, "cuBLAS without tensor cores, 4096^3")},
        "launch_overhead": measured(first, "elementwise kernels of 2 to 16 MiB, beyond their bytes"),
        "following_launch": measured(following, "nine of them, each beyond the first"),
        "product_overhead": measured(product_overhead(bandwidth, first), "cuBLAS, 16 rows, beyond bytes and a launch"),
        "processors": properties.multi_processor_count,
        "registers_per_thread": 255,
        "on_chip_bytes": 256 << 10,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / (re.sub("[^a-z0-9]", "-", properties.name.lower()) + ".json")
    path.write_text(json.dumps(device, indent=2) + "\n")
    print(json.dumps(device, indent=2), f"\nkept in {path}", sep="")


if __name__ == "__main__":
    main()

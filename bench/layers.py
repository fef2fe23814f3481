#!/usr/bin/env python3
"""A decoder's layers whole: the library's `DecoderLayer` and `GatedFeedForward` beside the same operations one by one, PyTorch
and torch.compile.

    cargo build --release -p fused-kernels --example transformer
    python3 bench/layers.py --binary target/release/examples/transformer --measurements analysis/measured
    python3 bench/layers.py --model 8b --tokens 16 --mode max-autotune-no-cudagraphs

The library's times are those of the example, which compares its two forms with each other; its kernels are compared with
float64 by the library's tests. Both programs time with device events behind a write of all of the L2 cache, one after the
other on the same machine; times are medians. With --measurements each size leaves a file there for `fuse-analysis check`.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

import compare
import report
from compare import quantile, start, time_all
from entry import BF16, normal

#: Elements of a row, of the middle, heads of queries, of keys, elements of a head.
MODELS = {"1b": (2048, 8192, 32, 8, 64), "8b": (4096, 14336, 32, 8, 128)}
TOKENS = (1, 16, 64, 256, 1024, 4096, 8192)
#: Cycles in which PyTorch makes the launches of a layer. Where kernels take longer than their launches nothing waits, as nothing does in
#: the example: a GPU that waits between runs has a higher clock in them.
AHEAD = 4_000_000
#: The least time of a measurement in microseconds, that of the example's.
LEAST = 3e5
EPS = 1e-5
DECODER, FEED_FORWARD = "decoder layer", "feed-forward"


class Layer:
    """A layer's weights, and the layer in PyTorch's words."""

    def __init__(self, model, tokens):
        self.k, self.f, self.queries, self.keys, self.dim = MODELS[model]
        self.tokens, columns = tokens, (self.queries + 2 * self.keys) * self.dim

        def weight(n, k, seed):
            return (normal(n * k, torch.float32, seed).view(n, k) / k**0.5).to(BF16)

        self.qkv, self.up = weight(columns, self.k, 1), weight(2 * self.f, self.k, 2)
        self.output, self.down = weight(self.k, self.queries * self.dim, 3), weight(self.k, self.f, 4)
        self.gamma = torch.ones(self.k, dtype=BF16, device="cuda")
        pairs = torch.arange(self.dim // 2, device="cuda")
        angles = torch.arange(tokens, device="cuda")[:, None] * 10000.0 ** (-pairs / (self.dim // 2))
        self.cos, self.sin = angles.cos()[:, None].to(BF16), angles.sin()[:, None].to(BF16)
        self.x = normal(tokens * self.k, BF16, 5).view(tokens, self.k)

    def rotated(self, x):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * self.cos - b * self.sin, b * self.cos + a * self.sin), -1).flatten(-2)

    def feed_forward(self, x):
        gate, value = F.linear(F.rms_norm(x, (self.k,), self.gamma, EPS), self.up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * value, self.down)

    def decoder(self, x):
        rows = F.linear(F.rms_norm(x, (self.k,), self.gamma, EPS), self.qkv)
        q, k, v = rows.view(self.tokens, -1, self.dim).split((self.queries, self.keys, self.keys), 1)
        q, k, v = (part.transpose(0, 1)[None] for part in (self.rotated(q), self.rotated(k), v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        middle = x + F.linear(attended[0].transpose(0, 1).reshape(self.tokens, -1), self.output)
        return self.feed_forward(middle)


def compiled(of, x, mode):
    """The function by torch.compile, once it has run; nothing where that fails, with the reason."""
    torch._dynamo.reset()
    try:
        fast = torch.compile(of, dynamic=False, **({"mode": mode} if mode else {}))
        size = of(x).float().square().mean().sqrt()
        error = float((fast(x).float() - of(x).float()).abs().max() / size)
    except Exception as error:  # A peer that cannot is no reason to stop.
        print(f"  note: torch.compile does not run: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        return None
    if not error < 0.2:
        print(f"  note: torch.compile is {error:.2f} of the root mean square away from PyTorch")
    return lambda: fast(x)


def outlasts_its_launches(run):
    """Whether the device is busy for longer than it takes to make the launches."""
    repeats = 10
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    made = time.perf_counter() - begin
    torch.cuda.synchronize()
    return time.perf_counter() - begin > 1.5 * made


def ours(options, model, tokens):
    """Points of the example's measurements: those of several launches by their form and the number of names, and all."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "points.json"
        command = [options.binary, "--model", model, "--tokens", str(tokens), "--measurements", path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
        print(done.stdout.strip(), flush=True)
        measured = json.loads(path.read_text())
    if options.measurements:
        name = f"{model}_layer_{tokens}_{measured['device'].split()[1].lower()}.json"
        (options.measurements / name).write_text(json.dumps(measured, indent=1) + "\n")
    chains = [point for point in measured["points"] if ";" in point["name"]]
    names = (DECODER, "fused"), (DECODER, "one by one"), (FEED_FORWARD, "fused"), (FEED_FORWARD, "one by one")
    return {key: (1e6 * point["seconds"], point["name"].count(";") + 1) for key, point in zip(names, chains)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path("target/release/examples/transformer"))
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--tokens", type=int, action="append")
    parser.add_argument("--mode", help="of torch.compile; its default without")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a run of the example")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file to write instead of one in bench/results/<gpu>")
    parser.add_argument("--measurements", type=pathlib.Path, help="a folder for what the analyzer compares its predictions with")
    options = parser.parse_args()
    machine, rows = start(options), []
    report.place(options, machine, "-".join(filter(None, ("layers", options.mode))))
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    for model in options.model or MODELS:
        for tokens in options.tokens or TOKENS:
            times, layer = ours(options, model, tokens), Layer(model, tokens)
            for part, of in ((DECODER, layer.decoder), (FEED_FORWARD, layer.feed_forward)):
                runs = {"PyTorch": lambda: of(layer.x), "torch.compile": compiled(of, layer.x, options.mode)}
                runs = {name: run for name, run in runs.items() if run}
                compare.AHEAD = 0 if all(map(outlasts_its_launches, runs.values())) else AHEAD
                (fused, launches), (apart, apart_launches) = times[part, "fused"], times[part, "one by one"]
                rounds = max(options.rounds, int(LEAST / fused / len(runs)))
                peers = {name: quantile(times, 0.5) for name, times in time_all(runs, rounds, 5).items()}
                rows.append({"model": model, "tokens": tokens, "part": part, "launches": launches, "us": fused,
                             "one_by_one_launches": apart_launches, "one_by_one_us": apart, **peers})
                shown = ", ".join(f"{name} {us:.1f}" for name, us in peers.items())
                print(f"{model} {tokens} {part}: {launches} launches {fused:.1f} us; {apart_launches} {apart:.1f}; {shown}",
                      flush=True)
            report.write(options.out, machine, rows, mode=options.mode, rounds=options.rounds)
            del layer
            torch.cuda.empty_cache()


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())

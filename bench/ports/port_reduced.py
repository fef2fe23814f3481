"""Ports of `reduced.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, cdiv, empty, normal
from port import Port, integers, over_rows

#: Elements of a point.
D = 128


class NearestCentroid(Port):
    """A case is (points, centroids)."""

    name = "nearest_centroid"
    outputs = ("labels", "distances")
    cases = [(1 << 20, 1024), (1000000, 500)]

    def label(self, case):
        return super().label((*case, D))

    def make(self, case, shift=0):
        n, k = case
        centroids = normal(k * D, BF16, 2).view(k, D)
        return {"x": normal(n * D, BF16, 1).view(n, D), "centroids": centroids,
                "norms": centroids.double().square().sum(1).float(), "labels": empty(n, torch.int32),
                "distances": empty(n, F32), "n": n, "k": k}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 128),)

    def exact(self, args):
        centroids = args["centroids"].double()
        norms = centroids.square().sum(1)
        self.points = args["x"], centroids

        def nearest(x):
            x = x.double()
            squares = x.square().sum(1)
            value = squares + (norms - 2 * x @ centroids.T).amin(1)
            # A dot is at most the mean of the squares.
            return value, (D + 8) * 4 * SINGLE * (squares + norms.max())

        value, within = over_rows(nearest, args["x"], 65536)
        return [(value, 2 * within), (value, within)]

    def results(self, results):
        """Instead of the labels, the distances of the centroids that they name: two may be almost as near."""
        labels, distances = results
        x, centroids = self.points
        parts = zip(x.split(65536), labels.long().clamp(0, centroids.shape[0] - 1).split(65536))
        named = [(part.double() - centroids[chosen]).square().sum(1) for part, chosen in parts]
        return [torch.cat(named), distances]

    def run_triton(self, case, args):
        names = ("x", "centroids", "norms", "labels", "distances", "n", "k")
        nearest_centroid[self.grid(case, args)](*(args[name] for name in names), D=D, M=128, N=128, num_warps=8)


class LinearCrossEntropy(Port):
    """A case is (tokens, elements of a token, words)."""

    name = "linear_cross_entropy"
    outputs = ("loss", "lse")
    cases = [(16384, 768, 32000), (16000, 1000, 10000)]

    def make(self, case, shift=0):
        tokens, d, vocabulary = case
        return {"x": normal(tokens * d, BF16, 1).view(tokens, d),
                "w": normal(vocabulary * d, BF16, 2, scale=d**-0.5).view(vocabulary, d),
                "targets": integers(0, vocabulary, tokens, torch.int32, 3), "loss": empty(tokens, F32),
                "lse": empty(tokens, F32), "tokens": tokens, "vocabulary": vocabulary, "d": d}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 128),)

    def exact(self, args):
        w, d, parts = args["w"].double().T, args["d"], []
        for x, targets in zip(args["x"].split(1024), args["targets"].split(1024)):
            logits = x.double() @ w
            moved = (d + 2) * 2 * SINGLE * (x.double().abs() @ w.abs()).amax(1)
            lse, hit = torch.logsumexp(logits, 1), logits.gather(1, targets.long()[:, None])[:, 0]
            spread = 2 * (logits.amax(1) - logits.amin(1))
            within = moved + (16 + math.sqrt(args["vocabulary"]) + spread) * SINGLE + 2 * SINGLE * lse.abs()
            parts.append((lse - hit, within + moved + 4 * SINGLE * hit.abs(), lse, within))
        found = tuple(torch.cat(of) for of in zip(*parts))
        return [found[0:2], found[2:4]]

    def run_triton(self, case, args):
        names = ("x", "w", "targets", "loss", "lse", "tokens", "vocabulary", "d")
        linear_cross_entropy[self.grid(case, args)](*(args[name] for name in names), M=128, N=128, K=64, num_warps=4,
                                                    num_stages=3)


PORTS = [NearestCentroid(), LinearCrossEntropy()]


@triton.jit
def nearest_centroid(x_ptr, centroids_ptr, norms_ptr, labels_ptr, distances_ptr, n, k, D: tl.constexpr, M: tl.constexpr,
                     N: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    offs_d = tl.arange(0, D)
    x = tl.load(x_ptr + rows[:, None] * D + offs_d[None, :], rows[:, None] < n, 0.0)
    label = tl.zeros([M], dtype=tl.int32)
    nearest = tl.full([M], float("inf"), dtype=tl.float32)
    for start in range(0, k, N):
        ids = start + tl.arange(0, N)
        c = tl.load(centroids_ptr + ids[None, :] * D + offs_d[:, None], ids[None, :] < k, 0.0)
        norm = tl.load(norms_ptr + ids, ids < k, float("inf"))
        distance, at = tl.min(norm[None, :] - 2.0 * tl.dot(x, c), 1, return_indices=True)
        label = tl.where(distance < nearest, start + at, label)
        nearest = tl.minimum(nearest, distance)
    x = x.to(tl.float32)
    tl.store(labels_ptr + rows, label, rows < n)
    tl.store(distances_ptr + rows, tl.sum(x * x, 1) + nearest, rows < n)


@triton.jit
def linear_cross_entropy(x_ptr, w_ptr, targets_ptr, loss_ptr, lse_ptr, tokens, vocabulary, d, M: tl.constexpr,
                         N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    target = tl.load(targets_ptr + rows, rows < tokens, -1)
    peak = tl.full([M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([M], dtype=tl.float32)
    hit = tl.zeros([M], dtype=tl.float32)
    for first in range(0, vocabulary, N):
        words = first + tl.arange(0, N)
        logits = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, d, K):
            inner = start + tl.arange(0, K)
            x = tl.load(x_ptr + rows[:, None] * d + inner[None, :], (rows[:, None] < tokens) & (inner[None, :] < d), 0.0)
            w = tl.load(w_ptr + words[None, :] * d + inner[:, None], (inner[:, None] < d) & (words[None, :] < vocabulary),
                        0.0)
            logits = tl.dot(x, w, logits)
        hit += tl.sum(tl.where(words[None, :] == target[:, None], logits, 0.0), 1)
        logits = tl.where(words[None, :] < vocabulary, logits, -float("inf"))
        new_peak = tl.maximum(peak, tl.max(logits, 1))
        total = total * tl.exp(peak - new_peak) + tl.sum(tl.exp(logits - new_peak[:, None]), 1)
        peak = new_peak
    lse = peak + tl.log(total)
    tl.store(lse_ptr + rows, lse, rows < tokens)
    tl.store(loss_ptr + rows, lse - hit, rows < tokens)

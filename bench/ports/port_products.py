"""Ports of `products.rs`."""

import torch
import triton
import triton.language as tl

from entry import BF16, cdiv, empty, normal, rounded
from port import Port, inner_product, integers


class Matmul(Port):
    """A case is (m, k, n, whether `b` is column-major)."""

    name = "matmul"
    cases = [(4096, 4096, 4096, False), (4096, 4096, 4096, True), (8192, 1024, 8192, False), (3000, 3000, 3000, False)]

    def label(self, case):
        return super().label(case[:3]) + (" NT" if case[3] else " NN")

    def make(self, case, shift=0):
        m, k, n, transposed = case
        b = normal(k * n, BF16, 2)
        b = b.view(n, k).T if transposed else b.view(k, n)
        return {"a": normal(m * k, BF16, 1).view(m, k), "b": b, "c": empty(m * n, BF16).view(m, n), "m": m, "n": n, "k": k,
                "stride_am": k, "stride_ak": 1, "stride_bk": b.stride(0), "stride_bn": b.stride(1), "stride_cm": n,
                "stride_cn": 1}

    outputs = ("c",)
    names = ("a", "b", "c", "m", "n", "k", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")

    def grid(self, case, args, *consts):
        m, _, n, _ = case
        return (cdiv(m, 128) * cdiv(n, 256),)

    def exact(self, args):
        value, within = inner_product(args["a"].double(), args["b"].double())
        return [rounded(torch.where(value >= 0, value, 0.01 * value), within, BF16)]

    def run_triton(self, case, args):
        matmul[self.grid(case, args)](*(args[name] for name in self.names), M=128, N=256, K=64, GROUP=8, num_warps=8,
                                      num_stages=3)


def sorted_by_expert(chosen, count, tile):
    """The entries of tokens by their expert, those of one filled up to whole tiles, and the expert of each tile."""
    sorted_entries, experts = [], []
    for expert in range(count):
        entries = [i for i, of in enumerate(chosen) if of == expert]
        sorted_entries += entries + [len(chosen)] * (-len(entries) % tile)
        experts += [expert] * cdiv(len(entries), tile)
    return tuple(torch.tensor(of, dtype=torch.int32, device="cuda") for of in (sorted_entries, experts))


class ExpertMatmul(Port):
    """A case is (tokens, experts of a token, experts, k, n)."""

    name = "expert_matmul"
    outputs = ("c",)
    cases = [(4096, 2, 8, 4096, 4096), (512, 2, 64, 2048, 1408)]
    tile = 64

    def make(self, case, shift=0):
        tokens, top_k, count, k, n = case
        chosen = integers(0, count, tokens * top_k, torch.int64, 3).tolist()
        sorted_entries, experts = sorted_by_expert(chosen, count, self.tile)
        return {"a": normal(tokens * k, BF16, 1).view(tokens, k), "b": normal(count * n * k, BF16, 2).view(count, n, k),
                "c": empty(tokens * top_k * n, BF16).view(tokens * top_k, n), "sorted": sorted_entries, "experts": experts,
                "chosen": chosen, "n": n, "k": k, "padded": sorted_entries.numel(), "valid": len(chosen), "top_k": top_k,
                "stride_am": k, "stride_ak": 1, "stride_be": n * k, "stride_bk": 1, "stride_bn": k, "stride_cm": n,
                "stride_cn": 1}

    names = ("a", "b", "c", "sorted", "experts", "n", "k", "padded", "valid", "top_k", "stride_am", "stride_ak",
             "stride_be", "stride_bk", "stride_bn", "stride_cm", "stride_cn")

    def grid(self, case, args, *consts):
        return (args["experts"].numel() * cdiv(case[4], 128),)

    def exact(self, args):
        chosen = torch.tensor(args["chosen"], device="cuda")
        value, within = (torch.empty_like(args["c"], dtype=torch.float64) for _ in range(2))
        for expert in range(args["b"].shape[0]):
            entries = (chosen == expert).nonzero()[:, 0]
            rows = args["a"][entries // args["top_k"]].double()
            value[entries], within[entries] = inner_product(rows, args["b"][expert].double().T)
        return [rounded(value, within, BF16)]

    def run_triton(self, case, args):
        expert_matmul[self.grid(case, args)](*(args[name] for name in self.names), M=64, N=128, K=64, GROUP=8, num_warps=4,
                                             num_stages=3)


class Lora(Port):
    """A case is (m, k, n)."""

    name = "lora"
    cases = [(16384, 4096, 4096), (8000, 3000, 5000)]
    rank = 16

    def make(self, case, shift=0):
        m, k, n = case
        return {"x": normal(m * k, BF16, 1).view(m, k), "a": normal(k * self.rank, BF16, 2).view(k, self.rank),
                "b": normal(self.rank * n, BF16, 3).view(self.rank, n), "out": empty(m * n, BF16).view(m, n), "m": m, "n": n,
                "k": k, "scale": 0.5}

    def grid(self, case, args, *consts):
        return (cdiv(case[0], 64),)

    def exact(self, args):
        small, moved = (args["scale"] * of for of in inner_product(args["x"].double(), args["a"].double()))
        moved, b = moved + small.abs() * 2.0**-8, args["b"].double()
        value, within = inner_product(small, b)
        return [rounded(value, within + moved @ b.abs(), BF16)]

    def run_triton(self, case, args):
        lora[self.grid(case, args)](*(args[name] for name in ("x", "a", "b", "out", "m", "n", "k", "scale")), M=64, N=128,
                                    K=64, RANK=16, num_warps=4, num_stages=3)


class WeightGradient(Port):
    """A case is (rows, m, n)."""

    name = "weight_gradient"
    outputs = ("c",)
    cases = [(8192, 4096, 4096), (16384, 1000, 3000)]

    def make(self, case, shift=0):
        k, m, n = case
        return {"a": normal(k * m, BF16, 1).view(k, m), "b": normal(k * n, BF16, 2).view(k, n),
                "c": empty(m * n, BF16).view(m, n), "m": m, "n": n, "k": k}

    def grid(self, case, args, *consts):
        return cdiv(case[1], 128), cdiv(case[2], 128)

    def exact(self, args):
        return [rounded(*inner_product(args["a"].double().T, args["b"].double()), BF16)]

    def run_triton(self, case, args):
        weight_gradient[self.grid(case, args)](*(args[name] for name in ("a", "b", "c", "m", "n", "k")), M=128, N=128, K=64,
                                               num_warps=4, num_stages=3)


PORTS = [Matmul(), ExpertMatmul(), Lora(), WeightGradient()]


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
           M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(m, M)
    num_pid_n = tl.cdiv(n, N)
    num_pid_in_group = GROUP * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP
    group_size_m = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * M + tl.arange(0, M)) % m
    offs_bn = (pid_n * N + tl.arange(0, N)) % n
    offs_k = tl.arange(0, K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < k - step * K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < k - step * K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += K * stride_ak
        b_ptrs += K * stride_bk
    acc = tl.where(acc >= 0, acc, 0.01 * acc)
    offs_cm = pid_m * M + tl.arange(0, M)
    offs_cn = pid_n * N + tl.arange(0, N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, acc.to(tl.bfloat16), mask=(offs_cm[:, None] < m) & (offs_cn[None, :] < n))


@triton.jit
def expert_matmul(a_ptr, b_ptr, c_ptr, sorted_ptr, experts_ptr, n, k, padded, valid, top_k, stride_am, stride_ak,
                  stride_be, stride_bk, stride_bn, stride_cm, stride_cn, M: tl.constexpr, N: tl.constexpr,
                  K: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(padded, M)
    num_pid_n = tl.cdiv(n, N)
    num_pid_in_group = GROUP * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP
    group_size_m = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_token = tl.load(sorted_ptr + pid_m * M + tl.arange(0, M))
    token_mask = offs_token < valid
    offs_bn = (pid_n * N + tl.arange(0, N)) % n
    offs_k = tl.arange(0, K)
    expert = tl.load(experts_ptr + pid_m)
    a_ptrs = a_ptr + ((offs_token // top_k)[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + expert * stride_be + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        a = tl.load(a_ptrs, mask=token_mask[:, None] & (offs_k[None, :] < k - step * K), other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < k - step * K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += K * stride_ak
        b_ptrs += K * stride_bk
    offs_cn = pid_n * N + tl.arange(0, N)
    c_ptrs = c_ptr + stride_cm * offs_token[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, acc.to(tl.bfloat16), mask=token_mask[:, None] & (offs_cn[None, :] < n))


@triton.jit
def lora(x_ptr, a_ptr, b_ptr, out_ptr, m, n, k, scale, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
         RANK: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    rank = tl.arange(0, RANK)
    small = tl.zeros((M, RANK), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :], (rows[:, None] < m) & (inner[None, :] < k), 0.0)
        a = tl.load(a_ptr + inner[:, None] * RANK + rank[None, :], inner[:, None] < k, 0.0)
        small = tl.dot(x, a, small)
    small = (small * scale).to(tl.bfloat16)
    for start in range(0, n, N):
        cols = start + tl.arange(0, N)
        b = tl.load(b_ptr + rank[:, None] * n + cols[None, :], cols[None, :] < n, 0.0)
        y = tl.dot(small, b)
        tl.store(out_ptr + rows[:, None] * n + cols[None, :], y.to(tl.bfloat16),
                 (rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def weight_gradient(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + inner[:, None] * m + offs_m[None, :], (inner[:, None] < k) & (offs_m[None, :] < m), 0.0)
        b = tl.load(b_ptr + inner[:, None] * n + offs_n[None, :], (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
        acc = tl.dot(tl.trans(a), b, acc)
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc.to(tl.bfloat16),
             (offs_m[:, None] < m) & (offs_n[None, :] < n))

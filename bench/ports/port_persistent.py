"""Ports of `persistent.rs`."""

import torch
import triton
import triton.language as tl

from entry import BF16, F32, TINY, cdiv, empty, normal, rounded, sm_count
from port import Port, inner_product


class SplitKMatmul(Port):
    """A case is (m, k, n)."""

    name = "split_k_matmul"
    outputs = ("c",)
    cases = [(512, 65536, 512), (256, 28672, 4096)]
    splits = 8

    def make(self, case, shift=0):
        m, k, n = case
        return {"a": normal(m * k, BF16, 1).view(m, k), "b": normal(k * n, BF16, 2).view(k, n),
                "c": empty(m * n, F32).view(m, n), "m": m, "n": n, "k": k}

    def prepare(self, args):
        args["c"].zero_()

    def grid(self, case, args, *consts):
        return cdiv(case[0], 128), cdiv(case[2], 128), self.splits

    def exact(self, args):
        value, within = inner_product(args["a"].double(), args["b"].double())
        return [(value, within + TINY)]

    def run_triton(self, case, args):
        split_k_matmul[self.grid(case, args)](*(args[name] for name in ("a", "b", "c", "m", "n", "k")), M=128, N=128, K=64,
                                              SPLIT_K=self.splits, num_warps=4, num_stages=3)


class StreamKMatmul(SplitKMatmul):
    """A case is (m, k, n)."""

    name = "stream_k_matmul"
    cases = [(512, 16384, 512), (1536, 8192, 1536)]

    def grid(self, case, args, *consts):
        return (sm_count(),)

    def run_triton(self, case, args):
        stream_k_matmul[self.grid(case, args)](*(args[name] for name in ("a", "b", "c", "m", "n", "k")), M=128, N=128, K=64,
                                               num_warps=4, num_stages=3)


class PersistentMatmul(Port):
    """A case is (m, k, n)."""

    name = "persistent_matmul"
    outputs = ("c",)
    cases = [(4096, 4096, 4096), (8192, 1024, 8192)]

    def make(self, case, shift=0):
        m, k, n = case
        return {"a": normal(m * k, BF16, 1).view(m, k), "b": normal(k * n, BF16, 2).view(k, n),
                "c": empty(m * n, BF16).view(m, n), "m": m, "n": n, "k": k}

    def grid(self, case, args, *consts):
        return (min(sm_count(), cdiv(case[0], 128) * cdiv(case[2], 256)),)

    def exact(self, args):
        return [rounded(*inner_product(args["a"].double(), args["b"].double()), BF16)]

    def run_triton(self, case, args):
        persistent_matmul[self.grid(case, args)](*(args[name] for name in ("a", "b", "c", "m", "n", "k")), M=128, N=256,
                                                 K=64, GROUP=8, num_warps=8, num_stages=3)


class PersistentMatmulByViews(PersistentMatmul):
    """A case is (m, k, n), and `b` is column-major."""

    name = "persistent_matmul_by_views"

    def make(self, case, shift=0):
        _, k, n = case
        return {**super().make(case), "b": normal(n * k, BF16, 2).view(n, k)}

    def exact(self, args):
        return [rounded(*inner_product(args["a"].double(), args["b"].double().T), BF16)]

    def run_triton(self, case, args):
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        persistent_matmul_by_views[self.grid(case, args)](
            *(args[name] for name in ("a", "b", "c", "m", "n", "k")), M=128, N=256, K=64, GROUP=8, num_warps=8, num_stages=3)


class GroupedMatmul(Port):
    """A case is (k, n, rows of each group)."""

    name = "grouped_matmul"
    outputs = ("c",)
    cases = [(2048, 4096, (128, 4096, 1000, 2048, 256, 512, 77, 1024)), (4096, 1408, (300, 256, 512, 700) * 4)]

    def label(self, case):
        k, n, sizes = case
        return f"{len(sizes)} groups of {min(sizes)} to {max(sizes)} x {k} x {n}"

    def make(self, case, shift=0):
        k, n, sizes = case
        rows, groups = sum(sizes), len(sizes)
        sizes = torch.tensor(sizes, dtype=torch.int32, device="cuda")
        return {"a": normal(rows * k, BF16, 1).view(rows, k), "b": normal(groups * k * n, BF16, 2).view(groups, k, n),
                "c": empty(rows * n, BF16).view(rows, n), "sizes": sizes,
                "starts": (sizes.cumsum(0) - sizes).to(torch.int32), "groups": groups, "n": n, "k": k}

    def grid(self, case, args, *consts):
        return (sm_count(),)

    def exact(self, args):
        rows = args["a"].split(args["sizes"].tolist())
        parts = [inner_product(a.double(), b.double()) for a, b in zip(rows, args["b"])]
        return [rounded(*(torch.cat(of) for of in zip(*parts)), BF16)]

    def run_triton(self, case, args):
        names = ("a", "b", "c", "sizes", "starts", "groups", "n", "k")
        grouped_matmul[self.grid(case, args)](*(args[name] for name in names), M=128, N=128, K=64, num_warps=4, num_stages=3)


PORTS = [SplitKMatmul(), StreamKMatmul(), PersistentMatmul(), PersistentMatmulByViews(), GroupedMatmul()]


@triton.jit
def split_k_matmul(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                   SPLIT_K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(tl.program_id(2) * K, k, K * SPLIT_K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
        b = tl.load(b_ptr + inner[:, None] * n + offs_n[None, :], (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
        acc = tl.dot(a, b, acc)
    tl.atomic_add(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc, (offs_m[:, None] < m) & (offs_n[None, :] < n),
                  sem="relaxed")


@triton.jit
def stream_k_matmul(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    num_pid_n = tl.cdiv(n, N)
    blocks = tl.cdiv(k, K)
    total = tl.cdiv(m, M) * num_pid_n * blocks
    share = tl.cdiv(total, tl.num_programs(0))
    first = tl.program_id(0) * share
    last = min(first + share, total)
    while first < last:
        tile = first // blocks
        end = min((tile + 1) * blocks, last)
        offs_m = tile // num_pid_n * M + tl.arange(0, M)
        offs_n = tile % num_pid_n * N + tl.arange(0, N)
        acc = tl.zeros((M, N), dtype=tl.float32)
        for block in range(first, end):
            inner = (block - tile * blocks) * K + tl.arange(0, K)
            a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
            b = tl.load(b_ptr + inner[:, None] * n + offs_n[None, :], (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
            acc = tl.dot(a, b, acc)
        tl.atomic_add(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc, (offs_m[:, None] < m) & (offs_n[None, :] < n),
                      sem="relaxed")
        first = end


@triton.jit
def place(tile, num_pid_m, num_pid_n, GROUP: tl.constexpr):
    num_pid_in_group = GROUP * num_pid_n
    first_pid_m = tile // num_pid_in_group * GROUP
    group_size_m = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + (tile % num_pid_in_group) % group_size_m
    pid_n = (tile % num_pid_in_group) // group_size_m
    return pid_m, pid_n


@triton.jit
def persistent_matmul(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                      GROUP: tl.constexpr):
    num_pid_m = tl.cdiv(m, M)
    num_pid_n = tl.cdiv(n, N)
    for tile in range(tl.program_id(0), num_pid_m * num_pid_n, tl.num_programs(0)):
        pid_m, pid_n = place(tile, num_pid_m, num_pid_n, GROUP)
        offs_m = pid_m * M + tl.arange(0, M)
        offs_n = pid_n * N + tl.arange(0, N)
        acc = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, k, K):
            inner = start + tl.arange(0, K)
            a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
            b = tl.load(b_ptr + inner[:, None] * n + offs_n[None, :], (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc.to(tl.bfloat16),
                 (offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit
def persistent_matmul_by_views(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                               GROUP: tl.constexpr):
    a_rows = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [M, K])
    b_rows = tl.make_tensor_descriptor(b_ptr, [n, k], [k, 1], [N, K])
    c_rows = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [M, N])
    num_pid_m = tl.cdiv(m, M)
    num_pid_n = tl.cdiv(n, N)
    for tile in range(tl.program_id(0), num_pid_m * num_pid_n, tl.num_programs(0)):
        pid_m, pid_n = place(tile, num_pid_m, num_pid_n, GROUP)
        acc = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, k, K):
            acc = tl.dot(a_rows.load([pid_m * M, start]), b_rows.load([pid_n * N, start]).T, acc)
        c_rows.store([pid_m * M, pid_n * N], acc.to(tl.bfloat16))


@triton.jit
def grouped_matmul(a_ptr, b_ptr, c_ptr, sizes_ptr, starts_ptr, groups, n, k, M: tl.constexpr, N: tl.constexpr,
                   K: tl.constexpr):
    num_pid_n = tl.cdiv(n, N)
    tile = tl.program_id(0)
    first_tile = 0
    for group in range(groups):
        size = tl.load(sizes_ptr + group)
        first_row = tl.load(starts_ptr + group)
        end_tile = first_tile + tl.cdiv(size, M) * num_pid_n
        while tile < end_tile:
            offs_m = (tile - first_tile) // num_pid_n * M + tl.arange(0, M)
            offs_n = (tile - first_tile) % num_pid_n * N + tl.arange(0, N)
            rows = first_row + offs_m
            acc = tl.zeros((M, N), dtype=tl.float32)
            for start in range(0, k, K):
                inner = start + tl.arange(0, K)
                a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], (offs_m[:, None] < size) & (inner[None, :] < k), 0.0)
                b = tl.load(b_ptr + group * k * n + (inner[:, None] * n + offs_n[None, :]),
                            (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
                acc = tl.dot(a, b, acc)
            tl.store(c_ptr + rows[:, None] * n + offs_n[None, :], acc.to(tl.bfloat16),
                     (offs_m[:, None] < size) & (offs_n[None, :] < n))
            tile += tl.num_programs(0)
        first_tile = end_tile

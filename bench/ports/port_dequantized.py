"""Ports of `dequantized.rs`."""

import torch
import triton
import triton.language as tl

from entry import BF16, F32, F8, SINGLE, cdiv, empty, normal, rounded
from port import Port, inner_product, integers


class Dequantized(Port):
    """A case is (m, k, n)."""

    outputs = ("c",)

    def grid(self, case, args, *consts):
        return cdiv(case[0], self.rows(case)), cdiv(case[2], 128)

    def rows(self, case):
        return 128

    def weights(self, args):
        """The matrix in `bf16`, `[k, n]`."""
        raise NotImplementedError

    def exact(self, args):
        return [rounded(*inner_product(args["a"].double(), self.weights(args).double()), BF16)]


class QuantizedIntegers(Dequantized):
    """With a variant for few rows."""

    def rows(self, case):
        return 16 if case[0] <= 16 else 128

    def consts(self, case):
        return lambda rows, *_: rows == self.rows(case)


class Int4Matmul(QuantizedIntegers):
    name = "int4_matmul"
    cases = [(16, 4096, 4096), (4096, 4096, 4096)]
    group_rows = 128

    def make(self, case, shift=0):
        m, k, n = case
        return {"a": normal(m * k, BF16, 1).view(m, k),
                "packed": integers(-2**31, 2**31, k // 8 * n, torch.int64, 2).to(torch.int32).view(k // 8, n),
                "scales": normal(cdiv(k, self.group_rows) * n, BF16, 3).view(-1, n), "c": empty(m * n, BF16).view(m, n),
                "m": m, "n": n, "k": k, "group": self.group_rows}

    def weights(self, args):
        row = torch.arange(args["k"], device="cuda")
        nibbles = (args["packed"][row // 8] >> (row % 8 * 4)[:, None]) & 15
        return (nibbles - 8).to(BF16) * args["scales"][row // args["group"]]

    def run_triton(self, case, args):
        rows = self.rows(case)
        int4_matmul[self.grid(case, args)](
            *(args[name] for name in ("a", "packed", "scales", "c", "m", "n", "k", "group")), M=rows, N=128, K=64,
            num_warps=4 if rows == 16 else 8, num_stages=3)


class Fp8Matmul(Dequantized):
    name = "fp8_matmul"
    cases = [(4096, 4096, 4096), (1000, 4096, 3000)]

    def make(self, case, shift=0):
        m, k, n = case
        return {"a": normal(m * k, BF16, 1).view(m, k), "w": normal(n * k, F32, 2).view(n, k).to(F8),
                "scales": normal(cdiv(n, 128) * cdiv(k, 128), F32, 3).view(cdiv(n, 128), -1),
                "c": empty(m * n, BF16).view(m, n), "m": m, "n": n, "k": k}

    def weights(self, args):
        scales = args["scales"].repeat_interleave(128, 0)[:args["n"]].repeat_interleave(128, 1)[:, :args["k"]]
        return (args["w"].float() * scales).to(BF16).T

    def run_triton(self, case, args):
        fp8_matmul[self.grid(case, args)](*(args[name] for name in ("a", "w", "scales", "c", "m", "n", "k")), M=128, N=128,
                                          K=64, num_warps=8, num_stages=3)


class Int8Matmul(QuantizedIntegers):
    name = "int8_matmul"
    cases = [(16, 16384, 16384), (2048, 4096, 4096)]

    def make(self, case, shift=0):
        m, k, n = case
        return {"a": normal(m * k, BF16, 1).view(m, k), "w": integers(-128, 128, n * k, torch.int8, 2).view(n, k),
                "scales": normal(n, F32, 3), "c": empty(m * n, BF16).view(m, n), "m": m, "n": n, "k": k}

    def weights(self, args):
        return args["w"].double().T * args["scales"].double()

    def run_triton(self, case, args):
        rows = self.rows(case)
        int8_matmul[self.grid(case, args)](*(args[name] for name in ("a", "w", "scales", "c", "m", "n", "k")), M=rows, N=128,
                                           K=64, num_warps=4 if rows == 16 else 8, num_stages=3)


class W8A16Matmul(Int8Matmul):
    """A case is (m, k, n), and weights are row-major along `n`."""

    name = "w8a16_matmul"
    cases = [(16, 8192, 8192), (2048, 4096, 4096)]

    def make(self, case, shift=0):
        _, k, n = case
        return {**super().make(case), "w": integers(-128, 128, k * n, torch.int8, 2).view(k, n)}

    def weights(self, args):
        return args["w"].double() * args["scales"].double()

    def run_triton(self, case, args):
        rows = self.rows(case)
        w8a16_matmul[self.grid(case, args)](*(args[name] for name in ("a", "w", "scales", "c", "m", "n", "k")), M=rows,
                                            N=128, K=64, num_warps=4 if rows == 16 else 8, num_stages=3)


class TernaryMatmul(QuantizedIntegers):
    name = "ternary_matmul"
    cases = [(16, 8192, 8192), (2048, 4096, 4096)]

    def make(self, case, shift=0):
        m, k, n = case
        codes = integers(0, 3, n * k, torch.uint8, 2).view(n, k // 4, 4)
        packed = codes[..., 0] | codes[..., 1] << 2 | codes[..., 2] << 4 | codes[..., 3] << 6
        return {"a": integers(-128, 128, m * k, torch.int8, 1).view(m, k), "packed": packed, "a_scales": normal(m, F32, 3),
                "c": empty(m * n, BF16).view(m, n), "w_scale": 0.03125, "m": m, "n": n, "k": k}

    def exact(self, args):
        fields = torch.stack([args["packed"] >> shift & 3 for shift in (0, 2, 4, 6)], 2)
        sums = args["a"].double() @ (fields.flatten(1).double() - 1).T
        value = sums * args["a_scales"].double()[:, None] * args["w_scale"]
        # The sum is exact, and the scales are multiplied first.
        return [rounded(value, 4 * SINGLE * value.abs(), BF16)]

    def run_triton(self, case, args):
        rows = self.rows(case)
        ternary_matmul[self.grid(case, args)](
            *(args[name] for name in ("a", "packed", "a_scales", "c", "w_scale", "m", "n", "k")), M=rows, N=128, K=64,
            num_warps=4 if rows == 16 else 8, num_stages=3)


PORTS = [Int4Matmul(), Fp8Matmul(), Int8Matmul(), W8A16Matmul(), TernaryMatmul()]


@triton.jit
def int4_matmul(a_ptr, packed_ptr, scales_ptr, c_ptr, m, n, k, group, M: tl.constexpr, N: tl.constexpr,
                K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    offs_k = tl.arange(0, K)
    shift = (offs_k % 8) * 4
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + offs_k
        a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
        present = (inner[:, None] < k) & (offs_n[None, :] < n)
        words = tl.load(packed_ptr + (inner // 8)[:, None] * n + offs_n[None, :], present, 0)
        scale = tl.load(scales_ptr + (inner // group)[:, None] * n + offs_n[None, :], present, 0.0)
        b = (((words >> shift[:, None]) & 15) - 8).to(tl.bfloat16) * scale
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc.to(tl.bfloat16),
             (offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit
def fp8_matmul(a_ptr, w_ptr, scales_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    offs_k = tl.arange(0, K)
    scale_row = scales_ptr + (offs_n // 128) * tl.cdiv(k, 128)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + offs_k
        a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
        present = (inner[:, None] < k) & (offs_n[None, :] < n)
        w = tl.load(w_ptr + offs_n[None, :] * k + inner[:, None], present, 0.0).to(tl.float32)
        scale = tl.load(scale_row + start // 128, offs_n < n, 0.0)
        acc = tl.dot(a, (w * scale[None, :]).to(tl.bfloat16), acc)
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc.to(tl.bfloat16),
             (offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit
def int8_matmul(a_ptr, w_ptr, scales_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
        w = tl.load(w_ptr + offs_n[None, :] * k + inner[:, None], (inner[:, None] < k) & (offs_n[None, :] < n), 0)
        acc = tl.dot(a, w.to(tl.bfloat16), acc)
    scale = tl.load(scales_ptr + offs_n, offs_n < n, 0.0)
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], (acc * scale[None, :]).to(tl.bfloat16),
             (offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit
def w8a16_matmul(a_ptr, w_ptr, scales_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0.0)
        w = tl.load(w_ptr + inner[:, None] * n + offs_n[None, :], (inner[:, None] < k) & (offs_n[None, :] < n), 0)
        acc = tl.dot(a, w.to(tl.bfloat16), acc)
    scale = tl.load(scales_ptr + offs_n, offs_n < n, 0.0)
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], (acc * scale[None, :]).to(tl.bfloat16),
             (offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit
def ternary_matmul(a_ptr, packed_ptr, a_scales_ptr, c_ptr, w_scale, m, n, k, M: tl.constexpr, N: tl.constexpr,
                   K: tl.constexpr):
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    offs_k = tl.arange(0, K)
    shift = (offs_k % 4) * 2
    acc = tl.zeros((M, N), dtype=tl.int32)
    for start in range(0, k, K):
        inner = start + offs_k
        a = tl.load(a_ptr + offs_m[:, None] * k + inner[None, :], (offs_m[:, None] < m) & (inner[None, :] < k), 0)
        present = (inner[:, None] < k) & (offs_n[None, :] < n)
        packed = tl.load(packed_ptr + (offs_n[None, :] * (k // 4) + (inner // 4)[:, None]), present, 0).to(tl.int32)
        w = (((packed >> shift[:, None]) & 3) - 1).to(tl.int8)
        acc = tl.dot(a, w, acc, out_dtype=tl.int32)
    scale = tl.load(a_scales_ptr + offs_m, offs_m < m, 0.0) * w_scale
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], (acc.to(tl.float32) * scale[:, None]).to(tl.bfloat16),
             (offs_m[:, None] < m) & (offs_n[None, :] < n))

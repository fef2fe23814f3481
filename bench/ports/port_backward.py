"""Ports of `backward.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, cdiv, empty, normal, rounded
from port import Port

#: Elements of a head's row.
D = 128
#: The error of a rounding to `bf16` and of the operations in `f32` around it.
ROUNDED = 2.0**-8 + 2.0**-14


class Backward(Port):
    """A case is (heads, length, whether it is causal)."""

    cases = [(16, 4096, False), (32, 4096, True), (16, 3001, True)]

    def label(self, case):
        return super().label((*case[:2], D)) + (" causal" if case[2] else "")

    def consts(self, case):
        return lambda causal, *_: bool(causal) == case[2]

    def make(self, case, shift=0):
        heads, n, causal = case
        names = ("q", "k", "v", "d_out", *self.outputs)
        of = {name: normal(heads * n * D, BF16, seed).view(heads, n, D) for seed, name in enumerate(names, 1)}
        args = {**of, "lse": empty(heads * n, F32).view(heads, n), "delta": empty(heads * n, F32).view(heads, n),
                "sm_scale": D**-0.5, "n": n, "causal": causal}
        for head in range(heads):
            scores, products = self.scores(args, head)
            args["lse"][head] = torch.logsumexp(scores, 1) / math.log(2)
            args["delta"][head] = (torch.softmax(scores, 1) * products).sum(1)
        return args

    def scores(self, args, head):
        """Scaled scores, and products of the gradient with values."""
        q, k, v, d_out = (args[name][head].double() for name in ("q", "k", "v", "d_out"))
        scores = q @ k.T * args["sm_scale"]
        if args["causal"]:
            scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
        return scores, d_out @ v.T

    def pairs(self, args, head):
        """The weights, their gradients, and by how much rounding to `bf16` may move these."""
        scores, products = self.scores(args, head)
        delta = args["delta"][head].double()[:, None]
        p = torch.exp2(scores / math.log(2) - args["lse"][head].double()[:, None])
        ds = p * (products - delta)
        size = args["d_out"][head].double().abs() @ args["v"][head].double().abs().T + delta.abs()
        return p, ds, ROUNDED * ds.abs() + p * ((D + 4) * 2 * SINGLE * size)

    def gradients(self, args, head):
        """By output, the factors, by how much they may move, what they are multiplied with, and the scale."""
        raise NotImplementedError

    def exact(self, args):
        parts = []
        for head in range(args["q"].shape[0]):
            for factors, moved, x, scale in self.gradients(args, head):
                within = (moved + 2.0**-12 * factors.abs()) @ x.abs()
                value, bound = rounded(factors @ x * scale, within * scale, BF16)
                parts.append((value, bound.float()))
        count = len(self.outputs)
        of = [[torch.stack(part) for part in zip(*parts[i::count])] for i in range(count)]
        return [(value, bound.double()) for value, bound in of]


class AttentionDkDv(Backward):
    name = "attention_dkdv"
    outputs = ("dk", "dv")

    def grid(self, case, args, *consts):
        return cdiv(case[1], 128), case[0]

    def gradients(self, args, head):
        p, ds, moved = self.pairs(args, head)
        q, d_out = (args[name][head].double() for name in ("q", "d_out"))
        return (ds.T, moved.T, q, args["sm_scale"]), (p.T, ROUNDED * p.T, d_out, 1.0)

    def run_triton(self, case, args):
        names = ("q", "k", "v", "d_out", "lse", "delta", "dk", "dv", "sm_scale", "n")
        attention_dkdv[self.grid(case, args)](*(args[name] for name in names), CAUSAL=case[2], D=D, M=32, N=128, num_warps=4,
                                              num_stages=3)


class AttentionDq(Backward):
    name = "attention_dq"
    outputs = ("dq",)

    def grid(self, case, args, *consts):
        return cdiv(case[1], 128), case[0]

    def gradients(self, args, head):
        _, ds, moved = self.pairs(args, head)
        return (ds, moved, args["k"][head].double(), args["sm_scale"]),

    def run_triton(self, case, args):
        names = ("q", "k", "v", "d_out", "lse", "delta", "dq", "sm_scale", "n")
        attention_dq[self.grid(case, args)](*(args[name] for name in names), CAUSAL=case[2], D=D, M=128, N=32, num_warps=4,
                                            num_stages=3)


class ByViews(Backward):
    """By views of ours, and by Triton's tensor descriptors."""

    cases = [(16, 4096, False), (16, 3001, True)]

    def kernel(self):
        """The Triton version."""
        raise NotImplementedError

    def run_triton(self, case, args):
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        names = ("q", "k", "v", "d_out", "lse", "delta", *self.outputs, "sm_scale", "n")
        self.kernel()[self.grid(case, args)](*(args[name] for name in names), CAUSAL=case[2], D=D, M=self.m, N=self.n,
                                             num_warps=4, num_stages=3)


class AttentionDkDvByViews(ByViews, AttentionDkDv):
    name = "attention_dkdv_by_views"
    m, n = 32, 128

    def kernel(self):
        return attention_dkdv_by_views


class AttentionDqByViews(ByViews, AttentionDq):
    name = "attention_dq_by_views"
    m, n = 128, 32

    def kernel(self):
        return attention_dq_by_views


PORTS = [AttentionDkDv(), AttentionDq(), AttentionDkDvByViews(), AttentionDqByViews()]


@triton.jit
def attention_dkdv(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, sm_scale, n, CAUSAL: tl.constexpr,
                   D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0) * N
    first_row = tl.program_id(1) * n
    offs_n = first + tl.arange(0, N)
    offs_d = tl.arange(0, D)
    at_keys = (first_row + offs_n)[:, None] * D + offs_d[None, :]
    k = tl.load(k_ptr + at_keys, offs_n[:, None] < n, 0.0)
    v = tl.load(v_ptr + at_keys, offs_n[:, None] < n, 0.0)
    qk_scale = sm_scale * 1.44269504089
    k_sum = tl.zeros([N, D], dtype=tl.float32)
    v_sum = tl.zeros([N, D], dtype=tl.float32)
    begin = 0
    if CAUSAL:
        begin = first
    for start in range(begin, n, M):
        offs_m = start + tl.arange(0, M)
        rows = first_row + offs_m
        q_t = tl.load(q_ptr + rows[None, :] * D + offs_d[:, None], offs_m[None, :] < n, 0.0)
        lse = tl.load(lse_ptr + rows, offs_m < n, 0.0)
        p_t = tl.math.exp2(tl.dot(k, q_t) * qk_scale - lse[None, :])
        if CAUSAL:
            p_t = tl.where(offs_n[:, None] <= offs_m[None, :], p_t, 0.0)
        d_out = tl.load(d_out_ptr + rows[:, None] * D + offs_d[None, :], offs_m[:, None] < n, 0.0)
        v_sum = tl.dot(p_t.to(tl.bfloat16), d_out, v_sum)
        delta = tl.load(delta_ptr + rows, offs_m < n, 0.0)
        ds_t = p_t * (tl.dot(v, tl.trans(d_out)) - delta[None, :])
        k_sum = tl.dot(ds_t.to(tl.bfloat16), tl.trans(q_t), k_sum)
    tl.store(dv_ptr + at_keys, v_sum.to(tl.bfloat16), offs_n[:, None] < n)
    tl.store(dk_ptr + at_keys, (k_sum * sm_scale).to(tl.bfloat16), offs_n[:, None] < n)


@triton.jit
def attention_dq(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, dq_ptr, sm_scale, n, CAUSAL: tl.constexpr,
                 D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0) * M
    first_row = tl.program_id(1) * n
    offs_m = first + tl.arange(0, M)
    offs_d = tl.arange(0, D)
    at_rows = (first_row + offs_m)[:, None] * D + offs_d[None, :]
    q = tl.load(q_ptr + at_rows, offs_m[:, None] < n, 0.0)
    d_out = tl.load(d_out_ptr + at_rows, offs_m[:, None] < n, 0.0)
    lse = tl.load(lse_ptr + first_row + offs_m, offs_m < n, 0.0)
    delta = tl.load(delta_ptr + first_row + offs_m, offs_m < n, 0.0)
    qk_scale = sm_scale * 1.44269504089
    q_sum = tl.zeros([M, D], dtype=tl.float32)
    end = n
    if CAUSAL:
        end = min(first + M, n)
    for start in range(0, end, N):
        offs_n = start + tl.arange(0, N)
        at_keys = (first_row + offs_n)[None, :] * D + offs_d[:, None]
        k_t = tl.load(k_ptr + at_keys, offs_n[None, :] < n, 0.0)
        v_t = tl.load(v_ptr + at_keys, offs_n[None, :] < n, 0.0)
        p = tl.math.exp2(tl.dot(q, k_t) * qk_scale - lse[:, None])
        if CAUSAL:
            p = tl.where(offs_n[None, :] <= offs_m[:, None], p, 0.0)
        ds = p * (tl.dot(d_out, v_t) - delta[:, None])
        q_sum = tl.dot(ds.to(tl.bfloat16), tl.trans(k_t), q_sum)
    tl.store(dq_ptr + at_rows, (q_sum * sm_scale).to(tl.bfloat16), offs_m[:, None] < n)


@triton.jit
def attention_dkdv_by_views(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, sm_scale, n,
                            CAUSAL: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0) * N
    first_row = tl.program_id(1) * n
    base = tl.program_id(1).to(tl.int64) * n * D
    q_rows = tl.make_tensor_descriptor(q_ptr + base, [n, D], [D, 1], [M, D])
    k_rows = tl.make_tensor_descriptor(k_ptr + base, [n, D], [D, 1], [N, D])
    v_rows = tl.make_tensor_descriptor(v_ptr + base, [n, D], [D, 1], [N, D])
    d_out_rows = tl.make_tensor_descriptor(d_out_ptr + base, [n, D], [D, 1], [M, D])
    dk_rows = tl.make_tensor_descriptor(dk_ptr + base, [n, D], [D, 1], [N, D])
    dv_rows = tl.make_tensor_descriptor(dv_ptr + base, [n, D], [D, 1], [N, D])
    offs_n = first + tl.arange(0, N)
    k = k_rows.load([first, 0])
    v = v_rows.load([first, 0])
    qk_scale = sm_scale * 1.44269504089
    k_sum = tl.zeros([N, D], dtype=tl.float32)
    v_sum = tl.zeros([N, D], dtype=tl.float32)
    begin = 0
    if CAUSAL:
        begin = first
    for start in range(begin, n, M):
        offs_m = start + tl.arange(0, M)
        q = q_rows.load([start, 0])
        lse = tl.load(lse_ptr + first_row + offs_m, offs_m < n, 0.0)
        p_t = tl.math.exp2(tl.dot(k, q.T) * qk_scale - lse[None, :])
        if CAUSAL:
            p_t = tl.where(offs_n[:, None] <= offs_m[None, :], p_t, 0.0)
        d_out = d_out_rows.load([start, 0])
        v_sum = tl.dot(p_t.to(tl.bfloat16), d_out, v_sum)
        delta = tl.load(delta_ptr + first_row + offs_m, offs_m < n, 0.0)
        ds_t = p_t * (tl.dot(v, d_out.T) - delta[None, :])
        k_sum = tl.dot(ds_t.to(tl.bfloat16), q, k_sum)
    dv_rows.store([first, 0], v_sum.to(tl.bfloat16))
    dk_rows.store([first, 0], (k_sum * sm_scale).to(tl.bfloat16))


@triton.jit
def attention_dq_by_views(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, dq_ptr, sm_scale, n, CAUSAL: tl.constexpr,
                          D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0) * M
    first_row = tl.program_id(1) * n
    base = tl.program_id(1).to(tl.int64) * n * D
    q_rows = tl.make_tensor_descriptor(q_ptr + base, [n, D], [D, 1], [M, D])
    k_rows = tl.make_tensor_descriptor(k_ptr + base, [n, D], [D, 1], [N, D])
    v_rows = tl.make_tensor_descriptor(v_ptr + base, [n, D], [D, 1], [N, D])
    d_out_rows = tl.make_tensor_descriptor(d_out_ptr + base, [n, D], [D, 1], [M, D])
    dq_rows = tl.make_tensor_descriptor(dq_ptr + base, [n, D], [D, 1], [M, D])
    offs_m = first + tl.arange(0, M)
    q = q_rows.load([first, 0])
    d_out = d_out_rows.load([first, 0])
    lse = tl.load(lse_ptr + first_row + offs_m, offs_m < n, 0.0)
    delta = tl.load(delta_ptr + first_row + offs_m, offs_m < n, 0.0)
    qk_scale = sm_scale * 1.44269504089
    q_sum = tl.zeros([M, D], dtype=tl.float32)
    end = n
    if CAUSAL:
        end = min(first + M, n)
    for start in range(0, end, N):
        offs_n = start + tl.arange(0, N)
        k = k_rows.load([start, 0])
        v = v_rows.load([start, 0])
        p = tl.math.exp2(tl.dot(q, k.T) * qk_scale - lse[:, None])
        if CAUSAL:
            p = tl.where(offs_n[None, :] <= offs_m[:, None], p, 0.0)
        ds = p * (tl.dot(d_out, v.T) - delta[:, None])
        q_sum = tl.dot(ds.to(tl.bfloat16), k, q_sum)
    dq_rows.store([first, 0], (q_sum * sm_scale).to(tl.bfloat16))

"""Ports of `serving.rs`."""

import math

import torch
import triton
import triton.language as tl

from entry import BF16, F8, F32, SINGLE, cdiv, empty, normal, rounded
from port import Port
from port_attention import attention_of_head

#: Elements of a head's row.
D = 128


class VarlenAttention(Port):
    """A case is (heads, heads of keys, whether it is causal, lengths of sequences)."""

    name = "varlen_attention"
    lengths = (512, 1024, 4096, 2048, 3001, 777, 2926, 2000)
    cases = [(32, 4, False, lengths), (32, 4, True, lengths)]

    def label(self, case):
        heads, kv_heads, causal, lengths = case
        tokens = f"{len(lengths)} of {min(lengths)} to {max(lengths)}, {heads} / {kv_heads} heads of {D}"
        return tokens + (" causal" if causal else "")

    def consts(self, case):
        return lambda causal, *_: bool(causal) == case[2]

    def make(self, case, shift=0):
        heads, kv_heads, causal, lengths = case
        tokens = sum(lengths)
        starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
        of = {name: normal(tokens * kv_heads * D, BF16, seed).view(tokens, kv_heads, D)
              for seed, name in enumerate(("k", "v"), 2)}
        return {"q": normal(tokens * heads * D, BF16, 1).view(tokens, heads, D), **of,
                "out": empty(tokens * heads * D, BF16).view(tokens, heads, D), "starts": starts, "sm_scale": D**-0.5,
                "stride_qt": heads * D, "stride_qh": D, "stride_kt": kv_heads * D, "stride_kh": D,
                "group": heads // kv_heads, "causal": causal}

    def grid(self, case, args, *consts):
        heads, _, _, lengths = case
        return cdiv(max(lengths), 128), heads, len(lengths)

    def exact(self, args):
        value, bound = (torch.empty_like(args["out"], dtype=torch.float64) for _ in range(2))
        starts = args["starts"].tolist()
        for first, end in zip(starts, starts[1:]):
            for head in range(value.shape[1]):
                of_keys = head // args["group"]
                q, k, v = args["q"][first:end, head], args["k"][first:end, of_keys], args["v"][first:end, of_keys]
                found = attention_of_head((q, k, v), args["sm_scale"], args["causal"])
                value[first:end, head], bound[first:end, head], _ = found
        return [(value, bound)]

    def run_triton(self, case, args):
        names = ("q", "k", "v", "out", "starts", "sm_scale", "stride_qt", "stride_qh", "stride_kt", "stride_kh", "group")
        varlen_attention[self.grid(case, args)](*(args[name] for name in names), CAUSAL=case[2], D=D, M=128, N=64,
                                                num_warps=8, num_stages=3)


class Fp8Attention(Port):
    """A case is (heads, length)."""

    name = "fp8_attention"
    cases = [(32, 8192), (64, 4000)]

    def label(self, case):
        return super().label((*case, D))

    def make(self, case, shift=0):
        heads, n = case
        q, k, v = (normal(heads * n * D, F32, seed).to(F8) for seed in (1, 2, 3))
        return {"q": q.view(heads, n, D), "k": k.view(heads, n, D), "v": v.view(heads, D, n),
                "out": empty(heads * n * D, BF16).view(heads, n, D), "sm_scale": D**-0.5, "q_scale": 0.75, "k_scale": 1.25,
                "v_scale": 3.0, "n": n}

    def grid(self, case, args, *consts):
        return cdiv(case[1], 128), case[0]

    def exact(self, args):
        scale, parts = args["sm_scale"] * args["q_scale"] * args["k_scale"], []
        for q, k, v in zip(args["q"], args["k"], args["v"]):
            q, k, v = q.double(), k.double(), v.double().T * args["v_scale"]
            scores = q @ k.T * scale
            powers = torch.exp(scores - scores.amax(1, keepdim=True))
            total = powers.sum(1, keepdim=True)
            # Tensor cores keep 14 bits of a sum of 8-bit products. An exponential has 4 bits, and steps of 2^-9 at least.
            moved = 2.0**-4 + 2.0**-12 * scale * (q.abs().sum(1, keepdim=True) * k.abs().amax())
            within = (moved * (powers @ v.abs()) + 2.0**-10 * v.abs().sum(0)) / total
            value, bound = rounded(powers @ v / total, within, BF16)
            parts.append((value, bound.float()))
        value, bound = (torch.stack(of) for of in zip(*parts))
        return [(value, bound.double())]

    def run_triton(self, case, args):
        names = ("q", "k", "v", "out", "sm_scale", "q_scale", "k_scale", "v_scale", "n")
        fp8_attention[self.grid(case, args)](*(args[name] for name in names), D=D, M=128, N=64, num_warps=8, num_stages=3)


class SinkAttention(Port):
    """A case is (batch, heads, heads of keys, length, keys that a query sees)."""

    name = "sink_attention"
    cases = [(2, 64, 8, 8192, 128), (1, 64, 8, 4096, 4096), (2, 64, 8, 3001, 128)]
    dim = 64

    def label(self, case):
        batch, heads, kv_heads, n, window = case
        return f"{batch} x {heads} / {kv_heads} x {n} x {self.dim}, window {window}"

    def make(self, case, shift=0):
        batch, heads, kv_heads, n, window = case
        rows = {"q": heads, "k": kv_heads, "v": kv_heads}
        of = {name: normal(batch * count * n * self.dim, BF16, seed).view(batch, count, n, self.dim)
              for seed, (name, count) in enumerate(rows.items(), 1)}
        return {**of, "sinks": normal(heads, F32, 4), "out": torch.empty_like(of["q"]), "sm_scale": self.dim**-0.5,
                "heads": heads, "kv_heads": kv_heads, "n": n, "window": window}

    def grid(self, case, args, *consts):
        batch, heads, _, n, _ = case
        return cdiv(n, 128), batch * heads

    def exact(self, args):
        group, parts = args["heads"] // args["kv_heads"], []
        row = torch.arange(args["n"], device="cuda")
        behind = row[:, None] - row
        hidden = (behind < 0) | (behind >= args["window"])
        for index, q in enumerate(args["q"].flatten(0, 1)):
            batch, head = divmod(index, args["heads"])
            k, v = (args[name][batch, head // group].double() for name in ("k", "v"))
            scores = (q.double() @ k.T * args["sm_scale"]).masked_fill_(hidden, -math.inf)
            sink = args["sinks"][head].double().expand(args["n"], 1)
            weights = torch.softmax(torch.cat([scores, sink], 1), 1)[:, :-1]
            value, bound = rounded(weights @ v, (2.0**-8 + 256 * SINGLE) * (weights @ v.abs()), BF16)
            parts.append((value, bound))
        value, bound = (torch.stack(of).view(args["q"].shape) for of in zip(*parts))
        return [(value, bound)]

    def run_triton(self, case, args):
        names = ("q", "k", "v", "sinks", "out", "sm_scale", "heads", "kv_heads", "n", "window")
        sink_attention[self.grid(case, args)](*(args[name] for name in names), D=self.dim, M=128, N=64, num_warps=4,
                                              num_stages=3)


PORTS = [VarlenAttention(), Fp8Attention(), SinkAttention()]


@triton.jit
def varlen_attention(q_ptr, k_ptr, v_ptr, out_ptr, starts_ptr, sm_scale, stride_qt, stride_qh, stride_kt, stride_kh, group,
                     CAUSAL: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0) * M
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    begin = tl.load(starts_ptr + sequence)
    length = tl.load(starts_ptr + sequence + 1) - begin
    if first >= length:
        return
    kv_head = head // group
    offs_d = tl.arange(0, D)
    offs_m = first + tl.arange(0, M)
    rows = (begin + offs_m)[:, None] * stride_qt + head * stride_qh + offs_d[None, :]
    q = tl.load(q_ptr + rows, offs_m[:, None] < length, 0.0)
    qk_scale = sm_scale * 1.44269504089
    acc = tl.zeros([M, D], dtype=tl.float32)
    l_i = tl.zeros([M], dtype=tl.float32)
    m_i = tl.full([M], -float("inf"), dtype=tl.float32)
    end = length
    if CAUSAL:
        end = min(first + M, length)
    for start in range(0, end, N):
        offs_n = start + tl.arange(0, N)
        at = (begin + offs_n) * stride_kt + kv_head * stride_kh
        keys = tl.load(k_ptr + (at[None, :] + offs_d[:, None]), offs_n[None, :] < length, 0.0)
        seen = offs_n[None, :] < length
        if CAUSAL:
            seen = seen & (offs_n[None, :] <= offs_m[:, None])
        qk = tl.where(seen, tl.dot(q, keys) * qk_scale, -float("inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        values = tl.load(v_ptr + (at[:, None] + offs_d[None, :]), offs_n[:, None] < length, 0.0)
        acc = tl.dot(p.to(tl.bfloat16), values, acc * alpha[:, None])
        m_i = m_ij
    tl.store(out_ptr + rows, (acc / l_i[:, None]).to(tl.bfloat16), offs_m[:, None] < length)


@triton.jit
def fp8_attention(q_ptr, k_ptr, v_ptr, out_ptr, sm_scale, q_scale, k_scale, v_scale, n, D: tl.constexpr, M: tl.constexpr,
                  N: tl.constexpr):
    base = tl.program_id(1) * n * D
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_d = tl.arange(0, D)
    rows = base + (offs_m[:, None] * D + offs_d[None, :])
    q = tl.load(q_ptr + rows, offs_m[:, None] < n, 0.0)
    qk_scale = sm_scale * q_scale * k_scale * 1.44269504089
    acc = tl.zeros([M, D], dtype=tl.float32)
    l_i = tl.zeros([M], dtype=tl.float32)
    m_i = tl.full([M], -float("inf"), dtype=tl.float32)
    for start in range(0, n, N):
        offs_n = start + tl.arange(0, N)
        keys = tl.load(k_ptr + base + (offs_n[None, :] * D + offs_d[:, None]), offs_n[None, :] < n, 0.0)
        qk = tl.where(offs_n[None, :] < n, tl.dot(q, keys) * qk_scale, -float("inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        values = tl.load(v_ptr + base + (offs_d[None, :] * n + offs_n[:, None]), offs_n[:, None] < n, 0.0)
        acc = tl.dot(p.to(tl.float8e4nv), values, acc * alpha[:, None])
        m_i = m_ij
    tl.store(out_ptr + rows, (acc * v_scale / l_i[:, None]).to(tl.bfloat16), offs_m[:, None] < n)


@triton.jit
def sink_attention(q_ptr, k_ptr, v_ptr, sinks_ptr, out_ptr, sm_scale, heads, kv_heads, n, window, D: tl.constexpr,
                   M: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0) * M
    off_hz = tl.program_id(1)
    head = off_hz % heads
    kv_head = off_hz // heads * kv_heads + head // (heads // kv_heads)
    offs_d = tl.arange(0, D)
    offs_m = first + tl.arange(0, M)
    rows = (off_hz * n + offs_m)[:, None] * D + offs_d[None, :]
    q = tl.load(q_ptr + rows, offs_m[:, None] < n, 0.0)
    qk_scale = sm_scale * 1.44269504089
    acc = tl.zeros([M, D], dtype=tl.float32)
    l_i = tl.full([M], 1.0, dtype=tl.float32)
    m_i = tl.zeros([M], dtype=tl.float32) + tl.load(sinks_ptr + head) * 1.44269504089
    begin = max(first - window + 1, 0) // N * N
    for start in range(begin, min(first + M, n), N):
        offs_n = start + tl.arange(0, N)
        at = kv_head * n + offs_n
        keys = tl.load(k_ptr + (at[None, :] * D + offs_d[:, None]), offs_n[None, :] < n, 0.0)
        behind = offs_m[:, None] - offs_n[None, :]
        qk = tl.where((behind >= 0) & (behind < window), tl.dot(q, keys) * qk_scale, -float("inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        values = tl.load(v_ptr + (at[:, None] * D + offs_d[None, :]), offs_n[:, None] < n, 0.0)
        acc = tl.dot(p.to(tl.bfloat16), values, acc * alpha[:, None])
        m_i = m_ij
    tl.store(out_ptr + rows, (acc / l_i[:, None]).to(tl.bfloat16), offs_m[:, None] < n)

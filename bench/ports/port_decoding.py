"""Ports of `decoding.rs`."""

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, Launch, cdiv, empty, normal, rounded
from port import Port, integers


def decoded(q, k, v, scale):
    """Attention of the rows of `q` to every key, and by how much rounding may move it: an exponential is rounded to `bf16`."""
    weights = torch.softmax(q.double() @ k.T * scale, 1)
    return rounded(weights @ v, (2.0**-8 + 512 * SINGLE) * (weights @ v.abs()), BF16)


def lengths_of(sequences, keys):
    """Different lengths, the longest of which is `keys`."""
    return (keys - 37 * torch.arange(sequences, device="cuda") % (keys // 4)).to(torch.int32)


class MlaDecode(Port):
    """A case is (sequences, keys, heads, parts)."""

    name = "mla_decode"
    cases = [(64, 4096, 16, 4), (32, 4096, 128, 2)]
    latent, rope = 512, 64

    def label(self, case):
        sequences, keys, heads, parts = case
        return f"{sequences} x {keys}, {heads} heads of {self.latent} + {self.rope}, {parts} parts"

    def rows(self, case):
        return 16 if case[2] <= 16 else 64

    def make(self, case, shift=0):
        sequences, keys, heads, parts = case
        row = self.latent + self.rope
        return {"q": normal(sequences * heads * row, BF16, 1).view(sequences, heads, row),
                "cache": normal(sequences * keys * row, BF16, 2).view(sequences, keys, row),
                "lengths": lengths_of(sequences, keys), "lse": empty(sequences * heads * parts, F32),
                "partial": empty(sequences * heads * parts * self.latent, F32),
                "out": empty(sequences * heads * self.latent, BF16).view(sequences, heads, self.latent),
                "scale": 192**-0.5, "heads": heads, "max_keys": keys, "parts": parts}

    def grid(self, case, args, *consts):
        sequences, _, heads, parts = case
        return parts, cdiv(heads, self.rows(case)), sequences

    def launches(self, case, args):
        attend = Launch("mla_decode", [], lambda rows, *_: rows == self.rows(case), lambda *_: self.grid(case, args))
        merge = Launch("merge_parts", [], lambda *_: True, lambda *_: (case[0] * case[2],))
        return [attend, merge]

    def exact(self, args):
        parts = []
        for q, cache, length in zip(args["q"], args["cache"], args["lengths"].tolist()):
            keys = cache[:length].double()
            parts.append(decoded(q, keys, keys[:, :self.latent], args["scale"]))
        return [tuple(torch.stack(of) for of in zip(*parts))]

    def run_triton(self, case, args):
        rows = self.rows(case)
        mla_decode[self.grid(case, args)](
            *(args[name] for name in ("q", "cache", "lengths", "partial", "lse", "scale", "heads", "max_keys")), H=rows,
            D=self.latent, ROPE=self.rope, N=32, num_warps=4 if rows == 16 else 8, num_stages=2)
        merge_parts[(case[0] * case[2],)](*(args[name] for name in ("partial", "lse", "out", "parts")), D=self.latent,
                                          num_warps=4)


class Int8Decode(Port):
    """A case is (sequences, keys, heads, heads of keys)."""

    name = "int8_decode"
    cases = [(64, 4096, 64, 8), (128, 1000, 32, 4)]
    dim = 128

    def label(self, case):
        sequences, keys, heads, kv_heads = case
        return f"{sequences} x {keys}, {heads} / {kv_heads} heads of {self.dim}"

    def make(self, case, shift=0):
        sequences, keys, heads, kv_heads = case
        rows = (sequences, keys, kv_heads)
        count = sequences * keys * kv_heads
        caches = {name: integers(-127, 128, count * self.dim, torch.int8, seed).view(*rows, self.dim)
                  for seed, name in enumerate(("k_cache", "v_cache"), 2)}
        scales = {name: normal(count, F32, seed).abs().view(rows) / 64 for seed, name in enumerate(("k_scales", "v_scales"), 4)}
        return {"q": normal(sequences * heads * self.dim, BF16, 1).view(sequences, heads, self.dim), **caches, **scales,
                "lengths": lengths_of(sequences, keys),
                "out": empty(sequences * heads * self.dim, BF16).view(sequences, heads, self.dim), "scale": self.dim**-0.5,
                "heads": heads, "kv_heads": kv_heads, "max_keys": keys}

    def grid(self, case, args, *consts):
        return case[3], case[0]

    def exact(self, args):
        parts, group = [], args["heads"] // args["kv_heads"]
        for sequence, length in enumerate(args["lengths"].tolist()):
            for head in range(args["kv_heads"]):
                k, v = (args[f"{name}_cache"][sequence, :length, head].double()
                        * args[f"{name}_scales"][sequence, :length, head, None].double() for name in ("k", "v"))
                q = args["q"][sequence, head * group:(head + 1) * group]
                parts.append(decoded(q, k, v, args["scale"]))
        return [tuple(torch.stack(of).view(args["q"].shape) for of in zip(*parts))]

    def run_triton(self, case, args):
        names = ("q", "k_cache", "v_cache", "k_scales", "v_scales", "lengths", "out", "scale", "heads", "kv_heads", "max_keys")
        int8_decode[self.grid(case, args)](*(args[name] for name in names), D=self.dim, G=16, N=64, num_warps=4, num_stages=3)


PORTS = [MlaDecode(), Int8Decode()]


@triton.jit
def mla_decode(q_ptr, cache_ptr, lengths_ptr, partial_ptr, lse_ptr, scale, heads, max_keys, H: tl.constexpr, D: tl.constexpr,
               ROPE: tl.constexpr, N: tl.constexpr):
    part = tl.program_id(0)
    sequence = tl.program_id(2)
    offs_h = tl.program_id(1) * H + tl.arange(0, H)
    offs_d = tl.arange(0, D)
    offs_r = D + tl.arange(0, ROPE)
    length = tl.load(lengths_ptr + sequence)
    share = tl.cdiv(tl.cdiv(length, N), tl.num_programs(0)) * N
    first = part * share
    end = min(first + share, length)
    q_rows = ((sequence * heads + offs_h) * (D + ROPE))[:, None]
    q_latent = tl.load(q_ptr + q_rows + offs_d[None, :], offs_h[:, None] < heads, 0.0)
    q_rope = tl.load(q_ptr + q_rows + offs_r[None, :], offs_h[:, None] < heads, 0.0)
    acc = tl.zeros([H, D], dtype=tl.float32)
    l_i = tl.zeros([H], dtype=tl.float32)
    m_i = tl.full([H], -float("inf"), dtype=tl.float32)
    for start in range(first, end, N):
        offs_n = start + tl.arange(0, N)
        rows = ((sequence * max_keys + offs_n) * (D + ROPE))[:, None]
        latent = tl.load(cache_ptr + rows + offs_d[None, :], offs_n[:, None] < end, 0.0)
        rope = tl.load(cache_ptr + rows + offs_r[None, :], offs_n[:, None] < end, 0.0)
        qk = tl.dot(q_rope, tl.trans(rope), tl.dot(q_latent, tl.trans(latent))) * scale
        qk = tl.where(offs_n[None, :] < end, qk, -float("inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_ij[:, None])
        alpha = tl.exp(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), latent, acc * alpha[:, None])
        m_i = m_ij
    scaled = acc * tl.where(l_i > 0.0, 1.0 / l_i, 0.0)[:, None]
    at = (sequence * heads + offs_h) * tl.num_programs(0) + part
    tl.store(partial_ptr + at[:, None] * D + offs_d[None, :], scaled, offs_h[:, None] < heads)
    tl.store(lse_ptr + at, m_i + tl.log(l_i), offs_h < heads)


@triton.jit
def merge_parts(partial_ptr, lse_ptr, out_ptr, parts, D: tl.constexpr):
    row = tl.program_id(0)
    offs_d = tl.arange(0, D)
    m = -float("inf")
    l = 0.0
    acc = tl.zeros([D], dtype=tl.float32)
    for part in range(0, parts):
        at = row * parts + part
        part_lse = tl.load(lse_ptr + at)
        m_new = tl.maximum(m, part_lse)
        alpha = tl.exp(m - m_new)
        p = tl.exp(part_lse - m_new)
        acc = acc * alpha + p * tl.load(partial_ptr + at * D + offs_d)
        l = l * alpha + p
        m = m_new
    tl.store(out_ptr + row * D + offs_d, (acc / l).to(tl.bfloat16))


@triton.jit
def int8_decode(q_ptr, k_ptr, v_ptr, k_scales_ptr, v_scales_ptr, lengths_ptr, out_ptr, scale, heads, kv_heads, max_keys,
                D: tl.constexpr, G: tl.constexpr, N: tl.constexpr):
    kv_head = tl.program_id(0)
    sequence = tl.program_id(1)
    group = heads // kv_heads
    offs_g = tl.arange(0, G)
    offs_d = tl.arange(0, D)
    length = tl.load(lengths_ptr + sequence)
    q_rows = sequence * heads + kv_head * group + offs_g
    q_offsets = q_rows[:, None] * D + offs_d[None, :]
    q = tl.load(q_ptr + q_offsets, offs_g[:, None] < group, 0.0)
    acc = tl.zeros([G, D], dtype=tl.float32)
    l_i = tl.zeros([G], dtype=tl.float32)
    m_i = tl.full([G], -float("inf"), dtype=tl.float32)
    for start in range(0, length, N):
        offs_n = start + tl.arange(0, N)
        rows = (sequence * max_keys + offs_n) * kv_heads + kv_head
        offsets = rows[:, None] * D + offs_d[None, :]
        present = offs_n < length
        keys = tl.load(k_ptr + offsets, present[:, None], 0).to(tl.bfloat16)
        k_scale = tl.load(k_scales_ptr + rows, present, 0.0)
        qk = tl.dot(q, tl.trans(keys)) * (k_scale * scale)[None, :]
        qk = tl.where(present[None, :], qk, -float("inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_ij[:, None])
        alpha = tl.exp(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        values = tl.load(v_ptr + offsets, present[:, None], 0).to(tl.bfloat16)
        v_scale = tl.load(v_scales_ptr + rows, present, 0.0)
        acc = tl.dot((p * v_scale[None, :]).to(tl.bfloat16), values, acc * alpha[:, None])
        m_i = m_ij
    tl.store(out_ptr + q_offsets, (acc / l_i[:, None]).to(tl.bfloat16), offs_g[:, None] < group)

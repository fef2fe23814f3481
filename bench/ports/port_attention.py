"""Ports of `attention.rs`."""

import math

import torch
import triton
import triton.language as tl

import products
from entry import BF16, F32, SINGLE, cdiv, empty, normal, rounded
from port import Port

#: Elements of a head's row.
D = 128
LOG2_E = math.log2(math.e)


def attention_of_head(of, scale, causal):
    """The rows of a head from its queries, keys and values, by how much rounding may move them, and the logarithms of their
    sums of exponentials."""
    q, k, v = (x.double() for x in of)
    scores = q @ k.T * scale
    if causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    weights = torch.softmax(scores, 1)
    value, bound = rounded(weights @ v, (2.0**-8 + 256 * SINGLE) * (weights @ v.abs()), BF16)
    return value, bound, torch.logsumexp(scores, 1)


class FlashAttention(Port):
    """A case is (batch, heads, length, whether it is causal)."""

    name = "flash_attention"
    outputs = ("out", "lse")
    cases = [(4, 16, 4096, False), (4, 16, 4096, True), (1, 16, 16384, True), (4, 16, 3001, True)]

    def label(self, case):
        return super().label((*case[:3], D)) + (" causal" if case[3] else "")

    def consts(self, case):
        return lambda causal, *_: bool(causal) == case[3]

    def make(self, case, shift=0):
        batch, heads, n, causal = case
        shape = (batch, heads, n, D)
        of = {name: normal(math.prod(shape), BF16, seed).view(shape) for seed, name in enumerate(("q", "k", "v"), 1)}
        return {**of, "out": empty(math.prod(shape), BF16).view(shape), "lse": empty(batch * heads * n, F32),
                "sm_scale": D**-0.5, "stride_z": heads * n * D, "stride_h": n * D, "stride_n": D, "heads": heads,
                "n_ctx": n, "causal": causal}

    def grid(self, case, args, *consts):
        batch, heads, n, _ = case
        return cdiv(n, 128), batch * heads

    def exact(self, args):
        parts = []
        for of in zip(*(args[name].flatten(0, 1) for name in ("q", "k", "v"))):
            value, bound, lse = attention_of_head(of, args["sm_scale"], args["causal"])
            parts.append((value, bound.float(), lse / math.log(2), 2.0**-12 + 2.0**-20 * lse.abs()))
        value, bound, lse, lse_bound = (torch.stack(of) for of in zip(*parts))
        return [(value, bound.double()), (lse.flatten(), lse_bound.flatten())]

    def run_triton(self, case, args):
        names = ("q", "k", "v", "out", "lse", "sm_scale", "stride_z", "stride_h", "stride_n", "heads", "n_ctx")
        flash_attention[self.grid(case, args)](*(args[name] for name in names), CAUSAL=case[3], D=D, M=128, N=64,
                                               num_warps=8, num_stages=3)


class AttentionByViews(Port):
    """A case is (heads, length, form): every key, those up to a query's position, and these with capped scores."""

    name = "attention_by_views"
    cases = [(16, 16384, 0), (16, 16384, 1), (16, 16384, 2), (64, 2048, 0), (64, 2048, 1)]
    cap = 20.0

    def label(self, case):
        return super().label((*case[:2], D)) + ("", " causal", " causal, capped")[case[2]]

    def consts(self, case):
        return lambda form, *_: form == case[2]

    def make(self, case, shift=0):
        heads, n, form = case
        of = {name: normal(heads * n * D, BF16, seed).view(heads, n, D) for seed, name in enumerate(("q", "k", "v"), 1)}
        return {**of, "out": empty(heads * n * D, BF16).view(heads, n, D), "scale": D**-0.5, "cap": self.cap, "form": form}

    def grid(self, case, args, *consts):
        return cdiv(case[1], 128), case[0]

    def exact(self, args):
        n, parts = args["q"].shape[1], []
        after = torch.ones(n, n, dtype=torch.bool, device="cuda").triu(1) if args["form"] else None
        for q, k, v in zip(args["q"], args["k"], args["v"]):
            scores = q.double() @ k.double().T * args["scale"]
            if args["form"] == 2:
                scores = args["cap"] * torch.tanh(scores / args["cap"])
            if args["form"]:
                scores.masked_fill_(after, -math.inf)
            weights, values = torch.softmax(scores, 1), v.double()
            value, bound = rounded(weights @ values, (2.0**-8 + 256 * SINGLE) * (weights @ values.abs()), BF16)
            parts.append((value, bound.float()))
        value, bound = (torch.stack(of) for of in zip(*parts))
        return [(value, bound.double())]

    def library(self, case, args):
        """The library's operation on the same tensors."""
        heads, n, form = case
        entry = LibraryAttention(form)
        own = entry.make((1, 1, D, BF16))
        of = {name: args[name].view(1, heads, n, D) for name in ("q", "k", "v", "out")}
        lse = empty(heads * n, F32).view(heads, n, 1)
        cap = self.cap if form == 2 else 0.0
        numbers = {"scale": own["scale"], "softcap": cap * LOG2_E, "right": 0, "left": 1 << 30}
        return entry, (heads, n, D, BF16), {**own, **of, "lse": lse, **numbers}

    def run_triton(self, case, args):
        heads, n, form = case
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        attention_by_views[self.grid(case, args)](*(args[name] for name in ("q", "k", "v", "out", "scale", "cap")), n,
                                                  FORM=form, D=D, M=128, N=64, num_warps=8, num_stages=3)


class LibraryAttention(products.Attention):
    """The form that the library has for scores that a function changes is its fourth."""

    def __init__(self, form):
        super().__init__(form > 0)
        self.form = (0, 1, 3)[form]

    def launches(self, case, args):
        launch, = super().launches(case, args)
        tile = self.tile(*case[:3])
        launch.consts = lambda form, *of: form == self.form and of == tile
        return [launch]


class PagedDecode(Port):
    """A case is (sequences, keys, heads)."""

    name = "paged_decode"
    cases = [(64, 4096, 8), (128, 1000, 8)]

    def label(self, case):
        return super().label((*case, D))

    def make(self, case, shift=0):
        sequences, keys, heads = case
        max_pages = cdiv(keys, 16)
        pages = sequences * max_pages
        cache = {name: normal(pages * 16 * heads * D, BF16, seed).view(pages, 16, heads, D)
                 for seed, name in enumerate(("k_cache", "v_cache"), 2)}
        generator = torch.Generator("cuda").manual_seed(4)
        table = torch.randperm(pages, generator=generator, device="cuda").to(torch.int32).view(sequences, max_pages)
        lengths = torch.full((sequences,), keys, dtype=torch.int32, device="cuda")
        return {"q": normal(sequences * heads * D, BF16, 1).view(sequences, heads, D), **cache, "table": table,
                "lengths": lengths, "out": empty(sequences * heads * D, BF16).view(sequences, heads, D), "scale": D**-0.5,
                "heads": heads, "max_pages": max_pages}

    def grid(self, case, args, *consts):
        return case[0], case[2]

    def exact(self, args):
        parts = []
        for sequence, length in enumerate(args["lengths"].tolist()):
            pages = args["table"][sequence].long()
            k, v = (args[name][pages].flatten(0, 1)[:length].double() for name in ("k_cache", "v_cache"))
            scores = torch.einsum("hd,khd->hk", args["q"][sequence].double(), k) * args["scale"]
            weights = torch.softmax(scores, 1)
            size = torch.einsum("hk,khd->hd", weights, v.abs())
            within = (length + 512) * 2 * SINGLE * size
            parts.append(rounded(torch.einsum("hk,khd->hd", weights, v), within, BF16))
        return [tuple(torch.stack(of) for of in zip(*parts))]

    def run_triton(self, case, args):
        names = ("q", "k_cache", "v_cache", "table", "lengths", "out", "scale", "heads", "max_pages")
        paged_decode[self.grid(case, args)](*(args[name] for name in names), D=D, num_warps=4)


PORTS = [FlashAttention(), AttentionByViews(), PagedDecode()]


@triton.jit
def attend(q, k_ptr, v_ptr, acc, l_i, m_i, first, end, offs_m, stride_n, n_ctx, qk_scale, D: tl.constexpr,
           N: tl.constexpr, DIAGONAL: tl.constexpr):
    offs_d = tl.arange(0, D)
    for start_n in range(first, end, N):
        offs_n = start_n + tl.arange(0, N)
        keys = tl.load(k_ptr + offs_n[None, :] * stride_n + offs_d[:, None], offs_n[None, :] < n_ctx, 0.0)
        qk = tl.dot(q, keys) * qk_scale
        if DIAGONAL:
            seen = (offs_m[:, None] >= offs_n[None, :]) & (offs_n[None, :] < n_ctx)
        else:
            seen = offs_n[None, :] < n_ctx
        qk = tl.where(seen, qk, -float("inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        values = tl.load(v_ptr + offs_n[:, None] * stride_n + offs_d[None, :], offs_n[:, None] < n_ctx, 0.0)
        acc = tl.dot(p.to(tl.bfloat16), values, acc * alpha[:, None])
        m_i = m_ij
    return acc, l_i, m_i


@triton.jit
def flash_attention(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sm_scale, stride_z, stride_h, stride_n, heads, n_ctx,
                    CAUSAL: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    base = (off_hz // heads) * stride_z + (off_hz % heads) * stride_h
    offs_m = start_m * M + tl.arange(0, M)
    offs_d = tl.arange(0, D)
    rows = base + offs_m[:, None] * stride_n + offs_d[None, :]
    q = tl.load(q_ptr + rows, offs_m[:, None] < n_ctx, 0.0)
    qk_scale = sm_scale * 1.44269504089
    acc = tl.zeros([M, D], dtype=tl.float32)
    l_i = tl.zeros([M], dtype=tl.float32)
    m_i = tl.full([M], -float("inf"), dtype=tl.float32)
    if CAUSAL:
        lo = start_m * M
        hi = min(lo + M, n_ctx)
        acc, l_i, m_i = attend(q, k_ptr + base, v_ptr + base, acc, l_i, m_i, 0, lo, offs_m, stride_n, n_ctx, qk_scale,
                               D, N, False)
        acc, l_i, m_i = attend(q, k_ptr + base, v_ptr + base, acc, l_i, m_i, lo, hi, offs_m, stride_n, n_ctx, qk_scale,
                               D, N, True)
    else:
        acc, l_i, m_i = attend(q, k_ptr + base, v_ptr + base, acc, l_i, m_i, 0, n_ctx, offs_m, stride_n, n_ctx,
                               qk_scale, D, N, False)
    tl.store(lse_ptr + off_hz * n_ctx + offs_m, m_i + tl.math.log2(l_i), offs_m < n_ctx)
    tl.store(out_ptr + rows, (acc / l_i[:, None]).to(tl.bfloat16), offs_m[:, None] < n_ctx)


@triton.jit
def attention_by_views(q_ptr, k_ptr, v_ptr, out_ptr, scale, cap, n, FORM: tl.constexpr, D: tl.constexpr, M: tl.constexpr,
                       N: tl.constexpr):
    first = tl.program_id(0) * M
    base = tl.program_id(1).to(tl.int64) * n * D
    q_rows = tl.make_tensor_descriptor(q_ptr + base, [n, D], [D, 1], [M, D])
    k_rows = tl.make_tensor_descriptor(k_ptr + base, [n, D], [D, 1], [N, D])
    v_rows = tl.make_tensor_descriptor(v_ptr + base, [n, D], [D, 1], [N, D])
    out_rows = tl.make_tensor_descriptor(out_ptr + base, [n, D], [D, 1], [M, D])
    rows = first + tl.arange(0, M)
    q = q_rows.load([first, 0])
    acc = tl.zeros([M, D], dtype=tl.float32)
    l = tl.zeros([M], dtype=tl.float32)
    m = tl.full([M], -float("inf"), dtype=tl.float32)
    end = n
    if FORM > 0:
        end = min(first + M, n)
    for start in range(0, end, N):
        cols = start + tl.arange(0, N)
        s = tl.dot(q, k_rows.load([start, 0]).T) * scale
        if FORM == 2:
            s = cap * (2 * tl.sigmoid(2 * s / cap) - 1)
        seen = cols[None, :] < n
        if FORM > 0:
            seen = seen & (cols[None, :] <= rows[:, None])
        s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v_rows.load([start, 0]), acc * alpha[:, None])
        m = m_new
    out_rows.store([first, 0], (acc / l[:, None]).to(tl.bfloat16))


@triton.jit
def paged_decode(q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, out_ptr, scale, heads, max_pages, D: tl.constexpr):
    sequence = tl.program_id(0)
    head = tl.program_id(1)
    offs_d = tl.arange(0, D)
    slots = tl.arange(0, 16)
    length = tl.load(lengths_ptr + sequence)
    q = tl.load(q_ptr + (sequence * heads + head) * D + offs_d).to(tl.float32) * scale
    m = -float("inf")
    l = 0.0
    acc = tl.zeros([D], dtype=tl.float32)
    for page in range(0, tl.cdiv(length, 16)):
        block = tl.load(table_ptr + sequence * max_pages + page)
        rows = (block * 16 + slots) * heads + head
        offsets = rows[:, None] * D + offs_d[None, :]
        seen = page * 16 + slots < length
        k = tl.load(k_ptr + offsets, seen[:, None], 0.0).to(tl.float32)
        qk = tl.where(seen, tl.sum(q[None, :] * k, 1), -float("inf"))
        m_new = tl.maximum(m, tl.max(qk, 0))
        alpha = tl.exp(m - m_new)
        p = tl.exp(qk - m_new)
        v = tl.load(v_ptr + offsets, seen[:, None], 0.0).to(tl.float32)
        acc = acc * alpha + tl.sum(p[:, None] * v, 0)
        l = l * alpha + tl.sum(p, 0)
        m = m_new
    tl.store(out_ptr + (sequence * heads + head) * D + offs_d, (acc / l).to(tl.bfloat16))

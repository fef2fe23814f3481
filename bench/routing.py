"""Rotary embedding, recurrences, gating and embeddings."""

import math

import torch
import torch.nn.functional as F

from entry import (BF16, F16, F32, NAMES, SINGLE, TINY, Entry, Launch, cdiv, empty, normal, sm_count, rounded,
                   triton)


class Rope(Entry):
    """A case is (tokens, heads, elements of a head, rotated pairs, element type)."""

    group = "rope"
    inputs = ("x", "positions", "cos", "sin")
    cases = [(16384, 32, 128, 64, BF16)]
    small = [(*shape, dtype) for shape in ((1, 1, 2, 1), (5, 3, 64, 32), (7, 5, 100, 33), (20, 9, 128, 64))
             for dtype in (F32, F16, BF16)]

    def __init__(self, interleaved=False):
        self.interleaved = interleaved
        self.name = "rope_interleaved" if interleaved else "rope"
        self.compute = lambda x, positions, cos, sin: turn(
            x.float(), cos[positions.long()][:, None], sin[positions.long()][:, None], interleaved).to(x.dtype)

    def label(self, case):
        tokens, heads, dim, half, dtype = case
        return f"{tokens} x {heads} x {dim}, {half} pairs {NAMES[dtype]}"

    @staticmethod
    def tables(tokens, half):
        angles = torch.arange(4096, device="cuda")[:, None] * 10000.0 ** (-torch.arange(half, device="cuda") / half)
        positions = (torch.arange(tokens, device="cuda") % 4096).int()
        return {"positions": positions, "cos": angles.cos().float(), "sin": angles.sin().float()}

    def make(self, case, shift=0):
        tokens, heads, dim, half, dtype = case
        count = tokens * heads * dim
        return {"x": normal(count, dtype, 1, shift).view(tokens, heads, dim), **self.tables(tokens, half),
                "out": empty(count, dtype, shift).view(tokens, heads, dim), "per_token": heads, "dim": dim, "half": half}

    def launches(self, case, args):
        tokens, heads, _, half, dtype = case
        return [Launch("rope", [NAMES[dtype]], lambda interleaved, pairs, block: interleaved == self.interleaved
                       and pairs >= half and block >= cdiv(heads, cdiv(heads, 40)),
                       lambda interleaved, pairs, block: (tokens, cdiv(heads, 40)))]

    def exact(self, args):
        x, places = args["x"].double(), args["positions"].long()
        cos, sin = (args[name].double()[places][:, None] for name in ("cos", "sin"))
        return [rounded(turn(x, cos, sin, self.interleaved), 3 * SINGLE * sizes(x, args["half"], self.interleaved),
                        args["x"].dtype)]

    def traffic(self, args):
        return 2 * args["x"].numel() * args["x"].element_size()

    def triton(self, args):
        tokens, heads, dim = args["x"].shape
        triton_rope[lambda meta: (tokens, triton.cdiv(heads, meta["HEADS"]))](
            args["x"], args["positions"], args["cos"], args["sin"], args["out"], heads, dim, args["half"],
            HALF=triton.next_power_of_2(args["half"]), INTERLEAVED=self.interleaved)


def turn(x, cos, sin, interleaved):
    """The first pairs of each head turned."""
    half = cos.shape[-1]
    pairs = x[..., : 2 * half]
    a, b = (pairs[..., ::2], pairs[..., 1::2]) if interleaved else (pairs[..., :half], pairs[..., half:])
    y = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack(y, -1).flatten(-2) if interleaved else torch.cat(y, -1)
    return torch.cat([turned, x[..., 2 * half:]], -1) if x.shape[-1] > 2 * half else turned


def sizes(x, half, interleaved):
    """For each element the sizes of its pair."""
    ones = torch.ones(half, dtype=x.dtype, device=x.device)
    return turn(x.abs(), ones, -ones, interleaved).abs() + turn(x.abs(), ones, ones, interleaved).abs()


class QkNormRope(Rope):
    """A case is (tokens, query heads, key heads, pairs, element type)."""

    inputs = ("original", "positions", "cos", "sin", "gammas")
    outputs = ("qkv",)
    eps = 1e-6
    cases = [(16384, 32, 8, 64, BF16)]
    small = [(*shape, dtype) for shape in ((1, 1, 1, 1), (5, 8, 2, 64), (7, 3, 1, 33)) for dtype in (F32, F16, BF16)]

    def __init__(self):
        super().__init__()
        self.name = "qk_norm_rope"
        self.compute = None

    def label(self, case):
        tokens, queries, keys, half, dtype = case
        return f"{tokens} x ({queries} + 2 x {keys}) x {2 * half} {NAMES[dtype]}"

    def make(self, case, shift=0):
        tokens, queries, keys, half, dtype = case
        shape = (tokens, queries + 2 * keys, 2 * half)
        count = math.prod(shape)
        def compute(qkv, positions, cos, sin, gammas):
            return self.normed(qkv.float(), positions, cos, sin, gammas.float(), queries, keys)[0].to(qkv.dtype)
        self.compute = compute
        return {"original": normal(count, dtype, 1, shift).view(shape), "qkv": empty(count, dtype, shift).view(shape),
                "gammas": normal(4 * half, dtype, 2, shift), **self.tables(tokens, half),
                "n_heads": tokens * (queries + keys), "queries": queries, "keys": keys, "row": math.prod(shape[1:]),
                "half": half, "eps": self.eps}

    def prepare(self, args):
        args["qkv"].copy_(args["original"])

    def launches(self, case, args):
        half = case[3]
        return [Launch("qk_norm_rope", [NAMES[case[4]]], lambda pairs, width: not pairs and width >= half,
                       lambda pairs, width: (case[0], cdiv(case[1] + case[2], 512 // width)))]

    def normed(self, qkv, positions, cos, sin, gammas, queries, keys):
        """All heads, and the sizes of the pairs of those that were turned."""
        dim, places = qkv.shape[2], positions.long()
        gamma = torch.cat([gammas[:dim].expand(queries, dim), gammas[dim:].expand(keys, dim)])
        heads = qkv[:, : queries + keys]
        heads = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + self.eps) * gamma
        turned = turn(heads, cos[places][:, None], sin[places][:, None], False)
        return torch.cat([turned, qkv[:, queries + keys:]], 1), heads

    def exact(self, args):
        of = [args[name].double() for name in ("original", "positions", "cos", "sin", "gammas")]
        value, heads = self.normed(of[0], args["positions"], *of[2:], args["queries"], args["keys"])
        within = torch.zeros_like(value)
        bound = (20 + math.sqrt(heads.shape[2])) * SINGLE * sizes(heads, args["half"], False)
        within[:, : heads.shape[1]] = bound
        return [rounded(value, within, args["qkv"].dtype)]

    def eager(self, args):
        return self.compute(*(args[name] for name in self.inputs))

    def traffic(self, args):
        return 2 * args["n_heads"] * 2 * args["half"] * args["qkv"].element_size()

    def triton(self, args):
        tokens, heads = args["qkv"].shape[0], args["queries"] + args["keys"]
        triton_qk_norm_rope[lambda meta: (tokens, triton.cdiv(heads, meta["HEADS"]))](
            args["qkv"], args["positions"], args["cos"], args["sin"], args["gammas"], args["queries"], heads,
            args["row"], args["half"], self.eps, HALF=triton.next_power_of_2(args["half"]))


# ---- recurrence, gating, embedding


class Recurrence(Entry):
    """A case is (sequences, steps, channels, element type)."""

    name, group = "recurrence", "recurrence"
    inputs = ("a", "b", "gate")
    outputs = ("out", "last")
    cases = [(8, 4096, 2048, BF16), (4, 4096, 4096, F32)]
    sweep = [(sequences, 4096, 2048, dtype) for dtype in (BF16, F32) for sequences in (1, 2, 4, 8)]
    small = [(*shape, dtype) for shape in ((1, 1, 1), (2, 63, 7), (2, 65, 64), (1, 200, 130), (3, 70, 4360))
             for dtype in (F32, F16, BF16)]

    def label(self, case):
        return f"{case[0]} x {case[1]} x {case[2]} {NAMES[case[3]]}"

    def width(self, case):
        """Channels of a program, as the library chooses them."""
        wide = 64 if case[3] == F32 else 128
        return wide if 4 * case[0] * cdiv(case[2], wide) >= 3 * sm_count() else 32

    def make(self, case, shift=0):
        sequences, steps, channels, dtype = case
        shape = (sequences, steps, channels)
        count = math.prod(shape)
        args = {name: normal(count, dtype, seed, shift).view(shape) for seed, name in enumerate(("b", "gate"), 2)}
        args["a"] = torch.sigmoid(normal(count, dtype, 1, shift) + 2).view(shape)
        return {**args, "first": empty(0, F32), "out": empty(count, dtype, shift).view(shape),
                "last": empty(sequences * channels, F32).view(sequences, channels), "n_steps": steps,
                "n_channels": channels}

    def launches(self, case, args):
        return [Launch("recurrence", [NAMES[case[3]]],
                       lambda width, steps, first: not first and width == self.width(case),
                       lambda width, steps, first: (case[0], cdiv(case[2], width)))]

    def exact(self, args):
        a, b, gate = (args[name].double() for name in self.inputs)
        state, size = torch.zeros_like(a[:, 0]), torch.zeros_like(a[:, 0])
        states, bounds = torch.empty_like(a), torch.empty_like(a)
        for step in range(a.shape[1]):
            state, size = a[:, step] * state + b[:, step], a[:, step].abs() * size + b[:, step].abs()
            states[:, step], bounds[:, step] = state, size
        arithmetic = (4 * a.shape[1] + 16) * SINGLE
        silu = F.silu(gate)
        value = states * silu
        inner = (arithmetic * bounds + TINY) * (silu.abs() + TINY) + 8 * SINGLE * value.abs() + TINY * states.abs()
        return [rounded(value, inner, args["a"].dtype), (state, arithmetic * size + TINY)]

    def traffic(self, args):
        return 4 * args["a"].numel() * args["a"].element_size() + 4 * args["last"].numel()

    @staticmethod
    def compute(a, b, gate):
        """What PyTorch offers: steps one by one would be a kernel each, so doubling strides."""
        decay, state, reach = a.float(), b.float(), 1
        while reach < a.shape[1]:
            state = torch.cat([state[:, :reach], state[:, reach:] + decay[:, reach:] * state[:, :-reach]], 1)
            decay = torch.cat([decay[:, :reach], decay[:, reach:] * decay[:, :-reach]], 1)
            reach *= 2
        return (state * F.silu(gate.float())).to(a.dtype), state[:, -1]

    def triton(self, args):
        sequences, steps, channels = args["a"].shape
        triton_recurrence[lambda meta: (sequences, triton.cdiv(channels, meta["CHANNELS"]))](
            args["a"], args["b"], args["gate"], args["out"], args["last"], sequences, steps, channels)


class TopkGating(Entry):
    """A case is (tokens, experts, k, element type)."""

    name, group = "topk_gating", "gating"
    inputs = ("logits",)
    outputs = ("weights", "experts")
    cases = [(1 << 20, 64, 8, BF16), (1 << 18, 256, 8, BF16), (1 << 20, 8, 2, BF16)]
    small = [(*shape, dtype) for shape in ((1, 8, 8), (300, 8, 2), (5, 13, 2), (100, 60, 4), (50, 64, 8), (17, 256, 8))
             for dtype in (F32, F16, BF16)]

    def label(self, case):
        return f"{case[0]} tokens, {case[2]} of {case[1]} {NAMES[case[3]]}"

    def make(self, case, shift=0):
        tokens, experts, k, dtype = case
        self.k = k
        # Distinct logits: PyTorch chooses any of equal ones.
        logits = torch.rand(tokens, experts, device="cuda").argsort(1).to(dtype) / 16
        return {"logits": logits, "weights": empty(tokens * k, F32).view(tokens, k), "k": k,
                "experts": torch.empty(tokens, k, dtype=torch.int32, device="cuda"), "n_tokens": tokens,
                "n_experts": experts, "renormalize": True}

    def launches(self, case, args):
        tokens, experts, k, dtype = case
        return [Launch("topk_gating", [NAMES[dtype]], lambda count, width: count == k and width >= experts,
                       lambda count, width: (cdiv(tokens, 1024 // width),))]

    def exact(self, args):
        chosen, indices = args["logits"].double().topk(args["k"], 1)
        weights = F.softmax(chosen, 1)
        distance = chosen[:, :1] - chosen
        bound = (16 + math.sqrt(args["n_experts"]) + 2 * distance) * SINGLE * weights + TINY
        return [(weights, bound), (indices, torch.full_like(weights, 0.5))]

    def traffic(self, args):
        return args["logits"].numel() * args["logits"].element_size() + 8 * args["weights"].numel()

    def compute(self, logits):
        chosen, indices = logits.float().topk(self.k, 1)
        return F.softmax(chosen, 1), indices

    def triton(self, args):
        tokens, experts = args["logits"].shape
        triton_topk_gating[lambda meta: (triton.cdiv(tokens, meta["TOKENS"]),)](
            args["logits"], args["weights"], args["experts"], tokens, experts, K=args["k"],
            EXPERTS=triton.next_power_of_2(experts))


class Embedding(Entry):
    """A case is (rows of the table, ids, dim, element type)."""

    name, group = "embedding", "embedding"
    inputs = ("table", "ids")
    cases = [(128256, 32768, 4096, BF16)]
    small = [(*shape, dtype) for shape in ((1, 3, 1), (10, 5, 7), (50, 9, 2048), (9, 4, 5001))
             for dtype in (F32, F16, BF16)]

    def label(self, case):
        return f"{case[1]} of {case[0]} x {case[2]} {NAMES[case[3]]}"

    def make(self, case, shift=0):
        rows, count, dim, dtype = case
        generator = torch.Generator("cuda").manual_seed(1)
        ids = torch.randint(rows, (count,), device="cuda", generator=generator)
        return {"table": normal(rows * dim, dtype, 1, shift).view(rows, dim), "ids": ids,
                "out": empty(count * dim, dtype, shift).view(count, dim), "n_rows": rows, "dim": dim}

    def launches(self, case, args):
        _, count, dim, dtype = case
        return [Launch("embedding", [NAMES[dtype]], lambda block: True, lambda block: (count, cdiv(dim, block)))]

    def exact(self, args):
        value = args["table"][args["ids"]].double()
        return [(value, torch.full_like(value, 2.0**-149))]

    def traffic(self, args):
        return 2 * args["out"].numel() * args["out"].element_size() + 8 * args["ids"].numel()

    @staticmethod
    def compute(table, ids):
        return F.embedding(ids, table)

    def triton(self, args):
        count, dim = args["out"].shape
        triton_embedding[lambda meta: (count, triton.cdiv(dim, meta["BLOCK"]))](
            args["table"], args["ids"], args["out"], dim)


ENTRIES = [Rope(), Rope(True), QkNormRope(), Recurrence(), TopkGating(), Embedding()]


# ---- Triton peers

if triton is not None:
    import triton.language as tl

    from entry import for_elements, quick

    of_heads = [triton.Config({"HEADS": heads}, num_warps=warps) for heads in (4, 8, 16, 32) for warps in (1, 2, 4, 8)]

    @triton.autotune(of_heads, key=["heads", "dim", "half", "INTERLEAVED"], do_bench=quick)
    @triton.jit
    def triton_rope(x_ptr, positions_ptr, cos_ptr, sin_ptr, out_ptr, heads, dim, half, HALF: tl.constexpr,
                    INTERLEAVED: tl.constexpr, HEADS: tl.constexpr):
        token = tl.program_id(0).to(tl.int64)
        head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
        pair = tl.arange(0, HALF)
        angle = tl.load(positions_ptr + token) * half + pair
        cos = tl.load(cos_ptr + angle, pair < half, other=0.0)[None, :]
        sin = tl.load(sin_ptr + angle, pair < half, other=0.0)[None, :]
        start = (token * heads + head)[:, None] * dim
        present = (head < heads)[:, None]
        dtype = out_ptr.dtype.element_ty
        if INTERLEAVED:
            both = tl.arange(0, 2 * HALF)[None, :]
            mask = present & (both < 2 * half)
            x = tl.load(x_ptr + start + both, mask, other=0.0).to(tl.float32)
            a, b = tl.split(tl.reshape(x, [HEADS, HALF, 2]))
            y = tl.interleave(a * cos - b * sin, b * cos + a * sin)
            tl.store(out_ptr + start + both, y.to(dtype), mask)
        else:
            mask = present & (pair < half)[None, :]
            first = start + pair[None, :]
            a = tl.load(x_ptr + first, mask, other=0.0).to(tl.float32)
            b = tl.load(x_ptr + first + half, mask, other=0.0).to(tl.float32)
            tl.store(out_ptr + first, (a * cos - b * sin).to(dtype), mask)
            tl.store(out_ptr + first + half, (b * cos + a * sin).to(dtype), mask)
        for rest in range(2 * half, dim, HALF):
            column = rest + pair[None, :]
            mask = present & (column < dim)
            tl.store(out_ptr + start + column, tl.load(x_ptr + start + column, mask), mask)

    @triton.autotune(of_heads, key=["heads", "half"], restore_value=["qkv_ptr"], do_bench=quick)
    @triton.jit
    def triton_qk_norm_rope(qkv_ptr, positions_ptr, cos_ptr, sin_ptr, gammas_ptr, queries, heads, row, half, eps,
                            HALF: tl.constexpr, HEADS: tl.constexpr):
        token = tl.program_id(0).to(tl.int64)
        head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
        pair = tl.arange(0, HALF)
        inside = pair < half
        angle = tl.load(positions_ptr + token) * half + pair
        cos = tl.load(cos_ptr + angle, inside, other=0.0)[None, :]
        sin = tl.load(sin_ptr + angle, inside, other=0.0)[None, :]
        first = token * row + head[:, None] * (2 * half) + pair[None, :]
        mask = (head < heads)[:, None] & inside[None, :]
        a = tl.load(qkv_ptr + first, mask, other=0.0).to(tl.float32)
        b = tl.load(qkv_ptr + first + half, mask, other=0.0).to(tl.float32)
        scale = tl.rsqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / (2 * half) + eps)[:, None]
        # Two rows of parameters, and each head has one of them.
        is_key = (head >= queries)[:, None]
        of_queries = tl.load(gammas_ptr + pair, inside, other=0.0).to(tl.float32)[None, :]
        of_keys = tl.load(gammas_ptr + 2 * half + pair, inside, other=0.0).to(tl.float32)[None, :]
        a = a * scale * tl.where(is_key, of_keys, of_queries)
        of_queries = tl.load(gammas_ptr + half + pair, inside, other=0.0).to(tl.float32)[None, :]
        of_keys = tl.load(gammas_ptr + 3 * half + pair, inside, other=0.0).to(tl.float32)[None, :]
        b = b * scale * tl.where(is_key, of_keys, of_queries)
        dtype = qkv_ptr.dtype.element_ty
        tl.store(qkv_ptr + first, (a * cos - b * sin).to(dtype), mask)
        tl.store(qkv_ptr + first + half, (b * cos + a * sin).to(dtype), mask)

    @triton.autotune([triton.Config({"TOKENS": tokens}, num_warps=warps) for tokens in (4, 8, 16, 32, 64, 128)
                      for warps in (1, 2, 4)], key=["n_experts", "K"], do_bench=quick)
    @triton.jit
    def triton_topk_gating(logits_ptr, weights_ptr, experts_ptr, tokens, n_experts, K: tl.constexpr,
                           EXPERTS: tl.constexpr, TOKENS: tl.constexpr):
        token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
        expert = tl.arange(0, EXPERTS)
        present = (token < tokens)[:, None]
        places = token[:, None] * n_experts + expert[None, :]
        x = tl.load(logits_ptr + places, present & (expert < n_experts)[None, :], other=float("-inf")).to(tl.float32)
        # Integers in the order of 16-bit floats, an expert in the low bits: `topk` gives no indices.
        bits = x.to(tl.int32, bitcast=True)
        order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        top = tl.topk((order & -8192) | (8191 - expert)[None, :], K, dim=1)
        order = top & -8192
        chosen = (order ^ ((order >> 31) & 0x7FFFE000)).to(tl.float32, bitcast=True)
        share = tl.exp(chosen - tl.max(chosen, 1)[:, None])
        share = share / tl.sum(share, 1)[:, None]
        out = token[:, None] * K + tl.arange(0, K)[None, :]
        tl.store(weights_ptr + out, share, present)
        tl.store(experts_ptr + out, 8191 - (top & 8191), present)

    @triton.jit
    def after(a, b, c, d):
        return a * c, b * c + d

    @triton.autotune([triton.Config({"CHANNELS": channels, "STEPS": steps}, num_warps=warps)
                      for channels in (32, 64) for steps in (32, 64) for warps in (4, 8)],
                     key=["sequences", "steps", "channels"],
                     do_bench=quick)
    @triton.jit
    def triton_recurrence(a_ptr, b_ptr, gate_ptr, out_ptr, last_ptr, sequences, steps, channels,
                          CHANNELS: tl.constexpr, STEPS: tl.constexpr):
        sequence = tl.program_id(0).to(tl.int64)
        channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
        step = tl.arange(0, STEPS)
        state = tl.zeros([CHANNELS], dtype=tl.float32)
        for start in range(0, steps, STEPS):
            places = (sequence * steps + start + step)[:, None] * channels + channel[None, :]
            mask = (start + step < steps)[:, None] & (channel < channels)[None, :]
            a = tl.load(a_ptr + places, mask, other=1.0).to(tl.float32)
            b = tl.load(b_ptr + places, mask, other=0.0).to(tl.float32)
            gate = tl.load(gate_ptr + places, mask, other=0.0).to(tl.float32)
            decay, total = tl.associative_scan((a, b), 0, after)
            h = decay * state[None, :] + total
            tl.store(out_ptr + places, (h * gate * tl.sigmoid(gate)).to(out_ptr.dtype.element_ty), mask)
            state = tl.sum(tl.where((step == STEPS - 1)[:, None], h, 0.0), 0)
        tl.store(last_ptr + sequence * channels + channel, state, channel < channels)

    @for_elements(key=("dim",), blocks=(1024, 2048, 4096))
    @triton.jit
    def triton_embedding(table_ptr, ids_ptr, out_ptr, dim, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = column < dim
        x = tl.load(table_ptr + tl.load(ids_ptr + row) * dim + column, mask)
        tl.store(out_ptr + row * dim + column, x, mask)

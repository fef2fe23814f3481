"""Rotary embedding of queries and keys: normalized in a packed matrix, with a cache of keys and values, inside attention's scores."""

import math

import torch
import torch.nn.functional as F

from entry import BF16, F16, F32, NAMES, SINGLE, UNIT, Entry, Launch, cdiv, empty, normal, rounded
from routing import sizes, turn

#: Positions of a table.
POSITIONS = 8192
#: Elements of heads that a program handles, and the stride of a cache that is not there.
ELEMENTS = 512
#: The constants of `packed_qkv`: pairs are neighbors, halves of a head, halves of its first part.
NEIGHBORS, HALVES, PARTS = 0, 1, 2
#: Queries of a program of `rotary_attention`, and rows of one of `rotate_heads`.
QUERIES, ROWS = 16, 64


def table(positions, half, dtype):
    """For each position the cosines of `half` pairs, then as many sines."""
    place, pair = torch.arange(positions, device="cuda"), torch.arange(half, device="cuda")
    angles = place[:, None] * 10000.0 ** (-pair / max(half, 1))
    return torch.cat([angles.cos(), angles.sin()], 1).to(dtype)


class PackedQkv(Entry):
    """A case is (tokens, query heads, key heads, elements of a head, those that are rotated, elements between rows, element type)."""

    group = "rope"
    eps = 1e-6
    cases = [(16384, 32, 8, 128, 128, 0, BF16), (16384, 32, 8, 128, 64, 0, BF16), (16384, 32, 32, 64, 64, 0, BF16),
             (16, 32, 8, 128, 128, 0, BF16)]
    small = [(*shape, dtype) for shape in ((1, 1, 1, 2, 2, 0), (5, 8, 2, 128, 128, 0), (7, 3, 1, 66, 66, 5), (6, 5, 2, 80, 32, 0),
                                           (9, 2, 1, 100, 0, 3), (5, 4, 4, 256, 64, 8))
             for dtype in (F32, F16, BF16)]

    def __init__(self, interleaved=False, cached=False, form=None):
        self.interleaved, self.cached, self.form = interleaved, cached, form
        words = ("packed_qkv", "interleaved" * interleaved, "cached" * cached, form)
        self.name = "_".join(filter(None, words))
        self.outputs = ("qkv", "key_cache", "value_cache") if cached else ("qkv",)
        self.inputs = ("original", "positions", "cos_sin", "query_gamma", "key_gamma",
                       *(("key_cache", "value_cache", "slots") if cached else ()))
        self.compute = None

    def label(self, case):
        tokens, queries, keys, dim, rotary, gap, dtype = case
        return f"{tokens} x ({queries} + 2 x {keys}) x {dim}, {rotary} rotated, {gap} apart {NAMES[dtype]}"

    def make(self, case, shift=0):
        tokens, queries, keys, dim, rotary, gap, dtype = case
        stride = (queries + 2 * keys) * dim + gap
        generator = torch.Generator("cuda").manual_seed(4)
        positions = torch.randint(0, POSITIONS, (tokens,), generator=generator, device="cuda", dtype=torch.int32)
        # Every token has a slot of its own, and every slot a token.
        slots = torch.randperm(tokens, generator=generator, device="cuda", dtype=torch.int32)
        args = {"original": normal(tokens * stride, dtype, 1, shift).view(tokens, stride),
                "qkv": empty(tokens * stride, dtype, shift).view(tokens, stride),
                "query_gamma": normal(dim, dtype, 2, shift), "key_gamma": normal(dim, dtype, 3, shift),
                "cos_sin": table(POSITIONS, rotary // 2, dtype), "positions": positions, "slots": slots}
        for name in ("key_cache", "value_cache"):
            args[name] = empty(tokens * keys * dim, dtype, shift).view(tokens, keys, dim)

        def compute(original, positions, cos_sin, query_gamma, key_gamma, *cache):
            gammas = query_gamma.float(), key_gamma.float()
            heads, _ = self.normalized(original.float(), positions, cos_sin.float(), gammas, case)
            packed = torch.cat([heads.flatten(1).to(dtype), original[:, (queries + keys) * dim:]], 1)
            if not cache:
                return packed
            (key_cache, value_cache, slots), rows = cache, packed[:, : stride - gap].unflatten(1, (-1, dim))
            key_cache.index_copy_(0, slots.long(), rows[:, queries: queries + keys])
            value_cache.index_copy_(0, slots.long(), rows[:, queries + keys:])
            return packed, key_cache, value_cache
        self.compute = compute
        half = rotary // 2
        halves = HALVES if rotary == dim and dim in (64, 128, 256) else PARTS
        return {**args, "queries": queries, "keys": keys, "pairs": NEIGHBORS if self.interleaved else halves, "dim": dim,
                "row_stride": stride, "half": half, "n_positions": POSITIONS if half else 0, "eps": self.eps}

    def prepare(self, args):
        args["qkv"].copy_(args["original"])

    def launches(self, case, args):
        qkv, nothing = args["qkv"].flatten(), args["key_cache"][:0, None]
        plain = {"qkv": qkv, "slots": args["positions"], "key_cache": nothing, "value_cache": nothing}
        # One page of all slots.
        cached = {"qkv": qkv, "key_cache": args["key_cache"][None], "value_cache": args["value_cache"][None]}
        still = {"half": 0, "n_positions": 0, "pairs": NEIGHBORS if self.interleaved else PARTS}
        as_it_is = {"query_gamma": args["query_gamma"][:0], "key_gamma": args["key_gamma"][:0]}
        if not self.form:
            return [self.launch(case, args, cached if self.cached else plain, self.cached)]
        norm, rotation = {**plain, **still}, {**plain, **as_it_is}
        launches = [self.launch(case, args, norm), self.launch(case, args, rotation)]
        write = {**cached, **still, **as_it_is}
        return launches + [self.launch(case, args, write, True)] * self.cached

    @staticmethod
    def launch(case, args, taken, is_cached=False):
        tokens, queries, keys, dim, _, _, dtype = case
        wanted = taken.get("pairs", args["pairs"])

        def grid(_, wide):
            heads = ELEMENTS // wide
            return tokens, cdiv(queries + keys, heads) + (cdiv(keys, heads) if is_cached else 0)
        return Launch("packed_qkv", [NAMES[dtype]], lambda pairs, wide: pairs == wanted and wide >= dim, grid, **taken)

    def normalized(self, rows, positions, cos_sin, gammas, case):
        """Query and key heads, normalized and rotated, and as they were between."""
        _, queries, keys, dim, rotary, _, _ = case
        heads = rows[:, : (queries + keys) * dim].unflatten(1, (-1, dim))
        gamma = torch.cat([gammas[0].expand(queries, dim), gammas[1].expand(keys, dim)])
        heads = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + self.eps) * gamma
        if rotary == 0:
            return heads, heads
        cos, sin = cos_sin[positions.long()][:, None].chunk(2, -1)
        return turn(heads, cos, sin, self.interleaved), heads

    def case_of(self, args):
        counts = [args[name] for name in ("queries", "keys", "dim")]
        return (len(args["positions"]), *counts, 2 * args["half"], 0, args["qkv"].dtype)

    def exact(self, args):
        case, dtype = self.case_of(args), args["qkv"].dtype
        _, queries, keys, dim, rotary, _, _ = case
        value = args["original"].double()
        within = torch.zeros_like(value)
        gammas = args["query_gamma"].double(), args["key_gamma"].double()
        heads, normed = self.normalized(value, args["positions"], args["cos_sin"].double(), gammas, case)
        pairs = sizes(normed, rotary // 2, self.interleaved) if rotary else normed.abs()
        # Between the launches of the separate form heads are rounded.
        unit = (20 + math.sqrt(dim)) * SINGLE + (UNIT[dtype] if self.form else 0.0)
        end = (queries + keys) * dim
        value = torch.cat([heads.flatten(1), value[:, end:]], 1)
        within[:, :end] = unit * pairs.flatten(1)
        all_rows = rounded(value, within, dtype)
        if not self.cached:
            return [all_rows]
        results, slots = [all_rows], args["slots"].long()
        for first in (queries, queries + keys):
            own = [of[:, first * dim: (first + keys) * dim].unflatten(1, (-1, dim)) for of in all_rows]
            results.append(tuple(torch.empty_like(of).index_copy_(0, slots, of) for of in own))
        return results

    def traffic(self, args):
        heads = 2 * (args["queries"] + args["keys"]) + (3 * args["keys"] if self.cached else 0)
        return len(args["positions"]) * heads * args["dim"] * args["qkv"].element_size()


class RotaryAttention(Entry):
    """Attention of queries and keys that are not rotated, each of which sees all. A case is (heads, key heads, queries, keys, elements,
    element type)."""

    group = "rope"
    inputs = ("q", "k", "v", "cos_sin")
    cases = [(heads, key_heads, queries, keys, 128, BF16) for heads, key_heads, queries, keys in (
        (128, 128, 1, 8192), (512, 128, 1, 8192), (32, 8, 1, 8192), (128, 128, 16, 2048), (32, 32, 1, 256))]
    small = [(*shape, d, dtype) for shape in ((1, 1, 1, 1), (4, 2, 1, 300), (3, 3, 7, 129), (6, 2, 33, 130)) for d in (64, 80, 128)
             for dtype in (F16, BF16)]

    def __init__(self, form=None):
        self.form = form
        self.name = "_".join(filter(None, ("rotary_attention", form)))

    @staticmethod
    def compute(q, k, v, cos_sin):
        q, k = (rotated(of, cos_sin.to(F32)).to(q.dtype)[None] for of in (q.to(F32), k.to(F32)))
        return F.scaled_dot_product_attention(q, k, v[None], enable_gqa=True)[0]

    def label(self, case):
        heads, key_heads, queries, keys, d, dtype = case
        return f"{heads} / {key_heads} x {queries} of {keys} x {d} {NAMES[dtype]}"

    def make(self, case, shift=0):
        heads, key_heads, queries, keys, d, dtype = case
        rows = {"q": (heads, queries, d), "k": (key_heads, keys, d), "v": (key_heads, keys, d)}
        args = {name: normal(math.prod(shape), dtype, seed, shift).view(shape) for seed, (name, shape) in enumerate(rows.items())}
        between = {f"rotated_{name}": torch.empty_like(args[name]) for name in ("q", "k")} if self.form else {}
        return {**args, **between, "cos_sin": table(keys, d // 2, dtype),
                "out": empty(heads * queries * d, dtype, shift).view(heads, queries, d),
                "lse": empty(heads * queries, F32, shift).view(heads, queries, 1), "scale": d**-0.5 * math.log2(math.e),
                "group": heads // key_heads, "half": d // 2, "left": 0, "right": keys, "softcap": 0.0, "dropout_p": 0.0, "seed": 0}

    def launches(self, case, args):
        heads, key_heads, queries, keys, d, dtype = case
        angles = in_pairs(args["cos_sin"][None])[0]
        if self.form:
            return self.separate(case, args, angles)
        ours = {name: args[name] for name in ("q", "out", "lse")}
        own, group = angles[:, keys - queries:], args["group"]
        if queries == 1:
            # Heads that read the same keys are rows at one position.
            ours = {name: of.view(key_heads, group, -1) for name, of in ours.items()}
            own, heads, queries, group = own.expand(-1, group, -1), key_heads, group, 1
        ours |= {"q": in_pairs(ours["q"]), "k": in_pairs(args["k"]), "query_angles": own, "key_angles": angles, "group": group}
        return [Launch("rotary_attention", [NAMES[dtype]], lambda pairs: pairs >= d // 2,
                       lambda pairs: (cdiv(queries, QUERIES), heads), **ours)]

    @staticmethod
    def separate(case, args, angles):
        """Two rotations, and attention of what they leave."""
        heads, key_heads, queries, keys, d, dtype = case
        types = [NAMES[dtype]]
        rotations = [Launch("rotate_heads", types, lambda *_: True, lambda *_, of=of, rows=rows: (cdiv(rows, ROWS), of),
                            x=in_pairs(args[name]), cos_sin=angles[:, keys - rows:], out=in_pairs(args[f"rotated_{name}"]))
                     for name, of, rows in (("q", heads, queries), ("k", key_heads, keys))]
        wide = 64 if d <= 64 else 128
        nothing = {"bias": args["q"][:0, :0, :0], "slopes": args["lse"].flatten()[:0]}
        attention = Launch("attention", types, lambda *consts: consts == (0, False, False, wide, 128, 128),
                           lambda *_: (1, cdiv(queries, 128), heads), q=args["rotated_q"][None], k=args["rotated_k"][None],
                           v=args["v"][None], out=args["out"][None], **nothing)
        return [*rotations, attention]

    def exact(self, args):
        dtype, d = args["q"].dtype, args["q"].shape[2]
        table, unit, scale = args["cos_sin"].double(), UNIT[dtype], d**-0.5
        value, within = torch.empty_like(args["out"], dtype=torch.float64), torch.empty_like(args["out"], dtype=torch.float64)
        for head in range(value.shape[0]):
            q, k, v = (args[name][head // (1 if name == "q" else args["group"])].double() for name in ("q", "k", "v"))
            (q, near_q), (k, near_k) = ((y, unit * y.abs() + 3 * SINGLE * sizes(x, d // 2, False))
                                        for x, y in ((of, rotated(of[None], table)[0]) for of in (q, k)))
            scores, size = q @ k.T * scale, q.abs() @ k.abs().T * scale
            off = scale * (near_q @ (k.abs() + near_k).T + q.abs() @ near_k.T) + (d + 4) * 2 * SINGLE * size
            weights = torch.softmax(scores, 1)
            relative = torch.expm1(2 * off.amax(1, keepdim=True)) + (k.shape[0] + 16) * 2 * SINGLE + unit
            value[head], within[head] = weights @ v, relative * (weights @ v.abs())
        return [rounded(value, within, dtype)]

    def traffic(self, args):
        return sum(args[name].numel() for name in ("q", "k", "v", "out")) * args["q"].element_size()


def in_pairs(x):
    """`[heads, 2, rows, half]` of `[heads, rows, 2 * half]`: the first elements of pairs, and the second ones."""
    return x.unflatten(2, (2, -1)).transpose(1, 2)


def rotated(x, cos_sin):
    """Rows `[heads, rows, d]`, of which the last has the table's last position."""
    cos, sin = cos_sin[len(cos_sin) - x.shape[1]:].chunk(2, -1)
    return turn(x, cos, sin, False)


ENTRIES = [PackedQkv(), PackedQkv(form="separate"), PackedQkv(interleaved=True), PackedQkv(cached=True),
           PackedQkv(cached=True, form="separate"), RotaryAttention(), RotaryAttention("separate")]

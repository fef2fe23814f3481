"""Linear layers with what is before and behind them: norms, and the rotation of queries and keys."""

import torch
import torch.nn.functional as F

import norms
import products
from entry import BF16, F16, NAMES, SINGLE, UNIT, Entry, Launch, cdiv, empty, normal, sm_count, rounded

#: Tokens, and the layers of models with 1 and 8 billion parameters: queries, keys and values; gate and up.
TOKENS = (1, 16, 64, 256, 1024, 8192)
LAYERS = ((2048, 3072), (4096, 6144), (4096, 28672))
#: The same for rotation: terms, heads of queries, of keys and of values, elements of a head.
ROTATED = ((2048, 32, 8, 64), (4096, 32, 8, 128))
FEW_ROWS = 16


def with_all(launches, args):
    """Launches with all of their arguments, for an entry whose own have other names."""
    return [Launch(of.kernel, of.types, of.consts, of.grid, **{**args, **of.args}) for of in launches]


def product(case, a, b, out):
    """The library's matmul of `a` and the transpose of `b`."""
    entry = products.FewRows()
    args = {"a": a, "b": b, "out": out}
    return with_all(entry.launches(case, args), args)


class NormLinear(Entry):
    """A norm and a linear layer. A case is (tokens, terms, columns, element type); `form` is fused, separate, or what the library takes."""

    group = "linear"
    inputs = ("x", "gamma", "weight")
    cases = [(m, k, n, BF16) for k, n in LAYERS for m in TOKENS]
    small = [(m, k, n, dtype) for m, k, n in ((1, 256, 32), (5, 200, 72), (17, 264, 40), (16, 1024, 9000)) for dtype in (BF16, F16)]
    eps = 1e-6

    def __init__(self, norm, form=None):
        self.norm, self.form = norm, form
        self.name = "_".join(filter(None, (norm.name, "linear", form)))
        self.centers = norm.name == "layer_norm"
        if form == "fused":
            self.cases = [case for case in self.cases if case[0] <= FEW_ROWS]
        self.compute = lambda x, gamma, weight: F.linear(self.normalized(x, gamma), weight)

    def normalized(self, x, gamma):
        if self.centers:
            return F.layer_norm(x, (x.shape[-1],), gamma, eps=self.eps)
        return F.rms_norm(x, (x.shape[-1],), gamma, self.eps)

    def label(self, case):
        m, k, n, dtype = case
        return f"{m} x {k} x {n} {NAMES[dtype]}"

    def size(self, case):
        return case[0], NAMES[case[3]]

    def make(self, case, shift=0):
        m, k, n, dtype = case
        weight, gamma = normal(n * k, dtype, 2, shift).view(n, k), normal(k, dtype, 3, shift)
        folded = empty(n * k, dtype, shift).view(n, k)
        folded.copy_(weight.float() * gamma.float())
        return {"x": normal(m * k, dtype, 1, shift).view(m, k), "gamma": gamma, "weight": weight, "folded": folded,
                "sums": folded.float().sum(1).view(1, n), "constants": torch.zeros(1, n, device="cuda"),
                "ones": torch.ones(k, dtype=dtype, device="cuda"), "zeros": torch.zeros(k, dtype=dtype, device="cuda"),
                "middle": empty(m * k, dtype, shift).view(m, k), "out": empty(m * n, dtype, shift).view(m, n)}

    def launches(self, case, args):
        m, k, n, dtype = case
        if (self.form or ("fused" if m <= FEW_ROWS and k % 8 == 0 else "separate")) == "separate":
            taken = {"x": args["x"], "gamma": args["ones"], "beta": args["zeros"], "out": args["middle"], "n_rows": m, "n_cols": k,
                     "eps": self.eps}
            return (with_all(self.norm.launches((m, k, dtype), taken), taken)
                    + product(case, args["middle"], args["folded"], args["out"]))
        wide = cdiv(m, FEW_ROWS) * cdiv(n, 64)
        if self.centers:
            block = (16, 64, 128) if 2 * wide >= sm_count() else (16, 32, 128)
        else:
            block = (16, 32, 256) if cdiv(m, FEW_ROWS) * cdiv(n, 32) <= 2 * sm_count() else (16, 64, 128)
        return [Launch("norm_linear", [NAMES[dtype]], lambda centers, *of: (centers, of) == (self.centers, block),
                       lambda _, rows, cols, steps: (cdiv(m, rows) * cdiv(n, cols),), x=args["x"], weight=args["folded"].T,
                       weight_sums=args["sums"], bias=args["constants"], out=args["out"], act=0, eps=self.eps)]

    def exact(self, args):
        x, gamma, weight = (args[name].double() for name in self.inputs)
        k, dtype = x.shape[1], args["x"].dtype
        mean = x.mean(1, keepdim=True) if self.centers else 0
        variance = (x - mean).square().mean(1, keepdim=True)
        rstd = (variance + self.eps).rsqrt()
        scaled = weight * gamma
        value = ((x - mean) @ scaled.T) * rstd
        sizes = ((x.abs() + abs(mean)) @ scaled.abs().T) * rstd
        away = (x[:, :1] - mean).square() if self.centers else 0
        of_scale = (8 + k**0.5) * 2 * SINGLE * (variance + 2 * away) / (variance + self.eps)
        within = (2 * UNIT[dtype] + (k + 3) * 2 * SINGLE) * sizes + of_scale * value.abs()
        return [rounded(value, within, dtype)]

    def traffic(self, args):
        return sum(args[name].numel() for name in ("x", "weight", "out")) * args["x"].element_size()


class LinearRope(Entry):
    """Queries, keys and values, turned. A case is (tokens, terms, query heads, key heads, elements of a head, element type); pairs are
    neighbors."""

    group = "linear"
    inputs = ("x", "weight", "angles")
    cases = [(m, *layer, BF16) for layer in ROTATED for m in TOKENS]
    small = [(m, *layer, dtype) for m, *layer in ((1, 256, 2, 1, 32), (17, 200, 3, 2, 64), (130, 64, 4, 1, 128)) for dtype in (BF16, F16)]

    def __init__(self, form=None):
        self.form = form
        self.name = "_".join(filter(None, ("linear_rope", form)))
        self.compute = self.rotated

    @staticmethod
    def columns(case):
        """Rotated columns, and all."""
        _, _, queries, keys, dim, _ = case
        return (queries + keys) * dim, (queries + 2 * keys) * dim

    @staticmethod
    def rotated(x, weight, angles):
        """`angles` has cosines and sines of each token and pair, 1 and 0 for values."""
        pairs = F.linear(x, weight).unflatten(1, (-1, 2)).float()
        (a, b), (cos, sin) = pairs.unbind(2), angles
        return torch.stack((a * cos - b * sin, b * cos + a * sin), 2).flatten(1).to(x.dtype)

    def label(self, case):
        m, k, queries, keys, dim, dtype = case
        return f"{m} x {k} x ({queries} + 2 x {keys}) x {dim} {NAMES[dtype]}"

    def size(self, case):
        return case[0], NAMES[case[-1]]

    def make(self, case, shift=0):
        m, k, _, _, dim, dtype = case
        (turned, n), half = self.columns(case), dim // 2
        positions = torch.randint(0, 4096, (m,), generator=torch.Generator("cuda").manual_seed(4), device="cuda", dtype=torch.int32)
        table = torch.arange(4096, device="cuda")[:, None] * 10000.0 ** (-torch.arange(half, device="cuda") / half)
        cos, sin = table.cos(), table.sin()
        of_tokens = torch.stack([F.pad(of[positions.long()].repeat(1, turned // dim), (0, (n - turned) // 2), value=float(of is cos))
                                 for of in (cos, sin)])
        return {"x": normal(m * k, dtype, 1, shift).view(m, k), "weight": normal(n * k, dtype, 2, shift).view(n, k),
                "angles": of_tokens, "positions": positions, "cos": cos.flatten(), "sin": sin.flatten(), "rotated": turned, "half": half,
                "row": n, "out": empty(m * n, dtype, shift).view(m, n)}

    def tile(self, case):
        """The fused tile whose programs all run at once and leave few multiprocessors idle, if there is one."""
        (_, n), m = self.columns(case), case[0]
        if m <= FEW_ROWS:
            return 16, 32
        for rows, cols, least in ((64, 64, 0), (128, 128, sm_count() // 2)):
            if least <= cdiv(m, rows) * cdiv(n, cols) <= sm_count():
                return rows, cols
        return None

    def launches(self, case, args):
        m, k, _, _, _, dtype = case
        (turned, n), tile, types = self.columns(case), self.tile(case), [NAMES[dtype]]
        if self.form == "separate" or not tile or k % 8:
            flat = args["out"].view(-1)
            return product((m, k, n, dtype), args["x"], args["weight"], args["out"]) + [
                Launch("rotate_pairs", types, lambda *_: True, lambda block: (m, cdiv(turned, block)), x=flat)]
        nothing = args["x"][:0, :0]
        return [Launch("linear_rope", types, lambda *consts: consts[:2] == tile,
                       lambda rows, cols, _: (cdiv(m, rows) * cdiv(n, cols),), weight=args["weight"].T, bias=nothing)]

    def exact(self, args):
        x, weight, (cos, sin) = (args[name].double() for name in self.inputs)
        dtype, k = args["x"].dtype, x.shape[1]
        value, within = rounded(x @ weight.T, (k + 3) * 2 * SINGLE * (x.abs() @ weight.abs().T), dtype)
        (a, b), (near_a, near_b) = (of.unflatten(1, (-1, 2)).unbind(2) for of in (value, within))
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), 2).flatten(1)
        near = torch.stack([3 * SINGLE * (a.abs() + b.abs()) + near_a + near_b] * 2, 2).flatten(1)
        return [rounded(turned, near, dtype)]

    def traffic(self, args):
        return sum(args[name].numel() for name in ("x", "weight", "out")) * args["x"].element_size()


ENTRIES = [NormLinear(norms.RmsNorm()), NormLinear(norms.RmsNorm(), "separate"), NormLinear(norms.LayerNorm()),
           NormLinear(norms.LayerNorm(), "separate"), LinearRope(), LinearRope("separate")]

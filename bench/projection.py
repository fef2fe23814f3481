"""A linear layer with a norm and GELU behind it, and attention with a linear layer behind it."""

import math

import torch
import torch.nn.functional as F

import norms
import products
from elementwise import GELU, activated
from entry import BF16, F16, F32, NAMES, SINGLE, UNIT, Entry, Launch, cdiv, empty, normal, over, sm_count, rounded
from linear import product, with_all

#: Tokens; terms and columns of small layers, and of those of models with 1 and 8 billion parameters.
TOKENS = (1, 64, 1024, 8192)
LAYERS = ((128, 128), (256, 256), (1024, 256), (512, 512), (2048, 2048), (4096, 4096))
#: The longest row of the fused form.
MAX_COLS = 256
#: Sequences and their length; heads, heads of keys, elements of a head and columns: of small layers, and of those of such models.
SEQUENCES = ((1, 1), (1, 128), (8, 128), (64, 128), (16, 512))
SMALL = tuple((hidden // 64, hidden // 64, 64, hidden) for hidden in (128, 256, 512))
LARGE = ((32, 8, 64, 2048), (32, 8, 128, 4096))
LENGTHS = (1, 128, 1024, 8192)


class LinearNorm(Entry):
    """gelu(layer_norm(linear(x))). A case is (tokens, terms, columns, element type)."""

    group = "projection"
    inputs = ("x", "weight", "gamma", "beta")
    small = [(m, k, n, dtype) for m, k, n in ((1, 128, 128), (70, 136, 120), (5, 200, 72), (17, 40, 256), (4300, 16, 160))
             for dtype in (BF16, F16)]
    eps = 1e-5

    def __init__(self, form):
        self.form = form
        self.name = f"linear_norm_gelu_{form}"
        self.cases = [(m, k, n, BF16) for k, n in LAYERS for m in TOKENS if form == "separate" or n <= MAX_COLS]

    @staticmethod
    def compute(x, weight, gamma, beta):
        return F.gelu(F.layer_norm(F.linear(x, weight), gamma.shape, gamma, beta, LinearNorm.eps))

    def label(self, case):
        m, k, n, dtype = case
        return f"{m} x {k} x {n} {NAMES[dtype]}"

    def size(self, case):
        return case[0], NAMES[case[3]]

    def make(self, case, shift=0):
        m, k, n, dtype = case
        return {"x": normal(m * k, dtype, 1, shift).view(m, k), "weight": normal(n * k, dtype, 2, shift).view(n, k),
                "gamma": normal(n, dtype, 3, shift), "beta": normal(n, dtype, 4, shift), "eps": self.eps,
                "sums": empty(m * n, dtype, shift).view(m, n), "out": empty(m * n, dtype, shift).view(m, n)}

    @staticmethod
    def tile(m, n):
        """Rows and columns of a program, as the library chooses them."""
        return 64 if 2 * cdiv(m, 64) >= sm_count() else 16, 128 if n <= 128 else 256

    def launches(self, case, args):
        m, _, n, dtype = case
        if self.form == "separate":
            taken = {"x": args["sums"], "gamma": args["gamma"], "beta": args["beta"], "out": args["out"], "n_rows": m, "n_cols": n,
                     "eps": self.eps}
            norm = with_all(norms.LayerNormGelu().launches((m, n, dtype), taken), taken)
            args["kept"] = product(case, args["x"], args["weight"], args["sums"]) + norm  # A launch keeps addresses alone.
            return args["kept"]
        tile, nothing = self.tile(m, n), args["x"][:0, :0]
        return [Launch("linear_norm", [NAMES[dtype]], lambda *consts: consts[:2] == tile, lambda rows, *_: (cdiv(m, rows),),
                       weight=args["weight"].T, bias=nothing, residual=nothing, gamma=args["gamma"].view(1, n),
                       beta=args["beta"].view(1, n), subtract_mean=1, act=GELU)]

    def exact(self, args):
        x, weight, gamma, beta = (args[name].double() for name in self.inputs)
        (n, k), dtype = weight.shape, args["x"].dtype
        v = x @ weight.T
        near = (k + 3) * 2 * SINGLE * (x.abs() @ weight.abs().T) + 2 * SINGLE * v.abs()
        if self.form == "separate":
            v, near = rounded(v, near, dtype)
        mean, of_mean, magnitude = (of.mean(1, keepdim=True) for of in (v, near, v.abs()))
        root = ((v - mean).square().mean(1, keepdim=True) + self.eps).sqrt()
        off = near.square().mean(1, keepdim=True).sqrt()
        least = (root - off).clamp(min=self.eps**0.5)
        y = (v - mean) / root
        carried = (near + of_mean + off * y.abs()) / least
        own = y.abs() + carried + (magnitude + of_mean) / least
        within = carried * gamma.abs() + over(n) * (own * gamma.abs() + beta.abs())
        return [rounded(*activated(GELU, y * gamma + beta, dtype, within), dtype)]

    def traffic(self, args):
        return sum(args[name].numel() for name in ("x", "weight", "out")) * args["x"].element_size()


class AttentionProjection(Entry):
    """Causal attention and a linear layer. A case is (sequences, length, heads, key heads, elements of a head, columns, element type)."""

    group = "projection"
    inputs = ("q", "k", "v", "weight")
    small = [(*case, dtype) for case in ((1, 1, 1, 1, 16, 8), (2, 70, 4, 2, 64, 104), (3, 129, 2, 2, 64, 256), (1, 40, 2, 1, 128, 136),
                                         (150, 130, 1, 1, 32, 64), (2, 300, 3, 3, 80, 96)) for dtype in (BF16, F16)]

    def __init__(self, form):
        self.form = form
        self.name = f"attention_projection_{form}"
        cases = [(*of, *layer, BF16) for layer in SMALL for of in SEQUENCES if form == "separate" or layer[3] <= 128]
        if form == "separate":
            cases += [(1, length, *layer, BF16) for layer in LARGE for length in LENGTHS]
        self.cases = cases

    @staticmethod
    def compute(q, k, v, weight):
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return attended.transpose(1, 2).flatten(2).flatten(0, 1) @ weight

    def label(self, case):
        sequences, length, heads, key_heads, d, n, dtype = case
        return f"{sequences} x {length}, {heads} / {key_heads} x {d}, {n} {NAMES[dtype]}"

    def size(self, case):
        return case[0] * case[1], NAMES[case[-1]]

    def make(self, case, shift=0):
        sequences, length, heads, key_heads, d, n, dtype = case
        of_heads = [normal(sequences * count * length * d, dtype, seed, shift).view(sequences, count, length, d)
                    for seed, count in ((1, heads), (2, key_heads), (3, key_heads))]
        rows, terms = sequences * length, heads * d
        return {**dict(zip("qkv", of_heads)), "weight": normal(terms * n, dtype, 4, shift, terms**-0.5).view(terms, n),
                "attended": empty(rows * terms, dtype, shift).view(sequences, length, heads, d),
                "lse": empty(sequences * heads * length, F32, shift).view(-1, length, 1), "out": empty(rows * n, dtype, shift).view(rows, n),
                "scale": d**-0.5 * math.log2(math.e), "group": heads // key_heads}

    @staticmethod
    def tile(case):
        """The widest head, rows and columns of a program, as the library chooses them."""
        sequences, length, _, _, d, n, _ = case
        wide = 64 if d <= 64 else 128
        many = sequences * cdiv(length, 128) * cdiv(n, 128) >= sm_count()
        return wide, 128 if many else 64, 128

    def launches(self, case, args):
        sequences, length, heads, _, d, n, dtype = case
        if self.form == "separate":
            rows, terms = sequences * length, heads * d
            taken = {"a": args["attended"].view(rows, terms), "b": args["weight"], "out": args["out"]}
            projection = with_all(products.Matmul(products.IDENTITY).launches((rows, terms, n, dtype), taken), taken)
            return [self.attention(case, args), *projection]
        tile, nothing = self.tile(case), args["weight"][:0, :0]
        return [Launch("attention_projection", [NAMES[dtype]], lambda *consts: consts[:3] == tile,
                       lambda _, rows, cols, __: (sequences * cdiv(length, rows), cdiv(n, cols)),
                       weight=args["weight"].view(heads, d, n), bias=nothing, residual=nothing[None],
                       out=args["out"].view(sequences, length, n), right=0)]

    @staticmethod
    def attention(case, args):
        """Attention, whose heads are columns of the result."""
        sequences, length, heads, key_heads, d, _, dtype = case
        group, heads = heads // key_heads, sequences * heads
        tile = products.Attention(True).tile(heads, length, d)
        most = max((16 << 20) // (2 * length * d * dtype.itemsize) * group, sm_count() // 4)
        together = max(side for side in range(1, min(most, heads) + 1) if heads % side == 0)
        return Launch("attention", [NAMES[dtype]], lambda *consts: consts == (1, False, False, *tile),
                      lambda *consts: (together, cdiv(length, consts[-2]), heads // together),
                      bias=args["q"][0, :0, :0, :0], slopes=args["lse"].flatten()[:0], out=args["attended"].permute(0, 2, 1, 3),
                      left=0, right=0, softcap=0.0, p=0.0, seed=0)

    def exact(self, args):
        sequences, heads, length, d = args["q"].shape
        dtype, group = args["q"].dtype, args["group"]
        hidden = torch.ones(length, length, dtype=torch.bool, device="cuda").triu(1)
        attended, near = (torch.empty(sequences, length, heads, d, dtype=torch.float64, device="cuda") for _ in range(2))
        for sequence, head in ((sequence, head) for sequence in range(sequences) for head in range(heads)):
            q = args["q"][sequence, head].double()
            k, v = (args[name][sequence, head // group].double() for name in "kv")
            weights = torch.softmax((q @ k.T * d**-0.5).masked_fill_(hidden, -math.inf), 1)
            # Of weights that are rounded to the elements' type, of sums in f32, and of scores.
            of_scores = 2 * (d + 4) * 2 * SINGLE * (q.abs() @ k.abs().T * d**-0.5).max()
            within = (UNIT[dtype] + (length + 16) * 2 * SINGLE + of_scores) * (weights @ v.abs())
            attended[sequence, :, head], near[sequence, :, head] = rounded(weights @ v, within, dtype)
        weight, attended, near = args["weight"].double(), attended.view(-1, heads * d), near.view(-1, heads * d)
        sizes = (attended.abs() + near) @ weight.abs()
        return [rounded(attended @ weight, near @ weight.abs() + (heads * d + 3) * 2 * SINGLE * sizes, dtype)]

    def traffic(self, args):
        return sum(args[name].numel() for name in (*self.inputs, "out")) * args["q"].element_size()


ENTRIES = [LinearNorm("fused"), LinearNorm("separate"), AttentionProjection("fused"), AttentionProjection("separate")]

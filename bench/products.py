"""Products of matrices with what follows them."""

import torch

from elementwise import ACTIVATIONS, GELU, activated
from entry import BF16, F16, F32, NAMES, SINGLE, Entry, Launch, cdiv, empty, normal, rounded

IDENTITY = 0


class Matmul(Entry):
    """A case is (m, k, n, element type)."""

    group = "products"
    cases = [(4096, 4096, 4096, BF16), (8192, 8192, 8192, BF16), (4096, 4096, 14336, BF16), (2048, 512, 1024, BF16)]
    sweep = [(size, size, size, BF16) for size in (512, 1024, 2048, 4096, 8192)]
    small = [(m, k, n, dtype) for m, k, n in ((1, 1, 1), (128, 32, 128), (129, 31, 127), (5, 300, 200), (300, 64, 1))
             for dtype in (F32, F16, BF16)]
    #: Rows and columns of a program's tile.
    tile = 128

    def __init__(self, act):
        self.act = act
        word, function = ACTIVATIONS.get(act, ("", lambda x: x))
        self.name = f"matmul_bias_{word}" if act else "matmul"
        self.inputs = ("a", "b", "bias") if act else ("a", "b")
        self.compute = (lambda a, b, bias: function(torch.addmm(bias, a, b))) if act else torch.matmul

    def label(self, case):
        m, k, n, dtype = case
        return f"{m} x {k} x {n} {NAMES[dtype]}"

    def size(self, case):
        return case[0], NAMES[case[3]]

    def make(self, case, shift=0):
        m, k, n, dtype = case
        return {"a": normal(m * k, dtype, 1, shift).view(m, k), "b": normal(k * n, dtype, 2, shift).view(k, n),
                "bias": normal(n, dtype, 3, shift), "out": empty(m * n, dtype, shift).view(m, n),
                "m": m, "n": n, "k": k}

    def launches(self, case, args):
        m, _, n, dtype = case
        return [Launch("matmul", [NAMES[dtype]], lambda act, bias, *tile: (act, bias) == (self.act, self.act != 0),
                       lambda *consts: (cdiv(m, self.tile), cdiv(n, self.tile)))]

    def exact(self, args):
        a, b = args["a"].double(), args["b"].double()
        total = a @ b
        within = (args["k"] + 2) * 2 * SINGLE * (a.abs() @ b.abs())
        if not self.act:
            return [rounded(total, within, args["a"].dtype)]
        total = total + args["bias"].double()
        within = within + 2 * SINGLE * total.abs()
        return [rounded(*activated(self.act, total, args["a"].dtype, within), args["a"].dtype)]

    def traffic(self, args):
        return sum(args[name].numel() for name in ("a", "b", "out")) * args["a"].element_size()


ENTRIES = [Matmul(IDENTITY), Matmul(GELU)]

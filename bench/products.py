"""Matmuls with their epilogues, and attention."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import heuristic
from elementwise import ACTIVATIONS, GELU, activated
from entry import BF16, F16, F32, F8, NAMES, SINGLE, UNIT, Entry, Launch, cdiv, empty, normal, sm_count, rounded, triton

IDENTITY = 0
#: Extents m, k, n with few rows, as in decoding.
FEW = [(1, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (16, 8192, 8192), (64, 8192, 8192), (16, 14336, 4096),
       (16, 4096, 14336), (64, 4096, 14336), (16, 8192, 1024)]
FEW_SMALL = [(1, 1, 1), (1, 512, 8), (3, 1300, 72), (16, 1040, 4232), (64, 2100, 264), (63, 4112, 72), (66, 640, 8)]


#: The narrow tile of few rows, and the number of slices of its warp-level split-K.
NARROW = (16, 16)
SLICES = {BF16: 4, F16: 4, torch.int8: 4, F8: 8}


def few_rows(m, k, n, dtype):
    """The tile of few rows that the library chooses for K-major operands, if there is one."""
    if m > 64 or n % 8 or k * dtype.itemsize % 16 or dtype == F32:
        return None
    if m > 16:
        return 64, 64
    return NARROW if cdiv(n, 32) <= sm_count() and k * dtype.itemsize % 128 == 0 else (16, 32)


def sliced(rows, slices):
    """Rows cut into slices of their elements, which are the axis before that of rows."""
    return rows.view(*rows.shape[:-1], slices, rows.shape[-1] // slices).transpose(-2, -3)


def shares(m, k, n, dtype, few=None):
    """How many programs share the steps of a tile, as the library chooses; `few` is the tile of few rows, if there is one."""
    if few and (4 * cdiv(n, few[1]) >= 3 * sm_count() or k * dtype.itemsize <= 8192):
        return 1
    return max(1, min(sm_count() // (cdiv(m, 64) * cdiv(n, 128)), k // 256, 32))


class Matmul(Entry):
    """A case is (m, k, n, element type)."""

    group = "products"
    cases = [(m, k, n, BF16) for m, k, n in ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 14336),
                                             (16384, 4096, 4096), (8192, 1024, 8192), (2048, 512, 1024))]
    sweep = [(size, size, size, BF16) for size in (512, 1024, 2048, 4096, 8192)]
    small = [(m, k, n, dtype) for m, k, n in ((1, 1, 1), (128, 32, 128), (129, 31, 127), (5, 300, 200), (300, 64, 1),
                                              (64, 64, 128), (63, 72, 136), (128, 320, 25344), (1153, 200, 2824))
             for dtype in (F32, F16, BF16)]
    #: Whether `b` is column-major.
    transposed = False
    #: Whether `f32` is rounded to TF32.
    tf32 = False

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

    def flops(self, case):
        return 2 * math.prod(case[:3])

    def make(self, case, shift=0):
        m, k, n, dtype = case
        return {"a": normal(m * k, dtype, 1, shift).view(m, k), "b": normal(k * n, dtype, 2, shift).view(k, n),
                "bias": normal(n, dtype, 3, shift), "out": empty(m * n, dtype, shift).view(m, n)}

    def launches(self, case, args):
        m, k, n, dtype = case
        taken = {**self.batch(args), "act": self.act}
        if dtype == F32:
            aligned = [heuristic.is_aligned(operand) for operand in (args["a"], self.right(args))]
            return self.in_config(case, *heuristic.by_fma(m, k, n, aligned, self.act), taken, args)
        block, parts, copies = self.config(case, args)
        copied = {name: heuristic.aligned_copy(taken[name]) for name, copies in zip(("a", "b"), copies) if copies}
        taken.update({name: copy for name, (_, _, copy) in copied.items()})
        args["copies"] = copied  # A launch keeps addresses alone.
        return heuristic.copy_rows([pair[:2] for pair in copied.values()], dtype) + self.in_config(case, block, parts, taken, args)

    def config(self, case, args):
        """The block, the split-K count and the copied operands of a case of 16-bit floats."""
        m, k, n, _ = case
        operands = args["a"], self.right(args)
        return heuristic.fastest((m, k, n), *([test(operand) for operand in operands] for test in
                                              (heuristic.is_aligned, heuristic.within_sectors)),
                                 heuristic.is_column_major(operands[1]))

    def right(self, args):
        """Operand B with its own rows."""
        return args["b"].T if self.transposed else args["b"]

    def in_config(self, case, block, parts, taken, args):
        """Tiles, or split-K accumulators and the kernel that adds them."""
        m, k, n, dtype = case
        rows, cols, steps = block
        types, count = [NAMES[dtype]], cdiv(m, rows) * cdiv(n, cols)
        if parts > 1:
            if "parts" not in args or args["parts"].shape[0] != parts:
                args["parts"] = torch.full((parts, 1, m, n), 7, dtype=F32, device="cuda")
            summed = heuristic.THIN if n <= heuristic.THIN_COLS else (1 if m * n <= 4 * 256 * sm_count() else 4, 256)
            return [Launch("matmul_split_k", types, lambda *consts: consts == (*block, self.tf32), lambda *_: (count, parts),
                           **{**taken, "partials": args["parts"], "k_steps": cdiv(cdiv(k, parts), steps)}),
                    Launch("reduce_split_k", types, lambda *consts: consts == summed,
                           lambda rows, cols: (cdiv(m, rows) * cdiv(n, cols),), **{**taken, "partials": args["parts"]})]
        if dtype == F32:
            return [Launch("matmul_f32", types, lambda *consts: consts[:4] == (*block, self.tf32), lambda *_: (count,), **taken)]
        if rows == 128 and cols > 128:
            return [Launch("matmul", types, lambda *consts: consts[:4] == (self.act, *block), lambda *_: (count,), **taken)]
        return [Launch("matmul_small", types, lambda *consts: consts == block, lambda *_: (count,), **taken)]

    def batch(self, args):
        """The views that the kernels take; where there is no bias or residual, it is one without elements."""
        nothing = args["a"][:0, :0]
        bias = args["bias"].view(1, -1) if self.act else nothing
        operands = {"a": args["a"][None], "b": self.right(args)[None], "out": args["out"][None]}
        return {**operands, "bias": bias, "residual": nothing[None], "alpha": 1.0}

    def others(self, args):
        if self.act != GELU:
            return {}
        # It has the form with the hyperbolic tangent alone.
        return {"cuBLASLt": lambda: torch._addmm_activation(args["bias"], args["a"], args["b"], use_gelu=True)}

    def exact(self, args):
        a, b = args["a"].double(), args["b"].double()
        total = a @ b
        within = (a.shape[1] + 2) * 2 * SINGLE * (a.abs() @ b.abs())
        if not self.act:
            return [rounded(total, within, args["a"].dtype)]
        total = total + args["bias"].double()
        within = within + 2 * SINGLE * total.abs()
        return [rounded(*activated(self.act, total, args["a"].dtype, within), args["a"].dtype)]

    def traffic(self, args):
        return sum(args[name].numel() for name in ("a", "b", "out")) * args["a"].element_size()


class FewRows(Matmul):
    """Matmuls of few rows, as in decoding: the time is that of reading `b`, which is column-major. Programs share the steps
    where there are few tiles."""

    cases = [(*extents, BF16) for extents in FEW]
    sweep = []
    small = [(*extents, dtype) for extents in FEW_SMALL for dtype in (F32, F16, BF16)]
    transposed = True

    def __init__(self):
        super().__init__(IDENTITY)
        self.name = "matmul_few"
        self.compute = lambda a, b: a @ b.T

    def few_tile(self, case):
        """The tile of few rows that a case takes, if there is one."""
        return few_rows(*case)

    def make(self, case, shift=0):
        m, k, n, dtype = case
        args = super().make(case, shift)
        args["b"] = args["b"].view(n, k)
        return args

    def launches(self, case, args):
        m, k, n, dtype = case
        few = self.few_tile(case)
        if not few or shares(*case, few) > 1:
            return super().launches(case, args)
        types, taken = [NAMES[dtype]], {**self.batch(args), "act": IDENTITY}
        if few == NARROW:
            taken["b"] = taken["b"].transpose(1, 2)
            operands = {name: sliced(taken[name], SLICES[dtype]) for name in ("a", "b")}
            return [Launch("matmul_warp_split_k", types, lambda *_: True,
                           lambda _, rows, cols, steps: (cdiv(m, rows) * cdiv(n, cols),), **{**taken, **operands})]
        return [Launch("matmul_small", types, lambda *consts: consts == (*few, 128),
                       lambda rows, cols, _: (cdiv(m, rows) * cdiv(n, cols),), **taken)]

    def exact(self, args):
        return super().exact({**args, "b": args["b"].T})


class QuantizedMatmul(Entry):
    """A case is (m, k, n). Each row of `a` and each column of `b`, which is column-major, has a scale. PyTorch's is
    cuBLASLt's matmul followed by the scales, and for 8-bit floats its matmul with row scales."""

    group = "products"
    cases = [(4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096), (4096, 4096, 14336), (8192, 1024, 8192)]
    sweep = [(size, size, size) for size in (1024, 2048, 4096, 8192)]
    small = [(1, 1, 1), (128, 32, 128), (129, 31, 127), (5, 300, 200), (300, 64, 1), (64, 64, 128), (63, 72, 136),
             (128, 320, 25344)]
    inputs = ("a", "b", "row_scales", "col_scales")

    def __init__(self, dtype):
        self.dtype = dtype
        self.name = f"quantized_matmul_{NAMES[dtype]}"
        self.compute = self.of_integers if dtype == torch.int8 else self.of_floats

    def label(self, case):
        return f"{' x '.join(map(str, case))} {NAMES[self.dtype]}"

    def size(self, case):
        return case[0], NAMES[self.dtype]

    def flops(self, case):
        return 2 * math.prod(case)

    def make(self, case, shift=0):
        m, k, n = case
        a, b = (normal(rows * k, F32, seed).view(rows, k) for rows, seed in ((m, 1), (n, 2)))
        if self.dtype == torch.int8:
            a, b = ((x * 40).round().clamp(-127, 127) for x in (a, b))
        return {"a": a.to(self.dtype), "b": b.to(self.dtype),
                "row_scales": normal(m, F32, 3, shift).abs().view(m, 1) / 64,
                "col_scales": normal(n, F32, 4, shift).abs().view(n, 1) / 64, "out": empty(m * n, BF16, shift).view(m, n)}

    def launches(self, case, args):
        m, k, n = case
        types = [NAMES[self.dtype], "i32" if self.dtype == torch.int8 else "f32", "bf16"]
        behind = {**self.behind(args), "act": IDENTITY}

        def tiles(rows, cols, *_):
            return (cdiv(m, rows) * cdiv(n, cols),)

        few = few_rows(m, k, n, self.dtype)
        if few and shares(m, k, n, self.dtype, few) == 1:
            if few == NARROW:
                operands = {name: sliced(args[name], SLICES[self.dtype]) for name in ("a", "b")}
                return [Launch("quantized_warp_split_k", types, lambda *_: True, lambda _, *consts: tiles(*consts), **behind, **operands)]
            return [Launch("quantized_skinny", types, lambda *consts: consts[:2] == few, tiles, **behind)]
        operands = [args[name] for name in ("a", "b")]
        aligned = [operand.shape[0] == 1 or operand.stride(0) % 16 == 0 for operand in operands]
        block, parts, copies = heuristic.fastest(
            (m, k, n), aligned, [heuristic.within_sectors(operand) for operand in operands], True, 1, bool(n % 8))
        copied = {name: heuristic.aligned_copy(args[name][None]) for name, copies in zip(("a", "b"), copies) if copies}
        behind.update({name: copy[0] for name, (_, _, copy) in copied.items()})
        args["copies"] = copied  # A launch keeps addresses alone.
        launches = heuristic.copy_rows([pair[:2] for pair in copied.values()], self.dtype)
        if parts > 1:
            sums = torch.full((parts, m, n), 7, dtype=torch.int32 if self.dtype == torch.int8 else F32, device="cuda")
            behind["partials"] = args["partials"] = sums
            return [*launches,
                    Launch("quantized_split_k", types[:2], lambda *_: True, lambda *consts: (*tiles(*consts), parts),
                           k_steps=cdiv(cdiv(k, parts), 128), **behind),
                    Launch("reduce_quantized_split_k", types[1:], lambda *_: True, tiles, **behind)]
        if block[0] == 128:
            return [*launches, Launch("quantized_matmul", types, lambda act, *consts: act == IDENTITY and consts[:3] == block,
                                      lambda _, *consts: tiles(*consts), **behind)]
        return [*launches, Launch("quantized_skinny", types, lambda *consts: consts[:3] == block, tiles, **behind)]

    @staticmethod
    def behind(args):
        """The views that the epilogue of a matmul takes: no bias, no scales of the result."""
        nothing = args["row_scales"][:0]
        return {"bias": nothing.view(1, 0), "col_scales": args["col_scales"].view(1, -1), "out_scales": nothing}

    def exact(self, args):
        a, b = args["a"].double(), args["b"].double().T
        total, within = (a @ b, 0) if self.dtype == torch.int8 else self.summed(a, b)
        scale = args["row_scales"].double() * args["col_scales"].double().T
        return [rounded(total * scale, within * scale + 4 * SINGLE * (total * scale).abs(), BF16)]

    @staticmethod
    def summed(a, b):
        """The matmul, and the error bound of its accumulators: of 32 products and the sum of at most 128 the largest says how many
        digits the new sum has."""
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device="cuda")
        within = (a.shape[1] + 2) * 2 * SINGLE * (a.abs() @ b.abs())
        for first in range(0, a.shape[1], 128):
            partial = torch.zeros_like(total)
            for step in range(first, min(first + 128, a.shape[1]), 32):
                left, right = a[:, step:step + 32], b[step:step + 32]
                largest = partial.abs()
                partial += left @ right
                largest = torch.maximum(largest, partial.abs())
                within += 34 * 2.0**-13 * torch.maximum(largest, (left.square() @ right.square()).sqrt())
            total += partial
        return total, within

    def traffic(self, args):
        return args["a"].numel() + args["b"].numel() + 2 * args["out"].numel()

    @staticmethod
    def of_integers(a, b, row_scales, col_scales):
        return (torch._int_mm(a, b.T).float() * row_scales * col_scales.T).to(BF16)

    @staticmethod
    def of_floats(a, b, row_scales, col_scales):
        return torch._scaled_mm(a, b.T, row_scales, col_scales.T, out_dtype=BF16)

    def triton(self, args):
        (m, k), n = args["a"].shape, args["b"].shape[0]
        triton_quantized[lambda meta: (triton.cdiv(m, meta["M"]) * triton.cdiv(n, meta["N"]),)](
            *(args[name] for name in (*self.inputs, "out")), m, n, k, INTEGERS=self.dtype == torch.int8)


class FewQuantized(QuantizedMatmul):
    """The same of few rows."""

    cases = FEW
    sweep = []
    small = [*FEW_SMALL, (64, 640, 4096)]

    def __init__(self, dtype):
        super().__init__(dtype)
        self.name = f"quantized_matmul_few_{NAMES[dtype]}"


def head_tile(elements, tiles=(64, 128, 192, 256)):
    """The smallest tile that holds a row of a head."""
    return min(tile for tile in tiles if tile >= elements)


class Attention(Entry):
    """A case is (heads of all batches, length, D, element type). PyTorch's is its fused operation: cuDNN's, or
    FlashAttention-2."""

    group = "products"
    cases = [(16384 * 2048 // d // length, length, d, BF16) for d in (128, 64, 256) for length in (512, 1024, 4096, 16384)]
    sweep = [(32768 * 8 // length, length, 128, BF16) for length in (512, 1024, 2048, 4096, 8192, 16384)]
    small = [(3, length, d, dtype)
             for length in (1, 127, 128, 129, 300) for d in (32, 64, 96, 128, 192, 256) for dtype in (F16, BF16)]
    inputs = ("q", "k", "v")

    def __init__(self, causal):
        self.causal = causal
        self.name = "attention_causal" if causal else "attention"
        self.compute = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def label(self, case):
        heads, length, d, dtype = case
        return f"{heads} x {length} x {d} {NAMES[dtype]}"

    def size(self, case):
        return case[1], NAMES[case[3]]

    def flops(self, case):
        heads, length, d, _ = case
        return (2 if self.causal else 4) * heads * length**2 * d

    def make(self, case, shift=0):
        heads, length, d, dtype = case
        rows = {name: normal(heads * length * d, dtype, seed, shift).view(1, heads, length, d)
                for seed, name in enumerate(self.inputs)}
        return {**rows, "out": empty(heads * length * d, dtype, shift).view(1, heads, length, d),
                "lse": empty(heads * length, F32, shift).view(heads, length, 1),
                "scale": d**-0.5 * math.log2(math.e), "group": 1, "left": 0, "right": 0, "softcap": 0.0, "dropout_p": 0.0,
                "seed": 0}

    def launches(self, case, args):
        heads, length, d, dtype = case
        # Where there is no bias, and there are no slopes, they are views without elements.
        nothing = {"bias": args["q"][0, :0, :0, :0], "slopes": args["lse"].flatten()[:0]}
        return [Launch("attention", [NAMES[dtype]],
                       lambda *consts: consts == (int(self.causal), False, False, *self.tile(heads, length, d)),
                       lambda *consts: self.grid(length, heads, args["k"], consts[-2]), **nothing)]

    def grid(self, length, heads, k, rows):
        """The grid that the library chooses."""
        most = max((16 << 20) // (2 * k[0, 0].numel() * k.element_size()), sm_count() // 4) if self.causal else 1
        together = max(side for side in range(1, min(most, heads) + 1) if heads % side == 0)
        return together, cdiv(length, rows), heads // together

    def tile(self, heads, length, d):
        """Elements of a row, rows and keys of an iteration, as the library chooses them on GPUs with wgmma."""
        wide = head_tile(d)
        rows = 192 if wide == 64 and self.in_large_tiles(heads, length) else 128
        return wide, rows, {192: 96, 256: 64}.get(wide, 128)

    def in_large_tiles(self, heads, length):
        """Whether tiles of 192 queries take less time than tiles of 128, as the library estimates it."""
        large, small = (heads * cdiv(length, rows) for rows in (192, 128))
        if not self.causal:
            return cdiv(large, sm_count()) <= 0.84 * cdiv(small, sm_count())
        return length >= 3072 and small > sm_count() and not 1.1 <= large / sm_count() <= 2.2

    def exact(self, args):
        value, within = torch.empty_like(args["q"], dtype=torch.float64), torch.empty_like(args["q"], dtype=F32)
        for head in range(value.shape[1]):
            q, k, v = (args[name][0, head].double() for name in self.inputs)
            scores = q @ k.T * q.shape[1] ** -0.5
            if self.causal:
                scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
            weights = torch.softmax(scores, 1)
            value[0, head] = weights @ v
            # Weights are rounded to the elements' type, their sum in f32.
            within[0, head] = ((UNIT[args["q"].dtype] + 64 * SINGLE) * (weights @ v.abs())).float()
        return [rounded(value, within.double(), args["q"].dtype)]

    def traffic(self, args):
        return 4 * args["q"].numel() * args["q"].element_size() + 4 * args["lse"].numel()


class AttentionBackward(Attention):
    """The gradients of queries, keys and values, without the forward pass. PyTorch's are FlashAttention-2's."""

    cases = [(16384 * 2048 // d // length, length, d, BF16) for d, lengths in
             ((128, (512, 2048, 4096, 16384)), (64, (1024, 4096, 16384)), (256, (4096,))) for length in lengths]
    sweep = []
    small = [(3, length, d, dtype) for length in (1, 127, 128, 300) for d in (32, 64, 128, 256) for dtype in (F16, BF16)]
    outputs = ("dq", "dk", "dv")

    def __init__(self, causal):
        super().__init__(causal)
        self.name = "attention_backward_causal" if causal else "attention_backward"

    def flops(self, case):
        return 5 * super().flops(case) // 2

    def make(self, case, shift=0):
        heads, length, d, dtype = case
        args = super().make(case, shift)
        for seed, name in enumerate(("d_out", *self.outputs), 4):
            args[name] = normal(heads * length * d, dtype, seed, shift).view(1, heads, length, d)
        out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            *(args[name] for name in self.inputs), 0.0, self.causal, False, scale=d**-0.5)
        args["out"].copy_(out)
        args["lse"].copy_(lse.view(heads, length, 1))
        # Where there is no bias, and there are no slopes, they are views without elements.
        nothing = {"bias": args["q"][0, :0, :0, :0], "slopes": args["lse"].flatten()[:0]}
        return {**args, **nothing, "lse": args["lse"].flatten(), "delta": empty(heads * length, F32)}

    def launches(self, case, args):
        heads, length, d, dtype = case
        types, chosen = [NAMES[dtype]], (int(self.causal), False, False, head_tile(d, (64, 128, 256)))
        return [Launch("attention_delta", types, lambda tile, _: tile >= d, lambda _, rows: (cdiv(length, rows), heads)),
                Launch("attention_dq", types, lambda *consts: consts[:4] == chosen,
                       lambda *consts: self.grid(length, heads, args["k"], consts[-2])),
                Launch("attention_dkdv", types, lambda *consts: consts[:4] == chosen,
                       lambda *consts: (cdiv(length, consts[-1]), heads))]

    def gradients(self, args, *backends):
        """The backward pass of PyTorch's fused operation by one of these; the forward pass runs at the first call."""
        leaves, out = [args[name].detach().requires_grad_() for name in self.inputs], []

        def run():
            if not out:
                with sdpa_kernel(list(backends)):
                    out.append(F.scaled_dot_product_attention(*leaves, is_causal=self.causal))
            return torch.autograd.grad(out[0], leaves, args["d_out"], retain_graph=True)

        return run

    def others(self, args):
        return {"cuDNN": self.gradients(args, SDPBackend.CUDNN_ATTENTION)}

    def eager(self, args):
        if "by_torch" not in args:
            args["by_torch"] = self.gradients(args, SDPBackend.FLASH_ATTENTION)
        return args["by_torch"]()

    def exact(self, args):
        scale, unit = args["q"].shape[3] ** -0.5, UNIT[args["q"].dtype]
        found = [(torch.empty_like(args["q"], dtype=torch.float64), torch.empty_like(args["q"], dtype=F32)) for _ in self.outputs]
        for head in range(args["q"].shape[1]):
            q, k, v, d_out = (args[name][0, head].double() for name in (*self.inputs, "d_out"))
            scores = q @ k.T * scale
            if self.causal:
                scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
            p = torch.softmax(scores, 1)
            out = p @ v
            of_delta = unit * (out * d_out).abs().sum(1, keepdim=True)
            ds = p * (d_out @ v.T - (out * d_out).sum(1, keepdim=True))
            # Probabilities and their gradients are rounded to the elements' type, `out` was before.
            error = (unit + 96 * SINGLE) * ds.abs() + p * (of_delta + 2 * q.shape[1] * SINGLE * (d_out.abs() @ v.abs().T))
            for (value, within), exact, bound in zip(
                    found, (ds @ k * scale, ds.T @ q * scale, p.T @ d_out),
                    (error @ k.abs() * scale, error.T @ q.abs() * scale, (unit + 96 * SINGLE) * (p.T @ d_out.abs()))):
                value[0, head], within[0, head] = exact, bound.float()
        return [rounded(value, within.double(), args["q"].dtype) for value, within in found]

    def traffic(self, args):
        return 8 * args["q"].numel() * args["q"].element_size() + 4 * args["lse"].numel()


class Decode(Entry):
    """One query for each head. A case is (heads and key heads of all batches, keys, D, element type)."""

    group = "products"
    name = "attention_decode"
    cases = [(heads, key_heads, keys, d, BF16) for heads, key_heads, keys, d in (
        (32, 8, 32768, 128), (32, 8, 131072, 128), (256, 64, 8192, 128), (512, 512, 2048, 128), (32, 32, 32768, 64),
        (16, 8, 32768, 256))]
    sweep = [(32, 8, keys, 128, BF16) for keys in (4096, 8192, 16384, 32768, 65536, 131072)]
    small = [(heads, key_heads, keys, d, dtype) for heads, key_heads, keys in ((1, 1, 1), (4, 2, 300), (8, 1, 5000))
             for d in (64, 96, 256) for dtype in (F16, BF16)]
    inputs = ("q", "k", "v")

    def compute(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def label(self, case):
        heads, key_heads, keys, d, dtype = case
        return f"{heads} / {key_heads} x {keys} x {d} {NAMES[dtype]}"

    def size(self, case):
        return case[2], NAMES[case[4]]

    #: For each tile of elements whether scores may be modified, rows, keys of an iteration, blocks on an SM.
    tiles = {64: (False, 16, 128, 2), 128: (False, 16, 64, 2), 256: (True, 64, 32, 1)}

    def parts(self, key_heads, keys, d):
        """How many there are, as the library chooses them."""
        _, _, step, side_by_side = self.tiles[head_tile(d, self.tiles)]
        steps, at_once = max(cdiv(keys, step), 1), side_by_side * sm_count()
        return min(range(1, min(steps, 128) + 1),
                   key=lambda splits: cdiv(key_heads * splits, at_once) * (cdiv(steps, splits) + 4))

    def make(self, case, shift=0):
        heads, key_heads, keys, d, dtype = case
        parts = self.parts(key_heads, keys, d)
        cache = {name: normal(key_heads * keys * d, dtype, seed, shift).view(1, key_heads, keys, d)
                 for seed, name in enumerate(("k", "v"), 1)}
        return {"q": normal(heads * d, dtype, 0, shift).view(1, heads, 1, d), **cache,
                "rows": empty(parts * heads * d, F32).view(parts, heads, 1, d),
                "sums": empty(parts * heads * 2, F32).view(parts, heads, 1, 2),
                "out": empty(heads * d, dtype, shift).view(1, heads, 1, d),
                "lse": empty(heads, F32, shift).view(heads, 1, 1),
                "scale": d**-0.5 * math.log2(math.e), "softcap": 0.0, "first_key": 0, "first_position": keys - 1, "period": 1,
                "left": keys + 1, "right": keys + 1}

    def launches(self, case, args):
        heads, key_heads, _, d, dtype = case
        group, parts = heads // key_heads, args["rows"].shape[0]
        wide = head_tile(d, self.tiles)
        changes, rows, step, _ = self.tiles[wide]
        # Without split-K one launch has the results; with it, they have no elements.
        written = key_heads if parts == 1 else 0
        ours = {"k": args["k"][0], "v": args["v"][0], "q": args["q"].view(key_heads, 1, group, d),
                "slopes": args["lse"][:0, :0, 0], "out": args["out"].view(key_heads, 1, group, d)[:written],
                "lse": args["lse"].view(key_heads, 1, group, 1)[:written],
                "partial_acc": args["rows"].view(parts, key_heads, 1, group, d),
                "partial_ml": args["sums"].view(parts, key_heads, 1, group, 2)}
        split = Launch("attention_split", [NAMES[dtype]],
                       lambda *consts: consts == (changes, wide, rows, step),
                       lambda *consts: (parts, key_heads, cdiv(group, rows)), **ours)
        join = Launch("combine_splits", [NAMES[dtype]], lambda wide, most: most == (32 if parts <= 32 else 128),
                      lambda wide, most: (1, heads, cdiv(d, wide)), partial_acc=args["rows"],
                      partial_ml=args["sums"], out=args["out"][0])
        return [split] if parts == 1 else [split, join]

    def exact(self, args):
        q, k, v = (args[name][0].double() for name in self.inputs)
        group = q.shape[0] // k.shape[0]
        k, v = (rows.repeat_interleave(group, 0) for rows in (k, v))
        weights = torch.softmax(q @ k.transpose(1, 2) * q.shape[2] ** -0.5, 2)
        within = (UNIT[args["q"].dtype] + 96 * SINGLE) * (weights @ v.abs())
        return [rounded((weights @ v)[None], within[None], args["q"].dtype)]

    def traffic(self, args):
        return 2 * args["k"].numel() * args["k"].element_size()


ENTRIES = [Matmul(IDENTITY), Matmul(GELU), FewRows(), QuantizedMatmul(torch.int8), QuantizedMatmul(F8), FewQuantized(torch.int8),
           FewQuantized(F8), Attention(False), Attention(True), AttentionBackward(False), AttentionBackward(True), Decode()]


if triton is not None:
    import triton.language as tl

    from entry import quick

    TILES = [triton.Config({"M": rows, "N": cols, "K": 128}, num_warps=8, num_stages=stages)
             for rows, cols, stages in ((128, 256, 3), (128, 256, 4), (128, 128, 4), (64, 128, 5))]
    TILES += [triton.Config({"M": 16, "N": cols, "K": steps}, num_warps=4, num_stages=stages)
              for cols, steps, stages in ((32, 256, 4), (64, 256, 4), (128, 128, 5))]

    @triton.autotune(TILES, key=["m", "n", "k", "INTEGERS"], do_bench=quick)
    @triton.jit
    def triton_quantized(a_ptr, b_ptr, rows_ptr, cols_ptr, out_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr,
                         K: tl.constexpr, INTEGERS: tl.constexpr):
        down, across = tl.cdiv(m, M), tl.cdiv(n, N)
        row, col = tl.swizzle2d(tl.program_id(0) // across, tl.program_id(0) % across, down, across, 8)
        rows, cols, inner = row * M + tl.arange(0, M), col * N + tl.arange(0, N), tl.arange(0, K)
        a = a_ptr + (rows % m).to(tl.int64)[:, None] * k + inner[None, :]
        b = b_ptr + (cols % n).to(tl.int64)[None, :] * k + inner[:, None]
        total = tl.zeros((M, N), tl.int32 if INTEGERS else tl.float32)
        for start in range(0, k, K):
            left = tl.load(a + start, inner[None, :] < k - start, 0.0)
            right = tl.load(b + start, inner[:, None] < k - start, 0.0)
            total = tl.dot(left, right, total, out_dtype=total.dtype)
        scale = tl.load(rows_ptr + rows, rows < m, 0)[:, None] * tl.load(cols_ptr + cols, cols < n, 0)[None, :]
        place = rows.to(tl.int64)[:, None] * n + cols[None, :]
        tl.store(out_ptr + place, (total.to(tl.float32) * scale).to(tl.bfloat16), (rows < m)[:, None] & (cols < n)[None, :])

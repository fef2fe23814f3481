"""Elementwise operations and gates."""

import math

import torch
import torch.nn.functional as F

from entry import (BF16, F16, F32, NAMES, SINGLE, SUBNORMAL, TINY, UNIT, Entry, Launch, along_rows, cdiv, empty, normal,
                   rounded, triton)

IDENTITY, RELU, GELU, GELU_TANH, SILU = 0, 1, 2, 3, 4
ACTIVATIONS = {
    RELU: ("relu", F.relu),
    GELU: ("gelu", F.gelu),
    GELU_TANH: ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
    SILU: ("silu", F.silu),
}


def activated(act, x, dtype, within=0.0):
    """The activation of float64 `x`, known within `within`, and its error in f32."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    if act == RELU:
        value, relative = x.clamp(min=0), 0.0
    elif act == GELU:
        value, relative = x * 0.5 * torch.special.erfc(-x * math.sqrt(0.5)), 32.0
        if dtype.itemsize == 2:
            near, far = (2.0**13, 2.0**14) if dtype == BF16 else (2.0**10, 2.0**12)
            relative = torch.where(x < -5.7, far, near)
    elif act == GELU_TANH:
        value, relative = x * torch.sigmoid(2 * u), 16 + 8 * u.abs()
    else:
        value, relative = x * torch.sigmoid(x), 10.0
    return value, relative * SINGLE * value.abs() + (1 + x.abs()) * TINY + 1.13 * within


class Flat(Entry):
    """An operation on elements. A case is (count, element type)."""

    group = "elementwise"
    cases = [(100 << 20, BF16), (100 << 20, F32)]
    sweep = [(1 << i, dtype) for dtype in (BF16, F32) for i in range(16, 28, 2)]
    small = [(n, dtype) for n in (1, 7, 1000, 1024, 4097) for dtype in (F32, F16, BF16)]
    #: The elements of a program.
    block = None

    def label(self, case):
        n, dtype = case
        return f"{n >> 20} Mi {NAMES[dtype]}" if n >> 20 else f"{n} {NAMES[dtype]}"

    def size(self, case):
        return case[0], NAMES[case[1]]

    def make(self, case, shift=0):
        n, dtype = case
        args = {name: normal(n, dtype, seed, shift) for seed, name in enumerate(self.inputs)}
        return {**args, "out": empty(n, dtype, shift), "n": n}

    def grid_of(self, kernel):
        return lambda args: kernel[lambda meta: (triton.cdiv(args["n"], meta["BLOCK"]),)]

    def traffic(self, args):
        return (len(self.inputs) + 1) * args["n"] * args["x"].element_size()


class AddMul(Flat):
    name = "add_mul"
    inputs = ("x", "y", "z")

    def launches(self, case, args):
        return [Launch("add_mul", [NAMES[case[1]]], lambda block: True, lambda block: (cdiv(case[0], block),))]

    def exact(self, args):
        dtype = args["x"].dtype
        unit, z = UNIT[dtype], args["z"].double()
        value = (args["x"].double() + args["y"].double()) * z
        return [(value, (2 * unit + unit * unit) * value.abs() + SUBNORMAL[dtype] * (1 + z.abs()))]

    @staticmethod
    def compute(x, y, z):
        return (x + y) * z

    def triton(self, args):
        triton_add_mul[lambda meta: (triton.cdiv(args["n"], meta["BLOCK"]),)](
            args["x"], args["y"], args["z"], args["out"], args["n"])


class ScaleRelu(Flat):
    name = "scale_relu"
    inputs = ("x",)
    scale, bias = 1.7, -0.3

    def make(self, case, shift=0):
        return {**super().make(case, shift), "scale": self.scale, "bias": self.bias}

    def launches(self, case, args):
        return [Launch("scale_relu", [NAMES[case[1]]], lambda block: True, lambda block: (cdiv(case[0], block),))]

    def exact(self, args):
        # The scalars are f32.
        scale, bias = torch.tensor([self.scale, self.bias], dtype=F32).double().tolist()
        product = args["x"].double().clamp(min=0) * scale
        return [rounded(product + bias, 2 * SINGLE * (product.abs() + abs(bias)), args["x"].dtype)]

    @staticmethod
    def compute(x):
        return (F.relu(x).float() * ScaleRelu.scale + ScaleRelu.bias).to(x.dtype)

    def triton(self, args):
        triton_scale_relu[lambda meta: (triton.cdiv(args["n"], meta["BLOCK"]),)](
            args["x"], args["out"], args["n"], self.scale, self.bias)


class BiasRelu(Flat):
    """A bias and ReLU behind flags at build time."""

    cases = [(100 << 20, BF16)]

    def __init__(self, bias, relu):
        self.bias, self.relu = bias, relu
        self.inputs = ("x", "bias") if bias else ("x",)
        self.name = "fused" + ("_bias" if bias else "") + ("_relu" if relu else "")
        self.compute = self.in_pytorch

    def make(self, case, shift=0):
        args = super().make(case, shift)
        return {"bias": args["x"][:0], **args}

    def launches(self, case, args):
        return [Launch("bias_relu", [NAMES[case[1]]],
                       lambda bias, relu, block: (bool(bias), bool(relu)) == (self.bias, self.relu),
                       lambda bias, relu, block: (cdiv(case[0], block),))]

    def exact(self, args):
        value = sum(args[name].double() for name in self.inputs)
        within = SINGLE * value.abs() if self.bias else torch.zeros_like(value)
        return [rounded(value.clamp(min=0) if self.relu else value, within, args["x"].dtype)]

    def in_pytorch(self, x, *bias):
        y = x + bias[0] if bias else x
        return F.relu(y) if self.relu else y

    def triton(self, args):
        triton_bias_relu[lambda meta: (triton.cdiv(args["n"], meta["BLOCK"]),)](
            args["x"], args["bias"], args["out"], args["n"], FUSE_BIAS=self.bias, FUSE_RELU=self.relu)


class LinearCombination(Flat):
    name = "linear_combination"
    inputs = ("x", "y", "z")
    factors = {"alpha": 1.7, "beta": -0.3, "gamma": 0.5}

    def make(self, case, shift=0):
        return {**super().make(case, shift), **self.factors, "adds_y": 1, "adds_z": 1}

    def launches(self, case, args):
        return [Launch("linear_combination", [NAMES[case[1]]], lambda block: True,
                       lambda block: (cdiv(case[0], block),))]

    def exact(self, args):
        # The operands are f32.
        factors = torch.tensor(list(self.factors.values()), dtype=F32).double().tolist()
        products = [args[name].double() * factor for name, factor in zip(self.inputs, factors)]
        return [rounded(sum(products), 3 * SINGLE * sum(part.abs() for part in products), args["x"].dtype)]

    @staticmethod
    def compute(x, y, z):
        alpha, beta, gamma = LinearCombination.factors.values()
        return (alpha * x.float() + beta * y.float() + gamma * z.float()).to(x.dtype)

    def triton(self, args):
        triton_linear_combination[lambda meta: (triton.cdiv(args["n"], meta["BLOCK"]),)](
            args["x"], args["y"], args["z"], args["out"], args["n"], *self.factors.values())


class AddActivation(Flat):
    inputs = ("x", "y")
    cases = [(100 << 20, BF16)]

    def __init__(self, act):
        self.act, (self.word, self.function) = act, ACTIVATIONS[act]
        self.name = f"add_{self.word}"
        function = self.function
        self.compute = lambda x, y: function(x + y)

    def launches(self, case, args):
        return [Launch("add_activation", [NAMES[case[1]]], lambda act, block: act == self.act,
                       lambda act, block: (cdiv(case[0], block),))]

    def exact(self, args):
        total = args["x"].double() + args["y"].double()
        return [rounded(*activated(self.act, total, args["x"].dtype, SINGLE * total.abs()), args["x"].dtype)]

    def eager(self, args):
        # PyTorch rounds the sum to 16 bits before the activation; in f32 it is comparable.
        return self.compute(args["x"], args["y"])

    def triton(self, args):
        triton_add_activation[lambda meta: (triton.cdiv(args["n"], meta["BLOCK"]),)](
            args["x"], args["y"], args["out"], args["n"], ACT=self.act)


class BiasActivation(Entry):
    """A case is (rows, columns, element type)."""

    group = "elementwise"
    inputs = ("x", "bias")
    cases = [(16384, 4096, BF16), (65536, 1024, BF16), (16384, 11008, BF16)]
    small = [(rows, cols, dtype) for rows, cols in ((100, 7), (5, 129), (3, 1000), (5, 1024), (3, 9001))
             for dtype in (F32, F16, BF16)]

    def __init__(self, act):
        self.act, (self.word, self.function) = act, ACTIVATIONS[act]
        self.name = f"bias_{self.word}"
        function = self.function
        self.compute = lambda x, bias: function(x + bias)

    def label(self, case):
        return f"{case[0]} x {case[1]} {NAMES[case[2]]}"

    def make(self, case, shift=0):
        rows, cols, dtype = case
        return {"x": normal(rows * cols, dtype, 1, shift).view(rows, cols), "bias": normal(cols, dtype, 2, shift),
                "out": empty(rows * cols, dtype, shift).view(rows, cols), "n_rows": rows, "n_cols": cols}

    def launches(self, case, args):
        rows, cols, dtype = case
        return [Launch("bias_activation", [NAMES[dtype]],
                       lambda act, width: act == self.act and width >= min(cols, 4096),
                       lambda act, width: along_rows(cdiv(cols, width), cdiv(rows, 4096 // width)))]

    def exact(self, args):
        total = args["x"].double() + args["bias"].double()
        return [rounded(*activated(self.act, total, args["x"].dtype, SINGLE * total.abs()), args["x"].dtype)]

    def traffic(self, args):
        return (2 * args["x"].numel() + args["bias"].numel()) * args["x"].element_size()

    def triton(self, args):
        rows, cols = args["n_rows"], args["n_cols"]
        triton_bias_activation[lambda meta: (rows, triton.cdiv(cols, meta["BLOCK"]))](
            args["x"], args["bias"], args["out"], cols, ACT=self.act)


class ScaleReluColumns(BiasActivation):
    """ReLU scaled, and a bias for each column."""

    scale = 1.7

    def __init__(self):
        self.name, self.compute = "scale_relu_columns", self.in_pytorch

    def make(self, case, shift=0):
        return {**super().make(case, shift), "scale": self.scale}

    def launches(self, case, args):
        rows, cols, dtype = case
        return [Launch("scale_relu_columns", [NAMES[dtype]], lambda width: width >= min(cols, 4096),
                       lambda width: along_rows(cdiv(cols, width), cdiv(rows, 4096 // width)))]

    def exact(self, args):
        scale = torch.tensor(self.scale, dtype=F32).double().item()
        product, bias = args["x"].double().clamp(min=0) * scale, args["bias"].double()
        return [rounded(product + bias, 2 * SINGLE * (product.abs() + bias.abs()), args["x"].dtype)]

    @staticmethod
    def in_pytorch(x, bias):
        return (F.relu(x).float() * ScaleReluColumns.scale + bias.float()).to(x.dtype)

    def triton(self, args):
        rows, cols = args["n_rows"], args["n_cols"]
        triton_scale_relu_columns[lambda meta: (rows, triton.cdiv(cols, meta["BLOCK"]))](
            args["x"], args["bias"], args["out"], cols, self.scale)


class ActAndMul(Entry):
    """A case is (rows, d, element type)."""

    group = "gates"
    inputs = ("x",)
    cases = [(8192, 11008, BF16), (16384, 4096, BF16)]
    small = [(rows, d, dtype) for rows, d in ((1, 1), (3, 7), (3, 2048), (2, 2049)) for dtype in (F32, F16, BF16)]

    def __init__(self, act, gate="first"):
        self.act, self.gate, (self.word, self.function) = act, gate, ACTIVATIONS[act]
        self.name = f"{self.word}_and_mul" + ("" if gate == "first" else "_second")
        function = self.function
        if gate == "first":
            self.compute = lambda x: function(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2:]
        else:
            self.compute = lambda x: x[:, : x.shape[1] // 2] * function(x[:, x.shape[1] // 2:])

    def label(self, case):
        return f"{case[0]} x 2 x {case[1]} {NAMES[case[2]]}"

    def make(self, case, shift=0):
        rows, d, dtype = case
        return {"x": normal(rows * 2 * d, dtype, 1, shift, 2.0).view(rows, 2 * d),
                "out": empty(rows * d, dtype, shift).view(rows, d), "n_rows": rows, "d": d,
                "gate": 0 if self.gate == "first" else d}

    def launches(self, case, args):
        rows, d, dtype = case
        few = d < (1 << 18) // rows
        wanted = 256 if few else 64 if d <= 64 else 128 if d <= 256 else 512
        return [Launch("act_and_mul", [NAMES[dtype]], lambda act, width: act == self.act and width >= wanted,
                       lambda act, width: along_rows(cdiv(d, width), rows if width == 256 else cdiv(rows, 1024 // width)))]

    def halves(self, args):
        x, d = args["x"].double(), args["d"]
        return (x[:, :d], x[:, d:]) if self.gate == "first" else (x[:, d:], x[:, :d])

    def exact(self, args):
        gated, factor = self.halves(args)
        value, within = activated(self.act, gated, args["x"].dtype)
        product = value * factor
        return [rounded(product, within * factor.abs() + 2 * SINGLE * product.abs(), args["x"].dtype)]

    def traffic(self, args):
        return 3 * args["out"].numel() * args["x"].element_size()

    def triton(self, args):
        rows, d = args["out"].shape
        triton_act_and_mul[lambda meta: (rows, triton.cdiv(d, meta["BLOCK"]))](
            args["x"], args["out"], d, args["gate"], ACT=self.act)


class SwigluBackward(ActAndMul):
    inputs = ("dy", "x")
    outputs = ("dx",)

    def __init__(self):
        super().__init__(SILU)
        self.name = "swiglu_backward"
        self.compute = swiglu_backward

    def make(self, case, shift=0):
        args = super().make(case, shift)
        dy = normal(args["out"].numel(), case[2], 2, shift).view_as(args.pop("out"))
        return {**args, "dy": dy, "dx": empty(args["x"].numel(), case[2], shift).view_as(args["x"])}

    def launches(self, case, args):
        rows, d, dtype = case
        return [Launch("swiglu_backward", [NAMES[dtype]], lambda block: True, lambda block: (rows, cdiv(d, block)))]

    def exact(self, args):
        (a, b), dy = self.halves(args), args["dy"].double()
        s = torch.sigmoid(a)
        size = (dy * b).abs() * (1 + a.abs())
        da = rounded(dy * b * (s + a * s * torch.sigmoid(-a)), 16 * SINGLE * size * s + 4 * size * TINY, dy_type(args))
        db = dy * a * s
        db = rounded(db, 10 * SINGLE * db.abs() + 4 * TINY * dy.abs() * (1 + a.abs()), dy_type(args))
        return [tuple(torch.cat(pair, 1) for pair in zip(da, db))]

    def traffic(self, args):
        return 5 * args["dy"].numel() * args["x"].element_size()

    def triton(self, args):
        rows, d = args["dy"].shape
        triton_swiglu_backward[lambda meta: (rows, triton.cdiv(d, meta["BLOCK"]))](args["dy"], args["x"], args["dx"], d)


def dy_type(args):
    return args["dy"].dtype


def swiglu_backward(dy, x):
    d = x.shape[1] // 2
    a, b, dy = x[:, :d].float(), x[:, d:].float(), dy.float()
    s = torch.sigmoid(a)
    return torch.cat([dy * b * s * (1 + a * (1 - s)), dy * a * s], 1).to(x.dtype)


ENTRIES = [
    AddMul(), ScaleRelu(), ScaleReluColumns(), LinearCombination(), BiasRelu(True, True), BiasRelu(False, True),
    *(AddActivation(act) for act in ACTIVATIONS),
    BiasActivation(RELU), BiasActivation(GELU), BiasActivation(GELU_TANH),
    ActAndMul(SILU), ActAndMul(GELU), ActAndMul(GELU_TANH), ActAndMul(GELU_TANH, "second"), SwigluBackward(),
]


# ---- Triton peers

if triton is not None:
    import triton.language as tl

    from entry import for_elements

    @triton.jit
    def act_of(v, ACT: tl.constexpr):
        if ACT == 1:
            v = tl.maximum(v, 0.0)
        elif ACT == 2:
            v = v * 0.5 * (1.0 + tl.math.erf(v * 0.7071067811865476))
        elif ACT == 3:
            v = v * tl.sigmoid(v * (1.5957691216057308 + 0.0713548162726 * v * v))
        elif ACT == 4:
            v = v * tl.sigmoid(v)
        return v

    @for_elements(blocks=(512, 1024, 2048, 4096))
    @triton.jit
    def triton_add_mul(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask)
        y = tl.load(y_ptr + offsets, mask)
        z = tl.load(z_ptr + offsets, mask)
        tl.store(out_ptr + offsets, (x + y) * z, mask)

    @for_elements()
    @triton.jit
    def triton_scale_relu(x_ptr, out_ptr, n, scale, bias, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask).to(tl.float32)
        tl.store(out_ptr + offsets, (tl.maximum(x, 0.0) * scale + bias).to(out_ptr.dtype.element_ty), mask)

    @for_elements()
    @triton.jit
    def triton_linear_combination(x_ptr, y_ptr, z_ptr, out_ptr, n, alpha, beta, gamma, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        total = alpha * tl.load(x_ptr + offsets, mask).to(tl.float32)
        total += beta * tl.load(y_ptr + offsets, mask).to(tl.float32)
        total += gamma * tl.load(z_ptr + offsets, mask).to(tl.float32)
        tl.store(out_ptr + offsets, total.to(out_ptr.dtype.element_ty), mask)

    @for_elements(key=("n", "ACT"))
    @triton.jit
    def triton_add_activation(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, ACT: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        v = tl.load(x_ptr + offsets, mask).to(tl.float32) + tl.load(y_ptr + offsets, mask).to(tl.float32)
        tl.store(out_ptr + offsets, act_of(v, ACT).to(out_ptr.dtype.element_ty), mask)

    @for_elements(key=("cols", "ACT"), blocks=(1024, 2048, 4096))
    @triton.jit
    def triton_bias_activation(x_ptr, bias_ptr, out_ptr, cols, BLOCK: tl.constexpr, ACT: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = column < cols
        v = tl.load(x_ptr + start + column, mask).to(tl.float32) + tl.load(bias_ptr + column, mask).to(tl.float32)
        tl.store(out_ptr + start + column, act_of(v, ACT).to(out_ptr.dtype.element_ty), mask)

    @for_elements(key=("cols",), blocks=(1024, 2048, 4096))
    @triton.jit
    def triton_scale_relu_columns(x_ptr, bias_ptr, out_ptr, cols, scale, BLOCK: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask).to(tl.float32)
        y = tl.maximum(x, 0.0) * scale + tl.load(bias_ptr + column, mask).to(tl.float32)
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

    @for_elements(key=("n", "FUSE_BIAS", "FUSE_RELU"))
    @triton.jit
    def triton_bias_relu(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr, FUSE_BIAS: tl.constexpr,
                         FUSE_RELU: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        y = tl.load(x_ptr + offsets, mask).to(tl.float32)
        if FUSE_BIAS:
            y += tl.load(bias_ptr + offsets, mask).to(tl.float32)
        if FUSE_RELU:
            y = tl.maximum(y, 0.0)
        tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask)

    @for_elements(key=("d", "ACT"), blocks=(1024, 2048, 4096))
    @triton.jit
    def triton_act_and_mul(x_ptr, out_ptr, d, gate, BLOCK: tl.constexpr, ACT: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = column < d
        a = tl.load(x_ptr + row * 2 * d + gate + column, mask).to(tl.float32)
        b = tl.load(x_ptr + row * 2 * d + (d - gate) + column, mask).to(tl.float32)
        tl.store(out_ptr + row * d + column, (act_of(a, ACT) * b).to(out_ptr.dtype.element_ty), mask)

    @for_elements(key=("d",), blocks=(1024, 2048, 4096))
    @triton.jit
    def triton_swiglu_backward(dy_ptr, x_ptr, dx_ptr, d, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = column < d
        dy = tl.load(dy_ptr + row * d + column, mask).to(tl.float32)
        a = tl.load(x_ptr + row * 2 * d + column, mask).to(tl.float32)
        b = tl.load(x_ptr + row * 2 * d + d + column, mask).to(tl.float32)
        s = tl.sigmoid(a)
        da, db = dy * b * s * (1 + a * (1 - s)), dy * a * s
        tl.store(dx_ptr + row * 2 * d + column, da.to(dx_ptr.dtype.element_ty), mask)
        tl.store(dx_ptr + row * 2 * d + d + column, db.to(dx_ptr.dtype.element_ty), mask)

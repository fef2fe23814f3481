"""Norms of rows, forward and backward."""

import math

import torch
import torch.nn.functional as F

from elementwise import GELU, activated
from entry import (
    BF16, F16, F32, NAMES, SHORT_ROW, SINGLE, Entry, Launch, RowEntry, empty, normal, over, sm_count, rounded,
    short_programs, triton)


class Norm(RowEntry):
    """A norm with parameters for each column. `kernel` takes rows of up to `tile` elements in one, `long` any, and `short` several.
    Kernels of both norms are LayerNorm where there is a `beta`."""

    group = "norms"
    parameters = ("gamma", "beta")
    kernel, long, short, cluster = "norm", "norm_long", "norm_short", "norm_cluster"
    tile = 131072
    eps = 1e-5

    @property
    def inputs(self):
        return ("x", *self.parameters)

    def make(self, case, shift=0):
        rows, cols, dtype = case
        args = {"x": normal(rows * cols, dtype, 1, shift).view(rows, cols)}
        args |= {name: normal(cols, dtype, seed, shift) for seed, name in enumerate(self.parameters, 2)}
        return {**args, "out": empty(rows * cols, dtype, shift).view(rows, cols), "n_rows": rows, "n_cols": cols,
                "eps": self.eps}

    def launches(self, case, args):
        rows, cols, dtype = case
        if self.short and cols <= SHORT_ROW:
            return [self.launch(self.short, dtype, cols, short_programs(rows, cols))]
        if self.cluster and 6144 < cols <= 32768 and 8 * rows <= sm_count():
            return [self.launch(self.cluster, dtype, 0, rows)]
        return [self.launch(self.long, dtype, 0, rows) if cols > self.tile else self.launch(self.kernel, dtype, cols, rows)]

    def launch(self, kernel, dtype, least, programs):
        """Of a tile of at least so many columns."""
        there = self.options(kernel)
        return Launch(kernel, [NAMES[dtype]], lambda block, *options: block >= least and options == there,
                      lambda *_: (programs,))

    def options(self, kernel):
        """Which of a kernel's optional parameters there are: the residual of `norm_long`, and `beta`."""
        if kernel not in ("norm", "norm_short", "norm_cluster", "norm_long", "add_norm"):
            return ()
        residual = (int("residual" in self.outputs),) if kernel == "norm_long" else ()
        return (*residual, int("beta" in self.parameters))

    def traffic(self, args):
        return (2 * args["x"].numel() + len(self.parameters) * args["n_cols"]) * args["x"].element_size()


def layer_norm(args, eps):
    """The norm in float64 and its error before rounding."""
    x = args["x"].double()
    gamma, beta = args["gamma"].double(), args["beta"].double()
    mean, magnitude = x.mean(1, keepdim=True), x.abs().mean(1, keepdim=True)
    scale = 1 / (x.var(1, keepdim=True, correction=0) + eps).sqrt()
    normed = (x - mean) * scale
    inner = over(x.shape[1]) * ((normed.abs() + magnitude * scale) * gamma.abs() + beta.abs())
    return normed * gamma + beta, inner


class LayerNorm(Norm):
    name = "layer_norm"

    def launches(self, case, args):
        rows, cols, dtype = case
        if cols <= SHORT_ROW or 6144 < cols <= 32768 and 8 * rows <= sm_count():
            return super().launches(case, args)
        odd = cols % 8 and (dtype == F32 or cols <= 24576)
        if cols <= (16384 if dtype == F32 else 20480) or cols <= self.tile and (cols > 32768 or odd):
            return [self.launch(self.kernel, dtype, cols, rows)]
        if cols > 32768 or odd:
            return [self.launch(self.long, dtype, 0, rows)]
        # `f32` rows are taken one after the other by as many clusters of 4 as run at once.
        programs = min(rows, 60) if dtype == F32 else rows
        return [Launch("layer_norm_wide", [NAMES[dtype]], lambda block: True, lambda block: (programs,))]

    def exact(self, args):
        return [rounded(*layer_norm(args, self.eps), args["x"].dtype)]

    @staticmethod
    def compute(x, gamma, beta):
        return F.layer_norm(x, (x.shape[-1],), gamma, beta, LayerNorm.eps)

    def triton(self, args):
        cols = args["n_cols"]
        triton_layer_norm[(args["x"].shape[0],)](
            args["x"], args["gamma"], args["beta"], args["out"], cols, self.eps, BLOCK=triton.next_power_of_2(cols))


class LayerNormGelu(Norm):
    name, kernel, short, cluster = "layer_norm_gelu", "layer_norm_gelu", None, None
    small_columns = (*Norm.small_columns, 14_000, 20_000)

    def exact(self, args):
        value, inner = layer_norm(args, self.eps)
        return [rounded(*activated(GELU, value, args["x"].dtype, inner), args["x"].dtype)]

    @staticmethod
    def compute(x, gamma, beta):
        return F.gelu(F.layer_norm(x, (x.shape[-1],), gamma, beta, LayerNormGelu.eps))

    def triton(self, args):
        cols = args["n_cols"]
        triton_layer_norm[(args["x"].shape[0],)](
            args["x"], args["gamma"], args["beta"], args["out"], cols, self.eps, BLOCK=triton.next_power_of_2(cols),
            GELU=True)


class RmsNorm(Norm):
    name = "rms_norm"
    parameters = ("gamma",)
    eps = 1e-6

    def exact(self, args):
        x = args["x"].double()
        value = x / (x.square().mean(1, keepdim=True) + self.eps).sqrt() * args["gamma"].double()
        return [rounded(value, over(x.shape[1]) * value.abs(), args["x"].dtype)]

    @staticmethod
    def compute(x, gamma):
        return F.rms_norm(x, (x.shape[-1],), gamma, RmsNorm.eps)

    def triton(self, args):
        cols = args["n_cols"]
        triton_rms_norm[(args["x"].shape[0],)](
            args["x"], args["x"], args["gamma"], args["out"], cols, self.eps, BLOCK=triton.next_power_of_2(cols),
            ADD=False)


class AddRmsNorm(Norm):
    name, kernel, short, cluster, tile = "add_rms_norm", "add_norm", None, None, 32768
    parameters = ("gamma",)
    outputs = ("out", "residual")
    eps = 1e-6
    elements = 1 << 26

    @property
    def inputs(self):
        return ("x", "original", "gamma")

    def make(self, case, shift=0):
        args = super().make(case, shift)
        original = normal(args["x"].numel(), case[2], 7, shift).view_as(args["x"])
        residual = empty(args["x"].numel(), case[2], shift).view_as(args["x"])
        return {**args, "original": original, "residual": residual}

    def prepare(self, args):
        args["residual"].copy_(args["original"])

    def exact(self, args):
        total = args["x"] + args["original"]
        x = total.double()
        value = x / (x.square().mean(1, keepdim=True) + self.eps).sqrt() * args["gamma"].double()
        return [rounded(value, over(x.shape[1]) * value.abs(), args["x"].dtype), (x, torch.full_like(x, 2.0**-149))]

    @staticmethod
    def compute(x, residual, gamma):
        total = x + residual
        return F.rms_norm(total, (x.shape[-1],), gamma, AddRmsNorm.eps), total

    def traffic(self, args):
        return 2 * super().traffic(args)

    def triton(self, args):
        cols = args["n_cols"]
        triton_rms_norm[(args["x"].shape[0],)](
            args["x"], args["residual"], args["gamma"], args["out"], cols, self.eps,
            BLOCK=triton.next_power_of_2(cols), ADD=True)


class Plain(Norm):
    """Without parameters."""

    parameters, short, cluster, tile = (), None, None, 32768


class Center(Plain):
    name, kernel, long = "center", "center", "center_long"
    columns = (1024, 4096, 16384, 32768)

    def exact(self, args):
        x = args["x"].double()
        value, cols = x - x.mean(1, keepdim=True), x.shape[1]
        inner = (4 + math.sqrt(cols)) * SINGLE * (x.abs().mean(1, keepdim=True) + value.abs())
        return [rounded(value, inner, args["x"].dtype)]

    @staticmethod
    def compute(x):
        wide = x.float()
        return (wide - wide.mean(1, keepdim=True)).to(x.dtype)

    def triton(self, args):
        cols = args["n_cols"]
        triton_plain[(args["x"].shape[0],)](
            args["x"], args["out"], cols, 0.0, BLOCK=triton.next_power_of_2(cols), CENTER=True)


class L2Norm(Plain):
    name, kernel, long = "l2_norm", "l2_norm", "l2_norm_long"
    columns = (1024, 4096, 16384, 32768)
    eps = 1e-12

    def exact(self, args):
        x = args["x"].double()
        value = x / x.square().sum(1, keepdim=True).sqrt().clamp(min=self.eps)
        return [rounded(value, over(x.shape[1]) * value.abs(), args["x"].dtype)]

    @staticmethod
    def compute(x):
        return F.normalize(x, dim=1)

    def triton(self, args):
        cols = args["n_cols"]
        triton_plain[(args["x"].shape[0],)](
            args["x"], args["out"], cols, self.eps, BLOCK=triton.next_power_of_2(cols), CENTER=False)


class GroupNorm(Entry):
    """A case is (images, channels, groups, pixels, element type)."""

    name, group = "group_norm", "norms"
    inputs = ("x", "gamma", "beta")
    eps = 1e-5
    cases = [(256, 320, 32, 1024, BF16), (64, 640, 32, 4096, BF16), (512, 512, 32, 256, BF16)]
    small = [(*shape, dtype) for shape in ((2, 6, 3, 7), (3, 32, 8, 64), (2, 20, 2, 1024), (1, 10, 2, 4097),
                                           (1, 6, 2, 12_000))
             for dtype in (F32, F16, BF16)]

    def label(self, case):
        images, channels, groups, pixels, dtype = case
        return f"{images} x {channels} / {groups} x {pixels} {NAMES[dtype]}"

    def make(self, case, shift=0):
        images, channels, groups, pixels, dtype = case
        count = images * channels * pixels
        shape = (images, channels, pixels)
        return {"x": normal(count, dtype, 1, shift).view(shape), "gamma": normal(channels, dtype, 2, shift),
                "beta": normal(channels, dtype, 3, shift), "out": empty(count, dtype, shift).view(shape),
                "groups": groups, "size": channels // groups * pixels, "pixels": pixels, "eps": self.eps}

    def launches(self, case, args):
        images, size = case[0], args["size"]
        in_runs = 1 if case[3] % 8 else 8
        kernel, fits = ("group_norm", lambda run, block: run == in_runs and block >= size)
        if size > 81920:
            kernel, fits = ("group_norm_large", lambda run, rows: run == in_runs)
        return [Launch(kernel, [NAMES[case[4]]], fits, lambda *_: (images * case[2],))]

    def exact(self, args):
        x, groups = args["x"], args["groups"]
        images, channels, pixels = x.shape
        rows = {name: args[name].double().repeat_interleave(pixels).view(groups, -1).repeat(images, 1)
                for name in ("gamma", "beta")}
        value, inner = layer_norm({"x": x.reshape(images * groups, -1), **rows}, self.eps)
        return [rounded(value.view_as(x), inner.view_as(x), x.dtype)]

    def traffic(self, args):
        return 2 * args["x"].numel() * args["x"].element_size()

    def eager(self, args):
        return F.group_norm(args["x"], args["groups"], args["gamma"], args["beta"], self.eps)

    @staticmethod
    def compute(x, gamma, beta):
        # Every timed case has 32 groups; small ones are not compiled.
        return F.group_norm(x, 32, gamma, beta, GroupNorm.eps)

    def triton(self, args):
        if args["size"] > 32768:
            return triton_group_norm_large[(args["x"].shape[0] * args["groups"],)](
                args["x"], args["gamma"], args["beta"], args["out"], args["groups"], args["size"], args["pixels"],
                self.eps)
        triton_group_norm[(args["x"].shape[0] * args["groups"],)](
            args["x"], args["gamma"], args["beta"], args["out"], args["groups"], args["size"], args["pixels"], self.eps,
            BLOCK=triton.next_power_of_2(args["size"]))


class Backward(RowEntry):
    """The gradients of a norm, in two launches."""

    group = "norms_backward"
    elements = 1 << 26
    columns = (1024, 2048, 4096, 8192, 16384, 32768)
    small_columns = (1, 7, 1000, 1024, 4097, 8200, 20_000)
    kinds = None
    #: Longer rows are read again for the gradients of the parameters.
    tile = 32768

    @property
    def small(self):
        return super().small + [(5000, 33, F32)]

    @classmethod
    def programs(cls, rows, cols):
        if cols > cls.tile:
            return min(-(-rows // 4), max(7 * 132 // -(-cols // 1024), 1))
        block = cls.block(cols)
        return min(rows, 30 if block == cls.tile else 132 * 8192 // block)

    @classmethod
    def resident(cls, rows, cols):
        """Triton's programs, which keep their share of the sums in registers."""
        return min(rows, max(132, 132 * 2 * 8192 // cls.block(cols)))

    @staticmethod
    def block(cols):
        return max(1024, 1 << (cols - 1).bit_length())

    def make(self, case, shift=0):
        rows, cols, dtype = case
        args = {name: normal(rows * cols, dtype, seed, shift).view(rows, cols) for seed, name in enumerate(("dy", "x"))}
        args |= {"gamma": normal(cols, dtype, 2, shift), "dx": empty(rows * cols, dtype, shift).view(rows, cols)}
        args |= {name: empty(cols, dtype, shift) for name in ("dgamma", "dbeta")}
        partials, resident = (empty(self.kinds * programs(rows, cols) * cols, F32)
                              for programs in (self.programs, self.resident))
        return {**args, "partials": partials, "resident": resident, "stats": empty(self.kinds * rows, F32),
                "n_rows": rows, "n_cols": cols, "eps": self.eps}

    def launches(self, case, args):
        rows, cols, dtype = case
        programs, types = self.programs(rows, cols), [NAMES[dtype]]
        first = [Launch(self.name, types, lambda block: block >= cols, lambda block: (programs,))]
        if cols > self.tile:
            first = [
                Launch(f"{self.name}_long", types, lambda block: True, lambda block: (rows,)),
                Launch("column_partials", types, lambda kinds, width: kinds == self.kinds,
                       lambda kinds, width: (programs, -(-cols // width))),
            ]
        nothing = {"dbeta": args["dbeta"][:0]} if self.kinds == 1 else {}
        return first + [
            Launch("sum_partials", types, lambda kinds, width: kinds == self.kinds,
                   lambda kinds, width: (-(-cols // width), kinds), programs=programs, **nothing),
        ]

    def traffic(self, args):
        return (3 * args["x"].numel() + (1 + self.kinds) * args["n_cols"]) * args["x"].element_size()


class LayerNormBackward(Backward):
    name, kinds, eps = "layer_norm_backward", 2, 1e-5
    inputs = ("dy", "x", "gamma")
    outputs = ("dx", "dgamma", "dbeta")

    def exact(self, args):
        dy, x, gamma = (args[name].double() for name in self.inputs)
        (rows, cols), dtype = x.shape, args["x"].dtype
        mean = x.mean(1, keepdim=True)
        scale = 1 / (x.var(1, keepdim=True, correction=0) + self.eps).sqrt()
        x_hat = (x - mean) * scale
        a, over_rows = over(cols), over(rows)
        e = a * (x_hat.abs() + x.abs().mean(1, keepdim=True) * scale)
        g = dy * gamma
        along = (g * x_hat).mean(1, keepdim=True)
        dx = (g - g.mean(1, keepdim=True) - x_hat * along) * scale
        sizes = g.abs().mean(1, keepdim=True), (g * x_hat).abs().mean(1, keepdim=True)
        within = a * (g.abs() + sizes[0] + 2 * x_hat.abs() * sizes[1]) + e * along.abs()
        within = 2 * scale * (within + x_hat.abs() * (g.abs() * e).mean(1, keepdim=True))
        dgamma, dgamma_within = (dy * x_hat).sum(0), over_rows * (dy * x_hat).abs().sum(0) + (dy.abs() * e).sum(0)
        return [rounded(dx, within, dtype), rounded(dgamma, dgamma_within, dtype),
                rounded(dy.sum(0), over_rows * dy.abs().sum(0), dtype)]

    @staticmethod
    def compute(dy, x, gamma):
        wide_x, wide_dy = x.float(), dy.float()
        mean = wide_x.mean(1, keepdim=True)
        scale = torch.rsqrt((wide_x - mean).square().mean(1, keepdim=True) + LayerNormBackward.eps)
        x_hat, g = (wide_x - mean) * scale, wide_dy * gamma.float()
        dx = (g - g.mean(1, keepdim=True) - x_hat * (g * x_hat).mean(1, keepdim=True)) * scale
        return dx.to(x.dtype), (wide_dy * x_hat).sum(0).to(x.dtype), wide_dy.sum(0).to(x.dtype)

    def eager(self, args):
        """PyTorch's own, which takes what its forward pass saved."""
        dy, x, gamma = (args[name] for name in self.inputs)
        if "saved" not in args:
            shape, beta = (x.shape[1],), torch.zeros_like(gamma)
            args["saved"] = torch.ops.aten.native_layer_norm(x, shape, gamma, beta, self.eps)[1:], beta
        (mean, scale), beta = args["saved"]
        return torch.ops.aten.native_layer_norm_backward(
            dy, x, (x.shape[1],), mean, scale, gamma, beta, [True, True, True])

    def triton(self, args):
        triton_backward(args, 2, self.eps)


class RmsNormBackward(Backward):
    name, kinds, eps = "rms_norm_backward", 1, 1e-6
    inputs = ("dy", "x", "gamma")
    outputs = ("dx", "dgamma")

    def exact(self, args):
        dy, x, gamma = (args[name].double() for name in self.inputs)
        (rows, cols), dtype = x.shape, args["x"].dtype
        scale = 1 / (x.square().mean(1, keepdim=True) + self.eps).sqrt()
        x_hat, g = x * scale, dy * gamma
        a = over(cols)
        dx = (g - x_hat * (g * x_hat).mean(1, keepdim=True)) * scale
        within = 4 * a * scale * (g.abs() + x_hat.abs() * (g * x_hat).abs().mean(1, keepdim=True))
        dgamma, size = (dy * x_hat).sum(0), (dy * x_hat).abs().sum(0)
        return [rounded(dx, within, dtype), rounded(dgamma, (over(rows) + a) * size, dtype)]

    @staticmethod
    def compute(dy, x, gamma):
        wide_x, wide_dy = x.float(), dy.float()
        scale = torch.rsqrt(wide_x.square().mean(1, keepdim=True) + RmsNormBackward.eps)
        x_hat, g = wide_x * scale, wide_dy * gamma.float()
        dx = (g - x_hat * (g * x_hat).mean(1, keepdim=True)) * scale
        return dx.to(x.dtype), (wide_dy * x_hat).sum(0).to(x.dtype)

    def triton(self, args):
        triton_backward(args, 1, self.eps)


ENTRIES = [LayerNorm(), RmsNorm(), AddRmsNorm(), LayerNormGelu(), Center(), L2Norm(), GroupNorm(),
           LayerNormBackward(), RmsNormBackward()]


# ---- Triton peers

if triton is not None:
    import triton.language as tl

    from entry import for_rows, quick

    @for_rows(key=("cols", "GELU"))
    @triton.jit
    def triton_layer_norm(x_ptr, gamma_ptr, beta_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr, GELU: tl.constexpr = False):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, 0) / cols
        centered = tl.where(mask, x - mean, 0.0)
        variance = tl.sum(centered * centered, 0) / cols
        gamma = tl.load(gamma_ptr + column, mask).to(tl.float32)
        beta = tl.load(beta_ptr + column, mask).to(tl.float32)
        y = centered * tl.rsqrt(variance + eps) * gamma + beta
        if GELU:
            y = y * 0.5 * (1.0 + tl.math.erf(y * 0.7071067811865476))
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

    @for_rows(key=("cols", "ADD"), restore_value=["residual_ptr"])
    @triton.jit
    def triton_rms_norm(x_ptr, residual_ptr, gamma_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr, ADD: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask, other=0.0)
        if ADD:
            x += tl.load(residual_ptr + start + column, mask, other=0.0)
            tl.store(residual_ptr + start + column, x, mask)
        x = x.to(tl.float32)
        gamma = tl.load(gamma_ptr + column, mask).to(tl.float32)
        y = x * tl.rsqrt(tl.sum(x * x, 0) / cols + eps) * gamma
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

    @for_rows(key=("cols", "CENTER"))
    @triton.jit
    def triton_plain(x_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr, CENTER: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask, other=0.0).to(tl.float32)
        if CENTER:
            y = x - tl.sum(x, 0) / cols
        else:
            y = x / tl.maximum(tl.sqrt(tl.sum(x * x, 0)), eps)
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

    @for_rows(key=("size", "pixels"))
    @triton.jit
    def triton_group_norm(x_ptr, gamma_ptr, beta_ptr, out_ptr, groups, size, pixels, eps, BLOCK: tl.constexpr):
        group = tl.program_id(0)
        start = group.to(tl.int64) * size
        place = tl.arange(0, BLOCK)
        mask = place < size
        x = tl.load(x_ptr + start + place, mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, 0) / size
        centered = tl.where(mask, x - mean, 0.0)
        variance = tl.sum(centered * centered, 0) / size
        channel = group % groups * (size // pixels) + place // pixels
        gamma = tl.load(gamma_ptr + channel, mask).to(tl.float32)
        beta = tl.load(beta_ptr + channel, mask).to(tl.float32)
        y = centered * tl.rsqrt(variance + eps) * gamma + beta
        tl.store(out_ptr + start + place, y.to(out_ptr.dtype.element_ty), mask)

    @triton.autotune([triton.Config({"BLOCK": block}, num_warps=warps) for block in (4096, 8192)
                      for warps in (4, 8, 16)], key=["size", "pixels"], do_bench=quick)
    @triton.jit
    def triton_group_norm_large(x_ptr, gamma_ptr, beta_ptr, out_ptr, groups, size, pixels, eps, BLOCK: tl.constexpr):
        group = tl.program_id(0)
        start = group.to(tl.int64) * size
        sums = tl.zeros([BLOCK], dtype=tl.float32)
        squares = tl.zeros([BLOCK], dtype=tl.float32)
        for first in range(0, size, BLOCK):
            place = first + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + start + place, place < size, other=0.0).to(tl.float32)
            sums += x
            squares += x * x
        mean = tl.sum(sums, 0) / size
        scale = tl.rsqrt(tl.sum(squares, 0) / size - mean * mean + eps)
        for first in range(0, size, BLOCK):
            place = first + tl.arange(0, BLOCK)
            mask = place < size
            x = tl.load(x_ptr + start + place, mask).to(tl.float32)
            channel = group % groups * (size // pixels) + place // pixels
            gamma = tl.load(gamma_ptr + channel, mask).to(tl.float32)
            beta = tl.load(beta_ptr + channel, mask).to(tl.float32)
            tl.store(out_ptr + start + place, ((x - mean) * scale * gamma + beta).to(out_ptr.dtype.element_ty), mask)

    @for_rows(key=("cols", "KINDS"))
    @triton.jit
    def triton_norm_backward(dy_ptr, x_ptr, gamma_ptr, dx_ptr, partials_ptr, rows, cols, eps, BLOCK: tl.constexpr,
                             KINDS: tl.constexpr):
        program = tl.program_id(0)
        column = tl.arange(0, BLOCK)
        mask = column < cols
        gamma = tl.load(gamma_ptr + column, mask).to(tl.float32)
        dgamma = tl.zeros([BLOCK], dtype=tl.float32)
        dbeta = tl.zeros([BLOCK], dtype=tl.float32)
        for row in range(program, rows, tl.num_programs(0)):
            start = row.to(tl.int64) * cols
            x = tl.load(x_ptr + start + column, mask, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + start + column, mask, other=0.0).to(tl.float32)
            g = dy * gamma
            if KINDS == 2:
                x = tl.where(mask, x - tl.sum(x, 0) / cols, 0.0)
            scale = tl.rsqrt(tl.sum(x * x, 0) / cols + eps)
            x_hat = x * scale
            dx = g - x_hat * (tl.sum(g * x_hat, 0) / cols)
            if KINDS == 2:
                dx -= tl.sum(g, 0) / cols
                dbeta += dy
            tl.store(dx_ptr + start + column, (dx * scale).to(dx_ptr.dtype.element_ty), mask)
            dgamma += dy * x_hat
        tl.store(partials_ptr + KINDS * program * cols + column, dgamma, mask)
        if KINDS == 2:
            tl.store(partials_ptr + (KINDS * program + 1) * cols + column, dbeta, mask)

    @triton.jit
    def triton_sum_partials(partials_ptr, dgamma_ptr, dbeta_ptr, programs, cols, KINDS: tl.constexpr, COLS: tl.constexpr):
        kind = tl.program_id(1)
        column = tl.program_id(0) * COLS + tl.arange(0, COLS)
        mask = column < cols
        sums = tl.zeros([64, COLS], dtype=tl.float32)
        for first in range(0, programs, 64):
            part = first + tl.arange(0, 64)
            places = (part[:, None] * KINDS + kind) * cols + column[None, :]
            sums += tl.load(partials_ptr + places, (part < programs)[:, None] & mask[None, :], other=0.0)
        total = tl.sum(sums, 0).to(dgamma_ptr.dtype.element_ty)
        if kind == 0:
            tl.store(dgamma_ptr + column, total, mask)
        else:
            tl.store(dbeta_ptr + column, total, mask)

    def triton_backward(args, kinds, eps):
        rows, cols = args["n_rows"], args["n_cols"]
        programs = Backward.resident(rows, cols)
        triton_norm_backward[(programs,)](
            args["dy"], args["x"], args["gamma"], args["dx"], args["resident"], rows, cols, eps,
            BLOCK=triton.next_power_of_2(cols), KINDS=kinds)
        triton_sum_partials[(triton.cdiv(cols, 32), kinds)](
            args["resident"], args["dgamma"], args["dbeta"], programs, cols, KINDS=kinds, COLS=32)

"""Norms with what comes before or after them: a residual, an activation."""

import torch
import torch.nn.functional as F

from elementwise import ACTIVATIONS, RELU, SILU, activated
from entry import NAMES, SINGLE, Launch, normal, over, rounded, triton
from norms import AddRmsNorm, Norm, layer_norm


class AddLayerNorm(AddRmsNorm):
    name = "add_layer_norm"
    parameters = ("gamma", "beta")
    eps = 1e-5

    @property
    def inputs(self):
        return ("x", "original", "gamma", "beta")

    def exact(self, args):
        total = args["x"] + args["original"]
        value, inner = layer_norm({**args, "x": total}, self.eps)
        x = total.double()
        return [rounded(value, inner, args["x"].dtype), (x, torch.full_like(x, 2.0**-149))]

    @staticmethod
    def compute(x, residual, gamma, beta):
        total = x + residual
        return F.layer_norm(total, (x.shape[-1],), gamma, beta, AddLayerNorm.eps), total

    def triton(self, args):
        cols = args["n_cols"]
        triton_add_layer_norm[(args["x"].shape[0],)](
            args["x"], args["residual"], args["gamma"], args["beta"], args["out"], cols, self.eps,
            BLOCK=triton.next_power_of_2(cols))


class NormActivation(Norm):
    """act(norm(x)) and, where it adds, a residual."""

    kernel, long, short, cluster, tile = "norm_activation", "norm_activation_long", None, None, 32768
    elements = 1 << 26

    def __init__(self, norm, act, adds=False):
        self.norm, self.act, self.adds = norm, act, adds
        (self.word, self.function) = ACTIVATIONS[act]
        self.name = f"{norm}_{self.word}" + ("_add" if adds else "")
        self.parameters = ("gamma", "beta") if norm == "layer_norm" else ("gamma",)
        self.eps = 1e-5 if norm == "layer_norm" else 1e-6
        self.compute = self.in_pytorch

    @property
    def inputs(self):
        return ("x", *self.parameters, *(("residual",) if self.adds else ()))

    def make(self, case, shift=0):
        args = super().make(case, shift)
        rows, cols, dtype = case
        # What is not there is not read: a tensor as long stands for it.
        args["residual"] = normal(rows * cols, dtype, 5, shift).view(rows, cols) if self.adds else args["x"]
        return {**args, "beta": args.get("beta", args["gamma"]), "subtract_mean": int(self.norm == "layer_norm"),
                "add_residual": int(self.adds)}

    def launch(self, kernel, dtype, least, programs):
        return Launch(kernel, [NAMES[dtype]], lambda act, block: act == self.act and block >= least, lambda *_: (programs,))

    def exact(self, args):
        if self.norm == "layer_norm":
            value, inner = layer_norm(args, self.eps)
        else:
            x = args["x"].double()
            value = x / (x.square().mean(1, keepdim=True) + self.eps).sqrt() * args["gamma"].double()
            inner = over(x.shape[1]) * value.abs()
        value, within = activated(self.act, value, args["x"].dtype, inner)
        if self.adds:
            value = value + args["residual"].double()
            within = within + SINGLE * (value.abs() + within)
        return [rounded(value, within, args["x"].dtype)]

    def in_pytorch(self, x, *rest):
        shape, residual = (x.shape[-1],), rest[-1] if self.adds else 0
        if self.norm == "layer_norm":
            return self.function(F.layer_norm(x, shape, *rest[:2], self.eps)) + residual
        return self.function(F.rms_norm(x, shape, rest[0], self.eps)) + residual

    def traffic(self, args):
        return super().traffic(args) + self.adds * args["x"].numel() * args["x"].element_size()

    def triton(self, args):
        cols = args["n_cols"]
        triton_norm_activation[(args["x"].shape[0],)](
            args["x"], args["gamma"], args["beta"], args["residual"], args["out"], cols, self.eps,
            BLOCK=triton.next_power_of_2(cols), CENTERS=self.norm == "layer_norm", ACT=self.act, ADD=self.adds)


ENTRIES = [AddLayerNorm(), NormActivation("layer_norm", RELU, True), NormActivation("layer_norm", SILU),
           NormActivation("rms_norm", SILU)]


# ---- Triton peers

if triton is not None:
    import triton.language as tl

    from elementwise import act_of
    from entry import for_rows

    @for_rows(restore_value=["residual_ptr"])
    @triton.jit
    def triton_add_layer_norm(x_ptr, residual_ptr, gamma_ptr, beta_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask, other=0.0)
        x += tl.load(residual_ptr + start + column, mask, other=0.0)
        tl.store(residual_ptr + start + column, x, mask)
        x = x.to(tl.float32)
        centered = tl.where(mask, x - tl.sum(x, 0) / cols, 0.0)
        gamma = tl.load(gamma_ptr + column, mask).to(tl.float32)
        beta = tl.load(beta_ptr + column, mask).to(tl.float32)
        y = centered * tl.rsqrt(tl.sum(centered * centered, 0) / cols + eps) * gamma + beta
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

    @for_rows(key=("cols", "CENTERS", "ACT", "ADD"))
    @triton.jit
    def triton_norm_activation(x_ptr, gamma_ptr, beta_ptr, residual_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr,
                               CENTERS: tl.constexpr, ACT: tl.constexpr, ADD: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask, other=0.0).to(tl.float32)
        if CENTERS:
            x = tl.where(mask, x - tl.sum(x, 0) / cols, 0.0)
        y = x * tl.rsqrt(tl.sum(x * x, 0) / cols + eps) * tl.load(gamma_ptr + column, mask).to(tl.float32)
        if CENTERS:
            y += tl.load(beta_ptr + column, mask).to(tl.float32)
        y = act_of(y, ACT)
        if ADD:
            y += tl.load(residual_ptr + start + column, mask).to(tl.float32)
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

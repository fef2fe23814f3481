"""The table of what `compare.py` measures: one entry a kernel, with its peers.

To add a kernel, write a subclass of `Entry`, its Triton peer if it has one, and add it to `ENTRIES`. Nothing else
names a kernel.
"""

import math

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SUBNORMAL = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Entry:
    """A kernel, its inputs and its peers.

    A case is whatever `make` understands; `make` gives the arguments by the kernel's parameter names, where tensors are
    slices, and in them the tensor `out`, which the kernel writes.
    """

    kernel = None
    #: Cases that are timed, and small ones that are only checked.
    cases = ()
    small = ()

    def label(self, case):
        """The shape in words."""
        raise NotImplementedError

    def make(self, case, shift=0):
        """Arguments by name; tensors start `shift` elements after a boundary."""
        raise NotImplementedError

    def consts(self, case):
        """Which constants will do, as a predicate; the smallest are taken."""
        raise NotImplementedError

    def grid(self, args, consts):
        """The number of programs along each axis."""
        raise NotImplementedError

    def exact(self, args):
        """The result in float64, and by how much rounding may move an element of it."""
        raise NotImplementedError

    def traffic(self, args):
        """Bytes that must be moved."""
        raise NotImplementedError

    def eager(self, args):
        """The result as PyTorch computes it."""
        raise NotImplementedError

    def triton(self, args):
        """Computes into `out` with Triton."""
        raise NotImplementedError

    def copy(self, args):
        """Two tensors; copying one to the other moves as many bytes."""
        half = self.traffic(args) // 2
        return (torch.empty(half, dtype=torch.uint8, device="cuda"),
                torch.empty(half, dtype=torch.uint8, device="cuda"))


def normal(count, dtype, seed, shift=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    values = torch.empty(count + shift, dtype=dtype, device="cuda")
    values.normal_(generator=generator)
    return values[shift:]


def empty(count, dtype, shift=0):
    return torch.empty(count + shift, dtype=dtype, device="cuda")[shift:]


class AddMul(Entry):
    kernel = "add_mul"
    cases = [(100 << 20, torch.float32), (100 << 20, torch.bfloat16)]
    small = [(n, dtype) for n in (1, 7, 1000, 1024, 4097) for dtype in NAMES]

    def label(self, case):
        n, dtype = case
        return f"{n >> 20} Mi {NAMES[dtype]}" if n >> 20 else f"{n} {NAMES[dtype]}"

    def make(self, case, shift=0):
        n, dtype = case
        x, y, z = (normal(n, dtype, seed, shift) for seed in (1, 2, 3))
        return {"x": x, "y": y, "z": z, "out": empty(n, dtype, shift), "n": n}

    def consts(self, case):
        return lambda block: True

    def grid(self, args, consts):
        return (-(-args["n"] // consts[0]),)

    def exact(self, args):
        dtype = args["x"].dtype
        unit, z = UNIT[dtype], args["z"].double()
        value = (args["x"].double() + args["y"].double()) * z
        return value, (2 * unit + unit * unit) * value.abs() + SUBNORMAL[dtype] * (1 + z.abs())

    def traffic(self, args):
        return 4 * args["n"] * args["x"].element_size()

    def eager(self, args):
        return self.compute(args["x"], args["y"], args["z"])

    @staticmethod
    def compute(x, y, z):
        return (x + y) * z

    #: The tensors that `compute` takes.
    inputs = ("x", "y", "z")

    def triton(self, args):
        n = args["n"]
        triton_add_mul[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
            args["x"], args["y"], args["z"], args["out"], n)


class LayerNorm(Entry):
    kernel = "layer_norm"
    eps = 1e-5
    cases = [(131072, 1024), (32768, 4096), (16384, 8192), (8192, 16384)]
    cases = [(rows, cols, torch.bfloat16) for rows, cols in cases]
    small = [(3, cols, dtype) for cols in (1, 7, 1000, 1024, 4097, 16384) for dtype in NAMES]
    inputs = ("x", "gamma", "beta")

    def label(self, case):
        rows, cols, dtype = case
        return f"{rows} x {cols} {NAMES[dtype]}"

    def make(self, case, shift=0):
        rows, cols, dtype = case
        return {
            "x": normal(rows * cols, dtype, 1, shift).view(rows, cols),
            "gamma": normal(cols, dtype, 2, shift), "beta": normal(cols, dtype, 3, shift),
            "out": empty(rows * cols, dtype, shift).view(rows, cols), "n_cols": cols, "eps": self.eps,
        }

    def consts(self, case):
        return lambda block: block >= case[1]

    def grid(self, args, consts):
        return (args["x"].shape[0],)

    def exact(self, args):
        x, dtype = args["x"].double(), args["x"].dtype
        gamma, beta = args["gamma"].double(), args["beta"].double()
        mean, magnitude = x.mean(1, keepdim=True), x.abs().mean(1, keepdim=True)
        scale = 1 / (x.var(1, keepdim=True, correction=0) + self.eps).sqrt()
        normed = (x - mean) * scale
        value = normed * gamma + beta
        arithmetic = (8 + math.sqrt(args["n_cols"])) * UNIT[torch.float32]
        inner = arithmetic * ((normed.abs() + magnitude * scale) * gamma.abs() + beta.abs())
        return value, inner + UNIT[dtype] * (value.abs() + inner) + SUBNORMAL[dtype]

    def traffic(self, args):
        return 2 * (args["x"].numel() + args["n_cols"]) * args["x"].element_size()

    def eager(self, args):
        return self.compute(args["x"], args["gamma"], args["beta"])

    @staticmethod
    def compute(x, gamma, beta):
        return F.layer_norm(x, (x.shape[-1],), gamma, beta, LayerNorm.eps)

    def triton(self, args):
        cols = args["n_cols"]
        triton_layer_norm[(args["x"].shape[0],)](
            args["x"], args["gamma"], args["beta"], args["out"], cols, self.eps, BLOCK=triton.next_power_of_2(cols))


ENTRIES = [AddMul(), LayerNorm()]


# ---- Triton peers, autotuned

if triton is not None:

    @triton.autotune(
        [triton.Config({"BLOCK": block}, num_warps=warps) for block in (512, 1024, 2048, 4096, 8192)
         for warps in (4, 8, 16)],
        key=["n"])
    @triton.jit
    def triton_add_mul(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask)
        y = tl.load(y_ptr + offsets, mask)
        z = tl.load(z_ptr + offsets, mask)
        tl.store(out_ptr + offsets, (x + y) * z, mask)

    @triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2, 4, 8, 16, 32)], key=["cols"])
    @triton.jit
    def triton_layer_norm(x_ptr, gamma_ptr, beta_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
        start = tl.program_id(0).to(tl.int64) * cols
        column = tl.arange(0, BLOCK)
        mask = column < cols
        x = tl.load(x_ptr + start + column, mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, 0) / cols
        centred = tl.where(mask, x - mean, 0.0)
        variance = tl.sum(centred * centred, 0) / cols
        gamma = tl.load(gamma_ptr + column, mask).to(tl.float32)
        beta = tl.load(beta_ptr + column, mask).to(tl.float32)
        y = centred * tl.rsqrt(variance + eps) * gamma + beta
        tl.store(out_ptr + start + column, y.to(out_ptr.dtype.element_ty), mask)

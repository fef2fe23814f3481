"""What `compare.py` knows about an operation: how to make its inputs, launch it, check it, and what its peers are.

To add one, write a subclass of `Entry` in the file of its group and add it to that file's list. Nothing else names a kernel.
"""

import math

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SUBNORMAL = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool",
         torch.int8: "i8", torch.int32: "i32", torch.float8_e4m3fn: "f8e4m3"}
SINGLE = UNIT[torch.float32]
TINY = 2.0**-126
BF16, F16, F32, F8 = torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn


def sm_count():
    """Multiprocessors of the GPU."""
    return torch.cuda.get_device_properties(0).multi_processor_count


class Launch:
    """One launch of an exported kernel: its name and element types, which constants will do (the smallest are taken), the
    number of programs for those constants, and the arguments by name where they differ from the entry's."""

    def __init__(self, kernel, types, consts, grid, **args):
        self.kernel, self.types, self.consts, self.grid, self.args = kernel, types, consts, grid, args


class Entry:
    """An operation, its inputs and its peers.

    A case is whatever `make` understands; `make` gives the arguments by the kernels' parameter names, tensors for slices.
    """

    name = None
    group = None
    #: Cases that are timed, that are timed when sizes are swept and in graphs, and small ones that are only checked.
    cases = ()
    sweep = ()
    few = ()
    small = ()
    #: The arguments that `compute` takes, and those that hold results, in the order of what `compute` gives.
    inputs = ()
    outputs = ("out",)

    #: Whether peers draw random numbers of their own: what they compute is then not checked.
    random = False

    def label(self, case):
        """The shape in words."""
        raise NotImplementedError

    def size(self, case):
        """What a picture has along its axis, and the element type's name."""
        return None, None

    def make(self, case, shift=0):
        """Arguments by name; tensors start `shift` elements after a boundary."""
        raise NotImplementedError

    def launches(self, case, args):
        """Our launches, in order."""
        raise NotImplementedError

    def exact(self, args):
        """For each output the result in float64, and by how much rounding may move an element of it."""
        raise NotImplementedError

    def results(self, results):
        """What is compared with `exact`, from the outputs."""
        return results

    def traffic(self, args):
        """Bytes that must be moved."""
        raise NotImplementedError

    def flops(self, case):
        """Operations of its matmuls, where they bound it."""
        return None

    @staticmethod
    def compute(*inputs):
        """The results in PyTorch's operations: what torch.compile gets."""
        raise NotImplementedError

    def eager(self, args):
        """The results as PyTorch computes them, with its own fused operation where it has one."""
        return self.compute(*(args[name] for name in self.inputs))

    def triton(self, args):
        """Computes into the outputs with Triton; None where there is no such peer."""
        return None

    def others(self, args):
        """By name, what else computes it: another library's own fused operation."""
        return {}

    def prepare(self, args):
        """Before each checked run: what an operation changes in place is as it was. Not timed."""

    def floor(self, args):
        """What moves as many bytes and does nothing else: a copy of half of them."""
        half = self.traffic(args) // 2
        source = torch.empty(half, dtype=torch.uint8, device="cuda")
        target = torch.empty(half, dtype=torch.uint8, device="cuda")
        return lambda: target.copy_(source)


class RowEntry(Entry):
    """An operation on the rows of a matrix. A case is (rows, columns, element type)."""

    #: Elements of a timed matrix.
    elements = 1 << 27
    columns = (1024, 4096, 8192, 16384, 32768)
    small_columns = (1, 7, 1000, 1024, 4097, 16384)

    @property
    def cases(self):
        return [(self.elements // cols, cols, BF16) for cols in self.columns]

    @property
    def sweep(self):
        powers = [1 << i for i in range(10, 16) if 1 << i <= max(self.columns)]
        return [(2 * self.elements // dtype.itemsize // cols, cols, dtype) for dtype in (BF16, F32) for cols in powers]

    @property
    def few(self):
        return [(rows, 4096, BF16) for rows in (1, 4, 16, 64)]

    @property
    def small(self):
        return [(3, cols, dtype) for cols in self.small_columns for dtype in (F32, F16, BF16)]

    def label(self, case):
        rows, cols, dtype = case
        return f"{rows} x {cols} {NAMES[dtype]}"

    def size(self, case):
        return case[1], NAMES[case[2]]


def normal(count, dtype, seed, shift=0, scale=1.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    values = torch.empty(count + shift, dtype=dtype, device="cuda")
    values.normal_(std=scale, generator=generator)
    return values[shift:]


def empty(count, dtype, shift=0):
    return torch.empty(count + shift, dtype=dtype, device="cuda")[shift:]


def rounded(value, inner, dtype):
    """What is known within `inner`, once it is rounded to `dtype`."""
    return value, inner + UNIT[dtype] * (value.abs() + inner) + SUBNORMAL[dtype]


def over(n):
    """The error of a sum of `n` terms and the operations after it, relative to the mean of their sizes."""
    return (8 + math.sqrt(n)) * SINGLE


def cdiv(a, b):
    return -(-a // b)


#: The longest row of which a program of the library has several.
SHORT_ROW = 768


def short_programs(rows, cols):
    """How many programs normalize, or sum up, so many short rows."""
    return cdiv(rows, 8 if cols <= 512 else 4)


def along_rows(across, rows):
    """A grid whose first axis counts tiles of columns; rows are along the second and third."""
    layers = cdiv(rows, 65535)
    return across, cdiv(rows, layers), layers


def nothing():
    """A launch of a kernel that does nothing."""
    triton_nothing[(1,)]()


# ---- Triton

if triton is not None:

    def quick(call, quantiles=None):
        """Enough to choose among configurations."""
        return triton.testing.do_bench(call, warmup=3, rep=15, quantiles=quantiles)

    def sensible(configs, named, **kwargs):
        """Rows: configurations in which a thread holds 4 to 128 elements."""
        block = kwargs.get("BLOCK", named.get("BLOCK"))
        fits = [c for c in configs if 4 <= block // (32 * c.num_warps) <= 128]
        return fits or [c for c in configs if c.num_warps in (1, 32)]

    def for_rows(key=("cols",), **kwargs):
        """One program a row, of 1 to 32 warps."""
        return triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2, 4, 8, 16, 32)], key=list(key),
                               prune_configs_by={"early_config_prune": sensible}, do_bench=quick, **kwargs)

    def for_elements(key=("n",), blocks=(1024, 2048, 4096, 8192), **kwargs):
        return triton.autotune([triton.Config({"BLOCK": block}, num_warps=warps) for block in blocks
                                for warps in (4, 8)], key=list(key), do_bench=quick, **kwargs)

    @triton.jit
    def triton_nothing():
        pass

    @for_elements(blocks=(2048, 4096, 8192, 16384))
    @triton.jit
    def triton_read(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, offsets < n, 0)
        tl.store(out_ptr + tl.program_id(0), tl.sum(x, 0))

    def read_only(count):
        """A pass that reads `count` bytes and writes next to nothing."""
        source = torch.zeros(count // 4, dtype=torch.int32, device="cuda")
        target = torch.empty(cdiv(count // 4, 2048), dtype=torch.int32, device="cuda")
        n = source.numel()
        return lambda: triton_read[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](source, target, n)

"""Loads kernels that `examples/export.rs` wrote, and launches them with the CUDA driver.

A kernel is a JSON file. Each of its bodies is an entry point, with PTX and perhaps cubins beside the file, that states facts
about the arguments ("16 divides n"); the first body whose facts hold is the one to launch. This module needs nothing of
the project but those files: it is also an example of how any program can use them.
"""

import ctypes
import json
import math
import pathlib

CTYPES = {
    "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "f32": ctypes.c_float, "f64": ctypes.c_double, "bool": ctypes.c_bool,
}
FORMAT = 2
SHARED_WITHOUT_ASKING = 48 << 10


class Slice:
    """What a slice parameter takes: a device address, and a length in elements."""

    def __init__(self, address, length):
        self.address, self.length = address, length


class View(Slice):
    """What a view parameter takes: the address and length of its memory, its extents, and its strides in elements."""

    def __init__(self, address, length, shape, strides):
        super().__init__(address, length)
        self.shape, self.strides = shape, strides


def with_numbers(args):
    """Arguments by name, with the extents and strides of views beside them."""
    numbers = {}
    for name, view in args.items():
        if isinstance(view, View):
            numbers.update({f"{name}.shape({axis})": extent for axis, extent in enumerate(view.shape)})
            numbers.update({f"{name}.stride({axis})": stride for axis, stride in enumerate(view.strides)})
    return {**args, **numbers}


# ---- facts


def symbol(factor, args, grid):
    (kind, name), = factor.items()
    if kind == "grid":
        return grid[name]
    return args[name].length if kind == "length" else int(args[name])


def polynomial(terms, args, grid):
    return sum(
        term["coefficient"] * math.prod(symbol(factor, args, grid) for factor in term["factors"]) for term in terms
    )


def holds(fact, args, grid):
    """Whether a fact of the JSON holds for these arguments and this grid, in programs."""
    kind = fact["kind"]
    if kind == "aligned":
        return args[fact["param"]].address % fact["bytes"] == 0
    if kind == "divisible":
        return polynomial(fact["value"], args, grid) % fact["by"] == 0
    if kind == "equal":
        return int(args[fact["param"]]) == fact["value"]
    if kind == "at_most":
        return polynomial(fact["low"], args, grid) <= polynomial(fact["high"], args, grid)
    return False  # A fact of a later version: not known to hold.


# ---- files


class Record:
    """One variant of a kernel for one architecture."""

    def __init__(self, path):
        self.folder = path.parent
        self.json = json.loads(path.read_text())
        if self.json["format"] != FORMAT:
            raise SystemExit(f"{path}: format {self.json['format']}, this reads {FORMAT}")

    def runs_on(self, capability):
        arch = self.json["arch"]
        return capability == arch["capability"] if arch["exact"] else capability >= arch["capability"]

    @staticmethod
    def cubin(body, capability):
        """A body's cubin that was assembled for the nearest capability below, of the same major version."""
        fits = [c for c in body["cubins"]
                if c["capability"] // 10 == capability // 10 and c["capability"] <= capability]
        return max(fits, key=lambda c: c["capability"], default=None)

    def body(self, args, grid):
        """The first body whose facts hold."""
        for body in self.json["bodies"]:
            if all(holds(fact, args, grid) for fact in body["facts"]):
                return body
        raise SystemExit(f"{self.json['kernel']}: no body takes these arguments")

    def values(self, args, grid):
        """The arguments of an entry, as C values in order."""
        axes = {"grid.x": grid[0], "grid.y": grid[1], "grid.z": grid[2]}
        values = []
        for argument in self.json["arguments"]:
            name, kind, ctype = argument["name"], argument["kind"], argument["type"]
            if kind == "grid":
                value = axes[name]
            elif kind == "address":
                value = args[name].address
            elif kind == "length":
                value = args[name[len("len("):-1]].length
            else:
                value = args[name]
            values.append(CTYPES[ctype](value))
        return values


def find(folder, kernel, types, consts, capability, arch=None):
    """The record for the latest architecture that runs here, of the smallest variant with these types whose constants
    `consts` accepts."""
    records = [Record(path) for path in sorted(pathlib.Path(folder).glob(f"{kernel}.*json"))]
    fits = [r for r in records if r.json["kernel"] == kernel and r.json["types"] == list(types)
            and consts(*r.json["consts"]) and r.runs_on(capability)
            and (arch is None or r.json["arch"]["name"] == arch)]
    if not fits:
        raise SystemExit(f"{folder} has no {kernel} of {', '.join(types)} with such constants for this device")
    smallest = min(r.json["consts"] for r in fits)
    fits = [r for r in fits if r.json["consts"] == smallest]
    return max(fits, key=lambda r: (r.json["arch"]["capability"], r.json["arch"]["exact"]))


# ---- the driver


def checked(result):
    """The values of a driver call, or its error."""
    from cuda.bindings import driver

    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {error.name}")
    return values[0] if len(values) == 1 else values


class Loaded:
    """A record in the current CUDA context."""

    def __init__(self, record, capability, force_ptx=False):
        from cuda.bindings import driver

        self.record = record
        self.functions = {}
        self.modules = []
        for body in record.json["bodies"]:
            cubin = None if force_ptx else record.cubin(body, capability)
            image = (record.folder / (cubin["file"] if cubin else body["ptx"])).read_bytes()
            self.image = f"{'cubin' if cubin else 'PTX'} for {record.json['arch']['name']}"
            module = checked(driver.cuModuleLoadData(image if cubin else image + b"\0"))
            self.modules.append(module)
            function = checked(driver.cuModuleGetFunction(module, body["entry"].encode()))
            if body["shared_bytes"] > SHARED_WITHOUT_ASKING:
                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                checked(driver.cuFuncSetAttribute(function, attribute, body["shared_bytes"]))
            self.functions[body["entry"]] = function

    def prepare(self, args, grid, stream):
        """A function that launches with these arguments, and the name of the entry it launches."""
        from cuda.bindings import driver

        grid, args = tuple(grid) + (1,) * (3 - len(grid)), with_numbers(args)
        body = self.record.body(args, grid)
        values = self.record.values(args, grid)
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        address = ctypes.addressof(pointers)
        function = self.functions[body["entry"]]
        blocks = (-(-grid[0] // body["programs_per_block"]) * body["blocks_per_program"], grid[1], grid[2])
        queue = driver.CUstream(stream)

        def launch(keep=(values, pointers)):
            error, = driver.cuLaunchKernel(
                function, *blocks, body["threads"], 1, 1, body["shared_bytes"], queue, address, 0)
            if error != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"{body['entry']}: {error.name}")

        return launch, body["entry"]

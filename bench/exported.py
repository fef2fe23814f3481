"""Loads kernels that `examples/export.rs` wrote, and launches them with the CUDA driver.

A kernel is a JSON file. Each of its bodies is an entry point, with PTX and perhaps cubins beside the file, that states
facts about the arguments ("16 divides n"); the first body whose facts hold is the one to launch. Behind the arguments
some take the address of a counter, and some tensor maps of views, made of the arguments. This module needs nothing of
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
FORMAT = 7
SHARED_WITHOUT_ASKING = 48 << 10
#: Of a persistent entry.
MOST_PROGRAMS = (1 << 31) - 1


class Slice:
    """What a slice parameter takes: a device address, and a length in elements."""

    def __init__(self, address, length):
        self.address, self.length = address, length


class View(Slice):
    """What a view parameter takes: the address and length of its memory, its extents, and its strides in elements."""

    def __init__(self, address, length, shape, strides):
        super().__init__(address, length)
        self.shape, self.strides = shape, launched_strides(shape, strides)


def launched_strides(shape, strides):
    """The strides that a launch hands over, as the runtime does: any do for an axis along which nothing moves."""
    still = [0 in shape or extent == 1 for extent in shape]
    chosen = [16 if stays else stride for stays, stride in zip(still, strides)]
    if True in still and not any(stride == 1 and not stays for stays, stride in zip(still, strides)):
        chosen[len(still) - 1 - still[::-1].index(True)] = 1
    return tuple(chosen)


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
    if kind == "ceil_div":
        return -(-int(args[name["scalar"]]) // name["by"])
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
    if kind == "magnitude":
        return fact["least"] <= float(args[fact["param"]]) <= fact["most"]
    if kind == "at_most":
        return polynomial(fact["low"], args, grid) <= polynomial(fact["high"], args, grid)
    return False  # A fact of a later version: not known to hold.


# ---- tensor maps

#: The driver's `CUtensorMapDataType` and the bytes of an element. What it lacks goes as unsigned integers of the same
#: size.
DATA_TYPES = {
    "i8": (0, 1), "u8": (0, 1), "f8e4m3": (0, 1), "f8e5m2": (0, 1), "i16": (1, 2), "u16": (1, 2), "u32": (2, 4),
    "i32": (3, 4), "u64": (4, 8), "i64": (5, 8), "f16": (6, 2), "f32": (7, 4), "f64": (8, 8), "bf16": (9, 2),
}
#: `CU_TENSOR_MAP_DATA_TYPE_TFLOAT32`: of `f32` in memory.
TF32 = 11
#: `CUtensorMapSwizzle`, by bytes.
SWIZZLES = {32: 1, 64: 2, 128: 3}
L2_BY_128_BYTES, L2_BY_256_BYTES = 2, 3
#: Bytes that memory is read in; blocks of a cluster with multicast loads, where rows begin within these; bytes that all must load for that.
SECTOR, CLUSTER, MULTICAST_BYTES = 32, 2, 48 << 20
MAP_BYTES, MAP_ALIGNMENT = 128, 64


def memory_order(rank, transposed):
    """The axes of a view as they lie in memory; elements along the last are neighbours."""
    axes = list(range(rank))
    if transposed:
        axes[-2:] = axes[:-3:-1]
    return axes


def within_sectors(view, item, axes):
    """Whether lines of elements of `item` bytes along the last of these axes begin within 32-byte sectors of memory."""
    apart = [view.strides[axis] * item for axis in axes[:-1] if view.shape[axis] > 1]
    return any(distance % SECTOR for distance in (*apart, view.address))


class TensorMap:
    """How a GPU is told where a view lies and which blocks of it to copy: the driver's `CUtensorMap`, at `address`."""

    def __init__(self, view, dtype, block, swizzle, transposed=False, tf32=False, halves=False):
        self.memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        self.address = -(-ctypes.addressof(self.memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        data_type, item = DATA_TYPES[dtype]
        if tf32:
            data_type = TF32
        rank, axes = len(block), memory_order(len(block), transposed)
        extents = (ctypes.c_uint64 * rank)(*[view.shape[axis] for axis in reversed(axes)])
        strides = (ctypes.c_uint64 * rank)(*[view.strides[axis] * item for axis in reversed(axes[:-1])])
        box = (ctypes.c_uint32 * rank)(*reversed(block))
        if halves:
            box[1] //= CLUSTER
        promotion = L2_BY_128_BYTES if within_sectors(view, item, axes) else L2_BY_256_BYTES
        steps = (ctypes.c_uint32 * rank)(*[1] * rank)
        error = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
            ctypes.c_void_p(self.address), data_type, rank, ctypes.c_void_p(view.address), extents, strides, box, steps,
            0, SWIZZLES[swizzle], promotion, 0)
        if error:
            raise RuntimeError(f"CUDA driver: a tensor map was refused: {error}")


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
        """The first body whose facts hold, of those that run so many programs."""
        for body in self.json["bodies"]:
            if body["persistent"] and math.prod(grid) > MOST_PROGRAMS:
                continue
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

    def dtypes(self):
        return {param["name"]: param["dtype"] for param in self.json["params"]}

    def pays_multicast(self, body, args, grid, processors):
        """Whether to launch clusters with multicast loads, as dsl-runtime decides it."""
        dtypes, programs, copied, within = self.dtypes(), math.prod(grid), 0, False
        for one in body.get("maps", []):
            if shared := one.get("multicast"):
                view, axes = args[one["param"]], memory_order(len(one["block"]), one.get("transposed", False))
                copied += -(-view.shape[axes[shared["axis"]]] // shared["step"]) * shared["bytes"]
                within |= within_sectors(view, DATA_TYPES[dtypes[one["param"]]][1], axes)
        return within and programs > 1 and 2 * programs >= processors and copied * programs >= MULTICAST_BYTES

    def maps(self, body, args, multicast=False):
        """The tensor maps that a body takes behind the arguments."""
        dtypes = self.dtypes()
        return [TensorMap(args[one["param"]], dtypes[one["param"]], one["block"], one["swizzle"],
                          one.get("transposed", False), one.get("tf32", False), multicast and "multicast" in one)
                for one in body.get("maps", [])]


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


def launch_config(blocks, body, queue, multicast=False):
    """How the driver launches an entry. One that follows may start while the kernel in front of it still runs."""
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = blocks
    config.blockDimX, config.blockDimY, config.blockDimZ = body["threads"], 1, 1
    config.sharedMemBytes, config.hStream = body["shared_bytes"], queue
    attributes = []
    if body.get("follows"):
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if multicast:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = CLUSTER, 1, 1
        attributes.append(attribute)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


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

    @staticmethod
    def resident(function, body):
        """How many blocks of an entry a multiprocessor runs at once, and how many multiprocessors there are."""
        from cuda.bindings import driver

        each = checked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            function, body["threads"], body["shared_bytes"]))
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        return each, checked(driver.cuDeviceGetAttribute(attribute, checked(driver.cuCtxGetDevice())))

    @classmethod
    def persistent_blocks(cls, function, body, programs):
        """The blocks that run so many programs one after the other, as dsl-runtime chooses them."""
        each, multiprocessors = cls.resident(function, body)
        most = min(programs, each * multiprocessors)
        if body["counted"] or each > 1 or not most:
            return most
        return -(-programs // -(-programs // most))

    @staticmethod
    def counter(queue):
        """The address of a counter that is 0. It stays: a graph may launch the kernel again at any time."""
        from cuda.bindings import driver

        address = checked(driver.cuMemAlloc(ctypes.sizeof(ctypes.c_uint32)))
        checked(driver.cuMemsetD32Async(address, 0, 1, queue))
        checked(driver.cuStreamSynchronize(queue))
        return ctypes.c_uint64(int(address))

    def prepare(self, args, grid, stream):
        """A function that launches with these arguments, and the name of the entry it launches. The launches of a
        function must follow each other, as those on one stream do."""
        from cuda.bindings import driver

        grid, args = tuple(grid) + (1,) * (3 - len(grid)), with_numbers(args)
        body = self.record.body(args, grid)
        queue = driver.CUstream(stream)
        multicast = self.record.pays_multicast(body, args, grid, self.resident(self.functions[body["entry"]], body)[1])
        values, maps = self.record.values(args, grid), self.record.maps(body, args, multicast)
        if body["counted"]:
            values.append(self.counter(queue))
        places = [ctypes.addressof(value) for value in values] + [one.address for one in maps]
        pointers = (ctypes.c_void_p * len(places))(*places)
        address = ctypes.addressof(pointers)
        function = self.functions[body["entry"]]
        blocks = (-(-grid[0] // body["programs_per_block"]) * body["blocks_per_program"], grid[1], grid[2])
        if body["persistent"]:
            count = self.persistent_blocks(function, body, math.prod(grid))
            blocks = (-(-count // CLUSTER) * CLUSTER if multicast else count, 1, 1)

        config = launch_config(blocks, body, queue, multicast)

        def launch(keep=(values, maps, pointers)):
            error, = driver.cuLaunchKernelEx(config, function, address, 0)
            if error != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"{body['entry']}: {error.name}")

        return launch, body["entry"]

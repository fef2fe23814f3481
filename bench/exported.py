"""Loads kernels that `examples/export.rs` wrote, and launches them with the CUDA driver.

A kernel is a JSON file. Each of its specializations (`bodies`) is an entry point, with PTX and perhaps cubins beside the file, with
guards on the arguments (`facts`: "16 divides n"); the first whose guards hold is the one to launch. After the arguments
some take the address of a work counter, and some tensor maps of views, made of the arguments. This module needs nothing of
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
FORMAT = 9
DEFAULT_SHARED_BYTES = 48 << 10
#: Of a persistent entry.
MAX_PROGRAMS = (1 << 31) - 1


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
    """The strides that a launch passes, as the runtime does: any will do for an axis of one element."""
    still = [0 in shape or extent == 1 for extent in shape]
    chosen = [16 if stays else stride for stays, stride in zip(still, strides)]
    if True in still and not any(stride == 1 and not stays for stays, stride in zip(still, strides)):
        chosen[len(still) - 1 - still[::-1].index(True)] = 1
    return tuple(chosen)


def with_scalars(args):
    """Arguments by name, with the extents and strides of views beside them."""
    scalars = {}
    for name, view in args.items():
        if isinstance(view, View):
            scalars.update({f"{name}.shape({axis})": extent for axis, extent in enumerate(view.shape)})
            scalars.update({f"{name}.stride({axis})": stride for axis, stride in enumerate(view.strides)})
    return {**args, **scalars}


# ---- guards


def symbol(factor, args, grid):
    (kind, name), = factor.items()
    if kind == "grid":
        return grid[name]
    if kind in ("ceil_div", "div"):
        of, by = (polynomial([name[which]], args, grid) for which in ("of", "by"))
        # Where the quotient is not defined the guard fails.
        if kind == "div":
            return of // by if of >= 0 and by > 0 else math.nan
        return -(-of // by) if by > 0 else math.nan
    return args[name].length if kind == "length" else int(args[name])


def polynomial(terms, args, grid):
    return sum(
        term["coefficient"] * math.prod(symbol(factor, args, grid) for factor in term["factors"]) for term in terms
    )


def holds(guard, args, grid):
    """Whether a guard of the JSON (`facts`) holds for these arguments and this grid, in programs."""
    kind = guard["kind"]
    if kind == "aligned":
        return args[guard["param"]].address % guard["bytes"] == 0
    if kind == "divisible":
        return polynomial(guard["value"], args, grid) % guard["by"] == 0
    if kind == "equal":
        return int(args[guard["param"]]) == guard["value"]
    if kind == "magnitude":
        return guard["least"] <= float(args[guard["param"]]) <= guard["most"]
    if kind == "at_most":
        return polynomial(guard["low"], args, grid) <= polynomial(guard["high"], args, grid)
    return False  # A guard of a later version: not known to hold.


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


class Layout:
    """Where a tensor map finds the elements of a slice: its address, and the extents and strides along the axes of a block."""

    def __init__(self, map_, args, grid):
        self.address = args[map_["param"]].address
        self.extents = [polynomial(terms, args, grid) for terms in map_["extents"]]
        self.strides = [polynomial(terms, args, grid) for terms in map_["strides"]]

    def is_sector_misaligned(self, item):
        """Whether rows of elements of `item` bytes along the last axis begin within 32-byte sectors of memory."""
        rows = zip(self.extents[:-1], self.strides[:-1])
        return any(distance % SECTOR for distance in (*(stride * item for extent, stride in rows if extent > 1), self.address))


class TensorMap:
    """The TMA descriptor of a layout and its block: the driver's `CUtensorMap`, at `address`."""

    def __init__(self, layout, dtype, block, swizzle, tf32=False, halves=False):
        self.memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        self.address = -(-ctypes.addressof(self.memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        data_type, item = DATA_TYPES[dtype]
        if tf32:
            data_type = TF32
        rank = len(block)
        extents = (ctypes.c_uint64 * rank)(*reversed(layout.extents))
        strides = (ctypes.c_uint64 * rank)(*[stride * item for stride in reversed(layout.strides[:-1])])
        box = (ctypes.c_uint32 * rank)(*reversed(block))
        if halves:
            box[1] //= CLUSTER
        promotion = L2_BY_128_BYTES if layout.is_sector_misaligned(item) else L2_BY_256_BYTES
        steps = (ctypes.c_uint32 * rank)(*[1] * rank)
        error = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
            ctypes.c_void_p(self.address), data_type, rank, ctypes.c_void_p(layout.address), extents, strides, box, steps,
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
    def cubin(specialization, capability):
        """A specialization's cubin that was assembled for the nearest capability below, of the same major version."""
        fits = [c for c in specialization["cubins"]
                if c["capability"] // 10 == capability // 10 and c["capability"] <= capability]
        return max(fits, key=lambda c: c["capability"], default=None)

    def specialization(self, args, grid):
        """The first specialization whose guards hold, of those that run so many programs."""
        for specialization in self.json["bodies"]:
            if specialization["persistent"] and math.prod(grid) > MAX_PROGRAMS:
                continue
            if all(holds(guard, args, grid) for guard in specialization["facts"]):
                return specialization
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

    def pays_multicast(self, specialization, args, grid, sm_count):
        """Whether to launch clusters with multicast loads, as dsl-runtime decides it."""
        dtypes, programs, loaded_bytes, within = self.dtypes(), math.prod(grid), 0, False
        for one in specialization.get("maps", []):
            if shared := one.get("multicast"):
                layout = Layout(one, args, grid)
                loaded_bytes += -(-layout.extents[shared["axis"]] // shared["step"]) * shared["bytes"]
                within |= layout.is_sector_misaligned(DATA_TYPES[dtypes[one["param"]]][1])
        return within and programs > 1 and 2 * programs >= sm_count and loaded_bytes * programs >= MULTICAST_BYTES

    def maps(self, specialization, args, grid, multicast=False):
        """The tensor maps that a specialization takes after the arguments."""
        dtypes = self.dtypes()
        return [TensorMap(Layout(one, args, grid), dtypes[one["param"]], one["block"], one["swizzle"],
                          one.get("tf32", False), multicast and "multicast" in one)
                for one in specialization.get("maps", [])]


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


def launch_config(blocks, specialization, queue, multicast=False):
    """How the driver launches an entry. One with PDL (`follows`) may start while the kernel in front of it still runs."""
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = blocks
    config.blockDimX, config.blockDimY, config.blockDimZ = specialization["threads"], 1, 1
    config.sharedMemBytes, config.hStream = specialization["shared_bytes"], queue
    attributes = []
    if specialization.get("follows"):
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
        for specialization in record.json["bodies"]:
            cubin = None if force_ptx else record.cubin(specialization, capability)
            image = (record.folder / (cubin["file"] if cubin else specialization["ptx"])).read_bytes()
            self.image = f"{'cubin' if cubin else 'PTX'} for {record.json['arch']['name']}"
            module = checked(driver.cuModuleLoadData(image if cubin else image + b"\0"))
            self.modules.append(module)
            function = checked(driver.cuModuleGetFunction(module, specialization["entry"].encode()))
            if specialization["shared_bytes"] > DEFAULT_SHARED_BYTES:
                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                checked(driver.cuFuncSetAttribute(function, attribute, specialization["shared_bytes"]))
            self.functions[specialization["entry"]] = function

    @staticmethod
    def resident(function, specialization):
        """How many blocks of an entry a multiprocessor runs at once, and how many multiprocessors there are."""
        from cuda.bindings import driver

        each = checked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            function, specialization["threads"], specialization["shared_bytes"]))
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        return each, checked(driver.cuDeviceGetAttribute(attribute, checked(driver.cuCtxGetDevice())))

    @classmethod
    def persistent_blocks(cls, function, specialization, programs):
        """The blocks that run so many programs one after the other, as dsl-runtime chooses them."""
        each, multiprocessors = cls.resident(function, specialization)
        max_blocks = min(programs, each * multiprocessors)
        if specialization["counted"] or each > 1 or not max_blocks:
            return max_blocks
        return -(-programs // -(-programs // max_blocks))

    @staticmethod
    def counter(queue):
        """The address of a work counter that is 0. It stays: a graph may launch the kernel again at any time."""
        from cuda.bindings import driver

        address = checked(driver.cuMemAlloc(ctypes.sizeof(ctypes.c_uint32)))
        checked(driver.cuMemsetD32Async(address, 0, 1, queue))
        checked(driver.cuStreamSynchronize(queue))
        return ctypes.c_uint64(int(address))

    def prepare(self, args, grid, stream, specialization=None):
        """A function that launches with these arguments, and the name of the entry it launches: of the fastest
        specialization, without another one. The launches of a function must run one after another, as those on one stream do."""
        from cuda.bindings import driver

        grid, args = tuple(grid) + (1,) * (3 - len(grid)), with_scalars(args)
        specialization = specialization or self.record.specialization(args, grid)
        queue = driver.CUstream(stream)
        _, multiprocessors = self.resident(self.functions[specialization["entry"]], specialization)
        multicast = self.record.pays_multicast(specialization, args, grid, multiprocessors)
        values, maps = self.record.values(args, grid), self.record.maps(specialization, args, grid, multicast)
        if specialization["counted"]:
            values.append(self.counter(queue))
        addresses = [ctypes.addressof(value) for value in values] + [one.address for one in maps]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        address = ctypes.addressof(pointers)
        function = self.functions[specialization["entry"]]
        blocks = (-(-grid[0] // specialization["programs_per_block"]) * specialization["blocks_per_program"], grid[1], grid[2])
        if specialization["persistent"]:
            count = self.persistent_blocks(function, specialization, math.prod(grid))
            blocks = (-(-count // CLUSTER) * CLUSTER if multicast else count, 1, 1)

        config = launch_config(blocks, specialization, queue, multicast)

        def launch(keep=(values, maps, pointers)):
            error, = driver.cuLaunchKernelEx(config, function, address, 0)
            if error != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"{specialization['entry']}: {error.name}")

        return launch, specialization["entry"]

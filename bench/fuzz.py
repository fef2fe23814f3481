"""Runs random kernels that `scripts/fuzz --bundle` wrote on a GPU, each by every specialization whose guards hold, and compares
with what the reference computed.

    python bench/fuzz.py FOLDER [NUMBER ..]

Kernels run in a process of their own: one that hangs, or that touches memory that is not there, is a failure like any
other, and the process after it goes on with the next kernel. Needs numpy and cuda-python.
"""

import json
import math
import pathlib
import queue
import subprocess
import sys
import threading

import numpy as np

import exported

#: Seconds without a line after which a worker hangs.
SILENCE = 120
#: Bytes before and after a parameter's memory that no kernel may write, and what they are.
MARGIN, POISON = 1024, 0xA5
#: What is added to a tolerance of two to the power of it: anything at all, nothing.
ANYTHING, NOTHING = 127, -128

# ---- element types

#: Fraction bits, exponent bias and the largest number of 8-bit floats.
FLOAT8 = {"f8e4m3": (3, 7, 448.0), "f8e5m2": (2, 15, 57344.0)}
STORED = {
    "bool": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.uint16,
    "f8e4m3": np.uint8, "f8e5m2": np.uint8,
}


def is_float(dtype):
    return dtype.startswith(("f", "bf"))


def encoded(values, dtype):
    """Numbers as a type stores them: the nearest, ties to even."""
    if dtype in FLOAT8:
        fraction, bias, largest = FLOAT8[dtype]
        size = np.minimum(np.abs(values), largest)
        exponent = np.maximum(np.frexp(np.maximum(size, 1e-300))[1] - 1, 1 - bias)
        units = np.rint(np.ldexp(size, fraction - exponent)).astype(np.int64)
        bits = units + ((exponent + bias - 1).astype(np.int64) << fraction)
        return (bits | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
    if dtype == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    with np.errstate(over="ignore"):
        return values.astype(STORED[dtype])


def decoded(stored, dtype):
    """Numbers of what a type stores."""
    if dtype in FLOAT8:
        fraction, bias, largest = FLOAT8[dtype]
        exponent, digits = (stored & 0x7F).astype(np.int64) >> fraction, stored & ((1 << fraction) - 1)
        digits = digits + np.where(exponent == 0, 0, 1 << fraction)
        size = np.ldexp(digits.astype(np.float64), np.maximum(exponent, 1) - bias - fraction)
        infinite = (dtype == "f8e5m2") & (stored & 0x7F == 0x7C)
        size = np.where(size > largest, np.where(infinite, np.inf, np.nan), size)
        return np.where(stored & 0x80, -size, size)
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


# ---- data


def hashed(seed, index):
    """A random number of 64 bits for each index: a step of SplitMix64."""
    wrap = (1 << 64) - 1
    z = np.uint64(seed * 0xD1342543DE82EF95 & wrap) + index * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def generated(data, dtype, length):
    """What is in memory before a launch, as `lowering/tests/compiler/fuzz/data.rs` makes it."""
    kind, seed, *rest = data
    index = np.arange(length, dtype=np.uint64)
    bits = hashed(seed, index)
    fraction = (bits >> np.uint64(54)).astype(np.float64) / 256.0 - 2.0
    if kind == "whole":
        limit, = rest
        values = ((bits >> np.uint64(32)) % np.uint64(2 * limit + 1)).astype(np.int64) - limit
        if not is_float(dtype):
            return (values if dtype.startswith("i") else np.abs(values)).astype(STORED[dtype])
        values = values.astype(np.float64)
    elif kind == "fraction":
        values = fraction
    elif kind == "scaled":
        values = np.ldexp(fraction, (bits & np.uint64(31)).astype(np.int64) - 16)
    else:
        value, row = rest
        whole_row = hashed(seed ^ 1, index // np.uint64(max(row, 1))) % np.uint64(4) == 0
        values = np.where(whole_row | (bits % np.uint64(2) == 0), value, 0.0)
    return encoded(values, dtype)


# ---- comparison


def difference(found, wanted, powers, dtype):
    """What is wrong with memory after a launch, as one line, or nothing."""
    if not len(found):
        return None
    if not is_float(dtype) or powers is None:
        same = found == wanted
        if is_float(dtype):
            same = found.view(np.uint8).reshape(len(found), -1) == wanted.view(np.uint8).reshape(len(found), -1)
            same = same.all(axis=1) | (np.isnan(decoded(found, dtype)) & np.isnan(decoded(wanted, dtype)))
    else:
        got, want = decoded(found, dtype), decoded(wanted, dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(got - want) <= np.where(powers == NOTHING, 0.0, np.ldexp(1.0, powers.astype(np.int64)))
        same = (powers == ANYTHING) | (np.isnan(got) & np.isnan(want)) | (got == want) | near
    if same.all():
        return None
    at = int(np.argmin(same))
    number = (lambda one: decoded(one[at:at + 1], dtype)[0]) if is_float(dtype) else (lambda one: one[at])
    tolerance = "" if powers is None else f" within 2^{powers[at]}"
    return f"[{at}] is {number(found)}, should be {number(wanted)}{tolerance}; {int((~same).sum())} of {len(same)} differ"


# ---- launches


class Memory:
    """A parameter's memory on the device between margins, what it is before a launch, and what it should be after."""

    def __init__(self, name, dtype, record, blob):
        self.name, self.dtype, self.record = name, dtype, record
        length, stored = record["len"], np.dtype(STORED[dtype])
        if "bytes" in record:
            self.before = np.frombuffer(blob, stored, length, record["bytes"])
        else:
            self.before = generated(record["data"], dtype, length)
        if int(self.before.view(np.uint8).sum(dtype=np.uint64)) != record["checksum"]:
            raise SystemExit(f"{name}: the data generator differs from that of the bundle")
        self.size = self.before.nbytes
        self.image = np.full(self.size + 2 * MARGIN, POISON, np.uint8)
        self.image[MARGIN:MARGIN + self.size] = self.before.view(np.uint8)
        self.base = int(exported.checked(exported_driver().cuMemAlloc(len(self.image))))
        self.wanted, self.powers = self.before, None
        if "changed" in record:
            changed = np.frombuffer(blob, np.uint8, self.size, record["changed"])
            self.wanted = (self.before.view(np.uint8) ^ changed).view(stored)
        if "tolerance" in record:
            self.powers = np.frombuffer(blob, np.int8, length, record["tolerance"])

    def argument(self):
        address, length = self.base + MARGIN, self.record["len"]
        if self.record["shape"]:
            return exported.View(address, length, self.record["shape"], self.record["strides"])
        return exported.Slice(address, length)

    def reset(self):
        exported.checked(exported_driver().cuMemcpyHtoD(self.base, self.image.ctypes.data, len(self.image)))

    def problem(self):
        found = np.empty_like(self.image)
        exported.checked(exported_driver().cuMemcpyDtoH(found.ctypes.data, self.base, len(found)))
        inside = found[MARGIN:MARGIN + self.size].copy()
        outside = np.concatenate([found[:MARGIN], found[MARGIN + self.size:]])
        if (outside != POISON).any():
            return f"wrote outside of `{self.name}`"
        what = difference(inside.view(self.before.dtype), self.wanted, self.powers, self.dtype)
        return what and f"`{self.name}`{what}"

    def free(self):
        exported.checked(exported_driver().cuMemFree(self.base))


def exported_driver():
    from cuda.bindings import driver

    return driver


def run_kernel(path, tell):
    """Launches a kernel by every specialization whose guards hold, and tells of each."""
    driver = exported_driver()
    record = exported.Record(path)
    blob = path.with_suffix(".bin").read_bytes()
    loaded = exported.Loaded(record, record.json["arch"]["capability"], force_ptx=True)
    dtypes = record.dtypes()
    for number, launch in enumerate(record.json["launches"]):
        names = [param["name"] for param in record.json["params"]][:len(launch["memory"])]
        memory = [Memory(name, dtypes[name], one, blob) for name, one in zip(names, launch["memory"])]
        args = {**{one.name: one.argument() for one in memory}, **launch["scalars"]}
        grid, scalars = launch["grid"], exported.with_scalars(args)
        for specialization in record.json["bodies"]:
            holds = all(exported.holds(guard, scalars, grid) for guard in specialization["facts"])
            if not holds or math.prod(grid) == 0:
                continue
            tell("at", f"launch {number}, {specialization['entry']}")
            for one in memory:
                one.reset()
            start, _ = loaded.prepare(args, grid, 0, specialization)
            start()
            exported.checked(driver.cuCtxSynchronize())
            problems = [problem for one in memory if (problem := one.problem())]
            tell("problem" if problems else "ran", f"launch {number}, {specialization['entry']}: {'; '.join(problems)}")
        for one in memory:
            one.free()
    for module in loaded.modules:
        exported.checked(driver.cuModuleUnload(module))


def work(folder, names):
    """Runs kernels in this process; its lines say how far it is."""
    driver = exported_driver()
    exported.checked(driver.cuInit(0))
    device = exported.checked(driver.cuDeviceGet(0))
    exported.checked(driver.cuCtxSetCurrent(exported.checked(driver.cuDevicePrimaryCtxRetain(device))))

    def tell(what, text=""):
        print(f"{what}\t{text}", flush=True)

    for name in names:
        tell("begin", name)
        run_kernel(folder / f"{name}.json", tell)
        tell("end", name)


# ---- the process that watches


def lines_of(process):
    """Lines of a process until it ends; None where it prints nothing for too long."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=SILENCE)
        except queue.Empty:
            yield None
            return
        if not line:
            return
        yield line


def watch(folder, names):
    """Runs all kernels; gives how many ran, how many launches were compared, which specializations, and the failures."""
    left, failures, entries, launches, kernels = list(names), [], set(), 0, 0
    while left:
        command = [sys.executable, __file__, "--work", str(folder), *left]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        errors = []
        reader = threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True)
        reader.start()
        current, place, hung = None, "", False
        for line in lines_of(process):
            if line is None:
                hung = True
                process.kill()
                break
            what, _, text = line.partition("\t")
            if what == "begin":
                current, place = text, "loading"
            elif what == "at":
                place = text
            elif what in ("ran", "problem"):
                launches += 1
                entries.add(text.split(", ")[1].split(":")[0])
                if what == "problem":
                    failures.append((current, text))
                    print(f"{current}: {text}", flush=True)
            elif what == "end":
                kernels += 1
                left.remove(text)
                current = None
        process.wait()
        reader.join(timeout=5)
        if current is None:
            if left:
                raise SystemExit("".join(errors[-20:]))
            continue
        last = errors[-1].strip() if errors else f"exit status {process.returncode}"
        what = f"{place}: hangs" if hung else f"{place}: {last}"
        failures.append((current, what))
        print(f"{current}: {what}", flush=True)
        left.remove(current)
    return kernels, entries, launches, failures


def main():
    if sys.argv[1] == "--work":
        work(pathlib.Path(sys.argv[2]), sys.argv[3:])
        return
    folder = pathlib.Path(sys.argv[1])
    chosen = [f"k{number}" for number in sys.argv[2:]]
    names = chosen or sorted((path.stem for path in folder.glob("k*.json")), key=lambda name: int(name[1:]))
    kernels, entries, launches, failures = watch(folder, names)
    failed = sorted({name for name, _ in failures})
    for name in failed:
        print(f"\n{name}:\n{json.loads((folder / f'{name}.json').read_text())['source']}")
    print(f"{len(names)} kernels, {len(entries)} specializations, {launches} launches, {len(failed)} failures"
          + (f": {' '.join(name[1:] for name in failed)}" if failed else ""))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

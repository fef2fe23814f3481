"""What `bench/ports.py` knows about a port: an operation of `entry.py` with one launch of ours and a Triton version."""

import torch

from entry import NAMES, TINY, Entry, Launch


class Mismatch(Exception):
    """A result that rounding does not explain, where there is no single right one."""


class Port(Entry):
    """One kernel. A case is a tuple of extents; the arguments have the names of our kernel's parameters."""

    group = "ports"
    #: Whether results are functions of random numbers of a version's own; `check_random` then takes them.
    random = False

    def label(self, case):
        return " x ".join(str(extent) for extent in case)

    def consts(self, case):
        """Which variant of ours: what accepts its constants."""
        return lambda *consts: True

    def grid(self, case, args, *consts):
        """Programs, for ours with these constants."""
        raise NotImplementedError

    def launches(self, case, args):
        return [Launch(self.name, [], self.consts(case), lambda *consts: self.grid(case, args, *consts))]

    def check_random(self, args, results):
        """Raises Mismatch where results cannot be right for any random numbers."""
        raise NotImplementedError

    def library(self, case, args):
        """The library's operation of the same kind, if it has one: an entry of `compare.py`, its case and its arguments."""
        return None

    def run_triton(self, case, args):
        """Runs the Triton version into the outputs."""
        raise NotImplementedError

    def traffic(self, args):
        tensors = {arg.data_ptr(): arg.numel() * arg.element_size() for arg in args.values() if torch.is_tensor(arg)}
        return sum(tensors.values())


class Rows(Port):
    """On rows of a matrix of `bf16`: a case is (rows, columns)."""

    def label(self, case):
        return f"{case[0]} x {case[1]} {NAMES[torch.bfloat16]}"

    def grid(self, case, args, *consts):
        return (case[0],)


def integers(low, high, count, dtype, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randint(low, high, (count,), dtype=dtype, device="cuda", generator=generator)


def ragged_starts(fewest, most, count, seed):
    """Where each of `count` rows begins that have `fewest` to `most` elements, and the end of the last one."""
    lengths = integers(fewest, most + 1, count, torch.int32, seed)
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)


def exactly(value):
    """A result that nothing rounds."""
    value = value.double()
    return value, torch.full_like(value, TINY)


def inner_product(a, b):
    """A matmul in float64, and the error bound of one that accumulates in float32."""
    return a @ b, (a.shape[-1] + 2) * 2 * 2.0**-24 * (a.abs() @ b.abs())


def over_rows(call, matrix, rows=4096):
    """What `call` makes of a matrix, some rows at a time: in float64 all of it would be large."""
    parts = [call(part) for part in matrix.split(rows)]
    return tuple(torch.cat(of) for of in zip(*parts))

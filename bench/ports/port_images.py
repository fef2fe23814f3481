"""Ports of `images.rs`."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from entry import F32, SINGLE, cdiv, empty, normal
from port import Port, exactly


class DepthToSpace(Port):
    """A case is (images, channels, height, width, block)."""

    name = "depth_to_space"
    cases = [(16, 256, 96, 96, 2), (8, 90, 75, 101, 3)]

    def label(self, case):
        return f"{super().label(case[:4])} by {case[4]}"

    def make(self, case, shift=0):
        images, channels, height, width, block = case
        total = images * channels * height * width
        shape = images, channels // block**2, height * block, width * block
        return {"x": normal(total, F32, 1).view(case[:4]), "out": empty(total, F32).view(shape), "total": total,
                "height": height, "width": width, "block": block}

    def grid(self, case, args, *consts):
        return (cdiv(args["total"], 1024),)

    def exact(self, args):
        return [exactly(F.pixel_shuffle(args["x"], args["block"]))]

    def run_triton(self, case, args):
        depth_to_space[self.grid(case, args)](*(args[name] for name in ("x", "out", "total", "height", "width", "block")),
                                              BLOCK=1024, num_warps=4)


class UpsampleBilinear(Port):
    """A case is (images, channels, height, width, height and width of the result)."""

    name = "upsample_bilinear"
    cases = [(32, 64, 64, 64, 128, 128), (16, 64, 50, 75, 120, 101)]

    def label(self, case):
        return f"{super().label(case[:4])} to {case[4]} x {case[5]}"

    def make(self, case, shift=0):
        images, channels, height, width, out_height, out_width = case
        planes = images * channels
        total = planes * out_height * out_width
        return {"x": normal(planes * height * width, F32, 1).view(images, channels, height, width),
                "out": empty(total, F32).view(images, channels, out_height, out_width), "total": total, "height": height,
                "width": width, "out_height": out_height, "out_width": out_width, "scale_y": height / out_height,
                "scale_x": width / out_width}

    def grid(self, case, args, *consts):
        return (cdiv(args["total"], 1024),)

    def exact(self, args):
        x, out = args["x"].double(), args["out"]
        value = F.interpolate(x, out.shape[2:], mode="bilinear", align_corners=False)
        # A place is rounded three times, and an interpolation moves by no more than two peaks a pixel.
        moved = 6 * SINGLE * (args["height"] + args["width"] + 2) + 8 * SINGLE
        return [(value, torch.full_like(value, moved * float(x.abs().max())))]

    def run_triton(self, case, args):
        names = ("x", "out", "total", "height", "width", "out_height", "out_width", "scale_y", "scale_x")
        upsample_bilinear[self.grid(case, args)](*(args[name] for name in names), BLOCK=1024, num_warps=4)


class Im2col(Port):
    """A case is (images, channels, height, width, extent of a window, its step, padding)."""

    name = "im2col"
    cases = [(16, 64, 56, 56, 3, 1, 1), (16, 64, 57, 57, 5, 2, 2)]

    def label(self, case):
        _, _, _, _, size, stride, pad = case
        return f"{super().label(case[:4])}, {size} x {size} by {stride}, padding {pad}"

    def windows(self, case):
        """The places of a window, and its elements."""
        _, channels, height, width, size, stride, pad = case
        rows, cols = ((extent + 2 * pad - size) // stride + 1 for extent in (height, width))
        return rows * cols, channels * size**2

    def make(self, case, shift=0):
        images, channels, height, width, size, stride, pad = case
        places, elements = self.windows(case)
        return {"x": normal(images * channels * height * width, F32, 1).view(case[:4]),
                "out": empty(images * elements * places, F32).view(images, elements, places), "channels": channels,
                "height": height, "width": width, "size": size, "stride": stride, "pad": pad}

    def grid(self, case, args, *consts):
        places, elements = self.windows(case)
        return cdiv(places, 128), cdiv(elements, 16), case[0]

    def exact(self, args):
        return [exactly(F.unfold(args["x"], args["size"], padding=args["pad"], stride=args["stride"]))]

    def run_triton(self, case, args):
        names = ("x", "out", "channels", "height", "width", "size", "stride", "pad")
        im2col[self.grid(case, args)](*(args[name] for name in names), ROWS=16, COLS=128, num_warps=4)


class MaxPool(Port):
    """A case is (images, channels, height, width)."""

    name = "max_pool_2x2"
    cases = [(32, 64, 112, 112), (16, 64, 151, 201)]

    def make(self, case, shift=0):
        images, channels, height, width = case
        total = images * channels * (height // 2) * (width // 2)
        return {"x": normal(images * channels * height * width, F32, 1).view(case),
                "out": empty(total, F32).view(images, channels, height // 2, width // 2), "height": height, "width": width}

    def grid(self, case, args, *consts):
        images, channels, height, width = case
        return cdiv(width // 2, 64), cdiv(height // 2, 8), images * channels

    def exact(self, args):
        return [exactly(F.max_pool2d(args["x"], 2))]

    def run_triton(self, case, args):
        max_pool_2x2[self.grid(case, args)](*(args[name] for name in ("x", "out", "height", "width")), ROWS=8, COLS=64,
                                            num_warps=4)


PORTS = [DepthToSpace(), UpsampleBilinear(), Im2col(), MaxPool()]


@triton.jit
def depth_to_space(x_ptr, out_ptr, total, height, width, block, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    out_height = height * block
    out_width = width * block
    col = offsets % out_width
    row = offsets // out_width % out_height
    plane = offsets // (out_width * out_height)
    channel = (plane * block + row % block) * block + col % block
    at = (channel * height + row // block) * width + col // block
    tl.store(out_ptr + offsets, tl.load(x_ptr + at, mask), mask)


@triton.jit
def upsample_bilinear(x_ptr, out_ptr, total, height, width, out_height, out_width, scale_y, scale_x, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    col = offsets % out_width
    row = offsets // out_width % out_height
    plane = offsets // (out_width * out_height)
    y = tl.maximum((row.to(tl.float32) + 0.5) * scale_y - 0.5, 0.0)
    x = tl.maximum((col.to(tl.float32) + 0.5) * scale_x - 0.5, 0.0)
    top = tl.minimum(y.to(tl.int32), height - 1)
    left = tl.minimum(x.to(tl.int32), width - 1)
    bottom = tl.minimum(top + 1, height - 1)
    right = tl.minimum(left + 1, width - 1)
    of_y = y - top.to(tl.float32)
    of_x = x - left.to(tl.float32)
    above = x_ptr + (plane * height + top) * width
    below = x_ptr + (plane * height + bottom) * width
    upper = tl.load(above + left, mask) * (1.0 - of_x) + tl.load(above + right, mask) * of_x
    lower = tl.load(below + left, mask) * (1.0 - of_x) + tl.load(below + right, mask) * of_x
    tl.store(out_ptr + offsets, upper * (1.0 - of_y) + lower * of_y, mask)


@triton.jit
def im2col(x_ptr, out_ptr, channels, height, width, size, stride, pad, ROWS: tl.constexpr, COLS: tl.constexpr):
    out_height = (height + 2 * pad - size) // stride + 1
    out_width = (width + 2 * pad - size) // stride + 1
    places = out_height * out_width
    elements = channels * size * size
    image = tl.program_id(2)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    channel = (image * channels + rows // (size * size))[:, None]
    y = (cols // out_width * stride - pad)[None, :] + (rows // size % size)[:, None]
    x = (cols % out_width * stride - pad)[None, :] + (rows % size)[:, None]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    mask = (rows < elements)[:, None] & (cols < places)[None, :]
    value = tl.load(x_ptr + (channel * height + y) * width + x, mask & inside, 0.0)
    tl.store(out_ptr + (image * elements + rows)[:, None] * places + cols[None, :], value, mask)


@triton.jit
def max_pool_2x2(x_ptr, out_ptr, height, width, ROWS: tl.constexpr, COLS: tl.constexpr):
    out_height = height // 2
    out_width = width // 2
    plane = tl.program_id(2)
    rows = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = (tl.program_id(0) * COLS + tl.arange(0, COLS))[None, :]
    mask = (rows < out_height) & (cols < out_width)
    first = x_ptr + (plane * height + 2 * rows) * width + 2 * cols
    upper = tl.maximum(tl.load(first, mask), tl.load(first + 1, mask))
    lower = tl.maximum(tl.load(first + width, mask), tl.load(first + width + 1, mask))
    tl.store(out_ptr + (plane * out_height + rows) * out_width + cols, tl.maximum(upper, lower), mask)

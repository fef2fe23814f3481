"""Batch norm, in inference and in training."""

import torch
import torch.nn.functional as F

from entry import (BF16, F16, F32, NAMES, SINGLE, Entry, Launch, along_rows, cdiv, empty, normal, over, rounded,
                   triton)

TILE, LANES, COLUMNS, ROWS, PROGRAMS = 4096, 1024, 128, 16, (2 * 132, 8 * 132)


def width_of(widths, extent):
    """As the library chooses."""
    return next((width for width in widths if width >= extent), widths[-1])


class BatchNorm(Entry):
    """Inference and ReLU. A case is (images, channels, pixels, element type)."""

    name, group = "batch_norm_relu", "batch_norm"
    inputs = ("x", "gamma", "beta", "mean", "scale")
    relu, eps, momentum = True, 1e-5, 0.1
    cases = [(256, 64, 3136, BF16), (256, 256, 784, BF16), (256, 2048, 49, BF16), (65536, 1024, 1, BF16)]
    small = [(*shape, dtype) for shape in ((2, 3, 7), (70, 3, 49), (4, 20, 196), (2, 3, 4097), (1, 2, 40_000),
                                           (3, 5, 1), (2000, 3, 1), (5, 1030, 1))
             for dtype in (F32, F16, BF16)]

    def label(self, case):
        images, channels, pixels, dtype = case
        return f"{images} x {channels} x {pixels} {NAMES[dtype]}"

    def make(self, case, shift=0):
        images, channels, pixels, dtype = case
        count, shape = images * channels * pixels, (images, channels, pixels)
        x = normal(count, dtype, 1, shift).view(shape)
        return {"x": x, "gamma": normal(channels, dtype, 2, shift), "beta": normal(channels, dtype, 3, shift),
                "mean": normal(channels, F32, 4, shift), "scale": normal(channels, F32, 5, shift).square(),
                "residual": x, "add_residual": 0, "out": empty(count, dtype, shift).view(shape),
                "planes": images * channels, "n_rows": images, "images": images, "channels": channels,
                "pixels": pixels, "scale_is_variance": 1, "eps": self.eps, "lower_bound": 0.0 if self.relu else -torch.inf}

    def normalize(self, case, **args):
        images, channels, pixels, dtype = case
        if pixels == 1:
            width = width_of((128, 1024), channels)
            grid = along_rows(cdiv(channels, width), cdiv(images, TILE // width))
            return Launch("batch_norm_columns", [NAMES[dtype]], lambda cols: cols == width, lambda cols: grid, **args)
        width = width_of((64, 256, 1024, TILE), pixels)
        grid = along_rows(cdiv(pixels, width), cdiv(images * channels, TILE // width))
        return Launch("batch_norm", [NAMES[dtype]], lambda cols: cols == width, lambda cols: grid, **args)

    def launches(self, case, args):
        return [self.normalize(case)]

    def exact(self, args):
        x, gamma, beta, mean, var = (args[name].double() for name in self.inputs)
        scale = 1 / (var + self.eps).sqrt()
        x_hat = (x - mean[:, None]) * scale[:, None]
        scaled, shift = x_hat * gamma[:, None], beta[:, None]
        within = 8 * SINGLE * (scaled.abs() + shift.abs())
        return [rounded((scaled + shift).clamp(min=0), within, args["x"].dtype)]

    @staticmethod
    def compute(x, gamma, beta, mean, var):
        scale = torch.rsqrt(var + BatchNorm.eps) * gamma.float()
        y = (x.float() - mean[:, None]) * scale[:, None] + beta.float()[:, None]
        return F.relu(y).to(x.dtype)

    def eager(self, args):
        gamma, beta = args["gamma"].float(), args["beta"].float()
        return F.relu(F.batch_norm(args["x"], args["mean"], args["scale"], gamma, beta, False, 0.0, self.eps))

    def traffic(self, args):
        return 2 * args["x"].numel() * args["x"].element_size()

    def triton(self, args):
        triton_batch_norm[lambda meta: (args["planes"], triton.cdiv(args["pixels"], meta["BLOCK"]))](
            args["x"], args["gamma"], args["beta"], args["mean"], args["scale"], args["out"], args["channels"],
            args["pixels"], self.eps)


class BatchNormTraining(BatchNorm):
    """Statistics of each channel, running ones moved, and the norm."""

    name = "batch_norm_training"
    inputs = ("x", "gamma", "beta", "old_mean", "old_var")
    outputs = ("out", "mean", "rstd", "running_mean", "running_var")
    relu = False

    @staticmethod
    def shares(case):
        """How many programs share a channel's images, and its pixels."""
        images, channels, pixels, _ = case
        groups, width = (cdiv(channels, COLUMNS), 1) if pixels == 1 else (channels, width_of((64, 256, LANES), pixels))
        down, across = cdiv(images, ROWS if pixels == 1 else LANES // width), cdiv(pixels, width)
        least, most = (of_all // groups for of_all in PROGRAMS)
        wanted = max(min(max(down * across // 4, least), most), 1)
        down = min(down, wanted)
        return down, min(across, max(wanted // down, 1))

    def make(self, case, shift=0):
        args = super().make(case, shift)
        channels, (down, across) = case[1], self.shares(case)
        args["old_mean"], args["old_var"] = args["mean"], args.pop("scale")
        args |= {name: empty(channels, F32, shift) for name in self.outputs[1:]}
        # What PyTorch's own moves.
        args["moved"] = [args[name].clone() for name in ("old_mean", "old_var")]
        resident = triton.next_power_of_2(down * across) if triton is not None else 1
        return {**args, "partials": empty(3 * down * across * channels, F32), "n_partials": down * across, "pixel_splits": across,
                "sums": empty(2 * resident * channels, F32), "resident": resident, "scale_is_variance": 0,
                "size": case[0] * case[2], "momentum": self.momentum, "n_cols": channels}

    def prepare(self, args):
        args["running_mean"].copy_(args["old_mean"])
        args["running_var"].copy_(args["old_var"])

    def launches(self, case, args):
        images, channels, pixels, dtype = case
        parts = args["n_partials"]
        if pixels == 1:
            first = Launch("column_statistics", [NAMES[dtype]], lambda cols: True,
                           lambda cols: (cdiv(channels, cols), parts))
        else:
            width = width_of((64, 256, LANES), pixels)
            first = Launch("channel_statistics", [NAMES[dtype]], lambda cols: cols == width,
                           lambda cols: (channels, parts))
        joined = Launch("join_statistics", [], lambda cols: True, lambda cols: (cdiv(channels, cols),))
        return [first, joined, self.normalize(case, scale=args["rstd"])]

    def exact(self, args):
        x, gamma, beta, old_mean, old_var = (args[name].double() for name in self.inputs)
        size, m = args["size"], self.momentum
        a = over(size)
        mean, magnitude = x.mean((0, 2)), x.abs().mean((0, 2))
        var = x.var((0, 2), correction=0)
        of_var = 2 * a * (var + a * magnitude.square())
        rstd = 1 / (var + self.eps).sqrt()
        x_hat = (x - mean[:, None]) * rstd[:, None]
        off = (magnitude * rstd)[:, None]
        value = x_hat * gamma[:, None] + beta[:, None]
        within = a * ((x_hat.abs() + off) * gamma[:, None].abs() + beta[:, None].abs())
        unbiased = size / (size - 1)

        def moved(old, own, error):
            return (1 - m) * old + m * own, m * error + 4 * SINGLE * (old.abs() + own.abs())

        return [rounded(value, within, args["x"].dtype), (mean, a * magnitude + 2.0**-149),
                (rstd, rstd * (of_var / (var + self.eps) + 4 * SINGLE)),
                moved(old_mean, mean, a * magnitude), moved(old_var, var * unbiased, of_var * unbiased)]

    @staticmethod
    def compute(x, gamma, beta, old_mean, old_var):
        m, wide = BatchNorm.momentum, x.float()
        mean = wide.mean((0, 2))
        centered = wide - mean[:, None]
        var = centered.square().mean((0, 2))
        rstd = torch.rsqrt(var + BatchNorm.eps)
        y = centered * (rstd * gamma.float())[:, None] + beta.float()[:, None]
        size = x.shape[0] * x.shape[2]
        running = old_mean * (1 - m) + m * mean, old_var * (1 - m) + var * (m * size / (size - 1))
        return y.to(x.dtype), mean, rstd, *running

    def eager(self, args):
        gamma, beta = args["gamma"].float(), args["beta"].float()
        return torch.native_batch_norm(args["x"], gamma, beta, *args["moved"], True, self.momentum, self.eps)

    def traffic(self, args):
        return 3 * args["x"].numel() * args["x"].element_size()

    def triton(self, args):
        parts = args["resident"]
        triton_channel_sums[(args["channels"], parts)](
            args["x"], args["sums"], args["images"], args["channels"], args["pixels"])
        triton_batch_norm_training[lambda meta: (args["planes"], triton.cdiv(args["pixels"], meta["BLOCK"]))](
            args["x"], args["gamma"], args["beta"], args["sums"], args["old_mean"], args["old_var"], args["mean"],
            args["rstd"], args["running_mean"], args["running_var"], args["out"], args["channels"], args["pixels"],
            args["size"], self.momentum, self.eps, PARTS=parts)


ENTRIES = [BatchNorm(), BatchNormTraining()]


# ---- Triton peers

if triton is not None:
    import triton.language as tl

    from entry import for_elements

    @for_elements(key=("channels", "pixels"), blocks=(64, 256, 1024, 4096))
    @triton.jit
    def triton_batch_norm(x_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, channels, pixels, eps,
                          BLOCK: tl.constexpr):
        plane = tl.program_id(0)
        channel = plane % channels
        pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        places = plane.to(tl.int64) * pixels + pixel
        x = tl.load(x_ptr + places, pixel < pixels).to(tl.float32)
        scale = tl.rsqrt(tl.load(var_ptr + channel) + eps) * tl.load(gamma_ptr + channel).to(tl.float32)
        y = (x - tl.load(mean_ptr + channel)) * scale + tl.load(beta_ptr + channel).to(tl.float32)
        tl.store(out_ptr + places, tl.maximum(y, 0.0).to(out_ptr.dtype.element_ty), pixel < pixels)

    @for_elements(key=("channels", "pixels"), blocks=(64, 256, 1024, 4096))
    @triton.jit
    def triton_channel_sums(x_ptr, sums_ptr, images, channels, pixels, BLOCK: tl.constexpr):
        channel, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
        sums = tl.zeros([BLOCK], dtype=tl.float32)
        squares = tl.zeros([BLOCK], dtype=tl.float32)
        pieces = tl.cdiv(pixels, BLOCK)
        for i in range(part, images * pieces, parts):
            image, piece = i // pieces, i % pieces
            pixel = piece * BLOCK + tl.arange(0, BLOCK)
            place = (image * channels + channel).to(tl.int64) * pixels + pixel
            x = tl.load(x_ptr + place, pixel < pixels, other=0.0).to(tl.float32)
            sums += x
            squares += x * x
        tl.store(sums_ptr + (channel * parts + part) * 2, tl.sum(sums, 0))
        tl.store(sums_ptr + (channel * parts + part) * 2 + 1, tl.sum(squares, 0))

    @for_elements(key=("channels", "pixels", "PARTS"), blocks=(64, 256, 1024, 4096))
    @triton.jit
    def triton_batch_norm_training(x_ptr, gamma_ptr, beta_ptr, sums_ptr, old_mean_ptr, old_var_ptr, mean_ptr, rstd_ptr,
                                   running_mean_ptr, running_var_ptr, out_ptr, channels, pixels, size, momentum, eps,
                                   PARTS: tl.constexpr, BLOCK: tl.constexpr):
        plane = tl.program_id(0)
        channel = plane % channels
        part = (channel * PARTS + tl.arange(0, PARTS)) * 2
        mean = tl.sum(tl.load(sums_ptr + part), 0) / size
        var = tl.sum(tl.load(sums_ptr + part + 1), 0) / size - mean * mean
        rstd = tl.rsqrt(var + eps)
        pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        places = plane.to(tl.int64) * pixels + pixel
        x = tl.load(x_ptr + places, pixel < pixels).to(tl.float32)
        scale = rstd * tl.load(gamma_ptr + channel).to(tl.float32)
        y = (x - mean) * scale + tl.load(beta_ptr + channel).to(tl.float32)
        tl.store(out_ptr + places, y.to(out_ptr.dtype.element_ty), pixel < pixels)
        if (plane < channels) & (tl.program_id(1) == 0):
            tl.store(mean_ptr + channel, mean)
            tl.store(rstd_ptr + channel, rstd)
            old = tl.load(old_mean_ptr + channel)
            tl.store(running_mean_ptr + channel, old * (1 - momentum) + mean * momentum)
            unbiased = var * (size / (size - 1.0))
            old = tl.load(old_var_ptr + channel)
            tl.store(running_var_ptr + channel, old * (1 - momentum) + unbiased * momentum)

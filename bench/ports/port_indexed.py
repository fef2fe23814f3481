"""Ports of `indexed.rs` and `convolution.rs`."""

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port, inner_product, integers, ragged_starts
from port_products import sorted_by_expert


class BlockSparseMatmul(Port):
    """A case is (m, k, n, blocks of a row of blocks)."""

    name = "block_sparse_matmul"
    cases = [(4096, 4096, 4096, 32), (16384, 4096, 4096, 8)]
    block = 64

    def label(self, case):
        m, k, n, count = case
        return f"{m} x {k} x {n}, {count} of {k // self.block} blocks a row"

    def make(self, case, shift=0):
        m, k, n, count = case
        rows = m // self.block
        generator = torch.Generator("cuda").manual_seed(3)
        order = torch.rand(rows, k // self.block, device="cuda", generator=generator).argsort(1)
        columns = order[:, :count].sort(1)[0].to(torch.int32).flatten()
        blocks = rows * count
        return {"values": normal(blocks * self.block**2, BF16, 1).view(blocks, self.block, self.block), "columns": columns,
                "starts": torch.arange(rows + 1, dtype=torch.int32, device="cuda") * count,
                "b": normal(k * n, BF16, 2).view(k, n), "out": empty(m * n, BF16).view(m, n), "n": n}

    def grid(self, case, args, *consts):
        return case[0] // self.block, cdiv(case[2], 128)

    def exact(self, args):
        starts = args["starts"].long()
        rows = torch.repeat_interleave(torch.arange(starts.numel() - 1, device="cuda"), starts.diff())
        m, k = args["out"].shape[0] // self.block, args["b"].shape[0] // self.block
        a = torch.zeros(m, k, self.block, self.block, dtype=torch.float64, device="cuda")
        a[rows, args["columns"].long()] = args["values"].double()
        dense = a.transpose(1, 2).reshape(m * self.block, k * self.block)
        return [rounded(*inner_product(dense, args["b"].double()), BF16)]

    def run_triton(self, case, args):
        names = ("values", "columns", "starts", "b", "out", "n")
        block_sparse_matmul[self.grid(case, args)](*(args[name] for name in names), BLOCK=64, N=128, num_warps=4,
                                                   num_stages=3)


class ExpertGateUp(Port):
    """A case is (tokens, experts of a token, experts, k, n)."""

    name = "expert_gate_up"
    cases = [(2048, 2, 8, 4096, 3584), (64, 2, 8, 4096, 3584)]
    tile = 64

    def make(self, case, shift=0):
        tokens, top_k, count, k, n = case
        chosen = integers(0, count, tokens * top_k, torch.int64, 3).tolist()
        sorted_entries, experts = sorted_by_expert(chosen, count, self.tile)
        return {"a": normal(tokens * k, BF16, 1).view(tokens, k),
                "b": normal(count * 2 * n * k, BF16, 2, scale=k**-0.5).view(count, 2 * n, k),
                "out": empty(len(chosen) * n, BF16).view(-1, n), "sorted": sorted_entries, "experts": experts, "chosen": chosen,
                "n": n, "k": k, "valid": len(chosen), "top_k": top_k}

    def grid(self, case, args, *consts):
        return args["experts"].numel(), cdiv(case[4], 64)

    def exact(self, args):
        chosen = torch.tensor(args["chosen"], device="cuda")
        value, within = (torch.empty_like(args["out"], dtype=torch.float64) for _ in range(2))
        for expert, matrix in enumerate(args["b"]):
            entries = (chosen == expert).nonzero()[:, 0]
            both = inner_product(args["a"][entries // args["top_k"]].double(), matrix.double().T)
            (gate, up), (gate_moved, up_moved) = (of.chunk(2, 1) for of in both)
            silu = gate * torch.sigmoid(gate)
            value[entries] = silu * up
            # No slope of the gate is above 1.1.
            moved = silu.abs() * up_moved + 1.1 * gate_moved * (up.abs() + up_moved)
            within[entries] = moved + 16 * SINGLE * (silu * up).abs()
        return [rounded(value, within, BF16)]

    def run_triton(self, case, args):
        names = ("a", "b", "out", "sorted", "experts", "n", "k", "valid", "top_k")
        expert_gate_up[self.grid(case, args)](*(args[name] for name in names), M=64, N=64, K=64, num_warps=4, num_stages=3)


class ExpertDown(Port):
    """A case is (tokens, experts of a token, experts, k, n)."""

    name = "expert_down"
    cases = [(2048, 2, 8, 3584, 4096), (512, 4, 64, 1408, 2048)]
    tile = 64

    def make(self, case, shift=0):
        tokens, top_k, count, k, n = case
        entries = tokens * top_k
        chosen = integers(0, count, entries, torch.int64, 3).tolist()
        sorted_entries, experts = sorted_by_expert(chosen, count, self.tile)
        return {"a": normal(entries * k, BF16, 1).view(entries, k), "b": normal(count * n * k, BF16, 2).view(count, n, k),
                "out": empty(tokens * n, F32).view(tokens, n), "sorted": sorted_entries, "experts": experts,
                "weights": normal(entries, F32, 4).abs(), "chosen": chosen, "n": n, "k": k, "valid": entries, "top_k": top_k}

    def prepare(self, args):
        args["out"].zero_()

    def grid(self, case, args, *consts):
        return args["experts"].numel(), cdiv(case[4], 128)

    def exact(self, args):
        chosen = torch.tensor(args["chosen"], device="cuda")
        total, moved = (torch.zeros_like(args["out"], dtype=torch.float64) for _ in range(2))
        for expert in range(args["b"].shape[0]):
            entries = (chosen == expert).nonzero()[:, 0]
            value, within = inner_product(args["a"][entries].double(), args["b"][expert].double().T)
            weight = args["weights"][entries].double()[:, None]
            total.index_add_(0, entries // args["top_k"], value * weight)
            moved.index_add_(0, entries // args["top_k"], (within + 2 * args["top_k"] * SINGLE * value.abs()) * weight)
        return [(total, moved + TINY)]

    def run_triton(self, case, args):
        names = ("a", "b", "out", "sorted", "experts", "weights", "n", "k", "valid", "top_k")
        expert_down[self.grid(case, args)](*(args[name] for name in names), M=64, N=128, K=64, num_warps=4, num_stages=3)


class Conv3x3(Port):
    """A case is (images, height, width, channels of the input, channels of the result)."""

    name = "conv3x3"
    cases = [(128, 56, 56, 64, 64), (128, 28, 28, 128, 128)]

    def make(self, case, shift=0):
        images, height, width, c_in, c_out = case
        x = normal(images * height * width * c_in, BF16, 1).view(images, height, width, c_in)
        out = empty(images * height * width * c_out, BF16).view(images, height, width, c_out)
        return {"x": x, "w": normal(9 * c_in * c_out, BF16, 2).view(3, 3, c_in, c_out), "out": out, "images": images,
                "height": height, "width": width, "c_in": c_in, "c_out": c_out}

    def grid(self, case, args, *consts):
        images, height, width, _, c_out = case
        return cdiv(images * height * width, 128), cdiv(c_out, 64)

    def exact(self, args):
        height, width = args["height"], args["width"]
        x, w = torch.nn.functional.pad(args["x"].double(), (0, 0, 1, 1, 1, 1)), args["w"].double()
        value, size = 0, 0
        for row, col in ((row, col) for row in range(3) for col in range(3)):
            part = x[:, row:row + height, col:col + width]
            value = value + part @ w[row, col]
            size = size + part.abs() @ w[row, col].abs()
        return [rounded(value, (9 * args["c_in"] + 2) * 2 * SINGLE * size, BF16)]

    def run_triton(self, case, args):
        names = ("x", "w", "out", "images", "height", "width", "c_in", "c_out")
        conv3x3[self.grid(case, args)](*(args[name] for name in names), M=128, N=64, K=64, num_warps=4, num_stages=3)


class CsrMatmul(Port):
    """A case is (rows, k, n, fewest and most elements of a row)."""

    name = "csr_matmul"
    cases = [(131072, 131072, 64, 16, 16), (65536, 32768, 100, 0, 64)]

    def label(self, case):
        rows, k, n, fewest, most = case
        return f"{rows} x {k} x {n}, {fewest} to {most} elements a row"

    def make(self, case, shift=0):
        rows, k, n, fewest, most = case
        starts = ragged_starts(fewest, most, rows, 3)
        count = int(starts[-1])
        return {"values": normal(count, F32, 1), "columns": integers(0, k, count, torch.int32, 4), "starts": starts,
                "b": normal(k * n, F32, 2).view(k, n), "out": empty(rows * n, F32).view(rows, n), "n": n}

    def grid(self, case, args, *consts):
        return case[0], cdiv(case[2], 64)

    def exact(self, args):
        lengths = args["starts"].diff().long()
        row = torch.repeat_interleave(torch.arange(lengths.numel(), device="cuda"), lengths)
        terms = args["values"].double()[:, None] * args["b"].double()[args["columns"].long()]
        nothing = torch.zeros_like(args["out"], dtype=torch.float64)
        size = nothing.index_add(0, row, terms.abs())
        return [(nothing.index_add(0, row, terms), (lengths[:, None] + 2) * 2 * SINGLE * size + TINY)]

    def run_triton(self, case, args):
        names = ("values", "columns", "starts", "b", "out", "n")
        csr_matmul[self.grid(case, args)](*(args[name] for name in names), K=16, N=64, num_warps=4)


PORTS = [BlockSparseMatmul(), ExpertGateUp(), ExpertDown(), CsrMatmul(), Conv3x3()]


@triton.jit
def block_sparse_matmul(values_ptr, columns_ptr, starts_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, BLOCK)
    first = tl.load(starts_ptr + row)
    end = tl.load(starts_ptr + row + 1)
    acc = tl.zeros((BLOCK, N), dtype=tl.float32)
    for block in range(first, end):
        column = tl.load(columns_ptr + block)
        a = tl.load(values_ptr + block * BLOCK * BLOCK + (inner[:, None] * BLOCK + inner[None, :]))
        rows = column * BLOCK + inner
        b = tl.load(b_ptr + rows[:, None] * n + offs_n[None, :], offs_n[None, :] < n, 0.0)
        acc = tl.dot(a, b, acc)
    offs_m = row * BLOCK + inner
    tl.store(out_ptr + offs_m[:, None] * n + offs_n[None, :], acc.to(tl.bfloat16), offs_n[None, :] < n)


@triton.jit
def expert_gate_up(a_ptr, b_ptr, out_ptr, sorted_ptr, experts_ptr, n, k, valid, top_k, M: tl.constexpr, N: tl.constexpr,
                   K: tl.constexpr):
    pid_m = tl.program_id(0)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    rows = tl.load(sorted_ptr + pid_m * M + tl.arange(0, M))
    expert = tl.load(experts_ptr + pid_m)
    of_gate = expert * 2 * n * k
    gate = tl.zeros((M, N), dtype=tl.float32)
    up = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        mask_a = (rows[:, None] < valid) & (inner[None, :] < k)
        mask_b = (inner[:, None] < k) & (offs_n[None, :] < n)
        offsets = offs_n[None, :] * k + inner[:, None]
        a = tl.load(a_ptr + (rows // top_k)[:, None] * k + inner[None, :], mask_a, 0.0)
        gate = tl.dot(a, tl.load(b_ptr + of_gate + offsets, mask_b, 0.0), gate)
        up = tl.dot(a, tl.load(b_ptr + of_gate + n * k + offsets, mask_b, 0.0), up)
    y = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + rows[:, None] * n + offs_n[None, :], y.to(tl.bfloat16), (rows[:, None] < valid) & (offs_n[None, :] < n))


@triton.jit
def expert_down(a_ptr, b_ptr, out_ptr, sorted_ptr, experts_ptr, weights_ptr, n, k, valid, top_k, M: tl.constexpr,
                N: tl.constexpr, K: tl.constexpr):
    pid_m = tl.program_id(0)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    rows = tl.load(sorted_ptr + pid_m * M + tl.arange(0, M))
    expert = tl.load(experts_ptr + pid_m)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], (rows[:, None] < valid) & (inner[None, :] < k), 0.0)
        b = tl.load(b_ptr + expert * n * k + (offs_n[None, :] * k + inner[:, None]),
                    (inner[:, None] < k) & (offs_n[None, :] < n), 0.0)
        acc = tl.dot(a, b, acc)
    weight = tl.load(weights_ptr + rows, rows < valid, 0.0)
    tl.atomic_add(out_ptr + (rows // top_k)[:, None] * n + offs_n[None, :], acc * weight[:, None],
                  (rows[:, None] < valid) & (offs_n[None, :] < n), sem="relaxed")


@triton.jit
def conv3x3(x_ptr, w_ptr, out_ptr, images, height, width, c_in, c_out, M: tl.constexpr, N: tl.constexpr,
            K: tl.constexpr):
    pixels = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    count = images * height * width
    image = pixels // (height * width)
    row = pixels // width % height
    col = pixels % width
    blocks = tl.cdiv(c_in, K)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, 9 * blocks):
        tap = step // blocks
        channels = step % blocks * K + tl.arange(0, K)
        from_row = row + tap // 3 - 1
        from_col = col + tap % 3 - 1
        inside = (from_row >= 0) & (from_row < height) & (from_col >= 0) & (from_col < width) & (pixels < count)
        source = (image * height + from_row) * width + from_col
        x = tl.load(x_ptr + source[:, None] * c_in + channels[None, :], inside[:, None] & (channels[None, :] < c_in), 0.0)
        w = tl.load(w_ptr + (tap * c_in + channels)[:, None] * c_out + offs_n[None, :],
                    (channels[:, None] < c_in) & (offs_n[None, :] < c_out), 0.0)
        acc = tl.dot(x, w, acc)
    tl.store(out_ptr + pixels[:, None] * c_out + offs_n[None, :], acc.to(tl.bfloat16),
             (pixels[:, None] < count) & (offs_n[None, :] < c_out))


@triton.jit
def csr_matmul(values_ptr, columns_ptr, starts_ptr, b_ptr, out_ptr, n, K: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    first = tl.load(starts_ptr + row)
    end = tl.load(starts_ptr + row + 1)
    acc = tl.zeros([N], dtype=tl.float32)
    for start in range(first, end, K):
        at = start + tl.arange(0, K)
        value = tl.load(values_ptr + at, at < end, 0.0)
        column = tl.load(columns_ptr + at, at < end, 0)
        mask = (at < end)[:, None] & (offs_n < n)[None, :]
        rows = tl.load(b_ptr + column[:, None] * n + offs_n[None, :], mask, 0.0)
        acc += tl.sum(value[:, None] * rows, 0)
    tl.store(out_ptr + row * n + offs_n, acc, offs_n < n)

"""Ports of `recurrent.rs`, and the gated delta rule of `scan.rs`."""

import torch
import triton
import triton.language as tl

from entry import BF16, F32, SINGLE, TINY, cdiv, empty, normal, rounded
from port import Port


class ChunkState(Port):
    """A case is (sequences, length, heads, steps of a chunk)."""

    name = "chunk_state"
    cases = [(4, 8192, 64, 256), (8, 4000, 32, 128)]
    dim, state = 64, 128

    def label(self, case):
        sequences, n, heads, chunk = case
        return f"{sequences} x {n}, {heads} heads of {self.dim} x {self.state}, chunks of {chunk}"

    def make(self, case, shift=0):
        sequences, n, heads, chunk = case
        chunks = cdiv(n, chunk)
        dt, steps = (normal(sequences * heads * n, F32, seed).abs().view(sequences, heads, n) for seed in (3, 4))
        decay = torch.cat([part.cumsum(2) for part in (-0.02 * steps).split(chunk, 2)], 2)
        return {"x": normal(sequences * n * heads * self.dim, BF16, 1).view(sequences, n, heads, self.dim),
                "b": normal(sequences * n * self.state, BF16, 2).view(sequences, n, self.state), "dt": dt, "decay": decay,
                "out": empty(sequences * chunks * heads * self.dim * self.state, F32).view(
                    sequences, chunks, heads, self.dim, self.state),
                "n": n, "heads": heads, "chunk": chunk}

    def grid(self, case, args, *consts):
        sequences, n, heads, chunk = case
        return cdiv(n, chunk), heads, sequences

    def exact(self, args):
        value, bound = (torch.empty_like(args["out"], dtype=torch.float64) for _ in range(2))
        chunk = args["chunk"]
        for sequence in range(value.shape[0]):
            for index, first in enumerate(range(0, args["n"], chunk)):
                steps = slice(first, min(first + chunk, args["n"]))
                decay, dt = (args[name][sequence, :, steps].double() for name in ("decay", "dt"))
                factor = torch.exp(decay[:, -1:] - decay) * dt
                x = args["x"][sequence, steps].double().permute(1, 2, 0) * factor[:, None]
                b = args["b"][sequence, steps].double()
                value[sequence, index] = x @ b
                size = x.abs() @ b.abs()
                bound[sequence, index] = (2.0**-8 + (chunk + 64) * 2 * SINGLE) * size + TINY
        return [(value, bound)]

    def run_triton(self, case, args):
        names = ("x", "b", "dt", "decay", "out", "n", "heads", "chunk")
        chunk_state[self.grid(case, args)](*(args[name] for name in names), DIM=64, STATE=128, K=64, num_warps=4,
                                           num_stages=3)


class ChunkScan(ChunkState):
    """A case is (sequences, length, heads, steps of a chunk)."""

    name = "chunk_scan"

    def make(self, case, shift=0):
        sequences, n, heads, chunk = case
        args = super().make(case)
        states = args["out"]
        states.normal_(generator=torch.Generator("cuda").manual_seed(6))
        return {**args, "c": normal(sequences * n * self.state, BF16, 5).view(sequences, n, self.state), "states": states,
                "out": torch.empty_like(args["x"])}

    def grid(self, case, args, *consts):
        sequences, n, heads, chunk = case
        return cdiv(chunk, 64), heads, sequences * cdiv(n, chunk)

    def exact(self, args):
        value, bound = (torch.empty_like(args["out"], dtype=torch.float64) for _ in range(2))
        chunk = args["chunk"]
        for sequence in range(value.shape[0]):
            for index, first in enumerate(range(0, args["n"], chunk)):
                steps = slice(first, min(first + chunk, args["n"]))
                decay, dt = (args[name][sequence, :, steps].double() for name in ("decay", "dt"))
                x = args["x"][sequence, steps].double().transpose(0, 1)
                b, c = (args[name][sequence, steps].double() for name in ("b", "c"))
                state = args["states"][sequence, index].double().transpose(1, 2)
                # Above the diagonal, differences are not decays.
                factor = torch.exp((decay[:, :, None] - decay[:, None]).clamp(max=0)).tril() * dt[:, None]
                faded = torch.exp(decay)[:, :, None]
                found = (c @ b.T * factor) @ x + faded * (c @ state)
                size = (c.abs() @ b.T.abs() * factor) @ x.abs() + faded * (c.abs() @ state.abs())
                value[sequence, steps] = found.transpose(0, 1)
                # The state and the weights of steps are rounded.
                bound[sequence, steps] = ((2.0**-8 + (chunk + 256) * 2 * SINGLE) * size).transpose(0, 1)
        return [rounded(value, bound, BF16)]

    def run_triton(self, case, args):
        names = ("x", "b", "c", "dt", "decay", "states", "out", "n", "heads", "chunk")
        chunk_scan[self.grid(case, args)](*(args[name] for name in names), DIM=64, STATE=128, M=64, K=64, num_warps=4,
                                          num_stages=3)


class GatedLinearAttention(Port):
    """A case is (heads, length, elements of a value)."""

    name = "gated_linear_attention"
    cases = [(128, 4096, 128), (96, 4000, 200)]
    dim = 128

    def label(self, case):
        heads, n, dim_v = case
        return f"{heads} x {n}, {self.dim} x {dim_v}"

    def make(self, case, shift=0):
        heads, n, dim_v = case
        q, k = (normal(heads * n * self.dim, BF16, seed).view(heads, n, self.dim) for seed in (1, 2))
        return {"q": q, "k": k, "v": normal(heads * n * dim_v, BF16, 3).view(heads, n, dim_v),
                "gate": -0.1 * normal(heads * n, F32, 4).abs().view(heads, n),
                "out": empty(heads * n * dim_v, BF16).view(heads, n, dim_v), "scale": self.dim**-0.5, "n": n, "dim_v": dim_v}

    def grid(self, case, args, *consts):
        return cdiv(case[2], 64), case[0]

    def exact(self, args):
        parts = []
        for q, k, v, gate in zip(*(args[name] for name in ("q", "k", "v", "gate"))):
            q, k, v = (of.double() for of in (q, k, v))
            decay = gate.double().cumsum(0)
            # Above the diagonal, differences are not decays.
            factor = args["scale"] * torch.exp((decay[:, None] - decay).clamp(max=0)).tril()
            size = (q.abs() @ k.abs().T * factor) @ v.abs()
            # The state is rounded once, and so are the keys that fade.
            value, bound = rounded((q @ k.T * factor) @ v, (2.0**-7 + 2.0**-12) * size, BF16)
            parts.append((value, bound.float()))
        value, bound = (torch.stack(of) for of in zip(*parts))
        return [(value, bound.double())]

    def run_triton(self, case, args):
        names = ("q", "k", "v", "gate", "out", "scale", "n", "dim_v")
        gated_linear_attention[self.grid(case, args)](*(args[name] for name in names), DK=128, DV=64, CHUNK=64, num_warps=4)


class GatedDeltaRule(Port):
    """A case is (sequences, length, heads, elements of a value)."""

    name = "gated_delta_rule"
    cases = [(8, 1024, 16, 128), (16, 500, 16, 100)]
    dim = 128

    def label(self, case):
        sequences, n, heads, dim_v = case
        return f"{sequences} x {n}, {heads} heads of {self.dim} x {dim_v}"

    def make(self, case, shift=0):
        sequences, n, heads, dim_v = case
        tokens = sequences * n * heads
        # A little shorter than 1, also once it is rounded.
        k = 0.99 * torch.nn.functional.normalize(normal(tokens * self.dim, F32, 2).view(sequences, n, heads, self.dim), dim=3)
        return {"q": normal(tokens * self.dim, BF16, 1).view(sequences, n, heads, self.dim), "k": k.to(BF16),
                "v": normal(tokens * dim_v, BF16, 3).view(sequences, n, heads, dim_v),
                "gate": -0.1 * normal(tokens, F32, 4).abs().view(sequences, n, heads),
                "beta": torch.sigmoid(normal(tokens, F32, 5)).view(sequences, n, heads),
                "out": empty(tokens * dim_v, BF16).view(sequences, n, heads, dim_v), "scale": self.dim**-0.5, "n": n,
                "heads": heads, "dim_v": dim_v}

    def grid(self, case, args, *consts):
        sequences, _, heads, dim_v = case
        return cdiv(dim_v, 32), sequences * heads

    def exact(self, args):
        """Errors are bounded by norms: a step takes a part of the state away, so it does not make an error of a column longer."""
        unit, scale = (self.dim + 16) * 2 * SINGLE, args["scale"]
        # Steps first, then heads of sequences.
        q, k, v, gate, beta = (args[name].double().transpose(0, 1).flatten(1, 2) for name in ("q", "k", "v", "gate", "beta"))
        state = torch.zeros(*k.shape[1:], v.shape[2], dtype=torch.float64, device=k.device)
        error, parts = torch.zeros_like(v[0]), []
        for t in range(args["n"]):
            decay = gate[t].exp()[:, None]
            state *= decay[:, :, None]
            seen = torch.einsum("hk,hkv->hv", k[t], state)
            length, size = k[t].norm(dim=1, keepdim=True), state.norm(dim=1)
            error = error * decay + unit * (2 * size + length * (v[t].abs() + length * size))
            state += k[t][:, :, None] * (beta[t][:, None] * (v[t] - seen))[:, None, :]
            value = scale * torch.einsum("hk,hkv->hv", q[t], state)
            within = scale * q[t].norm(dim=1, keepdim=True) * (error + unit * state.norm(dim=1))
            parts.append(rounded(value, within, BF16))
        shape = args["v"].transpose(0, 1).shape
        return [tuple(torch.stack(of).view(shape).transpose(0, 1) for of in zip(*parts))]

    def run_triton(self, case, args):
        names = ("q", "k", "v", "gate", "beta", "out", "scale", "n", "heads", "dim_v")
        gated_delta_rule[self.grid(case, args)](*(args[name] for name in names), DK=self.dim, DV=32, num_warps=4)


PORTS = [ChunkState(), ChunkScan(), GatedLinearAttention(), GatedDeltaRule()]


@triton.jit
def chunk_state(x_ptr, b_ptr, dt_ptr, decay_ptr, out_ptr, n, heads, chunk, DIM: tl.constexpr, STATE: tl.constexpr,
                K: tl.constexpr):
    first = tl.program_id(0) * chunk
    end = min(first + chunk, n)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    dims = tl.arange(0, DIM)
    states = tl.arange(0, STATE)
    at_head = (sequence * heads + head) * n
    last = tl.load(decay_ptr + at_head + end - 1)
    acc = tl.zeros((DIM, STATE), dtype=tl.float32)
    for start in range(first, end, K):
        steps = start + tl.arange(0, K)
        mask = steps < end
        rows = sequence * n + steps
        x_t = tl.load(x_ptr + (rows * heads + head)[None, :] * DIM + dims[:, None], mask[None, :], 0.0)
        b = tl.load(b_ptr + rows[:, None] * STATE + states[None, :], mask[:, None], 0.0).to(tl.float32)
        decay = tl.load(decay_ptr + at_head + steps, mask, 0.0)
        dt = tl.load(dt_ptr + at_head + steps, mask, 0.0)
        scale = tl.exp(last - decay) * dt
        acc = tl.dot(x_t, (b * scale[:, None]).to(tl.bfloat16), acc)
    matrix = (sequence * tl.num_programs(0) + tl.program_id(0)) * heads + head
    tl.store(out_ptr + (matrix * DIM + dims[:, None]) * STATE + states[None, :], acc)


@triton.jit
def chunk_scan(x_ptr, b_ptr, c_ptr, dt_ptr, decay_ptr, states_ptr, out_ptr, n, heads, chunk, DIM: tl.constexpr,
               STATE: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    chunks = tl.cdiv(n, chunk)
    sequence = tl.program_id(2) // chunks
    head = tl.program_id(1)
    begin = tl.program_id(2) % chunks * chunk
    end = min(begin + chunk, n)
    first = begin + tl.program_id(0) * M
    steps = first + tl.arange(0, M)
    dims = tl.arange(0, DIM)
    offs_s = tl.arange(0, STATE)
    mask = steps < end
    at_head = (sequence * heads + head) * n
    c = tl.load(c_ptr + (sequence * n + steps)[:, None] * STATE + offs_s[None, :], mask[:, None], 0.0)
    decay = tl.load(decay_ptr + at_head + steps, mask, 0.0)
    matrix = tl.program_id(2) * heads + head
    state = tl.load(states_ptr + (matrix * DIM + dims)[None, :] * STATE + offs_s[:, None]).to(tl.bfloat16)
    acc = tl.dot(c, state) * tl.exp(decay)[:, None]
    for start in range(begin, min(first + M, end), K):
        inner = start + tl.arange(0, K)
        present = inner < end
        b = tl.load(b_ptr + (sequence * n + inner)[None, :] * STATE + offs_s[:, None], present[None, :], 0.0)
        inner_decay = tl.load(decay_ptr + at_head + inner, present, 0.0)
        inner_dt = tl.load(dt_ptr + at_head + inner, present, 0.0)
        factor = tl.exp(decay[:, None] - inner_decay[None, :]) * inner_dt[None, :]
        scores = tl.where(steps[:, None] >= inner[None, :], tl.dot(c, b) * factor, 0.0)
        rows = (sequence * n + inner) * heads + head
        x = tl.load(x_ptr + rows[:, None] * DIM + dims[None, :], present[:, None], 0.0)
        acc = tl.dot(scores.to(tl.bfloat16), x, acc)
    rows = (sequence * n + steps) * heads + head
    tl.store(out_ptr + rows[:, None] * DIM + dims[None, :], acc.to(tl.bfloat16), mask[:, None])


@triton.jit
def gated_linear_attention(q_ptr, k_ptr, v_ptr, gate_ptr, out_ptr, scale, n, dim_v, DK: tl.constexpr, DV: tl.constexpr,
                           CHUNK: tl.constexpr):
    offs_k = tl.arange(0, DK)
    offs_v = tl.program_id(0) * DV + tl.arange(0, DV)
    offs_t = tl.arange(0, CHUNK)
    state = tl.zeros((DK, DV), dtype=tl.float32)
    for start in range(0, n, CHUNK):
        rows = tl.program_id(1) * n + start + offs_t
        mask = start + offs_t < n
        mask_v = mask[:, None] & (offs_v[None, :] < dim_v)
        q = tl.load(q_ptr + rows[:, None] * DK + offs_k[None, :], mask[:, None], 0.0)
        k = tl.load(k_ptr + rows[:, None] * DK + offs_k[None, :], mask[:, None], 0.0)
        v = tl.load(v_ptr + rows[:, None] * dim_v + offs_v[None, :], mask_v, 0.0)
        step = tl.load(gate_ptr + rows, mask, 0.0)
        decay = tl.cumsum(step, 0)
        total = tl.sum(step, 0)
        scores = tl.dot(q, tl.trans(k)) * tl.exp(decay[:, None] - decay[None, :])
        scores = tl.where(offs_t[:, None] >= offs_t[None, :], scores, 0.0)
        before = tl.dot(q, state.to(tl.bfloat16)) * tl.exp(decay)[:, None]
        y = tl.dot(scores.to(tl.bfloat16), v, before) * scale
        tl.store(out_ptr + rows[:, None] * dim_v + offs_v[None, :], y.to(tl.bfloat16), mask_v)
        faded = (k.to(tl.float32) * tl.exp(total - decay)[:, None]).to(tl.bfloat16)
        state = tl.dot(tl.trans(faded), v, state * tl.exp(total))


@triton.jit
def gated_delta_rule(q_ptr, k_ptr, v_ptr, gate_ptr, beta_ptr, out_ptr, scale, n, heads, dim_v, DK: tl.constexpr,
                     DV: tl.constexpr):
    offs_k = tl.arange(0, DK)
    offs_v = tl.program_id(0) * DV + tl.arange(0, DV)
    sequence = tl.program_id(1) // heads
    head = tl.program_id(1) % heads
    mask = offs_v < dim_v
    state = tl.zeros((DK, DV), dtype=tl.float32)
    for t in range(0, n):
        row = (sequence * n + t) * heads + head
        q = tl.load(q_ptr + row * DK + offs_k).to(tl.float32) * scale
        k = tl.load(k_ptr + row * DK + offs_k).to(tl.float32)
        v = tl.load(v_ptr + row * dim_v + offs_v, mask, 0.0).to(tl.float32)
        state *= tl.exp(tl.load(gate_ptr + row))
        change = (v - tl.sum(state * k[:, None], 0)) * tl.load(beta_ptr + row)
        state += k[:, None] * change[None, :]
        y = tl.sum(state * q[:, None], 0)
        tl.store(out_ptr + row * dim_v + offs_v, y.to(tl.bfloat16), mask)

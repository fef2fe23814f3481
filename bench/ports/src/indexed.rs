//! Products of blocks and rows that an index in memory names.

use dsl_runtime::prelude::*;

/// `out = a · b` of a matrix in blocks of `BLOCK x BLOCK` that are mostly zero and a dense `b` of `[k, n]`: the blocks of row of blocks
/// `i` are `starts[i]..starts[i + 1]` of `values`, `[blocks, BLOCK, BLOCK]`, and `columns` has each one's column of blocks.
/// **Source.** Block sparse rows of `torch.sparse_bsr_tensor`, multiplied as in Gray and others, *GPU Kernels for Block-Sparse Weights*, 2017.
#[fuse_kernel(BLOCK = [64], N = [128], num_warps = 4, num_stages = 3)]
pub fn block_sparse_matmul<const BLOCK: usize, const N: usize>(
    values: &[bf16],
    columns: &[i32],
    starts: &[i32],
    b: &[bf16],
    out: &mut [bf16],
    n: i32,
) {
    let row = tl::program_id(0);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let inner = tl::arange(0, BLOCK);
    let first = tl::load(starts + row);
    let end = tl::load(starts + row + 1);
    let mut acc = tl::zeros::<f32>([BLOCK, N]);
    for block in first..end {
        let column = tl::load(columns + block);
        let tile_a = tl::load(values + block * BLOCK * BLOCK + (inner.col() * BLOCK + inner.row()));
        let rows = column * BLOCK + inner;
        let tile_b = tl::load(b + rows.col() * n + offs_n.row(), (offs_n < n).row(), 0.0);
        acc = tl::dot(tile_a, tile_b, acc);
    }
    let offs_m = row * BLOCK + inner;
    tl::store(out + offs_m.col() * n + offs_n.row(), acc.to::<bf16>(), (offs_n < n).row());
}

/// The first matmuls of a mixture of experts with a gate, `silu(a · gateᵀ) * (a · upᵀ)`: row `i` of a tile is token `sorted[i] / top_k` of `a`,
/// `[tokens, k]`, its result row `sorted[i]` of `out`. `b` is `[experts, 2 * n, k]`, a gate's rows before those of its `up`, and `experts` names the
/// matrix of each tile. Entries of `sorted` that are not below `valid` fill tiles up.
/// **Source.** The gate and up projections of vLLM's fused mixture of experts, with SwiGLU in the same kernel.
#[fuse_kernel(M = [64], N = [64], K = [64], num_warps = 4, num_stages = 3)]
pub fn expert_gate_up<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    b: &[bf16],
    out: &mut [bf16],
    sorted: &[i32],
    experts: &[i32],
    n: i32,
    k: i32,
    valid: i32,
    top_k: i32,
) {
    let pid_m = tl::program_id(0);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let rows = tl::load(sorted + pid_m * M + tl::arange(0, M));
    let expert = tl::load(experts + pid_m);
    let of_gate = expert * 2 * n * k;
    let mut gate = tl::zeros::<f32>([M, N]);
    let mut up = tl::zeros::<f32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let mask_a = (rows < valid).col() & (inner < k).row();
        let mask_b = (inner < k).col() & (offs_n < n).row();
        let offsets = offs_n.row() * k + inner.col();
        let tile_a = tl::load(a + (rows / top_k).col() * k + inner.row(), mask_a, 0.0);
        gate = tl::dot(tile_a, tl::load(b + of_gate + offsets, mask_b, 0.0), gate);
        up = tl::dot(tile_a, tl::load(b + of_gate + n * k + offsets, mask_b, 0.0), up);
    }
    let y = gate * tl::sigmoid(gate) * up;
    let mask = (rows < valid).col() & (offs_n < n).row();
    tl::store(out + rows.col() * n + offs_n.row(), y.to::<bf16>(), mask);
}

/// The second matmul of a mixture of experts: adds `weights[i]` times row `i` of `a`, `[tokens * top_k, k]`, times its expert's matrix of
/// `b`, `[experts, n, k]`, to row `i / top_k` of `out`, `[tokens, n]`. `sorted` has the rows by expert, filled up to whole tiles by entries
/// that are not below `valid`. **Source.** The down projection of vLLM's fused mixture of experts, summed by atomic additions.
#[fuse_kernel(M = [64], N = [128], K = [64], num_warps = 4, num_stages = 3)]
pub fn expert_down<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    b: &[bf16],
    out: &mut [f32],
    sorted: &[i32],
    experts: &[i32],
    weights: &[f32],
    n: i32,
    k: i32,
    valid: i32,
    top_k: i32,
) {
    let pid_m = tl::program_id(0);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let rows = tl::load(sorted + pid_m * M + tl::arange(0, M));
    let expert = tl::load(experts + pid_m);
    let mut acc = tl::zeros::<f32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let mask_a = (rows < valid).col() & (inner < k).row();
        let mask_b = (inner < k).col() & (offs_n < n).row();
        let tile_a = tl::load(a + rows.col() * k + inner.row(), mask_a, 0.0);
        let tile_b = tl::load(b + expert * n * k + (offs_n.row() * k + inner.col()), mask_b, 0.0);
        acc = tl::dot(tile_a, tile_b, acc);
    }
    let weight = tl::load(weights + rows, rows < valid, 0.0);
    let mask = (rows < valid).col() & (offs_n < n).row();
    let sums = out + (rows / top_k).col() * n + offs_n.row();
    tl::atomic_add(sums, acc * weight.col(), mask).sem("relaxed");
}

/// `out = a · b` of a sparse `a` in compressed rows and a dense `b` of `[k, n]`: row `i` of `a` has the elements `starts[i]..starts[i + 1]` of
/// `values`, in the columns that `columns` has. Program `(i, j)` makes `N` elements of row `i`, from `K` of its elements an iteration.
/// **Source.** `torch.sparse_csr_tensor` times a dense matrix, a row for each program as in graph networks.
#[fuse_kernel(K = [16], N = [64], num_warps = 4)]
pub fn csr_matmul<const K: usize, const N: usize>(
    values: &[f32],
    columns: &[i32],
    starts: &[i32],
    b: &[f32],
    out: &mut [f32],
    n: i32,
) {
    let row = tl::program_id(0);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let first = tl::load(starts + row);
    let end = tl::load(starts + row + 1);
    let mut acc = tl::zeros::<f32>([N]);
    for start in (first..end).step_by(K) {
        let at = start + tl::arange(0, K);
        let value = tl::load(values + at, at < end, 0.0);
        let column = tl::load(columns + at, at < end, 0);
        let mask = (at < end).col() & (offs_n < n).row();
        let rows = tl::load(b + column.col() * n + offs_n.row(), mask, 0.0);
        acc += tl::sum(value.col() * rows, 0);
    }
    tl::store(out + row * n + offs_n, acc, offs_n < n);
}

//! Matrix matmuls by tiles of pointers.

use dsl_runtime::prelude::*;

/// `c = leaky_relu(a · b)` of an `m x k` and a `k x n` matrix with any strides, programs in groups of `GROUP` rows of tiles.
/// **Source.** Triton's tutorial 03, `matmul_kernel` with its activation.
#[fuse_kernel(M = [128], N = [256], K = [64], GROUP = [8], num_warps = 8, num_stages = 3)]
pub fn matmul<const M: usize, const N: usize, const K: usize, const GROUP: usize>(
    a: &[bf16],
    b: &[bf16],
    c: &mut [bf16],
    m: i32,
    n: i32,
    k: i32,
    stride_am: i32,
    stride_ak: i32,
    stride_bk: i32,
    stride_bn: i32,
    stride_cm: i32,
    stride_cn: i32,
) {
    let pid = tl::program_id(0);
    let num_pid_m = tl::cdiv(m, M);
    let num_pid_n = tl::cdiv(n, N);
    let num_pid_in_group = GROUP * num_pid_n;
    let group_id = pid / num_pid_in_group;
    let first_pid_m = group_id * GROUP;
    let group_size_m = tl::minimum(num_pid_m - first_pid_m, GROUP);
    let pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m;
    let pid_n = (pid % num_pid_in_group) / group_size_m;
    let offs_am = (pid_m * M + tl::arange(0, M)) % m;
    let offs_bn = (pid_n * N + tl::arange(0, N)) % n;
    let offs_k = tl::arange(0, K);
    let mut a_ptrs = a + (offs_am.col() * stride_am + offs_k.row() * stride_ak);
    let mut b_ptrs = b + (offs_k.col() * stride_bk + offs_bn.row() * stride_bn);
    let mut acc = tl::zeros::<f32>([M, N]);
    for step in 0..tl::cdiv(k, K) {
        let tile_a = tl::load(a_ptrs, offs_k.row() < k - step * K, 0.0);
        let tile_b = tl::load(b_ptrs, offs_k.col() < k - step * K, 0.0);
        acc = tl::dot(tile_a, tile_b, acc);
        a_ptrs += K * stride_ak;
        b_ptrs += K * stride_bk;
    }
    let acc = tl::select(acc >= 0.0, acc, 0.01 * acc);
    let offs_cm = pid_m * M + tl::arange(0, M);
    let offs_cn = pid_n * N + tl::arange(0, N);
    let c_ptrs = c + (offs_cm.col() * stride_cm + offs_cn.row() * stride_cn);
    tl::store(c_ptrs, acc.to::<bf16>(), (offs_cm < m).col() & (offs_cn < n).row());
}

/// Rows of `a`, `[tokens, k]`, times the matrix of the expert that each was sent to, `b` of `[experts, n, k]`: row `i` of a tile is
/// token `sorted[i] / top_k`, its result row `sorted[i]` of `c`. Entries of `sorted` that are not below `valid` fill tiles up; all of a
/// tile go to one expert. **Source.** The grouped matmul of vLLM's fused mixture of experts.
#[fuse_kernel(M = [64], N = [128], K = [64], GROUP = [8], num_warps = 4, num_stages = 3)]
pub fn expert_matmul<const M: usize, const N: usize, const K: usize, const GROUP: usize>(
    a: &[bf16],
    b: &[bf16],
    c: &mut [bf16],
    sorted: &[i32],
    experts: &[i32],
    n: i32,
    k: i32,
    padded: i32,
    valid: i32,
    top_k: i32,
    stride_am: i32,
    stride_ak: i32,
    stride_be: i32,
    stride_bk: i32,
    stride_bn: i32,
    stride_cm: i32,
    stride_cn: i32,
) {
    let pid = tl::program_id(0);
    let num_pid_m = tl::cdiv(padded, M);
    let num_pid_n = tl::cdiv(n, N);
    let num_pid_in_group = GROUP * num_pid_n;
    let group_id = pid / num_pid_in_group;
    let first_pid_m = group_id * GROUP;
    let group_size_m = tl::minimum(num_pid_m - first_pid_m, GROUP);
    let pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m;
    let pid_n = (pid % num_pid_in_group) / group_size_m;
    let offs_token = tl::load(sorted + pid_m * M + tl::arange(0, M));
    let token_mask = offs_token < valid;
    let offs_bn = (pid_n * N + tl::arange(0, N)) % n;
    let offs_k = tl::arange(0, K);
    let expert = tl::load(experts + pid_m);
    let mut a_ptrs = a + ((offs_token / top_k).col() * stride_am + offs_k.row() * stride_ak);
    let mut b_ptrs = b + expert * stride_be + (offs_k.col() * stride_bk + offs_bn.row() * stride_bn);
    let mut acc = tl::zeros::<f32>([M, N]);
    for step in 0..tl::cdiv(k, K) {
        let tile_a = tl::load(a_ptrs, token_mask.col() & (offs_k.row() < k - step * K), 0.0);
        let tile_b = tl::load(b_ptrs, offs_k.col() < k - step * K, 0.0);
        acc = tl::dot(tile_a, tile_b, acc);
        a_ptrs += K * stride_ak;
        b_ptrs += K * stride_bk;
    }
    let offs_cn = pid_n * N + tl::arange(0, N);
    let c_ptrs = c + (offs_token.col() * stride_cm + offs_cn.row() * stride_cn);
    tl::store(c_ptrs, acc.to::<bf16>(), token_mask.col() & (offs_cn < n).row());
}

/// `out = scale * (x · a) · b` of rows of `k` elements, with `a` of `[k, RANK]` and `b` of `[RANK, n]`. A program makes `M` rows:
/// the small matmul first, then all columns from it. **Source.** Hu and others, *LoRA*, 2021, arXiv:2106.09685, section 4.1.
#[fuse_kernel(M = [64], N = [128], K = [64], RANK = [16], num_warps = 4, num_stages = 3)]
pub fn lora<const M: usize, const N: usize, const K: usize, const RANK: usize>(
    x: &[bf16],
    a: &[bf16],
    b: &[bf16],
    out: &mut [bf16],
    m: i32,
    n: i32,
    k: i32,
    scale: f32,
) {
    let rows = tl::program_id(0) * M + tl::arange(0, M);
    let rank = tl::arange(0, RANK);
    let mut small = tl::zeros::<f32>([M, RANK]);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let tile_a = tl::load(x + rows.col() * k + inner.row(), (rows < m).col() & (inner < k).row(), 0.0);
        let tile_b = tl::load(a + inner.col() * RANK + rank.row(), (inner < k).col(), 0.0);
        small = tl::dot(tile_a, tile_b, small);
    }
    let small = (small * scale).to::<bf16>();
    for start in (0..n).step_by(N) {
        let cols = start + tl::arange(0, N);
        let tile_b = tl::load(b + rank.col() * n + cols.row(), (cols < n).row(), 0.0);
        let y = tl::dot(small, tile_b);
        tl::store(out + rows.col() * n + cols.row(), y.to::<bf16>(), (rows < m).col() & (cols < n).row());
    }
}

/// `c = aᵀ · b`, the gradient of a linear layer's weight: `a` of `[k, m]` has the gradients of `k` rows and `b` of `[k, n]` their
/// inputs, both row-major along the rows that are summed. **Source.** The weight gradient in Triton's form, `tl.dot(tl.trans(a), b)`,
/// of `torch.nn.Linear`.
#[fuse_kernel(M = [128], N = [128], K = [64], num_warps = 4, num_stages = 3)]
pub fn weight_gradient<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    b: &[bf16],
    c: &mut [bf16],
    m: i32,
    n: i32,
    k: i32,
) {
    let offs_m = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let mut acc = tl::zeros::<f32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let tile_a =
            tl::load(a + inner.col() * m + offs_m.row(), (inner < k).col() & (offs_m < m).row(), 0.0);
        let tile_b =
            tl::load(b + inner.col() * n + offs_n.row(), (inner < k).col() & (offs_n < n).row(), 0.0);
        acc = tl::dot(tl::trans(tile_a), tile_b, acc);
    }
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::store(c + offs_m.col() * n + offs_n.row(), acc.to::<bf16>(), mask);
}

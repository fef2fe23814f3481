//! Products with weights of few bits, which are made `bf16` in registers before they are multiplied.

use dsl_runtime::prelude::*;

/// `c = a · w` with `a` of `[m, k]` and 4-bit weights `w` of `[k, n]`, eight of a column in one word of `packed`, `[k / 8, n]`:
/// a weight is `(nibble - 8)` times the scale of its group of `group` rows, `scales` of `[k / group, n]`.
/// **Source.** Frantar and others, *GPTQ*, 2022, arXiv:2210.17323, weights as its CUDA and Triton kernels pack them.
#[fuse_kernel(N = [128], K = [64], configs = [{ M: 16, num_warps: 4 }, { M: 128, num_warps: 8 }], num_stages = 3)]
pub fn int4_matmul<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    packed: &[i32],
    scales: &[bf16],
    c: &mut [bf16],
    m: i32,
    n: i32,
    k: i32,
    group: i32,
) {
    let offs_m = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let offs_k = tl::arange(0, K);
    let shift = (offs_k % 8) * 4;
    let mut acc = tl::zeros::<f32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + offs_k;
        let tile_a =
            tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0.0);
        let present = (inner < k).col() & (offs_n < n).row();
        let words = tl::load(packed + (inner / 8).col() * n + offs_n.row(), present, 0);
        let scale = tl::load(scales + (inner / group).col() * n + offs_n.row(), present, 0.0);
        let tile_b = (((words >> shift.col()) & 15) - 8).to::<bf16>() * scale;
        acc = tl::dot(tile_a, tile_b, acc);
    }
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::store(c + offs_m.col() * n + offs_n.row(), acc.to::<bf16>(), mask);
}

/// `c = a · wᵀ` with `a` of `[m, k]` and 8-bit weights `w` of `[n, k]`, which have a scale for each block of 128 x 128, `scales` of
/// `[cdiv(n, 128), cdiv(k, 128)]`. **Source.** The weights of DeepSeek-V3, 2024, arXiv:2412.19437, section 3.3.2.
#[fuse_kernel(M = [128], N = [128], K = [64], num_warps = 8, num_stages = 3)]
pub fn fp8_matmul<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    w: &[f8e4m3],
    scales: &[f32],
    c: &mut [bf16],
    m: i32,
    n: i32,
    k: i32,
) {
    let offs_m = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let offs_k = tl::arange(0, K);
    let scale_row = scales + (offs_n / 128) * tl::cdiv(k, 128);
    let mut acc = tl::zeros::<f32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + offs_k;
        let tile_a =
            tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0.0);
        let present = (inner < k).col() & (offs_n < n).row();
        let tile_b = tl::load(w + offs_n.row() * k + inner.col(), present, 0.0).to::<f32>();
        let scale = tl::load(scale_row + start / 128, offs_n < n, 0.0);
        acc = tl::dot(tile_a, (tile_b * scale.row()).to::<bf16>(), acc);
    }
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::store(c + offs_m.col() * n + offs_n.row(), acc.to::<bf16>(), mask);
}

/// `c = a · wᵀ` with `a` of `[m, k]` and `i8` weights `w` of `[n, k]`, which have a scale for each column of the result.
/// **Source.** Weight-only quantization as in LLM.int8(), Dettmers and others, 2022, arXiv:2208.07339, section 2, with `bf16` activations.
#[fuse_kernel(N = [128], K = [64], configs = [{ M: 16, num_warps: 4 }, { M: 128, num_warps: 8 }], num_stages = 3)]
pub fn int8_matmul<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    w: &[i8],
    scales: &[f32],
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
            tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0.0);
        let present = (inner < k).col() & (offs_n < n).row();
        let tile_b = tl::load(w + offs_n.row() * k + inner.col(), present, 0);
        acc = tl::dot(tile_a, tile_b.to::<bf16>(), acc);
    }
    let scale = tl::load(scales + offs_n, offs_n < n, 0.0);
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::store(c + offs_m.col() * n + offs_n.row(), (acc * scale.row()).to::<bf16>(), mask);
}

/// `c = a · w` with `a` of `[m, k]` and `i8` weights `w` of `[k, n]`, which have a scale for each column of the result.
/// **Source.** The weights of `torch._weight_int8pack_mm` in the order of `a · w`, as `x @ w` of a stored `[in, out]` matrix has them.
#[fuse_kernel(N = [128], K = [64], configs = [{ M: 16, num_warps: 4 }, { M: 128, num_warps: 8 }], num_stages = 3)]
pub fn w8a16_matmul<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    w: &[i8],
    scales: &[f32],
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
            tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0.0);
        let present = (inner < k).col() & (offs_n < n).row();
        let tile_b = tl::load(w + inner.col() * n + offs_n.row(), present, 0);
        acc = tl::dot(tile_a, tile_b.to::<bf16>(), acc);
    }
    let scale = tl::load(scales + offs_n, offs_n < n, 0.0);
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::store(c + offs_m.col() * n + offs_n.row(), (acc * scale.row()).to::<bf16>(), mask);
}

/// `c = a · wᵀ` of `i8` activations `a`, `[m, k]` with a scale for each row, and ternary weights, `[n, k]` with one scale. A weight is its two
/// bits less 1, and a byte of `packed`, `[n, k / 4]`, has four of a row, the first in its lowest bits. **Source.** Ma and others, *The Era of
/// 1-bit LLMs*, 2024, arXiv:2402.17764, section 2, two bits a weight as bitnet.cpp stores them.
#[fuse_kernel(N = [128], K = [64], configs = [{ M: 16, num_warps: 4 }, { M: 128, num_warps: 8 }], num_stages = 3)]
pub fn ternary_matmul<const M: usize, const N: usize, const K: usize>(
    a: &[i8],
    packed: &[u8],
    a_scales: &[f32],
    c: &mut [bf16],
    w_scale: f32,
    m: i32,
    n: i32,
    k: i32,
) {
    let offs_m = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let offs_k = tl::arange(0, K);
    let shift = (offs_k % 4) * 2;
    let mut acc = tl::zeros::<i32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + offs_k;
        let tile_a = tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0);
        let present = (inner < k).col() & (offs_n < n).row();
        let bytes = tl::load(packed + (offs_n.row() * (k / 4) + (inner / 4).col()), present, 0).to::<i32>();
        let tile_b = (((bytes >> shift.col()) & 3) - 1).to::<i8>();
        acc = tl::dot(tile_a, tile_b, acc);
    }
    let scale = tl::load(a_scales + offs_m, offs_m < m, 0.0) * w_scale;
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::store(c + offs_m.col() * n + offs_n.row(), (acc.to::<f32>() * scale.col()).to::<bf16>(), mask);
}

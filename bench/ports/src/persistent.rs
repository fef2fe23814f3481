//! Matmuls with more or fewer programs than tiles of the result: split-K, stream-K, persistent programs, groups of matmuls.

use dsl_runtime::prelude::*;

/// Adds `a · b` of an `m x k` and a `k x n` matrix to `c`. `SPLIT_K` programs share a tile: each takes every `SPLIT_K`th block along
/// `k`, and adds its sum atomically. **Source.** Triton's `matmul` with `SPLIT_K`, `triton.ops.matmul` of Triton 2.
#[fuse_kernel(M = [128], N = [128], K = [64], SPLIT_K = [8], num_warps = 4, num_stages = 3)]
pub fn split_k_matmul<const M: usize, const N: usize, const K: usize, const SPLIT_K: usize>(
    a: &[bf16],
    b: &[bf16],
    c: &mut [f32],
    m: i32,
    n: i32,
    k: i32,
) {
    let offs_m = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let mut acc = tl::zeros::<f32>([M, N]);
    for start in (tl::program_id(2) * K..k).step_by(K * SPLIT_K) {
        let inner = start + tl::arange(0, K);
        let tile_a =
            tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0.0);
        let tile_b =
            tl::load(b + inner.col() * n + offs_n.row(), (inner < k).col() & (offs_n < n).row(), 0.0);
        acc = tl::dot(tile_a, tile_b, acc);
    }
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::atomic_add(c + offs_m.col() * n + offs_n.row(), acc, mask).sem("relaxed");
}

/// Adds `a · b` of an `m x k` and a `k x n` matrix to `c`. The blocks along `k` of all tiles are one list, and each program takes an equal share
/// of it. A share may begin and end within a tile; its part of the tile's sum is added atomically.
/// **Source.** Osama and others, *Stream-K*, 2023, arXiv:2301.03598, with atomic additions for its fix-up.
#[fuse_kernel(M = [128], N = [128], K = [64], num_warps = 4, num_stages = 3)]
pub fn stream_k_matmul<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    b: &[bf16],
    c: &mut [f32],
    m: i32,
    n: i32,
    k: i32,
) {
    let num_pid_n = tl::cdiv(n, N);
    let blocks = tl::cdiv(k, K);
    let total = tl::cdiv(m, M) * num_pid_n * blocks;
    let share = tl::cdiv(total, tl::num_programs(0));
    let mut first = tl::program_id(0) * share;
    let last = tl::minimum(first + share, total);
    while first < last {
        let tile = first / blocks;
        let end = tl::minimum((tile + 1) * blocks, last);
        let offs_m = tile / num_pid_n * M + tl::arange(0, M);
        let offs_n = tile % num_pid_n * N + tl::arange(0, N);
        let mut acc = tl::zeros::<f32>([M, N]);
        for block in first..end {
            let inner = (block - tile * blocks) * K + tl::arange(0, K);
            let tile_a =
                tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0.0);
            let tile_b =
                tl::load(b + inner.col() * n + offs_n.row(), (inner < k).col() & (offs_n < n).row(), 0.0);
            acc = tl::dot(tile_a, tile_b, acc);
        }
        let mask = (offs_m < m).col() & (offs_n < n).row();
        tl::atomic_add(c + offs_m.col() * n + offs_n.row(), acc, mask).sem("relaxed");
        first = end;
    }
}

/// `c = a · b` of an `m x k` and a `k x n` matrix by as many programs as run at once: each makes one tile after the other, in groups of
/// `GROUP` rows of tiles. **Source.** Triton's tutorial 09, `matmul_kernel_persistent`.
#[fuse_kernel(M = [128], N = [256], K = [64], GROUP = [8], num_warps = 8, num_stages = 3)]
pub fn persistent_matmul<const M: usize, const N: usize, const K: usize, const GROUP: usize>(
    a: &[bf16],
    b: &[bf16],
    c: &mut [bf16],
    m: i32,
    n: i32,
    k: i32,
) {
    let num_pid_m = tl::cdiv(m, M);
    let num_pid_n = tl::cdiv(n, N);
    let num_pid_in_group = GROUP * num_pid_n;
    for tile in (tl::program_id(0)..num_pid_m * num_pid_n).step_by(tl::num_programs(0)) {
        let first_pid_m = tile / num_pid_in_group * GROUP;
        let group_size_m = tl::minimum(num_pid_m - first_pid_m, GROUP);
        let pid_m = first_pid_m + (tile % num_pid_in_group) % group_size_m;
        let pid_n = (tile % num_pid_in_group) / group_size_m;
        let offs_m = pid_m * M + tl::arange(0, M);
        let offs_n = pid_n * N + tl::arange(0, N);
        let mut acc = tl::zeros::<f32>([M, N]);
        for start in (0..k).step_by(K) {
            let inner = start + tl::arange(0, K);
            let tile_a =
                tl::load(a + offs_m.col() * k + inner.row(), (offs_m < m).col() & (inner < k).row(), 0.0);
            let tile_b =
                tl::load(b + inner.col() * n + offs_n.row(), (inner < k).col() & (offs_n < n).row(), 0.0);
            acc = tl::dot(tile_a, tile_b, acc);
        }
        let mask = (offs_m < m).col() & (offs_n < n).row();
        tl::store(c + offs_m.col() * n + offs_n.row(), acc.to::<bf16>(), mask);
    }
}

/// `c = a · bᵀ` of an `m x k` and an `n x k` matrix by as many programs as run at once, with blocks of views for what Triton has tensor
/// descriptors for. **Source.** Triton's tutorial 09, `matmul_kernel_descriptor_persistent`.
#[fuse_kernel(M = [128], N = [256], K = [64], GROUP = [8], num_warps = 8, num_stages = 3)]
pub fn persistent_matmul_by_views<const M: usize, const N: usize, const K: usize, const GROUP: usize>(
    a: &View<bf16, 2>,
    b: &View<bf16, 2>,
    c: &mut View<bf16, 2>,
) {
    let (m, n) = (a.shape::<i32>(0), b.shape::<i32>(0));
    let num_pid_m = tl::cdiv(m, M);
    let num_pid_n = tl::cdiv(n, N);
    let num_pid_in_group = GROUP * num_pid_n;
    for tile in (tl::program_id(0)..num_pid_m * num_pid_n).step_by(tl::num_programs(0)) {
        let first_pid_m = tile / num_pid_in_group * GROUP;
        let group_size_m = tl::minimum(num_pid_m - first_pid_m, GROUP);
        let row = (first_pid_m + (tile % num_pid_in_group) % group_size_m) * M;
        let col = (tile % num_pid_in_group) / group_size_m * N;
        let mut acc = tl::zeros::<f32>([M, N]);
        for start in (0..a.shape(1)).step_by(K) {
            acc = tl::dot(a.load::<M, K>(row, start), tl::trans(b.load::<N, K>(col, start)), acc);
        }
        c.store(acc.to::<bf16>(), row, col);
    }
}

/// `c = a · b` for each of `groups` matmuls with `n` and `k` in common: group `g` has `sizes[g]` rows of `a` and `c`, from row
/// `starts[g]`, and its own matrix of `b`, `[groups, k, n]`. Programs run over the tiles of all groups, one after the other.
/// **Source.** Triton's tutorial 08, `grouped_matmul_kernel`.
#[fuse_kernel(M = [128], N = [128], K = [64], num_warps = 4, num_stages = 3)]
pub fn grouped_matmul<const M: usize, const N: usize, const K: usize>(
    a: &[bf16],
    b: &[bf16],
    c: &mut [bf16],
    sizes: &[i32],
    starts: &[i32],
    groups: i32,
    n: i32,
    k: i32,
) {
    let num_pid_n = tl::cdiv(n, N);
    let mut tile = tl::program_id(0);
    let mut first_tile = 0;
    for group in 0..groups {
        let size = tl::load(sizes + group);
        let first_row = tl::load(starts + group);
        let end_tile = first_tile + tl::cdiv(size, M) * num_pid_n;
        while tile < end_tile {
            let offs_m = (tile - first_tile) / num_pid_n * M + tl::arange(0, M);
            let offs_n = (tile - first_tile) % num_pid_n * N + tl::arange(0, N);
            let rows = first_row + offs_m;
            let mut acc = tl::zeros::<f32>([M, N]);
            for start in (0..k).step_by(K) {
                let inner = start + tl::arange(0, K);
                let mask_a = (offs_m < size).col() & (inner < k).row();
                let mask_b = (inner < k).col() & (offs_n < n).row();
                let tile_a = tl::load(a + rows.col() * k + inner.row(), mask_a, 0.0);
                let tile_b = tl::load(b + group * k * n + (inner.col() * n + offs_n.row()), mask_b, 0.0);
                acc = tl::dot(tile_a, tile_b, acc);
            }
            let mask = (offs_m < size).col() & (offs_n < n).row();
            tl::store(c + rows.col() * n + offs_n.row(), acc.to::<bf16>(), mask);
            tile += tl::num_programs(0);
        }
        first_tile = end_tile;
    }
}

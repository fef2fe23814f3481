//! Tiles of all pairs of rows: Gram matrices, kernel matrices, overlaps, products in another semiring.

use dsl_runtime::prelude::*;

/// The lower triangle of `x · xᵀ` of an `n x k` matrix, with the diagonal; elements above it are not written. Program `(i, j)` makes a tile of
/// `M x M`, and returns at once where that is above the diagonal. **Source.** `syrk` of the BLAS, as a matmul of Triton's tutorial 03 with half
/// of its tiles.
#[fuse_kernel(M = [128], K = [64], num_warps = 4, num_stages = 3)]
pub fn gram<const M: usize, const K: usize>(x: &[f16], out: &mut [f16], n: i32, k: i32) {
    let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * M);
    if col > row {
        return;
    }
    let offs_m = row + tl::arange(0, M);
    let offs_n = col + tl::arange(0, M);
    let mut acc = tl::zeros::<f32>([M, M]);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let tile_a =
            tl::load(x + offs_m.col() * k + inner.row(), (offs_m < n).col() & (inner < k).row(), 0.0);
        let tile_b =
            tl::load(x + offs_n.row() * k + inner.col(), (inner < k).col() & (offs_n < n).row(), 0.0);
        acc = tl::dot(tile_a, tile_b, acc);
    }
    let mask = (offs_m < n).col() & (offs_n.row() <= offs_m.col());
    tl::store(out + offs_m.col() * n + offs_n.row(), acc.to::<f16>(), mask);
}

/// `out[i]` is the sum over `j` of `exp(-gamma * |x[i] - z[j]|²) * w[j]`: a matrix of Gaussian kernels times a vector, without storing the matrix.
/// `x` is `[n, D]`, `z` is `[m, D]`, and a square of a distance is `|x|² + |z|² - 2 x · z`. Program `i` has `M` rows of `x` and takes `N` rows of
/// `z` an iteration. **Source.** Charlier and others, *Kernel operations on the GPU, with autodiff, without memory overflows*, 2021, section 3,
/// with the inner products by a matmul.
#[fuse_kernel(D = [64], M = [128], N = [128], num_warps = 8, num_stages = 3)]
pub fn rbf_matvec<const D: usize, const M: usize, const N: usize>(
    x: &[bf16],
    z: &[bf16],
    w: &[f32],
    out: &mut [f32],
    gamma: f32,
    n: i32,
    m: i32,
) {
    let rows = tl::program_id(0) * M + tl::arange(0, M);
    let offs_d = tl::arange(0, D);
    let x = tl::load(x + rows.col() * D + offs_d.row(), (rows < n).col(), 0.0);
    let wide_x = x.to::<f32>();
    let x_norm = tl::sum(wide_x * wide_x, 1);
    let mut acc = tl::zeros::<f32>([M]);
    for start in (0..m).step_by(N) {
        let cols = start + tl::arange(0, N);
        let z = tl::load(z + cols.col() * D + offs_d.row(), (cols < m).col(), 0.0);
        let w = tl::load(w + cols, cols < m, 0.0);
        let wide_z = z.to::<f32>();
        let z_norm = tl::sum(wide_z * wide_z, 1);
        let distance = x_norm.col() + z_norm.row() - 2.0 * tl::dot(x, tl::trans(z));
        acc += tl::sum(tl::exp(-gamma * distance) * w.row(), 1);
    }
    tl::store(out + rows, acc, rows < n);
}

/// The intersection over union of each pair of boxes, `out[i, j]` of `a[i]` and `b[j]`: `a` is `[n, 4]` and `b` is `[m, 4]`, a box is `(x1, y1,
/// x2, y2)` with `x1 < x2` and `y1 < y2`. Program `(i, j)` makes a tile of `ROWS x COLS`.
/// **Source.** `torchvision.ops.box_iou`, as detectors match their anchors.
#[fuse_kernel(ROWS = [32], COLS = [128], num_warps = 4)]
pub fn box_iou<const ROWS: usize, const COLS: usize>(a: &[f32], b: &[f32], out: &mut [f32], n: i32, m: i32) {
    let rows = tl::program_id(0) * ROWS + tl::arange(0, ROWS);
    let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let of_a = a + rows * 4;
    let of_b = b + cols * 4;
    let a_x1 = tl::load(of_a, rows < n, 0.0);
    let a_y1 = tl::load(of_a + 1, rows < n, 0.0);
    let a_x2 = tl::load(of_a + 2, rows < n, 0.0);
    let a_y2 = tl::load(of_a + 3, rows < n, 0.0);
    let b_x1 = tl::load(of_b, cols < m, 0.0);
    let b_y1 = tl::load(of_b + 1, cols < m, 0.0);
    let b_x2 = tl::load(of_b + 2, cols < m, 0.0);
    let b_y2 = tl::load(of_b + 3, cols < m, 0.0);
    let a_area = (a_x2 - a_x1) * (a_y2 - a_y1);
    let b_area = (b_x2 - b_x1) * (b_y2 - b_y1);
    let width = tl::minimum(a_x2.col(), b_x2.row()) - tl::maximum(a_x1.col(), b_x1.row());
    let height = tl::minimum(a_y2.col(), b_y2.row()) - tl::maximum(a_y1.col(), b_y1.row());
    let common = tl::maximum(width, 0.0) * tl::maximum(height, 0.0);
    let iou = common / (a_area.col() + b_area.row() - common);
    tl::store(out + rows.col() * m + cols.row(), iou, (rows < n).col() & (cols < m).row());
}

/// `c[i, j]` is the largest of `a[i, l] + b[l, j]` over `l`, of an `m x k` and a `k x n` matrix: a matmul in the semiring of maximum and sum. A
/// program makes a tile of `M x N` from sums of `M x K x N` an iteration. **Source.** The step of dynamic programs such as Viterbi's, 1967,
/// by tiles with a broadcast third axis.
#[fuse_kernel(M = [32], N = [32], K = [8], num_warps = 4)]
pub fn max_plus<const M: usize, const N: usize, const K: usize>(
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    m: i32,
    n: i32,
    k: i32,
) {
    let offs_m = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let mut acc = tl::full([M, N], f32::NEG_INFINITY);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let mask_a = (offs_m < m).col() & (inner < k).row();
        let mask_b = (inner < k).col() & (offs_n < n).row();
        let tile_a = tl::load(a + offs_m.col() * k + inner.row(), mask_a, f32::NEG_INFINITY);
        let tile_b = tl::load(b + inner.col() * n + offs_n.row(), mask_b, f32::NEG_INFINITY);
        let sums = tl::expand_dims(tile_a, 2) + tl::expand_dims(tile_b, 0);
        acc = tl::maximum(acc, tl::max(sums, 1));
    }
    let mask = (offs_m < m).col() & (offs_n < n).row();
    tl::store(c + offs_m.col() * n + offs_n.row(), acc, mask);
}

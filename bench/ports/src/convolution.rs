//! Convolutions as matmuls.

use dsl_runtime::prelude::*;

/// The convolution of NHWC images with 3 x 3 taps, stride 1 and a border of zeros, as an implicit matmul: rows are the pixels of all images,
/// the inner extent is 9 taps of `c_in` channels. `x` is `[images, height, width, c_in]`, `w` is `[3, 3, c_in, c_out]`. Program `(i, j)` makes
/// `M` pixels of `N` channels. **Source.** Chetlur and others, *cuDNN*, 2014, arXiv:1410.0759, section 3.1.
#[fuse_kernel(M = [128], N = [64], K = [64], num_warps = 4, num_stages = 3)]
pub fn conv3x3<const M: usize, const N: usize, const K: usize>(
    x: &[bf16],
    w: &[bf16],
    out: &mut [bf16],
    images: i32,
    height: i32,
    width: i32,
    c_in: i32,
    c_out: i32,
) {
    let pixels = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let count = images * height * width;
    let image = pixels / (height * width);
    let row = pixels / width % height;
    let col = pixels % width;
    let blocks = tl::cdiv(c_in, K);
    let mut acc = tl::zeros::<f32>([M, N]);
    for step in 0..9 * blocks {
        let tap = step / blocks;
        let channels = step % blocks * K + tl::arange(0, K);
        let from_row = row + tap / 3 - 1;
        let from_col = col + tap % 3 - 1;
        let inside = (from_row >= 0) & (from_row < height) & (from_col >= 0) & (from_col < width);
        let from = (image * height + from_row) * width + from_col;
        let mask_x = (inside & (pixels < count)).col() & (channels < c_in).row();
        let mask_w = (channels < c_in).col() & (offs_n < c_out).row();
        let tile_x = tl::load(x + from.col() * c_in + channels.row(), mask_x, 0.0);
        let tile_w = tl::load(w + (tap * c_in + channels).col() * c_out + offs_n.row(), mask_w, 0.0);
        acc = tl::dot(tile_x, tile_w, acc);
    }
    let mask = (pixels < count).col() & (offs_n < c_out).row();
    tl::store(out + pixels.col() * c_out + offs_n.row(), acc.to::<bf16>(), mask);
}

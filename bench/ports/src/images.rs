//! Images of `[images, channels, height, width]` whose elements move to computed places.

use dsl_runtime::prelude::*;

/// Depth to space: `out[i, c, y * block + dy, x * block + dx] = x[i, (c * block + dy) * block + dx, y, x]`, where `height` and `width` are those of
/// the input and `total` counts the elements. Program `i` makes `BLOCK` elements in the order of `out`.
/// **Source.** Shi and others, *Sub-pixel convolution*, 2016, arXiv:1609.05158, as `torch.nn.PixelShuffle`.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn depth_to_space<const BLOCK: usize>(
    x: &[f32],
    out: &mut [f32],
    total: i32,
    height: i32,
    width: i32,
    block: i32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < total;
    let (out_height, out_width) = (height * block, width * block);
    let col = offsets % out_width;
    let row = offsets / out_width % out_height;
    let plane = offsets / (out_width * out_height);
    let channel = (plane * block + row % block) * block + col % block;
    let at = (channel * height + row / block) * width + col / block;
    tl::store(out + offsets, tl::load(x + at, mask), mask);
}

/// Bilinear upsampling of planes of `height x width` to `out_height x out_width`, pixels as squares whose centers are at halves: `scale_y` and
/// `scale_x` are the extents before over those after. Program `i` makes `BLOCK` of the `total` elements in the order of `out`.
/// **Source.** `torch.nn.functional.interpolate` with `mode="bilinear"` and without `align_corners`.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn upsample_bilinear<const BLOCK: usize>(
    x: &[f32],
    out: &mut [f32],
    total: i32,
    height: i32,
    width: i32,
    out_height: i32,
    out_width: i32,
    scale_y: f32,
    scale_x: f32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < total;
    let col = offsets % out_width;
    let row = offsets / out_width % out_height;
    let plane = offsets / (out_width * out_height);
    let y = tl::maximum((row.to::<f32>() + 0.5) * scale_y - 0.5, 0.0);
    let x_at = tl::maximum((col.to::<f32>() + 0.5) * scale_x - 0.5, 0.0);
    let top = tl::minimum(y.to::<i32>(), height - 1);
    let left = tl::minimum(x_at.to::<i32>(), width - 1);
    let bottom = tl::minimum(top + 1, height - 1);
    let right = tl::minimum(left + 1, width - 1);
    let of_y = y - top.to::<f32>();
    let of_x = x_at - left.to::<f32>();
    let above = x + (plane * height + top) * width;
    let below = x + (plane * height + bottom) * width;
    let upper = tl::load(above + left, mask) * (1.0 - of_x) + tl::load(above + right, mask) * of_x;
    let lower = tl::load(below + left, mask) * (1.0 - of_x) + tl::load(below + right, mask) * of_x;
    tl::store(out + offsets, upper * (1.0 - of_y) + lower * of_y, mask);
}

/// Unfolds windows of `size x size` into columns: row `(c * size + i) * size + j` of `out[image]`, `[channels * size * size, out_height *
/// out_width]`, has for each place of the window its element `(i, j)` of channel `c`, and 0 where that is in the padding. Program `(i, j, image)`
/// makes a tile of `ROWS x COLS`. **Source.** Chellapilla and others, 2006, *High performance convolutional neural networks for document
/// processing*, section 4, as `torch.nn.functional.unfold`.
#[fuse_kernel(ROWS = [16], COLS = [128], num_warps = 4)]
pub fn im2col<const ROWS: usize, const COLS: usize>(
    x: &[f32],
    out: &mut [f32],
    channels: i32,
    height: i32,
    width: i32,
    size: i32,
    stride: i32,
    pad: i32,
) {
    let out_height = (height + 2 * pad - size) / stride + 1;
    let out_width = (width + 2 * pad - size) / stride + 1;
    let (places, elements) = (out_height * out_width, channels * size * size);
    let image = tl::program_id(2);
    let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
    let rows = tl::program_id(1) * ROWS + tl::arange(0, ROWS);
    let channel = (image * channels + rows / (size * size)).col();
    let y = (cols / out_width * stride - pad).row() + (rows / size % size).col();
    let x_at = (cols % out_width * stride - pad).row() + (rows % size).col();
    let inside = (y >= 0) & (y < height) & (x_at >= 0) & (x_at < width);
    let mask = (rows < elements).col() & (cols < places).row();
    let value = tl::load(x + (channel * height + y) * width + x_at, mask & inside, 0.0);
    tl::store(out + (image * elements + rows).col() * places + cols.row(), value, mask);
}

/// The largest of each 2 x 2 elements of planes of `height x width`; an odd last row or column is left out. Program `(i, j, p)` makes a tile
/// of `ROWS x COLS` of plane `p`. **Source.** `torch.nn.functional.max_pool2d` with `kernel_size=2`.
#[fuse_kernel(ROWS = [8], COLS = [64], num_warps = 4)]
pub fn max_pool_2x2<const ROWS: usize, const COLS: usize>(
    x: &[f32],
    out: &mut [f32],
    height: i32,
    width: i32,
) {
    let (out_height, out_width) = (height / 2, width / 2);
    let plane = tl::program_id(2);
    let rows = (tl::program_id(1) * ROWS + tl::arange(0, ROWS)).col();
    let cols = (tl::program_id(0) * COLS + tl::arange(0, COLS)).row();
    let mask = (rows < out_height) & (cols < out_width);
    let first = x + (plane * height + 2 * rows) * width + 2 * cols;
    let upper = tl::maximum(tl::load(first, mask), tl::load(first + 1, mask));
    let lower = tl::maximum(tl::load(first + width, mask), tl::load(first + width + 1, mask));
    tl::store(out + (plane * out_height + rows) * out_width + cols, tl::maximum(upper, lower), mask);
}

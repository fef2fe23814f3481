//! [`fuse_ports::convolution`].

use dsl_runtime::prelude::*;
use fuse_ports::convolution::conv3x3;

use crate::data::{Output, devices, matmul, normal};

#[test]
fn pixels_outside_of_an_image_are_zero() {
    for device in devices() {
        for [images, height, width, c_in, c_out] in
            [[2, 5, 7, 45, 70], [1, 9, 15, 70, 20], [1, 8, 16, 64, 64]]
        {
            let pixels = images * height * width;
            let (x, w) = (normal::<bf16>(pixels * c_in, 1), normal::<bf16>(9 * c_in * c_out, 2));
            let mut out = Output::<bf16>::poisoned(&device, pixels * c_out);
            let [x_in, w_in] = [&x, &w].map(|x| device.upload(x).unwrap());
            let [images_arg, height_arg, width_arg, c_in_arg, c_out_arg] =
                [images, height, width, c_in, c_out].map(|n| n as i32);
            let call = conv3x3::<128, 64, 64>(
                &x_in,
                &w_in,
                out.slot(),
                images_arg,
                height_arg,
                width_arg,
                c_in_arg,
                c_out_arg,
            );
            call.grid((pixels.div_ceil(128), c_out.div_ceil(64))).launch(&device).unwrap();
            let at = |pixel: usize, j: usize| {
                let (tap, channel) = (j / c_in, j % c_in);
                // One more than the row and the column, so that neither is negative.
                let row = pixel / width % height + tap / 3;
                let col = pixel % width + tap % 3;
                let inside = (1..=height).contains(&row) && (1..=width).contains(&col);
                let image = pixel / (height * width);
                let from = || (image * height + row - 1) * width + col - 1;
                if inside { x[from() * c_in + channel].to_f64() } else { 0.0 }
            };
            let expected =
                matmul::<bf16>([pixels, c_out, 9 * c_in], at, |j, channel| w[j * c_out + channel].to_f64());
            out.check(&format!("{images} x {height} x {width} x {c_in} x {c_out} on {device}"), &expected);
        }
    }
}

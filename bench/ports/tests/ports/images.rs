//! [`fuse_ports::images`].

use fuse_ports::images::{depth_to_space, im2col, max_pool_2x2, upsample_bilinear};

use crate::data::{Expected, Matrix, Output, SINGLE, devices, normal};

#[test]
fn channels_become_blocks_of_elements() {
    for device in devices() {
        for (images, channels, height, width, block) in [(2, 3, 5, 7, 3), (1, 2, 8, 32, 2), (3, 1, 1, 1, 1)] {
            let total = images * channels * block * block * height * width;
            let x = normal::<f32>(total, 1);
            let mut out = Output::<f32>::poisoned(&device, total);
            let x_in = device.upload(&x).unwrap();
            let [total_arg, height_arg, width_arg, block_arg] =
                [total, height, width, block].map(|n| n as i32);
            depth_to_space::<1024>(&x_in, out.slot(), total_arg, height_arg, width_arg, block_arg)
                .grid(total.div_ceil(1024))
                .launch(&device)
                .unwrap();
            let mut expected = vec![Expected::exact(f32::NAN); total];
            for (i, x) in x.iter().enumerate() {
                let (col, row, channel) = (i % width, i / width % height, i / (width * height));
                let (plane, dy, dx) = (channel / (block * block), channel / block % block, channel % block);
                let place = (plane * height * block + row * block + dy) * width * block + col * block + dx;
                expected[place] = Expected::exact(*x);
            }
            out.check(
                &format!("{images} x {channels} x {height} x {width} by {block} on {device}"),
                &expected,
            );
        }
    }
}

/// The pixels on both sides of a place along an axis, the second with its weight.
fn neighbors(place: usize, extent: usize, scale: f64) -> (usize, usize, f64) {
    let at = ((place as f64 + 0.5) * scale - 0.5).max(0.0);
    let first = (at as usize).min(extent - 1);
    (first, (first + 1).min(extent - 1), at - first as f64)
}

#[test]
fn pixels_are_interpolated_between_their_centers() {
    for device in devices() {
        for (planes, [height, width], [out_height, out_width]) in
            [(3, [5, 7], [11, 9]), (2, [16, 16], [32, 32]), (1, [9, 1], [3, 4])]
        {
            let x = normal::<f32>(planes * height * width, 1);
            let total = planes * out_height * out_width;
            let (scale_y, scale_x) = (height as f32 / out_height as f32, width as f32 / out_width as f32);
            let mut out = Output::<f32>::poisoned(&device, total);
            let x_in = device.upload(&x).unwrap();
            let [total_arg, height_arg, width_arg, out_height_arg, out_width_arg] =
                [total, height, width, out_height, out_width].map(|n| n as i32);
            let call = upsample_bilinear::<1024>(
                &x_in,
                out.slot(),
                total_arg,
                height_arg,
                width_arg,
                out_height_arg,
                out_width_arg,
                scale_y,
                scale_x,
            );
            call.grid(total.div_ceil(1024)).launch(&device).unwrap();
            let peak = x.iter().fold(0.0, |peak: f64, x| peak.max(f64::from(x.abs())));
            let x = Matrix::new(&x, width);
            let expected = (0..total).map(|i| {
                let (top, bottom, below) = neighbors(i / out_width % out_height, height, f64::from(scale_y));
                let (left, right, beside) = neighbors(i % out_width, width, f64::from(scale_x));
                let plane = i / (out_width * out_height) * height;
                let of_row =
                    |row: usize| x.at(plane + row, left) * (1.0 - beside) + x.at(plane + row, right) * beside;
                let value = of_row(top) * (1.0 - below) + of_row(bottom) * below;
                // A place is rounded three times, and an interpolation moves by no more than two peaks a pixel.
                let moved = 6.0 * SINGLE * (height + width + 2) as f64 + 8.0 * SINGLE;
                Expected { value, within: moved * peak }
            });
            let what = format!("{planes} x {height} x {width} to {out_height} x {out_width} on {device}");
            out.check(&what, &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn windows_become_columns() {
    for device in devices() {
        for ([images, channels, height, width], [size, stride, pad]) in
            [([2, 3, 9, 11], [3, 1, 1]), ([1, 2, 13, 8], [5, 2, 3]), ([1, 4, 16, 16], [2, 2, 0])]
        {
            let x = normal::<f32>(images * channels * height * width, 1);
            let [out_height, out_width] =
                [height, width].map(|extent| (extent + 2 * pad - size) / stride + 1);
            let (places, elements) = (out_height * out_width, channels * size * size);
            let mut out = Output::<f32>::poisoned(&device, images * elements * places);
            let x_in = device.upload(&x).unwrap();
            let [channels_arg, height_arg, width_arg] = [channels, height, width].map(|n| n as i32);
            let [size_arg, stride_arg, pad_arg] = [size, stride, pad].map(|n| n as i32);
            let call = im2col::<16, 128>(
                &x_in,
                out.slot(),
                channels_arg,
                height_arg,
                width_arg,
                size_arg,
                stride_arg,
                pad_arg,
            );
            call.grid((places.div_ceil(128), elements.div_ceil(16), images)).launch(&device).unwrap();
            let element = |i: usize| {
                let (place, row, image) = (i % places, i / places % elements, i / (places * elements));
                let y = (place / out_width * stride + row / size % size).checked_sub(pad)?;
                let col = (place % out_width * stride + row % size).checked_sub(pad)?;
                let plane = image * channels + row / (size * size);
                (y < height && col < width).then(|| x[(plane * height + y) * width + col])
            };
            let expected =
                (0..images * elements * places).map(|i| Expected::exact(element(i).unwrap_or(0.0)));
            let what = format!("{images} x {channels} x {height} x {width}, {size} by {stride} on {device}");
            out.check(&what, &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_pool_keeps_the_largest_of_four() {
    for device in devices() {
        for (planes, height, width) in [(3, 19, 131), (1, 2, 2), (2, 16, 128)] {
            let x = normal::<f32>(planes * height * width, 1);
            let (out_height, out_width) = (height / 2, width / 2);
            let mut out = Output::<f32>::poisoned(&device, planes * out_height * out_width);
            let x_in = device.upload(&x).unwrap();
            max_pool_2x2::<8, 64>(&x_in, out.slot(), height as i32, width as i32)
                .grid((out_width.div_ceil(64), out_height.div_ceil(8), planes))
                .launch(&device)
                .unwrap();
            let expected = (0..planes * out_height * out_width).map(|i| {
                let (col, row) = (i % out_width * 2, i / out_width % out_height * 2);
                let first = (i / (out_width * out_height) * height + row) * width + col;
                let four = [first, first + 1, first + width, first + width + 1].map(|at| x[at]);
                Expected::exact(four.into_iter().fold(f32::NEG_INFINITY, f32::max))
            });
            out.check(&format!("{planes} x {height} x {width} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

//! [`fuse_ports::channels`].

use dsl_runtime::prelude::*;
use fuse_ports::channels::{causal_conv, group_norm, rope};

use crate::data::{Expected, Matrix, Output, SINGLE, TINY, devices, normal};

#[test]
fn group_norm_of_nhwc_images() {
    let eps = 1e-5f32;
    for device in devices() {
        for (images, pixels, groups, size) in [(2, 49, 3, 10), (1, 256, 2, 16), (2, 130, 1, 1)] {
            let channels = groups * size;
            let x = normal::<bf16>(images * pixels * channels, 1);
            let (weight, bias) = (normal::<bf16>(channels, 2), normal::<bf16>(channels, 3));
            let mut out = Output::poisoned(&device, x.len());
            let [x_in, w_in, b_in] = [&x, &weight, &bias].map(|x| device.upload(x).unwrap());
            let [n, c, g] = [pixels, channels, size].map(|n| n as i32);
            group_norm::<128, 16>(&x_in, &w_in, &b_in, out.slot(), n, c, g, eps)
                .grid((images, groups))
                .launch(&device)
                .unwrap();
            let x = Matrix::new(&x, channels);
            let mut expected = vec![];
            for image in 0..images {
                let statistics: Vec<(f64, f64, f64)> = (0..groups)
                    .map(|group| {
                        let rows = image * pixels..(image + 1) * pixels;
                        let all = || rows.clone().flat_map(|row| &x.row(row)[group * size..][..size]);
                        let count = (pixels * size) as f64;
                        let mean = all().sum::<f64>() / count;
                        let square = all().map(|x| x * x).sum::<f64>() / count;
                        (mean, square, 1.0 / (square - mean * mean + f64::from(eps)).sqrt())
                    })
                    .collect();
                for row in image * pixels..(image + 1) * pixels {
                    for (col, x) in x.row(row).iter().enumerate() {
                        let (mean, square, rstd) = statistics[col / size];
                        let (w, b) = (weight[col].to_f64(), bias[col].to_f64());
                        let x_hat = (x - mean) * rstd;
                        let over = (16.0 + ((pixels * size) as f64).sqrt()) * 2.0 * SINGLE;
                        let relative = 1.0 + square * rstd * rstd;
                        let sizes = (x_hat.abs() * relative + square.sqrt() * rstd) * w.abs() + b.abs();
                        expected.push(Expected::rounded::<bf16>(x_hat * w + b, over * sizes));
                    }
                }
            }
            out.check(&format!("{images} x {pixels} x {groups} x {size} on {device}"), &expected);
        }
    }
}

#[test]
fn causal_conv_sees_three_steps_before() {
    for device in devices() {
        for (sequences, n, channels) in [(2, 37, 130), (1, 64, 128), (1, 2, 3)] {
            let x = normal::<bf16>(sequences * n * channels, 1);
            let (weight, bias) = (normal::<bf16>(channels * 4, 2), normal::<bf16>(channels, 3));
            let mut out = Output::poisoned(&device, x.len());
            let [x_in, w_in, b_in] = [&x, &weight, &bias].map(|x| device.upload(x).unwrap());
            causal_conv::<32, 128>(&x_in, &w_in, &b_in, out.slot(), n as i32, channels as i32)
                .grid((channels.div_ceil(128), n.div_ceil(32), sequences))
                .launch(&device)
                .unwrap();
            let (x, weight) = (Matrix::new(&x, channels), Matrix::new(&weight, 4));
            let mut expected = vec![];
            for row in 0..sequences * n {
                for (channel, bias) in bias.iter().enumerate() {
                    let (mut sum, mut size) = (bias.to_f64(), bias.to_f64().abs());
                    for j in (0..4).filter(|j| row % n + j >= 3) {
                        let product = x.at(row + j - 3, channel) * weight.at(channel, j);
                        sum += product;
                        size += product.abs();
                    }
                    let value = sum / (1.0 + (-sum).exp());
                    // The slope of SiLU is below 1.1.
                    let within = 1.1 * 8.0 * SINGLE * size + 16.0 * SINGLE * value.abs() + TINY;
                    expected.push(Expected::rounded::<bf16>(value, within));
                }
            }
            out.check(&format!("{sequences} x {n} x {channels} on {device}"), &expected);
        }
    }
}

#[test]
fn rope_turns_halves_of_strided_heads() {
    for device in devices() {
        // The tokens of `x` have a larger stride than their heads take, as in a packed matrix of queries and keys.
        for (tokens, heads, half, gap) in [(3, 5, 20, 7), (2, 32, 64, 0)] {
            let (dim, row) = (2 * half, 2 * half * heads + gap);
            let x = normal::<bf16>(tokens * row, 1);
            let [cos, sin] = [2, 3].map(|seed| normal::<bf16>(tokens * half, seed));
            let mut out = Output::poisoned(&device, tokens * heads * dim);
            let [x_in, cos_in, sin_in] = [&x, &cos, &sin].map(|x| device.upload(x).unwrap());
            let [x_token, dim_stride, out_token, heads_arg, half_arg] =
                [row, dim, dim * heads, heads, half].map(|n| n as i32);
            rope::<32, 64>(
                &x_in,
                &cos_in,
                &sin_in,
                out.slot(),
                x_token,
                dim_stride,
                out_token,
                dim_stride,
                heads_arg,
                half_arg,
            )
            .grid(tokens)
            .launch(&device)
            .unwrap();
            let mut expected = vec![];
            for token in 0..tokens {
                for i in 0..heads * dim {
                    let (head, j) = (i / dim, i % dim);
                    let at = |j: usize| x[token * row + head * dim + j].to_f64();
                    let angle = token * half + j % half;
                    let (cos, sin) = (cos[angle].to_f64(), sin[angle].to_f64());
                    let (turned, other) = (at(j) * cos, at((j + half) % dim) * sin);
                    let value = if j < half { turned - other } else { turned + other };
                    let within = 4.0 * SINGLE * (turned.abs() + other.abs());
                    expected.push(Expected::rounded::<bf16>(value, within));
                }
            }
            out.check(&format!("{tokens} x {heads} x {dim} on {device}"), &expected);
        }
    }
}

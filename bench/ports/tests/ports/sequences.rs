//! [`fuse_ports::sequences`].

use dsl_runtime::prelude::*;
use fuse_ports::sequences::{avg_pool3d, instance_norm, lstm_cell, moving_average, quantize_groups, top_k};

use crate::data::{Expected, Output, SINGLE, TINY, devices, integers, normal};

#[test]
fn planes_have_a_mean_and_a_deviation() {
    let eps = 1e-5f32;
    for device in devices() {
        for (images, channels, n) in [(2, 3, 49), (1, 2, 4096), (2, 1, 5003), (1, 1, 1)] {
            let x = normal::<f16>(images * channels * n, 1);
            let (weight, bias) = (normal::<f16>(channels, 2), normal::<f16>(channels, 3));
            let mut out = Output::<f16>::poisoned(&device, x.len());
            let [x_in, w_in, b_in] = [&x, &weight, &bias].map(|x| device.upload(x).unwrap());
            let [channels_arg, n_arg] = [channels, n].map(|n| n as i32);
            instance_norm::<2048>(&x_in, &w_in, &b_in, out.slot(), channels_arg, n_arg, eps)
                .grid(images * channels)
                .launch(&device)
                .unwrap();
            let mut expected = vec![];
            for (i, plane) in x.chunks(n).enumerate() {
                let mean = plane.iter().map(|x| x.to_f64()).sum::<f64>() / n as f64;
                let square = plane.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / n as f64;
                let rstd = 1.0 / (square - mean * mean + f64::from(eps)).sqrt();
                let (w, b) = (weight[i % channels].to_f64(), bias[i % channels].to_f64());
                let over = (16.0 + (n as f64).sqrt()) * 2.0 * SINGLE;
                expected.extend(plane.iter().map(|x| {
                    let x_hat = (x.to_f64() - mean) * rstd;
                    // The variance is a difference of a mean square and a square of a mean.
                    let relative = 1.0 + square * rstd * rstd;
                    let sizes = (x_hat.abs() * relative + square.sqrt() * rstd) * w.abs() + b.abs();
                    Expected::rounded::<f16>(x_hat * w + b, over * sizes)
                }));
            }
            out.check(&format!("{images} x {channels} x {n} on {device}"), &expected);
        }
    }
}

#[test]
fn groups_of_a_row_have_a_scale() {
    for device in devices() {
        for (rows, n) in [(3, 1000), (2, 1024), (1, 2053), (2, 7)] {
            let mut x = normal::<bf16>(rows * n, 1);
            // The first group has the scale 1 and elements at halves, and the last row is 0.
            for (i, x) in x.iter_mut().take(n.min(64)).enumerate() {
                *x = bf16::from_f64(if i == 0 { 127.0 } else { i as f64 - 32.5 });
            }
            if rows > 1 {
                x[(rows - 1) * n..].fill(bf16::from_f64(0.0));
            }
            let groups = n.div_ceil(64);
            let mut q = Output::<i8>::of(&device, &vec![-128; rows * n]);
            let mut scales = Output::<f32>::poisoned(&device, rows * groups);
            let x_in = device.upload(&x).unwrap();
            quantize_groups::<16, 64>(&x_in, q.slot(), scales.slot(), n as i32)
                .grid((rows, groups.div_ceil(16)))
                .launch(&device)
                .unwrap();
            let (mut of_elements, mut of_scales) = (vec![], vec![]);
            for (row, elements) in x.chunks(n).enumerate() {
                for (i, group) in elements.chunks(64).enumerate() {
                    let peak = group.iter().map(|x| x.to_f64().abs()).fold(f64::from(1e-10f32), f64::max);
                    let scale = peak / 127.0;
                    // A quotient is within 2 ULP.
                    of_scales.push(Expected { value: scale, within: 4.0 * SINGLE * scale });
                    of_elements.extend(group.iter().map(|x| {
                        let value = x.to_f64() / scale;
                        match (row, i) {
                            (0, 0) => Expected { value: value.round_ties_even(), within: 0.0 },
                            _ => Expected { value, within: 0.5 + 16.0 * SINGLE * value.abs() },
                        }
                    }));
                }
            }
            q.check(&format!("{rows} x {n} on {device}"), &of_elements);
            scales.check(&format!("scales of {rows} x {n} on {device}"), &of_scales);
        }
    }
}

#[test]
fn gates_of_a_cell_keep_and_add() {
    for device in devices() {
        for (rows, hidden) in [(3, 45), (2, 1024), (2, 1500)] {
            let gates: Vec<f16> = normal(rows * 4 * hidden, 1);
            let before = normal::<f32>(rows * hidden, 2);
            let mut c = Output::<f32>::poisoned(&device, before.len());
            let mut h = Output::<f16>::poisoned(&device, before.len());
            let gates_in = device.upload(&gates).unwrap();
            let before_in = device.upload(&before).unwrap();
            lstm_cell::<1024>(&gates_in, &before_in, c.slot(), h.slot(), hidden as i32)
                .grid((hidden.div_ceil(1024), rows))
                .launch(&device)
                .unwrap();
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let (mut of_c, mut of_h) = (vec![], vec![]);
            for (i, before) in before.iter().enumerate() {
                let gate = |part: usize| gates[(i / hidden * 4 + part) * hidden + i % hidden].to_f64();
                let kept = sigmoid(gate(1)) * f64::from(*before);
                let added = sigmoid(gate(0)) * gate(2).tanh();
                // A sigmoid is within 4 ULP, a hyperbolic tangent within 2.
                let within = 16.0 * SINGLE * (kept.abs() + added.abs()) + TINY;
                let value = kept + added;
                of_c.push(Expected { value, within });
                let shown = sigmoid(gate(3)) * value.tanh();
                let moved = 16.0 * SINGLE * shown.abs() + within;
                of_h.push(Expected::rounded::<f16>(shown, moved));
            }
            c.check(&format!("c of {rows} x {hidden} on {device}"), &of_c);
            h.check(&format!("h of {rows} x {hidden} on {device}"), &of_h);
        }
    }
}

#[test]
fn an_average_follows_its_row() {
    for device in devices() {
        for (rows, n) in [(3, 301), (2, 1024), (2, 3001), (1, 1)] {
            let x = normal::<f32>(rows * n, 1);
            let a: Vec<f32> =
                normal::<f32>(rows * n, 2).into_iter().map(|x| 1.0 / (1.0 + (-3.0 - x).exp())).collect();
            let mut out = Output::<f32>::poisoned(&device, x.len());
            let [x_in, a_in] = [&x, &a].map(|x| device.upload(x).unwrap());
            moving_average::<1024>(&x_in, &a_in, out.slot(), n as i32).grid(rows).launch(&device).unwrap();
            let mut expected = vec![];
            for (x, a) in x.chunks(n).zip(a.chunks(n)) {
                let (mut value, mut size, mut within) = (0.0, 0.0, 0.0);
                for (x, a) in x.iter().zip(a) {
                    let (x, a) = (f64::from(*x), f64::from(*a));
                    // A term has 34 roundings when it comes in, of which 32 are those of a tree of sums, and 2 more each step.
                    within = a * (within + 2.0 * SINGLE * size) + 34.0 * SINGLE * (1.0 - a) * x.abs();
                    value = a * value + (1.0 - a) * x;
                    size = a * size + (1.0 - a) * x.abs();
                    expected.push(Expected { value, within: within + TINY });
                }
            }
            out.check(&format!("{rows} x {n} on {device}"), &expected);
        }
    }
}

#[test]
fn the_largest_of_a_row_come_with_their_columns() {
    const K: usize = 8;
    for device in devices() {
        for (rows, n) in [(3, 301), (2, 1024), (1, 8)] {
            // Of 101 numbers, so that some are equal.
            let x = integers::<f32>(rows * n, -50..51, 1);
            let mut values = Output::<f32>::poisoned(&device, rows * K);
            let mut columns = Output::of(&device, &vec![-1i32; rows * K]);
            let x_in = device.upload(&x).unwrap();
            top_k::<1024, K>(&x_in, values.slot(), columns.slot(), n as i32)
                .grid(rows)
                .launch(&device)
                .unwrap();
            let (mut of_values, mut of_columns) = (vec![], vec![]);
            for row in x.chunks(n) {
                let mut order: Vec<usize> = (0..n).collect();
                order.sort_by(|&i, &j| row[j].total_cmp(&row[i]));
                of_values.extend(order[..K].iter().map(|&i| Expected::exact(row[i])));
                of_columns.extend(order[..K].iter().map(|&i| Expected::exact(i as i32)));
            }
            values.check(&format!("values of {rows} x {n} on {device}"), &of_values);
            columns.check(&format!("columns of {rows} x {n} on {device}"), &of_columns);
        }
    }
}

#[test]
fn a_pool_is_the_mean_of_eight() {
    for device in devices() {
        for (volumes, [depth, height, width]) in [(3, [5, 7, 19]), (1, [2, 2, 2]), (2, [8, 16, 32])] {
            let x = normal::<f16>(volumes * depth * height * width, 1);
            let [out_depth, out_height, out_width] = [depth, height, width].map(|extent| extent / 2);
            let total = volumes * out_depth * out_height * out_width;
            let mut out = Output::<f16>::poisoned(&device, total);
            let x_in = device.upload(&x).unwrap();
            let [total_arg, depth_arg, height_arg, width_arg] =
                [total, depth, height, width].map(|n| n as i32);
            avg_pool3d::<1024>(&x_in, out.slot(), total_arg, depth_arg, height_arg, width_arg)
                .grid(total.div_ceil(1024))
                .launch(&device)
                .unwrap();
            let expected = (0..total).map(|i| {
                let (col, row) = (i % out_width * 2, i / out_width % out_height * 2);
                let plane = i / (out_width * out_height) % out_depth * 2;
                let volume = i / (out_width * out_height * out_depth);
                let at = |j: usize| {
                    let place = (volume * depth + plane + j / 4) * height + row + j / 2 % 2;
                    x[place * width + col + j % 2].to_f64()
                };
                let value = (0..8).map(at).sum::<f64>() / 8.0;
                let size = (0..8).map(|j| at(j).abs()).sum::<f64>() / 8.0;
                Expected::rounded::<f16>(value, 8.0 * SINGLE * size)
            });
            let what = format!("{volumes} x {depth} x {height} x {width} on {device}");
            out.check(&what, &expected.collect::<Vec<_>>());
        }
    }
}

//! [`fuse_ports::rows`].

use dsl_runtime::prelude::*;
use fuse_ports::rows::{cross_entropy, layer_norm, layer_norm_dx, rms_norm, softmax};

use crate::data::{Expected, Matrix, Output, SINGLE, TINY, devices, integers, normal};

/// The relative error of a sum of `n` numbers and of the operations after it.
fn over(n: usize) -> f64 {
    (8.0 + (n as f64).sqrt()) * SINGLE
}

fn check_softmax<const BLOCK: usize>(rows: usize, cols: usize)
where
    softmax::Choice<BLOCK>: softmax::Declared,
{
    for device in devices() {
        let x = normal::<bf16>(rows * cols, 1);
        let mut out = Output::poisoned(&device, rows * cols);
        let input = device.upload(&x).unwrap();
        let [stride, n_cols] = [cols, cols].map(|n| n as i32);
        let call = softmax::<BLOCK>(&input, out.slot(), stride, stride, n_cols);
        call.grid(rows).launch(&device).unwrap();
        let x = Matrix::new(&x, cols);
        let expected = (0..rows).flat_map(|row| {
            let row = x.row(row);
            let peak = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = row.iter().map(|x| (x - peak).exp()).sum();
            row.iter().map(move |x| {
                let value = (x - peak).exp() / total;
                let relative = (32.0 + (cols as f64).sqrt() + 2.0 * (peak - x)) * SINGLE;
                Expected::rounded::<bf16>(value, relative * value + TINY)
            })
        });
        out.check(&format!("softmax {rows} x {cols} on {device}"), &expected.collect::<Vec<_>>());
    }
}

#[test]
fn softmax_of_rows() {
    check_softmax::<4096>(3, 1);
    check_softmax::<4096>(2, 1001);
    check_softmax::<4096>(2, 4096);
    check_softmax::<8192>(2, 5003);
}

/// Rows with their statistics as the norms define them.
struct Rows {
    x: Matrix,
    weight: Vec<f64>,
    bias: Vec<f64>,
    eps: f64,
}

impl Rows {
    /// The mean, the mean magnitude and the inverse deviation of a row.
    fn statistics(&self, row: usize) -> (f64, f64, f64) {
        let row = self.x.row(row);
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let magnitude = row.iter().map(|x| x.abs()).sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        (mean, magnitude, 1.0 / (variance + self.eps).sqrt())
    }
}

fn check_layer_norm<const BLOCK: usize>(rows: usize, cols: usize)
where
    layer_norm::Choice<BLOCK>: layer_norm::Declared,
{
    let eps = 1e-5f32;
    for device in devices() {
        let x = normal::<bf16>(rows * cols, 1);
        let (weight, bias) = (normal::<bf16>(cols, 2), normal::<bf16>(cols, 3));
        let mut out = Output::<bf16>::poisoned(&device, rows * cols);
        let [mut mean, mut rstd] = [0, 1].map(|_| Output::<f32>::poisoned(&device, rows));
        let [x_in, w_in, b_in] = [&x, &weight, &bias].map(|x| device.upload(x).unwrap());
        layer_norm::<BLOCK>(
            &x_in,
            out.slot(),
            &w_in,
            &b_in,
            mean.slot(),
            rstd.slot(),
            cols as i32,
            cols as i32,
            eps,
        )
        .grid(rows)
        .launch(&device)
        .unwrap();
        let of = Rows {
            x: Matrix::new(&x, cols),
            weight: weight.iter().map(|w| w.to_f64()).collect(),
            bias: bias.iter().map(|b| b.to_f64()).collect(),
            eps: f64::from(eps),
        };
        let (mut values, mut means, mut rstds) = (vec![], vec![], vec![]);
        for row in 0..rows {
            let (mean, magnitude, rstd) = of.statistics(row);
            means.push(Expected { value: mean, within: over(cols) * magnitude });
            rstds.push(Expected { value: rstd, within: over(cols) * rstd * (1.0 + magnitude * rstd) });
            for col in 0..cols {
                let x_hat = (of.x.at(row, col) - mean) * rstd;
                let (w, b) = (of.weight[col], of.bias[col]);
                let within = over(cols) * ((x_hat.abs() + magnitude * rstd) * w.abs() + b.abs());
                values.push(Expected::rounded::<bf16>(x_hat * w + b, within));
            }
        }
        let what = format!("layer norm {rows} x {cols}, {BLOCK} a turn, on {device}");
        out.check(&what, &values);
        mean.check(&format!("mean of {what}"), &means);
        rstd.check(&format!("rstd of {what}"), &rstds);
    }
}

#[test]
fn layer_norm_in_three_loops() {
    check_layer_norm::<1024>(3, 7);
    check_layer_norm::<1024>(2, 2501);
    check_layer_norm::<1024>(2, 2048);
    check_layer_norm::<4096>(2, 4096);
}

#[test]
fn layer_norm_gradient_of_the_input() {
    for device in devices() {
        for (rows, cols) in [(3, 1001), (2, 4096)] {
            let [dy, x] = [1, 2].map(|seed| normal::<bf16>(rows * cols, seed));
            let weight = normal::<bf16>(cols, 3);
            let eps = 1e-5;
            let of = Rows {
                x: Matrix::new(&x, cols),
                weight: weight.iter().map(|w| w.to_f64()).collect(),
                bias: vec![],
                eps,
            };
            let found: Vec<(f64, f64, f64)> = (0..rows).map(|row| of.statistics(row)).collect();
            let means: Vec<f32> = found.iter().map(|(mean, ..)| *mean as f32).collect();
            let rstds: Vec<f32> = found.iter().map(|(.., rstd)| *rstd as f32).collect();
            let mut dx = Output::<bf16>::poisoned(&device, rows * cols);
            let [dy_in, x_in, w_in] = [&dy, &x, &weight].map(|x| device.upload(x).unwrap());
            let [mean_in, rstd_in] = [&means, &rstds].map(|x| device.upload(x).unwrap());
            let [stride, n] = [cols, cols].map(|n| n as i32);
            layer_norm_dx::<4096>(dx.slot(), &dy_in, &x_in, &w_in, &mean_in, &rstd_in, stride, n)
                .grid(rows)
                .launch(&device)
                .unwrap();
            let dy = Matrix::new(&dy, cols);
            let mut expected = vec![];
            for (row, &(mean, _, rstd)) in found.iter().enumerate() {
                let n = cols as f64;
                let x_hat: Vec<f64> = of.x.row(row).iter().map(|x| (x - mean) * rstd).collect();
                let wdy: Vec<f64> = dy.row(row).iter().zip(&of.weight).map(|(dy, w)| dy * w).collect();
                let c1 = x_hat.iter().zip(&wdy).map(|(x, w)| x * w).sum::<f64>() / n;
                let c2 = wdy.iter().sum::<f64>() / n;
                let size1 = x_hat.iter().zip(&wdy).map(|(x, w)| (x * w).abs()).sum::<f64>() / n;
                let size2 = wdy.iter().map(|w| w.abs()).sum::<f64>() / n;
                for (x_hat, wdy) in x_hat.iter().zip(&wdy) {
                    let value = (wdy - (x_hat * c1 + c2)) * rstd;
                    let sizes = wdy.abs() + (x_hat.abs() + 1.0) * size1 + size2;
                    expected.push(Expected::rounded::<bf16>(value, 2.0 * over(cols) * sizes * rstd));
                }
            }
            dx.check(&format!("gradient {rows} x {cols} on {device}"), &expected);
        }
    }
}

#[test]
fn rms_norm_in_two_loops() {
    let eps = 1e-6f32;
    for device in devices() {
        for (rows, cols) in [(3, 5), (2, 5001), (2, 4096)] {
            let (x, weight) = (normal::<bf16>(rows * cols, 1), normal::<bf16>(cols, 2));
            let mut out = Output::<bf16>::poisoned(&device, rows * cols);
            let [x_in, w_in] = [&x, &weight].map(|x| device.upload(x).unwrap());
            let n = cols as i32;
            rms_norm::<2048>(&x_in, &w_in, out.slot(), n, n, n, eps).grid(rows).launch(&device).unwrap();
            let x = Matrix::new(&x, cols);
            let expected = (0..rows).flat_map(|row| {
                let row = x.row(row);
                let mean = row.iter().map(|x| x * x).sum::<f64>() / cols as f64;
                let rrms = 1.0 / (mean + f64::from(eps)).sqrt();
                row.iter().zip(&weight).map(move |(x, w)| {
                    let value = x * rrms * w.to_f64();
                    Expected::rounded::<bf16>(value, over(cols) * value.abs())
                })
            });
            out.check(&format!("RMSNorm {rows} x {cols} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn cross_entropy_in_one_loop() {
    for device in devices() {
        for (rows, classes) in [(3, 5), (4, 10_001), (2, 8192)] {
            let logits = normal::<bf16>(rows * classes, 1);
            let mut targets = integers::<i64>(rows, 0..classes as i64, 2);
            targets[1] = -100;
            let [mut loss, mut lse] = [0, 1].map(|_| Output::<f32>::poisoned(&device, rows));
            let (x_in, targets_in) = (device.upload(&logits).unwrap(), device.upload(&targets).unwrap());
            let n = classes as i32;
            cross_entropy::<4096>(&x_in, &targets_in, loss.slot(), lse.slot(), n, n, -100)
                .grid(rows)
                .launch(&device)
                .unwrap();
            let logits = Matrix::new(&logits, classes);
            let (mut losses, mut sums) = (vec![], vec![]);
            for (row, &target) in targets.iter().enumerate() {
                let row = logits.row(row);
                let peak = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let lowest = row.iter().copied().fold(f64::INFINITY, f64::min);
                let value = peak + row.iter().map(|x| (x - peak).exp()).sum::<f64>().ln();
                let within = (16.0 + (classes as f64).sqrt() + 2.0 * (peak - lowest)) * SINGLE
                    + 2.0 * SINGLE * value.abs();
                sums.push(Expected { value, within });
                losses.push(match usize::try_from(target) {
                    Ok(target) => {
                        let within = within + 4.0 * SINGLE * row[target].abs();
                        Expected { value: value - row[target], within }
                    }
                    Err(_) => Expected { value: 0.0, within: 0.0 },
                });
            }
            loss.check(&format!("loss {rows} x {classes} on {device}"), &losses);
            lse.check(&format!("lse {rows} x {classes} on {device}"), &sums);
        }
    }
}

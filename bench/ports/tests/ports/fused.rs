//! [`fuse_ports::fused`].

use dsl_runtime::prelude::*;
use fuse_ports::fused::{batched_matmul_bias_gelu, conv1d, newton_schulz, window_attention};

use crate::data::{Expected, Matrix, Output, SINGLE, TINY, devices, inner_product, integers, normal};

/// GELU with the hyperbolic tangent, of a value within an error.
fn gelu(value: f64, within: f64) -> Expected {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * value * (1.0 + 0.044715 * value * value);
    // Its slope is below 1.13.
    let moved = 1.13 * within + 16.0 * SINGLE * value.abs() + TINY;
    Expected::rounded::<bf16>(0.5 * value * (inner.tanh() + 1.0), moved)
}

#[test]
fn products_of_a_batch_have_a_bias_and_an_activation() {
    for device in devices() {
        // Rows of `x` are farther apart than their elements, and the last case has `w` along `n` innermost.
        for (batch, [m, n, k], gap, transposed) in
            [(2, [67, 131, 45], 3, false), (1, [128, 128, 64], 0, false), (3, [20, 150, 100], 5, true)]
        {
            let row = k + gap;
            let (x, w) = (normal::<bf16>(batch * m * row, 1), normal::<bf16>(batch * n * k, 2));
            let bias = normal::<bf16>(batch * n, 3);
            let mut out = Output::<bf16>::poisoned(&device, batch * m * n);
            let [x_in, w_in, bias_in] = [&x, &w, &bias].map(|x| device.upload(x).unwrap());
            let (of_n, of_k) = if transposed { (1, n) } else { (k, 1) };
            let [m_arg, n_arg, k_arg, row_arg, of_x, of_w, of_n_arg, of_k_arg, of_out] =
                [m, n, k, row, m * row, n * k, of_n, of_k, m * n].map(|n| n as i32);
            let call = batched_matmul_bias_gelu::<128, 128, 32>(
                &x_in,
                &w_in,
                &bias_in,
                out.slot(),
                m_arg,
                n_arg,
                k_arg,
                of_x,
                row_arg,
                1,
                of_w,
                of_n_arg,
                of_k_arg,
                n_arg,
                of_out,
                n_arg,
                1,
            );
            call.grid((n.div_ceil(128), m.div_ceil(128), batch)).launch(&device).unwrap();
            let (x, w) = (Matrix::new(&x, 1), Matrix::new(&w, 1));
            let expected = (0..batch * m * n).map(|i| {
                let (of_batch, row_of, col) = (i / (m * n), i / n % m, i % n);
                let pairs = (0..k).map(|j| {
                    let at_w = of_batch * n * k + col * of_n + j * of_k;
                    (x.at((of_batch * m + row_of) * row + j, 0), w.at(at_w, 0))
                });
                let bias = (bias[of_batch * n + col].to_f64(), 1.0);
                let (value, within) = inner_product(pairs.chain(std::iter::once(bias)));
                gelu(value, within)
            });
            let what = format!("{batch} x {m} x {k} x {n}, gap {gap}, transposed {transposed}, on {device}");
            out.check(&what, &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn taps_that_are_apart_see_zeros_outside() {
    for device in devices() {
        for ([sequences, length, c_in, c_out], [taps, dilation]) in
            [([2, 131, 45, 70], [3, 4]), ([1, 128, 64, 64], [5, 1]), ([1, 37, 130, 20], [4, 20])]
        {
            let x = normal::<f16>(sequences * length * c_in, 1);
            let w = normal::<f16>(taps * c_in * c_out, 2);
            let mut out = Output::<f16>::poisoned(&device, sequences * length * c_out);
            let [x_in, w_in] = [&x, &w].map(|x| device.upload(x).unwrap());
            let [length_arg, c_in_arg, c_out_arg, taps_arg, dilation_arg] =
                [length, c_in, c_out, taps, dilation].map(|n| n as i32);
            let call = conv1d::<128, 64, 64>(
                &x_in,
                &w_in,
                out.slot(),
                length_arg,
                c_in_arg,
                c_out_arg,
                taps_arg,
                dilation_arg,
            );
            call.grid((length.div_ceil(128), c_out.div_ceil(64), sequences)).launch(&device).unwrap();
            let (x, w) = (Matrix::new(&x, c_in), Matrix::new(&w, c_out));
            let expected = (0..sequences * length * c_out).map(|i| {
                let (sequence, step, col) = (i / (length * c_out), i / c_out % length, i % c_out);
                let place = |tap: usize| {
                    let from = (step + tap * dilation).checked_sub(taps / 2 * dilation)?;
                    (from < length).then_some((tap, sequence * length + from))
                };
                let places: Vec<(usize, usize)> = (0..taps).filter_map(place).collect();
                let pairs = places.iter().flat_map(|&(tap, row)| {
                    let (x, w) = (&x, &w);
                    (0..c_in).map(move |j| (x.at(row, j), w.at(tap * c_in + j, col)))
                });
                let (value, within) = inner_product(pairs);
                Expected::rounded::<f16>(value, within)
            });
            let what =
                format!("{sequences} x {length} x {c_in} to {c_out}, {taps} by {dilation} on {device}");
            out.check(&what, &expected.collect::<Vec<_>>());
        }
    }
}

/// Rows and columns of a matrix that is made orthogonal.
const SIZE: usize = 64;
/// The coefficients of Muon.
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];

/// The product of two square matrices, of which the second one is given by row and column.
fn product(left: &[f64], right: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let element =
        |i: usize| -> f64 { (0..SIZE).map(|j| left[i / SIZE * SIZE + j] * right(j, i % SIZE)).sum() };
    (0..SIZE * SIZE).map(element).collect()
}

/// The iteration in `f64`, with the operands of its products as `operand` makes them.
fn orthogonalized(x: &[f32], operand: fn(f64) -> f64) -> Vec<f64> {
    let [a, b, c] = COEFFICIENTS.map(f64::from);
    let operands = |of: &[f64]| -> Vec<f64> { of.iter().map(|x| operand(*x)).collect() };
    let norm = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() + 1e-7;
    let mut x: Vec<f64> = x.iter().map(|x| f64::from(*x) / norm).collect();
    for _ in 0..5 {
        let narrow = operands(&x);
        let square = product(&narrow, |row, col| narrow[col * SIZE + row]);
        let narrow_square = operands(&square);
        let fourth = product(&narrow_square, |row, col| narrow_square[row * SIZE + col]);
        let change: Vec<f64> = square.iter().zip(fourth).map(|(square, of)| b * square + c * of).collect();
        let added = product(&operands(&change), |row, col| narrow[row * SIZE + col]);
        x = x.iter().zip(added).map(|(x, added)| a * x + added).collect();
    }
    x
}

#[test]
fn matrices_become_nearly_orthogonal() {
    let [a, b, c] = COEFFICIENTS;
    for device in devices() {
        for (count, scale) in [(3, 1.0), (1, 100.0), (2, 0.001)] {
            let given = normal::<f32>(count * SIZE * SIZE, 1);
            let x: Vec<f32> = given.into_iter().map(|x| scale * x).collect();
            let mut out = Output::<f32>::poisoned(&device, x.len());
            let x_in = device.upload(&x).unwrap();
            newton_schulz::<64>(&x_in, out.slot(), a, b, c).grid(count).launch(&device).unwrap();
            let of_all = |operand: fn(f64) -> f64| -> Vec<f64> {
                x.chunks(SIZE * SIZE).flat_map(|matrix| orthogonalized(matrix, operand)).collect()
            };
            let (exact, narrow) = (of_all(|x| x), of_all(|x| f16::from_f64(x).to_f64()));
            let squares: f64 =
                exact.iter().zip(&narrow).map(|(exact, narrow)| (exact - narrow).powi(2)).sum();
            // What rounding to `f16` changes is spread over all elements, by a factor of up to 10 from its root mean square.
            let within = 16.0 * (squares / x.len() as f64).sqrt();
            assert!(within < 0.01, "an error of {within} beside elements of 1/8");
            let expected: Vec<Expected> = exact.iter().map(|&value| Expected { value, within }).collect();
            out.check(&format!("{count} times {scale} on {device}"), &expected);
        }
    }
}

#[test]
fn windows_have_a_bias_for_each_distance() {
    const D: usize = 32;
    let scale = (D as f32).powf(-0.5);
    for device in devices() {
        for (windows, heads, side) in [(3, 2, 7usize), (2, 3, 5), (1, 1, 8)] {
            let (tokens, distances) = (side * side, (2 * side - 1) * (2 * side - 1));
            let qkv = normal::<f16>(windows * tokens * 3 * heads * D, 1);
            let table = normal::<f16>(distances * heads, 2);
            let index = integers::<i32>(tokens * tokens, 0..distances as i64, 3);
            let mut out = Output::<f16>::poisoned(&device, windows * tokens * heads * D);
            let [qkv_in, table_in] = [&qkv, &table].map(|x| device.upload(x).unwrap());
            let index_in = device.upload(&index).unwrap();
            let [heads_arg, tokens_arg] = [heads, tokens].map(|n| n as i32);
            window_attention::<32, 64>(
                &qkv_in,
                &table_in,
                &index_in,
                out.slot(),
                scale,
                heads_arg,
                tokens_arg,
            )
            .grid((heads, windows))
            .launch(&device)
            .unwrap();
            let (qkv, table) = (Matrix::new(&qkv, D), Matrix::new(&table, heads));
            let mut expected = vec![];
            for row in 0..windows * tokens * heads {
                let (window, place, head) = (row / (tokens * heads), row / heads % tokens, row % heads);
                let of = |part: usize, place: usize| {
                    qkv.row(((window * tokens + place) * 3 + part) * heads + head)
                };
                let score = |key: usize| -> (f64, f64) {
                    let pairs = of(0, place).iter().zip(of(1, key)).map(|(q, k)| (*q, *k));
                    let (value, within) = inner_product(pairs);
                    let bias = table.at(index[place * tokens + key] as usize, head);
                    let sum = value * f64::from(scale) + bias;
                    (sum, within * f64::from(scale) + 4.0 * SINGLE * (sum.abs() + bias.abs()))
                };
                let scores: Vec<(f64, f64)> = (0..tokens).map(score).collect();
                let peak = scores.iter().map(|(score, _)| *score).fold(f64::NEG_INFINITY, f64::max);
                let moved = scores.iter().map(|(_, within)| *within).fold(0.0, f64::max);
                let powers: Vec<f64> = scores.iter().map(|(score, _)| (score - peak).exp()).collect();
                let total: f64 = powers.iter().sum();
                // A weight is rounded to `f16`, of which the smallest ones are multiples of 2^-24.
                let relative = 1.0 / 2048.0 + 2.0 * moved + (tokens as f64 + 64.0) * 2.0 * SINGLE;
                for dim in 0..D {
                    let values = || (0..tokens).map(|key| of(2, key)[dim]);
                    let value: f64 = powers.iter().zip(values()).map(|(p, v)| p * v).sum();
                    let size: f64 = powers.iter().zip(values()).map(|(p, v)| p * v.abs()).sum();
                    let smallest: f64 = values().map(|v| 2f64.powi(-24) * v.abs()).sum();
                    let within = (relative * size + smallest) / total;
                    expected.push(Expected::rounded::<f16>(value / total, within));
                }
            }
            out.check(&format!("{windows} x {tokens} x {heads} on {device}"), &expected);
        }
    }
}

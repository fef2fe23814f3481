//! [`fuse_ports::products`].

use dsl_runtime::prelude::*;
use fuse_ports::products::{expert_matmul, lora, matmul, weight_gradient};

use crate::data::{
    Expected, Matrix, Output, devices, inner_product, integers, matmul as exact_matmul, normal,
};

#[test]
fn matmul_of_any_strides_with_leaky_relu() {
    for device in devices() {
        for (m, n, k, transposed) in [(131, 77, 45, false), (70, 270, 33, true), (256, 256, 128, false)] {
            let (a, b) = (normal::<bf16>(m * k, 1), normal::<bf16>(k * n, 2));
            let mut c = Output::poisoned(&device, m * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            let (b_k, b_n) = if transposed { (1, k) } else { (n, 1) };
            let [m_arg, n_arg, k_arg, b_k_arg, b_n_arg] = [m, n, k, b_k, b_n].map(|n| n as i32);
            matmul::<128, 256, 64, 8>(
                &a_in,
                &b_in,
                c.slot(),
                m_arg,
                n_arg,
                k_arg,
                k_arg,
                1,
                b_k_arg,
                b_n_arg,
                n_arg,
                1,
            )
            .grid(m.div_ceil(128) * n.div_ceil(256))
            .launch(&device)
            .unwrap();
            let a = Matrix::new(&a, k);
            let mut expected = vec![];
            for i in 0..m * n {
                let (row, col) = (i / n, i % n);
                let pairs = (0..k).map(|j| (a.at(row, j), b[j * b_k + col * b_n].to_f64()));
                let (value, within) = inner_product(pairs);
                let value = if value >= 0.0 { value } else { 0.01 * value };
                expected.push(Expected::rounded::<bf16>(value, within));
            }
            c.check(&format!("{m} x {k} x {n}, transposed {transposed}, on {device}"), &expected);
        }
    }
}

/// The entries of tokens by their expert, those of one filled up to whole tiles, and the expert of each tile.
pub fn sorted_by_expert(chosen: &[i32], experts: i32, tile: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut sorted, mut tiles) = (vec![], vec![]);
    for expert in 0..experts {
        let entries = (0..chosen.len()).filter(|&i| chosen[i] == expert).map(|i| i as i32);
        sorted.extend(entries);
        sorted.resize(sorted.len().next_multiple_of(tile), chosen.len() as i32);
        tiles.resize(sorted.len() / tile, expert);
    }
    (sorted, tiles)
}

#[test]
fn rows_are_multiplied_by_the_matrix_of_their_expert() {
    for device in devices() {
        for (tokens, top_k, experts, n, k) in [(37, 2, 3, 70, 45), (128, 1, 2, 128, 64)] {
            let (a, b) = (normal::<bf16>(tokens * k, 1), normal::<bf16>(experts * n * k, 2));
            let chosen = integers::<i32>(tokens * top_k, 0..experts as i64, 3);
            let (sorted, tiles) = sorted_by_expert(&chosen, experts as i32, 64);
            let mut c = Output::poisoned(&device, tokens * top_k * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            let [sorted_in, tiles_in] = [&sorted, &tiles].map(|x| device.upload(x).unwrap());
            let [n_arg, k_arg, padded, valid, top_k_arg, of_expert] =
                [n, k, sorted.len(), chosen.len(), top_k, n * k].map(|n| n as i32);
            expert_matmul::<64, 128, 64, 8>(
                &a_in,
                &b_in,
                c.slot(),
                &sorted_in,
                &tiles_in,
                n_arg,
                k_arg,
                padded,
                valid,
                top_k_arg,
                k_arg,
                1,
                of_expert,
                1,
                k_arg,
                n_arg,
                1,
            )
            .grid(tiles.len() * n.div_ceil(128))
            .launch(&device)
            .unwrap();
            let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, k));
            let mut expected = vec![];
            for (i, expert) in chosen.iter().enumerate() {
                for col in 0..n {
                    let (left, right) = (a.row(i / top_k), b.row(*expert as usize * n + col));
                    let (value, within) = inner_product(left.iter().copied().zip(right.iter().copied()));
                    expected.push(Expected::rounded::<bf16>(value, within));
                }
            }
            c.check(&format!("{tokens} x {top_k} x {k} x {n} on {device}"), &expected);
        }
    }
}

#[test]
fn lora_multiplies_through_a_small_rank() {
    let scale = 0.5f32;
    for device in devices() {
        for (m, n, k) in [(67, 150, 99), (64, 128, 128)] {
            let (x, a, b) = (normal::<bf16>(m * k, 1), normal::<bf16>(k * 16, 2), normal::<bf16>(16 * n, 3));
            let mut out = Output::poisoned(&device, m * n);
            let [x_in, a_in, b_in] = [&x, &a, &b].map(|x| device.upload(x).unwrap());
            lora::<64, 128, 64, 16>(&x_in, &a_in, &b_in, out.slot(), m as i32, n as i32, k as i32, scale)
                .grid(m.div_ceil(64))
                .launch(&device)
                .unwrap();
            let (x, a, b) = (Matrix::new(&x, k), Matrix::new(&a, 16), Matrix::new(&b, n));
            let mut expected = vec![];
            for row in 0..m {
                let small: Vec<(f64, f64)> = (0..16)
                    .map(|rank| {
                        let (value, within) = inner_product((0..k).map(|j| (x.at(row, j), a.at(j, rank))));
                        (value * f64::from(scale), within + value.abs() / 256.0)
                    })
                    .collect();
                for col in 0..n {
                    let pairs = small.iter().enumerate().map(|(rank, (value, _))| (*value, b.at(rank, col)));
                    let (value, within) = inner_product(pairs);
                    let moved =
                        small.iter().enumerate().map(|(rank, (_, moved))| moved * b.at(rank, col).abs());
                    expected.push(Expected::rounded::<bf16>(value, within + moved.sum::<f64>()));
                }
            }
            out.check(&format!("{m} x {k} x {n} on {device}"), &expected);
        }
    }
}

#[test]
fn a_weight_gradient_sums_along_rows_of_both_operands() {
    for device in devices() {
        for (m, n, k) in [(131, 77, 45), (70, 150, 130), (128, 128, 128)] {
            let (a, b) = (normal::<bf16>(k * m, 1), normal::<bf16>(k * n, 2));
            let mut c = Output::<bf16>::poisoned(&device, m * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            weight_gradient::<128, 128, 64>(&a_in, &b_in, c.slot(), m as i32, n as i32, k as i32)
                .grid((m.div_ceil(128), n.div_ceil(128)))
                .launch(&device)
                .unwrap();
            let (a, b) = (Matrix::new(&a, m), Matrix::new(&b, n));
            let expected = exact_matmul::<bf16>([m, n, k], |i, j| a.at(j, i), |j, i| b.at(j, i));
            c.check(&format!("{m} x {n} of {k} rows on {device}"), &expected);
        }
    }
}

//! [`fuse_ports::indexed`].

use dsl_runtime::prelude::*;
use fuse_ports::indexed::{block_sparse_matmul, csr_matmul, expert_down, expert_gate_up};

use crate::data::{Expected, Matrix, Output, SINGLE, devices, inner_product, integers, matmul, normal};
use crate::products::sorted_by_expert;

#[test]
fn blocks_are_multiplied_by_the_rows_of_their_column() {
    for device in devices() {
        for (columns, n) in [(vec![vec![2, 0], vec![], vec![1]], 150), (vec![vec![0, 1, 2]], 128)] {
            let mut starts = vec![0];
            starts.extend(columns.iter().scan(0, |end, row| {
                *end += row.len() as i32;
                Some(*end)
            }));
            let flat: Vec<i32> = columns.concat();
            let (values, b) = (normal::<bf16>(flat.len() * 64 * 64, 1), normal::<bf16>(3 * 64 * n, 2));
            let mut out = Output::<bf16>::poisoned(&device, columns.len() * 64 * n);
            let [values_in, b_in] = [&values, &b].map(|x| device.upload(x).unwrap());
            let [flat_in, starts_in] = [&flat, &starts].map(|x| device.upload(x).unwrap());
            block_sparse_matmul::<64, 128>(&values_in, &flat_in, &starts_in, &b_in, out.slot(), n as i32)
                .grid((columns.len(), n.div_ceil(128)))
                .launch(&device)
                .unwrap();
            let (values, b) = (Matrix::new(&values, 64), Matrix::new(&b, n));
            let mut expected = vec![];
            for (row, of_row) in columns.iter().enumerate() {
                let first = starts[row] as usize;
                let left = |i: usize, j: usize| values.at((first + j / 64) * 64 + i, j % 64);
                let right = |j: usize, col: usize| b.at(of_row[j / 64] as usize * 64 + j % 64, col);
                expected.extend(matmul::<bf16>([64, n, of_row.len() * 64], left, right));
            }
            out.check(&format!("{columns:?} times {n} columns on {device}"), &expected);
        }
    }
}

#[test]
fn weighted_rows_of_experts_are_added_up() {
    for device in devices() {
        for (tokens, top_k, experts, n, k) in [(37, 2, 3, 70, 45), (64, 2, 2, 128, 64)] {
            let (a, b) = (normal::<bf16>(tokens * top_k * k, 1), normal::<bf16>(experts * n * k, 2));
            let chosen = integers::<i32>(tokens * top_k, 0..experts as i64, 3);
            let weights = normal::<f32>(chosen.len(), 4);
            let (sorted, tiles) = sorted_by_expert(&chosen, experts as i32, 64);
            let mut out = Output::<f32>::of(&device, &vec![0.0; tokens * n]);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            let [sorted_in, tiles_in] = [&sorted, &tiles].map(|x| device.upload(x).unwrap());
            let weights_in = device.upload(&weights).unwrap();
            let [n_arg, k_arg, valid, top_k_arg] = [n, k, chosen.len(), top_k].map(|n| n as i32);
            let call = expert_down::<64, 128, 64>(
                &a_in,
                &b_in,
                out.slot(),
                &sorted_in,
                &tiles_in,
                &weights_in,
                n_arg,
                k_arg,
                valid,
                top_k_arg,
            );
            call.grid((tiles.len(), n.div_ceil(128))).launch(&device).unwrap();
            let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, k));
            let mut expected = vec![Expected { value: 0.0, within: 0.0 }; tokens * n];
            for (i, expert) in chosen.iter().enumerate() {
                let weight = f64::from(weights[i]);
                for col in 0..n {
                    let right = b.row(*expert as usize * n + col);
                    let (value, within) = inner_product(a.row(i).iter().copied().zip(right.iter().copied()));
                    let sum = &mut expected[i / top_k * n + col];
                    sum.value += value * weight;
                    sum.within += (within + top_k as f64 * 2.0 * SINGLE * value.abs()) * weight.abs();
                }
            }
            out.check(&format!("{tokens} x {top_k} x {k} x {n} on {device}"), &expected);
        }
    }
}

#[test]
fn elements_of_a_sparse_row_weight_the_rows_of_their_columns() {
    let k = 50;
    for device in devices() {
        for (lengths, n) in [(vec![3, 0, 40, 16, 17], 70), (vec![16, 32], 64)] {
            let starts: Vec<i32> = (0..=lengths.len()).map(|row| lengths[..row].iter().sum()).collect();
            let count = lengths.iter().sum::<i32>() as usize;
            let (values, b) = (normal::<f32>(count, 1), normal::<f32>(k * n, 2));
            let columns = integers::<i32>(count, 0..k as i64, 3);
            let mut out = Output::<f32>::poisoned(&device, lengths.len() * n);
            let [values_in, b_in] = [&values, &b].map(|x| device.upload(x).unwrap());
            let [columns_in, starts_in] = [&columns, &starts].map(|x| device.upload(x).unwrap());
            csr_matmul::<16, 64>(&values_in, &columns_in, &starts_in, &b_in, out.slot(), n as i32)
                .grid((lengths.len(), n.div_ceil(64)))
                .launch(&device)
                .unwrap();
            let b = Matrix::new(&b, n);
            let expected = (0..lengths.len() * n).map(|i| {
                let elements = starts[i / n] as usize..starts[i / n + 1] as usize;
                let term = |at: usize| (f64::from(values[at]), b.at(columns[at] as usize, i % n));
                let (value, within) = inner_product(elements.map(term));
                Expected { value, within }
            });
            out.check(&format!("{lengths:?} x {n} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_gate_opens_the_rows_of_experts() {
    for device in devices() {
        for (tokens, top_k, experts, n, k) in [(37, 2, 3, 70, 45), (64, 2, 2, 64, 64)] {
            let (a, b) = (normal::<bf16>(tokens * k, 1), normal::<bf16>(experts * 2 * n * k, 2));
            let chosen = integers::<i32>(tokens * top_k, 0..experts as i64, 3);
            let (sorted, tiles) = sorted_by_expert(&chosen, experts as i32, 64);
            let mut out = Output::<bf16>::poisoned(&device, chosen.len() * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            let [sorted_in, tiles_in] = [&sorted, &tiles].map(|x| device.upload(x).unwrap());
            let [n_arg, k_arg, valid, top_k_arg] = [n, k, chosen.len(), top_k].map(|n| n as i32);
            let call = expert_gate_up::<64, 64, 64>(
                &a_in,
                &b_in,
                out.slot(),
                &sorted_in,
                &tiles_in,
                n_arg,
                k_arg,
                valid,
                top_k_arg,
            );
            call.grid((tiles.len(), n.div_ceil(64))).launch(&device).unwrap();
            let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, k));
            let expected = (0..chosen.len() * n).map(|i| {
                let gate = chosen[i / n] as usize * 2 * n + i % n;
                let [(g, g_within), (u, u_within)] = [gate, gate + n].map(|row| {
                    inner_product(a.row(i / n / top_k).iter().copied().zip(b.row(row).iter().copied()))
                });
                let silu = g / (1.0 + (-g).exp());
                // No slope of the gate is above 1.1.
                let moved = silu.abs() * u_within + 1.1 * g_within * (u.abs() + u_within);
                Expected::rounded::<bf16>(silu * u, moved + 16.0 * SINGLE * (silu * u).abs())
            });
            out.check(&format!("{tokens} x {top_k} x {k} x {n} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

//! [`fuse_ports::movement`].

use dsl_runtime::prelude::*;
use fuse_ports::movement::{copy_pages, permute4, stencil, transpose};

use crate::data::{Expected, Matrix, Output, SINGLE, devices, integers, normal};

#[test]
fn a_matrix_is_transposed_by_its_strides() {
    for device in devices() {
        for (m, n) in [(67, 131), (1, 5), (128, 64)] {
            let x = normal::<bf16>(m * n, 1);
            let mut out = Output::<bf16>::poisoned(&device, m * n);
            let x_in = device.upload(&x).unwrap();
            let [m_arg, n_arg] = [m, n].map(|n| n as i32);
            transpose::<64, 64>(&x_in, out.slot(), m_arg, n_arg, n_arg, 1, 1, m_arg)
                .grid((m.div_ceil(64), n.div_ceil(64)))
                .launch(&device)
                .unwrap();
            let expected: Vec<Expected> = (0..m * n).map(|i| Expected::exact(x[i % m * n + i / m])).collect();
            out.check(&format!("{m} x {n} on {device}"), &expected);
        }
    }
}

#[test]
fn pages_are_gathered_by_the_table() {
    for device in devices() {
        for (sequences, length, dim) in [(3, 37usize, 300), (2, 32, 256)] {
            let (pages, max_pages) = (20, length.div_ceil(16) + 1);
            let cache = normal::<bf16>(pages * 16 * dim, 1);
            let table = integers::<i32>(sequences * max_pages, 0..pages as i64, 2);
            let mut out = Output::<bf16>::poisoned(&device, sequences * length * dim);
            let (cache_in, table_in) = (device.upload(&cache).unwrap(), device.upload(&table).unwrap());
            let [length_arg, max_arg, dim_arg] = [length, max_pages, dim].map(|n| n as i32);
            copy_pages::<256>(&cache_in, &table_in, out.slot(), length_arg, max_arg, dim_arg)
                .grid((length.div_ceil(16), sequences))
                .launch(&device)
                .unwrap();
            let mut expected = vec![];
            for row in 0..sequences * length {
                let (sequence, position) = (row / length, row % length);
                let page = table[sequence * max_pages + position / 16] as usize;
                let found = &cache[(page * 16 + position % 16) * dim..][..dim];
                expected.extend(found.iter().map(|x| Expected::exact(*x)));
            }
            out.check(&format!("{sequences} x {length} x {dim} on {device}"), &expected);
        }
    }
}

#[test]
fn four_axes_are_exchanged_by_strides() {
    for device in devices() {
        for (shape, axes) in
            [([3, 5, 7, 11], [0, 2, 1, 3]), ([2, 6, 9, 10], [0, 2, 3, 1]), ([4, 2, 8, 16], [3, 1, 0, 2])]
        {
            let total = shape.iter().product::<usize>();
            let strides = [3, 2, 1, 0].map(|after| shape[4 - after..].iter().product::<usize>());
            let (extents, steps) = (axes.map(|axis: usize| shape[axis]), axes.map(|axis| strides[axis]));
            let x = normal::<bf16>(total, 1);
            let mut out = Output::<bf16>::poisoned(&device, total);
            let x_in = device.upload(&x).unwrap();
            let [_, n1, n2, n3] = extents.map(|n| n as i32);
            let [s0, s1, s2, s3] = steps.map(|n| n as i32);
            permute4::<1024>(&x_in, out.slot(), total as i32, n1, n2, n3, s0, s1, s2, s3)
                .grid(total.div_ceil(1024))
                .launch(&device)
                .unwrap();
            let place = |i: usize| -> usize {
                (0..4)
                    .rev()
                    .fold((i, 0), |(rest, at), axis| {
                        (rest / extents[axis], at + rest % extents[axis] * steps[axis])
                    })
                    .1
            };
            let expected: Vec<Expected> = (0..total).map(|i| Expected::exact(x[place(i)])).collect();
            out.check(&format!("{shape:?} as {axes:?} on {device}"), &expected);
        }
    }
}

#[test]
fn the_stencil_takes_zeros_outside() {
    let k = 0.1f32;
    for device in devices() {
        for (m, n) in [(19, 131), (1, 1), (32, 128)] {
            let x = normal::<f32>(m * n, 1);
            let mut out = Output::<f32>::poisoned(&device, m * n);
            let x_in = device.upload(&x).unwrap();
            stencil::<16, 128>(&x_in, out.slot(), m as i32, n as i32, k)
                .grid((m.div_ceil(16), n.div_ceil(128)))
                .launch(&device)
                .unwrap();
            let x = Matrix::new(&x, n);
            let at = |row: Option<usize>, col: Option<usize>| match (row, col) {
                (Some(row), Some(col)) if row < m && col < n => x.at(row, col),
                _ => 0.0,
            };
            let expected = (0..m * n).map(|i| {
                let (row, col) = (i / n, i % n);
                let around = [
                    at(row.checked_sub(1), Some(col)),
                    at(Some(row + 1), Some(col)),
                    at(Some(row), col.checked_sub(1)),
                    at(Some(row), Some(col + 1)),
                ];
                let center = x.at(row, col);
                let value = center + f64::from(k) * (around.iter().sum::<f64>() - 4.0 * center);
                let size = center.abs() + around.iter().map(|x| x.abs()).sum::<f64>();
                Expected { value, within: 8.0 * SINGLE * size }
            });
            out.check(&format!("{m} x {n} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

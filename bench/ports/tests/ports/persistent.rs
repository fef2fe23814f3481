//! [`fuse_ports::persistent`].

use std::iter::once;

use dsl_runtime::prelude::*;
use fuse_ports::persistent::{
    grouped_matmul, persistent_matmul, persistent_matmul_by_views, split_k_matmul, stream_k_matmul,
};

use crate::data::{Expected, Matrix, Output, devices, inner_product, matmul, normal};

/// What `c` is once `a · b` was added to it.
fn added(before: &[f32], [a, b]: [&[bf16]; 2], n: usize, k: usize) -> Vec<Expected> {
    let (a, b) = (Matrix::new(a, k), Matrix::new(b, n));
    let sum = |(i, before): (usize, &f32)| {
        let pairs = (0..k).map(|j| (a.at(i / n, j), b.at(j, i % n)));
        let (value, within) = inner_product(pairs.chain(once((f64::from(*before), 1.0))));
        Expected { value, within }
    };
    before.iter().enumerate().map(sum).collect()
}

#[test]
fn programs_that_share_a_tile_add_their_sums() {
    for device in devices() {
        for (m, n, k) in [(131, 77, 700), (20, 150, 45), (128, 128, 1024)] {
            let (a, b) = (normal::<bf16>(m * k, 1), normal::<bf16>(k * n, 2));
            let before = normal::<f32>(m * n, 3);
            let mut c = Output::of(&device, &before);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            split_k_matmul::<128, 128, 64, 8>(&a_in, &b_in, c.slot(), m as i32, n as i32, k as i32)
                .grid((m.div_ceil(128), n.div_ceil(128), 8))
                .launch(&device)
                .unwrap();
            c.check(&format!("{m} x {k} x {n} on {device}"), &added(&before, [&a, &b], n, k));
        }
    }
}

#[test]
fn programs_take_equal_shares_of_all_blocks() {
    for device in devices() {
        for (m, n, k, programs) in [(131, 77, 700, 5), (20, 150, 45, 7), (256, 128, 256, 3)] {
            let (a, b) = (normal::<bf16>(m * k, 1), normal::<bf16>(k * n, 2));
            let before = normal::<f32>(m * n, 3);
            let mut c = Output::of(&device, &before);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            stream_k_matmul::<128, 128, 64>(&a_in, &b_in, c.slot(), m as i32, n as i32, k as i32)
                .grid(programs)
                .launch(&device)
                .unwrap();
            let what = format!("{m} x {k} x {n} by {programs} programs on {device}");
            c.check(&what, &added(&before, [&a, &b], n, k));
        }
    }
}

#[test]
fn a_persistent_program_makes_several_tiles() {
    for device in devices() {
        for (m, n, k, programs) in [(300, 270, 45, 4), (131, 77, 130, 7), (256, 512, 128, 3)] {
            let (a, b) = (normal::<bf16>(m * k, 1), normal::<bf16>(k * n, 2));
            let mut c = Output::<bf16>::poisoned(&device, m * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            persistent_matmul::<128, 256, 64, 8>(&a_in, &b_in, c.slot(), m as i32, n as i32, k as i32)
                .grid(programs)
                .launch(&device)
                .unwrap();
            let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, n));
            let expected = matmul::<bf16>([m, n, k], |row, j| a.at(row, j), |j, col| b.at(j, col));
            c.check(&format!("{m} x {k} x {n} by {programs} programs on {device}"), &expected);
        }
    }
}

#[test]
fn a_persistent_program_takes_views() {
    for device in devices() {
        for (m, n, k, programs) in [(300, 270, 45, 4), (131, 77, 136, 7), (256, 512, 128, 3)] {
            let (a, b) = (normal::<bf16>(m * k, 1), normal::<bf16>(n * k, 2));
            let mut c = Output::<bf16>::poisoned(&device, m * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            let (a_view, b_view) = (a_in.view([m, k]).unwrap(), b_in.view([n, k]).unwrap());
            let mut slot = c.slot();
            persistent_matmul_by_views::<128, 256, 64, 8>(a_view, b_view, slot.view_mut([m, n]).unwrap())
                .grid(programs)
                .launch(&device)
                .unwrap();
            let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, k));
            let expected = matmul::<bf16>([m, n, k], |row, j| a.at(row, j), |j, col| b.at(col, j));
            c.check(&format!("{m} x {k} x {n} by {programs} programs on {device}"), &expected);
        }
    }
}

#[test]
fn groups_of_different_sizes_share_the_programs() {
    for device in devices() {
        for (sizes, n, k, programs) in
            [(vec![1, 0, 131, 200], 150, 45, 3), (vec![20], 77, 130, 5), (vec![128, 256], 128, 64, 2)]
        {
            let rows = sizes.iter().sum::<i32>() as usize;
            let starts: Vec<i32> = (0..sizes.len()).map(|group| sizes[..group].iter().sum()).collect();
            let (a, b) = (normal::<bf16>(rows * k, 1), normal::<bf16>(sizes.len() * k * n, 2));
            let mut c = Output::<bf16>::poisoned(&device, rows * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            let [sizes_in, starts_in] = [&sizes, &starts].map(|x| device.upload(x).unwrap());
            let [groups, n_arg, k_arg] = [sizes.len(), n, k].map(|n| n as i32);
            let call = grouped_matmul::<128, 128, 64>(
                &a_in,
                &b_in,
                c.slot(),
                &sizes_in,
                &starts_in,
                groups,
                n_arg,
                k_arg,
            );
            call.grid(programs).launch(&device).unwrap();
            let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, n));
            let mut expected = vec![];
            for (group, (size, start)) in sizes.iter().zip(&starts).enumerate() {
                let left = |row: usize, j: usize| a.at(*start as usize + row, j);
                let right = |j: usize, col: usize| b.at(group * k + j, col);
                expected.extend(matmul::<bf16>([*size as usize, n, k], left, right));
            }
            c.check(&format!("{sizes:?} x {k} x {n} by {programs} programs on {device}"), &expected);
        }
    }
}

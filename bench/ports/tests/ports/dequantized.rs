//! [`fuse_ports::dequantized`].

use dsl_runtime::prelude::*;
use fuse_ports::dequantized::{fp8_matmul, int4_matmul, int8_matmul, ternary_matmul, w8a16_matmul};

use crate::data::{Expected, Matrix, Output, SINGLE, devices, inner_product, integers, matmul, normal};

fn check_int4<const M: usize>([m, n, k, group]: [usize; 4])
where
    int4_matmul::Choice<M, 128, 64>: int4_matmul::Declared,
{
    for device in devices() {
        let a = normal::<bf16>(m * k, 1);
        let packed = integers::<i32>(k / 8 * n, i64::from(i32::MIN)..i64::from(i32::MAX), 2);
        let scales = normal::<bf16>(k.div_ceil(group) * n, 3);
        let mut c = Output::poisoned(&device, m * n);
        let [a_in, scales_in] = [&a, &scales].map(|x| device.upload(x).unwrap());
        let packed_in = device.upload(&packed).unwrap();
        let [m_arg, n_arg, k_arg, group_arg] = [m, n, k, group].map(|n| n as i32);
        let call = int4_matmul::<M, 128, 64>(
            &a_in,
            &packed_in,
            &scales_in,
            c.slot(),
            m_arg,
            n_arg,
            k_arg,
            group_arg,
        );
        call.grid((m.div_ceil(M), n.div_ceil(128))).launch(&device).unwrap();
        let (a, scales) = (Matrix::new(&a, k), Matrix::new(&scales, n));
        let weight = |row: usize, col: usize| {
            let nibble = packed[row / 8 * n + col] >> (row % 8 * 4) & 15;
            bf16::from_f64(f64::from(nibble - 8) * scales.at(row / group, col)).to_f64()
        };
        let expected = (0..m * n).map(|i| {
            let (row, col) = (i / n, i % n);
            let (value, within) = inner_product((0..k).map(|j| (a.at(row, j), weight(j, col))));
            Expected::rounded::<bf16>(value, within)
        });
        c.check(&format!("{m} x {k} x {n} in groups of {group} on {device}"), &expected.collect::<Vec<_>>());
    }
}

#[test]
fn int4_weights_have_a_scale_for_each_group() {
    check_int4::<16>([5, 131, 72, 24]);
    check_int4::<16>([16, 128, 128, 64]);
    check_int4::<128>([130, 70, 136, 32]);
}

#[test]
fn fp8_weights_have_a_scale_for_each_block() {
    for device in devices() {
        for (m, n, k) in [(67, 150, 200), (128, 128, 128)] {
            let a = normal::<bf16>(m * k, 1);
            let w: Vec<f8e4m3> = normal::<f32>(n * k, 2).into_iter().map(f8e4m3::from_f32).collect();
            let blocks = k.div_ceil(128);
            let scales = normal::<f32>(n.div_ceil(128) * blocks, 3);
            let mut c = Output::poisoned(&device, m * n);
            let (a_in, w_in) = (device.upload(&a).unwrap(), device.upload(&w).unwrap());
            let scales_in = device.upload(&scales).unwrap();
            fp8_matmul::<128, 128, 64>(&a_in, &w_in, &scales_in, c.slot(), m as i32, n as i32, k as i32)
                .grid((m.div_ceil(128), n.div_ceil(128)))
                .launch(&device)
                .unwrap();
            let a = Matrix::new(&a, k);
            let weight = |row: usize, col: usize| {
                let scaled = w[row * k + col].to_f32() * scales[row / 128 * blocks + col / 128];
                bf16::from_f32(scaled).to_f64()
            };
            let expected = (0..m * n).map(|i| {
                let (row, col) = (i / n, i % n);
                let (value, within) = inner_product((0..k).map(|j| (a.at(row, j), weight(col, j))));
                Expected::rounded::<bf16>(value, within)
            });
            c.check(&format!("{m} x {k} x {n} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

fn check_int8<const M: usize>([m, n, k]: [usize; 3])
where
    int8_matmul::Choice<M, 128, 64>: int8_matmul::Declared,
{
    for device in devices() {
        let a = normal::<bf16>(m * k, 1);
        let w = integers::<i8>(n * k, -128..128, 2);
        let scales = normal::<f32>(n, 3);
        let mut c = Output::<bf16>::poisoned(&device, m * n);
        let (a_in, w_in) = (device.upload(&a).unwrap(), device.upload(&w).unwrap());
        let scales_in = device.upload(&scales).unwrap();
        int8_matmul::<M, 128, 64>(&a_in, &w_in, &scales_in, c.slot(), m as i32, n as i32, k as i32)
            .grid((m.div_ceil(M), n.div_ceil(128)))
            .launch(&device)
            .unwrap();
        let (a, w) = (Matrix::new(&a, k), Matrix::new(&w, k));
        let scaled = |j: usize, col: usize| w.at(col, j) * f64::from(scales[col]);
        let expected = matmul::<bf16>([m, n, k], |row, j| a.at(row, j), scaled);
        c.check(&format!("{m} x {k} x {n} on {device}"), &expected);
    }
}

#[test]
fn int8_weights_have_a_scale_for_each_column() {
    check_int8::<16>([5, 131, 72]);
    check_int8::<16>([16, 128, 128]);
    check_int8::<128>([130, 70, 45]);
    check_int8::<128>([128, 128, 64]);
}

fn check_w8a16<const M: usize>([m, n, k]: [usize; 3])
where
    w8a16_matmul::Choice<M, 128, 64>: w8a16_matmul::Declared,
{
    for device in devices() {
        let a = normal::<bf16>(m * k, 1);
        let w = integers::<i8>(k * n, -128..128, 2);
        let scales = normal::<f32>(n, 3);
        let mut c = Output::<bf16>::poisoned(&device, m * n);
        let (a_in, w_in) = (device.upload(&a).unwrap(), device.upload(&w).unwrap());
        let scales_in = device.upload(&scales).unwrap();
        w8a16_matmul::<M, 128, 64>(&a_in, &w_in, &scales_in, c.slot(), m as i32, n as i32, k as i32)
            .grid((m.div_ceil(M), n.div_ceil(128)))
            .launch(&device)
            .unwrap();
        let (a, w) = (Matrix::new(&a, k), Matrix::new(&w, n));
        let scaled = |j: usize, col: usize| w.at(j, col) * f64::from(scales[col]);
        let expected = matmul::<bf16>([m, n, k], |row, j| a.at(row, j), scaled);
        c.check(&format!("{m} x {k} x {n} on {device}"), &expected);
    }
}

#[test]
fn int8_weights_are_taken_by_rows_too() {
    check_w8a16::<16>([5, 131, 72]);
    check_w8a16::<16>([16, 128, 128]);
    check_w8a16::<128>([130, 70, 45]);
    check_w8a16::<128>([128, 128, 64]);
}

fn check_ternary<const M: usize>([m, n, k]: [usize; 3])
where
    ternary_matmul::Choice<M, 128, 64>: ternary_matmul::Declared,
{
    let w_scale = 0.03f32;
    for device in devices() {
        let a = integers::<i8>(m * k, -128..128, 1);
        let w = integers::<i8>(n * k, -1..2, 2);
        let packed: Vec<u8> =
            w.chunks(4).map(|of| of.iter().rev().fold(0, |byte, w| byte << 2 | (w + 1) as u8)).collect();
        let a_scales = normal::<f32>(m, 3);
        let mut c = Output::<bf16>::poisoned(&device, m * n);
        let (a_in, packed_in) = (device.upload(&a).unwrap(), device.upload(&packed).unwrap());
        let scales_in = device.upload(&a_scales).unwrap();
        let [m_arg, n_arg, k_arg] = [m, n, k].map(|n| n as i32);
        let call = ternary_matmul::<M, 128, 64>(
            &a_in,
            &packed_in,
            &scales_in,
            c.slot(),
            w_scale,
            m_arg,
            n_arg,
            k_arg,
        );
        call.grid((m.div_ceil(M), n.div_ceil(128))).launch(&device).unwrap();
        let (a, w) = (Matrix::new(&a, k), Matrix::new(&w, k));
        let expected = (0..m * n).map(|i| {
            let (row, col) = (i / n, i % n);
            let sum: f64 = a.row(row).iter().zip(w.row(col)).map(|(a, w)| a * w).sum();
            let value = sum * f64::from(a_scales[row]) * f64::from(w_scale);
            // The sum is exact, and the scales are multiplied first.
            Expected::rounded::<bf16>(value, 4.0 * SINGLE * value.abs())
        });
        c.check(&format!("{m} x {k} x {n} on {device}"), &expected.collect::<Vec<_>>());
    }
}

#[test]
fn ternary_weights_share_bytes() {
    check_ternary::<16>([5, 131, 72]);
    check_ternary::<16>([16, 128, 128]);
    check_ternary::<128>([130, 70, 44]);
    check_ternary::<128>([128, 128, 64]);
}

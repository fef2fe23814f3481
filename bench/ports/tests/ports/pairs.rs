//! [`fuse_ports::pairs`].

use dsl_runtime::prelude::*;
use fuse_ports::pairs::{box_iou, gram, max_plus, rbf_matvec};

use crate::data::{Expected, Matrix, Output, SINGLE, TINY, devices, matmul, normal};

#[test]
fn a_gram_matrix_is_made_up_to_its_diagonal() {
    for device in devices() {
        for (n, k) in [(131, 45), (300, 130), (256, 128), (7, 1)] {
            let x = normal::<f16>(n * k, 1);
            let before = f16::from_f64(5.0);
            let mut out = Output::of(&device, &vec![before; n * n]);
            let x_in = device.upload(&x).unwrap();
            let tiles = n.div_ceil(128);
            gram::<128, 64>(&x_in, out.slot(), n as i32, k as i32)
                .grid((tiles, tiles))
                .launch(&device)
                .unwrap();
            let x = Matrix::new(&x, k);
            let mut expected = matmul::<f16>([n, n, k], |row, j| x.at(row, j), |j, col| x.at(col, j));
            for (_, of) in expected.iter_mut().enumerate().filter(|(i, _)| i % n > i / n) {
                *of = Expected::exact(before);
            }
            out.check(&format!("{n} x {k} on {device}"), &expected);
        }
    }
}

#[test]
fn gaussian_kernels_are_summed_without_their_matrix() {
    const D: usize = 64;
    let gamma = 1.0 / 128.0f32;
    for device in devices() {
        for (n, m) in [(67, 131), (200, 5), (128, 256)] {
            let (x, z) = (normal::<bf16>(n * D, 1), normal::<bf16>(m * D, 2));
            let w = normal::<f32>(m, 3);
            let mut out = Output::<f32>::poisoned(&device, n);
            let [x_in, z_in] = [&x, &z].map(|x| device.upload(x).unwrap());
            let w_in = device.upload(&w).unwrap();
            rbf_matvec::<64, 128, 128>(&x_in, &z_in, &w_in, out.slot(), gamma, n as i32, m as i32)
                .grid(n.div_ceil(128))
                .launch(&device)
                .unwrap();
            let (x, z) = (Matrix::new(&x, D), Matrix::new(&z, D));
            let square = |of: &[f64]| -> f64 { of.iter().map(|x| x * x).sum() };
            let expected = (0..n).map(|i| {
                let (mut value, mut within) = (0.0, 0.0);
                for (j, w) in w.iter().enumerate() {
                    let (x, z) = (x.row(i), z.row(j));
                    let distance: f64 = x.iter().zip(z).map(|(x, z)| (x - z).powi(2)).sum();
                    let exponent = f64::from(gamma) * distance;
                    let term = (-exponent).exp() * f64::from(*w);
                    // A dot is at most the mean of the squares, and both are sums of `D` terms.
                    let size = f64::from(gamma) * (square(x) + square(z));
                    let moved = (D as f64 + 8.0) * 4.0 * SINGLE * size;
                    let of_sum = (m as f64 + 16.0 + 4.0 * exponent) * 2.0 * SINGLE;
                    value += term;
                    within += term.abs() * (moved + of_sum);
                }
                Expected { value, within: within + TINY }
            });
            out.check(&format!("{n} x {m} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

/// Boxes of positive extents that often overlap.
fn boxes(count: usize, seed: u64) -> Vec<f32> {
    let places = normal::<f32>(count * 4, seed);
    let of_place = |place: &[f32]| {
        let (x, y) = (100.0 * place[0], 100.0 * place[1]);
        [x, y, x + 1.0 + 100.0 * place[2].abs(), y + 1.0 + 100.0 * place[3].abs()]
    };
    places.chunks(4).flat_map(of_place).collect()
}

#[test]
fn boxes_have_an_intersection_over_their_union() {
    for device in devices() {
        for (n, m) in [(67, 131), (1, 5), (64, 256)] {
            let (a, b) = (boxes(n, 1), boxes(m, 2));
            let mut out = Output::<f32>::poisoned(&device, n * m);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            box_iou::<32, 128>(&a_in, &b_in, out.slot(), n as i32, m as i32)
                .grid((n.div_ceil(32), m.div_ceil(128)))
                .launch(&device)
                .unwrap();
            let (a, b) = (Matrix::new(&a, 4), Matrix::new(&b, 4));
            let area = |of: &[f64]| (of[2] - of[0]) * (of[3] - of[1]);
            let expected = (0..n * m).map(|i| {
                let (a, b) = (a.row(i / m), b.row(i % m));
                let along = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
                let common = along(0) * along(1);
                let value = common / (area(a) + area(b) - common);
                // The intersection has 3 roundings, the union 12 of its own size, a quotient is within 2 ULP.
                Expected { value, within: 20.0 * SINGLE * value + TINY }
            });
            out.check(&format!("{n} x {m} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_largest_sum_is_a_product_of_another_semiring() {
    for device in devices() {
        for (m, n, k) in [(45, 67, 13), (1, 3, 1), (64, 32, 40)] {
            let (a, b) = (normal::<f32>(m * k, 1), normal::<f32>(k * n, 2));
            let mut c = Output::<f32>::poisoned(&device, m * n);
            let [a_in, b_in] = [&a, &b].map(|x| device.upload(x).unwrap());
            max_plus::<32, 32, 8>(&a_in, &b_in, c.slot(), m as i32, n as i32, k as i32)
                .grid((m.div_ceil(32), n.div_ceil(32)))
                .launch(&device)
                .unwrap();
            let (a, b) = (Matrix::new(&a, k), Matrix::new(&b, n));
            let expected = (0..m * n).map(|i| {
                let sums = (0..k).map(|j| a.at(i / n, j) + b.at(j, i % n));
                // Rounding keeps the order of the sums.
                Expected::rounded::<f32>(sums.fold(f64::NEG_INFINITY, f64::max), 0.0)
            });
            c.check(&format!("{m} x {k} x {n} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

//! `matmul`.

use dsl_runtime::prelude::*;
use fused_kernels::activation::{GELU, IDENTITY, RELU, SILU};
use fused_kernels::matmul::{Extents, Matmul, matmul, reference};

use crate::data::{check, normal};

/// Tiles that are full, cut on each side, and hardly touched; steps that are few, many and none.
const EXTENTS: [Extents; 8] = [
    Extents { m: 128, k: 32, n: 128 },
    Extents { m: 256, k: 160, n: 384 },
    Extents { m: 129, k: 31, n: 127 },
    Extents { m: 1, k: 300, n: 200 },
    Extents { m: 5, k: 1, n: 1 },
    Extents { m: 7, k: 0, n: 9 },
    Extents { m: 0, k: 8, n: 8 },
    Extents { m: 1200, k: 40, n: 136 },
];

fn check_one<T: Float, const ACT: usize>()
where
    matmul::Choice<T, ACT, false, 128, 128, 32>: matmul::Declared,
    matmul::Choice<T, ACT, true, 128, 128, 32>: matmul::Declared,
{
    for extents in EXTENTS {
        let Extents { m, k, n } = extents;
        let (a, b, bias) = (normal::<T>(m * k, 1), normal::<T>(k * n, 2), normal::<T>(n, 3));
        let what = format!("{extents:?}, activation {ACT}");
        let expected = [reference::<T, ACT>([&a, &b], extents, Some(&bias))];
        check(&what, &[&a, &b, &bias], &expected, |on, inputs, outs| {
            let product = Matmul::<T, ACT>::new(inputs[0], inputs[1], extents);
            product.bias(inputs[2]).launch(on, &mut outs[0])
        });
        let expected = [reference::<T, ACT>([&a, &b], extents, None)];
        check(&what, &[&a, &b], &expected, |on, inputs, outs| {
            Matmul::<T, ACT>::new(inputs[0], inputs[1], extents).launch(on, &mut outs[0])
        });
    }
}

#[test]
fn products_of_f16_are_as_exact_as_stated() {
    check_one::<f16, IDENTITY>();
    check_one::<f16, GELU>();
}

#[test]
fn products_of_bf16_are_as_exact_as_stated() {
    check_one::<bf16, IDENTITY>();
    check_one::<bf16, RELU>();
    check_one::<bf16, SILU>();
}

#[test]
fn products_of_f32_are_as_exact_as_stated() {
    check_one::<f32, IDENTITY>();
    check_one::<f32, GELU>();
}

#[test]
fn wrong_lengths_are_errors() {
    let device = Device::cpu();
    let (a, b) = (device.zeros::<f32>(6).unwrap(), device.zeros::<f32>(8).unwrap());
    let mut out = device.zeros::<f32>(12).unwrap();
    let product = |m: usize, k: usize, n: usize| Matmul::<f32, IDENTITY>::new(&a, &b, Extents { m, k, n });
    let message = |product: Matmul<f32, IDENTITY>, out: &mut Buffer<f32>| {
        product.launch(&device, out).unwrap_err().to_string()
    };
    assert_eq!(message(product(4, 2, 4), &mut out), "matmul: a has 6 elements and m * k has 8");
    assert_eq!(message(product(3, 2, 3), &mut out), "matmul: b has 8 elements and k * n has 6");
    assert_eq!(message(product(3, 2, 4).bias(&a), &mut out), "matmul: bias has 6 elements and n has 4");
    product(3, 2, 4).launch(&device, &mut out).unwrap();
}

//! `matmul` of `f32` in TF32.

use fused_kernels::activation::Activation;
use fused_kernels::matmul::{Epilogue, Extents, Matmul, TileShape, reference};
use fused_kernels::matmul_heuristic::{Block, Config};

use crate::data::{check, normal};
use crate::matmul::Order;

/// The nearest number of eleven digits, halves to even.
fn rounded(x: f32) -> f32 {
    let (bits, odd) = (x.to_bits(), x.to_bits() >> 13 & 1);
    f32::from_bits((bits + 0xfff + odd) & !0x1fff)
}

/// A matmul with an epilogue.
#[track_caller]
fn check_matmul(
    Extents { m, k, n }: Extents,
    [order_a, order_b]: [Order; 2],
    [a, b]: [&[f32]; 2],
    (has_residual, config): (bool, Option<Config>),
    activation: Activation,
) {
    let (bias, residual) = (normal::<f32>(n, 3), normal::<f32>(m * n, 4));
    let inputs: [&[f32]; 4] = [&order_a.in_order(a, [m, k]), &order_b.in_order(b, [k, n]), &bias, &residual];
    let epilogue = Epilogue {
        alpha: 0.5,
        bias: Some(&bias),
        activation,
        residual: has_residual.then_some(&residual[..]),
    };
    let digits = [a, b].map(|of| of.iter().copied().map(rounded).collect::<Vec<f32>>());
    let expected = [reference::<f32>([&digits[0], &digits[1]], Extents { m, k, n }, epilogue)];
    let what = format!("{m} x {k} x {n} of {order_a:?} and {order_b:?}, residual {has_residual}, {config:?}");
    check(&what, &inputs, &expected, |on, inputs, outs| {
        let (a, b) = (order_a.view(inputs[0], [m, k])?, order_b.view(inputs[1], [k, n])?);
        let mut matmul = Matmul::new(a, b).activation(activation).tf32().alpha(0.5).bias(inputs[2]);
        if has_residual {
            matmul = matmul.residual(inputs[3].view([m, n])?);
        }
        let out = outs[0].view_mut([m, n])?;
        match config {
            Some(config) => matmul.launch_with(on, out, config),
            None => matmul.launch(on, out),
        }
    });
}

#[track_caller]
fn check_normal(
    extents: Extents,
    orders: [Order; 2],
    config_of: (bool, Option<Config>),
    activation: Activation,
) {
    let Extents { m, k, n } = extents;
    check_matmul(extents, orders, [&normal(m * k, 1), &normal(k * n, 2)], config_of, activation);
}

const fn config(rows: usize, cols: usize, split_k: usize, copies: [bool; 2]) -> Option<Config> {
    Some(Config { block: Block { tile: TileShape { rows, cols }, k: 32 }, split_k, copies })
}

#[test]
fn products_in_tf32_are_as_exact_as_stated() {
    use Order::{Columns, ColumnsPadded, Rows, RowsPadded};
    let orders = [[Rows, Rows], [Rows, Columns], [Columns, Rows], [Columns, Columns]];
    let apart = [
        [RowsPadded(1), RowsPadded(3)],
        [ColumnsPadded(2), RowsPadded(1)],
        [ColumnsPadded(1), ColumnsPadded(4)],
    ];
    for orders in orders.into_iter().chain(apart) {
        check_normal(Extents { m: 136, k: 72, n: 264 }, orders, (false, None), Activation::Identity);
        check_normal(Extents { m: 65, k: 67, n: 129 }, orders, (true, None), Activation::Gelu);
    }
    for extents in
        [Extents { m: 1, k: 300, n: 200 }, Extents { m: 7, k: 0, n: 9 }, Extents { m: 8, k: 2048, n: 64 }]
    {
        check_normal(extents, [Rows, Columns], (true, None), Activation::Relu);
    }
}

/// On every device, which chooses them or not.
#[test]
fn every_block_takes_any_extents_and_orders() {
    use Order::{Columns, ColumnsPadded, Rows, RowsPadded};
    let orders = [
        [Rows, Rows],
        [Rows, Columns],
        [Columns, Rows],
        [Columns, Columns],
        [RowsPadded(3), ColumnsPadded(5)],
    ];
    let configs = [(128, 256, 1, false), (128, 128, 1, true), (64, 128, 1, true), (64, 128, 3, true)];
    for orders in orders {
        for (rows, cols, split_k, has_residual) in configs {
            for copies in [[false, false], [true, false], [false, true], [true, true]] {
                let extents = Extents { m: 200, k: 264, n: 328 };
                check_normal(
                    extents,
                    orders,
                    (has_residual, config(rows, cols, split_k, copies)),
                    Activation::Identity,
                );
            }
        }
    }
}

/// Numbers halfway between two that are kept, and next to these.
#[test]
fn halves_are_rounded_to_even() {
    use Order::{Columns, Rows};
    let extents = Extents { m: 128, k: 32, n: 128 };
    let near = |count: usize, step: usize| {
        let bits = |i: usize| 0x3f80_0000 + ((i * step) as u32 % 64) * 0x800 + (i as u32 % 3) - 1;
        (0..count).map(|i| f32::from_bits(bits(i))).collect::<Vec<f32>>()
    };
    let (a, b) = (near(128 * 32, 7), near(32 * 128, 5));
    for orders in [[Rows, Rows], [Rows, Columns], [Columns, Columns], [Columns, Rows]] {
        for copies in [[false, false], [true, true]] {
            let config_of = (false, config(128, 128, 1, copies));
            check_matmul(extents, orders, [&a, &b], config_of, Activation::Identity);
        }
    }
}

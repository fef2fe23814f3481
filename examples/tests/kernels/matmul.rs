//! `matmul`.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::float::LibraryFloat;
use fused_kernels::matmul::{Epilogue, Extents, Matmul, TileShape, reference};
use fused_kernels::matmul_heuristic::{Block, Config, Problem};
use fused_kernels::matmul_tiles::matmul_split_k;
use fused_kernels::split_matmul::split_k;

use crate::data::{check, devices, normal};

/// Tiles that are full, cut on each side by one and by more, and almost empty; few, many and no iterations.
const EXTENTS: [Extents; 13] = [
    Extents { m: 128, k: 32, n: 128 },
    Extents { m: 256, k: 160, n: 384 },
    Extents { m: 129, k: 31, n: 127 },
    Extents { m: 64, k: 64, n: 128 },
    Extents { m: 65, k: 65, n: 129 },
    Extents { m: 63, k: 63, n: 136 },
    Extents { m: 1, k: 300, n: 200 },
    Extents { m: 5, k: 1, n: 1 },
    Extents { m: 1, k: 1, n: 1 },
    Extents { m: 1, k: 64, n: 203 },
    Extents { m: 7, k: 0, n: 9 },
    Extents { m: 0, k: 8, n: 8 },
    Extents { m: 1200, k: 40, n: 136 },
];

/// Results large enough for large tiles on an H200, which are full, one too short and one too long; nine rows of them are a swizzle group and one.
const LARGE: [Extents; 4] = [
    Extents { m: 128, k: 16, n: 99 * 256 },
    Extents { m: 127, k: 8, n: 99 * 256 - 8 },
    Extents { m: 129, k: 7, n: 99 * 256 + 1 },
    Extents { m: 9 * 128, k: 72, n: 11 * 256 },
];

/// The layout of a matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Rows,
    Columns,
    /// Rows, with so many elements of padding.
    RowsPadded(usize),
    ColumnsPadded(usize),
}

impl Order {
    fn strides(self, [rows, cols]: [usize; 2]) -> [usize; 2] {
        match self {
            Order::Rows => [cols, 1],
            Order::Columns => [1, rows],
            Order::RowsPadded(by) => [cols + by, 1],
            Order::ColumnsPadded(by) => [1, rows + by],
        }
    }

    /// Memory of a matrix that is given in row-major order.
    pub(crate) fn in_order<T: Float>(self, elements: &[T], shape: [usize; 2]) -> Vec<T> {
        let [row, col] = self.strides(shape);
        let mut memory = vec![T::from_f64(f64::NAN); self.len(shape)];
        for (i, &element) in elements.iter().enumerate() {
            memory[i / shape[1] * row + i % shape[1] * col] = element;
        }
        memory
    }

    fn len(self, shape: [usize; 2]) -> usize {
        let [row, col] = self.strides(shape);
        if shape.contains(&0) { 0 } else { 1 + (shape[0] - 1) * row + (shape[1] - 1) * col }
    }

    pub(crate) fn view<'a, T: Float>(
        self,
        memory: Slice<'a, T>,
        shape: [usize; 2],
    ) -> Result<View<'a, T, 2>> {
        memory.view_strided(shape, self.strides(shape))
    }
}

/// One matmul, with and without a bias, of operands with these layouts.
#[track_caller]
fn check_matmul<T: LibraryFloat>(extents: Extents, [order_a, order_b]: [Order; 2], activation: Activation) {
    let Extents { m, k, n } = extents;
    let (a, b, bias) = (normal::<T>(m * k, 1), normal::<T>(k * n, 2), normal::<T>(n, 3));
    let what = format!("{extents:?} of {order_a:?} and {order_b:?}, {activation}");
    let inputs = [order_a.in_order(&a, [m, k]), order_b.in_order(&b, [k, n]), bias.clone()];
    let inputs: Vec<&[T]> = inputs.iter().map(|input| &input[..]).collect();
    for bias in [Some(&bias[..]), None] {
        let expected =
            [reference::<T>([&a, &b], extents, Epilogue { bias, activation, ..Epilogue::default() })];
        check(&what, &inputs, &expected, |on, inputs, outs| {
            let (a, b) = (order_a.view(inputs[0], [m, k])?, order_b.view(inputs[1], [k, n])?);
            let matmul = Matmul::new(a, b).activation(activation);
            let matmul = if bias.is_some() { matmul.bias(inputs[2]) } else { matmul };
            matmul.launch(on, outs[0].view_mut([m, n])?)
        });
    }
}

fn check_each<T: LibraryFloat>(activation: Activation) {
    for extents in EXTENTS {
        check_matmul::<T>(extents, [Order::Rows, Order::Rows], activation);
    }
}

/// Strides that are multiples of 16 bytes and others, contiguous elements along either axis.
fn check_orders<T: LibraryFloat>() {
    use Order::{Columns, ColumnsPadded, Rows, RowsPadded};
    let orders = [
        [Rows, Columns],
        [Columns, Rows],
        [Columns, Columns],
        [RowsPadded(8), RowsPadded(16)],
        [RowsPadded(8), ColumnsPadded(8)],
        [RowsPadded(1), RowsPadded(8)],
        [RowsPadded(8), RowsPadded(4)],
        [Rows, ColumnsPadded(1)],
    ];
    for orders in orders {
        check_matmul::<T>(Extents { m: 72, k: 136, n: 264 }, orders, Activation::Identity);
    }
    check_matmul::<T>(
        Extents { m: 65, k: 65, n: 129 },
        [RowsPadded(7), ColumnsPadded(7)],
        Activation::Identity,
    );
    check_matmul::<T>(Extents { m: 9, k: 0, n: 7 }, [Rows, Columns], Activation::Identity);
}

#[test]
fn matmuls_of_f16_are_as_exact_as_stated() {
    check_each::<f16>(Activation::Identity);
    check_each::<f16>(Activation::Gelu);
}

#[test]
fn matmuls_of_bf16_are_as_exact_as_stated() {
    check_each::<bf16>(Activation::Identity);
    check_each::<bf16>(Activation::Relu);
    check_each::<bf16>(Activation::Silu);
}

#[test]
fn matmuls_of_f32_are_as_exact_as_stated() {
    check_each::<f32>(Activation::Identity);
    check_each::<f32>(Activation::Gelu);
}

#[test]
fn matmuls_by_large_tiles_are_as_exact_as_stated() {
    for extents in LARGE {
        check_matmul::<bf16>(extents, [Order::Rows, Order::Rows], Activation::Relu);
    }
    check_matmul::<f16>(LARGE[2], [Order::Rows, Order::Columns], Activation::Identity);
    check_matmul::<f32>(LARGE[2], [Order::Rows, Order::Rows], Activation::Identity);
}

#[test]
fn operands_have_any_layout() {
    check_orders::<f16>();
    check_orders::<bf16>();
    check_orders::<f32>();
}

/// Views whose addresses are no multiples of 16 bytes although their row stride is one: the inside of a matrix.
#[test]
fn operands_are_inner_matrices() {
    let extents = Extents { m: 70, k: 96, n: 200 };
    let Extents { m, k, n } = extents;
    let (a, b) = (normal::<bf16>((m + 2) * (k + 8), 1), normal::<bf16>((k + 2) * (n + 8), 2));
    let split = |of: &[bf16], rows: usize, cols: usize| -> Vec<bf16> {
        let row = |row: usize| of[row * (cols + 8) + 1..][..cols].to_vec();
        (1..=rows).flat_map(row).collect()
    };
    let operands = [split(&a, m, k), split(&b, k, n)];
    let expected = [reference::<bf16>([&operands[0], &operands[1]], extents, Epilogue::default())];
    check("parts", &[&a, &b], &expected, |on, inputs, outs| {
        let a = inputs[0].view([m + 2, k + 8])?.slice(0, 1..=m).slice(1, 1..=k);
        let b = inputs[1].view([k + 2, n + 8])?.slice(0, 1..=k).slice(1, 1..=n);
        Matmul::new(a, b).launch(on, outs[0].view_mut([m, n])?)
    });
}

/// A scale, a bias and a residual, for a batch and for one matrix; one operand B for a batch, as a view of one
/// matrix, as a broadcast one, and as many.
#[track_caller]
fn check_epilogue<T: LibraryFloat>([batches, m, k, n]: [usize; 4], alpha: f32, activation: Activation) {
    let extents = Extents { m, k, n };
    let (a, b) = (normal::<T>(batches * m * k, 1), normal::<T>(batches.max(1) * k * n, 2));
    let (bias, residual) = (normal::<T>(n, 3), normal::<T>(batches * m * n, 4));
    let inputs: [&[T]; 4] = [&a, &b, &bias, &residual];
    let with = |index: usize, shared: bool| {
        let of = |all: &[T], len: usize, index: usize| all[index * len..(index + 1) * len].to_vec();
        let (a, b) = (of(&a, m * k, index), of(&b, k * n, if shared { 0 } else { index }));
        let residual = of(&residual, m * n, index);
        let epilogue = Epilogue { alpha, bias: Some(&bias), activation, residual: Some(&residual) };
        reference::<T>([&a, &b], extents, epilogue)
    };
    let all = |shared: bool| [(0..batches).flat_map(|index| with(index, shared)).collect::<Vec<_>>()];
    let what = format!("{batches} of {extents:?}, {activation}");
    for shared in [0, 1, 2] {
        check(&what, &inputs, &all(shared > 0), |on, inputs, outs| {
            let a = inputs[0].view([batches, m, k])?;
            let matmul = match shared {
                0 => Matmul::new(a, inputs[1].view([batches, k, n])?),
                1 => Matmul::new(a, inputs[1].view([k, n])?),
                _ => Matmul::new(a, inputs[1].view_strided([batches, k, n], [0, n, 1])?),
            };
            let residual = inputs[3].view([batches, m, n])?;
            let matmul = matmul.alpha(alpha).bias(inputs[2]).activation(activation).residual(residual);
            matmul.launch(on, outs[0].view_mut([batches, m, n])?)
        });
    }
    if batches == 0 {
        return;
    }
    check(&what, &inputs, &[with(0, false)], |on, inputs, outs| {
        let matmul = Matmul::new(inputs[0].view([m, k])?, inputs[1].view([k, n])?).activation(activation);
        let residual = inputs[3].view([m, n])?;
        matmul.alpha(alpha).bias(inputs[2]).residual(residual).launch(on, outs[0].view_mut([m, n])?)
    });
}

#[test]
fn epilogues_scale_and_add() {
    check_epilogue::<bf16>([3, 72, 40, 136], 0.5, Activation::Identity);
    check_epilogue::<bf16>([2, 65, 64, 130], -1.5, Activation::Gelu);
    check_epilogue::<f16>([2, 64, 72, 128], 0.25, Activation::Silu);
    check_epilogue::<f32>([3, 17, 33, 9], 3.0, Activation::Relu);
    // Enough for large tiles on an H200.
    check_epilogue::<bf16>([2, 7 * 128 + 8, 64, 8 * 128 - 8], 0.125, Activation::Relu);
}

#[test]
fn batches_without_a_residual_have_the_largest_tiles() {
    // Enough for them on an H200, all of which are full but the last column of a matrix.
    let [batches, m, k, n] = [2, 640, 16, 2552];
    let (a, b) = (normal::<bf16>(batches * m * k, 1), normal::<bf16>(batches * k * n, 2));
    let of = |index: usize| {
        let operands = [&a[index * m * k..][..m * k], &b[index * k * n..][..k * n]];
        reference::<bf16>(operands, Extents { m, k, n }, Epilogue::default())
    };
    let expected = [(0..batches).flat_map(of).collect::<Vec<_>>()];
    check("a batch", &[&a, &b], &expected, |on, inputs, outs| {
        let (a, b) = (inputs[0].view([batches, m, k])?, inputs[1].view([batches, k, n])?);
        Matmul::new(a, b).launch(on, outs[0].view_mut([batches, m, n])?)
    });
}

#[test]
fn batches_may_be_empty_and_sums_without_terms() {
    check_epilogue::<f16>([0, 8, 8, 8], 1.0, Activation::Identity);
    check_epilogue::<f32>([2, 3, 0, 5], 2.0, Activation::Gelu);
}

/// Skinny matmuls, which have tiles of their own on a GPU (4232 columns are enough for the larger one on an H200), full and cut on each
/// side.
const SKINNY: [Extents; 9] = [
    Extents { m: 16, k: 512, n: 64 },
    Extents { m: 1, k: 8, n: 8 },
    Extents { m: 15, k: 1032, n: 72 },
    Extents { m: 16, k: 256, n: 4232 },
    Extents { m: 3, k: 136, n: 4224 + 24 },
    Extents { m: 64, k: 768, n: 128 },
    Extents { m: 17, k: 1000, n: 200 },
    Extents { m: 63, k: 16, n: 72 },
    Extents { m: 16, k: 0, n: 16 },
];

#[test]
fn skinny_matmuls_are_as_exact_as_others() {
    for extents in SKINNY {
        check_matmul::<bf16>(extents, [Order::Rows, Order::Columns], Activation::Silu);
        check_matmul::<f16>(extents, [Order::RowsPadded(8), Order::ColumnsPadded(8)], Activation::Gelu);
    }
    check_matmul::<bf16>(
        Extents { m: 9, k: 264, n: 40 },
        [Order::Rows, Order::ColumnsPadded(8)],
        Activation::Relu,
    );
    check_config::<f16>(
        Extents { m: 16, k: 4096, n: 24 },
        [Order::Rows, Order::Columns],
        None,
        Activation::Silu,
    );
    check_epilogue::<bf16>([3, 9, 264, 40], 0.5, Activation::Relu);
}

/// A matmul with a whole epilogue, in a config or in that of the device.
#[track_caller]
fn check_config<T: LibraryFloat>(
    extents: Extents,
    [order_a, order_b]: [Order; 2],
    config: Option<Config>,
    activation: Activation,
) {
    let Extents { m, k, n } = extents;
    let (a, b) = (normal::<T>(m * k, 1), normal::<T>(k * n, 2));
    let (bias, residual) = (normal::<T>(n, 3), normal::<T>(m * n, 4));
    let inputs: [&[T]; 4] = [&order_a.in_order(&a, [m, k]), &order_b.in_order(&b, [k, n]), &bias, &residual];
    let epilogue = Epilogue { alpha: 0.5, bias: Some(&bias), activation, residual: Some(&residual) };
    let expected = [reference::<T>([&a, &b], extents, epilogue)];
    check(&format!("{extents:?} by {config:?}"), &inputs, &expected, |on, inputs, outs| {
        let matmul = Matmul::new(order_a.view(inputs[0], [m, k])?, order_b.view(inputs[1], [k, n])?)
            .activation(activation);
        let matmul = matmul.alpha(0.5).bias(inputs[2]).residual(inputs[3].view([m, n])?);
        let out = outs[0].view_mut([m, n])?;
        match config {
            Some(config) => matmul.launch_with(on, out, config),
            None => matmul.launch(on, out),
        }
    });
}

const fn block(rows: usize, cols: usize, k: usize) -> Block {
    Block { tile: TileShape { rows, cols }, k }
}

/// The blocks of 16-bit floats that take a residual.
const BLOCKS: [Block; 7] = [
    block(128, 128, 64),
    block(64, 128, 64),
    block(64, 64, 128),
    block(64, 64, 64),
    block(64, 32, 128),
    block(16, 32, 128),
    block(16, 16, 128),
];

/// On every device, which chooses them or not.
#[test]
fn every_block_takes_any_extents_and_orders() {
    use Order::{Columns, ColumnsPadded, Rows, RowsPadded};
    let whole = |block: Block| Some(Config { block, split_k: 1, copies: [false; 2] });
    let skinny = SKINNY.into_iter().map(|extents| Extents { n: extents.n.min(136), ..extents });
    for extents in skinny.chain([Extents { m: 70, k: 264, n: 67 }, Extents { m: 70, k: 72, n: 136 }]) {
        for block in BLOCKS {
            let sliced = block.tile.cols > 16 || extents.k.is_multiple_of(4);
            if sliced {
                check_config::<bf16>(extents, [Rows, Columns], whole(block), Activation::Gelu);
            }
        }
    }
    let extents = Extents { m: 136, k: 200, n: 72 };
    for block in &BLOCKS[..6] {
        for orders in [[Rows, Rows], [Columns, Rows], [Columns, Columns], [RowsPadded(3), ColumnsPadded(5)]] {
            check_config::<f16>(extents, orders, whole(*block), Activation::Identity);
        }
    }
}

/// Extents that are multiples of a vector of `f32`, but for one, and none that is.
const ONE_UNALIGNED: [Extents; 5] = [
    Extents { m: 72, k: 64, n: 136 },
    Extents { m: 70, k: 64, n: 136 },
    Extents { m: 72, k: 66, n: 136 },
    Extents { m: 72, k: 64, n: 134 },
    Extents { m: 71, k: 65, n: 133 },
];

#[test]
fn every_block_of_f32_reads_each_operand_layout() {
    use Order::{Columns, ColumnsPadded, Rows, RowsPadded};
    let orders = [
        [Rows, Rows],
        [Rows, Columns],
        [Columns, Rows],
        [Columns, Columns],
        [RowsPadded(3), ColumnsPadded(4)],
    ];
    for extents in ONE_UNALIGNED {
        for orders in orders {
            for block in [block(64, 128, 16), block(64, 64, 16), block(32, 32, 16)] {
                let config = |split_k| Some(Config { block, split_k, copies: [false; 2] });
                check_config::<f32>(extents, orders, config(1), Activation::Silu);
                if block.tile.cols < 128 {
                    check_config::<f32>(extents, orders, config(3), Activation::Identity);
                }
            }
        }
    }
}

/// Rows that begin within sectors of memory, and so much to load that a GPU runs clusters with multicast loads: peers that share either
/// operand, or none at the end of a group of tiles, and the last of an odd count. Sums of integers are exact.
#[test]
fn rows_may_begin_within_sectors() {
    use Order::{Columns, ColumnsPadded, Rows};
    let [m, k, n] = [1096, 1096, 2312];
    let integers = |len: usize, seed: u64| -> Vec<bf16> {
        normal::<f32>(len, seed)
            .into_iter()
            .map(|x| bf16::from_f32((2.0 * x).round().clamp(-4.0, 4.0)))
            .collect()
    };
    let (a, b) = (integers(m * k, 1), integers(k * n, 2));
    let element = |row: usize, col: usize| {
        let terms = (0..k).map(|i| a[row * k + i].to_f32() * b[i * n + col].to_f32());
        bf16::from_f32(terms.sum())
    };
    let samples: Vec<[usize; 2]> = (0..m * n).step_by(9973).map(|i| [i / n, i % n]).collect();
    let wanted: Vec<bf16> = samples.iter().map(|&[row, col]| element(row, col)).collect();
    let mut first: Option<Vec<bf16>> = None;
    for [order_a, order_b] in [[Rows, Rows], [Rows, Columns], [Columns, Rows], [ColumnsPadded(8), Columns]] {
        for device in devices() {
            let a_memory = device.upload(&order_a.in_order(&a, [m, k])).unwrap();
            let b_memory = device.upload(&order_b.in_order(&b, [k, n])).unwrap();
            let (a, b) = (order_a.view(a_memory.slice(..), [m, k]), order_b.view(b_memory.slice(..), [k, n]));
            let matmul = Matmul::new(a.unwrap(), b.unwrap());
            for block in [block(128, 256, 64), block(128, 128, 64), block(64, 64, 64)] {
                let mut out = device.upload(&vec![bf16::NAN; m * n]).unwrap();
                let config = Config { block, split_k: 1, copies: [false; 2] };
                matmul.launch_with(&device, out.view_mut([m, n]).unwrap(), config).unwrap();
                let found = out.download().unwrap();
                let sampled: Vec<bf16> = samples.iter().map(|&[row, col]| found[row * n + col]).collect();
                assert!(sampled == wanted, "{order_a:?} {order_b:?} by {block:?} on {device}");
                let same = first.get_or_insert_with(|| found.clone()) == &found;
                assert!(same, "{order_a:?} {order_b:?} by {block:?} on {device} differs");
                if !(&device).has_clusters() {
                    break; // Only clusters multicast.
                }
            }
        }
    }
}

/// Unaligned operands, copied to aligned ones.
#[test]
fn unaligned_operands_are_copied() {
    use Order::{Columns, ColumnsPadded, Rows, RowsPadded};
    let orders = [[Rows, Rows], [Columns, Rows], [Rows, Columns], [ColumnsPadded(2), RowsPadded(3)]];
    for (orders, copies) in orders.into_iter().flat_map(|of| [(of, [true; 2]), (of, [true, false])]) {
        let config = |split_k| Some(Config { block: block(64, 64, 128), split_k, copies });
        check_config::<bf16>(Extents { m: 67, k: 259, n: 71 }, orders, config(1), Activation::Silu);
        check_config::<f16>(Extents { m: 9, k: 517, n: 35 }, orders, config(2), Activation::Identity);
    }
}

#[test]
fn programs_split_k() {
    let by = |split_k: usize| Some(Config { block: block(64, 128, 64), split_k, copies: [false; 2] });
    let orders = [Order::Rows, Order::Columns];
    // Of 8200 terms the last of 32 splits have none.
    for (k, split_k) in [(512, 2), (513, 2), (1000, 3), (8192, 32), (8200, 32)] {
        check_config::<bf16>(Extents { m: 3, k, n: 72 }, orders, by(split_k), Activation::Gelu);
    }
    for extents in [Extents { m: 3, k: 300, n: 72 }, Extents { m: 64, k: 2048, n: 128 }] {
        check_config::<f16>(extents, [Order::Rows; 2], None, Activation::Identity);
        check_config::<f32>(extents, [Order::Rows; 2], None, Activation::Identity);
    }
    let of_f32 = |split_k: usize| Some(Config { block: block(64, 64, 16), split_k, copies: [false; 2] });
    check_config::<f32>(Extents { m: 1, k: 1025, n: 7 }, [Order::Rows; 2], of_f32(4), Activation::Silu);
    check_config::<f32>(Extents { m: 5, k: 768, n: 16 }, orders, of_f32(3), Activation::Relu);
    // More rows than one wave of the reduction has.
    check_config::<bf16>(Extents { m: 200, k: 264, n: 1300 }, orders, by(2), Activation::Identity);
}

#[test]
fn an_unknown_block_is_an_error() {
    let device = Device::cpu();
    let (a, b) = (device.zeros::<bf16>(6).unwrap(), device.zeros::<bf16>(8).unwrap());
    let mut out = device.zeros::<bf16>(12).unwrap();
    let matmul = Matmul::new(a.view([3, 2]).unwrap(), b.view([2, 4]).unwrap()).activation(Activation::Relu);
    let mut message = |matmul: Matmul<bf16>, block: Block, split_k: usize| {
        let config = Config { block, split_k, copies: [false; 2] };
        matmul.launch_with(&device, out.view_mut([3, 4]).unwrap(), config).unwrap_err().to_string()
    };
    let of = |extents: &str| format!("matmul: there is no kernel of {extents} for this product");
    assert_eq!(message(matmul, block(32, 32, 32), 1), of("32 x 32 x 32"));
    assert_eq!(message(matmul, block(128, 256, 64), 2), of("128 x 256 x 64"));
    assert_eq!(message(matmul, block(64, 128, 64), 33), "matmul: a split of K in 33, the most is 32");
    assert_eq!(
        message(matmul.activation(Activation::GeluTanh), block(64, 128, 64), 1),
        "matmul: there is no kernel with the activation GELU-tanh, expected one of identity, ReLU, GELU, SiLU"
    );
    let added = device.zeros::<bf16>(12).unwrap();
    let matmul = matmul.residual(added.view([3, 4]).unwrap());
    assert_eq!(message(matmul, block(128, 256, 64), 1), of("128 x 256 x 64"));
}

/// The configuration on 132 SMs with wgmma.
#[test]
fn the_fastest_config_follows_from_the_extents() {
    let of = |out: [usize; 3], k: usize| Problem {
        out,
        k,
        b_batches: 1,
        bytes: 2,
        aligned: [true; 2],
        within_sectors: [false; 2],
        b_is_k_major: false,
        has_residual: false,
        unaligned_out: false,
    };
    let large = of([1, 4096, 4096], 4096);
    let whole = |block: Block| Config { block, split_k: 1, copies: [false; 2] };
    assert_eq!(large.fastest(132), whole(block(128, 256, 64)));
    assert_eq!(Problem { has_residual: true, ..large }.fastest(132), whole(block(128, 128, 64)));
    // Of `f32` in TF32 an iteration has as many bytes.
    assert_eq!(Problem { bytes: 4, ..large }.fastest(132), whole(block(128, 256, 32)));
    assert_eq!(Problem { bytes: 1, b_is_k_major: true, ..large }.fastest(132), whole(block(128, 192, 128)));
    // Each SM but a few computes one tile, where half of them would compute one of twice the size.
    assert_eq!(of([1, 1408, 1408], 512).fastest(132).block.tile, TileShape { rows: 128, cols: 128 });
    // A few tiles of many iterations.
    assert!(of([1, 64, 128], 8192).fastest(132).split_k > 4);
    assert_eq!(of([1, 64, 128], 128).fastest(132).split_k, 1);
    // Operands are copied where reads save more time than the copy takes.
    let unaligned = Problem { aligned: [false, true], ..large };
    assert_eq!(unaligned.fastest(132).copies, [true, false]);
    assert_eq!(Problem { out: [1, 32, 32], k: 32, ..unaligned }.fastest(132).copies, [false; 2]);
    // Slim tiles need a K-major operand B.
    for out in [[1, 64, 64], [1, 640, 40], [1, 8, 5000]] {
        for k in [16, 512, 4096] {
            assert_ne!(of(out, k).fastest(132).block.tile.cols, 32, "{out:?} {k}");
        }
    }
}

/// A whole split, one that is cut, and splits without terms.
#[test]
fn splits_without_terms_are_zero() {
    let [m, k, n] = [64, 72, 128];
    let (a, b) = (normal::<bf16>(m * k, 1), normal::<bf16>(k * n, 2));
    let sum = |i: usize, terms: std::ops::Range<usize>| -> f64 {
        terms.map(|j| a[i / n * k + j].to_f64() * b[j * n + i % n].to_f64()).sum()
    };
    for device in devices() {
        let (order_a, order_b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let mut out = device.upload(&vec![f32::NAN; 4 * m * n]).unwrap();
        let (order_a, order_b) = (order_a.view([1, m, k]).unwrap(), order_b.view([1, k, n]).unwrap());
        let partials = out.view_mut([4, 1, m, n]).unwrap();
        matmul_split_k(order_a, order_b, partials, 1, block(64, 128, 64), false)
            .grid((1, 4))
            .launch(&device)
            .unwrap();
        let found = out.download().unwrap();
        for (i, &found) in found.iter().enumerate() {
            let (split, i) = (i / (m * n), i % (m * n));
            let wanted = sum(i, k.min(64 * split)..k.min(64 * (split + 1)));
            assert!(
                (f64::from(found) - wanted).abs() < 1e-4,
                "{split} {i} on {device}: {found}, not {wanted}"
            );
        }
        assert!(found[2 * m * n..].iter().all(|&x| x == 0.0), "on {device}");
    }
}

#[test]
fn splits_follow_from_sms_and_terms() {
    assert_eq!(split_k([1, 64, 128], 1 << 20, 132), 32);
    assert_eq!(split_k([1, 64, 4096], 14336, 132), 4);
    assert_eq!(split_k([2, 64, 4096], 14336, 132), 2);
    assert_eq!(split_k([1, 64, 4096], 511, 132), 1);
    assert_eq!(split_k([1, 4096, 4096], 14336, 132), 1);
    assert_eq!(split_k([1, 0, 0], 14336, 132), 32);
}

#[test]
fn tiles_are_large_where_they_fill_the_gpu() {
    let (large, small) = (TileShape { rows: 128, cols: 256 }, TileShape { rows: 64, cols: 128 });
    let of = |m, n| TileShape::of([large, small], [1, m, n], 132);
    assert_eq!((of(4096, 4096), of(128, 99 * 256)), (large, large));
    // Too few large ones, and too few rows or columns for one.
    assert_eq!((of(2048, 1024), of(128, 98 * 256)), (small, small));
    assert_eq!((of(64, 1 << 20), of(65, 1 << 20)), (small, large));
    assert_eq!((of(1 << 20, 128), of(1 << 20, 129)), (small, large));
    assert_eq!((large.count([1, 257, 257]), small.count([2, 1, 1]), small.count([3, 0, 9])), (6, 2, 0));
    // A batch has as many of each.
    assert_eq!(TileShape::of([large, small], [25, 256, 512], 132), large);
}

#[test]
fn wrong_shapes_are_errors() {
    let device = Device::cpu();
    let (a, b) = (device.zeros::<f32>(6).unwrap(), device.zeros::<f32>(8).unwrap());
    let mut out = device.zeros::<f32>(12).unwrap();
    let matmul = |order_a: [usize; 2], order_b: [usize; 2]| {
        Matmul::new(a.view(order_a).unwrap(), b.view(order_b).unwrap())
    };
    let mut message = |matmul: Matmul<f32>, shape: [usize; 2]| {
        matmul.launch(&device, out.view_mut(shape).unwrap()).unwrap_err().to_string()
    };
    let found = message(matmul([2, 3], [2, 4]), [2, 4]);
    assert_eq!(found, "matmul: b has the shape [2, 4], expected [3, 4]");
    let found = message(matmul([3, 2], [2, 4]), [4, 3]);
    assert_eq!(found, "matmul: out has the shape [4, 3], expected [3, 4]");
    let found = message(matmul([3, 2], [2, 4]).bias(&a), [3, 4]);
    assert_eq!(found, "matmul: bias has 6 elements and n has 4");
    let found = message(matmul([3, 2], [2, 4]).residual(b.view([4, 2]).unwrap()), [3, 4]);
    assert_eq!(found, "matmul: residual has the shape [4, 2], expected [3, 4]");
    matmul([3, 2], [2, 4]).launch(&device, out.view_mut([3, 4]).unwrap()).unwrap();
    let batch = Matmul::new(a.view([3, 1, 2]).unwrap(), b.view([2, 2, 2]).unwrap());
    let found = batch.launch(&device, out.view_mut([3, 1, 2]).unwrap()).unwrap_err().to_string();
    assert_eq!(found, "matmul: b has 2 matrices and a has 3");
    let batch = Matmul::new(a.view([3, 1, 2]).unwrap(), b.view([2, 4]).unwrap());
    let found = batch.launch(&device, out.view_mut([2, 1, 4]).unwrap()).unwrap_err().to_string();
    assert_eq!(found, "matmul: out has 2 matrices and a has 3");
    // A broadcast matrix counts as often as it is repeated.
    let matrix = b.view([1, 2, 4]).unwrap();
    for (times, error) in [(1, None), (2, Some("matmul: b has 2 matrices and a has 3")), (3, None)] {
        let repeated = matrix.broadcast([times, 2, 4]).unwrap();
        let batch = Matmul::new(a.view([3, 1, 2]).unwrap(), repeated);
        let found = batch.launch(&device, out.view_mut([3, 1, 4]).unwrap());
        assert_eq!(found.err().map(|error| error.to_string()).as_deref(), error, "{times} times");
    }
}

//! The kernel of one row, on the CPU and the GPU there is, with both block sizes.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::matmul::{self, Epilogue, Extents};
use fused_kernels::matmul_heuristic::Block;
use fused_kernels::matmul_tiles::gemv;
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal, shifted};

/// K and columns: several steps, a part of one, single elements, and nothing to add.
const SHAPES: [[usize; 2]; 6] = [[4096, 33], [1000, 70], [7, 5], [1, 1], [513, 16], [0, 3]];

#[test]
fn a_row_times_a_matrix() {
    for ([k, n], adds) in SHAPES.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
        let [x, columns, bias, residual] =
            [(k, 1), (n * k, 2), (n, 3), (n, 4)].map(|(len, seed)| normal::<bf16>(len, seed));
        // The reference takes the weights row by row.
        let weight: Vec<bf16> = (0..k * n).map(|i| columns[i % n * k + i / n]).collect();
        let epilogue = Epilogue {
            alpha: if adds { 0.5 } else { 1.0 },
            bias: adds.then_some(bias.as_slice()),
            activation: Activation::Silu,
            residual: adds.then_some(residual.as_slice()),
        };
        let expected = matmul::reference::<bf16>([&x, &weight], Extents { m: 1, k, n }, epilogue);
        for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
            let [x, weight, bias, residual] =
                [&x, &columns, &bias, &residual].map(|of| shifted(device, of, shift));
            let [x, weight] =
                [x.slice(shift..).view([1, k]).unwrap(), weight.slice(shift..).view([n, k]).unwrap()];
            let bias = bias.slice(shift..).view([1, n]).unwrap();
            let residual = residual.slice(shift..).view([1, 1, n]).unwrap();
            let (bias, residual) =
                if adds { (bias, residual) } else { (bias.slice(1, ..0), residual.slice(1, ..0)) };
            macro_rules! check {
                ($N:literal, $K:literal) => {
                    let mut out = Guarded::<bf16>::new(device, n, shift);
                    let mut output = out.output();
                    let result = output.view_mut([1, 1, n]).unwrap();
                    let act = epilogue.activation as i32;
                    let block = Block::new(1, $N, $K);
                    gemv(x, weight, bias, residual, result, epilogue.alpha, act, block)
                        .grid(n.div_ceil($N))
                        .launch(&device)
                        .unwrap();
                    compare(&out.content(), &expected).unwrap_or_else(|error| {
                        panic!("{k} x {n}, {adds}, {} columns on {device}: {error}", $N)
                    });
                };
            }
            check!(8, 512);
            check!(2, 1024);
        }
    }
}

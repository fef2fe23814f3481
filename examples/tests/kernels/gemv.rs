//! The kernels of one row, on the CPU and the GPU there is: both block sizes, and every form of the norm.

use dsl_runtime::prelude::*;
use fused_kernels::activation::{self, IDENTITY, SILU};
use fused_kernels::gemv::{gemv, norm_gemv};
use fused_kernels::matmul::{self, Epilogue, Extents};
use fused_kernels::norm_linear::{self, HostLayer};
use fused_kernels::reference::{Expected, compare};

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
            residual: adds.then_some(residual.as_slice()),
        };
        let expected = matmul::reference::<bf16, SILU>([&x, &weight], Extents { m: 1, k, n }, epilogue);
        for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
            let [x, weight, bias, residual] =
                [&x, &columns, &bias, &residual].map(|of| shifted(device, of, shift));
            let [x, weight] =
                [x.slice(shift..).view([1, k]).unwrap(), weight.slice(shift..).view([n, k]).unwrap()];
            let [bias, residual] = [&bias, &residual].map(|of| of.slice(shift..).view([1, n]).unwrap());
            let none = bias.slice(1, ..0);
            let [bias, residual] = if adds { [bias, residual] } else { [none, none] };
            macro_rules! check {
                ($N:literal, $K:literal) => {
                    let mut out = Guarded::<bf16>::new(device, n, shift);
                    let mut output = out.output();
                    let result = output.view_mut([1, n]).unwrap();
                    let call =
                        gemv::<bf16, $N, $K>(x, weight, bias, residual, result, epilogue.alpha, SILU as i32);
                    call.grid(n.div_ceil($N)).launch(&device).unwrap();
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

/// What the gate makes of both halves.
fn gated(halves: &[Expected]) -> Vec<Expected> {
    let (gates, values) = halves.split_at(halves.len() / 2);
    let single = 2.0f64.powi(-23);
    gates
        .iter()
        .zip(values)
        .map(|(gate, up)| {
            let gate = activation::propagated::<SILU>(*gate, bf16::DTYPE);
            let value = gate.value * up.value;
            let within = gate.within * (up.value.abs() + up.within) + gate.value.abs() * up.within;
            Expected { value, within: within + single * value.abs() }.rounded(bf16::DTYPE)
        })
        .collect()
}

#[test]
fn a_normalized_row_times_a_matrix_with_and_without_a_gate() {
    for ([k, f], mean) in
        SHAPES.into_iter().filter(|[k, _]| *k > 0).flat_map(|shape| [(shape, false), (shape, true)])
    {
        let n = 2 * f;
        let [x, columns, bias] = [(k, 1), (n * k, 2), (n, 3)].map(|(len, seed)| normal::<bf16>(len, seed));
        let weight: Vec<bf16> = (0..k * n).map(|i| columns[i % n * k + i / n]).collect();
        let (ones, zeros) = (vec![bf16::from_f64(1.0); k], vec![bf16::from_f64(0.0); k]);
        let layer = HostLayer {
            gamma: &ones,
            beta: mean.then_some(zeros.as_slice()),
            weight: &weight,
            bias: &bias,
            eps: 1e-5,
        };
        let plain = norm_linear::reference::<bf16, IDENTITY>(&x, layer);
        let sums: Vec<f32> =
            columns.chunks(k).map(|column| column.iter().map(|w| w.to_f64() as f32).sum()).collect();
        let constants: Vec<f32> = bias.iter().map(|b| b.to_f64() as f32).collect();
        for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
            let [x, weight] = [&x, &columns].map(|of| shifted(device, of, shift));
            let [x, weight] =
                [x.slice(shift..).view([1, k]).unwrap(), weight.slice(shift..).view([n, k]).unwrap()];
            let [sums, constants] = [&sums, &constants].map(|of| device.upload(of).unwrap());
            let [sums, constants] = [&sums, &constants].map(|of| of.view([1, n]).unwrap());
            macro_rules! check {
                ($mean:literal, $gated:literal, $N:literal, $columns:expr, $act:expr, $expected:expr) => {
                    let mut out = Guarded::<bf16>::new(device, $columns, shift);
                    let mut output = out.output();
                    let result = output.view_mut([1, $columns]).unwrap();
                    let call = norm_gemv::<bf16, $mean, $gated, $N, 512>(
                        x,
                        weight,
                        sums,
                        constants,
                        result,
                        $act as i32,
                        1e-5,
                    );
                    call.grid($columns.div_ceil($N)).launch(&device).unwrap();
                    let found = compare(&out.content(), &$expected);
                    found
                        .unwrap_or_else(|error| panic!("{k} x {n}, {mean}, {} on {device}: {error}", $gated));
                };
            }
            if mean {
                check!(true, false, 8, n, IDENTITY, plain);
                check!(true, true, 4, f, SILU, gated(&plain));
            } else {
                check!(false, false, 8, n, IDENTITY, plain);
                check!(false, true, 4, f, SILU, gated(&plain));
            }
        }
    }
}

//! `quantized_matmul`.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::float::LibraryFloat;
use fused_kernels::matmul::{Extents, TileShape};
use fused_kernels::matmul_heuristic::{Block, Config};
use fused_kernels::quantized_matmul::{Quantized, QuantizedMatmul, QuantizedOperand, reference, requantized};
use fused_kernels::quantized_tiles::{quantized_matmul, quantized_skinny, quantized_warp_split_k};
use fused_kernels::reference::Expected;

use crate::data::{Guarded, devices, normal, shifted};

/// Tiles that are full, cut on each side by one and by more, and almost empty; few, many and no iterations.
const EXTENTS: [Extents; 9] = [
    Extents { m: 128, k: 128, n: 128 },
    Extents { m: 136, k: 384, n: 128 },
    Extents { m: 129, k: 144, n: 127 },
    Extents { m: 127, k: 31, n: 136 },
    Extents { m: 1, k: 300, n: 200 },
    Extents { m: 5, k: 1, n: 1 },
    Extents { m: 7, k: 0, n: 9 },
    Extents { m: 0, k: 8, n: 8 },
    Extents { m: 9 * 128, k: 16, n: 136 },
];

/// Where there is warpgroup mma, also a row of tiles that is one wave on an H200 if they are wide, and few rows with more
/// tiles of 32 columns than it has SMs.
fn extents() -> Vec<Extents> {
    let many = [Extents { m: 128, k: 16, n: 132 * 192 }, Extents { m: 5, k: 272, n: 133 * 32 - 8 }];
    let taken = many.into_iter().filter(|_| devices().iter().any(|device| device.has_wgmma()));
    EXTENTS.into_iter().chain(taken).collect()
}

/// An element type with random elements and what they are.
trait Random: QuantizedOperand {
    fn random(len: usize, seed: u64) -> (Vec<Self>, Vec<f64>);
}

impl Random for i8 {
    fn random(len: usize, seed: u64) -> (Vec<i8>, Vec<f64>) {
        let all = normal::<f32>(len, seed).into_iter().map(|x| (50.0 * x) as i8);
        let all: Vec<i8> = all.collect();
        let values = all.iter().map(|&x| f64::from(x)).collect();
        (all, values)
    }
}

impl Random for f8e4m3 {
    fn random(len: usize, seed: u64) -> (Vec<f8e4m3>, Vec<f64>) {
        let all: Vec<f8e4m3> = normal::<f32>(len, seed).into_iter().map(f8e4m3::from_f32).collect();
        let values = all.iter().map(|x| f64::from(x.to_f32())).collect();
        (all, values)
    }
}

/// The layout of operand B, and the number of scales.
#[derive(Clone, Copy, Debug)]
struct Variant {
    is_k_major: bool,
    one_scale: bool,
    bias: bool,
}

const VARIANTS: [Variant; 3] = [
    Variant { is_k_major: true, one_scale: false, bias: true },
    Variant { is_k_major: true, one_scale: true, bias: false },
    Variant { is_k_major: false, one_scale: false, bias: false },
];

/// The operands of a matmul, quantized and in `f64`.
struct Case<A> {
    extents: Extents,
    variant: Variant,
    a: (Vec<A>, Vec<f64>),
    b: (Vec<A>, Vec<f64>),
    row_scales: Vec<f32>,
    col_scales: Vec<f32>,
    bias: Vec<f32>,
}

fn scales(len: usize, seed: u64) -> Vec<f32> {
    normal::<f32>(len, seed).into_iter().map(|x| 0.01 * (x.abs() + 0.1)).collect()
}

impl<A: Random> Case<A> {
    fn new(extents: Extents, variant: Variant) -> Self {
        let Extents { m, k, n } = extents;
        let count = |len: usize| if variant.one_scale { 1 } else { len };
        let (row_scales, col_scales) = (scales(count(m), 3), scales(count(n), 4));
        let (a, b) = (A::random(m * k, 1), A::random(k * n, 2));
        Case { extents, variant, a, b, row_scales, col_scales, bias: normal(n, 5) }
    }

    fn expected(&self, activation: Activation) -> Vec<Expected> {
        let bias = self.variant.bias.then_some(&self.bias[..]);
        let (row_scales, col_scales) = (&self.row_scales[..], &self.col_scales[..]);
        let integers = A::DTYPE == DType::I8;
        let of = Quantized { a: &self.a.1, b: &self.b.1, row_scales, col_scales, bias, integers };
        reference(of, self.extents, activation)
    }

    /// Passes the matmul to `launch` on a device, with everything on a boundary or off it.
    fn run(
        &self,
        device: Device,
        shift: usize,
        launch: impl FnOnce(QuantizedMatmul<A>) -> dsl_runtime::Result<()>,
    ) {
        let (Extents { m, k, n }, Variant { is_k_major, bias, .. }) = (self.extents, self.variant);
        let strides = if is_k_major { [1, k] } else { [n, 1] };
        let mut memory = self.b.0.clone();
        for (i, &element) in self.b.0.iter().enumerate() {
            memory[i / n * strides[0] + i % n * strides[1]] = element;
        }
        let (a, b) = (shifted(device, &self.a.0, shift), shifted(device, &memory, shift));
        let floats = [&self.row_scales, &self.col_scales, &self.bias].map(|all| shifted(device, all, shift));
        let [rows, cols, added] = floats.each_ref().map(|all| all.slice(shift..));
        let a = a.slice(shift..).view([m, k]).unwrap();
        let b = b.slice(shift..).view_strided([k, n], strides).unwrap();
        let matmul = QuantizedMatmul::new(a, rows, b, cols);
        launch(if bias { matmul.bias(added) } else { matmul }).unwrap();
    }
}

/// Skinny matmuls, which have tiles of their own on a GPU, and many iterations, which are split: splits that end with `k` and before it.
const SPLIT: [Extents; 7] = [
    Extents { m: 16, k: 528, n: 72 },
    Extents { m: 64, k: 256, n: 64 },
    Extents { m: 3, k: 8208, n: 24 },
    Extents { m: 1, k: 1024, n: 136 },
    Extents { m: 3, k: 1300, n: 72 },
    Extents { m: 9, k: 2100, n: 20 },
    Extents { m: 66, k: 640, n: 8 },
];

/// Configurations that devices choose or not: wide and small tiles, split-K, copies of operands.
const CONFIGS: [Config; 4] = [
    Config { block: block(128, 192, 128), split_k: 1, copies: [true, false] },
    Config { block: block(64, 64, 256), split_k: 1, copies: [false, true] },
    Config { block: block(64, 128, 128), split_k: 2, copies: [true; 2] },
    Config { block: block(64, 128, 128), split_k: 5, copies: [false; 2] },
];

const fn block(rows: usize, cols: usize, k: usize) -> Block {
    Block { tile: TileShape { rows, cols }, k }
}

fn check_floats<A: Random, O: LibraryFloat>(activation: Activation) {
    let all = extents().into_iter().chain(SPLIT);
    for (extents, variant) in all.flat_map(|extents| VARIANTS.map(|variant| (extents, variant))) {
        let case = Case::<A>::new(extents, variant);
        let expected: Vec<Expected> =
            case.expected(activation).into_iter().map(|expected| expected.rounded(O::DTYPE)).collect();
        for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
            let mut out = Guarded::<O>::new(device, expected.len(), shift);
            case.run(device, shift, |matmul| {
                matmul.activation(activation).launch(&device, out.output().view_mut([extents.m, extents.n])?)
            });
            if let Err(found) = fused_kernels::reference::compare(&out.content(), &expected) {
                panic!("{extents:?} {variant:?} of {} on {device}, shifted by {shift}: {found}", A::DTYPE);
            }
            for config in CONFIGS {
                let mut out = Guarded::<O>::new(device, expected.len(), shift);
                case.run(device, shift, |matmul| {
                    matmul.activation(activation).launch_with(
                        &device,
                        out.output().view_mut([extents.m, extents.n])?,
                        config,
                    )
                });
                if let Err(found) = fused_kernels::reference::compare(&out.content(), &expected) {
                    panic!(
                        "{config:?}, {extents:?} {variant:?} of {} on {device}, shifted by {shift}: {found}",
                        A::DTYPE
                    );
                }
            }
        }
    }
}

fn check_integers(activation: Activation) {
    let all = extents().into_iter().chain(SPLIT);
    for (extents, variant) in all.flat_map(|extents| VARIANTS.map(|variant| (extents, variant))) {
        let (case, Extents { m, n, .. }) = (Case::<i8>::new(extents, variant), extents);
        let out_scales = scales(if variant.one_scale { 1 } else { m }, 6);
        let expected = case.expected(activation);
        let runs = devices()
            .into_iter()
            .flat_map(|device| [(0, None), (1, None), (1, Some(CONFIGS[3]))].map(|run| (device, run)));
        for (device, (shift, config)) in runs {
            let mut out = device.zeros::<i8>(m * n + shift).unwrap();
            let given = shifted(device, &out_scales, shift);
            case.run(device, shift, |matmul| {
                let (out, given) = (ViewMut::new(out.slice_mut(shift..), [m, n])?, given.slice(shift..));
                let matmul = matmul.activation(activation);
                match config {
                    Some(config) => matmul.requantize_with(&device, out, given, config),
                    None => matmul.requantize(&device, out, given),
                }
            });
            let found = out.download().unwrap();
            for (i, (&expected, &found)) in expected.iter().zip(&found[shift..]).enumerate() {
                let scale = out_scales[if variant.one_scale { 0 } else { i / n }];
                let Expected { value, within } = requantized(expected, scale);
                let error = (f64::from(found) - value).abs();
                assert!(error <= within, "{extents:?} {variant:?} on {device}: {i} is {found}, not {value}");
            }
        }
    }
}

#[test]
fn matmuls_of_i8_are_as_exact_as_stated() {
    check_floats::<i8, f16>(Activation::Identity);
    check_floats::<i8, bf16>(Activation::Gelu);
    check_floats::<i8, bf16>(Activation::Relu);
    check_floats::<i8, f16>(Activation::Silu);
    check_floats::<i8, f32>(Activation::Identity);
}

#[test]
fn matmuls_of_f8_are_as_exact_as_stated() {
    check_floats::<f8e4m3, bf16>(Activation::Identity);
    check_floats::<f8e4m3, f16>(Activation::Gelu);
    check_floats::<f8e4m3, f16>(Activation::Silu);
}

#[test]
fn results_are_requantized() {
    check_integers(Activation::Identity);
    check_integers(Activation::Relu);
    check_integers(Activation::Gelu);
}

/// The result of a kernel for integers, whose sums are exact: with a scale for each row and column and a bias.
macro_rules! check_exact {
    ($A:ident, $whole:expr, $kernel:expr, $tile:expr, $act:expr, $block:expr) => {
        check_exact!($A, $whole, $kernel, $tile, std::convert::identity, 1, $act, $block)
    };
    // `slice` cuts operands whose rows are a multiple of so many elements.
    (
        $A:ident, $whole:expr, $kernel:expr, $tile:expr, $slice:expr, $slices:literal, $act:expr,
        $($host:expr),+
    ) => {
        for (m, k, n) in
            [(128, 128, 192), (130, 48, 400), (256, 272, 384), (1, 16, 8), (15, 528, 40), (127, 31, 191)]
        {
            if !usize::is_multiple_of(k, $slices) {
                continue;
            }
            let integers = |len: usize, seed: u64| -> Vec<f32> {
                normal::<f32>(len, seed).into_iter().map(|x| (2.0 * x).round().clamp(-4.0, 4.0)).collect()
            };
            let (a, b, bias) = (integers(m * k, 1), integers(n * k, 2), integers(n, 3));
            let powers = |len: usize| (0..len).map(|i| 0.5f32.powi(i as i32 % 4)).collect::<Vec<f32>>();
            let (row_scales, col_scales) = (powers(m), powers(n));
            let element = |i: usize| {
                let (row, col) = (i / n, i % n);
                let sum: f32 = (0..k).map(|j| a[row * k + j] * b[col * k + j]).sum();
                bf16::from_f32(sum * row_scales[row] * col_scales[col] + bias[col])
            };
            let wanted: Vec<bf16> = (0..m * n).map(element).collect();
            for device in devices() {
                let [a, b] = [&a, &b].map(|all| all.iter().copied().map($whole).collect::<Vec<$A>>());
                let (a, b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
                let floats = [&row_scales, &col_scales, &bias].map(|all| device.upload(all).unwrap());
                let [rows, cols, added] = &floats;
                let mut out = device.zeros::<bf16>(m * n).unwrap();
                $kernel(
                    $slice(a.view([m, k]).unwrap()),
                    $slice(b.view([n, k]).unwrap()),
                    rows.view([m, 1]).unwrap(),
                    cols.view([1, n]).unwrap(),
                    added.view([1, n]).unwrap(),
                    added.view([0, 1]).unwrap(),
                    out.view_mut([m, n]).unwrap(),
                    $act,
                    $($host),+
                )
                .grid($tile.count([1, m, n]))
                .launch(&device)
                .unwrap();
                assert_eq!(out.download().unwrap(), wanted, "{m} x {k} x {n} of {} on {device}", $A::DTYPE);
            }
        }
    };
}

#[test]
fn wide_tiles_are_exact_where_sums_are() {
    let (block, act) = (Block::new(128, 192, 128), Activation::Identity);
    check_exact!(i8, |x| x as i8, quantized_matmul::<i8, i32, bf16>, block.tile, act, block);
    check_exact!(f8e4m3, f8e4m3::from_f32, quantized_matmul::<f8e4m3, f32, bf16>, block.tile, act, block);
}

fn sliced<const WARPS: usize, A: Element>(rows: View<'_, A, 2>) -> View<'_, A, 3> {
    let [count, k] = rows.shape();
    let sliced = rows.reshape([count, WARPS, k / WARPS]).unwrap();
    sliced.permute([1, 0, 2])
}

/// On every device, which chooses them or not.
#[test]
fn skinny_tiles_are_exact_where_sums_are() {
    let none = Activation::Identity as i32;
    let tile = TileShape::new(16, 16);
    check_exact!(
        i8,
        |x| x as i8,
        quantized_warp_split_k::<i8, i32, bf16>,
        tile,
        sliced::<4, i8>,
        4,
        none,
        tile,
        4
    );
    check_exact!(
        f8e4m3,
        f8e4m3::from_f32,
        quantized_warp_split_k::<f8e4m3, f32, bf16>,
        tile,
        sliced::<8, f8e4m3>,
        8,
        none,
        tile,
        8
    );
    for block in [Block::new(16, 32, 256), Block::new(64, 64, 256)] {
        check_exact!(i8, |x| x as i8, quantized_skinny::<i8, i32, bf16>, block.tile, none, block);
        check_exact!(
            f8e4m3,
            f8e4m3::from_f32,
            quantized_skinny::<f8e4m3, f32, bf16>,
            block.tile,
            none,
            block
        );
    }
}

/// The ends of the range, where sums are longest.
#[test]
fn sums_of_i8_are_exact() {
    let (m, k, n) = (2, 100_000, 3);
    let (a, b) = (vec![-128i8; m * k], vec![-128i8; n * k]);
    for device in devices() {
        let (a, b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let one = device.upload(&[1.0f32]).unwrap();
        let mut out = device.zeros::<f32>(m * n).unwrap();
        let b = b.view([n, k]).unwrap().permute([1, 0]);
        let matmul = QuantizedMatmul::new(a.view([m, k]).unwrap(), &one, b, &one);
        matmul.launch(&device, out.view_mut([m, n]).unwrap()).unwrap();
        assert_eq!(out.download().unwrap(), [16384.0 * k as f32; 6]);
    }
}

#[test]
fn wrong_shapes_are_errors() {
    let device = Device::cpu();
    let (a, b) = (device.zeros::<i8>(1 << 18).unwrap(), device.zeros::<i8>(1 << 18).unwrap());
    let scales = device.zeros::<f32>(8).unwrap();
    let mut out = device.zeros::<f16>(64).unwrap();
    let mut message = |left: [usize; 2], right: [usize; 2], counts: [usize; 2], shape: [usize; 2]| {
        let [rows, cols] = counts.map(|count| scales.slice(..count));
        let matmul = QuantizedMatmul::new(a.view(left).unwrap(), rows, b.view(right).unwrap(), cols);
        matmul.launch(&device, out.view_mut(shape).unwrap()).unwrap_err().to_string()
    };
    let found = message([2, 3], [2, 4], [2, 4], [2, 4]);
    assert_eq!(found, "quantized_matmul: b has the shape [2, 4], expected [3, 4]");
    let found = message([3, 2], [2, 4], [3, 4], [4, 3]);
    assert_eq!(found, "quantized_matmul: out has the shape [4, 3], expected [3, 4]");
    let found = message([3, 2], [2, 4], [2, 4], [3, 4]);
    assert_eq!(found, "quantized_matmul: row_scales has 2 elements, expected 3 or 1");
    let found = message([3, 2], [2, 4], [1, 3], [3, 4]);
    assert_eq!(found, "quantized_matmul: col_scales has 3 elements, expected 4 or 1");
    let found = message([1, 1 << 17], [1 << 17, 1], [1, 1], [1, 1]);
    assert_eq!(found, "quantized_matmul: k is 131072, the most products of i8 that can be added are 131071");
    let (left, right) = (a.view([1, 8]).unwrap(), b.view([8, 1]).unwrap());
    let matmul = QuantizedMatmul::new(left, scales.slice(..1), right, scales.slice(..1));
    let mut found = |config: Config| {
        let mut one = out.slice_mut(..1);
        let out = one.view_mut([1, 1]).unwrap();
        matmul.launch_with(&device, out, config).unwrap_err().to_string()
    };
    let none = Config { block: block(64, 128, 128), split_k: 1, copies: [false; 2] };
    assert_eq!(found(none), "quantized_matmul: there is no kernel of 64 x 128 x 128 for this product");
    let split_config = Config { block: block(128, 128, 128), split_k: 2, ..none };
    assert_eq!(
        found(split_config),
        "quantized_matmul: there is no kernel of 128 x 128 x 128 for this product"
    );
    let split_config = Config { split_k: 33, ..none };
    assert_eq!(found(split_config), "quantized_matmul: a split of K in 33, the most is 32");
    let mut integer = device.zeros::<i8>(1).unwrap();
    let requantized = matmul.activation(Activation::Silu).requantize(
        &device,
        integer.view_mut([1, 1]).unwrap(),
        scales.slice(..1),
    );
    assert_eq!(
        requantized.unwrap_err().to_string(),
        "quantized_matmul: there is no kernel with the activation SiLU, expected one of identity, ReLU, GELU"
    );
    let (of_f8, mut float) = (device.zeros::<f8e4m3>(8).unwrap(), device.zeros::<f32>(1).unwrap());
    let (left, right) = (of_f8.view([1, 8]).unwrap(), of_f8.view([8, 1]).unwrap());
    let matmul = QuantizedMatmul::new(left, scales.slice(..1), right, scales.slice(..1));
    let launched = matmul.launch(&device, float.view_mut([1, 1]).unwrap());
    assert_eq!(
        launched.unwrap_err().to_string(),
        "quantized_matmul: the result of f8e4m3 is f32, expected f16 or bf16"
    );
}

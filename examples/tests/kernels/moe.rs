//! `moe`.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::form::Cost;
use fused_kernels::moe::{Experts, Moe, QuantizedRows, Routing};
use fused_kernels::moe_kernels::combine_choices;
use fused_kernels::moe_reference::{HostExperts, reference};
use fused_kernels::quantize;
use fused_kernels::quantize::Quantize;
use fused_kernels::quantized_matmul::requantized;
use fused_kernels::reference::{Expected, compare};

use crate::data::{Guarded, devices, normal, shifted};

/// Tokens, experts of each, experts, intermediate and hidden size.
#[derive(Clone, Copy, Debug)]
struct Extents {
    tokens: usize,
    top_k: usize,
    experts: usize,
    f: usize,
    k: usize,
}

const fn extents([tokens, top_k, experts, f, k]: [usize; 5]) -> Extents {
    Extents { tokens, top_k, experts, f, k }
}

/// Tiles of few rows and of many, aligned and not, several blocks and iterations, experts without tokens, and nothing to do.
const EXTENTS: [Extents; 10] = [
    extents([5, 2, 4, 70, 45]),
    extents([1, 1, 1, 128, 128]),
    extents([1, 2, 8, 144, 272]),
    extents([3, 1, 2, 300, 33]),
    extents([96, 2, 4, 256, 144]),
    extents([110, 2, 3, 130, 150]),
    extents([40, 8, 256, 16, 16]),
    extents([0, 2, 3, 8, 8]),
    extents([4, 2, 3, 0, 5]),
    extents([4, 2, 3, 5, 0]),
];

/// Which experts tokens go to.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// Any, and some that do not exist.
    Random,
    /// All choices to the last one.
    Skewed,
}

/// The weights and the routing on the host.
struct Case {
    extents: Extents,
    gate_up: Vec<i8>,
    gate_up_scales: Vec<f32>,
    down: Vec<i8>,
    down_scales: Vec<f32>,
    ids: Vec<i32>,
    weights: Vec<f32>,
}

fn integers(len: usize, seed: u64) -> Vec<i8> {
    normal::<f32>(len, seed).into_iter().map(|x| (40.0 * x) as i8).collect()
}

fn scales(len: usize, seed: u64) -> Vec<f32> {
    normal::<f32>(len, seed).into_iter().map(|x| 0.01 * (x.abs() + 0.1)).collect()
}

impl Case {
    fn new(extents: Extents, spread: Spread) -> Self {
        let Extents { tokens, top_k, experts, f, k } = extents;
        let count = experts as i32;
        let id = |(i, x): (usize, f32)| match spread {
            Spread::Random if i % 11 == 7 => [-1, count, i32::MIN, i32::MAX][i % 4],
            Spread::Random => (1000.0 * x.abs()) as i32 % count,
            Spread::Skewed => count - 1,
        };
        Case {
            extents,
            gate_up: integers(experts * 2 * f * k, 1),
            gate_up_scales: scales(experts * 2 * f, 2),
            down: integers(experts * k * f, 3),
            down_scales: scales(experts * k, 4),
            ids: normal::<f32>(tokens * top_k, 5).into_iter().enumerate().map(id).collect(),
            weights: normal(tokens * top_k, 6),
        }
    }

    /// The result of rows that are known within bounds.
    fn expected<T: Float>(&self, x: &[Expected]) -> Vec<Expected> {
        let experts = HostExperts {
            gate_up: &self.gate_up,
            gate_up_scales: &self.gate_up_scales,
            down: &self.down,
            down_scales: &self.down_scales,
            extents: [self.extents.f, self.extents.k],
        };
        let choices: Vec<(i32, f32)> = self.ids.iter().copied().zip(self.weights.iter().copied()).collect();
        let routing: Vec<Vec<(i32, f32)>> =
            choices.chunks(self.extents.top_k).map(|choices| choices.to_vec()).collect();
        reference::<T>(x, experts, &routing)
    }

    /// Hands the operation to `launch` on a device, with everything on a boundary or off it.
    fn run(&self, device: Device, shift: usize, launch: impl FnOnce(Moe) -> dsl_runtime::Result<()>) {
        let Extents { top_k, experts, f, k, .. } = self.extents;
        let [gate_up, down] = [&self.gate_up, &self.down].map(|all| shifted(device, all, shift));
        let [gate_up_scales, down_scales, weights] =
            [&self.gate_up_scales, &self.down_scales, &self.weights].map(|all| shifted(device, all, shift));
        let ids = shifted(device, &self.ids, shift);
        let of_experts = Experts {
            gate_up: gate_up.slice(shift..).view([experts, 2 * f, k]).unwrap(),
            gate_up_scales: gate_up_scales.slice(shift..).view([experts, 2 * f]).unwrap(),
            down: down.slice(shift..).view([experts, k, f]).unwrap(),
            down_scales: down_scales.slice(shift..).view([experts, k]).unwrap(),
        };
        let routing = Routing { experts: ids.slice(shift..), weights: weights.slice(shift..), top_k };
        launch(Moe::new(of_experts, routing)).unwrap();
    }
}

fn cases() -> impl Iterator<Item = (Case, String)> {
    EXTENTS.into_iter().flat_map(|extents| {
        [Spread::Random, Spread::Skewed]
            .map(|spread| (Case::new(extents, spread), format!("{extents:?}, {spread:?}")))
    })
}

fn devices_and_shifts() -> impl Iterator<Item = (Device, usize)> {
    devices().into_iter().flat_map(|device| [(device, 0), (device, 1)])
}

fn bits<T: Float>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.to_f64().to_bits()).collect()
}

/// The index of the first elements that differ, and these.
fn first_difference<T: Float>(got: &[T], wanted: &[T]) -> Option<(usize, f64, f64)> {
    assert_eq!(got.len(), wanted.len());
    let pairs = got.iter().zip(wanted).map(|(got, wanted)| (got.to_f64(), wanted.to_f64()));
    pairs.enumerate().find(|(_, (got, wanted))| got != wanted).map(|(i, (got, wanted))| (i, got, wanted))
}

/// What quantized rows are.
fn dequantized(rows: &[i8], scales: &[f32], k: usize) -> Vec<Expected> {
    let value = |(i, q): (usize, &i8)| f64::from(*q) * f64::from(scales[i / k]);
    rows.iter().enumerate().map(|of| Expected { value: value(of), within: 0.0 }).collect()
}

/// Rows of floats, of which every fifth is zero; twice, with the same bits. Their quantization has its own bound, and the rest is
/// compared from there: half a step in each element of `x` would leave little to find.
#[track_caller]
fn check_floats<T: LibraryFloat>() {
    for (case, what) in cases() {
        let Extents { tokens, k, .. } = case.extents;
        let mut x = normal::<T>(tokens * k, 7);
        x.chunks_mut(k.max(1)).skip(3).step_by(5).for_each(|row| row.fill(T::default()));
        let exact: Vec<Expected> = x.iter().map(|x| Expected { value: x.to_f64(), within: 0.0 }).collect();
        let near: Vec<Expected> =
            exact.chunks(k.max(1)).flat_map(|row| quantize::reference(row, true).1).collect();
        let mut known = (vec![], vec![], case.expected::<T>(&near));
        for (device, shift) in devices_and_shifts() {
            let what = format!("{what} of {} on {device}, shifted by {shift}", T::DTYPE);
            let x = shifted(device, &x, shift);
            let mut outs = [0, 1].map(|_| Guarded::<T>::new(device, tokens * k, shift));
            case.run(device, shift, |moe| {
                outs.iter_mut().try_for_each(|out| moe.launch(&device, x.slice(shift..), out.output()))
            });
            let [first, second] = outs.each_ref().map(Guarded::content);
            assert_eq!(bits(&first), bits(&second), "{what}: two runs");
            for row in (3..tokens).step_by(5) {
                assert!(
                    first[row * k..][..k].iter().all(|y| y.to_f64() == 0.0),
                    "{what}: row {row} of zeros"
                );
            }
            if tokens * k > 0 {
                let (rows, scales) = quantized(device, x.slice(shift..), k);
                for (i, (got, near)) in dequantized(&rows, &scales, k).iter().zip(&near).enumerate() {
                    assert!((got.value - near.value).abs() <= near.within, "{what}: element {i} of x");
                }
                if (&known.0, &known.1) != (&rows, &scales) {
                    let expected = case.expected::<T>(&dequantized(&rows, &scales, k));
                    known = (rows, scales, expected);
                }
            }
            compare(&first, &known.2).unwrap_or_else(|found| panic!("{what}: {found}"));
        }
    }
}

/// Rows in `i8`, and their scales, as the operation makes them.
fn quantized<T: LibraryFloat>(device: Device, x: Slice<T>, k: usize) -> (Vec<i8>, Vec<f32>) {
    let mut rows = device.zeros::<i8>(x.len()).unwrap();
    let mut scales = device.zeros::<f32>(x.len() / k).unwrap();
    Quantize::new(x, k).to_i8(&device, rows.slice_mut(..), scales.slice_mut(..)).unwrap();
    (rows.download().unwrap(), scales.download().unwrap())
}

#[test]
fn experts_of_rows_of_f32_are_as_exact_as_stated() {
    check_floats::<f32>();
}

#[test]
fn experts_of_rows_of_f16_are_as_exact_as_stated() {
    check_floats::<f16>();
}

#[test]
fn experts_of_rows_of_bf16_are_as_exact_as_stated() {
    check_floats::<bf16>();
}

#[test]
fn quantized_rows_give_floats_or_i8_again() {
    for (case, what) in cases() {
        let Extents { tokens, k, .. } = case.extents;
        let (x, x_scales, out_scales) = (integers(tokens * k, 7), scales(tokens, 8), scales(tokens, 9));
        let exact = dequantized(&x, &x_scales, k);
        let (expected, before) = (case.expected::<bf16>(&exact), case.expected::<f32>(&exact));
        // Steps that leave most of the range.
        let out_scales: Vec<f32> = out_scales.iter().map(|scale| 10.0 * scale).collect();
        for (device, shift) in devices_and_shifts() {
            let what = format!("{what} on {device}, shifted by {shift}");
            let rows = shifted(device, &x, shift);
            let [of_x, of_out] = [&x_scales, &out_scales].map(|all| shifted(device, all, shift));
            let quantized = QuantizedRows { rows: rows.slice(shift..), scales: of_x.slice(shift..) };
            let mut floats = Guarded::<bf16>::new(device, tokens * k, shift);
            let mut integers = device.upload(&vec![55i8; tokens * k + shift + 1]).unwrap();
            case.run(device, shift, |moe| {
                moe.launch_quantized(&device, quantized, floats.output())?;
                let out = integers.slice_mut(shift..shift + tokens * k);
                moe.requantize(&device, quantized, out, of_out.slice(shift..))
            });
            compare(&floats.content(), &expected).unwrap_or_else(|found| panic!("{what}: {found}"));
            let integers = integers.download().unwrap();
            assert!(integers[..shift].iter().chain(integers.last()).all(|&q| q == 55), "{what}: outside");
            for (i, (&before, &found)) in before.iter().zip(&integers[shift..]).enumerate() {
                let Expected { value, within } = requantized(before, out_scales[i / k]);
                let error = (f64::from(found) - value).abs();
                assert!(error <= within, "{what}: element {i} is {found}, not {value}");
            }
        }
    }
}

/// Rows with one element, and powers of two wherever something is multiplied: every number is exact, so a row, column, expert
/// or scale at another's index shows. Each block of intermediate columns has one element, 127 times a power of two, whose scale
/// is that power.
fn exact_case(experts: usize) -> (Case, Vec<i8>, Vec<f32>, Vec<f64>) {
    let extents = extents([75, 2, experts, 300, 200]);
    let Extents { tokens, top_k, f, k, .. } = extents;
    let power = |exponent: usize| 1i8 << exponent;
    let half = |exponent: usize| 0.5f32.powi(exponent as i32);
    let column = |token: usize| (37 * token + 11) % k;
    let mut x = vec![0i8; tokens * k];
    (0..tokens).for_each(|t| x[t * k + column(t)] = power(t % 4));
    let x_scales: Vec<f32> = (0..tokens).map(|t| 2f32.powi(t as i32 % 3)).collect();
    // Gates so large that SiLU leaves them as they are; of the up projection one column in each block, another for each element.
    let weight = |i: usize| {
        let (e, i, c) = (i / (2 * f * k), i / k % (2 * f), i % k);
        let (col, block) = (i % f, i % f / 128);
        let kept = (5 * e + 7 * block + c) % (f - 128 * block).min(128);
        match (i < f, col % 128 == kept, (e + block + c) % 2) {
            (true, _, _) => power((e + i + c) % 3),
            (_, false, _) => 0,
            (_, _, 0) => 127,
            _ => -127,
        }
    };
    let gate_up_scale = |i: usize| {
        let (e, i) = (i / (2 * f), i % (2 * f));
        if i < f { 64.0 * half((i + e) % 2) } else { half((i + 2 * e) % 3) }
    };
    let case = Case {
        extents,
        gate_up: (0..experts * 2 * f * k).map(weight).collect(),
        gate_up_scales: (0..experts * 2 * f).map(gate_up_scale).collect(),
        down: (0..experts * k * f)
            .map(|i| [1, -2, 4, -1, 2, 0, -4][(i / (f * k) + 3 * (i / f) + 5 * (i % f)) % 7])
            .collect(),
        down_scales: (0..experts * k).map(|i| half((i / k + i % k) % 4)).collect(),
        ids: (0..tokens * top_k)
            .map(|i| if i % 13 == 5 { experts as i32 } else { (i * i % experts) as i32 })
            .collect(),
        weights: (0..tokens * top_k).map(|i| half(i % 3)).collect(),
    };
    let wanted = (0..tokens * k).map(|i| {
        let (token, n) = (i / k, i % k);
        let of_choice = |choice: usize| {
            let e = case.ids[choice] as usize;
            if e >= experts {
                return 0.0;
            }
            let value = f64::from(x[token * k + column(token)]) * f64::from(x_scales[token]);
            let channel = |i: usize| {
                let weight = f64::from(case.gate_up[(e * 2 * f + i) * k + column(token)]);
                value * weight * f64::from(case.gate_up_scales[e * 2 * f + i])
            };
            let term = |i: usize| channel(i) * channel(f + i) * f64::from(case.down[(e * k + n) * f + i]);
            let sum: f64 = (0..f).map(term).sum();
            sum * f64::from(case.down_scales[e * k + n]) * f64::from(case.weights[choice])
        };
        (token * top_k..(token + 1) * top_k).map(of_choice).sum()
    });
    let wanted = wanted.collect();
    (case, x, x_scales, wanted)
}

#[test]
fn powers_of_two_are_exact() {
    // Tiles of 64 rows, and of 16.
    for experts in [3, 16] {
        let (case, x, x_scales, wanted) = exact_case(experts);
        assert!(wanted.iter().filter(|y| **y != 0.0).count() > wanted.len() / 2, "most results are not zero");
        for (device, shift) in devices_and_shifts() {
            let (rows, scales) = (shifted(device, &x, shift), shifted(device, &x_scales, shift));
            let quantized = QuantizedRows { rows: rows.slice(shift..), scales: scales.slice(shift..) };
            let mut single = Guarded::<f32>::new(device, wanted.len(), shift);
            let mut half = Guarded::<bf16>::new(device, wanted.len(), shift);
            case.run(device, shift, |moe| {
                moe.launch_quantized(&device, quantized, single.output())?;
                moe.launch_quantized(&device, quantized, half.output())
            });
            let what = format!("{experts} experts on {device}, shifted by {shift}");
            let as_single: Vec<f32> = wanted.iter().map(|&y| y as f32).collect();
            let wrong = first_difference(&single.content(), &as_single);
            assert_eq!(wrong, None, "{what}, of f32");
            let as_half: Vec<bf16> = wanted.iter().map(|&y| bf16::from_f64(y)).collect();
            let wrong = first_difference(&half.content(), &as_half);
            assert_eq!(wrong, None, "{what}, of bf16");
        }
    }
}

/// Nobody writes what a choice of no expert would add.
#[test]
fn a_choice_of_no_expert_adds_nothing() {
    let ids = [0, 3, -1, 1, i32::MAX, i32::MIN];
    let weighted = |i: usize| if (0..3).contains(&ids[i / 5]) { i as f32 } else { f32::NAN };
    let weighted_rows: Vec<f32> = (0..30).map(weighted).collect();
    for device in devices() {
        let (weighted_rows, ids) = (device.upload(&weighted_rows).unwrap(), device.upload(&ids).unwrap());
        let mut out = Guarded::<f32>::new(device, 15, 0);
        combine_choices::<f32, 1024>(&weighted_rows, &ids, weighted_rows.slice(..0), out.output(), 3, 2, 5)
            .grid((3, 1))
            .launch(&device)
            .unwrap();
        let wanted = [[0.0, 1.0, 2.0, 3.0, 4.0], [15.0, 16.0, 17.0, 18.0, 19.0], [0.0; 5]];
        assert_eq!(out.content(), wanted.concat(), "{device}");
    }
}

#[test]
fn what_is_not_finite_stays_with_its_token() {
    let case = Case::new(extents([40, 2, 2, 40, 48]), Spread::Random);
    let (good, mut bad) = (normal::<f32>(40 * 48, 7), normal::<f32>(40 * 48, 7));
    (bad[3 * 48 + 5], bad[20 * 48]) = (f32::NAN, f32::INFINITY);
    for device in devices() {
        let run = |x: &[f32]| {
            let (x, mut out) = (device.upload(x).unwrap(), device.zeros::<f32>(40 * 48).unwrap());
            case.run(device, 0, |moe| moe.launch(&device, &x, &mut out));
            out.download().unwrap()
        };
        let (from_good, from_bad) = (run(&good), run(&bad));
        for token in (0..40).filter(|token| ![3, 20].contains(token)) {
            let row = token * 48..(token + 1) * 48;
            assert_eq!(bits(&from_good[row.clone()]), bits(&from_bad[row]), "token {token} on {device}");
        }
    }
}

#[test]
fn launches_and_bytes_are_counted() {
    // 3 tokens with 2 of 4 experts each, which are 6 choices of 4 experts; f is 5 and k is 8.
    let case = Case::new(extents([3, 2, 4, 5, 8]), Spread::Skewed);
    case.run(Device::cpu(), 0, |moe| {
        let [ours, separate] = moe.cost::<f16>();
        let quantize = 24 * 2 + (24 + 12);
        let (gate_up_weights, down_weights) = (4 * 10 * 8 + 4 * 40, 4 * 8 * 5 + 4 * 32);
        let (intermediate, weighted_rows) = (6 * 5 + 6 * 4, 6 * 8 * 4);
        let gate_up = (24 + 12) + 24 + gate_up_weights + intermediate;
        let down = intermediate + 24 + down_weights + 24 + weighted_rows;
        let bytes = quantize + (24 + 24) + gate_up + down + (weighted_rows + 24 + 48);
        assert_eq!(ours, Cost { launches: 5, bytes });
        let gather = (24 + 12) + 24 + (48 + 24);
        let matmuls = 2 * (48 + 4 * 80 + 60) + 2 * (30 + 4 * 40 + 48);
        let dequantize = [(6, 8), (40, 8), (6, 5), (32, 5)].map(|(rows, cols)| rows * (3 * cols + 4));
        let gate = 2 * (60 + 30) + (2 * 30 + 30 + 24);
        let combine = (2 * 48 + 24 + 2 * 48) + (2 * 48 + 48);
        let between = gather + dequantize.iter().sum::<usize>() + matmuls + gate;
        assert_eq!(separate, Cost { launches: 13, bytes: quantize + 48 + between + combine });
        let [in_f32, _] = moe.cost::<f32>();
        assert_eq!(in_f32, Cost { launches: 5, bytes: bytes + 2 * 48 });
        Ok(())
    });
}

/// The error of sizes that do not fit: those of the two weights, of their scales, of the routing, and the elements of `x` and
/// `out`.
#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let (bytes, floats) = (device.zeros::<i8>(1 << 18).unwrap(), device.zeros::<f32>(1 << 18).unwrap());
    let ids = device.zeros::<i32>(64).unwrap();
    struct Sizes {
        gate_up: [usize; 3],
        gate_up_scales: [usize; 2],
        down: [usize; 3],
        down_scales: [usize; 2],
        choices: [usize; 2],
        top_k: usize,
        x: usize,
        out: usize,
    }
    let fit = || Sizes {
        gate_up: [3, 10, 8],
        gate_up_scales: [3, 10],
        down: [3, 8, 5],
        down_scales: [3, 8],
        choices: [4, 4],
        top_k: 2,
        x: 16,
        out: 16,
    };
    let moe = |of: &Sizes| {
        let experts = Experts {
            gate_up: bytes.view(of.gate_up).unwrap(),
            gate_up_scales: floats.view(of.gate_up_scales).unwrap(),
            down: bytes.view(of.down).unwrap(),
            down_scales: floats.view(of.down_scales).unwrap(),
        };
        let [experts_len, weights_len] = of.choices;
        let (ids, weights) = (ids.slice(..experts_len), floats.slice(..weights_len));
        Moe::new(experts, Routing { experts: ids, weights, top_k: of.top_k })
    };
    let message = |of: Sizes| {
        let mut out = device.zeros::<f32>(of.out).unwrap();
        let result = moe(&of).launch(&device, floats.slice(..of.x), &mut out);
        result.map_err(|error| error.to_string())
    };
    let error = |of: Sizes| message(of).unwrap_err();
    assert_eq!(message(fit()), Ok(()));
    assert_eq!(
        error(Sizes { gate_up: [0, 10, 8], ..fit() }),
        "moe: there are 0 experts, from 1 to 256 will do"
    );
    assert_eq!(
        error(Sizes { gate_up: [257, 10, 8], ..fit() }),
        "moe: there are 257 experts, from 1 to 256 will do"
    );
    assert_eq!(
        error(Sizes { gate_up: [3, 9, 8], ..fit() }),
        "moe: gate_up has the shape [3, 9, 8], expected [3, 8, 8]"
    );
    assert_eq!(
        error(Sizes { gate_up_scales: [3, 5], ..fit() }),
        "moe: gate_up_scales has the shape [3, 5], expected [3, 10]"
    );
    assert_eq!(
        error(Sizes { down: [3, 5, 8], ..fit() }),
        "moe: down has the shape [3, 5, 8], expected [3, 8, 5]"
    );
    assert_eq!(
        error(Sizes { down_scales: [2, 8], ..fit() }),
        "moe: down_scales has the shape [2, 8], expected [3, 8]"
    );
    assert_eq!(
        error(Sizes { choices: [4, 6], ..fit() }),
        "moe: routing.experts has 4 elements and routing.weights has 6"
    );
    assert_eq!(
        error(Sizes { top_k: 3, ..fit() }),
        "moe: routing.experts has 4 elements, which are no whole rows of 3"
    );
    assert_eq!(error(Sizes { x: 17, ..fit() }), "moe: x has the shape [17], expected [16]");
    assert_eq!(error(Sizes { out: 24, ..fit() }), "moe: out has the shape [24], expected [16]");
    let long = Sizes {
        gate_up: [1, 2, 1 << 17],
        gate_up_scales: [1, 2],
        down: [1, 1 << 17, 1],
        down_scales: [1, 1 << 17],
        ..fit()
    };
    assert_eq!(error(long), "moe: k is 131072, the most products of i8 that can be added are 131071");

    let of = fit();
    let quantized = |rows: usize, scales: usize| QuantizedRows {
        rows: bytes.slice(..rows),
        scales: floats.slice(..scales),
    };
    let mut out = device.zeros::<f32>(16).unwrap();
    let found = moe(&of).launch_quantized(&device, quantized(16, 3), &mut out).unwrap_err();
    assert_eq!(found.to_string(), "moe: the scales of x has the shape [3], expected [2]");
    let mut integers = device.zeros::<i8>(16).unwrap();
    let found = moe(&of).requantize(&device, quantized(16, 2), &mut integers, floats.slice(..5)).unwrap_err();
    assert_eq!(found.to_string(), "moe: the scales of x has 2 elements and those of out has 5");
}

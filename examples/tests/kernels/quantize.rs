//! `quantize` and `dequantize_add`.

use dsl_runtime::DType;
use dsl_runtime::prelude::*;
use fused_kernels::float::{HalfFloat, LibraryFloat};
use fused_kernels::quantize::{DequantizeAdd, MAX_COLS, Quantize, dequantized, reference};
use fused_kernels::reference::{Expected, compare};
use fused_kernels::{layer_norm, rms_norm};

use crate::data::{Guarded, check, devices, normal, shifted};

const WIDTHS: [usize; 11] = [1, 7, 100, 300, 512, 1000, 1024, 1025, 8192, 16_385, MAX_COLS];

/// Elements as they are, in `f64`.
fn exactly<T: Float>(x: &[T]) -> Vec<Expected> {
    x.iter().map(|x| Expected { value: x.to_f64(), within: 0.0 }).collect()
}

/// What is quantized.
#[derive(Clone, Copy, Debug)]
enum Norm {
    Plain,
    Rms,
    Layer,
}

/// What a norm gives, and its error before a rounding to `T`: the reference of `f64` inputs has no other.
fn normed<T: Float>(x: &[T], gamma: &[T], beta: &[T], norm: Norm) -> Vec<Expected> {
    let wide = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
    let (x64, gamma64, beta64) = (wide(x), wide(gamma), wide(beta));
    match norm {
        Norm::Rms => rms_norm::reference(&x64, &gamma64, 1e-6),
        Norm::Layer => layer_norm::reference(&x64, &gamma64, &beta64, 1e-5),
        Norm::Plain => exactly(x),
    }
}

/// Compares scales, and elements times their scales.
fn check_rows(what: &str, (cols, integers): (usize, bool), normed: &[Expected], got: (&[f64], &[f32])) {
    let (elements, scales) = got;
    for (row, scale) in scales.iter().enumerate() {
        let elements_of_row = row * cols..(row + 1) * cols;
        let (expected_scale, expected) = reference(&normed[elements_of_row.clone()], integers);
        compare(&[*scale], &[expected_scale]).unwrap_or_else(|found| panic!("{what}, scale {row}: {found}"));
        let dequantized: Vec<f64> = elements[elements_of_row].iter().map(|q| q * f64::from(*scale)).collect();
        compare(&dequantized, &expected).unwrap_or_else(|found| panic!("{what}, row {row}: {found}"));
    }
}

fn check_norms<T: LibraryFloat>(widths: &[usize]) {
    for (device, &cols) in
        devices().into_iter().flat_map(|device| widths.iter().map(move |cols| (device, cols)))
    {
        for shift in [0, 1] {
            // Several programs of several short rows, and the last one not as many.
            let rows = if cols <= 512 { 21 } else { 3 };
            let (x, gamma, beta) = (normal::<T>(rows * cols, 1), normal::<T>(cols, 2), normal::<T>(cols, 3));
            let [bx, bg, bb] = [&x, &gamma, &beta].map(|values| shifted(device, values, shift));
            let (sx, sg, sb) = (bx.slice(shift..), bg.slice(shift..), bb.slice(shift..));
            let run = |norm: Norm, integers: bool| {
                let mut scales = Guarded::<f32>::new(device, rows, shift);
                let op = match norm {
                    Norm::Plain => Quantize::new(sx, cols),
                    Norm::Rms => Quantize::rms_norm(sx, sg),
                    Norm::Layer => Quantize::layer_norm(sx, sg, sb),
                };
                let elements: Vec<f64> = if integers {
                    let mut out = device.zeros::<i8>(rows * cols).unwrap();
                    op.to_i8(&device, &mut out, scales.output()).unwrap();
                    out.download().unwrap().into_iter().map(f64::from).collect()
                } else {
                    let mut out = device.zeros::<f8e4m3>(rows * cols).unwrap();
                    op.to_f8(&device, &mut out, scales.output()).unwrap();
                    out.download().unwrap().into_iter().map(|q| f64::from(q.to_f32())).collect()
                };
                let what = format!(
                    "norm {norm:?} of {cols} columns of {} on {device}, integers {integers}",
                    T::DTYPE
                );
                let normed = normed(&x, &gamma, &beta, norm);
                check_rows(&what, (cols, integers), &normed, (&elements, &scales.content()));
            };
            for norm in [Norm::Plain, Norm::Rms, Norm::Layer] {
                run(norm, true);
                run(norm, false);
            }
        }
    }
}

#[test]
fn f16_is_as_exact_as_stated() {
    check_norms::<f16>(&WIDTHS);
}

#[test]
fn bf16_is_as_exact_as_stated() {
    check_norms::<bf16>(&WIDTHS);
}

#[test]
fn f32_and_long_rows_are_as_exact_as_stated() {
    check_norms::<f32>(&[1, 300, 2048, 9000]);
    check_norms::<bf16>(&[40_000]);
}

/// The rows of views are what those of contiguous matrices are: all of them by one kernel, and without a norm to the bit.
#[test]
fn rows_of_views_are_quantized() {
    let (rows, gap) = (4, 3);
    for (device, cols) in devices().into_iter().flat_map(|device| [1, 600, 5000].map(|cols| (device, cols))) {
        let pitch = cols + gap;
        let x = normal::<bf16>(rows * pitch, 1);
        let contiguous: Vec<bf16> = x.chunks(pitch).flat_map(|row| row[..cols].to_vec()).collect();
        let gamma = device.upload(&normal::<bf16>(cols, 2)).unwrap();
        let (x, contiguous) = (device.upload(&x).unwrap(), device.upload(&contiguous).unwrap());
        let view = x.view([rows, pitch]).unwrap().slice(1, ..cols);
        let quantized = |op: Quantize<bf16>, pitch: usize| {
            let mut out = device.upload(&vec![99i8; rows * pitch]).unwrap();
            let mut scales = device.zeros::<f32>(rows).unwrap();
            let mut result = out.view_mut([rows, pitch]).unwrap();
            op.to_i8(&device, result.slice_mut(1, ..cols), &mut scales).unwrap();
            let out = out.download().unwrap();
            assert!(out.chunks(pitch).all(|row| row[cols..].iter().all(|&q| q == 99)), "{device}");
            let rows: Vec<i8> = out.chunks(pitch).flat_map(|row| row[..cols].to_vec()).collect();
            (rows, scales.download().unwrap())
        };
        let wanted = quantized(Quantize::new(&contiguous, cols), cols);
        assert_eq!(quantized(Quantize::new(view, cols), cols), wanted, "{cols} on {device}");
        assert_eq!(quantized(Quantize::new(&contiguous, cols), pitch), wanted, "{cols} on {device}");
        let (wanted, scales) = quantized(Quantize::rms_norm(&contiguous, &gamma), cols);
        let (found, found_scales) = quantized(Quantize::rms_norm(view, &gamma), pitch);
        for (found, wanted) in found_scales.iter().zip(scales) {
            assert!((found - wanted).abs() <= 1e-6 * wanted, "{cols} on {device}: {found}, not {wanted}");
        }
        let is_near = |(found, wanted): (&i8, i8)| (i32::from(*found) - i32::from(wanted)).abs() <= 1;
        assert!(found.iter().zip(wanted).all(is_near), "{cols} on {device}");
    }
}

#[test]
fn special_rows_are_as_documented() {
    // Of one row to a program, and of several.
    for cols in [300, 1000] {
        let mut x = normal::<bf16>(5 * cols, 1);
        x[..cols].fill(bf16::ZERO);
        x[cols + 3] = bf16::NAN;
        x[2 * cols + 3] = bf16::INFINITY;
        x[3 * cols..4 * cols].fill(bf16::NEG_ZERO);
        x[3 * cols + 9] = bf16::MAX;
        for device in devices() {
            let x = device.upload(&x).unwrap();
            let (mut out, mut scales) =
                (device.zeros::<i8>(5 * cols).unwrap(), device.zeros::<f32>(5).unwrap());
            Quantize::new(&x, cols).to_i8(&device, &mut out, &mut scales).unwrap();
            let (out, scales) = (out.download().unwrap(), scales.download().unwrap());
            assert_eq!(scales[0], 0.0, "{device}");
            assert!(out[..cols].iter().all(|q| *q == 0), "{device}");
            assert!(scales[1].is_nan() && scales[2] == f32::INFINITY, "{device}: {scales:?}");
            assert_eq!((out[3 * cols], out[3 * cols + 9]), (0, 127), "{device}");
            assert!(scales[4].is_finite() && out[4 * cols..].iter().any(|q| q.abs() == 127), "{device}");
        }
    }
}

/// Rows whose largest element is `largest` times a power of two, with every number of as many digits below it: many of their quotients
/// are halfway between two results.
fn rows_of_halves<T: Float>(cols: usize) -> (usize, Vec<T>) {
    let digits = if T::DTYPE == DType::BF16 { 8 } else { 11 };
    let exponents: &[i32] =
        if T::DTYPE == DType::BF16 { &[-133, -126, -60, 0, 60, 120] } else { &[-24, 0, 4] };
    let largest: Vec<u32> = [128, 147, 196, 224, 254, 255].map(|largest| largest << (digits - 8)).to_vec();
    let rows: Vec<(u32, i32)> = exponents
        .iter()
        .flat_map(|&exponent| largest.iter().map(move |&largest| (largest, exponent)))
        .collect();
    let row = |&(largest, exponent): &(u32, i32)| {
        let element = move |i: usize| {
            let size = largest - i as u32 % (largest + 1);
            let sign = if i % 3 == 1 { -1.0 } else { 1.0 };
            T::from_f64(sign * f64::from(size) * 2f64.powi(exponent))
        };
        (0..cols).map(element)
    };
    (rows.len(), rows.iter().flat_map(row).collect())
}

/// Compares rows, of any size, with quotients that are rounded once, halves to even.
fn check_quotients<T: HalfFloat>() {
    for (device, cols) in
        devices().into_iter().flat_map(|device| [256, 2048, 16_385].map(|cols| (device, cols)))
    {
        let (rows, x) = rows_of_halves::<T>(cols);
        let input = device.upload(&x).unwrap();
        let op = Quantize::new(&input, cols);
        let largest: Vec<f64> = x.iter().step_by(cols).map(|x| x.to_f64()).collect();
        let (x, largest) = (&x, &largest);
        let quotients = |quant_max: f64| {
            x.iter().enumerate().map(move |(i, x)| x.to_f64() * quant_max / largest[i / cols])
        };
        let what = format!("{rows} x {cols} of {} on {device}", T::DTYPE);

        let (mut q, mut scales) = (device.zeros::<i8>(x.len()).unwrap(), device.zeros::<f32>(rows).unwrap());
        op.to_i8(&device, &mut q, &mut scales).unwrap();
        let expected: Vec<i8> = quotients(127.0).map(|q| q.round_ties_even() as i8).collect();
        let scales_of = |quant_max: f64| largest.iter().map(|y| (y / quant_max) as f32).collect::<Vec<f32>>();
        assert_eq!(scales.download().unwrap(), scales_of(127.0), "{what}");
        check_same(&what, x, &q.download().unwrap(), &expected);

        let mut q = device.zeros::<f8e4m3>(x.len()).unwrap();
        op.to_f8(&device, &mut q, &mut scales).unwrap();
        // A half is exact in `f32` too.
        let expected: Vec<f8e4m3> = quotients(448.0).map(|q| f8e4m3::from_f32(q as f32)).collect();
        assert_eq!(scales.download().unwrap(), scales_of(448.0), "{what}");
        check_same(&what, x, &q.download().unwrap(), &expected);
    }
}

/// Compares element by element, and names the first input with another result.
fn check_same<T: Float, Q: PartialEq + std::fmt::Debug>(what: &str, x: &[T], got: &[Q], expected: &[Q]) {
    let wrong = (0..x.len()).find(|&i| got[i] != expected[i]);
    if let Some(i) = wrong {
        panic!("{what}: {:e} at {i} becomes {:?}, expected {:?}", x[i].to_f64(), got[i], expected[i]);
    }
}

#[test]
fn quotients_of_rows_of_any_size_are_rounded_once() {
    check_quotients::<f16>();
    check_quotients::<bf16>();
}

/// Rows whose largest element is so small that `127 / max(|y|)` is beyond `f32`, with elements in between.
#[test]
fn tiny_rows_keep_their_steps() {
    for (cols, largest) in [(6, 3e-37f32), (300, 1e-38), (1000, 1e-40), (300, 1.3e-36)] {
        let x: Vec<bf16> =
            (0..cols).map(|i| bf16::from_f32(largest * (1.0 - i as f32 / cols as f32))).collect();
        for device in devices() {
            let input = device.upload(&x).unwrap();
            let (mut q, mut scales) = (device.zeros::<i8>(cols).unwrap(), device.zeros::<f32>(1).unwrap());
            let op = Quantize::new(&input, cols);
            op.to_i8(&device, &mut q, &mut scales).unwrap();
            let elements: Vec<f64> = q.download().unwrap().into_iter().map(f64::from).collect();
            let what = format!("{cols} columns up to {largest:e} on {device}");
            check_rows(&what, (cols, true), &exactly(&x), (&elements, &scales.download().unwrap()));
            let mut q = device.zeros::<f8e4m3>(cols).unwrap();
            op.to_f8(&device, &mut q, &mut scales).unwrap();
            let elements: Vec<f64> =
                q.download().unwrap().into_iter().map(|q| f64::from(q.to_f32())).collect();
            check_rows(&what, (cols, false), &exactly(&x), (&elements, &scales.download().unwrap()));
        }
    }
}

fn check_dequantize<T: HalfFloat>() {
    for (rows, cols) in [(0, 1), (1, 1), (3, 7), (2, 4096), (3, 5001)] {
        let residual = normal::<T>(rows * cols, 1);
        let scales: Vec<f32> = normal::<f32>(rows, 2);
        let bytes: Vec<i8> = (0..rows * cols).map(|i| (i * 37 % 255) as i8).collect();
        let floats: Vec<f8e4m3> = bytes.iter().map(|q| f8e4m3::from_f32(f32::from(*q) / 3.0)).collect();
        let dequantize = |(i, q): (usize, f64)| q * f64::from(scales[i / cols]);
        let of_bytes: Vec<f64> = bytes.iter().map(|q| f64::from(*q)).enumerate().map(dequantize).collect();
        let of_floats: Vec<f64> =
            floats.iter().map(|q| f64::from(q.to_f32())).enumerate().map(dequantize).collect();
        for added in [None, Some(&residual[..])] {
            let what = format!("{rows} x {cols}");
            let expected = [dequantized(&of_bytes, added), dequantized(&of_floats, added)];
            check(&what, &[&residual], &expected, |on, inputs, outs| {
                let (bytes, floats, scales) =
                    (shifted(*on, &bytes, 1), shifted(*on, &floats, 3), on.upload(&scales)?);
                let first = DequantizeAdd::new(bytes.slice(1..), &scales);
                let second = DequantizeAdd::new(floats.slice(3..), &scales);
                if added.is_none() {
                    first.launch(on, &mut outs[0])?;
                    return second.launch(on, &mut outs[1]);
                }
                first.residual(inputs[0]).launch(on, &mut outs[0])?;
                second.residual(inputs[0]).launch(on, &mut outs[1])
            });
        }
    }
}

#[test]
fn dequantizing_is_as_exact_as_stated() {
    check_dequantize::<f16>();
    check_dequantize::<bf16>();
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let x = [bf16::ONE; 12];
    let say = |cols: usize, out: usize, scales: usize| {
        let (mut out, mut scales) = (vec![0i8; out], vec![0.0f32; scales]);
        Quantize::new(&x, cols).to_i8(&device, &mut out, &mut scales).map_err(|error| error.to_string())
    };
    assert_eq!(say(4, 12, 3), Ok(()));
    assert_eq!(say(5, 12, 3), Err("quantize: x has 12 elements, which are no whole rows of 5".into()));
    assert_eq!(say(4, 11, 3), Err("quantize: x has 12 elements and out has 11".into()));
    assert_eq!(say(4, 12, 2), Err("quantize: a column of x has 3 elements and scales has 2".into()));
    let mut out = [bf16::ZERO; 12];
    let launched = DequantizeAdd::new(&[1i8; 12], &[1.0f32; 5]).launch(&device, &mut out);
    assert_eq!(launched.unwrap_err().to_string(), "dequantize_add: q has 12 elements, which are no 5 rows");
}

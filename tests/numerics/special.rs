//! Special values: what the written formula gives for them, whatever the compiler makes of it.

use dsl_runtime::{Device, f16};
use fuse_test_kernels::case::Failure;
use fuse_test_kernels::special::{at_maximum, masked_softmax, online_softmax, quotients};
use libtest_mimic::Trial;

use crate::devices::backends;

/// Numbers that stand for minus infinity in masks, and 0.
const MASKS: [f32; 9] = [0.0, -1e6, -1e9, -1e10, -1e12, -1e30, -1e38, -2.4e38, f32::MIN];

type Check = fn(&Device) -> Result<(), Failure>;

pub fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 4] = [
        ("masked_softmax", softmax_of_masked_rows),
        ("online_softmax", online_softmax_of_masked_blocks),
        ("at_maximum", powers_at_the_maximum),
        ("quotients", exact_quotients),
    ];
    let mut trials = vec![];
    for backend in backends() {
        for (name, check) in checks {
            let run = move || Ok(check(&backend.device()?)?);
            trials.push(Trial::test(format!("special::{name}::{backend}"), run));
        }
    }
    trials
}

fn expect(what: &str, found: f32, wanted: f64, tolerance: f64) -> Result<(), Failure> {
    let close = (f64::from(found) - wanted).abs() <= tolerance * wanted.abs();
    let same = close || f64::from(found).to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
    if same { Ok(()) } else { Err(format!("{what} is {found:e}, not {wanted:e}").into()) }
}

fn softmax_of_masked_rows(device: &Device) -> Result<(), Failure> {
    let rows = 2 * MASKS.len();
    // Of each mask a row that has it throughout, and one that has it in all places but the first four.
    let mask: Vec<f32> =
        (0..rows * 64).map(|i| if i / 64 % 2 == 1 && i % 64 < 4 { 0.0 } else { MASKS[i / 128] }).collect();
    let x = vec![3.0f32; rows * 64];
    let mut out = device.upload(&vec![f32::NAN; 3 * rows * 64])?;
    masked_softmax(&device.upload(&x)?, &device.upload(&mask)?, &mut out, 0.125).grid(rows).launch(device)?;
    for (i, found) in out.download()?.into_iter().enumerate() {
        let (form, row, column) = (i / (rows * 64), i / 64 % rows, i % 64);
        let uniform = row % 2 == 0 || MASKS[row / 2] == 0.0;
        let wanted = match (uniform, column < 4) {
            (true, _) => 1.0 / 64.0,
            (false, true) => 0.25,
            (false, false) => 0.0,
        };
        let what = format!("form {form}, mask {:e}, column {column}", MASKS[row / 2]);
        if form != 1 {
            expect(&what, found, wanted, 1e-6)?;
        } else if wanted > 0.0 {
            expect(&what, found, wanted.ln(), 1e-6)?;
        }
    }
    Ok(())
}

fn online_softmax_of_masked_blocks(device: &Device) -> Result<(), Failure> {
    // All scores of a row that it sees are equal. Where masked scores are finite, blocks may be masked throughout, and are for the last row.
    let first_keys = |deferred: bool| -> Vec<i32> {
        (0..16)
            .map(|row| {
                if deferred {
                    row
                } else if row == 15 {
                    48
                } else {
                    row * 3
                }
            })
            .collect()
    };
    let q = vec![f16::from_f32(0.5); 256];
    let values: Vec<f16> = (0..48 * 16).map(|i| f16::from_f32((i / 16) as f32)).collect();
    let [q, k, v] = [q.clone(), vec![f16::from_f32(2.0); 48 * 16], values].map(|data| device.upload(&data));
    let (q, k, v) = (q?, k?, v?);
    for deferred in [false, true] {
        let first = first_keys(deferred);
        let first_seen = device.upload(&first)?;
        for masked in &MASKS[1..] {
            for scale in [0.125, 1e4, 1e30] {
                let mut out = device.upload(&vec![f32::NAN; 16 + 256])?;
                let launch = if deferred {
                    online_softmax::<true>(&q, &k, &v, &first_seen, &mut out, 48, scale, *masked)
                } else {
                    online_softmax::<false>(&q, &k, &v, &first_seen, &mut out, 48, scale, *masked)
                };
                launch.grid(1).launch(device)?;
                let out = out.download()?;
                for row in 0..16 {
                    let seen = if first[row] == 48 { 0..48 } else { first[row] as usize..48 };
                    let what = format!("row {row}, masked {masked:e}, scale {scale:e}, deferred {deferred}");
                    let count = seen.len() as f64;
                    let mean = seen.map(|key| key as f64).sum::<f64>() / count;
                    expect(&what, out[row], count, 0.0)?;
                    expect(&what, out[16 + row * 16], mean, 1e-6)?;
                }
            }
        }
    }
    Ok(())
}

fn powers_at_the_maximum(device: &Device) -> Result<(), Failure> {
    let magnitudes = [1e-38f32, 1e-30, 0.7, 1.0, 77.0, 1e4, 1.7e7, 1e10, 3e20, 1e30, 2e38];
    let rows = magnitudes.len();
    let x: Vec<f32> = (0..rows * 256)
        .map(|i| {
            magnitudes[i / 256] * (1.0 - (i * 7 % 256) as f32 / 1024.0) / 1.375
                * if i % 512 < 256 { 1.0 } else { -1.0 }
        })
        .collect();
    let mut out = device.upload(&vec![1.0f32; 2 * rows * 256])?;
    at_maximum(&device.upload(&x)?, &mut out, 1.375).grid(rows).launch(device)?;
    for (i, found) in out.download()?.into_iter().enumerate() {
        expect(&format!("magnitude {:e}, element {i}", magnitudes[i / 256 % rows]), found, 1.0, 0.0)?;
    }
    Ok(())
}

fn exact_quotients(device: &Device) -> Result<(), Failure> {
    let divisors = [
        1.0f32,
        3.0,
        7.0,
        41.0,
        0.1,
        1e-20,
        1.7e20,
        3.0e38,
        5.0e37,
        1.2e-38,
        1e-41,
        f32::MAX,
        -6.0,
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NAN,
    ];
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, -1e30, 1e-30, 3e-39];
    for d in divisors {
        let rows = divisors.len();
        // Multiples of the divisor of a row are exact, but for those that overflow or are rounded.
        let x: Vec<f32> = (0..rows * 256)
            .map(|i| match special.get(i % 256) {
                Some(&special) => special,
                None if i % 2 == 0 => (i % 97) as f32 * divisors[i / 256],
                None => (i % 97) as f32 * d,
            })
            .collect();
        let by: Vec<f32> = (0..x.len()).map(|i| divisors[i / 256]).collect();
        let mut out = device.upload(&vec![0.5f32; 5 * x.len()])?;
        let [operand, rows_of, elements] = [&x, &divisors.to_vec(), &by].map(|data| device.upload(data));
        quotients(&operand?, &rows_of?, &elements?, &mut out, d).grid(rows).launch(device)?;
        for (i, found) in out.download()?.into_iter().enumerate() {
            let (form, at) = (i / x.len(), i % x.len());
            let divisor = match form {
                0 => d,
                2 => 7.0,
                _ => by[at],
            };
            let wanted = x[at] / divisor;
            let is_exact = f64::from(wanted) * f64::from(divisor) == f64::from(x[at])
                || !wanted.is_finite()
                || form == 4;
            // Below 2^-100 a GPU's quotient may be off.
            let is_small = wanted.abs() < 7.9e-31 || x[at].abs() < 7.9e-31;
            let tolerance = match (is_exact, is_small && form != 4) {
                (_, true) => 2.4e-7,
                (true, _) => 0.0,
                _ => 1.2e-7,
            };
            let is_subnormal = wanted.abs() < f32::MIN_POSITIVE && form != 4;
            if is_subnormal && (found - wanted).abs() <= 2.0 * f32::from_bits(1) && wanted != 0.0 {
                continue;
            }
            expect(&format!("{:e} / {divisor:e}, form {form}", x[at]), found, wanted.into(), tolerance)?;
        }
    }
    Ok(())
}

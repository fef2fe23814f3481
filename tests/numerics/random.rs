//! Random numbers against Philox written from its paper, their moments, and counts.

use fuse_test_kernels::random::{COUNTS, WAYS, Way};
use libtest_mimic::{Failed, Trial};

use crate::devices::{Backend, backends};
use crate::values::Random;

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for (i, &way) in WAYS.iter().enumerate() {
            trials
                .push(Trial::test(format!("random::stream_{i}::{backend}"), move || stream(way, i, backend)));
        }
        trials.push(Trial::test(format!("random::moments::{backend}"), move || moments(backend)));
        for &(n, bins, count) in COUNTS {
            let check = move || {
                let mut random = Random((n + bins) as u64);
                let x: Vec<i64> = (0..n)
                    .map(|_| random.below(300) as i64 - 20 + (random.below(2) as i64) * (1 << 40))
                    .collect();
                let small: Vec<u8> = (0..n).map(|_| random.bits() as u8).collect();
                let found = count(&backend.device()?, &x, &small, 100)?;
                let bin = |of: &dyn Fn(usize, i64) -> bool| -> Vec<u64> {
                    (0..bins as i64).map(|bin| (0..n).filter(|&i| of(i, bin)).count() as u64).collect()
                };
                let wanted = [
                    bin(&|i, bin| x[i] == bin),
                    bin(&|i, bin| x[i] == bin && x[i] < 100),
                    bin(&|i, bin| i64::from(small[i]) == bin),
                ];
                if wanted.concat() == found {
                    Ok(())
                } else {
                    Err(format!("{found:?}, not {wanted:?}").into())
                }
            };
            trials.push(Trial::test(format!("random::counts_{n}_{bins}::{backend}"), check));
        }
    }
    trials
}

/// Philox-4x32-10.
fn philox(seed: u64, index: u64) -> [u32; 4] {
    let mut words = [index as u32, (index >> 32) as u32, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let first = u64::from(words[0]) * 0xD251_1F53;
        let second = u64::from(words[2]) * 0xCD9E_8D57;
        words = [
            (second >> 32) as u32 ^ words[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ words[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    words
}

fn word(seed: u64, offset: u64) -> u32 {
    philox(seed, offset / 4)[(offset % 4) as usize]
}

fn uniform(word: u32) -> f64 {
    f64::from(word >> 9) / f64::from(1u32 << 23)
}

fn normal(seed: u64, offset: u64) -> f64 {
    let (u, v) = (uniform(word(seed, offset & !1)), uniform(word(seed, offset | 1)));
    let angle = std::f64::consts::TAU * v;
    (-2.0 * (1.0 - u).ln()).sqrt() * if offset.is_multiple_of(2) { angle.cos() } else { angle.sin() }
}

fn stream(way: Way, number: usize, backend: Backend) -> Result<(), Failed> {
    let device = backend.device()?;
    let firsts: &[i64] = &[0, 4, 3, 1 << 20, 5_000_000_001, (1 << 34) - 8, i64::MAX - 4095, -6, -4096];
    let (aligned, small) = (number >= 2, number == 3);
    for &first in firsts.iter().filter(|&&first| !aligned || first % 4 == 0 && first >= 0) {
        if small && first > 1 << 30 {
            continue;
        }
        for count in [1, 5, 256, 1023, 4096] {
            let seed = 0x1234_5678_9abc_def0 ^ first as u64;
            let found = way(&device, seed, first, count)?;
            for i in 0..count {
                let offset = (first as u64).wrapping_add(i as u64);
                let wanted = word(seed, offset);
                if found.words[i] != u64::from(wanted) {
                    return Err(format!(
                        "word {offset} of {seed:#x} is {:#x}, not {wanted:#x}",
                        found.words[i]
                    )
                    .into());
                }
                let number = f64::from(f32::from_bits(found.uniform[i] as u32));
                if number != uniform(wanted) {
                    return Err(format!("number {offset} is {number}, not {}", uniform(wanted)).into());
                }
                let (number, wanted) =
                    (f64::from(f32::from_bits(found.normal[i] as u32)), normal(seed, offset));
                // An angle of up to 450 degrees is rounded before its sine is taken.
                if (number - wanted).abs() > 8.0 * 2f64.powi(-24) * wanted.abs() + 5.6 * 8.0 * 2f64.powi(-24)
                {
                    return Err(format!("normal number {offset} is {number}, not {wanted}").into());
                }
            }
        }
    }
    Ok(())
}

/// Mean, variance and extremes of a million numbers.
fn moments(backend: Backend) -> Result<(), Failed> {
    let count = 1 << 20;
    let found = WAYS[0](&backend.device()?, 42, 0, count)?;
    let values =
        |bits: &[u64]| bits.iter().map(|&bits| f64::from(f32::from_bits(bits as u32))).collect::<Vec<f64>>();
    for (values, mean, variance, range) in
        [(values(&found.uniform), 0.5, 1.0 / 12.0, 0.0..1.0), (values(&found.normal), 0.0, 1.0, -5.7..5.7)]
    {
        let n = count as f64;
        let average = values.iter().sum::<f64>() / n;
        let spread = values.iter().map(|value| (value - average).powi(2)).sum::<f64>() / n;
        // Five deviations of the mean; the variance of a variance is below 2 / n.
        if (average - mean).abs() > 5.0 * (variance / n).sqrt()
            || (spread - variance).abs() > 5.0 * (2.0 / n).sqrt()
        {
            return Err(format!("mean {average}, variance {spread}").into());
        }
        if !values.iter().all(|value| range.contains(value)) {
            return Err(format!("a number outside {range:?}").into());
        }
    }
    Ok(())
}

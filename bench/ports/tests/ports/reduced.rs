//! [`fuse_ports::reduced`].

use dsl_runtime::prelude::*;
use fuse_ports::reduced::{linear_cross_entropy, nearest_centroid};

use crate::data::{Expected, Matrix, Output, SINGLE, devices, inner_product, integers, normal};

/// Elements of a point.
const D: usize = 128;

#[test]
fn every_row_finds_its_nearest_centroid() {
    for device in devices() {
        for (n, k) in [(67, 131), (200, 5), (128, 256)] {
            let (x, c) = (normal::<bf16>(n * D, 1), normal::<bf16>(k * D, 2));
            let square = |of: &[bf16]| -> f64 { of.iter().map(|x| x.to_f64() * x.to_f64()).sum() };
            let norms: Vec<f32> = c.chunks(D).map(|c| square(c) as f32).collect();
            let mut labels = Output::of(&device, &vec![-1i32; n]);
            let mut distances = Output::<f32>::poisoned(&device, n);
            let [x_in, c_in] = [&x, &c].map(|x| device.upload(x).unwrap());
            let norms_in = device.upload(&norms).unwrap();
            nearest_centroid::<128, 128, 128>(
                &x_in,
                &c_in,
                &norms_in,
                labels.slot(),
                distances.slot(),
                n as i32,
                k as i32,
            )
            .grid(n.div_ceil(128))
            .launch(&device)
            .unwrap();
            let mut expected = vec![];
            for (i, (x, label)) in x.chunks(D).zip(labels.content()).enumerate() {
                let distance = |c: &[bf16]| -> f64 {
                    x.iter().zip(c).map(|(x, c)| (x.to_f64() - c.to_f64()).powi(2)).sum()
                };
                let all: Vec<f64> = c.chunks(D).map(distance).collect();
                let value = all.iter().copied().fold(f64::INFINITY, f64::min);
                // A dot is at most the mean of the squares.
                let size = square(x) + norms.iter().copied().fold(0.0, f32::max) as f64;
                let within = (D as f64 + 8.0) * 2.0 * SINGLE * 2.0 * size;
                expected.push(Expected { value, within });
                let found = all[label as usize];
                assert!(found <= value + 2.0 * within, "row {i} of {n} x {k}: {found}, not {value}");
            }
            distances.check(&format!("{n} x {k} on {device}"), &expected);
        }
    }
}

#[test]
fn cross_entropy_follows_its_linear_layer() {
    for device in devices() {
        for (tokens, vocabulary, d) in [(67, 300, 45), (131, 77, 130), (128, 256, 128)] {
            let (x, w) = (normal::<bf16>(tokens * d, 1), normal::<bf16>(vocabulary * d, 2));
            let targets = integers::<i32>(tokens, 0..vocabulary as i64, 3);
            let [mut loss, mut lse] = [0, 1].map(|_| Output::<f32>::poisoned(&device, tokens));
            let [x_in, w_in] = [&x, &w].map(|x| device.upload(x).unwrap());
            let targets_in = device.upload(&targets).unwrap();
            let [tokens_arg, vocabulary_arg, d_arg] = [tokens, vocabulary, d].map(|n| n as i32);
            let call = linear_cross_entropy::<128, 128, 64>(
                &x_in,
                &w_in,
                &targets_in,
                loss.slot(),
                lse.slot(),
                tokens_arg,
                vocabulary_arg,
                d_arg,
            );
            call.grid(tokens.div_ceil(128)).launch(&device).unwrap();
            let (x, w) = (Matrix::new(&x, d), Matrix::new(&w, d));
            let (mut losses, mut sums) = (vec![], vec![]);
            for (row, &target) in targets.iter().enumerate() {
                let logit = |word: usize| inner_product((0..d).map(|j| (x.at(row, j), w.at(word, j))));
                let logits: Vec<(f64, f64)> = (0..vocabulary).map(logit).collect();
                let values = || logits.iter().map(|(value, _)| *value);
                let peak = values().fold(f64::NEG_INFINITY, f64::max);
                let lowest = values().fold(f64::INFINITY, f64::min);
                let moved = logits.iter().map(|(_, within)| *within).fold(0.0, f64::max);
                let value = peak + values().map(|x| (x - peak).exp()).sum::<f64>().ln();
                let of_sum = (16.0 + (vocabulary as f64).sqrt() + 2.0 * (peak - lowest)) * SINGLE;
                let within = moved + of_sum + 2.0 * SINGLE * value.abs();
                sums.push(Expected { value, within });
                let (hit, hit_within) = logits[target as usize];
                let within = within + hit_within + 4.0 * SINGLE * hit.abs();
                losses.push(Expected { value: value - hit, within });
            }
            loss.check(&format!("loss {tokens} x {d} x {vocabulary} on {device}"), &losses);
            lse.check(&format!("lse {tokens} x {d} x {vocabulary} on {device}"), &sums);
        }
    }
}

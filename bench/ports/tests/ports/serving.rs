//! [`fuse_ports::serving`].

use dsl_runtime::prelude::*;
use fuse_ports::serving::{fp8_attention, sink_attention, varlen_attention};

use crate::attention::attend;
use crate::data::{Expected, Output, SINGLE, devices, normal};

/// Elements of a head's row.
const D: usize = 128;

fn check_varlen<const CAUSAL: bool>(lengths: &[usize], heads: usize, kv_heads: usize)
where
    varlen_attention::Choice<CAUSAL, 128, 128, 64>: varlen_attention::Declared,
{
    let scale = (D as f32).powf(-0.5);
    let starts: Vec<usize> = (0..=lengths.len()).map(|i| lengths[..i].iter().sum()).collect();
    let tokens = lengths.iter().sum::<usize>();
    for device in devices() {
        let q = normal::<bf16>(tokens * heads * D, 1);
        let [k, v] = [2, 3].map(|seed| normal::<bf16>(tokens * kv_heads * D, seed));
        let mut out = Output::<bf16>::poisoned(&device, q.len());
        let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
        let starts_in = device.upload(&starts.iter().map(|start| *start as i32).collect::<Vec<_>>()).unwrap();
        let [of_q, of_k, of_head, group] = [heads * D, kv_heads * D, D, heads / kv_heads].map(|n| n as i32);
        let call = varlen_attention::<CAUSAL, 128, 128, 64>(
            &q_in,
            &k_in,
            &v_in,
            out.slot(),
            &starts_in,
            scale,
            of_q,
            of_head,
            of_k,
            of_head,
            group,
        );
        let longest = lengths.iter().max().unwrap();
        call.grid((longest.div_ceil(128), heads, lengths.len())).launch(&device).unwrap();
        let mut expected = vec![];
        for (i, q) in q.chunks(D).enumerate() {
            let (token, head) = (i / heads, i % heads);
            let sequence = starts.partition_point(|start| *start <= token) - 1;
            let seen = starts[sequence]..if CAUSAL { token + 1 } else { starts[sequence + 1] };
            let place = |token: usize| (token * kv_heads + head * kv_heads / heads) * D;
            let keys: Vec<&[bf16]> = seen.clone().map(|token| &k[place(token)..][..D]).collect();
            let values: Vec<&[bf16]> = seen.map(|token| &v[place(token)..][..D]).collect();
            expected.extend(attend(q, &keys, &values, f64::from(scale), 1.0 / 256.0).0);
        }
        out.check(&format!("{lengths:?} x {heads} / {kv_heads}, causal {CAUSAL}, on {device}"), &expected);
    }
}

#[test]
fn sequences_see_their_own_keys() {
    check_varlen::<false>(&[45, 1, 0, 140], 2, 1);
    check_varlen::<false>(&[128], 2, 2);
}

#[test]
fn sequences_see_no_key_ahead() {
    check_varlen::<true>(&[45, 1, 0, 140], 2, 1);
    check_varlen::<true>(&[128], 2, 2);
}

#[test]
fn attention_of_8_bits_has_a_scale_for_each_tensor() {
    let scale = (D as f32).powf(-0.5);
    let (q_scale, k_scale, v_scale) = (0.5f32, 1.25f32, 3.0f32);
    for device in devices() {
        for (heads, n) in [(2, 45), (1, 131), (1, 128)] {
            let of = |seed| -> Vec<f8e4m3> {
                normal::<f32>(heads * n * D, seed).into_iter().map(f8e4m3::from_f32).collect()
            };
            let [q, k, v] = [1, 2, 3].map(of);
            let mut out = Output::<bf16>::poisoned(&device, heads * n * D);
            let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
            let call = fp8_attention::<128, 128, 64>(
                &q_in,
                &k_in,
                &v_in,
                out.slot(),
                scale,
                q_scale,
                k_scale,
                v_scale,
                n as i32,
            );
            call.grid((n.div_ceil(128), heads)).launch(&device).unwrap();
            let of_scores = f64::from(scale * q_scale * k_scale);
            let mut expected = vec![];
            for (i, q) in q.chunks(D).enumerate() {
                let head = i / n * n * D;
                let score = |k: &[f8e4m3]| -> f64 {
                    q.iter().zip(k).map(|(q, k)| q.to_f64() * k.to_f64()).sum::<f64>() * of_scores
                };
                let scores: Vec<f64> = k[head..][..n * D].chunks(D).map(score).collect();
                let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let powers: Vec<f64> = scores.iter().map(|score| (score - peak).exp()).collect();
                let total: f64 = powers.iter().sum();
                for col in 0..D {
                    let values = || v[head + col * n..][..n].iter().map(|v| v.to_f64() * f64::from(v_scale));
                    let value: f64 = powers.iter().zip(values()).map(|(p, v)| p * v).sum::<f64>() / total;
                    // An exponential has 4 bits, and a small one is a multiple of 2^-9.
                    let moved = |(p, v): (&f64, f64)| (p / 16.0 + 2f64.powi(-10)) * v.abs() / total;
                    let sizes: f64 = powers.iter().zip(values()).map(|(p, v)| p * v.abs() / total).sum();
                    let within =
                        powers.iter().zip(values()).map(moved).sum::<f64>() + 4096.0 * SINGLE * sizes;
                    expected.push(Expected::rounded::<bf16>(value, within));
                }
            }
            out.check(&format!("{heads} x {n} on {device}"), &expected);
        }
    }
}

#[test]
fn a_sink_takes_weight_from_the_keys_of_a_window() {
    const D: usize = 64;
    let scale = (D as f32).powf(-0.5);
    for device in devices() {
        for (batch, heads, kv_heads, n, window) in
            [(2, 4, 2, 45, 7), (1, 2, 1, 301, 100), (1, 1, 1, 200, 1000), (1, 2, 2, 256, 64)]
        {
            let q = normal::<bf16>(batch * heads * n * D, 1);
            let [k, v] = [2, 3].map(|seed| normal::<bf16>(batch * kv_heads * n * D, seed));
            let sinks = normal::<f32>(heads, 4);
            let mut out = Output::<bf16>::poisoned(&device, q.len());
            let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
            let sinks_in = device.upload(&sinks).unwrap();
            let [heads_arg, kv_arg, n_arg, window_arg] = [heads, kv_heads, n, window].map(|n| n as i32);
            let call = sink_attention::<64, 128, 64>(
                &q_in,
                &k_in,
                &v_in,
                &sinks_in,
                out.slot(),
                scale,
                heads_arg,
                kv_arg,
                n_arg,
                window_arg,
            );
            call.grid((n.div_ceil(128), batch * heads)).launch(&device).unwrap();
            let rows = |x| -> Vec<&[bf16]> { <[bf16]>::chunks(x, D).collect() };
            let (k, v) = (rows(&k), rows(&v));
            let mut expected = vec![];
            for (i, q) in q.chunks(D).enumerate() {
                let (of_head, row) = (i / n, i % n);
                let first = (of_head / heads * kv_heads + of_head % heads * kv_heads / heads) * n;
                let seen = first + (row + 1).saturating_sub(window)..first + row + 1;
                let (found, lse) = attend(q, &k[seen.clone()], &v[seen], f64::from(scale), 1.0 / 256.0);
                // The share that the sink leaves to the keys.
                let sink = f64::from(sinks[of_head % heads]);
                let share = 1.0 / (1.0 + (sink - lse * std::f64::consts::LN_2).exp());
                expected.extend(
                    found.iter().map(|of| Expected { value: of.value * share, within: of.within * share }),
                );
            }
            out.check(&format!("{batch} x {heads} / {kv_heads} x {n} by {window} on {device}"), &expected);
        }
    }
}

//! [`fuse_ports::recurrent`].

use dsl_runtime::prelude::*;
use fuse_ports::recurrent::{chunk_scan, chunk_state, gated_linear_attention};

use crate::data::{Expected, Matrix, Output, SINGLE, devices, normal};

/// Numbers that are not above 0 and mostly small, as logarithms of decays are.
fn decays(len: usize, seed: u64) -> Vec<f32> {
    normal::<f32>(len, seed).into_iter().map(|x| -0.1 * x.abs()).collect()
}

/// Running sums that begin anew after every `chunk` numbers of a sequence of `n`.
fn running(steps: &[f32], n: usize, chunk: usize) -> Vec<f32> {
    let sums = |part: &[f32]| -> Vec<f32> { (1..=part.len()).map(|end| part[..end].iter().sum()).collect() };
    steps.chunks(n).flat_map(|sequence| sequence.chunks(chunk).flat_map(sums)).collect()
}

#[test]
fn a_chunk_adds_its_steps_to_the_state() {
    const DIM: usize = 64;
    const STATE: usize = 128;
    for device in devices() {
        for (sequences, n, heads, chunk) in [(2, 150, 2, 100), (1, 45, 1, 256), (1, 256, 1, 128)] {
            let x = normal::<bf16>(sequences * n * heads * DIM, 1);
            let b = normal::<bf16>(sequences * n * STATE, 2);
            let dt: Vec<f32> = normal::<f32>(sequences * heads * n, 3).into_iter().map(f32::abs).collect();
            let decay = running(&decays(dt.len(), 4), n, chunk);
            let chunks = n.div_ceil(chunk);
            let mut out = Output::<f32>::poisoned(&device, sequences * chunks * heads * DIM * STATE);
            let [x_in, b_in] = [&x, &b].map(|x| device.upload(x).unwrap());
            let [dt_in, decay_in] = [&dt, &decay].map(|x| device.upload(x).unwrap());
            let [n_arg, heads_arg, chunk_arg] = [n, heads, chunk].map(|n| n as i32);
            let call = chunk_state::<64, 128, 64>(
                &x_in,
                &b_in,
                &dt_in,
                &decay_in,
                out.slot(),
                n_arg,
                heads_arg,
                chunk_arg,
            );
            call.grid((chunks, heads, sequences)).launch(&device).unwrap();
            let mut expected = vec![];
            for matrix in 0..sequences * chunks * heads {
                let (sequence, head) = (matrix / (chunks * heads), matrix % heads);
                let first = matrix / heads % chunks * chunk;
                let steps = first..n.min(first + chunk);
                let at = (sequence * heads + head) * n;
                let last = f64::from(decay[at + steps.end - 1]);
                for i in 0..DIM * STATE {
                    let term = |t: usize| {
                        let factor = (last - f64::from(decay[at + t])).exp() * f64::from(dt[at + t]);
                        let x = x[((sequence * n + t) * heads + head) * DIM + i / STATE].to_f64();
                        factor * x * b[(sequence * n + t) * STATE + i % STATE].to_f64()
                    };
                    let size: f64 = steps.clone().map(|t| term(t).abs()).sum();
                    let relative = 1.0 / 256.0 + (chunk as f64 + 64.0) * 2.0 * SINGLE;
                    expected.push(Expected { value: steps.clone().map(term).sum(), within: relative * size });
                }
            }
            out.check(&format!("{sequences} x {n} x {heads} by {chunk} on {device}"), &expected);
        }
    }
}

#[test]
fn linear_attention_fades_what_it_saw() {
    const DK: usize = 128;
    let scale = (DK as f32).powf(-0.5);
    for device in devices() {
        for (heads, n, dim_v) in [(2, 150, 70), (1, 45, 20), (1, 128, 64)] {
            let [q, k] = [1, 2].map(|seed| normal::<bf16>(heads * n * DK, seed));
            let v = normal::<bf16>(heads * n * dim_v, 3);
            let gate = decays(heads * n, 4);
            let mut out = Output::<bf16>::poisoned(&device, v.len());
            let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
            let gate_in = device.upload(&gate).unwrap();
            let call = gated_linear_attention::<128, 64, 64>(
                &q_in,
                &k_in,
                &v_in,
                &gate_in,
                out.slot(),
                scale,
                n as i32,
                dim_v as i32,
            );
            call.grid((dim_v.div_ceil(64), heads)).launch(&device).unwrap();
            let mut expected = vec![];
            for row in 0..heads * n {
                let seen = row / n * n..row + 1;
                let factor = |at: usize| -> (f64, f64) {
                    let faded: f64 = gate[at + 1..row + 1].iter().map(|x| f64::from(*x)).sum();
                    let decay = faded.exp() * f64::from(scale);
                    let terms = || {
                        q[row * DK..][..DK].iter().zip(&k[at * DK..]).map(|(q, k)| q.to_f64() * k.to_f64())
                    };
                    (decay * terms().sum::<f64>(), decay * terms().map(f64::abs).sum::<f64>())
                };
                let factors: Vec<(f64, f64)> = seen.clone().map(factor).collect();
                for col in 0..dim_v {
                    let values = || seen.clone().map(|at| v[at * dim_v + col].to_f64());
                    let value = factors.iter().zip(values()).map(|((factor, _), v)| factor * v).sum();
                    let size: f64 = factors.iter().zip(values()).map(|((_, size), v)| size * v.abs()).sum();
                    // The state is rounded once, and so are the keys that fade.
                    expected.push(Expected::rounded::<bf16>(value, (2.0 / 256.0 + 2f64.powi(-12)) * size));
                }
            }
            out.check(&format!("{heads} x {n} x {dim_v} on {device}"), &expected);
        }
    }
}

#[test]
fn rows_come_from_the_state_and_their_chunk() {
    const DIM: usize = 64;
    const STATE: usize = 128;
    for device in devices() {
        for (sequences, n, heads, chunk) in [(2, 150, 2, 100), (1, 45, 1, 256), (1, 256, 1, 128)] {
            let x = normal::<bf16>(sequences * n * heads * DIM, 1);
            let [b, c] = [2, 3].map(|seed| normal::<bf16>(sequences * n * STATE, seed));
            let dt: Vec<f32> = normal::<f32>(sequences * heads * n, 4).into_iter().map(f32::abs).collect();
            let decay = running(&decays(dt.len(), 5), n, chunk);
            let chunks = n.div_ceil(chunk);
            let states = normal::<f32>(sequences * chunks * heads * DIM * STATE, 6);
            let mut out = Output::<bf16>::poisoned(&device, x.len());
            let [x_in, b_in, c_in] = [&x, &b, &c].map(|x| device.upload(x).unwrap());
            let [dt_in, decay_in, states_in] = [&dt, &decay, &states].map(|x| device.upload(x).unwrap());
            let [n_arg, heads_arg, chunk_arg] = [n, heads, chunk].map(|n| n as i32);
            let call = chunk_scan::<64, 128, 64, 64>(
                &x_in,
                &b_in,
                &c_in,
                &dt_in,
                &decay_in,
                &states_in,
                out.slot(),
                n_arg,
                heads_arg,
                chunk_arg,
            );
            call.grid((chunk.div_ceil(64), heads, sequences * chunks)).launch(&device).unwrap();
            let (b, c) = (Matrix::new(&b, STATE), Matrix::new(&c, STATE));
            let states = Matrix::new(&states, STATE);
            let mut expected = vec![];
            for row in 0..sequences * n * heads {
                let (token, head) = (row / heads, row % heads);
                let (sequence, t) = (token / n, token % n);
                let at_head = (sequence * heads + head) * n;
                let fade = |from: f64| (f64::from(decay[at_head + t]) - from).exp();
                let products = |other: &[f64]| -> (f64, f64) {
                    let terms = c.row(token).iter().zip(other).map(|(c, x)| c * x);
                    (terms.clone().sum(), terms.map(f64::abs).sum())
                };
                let weights: Vec<(usize, f64, f64)> = (t / chunk * chunk..t + 1)
                    .map(|u| {
                        let factor = fade(f64::from(decay[at_head + u])) * f64::from(dt[at_head + u]);
                        let (value, size) = products(b.row(sequence * n + u));
                        (((sequence * n + u) * heads + head) * DIM, factor * value, factor * size)
                    })
                    .collect();
                let matrix = (sequence * chunks + t / chunk) * heads + head;
                for dim in 0..DIM {
                    let (value, size) = products(states.row(matrix * DIM + dim));
                    let steps = weights.iter().map(|(at, weight, size)| {
                        let x = x[at + dim].to_f64();
                        (weight * x, size * x.abs())
                    });
                    let (added, added_size) = steps.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
                    // The state and the weights of steps are rounded.
                    let relative = 1.0 / 256.0 + (chunk as f64 + 256.0) * 2.0 * SINGLE;
                    let within = relative * (fade(0.0) * size + added_size);
                    expected.push(Expected::rounded::<bf16>(fade(0.0) * value + added, within));
                }
            }
            out.check(&format!("{sequences} x {n} x {heads} by {chunk} on {device}"), &expected);
        }
    }
}

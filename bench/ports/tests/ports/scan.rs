//! [`fuse_ports::scan`].

use dsl_runtime::prelude::*;
use fuse_ports::scan::{gated_delta_rule, selective_scan};

use crate::data::{Expected, Matrix, Output, SINGLE, TINY, devices, normal};

/// Elements of a channel's state.
const STATE: usize = 16;

#[test]
fn selective_scan_carries_its_state() {
    for device in devices() {
        for (sequences, n, channels) in [(2, 33, 70), (1, 64, 64)] {
            let [u, dt, z] = [1, 2, 3].map(|seed| normal::<bf16>(sequences * n * channels, seed));
            let [b, c] = [4, 5].map(|seed| normal::<bf16>(sequences * n * STATE, seed));
            let a: Vec<f32> = (0..channels * STATE).map(|i| -((i % STATE + 1) as f32)).collect();
            let d = normal::<f32>(channels, 6);
            let mut out = Output::<bf16>::poisoned(&device, u.len());
            let [u_in, dt_in, z_in, b_in, c_in] = [&u, &dt, &z, &b, &c].map(|x| device.upload(x).unwrap());
            let [a_in, d_in] = [&a, &d].map(|x| device.upload(x).unwrap());
            selective_scan::<64, 16>(
                &u_in,
                &dt_in,
                &a_in,
                &b_in,
                &c_in,
                &d_in,
                &z_in,
                out.slot(),
                n as i32,
                channels as i32,
            )
            .grid((channels.div_ceil(64), sequences))
            .launch(&device)
            .unwrap();
            let [u, dt, z] = [&u, &dt, &z].map(|x| Matrix::new(x, channels));
            let [b, c] = [&b, &c].map(|x| Matrix::new(x, STATE));
            let mut expected = vec![Expected { value: 0.0, within: 0.0 }; sequences * n * channels];
            for sequence in 0..sequences {
                for channel in 0..channels {
                    let (mut h, mut size) = ([0.0; STATE], [0.0; STATE]);
                    for row in sequence * n..(sequence + 1) * n {
                        let step = dt.at(row, channel).exp().ln_1p();
                        let (u, z) = (u.at(row, channel), z.at(row, channel));
                        let (mut y, mut y_size) = (0.0, 0.0);
                        for i in 0..STATE {
                            let decay = (step * f64::from(a[channel * STATE + i])).exp();
                            h[i] = decay * h[i] + step * u * b.at(row, i);
                            size[i] = decay * size[i] + (step * u * b.at(row, i)).abs();
                            y += h[i] * c.at(row, i);
                            y_size += size[i] * c.at(row, i).abs();
                        }
                        let skip = u * f64::from(d[channel]);
                        let gate = z / (1.0 + (-z).exp());
                        let value = (y + skip) * gate;
                        let arithmetic = (n as f64 + 128.0) * 4.0 * SINGLE;
                        let within = arithmetic * (y_size + skip.abs()) * gate.abs() + TINY;
                        expected[row * channels + channel] = Expected::rounded::<bf16>(value, within);
                    }
                }
            }
            out.check(&format!("{sequences} x {n} x {channels} on {device}"), &expected);
        }
    }
}

/// The results of one head of the gated delta rule: rows of `q`, `k` and `v`, with the gate and the share `beta` of each step. Errors are
/// bounded by norms: a step takes a part of the state away, so that it does not make an error of a column longer.
fn delta_rule(rows: &[[Vec<f64>; 3]], gates: &[(f64, f64)], scale: f64) -> Vec<Expected> {
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let (keys, cols) = (rows[0][1].len(), rows[0][2].len());
    let unit = (keys as f64 + 16.0) * 2.0 * SINGLE;
    let mut columns = vec![(vec![0.0; keys], 0.0); cols];
    let mut found = vec![];
    for ([q, k, v], (gate, beta)) in rows.iter().zip(gates) {
        for ((state, error), v) in columns.iter_mut().zip(v) {
            state.iter_mut().for_each(|s| *s *= gate.exp());
            let seen: f64 = state.iter().zip(k).map(|(s, k)| s * k).sum();
            let size = 2.0 * norm(state) + norm(k) * (v.abs() + norm(k) * norm(state));
            state.iter_mut().zip(k).for_each(|(s, k)| *s += k * beta * (v - seen));
            *error = *error * gate.exp() + unit * size;
            let value = scale * q.iter().zip(&*state).map(|(q, s)| q * s).sum::<f64>();
            let within = scale * norm(q) * (*error + unit * norm(state));
            found.push(Expected::rounded::<bf16>(value, within));
        }
    }
    found
}

#[test]
fn the_delta_rule_replaces_what_a_key_had() {
    const DK: usize = 128;
    let scale = (DK as f32).powf(-0.5);
    for device in devices() {
        for (sequences, n, heads, dim_v) in [(2, 33, 3, 45), (1, 64, 1, 64)] {
            let tokens = sequences * n * heads;
            let q = normal::<bf16>(tokens * DK, 1);
            let mut k = normal::<f32>(tokens * DK, 2);
            for row in k.chunks_mut(DK) {
                // A little shorter than 1, also once it is rounded.
                let length = 1.01 * row.iter().map(|x| x * x).sum::<f32>().sqrt();
                row.iter_mut().for_each(|x| *x /= length);
            }
            let k: Vec<bf16> = k.into_iter().map(bf16::from_f32).collect();
            let v = normal::<bf16>(tokens * dim_v, 3);
            let gate: Vec<f32> = normal::<f32>(tokens, 4).into_iter().map(|x| -0.1 * x.abs()).collect();
            let beta: Vec<f32> =
                normal::<f32>(tokens, 5).into_iter().map(|x| 1.0 / (1.0 + x.exp())).collect();
            let mut out = Output::<bf16>::poisoned(&device, v.len());
            let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
            let [gate_in, beta_in] = [&gate, &beta].map(|x| device.upload(x).unwrap());
            let [n_arg, heads_arg, dim_arg] = [n, heads, dim_v].map(|n| n as i32);
            let call = gated_delta_rule::<128, 32>(
                &q_in,
                &k_in,
                &v_in,
                &gate_in,
                &beta_in,
                out.slot(),
                scale,
                n_arg,
                heads_arg,
                dim_arg,
            );
            call.grid((dim_v.div_ceil(32), sequences * heads)).launch(&device).unwrap();
            let [q, k] = [&q, &k].map(|x| Matrix::new(x, DK));
            let v = Matrix::new(&v, dim_v);
            let mut expected = vec![Expected { value: 0.0, within: 0.0 }; tokens * dim_v];
            for of_head in 0..sequences * heads {
                let token = |t: usize| (of_head / heads * n + t) * heads + of_head % heads;
                let rows: Vec<_> = (0..n).map(|t| [&q, &k, &v].map(|x| x.row(token(t)).to_vec())).collect();
                let gates: Vec<_> =
                    (0..n).map(|t| (f64::from(gate[token(t)]), f64::from(beta[token(t)]))).collect();
                let found = delta_rule(&rows, &gates, f64::from(scale));
                for (t, row) in found.chunks(dim_v).enumerate() {
                    expected[token(t) * dim_v..][..dim_v].copy_from_slice(row);
                }
            }
            out.check(&format!("{sequences} x {n} x {heads} x {dim_v} on {device}"), &expected);
        }
    }
}

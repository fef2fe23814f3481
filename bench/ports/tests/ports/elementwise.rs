//! [`fuse_ports::elementwise`].

use dsl_runtime::prelude::*;
use fuse_ports::elementwise::{adamw, dropout, geglu, swiglu, vector_add};

use crate::data::{Expected, Output, SINGLE, TINY, devices, normal};

#[test]
fn vectors_are_added() {
    for device in devices() {
        for n in [1, 1000, 4096] {
            let (x, y) = (normal::<f32>(n, 1), normal::<f32>(n, 2));
            let mut out = Output::poisoned(&device, n);
            let inputs = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
            vector_add::<1024>(&inputs.0, &inputs.1, out.slot(), n as i32)
                .grid(n.div_ceil(1024))
                .launch(&device)
                .unwrap();
            let exact: Vec<Expected> = x.iter().zip(&y).map(|(x, y)| Expected::exact(x + y)).collect();
            out.check(&format!("{n} elements on {device}"), &exact);
        }
    }
}

#[test]
fn dropout_follows_the_seed() {
    let (n, p) = (10_007, 0.3f32);
    for device in devices() {
        let x = normal::<f32>(n, 1);
        let input = device.upload(&x).unwrap();
        let run = |seed| {
            let mut out = Output::poisoned(&device, n);
            let call = dropout::<1024>(&input, out.slot(), n as i32, p, seed);
            call.grid(n.div_ceil(1024)).launch(&device).unwrap();
            out.content()
        };
        let out = run(7);
        for (x, y) in x.iter().zip(&out) {
            let kept = f64::from(*x) / (1.0 - f64::from(p));
            let near = (f64::from(*y) - kept).abs() <= 4.0 * SINGLE * kept.abs();
            assert!(*y == 0.0 || near, "{y} of {x} on {device}");
        }
        let kept = out.iter().filter(|y| **y != 0.0).count() as f64;
        let (mean, deviation) = (0.7 * n as f64, (0.21 * n as f64).sqrt());
        assert!((kept - mean).abs() < 5.0 * deviation, "{kept} of {n} are kept on {device}");
        assert_eq!(out, run(7));
        assert_ne!(out, run(8));
    }
}

#[test]
fn swiglu_gates_rows() {
    for device in devices() {
        for (rows, cols, stride) in [(3, 1001, 1003), (2, 1024, 1024)] {
            let (gate, up) = (normal::<bf16>(rows * stride, 1), normal::<bf16>(rows * stride, 2));
            let mut out = Output::of(&device, &vec![bf16::from_f32(5.0); rows * stride]);
            let inputs = (device.upload(&gate).unwrap(), device.upload(&up).unwrap());
            swiglu::<16384>(&inputs.0, &inputs.1, out.slot(), stride as i32, cols as i32)
                .grid(rows)
                .launch(&device)
                .unwrap();
            let expected = gate.iter().zip(&up).enumerate().map(|(i, (gate, up))| {
                if i % stride >= cols {
                    // Between rows nothing is written.
                    return Expected::exact(5.0f32);
                }
                let (gate, up) = (gate.to_f64(), up.to_f64());
                let value = gate / (1.0 + (-gate).exp()) * up;
                Expected::rounded::<bf16>(value, value.abs() * (1.0 / 256.0 + 16.0 * SINGLE) + TINY)
            });
            out.check(&format!("{rows} x {cols} on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn geglu_gates_elements() {
    for device in devices() {
        for n in [1, 1025, 2048] {
            let (gate, up) = (normal::<bf16>(n, 1), normal::<bf16>(n, 2));
            let mut out = Output::poisoned(&device, n);
            let inputs = (device.upload(&gate).unwrap(), device.upload(&up).unwrap());
            let call = geglu::<1024>(&inputs.0, &inputs.1, out.slot(), n as i32);
            call.grid(n.div_ceil(1024)).launch(&device).unwrap();
            let expected = gate.iter().zip(&up).map(|(gate, up)| {
                let (e, g) = (gate.to_f64(), up.to_f64());
                let inner = (2.0 / std::f64::consts::PI).sqrt() * e * (1.0 + 0.044715 * e * e);
                let f = 0.5 * e * (inner.tanh() + 1.0);
                let within = f.abs() / 256.0 + 16.0 * SINGLE * e.abs();
                Expected::rounded::<bf16>(f * g, within * g.abs() + TINY)
            });
            out.check(&format!("{n} elements on {device}"), &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn adamw_takes_a_step_in_place() {
    let (lr, beta1, beta2, eps, decay) = (1e-3f32, 0.9f32, 0.999f32, 1e-8f32, 0.01f32);
    let (bias1, bias2) = (1.0 - beta1.powi(3), 1.0 - beta2.powi(3));
    for device in devices() {
        for n in [1001, 2048] {
            let (p, g, m) = (normal::<f32>(n, 1), normal::<f32>(n, 2), normal::<f32>(n, 3));
            let v: Vec<f32> = normal::<f32>(n, 4).iter().map(|v| v * v).collect();
            let grad = device.upload(&g).unwrap();
            let [mut params, mut first, mut second] = [&p, &m, &v].map(|x| Output::of(&device, x));
            adamw::<1024>(
                params.slot(),
                &grad,
                first.slot(),
                second.slot(),
                n as i32,
                lr,
                beta1,
                beta2,
                eps,
                decay,
                bias1,
                bias2,
            )
            .grid(n.div_ceil(1024))
            .launch(&device)
            .unwrap();
            let [lr, beta1, beta2, eps, decay] = [lr, beta1, beta2, eps, decay].map(f64::from);
            let mut expected = [vec![], vec![], vec![]];
            for i in 0..n {
                let [p, g, m, v] = [p[i], g[i], m[i], v[i]].map(f64::from);
                let next_m = beta1 * m + (1.0 - beta1) * g;
                let next_v = beta2 * v + (1.0 - beta2) * g * g;
                // `1 - beta` of an `f32` has fewer digits than `beta`.
                let m_within = 4.0 * SINGLE * (m.abs() + g.abs());
                let step = lr * (next_m / f64::from(bias1)) / ((next_v / f64::from(bias2)).sqrt() + eps);
                let moved = m_within / next_m.abs().max(1e-30) + 64.0 * SINGLE;
                let kept = p * (1.0 - lr * decay);
                expected[0].push(Expected {
                    value: kept - step,
                    within: 4.0 * SINGLE * p.abs() + step.abs() * (moved + 2.0 * SINGLE) + TINY,
                });
                expected[1].push(Expected { value: next_m, within: m_within });
                let v_within = 4.0 * SINGLE * (v + g * g);
                expected[2].push(Expected { value: next_v, within: v_within });
            }
            for (name, out, expected) in [
                ("params", &params, &expected[0]),
                ("exp_avg", &first, &expected[1]),
                ("exp_avg_sq", &second, &expected[2]),
            ] {
                out.check(&format!("{name}, {n} elements on {device}"), expected);
            }
        }
    }
}

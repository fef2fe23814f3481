//! [`fuse_ports::scan`].

use dsl_runtime::prelude::*;
use fuse_ports::scan::selective_scan;

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

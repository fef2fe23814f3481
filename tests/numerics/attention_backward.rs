//! Gradients of attention, against `f64`.

use dsl_runtime::{Buffer, Device, bf16};
use fuse_test_kernels::attention_backward::attention_dkdv;
use fuse_test_kernels::case::Failure;
use libtest_mimic::Trial;

use crate::devices::backends;

const KEYS: usize = 128;
const QUERIES: usize = 192;
const D: usize = 128;
const SCALE: f32 = 0.125;

/// Buffers of a launch: queries, keys, values, the gradient of the output, two numbers per query, and results.
struct Arguments {
    operands: [Buffer<bf16>; 4],
    rows: [Buffer<f32>; 2],
    found: [Buffer<f32>; 2],
}

/// A tile of queries and keys, as a name and a launch.
type Tile = (&'static str, fn(&Device, &mut Arguments) -> Result<(), Failure>);

macro_rules! tiles {
    ($($M:literal x $N:literal),*) => {
        [$((concat!($M, "x", $N), |device, arguments| {
            let Arguments { operands: [q, k, v, dout], rows: [lse, delta], found: [dk, dv] } = arguments;
            let launch = attention_dkdv::<D, $M, $N>(&*q, &*k, &*v, &*dout, &*lse, &*delta, dk, dv, SCALE, QUERIES as i32);
            Ok(launch.grid(KEYS / $N).launch(device)?)
        })),*]
    };
}

const TILES: [Tile; 3] = tiles!(32 x 64, 64 x 64, 32 x 128);

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for tile in TILES {
            let run = move || Ok(gradients(&backend.device()?, tile)?);
            trials.push(Trial::test(format!("attention_backward::{}::{backend}", tile.0), run));
        }
    }
    trials
}

/// Numbers of magnitude below 1, in rows of `D`.
fn operand(rows: usize, seed: usize) -> Vec<f64> {
    let number = |i: usize| ((i * 37 + seed * 11 + i / D * 5) % 61) as f64 / 61.0 - 0.5;
    (0..rows * D).map(|i| bf16::from_f64(number(i)).into()).collect()
}

fn dot(a: &[f64], i: usize, b: &[f64], j: usize) -> f64 {
    (0..D).map(|d| a[i * D + d] * b[j * D + d]).sum()
}

fn uploaded(device: &Device, numbers: &[f64]) -> Result<Buffer<bf16>, Failure> {
    Ok(device.upload(&numbers.iter().map(|&number| bf16::from_f64(number)).collect::<Vec<_>>())?)
}

fn gradients(device: &Device, (_, launch): Tile) -> Result<(), Failure> {
    let [q, k, v, dout] =
        [(QUERIES, 1), (KEYS, 2), (KEYS, 3), (QUERIES, 4)].map(|(rows, seed)| operand(rows, seed));
    let (mut lse, mut delta) = (vec![0.0f32; QUERIES], vec![0.0f32; QUERIES]);
    let (mut dk, mut dv) = (vec![0.0; KEYS * D], vec![0.0; KEYS * D]);
    for i in 0..QUERIES {
        let scores: Vec<f64> = (0..KEYS).map(|j| dot(&q, i, &k, j) * f64::from(SCALE)).collect();
        let sum: f64 = scores.iter().map(|score| score.exp2()).sum();
        lse[i] = sum.log2() as f32;
        let p: Vec<f64> = scores.iter().map(|score| (score - f64::from(lse[i])).exp2()).collect();
        let dp: Vec<f64> = (0..KEYS).map(|j| dot(&dout, i, &v, j)).collect();
        delta[i] = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum::<f64>() as f32;
        for j in 0..KEYS {
            let ds = p[j] * (dp[j] - f64::from(delta[i]));
            for d in 0..D {
                dv[j * D + d] += p[j] * dout[i * D + d];
                dk[j * D + d] += ds * q[i * D + d];
            }
        }
    }
    let uploaded = |numbers: &[f64]| uploaded(device, numbers);
    let poisoned = || device.upload(&vec![f32::NAN; KEYS * D]);
    let mut arguments = Arguments {
        operands: [uploaded(&q)?, uploaded(&k)?, uploaded(&v)?, uploaded(&dout)?],
        rows: [device.upload(&lse)?, device.upload(&delta)?],
        found: [poisoned()?, poisoned()?],
    };
    launch(device, &mut arguments)?;
    let found = arguments.found;
    for ((name, found), wanted) in ["dk", "dv"].into_iter().zip(&found).zip([dk, dv]) {
        // Powers are rounded to bf16 before they are multiplied.
        let largest = wanted.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        for (i, (found, wanted)) in found.download()?.into_iter().zip(wanted).enumerate() {
            if (f64::from(found) - wanted).abs() > 0.01 * largest || found.is_nan() {
                return Err(format!("{name}[{i}] is {found}, not {wanted}").into());
            }
        }
    }
    Ok(())
}

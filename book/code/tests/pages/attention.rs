//! Attention.

use dsl_runtime::prelude::*;
use fuse_book::attention::{Heads, attention};

use crate::check::{BRAIN, Expected, SINGLE, assert_close, numbers, to_f64};
use fuse_tests::{alone, devices};

const D: usize = 64;

/// A query and the keys and values that it sees, one after the other.
struct Query<'a> {
    q: &'a [f64],
    keys: &'a [f64],
    values: &'a [f64],
}

impl Query<'_> {
    // ANCHOR: reference
    /// The sum of values by the softmax of scores, in `f64`. Weights are rounded to `bf16` before they multiply, and the
    /// result after; a score's error becomes a relative one of its weight.
    fn reference(&self) -> Vec<Expected> {
        let dot = |key: &[f64]| key.iter().zip(self.q).map(|(k, q)| k * q).sum::<f64>() * 0.125;
        let scores: Vec<f64> = self.keys.chunks(D).map(dot).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
        let mut out = vec![Expected { value: 0.0, within: 0.0 }; D];
        for (s, value) in scores.iter().zip(self.values.chunks(D)) {
            let weight = (s - max).exp() / sum;
            for (out, v) in out.iter_mut().zip(value) {
                out.value += weight * v;
                out.within += weight * v.abs();
            }
        }
        let terms = (scores.len() + 4 * D) as f64;
        for out in &mut out {
            out.within = BRAIN * (out.value.abs() + out.within) + 32.0 * terms * SINGLE * out.within;
        }
        out
    }
    // ANCHOR_END: reference
}

/// Compares two heads of a length with the reference.
fn check(device: &Device, length: usize, causal: bool) {
    let [q, k, v] = [9, 10, 11].map(|seed| numbers::<bf16>(2 * length * D, seed));
    let [device_q, device_k, device_v] = [&q, &k, &v].map(|values| device.upload(values).unwrap());
    let mut out = device.zeros::<bf16>(q.len()).unwrap();
    if causal {
        let heads = Heads { q: &device_q, k: &device_k, v: &device_v, heads: 2, length };
        heads.causal(device, &mut out).unwrap();
    } else {
        let shape = [2, length, D];
        let [view_q, view_k, view_v] =
            [&device_q, &device_k, &device_v].map(|buffer| buffer.view(shape).unwrap());
        attention::<false, D, 64, 64>(view_q, view_k, view_v, out.view_mut(shape).unwrap(), 0.125)
            .grid((length.div_ceil(64), 2))
            .launch(device)
            .unwrap();
    }
    let (q, k, v) = (to_f64(&q), to_f64(&k), to_f64(&v));
    let row = |i: usize| {
        let (head, position) = (i / length * length * D, i % length);
        let seen = head..head + D * if causal { position + 1 } else { length };
        let query = Query { q: &q[i * D..][..D], keys: &k[seen.clone()], values: &v[seen] };
        query.reference()
    };
    let expected: Vec<Expected> = (0..2 * length).flat_map(row).collect();
    assert_close(&out.download().unwrap(), &expected);
}

#[test]
fn queries_attend_to_what_they_see() {
    let _alone = alone();
    for device in devices() {
        for length in [1, 64, 100, 200] {
            check(&device, length, true);
            check(&device, length, false);
        }
    }
}

//! [`fuse_ports::backward`].

use dsl_runtime::prelude::*;
use fuse_ports::backward::{attention_dkdv, attention_dkdv_by_views, attention_dq, attention_dq_by_views};

use crate::data::{Expected, Matrix, Output, SINGLE, devices, normal};

/// Elements of a head's row.
const D: usize = 128;
/// The error of a rounding to `bf16` and of the operations in `f32` around it.
const ROUNDED: f64 = 1.0 / 256.0 + 1.0 / 16384.0;

/// A weight of attention and its gradient, and by how much rounding to `bf16` may move both.
#[derive(Clone, Copy)]
struct Pair {
    p: f64,
    ds: f64,
    ds_within: f64,
}

/// Heads with what the forward kernel leaves for the backward ones.
struct Heads {
    q: Vec<bf16>,
    k: Vec<bf16>,
    v: Vec<bf16>,
    d_out: Vec<bf16>,
    lse: Vec<f32>,
    delta: Vec<f32>,
    n: usize,
    causal: bool,
    scale: f32,
}

impl Heads {
    fn new(heads: usize, n: usize, causal: bool) -> Self {
        let [q, k, v, d_out] = [1, 2, 3, 4].map(|seed| normal::<bf16>(heads * n * D, seed));
        let (lse, delta) = (vec![0.0; heads * n], vec![0.0; heads * n]);
        let mut made = Heads { q, k, v, d_out, lse, delta, n, causal, scale: (D as f32).powf(-0.5) };
        let head_starts = (0..heads).map(|head| head * n);
        for (first, i) in head_starts.flat_map(|first| (0..n).map(move |i| (first, i))) {
            // With a sum of 1 and no delta, a weight is an exponential, and its gradient is that times a product.
            let pairs: Vec<Pair> = (0..n).map(|j| made.pair(first, i, j)).collect();
            let total: f64 = pairs.iter().map(|pair| pair.p).sum();
            made.lse[first + i] = total.log2() as f32;
            made.delta[first + i] = (pairs.iter().map(|pair| pair.ds).sum::<f64>() / total) as f32;
        }
        made
    }

    /// The pair of a query and a key of the head whose rows begin at `first`.
    fn pair(&self, first: usize, i: usize, j: usize) -> Pair {
        if self.causal && j > i {
            return Pair { p: 0.0, ds: 0.0, ds_within: 0.0 };
        }
        let row = |of: &[bf16], i: usize| -> Vec<f64> {
            of[(first + i) * D..][..D].iter().map(|x| x.to_f64()).collect()
        };
        let dot = |a: &[f64], b: &[f64]| -> (f64, f64) {
            let terms = || a.iter().zip(b).map(|(a, b)| a * b);
            (terms().sum(), terms().map(f64::abs).sum())
        };
        let (score, _) = dot(&row(&self.q, i), &row(&self.k, j));
        let lse = f64::from(self.lse[first + i]);
        let p = (score * f64::from(self.scale) * std::f64::consts::LOG2_E - lse).exp2();
        let (dp, size) = dot(&row(&self.d_out, i), &row(&self.v, j));
        let delta = f64::from(self.delta[first + i]);
        let ds = p * (dp - delta);
        let moved = (D as f64 + 4.0) * 2.0 * SINGLE * (size + delta.abs());
        Pair { p, ds, ds_within: ROUNDED * ds.abs() + p * moved }
    }

    /// The pairs of each row of a head, `n x n`.
    fn pairs(&self, first: usize) -> Vec<Pair> {
        (0..self.n * self.n).map(|at| self.pair(first, at / self.n, at % self.n)).collect()
    }
}

/// A sum of products with numbers that may be off by some error.
fn weighted(terms: impl Iterator<Item = (f64, f64, f64)>, scale: f64) -> Expected {
    let (mut value, mut within) = (0.0, 0.0);
    for (factor, moved, x) in terms {
        value += factor * x * scale;
        within += (moved + ROUNDED / 16.0 * factor.abs()) * (x * scale).abs();
    }
    Expected::rounded::<bf16>(value, within)
}

/// The gradients of all heads.
struct Gradients {
    dq: Vec<Expected>,
    dk: Vec<Expected>,
    dv: Vec<Expected>,
}

impl Gradients {
    fn new(given: &Heads) -> Self {
        let (n, scale) = (given.n, f64::from(given.scale));
        let (mut dq, mut dk, mut dv) = (vec![], vec![], vec![]);
        for first in (0..given.lse.len()).step_by(n) {
            let pairs = given.pairs(first);
            let rows = |of: &[bf16]| Matrix::new(&of[first * D..][..n * D], D);
            let (q, k, d_out) = (rows(&given.q), rows(&given.k), rows(&given.d_out));
            for at in 0..n * D {
                let (row, col) = (at / D, at % D);
                let of_row = |j: usize| (pairs[row * n + j], k.at(j, col));
                let of_col = |i: usize| pairs[i * n + row];
                dq.push(weighted((0..n).map(of_row).map(|(pair, k)| (pair.ds, pair.ds_within, k)), scale));
                dk.push(weighted((0..n).map(|i| (of_col(i).ds, of_col(i).ds_within, q.at(i, col))), scale));
                let of_values = (0..n).map(|i| (of_col(i).p, ROUNDED * of_col(i).p, d_out.at(i, col)));
                dv.push(weighted(of_values, 1.0));
            }
        }
        Gradients { dq, dk, dv }
    }

    fn check(&self, [dq, dk, dv]: [&Output<bf16>; 3], what: &str) {
        dq.check(&format!("dq of {what}"), &self.dq);
        dk.check(&format!("dk of {what}"), &self.dk);
        dv.check(&format!("dv of {what}"), &self.dv);
    }
}

fn check_pointers<const CAUSAL: bool>(given: &Heads, expected: &Gradients, device: &Device)
where
    attention_dkdv::Choice<CAUSAL, 128, 32, 128>: attention_dkdv::Declared,
    attention_dq::Choice<CAUSAL, 128, 128, 32>: attention_dq::Declared,
{
    let (n, heads, scale) = (given.n, given.lse.len() / given.n, given.scale);
    let [q, k, v, d_out] = [&given.q, &given.k, &given.v, &given.d_out].map(|x| device.upload(x).unwrap());
    let [lse, delta] = [&given.lse, &given.delta].map(|x| device.upload(x).unwrap());
    let [mut dq, mut dk, mut dv] = [0, 1, 2].map(|_| Output::<bf16>::poisoned(device, heads * n * D));
    let grid = (n.div_ceil(128), heads);
    attention_dkdv::<CAUSAL, 128, 32, 128>(
        &q,
        &k,
        &v,
        &d_out,
        &lse,
        &delta,
        dk.slot(),
        dv.slot(),
        scale,
        n as i32,
    )
    .grid(grid)
    .launch(device)
    .unwrap();
    attention_dq::<CAUSAL, 128, 128, 32>(&q, &k, &v, &d_out, &lse, &delta, dq.slot(), scale, n as i32)
        .grid(grid)
        .launch(device)
        .unwrap();
    expected.check([&dq, &dk, &dv], &format!("{heads} x {n}, causal {CAUSAL}, on {device}"));
}

fn check_views<const CAUSAL: bool>(given: &Heads, expected: &Gradients, device: &Device)
where
    attention_dkdv_by_views::Choice<CAUSAL, 128, 32, 128>: attention_dkdv_by_views::Declared,
    attention_dq_by_views::Choice<CAUSAL, 128, 128, 32>: attention_dq_by_views::Declared,
{
    let (n, heads, scale) = (given.n, given.lse.len() / given.n, given.scale);
    let shape = [heads, n, D];
    let [q, k, v, d_out] = [&given.q, &given.k, &given.v, &given.d_out].map(|x| device.upload(x).unwrap());
    let [lse, delta] = [&given.lse, &given.delta].map(|x| device.upload(x).unwrap());
    let [mut dq, mut dk, mut dv] = [0, 1, 2].map(|_| Output::<bf16>::poisoned(device, heads * n * D));
    let grid = (n.div_ceil(128), heads);
    let (mut dk_slot, mut dv_slot) = (dk.slot(), dv.slot());
    let [q_view, k_view, v_view, d_out_view] = [&q, &k, &v, &d_out].map(|x| x.view(shape).unwrap());
    attention_dkdv_by_views::<CAUSAL, 128, 32, 128>(
        q_view,
        k_view,
        v_view,
        d_out_view,
        &lse,
        &delta,
        dk_slot.view_mut(shape).unwrap(),
        dv_slot.view_mut(shape).unwrap(),
        scale,
    )
    .grid(grid)
    .launch(device)
    .unwrap();
    let mut dq_slot = dq.slot();
    let [q_view, k_view, v_view, d_out_view] = [&q, &k, &v, &d_out].map(|x| x.view(shape).unwrap());
    attention_dq_by_views::<CAUSAL, 128, 128, 32>(
        q_view,
        k_view,
        v_view,
        d_out_view,
        &lse,
        &delta,
        dq_slot.view_mut(shape).unwrap(),
        scale,
    )
    .grid(grid)
    .launch(device)
    .unwrap();
    expected.check([&dq, &dk, &dv], &format!("{heads} x {n} by views, causal {CAUSAL}, on {device}"));
}

fn check_backward<const CAUSAL: bool>(heads: usize, n: usize)
where
    attention_dkdv::Choice<CAUSAL, 128, 32, 128>: attention_dkdv::Declared,
    attention_dq::Choice<CAUSAL, 128, 128, 32>: attention_dq::Declared,
    attention_dkdv_by_views::Choice<CAUSAL, 128, 32, 128>: attention_dkdv_by_views::Declared,
    attention_dq_by_views::Choice<CAUSAL, 128, 128, 32>: attention_dq_by_views::Declared,
{
    let given = Heads::new(heads, n, CAUSAL);
    let expected = Gradients::new(&given);
    for device in devices() {
        check_pointers::<CAUSAL>(&given, &expected, &device);
        check_views::<CAUSAL>(&given, &expected, &device);
    }
}

#[test]
fn gradients_of_attention_to_every_key() {
    check_backward::<false>(2, 45);
    check_backward::<false>(1, 128);
}

#[test]
fn gradients_of_attention_to_no_key_ahead() {
    check_backward::<true>(1, 131);
    check_backward::<true>(1, 128);
}

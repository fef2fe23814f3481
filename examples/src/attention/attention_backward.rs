//! The gradients of [`crate::attention`]: `dv = p^T · d_out`, `dq = ds · k * scale` and `dk = ds^T · q * scale`, where `p` are the
//! probabilities, `ds = p * (d_out · v^T - delta)`, and `delta` is the sum of `out * d_out` of a query.
//!
//! **Shapes.** `q`, `out`, `d_out` and `dq` are `[sequences, heads, queries, D]`, `k`, `v`, `dk` and `dv` `[sequences, key_heads, keys, D]`, with
//! any strides, or one sequence without the first axis; `lse` has `sequences * heads * queries` elements, as [`Attention::launch_with_lse`]
//! gives them. `D` is 1 to 256. The gradient of a key head is the sum over the heads that read it.
//!
//! **Options.** Those of [`Attention`]: the scale, causal attention and windows, a cap, slopes, a bias, and dropout, whose mask is computed again.
//! Slopes and the bias themselves have no gradients here.
//!
//! **Kernels.** Three: `delta` of each query; `dq`, whose programs have queries; `dk` and `dv`, whose programs have keys. Scores are computed
//! twice, so that nothing is added atomically: results are the same to the bit, run after run.
//!
//! **Work.** `14 * heads * queries * keys * D` operations, about half of them if it is causal. Temporary memory: 4 bytes for each query of each
//! head.
//!
//! **Rounding.** `p` and `ds` are rounded to `T` before the dots, and results are rounded to `T` once. With `u` half a unit of `T`, `e` the bound
//! of `lse` in [`crate::attention`] and `n` the number of terms of a sum, `dv` is within `u + 2 e + (n + 16) * 2^-23` times the sum of magnitudes of
//! its terms. `ds` is within `d = p * ((2 e + 8 * 2^-23) * |dp - delta| + (D + 2) * 2^-23 * s + u * o)` and `u` of itself, where `s` is the sum of magnitudes
//! of the terms of `dp` and `delta`, and `o` the part of `delta`: what forward rounded `out` by. `dq` and `dk` are within the sum of `d`, `u * |ds|` and
//! `(n + 16) * 2^-23 * |ds|` times the magnitudes that they are multiplied by.
//!
//! **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 2.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::attention::{Attention, AttentionExtents, ScoreArguments, for_powers};
use crate::attention_backward_kernels::{attention_delta, attention_dkdv, attention_dq};
use crate::attention_reference::{self, Rules};
use crate::dropout::Dropout;
use crate::float::HalfFloat;
use crate::reference::{Expected, smallest_subnormal, unit_roundoff};
use crate::sequences::{Sequences, SequencesMut};
use crate::shape::Checks;

const CHECKS: Checks = Checks("attention_backward");

/// Queries of a program that computes `delta`.
const DELTA_ROWS: usize = 16;

/// The gradients of attention, once its forward pass has run:
/// `AttentionBackward::new(Attention::new(q, k, v).causal(), out, &lse).launch(&device, d_out, dq, dk, dv)`.
#[derive(Clone, Copy)]
pub struct AttentionBackward<'a, T: HalfFloat> {
    attention: Attention<'a, T>,
    out: View<'a, T, 4>,
    lse: Slice<'a, f32>,
}

impl<'a, T: HalfFloat> AttentionBackward<'a, T> {
    /// The operation as its forward pass ran, its result and its logarithms.
    pub fn new(
        attention: Attention<'a, T>,
        out: impl Sequences<'a, T>,
        lse: impl Into<Slice<'a, f32>>,
    ) -> Self {
        AttentionBackward { attention, out: out.sequences(), lse: lse.into() }
    }

    /// Computes the gradients of queries, keys and values from that of the result, on a device or stream.
    ///
    /// # Errors
    /// Those of [`Attention::launch_with_lse`]; if a gradient has another shape than its tensor; if there are more queries of all heads than an `i32`
    /// counts; if there is no memory for `delta`.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        d_out: impl Sequences<'a, T>,
        dq: impl SequencesMut<'o, T>,
        dk: impl SequencesMut<'o, T>,
        dv: impl SequencesMut<'o, T>,
    ) -> Result<()> {
        let &AttentionBackward { attention, out, lse } = self;
        let (d_out, dq, dk, dv) = (d_out.sequences(), dq.sequences(), dk.sequences(), dv.sequences());
        let (q, k, v) = (attention.q, attention.k, attention.v);
        let extents = attention.check(out.shape(), Some(lse.len()))?;
        for (name, found, wanted) in [
            ("d_out", d_out.shape(), out.shape()),
            ("dq", dq.shape(), q.shape()),
            ("dk", dk.shape(), k.shape()),
            ("dv", dv.shape(), v.shape()),
        ] {
            CHECKS.extents(name, found, wanted)?;
        }
        let AttentionExtents { heads, key_heads, queries, keys, .. } = extents;
        if heads.saturating_mul(queries) > i32::MAX as usize {
            let reason = format!("{heads} heads of {queries} queries are more than {} rows", i32::MAX);
            return Err(CHECKS.error(reason));
        }
        if key_heads * keys == 0 && heads * queries == 0 {
            return Ok(());
        }
        let mask = attention.mask();
        let ScoreArguments { bias, slopes, softcap, dropout: Dropout { p: dropout_p, seed } } =
            attention.score_arguments([heads, queries, keys])?;
        let [left, right] = attention.window_keys();
        let group = (heads / key_heads.max(1)).max(1) as i32;
        let scale = for_powers(attention.scale);
        let mut delta = on.temporary::<f32>(heads * queries)?;
        attention_delta(out, d_out, delta.slice_mut())
            .grid((queries.div_ceil(DELTA_ROWS), heads))
            .launch(on)?;
        let (delta, concurrent_heads) = (delta.slice(), attention.concurrent_heads(mask, on.parallelism()));
        attention_dq(
            q, k, v, d_out, bias, slopes, lse, delta, dq, mask, group, scale, left, right, softcap,
            dropout_p, seed,
        )
        .grid_by(|chosen| {
            (concurrent_heads, queries.div_ceil(chosen.constant("M")), heads / concurrent_heads)
        })
        .launch(on)?;
        attention_dkdv(
            q, k, v, d_out, bias, slopes, lse, delta, dk, dv, mask, group, scale, left, right, softcap,
            dropout_p, seed,
        )
        .grid_by(|chosen| (keys.div_ceil(chosen.constant("N")), key_heads))
        .launch(on)
    }
}

/// A sum of terms, with the bound of its error and the sum of their magnitudes.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    within: f64,
    magnitude: f64,
    terms: usize,
}

impl Sum {
    fn add(&mut self, factor: Expected, other: f64) {
        self.value += factor.value * other;
        self.within += factor.within * other.abs();
        self.magnitude += (factor.value * other).abs();
        self.terms += 1;
    }

    /// The sum times `scale`, rounded to an element type.
    fn rounded(self, scale: f64, dtype: DType) -> Expected {
        let rounding = (self.terms + 16) as f64 * 2.0 * unit_roundoff(DType::F32) * self.magnitude;
        Expected { value: self.value * scale, within: (self.within + rounding) * scale.abs() }.rounded(dtype)
    }
}

/// The gradients of contiguous `[q, k, v]` from `d_out`, in `f64`, and the bounds that the module's documentation states.
pub fn reference<T: Float>(
    [q, k, v, d_out]: [&[T]; 4],
    extents: AttentionExtents,
    rules: Rules<'_, T>,
) -> [Vec<Expected>; 3] {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let (unit, single) = (unit_roundoff(T::DTYPE), 2.0 * unit_roundoff(DType::F32));
    let [out, lse] = attention_reference::reference([q, k, v], extents, rules);
    let row = |of: &[T], row: usize| -> Vec<f64> {
        of[row * elements..][..elements].iter().map(|x| x.to_f64()).collect()
    };
    // Rounded to `T`, a number below its normal ones moves by up to half of the smallest.
    let to_operand = |x: Expected| Expected {
        within: x.within + unit * x.value.abs() + smallest_subnormal(T::DTYPE) / 2.0,
        ..x
    };
    let mut sums = [heads * queries, key_heads * keys, key_heads * keys]
        .map(|rows| vec![Sum::default(); rows * elements]);
    let scale = f64::from(rules.scale);
    for (head, query) in (0..heads).flat_map(|head| (0..queries).map(move |query| (head, query))) {
        let at = head * queries + query;
        let (own, gradient, lse) = (row(q, at), row(d_out, at), lse[at]);
        let products = || gradient.iter().zip(&out[at * elements..]);
        let delta: f64 = products().map(|(g, out)| g * out.value).sum();
        let of_delta: f64 = products()
            .map(|(g, out)| g.abs() * (out.within + elements as f64 * single * out.value.abs()))
            .sum();
        let position = (query + keys) as i64 - queries as i64;
        for key in (0..keys).filter(|&key| rules.is_visible(key, position)) {
            let key_row = head * key_heads / heads * keys + key;
            let (own_key, values) = (row(k, key_row), row(v, key_row));
            let dot = |a: &[f64], b: &[f64]| -> [f64; 2] {
                let terms = || a.iter().zip(b).map(|(a, b)| a * b);
                [terms().sum(), terms().map(f64::abs).sum()]
            };
            let ([product, _], [dp, dp_size]) = (dot(&own, &own_key), dot(&gradient, &values));
            let offset = at * keys + key;
            let score =
                attention_reference::score_of([&own, &own_key], head, [key as i64, position], offset, &rules);
            // By how much a capped score changes with its product.
            let (share, of_share) = rules.softcap.map_or((1.0, 0.0), |cap| {
                let cap = f64::from(cap);
                let tanh = (product * scale / cap).tanh();
                (1.0 - tanh * tanh, 2.0 * (score.within / cap + 8.0 * single))
            });
            let kept = rules.dropout.map_or(1.0, |dropout| dropout.scale_of(offset));
            let p = (score.value - lse.value).exp();
            let relative = score.within + lse.within + 8.0 * single;
            let change = dp * kept - delta;
            let ds = p * change * share;
            let of_dp = (elements + 2) as f64 * single * dp_size * kept;
            let dropped = to_operand(Expected { value: p * kept, within: p * kept * relative });
            let ds = to_operand(Expected {
                value: ds,
                within: ds.abs() * (relative + 8.0 * single)
                    + p * (of_dp + of_delta + change.abs() * of_share),
            });
            for column in 0..elements {
                sums[0][at * elements + column].add(ds, own_key[column]);
                sums[1][key_row * elements + column].add(ds, own[column]);
                sums[2][key_row * elements + column].add(dropped, gradient[column]);
            }
        }
    }
    let [dq, dk, dv] = sums;
    let rounded =
        |sums: Vec<Sum>, scale: f64| sums.into_iter().map(|sum| sum.rounded(scale, T::DTYPE)).collect();
    [rounded(dq, scale), rounded(dk, scale), rounded(dv, 1.0)]
}

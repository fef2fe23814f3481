//! `out = softmax(scale * q · kᵀ) · v` for each head, and the logarithm of each row's sum of exponentials: scaled dot-product
//! attention, in blocks that never write scores to memory.
//!
//! **Shapes.** `q` and `out` are views of `[heads, queries, D]`, `k` and `v` of `[heads, keys, D]`, with any strides; `lse` is
//! `[heads, queries]`, and `heads` counts those of all batches. Fast on a GPU are rows whose elements are side by side and whose distances are
//! multiples of 16 bytes. Any number of queries and keys. With `CAUSAL` a query sees the keys up to its own place,
//! counted from the last: query `i` those up to `i + keys - queries`. A query that sees no key gives zeros, and negative
//! infinity in `lse`.
//!
//! **Work.** `4 * heads * queries * keys * D` operations, half of them with `CAUSAL`, and for a score a multiply-add, an
//! exponential, a maximum and a sum. A program handles 128 queries of a head and reads all keys and values that these see
//! once; it compares places in the blocks alone that not all of its queries see whole.
//!
//! **Rounding.** Scores, their maxima, exponentials and sums are computed in `f32`; exponentials are rounded to `T` before
//! they weigh the values, and the result is rounded to `T` once. Before that it is within `2 e + (keys + 16) * 2^-23 + u` times
//! the weighted mean of the values' magnitudes, with `e` `(D + 4) * 2^-23` times the largest sum of magnitudes behind a score
//! and `u` half a unit of `T`; `lse` is within `2 e + (keys + 16) * 2^-23`, and `2^-20` of its own size and the largest score's.
//! Where a scaled score is beyond `2^30`, its row may be NaN.
//!
//! **Source.** Dao, Fu, Ermon, Rudra, Ré, 2022, arXiv:2205.14135; the running softmax is Milakov and Gimelshein's, 2018,
//! arXiv:1805.02867.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// Queries of a program, and how many keys it takes at a time.
const QUERIES: usize = 128;
const KEYS: usize = 128;

/// A program handles `M` queries of a head, `N` keys at a time; the grid's second axis counts heads. `scale` is for powers
/// of two, and above 0.
#[fuse_kernel(
    T = [f16, bf16], D = [32, 64, 128], CAUSAL = [false, true], M = [128], N = [128], num_warps = 8,
)]
pub fn attention<T: Float, const D: usize, const CAUSAL: bool, const M: usize, const N: usize>(
    q: &View<T, 3>,
    k: &View<T, 3>,
    v: &View<T, 3>,
    out: &mut View<T, 3>,
    lse: &mut View<f32, 3>,
    scale: f32,
) {
    let (queries, keys) = (q.shape(1).to::<i32>(), k.shape(1).to::<i32>());
    let head = tl::program_id(1);
    // Programs that see most keys begin first.
    let tile = if CAUSAL { tl::num_programs(0) - 1 - tl::program_id(0) } else { tl::program_id(0) };
    let row = tile * M;
    // The last key that the first of these queries sees, and the first that none of them sees.
    let sight = if CAUSAL { row + (keys - queries) } else { keys };
    let end = if CAUSAL { tl::minimum(keys, sight + M) } else { keys };
    let q = tl::reshape(q.load::<1, M, D>(head, row, 0), [M, D]);
    let mut sum = tl::zeros::<f32>([M, D]);
    let mut largest = tl::full([M], f32::NEG_INFINITY);
    let mut total = tl::zeros::<f32>([M]);
    for start in (0..end).step_by(N) {
        let k = tl::reshape(k.load::<1, N, D>(head, start, 0), [N, D]);
        let scores = tl::dot(q, tl::trans(k));
        let last = start + (N as i32 - 1);
        let is_cut = if CAUSAL { last >= keys || last > sight } else { last >= keys };
        let scores = if is_cut {
            let at = start + tl::arange(0, N);
            let is_key = (at < keys).row();
            let seen = if CAUSAL { is_key & (at.row() <= sight + tl::arange(0, M).col()) } else { is_key };
            tl::select(seen, scores, f32::NEG_INFINITY)
        } else {
            scores
        };
        let next = tl::maximum(largest, tl::max(scores, 1) * scale);
        // A row that has seen no key yet has no maximum to be counted from.
        let origin = tl::select(next == f32::NEG_INFINITY, 0.0, next);
        let weights = tl::exp2(tl::fma(scores, scale, -origin.col()));
        let before = tl::exp2(largest - origin);
        total = total * before + tl::sum(weights, 1);
        largest = next;
        let v = tl::reshape(v.load::<1, N, D>(head, start, 0), [N, D]);
        sum = tl::dot(weights.to::<T>(), v, sum * before.col());
    }
    let is_blind = largest == f32::NEG_INFINITY;
    let some = tl::select(is_blind, 1.0, total);
    out.store(tl::reshape((sum * (1.0 / some).col()).to::<T>(), [1, M, D]), head, row, 0);
    let logarithm = tl::select(is_blind, f32::NEG_INFINITY, largest + tl::log2(some));
    lse.store(tl::reshape(logarithm * 0.6931472, [1, M, 1]), head, row, 0);
}

/// How many heads there are, and how long their sequences are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequences {
    /// Of all batches together.
    pub heads: usize,
    /// Rows of `q`.
    pub queries: usize,
    /// Rows of `k` and `v`.
    pub keys: usize,
}

/// Attention of heads of `D` elements: `Attention::<bf16, 128, true>::new(q, k, v)` of views. `T` is `f16` or `bf16`, `D` is 32, 64 or
/// 128; the last constant says whether it is causal.
#[derive(Clone, Copy)]
pub struct Attention<'a, T: Float, const D: usize, const CAUSAL: bool> {
    q: View<'a, T, 3>,
    k: View<'a, T, 3>,
    v: View<'a, T, 3>,
    scale: f32,
}

/// The largest factor for scores.
const MOST: f32 = 1.7e38;

impl<'a, T: Float, const D: usize, const CAUSAL: bool> Attention<'a, T, D, CAUSAL> {
    /// Queries, keys and values; scores are scaled by `1 / sqrt(D)`.
    pub fn new(
        q: impl Into<View<'a, T, 3>>,
        k: impl Into<View<'a, T, 3>>,
        v: impl Into<View<'a, T, 3>>,
    ) -> Self {
        Attention { q: q.into(), k: k.into(), v: v.into(), scale: 1.0 / (D as f32).sqrt() }
    }

    /// Another factor for the scores, from 0 to `1.7e38`.
    pub fn scale(self, scale: f32) -> Self {
        Attention { scale, ..self }
    }

    /// Computes into `out` and `lse`, on a device or stream.
    ///
    /// # Errors
    /// If shapes and lengths do not fit together; if the factor for the scores is negative, NaN or too large; if a sequence is
    /// longer than half of what an `i32` counts; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, T, 3>>,
        lse: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()>
    where
        attention::Choice<T, D, CAUSAL, QUERIES, KEYS>: attention::Declared,
    {
        let (out, mut lse, checks) = (out.into(), lse.into(), Checks("attention"));
        let ([heads, queries, _], [_, keys, _]) = (self.q.shape(), self.k.shape());
        checks.extents("q", self.q.shape(), [heads, queries, D])?;
        checks.extents("k", self.k.shape(), [heads, keys, D])?;
        checks.extents("v", self.v.shape(), [heads, keys, D])?;
        checks.extents("out", out.shape(), [heads, queries, D])?;
        checks.same(("lse", lse.len()), ("heads * queries", heads * queries))?;
        if !(0.0..=MOST).contains(&self.scale) {
            return Err(checks.error(format!("scale is {}, expected 0 to {MOST:e}", self.scale)));
        }
        let most = i32::MAX as usize / 2;
        if let Some(longest) = [queries, keys].into_iter().find(|&length| length > most) {
            return Err(checks.error(format!("a sequence has {longest} rows, the most is {most}")));
        }
        if heads * queries == 0 {
            return Ok(());
        }
        // Of keys that are not seen the scores are infinite, and 0 times that is no number.
        let scale = (self.scale * std::f32::consts::LOG2_E).max(f32::MIN_POSITIVE);
        // A last axis of 1: its elements are written one by one, and any number of queries will do.
        let lse = lse.view_mut([heads, queries, 1])?;
        attention::<T, D, CAUSAL, QUERIES, KEYS>(self.q, self.k, self.v, out, lse, scale)
            .grid((queries.div_ceil(QUERIES), heads))
            .launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bounds that the module's documentation explains: of the rows and of `lse`.
pub fn reference<T: Float, const D: usize, const CAUSAL: bool>(
    [q, k, v]: [&[T]; 3],
    Sequences { heads, queries, keys }: Sequences,
    scale: f32,
) -> [Vec<Expected>; 2] {
    let rows_of = |of: &[T], head: usize, count: usize| -> Vec<Vec<f64>> {
        let own = of[head * count * D..(head + 1) * count * D].chunks(D);
        own.map(|row| row.iter().map(|x| x.to_f64()).collect()).collect()
    };
    let (mut rows, mut sums) = (vec![], vec![]);
    for head in 0..heads {
        let [own_keys, values] = [k, v].map(|of| rows_of(of, head, keys));
        for (query, own) in rows_of(q, head, queries).iter().enumerate() {
            let seen = if CAUSAL { (query + 1 + keys).saturating_sub(queries).min(keys) } else { keys };
            let seen = [&own_keys[..seen], &values[..seen]];
            let (of_row, lse) = of_query::<D>(own, seen, f64::from(scale), T::DTYPE);
            rows.extend(of_row);
            sums.push(lse);
        }
    }
    [rows, sums]
}

/// One row of the result, and the logarithm of its sum.
fn of_query<const D: usize>(
    query: &[f64],
    [keys, values]: [&[Vec<f64>]; 2],
    scale: f64,
    dtype: DType,
) -> (Vec<Expected>, Expected) {
    if keys.is_empty() {
        let nothing = Expected { value: 0.0, within: 0.0 };
        return (vec![nothing; D], Expected { value: f64::NEG_INFINITY, within: 0.0 });
    }
    let single = 2.0 * unit_roundoff(DType::F32);
    let products = |key: &Vec<f64>| query.iter().zip(key).map(|(a, b)| a * b).collect::<Vec<f64>>();
    let scores: Vec<f64> = keys.iter().map(|key| scale * products(key).iter().sum::<f64>()).collect();
    let magnitude = |key: &Vec<f64>| scale.abs() * products(key).iter().map(|x| x.abs()).sum::<f64>();
    let within = keys.iter().map(magnitude).fold(0.0, f64::max) * (D + 4) as f64 * single;
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    // Weights are off by what scores are, and by rounding; so is their sum.
    let relative = 2.0 * within + (keys.len() + 16) as f64 * single;
    let row = (0..D).map(|column| {
        let parts = || weights.iter().zip(values).map(|(weight, value)| weight * value[column]);
        let (value, size) = (parts().sum::<f64>() / total, parts().map(f64::abs).sum::<f64>() / total);
        Expected { value, within: size * (relative + unit_roundoff(dtype)) }.rounded(dtype)
    });
    let lse = largest + total.ln();
    (row.collect(), Expected { value: lse, within: relative + 8.0 * single * (largest.abs() + lse.abs()) })
}

/// The bytes that attention must move.
pub const fn traffic<T>(Sequences { heads, queries, keys }: Sequences, dimension: usize) -> usize {
    heads * (2 * (queries + keys) * dimension * size_of::<T>() + queries * 4)
}

//! Attention in `f64`, and the bounds that [`crate::attention`] and [`crate::attention_decode`] state.

use dsl_runtime::{DType, Float};

use crate::attention::AttentionExtents;
use crate::dropout::Dropout;
use crate::reference::{Expected, unit_roundoff};

/// How scores are modified and masked.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a, T: Float> {
    /// The scale of the dots of queries and keys.
    pub scale: f32,
    /// The keys that a query attends to, to the left and to the right of its position.
    pub window: [Option<usize>; 2],
    /// The cap of a score.
    pub softcap: Option<f32>,
    /// The ALiBi slope of each query head.
    pub slopes: Option<&'a [f32]>,
    /// The bias of each head, query and key.
    pub bias: Option<&'a [T]>,
    /// Which probabilities are dropped.
    pub dropout: Option<Dropout>,
}

impl<T: Float> Rules<'_, T> {
    /// No mask, and scores are dots times `scale`.
    pub fn scaled(scale: f32) -> Self {
        Rules { scale, window: [None; 2], softcap: None, slopes: None, bias: None, dropout: None }
    }

    /// A query attends to the keys up to its position.
    pub fn causal(self) -> Self {
        Rules { window: [None, Some(0)], ..self }
    }

    pub(crate) fn is_visible(&self, key: usize, position: i64) -> bool {
        let distance = key as i64 - position;
        let [left, right] =
            self.window.map(|reach| reach.map_or(i64::MAX, |keys| i64::try_from(keys).unwrap_or(i64::MAX)));
        (-left..=right).contains(&distance)
    }
}

/// Roundings of a row besides those of its scores and of the result, in units of `2^-23`: as many as there are keys, and
/// so many more.
pub(crate) const ROUNDINGS: usize = 16;

/// The rows of the result, and their `lse`, of contiguous `[q, k, v]`.
pub fn reference<T: Float>(
    inputs: [&[T]; 3],
    extents: AttentionExtents,
    rules: Rules<'_, T>,
) -> [Vec<Expected>; 2] {
    reference_with_roundings(inputs, extents, rules, ROUNDINGS)
}

/// The same with more roundings.
pub(crate) fn reference_with_roundings<T: Float>(
    [q, k, v]: [&[T]; 3],
    extents: AttentionExtents,
    rules: Rules<'_, T>,
    roundings: usize,
) -> [Vec<Expected>; 2] {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let rows_of = |of: &[T], head: usize, count: usize| -> Vec<Vec<f64>> {
        let own = of[head * count * elements..(head + 1) * count * elements].chunks(elements);
        own.map(|row| row.iter().map(|x| x.to_f64()).collect()).collect()
    };
    let (mut rows, mut lses) = (vec![], vec![]);
    for head in 0..heads {
        let [own_keys, values] = [k, v].map(|of| rows_of(of, head * key_heads / heads, keys));
        for (query, own) in rows_of(q, head, queries).iter().enumerate() {
            let position = (query + keys) as i64 - queries as i64;
            let offset = (head * queries + query) * keys;
            let visible = (0..keys).filter(|&key| rules.is_visible(key, position));
            let scored_keys = visible.map(|key| {
                let rows = [own.as_slice(), &own_keys[key]];
                let score = score_of(rows, head, [key as i64, position], offset + key, &rules);
                let dropout_scale = rules.dropout.map_or(1.0, |dropout| dropout.scale_of(offset + key));
                ScoredKey { score, dropout_scale, values: &values[key] }
            });
            let (row, lse) = softmax_row(&scored_keys.collect::<Vec<_>>(), elements, roundings, T::DTYPE);
            rows.extend(row);
            lses.push(lse);
        }
    }
    [rows, lses]
}

/// A key that is not masked.
pub(crate) struct ScoredKey<'v> {
    pub score: Expected,
    /// What dropout multiplies its probability by.
    pub dropout_scale: f64,
    pub values: &'v [f64],
}

/// The score of a query and a key, with what is added for their positions and what the bias has at `offset`.
pub(crate) fn score_of<T: Float>(
    rows: [&[f64]; 2],
    head: usize,
    [key, position]: [i64; 2],
    offset: usize,
    rules: &Rules<'_, T>,
) -> Expected {
    let slope = rules.slopes.map_or(0.0, |slopes| f64::from(slopes[head]));
    let bias = rules.bias.map_or(0.0, |bias| bias[offset].to_f64());
    score(rows, [slope * (key - position) as f64, bias], rules)
}

fn score<T: Float>([query, key]: [&[f64]; 2], added: [f64; 2], rules: &Rules<'_, T>) -> Expected {
    let single = 2.0 * unit_roundoff(DType::F32);
    let scale = f64::from(rules.scale);
    let terms = || query.iter().zip(key).map(|(a, b)| a * b * scale);
    let dot: f64 = terms().sum();
    let within = terms().map(f64::abs).sum::<f64>() * (query.len() + 4) as f64 * single;
    let (capped, of_cap) = rules.softcap.map_or((dot, 0.0), |cap| {
        let cap = f64::from(cap);
        (cap * (dot / cap).tanh(), 8.0 * single * cap)
    });
    let [slope, bias] = added;
    let value = capped + slope + bias;
    let magnitudes = if slope == 0.0 && bias == 0.0 { 0.0 } else { slope.abs() + bias.abs() + value.abs() };
    Expected { value, within: within + of_cap + 4.0 * single * magnitudes }
}

/// One row of the result, and its `lse`.
pub(crate) fn softmax_row(
    visible: &[ScoredKey],
    elements: usize,
    roundings: usize,
    dtype: DType,
) -> (Vec<Expected>, Expected) {
    let max = visible.iter().map(|key| key.score.value).fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        let zero = Expected { value: 0.0, within: 0.0 };
        return (vec![zero; elements], Expected { value: max, within: 0.0 });
    }
    let single = 2.0 * unit_roundoff(DType::F32);
    let finite = visible.iter().filter(|key| key.score.value.is_finite());
    let within = finite.map(|key| key.score.within).fold(0.0, f64::max);
    let p: Vec<f64> = visible.iter().map(|key| (key.score.value - max).exp()).collect();
    let sum: f64 = p.iter().sum();
    // Probabilities have the error of scores, and of rounding; so does their sum.
    let relative = 2.0 * within + (visible.len() + roundings) as f64 * single;
    let row = (0..elements).map(|column| {
        let term = |(p, key): (&f64, &ScoredKey)| p * key.dropout_scale * key.values[column];
        let terms = || p.iter().zip(visible).map(term);
        let (value, size) = (terms().sum::<f64>() / sum, terms().map(f64::abs).sum::<f64>() / sum);
        Expected { value, within: size * (relative + unit_roundoff(dtype)) }.rounded(dtype)
    });
    let lse = max + sum.ln();
    (row.collect(), Expected { value: lse, within: relative + 8.0 * single * (max.abs() + lse.abs()) })
}

/// The bytes that attention must move.
pub const fn traffic<T>(extents: AttentionExtents) -> usize {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    2 * (heads * queries + key_heads * keys) * elements * size_of::<T>() + heads * queries * 4
}

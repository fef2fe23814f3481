//! What attention gives in `f64`, and the bounds that [`crate::attention`] and [`crate::attention_decode`] state.

use dsl_runtime::{DType, Float};

use crate::attention::Extents;
use crate::dropout::Dropout;
use crate::reference::{Expected, unit_roundoff};

/// What is made of products of queries and keys, and which of them.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a, T: Float> {
    /// The factor for products.
    pub scale: f32,
    /// The keys that a query sees to the left and to the right of its place.
    pub window: [Option<usize>; 2],
    /// The most that a score comes to.
    pub softcap: Option<f32>,
    /// What a step to the right adds, for each query head.
    pub slopes: Option<&'a [f32]>,
    /// What is added for each head, query and key.
    pub bias: Option<&'a [T]>,
    /// Which probabilities are left out.
    pub dropout: Option<Dropout>,
}

impl<T: Float> Rules<'_, T> {
    /// Every query sees every key, and scores are products times `scale`.
    pub fn scaled(scale: f32) -> Self {
        Rules { scale, window: [None; 2], softcap: None, slopes: None, bias: None, dropout: None }
    }

    /// A query sees the keys up to its place.
    pub fn causal(self) -> Self {
        Rules { window: [None, Some(0)], ..self }
    }

    fn sees(&self, key: usize, place: i64) -> bool {
        let steps = key as i64 - place;
        let [left, right] =
            self.window.map(|side| side.map_or(i64::MAX, |keys| i64::try_from(keys).unwrap_or(i64::MAX)));
        (-left..=right).contains(&steps)
    }
}

/// What roundings make of a row beside those of its products and of the result, in units of `2^-23`: as many as there
/// are keys, and so many more.
pub(crate) const ROUNDINGS: usize = 16;

/// The rows of the result, and the logarithms of their sums, of `[q, k, v]` with rows side by side.
pub fn reference<T: Float>(inputs: [&[T]; 3], extents: Extents, rules: Rules<'_, T>) -> [Vec<Expected>; 2] {
    rounded_often(inputs, extents, rules, ROUNDINGS)
}

/// The same with more roundings.
pub(crate) fn rounded_often<T: Float>(
    [q, k, v]: [&[T]; 3],
    extents: Extents,
    rules: Rules<'_, T>,
    roundings: usize,
) -> [Vec<Expected>; 2] {
    let Extents { heads, key_heads, queries, keys, elements } = extents;
    let rows_of = |of: &[T], head: usize, count: usize| -> Vec<Vec<f64>> {
        let own = of[head * count * elements..(head + 1) * count * elements].chunks(elements);
        own.map(|row| row.iter().map(|x| x.to_f64()).collect()).collect()
    };
    let (mut rows, mut sums) = (vec![], vec![]);
    for head in 0..heads {
        let [own_keys, values] = [k, v].map(|of| rows_of(of, head * key_heads / heads, keys));
        for (query, own) in rows_of(q, head, queries).iter().enumerate() {
            let place = (query + keys) as i64 - queries as i64;
            let number = (head * queries + query) * keys;
            let seen = (0..keys).filter(|&key| rules.sees(key, place));
            let scored = seen.map(|key| {
                let slope = rules.slopes.map_or(0.0, |slopes| f64::from(slopes[head]));
                let added = [
                    slope * (key as i64 - place) as f64,
                    rules.bias.map_or(0.0, |bias| bias[number + key].to_f64()),
                ];
                let score = score([own, &own_keys[key]], added, &rules);
                let factor = rules.dropout.map_or(1.0, |dropout| dropout.factor(number + key));
                Scored { score, factor, values: &values[key] }
            });
            let (of_row, lse) = of_query(&scored.collect::<Vec<_>>(), elements, roundings, T::DTYPE);
            rows.extend(of_row);
            sums.push(lse);
        }
    }
    [rows, sums]
}

/// A key that is seen.
pub(crate) struct Scored<'v> {
    pub score: Expected,
    /// What dropout makes of its probability.
    pub factor: f64,
    pub values: &'v [f64],
}

fn score<T: Float>([query, key]: [&[f64]; 2], added: [f64; 2], rules: &Rules<'_, T>) -> Expected {
    let single = 2.0 * unit_roundoff(DType::F32);
    let scale = f64::from(rules.scale);
    let products = || query.iter().zip(key).map(|(a, b)| a * b * scale);
    let product: f64 = products().sum();
    let within = products().map(f64::abs).sum::<f64>() * (query.len() + 4) as f64 * single;
    let (capped, of_cap) = rules.softcap.map_or((product, 0.0), |cap| {
        let cap = f64::from(cap);
        (cap * (product / cap).tanh(), 8.0 * single * cap)
    });
    let [slope, bias] = added;
    let value = capped + slope + bias;
    let magnitudes = if slope == 0.0 && bias == 0.0 { 0.0 } else { slope.abs() + bias.abs() + value.abs() };
    Expected { value, within: within + of_cap + 4.0 * single * magnitudes }
}

/// One row of the result, and the logarithm of its sum.
pub(crate) fn of_query(
    seen: &[Scored],
    elements: usize,
    roundings: usize,
    dtype: DType,
) -> (Vec<Expected>, Expected) {
    let largest = seen.iter().map(|key| key.score.value).fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        let nothing = Expected { value: 0.0, within: 0.0 };
        return (vec![nothing; elements], Expected { value: largest, within: 0.0 });
    }
    let single = 2.0 * unit_roundoff(DType::F32);
    let finite = seen.iter().filter(|key| key.score.value.is_finite());
    let within = finite.map(|key| key.score.within).fold(0.0, f64::max);
    let weights: Vec<f64> = seen.iter().map(|key| (key.score.value - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    // Weights are off by what scores are, and by rounding; so is their sum.
    let relative = 2.0 * within + (seen.len() + roundings) as f64 * single;
    let row = (0..elements).map(|column| {
        let part = |(weight, key): (&f64, &Scored)| weight * key.factor * key.values[column];
        let parts = || weights.iter().zip(seen).map(part);
        let (value, size) = (parts().sum::<f64>() / total, parts().map(f64::abs).sum::<f64>() / total);
        Expected { value, within: size * (relative + unit_roundoff(dtype)) }.rounded(dtype)
    });
    let lse = largest + total.ln();
    (row.collect(), Expected { value: lse, within: relative + 8.0 * single * (largest.abs() + lse.abs()) })
}

/// The bytes that attention must move.
pub const fn traffic<T>(extents: Extents) -> usize {
    let Extents { heads, key_heads, queries, keys, elements } = extents;
    2 * (heads * queries + key_heads * keys) * elements * size_of::<T>() + heads * queries * 4
}

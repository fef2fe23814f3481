//! Which experts a token goes to, and with which weights: the softmax of its logits, the `top_k` largest of it, renormalized or not.
//!
//! **Traffic.** Reads the logits and writes `top_k` weights and experts for each token: `tokens * (experts * size_of::<T>() + 8 * top_k)`
//! bytes. Softmax is monotonic, so the largest are selected by their logits, and only selected weights are computed.
//!
//! **Rounding.** Weights are `f32`, within `(16 + sqrt(experts) + 2 d) * 2^-24` of the exact ones, relatively, `d` the distance of an
//! expert's logit from the token's largest. Of equal logits the lower expert comes first.
//!
//! **Special rows.** A NaN counts as largest and makes all weights of its token NaN; so does a positive infinity. A token whose
//! logits are all negative infinity gets weights of 0 for the first experts.
//!
//! **Source.** Shazeer and others, 2017, arXiv:1701.06538, section 2.1; renormalized as Mixtral and Qwen do.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The most experts that the kernel was built for.
pub const MAX_EXPERTS: usize = 256;

/// A program takes `1024 / EXPERTS` tokens. Logits become integer keys with an expert's rank bits and, below them, its index.
/// Every 8 contiguous keys are sorted; then the largest head of these lists is popped, `K` times.
#[fuse_kernel(
    configs = [{ T: f32, num_warps: 4 }, { T: f16 }, { T: bf16 }],
    K = [1, 2, 4, 8], EXPERTS = n_experts in [8, 16, 64, 256], when = K == top_k,
)]
pub fn topk_gating<T: LibraryFloat, const K: usize, const EXPERTS: usize>(
    logits: &[T],
    weights: &mut [f32],
    experts: &mut [i32],
    n_tokens: i32,
    n_experts: i32,
    renormalize: bool,
    #[host] top_k: usize,
) {
    let tokens = tl::program_id(0) * (1024 / EXPERTS) + tl::arange(0, 1024 / EXPERTS);
    let columns = tl::arange(0, EXPERTS);
    let mask = (tokens < n_tokens).col() & (columns < n_experts).row();
    let offsets = (tokens * n_experts).col() + columns.row();
    let x = tl::load(logits + offsets, mask, T::NEG_INFINITY).to::<f32>();
    // Integers in the order of the floats: NaN on top, both zeros alike.
    let bits = (x + 0.0).bitcast::<i32>();
    let rank_bits = tl::select(x != x, 0x7fff_ffff, bits ^ ((bits >> 31) & 0x7fff_ffff));
    // Of equal ones the first is largest. The low 13 bits of a 16-bit float are free.
    let is_16_bit = T::EPSILON > 0.0005;
    let keys = if is_16_bit {
        (rank_bits & -8192) | (8191 - columns).row()
    } else {
        rank_bits.to::<i64>() * 8192 + (8191 - columns).row().to::<i64>()
    };
    let lists = tl::sort(tl::reshape(keys, [1024 / EXPERTS, EXPERTS / 8, 8]), 2, true);
    let (mut a0, mut a1) = (tl::index(lists, 2, 0), tl::index(lists, 2, 1));
    let (mut a2, mut a3) = (tl::index(lists, 2, 2), tl::index(lists, 2, 3));
    let (mut a4, mut a5) = (tl::index(lists, 2, 4), tl::index(lists, 2, 5));
    let (mut a6, a7) = (tl::index(lists, 2, 6), tl::index(lists, 2, 7));
    let first = tl::max(a0, 1, true);
    let (mut b0, mut b1, mut b2, mut b3) = (first, first, first, first);
    let (mut b4, mut b5, mut b6, mut b7) = (first, first, first, first);
    for _ in tl::static_range(0, K) {
        b0 = b1;
        b1 = b2;
        b2 = b3;
        b3 = b4;
        b4 = b5;
        b5 = b6;
        b6 = b7;
        b7 = tl::max(a0, 1, true);
        let is_taken = a0 == b7;
        a0 = tl::select(is_taken, a1, a0);
        a1 = tl::select(is_taken, a2, a1);
        a2 = tl::select(is_taken, a3, a2);
        a3 = tl::select(is_taken, a4, a3);
        a4 = tl::select(is_taken, a5, a4);
        a5 = tl::select(is_taken, a6, a5);
        a6 = tl::select(is_taken, a7, a6);
    }
    let chosen = if K > 1 { tl::cat(b6, b7, 1) } else { b7 };
    let chosen = if K > 2 { tl::cat(tl::cat(b4, b5, 1), chosen, 1) } else { chosen };
    let chosen =
        if K > 4 { tl::cat(tl::cat(tl::cat(b0, b1, 1), tl::cat(b2, b3, 1), 1), chosen, 1) } else { chosen };
    let logit = |key| {
        let rank_bits = if is_16_bit { key & -8192 } else { (key >> 13).to::<i32>() };
        (rank_bits ^ ((rank_bits >> 31) & if is_16_bit { 0x7fff_e000 } else { 0x7fff_ffff })).bitcast::<f32>()
    };
    let values = logit(chosen);
    let row_max = logit(first);
    let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
    let ranks = tl::arange(0, K);
    let exps = tl::exp2((values - safe_max) * f32::consts::LOG2_E);
    let denom = if renormalize {
        tl::sum(exps, 1, true)
    } else {
        tl::sum(tl::exp2((x - safe_max) * f32::consts::LOG2_E), 1, true)
    };
    let weight = tl::select(denom == 0.0, 0.0, exps / denom);
    let out = (tokens * K).col() + ranks.row();
    let is_token = (tokens < n_tokens).col();
    tl::store(weights + out, weight, is_token);
    tl::store(experts + out, 8191 - (chosen & 8191).to::<i32>(), is_token);
}

/// The experts of each token: `TopkGating::new(&logits, experts, top_k)`, where `top_k` is 1, 2, 4 or 8.
#[derive(Clone, Copy)]
pub struct TopkGating<'a, T: LibraryFloat> {
    logits: Slice<'a, T>,
    experts: usize,
    top_k: usize,
    weights: Weights,
}

/// What the weights of a token add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// 1: they are divided by their sum.
    Renormalized,
    /// What the softmax over all experts gives them.
    Softmax,
}

impl<'a, T: LibraryFloat> TopkGating<'a, T> {
    /// The logits of each token, as many as there are experts; weights are renormalized.
    pub fn new(logits: impl Into<Slice<'a, T>>, experts: usize, top_k: usize) -> Self {
        TopkGating { logits: logits.into(), experts, top_k, weights: Weights::Renormalized }
    }

    /// What the weights add up to.
    pub fn weights(self, weights: Weights) -> Self {
        TopkGating { weights, ..self }
    }

    /// Computes `top_k` weights and as many experts for each token, largest first, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; if there is no kernel for `top_k`; if there are fewer experts than that or more than
    /// [`MAX_EXPERTS`]; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        weights: impl Into<SliceMut<'o, f32>>,
        experts: impl Into<SliceMut<'o, i32>>,
    ) -> Result<()> {
        let (weights, experts, checks, top_k) =
            (weights.into(), experts.into(), Checks("topk_gating"), self.top_k);
        if ![1, 2, 4, 8].contains(&top_k) {
            return Err(checks.error(format!("top_k is {top_k}, expected 1, 2, 4 or 8")));
        }
        if !(top_k..=MAX_EXPERTS).contains(&self.experts) {
            let reason = format!("there are {} experts, from {top_k} to {MAX_EXPERTS} will do", self.experts);
            return Err(checks.error(reason));
        }
        let tokens = checks.rows(("logits", self.logits.len()), self.experts)?;
        checks.same(("all choices", tokens * top_k), ("weights", weights.len()))?;
        checks.same(("all choices", tokens * top_k), ("experts", experts.len()))?;
        if tokens == 0 {
            return Ok(());
        }
        let block = [8, 16, 64, MAX_EXPERTS].into_iter().find(|&block| block >= self.experts);
        let programs = tokens.div_ceil(1024 / block.unwrap_or(MAX_EXPERTS));
        let (n_tokens, n_experts) = (tokens as i32, self.experts as i32);
        let renormalize = self.weights == Weights::Renormalized;
        topk_gating(self.logits, weights, experts, n_tokens, n_experts, renormalize, top_k)
            .grid(programs)
            .launch(on)
    }
}

/// The experts of one token, in order, and their weights in `f64` with the bound that the module's documentation states.
pub fn reference<T: Float>(logits: &[T], k: usize, weights: Weights) -> (Vec<i32>, Vec<Expected>) {
    let values: Vec<f64> = logits.iter().map(|x| x.to_f64()).collect();
    let mut rank_bits: Vec<usize> = (0..values.len()).collect();
    let key = |i: &usize| if values[*i].is_nan() { f64::INFINITY } else { values[*i] };
    let nan = |i: &usize| values[*i].is_nan();
    rank_bits.sort_by(|i, j| nan(j).cmp(&nan(i)).then(key(j).total_cmp(&(key(i) + 0.0)).then(i.cmp(j))));
    rank_bits.truncate(k);
    let row_max = if values.iter().any(|x| x.is_nan()) { f64::NAN } else { values[rank_bits[0]] };
    let safe_max = if row_max == f64::NEG_INFINITY { 0.0 } else { row_max };
    let weight = |i: usize| (values[i] - safe_max).exp();
    let chosen: f64 = rank_bits.iter().map(|&i| weight(i)).sum();
    let all: f64 = (0..values.len()).map(weight).sum();
    let denom = if weights == Weights::Renormalized { chosen } else { all };
    let bound = |i: usize| {
        let distance = if values[i].is_finite() { safe_max - values[i] } else { 0.0 };
        (16.0 + (values.len() as f64).sqrt() + 2.0 * distance) * unit_roundoff(DType::F32)
    };
    let exact = rank_bits.iter().map(|&i| {
        let value = if denom == 0.0 { 0.0 } else { weight(i) / denom };
        Expected { value, within: bound(i) * value.abs() + f64::from(f32::MIN_POSITIVE) }
    });
    (rank_bits.iter().map(|&i| i as i32).collect(), exact.collect())
}

/// The bytes that `tokens` tokens must move.
pub const fn traffic<T>(tokens: usize, experts: usize, k: usize) -> usize {
    tokens * (experts * size_of::<T>() + 8 * k)
}

//! `out = softmax(scale * q · kᵀ) · v` for each head, and the logarithm of each row's sum of exponentials: scaled
//! dot-product attention, in blocks that never write scores to memory.
//!
//! **Shapes.** `q` and `out` are views of `[heads, queries, D]`, `k` and `v` of `[key_heads, keys, D]`, or each with an axis
//! before these that counts sequences, with any strides; `lse` is `[sequences, heads, queries]`, and the heads of all
//! sequences are at most 65535. `D` is 1 to 256, and as fast as the next of 64, 128, 192 and 256, with dropout of 128 and
//! 256. Where there are fewer key heads than heads, `group = heads / key_heads` query heads that follow each other read the
//! same one: grouped heads, and multi-query heads where each sequence has one. Fast on a GPU are rows whose elements are side by side and whose
//! distances are multiples of 16 bytes, those of a bias too. Any number of keys, and up to 65535 times 128 queries.
//!
//! **Masks.** Query `i` has position `i + keys - queries` among the keys: sequences end together. With a window of `left` and
//! `right` it attends to the keys from `left` before its position to `right` behind it. Causal attention is a window without
//! an end on the left and 0 on the right. A fully masked query gives zeros, and negative infinity in `lse`.
//!
//! **Scores.** With `x` the dot of a query and a key times `scale`, a score is
//! `softcap * tanh(x / softcap) + slope * (key - position) + bias`: a cap, ALiBi's slope of each query head, and a bias
//! for each query and key. Each of them is optional. A bias of negative infinity masks a key. Dropout zeroes the
//! probability of query `i` and key `j` of head `h`, of those of all sequences, where `tl::rand(seed, (h * queries + i) * keys + j) < p`, and
//! divides others by `1 - p`: nothing is saved, the mask can be computed again. Zero times a value that is infinite or NaN is NaN.
//!
//! **Work.** `4 * heads * queries * keys * D` operations, about half of them if it is causal, and for a score a
//! multiply-add, an exponential, a maximum and a sum. A program handles 128 or 192 queries of a head and reads all keys and
//! values that they attend to once. It skips blocks of keys that are masked for all of its queries, and compares positions
//! only in blocks that are masked in part.
//!
//! **Rounding.** Scores, their maxima, exponentials and sums are computed in `f32`; exponentials are rounded to `T`
//! before the dot with the values, and the result is rounded to `T` once. Before that it is within
//! `2 e + (keys + 16) * 2^-23 + u` times the weighted mean of the values' magnitudes, with `e` `(D + 4) * 2^-23` times
//! the largest sum of magnitudes of a score's terms and `u` half a unit of `T`; `lse` is within
//! `2 e + (keys + 16) * 2^-23`, and `2^-20` of its own size and the largest score's. For a score with a cap
//! `8 * 2^-23 * softcap` is added to `e`, and `4 * 2^-23` times the magnitudes of a slope's part, of a bias and of
//! the score. Where a scaled score is beyond `2^30`, its row may be NaN.
//!
//! **Source.** Dao, Fu, Ermon, Rudra, Ré, 2022, arXiv:2205.14135; the online softmax is Milakov and Gimelshein's,
//! 2018, arXiv:1805.02867; grouped heads are Ainslie and others', 2023, arXiv:2305.13245; slopes Press, Smith, Lewis,
//! 2022, arXiv:2108.12409; the cap is Gemma 2's, arXiv:2408.00118.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use self::TileUse::{Always, Large, LittleSmem};
use crate::dropout::Dropout;
pub use crate::sequences::{Sequences, SequencesMut};
use crate::shape::Checks;

/// A program handles `M` queries of a head, `N` keys an iteration. The grid's first axis counts heads, of all sequences, that run
/// concurrently, one where `MASK_MODE` is 0; its second axis tiles of their queries; its third one such sets of heads. `group`
/// consecutive heads read one key head. `MASK_MODE` is 0 without a mask, 1 if it is causal, 2 with a window, 3 with a window and a
/// modification of scores, 4 with dropout besides. `scale`, above 0, and `softcap` are for powers of two; a `softcap` of 0 is none,
/// and so are slopes of 0 and a bias without elements. `left` and `right` are at most 2^30. Where blocks have little shared memory,
/// fewer keys an iteration leave room to prefetch the next ones.
#[fuse_kernel(
    T = [f16, bf16],
    configs = [
        { MASK_MODE: 0, D: 64, M: 128, N: 128 }, { MASK_MODE: 0, D: 64, M: 192, N: 128 }, { MASK_MODE: 0, D: 128, M: 128, N: 128 },
        { MASK_MODE: 0, D: 192, M: 128, N: 96 }, { MASK_MODE: 0, D: 256, M: 128, N: 64 },
        { MASK_MODE: 1, D: 64, M: 128, N: 128 }, { MASK_MODE: 1, D: 64, M: 192, N: 128 }, { MASK_MODE: 1, D: 128, M: 128, N: 128 },
        { MASK_MODE: 1, D: 192, M: 128, N: 96 }, { MASK_MODE: 1, D: 256, M: 128, N: 64 },
        { MASK_MODE: 2, D: 64, M: 128, N: 128 }, { MASK_MODE: 2, D: 128, M: 128, N: 128 },
        { MASK_MODE: 2, D: 192, M: 128, N: 96 }, { MASK_MODE: 2, D: 256, M: 128, N: 64 },
        { MASK_MODE: 3, D: 64, M: 128, N: 128 }, { MASK_MODE: 3, D: 128, M: 128, N: 128 },
        { MASK_MODE: 3, D: 192, M: 128, N: 64 }, { MASK_MODE: 3, D: 256, M: 128, N: 48 },
        { MASK_MODE: 4, D: 128, M: 128, N: 64 }, { MASK_MODE: 4, D: 256, M: 128, N: 32 },
        { MASK_MODE: 0, D: 128, M: 128, N: 64 }, { MASK_MODE: 1, D: 128, M: 128, N: 64 },
        { MASK_MODE: 2, D: 128, M: 128, N: 64 }, { MASK_MODE: 3, D: 128, M: 128, N: 64 },
    ],
)]
pub fn attention<T: Float, const MASK_MODE: usize, const D: usize, const M: usize, const N: usize>(
    q: &View<T, 4>,
    k: &View<T, 4>,
    v: &View<T, 4>,
    bias: &View<T, 3>,
    slopes: &View<f32, 1>,
    out: &mut View<T, 4>,
    lse: &mut View<f32, 3>,
    group: i32,
    scale: f32,
    left: i32,
    right: i32,
    softcap: f32,
    dropout_p: f32,
    seed: u64,
) {
    let (heads, queries, keys) = (q.shape(1).to::<i32>(), q.shape(2).to::<i32>(), k.shape(2).to::<i32>());
    // Longest processing time first: of concurrent heads the programs with the most keys begin.
    let (batch_head, tile) = if MASK_MODE == 0 {
        (tl::program_id(2), tl::program_id(1))
    } else {
        let batch_head = tl::program_id(2) * tl::num_programs(0) + tl::program_id(0);
        (batch_head, tl::num_programs(1) - 1 - tl::program_id(1))
    };
    let (sequence, head) = (batch_head / heads, batch_head % heads);
    let row = tile * M;
    // The last key that the first of these queries attends to, and the end of the keys of all of them.
    let causal_limit = if MASK_MODE == 0 {
        keys
    } else if MASK_MODE == 1 {
        row + (keys - queries)
    } else {
        row + (keys - queries) + right
    };
    let kv_end = if MASK_MODE == 0 { keys } else { tl::minimum(keys, causal_limit + M) };
    // The first key that the first of these queries attends to.
    let window_start = if MASK_MODE < 2 { 0 } else { causal_limit - right - left };
    let kv_begin = if MASK_MODE < 2 { 0 } else { tl::maximum(window_start, 0) / 16 * 16 };
    let slope = if MASK_MODE >= 3 { tl::max(slopes.load::<1>(batch_head), 0) * 1.442695 } else { 0.0 };
    let is_biased = if MASK_MODE >= 3 { bias.shape(2) > 0 } else { false };
    let q = tl::reshape(q.load::<1, 1, M, D>(sequence, head, row, 0), [M, D]);
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut m_i = tl::full([M], f32::NEG_INFINITY);
    let mut l_i = tl::zeros::<f32>([M]);
    for start in (kv_begin..kv_end).step_by(N) {
        let k = tl::reshape(k.load::<1, 1, N, D>(sequence, head / group, start, 0), [N, D]);
        let scores = tl::dot(q, tl::trans(k));
        let last = start + (N as i32 - 1);
        // Modified scores are in the log2 domain already.
        let scores = if MASK_MODE >= 3 {
            let k_positions = start + tl::arange(0, N);
            let scores = if softcap > 0.0 {
                softcap - 2.0 * softcap / (1.0 + tl::exp2(scores * (2.885390 * scale / softcap)))
            } else {
                scores * scale
            };
            let scores = if slope != 0.0 {
                let q_positions = row + (keys - queries) + tl::arange(0, M);
                scores + slope * (k_positions.row() - q_positions.col()).to::<f32>()
            } else {
                scores
            };
            if is_biased {
                let bias = tl::reshape(bias.load::<1, M, N>(batch_head, row, start), [M, N]).to::<f32>();
                tl::fma(bias, 1.442695, scores)
            } else {
                scores
            }
        } else {
            scores
        };
        // A causal limit is within bounds.
        let is_partial = if MASK_MODE == 0 {
            last >= keys
        } else if MASK_MODE == 1 {
            last > causal_limit
        } else {
            last >= keys || last > causal_limit || start < window_start + (M as i32 - 1)
        };
        let scores = if is_partial {
            let k_positions = start + tl::arange(0, N);
            let is_in_bounds = (k_positions < keys).row();
            let is_within_limit = k_positions.row() <= causal_limit + tl::arange(0, M).col();
            let is_visible = if MASK_MODE == 0 {
                is_in_bounds
            } else if MASK_MODE == 1 {
                is_within_limit
            } else {
                is_in_bounds & is_within_limit & (k_positions.row() >= window_start + tl::arange(0, M).col())
            };
            tl::select(is_visible, scores, f32::NEG_INFINITY)
        } else {
            scores
        };
        let m_next = if MASK_MODE >= 3 {
            tl::maximum(m_i, tl::max(scores, 1))
        } else {
            tl::maximum(m_i, tl::max(scores, 1) * scale)
        };
        // Probabilities of up to 2^8 are as exact, so `m_i` may lag the maximum by 8, and the accumulator is seldom rescaled.
        // Where D is 128 an iteration does not wait for that (docs/decisions/0054).
        let m_next = if D == 128 { m_next } else { tl::select(m_next - m_i <= 8.0, m_i, m_next) };
        // A row whose keys are all masked so far has no maximum to subtract.
        let m_safe = tl::select(m_next == f32::NEG_INFINITY, 0.0, m_next);
        let p = if MASK_MODE >= 3 {
            tl::exp2(scores - m_safe.col())
        } else {
            tl::exp2(tl::fma(scores, scale, -m_safe.col()))
        };
        let alpha = tl::exp2(m_i - m_safe);
        l_i = l_i * alpha + tl::sum(p, 1);
        m_i = m_next;
        let p = if MASK_MODE == 4 {
            let first_row = batch_head.to::<i64>() * queries.to::<i64>() + row.to::<i64>();
            let rows = (first_row + tl::arange(0, M).to::<i64>()) * keys.to::<i64>();
            let offsets = rows.col() + (start + tl::arange(0, N)).to::<i64>().row();
            // `tl::rand(seed, offset) < dropout_p`, compared as bits: so many of its 2^23 values are below `dropout_p`.
            let n_dropped = tl::ceil(dropout_p * 8388608.0).to::<u32>();
            tl::select(tl::randint(seed, offsets) >> 9 < n_dropped, 0.0, p)
        } else {
            p
        };
        let v = tl::reshape(v.load::<1, 1, N, D>(sequence, head / group, start, 0), [N, D]);
        acc = tl::dot(p.to::<T>(), v, acc * alpha.col());
    }
    let is_fully_masked = m_i == f32::NEG_INFINITY;
    let l_safe = tl::select(is_fully_masked, 1.0, l_i);
    let keep_scale =
        if MASK_MODE == 4 { tl::select(dropout_p < 1.0, 1.0 / (1.0 - dropout_p), 0.0) } else { 1.0 };
    out.store(
        tl::reshape((acc * (keep_scale / l_safe).col()).to::<T>(), [1, 1, M, D]),
        sequence,
        head,
        row,
        0,
    );
    let lse_log2 = tl::select(is_fully_masked, f32::NEG_INFINITY, m_i + tl::log2(l_safe));
    lse.store(tl::reshape(lse_log2 * 0.6931472, [1, M, 1]), batch_head, row, 0);
}

/// The extents of attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttentionExtents {
    /// Heads of `q`, of all sequences together.
    pub heads: usize,
    /// Heads of `k` and `v`, of all sequences together.
    pub key_heads: usize,
    /// Rows of `q`.
    pub queries: usize,
    /// Rows of `k` and `v`.
    pub keys: usize,
    /// Of a row: `D`.
    pub elements: usize,
}

/// Attention of the heads of views: `Attention::new(q, k, v).causal()`. `T` is `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct Attention<'a, T: Float> {
    pub(crate) q: View<'a, T, 4>,
    pub(crate) k: View<'a, T, 4>,
    pub(crate) v: View<'a, T, 4>,
    pub(crate) scale: f32,
    /// To the left and to the right.
    pub(crate) window: [Option<usize>; 2],
    pub(crate) softcap: Option<f32>,
    pub(crate) slopes: Option<Slice<'a, f32>>,
    pub(crate) bias: Option<View<'a, T, 3>>,
    pub(crate) dropout: Option<Dropout>,
    /// Parts of the keys, where programs share them.
    pub(crate) splits: Option<usize>,
}

/// The largest scale of scores.
const MAX_SCALE: f32 = 1.7e38;
/// The smallest and the largest cap of scores.
const MIN_SOFTCAP: f32 = 1e-30;
const MAX_SOFTCAP: f32 = 1e30;

impl<'a, T: Float> Attention<'a, T> {
    /// Queries, keys and values; scores are scaled by `1 / sqrt(D)`, without a mask.
    pub fn new(q: impl Sequences<'a, T>, k: impl Sequences<'a, T>, v: impl Sequences<'a, T>) -> Self {
        let (q, k, v) = (q.sequences(), k.sequences(), v.sequences());
        let scale = 1.0 / (q.shape()[3].max(1) as f32).sqrt();
        Attention {
            q,
            k,
            v,
            scale,
            window: [None; 2],
            softcap: None,
            slopes: None,
            bias: None,
            dropout: None,
            splits: None,
        }
    }

    /// Another scale of the scores, from 0 to `1.7e38`.
    pub fn scale(self, scale: f32) -> Self {
        Attention { scale, ..self }
    }

    /// A query attends to the keys up to its position: a window without an end on the left, and 0 on the right.
    pub fn causal(self) -> Self {
        self.window(None, 0)
    }

    /// A query attends to so many keys before its position and so many behind it; `None` is all of them.
    pub fn window(self, left: impl Into<Option<usize>>, right: impl Into<Option<usize>>) -> Self {
        Attention { window: [left.into(), right.into()], ..self }
    }

    /// Keeps scores between `-softcap` and `softcap`, by `softcap * tanh(score / softcap)`.
    pub fn softcap(self, softcap: f32) -> Self {
        Attention { softcap: Some(softcap), ..self }
    }

    /// Adds `slope * (key - position)` to scores, with a slope for each head of `q`, of all sequences.
    pub fn alibi(self, slopes: impl Into<Slice<'a, f32>>) -> Self {
        Attention { slopes: Some(slopes.into()), ..self }
    }

    /// Adds a bias to each score: a view of `[heads, queries, keys]` with the heads of all sequences, of which the first two may be 1.
    pub fn bias(self, bias: impl Into<View<'a, T, 3>>) -> Self {
        Attention { bias: Some(bias.into()), ..self }
    }

    /// The fraction of probabilities that is dropped, and the seed of the random numbers that choose them.
    pub fn dropout(self, p: f32, seed: u64) -> Self {
        Attention { dropout: Some(Dropout { p, seed }), ..self }
    }

    /// Computes into `out` and `lse`, on a device or stream.
    ///
    /// # Errors
    /// If shapes and lengths do not fit together, or heads of keys do not divide those of queries; if a row has no
    /// elements or more than 256; if a parameter of the scores is out of range; if a sequence is longer than a
    /// quarter of what an `i32` counts; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        out: impl SequencesMut<'o, T>,
        lse: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()>
    where
        T: Attend,
    {
        let (out, mut lse) = (out.sequences(), lse.into());
        let AttentionExtents { heads, key_heads, queries, keys, .. } = self.check(out.shape(), lse.len())?;
        if heads * queries == 0 {
            return Ok(());
        }
        let nothing = self.q.slice(0, ..0).reshape([0; 3])?;
        let bias = self.bias.map_or(Ok(nothing), |bias| bias.broadcast([heads, queries, keys]))?;
        let mask_mode = match self.window {
            _ if self.has_dropout() => 4,
            _ if self.has_score_mod() => 3,
            [None, None] => 0,
            [None, Some(0)] => 1,
            _ => 2,
        };
        let Dropout { p: dropout_p, seed } = self.dropout.unwrap_or(Dropout { p: 0.0, seed: 0 });
        let slopes = match self.slopes {
            Some(slopes) => slopes.view([heads])?,
            None => View::new(&[][..], [0])?,
        };
        let of = AttentionInputs {
            q: self.q,
            k: self.k,
            v: self.v,
            bias,
            slopes,
            mask_mode,
            group: (heads / key_heads) as i32,
            scale: for_powers(self.scale),
            softcap: self.softcap.unwrap_or(0.0) * std::f32::consts::LOG2_E,
            window: self.window_keys(),
            dropout_p,
            seed,
        };
        // A last axis of 1: its elements are stored one by one, so any number of queries will do.
        T::attend(on, of, out, lse.view_mut([heads, queries, 1])?)
    }

    /// The window for the kernel, clamped to the extents.
    pub(crate) fn window_keys(&self) -> [i32; 2] {
        let farthest = self.q.shape()[2] + self.k.shape()[2];
        self.window.map(|reach| reach.map_or(farthest, |keys| keys.min(farthest)) as i32)
    }

    /// Whether scores are modified beyond the scale.
    pub(crate) fn has_score_mod(&self) -> bool {
        self.softcap.is_some() || self.slopes.is_some() || self.bias.is_some()
    }

    pub(crate) fn has_dropout(&self) -> bool {
        self.dropout.is_some_and(|dropout| dropout.p != 0.0)
    }

    pub(crate) fn check(&self, out: [usize; 4], lse: usize) -> Result<AttentionExtents> {
        let checks = Checks("attention");
        let ([sequences, heads, queries, elements], [_, key_heads, keys, _]) =
            (self.q.shape(), self.k.shape());
        for (name, shape) in [("k", self.k.shape()), ("v", self.v.shape()), ("out", out)] {
            if shape[0] != sequences {
                let reason = format!("{name} has {} sequences and q has {sequences}", shape[0]);
                return Err(checks.error(reason));
            }
        }
        let of_one = AttentionExtents { heads, key_heads, queries, keys, elements };
        fit(
            checks,
            of_one,
            [self.k.shape(), self.v.shape(), out].map(|[_, heads, rows, row]| [heads, rows, row]),
        )?;
        let (heads, key_heads) = (sequences * heads, sequences * key_heads);
        let extents = AttentionExtents { heads, key_heads, ..of_one };
        checks.same(("lse", lse), ("heads * queries", heads * queries))?;
        if !(0.0..=MAX_SCALE).contains(&self.scale) {
            return Err(checks.error(format!("scale is {}, expected 0 to {MAX_SCALE:e}", self.scale)));
        }
        // The scale over the cap is finite too.
        let lowest = (self.scale / MAX_SOFTCAP).max(MIN_SOFTCAP);
        if let Some(softcap) = self.softcap
            && !(lowest..=MAX_SOFTCAP).contains(&softcap)
        {
            return Err(checks.error(format!("softcap is {softcap}, expected {lowest:e} to {MAX_SOFTCAP:e}")));
        }
        if let Some(slopes) = self.slopes {
            checks.same(("slopes", slopes.len()), ("q's heads", heads))?;
        }
        if let Some(bias) = self.bias {
            let shape = bias.shape();
            let wanted = [0, 1].map(|axis| if shape[axis] == 1 { 1 } else { [heads, queries][axis] });
            checks.extents("bias", shape, [wanted[0], wanted[1], keys])?;
        }
        if let Some(dropout) = self.dropout
            && !(0.0..=1.0).contains(&dropout.p)
        {
            return Err(checks.error(format!("{} is not a probability", dropout.p)));
        }
        Ok(extents)
    }
}

/// That the views fit together, of which `q` has these extents; the shapes of `k`, `v` and `out`.
pub(crate) fn fit(checks: Checks, of: AttentionExtents, [k, v, out]: [[usize; 3]; 3]) -> Result<()> {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = of;
    checks.extents("k", k, [key_heads, keys, elements])?;
    checks.extents("v", v, [key_heads, keys, elements])?;
    checks.extents("out", out, [heads, queries, elements])?;
    if heads.checked_rem(key_heads).unwrap_or(heads) != 0 {
        let reason = format!("q has {heads} heads and k has {key_heads}, which does not divide them");
        return Err(checks.error(reason));
    }
    if !(1..=MAX_ELEMENTS).contains(&elements) {
        return Err(checks.error(format!("rows have {elements} elements, expected 1 to {MAX_ELEMENTS}")));
    }
    let most = i32::MAX as usize / 4;
    if let Some(longest) = [queries, keys].into_iter().find(|&length| length > most) {
        return Err(checks.error(format!("a sequence has {longest} rows, the most is {most}")));
    }
    Ok(())
}

/// The longest row of a head.
pub const MAX_ELEMENTS: usize = 256;

/// A scale of scores, for powers of two. It is above 0: masked scores are infinite, and 0 times that is NaN.
pub(crate) fn for_powers(scale: f32) -> f32 {
    (scale * std::f32::consts::LOG2_E).max(f32::MIN_POSITIVE)
}

/// What the kernel takes, once it is known to fit together.
#[derive(Clone, Copy)]
pub struct AttentionInputs<'a, T: Float> {
    q: View<'a, T, 4>,
    k: View<'a, T, 4>,
    v: View<'a, T, 4>,
    bias: View<'a, T, 3>,
    slopes: View<'a, f32, 1>,
    mask_mode: usize,
    group: i32,
    scale: f32,
    softcap: f32,
    window: [i32; 2],
    dropout_p: f32,
    seed: u64,
}

impl<T: Float> AttentionInputs<'_, T> {
    /// Heads that run concurrently, whose longest programs begin first, so that the last ones are short. Their keys and
    /// values stay in the cache, or several programs of each run at once and share reads. One where all programs
    /// take equally long: those of a head are then consecutive.
    fn concurrent_heads(&self, sm_count: usize) -> usize {
        let ([sequences, heads, ..], [.., keys, elements]) = (self.q.shape(), self.k.shape());
        let heads = sequences * heads;
        let [left, right] = self.window.map(|reach| reach as usize);
        if self.mask_mode == 0 || left < keys || right >= keys {
            return 1;
        }
        let bytes = (2 * keys * elements * size_of::<T>()).max(1);
        let most =
            (L2_RESIDENT_BYTES / bytes * self.group as usize).max(sm_count / SHARING_PROGRAMS).min(heads);
        (1..=most).rev().find(|&count| heads.is_multiple_of(count)).unwrap_or(1)
    }

    /// Whether large tiles take less time than small ones. Each SM runs one after the other, a large one a quarter faster
    /// for each query. Without a mask, the number of waves decides. Below a diagonal the longest tile decides, as long as
    /// small ones have an SM each; a few more would share the SM of the longest; two for each SM balance better, and of many
    /// large ones are faster.
    fn in_large_tiles(&self, sm_count: usize) -> bool {
        let [sequences, heads, queries, _] = self.q.shape();
        let tiles = |rows: usize| sequences * heads * queries.div_ceil(rows);
        if self.mask_mode == 0 {
            let waves = |rows: usize| tiles(rows).div_ceil(sm_count) as f64;
            return waves(LARGE) <= SMALL_TIME * waves(SMALL);
        }
        let per_sm = tiles(LARGE) as f64 / sm_count as f64;
        queries >= LONG_QUERIES && tiles(SMALL) > sm_count && !(ONE_WAVE..=BALANCED).contains(&per_sm)
    }
}

/// Bytes that stay in the cache of a large GPU while others pass through it.
const L2_RESIDENT_BYTES: usize = 16 << 20;
/// Concurrent programs of a head that share reads of its keys often enough.
const SHARING_PROGRAMS: usize = 4;

/// The element types of attention, each with its tiles.
pub trait Attend: Float {
    /// Launches the kernel with the smallest tile that holds a row.
    #[doc(hidden)]
    fn attend(
        on: impl LaunchOn,
        of: AttentionInputs<'_, Self>,
        out: ViewMut<'_, Self, 4>,
        lse: ViewMut<'_, f32, 3>,
    ) -> Result<()>;
}

/// The launches that a tile is for.
#[derive(Clone, Copy)]
enum TileUse {
    Always,
    /// On GPUs with warpgroup mma, where [`AttentionInputs::in_large_tiles`] is so.
    Large,
    /// On GPUs whose blocks have too little shared memory for two stages of 128 keys and values of 128 elements.
    LittleSmem,
}

/// Queries of the tiles of rows of 64 elements.
const LARGE: usize = 192;
const SMALL: usize = 128;
/// The time of a small tile that has an SM for itself, of that of a large one.
const SMALL_TIME: f64 = 0.84;
/// The queries from which on larger tiles are worth the larger blocks that the diagonal cuts.
const LONG_QUERIES: usize = 3072;
/// Large tiles for each SM up to which small ones balance better below a diagonal, and up to which the longest tile decides.
const BALANCED: f64 = 2.2;
const ONE_WAVE: f64 = 1.1;

/// Shared memory for two stages of 128 keys and values of 128 elements, and the queries.
const TWO_STAGES: usize = 163 * 1024;

/// The mask mode, the elements of a row, and the tiles for them, queries of a program and keys of an iteration: the first whose
/// use fits the launch is taken.
macro_rules! attend {
    ($T:ty: $([$MASK_MODE:literal, $D:literal: $([$M:literal, $N:literal] $tile_use:expr),*])*) => {
        impl Attend for $T {
            fn attend(
                on: impl LaunchOn,
                of: AttentionInputs<'_, $T>,
                out: ViewMut<'_, $T, 4>,
                lse: ViewMut<'_, f32, 3>,
            ) -> Result<()> {
                let AttentionInputs { q, k, v, bias, slopes, mask_mode, group, scale, softcap, window, dropout_p, seed } = of;
                let ([left, right], [sequences, heads, queries, elements]) = (window, q.shape());
                let heads = sequences * heads;
                let concurrent_heads = of.concurrent_heads(on.parallelism());
                let fits = |most: usize, tile_use: TileUse| {
                    elements <= most
                        && match tile_use {
                            Always => true,
                            Large => on.has_clusters() && of.in_large_tiles(on.parallelism()),
                            LittleSmem => on.shared_bytes().is_some_and(|bytes| bytes < TWO_STAGES),
                        }
                };
                match mask_mode {
                    $($($MASK_MODE if fits($D, $tile_use) => attention::<$T, $MASK_MODE, $D, $M, $N>(
                        q, k, v, bias, slopes, out, lse, group, scale, left, right, softcap, dropout_p, seed,
                    ).grid((concurrent_heads, queries.div_ceil($M), heads / concurrent_heads)).launch(on),)*)*
                    _ => Err(Checks("attention").error(format!("there is no tile for {elements} elements"))),
                }
            }
        }
    };
}

macro_rules! tiles {
    ($($T:ty)*) => {$(attend! { $T:
        [0, 64: [192, 128] Large, [128, 128] Always] [0, 128: [128, 64] LittleSmem, [128, 128] Always]
        [0, 192: [128, 96] Always] [0, 256: [128, 64] Always]
        [1, 64: [192, 128] Large, [128, 128] Always] [1, 128: [128, 64] LittleSmem, [128, 128] Always]
        [1, 192: [128, 96] Always] [1, 256: [128, 64] Always]
        [2, 64: [128, 128] Always] [2, 128: [128, 64] LittleSmem, [128, 128] Always]
        [2, 192: [128, 96] Always] [2, 256: [128, 64] Always]
        [3, 64: [128, 128] Always] [3, 128: [128, 64] LittleSmem, [128, 128] Always]
        [3, 192: [128, 64] Always] [3, 256: [128, 48] Always]
        [4, 128: [128, 64] Always] [4, 256: [128, 32] Always]
    })*};
}

tiles!(f16 bf16);

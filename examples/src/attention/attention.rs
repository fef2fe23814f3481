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

pub use crate::attention_kernels::attention;
use crate::dropout::Dropout;
use crate::float::HalfFloat;
pub use crate::query_tile::{AttentionMask, QueryTile};
pub use crate::sequences::{Sequences, SequencesMut};
use crate::shape::Checks;

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
pub struct Attention<'a, T: HalfFloat> {
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

/// What modifies scores and drops probabilities, as kernels take it: without elements or 0 where there is none.
pub(crate) struct ScoreArguments<'a, T: HalfFloat> {
    /// `[heads of all sequences, queries, keys]`
    pub bias: View<'a, T, 3>,
    pub slopes: View<'a, f32, 1>,
    /// For powers of two.
    pub softcap: f32,
    pub dropout: Dropout,
}

/// The largest scale of scores.
const MAX_SCALE: f32 = 1.7e38;
/// The smallest and the largest cap of scores.
const MIN_SOFTCAP: f32 = 1e-30;
const MAX_SOFTCAP: f32 = 1e30;

impl<'a, T: HalfFloat> Attention<'a, T> {
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

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If shapes and lengths do not fit together, or heads of keys do not divide those of queries; if a row has no
    /// elements or more than 256; if a parameter of the scores is out of range; if a sequence is longer than a
    /// quarter of what an `i32` counts; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl SequencesMut<'o, T>) -> Result<()> {
        self.launch_optional_lse(on, out.sequences(), None)
    }

    /// Computes into `out` and `lse`, which a gradient and the merge of partial results need.
    ///
    /// # Errors
    /// Those of [`Attention::launch`]; if `lse` has another length than one element for each query of each head.
    pub fn launch_with_lse<'o>(
        &self,
        on: impl LaunchOn,
        out: impl SequencesMut<'o, T>,
        lse: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        self.launch_optional_lse(on, out.sequences(), Some(lse.into()))
    }

    pub(crate) fn launch_optional_lse(
        &self,
        on: impl LaunchOn,
        out: ViewMut<'_, T, 4>,
        mut lse: Option<SliceMut<'_, f32>>,
    ) -> Result<()> {
        let AttentionExtents { heads, key_heads, queries, keys, .. } =
            self.check(out.shape(), lse.as_ref().map(SliceMut::len))?;
        if heads * queries == 0 {
            return Ok(());
        }
        let mask = self.mask();
        let ScoreArguments { bias, slopes, softcap, dropout: Dropout { p: dropout_p, seed } } =
            self.score_arguments([heads, queries, keys])?;
        let [left, right] = self.window_keys();
        let concurrent_heads = self.concurrent_heads(mask, on.parallelism());
        attention::<T>(
            self.q,
            self.k,
            self.v,
            bias,
            slopes,
            out,
            lse_rows(&mut lse, [heads, queries])?,
            mask,
            (heads / key_heads) as i32,
            for_powers(self.scale),
            left,
            right,
            softcap,
            dropout_p,
            seed,
        )
        .grid_by(|chosen| {
            (concurrent_heads, queries.div_ceil(chosen.constant("M")), heads / concurrent_heads)
        })
        .launch(on)
    }

    /// What kernels take of the scores, for so many heads of all sequences, queries and keys.
    pub(crate) fn score_arguments(&self, shape: [usize; 3]) -> Result<ScoreArguments<'a, T>> {
        let nothing = self.q.slice(0, ..0).reshape([0; 3])?;
        Ok(ScoreArguments {
            bias: self.bias.map_or(Ok(nothing), |bias| bias.broadcast(shape))?,
            slopes: self.slopes.map_or(View::new(&[][..], [0]), |slopes| slopes.view([shape[0]]))?,
            softcap: self.softcap.unwrap_or(0.0) * std::f32::consts::LOG2_E,
            dropout: self.dropout.unwrap_or(Dropout { p: 0.0, seed: 0 }),
        })
    }

    /// The mask of the kernel: modified scores have one kernel for all, where a window of all keys masks none.
    pub(crate) fn mask(&self) -> AttentionMask {
        match self.window {
            _ if self.has_dropout() || self.has_score_mod() => AttentionMask::Window,
            [None, None] => AttentionMask::None,
            [None, Some(0)] => AttentionMask::Causal,
            _ => AttentionMask::Window,
        }
    }

    /// Heads that run concurrently, whose longest programs begin first, so that the last ones are short. Their keys and
    /// values stay in the cache, or several programs of each run at once and share reads. One where all programs
    /// take equally long: those of a head are then consecutive.
    pub(crate) fn concurrent_heads(&self, mask: AttentionMask, sm_count: usize) -> usize {
        let ([sequences, heads, ..], [_, key_heads, keys, elements]) = (self.q.shape(), self.k.shape());
        let [left, right] = self.window_keys().map(|reach| reach as usize);
        if mask == AttentionMask::None || left < keys || right >= keys {
            return 1;
        }
        let bytes = (2 * keys * elements * size_of::<T>()).max(1);
        let most = (L2_RESIDENT_BYTES / bytes * (heads / key_heads)).max(sm_count / SHARING_PROGRAMS);
        let heads = sequences * heads;
        (1..=most.min(heads)).rev().find(|&count| heads.is_multiple_of(count)).unwrap_or(1)
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

    pub(crate) fn check(&self, out: [usize; 4], lse: Option<usize>) -> Result<AttentionExtents> {
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
        checks.same(("lse", lse.unwrap_or(heads * queries)), ("heads * queries", heads * queries))?;
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

/// A row of `lse` for each head, or no elements, to which nothing is stored. A last axis of 1: elements are stored one by one, so any number of
/// queries will do.
pub(crate) fn lse_rows<'l>(
    lse: &'l mut Option<SliceMut<'_, f32>>,
    [heads, queries]: [usize; 2],
) -> Result<ViewMut<'l, f32, 3>> {
    lse.as_mut().map_or(Ok(ViewMut::default()), |lse| lse.view_mut([heads, queries, 1]))
}

/// The longest row of a head.
pub const MAX_ELEMENTS: usize = 256;

/// A scale of scores, for powers of two. It is above 0: masked scores are infinite, and 0 times that is NaN.
pub(crate) fn for_powers(scale: f32) -> f32 {
    (scale * std::f32::consts::LOG2_E).max(f32::MIN_POSITIVE)
}

/// Bytes that stay in the cache of a large GPU while others pass through it.
const L2_RESIDENT_BYTES: usize = 16 << 20;
/// Concurrent programs of a head that share reads of its keys often enough.
const SHARING_PROGRAMS: usize = 4;

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
//! **Sight.** The place of query `i` is key `i + keys - queries`: sequences end together. A window of `left` and
//! `right` lets it see the keys from `left` before its place to `right` behind it; causal attention is a window without
//! an end on the left and 0 on the right. A query that sees no key gives zeros, and negative infinity in `lse`.
//!
//! **Scores.** Of the product of a query and a key times `scale`, `x`, are made
//! `softcap * tanh(x / softcap) + slope * (key - place) + bias`: a cap, ALiBi's slope of each query head, and a number
//! for each query and key. Each of them is optional. A bias of negative infinity hides a key. Dropout leaves out the
//! probability of query `i` and key `j` of head `h`, of those of all sequences, where `tl::rand(seed, (h * queries + i) * keys + j) < p`, and
//! divides others by `1 - p`: nothing is saved, the mask can be computed again.
//!
//! **Work.** `4 * heads * queries * keys * D` operations, about half of them if it is causal, and for a score a
//! multiply-add, an exponential, a maximum and a sum. A program handles 128 or 192 queries of a head and reads all keys and
//! values that these see once; blocks of keys that none of them sees it does not read, and it compares places in the
//! blocks alone that not all of its queries see whole.
//!
//! **Rounding.** Scores, their maxima, exponentials and sums are computed in `f32`; exponentials are rounded to `T`
//! before they weigh the values, and the result is rounded to `T` once. Before that it is within
//! `2 e + (keys + 16) * 2^-23 + u` times the weighted mean of the values' magnitudes, with `e` `(D + 4) * 2^-23` times
//! the largest sum of magnitudes behind a score and `u` half a unit of `T`; `lse` is within
//! `2 e + (keys + 16) * 2^-23`, and `2^-20` of its own size and the largest score's. Behind a score with a cap
//! `8 * 2^-23 * softcap` is added to `e`, and `4 * 2^-23` times the magnitudes of a slope's part, of a bias and of
//! the score. Where a scaled score is beyond `2^30`, its row may be NaN.
//!
//! **Source.** Dao, Fu, Ermon, Rudra, Ré, 2022, arXiv:2205.14135; the running softmax is Milakov and Gimelshein's,
//! 2018, arXiv:1805.02867; grouped heads are Ainslie and others', 2023, arXiv:2305.13245; slopes Press, Smith, Lewis,
//! 2022, arXiv:2108.12409; the cap is Gemma 2's, arXiv:2408.00118.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use self::Where::{Everywhere, Large, Little};
use crate::dropout::Dropout;
pub use crate::sequences::{Sequences, SequencesMut};
use crate::shape::Checks;

/// A program handles `M` queries of a head, `N` keys at a time. The grid's first axis counts heads, of all sequences, that run together, one
/// where `FORM` is 0, its second axis tiles of their queries, and its third one such sets of heads; `group` heads that
/// follow each other read one key head. `FORM` is 0 where every query sees every key, 1 if it is causal, 2 with a window,
/// 3 with a window and what changes scores, 4 with dropout besides. `scale`, above 0, and `softcap` are for powers of two;
/// a `softcap` of 0 is none, and so are slopes of 0 and a bias without elements. `left` and `right` are at most 2^30. With
/// fewer keys at a time there is room to copy the next ones meanwhile where blocks have little shared memory.
#[fuse_kernel(
    T = [f16, bf16],
    configs = [
        { FORM: 0, D: 64, M: 128, N: 128 }, { FORM: 0, D: 64, M: 192, N: 128 }, { FORM: 0, D: 128, M: 128, N: 128 },
        { FORM: 0, D: 192, M: 128, N: 96 }, { FORM: 0, D: 256, M: 128, N: 64 },
        { FORM: 1, D: 64, M: 128, N: 128 }, { FORM: 1, D: 64, M: 192, N: 128 }, { FORM: 1, D: 128, M: 128, N: 128 },
        { FORM: 1, D: 192, M: 128, N: 96 }, { FORM: 1, D: 256, M: 128, N: 64 },
        { FORM: 2, D: 64, M: 128, N: 128 }, { FORM: 2, D: 128, M: 128, N: 128 },
        { FORM: 2, D: 192, M: 128, N: 96 }, { FORM: 2, D: 256, M: 128, N: 64 },
        { FORM: 3, D: 64, M: 128, N: 128 }, { FORM: 3, D: 128, M: 128, N: 128 },
        { FORM: 3, D: 192, M: 128, N: 64 }, { FORM: 3, D: 256, M: 128, N: 48 },
        { FORM: 4, D: 128, M: 128, N: 64 }, { FORM: 4, D: 256, M: 128, N: 32 },
        { FORM: 0, D: 128, M: 128, N: 64 }, { FORM: 1, D: 128, M: 128, N: 64 },
        { FORM: 2, D: 128, M: 128, N: 64 }, { FORM: 3, D: 128, M: 128, N: 64 },
    ],
)]
pub fn attention<T: Float, const FORM: usize, const D: usize, const M: usize, const N: usize>(
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
    p: f32,
    seed: u64,
) {
    let (heads, queries, keys) = (q.shape(1).to::<i32>(), q.shape(2).to::<i32>(), k.shape(2).to::<i32>());
    // Of heads that run together the programs that see most keys begin first.
    let (number, tile) = if FORM == 0 {
        (tl::program_id(2), tl::program_id(1))
    } else {
        let number = tl::program_id(2) * tl::num_programs(0) + tl::program_id(0);
        (number, tl::num_programs(1) - 1 - tl::program_id(1))
    };
    let (sequence, head) = (number / heads, number % heads);
    let row = tile * M;
    // The last key that the first of these queries sees, and the first that none of them sees.
    let sight = if FORM == 0 {
        keys
    } else if FORM == 1 {
        row + (keys - queries)
    } else {
        row + (keys - queries) + right
    };
    let end = if FORM == 0 { keys } else { tl::minimum(keys, sight + M) };
    // The first key that the first of these queries sees.
    let low = if FORM < 2 { 0 } else { sight - right - left };
    let begin = if FORM < 2 { 0 } else { tl::maximum(low, 0) / 16 * 16 };
    let slope = if FORM >= 3 { tl::max(slopes.load::<1>(number), 0) * 1.442695 } else { 0.0 };
    let is_biased = if FORM >= 3 { bias.shape(2) > 0 } else { false };
    let q = tl::reshape(q.load::<1, 1, M, D>(sequence, head, row, 0), [M, D]);
    let mut sum = tl::zeros::<f32>([M, D]);
    let mut largest = tl::full([M], f32::NEG_INFINITY);
    let mut total = tl::zeros::<f32>([M]);
    for start in (begin..end).step_by(N) {
        let k = tl::reshape(k.load::<1, 1, N, D>(sequence, head / group, start, 0), [N, D]);
        let scores = tl::dot(q, tl::trans(k));
        let last = start + (N as i32 - 1);
        // Where scores are changed, one is what the exponential of 2 is taken of.
        let scores = if FORM >= 3 {
            let at = start + tl::arange(0, N);
            let scores = if softcap > 0.0 {
                softcap - 2.0 * softcap / (1.0 + tl::exp2(scores * (2.885390 * scale / softcap)))
            } else {
                scores * scale
            };
            let scores = if slope != 0.0 {
                let center = row + (keys - queries) + tl::arange(0, M);
                scores + slope * (at.row() - center.col()).to::<f32>()
            } else {
                scores
            };
            if is_biased {
                let bias = tl::reshape(bias.load::<1, M, N>(number, row, start), [M, N]).to::<f32>();
                tl::fma(bias, 1.442695, scores)
            } else {
                scores
            }
        } else {
            scores
        };
        // The last key that a query sees if it is causal is one of those that there are.
        let is_cut = if FORM == 0 {
            last >= keys
        } else if FORM == 1 {
            last > sight
        } else {
            last >= keys || last > sight || start < low + (M as i32 - 1)
        };
        let scores = if is_cut {
            let at = start + tl::arange(0, N);
            let is_key = (at < keys).row();
            let reaches = at.row() <= sight + tl::arange(0, M).col();
            let seen = if FORM == 0 {
                is_key
            } else if FORM == 1 {
                reaches
            } else {
                is_key & reaches & (at.row() >= low + tl::arange(0, M).col())
            };
            tl::select(seen, scores, f32::NEG_INFINITY)
        } else {
            scores
        };
        let next = if FORM >= 3 {
            tl::maximum(largest, tl::max(scores, 1))
        } else {
            tl::maximum(largest, tl::max(scores, 1) * scale)
        };
        // Weights of up to 2^8 are as exact, so a maximum may stay behind by 8, and the sum is seldom scaled. Where D is
        // 128 a turn does not wait for that (docs/performance.md).
        let next = if D == 128 { next } else { tl::select(next - largest <= 8.0, largest, next) };
        // A row that has seen no key yet has no maximum to be counted from.
        let origin = tl::select(next == f32::NEG_INFINITY, 0.0, next);
        let weights = if FORM >= 3 {
            tl::exp2(scores - origin.col())
        } else {
            tl::exp2(tl::fma(scores, scale, -origin.col()))
        };
        let before = tl::exp2(largest - origin);
        total = total * before + tl::sum(weights, 1);
        largest = next;
        let weights = if FORM == 4 {
            let first = number.to::<i64>() * queries.to::<i64>() + row.to::<i64>();
            let rows = (first + tl::arange(0, M).to::<i64>()) * keys.to::<i64>();
            let numbers = rows.col() + (start + tl::arange(0, N)).to::<i64>().row();
            // `tl::rand(seed, number) < p`, asked of the number's bits.
            let limit = tl::wrapping_mul(tl::ceil(p * 8388608.0).to::<u32>(), 512);
            tl::select(tl::randint(seed, numbers) < limit, 0.0, weights)
        } else {
            weights
        };
        let v = tl::reshape(v.load::<1, 1, N, D>(sequence, head / group, start, 0), [N, D]);
        sum = tl::dot(weights.to::<T>(), v, sum * before.col());
    }
    let is_blind = largest == f32::NEG_INFINITY;
    let some = tl::select(is_blind, 1.0, total);
    let kept = if FORM == 4 { tl::select(p < 1.0, 1.0 / (1.0 - p), 0.0) } else { 1.0 };
    out.store(tl::reshape((sum * (kept / some).col()).to::<T>(), [1, 1, M, D]), sequence, head, row, 0);
    let logarithm = tl::select(is_blind, f32::NEG_INFINITY, largest + tl::log2(some));
    lse.store(tl::reshape(logarithm * 0.6931472, [1, M, 1]), number, row, 0);
}

/// The extents of attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extents {
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

/// The largest factor for scores.
const MOST: f32 = 1.7e38;
/// The smallest and the largest cap of scores.
const LOWEST: f32 = 1e-30;
const HIGHEST: f32 = 1e30;

impl<'a, T: Float> Attention<'a, T> {
    /// Queries, keys and values; scores are scaled by `1 / sqrt(D)`, and every query sees every key.
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

    /// Another factor for the scores, from 0 to `1.7e38`.
    pub fn scale(self, scale: f32) -> Self {
        Attention { scale, ..self }
    }

    /// A query sees the keys up to its place: a window without an end on the left, and 0 on the right.
    pub fn causal(self) -> Self {
        self.window(None, 0)
    }

    /// A query sees so many keys before its place and so many behind it; `None` is all of them.
    pub fn window(self, left: impl Into<Option<usize>>, right: impl Into<Option<usize>>) -> Self {
        Attention { window: [left.into(), right.into()], ..self }
    }

    /// Keeps scores between `-softcap` and `softcap`, by `softcap * tanh(score / softcap)`.
    pub fn softcap(self, softcap: f32) -> Self {
        Attention { softcap: Some(softcap), ..self }
    }

    /// Adds `slope * (key - place)` to scores, with a slope for each head of `q`, of all sequences.
    pub fn alibi(self, slopes: impl Into<Slice<'a, f32>>) -> Self {
        Attention { slopes: Some(slopes.into()), ..self }
    }

    /// Adds a number to each score: a view of `[heads, queries, keys]` with the heads of all sequences, of which the first two may be 1.
    pub fn bias(self, bias: impl Into<View<'a, T, 3>>) -> Self {
        Attention { bias: Some(bias.into()), ..self }
    }

    /// The share of probabilities that is left out, and the seed of the numbers that choose them.
    pub fn dropout(self, p: f32, seed: u64) -> Self {
        Attention { dropout: Some(Dropout { p, seed }), ..self }
    }

    /// Computes into `out` and `lse`, on a device or stream.
    ///
    /// # Errors
    /// If shapes and lengths do not fit together, or heads of keys do not divide those of queries; if a row has no
    /// elements or more than 256; if a number for the scores is not what it may be; if a sequence is longer than a
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
        let Extents { heads, key_heads, queries, keys, .. } = self.check(out.shape(), lse.len())?;
        if heads * queries == 0 {
            return Ok(());
        }
        let nothing = self.q.slice(0, ..0).reshape([0; 3])?;
        let bias = self.bias.map_or(Ok(nothing), |bias| bias.broadcast([heads, queries, keys]))?;
        let form = match self.window {
            _ if self.drops() => 4,
            _ if self.changes_scores() => 3,
            [None, None] => 0,
            [None, Some(0)] => 1,
            _ => 2,
        };
        let Dropout { p, seed } = self.dropout.unwrap_or(Dropout { p: 0.0, seed: 0 });
        let slopes = match self.slopes {
            Some(slopes) => slopes.view([heads])?,
            None => View::new(&[][..], [0])?,
        };
        let of = Inputs {
            q: self.q,
            k: self.k,
            v: self.v,
            bias,
            slopes,
            form,
            group: (heads / key_heads) as i32,
            scale: for_powers(self.scale),
            softcap: self.softcap.unwrap_or(0.0) * std::f32::consts::LOG2_E,
            window: self.sides(),
            p,
            seed,
        };
        // A last axis of 1: its elements are written one by one, and any number of queries will do.
        T::attend(on, of, out, lse.view_mut([heads, queries, 1])?)
    }

    /// The window for the kernel: beyond all places there is nothing to be seen.
    pub(crate) fn sides(&self) -> [i32; 2] {
        let farthest = self.q.shape()[2] + self.k.shape()[2];
        self.window.map(|side| side.map_or(farthest, |keys| keys.min(farthest)) as i32)
    }

    /// Whether scores are more than products with a factor.
    pub(crate) fn changes_scores(&self) -> bool {
        self.softcap.is_some() || self.slopes.is_some() || self.bias.is_some()
    }

    pub(crate) fn drops(&self) -> bool {
        self.dropout.is_some_and(|dropout| dropout.p != 0.0)
    }

    pub(crate) fn check(&self, out: [usize; 4], lse: usize) -> Result<Extents> {
        let checks = Checks("attention");
        let ([sequences, heads, queries, elements], [_, key_heads, keys, _]) =
            (self.q.shape(), self.k.shape());
        for (name, shape) in [("k", self.k.shape()), ("v", self.v.shape()), ("out", out)] {
            if shape[0] != sequences {
                let reason = format!("{name} has {} sequences and q has {sequences}", shape[0]);
                return Err(checks.error(reason));
            }
        }
        let of_one = Extents { heads, key_heads, queries, keys, elements };
        fit(
            checks,
            of_one,
            [self.k.shape(), self.v.shape(), out].map(|[_, heads, rows, row]| [heads, rows, row]),
        )?;
        let (heads, key_heads) = (sequences * heads, sequences * key_heads);
        let extents = Extents { heads, key_heads, ..of_one };
        checks.same(("lse", lse), ("heads * queries", heads * queries))?;
        if !(0.0..=MOST).contains(&self.scale) {
            return Err(checks.error(format!("scale is {}, expected 0 to {MOST:e}", self.scale)));
        }
        // What a product is multiplied by, before the cap, is a number too.
        let lowest = (self.scale / HIGHEST).max(LOWEST);
        if let Some(softcap) = self.softcap
            && !(lowest..=HIGHEST).contains(&softcap)
        {
            return Err(checks.error(format!("softcap is {softcap}, expected {lowest:e} to {HIGHEST:e}")));
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
pub(crate) fn fit(checks: Checks, of: Extents, [k, v, out]: [[usize; 3]; 3]) -> Result<()> {
    let Extents { heads, key_heads, queries, keys, elements } = of;
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

/// A factor of scores, for powers of two. Of keys that are not seen the scores are infinite, and 0 times that is no
/// number.
pub(crate) fn for_powers(scale: f32) -> f32 {
    (scale * std::f32::consts::LOG2_E).max(f32::MIN_POSITIVE)
}

/// What the kernel takes, once it is known to fit together.
#[derive(Clone, Copy)]
pub struct Inputs<'a, T: Float> {
    q: View<'a, T, 4>,
    k: View<'a, T, 4>,
    v: View<'a, T, 4>,
    bias: View<'a, T, 3>,
    slopes: View<'a, f32, 1>,
    form: usize,
    group: i32,
    scale: f32,
    softcap: f32,
    window: [i32; 2],
    p: f32,
    seed: u64,
}

impl<T: Float> Inputs<'_, T> {
    /// Heads that run together, of which the longest programs begin first, so that what runs last is short. Their keys and
    /// values stay in the cache, or several programs of each run at once and read them together. One where programs
    /// take equally long: those of a head then follow each other.
    fn together(&self, processors: usize) -> usize {
        let ([sequences, heads, ..], [.., keys, elements]) = (self.q.shape(), self.k.shape());
        let heads = sequences * heads;
        let [left, right] = self.window.map(|side| side as usize);
        if self.form == 0 || left < keys || right >= keys {
            return 1;
        }
        let bytes = (2 * keys * elements * size_of::<T>()).max(1);
        let most = (CACHED / bytes * self.group as usize).max(processors / AT_ONCE).min(heads);
        (1..=most).rev().find(|&side| heads.is_multiple_of(side)).unwrap_or(1)
    }

    /// Whether large tiles take less time than small ones. Each SM multiplies one after the other, a large one a quarter faster
    /// for each query. Where all see all keys, the SMs with most tiles decide. Below a diagonal the longest tile does, as long as
    /// small ones have an SM each; a few more would share that of the longest; two for each balance better, and of many large
    /// ones are faster.
    fn in_large_tiles(&self, processors: usize) -> bool {
        let [sequences, heads, queries, _] = self.q.shape();
        let tiles = |rows: usize| sequences * heads * queries.div_ceil(rows);
        if self.form == 0 {
            let rounds = |rows: usize| tiles(rows).div_ceil(processors) as f64;
            return rounds(LARGE) <= SMALL_TIME * rounds(SMALL);
        }
        let for_each = tiles(LARGE) as f64 / processors as f64;
        queries >= LONG && tiles(SMALL) > processors && !(ALONE..=BALANCED).contains(&for_each)
    }
}

/// Bytes that stay in the cache of a large GPU while others pass through it.
const CACHED: usize = 16 << 20;
/// Programs that read the same keys often enough when they run at once.
const AT_ONCE: usize = 4;

/// The element types of attention, each with its tiles.
pub trait Attend: Float {
    /// Launches the kernel with the smallest tile that holds a row.
    #[doc(hidden)]
    fn attend(
        on: impl LaunchOn,
        of: Inputs<'_, Self>,
        out: ViewMut<'_, Self, 4>,
        lse: ViewMut<'_, f32, 3>,
    ) -> Result<()>;
}

/// Where a tile is used.
#[derive(Clone, Copy)]
enum Where {
    Everywhere,
    /// On GPUs whose warps multiply in groups, where [`Inputs::in_large_tiles`] is so.
    Large,
    /// On GPUs whose blocks have too little shared memory for two steps of 128 keys and values of 128 elements.
    Little,
}

/// Queries of the tiles of rows of 64 elements.
const LARGE: usize = 192;
const SMALL: usize = 128;
/// The time of a small tile that has an SM for itself, of that of a large one.
const SMALL_TIME: f64 = 0.84;
/// The queries from which on larger tiles are worth the larger blocks that the diagonal cuts.
const LONG: usize = 3072;
/// Large tiles for each SM up to which small ones balance better below a diagonal, and up to which the longest tile decides.
const BALANCED: f64 = 2.2;
const ALONE: f64 = 1.1;

/// Shared memory for two steps of 128 keys and values of 128 elements, and the queries.
const RING: usize = 163 * 1024;

/// The form, the elements of a row, and the tiles for them, queries of a program and keys of a step: the first that is used
/// where this is launched.
macro_rules! attend {
    ($T:ty: $([$FORM:literal, $D:literal: $([$M:literal, $N:literal] $place:expr),*])*) => {
        impl Attend for $T {
            fn attend(
                on: impl LaunchOn,
                of: Inputs<'_, $T>,
                out: ViewMut<'_, $T, 4>,
                lse: ViewMut<'_, f32, 3>,
            ) -> Result<()> {
                let Inputs { q, k, v, bias, slopes, form, group, scale, softcap, window, p, seed } = of;
                let ([left, right], [sequences, heads, queries, elements]) = (window, q.shape());
                let heads = sequences * heads;
                let together = of.together(on.processors());
                let serves = |most: usize, place: Where| {
                    elements <= most
                        && match place {
                            Everywhere => true,
                            Large => on.has_clusters() && of.in_large_tiles(on.processors()),
                            Little => on.shared_bytes().is_some_and(|bytes| bytes < RING),
                        }
                };
                match form {
                    $($($FORM if serves($D, $place) => attention::<$T, $FORM, $D, $M, $N>(
                        q, k, v, bias, slopes, out, lse, group, scale, left, right, softcap, p, seed,
                    ).grid((together, queries.div_ceil($M), heads / together)).launch(on),)*)*
                    _ => Err(Checks("attention").error(format!("there is no tile for {elements} elements"))),
                }
            }
        }
    };
}

macro_rules! tiles {
    ($($T:ty)*) => {$(attend! { $T:
        [0, 64: [192, 128] Large, [128, 128] Everywhere] [0, 128: [128, 64] Little, [128, 128] Everywhere]
        [0, 192: [128, 96] Everywhere] [0, 256: [128, 64] Everywhere]
        [1, 64: [192, 128] Large, [128, 128] Everywhere] [1, 128: [128, 64] Little, [128, 128] Everywhere]
        [1, 192: [128, 96] Everywhere] [1, 256: [128, 64] Everywhere]
        [2, 64: [128, 128] Everywhere] [2, 128: [128, 64] Little, [128, 128] Everywhere]
        [2, 192: [128, 96] Everywhere] [2, 256: [128, 64] Everywhere]
        [3, 64: [128, 128] Everywhere] [3, 128: [128, 64] Little, [128, 128] Everywhere]
        [3, 192: [128, 64] Everywhere] [3, 256: [128, 48] Everywhere]
        [4, 128: [128, 64] Everywhere] [4, 256: [128, 32] Everywhere]
    })*};
}

tiles!(f16 bf16);

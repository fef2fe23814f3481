//! Attention of a few queries over many keys, as a model's next tokens take it: programs share the keys, and a second
//! kernel joins what each made of its part.
//!
//! **Shapes, sight, scores.** Those of [`crate::attention`], without bias and dropout; any number of queries is right,
//! up to about 64 for each key head make sense. The query heads that read one key head are rows of one tile, if one
//! stride leads from each to the next: where there is one query for each head, or one head for each key head, or all
//! queries of a head lie side by side. Elsewhere each query has its own programs, which find the keys in the cache.
//!
//! **Work.** It is bound by memory: keys and values that are seen are read once,
//! `2 * key_heads * keys * D * size_of::<T>()` bytes. There are as many parts as keep all processors busy for about as
//! long; each leaves `D + 2` numbers for a query of a head in working memory.
//!
//! **Rounding.** As in [`crate::attention`], with `keys + 32` for `keys + 16`: parts are kept in `f32`, with the
//! maximum and the sum that they were made with.
//!
//! **Source.** Dao, Haziza, Massa, Sizov, *Flash-Decoding for long-context inference*, 2023.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::attention::{Attention, Extents, for_powers};
use crate::attention_reference::{Rules, rounded_often};
use crate::reference::Expected;
use crate::shape::Checks;

/// The most parts of the keys.
const MAX_SPLITS: usize = 128;
/// Parts are multiples of so many keys.
const STEP: usize = 64;
/// What begins and ends a program takes as long as so many steps.
const AROUND: usize = 4;
/// Rows of a program where groups of warps multiply.
const WIDE: usize = 64;
/// And elsewhere.
const NARROW: usize = 16;

/// A program handles `M` rows of what reads a key head, and `span` keys from `from` on, `N` at a time: the grid counts
/// parts of the keys, key heads times second axes of `q`, tiles of rows. Row `r` is of query `second + r % period`,
/// whose place is `center` behind it, and of head `r / period` of those that read the key head; with `CHANGES` there
/// may be a `softcap`, which is else 0, and slopes of `[key_heads, group]`, which have else no elements. Leaves rows,
/// and for each its maximum and its sum.
#[fuse_kernel(
    T = [f16, bf16], num_warps = 4,
    configs = [
        { CHANGES: false, D: 64, M: 64, N: 64, maxnreg: 128 }, { CHANGES: false, D: 128, M: 64, N: 64 },
        { CHANGES: false, D: 256, M: 64, N: 64 },
        { CHANGES: true, D: 128, M: 64, N: 64 }, { CHANGES: true, D: 256, M: 64, N: 32 },
        { CHANGES: true, D: 128, M: 16, N: 128 }, { CHANGES: true, D: 256, M: 16, N: 64 },
    ],
)]
pub fn attention_split<T: Float, const CHANGES: bool, const D: usize, const M: usize, const N: usize>(
    q: &View<T, 4>,
    k: &View<T, 3>,
    v: &View<T, 3>,
    slopes: &View<f32, 2>,
    parts: &mut View<f32, 5>,
    sums: &mut View<f32, 5>,
    from: i32,
    span: i32,
    center: i32,
    period: i32,
    scale: f32,
    softcap: f32,
    left: i32,
    right: i32,
) {
    let keys = k.shape(1).to::<i32>();
    let split = tl::program_id(0);
    let head = tl::program_id(1) / q.shape(1).to::<i32>();
    let second = tl::program_id(1) % q.shape(1).to::<i32>();
    let row = tl::program_id(2) * M;
    let begin = from + split * span;
    let end = tl::minimum(keys, begin + span);
    let rows = row + tl::arange(0, M);
    let places = center + second + rows % period;
    let is_sloped = if CHANGES { slopes.shape(1) > 0 } else { false };
    let slope = if CHANGES {
        let first = row / period;
        let own = tl::reshape(slopes.load::<1, M>(head, first), [M]);
        tl::gather(own, rows / period - first, 0) * 1.442695
    } else {
        tl::zeros::<f32>([M])
    };
    let q = tl::reshape(q.load::<1, 1, M, D>(head, second, row, 0), [M, D]);
    let mut sum = tl::zeros::<f32>([M, D]);
    let mut largest = tl::full([M], f32::NEG_INFINITY);
    let mut total = tl::zeros::<f32>([M]);
    for start in (begin..end).step_by(N) {
        let k = tl::reshape(k.load::<1, N, D>(head, start, 0), [N, D]);
        let scores = tl::dot(q, tl::trans(k));
        let at = start + tl::arange(0, N);
        // Where scores are changed, one is what the exponential of 2 is taken of.
        let scores = if CHANGES {
            let scores = if softcap > 0.0 {
                softcap - 2.0 * softcap / (1.0 + tl::exp2(scores * (2.885390 * scale / softcap)))
            } else {
                scores * scale
            };
            if is_sloped { scores + slope.col() * (at.row() - places.col()).to::<f32>() } else { scores }
        } else {
            scores
        };
        let last = start + (N as i32 - 1);
        // The first and the last place are those of the first and the last query.
        let is_cut = last >= end || last > center + right || start < keys - 1 - left;
        let scores = if is_cut {
            let near = (at.row() <= (places + right).col()) & (at.row() >= (places - left).col());
            tl::select((at < end).row() & near, scores, f32::NEG_INFINITY)
        } else {
            scores
        };
        let high = if CHANGES { tl::max(scores, 1) } else { tl::max(scores, 1) * scale };
        let next = tl::maximum(largest, high);
        // A row that has seen no key yet has no maximum to be counted from.
        let origin = tl::select(next == f32::NEG_INFINITY, 0.0, next);
        let scores = if CHANGES { scores - origin.col() } else { tl::fma(scores, scale, -origin.col()) };
        let weights = tl::exp2(scores);
        let before = tl::exp2(largest - origin);
        total = total * before + tl::sum(weights, 1);
        largest = next;
        let v = tl::reshape(v.load::<1, N, D>(head, start, 0), [N, D]);
        sum = tl::dot(weights.to::<T>(), v, sum * before.col());
    }
    let some = tl::select(largest == f32::NEG_INFINITY, 1.0, total);
    parts.store(tl::reshape(sum * (1.0 / some).col(), [1, 1, 1, M, D]), split, head, second, row, 0);
    sums.store(tl::reshape(largest, [1, 1, 1, M, 1]), split, head, second, row, 0);
    sums.store(tl::reshape(total, [1, 1, 1, M, 1]), split, head, second, row, 1);
}

/// Joins the parts of a query of a head: the grid counts queries, and heads. `D` is no less than a row's elements.
#[fuse_kernel(T = [f16, bf16], D = [256], S = [128])]
pub fn join_parts<T: Float, const D: usize, const S: usize>(
    parts: &View<f32, 4>,
    sums: &View<f32, 4>,
    out: &mut View<T, 3>,
    lse: &mut View<f32, 3>,
) {
    let (query, head) = (tl::program_id(0), tl::program_id(1));
    let splits = sums.shape(0).to::<i32>();
    let all = tl::reshape(sums.load::<S, 1, 1, 1>(0, head, query, 0), [S]);
    let largest = tl::max(tl::select(tl::arange(0, S) < splits, all, f32::NEG_INFINITY), 0);
    let origin = tl::select(largest == f32::NEG_INFINITY, 0.0, largest);
    let mut sum = tl::zeros::<f32>([D]);
    let mut total = 0.0;
    for first in (0..splits).step_by(16) {
        let own = tl::reshape(sums.load::<16, 1, 1, 1>(first, head, query, 0), [16]);
        // Beyond the last part there are zeros.
        let weights =
            tl::reshape(sums.load::<16, 1, 1, 1>(first, head, query, 1), [16]) * tl::exp2(own - origin);
        let weights = tl::select(first + tl::arange(0, 16) < splits, weights, 0.0);
        let rows = tl::reshape(parts.load::<16, 1, 1, D>(first, head, query, 0), [16, D]);
        sum += tl::sum(rows * weights.col(), 0);
        total += tl::sum(weights, 0);
    }
    let some = tl::select(largest == f32::NEG_INFINITY, 1.0, total);
    out.store(tl::reshape((sum * (1.0 / some)).to::<T>(), [1, 1, D]), head, query, 0);
    lse.store(tl::full([1, 1, 1], (largest + tl::log2(some)) * 0.6931472), head, query, 0);
}

/// How the keys are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shares {
    /// The first key that a query sees.
    from: usize,
    /// Keys of a part.
    span: usize,
    parts: usize,
}

impl Shares {
    /// Of the keys from `from` on, in so many parts or fewer.
    fn new([from, keys]: [usize; 2], splits: usize) -> Shares {
        let steps = (keys - from).div_ceil(STEP).max(1);
        let own = steps.div_ceil(splits.clamp(1, MAX_SPLITS));
        Shares { from, span: own * STEP, parts: steps.div_ceil(own) }
    }
}

/// The parts that end soonest, where so many programs take the same keys and so many programs run at once.
fn quickest(keys: usize, programs: usize, at_once: usize) -> usize {
    let steps = keys.div_ceil(STEP).max(1);
    let turns = |splits: usize| (programs * splits).div_ceil(at_once) * (steps.div_ceil(splits) + AROUND);
    (1..=steps.min(MAX_SPLITS)).min_by_key(|&splits| turns(splits)).unwrap_or(1)
}

/// A part's rows are this far apart in working memory.
fn pitch(elements: usize) -> usize {
    elements.next_multiple_of(4)
}

impl<'a, T: Float> Attention<'a, T> {
    /// In how many parts programs share the keys: as many, or fewer where there are not 64 keys for each; 128 are the
    /// most. Without it the device's processors decide, and with them the order of sums.
    pub fn splits(self, splits: usize) -> Self {
        Attention { splits: Some(splits), ..self }
    }

    /// The length of the working memory that [`Attention::launch_split`] takes on this device or stream.
    pub fn workspace_len(&self, on: impl LaunchOn) -> usize {
        let [heads, queries, elements] = self.q.shape();
        self.shares(on).parts * heads * queries * (pitch(elements) + 2)
    }

    /// What [`Attention::launch`] computes, for a few queries and many keys: programs share the keys of a head, with
    /// working memory of [`Attention::workspace_len`] numbers.
    ///
    /// # Errors
    /// Those of [`Attention::launch`]; if the working memory has another length; if there is a bias or dropout.
    pub fn launch_split<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, T, 3>>,
        lse: impl Into<SliceMut<'o, f32>>,
        workspace: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()>
    where
        T: AttendSplit,
    {
        let (out, mut lse, mut workspace) = (out.into(), lse.into(), workspace.into());
        let checks = Checks("attention");
        let Extents { heads, key_heads, queries, keys, elements } = self.check(out.shape(), lse.len())?;
        if self.bias.is_some() || self.drops() {
            return Err(checks.error("shared keys have neither bias nor dropout, expected `launch`".into()));
        }
        checks.same(("workspace", workspace.len()), ("what it should be", self.workspace_len(on)))?;
        if heads * queries == 0 {
            return Ok(());
        }
        let (group, Shares { from, span, parts }) = (heads / key_heads, self.shares(on));
        let (rows, pitch) = (parts * heads * queries, pitch(elements));
        let (mut rows, mut sums) = workspace.split_at_mut(rows * pitch);
        // One stride for all that reads a key head, or one for its heads.
        let packed = self.q.reshape([key_heads, 1, group * queries, elements]);
        let is_packed = packed.is_ok();
        let q = packed
            .or_else(|_| Ok(self.q.reshape([key_heads, group, queries, elements])?.permute([0, 2, 1, 3])))?;
        let strides = |pitch: usize| {
            let (all, own) = (heads * queries * pitch, group * queries * pitch);
            if is_packed { [all, own, own, pitch, 1] } else { [all, own, pitch, queries * pitch, 1] }
        };
        let [_, second, inner, _] = q.shape();
        let [left, right] = self.sides();
        let slopes = match self.slopes {
            Some(slopes) => slopes.view([key_heads, group])?,
            None => View::new(&[][..], [0, 0])?,
        };
        let of = Inputs {
            q,
            k: self.k,
            v: self.v,
            slopes,
            from: from as i32,
            span: span as i32,
            center: keys as i32 - queries as i32,
            period: if is_packed { queries as i32 } else { 1 },
            changes: self.changes_scores() || tile_rows(on) < WIDE,
            scale: for_powers(self.scale),
            softcap: self.softcap.unwrap_or(0.0) * std::f32::consts::LOG2_E,
            window: [left, right],
            parts,
        };
        let shape = |elements| [parts, key_heads, second, inner, elements];
        let made = Parts {
            rows: rows.view_strided_mut(shape(elements), strides(pitch))?,
            sums: sums.view_strided_mut(shape(2), strides(2))?,
        };
        T::split(on, of, made)?;
        let all = rows.slice(..).view_strided(
            [parts, heads, queries, elements],
            [heads * queries * pitch, queries * pitch, pitch, 1],
        )?;
        let sums = sums.slice(..).view([parts, heads, queries, 2])?;
        T::join(on, [all, sums], out, lse.view_mut([heads, queries, 1])?)
    }

    fn shares(&self, on: impl LaunchOn) -> Shares {
        let ([heads, queries, elements], [key_heads, keys, _]) = (self.q.shape(), self.k.shape());
        let group = heads.checked_div(key_heads).unwrap_or(0);
        let packed = self.q.reshape([key_heads, 1, group * queries, elements]).is_ok();
        let (tiles, rows) = if packed { (1, group * queries) } else { (queries, group) };
        let programs = key_heads * tiles * rows.div_ceil(tile_rows(on));
        let sight = keys.saturating_sub(queries);
        let from = self.window[0].map_or(0, |left| sight.saturating_sub(left));
        // The registers of a multiprocessor are enough for two programs with short rows.
        let side_by_side = if elements <= 64 && !self.changes_scores() { 2 } else { 1 };
        let at_once = on.processors() * side_by_side;
        let splits = self.splits.unwrap_or_else(|| quickest(keys - from, programs, at_once));
        Shares::new([from, keys], splits)
    }
}

/// The rows of a program.
fn tile_rows(on: impl LaunchOn) -> usize {
    if on.has_clusters() { WIDE } else { NARROW }
}

/// What the first kernel takes, once it is known to fit together.
#[derive(Clone, Copy)]
pub struct Inputs<'a, T: Float> {
    q: View<'a, T, 4>,
    k: View<'a, T, 3>,
    v: View<'a, T, 3>,
    slopes: View<'a, f32, 2>,
    from: i32,
    span: i32,
    center: i32,
    period: i32,
    changes: bool,
    scale: f32,
    softcap: f32,
    window: [i32; 2],
    parts: usize,
}

/// What it makes.
pub struct Parts<'o> {
    rows: ViewMut<'o, f32, 5>,
    sums: ViewMut<'o, f32, 5>,
}

/// The element types of attention with shared keys, each with its tiles.
pub trait AttendSplit: Float {
    /// Launches the first kernel with the smallest tile that holds a row.
    #[doc(hidden)]
    fn split(on: impl LaunchOn, of: Inputs<'_, Self>, made: Parts<'_>) -> Result<()>;

    /// Launches the second one.
    #[doc(hidden)]
    fn join(
        on: impl LaunchOn,
        made: [View<'_, f32, 4>; 2],
        out: ViewMut<'_, Self, 3>,
        lse: ViewMut<'_, f32, 3>,
    ) -> Result<()>;
}

/// Whether scores are changed, the elements of a row, rows of a program, keys of a step.
macro_rules! split {
    ($T:ty: $([$CHANGES:literal, $D:literal, $M:literal, $N:literal])*) => {
        impl AttendSplit for $T {
            fn split(on: impl LaunchOn, of: Inputs<'_, $T>, made: Parts<'_>) -> Result<()> {
                let Inputs { q, k, v, slopes, from, span, center, period, .. } = of;
                let Inputs { changes, scale, softcap, window, parts, .. } = of;
                let (Parts { rows, sums }, [left, right]) = (made, window);
                let [heads, second, inner, elements] = q.shape();
                match (changes, tile_rows(on)) {
                    $(($CHANGES, $M) if elements <= $D => attention_split::<$T, $CHANGES, $D, $M, $N>(
                        q, k, v, slopes, rows, sums, from, span, center, period, scale, softcap, left, right,
                    ).grid((parts, heads * second, inner.div_ceil($M))).launch(on),)*
                    _ => Err(Checks("attention").error(format!("there is no tile for {elements} elements"))),
                }
            }

            fn join(
                on: impl LaunchOn,
                [parts, sums]: [View<'_, f32, 4>; 2],
                out: ViewMut<'_, $T, 3>,
                lse: ViewMut<'_, f32, 3>,
            ) -> Result<()> {
                let [heads, queries, _] = out.shape();
                join_parts::<$T, 256, MAX_SPLITS>(parts, sums, out, lse).grid((queries, heads)).launch(on)
            }
        }
    };
}

macro_rules! tiles {
    ($($T:ty)*) => {$(split! { $T:
        [false, 64, 64, 64] [false, 128, 64, 64] [false, 256, 64, 64]
        [true, 128, 64, 64] [true, 256, 64, 32] [true, 128, 16, 128] [true, 256, 16, 64]
    })*};
}

tiles!(f16 bf16);

/// Roundings of a row beside those of its keys.
const ROUNDINGS: usize = 32;

/// What the kernels compute, in `f64`, and the bounds that the module's documentation explains: of the rows and of
/// `lse`.
pub fn reference<T: Float>(inputs: [&[T]; 3], extents: Extents, rules: Rules<'_, T>) -> [Vec<Expected>; 2] {
    rounded_often(inputs, extents, rules, ROUNDINGS)
}

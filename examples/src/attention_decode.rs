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
//! long; each leaves `D + 2` numbers for a query of a head in working memory. Programs take blocks of keys in turn, so
//! that those that run side by side read what lies side by side. Where one part has all keys, the first kernel writes
//! the results and there is no second one.
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
use crate::sequences::SequencesMut;
use crate::shape::Checks;

/// The most parts of the keys.
const MAX_SPLITS: usize = 128;
/// What begins and ends a program takes as long as so many steps.
const AROUND: usize = 4;
/// Rows of the tiles for few rows.
const NARROW: usize = 16;
/// Programs of few rows run on a processor side by side: its shared memory is enough for two.
const SIDE_BY_SIDE: usize = 2;

/// What a program takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tile {
    /// Whether scores may be changed.
    changes: bool,
    /// Rows of a program.
    rows: usize,
    /// The most elements of a row.
    elements: usize,
    /// Keys of a step.
    keys: usize,
}

/// A program handles `M` rows of what reads a key head, and every so many-th block of `N` keys from `from` on: the grid
/// counts parts of the keys, key heads times second axes of `q`, tiles of rows. Row `r` is of query
/// `second + r % period`, whose place is `center` behind it, and of head `r / period` of those that read the key head;
/// with `CHANGES` there may be a `softcap`, which is else 0, and slopes of `[key_heads, group]`, which have else no
/// elements. Writes the results if `out` has elements, with the axes of `q`; else leaves rows, and for each its maximum
/// and its sum. Copies of more stages would be under way together and only wait for each other (docs/performance.md).
#[fuse_kernel(
    T = [f16, bf16], num_warps = 4,
    configs = [
        { CHANGES: false, D: 64, M: 16, N: 128 }, { CHANGES: false, D: 128, M: 16, N: 64 },
        { CHANGES: true, D: 128, M: 16, N: 64 }, { CHANGES: true, D: 256, M: 16, N: 32 },
        { CHANGES: true, D: 128, M: 64, N: 64, num_stages: 2 },
        { CHANGES: true, D: 256, M: 64, N: 32, num_stages: 2 },
    ],
)]
pub fn attention_split<T: Float, const CHANGES: bool, const D: usize, const M: usize, const N: usize>(
    q: &View<T, 4>,
    k: &View<T, 3>,
    v: &View<T, 3>,
    slopes: &View<f32, 2>,
    out: &mut View<T, 4>,
    lse: &mut View<f32, 4>,
    parts: &mut View<f32, 5>,
    sums: &mut View<f32, 5>,
    from: i32,
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
    let begin = from + split * N;
    let stride = tl::num_programs(0) * N;
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
    for start in (begin..keys).step_by(stride) {
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
        let is_cut = last >= keys || last > center + right || start < keys - 1 - left;
        let scores = if is_cut {
            let near = (at.row() <= (places + right).col()) & (at.row() >= (places - left).col());
            tl::select((at < keys).row() & near, scores, f32::NEG_INFINITY)
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
    let mean = sum * (1.0 / some).col();
    if out.shape(0) > 0 {
        let logarithm = (largest + tl::log2(some)) * 0.6931472;
        out.store(tl::reshape(mean.to::<T>(), [1, 1, M, D]), head, second, row, 0);
        lse.store(tl::reshape(logarithm, [1, 1, M, 1]), head, second, row, 0);
    } else {
        parts.store(tl::reshape(mean, [1, 1, 1, M, D]), split, head, second, row, 0);
        sums.store(tl::reshape(largest, [1, 1, 1, M, 1]), split, head, second, row, 0);
        sums.store(tl::reshape(total, [1, 1, 1, M, 1]), split, head, second, row, 1);
    }
}

/// Joins at most `S` parts of a query of a head: the grid counts queries, heads, and `D` elements of the row each.
#[fuse_kernel(T = [f16, bf16], num_warps = 4, configs = [{ D: 64, S: 32 }, { D: 32, S: 128 }])]
pub fn join_parts<T: Float, const D: usize, const S: usize>(
    parts: &View<f32, 4>,
    sums: &View<f32, 4>,
    out: &mut View<T, 3>,
    lse: &mut View<f32, 3>,
) {
    let (query, head) = (tl::program_id(0), tl::program_id(1));
    let first = tl::program_id(2) * D;
    let splits = sums.shape(0).to::<i32>();
    let rows = tl::reshape(parts.load::<S, 1, 1, D>(0, head, query, first), [S, D]);
    let largest = tl::reshape(sums.load::<S, 1, 1, 1>(0, head, query, 0), [S]);
    let totals = tl::reshape(sums.load::<S, 1, 1, 1>(0, head, query, 1), [S]);
    // Beyond the last part there are zeros.
    let largest = tl::select(tl::arange(0, S) < splits, largest, f32::NEG_INFINITY);
    let most = tl::max(largest, 0);
    let origin = tl::select(most == f32::NEG_INFINITY, 0.0, most);
    let weights = totals * tl::exp2(largest - origin);
    let total = tl::sum(weights, 0);
    let some = tl::select(most == f32::NEG_INFINITY, 1.0, total);
    let sum = tl::sum(rows * weights.col(), 0) * (1.0 / some);
    out.store(tl::reshape(sum.to::<T>(), [1, 1, D]), head, query, first);
    if first == 0 {
        lse.store(tl::full([1, 1, 1], (most + tl::log2(some)) * 0.6931472), head, query, 0);
    }
}

/// How the keys are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shares {
    /// The first key that a query sees.
    from: usize,
    parts: usize,
    order: Order,
    tile: Tile,
}

/// The parts that end soonest, where so many programs take the same steps and so many programs run at once.
fn quickest(steps: usize, programs: usize, at_once: usize) -> usize {
    let turns = |splits: usize| (programs * splits).div_ceil(at_once) * (steps.div_ceil(splits) + AROUND);
    (1..=steps.min(MAX_SPLITS)).min_by_key(|&splits| turns(splits)).unwrap_or(1)
}

/// The heads of all sequences along one axis.
///
/// # Errors
/// If sequences do not follow each other as their heads do.
fn of_all_sequences<'v, T: Element>((name, of): (&str, View<'v, T, 4>)) -> Result<View<'v, T, 3>> {
    let [sequences, heads, rows, elements] = of.shape();
    of.reshape([sequences * heads, rows, elements]).map_err(|_| {
        let reason = format!("the sequences of {name} are not as far apart as its heads times their number");
        Checks("attention").error(reason)
    })
}

/// A part's rows are this far apart in working memory.
fn pitch(elements: usize) -> usize {
    elements.next_multiple_of(4)
}

/// The rows that read a key head: all in one tile, of one stride, or those of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Packed,
    ByQueries,
}

impl Order {
    /// Packed if the view is.
    fn of<U: Element>(view: View<'_, U, 3>, key_heads: usize) -> Order {
        let shape = Order::Packed.shape(view.shape(), key_heads);
        if view.reshape(shape).is_ok() { Order::Packed } else { Order::ByQueries }
    }

    fn shape(self, [heads, queries, elements]: [usize; 3], key_heads: usize) -> [usize; 4] {
        let group = heads.checked_div(key_heads).unwrap_or(0);
        match self {
            Order::Packed => [key_heads, 1, group * queries, elements],
            Order::ByQueries => [key_heads, group, queries, elements],
        }
    }

    /// The axes of that shape as a program takes them: key heads, second ones, rows, elements.
    fn axes(self) -> [usize; 4] {
        if self == Order::Packed { [0, 1, 2, 3] } else { [0, 2, 1, 3] }
    }

    fn view<'v, U: Element>(self, view: View<'v, U, 3>, key_heads: usize) -> Result<View<'v, U, 4>> {
        Ok(view.reshape(self.shape(view.shape(), key_heads))?.permute(self.axes()))
    }

    fn view_mut<'v, U: Element>(
        self,
        view: ViewMut<'v, U, 3>,
        key_heads: usize,
    ) -> Result<ViewMut<'v, U, 4>> {
        let shape = self.shape(view.shape(), key_heads);
        Ok(view.reshape(shape)?.permute(self.axes()))
    }
}

impl<'a, T: Float> Attention<'a, T> {
    /// In how many parts programs share the keys: as many, or fewer where there are fewer blocks of 32 to 128 keys; 128
    /// are the most. Without it the device's processors decide, and with them the order of sums.
    pub fn splits(self, splits: usize) -> Self {
        Attention { splits: Some(splits), ..self }
    }

    /// The length of the working memory that [`Attention::launch_split`] takes on this device or stream.
    pub fn workspace_len(&self, on: impl LaunchOn) -> usize {
        let [sequences, heads, queries, elements] = self.q.shape();
        self.shares(on).parts * sequences * heads * queries * (pitch(elements) + 2)
    }

    /// What [`Attention::launch`] computes, for a few queries and many keys: programs share the keys of a head, with
    /// working memory of [`Attention::workspace_len`] numbers.
    ///
    /// # Errors
    /// Those of [`Attention::launch`]; if the working memory has another length; if there is a bias or dropout; if the sequences of a view
    /// do not follow each other as their heads do.
    pub fn launch_split<'o>(
        &self,
        on: impl LaunchOn,
        out: impl SequencesMut<'o, T>,
        lse: impl Into<SliceMut<'o, f32>>,
        workspace: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()>
    where
        T: AttendSplit,
    {
        let (out, mut lse, mut workspace) = (out.sequences(), lse.into(), workspace.into());
        let checks = Checks("attention");
        let Extents { heads, key_heads, queries, keys, elements } = self.check(out.shape(), lse.len())?;
        if self.bias.is_some() || self.drops() {
            return Err(checks.error("shared keys have neither bias nor dropout, expected `launch`".into()));
        }
        checks.same(("workspace", workspace.len()), ("what it should be", self.workspace_len(on)))?;
        if heads * queries == 0 {
            return Ok(());
        }
        let [q, k, v] = [("q", self.q), ("k", self.k), ("v", self.v)].map(of_all_sequences);
        let (q, k, v) = (q?, k?, v?);
        let mut out = out.reshape([heads, queries, elements])?;
        let (group, Shares { from, parts, order, tile }) = (heads / key_heads, self.shares(on));
        let pitch = pitch(elements);
        let (mut rows, mut sums) = workspace.split_at_mut(parts * heads * queries * pitch);
        let strides = |pitch: usize| {
            let (all, own) = (heads * queries * pitch, group * queries * pitch);
            if order == Order::Packed {
                [all, own, own, pitch, 1]
            } else {
                [all, own, pitch, queries * pitch, 1]
            }
        };
        let [left, right] = self.sides();
        let slopes = match self.slopes {
            Some(slopes) => slopes.view([key_heads, group])?,
            None => View::new(&[][..], [0, 0])?,
        };
        let of = Inputs {
            q: order.view(q, key_heads)?,
            k,
            v,
            slopes,
            from: from as i32,
            center: keys as i32 - queries as i32,
            period: if order == Order::Packed { queries as i32 } else { 1 },
            scale: for_powers(self.scale),
            softcap: self.softcap.unwrap_or(0.0) * std::f32::consts::LOG2_E,
            window: [left, right],
            parts,
            tile,
        };
        // One part has the results, if they have the strides that the tile asks for.
        let is_whole = parts == 1 && order.view(out.as_view(), key_heads).is_ok();
        let written = if is_whole { heads } else { 0 };
        let [_, second, inner, _] = of.q.shape();
        let shape = |elements| [parts, key_heads, second, inner, elements];
        let made = Made {
            out: order.view_mut(out.slice_mut(0, ..written), written.min(key_heads))?,
            lse: order.view_mut(lse.view_mut([written, queries, 1])?, written.min(key_heads))?,
            rows: rows.view_strided_mut(shape(pitch), strides(pitch))?,
            sums: sums.view_strided_mut(shape(2), strides(2))?,
        };
        T::split(on, of, made)?;
        if is_whole {
            return Ok(());
        }
        let all = rows.slice(..).view_strided(
            [parts, heads, queries, elements],
            [heads * queries * pitch, queries * pitch, pitch, 1],
        )?;
        let sums = sums.slice(..).view([parts, heads, queries, 2])?;
        T::join(on, [all, sums], out, lse.view_mut([heads, queries, 1])?)
    }

    fn shares(&self, on: impl LaunchOn) -> Shares {
        let ([sequences, heads, queries, _], [_, key_heads, keys, _]) = (self.q.shape(), self.k.shape());
        let (heads, key_heads) = (sequences * heads, sequences * key_heads);
        let group = heads.checked_div(key_heads).unwrap_or(0);
        let order = of_all_sequences(("q", self.q)).map_or(Order::ByQueries, |q| Order::of(q, key_heads));
        let (tiles, rows) = if order == Order::Packed { (1, group * queries) } else { (queries, group) };
        let tile = self.tile(rows, on);
        let programs = key_heads * tiles * rows.div_ceil(tile.rows);
        let sight = keys.saturating_sub(queries);
        let from = self.window[0].map_or(0, |left| sight.saturating_sub(left));
        let steps = (keys - from).div_ceil(tile.keys).max(1);
        let at_once = on.processors() * if tile.rows == NARROW { SIDE_BY_SIDE } else { 1 };
        let splits = self.splits.unwrap_or_else(|| quickest(steps, programs, at_once));
        Shares { from, parts: splits.clamp(1, MAX_SPLITS.min(steps)), order, tile }
    }

    /// The smallest that holds a row, for so many rows that read a key head. Groups of warps multiply many, and are
    /// quicker where scores are changed.
    fn tile(&self, rows: usize, on: impl LaunchOn) -> Tile {
        let ([.., elements], changes) = (self.q.shape(), self.changes_scores());
        let suits = |tile: &&Tile| match (tile.rows > NARROW, on.has_clusters()) {
            (true, has_groups) => has_groups,
            (false, true) => rows <= NARROW && !tile.changes,
            (false, false) => true,
        };
        let holds = |tile: &&Tile| tile.elements >= elements && (tile.changes || !changes);
        *TILES.iter().filter(suits).find(holds).unwrap_or(&TILES[0])
    }
}

/// What the first kernel takes, once it is known to fit together.
#[derive(Clone, Copy)]
pub struct Inputs<'a, T: Float> {
    q: View<'a, T, 4>,
    k: View<'a, T, 3>,
    v: View<'a, T, 3>,
    slopes: View<'a, f32, 2>,
    from: i32,
    center: i32,
    period: i32,
    scale: f32,
    softcap: f32,
    window: [i32; 2],
    parts: usize,
    tile: Tile,
}

/// What it makes: the results, without elements where there are several parts, or rows and sums.
pub struct Made<'o, T: Float> {
    out: ViewMut<'o, T, 4>,
    lse: ViewMut<'o, f32, 4>,
    rows: ViewMut<'o, f32, 5>,
    sums: ViewMut<'o, f32, 5>,
}

/// The element types of attention with shared keys, each with its tiles.
pub trait AttendSplit: Float {
    /// Launches the first kernel.
    #[doc(hidden)]
    fn split(on: impl LaunchOn, of: Inputs<'_, Self>, made: Made<'_, Self>) -> Result<()>;

    /// Launches the second one.
    #[doc(hidden)]
    fn join(
        on: impl LaunchOn,
        made: [View<'_, f32, 4>; 2],
        out: ViewMut<'_, Self, 3>,
        lse: ViewMut<'_, f32, 3>,
    ) -> Result<()>;
}

/// Whether scores are changed, rows of a program, the elements of a row, keys of a step; for joined parts, elements of
/// a program and the most parts.
macro_rules! tiles {
    ($T:ty: $([$CHANGES:literal, $M:literal, $D:literal, $N:literal])*, joined $([$E:literal, $S:literal])*) => {
        impl AttendSplit for $T {
            fn split(on: impl LaunchOn, of: Inputs<'_, $T>, made: Made<'_, $T>) -> Result<()> {
                let Inputs { q, k, v, slopes, from, center, period, scale, softcap, .. } = of;
                let Inputs { window: [left, right], parts, tile, .. } = of;
                let Made { out, lse, rows, sums } = made;
                let [heads, second, inner, elements] = q.shape();
                match tile {
                    $(Tile { changes: $CHANGES, rows: $M, elements: $D, keys: $N } => {
                        attention_split::<$T, $CHANGES, $D, $M, $N>(
                            q, k, v, slopes, out, lse, rows, sums, from, center, period, scale, softcap, left, right,
                        ).grid((parts, heads * second, inner.div_ceil($M))).launch(on)
                    })*
                    _ => Err(Checks("attention").error(format!("there is no tile for {elements} elements"))),
                }
            }

            fn join(
                on: impl LaunchOn,
                [parts, sums]: [View<'_, f32, 4>; 2],
                out: ViewMut<'_, $T, 3>,
                lse: ViewMut<'_, f32, 3>,
            ) -> Result<()> {
                let ([splits, ..], [heads, queries, elements]) = (parts.shape(), out.shape());
                match splits {
                    $(..=$S => join_parts::<$T, $E, $S>(parts, sums, out, lse)
                        .grid((queries, heads, elements.div_ceil($E))).launch(on),)*
                    _ => Err(Checks("attention").error(format!("there is no tile for {splits} parts"))),
                }
            }
        }
    };
    ($($changes:literal $rows:literal $elements:literal $keys:literal;)*) => {
        /// The smaller ones first.
        const TILES: &[Tile] =
            &[$(Tile { changes: $changes, rows: $rows, elements: $elements, keys: $keys }),*];
        tiles! { f16: $([$changes, $rows, $elements, $keys])*, joined [64, 32] [32, 128] }
        tiles! { bf16: $([$changes, $rows, $elements, $keys])*, joined [64, 32] [32, 128] }
    };
}

tiles! {
    false 16 64 128;
    false 16 128 64;
    true 16 128 64;
    true 16 256 32;
    true 64 128 64;
    true 64 256 32;
}

/// Roundings of a row beside those of its keys.
const ROUNDINGS: usize = 32;

/// What the kernels compute, in `f64`, and the bounds that the module's documentation explains: of the rows and of
/// `lse`.
pub fn reference<T: Float>(inputs: [&[T]; 3], extents: Extents, rules: Rules<'_, T>) -> [Vec<Expected>; 2] {
    rounded_often(inputs, extents, rules, ROUNDINGS)
}

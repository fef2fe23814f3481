//! Split-KV attention (flash decoding) of a few queries over many keys, as a model's next tokens take it: programs split the keys,
//! and a second kernel combines their partial results.
//!
//! **Shapes, masks, scores.** Those of [`crate::attention`], without bias and dropout; any number of queries is right,
//! up to about 64 for each key head make sense. The query heads that read one key head are rows of one tile, if they
//! have one stride: where there is one query for each head, or one head for each key head, or all queries of a head are
//! contiguous. Elsewhere each query has its own programs, which find the keys in the cache.
//!
//! **Work.** It is bound by memory: keys and values that are attended to are read once,
//! `2 * key_heads * keys * D * size_of::<T>()` bytes. There are as many splits as keep all SMs busy for about as
//! long; each writes `D + 2` floats for a query of a head to the workspace. Programs take blocks of keys round robin, so that
//! concurrent programs read contiguous memory. Where one split has all keys, the first kernel writes the results and there
//! is no second one.
//!
//! **Rounding.** As in [`crate::attention`], with `keys + 32` for `keys + 16`: partial results are in `f32`, each with
//! its maximum and sum.
//!
//! **Source.** Dao, Haziza, Massa, Sizov, *Flash-Decoding for long-context inference*, 2023.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::attention::{Attention, AttentionExtents, for_powers, lse_rows};
use crate::attention_reference::{Rules, reference_with_roundings};
use crate::float::HalfFloat;
use crate::reference::Expected;
use crate::sequences::SequencesMut;
use crate::shape::Checks;

/// The most splits of the keys.
const MAX_SPLITS: usize = 128;
/// Prologue and epilogue of a program take as long as so many iterations.
const FIXED_ITERATIONS: usize = 4;
/// Rows of the tiles for few rows.
const SMALL_M: usize = 16;
/// Blocks of few rows on an SM: its shared memory is enough for two.
const BLOCKS_PER_SM: usize = 2;

/// The tile of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SplitTile {
    /// Whether scores may be modified.
    score_mod: bool,
    /// Rows of a program.
    rows: usize,
    /// The most elements of a row.
    elements: usize,
    /// Keys of an iteration.
    keys: usize,
}

/// A program handles `M` query rows of a key head, and blocks of `N` keys from `first_key` on, strided by the splits. The grid
/// counts splits of the keys, key heads times the second axis of `q`, tiles of rows. Row `r` is of query
/// `query + r % period`, whose position is `first_position` behind it, and of head `r / period` of those that read the key head.
/// With `SCORE_MOD` there may be a `softcap`, which is else 0, and slopes of `[key_heads, group]`, which have else no
/// elements. Writes the results if `out` has elements, with the axes of `q`; else partial accumulators, and for each row its
/// maximum and its sum. Async copies of more stages would only wait for each other (docs/decisions/0068).
#[fuse_kernel(
    T = [f16, bf16], num_warps = 4,
    when = SplitTile { score_mod: SCORE_MOD, elements: D, rows: M, keys: N }
        .suits(device, q.shape()[2], q.shape()[3], softcap > 0.0 || slopes.shape()[0] > 0),
    configs = [
        { SCORE_MOD: false, D: 64, M: 16, N: 128 }, { SCORE_MOD: false, D: 128, M: 16, N: 64 },
        { SCORE_MOD: true, D: 128, M: 16, N: 64 }, { SCORE_MOD: true, D: 256, M: 16, N: 32 },
        { SCORE_MOD: true, D: 128, M: 64, N: 64, num_stages: 2 },
        { SCORE_MOD: true, D: 256, M: 64, N: 32, num_stages: 2 },
    ],
)]
pub fn attention_split<
    T: HalfFloat,
    const SCORE_MOD: bool,
    const D: usize,
    const M: usize,
    const N: usize,
>(
    q: &View<T, 4>,
    k: &View<T, 3>,
    v: &View<T, 3>,
    slopes: &View<f32, 2>,
    out: &mut View<T, 4>,
    lse: &mut View<f32, 4>,
    partial_acc: &mut View<f32, 5>,
    partial_ml: &mut View<f32, 5>,
    first_key: i32,
    first_position: i32,
    period: i32,
    scale: f32,
    softcap: f32,
    left: i32,
    right: i32,
) {
    use crate::online_softmax::{OnlineSoftmax, modified_scores};

    let (keys, split) = (k.shape::<i32>(1), tl::program_id(0));
    let head = tl::program_id(1) / q.shape::<i32>(1);
    let query = tl::program_id(1) % q.shape::<i32>(1);
    let first_row = tl::program_id(2) * M;
    let kv_begin = first_key + split * N;
    let stride = tl::num_programs(0) * N;
    let rows = first_row + tl::arange(0, M);
    let positions = first_position + query + rows % period;
    let is_sloped = if SCORE_MOD { slopes.shape(1) > 0 } else { false };
    let slope = if SCORE_MOD {
        let first_head = first_row / period;
        let head_slopes = slopes.at(head).load::<M>(first_head);
        tl::gather(head_slopes, rows / period - first_head, 0) * 1.442695
    } else {
        tl::zeros::<f32>([M])
    };
    let q = q.at(head).at(query).load::<M, D>(first_row, 0);
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut softmax = OnlineSoftmax::new::<M>();
    for start in (kv_begin..keys).step_by(stride) {
        let k = k.at(head).load::<N, D>(start, 0);
        let scores = tl::dot(q, tl::trans(k));
        let k_positions = start + tl::arange(0, N);
        // Modified scores are in the log2 domain already.
        let scores = if SCORE_MOD {
            modified_scores(scores, scale, softcap, is_sloped, slope.col(), k_positions, positions)
        } else {
            scores
        };
        let last_key = start + (N as i32 - 1);
        // The first and the last position are those of the first and the last query.
        let is_partial = last_key >= keys || last_key > first_position + right || start < keys - 1 - left;
        let scores = if is_partial {
            let is_in_window = (k_positions.row() <= (positions + right).col())
                & (k_positions.row() >= (positions - left).col());
            tl::select((k_positions < keys).row() & is_in_window, scores, f32::NEG_INFINITY)
        } else {
            scores
        };
        let score_scale = if SCORE_MOD { 1.0 } else { scale };
        let (p, alpha) = softmax.step(scores, score_scale);
        let v = v.at(head).load::<N, D>(start, 0);
        acc = tl::dot(p.to::<T>(), v, acc * alpha.col());
    }
    let (l_safe, lse_row) = softmax.sum_and_logarithm();
    let normalized = acc * (1.0 / l_safe).col();
    if out.shape(0) > 0 {
        out.at(head).at(query).store(normalized.to::<T>(), first_row, 0);
        lse.store(tl::reshape(lse_row, [1, 1, M, 1]), head, query, first_row, 0);
    } else {
        partial_acc.at(split).at(head).at(query).store(normalized, first_row, 0);
        partial_ml.store(tl::reshape(softmax.m_i, [1, 1, 1, M, 1]), split, head, query, first_row, 0);
        partial_ml.store(tl::reshape(softmax.l_i, [1, 1, 1, M, 1]), split, head, query, first_row, 1);
    }
}

/// Combines at most `S` splits of a query of a head: the grid counts queries, heads, and `D` elements of the row each.
#[fuse_kernel(
    T = [f16, bf16], num_warps = 4, configs = [{ D: 64, S: 32 }, { D: 32, S: 128 }],
    when = partial_ml.shape()[0] <= S,
)]
pub fn combine_splits<T: HalfFloat, const D: usize, const S: usize>(
    partial_acc: &View<f32, 4>,
    partial_ml: &View<f32, 4>,
    out: &mut View<T, 3>,
    lse: &mut View<f32, 3>,
) {
    let (query, head) = (tl::program_id(0), tl::program_id(1));
    let first_col = tl::program_id(2) * D;
    let splits = partial_ml.shape::<i32>(0);
    let accs = tl::reshape(partial_acc.load::<S, 1, 1, D>(0, head, query, first_col), [S, D]);
    let m = tl::reshape(partial_ml.load::<S, 1, 1, 1>(0, head, query, 0), [S]);
    let l = tl::reshape(partial_ml.load::<S, 1, 1, 1>(0, head, query, 1), [S]);
    // Beyond the last split loads give zeros.
    let m = tl::select(tl::arange(0, S) < splits, m, f32::NEG_INFINITY);
    let m_max = tl::max(m, 0);
    let m_safe = tl::select(m_max == f32::NEG_INFINITY, 0.0, m_max);
    let scaled_l = l * tl::exp2(m - m_safe);
    let l_sum = tl::sum(scaled_l, 0);
    let l_safe = tl::select(m_max == f32::NEG_INFINITY, 1.0, l_sum);
    let acc = tl::sum(accs * scaled_l.col(), 0) * (1.0 / l_safe);
    out.at(head).at(query).store(acc.to::<T>(), first_col);
    if first_col == 0 {
        lse.store(tl::full([1, 1, 1], (m_max + tl::log2(l_safe)) * f32::consts::LN_2), head, query, 0);
    }
}

/// How programs split the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SplitPlan {
    /// The first key that a query attends to.
    first_key: usize,
    splits: usize,
    packing: QueryPacking,
}

/// The number of splits that ends soonest, where so many programs have the same iterations and so many run at once.
fn fastest_splits(iterations: usize, programs: usize, concurrent: usize) -> usize {
    let total = |splits: usize| {
        (programs * splits).div_ceil(concurrent) * (iterations.div_ceil(splits) + FIXED_ITERATIONS)
    };
    (1..=iterations.min(MAX_SPLITS)).min_by_key(|&splits| total(splits)).unwrap_or(1)
}

/// The heads of all sequences along one axis.
///
/// # Errors
/// If sequences are not contiguous as their heads are.
fn flatten_sequences<'v, T: Element>((name, of): (&str, View<'v, T, 4>)) -> Result<View<'v, T, 3>> {
    let [sequences, heads, rows, elements] = of.shape();
    of.reshape([sequences * heads, rows, elements]).map_err(|_| {
        let reason = format!("the sequences of {name} are not as far apart as its heads times their number");
        Checks("attention").error(reason)
    })
}

/// The row stride of partial accumulators in the workspace.
fn pitch(elements: usize) -> usize {
    elements.next_multiple_of(4)
}

/// The query rows of a key head: all in one tile, of one stride, or those of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueryPacking {
    PackGqa,
    PerQuery,
}

impl QueryPacking {
    /// Packed if the view is.
    fn of<U: Element>(view: View<'_, U, 3>, key_heads: usize) -> QueryPacking {
        let shape = QueryPacking::PackGqa.shape(view.shape(), key_heads);
        if view.reshape(shape).is_ok() { QueryPacking::PackGqa } else { QueryPacking::PerQuery }
    }

    fn shape(self, [heads, queries, elements]: [usize; 3], key_heads: usize) -> [usize; 4] {
        let group = heads.checked_div(key_heads).unwrap_or(0);
        match self {
            QueryPacking::PackGqa => [key_heads, 1, group * queries, elements],
            QueryPacking::PerQuery => [key_heads, group, queries, elements],
        }
    }

    /// The axes of that shape as a program takes them: key heads, second ones, rows, elements.
    fn axes(self) -> [usize; 4] {
        if self == QueryPacking::PackGqa { [0, 1, 2, 3] } else { [0, 2, 1, 3] }
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

impl<'a, T: HalfFloat> Attention<'a, T> {
    /// The number of splits of the keys: as many, or fewer where there are fewer blocks of 32 to 128 keys; 128 are the most.
    /// Without it the device's SM count decides, and with it the order of sums.
    pub fn splits(self, splits: usize) -> Self {
        Attention { splits: Some(splits), ..self }
    }

    /// The length of the workspace that [`Attention::launch_split`] takes on this device or stream.
    pub fn workspace_len(&self, on: impl LaunchOn) -> usize {
        let [sequences, heads, queries, elements] = self.q.shape();
        self.split_plan(on).splits * sequences * heads * queries * (pitch(elements) + 2)
    }

    /// What [`Attention::launch`] computes, for a few queries and many keys: programs split the keys of a head, with
    /// a workspace of [`Attention::workspace_len`] floats.
    ///
    /// # Errors
    /// Those of [`Attention::launch`]; if the workspace has another length; if there is a bias or dropout; if the sequences of a view
    /// are not contiguous as their heads are.
    pub fn launch_split<'o>(
        &self,
        on: impl LaunchOn,
        out: impl SequencesMut<'o, T>,
        workspace: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        self.launch_split_optional_lse(on, out.sequences(), None, workspace.into())
    }

    /// The same, and the logarithms of the sums of exponentials into `lse`.
    ///
    /// # Errors
    /// Those of [`Attention::launch_split`] and [`Attention::launch_with_lse`].
    pub fn launch_split_with_lse<'o>(
        &self,
        on: impl LaunchOn,
        out: impl SequencesMut<'o, T>,
        lse: impl Into<SliceMut<'o, f32>>,
        workspace: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        self.launch_split_optional_lse(on, out.sequences(), Some(lse.into()), workspace.into())
    }

    fn launch_split_optional_lse(
        &self,
        on: impl LaunchOn,
        out: ViewMut<'_, T, 4>,
        mut lse: Option<SliceMut<'_, f32>>,
        mut workspace: SliceMut<'_, f32>,
    ) -> Result<()> {
        let checks = Checks("attention");
        let AttentionExtents { heads, key_heads, queries, keys, elements } =
            self.check(out.shape(), lse.as_ref().map(SliceMut::len))?;
        if self.bias.is_some() || self.has_dropout() {
            return Err(checks.error("shared keys have neither bias nor dropout, expected `launch`".into()));
        }
        checks.same(("workspace", workspace.len()), ("what it should be", self.workspace_len(on)))?;
        if heads * queries == 0 {
            return Ok(());
        }
        let [q, k, v] = [("q", self.q), ("k", self.k), ("v", self.v)].map(flatten_sequences);
        let (q, k, v) = (q?, k?, v?);
        let mut out = out.reshape([heads, queries, elements])?;
        let (group, SplitPlan { first_key, splits, packing }) = (heads / key_heads, self.split_plan(on));
        let pitch = pitch(elements);
        let (mut partial_acc, mut partial_ml) = workspace.split_at_mut(splits * heads * queries * pitch);
        let strides = |pitch: usize| {
            let (all, own) = (heads * queries * pitch, group * queries * pitch);
            if packing == QueryPacking::PackGqa {
                [all, own, own, pitch, 1]
            } else {
                [all, own, pitch, queries * pitch, 1]
            }
        };
        let [left, right] = self.window_keys();
        let slopes = match self.slopes {
            Some(slopes) => slopes.view([key_heads, group])?,
            None => View::new(&[][..], [0, 0])?,
        };
        let of = SplitInputs {
            q: packing.view(q, key_heads)?,
            k,
            v,
            slopes,
            first_key: first_key as i32,
            first_position: keys as i32 - queries as i32,
            period: if packing == QueryPacking::PackGqa { queries as i32 } else { 1 },
            scale: for_powers(self.scale),
            softcap: self.softcap.unwrap_or(0.0) * std::f32::consts::LOG2_E,
            window: [left, right],
            splits,
        };
        // One split writes the results, if they have the strides that the tile asks for.
        let is_single = splits == 1 && packing.view(out.as_view(), key_heads).is_ok();
        let written = if is_single { heads } else { 0 };
        let [_, outer, rows, _] = of.q.shape();
        let shape = |elements| [splits, key_heads, outer, rows, elements];
        let outputs = SplitOutputs {
            out: packing.view_mut(out.slice_mut(0, ..written), written.min(key_heads))?,
            lse: match &mut lse {
                Some(lse) => {
                    packing.view_mut(lse.view_mut([written, queries, 1])?, written.min(key_heads))?
                }
                None => ViewMut::default(),
            },
            partial_acc: partial_acc.view_strided_mut(shape(pitch), strides(pitch))?,
            partial_ml: partial_ml.view_strided_mut(shape(2), strides(2))?,
        };
        of.launch(on, outputs)?;
        if is_single {
            return Ok(());
        }
        let partial_acc = partial_acc.slice(..).view_strided(
            [splits, heads, queries, elements],
            [heads * queries * pitch, queries * pitch, pitch, 1],
        )?;
        let partial_ml = partial_ml.slice(..).view([splits, heads, queries, 2])?;
        let lse = lse_rows(&mut lse, [heads, queries])?;
        combine_splits(partial_acc, partial_ml, out, lse)
            .grid_by(|chosen| (queries, heads, elements.div_ceil(chosen.constant("D"))))
            .launch(on)
    }

    fn split_plan(&self, on: impl LaunchOn) -> SplitPlan {
        let ([sequences, heads, queries, _], [_, key_heads, keys, _]) = (self.q.shape(), self.k.shape());
        let (heads, key_heads) = (sequences * heads, sequences * key_heads);
        let group = heads.checked_div(key_heads).unwrap_or(0);
        let packing = flatten_sequences(("q", self.q))
            .map_or(QueryPacking::PerQuery, |q| QueryPacking::of(q, key_heads));
        let (tiles, rows) =
            if packing == QueryPacking::PackGqa { (1, group * queries) } else { (queries, group) };
        let tile = self.tile(rows, on);
        let programs = key_heads * tiles * rows.div_ceil(tile.rows);
        let first_position = keys.saturating_sub(queries);
        let first_key = self.window[0].map_or(0, |left| first_position.saturating_sub(left));
        let iterations = (keys - first_key).div_ceil(tile.keys).max(1);
        let concurrent = on.parallelism() * if tile.rows == SMALL_M { BLOCKS_PER_SM } else { 1 };
        let splits = self.splits.unwrap_or_else(|| fastest_splits(iterations, programs, concurrent));
        SplitPlan { first_key, splits: splits.clamp(1, MAX_SPLITS.min(iterations)), packing }
    }

    /// The tile of [`attention_split`] for so many query rows of a key head.
    fn tile(&self, rows: usize, on: impl LaunchOn) -> SplitTile {
        let ([.., elements], score_mod) = (self.q.shape(), self.has_score_mod());
        let mut declared =
            attention_split::KERNEL.variants.iter().map(|variant| SplitTile::of(variant.consts));
        let suiting = declared.find(|tile| tile.suits(on, rows, elements, score_mod));
        // A launch reports rows that no tile holds.
        suiting.unwrap_or_else(|| SplitTile::of(attention_split::KERNEL.variants[0].consts))
    }
}

impl SplitTile {
    /// From the constants of a variant of [`attention_split`].
    fn of(consts: &[i128]) -> SplitTile {
        let [score_mod, elements, rows, keys] = *consts else {
            unreachable!("the kernel has these constants")
        };
        let [elements, rows, keys] = [elements, rows, keys].map(|value| value as usize);
        SplitTile { score_mod: score_mod == 1, rows, elements, keys }
    }

    /// Whether it holds rows of so many elements, and so many query rows of a key head are fast with it. Warpgroups take many rows, and are faster
    /// where scores are modified. Of several declared tiles the first is the smallest.
    fn suits(&self, on: impl LaunchOn, rows: usize, elements: usize, score_mod: bool) -> bool {
        let is_fast = match (self.rows > SMALL_M, on.has_wgmma()) {
            (true, has_wgmma) => has_wgmma,
            (false, true) => rows <= SMALL_M && !self.score_mod,
            (false, false) => true,
        };
        is_fast && self.elements >= elements && (self.score_mod || !score_mod)
    }
}

/// What the first kernel takes, once it is known to fit together.
#[derive(Clone, Copy)]
struct SplitInputs<'a, T: HalfFloat> {
    q: View<'a, T, 4>,
    k: View<'a, T, 3>,
    v: View<'a, T, 3>,
    slopes: View<'a, f32, 2>,
    first_key: i32,
    first_position: i32,
    period: i32,
    scale: f32,
    softcap: f32,
    window: [i32; 2],
    splits: usize,
}

/// What it writes: the results, without elements where there are several splits, or partial results.
struct SplitOutputs<'o, T: HalfFloat> {
    out: ViewMut<'o, T, 4>,
    lse: ViewMut<'o, f32, 4>,
    partial_acc: ViewMut<'o, f32, 5>,
    partial_ml: ViewMut<'o, f32, 5>,
}

impl<T: HalfFloat> SplitInputs<'_, T> {
    /// Launches the first kernel.
    fn launch(self, on: impl LaunchOn, outputs: SplitOutputs<'_, T>) -> Result<()> {
        let SplitInputs { q, k, v, slopes, first_key, first_position, period, scale, softcap, .. } = self;
        let SplitInputs { window: [left, right], splits, .. } = self;
        let SplitOutputs { out, lse, partial_acc, partial_ml } = outputs;
        let [heads, outer, rows, _] = q.shape();
        attention_split::<T>(
            q,
            k,
            v,
            slopes,
            out,
            lse,
            partial_acc,
            partial_ml,
            first_key,
            first_position,
            period,
            scale,
            softcap,
            left,
            right,
        )
        .grid_by(|chosen| (splits, heads * outer, rows.div_ceil(chosen.constant("M"))))
        .launch(on)
    }
}

/// Roundings of a row besides those of its keys.
const ROUNDINGS: usize = 32;

/// What the kernels compute, in `f64`, and the bounds that the module's documentation explains: of the rows and of
/// `lse`.
pub fn reference<T: Float>(
    inputs: [&[T]; 3],
    extents: AttentionExtents,
    rules: Rules<'_, T>,
) -> [Vec<Expected>; 2] {
    reference_with_roundings(inputs, extents, rules, ROUNDINGS)
}

//! Attention of queries and keys that are not rotated in memory: rotary position embedding of both inside the scores.
//!
//! `out = softmax(scale * R(q) · R(k)ᵀ) · v` for each head, and the logarithm of each row's sum of exponentials, where `R` rotates
//! the pairs of a row by the angles of its position. A query tile is rotated once, and each key tile when it is loaded, before the
//! dot. Rotated keys are never in memory, so a cache may hold keys as they were projected.
//!
//! **Shapes.** `q` and `out` are views of `[heads, queries, D]`, `k` and `v` of `[key_heads, keys, D]`, with any strides; `D` is even,
//! up to 128, and all of it is rotated. `group = heads / key_heads` consecutive query heads read one key head. Key `j` has
//! position `j` and query `i` position `i + keys - queries`: sequences end together, and there are at most as many queries as keys.
//! Row `p` of the table `cos_sin` holds the `D / 2` cosines of position `p`, then as many sines, in the element type, as for
//! [`crate::packed_qkv`]; scores depend on distances alone, so a table that begins at a later position will do.
//!
//! **Forms.** [`Form::Separate`] rotates queries and keys into temporary memory, a launch each, and launches [`Attention`]. Keys are
//! rotated once there; in [`Form::Fused`] each program rotates what it reads, which makes `rotations = group * ceil(queries / 16)` of
//! each key. Of one query the heads of a group are rows of one tile, and `rotations = ceil(group / 16)`.
//!
//! **Traffic.** Both forms read `q`, `k`, `v` and write `out` once, `(2 * heads * queries + 2 * key_heads * keys) * D` elements. A fused
//! program also reads a row of the table for each key, `rotations * key_heads * keys * D` elements, which the cache has. The separate
//! form writes rotated keys and reads them again, `2 * key_heads * keys * D` elements of memory. So [`RotaryAttention::launch`] fuses
//! where `rotations` is at most 2 and there is a program for every fourth SM, or there are at most 1024 keys: a tile of few
//! queries reads keys more slowly than a tile of many, which shows where SMs idle and reading takes longer than launches. On
//! an H200, one query for each of 128 heads over 8192 keys of 128 elements takes 153 us fused and 276 us separately, 48 queries for
//! each of 64 heads over 4096 keys 148 us and 92 us. Separate rotation wins beyond that, as in any prefill. A cache of rotated keys
//! ([`crate::packed_qkv::PackedQkv::launch_cached`]) wins where many steps read the same keys. `FUSE_TRACE=1` says which form ran.
//!
//! **Rounding.** Rotated queries and keys are computed in `f32` and rounded to `T`, in both forms. A rotated element is within
//! `u * |x| + 3 * 2^-24 * (|a| + |b|)` of its value, with `u` half a unit of `T`; its error in a score adds to
//! `e` of [`crate::attention`], and the result is within `expm1(2 e) + (keys + 16) * 2^-23 + u` times the weighted mean of the values'
//! magnitudes.
//!
//! **Source.** Su and others, *RoFormer*, 2021, arXiv:2104.09864, equation 34; Dao and others, 2022, arXiv:2205.14135, section 3.1.

use std::ops::Range;

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, trace_choice};

use crate::attention::{Attention, AttentionExtents, fit, for_powers, lse_rows};
use crate::attention_reference::{ROUNDINGS, ScoredKey, softmax_row};
use crate::float::HalfFloat;
use crate::form::Form;
use crate::packed_qkv::HostQkv;
use crate::reference::{Expected, unit_roundoff};
use crate::rope::Heads;
use crate::sequences::SequencesMut;
use crate::shape::Checks;

const CHECKS: Checks = Checks("rotary_attention");

/// The longest row of a head.
pub const MAX_ELEMENTS: usize = 128;

/// The most pairs of a row.
const MAX_PAIRS: usize = MAX_ELEMENTS / 2;

/// How often keys may be rotated where that takes fewer bytes than to write rotated keys and to read them.
const MOST_ROTATIONS: usize = 2;

/// SMs for each program up to which the fused form is not slower.
const IDLE_SMS: usize = 4;

/// Keys up to which two launches take longer than idle SMs cost.
const SHORT_KEYS: usize = 1024;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::HalfFloat;
    use crate::mainloop::attention_mainloop;

    /// Queries of a program of [`rotary_attention()`], and its keys of an iteration.
    pub const QUERIES: usize = 16;
    pub const KEYS: usize = 64;

    /// Rows of a program of [`rotate_heads()`].
    pub const ROWS: usize = 64;

    /// The pairs `(a, b)` of rows from `row` on, of which axis 1 of `x` has both elements, rotated by the angles of the same rows of
    /// `cos_sin`, whose first axis has cosines and sines.
    #[fuse_fn]
    fn rotated<T: Float, const ROWS: usize, const HALF: usize>(
        x: &View<T, 4>,
        cos_sin: &View<T, 3>,
        head: i32,
        row: i32,
    ) -> (Tile<T>, Tile<T>) {
        let a = x.at(head).at(0).load::<ROWS, HALF>(row, 0).to::<f32>();
        let b = x.at(head).at(1).load::<ROWS, HALF>(row, 0).to::<f32>();
        let cos = cos_sin.at(0).load::<ROWS, HALF>(row, 0).to::<f32>();
        let sin = cos_sin.at(1).load::<ROWS, HALF>(row, 0).to::<f32>();
        ((a * cos - b * sin).to::<T>(), (b * cos + a * sin).to::<T>())
    }

    /// Attention of rows of `half` pairs: scores are the dot of first elements of pairs plus that of second ones. The grid counts
    /// tiles of queries and heads. Query `i` attends to the keys up to `i + right`. `scale`, above 0, is for powers of two.
    #[fuse_kernel(T = [f16, bf16], HALF = half in [32, 64], num_warps = 4)]
    pub fn rotary_attention<T: HalfFloat, const HALF: usize>(
        q: &View<T, 4>,
        k: &View<T, 4>,
        v: &View<T, 3>,
        query_angles: &View<T, 3>,
        key_angles: &View<T, 3>,
        out: &mut View<T, 3>,
        lse: &mut View<f32, 3>,
        group: i32,
        half: i32,
        scale: f32,
        right: i32,
    ) {
        let keys = k.shape::<i32>(2);
        let (row, head) = (tl::program_id(0) * QUERIES, tl::program_id(1));
        let key_head = head / group;
        // The last key that the first of these queries attends to, and the end of the keys of all of them.
        let causal_limit = row + right;
        let kv_end = tl::minimum(keys, causal_limit + QUERIES);
        let (query_a, query_b) = rotated::<T, QUERIES, HALF>(q, query_angles, head, row);
        let score = |start| {
            let (key_a, key_b) = rotated::<T, KEYS, HALF>(k, key_angles, key_head, start);
            let scores = tl::dot(query_b, tl::trans(key_b), tl::dot(query_a, tl::trans(key_a)));
            let last_key = start + (KEYS as i32 - 1);
            if last_key >= keys || last_key > causal_limit {
                let k_positions = start + tl::arange(0, KEYS);
                let is_visible = (k_positions < keys).row()
                    & (k_positions.row() <= causal_limit + tl::arange(0, QUERIES).col());
                tl::select(is_visible, scores, f32::NEG_INFINITY)
            } else {
                scores
            }
        };
        let weight = |p, _start| p;
        let v = v.at(key_head);
        let (acc, softmax) =
            attention_mainloop::<T, { 2 * HALF }, QUERIES, KEYS>(v, 0, kv_end, scale, score, weight);
        let (l_safe, lse_row) = softmax.sum_and_logarithm();
        out.at(head).store((acc * (1.0 / l_safe).col()).to::<T>(), row, 0);
        lse.store(tl::reshape(lse_row, [1, QUERIES, 1]), head, row, 0);
    }

    /// Rotates rows of heads of `[heads, 2, rows, half]`, `HALF` pairs at most. The grid counts tiles of rows and heads.
    #[fuse_kernel(T = [f16, bf16], HALF = [64])]
    pub fn rotate_heads<T: HalfFloat, const HALF: usize>(
        x: &View<T, 4>,
        cos_sin: &View<T, 3>,
        out: &mut View<T, 4>,
    ) {
        let (row, head) = (tl::program_id(0) * ROWS, tl::program_id(1));
        let (a, b) = rotated::<T, ROWS, HALF>(x, cos_sin, head, row);
        out.at(head).at(0).store(a, row, 0);
        out.at(head).at(1).store(b, row, 0);
    }
}

pub use kernels::{rotary_attention, rotate_heads};

use kernels::{QUERIES, ROWS};

/// Attention with rotary embedding in its scores: `RotaryAttention::new(q, k, v, &cos_sin).causal()`. `T` is `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct RotaryAttention<'a, T: HalfFloat> {
    q: View<'a, T, 3>,
    k: View<'a, T, 3>,
    v: View<'a, T, 3>,
    cos_sin: Slice<'a, T>,
    scale: f32,
    is_causal: bool,
    is_interleaved: bool,
}

impl<'a, T: HalfFloat> RotaryAttention<'a, T> {
    /// Queries, keys and values, and the table of angles; scores are scaled by `1 / sqrt(D)`, there is no mask, and pairs are
    /// halves of a row.
    pub fn new(
        q: impl Into<View<'a, T, 3>>,
        k: impl Into<View<'a, T, 3>>,
        v: impl Into<View<'a, T, 3>>,
        cos_sin: impl Into<Slice<'a, T>>,
    ) -> Self {
        let (q, k, v, cos_sin) = (q.into(), k.into(), v.into(), cos_sin.into());
        let scale = 1.0 / (q.shape()[2].max(1) as f32).sqrt();
        RotaryAttention { q, k, v, cos_sin, scale, is_causal: false, is_interleaved: false }
    }

    /// Another scale of the scores, above 0 and up to `1.7e38`.
    pub fn scale(self, scale: f32) -> Self {
        RotaryAttention { scale, ..self }
    }

    /// A query attends to the keys up to its position.
    pub fn causal(self) -> Self {
        RotaryAttention { is_causal: true, ..self }
    }

    /// Pairs are adjacent elements, `2 j` and `2 j + 1`. They are loaded one by one: halves are faster.
    pub fn interleaved(self) -> Self {
        RotaryAttention { is_interleaved: true, ..self }
    }

    /// The form that [`RotaryAttention::launch`] takes on a device or stream.
    pub fn form(&self, on: impl LaunchOn) -> Form {
        let ([heads, queries, _], [key_heads, keys, _]) = (self.q.shape(), self.k.shape());
        let group = heads.checked_div(key_heads).unwrap_or(0);
        // One query of several heads is a tile.
        let rotations =
            if queries == 1 { group.div_ceil(QUERIES) } else { group * queries.div_ceil(QUERIES) };
        let fills_sms = IDLE_SMS * rotations * key_heads >= on.parallelism();
        if rotations <= MOST_ROTATIONS && (fills_sms || keys <= SHORT_KEYS) {
            Form::Fused
        } else {
            Form::Separate
        }
    }

    /// Computes into `out`, on a device or stream, in the form that moves fewer bytes there.
    ///
    /// # Errors
    /// If shapes and lengths do not fit together, or heads of keys do not divide those of queries; if a row's length is odd or above
    /// 128; if there are more queries than keys; if the table has fewer rows than there are keys; if there is no temporary memory for
    /// the separate form; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<ViewMut<'o, T, 3>>) -> Result<()> {
        self.launch_as(on, out, None, self.traced_form(on))
    }

    /// Computes into `out` and `lse`, `[heads, queries]`, as [`RotaryAttention::launch`] does.
    ///
    /// # Errors
    /// Those of [`RotaryAttention::launch`]; if `lse` has another length than one element for each query of each head.
    pub fn launch_with_lse<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, T, 3>>,
        lse: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        self.launch_as(on, out, Some(lse.into()), self.traced_form(on))
    }

    fn traced_form(&self, on: impl LaunchOn) -> Form {
        let (form, [heads, queries, _]) = (self.form(on), self.q.shape());
        let [key_heads, keys, _] = self.k.shape();
        let shape = format_args!("{form:?}: {heads} heads of {queries} queries, {key_heads} of {keys} keys");
        trace_choice("rotary_attention", shape);
        form
    }

    /// The same in a form of the caller's, into `lse` too where it is there.
    ///
    /// # Errors
    /// Those of [`RotaryAttention::launch_with_lse`].
    pub fn launch_as<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, T, 3>>,
        mut lse: Option<SliceMut<'o, f32>>,
        form: Form,
    ) -> Result<()> {
        let out = out.into();
        let AttentionExtents { heads, key_heads, queries, keys, elements } =
            self.check(out.shape(), lse.as_ref().map(SliceMut::len))?;
        if heads * queries == 0 {
            return Ok(());
        }
        if form == Form::Separate {
            return self.launch_separate(on, out, lse);
        }
        let (group, key_angles) = (heads / key_heads, self.angles(0..keys)?);
        let half = (elements / 2) as i32;
        let (k, v, scale) = (self.as_pairs(self.k)?, self.v, for_powers(self.scale));
        if queries == 1 {
            // Heads that read the same keys are rows at one position.
            let q = self.as_pairs(self.q.reshape([key_heads, group, elements])?)?;
            let angles = self.angles(keys - 1..keys)?.broadcast([2, group, elements / 2])?;
            let out = out.reshape([key_heads, group, elements])?;
            let lse = lse_rows(&mut lse, [key_heads, group])?;
            return rotary_attention::<T>(q, k, v, angles, key_angles, out, lse, 1, half, scale, keys as i32)
                .grid((group.div_ceil(QUERIES), key_heads))
                .launch(on);
        }
        let (q, angles) = (self.as_pairs(self.q)?, self.angles(keys - queries..keys)?);
        let (group, lse) = (group as i32, lse_rows(&mut lse, [heads, queries])?);
        let right = if self.is_causal { keys - queries } else { keys } as i32;
        rotary_attention::<T>(q, k, v, angles, key_angles, out, lse, group, half, scale, right)
            .grid((queries.div_ceil(QUERIES), heads))
            .launch(on)
    }

    /// Rotates queries and keys into temporary memory, and launches [`Attention`].
    fn launch_separate(
        &self,
        on: impl LaunchOn,
        out: ViewMut<'_, T, 3>,
        lse: Option<SliceMut<'_, f32>>,
    ) -> Result<()> {
        let ([_, queries, _], [_, keys, _]) = (self.q.shape(), self.k.shape());
        let mut q = on.temporary::<T>(self.q.shape().iter().product())?;
        let mut k = on.temporary::<T>(self.k.shape().iter().product())?;
        self.rotate(on, self.q, q.slice_mut(), keys - queries)?;
        self.rotate(on, self.k, k.slice_mut(), 0)?;
        let (q, k) = (q.slice(), k.slice());
        let attention =
            Attention::new(q.view(self.q.shape())?, k.view(self.k.shape())?, self.v).scale(self.scale);
        let attention = if self.is_causal { attention.causal() } else { attention };
        attention.launch_optional_lse(on, out.sequences(), lse)
    }

    /// Rotates rows, of which the first has a position, into contiguous heads.
    fn rotate(
        &self,
        on: impl LaunchOn,
        x: View<'_, T, 3>,
        mut out: SliceMut<'_, T>,
        first: usize,
    ) -> Result<()> {
        let [heads, rows, elements] = x.shape();
        let out = out.view_mut([heads, rows, 2, elements / 2])?.permute([0, 2, 1, 3]);
        let (x, angles) = (self.as_pairs(x)?, self.angles(first..first + rows)?);
        rotate_heads::<T, MAX_PAIRS>(x, angles, out).grid((rows.div_ceil(ROWS), heads)).launch(on)
    }

    /// `[heads, 2, rows, half]`: the first elements of pairs, and the second ones.
    fn as_pairs<'v>(&self, x: View<'v, T, 3>) -> Result<View<'v, T, 4>> {
        let [heads, rows, elements] = x.shape();
        if self.is_interleaved {
            return Ok(x.reshape([heads, rows, elements / 2, 2])?.permute([0, 3, 1, 2]));
        }
        Ok(x.reshape([heads, rows, 2, elements / 2])?.permute([0, 2, 1, 3]))
    }

    /// `[2, rows, half]`: cosines, and sines, of so many positions.
    fn angles(&self, positions: Range<usize>) -> Result<View<'a, T, 3>> {
        let half = self.q.shape()[2] / 2;
        let rows = self.cos_sin.view([positions.end, 2, half])?.slice(0, positions);
        Ok(rows.permute([1, 0, 2]))
    }

    fn check(&self, out: [usize; 3], lse: Option<usize>) -> Result<AttentionExtents> {
        let ([heads, queries, elements], [key_heads, keys, _]) = (self.q.shape(), self.k.shape());
        let extents = AttentionExtents { heads, key_heads, queries, keys, elements };
        if elements == 0 || elements > MAX_ELEMENTS || !elements.is_multiple_of(2) {
            let reason =
                format!("rows have {elements} elements, expected an even number up to {MAX_ELEMENTS}");
            return Err(CHECKS.error(reason));
        }
        fit(CHECKS, extents, [self.k.shape(), self.v.shape(), out])?;
        CHECKS.same(("lse", lse.unwrap_or(heads * queries)), ("heads * queries", heads * queries))?;
        if queries > keys {
            let reason =
                format!("there are {queries} queries and {keys} keys: the first query has no position");
            return Err(CHECKS.error(reason));
        }
        let positions = CHECKS.rows(("cos_sin", self.cos_sin.len()), elements)?;
        if positions < keys {
            return Err(CHECKS.error(format!("cos_sin has {positions} positions and there are {keys} keys")));
        }
        if !(self.scale > 0.0 && self.scale <= MAX_SCALE) {
            return Err(CHECKS.error(format!("scale is {}, expected above 0 to {MAX_SCALE:e}", self.scale)));
        }
        Ok(extents)
    }
}

/// The largest scale of scores.
const MAX_SCALE: f32 = 1.7e38;

/// How the references rotate and mask.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a, T: Float> {
    /// For each position `D / 2` cosines, then as many sines.
    pub cos_sin: &'a [T],
    /// Which elements are pairs.
    pub interleaved: bool,
    /// The scale of scores.
    pub scale: f32,
    /// Whether a query attends to the keys up to its position alone.
    pub causal: bool,
}

impl<T: Float> Rotation<'_, T> {
    /// Rows of elements, of which the first of each head has a position, rotated and rounded to `T`.
    fn rotated(&self, rows: &[T], of_head: usize, elements: usize, first: usize) -> Vec<Vec<Expected>> {
        let of = HostQkv {
            positions: &[],
            cos_sin: self.cos_sin,
            rotary_dim: elements,
            interleaved: self.interleaved,
            heads: Heads { queries: 0, keys: 0 },
            dim: elements,
            norm: None,
        };
        let rotated = rows.chunks(elements).enumerate().map(|(i, row)| {
            let exact: Vec<Expected> =
                row.iter().map(|x| Expected { value: x.to_f64(), within: 0.0 }).collect();
            let position = (first + i % of_head) as i32;
            of.rotated(position, &exact).into_iter().map(|x| x.rounded(T::DTYPE)).collect()
        });
        rotated.collect()
    }

    /// The scaled dot of a query and a key.
    fn score(&self, query: &[Expected], key: &[Expected]) -> Expected {
        let (scale, single) = (f64::from(self.scale), 2.0 * unit_roundoff(DType::F32));
        let (mut value, mut magnitude, mut within) = (0.0, 0.0, 0.0);
        for (q, k) in query.iter().zip(key) {
            value += q.value * k.value;
            magnitude += (q.value * k.value).abs();
            within += q.within * (k.value.abs() + k.within) + q.value.abs() * k.within;
        }
        let arithmetic = (query.len() + 4) as f64 * single * (magnitude + within);
        Expected { value: scale * value, within: scale * (within + arithmetic) }
    }
}

/// The rows of the result, and their `lse`, of contiguous `[q, k, v]`, in `f64`, and the bounds that the
/// module's documentation states.
pub fn reference<T: Float>(
    [q, k, v]: [&[T]; 3],
    extents: AttentionExtents,
    rotation: Rotation<'_, T>,
) -> [Vec<Expected>; 2] {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let values: Vec<Vec<f64>> =
        v.chunks(elements).map(|row| row.iter().map(|x| x.to_f64()).collect()).collect();
    let rotated_keys = rotation.rotated(k, keys, elements, 0);
    let rotated_queries = rotation.rotated(q, queries, elements, keys - queries);
    let (mut rows, mut lses) = (vec![], vec![]);
    for (i, query) in rotated_queries.iter().enumerate() {
        let (first_key, position) = (i / queries * key_heads / heads * keys, keys - queries + i % queries);
        let visible = if rotation.causal { position + 1 } else { keys };
        let scored_keys = (first_key..first_key + visible).map(|key| {
            let Expected { value, within } = rotation.score(query, &rotated_keys[key]);
            // Errors of scores, where they are not small, as errors of probabilities.
            let score = Expected { value, within: (2.0 * within).exp_m1() / 2.0 };
            ScoredKey { score, dropout_scale: 1.0, values: &values[key] }
        });
        let (row, lse) = softmax_row(&scored_keys.collect::<Vec<_>>(), elements, ROUNDINGS, T::DTYPE);
        rows.extend(row);
        lses.push(lse);
    }
    [rows, lses]
}

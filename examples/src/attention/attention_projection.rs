//! `out = attention(q, k, v) · Wo + bias + residual`: the concatenated heads of each token, and the linear layer behind them.
//!
//! **Shapes.** `q` is a view of `[sequences, heads, queries, D]`, `k` and `v` of `[sequences, key_heads, keys, D]`, with any strides, as
//! a packed matrix of tokens has them too; heads are grouped as in [`crate::attention`]. `Wo` is `[heads * D, n]`, `bias` has `n` elements,
//! `residual` and `out` are `[sequences * queries, n]`. `D` is 1 to 256. Causal sequences end together; a fully masked query has
//! `bias + residual` as its row.
//!
//! **Forms.** In [`Form::Fused`] a program takes a block of queries of a sequence and a tile of columns, head after head: it runs the online
//! softmax over blocks of keys, and then the dot of the head's normalized rows and the head's rows of `Wo` into an accumulator of the result.
//! Heads are added in order by one program: no atomics, the same result to the bit, run after run. As measured (docs/decisions/0169) it
//! pays where
//! - a row of the result is one tile of columns: each further tile's program computes attention again;
//! - there are up to [`MAX_KEYS`] keys: with more, attention is most of the work, and the separate form does it in larger blocks, with
//!   the registers of the projection's accumulator here;
//! - programs occupy half of the SMs: there is none for each head.
//!
//! [`AttentionProjection::launch`] takes it then, on GPUs with wgmma, where rows of `Wo` and of heads are contiguous
//! and begin at multiples of 16 bytes. [`Form::Separate`] is an [`Attention`] into temporary memory and a [`Matmul`] with bias
//! and residual. `FUSE_TRACE=1` says which.
//!
//! **Traffic.** `q`, `k`, `v`, `Wo`, the residual and `out` once; the separate form writes and reads `heads * D` elements for each token
//! besides.
//!
//! **Rounding.** That of [`crate::attention`], with its result rounded to `T` in both forms, then of [`crate::matmul`]; rounded to `T` once
//! more.
//!
//! **Source.** Vaswani and others, 2017, arXiv:1706.03762, section 3.2.2; the online softmax in blocks is Dao and others', 2022,
//! arXiv:2205.14135.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, trace_choice};

use crate::attention::{Attention, AttentionExtents, for_powers};
use crate::attention_reference::{self, Rules};
use crate::float::HalfFloat;
use crate::form::{Cost, Form};
use crate::matmul::{Matmul, TileShape};
use crate::matmul_operands::are_lines_aligned;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

const CHECKS: Checks = Checks("attention_projection");

/// A program computes `M` rows of a sequence and `N` columns of the result, from `K` keys an iteration of one head after the other. The grid's
/// first axis counts tiles of queries of one sequence after the other, its second one tiles of columns. `group` consecutive heads
/// read one key head. Query `i` attends to the keys up to `i + keys - queries + right`; `scale`, above 0, is for powers of two. Absent
/// arguments have no elements: `bias` and `residual`.
#[fuse_kernel(
    T = [f16, bf16],
    configs = [
        { D: 64, M: 64, N: 128, K: 64 },
        { D: 64, M: 128, N: 128, K: 128 },
        { D: 128, M: 64, N: 128, K: 64 },
        { D: 128, M: 128, N: 128, K: 64 },
    ],
    when = tile == TileShape::new(M, N) && q.shape()[3] <= D,
)]
pub fn attention_projection<T: HalfFloat, const D: usize, const M: usize, const N: usize, const K: usize>(
    q: &View<T, 4>,
    k: &View<T, 4>,
    v: &View<T, 4>,
    weight: &View<T, 3>,
    bias: &View<T, 2>,
    residual: &View<T, 3>,
    out: &mut View<T, 3>,
    group: i32,
    right: i32,
    scale: f32,
    #[host] tile: TileShape,
) {
    use crate::online_softmax::OnlineSoftmax;

    let (heads, queries, keys) = (q.shape::<i32>(1), q.shape::<i32>(2), k.shape::<i32>(2));
    let q_tiles = tl::cdiv(queries, M);
    // Longest processing time first: the programs of a sequence with the most keys begin.
    let (sequence, tile) = (tl::program_id(0) / q_tiles, q_tiles - 1 - tl::program_id(0) % q_tiles);
    let (row, col) = (tile * M, tl::program_id(1) * N);
    // The last key that the first of these queries attends to, and the end of the keys of all of them.
    let causal_limit = row + (keys - queries) + right;
    let kv_end = tl::minimum(keys, causal_limit + M);
    let mut acc = tl::zeros::<f32>([M, N]);
    let mut attn_acc = tl::zeros::<f32>([M, D]);
    let mut softmax = OnlineSoftmax::new::<M>();
    // One loop over the blocks of keys of all heads: loads are prefetched across heads. A head has a last block even where its
    // queries are fully masked.
    let blocks = tl::maximum(tl::cdiv(kv_end, K), 1);
    for iteration in 0..heads * blocks {
        let (head, block) = (iteration / blocks, iteration % blocks);
        let start = block * K;
        let q = q.at(sequence).at(head).load::<M, D>(row, 0);
        let k = k.at(sequence).at(head / group).load::<K, D>(start, 0);
        let scores = tl::dot(q, tl::trans(k));
        let last_key = start + (K as i32 - 1);
        let scores = if last_key >= keys || last_key > causal_limit {
            let k_positions = start + tl::arange(0, K);
            let is_visible =
                (k_positions < keys).row() & (k_positions.row() <= causal_limit + tl::arange(0, M).col());
            tl::select(is_visible, scores, f32::NEG_INFINITY)
        } else {
            scores
        };
        // The first block of a head resets the softmax: `alpha` is then 0.
        softmax.m_i = tl::select(block == 0, f32::NEG_INFINITY, softmax.m_i);
        let (p, alpha) = softmax.step(scores, scale);
        let v = v.at(sequence).at(head / group).load::<K, D>(start, 0);
        attn_acc = tl::dot(p.to::<T>(), v, attn_acc * alpha.col());
        acc = if block == blocks - 1 {
            let (l_safe, _) = softmax.sum_and_logarithm();
            let attended = (attn_acc * (1.0 / l_safe).col()).to::<T>();
            let weight = weight.at(head).load::<D, N>(0, col);
            tl::dot(attended, weight, acc)
        } else {
            acc
        };
    }
    let y = acc + bias.load::<1, N>(0, col).to::<f32>();
    let y =
        if residual.shape(1) > 0 { y + residual.at(sequence).load::<M, N>(row, col).to::<f32>() } else { y };
    out.at(sequence).store(y.to::<T>(), row, col);
}

/// Attention and the linear layer behind it: `AttentionProjection::new([q, k, v], weight).causal().residual(x)`. `T` is `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct AttentionProjection<'a, T: HalfFloat> {
    q: View<'a, T, 4>,
    k: View<'a, T, 4>,
    v: View<'a, T, 4>,
    weight: View<'a, T, 2>,
    bias: Option<Slice<'a, T>>,
    residual: Option<View<'a, T, 2>>,
    scale: f32,
    causal: bool,
}

impl<'a, T: HalfFloat> AttentionProjection<'a, T> {
    /// Queries, keys and values, and the weights `[heads * D, n]` with any strides; scores are scaled by `1 / sqrt(D)`, without a
    /// mask.
    pub fn new([q, k, v]: [View<'a, T, 4>; 3], weight: View<'a, T, 2>) -> Self {
        let scale = 1.0 / (q.shape()[3].max(1) as f32).sqrt();
        AttentionProjection { q, k, v, weight, bias: None, residual: None, scale, causal: false }
    }

    /// Another scale of the scores, from 0 to `1.7e38`.
    pub fn scale(self, scale: f32) -> Self {
        AttentionProjection { scale, ..self }
    }

    /// A query attends to the keys up to its position; sequences end together.
    pub fn causal(self) -> Self {
        AttentionProjection { causal: true, ..self }
    }

    /// Adds a bias to each column.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        AttentionProjection { bias: Some(bias.into()), ..self }
    }

    /// Adds a matrix like the result.
    pub fn residual(self, residual: View<'a, T, 2>) -> Self {
        AttentionProjection { residual: Some(residual), ..self }
    }

    /// Computes into `out`, a row of `n` elements for each query of each sequence, on a device or stream, in the form that is faster
    /// there.
    ///
    /// # Errors
    /// If shapes and lengths do not fit together; those of [`Attention::launch`]; if there is no memory for the result of attention; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: ViewMut<'o, T, 2>) -> Result<()> {
        let ([sequences, heads, queries, _], n) = (self.q.shape(), self.weight.shape()[1]);
        let form = self.form(on);
        trace_choice(
            "attention_projection",
            format_args!("{form:?}: {sequences} sequences of {queries} queries, {heads} heads, {n} columns"),
        );
        self.launch_as(on, out, form)
    }

    /// The same in a form of the caller's.
    ///
    /// # Errors
    /// Those of [`AttentionProjection::launch`]; [`Form::Fused`] of rows of heads longer than 128.
    pub fn launch_as<'o>(&self, on: impl LaunchOn, out: ViewMut<'o, T, 2>, form: Form) -> Result<()> {
        self.check(out.shape())?;
        let ([sequences, heads, queries, elements], n) = (self.q.shape(), self.weight.shape()[1]);
        let rows = sequences * queries;
        if rows * n == 0 {
            return Ok(());
        }
        if form == Form::Fused {
            let nothing = self.weight.slice(0, ..0).slice(1, ..0);
            let operands = ProjectionOperands {
                q: self.q,
                k: self.k,
                v: self.v,
                weight: self.weight.reshape([heads, elements, n])?,
                bias: self.bias.map_or(Ok(nothing), |bias| bias.view([1, n]))?,
                residual: self
                    .residual
                    .map_or(Ok(nothing.batch()), |residual| residual.reshape([sequences, queries, n]))?,
                scale: for_powers(self.scale),
                causal: self.causal,
            };
            return operands.launch(on, out.reshape([sequences, queries, n])?);
        }
        let mut attended = on.temporary::<T>(rows * heads * elements)?;
        let mut memory = attended.slice_mut();
        let of_heads = memory.view_mut([sequences, queries, heads, elements])?.permute([0, 2, 1, 3]);
        self.attention().launch(on, of_heads)?;
        let linear = Matmul::new(attended.slice().view([rows, heads * elements])?, self.weight);
        let linear = self.bias.map_or(linear, |bias| linear.bias(bias));
        self.residual.map_or(linear, |residual| linear.residual(residual)).launch(on, out)
    }

    fn attention(&self) -> Attention<'a, T> {
        let attention = Attention::new(self.q, self.k, self.v).scale(self.scale);
        if self.causal { attention.causal() } else { attention }
    }

    fn check(&self, out: [usize; 2]) -> Result<()> {
        let ([sequences, heads, queries, elements], [terms, n]) = (self.q.shape(), self.weight.shape());
        let [_, key_heads, keys, _] = self.k.shape();
        let of_keys = [sequences, key_heads, keys, elements];
        CHECKS.extents("k", self.k.shape(), of_keys)?;
        CHECKS.extents("v", self.v.shape(), of_keys)?;
        CHECKS.extents("weight", [terms, n], [heads * elements, n])?;
        CHECKS.extents("out", out, [sequences * queries, n])?;
        if let Some(bias) = &self.bias {
            CHECKS.extents("bias", [bias.len()], [n])?;
        }
        if let Some(residual) = &self.residual {
            CHECKS.extents("residual", residual.shape(), [sequences * queries, n])?;
        }
        self.attention().check(self.q.shape(), None).map(|_| ())
    }

    fn form(&self, on: impl LaunchOn) -> Form {
        let ([sequences, heads, queries, elements], [terms, n]) = (self.q.shape(), self.weight.shape());
        let in_vectors = |stride: &usize| (stride * size_of::<T>()).is_multiple_of(16);
        let is_read_fast =
            |of: &View<'a, T, 4>| of.strides()[3] == 1 && of.strides()[..3].iter().all(in_vectors);
        let fast = [&self.q, &self.k, &self.v].into_iter().all(is_read_fast)
            && are_lines_aligned::<T>(terms, self.weight.strides())
            && in_vectors(&n);
        let of = ProjectionProblem { sequences, heads, queries, keys: self.k.shape()[2], elements, n };
        if fast && of.pays(on) { Form::Fused } else { Form::Separate }
    }

    /// Launches and bytes of [`AttentionProjection::launch`], and operation by operation.
    pub fn cost(&self, on: impl LaunchOn) -> [Cost; 2] {
        let ([sequences, heads, queries, elements], n) = (self.q.shape(), self.weight.shape()[1]);
        let [_, key_heads, keys, _] = self.k.shape();
        let (rows, size) = (sequences * queries, size_of::<T>());
        let attended = rows * heads * elements;
        let read = attended + 2 * sequences * key_heads * keys * elements;
        let added = if self.residual.is_some() { rows * n } else { 0 };
        let weight = heads * elements * n;
        let attention = Cost::of(size, read + attended);
        let linear = |added: usize| Cost::of(size, attended + weight + rows * n + added);
        let ours = match self.form(on) {
            Form::Fused => Cost::of(size, read + weight + rows * n + added),
            Form::Separate => attention + linear(added),
        };
        let addition = if added > 0 { Cost::of(size, 3 * added) } else { Cost::default() };
        [ours, attention + linear(0) + addition]
    }
}

/// What the choice of a form depends on.
#[derive(Clone, Copy)]
struct ProjectionProblem {
    sequences: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    elements: usize,
    n: usize,
}

/// The most keys for which the fused form is taken.
pub const MAX_KEYS: usize = 256;

/// The longest row of a head in the fused form.
const MAX_ELEMENTS: usize = 128;

/// Tiles of the result: of few queries, and of more.
const SMALL: TileShape = TileShape { rows: 64, cols: 128 };
const LARGE: TileShape = TileShape { rows: 128, cols: 128 };

impl ProjectionProblem {
    fn programs(&self, tile: TileShape) -> usize {
        tile.count([self.sequences, self.queries, self.n])
    }

    fn tile(&self, on: impl LaunchOn) -> TileShape {
        if self.programs(LARGE) >= on.parallelism() { LARGE } else { SMALL }
    }

    fn pays(&self, on: impl LaunchOn) -> bool {
        let tile = self.tile(on);
        let occupies = 2 * self.programs(tile) >= on.parallelism();
        let is_possible = self.heads > 0 && self.elements <= MAX_ELEMENTS;
        on.has_wgmma() && is_possible && self.n <= tile.cols && self.keys <= MAX_KEYS && occupies
    }
}

/// The checked operands of the fused form.
#[derive(Clone, Copy)]
struct ProjectionOperands<'a, T: HalfFloat> {
    q: View<'a, T, 4>,
    k: View<'a, T, 4>,
    v: View<'a, T, 4>,
    weight: View<'a, T, 3>,
    bias: View<'a, T, 2>,
    residual: View<'a, T, 3>,
    scale: f32,
    causal: bool,
}

impl<T: HalfFloat> ProjectionOperands<'_, T> {
    /// Launches [`attention_projection()`].
    fn launch(self, on: impl LaunchOn, out: ViewMut<'_, T, 3>) -> Result<()> {
        let ProjectionOperands { q, k, v, weight, bias, residual, scale, causal } = self;
        let ([sequences, heads, queries, elements], [_, key_heads, keys, _]) = (q.shape(), k.shape());
        let problem = ProjectionProblem { sequences, heads, queries, keys, elements, n: out.shape()[2] };
        let group = (heads / key_heads.max(1)).max(1) as i32;
        let right = if causal { 0 } else { (queries + keys) as i32 };
        if elements > MAX_ELEMENTS {
            return Err(CHECKS.error(format!(
                "rows of heads have {elements} elements, the most of the fused form is {MAX_ELEMENTS}"
            )));
        }
        if heads.saturating_mul(keys.max(1)) > i32::MAX as usize {
            let reason = format!("{heads} heads of {keys} keys are more than {} rows", i32::MAX);
            return Err(CHECKS.error(reason));
        }
        let tile = problem.tile(on);
        let grid = (sequences * queries.div_ceil(tile.rows), problem.n.div_ceil(tile.cols));
        attention_projection(q, k, v, weight, bias, residual, out, group, right, scale, tile)
            .grid(grid)
            .launch(on)
    }
}

/// The linear layer on the host.
#[derive(Clone, Copy, Debug)]
pub struct HostProjection<'a, T> {
    /// `[heads * D, n]`, row by row.
    pub weight: &'a [T],
    /// `n` elements.
    pub bias: &'a [T],
    /// `[sequences * queries, n]`
    pub residual: Option<&'a [T]>,
}

/// What either form computes of `[q, k, v]`, with contiguous rows and `extents` those of each sequence, in `f64`, and the bound that
/// follows from its operations'.
pub fn reference<T: Float>(
    inputs: [&[T]; 3],
    extents: AttentionExtents,
    rules: Rules<'_, T>,
    layer: HostProjection<'_, T>,
) -> Vec<Expected> {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let (n, unit) = (layer.bias.len(), 2.0 * unit_roundoff(DType::F32));
    let lengths = [heads * queries, key_heads * keys, key_heads * keys].map(|rows| rows * elements);
    let sequences = inputs[0].len().checked_div(lengths[0]).unwrap_or(0);
    let mut expected = Vec::with_capacity(sequences * queries * n);
    for sequence in 0..sequences {
        let mut operands = inputs.into_iter().zip(lengths);
        let own = [(); 3].map(|()| {
            let (of, length) = operands.next().unwrap_or_default();
            &of[sequence * length..(sequence + 1) * length]
        });
        let [attended, _] = attention_reference::reference(own, extents, rules);
        for (query, col) in (0..queries).flat_map(|query| (0..n).map(move |col| (query, col))) {
            let (mut sum, mut magnitude, mut within) = (0.0, 0.0, 0.0);
            for (term, weight) in layer.weight.iter().skip(col).step_by(n).enumerate() {
                let (head, element) = (term / elements, term % elements);
                let of = attended[(head * queries + query) * elements + element];
                let weight = weight.to_f64();
                sum += of.value * weight;
                magnitude += ((of.value.abs() + of.within) * weight).abs();
                within += of.within * weight.abs();
            }
            let added = layer.residual.map_or(0.0, |x| x[(sequence * queries + query) * n + col].to_f64());
            let value = sum + layer.bias[col].to_f64() + added;
            let arithmetic =
                (heads * elements + 3) as f64 * unit * magnitude + unit * (value.abs() + added.abs());
            expected.push(Expected { value, within: within + arithmetic }.rounded(T::DTYPE));
        }
    }
    expected
}

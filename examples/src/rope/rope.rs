//! Rotary position embedding of the heads of each token: pairs of a head's first `2 * half` elements are rotated by the
//! angle of the token's position, the rest is copied. And RMSNorm of query and key heads with the same rotation, in place in a
//! packed matrix of queries, keys and values.
//!
//! A pair is `(a, b) -> (a * cos - b * sin, b * cos + a * sin)`. Half-split (NeoX, Llama): elements `j` and `half + j`;
//! interleaved (GPT-J): elements `2 j` and `2 j + 1`. Row `p` of the tables `cos` and `sin` holds the `half` angles of position `p`;
//! a position outside the tables reads zeros.
//!
//! **Traffic.** [`Rope`] reads `x` and writes `out` once. [`QkNormRope`] reads and writes query and key heads once and does not touch
//! the values. The tables are read from memory once and then found in the cache.
//!
//! **Rounding.** In `f32`, rounded to `T` once: before that within `3 * 2^-24 * (|a| + |b|)` of the rotation by the tables'
//! angles, and for [`QkNormRope`] within `(16 + sqrt(dim)) * 2^-24` times the normed pair's sizes.
//!
//! **Source.** Su and others, *RoFormer*, 2021, arXiv:2104.09864, equation 34; norms of queries and keys as in Qwen3.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The pairs that a program of [`qk_norm_rope`] handles: heads times pairs of a head.
const PAIRS: usize = 512;

/// The most heads that a program of [`rope`] handles.
const MAX_HEADS: usize = 40;

/// The heads of a program of [`rope`], for the fewest programs of a token.
const fn heads_per_program(per_token: i32) -> i32 {
    let programs = (per_token - 1) / MAX_HEADS as i32 + 1;
    (per_token - 1) / programs + 1
}

/// Rotates heads of `dim` elements, `per_token` for each token. Program `(i, j)` takes the `j`th `HEADS` heads of token `i`, so
/// that angles are read once for all of them.
///
/// A warp takes four heads of 64 pairs, or twenty of 40, so that no warp is idle.
#[fuse_kernel(
    T = [f32, f16, bf16],
    INTERLEAVED = [false, true],
    HALF = half in [32, 64, 128],
    HEADS = heads_per_program(per_token) in [8, 16, 32, 40],
    num_warps = ((HEADS - 1) / 4 % 8 + 1) * HALF / 64,
)]
pub fn rope<T: LibraryFloat, const INTERLEAVED: bool, const HALF: usize, const HEADS: usize>(
    x: &[T],
    positions: &[i32],
    cos: &[f32],
    sin: &[f32],
    out: &mut [T],
    per_token: i32,
    dim: i32,
    half: i32,
) {
    let token = tl::program_id(0);
    let heads = tl::program_id(1) * HEADS + tl::arange(0, HEADS);
    let pairs = tl::arange(0, HALF);
    let is_head = (heads < per_token).col();
    let start = ((token * per_token + heads) * dim).col();
    // Angles take two dependent loads: all other loads are issued before.
    if INTERLEAVED {
        let elements = tl::arange(0, 2 * HALF);
        let mask = is_head & (elements < 2 * half).row();
        let x = tl::load(x + start + elements.row(), mask).to::<f32>();
        let angles = tl::load(positions + token) * half + pairs;
        let cos = tl::load(cos + angles, pairs < half).row();
        let sin = tl::load(sin + angles, pairs < half).row();
        let (a, b) = tl::split(tl::reshape(x, [HEADS, HALF, 2]));
        let y = tl::interleave(a * cos - b * sin, b * cos + a * sin);
        tl::store(out + start + elements.row(), y.to::<T>(), mask);
    } else {
        let mask = is_head & (pairs < half).row();
        let first = start + pairs.row();
        let a = tl::load(x + first, mask).to::<f32>();
        let b = tl::load(x + first + half, mask).to::<f32>();
        let angles = tl::load(positions + token) * half + pairs;
        let cos = tl::load(cos + angles, pairs < half).row();
        let sin = tl::load(sin + angles, pairs < half).row();
        tl::store(out + first, (a * cos - b * sin).to::<T>(), mask);
        tl::store(out + first + half, (b * cos + a * sin).to::<T>(), mask);
    }
    for start_col in tl::range(2 * half, dim, HALF).num_stages(1) {
        let mask = is_head & (start_col + pairs < dim).row();
        let offsets = start + (start_col + pairs).row();
        tl::store(out + offsets, tl::load(x + offsets, mask), mask);
    }
}

/// Normalizes and rotates query and key heads of `2 * half` elements in place: a token's row of `qkv` has `queries + keys`
/// of them, then its values, `row` elements in all. `gammas` has the queries' parameters and then the keys'. Program
/// `(i, j)` takes the `j`th `512 / HALF` heads of token `i`.
#[fuse_kernel(T = [f32, f16, bf16], INTERLEAVED = [false, true], HALF = half in [32, 64, 128], num_warps = 1)]
pub fn qk_norm_rope<T: LibraryFloat, const INTERLEAVED: bool, const HALF: usize>(
    qkv: &mut [T],
    positions: &[i32],
    cos: &[f32],
    sin: &[f32],
    gammas: &[T],
    queries: i32,
    keys: i32,
    row: i32,
    half: i32,
    eps: f32,
) {
    let token = tl::program_id(0);
    let heads = tl::program_id(1) * (512 / HALF) + tl::arange(0, 512 / HALF);
    let pairs = tl::arange(0, HALF);
    let is_head = (heads < queries + keys).col();
    let mask = is_head & (pairs < half).row();
    let start = (heads * (2 * half)).col();
    let is_key = (heads >= queries).col();
    if INTERLEAVED {
        let elements = tl::arange(0, 2 * HALF);
        let mask = is_head & (elements < 2 * half).row();
        let offsets = token * row + start + elements.row();
        let x = tl::load(qkv + offsets, mask, 0.0).to::<f32>();
        let query_gammas = tl::load(gammas + elements, elements < 2 * half).to::<f32>().row();
        let key_gammas = tl::load(gammas + 2 * half + elements, elements < 2 * half).to::<f32>().row();
        let angles = tl::load(positions + token) * half + pairs;
        let cos = tl::load(cos + angles, pairs < half).row();
        let sin = tl::load(sin + angles, pairs < half).row();
        let scale = tl::rsqrt(tl::sum(x * x, 1, true) / (2 * half) as f32 + eps);
        let normed = x * scale * tl::select(is_key, key_gammas, query_gammas);
        let (a, b) = tl::split(tl::reshape(normed, [512 / HALF, HALF, 2]));
        let y = tl::interleave(a * cos - b * sin, b * cos + a * sin);
        tl::store(qkv + offsets, y.to::<T>(), mask);
    } else {
        let first = token * row + start + pairs.row();
        let a = tl::load(qkv + first, mask, 0.0).to::<f32>();
        let b = tl::load(qkv + first + half, mask, 0.0).to::<f32>();
        let query_a = tl::load(gammas + pairs, pairs < half).to::<f32>().row();
        let query_b = tl::load(gammas + half + pairs, pairs < half).to::<f32>().row();
        let key_a = tl::load(gammas + 2 * half + pairs, pairs < half).to::<f32>().row();
        let key_b = tl::load(gammas + 3 * half + pairs, pairs < half).to::<f32>().row();
        let angles = tl::load(positions + token) * half + pairs;
        let cos = tl::load(cos + angles, pairs < half).row();
        let sin = tl::load(sin + angles, pairs < half).row();
        let scale = tl::rsqrt(tl::sum(a * a + b * b, 1, true) / (2 * half) as f32 + eps);
        let a = a * scale * tl::select(is_key, key_a, query_a);
        let b = b * scale * tl::select(is_key, key_b, query_b);
        tl::store(qkv + first, (a * cos - b * sin).to::<T>(), mask);
        tl::store(qkv + first + half, (b * cos + a * sin).to::<T>(), mask);
    }
}

/// The positions of tokens, and tables of the angles of `half` pairs for each position.
#[derive(Clone, Copy)]
pub struct Angles<'a> {
    /// The position of each token.
    pub positions: Slice<'a, i32>,
    /// Cosines, `half` for each position.
    pub cos: Slice<'a, f32>,
    /// Sines, `half` for each position.
    pub sin: Slice<'a, f32>,
    /// The number of rotated pairs, at most 128.
    pub half: usize,
}

impl Angles<'_> {
    pub(crate) fn check(&self, checks: Checks) -> Result<()> {
        checks.same(("cos", self.cos.len()), ("sin", self.sin.len()))?;
        if self.half == 0 || self.half > 128 {
            return Err(checks.error(format!("{} pairs turn, from 1 to 128 can", self.half)));
        }
        checks.rows(("cos", self.cos.len()), self.half).map(|_| ())
    }
}

/// Rotates the heads of each token: `Rope::<bf16, false>::new(&x, angles, heads, dim)`. `T` is `f32`, `f16` or `bf16`;
/// `INTERLEAVED` says which elements are pairs.
#[derive(Clone, Copy)]
pub struct Rope<'a, T: LibraryFloat, const INTERLEAVED: bool> {
    x: Slice<'a, T>,
    angles: Angles<'a>,
    heads: usize,
    dim: usize,
}

impl<'a, T: LibraryFloat, const INTERLEAVED: bool> Rope<'a, T, INTERLEAVED> {
    /// `heads` heads of `dim` elements for each position.
    pub fn new(x: impl Into<Slice<'a, T>>, angles: Angles<'a>, heads: usize, dim: usize) -> Self {
        Rope { x: x.into(), angles, heads, dim }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks, Angles { positions, cos, sin, half }) = (out.into(), Checks("rope"), self.angles);
        self.angles.check(checks)?;
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        if 2 * half > self.dim {
            return Err(checks.error(format!("{half} pairs do not fit heads of {}", self.dim)));
        }
        checks.same(("x", self.x.len()), ("all heads", positions.len() * self.heads * self.dim))?;
        if positions.is_empty() || self.heads == 0 {
            return Ok(());
        }
        let [heads, dim, pairs] = [self.heads, self.dim, half].map(|count| count as i32);
        let call = rope::<T, INTERLEAVED>(self.x, positions, cos, sin, out, heads, dim, pairs);
        call.grid((positions.len(), self.heads.div_ceil(MAX_HEADS))).launch(on)
    }
}

/// Heads of a packed row: queries, keys and values, each of `2 * half` elements.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// The number of query heads.
    pub queries: usize,
    /// The number of key heads, and of value heads.
    pub keys: usize,
}

/// Normalizes and rotates query and key heads in a packed matrix: `QkNormRope::<bf16, false>::new(angles, heads, &gammas)`. `T` is
/// `f32`, `f16` or `bf16`; `INTERLEAVED` says which elements are pairs.
#[derive(Clone, Copy)]
pub struct QkNormRope<'a, T: LibraryFloat, const INTERLEAVED: bool> {
    angles: Angles<'a>,
    heads: Heads,
    gammas: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: LibraryFloat, const INTERLEAVED: bool> QkNormRope<'a, T, INTERLEAVED> {
    /// A row for each position; `gammas` has the parameters of queries and then those of keys; `eps` is 1e-6.
    pub fn new(angles: Angles<'a>, heads: Heads, gammas: impl Into<Slice<'a, T>>) -> Self {
        QkNormRope { angles, heads, gammas: gammas.into(), eps: 1e-6 }
    }

    /// What is added to the mean of the squares.
    pub fn eps(self, eps: f32) -> Self {
        QkNormRope { eps, ..self }
    }

    /// Computes in place, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, qkv: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (qkv, checks, Angles { positions, cos, sin, half }) =
            (qkv.into(), Checks("qk_norm_rope"), self.angles);
        let Heads { queries, keys } = self.heads;
        self.angles.check(checks)?;
        let row = (queries + 2 * keys) * 2 * half;
        checks.same(("gammas", self.gammas.len()), ("two heads", 4 * half))?;
        checks.same(("qkv", qkv.len()), ("all rows", positions.len() * row))?;
        let heads = queries + keys;
        if positions.is_empty() || heads == 0 {
            return Ok(());
        }
        let [queries, keys, row] = [queries, keys, row].map(|count| count as i32);
        let call = qk_norm_rope::<T, INTERLEAVED>(
            qkv,
            positions,
            cos,
            sin,
            self.gammas,
            queries,
            keys,
            row,
            half as i32,
            self.eps,
        );
        let block = half.next_power_of_two().max(32);
        call.grid((positions.len(), heads.div_ceil(PAIRS / block))).launch(on)
    }
}

/// Positions and tables, for the references.
#[derive(Clone, Copy, Debug)]
pub struct HostAngles<'a> {
    /// As in [`Angles`].
    pub positions: &'a [i32],
    /// As in [`Angles`].
    pub cos: &'a [f32],
    /// As in [`Angles`].
    pub sin: &'a [f32],
    /// As in [`Angles`].
    pub half: usize,
    /// Which elements are pairs.
    pub interleaved: bool,
}

impl HostAngles<'_> {
    /// One head of a token, rotated in `f64` from elements that are known within a bound, and rounded to `T`.
    pub(crate) fn rotate<T: Float>(&self, token: usize, head: &[Expected]) -> Vec<Expected> {
        let (single, half) = (unit_roundoff(DType::F32), self.half);
        let mut out = head.to_vec();
        for j in 0..half {
            let (first, second) = if self.interleaved { (2 * j, 2 * j + 1) } else { (j, half + j) };
            let (a, b) = (head[first], head[second]);
            let angle = usize::try_from(self.positions[token]).ok().map(|position| position * half + j);
            let at = |table: &[f32]| f64::from(angle.and_then(|i| table.get(i)).copied().unwrap_or(0.0));
            let (cos, sin) = (at(self.cos), at(self.sin));
            let within = 3.0 * single * (a.value.abs() + b.value.abs()) + a.within + b.within;
            let rounded = |value: f64| Expected { value, within }.rounded(T::DTYPE);
            out[first] = rounded(a.value * cos - b.value * sin);
            out[second] = rounded(b.value * cos + a.value * sin);
        }
        out
    }
}

/// What [`Rope`] computes for `heads` heads of each token, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], angles: HostAngles, heads: usize, dim: usize) -> Vec<Expected> {
    let exact = |x: &T| Expected { value: x.to_f64(), within: 0.0 };
    let rotated = x.chunks(dim.max(1)).enumerate().flat_map(|(i, head)| {
        let head: Vec<Expected> = head.iter().map(exact).collect();
        angles.rotate::<T>(i / heads, &head)
    });
    rotated.collect()
}

/// What [`QkNormRope`] computes of a packed matrix, in `f64`, and the bound that the module's documentation states.
pub fn packed_reference<T: Float>(
    qkv: &[T],
    angles: HostAngles,
    Heads { queries, keys }: Heads,
    (gammas, eps): (&[T], f32),
) -> Vec<Expected> {
    let dim = 2 * angles.half;
    let arithmetic = (16.0 + (dim as f64).sqrt()) * unit_roundoff(DType::F32);
    let mut expected = Vec::with_capacity(qkv.len());
    for (i, head) in qkv.chunks(dim).enumerate() {
        let (token, head_of_row) = (i / (queries + 2 * keys), i % (queries + 2 * keys));
        let exact = |x: &T| Expected { value: x.to_f64(), within: 0.0 };
        if head_of_row >= queries + keys {
            expected.extend(head.iter().map(exact));
            continue;
        }
        let gamma = if head_of_row < queries { &gammas[..dim] } else { &gammas[dim..] };
        let mean = head.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / dim as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        let normed = head.iter().zip(gamma).map(|(x, gamma)| {
            let value = x.to_f64() * scale * gamma.to_f64();
            Expected { value, within: arithmetic * value.abs() }
        });
        expected.extend(angles.rotate::<T>(token, &normed.collect::<Vec<_>>()));
    }
    expected
}

/// The bytes that [`Rope`] must move, tables aside.
pub const fn traffic<T>(elements: usize) -> usize {
    2 * elements * size_of::<T>()
}

//! RMSNorm of query and key heads, rotary position embedding of a head's first `rotary_dim` elements, and the write of keys and
//! values to a cache, in one pass over a packed matrix of queries, keys and values.
//!
//! A token's row holds `queries` heads, `keys` heads of keys and as many of values, of `dim` elements each; rows have the stride
//! `row_stride`. For each query and key head `x`, in place:
//!
//! - norm, where there are gammas: `y = x / sqrt(mean(x^2) + eps) * gamma`, one gamma of `dim` elements for queries, one for keys;
//! - rotation of pairs of the first `rotary_dim` elements: `(a, b) -> (a * cos - b * sin, b * cos + a * sin)`. Half-split pairs
//!   (NeoX, Llama) are elements `j` and `rotary_dim / 2 + j`, interleaved pairs (GPT-J) elements `2 j` and `2 j + 1`. Elements from
//!   `rotary_dim` on are normalized and not rotated.
//!
//! Row `p` of the table `cos_sin` holds the `rotary_dim / 2` cosines of position `p`, then as many sines, in the element type. A
//! position outside the table reads zeros.
//!
//! **Shapes.** `dim` up to 256, any number; `rotary_dim` even, 0 to `dim`. Fast on a GPU are `dim`, `rotary_dim / 2` and strides that
//! are multiples of 16 bytes.
//!
//! **Cache.** [`PackedQkv::launch_cached`] also writes the keys, as they are after norm and rotation, and the values to slot
//! `slots[token]` of a [`KvCache`]. A negative slot, or one behind the last, is not written. [`CacheLayout::by_heads`] is what
//! [`crate::attention_decode`] reads: a view of `[sequences * keys, capacity, dim]`.
//!
//! **Traffic.** Reads and writes query and key heads once, `2 * tokens * (queries + keys) * dim * size_of::<T>()` bytes; with a cache
//! also writes keys, and reads and writes values. Table and gammas are read from memory once and then found in the cache. A launch for
//! each operation reads and writes the heads once more for the rotation, and reads keys once more for the write to the cache. On an
//! H200, 16384 tokens of 32 query and 8 key heads of 128 elements of `bf16` take 102 us, and 205 us in two launches; with the cache
//! 132 us, and 331 us in three.
//!
//! **Rounding.** In `f32`, rounded to `T` once. Before that a rotated element is within `3 * 2^-24 * (|a| + |b|)` of the rotation by
//! the table's angles, and the norm adds `(16 + sqrt(dim)) * 2^-24` times the sizes of the normalized pair. A head without norm and
//! rotation, and the values, are copied exactly.
//!
//! **Source.** Su and others, *RoFormer*, 2021, arXiv:2104.09864, equation 34; vLLM, `fused_qknorm_rope_kernel.cu`, which follows
//! TensorRT-LLM; the cache as in vLLM's `reshape_and_cache`.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::rope::Heads;
use crate::shape::Checks;

const CHECKS: Checks = Checks("packed_qkv");

/// The elements of heads that a program handles.
const ELEMENTS: usize = 512;

/// The longest head.
pub const MAX_DIM: usize = 256;

/// Which elements are pairs, for [`packed_qkv()`]: adjacent ones, halves of a head as long as its tile, halves of its first `rotary_dim` elements.
const INTERLEAVED: usize = 0;
const SPLIT_HALVES: usize = 1;
const SPLIT_ROTARY: usize = 2;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryFloat;

    /// Cosines and sines of a token's angles, of which there are `half`, at `ids`; zeros where `mask` is false. Both have the shape of a row.
    #[fuse_fn]
    fn cos_and_sin<T: Float>(
        angles: &[T],
        ids: Tile<i32>,
        half: i32,
        mask: Tile<bool>,
    ) -> (Tile<f32>, Tile<f32>) {
        let cos = tl::load(angles + ids, mask).to::<f32>().row();
        (cos, tl::load(angles + ids + half, mask).to::<f32>().row())
    }

    /// `COLS` gammas from column `first` on: of keys where `is_key`, `[heads, 1]`, is true, else of queries.
    #[fuse_fn]
    fn gammas<T: Float, const COLS: usize>(
        query_gamma: &View<T, 1>,
        key_gamma: &View<T, 1>,
        is_key: Tile<bool>,
        first: i32,
    ) -> Tile<f32> {
        let query_gammas = query_gamma.load::<COLS>(first).to::<f32>().row();
        tl::select(is_key, key_gamma.load::<COLS>(first).to::<f32>().row(), query_gammas)
    }

    /// Heads `y`, `[HEADS, DIM]`, with their first `2 * half` elements rotated: adjacent ones where `ADJACENT`, else halves of those. `mask` is
    /// whether the table has the token's `angles`.
    #[fuse_fn]
    fn rotated<T: Float, const ADJACENT: bool, const HEADS: usize, const DIM: usize>(
        y: Tile<f32>,
        angles: &[T],
        half: i32,
        mask: bool,
    ) -> Tile<f32> {
        let cols = tl::arange(0, DIM);
        let rotated = if ADJACENT {
            let ids = tl::arange(0, DIM / 2);
            let (cos, sin) = cos_and_sin(angles, ids, half, (ids < half) & mask);
            let (a, b) = tl::split(tl::reshape(y, [HEADS, DIM / 2, 2]));
            tl::interleave(a * cos - b * sin, b * cos + a * sin)
        } else {
            let is_first = cols < half;
            let ids = tl::select(is_first, cols, cols - half);
            let (cos, sin) = cos_and_sin(angles, ids, half, (cols < 2 * half) & mask);
            let partner = tl::select(is_first, cols + half, cols - half).row();
            let partners = tl::gather(y, tl::broadcast_to(partner, [HEADS, DIM]), 1);
            y * cos + partners * tl::select(is_first.row(), -sin, sin)
        };
        tl::select((cols < 2 * half).row(), rotated, y)
    }

    /// Normalizes and rotates the heads of tokens in place, and writes keys and values to a cache. Program `(i, j)` takes the `j`th
    /// `512 / DIM` heads of token `i`; behind those of queries and keys there are programs of values, where there is a cache. `half` pairs
    /// are rotated: adjacent elements where `PAIRS` is 0, halves of a head of `DIM` elements where it is 1, halves of its first `2 * half` where
    /// it is 2. Gammas without elements are no norm.
    ///
    /// Caches are `[pages, slots of a page, keys, dim]`; one without pages is not written.
    #[fuse_kernel(T = [f32, f16, bf16], PAIRS = pairs in [0, 1, 2], DIM = dim in [64, 128, 256], num_warps = 1)]
    pub fn packed_qkv<T: LibraryFloat, const PAIRS: usize, const DIM: usize>(
        qkv: &mut [T],
        positions: &[i32],
        cos_sin: &[T],
        query_gamma: &View<T, 1>,
        key_gamma: &View<T, 1>,
        slots: &[i32],
        key_cache: &mut View<T, 4>,
        value_cache: &mut View<T, 4>,
        queries: i32,
        keys: i32,
        pairs: i32,
        dim: i32,
        row_stride: i32,
        half: i32,
        n_positions: i32,
        eps: f32,
    ) {
        let (token, first_head) = (tl::program_id(0), tl::program_id(1) * (512 / DIM));
        // Tiles of values begin behind the last one of keys.
        let first_value = tl::cdiv(queries + keys, 512 / DIM) * (512 / DIM);
        let (slot, page) = (tl::load(slots + token), key_cache.shape::<i32>(1));
        let is_cached = slot >= 0 && slot < key_cache.shape::<i32>(0) * page;
        let cols = tl::arange(0, DIM);
        if first_head >= first_value {
            let heads = first_head - first_value + tl::arange(0, 512 / DIM);
            let mask = (heads < keys).col() & (cols < dim).row();
            let source = token * row_stride + ((queries + keys + heads) * dim).col() + cols.row();
            // They do not wait for the slot.
            let values = tl::load(qkv + source, mask);
            if is_cached {
                value_cache.at(slot / page).at(slot % page).store(values, first_head - first_value, 0);
            }
            return;
        }
        let heads = first_head + tl::arange(0, 512 / DIM);
        let (is_key, is_head) = ((heads >= queries).col(), (heads < queries + keys).col());
        let start = token * row_stride + (heads * dim).col();
        let is_normed = query_gamma.shape(0) > 0;
        let position = tl::load(positions + token);
        let is_in_table = position >= 0 && position < n_positions;
        let angles = cos_sin + position * (2 * half);
        if PAIRS == 1 {
            // A thread has both elements of its pairs.
            let ids = tl::arange(0, DIM / 2);
            let first = start + ids.row();
            let a = tl::load(qkv + first, is_head, 0.0).to::<f32>();
            let b = tl::load(qkv + first + DIM / 2, is_head, 0.0).to::<f32>();
            let (cos, sin) = cos_and_sin(angles, ids, half, is_in_table);
            let (a, b) = if is_normed {
                let gamma_a = gammas::<T, { DIM / 2 }>(query_gamma, key_gamma, is_key, 0);
                let gamma_b = gammas::<T, { DIM / 2 }>(query_gamma, key_gamma, is_key, half);
                let scale = tl::rsqrt(tl::sum(a * a + b * b, 1, true) / dim as f32 + eps);
                (a * scale * gamma_a, b * scale * gamma_b)
            } else {
                (a, b)
            };
            let (a, b) = ((a * cos - b * sin).to::<T>(), (b * cos + a * sin).to::<T>());
            tl::store(qkv + first, a, is_head);
            tl::store(qkv + first + DIM / 2, b, is_head);
            if is_cached {
                let cached = key_cache.at(slot / page).at(slot % page);
                cached.store(a, first_head - queries, 0);
                cached.store(b, first_head - queries, DIM / 2);
            }
        } else {
            let mask = is_head & (cols < dim).row();
            let x = tl::load(qkv + start + cols.row(), mask, 0.0).to::<f32>();
            let y = if is_normed {
                let scale = tl::rsqrt(tl::sum(x * x, 1, true) / dim as f32 + eps);
                x * scale * gammas::<T, DIM>(query_gamma, key_gamma, is_key, 0)
            } else {
                x
            };
            let y = rotated::<T, { PAIRS == 0 }, { 512 / DIM }, DIM>(y, angles, half, is_in_table).to::<T>();
            tl::store(qkv + start + cols.row(), y, mask);
            if is_cached {
                key_cache.at(slot / page).at(slot % page).store(y, first_head - queries, 0);
            }
        }
    }
}

pub use kernels::packed_qkv;

/// Positions of tokens and the table of their angles.
#[derive(Clone, Copy)]
pub struct RotaryTable<'a, T: LibraryFloat> {
    /// The position of each token.
    pub positions: Slice<'a, i32>,
    /// For each position `rotary_dim / 2` cosines, then as many sines.
    pub cos_sin: Slice<'a, T>,
    /// The number of elements of a head that are rotated.
    pub rotary_dim: usize,
}

impl<T: LibraryFloat> RotaryTable<'_, T> {
    /// How many positions the table has, for heads of `dim` elements.
    fn check(&self, dim: usize) -> Result<usize> {
        let RotaryTable { cos_sin, rotary_dim, .. } = *self;
        if dim == 0 || dim > MAX_DIM {
            return Err(CHECKS.error(format!("heads have {dim} elements, expected 1 to {MAX_DIM}")));
        }
        if !rotary_dim.is_multiple_of(2) || rotary_dim > dim {
            let reason =
                format!("rotary_dim is {rotary_dim}, expected an even number up to the head's {dim}");
            return Err(CHECKS.error(reason));
        }
        if rotary_dim == 0 { Ok(0) } else { CHECKS.rows(("cos_sin", cos_sin.len()), rotary_dim) }
    }
}

/// The layout of a cache. Elements of a slot are contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLayout {
    /// Pages, or sequences with a contiguous range of the cache each.
    pub pages: usize,
    /// Slots of a page; slot `s` is slot `s % page` of page `s / page`.
    pub page: usize,
    /// Elements between pages, heads and slots.
    pub strides: [usize; 3],
}

impl CacheLayout {
    /// `[pages, keys, page, dim]`: of each sequence, or page, head after head. With one page for each sequence
    /// [`crate::attention_decode`] reads it as `[pages * keys, page, dim]`.
    pub const fn by_heads([pages, keys, page, dim]: [usize; 4]) -> Self {
        CacheLayout { pages, page, strides: [keys * page * dim, page * dim, dim] }
    }

    /// `[pages, page, keys, dim]`: slot after slot with all its heads, as paged attention of vLLM and FlashAttention has it.
    pub const fn by_slots([pages, page, keys, dim]: [usize; 4]) -> Self {
        CacheLayout { pages, page, strides: [page * keys * dim, dim, keys * dim] }
    }
}

/// Where keys and values go.
pub struct KvCache<'o, T: LibraryFloat> {
    /// Memory of keys.
    pub keys: SliceMut<'o, T>,
    /// Memory of values.
    pub values: SliceMut<'o, T>,
    /// The slot of each token; of two tokens that share one, either is written.
    pub slots: Slice<'o, i32>,
    /// The layout of both.
    pub layout: CacheLayout,
}

/// What is added to the mean of the squares, and the parameters of the norms.
#[derive(Clone, Copy)]
struct HeadNorm<'a, T: LibraryFloat> {
    query_gamma: Slice<'a, T>,
    key_gamma: Slice<'a, T>,
    eps: f32,
}

/// Norm and rotation of query and key heads in a packed matrix: `PackedQkv::new(table, heads, dim).norm(&q, &k)`. `T` is
/// `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct PackedQkv<'a, T: LibraryFloat> {
    table: RotaryTable<'a, T>,
    heads: Heads,
    dim: usize,
    row_stride: Option<usize>,
    is_interleaved: bool,
    norm: Option<HeadNorm<'a, T>>,
}

impl<'a, T: LibraryFloat> PackedQkv<'a, T> {
    /// A row for each position, of heads of `dim` elements, which are rotated and not normalized. Rows are contiguous, and pairs are
    /// halves of the rotated elements.
    pub fn new(table: RotaryTable<'a, T>, heads: Heads, dim: usize) -> Self {
        PackedQkv { table, heads, dim, row_stride: None, is_interleaved: false, norm: None }
    }

    /// Normalizes heads before the rotation, with `dim` parameters for queries and for keys; `eps` is 1e-6.
    pub fn norm(self, query_gamma: impl Into<Slice<'a, T>>, key_gamma: impl Into<Slice<'a, T>>) -> Self {
        let (query_gamma, key_gamma) = (query_gamma.into(), key_gamma.into());
        PackedQkv { norm: Some(HeadNorm { query_gamma, key_gamma, eps: 1e-6 }), ..self }
    }

    /// What is added to the mean of the squares of a norm.
    pub fn eps(self, eps: f32) -> Self {
        PackedQkv { norm: self.norm.map(|norm| HeadNorm { eps, ..norm }), ..self }
    }

    /// Pairs are adjacent elements, `2 j` and `2 j + 1`.
    pub fn interleaved(self) -> Self {
        PackedQkv { is_interleaved: true, ..self }
    }

    /// The row stride in elements; padding is not touched.
    pub fn row_stride(self, elements: usize) -> Self {
        PackedQkv { row_stride: Some(elements), ..self }
    }

    /// Computes in place, on a device or stream.
    ///
    /// # Errors
    /// If lengths do not fit each other, `dim` is above 256, or `rotary_dim` is odd or above `dim`; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, qkv: impl Into<SliceMut<'o, T>>) -> Result<()> {
        self.run(on, qkv.into(), None)
    }

    /// Computes in place, and writes keys and values to a cache in the same launch.
    ///
    /// # Errors
    /// Those of [`PackedQkv::launch`]; if there are not as many slots as tokens; if a cache has no room for its layout, or two
    /// elements of the layout are one.
    pub fn launch_cached<'o>(
        &self,
        on: impl LaunchOn,
        qkv: impl Into<SliceMut<'o, T>>,
        cache: KvCache<'_, T>,
    ) -> Result<()> {
        self.run(on, qkv.into(), Some(cache))
    }

    fn run(&self, on: impl LaunchOn, qkv: SliceMut<'_, T>, mut cache: Option<KvCache<'_, T>>) -> Result<()> {
        let RotaryTable { positions, cos_sin, rotary_dim } = self.table;
        let (Heads { queries, keys }, dim, tokens) = (self.heads, self.dim, positions.len());
        let n_positions = self.table.check(dim)?;
        let row_stride = self.check_rows(qkv.len())?;
        let nothing = cos_sin.slice(..0).view([0])?;
        let (query_gamma, key_gamma, eps) = match self.norm {
            Some(HeadNorm { query_gamma, key_gamma, eps }) => {
                CHECKS.same(("query_gamma", query_gamma.len()), ("a head", dim))?;
                CHECKS.same(("key_gamma", key_gamma.len()), ("a head", dim))?;
                (query_gamma.view([dim])?, key_gamma.view([dim])?, eps)
            }
            None => (nothing, nothing, 0.0),
        };
        let slots = cache.as_ref().map(|cache| cache.slots);
        // Where nothing is cached there are no pages, and the slots of tokens mean nothing.
        let [key_cache, value_cache] = match &mut cache {
            Some(cache) => self.cache_views(cache)?,
            None => {
                let nothing = || ViewMut::new(SliceMut::default(), [0, 1, keys, dim]);
                [nothing()?, nothing()?]
            }
        };
        let block = dim.next_power_of_two().max(64);
        let tiles = |heads: usize| heads.div_ceil(ELEMENTS / block);
        let programs = tiles(queries + keys) + if slots.is_some() { tiles(keys) } else { 0 };
        if tokens * programs == 0 {
            return Ok(());
        }
        let pairs = match rotary_dim {
            _ if self.is_interleaved => INTERLEAVED,
            whole if whole == block => SPLIT_HALVES,
            _ => SPLIT_ROTARY,
        };
        let [queries, keys, pairs, dim] = [queries, keys, pairs, dim].map(|count| count as i32);
        let [row_stride, half, n_positions] =
            [row_stride, rotary_dim / 2, n_positions].map(|count| count as i32);
        packed_qkv::<T>(
            qkv,
            positions,
            cos_sin,
            query_gamma,
            key_gamma,
            slots.unwrap_or(positions),
            key_cache,
            value_cache,
            queries,
            keys,
            pairs,
            dim,
            row_stride,
            half,
            n_positions,
            eps,
        )
        .grid((tokens, programs))
        .launch(on)
    }

    /// The distance between rows, if the matrix has as many elements as these take.
    fn check_rows(&self, len: usize) -> Result<usize> {
        let Heads { queries, keys } = self.heads;
        let (tokens, width) = (self.table.positions.len(), (queries + 2 * keys) * self.dim);
        let stride = self.row_stride.unwrap_or(width);
        if stride < width {
            return Err(
                CHECKS.error(format!("row_stride is {stride}, less than the {width} elements of a row"))
            );
        }
        if stride > i32::MAX as usize {
            return Err(CHECKS.error(format!("row_stride is {stride}, the most is {}", i32::MAX)));
        }
        let least = tokens.checked_sub(1).map_or(0, |before| before * stride + width);
        if len < least || len > tokens * stride {
            let reason =
                format!("qkv has {len} elements, expected {least} to {} for {tokens} rows", tokens * stride);
            return Err(CHECKS.error(reason));
        }
        Ok(stride)
    }

    /// The caches as `[pages, slots of a page, keys, dim]`, if they have room for their layout and there is a slot for each token.
    fn cache_views<'c>(&self, cache: &'c mut KvCache<'_, T>) -> Result<[ViewMut<'c, T, 4>; 2]> {
        let CacheLayout { pages, page, strides: [page_stride, head_stride, slot_stride] } = cache.layout;
        CHECKS.same(("slots", cache.slots.len()), ("positions", self.table.positions.len()))?;
        if pages * page > i32::MAX as usize {
            let reason = format!("the cache has {} slots, the most is {}", pages * page, i32::MAX);
            return Err(CHECKS.error(reason));
        }
        // Where a page has no slots there is nothing to divide by.
        let pages = if page == 0 { 0 } else { pages };
        let shape = [pages, page.max(1), self.heads.keys, self.dim];
        let strides = [page_stride, slot_stride, head_stride, 1];
        let keys = cache.keys.view_strided_mut(shape, strides)?;
        Ok([keys, cache.values.view_strided_mut(shape, strides)?])
    }
}

/// What the references rotate by, and how they normalize.
#[derive(Clone, Copy, Debug)]
pub struct HostQkv<'a, T: Float> {
    /// As in [`RotaryTable`].
    pub positions: &'a [i32],
    /// As in [`RotaryTable`].
    pub cos_sin: &'a [T],
    /// As in [`RotaryTable`].
    pub rotary_dim: usize,
    /// Which elements are pairs.
    pub interleaved: bool,
    /// The heads of a row.
    pub heads: Heads,
    /// The elements of a head.
    pub dim: usize,
    /// The gammas of queries and of keys and what is added to the mean of the squares, where heads are normalized.
    pub norm: Option<([&'a [T]; 2], f32)>,
}

impl<T: Float> HostQkv<'_, T> {
    /// The cosine and the sine of a pair at a position; zeros outside of the table.
    fn angle(&self, position: i32, pair: usize) -> [f64; 2] {
        let row = usize::try_from(position).ok().map(|position| position * self.rotary_dim);
        [0, self.rotary_dim / 2].map(|first| {
            let found = row.and_then(|row| self.cos_sin.get(row + first + pair));
            found.map_or(0.0, |number| number.to_f64())
        })
    }

    /// A head rotated by the angles of a position, in `f64`, from elements that are known within a bound, before it is rounded.
    pub(crate) fn rotated(&self, position: i32, head: &[Expected]) -> Vec<Expected> {
        let (single, half, mut out) = (unit_roundoff(DType::F32), self.rotary_dim / 2, head.to_vec());
        for j in 0..half {
            let (first, second) = if self.interleaved { (2 * j, 2 * j + 1) } else { (j, half + j) };
            let (a, b, [cos, sin]) = (head[first], head[second], self.angle(position, j));
            let within = 3.0 * single * (a.value.abs() + b.value.abs()) + a.within + b.within;
            out[first] = Expected { value: a.value * cos - b.value * sin, within };
            out[second] = Expected { value: b.value * cos + a.value * sin, within };
        }
        out
    }

    fn normalized(&self, head: &[T], gamma: &[T], eps: f32) -> Vec<Expected> {
        let arithmetic = (16.0 + (self.dim as f64).sqrt()) * unit_roundoff(DType::F32);
        let mean = head.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / self.dim as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        let normed = head.iter().zip(gamma).map(|(x, gamma)| {
            let value = x.to_f64() * scale * gamma.to_f64();
            Expected { value, within: arithmetic * value.abs() }
        });
        normed.collect()
    }
}

/// What [`PackedQkv`] computes of a matrix with contiguous rows, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(qkv: &[T], of: HostQkv<'_, T>) -> Vec<Expected> {
    let Heads { queries, keys } = of.heads;
    let mut expected = Vec::with_capacity(qkv.len());
    for (i, head) in qkv.chunks(of.dim.max(1)).enumerate() {
        let (token, head_of_row) = (i / (queries + 2 * keys), i % (queries + 2 * keys));
        let exact: Vec<Expected> = head.iter().map(|x| Expected { value: x.to_f64(), within: 0.0 }).collect();
        if head_of_row >= queries + keys {
            expected.extend(exact);
            continue;
        }
        let normed = of.norm.map_or(exact, |(gammas, eps)| {
            of.normalized(head, gammas[usize::from(head_of_row >= queries)], eps)
        });
        let rotated = of.rotated(of.positions[token], &normed).into_iter().enumerate();
        let is_copied = |j: usize| of.norm.is_none() && j >= of.rotary_dim;
        expected.extend(rotated.map(|(j, x)| if is_copied(j) { x } else { x.rounded(T::DTYPE) }));
    }
    expected
}

/// The bytes that norm and rotation must move, and those of a cache where there is one; table and gammas aside.
pub const fn traffic<T>(tokens: usize, Heads { queries, keys }: Heads, dim: usize, is_cached: bool) -> usize {
    let cached = if is_cached { 3 * keys } else { 0 };
    tokens * (2 * (queries + keys) + cached) * dim * size_of::<T>()
}

//! Demos of rotary embedding in packed matrices, with a cache, and inside attention, each measured beside the same in several launches.

use anyhow::{Result, bail, ensure};
use dsl_runtime::prelude::*;
use fused_kernels::attention::AttentionExtents;
use fused_kernels::float::{HalfFloat, LibraryFloat};
use fused_kernels::form::Form;
use fused_kernels::packed_qkv::{self, CacheLayout, HostQkv, KvCache, PackedQkv, RotaryTable};
use fused_kernels::rope::Heads;
use fused_kernels::rotary_attention::{self, RotaryAttention, Rotation};

use crate::{Kernel, Options};

/// For each position the cosines of `half` pairs, then as many sines.
fn table<T: Float>(positions: usize, half: usize) -> Vec<T> {
    let angle = |position: usize, pair: usize| position as f64 / (pair + 1) as f64;
    let row = |position: usize| {
        let of =
            move |what: fn(f64) -> f64| (0..half).map(move |pair| T::from_f64(what(angle(position, pair))));
        of(f64::cos).chain(of(f64::sin))
    };
    (0..positions).flat_map(row).collect()
}

/// Queries, keys and values of a token in each row, in heads of up to 128 elements; what is behind them is a gap. All tokens' keys go
/// to the cache in the command that has one, whose keys are then what is checked; the other rotates half of a head.
pub fn packed<T: LibraryFloat>(options: &Options) -> Result<()> {
    let (tokens, cols, device) = (options.rows, options.cols, options.common.device);
    ensure!(cols >= 8, "a row has four heads of at least two elements, expected 8 columns or more");
    let dim = 128.min(cols / 4) / 2 * 2;
    let keys = cols / dim / 4;
    let heads = Heads { queries: cols / dim - 2 * keys, keys };
    let is_cached = options.kernel == Some(Kernel::PackedQkvCache);
    let rotary_dim = if is_cached { dim } else { dim / 4 * 2 };

    let (x, mut matrix) = options.normal::<T>(tokens * cols, 0)?;
    let (query, bq) = options.normal::<T>(dim, 1)?;
    let (key, bk) = options.normal::<T>(dim, 2)?;
    let cos_sin = table::<T>(tokens, rotary_dim / 2);
    let positions: Vec<i32> = (0..tokens as i32).collect();
    let of = HostQkv {
        positions: &positions,
        cos_sin: &cos_sin,
        rotary_dim,
        interleaved: false,
        heads,
        dim,
        norm: Some(([&query[..], &key[..]], 1e-6)),
    };
    let width = (heads.queries + 2 * keys) * dim;
    let rows: Vec<T> = x.chunks(cols).flat_map(|row| &row[..width]).copied().collect();
    let expected = packed_qkv::reference(&rows, of);
    let (positions, cos_sin) = (device.upload(&positions)?, device.upload(&cos_sin)?);
    let table = RotaryTable { positions: positions.slice(..), cos_sin: cos_sin.slice(..), rotary_dim };
    let still = RotaryTable { rotary_dim: 0, ..table };
    let on_rows = |table| PackedQkv::new(table, heads, dim).row_stride(cols);
    let (norm, rotation) = (on_rows(still).norm(&bq, &bk), on_rows(table));
    let fused = rotation.norm(&bq, &bk);
    let traffic = packed_qkv::traffic::<T>(tokens, heads, dim, is_cached);
    if !is_cached {
        let behind = |x: &T| fused_kernels::reference::Expected { value: x.to_f64(), within: 0.0 };
        let with_gaps = expected.chunks(width).zip(x.chunks(cols));
        let expected: Vec<_> = with_gaps
            .flat_map(|(own, row)| own.iter().copied().chain(row[width..].iter().map(behind)))
            .collect();
        // Measured runs go on with what the one before them left; the one that is checked is the first.
        let mut is_first = true;
        options.show(traffic, &expected, |on, out: &mut Buffer<T>| {
            if std::mem::take(&mut is_first) {
                out.slice_mut(..).copy_from_host(&x)?;
            }
            fused.launch(on, out)
        })?;
        return options.unfused("a norm and a rotation", |on| {
            norm.launch(on, &mut matrix)?;
            rotation.launch(on, &mut matrix)
        });
    }
    // Slots in the order of tokens, so that a token's keys are contiguous.
    let slots: Vec<i32> = (0..tokens as i32).collect();
    let slots = device.upload(&slots)?;
    let layout = CacheLayout::by_slots([1, tokens, keys, dim]);
    let of_keys = heads.queries * dim..(heads.queries + keys) * dim;
    let expected: Vec<_> = expected.chunks(width).flat_map(|row| &row[of_keys.clone()]).copied().collect();
    let len = tokens * keys * dim;
    let (mut other, mut values) = (device.zeros::<T>(len)?, device.zeros::<T>(len)?);
    options.show(traffic, &expected, |on, out: &mut Buffer<T>| {
        let cache =
            KvCache { keys: out.into(), values: (&mut values).into(), slots: slots.slice(..), layout };
        fused.launch_cached(on, &mut matrix, cache)
    })?;
    options.unfused("a norm, a rotation and a write", |on| {
        norm.launch(on, &mut matrix)?;
        rotation.launch(on, &mut matrix)?;
        let cache = KvCache {
            keys: (&mut other).into(),
            values: (&mut values).into(),
            slots: slots.slice(..),
            layout,
        };
        on_rows(still).launch_cached(on, &mut matrix, cache)
    })
}

/// A query for each of 32 heads of 128 elements, of which four share a head of keys, of as many keys as there are rows; neither is
/// rotated before.
pub fn attended<T: HalfFloat>(options: &Options) -> Result<()> {
    if options.rows == 0 {
        bail!("a query has a position where there is a key, expected rows");
    }
    let extents = AttentionExtents { heads: 32, key_heads: 8, queries: 1, keys: options.rows, elements: 128 };
    let [of_q, of_k] = [[32, 1, 128], [8, options.rows, 128]];
    let len = |shape: [usize; 3]| shape.iter().product::<usize>();
    let ((q, bq), (k, bk)) = (options.normal::<T>(len(of_q), 0)?, options.normal::<T>(len(of_k), 1)?);
    let (v, bv) = options.normal::<T>(len(of_k), 2)?;
    let (device, cos_sin) = (options.common.device, table::<T>(options.rows, 64));
    let rotation =
        Rotation { cos_sin: &cos_sin, interleaved: false, scale: 1.0 / 128f32.sqrt(), causal: false };
    let [expected, _] = rotary_attention::reference([&q, &k, &v], extents, rotation);
    let cos_sin = device.upload(&cos_sin)?;
    let mut other = device.zeros::<T>(len(of_q))?;
    let attention = RotaryAttention::new(bq.view(of_q)?, bk.view(of_k)?, bv.view(of_k)?, &cos_sin);
    let traffic = fused_kernels::attention_reference::traffic::<T>(extents);
    options.show(traffic, &expected, |on, out| attention.launch(on, out.view_mut(of_q)?))?;
    options.unfused("two rotations and attention", |on| {
        attention.launch_as(on, other.view_mut(of_q)?, None, Form::Separate)
    })
}

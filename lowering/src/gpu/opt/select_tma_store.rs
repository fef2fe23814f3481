//! Selects stores that TMA does.
//!
//! A store becomes a [`TmaStore`] if its tile is a matrix of the size of a wgmma result and is made of one, if it runs
//! once, and if no other operation accesses its view. As with TMA loads ([`crate::gpu::opt::select_wgmma`]), the tile
//! begins at a multiple of 16 bytes. A swizzled row of shared memory holds columns of one warpgroup only; of a
//! transposed wgmma, two rows side by side hold a warpgroup's share of a row.

use std::collections::HashMap;

use tile_ir::analysis::axis_info::AxisInfoMap;
use tile_ir::ir::{Func, Op, ParamId, Shape, Value, backward_slice};
use tile_ir::ops::{CacheHints, Kind, Reshape, StoreView, TmaStore, ViewTile};

use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WGMMA_M, WarpGroupTiling};
use crate::gpu::opt::tma_box::TMA_ALIGNMENT;

/// The positions of such stores in the function's body, each with its TMA store. Of each wgmma it is known whether its
/// transpose is computed.
pub(crate) fn tma_stores(
    func: &Func,
    dots: &HashMap<Value, bool>,
    definitions: &HashMap<Value, &Op>,
    axes: &AxisInfoMap,
    num_warps: u32,
) -> Vec<(usize, TmaStore)> {
    let accesses = accesses(func);
    let of = |op: &Op| {
        let Kind::StoreView(StoreView { tile: window, value, cache }) = &op.kind else { return None };
        let mut value = *value;
        if let Some(Kind::Reshape(Reshape { value: inner })) = definitions.get(&value).map(|op| &op.kind) {
            value = *inner;
        }
        let ty = func.ty(value);
        let made = backward_slice(value, definitions);
        let same = made.iter().filter(|source| func.ty(**source).shape == ty.shape);
        let mut dots = same.filter_map(|source| dots.get(source).copied());
        let transposed = dots.next()?;
        if !is_matrix(window, &ty.shape) || dots.any(|other| other != transposed) {
            return None;
        }
        let bytes = ty.dtype.bytes();
        let fits_rows = if transposed {
            let warpgroups = WarpGroupTiling::new(ty.shape[1], num_warps);
            bytes == 4 && ty.shape[0].is_multiple_of(WGMMA_M * warpgroups.along_columns)
        } else {
            let warpgroups = WarpGroupTiling::new(ty.shape[0], num_warps);
            [2, 4].contains(&bytes)
                && (ty.shape[1] * bytes).is_multiple_of(SWIZZLE_ROW_BYTES * warpgroups.along_columns)
        };
        let start = *window.offsets.last().expect("a view has an axis");
        let fits = fits_rows
            && *cache == CacheHints::default()
            && accesses[&window.memory] == 1
            && axes.get(func, start).divisor.is_multiple_of((TMA_ALIGNMENT / bytes).into());
        fits.then(|| TmaStore { tile: window.clone(), value, transposed, through: None, map: None })
    };
    func.body.ops.iter().enumerate().filter_map(|(position, op)| Some((position, of(op)?))).collect()
}

/// Whether a view tile is a matrix of this shape, apart from axes of extent 1.
fn is_matrix(window: &ViewTile, shape: &Shape) -> bool {
    let rank = window.extents.rank();
    shape.rank() == 2
        && rank >= 2
        && window.extents[rank - 2..] == shape[..]
        && window.extents[..rank - 2].iter().all(|&extent| extent == 1)
}

/// How many operations access each slice or view.
fn accesses(func: &Func) -> HashMap<ParamId, u32> {
    let mut counts = HashMap::new();
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let place = operation.access().map(|place| place.param);
        let windows = operation.view_tile().into_iter().chain(operation.view_tiles());
        for memory in place.into_iter().chain(windows.map(|window| window.memory)) {
            *counts.entry(memory).or_default() += 1;
        }
    });
    counts
}

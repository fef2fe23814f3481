//! Column-major views: specializations for dot operands whose columns are contiguous.
//!
//! A view is read along its last axis, as if that one were contiguous. For a column-major matrix that holds of the transpose,
//! so a specialization reads the transpose and permutes the loaded tile: the same elements at the same coordinates of the
//! tile, by other accesses.

use std::collections::{HashMap, HashSet};

use crate::ir::{Func, Op, ParamId, Rewriter, Shape, Type, Value, View};
use crate::ops::{Kind, LoadView, Permute, Reshape, ViewTile};

/// The most views that may be row- or column-major: each one doubles the specializations.
const MAX_VIEWS: usize = 2;

/// The function for each other combination of row- and column-major dot operands; none where these are more than a few views.
pub fn transpose_operands(func: &Func) -> Vec<Func> {
    let views = operand_views(func);
    if views.is_empty() || views.len() > MAX_VIEWS {
        return vec![];
    }
    let subset = |bits: usize| {
        let views = views.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1);
        views.map(|(_, &view)| view).collect::<Vec<ParamId>>()
    };
    (1..1 << views.len()).map(|bits| column_major(func, &subset(bits))).collect()
}

/// The read-only views whose tiles are matrix operands of dots.
fn operand_views(func: &Func) -> Vec<ParamId> {
    let definitions = func.definitions();
    let (mut found, mut others): (Vec<ParamId>, HashSet<ParamId>) = (vec![], HashSet::new());
    func.body.walk(&mut |op| {
        if let Kind::Dot(dot) = &op.kind {
            let blocks =
                [dot.a, dot.b].into_iter().filter_map(|operand| view_block(func, &definitions, operand));
            for view in blocks.map(|(load, _)| load.tile.memory) {
                if !found.contains(&view) {
                    found.push(view);
                }
            }
        }
        let operation = op.kind.operation();
        let reads_matrix =
            matches!(&op.kind, Kind::LoadView(load) if load.invariant && is_matrix(&load.tile.extents));
        others.extend(operation.view_tile().filter(|_| !reads_matrix).map(|window| window.memory));
    });
    found.retain(|view| !others.contains(view));
    found
}

/// Whether a tile has several elements along both of its last axes.
fn is_matrix(extents: &Shape) -> bool {
    extents.rank() >= 2 && extents[extents.rank() - 2..].iter().all(|&extent| extent > 1)
}

/// The function with these views read as column-major.
fn column_major(func: &Func, views: &[ParamId]) -> Func {
    let mut func = func.clone();
    func.views.iter_mut().filter(|view| views.contains(&view.memory)).for_each(View::transpose);
    Rewriter::default().run(&mut func, &mut |_, builder, mut op| {
        let Kind::LoadView(load) = &mut op.kind else { return builder.append(op) };
        if !views.contains(&load.tile.memory) {
            return builder.append(op);
        }
        let ViewTile { offsets, extents, .. } = &mut load.tile;
        let order = swapped(extents.rank());
        let dtype = builder.func.ty(op.results[0]).dtype;
        *offsets = order.iter().map(|&axis| offsets[axis]).collect();
        *extents = Shape::new(order.iter().map(|&axis| extents[axis]).collect::<Vec<u32>>());
        let ty = Type::tile(dtype, extents.clone());
        let read = builder.one(op.kind, ty);
        let kind = Permute { value: read, order }.into();
        builder.append(Op { kind, results: op.results, loc: op.loc });
    });
    func
}

/// The axes with the last two swapped.
fn swapped(rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    if let [.., row, column] = &mut order[..] {
        std::mem::swap(row, column);
    }
    order
}

/// The view load that a matrix comes from, and whether it is transposed: through swaps of the last two axes, and axes of one
/// element added or dropped before these.
pub fn view_block<'f>(
    func: &Func,
    definitions: &HashMap<Value, &'f Op>,
    mut value: Value,
) -> Option<(&'f LoadView, bool)> {
    let mut transposed = false;
    loop {
        let (shape, kind) = (&func.ty(value).shape, &definitions.get(&value)?.kind);
        if let Kind::LoadView(load) = kind {
            return Some((load, transposed));
        }
        if let Kind::Permute(Permute { value: inner, order }) = kind
            && shape.rank() >= 2
            && *order == swapped(shape.rank())
        {
            (value, transposed) = (*inner, !transposed);
            continue;
        }
        let Kind::Reshape(Reshape { value: inner }) = kind else { return None };
        let own = &func.ty(*inner).shape;
        let is_same =
            own.rank() >= 2 && shape.rank() >= 2 && own[own.rank() - 2..] == shape[shape.rank() - 2..];
        if !is_same {
            return None;
        }
        value = *inner;
    }
}

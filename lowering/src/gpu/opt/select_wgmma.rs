//! Products of blocks that a GPU copies to shared memory by itself.
//!
//! A product becomes a [`WarpGroupDot`] if four warps together have an instruction for its types and extents, if its right
//! factor is a block of a view, or such a block's transpose, and if nothing but scalars says where the block begins: a
//! warp of its own can then have the copies under way. Along the last axis it must be known to begin at a multiple of
//! 16 bytes; a copy from elsewhere is an illegal instruction. The left factor may be a block too, or a tile that was
//! computed. Such a product stands in no loop, or in one that stands in none.

use std::collections::HashMap;

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::gpu::layout::warpgroup::{
    MAX_WGMMA_N, SWIZZLE_ROW_BYTES, WARPGROUP_WARPS, WGMMA_M, WarpGroupTiling,
};
use crate::gpu::opt::select_tma_store;
use crate::ir::assumption::Assumption;
use crate::ir::guard::{Guard, Symbol};
use crate::ir::{Block, Func, Op, Value, backward_slice, dce};
use crate::ops::{
    CacheModifier, Cast, Dot, Effect, For, InputPrecision, Kind, OperandA, SmemOperand, ViewTile,
    WarpGroupDot,
};
use crate::support::dtype::DType;
use crate::transform::transpose_operands::view_block;

/// What the lines of a block divide by.
const SMEM_ROW_MULTIPLE: u32 = 16;
/// The most rows that one instruction copies.
const MAX_TMA_BOX_ROWS: u32 = 256;
/// What the address of a view and the distance between its rows divide by, in bytes.
pub(crate) const TMA_ALIGNMENT: u32 = 16;

/// The longest axis of a view whose blocks are copied: a block that begins there is outside, at a multiple of a piece.
pub const MAX_TMA_EXTENT: i64 = (1 << 31) - 256;

/// Lets groups of warps multiply what they can, and with `copies_out` the GPU copy what they made of it; gives the
/// facts that the copies rely on, none if there is nothing to copy.
pub fn select_wgmma(func: &mut Func, num_warps: u32, copies_out: bool) -> Vec<Guard> {
    if !num_warps.is_multiple_of(WARPGROUP_WARPS) {
        return vec![];
    }
    let axes = AxisInfoMap::analyze(func, &LaunchAssumptions::of(func));
    let selector = WgmmaSelector { definitions: func.definitions(), axes, func, num_warps };
    let mut found = HashMap::new();
    selector.block(&func.body, None, &mut found);
    let stores = if copies_out {
        let products = found.iter().map(|(result, dot)| (*result, dot.transposed)).collect();
        select_tma_store::tma_stores(func, &products, &selector.definitions, &selector.axes, num_warps)
    } else {
        vec![]
    };
    let mut facts = vec![];
    for dot in found.values() {
        for staged in dot.staged() {
            relied_on(func, &staged.window, &mut facts);
        }
    }
    for (place, store) in stores {
        relied_on(func, &store.window, &mut facts);
        facts.extend(ends_in_pieces(func, &store.window));
        func.body.ops[place].kind = store.into();
    }
    replace(&mut func.body, &mut found);
    dce(func);
    facts.sort();
    facts.dedup();
    facts
}

fn replace(block: &mut Block, found: &mut HashMap<Value, WarpGroupDot>) {
    for op in &mut block.ops {
        if let Some(dot) = op.results.first().and_then(|result| found.remove(result)) {
            op.kind = dot.into();
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| replace(block, found));
    }
}

/// What an encoding of a view and copies by it ask for; of its extents, which coordinates of blocks are below, as assumptions of the function.
fn relied_on(func: &mut Func, window: &ViewTile, facts: &mut Vec<Guard>) {
    let view = func.view(window.memory).expect("a window is one of a view");
    let elem = func.slice(window.memory).0;
    facts.push(Guard::Aligned { param: window.memory.0, bytes: TMA_ALIGNMENT });
    let (inner, outer) = view.strides.split_last().expect("a view has an axis");
    facts.extend(func.scalar_parameter(*inner).map(|scalar| Guard::Equal { scalar, value: 1 }));
    for scalar in outer.iter().filter_map(|&stride| func.scalar_parameter(stride)) {
        facts.push(Guard::Divisible { value: Symbol::Scalar(scalar), by: TMA_ALIGNMENT / elem.bytes() });
    }
    let extents: Vec<u32> = view.shape.iter().filter_map(|&extent| func.scalar_parameter(extent)).collect();
    for scalar in extents {
        for assumption in [Assumption::AtLeast(scalar, 1), Assumption::AtMost(scalar, MAX_TMA_EXTENT)] {
            if !func.assumptions.contains(&assumption) {
                func.assumptions.push(assumption);
            }
        }
    }
}

/// What copies out by an encoding ask for besides: they write whole pieces, and what is behind the end of a row may be another's.
fn ends_in_pieces(func: &Func, window: &ViewTile) -> Option<Guard> {
    let view = func.view(window.memory).expect("a window is one of a view");
    let scalar = func.scalar_parameter(*view.shape.last().expect("a view has an axis"))?;
    Some(Guard::Divisible {
        value: Symbol::Scalar(scalar),
        by: TMA_ALIGNMENT / func.slice(window.memory).0.bytes(),
    })
}

/// Whether a scalar comes from arguments, program ids and the variable of a loop by arithmetic of scalars alone: any
/// thread can compute it by itself.
pub fn is_scalar_arithmetic(
    func: &Func,
    definitions: &HashMap<Value, &Op>,
    value: Value,
    variable: Option<Value>,
) -> bool {
    let is_computed = |value: Value| {
        let Some(op) = definitions.get(&value) else { return false };
        let operation = op.kind.operation();
        let of_scalars = operation.operands().iter().all(|&operand| func.ty(operand).is_scalar());
        of_scalars && operation.effect() == Effect::Pure && operation.blocks().is_empty()
    };
    let is_given = |value: Value| Some(value) == variable || func.scalar_parameter(value).is_some();
    backward_slice(value, definitions).into_iter().all(|value| is_given(value) || is_computed(value))
}

/// What a value was converted from, if that is an 8-bit float.
pub fn upcast_source(func: &Func, definitions: &HashMap<Value, &Op>, value: Value) -> Option<Value> {
    match definitions.get(&value).map(|op| &op.kind) {
        Some(&Kind::Cast(Cast { value })) if func.ty(value).dtype.is_f8() => Some(value),
        _ => None,
    }
}

/// The factors of a product of `f32` in TF32 as there is an instruction for them, and whether it then gives the transpose. What is summed
/// over is contiguous in the right factor, and threads load fragments of a left one where it is not.
fn in_tf32(dot: &Dot, a: OperandA, b: SmemOperand) -> Option<(OperandA, SmemOperand, bool)> {
    let OperandA::Staged(a) = a else { return None };
    if dot.input != InputPrecision::Tf32 {
        return None;
    }
    match (a.transposed, b.transposed) {
        (_, true) => Some((OperandA::Staged(a), b, false)),
        (false, false) => Some((OperandA::Staged(b.exchanged()), a.exchanged(), true)),
        (true, false) => None,
    }
}

struct WgmmaSelector<'f> {
    definitions: HashMap<Value, &'f Op>,
    axes: AxisInfoMap,
    func: &'f Func,
    num_warps: u32,
}

impl<'f> WgmmaSelector<'f> {
    /// The products of a block, which is the whole kernel's or that of a loop with this variable.
    fn block(&self, block: &Block, variable: Option<Value>, found: &mut HashMap<Value, WarpGroupDot>) {
        for op in &block.ops {
            if let Kind::Dot(dot) = &op.kind
                && let Some(dot) = self.group_dot(dot, op, variable)
            {
                found.insert(op.results[0], dot);
            }
            if variable.is_none()
                && let Kind::For(body) = &op.kind
                && self.counts_by_arithmetic(body)
            {
                self.block(&body.body, Some(body.body.args[0]), found);
            }
        }
    }

    /// Whether nothing but scalars says how often a loop runs.
    fn counts_by_arithmetic(&self, body: &For) -> bool {
        [body.low, body.high, body.step].into_iter().all(|value| self.is_arithmetic(value, None))
    }

    fn is_arithmetic(&self, value: Value, variable: Option<Value>) -> bool {
        is_scalar_arithmetic(self.func, &self.definitions, value, variable)
    }

    fn group_dot(&self, dot: &Dot, op: &Op, variable: Option<Value>) -> Option<WarpGroupDot> {
        let shape = &self.func.ty(op.results[0]).shape;
        if shape.rank() != 2 {
            return None;
        }
        let [a, b] = self.own_elements(dot);
        let elem = self.func.ty(b).dtype;
        let b = self.staged(b, variable)?;
        let a = self.staged(a, variable).map_or(OperandA::Tile(a), OperandA::Staged);
        let (a, b, transposed) = if elem == DType::F32 { in_tf32(dot, a, b)? } else { (a, b, false) };
        let [rows, all_columns] = if transposed { [shape[1], shape[0]] } else { [shape[0], shape[1]] };
        if !rows.is_multiple_of(WGMMA_M) || !self.multiply(elem, (&a, &b)) {
            return None;
        }
        let WarpGroupTiling { along_columns, .. } = WarpGroupTiling::new(rows, self.num_warps);
        let columns = all_columns / along_columns;
        // The columns of a group begin where a row of the block does, if they lie along rows.
        let unit = match elem {
            _ if !b.transposed => SWIZZLE_ROW_BYTES / elem.bytes(),
            DType::I8 => 16,
            _ => 8,
        };
        // Groups that are no power of two share rows alone, and so do those of columns that are none: halves are of a power of two.
        let even = along_columns == 1 || along_columns.is_power_of_two() && all_columns.is_power_of_two();
        let fits = even && all_columns.is_multiple_of(along_columns) && columns.is_multiple_of(unit);
        (fits && columns <= MAX_WGMMA_N).then_some(WarpGroupDot {
            a,
            b,
            acc: dot.acc,
            imprecise: dot.imprecise.filter(|_| elem.is_f8()),
            transposed,
        })
    }

    /// The factors; where sums may be imprecise, as the 8-bit floats that they were converted from.
    fn own_elements(&self, dot: &Dot) -> [Value; 2] {
        let factors = [dot.a, dot.b];
        let dtype = |value: Value| self.func.ty(value).dtype;
        let narrow = factors.map(|factor| upcast_source(self.func, &self.definitions, factor));
        match narrow {
            [Some(a), Some(b)] if dot.imprecise.is_some() && dtype(a) == dtype(b) => [a, b],
            _ => factors,
        }
    }

    /// Whether there is an instruction for these elements as they lie: bytes are neighbours along what is summed over.
    fn multiply(&self, elem: DType, (a, b): (&OperandA, &SmemOperand)) -> bool {
        if elem.is_half() || elem == DType::F32 {
            return true;
        }
        let straight = matches!(a, OperandA::Staged(a) if !a.transposed);
        (elem == DType::I8 || elem.is_f8()) && straight && b.transposed
    }

    /// A factor as a block of a view, if that is what it is.
    fn staged(&self, value: Value, variable: Option<Value>) -> Option<SmemOperand> {
        let (load, transposed) = view_block(self.func, &self.definitions, value)?;
        let staged = SmemOperand { window: load.window.clone(), transposed };
        let ViewTile { memory, offsets, extents } = &load.window;
        let rank = extents.rank();
        if self.func.ty(value).shape[..] != staged.extents() {
            return None;
        }
        let [rows, columns] = staged.lines();
        let elem = self.func.slice(*memory).0;
        let copied = rows <= MAX_TMA_BOX_ROWS
            && rows.is_multiple_of(SMEM_ROW_MULTIPLE)
            && (columns * elem.bytes()).is_multiple_of(SWIZZLE_ROW_BYTES)
            && load.invariant
            && load.cache.level != CacheModifier::Volatile
            && self
                .axes
                .get(self.func, offsets[rank - 1])
                .divisor
                .is_multiple_of((TMA_ALIGNMENT / elem.bytes()).into())
            && offsets.iter().all(|&offset| self.is_arithmetic(offset, variable));
        copied.then_some(staged)
    }
}

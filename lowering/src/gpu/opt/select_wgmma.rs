//! Selects dots that warpgroups do (wgmma) on tiles that TMA loads.
//!
//! A dot becomes a [`WarpGroupDot`] if wgmma has an instruction for its types and extents, if operand B is a tile of a
//! view or the transpose of one, and if scalars alone say where the tile begins: a producer warp can then issue the
//! loads. Along the last axis the tile must be known to begin at a multiple of 16 bytes; a TMA load from elsewhere is
//! an illegal instruction. Operand A may be a view tile too (SS), or a tile in registers (RS). Such a dot is in no
//! loop, or in an outermost one.

use std::collections::{BTreeMap, HashMap};

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir::assumption::Assumption;
use tile_ir::ir::guard::{Guard, Symbol};
use tile_ir::ir::{Block, Func, Op, Value, backward_slice, dce};
use tile_ir::ops::{
    CacheModifier, Cast, Dot, DotOperand, Effect, For, InputPrecision, Kind, OperandA, SmemOperand, ViewTile,
    WarpGroupDot,
};
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::dtype::DType;
use tile_ir::transform::transpose_operands::view_block;

use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WARPGROUP_WARPS, WGMMA_M, WarpGroupTiling};
use crate::gpu::opt::dot_refusal::DotRefusal;
use crate::gpu::opt::select_tma_store;
use crate::gpu::opt::tma_box::{MAX_ROWS, ROW_MULTIPLE, TMA_ALIGNMENT};

/// The longest axis of a view that TMA accesses: a box that begins at its end is out of bounds, at a multiple of the
/// alignment.
pub const MAX_TMA_EXTENT: i64 = (1 << 31) - 256;

/// Selects wgmma where it can, and TMA stores of the results with `tma_stores`. Gives the guards that TMA relies on,
/// none if it is not used.
pub fn select_wgmma(func: &mut Func, num_warps: u32, tma_stores: bool) -> Vec<Guard> {
    if !num_warps.is_multiple_of(WARPGROUP_WARPS) {
        return vec![];
    }
    let selector = WgmmaSelector::new(func, num_warps);
    // In the order of the function: so are the assumptions.
    let mut found = BTreeMap::new();
    selector.block(&func.body, None, &mut |op, dot| {
        if let Ok(dot) = dot {
            found.insert(op.results[0], dot);
        }
    });
    let stores = if tma_stores {
        let dots = found.iter().map(|(result, dot)| (*result, dot.transposed)).collect();
        select_tma_store::tma_stores(func, &dots, &selector.definitions, &selector.axes, num_warps)
    } else {
        vec![]
    };
    let mut guards = vec![];
    for dot in found.values() {
        for staged in dot.smem_operands() {
            tma_guards(func, &staged.tile, &mut guards);
        }
    }
    for (place, store) in stores {
        tma_guards(func, &store.tile, &mut guards);
        guards.extend(tma_store_guard(func, &store.tile));
        func.body.ops[place].kind = store.into();
    }
    replace(&mut func.body, &mut found);
    dce(func);
    guards.sort();
    guards.dedup();
    guards
}

/// Returns the dots that warpgroups with these warps cannot do, and why, in the order of the function.
pub fn refused_dots(func: &Func, num_warps: u32) -> Vec<(Loc, DotRefusal)> {
    let mut reasons = HashMap::new();
    let is_whole = num_warps.is_multiple_of(WARPGROUP_WARPS);
    if is_whole {
        WgmmaSelector::new(func, num_warps).block(&func.body, None, &mut |op, dot| {
            reasons.insert(op.results[0], dot.err());
        });
    }
    let mut refused = vec![];
    func.body.walk(&mut |op| {
        if matches!(op.kind, Kind::Dot(_)) {
            let reason = reasons.get(&op.results[0]).copied().unwrap_or(Some(DotRefusal::Nested));
            let reason = if is_whole { reason } else { Some(DotRefusal::Warps(num_warps)) };
            refused.extend(reason.map(|reason| (op.loc, reason)));
        }
    });
    refused
}

fn replace(block: &mut Block, found: &mut BTreeMap<Value, WarpGroupDot>) {
    for op in &mut block.ops {
        if let Some(dot) = op.results.first().and_then(|result| found.remove(result)) {
            op.kind = dot.into();
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| replace(block, found));
    }
}

/// The guards of a tensor map and its loads; for the view's extents, which bound the coordinates of boxes, assumptions
/// of the function.
fn tma_guards(func: &mut Func, window: &ViewTile, guards: &mut Vec<Guard>) {
    let view = func.view(window.memory).expect("a window is one of a view");
    let elem = func.slice(window.memory).0;
    guards.push(Guard::Aligned { param: window.memory.0, bytes: TMA_ALIGNMENT });
    let (inner, outer) = view.strides.split_last().expect("a view has an axis");
    guards.extend(func.scalar_parameter(*inner).map(|scalar| Guard::Equal { scalar, value: 1 }));
    for scalar in outer.iter().filter_map(|&stride| func.scalar_parameter(stride)) {
        guards.push(Guard::Divisible { value: Symbol::Scalar(scalar), by: TMA_ALIGNMENT / elem.bytes() });
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

/// The guard of a TMA store besides: it writes whole 16-byte pieces, and what is behind the end of a row may be
/// another's.
fn tma_store_guard(func: &Func, window: &ViewTile) -> Option<Guard> {
    let view = func.view(window.memory).expect("a window is one of a view");
    let scalar = func.scalar_parameter(*view.shape.last().expect("a view has an axis"))?;
    Some(Guard::Divisible {
        value: Symbol::Scalar(scalar),
        by: TMA_ALIGNMENT / func.slice(window.memory).0.bytes(),
    })
}

/// Whether a scalar comes from arguments, program ids and a loop's induction variable by scalar arithmetic alone: any
/// thread can compute it by itself.
pub fn is_scalar_arithmetic(
    func: &Func,
    definitions: &HashMap<Value, &Op>,
    value: Value,
    induction_variable: Option<Value>,
) -> bool {
    let is_computed = |value: Value| {
        let Some(op) = definitions.get(&value) else { return false };
        let operation = op.kind.operation();
        let of_scalars = operation.operands().iter().all(|&operand| func.ty(operand).is_scalar());
        of_scalars && operation.effect() == Effect::Pure && operation.blocks().is_empty()
    };
    let is_given = |value: Value| Some(value) == induction_variable || func.scalar_parameter(value).is_some();
    backward_slice(value, definitions).into_iter().all(|value| is_given(value) || is_computed(value))
}

/// What a value was upcast from, if that is an 8-bit float.
pub fn upcast_source(func: &Func, definitions: &HashMap<Value, &Op>, value: Value) -> Option<Value> {
    match definitions.get(&value).map(|op| &op.kind) {
        Some(&Kind::Cast(Cast { value, .. })) if func.ty(value).dtype.is_f8() => Some(value),
        _ => None,
    }
}

/// The operands; where the accumulator may be imprecise, the 8-bit floats that they were upcast from.
pub fn undone_upcasts(func: &Func, definitions: &HashMap<Value, &Op>, dot: &Dot) -> [Value; 2] {
    let operands = [dot.a, dot.b];
    let dtype = |value: Value| func.ty(value).dtype;
    let narrow = operands.map(|operand| upcast_source(func, definitions, operand));
    match narrow {
        [Some(a), Some(b)] if dot.imprecise_products().is_some() && dtype(a) == dtype(b) => [a, b],
        _ => operands,
    }
}

/// The operands of a TF32 dot as wgmma takes them, and whether it then computes the transpose. Operand B must be
/// K-major; threads load fragments of an operand A that is not.
fn tf32_operands(dot: &Dot, a: OperandA, b: SmemOperand) -> Option<(OperandA, SmemOperand, bool)> {
    let OperandA::Smem(a) = a else { return None };
    if dot.input != InputPrecision::Tf32 {
        return None;
    }
    match (a.transposed, b.transposed) {
        (_, true) => Some((OperandA::Smem(a), b, false)),
        (false, false) => Some((OperandA::Smem(b.transpose()), a.transpose(), true)),
        (true, false) => None,
    }
}

/// Whether wgmma has an instruction for operands of this type: bytes must be K-major.
fn has_instruction(elem: DType, a: &OperandA, b: &SmemOperand) -> bool {
    if elem.is_half() || elem == DType::F32 {
        return true;
    }
    let straight = matches!(a, OperandA::Smem(a) if !a.transposed);
    (elem == DType::I8 || elem.is_f8()) && straight && b.transposed
}

/// A dot as warpgroups do it, or why they cannot.
type Selected = Result<WarpGroupDot, DotRefusal>;

struct WgmmaSelector<'f> {
    definitions: HashMap<Value, &'f Op>,
    axes: AxisInfoMap,
    func: &'f Func,
    num_warps: u32,
}

impl<'f> WgmmaSelector<'f> {
    fn new(func: &'f Func, num_warps: u32) -> WgmmaSelector<'f> {
        let axes = AxisInfoMap::analyze(func, &LaunchAssumptions::of(func));
        WgmmaSelector { definitions: func.definitions(), axes, func, num_warps }
    }

    /// Tells of the dots of a block, which is the whole kernel's or that of this loop.
    fn block(&self, block: &Block, around: Option<&For>, tell: &mut impl FnMut(&Op, Selected)) {
        for op in &block.ops {
            if let Kind::Dot(dot) = &op.kind {
                let is_counted = around.is_none_or(|body| self.has_scalar_bounds(body));
                let selected = self.warp_group_dot(dot, op, around);
                tell(op, if is_counted { selected } else { Err(DotRefusal::TripCount) });
            }
            if around.is_none()
                && let Kind::For(body) = &op.kind
            {
                self.block(&body.body, Some(body), tell);
            }
        }
    }

    /// Whether scalar arithmetic alone gives the trip count of a loop.
    fn has_scalar_bounds(&self, body: &For) -> bool {
        [body.low, body.high, body.step].into_iter().all(|value| self.is_arithmetic(value, None))
    }

    fn is_arithmetic(&self, value: Value, induction_variable: Option<Value>) -> bool {
        is_scalar_arithmetic(self.func, &self.definitions, value, induction_variable)
    }

    fn warp_group_dot(&self, dot: &Dot, op: &Op, around: Option<&For>) -> Selected {
        let shape = &self.func.ty(op.results[0]).shape;
        if shape.rank() != 2 {
            return Err(DotRefusal::Rank(shape.rank()));
        }
        let [a, b] = undone_upcasts(self.func, &self.definitions, dot);
        let elem = self.func.ty(b).dtype;
        let b = self.staged(b, around).map_err(|reason| reason(DotOperand::B))?;
        let a = self.staged(a, around).map_or(OperandA::Regs(a), OperandA::Smem);
        let (a, b, transposed) = match elem {
            DType::F32 => tf32_operands(dot, a, b).ok_or(DotRefusal::Instruction(elem))?,
            _ => (a, b, false),
        };
        let [rows, all_columns] = if transposed { [shape[1], shape[0]] } else { [shape[0], shape[1]] };
        if !has_instruction(elem, &a, &b) {
            return Err(DotRefusal::Instruction(elem));
        }
        if !rows.is_multiple_of(WGMMA_M) {
            return Err(DotRefusal::Rows(rows));
        }
        let columns = WarpGroupTiling::new(rows, self.num_warps).columns_of_each(all_columns);
        // The columns of a warpgroup begin where a swizzled row does, if they are contiguous in memory.
        let unit = match elem {
            _ if !b.transposed => SWIZZLE_ROW_BYTES / elem.bytes(),
            DType::I8 => 16,
            _ => 8,
        };
        if columns.is_none_or(|columns| !columns.is_multiple_of(unit)) {
            return Err(DotRefusal::Columns(all_columns));
        }
        let imprecise = dot.imprecise_products().filter(|_| elem.is_f8());
        Ok(WarpGroupDot { a, b, acc: dot.acc, imprecise, transposed })
    }

    /// An operand as a view tile, or why it is none that TMA loads.
    fn staged(
        &self,
        value: Value,
        around: Option<&For>,
    ) -> Result<SmemOperand, fn(DotOperand) -> DotRefusal> {
        let found = view_block(self.func, &self.definitions, value);
        let (load, transposed) = found.ok_or(DotRefusal::NotAViewBlock as fn(DotOperand) -> DotRefusal)?;
        let staged = SmemOperand { tile: load.tile.clone(), transposed };
        let ViewTile { memory, offsets, extents } = &load.tile;
        let rank = extents.rank();
        if self.func.ty(value).shape[..] != staged.extents() {
            return Err(DotRefusal::NotAViewBlock);
        }
        let [rows, columns] = staged.lines();
        let bytes = self.func.slice(*memory).0.bytes();
        let has_box = rows <= MAX_ROWS
            && rows.is_multiple_of(ROW_MULTIPLE)
            && (columns * bytes).is_multiple_of(SWIZZLE_ROW_BYTES);
        if !has_box {
            return Err(DotRefusal::Box);
        }
        if !load.invariant || load.cache.modifier == CacheModifier::Volatile {
            return Err(DotRefusal::Changing);
        }
        let divisor = self.axes.get(self.func, offsets[rank - 1]).divisor;
        if !divisor.is_multiple_of((TMA_ALIGNMENT / bytes).into()) {
            return Err(DotRefusal::Alignment);
        }
        let is_scalar = |&offset: &Value| {
            self.is_arithmetic(offset, around.map(|body| body.body.args[0]))
                && around.is_none_or(|body| self.loads_in_iterations(offset, body))
        };
        if offsets.iter().all(is_scalar) { Ok(staged) } else { Err(DotRefusal::Place) }
    }

    /// Whether all that a loop loads of an offset depends on the loop's variable. The producer computes anything else before the
    /// loop, which may have no iteration: there may be nothing to load then.
    fn loads_in_iterations(&self, offset: Value, body: &For) -> bool {
        let slice = backward_slice(offset, &self.definitions);
        let loads = body.body.ops.iter().filter(|op| op.kind.operation().access().is_some());
        let needed = loads.flat_map(|op| &op.results).filter(|result| slice.contains(result));
        needed
            .into_iter()
            .all(|&result| backward_slice(result, &self.definitions).contains(&body.body.args[0]))
    }
}

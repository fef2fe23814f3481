//! Selects dots that warpgroups do (wgmma) on tiles that threads copy or store to shared memory.
//!
//! Where TMA does not load the blocks of views, `cp.async` copies the tiles that a loop loads for a dot alone, whatever their addresses
//! are. Threads store anything else: in each iteration what the loop computes, once what it does not change. Operand A stays in
//! registers where it is made of another dot's result, whose registers wgmma takes as they are, or where it is invariant and small. A
//! dot of a loop is selected if wgmma has an instruction for its types and extents. Whether there is room, and whether copies are of 16
//! bytes, shows with the layouts: then a loop has a ring ([`software_pipeline`](crate::gpu::schedule::software_pipeline)), or there is
//! no such specialization.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Block, Func, Op, Type, Value, dce};
use tile_ir::ops::{Dot, DotUnit, For, Kind};
use tile_ir::support::dtype::DType;

use crate::gpu::layout::dot::MAX_LOOP_REGISTERS;
use crate::gpu::layout::warpgroup::{WARPGROUP_WARPS, WGMMA_K_BYTES, WGMMA_M, WarpGroupTiling};
use crate::gpu::opt::hoist_conversions::MAX_HELD_BYTES;
use crate::gpu::opt::select_wgmma::undone_upcasts;

/// Marks the dots that are selected; whether there are any.
pub fn select_copied_wgmma(func: &mut Func, num_warps: u32) -> bool {
    if !num_warps.is_multiple_of(WARPGROUP_WARPS) {
        return false;
    }
    let mut selected = HashMap::new();
    let finder = LoopDots { func, num_warps, definitions: func.definitions() };
    func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind {
            finder.find(body, &mut selected);
        }
    });
    mark(&mut func.body, &selected);
    dce(func);
    !selected.is_empty()
}

/// What a dot becomes: who multiplies, and what it takes.
struct CopiedDot {
    unit: DotUnit,
    operands: [Value; 2],
    imprecise: Option<u32>,
}

fn mark(block: &mut Block, selected: &HashMap<Value, CopiedDot>) {
    for op in &mut block.ops {
        let found = op.results.first().and_then(|own| selected.get(own));
        if let (Kind::Dot(dot), Some(CopiedDot { unit, operands, imprecise })) = (&mut op.kind, found) {
            *dot = Dot { unit: *unit, a: operands[0], b: operands[1], imprecise: *imprecise, ..*dot };
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| mark(nested, selected));
    }
}

/// The search for dots of a loop.
struct LoopDots<'f> {
    func: &'f Func,
    num_warps: u32,
    definitions: HashMap<Value, &'f Op>,
}

impl LoopDots<'_> {
    fn find(&self, body: &For, selected: &mut HashMap<Value, CopiedDot>) {
        let inside = body.body.defined();
        let dots = body.body.ops.iter().filter(|op| matches!(op.kind, Kind::Dot(_)));
        let mut words: u32 = dots.map(|op| self.words(op.results[0])).sum();
        for op in &body.body.ops {
            let Kind::Dot(dot) = &op.kind else { continue };
            let [a, b] = undone_upcasts(self.func, &self.definitions, dot);
            let elem = self.func.ty(a).dtype;
            if !self.has_instruction(elem, dot, op) {
                continue;
            }
            // The instructions take bytes from shared memory alone.
            let mut is_held = || match inside.contains(&a) {
                true => self.is_made_of_dot(&inside, a),
                false => self.has_room(a, &mut words),
            };
            let in_registers = elem.is_half() && is_held();
            let unit = if in_registers { DotUnit::WgmmaRs } else { DotUnit::Wgmma };
            let imprecise = dot.imprecise_products().filter(|_| elem.is_f8());
            selected.insert(op.results[0], CopiedDot { unit, operands: [a, b], imprecise });
        }
    }

    /// Whether wgmma has an instruction for a dot of such elements and its extents.
    fn has_instruction(&self, elem: DType, dot: &Dot, op: &Op) -> bool {
        let shape = &self.func.ty(op.results[0]).shape;
        let inner = WGMMA_K_BYTES / elem.bytes();
        shape.rank() == 2
            && (elem.is_half() || elem.is_f8() || elem == DType::I8)
            && dot.inner(self.func).is_multiple_of(inner)
            && shape[0].is_multiple_of(WGMMA_M)
            && WarpGroupTiling::new(shape[0], self.num_warps).columns_of_each(shape[1]).is_some()
    }

    /// Whether a thread has registers for its share of an operand A through a loop beside `words` other ones, to which they are added.
    fn has_room(&self, value: Value, words: &mut u32) -> bool {
        let Type { dtype, shape, .. } = self.func.ty(value);
        let WarpGroupTiling { along_rows, .. } = WarpGroupTiling::new(shape[0], self.num_warps);
        let bytes = shape[0] * shape[1] * dtype.bytes() / (along_rows * WARPGROUP_WARPS * 32);
        let fits = bytes <= MAX_HELD_BYTES && *words + bytes / 4 <= MAX_LOOP_REGISTERS;
        *words += if fits { bytes / 4 } else { 0 };
        fits
    }

    /// The registers of a thread that has its share of a dot's result.
    fn words(&self, result: Value) -> u32 {
        let Type { dtype, shape, .. } = self.func.ty(result);
        shape.elements() as u32 * dtype.bytes() / (self.num_warps * 32 * 4)
    }

    /// Whether a value is computed lane by lane from the result of a dot in the loop, of which these are the values.
    fn is_made_of_dot(&self, inside: &HashSet<Value>, value: Value) -> bool {
        let mut seen = HashSet::new();
        let mut todo = vec![value];
        while let Some(value) = todo.pop() {
            let is_new = inside.contains(&value) && seen.insert(value);
            let Some(op) = self.definitions.get(&value).filter(|_| is_new) else { continue };
            let operation = op.kind.operation();
            if let (Kind::If(branch), Some(place)) =
                (&op.kind, op.results.iter().position(|&result| result == value))
            {
                todo.extend([&branch.then, &branch.otherwise].map(|block| block.yields[place]));
            }
            match operation.layout_relation(self.func, &op.results) {
                LayoutRelation::Dot { .. } => return true,
                LayoutRelation::Lanewise { .. } => todo.extend(operation.operands()),
                _ => {}
            }
        }
        false
    }
}

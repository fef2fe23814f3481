//! Conversions of what a loop does not change are hoisted out of the loop, if that takes few registers: those of operands of dots to
//! the fragments that their instructions read, and those between the layouts of two users.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::{Convert, Dot, DotOperand, DotUnit, Effect, Kind};
use tile_ir::support::diagnostic::Loc;

use crate::gpu::layout::Distributed;
use crate::gpu::layout::dot::{DotMethod, method, mma_operand_layout};
use crate::gpu::layout::{Conversion, Layout, conversion};

/// The most bytes of an operand of a dot that a thread holds through a loop.
pub const MAX_HELD_BYTES: u32 = 128;
/// The most bytes that a thread holds through a loop of any other tile: as many as it has of the rows that an index vector names.
const MAX_INDEX_BYTES: u32 = 32;

/// Hoists conversions out of loops.
pub fn hoist_conversions(distributed: &mut Distributed) {
    let mut body = std::mem::take(&mut distributed.func.body);
    in_block(distributed, &mut body);
    distributed.func.body = body;
}

fn in_block(distributed: &mut Distributed, block: &mut Block) {
    for mut op in std::mem::take(&mut block.ops) {
        if matches!(op.kind, Kind::For(_) | Kind::While(_)) {
            let inside = op.kind.operation().blocks().into_iter().flat_map(Block::defined).collect();
            let mut pass = LoopConversions { distributed, inside, hoisted: HashMap::new(), before: vec![] };
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| pass.in_loop(block));
            block.ops.append(&mut pass.before);
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| in_block(distributed, block));
        block.ops.push(op);
    }
}

/// One loop.
struct LoopConversions<'d> {
    distributed: &'d mut Distributed,
    inside: HashSet<Value>,
    hoisted: HashMap<(Value, Layout), Value>,
    /// The hoisted operations.
    before: Vec<Op>,
}

impl LoopConversions<'_> {
    fn in_loop(&mut self, block: &mut Block) {
        let hoisted = self.invariant_conversions(block);
        for (index, mut op) in std::mem::take(&mut block.ops).into_iter().enumerate() {
            if hoisted.contains(&index) {
                op.results.iter().for_each(|result| _ = self.inside.remove(result));
                self.before.push(op);
                continue;
            }
            if let Kind::Dot(dot) = &mut op.kind {
                for which in DotOperand::ALL {
                    if let Some(layout) = self.fragment_layout(dot, which, op.results[0]) {
                        let operand = dot.operand_mut(which);
                        *operand = self.converted(*operand, layout, op.loc);
                    }
                }
            }
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| self.in_loop(block));
            block.ops.push(op);
        }
    }

    /// The conversions of a block that depend on values from outside of the loop alone, with what computes their operands, by their
    /// indices.
    fn invariant_conversions(&self, block: &Block) -> HashSet<usize> {
        let mut definitions: HashMap<Value, usize> = HashMap::new();
        let mut found = HashSet::new();
        for (index, op) in block.ops.iter().enumerate() {
            let operation = op.kind.operation();
            let is_known = |value: &Value| !self.inside.contains(value) || definitions.contains_key(value);
            let is_pure = operation.effect() == Effect::Pure && operation.access().is_none();
            let is_small = |value: &Value| {
                self.distributed.layouts.get(value).is_none_or(|layout| self.is_small(*value, layout))
            };
            let is_invariant = is_pure
                && operation.blocks().is_empty()
                && operation.operands().iter().all(is_known)
                && op.results.iter().all(is_small);
            if !is_invariant {
                continue;
            }
            definitions.extend(op.results.iter().map(|&result| (result, index)));
            let is_hoisted = matches!(op.kind, Kind::Convert(_)) && self.is_worth(block, op.results[0]);
            let mut todo = if is_hoisted { vec![index] } else { vec![] };
            while let Some(needed) = todo.pop() {
                if found.insert(needed) {
                    let operands = block.ops[needed].kind.operation().operands();
                    todo.extend(operands.iter().filter_map(|operand| definitions.get(operand)));
                }
            }
        }
        found
    }

    /// Whether a converted value may take its registers through the loop: operand A of warpgroups, or a few indices.
    fn is_worth(&self, block: &Block, value: Value) -> bool {
        let is_operand =
            |op: &Op| matches!(&op.kind, Kind::Dot(dot) if dot.unit == DotUnit::WgmmaRs && dot.a == value);
        let is_few = self.held_bytes(value, &self.distributed.layouts[&value]) <= MAX_INDEX_BYTES;
        is_few || block.ops.iter().any(is_operand)
    }

    fn is_small(&self, value: Value, layout: &Layout) -> bool {
        self.held_bytes(value, layout) <= MAX_HELD_BYTES
    }

    /// Bytes of a value that a thread holds in a layout.
    fn held_bytes(&self, value: Value, layout: &Layout) -> u32 {
        layout.register_count() as u32 * self.distributed.func.ty(value).dtype.bytes()
    }

    /// The layout in which the instruction takes an operand from outside of the loop, if it has another one and a
    /// thread's share is small.
    fn fragment_layout(&self, dot: &Dot, which: DotOperand, result: Value) -> Option<Layout> {
        let operand = dot.operand(which);
        let ty = self.distributed.func.ty(operand);
        let DotMethod::Mma(instruction) = method(ty.dtype, dot.input) else { return None };
        if self.inside.contains(&operand) || dot.unit.is_warpgroup() {
            return None;
        }
        let to = mma_operand_layout(instruction, which, &ty.shape, &self.distributed.layouts[&result]);
        let few = self.is_small(operand, &to);
        let fits = matches!(conversion(&self.distributed.layouts[&operand], &to), Conversion::Registers(_));
        (few && !fits).then_some(to)
    }

    fn converted(&mut self, value: Value, layout: Layout, loc: Loc) -> Value {
        let key = (value, layout);
        if let Some(&known) = self.hoisted.get(&key) {
            return known;
        }
        let ty = self.distributed.func.ty(value).clone();
        let converted = self.distributed.func.value(ty);
        self.distributed.layouts.insert(converted, key.1.clone());
        self.before.push(Op { kind: Convert { value }.into(), results: vec![converted], loc });
        self.hoisted.insert(key, converted);
        converted
    }
}

//! Conversions of loop-invariant dot operands to mma fragments are hoisted out of the loop, if that takes few
//! registers.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::{Convert, Dot, DotOperand, Kind};
use tile_ir::support::diagnostic::Loc;

use crate::gpu::layout::Distributed;
use crate::gpu::layout::dot::{DotMethod, method, mma_operand_layout};
use crate::gpu::layout::{Conversion, Layout, conversion};

/// The most bytes of an operand that a thread holds through a loop.
const MAX_BYTES: u32 = 128;

/// Hoists conversions of operands out of loops.
pub fn hoist_operand_conversion(distributed: &mut Distributed) {
    let mut body = std::mem::take(&mut distributed.func.body);
    in_block(distributed, &mut body);
    distributed.func.body = body;
}

fn in_block(distributed: &mut Distributed, block: &mut Block) {
    for mut op in std::mem::take(&mut block.ops) {
        if matches!(op.kind, Kind::For(_) | Kind::While(_)) {
            let mut pass = HoistOperands {
                distributed,
                inside: defined_in(&op),
                hoisted: HashMap::new(),
                before: vec![],
            };
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| pass.in_loop(block));
            block.ops.append(&mut pass.before);
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| in_block(distributed, block));
        block.ops.push(op);
    }
}

/// The values that an operation's blocks define.
fn defined_in(op: &Op) -> HashSet<Value> {
    let mut defined = HashSet::new();
    for block in op.kind.operation().blocks() {
        defined.extend(&block.args);
        for op in &block.ops {
            defined.extend(&op.results);
            defined.extend(defined_in(op));
        }
    }
    defined
}

/// One loop.
struct HoistOperands<'d> {
    distributed: &'d mut Distributed,
    inside: HashSet<Value>,
    hoisted: HashMap<(Value, Layout), Value>,
    /// The hoisted operations.
    before: Vec<Op>,
}

impl HoistOperands<'_> {
    fn in_loop(&mut self, block: &mut Block) {
        for op in &mut block.ops {
            if let Kind::Dot(dot) = &mut op.kind {
                for which in DotOperand::ALL {
                    if let Some(layout) = self.fragment_layout(dot, which, op.results[0]) {
                        let operand = dot.operand_mut(which);
                        *operand = self.converted(*operand, layout, op.loc);
                    }
                }
            }
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| self.in_loop(block));
        }
    }

    /// The layout in which the instruction takes an operand from outside of the loop, if it has another one and a
    /// thread's share is small.
    fn fragment_layout(&self, dot: &Dot, which: DotOperand, result: Value) -> Option<Layout> {
        let operand = dot.operand(which);
        let ty = self.distributed.func.ty(operand);
        let DotMethod::Mma(instruction) = method(ty.dtype, dot.input) else { return None };
        if self.inside.contains(&operand) {
            return None;
        }
        let to = mma_operand_layout(instruction, which, &ty.shape, &self.distributed.layouts[&result]);
        let few = to.register_count() as u32 * ty.dtype.bytes() <= MAX_BYTES;
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

//! What a loop multiplies by in every turn, and does not change, lies in registers as the instruction takes it before
//! the loop begins, if that takes few of them.

use std::collections::{HashMap, HashSet};

use crate::gpu::layout::assign::Distributed;
use crate::gpu::layout::dot::{DotMethod, DotOperand, method, mma_operand_layout};
use crate::gpu::layout::{Conversion, Layout, conversion};
use crate::ir::{Block, Op, Value};
use crate::ops::{Convert, Dot, Kind};
use crate::support::diagnostic::Loc;

/// Bytes of a factor that a thread keeps through a loop, at most.
const MAX_BYTES: u32 = 128;

/// Moves conversions of factors out of loops.
pub fn hoist_operand_conversions(distributed: &mut Distributed) {
    let mut body = std::mem::take(&mut distributed.func.body);
    in_block(distributed, &mut body);
    distributed.func.body = body;
}

fn in_block(distributed: &mut Distributed, block: &mut Block) {
    for mut op in std::mem::take(&mut block.ops) {
        if matches!(op.kind, Kind::For(_) | Kind::While(_)) {
            let mut pass =
                HoistOperands { distributed, inside: defined_in(&op), moved: HashMap::new(), before: vec![] };
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| pass.in_loop(block));
            block.ops.append(&mut pass.before);
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| in_block(distributed, block));
        block.ops.push(op);
    }
}

/// What an operation's blocks define.
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
    moved: HashMap<(Value, Layout), Value>,
    /// What is to stand before the loop.
    before: Vec<Op>,
}

impl HoistOperands<'_> {
    fn in_loop(&mut self, block: &mut Block) {
        for op in &mut block.ops {
            if let Kind::Dot(dot) = &mut op.kind {
                for side in DotOperand::ALL {
                    if let Some(layout) = self.wanted(dot, side, op.results[0]) {
                        let factor = dot.operand_mut(side);
                        *factor = self.converted(*factor, layout, op.loc);
                    }
                }
            }
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| self.in_loop(block));
        }
    }

    /// How the instruction takes a factor that comes from outside of the loop, if that is not how it lies and if a
    /// thread's part is small.
    fn wanted(&self, dot: &Dot, side: DotOperand, result: Value) -> Option<Layout> {
        let factor = dot.operand(side);
        let ty = self.distributed.func.ty(factor);
        let DotMethod::Mma(instruction) = method(ty.dtype, dot.input) else { return None };
        if self.inside.contains(&factor) {
            return None;
        }
        let to = mma_operand_layout(instruction, side, &ty.shape, &self.distributed.layouts[&result]);
        let few = to.register_count() as u32 * ty.dtype.bytes() <= MAX_BYTES;
        let lies = matches!(conversion(&self.distributed.layouts[&factor], &to), Conversion::Registers(_));
        (few && !lies).then_some(to)
    }

    fn converted(&mut self, value: Value, layout: Layout, loc: Loc) -> Value {
        let key = (value, layout);
        if let Some(&known) = self.moved.get(&key) {
            return known;
        }
        let ty = self.distributed.func.ty(value).clone();
        let converted = self.distributed.func.value(ty);
        self.distributed.layouts.insert(converted, key.1.clone());
        self.before.push(Op { kind: Convert { value }.into(), results: vec![converted], loc });
        self.moved.insert(key, converted);
        converted
    }
}

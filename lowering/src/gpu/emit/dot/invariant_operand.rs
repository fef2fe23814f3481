//! Loop-invariant operands of dots. Those that do not fit into registers as the instruction reads them
//! (`gpu::opt::hoist_operand_conversion`) are written to shared memory once, before the loop.

use std::collections::HashMap;

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::loop_variable;
use tile_ir::ops::{DotOperand, Kind};

use crate::gpu::emit::dot::{Builder, Gpu, ScratchOperand, ScratchOperands};
use crate::gpu::layout::Distributed;
use crate::mlir::builder::Val;

/// As [`Distributed::kept`].
type InvariantOperands = HashMap<(Value, DotOperand), Value>;

/// Finds them, each at the outermost loop that does not change it.
pub(in crate::gpu::emit) fn find(distributed: &Distributed) -> InvariantOperands {
    let mut invariants = InvariantOperands::new();
    if distributed.num_ctas == 1 {
        distributed.func.body.walk(&mut |op| {
            if let Kind::For(body) = &op.kind
                && !op.results.is_empty()
            {
                in_loop(distributed, &body.body, &mut invariants);
            }
        });
    }
    invariants
}

fn in_loop(distributed: &Distributed, body: &Block, invariants: &mut InvariantOperands) {
    let inside = body.defined();
    for InvariantOperand { result, side, value, .. } in dot_operands(distributed, body) {
        if !inside.contains(&value) {
            invariants.entry((result, side)).or_insert(body.args[0]);
        }
    }
}

/// An operand of a dot that goes through shared memory.
struct InvariantOperand {
    result: Value,
    side: DotOperand,
    value: Value,
    staged: ScratchOperand,
}

/// The operands of the dots in a loop.
fn dot_operands(distributed: &Distributed, body: &Block) -> Vec<InvariantOperand> {
    let mut found = vec![];
    body.walk(&mut |op| {
        let Kind::Dot(dot) = &op.kind else { return };
        for (side, staged) in
            DotOperand::ALL.into_iter().zip(ScratchOperands::new(distributed, dot, op).staged)
        {
            let operand =
                |staged| InvariantOperand { result: op.results[0], side, value: dot.operand(side), staged };
            found.extend(staged.map(operand));
        }
    });
    found
}

/// The invariant operands of a loop.
fn of_loop(distributed: &Distributed, body: &Block) -> Vec<InvariantOperand> {
    let variable = loop_variable(body);
    let is_invariant = |operand: &InvariantOperand| {
        let own = distributed.invariant_operands.get(&(operand.result, operand.side));
        own.is_some() && own.copied() == variable
    };
    dot_operands(distributed, body).into_iter().filter(is_invariant).collect()
}

/// Shared memory for the invariant operands of a loop.
pub(in crate::gpu::emit) fn scratch(distributed: &Distributed, body: &Block) -> u32 {
    of_loop(distributed, body).iter().map(|operand| operand.staged.bytes(distributed, operand.value)).sum()
}

impl Gpu<'_> {
    /// Writes a loop's invariant operands to shared memory.
    pub(in crate::gpu::emit) fn write_invariant_operands(&mut self, b: &mut Builder, body: &Block, op: &Op) {
        let distributed = &self.plan.schedule.distributed;
        let list = of_loop(distributed, body);
        if list.is_empty() {
            return;
        }
        let place = self.smem.scratch(op.results[0]);
        self.before_write(b, place);
        let mut base = b.offset_bytes(self.smem_base(), place.start as i32);
        let mut bases: Vec<((Value, DotOperand), Val)> = vec![];
        for InvariantOperand { result, side, value, staged } in list {
            self.write_smem_tile(b, value, &staged.staging, base);
            bases.push(((result, side), base));
            base = b.offset_bytes(base, staged.bytes(distributed, value) as i32);
        }
        self.barrier(b);
        self.membar.read(place);
        self.invariant_operands.extend(bases);
    }
}

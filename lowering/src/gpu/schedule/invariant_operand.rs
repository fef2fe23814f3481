//! Loop-invariant operands of dots. Those that do not fit into registers as the instruction reads them
//! (`gpu::opt::hoist_conversions`) are written to shared memory once, before the loop.

use std::collections::HashMap;

use tile_ir::ir::{Block, Value};
use tile_ir::ops::schedule::loop_variable;
use tile_ir::ops::{DotOperand, Kind};

use crate::gpu::layout::Distributed;
use crate::gpu::layout::scratch_operands::{ScratchOperand, ScratchOperands};

/// As [`Distributed::invariant_operands`].
type InvariantOperands = HashMap<(Value, DotOperand), Value>;

/// Finds them, each at the outermost loop that does not change it.
pub fn find(distributed: &Distributed) -> InvariantOperands {
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
pub struct InvariantOperand {
    pub result: Value,
    pub side: DotOperand,
    pub value: Value,
    pub staged: ScratchOperand,
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
pub fn of_loop(distributed: &Distributed, body: &Block) -> Vec<InvariantOperand> {
    let variable = loop_variable(body);
    let is_invariant = |operand: &InvariantOperand| {
        let own = distributed.invariant_operands.get(&(operand.result, operand.side));
        own.is_some() && own.copied() == variable
    };
    dot_operands(distributed, body).into_iter().filter(is_invariant).collect()
}

/// Shared memory for the invariant operands of a loop.
pub fn scratch(distributed: &Distributed, body: &Block) -> u32 {
    of_loop(distributed, body).iter().map(|operand| operand.staged.bytes(distributed, operand.value)).sum()
}

//! Factors that a loop multiplies by in every turn and does not change. Those that do not fit into registers as the
//! instruction takes them (`layout::hoist`) are written to shared memory once, before the loop.

use std::collections::HashMap;

use crate::gpu::emit::dot::{Builder, Gpu, StagedOperand, StagedOperands};
use crate::gpu::layout::Distributed;
use crate::gpu::layout::dot::DotOperand;
use crate::ir::{Op, Value};
use crate::mlir::builder::Val;
use crate::ops::{For, Kind};

/// As [`Distributed::kept`].
type InvariantOperands = HashMap<(Value, DotOperand), Value>;

/// Finds them, each at the outermost loop that does not change it.
pub(in crate::gpu::emit) fn find(distributed: &Distributed) -> InvariantOperands {
    let mut kept = InvariantOperands::new();
    if distributed.num_ctas == 1 {
        distributed.func.body.walk(&mut |op| {
            if let Kind::For(body) = &op.kind
                && !op.results.is_empty()
            {
                in_loop(distributed, body, &mut kept);
            }
        });
    }
    kept
}

fn in_loop(distributed: &Distributed, body: &For, kept: &mut InvariantOperands) {
    let inside = body.body.defined();
    for InvariantOperand { result, side, value, .. } in factors(distributed, body) {
        if !inside.contains(&value) {
            kept.entry((result, side)).or_insert(body.body.args[0]);
        }
    }
}

/// A factor of a product that goes through shared memory.
struct InvariantOperand {
    result: Value,
    side: DotOperand,
    value: Value,
    staged: StagedOperand,
}

/// Those of the products in a loop.
fn factors(distributed: &Distributed, body: &For) -> Vec<InvariantOperand> {
    let mut found = vec![];
    body.body.walk(&mut |op| {
        let Kind::Dot(dot) = &op.kind else { return };
        for (side, staged) in
            DotOperand::ALL.into_iter().zip(StagedOperands::new(distributed, dot, op).staged)
        {
            let factor =
                |staged| InvariantOperand { result: op.results[0], side, value: dot.operand(side), staged };
            found.extend(staged.map(factor));
        }
    });
    found
}

/// Those that a loop keeps.
fn of_loop(distributed: &Distributed, body: &For) -> Vec<InvariantOperand> {
    let is_kept = |factor: &InvariantOperand| {
        distributed.invariant_operands.get(&(factor.result, factor.side)) == Some(&body.body.args[0])
    };
    factors(distributed, body).into_iter().filter(is_kept).collect()
}

/// Shared memory for them.
pub(in crate::gpu::emit) fn scratch(distributed: &Distributed, body: &For) -> u32 {
    of_loop(distributed, body).iter().map(|factor| factor.staged.bytes(distributed, factor.value)).sum()
}

impl Gpu<'_> {
    /// Writes what a loop keeps to shared memory.
    pub(in crate::gpu::emit) fn keep(&mut self, b: &mut Builder, body: &For, op: &Op) {
        let distributed = &self.plan.distributed;
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

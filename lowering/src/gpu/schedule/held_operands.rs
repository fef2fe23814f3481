//! Operands A that a dot reads from the same registers in every iteration of a loop.
//!
//! ptxas may give those registers to operand A of another dot of the loop, as if nothing read them in the next iteration: 12.9.86 and
//! 13.0.88 do, 13.2.78 does not. So each iteration makes the words again, by an exclusive or with a zero that ptxas does not know:
//! the lanes that are not active. Loops in which both dots are in flight at once need no copy, since both operands are live then.

use std::collections::HashSet;

use tile_ir::ir::{Block, Func, Value};
use tile_ir::ops::schedule::WgmmaOperandA;
use tile_ir::ops::{Effect, Kind, Wgmma};

/// Finds the dots with such an operand in loops that have another dot with operand A in registers, by their results.
pub fn held_operands(func: &Func) -> HashSet<Value> {
    let mut found = HashSet::new();
    func.body.walk(&mut |op| {
        if let Kind::Loop(body) = &op.kind
            && !body.overlapped
        {
            in_loop(&body.body, &mut found);
        }
    });
    found
}

fn in_loop(body: &Block, found: &mut HashSet<Value>) {
    let mut dots = vec![];
    body.walk(&mut |op| {
        if let Kind::Wgmma(Wgmma { a: WgmmaOperandA::Regs(a) | WgmmaOperandA::Words(a), .. }) = op.kind {
            dots.push((op.results[0], a));
        }
    });
    if dots.len() > 1 {
        let mut varying: HashSet<Value> = body.args.iter().copied().collect();
        collect_varying(body, &mut varying);
        found.extend(dots.into_iter().filter(|(_, a)| !varying.contains(a)).map(|(dot, _)| dot));
    }
}

/// Collects what differs between iterations: what reads memory or has blocks, and what is made of such values.
fn collect_varying(block: &Block, varying: &mut HashSet<Value>) {
    for op in &block.ops {
        let operation = op.kind.operation();
        for nested in operation.blocks() {
            varying.extend(&nested.args);
            collect_varying(nested, varying);
        }
        let is_fixed = operation.effect() == Effect::Pure
            && operation.access().is_none()
            && operation.blocks().is_empty()
            && !matches!(op.kind, Kind::Wgmma(_));
        if !is_fixed || operation.operands().iter().any(|operand| varying.contains(operand)) {
            varying.extend(&op.results);
        }
    }
}

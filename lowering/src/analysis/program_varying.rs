//! Values that may differ between programs.
//!
//! What is the same in all of them, a vector that each multiplies with its own rows say, every program of a multiprocessor reads from the
//! same addresses: the first-level cache serves all but the first.

use std::collections::HashSet;

use crate::ir::{Block, Func, Value};
use crate::ops::Kind;

/// Values that depend on a program's place in the grid or on memory, and what loops carry. A loop's variable is among them where its
/// first value or its step is.
pub fn varying_between_programs(func: &Func) -> HashSet<Value> {
    let mut varying = HashSet::new();
    visit(&func.body, &mut varying);
    varying
}

fn visit(block: &Block, varying: &mut HashSet<Value>) {
    for op in &block.ops {
        let operation = op.kind.operation();
        let varies = matches!(op.kind, Kind::ProgramId(_))
            || operation.access().is_some()
            || !operation.blocks().is_empty()
            || operation.operands().iter().any(|operand| varying.contains(operand));
        for nested in operation.blocks() {
            let is_variable_uniform = matches!(&op.kind, Kind::For(body)
                if !varying.contains(&body.low) && !varying.contains(&body.step));
            varying.extend(&nested.args[usize::from(is_variable_uniform)..]);
            visit(nested, varying);
        }
        if varies {
            varying.extend(&op.results);
        }
    }
}

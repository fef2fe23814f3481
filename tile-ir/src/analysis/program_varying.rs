//! Values that differ between programs, or between the iterations of a program too.
//!
//! What is the same in all programs, a vector that each multiplies with its own rows say, every program of a multiprocessor reads from the
//! same addresses: the first-level cache serves all but the first. What is the same in all iterations as well does not stream.

use std::collections::HashSet;

use crate::ir::{Block, Func, Value};
use crate::ops::{Effect, Kind, Rotate};

use super::unordered_access::Touch;

/// What values may differ between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Across {
    /// A loop's variable counts where its first value or its step does.
    Programs,
    /// As [`Across::Programs`], where all programs read the same from one place of a slice that nothing writes.
    ProgramsOfALaunch,
    /// All that a loop carries counts; the rotation of a row, which reorders its elements, does not.
    ProgramsAndIterations,
}

/// Values that depend on a program's place in the grid or on memory, and what loops carry.
pub fn varying(func: &Func, across: Across) -> HashSet<Value> {
    let mut found = HashSet::new();
    visit(&func.body, across, &mut found);
    found
}

fn visit(block: &Block, across: Across, found: &mut HashSet<Value>) {
    let within_program = across == Across::ProgramsAndIterations;
    for op in &block.ops {
        let operation = op.kind.operation();
        let operands = if let Kind::Rotate(Rotate { range, .. }) = op.kind
            && within_program
        {
            vec![range]
        } else {
            operation.operands()
        };
        let memory = if across == Across::ProgramsOfALaunch {
            Touch::of(op).is_some() && operation.effect() != Effect::Pure
        } else {
            operation.access().is_some()
        };
        let varies = matches!(op.kind, Kind::ProgramId(_) | Kind::ReadRegister(_))
            || memory
            || !operation.blocks().is_empty()
            || operands.iter().any(|operand| found.contains(operand));
        for nested in operation.blocks() {
            let is_variable_uniform = matches!(&op.kind, Kind::For(body)
                if !within_program && !found.contains(&body.low) && !found.contains(&body.step));
            found.extend(&nested.args[usize::from(is_variable_uniform)..]);
            visit(nested, across, found);
        }
        if varies {
            found.extend(&op.results);
        }
    }
}

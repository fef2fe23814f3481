//! What each operation does in the simulator.

use std::rc::Rc;

use super::agent::Step;
use super::machine::Cx;
use super::tile::TileValue;
use tile_ir::ir::{Func, Op};
use tile_ir::ops::*;

/// An operation, and its operands as tiles.
pub struct Inputs<'a> {
    pub func: &'a Func,
    pub op: &'a Op,
    pub operands: Vec<Rc<TileValue>>,
}

/// An operation in the simulator. Errors say what the schedule does that it must not.
pub trait Simulate {
    /// The results of an operation that only computes.
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        Err(format!("{} does more than compute", inputs.op.kind.operation().name()))
    }

    /// Runs the operation in an agent.
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let operands = op.kind.operation().operands().into_iter().map(|operand| cx.tile(operand));
        let operands = operands.collect::<Result<_, String>>()?;
        let results = self.evaluate(&Inputs { func: cx.shared.func, op, operands })?;
        cx.define(op, results)
    }

    /// Goes on where a block of the operation has ended.
    fn end_block<'f>(&'f self, _: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        Err(format!("{} runs no block", op.kind.operation().name()))
    }
}

macro_rules! simulators {
    ($($name:ident),* $(,)?) => {
        /// How an operation is simulated.
        pub fn simulator(kind: &Kind) -> &dyn Simulate {
            match kind {
                $(Kind::$name(op) => op,)*
            }
        }
    };
}

for_each_op!(simulators);

//! Reductions that exchange their partial results at one barrier.

use super::{Operation, operand_fields};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Block, Func, Value};
use crate::ops::syntax::syntax;
use crate::ops::{Kind, expect_types};

/// Runs the reductions in its block together: all write the partial results of their warps, wait once, and read those of all warps.
/// None of them takes the result of another.
#[derive(Clone, Debug)]
pub struct ReduceBatch {
    /// The reductions; it yields their results.
    pub body: Block,
}

syntax!(ReduceBatch: "reduce_batch" {body: Block::default()});

impl Operation for ReduceBatch {
    operand_fields!();

    fn result_count(&self) -> usize {
        self.body.yields.len()
    }

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.body]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.body]
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let mut reduced = vec![];
        for op in &self.body.ops {
            if !matches!(op.kind, Kind::Reduce(_)) {
                return Err(format!("{} is no reduction", op.kind.operation().name()));
            }
            if op.kind.operation().operands().iter().any(|operand| reduced.contains(operand)) {
                return Err("a reduction takes the result of another one".into());
            }
            reduced.extend(&op.results);
        }
        if self.body.yields != reduced {
            return Err("it yields other values than its reductions give".into());
        }
        let mut pairs = results.iter().zip(&reduced);
        pairs.try_for_each(|(&result, &own)| expect_types("the result", func.ty(result), func.ty(own)))
    }

    fn layout_relation(&self, _: &Func, results: &[Value]) -> LayoutRelation {
        let pairs = self.body.yields.iter().zip(results);
        LayoutRelation::Tied(pairs.map(|(&own, &result)| vec![own, result]).collect())
    }
}

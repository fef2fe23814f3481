//! Reductions that exchange their partial results at one barrier.

use super::{Operands, Operation, expect_storage, is_mbarrier, operand_fields, stages};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Block, Func, ParseError, TextReader, Value};
use crate::ops::syntax::syntax;
use crate::ops::{Kind, expect_types};

/// Runs the reductions in its block together: all write the partial results of their warps, wait once, and read those of all warps.
/// None of them takes the result of another.
#[derive(Clone, Debug)]
pub struct ReduceBatch {
    /// How each of them exchanges partial results; empty where each has one buffer and all wait at a barrier.
    pub exchanges: Vec<PartialExchange>,
    /// The reductions; it yields their results.
    pub body: Block,
}

/// How a reduction exchanges the partial results of warps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PartialExchange {
    /// The loop in whose body the batch stands, by the first argument there: its even and odd iterations have buffers of their own. Else
    /// there is one buffer.
    pub parity: Option<Value>,
    /// The `mbarrier` that stores of all blocks of a cluster complete, one for each buffer. Else all warps wait at a barrier.
    pub barrier: Option<Value>,
}

syntax!(ReduceBatch: "reduce_batch" ["exchange" exchanges] {body: Block::default()});

impl ReduceBatch {
    /// How the reduction with this index exchanges partial results.
    pub fn exchange(&self, index: usize) -> PartialExchange {
        self.exchanges.get(index).copied().unwrap_or_default()
    }
}

impl PartialExchange {
    fn verify(self, func: &Func) -> Result<(), String> {
        if let Some(parity) = self.parity {
            let ty = func.ty(parity);
            if !ty.is_scalar() || ty.dtype.is_float() {
                return Err(format!("the parity of {ty} is unknown"));
            }
        }
        let Some(barrier) = self.barrier else { return Ok(()) };
        expect_storage("the barrier", func, barrier, is_mbarrier)?;
        let needed = if self.parity.is_some() { 2 } else { 1 };
        if stages(func, barrier) < Some(needed) { Err("a buffer has no barrier".into()) } else { Ok(()) }
    }
}

impl Operands for PartialExchange {
    fn collect(&self, to: &mut Vec<Value>) {
        self.parity.collect(to);
        self.barrier.collect(to);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.parity.change(by);
        self.barrier.change(by);
    }
}

/// `parity %loop barrier %barrier`, or `one_buffer` where there is no parity; with commas between.
impl FieldText for Vec<PartialExchange> {
    fn write(&self, out: &mut TextWriter) {
        for (index, exchange) in self.iter().enumerate() {
            if index > 0 {
                out.push(",");
            }
            match &exchange.parity {
                Some(_) => out.attribute("parity", &exchange.parity),
                None => out.word("one_buffer"),
            }
            out.attribute("barrier", &exchange.barrier);
        }
    }

    fn read(input: &mut TextReader) -> Result<Vec<PartialExchange>, ParseError> {
        input.list(|input| {
            let parity: Option<Value> = input.attribute("parity")?;
            if parity.is_none() {
                input.expect("one_buffer")?;
            }
            Ok(PartialExchange { parity, barrier: input.attribute("barrier")? })
        })
    }

    fn absent() -> Option<Vec<PartialExchange>> {
        Some(vec![])
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl Operation for ReduceBatch {
    operand_fields!(exchanges);

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
        if !self.exchanges.is_empty() {
            expect_types("the number of exchanges", self.exchanges.len(), self.body.ops.len())?;
        }
        self.exchanges.iter().try_for_each(|exchange| exchange.verify(func))?;
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

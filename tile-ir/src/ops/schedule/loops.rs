//! Loops by the index of the iteration, which passes split and overlap.

use super::{Operation, operand_fields};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, OperationText, TextWriter};
use crate::ir::{Block, Func, ParseError, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::ops::{For, Kind, expect_types};
use crate::support::dtype::DType;

/// The trip count of a `for` over this range.
#[derive(Clone, Copy, Debug)]
pub struct TripCount {
    pub low: Value,
    pub high: Value,
    pub step: Value,
    pub closed: bool,
    /// Whether it is known to be at least 1.
    pub runs: bool,
}

impl TripCount {
    pub fn of(body: &For, runs: bool) -> TripCount {
        TripCount { low: body.low, high: body.high, step: body.step, closed: body.closed, runs }
    }
}

impl OperationText for TripCount {
    fn name(&self) -> &'static str {
        "trip_count"
    }

    fn write(&self, out: &mut TextWriter) {
        self.low.write(out);
        out.push(if self.closed { "..=" } else { ".." });
        out.name(self.high);
        out.attribute("step", &self.step);
        out.attribute("runs", &self.runs);
    }

    fn is_named(name: &str) -> bool {
        name == "trip_count"
    }

    fn read(_: &str, input: &mut TextReader) -> Result<TripCount, ParseError> {
        let low = input.value()?;
        let closed = input.one_of(&[("..", false), ("..=", true)])?;
        let high = input.value()?;
        Ok(TripCount { low, high, step: input.attribute("step")?, closed, runs: input.attribute("runs")? })
    }
}

impl Operation for TripCount {
    operand_fields!(low, high, step);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the end", func.ty(self.high), func.ty(self.low))?;
        expect_types("the step", func.ty(self.step), func.ty(self.low))?;
        expect_types("the result", func.ty(results[0]), &Type::scalar(DType::I64))
    }

    fn axis_info(&self, _: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        vec![AxisInfo { axes: vec![], divisor: 1, range: (0, i64::MAX.into()) }]
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

/// The loop variable of an iteration: `low + index * step`; a step below 1 counts as 1.
#[derive(Clone, Copy, Debug)]
pub struct Induction {
    pub index: Value,
    pub low: Value,
    pub step: Value,
}

syntax!(Induction: "induction" index [low] [step]);

impl Operation for Induction {
    operand_fields!(index, low, step);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the index", func.ty(self.index), &Type::scalar(DType::I64))?;
        expect_types("the step", func.ty(self.step), func.ty(self.low))?;
        expect_types("the result", func.ty(results[0]), func.ty(self.low))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

/// The iterations `first..end` of a loop, with carried values.
#[derive(Clone, Debug)]
pub struct Loop {
    pub first: Value,
    pub end: Value,
    pub inits: Vec<Value>,
    /// Takes the index of the iteration, then the carried values; yields the carried values.
    pub body: Block,
    /// Whether the index is counted in 32 bits.
    pub narrow: bool,
    /// Whether dots are in flight from one iteration to the next.
    pub overlapped: bool,
}

impl OperationText for Loop {
    fn name(&self) -> &'static str {
        "loop"
    }

    fn write(&self, out: &mut TextWriter) {
        self.first.write(out);
        out.push("..");
        out.name(self.end);
        out.attribute("carry", &self.inits);
        out.attribute("narrow", &self.narrow);
        out.attribute("overlapped", &self.overlapped);
    }

    fn is_named(name: &str) -> bool {
        name == "loop"
    }

    fn read(_: &str, input: &mut TextReader) -> Result<Loop, ParseError> {
        let first = input.value()?;
        input.expect("..")?;
        let end = input.value()?;
        let (inits, narrow) = (input.attribute("carry")?, input.attribute("narrow")?);
        let (body, overlapped) = (Block::default(), input.attribute("overlapped")?);
        Ok(Loop { first, end, inits, body, narrow, overlapped })
    }
}

impl Operation for Loop {
    fn result_count(&self) -> usize {
        self.inits.len()
    }

    fn block_args(&self, func: &Func, _: usize) -> Vec<Type> {
        let carried = self.inits.iter().map(|&init| func.ty(init).clone());
        [Type::scalar(DType::I64)].into_iter().chain(carried).collect()
    }

    operand_fields!(first, end, inits);

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.body]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.body]
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let index = Type::scalar(DType::I64);
        for value in [self.first, self.end, self.body.args[0]] {
            expect_types("an index", func.ty(value), &index)?;
        }
        let lists = [&self.body.args[1..], &self.body.yields, results];
        for list in lists {
            expect_types("the number of carried values", list.len(), self.inits.len())?;
            let mut pairs = list.iter().zip(&self.inits);
            pairs.try_for_each(|(&value, &init)| {
                expect_types("a carried value", func.ty(value), func.ty(init))
            })?;
        }
        Ok(())
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        env.set(self.body.args[0], AxisInfo { axes: vec![], divisor: 1, range: (0, i64::MAX.into()) });
        env.carry(&self.inits, &self.body.args[1..], &self.body)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

/// The variable of the loop with this body: the first argument, or what follows from it if that is the index of the iteration.
pub fn loop_variable(body: &Block) -> Option<Value> {
    let first = *body.args.first()?;
    let induction = body.ops.iter().find(|op| matches!(&op.kind, Kind::Induction(own) if own.index == first));
    Some(induction.map_or(first, |op| op.results[0]))
}

/// The first iteration in which the loop variable plus `terms` is at least 0, or above 0 if `strict`; terms that are subtracted are
/// marked. 0 where that is so from the beginning; it may be beyond the trip count. `v < c` first fails where `v - c >= 0`, `v <= c`
/// where `v - c > 0`.
#[derive(Clone, Debug)]
pub struct IterationBound {
    pub low: Value,
    pub step: Value,
    /// Each with whether it is added.
    pub terms: Vec<(bool, Value)>,
    pub strict: bool,
}

syntax!(IterationBound: "iteration_bound" low [step] terms [strict]);

impl Operation for IterationBound {
    fn operands(&self) -> Vec<Value> {
        [self.low, self.step].into_iter().chain(self.terms.iter().map(|&(_, term)| term)).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        let terms = self.terms.iter_mut().map(|(_, term)| term);
        [&mut self.low, &mut self.step].into_iter().chain(terms).for_each(|value| *value = change(*value));
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the result", func.ty(results[0]), &Type::scalar(DType::I64))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

/// Each term behind `plus` or `minus`.
impl FieldText for Vec<(bool, Value)> {
    fn write(&self, out: &mut TextWriter) {
        for (plus, term) in self {
            out.word(if *plus { "plus" } else { "minus" });
            term.write(out);
        }
    }

    fn read(input: &mut TextReader) -> Result<Vec<(bool, Value)>, ParseError> {
        let mut terms = vec![];
        while input.begins("plus") || input.begins("minus") {
            let plus = input.one_of(&[("plus", true), ("minus", false)])?;
            terms.push((plus, input.value()?));
        }
        Ok(terms)
    }
}

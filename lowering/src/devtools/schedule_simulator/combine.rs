//! Reductions, scans and other operations with a block that is run on single elements.

use std::collections::HashMap;
use std::rc::Rc;

use super::compute::row;
use super::number::Number;
use super::simulate::{Inputs, Simulate, simulator};
use super::tile::{Elements, TileValue, extents, for_each_index, row_major};
use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::{Combination, InlinePtx, Kind, Reduce, Scan};

/// A block of lanewise operations, run on scalars.
struct ScalarBlock<'a> {
    func: &'a Func,
    values: HashMap<Value, Rc<TileValue>>,
}

impl ScalarBlock<'_> {
    fn run(&mut self, block: &Block) -> Result<Vec<Rc<TileValue>>, String> {
        for op in &block.ops {
            let results = self.op(op)?;
            self.values.extend(op.results.iter().copied().zip(results));
        }
        self.get(&block.yields)
    }

    fn get(&self, values: &[Value]) -> Result<Vec<Rc<TileValue>>, String> {
        let found = values.iter().map(|value| self.values.get(value).cloned());
        found.collect::<Option<_>>().ok_or_else(|| "a combination uses a value from outside".to_string())
    }

    fn op(&mut self, op: &Op) -> Result<Vec<Rc<TileValue>>, String> {
        if let Kind::If(branch) = &op.kind {
            let taken = self.get(&[branch.condition])?[0].is_true();
            return self.run(if taken { &branch.then } else { &branch.otherwise });
        }
        let operands = self.get(&op.kind.operation().operands())?;
        let results = simulator(&op.kind).evaluate(&Inputs { func: self.func, op, operands })?;
        Ok(results.into_iter().map(Rc::new).collect())
    }
}

/// What a block gives for these arguments.
fn apply(func: &Func, block: &Block, args: &[Number]) -> Result<Vec<Number>, String> {
    if let [Op { kind: Kind::Scalar(scalar), .. }] = &block.ops[..]
        && scalar.args == block.args
    {
        return Ok(vec![row(scalar.op, scalar.dtype(func), args)?]);
    }
    let scalars = block.args.iter().zip(args);
    let values = scalars.map(|(&arg, &number)| (arg, Rc::new(TileValue::scalar(func.ty(arg).dtype, number))));
    let results = ScalarBlock { func, values: values.collect() }.run(block)?;
    Ok(results.iter().map(|result| result.number()).collect())
}

impl Simulate for InlinePtx {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let mut numbers = vec![];
        for position in 0..inputs.operands[0].elements.len() {
            let args: Vec<Number> =
                inputs.operands.iter().map(|operand| operand.elements.get(position)).collect();
            numbers.extend(apply(inputs.func, &self.cpu, &args)?);
        }
        let elements = Elements::of(inputs.dtype(), numbers.into_iter());
        Ok(vec![TileValue { shape: inputs.shape(), elements }])
    }
}

impl Inputs<'_> {
    /// Combines the elements of a line one after the other; every partial result is handed on with its position.
    fn fold_line(
        &self,
        combination: &Combination,
        line: &[usize],
        mut partial: impl FnMut(usize, &[Number]),
    ) -> Result<(), String> {
        let at = |position: usize| self.operands.iter().map(move |operand| operand.elements.get(position));
        // The accumulated numbers, and those of the next element behind them.
        let mut args: Vec<Number> = at(line[0]).collect();
        partial(line[0], &args);
        for &position in &line[1..] {
            args.extend(at(position));
            args = apply(self.func, &combination.block, &args)?;
            partial(position, &args);
        }
        Ok(())
    }
}

/// Tiles of so many elements for the results of a combination.
fn empty_results(inputs: &Inputs) -> Vec<TileValue> {
    inputs.op.results.iter().map(|&result| TileValue::zeros(inputs.func.ty(result))).collect()
}

impl Simulate for Reduce {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let operand = &inputs.operands[0];
        let kept = (0..operand.shape.len()).filter(|axis| !self.axes.contains(axis));
        let mut results = empty_results(inputs);
        let mut strides = vec![0; operand.shape.len()];
        kept.zip(row_major(&results[0].shape)).for_each(|(axis, stride)| strides[axis] = stride);
        let mut lines = vec![vec![]; results[0].elements.len()];
        let mut position = 0;
        for_each_index(&operand.shape, |index| {
            let target: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
            lines[target].push(position);
            position += 1;
        });
        for (target, line) in lines.iter().enumerate() {
            inputs.fold_line(&self.combination, line, |_, acc| {
                results.iter_mut().zip(acc).for_each(|(result, &number)| result.elements.set(target, number));
            })?;
        }
        Ok(results)
    }
}

impl Simulate for Scan {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let mut results = empty_results(inputs);
        debug_assert_eq!(results[0].shape, extents(self.combination.shape(inputs.func)));
        let mut lines = inputs.operands[0].lines(self.axis);
        if self.reverse {
            lines.iter_mut().for_each(|line| line.reverse());
        }
        for line in &lines {
            inputs.fold_line(&self.combination, line, |position, acc| {
                results
                    .iter_mut()
                    .zip(acc)
                    .for_each(|(result, &number)| result.elements.set(position, number));
            })?;
        }
        Ok(results)
    }
}

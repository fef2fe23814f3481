//! The laws of the tile IR, checked after every stage that builds or changes it. A violation is our bug.

use std::collections::HashSet;

use super::{Block, Func, Op, ParamKind, Type, Value, shape_problem};
use crate::ops::expect_types;
use crate::support::dtype::DType;

/// Checks the laws; the error says which operation breaks which.
pub fn verify(func: &Func) -> Result<(), String> {
    for index in 0..func.value_count() {
        let ty = func.ty(Value(index as u32));
        let shape: Vec<i128> = ty.shape.iter().map(|&extent| i128::from(extent)).collect();
        if let Some(problem) = shape_problem(&shape) {
            return Err(format!("value of type {ty}: {problem}"));
        }
    }
    for view in &func.views {
        expect_types("the number of a view's strides", view.strides.len(), view.rank())?;
        for &scalar in view.shape.iter().chain(&view.strides) {
            expect_types("an extent or a stride", func.ty(scalar), &Type::scalar(DType::I64))?;
        }
    }
    let mut verifier = Verifier { func, defined: HashSet::new() };
    for param in &func.params {
        if let ParamKind::Scalar { value, .. } = param.kind {
            verifier.define(value)?;
        }
    }
    if !func.body.args.is_empty() || !func.body.yields.is_empty() {
        return Err("a kernel's body takes and yields nothing".into());
    }
    verifier.block(&func.body)
}

/// Checks the laws of an operation by itself, once its blocks have the right arguments.
pub(super) fn verify_operation(func: &Func, op: &Op) -> Result<(), String> {
    let operation = op.kind.operation();
    expect_types("the number of results", op.results.len(), operation.result_count())
        .and_then(|()| operation.verify(func, &op.results))
        .map_err(|what| format!("{}: {what}", operation.name()))
}

struct Verifier<'f> {
    func: &'f Func,
    defined: HashSet<Value>,
}

impl Verifier<'_> {
    fn define(&mut self, value: Value) -> Result<(), String> {
        if self.defined.insert(value) { Ok(()) } else { Err(format!("{value:?} is defined twice")) }
    }

    fn block(&mut self, block: &Block) -> Result<(), String> {
        // Values of a nested block are unknown outside it.
        let outer = self.defined.clone();
        for &arg in &block.args {
            self.define(arg)?;
        }
        for op in &block.ops {
            let operation = op.kind.operation();
            let fail = |what: String| Err(format!("{}: {what}", operation.name()));
            for operand in operation.operands() {
                if !self.defined.contains(&operand) {
                    return fail(format!("operand {operand:?} is not defined here"));
                }
            }
            let outside = operation.isolated().then(|| std::mem::take(&mut self.defined));
            for nested in operation.blocks() {
                self.block(nested)?;
            }
            if let Some(outside) = outside {
                self.defined = outside;
            }
            verify_operation(self.func, op)?;
            for &result in &op.results {
                self.define(result)?;
            }
        }
        for value in &block.yields {
            if !self.defined.contains(value) {
                return Err(format!("yielded {value:?} is not defined"));
            }
        }
        self.defined = outer;
        Ok(())
    }
}

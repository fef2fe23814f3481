//! A row applied to tiles, as an operation of the IR.

use super::{Scalar, TypeRule, row};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::polynomial::{Polynomial, PolynomialEnv};
use crate::ir::text::{FieldText, OperationText, TextWriter};
use crate::ir::{Func, ParseError, TextReader, Value};
use crate::ops::{Effect, Operation, expect_types};
use crate::support::dtype::DType;

impl OperationText for Scalar {
    fn name(&self) -> &'static str {
        self.op.name
    }

    fn write(&self, out: &mut TextWriter) {
        self.args.write(out);
        out.attribute("exact", &self.exact);
        out.attribute("contract", &self.contract);
    }

    fn is_named(name: &str) -> bool {
        row(name).is_some()
    }

    fn read(name: &str, input: &mut TextReader) -> Result<Scalar, ParseError> {
        let args = input.list(TextReader::value)?;
        let (exact, contract) = (input.attribute("exact")?, input.attribute("contract")?);
        Ok(Scalar { exact, contract, ..Scalar::named(name, args) })
    }
}

impl Operation for Scalar {
    fn operands(&self) -> Vec<Value> {
        self.args.clone()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.args.iter_mut().for_each(|arg| *arg = change(*arg));
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        if self.args.len() != self.op.params.len() || results.len() != 1 {
            return Err(format!("takes {} operands and gives one result", self.op.params.len()));
        }
        let dtype = self.dtype(func);
        let result = func.ty(results[0]);
        for (i, &arg) in self.args.iter().enumerate() {
            let wanted = if self.op.rule == TypeRule::Select && i == 0 { DType::Bool } else { dtype };
            expect_types("an operand", func.ty(arg), &result.with(wanted))?;
        }
        if !self.op.class.contains(dtype) {
            return Err(format!("does not take {dtype}"));
        }
        let wanted = if self.op.rule == TypeRule::Compare { DType::Bool } else { dtype };
        expect_types("the result", result.dtype, wanted)
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        let args: Vec<AxisInfo> = self.args.iter().map(|&arg| env.info(arg)).collect();
        vec![self.op.arith.axis_info(&args, env.func().ty(results[0]))]
    }

    fn polynomial(&self, env: &dyn PolynomialEnv, _: &Func, _: Value) -> Option<Polynomial> {
        self.op.arith.polynomial(env, &self.args)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: self.op.cheap }
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

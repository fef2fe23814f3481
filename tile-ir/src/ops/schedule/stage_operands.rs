//! Operands of dots that threads write to shared memory before a loop.

use super::{Operands, Operation, expect_storage, operand_fields, ordered};
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, TextReader, Value};
use crate::ops::expect_types;
use crate::ops::syntax::syntax;

/// As what an operand lies in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StagedForm {
    /// As the fragments of a tensor core's instruction are read.
    Fragments,
    /// As single threads read it, for FMA dots.
    Rows,
    /// The same with the two elements of each pair swapped.
    SwappedPairs,
}

/// A tile that is written, and the axis along which its elements are contiguous then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagedValue {
    pub value: Value,
    pub fast: usize,
    pub form: StagedForm,
}

impl Operands for StagedValue {
    fn collect(&self, to: &mut Vec<Value>) {
        to.push(self.value);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.value = by(self.value);
    }
}

/// All threads write tiles to shared memory, one behind the other, and wait until all have. Dots read the results there.
#[derive(Clone, Debug)]
pub struct StageOperands {
    pub staged: Vec<StagedValue>,
}

syntax!(StageOperands: "stage_operands" staged);

impl Operation for StageOperands {
    operand_fields!(staged);

    fn result_count(&self) -> usize {
        self.staged.len()
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        for (staged, &result) in self.staged.iter().zip(results) {
            let ty = func.ty(staged.value);
            expect_storage("the result", func, result, super::is_smem)?;
            expect_types("the result's shape", &func.ty(result).shape, &ty.shape)?;
            expect_types("the result's elements", func.ty(result).dtype, ty.dtype)?;
            if staged.fast >= ty.shape.rank() {
                return Err(format!("{ty} has no axis {}", staged.fast));
            }
        }
        Ok(())
    }

    ordered!();
}

const FORMS: [(&str, StagedForm); 2] = [("rows", StagedForm::Rows), ("swapped", StagedForm::SwappedPairs)];

impl FieldText for Vec<StagedValue> {
    fn write(&self, out: &mut TextWriter) {
        for (index, staged) in self.iter().enumerate() {
            out.push(if index > 0 { ", " } else { " " });
            out.name(staged.value);
            out.attribute("fast", &staged.fast);
            if let Some((word, _)) = FORMS.iter().find(|(_, form)| *form == staged.form) {
                out.word(word);
            }
        }
    }

    fn read(input: &mut TextReader) -> Result<Vec<StagedValue>, ParseError> {
        input.list(|input| {
            let (value, fast) = (input.value()?, input.attribute("fast")?);
            let form = FORMS.iter().find(|(word, _)| input.take(word));
            Ok(StagedValue { value, fast, form: form.map_or(StagedForm::Fragments, |&(_, form)| form) })
        })
    }
}

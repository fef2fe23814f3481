//! Calls of code outside the module, and stack memory to pass to it.

use melior::ir::attribute::{Attribute, DenseI32ArrayAttribute, IntegerAttribute, TypeAttribute};
use melior::ir::operation::{OperationBuilder, OperationLike};
use melior::ir::{Identifier, Value, ValueLike};
use mlir_sys::mlirBlockInsertOwnedOperation;

use super::{Builder, Elem, Space, Ty, Val};

impl<'c> Builder<'c> {
    /// Stack memory of this function: `words` of eight bytes.
    pub fn stack(&mut self, words: u32) -> Val {
        let elem = self.mlir_type(Ty::I32);
        let words = IntegerAttribute::new(elem, i64::from(words)).into();
        let count = self.constant_op(Ty::I32, words);
        let ty = Ty::scalar(Elem::Ptr(Space::Generic));
        let elem = TypeAttribute::new(self.mlir_type(Ty::I64)).into();
        // SAFETY: the count was just made, in this builder's module.
        let operand: Value = unsafe { Value::from_raw(count.raw) };
        let operation = OperationBuilder::new("llvm.alloca", self.location)
            .add_operands(&[operand])
            .add_results(&[self.mlir_type(ty)])
            .add_attributes(&[
                (self.name("elem_type"), elem),
                (self.name("alignment"), self.i64_attribute(8)),
            ])
            .build()
            .expect("llvm.alloca");
        let raw = operation.result(0).expect("one result").to_raw();
        // SAFETY: the entry block belongs to the module under construction and takes ownership of the operation, which
        // stands behind the count, the block's first operation.
        unsafe { mlirBlockInsertOwnedOperation(self.entry, 1, operation.into_raw()) };
        Val { raw, ty }
    }

    /// The generic address of an address in another space.
    pub fn generic(&mut self, pointer: Val) -> Val {
        self.convert("llvm.addrspacecast", pointer, Elem::Ptr(Space::Generic))
    }

    /// Calls the function at an address, which returns nothing.
    pub fn call_address(&mut self, function: Val, operands: &[Val]) {
        let all: Vec<Val> = std::iter::once(function).chain(operands.iter().copied()).collect();
        let attributes = self.call_attributes(all.len());
        self.append("llvm.call", &all, &[], &attributes, vec![]);
    }

    /// Calls a function that this module declares.
    pub fn call_declared(&mut self, name: &str, operands: &[Val], result: Ty) -> Val {
        let callee = Attribute::parse(self.context, &format!("@{name}")).expect("a symbol");
        let mut attributes = self.call_attributes(operands.len());
        attributes.push((self.name("callee"), callee));
        self.one("llvm.call", operands, result, &attributes)
    }

    pub(super) fn call_attributes(&self, operands: usize) -> Vec<(Identifier<'c>, Attribute<'c>)> {
        let segments = DenseI32ArrayAttribute::new(self.context, &[operands as i32, 0]).into();
        let bundles = DenseI32ArrayAttribute::new(self.context, &[]).into();
        vec![(self.name("op_bundle_sizes"), bundles), (self.name("operandSegmentSizes"), segments)]
    }
}

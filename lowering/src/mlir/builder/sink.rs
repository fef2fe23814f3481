//! Code sinking: moves arithmetic to where its results are first used.

use std::collections::{HashMap, HashSet};

use melior::ir::operation::{OperationLike, OperationRef};
use mlir_sys::{
    MlirOperation, MlirValue, mlirBlockAppendOwnedOperation, mlirBlockEqual, mlirOpOperandGetNextUse,
    mlirOpOperandIsNull, mlirOpResultGetOwner, mlirOperationGetBlock, mlirOperationGetNumOperands,
    mlirOperationGetNumResults, mlirOperationGetOperand, mlirOperationGetResult,
    mlirOperationRemoveFromParent, mlirValueGetFirstUse, mlirValueIsAOpResult,
};

use super::{Builder, Val};

/// Operations without effects.
const ARITHMETIC: [&str; 29] = [
    "add",
    "and",
    "ashr",
    "bitcast",
    "extractelement",
    "fadd",
    "fcmp",
    "fdiv",
    "fmul",
    "fneg",
    "fpext",
    "fptosi",
    "fptoui",
    "fptrunc",
    "fsub",
    "icmp",
    "insertelement",
    "lshr",
    "mul",
    "or",
    "select",
    "sext",
    "shl",
    "sitofp",
    "sub",
    "trunc",
    "uitofp",
    "xor",
    "zext",
];
const INTRINSICS: [&str; 12] = [
    "copysign", "fabs", "fma", "fmuladd", "maximum", "maxnum", "minimum", "minnum", "smax", "smin", "umax",
    "umin",
];

impl Builder<'_> {
    /// Moves the arithmetic of this block that only these values are computed from to the end of the block. Values that have
    /// uses already stay.
    pub fn sink(&mut self, values: &[Val]) {
        // Users come before what they use.
        let mut moved: Vec<MlirOperation> = vec![];
        let mut left = HashMap::new();
        // A value may be listed twice.
        let mut seen = HashSet::new();
        let mut free: Vec<MlirOperation> = values.iter().filter_map(|value| self.unused(value.raw)).collect();
        free.retain(|operation| seen.insert(operation.ptr));
        while !free.is_empty() {
            let operands: Vec<MlirOperation> = free
                .iter()
                .flat_map(|&user| operands(user))
                .filter_map(|value| self.arithmetic(value))
                .collect();
            moved.append(&mut free);
            for operation in operands {
                let uses = left.entry(operation.ptr).or_insert_with(|| uses(operation));
                *uses -= 1;
                if *uses == 0 {
                    free.push(operation);
                }
            }
        }
        for operation in moved.into_iter().rev() {
            // SAFETY: the operation is one of this block, which owns it again at once; all that it uses stands before it.
            unsafe {
                mlirOperationRemoveFromParent(operation);
                mlirBlockAppendOwnedOperation(self.block, operation);
            }
        }
    }

    /// The arithmetic that defines an unused value.
    fn unused(&self, value: MlirValue) -> Option<MlirOperation> {
        self.arithmetic(value).filter(|&operation| uses(operation) == 0)
    }

    /// The operation of this block that defines a value, if it has no effects.
    fn arithmetic(&self, value: MlirValue) -> Option<MlirOperation> {
        // SAFETY: a value of the module under construction, whose operations are all there.
        let (raw, operation) = unsafe {
            if !mlirValueIsAOpResult(value) {
                return None;
            }
            let raw = mlirOpResultGetOwner(value);
            if !mlirBlockEqual(mlirOperationGetBlock(raw), self.block) {
                return None;
            }
            (raw, OperationRef::from_raw(raw))
        };
        let name = operation.name();
        let computes = match name.as_string_ref().as_str().ok()?.strip_prefix("llvm.")? {
            "inline_asm" => operation.attribute("has_side_effects").is_err(),
            "call_intrinsic" => {
                let intrinsic = operation.attribute("intrin").ok()?.to_string();
                intrinsic.contains("llvm.nvvm.") && intrinsic.contains(".approx.")
            }
            rest => match rest.strip_prefix("intr.") {
                Some(intrinsic) => INTRINSICS.contains(&intrinsic),
                None => ARITHMETIC.contains(&rest),
            },
        };
        computes.then_some(raw)
    }
}

fn operands(operation: MlirOperation) -> Vec<MlirValue> {
    // SAFETY: an operation of the module under construction.
    unsafe {
        (0..mlirOperationGetNumOperands(operation)).map(|i| mlirOperationGetOperand(operation, i)).collect()
    }
}

/// The number of uses of the results of an operation.
fn uses(operation: MlirOperation) -> usize {
    let mut count = 0;
    // SAFETY: an operation of the module under construction; a chain of uses ends with a null one.
    unsafe {
        for i in 0..mlirOperationGetNumResults(operation) {
            let mut operand = mlirValueGetFirstUse(mlirOperationGetResult(operation, i));
            while !mlirOpOperandIsNull(operand) {
                count += 1;
                operand = mlirOpOperandGetNextUse(operand);
            }
        }
    }
    count
}

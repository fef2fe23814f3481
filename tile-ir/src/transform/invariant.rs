//! Copies of loop-invariant computations.

use std::collections::{HashMap, HashSet};

use crate::ir::{Block, Func, Op, Type, Value};
use crate::ops::Kind;

/// Recomputes loop-invariant values of a block elsewhere.
pub(super) struct InvariantCopier<'a> {
    pub func: &'a mut Func,
    block: &'a Block,
    /// What the block defines.
    defined: HashSet<Value>,
    /// The operations that compute the copies, in order.
    pub built: Vec<Op>,
    copies: HashMap<Value, Value>,
}

impl<'a> InvariantCopier<'a> {
    pub fn new(func: &'a mut Func, block: &'a Block) -> InvariantCopier<'a> {
        InvariantCopier { func, block, defined: block.defined(), built: vec![], copies: HashMap::new() }
    }

    /// Appends an operation with one result, and returns that.
    pub fn push(&mut self, kind: impl Into<Kind>, ty: Type) -> Value {
        let result = self.func.value(ty);
        self.built.push(Op { kind: kind.into(), results: vec![result], loc: self.func.loc });
        result
    }

    /// Returns the value itself where the block does not define it, else a copy; `None` if it depends on the iteration or on memory.
    pub fn copy(&mut self, value: Value) -> Option<Value> {
        if !self.defined.contains(&value) {
            return Some(value);
        }
        if let Some(&known) = self.copies.get(&value) {
            return Some(known);
        }
        let op = self.block.ops.iter().find(|op| op.results == [value])?;
        let operation = op.kind.operation();
        if !operation.is_speculatable() {
            return None;
        }
        let operands: Vec<Value> =
            operation.operands().into_iter().map(|operand| self.copy(operand)).collect::<Option<_>>()?;
        let (mut kind, mut operands) = (op.kind.clone(), operands.into_iter());
        kind.operation_mut().map(&mut |old| operands.next().unwrap_or(old));
        let ty = self.func.ty(value).clone();
        let copy = self.push(kind, ty);
        self.copies.insert(value, copy);
        Some(copy)
    }
}

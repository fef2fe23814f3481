//! Loop versioning: two versions of the operations that a fact about scalars speeds up, under a branch on that fact.
//!
//! A launch cannot check what a kernel loads from memory: the sizes of a group, the first row of a sequence. The kernel checks it
//! itself, once, where all of these scalars are known:
//!
//! ```text
//! if (rows | stride) & 7 == 0 { the loop, with hints that both are multiples of 8 } else { the loop }
//! ```
//!
//! The branch is uniform, and both versions compute the same. What the first one computes from the scalars ahead of the branch it
//! computes again, so that analyses see what follows from the hints.

use std::collections::HashMap;
use std::ops::Range;

use crate::frontend::syntax::BinaryOp;
use crate::ir::{Block, Func, FuncBuilder, Op, Type, Value, substitute_in};
use crate::ops::scalar::{Scalar, binary};
use crate::ops::{AxisHint, Cast, Constant, ConstantValue, If};
use crate::support::dtype::DType;

/// The claim that an integer scalar is a multiple of a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fact {
    pub value: Value,
    pub multiple: u64,
}

/// Operations beside each other, and the facts under which they are faster.
#[derive(Debug)]
pub struct VersionedRegion {
    pub facts: Vec<Fact>,
    /// A value that the block of the operations defines.
    pub defined_beside: Value,
    /// Their places in that block, behind the definitions of all facts.
    pub ops: Range<usize>,
}

/// Versions a region; returns the value of the first version for each value that has one there.
pub fn version_loops(func: &mut Func, region: &VersionedRegion) -> HashMap<Value, Value> {
    let definitions = func.cloned_definitions();
    let mut body = std::mem::take(&mut func.body);
    let mut copies = HashMap::new();
    if let Some(block) = block_of(&mut body, region.defined_beside) {
        let mut builder = FuncBuilder::new(func);
        builder.loc = block.ops[region.ops.start].loc;
        let mut copier = RegionCopier { builder, definitions: &definitions, copies };
        copier.version(block, region);
        copies = copier.copies;
    }
    func.body = body;
    copies
}

/// The block that defines a value by one of its own operations.
fn block_of(block: &mut Block, value: Value) -> Option<&mut Block> {
    if block.definition(value).is_some() {
        return Some(block);
    }
    let nested = |op: &&mut Op| {
        op.kind.operation().blocks().into_iter().any(|nested| nested.defined().contains(&value))
    };
    let op = block.ops.iter_mut().find(nested)?;
    op.kind.operation_mut().blocks_mut().into_iter().find_map(|nested| block_of(nested, value))
}

struct RegionCopier<'f, 'd> {
    builder: FuncBuilder<'f>,
    definitions: &'d HashMap<Value, Op>,
    /// The copy of each value.
    copies: HashMap<Value, Value>,
}

impl RegionCopier<'_, '_> {
    fn version(&mut self, block: &mut Block, region: &VersionedRegion) {
        let rest = block.ops.split_off(region.ops.end);
        let own = block.ops.split_off(region.ops.start);
        let rest = Block { args: vec![], ops: rest, yields: std::mem::take(&mut block.yields) };
        let used = rest.used();
        let results = own.iter().flat_map(|op| &op.results).copied();
        let live: Vec<Value> = results.filter(|result| used.contains(result)).collect();

        self.builder.begin_with(vec![]);
        let condition = self.condition(&region.facts);
        self.builder.begin_with(vec![]);
        self.hint(&region.facts);
        for op in &own {
            let copy = self.op(op);
            self.builder.append(copy);
        }
        let yields = live.iter().map(|value| self.copies[value]).collect();
        let then = self.builder.end(yields);
        let otherwise = Block { args: vec![], ops: own, yields: live.clone() };
        let types = live.iter().map(|&value| self.builder.func.ty(value).clone()).collect();
        let results = self.builder.push(If::new(condition, then, otherwise), types);
        block.ops.extend(self.builder.end(vec![]).ops);

        let results: HashMap<Value, Value> = live.into_iter().zip(results).collect();
        let mut rest = rest;
        substitute_in(&mut rest, &|value| results.get(&value).copied().unwrap_or(value));
        block.ops.extend(rest.ops);
        block.yields = rest.yields;
    }

    /// Builds the condition that all facts hold.
    fn condition(&mut self, facts: &[Fact]) -> Value {
        let wide = Type::scalar(DType::I64);
        let mut remainders: Option<Value> = None;
        for fact in facts {
            let value = match self.builder.func.ty(fact.value).dtype {
                DType::I64 => fact.value,
                _ => self.builder.one(Cast::new(fact.value), wide.clone()),
            };
            let bits = self.int(i128::from(fact.multiple) - 1);
            let own = self.builder.one(Scalar::named("and", vec![value, bits]), wide.clone());
            remainders = Some(match remainders {
                Some(others) => self.builder.one(Scalar::named("or", vec![others, own]), wide.clone()),
                None => own,
            });
        }
        let zero = self.int(0);
        let remainders = remainders.unwrap_or(zero);
        let compare = Scalar::new(binary(BinaryOp::Eq), vec![remainders, zero]);
        self.builder.one(compare, Type::scalar(DType::Bool))
    }

    fn int(&mut self, value: i128) -> Value {
        self.builder.one(Constant { value: ConstantValue::Int(value) }, Type::scalar(DType::I64))
    }

    fn hint(&mut self, facts: &[Fact]) {
        for &Fact { value, multiple } in facts {
            let ty = self.builder.func.ty(value).clone();
            let hint = AxisHint { value, multiple, contiguous: 1, constant: 1 };
            let hinted = self.builder.one(hint, ty);
            self.copies.insert(value, hinted);
        }
    }

    /// Copies an operation onto the copies of its operands.
    fn op(&mut self, op: &Op) -> Op {
        let mut copy = op.clone();
        let operands = op.kind.operation().operands();
        let operands: HashMap<Value, Value> =
            operands.into_iter().map(|value| (value, self.operand(value))).collect();
        copy.kind.operation_mut().map(&mut |value| operands[&value]);
        for nested in copy.kind.operation_mut().blocks_mut() {
            let own = std::mem::take(nested);
            *nested = self.block(&own);
        }
        copy.results = op.results.iter().map(|&result| self.fresh(result)).collect();
        copy
    }

    fn block(&mut self, block: &Block) -> Block {
        let args = block.args.iter().map(|&arg| self.fresh(arg)).collect();
        let ops = block.ops.iter().map(|op| self.op(op)).collect();
        let yields = block.yields.iter().map(|&value| self.operand(value)).collect();
        Block { args, ops, yields }
    }

    fn fresh(&mut self, value: Value) -> Value {
        let ty = self.builder.func.ty(value).clone();
        let copy = self.builder.func.value(ty);
        self.copies.insert(value, copy);
        copy
    }

    /// The copy of a value, or the value itself where it follows from no fact. What is computed ahead of the region is copied to
    /// its start.
    fn operand(&mut self, value: Value) -> Value {
        if let Some(&copy) = self.copies.get(&value) {
            return copy;
        }
        let copy = self.recomputed(value).unwrap_or(value);
        self.copies.insert(value, copy);
        copy
    }

    fn recomputed(&mut self, value: Value) -> Option<Value> {
        let op = self.definitions.get(&value)?;
        let operation = op.kind.operation();
        let [result] = op.results[..] else { return None };
        if !operation.is_speculatable() {
            return None;
        }
        let operands = operation.operands();
        let copied: HashMap<Value, Value> =
            operands.iter().map(|&operand| (operand, self.operand(operand))).collect();
        if operands.iter().all(|operand| copied[operand] == *operand) {
            return None;
        }
        let mut kind = op.kind.clone();
        kind.operation_mut().map(&mut |operand| copied[&operand]);
        let ty = self.builder.func.ty(result).clone();
        Some(self.builder.one(kind, ty))
    }
}

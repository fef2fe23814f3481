//! Building and changing tile IR.

use std::collections::{HashMap, HashSet};

use super::{Block, Func, Op, Type, Value};
use crate::ops::{Effect, Kind};
use crate::support::diagnostic::Loc;

/// Appends operations to a function, block within block.
pub struct FuncBuilder<'f> {
    pub func: &'f mut Func,
    /// Where the operations being built come from in the source.
    pub loc: Loc,
    open: Vec<Block>,
    /// The identities of the open blocks.
    open_ids: Vec<BlockId>,
    blocks_begun: usize,
}

/// Tells the blocks of one [`FuncBuilder`] apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockId(usize);

/// What was built for values; an entry is visible while the block that it was built in is open.
#[derive(Debug)]
pub struct ScopedMap<T> {
    known: HashMap<Value, (BlockId, T)>,
}

impl<T> Default for ScopedMap<T> {
    fn default() -> ScopedMap<T> {
        ScopedMap { known: HashMap::new() }
    }
}

impl<T: Copy> ScopedMap<T> {
    pub fn get(&self, builder: &FuncBuilder, value: Value) -> Option<T> {
        let (block, built) = *self.known.get(&value)?;
        builder.open_ids.contains(&block).then_some(built)
    }

    pub fn insert(&mut self, builder: &FuncBuilder, value: Value, built: T) {
        let block = *builder.open_ids.last().expect("the body is open until `finish`");
        self.known.insert(value, (block, built));
    }
}

impl<'f> FuncBuilder<'f> {
    /// Builds into a fresh body; [`FuncBuilder::finish`] puts it in place.
    pub fn new(func: &'f mut Func) -> FuncBuilder<'f> {
        let loc = func.loc;
        FuncBuilder { func, loc, open: vec![Block::default()], open_ids: vec![BlockId(0)], blocks_begun: 0 }
    }

    fn block(&mut self) -> &mut Block {
        self.open.last_mut().expect("the body is open until `finish`")
    }

    /// Appends an operation with results of the given types.
    pub fn push(&mut self, kind: impl Into<Kind>, types: Vec<Type>) -> Vec<Value> {
        let results: Vec<Value> = types.into_iter().map(|ty| self.func.value(ty)).collect();
        self.append(Op { kind: kind.into(), results: results.clone(), loc: self.loc });
        results
    }

    /// Appends an operation with one result.
    pub fn one(&mut self, kind: impl Into<Kind>, ty: Type) -> Value {
        self.push(kind, vec![ty])[0]
    }

    /// Appends an operation as it is.
    pub fn append(&mut self, op: Op) {
        self.block().ops.push(op);
    }

    /// The operations of the innermost open block.
    pub fn innermost(&mut self) -> &mut [Op] {
        &mut self.block().ops
    }

    /// The operation of the innermost open block that gives `value`.
    pub fn definition(&self, value: Value) -> Option<&Op> {
        self.open.last()?.ops.iter().rev().find(|op| op.results.contains(&value))
    }

    /// Whether a value is computed from what an operation of the open blocks loads.
    pub fn is_from_memory(&self, value: Value) -> bool {
        let (mut seen, mut todo) = (HashSet::new(), vec![value]);
        while let Some(value) = todo.pop() {
            let mut ops = self.open.iter().flat_map(|block| &block.ops);
            let Some(op) = ops.find(|op| op.results.contains(&value)).filter(|_| seen.insert(value)) else {
                continue;
            };
            if op.kind.operation().access().is_some() {
                return true;
            }
            todo.extend(op.kind.operation().operands());
        }
        false
    }

    /// Opens a nested block whose arguments have the given types.
    pub fn begin(&mut self, args: Vec<Type>) -> Vec<Value> {
        let args: Vec<Value> = args.into_iter().map(|ty| self.func.value(ty)).collect();
        self.begin_with(args.clone());
        args
    }

    /// Opens a nested block whose arguments exist already.
    pub fn begin_with(&mut self, args: Vec<Value>) {
        self.open.push(Block { args, ..Block::default() });
        self.blocks_begun += 1;
        self.open_ids.push(BlockId(self.blocks_begun));
    }

    /// Closes the innermost block.
    pub fn end(&mut self, yields: Vec<Value>) -> Block {
        let mut block = self.open.pop().expect("a block was begun");
        self.open_ids.pop();
        block.yields = yields;
        block
    }

    /// The state to return to with [`FuncBuilder::rewind`].
    pub fn mark(&self) -> (usize, usize) {
        (self.open.len(), self.open.last().map_or(0, |block| block.ops.len()))
    }

    /// Drops what was built since `mark`.
    pub fn rewind(&mut self, (open, ops): (usize, usize)) {
        self.open.truncate(open);
        self.open_ids.truncate(open);
        self.block().ops.truncate(ops);
    }

    pub fn finish(mut self) {
        self.func.body = self.end(vec![]);
    }
}

/// Rebuilds a function operation by operation, with values replaced as it goes.
#[derive(Default)]
pub struct Rewriter {
    replaced: HashMap<Value, Value>,
}

impl Rewriter {
    /// Every later use of `old` becomes `new`.
    pub fn replace(&mut self, old: Value, new: Value) {
        self.replaced.insert(old, new);
    }

    /// The value that replaces another one by now.
    pub fn resolve(&self, mut value: Value) -> Value {
        while let Some(&next) = self.replaced.get(&value) {
            value = next;
        }
        value
    }

    /// Runs `change` over every operation, innermost blocks first; it appends what replaces the operation,
    /// usually the operation itself.
    pub fn run(mut self, func: &mut Func, change: &mut dyn FnMut(&mut Rewriter, &mut FuncBuilder, Op)) {
        let body = std::mem::take(&mut func.body);
        let mut builder = FuncBuilder::new(func);
        for op in body.ops {
            self.op(&mut builder, op, change);
        }
        builder.finish();
    }

    fn op(
        &mut self,
        builder: &mut FuncBuilder,
        mut op: Op,
        change: &mut dyn FnMut(&mut Rewriter, &mut FuncBuilder, Op),
    ) {
        op.kind.operation_mut().map(&mut |value| self.resolve(value));
        for block in op.kind.operation_mut().blocks_mut() {
            let taken = std::mem::take(block);
            builder.begin_with(taken.args);
            for inner in taken.ops {
                self.op(builder, inner, change);
            }
            let yields = taken.yields.into_iter().map(|value| self.resolve(value)).collect();
            *block = builder.end(yields);
        }
        builder.loc = op.loc;
        change(self, builder, op);
    }
}

/// Every use of `old` becomes one of `new`, also where a view has it for an extent or stride.
pub fn substitute(func: &mut Func, old: Value, new: Value) {
    let change = |value: Value| if value == old { new } else { value };
    substitute_in(&mut func.body, &change);
    for scalar in func.views.iter_mut().flat_map(|view| view.shape.iter_mut().chain(&mut view.strides)) {
        *scalar = change(*scalar);
    }
}

/// Every use of a value in a block becomes one of what `change` returns for it.
pub fn substitute_in(block: &mut Block, change: &dyn Fn(Value) -> Value) {
    for op in &mut block.ops {
        let operation = op.kind.operation_mut();
        operation.map(&mut |value| change(value));
        operation.blocks_mut().into_iter().for_each(|nested| substitute_in(nested, change));
    }
    block.yields.iter_mut().for_each(|value| *value = change(*value));
}

/// Removes operations that repeat an earlier one (CSE) or whose results nothing uses (DCE).
pub fn cse_and_dce(func: &mut Func) {
    cse(func);
    dce(func);
}

/// Removes what only a debug build does.
pub fn strip_debug(func: &mut Func) {
    fn strip(block: &mut Block) {
        block.ops.retain(|op| op.kind.operation().site().is_none());
        for op in &mut block.ops {
            op.kind.operation_mut().blocks_mut().into_iter().for_each(strip);
        }
    }
    strip(&mut func.body);
    func.sites.clear();
    dce(func);
}

fn cse(func: &mut Func) {
    let body = std::mem::take(&mut func.body);
    let mut cse = Cse { func, rewriter: Rewriter::default(), available: vec![] };
    let body = cse.block(body);
    func.body = body;
}

/// Common subexpression elimination: equal pure operations found so far, one table per open block.
struct Cse<'f> {
    func: &'f Func,
    rewriter: Rewriter,
    available: Vec<HashMap<String, Vec<Value>>>,
}

impl Cse<'_> {
    fn block(&mut self, mut block: Block) -> Block {
        self.available.push(HashMap::new());
        let ops = std::mem::take(&mut block.ops);
        for mut op in ops {
            let operation = op.kind.operation_mut();
            operation.map(&mut |value| self.rewriter.resolve(value));
            let outside = operation.isolated().then(|| std::mem::take(&mut self.available));
            for nested in operation.blocks_mut() {
                let taken = std::mem::take(nested);
                *nested = self.block(taken);
            }
            if let Some(outside) = outside {
                self.available = outside;
            }
            let operation = op.kind.operation();
            if operation.effect() != Effect::Pure || !operation.blocks().is_empty() {
                block.ops.push(op);
                continue;
            }
            let text = operation.text(self.func, &mut |value| format!("{value:?}"));
            let types: Vec<String> =
                op.results.iter().map(|&value| self.func.ty(value).to_string()).collect();
            let key = format!("{text} : {}", types.join(", "));
            if let Some(known) = self.available.iter().rev().find_map(|table| table.get(&key)) {
                for (&old, &new) in op.results.iter().zip(known) {
                    self.rewriter.replace(old, new);
                }
                continue;
            }
            self.available.last_mut().expect("a table per block").insert(key, op.results.clone());
            block.ops.push(op);
        }
        block.yields = block.yields.iter().map(|&value| self.rewriter.resolve(value)).collect();
        self.available.pop();
        block
    }
}

/// Dead code elimination: removes operations whose results nothing uses.
pub fn dce(func: &mut Func) {
    sweep(&mut func.body, &mut HashSet::new());
}

/// From the last operation to the first, so that every use is known before its definition.
fn sweep(block: &mut Block, used: &mut HashSet<Value>) {
    used.extend(&block.yields);
    let mut kept = vec![];
    for mut op in std::mem::take(&mut block.ops).into_iter().rev() {
        if !writes(&op) && !op.results.iter().any(|result| used.contains(result)) {
            continue;
        }
        for nested in op.kind.operation_mut().blocks_mut() {
            sweep(nested, used);
        }
        used.extend(op.kind.operation().operands());
        kept.push(op);
    }
    kept.reverse();
    block.ops = kept;
}

/// Whether the operation, or one nested in it, has an effect beyond its results.
fn writes(op: &Op) -> bool {
    let operation = op.kind.operation();
    let mut write = operation.effect() == Effect::Write;
    for block in operation.blocks() {
        block.walk(&mut |inner| write |= inner.kind.operation().effect() == Effect::Write);
    }
    write
}

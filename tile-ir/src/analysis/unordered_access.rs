//! Accesses that nothing orders with those of other programs: two of them that touch one element, one of which writes,
//! are a race.
//!
//! A program is ordered with another one by what it acquires: an atomic that acquires and whose old value the program uses, as a lock or a
//! semaphore does, or a volatile load. What a program does after it may be ordered, and is left out. What two programs do
//! before either acquires anything cannot be.

use std::collections::HashSet;

use crate::ir::{Block, Func, Op, ParamId, Value};
use crate::ops::{CacheModifier, Effect, Kind, MemoryOrder};

/// What an access does to an element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Touch {
    Read,
    Write,
    /// Atomically, or without a cache: programs may do so at once.
    Atomic,
}

/// An access that is not ordered with those of other programs.
#[derive(Clone, Copy, Debug)]
pub struct UnorderedAccess<'f> {
    pub op: &'f Op,
    pub param: ParamId,
    pub touch: Touch,
}

impl Touch {
    /// What an operation does to the elements that it accesses.
    pub fn of(op: &Op) -> Option<Touch> {
        memory(op)?;
        Some(match op.kind.operation().effect() {
            _ if atomic_order(op).is_some() || is_volatile(op) => Touch::Atomic,
            Effect::Write => Touch::Write,
            Effect::Read | Effect::Pure => Touch::Read,
        })
    }
}

/// The slice that an operation accesses, or the memory of a view.
pub(super) fn memory(op: &Op) -> Option<ParamId> {
    let operation = op.kind.operation();
    operation.access().map(|access| access.param).or(operation.view_tile().map(|tile| tile.memory))
}

/// The values by which an operation addresses memory, and its mask.
pub(super) fn place(op: &Op) -> Option<Vec<Value>> {
    let operation = op.kind.operation();
    let access =
        operation.access().map(|access| access.base.into_iter().chain([access.offset]).chain(access.mask));
    match access {
        Some(values) => Some(values.collect()),
        None => operation.view_tile().map(|tile| tile.offsets.clone()),
    }
}

/// How an atomic is ordered.
fn atomic_order(op: &Op) -> Option<MemoryOrder> {
    if let Kind::Atomic(atomic) = &op.kind {
        return Some(atomic.order);
    }
    if let Kind::AddView(add) = &op.kind { Some(add.order) } else { None }
}

/// Returns the unordered accesses of mutable slices and views.
pub fn unordered(func: &Func) -> Vec<UnorderedAccess<'_>> {
    let mut used = HashSet::new();
    collect_uses(&func.body, &mut used);
    let mut walk = Walk { func, used, acquired: false, found: vec![] };
    walk.block(&func.body);
    walk.found
}

/// Returns the unordered accesses of every slice and view of which some of them can race.
pub fn racing(func: &Func) -> Vec<UnorderedAccess<'_>> {
    let found = unordered(func);
    let has = |param, touch| found.iter().any(|access| access.param == param && access.touch == touch);
    let can_race = |param| has(param, Touch::Write) || has(param, Touch::Read) && has(param, Touch::Atomic);
    found.iter().filter(|access| can_race(access.param)).copied().collect()
}

fn collect_uses(block: &Block, used: &mut HashSet<Value>) {
    used.extend(&block.yields);
    for op in &block.ops {
        let operation = op.kind.operation();
        used.extend(operation.operands());
        operation.blocks().into_iter().for_each(|nested| collect_uses(nested, used));
    }
}

fn is_volatile(op: &Op) -> bool {
    op.kind.operation().cache().is_some_and(|cache| cache.modifier == CacheModifier::Volatile)
}

/// A walk in the order of the program.
struct Walk<'f> {
    func: &'f Func,
    /// Values that something uses.
    used: HashSet<Value>,
    /// Whether the program may have acquired something.
    acquired: bool,
    found: Vec<UnorderedAccess<'f>>,
}

impl<'f> Walk<'f> {
    fn block(&mut self, block: &'f Block) {
        for op in &block.ops {
            let nested = op.kind.operation().blocks();
            if matches!(op.kind, Kind::For(_) | Kind::While(_)) {
                // An iteration before this one may have.
                nested.iter().for_each(|block| block.walk(&mut |op| self.acquired |= self.acquires(op)));
            }
            let before = self.acquired;
            let mut after = before;
            for block in nested {
                self.acquired = before;
                self.block(block);
                after |= self.acquired;
            }
            self.acquired = after;
            if let (Some(param), Some(touch), false) = (memory(op), Touch::of(op), self.acquired)
                && self.func.slice(param).1
            {
                self.found.push(UnorderedAccess { op, param, touch });
            }
            self.acquired |= self.acquires(op);
        }
    }

    fn acquires(&self, op: &Op) -> bool {
        let acquires = |order| matches!(order, MemoryOrder::Acquire | MemoryOrder::AcqRel);
        let used = op.results.iter().any(|result| self.used.contains(result));
        atomic_order(op).is_some_and(acquires) && used
            || is_volatile(op) && op.kind.operation().effect() == Effect::Read
    }
}

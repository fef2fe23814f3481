//! Facts about scalars that a kernel loads from memory: which of them would widen its accesses.
//!
//! A guard checks arguments at launch. Where a size or a place comes from memory, the kernel has to check it
//! ([`version_loops`](tile_ir::transform::version_loops)). It does so for loops with dots, whose copies by vectors are several times as
//! fast, and wherever the user states that such a scalar is a multiple.

use std::collections::HashSet;

use tile_ir::analysis::axis_info::LaunchAssumptions;
use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::scalar::ArithKind;
use tile_ir::ops::{Kind, MemAccess, has_own_dot};
use tile_ir::transform::unit_stride::{integers, large_accesses};
use tile_ir::transform::version_loops::{Fact, VersionedRegion};

use super::axes::Widened;
use super::vector_width::{accesses, multiples_of_vectors, needed_multiples, widths};

/// Returns the region that facts about loaded scalars would speed up, if there is one, behind the loads of all these scalars.
pub fn versioned_region(func: &Func, assumed: &LaunchAssumptions) -> Option<VersionedRegion> {
    let loaded = LoadedScalars::of(func);
    if loaded.values.is_empty() {
        return None;
    }
    let own = widths(func, assumed, Widened::All);
    let multiples = multiples_of_vectors(func, assumed, &loaded.values);
    let best = widths(func, &LaunchAssumptions { multiples, ..assumed.clone() }, Widened::All);
    if own == best {
        return None;
    }
    let needed = needed_multiples(func, assumed.clone(), Widened::All, &loaded.values);
    let candidates = integers(func).chain(loaded.values.iter().copied());
    let facts = candidates.map(|value| Fact { value, multiple: needed.multiple(value) });
    let facts = facts.filter(|fact| fact.multiple > assumed.multiple(fact.value)).collect();
    let places = large_accesses(func, accesses(func, Widened::All)).into_iter();
    let gaining = places.zip(own.iter().zip(&best)).filter(|(_, (own, best))| own < best);
    let gaining: Vec<&MemAccess> = gaining.map(|(place, _)| place).collect();
    let of_dots = accesses(func, Widened::InDotLoops);
    if func.stated_multiple.is_none() && !gaining.iter().any(|place| of_dots.contains(place)) {
        return None;
    }
    loaded.region(func, facts, &gaining)
}

/// Integer scalars that are loaded, or computed from such ones by what keeps no divisor.
struct LoadedScalars {
    values: Vec<Value>,
    /// Scalars that depend on memory.
    dependent: HashSet<Value>,
}

impl LoadedScalars {
    fn of(func: &Func) -> LoadedScalars {
        let mut found = LoadedScalars { values: vec![], dependent: HashSet::new() };
        found.in_block(func, &func.body, false);
        found
    }

    /// Finds the scalars of a block, but none that a loop with dots loads in each iteration: a branch there would keep its copies from
    /// being issued ahead.
    fn in_block(&mut self, func: &Func, block: &Block, of_dot_loop: bool) {
        for op in &block.ops {
            if let [result] = op.results[..] {
                let ty = func.ty(result);
                if ty.is_scalar() && ty.dtype.is_integer() {
                    self.scalar(op, result, of_dot_loop);
                }
            }
            let is_loop = matches!(op.kind, Kind::For(_) | Kind::While(_));
            for nested in op.kind.operation().blocks() {
                self.in_block(func, nested, of_dot_loop || is_loop && has_own_dot(nested));
            }
        }
    }

    fn scalar(&mut self, op: &Op, result: Value, of_dot_loop: bool) {
        let operation = op.kind.operation();
        let computes = matches!(op.kind, Kind::Scalar(_) | Kind::Cast(_))
            && operation.operands().iter().any(|operand| self.dependent.contains(operand));
        if !computes && operation.access().is_none() {
            return;
        }
        self.dependent.insert(result);
        if !(of_dot_loop || computes && keeps_divisors(&op.kind)) {
            self.values.push(result);
        }
    }

    /// Returns the operations from the first to the last access that gains, behind the definitions of facts, in the innermost block
    /// with such a definition. Facts that are known in other blocks alone are left out.
    fn region(&self, func: &Func, facts: Vec<Fact>, gaining: &[&MemAccess]) -> Option<VersionedRegion> {
        let loaded: HashSet<Value> =
            facts.iter().map(|fact| fact.value).filter(|value| self.values.contains(value)).collect();
        let mut visible = vec![];
        let (block, defined_beside) = innermost(&func.body, &loaded, &mut visible)?;
        let known = |fact: &Fact| !loaded.contains(&fact.value) || visible.contains(&fact.value);
        let facts: Vec<Fact> = facts.into_iter().filter(known).collect();
        let behind =
            1 + block.ops.iter().rposition(|op| op.results.iter().any(|own| loaded.contains(own)))?;
        let gains = |op: &Op| {
            contains(op, &|op| op.kind.operation().access().is_some_and(|own| gaining.contains(&own)))
        };
        let first = behind + block.ops[behind..].iter().position(gains)?;
        let last = block.ops.iter().rposition(gains)?;
        let has_dots = |op: &Op| matches!(&op.kind, Kind::For(body) if has_own_dot(&body.body));
        let serves = block.ops[first..=last].iter().any(|op| contains(op, &has_dots));
        let ops = first..last + 1;
        (serves || func.stated_multiple.is_some()).then_some(VersionedRegion { facts, defined_beside, ops })
    }
}

/// Whether divisors of the operands show in the result.
fn keeps_divisors(kind: &Kind) -> bool {
    use ArithKind::{Add, Mul, Neg, Shl, Sub};
    let is_linear = |arith| matches!(arith, Add | Sub | Mul | Neg | Shl);
    matches!(kind, Kind::Cast(_)) || matches!(kind, Kind::Scalar(scalar) if is_linear(scalar.op.arith))
}

/// The innermost block that defines one of some values by an operation of its own, the first in each block, and that value;
/// `visible` gets all that are known there.
fn innermost<'f>(
    block: &'f Block,
    values: &HashSet<Value>,
    visible: &mut Vec<Value>,
) -> Option<(&'f Block, Value)> {
    let own = |op: &Op| op.results.iter().copied().find(|result| values.contains(result));
    let defined: Vec<Value> = block.ops.iter().filter_map(own).collect();
    visible.extend(&defined);
    let mut nested = block.ops.iter().flat_map(|op| op.kind.operation().blocks());
    let inner = nested.find(|nested| !nested.defined().is_disjoint(values));
    inner
        .and_then(|inner| innermost(inner, values, visible))
        .or_else(|| defined.last().map(|&value| (block, value)))
}

/// Whether an operation, or one of its blocks, has one that is looked for.
fn contains(op: &Op, wanted: &dyn Fn(&Op) -> bool) -> bool {
    let blocks = op.kind.operation().blocks();
    wanted(op) || blocks.into_iter().flat_map(|block| &block.ops).any(|inner| contains(inner, wanted))
}

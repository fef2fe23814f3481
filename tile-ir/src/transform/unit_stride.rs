//! Arguments that a specialization takes for 1: strides of views and of pointer arithmetic.

use std::collections::HashSet;

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::non_negative::Signs;
use crate::ir::guard::Guard;
use crate::ir::{Func, Op, ParamId, ParamKind, Type, Value, substitute};
use crate::ops::scalar::ArithKind;
use crate::ops::{Constant, ConstantValue, Effect, Kind, MemAccess};
use crate::transform::legalize_index::{BoundsPolicy, legalize_index};

/// Replaces scalar arguments by 1; returns the guards that say so.
pub fn assume_unit_strides(func: &mut Func, strides: &[Value]) -> Vec<Guard> {
    for &stride in strides {
        let ty = Type::scalar(func.ty(stride).dtype);
        let one = func.value(ty);
        let kind = Constant { value: ConstantValue::Int(1) }.into();
        func.body.ops.insert(0, Op { kind, results: vec![one], loc: func.loc });
        substitute(func, stride, one);
    }
    let position = |&stride: &Value| func.scalar_parameter(stride);
    strides.iter().filter_map(position).map(|scalar| Guard::Equal { scalar, value: 1 }).collect()
}

/// A multiple of every vector length.
const DIVISOR: u64 = 16;

/// The most sets of strides that get a specialization of their own.
const MAX_SETS: usize = 4;

/// Sets of arguments that would, if they were 1, make elements contiguous that are not otherwise: Triton specializes each launch
/// on the integers that are 1. Strides along the last axis come first, as rows are stored.
pub fn unit_strides(func: &Func, policy: BoundsPolicy) -> Vec<Vec<Value>> {
    let extents = extents(func);
    let is_stride = |value: &Value| !extents.contains(value) && !func.is_view_scalar(*value);
    let candidates: Vec<Value> = integers(func).filter(is_stride).collect();
    if candidates.is_empty() {
        return vec![];
    }
    // Sums that might wrap have no contiguity: index legalization removes them.
    let mut exact = func.clone();
    let guards = legalize_index(&mut exact, policy);
    sets(&strided(&exact, &guards, &candidates))
}

/// The arguments that are integers.
pub fn integers(func: &Func) -> impl Iterator<Item = Value> {
    func.params.iter().filter_map(|param| match param.kind {
        ParamKind::Scalar { value, dtype } if dtype.is_integer() => Some(value),
        ParamKind::Scalar { .. } | ParamKind::Slice { .. } => None,
    })
}

fn accesses(func: &Func) -> Vec<&MemAccess> {
    let mut found = vec![];
    func.body.walk(&mut |op| found.extend(op.kind.operation().access()));
    found
}

/// The accesses that are worth a guard on a whole specialization: one scalar per row beside a tile of rows is not.
pub fn large_accesses<'f>(func: &Func, mut accesses: Vec<&'f MemAccess>) -> Vec<&'f MemAccess> {
    let elements = |access: &MemAccess| func.ty(access.offset).shape.elements();
    let most = accesses.iter().map(|access| elements(access)).max().unwrap_or(0);
    accesses.retain(|access| elements(access) * SMALL_SHARE >= most);
    accesses
}

/// An access of less than this share of the largest one's elements is not worth a guard.
const SMALL_SHARE: u64 = 16;

/// A stride, and the axis along which it would make elements contiguous.
type StrideAxis = (usize, Value);

/// The strides of a slice, one of which may be 1, that of the last axis first.
struct SliceStrides {
    strides: Vec<Value>,
    writes: bool,
}

/// The slices with accesses that are not contiguous, each by the strides that would make them so.
fn strided(func: &Func, guards: &[Guard], candidates: &[Value]) -> Vec<SliceStrides> {
    // As if all else were as divisible as it gets: the question is contiguity alone.
    let mut divisible =
        LaunchAssumptions::of(func).with_guards(func, guards).with_signs(&Signs::analyze(func));
    divisible.multiples.extend(integers(func).map(|value| (value, DIVISOR)));
    let known = AxisInfoMap::analyze(func, &divisible);
    let mut assumed: Vec<(Value, AxisInfoMap)> = vec![];
    for &stride in candidates {
        let mut with_one = divisible.clone();
        with_one.multiples.remove(&stride);
        with_one.ranges.insert(stride, (1, 1));
        assumed.push((stride, AxisInfoMap::analyze(func, &with_one)));
    }
    let large = large_accesses(func, accesses(func));
    let mut slices: Vec<(ParamId, Vec<StrideAxis>, bool)> = vec![];
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let Some(access) = operation.access() else { return };
        let contiguities = |axes: &AxisInfoMap| -> Vec<u64> {
            axes.get(func, access.offset).axes.iter().map(|axis| axis.contiguity).collect()
        };
        let own = contiguities(&known);
        if own.iter().max() > Some(&1) || !large.contains(&access) {
            return;
        }
        let writes = matches!(operation.effect(), Effect::Write);
        if !slices.iter().any(|(slice, ..)| *slice == access.param) {
            slices.push((access.param, vec![], false));
        }
        for (_, strides, written) in slices.iter_mut().filter(|(slice, ..)| *slice == access.param) {
            *written |= writes;
            for (stride, axes) in &assumed {
                let axis = contiguities(axes).iter().rposition(|&contiguity| contiguity > 1);
                let axis = axis.filter(|&axis| !strides.contains(&(axis, *stride)));
                strides.extend(axis.map(|axis| (axis, *stride)));
            }
        }
    });
    distinct(slices.into_iter().map(|(_, strides, writes)| (strides, writes)))
}

/// The strides of slices, those of the last axis first, each list once; `true` says that one of its slices is written.
fn distinct(slices: impl Iterator<Item = (Vec<StrideAxis>, bool)>) -> Vec<SliceStrides> {
    let mut found: Vec<SliceStrides> = vec![];
    for (mut strides, writes) in slices {
        strides.sort_by_key(|&(axis, _)| std::cmp::Reverse(axis));
        let mut seen = HashSet::new();
        let strides: Vec<Value> =
            strides.into_iter().map(|(_, stride)| stride).filter(|&stride| seen.insert(stride)).collect();
        match found.iter_mut().find(|other| other.strides == strides) {
            Some(other) => other.writes |= writes,
            None if !strides.is_empty() => found.push(SliceStrides { strides, writes }),
            None => {}
        }
    }
    found
}

/// One stride of each slice, in every combination while these are few. Where they are many, written slices are taken to be
/// row-major, and where they still are, all slices but one.
fn sets(slices: &[SliceStrides]) -> Vec<Vec<Value>> {
    let count = |choices: &[&[Value]]| choices.iter().map(|strides| strides.len()).product::<usize>();
    let mut choices: Vec<&[Value]> = slices.iter().map(|slice| slice.strides.as_slice()).collect();
    if count(&choices) > MAX_SETS {
        for (choice, slice) in choices.iter_mut().zip(slices) {
            *choice = if slice.writes { &choice[..1] } else { choice };
        }
    }
    let mut sets = if choices.is_empty() {
        vec![]
    } else if count(&choices) > MAX_SETS {
        one_by_one(&choices)
    } else {
        combinations(&choices)
    };
    for set in &mut sets {
        set.sort();
        set.dedup();
    }
    let mut seen = HashSet::new();
    // Slices may share strides: of each slice exactly one is 1.
    let one_each = |set: &Vec<Value>| {
        slices.iter().all(|slice| slice.strides.iter().filter(|stride| set.contains(stride)).count() == 1)
    };
    sets.retain(|set| one_each(set) && seen.insert(set.clone()));
    sets.truncate(MAX_SETS);
    sets
}

/// One value of each choice, in every combination.
fn combinations(choices: &[&[Value]]) -> Vec<Vec<Value>> {
    choices.iter().fold(vec![vec![]], |sets, strides| {
        let with = |stride: &Value, set: &Vec<Value>| set.iter().copied().chain([*stride]).collect();
        strides.iter().flat_map(|stride| sets.iter().map(move |set| with(stride, set))).collect()
    })
}

/// The first value of each choice, then the same with another one of a single choice, those of the last operand first.
fn one_by_one(choices: &[&[Value]]) -> Vec<Vec<Value>> {
    let first: Vec<Value> = choices.iter().map(|strides| strides[0]).collect();
    let others = choices.iter().enumerate().rev().flat_map(|(place, strides)| {
        let first = &first;
        strides[1..].iter().map(move |&stride| {
            let mut set = first.clone();
            set[place] = stride;
            set
        })
    });
    std::iter::once(first.clone()).chain(others).collect()
}

/// Operands of comparisons and divisions, ends of loops, and what they are computed from: extents, which are rarely 1.
fn extents(func: &Func) -> HashSet<Value> {
    let definitions = func.definitions();
    let mut todo: Vec<Value> = vec![];
    func.body.walk(&mut |op| {
        if let Kind::For(op) = &op.kind {
            todo.extend([op.low, op.high, op.step]);
        }
        if let Kind::Scalar(scalar) = &op.kind
            && matches!(scalar.op.arith, ArithKind::Compare(_) | ArithKind::Div | ArithKind::Rem)
        {
            todo.extend(&scalar.args);
        }
    });
    let mut found = HashSet::new();
    while let Some(value) = todo.pop() {
        if found.insert(value)
            && let Some(Op { kind: Kind::Scalar(_) | Kind::Splat(_) | Kind::Cast(_), .. }) =
                definitions.get(&value)
        {
            todo.extend(definitions[&value].kind.operation().operands());
        }
    }
    found
}

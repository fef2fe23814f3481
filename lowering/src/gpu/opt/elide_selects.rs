//! Selects that only masked-off elements would notice are left out, or done once for many elements.
//!
//! A row that is shorter than its tile has its tail selected away before it is summed, and again where it is recomputed
//! for the result. A row that was loaded as 0 beyond its mask and then shifted by a scalar stays 0 there if the scalar
//! is selected: `select(mask, x - mean, 0)` is `x - select(mask, mean, 0)`, one select for each vector of the row.
//! Where a value reaches nothing but stores under one mask, a select by that mask is its first operand.

use std::collections::HashMap;

use tile_ir::ir::{Block, Func, Op, Value, dce};
use tile_ir::ops::scalar::{ArithKind, Scalar};
use tile_ir::ops::{Cast, Kind, Load, MemAccess, RematBarrier, is_zero};

use crate::gpu::layout::Distributed;

/// A thread holds a scalar for each vector of its share of a row; with more of them than this, fewer blocks would fit
/// on a multiprocessor.
const MAX_SCALARS: usize = 4;

/// Which elements of a value matter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Observed {
    /// Those where this mask holds: only stores under it use the value.
    Under(Value),
    Everywhere,
}

type Observations = HashMap<Value, Observed>;

/// Selects scalars where it can, and leaves out selects whose users are all under their mask.
pub fn elide_selects(distributed: &mut Distributed) {
    let mut body = std::mem::take(&mut distributed.func.body);
    let mut pass = ElideSelects { distributed, definitions: HashMap::new(), selected: HashMap::new() };
    pass.rebuild(&mut body);
    distributed.func.body = body;
    dce(&mut distributed.func);
    let mut body = std::mem::take(&mut distributed.func.body);
    let mut observed = Observations::new();
    observe(&distributed.func, &body, &mut observed);
    simplify(&mut body, &observed, &mut HashMap::new());
    distributed.func.body = body;
}

/// From the last operation to the first, so that every use of a value comes before its definition.
fn observe(func: &Func, block: &Block, observed: &mut Observations) {
    observed.extend(block.yields.iter().map(|&value| (value, Observed::Everywhere)));
    for op in block.ops.iter().rev() {
        for nested in op.kind.operation().blocks() {
            observe(func, nested, observed);
        }
        let (through, elements) = elementwise_operands(func, op, observed);
        for operand in op.kind.operation().operands() {
            let own = if through.contains(&operand) { elements } else { Observed::Everywhere };
            let joined = observed.entry(operand).or_insert(own);
            if *joined != own {
                *joined = Observed::Everywhere;
            }
        }
    }
}

/// The operands that an operation uses element by element, and which of their elements matter.
fn elementwise_operands(func: &Func, op: &Op, observed: &Observations) -> (Vec<Value>, Observed) {
    let operation = op.kind.operation();
    match (&op.kind, &op.results[..]) {
        (Kind::Store(store), _) => {
            let elements = store.access.mask.map_or(Observed::Everywhere, Observed::Under);
            let addresses = store.access.operands();
            let value = Some(store.value).filter(|value| !addresses.contains(value));
            (value.into_iter().collect(), elements)
        }
        (_, [result]) if operation.is_pointwise() => {
            let tiles = operation.operands().into_iter().filter(|&operand| !func.ty(operand).is_scalar());
            (tiles.collect(), observed.get(result).copied().unwrap_or(Observed::Everywhere))
        }
        _ => (vec![], Observed::Everywhere),
    }
}

fn simplify(block: &mut Block, observed: &Observations, chosen: &mut HashMap<Value, Value>) {
    for op in &mut block.ops {
        op.kind.operation_mut().map(&mut |value| chosen.get(&value).copied().unwrap_or(value));
        for nested in op.kind.operation_mut().blocks_mut() {
            simplify(nested, observed, chosen);
        }
        let [result] = op.results[..] else { continue };
        let Some(&Observed::Under(mask)) = observed.get(&result) else { continue };
        if let Kind::Scalar(select) = &op.kind
            && select.op.arith == ArithKind::Select
            && select.args[0] == mask
        {
            chosen.insert(result, select.args[1]);
        }
    }
    block.ops.retain(|op| !op.results.iter().any(|result| chosen.contains_key(result)));
    for value in &mut block.yields {
        *value = chosen.get(value).copied().unwrap_or(*value);
    }
}

/// Selects scalars instead of the rows that they shift.
struct ElideSelects<'d> {
    distributed: &'d mut Distributed,
    /// How each value was made, by operations without blocks.
    definitions: HashMap<Value, Kind>,
    /// Scalars that were selected by a mask: one for all rows that they shift.
    selected: HashMap<(Value, Value), Value>,
}

impl ElideSelects<'_> {
    fn rebuild(&mut self, block: &mut Block) {
        let outside = self.selected.clone();
        for mut op in std::mem::take(&mut block.ops) {
            for nested in op.kind.operation_mut().blocks_mut() {
                self.rebuild(nested);
            }
            if let Kind::Load(load) = &mut op.kind {
                // Without `other` it is 0, and async copies fill with zeros.
                load.other = load.other.filter(|&other| !self.is_zero(other));
            }
            if let [result] = op.results[..] {
                if let Some((select, scalar)) = self.select_of_shifted_row(&op.kind) {
                    let (mask, row, zero) = (select.args[0], select.args[1], select.args[2]);
                    let known = self.selected.get(&(mask, scalar)).copied();
                    let selected = known.unwrap_or_else(|| self.distributed.value_like(result));
                    if known.is_none() {
                        let kind = Kind::Scalar(Scalar { args: vec![mask, scalar, zero], ..select });
                        block.ops.push(Op { kind, results: vec![selected], loc: op.loc });
                        self.selected.insert((mask, scalar), selected);
                    }
                    op.kind = self.definitions[&row].clone();
                    op.kind.operation_mut().map(&mut |value| if value == scalar { selected } else { value });
                }
                if op.kind.operation().blocks().is_empty() {
                    self.definitions.insert(result, op.kind.clone());
                }
            }
            block.ops.push(op);
        }
        self.selected = outside;
    }

    /// The select, if it is of a row that a scalar shifted and that was 0 beyond the mask before, with 0 otherwise; and
    /// the scalar, as a tile.
    fn select_of_shifted_row(&self, kind: &Kind) -> Option<(Scalar, Value)> {
        let Kind::Scalar(select) = kind else { return None };
        let &[mask, shifted, zero] = &select.args[..] else { return None };
        if select.op.arith != ArithKind::Select || !self.is_zero(zero) {
            return None;
        }
        let Kind::Scalar(shift) = self.definitions.get(&shifted)? else { return None };
        let (ArithKind::Add | ArithKind::Sub, &[a, b]) = (shift.op.arith, &shift.args[..]) else {
            return None;
        };
        let scalar = match [a, b].map(|value| self.is_scalar(value)) {
            [false, true] => b,
            [true, false] => a,
            _ => return None,
        };
        let row = if scalar == a { b } else { a };
        let MemAccess { vector, shift, .. } = self.loaded_under(mask, row)?.access;
        let vector = if shift.is_some() { 1 } else { vector as usize };
        let scalars = self.distributed.layouts.get(&row)?.register_count() / vector;
        (scalars <= MAX_SCALARS).then(|| (select.clone(), scalar))
    }

    fn is_scalar(&self, value: Value) -> bool {
        matches!(self.definitions.get(&value), Some(Kind::Splat(_)))
    }

    fn is_zero(&self, value: Value) -> bool {
        is_zero(|value| self.definitions.get(&value), value)
    }

    /// The load whose elements a value has, 0 where the mask does not hold.
    fn loaded_under(&self, mask: Value, value: Value) -> Option<&Load> {
        let kind = self.definitions.get(&value)?;
        if let Kind::Cast(Cast { value, .. }) | Kind::RematBarrier(RematBarrier { value }) = kind {
            return self.loaded_under(mask, *value);
        }
        let Kind::Load(load) = kind else { return None };
        (load.access.mask == Some(mask) && load.other.is_none()).then_some(load)
    }
}

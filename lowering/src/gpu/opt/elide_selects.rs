//! What a mask keeps out of memory need not be right, and may be made right once for many elements.
//!
//! A row that is shorter than its tile has its tail selected away before it is summed, and once more where it is computed
//! again for the result. One that was loaded as 0 beyond its mask, and then shifted by a number, stays 0 there if the
//! number is selected: `select(mask, x - mean, 0)` is `x - select(mask, mean, 0)`, a selection for each vector of the row.
//! Where any other value reaches nothing but stores under one mask, a selection by that mask is its first choice.

use std::collections::HashMap;

use crate::gpu::layout::assign::Distributed;
use crate::ir::{Block, Func, Op, Value, dce};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{Cast, Hold, Kind, Load, MemAccess, is_zero};

/// A thread keeps a number for each vector of its share of a row; with more of them than these, fewer blocks would fit on a
/// multiprocessor.
const MAX_NUMBERS: usize = 4;

/// Who looks at a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Stores under this mask alone.
    Under(Value),
    Wholly,
}

type Looks = HashMap<Value, Seen>;

/// Selects numbers where it can, and leaves out selections that are seen under their mask alone.
pub fn elide_selects(distributed: &mut Distributed) {
    let mut body = std::mem::take(&mut distributed.func.body);
    let mut pass = ElideSelects { distributed, made: HashMap::new(), selected: HashMap::new() };
    pass.rebuild(&mut body);
    distributed.func.body = body;
    dce(&mut distributed.func);
    let mut body = std::mem::take(&mut distributed.func.body);
    let mut looks = Looks::new();
    look(&distributed.func, &body, &mut looks);
    simplify(&mut body, &looks, &mut HashMap::new());
    distributed.func.body = body;
}

/// From the last operation to the first, so that every look at a value comes before its definition.
fn look(func: &Func, block: &Block, looks: &mut Looks) {
    looks.extend(block.yields.iter().map(|&value| (value, Seen::Wholly)));
    for op in block.ops.iter().rev() {
        for nested in op.kind.operation().blocks() {
            look(func, nested, looks);
        }
        let (through, seen) = passed_on(func, op, looks);
        for operand in op.kind.operation().operands() {
            let own = if through.contains(&operand) { seen } else { Seen::Wholly };
            let joined = looks.entry(operand).or_insert(own);
            if *joined != own {
                *joined = Seen::Wholly;
            }
        }
    }
}

/// The operands that an operation passes on element by element, and who sees those.
fn passed_on(func: &Func, op: &Op, looks: &Looks) -> (Vec<Value>, Seen) {
    let operation = op.kind.operation();
    match (&op.kind, &op.results[..]) {
        (Kind::Store(store), _) => {
            let seen = store.place.mask.map_or(Seen::Wholly, Seen::Under);
            let addresses = store.place.operands();
            let value = Some(store.value).filter(|value| !addresses.contains(value));
            (value.into_iter().collect(), seen)
        }
        (_, [result]) if operation.is_pointwise() => {
            let tiles = operation.operands().into_iter().filter(|&operand| !func.ty(operand).is_scalar());
            (tiles.collect(), looks.get(result).copied().unwrap_or(Seen::Wholly))
        }
        _ => (vec![], Seen::Wholly),
    }
}

fn simplify(block: &mut Block, looks: &Looks, chosen: &mut HashMap<Value, Value>) {
    for op in &mut block.ops {
        op.kind.operation_mut().map(&mut |value| chosen.get(&value).copied().unwrap_or(value));
        for nested in op.kind.operation_mut().blocks_mut() {
            simplify(nested, looks, chosen);
        }
        let [result] = op.results[..] else { continue };
        let Some(&Seen::Under(mask)) = looks.get(&result) else { continue };
        if let Kind::Scalar(select) = &op.kind
            && select.op.algebra == ArithKind::Select
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

/// Selects numbers instead of what they shifted.
struct ElideSelects<'d> {
    distributed: &'d mut Distributed,
    /// How each value was made, by operations without blocks.
    made: HashMap<Value, Kind>,
    /// Numbers that were selected by a mask: one for all rows that they shift.
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
                // It is 0 without it, and copies fill with zeros.
                load.other = load.other.filter(|&other| !self.is_zero(other));
            }
            if let [result] = op.results[..] {
                if let Some((select, number)) = self.of_a_number(&op.kind) {
                    let (mask, row, zero) = (select.args[0], select.args[1], select.args[2]);
                    let known = self.selected.get(&(mask, number)).copied();
                    let selected = known.unwrap_or_else(|| self.distributed.value_like(result));
                    if known.is_none() {
                        let kind = Kind::Scalar(Scalar { args: vec![mask, number, zero], ..select });
                        block.ops.push(Op { kind, results: vec![selected], loc: op.loc });
                        self.selected.insert((mask, number), selected);
                    }
                    op.kind = self.made[&row].clone();
                    op.kind.operation_mut().map(&mut |value| if value == number { selected } else { value });
                }
                if op.kind.operation().blocks().is_empty() {
                    self.made.insert(result, op.kind.clone());
                }
            }
            block.ops.push(op);
        }
        self.selected = outside;
    }

    /// The selection, if it is of a row that a number shifted and that was 0 beyond the mask before, and 0 otherwise; and the
    /// number, as a tile.
    fn of_a_number(&self, kind: &Kind) -> Option<(Scalar, Value)> {
        let Kind::Scalar(select) = kind else { return None };
        let &[mask, shifted, zero] = &select.args[..] else { return None };
        if select.op.algebra != ArithKind::Select || !self.is_zero(zero) {
            return None;
        }
        let Kind::Scalar(shift) = self.made.get(&shifted)? else { return None };
        let (ArithKind::Add | ArithKind::Sub, &[left, right]) = (shift.op.algebra, &shift.args[..]) else {
            return None;
        };
        let number = match [left, right].map(|value| self.is_number(value)) {
            [false, true] => right,
            [true, false] => left,
            _ => return None,
        };
        let row = if number == left { right } else { left };
        let MemAccess { vector, shift, .. } = self.loaded_under(mask, row)?.place;
        let vector = if shift.is_some() { 1 } else { vector as usize };
        let numbers = self.distributed.layouts.get(&row)?.register_count() / vector;
        (numbers <= MAX_NUMBERS).then(|| (select.clone(), number))
    }

    fn is_number(&self, value: Value) -> bool {
        matches!(self.made.get(&value), Some(Kind::Splat(_)))
    }

    fn is_zero(&self, value: Value) -> bool {
        is_zero(|value| self.made.get(&value), value)
    }

    /// The load that a value is an element of each, 0 where the mask does not hold.
    fn loaded_under(&self, mask: Value, value: Value) -> Option<&Load> {
        let kind = self.made.get(&value)?;
        if let Kind::Cast(Cast { value }) | Kind::Hold(Hold { value }) = kind {
            return self.loaded_under(mask, *value);
        }
        let Kind::Load(load) = kind else { return None };
        (load.place.mask == Some(mask) && load.other.is_none()).then_some(load)
    }
}

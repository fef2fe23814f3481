//! What a mask keeps out of memory need not be right.
//!
//! A row that is shorter than its tile has its tail selected away before it is summed, and once more where it is computed
//! again for the result. Where a value reaches nothing but stores under one mask, a selection by that mask is its first
//! choice.

use std::collections::HashMap;

use super::assign::Distributed;
use crate::ops::Kind;
use crate::ops::scalar::Algebra;
use crate::tile::{Block, Func, Op, Value};

/// Who looks at a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Stores under this mask alone.
    Under(Value),
    Wholly,
}

type Looks = HashMap<Value, Seen>;

/// Simplifies what is seen under a mask alone.
pub fn unmask(distributed: &mut Distributed) {
    let func = &mut distributed.func;
    let mut looks = Looks::new();
    look(func, &func.body, &mut looks);
    let mut body = std::mem::take(&mut func.body);
    simplify(&mut body, &looks, &mut HashMap::new());
    func.body = body;
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
            && select.op.algebra == Algebra::Select
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

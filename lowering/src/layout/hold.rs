//! Narrow tiles stay narrow.
//!
//! A row of `bf16` that is widened, reduced, and used again after the reduction would wait for the result in twice the
//! registers, and fewer blocks would fit on a multiprocessor. After every reduction this pass widens anew: what was made
//! from a narrow load by cheap lanewise operations is made again where it is next used, from the narrow registers.

use std::collections::HashMap;

use super::assign::{Distributed, Spread};
use crate::ops::{Effect, Hold, Kind};
use crate::tile::{Block, Func, Op, Value};

/// Registers of one thread below which a tile may as well wait wide.
const MIN_REGISTERS: usize = 16;

/// Rebuilds the function's outermost block; a loop's body is short of registers for other reasons.
pub fn hold(distributed: &mut Distributed) {
    let block = std::mem::take(&mut distributed.func.body);
    let mut pass = Pass { distributed, made: HashMap::new(), current: HashMap::new(), age: 0, ops: vec![] };
    pass.ops(block.ops);
    let ops = pass.ops;
    distributed.func.body = Block { ops, ..block };
}

struct Pass<'d> {
    distributed: &'d mut Distributed,
    /// What can be made again, by its first result's name.
    made: HashMap<Value, Op>,
    /// The youngest incarnation of a value, and how many reductions it has seen.
    current: HashMap<Value, (Value, u32)>,
    /// Reductions so far.
    age: u32,
    ops: Vec<Op>,
}

impl Pass<'_> {
    fn ops(&mut self, ops: Vec<Op>) {
        for mut op in ops {
            let operands = op.kind.operation().operands();
            let fresh: HashMap<Value, Value> =
                operands.into_iter().map(|operand| (operand, self.fresh(operand))).collect();
            op.kind.operation_mut().map(&mut |operand| fresh[&operand]);
            let reduces = matches!(
                op.kind.operation().spread(&self.distributed.func, &op.results),
                Spread::Fold { .. }
            );
            if let [result] = op.results[..]
                && self.can_be_made_again(&op)
            {
                self.made.insert(result, op.clone());
                self.current.insert(result, (result, self.age));
            }
            self.ops.push(op);
            self.age += u32::from(reduces);
        }
    }

    fn func(&self) -> &Func {
        &self.distributed.func
    }

    /// Whether the operation is a narrow load, or a cheap one on what was made from such.
    fn can_be_made_again(&self, op: &Op) -> bool {
        let operation = op.kind.operation();
        let result = op.results[0];
        let Some(layout) = self.distributed.layouts.get(&result) else { return false };
        if layout.register_count() < MIN_REGISTERS || operation.effect() != Effect::Pure {
            return false;
        }
        if is_narrow_load(self.func(), op) {
            return true;
        }
        let tiles: Vec<Value> = operation
            .operands()
            .into_iter()
            .filter(|&operand| !self.func().ty(operand).is_scalar())
            .collect();
        let again = |value: &Value| self.origin(*value).is_some();
        let light = |value: &Value| again(value) || is_light(self.func(), &self.ops, *value);
        let cheap = matches!(op.kind, Kind::Cast(_))
            || operation.spread(self.func(), &op.results) == Spread::Lanewise { cheap: true };
        cheap && tiles.iter().any(again) && tiles.iter().all(light)
    }

    /// The name under which a value, or an earlier incarnation of it, can be made again.
    fn origin(&self, value: Value) -> Option<Value> {
        if self.made.contains_key(&value) {
            return Some(value);
        }
        self.current.iter().find(|(_, (incarnation, _))| *incarnation == value).map(|(&origin, _)| origin)
    }

    /// The value as later operations should have it.
    fn fresh(&mut self, value: Value) -> Value {
        let Some(&(latest, age)) = self.current.get(&value) else { return value };
        if age == self.age {
            return latest;
        }
        let made = self.made[&value].clone();
        let renewed = if is_narrow_load(self.func(), &made) {
            self.append(Hold { value: latest }.into(), &made)
        } else {
            let mut kind = made.kind.clone();
            let operands = kind.operation().operands();
            let fresh: HashMap<Value, Value> = operands
                .into_iter()
                .map(|operand| (operand, self.origin(operand).map_or(operand, |origin| self.fresh(origin))))
                .collect();
            kind.operation_mut().map(&mut |operand| fresh[&operand]);
            self.append(kind, &made)
        };
        self.current.insert(value, (renewed, self.age));
        renewed
    }

    fn append(&mut self, kind: Kind, like: &Op) -> Value {
        let ty = self.func().ty(like.results[0]).clone();
        let value = self.distributed.func.value(ty);
        let layout = self.distributed.layouts[&like.results[0]].clone();
        self.distributed.layouts.insert(value, layout);
        self.ops.push(Op { kind, results: vec![value], loc: like.loc });
        value
    }
}

fn is_narrow_load(func: &Func, op: &Op) -> bool {
    op.kind.operation().place().is_some() && func.ty(op.results[0]).dtype.bytes() < 4
}

/// Whether a value takes no registers of its own: a scalar, a number everywhere, a mask, a ramp.
fn is_light(func: &Func, ops: &[Op], value: Value) -> bool {
    if func.ty(value).is_scalar() {
        return true;
    }
    let Some(op) = ops.iter().find(|op| op.results.contains(&value)) else { return false };
    let operands = || op.kind.operation().operands();
    match op.kind.operation().spread(func, &op.results) {
        Spread::Source => true,
        Spread::Lanewise { cheap: true } | Spread::View(_) => {
            operands().iter().all(|&operand| is_light(func, ops, operand))
        }
        Spread::Lanewise { cheap: false } | Spread::Fold { .. } | Spread::Carry(_) | Spread::Free => false,
    }
}

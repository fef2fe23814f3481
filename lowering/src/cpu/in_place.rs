//! Accumulators that a loop carries are updated in place: the result of a dot shares the buffer of the loop's argument that
//! it accumulates into, if nothing else uses the argument.

use std::collections::HashMap;

use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::Kind;

/// For each result that can share the buffer of a loop's argument, that argument.
pub(crate) fn in_place(func: &Func) -> HashMap<Value, Value> {
    let mut uses = vec![0; func.value_count()];
    count(&func.body, &mut uses);
    let mut found = HashMap::new();
    func.body.walk(&mut |op| {
        if let Kind::For(op) = &op.kind {
            let carried = op.body.args[1..].iter().zip(&op.body.yields);
            for (&arg, &result) in carried {
                if let Some(acc) = accumulator(&op.body, result)
                    && starts_from(&op.body, acc, arg, &uses)
                {
                    found.insert(result, arg);
                }
            }
        }
    });
    found
}

/// How often each value is used.
fn count(block: &Block, uses: &mut [u32]) {
    block.yields.iter().for_each(|value| uses[value.index()] += 1);
    for op in &block.ops {
        op.kind.operation().operands().iter().for_each(|value| uses[value.index()] += 1);
        op.kind.operation().blocks().into_iter().for_each(|block| count(block, uses));
    }
}

/// The accumulator of a dot of this block.
fn accumulator(block: &Block, result: Value) -> Option<Value> {
    let Kind::Dot(dot) = &defined(block, result)?.kind else { return None };
    dot.acc
}

fn defined(block: &Block, value: Value) -> Option<&Op> {
    block.ops.iter().find(|op| op.results.contains(&value))
}

/// Whether each element of `value` is computed from that element of `arg`, which has no other use.
fn starts_from(block: &Block, value: Value, arg: Value, uses: &[u32]) -> bool {
    if uses[value.index()] != 1 {
        return false;
    }
    if value == arg {
        return true;
    }
    let Some(op) = defined(block, value) else { return false };
    let operation = op.kind.operation();
    operation.is_pointwise()
        && operation.operands().iter().any(|&operand| starts_from(block, operand, arg, uses))
}

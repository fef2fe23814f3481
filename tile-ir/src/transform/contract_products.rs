//! Lets a product be fused with the sum that uses it.
//!
//! Law: `a * b + c` may be rounded once, as `fma(a, b, c)` is, where the sum is the only use of the product. A product that
//! something else uses too, such as a maximum or a mask, is rounded first: `x * s - max(x * s)` is 0 at the maximum.

use std::collections::{HashMap, HashSet};

use crate::ir::{Block, Func, Op, Value};
use crate::ops::Kind;
use crate::ops::scalar::ArithKind;

/// Marks the products that may be fused.
pub fn contract_products(func: &mut Func) {
    let mut sums: HashMap<Value, usize> = HashMap::new();
    let mut others: HashMap<Value, usize> = HashMap::new();
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let uses = if is_sum(op) { &mut sums } else { &mut others };
        operation.operands().into_iter().for_each(|operand| *uses.entry(operand).or_default() += 1);
        for yielded in operation.blocks().into_iter().flat_map(|block| &block.yields) {
            *others.entry(*yielded).or_default() += 1;
        }
    });
    let is_fused = |value: &Value| sums.get(value) == Some(&1) && !others.contains_key(value);
    let floats: Vec<Value> =
        func.definitions().into_keys().filter(|&value| func.ty(value).dtype.is_float()).collect();
    let fused = floats.into_iter().filter(is_fused).collect();
    mark(&mut func.body, &fused);
}

/// Whether an operation adds up its operands, or may.
fn is_sum(op: &Op) -> bool {
    let adds = |arith| matches!(arith, ArithKind::Add | ArithKind::Sub);
    matches!(&op.kind, Kind::Scalar(scalar) if adds(scalar.op.arith))
        || matches!(&op.kind, Kind::Reduce(_) | Kind::Scan(_))
}

fn mark(block: &mut Block, fused: &HashSet<Value>) {
    for op in &mut block.ops {
        if let Kind::Scalar(scalar) = &mut op.kind
            && scalar.op.arith == ArithKind::Mul
        {
            scalar.contract = fused.contains(&op.results[0]);
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| mark(nested, fused));
    }
}

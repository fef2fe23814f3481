//! Two matmuls with a softmax between them: rows of scores need not be whole, because the softmax can be corrected as more
//! of a row comes. That is attention, and the only way in which a reduction and a second matmul follow a matmul in one kernel.

use super::obstacle::{Obstacle, registers, wanted_elsewhere};
use crate::cost::Context;
use crate::graph::{OpId, OpKind};
use crate::kind::Pattern;

/// Chains of a matmul, elementwise operations, a softmax, elementwise operations and a matmul that reads it as operand A, none of
/// whose results is wanted elsewhere.
pub(super) fn chains(cx: &Context<'_>) -> Vec<Vec<OpId>> {
    let softmaxes = cx.graph.op_ids().filter(|&id| is_softmax(cx, id));
    softmaxes.filter_map(|softmax| chain(cx, softmax)).collect()
}

/// Whether operations are such a chain.
pub(super) fn is_chain(cx: &Context<'_>, ops: &[OpId]) -> bool {
    chains(cx).iter().any(|chain| chain == ops)
}

/// What forbids it: nothing but registers.
pub(super) fn obstacles(cx: &Context<'_>, ops: &[OpId]) -> Vec<Obstacle> {
    registers(cx, ops).into_iter().collect()
}

fn is_softmax(cx: &Context<'_>, id: OpId) -> bool {
    matches!(cx.graph.op(id).kind, OpKind::Known(kind) if kind.name == "softmax")
}

fn chain(cx: &Context<'_>, softmax: OpId) -> Option<Vec<OpId>> {
    let graph = cx.graph;
    let mut ops = vec![softmax];
    let mut first = softmax;
    while graph.op(first).pattern() != Pattern::Matmul {
        first = graph.producer(*graph.op(first).inputs.first()?)?;
        if !matches!(graph.op(first).pattern(), Pattern::Elementwise | Pattern::Matmul) {
            return None;
        }
        only_reader(cx, first)?;
        ops.push(first);
    }
    let mut last = softmax;
    while graph.op(last).pattern() != Pattern::Matmul {
        let next = only_reader(cx, last)?;
        let reads_as_a = graph.producer(*graph.op(next).inputs.first()?) == Some(last);
        if !reads_as_a || !matches!(graph.op(next).pattern(), Pattern::Elementwise | Pattern::Matmul) {
            return None;
        }
        last = next;
        ops.push(last);
    }
    ops.sort();
    Some(ops)
}

/// The one operation that reads what another makes, where nothing else wants it.
fn only_reader(cx: &Context<'_>, op: OpId) -> Option<OpId> {
    let &[made] = &cx.graph.op(op).outputs[..] else { return None };
    let &[reader] = &cx.graph.readers(made)[..] else { return None };
    (!wanted_elsewhere(cx, made, &[reader])).then_some(reader)
}

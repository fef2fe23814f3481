//! Loops that read what another loop of the program has read: their loads are served by the first-level cache, which copies made ahead
//! bypass, and whose memory the ring of copies would take.

use std::collections::HashSet;

use super::polynomial::{Atom, Placement, Polynomial, Polynomials};
use crate::ir::{Block, Func, ParamId, Value};
use crate::ops::{For, Kind, Load};

/// Asks for no copies ahead in loops that read again what an earlier loop has read, where the user asks for nothing. Loops of products are
/// left alone: threads share what they copy.
pub fn unpipeline_rereads(func: &mut Func) {
    let found = found(func);
    if !found.is_empty() {
        hint(&mut func.body, &found);
    }
}

/// Whether there are such loops.
pub fn has_rereads(func: &Func) -> bool {
    !found(func).is_empty()
}

/// Their variables.
fn found(func: &Func) -> HashSet<Value> {
    let polynomials = Polynomials::analyze(func);
    let mut finder = RereadFinder { func, polynomials: &polynomials, seen: vec![], found: HashSet::new() };
    finder.block(&func.body);
    finder.found
}

fn hint(block: &mut Block, loops: &HashSet<Value>) {
    for op in &mut block.ops {
        if let Kind::For(body) = &mut op.kind
            && loops.contains(&body.body.args[0])
        {
            body.hints.num_stages = body.hints.num_stages.or(Some(1));
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| hint(nested, loops));
    }
}

/// Bytes of a piece from which on rows are taken for long: no first-level cache holds those of all programs that run beside each other, and
/// few programs leave copies alone to hide latency.
const LONG: u64 = 8192;

/// Where a loop reads: a slice, the step from iteration to iteration, and the rest of the offset.
#[derive(PartialEq)]
struct LoopRead {
    param: ParamId,
    step: Polynomial,
    rest: Polynomial,
}

struct RereadFinder<'a> {
    func: &'a Func,
    polynomials: &'a Polynomials,
    /// What loops have read so far.
    seen: Vec<LoopRead>,
    /// The variables of the loops that read some of it again.
    found: HashSet<Value>,
}

impl RereadFinder<'_> {
    fn block(&mut self, block: &Block) {
        for op in &block.ops {
            if let Kind::For(body) = &op.kind {
                self.reads(body);
            }
            op.kind.operation().blocks().into_iter().for_each(|nested| self.block(nested));
        }
    }

    fn reads(&mut self, body: &For) {
        let variable = body.body.args[0];
        let multiplies = |kind: &Kind| matches!(kind, Kind::Dot(_) | Kind::WarpGroupDot(_));
        let is_long = |load: &Load| {
            let bytes = self.func.slice(load.place.param).0.bytes();
            self.func.ty(load.place.offset).shape.elements() * u64::from(bytes) >= LONG
        };
        let mut readings = vec![];
        for op in &body.body.ops {
            if multiplies(&op.kind) || matches!(&op.kind, Kind::Load(load) if is_long(load)) {
                return;
            }
            if let Kind::Load(load) = &op.kind {
                let place = self.polynomials.of_place(&load.place);
                let (step, rest) = place.split(Atom::Loop(variable, Placement::OWN));
                readings.push(LoopRead { param: load.place.param, step, rest });
            }
        }
        readings.retain(|reading| reading.step != Polynomial::default());
        if readings.iter().any(|reading| self.seen.contains(reading)) {
            self.found.insert(variable);
        }
        self.seen.extend(readings);
    }
}

//! Loops that read what another loop of the program has read. The L1 cache serves their loads; asynchronous copies of a
//! software pipeline would bypass it, and their buffers would take its memory.

use std::collections::HashSet;

use super::polynomial::Polynomials;
use crate::ir::polynomial::{Atom, Placement, Polynomial};
use crate::ir::{Block, Func, ParamId, Value};
use crate::ops::{For, Kind, Load};

/// Turns software pipelining off (`num_stages = 1`) in loops that reread what an earlier loop has read, where the user asks for
/// nothing. Dot loops stay as they are: their threads share the copied operands.
pub fn unpipeline_rereads(func: &mut Func) {
    let found = rereading_loops(func);
    if !found.is_empty() {
        hint(&mut func.body, &found);
    }
}

/// Whether there are such loops.
pub fn has_rereads(func: &Func) -> bool {
    !rereading_loops(func).is_empty()
}

/// Their variables.
fn rereading_loops(func: &Func) -> HashSet<Value> {
    let polynomials = Polynomials::analyze(func);
    let mut finder = RereadFinder { func, polynomials: &polynomials, earlier: vec![], found: HashSet::new() };
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

/// Bytes of a chunk from which on rows count as long: no L1 cache holds those of all resident programs, and with few programs
/// only asynchronous copies hide latency.
const LONG_CHUNK_BYTES: u64 = 8192;

/// What a loop reads: a slice, the step from iteration to iteration, and the rest of the offset.
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
    earlier: Vec<LoopRead>,
    /// The variables of the loops that reread some of it.
    found: HashSet<Value>,
}

impl RereadFinder<'_> {
    fn block(&mut self, block: &Block) {
        for op in &block.ops {
            if let Kind::For(body) = &op.kind {
                self.visit_loop(body);
            }
            op.kind.operation().blocks().into_iter().for_each(|nested| self.block(nested));
        }
    }

    fn visit_loop(&mut self, body: &For) {
        let variable = body.body.args[0];
        let is_dot = |kind: &Kind| matches!(kind, Kind::Dot(_) | Kind::WarpGroupDot(_));
        let is_long = |load: &Load| {
            let bytes = self.func.slice(load.access.param).0.bytes();
            self.func.ty(load.access.offset).shape.elements() * u64::from(bytes) >= LONG_CHUNK_BYTES
        };
        let mut reads = vec![];
        for op in &body.body.ops {
            if is_dot(&op.kind) || matches!(&op.kind, Kind::Load(load) if is_long(load)) {
                return;
            }
            if let Kind::Load(load) = &op.kind {
                let offset = self.polynomials.of_access(&load.access);
                let (step, rest) = offset.split(Atom::Loop(variable, Placement::OWN));
                reads.push(LoopRead { param: load.access.param, step, rest });
            }
        }
        reads.retain(|read| read.step != Polynomial::default());
        if reads.iter().any(|read| self.earlier.contains(read)) {
            self.found.insert(variable);
        }
        self.earlier.extend(reads);
    }
}

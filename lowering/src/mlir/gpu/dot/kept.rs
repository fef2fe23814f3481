//! Factors that a loop multiplies by in every turn and does not change. Those that do not fit into registers as the
//! instruction takes them (`layout::hoist`) are written to shared memory once, before the loop.

use std::collections::{HashMap, HashSet};

use super::{Builder, Factors, Gpu};
use crate::layout::Distributed;
use crate::layout::dot::{SIDES, Side};
use crate::mlir::builder::Val;
use crate::ops::{Dot, For, Kind};
use crate::tile::{Block, Op, Value};

/// As [`Distributed::kept`].
type Kept = HashMap<(Value, Side), Value>;

/// Finds them, each at the outermost loop that does not change it.
pub(in super::super) fn find(distributed: &Distributed) -> Kept {
    let mut kept = Kept::new();
    if distributed.num_ctas == 1 {
        distributed.func.body.walk(&mut |op| {
            if let Kind::For(body) = &op.kind
                && !op.results.is_empty()
            {
                in_loop(distributed, body, &mut kept);
            }
        });
    }
    kept
}

fn in_loop(distributed: &Distributed, body: &For, kept: &mut Kept) {
    let mut inside = HashSet::new();
    defined(&body.body, &mut inside);
    products(body, |op, dot| {
        let factors = Factors::new(distributed, dot, op);
        for side in SIDES {
            if factors.staged[side as usize].is_some() && !inside.contains(&dot.factor(side)) {
                kept.entry((op.results[0], side)).or_insert(body.body.args[0]);
            }
        }
    });
}

fn defined(block: &Block, values: &mut HashSet<Value>) {
    values.extend(&block.args);
    block.walk(&mut |op| {
        values.extend(&op.results);
        values.extend(op.kind.operation().blocks().into_iter().flat_map(|block| &block.args));
    });
}

fn products(body: &For, mut visit: impl FnMut(&Op, &Dot)) {
    body.body.walk(&mut |op| {
        if let Kind::Dot(dot) = &op.kind {
            visit(op, dot);
        }
    });
}

/// The factors that a loop keeps, and their bytes.
fn of_loop(distributed: &Distributed, body: &For) -> Vec<(Value, Side, u32)> {
    let mut found = vec![];
    products(body, |op, dot| {
        let factors = Factors::new(distributed, dot, op);
        for side in SIDES
            .into_iter()
            .filter(|&side| distributed.kept.get(&(op.results[0], side)) == Some(&body.body.args[0]))
        {
            let staged = factors.staged[side as usize].as_ref();
            found.extend(
                staged.map(|staged| (op.results[0], side, staged.bytes(distributed, dot.factor(side)))),
            );
        }
    });
    found
}

/// Shared memory for them.
pub(in super::super) fn scratch(distributed: &Distributed, body: &For) -> u32 {
    of_loop(distributed, body).iter().map(|(_, _, bytes)| bytes).sum()
}

impl Gpu<'_> {
    /// Writes what a loop keeps to shared memory.
    pub(in super::super) fn keep(&mut self, b: &mut Builder, body: &For, op: &Op) {
        let distributed = &self.plan.distributed;
        let list = of_loop(distributed, body);
        if list.is_empty() {
            return;
        }
        let place = self.shared.place(op.results[0]);
        self.before_write(b, place);
        let mut base = b.offset_bytes(self.scratch(), place.start as i32);
        let mut bases: Vec<((Value, Side), Val)> = vec![];
        for (result, side, bytes) in list {
            products(body, |op, dot| {
                if op.results[0] == result {
                    let factors = Factors::new(distributed, dot, op);
                    let staged = factors.staged[side as usize].as_ref().expect("it is kept");
                    self.write_tile(b, dot.factor(side), &staged.staging, base);
                }
            });
            bases.push(((result, side), base));
            base = b.offset_bytes(base, bytes as i32);
        }
        self.barrier(b);
        self.shared.read(place);
        self.kept.extend(bases);
    }
}

//! Mistakes that a kernel may make and that are hardly meant. Only certain cases are reported: a kernel that is right for some
//! grid and some arguments has no warning here.

use std::collections::{HashMap, HashSet};

use super::masked_zeros::masked_zeros;
use super::program_varying::{Across, varying};
use super::reduced_rows::reduced_rows;
use super::unordered_access::{Touch, memory, place, unordered};
use crate::ir::{Block, Func, Op, ParamId, Value, backward_slice};
use crate::ops::{Kind, While};
use crate::support::warning::Warning;

/// Returns the likely mistakes of a kernel, as the user wrote it.
pub fn mistakes(func: &Func) -> Vec<Warning> {
    let varying = varying(func, Across::ProgramsOfALaunch);
    let mut search = MistakeSearch { func, definitions: func.definitions(), varying, found: vec![] };
    let mut has_programs = false;
    func.body.walk(&mut |op| has_programs |= matches!(op.kind, Kind::ProgramId(_)));
    if has_programs {
        let stores = unordered(func).into_iter().filter(|access| access.touch == Touch::Write);
        let stores: Vec<&Op> = stores.map(|access| access.op).collect();
        search.stores(&func.body, &stores);
        search.random_numbers();
    }
    func.body.walk(&mut |op| {
        if let Kind::While(body) = &op.kind {
            search.waits(body);
        }
    });
    search.found.extend(masked_zeros(func, &search.definitions));
    search.found.extend(reduced_rows(func, &search.definitions));
    search.found
}

struct MistakeSearch<'f> {
    func: &'f Func,
    definitions: HashMap<Value, &'f Op>,
    /// Values that may differ between the programs of a launch.
    varying: HashSet<Value>,
    found: Vec<Warning>,
}

impl<'f> MistakeSearch<'f> {
    fn varies(&self, values: &[Value]) -> bool {
        values.iter().any(|value| self.varying.contains(value))
    }

    fn warn(&mut self, op: &Op, kind: &'static str, text: String) {
        self.found.push(Warning { loc: op.loc, kind, text });
    }

    fn name(&self, param: ParamId) -> &'f str {
        &self.func.params[param.index()].name
    }

    // ---- stores

    /// Reports stores of all programs to the same elements, in blocks that every program runs.
    fn stores(&mut self, block: &'f Block, unordered: &[&'f Op]) {
        for op in &block.ops {
            let mut decides = vec![];
            if let Kind::If(branch) = &op.kind {
                decides.push(branch.condition);
            }
            if let Kind::For(own) = &op.kind {
                decides.extend([own.low, own.high, own.step]);
            }
            // A program may leave a `while` before another one does.
            let every_program = !matches!(op.kind, Kind::While(_)) && !self.varies(&decides);
            if every_program {
                op.kind.operation().blocks().into_iter().for_each(|nested| self.stores(nested, unordered));
            }
            let (Some(param), Some(place)) = (memory(op), place(op)) else { continue };
            if unordered.iter().any(|store| std::ptr::eq(*store, op)) && !self.varies(&place) {
                self.store_of_every_program(op, param);
            }
        }
    }

    fn store_of_every_program(&mut self, op: &Op, param: ParamId) {
        let name = self.name(param);
        if self.updates(op, param) {
            let text = format!(
                "every program reads the same elements of `{name}`, changes them and stores them: what another program stores \
                 meanwhile is lost; use `tl::atomic_add` or another atomic"
            );
            return self.warn(op, "update_without_atomic", text);
        }
        let text = format!(
            "every program stores to the same elements of `{name}`: no `tl::program_id` is in their offset; add the program's \
             own start, or let one program store: `if tl::program_id(0) == 0 {{ .. }}`"
        );
        self.warn(op, "store_without_program_id", text);
    }

    /// Whether a store's value depends on elements of the same slice.
    fn updates(&self, store: &Op, param: ParamId) -> bool {
        let place = place(store).unwrap_or_default();
        let operands = store.kind.operation().operands();
        let values = operands.into_iter().filter(|operand| !place.contains(operand));
        let mut slices = values.map(|value| backward_slice(value, &self.definitions));
        slices.any(|slice| {
            let ops = slice.iter().filter_map(|value| self.definitions.get(value));
            let mut reads = ops.filter(|op| memory(op) == Some(param));
            reads.any(|op| !self.varies(&self::place(op).unwrap_or_default()))
        })
    }

    // ---- random numbers

    /// Reports random numbers that are the same in every program and stored to elements of each program's own.
    fn random_numbers(&mut self) {
        let mut random = vec![];
        let mut stores = vec![];
        self.func.body.walk(&mut |op| {
            if matches!(op.kind, Kind::Random(_) | Kind::Philox(_)) {
                random.push(op);
            } else if Touch::of(op) == Some(Touch::Write) {
                stores.push(op);
            }
        });
        random.retain(|op| !self.varies(&op.kind.operation().operands()));
        for op in random {
            let is_stored = stores.iter().any(|store| {
                let place = place(store).unwrap_or_default();
                let operands = store.kind.operation().operands();
                let mut values = operands.into_iter().filter(|operand| !place.contains(operand));
                self.varies(&place)
                    && values.any(|value| backward_slice(value, &self.definitions).contains(&op.results[0]))
            });
            if is_stored {
                let text = "every program takes the same random numbers: no `tl::program_id` is in their offset; give the \
                            offset of the elements that they are for";
                self.warn(op, "random_without_program_id", text.to_string());
            }
        }
    }

    // ---- loops that wait

    /// Reports a loop that waits for an element which nothing in it changes, by a load that may be made once.
    fn waits(&mut self, body: &'f While) {
        let condition = backward_slice(body.test.yields[0], &self.definitions);
        let carried = |value: &Value| body.test.args.contains(value) || body.body.args.contains(value);
        let (mut loads, mut others) = (vec![], false);
        body.test.walk(&mut |op| {
            if op.results.iter().any(|result| condition.contains(result)) {
                match Touch::of(op) {
                    Some(Touch::Read) => loads.push(op),
                    Some(Touch::Write | Touch::Atomic) => others = true,
                    None => {}
                }
            }
        });
        let mut written = HashSet::new();
        for block in [&body.test, &body.body] {
            block.walk(&mut |op| {
                if matches!(Touch::of(op), Some(Touch::Write | Touch::Atomic)) {
                    written.extend(memory(op));
                }
            });
        }
        let changes = |op: &&Op| memory(op).is_some_and(|param| written.contains(&param));
        if others || condition.iter().any(carried) || loads.iter().any(changes) {
            return;
        }
        if let Some(&load) = loads.first() {
            let text = format!(
                "nothing in the loop changes `{}`, and an ordinary load of one address may be made once for all iterations: wait with \
                 an atomic, `tl::atomic_add(.., 0).sem(\"acquire\")`, or with `tl::load(..).volatile()`",
                self.name(memory(load).expect("a load reads memory"))
            );
            self.warn(load, "wait_without_atomic", text);
        }
    }
}

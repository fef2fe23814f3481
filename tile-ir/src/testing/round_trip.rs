//! What prints parses back: nothing that a function means is lost in its text.

use std::collections::HashMap;

use proc_macro2::Span;

use crate::ir::{self, Block, Func, Op, Param, ParamKind, Value};
use crate::ops::Kind;
use crate::support::diagnostic::Loc;

fn text(func: &Func) -> String {
    ir::print(func, &|_| None)
}

/// A copy of a function whose values and sites are numbered in the order of their definitions, without its places in the
/// source.
struct Renumbered<'f> {
    old: &'f Func,
    new: Func,
    values: HashMap<Value, Value>,
}

impl Renumbered<'_> {
    fn of(old: &Func) -> Func {
        let new = Func::new(&old.name, Loc::from(Span::call_site()));
        let mut copy = Renumbered { old, new, values: HashMap::new() };
        for Param { name, kind } in &old.params {
            let mut kind = kind.clone();
            if let ParamKind::Scalar { value, .. } = &mut kind {
                *value = copy.define(*value);
            }
            copy.new.params.push(Param { name: name.clone(), kind });
        }
        copy.new.body = copy.block(&old.body);
        copy.new.reports = old.reports;
        copy.new.stated_multiple = old.stated_multiple;
        copy.new.assumptions = old.assumptions.clone();
        copy.new.views = old.views.clone();
        let mut views = std::mem::take(&mut copy.new.views);
        for value in views.iter_mut().flat_map(|view| view.shape.iter_mut().chain(&mut view.strides)) {
            // What a view had and nobody defines any more is any value.
            *value = copy.values.get(value).copied().unwrap_or_else(|| copy.define(*value));
        }
        copy.new.views = views;
        copy.new
    }

    fn define(&mut self, old: Value) -> Value {
        let new = self.new.value(self.old.ty(old).clone());
        self.values.insert(old, new);
        new
    }

    fn block(&mut self, old: &Block) -> Block {
        let args = old.args.iter().map(|&arg| self.define(arg)).collect();
        let ops = old.ops.iter().map(|op| self.op(op)).collect();
        Block { args, ops, yields: old.yields.iter().map(|value| self.values[value]).collect() }
    }

    fn op(&mut self, old: &Op) -> Op {
        let mut kind = old.kind.clone();
        kind.operation_mut().map(&mut |value| self.values[&value]);
        if let Kind::Assert(assert) = &mut kind {
            assert.site = self.site(assert.site);
        }
        if let Kind::Print(print) = &mut kind {
            print.site = self.site(print.site);
        }
        let results = old.results.iter().map(|&result| self.define(result)).collect();
        for block in kind.operation_mut().blocks_mut() {
            *block = self.block(block);
        }
        Op { kind, results, loc: self.new.loc }
    }

    fn site(&mut self, old: u32) -> u32 {
        self.new.sites.push(self.old.sites[old as usize].clone());
        self.new.sites.len() as u32 - 1
    }
}

/// Checks that two texts are one; they are too long to print.
fn check_same(first: &str, second: &str) {
    let mut lines = first.lines().zip(second.lines()).enumerate();
    let difference = lines.find(|(_, (a, b))| a != b);
    let before: Vec<&str> = first.lines().take(difference.map_or(0, |(number, _)| number)).collect();
    let before = before[before.len().saturating_sub(20)..].join("\n");
    assert!(first == second, "{before}\n{difference:?}");
}

/// Checks that the text of a function is parsed as the function.
pub fn check_round_trip(func: &Func) {
    let printed = text(func);
    let parsed = ir::parse(&printed).unwrap_or_else(|error| {
        panic!("{error}: {}\n{printed}", printed.lines().nth(error.line - 1).unwrap_or_default())
    });
    check_same(&printed, &text(&parsed));
    let [own, again] = [func, &parsed].map(Renumbered::of);
    // Lines take several times as long to write.
    if format!("{own:?}") != format!("{again:?}") {
        check_same(&format!("{own:#?}"), &format!("{again:#?}"));
    }
}

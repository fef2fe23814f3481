//! What prints parses back: nothing that a function means is lost in its text.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use proc_macro2::Span;

use super::assemble::kernels;
use super::fuzz::generate;
use super::{func, try_func};
use crate::devtools::fuzzgen::SplitMix64;
use crate::driver::specialize::{KernelRequests, specializations};
use crate::frontend::typeck;
use crate::ir;
use crate::ir::{Block, Func, Op, Param, ParamKind, Value};
use crate::ops::Kind;
use crate::support::diagnostic::{Errors, Loc};
use crate::support::dtype::DType;
use crate::transform::check_overflow::check_overflow;
use crate::transform::legalize_index::{BoundsPolicy, legalize_index};
use crate::transform::transpose_operands::transpose_operands;
use crate::transform::view_strides::assume_contiguous;

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
        if let Kind::Assert(ir_site) = &mut kind {
            ir_site.site = self.site(ir_site.site);
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
    let lines = first.lines().zip(second.lines()).enumerate();
    let difference = lines.map(|(number, lines)| (number, lines)).find(|(_, (a, b))| a != b);
    let before: Vec<&str> = first.lines().take(difference.map_or(0, |(number, _)| number)).collect();
    let before = before[before.len().saturating_sub(20)..].join("\n");
    assert!(first == second, "{before}\n{difference:?}");
}

/// Checks that the text of a function is parsed as the function.
fn check_round_trip(func: &Func) {
    let printed = text(func);
    let parsed = ir::parse(&printed).unwrap_or_else(|error| {
        panic!("{error}: {}\n{printed}", printed.lines().nth(error.line - 1).unwrap_or_default())
    });
    check_same(&printed, &text(&parsed));
    let [own, again] = [func, &parsed].map(|func| format!("{:#?}", Renumbered::of(func)));
    check_same(&own, &again);
}

/// The function, and what passes make of it on the way to each target.
fn check_stages(func: &Func, requests: KernelRequests) {
    check_round_trip(func);
    let mut reported = func.clone();
    reported.reports = true;
    check_overflow(&mut reported);
    check_round_trip(&reported);
    for bounds in [BoundsPolicy::Masked, BoundsPolicy::Guarded] {
        for mut legal in std::iter::once(func.clone()).chain(transpose_operands(func)) {
            assume_contiguous(&mut legal);
            check_round_trip(&legal);
            legalize_index(&mut legal, bounds);
            check_round_trip(&legal);
        }
    }
    // A kernel whose blocks would take too much shared memory has none.
    for specialization in specializations(func, requests).unwrap_or_default() {
        check_round_trip(&specialization.plan.distributed.func);
    }
}

/// The sources of the library and of the corpus, and the kernels in each.
fn sources() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = fs::read_dir(crates.join("../examples/src")).expect("the kernel library");
    let mut paths: Vec<_> = library.map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    paths.push(crates.join("src/tests/corpus.txt"));
    paths.iter().map(|path| fs::read_to_string(path).expect("a source file")).collect()
}

#[test]
fn every_kernel_of_the_library_comes_back() {
    let mut count = 0;
    for kernel in sources().iter().flat_map(|source| kernels(source)) {
        let variants = typeck::variants(&kernel, &mut Errors::new());
        for (index, variant) in variants.iter().enumerate() {
            let Ok(checked) = typeck::check(&kernel, variant) else {
                panic!("{} ({variant}) does not check", kernel.name)
            };
            count += 1;
            check_round_trip(&checked.func);
            if index == 0 {
                check_stages(&checked.func, KernelRequests::of(&kernel, variant));
            }
        }
    }
    assert!(count > 300, "{count} variants");
}

#[test]
fn random_kernels_come_back() {
    for seed in 0..40 {
        let source = generate::generate(seed).source();
        check_stages(&func(&source), KernelRequests::default());
    }
}

//! What prints parses back: nothing that a function means is lost in its text.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use proc_macro2::Span;

use super::assemble::kernels;
use super::func;
use super::fuzz::generate;
use crate::devtools::fuzzgen::SplitMix64;
use crate::driver::specialize::{KernelRequests, specializations};
use crate::frontend::typeck;
use crate::ir;
use crate::ir::{Block, Func, Op, Param, ParamKind, Value};
use crate::ops::scalar::TypeRule;
use crate::ops::{Kind, for_each_op, scalar};
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

/// Checks the error of a kernel with this body.
fn check_error(body: &str, expected: Expect) {
    let text = format!("kernel k(x: &[f32], out: &mut [f32], %n n: i32, %f f: f32) {{\n{body}\n}}\n");
    check_text_error(&text, expected);
}

fn check_text_error(text: &str, expected: Expect) {
    expected.assert_eq(&ir::parse(text).err().map_or("none".into(), |error| error.to_string()));
}

#[test]
fn words_that_do_not_fit_are_named_with_those_that_do() {
    check_error("%a = arrange 0 : i32[4]", expect!["2:6: there is no operation `arrange`"]);
    check_error("%a = arange : i32[4]", expect!["2:13: expected an integer, found `:`"]);
    check_error("%a = add %n %n : i32", expect!["2:13: expected `,`, `exact` or `:`, found `%n`"]);
    check_error("%a = splat %n", expect!["3:1: expected `:`, found `}`"]);
    check_error(
        "%a = splat %n : i33[4]",
        expect![
            "2:17: expected an element type (`bool`, `i8`, `i16`, `i32`, `i64`, `u8`, `u16`, `u32`, `u64`, `f8e4m3`, `f8e5m2`, `f16`, `bf16`, `f32` and `f64`), found `i33`"
        ],
    );
    check_error(
        "%a = arange 3000000000 : i32[4]",
        expect!["2:13: `3000000000` is not an integer that fits here"],
    );
    check_error("%a = constant 1.5.2 : f32", expect!["2:15: `1.5.2` is not a number"]);
    check_error("device_print label \"here", expect!["2:20: this string has no end on its line"]);
    check_error("device_print label \"\\q\"", expect!["2:20: this string has an unknown escape"]);
    check_error("%a = splat $n : i32[4]", expect!["2:12: `$` begins no token"]);
    check_text_error(
        "kernel k() {\n",
        expect!["2:1: expected `yield`, `}`, a value or an operation, found the end"],
    );
    check_text_error("kernel k() {\n} kernel", expect!["2:3: expected the end, found `kernel`"]);
}

#[test]
fn names_are_known_in_their_blocks_alone() {
    check_error("%a = splat %b : i32[4]", expect!["2:12: `%b` is not defined here"]);
    check_error("%n = constant 1 : i32", expect!["2:1: `%n` is defined already"]);
    check_error(
        "%b = constant 1 : bool\nif %b {\n%c = constant 1 : i32\n} {\n}\n%d = splat %c : i32[4]",
        expect!["7:12: `%c` is not defined here"],
    );
    check_error(
        "%s = arange 0 : i32[4]\n%r = reduce %s axes [0] : i32 { |%a, %b|\n%c = add %a, %n : i32\nyield %c\n}",
        expect!["4:14: `%n` is not defined here"],
    );
    check_error(
        "%a = arange 0 : i32[4]\n%l = load y[%a] : f32[4]",
        expect!["3:11: there is no parameter `y`"],
    );
    check_error("%l = load n[%n] : i32", expect!["2:11: expected a slice or a view, found a scalar"]);
    check_error("%l = load_view x(%n) : f32[4]", expect!["2:16: `x` is not a view"]);
}

#[test]
fn operations_have_the_results_and_blocks_that_they_say() {
    check_error("splat %n", expect!["2:1: splat: the number of results is 0, expected 1"]);
    check_error("%a, %b = splat %n : i32[4]", expect!["2:21: the number of types is 1, expected 2"]);
    check_error(
        "%a = splat %n : i32[17]",
        expect![
            "2:20: a tile extent of 17 is not supported: an extent is a power of two, or one times 3, 5, 7, 9, 11, 13 or 15 (next to it are 16 and 18)"
        ],
    );
    check_error("%a = splat %n : f32[4]", expect!["2:6: splat: the operand is i32, expected f32"]);
    check_error(
        "for %n..%n step %n {\n}",
        expect!["3:1: the number of the block's arguments is 0, expected 1"],
    );
    check_error(
        "%a = if %n : i32 {\nyield %n\n} {\nyield %n\n}",
        expect!["2:6: if: the condition is i32, expected bool"],
    );
    check_error("store %f, x[%n]", expect!["2:1: store: the slice is read-only"]);
}

#[test]
fn views_have_their_extents_and_strides() {
    let view = |kind: &str| {
        format!("kernel k(x: &View<f32, 1>{kind}, %n x.shape(0): i64, %s x.stride(0): i64) {{\n}}\n")
    };
    check_text_error(&view(""), expect!["none"]);
    check_text_error(&view(" stride(_)"), expect!["none"]);
    check_text_error(&view(" stride(%n, %s)"), expect!["1:10: the number of values is 2, expected 1"]);
    let tile = view(" stride(%t)").replace("{\n", "{\n%t = arange 0 : i32[4]\n");
    check_text_error(&tile, expect!["1:1: an extent or a stride is i32[4], expected i64"]);
    check_text_error(&view(" stride(%t)"), expect!["1:34: `%t` is not defined here"]);
    check_text_error(
        &view("").replace("i64)", "i32)"),
        expect!["1:10: the extents and strides of `x` do not follow it"],
    );
    let assuming = |what: &str| format!("kernel k(x: &[f32], %f f: f32, %n n: i32) assuming {what} {{\n}}\n");
    check_text_error(&assuming("3 divides n"), expect!["1:52: expected a power of two"]);
    check_text_error(&assuming("1 <= f"), expect!["1:57: expected an argument that is an integer"]);
}

/// A row of the lanewise table has a name of its own, which no other operation has.
#[test]
fn every_lanewise_operation_comes_back() {
    for row in scalar::TABLE {
        let dtype = row.class.members().next().expect("a row takes some element type");
        let (flag, result) = (DType::Bool, if row.rule == TypeRule::Compare { DType::Bool } else { dtype });
        let types: Vec<DType> = (0..row.params.len())
            .map(|i| if row.rule == TypeRule::Select && i == 0 { flag } else { dtype })
            .collect();
        let params: Vec<String> =
            types.iter().enumerate().map(|(i, ty)| format!("%{i} a{i}: {ty}")).collect();
        let args: Vec<String> = (0..types.len()).map(|i| format!("%{i}")).collect();
        let (params, args, next) = (params.join(", "), args.join(", "), types.len());
        let text = format!("kernel k({params}) {{\n  %{next} = {} {args} : {result}\n}}\n", row.name);
        let func = ir::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(matches!(func.body.ops[0].kind, Kind::Scalar(_)), "{text}");
        check_round_trip(&func);
    }
}

/// The file that shows how operations are written shows all of them.
#[test]
fn every_operation_is_in_the_file_of_all() {
    let func = ir::parse(&all_operations()).expect("tile IR");
    let mut shown = BTreeSet::new();
    func.body.walk(&mut |op| {
        let kind = format!("{:?}", op.kind);
        shown.extend(kind.split('(').next().map(ToString::to_string));
    });
    let missing: Vec<&&str> = OPERATIONS.iter().filter(|name| !shown.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    check_round_trip(&func);
}

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        const OPERATIONS: &[&str] = &[$(stringify!($name)),*];
    };
}

for_each_op!(names);

fn all_operations() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests/parse/every_operation.ir");
    fs::read_to_string(path).expect("the file with all operations")
}

/// Texts with tokens left out, swapped and repeated are answered, and what parses is valid.
#[test]
fn broken_texts_are_answered() {
    let file = all_operations();
    let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with(';')).collect();
    let mut random = SplitMix64::new(1);
    let (mut parsed, mut refused) = (0, 0);
    for _ in 0..1500 {
        let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let line = random.below(lines.len());
        let mut words: Vec<&str> = lines[line].split_inclusive([' ', ',', '(', ')', '[', ']']).collect();
        if words.is_empty() {
            continue;
        }
        let [one, other] = [(); 2].map(|()| random.below(words.len()));
        match random.below(3) {
            0 => words.swap(one, other),
            1 => words.insert(other, words[one]),
            _ => drop(words.remove(one)),
        }
        lines[line] = words.concat();
        match ir::parse(&lines.join("\n")) {
            Ok(func) => {
                check_round_trip(&func);
                parsed += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(parsed > 100 && refused > 500, "{parsed} parsed, {refused} refused");
}

//! The parser: its errors, and the texts of all operations.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use proptest::prelude::any;
use proptest::sample::Index;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use tile_ir::ir;
use tile_ir::ops::scalar::TypeRule;
use tile_ir::ops::{Kind, for_each_op, scalar};
use tile_ir::support::dtype::DType;
use tile_ir::testing::round_trip::check_round_trip;

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
    check_error(
        "%a = add %n %n : i32",
        expect!["2:13: expected `,`, `exact`, `contract` or `:`, found `%n`"],
    );
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
    let (mut parsed, mut refused) = (0, 0);
    let mut runner = TestRunner::deterministic();
    for _ in 0..1500 {
        let edit = (any::<[Index; 3]>(), 0..3).new_tree(&mut runner).expect("an edit");
        let ([line, one, other], edit) = edit.current();
        let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let line = line.index(lines.len());
        let mut words: Vec<&str> = lines[line].split_inclusive([' ', ',', '(', ')', '[', ']']).collect();
        if words.is_empty() {
            continue;
        }
        let [one, other] = [one, other].map(|place| place.index(words.len()));
        match edit {
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

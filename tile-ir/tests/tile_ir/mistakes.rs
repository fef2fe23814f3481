//! Warnings about what is allowed and hardly meant, and what must not cause any.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};

use tile_ir::frontend::syntax::{Kernel, sets_lint_level, without_effect};
use tile_ir::frontend::typeck;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::sources::{kernels, rust_files};
use tile_ir::testing::warnings;

/// Checks the warnings of a kernel: line and column, kind and text.
fn check_warnings(source: &str, expected: Expect) {
    let lines: Vec<String> = warnings(source)
        .into_iter()
        .map(|warning| {
            let start = warning.loc.start.start();
            format!("{}:{} {}: {}\n", start.line, start.column + 1, warning.kind, warning.text)
        })
        .collect();
    expected.assert_eq(&lines.concat());
}

/// The kinds of a kernel's warnings; the body is that of a kernel with these parameters.
fn kinds(body: &str) -> Vec<&'static str> {
    let source = format!(
        "#[fuse_kernel(N = [64])]
        fn kernel<const N: usize>(
            x: &[f32], index: &[i32], out: &mut [f32], lock: &mut [i32], seen: &mut [i32], rows: &mut View<f32, 2>,
            n: i32, seed: u64,
        ) {{
            let pid = tl::program_id(0);
            let lanes = tl::arange(0, N);
            let own = pid * N + lanes;
            tl::store(seen + pid, n);
            {body}
        }}"
    );
    warnings(&source).into_iter().map(|warning| warning.kind).collect()
}

fn check_kinds<const K: usize>(body: &str, expected: [&str; K]) {
    assert_eq!(kinds(body), expected, "{body}");
}

#[test]
fn warnings_say_what_is_wrong_and_what_to_write() {
    check_warnings(
        "#[fuse_kernel(N = [64])]
        fn forgotten<const N: usize>(x: &[f32], out: &mut [f32], total: &mut [f32], flag: &[i32], n: i32, seed: u64) {
            let start = tl::program_id(0) * N;
            let lanes = tl::arange(0, N);
            let mask = lanes < n;
            while tl::load(flag) == 0 {}
            let row = tl::load(x + start + lanes, mask);
            let noise = tl::rand(seed, lanes);
            tl::store(out + lanes, row - tl::max(row));
            tl::store(total, tl::load(total) + tl::sum(row));
            tl::store(out + start + lanes, noise);
        }",
        expect![[r#"
            9:13 store_without_program_id: every program stores to the same elements of `out`: no `tl::program_id` is in their offset; add the program's own start, or let one program store: `if tl::program_id(0) == 0 { .. }`
            10:13 update_without_atomic: every program reads the same elements of `total`, changes them and stores them: what another program stores meanwhile is lost; use `tl::atomic_add` or another atomic
            8:25 random_without_program_id: every program takes the same random numbers: no `tl::program_id` is in their offset; give the offset of the elements that they are for
            6:19 wait_without_atomic: nothing in the loop changes `flag`, and an ordinary load of one address may be made once for all iterations: wait with an atomic, `tl::atomic_add(.., 0).sem("acquire")`, or with `tl::load(..).volatile()`
            7:23 masked_zeros: elements that the mask leaves out are 0 and take part in a maximum: give what they are instead, `tl::load(pointer, mask, f32::NEG_INFINITY)`
        "#]],
    );
}

#[test]
fn stores_of_every_program() {
    let store = ["store_without_program_id"];
    check_kinds("tl::store(out + lanes, tl::load(x + own));", store);
    check_kinds("rows.store(tl::load(x + own).row(), 0, 0);", store);
    check_kinds("for i in 0..n { tl::store(out + i, 1.0); }", store);
    check_kinds("if n > 3 { tl::store(out + lanes, tl::load(x + own)); }", store);
    check_kinds("let at = tl::load(index); tl::store(out + at, 1.0);", store);
    // Each program has its own, by its number, by a ticket or by an index.
    check_kinds("tl::store(out + own, 1.0);", []);
    check_kinds("let at = tl::load(index + own); tl::store(out + at, 1.0);", []);
    check_kinds("let at = tl::atomic_add(lock, 1).sem(\"relaxed\"); tl::store(out + at, 1.0);", []);
    check_kinds("rows.store(tl::load(x + own).row(), pid, 0);", []);
    // One program stores, or one at a time.
    check_kinds("if pid == 0 { tl::store(out + lanes, 1.0); }", []);
    check_kinds("tl::store(out + lanes, 1.0, own < 64);", []);
    check_kinds("for i in pid..1 { tl::store(out + lanes, 1.0); }", []);
    check_kinds("if tl::atomic_add(lock, 1) == tl::num_programs(0) - 1 { tl::store(out, 1.0); }", []);
    check_kinds(
        "while tl::atomic_cas(lock, 0, 1) != 0 {}
        tl::store(out + lanes, tl::load(out + lanes) + tl::load(x + own));
        tl::atomic_xchg(lock, 0);",
        [],
    );
}

#[test]
fn updates_of_every_program() {
    check_kinds("tl::store(out, tl::load(out) + tl::sum(tl::load(x + own)));", ["update_without_atomic"]);
    check_kinds("rows.store(rows.load::<1, 64>(0, 0) * 2.0, 0, 0);", ["update_without_atomic"]);
    check_kinds("tl::store(out + own, tl::load(out + own) + 1.0);", []);
    check_kinds("tl::atomic_add(out, tl::sum(tl::load(x + own)));", []);
}

#[test]
fn a_kernel_for_one_program_has_no_program_id() {
    let source = "#[fuse_kernel(N = [64])]
        fn one<const N: usize>(x: &[f32], out: &mut [f32]) {
            tl::store(out + tl::arange(0, N), tl::load(x + tl::arange(0, N)));
        }";
    check_warnings(source, expect![""]);
}

#[test]
fn zeros_of_masked_loads() {
    let zeros = ["masked_zeros"];
    check_kinds("let v = tl::load(x + own, own < n); tl::store(out + pid, tl::max(v));", zeros);
    check_kinds("let v = tl::load(x + own, own < n); tl::store(out + pid, tl::min(-v * 2.0));", zeros);
    check_kinds(
        "let v = tl::load(x + own, own < n); tl::store(out + own, tl::softmax(v / 8.0), own < n);",
        zeros,
    );
    check_kinds(
        "let v = tl::load(x + own, own < n).to::<f64>(); tl::store(lock + pid, tl::argmax(v));",
        zeros,
    );
    check_kinds(
        "let v = tl::load(x + own, own < n); tl::store(out + pid, tl::reduce(v, 0, |a, b| a * b));",
        zeros,
    );
    check_kinds(
        "let mask = (lanes < n).row() & (lanes < 9).col();
        let v = tl::load(x + lanes.row() + own.col() * N, mask);
        tl::store(out + own, tl::max(v, 1));",
        zeros,
    );
    // What the mask leaves out is something else, or masked again, or of no account.
    check_kinds(
        "let v = tl::load(x + own, own < n, f32::NEG_INFINITY); tl::store(out + pid, tl::max(v));",
        [],
    );
    check_kinds(
        "let v = tl::select(own < n, tl::load(x + own, own < n), -1.0); tl::store(out + pid, tl::max(v));",
        [],
    );
    check_kinds("let v = tl::load(x + own, own < n); tl::store(out + pid, tl::max(tl::abs(v)));", []);
    check_kinds("let v = tl::load(x + own, own < n); tl::store(out + pid, tl::max(v * v));", []);
    check_kinds("let v = tl::load(x + own, own < n); tl::store(out + pid, tl::sum(v));", []);
    check_kinds("let v = tl::load(x + own); tl::store(out + pid, tl::max(v));", []);
    // Whole rows are left out, whose maximum nobody stores.
    check_kinds(
        "let v = tl::load(x + lanes.row() + own.col() * N, (own < n).col());
        tl::store(out + own, tl::max(v, 1), own < n);",
        [],
    );
}

#[test]
fn rows_of_a_square_tile_that_align_with_its_columns() {
    let tile = "let t = tl::load(x + own.col() * N + lanes.row());";
    let check = |value: &str, expected: &[&str]| {
        let body = format!("{tile} tl::store(out + own.col() * N + lanes.row(), {value});");
        assert_eq!(kinds(&body), expected, "{value}");
    };
    check("t / tl::sum(t, 1)", &["reduced_rows"]);
    check("t - tl::max(t * 2.0, 1) * 0.5", &["reduced_rows"]);
    check("tl::exp(t) / tl::sqrt(tl::sum(t.to::<f64>(), 1)).to::<f32>()", &["reduced_rows"]);
    check("tl::select(t < 0.0, t, tl::sum(t, 1))", &["reduced_rows"]);
    // Columns, axes that are written, a tile of other elements.
    check("t / tl::sum(t, 0)", &[]);
    check("t / tl::sum(t, 1).col()", &[]);
    check("t / tl::sum(t, 1).row()", &[]);
    check("t / tl::sum(t, 1, true)", &[]);
    check("t / tl::sum(t)", &[]);
    check("t * tl::sum(tl::load(x + lanes.col() * N + own.row()), 1)", &[]);
}

#[test]
fn loops_that_wait() {
    check_kinds("while tl::load(index) == 0 {} tl::store(out + own, 1.0);", ["wait_without_atomic"]);
    check_kinds("while tl::load(lock + pid) != n {} tl::store(out + own, 1.0);", ["wait_without_atomic"]);
    check_kinds("while tl::load(lock).volatile() == 0 {} tl::store(out + own, 1.0);", []);
    check_kinds("while tl::atomic_add(lock, 0) == 0 {} tl::store(out + own, 1.0);", []);
    check_kinds(
        "let mut at = pid; while tl::load(index + at) >= 0 { at = tl::load(index + at); }
        tl::store(out + own, at as f32);",
        [],
    );
    check_kinds("while tl::load(lock + pid) < n { tl::store(lock + pid, n); }", []);
}

#[test]
fn random_numbers_of_every_program() {
    check_kinds(
        "tl::store(out + own, tl::load(x + own) * tl::rand(seed, lanes));",
        ["random_without_program_id"],
    );
    check_kinds("tl::store(out + own, tl::rand(seed, own));", []);
    check_kinds("tl::store(out + own, tl::rand(seed + pid as u64, lanes));", []);
    check_kinds("if pid == 0 { tl::store(out + lanes, tl::rand(seed, lanes)); }", []);
}

#[test]
fn no_kernel_of_this_repository_has_a_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = vec![];
    for folder in ["examples/src", "examples/examples", "bench/ports/src", "book/code/src"] {
        found.extend(rust_files(&root.join(folder)));
    }
    for folder in ["kernels/src", "bounds", "debug", "graph", "macros", "stream", "tune"] {
        found.extend(rust_files(&root.join("tests").join(folder)));
    }
    let (mut checked, mut warnings) = (0, BTreeSet::new());
    // The book and tests show what a mistake leads to.
    let allowed = |kernel: &Kernel| kernel.attributes.iter().any(sets_lint_level);
    for kernel in found
        .iter()
        .flat_map(|path| kernels(&fs::read_to_string(path).expect("a source file")))
        .filter(|kernel| !allowed(kernel))
    {
        for variant in typeck::variants(&kernel, &mut Errors::new()).iter().take(4) {
            let found = typeck::check(&kernel, variant).expect("a kernel that builds").warnings;
            checked += 1;
            warnings.extend(without_effect(&kernel).iter().chain(&found).map(|warning| {
                let line = warning.loc.start.start().line;
                format!("{} line {line}: {} {}", kernel.name, warning.kind, warning.text)
            }));
        }
    }
    assert!(checked > 200, "{checked} variants");
    assert!(warnings.is_empty(), "{} of {checked}: {warnings:#?}", warnings.len());
}

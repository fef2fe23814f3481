//! `return`, `break`, `continue` and `match`: their lowering.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::testing::{func, mistakes, render};

fn kernel(statements: &str) -> String {
    format!(
        "#[fuse_kernel(ACT = [1])]
        fn k<const ACT: u32>(out: &mut [f32], n: i32) {{
{statements}
        }}"
    )
}

fn check_body(statements: &str, expected: Expect) {
    let text = ir::print(&func(&kernel(statements)), &|_| None);
    let body: Vec<&str> = text.lines().skip(1).collect();
    expected.assert_eq(&(body.join("\n") + "\n"));
}

fn check_errors(statements: &str, expected: Expect) {
    let source = kernel(statements);
    expected.assert_eq(&render(&mistakes(&source), &source));
}

#[test]
fn what_follows_an_early_return_is_the_other_branch() {
    check_body(
        "let row = tl::program_id(0);
        if row >= n { return; }
        if ACT == 2 { return; }
        tl::store(out + row, 1.0);
        if row == 0 { tl::store(out, 2.0); return; } else if row == 1 { return }
        tl::store(out + row, 3.0);",
        expect![[r#"
              %1 = program_id 0 : i32
              %2 = ge %1, %0 : bool
              if %2 {
              } {
                %3 = constant 1.0 : f32
                store %3, out[%1]
                %4 = constant 0 : i32
                %5 = eq %1, %4 : bool
                if %5 {
                  %6 = constant 2.0 : f32
                  store %6, out[%4]
                } {
                  %7 = constant 3.0 : f32
                  store %7, out[%1]
                }
              }
            }
        "#]],
    );
}

#[test]
fn loops_with_exits() {
    check_body(
        "let mut i = 0;
        while i < n {
            i += 1;
            if i == 4 { continue; }
            if i == 8 { break; }
            tl::store(out + i, 1.0);
        }",
        expect![[r#"
              %1 = constant 0 : i32
              %2 = constant 0 : bool
              %3, %4 = while carry %1, %2 : i32, bool { |%5, %6|
                %7 = not %6 : bool
                %8 = lt %5, %0 : bool
                %9 = and %7, %8 : bool
                yield %9
              } { |%10, %11|
                %12 = constant 1 : i32
                %13 = add %10, %12 : i32
                %14 = constant 4 : i32
                %15 = eq %13, %14 : bool
                %16 = if %15 : bool {
                  yield %11
                } {
                  %17 = constant 8 : i32
                  %18 = eq %13, %17 : bool
                  %19 = if %18 : bool {
                    %20 = constant 1 : bool
                    yield %20
                  } {
                    %21 = constant 1.0 : f32
                    store %21, out[%13]
                    yield %11
                  }
                  yield %19
                }
                yield %13, %16
              }
            }
        "#]],
    );
}

#[test]
fn exits_that_make_no_sense() {
    check_errors(
        "let x = if n > 0 { return; } else { 1 };
        fn f(x: i32) -> i32 { for i in 0..x { return i; } if x > 0 { if x > 1 { return 1; } } x }
        fn g(x: i32) { return x; }
        fn h(x: i32) -> i32 { return; }
        for i in 0..n { continue; tl::store(out, 1.0); }
        'a: for i in 0..n { break 'a; }
        match n { 1 => {} 2 => {} }
        match n { _ => {} 1 => {} }
        match n { x if x > 1 => {} _ => {} }
        match n { other => {} _ => {} }
        match n { Some(y) => {} _ => {} }
        if n == 7 { return 4; }
        let late = other_name;
        break;
        let unseen = other_name;",
        expect![[r#"
            3: `return`: `return` is part of an expression here
                help: let it be a statement of its own, in a branch of an `if`
            4: `return i`: a function that gives a value cannot return it from within a loop
                help: assign it to a variable and `break`
            4: `if x > 0 { if x > 1 { return 1; } }`: only some of the ways through this `if` return
                help: let a branch that returns do so on every way through it
            5: `x`: this returns a value from a body that gives none
                help: write results into a `&mut [T]` parameter with `tl::store`, and `return;`
            6: `return`: this returns nothing from a function that gives a value
            7: `continue`: nothing after this `continue` would ever run
            8: `'a:`: the label `'a` cannot be used in a kernel
                help: `break` and `continue` mean the innermost loop: let a flag end the outer one, `while go { .. go = false; .. }`
            9: `match`: this `match` does not cover every value
                help: end it with an arm for the others: `_ => ..`
            10: `1`: this arm is never taken: the one before it takes everything
            11: `x > 1`: a guard of an arm cannot be used in a kernel
                help: put an `if` into the arm; elements of a tile are chosen by `tl::select(mask, a, b)`
            12: `other`: `other` is not defined
            13: `n`: this pattern is one of an option, found a scalar of type i32
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            14: `4`: this returns a value from a body that gives none
                help: write results into a `&mut [T]` parameter with `tl::store`, and `return;`
            15: `other_name`: `other_name` is not defined
            16: `break`: `break` stands outside of a loop
            17: `other_name`: `other_name` is not defined
        "#]],
    );
}

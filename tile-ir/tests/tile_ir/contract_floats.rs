//! Contraction of float formulas, and selects under a branch for full tiles.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::ir::guard::WithNames;
use tile_ir::testing::func;
use tile_ir::transform::contract_floats::{contract_floats, contract_floats_under_guards};
use tile_ir::transform::split_full_tiles::split_full_tiles;

fn check_contracted(body: &str, expected: Expect) {
    let func = func(&format!(
        "#[fuse_kernel]
        fn k(x: &[f32], rows: &[f32], out: &mut [f32], s: f32) {{
            let (i, j) = (tl::arange(0, 4), tl::arange(0, 8));
            let at = i.col() * 8 + j.row();
            let (x, m) = (tl::load(x + at), tl::load(rows + i));
            {body}
        }}"
    ));
    check_text(func, expected);
}

fn check_text(mut func: Func, expected: Expect) {
    contract_floats(&mut func);
    ir::verify(&func).expect("valid tile IR");
    let text = ir::print(&func, &|_| None);
    let first = text.find("load x").expect("x is loaded");
    let lines: Vec<&str> = text[first..].lines().skip(1).map(str::trim).collect();
    expected.assert_eq(&lines.join("\n"));
}

/// A difference is computed first, whatever it is of; a constant factor absorbs another one.
#[test]
fn exp_of_a_rounded_value_becomes_exp2() {
    check_contracted(
        "tl::store(out + at, tl::exp(x - m.col()));",
        expect![[r#"
        %12 = load rows[%1] : f32[4]
        %13 = expand_dims %12 axis 1 : f32[4, 1]
        %14 = broadcast %13 : f32[4, 8]
        %15 = sub %11, %14 : f32[4, 8]
        %16 = constant 1.4426950408889634 : f32
        %17 = splat %16 : f32[4, 8]
        %18 = mul %15, %17 : f32[4, 8]
        %19 = exp2 %18 : f32[4, 8]
        store %19, out[%10]
        }"#]],
    );
    check_contracted(
        "tl::store(out + at, tl::exp(x * s - m.col()));",
        expect![[r#"
            %12 = load rows[%1] : f32[4]
            %13 = splat %0 : f32[4, 8]
            %14 = mul %11, %13 : f32[4, 8]
            %15 = expand_dims %12 axis 1 : f32[4, 1]
            %16 = broadcast %15 : f32[4, 8]
            %17 = sub %14, %16 : f32[4, 8]
            %18 = constant 1.4426950408889634 : f32
            %19 = splat %18 : f32[4, 8]
            %20 = mul %17, %19 : f32[4, 8]
            %21 = exp2 %20 : f32[4, 8]
            store %21, out[%10]
            }"#]],
    );
    check_contracted(
        "tl::store(out + at, tl::exp(x * 0.5));",
        expect![[r#"
            %12 = constant 0.7213475204444817 : f32
            %13 = splat %12 : f32[4, 8]
            %14 = mul %11, %13 : f32[4, 8]
            %15 = exp2 %14 : f32[4, 8]
            store %15, out[%10]
            }"#]],
    );
    check_contracted(
        "let z = tl::select(i.col() < j.row(), x * s, f32::NEG_INFINITY);
        tl::store(out + at, tl::exp(z - tl::max(z, 1).col()));",
        expect![[r#"
            %12 = broadcast %3 : i32[4, 8]
            %13 = lt %12, %9 : bool[4, 8]
            %14 = splat %0 : f32[4, 8]
            %15 = mul %11, %14 : f32[4, 8]
            %16 = constant -inf : f32
            %17 = splat %16 : f32[4, 8]
            %18 = select %13, %15, %17 : f32[4, 8]
            %19 = reduce %18 axes [1] : f32[4] { |%20, %21|
            %22 = maximum %20, %21 : f32
            yield %22
            }
            %23 = expand_dims %19 axis 1 : f32[4, 1]
            %24 = broadcast %23 : f32[4, 8]
            %25 = sub %18, %24 : f32[4, 8]
            %26 = constant 1.4426950408889634 : f32
            %27 = splat %26 : f32[4, 8]
            %28 = mul %25, %27 : f32[4, 8]
            %29 = exp2 %28 : f32[4, 8]
            store %29, out[%10]
            }"#]],
    );
}

/// An exact argument keeps its exact exponential.
#[test]
fn exp_of_an_exact_value_stays() {
    check_contracted(
        "tl::store(out + at, tl::exp(x) + tl::exp(-x));",
        expect![[r#"
        %12 = exp %11 : f32[4, 8]
        %13 = neg %11 : f32[4, 8]
        %14 = exp %13 : f32[4, 8]
        %15 = add %12, %14 : f32[4, 8]
        store %15, out[%10]
        }"#]],
    );
}

#[test]
fn division_by_a_constant_becomes_two_products() {
    check_contracted(
        "tl::store(out + at, x / 3.0);",
        expect![[r#"
            %12 = constant 0.33333325386047363 : f32
            %13 = splat %12 : f32[4, 8]
            %14 = constant 7.947285968201712e-8 : f32
            %15 = splat %14 : f32[4, 8]
            %16 = mul %11, %15 : f32[4, 8]
            %17 = fma %11, %13, %16 : f32[4, 8]
            store %17, out[%10]
            }"#]],
    );
    // Its reciprocal is no normal number.
    check_contracted(
        "tl::store(out + at, x / 1e-39);",
        expect![[r#"
        %12 = constant 1e-39 : f32
        %13 = splat %12 : f32[4, 8]
        %14 = div %11, %13 : f32[4, 8]
        store %14, out[%10]
        }"#]],
    );
}

/// Attention's scores, and their mask.
fn masked(condition: &str) -> Func {
    let mut func = func(&format!(
        "#[fuse_kernel]
        fn k(a: &[f16], b: &[f16], out: &mut [f32], n: i32, first: i32) {{
            let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
            let row = tl::program_id(0) * 16;
            let at = i.col() * 16 + j.row();
            let a = tl::load(a + at);
            let mut sum = tl::zeros::<f32>([16]);
            for start in (first..n).step_by(16) {{
                let s = tl::dot(a, tl::load(b + at + start));
                sum += tl::sum(tl::select({condition}, s, f32::NEG_INFINITY), 1);
            }}
            tl::store(out + i, sum);
        }}"
    ));
    split_full_tiles(&mut func);
    ir::verify(&func).expect("valid tile IR");
    func
}

#[test]
fn a_select_by_positions_is_under_a_branch_on_the_extreme_ones() {
    let text = ir::print(&masked("(row + i).col() >= (start + j).row()"), &|_| None);
    let begin = text.find("dot").expect("a product");
    let end = text[begin..].find("reduce").expect("a sum") + begin;
    let lines: Vec<&str> = text[begin..end].lines().skip(1).map(str::trim).collect();
    expect![[r#"
        %23 = splat %5 : i32[16]
        %24 = add %23, %2 : i32[16]
        %25 = expand_dims %24 axis 1 : i32[16, 1]
        %26 = splat %17 : i32[16]
        %27 = add %26, %2 : i32[16]
        %28 = expand_dims %27 axis 0 : i32[1, 16]
        %29 = broadcast %25 : i32[16, 16]
        %30 = broadcast %28 : i32[16, 16]
        %31 = ge %29, %30 : bool[16, 16]
        %32 = constant -inf : f32
        %33 = splat %32 : f32[16, 16]
        %34 = cast %17 : i64
        %35 = constant 15 : i64
        %36 = add %34, %35 : i64
        %37 = cast %3 : i64
        %38 = cast %4 : i64
        %39 = mul %37, %38 : i64
        %40 = constant 0 : i64
        %41 = add %39, %40 : i64
        %42 = gt %36, %41 : bool
        %43 = if %42 : f32[16, 16] {
        %44 = select %31, %22, %33 : f32[16, 16]
        yield %44
        } {
        yield %22
        }
        %45 ="#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn selects_that_every_iteration_needs_stay() {
    let branches = |condition: &str| ir::print(&masked(condition), &|_| None).contains("if %");
    assert!(branches("(start + j < n).row() & ((row + i).col() >= (start + j).row())"));
    // The same in all iterations, either of two, not a comparison, and one of what is not moved by the loop alone.
    assert!(!branches("(row + i).col() >= j.row()"));
    assert!(!branches("(start + j < n).row() | ((row + i).col() >= (start + j).row())"));
    assert!(!branches("(start + j).row() == (row + i).col()"));
    assert!(!branches("(start + j).row() * 2 < (row + i).col()"));
}

/// The reciprocal of each row's divisor is computed once, of a value scaled towards 1.
#[test]
fn division_by_a_value_per_row_becomes_two_products() {
    // Of 8 columns each is divided.
    check_contracted(
        "tl::store(out + at, x / m.col());",
        expect![[r#"
        %12 = load rows[%1] : f32[4]
        %13 = expand_dims %12 axis 1 : f32[4, 1]
        %14 = broadcast %13 : f32[4, 8]
        %15 = div %11, %14 : f32[4, 8]
        store %15, out[%10]
        }"#]],
    );
    check_contracted(
        "tl::store(out + at, x / s);",
        expect![[r#"
            %12 = abs %0 : f32
            %13 = constant 1.0 : f32
            %14 = constant 7.888609052210118e-31 : f32
            %15 = constant 1.8446744073709552e19 : f32
            %16 = lt %12, %14 : bool
            %17 = select %16, %15, %13 : f32
            %18 = constant 1.2676506002282294e30 : f32
            %19 = constant 5.421010862427522e-20 : f32
            %20 = gt %12, %18 : bool
            %21 = select %20, %19, %17 : f32
            %22 = mul %0, %21 : f32
            %23 = splat %21 : f32[4, 8]
            %24 = mul %11, %23 : f32[4, 8]
            %25 = constant 0.9999997615814209 : f32
            %26 = div %13, %22 : f32
            %27 = mul %26, %25 : f32
            %28 = neg %22 : f32
            %29 = fma %28, %27, %13 : f32
            %30 = mul %29, %26 : f32
            %31 = eq %30, %30 : bool
            %32 = select %31, %30, %27 : f32
            %33 = splat %27 : f32[4, 8]
            %34 = splat %32 : f32[4, 8]
            %35 = mul %24, %34 : f32[4, 8]
            %36 = fma %24, %33, %35 : f32[4, 8]
            store %36, out[%10]
            }"#]],
    );
    let wide = func(
        "#[fuse_kernel] fn k(x: &[f32], rows: &[f32], out: &mut [f32]) {
            let at = tl::arange(0, 4).col() * 32 + tl::arange(0, 32).row();
            tl::store(out + at, tl::load(x + at) / tl::load(rows + tl::arange(0, 4)).col());
        }",
    );
    check_text(
        wide,
        expect![[r#"
            %11 = load rows[%0] : f32[4]
            %12 = expand_dims %11 axis 1 : f32[4, 1]
            %13 = abs %12 : f32[4, 1]
            %14 = constant 1.0 : f32
            %15 = splat %14 : f32[4, 1]
            %16 = constant 7.888609052210118e-31 : f32
            %17 = splat %16 : f32[4, 1]
            %18 = constant 1.8446744073709552e19 : f32
            %19 = splat %18 : f32[4, 1]
            %20 = lt %13, %17 : bool[4, 1]
            %21 = select %20, %19, %15 : f32[4, 1]
            %22 = constant 1.2676506002282294e30 : f32
            %23 = splat %22 : f32[4, 1]
            %24 = constant 5.421010862427522e-20 : f32
            %25 = splat %24 : f32[4, 1]
            %26 = gt %13, %23 : bool[4, 1]
            %27 = select %26, %25, %21 : f32[4, 1]
            %28 = mul %12, %27 : f32[4, 1]
            %29 = broadcast %27 : f32[4, 32]
            %30 = mul %10, %29 : f32[4, 32]
            %31 = constant 0.9999997615814209 : f32
            %32 = splat %31 : f32[4, 1]
            %33 = div %15, %28 : f32[4, 1]
            %34 = mul %33, %32 : f32[4, 1]
            %35 = neg %28 : f32[4, 1]
            %36 = fma %35, %34, %15 : f32[4, 1]
            %37 = mul %36, %33 : f32[4, 1]
            %38 = eq %37, %37 : bool[4, 1]
            %39 = select %38, %37, %34 : f32[4, 1]
            %40 = broadcast %34 : f32[4, 32]
            %41 = broadcast %39 : f32[4, 32]
            %42 = mul %30, %41 : f32[4, 32]
            %43 = fma %30, %40, %42 : f32[4, 32]
            store %43, out[%9]
            }"#]],
    );
    // One divisor for each element, and a scalar.
    check_contracted(
        "tl::store(out + at, x / (x + 1.0) + (s / 7.5 / s));",
        expect![[r#"
            %12 = constant 1.0 : f32
            %13 = splat %12 : f32[4, 8]
            %14 = add %11, %13 : f32[4, 8]
            %15 = div %11, %14 : f32[4, 8]
            %16 = constant 0.13333329558372498 : f32
            %17 = constant 3.7749608355897024e-8 : f32
            %18 = mul %0, %17 : f32
            %19 = fma %0, %16, %18 : f32
            %20 = div %19, %0 : f32
            %21 = splat %20 : f32[4, 8]
            %22 = add %15, %21 : f32[4, 8]
            store %22, out[%10]
            }"#]],
    );
}

/// In a loop with a dot a divisor that is an argument is taken for a number near 1 given a guard, so that nothing is scaled.
#[test]
fn a_divisor_in_a_loop_with_a_dot_is_not_scaled_under_a_guard() {
    let mut func = func(
        "#[fuse_kernel]
        fn k(a: &[f16], b: &[f16], out: &mut [f32], n: i32, cap: f32) {
            let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
            let at = i.col() * 16 + j.row();
            let a = tl::load(a + at);
            let mut sum = tl::zeros::<f32>([16, 16]);
            for start in (0..n).step_by(16) {
                sum += tl::dot(a, tl::load(b + at + start)) / cap;
            }
            tl::store(out + at, sum / cap);
        }",
    );
    let guards = contract_floats_under_guards(&mut func);
    ir::verify(&func).expect("valid tile IR");
    let names: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let guards: Vec<String> = guards.iter().map(|guard| WithNames(guard, &names).to_string()).collect();
    assert_eq!(guards, ["2^-40 <= cap <= 2^40"]);
    let text = ir::print(&func, &|_| None);
    let (in_loop, behind) = text.split_once("yield").expect("the end of the loop");
    assert!(!in_loop.contains("abs"), "{text}");
    assert!(behind.contains("abs"), "{text}");
}

//! Offsets that loops carry.

use expect_test::{Expect, expect};

use tile_ir::analysis::non_negative::Signs;
use tile_ir::ir;
use tile_ir::ir::guard::WithNames;
use tile_ir::testing::{func, holds};
use tile_ir::transform::strength_reduce::strength_reduce;

/// The loop of a kernel after the pass.
fn check(body: &str, expected: Expect) {
    let mut func = func(&format!(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], n: i32, stride: i32) {{
            let lanes = tl::arange(0, 64);
            let mut total = tl::zeros::<f32>([64]);
            {body}
            tl::store(out + lanes, total);
        }}"
    ));
    strength_reduce(&mut func);
    ir::cse_and_dce(&mut func);
    ir::verify(&func).expect("a function that is right");
    let text = ir::print(&func, &|_| None);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let start = lines.iter().position(|line| line.contains("for ")).expect("a loop");
    let end = lines.iter().rposition(|line| line.starts_with("yield")).expect("its end");
    expected.assert_eq(&format!("{}\n", lines[start..=end].join("\n")));
}

#[test]
fn pointers_are_their_start_and_a_multiple_of_the_variable() {
    check(
        "let mut p = x + lanes;
        for i in 0..n {
            total += tl::load(p);
            p += 64 * stride;
        }",
        expect![[r#"
            %8 = for %5..%0 step %6 carry %4 : f32[64] { |%9, %10|
            %11 = cast %9 : i64
            %12 = constant 64 : i32
            %13 = mul %12, %1 : i32
            %14 = cast %13 exact : i64
            %15 = mul %11, %14 : i64
            %16 = splat %15 : i64[64]
            %17 = add %7, %16 : i64[64]
            %18 = load x[%17] : f32[64]
            %19 = add %10, %18 : f32[64]
            yield %19
        "#]],
    );
}

/// The step of the loop divides a factor of the increment, wherever the product stands.
#[test]
fn increments_are_divided_by_the_step() {
    for before in ["", "let each = 64 * stride;"] {
        let each = if before.is_empty() { "64 * stride" } else { "each" };
        check(
            &format!(
                "let mut p = x + lanes;
                {before}
                for i in (0..n).step_by(32) {{
                    total += tl::load(p);
                    p += {each};
                }}"
            ),
            expect![[r#"
                %8 = for %5..%0 step %6 carry %4 : f32[64] { |%9, %10|
                %11 = cast %9 : i64
                %12 = constant 2 : i32
                %13 = mul %12, %1 : i32
                %14 = cast %13 exact : i64
                %15 = mul %11, %14 : i64
                %16 = splat %15 : i64[64]
                %17 = add %7, %16 : i64[64]
                %18 = load x[%17] : f32[64]
                %19 = add %10, %18 : f32[64]
                yield %19
            "#]],
        );
    }
}

#[test]
fn iterations_count_from_the_start() {
    check(
        "let mut p = x + lanes;
        for i in (stride..n).step_by(32) {
            p -= 64;
            total += tl::load(p);
            p += 96;
        }",
        expect![[r#"
            %7 = for %1..%0 step %5 carry %4 : f32[64] { |%8, %9|
            %10 = cast %8 : i64
            %11 = cast %1 : i64
            %12 = sub %10, %11 : i64
            %13 = constant 3 : i64
            %14 = mul %12, %13 : i64
            %15 = splat %14 : i64[64]
            %16 = add %6, %15 : i64[64]
            %17 = constant 2 : i64
            %18 = mul %12, %17 : i64
            %19 = splat %18 : i64[64]
            %20 = sub %16, %19 : i64[64]
            %21 = constant 64 : i64
            %22 = splat %21 : i64[64]
            %23 = sub %20, %22 : i64[64]
            %24 = load x[%23] : f32[64]
            %25 = add %9, %24 : f32[64]
            yield %25
        "#]],
    );
}

#[test]
fn tile_increments_are_multiplied() {
    check(
        "let mut p = x + lanes;
        for i in 0..n {
            total += tl::load(p);
            p += lanes * 2;
        }",
        expect![[r#"
            %8 = for %5..%0 step %6 carry %4 : f32[64] { |%9, %10|
            %11 = cast %9 : i64
            %12 = constant 2 : i32
            %13 = splat %12 : i32[64]
            %14 = mul %2, %13 : i32[64]
            %15 = cast %14 exact : i64[64]
            %16 = splat %11 : i64[64]
            %17 = mul %16, %15 : i64[64]
            %18 = add %7, %17 : i64[64]
            %19 = load x[%18] : f32[64]
            %20 = add %10, %19 : f32[64]
            yield %20
        "#]],
    );
}

#[test]
fn values_used_after_the_loop_stay_carried() {
    check(
        "let mut p = x + lanes;
        for i in 0..n {
            total += tl::load(p);
            p += stride;
        }
        total += tl::load(p);",
        expect![[r#"
            %8, %9 = for %5..%0 step %6 carry %4, %7 : f32[64], i64[64] { |%10, %11, %12|
            %13 = cast %10 : i64
            %14 = cast %1 exact : i64
            %15 = mul %13, %14 : i64
            %16 = splat %15 : i64[64]
            %17 = add %7, %16 : i64[64]
            %18 = load x[%17] : f32[64]
            %19 = add %11, %18 : f32[64]
            %20 = splat %14 : i64[64]
            %21 = add %17, %20 : i64[64]
            yield %19, %21
        "#]],
    );
}

#[test]
fn variant_increments_stay_carried() {
    check(
        "let mut p = x + lanes;
        for i in 0..n {
            total += tl::load(p);
            p += i;
        }",
        expect![[r#"
            %8, %9 = for %5..%0 step %6 carry %4, %7 : f32[64], i64[64] { |%10, %11, %12|
            %13 = load x[%12] : f32[64]
            %14 = add %11, %13 : f32[64]
            %15 = cast %10 exact : i64
            %16 = splat %15 : i64[64]
            %17 = add %12, %16 : i64[64]
            yield %14, %17
        "#]],
    );
    check(
        "let mut p = x + lanes;
        for i in (0..n).step_by(32) {
            total += tl::load(p);
            p += stride;
        }",
        expect![[r#"
            %8, %9 = for %5..%0 step %6 carry %4, %7 : f32[64], i64[64] { |%10, %11, %12|
            %13 = load x[%12] : f32[64]
            %14 = add %11, %13 : f32[64]
            %15 = cast %1 exact : i64
            %16 = splat %15 : i64[64]
            %17 = add %12, %16 : i64[64]
            yield %14, %17
        "#]],
    );
}

/// The blocks of a matrix, in groups of three rows of blocks.
const GROUPED: &str = "#[fuse_kernel]
    fn k(x: &[f32], out: &mut [f32], m: i32, n: i32) {
        let pid = tl::program_id(0);
        let (down, across) = (tl::cdiv(m, 4), tl::cdiv(n, 8));
        let in_group = 3 * across;
        let first = pid / in_group * 3;
        let size = tl::minimum(down - first, 3);
        let row = first + pid % in_group % size;
        let column = pid % in_group / size;
        let rows = (row * 4 + tl::arange(0, 4)) % m;
        let columns = (column * 8 + tl::arange(0, 8)) % n;
        let at = rows.col() * n + columns.row();
        tl::store(out + at, tl::load(x + at));
    }";

#[test]
fn blocks_in_groups_are_not_negative() {
    let func = func(GROUPED);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let signs = Signs::analyze(&func);
    let guards: Vec<String> =
        signs.guards().iter().map(|guard| WithNames(guard, &params).to_string()).collect();
    expect![[r#"
        -1 + num_programs(0) <= 2147483647
        1 <= 3 * cdiv(n, 8)
        3 * cdiv(n, 8) <= 2147483647
        num_programs(0) <= cdiv(m, 4) * cdiv(n, 8)
        cdiv(m, 4) <= 2147483647
        -13 + 12 * cdiv(n, 8) + 12 * cdiv(num_programs(0), 3 * cdiv(n, 8)) <= 2147483647
        1 <= m
        -1 + 24 * cdiv(n, 8) <= 2147483647
        1 <= n
    "#]]
    .assert_eq(&format!("{}\n", guards.join("\n")));
}

/// Where the guards hold, every dividend is not negative and every divisor positive in every program.
#[test]
fn sign_guards_are_sufficient() {
    let func = func(GROUPED);
    let signs = Signs::analyze(&func);
    let guards = signs.guards();
    let mut satisfied = 0;
    for (m, n, grid) in
        (-9..30).flat_map(|m| (-9..30).flat_map(move |n| (0..24).map(move |grid| (m, n, grid))))
    {
        if !guards.iter().all(|guard| holds(guard, &[0, 0, m, n], [grid, 1, 1])) {
            continue;
        }
        satisfied += 1;
        let up = |extent: i64, by: i64| -(-extent).div_euclid(by);
        let (down, across) = (up(m, 4), up(n, 8));
        assert!(m > 0 && n > 0, "{m} x {n}");
        for pid in 0..grid {
            let first = pid / (3 * across) * 3;
            let size = (down - first).min(3);
            assert!(size >= 1, "{m} x {n}: program {pid} of {grid}");
        }
    }
    // All grids that do not go beyond the blocks.
    let blocks = |m: i64, n: i64| (m + 3) / 4 * ((n + 7) / 8);
    let all: i64 = (1..30).flat_map(|m| (1..30).map(move |n| blocks(m, n).min(23) + 1)).sum();
    assert_eq!(satisfied, all);
}

//! Selections that only masked-off elements would notice.

use expect_test::{Expect, expect};

use super::func;
use crate::body::{Requests, bodies};
use crate::tile;

/// A kernel that loads under `i < n`, after layout.
fn check_unmasked(body: &str, expected: Expect) {
    let source = format!(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], n: i32, m: i32) {{
            let i = tl::arange(0, 128);
            let (mask, other) = (i < n, i < m);
            let x = tl::load(x + i, mask);
            {body}
        }}"
    );
    let bodies = bodies(&func(&source), Requests::default()).expect("bodies that fit");
    let func = &bodies[0].plan.distributed.func;
    tile::verify(func).expect("valid tile IR");
    expected.assert_eq(&tile::print(func, &|_| None));
}

#[test]
fn a_selection_by_the_mask_of_its_only_store_is_left_out() {
    check_unmasked(
        "tl::store(out + i, tl::select(mask, x + 1.0, 7.0) * 2.0, mask);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = load x[%2] mask %4 inside vector 4 : f32[128]
              %6 = constant 1.0 : f32
              %7 = splat %6 : f32[128]
              %8 = add %5, %7 : f32[128]
              %9 = constant 7.0 : f32
              %10 = splat %9 : f32[128]
              %11 = constant 2.0 : f32
              %12 = splat %11 : f32[128]
              %13 = mul %8, %12 : f32[128]
              store out[%2] mask %4 inside vector 4 = %13
            }
        "#]],
    );
    // Twice under one mask, once in a branch.
    check_unmasked(
        "let y = tl::select(mask, x, 7.0);
        tl::store(out + i, y, mask);
        if m > 0 { tl::store(out + 128 + i, tl::exp(y), mask); }",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = load x[%2] mask %4 inside vector 4 : f32[128]
              %6 = constant 7.0 : f32
              %7 = splat %6 : f32[128]
              store out[%2] mask %4 inside vector 4 = %5
              %8 = constant 0 : i32
              %9 = gt %1, %8 : bool
              if %9 {
                %10 = exp %5 : f32[128]
                %11 = constant 128 : i64
                store out[%11 + %2] mask %4 inside vector 4 = %10
              } {
              }
            }
        "#]],
    );
}

#[test]
fn what_a_reduction_sees_is_selected() {
    check_unmasked(
        "let y = tl::select(mask, x, 7.0);
        tl::store(out + i, y * tl::sum(y, 0), mask);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = load x[%2] mask %4 inside vector 4 : f32[128]
              %6 = constant 7.0 : f32
              %7 = splat %6 : f32[128]
              %8 = select %4, %5, %7 : f32[128]
              %9 = reduce %8 axes [0] : f32 { |%10, %11|
                %12 = add %10, %11 : f32
                yield %12
              }
              %13 = splat %9 : f32[128]
              %14 = mul %8, %13 : f32[128]
              store out[%2] mask %4 inside vector 4 = %14
            }
        "#]],
    );
}

#[test]
fn what_another_store_sees_is_selected() {
    check_unmasked(
        "tl::store(out + i, tl::select(mask, x, 7.0), other);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = splat %1 : i32[128]
              %6 = lt %2, %5 : bool[128]
              %7 = load x[%2] mask %4 inside vector 4 : f32[128]
              %8 = constant 7.0 : f32
              %9 = splat %8 : f32[128]
              %10 = select %4, %7, %9 : f32[128]
              store out[%2] mask %6 inside vector 4 = %10
            }
        "#]],
    );
    check_unmasked(
        "tl::store(out + i, tl::select(mask, x, 7.0));",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = load x[%2] mask %4 inside vector 4 : f32[128]
              %6 = constant 7.0 : f32
              %7 = splat %6 : f32[128]
              %8 = select %4, %5, %7 : f32[128]
              store out[%2] inside vector 4 = %8
            }
        "#]],
    );
    check_unmasked(
        "let y = tl::select(mask, x, 7.0);
        tl::store(out + i, y, mask);
        tl::store(out + 128 + i, y * 3.0, other);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = splat %1 : i32[128]
              %6 = lt %2, %5 : bool[128]
              %7 = load x[%2] mask %4 inside vector 4 : f32[128]
              %8 = constant 7.0 : f32
              %9 = splat %8 : f32[128]
              %10 = select %4, %7, %9 : f32[128]
              store out[%2] mask %4 inside vector 4 = %10
              %11 = constant 3.0 : f32
              %12 = splat %11 : f32[128]
              %13 = mul %10, %12 : f32[128]
              %14 = constant 128 : i64
              store out[%14 + %2] mask %6 inside vector 4 = %13
            }
        "#]],
    );
}

#[test]
fn a_selection_by_another_mask_stays() {
    check_unmasked(
        "tl::store(out + i, tl::select(other, tl::select(mask, x, 7.0), 8.0), mask);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = splat %1 : i32[128]
              %6 = lt %2, %5 : bool[128]
              %7 = load x[%2] mask %4 inside vector 4 : f32[128]
              %8 = constant 7.0 : f32
              %9 = splat %8 : f32[128]
              %10 = constant 8.0 : f32
              %11 = splat %10 : f32[128]
              %12 = select %6, %7, %11 : f32[128]
              store out[%2] mask %4 inside vector 4 = %12
            }
        "#]],
    );
}

#[test]
fn what_a_loop_carries_is_selected() {
    check_unmasked(
        "let mut y = x;
        for _ in 0..m { y = tl::select(mask, y * 2.0, 7.0); }
        tl::store(out + i, y, mask);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = load x[%2] mask %4 inside vector 4 : f32[128]
              %6 = constant 0 : i32
              %7 = constant 1 : i32
              %8 = for %6..%1 step %7 carry %5 : f32[128] { |%9, %10|
                %11 = constant 2.0 : f32
                %12 = splat %11 : f32[128]
                %13 = mul %10, %12 : f32[128]
                %14 = constant 7.0 : f32
                %15 = splat %14 : f32[128]
                %16 = select %4, %13, %15 : f32[128]
                yield %16
              }
              store out[%2] mask %4 inside vector 4 = %8
            }
        "#]],
    );
}

/// The element is masked off; where it would go is still computed.
#[test]
fn an_address_is_selected() {
    check_unmasked(
        "tl::store(out + tl::select(mask, i, 0), x, mask);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = load x[%2] mask %4 inside vector 4 : f32[128]
              %6 = constant 0 : i32
              %7 = splat %6 : i32[128]
              %8 = select %4, %2, %7 : i32[128]
              store out[%8] mask %4 = %5
            }
        "#]],
    );
}

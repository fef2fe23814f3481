//! Selects that only masked-off elements would notice.

use expect_test::{Expect, expect};
use tile_ir::ir;
use tile_ir::testing::func;

use super::run::{Arg, load_bodies};
use lowering::driver::specialize::{KernelRequests, specializations};

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
    let specializations =
        specializations(&func(&source), KernelRequests::default()).expect("bodies that fit");
    let func = &specializations[0].plan.laid_out;
    ir::verify(func).expect("valid tile IR");
    expected.assert_eq(&ir::print(func, &|_| None));
}

#[test]
fn a_select_by_the_mask_of_its_only_store_is_elided() {
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
              store %13, out[%2] mask %4 inside vector 4
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
              store %5, out[%2] mask %4 inside vector 4
              %8 = constant 0 : i32
              %9 = gt %1, %8 : bool
              if %9 {
                %10 = exp %5 : f32[128]
                %11 = constant 128 : i64
                store %10, out[%11 + %2] mask %4 inside vector 4
              } {
              }
            }
        "#]],
    );
}

#[test]
fn the_operand_of_a_reduction_is_selected() {
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
              store %14, out[%2] mask %4 inside vector 4
            }
        "#]],
    );
}

#[test]
fn the_operand_of_another_store_is_selected() {
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
              store %10, out[%2] mask %6 inside vector 4
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
              store %8, out[%2] inside vector 4
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
              store %10, out[%2] mask %4 inside vector 4
              %11 = constant 3.0 : f32
              %12 = splat %11 : f32[128]
              %13 = mul %10, %12 : f32[128]
              %14 = constant 128 : i64
              store %13, out[%14 + %2] mask %6 inside vector 4
            }
        "#]],
    );
}

#[test]
fn a_select_by_another_mask_stays() {
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
              store %12, out[%2] mask %4 inside vector 4
            }
        "#]],
    );
}

#[test]
fn a_loop_carried_value_is_selected() {
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
              store %8, out[%2] mask %4 inside vector 4
            }
        "#]],
    );
}

/// The element is masked off; its address is still computed.
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
              store %5, out[%8] mask %4
            }
        "#]],
    );
}

#[test]
fn of_a_row_less_a_scalar_the_scalar_is_selected() {
    check_unmasked(
        "let mean = tl::sum(x, 0);
        let centered = tl::select(mask, x - mean, 0.0);
        tl::store(out + i, centered * tl::sum(centered * centered, 0), mask);",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = load x[%2] mask %4 inside vector 4 : f32[128]
              %6 = reduce %5 axes [0] : f32 { |%7, %8|
                %9 = add %7, %8 : f32
                yield %9
              }
              %10 = splat %6 : f32[128]
              %11 = constant 0.0 : f32
              %12 = splat %11 : f32[128]
              %13 = select %4, %10, %12 : f32[128]
              %14 = sub %5, %13 : f32[128]
              %15 = mul %14, %14 : f32[128]
              %16 = reduce %15 axes [0] : f32 { |%17, %18|
                %19 = add %17, %18 : f32
                yield %19
              }
              %20 = splat %16 : f32[128]
              %21 = mul %14, %20 : f32[128]
              store %21, out[%2] mask %4 inside vector 4
            }
        "#]],
    );
}

#[test]
fn what_is_not_0_beyond_its_mask_is_selected_itself() {
    check_unmasked(
        "let number = m.to::<f32>();
        let full = tl::load(out + i, mask, 2.0);
        let one = tl::select(mask, full - number, 0.0) + tl::select(other, x - number, 0.0);
        let two = tl::select(mask, x - number, 1.0) + tl::select(mask, x - full, 0.0);
        tl::store(out + 128 + i, one + two + tl::select(mask, x * number, 0.0));",
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 m: i32) {
              %2 = arange 0 : i32[128]
              %3 = splat %0 : i32[128]
              %4 = lt %2, %3 : bool[128]
              %5 = splat %1 : i32[128]
              %6 = lt %2, %5 : bool[128]
              %7 = load x[%2] mask %4 inside vector 4 : f32[128]
              %8 = cast %1 : f32
              %9 = constant 2.0 : f32
              %10 = splat %9 : f32[128]
              %11 = load out[%2] mask %4 inside vector 4 other %10 : f32[128]
              %12 = splat %8 : f32[128]
              %13 = sub %11, %12 : f32[128]
              %14 = constant 0.0 : f32
              %15 = splat %14 : f32[128]
              %16 = select %4, %13, %15 : f32[128]
              %17 = sub %7, %12 : f32[128]
              %18 = select %6, %17, %15 : f32[128]
              %19 = add %16, %18 : f32[128]
              %20 = constant 1.0 : f32
              %21 = splat %20 : f32[128]
              %22 = select %4, %17, %21 : f32[128]
              %23 = sub %7, %11 : f32[128]
              %24 = select %4, %23, %15 : f32[128]
              %25 = add %22, %24 : f32[128]
              %26 = add %19, %25 : f32[128]
              %27 = mul %7, %12 : f32[128]
              %28 = select %4, %27, %15 : f32[128]
              %29 = add %26, %28 : f32[128]
              %30 = constant 128 : i64
              store %29, out[%30 + %2] inside vector 4
            }
        "#]],
    );
}

/// Rows of 128 elements of which the first `n` are loaded, shifted by a scalar in each way, all 128 used.
#[test]
fn shifted_rows_are_0_beyond_their_mask() {
    const SHIFTS: &str = "#[fuse_kernel]
        fn k(x: &[i32], y: &[f32], out: &mut [i32], narrow: &[bf16], rows: &mut [f32], n: i32) {
            let i = tl::arange(0, 128);
            let mask = i < n;
            let (x, y) = (tl::load(x + i, mask), tl::load(y + i, mask));
            let (number, sum) = (tl::max(x, 0), tl::sum(y, 0));
            tl::store(out + i, tl::select(mask, x - number, 0));
            tl::store(out + 128 + i, tl::select(mask, number - x, 0));
            tl::store(out + 256 + i, tl::select(mask, x + number, 0) + tl::max(tl::select(mask, number + x, 0), 0));
            let centered = tl::select(mask, y - sum, 0.0);
            tl::store(rows + i, centered);
            tl::store(rows + 128 + i, centered * tl::sum(centered, 0), mask);
            let few = tl::load(narrow + i, mask, 0.0).to::<f32>();
            let centered = tl::select(mask, few - tl::sum(few, 0), 0.0);
            tl::store(rows + 256 + i, centered * tl::max(centered, 0));
        }";
    let specializations = load_bodies(SHIFTS);
    for (which, body) in specializations.iter().enumerate() {
        for n in [0usize, 8, 64, 120, 128, 1, 77] {
            if which + 1 < specializations.len() && n % 8 != 0 {
                continue;
            }
            for loaded in body {
                let mut x: [i32; 128] = std::array::from_fn(|i| (i as i32 * 37) % 101 - 50);
                let mut y = x.map(|x| x as f32);
                let mut narrow = y.map(|y| half::bf16::from_f32(y).to_bits());
                let mut out = [-1; 384];
                let mut rows = [-1.0f32; 384];
                let args = &mut [
                    Arg::of(&mut x),
                    Arg::of(&mut y),
                    Arg::of(&mut out),
                    Arg::of(&mut narrow),
                    Arg::of(&mut rows),
                    Arg::Scalar(n as u64),
                ];
                loaded.call([1, 1, 1], args);
                let number =
                    x[..n].iter().copied().max().unwrap_or(0).max(if n < 128 { 0 } else { i32::MIN });
                let sum: f32 = y[..n].iter().sum();
                let within = |i: usize, value: i32| if i < n { value } else { 0 };
                let most = (0..128).map(|i| within(i, number + x[i])).max().expect("not empty");
                let centered: [f32; 128] = std::array::from_fn(|i| if i < n { y[i] - sum } else { 0.0 });
                let (all, top) =
                    (centered.iter().sum::<f32>(), centered.iter().copied().fold(f32::MIN, f32::max));
                for i in 0..128 {
                    let what = format!("element {i} of {n}, body {which}, {}", loaded.level.name());
                    assert_eq!(out[i], within(i, x[i] - number), "{what}");
                    assert_eq!(out[128 + i], within(i, number - x[i]), "{what}");
                    assert_eq!(out[256 + i], within(i, x[i] + number) + most, "{what}");
                    assert_eq!(rows[i].to_bits(), centered[i].to_bits(), "{what}");
                    assert_eq!(rows[128 + i], if i < n { centered[i] * all } else { -1.0 }, "{what}");
                    assert_eq!(rows[256 + i], centered[i] * top, "{what}");
                }
            }
        }
    }
}

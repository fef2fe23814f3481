//! Warnings about constants that are hardly meant, and about kernels and generics without an effect: what fires, and its near misses.

use expect_test::{Expect, expect};

use tile_ir::testing::{mistakes, render, warnings};

/// Checks the warnings of a kernel: the tokens, the kind and the text.
fn check_warnings(source: &str, expected: Expect) {
    let lines: Vec<String> = warnings(source)
        .into_iter()
        .map(|warning| {
            let (from, to) = (warning.loc.start.start(), warning.loc.end.end());
            let line = source.lines().nth(from.line - 1).unwrap_or_default();
            let tokens: String = line.chars().take(to.column).skip(from.column).collect();
            format!("`{tokens}` {}: {}\n", warning.kind, warning.text)
        })
        .collect();
    expected.assert_eq(&lines.concat());
}

/// Checks the warnings of statements in a kernel that has none otherwise.
fn check_body(body: &str, expected: Expect) {
    check_warnings(&kernel(body), expected);
}

fn kernel(body: &str) -> String {
    format!(
        "#[fuse_kernel(N = [64], FLAG = [true])]
        fn kernel<const N: usize, const FLAG: bool>(
            x: &[f32], bytes: &[u8], out: &mut [f32], count: &mut [i32], n: i32, u: u32, seed: u64,
        ) {{
            const LOW: i32 = 0;
            const HIGH: i32 = 10;
            const MODE: i32 = 2;
            let (pid, lanes) = (tl::program_id(0), tl::arange(0, N));
            let y = tl::load(x + pid * N + lanes);
            if FLAG {{ tl::store(out + pid * N + lanes, y); }}
            {body}
        }}"
    )
}

#[test]
fn empty_ranges() {
    check_body(
        "for i in 10..0 { tl::store(count + pid + i, n); }
        for i in (HIGH..LOW).step_by(2) { tl::store(count + pid + i, n); }
        for i in tl::range(3, -3, 1).unroll(2) { tl::store(count + pid + i, n); }
        for i in tl::static_range(4, 0) { tl::store(count + pid + i, n); }
        for i in 5..5 { tl::store(count + pid + i, n); }
        for i in HIGH..=LOW + 1 { tl::store(count + pid + i, n); }",
        expect![[r#"
            `10..0` empty_range: this range is empty, so that the loop never runs; to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
            `(HIGH..LOW)` empty_range: this range is empty, so that the loop never runs; to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
            `tl::range(3, -3, 1)` empty_range: this range is empty, so that the loop never runs; to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
            `tl::static_range(4, 0)` empty_range: this range is empty, so that the loop never runs; to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
            `5..5` empty_range: this range is empty, so that the loop never runs; `start..end` ends before `end`, `start..=end` includes it
            `HIGH..=LOW + 1` empty_range: this range is empty, so that the loop never runs; to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
        "#]],
    );
}

#[test]
fn ranges_that_some_variant_runs() {
    check_body(
        "let (from, to) = (10, 0);
        for i in 0..1 { tl::store(count + pid + i, n); }
        for i in 5..=5 { tl::store(count + pid + i, n); }
        for i in LOW..0 { tl::store(count + pid + i, n); }
        for i in N..64 { tl::store(count + pid + i, n); }
        for i in 0..64 - N { tl::store(count + pid + i, n); }
        for i in from..to { tl::store(count + pid + i, n); }
        for i in n..0 { tl::store(count + pid + i, n); }
        for k in tl::static_range(0, 2) { for i in k..1 { tl::store(count + pid + i, n); } }
        fn below(count: &mut [i32], end: usize) { for i in 0..end { tl::store(count + i, 1); } }
        if pid == 0 { below(count, 0); }",
        expect![[r#""#]],
    );
}

#[test]
fn comparisons_with_nan() {
    check_body(
        "tl::store(out + pid * N + lanes, 0.0, y == f32::NAN);
        tl::store(out + pid * N + lanes, 0.0, y + 1.0 != f32::NAN);
        tl::store(out + pid * N + lanes, 0.0, -f32::NAN < y);
        tl::store(out + pid * N + lanes, 0.0, y >= 0.0 / 0.0);",
        expect![[r#"
            `y == f32::NAN` comparison_with_nan: a comparison with NaN is never true: write `tl::is_nan(y)`
            `y + 1.0 != f32::NAN` comparison_with_nan: a comparison with NaN is always true: write `!tl::is_nan(..)`
            `-f32::NAN < y` comparison_with_nan: a comparison with NaN is never true: write `tl::is_nan(y)`
            `y >= 0.0 / 0.0` comparison_with_nan: a comparison with NaN is never true: write `tl::is_nan(y)`
        "#]],
    );
    check_body(
        "tl::store(out + pid * N + lanes, 0.0, y != y);
        tl::store(out + pid * N + lanes, 0.0, tl::is_nan(y));
        tl::store(out + pid * N + lanes, f32::NAN, y == f32::INFINITY);
        if n == n { tl::store(count + pid, n); }",
        expect![[r#""#]],
    );
}

#[test]
fn comparisons_of_literals() {
    check_body(
        "if 1 > 2 { tl::store(count + pid, n); }
        tl::store(out + pid * N + lanes, y, 2 * 3 == 6);
        if 1.5 <= 1.0 { tl::store(count + pid, n); }",
        expect![[r#"
            `1 > 2` constant_comparison: both sides are literals, so that this is never true: leave it out, or compare a variable
            `2 * 3 == 6` constant_comparison: both sides are literals, so that this is always true: leave it out, or compare a variable
            `1.5 <= 1.0` constant_comparison: both sides are literals, so that this is never true: leave it out, or compare a variable
        "#]],
    );
}

#[test]
fn comparisons_that_the_element_type_decides() {
    check_body(
        "let b = tl::load(bytes + pid * N + lanes);
        if u < 0 { tl::store(count + pid, n); }
        if 0 <= u { tl::store(count + pid, n); }
        tl::store(out + pid * N + lanes, y, b <= 255);
        tl::store(out + pid * N + lanes, y, b as i8 >= -128);
        if n > 2147483647 { tl::store(count + pid, n); }
        fn clamp(v: Tile<u32>) -> Tile<u32> { if v >= 0 { v } else { v + 1 } }
        tl::store(count + pid, (clamp(u) + clamp(u + 1)) as i32);",
        expect![[r#"
            `u < 0` constant_comparison: a u32 is never negative, so that this is never true: leave it out, or take a signed type
            `0 <= u` constant_comparison: a u32 is never negative, so that this is always true: leave it out, or take a signed type
            `b <= 255` constant_comparison: a u8 is at most 255, so that this is always true: leave it out
            `b as i8 >= -128` constant_comparison: an i8 is at least -128, so that this is always true: leave it out
            `n > 2147483647` constant_comparison: an i32 is at most 2147483647, so that this is never true: leave it out
            `v >= 0` constant_comparison: a u32 is never negative, so that this is always true: leave it out, or take a signed type
        "#]],
    );
}

#[test]
fn comparisons_that_the_sign_decides() {
    check_body(
        "if pid < 0 { tl::store(count + pid, n); }
        if tl::num_programs(1) > -1 { tl::store(count + pid, n); }
        if x.len() >= 0 { tl::store(count + pid, n); }
        tl::store(out + pid * N + lanes, y, lanes >= 0);
        tl::store(out + pid * N + lanes.row(), y.row(), 0 <= lanes.row());
        for i in 0..n { if pid == -1 { tl::store(count + pid + i, n); } }",
        expect![[r#"
            `pid < 0` constant_comparison: `tl::program_id` is never negative, so that this is never true: leave it out
            `tl::num_programs(1) > -1` constant_comparison: `tl::num_programs` is never negative, so that this is always true: leave it out
            `x.len() >= 0` constant_comparison: a length is never negative, so that this is always true: leave it out
            `lanes >= 0` constant_comparison: this `tl::arange` is never negative, so that this is always true: leave it out
            `0 <= lanes.row()` constant_comparison: this `tl::arange` is never negative, so that this is always true: leave it out
            `pid == -1` constant_comparison: `tl::program_id` is never negative, so that this is never true: leave it out
        "#]],
    );
}

#[test]
fn comparisons_that_variants_programs_and_calls_decide() {
    check_body(
        "if N > 32 { tl::store(count + pid, n); }
        if MODE == 2 { tl::store(count + pid, n); }
        if FLAG == true { tl::store(count + pid, n); }
        if u > 0 { tl::store(count + pid, n); }
        if u <= 0 { tl::store(count + pid, n); }
        if n < 0 { tl::store(count + pid, n); }
        if pid == 0 { tl::store(count + pid, n); }
        if pid - 1 >= 0 { tl::store(count + pid, n); }
        tl::store(out + pid * N + lanes, y, lanes < 64);
        tl::store(out + pid * N + lanes, y, lanes - 3 >= 0);
        tl::store(out + pid * N + lanes, y, lanes >= N as i32 - 64);
        for i in tl::static_range(0, 2) { if i == 0 { tl::store(count + pid, n); } }
        let mut first = 1;
        for i in 0..n { if first == 1 { tl::store(count + pid + i, n); } first = 0; }
        fn signed(v: Tile, k: usize) -> Tile<bool> { (v >= 0) & (k == 1) }
        tl::store(out + pid, 1.0, signed(u, 1) & signed(n, 2));",
        expect![[r#""#]],
    );
    check_warnings(
        "#[fuse_kernel(T = [u32, i32])]
        fn relu<T: Integer>(out: &mut [T], n: T, b: u8) {
            fn negative<U: Integer>(x: U) -> Tile<bool> { x < 0 }
            if n < 0 || negative(n) || negative(b) || b < 0 { tl::store(out, 0); }
        }",
        expect![[r#"
            `b < 0` constant_comparison: a u8 is never negative, so that this is never true: leave it out, or take a signed type
        "#]],
    );
}

#[test]
fn powers_by_an_exclusive_or() {
    check_body(
        "tl::store(count + pid, n ^ 2);
        tl::store(count + pid, n + (N ^ 3));
        tl::store(count + pid, pid ^ 3);
        tl::store(count + pid, 2 ^ n);
        tl::store(count + pid, 2 ^ 10);
        tl::store(count + pid, 10 ^ 3);",
        expect![[r#"
            `n ^ 2` xor_for_power: `^` is exclusive or: a square is `n * n`
            `N ^ 3` xor_for_power: `^` is exclusive or: a cube is `N * N * N`
            `pid ^ 3` xor_for_power: `^` is exclusive or: a cube is `pid * pid * pid`
            `2 ^ n` xor_for_power: `^` is exclusive or: a power of two is `1 << n`
            `2 ^ 10` xor_for_power: `^` is exclusive or: a power of two is `1 << 10`
            `10 ^ 3` xor_for_power: `^` is exclusive or: this power of ten is `1000`
        "#]],
    );
    check_body(
        "tl::store(count + pid, n ^ 1);
        tl::store(count + pid, n ^ 4);
        tl::store(count + pid, n ^ 0x2);
        tl::store(count + pid, n ^ 0b11);
        tl::store(count + pid, n ^ 2i32);
        tl::store(count + pid, (n >> 1) ^ 2);
        tl::store(count + pid, 5 ^ 3);
        tl::store(count + pid, 0x2 ^ n);
        tl::store(count + pid, MODE ^ 2);
        tl::store(count + lanes, lanes ^ 2, lanes < pid);
        tl::store(count + lanes, 2 ^ lanes, lanes < pid);
        tl::store(count + pid, (u ^ 2) as i32 + (seed ^ 3) as i32);",
        expect![[r#""#]],
    );
}

/// `^` of floats is an error; the help is what was meant.
#[test]
fn powers_of_floats() {
    let source = kernel(
        "let a = y ^ 2;
        let b = y ^ 3;
        let c = (y + 1.0) ^ 2;
        let d = y ^ 5;
        let e = 2 ^ y;
        let f = y ^ y;
        let g = y ^ 0x7fffffff;",
    );
    expect![[r#"
        11: `y`: `^` takes integers or bools, found f32
            help: `^` is exclusive or: a square is `y * y`
        12: `y`: `^` takes integers or bools, found f32
            help: `^` is exclusive or: a cube is `y * y * y`
        13: `(y + 1.0)`: `^` takes integers or bools, found f32
            help: `^` is exclusive or: a square is `(y + 1.0) * (y + 1.0)`
        14: `y`: `^` takes integers or bools, found f32
            help: `^` is exclusive or: a power of a positive float is `tl::exp2(5.0 * tl::log2(y))`
        15: `y`: `^` takes integers or bools, found f32
            help: `^` is exclusive or: a power of two is `tl::exp2(y)`
        16: `y`: `^` takes integers or bools, found f32
            help: convert it, `.to::<i32>()`, or take its bits, `.bitcast::<i32>()`
        17: `y`: `^` takes integers or bools, found f32
            help: `^` is exclusive or: a power of a positive float is `tl::exp2(2147483647.0 * tl::log2(y))`
    "#]]
    .assert_eq(&render(&mistakes(&source), &source));
}

#[test]
fn kernels_that_write_nothing() {
    check_warnings(
        "#[fuse_kernel]
        pub fn lost(x: &[f32], out: &mut [f32]) { let _y = tl::load(x) + tl::load(out); }",
        expect![[r#"
            `lost` nothing_written: the kernel writes nothing, so that a launch of it has no effect: store what it computes, `tl::store(pointer, value, mask)`
        "#]],
    );
    for body in [
        "",
        "tl::store(out, 1.0);",
        "rows.store(tl::zeros::<f32>([1, 16]), 0, 0);",
        "tl::atomic_add(out, 1.0);",
        "tl::device_print(\"out\", tl::load(out));",
        "tl::device_assert(tl::load(out) > 0.0, \"positive\");",
        "fn put(out: &mut [f32]) { tl::store(out, 1.0); } put(out);",
    ] {
        let source =
            format!("#[fuse_kernel] fn kernel(out: &mut [f32], rows: &mut View<f32, 2>) {{ {body} }}");
        assert_eq!(warnings(&source), [], "{body}");
    }
}

#[test]
fn generics_that_nothing_mentions() {
    check_warnings(
        "#[fuse_kernel(N = [64, 128], M = m in [1, 2], T = [f32, f64])]
        fn kernel<const N: usize, const M: usize, T: Float>(out: &mut [f32], m: i32) { tl::store(out, 1.0); }",
        expect![[r#"
            `N` unused_generic: `N` is never used, so that all its values give the same code: leave it out
            `M` unused_generic: `M` is never used, so that all its values give the same code: leave it out
            `T` unused_generic: `T` is never used, so that all its values give the same code: leave it out
        "#]],
    );
    check_warnings(
        "#[fuse_kernel(T = [f32], A = [4], B = _ in [1], C = [2], configs = [{ D: 1, num_stages: 1 }, { D: 2 }],
            num_warps = A, tune(key = [m], when = B > 0))]
        fn kernel<T: Float, const A: usize, const B: usize, const C: usize, const D: usize>(out: &mut [T], m: i32) {
            tl::store(out + C, 1.0);
        }",
        expect![[r#""#]],
    );
}

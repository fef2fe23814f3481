//! The law of integers: what a debug build asserts of a kernel's integers, and what it does not.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::ops::Site;
use tile_ir::testing::func;
use tile_ir::transform::check_overflow::check_overflow;

/// The overflows that are reported, in the order of their use: what is attempted, and on which line.
fn check_reports(statements: &str, expected: Expect) {
    let source = format!(
        "#[fuse_kernel]\nfn k(x: &[i32], u: &[u32], w: &[i64], out: &mut [i32], v: &mut View<u32, 2>, n: i32, m: i32) {{\nlet lane = tl::arange(0, 32);\n{statements}\n}}"
    );
    let mut func = func(&source);
    check_overflow(&mut func);
    ir::verify(&func).expect("valid tile IR");
    let mut reports = String::new();
    func.body.walk(&mut |op| {
        if let Some(site) = op.kind.operation().site()
            && let Site::Overflow { verb, dtype, shape } = &func.sites[site as usize]
        {
            let line = op.loc.start.start().line - 3;
            reports += &format!("{line}: {verb} {dtype}{shape}\n");
        }
    });
    expected.assert_eq(&reports);
}

#[test]
fn offsets_and_comparisons_do_not_overflow() {
    check_reports(
        "let o = lane * n * m + tl::program_id(0) * n;
tl::store(out + o, lane, o + 7 < m * n);
tl::store(out + ((o as i64) << 3), lane, (lane > n + 7) & ((n * m) as i64 > 5));",
        expect![""],
    );
}

#[test]
fn used_overflows_are_reported_where_they_are_computed() {
    check_reports(
        "let o = lane * n;
let p = -n;
tl::store(out + lane, o + 1);
tl::store(out + lane, tl::maximum(p, lane - m));",
        expect![[r#"
            3: add i32[32]
            1: multiply i32[32]
            2: negate i32[32]
            4: subtract i32[32]
        "#]],
    );
}

#[test]
fn values_that_fit_are_not_checked() {
    check_reports(
        "tl::store(out + lane, lane * 1000 + (tl::program_id(0) & 1023) * 32);
tl::store(out + lane, tl::sum(lane * 100));
tl::store(out + lane, tl::wrapping_mul(lane, n) ^ (n << 5));",
        expect![""],
    );
}

#[test]
fn unused_elements_do_not_count() {
    check_reports(
        "let less = tl::load(u + lane, lane < n) - 1;
let kept = tl::select(lane < n, less, 0);
v.store(tl::reshape(less, [4, 8]), 0, 0);
tl::store(out + lane, kept as i32, lane < n);
let unused = n * m;",
        expect![[r#"
            1: subtract u32[4, 8]
            1: subtract u32[32]
        "#]],
    );
}

#[test]
fn quotients_loops_branches_and_reductions_are_uses() {
    check_reports(
        "let q = (n * m) / 3;
tl::store(out + q + lane, lane);
let mut acc = n;
for i in 0..n + m { acc = acc * 31 + i; }
if tl::load(x + 0) + 1 == 5 { tl::store(out + lane, lane); }
while acc / 2 > n { acc = acc - m; }
tl::store(out + lane, tl::sum(tl::load(x + lane)) + tl::cumsum(tl::load(x + lane), 0));
tl::store(out + lane, (tl::load(w + lane) * 3 + 1) as i32);",
        expect![[r#"
            1: multiply i32[32]
            4: add i32[]
            4: add i32[]
            4: multiply i32[]
            6: subtract i32[]
            7: add i32[32]
            7: sum i32[32]
            7: sum i32[32]
            8: add i64[32]
            8: multiply i64[32]
        "#]],
    );
}

//! Operations of debug builds, and the launcher's checks of assumptions.

use expect_test::{Expect, expect};
use tile_ir::ir;
use tile_ir::support::diagnostic::source_text;
use tile_ir::testing::func;

use super::first;
use super::specialization::print;
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::backend::ptxas;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::Session;

const ALL: &str = "#[fuse_kernel(num_warps = 1)]
    fn k(x: &[f32], h: &[bf16], out: &mut [f32], n: i32, flag: bool) {
        let i = tl::arange(0, 32);
        let v = tl::load(x + i, i < n);
        tl::device_assert(v  >=0.0, \"below 0\", i < n);
        tl::device_assert(flag || n != 3);
        for j in 0..n {
            tl::assume(j < 8);
        }
        tl::device_print(\"100% \\\"x\\\"\", (v, tl::load(h + i), n as i64, flag), i < n);
        tl::device_print(\"here\");
        tl::store(out + i, v, i < n);
    }";

#[test]
fn operations_quote_what_was_written() {
    expect![[r#"
        kernel k(x: &[f32], h: &[bf16], out: &mut [f32], %0 n: i32, %1 flag: bool) {
          %2 = arange 0 : i32[32]
          %3 = splat %0 : i32[32]
          %4 = lt %2, %3 : bool[32]
          %5 = load x[%2] mask %4 : f32[32]
          %6 = constant 0.0 : f32
          %7 = splat %6 : f32[32]
          %8 = ge %5, %7 : bool[32]
          %9 = not %4 : bool[32]
          %10 = or %8, %9 : bool[32]
          device_assert %10 condition "v >=0.0" message "below 0"
          %11 = constant 3 : i32
          %12 = ne %0, %11 : bool
          %13 = or %1, %12 : bool
          device_assert %13 condition "flag || n != 3" message ""
          %14 = constant 0 : i32
          %15 = constant 1 : i32
          for %14..%0 step %15 { |%16|
            %17 = constant 8 : i32
            %18 = lt %16, %17 : bool
            device_assert %18 assume "j < 8"
          }
          %19 = load h[%2] : bf16[32]
          %20 = cast %0 : i64
          %21 = splat %20 : i64[32]
          %22 = splat %1 : bool[32]
          device_print %5, %19, %21, %22 label "100% \"x\"" mask %4
          device_print label "here"
          store %5, out[%2] mask %4
        }
    "#]]
    .assert_eq(&ir::print(&func(ALL), &|_| None));
}

#[test]
fn a_release_build_has_nothing_of_them() {
    let mut released = func(ALL);
    ir::strip_debug(&mut released);
    ir::verify(&released).expect("valid tile IR");
    let without: String = ALL
        .lines()
        .filter(|line| !["tl::device_", "tl::assume"].iter().any(|call| line.contains(call)))
        .map(|line| format!("{line}\n"))
        .collect();
    let [released, without] = [released, func(&without)].map(|func| ir::print(&func, &|_| None));
    assert!(without.contains("store"));
    // The loop becomes empty.
    assert_eq!(released, without);
}

#[test]
fn source_text_keeps_single_spaces() {
    let text = |source: &str| source_text(source.parse().expect("tokens"));
    assert_eq!(text("x  >=0.0 &&\n  !tl::any( y [0..2] , {a} )"), "x >=0.0 && !tl::any( y [0..2] , {a} )");
    assert_eq!(
        text("tl::sum::<f32>(x.to::<f32>(), 0) as i64 == -1"),
        "tl::sum::<f32>(x.to::<f32>(), 0) as i64 == -1"
    );
    assert_eq!(text(""), "");
}

/// The lines of the general specialization's PTX that contain any of these words; NVIDIA's assembler accepts all of it.
fn check_ptx(source: &str, words: &[&str], expected: Expect) {
    let (mut func, requests) = first(source);
    func.reports = true;
    let specializations = specializations(&func, KernelRequests { programs: Some(1), ..requests })
        .expect("specializations that fit");
    let general = specializations.last().expect("a general specialization");
    assert!(general.reports());
    let archs = [Arch::SM_80, Arch::SM_90A];
    let named = [("entry".into(), general)];
    let texts = nvptx::emit(&Session::new(), &named, &archs, None).expect("PTX");
    let search = ptxas::find(&|name| std::env::var_os(name)).expect("FUSE_PTXAS names a file");
    for (arch, ptx) in &texts {
        if let Some(path) = &search.found {
            ptxas::assemble(path, *arch, ptx, &std::env::temp_dir()).expect("ptxas takes it");
        }
    }
    let lines = texts[0].1.lines().map(str::trim);
    let lines = lines.filter(|line| words.iter().any(|word| line.contains(word)));
    expected.assert_eq(&lines.map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn device_print_calls_vprintf() {
    check_ptx(
        "#[fuse_kernel(num_warps = 1)]
        fn k(h: &[bf16], q: &[f8e5m2], n: u64, flag: bool) {
            let i = tl::arange(0, 32);
            tl::device_print(\"h\", (tl::load(h + i), tl::load(q + i), i, n, flag), i < 20);
        }",
        &["vprintf", "st.local", "cvt.f64", "cvta", "_line_"],
        expect![[r#"
            .extern .func  (.param .b32 func_retval0) vprintf
            .param .b64 vprintf_param_0,
            .param .b64 vprintf_param_1
            .global .align 1 .b8 entry_line_0[65] = {104, 58, 32, 112, 114, 111, 103, 114, 97, 109, 32, 40, 37, 100, 44, 32, 37, 100, 44, 32, 37, 100, 41, 44, 32, 101, 108, 101, 109, 101, 110, 116, 32, 40, 37, 100, 41, 58, 32, 37, 46, 52, 103, 44, 32, 37, 46, 50, 103, 44, 32, 37, 100, 44, 32, 37, 108, 108, 117, 44, 32, 37, 100, 10};
            cvta.local.u64 	%SP, %SPL;
            cvt.f64.f32 	%rd16, %r13;
            cvt.f64.f16 	%rd17, %rs4;
            st.local.b32 	[%rd1], %r2;
            st.local.b32 	[%rd1+4], %r3;
            st.local.b32 	[%rd1+8], %r4;
            st.local.b32 	[%rd1+12], %r1;
            st.local.b64 	[%rd1+16], %rd16;
            st.local.b64 	[%rd1+24], %rd17;
            st.local.b32 	[%rd1+32], %r1;
            st.local.b64 	[%rd1+40], %rd6;
            st.local.b32 	[%rd1+48], %r14;
            mov.b64 	%rd18, entry_line_0;
            cvta.global.u64 	%rd19, %rd18;
            call.uni (retval0), vprintf, (param0, param1);
        "#]],
    );
}

#[test]
fn a_failure_is_tested_once_per_thread() {
    check_ptx(
        ALL,
        &["atom", "[fuse_report+4]", "vprintf, ("],
        expect![[r#"
            atom.relaxed.sys.global.cas.b32 	%r11, [fuse_report], 0, 1;
            st.global.b32 	[fuse_report+4], 0;
            atom.relaxed.sys.global.cas.b32 	%r13, [fuse_report], 0, 1;
            st.global.b32 	[fuse_report+4], 2;
            atom.relaxed.sys.global.cas.b32 	%r15, [fuse_report], 0, 1;
            st.global.b32 	[fuse_report+4], 2;
            atom.relaxed.sys.global.cas.b32 	%r19, [fuse_report], 0, 1;
            st.global.b32 	[fuse_report+4], 2;
            atom.relaxed.sys.global.cas.b32 	%r22, [fuse_report], 0, 1;
            st.global.b32 	[fuse_report+4], 0;
            call.uni (retval0), vprintf, (param0, param1);
            call.uni (retval0), vprintf, (param0, param1);
            atom.relaxed.sys.global.cas.b32 	%r29, [fuse_report], 0, 1;
            st.global.b32 	[fuse_report+4], 1;
        "#]],
    );
}

/// The lines with accesses of the aligned specialization, and its guards.
fn check_guards(source: &str, expected: Expect) {
    let (mut func, requests) = first(source);
    ir::strip_debug(&mut func);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let specializations = specializations(&func, requests).expect("specializations that fit");
    let text = print(&specializations[0], &params);
    let shown = |line: &&str| line.contains("load") || line.contains("store") || line.starts_with("kernel");
    let (code, guards) = text.split_once("\n}\n").expect("a function and its guards");
    let mut lines: Vec<&str> =
        code.lines().filter(shown).map(|line| line.split("  //").next().unwrap_or(line)).collect();
    lines.extend(guards.lines());
    expected.assert_eq(&lines.iter().map(|line| format!("{}\n", line.trim())).collect::<String>());
}

const PERIODIC: &str = "#[fuse_kernel]
    fn k(x: &[f32], out: &mut [f32], period: i32) {
        ASSUMPTION
        let i = tl::arange(0, 256);
        tl::store(out + i, tl::load(x + i % period));
    }";

/// Assumed or not: the launcher checks it.
#[test]
fn remainders_run_where_their_divisor_is_positive() {
    check_guards(
        &PERIODIC.replace("ASSUMPTION", ""),
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 period: i32) {
            %4 = load x[%3] inside vector 4 : f32[256]  ; reg(1 2 128) lane(4 8 16 32 64) warp()
            store %4, out[%1] inside vector 4
            x is 16-byte aligned
            out is 16-byte aligned
            4 divides period
            1 <= period
            period <= x.len()
            256 <= out.len()
        "#]],
    );
    check_guards(
        &PERIODIC.replace("ASSUMPTION", "tl::assume(period > 0);"),
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 period: i32) assuming 1 <= period {
            %4 = load x[%3] inside vector 4 : f32[256]  ; reg(1 2 128) lane(4 8 16 32 64) warp()
            store %4, out[%1] inside vector 4
            x is 16-byte aligned
            out is 16-byte aligned
            4 divides period
            1 <= period
            period <= x.len()
            256 <= out.len()
        "#]],
    );
    check_guards(
        &PERIODIC.replace("ASSUMPTION", "tl::assume(period >= 1 && period % 64 == 0 && 4096 >= period);"),
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 period: i32) assuming 1 <= period and 64 divides period and period <= 4096 {
            %4 = load x[%3] inside vector 4 : f32[256]  ; reg(1 2 128) lane(4 8 16 32 64) warp()
            store %4, out[%1] inside vector 4
            x is 16-byte aligned
            out is 16-byte aligned
            64 divides period
            1 <= period
            period <= x.len()
            256 <= out.len()
            period <= 4096
        "#]],
    );
}

#[test]
fn an_assumed_grid_bounds_program_ids() {
    let kernel = "#[fuse_kernel(unchecked)]
        fn k(x: &[f32], out: &mut [f32], n: u32) {
            tl::assume(tl::num_programs(0) <= 65535);
            tl::assume(n <= 1000);
            let i = tl::program_id(0) * 256 + tl::arange(0, 256);
            tl::store(out + i, tl::load(x + i % 64));
        }";
    check_guards(
        kernel,
        expect![[r#"
        kernel k(x: &[f32], out: &mut [f32], %0 n: u32) assuming num_programs(0) <= 65535 and n <= 1000 {
        %10 = load x[%9] inside vector 4 : f32[256]  ; reg(1 2 128) lane(4 8 16 32 64) warp()
        store %10, out[%13 + %4] inside vector 4
        x is 16-byte aligned
        out is 16-byte aligned
        num_programs(0) <= 65535
        n <= 1000
    "#]],
    );
    check_guards(
        &kernel.replace("(0) <=", "(1) <="),
        expect![[r#"
            kernel k(x: &[f32], out: &mut [f32], %0 n: u32) assuming num_programs(1) <= 65535 and n <= 1000 {
            %10 = load x[%9] inside vector 4 : f32[256]  ; reg(1 2 128) lane(4 8 16 32 64) warp()
            store %10, out[%13 + %4] inside vector 4
            x is 16-byte aligned
            out is 16-byte aligned
            -1 + 256 * num_programs(0) <= 2147483647
            num_programs(1) <= 65535
            n <= 1000
        "#]],
    );
}

#[test]
fn assumptions_that_no_launcher_can_check_are_dropped() {
    let kernel = "#[fuse_kernel]
        fn k(x: &[f32], at: &[i32], out: &mut [f32], n: i32, m: i32, a: f32) {
            tl::assume(tl::load(at) % 16 == 0);
            tl::assume(n <= m && n * m > 0);
            tl::assume(a > 0.0);
            tl::assume(n > 8 || m > 8);
            tl::assume(n % 3 == 0);
            tl::assume(true);
            let i = tl::arange(0, 64);
            tl::store(out + i, tl::load(x + i));
        }";
    check_guards(
        kernel,
        expect![[r#"
            kernel k(x: &[f32], at: &[i32], out: &mut [f32], %0 n: i32, %1 m: i32, %2 a: f32) stating 16 {
            %4 = load x[%3] inside vector 2 : f32[64]  ; reg(1) lane(2 4 8 16 32) warp()
            store %4, out[%3] inside vector 2
            x is 8-byte aligned
            out is 8-byte aligned
            64 <= x.len()
            64 <= out.len()
        "#]],
    );
}

#[test]
fn contradictory_assumptions_are_never_relied_on() {
    let kernel = "#[fuse_kernel]
        fn k(out: &mut [f32], n: i32) {
            tl::assume(n > 8 && n < 3 && tl::num_programs(1) < 1);
            let i = tl::arange(0, 64);
            tl::store(out + i % n, 1.0);
        }";
    check_guards(
        kernel,
        expect![[r#"
            kernel k(out: &mut [f32], %0 n: i32) assuming 9 <= n and n <= 2 and num_programs(1) <= 0 {
            store %5, out[%3] inside vector 2
            out is 8-byte aligned
            4 divides n
            1 <= n
            n <= out.len()
            9 <= n
            n <= 2
            num_programs(1) <= 0
        "#]],
    );
}

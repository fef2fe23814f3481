//! Inline PTX, and hints about offsets.

use expect_test::{Expect, expect};

use super::run::{Arg, run};
use super::{lines_with, ptx};
use lowering::backend::nvptx::Arch;

/// The lines of the aligned body's PTX that hold any of these words.
fn check_ptx(source: &str, words: &[&str], expected: Expect) {
    expected.assert_eq(&lines_with(&ptx(source, Arch::SM_80), words));
}

const INLINE: &str = "#[fuse_kernel(num_warps = 1)]
    fn k(x: &[f32], h: &[f16], out: &mut [f32], bits: &mut [f16], n: u32) {
        let i = tl::arange(0, 64);
        let x = tl::load(x + i);
        let fast = tl::inline_ptx::<f32>(\"tanh.approx.f32 $0, $1;\", \"=f,f\", (x,), |x| tl::tanh(x));
        let lower = |x, y, n| tl::minimum(x, y) + n.to::<f32>();
        let text = \"{ .reg .f32 t; min.f32 t, $1, $2; cvt.rn.f32.u32 $0, $3; add.f32 $0, $0, t; }\";
        tl::store(out + i, tl::inline_ptx::<f32>(text, \"=f, f, f, r\", (fast, 0.5, n), lower));
        let twice = tl::inline_ptx::<f16>(\"add.f16 $0, $1, $1;\", \"=h,h\", tl::load(h + i), |x| x + x);
        tl::store(bits + i, twice);
    }";

#[test]
fn statements_stay_in_order() {
    check_ptx(
        INLINE,
        &["tanh", "add.f", "cvt.rn", "min"],
        expect![[r#"
        tanh.approx.f32 %r4, %r1;
        tanh.approx.f32 %r7, %r2;
        { .reg .f32 t; min.f32 t, %r4, %r5; cvt.rn.f32.u32 %r3, %r8; add.f32 %r3, %r3, t; }
        { .reg .f32 t; min.f32 t, %r7, %r5; cvt.rn.f32.u32 %r6, %r8; add.f32 %r6, %r6, t; }
        add.f16 %rs1, %rs2, %rs2;
        add.f16 %rs3, %rs4, %rs4;
    "#]],
    );
}

#[test]
fn the_cpu_computes_what_the_function_says() {
    let mut x: Vec<f32> = (0..64).map(|i| i as f32 / 8.0 - 4.0).collect();
    let mut h: Vec<u16> = (0..64).map(|i| half::f16::from_f32(i as f32).to_bits()).collect();
    let (mut out, mut bits) = (vec![0f32; 64], vec![0u16; 64]);
    let args =
        vec![Arg::F32(&mut x), Arg::of(&mut h), Arg::F32(&mut out), Arg::of(&mut bits), Arg::Scalar(3)];
    run(INLINE, [1, 1, 1], args);
    for i in 0..64 {
        let wanted = x[i].tanh().min(0.5) + 3.0;
        assert!((out[i] - wanted).abs() < 1e-6, "{} gives {}, not {wanted}", x[i], out[i]);
        assert_eq!(half::f16::from_bits(bits[i]).to_f32(), 2.0 * i as f32);
    }
}

/// Statements with two results stand once for each element, and a CPU computes both.
#[test]
fn several_results_are_a_tuple() {
    let source = "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[f32], low: &mut [f32], exponent: &mut [i32]) {
            let i = tl::arange(0, 32);
            let text = \"{ .reg .b32 t; mov.b32 t, $2; shr.u32 $1, t, 23; mul.f32 $0, $2, 0f3F000000; }\";
            let split = |x| (x * 0.5, (x.bitcast::<u32>() >> 23).to::<i32>());
            let (half, high) = tl::inline_ptx::<(f32, i32)>(text, \"=f,=r,f\", (tl::load(x + i),), split);
            tl::store(low + i, half);
            tl::store(exponent + i, high);
        }";
    check_ptx(
        source,
        &[".reg .b32 t"],
        expect![[r#"
        { .reg .b32 t; mov.b32 t, %r3; shr.u32 %r2, t, 23; mul.f32 %r1, %r3, 0f3F000000; }
    "#]],
    );
    let mut x: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let (mut low, mut exponent) = (vec![0f32; 32], vec![0i32; 32]);
    run(source, [1, 1, 1], vec![Arg::F32(&mut x), Arg::F32(&mut low), Arg::of(&mut exponent)]);
    for i in 0..32 {
        assert_eq!((low[i], exponent[i]), (x[i] * 0.5, (x[i].to_bits() >> 23) as i32));
    }
}

/// Offsets through a table: nothing is known of them but what the kernel's author says.
fn table(options: &str) -> String {
    format!(
        "#[fuse_kernel(num_warps = 1{options})]
        fn k(x: &[f32], starts: &[i32], out: &mut [f32]) {{
            let i = tl::arange(0, 256);
            let start = tl::multiple_of(tl::load(starts + tl::program_id(0)), 4);
            tl::store(out + start + i, tl::load(x + tl::multiple_of(tl::max_contiguous(start + i, 256), 4)));
        }}"
    )
}

#[test]
fn a_kernel_checks_a_hint_unless_it_is_unchecked() {
    check_ptx(
        &table(""),
        &["ld.global", "st.global"],
        expect![[r#"
            ld.global.nc.b32 	%r4, [%rd8];
            @%p2 ld.global.nc.b32 %r6, [%rd9];
            @%p3 ld.global.nc.b32 %r7, [%rd10];
            @%p4 ld.global.nc.b32 %r8, [%rd11];
            @%p5 ld.global.nc.b32 %r9, [%rd12];
            @%p6 ld.global.nc.b32 %r10, [%rd13];
            @%p7 ld.global.nc.b32 %r11, [%rd14];
            @%p8 ld.global.nc.b32 %r12, [%rd15];
            @%p9 ld.global.nc.b32 %r13, [%rd16];
            @%p10 st.global.b32 [%rd17], %r6;
            @%p11 st.global.b32 [%rd18], %r7;
            @%p12 st.global.b32 [%rd19], %r8;
            @%p13 st.global.b32 [%rd20], %r9;
            @%p14 st.global.b32 [%rd21], %r10;
            @%p15 st.global.b32 [%rd22], %r11;
            @%p16 st.global.b32 [%rd23], %r12;
            @%p17 st.global.b32 [%rd24], %r13;
            @%p45 ld.global.nc.L2::cache_hint.v4.b32 {%r26, %r27, %r28, %r29}, [%rd35], %rd36;
            @%p46 ld.global.nc.L2::cache_hint.v4.b32 {%r30, %r31, %r32, %r33}, [%rd37], %rd36;
            @%p47 st.global.v4.b32 [%rd38], {%r26, %r27, %r28, %r29};
            @%p48 st.global.v4.b32 [%rd39], {%r30, %r31, %r32, %r33};
        "#]],
    );
    check_ptx(
        &table(", unchecked"),
        &["ld.global", "st.global"],
        expect![[r#"
            ld.global.b32 	%r13, [%rd8];
            ld.global.L2::cache_hint.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;
            ld.global.L2::cache_hint.v4.b32 {%r5, %r6, %r7, %r8}, [%rd3], %rd2;
            st.global.v4.b32 	[%rd13], {%r1, %r2, %r3, %r4};
            st.global.v4.b32 	[%rd13+512], {%r5, %r6, %r7, %r8};
        "#]],
    );
}

/// A mask from memory, of which only the author knows that it comes in fours.
#[test]
fn a_mask_with_a_constancy_hint_moves_vectors() {
    let source = "#[fuse_kernel(num_warps = 1, unchecked)]
        fn k(x: &[f32], flags: &[u8], out: &mut [f32]) {
            let i = tl::arange(0, 128);
            let mask = tl::max_constancy(tl::load(flags + i) != 0, 4);
            tl::store(out + i, tl::load(x + i, mask), mask);
        }";
    check_ptx(
        source,
        &["ld.global", "st.global"],
        expect![[r#"
            ld.global.b8 	%r8, [%rd8];
            @%p1 ld.global.L2::cache_hint.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;
            @%p1 st.global.v4.b32 [%rd3], {%r1, %r2, %r3, %r4};
        "#]],
    );
    let without =
        source.replace("tl::max_constancy(tl::load(flags + i) != 0, 4)", "tl::load(flags + i) != 0");
    check_ptx(
        &without,
        &["st.global"],
        expect![[r#"
        @%p1 st.global.b32 [%rd5], %r1;
        @%p2 st.global.b32 [%rd6], %r2;
        @%p3 st.global.b32 [%rd7], %r3;
        @%p4 st.global.b32 [%rd8], %r4;
    "#]],
    );
}

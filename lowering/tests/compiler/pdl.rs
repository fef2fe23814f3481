//! Programmatic dependent launch: where a kernel waits for the one before it, and what is moved up for that and
//! before a reduction.

use expect_test::{Expect, expect};

use super::{lines_with, ptx};
use lowering::backend::nvptx::Arch;

/// The statements of the first body by which it touches memory, waits, or is waited for.
fn check_order(source: &str, arch: Arch, expected: Expect) {
    let kept = [".target", ".global", "griddepcontrol", "bar.sync", "fma.rn", "ret;"];
    let text = lines_with(&ptx(source, arch), &kept);
    expected.assert_eq(&text);
}

const SCALED: &str = "#[fuse_kernel(num_warps = 2, unchecked)]
    fn scaled(x: &[f64], gamma: &[f64], out: &mut [f64]) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, 64));
        let x = tl::load(x + row * 64 + cols);
        let sum = tl::sum(x, 0);
        tl::store(out + row * 64 + cols, x * sum * tl::load(gamma + cols));
    }";

/// Behind the addresses, and before anything is loaded: no load says that its memory never changes.
#[test]
fn a_kernel_waits_before_its_first_access() {
    check_order(
        SCALED,
        Arch::SM_90A,
        expect![[r#"
            .target sm_90a
            .param .u64 .ptr .global .align 1 entry_param_0,
            .param .u64 .ptr .global .align 1 entry_param_2,
            .param .u64 .ptr .global .align 1 entry_param_4,
            griddepcontrol.wait;
            ld.global.v2.b32 	{%r7, %r8}, [%rd12];
            ld.global.b64 	%rd4, [%rd16];
            bar.sync 	0;
            st.global.b64 	[%rd52], %rd48;
            ret;
        "#]],
    );
}

#[test]
fn an_older_gpu_starts_kernels_one_by_one() {
    check_order(
        SCALED,
        Arch::SM_80,
        expect![[r#"
            .target sm_80
            .param .u64 .ptr .global .align 1 entry_param_0,
            .param .u64 .ptr .global .align 1 entry_param_2,
            .param .u64 .ptr .global .align 1 entry_param_4,
            ld.global.v2.b32 	{%r7, %r8}, [%rd12];
            ld.global.b64 	%rd4, [%rd16];
            bar.sync 	0;
            st.global.b64 	[%rd52], %rd48;
            ret;
        "#]],
    );
}

/// A branch may not be taken, and a kernel that waited for nobody would let the next one start too early.
#[test]
fn it_waits_outside_of_branches() {
    check_order(
        "#[fuse_kernel(unchecked)]
        fn maybe(x: &[f32], out: &mut [f32], n: i32) {
            let at = tl::program_id(0);
            if at < n {
                tl::store(out + at, tl::load(x + at));
            }
        }",
        Arch::SM_90A,
        expect![[r#"
            .target sm_90a
            .param .u64 .ptr .global .align 1 entry_param_0,
            .param .u64 .ptr .global .align 1 entry_param_2,
            griddepcontrol.wait;
            ld.global.b32 	%r5, [%rd1];
            @%p2 st.global.b32 [%rd5], %r5;
            ret;
        "#]],
    );
}

#[test]
fn a_kernel_without_accesses_waits_too() {
    check_order(
        "#[fuse_kernel] fn nothing(x: &[f32], out: &mut [f32]) {}",
        Arch::SM_90A,
        expect![[r#"
            .target sm_90a
            .param .u64 .ptr .global .align 1 entry_param_0,
            .param .u64 .ptr .global .align 1 entry_param_2,
            griddepcontrol.wait;
            ret;
        "#]],
    );
}

/// Copies of a loop's first turns are started ahead of it.
#[test]
fn it_waits_before_asynchronous_copies() {
    check_order(
        "#[fuse_kernel(num_warps = 4, num_stages = 2, unchecked)]
        fn totals(x: &[f32], out: &mut [f32], n: i32) {
            let cols = tl::arange(0, 512);
            let mut sum = tl::zeros::<f32>([512]);
            for start in (0..n).step_by(512) {
                sum += tl::load(x + start + cols);
            }
            tl::store(out + cols, sum);
        }",
        Arch::SM_90A,
        expect![[r#"
            .target sm_90a
            .param .u64 .ptr .global .align 1 entry_param_0,
            .param .u64 .ptr .global .align 1 entry_param_2,
            griddepcontrol.wait;
            cp.async.ca.shared.global.L2::cache_hint [%r4 + 0], [%rd8], 16, %rd4;
            cp.async.ca.shared.global.L2::cache_hint [%r16 + 0], [%rd11], 16, %rd4;
            st.global.v4.b32 	[%rd13], {%r24, %r25, %r26, %r27};
            ret;
        "#]],
    );
}

/// What reads its place from memory that a reduction chose stays where it is.
#[test]
fn a_load_that_needs_a_reduction_stays_behind_it() {
    check_order(
        "#[fuse_kernel(num_warps = 2, unchecked)]
        fn chosen(x: &[i32], table: &[f32], out: &mut [f32]) {
            let cols = tl::arange(0, 64);
            let at = tl::max(tl::load(x + cols), 0);
            tl::store(out + cols, tl::load(table + at + cols));
        }",
        Arch::SM_90A,
        expect![[r#"
            .target sm_90a
            .param .u64 .ptr .global .align 1 entry_param_0,
            .param .u64 .ptr .global .align 1 entry_param_2,
            .param .u64 .ptr .global .align 1 entry_param_4,
            griddepcontrol.wait;
            ld.global.b32 	%r5, [%rd7];
            bar.sync 	0;
            ld.global.b32 	%r12, [%rd13];
            st.global.b32 	[%rd14], %r12;
            ret;
        "#]],
    );
}

/// Copies that a loop starts ahead move nowhere, and wide loads of a few registers beside them matter little; single elements may be worth
/// moving.
#[test]
fn a_kernel_of_tma_loads_uses_pdl() {
    let source = |more: &str| {
        format!(
            "#[fuse_kernel(num_warps = 4, num_stages = 2)]
            fn totals(x: &[f32], scale: &[f32], out: &mut [f32], n: i32) {{
                let places = tl::arange(0, 16).col() * 64 + tl::arange(0, 64).row();
                let mut sum = tl::zeros::<f32>([16, 64]);
                for start in (0..n).step_by(16) {{
                    sum += tl::load(x + start * 64 + places);
                }}
                tl::store(out + places, sum{more});
            }}"
        )
    };
    let starts_early = |more| ptx(&source(more), Arch::SM_90A).contains("griddepcontrol.wait");
    assert!(starts_early(""));
    assert!(starts_early(" * tl::load(scale + places)"));
    assert!(!starts_early(" * tl::load(scale + 2 * places)"));
}

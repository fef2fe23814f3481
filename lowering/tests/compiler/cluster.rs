//! Programs of several blocks: what the blocks of a cluster store to each other, where they wait, and what GPUs
//! without clusters get.

use expect_test::{Expect, expect};

use super::{lines_with, ptx};
use lowering::backend::nvptx::Arch;

/// How the first body for an architecture talks to other threads.
fn check_exchange(source: &str, arch: Arch, expected: Expect) {
    let kept =
        [".version", ".reqn", "cluster", "mbarrier", "bar.", "barrier", ".shared", "st.global", "ld.global"];
    expected.assert_eq(&lines_with(&ptx(source, arch), &kept));
}

const NORM: &str = "#[fuse_kernel(num_ctas = 2, num_warps = 4, unchecked)]
    fn norm(x: &[f32], out: &mut [f32]) {
        let cols = tl::program_id(0) * 1024 + tl::arange(0, 1024);
        let x = tl::load(x + cols);
        tl::store(out + cols, x * tl::sum(x, 0));
    }";

/// Every warp stores its sum in both blocks, where the store counts itself in: no barrier, but one at the start.
#[test]
fn partial_results_arrive_at_mbarriers() {
    check_exchange(
        NORM,
        Arch::SM_90A,
        expect![[r#"
            .version 8.1
            .extern .shared .align 1024 .b8 shared[];
            .reqntid 128
            .explicitcluster
            .reqnctapercluster 2, 1, 1
            mbarrier.init.shared::cta.b64 [%rd6], 4;
            fence.mbarrier_init.release.cluster;
            barrier.cluster.arrive.relaxed.aligned;
            ld.global.L2::cache_hint.v4.b32 {%r14, %r15, %r16, %r17}, [%rd7], %rd5;
            barrier.cluster.wait.aligned;
            @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 %rd8, [%rd9], 8;
            mapa.shared::cluster.u64 	%rd13, %rd18, 0;
            mapa.shared::cluster.u64 	%rd14, %rd9, 0;
            st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%rd13], %r34, [%rd14];
            mapa.shared::cluster.u64 	%rd15, %rd18, 1;
            mapa.shared::cluster.u64 	%rd16, %rd9, 1;
            st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%rd15], %r34, [%rd16];
            mbarrier.try_wait.shared::cta.b64 done, [%rd9], %rd19;
            ld.shared.v4.b32 	{%r37, %r38, %r39, %r40}, [shared];
            ld.shared.v4.b32 	{%r41, %r42, %r43, %r44}, [shared+16];
            st.global.v4.b32 	[%rd26], {%r52, %r53, %r54, %r55};
        "#]],
    );
}

#[test]
fn one_block_runs_a_program_without_clusters() {
    check_exchange(
        NORM,
        Arch::SM_80,
        expect![[r#"
            .version 7.4
            .extern .shared .align 1024 .b8 shared[];
            .reqntid 256
            ld.global.L2::cache_hint.v4.b32 {%r2, %r3, %r4, %r5}, [%rd6], %rd5;
            st.shared.b32 	[%rd3], %r1;
            bar.sync 	0;
            ld.shared.v4.b32 	{%r27, %r28, %r29, %r30}, [shared];
            ld.shared.v4.b32 	{%r31, %r32, %r33, %r34}, [shared+16];
            st.global.v4.b32 	[%rd16], {%r42, %r43, %r44, %r45};
        "#]],
    );
}

/// What is no reduction of numbers of four bytes or eight goes through a barrier of the cluster.
#[test]
fn other_exchanges_wait_at_a_barrier_of_the_cluster() {
    check_exchange(
        "#[fuse_kernel(num_ctas = 2, num_warps = 1, unchecked)]
        fn turned(x: &[f32], out: &mut [f32]) {
            let places = tl::arange(0, 32).col() * 32 + tl::arange(0, 32).row();
            tl::store(out + places, tl::trans(tl::load(x + places)));
        }",
        Arch::SM_90A,
        expect![[r#"
            .version 8.0
            .extern .shared .align 1024 .b8 shared[];
            .reqntid 32
            .explicitcluster
            .reqnctapercluster 2, 1, 1
            barrier.cluster.arrive.relaxed.aligned;
            ld.global.L2::cache_hint.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;
            ld.global.L2::cache_hint.v4.b32 {%r5, %r6, %r7, %r8}, [%rd3], %rd2;
            ld.global.L2::cache_hint.v4.b32 {%r9, %r10, %r11, %r12}, [%rd4], %rd2;
            ld.global.L2::cache_hint.v4.b32 {%r13, %r14, %r15, %r16}, [%rd5], %rd2;
            barrier.cluster.wait.aligned;
            mapa.shared::cluster.u64 	%rd21, %rd14, 0;
            st.shared::cluster.v4.b32 	[%rd21], {%r1, %r2, %r3, %r4};
            mapa.shared::cluster.u64 	%rd22, %rd14, 1;
            st.shared::cluster.v4.b32 	[%rd22], {%r1, %r2, %r3, %r4};
            mapa.shared::cluster.u64 	%rd23, %rd16, 0;
            st.shared::cluster.v4.b32 	[%rd23], {%r5, %r6, %r7, %r8};
            mapa.shared::cluster.u64 	%rd24, %rd16, 1;
            st.shared::cluster.v4.b32 	[%rd24], {%r5, %r6, %r7, %r8};
            mapa.shared::cluster.u64 	%rd25, %rd18, 0;
            st.shared::cluster.v4.b32 	[%rd25], {%r9, %r10, %r11, %r12};
            mapa.shared::cluster.u64 	%rd26, %rd18, 1;
            st.shared::cluster.v4.b32 	[%rd26], {%r9, %r10, %r11, %r12};
            mapa.shared::cluster.u64 	%rd27, %rd20, 0;
            st.shared::cluster.v4.b32 	[%rd27], {%r13, %r14, %r15, %r16};
            mapa.shared::cluster.u64 	%rd28, %rd20, 1;
            st.shared::cluster.v4.b32 	[%rd28], {%r13, %r14, %r15, %r16};
            barrier.cluster.arrive.aligned;
            barrier.cluster.wait.aligned;
            ld.shared.b32 	%r66, [%rd30];
            ld.shared.b32 	%r67, [%rd34+128];
            ld.shared.b32 	%r68, [%rd34+256];
            ld.shared.b32 	%r69, [%rd34+384];
            ld.shared.b32 	%r70, [%rd36];
            ld.shared.b32 	%r71, [%rd39+128];
            ld.shared.b32 	%r72, [%rd39+256];
            ld.shared.b32 	%r73, [%rd39+384];
            ld.shared.b32 	%r74, [%rd41];
            ld.shared.b32 	%r75, [%rd44+128];
            ld.shared.b32 	%r76, [%rd44+256];
            ld.shared.b32 	%r77, [%rd44+384];
            ld.shared.b32 	%r78, [%rd46];
            ld.shared.b32 	%r79, [%rd49+128];
            ld.shared.b32 	%r80, [%rd49+256];
            ld.shared.b32 	%r81, [%rd49+384];
            st.global.v4.b32 	[%rd50], {%r66, %r67, %r68, %r69};
            st.global.v4.b32 	[%rd51], {%r70, %r71, %r72, %r73};
            st.global.v4.b32 	[%rd52], {%r74, %r75, %r76, %r77};
            st.global.v4.b32 	[%rd53], {%r78, %r79, %r80, %r81};
        "#]],
    );
}

/// A turn writes beside what the turn before it may still read, and stores of different turns never meet: nothing waits.
#[test]
fn iterations_of_a_loop_wait_only_for_scalars() {
    check_exchange(
        "#[fuse_kernel(num_ctas = 2, num_warps = 1, num_stages = 1)]
        fn rows(x: &[f32], out: &mut [f32], n_rows: i32, n: i32) {
            let cols = tl::arange(0, 128);
            for row in (tl::program_id(0)..n_rows).step_by(tl::num_programs(0)) {
                let x = tl::load(x + row * n + cols, cols < n, 0.0);
                tl::store(out + row * n + cols, x * tl::sum(x, 0), cols < n);
            }
        }",
        Arch::SM_90A,
        expect![[r#"
            .version 8.1
            .extern .shared .align 1024 .b8 shared[];
            .reqntid 32
            .explicitcluster
            .reqnctapercluster 2, 1, 1
            mbarrier.init.shared::cta.b64 [%rd11], 1;
            mbarrier.init.shared::cta.b64 [%rd12], 1;
            fence.mbarrier_init.release.cluster;
            barrier.cluster.arrive.relaxed.aligned;
            barrier.cluster.wait.aligned;
            mbarrier.try_wait.shared::cta.b64 done, [%rd29], %rd8;
            ld.shared.v2.b32 	{%r41, %r42}, [%rd7];
            @%p4 st.global.v2.b32 [%rd30], {%r39, %r40};
            @%p4 ld.global.v2.b32 {%r20, %r21}, [%rd16];
            @%p5 mbarrier.arrive.expect_tx.shared::cta.b64 %rd17, [%rd29], 8;
            mapa.shared::cluster.u64 	%rd27, %rd26, %r7;
            mapa.shared::cluster.u64 	%rd28, %rd29, %r7;
            st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%rd27], %r38, [%rd28];
        "#]],
    );
}

/// Sums that do not need each other share a round, whatever is computed from the first of them.
#[test]
fn independent_sums_share_a_barrier() {
    check_exchange(
        "#[fuse_kernel(num_warps = 2, unchecked)]
        fn sums(x: &[f32], y: &[f32], out: &mut [f32]) {
            let cols = tl::arange(0, 256);
            let (x, y) = (tl::load(x + cols), tl::load(y + cols));
            let mean = tl::sum(x, 0) / 256.0;
            let centered = x - mean;
            let other = tl::sum(y, 0);
            let largest = tl::max(centered * y, 0);
            tl::store(out + cols, centered * largest + other);
        }",
        Arch::SM_80,
        expect![[r#"
            .version 7.4
            .extern .shared .align 1024 .b8 shared[];
            .reqntid 64
            ld.global.L2::cache_hint.v4.b32 {%r11, %r12, %r13, %r14}, [%rd4], %rd5;
            ld.global.L2::cache_hint.v4.b32 {%r15, %r16, %r17, %r18}, [%rd6], %rd5;
            st.shared.b32 	[%rd2], %r3;
            st.shared.b32 	[%rd2+16], %r2;
            bar.sync 	0;
            ld.shared.v2.b32 	{%r49, %r50}, [shared];
            ld.shared.v2.b32 	{%r4, %r5}, [shared+16];
            st.shared.b32 	[%rd2+32], %r10;
            bar.sync 	0;
            ld.shared.v2.b32 	{%r70, %r71}, [shared+32];
            st.global.v4.b32 	[%rd13], {%r73, %r74, %r75, %r76};
        "#]],
    );
}

/// Where turns may meet they wait for each other.
#[test]
fn stores_that_may_meet_keep_their_order() {
    for (step, waits) in [("i * 64", false), ("i * 63", true), ("i * n", true), ("(i & 3) * 64", true)] {
        let source = format!(
            "#[fuse_kernel(num_warps = 2)]
            fn k(x: &[f32], out: &mut [f32], turns: i32, n: i32) {{
                let lanes = tl::arange(0, 64);
                for i in 0..turns {{
                    tl::store(out + {step} + lanes, tl::load(x + i * 64 + lanes));
                }}
            }}"
        );
        assert_eq!(ptx(&source, Arch::SM_80).contains("bar.sync"), waits, "{step}");
    }
}

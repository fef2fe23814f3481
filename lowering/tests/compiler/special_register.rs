//! The multiprocessor and the clock: reads stay where they are, and a program has one value.

use std::sync::atomic::{AtomicI64, Ordering};

use expect_test::{Expect, expect};

use super::run::{Arg, load};
use super::{lines_with, ptx_of};
use lowering::backend::nvptx::Arch;

/// Reads of a kernel's first specialization, and what threads exchange.
fn check_reads(source: &str, expected: Expect) {
    let ptx = ptx_of(source, Arch::SM_90A, |_| true);
    let words = ["%smid", "%globaltimer", "shfl.", "barrier.", "bar.sync", "shared::cluster", "st.global"];
    expected.assert_eq(&lines_with(&ptx, &words));
}

/// Neither merged, nor taken out of a loop, nor left out.
const TIMES: &str = "#[fuse_kernel(num_warps = 1)]
    fn k(times: &mut [i64], n: i32) {
        let first = tl::globaltimer();
        let second = tl::globaltimer();
        let unused = tl::globaltimer();
        for i in 0..n {
            tl::store(times + i, tl::globaltimer());
        }
        tl::store(times + n, first);
        tl::store(times + n + 1, second);
        tl::store(times + n + 2, tl::smid().to::<i64>());
    }";

#[test]
fn each_read_of_the_clock_is_its_own() {
    check_reads(
        TIMES,
        expect![[r#"
        mov.u64 %rd3, %globaltimer;
        shfl.sync.idx.b32 	%r13, %r5, 0, 31, -1;
        shfl.sync.idx.b32 	%r14, %r4, 0, 31, -1;
        mov.u64 %rd4, %globaltimer;
        shfl.sync.idx.b32 	%r15, %r7, 0, 31, -1;
        shfl.sync.idx.b32 	%r16, %r6, 0, 31, -1;
        mov.u64 %rd5, %globaltimer;
        mov.u64 %rd8, %globaltimer;
        shfl.sync.idx.b32 	%r9, %r12, 0, 31, -1;
        shfl.sync.idx.b32 	%r10, %r11, 0, 31, -1;
        @%p4 st.global.v2.b32 [%rd9], {%r9, %r10};
        @%p4 st.global.v2.b32 [%rd11], {%r13, %r14};
        @%p4 st.global.v2.b32 [%rd12], {%r15, %r16};
        mov.u32 %r17, %smid;
        @%p4 st.global.v2.b32 [%rd13], {%r17, %r18};
    "#]],
    );
}

#[test]
fn one_thread_reads_the_clock_for_all_warps() {
    check_reads(
        "#[fuse_kernel(num_warps = 4)]
        fn k(times: &mut [i64], units: &mut [i32]) {
            let i = tl::program_id(0);
            let start = tl::globaltimer();
            while tl::globaltimer() - start < 1000 {}
            tl::store(units + i, tl::smid());
        }",
        expect![[r#"
            mov.u64 %rd4, %globaltimer;
            shfl.sync.idx.b32 	%r2, %r8, 0, 31, -1;
            shfl.sync.idx.b32 	%r3, %r7, 0, 31, -1;
            bar.sync 	0;
            bar.sync 	0;
            bar.sync 	0;
            mov.u64 %rd7, %globaltimer;
            shfl.sync.idx.b32 	%r4, %r10, 0, 31, -1;
            shfl.sync.idx.b32 	%r5, %r9, 0, 31, -1;
            mov.u32 %r11, %smid;
            @%p3 st.global.b32 [%rd10], %r11;
        "#]],
    );
}

#[test]
fn a_cluster_has_one_multiprocessor() {
    check_reads(
        "#[fuse_kernel(num_ctas = 2, num_warps = 1)]
        fn k(units: &mut [i32]) {
            tl::store(units + tl::program_id(0), tl::smid());
        }",
        expect![[r#"
            barrier.cluster.arrive.relaxed.aligned;
            barrier.cluster.wait.aligned;
            mov.u32 %r5, %smid;
            shfl.sync.idx.b32 	%r4, %r5, 0, 31, -1;
            mapa.shared::cluster.u64 	%rd2, %rd1, 0;
            mapa.shared::cluster.u64 	%rd3, %rd1, 1;
            st.shared::cluster.b32 	[%rd2], %r4;
            st.shared::cluster.b32 	[%rd3], %r4;
            barrier.cluster.arrive.aligned;
            barrier.cluster.wait.aligned;
            @%p2 st.global.b32 [%rd7], %r9;
        "#]],
    );
}

/// The producer of a warp-specialized kernel reads no clock, nor does the kernel read it once for several work tiles.
#[test]
fn consumers_read_the_clock_once_a_work_tile() {
    let source = "#[fuse_kernel(num_warps = 4)]
        fn k(a: &View<f16, 2>, b: &View<f16, 2>, c: &mut View<f32, 2>, times: &mut [i64], k: i32) {
            let start = tl::globaltimer();
            let (row, col) = (tl::program_id(0) * 64, tl::program_id(1) * 64);
            let mut acc = tl::zeros::<f32>([64, 64]);
            for i in (0..k).step_by(64) {
                acc = tl::dot(a.load::<64, 64>(row, i), b.load::<64, 64>(i, col), acc);
            }
            c.store(acc, row, col);
            tl::store(times + tl::program_id(0), tl::globaltimer() - start);
        }";
    let ptx = ptx_of(source, Arch::SM_90A, |body| body.name.starts_with("tensor"));
    let words = ["%globaltimer", "cp.async.bulk.tensor", "wgmma.commit"];
    expect![[r#"
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd91], [%rd9, {%r117, %r103}], [%rd90];
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd92], [%rd10, {%r104, %r117}], [%rd90];
        mov.u64 %rd30, %globaltimer;
        wgmma.commit_group.sync.aligned;
        @%p12 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r58, %r59}], [%rd43];
        @%p12 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r60, %r59}], [%rd44];
        mov.u64 %rd45, %globaltimer;
    "#]].assert_eq(&lines_with(&ptx, &words));
}

/// Counts the calls.
unsafe extern "C" fn count(time: *mut i64) {
    static CALLS: AtomicI64 = AtomicI64::new(1);
    // SAFETY: the kernel hands over a word of its own.
    unsafe { *time = CALLS.fetch_add(1, Ordering::Relaxed) };
}

#[test]
fn the_cpu_asks_the_runtime_for_the_time() {
    for loaded in load(TIMES) {
        let mut record = [0u64; 10];
        record[9] = count as *const () as u64;
        let mut times = vec![0i64; 6];
        let args = [Arg::of(&mut times), Arg::Scalar(3), Arg::Scalar(record.as_ptr() as u64)];
        loaded.call([1, 1, 1], &mut { args });
        let first = times[3];
        assert_eq!(times, [first + 3, first + 4, first + 5, first, first + 1, 0], "{:?}", loaded.level);
    }
}

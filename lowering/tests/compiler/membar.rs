//! Barriers of a schedule: the verifier finds each one that is taken out, and there are none that it would not miss.

use expect_test::{Expect, expect};

use super::{first, lines_with};
use lowering::devtools::schedule_simulator::{Launch, check_schedule};
use lowering::driver::pipeline::DisabledPasses;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::emit::GpuPlan;
use lowering::gpu::schedule::Schedule;
use lowering::gpu::schedule::verify::verify_barriers;
use tile_ir::ir::Block;
use tile_ir::ops::Kind;

/// Transposes through the same scratch memory, in a loop and behind it.
const TRANSPOSES: &str = "#[fuse_kernel(num_warps = 4)]
    fn transposes(x: &[f32], out: &mut [f32], n: i32) {
        let at = tl::arange(0, 64).col() * 64 + tl::arange(0, 64).row();
        let mut tile = tl::load(x + at);
        for _ in 0..n {
            tile = tl::trans(tile) + tl::load(x + at);
        }
        tl::store(out + at, tl::trans(tile));
    }";

/// What other threads have written is read, and written again.
const REVERSED: &str = "#[fuse_kernel(num_warps = 4)]
    fn reversed(x: &[f32], out: &mut [f32]) {
        let i = tl::arange(0, 128);
        tl::store(out + i, tl::load(x + i));
        let back = tl::load(out + 127 - i);
        tl::store(out + i, back);
    }";

/// Two sums that share a barrier. One has large partial results, where a transpose writes in the next iteration.
const SUMS: &str = "#[fuse_kernel(num_warps = 4)]
    fn sums(x: &[f32], y: &[f32], out: &mut [f32], n: i32) {
        let at = tl::arange(0, 64).col() * 512 + tl::arange(0, 512).row();
        let turned = tl::arange(0, 512).col() * 64 + tl::arange(0, 64).row();
        let mut total = 0.0;
        for i in 0..n {
            let across = tl::trans(tl::load(x + i * 32768 + turned));
            let columns = tl::sum(tl::load(x + i * 32768 + at) * across, 0);
            total += tl::sum(tl::load(y + i * 512 + tl::arange(0, 512)), 0);
            tl::store(out + 512 + i * 512 + tl::arange(0, 512), columns);
        }
        tl::store(out, total);
    }";

/// The work of many warps is given out and taken up again.
const COUNTED: &str = "#[fuse_kernel(num_warps = 4)]
    fn counted(x: &[f32], parts: &mut [f32], counts: &mut [u32], out: &mut [f32]) {
        let i = tl::arange(0, 128);
        tl::store(parts + i, tl::load(x + i));
        if tl::atomic_add(counts, 1u32) == 3 {
            tl::store(out + i, tl::load(parts + 127 - i));
        }
        tl::store(out + 128 + i, tl::atomic_xchg(parts + i, 2.0).sem(\"acquire\"));
    }";

/// Memory is read before a loop with a barrier, which may not run, and written behind it.
const AROUND: &str = "#[fuse_kernel(num_warps = 4)]
    fn around(x: &[bf16], c: &[bf16], out: &mut [bf16], n: i32) {
        let (rows, inner, columns) = (tl::arange(0, 64), tl::arange(0, 128), tl::arange(0, 64));
        let x = tl::load(x + (rows.col() * 128 + inner.row()));
        let mut acc = tl::zeros::<f32>([64, 64]);
        for start in (0..n).step_by(64) {
            let at = start + tl::arange(0, 64);
            let c = tl::load(c + (at.row() * 128 + inner.col()), (at < n).row(), 0.0);
            acc = tl::minimum(tl::dot(x, c, acc), 100.0);
        }
        tl::store(out + (rows.col() * 64 + columns.row()), acc.to::<bf16>());
    }";

fn planned(source: &str, disabled_passes: DisabledPasses) -> GpuPlan {
    let (func, requests) = first(source);
    let requests = KernelRequests { programs: Some(1), disabled_passes, ..requests };
    let found = specializations(&func, requests).expect("specializations that fit").remove(0);
    found.plan
}

fn scheduled(source: &str) -> Schedule {
    planned(source, DisabledPasses::default()).schedule
}

/// Takes out the barrier with this number among those that follow; false if there are fewer.
fn take_out(block: &mut Block, number: &mut usize) -> bool {
    for index in 0..block.ops.len() {
        if matches!(block.ops[index].kind, Kind::Barrier(_)) {
            if *number == 0 {
                block.ops.remove(index);
                return true;
            }
            *number -= 1;
        }
        let blocks = block.ops[index].kind.operation_mut().blocks_mut();
        if blocks.into_iter().any(|block| take_out(block, number)) {
            return true;
        }
    }
    false
}

/// What the verifier says of a kernel without each of its barriers.
fn check_each_is_missed(source: &str, expected: Expect) {
    let mut found = String::new();
    for barrier in 0.. {
        let mut schedule = scheduled(source);
        verify_barriers(&schedule).expect("no barrier is missing");
        let mut number = barrier;
        if !take_out(&mut schedule.distributed.func.body, &mut number) {
            break;
        }
        let fault = verify_barriers(&schedule).expect_err("a barrier that nothing needs");
        found += &format!("{fault}\n");
    }
    expected.assert_eq(&found);
}

#[test]
fn transposes_wait_until_their_memory_has_been_read() {
    check_each_is_missed(
        TRANSPOSES,
        expect![[r#"
        a barrier is missing before `%17 = convert_layout %16`
        a barrier is missing before `%20 = convert_layout %14`
    "#]],
    );
}

#[test]
fn threads_wait_for_what_others_write() {
    check_each_is_missed(
        REVERSED,
        expect![[r#"
        a barrier is missing before `%4 = load out[%2 + %3] inside`
        a barrier is missing before `store %4, out[%0] inside`
    "#]],
    );
}

/// Partial results that share a barrier are all read behind it.
#[test]
fn all_results_of_a_batch_are_read_before_their_memory_is_written() {
    check_each_is_missed(
        SUMS,
        expect![[r#"
            a barrier is missing before `%29 = convert_layout %28`
            a barrier is missing before `%39, %40 = reduce_batch exchange one_buffer, parity %20`
            a barrier is missing before `store %19, out[%51 + %16] inside`
        "#]],
    );
}

#[test]
fn a_loop_that_does_not_run_orders_nothing() {
    let by_copies = DisabledPasses::parse("-view_pointers").expect("the name of a pass");
    let text = planned(AROUND, by_copies).schedule.to_string();
    expect![[r#"
        %62 = convert_layout %15 : bf16[64, 128]  ; scratch 0..17408
        %64, %65 = loop %63..%20 carry %17, %21 : f32[64, 64], slot<2> { |%66, %67, %68|
        barrier
        yield %112, %73
        barrier
        %120 = convert_layout %116 : bf16[64, 64]  ; scratch 0..9216
    "#]]
    .assert_eq(&lines_with(&text, &["barrier", "= convert_layout", "= loop", "yield"]));
}

#[test]
fn releases_and_acquires_have_barriers() {
    check_each_is_missed(
        COUNTED,
        expect![[r#"
        a barrier is missing before `%5 = atomic_add %3, counts[%4 + %2] inside order acq_rel scope gpu`
        a barrier is missing before `%13 = atomic_xchg %12, parts[%0] inside order acquire scope gpu`
        a barrier is missing before `%14 = constant 128`
    "#]],
    );
}

/// Small integers, so that sums are exact.
fn small(i: usize) -> f64 {
    (i * 7 % 11) as f64 - 5.0
}

#[test]
fn reductions_are_right_with_and_without_a_batch() {
    let source = "#[fuse_kernel(num_warps = 4)]
        fn moments(x: &[f32], y: &[f32], out: &mut [f32]) {
            let i = tl::arange(0, 256);
            let (one, other) = (tl::sum(tl::load(x + i), 0), tl::max(tl::load(y + i), 0));
            tl::store(out, one);
            tl::store(out + 1, other);
        }";
    let without = DisabledPasses::parse("-reduce_batch").expect("the name of an optional pass");
    for (disabled, batches) in [(DisabledPasses::default(), 1), (without, 0)] {
        let GpuPlan { schedule, laid_out, .. } = planned(source, disabled);
        assert_eq!(schedule.to_string().matches("reduce_batch").count(), batches);
        let launch = Launch::new([1, 1, 1], 4).slice(&laid_out, "x", (0..256).map(small));
        let launch = launch.slice(&laid_out, "y", (0..256).map(small)).slice(&laid_out, "out", [0.0; 2]);
        check_schedule(&schedule.distributed.func, &laid_out, &launch, 0.0)
            .unwrap_or_else(|fault| panic!("{}", fault.0));
    }
}

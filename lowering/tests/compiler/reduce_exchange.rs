//! Exchanges of partial results: what the verifier and the simulator say of schedules with a wrong buffer, or a barrier that is not
//! initialized.

use expect_test::{Expect, expect};

use super::first;
use lowering::devtools::schedule_simulator::{Launch, check_schedule, number::Number};
use lowering::driver::pipeline::DisabledPasses;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::schedule::verify::{verify_barriers, verify_schedule};
use lowering::gpu::specialization::Specialization;
use tile_ir::ir;
use tile_ir::ir::{Block, Func, Op};
use tile_ir::ops::Kind;

const WARPS: u32 = 8;

/// Two warpgroups reduce in each iteration, and wait for nothing else.
const SCHEDULE: &str = "kernel sums(x: &[f32], out: &mut [f32], %n n: i64) {
  %lanes = arange 0 : i32[128]
  warp_specialize {
    producer(warps 1) {
      %unused = constant 0 : i64
    }
    consumer(warpgroups 2) {
      %first = constant 0 : i64
      %none = constant 0.0 : f32
      %total = loop %first..%n carry %none : f32 { |%index, %before|
        %tile = load x[%lanes] inside : f32[128]
        %sum = reduce_batch exchange parity %index : f32 {
          %own = reduce %tile axes [0] : f32 { |%a, %b|
            %both = add %a, %b : f32
            yield %both
          }
          yield %own
        }
        %all = add %before, %sum : f32
        yield %all
      }
      %result = splat %total : f32[128]
      store %result, out[%lanes] inside
    }
  }
}
";

/// The same before it is scheduled.
const LAID_OUT: &str = "kernel sums(x: &[f32], out: &mut [f32], %n n: i64) {
  %lanes = arange 0 : i32[128]
  %first = constant 0 : i64
  %one = constant 1 : i64
  %none = constant 0.0 : f32
  %total = for %first..%n step %one carry %none : f32 { |%index, %before|
    %tile = load x[%lanes] inside : f32[128]
    %sum = reduce %tile axes [0] : f32 { |%a, %b|
      %both = add %a, %b : f32
      yield %both
    }
    %all = add %before, %sum : f32
    yield %all
  }
  %result = splat %total : f32[128]
  store %result, out[%lanes] inside
}
";

fn parsed(text: &str) -> Func {
    let func = ir::parse(text).unwrap_or_else(|error| panic!("{error}"));
    ir::verify(&func).expect("a function that obeys the laws of tile IR");
    func
}

fn simulate(scheduled: &Func, iterations: i128) -> Result<(), String> {
    let laid_out = parsed(LAID_OUT);
    let launch = Launch::new([1, 1, 1], WARPS).scalar(&laid_out, "n", Number::Int(iterations));
    let small = |i: usize| (i * 7 % 11) as f64 - 5.0;
    let launch = launch.slice(&laid_out, "x", (0..128).map(small)).slice(&laid_out, "out", [0.0; 128]);
    check_schedule(scheduled, &laid_out, &launch, 0.0).map_err(|fault| fault.0)
}

/// The verifier and the simulator, of a schedule in which `from` is `to`.
fn check_changed(from: &str, to: &str, expected: Expect) {
    assert!(SCHEDULE.contains(from), "{from}");
    let func = parsed(&SCHEDULE.replace(from, to));
    let says = |found: Result<(), String>| found.err().unwrap_or_else(|| "nothing".into());
    let found = [says(verify_schedule(&func, WARPS)), says(simulate(&func, 4))];
    expected.assert_eq(&format!("verifier: {}\nsimulator: {}\n", found[0], found[1]));
}

#[test]
fn iterations_take_buffers_in_turn() {
    let func = parsed(SCHEDULE);
    verify_schedule(&func, WARPS).expect("a schedule that obeys the laws");
    for iterations in [0, 1, 2, 5] {
        simulate(&func, iterations).unwrap_or_else(|fault| panic!("{iterations} iterations: {fault}"));
    }
}

#[test]
fn one_buffer_is_written_where_others_read() {
    check_changed(
        "exchange parity %index",
        "",
        expect![[r#"
        verifier: nothing
        simulator: consumer warpgroup 1: `%9 = reduce_batch` writes partial results of %10 where others may read earlier ones
    "#]],
    );
}

#[test]
fn a_barrier_between_is_enough_for_one_buffer() {
    let barrier = SCHEDULE.replace("reduce_batch exchange parity %index", "reduce_batch");
    let barrier = barrier.replace("%tile = load", "barrier\n        %tile = load");
    simulate(&parsed(&barrier), 4).expect("no race");
}

#[test]
fn parity_is_that_of_the_loop_around() {
    check_changed(
        "exchange parity %index",
        "exchange parity %n",
        expect![[r#"
        verifier: `%9 = reduce_batch exchange parity %0`: its buffers alternate by a loop whose body it does not stand in
        simulator: consumer warpgroup 0: `%9 = reduce_batch exchange parity %0` alternates by %0, which is of no loop around
    "#]],
    );
}

// ---- planned kernels

const NORM: &str = "#[fuse_kernel(num_ctas = 2, num_warps = 4, unchecked)]
    fn norm(x: &[f32], out: &mut [f32], n: i32) {
        let lanes = tl::arange(0, 1024);
        let mut total = 0.0;
        for i in 0..n {
            total += tl::sum(tl::load(x + i * 1024 + lanes), 0);
        }
        tl::store(out + lanes, total + tl::sum(tl::load(out + lanes), 0));
    }";

fn planned(disabled_passes: DisabledPasses) -> Specialization {
    let (func, requests) = first(NORM);
    let requests = KernelRequests { programs: Some(1), disabled_passes, ..requests };
    specializations(&func, requests).expect("specializations that fit").remove(0)
}

/// Changes every block of a function.
fn change_blocks(block: &mut Block, change: &dyn Fn(&mut Vec<Op>)) {
    change(&mut block.ops);
    for op in &mut block.ops {
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| change_blocks(block, change));
    }
}

/// What the verifier says of a kernel that is changed.
fn check_planted(change: &dyn Fn(&mut Vec<Op>), expected: Expect) {
    let mut schedule = planned(DisabledPasses::default()).plan.schedule;
    change_blocks(&mut schedule.distributed.func.body, change);
    let Err(fault) =
        verify_schedule(&schedule.distributed.func, WARPS).and_then(|()| verify_barriers(&schedule))
    else {
        panic!("no law is broken")
    };
    expected.assert_eq(&fault);
}

#[test]
fn a_cluster_initializes_barriers_before_it_arrives() {
    let schedule = planned(DisabledPasses::default()).plan.schedule;
    let expected = expect![[r#"
        kernel norm(x: &[f32], out: &mut [f32], %0 n: i32) {
          %1 = mbar_alloc at 96 : mbar<stages 2, arrivals 4>
          %2 = mbar_alloc at 112 : mbar<stages 1, arrivals 4>
          mbar_init %1, %2 prefetch [] visible_behind cluster_wait
          cluster_arrive
          %3 = arange 0 : i32[1024]
          %4 = constant 0 : i32
          %5 = constant 1 : i32
          pdl_wait
          %6 = trip_count %4..%0 step %5 : i64
          %7 = ring_start at 128 bytes 8192 slots 4 slot_bytes 2048 shape 11441096314362976955 widths [16] : slot<1>
          %8 = constant 0 : i64
          %9 = slot_at %7 index 0 at 128 bytes 8192 slots 4 slot_bytes 2048 shape 11441096314362976955 : slot<1>
          %10 = lt %8, %6 : bool
          async_group if %10 {
            %11 = induction %8 low %4 step %5 : i32
            %12 = cast %11 : i64
            %13 = constant 1024 : i64
            %14 = mul %12, %13 : i64
            async_copy x[%14 + %3] inside vector 4 through_l1 to %9[0] + 0
          }
          %15 = constant 1 : i64
          %16 = slot_at %7 index 1 at 128 bytes 8192 slots 4 slot_bytes 2048 shape 11441096314362976955 : slot<1>
          %17 = lt %15, %6 : bool
          async_group if %17 {
            %18 = induction %15 low %4 step %5 : i32
            %19 = cast %18 : i64
            %20 = constant 1024 : i64
            %21 = mul %19, %20 : i64
            async_copy x[%21 + %3] inside vector 4 through_l1 to %16[0] + 0
          }
          %22 = constant 2 : i64
          %23 = slot_at %7 index 2 at 128 bytes 8192 slots 4 slot_bytes 2048 shape 11441096314362976955 : slot<1>
          %24 = lt %22, %6 : bool
          async_group if %24 {
            %25 = induction %22 low %4 step %5 : i32
            %26 = cast %25 : i64
            %27 = constant 1024 : i64
            %28 = mul %26, %27 : i64
            async_copy x[%28 + %3] inside vector 4 through_l1 to %23[0] + 0
          }
          %29 = constant 0.0 : f32
          %30 = constant 0 : i64
          cluster_wait
          %31, %32 = loop %30..%6 carry %29, %7 : f32, slot<1> { |%33, %34, %35|
            %36 = slot_step %35 previous first %7 at 128 bytes 8192 slots 4 slot_bytes 2048 shape 11441096314362976955 : slot<1>
            %37 = constant 3 : i64
            %38 = add %33, %37 : i64
            %39 = lt %38, %6 : bool
            async_group if %39 {
              %40 = induction %38 low %4 step %5 : i32
              %41 = cast %40 : i64
              %42 = constant 1024 : i64
              %43 = mul %41, %42 : i64
              async_copy x[%43 + %3] inside vector 4 through_l1 to %36[0] + 0
            }
            async_wait pending 3 at 128 bytes 8192 slots 4 slot_bytes 2048 shape 11441096314362976955
            %44 = slot_step %35 next first %7 at 128 bytes 8192 slots 4 slot_bytes 2048 shape 11441096314362976955 : slot<1>
            %45 = induction %33 low %4 step %5 : i32
            %46 = cast %45 : i64
            %47 = constant 1024 : i64
            %48 = mul %46, %47 : i64
            %49 = slot_load %35[0] + 0 vector 4 : f32[1024]
            %50 = reduce_batch exchange parity %33 barrier %1 : f32 {
              %51 = reduce %49 axes [0] : f32 { |%52, %53|  ; scratch 0..64, two buffers, mbarrier 96
                %54 = add %52, %53 : f32
                yield %54
              }
              yield %51
            }
            %55 = add %34, %50 : f32
            yield %55, %44
          }
          %56 = load out[%3] inside vector 4 : f32[1024]
          %57 = reduce_batch exchange one_buffer barrier %2 : f32 {
            %58 = reduce %56 axes [0] : f32 { |%59, %60|  ; scratch 64..96, mbarrier 112
              %61 = add %59, %60 : f32
              yield %61
            }
            yield %58
          }
          %62 = add %31, %57 : f32
          %63 = splat %62 : f32[1024]
          store %63, out[%3] inside vector 4
        }
    "#]];
    expected.assert_eq(&schedule.to_string());
    let again = ir::parse(&schedule.to_string()).expect("a schedule parses");
    assert_eq!(ir::print(&again, &|_| None), ir::print(&schedule.distributed.func, &|_| None));
}

#[test]
fn reductions_wait_at_barriers_that_all_blocks_have_initialized() {
    check_planted(
        &|ops| ops.retain(|op| !matches!(op.kind, Kind::MbarInit(_))),
        expect![
            "`%50 = reduce_batch exchange parity %33 barrier %1`: waits at %1, which not all blocks have initialized"
        ],
    );
    let move_back = |ops: &mut Vec<Op>| {
        let arrive = ops.iter().position(|op| matches!(op.kind, Kind::ClusterArrive(_)));
        if let Some(arrive) = arrive {
            ops.swap(arrive - 1, arrive);
        }
    };
    check_planted(
        &move_back,
        expect![
            "`%50 = reduce_batch exchange parity %33 barrier %1`: waits at %1, which not all blocks have initialized"
        ],
    );
    check_planted(
        &|ops| ops.retain(|op| !matches!(op.kind, Kind::ClusterWait(_))),
        expect![
            "`%50 = reduce_batch exchange parity %33 barrier %1`: waits at %1, which not all blocks have initialized"
        ],
    );
}

/// Two iterations without a barrier between them need two buffers.
#[test]
fn iterations_that_share_a_buffer_need_a_barrier() {
    let one_buffer = |ops: &mut Vec<Op>| {
        for op in ops {
            if let Kind::ReduceBatch(batch) = &mut op.kind {
                batch.exchanges.iter_mut().for_each(|exchange| exchange.parity = None);
            }
        }
    };
    check_planted(
        &one_buffer,
        expect!["a barrier is missing before `%50 = reduce_batch exchange one_buffer barrier %1`"],
    );
}

/// Without batches there is one buffer, and a barrier of the cluster in each iteration.
#[test]
fn without_batches_iterations_wait_for_each_other() {
    let batches = DisabledPasses::parse("-reduce_batch").expect("the name of an optional pass");
    let schedule = planned(batches).plan.schedule.to_string();
    assert!(!schedule.contains("parity"), "{schedule}");
    assert_eq!(schedule.matches("  barrier\n").count(), 1, "{schedule}");
}

//! The software pipeline of asynchronous copies: the schedule as it prints, and what it does in the simulator, with the pass, without
//! it, and with errors planted in it.

use expect_test::{Expect, expect};
use tile_ir::ir::{Block, Func, print};
use tile_ir::ops::schedule::SlotNeighbor;
use tile_ir::ops::{AsyncWait, Kind};

use super::first;
use lowering::devtools::schedule_simulator::number::Number;
use lowering::devtools::schedule_simulator::{Launch, check_schedule};
use lowering::driver::pipeline::DisabledPasses;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;

/// Elements of each slice that a launch hands over: enough for all iterations.
const ELEMENTS: usize = 1 << 17;
const STAGES: i32 = 3;

const SUM: &str = "#[fuse_kernel(num_warps = 1, num_stages = 3)]
    fn sum(x: &[f32], out: &mut [f32], n: i32) {
        let lanes = tl::arange(0, 128);
        let mut total = tl::zeros::<f32>([128]);
        for i in 0..n {
            total += tl::load(x + i * 128 + lanes, lanes < 96, 1.0);
        }
        tl::store(out + lanes, total);
    }";

/// Rows of 64 KB: there is one slot.
const ROWS: &str = "#[fuse_kernel(num_warps = 32, num_stages = 2, unchecked)]
    fn rows(x: &[f32], out: &mut [f32], n: i32) {
        let lanes = tl::arange(0, 16384);
        for i in 0..n {
            let row = tl::load(x + i * 16384 + lanes);
            tl::store(out + i * 16384 + lanes, row - tl::max(row));
        }
    }";

/// Indices of rows are loaded in each iteration.
const GATHERED: &str = "#[fuse_kernel(num_warps = 1, num_stages = 3, unchecked)]
    fn gathered(x: &[f32], out: &mut [f32], table: &[i32], n: i32) {
        let lanes = tl::arange(0, 128);
        let mut total = tl::zeros::<f32>([128]);
        for i in 0..n {
            total += tl::load(x + tl::load(table + i) * 128 + lanes);
        }
        tl::store(out + lanes, total);
    }";

const PRODUCT: &str = "#[fuse_kernel(num_warps = 4, num_stages = 3, unchecked)]
    fn product(x: &[ELEM], y: &[ELEM], out: &mut [f32], n: i32) {
        let (rows, cols) = (tl::arange(0, 32), tl::arange(0, 32));
        let mut sum = tl::zeros::<f32>([32, 32]);
        for i in 0..n {
            let at = i * 1024 + rows.col() * 32 + cols.row();
            sum = tl::dot(tl::load(x + at), RIGHT, sum);
        }
        tl::store(out + rows.col() * 32 + cols.row(), sum);
    }";

fn product(elem: &str, right: &str) -> String {
    PRODUCT.replace("ELEM", elem).replace("RIGHT", right)
}

/// A specialization without bounds checks.
fn aligned(source: &str, disabled_passes: DisabledPasses) -> Specialization {
    let (func, requests) = first(source);
    let requests = KernelRequests { programs: Some(1), disabled_passes, ..requests };
    specializations(&func, requests).expect("specializations that fit").remove(0)
}

fn without_pipeline() -> DisabledPasses {
    DisabledPasses::parse("-software_pipeline").expect("the name of an optional pass")
}

/// Small integers, so that sums are exact.
fn small(i: usize) -> f64 {
    (i * 7 % 11) as f64 - 5.0
}

fn launch(func: &Func, iterations: i32) -> Launch {
    let mut launch = Launch::new([1, 1, 1], 4).scalar(func, "n", Number::Int(iterations.into()));
    for param in func.params.iter().map(|param| param.name.as_str()) {
        launch = match param {
            "n" => launch,
            "table" => launch.slice(func, param, (0..ELEMENTS).map(|i| (i * 5 % 9) as f64)),
            _ => launch.slice(func, param, (0..ELEMENTS).map(small)),
        };
    }
    launch
}

fn simulate(scheduled: &Func, laid_out: &Func, iterations: i32) -> Result<(), String> {
    check_schedule(scheduled, laid_out, &launch(laid_out, iterations), 0.0).map_err(|fault| fault.0)
}

/// Checks that a kernel does with the pipeline what it does without, and gives how many copies an iteration starts.
fn check_iterations(source: &str) -> usize {
    let (pipelined, plain) =
        (aligned(source, DisabledPasses::default()), aligned(source, without_pipeline()));
    for (plan, name) in [(&pipelined.plan, "pipelined"), (&plain.plan, "plain")] {
        for iterations in [0, 1, STAGES - 1, STAGES, STAGES + 3] {
            simulate(&plan.schedule.distributed.func, &plan.laid_out, iterations)
                .unwrap_or_else(|fault| panic!("{name}, {iterations} iterations: {fault}"));
        }
    }
    let count = |plan: &lowering::gpu::emit::GpuPlan| plan.schedule.to_string().matches("async_copy").count();
    assert_eq!(count(&plain.plan), 0);
    count(&pipelined.plan)
}

#[test]
fn a_thread_reads_back_what_it_copied() {
    assert_eq!(check_iterations(SUM), STAGES as usize);
}

#[test]
fn an_iteration_refills_its_own_slot() {
    assert_eq!(check_iterations(ROWS), 2);
}

#[test]
fn indices_are_loaded_for_a_later_iteration() {
    assert_eq!(check_iterations(GATHERED), STAGES as usize);
}

/// As matrices, across their rows too, and as rows of elements in order and across memory.
#[test]
fn dots_read_tiles_of_slots() {
    for elem in ["f16", "f32"] {
        for right in ["tl::load(y + at)", "tl::trans(tl::load(y + at))"] {
            assert_ne!(check_iterations(&product(elem, right)), 0, "{elem} {right}");
        }
    }
}

fn check_text(source: &str, expected: Expect) {
    let plan = aligned(source, DisabledPasses::default()).plan;
    expected.assert_eq(&print(&plan.schedule.distributed.func, &|_| None));
}

/// A row is in registers when the next one is copied to where it was; partial results have a buffer for each parity.
#[test]
fn one_slot_is_refilled_behind_its_reads() {
    check_text(
        ROWS,
        expect![[r#"
        kernel rows(x: &[f32], out: &mut [f32], %0 n: i32) {
          %1 = arange 0 : i32[16384]
          %2 = constant 0 : i32
          %3 = constant 1 : i32
          %4 = trip_count %2..%0 step %3 : i64
          %5 = ring_start at 256 bytes 65536 slots 1 slot_bytes 65536 shape 17458297940984961555 widths [16] : slot<1>
          %6 = constant 0 : i64
          %7 = slot_at %5 index 0 at 256 bytes 65536 slots 1 slot_bytes 65536 shape 17458297940984961555 : slot<1>
          %8 = lt %6, %4 : bool
          async_group if %8 {
            %9 = induction %6 low %2 step %3 : i32
            %10 = cast %9 : i64
            %11 = constant 16384 : i64
            %12 = mul %10, %11 : i64
            async_copy x[%12 + %1] inside vector 4 through_l1 to %7[0] + 0
          }
          %13 = constant 0 : i64
          %14 = loop %13..%4 carry %5 : slot<1> { |%15, %16|
            async_wait pending 0 at 256 bytes 65536 slots 1 slot_bytes 65536 shape 17458297940984961555
            %17 = induction %15 low %2 step %3 : i32
            %18 = cast %17 : i64
            %19 = constant 16384 : i64
            %20 = mul %18, %19 : i64
            %21 = slot_load %16[0] + 0 vector 4 : f32[16384]
            warp_barrier
            %22 = constant 1 : i64
            %23 = add %15, %22 : i64
            %24 = lt %23, %4 : bool
            async_group if %24 {
              %25 = induction %23 low %2 step %3 : i32
              %26 = cast %25 : i64
              %27 = constant 16384 : i64
              %28 = mul %26, %27 : i64
              async_copy x[%28 + %1] inside vector 4 through_l1 to %16[0] + 0
            }
            %29 = reduce_batch exchange parity %15 : f32 {
              %30 = reduce %21 axes [0] : f32 { |%31, %32|
                %33 = maximum %31, %32 : f32
                yield %33
              }
              yield %30
            }
            %34 = splat %29 : f32[16384]
            %35 = sub %21, %34 : f32[16384]
            store %35, out[%20 + %1] inside vector 4
            yield %16
          }
        }
    "#]],
    );
}

#[test]
fn a_dot_issues_copies_among_its_instructions() {
    check_text(
        &product("f16", "tl::load(y + at)"),
        expect![[r#"
            kernel product(x: &[f16], y: &[f16], out: &mut [f32], %0 n: i32) {
              %1 = arange 0 : i32[32]
              %2 = arange 0 : i32[32]
              %3 = arange 0 : i32[32]
              %4 = arange 0 : i32[32]
              %5 = constant 0.0 : f32
              %6 = splat %5 : f32[32, 32]
              %7 = constant 0 : i32
              %8 = constant 1 : i32
              %9 = trip_count %7..%0 step %8 : i64
              %10 = ring_start at 0 bytes 12288 slots 3 slot_bytes 4096 widths [] tiles : slot<2>
              %11 = constant 0 : i64
              %12 = slot_at %10 index 0 at 0 bytes 12288 slots 3 slot_bytes 4096 : slot<2>
              %13 = lt %11, %9 : bool
              async_group if %13 {
                %14 = induction %11 low %7 step %8 : i32
                %15 = expand_dims %4 axis 1 : i32[32, 1]
                %16 = constant 32 : i32
                %17 = splat %16 : i32[32, 1]
                %18 = expand_dims %3 axis 0 : i32[1, 32]
                %19 = broadcast %18 : i32[32, 32]
                %20 = cast %14 : i64
                %21 = constant 1024 : i64
                %22 = mul %20, %21 : i64
                %23 = mul %15, %17 exact : i32[32, 1]
                %24 = broadcast %23 : i32[32, 32]
                %25 = add %24, %19 exact : i32[32, 32]
                %26 = slot_tile %12 offset 0 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                %27 = slot_tile %12 offset 2048 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                async_copy x[%22 + %25] inside vector 8 to %26
                async_copy y[%22 + %25] inside vector 8 to %27
              }
              %28 = constant 1 : i64
              %29 = slot_at %10 index 1 at 0 bytes 12288 slots 3 slot_bytes 4096 : slot<2>
              %30 = lt %28, %9 : bool
              async_group if %30 {
                %31 = induction %28 low %7 step %8 : i32
                %32 = expand_dims %4 axis 1 : i32[32, 1]
                %33 = constant 32 : i32
                %34 = splat %33 : i32[32, 1]
                %35 = expand_dims %3 axis 0 : i32[1, 32]
                %36 = broadcast %35 : i32[32, 32]
                %37 = cast %31 : i64
                %38 = constant 1024 : i64
                %39 = mul %37, %38 : i64
                %40 = mul %32, %34 exact : i32[32, 1]
                %41 = broadcast %40 : i32[32, 32]
                %42 = add %41, %36 exact : i32[32, 32]
                %43 = slot_tile %29 offset 0 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                %44 = slot_tile %29 offset 2048 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                async_copy x[%39 + %42] inside vector 8 to %43
                async_copy y[%39 + %42] inside vector 8 to %44
              }
              %45 = constant 0 : i64
              %46, %47 = loop %45..%9 carry %6, %10 : f32[32, 32], slot<2> { |%48, %49, %50|
                async_wait pending 1 at 0 bytes 12288 slots 3 slot_bytes 4096
                barrier
                %51 = slot_step %50 previous first %10 at 0 bytes 12288 slots 3 slot_bytes 4096 : slot<2>
                %52 = constant 2 : i64
                %53 = add %48, %52 : i64
                %54 = lt %53, %9 : bool
                %55 = async_group if %54 prepared : copies {
                  %56 = induction %53 low %7 step %8 : i32
                  %57 = expand_dims %4 axis 1 : i32[32, 1]
                  %58 = constant 32 : i32
                  %59 = splat %58 : i32[32, 1]
                  %60 = expand_dims %3 axis 0 : i32[1, 32]
                  %61 = broadcast %60 : i32[32, 32]
                  %62 = cast %56 : i64
                  %63 = constant 1024 : i64
                  %64 = mul %62, %63 : i64
                  %65 = mul %57, %59 exact : i32[32, 1]
                  %66 = broadcast %65 : i32[32, 32]
                  %67 = add %66, %61 exact : i32[32, 32]
                  %68 = slot_tile %51 offset 0 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                  %69 = slot_tile %51 offset 2048 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                  async_copy x[%64 + %67] inside vector 8 to %68
                  async_copy y[%64 + %67] inside vector 8 to %69
                }
                %70 = slot_tile %50 offset 0 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                %71 = slot_tile %50 offset 2048 strides [64, 2] bytes 2048 swizzle shift 7 mask 3 fast 1 : smem<f16[32, 32], stages 1>
                %72 = slot_step %50 next first %10 at 0 bytes 12288 slots 3 slot_bytes 4096 : slot<2>
                %73 = induction %48 low %7 step %8 : i32
                %74 = expand_dims %4 axis 1 : i32[32, 1]
                %75 = constant 32 : i32
                %76 = splat %75 : i32[32, 1]
                %77 = expand_dims %3 axis 0 : i32[1, 32]
                %78 = broadcast %77 : i32[32, 32]
                %79 = cast %73 : i64
                %80 = constant 1024 : i64
                %81 = mul %79, %80 : i64
                %82 = mul %74, %76 exact : i32[32, 1]
                %83 = broadcast %82 : i32[32, 32]
                %84 = add %83, %78 exact : i32[32, 32]
                %85 = dot %70, %71 add %49 interleave %55 : f32[32, 32]
                yield %85, %72
              }
              %86 = expand_dims %2 axis 1 : i32[32, 1]
              %87 = constant 32 : i32
              %88 = splat %87 : i32[32, 1]
              %89 = expand_dims %1 axis 0 : i32[1, 32]
              %90 = broadcast %89 : i32[32, 32]
              %91 = mul %86, %88 exact : i32[32, 1]
              %92 = broadcast %91 : i32[32, 32]
              %93 = add %92, %90 exact : i32[32, 32]
              store %46, out[%93] inside vector 2
            }
        "#]],
    );
}

/// Changes every operation of a function.
fn each(block: &mut Block, change: &mut dyn FnMut(&mut Kind)) {
    for op in &mut block.ops {
        change(&mut op.kind);
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| each(nested, change));
    }
}

/// What the simulator finds in the schedule of a kernel with an error.
fn fault(source: &str, change: &mut dyn FnMut(&mut Kind)) -> String {
    let plan = aligned(source, DisabledPasses::default()).plan;
    let mut func = plan.schedule.distributed.func.clone();
    each(&mut func.body, change);
    simulate(&func, &plan.laid_out, STAGES + 3).expect_err("an error that was planted")
}

#[test]
fn planted_errors_are_found() {
    let no_wait = |kind: &mut Kind| {
        if let Kind::AsyncWait(AsyncWait { pending, ring }) = kind {
            *pending = ring.slots;
        }
    };
    let same_slot = |kind: &mut Kind| {
        if let Kind::SlotStep(step) = kind {
            step.to = SlotNeighbor::Next;
        }
    };
    let late_copies = |kind: &mut Kind| {
        if let Kind::AsyncCopy(copy) = kind {
            copy.from.base = None;
        }
    };
    let faults = [
        ("no wait", fault(SUM, &mut { no_wait })),
        ("copies to the next slot", fault(SUM, &mut { same_slot })),
        ("copies of the first row", fault(SUM, &mut { late_copies })),
        ("a dot without a wait", fault(&product("f16", "tl::load(y + at)"), &mut { no_wait })),
    ];
    let text: String = faults.iter().map(|(what, fault)| format!("{what}: {fault}\n")).collect();
    expect![[r#"
        no wait: all warps: `%55 = slot_load %33[0] + 0 vector 4 mask %49 other %51` reads slot 0 where nothing has landed
        copies to the next slot: all warps: `%55 = slot_load %33[0] + 0 vector 4 mask %49 other %51` reads slot 2 where nothing has landed
        copies of the first row: out[0] is Float(-30.0), expected Float(1.0) (Early, seed 0)
        a dot without a wait: all warps: `%85 = dot %70, %71 add %49 interleave %55` reads slot 0 where nothing has landed
    "#]].assert_eq(&text);
}

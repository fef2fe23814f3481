//! File tests of layouts, and of passes for a GPU.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::testing::file_test::{
    PassTest, Request, changed, check_files, rewritten, rewritten_under_guards, text,
};
use tile_ir::transform::version_loops::version_loops;

mod schedule;

use lowering::driver::pipeline::loop_facts::versioned_region;
use lowering::gpu::layout::access::Alignment;
use lowering::gpu::layout::{Distributed, ThreadConfig, distribute};
use lowering::gpu::opt::batch_reductions::batch_reductions;
use lowering::gpu::opt::delay_fp8_upcast::delay_fp8_upcast;
use lowering::gpu::opt::elide_selects::elide_selects;
use lowering::gpu::opt::hoist_conversions::hoist_conversions;
use lowering::gpu::opt::hoist_loads::hoist_loads;
use lowering::gpu::opt::remat_narrow::remat_narrow;
use lowering::gpu::opt::remat_ranges::remat_ranges;
use lowering::gpu::opt::select_wgmma::select_wgmma;
use lowering::gpu::opt::thread_local_reductions::thread_local_reductions;
use lowering::gpu::opt::view_pointers::view_pointers;
use lowering::gpu::schedule::Schedule;
use lowering::gpu::schedule::cluster_wait::cluster_wait;
use lowering::gpu::schedule::membar::membar;
use lowering::gpu::schedule::pdl::pdl;
use lowering::gpu::schedule::plan::plan;
use lowering::gpu::schedule::position_before_waits::position_before_waits;
use lowering::gpu::schedule::reduce_batch::reduce_batch;
use lowering::gpu::schedule::stage_operands::stage_operands;

/// The function with layouts.
fn distributed(func: &Func, request: &Request) -> Distributed {
    let alignments = [("checked", Alignment::Checked), ("element", Alignment::Element)];
    let alignment = request.one_of("alignment", &alignments);
    let num_stages = request.number("stages");
    let (num_warps, num_ctas) = (Some(request.warps()), request.blocks());
    let threads = ThreadConfig { num_warps, num_ctas, num_stages, alignment };
    distribute(func, threads, &AxisInfoMap::analyze(func, &LaunchAssumptions::of(func)))
}

/// What a pass makes of a function with layouts.
fn optimized(func: &Func, request: &Request, pass: fn(&mut Distributed)) -> String {
    let mut distributed = distributed(func, request);
    let before = distributed.func.clone();
    pass(&mut distributed);
    changed(&before, &distributed.func)
}

fn layouts(func: &Func, request: &Request) -> String {
    let distributed = distributed(func, request);
    text(&distributed.func);
    ir::print(&distributed.func, &|op| Some(distributed.layouts.get(op.results.first()?)?.to_string()))
}

/// What passes of a schedule begin with, without async copies.
fn planned(func: &Func, request: &Request) -> Schedule {
    let assumptions = LaunchAssumptions::of(func);
    let planned = plan(distributed(func, request), &assumptions, false);
    planned.expect("it fits into shared memory")
}

/// What a pass makes of the schedule of a function.
fn scheduled(func: &Func, request: &Request, pass: fn(&mut Schedule)) -> String {
    let mut schedule = planned(func, request);
    let before = schedule.distributed.func.clone();
    pass(&mut schedule);
    changed(&before, &schedule.distributed.func)
}

/// What a pass makes of a function that has roles already, whose layouts the pass does not ask for.
fn rescheduled(func: &Func, request: &Request, pass: fn(&mut Schedule)) -> String {
    let distributed = Distributed {
        func: func.clone(),
        layouts: HashMap::new(),
        num_warps: request.warps(),
        num_ctas: 1,
        num_stages: None,
        sector_loads: HashSet::new(),
        smem_only: HashMap::new(),
        invariant_operands: HashMap::new(),
    };
    let mut schedule = Schedule::new(distributed, AxisInfoMap::analyze(func, &LaunchAssumptions::of(func)));
    pass(&mut schedule);
    changed(func, &schedule.distributed.func)
}

/// The schedule with addresses, which are comments.
fn addresses(func: &Func, request: &Request) -> String {
    let schedule = planned(func, request);
    let shown = schedule.to_string();
    let again = ir::parse(&shown).expect("a schedule parses");
    assert_eq!(text(&again), text(&schedule.distributed.func));
    shown
}

const PASSES: &[PassTest] = &[
    ("layout", layouts),
    ("batch_reductions", |func, request| optimized(func, request, batch_reductions)),
    ("cluster_wait", |func, request| scheduled(func, request, cluster_wait)),
    ("delay_fp8_upcast", |func, _| {
        rewritten(func, |func| delay_fp8_upcast(func, &LaunchAssumptions::of(func)))
    }),
    ("elide_selects", |func, request| optimized(func, request, elide_selects)),
    ("hoist_loads", |func, request| optimized(func, request, hoist_loads)),
    ("hoist_conversions", |func, request| optimized(func, request, hoist_conversions)),
    ("membar", |func, request| scheduled(func, request, membar)),
    ("pdl", |func, request| scheduled(func, request, pdl)),
    ("position_before_waits", |func, request| rescheduled(func, request, position_before_waits)),
    ("reduce_batch", |func, request| scheduled(func, request, reduce_batch)),
    ("view_pointers", |func, _| rewritten_under_guards(func, view_pointers)),
    ("version_loops", |func, _| {
        let region = versioned_region(func, &LaunchAssumptions::of(func));
        rewritten(func, |func| region.iter().for_each(|region| drop(version_loops(func, region))))
    }),
    ("remat_narrow", |func, request| optimized(func, request, remat_narrow)),
    ("remat_ranges", |func, request| optimized(func, request, remat_ranges)),
    ("select_tma_store", |func, request| {
        rewritten_under_guards(func, |func| select_wgmma(func, request.warps(), true))
    }),
    ("select_wgmma", |func, request| {
        rewritten_under_guards(func, |func| select_wgmma(func, request.warps(), false))
    }),
    ("smem_alloc", addresses),
    ("stage_operands", |func, request| scheduled(func, request, stage_operands)),
    ("thread_local_reductions", |func, request| optimized(func, request, thread_local_reductions)),
];

#[test]
fn passes_do_what_their_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let has_row = |name: &str| PASSES.iter().any(|(own, _)| *own == name);
    let scheduled: Vec<PassTest> = schedule::tests().filter(|(name, _)| !has_row(name)).collect();
    check_files(&root, &[PASSES, &scheduled].concat());
    schedule::tests().for_each(|(pass, _)| schedule::check_laws(&root, pass));
}

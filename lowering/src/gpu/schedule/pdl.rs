//! Programmatic dependent launch (PDL) of a kernel.
//!
//! On GPUs that have it (`griddepcontrol`, capability 9.0) a kernel may be launched while the one before it still
//! runs. Its blocks start when the last ones of that kernel end, compute addresses, and wait before they access any
//! memory until the writes of that kernel are visible. Blocks do not let the next kernel start before they end: on an
//! H200 that takes a multiprocessor 160 ns a block, one after the other (docs/decisions/0024). Older GPUs get the
//! same code without the instruction (`gpu::emit::pdl`).
//!
//! A kernel that did not wait could end before the one before it, and the next kernel, which waits for one kernel
//! only, would begin too early. So every kernel waits, one without memory accesses at its end.
//!
//! Memory that a kernel reads is written while its blocks wait. So none of its loads may be invariant
//! (`ld.global.nc`), and no pointer `noalias`: either would let a load move before the wait. Where loads that may
//! move are worth much, a kernel does without PDL ([`uses_pdl`]): a kernel with dots in registers or with large tiles
//! runs long anyway, and one with many loads of single elements, or loads after stores, waits for them. Asynchronous
//! copies never move, and TMA loads come after all that a kernel initializes for them: a third of the time of a small
//! matmul.
//!
//! The wait stands before every operation that may access memory outside of the block, and at the end where there is none. Legal where:
//! 1. the kernel does not lose more by loads that may not move ([`uses_pdl`]).

use std::collections::HashSet;

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::{Effect, Kind, PdlWait};

use super::Schedule;
use super::software_pipeline::plan::CopyPlan;
use crate::gpu::layout::Distributed;
use crate::gpu::opt::hoist_loads::registers;

/// Warps of a block, and registers that a thread loads, up to which a kernel counts as a short one.
const MAX_WARPS: u32 = 8;
const MAX_LOADED_REGISTERS: u32 = 48;
/// The latter of kernels without reductions: their loads may move to where they leave other values registers.
const MAX_UNREDUCED_REGISTERS: u32 = 16;
/// Bytes of a wide access of a thread, and registers that may be loaded by narrower ones.
const WIDE_ACCESS_BYTES: u32 = 8;
const MAX_NARROW_REGISTERS: u32 = 4;

/// Whether a kernel uses PDL. One with TMA loads does, unless its consumers load in loops: loads that are not
/// invariant take registers from accumulators.
pub fn uses_pdl(distributed: &Distributed, uses_tma: bool) -> bool {
    let func = &distributed.func;
    // Loads of a loop come after the stores of earlier iterations.
    let mut in_loops: HashSet<Value> = HashSet::new();
    func.body.walk(&mut |op| {
        if matches!(op.kind, Kind::For(_) | Kind::While(_)) {
            let blocks = op.kind.operation().blocks();
            blocks.into_iter().for_each(|block| block.walk(&mut |op| in_loops.extend(&op.results)));
        }
    });
    if uses_tma {
        let mut loads = false;
        func.body.walk(&mut |op| {
            loads |= matches!(op.kind, Kind::Load(_)) && in_loops.contains(&op.results[0]);
        });
        return !loads;
    }
    let mut is_short = distributed.warps_per_cta() <= MAX_WARPS;
    let (mut stored, mut reduces, mut in_vectors, mut loaded) = (false, false, true, 0);
    let prefetched = prefetched_loads(distributed);
    func.body.walk(&mut |op| {
        is_short &= !matches!(op.kind, Kind::Dot(_) | Kind::WarpGroupDot(_));
        if let Kind::Load(load) = &op.kind
            && !prefetched.contains(&op.results[0])
        {
            let ty = func.ty(op.results[0]);
            let (registers_loaded, is_wide) = (
                registers(distributed, op, load),
                load.access.vector * ty.dtype.bytes() >= WIDE_ACCESS_BYTES,
            );
            let is_of_row = is_wide && ty.shape.rank() == 1;
            let once =
                !in_loops.contains(&op.results[0]) && (is_wide || registers_loaded <= MAX_NARROW_REGISTERS);
            in_vectors &= !stored && (ty.is_scalar() || is_of_row || once);
            loaded += registers_loaded;
        }
        stored |= matches!(op.kind, Kind::Store(_));
        reduces |= matches!(op.kind, Kind::Reduce(_));
    });
    is_short && in_vectors && loaded <= if reduces { MAX_LOADED_REGISTERS } else { MAX_UNREDUCED_REGISTERS }
}

/// Asynchronous copies, which nothing moves anyway.
fn prefetched_loads(distributed: &Distributed) -> HashSet<Value> {
    let mut prefetched = HashSet::new();
    distributed.func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind
            && let Some(plan) = CopyPlan::new(distributed, body)
        {
            prefetched.extend(plan.contents.thread_values());
        }
    });
    prefetched
}

/// The pass: see the module. A role of warps and the prologue of a software pipeline have their wait already.
pub fn pdl(schedule: &mut Schedule) {
    if !schedule.setup.uses_pdl {
        return;
    }
    let func = &mut schedule.distributed.func;
    let ops = &mut func.body.ops;
    let waits = |op: &Op| matches!(op.kind, Kind::PdlWait(_));
    let first = ops.iter().position(|op| waits(op) || has_memory_effect(op)).unwrap_or(ops.len());
    if !ops.get(first).is_some_and(waits) {
        let loc = ops.get(first).map_or(func.loc, |op| op.loc);
        ops.insert(first, Op { kind: PdlWait.into(), results: vec![], loc });
    }
}

/// Whether an operation may access memory outside of the block, or has another effect than its results.
pub fn has_memory_effect(op: &Op) -> bool {
    // Barriers are in shared memory.
    if matches!(op.kind, Kind::SmemAlloc(_) | Kind::MbarAlloc(_) | Kind::MbarInit(_) | Kind::PdlWait(_)) {
        return false;
    }
    let operation = op.kind.operation();
    operation.access().is_some()
        || operation.effect() != Effect::Pure
        || matches!(op.kind, Kind::InlinePtx(_))
        || operation.blocks().into_iter().any(|block: &Block| block.ops.iter().any(has_memory_effect))
}

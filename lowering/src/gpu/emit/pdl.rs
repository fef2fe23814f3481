//! A kernel among those before and behind it in a stream.
//!
//! On GPUs that have it (`griddepcontrol`, capability 9.0) a kernel may be launched while the one before it still runs:
//! its blocks start when the last ones of that kernel end, compute where their elements lie, and wait before they touch
//! any memory until what it wrote is to be seen. Blocks do not say that the next kernel may start before they end: on an
//! H200 that takes a multiprocessor 160 ns a block, one after the other (docs/performance.md). Older GPUs get the same
//! code without the instruction ([`ALONE`]).
//!
//! A kernel that did not wait could end before the one before it, and the kernel behind, which waits for one kernel
//! only, would begin too early: so every kernel waits, one that touches nothing at its end.
//!
//! Memory that a kernel reads is written while its blocks wait. So no load of it may say that nothing writes what it reads
//! (`ld.global.nc`), nor a pointer that nobody else writes through it: either would let a load move before the wait. But
//! where loads that may move are worth much they may: a kernel that multiplies in registers or has large tiles runs long anyway, and one
//! whose loads are of single elements and many, or stand behind stores, waits for them. Those have no part in this ([`follows`]). Copies that
//! a loop starts ahead move in neither case, and copies of blocks, by a thread of their own, come after all that a kernel sets up
//! for them: a third of the time of a small product.

use std::collections::HashSet;

use crate::gpu::emit::async_copy::CopyPlan;
use crate::gpu::emit::emitter;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::layout::Distributed;
use crate::gpu::opt::hoist_loads::registers;
use crate::ir::{Block, Op, Value};
use crate::ops::{Effect, Kind};

/// What the statement of this module begins with, in a line of its own.
pub const ALONE: &str = "griddepcontrol.";

/// The first capability that has it.
pub const CAPABILITY: u32 = 90;

/// Warps of a block, and registers in which a thread loads, up to which a kernel counts as a short one.
const WARPS: u32 = 8;
const LOADED: u32 = 48;
/// The latter of kernels that reduce nothing: their loads may stand where they leave other values registers.
const LOADED_AT_ONCE: u32 = 16;
/// Bytes of one access of a thread, and registers that may be loaded by less.
const ACCESS: u32 = 8;
const FEW: u32 = 4;

/// Whether an operation may touch memory outside of the block, or has another effect than its results.
fn touches_memory(op: &Op) -> bool {
    let operation = op.kind.operation();
    operation.place().is_some()
        || operation.effect() != Effect::Pure
        || emitter(&op.kind).is_opaque()
        || operation.blocks().into_iter().any(|block: &Block| block.ops.iter().any(touches_memory))
}

/// Whether a kernel may be launched while the one before it still runs. One with a thread that copies blocks may, unless its other threads
/// load in loops: what such loads may not say takes registers from sums.
pub(super) fn follows(distributed: &Distributed, copies_blocks: bool) -> bool {
    let func = &distributed.func;
    // What a loop loads stands behind what it stored before.
    let mut in_loops: HashSet<Value> = HashSet::new();
    func.body.walk(&mut |op| {
        if matches!(op.kind, Kind::For(_) | Kind::While(_)) {
            let blocks = op.kind.operation().blocks();
            blocks.into_iter().for_each(|block| block.walk(&mut |op| in_loops.extend(&op.results)));
        }
    });
    if copies_blocks {
        let mut loads = false;
        func.body.walk(&mut |op| {
            loads |= matches!(op.kind, Kind::Load(_)) && in_loops.contains(&op.results[0]);
        });
        return !loads;
    }
    let mut short = distributed.warps_per_cta() <= WARPS;
    let (mut stored, mut reduces, mut in_vectors, mut loaded) = (false, false, true, 0);
    let copied = prefetched_loads(distributed);
    func.body.walk(&mut |op| {
        short &= !matches!(op.kind, Kind::Dot(_) | Kind::WarpGroupDot(_));
        if let Kind::Load(load) = &op.kind
            && !copied.contains(&op.results[0])
        {
            let ty = func.ty(op.results[0]);
            let (own, is_wide) =
                (registers(distributed, op, load), load.place.vector * ty.dtype.bytes() >= ACCESS);
            let is_of_row = is_wide && ty.shape.rank() == 1;
            let once = !in_loops.contains(&op.results[0]) && (is_wide || own <= FEW);
            in_vectors &= !stored && (ty.is_scalar() || is_of_row || once);
            loaded += own;
        }
        stored |= matches!(op.kind, Kind::Store(_));
        reduces |= matches!(op.kind, Kind::Reduce(_));
    });
    short && in_vectors && loaded <= if reduces { LOADED } else { LOADED_AT_ONCE }
}

/// Loads that are copies, which nothing moves anyway.
fn prefetched_loads(distributed: &Distributed) -> HashSet<Value> {
    let mut copied = HashSet::new();
    distributed.func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind
            && let Some(plan) = CopyPlan::new(distributed, body)
        {
            copied.extend(plan.thread_values());
        }
    });
    copied
}

impl Gpu<'_> {
    /// Stands before an operation of the outermost block.
    pub(super) fn await_predecessor_before(&mut self, b: &mut Builder, op: &Op) {
        if self.pdl_wait_pending && touches_memory(op) {
            self.await_predecessor(b);
        }
    }

    /// Waits until the kernel before this one has ended, unless that was done.
    pub(super) fn await_predecessor(&mut self, b: &mut Builder) {
        if std::mem::take(&mut self.pdl_wait_pending) {
            statement(b, &format!("{ALONE}wait;"), "~{memory}", &[], &[]);
        }
    }
}

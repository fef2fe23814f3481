//! How many programs a multiprocessor has registers for, by what their dots take.

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::{DotUnit, Kind, OperandA};

use crate::gpu::layout::Distributed;
use crate::gpu::schedule::smem_limits::DEFAULT_TILE_STAGES;
use crate::gpu::schedule::tma_pipeline::{TmaPipeline, blocks_per_sm, producer_warps};

/// Registers of a multiprocessor, and those of a thread beside what dots take.
const SM_REGISTERS: u32 = 64 * 1024;
const OTHER_REGISTERS: u32 = 48;

/// For how many programs whose loop has these dots, and which have more warps for something else; one program always fits.
pub fn programs(distributed: &Distributed, body: &Block, more_warps: u32) -> u32 {
    let words = |value: Value| {
        let bytes = distributed.func.ty(value).dtype.bytes();
        distributed.layouts[&value].register_count() as u32 * bytes / 4
    };
    let of_dot = |op: &Op| {
        let held = if let Kind::Dot(dot) = &op.kind {
            (dot.unit == DotUnit::WgmmaRs).then_some(dot.a)
        } else if let Kind::WarpGroupDot(dot) = &op.kind {
            if let OperandA::Regs(a) = dot.a { Some(a) } else { None }
        } else {
            return 0;
        };
        words(op.results[0]) + held.map_or(0, words)
    };
    let registers: u32 = body.ops.iter().map(of_dot).sum::<u32>() + OTHER_REGISTERS;
    (SM_REGISTERS / (registers * 32 * (distributed.warps_per_cta() + more_warps))).max(1)
}

/// Whether threads load tiles in a loop with dots. Beside TMA they wait for these in each iteration; copies of threads would take them along.
pub fn loads_beside_dots(distributed: &Distributed) -> bool {
    let func = &distributed.func;
    let is_load = |op: &Op| matches!(&op.kind, Kind::Load(load) if !func.ty(load.access.offset).is_scalar());
    let is_dot = |op: &Op| matches!(op.kind, Kind::WarpGroupDot(_));
    func.body.ops.iter().any(|op| {
        let Kind::For(body) = &op.kind else { return false };
        body.body.ops.iter().any(is_dot) && body.body.ops.iter().any(is_load)
    })
}

/// Whether a multiprocessor has about as many programs with TMA as with copies by the warps that compute: producer warps get as many registers
/// as others when a block starts, and what threads exchange or TMA stores has shared memory beside the tiles of the next program. Where a
/// program of two is missing, it would have hidden more latency than producers do; not where the kernel asks for views and has several
/// warpgroups of consumers, which hide each other's latency and get the registers of producers.
pub fn leaves_room_for_producers(distributed: &Distributed, pipeline: &TmaPipeline, smem_bytes: u32) -> bool {
    let producers = producer_warps(distributed.warps_per_cta());
    let several_warpgroups = producers > 1;
    if several_warpgroups && distributed.func.views.iter().all(|view| view.computed.is_none()) {
        return true;
    }
    // Copies of several warpgroups need no deeper ring.
    let stages = if several_warpgroups { DEFAULT_TILE_STAGES } else { u32::MAX };
    let fits = |body: &Block| {
        let [with, without] = [(producers, smem_bytes), (0, pipeline.tile_bytes(stages))]
            .map(|(warps, bytes)| programs(distributed, body, warps).min(blocks_per_sm(bytes).max(1)));
        with > without / 2
    };
    distributed.func.body.ops.iter().all(|op| !matches!(&op.kind, Kind::For(body) if !fits(&body.body)))
}

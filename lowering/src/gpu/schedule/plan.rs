//! What is planned of a kernel before its passes run: what goes to shared memory, and where it is there.

use super::pdl::uses_pdl;
use super::smem_alloc::{SmemAllocation, SmemOverflow, StagedCopies};
use super::tma_pipeline::TmaPipeline;
use super::{Schedule, Setup, invariant_operand, smem_operand};
use crate::gpu::layout::Distributed;
use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};

/// Returns the schedule that passes begin with, or what does not fit into shared memory. Loads of loops get ring buffers if
/// `pipelines_loops`.
pub fn plan(
    mut distributed: Distributed,
    assumptions: &LaunchAssumptions,
    pipelines_loops: bool,
) -> Result<Schedule, SmemOverflow> {
    let mut pipeline = TmaPipeline::new(&distributed);
    let pipelines_loops = pipelines_loops && pipeline.is_none();
    if pipelines_loops {
        distributed.smem_only = smem_operand::find(&distributed);
    }
    if pipeline.is_none() {
        distributed.invariant_operands = invariant_operand::find(&distributed);
    }
    let without_tma = || if pipelines_loops { StagedCopies::Rings } else { StagedCopies::Nothing };
    let copies = pipeline.as_mut().map_or_else(without_tma, StagedCopies::Tma);
    let mut allocated = SmemAllocation::new(&distributed, copies);
    if allocated.is_err() && !distributed.invariant_operands.is_empty() {
        distributed.invariant_operands.clear();
        allocated = SmemAllocation::new(&distributed, without_tma());
    }
    let mut smem = allocated?;
    while smem_operand::drop_without_ring(&mut distributed, &smem.rings) {
        smem = SmemAllocation::new(&distributed, StagedCopies::Rings)?;
    }
    let axes = AxisInfoMap::analyze(&distributed.func, assumptions);
    let uses_pdl = uses_pdl(&distributed, pipeline.is_some());
    let mut schedule = Schedule::new(distributed, axes);
    schedule.setup = Setup { uses_pdl, ..Setup::default() };
    schedule.rings = std::mem::take(&mut smem.rings);
    (schedule.pipeline, schedule.smem) = (pipeline, smem);
    Ok(schedule)
}

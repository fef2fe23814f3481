//! The specialization for many programs whose loops read again what an earlier loop has read.
//!
//! Where programs are few, async copies are all that hides latency in the first of such loops. Where they are many,
//! other programs do, and what the copies' ring buffers would take is left to the L1 cache, which serves the later
//! loops. The launcher knows how many there are: one of the guards is their least number.

use tile_ir::analysis::reread::has_rereads;
use tile_ir::ir::Func;
use tile_ir::ir::guard::{Guard, Symbol, SymbolicSum};

use super::{KernelRequests, aligned, register_limit};
use crate::gpu::emit::SmemOverflow;
use crate::gpu::specialization::{Gpus, Specialization};

/// So many programs that several are resident wherever a GPU has room for one.
const MIN_PROGRAMS: i64 = 1024;

/// `None` where no loop reads again, or where the user chose stages or registers. There is none for unaligned rows:
/// their pieces are not prefetched, and more registers alone made them slower.
pub(super) fn specialization(
    func: &Func,
    requests: KernelRequests,
    gpus: Gpus,
) -> Result<Option<Specialization>, SmemOverflow> {
    let chosen = requests.num_stages.is_some() || requests.maxnreg.is_some();
    if chosen || gpus != Gpus::All || !has_rereads(func) {
        return Ok(None);
    }
    let (mut plan, mut guards) = aligned(func.clone(), KernelRequests { num_stages: Some(1), ..requests })?;
    // Without a limit ptxas saves registers by making loads late.
    plan.limit = Some(register_limit::block_limit(register_limit::MAX_REGISTERS, plan.threads()));
    guards.push(Guard::AtMost {
        low: SymbolicSum { terms: vec![(MIN_PROGRAMS, vec![])] },
        high: SymbolicSum { terms: vec![(1, [0, 1, 2].map(Symbol::Grid).to_vec())] },
    });
    Ok(Some(Specialization { name: "many", plan, guards, gpus }))
}

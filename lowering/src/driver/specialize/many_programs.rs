//! The body for many programs whose loops read again what an earlier loop has read.
//!
//! Where programs are few, copies ahead are all that hides latency in the first of such loops. Where they are many, other programs do,
//! and what the ring of copies would take is left to the first-level cache, which serves the later loops. How many there are the launcher
//! knows: one of the facts is their least number.

use super::{KernelRequests, aligned, register_limit};
use crate::analysis::reread::has_rereads;
use crate::gpu::emit::SmemOverflow;
use crate::gpu::specialization::{Gpus, Specialization};
use crate::ir::Func;
use crate::ir::guard::{Guard, Symbol, SymbolicSum};

/// Programs that are many: several for each place on any GPU's multiprocessors.
const MANY: i64 = 1024;

/// This body; `None` where no loop reads again, or where the user says how to copy or how many registers there are. Of rows that begin anywhere
/// there is none: their pieces are not copied ahead, and more registers alone made them slower.
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
    plan.limit = Some(register_limit::of_block(register_limit::MAX_REGISTERS, plan.threads()));
    guards.push(Guard::AtMost {
        low: SymbolicSum { terms: vec![(MANY, vec![])] },
        high: SymbolicSum { terms: vec![(1, [0, 1, 2].map(Symbol::Grid).to_vec())] },
    });
    Ok(Some(Specialization { name: "many", plan, guards, gpus }))
}

//! The laws of reductions that exchange partial results: which buffer they use, and at which barrier they wait.

use std::collections::BTreeSet;

use super::ScheduleVerifier;
use crate::gpu::schedule::reduce_batch::parity_of;
use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::{InitVisibility, PartialExchange};
use tile_ir::ops::{Kind, ReduceBatch};

/// The walk over a function in the order in which threads run it.
pub struct ExchangeFlow<'v, 'f> {
    verifier: &'v ScheduleVerifier<'f>,
    /// Barriers that this block has initialized, those of them ahead of its arrival at the barrier of the cluster, and those that all
    /// blocks see.
    initialized: BTreeSet<Value>,
    arrived: BTreeSet<Value>,
    visible: BTreeSet<Value>,
}

impl<'v, 'f> ExchangeFlow<'v, 'f> {
    pub fn new(verifier: &'v ScheduleVerifier<'f>) -> ExchangeFlow<'v, 'f> {
        let (initialized, arrived, visible) = Default::default();
        ExchangeFlow { verifier, initialized, arrived, visible }
    }

    /// Checks a block; `parity` is the loop whose body it is, if that counts its iterations.
    pub fn block(&mut self, block: &'f Block, parity: Option<Value>) -> Result<(), String> {
        for op in &block.ops {
            if let Kind::ReduceBatch(batch) = &op.kind {
                self.batch(op, batch, parity)?;
                continue;
            }
            self.see(op);
            if !op.kind.operation().isolated() {
                let parity = parity_of(op);
                op.kind.operation().blocks().into_iter().try_for_each(|block| self.block(block, parity))?;
            }
        }
        Ok(())
    }

    /// What an operation changes of who sees which barriers.
    fn see(&mut self, op: &Op) {
        if let Kind::MbarInit(init) = &op.kind {
            let of_block = init.visible == InitVisibility::ClusterWait;
            let seen = if of_block { &mut self.initialized } else { &mut self.visible };
            seen.extend(&init.barriers);
        }
        if let Kind::ClusterArrive(_) = &op.kind {
            self.arrived.append(&mut self.initialized);
        }
        if let Kind::ClusterWait(_) = &op.kind {
            self.visible.append(&mut self.arrived);
        }
    }

    fn batch(&self, op: &Op, batch: &ReduceBatch, body_of: Option<Value>) -> Result<(), String> {
        for &PartialExchange { parity, barrier } in &batch.exchanges {
            if parity.is_some() && parity != body_of {
                return self
                    .verifier
                    .fault(op, "its buffers alternate by a loop whose body it does not stand in");
            }
            if let Some(barrier) = barrier.filter(|barrier| !self.visible.contains(barrier)) {
                let name = self.verifier.name(barrier);
                return self
                    .verifier
                    .fault(op, format!("waits at {name}, which not all blocks have initialized"));
            }
        }
        Ok(())
    }
}

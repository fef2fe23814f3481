//! Common subexpressions: what is emitted once and serves many registers.

use std::collections::HashMap;

use crate::gpu::emit::indices::IndexJoin;
use crate::gpu::emit::memory::CachePolicies;
use crate::gpu::emit::{GpuPlan, packed_cast};
use crate::gpu::layout::Layout;
use crate::mlir::builder::{Builder, Val};

/// The common subexpressions of a region.
#[derive(Default)]
pub(super) struct CseScope {
    /// This thread's coordinates, by layout and axis.
    pub threads: HashMap<(Layout, usize), Val>,
    pub indices: HashMap<(IndexJoin, usize, usize), Val>,
    pub pointers: HashMap<(usize, usize), Val>,
}

/// Values that were emitted once and serve many registers: of the whole kernel, and of each open region.
pub(super) struct CommonValues {
    pub policies: CachePolicies,
    /// `2^16`, opaque to ptxas: multiplying by it moves the low half of a word up.
    pub bf16_multiplier: Option<Val>,
    /// One table for each open region: values emitted inside a branch do not dominate the code outside it.
    scopes: Vec<CseScope>,
}

impl CommonValues {
    /// Emits those of the whole kernel, which has this slice's length among its arguments.
    pub fn of_kernel(plan: &GpuPlan, b: &mut Builder, length: Option<Val>) -> CommonValues {
        let distributed = &plan.schedule.distributed;
        let policies = CachePolicies::of(&distributed.func, b);
        let multiplied = length.filter(|_| packed_cast::widens_many(distributed));
        let bf16_multiplier = multiplied.map(|length| packed_cast::bf16_multiplier(b, length));
        CommonValues { policies, bf16_multiplier, scopes: vec![CseScope::default()] }
    }

    /// What a table of an open region has.
    pub fn find(&self, known: impl Fn(&CseScope) -> Option<&Val>) -> Option<Val> {
        self.scopes.iter().rev().find_map(known).copied()
    }

    /// The table of the innermost region.
    pub fn innermost(&mut self) -> &mut CseScope {
        self.scopes.last_mut().expect("the outermost region stays open")
    }

    pub fn open_region(&mut self) {
        self.scopes.push(CseScope::default());
    }

    pub fn close_region(&mut self) {
        self.scopes.pop();
    }

    /// Begins with nothing known; returns what was, for [`CommonValues::restore`].
    pub fn forget(&mut self) -> Vec<CseScope> {
        std::mem::replace(&mut self.scopes, vec![CseScope::default()])
    }

    pub fn restore(&mut self, known: Vec<CseScope>) {
        self.scopes = known;
    }
}

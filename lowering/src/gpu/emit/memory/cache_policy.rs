//! The eviction policies that loads, stores and copies name.

use tile_ir::ir::Func;
use tile_ir::ops::EvictionPolicy;

use crate::mlir::Asm;
use crate::mlir::builder::{Builder, Val};
use crate::mlir::types::Ty;

/// The policies of a kernel's accesses, in registers.
pub(in crate::gpu::emit) struct CachePolicies {
    /// Of wide loads: their lines outlive the written ones, which are then evicted in the order of the stores. Worth 2
    /// to 4 % of a copy's bandwidth on an H200 (docs/decisions/0001).
    pub evict_last: Val,
    /// `None` where no access asks for it.
    pub evict_first: Option<Val>,
}

impl CachePolicies {
    pub fn of(func: &Func, b: &mut Builder) -> CachePolicies {
        let evict_last = policy(b, "evict_last");
        let mut evicts_first = false;
        func.body.walk(&mut |op| {
            evicts_first |=
                op.kind.operation().cache().is_some_and(|cache| cache.eviction == EvictionPolicy::First);
        });
        CachePolicies { evict_last, evict_first: evicts_first.then(|| policy(b, "evict_first")) }
    }
}

fn policy(b: &mut Builder, priority: &str) -> Val {
    let text = format!("createpolicy.fractional.L2::{priority}.b64 $0;");
    b.asm(&text, "=l", &[], &[Ty::I64], Asm::Pure)[0]
}

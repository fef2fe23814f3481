//! Asynchronous copies as PTX: a `cp.async` for each chunk of a load, with its predicate, its cache operator, and zeros for what is
//! masked.

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{EvictionPolicy, Load};

use crate::gpu::emit::memory::VectorWords;
use crate::gpu::emit::smem_operand;
use crate::gpu::emit::smem_operand::{OperandStage, TileAddresses};
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// Where a thread finds the elements of a load: an address in shared memory and a byte offset.
#[derive(Clone, Copy)]
pub(super) struct BufferSlot {
    pub base: Val,
    pub offset: u32,
}

/// The cache operator of copies that the first-level cache serves: the only one of fewer than 16 bytes.
const THROUGH_L1: &str = "ca";

/// The cache operator of copies that are read once: past the first-level cache where there is such an instruction.
fn streaming_operator(width: u32) -> &'static str {
    if width == 16 { "cg" } else { THROUGH_L1 }
}

/// One `cp.async`, not yet issued.
pub(super) struct AsyncCopy {
    text: String,
    constraints: String,
    operands: Vec<Val>,
    /// `None` always issues.
    predicate: Option<Val>,
}

impl AsyncCopy {
    pub(super) fn issue(&self, b: &mut Builder) {
        let AsyncCopy { text, constraints, operands, predicate } = self;
        match predicate {
            None => statement(b, text, &format!("{constraints},~{{memory}}"), operands, &[]),
            Some(predicate) => {
                let text = format!("@${} {text}", operands.len());
                let operands: Vec<Val> = operands.iter().chain([predicate]).copied().collect();
                statement(b, &text, &format!("{constraints},b,~{{memory}}"), &operands, &[])
            }
        };
    }

    pub(super) fn and_predicate(&mut self, b: &mut Builder, predicate: Val) {
        self.predicate = b.both(self.predicate, Some(predicate));
    }
}

impl Gpu<'_> {
    /// The copies of one load.
    pub(super) fn thread_copies(&mut self, b: &mut Builder, load: &Load, to: BufferSlot) -> Vec<AsyncCopy> {
        let pitch = self.pitch(width(self.func, load));
        let operator =
            if self.is_reused(load) { THROUGH_L1 } else { streaming_operator(width(self.func, load)) };
        self.chunk_copies(b, load, operator, |_, chunk| (to.base, to.offset + chunk as u32 * pitch))
    }

    /// The copies of a tile: each thread copies the elements that the layout of the load gives it.
    pub(super) fn tile_copies(
        &mut self,
        b: &mut Builder,
        op: &Op,
        load: &Load,
        to: &OperandStage,
    ) -> Vec<AsyncCopy> {
        let layout = self.layout(op.results[0]);
        let offset = to.tile.offset_of(b, |b, axis| self.thread_coord(b, layout, axis));
        let first = b.add(to.address, offset);
        let mut addresses = TileAddresses::new(to.tile.clone(), first);
        let load = smem_operand::copy_load(&self.plan.schedule.distributed, op, load);
        let vector = load.access.vector as usize;
        let mut copies =
            self.chunk_copies(b, &load, streaming_operator(width(self.func, &load)), |b, chunk| {
                addresses.at(b, layout.register(chunk * vector))
            });
        if let Some(writer) = self.writer(b, Some(layout)) {
            copies.iter_mut().for_each(|copy| copy.and_predicate(b, writer));
        }
        copies
    }

    /// Whether a multiprocessor copies the same elements several times: each of some warps does, or every program. The second-level
    /// cache would be asked for few lines by all of them, at a fraction of its bandwidth.
    fn is_reused(&self, load: &Load) -> bool {
        let access = &load.access;
        let varies = |value: Value| self.plan.varying.contains(&value);
        let varies = varies(access.offset) || access.base.is_some_and(varies);
        !varies || self.layout(access.offset).replicated_warps() > 0
    }

    /// The copies of a load, to an address and a byte offset for each chunk.
    fn chunk_copies(
        &mut self,
        b: &mut Builder,
        load: &Load,
        cache_operator: &str,
        mut to: impl FnMut(&mut Builder, usize) -> (Val, u32),
    ) -> Vec<AsyncCopy> {
        let dtype = self.func.slice(load.access.param).0;
        let addresses = self.addresses(b, &load.access, dtype);
        let width = width(self.func, load);
        let policy = match load.cache.eviction {
            EvictionPolicy::First => self.evict_first_policy,
            EvictionPolicy::Normal | EvictionPolicy::Last => Some(self.evict_last_policy),
        };
        let mut copies = vec![];
        for (i, (&pointer, &mask)) in addresses.pointers.iter().zip(&addresses.masks).enumerate() {
            let (base, start) = to(b, i);
            let mut operands = vec![base, pointer];
            let mut constraints = vec!["r", "l"];
            // Masked elements are filled with zeros.
            let mut size = String::new();
            if let Some(mask) = mask {
                let (all, none) = (b.int(Ty::I32, i64::from(width)), b.int(Ty::I32, 0));
                operands.push(b.select(mask, all, none));
                constraints.push("r");
                size = ", $2".into();
            }
            let mut hint = String::new();
            if let Some(policy) = policy {
                hint = format!(", ${}", operands.len());
                operands.push(policy);
                constraints.push("l");
            }
            let cached = if policy.is_some() { ".L2::cache_hint" } else { "" };
            let text = format!(
                "cp.async.{cache_operator}.shared.global{cached} [$0 + {start}], [$1], {width}{size}{hint};"
            );
            copies.push(AsyncCopy { text, constraints: constraints.join(","), operands, predicate: None });
        }
        copies
    }

    /// The words of a prefetched load, one list for each vector; masked elements are `others`.
    pub(super) fn load_prefetched(
        &mut self,
        b: &mut Builder,
        load: &Load,
        from: BufferSlot,
        others: impl Fn(&mut Builder, usize) -> Option<Vec<Val>>,
    ) -> Vec<Vec<Val>> {
        let width = width(self.func, load);
        let vector = load.access.vector as usize;
        let masks = load.access.mask.map(|mask| self.registers(mask));
        let count = self.registers(load.access.offset).len() / vector;
        (0..count)
            .map(|i| {
                let start = from.offset + i as u32 * self.pitch(width);
                let words = VectorWords::of(width).load_shared(b, from.base, start);
                let Some((masks, others)) = masks.as_ref().zip(others(b, i)) else { return words };
                let mask = masks[i * vector];
                words.into_iter().zip(others).map(|(word, other)| b.select(mask, word, other)).collect()
            })
            .collect()
    }
}

/// Bytes that one copy of a load moves.
pub(super) fn width(func: &Func, load: &Load) -> u32 {
    load.access.vector * func.slice(load.access.param).0.bytes()
}

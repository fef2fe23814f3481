//! Selects dots that warpgroups do (wgmma) on tiles that all threads copy to shared memory.
//!
//! Where TMA does not load the blocks of views, `cp.async` copies the tiles of a loop, whatever their addresses are. A dot is
//! selected if wgmma has an instruction for its types and extents, and if operand B, or its transpose, is loaded in the dot's loop
//! for this dot alone. Operand A is loaded so too, or is in registers. Whether the copies are of 16 bytes shows with the layouts:
//! [`smem_operand`](crate::gpu::schedule::smem_operand) then finds both operands, or there is no such specialization.

use std::collections::HashMap;

use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::{Dot, DotOperand, DotUnit, For, Kind, Permute};

use crate::gpu::layout::warpgroup::{WARPGROUP_WARPS, WGMMA_M, WarpGroupTiling};

/// Marks the dots that are selected; whether there are any.
pub fn select_copied_wgmma(func: &mut Func, num_warps: u32) -> bool {
    if !num_warps.is_multiple_of(WARPGROUP_WARPS) {
        return false;
    }
    let mut units = HashMap::new();
    let finder = LoopDots { func, num_warps, uses: use_counts(func) };
    func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind {
            finder.find(body, &mut units);
        }
    });
    mark(&mut func.body, &units);
    !units.is_empty()
}

fn mark(block: &mut Block, units: &HashMap<Value, DotUnit>) {
    for op in &mut block.ops {
        if let (Kind::Dot(dot), Some(&unit)) =
            (&mut op.kind, op.results.first().and_then(|own| units.get(own)))
        {
            dot.unit = unit;
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| mark(nested, units));
    }
}

/// How often each value is an operand or is yielded.
fn use_counts(func: &Func) -> HashMap<Value, usize> {
    let mut uses = HashMap::new();
    let mut count = |value: Value| *uses.entry(value).or_default() += 1;
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        operation.operands().into_iter().for_each(&mut count);
        operation.blocks().into_iter().flat_map(|block| block.yields.clone()).for_each(&mut count);
    });
    uses
}

/// The search for dots of a loop.
struct LoopDots<'f> {
    func: &'f Func,
    num_warps: u32,
    uses: HashMap<Value, usize>,
}

impl LoopDots<'_> {
    fn find(&self, body: &For, units: &mut HashMap<Value, DotUnit>) {
        for op in &body.body.ops {
            if let Kind::Dot(dot) = &op.kind
                && self.has_instruction(dot, op)
                && self.is_loaded(body, dot, DotOperand::B)
            {
                let is_loaded = self.is_loaded(body, dot, DotOperand::A);
                units.insert(op.results[0], if is_loaded { DotUnit::Wgmma } else { DotUnit::WgmmaRs });
            }
        }
    }

    /// Whether wgmma has an instruction for a dot's types and extents.
    fn has_instruction(&self, dot: &Dot, op: &Op) -> bool {
        let shape = &self.func.ty(op.results[0]).shape;
        shape.rank() == 2
            && self.func.ty(dot.a).dtype.is_half()
            && shape[0].is_multiple_of(WGMMA_M)
            && WarpGroupTiling::new(shape[0], self.num_warps).columns_of_each(shape[1]).is_some()
    }

    /// Whether an operand or its transpose is loaded in the loop, for this dot alone.
    fn is_loaded(&self, body: &For, dot: &Dot, side: DotOperand) -> bool {
        let mut value = dot.operand(side);
        while self.uses.get(&value) == Some(&1) {
            match body.body.definition(value) {
                Some(Kind::Load(_)) => return true,
                Some(Kind::Permute(Permute { value: inner, .. })) => value = *inner,
                _ => return false,
            }
        }
        false
    }
}

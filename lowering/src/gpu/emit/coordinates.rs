//! Coordinates from lane and warp indices.

use crate::gpu::emit::Builder;
use crate::gpu::layout::Coord;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// Consecutive bits of a lane or warp index whose bases double: one shift and one mask.
pub(super) struct BitRun {
    first: u32,
    bits: u32,
    basis: u32,
}

impl BitRun {
    pub fn extract(&self, b: &mut Builder, source: Val) -> Val {
        let first = b.int(Ty::I32, i64::from(self.first));
        let mask = b.int(Ty::I32, (1 << self.bits) - 1);
        let shifted = if self.first == 0 { source } else { b.lshr(source, first) };
        let field = b.and(shifted, mask);
        let scale = b.int(Ty::I32, i64::from(self.basis.trailing_zeros()));
        debug_assert!(self.basis.is_power_of_two());
        b.shl(field, scale)
    }
}

pub(super) fn runs(bases: &[Coord], axis: usize) -> Vec<BitRun> {
    let mut runs: Vec<BitRun> = vec![];
    for (bit, basis) in bases.iter().enumerate() {
        let basis = basis.get(axis);
        // A basis of several bits is the sum of its bits.
        for bit_value in (0..32).map(|i| 1u32 << i).filter(|bit_value| basis & bit_value != 0) {
            let extends =
                |run: &BitRun| run.first + run.bits == bit as u32 && run.basis << run.bits == bit_value;
            match runs.iter_mut().find(|run| extends(run)) {
                Some(run) => run.bits += 1,
                None => runs.push(BitRun { first: bit as u32, bits: 1, basis: bit_value }),
            }
        }
    }
    runs
}

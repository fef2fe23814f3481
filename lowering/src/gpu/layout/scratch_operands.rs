//! Operands of dots that go through shared memory: which, as what tile, and where in the scratch memory of the dot.
//!
//! An operand whose registers are laid out as the instruction reads it is read from there, and so is one that is in shared memory
//! already. Those of warpgroups go to the slots of their loop.

use tile_ir::ir::{Op, Storage, Type, Value};
use tile_ir::ops::schedule::{StagedForm, StagedValue};
use tile_ir::ops::{Dot, DotOperand};

use super::conversion::{Conversion, conversion};
use super::distributed::Distributed;
use super::dot::{DotMethod, inner_axis, method, mma_operand_layout, outer_axis};
use super::linear::{Coord, Layout};
use super::smem_tile::SmemTile;

/// The scratch memory of an operand.
pub struct ScratchOperand {
    /// `None` where it is written before the loop around.
    pub start: Option<u32>,
    pub staging: SmemTile,
}

impl ScratchOperand {
    pub fn bytes(&self, distributed: &Distributed, value: Value) -> u32 {
        (self.staging.elements * distributed.func.ty(value).dtype.bytes()).next_multiple_of(16)
    }

    /// A value as this tile.
    pub fn form(&self, value: Value) -> StagedValue {
        let SmemTile { fast, swapped, offsets, .. } = self.staging;
        let form = match (offsets, swapped) {
            (None, _) => StagedForm::Fragments,
            (Some(_), false) => StagedForm::Rows,
            (Some(_), true) => StagedForm::SwappedPairs,
        };
        StagedValue { value, fast, form }
    }
}

/// The operands of a dot that go through shared memory.
pub struct ScratchOperands {
    pub staged: [Option<ScratchOperand>; 2],
    pub bytes: u32,
}

impl ScratchOperands {
    pub fn new(distributed: &Distributed, dot: &Dot, op: &Op) -> ScratchOperands {
        let sum = &distributed.layouts[&op.results[0]];
        let mut bytes = 0;
        let staged = DotOperand::ALL.map(|side| {
            let value = dot.operand(side);
            if dot.unit.is_warpgroup() || is_in_smem(distributed, value) {
                return None;
            }
            let (ty, from) = (distributed.func.ty(value), &distributed.layouts[&value]);
            let held = match method(ty.dtype, dot.input) {
                DotMethod::Mma(own) => {
                    let to = mma_operand_layout(own, side, &ty.shape, sum);
                    matches!(conversion(from, &to), Conversion::Registers(_))
                }
                DotMethod::Fma => false,
            };
            (!held).then(|| {
                let staging = match method(ty.dtype, dot.input) {
                    DotMethod::Mma(_) => SmemTile::along(&ty.shape, ty.dtype, fast_axis(from, side)),
                    DotMethod::Fma => fma_staging(ty, side, sum),
                };
                let mut staged = ScratchOperand { start: None, staging };
                if !distributed.invariant_operands.contains_key(&(op.results[0], side)) {
                    staged.start = Some(bytes);
                    bytes += staged.bytes(distributed, value);
                }
                staged
            })
        });
        ScratchOperands { staged, bytes }
    }
}

/// Whether a loop copies an operand to shared memory alone.
fn is_in_smem(distributed: &Distributed, value: Value) -> bool {
    distributed.smem_only.contains_key(&value) || distributed.func.ty(value).storage != Storage::Registers
}

/// The axis along which an operand is written at its widest; where that is all one, K.
fn fast_axis(from: &Layout, side: DotOperand) -> usize {
    let rank = from.shape().rank();
    let (inner, outer) = (inner_axis(rank, side), outer_axis(rank, side));
    if from.thread_contiguity(outer) > from.thread_contiguity(inner) { outer } else { inner }
}

/// The tile of a value in shared memory that dots read.
pub fn staged_tile(ty: &Type, staged: &StagedValue) -> SmemTile {
    let tile = SmemTile::along(&ty.shape, ty.dtype, staged.fast);
    match staged.form {
        StagedForm::Fragments => tile,
        StagedForm::Rows => tile.with_constant_offsets(),
        StagedForm::SwappedPairs => tile.with_constant_offsets().swapped(),
    }
}

/// The tile of an operand of an FMA dot whose result has layout `sum`.
fn fma_staging(ty: &Type, side: DotOperand, sum: &Layout) -> SmemTile {
    let outer = outer_axis(ty.shape.rank(), side);
    let staging = SmemTile::along(&ty.shape, ty.dtype, outer).with_constant_offsets();
    let by_pairs = ty.dtype.bytes() == 4 && held_together(sum, outer) > 1;
    if side == DotOperand::B && by_pairs { staging.swapped() } else { staging }
}

/// How many contiguous elements along an axis a thread has, whatever registers they are in.
pub fn held_together(layout: &Layout, axis: usize) -> usize {
    let holds = |bit: &u32| layout.register_bases().contains(&Coord::along(axis, 1 << bit));
    1 << (0..).take_while(holds).count()
}

//! Copies by TMA.

use super::{Operation, Stage, operand_fields, ordered};
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, Shape, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::ops::{ViewTile, expect_types};
use crate::support::dtype::DType;

/// Copies a block of a view to a stage of a buffer, 0 where it lies outside of the view, and completes its bytes at a full barrier.
/// One thread issues it.
#[derive(Clone, Debug)]
pub struct TmaLoad {
    pub tile: ViewTile,
    pub to: Stage,
    pub signal: Value,
    /// The index of the tensor map.
    pub map: usize,
    /// For a load that the blocks of a cluster may issue for each other: whether both programs take this block (multicast).
    pub shared: Option<Value>,
}

syntax!(TmaLoad: "tma_load" tile [map] ["to" to] [signal] ["multicast" shared]);

impl Operation for TmaLoad {
    operand_fields!(tile, to, signal, shared);

    fn infer(&mut self, func: &Func, _: &[Value]) {
        let matrix = &func.ty(self.to.buffer).shape;
        let outer = self.tile.offsets.len().saturating_sub(matrix.rank());
        self.tile.extents = Shape::new([&vec![1; outer], &matrix[..]].concat());
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        self.to.verify(func)?;
        Stage { buffer: self.signal, pipe: self.to.pipe }.verify_barrier(func)?;
        let block = Type::tile(func.slice(self.tile.memory).0, self.tile.extents.clone());
        self.tile.verify(func, &block)?;
        expect_types(
            "the buffer's elements",
            func.ty(self.to.buffer).shape.elements(),
            block.shape.elements(),
        )?;
        let flag = Type::scalar(DType::Bool);
        self.shared.map_or(Ok(()), |shared| expect_types("the condition", func.ty(shared), &flag))
    }

    fn view_tiles(&self) -> Vec<&ViewTile> {
        vec![&self.tile]
    }

    fn view_tiles_mut(&mut self) -> Vec<&mut ViewTile> {
        vec![&mut self.tile]
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// How far the TMA stores of a thread are when a wait for them ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitedStores {
    /// They have read shared memory, which may be written again.
    Read,
    /// They are in memory, where others may read them.
    Written,
}

impl FieldText for WaitedStores {
    fn write(&self, _: &mut TextWriter) {}

    fn read(_: &mut TextReader) -> Result<WaitedStores, ParseError> {
        Ok(WaitedStores::Written)
    }

    fn absent() -> Option<WaitedStores> {
        Some(WaitedStores::Read)
    }

    fn is_absent(&self) -> bool {
        *self == WaitedStores::Read
    }
}

/// Waits for the TMA stores of this thread.
#[derive(Clone, Copy, Debug)]
pub struct StoreWait {
    pub until: WaitedStores,
}

syntax!(StoreWait: "store_wait" ["written" until]);

impl Operation for StoreWait {
    operand_fields!();

    fn verify(&self, _: &Func, _: &[Value]) -> Result<(), String> {
        Ok(())
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

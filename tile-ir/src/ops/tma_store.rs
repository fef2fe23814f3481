//! The store of a block by TMA, from shared memory.

use super::{Effect, Operation, ViewTile, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Shape, Storage, Type, Value};
use crate::ops::syntax::syntax;

/// Writes a matrix to a block of a view, whose other axes are 1, as [`super::StoreView`] does: the consumer warpgroups
/// write it to shared memory, and TMA copies it from there. The frontend never makes this operation;
/// `gpu::opt::select_tma_store` puts it in the place of stores of dots.
#[derive(Clone, Debug)]
pub struct TmaStore {
    pub tile: ViewTile,
    pub value: Value,
    /// Whether the warpgroups hold the transpose of the dot ([`super::WarpGroupDot::transposed`]).
    pub transposed: bool,
    /// Once it is scheduled: the epilogue buffer, of which each warpgroup has a stage.
    pub through: Option<Value>,
    /// Once it is scheduled: the index of the tensor map.
    pub map: Option<usize>,
}

syntax!(TmaStore: "tma_store" value, tile [transposed] [through] [map]);

impl Operation for TmaStore {
    fn result_count(&self) -> usize {
        0
    }

    fn infer(&mut self, func: &Func, _: &[Value]) {
        let matrix = &func.ty(self.value).shape;
        let outer = self.tile.offsets.len().saturating_sub(matrix.rank());
        self.tile.extents = Shape::new([&vec![1; outer], &matrix[..]].concat());
    }

    fn operands(&self) -> Vec<Value> {
        self.tile.offsets.iter().copied().chain([self.value]).chain(self.through).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.tile.map(change);
        self.value = change(self.value);
        self.through = self.through.map(change);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        if self.tile.extents.rank() < 2 {
            return Err(format!("a block of shape {}", self.tile.extents));
        }
        let (outer, matrix) = self.tile.extents.split_at(self.tile.extents.rank() - 2);
        let ty = func.ty(self.value);
        expect_types("the matrix", &ty.shape, &Shape::new(matrix.to_vec()))?;
        expect_types("the extent of the other axes", outer.iter().product(), 1)?;
        if let Some(buffer) = self.through
            && !matches!(func.ty(buffer).storage, Storage::Smem { .. })
        {
            return Err(format!("the epilogue buffer is of type {}", func.ty(buffer)));
        }
        self.tile.verify_written(func, &Type::tile(ty.dtype, self.tile.extents.clone()))
    }

    fn view_tiles(&self) -> Vec<&ViewTile> {
        vec![&self.tile]
    }

    fn view_tiles_mut(&mut self) -> Vec<&mut ViewTile> {
        vec![&mut self.tile]
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::WarpGroup { transposed: self.transposed }
    }
}

//! The store of a block by TMA, from shared memory.

use super::{Effect, Operation, ViewTile, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Shape, Type, Value};

/// Writes a matrix to a block of a view, whose other axes are 1, as [`super::StoreView`] does: the consumer warpgroups
/// write it to shared memory, and TMA copies it from there. The frontend never makes this operation;
/// `gpu::opt::select_tma_store` puts it in the place of stores of dots.
#[derive(Clone, Debug)]
pub struct TmaStore {
    pub tile: ViewTile,
    pub value: Value,
    /// Whether the warpgroups hold the transpose of the dot ([`super::WarpGroupDot::transposed`]).
    pub transposed: bool,
}

impl Operation for TmaStore {
    fn name(&self) -> &'static str {
        "tma_store"
    }

    fn operands(&self) -> Vec<Value> {
        self.tile.offsets.iter().copied().chain([self.value]).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.tile.map(change);
        self.value = change(self.value);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn text(&self, func: &Func, name: &mut dyn FnMut(Value) -> String) -> String {
        let tile = self.tile.text(func, name);
        format!("tma_store {tile} = {}", name(self.value))
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        if !results.is_empty() {
            return Err("gives no result".into());
        }
        let (outer, matrix) = self.tile.extents.split_at(self.tile.extents.rank() - 2);
        let ty = func.ty(self.value);
        expect_types("the matrix", &ty.shape, &Shape::new(matrix.to_vec()))?;
        expect_types("the extent of the other axes", outer.iter().product(), 1)?;
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

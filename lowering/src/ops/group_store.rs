//! The store of a block that a GPU copies out by itself.

use super::{Effect, Operation, ViewTile, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Shape, Type, Value};

/// Writes a matrix to a block of a view, whose other axes are 1, as [`super::StoreView`] does: groups of four warps
/// leave it in shared memory, and the GPU copies it from there. No check makes this operation; `analysis::group_store`
/// puts it in the place of stores of products.
#[derive(Clone, Debug)]
pub struct TmaStore {
    pub window: ViewTile,
    pub value: Value,
    /// Whether groups hold the transpose of what they multiplied ([`super::GroupDot::transposed`]).
    pub transposed: bool,
}

impl Operation for TmaStore {
    fn name(&self) -> &'static str {
        "group_store"
    }

    fn operands(&self) -> Vec<Value> {
        self.window.offsets.iter().copied().chain([self.value]).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.window.map(change);
        self.value = change(self.value);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn text(&self, func: &Func, name: &mut dyn FnMut(Value) -> String) -> String {
        let window = self.window.text(func, name);
        format!("group_store {window} = {}", name(self.value))
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        if !results.is_empty() {
            return Err("gives no result".into());
        }
        let (outer, matrix) = self.window.extents.split_at(self.window.extents.rank() - 2);
        let ty = func.ty(self.value);
        expect_types("the matrix", &ty.shape, &Shape::new(matrix.to_vec()))?;
        expect_types("the extent of the other axes", outer.iter().product(), 1)?;
        self.window.verify_written(func, &Type::tile(ty.dtype, self.window.extents.clone()))
    }

    fn windows(&self) -> Vec<&ViewTile> {
        vec![&self.window]
    }

    fn windows_mut(&mut self) -> Vec<&mut ViewTile> {
        vec![&mut self.window]
    }

    fn spread(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::WarpGroup { transposed: self.transposed }
    }
}

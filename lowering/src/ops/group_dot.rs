//! The matrix product of blocks that a GPU copies by itself.

use super::{Operation, ViewTile, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Shape, Type, Value};
use crate::support::dtype::DType;

/// `a · b + acc`, as [`super::Dot`] has it, by groups of four warps; factors of `f32` in TF32. The right factor is a block of a view, and the left one may
/// be: such a block is in shared memory when it is multiplied, and in no thread's registers. No check makes this
/// operation; `analysis::stage` puts it in the place of products that can be done so.
#[derive(Clone, Debug)]
pub struct WarpGroupDot {
    pub a: OperandA,
    pub b: SmemOperand,
    /// 0 everywhere, if it is not there.
    pub acc: Option<Value>,
    /// Products of 8-bit floats that are summed before their sum is added to others.
    pub imprecise: Option<u32>,
    /// Whether the result, and with it `acc`, is the transpose of `a · b`.
    pub transposed: bool,
}

/// A left factor.
#[derive(Clone, Debug)]
pub enum OperandA {
    Tile(Value),
    Staged(SmemOperand),
}

/// A block of a view as a factor: its last two axes, or those two exchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmemOperand {
    pub window: ViewTile,
    pub transposed: bool,
}

impl SmemOperand {
    /// The transpose of the factor.
    pub fn exchanged(self) -> SmemOperand {
        SmemOperand { transposed: !self.transposed, ..self }
    }

    /// The extents of the block as it lies in the view: rows, and elements of a row.
    pub fn lines(&self) -> [u32; 2] {
        let extents = &self.window.extents;
        [extents[extents.rank() - 2], extents[extents.rank() - 1]]
    }

    /// The extents of the factor.
    pub fn extents(&self) -> [u32; 2] {
        let [rows, columns] = self.lines();
        if self.transposed { [columns, rows] } else { [rows, columns] }
    }

    fn text(&self, func: &Func, name: &mut dyn FnMut(Value) -> String) -> String {
        let kind = if self.transposed { "transposed " } else { "" };
        format!("{kind}{} of {}", self.window.extents, self.window.text(func, name))
    }

    fn dtype(&self, func: &Func) -> DType {
        func.slice(self.window.memory).0
    }
}

impl WarpGroupDot {
    /// The blocks among its factors.
    pub fn staged(&self) -> impl Iterator<Item = &SmemOperand> {
        let left = match &self.a {
            OperandA::Tile(_) => None,
            OperandA::Staged(staged) => Some(staged),
        };
        left.into_iter().chain([&self.b])
    }

    /// The left factor, if threads hold it.
    pub fn tile(&self) -> Option<Value> {
        match self.a {
            OperandA::Tile(value) => Some(value),
            OperandA::Staged(_) => None,
        }
    }

    /// The type that is multiplied.
    pub fn dtype(&self, func: &Func) -> DType {
        self.b.dtype(func)
    }

    /// What products are added in.
    pub fn accumulator(&self, func: &Func) -> DType {
        if self.dtype(func) == DType::I8 { DType::I32 } else { DType::F32 }
    }

    /// The products whose sum begins at 0 and has its digits: all there are, or as many as may be imprecise.
    pub fn summed_at_once(&self) -> u32 {
        self.imprecise.map_or(self.inner(), |most| most.min(self.inner()))
    }

    /// Whether sums of the instructions are added to others by arithmetic.
    pub fn promotes(&self) -> bool {
        self.imprecise.is_some() && (self.acc.is_some() || self.summed_at_once() < self.inner())
    }

    /// The left factor, if threads load fragments of it from shared memory: the instructions take `f32` from there only where what is
    /// summed over is contiguous.
    pub fn gathered(&self, func: &Func) -> Option<&SmemOperand> {
        match &self.a {
            OperandA::Staged(staged) if staged.transposed && staged.dtype(func) == DType::F32 => Some(staged),
            OperandA::Staged(_) | OperandA::Tile(_) => None,
        }
    }

    /// The extent that is summed over.
    pub fn inner(&self) -> u32 {
        self.b.extents()[0]
    }
}

impl Operation for WarpGroupDot {
    fn name(&self) -> &'static str {
        "group_dot"
    }

    fn operands(&self) -> Vec<Value> {
        let offsets = self.staged().flat_map(|staged| staged.window.offsets.iter().copied());
        self.tile().into_iter().chain(offsets).chain(self.acc).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        if let OperandA::Tile(value) = &mut self.a {
            *value = change(*value);
        }
        self.windows_mut().into_iter().for_each(|window| window.map(change));
        self.acc = self.acc.map(change);
    }

    fn text(&self, func: &Func, name: &mut dyn FnMut(Value) -> String) -> String {
        let left = match &self.a {
            OperandA::Tile(value) => name(*value),
            OperandA::Staged(staged) => staged.text(func, name),
        };
        let factors = format!("group_dot {left}, {}", self.b.text(func, name));
        let product = if self.transposed { format!("{factors} transposed") } else { factors };
        let sum = self.acc.map_or(product.clone(), |acc| format!("{product} add {}", name(acc)));
        self.imprecise.map_or(sum.clone(), |most| format!("{sum} imprecise {most}"))
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        for staged in self.staged() {
            let block = Type::tile(staged.dtype(func), staged.window.extents.clone());
            staged.window.verify(func, &block)?;
        }
        let left = match &self.a {
            OperandA::Tile(value) => func.ty(*value).clone(),
            OperandA::Staged(staged) => Type::tile(staged.dtype(func), Shape::new(staged.extents())),
        };
        let [inner, columns] = self.b.extents();
        expect_types("the left factor's element type", left.dtype, self.dtype(func))?;
        expect_types("the inner extent", left.shape[1], inner)?;
        let [rows, columns] =
            if self.transposed { [columns, left.shape[0]] } else { [left.shape[0], columns] };
        let wanted = Type::tile(self.accumulator(func), Shape::new([rows, columns]));
        expect_types("the result", func.ty(results[0]), &wanted)?;
        self.acc.map_or(Ok(()), |acc| expect_types("the accumulator", func.ty(acc), &wanted))
    }

    fn windows(&self) -> Vec<&ViewTile> {
        self.staged().map(|staged| &staged.window).collect()
    }

    fn windows_mut(&mut self) -> Vec<&mut ViewTile> {
        let left = match &mut self.a {
            OperandA::Tile(_) => None,
            OperandA::Staged(staged) => Some(&mut staged.window),
        };
        left.into_iter().chain([&mut self.b.window]).collect()
    }

    fn spread(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Dot { acc: self.acc }
    }
}

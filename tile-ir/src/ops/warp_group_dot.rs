//! The dot by warpgroups (`wgmma`), whose operands are blocks of views in shared memory.

use super::{Operation, ViewTile, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, Shape, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// `a · b + acc`, as [`super::Dot`] has it, by warpgroups; operands of `f32` in TF32. Operand B is a block of a view, and
/// operand A may be: such a block is in shared memory when the instructions read it, and in no thread's registers. The
/// frontend never makes this operation; `gpu::opt::select_wgmma` puts it in the place of the dots that it can do.
#[derive(Clone, Debug)]
pub struct WarpGroupDot {
    pub a: OperandA,
    pub b: SmemOperand,
    /// 0 everywhere, if it is not there.
    pub acc: Option<Value>,
    /// Products of 8-bit floats that an instruction accumulates with fewer digits before they are promoted.
    pub imprecise: Option<u32>,
    /// Whether the result, and with it `acc`, is the transpose of `a · b`.
    pub transposed: bool,
}

/// Operand A: in registers or in shared memory.
#[derive(Clone, Debug)]
pub enum OperandA {
    Regs(Value),
    Smem(SmemOperand),
}

/// A block of a view as an operand: its last two axes, or their transpose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmemOperand {
    pub tile: ViewTile,
    pub transposed: bool,
}

/// `[16, 64] of view(offsets)`, behind `transposed` if it is.
impl FieldText for SmemOperand {
    fn write(&self, out: &mut TextWriter) {
        if self.transposed {
            out.word("transposed");
        }
        out.word(&self.tile.extents.to_string());
        out.word("of");
        self.tile.write(out);
    }

    fn read(input: &mut TextReader) -> Result<SmemOperand, ParseError> {
        let transposed = input.take("transposed");
        let extents = input.shape()?;
        input.expect("of")?;
        Ok(SmemOperand { tile: ViewTile { extents, ..ViewTile::read(input)? }, transposed })
    }
}

impl FieldText for OperandA {
    fn write(&self, out: &mut TextWriter) {
        match self {
            OperandA::Regs(value) => value.write(out),
            OperandA::Smem(operand) => operand.write(out),
        }
    }

    fn read(input: &mut TextReader) -> Result<OperandA, ParseError> {
        if input.begins_value() {
            return input.value().map(OperandA::Regs);
        }
        SmemOperand::read(input).map(OperandA::Smem)
    }
}

impl SmemOperand {
    /// The transpose of the operand.
    pub fn transpose(self) -> SmemOperand {
        SmemOperand { transposed: !self.transposed, ..self }
    }

    /// The extents of the block in the view: rows, and elements of a row.
    pub fn lines(&self) -> [u32; 2] {
        let extents = &self.tile.extents;
        [extents[extents.rank() - 2], extents[extents.rank() - 1]]
    }

    /// The extents of the operand.
    pub fn extents(&self) -> [u32; 2] {
        let [rows, columns] = self.lines();
        if self.transposed { [columns, rows] } else { [rows, columns] }
    }

    fn dtype(&self, func: &Func) -> DType {
        func.slice(self.tile.memory).0
    }
}

impl WarpGroupDot {
    /// Its operands in shared memory.
    pub fn smem_operands(&self) -> impl Iterator<Item = &SmemOperand> {
        let a = match &self.a {
            OperandA::Regs(_) => None,
            OperandA::Smem(operand) => Some(operand),
        };
        a.into_iter().chain([&self.b])
    }

    /// Operand A, if it is in registers.
    pub fn tile(&self) -> Option<Value> {
        match self.a {
            OperandA::Regs(value) => Some(value),
            OperandA::Smem(_) => None,
        }
    }

    /// The operands' element type.
    pub fn dtype(&self, func: &Func) -> DType {
        self.b.dtype(func)
    }

    /// The accumulator's element type.
    pub fn accumulator(&self, func: &Func) -> DType {
        if self.dtype(func) == DType::I8 { DType::I32 } else { DType::F32 }
    }

    /// The extent along K that the instructions accumulate from 0 before promotion: all of it, or as much as may be imprecise.
    pub fn promotion_interval(&self) -> u32 {
        self.imprecise.map_or(self.inner(), |most| most.min(self.inner()))
    }

    /// Whether accumulators of the instructions are promoted: added to others by arithmetic.
    pub fn promotes(&self) -> bool {
        self.imprecise.is_some() && (self.acc.is_some() || self.promotion_interval() < self.inner())
    }

    /// Operand A, if threads load fragments of it from shared memory: the instructions take `f32` from there only K-major.
    pub fn a_in_fragments(&self, func: &Func) -> Option<&SmemOperand> {
        match &self.a {
            OperandA::Smem(operand) if operand.transposed && operand.dtype(func) == DType::F32 => {
                Some(operand)
            }
            OperandA::Smem(_) | OperandA::Regs(_) => None,
        }
    }

    /// The extent along K.
    pub fn inner(&self) -> u32 {
        self.b.extents()[0]
    }
}

syntax!(WarpGroupDot: "warp_group_dot" a, b ["add" acc] [imprecise] [transposed]);

impl Operation for WarpGroupDot {
    fn operands(&self) -> Vec<Value> {
        let offsets = self.smem_operands().flat_map(|operand| operand.tile.offsets.iter().copied());
        self.tile().into_iter().chain(offsets).chain(self.acc).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        if let OperandA::Regs(value) = &mut self.a {
            *value = change(*value);
        }
        self.view_tiles_mut().into_iter().for_each(|tile| tile.map(change));
        self.acc = self.acc.map(change);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        for operand in self.smem_operands() {
            let block = Type::tile(operand.dtype(func), operand.tile.extents.clone());
            operand.tile.verify(func, &block)?;
            if operand.tile.extents.rank() < 2 {
                return Err(format!("an operand of shape {}", operand.tile.extents));
            }
        }
        let a = match &self.a {
            OperandA::Regs(value) => func.ty(*value).clone(),
            OperandA::Smem(operand) => Type::tile(operand.dtype(func), Shape::new(operand.extents())),
        };
        expect_types("the rank of operand A", a.shape.rank(), 2)?;
        let [inner, columns] = self.b.extents();
        expect_types("operand A's element type", a.dtype, self.dtype(func))?;
        expect_types("the inner extent", a.shape[1], inner)?;
        let [rows, columns] = if self.transposed { [columns, a.shape[0]] } else { [a.shape[0], columns] };
        let wanted = Type::tile(self.accumulator(func), Shape::new([rows, columns]));
        expect_types("the result", func.ty(results[0]), &wanted)?;
        self.acc.map_or(Ok(()), |acc| expect_types("the accumulator", func.ty(acc), &wanted))
    }

    fn view_tiles(&self) -> Vec<&ViewTile> {
        self.smem_operands().map(|operand| &operand.tile).collect()
    }

    fn view_tiles_mut(&mut self) -> Vec<&mut ViewTile> {
        let a = match &mut self.a {
            OperandA::Regs(_) => None,
            OperandA::Smem(operand) => Some(&mut operand.tile),
        };
        a.into_iter().chain([&mut self.b.tile]).collect()
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Dot { acc: self.acc }
    }
}

//! Dots of warpgroups (`wgmma`) that run asynchronously.

use super::{Operands, Operation, Stage, expect_storage, is_smem, operand_fields, ordered};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, Storage, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::ops::{Effect, expect_types};
use crate::support::dtype::DType;

/// The position of this warpgroup among those that tile a dot's `a · b` of so many rows: along its rows, and along its columns.
#[derive(Clone, Copy, Debug)]
pub struct WarpgroupPosition {
    pub rows: u32,
}

syntax!(WarpgroupPosition: "warpgroup_position" [rows]);

impl Operation for WarpgroupPosition {
    operand_fields!();

    fn result_count(&self) -> usize {
        2
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let mut results = results.iter();
        results.try_for_each(|&result| expect_types("the result", func.ty(result), &Type::scalar(DType::I32)))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

/// Where an operand is in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmemPlace {
    /// A stage of a buffer that TMA fills.
    Stage(Stage),
    /// A tile of a slot that all threads copy to, of [`super::SlotTile`].
    Slot(Value),
}

/// An operand in shared memory: rows along K, or along the other axis if it is transposed (MN-major operand A, K-major operand B).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagedOperand {
    pub place: SmemPlace,
    pub transposed: bool,
}

impl StagedOperand {
    /// Rows in shared memory, and elements of a row.
    pub fn lines(&self, func: &Func) -> [u32; 2] {
        let shape = &func.ty(self.memory()).shape;
        let swapped = self.transposed && matches!(self.place, SmemPlace::Slot(_));
        if swapped { [shape[1], shape[0]] } else { [shape[0], shape[1]] }
    }

    /// The extents of the operand.
    pub fn extents(&self, func: &Func) -> [u32; 2] {
        let [rows, columns] = self.lines(func);
        if self.transposed { [columns, rows] } else { [rows, columns] }
    }

    /// The buffer or the tile.
    pub fn memory(&self) -> Value {
        match self.place {
            SmemPlace::Stage(stage) => stage.buffer,
            SmemPlace::Slot(tile) => tile,
        }
    }

    /// The stage of a buffer.
    pub fn stage(&self) -> Option<Stage> {
        match self.place {
            SmemPlace::Stage(stage) => Some(stage),
            SmemPlace::Slot(_) => None,
        }
    }

    fn verify(&self, func: &Func) -> Result<(), String> {
        match self.place {
            SmemPlace::Stage(stage) => stage.verify(func),
            SmemPlace::Slot(tile) => expect_storage("the tile", func, tile, is_smem),
        }
    }
}

impl Operands for StagedOperand {
    fn collect(&self, to: &mut Vec<Value>) {
        match &self.place {
            SmemPlace::Stage(stage) => stage.collect(to),
            SmemPlace::Slot(tile) => tile.collect(to),
        }
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        match &mut self.place {
            SmemPlace::Stage(stage) => stage.change(by),
            SmemPlace::Slot(tile) => tile.change(by),
        }
    }
}

/// Where the instructions find operand A.
#[derive(Clone, Copy, Debug)]
pub enum WgmmaOperandA {
    /// A tile in registers.
    Regs(Value),
    /// Words in registers, of [`super::SmemLoadWords`].
    Words(Value),
    Smem(StagedOperand),
}

impl Operands for WgmmaOperandA {
    fn collect(&self, to: &mut Vec<Value>) {
        match self {
            WgmmaOperandA::Regs(value) | WgmmaOperandA::Words(value) => to.push(*value),
            WgmmaOperandA::Smem(staged) => staged.collect(to),
        }
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        match self {
            WgmmaOperandA::Regs(value) | WgmmaOperandA::Words(value) => *value = by(*value),
            WgmmaOperandA::Smem(staged) => staged.change(by),
        }
    }
}

/// Whether an issued dot is waited for at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterIssue {
    Wait,
    Continue,
}

/// `a · b + acc` over a range of K, as [`crate::ops::WarpGroupDot`] has it. Unless it waits, its result is in flight: only
/// [`DotWait`], a loop that carries it and another dot that adds to it may take it.
#[derive(Clone, Debug)]
pub struct Wgmma {
    pub a: WgmmaOperandA,
    pub b: StagedOperand,
    /// 0 everywhere, if it is not there.
    pub acc: Option<Value>,
    /// `acc` counts only where this scalar holds.
    pub accumulates: Option<Value>,
    /// The part of K.
    pub k: [u32; 2],
    /// Where the warpgroup is in `a · b`, as [`WarpgroupPosition`] gives it; else the operation finds it itself.
    pub position: Vec<Value>,
    /// Whether the result, and with it `acc`, is the transpose of `a · b`.
    pub transposed: bool,
    pub then: AfterIssue,
}

impl Wgmma {
    /// What it reads of shared memory.
    pub fn smem_operands(&self) -> Vec<&StagedOperand> {
        let a = match &self.a {
            WgmmaOperandA::Smem(staged) => Some(staged),
            WgmmaOperandA::Regs(_) | WgmmaOperandA::Words(_) => None,
        };
        a.into_iter().chain([&self.b]).collect()
    }

    /// The stages of buffers that it reads.
    pub fn stages(&self) -> Vec<Stage> {
        self.smem_operands().into_iter().filter_map(StagedOperand::stage).collect()
    }
}

syntax!(Wgmma: "wgmma" a, b ["add" acc] ["if" accumulates] [k] ["at" position] [transposed] ["async" then]);

impl Operation for Wgmma {
    operand_fields!(a, b, acc, accumulates, position);

    fn infer(&mut self, func: &Func, _: &[Value]) {
        if let WgmmaOperandA::Regs(value) = self.a {
            self.a = match func.ty(value).storage {
                Storage::Words => WgmmaOperandA::Words(value),
                Storage::Smem { .. } => {
                    WgmmaOperandA::Smem(StagedOperand { place: SmemPlace::Slot(value), transposed: false })
                }
                _ => WgmmaOperandA::Regs(value),
            };
        }
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        self.b.verify(func)?;
        let [inner, columns] = self.b.extents(func);
        let [rows, own_inner] = match &self.a {
            WgmmaOperandA::Regs(value) => [func.ty(*value).shape[0], func.ty(*value).shape[1]],
            WgmmaOperandA::Words(value) => {
                expect_storage("operand A", func, *value, |storage| storage == Storage::Words)?;
                [func.ty(*value).shape[0], func.ty(*value).shape[1]]
            }
            WgmmaOperandA::Smem(staged) => {
                staged.verify(func)?;
                staged.extents(func)
            }
        };
        expect_types("the inner extent", own_inner, inner)?;
        if !matches!(self.position.len(), 0 | 2) {
            return Err("a position is a row and a column".into());
        }
        let mut positions = self.position.iter();
        positions
            .try_for_each(|&along| expect_types("a position", func.ty(along), &Type::scalar(DType::I32)))?;
        let [first, last] = self.k;
        if first >= last || last > inner {
            return Err(format!("the part {first}..{last} of K is not in 0..{inner}"));
        }
        let shape = &func.ty(results[0]).shape;
        let found = if self.transposed { [shape[1], shape[0]] } else { [shape[0], shape[1]] };
        if found != [rows, columns] {
            return Err(format!("the result is {shape}, expected {rows} rows and {columns} columns"));
        }
        if self.accumulates.is_some() && self.acc.is_none() {
            return Err("there is nothing to add to".into());
        }
        let flag = Type::scalar(DType::Bool);
        self.accumulates
            .map_or(Ok(()), |condition| expect_types("the condition", func.ty(condition), &flag))?;
        self.acc.map_or(Ok(()), |acc| expect_types("the accumulator", func.ty(acc), func.ty(results[0])))
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Dot { acc: self.acc }
    }
}

/// Waits until at most the last `pending` issued dots are in flight. The first value is the result of a dot; the others are not used
/// before, so that what the dot reads stays in its registers. Results are the same values.
#[derive(Clone, Debug)]
pub struct DotWait {
    pub values: Vec<Value>,
    pub pending: u32,
    /// All values are 0 where this scalar does not hold: no dot was issued.
    pub issued_if: Option<Value>,
}

syntax!(DotWait: "dot_wait" values [pending] [issued_if]);

impl Operation for DotWait {
    operand_fields!(values, issued_if);

    fn result_count(&self) -> usize {
        self.values.len()
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the number of results", results.len(), self.values.len())?;
        let pairs = results.iter().zip(&self.values);
        pairs
            .into_iter()
            .try_for_each(|(&result, &value)| expect_types("a result", func.ty(result), func.ty(value)))
    }

    ordered!();
}

/// A tile times scales of its rows. A warp whose scales are all 1 skips it: who makes this operation has decided that they are few
/// enough to be asked.
#[derive(Clone, Copy, Debug)]
pub struct RescaleRows {
    pub tile: Value,
    pub scales: Value,
}

syntax!(RescaleRows: "rescale_rows" tile, scales);

impl Operation for RescaleRows {
    operand_fields!(tile, scales);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the element type", func.ty(self.tile).dtype, DType::F32)?;
        expect_types("the scales", func.ty(self.scales), func.ty(self.tile))?;
        expect_types("the result", func.ty(results[0]), func.ty(self.tile))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

/// `%buffer[%pipe]` or the tile of a slot, behind `transposed` if it is.
impl FieldText for StagedOperand {
    fn write(&self, out: &mut TextWriter) {
        if self.transposed {
            out.word("transposed");
        }
        match &self.place {
            SmemPlace::Stage(stage) => stage.write(out),
            SmemPlace::Slot(tile) => tile.write(out),
        }
    }

    fn read(input: &mut TextReader) -> Result<StagedOperand, ParseError> {
        let transposed = input.take("transposed");
        let memory = input.value()?;
        let place = if input.begins("[") {
            SmemPlace::Stage(Stage::read_behind(memory, input)?)
        } else {
            SmemPlace::Slot(memory)
        };
        Ok(StagedOperand { place, transposed })
    }
}

/// A value alone is in registers until [`Operation::infer`] tells tiles from words and from tiles of slots.
impl FieldText for WgmmaOperandA {
    fn write(&self, out: &mut TextWriter) {
        match self {
            WgmmaOperandA::Regs(value) | WgmmaOperandA::Words(value) => value.write(out),
            WgmmaOperandA::Smem(staged) => staged.write(out),
        }
    }

    fn read(input: &mut TextReader) -> Result<WgmmaOperandA, ParseError> {
        let operand = StagedOperand::read(input)?;
        Ok(match operand {
            StagedOperand { place: SmemPlace::Slot(value), transposed: false } => WgmmaOperandA::Regs(value),
            _ => WgmmaOperandA::Smem(operand),
        })
    }
}

/// A range, `0..64`.
impl FieldText for [u32; 2] {
    fn write(&self, out: &mut TextWriter) {
        out.word(&format!("{}..{}", self[0], self[1]));
    }

    fn read(input: &mut TextReader) -> Result<[u32; 2], ParseError> {
        let first = input.integer()?;
        input.expect("..")?;
        Ok([first, input.integer()?])
    }
}

/// The word `async` stands where the dot is not waited for.
impl FieldText for AfterIssue {
    fn write(&self, _: &mut TextWriter) {}

    fn read(_: &mut TextReader) -> Result<AfterIssue, ParseError> {
        Ok(AfterIssue::Continue)
    }

    fn absent() -> Option<AfterIssue> {
        Some(AfterIssue::Wait)
    }

    fn is_absent(&self) -> bool {
        *self == AfterIssue::Wait
    }
}

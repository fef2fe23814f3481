//! Copies that threads start and wait for later (`cp.async`), to a ring of slots in shared memory.
//!
//! A slot has the elements of all loads that a loop copies in one iteration. Either each thread copies what it needs itself to its
//! own part, or all threads copy parts of a tile that dots or all threads read. Copies that started together are a group; a thread
//! waits for groups in their order.

use super::{Operands, Operation, expect_storage, is_slot, operand_fields, ordered};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Block, Func, ParseError, Storage, TextReader, Type, Value};
use crate::ops::schedule::operand_tile::OperandTile;
use crate::ops::syntax::syntax;
use crate::ops::{CacheHints, MemAccess, expect_types};
use crate::support::dtype::DType;

/// The ring of a loop in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRing {
    /// Bytes from the start of the program's shared memory.
    pub start: u32,
    /// Bytes that were allocated for it.
    pub bytes: u32,
    pub slots: u32,
    pub slot_bytes: u32,
    /// Identifies which thread uses which bytes, if each thread uses bytes of its own.
    pub shape: Option<u64>,
}

impl FieldText for CopyRing {
    fn write(&self, out: &mut TextWriter) {
        out.attribute("at", &self.start);
        out.attribute("bytes", &self.bytes);
        out.attribute("slots", &self.slots);
        out.attribute("slot_bytes", &self.slot_bytes);
        out.attribute("shape", &self.shape);
    }

    fn read(input: &mut TextReader) -> Result<CopyRing, ParseError> {
        let (start, bytes) = (input.attribute("at")?, input.attribute("bytes")?);
        let (slots, slot_bytes) = (input.attribute("slots")?, input.attribute("slot_bytes")?);
        Ok(CopyRing { start, bytes, slots, slot_bytes, shape: input.attribute("shape")? })
    }
}

/// The number of addresses that a slot is.
fn addresses(func: &Func, slot: Value) -> usize {
    match func.ty(slot).storage {
        Storage::Slot { addresses } => addresses as usize,
        _ => 0,
    }
}

/// The first slot of a ring as this thread addresses it: for each width of copies its own part, then the slot itself if it has
/// tiles. Copies of earlier rings there are done.
#[derive(Clone, Debug)]
pub struct RingStart {
    pub ring: CopyRing,
    pub widths: Vec<u32>,
    pub has_tiles: bool,
}

impl RingStart {
    pub fn result_type(&self) -> Type {
        let addresses = self.widths.len() as u32 + if self.has_tiles { 2 } else { 0 };
        Type::slot(addresses)
    }
}

syntax!(RingStart: "ring_start" ring [widths] ["tiles" has_tiles]);

impl Operation for RingStart {
    operand_fields!();

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the result", func.ty(results[0]), &self.result_type())?;
        let fits = self.ring.slots * self.ring.slot_bytes <= self.ring.bytes && self.ring.slots > 0;
        if fits { Ok(()) } else { Err("the slots do not fit into the ring".into()) }
    }

    ordered!();
}

/// The slot of a ring with this index.
#[derive(Clone, Copy, Debug)]
pub struct SlotAt {
    pub first: Value,
    pub ring: CopyRing,
    pub index: u32,
}

syntax!(SlotAt: "slot_at" first [index] ring);

impl Operation for SlotAt {
    operand_fields!(first);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the first slot", func, self.first, is_slot)?;
        expect_types("the result", func.ty(results[0]), func.ty(self.first))?;
        if self.index < self.ring.slots { Ok(()) } else { Err("there is no such slot".into()) }
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

/// Which neighbor of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotNeighbor {
    /// Behind it; behind the last slot comes the first.
    Next,
    Previous,
}

impl FieldText for SlotNeighbor {
    fn write(&self, out: &mut TextWriter) {
        out.word(match self {
            SlotNeighbor::Next => "next",
            SlotNeighbor::Previous => "previous",
        });
    }

    fn read(input: &mut TextReader) -> Result<SlotNeighbor, ParseError> {
        input.one_of(&[("next", SlotNeighbor::Next), ("previous", SlotNeighbor::Previous)])
    }
}

/// The slot beside another one in the ring.
#[derive(Clone, Copy, Debug)]
pub struct SlotStep {
    pub slot: Value,
    pub first: Value,
    pub ring: CopyRing,
    pub to: SlotNeighbor,
}

syntax!(SlotStep: "slot_step" slot to [first] ring);

impl Operation for SlotStep {
    operand_fields!(slot, first);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the slot", func, self.slot, is_slot)?;
        expect_types("the first slot", func.ty(self.first), func.ty(self.slot))?;
        expect_types("the result", func.ty(results[0]), func.ty(self.slot))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

/// Where the elements of a load are that each thread has for itself: its vectors are as far apart as all threads of the block
/// have bytes in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadPart {
    pub slot: Value,
    /// Which of the slot's addresses is that of this width.
    pub address: usize,
    pub offset: u32,
}

impl FieldText for ThreadPart {
    fn write(&self, out: &mut TextWriter) {
        self.slot.write(out);
        out.push(&format!("[{}] + {}", self.address, self.offset));
    }

    fn read(input: &mut TextReader) -> Result<ThreadPart, ParseError> {
        let slot = input.value()?;
        ThreadPart::read_behind(slot, input)
    }
}

impl ThreadPart {
    /// What stands behind the slot.
    fn read_behind(slot: Value, input: &mut TextReader) -> Result<ThreadPart, ParseError> {
        input.expect("[")?;
        let address = input.integer()?;
        input.expect("]")?;
        input.expect("+")?;
        Ok(ThreadPart { slot, address, offset: input.integer()? })
    }

    fn verify(&self, func: &Func) -> Result<(), String> {
        expect_storage("the slot", func, self.slot, is_slot)?;
        if self.address < addresses(func, self.slot) {
            Ok(())
        } else {
            Err("the slot has no such address".into())
        }
    }
}

impl Operands for ThreadPart {
    fn collect(&self, to: &mut Vec<Value>) {
        to.push(self.slot);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.slot = by(self.slot);
    }
}

/// Where a copy goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyTarget {
    Thread(ThreadPart),
    /// A tile that dots or all threads read, of [`SlotTile`].
    Tile(Value),
}

impl FieldText for CopyTarget {
    fn write(&self, out: &mut TextWriter) {
        match self {
            CopyTarget::Thread(part) => part.write(out),
            CopyTarget::Tile(tile) => tile.write(out),
        }
    }

    fn read(input: &mut TextReader) -> Result<CopyTarget, ParseError> {
        let value = input.value()?;
        if input.begins("[") {
            ThreadPart::read_behind(value, input).map(CopyTarget::Thread)
        } else {
            Ok(CopyTarget::Tile(value))
        }
    }
}

impl CopyTarget {
    fn verify(&self, func: &Func) -> Result<(), String> {
        match self {
            CopyTarget::Thread(part) => part.verify(func),
            CopyTarget::Tile(tile) => expect_storage("the tile", func, *tile, super::is_smem),
        }
    }
}

impl Operands for CopyTarget {
    fn collect(&self, to: &mut Vec<Value>) {
        match self {
            CopyTarget::Thread(part) => part.collect(to),
            CopyTarget::Tile(tile) => tile.collect(to),
        }
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        match self {
            CopyTarget::Thread(part) => part.change(by),
            CopyTarget::Tile(tile) => tile.change(by),
        }
    }
}

/// Which caches a copy goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyCache {
    /// The first-level cache serves it: a multiprocessor copies the same elements several times.
    All,
    /// Past the first-level cache where there is such an instruction: they are copied once.
    Global,
}

impl FieldText for CopyCache {
    fn write(&self, _: &mut TextWriter) {}

    fn read(_: &mut TextReader) -> Result<CopyCache, ParseError> {
        Ok(CopyCache::All)
    }

    fn absent() -> Option<CopyCache> {
        Some(CopyCache::Global)
    }

    fn is_absent(&self) -> bool {
        *self == CopyCache::Global
    }
}

impl Operands for MemAccess {
    fn collect(&self, to: &mut Vec<Value>) {
        to.extend(self.operands());
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.map(by);
    }
}

/// Starts the copies of a load to a slot; masked elements become 0. It stands in an [`AsyncGroup`]. Nothing writes what it reads.
#[derive(Clone, Debug)]
pub struct AsyncCopy {
    pub from: MemAccess,
    pub to: CopyTarget,
    pub hints: CacheHints,
    pub through: CopyCache,
}

syntax!(AsyncCopy: "async_copy" from hints ["through_l1" through] ["to" to]);

impl Operation for AsyncCopy {
    operand_fields!(from, to);

    fn result_count(&self) -> usize {
        0
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        let (dtype, is_written) = func.slice(self.from.param);
        if is_written {
            return Err("the kernel may write what it copies".into());
        }
        self.from.verify(func, &Type::tile(dtype, func.ty(self.from.offset).shape.clone()))?;
        self.to.verify(func)
    }

    fn cache(&self) -> Option<CacheHints> {
        Some(self.hints)
    }

    ordered!();
}

/// Who issues the copies of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupIssue {
    /// The group itself.
    Now,
    /// A dot that takes the prepared copies, among its instructions.
    ByDot,
}

impl FieldText for GroupIssue {
    fn write(&self, _: &mut TextWriter) {}

    fn read(_: &mut TextReader) -> Result<GroupIssue, ParseError> {
        Ok(GroupIssue::ByDot)
    }

    fn absent() -> Option<GroupIssue> {
        Some(GroupIssue::Now)
    }

    fn is_absent(&self) -> bool {
        *self == GroupIssue::Now
    }
}

/// Starts the copies in its block, if a scalar holds, as one group; else the group is empty. Or it only prepares them, and gives
/// them to a dot.
#[derive(Clone, Debug)]
pub struct AsyncGroup {
    pub only_if: Value,
    pub issue: GroupIssue,
    /// What computes their addresses, and the copies.
    pub body: Block,
}

syntax!(AsyncGroup: "async_group" ["if" only_if] ["prepared" issue] {body: Block::default()});

impl Operation for AsyncGroup {
    operand_fields!(only_if);

    fn result_count(&self) -> usize {
        usize::from(self.issue == GroupIssue::ByDot)
    }

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.body]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.body]
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the condition", func.ty(self.only_if), &Type::scalar(DType::Bool))?;
        if !self.body.args.is_empty() || !self.body.yields.is_empty() {
            return Err("its block takes and yields nothing".into());
        }
        let mut results = results.iter();
        results.try_for_each(|&result| expect_types("the result", func.ty(result), &Type::copies()))
    }

    ordered!();
}

/// Waits until at most the last `pending` groups of this thread are in flight.
#[derive(Clone, Copy, Debug)]
pub struct AsyncWait {
    pub pending: u32,
    /// The ring that they copy to.
    pub ring: CopyRing,
}

syntax!(AsyncWait: "async_wait" [pending] ring);

impl Operation for AsyncWait {
    operand_fields!();

    fn result_count(&self) -> usize {
        0
    }

    fn verify(&self, _: &Func, _: &[Value]) -> Result<(), String> {
        if self.pending < self.ring.slots {
            Ok(())
        } else {
            Err("more groups than slots are in flight".into())
        }
    }

    ordered!();
}

/// What elements are whose mask does not hold.
#[derive(Clone, Copy, Debug)]
pub struct MaskedElements {
    pub mask: Value,
    pub other: Value,
}

impl Operands for MaskedElements {
    fn collect(&self, to: &mut Vec<Value>) {
        to.extend([self.mask, self.other]);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.mask = by(self.mask);
        self.other = by(self.other);
    }
}

impl FieldText for MaskedElements {
    fn write(&self, out: &mut TextWriter) {
        self.mask.write(out);
        out.attribute("other", &self.other);
    }

    fn read(input: &mut TextReader) -> Result<MaskedElements, ParseError> {
        Ok(MaskedElements { mask: input.value()?, other: input.attribute("other")? })
    }
}

/// The elements of a load that this thread has copied to a slot, or all threads to a tile there.
#[derive(Clone, Copy, Debug)]
pub struct SlotLoad {
    pub from: CopyTarget,
    /// Elements of an instruction.
    pub vector: u32,
    /// Without it they are 0, as they were copied.
    pub masked: Option<MaskedElements>,
}

syntax!(SlotLoad: "slot_load" from [vector] ["mask" masked]);

impl Operation for SlotLoad {
    operand_fields!(from, masked);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(results[0]);
        self.from.verify(func)?;
        self.masked.map_or(Ok(()), |MaskedElements { mask, other }| {
            expect_types("the mask", func.ty(mask), &ty.with(DType::Bool))?;
            expect_types("`other`", func.ty(other), ty)
        })
    }

    ordered!();
}

/// Writes a tile to the tile of a slot, each thread its elements.
#[derive(Clone, Copy, Debug)]
pub struct SlotStore {
    pub value: Value,
    /// Of [`SlotTile`].
    pub to: Value,
}

syntax!(SlotStore: "slot_store" value ["to" to]);

impl Operation for SlotStore {
    operand_fields!(value, to);

    fn result_count(&self) -> usize {
        0
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        expect_storage("the tile", func, self.to, super::is_smem)?;
        let wanted = func.ty(self.to).stored(Storage::Registers);
        expect_types("the value", func.ty(self.value), &wanted)
    }

    ordered!();
}

/// The tile of a load in a slot, or a view of it: what copies write and dots read.
#[derive(Clone, Debug)]
pub struct SlotTile {
    pub slot: Value,
    /// From the start of the slot.
    pub offset: u32,
    pub tile: OperandTile,
    /// The axis along which elements are contiguous in memory.
    pub fast: usize,
}

syntax!(SlotTile: "slot_tile" slot [offset] tile [fast]);

impl Operation for SlotTile {
    operand_fields!(slot);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the slot", func, self.slot, is_slot)?;
        expect_storage("the result", func, results[0], super::is_smem)?;
        let rank = func.ty(results[0]).shape.rank();
        expect_types("the number of strides", self.tile.strides.len(), rank)?;
        let exists = self.fast < rank && addresses(func, self.slot) > 0;
        if exists { Ok(()) } else { Err("there is no such axis, or no address of the slot".into()) }
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

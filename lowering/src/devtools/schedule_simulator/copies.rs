//! Copies of threads to the slots of a ring, their groups and the waits for them.
//!
//! A slot is simulated by its bytes: an element is at the address that the geometry of its tile gives it, or in its thread's part.
//! From the start of its copy to the wait for its group nobody may read it, whenever it lands. All warps are one agent, so the
//! barriers between threads that copy and threads that read are not tested here.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::agent::{Datum, Step};
use super::machine::Cx;
use super::number::Number;
use super::simulate::Simulate;
use super::tile::{Elements, TileValue, extents, for_each_index};
use tile_ir::ir::{Op, Type, Value};
use tile_ir::ops::schedule::{CopyRing, CopyTarget, OperandTile, SlotNeighbor, ThreadPart};
use tile_ir::ops::{
    AsyncCopy, AsyncGroup, AsyncWait, RingStart, SlotAt, SlotLoad, SlotStep, SlotStore, SlotTile,
};

/// Where an element is in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum SlotCell {
    /// Of a load that starts at an offset, the element with this position.
    Thread { offset: u32, position: usize },
    /// The byte of a tile.
    Byte(u32),
}

/// A slot of the ring that starts at an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotIndex {
    ring: u32,
    index: u32,
}

/// A tile in a slot.
#[derive(Clone, Debug)]
pub struct TileInSlot {
    slot: SlotIndex,
    offset: u32,
    tile: OperandTile,
}

/// An element on its way.
#[derive(Clone, Copy, Debug)]
pub struct CopiedElement {
    slot: SlotIndex,
    cell: SlotCell,
    number: Number,
}

/// What an agent has copied.
#[derive(Default)]
pub struct CopyState {
    landed: HashMap<(SlotIndex, SlotCell), Number>,
    /// Groups that were not waited for, the first one first.
    groups: VecDeque<Vec<CopiedElement>>,
    /// The copies of the group whose block runs.
    open: Vec<CopiedElement>,
    /// Whether dots of warpgroups see all that has landed.
    pub is_fenced: bool,
}

impl CopyState {
    /// Starts copies: what was in their place is gone.
    fn start(&mut self, copies: Vec<CopiedElement>) {
        for copy in &copies {
            self.landed.remove(&(copy.slot, copy.cell));
        }
        self.groups.push_back(copies);
    }

    fn wait(&mut self, pending: usize) {
        while self.groups.len() > pending {
            self.is_fenced = false;
            let landed = self.groups.pop_front().into_iter().flatten();
            self.landed.extend(landed.map(|copy| ((copy.slot, copy.cell), copy.number)));
        }
    }
}

/// The byte of an element, by its index.
fn tile_byte(offset: u32, tile: &OperandTile, index: &[usize]) -> SlotCell {
    let (within, beyond) = tile.distance(|axis| index[axis] as u32);
    SlotCell::Byte(offset + within + beyond)
}

impl Cx<'_, '_> {
    fn slot(&self, value: Value) -> Result<SlotIndex, String> {
        match self.datum(value)? {
            Datum::Slot(slot) => Ok(slot),
            _ => Err(format!("{} is no slot", self.shared.names.name(value))),
        }
    }

    /// The slot so many behind another one.
    fn slot_behind(&self, slot: SlotIndex, ring: CopyRing, count: u32) -> Result<SlotIndex, String> {
        if ring.start != slot.ring || slot.index >= ring.slots {
            return Err("takes a slot of another ring".into());
        }
        Ok(SlotIndex { index: (slot.index + count) % ring.slots, ..slot })
    }

    fn landed(&self, slot: SlotIndex, cell: SlotCell) -> Result<Number, String> {
        let found = self.agent.copies.landed.get(&(slot, cell)).copied();
        found.ok_or_else(|| format!("reads slot {} where nothing has landed", slot.index))
    }

    /// What is in a tile of a slot.
    pub fn tile_in_slot(&self, value: Value, of: &TileInSlot) -> Result<TileValue, String> {
        let ty = self.shared.func.ty(value);
        let shape = extents(&ty.shape);
        let mut numbers = vec![];
        for_each_index(&shape, |index| {
            numbers.push(self.landed(of.slot, tile_byte(of.offset, &of.tile, index)));
        });
        let numbers = numbers.into_iter().collect::<Result<Vec<Number>, String>>()?;
        Ok(TileValue { shape, elements: Elements::of(ty.dtype, numbers.into_iter()) })
    }

    /// Starts copies that were prepared.
    pub fn start_prepared(&mut self, prepared: Option<Value>) -> Result<(), String> {
        let Some(prepared) = prepared else { return Ok(()) };
        match self.agent.values.remove(&prepared) {
            Some(Datum::Copies(copies)) => self.agent.copies.start((*copies).clone()),
            _ => return Err("interleaves copies that were not prepared, or were started before".into()),
        }
        Ok(())
    }

    /// The block of a group has ended, or is left out.
    fn end_group(&mut self, op: &Op) -> Result<Step, String> {
        let copies = std::mem::take(&mut self.agent.copies.open);
        if op.results.is_empty() {
            self.agent.copies.start(copies);
            return Ok(Step::Next);
        }
        self.define_data(op, vec![Datum::Copies(Rc::new(copies))])
    }
}

impl Simulate for RingStart {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        cx.define_data(op, vec![Datum::Slot(SlotIndex { ring: self.ring.start, index: 0 })])
    }
}

impl Simulate for SlotAt {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let slot = cx.slot_behind(cx.slot(self.first)?, self.ring, self.index)?;
        cx.define_data(op, vec![Datum::Slot(slot)])
    }
}

impl Simulate for SlotStep {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let count = match self.to {
            SlotNeighbor::Next => 1,
            SlotNeighbor::Previous => self.ring.slots - 1,
        };
        let slot = cx.slot_behind(cx.slot(self.slot)?, self.ring, count)?;
        cx.define_data(op, vec![Datum::Slot(slot)])
    }
}

impl Simulate for AsyncCopy {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let shape = cx.shared.func.ty(self.from.offset).shape.clone();
        let ty = Type::tile(cx.shared.func.slice(self.from.param).0, shape);
        let tile = cx.read_elements(&self.from, TileValue::zeros(&ty))?;
        let (slot, target) = match self.to {
            CopyTarget::Thread(ThreadPart { slot, offset, .. }) => (cx.slot(slot)?, Err(offset)),
            CopyTarget::Tile(target) => match cx.datum(target)? {
                Datum::TileInSlot(of) => (of.slot, Ok(of)),
                _ => return Err("copies to what is no tile of a slot".into()),
            },
        };
        let mut copies = vec![];
        for_each_index(&tile.shape, |index| {
            let position = tile.position(index);
            let cell = match &target {
                Ok(of) => tile_byte(of.offset, &of.tile, index),
                Err(offset) => SlotCell::Thread { offset: *offset, position },
            };
            copies.push(CopiedElement { slot, cell, number: tile.elements.get(position) });
        });
        cx.agent.copies.open.extend(copies);
        Ok(Step::Next)
    }
}

impl Simulate for AsyncGroup {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        if cx.tile(self.only_if)?.is_true() {
            return Ok(cx.agent.enter(&self.body, vec![], 0));
        }
        cx.end_group(op)
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        cx.end_group(op)?;
        Ok(cx.agent.leave())
    }
}

impl Simulate for AsyncWait {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        cx.agent.copies.wait(self.pending as usize);
        Ok(Step::Next)
    }
}

impl Simulate for SlotLoad {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let ty = cx.shared.func.ty(op.results[0]).clone();
        let mut landed = vec![];
        match self.from {
            CopyTarget::Thread(ThreadPart { slot, offset, .. }) => {
                let slot = cx.slot(slot)?;
                for position in 0..ty.shape.elements() as usize {
                    landed.push(cx.landed(slot, SlotCell::Thread { offset, position }));
                }
            }
            CopyTarget::Tile(tile) => {
                let Datum::TileInSlot(of) = cx.datum(tile)? else {
                    return Err("loads from what is no tile of a slot".into());
                };
                for_each_index(&extents(&ty.shape), |index| {
                    landed.push(cx.landed(of.slot, tile_byte(of.offset, &of.tile, index)));
                });
            }
        }
        let masked = self.masked.map(|own| Ok::<_, String>([cx.tile(own.mask)?, cx.tile(own.other)?]));
        let masked = masked.transpose()?;
        let number = |(position, landed)| match &masked {
            Some([mask, other]) if !mask.elements.get(position).is_true() => Ok(other.elements.get(position)),
            _ => landed,
        };
        let numbers = landed.into_iter().enumerate().map(number);
        let numbers = numbers.collect::<Result<Vec<Number>, String>>()?;
        let elements = Elements::of(ty.dtype, numbers.into_iter());
        cx.define(op, vec![TileValue::new(&ty, elements)])
    }
}

impl Simulate for SlotStore {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let tile = cx.tile(self.value)?;
        let Datum::TileInSlot(of) = cx.datum(self.to)? else {
            return Err("stores to what is no tile of a slot".into());
        };
        for_each_index(&tile.shape, |index| {
            let cell = tile_byte(of.offset, &of.tile, index);
            cx.agent.copies.landed.insert((of.slot, cell), tile.elements.get(tile.position(index)));
        });
        cx.agent.copies.is_fenced = false;
        Ok(Step::Next)
    }
}

impl Simulate for SlotTile {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let tile = TileInSlot { slot: cx.slot(self.slot)?, offset: self.offset, tile: self.tile.clone() };
        cx.define_data(op, vec![Datum::TileInSlot(Rc::new(tile))])
    }
}

//! Buffers in shared memory, pipeline states, and tiles as words.

use super::{
    Operation, expect_stages, expect_storage, is_mbarrier, is_pipe, is_smem, operand_fields, ordered,
};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, Storage, TextReader, Value};
use crate::ops::syntax::syntax;
use crate::ops::{Effect, expect_types};

/// One stage of a buffer: the buffer and a pipeline state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage {
    pub buffer: Value,
    pub pipe: Value,
}

impl FieldText for Stage {
    fn write(&self, out: &mut TextWriter) {
        self.buffer.write(out);
        out.push("[");
        out.name(self.pipe);
        out.push("]");
    }

    fn read(input: &mut TextReader) -> Result<Stage, ParseError> {
        let buffer = input.value()?;
        Stage::read_behind(buffer, input)
    }
}

impl Stage {
    /// What stands behind the buffer.
    pub(super) fn read_behind(buffer: Value, input: &mut TextReader) -> Result<Stage, ParseError> {
        input.expect("[")?;
        let pipe = input.value()?;
        input.expect("]")?;
        Ok(Stage { buffer, pipe })
    }
}

impl super::Operands for Stage {
    fn collect(&self, to: &mut Vec<Value>) {
        to.extend([self.buffer, self.pipe]);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.buffer = by(self.buffer);
        self.pipe = by(self.pipe);
    }
}

impl Stage {
    pub(super) fn verify(self, func: &Func) -> Result<(), String> {
        expect_storage("the buffer", func, self.buffer, is_smem)?;
        expect_stages(func, self.buffer, self.pipe)
    }

    pub(super) fn verify_barrier(self, func: &Func) -> Result<(), String> {
        expect_storage("the barrier", func, self.buffer, is_mbarrier)?;
        expect_stages(func, self.buffer, self.pipe)
    }
}

/// A buffer in shared memory, as many bytes from its start as `address` says; stages are `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct SmemAlloc {
    pub address: u32,
    pub stride: u32,
}

syntax!(SmemAlloc: "smem_alloc" ["at" address] [stride]);

impl Operation for SmemAlloc {
    operand_fields!();

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the result", func, results[0], is_smem)
    }

    ordered!();
}

/// A list of `mbarrier` objects in shared memory, from `address` on; [`super::MbarInit`] initializes them.
#[derive(Clone, Copy, Debug)]
pub struct MbarAlloc {
    pub address: u32,
}

syntax!(MbarAlloc: "mbar_alloc" ["at" address]);

impl Operation for MbarAlloc {
    operand_fields!();

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the result", func, results[0], is_mbarrier)
    }

    ordered!();
}

/// The first state of a pipeline; to the producer all stages are empty.
#[derive(Clone, Copy, Debug)]
pub struct PipeStart {
    pub role: super::Role,
}

syntax!(PipeStart: "pipe_start" role);

impl Operation for PipeStart {
    operand_fields!();

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the result", func, results[0], is_pipe)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

/// The pipeline state behind another one: the next stage, and the other phase where the stages begin again.
#[derive(Clone, Copy, Debug)]
pub struct PipeNext {
    pub pipe: Value,
}

syntax!(PipeNext: "pipe_next" pipe);

impl Operation for PipeNext {
    operand_fields!(pipe);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the pipeline state", func, self.pipe, is_pipe)?;
        expect_types("the result", func.ty(results[0]), func.ty(self.pipe))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

/// A stage of a buffer as operand A of warpgroup dots, in registers (`ldmatrix`): the words of the accumulator's rows.
#[derive(Clone, Copy, Debug)]
pub struct SmemLoadWords {
    pub from: Stage,
    /// The rows of the dot's result.
    pub rows: u32,
}

syntax!(SmemLoadWords: "smem_load" from [rows]);

impl Operation for SmemLoadWords {
    operand_fields!(from);

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        self.from.verify(func)?;
        let wanted = func.ty(self.from.buffer).stored(Storage::Words);
        expect_types("the result", func.ty(results[0]), &wanted)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

/// A tile whose elements do not matter: what a loop carries at first of an accumulator that its first dot does not add to.
#[derive(Clone, Copy, Debug)]
pub struct Poison;

syntax!(Poison: "poison");

impl Operation for Poison {
    operand_fields!();

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_storage("the result", func, results[0], |storage| storage == Storage::Registers)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

macro_rules! repacking {
    ($(#[doc = $doc:literal])+ $name:ident, $text:literal, $from:ident, $to:ident) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            pub value: Value,
        }

        syntax!($name: $text value);

        impl Operation for $name {
            operand_fields!(value);

            fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
                let value = func.ty(self.value);
                expect_types("the operand", value, &value.stored(Storage::$from))?;
                expect_types("the result", func.ty(results[0]), &value.stored(Storage::$to))
            }

            fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
                LayoutRelation::Free
            }
        }
    };
}

repacking! {
    /// A tile as 32-bit words: a loop then carries half as many registers of 16-bit elements.
    Pack, "pack", Registers, Words
}

repacking! {
    /// The tile of words that [`Pack`] made; the result has the layout that the packed tile had.
    Unpack, "unpack", Words, Registers
}

//! Where and when a program runs, as PTX's special registers say: the multiprocessor, the clock.

use super::typing::{Call, Operand, TypingCx};
use super::{Effect, Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{OperationText, TextWriter};
use crate::ir::{Func, ParseError, TextReader, Type, Value};
use crate::support::dtype::DType;

/// A register of a GPU that no operand determines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecialRegister {
    /// The index of the streaming multiprocessor.
    SmId,
    /// Nanoseconds since a moment that is the same for all programs.
    GlobalTimer,
}

impl SpecialRegister {
    const ALL: [SpecialRegister; 2] = [SpecialRegister::SmId, SpecialRegister::GlobalTimer];

    /// As users and PTX write it.
    pub fn name(self) -> &'static str {
        match self {
            SpecialRegister::SmId => "smid",
            SpecialRegister::GlobalTimer => "globaltimer",
        }
    }

    pub fn dtype(self) -> DType {
        match self {
            SpecialRegister::SmId => DType::I32,
            SpecialRegister::GlobalTimer => DType::I64,
        }
    }
}

/// Reads a special register, once for the whole program: a branch on the result is taken by all threads or by none.
#[derive(Clone, Copy, Debug)]
pub struct ReadRegister {
    pub register: SpecialRegister,
}

impl OperationText for ReadRegister {
    fn name(&self) -> &'static str {
        self.register.name()
    }

    fn write(&self, _: &mut TextWriter) {}

    fn is_named(name: &str) -> bool {
        SpecialRegister::ALL.iter().any(|register| register.name() == name)
    }

    fn read(name: &str, input: &mut TextReader) -> Result<ReadRegister, ParseError> {
        let register = SpecialRegister::ALL.into_iter().find(|register| register.name() == name);
        Ok(ReadRegister { register: register.ok_or_else(|| input.unexpected())? })
    }
}

impl Operation for ReadRegister {
    fn operands(&self) -> Vec<Value> {
        vec![]
    }

    fn map(&mut self, _: &mut dyn FnMut(Value) -> Value) {}

    /// A clock that moved, or was read twice or once instead of twice, would tell another time. What only reads may be moved among other
    /// reads, so that a clock counts as a write.
    fn effect(&self) -> Effect {
        match self.register {
            SpecialRegister::SmId => Effect::Read,
            SpecialRegister::GlobalTimer => Effect::Write,
        }
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the result", func.ty(results[0]), &Type::scalar(self.register.dtype()))
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        let info = AxisInfo::unknown(env.func().ty(results[0]));
        vec![AxisInfo { range: (0, self.register.dtype().range().1), ..info }]
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "smid",
        returns: Returns::Tile,
        example: "tl::atomic_add(counts + tl::smid(), 1u32).sem(\"relaxed\");",
        generic: IntrinsicGeneric::None,
        params: &[],
        doc: "The index of the streaming multiprocessor that this program runs on, an `i32`; 0 on a CPU. Of a program that is a cluster, it is that of the first block. It is for measurements: which programs share a multiprocessor is up to the GPU, and differs between launches.",
        check: |cx, call| read(cx, call, SpecialRegister::SmId),
    },
    Intrinsic {
        name: "globaltimer",
        returns: Returns::Tile,
        example: "let start = tl::globaltimer();\nlet total = tl::sum(tile);\ntl::store(out, total);\nlet nanoseconds = tl::globaltimer() - start;",
        generic: IntrinsicGeneric::None,
        params: &[],
        doc: "The time in nanoseconds since some moment in the past, an `i64`: of one GPU, or of one CPU, which never goes back. Differences are what counts. Each call reads the clock where it stands, also one whose result is not used: calls are not merged, repeated or taken out of a loop, and loads and stores of memory stay on their side. Arithmetic between two calls may still be computed before or after both of them. A program has one time: one thread reads the clock for all, and the others wait for it. A GPU updates its clock in steps, of up to a microsecond.",
        check: |cx, call| read(cx, call, SpecialRegister::GlobalTimer),
    },
];

fn read(cx: &mut dyn TypingCx, call: &Call, register: SpecialRegister) -> Operand {
    cx.emit(ReadRegister { register }, Type::scalar(register.dtype()), call.loc)
}

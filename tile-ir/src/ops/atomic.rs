//! Atomic read-modify-write of elements of memory.

use super::memory::{element, mask, written};
use super::typing::{Call, Item, Operand, TypingCx};
use super::{
    Effect, Intrinsic, IntrinsicGeneric, IntrinsicParam, MethodChoice, Operation, Returns, expect_types,
    optional, required,
};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, OperationText, TextWriter};
use crate::ir::{Func, ParseError, TextReader, Type, Value};
use crate::ops::MemAccess;
use crate::support::diagnostic::list;
use crate::support::dtype::DType;

/// The read-modify-write operation on an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicChange {
    Add,
    Max,
    Min,
    And,
    Or,
    Xor,
    /// The value itself.
    Exchange,
    /// The value, where the element's bits are those of another one.
    CompareExchange,
}

/// What other accesses of this program may not move past an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryOrder {
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

/// The threads for which it is one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryScope {
    Block,
    Gpu,
    System,
}

impl MemoryOrder {
    const ALL: [MemoryOrder; 4] =
        [MemoryOrder::Relaxed, MemoryOrder::Acquire, MemoryOrder::Release, MemoryOrder::AcqRel];

    /// As users and PTX write it.
    pub fn name(self) -> &'static str {
        match self {
            MemoryOrder::Relaxed => "relaxed",
            MemoryOrder::Acquire => "acquire",
            MemoryOrder::Release => "release",
            MemoryOrder::AcqRel => "acq_rel",
        }
    }
}

impl MemoryScope {
    const ALL: [MemoryScope; 3] = [MemoryScope::Block, MemoryScope::Gpu, MemoryScope::System];

    /// As users and PTX write it.
    pub fn name(self) -> &'static str {
        match self {
            MemoryScope::Block => "cta",
            MemoryScope::Gpu => "gpu",
            MemoryScope::System => "sys",
        }
    }
}

impl AtomicChange {
    const ALL: [AtomicChange; 8] = [
        AtomicChange::Add,
        AtomicChange::Max,
        AtomicChange::Min,
        AtomicChange::And,
        AtomicChange::Or,
        AtomicChange::Xor,
        AtomicChange::Exchange,
        AtomicChange::CompareExchange,
    ];

    /// The one of this name.
    fn of(name: &str) -> Option<AtomicChange> {
        AtomicChange::ALL.into_iter().find(|change| change.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            AtomicChange::Add => "atomic_add",
            AtomicChange::Max => "atomic_max",
            AtomicChange::Min => "atomic_min",
            AtomicChange::And => "atomic_and",
            AtomicChange::Or => "atomic_or",
            AtomicChange::Xor => "atomic_xor",
            AtomicChange::Exchange => "atomic_xchg",
            AtomicChange::CompareExchange => "atomic_cas",
        }
    }

    /// Element types that it can be done to.
    pub fn takes(self, dtype: DType) -> bool {
        let wide = dtype.bytes() >= 4;
        match self {
            AtomicChange::Add => wide || dtype.is_half(),
            AtomicChange::And | AtomicChange::Or | AtomicChange::Xor => wide && !dtype.is_float(),
            AtomicChange::Max
            | AtomicChange::Min
            | AtomicChange::Exchange
            | AtomicChange::CompareExchange => wide,
        }
    }
}

/// Changes elements of a slice; the result is what they were, 0 for those masked off.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    pub change: AtomicChange,
    pub access: MemAccess,
    /// What an element must be for a [`AtomicChange::CompareExchange`].
    pub compare: Option<Value>,
    pub value: Value,
    pub order: MemoryOrder,
    pub scope: MemoryScope,
}

impl FieldText for MemoryOrder {
    fn write(&self, out: &mut TextWriter) {
        out.word(self.name());
    }

    fn read(input: &mut TextReader) -> Result<MemoryOrder, ParseError> {
        input.one_of(&MemoryOrder::ALL.map(|order| (order.name(), order)))
    }
}

impl FieldText for MemoryScope {
    fn write(&self, out: &mut TextWriter) {
        out.word(self.name());
    }

    fn read(input: &mut TextReader) -> Result<MemoryScope, ParseError> {
        input.one_of(&MemoryScope::ALL.map(|scope| (scope.name(), scope)))
    }
}

impl OperationText for Atomic {
    fn name(&self) -> &'static str {
        self.change.name()
    }

    fn write(&self, out: &mut TextWriter) {
        if let Some(compare) = self.compare {
            compare.write(out);
            out.push(",");
        }
        self.value.write(out);
        out.push(",");
        self.access.write(out);
        out.attribute("order", &self.order);
        out.attribute("scope", &self.scope);
    }

    fn is_named(name: &str) -> bool {
        AtomicChange::of(name).is_some()
    }

    fn read(name: &str, input: &mut TextReader) -> Result<Atomic, ParseError> {
        let change = AtomicChange::of(name).ok_or_else(|| input.unexpected())?;
        let compare = if change == AtomicChange::CompareExchange {
            let compare = input.value()?;
            input.expect(",")?;
            Some(compare)
        } else {
            None
        };
        let value = input.value()?;
        input.expect(",")?;
        let access = MemAccess::read(input)?;
        let (order, scope) = (input.attribute("order")?, input.attribute("scope")?);
        Ok(Atomic { change, access, compare, value, order, scope })
    }
}

impl Operation for Atomic {
    fn operands(&self) -> Vec<Value> {
        self.access.operands().into_iter().chain(self.compare).chain([self.value]).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.access.map(change);
        self.compare = self.compare.map(&mut *change);
        self.value = change(self.value);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (elem, mutable) = func.slice(self.access.param);
        if !mutable {
            return Err("the slice is read-only".into());
        }
        if !self.change.takes(elem) {
            return Err(format!("does not take {elem}"));
        }
        if self.compare.is_some() != (self.change == AtomicChange::CompareExchange) {
            return Err("compares where it should not, or the reverse".into());
        }
        let ty = func.ty(self.value);
        for other in self.compare.into_iter().chain([results[0]]) {
            expect_types("the type", func.ty(other), ty)?;
        }
        self.access.verify(func, ty)
    }

    fn access(&self) -> Option<&MemAccess> {
        Some(&self.access)
    }

    fn access_mut(&mut self) -> Option<&mut MemAccess> {
        Some(&mut self.access)
    }

    /// Additions to contiguous elements may be one vector instruction; everything else is one by one.
    fn set_vector(&mut self, vector: u32) {
        if self.change == AtomicChange::Add {
            self.access.vector = vector;
        }
    }

    fn ordering_mut(&mut self) -> Option<(&mut MemoryOrder, &mut MemoryScope)> {
        Some((&mut self.order, &mut self.scope))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

/// The laws that all of them share, at the end of each doc.
macro_rules! laws {
    ($doc:literal) => {
        concat!(
            $doc,
            " Each element of the pointer tile is changed exactly once, in no particular order; two elements that go to one address change it twice. The result is what the element was, 0 where `mask` is false or the offset lies outside the slice. A GPU orders other accesses around it (`acq_rel`, for all programs on the GPU) unless `.sem(..)` and `.scope(..)` say less; sums and counters want `.sem(\"relaxed\")`, which is much faster. A result that is not used costs no wait."
        )
    };
}

const PARAMS: &[IntrinsicParam] = &[required("pointer"), required("value"), optional("mask")];

macro_rules! functions {
    ($($name:literal, $change:ident, $example:literal, $doc:literal;)*) => {
        pub(super) const FUNCTIONS: &[Intrinsic] = &[
            $(Intrinsic {
                name: $name,
                returns: Returns::Tile,
                example: $example,
                generic: IntrinsicGeneric::None,
                params: PARAMS,
                doc: laws!($doc),
                check: |cx, call| atomic(cx, call, AtomicChange::$change),
            },)*
            Intrinsic {
                name: "atomic_cas",
                returns: Returns::Tile,
                example: "let before = tl::atomic_cas(out, 0.0, 1.0);\nlet first = before == 0.0;",
                generic: IntrinsicGeneric::None,
                params: &[required("pointer"), required("compare"), required("value"), optional("mask")],
                doc: laws!("Writes `value` where an element's bits are those of `compare`, and leaves others alone: for floats, `-0.0` is not `0.0` and a NaN equals itself. 32- and 64-bit integers and floats."),
                check: |cx, call| atomic(cx, call, AtomicChange::CompareExchange),
            },
        ];
    };
}

functions! {
    "atomic_add", Add, "tl::atomic_add(out + n % 8, tl::sum(tile)).sem(\"relaxed\");",
        "Adds `value` to elements of memory. Integers of 32 and 64 bits, which wrap; `f32` and `f64`; `f16` and `bf16`, each sum rounded. What sums of floats give depends on their order, which differs from run to run; a GPU takes subnormal `f32` for zero when it adds them in memory.";
    "atomic_max", Max, "let before = tl::atomic_max(out, tl::max(tile));",
        "Raises elements of memory to `value` where it is larger. Integers and floats of 32 and 64 bits. `-0.0` is below `0.0`; a `value` of NaN makes the element NaN, as `maximum` does; a NaN of negative sign that memory held before counts as below everything.";
    "atomic_min", Min, "let before = tl::atomic_min(out, tl::min(tile));",
        "Lowers elements of memory to `value` where it is smaller. Integers and floats of 32 and 64 bits. `-0.0` is below `0.0`; a `value` of NaN makes the element NaN, as `minimum` does; a NaN of positive sign that memory held before counts as above everything.";
    "atomic_and", And, "let before = tl::atomic_and(counts, !(1u32 << 3));",
        "Bitwise and of elements of memory and `value`. Integers of 32 and 64 bits.";
    "atomic_or", Or, "let seen = tl::atomic_or(counts + n / 32, 1u32 << (n % 32).to::<u32>());",
        "Bitwise or of elements of memory and `value`. Integers of 32 and 64 bits.";
    "atomic_xor", Xor, "let before = tl::atomic_xor(counts, 1u32);",
        "Bitwise exclusive or of elements of memory and `value`. Integers of 32 and 64 bits.";
    "atomic_xchg", Exchange, "let before = tl::atomic_xchg(out + tl::arange(0, BLOCK), tile);",
        "Writes `value` to elements of memory and gives what they were. 32- and 64-bit integers and floats.";
}

pub(super) const CHOICES: &[MethodChoice] = &[
    MethodChoice { what: "memory order", methods: &["sem"] },
    MethodChoice { what: "scope", methods: &["scope"] },
];

pub(super) const METHODS: &[Intrinsic] = &[
    Intrinsic {
        name: "sem",
        returns: Returns::Tile,
        example: "tl::atomic_add(out, 1.0).sem(\"relaxed\");",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("order")],
        doc: "On an atomic function: what other accesses may not move past it. `\"relaxed\"`: nothing is ordered; `\"acquire\"`: later accesses stay later; `\"release\"`: earlier accesses stay earlier; `\"acq_rel\"`, the default: both.",
        check: |cx, call| {
            let named = MemoryOrder::ALL.map(|order| (order.name(), order));
            let Some(order) = choice(cx, call, &named) else { return Operand::failed(call.loc) };
            set(cx, call, |own, _| *own = order)
        },
    },
    Intrinsic {
        name: "scope",
        returns: Returns::Tile,
        example: "tl::atomic_add(out, 1.0).scope(\"sys\");",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("scope")],
        doc: "On an atomic function: who sees it as one operation. `\"cta\"`: this program; `\"gpu\"`, the default: every program on the GPU; `\"sys\"`: the host and other GPUs too.",
        check: |cx, call| {
            let named = MemoryScope::ALL.map(|scope| (scope.name(), scope));
            let Some(scope) = choice(cx, call, &named) else { return Operand::failed(call.loc) };
            set(cx, call, |_, own| *own = scope)
        },
    },
];

/// The argument as one of several words.
pub(super) fn choice<T: Copy>(cx: &mut dyn TypingCx, call: &Call, named: &[(&str, T)]) -> Option<T> {
    let operand = &call.args[1];
    let known = || list(named.iter().map(|(name, _)| format!("`\"{name}\"`")));
    let Item::Text(text) = &operand.item else {
        if !matches!(operand.item, Item::Failed) {
            let problem = format!("{} takes a word, found {}", call.what, cx.describe(operand));
            cx.error_help(operand.loc, problem, format!("it is one of {}", known()));
        }
        return None;
    };
    let found = named.iter().find(|(name, _)| name == text).map(|(_, choice)| *choice);
    if found.is_none() {
        cx.error_help(
            operand.loc,
            format!("{} does not know `\"{text}\"`", call.what),
            format!("it is one of {}", known()),
        );
    }
    found
}

/// Changes the atomic operation that the method is called on.
fn set(
    cx: &mut dyn TypingCx,
    call: &Call,
    change: impl FnOnce(&mut MemoryOrder, &mut MemoryScope),
) -> Operand {
    let found = cx.operation_of(&call.args[0]);
    match found.and_then(|op| op.kind.operation_mut().ordering_mut()) {
        Some((order, scope)) => {
            change(order, scope);
            Operand { loc: call.loc, ..call.args[0].clone() }
        }
        None => cx.error_help(
            call.name_loc,
            format!("{} belongs to an atomic function", call.what),
            format!("write it behind the call: `tl::atomic_add(pointer, value).{}(..)`", call.name),
        ),
    }
}

fn atomic(cx: &mut dyn TypingCx, call: &Call, change: AtomicChange) -> Operand {
    let Some((pointer, name)) = written(cx, call) else { return Operand::failed(call.loc) };
    let (elem, _) = cx.func().slice(pointer.param);
    if !change.takes(elem) {
        let known = list(DType::ALL.into_iter().filter(|&dtype| change.takes(dtype)));
        return cx.error(call.args[0].loc, format!("{} takes {known}, found {elem}", call.what));
    }
    let compares = usize::from(change == AtomicChange::CompareExchange);
    let what = format!("a value for `{name}`");
    let mut taken = vec![];
    for operand in &call.args[1..2 + compares] {
        taken.push(element(cx, operand, &pointer, [&what, "the value"]));
    }
    let mask = mask(cx, call.args.get(2 + compares), &pointer);
    let taken: Result<Vec<Value>, ()> = taken.into_iter().collect();
    let (Ok(taken), Ok(mask)) = (taken, mask) else { return Operand::failed(call.loc) };
    let op = Atomic {
        change,
        access: pointer.access(mask),
        compare: (compares == 1).then(|| taken[0]),
        value: taken[compares],
        order: MemoryOrder::AcqRel,
        scope: MemoryScope::Gpu,
    };
    cx.emit(op, Type::tile(elem, pointer.shape), call.loc)
}

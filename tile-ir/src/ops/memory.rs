//! Reading and writing memory: a slice parameter, element offsets, and which elements take part.

use super::cache::{CacheHints, CacheModifier};
use super::typing::{Call, Item, Operand, Pointer, TypingCx};
use super::{Effect, Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, optional, required};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParamId, ParamKind, ParseError, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// What a memory operation accesses: `base + offset` elements from the start of the slice, for elements whose mask holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemAccess {
    pub param: ParamId,
    /// An `i64` scalar, once `index` has split the offset; the whole offset is in `offset` before.
    pub base: Option<Value>,
    /// Integers of any width, of the access's shape.
    pub offset: Value,
    /// Bools of the access's shape.
    pub mask: Option<Value>,
    /// Whether elements whose mask holds may still be out of bounds: the emitters then compare.
    pub bounded: bool,
    /// How many contiguous elements one thread moves with one instruction; set by `gpu::layout`.
    pub vector: u32,
    /// How vectors are aligned where rows start at any element; set by `transform::rotate_rows` and `transform::read_unrotated`.
    pub shift: Option<Shift>,
}

/// Vectors of a row that starts at any element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shift {
    /// The most elements of a vector.
    pub elements: u32,
    /// The elements that rows are rotated by fewer of: vectors of as many are aligned in any part of a row.
    pub limit: u32,
    pub start: VectorStart,
    /// Whether the mask lets one contiguous run of elements through.
    pub interval: bool,
    /// Whether that run starts before all of them, or ends behind all.
    pub one_sided: bool,
}

/// Where vectors start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VectorStart {
    /// Those that are whole at aligned addresses, as the slice does.
    Aligned,
    /// Those that are whole at one distance behind aligned addresses: that of the slice and so many elements, an `i32` scalar. Where
    /// nobody knows it, each vector finds its own.
    Misaligned(Option<Value>),
    /// Anywhere: the tile was not rotated, and all elements of a vector are contiguous.
    Unrotated,
}

/// `slice[base + offset]`, and attributes.
impl FieldText for MemAccess {
    fn write(&self, out: &mut TextWriter) {
        self.param.write(out);
        out.push("[");
        if let Some(base) = self.base {
            out.name(base);
            out.push(" + ");
        }
        out.name(self.offset);
        out.push("]");
        out.attribute("mask", &self.mask);
        out.attribute("inside", &!self.bounded);
        out.attribute("vector", &Some(self.vector).filter(|&vector| vector != 1));
        if let Some(shift) = &self.shift {
            shift.write(out);
        }
    }

    fn read(input: &mut TextReader) -> Result<MemAccess, ParseError> {
        let param = input.memory()?;
        input.expect("[")?;
        let first = input.value()?;
        let (base, offset) = if input.take("+") { (Some(first), input.value()?) } else { (None, first) };
        input.expect("]")?;
        let mask = input.attribute("mask")?;
        let inside: bool = input.attribute("inside")?;
        let vector: Option<u32> = input.attribute("vector")?;
        let shift = if Shift::STARTS.iter().any(|word| input.begins(word)) {
            Some(Shift::read(input)?)
        } else {
            None
        };
        Ok(MemAccess { param, base, offset, mask, bounded: !inside, vector: vector.unwrap_or(1), shift })
    }
}

impl Shift {
    /// The words of where vectors start, by [`VectorStart`].
    const STARTS: [&str; 3] = ["rotated", "misaligned", "unrotated"];
}

impl FieldText for Shift {
    fn write(&self, out: &mut TextWriter) {
        let [aligned, misaligned, unrotated] = Shift::STARTS;
        match self.start {
            VectorStart::Aligned => out.word(aligned),
            VectorStart::Misaligned(elements) => {
                out.word(misaligned);
                elements.write(out);
            }
            VectorStart::Unrotated => out.word(unrotated),
        }
        out.attribute("elements", &self.elements);
        out.attribute("limit", &self.limit);
        out.attribute("interval", &self.interval);
        out.attribute("one_sided", &self.one_sided);
    }

    fn read(input: &mut TextReader) -> Result<Shift, ParseError> {
        let [aligned, misaligned, unrotated] = Shift::STARTS;
        let named = [
            (aligned, VectorStart::Aligned),
            (misaligned, VectorStart::Misaligned(None)),
            (unrotated, VectorStart::Unrotated),
        ];
        let mut start = input.one_of(&named)?;
        if start == VectorStart::Misaligned(None) && input.begins_value() {
            start = VectorStart::Misaligned(Some(input.value()?));
        }
        let (elements, limit) = (input.attribute("elements")?, input.attribute("limit")?);
        let (interval, one_sided) = (input.attribute("interval")?, input.attribute("one_sided")?);
        Ok(Shift { elements, limit, start, interval, one_sided })
    }
}

impl MemAccess {
    pub fn operands(&self) -> Vec<Value> {
        self.base.into_iter().chain([self.offset]).chain(self.mask).chain(self.misalignment()).collect()
    }

    /// The distance of vectors from aligned addresses, in elements.
    pub fn misalignment(&self) -> Option<Value> {
        match self.shift?.start {
            VectorStart::Misaligned(elements) => elements,
            VectorStart::Aligned | VectorStart::Unrotated => None,
        }
    }

    pub(super) fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.base = self.base.map(&mut *change);
        self.offset = change(self.offset);
        self.mask = self.mask.map(&mut *change);
        if let Some(Shift { start: VectorStart::Misaligned(Some(elements)), .. }) = &mut self.shift {
            *elements = change(*elements);
        }
    }

    pub(super) fn verify(&self, func: &Func, ty: &Type) -> Result<(), String> {
        let ParamKind::Slice { elem, .. } = func.params[self.param.index()].kind else {
            return Err("the parameter is not a slice".into());
        };
        expect_types("the element type", ty.dtype, elem)?;
        if let Some(base) = self.base {
            expect_types("the base", func.ty(base), &Type::scalar(DType::I64))?;
        }
        if let Some(elements) = self.misalignment() {
            expect_types("the distance from alignment", func.ty(elements), &Type::scalar(DType::I32))?;
        }
        let offset = func.ty(self.offset);
        expect_types("the offsets' shape", &offset.shape, &ty.shape)?;
        if !offset.dtype.is_integer() {
            return Err(format!("offsets are {}", offset.dtype));
        }
        match self.mask {
            Some(mask) => expect_types("the mask", func.ty(mask), &ty.with(DType::Bool)),
            None => Ok(()),
        }
    }
}

/// Reads elements; those masked off are `other`, or 0.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub access: MemAccess,
    pub other: Option<Value>,
    /// Nothing in the kernel writes this slice.
    pub invariant: bool,
    pub cache: CacheHints,
}

/// Writes elements; those masked off are left alone.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    pub access: MemAccess,
    pub value: Value,
    pub cache: CacheHints,
}

syntax!(Load: "load" access [other] cache {invariant: false});

impl Operation for Load {
    fn infer(&mut self, func: &Func, _: &[Value]) {
        let (_, mutable) = func.slice(self.access.param);
        self.invariant = !mutable;
    }

    fn operands(&self) -> Vec<Value> {
        self.access.operands().into_iter().chain(self.other).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.access.map(change);
        self.other = self.other.map(change);
    }

    fn effect(&self) -> Effect {
        let merges = self.invariant && self.cache.modifier != CacheModifier::Volatile;
        if merges { Effect::Pure } else { Effect::Read }
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(results[0]);
        self.access.verify(func, ty)?;
        let (_, mutable) = func.slice(self.access.param);
        expect_types("whether nothing writes the slice", self.invariant, !mutable)?;
        match self.other {
            Some(other) => expect_types("`other`", func.ty(other), ty),
            None => Ok(()),
        }
    }

    fn access(&self) -> Option<&MemAccess> {
        Some(&self.access)
    }

    fn access_mut(&mut self) -> Option<&mut MemAccess> {
        Some(&mut self.access)
    }

    fn cache(&self) -> Option<CacheHints> {
        Some(self.cache)
    }

    fn cache_mut(&mut self) -> Option<&mut CacheHints> {
        Some(&mut self.cache)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

syntax!(Store: "store" value, access cache);

impl Operation for Store {
    fn result_count(&self) -> usize {
        0
    }

    fn operands(&self) -> Vec<Value> {
        self.access.operands().into_iter().chain([self.value]).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.access.map(change);
        self.value = change(self.value);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        let (_, mutable) = func.slice(self.access.param);
        if !mutable {
            return Err("the slice is read-only".into());
        }
        self.access.verify(func, func.ty(self.value))
    }

    fn access(&self) -> Option<&MemAccess> {
        Some(&self.access)
    }

    fn access_mut(&mut self) -> Option<&mut MemAccess> {
        Some(&mut self.access)
    }

    fn cache(&self) -> Option<CacheHints> {
        Some(self.cache)
    }

    fn cache_mut(&mut self) -> Option<&mut CacheHints> {
        Some(&mut self.cache)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "load",
        returns: Returns::Tile,
        example: "let offsets = tl::arange(0, BLOCK);\nlet row = tl::load(x + offsets, offsets < n, f32::NEG_INFINITY);",
        generic: IntrinsicGeneric::None,
        params: &[required("pointer"), optional("mask"), optional("other")],
        doc: "Reads the elements a pointer tile points to; `slice + offsets` makes one. Where `mask` is false nothing is read and the element is `other`, or 0 without it. An offset outside the slice is masked off by the compiler, and reported by a debug build. The mask and `other` broadcast to the pointer's shape; a scalar pointer reads a scalar.",
        check: load,
    },
    Intrinsic {
        name: "store",
        returns: Returns::Nothing,
        example: "let offsets = tl::arange(0, BLOCK);\ntl::store(out + offsets, tile * 2.0, offsets < n);",
        generic: IntrinsicGeneric::None,
        params: &[required("pointer"), required("value"), optional("mask")],
        doc: "Writes `value` to the elements a pointer tile points to, except where `mask` is false or the offset lies outside the slice. A debug build reports the latter. The value and mask broadcast to the pointer's shape. Two elements that go to one address leave either of them there.",
        check: store,
    },
];

impl Pointer {
    /// An access to where it points, compared with the slice's length.
    pub(super) fn access(&self, mask: Option<Value>) -> MemAccess {
        MemAccess {
            param: self.param,
            base: None,
            offset: self.offset,
            mask,
            bounded: true,
            vector: 1,
            shift: None,
        }
    }
}

/// The pointer of an access that writes, and the slice's name.
pub(super) fn written(cx: &mut dyn TypingCx, call: &Call) -> Option<(Pointer, String)> {
    let pointer = cx.pointer(&call.args[0], &call.what)?;
    let (_, mutable) = cx.func().slice(pointer.param);
    let name = cx.func().params[pointer.param.index()].name.clone();
    if !mutable {
        let help = format!("declare it `{name}: &mut [{}]`", cx.written_elem(pointer.param));
        let text = format!("`{name}` is read-only: {} needs a `&mut` slice", call.what);
        cx.error_help(call.args[0].loc, text, help);
        return None;
    }
    Some((pointer, name))
}

/// The access's mask, broadcast to the pointer's shape.
pub(super) fn mask(
    cx: &mut dyn TypingCx,
    operand: Option<&Operand>,
    pointer: &Pointer,
) -> Result<Option<Value>, ()> {
    let Some(operand) = operand else { return Ok(None) };
    let value = cx.value(operand).ok_or(())?;
    let ty = cx.ty(value).clone();
    if ty.dtype != DType::Bool {
        let help = match (ty.dtype.is_float(), ty.is_scalar()) {
            (true, true) => {
                "the mask comes before it: `tl::load(pointer, mask, other)`, `tl::store(pointer, value, mask)`"
            }
            _ => "compare: `offsets < n`",
        };
        cx.error_help(operand.loc, format!("a mask is made of bools, found {ty}"), help);
        return Err(());
    }
    fit(cx, value, pointer, operand, "the mask").map(Some)
}

/// An operand as an element for each that the pointer points to; `type_of` and `shape_of` name it where it is none.
pub(super) fn element(
    cx: &mut dyn TypingCx,
    operand: &Operand,
    pointer: &Pointer,
    [type_of, shape_of]: [&str; 2],
) -> Result<Value, ()> {
    let value = cx.value_for(pointer.param, operand, type_of).ok_or(())?;
    fit(cx, value, pointer, operand, shape_of)
}

/// Broadcasts `value` to the pointer's shape.
fn fit(
    cx: &mut dyn TypingCx,
    value: Value,
    pointer: &Pointer,
    operand: &Operand,
    what: &str,
) -> Result<Value, ()> {
    let (from, to) = (cx.ty(value).shape.clone(), pointer.shape.clone());
    if from.broadcast(&to).as_ref() != Some(&to) {
        if to.rank() == 0 {
            let text = format!("{what} has shape {from}, but the pointer is a scalar");
            cx.error_help(
                operand.loc,
                text,
                "a slice plus a tile of offsets is a tile of pointers: `x + offsets`",
            );
        } else {
            let text = format!("{what} has shape {from}, which does not fit the pointer's shape {to}");
            let help = match from.rank() > to.rank() {
                true => "the offsets have the tile's shape: `rows.col() * stride + columns.row()`".into(),
                false => super::broadcast_help(&from, &to),
            };
            cx.error_help(operand.loc, text, help);
        }
        return Err(());
    }
    Ok(cx.broadcast(value, &to, operand.loc))
}

/// Whether an access has its mask and its value in each other's place, which is reported; `wanted` is the index of the mask.
fn report_swapped_mask(cx: &mut dyn TypingCx, call: &Call, elem: DType, wanted: usize) -> bool {
    let found = 3 - wanted;
    let [Some(in_place), Some(other)] = [wanted, found].map(|index| call.args.get(index)) else {
        return false;
    };
    let (Some(in_place_type), Some(mask)) = (dtype(cx, in_place), dtype(cx, other)) else { return false };
    if elem == DType::Bool || in_place_type == DType::Bool || mask != DType::Bool {
        return false;
    }
    let order = match wanted {
        1 => "the mask before `other`",
        _ => "the value before the mask",
    };
    let [mask, value] = [(other, "mask"), (in_place, "value")]
        .map(|(operand, name)| operand.loc.word().unwrap_or_else(|| name.into()));
    let help = match wanted {
        1 => format!("write `{}(pointer, {mask}, {value})`", call.what.trim_matches('`')),
        _ => format!("write `{}(pointer, {value}, {mask})`", call.what.trim_matches('`')),
    };
    cx.error_help(call.args[1].loc.to(call.args[2].loc), format!("{} takes {order}", call.what), help);
    true
}

/// The element type of a tile, scalar or literal.
fn dtype(cx: &dyn TypingCx, operand: &Operand) -> Option<DType> {
    match &operand.item {
        Item::Value(value) => Some(cx.ty(*value).dtype),
        Item::Literal(literal) => Some(literal.default_type()),
        _ => None,
    }
}

fn load(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(pointer) = cx.pointer(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let (elem, mutable) = cx.func().slice(pointer.param);
    if report_swapped_mask(cx, call, elem, 1) {
        return Operand::failed(call.loc);
    }
    let mask = mask(cx, call.args.get(1), &pointer);
    let other = match call.args.get(2) {
        None => Ok(None),
        Some(operand) => element(cx, operand, &pointer, ["`other`"; 2]).map(Some),
    };
    let (Ok(mask), Ok(other)) = (mask, other) else { return Operand::failed(call.loc) };
    let access = pointer.access(mask);
    let load = Load { access, other, invariant: !mutable, cache: CacheHints::default() };
    cx.emit(load, Type::tile(elem, pointer.shape), call.loc)
}

fn store(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some((pointer, name)) = written(cx, call) else { return Operand::failed(call.loc) };
    let elem = cx.func().slice(pointer.param).0;
    if report_swapped_mask(cx, call, elem, 2) {
        return Operand::failed(call.loc);
    }
    let what = format!("a value stored to `{name}`");
    let value = element(cx, &call.args[1], &pointer, [&what, "the value"]);
    let mask = mask(cx, call.args.get(2), &pointer);
    let (Ok(value), Ok(mask)) = (value, mask) else { return Operand::failed(call.loc) };
    let store = Store { access: pointer.access(mask), value, cache: CacheHints::default() };
    cx.push(store, vec![], call.loc);
    Operand::unit(call.loc)
}

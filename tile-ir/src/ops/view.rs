//! Blocks of views: reading, writing and adding to a part of a view that has a tile's extents.
//!
//! A block may lie across the edges of the view or outside. It stays one operation until `transform::legalize_index` knows
//! which of its offsets are uniform over the program, and lowers it to an access with offsets and a mask.

use super::cache::{CacheHints, CacheModifier};
use super::typing::{Call, Item, Operand, TypingCx, ViewPart};
use super::{
    Atomic, AtomicChange, Effect, Intrinsic, IntrinsicGeneric, Kind, Load, MemAccess, MemoryOrder,
    MemoryScope, Operation, Reshape, Returns, Store, each_axis, expect_types, required,
};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParamId, ParseError, Shape, TextReader, Type, Value, View};
use crate::ops::syntax::syntax;
use crate::support::diagnostic::{Loc, axes, list};
use crate::support::dtype::DType;

/// A block of a view, which may lie across its edges or outside; elements outside of the view take no part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewTile {
    /// The view's memory.
    pub memory: ParamId,
    /// Integer scalars, one for each axis.
    pub offsets: Vec<Value>,
    pub extents: Shape,
}

/// `view(offsets)`; the extents follow from the tile.
impl FieldText for ViewTile {
    fn write(&self, out: &mut TextWriter) {
        self.memory.write(out);
        out.push("(");
        out.names(&self.offsets);
        out.push(")");
    }

    fn read(input: &mut TextReader) -> Result<ViewTile, ParseError> {
        let memory = input.view()?;
        input.expect("(")?;
        let offsets = input.list(TextReader::value)?;
        input.expect(")")?;
        Ok(ViewTile { memory, offsets, extents: Shape::default() })
    }
}

impl ViewTile {
    pub(super) fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.offsets.iter_mut().for_each(|offset| *offset = change(*offset));
    }

    pub(super) fn verify(&self, func: &Func, ty: &Type) -> Result<(), String> {
        let Some(view) = func.view(self.memory) else { return Err("the parameter is not a view".into()) };
        expect_types("the number of offsets", self.offsets.len(), view.rank())?;
        expect_types("the rank", self.extents.rank(), view.rank())?;
        expect_types("the shape", &ty.shape, &self.extents)?;
        expect_types("the element type", ty.dtype, func.slice(self.memory).0)?;
        let is_scalar = |&offset: &Value| func.ty(offset).is_scalar() && func.ty(offset).dtype.is_integer();
        if self.offsets.iter().all(is_scalar) { Ok(()) } else { Err("an offset is no integer scalar".into()) }
    }

    pub(super) fn verify_written(&self, func: &Func, ty: &Type) -> Result<(), String> {
        let (_, mutable) = func.slice(self.memory);
        if mutable { self.verify(func, ty) } else { Err("the view is read-only".into()) }
    }
}

/// Reads a block; elements outside of the view are 0.
#[derive(Clone, Debug)]
pub struct LoadView {
    pub tile: ViewTile,
    /// Nothing in the kernel writes this view.
    pub invariant: bool,
    pub cache: CacheHints,
}

/// Writes a block, except for what lies outside of the view.
#[derive(Clone, Debug)]
pub struct StoreView {
    pub tile: ViewTile,
    pub value: Value,
    pub cache: CacheHints,
}

/// Adds to a block, each element at once; the result is what was there, 0 outside of the view.
#[derive(Clone, Debug)]
pub struct AddView {
    pub tile: ViewTile,
    pub value: Value,
    pub order: MemoryOrder,
    pub scope: MemoryScope,
}

syntax!(LoadView: "load_view" tile cache {invariant: false});

impl Operation for LoadView {
    fn infer(&mut self, func: &Func, results: &[Value]) {
        self.tile.extents = results.first().map(|&result| func.ty(result).shape.clone()).unwrap_or_default();
        let (_, mutable) = func.slice(self.tile.memory);
        self.invariant = !mutable;
    }

    fn operands(&self) -> Vec<Value> {
        self.tile.offsets.clone()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.tile.map(change);
    }

    fn effect(&self) -> Effect {
        let merges = self.invariant && self.cache.modifier != CacheModifier::Volatile;
        if merges { Effect::Pure } else { Effect::Read }
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (_, mutable) = func.slice(self.tile.memory);
        expect_types("whether nothing writes the view", self.invariant, !mutable)?;
        self.tile.verify(func, func.ty(results[0]))
    }

    fn view_tile(&self) -> Option<&ViewTile> {
        Some(&self.tile)
    }

    fn lower_to_access(&self, access: MemAccess) -> Option<Kind> {
        let &LoadView { invariant, cache, .. } = self;
        Some(Load { access, other: None, invariant, cache }.into())
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

syntax!(StoreView: "store_view" value, tile cache);

impl Operation for StoreView {
    fn result_count(&self) -> usize {
        0
    }

    fn infer(&mut self, func: &Func, _: &[Value]) {
        self.tile.extents = func.ty(self.value).shape.clone();
    }

    fn operands(&self) -> Vec<Value> {
        self.tile.offsets.iter().copied().chain([self.value]).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.tile.map(change);
        self.value = change(self.value);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        self.tile.verify_written(func, func.ty(self.value))
    }

    fn view_tile(&self) -> Option<&ViewTile> {
        Some(&self.tile)
    }

    fn lower_to_access(&self, access: MemAccess) -> Option<Kind> {
        let &StoreView { value, cache, .. } = self;
        Some(Store { access, value, cache }.into())
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

syntax!(AddView: "add_view" value, tile [order] [scope]);

impl Operation for AddView {
    fn infer(&mut self, func: &Func, _: &[Value]) {
        self.tile.extents = func.ty(self.value).shape.clone();
    }

    fn operands(&self) -> Vec<Value> {
        self.tile.offsets.iter().copied().chain([self.value]).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.tile.map(change);
        self.value = change(self.value);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(self.value);
        expect_types("the result", func.ty(results[0]), ty)?;
        if !AtomicChange::Add.takes(ty.dtype) {
            return Err(format!("does not take {}", ty.dtype));
        }
        self.tile.verify_written(func, ty)
    }

    fn view_tile(&self) -> Option<&ViewTile> {
        Some(&self.tile)
    }

    fn lower_to_access(&self, access: MemAccess) -> Option<Kind> {
        let &AddView { value, order, scope, .. } = self;
        Some(Atomic { change: AtomicChange::Add, access, compare: None, value, order, scope }.into())
    }

    fn ordering_mut(&mut self) -> Option<(&mut MemoryOrder, &mut MemoryScope)> {
        Some((&mut self.order, &mut self.scope))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

pub(super) const METHODS: &[Intrinsic] = &[
    Intrinsic {
        name: "at",
        returns: Returns::View,
        example: "let row = matrix.at(tl::program_id(0));\nlet part = row.load::<64>(0);",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("index")],
        doc: "The part of a view at an index along its first axis, an integer, negative ones too: a view without that axis, `x.at(i).load::<N>(j)` for the elements of `x.load::<1, N>(i, j)` in a tile of one axis. Outside of the view's shape elements are 0 when read, and dropped when written.",
        check: at,
    },
    Intrinsic {
        name: "load",
        returns: Returns::Tile,
        example: "let block = matrix.load::<64, 32>(tl::program_id(0) * 64, 0);",
        generic: IntrinsicGeneric::Extents,
        params: &[required("self"), each_axis("offset")],
        doc: "Reads the block of a view that begins at `offset`, one integer for each axis, negative ones too. The block's extents, constants, stand between `::<` and `>`; the tile has them as its shape, those of 1 included. Elements outside of the view's shape are 0 and are not read. What `tl::load` may be followed by, such as `.evict_first()`, may follow this.",
        check: load,
    },
    Intrinsic {
        name: "store",
        returns: Returns::Nothing,
        example: "let block = matrix.load::<64, 32>(0, 0);\nresult.store(block * 2.0, 0, 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("tile"), each_axis("offset")],
        doc: "Writes a tile, which has as many axes as the view, to the block that begins at `offset`, one integer for each axis, negative ones too. Elements that come to lie outside of the view's shape are dropped. What `tl::store` may be followed by, such as `.write_through()`, may follow this.",
        check: store,
    },
    Intrinsic {
        name: "atomic_add",
        returns: Returns::Tile,
        example: "let block = matrix.load::<64, 32>(0, 0);\nresult.atomic_add(block, 0, 0).sem(\"relaxed\");",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("tile"), each_axis("offset")],
        doc: "Adds a tile, which has as many axes as the view, to the block that begins at `offset`, as [`atomic_add`] does to the elements that a pointer tile points to; what lies outside of the view's shape is left out. The result is what was there, 0 outside.",
        check: atomic_add,
    },
    Intrinsic {
        name: "shape",
        returns: Returns::Tile,
        example: "let columns = matrix.shape::<i32>(1);",
        generic: IntrinsicGeneric::OptionalType,
        params: &[required("self"), required("axis")],
        doc: "The extent of a view along a constant axis, an `i64`, or of the integer type between `::<` and `>`, as `.to` converts.",
        check: |cx, call| view_scalar(cx, call, |view| &view.shape),
    },
    Intrinsic {
        name: "stride",
        returns: Returns::Tile,
        example: "let row_stride = matrix.stride(0);",
        generic: IntrinsicGeneric::OptionalType,
        params: &[required("self"), required("axis")],
        doc: "How many elements of memory lie between neighbors along a constant axis of a view, an `i64`, or of the integer type between `::<` and `>`, as `.to` converts; any number where the axis has one element.",
        check: |cx, call| view_scalar(cx, call, |view| &view.strides),
    },
];

fn at(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(view) = call.args[0].view().cloned() else { return Operand::failed(call.loc) };
    if view.rank(cx.func()) == 1 {
        let name = call.args[0].loc.word().unwrap_or_else(|| "x".into());
        let index = call.args[1].loc.word().unwrap_or_else(|| "i".into());
        let help = format!("read a block of it: `{name}.load::<1>({index})`");
        return cx.error_help(call.name_loc, "a part of a view keeps one axis, and this is its last", help);
    }
    match offset(cx, &call.args[1]) {
        Some(index) => {
            let at = [view.at, vec![index]].concat();
            Operand::new(Item::View(ViewPart { at, ..view }), call.loc)
        }
        None => Operand::failed(call.loc),
    }
}

fn load(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let first = offsets(cx, &call.args[1..]);
    let (Some(extents), Some(offsets)) = (cx.extents(call), first) else { return Operand::failed(call.loc) };
    let Some(view) = call.args[0].view().cloned() else { return Operand::failed(call.loc) };
    let tile = view_tile(&view, offsets, &extents);
    let (elem, mutable) = cx.func().slice(tile.memory);
    let ty = Type::tile(elem, tile.extents.clone());
    let load = LoadView { tile, invariant: !mutable, cache: CacheHints::default() };
    let loaded = cx.push(load, vec![ty], call.loc)[0];
    Operand::value(reshaped(cx, loaded, &extents, call.loc), call.loc)
}

/// The block of a view's memory that a block of its part is: of extent 1 along the axes that the part lacks.
fn view_tile(view: &ViewPart, offsets: Vec<Value>, extents: &Shape) -> ViewTile {
    let mut extents = extents.clone();
    for _ in &view.at {
        extents = extents.with(0, 1);
    }
    ViewTile { memory: view.memory, offsets: [view.at.clone(), offsets].concat(), extents }
}

/// The same elements in a shape that differs by axes of extent 1.
fn reshaped(cx: &mut dyn TypingCx, value: Value, shape: &Shape, loc: Loc) -> Value {
    let ty = cx.ty(value).clone();
    if ty.shape == *shape {
        return value;
    }
    cx.push(Reshape { value }, vec![Type::tile(ty.dtype, shape.clone())], loc)[0]
}

fn store(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some((tile, value)) = written(cx, call) else { return Operand::failed(call.loc) };
    cx.push(StoreView { tile, value, cache: CacheHints::default() }, vec![], call.loc);
    Operand::unit(call.loc)
}

fn atomic_add(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some((tile, value)) = written(cx, call) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    if !AtomicChange::Add.takes(ty.dtype) {
        let known = list(DType::ALL.into_iter().filter(|&dtype| AtomicChange::Add.takes(dtype)));
        return cx.error(call.args[0].loc, format!("{} takes {known}, found {}", call.what, ty.dtype));
    }
    let shape = call.args[0]
        .view()
        .into_iter()
        .flat_map(|view| &view.at)
        .fold(ty.shape.clone(), |shape, _| shape.without(0));
    let add = AddView { tile, value, order: MemoryOrder::AcqRel, scope: MemoryScope::Gpu };
    let before = cx.push(add, vec![ty], call.loc)[0];
    Operand::value(reshaped(cx, before, &shape, call.loc), call.loc)
}

fn view_scalar(cx: &mut dyn TypingCx, call: &Call, of: fn(&View) -> &Vec<Value>) -> Operand {
    let Some(part) = call.args[0].view().cloned() else { return Operand::failed(call.loc) };
    let Some(view) = cx.func().view(part.memory).cloned() else { return Operand::failed(call.loc) };
    let Some(axis) = cx.axis(&call.args[1], view.rank() - part.at.len()) else {
        return Operand::failed(call.loc);
    };
    let extent = Operand::value(of(&view)[part.at.len() + axis], call.loc);
    match cx.generic_type() {
        Some(dtype) if dtype.is_integer() => cx.cast(&extent, dtype, call.loc),
        Some(dtype) => {
            let what = call.what.trim_matches('`');
            let help = format!("convert it: `{what}({axis}).to::<{dtype}>()`");
            cx.error_help(call.name_loc, format!("{} is an integer, not {dtype}", call.what), help)
        }
        None => extent,
    }
}

/// The offsets at which a block begins.
fn offsets(cx: &mut dyn TypingCx, args: &[Operand]) -> Option<Vec<Value>> {
    let offsets: Vec<Option<Value>> = args.iter().map(|arg| offset(cx, arg)).collect();
    offsets.into_iter().collect()
}

fn offset(cx: &mut dyn TypingCx, operand: &Operand) -> Option<Value> {
    if let Item::Range(range) = &operand.item {
        let start = range.low.loc.word().unwrap_or_else(|| "start".into());
        let help = format!("write where it begins: `{start}`; its extent stands between angle brackets");
        cx.error_help(operand.loc, "a block begins at one offset along each axis, found a range", help);
        return None;
    }
    let value = cx.offset(operand, DType::I32)?;
    let ty = cx.ty(value).clone();
    if ty.is_scalar() {
        return Some(value);
    }
    let text = format!("a block begins at one offset along each axis, found a tile of type {ty}");
    cx.error_help(
        operand.loc,
        text,
        "write where the block begins, a scalar: its extent stands between angle brackets",
    );
    None
}

/// The block that an access writes to, and the tile.
fn written(cx: &mut dyn TypingCx, call: &Call) -> Option<(ViewTile, Value)> {
    let view = call.args[0].view()?.clone();
    let (memory, rank) = (view.memory, view.rank(cx.func()));
    let (elem, mutable) = cx.func().slice(memory);
    let name = cx.func().params[memory.index()].name.clone();
    if !mutable {
        let text = format!("`{name}` is read-only: {} needs a `&mut` view", call.what);
        let rank = rank + view.at.len();
        let help = format!("declare it `{name}: &mut View<{}, {rank}>`", cx.written_elem(memory));
        cx.error_help(call.args[0].loc, text, help);
    }
    let is_block = |operand: &Operand| match operand.item {
        Item::Value(value) => !cx.ty(value).is_scalar(),
        _ => false,
    };
    // The order of C's and Triton's stores, offsets first.
    if !is_block(&call.args[1])
        && let Some(block) = call.args[2..].iter().find(|arg| is_block(arg))
    {
        let begin = vec!["0"; rank].join(", ");
        let help = format!("the block comes first: `{name}{}(tile, {begin})`", call.what.trim_matches('`'));
        cx.error_help(block.loc, format!("{} takes the block before its offsets", call.what), help);
        return None;
    }
    let offsets = offsets(cx, &call.args[2..]);
    let value = cx.value_for(memory, &call.args[1], &format!("a value for `{name}`"))?;
    let shape = cx.ty(value).shape.clone();
    if shape.rank() != rank {
        let axes = axes(rank);
        let found = if shape.rank() == 0 { "a scalar".to_string() } else { format!("{elem}{shape}") };
        let text = format!("a block of `{name}` has {axes}, found {found}");
        if shape.rank() == 0 {
            let extents = vec!["64"; rank].join(", ");
            cx.error_help(call.args[1].loc, text, format!("make a tile of it: `tl::full([{extents}], x)`"));
        } else {
            let help = "`tl::reshape` or `tl::expand_dims` gives it axes of 1";
            cx.error_help(call.args[1].loc, text, help);
        }
        return None;
    }
    let tile = view_tile(&view, offsets?, &shape);
    let value = reshaped(cx, value, &tile.extents, call.args[1].loc);
    mutable.then_some((tile, value))
}

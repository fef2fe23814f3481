//! Operands of dots that are loaded by pointers, as blocks of views: TMA can then load them.
//!
//! The offsets of a tile are a sum of coordinates times strides. Two strides belong to the axes of the tile, of which one is contiguous;
//! every other stride of a scalar, as those of a batch and of a head, is an axis of its own, along which a block has one element. A mask has
//! to say where axes end and nothing else. The extents and strides of such a view follow from arguments alone, so that a launch can make its
//! tensor map. What the mask lets through is inside the slice under guards, and no coordinate is negative: a block of the view then has
//! the elements of the tile, and zeros where the mask is false.

use std::collections::{HashMap, HashSet};

use tile_ir::analysis::bounds::{BoundsDecision, BoundsDecisions, conditions};
use tile_ir::analysis::inequality::BoundSearch;
use tile_ir::analysis::polynomial::Polynomials;
use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::guard::{Guard, Symbol, SymbolicSum};
use tile_ir::ir::launch_shape::LaunchShape;
use tile_ir::ir::polynomial::{Atom, Polynomial};
use tile_ir::ir::{Func, FuncBuilder, Op, ParamId, Rewriter, Shape, Type, Value, View};
use tile_ir::ops::scalar::{self, Scalar};
use tile_ir::ops::{
    CacheModifier, Cast, Constant, ConstantValue, Kind, Load, LoadView, Permute, ProgramId, Reshape,
    ViewTile, is_zero,
};
use tile_ir::support::dtype::DType;

use crate::gpu::opt::select_wgmma::MAX_TMA_EXTENT;
use crate::gpu::opt::tma_box::TMA_ALIGNMENT;

/// The most axes of a tensor map.
const MAX_AXES: usize = 5;

/// Loads operands of dots from views of the slices that they are in, where that gives the same elements; returns the guards that this
/// relies on. A slice has one view: loads of it that would need another one stay as they are.
pub fn view_pointers(func: &mut Func) -> Vec<Guard> {
    let mut found: HashMap<Value, PointerView> = HashMap::new();
    let mut views: Vec<(ParamId, LaunchShape)> = vec![];
    let mut guards = vec![];
    let recognizer = Recognizer::new(func);
    for (result, load) in operand_loads(func) {
        let memory = load.access.param;
        let Some(view) = recognizer.view(load, result) else { continue };
        match views.iter().find(|(known, _)| *known == memory) {
            Some((_, shape)) if *shape != view.shape() => continue,
            Some(_) => {}
            None => views.push((memory, view.shape())),
        }
        guards.extend(view.guards.clone());
        found.insert(result, view);
    }
    for (memory, shape) in views {
        let view = View::of_slice(func, memory, shape);
        func.views.push(view);
    }
    Rewriter::default().run(func, &mut |_, builder, op| match (&op.kind, op.results.first()) {
        (Kind::Load(load), Some(result)) if found.contains_key(result) => {
            let load = *load;
            found[result].load(builder, &load, op);
        }
        _ => builder.append(op),
    });
    guards.sort();
    guards.dedup();
    guards
}

/// The loads of matrices that dots of loops alone use, and nothing in the kernel writes, in the order of the function.
fn operand_loads(func: &Func) -> Vec<(Value, &Load)> {
    let mut users: HashMap<Value, Vec<&Op>> = HashMap::new();
    let (mut carried, mut in_loops): (HashSet<Value>, HashSet<Value>) = Default::default();
    let mut loads = vec![];
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        operation.operands().into_iter().for_each(|operand| users.entry(operand).or_default().push(op));
        carried.extend(operation.blocks().into_iter().flat_map(|block| &block.yields));
        if let Kind::For(body) = &op.kind {
            in_loops.extend(body.body.ops.iter().flat_map(|op| &op.results));
        }
        if let Kind::Load(load) = &op.kind
            && load.invariant
            && load.cache.modifier != CacheModifier::Volatile
            && func.view(load.access.param).is_none()
            && func.ty(op.results[0]).shape.rank() == 2
        {
            loads.push((op.results[0], load));
        }
    });
    let feeds_dots = |value: Value| {
        let mut todo = vec![value];
        while let Some(value) = todo.pop() {
            let uses = users.get(&value).map_or(&[][..], Vec::as_slice);
            if uses.is_empty() || carried.contains(&value) {
                return false;
            }
            for op in uses {
                let feeds = matches!(&op.kind, Kind::Dot(dot) if dot.acc != Some(value))
                    && in_loops.contains(&op.results[0]);
                let passes_on = matches!(op.kind, Kind::Permute(_) | Kind::Reshape(_))
                    || matches!(op.kind, Kind::Cast(_)) && func.ty(value).dtype.is_f8();
                if passes_on {
                    todo.extend(&op.results);
                } else if !feeds {
                    return false;
                }
            }
        }
        true
    };
    loads.retain(|&(result, _)| feeds_dots(result));
    loads
}

/// An axis of a view: the coordinate of an element along it times `factor` and `symbols` is a part of its offset.
struct ViewAxis {
    symbols: Vec<Symbol>,
    factor: i128,
    /// Of the first element of a tile.
    start: Polynomial,
    /// The axis of the tile and its extent; a block has one element along any other.
    range: Option<(usize, u32)>,
    /// The number of elements along it.
    extent: Option<Polynomial>,
}

impl ViewAxis {
    /// The coordinate of each element.
    fn coordinate(&self) -> Polynomial {
        self.range.map_or_else(
            || self.start.clone(),
            |(axis, extent)| self.start.add(&Polynomial::atom(Atom::Range { axis, extent })),
        )
    }

    fn stride(&self) -> Polynomial {
        let symbols = self.symbols.iter().map(|&symbol| Polynomial::atom(Atom::Known(symbol)));
        symbols.fold(Polynomial::constant(self.factor), |product, symbol| product.mul(&symbol))
    }

    /// Takes a term of the offset that is a multiple of the stride.
    fn takes(&mut self, symbols: &[Symbol], coefficient: i128, varying: &Polynomial) -> bool {
        let fits = self.symbols == symbols && coefficient % self.factor == 0;
        if fits {
            self.start = self.start.add(&varying.scale(coefficient / self.factor));
        }
        fits
    }
}

/// How a tile of a slice is a block of a view.
struct PointerView {
    /// Those of single elements, then the rows and the contiguous axis.
    axes: Vec<ViewAxis>,
    guards: Vec<Guard>,
}

impl PointerView {
    fn shape(&self) -> LaunchShape {
        let sum = |value: &Polynomial| value.to_sum().expect("what a launch knows");
        let extent = |axis: &ViewAxis| sum(axis.extent.as_ref().expect("an axis ends somewhere"));
        LaunchShape {
            extents: self.axes.iter().map(extent).collect(),
            strides: self.axes.iter().map(|axis| sum(&axis.stride())).collect(),
        }
    }

    /// Loads the block in place of the tile.
    fn load(&self, builder: &mut FuncBuilder, load: &Load, op: Op) {
        let dtype = builder.func.ty(op.results[0]).dtype;
        let offsets = self.axes.iter().map(|axis| start(builder, &axis.start)).collect();
        let extents: Vec<u32> =
            self.axes.iter().map(|axis| axis.range.map_or(1, |(_, extent)| extent)).collect();
        let matrix = Shape::new(&extents[extents.len() - 2..]);
        let is_transposed =
            self.axes.last().is_some_and(|axis| axis.range.is_some_and(|(axis, _)| axis == 0));
        let extents = Shape::new(extents);
        let tile = ViewTile { memory: load.access.param, offsets, extents: extents.clone() };
        let mut kind: Kind = LoadView { tile, invariant: true, cache: load.cache }.into();
        if extents.rank() > 2 {
            let value = builder.one(kind, Type::tile(dtype, extents));
            kind = Reshape { value }.into();
        }
        if is_transposed {
            let value = builder.one(kind, Type::tile(dtype, matrix));
            kind = Permute { value, order: vec![1, 0] }.into();
        }
        builder.append(Op { kind, ..op });
    }
}

/// A sum of multiples of scalars, as an `i64`.
fn start(builder: &mut FuncBuilder, sum: &Polynomial) -> Value {
    let ty = Type::scalar(DType::I64);
    let constant = |builder: &mut FuncBuilder, number: i128| {
        builder.one(Constant { value: ConstantValue::Int(number) }, Type::scalar(DType::I64))
    };
    let mut total: Option<Value> = None;
    for (atoms, coefficient) in sum.terms() {
        let mut term = match *atoms {
            [Atom::Loop(value, _) | Atom::Opaque(value, _)] => Some(value),
            [Atom::Program(axis)] => Some(builder.one(ProgramId { axis }, Type::scalar(DType::I32))),
            _ => None,
        };
        if let Some(value) = term.filter(|&value| builder.func.ty(value).dtype != DType::I64) {
            term = Some(builder.one(Cast::new(value), ty.clone()));
        }
        let term = match term {
            Some(value) if coefficient == 1 => value,
            Some(value) => {
                let by = constant(builder, coefficient);
                builder.one(Scalar::new(scalar::binary(BinaryOp::Mul), vec![value, by]), ty.clone())
            }
            None => constant(builder, coefficient),
        };
        total = Some(match total {
            Some(total) => {
                builder.one(Scalar::new(scalar::binary(BinaryOp::Add), vec![total, term]), ty.clone())
            }
            None => term,
        });
    }
    total.unwrap_or_else(|| constant(builder, 0))
}

struct Recognizer<'f> {
    func: &'f Func,
    definitions: HashMap<Value, &'f Op>,
    polynomials: Polynomials,
    decisions: BoundsDecisions,
}

impl<'f> Recognizer<'f> {
    fn new(func: &'f Func) -> Recognizer<'f> {
        let polynomials = Polynomials::analyze(func);
        let decisions = BoundsDecisions::analyze(func, &polynomials);
        Recognizer { func, definitions: func.definitions(), polynomials, decisions }
    }

    /// The view of which a loaded matrix is a block.
    fn view(&self, load: &Load, result: Value) -> Option<PointerView> {
        let func = self.func;
        let BoundsDecision::Guarded(bounds) = self.decisions.get(&load.access) else { return None };
        if load.other.is_some_and(|other| !is_zero(|value| Some(&self.definitions.get(&value)?.kind), other))
        {
            return None;
        }
        let ty = func.ty(result);
        let mut axes = axes(func, &self.polynomials.of_access(&load.access), &ty.shape)?;
        let inside = match load.access.mask {
            Some(mask) => conditions(func, &self.polynomials, mask)?,
            None => vec![],
        };
        for condition in &inside {
            // `small - big <= 0` has to say that a coordinate is below an extent.
            let excess = condition.small.sub(&condition.big);
            let one = Polynomial::constant(1);
            let axis = axes.iter_mut().find_map(|axis| {
                let coordinate = axis.coordinate();
                if excess == coordinate.scale(-1) {
                    return Some(true);
                }
                let extent = coordinate.sub(&excess).add(&one);
                if extent.varying().is_some() {
                    return None;
                }
                let is_new = axis.extent.is_none();
                let known = axis.extent.get_or_insert_with(|| extent.clone());
                Some(is_new || *known == extent)
            });
            if axis != Some(true) {
                return None;
            }
        }
        let mut bound = BoundSearch::unmasked(func, &self.polynomials);
        for axis in &mut axes {
            let coordinate = axis.coordinate();
            bound.lower_bound_not_negative(&coordinate)?;
            let extent = match &axis.extent {
                Some(extent) => extent.clone(),
                None => bound.upper(coordinate)?.add(&Polynomial::constant(1)),
            };
            bound.at_most(&Polynomial::constant(1), &extent)?;
            bound.at_most(&extent, &Polynomial::constant(MAX_TMA_EXTENT.into()))?;
            axis.extent = Some(extent);
        }
        let mut guards = bound.guards;
        guards.extend(bounds.guards);
        let unit = TMA_ALIGNMENT / ty.dtype.bytes();
        for axis in &axes[..axes.len() - 1] {
            guards.extend(aligned(axis, unit)?);
            let stride = axis.stride().to_sum()?;
            if stride.terms.iter().any(|(factor, symbols)| *factor < 0 || !symbols.is_empty()) {
                guards.push(Guard::AtMost { low: SymbolicSum::default(), high: stride });
            }
        }
        axes.iter()
            .all(|axis| axis.extent.as_ref().is_some_and(|extent| extent.to_sum().is_some()))
            .then_some(PointerView { axes, guards })
    }
}

/// The guard under which a stride is a multiple of `unit` elements, if it needs any; `None` where it cannot be.
fn aligned(axis: &ViewAxis, unit: u32) -> Option<Option<Guard>> {
    let by = unit >> axis.factor.trailing_zeros().min(unit.trailing_zeros());
    match axis.symbols.last() {
        _ if by == 1 => Some(None),
        Some(&value) => Some(Some(Guard::Divisible { value, by })),
        None => None,
    }
}

/// The axes of the view that has an offset's strides; the contiguous one comes last.
fn axes(func: &Func, offset: &Polynomial, shape: &Shape) -> Option<Vec<ViewAxis>> {
    let mut rest = offset.clone();
    let mut of_tile = vec![];
    for (axis, &extent) in shape.iter().enumerate() {
        let (coefficient, others) = rest.split(Atom::Range { axis, extent });
        let mut terms = coefficient.terms();
        let ((atoms, factor), None) = (terms.next()?, terms.next()) else { return None };
        let (symbols, varying) = known_part(atoms);
        if factor <= 0 || !varying.is_empty() {
            return None;
        }
        let range = Some((axis, extent));
        of_tile.push(ViewAxis { symbols, factor, start: Polynomial::default(), range, extent: None });
        rest = others;
    }
    let is_contiguous = |axis: &ViewAxis| axis.symbols.is_empty() && axis.factor == 1;
    let last = of_tile.iter().position(is_contiguous)?;
    let inner = of_tile.remove(last);
    let rows = of_tile.pop().filter(|rows| !is_contiguous(rows))?;
    let mut axes = vec![rows, inner];
    let mut terms: Vec<(&[Atom], i128)> = rest.terms().collect();
    // The stride of an axis is the least that its scalars have.
    terms.sort_by_key(|&(_, coefficient)| coefficient);
    for (atoms, coefficient) in terms {
        let (symbols, varying) = known_part(atoms);
        if coefficient <= 0 || !varying.iter().all(|&atom| is_scalar(func, atom)) || varying.len() > 1 {
            return None;
        }
        let one = Polynomial::constant(1);
        let varying = varying.first().map_or(one, |&atom| Polynomial::atom(atom));
        if axes.iter_mut().any(|axis| axis.takes(&symbols, coefficient, &varying)) {
            continue;
        }
        axes.push(ViewAxis { symbols, factor: coefficient, start: varying, range: None, extent: None });
    }
    axes.rotate_left(2);
    (axes.len() <= MAX_AXES).then_some(axes)
}

/// The factors of a term that a launch knows, and the others.
fn known_part(atoms: &[Atom]) -> (Vec<Symbol>, Vec<Atom>) {
    let (mut symbols, mut varying) = (vec![], vec![]);
    for &atom in atoms {
        match atom {
            Atom::Known(symbol) => symbols.push(symbol),
            other => varying.push(other),
        }
    }
    (symbols, varying)
}

/// Whether an atom is the same for all elements, and a scalar that is at hand.
fn is_scalar(func: &Func, atom: Atom) -> bool {
    match atom {
        Atom::Loop(value, _) | Atom::Opaque(value, _) => {
            func.ty(value).is_scalar() && matches!(func.ty(value).dtype, DType::I32 | DType::I64)
        }
        Atom::Program(_) => true,
        Atom::Known(_) | Atom::Range { .. } => false,
    }
}

//! The tile IR: what a kernel means, for one variant, before anything is said about threads.
//!
//! A [`Func`] is a list of parameters and a [`Block`] of operations in SSA form with structured control flow. Every
//! [`Value`] is a tile of one element type and a fixed shape; a scalar is a tile of rank 0 and is the same for the
//! whole program. There are no pointers: a memory operation names a slice parameter and element offsets into it, or a
//! [`View`] and where in it a block begins. [`print`] writes a function as text, and [`parse`] reads it.
//!
//! Laws, checked by [`verify`]:
//! - a value is defined once, before its uses, in the same or an enclosing block;
//! - a lanewise operation has operands of one shape: broadcasting is explicit (`splat`, `expand_dims`, `broadcast`);
//! - extents are a power of two times an odd number of at most [`MAX_ODD`], and a tile has at most [`MAX_ELEMENTS`];
//! - the operands of a block's end are what its operation yields, of the same types;
//! - signed 32-bit offsets are exact: `index` widens what could leave 32 bits, so an address never wraps.

pub mod assumption;
pub mod axis_info;
pub mod guard;
pub mod launch_shape;
pub mod layout_relation;
pub mod lexer;
mod parse;
pub mod pass;
pub mod polynomial;
mod print;
mod reader;
mod rewrite;
pub mod text;
mod verify;

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::ir::assumption::Assumption;
use crate::ir::guard::{Symbol, SymbolicSum};
use crate::ir::launch_shape::LaunchShape;
use crate::ops::{Kind, Site};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

pub use lexer::ParseError;
pub use parse::parse;
pub use print::{ValueNames, print};
pub use reader::TextReader;
pub use rewrite::{
    FuncBuilder, Rewriter, ScopedMap, cse_and_dce, dce, strip_debug, substitute, substitute_in,
};
pub use verify::verify;

/// The largest odd factor of an extent.
pub const MAX_ODD: u32 = 15;
/// The largest number of elements in a tile.
pub const MAX_ELEMENTS: u64 = 1 << 20;
/// The largest rank of a tile.
pub const MAX_RANK: usize = 5;

/// The extents of a tile, outermost first; empty for a scalar.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<u32>);

impl Shape {
    pub fn new(extents: impl Into<Vec<u32>>) -> Shape {
        Shape(extents.into())
    }

    pub fn scalar() -> Shape {
        Shape(vec![])
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    pub fn elements(&self) -> u64 {
        self.0.iter().map(|&extent| u64::from(extent)).product()
    }

    /// The shape without one axis.
    pub fn without(&self, axis: usize) -> Shape {
        let mut extents = self.0.clone();
        extents.remove(axis);
        Shape(extents)
    }

    /// The shape with a new axis of one extent.
    pub fn with(&self, axis: usize, extent: u32) -> Shape {
        let mut extents = self.0.clone();
        extents.insert(axis, extent);
        Shape(extents)
    }

    /// The axis of `to` that each of these axes is, if nothing but axes of extent 1 comes and goes; an axis that goes is
    /// none.
    pub fn kept_axes(&self, to: &Shape) -> Option<Vec<Option<usize>>> {
        let mut long = (0..to.rank()).filter(|&axis| to[axis] > 1);
        let kept = self.iter().map(|&extent| if extent > 1 { long.next() } else { None });
        let kept: Vec<Option<usize>> = kept.collect();
        let same =
            |(&extent, new): (&u32, &Option<usize>)| extent == 1 || new.is_some_and(|new| to[new] == extent);
        (self.iter().zip(&kept).all(same) && long.next().is_none()).then_some(kept)
    }

    /// The shape both broadcast to, aligned at the last axis, or `None`.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let extent = |shape: &Shape, axis: usize| {
            let missing = rank - shape.rank();
            if axis < missing { 1 } else { shape.0[axis - missing] }
        };
        let extents: Option<Vec<u32>> = (0..rank)
            .map(|axis| match (extent(self, axis), extent(other, axis)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect();
        extents.map(Shape)
    }
}

impl std::ops::Deref for Shape {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.0.iter().map(u32::to_string).collect();
        write!(f, "[{}]", extents.join(", "))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why an extent or shape cannot be a tile's, in the user's words.
pub fn shape_problem(shape: &[i128]) -> Option<String> {
    if shape.len() > MAX_RANK {
        return Some(format!("a tile has at most {MAX_RANK} axes, found {}", shape.len()));
    }
    for &extent in shape {
        if let Some(problem) = extent_problem(extent) {
            return Some(problem);
        }
    }
    let elements: i128 = shape.iter().product();
    (elements > i128::from(MAX_ELEMENTS)).then(|| {
        format!(
            "a tile has at most {MAX_ELEMENTS} elements, found {elements}: split it over programs or a loop"
        )
    })
}

fn extent_problem(extent: i128) -> Option<String> {
    if extent < 1 {
        return Some(format!("a tile extent is at least 1, found {extent}"));
    }
    if extent > i128::from(MAX_ELEMENTS) {
        return Some(format!("a tile extent is at most {MAX_ELEMENTS}, found {extent}"));
    }
    let legal = |extent: i128| extent >> extent.trailing_zeros() <= i128::from(MAX_ODD);
    if legal(extent) {
        return None;
    }
    let below = (1..extent).rev().find(|&e| legal(e)).unwrap_or(1);
    let above = (extent..).find(|&e| legal(e)).unwrap_or(extent);
    Some(format!(
        "a tile extent of {extent} is not supported: an extent is a power of two, or one times 3, 5, 7, 9, 11, 13 or 15 (next to it are {below} and {above})"
    ))
}

/// Element type and shape, and where the elements are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    pub dtype: DType,
    pub shape: Shape,
    pub storage: Storage,
}

/// Where the elements of a value are. All values of tile IR are in registers; the others are a GPU schedule's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Storage {
    /// Registers of threads, by the value's layout.
    #[default]
    Registers,
    /// Registers of threads, packed into 32-bit words.
    Words,
    /// A buffer in shared memory with so many stages.
    Smem { stages: u32 },
    /// `mbarrier` objects in shared memory, one a stage. So many arrivals complete a phase, `cluster` in each block of the cluster.
    Mbarrier { stages: u32, arrivals: u32, cluster: bool },
    /// A pipeline state: the stage that is next and the parity of its phase.
    Pipe { stages: u32 },
    /// A slot of a ring that threads copy to, as so many addresses of a thread.
    Slot { addresses: u32 },
    /// Copies of a thread that are prepared and not yet started.
    Copies,
}

impl Type {
    pub fn scalar(dtype: DType) -> Type {
        Type { dtype, shape: Shape::scalar(), storage: Storage::Registers }
    }

    pub fn tile(dtype: DType, shape: Shape) -> Type {
        Type { dtype, shape, storage: Storage::Registers }
    }

    /// A pipeline state over so many stages.
    pub fn pipe(stages: u32) -> Type {
        Type::scalar(DType::I32).stored(Storage::Pipe { stages })
    }

    /// A slot as so many addresses.
    pub fn slot(addresses: u32) -> Type {
        Type::scalar(DType::I32).stored(Storage::Slot { addresses })
    }

    /// Copies that are prepared.
    pub fn copies() -> Type {
        Type::scalar(DType::I32).stored(Storage::Copies)
    }

    /// `mbarrier` objects, one a stage.
    pub fn mbarriers(stages: u32, arrivals: u32, cluster: bool) -> Type {
        Type::scalar(DType::U64).stored(Storage::Mbarrier { stages, arrivals, cluster })
    }

    /// The same elements elsewhere.
    pub fn stored(&self, storage: Storage) -> Type {
        Type { storage, ..self.clone() }
    }

    pub fn is_scalar(&self) -> bool {
        self.shape.rank() == 0 && self.storage == Storage::Registers
    }

    pub fn with(&self, dtype: DType) -> Type {
        Type { dtype, ..self.clone() }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.storage {
            Storage::Registers if self.is_scalar() => write!(f, "{}", self.dtype),
            Storage::Registers => write!(f, "{}{}", self.dtype, self.shape),
            Storage::Words => write!(f, "words<{}{}>", self.dtype, self.shape),
            Storage::Smem { stages } => write!(f, "smem<{}{}, stages {stages}>", self.dtype, self.shape),
            Storage::Mbarrier { stages, arrivals, cluster } => {
                let each = if cluster { " a_block" } else { "" };
                write!(f, "mbar<stages {stages}, arrivals {arrivals}{each}>")
            }
            Storage::Pipe { stages } => write!(f, "pipe<{stages}>"),
            Storage::Slot { addresses } => write!(f, "slot<{addresses}>"),
            Storage::Copies => write!(f, "copies"),
        }
    }
}

/// An SSA value of a [`Func`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Value(u32);

impl Value {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A parameter of the kernel, by position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ParamId(pub u32);

impl ParamId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
pub struct Param {
    pub name: String,
    pub kind: ParamKind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// Memory of a length known at launch.
    Slice { elem: DType, mutable: bool },
    /// A value passed to every program.
    Scalar { value: Value, dtype: DType },
}

/// Memory with a shape and strides, in elements. It is several parameters: a slice, and scalars of type `i64` for the
/// extent of each axis and then for the stride of each.
///
/// Whoever launches the kernel has made sure that every index inside the shape is an element of the slice, and that
/// extents and strides lie between 0 and [`View::LIMIT`].
#[derive(Clone, Debug)]
pub struct View {
    pub memory: ParamId,
    pub shape: Vec<Value>,
    pub strides: Vec<Value>,
    /// Whether the last two axes are swapped: the parameters that follow the memory have them in the other order.
    pub transposed: bool,
    /// What a launch computes for the extents and strides where no parameters have them: of a view of a slice that is accessed by
    /// pointers. The values of its extents and strides are nowhere defined.
    pub computed: Option<LaunchShape>,
}

impl View {
    /// Above every extent and stride: offsets within a tile do not overflow 64 bits.
    pub const LIMIT: i128 = 1 << 40;

    /// The view of a memory whose extents and strides are the scalars that follow it, if they are.
    pub fn of_params(params: &[Param], memory: ParamId, rank: usize) -> Option<View> {
        let following = params.get(memory.index() + 1..memory.index() + 1 + 2 * rank)?;
        let scalars: Option<Vec<Value>> = following
            .iter()
            .map(|param| match param.kind {
                ParamKind::Scalar { value, dtype: DType::I64 } => Some(value),
                ParamKind::Scalar { .. } | ParamKind::Slice { .. } => None,
            })
            .collect();
        let mut shape = scalars?;
        let strides = shape.split_off(rank);
        Some(View { memory, shape, strides, transposed: false, computed: None })
    }

    /// A view of a slice with a shape that a launch computes.
    pub fn of_slice(func: &mut Func, memory: ParamId, computed: LaunchShape) -> View {
        let rank = computed.extents.len();
        let mut undefined = || (0..rank).map(|_| func.value(Type::scalar(DType::I64))).collect();
        View { memory, shape: undefined(), strides: undefined(), transposed: false, computed: Some(computed) }
    }

    /// Its extents and strides as a launch knows them.
    pub fn launch_shape(&self) -> LaunchShape {
        if let Some(computed) = &self.computed {
            return computed.clone();
        }
        let first = self.memory.0 + 1;
        let scalars = |from: u32| {
            let mut scalars: Vec<u32> = (from..from + self.rank() as u32).collect();
            if let [.., row, column] = &mut scalars[..]
                && self.transposed
            {
                std::mem::swap(row, column);
            }
            scalars.into_iter().map(|scalar| SymbolicSum::of(Symbol::Scalar(scalar))).collect()
        };
        LaunchShape { extents: scalars(first), strides: scalars(first + self.rank() as u32) }
    }

    /// Swaps the last two axes.
    pub fn transpose(&mut self) {
        for scalars in [&mut self.shape, &mut self.strides] {
            if let [.., row, column] = &mut scalars[..] {
                std::mem::swap(row, column);
            }
        }
        self.transposed = !self.transposed;
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }
}

/// A value and everything it is computed from, through loops and branches too.
pub fn backward_slice(value: Value, definitions: &HashMap<Value, &Op>) -> HashSet<Value> {
    let mut found = HashSet::new();
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        if found.insert(value)
            && let Some(op) = definitions.get(&value)
        {
            let operation = op.kind.operation();
            todo.extend(operation.operands());
            todo.extend(operation.blocks().into_iter().flat_map(|block| block.yields.iter().copied()));
        }
    }
    found
}

/// What defines a value among these operations, nested ones left out.
pub fn definition(ops: &[Op], value: Value) -> Option<&Kind> {
    ops.iter().find(|op| op.results.contains(&value)).map(|op| &op.kind)
}

/// One operation and the values it defines.
#[derive(Clone, Debug)]
pub struct Op {
    pub kind: Kind,
    pub results: Vec<Value>,
    pub loc: Loc,
}

/// A straight line of operations; `args` are defined at its start, `yields` are what it ends with.
#[derive(Clone, Default, Debug)]
pub struct Block {
    pub args: Vec<Value>,
    pub ops: Vec<Op>,
    pub yields: Vec<Value>,
}

impl Block {
    /// Visits every operation, those of nested blocks after the operation that contains them.
    pub fn walk<'b>(&'b self, visit: &mut dyn FnMut(&'b Op)) {
        for op in &self.ops {
            visit(op);
            for block in op.kind.operation().blocks() {
                block.walk(visit);
            }
        }
    }

    /// What defines a value in this block, nested ones left out.
    pub fn definition(&self, value: Value) -> Option<&Kind> {
        definition(&self.ops, value)
    }

    /// All that is defined in a block, its arguments included.
    pub fn defined(&self) -> HashSet<Value> {
        let mut values: HashSet<Value> = self.args.iter().copied().collect();
        self.walk(&mut |op| {
            values.extend(&op.results);
            values.extend(op.kind.operation().blocks().into_iter().flat_map(|block| &block.args));
        });
        values
    }

    /// All values that a block uses, those of nested ones included; what blocks yield counts.
    pub fn used(&self) -> HashSet<Value> {
        let mut values: HashSet<Value> = self.yields.iter().copied().collect();
        self.walk(&mut |op| {
            let operation = op.kind.operation();
            values.extend(operation.operands());
            values.extend(operation.blocks().into_iter().flat_map(|nested| &nested.yields));
        });
        values
    }

    /// How often a block uses a value; what blocks yield counts.
    pub fn uses(&self, value: Value) -> usize {
        let count = |values: &[Value]| values.iter().filter(|&&used| used == value).count();
        let mut uses = count(&self.yields);
        self.walk(&mut |op| {
            let operation = op.kind.operation();
            uses += count(&operation.operands());
            uses += operation.blocks().into_iter().map(|block| count(&block.yields)).sum::<usize>();
        });
        uses
    }
}

/// A kernel for one variant.
#[derive(Clone, Debug)]
pub struct Func {
    pub name: String,
    pub params: Vec<Param>,
    pub body: Block,
    pub loc: Loc,
    /// Whether an access that bounds mask off is reported to the launcher.
    pub reports: bool,
    /// What the operations that only a debug build has report.
    pub sites: Vec<Site>,
    /// What the user assumed of the arguments with `tl::assume`.
    pub assumptions: Vec<Assumption>,
    /// The least power of two that the user states to divide a loaded scalar, with `tl::multiple_of` or `tl::assume`.
    pub stated_multiple: Option<u32>,
    pub views: Vec<View>,
    types: Vec<Type>,
}

impl Func {
    pub fn new(name: impl Into<String>, loc: Loc) -> Func {
        Func {
            name: name.into(),
            params: vec![],
            body: Block::default(),
            loc,
            reports: false,
            sites: vec![],
            assumptions: vec![],
            stated_multiple: None,
            views: vec![],
            types: vec![],
        }
    }

    /// Notes that the user states that `by` divides a loaded scalar.
    pub fn state_multiple(&mut self, by: u32) {
        self.stated_multiple = Some(self.stated_multiple.map_or(by, |least| least.min(by)));
    }

    /// A fresh value.
    pub fn value(&mut self, ty: Type) -> Value {
        self.types.push(ty);
        Value(self.types.len() as u32 - 1)
    }

    pub fn ty(&self, value: Value) -> &Type {
        &self.types[value.index()]
    }

    /// The value with an index below [`Func::value_count`].
    pub fn value_at(&self, index: usize) -> Value {
        debug_assert!(index < self.types.len());
        Value(index as u32)
    }

    /// How many values there are; every [`Value::index`] is below it.
    pub fn value_count(&self) -> usize {
        self.types.len()
    }

    /// The operation that defines each value; block arguments and parameters have none.
    pub fn definitions(&self) -> HashMap<Value, &Op> {
        let mut map = HashMap::new();
        self.body.walk(&mut |op| map.extend(op.results.iter().map(|&result| (result, op))));
        map
    }

    /// Copies of the definitions, for a pass that changes the function.
    pub fn cloned_definitions(&self) -> HashMap<Value, Op> {
        self.definitions().into_iter().map(|(value, op)| (value, op.clone())).collect()
    }

    /// The position of the parameter that a scalar is, if it is one.
    pub fn scalar_parameter(&self, value: Value) -> Option<u32> {
        let is = |param: &Param| matches!(param.kind, ParamKind::Scalar { value: own, .. } if own == value);
        self.params.iter().position(is).map(|position| position as u32)
    }

    /// The view whose memory a parameter is.
    pub fn view(&self, memory: ParamId) -> Option<&View> {
        self.views.iter().find(|view| view.memory == memory)
    }

    /// Whether a value is an extent or a stride of a view.
    pub fn is_view_scalar(&self, value: Value) -> bool {
        self.views.iter().any(|view| view.shape.contains(&value) || view.strides.contains(&value))
    }

    /// The slice parameter's element type and whether it is writable.
    pub fn slice(&self, param: ParamId) -> (DType, bool) {
        match self.params[param.index()].kind {
            ParamKind::Slice { elem, mutable } => (elem, mutable),
            ParamKind::Scalar { .. } => unreachable!("memory operations name slices: the verifier checks it"),
        }
    }
}

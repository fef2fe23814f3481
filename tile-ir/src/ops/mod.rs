//! The operations of the language, each declared once.
//!
//! A lanewise operation is a row of the table in [`scalar`]; a structural one is a file here with one
//! [`Operation`] and one word in the list below. From the declaration come the name the parser knows, the typing rule,
//! the printed form, the verifier's rule, the documentation in `dsl_runtime::tl`, the emission for both targets and the
//! generic tests. Passes ask an operation for its properties, never for its name.

mod arith;
mod atomic;
mod axis_hint;
mod bitcast;
mod cache;
mod cast;
mod combine;
mod control;
mod convert;
mod debug;
mod dot;
mod fold;
mod histogram;
mod index;
mod inline;
pub(crate) mod library;
mod memory;
mod random;
mod rearrange;
mod reduce;
mod rotate;
pub mod scalar;
mod scan;
pub mod schedule;
mod shape;
mod sort;
mod source;
mod special_register;
mod syntax;
mod tma_store;
pub mod typing;
mod view;
mod warp_group_dot;

use std::fmt::Debug;

use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::polynomial::{Polynomial, PolynomialEnv};
use crate::ir::text::OperationText;
use crate::ir::{Block, Func, ParseError, TextReader, Type, Value};
use typing::{Call, Operand, TypingCx};

pub use atomic::{Atomic, AtomicChange, MemoryOrder, MemoryScope};
pub use axis_hint::AxisHint;
pub use bitcast::Bitcast;
pub use cache::{CacheHints, CacheModifier, EvictionPolicy};
pub use cast::Cast;
pub use combine::{Combination, Extreme};
pub use control::{For, If, LoopHints, While};
pub use convert::{Convert, RematBarrier};
pub use debug::{Assert, Print, Site, records_source};
pub use dot::{Dot, DotOperand, DotUnit, InputPrecision, has_own_dot};
pub use histogram::Histogram;
pub use index::Index;
pub use inline::InlinePtx;
pub use memory::{Load, MemAccess, Shift, Store, VectorStart};
pub use random::{Philox, Random, RandomForm, WordChoice};
pub use rearrange::{Exchange, Gather, Join};
pub use reduce::Reduce;
pub use rotate::{RangeOrder, Rotate, RowCut};
pub use scalar::{Scalar, ScalarOp};
pub use scan::Scan;
pub use schedule::{
    AsyncCopy, AsyncGroup, AsyncWait, Barrier, ClusterArrive, ClusterWait, DotWait, ExpectTx, Induction,
    IterationBound, Loop, MbarAlloc, MbarArrive, MbarArriveForPeer, MbarInit, MbarWait, MmaOrder, Pack,
    PdlWait, PeerShares, PipeNext, PipeStart, Poison, ProxyFence, Publish, ReduceBatch, RescaleRows,
    RingStart, SlotAt, SlotLoad, SlotStep, SlotStore, SlotTile, SmemAlloc, SmemLoadWords, StageOperands,
    StoreWait, TileQuotient, TmaLoad, TripCount, Unpack, WarpBarrier, WarpSpecialize, WarpgroupPosition,
    Wgmma, WorkTiles,
};
pub use shape::{Broadcast, ExpandDims, Permute, Reshape, broadcast_help};
pub use source::{Arange, Constant, ConstantValue, Length, NumPrograms, ProgramId, Splat, is_zero};
pub use special_register::{ReadRegister, SpecialRegister};
pub use tma_store::TmaStore;
pub use view::{AddView, LoadView, StoreView, ViewTile};
pub use warp_group_dot::{OperandA, SmemOperand, WarpGroupDot};

/// What an operation does besides giving its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: it may be merged with an equal one, moved or removed.
    Pure,
    /// Reads memory that may be written: it stays where it is among writes, and may be removed when unused.
    Read,
    /// Writes memory or has another lasting effect.
    Write,
}

/// What every operation of the tile IR answers for itself.
pub trait Operation: OperationText + Debug {
    /// The values it takes, those of nested blocks left out.
    fn operands(&self) -> Vec<Value>;

    /// Replaces each operand.
    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value);

    fn blocks(&self) -> Vec<&Block> {
        vec![]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![]
    }

    /// Whether its blocks use nothing from outside of them, as a combination does, which is inlined many times.
    fn isolated(&self) -> bool {
        false
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    /// Whether its results follow from its operands alone, so that it may be computed elsewhere: it touches no memory and has no blocks.
    fn is_speculatable(&self) -> bool {
        self.effect() == Effect::Pure
            && self.access().is_none()
            && self.view_tile().is_none()
            && self.blocks().is_empty()
    }

    /// How many results it gives.
    fn result_count(&self) -> usize {
        1
    }

    /// The types of the arguments of one of its blocks.
    fn block_args(&self, func: &Func, block: usize) -> Vec<Type> {
        let _ = (func, block);
        vec![]
    }

    /// Fills in what its text leaves out because it follows from the types of operands and results.
    fn infer(&mut self, func: &Func, results: &[Value]) {
        let _ = (func, results);
    }

    /// The operation's own laws, beyond those every operation obeys.
    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String>;

    /// Contiguity, divisibility, constancy and range of its results. An operation with blocks runs the analysis on them.
    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        results.iter().map(|&result| AxisInfo::unknown(env.func().ty(result))).collect()
    }

    /// How the layouts of its tile operands and results are related.
    fn layout_relation(&self, func: &Func, results: &[Value]) -> LayoutRelation;

    /// The memory it reads or writes.
    fn access(&self) -> Option<&MemAccess> {
        None
    }

    fn access_mut(&mut self) -> Option<&mut MemAccess> {
        None
    }

    /// The block of a view it reads or writes; a memory operation has a [`MemAccess`] or a [`ViewTile`].
    fn view_tile(&self) -> Option<&ViewTile> {
        None
    }

    /// The blocks of views that are its operands.
    fn view_tiles(&self) -> Vec<&ViewTile> {
        vec![]
    }

    fn view_tiles_mut(&mut self) -> Vec<&mut ViewTile> {
        vec![]
    }

    /// The operation on the elements that `access` addresses, in place of its block of a view.
    fn lower_to_access(&self, access: MemAccess) -> Option<Kind> {
        let _ = access;
        None
    }

    /// One instruction may move this many contiguous elements of [`Operation::access`].
    fn set_vector(&mut self, vector: u32) {
        if let Some(access) = self.access_mut() {
            access.vector = vector;
        }
    }

    /// Whether an element of its result depends on that element of its operands alone.
    fn is_pointwise(&self) -> bool {
        false
    }

    /// How an atomic operation is ordered among other accesses, and for whom.
    fn ordering_mut(&mut self) -> Option<(&mut MemoryOrder, &mut MemoryScope)> {
        None
    }

    /// What a load or store says about caches.
    fn cache(&self) -> Option<CacheHints> {
        None
    }

    fn cache_mut(&mut self) -> Option<&mut CacheHints> {
        None
    }

    /// The index in [`Func::sites`] of the message of an operation that only a debug build has.
    fn site(&self) -> Option<u32> {
        None
    }

    /// For an operation that only moves the elements of its one operand: the result's axis that each of the operand's
    /// becomes, `None` for an axis that does not stay one.
    fn axis_map(&self, func: &Func) -> Option<Vec<Option<usize>>> {
        let _ = func;
        None
    }

    /// Its single integer result as a polynomial, or `None` when it is not one.
    fn polynomial(&self, env: &dyn PolynomialEnv, func: &Func, result: Value) -> Option<Polynomial> {
        let _ = (env, func, result);
        None
    }
}

macro_rules! operations {
    ($($name:ident),* $(,)?) => {
        /// Any operation.
        #[derive(Clone, Debug)]
        pub enum Kind {
            $($name($name),)*
        }

        impl Kind {
            pub fn operation(&self) -> &dyn Operation {
                match self {
                    $(Kind::$name(op) => op,)*
                }
            }

            pub fn operation_mut(&mut self) -> &mut dyn Operation {
                match self {
                    $(Kind::$name(op) => op,)*
                }
            }
        }

        /// Reads an operation behind its name, if there is one of this name.
        pub(crate) fn read_operation(name: &str, input: &mut TextReader) -> Option<Result<Kind, ParseError>> {
            $(if $name::is_named(name) {
                return Some($name::read(name, input).map(Kind::$name));
            })*
            None
        }

        $(impl From<$name> for Kind {
            fn from(op: $name) -> Kind {
                Kind::$name(op)
            }
        })*
    };
}

/// Hands the name of every operation to a macro: what each stage does for all of them is a table that it expands.
#[macro_export]
macro_rules! for_each_op {
    ($table:ident) => {
        $table! {
            Constant,
            ProgramId,
            NumPrograms,
            Length,
            Arange,
            Rotate,
            Splat,
            Scalar,
            Cast,
            Bitcast,
            Broadcast,
            ExpandDims,
            Reshape,
            Permute,
            Load,
            Store,
            Atomic,
            LoadView,
            StoreView,
            AddView,
            InlinePtx,
            ReadRegister,
            AxisHint,
            Reduce,
            For,
            If,
            While,
            Convert,
            RematBarrier,
            Random,
            Philox,
            Scan,
            Join,
            Index,
            Exchange,
            Gather,
            Histogram,
            Dot,
            WarpGroupDot,
            TmaStore,
            SmemAlloc,
            MbarAlloc,
            MbarInit,
            MbarWait,
            MbarArrive,
            MbarArriveForPeer,
            ExpectTx,
            WarpBarrier,
            Barrier,
            ProxyFence,
            PdlWait,
            ClusterArrive,
            ClusterWait,
            MmaOrder,
            PipeStart,
            PipeNext,
            SmemLoadWords,
            Poison,
            Pack,
            Unpack,
            TmaLoad,
            StoreWait,
            WarpgroupPosition,
            Wgmma,
            DotWait,
            RescaleRows,
            TripCount,
            Induction,
            Loop,
            IterationBound,
            WarpSpecialize,
            WorkTiles,
            Publish,
            TileQuotient,
            PeerShares,
            RingStart,
            SlotAt,
            SlotStep,
            AsyncCopy,
            AsyncGroup,
            AsyncWait,
            SlotLoad,
            SlotStore,
            SlotTile,
            ReduceBatch,
            StageOperands,
            Assert,
            Print,
        }
    };
}

pub use for_each_op;

for_each_op!(operations);

/// A function of `tl::` that is more than a row of the lanewise table.
pub struct Intrinsic {
    pub name: &'static str,
    /// What stands between `::<` and `>`.
    pub generic: IntrinsicGeneric,
    pub params: &'static [IntrinsicParam],
    /// Markdown: what it computes, shapes, element types, NaN and rounding behavior.
    pub doc: &'static str,
    /// Statements that use it, in a kernel with the names of `lowering::devtools::tl_reference::EXAMPLE_KERNEL`.
    pub example: &'static str,
    pub returns: Returns,
    pub check: fn(&mut dyn TypingCx, &Call) -> Operand,
}

/// What an [`Intrinsic`] returns, for its documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// A tile, or a scalar.
    Tile,
    /// That many tiles or scalars.
    Tuple(usize),
    /// As many tiles as its first argument has.
    Same,
    /// What a `for` runs over.
    Range,
    /// A view with one axis less.
    View,
    /// An integer known at build.
    Constant,
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntrinsicGeneric {
    None,
    /// One element type, or nothing.
    OptionalType,
    /// One element type.
    RequiredType,
    /// One element type, or a tuple of them, of the results.
    Results,
    /// A constant for each axis of a view.
    Extents,
}

/// A parameter of a [`Intrinsic`].
#[derive(Clone, Copy, Debug)]
pub struct IntrinsicParam {
    pub name: &'static str,
    pub optional: bool,
    /// There is one for each axis of a view.
    pub each_axis: bool,
}

/// Shorthand for the tables of parameters: `required("pointer")`.
pub const fn required(name: &'static str) -> IntrinsicParam {
    IntrinsicParam { name, optional: false, each_axis: false }
}

pub const fn optional(name: &'static str) -> IntrinsicParam {
    IntrinsicParam { name, optional: true, each_axis: false }
}

pub const fn each_axis(name: &'static str) -> IntrinsicParam {
    IntrinsicParam { name, optional: false, each_axis: true }
}

/// Every function that is not a row of the lanewise table.
pub fn functions() -> impl Iterator<Item = &'static Intrinsic> {
    [
        source::FUNCTIONS,
        shape::FUNCTIONS,
        memory::FUNCTIONS,
        atomic::FUNCTIONS,
        inline::FUNCTIONS,
        special_register::FUNCTIONS,
        axis_hint::FUNCTIONS,
        debug::FUNCTIONS,
        reduce::FUNCTIONS,
        dot::FUNCTIONS,
        random::FUNCTIONS,
        scan::FUNCTIONS,
        rearrange::FUNCTIONS,
        sort::FUNCTIONS,
        histogram::FUNCTIONS,
        fold::FUNCTIONS,
        library::FUNCTIONS,
        control::FUNCTIONS,
        cast::FUNCTIONS,
    ]
    .into_iter()
    .flatten()
}

/// Whether `tl::name` is a function.
pub fn is_function(name: &str) -> bool {
    scalar::functions::named(name).is_some() || functions().any(|function| function.name == name)
}

/// The names of the functions of `tl::`.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    scalar::functions::all().map(|op| op.name).chain(functions().map(|function| function.name))
}

/// Whether the function or method does more than compute a value.
pub fn has_effect(name: &str) -> bool {
    let writes = atomic::FUNCTIONS.iter().chain(inline::FUNCTIONS);
    let without_result =
        functions().chain(methods()).chain(view_methods()).filter(|own| own.returns == Returns::Nothing);
    writes.chain(without_result).any(|function| function.name == name)
}

/// A method, written `receiver.name(..)`; the receiver is the first argument.
pub fn methods() -> impl Iterator<Item = &'static Intrinsic> {
    tile_methods().chain(cache::STORE_METHODS).chain(slice_methods()).chain(range_methods())
}

pub fn tile_methods() -> impl Iterator<Item = &'static Intrinsic> {
    [cast::METHODS, bitcast::METHODS, shape::METHODS, atomic::METHODS, cache::METHODS, dot::METHODS]
        .into_iter()
        .flatten()
}

/// Methods of scalars that have nothing to do with memory or axes.
pub fn scalar_methods() -> impl Iterator<Item = &'static Intrinsic> {
    cast::METHODS.iter().chain(bitcast::METHODS)
}

/// Methods that say more about a store, which returns nothing.
pub fn store_methods() -> impl Iterator<Item = &'static Intrinsic> {
    cache::METHODS.iter().chain(cache::STORE_METHODS)
}

pub fn slice_methods() -> impl Iterator<Item = &'static Intrinsic> {
    source::METHODS.iter()
}

/// Methods of a view parameter.
pub fn view_methods() -> impl Iterator<Item = &'static Intrinsic> {
    view::METHODS.iter()
}

pub fn range_methods() -> impl Iterator<Item = &'static Intrinsic> {
    control::METHODS.iter()
}

/// What methods after a call choose: a call has at most one of `methods`.
pub struct MethodChoice {
    pub what: &'static str,
    methods: &'static [&'static str],
}

impl MethodChoice {
    /// The choice that a method makes; `None` of one that computes something.
    pub fn by(method: &str) -> Option<&'static MethodChoice> {
        let choices = [cache::CHOICES, atomic::CHOICES, dot::CHOICES, control::CHOICES];
        choices.into_iter().flatten().find(|choice| choice.methods.contains(&method))
    }
}

/// A test that two lists of types are what an operation promises.
pub(crate) fn expect_types<T: PartialEq + std::fmt::Display>(
    what: &str,
    found: T,
    wanted: T,
) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what} is {found}, expected {wanted}")) }
}

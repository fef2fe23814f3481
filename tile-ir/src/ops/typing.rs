//! What typing rules work on: operands and calls, and what a rule asks of the checker ([`TypingCx`]).
//!
//! The checker is a later stage: rules know it by this trait alone.

use super::{ConstantValue, Kind, LoopHints, Site};
use crate::ir::{Block, Func, Op, ParamId, Shape, Type, Value, View};
use crate::support::diagnostic::Loc;
use crate::support::dtype::{Class, DType};

/// What an expression evaluates to, and its span.
#[derive(Clone, Debug)]
pub struct Operand {
    pub item: Item,
    pub loc: Loc,
}

#[derive(Clone, Debug)]
pub enum Item {
    /// A constant number or bool.
    Literal(Literal),
    /// A tile or scalar.
    Value(Value),
    /// A slice parameter.
    Slice(ParamId),
    View(ViewPart),
    /// An optional parameter: what it holds, if it is there.
    Optional {
        held: Box<Item>,
        is_some: bool,
    },
    /// A slice and offsets into it.
    Pointer(Pointer),
    Tuple(Vec<Operand>),
    /// A struct, and the values of its fields in their order.
    Struct(StructId, Vec<Operand>),
    /// `[M, N]`, as shapes are written.
    List(Vec<Operand>),
    Text(String),
    Range(Range),
    /// A callee: a function, a closure, a function of `tl::`.
    Function(CalleeId),
    Unit,
    /// An error that was already reported; errors that follow from it are not.
    Failed,
}

/// A view parameter, by its memory, or the part of it that `.at` chooses.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewPart {
    pub memory: ParamId,
    /// Indices along the leading axes, which the part does not have.
    pub at: Vec<Value>,
}

impl ViewPart {
    pub fn rank(&self, func: &Func) -> usize {
        func.view(self.memory).map_or(0, View::rank) - self.at.len()
    }
}

/// A callee, by its index in the checker's table: what it is made of is syntax, which no rule looks into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalleeId(pub u32);

/// A struct that is declared, by its index in the checker's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StructId(pub u32);

/// A constant. Without an element type it takes that of the other operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Literal {
    pub value: LiteralValue,
    pub dtype: Option<DType>,
    /// Written as digits: an integer may then become a float.
    pub digits: bool,
    /// Made with `!`: a negative one may become the unsigned integer of the same bits.
    pub complement: bool,
    /// The division with a remainder that it is made of: such an integer is no part of a float.
    pub division: Option<InexactDivision>,
}

/// A division of integer constants with a remainder, whose quotient was rounded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InexactDivision {
    pub dividend: i128,
    pub divisor: i128,
    pub quotient: i128,
    /// Both are written as digits.
    pub digits: bool,
    /// Its operator.
    pub loc: Loc,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LiteralValue {
    Number(ConstantValue),
    Bool(bool),
}

/// Addresses: a slice and element offsets, one for each element of `shape`.
#[derive(Clone, Debug)]
pub struct Pointer {
    pub param: ParamId,
    pub offset: Value,
    pub shape: Shape,
    /// Whether the offset is an exact `i64` by itself, as that of a pointer which a loop carries or a branch gives: index
    /// legalization does not see behind it.
    pub is_exact: bool,
}

/// The range of a `for`.
#[derive(Clone, Debug)]
pub struct Range {
    pub low: Box<Operand>,
    pub high: Box<Operand>,
    pub step: Option<Box<Operand>>,
    /// Whether `high` is one of the values.
    pub closed: bool,
    /// The loop variable is a constant and the body is repeated for each of its values.
    pub unrolled: bool,
    pub hints: LoopHints,
}

/// A call of a function or method of the language, its arguments counted and evaluated. What stands between `::<` and
/// `>` is asked of the checker: [`TypingCx::generic_type`], [`TypingCx::extents`].
pub struct Call {
    pub name: String,
    /// How messages name it: `` `tl::sum` `` or `` `.row` ``.
    pub what: String,
    pub name_loc: Loc,
    pub loc: Loc,
    pub args: Vec<Operand>,
    /// The first argument as written, for a function that prints it.
    pub text: String,
}

/// Where a mismatch of two operands is reported.
#[derive(Clone, Copy)]
pub enum ErrorLoc {
    /// On the operator between them.
    Here(Loc),
    /// On the first operand that does not match those before it.
    Operand,
}

/// One of the results of a function that gives as many as there are types, several as a tuple.
#[derive(Clone, Copy, Debug)]
pub struct OneResult<'t> {
    pub types: &'t [DType],
    pub index: usize,
}

/// What the rule of one call asks of the checker. A method that returns `None` or `false` has reported why.
pub trait TypingCx {
    fn func(&self) -> &Func;

    /// Whether the kernel is `unchecked`: its caller vouches for every access.
    fn is_unchecked(&self) -> bool;

    /// Notes that the user states that `by` divides a scalar, if that is computed from memory.
    fn state_multiple(&mut self, scalar: Value, by: u32);

    /// What an operand is, for messages: `a tile of type f32[1024]`.
    fn describe(&self, operand: &Operand) -> String;

    /// How the user wrote the element type of a slice or view.
    fn written_elem(&self, param: ParamId) -> String;

    /// Reports a mistake; rules call `error` and `error_help`.
    fn report(&mut self, loc: Loc, message: String, help: Option<String>);

    /// `tl::static_print`.
    fn print(&mut self, operand: &Operand);

    // ---- building

    /// Builds an operation and returns its results; rules call `push` and `emit`.
    fn build(&mut self, kind: Kind, types: Vec<Type>, loc: Loc) -> Vec<Value>;

    /// The operation that a call has just built, for a method after the call that sets an attribute of it.
    fn operation_of(&mut self, operand: &Operand) -> Option<&mut Op>;

    /// Extends the span of the operation of `operand` to that of the methods after the call.
    fn extend_operation(&mut self, operand: &Operand, loc: Loc);

    /// Adds the source site of an operation that only debug builds have; returns its index.
    fn site(&mut self, site: Site) -> u32;

    fn begin_block(&mut self, args: Vec<Type>) -> Vec<Value>;

    fn end_block(&mut self, yields: Vec<Value>) -> Block;

    fn zero(&mut self, dtype: DType, loc: Loc) -> Value;

    /// Applies a row of the lanewise table, by name, to values of the right types.
    fn row(&mut self, name: &str, args: &[Value], loc: Loc) -> Value;

    /// A tile of type `ty` with a constant in every element.
    fn filled(&mut self, value: ConstantValue, ty: &Type, loc: Loc) -> Value;

    fn splat(&mut self, value: Value, shape: &Shape, loc: Loc) -> Value;

    /// Broadcasts to a shape it is known to fit.
    fn broadcast(&mut self, value: Value, shape: &Shape, loc: Loc) -> Value;

    /// Converts a value that has another element type.
    fn convert(&mut self, value: Value, dtype: DType, loc: Loc) -> Value;

    // ---- values

    /// The operand as a tile or scalar; a literal gets `i32`, `f32` or `bool`.
    fn value(&mut self, operand: &Operand) -> Option<Value>;

    /// The operand as a tile of at least one axis.
    fn tile(&mut self, operand: &Operand, what: &str) -> Option<Value>;

    /// The operand as values of one element type: a literal becomes it, anything else must have it.
    fn value_as(&mut self, operand: &Operand, dtype: DType, what: &str) -> Option<Value>;

    /// The operand as elements of a slice; an error names the type as the slice's declaration does.
    fn value_for(&mut self, param: ParamId, operand: &Operand, what: &str) -> Option<Value>;

    /// The common element type of an operation's operands; literals without a type take it.
    fn common_type(&mut self, what: &str, error_loc: ErrorLoc, operands: &[&Operand]) -> Option<DType>;

    /// Broadcasts values to the shape they share.
    fn common_shape(&mut self, what: &str, loc: Loc, values: &mut [Value]) -> Option<Shape>;

    /// Converts a tile, scalar or constant.
    fn cast(&mut self, operand: &Operand, dtype: DType, loc: Loc) -> Operand;

    /// Whether the element type of a call's first argument is one that the function takes.
    fn takes(&mut self, call: &Call, ty: &Type, class: Class) -> bool;

    // ---- constants

    /// An integer known at build; `what` names it in the message otherwise.
    fn constant(&mut self, operand: &Operand, what: &str) -> Option<i128>;

    /// A bool known at build.
    fn flag(&mut self, operand: &Operand, what: &str) -> Option<bool>;

    /// A list of integers known at build.
    fn constants(&mut self, operand: &Operand, what: &str) -> Option<Vec<i128>>;

    /// A shape, written as a list of constants.
    fn shape(&mut self, operand: &Operand) -> Option<Shape>;

    /// The shape, if it is one that a tile may have.
    fn legal(&mut self, shape: Shape, loc: Loc) -> Option<Shape>;

    fn legal_shape(&mut self, extents: &[i128], loc: Loc) -> Option<Shape>;

    /// A constant axis of a tile with `rank` axes.
    fn axis(&mut self, operand: &Operand, rank: usize) -> Option<usize>;

    /// The axis that a call names, which it may leave out where there is one.
    fn axis_or_only(&mut self, call: &Call, operand: Option<&Operand>, rank: usize) -> Option<usize>;

    // ---- between `::<` and `>`

    /// The call's element type. `None` where none is given, or for a mistake.
    fn generic_type(&mut self) -> Option<DType>;

    /// The element types of the call's results, a tuple or one; `None` for a mistake.
    fn generic_types(&mut self) -> Option<Vec<DType>>;

    /// The extents of the block that a method of a view reads.
    fn extents(&mut self, call: &Call) -> Option<Shape>;

    // ---- memory

    /// The operand as addresses.
    fn pointer(&mut self, operand: &Operand, what: &str) -> Option<Pointer>;

    /// The operand as element offsets; a bare literal becomes `literal_type` where it fits, else `i64`.
    fn offset(&mut self, by: &Operand, literal_type: DType) -> Option<Value>;

    // ---- functions

    /// The combine region of the function `operand`, for two elements, or two tuples of elements if there are several
    /// `types`. The block takes the left elements and then the right ones and yields one of each type. It has only
    /// lanewise operations, casts and constants, and captures no value.
    fn combine_region(&mut self, operand: &Operand, types: &[Type]) -> Option<Block>;

    /// The function `operand` as lanewise operations on one element of each of `types`, with one of its results.
    fn elementwise_region(&mut self, operand: &Operand, types: &[Type], result: OneResult) -> Option<Block>;

    /// A function of the library as an operand.
    fn library_function(&mut self, name: &str, loc: Loc) -> Operand;

    /// Calls a function of the library. Operations and errors of its body have the span of the call.
    fn call_library(&mut self, name: &str, call: &Call) -> Operand;
}

/// What follows from the methods above, with arguments of any type that becomes theirs.
impl dyn TypingCx + '_ {
    pub fn ty(&self, value: Value) -> &Type {
        self.func().ty(value)
    }

    // ---- mistakes

    pub fn error(&mut self, loc: Loc, message: impl Into<String>) -> Operand {
        self.report(loc, message.into(), None);
        Operand::failed(loc)
    }

    pub fn error_help(&mut self, loc: Loc, message: impl Into<String>, help: impl Into<String>) -> Operand {
        self.report(loc, message.into(), Some(help.into()));
        Operand::failed(loc)
    }

    // ---- building

    pub fn push(&mut self, kind: impl Into<Kind>, types: Vec<Type>, loc: Loc) -> Vec<Value> {
        self.build(kind.into(), types, loc)
    }

    /// Builds an operation with one result.
    pub fn emit(&mut self, kind: impl Into<Kind>, ty: Type, loc: Loc) -> Operand {
        let value = self.push(kind, vec![ty], loc)[0];
        Operand::value(value, loc)
    }
}

impl Operand {
    pub fn new(item: Item, loc: Loc) -> Operand {
        Operand { item, loc }
    }

    /// For something already reported.
    pub fn failed(loc: Loc) -> Operand {
        Operand::new(Item::Failed, loc)
    }

    pub fn unit(loc: Loc) -> Operand {
        Operand::new(Item::Unit, loc)
    }

    /// A tile or scalar.
    pub fn value(value: Value, loc: Loc) -> Operand {
        Operand::new(Item::Value(value), loc)
    }

    /// An integer known at build, without a type yet.
    pub fn integer(value: i128, loc: Loc) -> Operand {
        Operand::new(Item::Literal(Literal::named(LiteralValue::Number(ConstantValue::Int(value)))), loc)
    }

    /// The integer constant that it is.
    pub fn as_integer(&self) -> Option<i128> {
        match self.item {
            Item::Literal(Literal { value: LiteralValue::Number(ConstantValue::Int(value)), .. }) => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The slice parameter that it is.
    pub fn slice(&self) -> Option<ParamId> {
        match self.item {
            Item::Slice(param) => Some(param),
            _ => None,
        }
    }

    /// The view that it is.
    pub fn view(&self) -> Option<&ViewPart> {
        match &self.item {
            Item::View(view) => Some(view),
            _ => None,
        }
    }
}

impl Literal {
    pub fn digits(value: ConstantValue, dtype: Option<DType>) -> Literal {
        Literal { value: LiteralValue::Number(value), dtype, digits: true, complement: false, division: None }
    }

    pub fn named(value: LiteralValue) -> Literal {
        Literal { value, dtype: None, digits: false, complement: false, division: None }
    }

    pub fn is_integer(&self) -> bool {
        matches!(self.value, LiteralValue::Number(ConstantValue::Int(_)))
    }

    /// The constant of a type that the user names: a rounded quotient is meant to be an integer then.
    pub fn named_type(self, dtype: DType) -> Literal {
        Literal { dtype: Some(dtype), division: None, ..self }
    }
}

//! The tree a kernel parses to.

use std::cell::OnceCell;
use std::rc::Rc;

use proc_macro2::{Ident, TokenStream};

pub use crate::support::operator::{BinaryOp, UnaryOp};

use super::token_names::find_name;
use crate::support::diagnostic::Loc;
use crate::support::dtype::{Class, DType};
use syn::ext::IdentExt;

/// A function marked `#[fuse_kernel]`.
#[derive(Debug)]
pub struct Kernel {
    pub name: Ident,
    pub visibility: syn::Visibility,
    /// Outer attributes of the function, documentation among them.
    pub attributes: Vec<syn::Attribute>,
    pub generics: Vec<GenericParam>,
    pub params: Vec<KernelParam>,
    pub body: BlockExpr,
    pub options: KernelOptions,
    pub source: FnSource,
    /// A return type was written, and reported: the value that the body ends with is not reported as well.
    pub returns: bool,
    /// The functions and constants of the kernel's module.
    pub items: Rc<Items>,
    /// The functions of `tl::` that are written in the language, parsed once for all variants when one of them is called first. Tokens
    /// of one expansion are of no use in the next, so that nothing keeps them for longer.
    pub library: OnceCell<Rc<Items>>,
    /// `self` in one of its forms, which a kernel does not have.
    pub receiver: Option<TokenStream>,
}

/// Functions and constants of one scope: of a module marked `#[fuse_module]`, or of a block.
#[derive(Debug, Default)]
pub struct Items {
    /// Functions beside the kernels that are not marked `#[fuse_fn]`.
    pub unmarked: Vec<Ident>,
    pub functions: Vec<Rc<FnItem>>,
    pub constants: Vec<ConstItem>,
    pub structs: Vec<Rc<StructItem>>,
    /// The names that its `use` declarations bring, of whatever kind.
    pub uses: Vec<Use>,
    /// What `use` declarations of a module and of the bodies in it bring to its kernels.
    pub imports: Vec<Import>,
    /// They are the text of another module's item.
    pub is_imported: bool,
}

impl Items {
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
            && self.constants.is_empty()
            && self.structs.is_empty()
            && self.uses.is_empty()
    }

    /// Its functions and those of its structs.
    pub fn all_functions(&self) -> Vec<&Rc<FnItem>> {
        self.functions.iter().chain(self.structs.iter().flat_map(|own| &own.functions)).collect()
    }
}

/// A name that a `use` declaration brings.
#[derive(Debug)]
pub struct Use {
    pub name: Ident,
    pub path: Vec<Ident>,
    pub leading_colon: bool,
}

/// An item of another module, with all that it is made of.
#[derive(Clone, Debug)]
pub struct Import {
    /// The path in a `use` declaration.
    pub path: Vec<Ident>,
    /// Its name where it is declared.
    pub name: Ident,
    /// The items of its module that it mentions, itself among them.
    pub items: Rc<Items>,
    /// What the macro of the item gave.
    pub text: TokenStream,
}

/// A function that kernels call, marked `#[fuse_fn]` or nested in a body.
#[derive(Debug)]
pub struct FnItem {
    pub name: Ident,
    pub visibility: syn::Visibility,
    /// Its `doc` attributes.
    pub documentation: Vec<syn::Attribute>,
    pub generics: Vec<GenericParam>,
    /// Of a method; its first parameter is `self`.
    pub self_param: Option<SelfParam>,
    pub params: Vec<FunctionParam>,
    /// The type after the arrow.
    pub result: Option<ValueType>,
    pub body: BlockExpr,
    pub source: FnSource,
}

/// A struct of values, marked `#[fuse_struct]`.
#[derive(Debug)]
pub struct StructItem {
    pub name: Ident,
    pub visibility: syn::Visibility,
    /// Its `doc` attributes.
    pub documentation: Vec<syn::Attribute>,
    pub fields: Vec<FieldItem>,
    /// The functions of its `impl` blocks.
    pub functions: Vec<Rc<FnItem>>,
    /// The struct and its `impl` blocks as they were written, but for attributes.
    pub text: TokenStream,
}

#[derive(Debug)]
pub struct FieldItem {
    pub name: Ident,
    pub ty: ValueType,
}

/// How a method takes the struct that it is called on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelfParam {
    /// `self` or `&self`
    Read,
    /// `&mut self`: the variable gets what it has become.
    Changed,
}

/// A parameter of a function or closure.
#[derive(Debug)]
pub struct FunctionParam {
    pub pattern: Pattern,
    pub ty: ValueType,
    pub loc: Loc,
}

/// The type of a parameter or of a result.
#[derive(Clone, Debug)]
pub enum ValueType {
    /// `Tile<T>`, or `Tile` for any element type; a scalar counts as a tile without axes.
    Tile {
        elem: Option<TypeName>,
        loc: Loc,
    },
    /// `f32`, `T`, or the name of a struct.
    Scalar(TypeName),
    /// `usize`: an integer known at build.
    Constant(Loc),
    /// `&[T]` or `&mut [T]`: a slice, or pointers into one.
    Memory {
        elem: TypeName,
        mutable: bool,
    },
    /// `&View<T, 2>` or `&mut View<T, 2>`
    View(ViewType),
    /// `Option<&[T]>`, `Option<&View<T, 2>>`
    Optional(Box<ValueType>),
    /// `impl Fn(..) -> ..`
    Function(Loc),
    Tuple {
        parts: Vec<ValueType>,
        loc: Loc,
    },
    /// Not written, as a closure may, or reported.
    Any,
}

/// `|a, b| a * b`
#[derive(Debug)]
pub struct Closure {
    pub params: Vec<FunctionParam>,
    pub result: Option<ValueType>,
    pub body: BlockExpr,
    pub loc: Loc,
}

/// A constant with a name: a `const` item, or a variant of an enum without fields, whose path has two names.
#[derive(Debug)]
pub struct ConstItem {
    pub path: Vec<Ident>,
    /// `None` for an integer that is known at build and has no width, as a `usize`.
    pub ty: Option<TypeName>,
    /// `None` when the value is not one that a kernel can have.
    pub value: Option<Expr>,
    pub visibility: syn::Visibility,
    /// The `const` item, or the whole enum, without attributes and visibility.
    pub text: TokenStream,
}

/// The function as it was written.
#[derive(Debug)]
pub struct FnSource {
    /// `<..>`
    pub generics: TokenStream,
    /// The parameter list, without the parentheses.
    pub inputs: TokenStream,
    /// `-> ..`
    pub output: TokenStream,
    /// `{ .. }`
    pub body: TokenStream,
    /// A `macro_rules` has put its arguments into it: other calls of that macro may give other constants and types.
    pub is_generated: bool,
    /// A function in which rustc's lints find the same as in this one: see `lints`.
    pub outline: TokenStream,
}

/// A generic parameter of a kernel.
#[derive(Debug)]
pub enum GenericParam {
    /// `T: Float + OwnTrait`; the launcher has the other traits too.
    Type { name: Ident, bound: Class, traits: Vec<TokenStream> },
    /// `const BLOCK: usize`
    Const { name: Ident, ty: ConstType },
}

impl GenericParam {
    pub fn name(&self) -> &Ident {
        match self {
            GenericParam::Type { name, .. } | GenericParam::Const { name, .. } => name,
        }
    }
}

impl Kernel {
    /// Whether calls leave the generic out: measured time chooses it, or conditions do, those of its configs or one that names it.
    pub fn is_open(&self, generic: &GenericParam) -> bool {
        let name = generic.name();
        let in_configs = || {
            let names = self.options.configs.iter().flat_map(|config| &config.entries);
            self.options.leaves_configs_open() && names.into_iter().any(|(entry, _)| entry == name)
        };
        let measured = || self.options.lists.iter().any(|list| list.name == *name && list.measured.is_some());
        let own = name.to_string();
        let asked = || self.options.when.iter().any(|tokens| find_name(tokens.clone(), &own).is_some());
        matches!(generic, GenericParam::Const { .. })
            && !self.is_of_argument(generic)
            && (in_configs() || measured() || asked())
    }

    /// The name `device` where a condition asks it: which it is, is known when a call is launched.
    pub fn asked_device(&self) -> Option<Ident> {
        let is_param = self.params.iter().any(|param| param.name == "device");
        self.options.conditions().find_map(|tokens| find_name(tokens.clone(), "device")).filter(|_| !is_param)
    }

    /// Whether an argument of the call is the generic's value: whether an optional parameter is there, or one of an enum.
    pub fn is_of_argument(&self, generic: &GenericParam) -> bool {
        let name = generic.name();
        self.params.iter().any(|param| match &param.ty {
            ParamType::Enum(_) => param.name == *name,
            _ => param.presence().is_some_and(|presence| presence == *name),
        })
    }
}

/// The Rust type of a const generic.
#[derive(Clone, Debug)]
pub enum ConstType {
    Bool,
    Integer(Ident),
}

/// A parameter: memory, or a value passed to every program.
#[derive(Debug)]
pub struct KernelParam {
    pub name: Ident,
    pub ty: ParamType,
    /// `Option<&[T]>`: a call may leave it out.
    pub optional: bool,
    /// It was declared `mut`, which was reported: assignments to it are not.
    pub mutable: bool,
    /// Its `cfg` attributes. In a build rustc has found them to hold; for an editor they are open.
    pub conditions: Vec<syn::Attribute>,
    pub loc: Loc,
}

impl KernelParam {
    /// The constant that says whether an optional parameter is there.
    pub fn presence(&self) -> Option<Ident> {
        self.optional.then(|| Ident::new(&format!("{}_is_some", self.name.unraw()), self.name.span()))
    }
}

#[derive(Debug)]
pub enum ParamType {
    /// `&[T]` or `&mut [T]`
    Slice { elem: TypeName, mutable: bool },
    /// `&View<T, 2>` or `&mut View<T, 2>`
    View(ViewType),
    /// `i32`, `f32`, `T`
    Scalar(TypeName),
    /// An enum among the items around the kernel: no argument of the launch, but a constant of the variant.
    Enum(TypeName),
    /// `#[host] block: Block`, of any type: a value for the conditions that choose a variant, which the body does not see.
    Host(TokenStream),
    /// Something that was already reported.
    Failed,
}

/// A strided view of memory: its element type, and how many axes it has.
#[derive(Clone, Debug)]
pub struct ViewType {
    pub elem: TypeName,
    pub rank: usize,
    pub mutable: bool,
}

/// An element type as written: `f32`, or a type parameter.
#[derive(Clone, Debug)]
pub struct TypeName {
    pub name: String,
    pub loc: Loc,
}

impl TypeName {
    /// The name as a token, which may be that of a constant or struct.
    pub fn ident(&self) -> Ident {
        match self.name.strip_prefix("r#") {
            Some(raw) => Ident::new_raw(raw, self.loc.start),
            None => Ident::new(&self.name, self.loc.start),
        }
    }
}

/// What the attribute says.
#[derive(Debug, Default)]
pub struct KernelOptions {
    /// `NAME = [..]`, in the order written.
    pub lists: Vec<VariantList>,
    /// `configs = [{ .. }, ..]`
    pub configs: Vec<Config>,
    /// `when = condition`: that of every config.
    pub when: Option<TokenStream>,
    /// `num_warps = 4`, `num_warps = BLOCK / 1024` and their like, for every variant whose config does not override them.
    pub settings: Vec<(Ident, syn::Expr)>,
    /// `tune(key = [..])`: what the configs give is chosen by measured time.
    pub tune: Option<Tune>,
    /// `tuned = "file"`: choices that ship with the crate.
    pub tuned: Option<syn::LitStr>,
    /// `unchecked`: no bounds checks, and the launcher is unsafe.
    pub unchecked: bool,
    /// `unreported`: accesses outside a slice are part of the kernel's meaning, also in a debug build.
    pub unreported: bool,
    /// `deny(spills)`
    pub deny_spills: bool,
    /// The attribute could not be read, which was reported: values that it does not declare are not reported as well.
    pub unreadable: bool,
}

impl KernelOptions {
    /// Whether the arguments choose a config.
    pub fn has_conditions(&self) -> bool {
        self.conditions().next().is_some()
    }

    /// The conditions of configs.
    pub fn conditions(&self) -> impl Iterator<Item = &TokenStream> {
        self.when.iter().chain(self.configs.iter().filter_map(|config| config.when.as_ref()))
    }

    /// Declares the values of a constant that the attribute gives none.
    pub(super) fn declare_default(
        &mut self,
        name: &Ident,
        values: impl Iterator<Item = VariantKind>,
        loc: Loc,
    ) {
        let mut in_configs = self.configs.iter().flat_map(|config| &config.entries);
        let is_listed = self.lists.iter().any(|list| list.name == *name);
        if !is_listed && !in_configs.any(|(entry, _)| entry == name) {
            let values = values.map(|kind| VariantValue { kind, loc }).collect();
            self.lists.push(VariantList { name: name.clone(), values, chosen_by: None, measured: None, loc });
        }
    }

    /// Whether calls leave out what configs give.
    pub fn leaves_configs_open(&self) -> bool {
        self.tune.is_some() || self.has_conditions()
    }
}

/// The declared values of one generic.
#[derive(Debug)]
pub struct VariantList {
    pub name: Ident,
    pub values: Vec<VariantValue>,
    /// `expr in [..]`: the launcher takes the smallest value that is at least this.
    pub chosen_by: Option<TokenStream>,
    /// `_ in [..]`: the launcher takes the value that measured fastest.
    pub measured: Option<Loc>,
    pub loc: Loc,
}

/// What `tune(..)` says.
#[derive(Debug)]
pub struct Tune {
    /// Expressions over the arguments: each of their values has its own choice.
    pub key: Vec<TokenStream>,
    /// A condition over arguments and constants that a variant must meet.
    pub when: Option<TokenStream>,
    pub loc: Loc,
}

#[derive(Clone, Debug)]
pub struct VariantValue {
    pub kind: VariantKind,
    pub loc: Loc,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VariantKind {
    Type(DType),
    Int(i128),
    Bool(bool),
}

/// One exact set of constants.
#[derive(Debug)]
pub struct Config {
    pub entries: Vec<(Ident, VariantValue)>,
    /// A condition over arguments and constants under which calls take it.
    pub when: Option<TokenStream>,
    pub loc: Loc,
}

#[derive(Clone, Debug)]
pub struct BlockExpr {
    /// Functions and constants declared in it, visible in all of it.
    pub items: Rc<Items>,
    pub statements: Vec<Stmt>,
    /// The value of the block: a last expression without a semicolon.
    pub value: Option<Box<Expr>>,
    pub loc: Loc,
}

#[derive(Clone, Debug)]
pub enum Stmt {
    Let { pattern: Pattern, ty: Option<TypeName>, init: Option<Expr>, loc: Loc },
    Assign { target: Ident, op: Option<(BinaryOp, Loc)>, value: Expr },
    For { var: Option<Ident>, range: Expr, body: BlockExpr, loc: Loc },
    While { condition: Expr, body: BlockExpr, loc: Loc },
    Expr(Expr),
}

#[derive(Clone, Debug)]
pub enum Pattern {
    Name { name: Ident, mutable: bool },
    Ignore(Loc),
    Tuple { parts: Vec<Pattern>, loc: Loc },
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub loc: Loc,
}

/// A call of a function by its path.
#[derive(Clone, Debug)]
pub struct CallExpr {
    pub path: Vec<Ident>,
    pub generics: Vec<GenericArg>,
    pub args: Vec<Expr>,
    /// The first argument as written, for a function of `tl::` that says it.
    pub text: String,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    Int {
        value: i128,
        suffix: Option<String>,
    },
    Float {
        value: f64,
        suffix: Option<String>,
    },
    Bool(bool),
    Text(String),
    /// `x`, `BLOCK`, `f32::INFINITY`
    Path(Vec<Ident>),
    /// `tuple.index`
    Part {
        tuple: Box<Expr>,
        index: usize,
    },
    /// `base.name`, which structs have
    Field {
        base: Box<Expr>,
        name: Ident,
    },
    /// `Softmax { m, l: sum, ..other }`
    Struct {
        path: Vec<Ident>,
        fields: Vec<(Ident, Expr)>,
        rest: Option<Box<Expr>>,
    },
    /// The value of a variable with a field, or one of a field, changed: what an assignment to a field assigns.
    WithField {
        base: Box<Expr>,
        fields: Vec<Ident>,
        op: Option<(BinaryOp, Loc)>,
        value: Box<Expr>,
    },
    /// `base[index]`, which nothing has
    Index {
        base: Box<Expr>,
        index: Box<Expr>,
        usage: IndexUse,
    },
    /// `&x`, which nothing has
    Reference(Box<Expr>),
    /// `*x`, which nothing has
    Dereference {
        operand: Box<Expr>,
        usage: IndexUse,
    },
    Unary {
        op: UnaryOp,
        operand: Box<Expr>,
    },
    Binary {
        op: BinaryOp,
        op_loc: Loc,
        lhs: Box<Expr>,
        rhs: Box<Expr>,
    },
    /// `&&` and `||`; nothing in a kernel has an effect that skipping could save, so both operands are evaluated.
    Logic {
        and: bool,
        op_loc: Loc,
        lhs: Box<Expr>,
        rhs: Box<Expr>,
    },
    Cast {
        operand: Box<Expr>,
        ty: TypeName,
    },
    Call(CallExpr),
    Method {
        receiver: Box<Expr>,
        name: Ident,
        generics: Vec<GenericArg>,
        args: Vec<Expr>,
    },
    Tuple(Vec<Expr>),
    Array(Vec<Expr>),
    If {
        condition: Box<Expr>,
        then: Rc<BlockExpr>,
        otherwise: Option<Rc<BlockExpr>>,
    },
    Block(Rc<BlockExpr>),
    Closure(Rc<Closure>),
    /// An exit from a loop or function. `early_exit` lowers those that are statements to branches.
    Exit(Exit),
    Range {
        low: Box<Expr>,
        high: Box<Expr>,
        inclusive: bool,
    },
    /// A `match` that covers some values of its scrutinee alone.
    OpenMatch(Box<Expr>),
    /// Something that was already reported.
    Error,
}

/// What is done with an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexUse {
    Read,
    Written,
    /// Assigned together with this operator.
    Changed(BinaryOp),
}

/// An exit from a loop or function.
#[derive(Clone, Debug)]
pub enum Exit {
    Return(Option<Box<Expr>>),
    Break,
    Continue,
}

/// `f32` or `BLOCK` or `64` between `::<` and `>`.
#[derive(Clone, Debug)]
pub enum GenericArg {
    Type(TypeName),
    /// `(f32, i32)`
    Tuple(Vec<TypeName>, Loc),
    Const(Expr),
    /// `_`
    Infer(Loc),
}

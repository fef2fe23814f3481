//! Reports functions and methods that do not exist, with what to write instead: a name that another language has is answered
//! before a name that is spelled alike.

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::{Callee, Check, Item, Operand};
use crate::frontend::syntax::{
    self, Answer, BinaryOp, CONSTANTS, Expr, ExprKind, Foreign, GenericArg, Place, UnaryOp, element_type,
    foreign, foreign_help,
};
use crate::ops::{self, IntrinsicGeneric, scalar};
use crate::support::diagnostic::{Loc, list, nearest};
use crate::support::dtype::DType;

const CALLABLE: &str = "kernels call the functions of `tl::`, and those marked `#[fuse_fn]` in a `#[fuse_module]`: one of another module by a `use` with its name in the kernel's own module or body";

const CUDA_WORD: &str = "words of CUDA mean nothing here: the functions are those of `tl::`, on whole tiles, and `tl::inline_ptx` writes any other instruction";

/// A method that its receiver does not have.
pub(super) struct UnknownMethod<'e> {
    pub name: String,
    pub name_loc: Loc,
    pub receiver: &'e Expr,
    /// The element type that its arguments name.
    pub target: Option<DType>,
}

impl Check<'_> {
    // ---- arguments

    /// An argument. Of an unknown function that is reported, a type or a reference is not reported as well.
    pub(super) fn argument(&mut self, arg: &Expr, known: bool) -> Operand {
        if let Some(absent) = self.absent_argument(arg) {
            return absent;
        }
        match &arg.kind {
            _ if known => self.expr(arg),
            ExprKind::Reference(inner) => match &inner.kind {
                // C's `&out[i]` is an address.
                ExprKind::Index { base, index, .. } => {
                    self.expr(base);
                    self.expr(index);
                    Operand::failed(arg.loc)
                }
                _ => self.expr(inner),
            },
            _ if self.type_of_argument(arg).is_some() => Operand::failed(arg.loc),
            _ => self.expr(arg),
        }
    }

    /// The element type that one of a call's arguments names.
    pub(super) fn named_type(&self, args: &[Expr]) -> Option<DType> {
        args.iter().find_map(|arg| self.type_of_argument(arg))
    }

    /// The element type that an argument names: `f16`, `tl::float16`, `torch.float16`, `"float16"`.
    fn type_of_argument(&self, arg: &Expr) -> Option<DType> {
        let name = match &arg.kind {
            ExprKind::Path(path) => match &path[..] {
                [name] if self.scopes.is_bound(&name.to_string()) => return None,
                [.., name] => name.to_string(),
                [] => return None,
            },
            ExprKind::Field { base, name } => match &base.kind {
                ExprKind::Path(path) if path.len() == 1 && !self.scopes.is_bound(&path[0].to_string()) => {
                    name.to_string()
                }
                _ => return None,
            },
            ExprKind::Text(text) => text.clone(),
            _ => return None,
        };
        self.type_named(&name).or_else(|| element_type(&name))
    }

    /// Whether an argument of a function of `tl::` is the element type that belongs between angle brackets, which is
    /// reported.
    pub(super) fn report_type_argument(
        &mut self,
        name: &str,
        generics: &[GenericArg],
        args: &[Expr],
        name_loc: Loc,
    ) -> bool {
        let takes_type = ops::functions().any(|function| {
            function.name == name
                && !matches!(function.generic, IntrinsicGeneric::None | IntrinsicGeneric::Extents)
        });
        let found = args.iter().find_map(|arg| self.type_of_argument(arg).map(|dtype| (arg, dtype)));
        let Some((arg, dtype)) = found.filter(|_| takes_type && generics.is_empty()) else { return false };
        let text = format!("`tl::{name}` takes its element type as a type argument");
        let help = format!("the element type stands between angle brackets: `tl::{name}::<{dtype}>(..)`");
        let loc = if matches!(arg.kind, ExprKind::Error) { name_loc } else { arg.loc };
        self.error_help(loc, text, help);
        true
    }

    /// Whether a call makes a number of a text, as Python's `float("-inf")` does, which is reported.
    pub(super) fn report_text_as_number(&mut self, path: &[Ident], args: &[Expr]) -> bool {
        let ([name], [Expr { kind: ExprKind::Text(text), .. }]) = (path, args) else { return false };
        let Some(dtype) = element_type(&name.to_string()) else { return false };
        let Ok(number) = text.trim().parse::<f64>() else { return false };
        let written = match () {
            _ if number.is_nan() => format!("{dtype}::NAN"),
            _ if number == f64::INFINITY => format!("{dtype}::INFINITY"),
            _ if number == f64::NEG_INFINITY => format!("{dtype}::NEG_INFINITY"),
            _ => text.trim().into(),
        };
        let problem = format!("`{name}` cannot be called in a kernel");
        self.error_help(Loc::of(name), problem, format!("write `{written}`"));
        true
    }

    // ---- functions

    /// Reports a function or name of `tl::` that does not exist.
    pub(super) fn unknown_function(&mut self, name: &str, target: Option<DType>, loc: Loc) -> Operand {
        let problem = format!("`tl::{name}` does not exist");
        if let Some(symbol) = operator(name) {
            return self.error_help(loc, problem, format!("use the operator `{symbol}`"));
        }
        if let Some(row) = foreign(name, Place::Module) {
            return self.error_help(loc, problem, row.help(Place::Module, target));
        }
        if ops::methods().any(|method| method.name == name) {
            return self.error_help(loc, problem, format!("it is a method: `x.{name}(..)`"));
        }
        match nearest(name, ops::function_names()) {
            Some(near) => self.error_help(loc, problem, format!("did you mean `tl::{near}`?")),
            None => self.error_help(
                loc,
                problem,
                "the functions of `tl::` are those in its documentation; `tl::inline_ptx` writes any other instruction",
            ),
        }
    }

    /// Reports a call of a function behind a module of another language, as `jnp.exp(x)` is written there.
    pub(super) fn unknown_dotted_call(&mut self, path: &[Ident], target: Option<DType>, loc: Loc) -> Operand {
        let (_, help) = self.call_help(path, target);
        let (first, last) = (&path[0], &path[path.len() - 1]);
        let problem = format!("`{}` cannot be called in a kernel", dotted(path));
        self.error_help(Loc::of(first).to(Loc::of(last)), problem, help);
        Operand::failed(loc)
    }

    /// Whether a path names a variable or an item of the user's.
    pub(super) fn is_item(&self, path: &[Ident]) -> bool {
        let [name] = path else { return self.item_scope.levels().any(|level| level.import(path).is_some()) };
        let name = name.to_string();
        self.scopes.is_bound(&name) || self.item_scope.names().contains(&name)
    }

    /// Reports a call of what is neither of `tl::` nor of the user's.
    pub(super) fn unknown_call(&mut self, path: &[Ident], target: Option<DType>, loc: Loc) -> Operand {
        let text = path.iter().map(Ident::to_string).collect::<Vec<_>>().join("::");
        let name_loc = Loc::of(&path[0]).to(Loc::of(&path[path.len() - 1]));
        let name = path[path.len() - 1].unraw().to_string();
        if path.len() > 1 && path[0] == "tl" && self.constants.is_empty() && !ops::is_function(&name) {
            let operand = self.unknown_function(&name, target, name_loc);
            return Operand { loc, ..operand };
        }
        let (problem, help) = self.call_help(path, target);
        let problem = match problem {
            CallProblem::Constant => format!("`{text}` cannot be called in a constant"),
            CallProblem::Kernel => format!("`{text}` cannot be called in a kernel"),
            CallProblem::Unknown => format!("`{text}` is not a function of the language"),
            CallProblem::Misspelt => format!("`{name}` is not a function here"),
            CallProblem::Itself => {
                self.error(name_loc, "a kernel cannot call itself");
                return Operand::failed(loc);
            }
        };
        self.error_help(name_loc, problem, help);
        Operand::failed(loc)
    }

    /// What is wrong with a call of a path, and what to write.
    fn call_help(&self, path: &[Ident], target: Option<DType>) -> (CallProblem, String) {
        let name = path[path.len() - 1].unraw().to_string();
        if !self.constants.is_empty() {
            return (CallProblem::Constant, CONSTANTS.into());
        }
        let owner = path.len().checked_sub(2).map(|index| path[index].to_string());
        if let Some(dtype) = owner.as_ref().and_then(|owner| self.type_named(owner)) {
            match name.as_str() {
                "from" | "new" | "from_f32" | "from_f64" | "try_from" => {
                    return (CallProblem::Kernel, format!("convert it: `.to::<{dtype}>()`"));
                }
                "default" => {
                    let zero = if dtype.is_float() { "0.0" } else { "0" };
                    return (CallProblem::Kernel, format!("write `{zero}`"));
                }
                _ => {}
            }
        }
        if owner.is_none() && self.kernel.name == name {
            return (CallProblem::Itself, String::new());
        }
        if let Some(row) = owner.as_ref().and_then(|owner| foreign(&format!("{owner}::{name}"), Place::Path))
        {
            return (CallProblem::Kernel, row.help(Place::Path, target));
        }
        if let Some(own) = of_two(&name) {
            return (CallProblem::Unknown, format!("of two tiles or scalars: `tl::{own}(a, b)`"));
        }
        if ops::is_function(&name) {
            return (CallProblem::Unknown, format!("did you mean `{}`?", syntax::call_form(&name)));
        }
        if let Some(symbol) = operator(&name).filter(|_| owner.is_some()) {
            return (CallProblem::Kernel, format!("use the operator `{symbol}`"));
        }
        if let Some(row) = foreign(&name, Place::Function) {
            let own = syntax::own_function_help(&name).filter(|_| owner.is_none()).unwrap_or_default();
            return (CallProblem::Kernel, row.help(Place::Function, target) + own);
        }
        // Of `Vec::new` it is the type that is known, of `kittens::warp::relu` the module.
        let mut owners = path[..path.len() - 1].iter().rev();
        if let Some(row) = owners.find_map(|owner| foreign(&owner.to_string(), Place::Owner)) {
            return (CallProblem::Kernel, row.help(Place::Owner, target));
        }
        if owner.is_none() {
            if self.item_scope.is_unmarked(&name) {
                return (CallProblem::Kernel, format!("mark `fn {name}` with `#[fuse_fn]`"));
            }
            let own = self.item_scope.functions();
            if let Some(near) = nearest(&name, own.iter().map(String::as_str)) {
                return (CallProblem::Misspelt, format!("did you mean `{near}`?"));
            }
            if let Some(near) = nearest(&name, ops::function_names()) {
                return (CallProblem::Unknown, format!("did you mean `tl::{near}`?"));
            }
        }
        let help = if name.starts_with("__") { CUDA_WORD } else { CALLABLE };
        (CallProblem::Kernel, help.into())
    }

    // ---- methods

    /// Reports a method of an unknown receiver, in a function that no kernel calls or of a name that is not defined, if nothing has
    /// that method.
    pub(super) fn report_method_of_nothing(&mut self, unknown: &UnknownMethod) {
        let UnknownMethod { name, name_loc: loc, receiver, target } = unknown;
        let (loc, is_uncalled) = (*loc, self.is_uncalled_function());
        let known = || ops::methods().chain(ops::view_methods());
        let is_undefined =
            matches!(&receiver.kind, ExprKind::Path(path) if path.len() == 1 && !self.is_item(path));
        let is_known = known().any(|method| method.name == name) || self.item_scope.has_method(name);
        if !(is_uncalled || is_undefined) || is_known {
            return;
        }
        let problem = format!("`{name}` is not a method of anything in a kernel");
        if let Some(row) = foreign(name, Place::Method) {
            self.error_help(loc, problem, row.help(Place::Method, *target));
            return;
        }
        if !is_uncalled {
            return;
        }
        match nearest(name, known().map(|method| method.name)) {
            Some(near) => self.error_help(loc, problem, format!("did you mean `{near}`?")),
            None => self.error(loc, problem),
        };
    }

    /// Reports a method that does not exist; `all` are the receiver and the arguments.
    pub(super) fn unknown_method(&mut self, unknown: &UnknownMethod, all: &[Operand]) -> Operand {
        let name = unknown.name.as_str();
        let text = format!("`{name}` is not a method of {}", self.describe(&all[0]));
        let written = match &unknown.receiver.kind {
            ExprKind::Path(path) if path.len() == 1 => path[0].to_string(),
            _ => "x".into(),
        };
        let help = match (name, all) {
            ("max" | "min", [receiver, second]) => self.extremum_help(name, &written, [receiver, second]),
            ("pow" | "powi", [Operand { item: Item::Value(value), .. }, ..])
                if self.ty(*value).dtype.is_integer() =>
            {
                format!("multiply: `{written} * {written}`")
            }
            ("call", [Operand { item: Item::Function(_), .. }, ..]) => {
                format!("call it: `{written}({})`", if all.len() > 1 { ".." } else { "" })
            }
            ("shape" | "size", [Operand { item: Item::Slice(_), .. }, ..]) => {
                format!("the number of its elements is `{written}.len()`")
            }
            ("cast", _) if let Some(dtype) = unknown.target => format!("convert it: `.to::<{dtype}>()`"),
            _ if ops::is_function(name) => {
                format!("call the function: `{}`", function_form(name, &written, all))
            }
            _ if self.is_user_function(name) => {
                format!("call the function: `{name}({})`", arguments(&written, all))
            }
            _ => self.foreign_method(unknown, &written, all),
        };
        self.error_help(unknown.name_loc, text, help)
    }

    /// The help for a method that no function here has the name of.
    fn foreign_method(&self, unknown: &UnknownMethod, written: &str, all: &[Operand]) -> String {
        let name = unknown.name.as_str();
        if let (Some(symbol), [_, second]) = (operator(name), all) {
            let second = second.loc.word().unwrap_or_else(|| "y".into());
            return format!("use the operator: `{written} {symbol} {second}`");
        }
        if matches!(all[0].item, Item::Range(_)) && foreign(name, Place::Method).is_some() && name != "rev" {
            return "a range is for a loop, `for i in 0..n { .. }`; a tile of integers is `tl::arange(0, N)`"
                .into();
        }
        match foreign(name, Place::Method) {
            Some(Foreign { answer: Answer::Own(own), .. }) => {
                format!("it is `{}` here", function_form(own, written, all))
            }
            Some(row) => row.help(Place::Method, unknown.target),
            None => self.known_methods(name, &all[0]),
        }
    }

    /// The help for `x.max(y)`: along an axis, or the larger of two.
    fn extremum_help(&self, name: &str, written: &str, [receiver, second]: [&Operand; 2]) -> String {
        let of_two = of_two(name).unwrap_or(name);
        // What was reported may have been an axis with its name.
        if let Item::Failed = second.item {
            return format!(
                "along an axis it is `tl::{name}({written}, 0)`; of two tiles `tl::{of_two}({written}, y)`"
            );
        }
        let word = second.loc.word().unwrap_or_else(|| "y".into());
        let along = format!("`tl::{name}({written}, {word})`");
        let larger = format!("of two tiles or scalars: `tl::{of_two}({written}, {word})`");
        let tile = match receiver.item {
            Item::Value(value) if !self.ty(value).is_scalar() => self.ty(value),
            _ => return larger,
        };
        match second.as_integer() {
            Some(axis) if (0..tile.shape.rank() as i128).contains(&axis) && tile.dtype.is_float() => {
                format!("along an axis it is {along}")
            }
            Some(axis) if (0..tile.shape.rank() as i128).contains(&axis) => {
                format!("along an axis it is {along}; {larger}")
            }
            _ => larger,
        }
    }

    /// Whether the name means a function or closure of the user's.
    pub(super) fn is_user_function(&self, name: &str) -> bool {
        let bound = self.scopes.find(name).and_then(|slot| self.scopes.get(slot).operand.as_ref());
        let is_bound = bound.is_some_and(|operand| {
            matches!(operand.item, Item::Function(id) if !matches!(self.callee(id), Callee::Language(_)))
        });
        is_bound || self.item_scope.functions().iter().any(|function| function == name)
    }

    /// The methods that a receiver has, for one that was called by another name.
    fn known_methods(&self, name: &str, receiver: &Operand) -> String {
        let (what, known): (&str, Vec<&str>) = match &receiver.item {
            Item::Value(value) if self.ty(*value).is_scalar() => {
                ("a scalar has", ops::scalar_methods().map(|method| method.name).collect())
            }
            Item::Literal(_) => ("a scalar has", ops::scalar_methods().map(|method| method.name).collect()),
            Item::Value(_) => ("a tile has", ops::tile_methods().map(|method| method.name).collect()),
            Item::Slice(_) => ("a slice has", ops::slice_methods().map(|method| method.name).collect()),
            Item::Range(_) => ("a range has", ops::range_methods().map(|method| method.name).collect()),
            Item::Unit => ("a store has", ops::store_methods().map(|method| method.name).collect()),
            Item::Function(_) => return "a function is called: `f(x)`".into(),
            Item::Pointer(_) => return "read memory with `tl::load(pointer)`".into(),
            Item::Tuple(_) => {
                return "a tuple has `.0`, `.1`, .., or is taken apart with `let (a, b) = ..`".into();
            }
            Item::View(_)
            | Item::Optional { .. }
            | Item::Struct(..)
            | Item::List(_)
            | Item::Text(_)
            | Item::Failed => {
                return "it has no methods".into();
            }
        };
        // An option that other languages take as a named argument.
        if let Some(help) = foreign_help(name, Place::Argument) {
            return help;
        }
        match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("{what} {}", list(known.iter().map(|name| format!("`{name}`")))),
        }
    }
}

/// A path as other languages write it.
pub(super) fn dotted(path: &[Ident]) -> String {
    path.iter().map(Ident::to_string).collect::<Vec<_>>().join(".")
}

/// What is wrong with a call of an unknown path.
enum CallProblem {
    Constant,
    Kernel,
    Unknown,
    Misspelt,
    Itself,
}

/// The arguments of the function for a method call, as far as they are single words.
fn arguments(receiver: &str, all: &[Operand]) -> String {
    let words: Option<Vec<String>> = all[1..].iter().map(|arg| arg.loc.word()).collect();
    match words {
        Some(words) => [vec![receiver.to_string()], words].concat().join(", "),
        None => format!("{receiver}, .."),
    }
}

/// A call of a function of `tl::` for a method call: with its arguments if the function takes as many, else with the
/// names of its parameters.
pub(super) fn function_form(name: &str, receiver: &str, all: &[Operand]) -> String {
    let params = syntax::parameters(name);
    let takes_list = params.last().is_some_and(|param| matches!(param.name, "shape" | "order"));
    let is_slice =
        matches!(all[0].item, Item::Slice(_)) && params.first().is_some_and(|param| param.name == "pointer");
    let is_list = all.get(1).is_some_and(|arg| matches!(arg.item, Item::List(_)));
    let unwrapped = |arg: &Operand| match arg.item {
        Item::Tuple(_) if takes_list => arg.loc.word().map(|word| word.trim_matches(['(', ')']).to_string()),
        _ => arg.loc.word(),
    };
    let words: Option<Vec<String>> = all[1..].iter().map(unwrapped).collect();
    match words {
        // Offsets are added to the slice.
        Some(words) if is_slice && !words.is_empty() => {
            let rest: String = words[1..].iter().map(|word| format!(", {word}")).collect();
            format!("tl::{name}({receiver} + {}{rest})", words[0])
        }
        // Extents and axes are a list here.
        Some(words) if takes_list && !is_list && !words.is_empty() => {
            format!("{}({receiver}, [{}])", syntax::call_head(name), words.join(", "))
        }
        _ if all.len() <= params.len() => {
            format!("{}({})", syntax::call_head(name), arguments(receiver, all))
        }
        _ => syntax::call_form(name).replacen('x', receiver, 1),
    }
}

/// The operator that a function or method of this name is.
fn operator(name: &str) -> Option<&'static str> {
    let row = scalar::row(name)?;
    row.binary.map(BinaryOp::symbol).or(row.unary.map(UnaryOp::symbol))
}

/// The function of two tiles or scalars where other languages have one name for it and for the reduction.
fn of_two(name: &str) -> Option<&'static str> {
    match name {
        "max" => Some("maximum"),
        "min" => Some("minimum"),
        _ => None,
    }
}

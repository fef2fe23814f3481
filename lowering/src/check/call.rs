//! Calls of functions and methods: which one is meant, and how many arguments it takes.

use proc_macro2::Ident;

use super::{Call, Check, Item, Operand};
use crate::diagnostic::{Loc, count, list, nearest};
use crate::ops::scalar;
use crate::ops::{self, Generic, Parameter};
use crate::syntax::{BinaryOp, Expr, GenericArg, UnaryOp};

impl Check<'_> {
    pub(super) fn call(
        &mut self,
        path: &[Ident],
        generics: &[GenericArg],
        (args, first): (&[Expr], &str),
        loc: Loc,
    ) -> Operand {
        let (Some(name), prefix) = (path.last(), &path[..path.len() - 1]) else { return self.failed(loc) };
        let text = name.to_string();
        let name_loc = Loc::of(name);
        let args: Vec<Operand> = args.iter().map(|arg| self.expr(arg)).collect();
        let generics = generics.to_vec();
        if prefix.last().is_none_or(|module| module != "tl") {
            return match self.callee(path) {
                Some(Some(callee)) => {
                    let what = format!("`{text}`");
                    let call = Call { name: text, what, name_loc, loc, generics, args, text: first.into() };
                    Operand { loc, ..self.invoke(&callee, call) }
                }
                Some(None) => self.failed(loc),
                None => self.unknown_call(path, loc),
            };
        }
        let what = format!("`tl::{text}`");
        let call = Call { name: text, what, name_loc, loc, generics, args, text: first.into() };
        self.language(call)
    }

    /// A call of a function of `tl::`.
    pub(super) fn language(&mut self, call: Call) -> Operand {
        let Call { name, what, name_loc, loc, generics, args, .. } = &call;
        if let Some(op) = scalar::function(name) {
            if !generics.is_empty() {
                return self.error(*name_loc, format!("{what} takes no type arguments"));
            }
            let params: Vec<Parameter> = op.params.iter().map(|param| ops::required(param)).collect();
            if !self.arity(what, &params, args, *name_loc) {
                return self.failed(*loc);
            }
            let result = self.scalar(op, what, *loc, args);
            return Operand { loc: *loc, ..result };
        }
        let Some(function) = ops::functions().find(|function| function.name == name) else {
            return self.unknown_function(name, *name_loc);
        };
        if !self.arity(what, function.params, args, *name_loc)
            || !self.generics(what, function.generic, generics, *name_loc)
        {
            return self.failed(*loc);
        }
        (function.check)(self, &call)
    }

    fn unknown_function(&mut self, name: &str, loc: Loc) -> Operand {
        let problem = format!("`tl::{name}` does not exist");
        if let Some(row) = scalar::row(name)
            && let Some(symbol) = row.binary.map(BinaryOp::symbol).or(row.unary.map(UnaryOp::symbol))
        {
            return self.error_help(loc, problem, format!("use the operator `{symbol}`"));
        }
        if let Some(instead) = instead_of(name) {
            return self.error_help(loc, problem, instead);
        }
        if ops::methods().any(|method| method.name == name) {
            return self.error_help(loc, problem, format!("it is a method: `x.{name}(..)`"));
        }
        let known = scalar::TABLE.iter().filter(|op| !op.is_operator()).map(|op| op.name);
        match nearest(name, known.chain(ops::functions().map(|function| function.name))) {
            Some(near) => self.error_help(loc, problem, format!("did you mean `tl::{near}`?")),
            None => self.error(loc, problem),
        }
    }

    fn unknown_call(&mut self, path: &[Ident], loc: Loc) -> Operand {
        let text = path.iter().map(Ident::to_string).collect::<Vec<_>>().join("::");
        let (start, end) = (Loc::of(&path[0]), Loc::of(&path[path.len() - 1]));
        let name = path[path.len() - 1].to_string();
        if path.len() == 1 && self.kernel.name == name {
            return self.error(start.to(end), "a kernel cannot call itself");
        }
        if path.len() == 1
            && let Some(near) = nearest(&name, self.surroundings.functions().iter().map(String::as_str))
        {
            let help = format!("did you mean `{near}`?");
            return self.error_help(start.to(end), format!("`{name}` is not a function here"), help);
        }
        let known =
            scalar::function(&name).is_some() || ops::functions().any(|function| function.name == name);
        let operand = if known {
            self.error_help(
                start.to(end),
                format!("`{text}` is not a function of the language"),
                format!("did you mean `tl::{name}`?"),
            )
        } else {
            self.error_help(
                start.to(end),
                format!("`{text}` cannot be called in a kernel"),
                "kernels call the functions of `tl::`, and those marked `#[fuse_fn]` beside them in a `#[fuse_module]`",
            )
        };
        Operand { loc, ..operand }
    }

    pub(super) fn method(
        &mut self,
        receiver: &Expr,
        name: &Ident,
        generics: &[GenericArg],
        args: &[Expr],
        loc: Loc,
    ) -> Operand {
        let text = name.to_string();
        let name_loc = Loc::of(name);
        let mut all = vec![self.expr(receiver)];
        all.extend(args.iter().map(|arg| self.expr(arg)));
        if matches!(all[0].item, Item::Failed) {
            let known = || ops::methods().chain(ops::view_methods());
            if self.is_alone() && !known().any(|method| method.name == text) {
                // Nothing is known of the receiver, but nothing has this method.
                let problem = format!("`{text}` is not a method of anything in a kernel");
                return match nearest(&text, known().map(|method| method.name)) {
                    Some(near) => self.error_help(name_loc, problem, format!("did you mean `{near}`?")),
                    None => self.error(name_loc, problem),
                };
            }
            return self.failed(loc);
        }
        if let Item::View(memory) = all[0].item {
            let (what, generics) = (format!("`.{text}`"), generics.to_vec());
            let call = Call { name: text, what, name_loc, loc, generics, args: all, text: String::new() };
            return self.view_method(memory, &call);
        }
        let Some(method) = ops::methods().find(|method| method.name == text) else {
            let text_of = self.describe(&all[0]);
            let known =
                scalar::function(&text).is_some() || ops::functions().any(|function| function.name == text);
            let help = if let ("max" | "min", [_, _]) = (text.as_str(), all.as_slice()) {
                let name = if text == "max" { "maximum" } else { "minimum" };
                format!("of two tiles or scalars: `tl::{name}(x, y)`")
            } else if known {
                format!("call the function: `tl::{text}(..)`")
            } else {
                match nearest(&text, ops::methods().map(|method| method.name)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!(
                        "methods are {}",
                        list(ops::methods().map(|method| format!("`{}`", method.name)))
                    ),
                }
            };
            return self.error_help(name_loc, format!("`{text}` is not a method of {text_of}"), help);
        };
        let what = format!("`.{text}`");
        if !self.arity(&what, &method.params[1..], &all[1..], name_loc)
            || !self.generics(&what, method.generic, generics, name_loc)
        {
            return self.failed(loc);
        }
        let generics = generics.to_vec();
        let call = Call { name: text, what, name_loc, loc, generics, args: all, text: String::new() };
        (method.check)(self, &call)
    }

    /// Whether a call has the right number of arguments; where it has too many, those are what is reported.
    fn arity(&mut self, what: &str, params: &[Parameter], args: &[Operand], name_loc: Loc) -> bool {
        let least = params.iter().filter(|param| !param.optional).count();
        let found = args.len();
        if (least..=params.len()).contains(&found) {
            return true;
        }
        let surplus = args.get(params.len()).zip(args.last());
        let loc = surplus.map_or(name_loc, |(first, last)| first.loc.to(last.loc));
        let names: Vec<String> = params
            .iter()
            .map(|param| if param.optional { format!("{}?", param.name) } else { param.name.to_string() })
            .collect();
        let wanted = if least == params.len() {
            count(least, "argument")
        } else {
            format!("{least} to {}", count(params.len(), "argument"))
        };
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        self.error(loc, format!("{what} takes {wanted}{names}, found {found}"));
        false
    }

    pub(super) fn generics(&mut self, what: &str, wanted: Generic, found: &[GenericArg], loc: Loc) -> bool {
        match (wanted, found) {
            (Generic::None | Generic::OptionalType, []) => true,
            (Generic::OptionalType | Generic::RequiredType, [GenericArg::Type(_)]) => true,
            (Generic::None, _) => {
                self.error(loc, format!("{what} takes no type arguments"));
                false
            }
            (Generic::RequiredType, []) => {
                self.error_help(
                    loc,
                    format!("{what} needs an element type"),
                    format!("write {}::<f32>(..)`", what.trim_end_matches('`')),
                );
                false
            }
            (Generic::Extents, _) => true,
            (Generic::OptionalType | Generic::RequiredType, _) => {
                self.error(loc, format!("{what} takes one element type"));
                false
            }
        }
    }
}

/// What the language has for something that other ones call by this name.
fn instead_of(name: &str) -> Option<String> {
    let own = match name {
        "where" | "where_" => "select",
        "transpose" => "trans",
        "ln" => "log",
        "fabs" => "abs",
        "fmax" => "max_num",
        "fmin" => "min_num",
        "iota" => "arange",
        "permute_dims" => "permute",
        "broadcast" | "expand" => "broadcast_to",
        "ones" | "ones_like" => "full",
        "assert" | "trap" => "device_assert",
        "print" | "printf" => "device_print",
        "cast" => return Some("convert with `.to::<f32>()` or `as f32`".into()),
        "mean" => return Some("divide the sum: `tl::sum(x, axis) / n as f32`".into()),
        "pow" | "powf" => return Some("for positive `x`: `tl::exp2(y * tl::log2(x))`".into()),
        _ => return None,
    };
    Some(format!("it is `tl::{own}` here"))
}

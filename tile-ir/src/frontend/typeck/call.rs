//! Resolves calls of functions and methods, and checks the number of their arguments.

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::{Call, Callee, Check, Item, Operand, WrittenCall, foreign};
use crate::frontend::syntax::{self, BinaryOp, CallExpr, Expr, ExprKind, GenericArg, UnaryOp};
use crate::ops::scalar;
use crate::ops::{self, IntrinsicGeneric, IntrinsicParam};
use crate::support::diagnostic::{Loc, count, list, nearest};

impl Check<'_> {
    pub(super) fn call(&mut self, call: &CallExpr, loc: Loc) -> Operand {
        let CallExpr { path, generics, args, text: first } = call;
        let (Some(name), prefix) = (path.last(), &path[..path.len() - 1]) else {
            return Operand::failed(loc);
        };
        let text = name.unraw().to_string();
        let name_loc = Loc::of(name);
        let args: Vec<Operand> = args.iter().map(|arg| self.expr(arg)).collect();
        let generics = generics.to_vec();
        if prefix.last().is_none_or(|module| module != "tl") {
            return match self.called_function(path) {
                Some(Some(callee)) => {
                    let what = format!("`{text}`");
                    let call = Call { name: text, what, name_loc, loc, args, text: first.clone() };
                    Operand { loc, ..self.invoke(&callee, WrittenCall { call, generics }) }
                }
                Some(None) => Operand::failed(loc),
                None => self.unknown_call(path, loc),
            };
        }
        let what = format!("`tl::{text}`");
        let call = Call { name: text, what, name_loc, loc, args, text: first.clone() };
        self.language(WrittenCall { call, generics })
    }

    /// A call of a function of `tl::`.
    pub(super) fn language(&mut self, WrittenCall { call, generics }: WrittenCall) -> Operand {
        let Call { name, what, name_loc, loc, args, .. } = &call;
        if let Some(op) = scalar::function(name) {
            if !generics.is_empty() {
                return self.error(*name_loc, format!("{what} takes no type arguments"));
            }
            let params: Vec<IntrinsicParam> = op.params.iter().map(|param| ops::required(param)).collect();
            if !self.arity(what, &params, args, *name_loc) {
                return Operand::failed(*loc);
            }
            let result = self.scalar(op, what, *loc, args);
            return Operand { loc: *loc, ..result };
        }
        let Some(function) = ops::functions().find(|function| function.name == name) else {
            return self.unknown_function(name, *name_loc);
        };
        if !self.arity(what, function.params, args, *name_loc)
            || !self.generics(what, function.generic, &generics, *name_loc)
        {
            return Operand::failed(*loc);
        }
        self.apply(function, &call, &generics)
    }

    pub(super) fn unknown_function(&mut self, name: &str, loc: Loc) -> Operand {
        let problem = format!("`tl::{name}` does not exist");
        if let Some(row) = scalar::row(name)
            && let Some(symbol) = row.binary.map(BinaryOp::symbol).or(row.unary.map(UnaryOp::symbol))
        {
            return self.error_help(loc, problem, format!("use the operator `{symbol}`"));
        }
        if let Some(dtype) = syntax::element_type(name) {
            let help = format!(
                "an element type is written `{dtype}`: `.to::<{dtype}>()`, `tl::zeros::<{dtype}>([N])`"
            );
            return self.error_help(loc, problem, help);
        }
        if let Some(instead) = foreign::function(name) {
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
        if !self.constants.is_empty() {
            let text = format!("`{text}` cannot be called in a constant");
            return self.error_help(start.to(end), text, syntax::CONSTANTS);
        }
        if path.len() > 1 && path[0] == "tl" && !ops::is_function(&name) {
            let operand = self.unknown_function(&name, start.to(end));
            return Operand { loc, ..operand };
        }
        if let [.., ty, _] = path
            && let Some(dtype) = self.type_named(&ty.to_string())
            && matches!(name.as_str(), "from" | "new" | "from_f32" | "from_f64" | "try_from")
        {
            let text = format!("`{text}` cannot be called in a kernel");
            let operand = self.error_help(start.to(end), text, format!("convert it: `.to::<{dtype}>()`"));
            return Operand { loc, ..operand };
        }
        if path.len() == 1 && self.kernel.name == name {
            return self.error(start.to(end), "a kernel cannot call itself");
        }
        if path.len() == 1
            && let Some(near) = nearest(&name, self.item_scope.functions().iter().map(String::as_str))
        {
            let help = format!("did you mean `{near}`?");
            return self.error_help(start.to(end), format!("`{name}` is not a function here"), help);
        }
        let known =
            scalar::function(&name).is_some() || ops::functions().any(|function| function.name == name);
        let own = match name.as_str() {
            "max" => Some("maximum(a, b)"),
            "min" => Some("minimum(a, b)"),
            _ => None,
        };
        let operand = if let Some(own) = own {
            let text = format!("`{text}` is not a function of the language");
            self.error_help(start.to(end), text, format!("of two tiles or scalars: `tl::{own}`"))
        } else if let Some(instead) = foreign::function(&name).filter(|_| path.len() > 1) {
            self.error_help(start.to(end), format!("`{text}` cannot be called in a kernel"), instead)
        } else if known {
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
        let text = name.unraw().to_string();
        let name_loc = Loc::of(name);
        if let Some(module) = self.dotted_module(receiver) {
            let path = [module, name.clone()];
            self.error_help(
                receiver.loc,
                "`tl` is a module, not a value",
                format!("write `tl::{}`", path[1]),
            );
            let args: Vec<Operand> = args.iter().map(|arg| self.expr(arg)).collect();
            let what = format!("`tl::{text}`");
            let generics = generics.to_vec();
            let call = Call { name: text, what, name_loc, loc, args, text: String::new() };
            return self.language(WrittenCall { call, generics });
        }
        let mut all = vec![self.expr(receiver)];
        all.extend(args.iter().map(|arg| self.expr(arg)));
        if matches!(all[0].item, Item::Failed) {
            let known = || ops::methods().chain(ops::view_methods());
            if self.is_uncalled_function() && !known().any(|method| method.name == text) {
                // Nothing is known of the receiver, but nothing has this method.
                let problem = format!("`{text}` is not a method of anything in a kernel");
                return match nearest(&text, known().map(|method| method.name)) {
                    Some(near) => self.error_help(name_loc, problem, format!("did you mean `{near}`?")),
                    None => self.error(name_loc, problem),
                };
            }
            return Operand::failed(loc);
        }
        if let Item::View(memory) = all[0].item {
            let (what, generics) = (format!("`.{text}`"), generics.to_vec());
            let call = Call { name: text, what, name_loc, loc, args: all, text: String::new() };
            return self.view_method(memory, &WrittenCall { call, generics });
        }
        let Some(method) = ops::methods().find(|method| method.name == text) else {
            return self.unknown_method(&text, name_loc, receiver, &all);
        };
        let what = format!("`.{text}`");
        if !self.arity(&what, &method.params[1..], &all[1..], name_loc)
            || !self.generics(&what, method.generic, generics, name_loc)
        {
            return Operand::failed(loc);
        }
        if self.report_second_choice(&text, name_loc, receiver) {
            return Operand::failed(loc);
        }
        let call = Call { name: text, what, name_loc, loc, args: all, text: String::new() };
        self.apply(method, &call, generics)
    }

    /// Whether a method chooses what another one in front of it has chosen for the same call, which is reported.
    fn report_second_choice(&mut self, method: &str, loc: Loc, mut receiver: &Expr) -> bool {
        let Some(choice) = ops::MethodChoice::by(method) else { return false };
        while let ExprKind::Method { receiver: before, name, .. } = &receiver.kind {
            let first = name.unraw().to_string();
            let Some(other) = ops::MethodChoice::by(&first) else { return false };
            if std::ptr::eq(choice, other) {
                let text = match first == method {
                    true => format!("`.{method}` is here twice"),
                    false => format!("this has one {}: `.{first}` is another", choice.what),
                };
                self.error_help(loc, text, "keep one of the two");
                return true;
            }
            receiver = before;
        }
        false
    }

    /// Reports a method that does not exist.
    fn unknown_method(&mut self, name: &str, loc: Loc, receiver: &Expr, all: &[Operand]) -> Operand {
        let text = format!("`{name}` is not a method of {}", self.describe(&all[0]));
        let written = match &receiver.kind {
            ExprKind::Path(path) if path.len() == 1 => path[0].to_string(),
            _ => "x".into(),
        };
        let rest = if all.len() > 1 { ", .." } else { "" };
        let help = match (name, all) {
            ("max", [_, _]) => "of two tiles or scalars: `tl::maximum(x, y)`".into(),
            ("min", [_, _]) => "of two tiles or scalars: `tl::minimum(x, y)`".into(),
            ("pow" | "powi", [Operand { item: Item::Value(value), .. }, ..])
                if self.ty(*value).dtype.is_integer() =>
            {
                format!("multiply: `{written} * {written}`")
            }
            ("call", [Operand { item: Item::Function(_), .. }, ..]) => {
                format!("call it: `{written}({})`", if all.len() > 1 { ".." } else { "" })
            }
            _ if ops::is_function(name) => format!("call the function: `tl::{name}(..)`"),
            _ if self.is_user_function(name) => format!("call the function: `{name}({written}{rest})`"),
            _ => match foreign::method(name) {
                Some(instead) => instead.into(),
                None => self.known_methods(name, &all[0]),
            },
        };
        self.error_help(loc, text, help)
    }

    /// Whether the name means a function or closure of the user's.
    fn is_user_function(&self, name: &str) -> bool {
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
            Item::View(_) | Item::List(_) | Item::Text(_) | Item::Failed => {
                return "it has no methods".into();
            }
        };
        match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("{what} {}", list(known.iter().map(|name| format!("`{name}`")))),
        }
    }

    /// `tl` before a dot: it is a module, unless a variable has the name.
    pub(super) fn dotted_module(&self, receiver: &Expr) -> Option<Ident> {
        match &receiver.kind {
            ExprKind::Path(path) if path[0] == "tl" && !self.scopes.is_bound("tl") => Some(path[0].clone()),
            ExprKind::Field { base, .. } => self.dotted_module(base),
            _ => None,
        }
    }

    /// Whether a call has the right number of arguments; where it has too many, those are what is reported.
    fn arity(&mut self, what: &str, params: &[IntrinsicParam], args: &[Operand], name_loc: Loc) -> bool {
        let least = params.iter().filter(|param| !param.optional).count();
        let found = args.len();
        if (least..=params.len()).contains(&found) {
            return true;
        }
        // A failed surplus argument was reported.
        if args
            .get(params.len()..)
            .is_some_and(|args| args.iter().any(|arg| matches!(arg.item, Item::Failed)))
        {
            return false;
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

    pub(super) fn generics(
        &mut self,
        what: &str,
        wanted: IntrinsicGeneric,
        found: &[GenericArg],
        loc: Loc,
    ) -> bool {
        match (wanted, found) {
            (IntrinsicGeneric::None | IntrinsicGeneric::OptionalType, []) => true,
            (IntrinsicGeneric::OptionalType | IntrinsicGeneric::RequiredType, [GenericArg::Type(_)]) => true,
            (IntrinsicGeneric::None, _) => {
                self.error(loc, format!("{what} takes no type arguments"));
                false
            }
            (IntrinsicGeneric::RequiredType, []) => {
                self.error_help(
                    loc,
                    format!("{what} needs an element type"),
                    format!("write {}::<f32>(..)`", what.trim_end_matches('`')),
                );
                false
            }
            (IntrinsicGeneric::Extents, _) => true,
            (IntrinsicGeneric::OptionalType | IntrinsicGeneric::RequiredType, _) => {
                self.error(loc, format!("{what} takes one element type"));
                false
            }
        }
    }
}

//! Resolves calls of functions and methods, and checks the number of their arguments.

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::structs::Receiver;
use super::unknown::{UnknownMethod, function_form};
use super::{Call, Check, Item, Operand, WrittenCall};
use crate::frontend::syntax::{CallExpr, Expr, ExprKind, GenericArg, Place, foreign_help, hint_method};
use crate::ops::scalar;
use crate::ops::{self, IntrinsicGeneric, IntrinsicParam};
use crate::support::diagnostic::{Loc, count};

impl Check<'_> {
    pub(super) fn call(&mut self, call: &CallExpr, loc: Loc) -> Operand {
        let CallExpr { path, generics, args, text: first } = call;
        let (Some(name), prefix) = (path.last(), &path[..path.len() - 1]) else {
            return Operand::failed(loc);
        };
        let text = name.unraw().to_string();
        let name_loc = Loc::of(name);
        let is_language = prefix.last().is_some_and(|module| module == "tl");
        let target = self.named_type(args);
        if is_language && self.report_type_argument(&text, generics, args, name_loc) {
            return Operand::failed(loc);
        }
        let known = if is_language { ops::is_function(&text) } else { self.is_item(path) };
        if !known && self.report_text_as_number(path, args) {
            return Operand::failed(loc);
        }
        let before = self.errors.len();
        let args: Vec<Operand> = args.iter().map(|arg| self.argument(arg, known)).collect();
        let generics = generics.to_vec();
        if !is_language {
            return match self.called_function(path) {
                Some(Some(callee)) => {
                    let what = format!("`{text}`");
                    let call = Call { name: text, what, name_loc, loc, args, text: first.clone() };
                    Operand { loc, ..self.invoke(&callee, WrittenCall { call, generics }) }
                }
                Some(None) => Operand::failed(loc),
                None => self.present(path, &args, loc).unwrap_or_else(|| {
                    let result = self.unknown_call(path, target, loc);
                    self.errors.drop_repeated_help(before);
                    result
                }),
            };
        }
        if !known {
            let operand = self.unknown_function(&text, target, name_loc);
            return Operand { loc, ..operand };
        }
        let what = format!("`tl::{text}`");
        let call = Call { name: text, what, name_loc, loc, args, text: first.clone() };
        self.language(WrittenCall { call, generics })
    }

    /// A call of a function of `tl::`.
    pub(super) fn language(&mut self, WrittenCall { call, generics }: WrittenCall) -> Operand {
        let Call { name, what, name_loc, loc, args, .. } = &call;
        if let Some(op) = scalar::functions::named(name) {
            if !generics.is_empty() {
                self.generics(what, IntrinsicGeneric::None, &generics, *name_loc);
                return Operand::failed(*loc);
            }
            let params: Vec<IntrinsicParam> = op.params.iter().map(|param| ops::required(param)).collect();
            if !self.arity(what, &params, args, *name_loc) {
                return Operand::failed(*loc);
            }
            let result = self.scalar(op, what, *loc, args);
            return Operand { loc: *loc, ..result };
        }
        let Some(function) = ops::functions().find(|function| function.name == name) else {
            return self.unknown_function(name, None, *name_loc);
        };
        if self.report_separate_offset(function, &call)
            || !self.arity(what, function.params, args, *name_loc)
            || !self.generics(what, function.generic, &generics, *name_loc)
        {
            return Operand::failed(*loc);
        }
        self.apply(function, &call, &generics)
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
        if let Some(mut path) = self.dotted_path(receiver) {
            let target = self.named_type(args);
            args.iter().for_each(|arg| drop(self.argument(arg, false)));
            path.push(name.clone());
            return self.unknown_dotted_call(&path, target, loc);
        }
        let known = |check: &Self, receiver: &Operand| match receiver.item {
            Item::View(_) => ops::view_methods().any(|method| method.name == text),
            _ => ops::methods().any(|method| method.name == text) || check.is_user_function(&text),
        };
        let target = self.named_type(args);
        let receiver_operand = self.expr(receiver);
        if matches!(receiver_operand.item, Item::Struct(..)) {
            let receiver = Receiver { place: receiver, value: receiver_operand };
            return self.call_struct_method(receiver, name, generics, args, loc);
        }
        let is_known = known(self, &receiver_operand);
        if let (true, Some(dtype)) = (is_known && generics.is_empty(), target)
            && ops::methods().any(|own| own.name == text && own.generic == IntrinsicGeneric::RequiredType)
        {
            let help = format!("the element type stands between angle brackets: `.{text}::<{dtype}>()`");
            let problem = format!("`.{text}` takes its element type as a type argument");
            return self.error_help(args[0].loc, problem, help);
        }
        if let Some(result) = self.option_method(&receiver_operand, name, loc) {
            return result;
        }
        let mut all = vec![receiver_operand];
        all.extend(args.iter().map(|arg| self.argument(arg, is_known)));
        if matches!(all[0].item, Item::Failed) {
            self.report_method_of_nothing(&UnknownMethod { name: text, name_loc, receiver, target });
            return Operand::failed(loc);
        }
        if let Some(view) = all[0].view().cloned() {
            let (what, generics) = (format!("`.{text}`"), generics.to_vec());
            let call = Call { name: text, what, name_loc, loc, args: all, text: String::new() };
            return self.view_method(&view, &WrittenCall { call, generics });
        }
        let Some(method) = ops::methods().find(|method| method.name == text) else {
            let unknown = UnknownMethod { name: text, name_loc, receiver, target };
            return self.unknown_method(&unknown, &all);
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

    /// `tl` before a dot: it is a module, unless a variable has the name.
    pub(super) fn dotted_module(&self, receiver: &Expr) -> Option<Ident> {
        match &receiver.kind {
            ExprKind::Path(path) if path[0] == "tl" && !self.scopes.is_bound("tl") => Some(path[0].clone()),
            ExprKind::Field { base, .. } => self.dotted_module(base),
            _ => None,
        }
    }

    /// The names of `jax.nn`, whose first is a module of another language and no variable.
    pub(super) fn dotted_path(&self, expr: &Expr) -> Option<Vec<Ident>> {
        match &expr.kind {
            ExprKind::Path(path) => {
                let is_module = path.len() == 1
                    && !self.is_item(path)
                    && foreign_help(&path[0].to_string(), Place::Owner).is_some();
                is_module.then(|| path.clone())
            }
            ExprKind::Field { base, name } => {
                let mut path = self.dotted_path(base)?;
                path.push(name.clone());
                Some(path)
            }
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
        let text = format!("{what} takes {wanted}{names}, found {found}");
        match arity_help(what, params, args) {
            Some(help) => self.error_help(loc, text, help),
            None => self.error(loc, text),
        };
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
            (IntrinsicGeneric::Results, [GenericArg::Type(_) | GenericArg::Tuple(..)]) => true,
            (IntrinsicGeneric::None, _) => {
                let help = "leave them out: types follow from the arguments";
                self.error_help(loc, format!("{what} takes no type arguments"), help);
                false
            }
            (IntrinsicGeneric::RequiredType | IntrinsicGeneric::Results, []) => {
                let help = format!("write {}::<f32>(..)`", what.trim_end_matches('`'));
                self.error_help(loc, format!("{what} needs an element type"), help);
                false
            }
            (IntrinsicGeneric::Extents, _) => true,
            (IntrinsicGeneric::Results, _) => {
                self.error_help(
                    loc,
                    format!("{what} takes one element type, or a tuple of them"),
                    "several results are a tuple: `::<(f32, i32)>`",
                );
                false
            }
            (IntrinsicGeneric::OptionalType | IntrinsicGeneric::RequiredType, _) => {
                self.error(loc, format!("{what} takes one element type"));
                false
            }
        }
    }
}

/// What to write where a function is called with as many arguments as it does not take.
fn arity_help(what: &str, params: &[IntrinsicParam], args: &[Operand]) -> Option<String> {
    let what = what.trim_matches('`');
    if let (Some(IntrinsicParam { name: "start", .. }), [end]) = (params.first(), args) {
        let end = end.loc.word().unwrap_or_else(|| "n".into());
        return Some(format!("write `{what}(0, {end})`"));
    }
    let surplus = args.get(params.len());
    if let Some(Item::Text(text)) = surplus.map(|arg| &arg.item)
        && let Some(method) = hint_method(text)
    {
        return Some(method);
    }
    let first = args.first().and_then(|first| first.loc.word());
    if let ([.., IntrinsicParam { name: "shape" | "order", .. }], Some(first)) = (params, first) {
        let form = function_form(what.trim_start_matches("tl::"), &first, args);
        return Some(format!("write `{form}`"));
    }
    if let Some(help) = elsewhere_help(what) {
        return Some(help.to_string());
    }
    if args.len() < params.len() && !args.is_empty() && what.starts_with("tl::") {
        let words: Option<Vec<String>> = args.iter().map(|arg| arg.loc.word()).collect();
        let mut words = words?;
        for param in params[args.len()..].iter().filter(|param| !param.optional) {
            // A name of the user's stands for another argument.
            let is_taken = words.iter().any(|word| word == param.name);
            words.push(if is_taken { "..".into() } else { param.name.into() });
        }
        return Some(format!("write `{what}({})`", words.join(", ")));
    }
    let leave_out = if args.len() > params.len() + 1 { "leave them out" } else { "leave it out" };
    surplus.map(|_| leave_out.to_string())
}

/// What to write where a function has more or fewer arguments in other languages.
fn elsewhere_help(what: &str) -> Option<&'static str> {
    Some(match what {
        "tl::trans" => "another order of axes is `tl::permute(x, [1, 0])`",
        "tl::arange" => "multiply by a step: `tl::arange(0, N) * step`",
        "tl::randint" => "a range follows from the bits: `tl::randint(seed, offset) % n`",
        "tl::static_print" => "one value each: `tl::static_print(N)`",
        "tl::program_id" => "a grid's first axis is 0: `tl::program_id(0)`",
        "tl::num_programs" => "a grid's first axis is 0: `tl::num_programs(0)`",
        "tl::cat" => "two tiles of one shape at a time: `tl::cat(a, b, 0)`",
        "tl::maximum" | "tl::minimum" => "two at a time: `tl::maximum(tl::maximum(a, b), c)`",
        _ => return None,
    })
}

//! Statements and expressions: what of Rust a kernel body may use, with every other form named.

use std::rc::Rc;

use proc_macro2::Ident;
use quote::ToTokens;

use super::assign::{compound, is_statement};
use super::ast::*;
use super::item::type_name;
use super::unsupported::{is_foreign_module, is_iterator, is_unknown};
use super::{function, match_lowering, optional, parameters, suffix, use_tree};
use crate::ops::{self, records_source};
use crate::support::diagnostic::{Errors, Loc, source_text};
use crate::support::dtype::DType;

pub(super) struct Parser<'e> {
    pub errors: &'e mut Errors,
}

impl Parser<'_> {
    pub(super) fn unsupported(&mut self, tokens: impl ToTokens, what: &str) -> Expr {
        let loc = Loc::of(tokens);
        self.errors.push(loc, format!("{what} cannot be used in a kernel"));
        Expr { kind: ExprKind::Error, loc }
    }

    pub(super) fn unsupported_help(&mut self, tokens: impl ToTokens, what: &str, help: &str) -> Expr {
        let loc = Loc::of(tokens);
        self.errors.push_help(loc, format!("{what} cannot be used in a kernel"), help);
        Expr { kind: ExprKind::Error, loc }
    }

    pub fn block(&mut self, block: &syn::Block) -> BlockExpr {
        let mut items = Items::default();
        let loc = Loc { start: block.brace_token.span.open(), end: block.brace_token.span.close() };
        let mut statements = vec![];
        let mut value = None;
        for (i, stmt) in block.stmts.iter().enumerate() {
            let last = i + 1 == block.stmts.len();
            match stmt {
                syn::Stmt::Expr(expr, None) if last && !is_statement(expr) => {
                    value = Some(Box::new(self.expr(expr)));
                }
                syn::Stmt::Expr(expr, semicolon) => {
                    // A trailing `if` without a semicolon is the block's value when its branches have one.
                    let is_value = last
                        && semicolon.is_none()
                        && matches!(expr, syn::Expr::If(_) | syn::Expr::Match(_) | syn::Expr::Block(_));
                    if is_value {
                        value = Some(Box::new(self.expr(expr)));
                    } else {
                        statements.extend(self.statement(expr));
                    }
                }
                syn::Stmt::Local(local) => statements.extend(self.local(local)),
                syn::Stmt::Item(item) => self.item(item, &mut items),
                syn::Stmt::Macro(stmt) => {
                    self.macro_call(&stmt.mac);
                }
            }
        }
        BlockExpr { items: items.into(), statements, value, loc }
    }

    fn item(&mut self, item: &syn::Item, items: &mut Items) {
        match item {
            syn::Item::Fn(item) => items.functions.push(function::parse(item.clone(), self.errors).into()),
            syn::Item::Const(item) => {
                let constant = function::constant(item);
                if constant.value.is_none() {
                    self.unsupported_help(&item.expr, "this constant", function::CONSTANTS);
                }
                items.constants.push(constant);
            }
            syn::Item::Static(item) => {
                self.unsupported_help(item.static_token, "a `static` item", "declare a `const`");
            }
            syn::Item::Use(item) => {
                let uses = use_tree::uses(item);
                if uses.is_empty() {
                    let help =
                        "the functions of `tl::` need none; others are named one by one, `use path::{a, b};`";
                    self.unsupported_help(item, "this `use` declaration", help);
                }
                items.uses.extend(uses);
            }
            syn::Item::Struct(syn::ItemStruct { ident, .. })
            | syn::Item::Enum(syn::ItemEnum { ident, .. })
            | syn::Item::Type(syn::ItemType { ident, .. }) => {
                self.unsupported(ident, "a type definition");
            }
            syn::Item::Macro(item) => {
                self.macro_call(&item.mac);
            }
            other => {
                self.unsupported(other, "an item");
            }
        }
    }

    fn local(&mut self, local: &syn::Local) -> Option<Stmt> {
        let (pat, ty) = match &local.pat {
            syn::Pat::Type(typed) => (&*typed.pat, Some(&*typed.ty)),
            pat => (pat, None),
        };
        let ty = ty.and_then(|ty| {
            // A type that is none has an empty name; it is reported where the value is not.
            let unnamed = || TypeName { name: String::new(), loc: Loc::of(ty) };
            match ty {
                syn::Type::Infer(_) => None,
                ty => Some(type_name(ty).unwrap_or_else(unnamed)),
            }
        });
        let Some(pattern) = self.pattern(pat) else {
            // The values of its names are unknown; their uses are not reported.
            let value = local.init.as_ref().map(|init| self.expr(&init.expr));
            return Some(bind_errors(pat, value));
        };
        let init = local.init.as_ref().map(|init| {
            if let Some((_, diverge)) = &init.diverge {
                self.unsupported(diverge, "`let .. else`");
            }
            self.expr(&init.expr)
        });
        Some(Stmt::Let { pattern, ty, init, loc: Loc::of(local) })
    }

    pub(super) fn pattern(&mut self, pat: &syn::Pat) -> Option<Pattern> {
        match pat {
            syn::Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                Some(Pattern::Name { name: ident.ident.clone(), mutable: ident.mutability.is_some() })
            }
            syn::Pat::Wild(wild) => Some(Pattern::Ignore(Loc::of(wild))),
            syn::Pat::Tuple(tuple) => {
                let parts = tuple.elems.iter().map(|part| self.pattern(part)).collect::<Option<_>>()?;
                Some(Pattern::Tuple { parts, loc: Loc::of(tuple) })
            }
            syn::Pat::Paren(inner) => self.pattern(&inner.pat),
            other => {
                let help =
                    self.pattern_help(other).unwrap_or_else(|| "bind a name or a tuple of names".into());
                self.unsupported_help(other, "this pattern", &help);
                None
            }
        }
    }

    pub(super) fn statement(&mut self, expr: &syn::Expr) -> Option<Stmt> {
        match expr {
            syn::Expr::Assign(assign) => self.assignment(&assign.left, None, &assign.right),
            syn::Expr::Binary(binary) if compound(&binary.op).is_some() => {
                let op = compound(&binary.op).map(|op| (op, Loc::of(binary.op)));
                self.assignment(&binary.left, op, &binary.right)
            }
            syn::Expr::ForLoop(for_loop) => {
                self.label(&for_loop.label);
                let var = match self.pattern(&for_loop.pat) {
                    Some(Pattern::Name { name, mutable: false }) => Some(name),
                    Some(Pattern::Name { name, mutable: true }) => {
                        self.errors.push(Loc::of(&name), "a loop variable cannot be reassigned");
                        Some(name)
                    }
                    Some(Pattern::Tuple { loc, .. }) => {
                        // An iterator is reported itself.
                        if !matches!(&*for_loop.expr, syn::Expr::MethodCall(call) if is_iterator(call)) {
                            let help = "a loop runs over integers: `for i in 0..n`";
                            self.errors.push_help(loc, "a loop variable is a plain name", help);
                        }
                        None
                    }
                    Some(Pattern::Ignore(_)) | None => None,
                };
                let range = self.expr(&for_loop.expr);
                let mut body = self.block(&for_loop.body);
                if var.is_none() {
                    body.statements.insert(0, bind_errors(&for_loop.pat, None));
                }
                let loc = Loc::from(for_loop.for_token.span);
                Some(Stmt::For { var, range, body, loc })
            }
            syn::Expr::While(while_loop) => {
                self.label(&while_loop.label);
                if let syn::Expr::Let(_) = &*while_loop.cond {
                    self.unsupported_help(while_loop.while_token, "`while let`", "`while` takes a condition");
                    return None;
                }
                let condition = self.expr(&while_loop.cond);
                let body = self.block(&while_loop.body);
                Some(Stmt::While { condition, body, loc: Loc::from(while_loop.while_token.span) })
            }
            other => Some(Stmt::Expr(self.expr(other))),
        }
    }

    pub fn expr(&mut self, expr: &syn::Expr) -> Expr {
        let loc = Loc::of(expr);
        let kind = match expr {
            syn::Expr::Lit(lit) => return self.literal(lit),
            syn::Expr::Path(path) => {
                if path.path.segments.iter().any(|segment| !segment.arguments.is_empty()) {
                    return self.unsupported(path, "a path with type arguments that is not called");
                }
                ExprKind::Path(path.path.segments.iter().map(|segment| segment.ident.clone()).collect())
            }
            syn::Expr::Paren(inner) => return Expr { loc, ..self.expr(&inner.expr) },
            syn::Expr::Group(inner) => return self.expr(&inner.expr),
            syn::Expr::Unary(unary) => return self.unary(unary),
            syn::Expr::Binary(binary) => return self.binary(binary),
            syn::Expr::Cast(cast) => return self.cast(cast),
            syn::Expr::Call(call) => return self.call(call),
            syn::Expr::MethodCall(call) => return self.method_call(call),
            syn::Expr::Tuple(tuple) => {
                ExprKind::Tuple(tuple.elems.iter().map(|part| self.expr(part)).collect())
            }
            syn::Expr::Field(syn::ExprField { base, member: syn::Member::Unnamed(member), .. }) => {
                ExprKind::Part { tuple: Box::new(self.expr(base)), index: member.index as usize }
            }
            syn::Expr::Field(syn::ExprField { base, member: syn::Member::Named(name), .. }) => {
                ExprKind::Field { base: Box::new(self.expr(base)), name: name.clone() }
            }
            syn::Expr::Struct(own) if own.qself.is_none() => return self.struct_value(own),
            syn::Expr::Index(index) => self.index(index, IndexUse::Read),
            syn::Expr::Reference(reference) => ExprKind::Reference(Box::new(self.expr(&reference.expr))),
            syn::Expr::Array(array) => {
                ExprKind::Array(array.elems.iter().map(|part| self.expr(part)).collect())
            }
            syn::Expr::If(expr) => return self.conditional(expr),
            syn::Expr::Match(choice) => {
                return optional::match_option(choice, self)
                    .unwrap_or_else(|| match_lowering::parse(choice, self));
            }
            syn::Expr::Closure(closure) => {
                return match function::closure(closure, self) {
                    Some(closure) => Expr { kind: ExprKind::Closure(closure.into()), loc },
                    None => Expr { kind: ExprKind::Error, loc },
                };
            }
            syn::Expr::Return(exit) => {
                let value = exit.expr.as_ref().map(|value| Box::new(self.expr(value)));
                ExprKind::Exit(Exit::Return(value))
            }
            syn::Expr::Break(exit) => {
                self.jump_label(&exit.label);
                if let Some(value) = &exit.expr {
                    let help = "assign it to a variable around the loop first: `found = value; break;`";
                    return self.unsupported_help(value, "a value after `break`", help);
                }
                ExprKind::Exit(Exit::Break)
            }
            syn::Expr::Continue(exit) => {
                self.jump_label(&exit.label);
                ExprKind::Exit(Exit::Continue)
            }
            syn::Expr::Block(block) if block.label.is_none() => {
                ExprKind::Block(self.block(&block.block).into())
            }
            syn::Expr::Block(syn::ExprBlock { label: Some(label), .. }) => {
                return self.labeled_block(label, loc);
            }
            syn::Expr::Range(range) => return self.range(range),
            syn::Expr::Macro(mac) => return self.macro_call(&mac.mac),
            other => return self.name_unsupported(other),
        };
        Expr { kind, loc }
    }

    fn struct_value(&mut self, own: &syn::ExprStruct) -> Expr {
        let path = own.path.segments.iter().map(|segment| segment.ident.clone()).collect();
        let field = |field: &syn::FieldValue| match &field.member {
            syn::Member::Named(name) => Some((name.clone(), self.expr(&field.expr))),
            syn::Member::Unnamed(_) => None,
        };
        let fields = own.fields.iter().filter_map(field).collect();
        let rest = own.rest.as_ref().map(|rest| Box::new(self.expr(rest)));
        Expr { kind: ExprKind::Struct { path, fields, rest }, loc: Loc::of(own) }
    }

    fn unary(&mut self, unary: &syn::ExprUnary) -> Expr {
        let op = match unary.op {
            syn::UnOp::Neg(_) => UnaryOp::Neg,
            syn::UnOp::Not(_) => UnaryOp::Not,
            // What to write instead follows from what is dereferenced.
            _ => {
                let operand = Box::new(self.expr(&unary.expr));
                let kind = ExprKind::Dereference { operand, usage: IndexUse::Read };
                return Expr { kind, loc: Loc::of(unary) };
            }
        };
        let operand = Box::new(self.expr(&unary.expr));
        Expr { kind: ExprKind::Unary { op, operand }, loc: Loc::of(unary) }
    }

    fn cast(&mut self, cast: &syn::ExprCast) -> Expr {
        let operand = Box::new(self.expr(&cast.expr));
        match type_name(&cast.ty) {
            Some(ty) => Expr { kind: ExprKind::Cast { operand, ty }, loc: Loc::of(cast) },
            None => {
                let help = match &*cast.ty {
                    syn::Type::Ptr(_) => {
                        "leave the cast out: a slice plus offsets is a pointer, `x + offsets`, and a tile's accesses are as wide as its addresses allow"
                    }
                    _ => "cast to an element type such as `f32`",
                };
                self.unsupported_help(&cast.ty, "this type", help)
            }
        }
    }

    fn method_call(&mut self, call: &syn::ExprMethodCall) -> Expr {
        let loc = Loc::of(call);
        let receiver = Box::new(self.expr(&call.receiver));
        // A method that is reported may have had any generics.
        let is_view_method = ops::view_methods().any(|method| call.method == method.name);
        let turbofish = call.turbofish.as_ref().filter(|_| is_view_method || !is_iterator(call));
        let generics = turbofish.map_or(Some(vec![]), |args| self.generic_args(args));
        let method = ops::methods().find(|method| call.method == method.name);
        let name = call.method.to_string();
        let params = match method {
            Some(method) => Some(method.params[1..].to_vec()),
            None => (ops::is_function(&name) && is_foreign_module(&call.receiver)).then(|| parameters(&name)),
        };
        let args = self.arguments(&call.args, params);
        let Some(generics) = generics else { return Expr { kind: ExprKind::Error, loc } };
        Expr { kind: ExprKind::Method { receiver, name: call.method.clone(), generics, args }, loc }
    }

    fn literal(&mut self, lit: &syn::ExprLit) -> Expr {
        let loc = Loc::of(lit);
        let written = |text: &str| (!text.is_empty()).then(|| text.to_string());
        let kind = match &lit.lit {
            syn::Lit::Int(int) if !suffix::is_known(int.suffix(), false) => ExprKind::Error,
            syn::Lit::Float(float) if !suffix::is_known(float.suffix(), true) => ExprKind::Error,
            syn::Lit::Int(int) => match int.base10_parse::<i128>() {
                // `1f32` is a float although it lexes as an integer.
                Ok(value) if matches!(int.suffix(), "f32" | "f64") => {
                    ExprKind::Float { value: value as f64, suffix: written(int.suffix()) }
                }
                Ok(value) if value <= DType::U64.range().1 => {
                    ExprKind::Int { value, suffix: written(int.suffix()) }
                }
                _ => {
                    self.errors
                        .push(loc, "this integer is too large: 64 bits hold up to 18446744073709551615");
                    ExprKind::Error
                }
            },
            syn::Lit::Float(float) => match float.base10_parse::<f64>() {
                Ok(value) => ExprKind::Float { value, suffix: written(float.suffix()) },
                Err(_) => {
                    self.errors.push(loc, "this number cannot be read");
                    ExprKind::Error
                }
            },
            syn::Lit::Bool(value) => ExprKind::Bool(value.value),
            syn::Lit::Str(text) => ExprKind::Text(text.value()),
            syn::Lit::Char(own) => {
                let help = format!("write its number: `{}`", u32::from(own.value()));
                return self.unsupported_help(lit, "a character", &help);
            }
            syn::Lit::Byte(own) => {
                let help = format!("write its number: `{}u8`", own.value());
                return self.unsupported_help(lit, "a byte's character", &help);
            }
            _ => {
                return self.unsupported_help(
                    lit,
                    "this literal",
                    "text stands between double quotes, `\"..\"`",
                );
            }
        };
        Expr { kind, loc }
    }

    fn binary(&mut self, binary: &syn::ExprBinary) -> Expr {
        let loc = Loc::of(binary);
        let op_loc = Loc::of(binary.op);
        if let (syn::BinOp::Mul(_), syn::Expr::Unary(right)) = (&binary.op, &*binary.right)
            && let syn::UnOp::Deref(star) = right.op
        {
            return self.power(&binary.left, &right.expr, op_loc.to(Loc::of(star)));
        }
        let lhs = Box::new(self.expr(&binary.left));
        let rhs = Box::new(self.expr(&binary.right));
        let kind = match (&binary.op, plain(&binary.op)) {
            (syn::BinOp::And(_), _) => ExprKind::Logic { and: true, op_loc, lhs, rhs },
            (syn::BinOp::Or(_), _) => ExprKind::Logic { and: false, op_loc, lhs, rhs },
            (_, Some(op)) => ExprKind::Binary { op, op_loc, lhs, rhs },
            (_, None) => return self.not_a_value(op_loc, "an assignment"),
        };
        Expr { kind, loc }
    }

    fn call(&mut self, call: &syn::ExprCall) -> Expr {
        let loc = Loc::of(call);
        let name = match &*call.func {
            syn::Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        let args = match is_unknown(&call.func) {
            // The function is reported, so that the names of its arguments say nothing more.
            true => call.args.iter().map(|arg| self.unnamed(arg)).collect(),
            false => {
                let known = name.filter(|name| ops::is_function(name));
                self.arguments(&call.args, known.map(|name| parameters(&name)))
            }
        };
        let syn::Expr::Path(function) = &*call.func else {
            return self.unsupported(&call.func, "calling a value");
        };
        let segments = &function.path.segments;
        let generics = match segments.last().map(|segment| &segment.arguments) {
            Some(syn::PathArguments::AngleBracketed(args)) => self.generic_args(args),
            _ => Some(vec![]),
        };
        let Some(generics) = generics else { return Expr { kind: ExprKind::Error, loc } };
        let path: Vec<Ident> = segments.iter().map(|segment| segment.ident.clone()).collect();
        let quoted = path.last().is_some_and(|name| records_source(&name.to_string()));
        let text = call.args.first().filter(|_| quoted).map(|arg| source_text(arg.to_token_stream()));
        let text = text.unwrap_or_default();
        Expr { kind: ExprKind::Call(CallExpr { path, generics, args, text }), loc }
    }

    /// The arguments of a call, with the parameters of a function of the language.
    fn arguments<'a>(
        &mut self,
        args: impl IntoIterator<Item = &'a syn::Expr>,
        params: Option<Vec<ops::IntrinsicParam>>,
    ) -> Vec<Expr> {
        let names: Option<Vec<&str>> = params.map(|params| params.iter().map(|param| param.name).collect());
        let args = args.into_iter().enumerate();
        args.map(|(i, arg)| match arg {
            syn::Expr::Assign(named) => self.named_argument(named, names.as_deref(), i),
            arg => self.expr(arg),
        })
        .collect()
    }

    /// `None` when one of them was reported.
    fn generic_args(&mut self, args: &syn::AngleBracketedGenericArguments) -> Option<Vec<GenericArg>> {
        let parsed: Vec<Option<GenericArg>> = args
            .args
            .iter()
            .map(|arg| match arg {
                syn::GenericArgument::Type(syn::Type::Infer(_)) => Some(GenericArg::Infer(Loc::of(arg))),
                syn::GenericArgument::Type(syn::Type::Tuple(tuple)) => {
                    let names: Option<Vec<TypeName>> = tuple.elems.iter().map(type_name).collect();
                    if names.is_none() {
                        self.unsupported_help(tuple, "this type", "name element types such as `f32`");
                    }
                    Some(GenericArg::Tuple(names?, Loc::of(tuple)))
                }
                syn::GenericArgument::Type(ty) => {
                    let name = type_name(ty);
                    if name.is_none() {
                        self.unsupported_help(ty, "this type", "name an element type such as `f32`");
                    }
                    name.map(GenericArg::Type)
                }
                syn::GenericArgument::Const(expr) => Some(GenericArg::Const(self.expr(expr))),
                other => {
                    self.unsupported(other, "this argument");
                    None
                }
            })
            .collect();
        parsed.into_iter().collect()
    }

    fn conditional(&mut self, expr: &syn::ExprIf) -> Expr {
        let loc = Loc::of(expr);
        if let syn::Expr::Let(condition) = &*expr.cond
            && let Some(kind) = optional::if_let(expr, condition, self)
        {
            return Expr { kind, loc };
        }
        let condition = Box::new(self.expr(&expr.cond));
        let mut then = self.block(&expr.then_branch);
        if let syn::Expr::Let(condition) = &*expr.cond {
            then.statements.insert(0, bind_errors(&condition.pat, None));
        }
        let kind = ExprKind::If { condition, then: then.into(), otherwise: self.otherwise(expr) };
        Expr { kind, loc }
    }

    /// What stands behind `else`.
    pub(super) fn otherwise(&mut self, expr: &syn::ExprIf) -> Option<Rc<BlockExpr>> {
        let (_, branch) = expr.else_branch.as_ref()?;
        Some(match &**branch {
            syn::Expr::Block(block) => self.block(&block.block).into(),
            other => {
                let value = self.expr(other);
                let (value, loc) = (Some(Box::new(value)), Loc::of(other));
                Rc::new(BlockExpr { items: Rc::default(), statements: vec![], value, loc })
            }
        })
    }

    /// `base[index]`, in which a range may be open.
    pub(super) fn index(&mut self, index: &syn::ExprIndex, usage: IndexUse) -> ExprKind {
        let base = Box::new(self.expr(&index.expr));
        let index = match &*index.index {
            syn::Expr::Range(range) => {
                let loc = Loc::of(range);
                let mut end = |end: &Option<Box<syn::Expr>>| {
                    let zero = Expr { kind: ExprKind::Int { value: 0, suffix: None }, loc };
                    Box::new(end.as_ref().map_or(zero, |end| self.expr(end)))
                };
                let (low, high) = (end(&range.start), end(&range.end));
                Expr { kind: ExprKind::Range { low, high, inclusive: false }, loc }
            }
            other => self.expr(other),
        };
        ExprKind::Index { base, index: Box::new(index), usage }
    }

    fn range(&mut self, range: &syn::ExprRange) -> Expr {
        let loc = Loc::of(range);
        let (Some(low), Some(high)) = (&range.start, &range.end) else {
            self.errors.push_help(loc, "a range needs both ends", "write `0..n`");
            return Expr { kind: ExprKind::Error, loc };
        };
        let inclusive = matches!(range.limits, syn::RangeLimits::Closed(_));
        let kind =
            ExprKind::Range { low: Box::new(self.expr(low)), high: Box::new(self.expr(high)), inclusive };
        Expr { kind, loc }
    }
}

/// Binds the names of a pattern that was reported to errors, so that their uses are not reported.
fn bind_errors(pat: &syn::Pat, value: Option<Expr>) -> Stmt {
    let loc = Loc::of(pat);
    let mut parts = vec![];
    bound_names(pat, &mut parts);
    let error = Expr { kind: ExprKind::Error, loc };
    let unnamed = |value| Stmt::Let { pattern: Pattern::Ignore(loc), ty: None, init: Some(value), loc };
    let statements = value.map(unnamed).into_iter().collect();
    let block = BlockExpr { items: Rc::default(), statements, value: Some(Box::new(error)), loc };
    let init = Some(Expr { kind: ExprKind::Block(block.into()), loc });
    Stmt::Let { pattern: Pattern::Tuple { parts, loc }, ty: None, init, loc }
}

/// The names that a pattern binds, whatever its form.
fn bound_names(pat: &syn::Pat, found: &mut Vec<Pattern>) {
    match pat {
        syn::Pat::Ident(own) => {
            found.push(Pattern::Name { name: own.ident.clone(), mutable: own.mutability.is_some() });
            if let Some((_, pat)) = &own.subpat {
                bound_names(pat, found);
            }
        }
        syn::Pat::Or(or) => or.cases.iter().for_each(|pat| bound_names(pat, found)),
        syn::Pat::Paren(inner) => bound_names(&inner.pat, found),
        syn::Pat::Reference(inner) => bound_names(&inner.pat, found),
        syn::Pat::Slice(own) => own.elems.iter().for_each(|pat| bound_names(pat, found)),
        syn::Pat::Struct(own) => own.fields.iter().for_each(|field| bound_names(&field.pat, found)),
        syn::Pat::Tuple(own) => own.elems.iter().for_each(|pat| bound_names(pat, found)),
        syn::Pat::TupleStruct(own) => own.elems.iter().for_each(|pat| bound_names(pat, found)),
        syn::Pat::Type(typed) => bound_names(&typed.pat, found),
        _ => {}
    }
}

fn plain(op: &syn::BinOp) -> Option<BinaryOp> {
    Some(match op {
        syn::BinOp::Add(_) => BinaryOp::Add,
        syn::BinOp::Sub(_) => BinaryOp::Sub,
        syn::BinOp::Mul(_) => BinaryOp::Mul,
        syn::BinOp::Div(_) => BinaryOp::Div,
        syn::BinOp::Rem(_) => BinaryOp::Rem,
        syn::BinOp::BitAnd(_) => BinaryOp::And,
        syn::BinOp::BitOr(_) => BinaryOp::Or,
        syn::BinOp::BitXor(_) => BinaryOp::Xor,
        syn::BinOp::Shl(_) => BinaryOp::Shl,
        syn::BinOp::Shr(_) => BinaryOp::Shr,
        syn::BinOp::Eq(_) => BinaryOp::Eq,
        syn::BinOp::Ne(_) => BinaryOp::Ne,
        syn::BinOp::Lt(_) => BinaryOp::Lt,
        syn::BinOp::Le(_) => BinaryOp::Le,
        syn::BinOp::Gt(_) => BinaryOp::Gt,
        syn::BinOp::Ge(_) => BinaryOp::Ge,
        _ => return None,
    })
}

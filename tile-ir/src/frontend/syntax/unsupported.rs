//! Reports Rust that a kernel cannot use, with what to write instead.

use quote::ToTokens;

use super::ast::{Expr, ExprKind};
use super::expr::Parser;
use super::{Place, foreign_help};
use crate::ops;
use crate::support::diagnostic::{Loc, source_text};

impl Parser<'_> {
    pub(super) fn macro_call(&mut self, mac: &syn::Macro) -> Expr {
        let name = mac.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let help =
            foreign_help(&name, Place::Macro).unwrap_or_else(|| "kernels call `tl::` functions".into());
        self.unsupported_help(&mac.path, &format!("the macro `{name}!`"), &help)
    }

    pub(super) fn jump_label(&mut self, label: &Option<syn::Lifetime>) {
        if let Some(label) = label {
            let what = format!("the label `{label}`");
            let message = format!("{what} cannot be used in a kernel");
            // Once for a label and the exits that name it.
            if !self.errors.iter().any(|error| error.message == message) {
                self.unsupported_help(label, &what, NO_LABEL);
            }
        }
    }

    pub(super) fn label(&mut self, label: &Option<syn::Label>) {
        if let Some(label) = label {
            self.unsupported_help(label, &format!("the label `{}`", label.name), NO_LABEL);
        }
    }

    /// `'a: { .. }`, reported once for the label and the exits that name it.
    pub(super) fn labeled_block(&mut self, label: &syn::Label, loc: Loc) -> Expr {
        let help = "`if` and `else` give values: `let v = if condition { a } else { b };`";
        self.unsupported_help(label, "a labeled block", help);
        Expr { kind: ExprKind::Error, loc }
    }

    /// Reports Rust that a kernel cannot use.
    pub(super) fn name_unsupported(&mut self, expr: &syn::Expr) -> Expr {
        match expr {
            syn::Expr::Loop(own) => {
                self.unsupported_help(own.loop_token, "`loop`", "use `for` over a range, or `while`")
            }
            syn::Expr::Try(own) => {
                self.unsupported_help(own.question_token, "`?`", "nothing in a kernel fails: leave it out")
            }
            syn::Expr::Await(own) => self.unsupported(own.await_token, "async code"),
            syn::Expr::Async(own) => self.unsupported(own.async_token, "async code"),
            syn::Expr::Unsafe(own) => {
                let help = "leave it out: nothing in a kernel is unsafe";
                let error = self.unsupported_help(own.unsafe_token, "an `unsafe` block", help);
                self.block(&own.block);
                error
            }
            syn::Expr::Repeat(own) => {
                let [value, count] = [&own.expr, &own.len].map(|part| source_text(part.to_token_stream()));
                let help = format!(
                    "`tl::full([{count}], {value})` makes a constant tile; a kernel has no memory but its parameters"
                );
                self.unsupported_help(expr, "`[value; count]`", &help)
            }
            syn::Expr::Let(own) => {
                let help = self.pattern_help(&own.pat);
                self.unsupported_help(expr, "`if let`", &help.unwrap_or_else(|| IF_LET.into()))
            }
            syn::Expr::ForLoop(own) => self.not_a_value(Loc::of(own.for_token), "a loop"),
            syn::Expr::While(own) => self.not_a_value(Loc::of(own.while_token), "a loop"),
            syn::Expr::Assign(own) => self.not_a_value(Loc::of(own.eq_token), "an assignment"),
            _ => self.unsupported(expr, "this expression"),
        }
    }

    /// What to write instead of a pattern such as `Some(x)`.
    pub(super) fn pattern_help(&self, pat: &syn::Pat) -> Option<String> {
        if let syn::Pat::Slice(list) = pat {
            let parts = source_text(list.elems.to_token_stream());
            return Some(format!("values go together as a tuple: `let ({parts}) = (..);`"));
        }
        let syn::Pat::TupleStruct(own) = pat else { return None };
        foreign_help(&own.path.segments.last()?.ident.to_string(), Place::Function)
    }

    pub(super) fn not_a_value(&mut self, loc: Loc, what: &str) -> Expr {
        self.errors.push(loc, format!("{what} gives no value"));
        Expr { kind: ExprKind::Error, loc }
    }

    /// `base ** exponent`, of which Rust reads the second star as a dereference; always a mistake.
    pub(super) fn power(&mut self, base: &syn::Expr, exponent: &syn::Expr, loc: Loc) -> Expr {
        let (base_text, exponent_text) =
            (source_text(base.to_token_stream()), source_text(exponent.to_token_stream()));
        let help = match exponent_text.as_str() {
            "2" => format!("multiply: `{base_text} * {base_text}`"),
            _ => format!("of a positive float it is `tl::exp2({exponent_text} * tl::log2({base_text}))`"),
        };
        self.expr(base);
        self.expr(exponent);
        self.errors.push_help(loc, "`**` is no operator here", help);
        Expr { kind: ExprKind::Error, loc }
    }

    /// An argument without the name that it may have.
    pub(super) fn unnamed(&mut self, arg: &syn::Expr) -> Expr {
        match arg {
            syn::Expr::Assign(named) => self.expr(&named.right),
            arg => self.expr(arg),
        }
    }

    /// `mask = m` as argument `index` of a function whose parameters are known or not.
    pub(super) fn named_argument(
        &mut self,
        named: &syn::ExprAssign,
        params: Option<&[&str]>,
        index: usize,
    ) -> Expr {
        let loc = Loc::of(named);
        let value = without_python(source_text(named.right.to_token_stream()));
        let name = source_text(named.left.to_token_stream());
        let is_surplus = params.is_some_and(|params| index >= params.len());
        let params = params.unwrap_or_default();
        let hint = match &*named.right {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => hint_method(&text.value()),
            _ => None,
        };
        let help = match params.iter().position(|param| *param == name) {
            _ if value == "None" => "leave the argument out".into(),
            None if hint.is_some() => hint.unwrap_or_default(),
            Some(_) if name == "axis" && value.starts_with('-') => {
                "write the axis in its place, counted from 0: of two axes the last is 1".into()
            }
            None => foreign_help(&name, Place::Argument).unwrap_or_else(|| match is_surplus {
                true => format!("leave it out: the parameters are ({})", params.join(", ")),
                false => format!("write `{value}`"),
            }),
            Some(own) if own != index => {
                format!("write `{value}` in its place, of ({})", params.join(", "))
            }
            Some(_) => format!("write `{value}`"),
        };
        self.errors.push_help(
            Loc::of(&named.left).to(Loc::of(named.eq_token)),
            "arguments have no names here",
            help,
        );
        if value != "None" {
            self.expr(&named.right);
        }
        Expr { kind: ExprKind::Error, loc }
    }
}

/// A value of Python as it is written in a kernel.
fn without_python(value: String) -> String {
    match value.as_str() {
        "True" => "true".into(),
        "False" => "false".into(),
        r#"float("inf")"# => "f32::INFINITY".into(),
        r#"float("-inf")"# | r#"-float("inf")"# => "f32::NEG_INFINITY".into(),
        r#"float("nan")"# => "f32::NAN".into(),
        _ => value,
    }
}

/// The method for a hint that Triton takes as text.
pub(crate) fn hint_method(text: &str) -> Option<String> {
    let method = match text {
        ".ca" | ".wb" | "evict_normal" | "ieee" => return Some("leave it out: this is the default".into()),
        ".cg" => ".cache_global()",
        ".cs" => ".streaming()",
        ".wt" => ".write_through()",
        ".cv" => ".volatile()",
        "evict_first" => ".evict_first()",
        "evict_last" => ".evict_last()",
        "acquire" | "release" | "acq_rel" | "relaxed" => &format!(".sem({text:?})"),
        "gpu" | "cta" => &format!(".scope({text:?})"),
        "sys" => return foreign_help("scope", Place::Argument),
        "tf32" | "tf32x3" | "bf16x3" | "bf16x6" => &format!(".input_precision({text:?})"),
        _ => return None,
    };
    Some(format!("write a method behind the call: `{method}`"))
}

/// Whether a call is of a function of `tl::` that does not exist, or of a module of another language.
pub(super) fn is_unknown(function: &syn::Expr) -> bool {
    let syn::Expr::Path(path) = function else { return false };
    let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    match &names[..] {
        [module, name] if module == "tl" => !ops::is_function(name),
        [owners @ .., name] if !ops::is_function(name) => {
            owners.iter().any(|owner| foreign_help(owner, Place::Owner).is_some())
        }
        _ => false,
    }
}

/// Whether an expression is a module of another language by its name, `jax.nn`.
pub(super) fn is_foreign_module(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Path(path) => {
            path.path.get_ident().is_some_and(|name| foreign_help(&name.to_string(), Place::Owner).is_some())
        }
        syn::Expr::Field(field) => is_foreign_module(&field.base),
        _ => false,
    }
}

/// Whether a method call is of an iterator's method.
pub(super) fn is_iterator(call: &syn::ExprMethodCall) -> bool {
    foreign_help(&call.method.to_string(), Place::Method).is_some()
}

/// What to write instead of an exit from an outer loop.
const NO_LABEL: &str = "`break` and `continue` mean the innermost loop: let a flag end the outer one, `while go { .. go = false; .. }`";

/// What to write instead of `if let`.
const IF_LET: &str = "`if` takes a bool; `match` compares an integer with constants";

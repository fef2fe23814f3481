//! Attributes within a function: those of lints are the outline's, those of `cfg` rustc has evaluated, and every other
//! one is refused by name.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};

use super::attribute::SETTINGS;
use super::{Place, foreign_help};
use crate::support::diagnostic::{Errors, Loc, source_text};

/// The attributes that set the level of a lint.
pub(super) const LEVELS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// The macros of the language.
const MACROS: [&str; 3] = ["fuse_kernel", "fuse_fn", "fuse_module"];

/// Attributes that other languages have and that users expect, with what to write.
const EXPECTED: [(&[&str], &str); 9] = [
    (
        &["unroll", "pragma_unroll"],
        "write `.unroll(4)` on the range: `for i in tl::range(0, n, 1).unroll(4)`",
    ),
    (
        &["num_stages", "pipeline"],
        "write `.num_stages(3)` on the range: `for i in tl::range(0, n, 1).num_stages(3)`",
    ),
    (&["num_warps", "num_ctas", "maxnreg", "unchecked", "unreported"], OPTION),
    (
        &["divisible", "divisible_by", "multiple_of", "aligned", "align"],
        "leave it out: a launch tests by itself what divides its arguments; `tl::assume(n % 16 == 0)` in the body says more",
    ),
    (
        &["contiguous", "max_contiguous"],
        "write `tl::max_contiguous(offsets, 16)` where the offsets are computed",
    ),
    (
        &["readonly", "restrict", "noalias", "const", "constant"],
        "leave it out: a `&[T]` is only read, and a `&mut [T]` overlaps no other parameter",
    ),
    (&["shared", "local", "register"], "leave it out: the compiler decides where a tile is"),
    (&["inline", "cold"], "leave it out: every call in a kernel is inlined"),
    (&["must_use"], "leave it out: a result that is not used is reported anyway"),
];

/// Reports the attributes in a function's signature and body that mean nothing there.
pub(super) fn check(function: &syn::ItemFn, errors: &mut Errors) {
    let mut reader = AttributeScan { errors, left: 0, place: AttributePlace::Elsewhere };
    function
        .attrs
        .iter()
        .filter(|attribute| is_inner(attribute))
        .for_each(|attribute| reader.refuse(attribute));
    reader.visit_signature(&function.sig);
    reader.visit_block(&function.block);
}

/// As [`check`], with the attributes before a function that kernels call: nothing of it is left for rustc to see.
pub(super) fn check_called(function: &syn::ItemFn, errors: &mut Errors) {
    let mut reader = AttributeScan { errors, left: 0, place: AttributePlace::Elsewhere };
    reader.at(
        AttributePlace::Statement,
        function.attrs.iter().filter(|attribute| !is_inner(attribute)).count(),
    );
    function.attrs.iter().for_each(|attribute| reader.visit_attribute(attribute));
    check(function, errors);
}

/// Takes the language's other marks out of the attributes of an item marked `own`, and reports them.
pub(super) fn take_marks(attributes: &mut Vec<syn::Attribute>, own: &str, errors: &mut Errors) {
    attributes.retain(|attribute| {
        let Some(mark) = MACROS.into_iter().find(|mark| has_name(attribute, mark)) else { return true };
        let message = match mark {
            _ if mark == own => format!("`{own}` is here twice"),
            "fuse_module" => "`fuse_module` goes on a module".into(),
            _ if own == "fuse_module" => format!("`{mark}` goes on a function"),
            _ => "a function is a `fuse_kernel` or a `fuse_fn`, not both".into(),
        };
        errors.push(Loc::of(attribute), message);
        false
    });
}

/// Decorators of other languages, and options without a value; settings are no attributes either.
const DECORATORS: [&str; 6] = ["launch_bounds", "autotune", "heuristics", "jit", "unchecked", "unreported"];

/// What to write instead of an attribute that is an option.
const OPTION: &str = "it is an option of the kernel: `#[fuse_kernel(num_warps = 4)]`";

/// Takes decorators and options out of the attributes of a kernel, and reports them.
pub(super) fn take_decorators(attributes: &mut Vec<syn::Attribute>, errors: &mut Errors) {
    attributes.retain(|attribute| {
        let mut names = DECORATORS.into_iter().chain(SETTINGS);
        let Some(name) = names.find(|name| has_name(attribute, name)) else { return true };
        let help = foreign_help(name, Place::Option).unwrap_or_else(|| OPTION.into());
        let path = source_text(attribute.path().to_token_stream());
        errors.push_help(Loc::of(attribute), format!("`#[{path}]` means nothing here"), help);
        false
    });
}

/// Whether an attribute is `#[name]`, by any path.
pub(super) fn has_name(attribute: &syn::Attribute, name: &str) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == name)
}

/// The attributes before an expression.
pub(super) fn outer_attributes(expr: &syn::Expr) -> Vec<syn::Attribute> {
    let parser = |input: ParseStream| {
        let attributes = input.call(syn::Attribute::parse_outer)?;
        input.parse::<TokenStream>()?;
        Ok(attributes)
    };
    parser.parse2(expr.to_token_stream()).unwrap_or_default()
}

fn is_inner(attribute: &syn::Attribute) -> bool {
    matches!(attribute.style, syn::AttrStyle::Inner(_))
}

/// What an attribute stands before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttributePlace {
    /// A statement, an item or an arm of a `match`.
    Statement,
    /// A parameter of a function.
    Param,
    /// A part of an expression, or a generic.
    Elsewhere,
}

struct AttributeScan<'e> {
    errors: &'e mut Errors,
    /// How many of the next attributes stand at `place`; all others are elsewhere.
    left: usize,
    place: AttributePlace,
}

impl AttributeScan<'_> {
    fn at(&mut self, place: AttributePlace, count: usize) {
        (self.place, self.left) = (place, count);
    }

    fn judge(&mut self, attribute: &syn::Attribute, place: AttributePlace) {
        let path = attribute.path();
        let is = |names: &[&str]| names.iter().any(|name| path.is_ident(name));
        let tool = path.segments.len() > 1
            && path.segments.first().is_some_and(|tool| tool.ident == "rustfmt" || tool.ident == "clippy");
        if is_inner(attribute) {
            self.refuse(attribute);
        } else if is(&["cfg", "cfg_attr"]) || tool {
            // rustc evaluates conditions before the function is read, and no tool changes what it means.
        } else if is(&LEVELS) && place == AttributePlace::Elsewhere {
            let help = "set it before a statement, an arm of a `match`, a parameter or the function";
            self.errors.push_help(Loc::of(attribute), "the level of a lint cannot be set here", help);
        } else if is(&["doc"]) && place != AttributePlace::Statement {
            let help = "write a comment with `//`, or document it before the function";
            self.errors.push_help(Loc::of(attribute), "documentation cannot stand here", help);
        } else if !is(&LEVELS) && !is(&["doc"]) {
            self.refuse(attribute);
        }
    }

    fn refuse(&mut self, attribute: &syn::Attribute) {
        let name = source_text(attribute.path().to_token_stream());
        let last =
            attribute.path().segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let (mark, message) = match is_inner(attribute) {
            true => ("#!", "stands inside of a function"),
            false => ("#", "means nothing in a kernel"),
        };
        let expected = EXPECTED.iter().find(|(names, _)| names.contains(&last.as_str()));
        let help = match expected {
            Some((_, help)) => help.to_string(),
            None if MACROS.contains(&last.as_str()) => {
                "leave it out: a kernel calls the functions of its body as they are".into()
            }
            None if is_inner(attribute) => format!("write it before the function: `#[{name}(..)]`"),
            None => "leave it out; `#[cfg(..)]` and levels of lints, such as `#[allow(..)]`, are known here"
                .into(),
        };
        self.errors.push_help(Loc::of(attribute), format!("`{mark}[{name}]` {message}"), help);
    }
}

impl Visit<'_> for AttributeScan<'_> {
    fn visit_attribute(&mut self, attribute: &syn::Attribute) {
        let place = if self.left > 0 { self.place } else { AttributePlace::Elsewhere };
        self.left = self.left.saturating_sub(1);
        self.judge(attribute, place);
    }

    fn visit_stmt(&mut self, statement: &syn::Stmt) {
        let count = match statement {
            syn::Stmt::Local(own) => own.attrs.len(),
            syn::Stmt::Macro(own) => own.attrs.len(),
            syn::Stmt::Expr(expr, _) => outer_attributes(expr).len(),
            syn::Stmt::Item(_) => return visit::visit_stmt(self, statement),
        };
        self.at(AttributePlace::Statement, count);
        visit::visit_stmt(self, statement);
    }

    fn visit_item_fn(&mut self, function: &syn::ItemFn) {
        self.at(AttributePlace::Statement, function.attrs.len());
        visit::visit_item_fn(self, function);
    }

    fn visit_item_const(&mut self, constant: &syn::ItemConst) {
        self.at(AttributePlace::Statement, constant.attrs.len());
        visit::visit_item_const(self, constant);
    }

    fn visit_arm(&mut self, arm: &syn::Arm) {
        self.at(AttributePlace::Statement, arm.attrs.len());
        visit::visit_arm(self, arm);
    }

    fn visit_fn_arg(&mut self, param: &syn::FnArg) {
        let count = match param {
            syn::FnArg::Receiver(own) => own.attrs.len(),
            syn::FnArg::Typed(own) => own.attrs.len(),
        };
        self.at(AttributePlace::Param, count);
        visit::visit_fn_arg(self, param);
    }
}

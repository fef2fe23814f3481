//! Optional parameters, `bias: Option<&[T]>`, and what a body does with them: `if let Some(bias) = bias` and `match`. Whether one is there is a
//! constant of the variant, so what is written for the other case is not part of it.

use std::rc::Rc;

use proc_macro2::Ident;

use super::ast::*;
use super::expr::Parser;
use super::match_lowering::arm_block;
use super::{Place, foreign_help};
use crate::support::diagnostic::{Errors, Loc};

/// The methods that patterns become: keywords, so that a body cannot call them.
pub(crate) const HAS_SOME: &str = "if";
pub(crate) const HAS_NONE: &str = "else";
pub(crate) const BOUND: &str = "let";

/// `T` of `Option<T>`.
pub(super) fn inner_type(ty: &syn::Type) -> Option<&syn::Type> {
    let syn::Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == "Option")?;
    let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.first() {
        Some(syn::GenericArgument::Type(inner)) if arguments.args.len() == 1 => Some(inner),
        _ => None,
    }
}

/// Declares the constants that say which optional parameters are there, `bias_is_some`, with both values where the attribute gives none.
pub(super) fn declare_presence(
    params: &[KernelParam],
    generics: &mut Vec<GenericParam>,
    options: &mut KernelOptions,
) {
    for param in params {
        let Some(name) = param.presence() else { continue };
        options.declare_default(&name, [false, true].map(VariantKind::Bool).into_iter(), param.loc);
        generics.push(GenericParam::Const { name, ty: ConstType::Bool });
    }
}

/// A pattern of an `Option`.
enum OptionPattern<'p> {
    /// `Some(x)` or `Some(_)`
    Some(Option<&'p syn::PatIdent>),
    None,
}

impl OptionPattern<'_> {
    fn of(pat: &syn::Pat) -> Option<OptionPattern<'_>> {
        match pat {
            syn::Pat::TupleStruct(own) if own.path.is_ident("Some") && own.elems.len() == 1 => {
                match &own.elems[0] {
                    syn::Pat::Ident(name) if name.subpat.is_none() && name.by_ref.is_none() => {
                        Some(OptionPattern::Some(Some(name)))
                    }
                    syn::Pat::Wild(_) => Some(OptionPattern::Some(None)),
                    _ => None,
                }
            }
            syn::Pat::Ident(name) if name.ident == "None" && name.subpat.is_none() => {
                Some(OptionPattern::None)
            }
            _ => None,
        }
    }

    fn condition(&self) -> &'static str {
        match self {
            OptionPattern::Some(_) => HAS_SOME,
            OptionPattern::None => HAS_NONE,
        }
    }

    /// Binds the name of the pattern in a block.
    fn bind(&self, option: &Expr, block: &mut BlockExpr) {
        let OptionPattern::Some(Some(pattern)) = self else { return };
        let loc = Loc::of(*pattern);
        let pattern = Pattern::Name { name: pattern.ident.clone(), mutable: pattern.mutability.is_some() };
        let init = Some(method(option, BOUND, loc));
        block.statements.insert(0, Stmt::Let { pattern, ty: None, init, loc });
    }
}

/// `option.name()`. An option is the name of a parameter, which costs nothing to repeat.
fn method(option: &Expr, name: &str, loc: Loc) -> Expr {
    let ExprKind::Path(path) = &option.kind else { return Expr { kind: ExprKind::Error, loc } };
    let receiver = Box::new(Expr { kind: ExprKind::Path(path.clone()), loc: option.loc });
    let name = Ident::new(name, loc.start);
    Expr { kind: ExprKind::Method { receiver, name, generics: vec![], args: vec![] }, loc }
}

/// The option that an expression names.
fn option(expr: &syn::Expr, parser: &mut Parser) -> Option<Expr> {
    let option = parser.expr(expr);
    match option.kind {
        ExprKind::Path(_) => Some(option),
        ExprKind::Error => None,
        _ => {
            let text = "this pattern takes an optional parameter, by its name";
            let help = foreign_help("Some", Place::Function).unwrap_or_default();
            parser.errors.push_help(option.loc, text, help);
            None
        }
    }
}

/// `if let Some(x) = option { then } else { otherwise }`; `None` where the pattern is another one.
pub(super) fn if_let(expr: &syn::ExprIf, condition: &syn::ExprLet, parser: &mut Parser) -> Option<ExprKind> {
    let pattern = OptionPattern::of(&condition.pat)?;
    let Some(option) = option(&condition.expr, parser) else { return Some(ExprKind::Error) };
    let mut then = parser.block(&expr.then_branch);
    pattern.bind(&option, &mut then);
    let loc = Loc::of(&condition.pat);
    let condition = Box::new(method(&option, pattern.condition(), loc));
    Some(ExprKind::If { condition, then: then.into(), otherwise: parser.otherwise(expr) })
}

/// `match option { Some(x) => .., None => .. }`; `None` where the arms are others.
pub(super) fn match_option(choice: &syn::ExprMatch, parser: &mut Parser) -> Option<Expr> {
    let [first, second] = &choice.arms[..] else { return None };
    let pattern = OptionPattern::of(&first.pat)?;
    let is_total = match (&pattern, OptionPattern::of(&second.pat)) {
        (OptionPattern::Some(_), Some(OptionPattern::None)) => true,
        (OptionPattern::None, Some(OptionPattern::Some(_))) => true,
        _ => matches!(second.pat, syn::Pat::Wild(_)),
    };
    if !is_total || first.guard.is_some() || second.guard.is_some() {
        return None;
    }
    let loc = Loc::of(choice);
    let Some(option) = option(&choice.expr, parser) else { return Some(Expr { kind: ExprKind::Error, loc }) };
    let mut block = |arm: &syn::Arm| {
        let mut block = Rc::unwrap_or_clone(arm_block(parser.arm(&arm.body)));
        if let Some(pattern) = OptionPattern::of(&arm.pat) {
            pattern.bind(&option, &mut block);
        }
        block.into()
    };
    let (then, otherwise) = (block(first), Some(block(second)));
    let condition = Box::new(method(&option, pattern.condition(), Loc::of(&first.pat)));
    Some(Expr { kind: ExprKind::If { condition, then, otherwise }, loc })
}

/// Reports a type that cannot be optional: one that is no memory.
pub(super) fn check_memory(ty: &syn::Type, errors: &mut Errors) -> bool {
    let is_memory = matches!(ty, syn::Type::Reference(_));
    if !is_memory {
        errors.push_help(
            Loc::of(ty),
            "an optional parameter is memory",
            "pass the scalar with a number that stands for none",
        );
    }
    is_memory
}

//! Reports declared values that a const parameter cannot have, with what to write instead.

use quote::ToTokens;

use crate::support::diagnostic::{Errors, Loc, source_text};

/// The expression without parentheses, and without the invisible groups around a macro's arguments.
pub(super) fn ungrouped(expr: &syn::Expr) -> &syn::Expr {
    match expr {
        syn::Expr::Group(inner) => ungrouped(&inner.expr),
        syn::Expr::Paren(inner) => ungrouped(&inner.expr),
        other => other,
    }
}

/// Reports what cannot be a value of a const parameter. Values that another generic could have are left to `typeck`,
/// which knows the types.
pub(super) fn report_invalid(expr: &syn::Expr, generic: &syn::ConstParam, errors: &mut Errors) -> bool {
    let ty = source_text(generic.ty.to_token_stream());
    let fits = |number: &syn::LitInt| number.suffix().is_empty() || number.suffix() == ty;
    let help = match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Bool(_), .. }) => return false,
        _ if literal(expr).is_some_and(fits) => return false,
        _ if generic.ty.to_token_stream().to_string() == "bool" => "write `false` or `true`".to_string(),
        syn::Expr::Range(range) => match (&range.start, &range.end) {
            (Some(low), Some(high)) => {
                let [low, high] = [low, high].map(|end| source_text(end.to_token_stream()));
                format!("list the values: `{} = [{low}, {high}]`", generic.ident)
            }
            _ => format!("list the values: `{} = [64, 128]`", generic.ident),
        },
        syn::Expr::Path(path) if is_argument(path) => {
            let name = source_text(path.to_token_stream());
            format!("an argument chooses among declared values: `{} = {name} in [64, 128]`", generic.ident)
        }
        syn::Expr::Path(_) => {
            "write the number; a constant's name stands for it where a `#[fuse_module]` holds both".into()
        }
        other => match integer(other) {
            Some(value) => format!("write the number: `{value}`"),
            None => "write the number".into(),
        },
    };
    let found = source_text(expr.to_token_stream());
    errors.push_help(Loc::of(expr), format!("`{}` is a `{ty}`, found `{found}`", generic.ident), help);
    true
}

/// Whether a name is written like an argument of the kernel.
fn is_argument(path: &syn::ExprPath) -> bool {
    path.path.get_ident().is_some_and(|name| name.to_string().starts_with(|c: char| c.is_ascii_lowercase()))
        && crate::support::dtype::DType::parse(&source_text(path.to_token_stream())).is_none()
}

/// The digits of an integer with or without a sign.
fn literal(expr: &syn::Expr) -> Option<&syn::LitInt> {
    match ungrouped(expr) {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => Some(number),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => match ungrouped(expr) {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

/// The integer value of literals and operators.
pub(crate) fn integer(expr: &syn::Expr) -> Option<i128> {
    match ungrouped(expr) {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => int.base10_parse().ok(),
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => text.value().parse().ok(),
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Float(float), .. }) => {
            let value: f64 = float.base10_parse().ok()?;
            (value.fract() == 0.0 && value.abs() < 2f64.powi(53)).then_some(value as i128)
        }
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => integer(expr)?.checked_neg(),
        syn::Expr::Cast(cast) => integer(&cast.expr),
        syn::Expr::Binary(binary) => {
            let (left, right) = (integer(&binary.left)?, integer(&binary.right)?);
            match binary.op {
                syn::BinOp::Add(_) => left.checked_add(right),
                syn::BinOp::Sub(_) => left.checked_sub(right),
                syn::BinOp::Mul(_) => left.checked_mul(right),
                syn::BinOp::Div(_) => left.checked_div(right),
                syn::BinOp::Shl(_) => left.checked_mul(1i128.checked_shl(u32::try_from(right).ok()?)?),
                syn::BinOp::Shr(_) => left.checked_shr(u32::try_from(right).ok()?),
                _ => None,
            }
        }
        _ => None,
    }
}

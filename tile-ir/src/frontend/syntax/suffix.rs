//! Suffixes of numbers: an element type, `usize` or `isize`. The lexer takes any word for one.

use syn::visit::Visit;

use crate::support::diagnostic::{Errors, Loc, list};
use crate::support::dtype::DType;

/// What C and CUDA write for a type.
const FOREIGN: [(&str, &str); 8] = [
    ("u", "u32"),
    ("l", "i64"),
    ("ll", "i64"),
    ("ul", "u64"),
    ("ull", "u64"),
    ("f", "f32"),
    ("d", "f64"),
    ("h", "f16"),
];

/// Powers of 1024 by the letters that stand for them.
const POWERS: [(&str, u32); 3] = [("k", 1), ("m", 2), ("g", 3)];

/// Reports the numbers of a function whose suffix is not one.
pub(super) fn check(function: &syn::ItemFn, errors: &mut Errors) {
    SuffixScan { errors, integers: false }.visit_item_fn(function);
}

/// Reports the numbers of an expression over integers whose suffix is no type of integers; returns whether there are any.
pub(super) fn report_in_integers(expr: &syn::Expr, errors: &mut Errors) -> bool {
    let before = errors.len();
    SuffixScan { errors, integers: true }.visit_expr(expr);
    errors.len() > before
}

/// Whether a number with this suffix is understood; [`check`] has reported it otherwise.
pub(super) fn is_known(suffix: &str, is_float: bool) -> bool {
    let integer = |dtype: DType| dtype.is_integer() && !is_float;
    suffix.is_empty()
        || matches!(suffix, "usize" | "isize") && !is_float
        || DType::parse(suffix).is_some_and(|dtype| dtype.is_float() || integer(dtype))
}

struct SuffixScan<'e> {
    errors: &'e mut Errors,
    /// Whether only integers are wanted.
    integers: bool,
}

impl SuffixScan<'_> {
    fn report(&mut self, suffix: &str, digits: &str, loc: Loc) {
        let number = DType::parse(suffix).is_some_and(|dtype| dtype != DType::Bool);
        if number || matches!(suffix, "usize" | "isize") {
            let (what, help) = match self.integers {
                true => ("an integer is needed", format!("write `{digits}`")),
                false => {
                    ("this number is no integer", format!("write `{digits}` and convert it: `as {suffix}`"))
                }
            };
            self.errors.push_help(loc, format!("`{digits}{suffix}`: {what}"), help);
            return;
        }
        if matches!(suffix, "i128" | "u128" | "f128") {
            let help = format!("element types are {}", list(DType::ALL));
            self.errors.push_help(loc, format!("`{suffix}` is not an element type"), help);
            return;
        }
        let lower = suffix.to_lowercase();
        let foreign = FOREIGN.iter().find(|(name, _)| *name == lower).filter(|_| !self.integers);
        let power = POWERS.iter().find(|(name, _)| lower.trim_end_matches(['i', 'b']) == *name);
        let scaled =
            power.and_then(|(_, power)| digits.parse::<i128>().ok()?.checked_mul(1024i128.pow(*power)));
        let wanted = match (foreign, scaled) {
            (Some((_, ty)), _) => format!("{digits}{ty}"),
            (None, Some(value)) => value.to_string(),
            (None, None) => digits.to_string(),
        };
        self.errors.push_help(
            loc,
            format!("`{suffix}` is not a suffix of a number"),
            format!("write `{wanted}`"),
        );
    }
}

impl Visit<'_> for SuffixScan<'_> {
    fn visit_lit_int(&mut self, number: &syn::LitInt) {
        let float = DType::parse(number.suffix()).is_some_and(DType::is_float);
        if !is_known(number.suffix(), false) || self.integers && float {
            self.report(number.suffix(), number.base10_digits(), Loc::of(number));
        }
    }

    fn visit_lit_float(&mut self, number: &syn::LitFloat) {
        if !self.integers && !is_known(number.suffix(), true) {
            self.report(number.suffix(), number.base10_digits(), Loc::of(number));
        }
    }
}

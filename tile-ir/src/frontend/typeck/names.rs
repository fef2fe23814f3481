//! Names: variables, and the constants of element types.

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::{Callee, Check, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::{KernelParam, ParamType, Place, TypeName, foreign_help};
use crate::ops::ConstantValue;
use crate::support::diagnostic::{Loc, list, nearest};
use crate::support::dtype::DType;

impl Check<'_> {
    pub(super) fn path(&mut self, path: &[Ident], loc: Loc) -> Operand {
        if let [name] = path {
            return self.variable(name);
        }
        if let Some(literal) = self.type_constant(path) {
            return Operand::new(Item::Literal(literal), loc);
        }
        if let Some(operand) = self.named_item(path) {
            return operand;
        }
        let text = path.iter().map(Ident::to_string).collect::<Vec<_>>().join("::");
        if let [module, name] = path
            && module == "tl"
            && crate::ops::is_function(&name.to_string())
        {
            return self.function(Callee::Language(name.to_string()), loc);
        }
        let ty = path[path.len().saturating_sub(2)].to_string();
        if self.frame().type_param(&ty) == Some(None) {
            // The type was reported as unknown, or a call decides it.
            return Operand::failed(loc);
        }
        if let [module, .., name] = path
            && module == "tl"
        {
            return self.unknown_function(&name.unraw().to_string(), None, loc);
        }
        if let Some(dtype) = self.type_named(&path[path.len().saturating_sub(2)].to_string()) {
            let all = if dtype.is_integer() { INTEGER_LIMITS } else { FLOAT_LIMITS };
            let constants = all.iter().filter(|name| limit(dtype, name).is_some());
            let known = if dtype == DType::Bool {
                "it has none".into()
            } else {
                format!("it has {}", list(constants))
            };
            let name = &path[path.len() - 1];
            return self.error_help(loc, format!("`{dtype}` has no constant `{name}`"), known);
        }
        self.unknown_name(path, text, loc)
    }

    /// Reports a name behind modules or a type that are not of a kernel; `text` is all of it as it was written.
    pub(super) fn unknown_name(&mut self, path: &[Ident], text: String, loc: Loc) -> Operand {
        let ty = path[path.len().saturating_sub(2)].to_string();
        let mut names = path.iter().rev().map(|name| name.unraw().to_string());
        // Only what is another language's is searched for more of its names: `Mode::Half` is the user's.
        let is_foreign = names.clone().skip(1).any(|name| foreign_help(&name, Place::Owner).is_some());
        let known = names.find_map(|name| {
            [Place::Variable, Place::Owner].iter().find_map(|&place| foreign_help(&name, place))
        });
        let known = known.filter(|_| is_foreign);
        let help = known.unwrap_or_else(|| {
            match ty.starts_with(|c: char| c.is_ascii_uppercase()) && self.kernel.items.is_empty() {
                true => "constants and enums beside a kernel are seen only in a `#[fuse_module]`",
                false => {
                    "constants of element types are, such as `f32::INFINITY`, `T::MAX` and `f32::consts::PI`"
                }
            }
            .into()
        });
        self.error_help(loc, format!("`{text}` is not known in a kernel"), help)
    }

    /// An element type or declared type parameter, without an error if it is neither.
    pub(super) fn type_named(&self, name: &str) -> Option<DType> {
        self.frame().type_param(name).unwrap_or_else(|| DType::parse(name))
    }

    fn variable(&mut self, name: &Ident) -> Operand {
        let loc = Loc::of(name);
        let text = name.to_string();
        match self.scopes.find(&text) {
            Some(slot) => match &self.scopes.get(slot).operand {
                Some(operand) => {
                    let operand = Operand { loc, ..operand.clone() };
                    self.reject_capture(operand)
                }
                None => {
                    let problem = format!("`{text}` may be used before it is assigned");
                    // One report is enough: an initial value fixes every use.
                    let known = self.unassigned.get(&slot).and_then(|&index| self.errors.iter().nth(index));
                    if known.is_some_and(|error| error.message == problem) {
                        return Operand::failed(loc);
                    }
                    self.unassigned.insert(slot, self.errors.len());
                    let help = format!("give it a first value where it is declared: `let mut {text} = ..;`");
                    self.error_help(loc, problem, help)
                }
            },
            None => {
                if let Some(operand) = self.named_item(std::slice::from_ref(name)) {
                    return operand;
                }
                if self.kernel.name == text {
                    return self.error(loc, "a kernel cannot refer to itself");
                }
                let is_host = |own: &KernelParam| own.name == *name && matches!(own.ty, ParamType::Host(_));
                if self.frames.len() == 1 && self.kernel.params.iter().any(is_host) {
                    let problem = format!("`{text}` is a value of the host, which conditions alone ask");
                    let help = "a number that the body needs is a parameter without `#[host]`";
                    return self.error_help(loc, problem, help);
                }
                if self.type_named(&text).is_some() {
                    let help = format!("an element type stands between angle brackets: `.to::<{text}>()`");
                    return self.error_help(loc, format!("`{text}` is a type, expected a value"), help);
                }
                if text == "tl" {
                    return self.error_help(loc, "`tl` is a module, not a value", "write `tl::` and a name");
                }
                if let Some(operand) = self.report_out_of_scope(&text, loc) {
                    return operand;
                }
                if let Some(help) = foreign_help(&name.unraw().to_string(), Place::Variable) {
                    return self.error_help(loc, format!("`{text}` is not defined"), help);
                }
                let items = self.item_scope.names();
                let known = self.scopes.names().chain(items.iter().map(String::as_str));
                match nearest(&text, known).map(str::to_string) {
                    Some(near) => self.error_help(
                        loc,
                        format!("`{text}` is not defined"),
                        format!("did you mean `{near}`?"),
                    ),
                    None if self.is_named_like_constant(&text) => self.error_help(
                        loc,
                        format!("`{text}` is not defined"),
                        "constants beside a kernel are seen only in a `#[fuse_module]`; or declare it inside the body",
                    ),
                    None => self.error(loc, format!("`{text}` is not defined")),
                }
            }
        }
    }

    /// A constant argument between angle brackets that is a name: it parses as a type.
    pub(super) fn generic_value(&mut self, written: &TypeName) -> Operand {
        let TypeName { name, loc } = written;
        if !self.scopes.is_bound(name) && self.type_named(name).is_some() {
            return self.error(*loc, format!("`{name}` is a type, expected a value"));
        }
        self.path(&[written.ident()], *loc)
    }

    /// Reports a variable that is out of scope: in a block that has ended, or around a nested function.
    fn report_out_of_scope(&mut self, name: &str, loc: Loc) -> Option<Operand> {
        let text = format!("`{name}` is not defined");
        if let Some(line) = self.ended.get(name) {
            let help = format!("it ended with its block on line {line}: declare it before the block");
            return Some(self.error_help(loc, text, help));
        }
        if self.frame().is_outer_variable(name) {
            let help =
                format!("a nested `fn` sees no variables: give it `{name}` as an argument, or use a closure");
            return Some(self.error_help(loc, text, help));
        }
        None
    }

    /// Whether a name is written like a constant, in a kernel outside of a `#[fuse_module]`.
    fn is_named_like_constant(&self, name: &str) -> bool {
        let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        name.len() > 1 && name.chars().all(upper) && self.kernel.items.is_empty()
    }

    /// `f32::INFINITY`, `T::MAX`, `f32::consts::PI`.
    fn type_constant(&self, path: &[Ident]) -> Option<Literal> {
        let names: Vec<String> = path.iter().map(Ident::to_string).collect();
        let names: Vec<&str> =
            names.iter().map(String::as_str).skip_while(|name| matches!(*name, "std" | "core")).collect();
        let dtype = |name: &str| self.type_named(name);
        let (dtype, value) = match names.as_slice() {
            [ty, "consts", name] => (dtype(ty)?, ConstantValue::Float(math_constant(name)?)),
            [ty, name] => {
                let dtype = dtype(ty)?;
                (dtype, limit(dtype, name)?)
            }
            _ => return None,
        };
        let value = LiteralValue::Number(value);
        Some(Literal { dtype: Some(dtype), ..Literal::named(value) })
    }

    /// The type after `as`. A constant may also become a `usize`, as the arithmetic of const parameters does in Rust.
    pub(super) fn cast_type(&mut self, operand: &Operand, ty: &TypeName) -> Option<CastTo> {
        if matches!(operand.item, Item::Literal(_)) && matches!(ty.name.as_str(), "usize" | "isize") {
            return Some(CastTo::Constant);
        }
        self.resolve_type(ty).map(CastTo::Type)
    }
}

pub(super) enum CastTo {
    Type(DType),
    Constant,
}

const INTEGER_LIMITS: &[&str] = &["MAX", "MIN", "BITS"];
const FLOAT_LIMITS: &[&str] = &["INFINITY", "NEG_INFINITY", "NAN", "MAX", "MIN", "MIN_POSITIVE", "EPSILON"];

/// Associated constants of element types, as Rust and the `half` crate name them.
fn limit(dtype: DType, name: &str) -> Option<ConstantValue> {
    if dtype.is_integer() {
        let (low, high) = dtype.range();
        return match name {
            "MAX" => Some(ConstantValue::Int(high)),
            "MIN" => Some(ConstantValue::Int(low)),
            "BITS" => Some(ConstantValue::Int(i128::from(dtype.bytes() * 8))),
            _ => None,
        };
    }
    let (max, min_positive, epsilon) = match dtype {
        DType::F16 => {
            (half::f16::MAX.to_f64(), half::f16::MIN_POSITIVE.to_f64(), half::f16::EPSILON.to_f64())
        }
        DType::BF16 => {
            (half::bf16::MAX.to_f64(), half::bf16::MIN_POSITIVE.to_f64(), half::bf16::EPSILON.to_f64())
        }
        DType::F8E4M3 => (448.0, 2f64.powi(-6), 0.125),
        DType::F8E5M2 => (57344.0, 2f64.powi(-14), 0.25),
        DType::F32 => (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), f64::from(f32::EPSILON)),
        DType::F64 => (f64::MAX, f64::MIN_POSITIVE, f64::EPSILON),
        _ => return None,
    };
    let value = match name {
        "INFINITY" | "NEG_INFINITY" if dtype == DType::F8E4M3 => return None,
        "INFINITY" => f64::INFINITY,
        "NEG_INFINITY" => f64::NEG_INFINITY,
        "NAN" => f64::NAN,
        "MAX" => max,
        "MIN" => -max,
        "MIN_POSITIVE" => min_positive,
        "EPSILON" => epsilon,
        _ => return None,
    };
    Some(ConstantValue::Float(value))
}

/// The largest number of a type.
pub(super) fn largest(dtype: DType) -> f64 {
    match limit(dtype, "MAX") {
        Some(ConstantValue::Float(value)) => value,
        Some(ConstantValue::Int(value)) => value as f64,
        None => 1.0,
    }
}

fn math_constant(name: &str) -> Option<f64> {
    use std::f64::consts::*;
    Some(match name {
        "PI" => PI,
        "TAU" => TAU,
        "E" => E,
        "LN_2" => LN_2,
        "LN_10" => LN_10,
        "LOG2_E" => LOG2_E,
        "LOG2_10" => LOG2_10,
        "LOG10_E" => LOG10_E,
        "LOG10_2" => LOG10_2,
        "SQRT_2" => SQRT_2,
        "FRAC_1_SQRT_2" => FRAC_1_SQRT_2,
        "FRAC_2_SQRT_PI" => FRAC_2_SQRT_PI,
        "FRAC_1_PI" => FRAC_1_PI,
        "FRAC_2_PI" => FRAC_2_PI,
        "FRAC_PI_2" => FRAC_PI_2,
        "FRAC_PI_4" => FRAC_PI_4,
        _ => return None,
    })
}

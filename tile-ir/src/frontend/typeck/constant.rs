//! Build-time values: constants, shapes, axes; and conversions of literals.

use super::{Call, Check, InexactDivision, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::GenericArg;
use crate::ir::{Shape, shape_problem};
use crate::ops::ConstantValue;
use crate::support::diagnostic::{Diagnostic, Loc};
use crate::support::dtype::DType;

impl Check<'_> {
    /// An integer known at build; `what` names it in the message otherwise.
    pub fn constant(&mut self, operand: &Operand, what: &str) -> Option<i128> {
        match operand.item {
            Item::Literal(Literal { value: LiteralValue::Number(ConstantValue::Int(value)), .. }) => {
                Some(value)
            }
            Item::Failed => None,
            _ => {
                let text = format!("{what} is a constant integer, found {}", self.describe(operand));
                let help = match operand.item {
                    Item::Literal(Literal { value: LiteralValue::Bool(_), .. }) if what == "an axis" => {
                        "the axis stands before it, counted from 0"
                    }
                    _ => "constants are literals and const parameters of the kernel",
                };
                self.error_help(operand.loc, text, as_list(operand).unwrap_or_else(|| help.into()));
                None
            }
        }
    }

    /// Whether a constant that becomes a float is made of a division that was rounded, which is reported.
    pub(super) fn report_division(&mut self, literal: &Literal, dtype: DType, loc: Loc) -> bool {
        let Some(division) = literal.division.filter(|_| dtype.is_float()) else { return false };
        let InexactDivision { dividend, divisor, quotient, digits, loc: operator } = division;
        let message = format!("`{dividend} / {divisor}` is an integer division: {quotient}");
        let help = match digits {
            true => format!(
                "write `{dividend}.0 / {divisor}.0`; `({dividend} / {divisor}) as i32` is the integer"
            ),
            false => "divide floats: `a as f32 / b as f32`; `(a / b) as i32` is the integer".into(),
        };
        let line = loc.line();
        let note = (line != operator.line()).then(|| format!("it becomes {dtype} on line {line}"));
        self.report(Diagnostic { loc: operator, message, help: Some(help), note });
        true
    }

    /// A bool known at build.
    pub fn flag(&mut self, operand: &Operand, what: &str) -> Option<bool> {
        match operand.item {
            Item::Literal(Literal { value: LiteralValue::Bool(value), .. }) => Some(value),
            Item::Failed => None,
            _ => {
                let text = format!("{what} is a constant bool, found {}", self.describe(operand));
                self.error_help(operand.loc, text, "write `true` or `false`");
                None
            }
        }
    }

    /// A list of integers known at build.
    pub fn constants(&mut self, operand: &Operand, what: &str) -> Option<Vec<i128>> {
        match &operand.item {
            Item::List(items) => items.iter().map(|item| self.constant(item, what)).collect(),
            Item::Failed => None,
            _ => {
                let text = format!("{what} is a list such as `[0, 1]`, found {}", self.describe(operand));
                self.error_help(
                    operand.loc,
                    text,
                    as_list(operand).unwrap_or_else(|| "write `[1, 0]`".into()),
                );
                None
            }
        }
    }

    /// A shape, written as a list of constants.
    pub fn shape(&mut self, operand: &Operand) -> Option<Shape> {
        match &operand.item {
            Item::List(items) => {
                let mut extents = vec![];
                let mut problem = false;
                for item in items {
                    match self.constant(item, "a tile extent") {
                        Some(extent) => {
                            if let Some(text) = shape_problem(&[extent]) {
                                self.error(item.loc, text);
                                problem = true;
                            }
                            extents.push(extent);
                        }
                        None => problem = true,
                    }
                }
                if problem { None } else { self.legal_shape(&extents, operand.loc) }
            }
            Item::Failed => None,
            _ => {
                let text = format!("a shape is a list such as `[M, N]`, found {}", self.describe(operand));
                let list = operand.loc.word().map(|word| format!("write `[{word}]`"));
                let help =
                    as_list(operand).or(list).unwrap_or_else(|| "write its extents between brackets".into());
                self.error_help(operand.loc, text, help);
                None
            }
        }
    }

    /// The shape, if it is one that a tile may have; reports it otherwise.
    pub fn legal(&mut self, shape: Shape, loc: Loc) -> Option<Shape> {
        let extents: Vec<i128> = shape.iter().map(|&extent| i128::from(extent)).collect();
        self.legal_shape(&extents, loc)
    }

    pub fn legal_shape(&mut self, extents: &[i128], loc: Loc) -> Option<Shape> {
        match shape_problem(extents) {
            Some(problem) => {
                self.error(loc, problem);
                None
            }
            None => Some(Shape::new(extents.iter().map(|&extent| extent as u32).collect::<Vec<_>>())),
        }
    }

    /// A constant axis of a tile with `rank` axes.
    pub fn axis(&mut self, operand: &Operand, rank: usize) -> Option<usize> {
        let axis = self.constant(operand, "an axis")?;
        if (0..rank as i128).contains(&axis) {
            return Some(axis as usize);
        }
        let axes = crate::support::diagnostic::list(0..rank);
        let text = match rank {
            0 => format!("axis {axis} is out of range: a scalar has no axes"),
            1 => format!("axis {axis} is out of range: the only axis here is 0"),
            _ => format!("axis {axis} is out of range: the axes here are {axes}"),
        };
        let from_end = rank as i128 + axis;
        match axis {
            -1 if from_end >= 0 => self.error_help(operand.loc, text, format!("the last is {from_end}")),
            ..-1 if from_end >= 0 => {
                self.error_help(operand.loc, text, format!("axes count from the first: write `{from_end}`"))
            }
            0.. if rank > 1 => {
                let help = format!("axes count from 0: the last is {}", rank - 1);
                self.error_help(operand.loc, text, help)
            }
            _ => self.error(operand.loc, text),
        };
        None
    }

    /// The axis that a call names, which it may leave out where there is one.
    pub fn axis_or_only(&mut self, call: &Call, operand: Option<&Operand>, rank: usize) -> Option<usize> {
        match operand {
            Some(operand) => self.axis(operand, rank),
            None if rank == 1 => Some(0),
            None => {
                let text = format!("{} of a tile of {rank} axes needs an axis", call.what);
                self.error(call.name_loc, text);
                None
            }
        }
    }

    /// The element type between `::<` and `>`, if one is given.
    pub fn generic_type(&mut self, generics: &[GenericArg]) -> Option<DType> {
        match generics.first() {
            Some(GenericArg::Type(ty)) => self.resolve_type(ty),
            _ => None,
        }
    }

    /// The element types between `::<` and `>`: one, or those of a tuple. Fails where one is not known.
    pub fn generic_types(&mut self, generics: &[GenericArg]) -> Option<Vec<DType>> {
        match generics.first() {
            Some(GenericArg::Tuple(types, _)) => types.iter().map(|ty| self.resolve_type(ty)).collect(),
            _ => Some(vec![self.generic_type(generics)?]),
        }
    }
}

impl LiteralValue {
    pub(super) fn describe(self) -> String {
        match self {
            LiteralValue::Number(ConstantValue::Int(value)) => format!("the integer {value}"),
            LiteralValue::Number(ConstantValue::Float(value)) => format!("the float {value:?}"),
            LiteralValue::Bool(value) => format!("the bool {value}"),
        }
    }

    pub(super) fn describe_value(self) -> String {
        match self {
            LiteralValue::Number(number) => number.to_string(),
            LiteralValue::Bool(value) => value.to_string(),
        }
    }
}

/// What to write in place of a tuple where a list is wanted.
fn as_list(operand: &Operand) -> Option<String> {
    let Item::Tuple(parts) = &operand.item else { return None };
    let words: Option<Vec<String>> = parts.iter().map(|part| part.loc.word()).collect();
    Some(match words {
        Some(words) => format!("a list stands between brackets: `[{}]`", words.join(", ")),
        None => "a list stands between brackets: `[0, 1]`".into(),
    })
}

impl Literal {
    /// The type it has when nothing else decides.
    pub(crate) fn default_type(&self) -> DType {
        self.dtype.unwrap_or(match self.value {
            LiteralValue::Number(ConstantValue::Int(value)) if DType::I32.wrap(value) == value => DType::I32,
            LiteralValue::Number(ConstantValue::Int(_)) => DType::I64,
            LiteralValue::Number(ConstantValue::Float(_)) => DType::F32,
            LiteralValue::Bool(_) => DType::Bool,
        })
    }

    /// Whether a literal without a type may take this one.
    pub(super) fn can_be(&self, dtype: DType) -> bool {
        self.dtype.is_none()
            && match self.value {
                LiteralValue::Bool(_) => dtype == DType::Bool,
                LiteralValue::Number(ConstantValue::Int(_)) => {
                    dtype.is_integer() || dtype.is_float() && self.digits
                }
                LiteralValue::Number(ConstantValue::Float(_)) => dtype.is_float(),
            }
    }

    pub(super) fn fits(&self, dtype: DType) -> bool {
        match self.value {
            LiteralValue::Number(ConstantValue::Int(value)) => self.bits(value, dtype).is_some(),
            LiteralValue::Number(ConstantValue::Float(_)) | LiteralValue::Bool(_) => true,
        }
    }

    /// The integer `value` of this literal in an integer type, if it fits.
    pub(super) fn bits(&self, value: i128, dtype: DType) -> Option<i128> {
        let (low, high) = dtype.range();
        let other = self.complement && low == 0 && (low..=high).contains(&!value);
        (other || (low..=high).contains(&value)).then(|| dtype.wrap(value))
    }

    /// As [`Cast`] converts values.
    pub(super) fn convert(self, dtype: DType) -> Literal {
        let value = match self.value {
            LiteralValue::Bool(value) if dtype == DType::Bool => LiteralValue::Bool(value),
            LiteralValue::Bool(value) if dtype.is_integer() => {
                LiteralValue::Number(ConstantValue::Int(i128::from(value)))
            }
            LiteralValue::Bool(value) => {
                LiteralValue::Number(ConstantValue::Float(f64::from(u8::from(value))))
            }
            LiteralValue::Number(ConstantValue::Int(value)) if dtype == DType::Bool => {
                LiteralValue::Bool(value != 0)
            }
            LiteralValue::Number(ConstantValue::Float(value)) if dtype == DType::Bool => {
                LiteralValue::Bool(value != 0.0)
            }
            LiteralValue::Number(ConstantValue::Int(value)) if dtype.is_integer() => {
                LiteralValue::Number(ConstantValue::Int(dtype.wrap(value)))
            }
            LiteralValue::Number(ConstantValue::Int(value)) => {
                LiteralValue::Number(ConstantValue::Float(value as f64))
            }
            LiteralValue::Number(ConstantValue::Float(value)) if dtype.is_integer() => {
                let (low, high) = dtype.range();
                LiteralValue::Number(ConstantValue::Int((value as i128).clamp(low, high)))
            }
            // Digits that do not fit are a mistake; a number of another type becomes infinite as it does at run time.
            LiteralValue::Number(ConstantValue::Float(value))
                if self.dtype.is_some() && dtype.overflows(value) =>
            {
                LiteralValue::Number(ConstantValue::Float(f64::INFINITY.copysign(value)))
            }
            LiteralValue::Number(ConstantValue::Float(value)) => {
                LiteralValue::Number(ConstantValue::Float(value))
            }
        };
        Literal { value, dtype: Some(dtype), digits: self.digits, complement: false, division: None }
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        match self.value {
            LiteralValue::Number(ConstantValue::Float(value)) => Some(value),
            LiteralValue::Number(ConstantValue::Int(value)) if self.digits => Some(value as f64),
            LiteralValue::Number(ConstantValue::Int(_)) => None,
            LiteralValue::Bool(value) => Some(f64::from(u8::from(value))),
        }
    }

    pub(super) fn as_int(&self) -> Option<i128> {
        match self.value {
            LiteralValue::Number(ConstantValue::Int(value)) => Some(value),
            LiteralValue::Number(ConstantValue::Float(_)) => None,
            LiteralValue::Bool(value) => Some(i128::from(value)),
        }
    }
}

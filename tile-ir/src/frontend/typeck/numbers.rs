//! Reports numbers that are not of the type that is wanted, with the number or the type to write.

use super::{Check, Item, Literal, LiteralValue, Operand};
use crate::ops::ConstantValue;
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

impl Check<'_> {
    /// Reports an integer that a type does not hold.
    pub(super) fn report_too_large(&mut self, value: i128, dtype: DType, loc: Loc) -> Operand {
        let (low, high) = dtype.range();
        let text = format!("{value} does not fit in {dtype}, which holds {low} to {high}");
        match holder(value) {
            Some(wide) => {
                let help = format!("`{wide}` holds it: `.to::<{wide}>()` converts what stands beside it");
                self.error_help(loc, text, help)
            }
            None => self.error(loc, text),
        }
    }

    /// A number with the suffix of one type as it is written beside an operand of another that holds it.
    pub(super) fn without_suffix(&self, operand: &Operand, operands: &[&Operand]) -> Option<String> {
        let Item::Literal(Literal {
            value: LiteralValue::Number(number),
            digits: true,
            dtype: Some(own),
            ..
        }) = operand.item
        else {
            return None;
        };
        let beside = operands.iter().find_map(|operand| match operand.item {
            Item::Value(value) => Some(self.ty(value).dtype),
            _ => None,
        })?;
        let written = operand.loc.word()?;
        let digits = written.strip_suffix(own.name())?.trim_end_matches('_');
        match number {
            _ if own.is_float() && !beside.is_float() => None,
            ConstantValue::Int(value) if beside.is_integer() => {
                (beside.wrap(value) == value).then(|| digits.into())
            }
            _ if beside.is_float() && !digits.contains(['.', 'e']) => Some(format!("{digits}.0")),
            _ => Some(digits.into()),
        }
    }

    /// Whether digits without a type are converted to integers that do not hold them, which is reported.
    pub(super) fn report_bare(&mut self, literal: &Literal, dtype: DType, loc: Loc) -> bool {
        let LiteralValue::Number(ConstantValue::Int(value)) = literal.value else { return false };
        let bare = literal.dtype.is_none() && literal.digits && dtype.is_integer();
        if !bare || literal.bits(value, dtype).is_some() {
            return false;
        }
        let (low, high) = dtype.range();
        let wide = holder(value).unwrap_or(DType::U64);
        let help = format!("its low bits are `{value}{wide} as {dtype}`");
        self.error_help(loc, format!("{value} does not fit in {dtype}, which holds {low} to {high}"), help);
        true
    }
}

/// The type that holds an integer, of those that integers have first.
fn holder(value: i128) -> Option<DType> {
    [DType::I32, DType::I64, DType::U64].into_iter().find(|wide| wide.wrap(value) == value)
}

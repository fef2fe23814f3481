//! Operators and the rows of the lanewise table, on constants and on tiles.

use super::{Check, ErrorLoc, InexactDivision, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::{BinaryOp, Expr, UnaryOp};
use crate::ir::{Type, Value};
use crate::ops::ConstantValue;
use crate::ops::scalar::{self, ArithKind, Scalar, ScalarOp, TypeRule};
use crate::support::diagnostic::Loc;
use crate::support::dtype::{Class, DType};

impl Check<'_> {
    pub(super) fn unary(&mut self, op: UnaryOp, operand: &Expr, loc: Loc) -> Operand {
        let operand = self.expr(operand);
        let symbol = format!("`{}`", op.symbol());
        let mut result = self.scalar(scalar::unary(op), &symbol, loc, std::slice::from_ref(&operand));
        if let (UnaryOp::Not, Item::Literal(literal)) = (op, &mut result.item) {
            literal.complement = literal.dtype.is_none();
        }
        Operand { loc, ..result }
    }

    /// `lhs op rhs`; mistakes are reported on the operator.
    pub(super) fn binary(&mut self, op: BinaryOp, op_loc: Loc, lhs: &Operand, rhs: &Operand) -> Operand {
        if let Some(result) = self.pointer_arithmetic(op, op_loc, lhs, rhs) {
            return result;
        }
        let symbol = format!("`{}`", op.symbol());
        self.scalar(scalar::binary(op), &symbol, op_loc, &[lhs.clone(), rhs.clone()])
    }

    pub(super) fn logic(
        &mut self,
        and: bool,
        op_loc: Loc,
        lhs: &Operand,
        rhs: &Operand,
        loc: Loc,
    ) -> Operand {
        let symbol = if and { "&&" } else { "||" };
        let mut good = true;
        for operand in [lhs, rhs] {
            let found = self.describe(operand);
            match &operand.item {
                Item::Value(value) if *self.ty(*value) == Type::scalar(DType::Bool) => {}
                Item::Literal(Literal { value: LiteralValue::Bool(_), .. }) => {}
                Item::Failed => good = false,
                Item::Value(value) if self.ty(*value).dtype == DType::Bool => {
                    let single = if and { "&" } else { "|" };
                    let help = format!("combine tiles of bools with `{single}`");
                    self.error_help(op_loc, format!("`{symbol}` takes scalars, found {found}"), help);
                    good = false;
                }
                Item::Slice(_) | Item::Pointer(_) | Item::View(_) => {
                    self.unexpected(operand, format!("`{symbol}` takes bools, found {found}"));
                    good = false;
                }
                _ => {
                    self.error_help(
                        operand.loc,
                        format!("`{symbol}` takes bools, found {found}"),
                        "compare: `x != 0`",
                    );
                    good = false;
                }
            }
        }
        if !good {
            return Operand::failed(loc);
        }
        let op = if and { BinaryOp::And } else { BinaryOp::Or };
        let flags = |operand: &Operand| match operand.item {
            Item::Literal(Literal { value: LiteralValue::Bool(value), .. }) => Some(value),
            _ => None,
        };
        // A constant operand decides without the other one, so that `CAUSAL && ..` is a constant where it is false.
        match (flags(lhs), flags(rhs)) {
            (Some(value), _) if value == and => Operand { loc, ..rhs.clone() },
            (_, Some(value)) if value == and => Operand { loc, ..lhs.clone() },
            (Some(_), _) => Operand { loc, ..lhs.clone() },
            (_, Some(_)) => Operand { loc, ..rhs.clone() },
            (None, None) => {
                let result = self.scalar(
                    scalar::binary(op),
                    &format!("`{symbol}`"),
                    op_loc,
                    &[lhs.clone(), rhs.clone()],
                );
                Operand { loc, ..result }
            }
        }
    }

    /// Applies a row of the lanewise table; mistakes are reported on `loc`.
    pub(super) fn scalar(
        &mut self,
        op: &'static ScalarOp,
        what: &str,
        loc: Loc,
        args: &[Operand],
    ) -> Operand {
        if args.iter().any(|arg| matches!(arg.item, Item::Failed)) {
            return Operand::failed(loc);
        }
        if let Some(folded) = self.const_fold(op, what, loc, args) {
            return folded;
        }
        let typed: Vec<&Operand> = args.iter().skip(usize::from(op.rule == TypeRule::Select)).collect();
        if self.report_class(op, what, &typed) {
            return Operand::failed(loc);
        }
        let error_loc = if op.is_operator() { ErrorLoc::Here(loc) } else { ErrorLoc::Operand };
        let Some(dtype) = self.common_type(what, error_loc, &typed) else { return Operand::failed(loc) };
        if !op.class.contains(dtype) {
            return self.error(loc, format!("{what} takes {}, found {dtype}", op.class.describe()));
        }
        if self.report_amount(op, dtype, args) {
            return Operand::failed(loc);
        }
        let mut values: Vec<Value> = vec![];
        for (i, arg) in args.iter().enumerate() {
            let wanted = if op.rule == TypeRule::Select && i == 0 { DType::Bool } else { dtype };
            let role = if wanted == dtype {
                format!("an operand of {what}")
            } else {
                format!("the condition of {what}")
            };
            match self.value_as(arg, wanted, &role) {
                Some(value) => values.push(value),
                None => return Operand::failed(loc),
            }
        }
        let Some(shape) = self.common_shape(what, loc, &mut values) else { return Operand::failed(loc) };
        if op.in_language {
            return self.call_library_row(op, what, loc, &values);
        }
        let result = if op.rule == TypeRule::Compare { DType::Bool } else { dtype };
        self.emit(Scalar::new(op, values), Type::tile(result, shape), loc)
    }

    /// Whether an operand is of an element type that the operation does not take, which is reported.
    fn report_class(&mut self, op: &ScalarOp, what: &str, operands: &[&Operand]) -> bool {
        for operand in operands {
            let (dtype, digits) = match &operand.item {
                Item::Value(value) => (self.ty(*value).dtype, None),
                Item::Literal(literal) => {
                    // An integer literal becomes a float if the other operand is one.
                    let bare = literal.dtype.is_none() && literal.digits && operands.len() > 1;
                    if bare {
                        continue;
                    }
                    (literal.default_type(), literal.dtype.is_none().then_some(literal))
                }
                _ => continue,
            };
            if op.class.contains(dtype) {
                continue;
            }
            let text = format!("{what} takes {}, found {dtype}", op.class.describe());
            let help = match (digits.map(|literal| literal.value), class_help(op, dtype)) {
                _ if dtype.is_float() && matches!(op.arith, ArithKind::Shl | ArithKind::Shr) => {
                    Some("multiply or divide by a power of two: `x * 4.0`".into())
                }
                _ if what == "`^`" && dtype.is_float() => {
                    power_help(operands).or_else(|| class_help(op, dtype))
                }
                _ if what == "`*`" && dtype == DType::Bool => {
                    Some("where the bool is false a product is 0: `tl::select(mask, x, 0.0)`".into())
                }
                _ if what == "`-`" && dtype == DType::Bool => {
                    let mask = operand.loc.word().unwrap_or_else(|| "mask".into());
                    Some(format!("the opposite of a bool is `!{mask}`"))
                }
                _ if what == "`-`" && dtype.is_integer() && !dtype.is_signed() => {
                    Some(negative_help(operand, dtype))
                }
                (Some(LiteralValue::Number(ConstantValue::Int(value))), Some(_))
                    if op.class == Class::Float =>
                {
                    Some(format!("write a float: `{value}.0`"))
                }
                (_, help) => help,
            };
            match help {
                Some(help) => self.error_help(operand.loc, text, help),
                None => self.error(operand.loc, text),
            };
            return true;
        }
        false
    }

    /// Whether a constant divides by zero or shifts by more bits than there are, which is reported.
    fn report_amount(&mut self, op: &ScalarOp, dtype: DType, args: &[Operand]) -> bool {
        let Some((amount, loc)) = args.last().and_then(|arg| arg.as_integer().map(|value| (value, arg.loc)))
        else {
            return false;
        };
        if !dtype.is_integer() {
            return false;
        }
        let bits = i128::from(dtype.bytes() * 8);
        if op.divides && amount == 0 {
            self.error(loc, "this divides by zero");
            return true;
        }
        if matches!(op.arith, ArithKind::Shl | ArithKind::Shr) && !(0..bits).contains(&amount) {
            let text = format!("a shift of {dtype} is by 0 to {}, found {amount}", bits - 1);
            self.error(loc, text);
            return true;
        }
        false
    }

    /// The value of an operation on constants.
    pub(super) fn const_fold(
        &mut self,
        op: &'static ScalarOp,
        what: &str,
        loc: Loc,
        args: &[Operand],
    ) -> Option<Operand> {
        let literals: Vec<Literal> = args
            .iter()
            .map(|arg| match arg.item {
                Item::Literal(literal) => Some(literal),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let typed = &literals[usize::from(op.rule == TypeRule::Select)..];
        let dtype = {
            let operands: Vec<&Operand> =
                args.iter().skip(usize::from(op.rule == TypeRule::Select)).collect();
            let error_loc = if op.is_operator() { ErrorLoc::Here(loc) } else { ErrorLoc::Operand };
            let Some(dtype) = self.common_type(what, error_loc, &operands) else {
                return Some(Operand::failed(loc));
            };
            dtype
        };
        let known = typed.iter().find_map(|literal| literal.dtype);
        let any_bool = typed.iter().any(|literal| matches!(literal.value, LiteralValue::Bool(_)));
        if !op.class.contains(dtype) || any_bool != (dtype == DType::Bool) {
            return None;
        }
        if literals.iter().any(|literal| self.report_division(literal, dtype, loc)) {
            return Some(Operand::failed(loc));
        }
        let value = if dtype.is_float() {
            let inputs: Option<Vec<f64>> = literals.iter().map(|literal| literal.as_float()).collect();
            let result = (op.float?.function)(&inputs?);
            if op.rule == TypeRule::Compare {
                LiteralValue::Bool(result != 0.0)
            } else {
                LiteralValue::Number(ConstantValue::Float(result))
            }
        } else {
            let inputs: Vec<i128> = literals.iter().map(|literal| literal.as_int()).collect::<Option<_>>()?;
            if self.report_amount(op, known.unwrap_or(DType::I64), args) {
                return Some(Operand::failed(loc));
            }
            if let Some(dtype) = known
                && let Some(lost) = overflow(op, &inputs, dtype)
            {
                let (low, high) = dtype.range();
                let text =
                    format!("this overflows: {lost} does not fit in {dtype}, which holds {low} to {high}");
                return Some(self.error(loc, text));
            }
            // A constant without a type of its own: a bool has one value of `!`, an integer has all of its bits.
            let computed = if dtype == DType::Bool { dtype } else { known.unwrap_or(DType::I64) };
            let result = (op.int?.function)(&inputs, computed);
            if known.is_none() && !(DType::I64.range().0..=DType::U64.range().1).contains(&result) {
                return Some(self.error(loc, "this constant does not fit in 64 bits"));
            }
            if op.rule == TypeRule::Compare || dtype == DType::Bool {
                LiteralValue::Bool(result != 0)
            } else {
                LiteralValue::Number(ConstantValue::Int(known.map_or(result, |dtype| dtype.wrap(result))))
            }
        };
        let digits = literals.iter().all(|literal| literal.digits);
        let dtype = if op.rule == TypeRule::Compare { None } else { known };
        let complement = literals.iter().any(|literal| literal.complement);
        let division = match value {
            LiteralValue::Number(ConstantValue::Int(_)) => inexact_division(op, loc, &literals),
            LiteralValue::Number(ConstantValue::Float(_)) | LiteralValue::Bool(_) => None,
        };
        Some(Operand::new(Item::Literal(Literal { value, dtype, digits, complement, division }), loc))
    }
}

/// The division with a remainder that an operation on integers is, or that one of its operands is made of.
fn inexact_division(op: &ScalarOp, loc: Loc, operands: &[Literal]) -> Option<InexactDivision> {
    if matches!(op.arith, ArithKind::Div)
        && let [dividend, divisor] = operands
    {
        let digits = dividend.digits && divisor.digits;
        let (dividend, divisor) = (dividend.as_int()?, divisor.as_int()?);
        let (rest, quotient) = (dividend.checked_rem(divisor)?, dividend.checked_div(divisor)?);
        if rest != 0 {
            return Some(InexactDivision { dividend, divisor, quotient, digits, loc });
        }
    }
    operands.iter().find_map(|literal| literal.division)
}

/// The result of an operation on constants that overflows its type, where Rust would reject that.
fn overflow(op: &ScalarOp, inputs: &[i128], dtype: DType) -> Option<String> {
    let exact = match op.arith {
        ArithKind::Add => inputs[0].checked_add(inputs[1]),
        ArithKind::Sub => inputs[0].checked_sub(inputs[1]),
        ArithKind::Mul => inputs[0].checked_mul(inputs[1]),
        ArithKind::Div => inputs[0].checked_div(inputs[1]),
        ArithKind::Neg => inputs[0].checked_neg(),
        _ => return None,
    };
    match exact {
        Some(value) => {
            let (low, high) = dtype.range();
            (!(low..=high).contains(&value)).then(|| value.to_string())
        }
        None => Some("the result".into()),
    }
}

/// What to write instead of the negative of an unsigned integer.
fn negative_help(operand: &Operand, dtype: DType) -> String {
    match (operand.as_integer(), operand.loc.word()) {
        (Some(1), _) => {
            format!("all bits set is `{dtype}::MAX`; a negative number is of a signed type: `-1`")
        }
        (Some(value), _) => format!("a negative number is of a signed type: `-{value}`"),
        (None, Some(word)) => {
            format!("subtract: `0 - {word}`, which wraps; or convert it: `-{word}.to::<i32>()`")
        }
        (None, None) => "convert it: `.to::<i32>()`".into(),
    }
}

/// What to write instead of `^` between a float and an integer literal, which means a power.
fn power_help(operands: &[&Operand]) -> Option<String> {
    let [base, exponent] = operands else { return None };
    let name = |operand: &Operand| operand.loc.word().unwrap_or_else(|| "x".into());
    let base_name = name(base);
    let power = match (base.as_integer(), exponent.as_integer()) {
        (None, Some(2)) => format!("a square is `{base_name} * {base_name}`"),
        (None, Some(3)) => format!("a cube is `{base_name} * {base_name} * {base_name}`"),
        (None, Some(power)) => {
            format!("a power of a positive float is `tl::exp2({power}.0 * tl::log2({base_name}))`")
        }
        (Some(2), None) => format!("a power of two is `tl::exp2({})`", name(exponent)),
        _ => return None,
    };
    Some(format!("`^` is exclusive or: {power}"))
}

/// What to do about an element type that an operation does not take.
fn class_help(op: &ScalarOp, dtype: DType) -> Option<String> {
    match op.class {
        _ if dtype.is_f8() => Some("8-bit floats are stored and converted: `.to::<f32>()`".into()),
        Class::Float if !dtype.is_float() => Some("convert it: `.to::<f32>()`".into()),
        Class::Bits if dtype.is_float() => {
            Some("convert it, `.to::<i32>()`, or take its bits, `.bitcast::<i32>()`".into())
        }
        Class::Integer if dtype.is_float() => Some("convert it: `.to::<i32>()`".into()),
        Class::Integer | Class::Signed | Class::Number => Some("convert it: `.to::<i32>()`".into()),
        _ => None,
    }
}

//! Expressions.

use proc_macro2::Ident;

use super::{Call, Check, Item, Literal, LiteralValue, Operand, Pointer};
use crate::diagnostic::{Loc, count};
use crate::dtype::DType;
use crate::ops::scalar::{self, Rule, Scalar, ScalarOp};
use crate::ops::{self, Generic, Number, Parameter};
use crate::syntax::{BinaryOp, Expr, ExprKind, GenericArg, UnaryOp};
use crate::tile::{Type, Value};

impl Check<'_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Operand {
        let loc = expr.loc;
        match &expr.kind {
            ExprKind::Int { value, suffix } => self.number(Number::Int(*value), suffix.as_deref(), loc),
            ExprKind::Float { value, suffix } => self.number(Number::Float(*value), suffix.as_deref(), loc),
            ExprKind::Bool(value) => {
                self.wrap(Item::Literal(Literal::named(LiteralValue::Bool(*value))), loc)
            }
            ExprKind::Text(text) => self.wrap(Item::Text(text.clone()), loc),
            ExprKind::Path(path) => self.path(path, loc),
            ExprKind::Unary { op, operand } => self.unary(*op, operand, loc),
            ExprKind::Binary { op, op_loc, lhs, rhs } => {
                let (lhs, rhs) = (self.expr(lhs), self.expr(rhs));
                let result = self.binary(*op, *op_loc, &lhs, &rhs);
                Operand { loc, ..result }
            }
            ExprKind::Logic { and, op_loc, lhs, rhs } => {
                let (lhs, rhs) = (self.expr(lhs), self.expr(rhs));
                self.logic(*and, *op_loc, &lhs, &rhs, loc)
            }
            ExprKind::Cast { operand, ty } => {
                let operand = self.expr(operand);
                match self.cast_type(&operand, ty) {
                    Some(CastTo::Type(dtype)) => self.cast(&operand, dtype, loc),
                    Some(CastTo::Constant) => Operand { loc, ..operand },
                    None => self.failed(loc),
                }
            }
            ExprKind::Call { path, generics, args } => self.call(path, generics, args, loc),
            ExprKind::Method { receiver, name, generics, args } => {
                self.method(receiver, name, generics, args, loc)
            }
            ExprKind::Tuple(parts) if parts.is_empty() => self.unit(loc),
            ExprKind::Tuple(parts) => {
                let parts = parts.iter().map(|part| self.expr(part)).collect();
                self.wrap(Item::Tuple(parts), loc)
            }
            ExprKind::Array(items) => {
                let items = items.iter().map(|item| self.expr(item)).collect();
                self.wrap(Item::List(items), loc)
            }
            ExprKind::If { condition, then, otherwise } => {
                self.conditional(condition, then, otherwise.as_deref(), loc)
            }
            ExprKind::Block(block) => {
                let value = self.block(block);
                Operand { loc, ..value }
            }
            ExprKind::Range { low, high, inclusive } => self.range(low, high, *inclusive, loc),
            ExprKind::Error => self.failed(loc),
        }
    }

    fn number(&mut self, value: Number, suffix: Option<&str>, loc: Loc) -> Operand {
        let dtype = match suffix {
            None | Some("usize" | "isize") => None,
            Some(suffix) => match DType::parse(suffix) {
                Some(dtype) => Some(dtype),
                None => return self.error(loc, format!("`{suffix}` is not an element type")),
            },
        };
        self.wrap(Item::Literal(Literal::digits(value, dtype)), loc)
    }

    fn range(&mut self, low: &Expr, high: &Expr, inclusive: bool, loc: Loc) -> Operand {
        let low = self.expr(low);
        let mut high = self.expr(high);
        if inclusive {
            let one = self.integer(1, high.loc);
            high = self.binary(BinaryOp::Add, high.loc, &high, &one);
        }
        let range = super::Range {
            low: Box::new(low),
            high: Box::new(high),
            step: None,
            unrolled: false,
            hints: ops::LoopHints::default(),
        };
        self.wrap(Item::Range(range), loc)
    }

    // ---- names

    fn path(&mut self, path: &[Ident], loc: Loc) -> Operand {
        if let [name] = path {
            return self.variable(name);
        }
        if let Some(literal) = self.type_constant(path) {
            return self.wrap(Item::Literal(literal), loc);
        }
        let text = path.iter().map(Ident::to_string).collect::<Vec<_>>().join("::");
        if path[0] == "tl" {
            return self.error_help(loc, format!("`{text}` is a function"), format!("call it: `{text}(..)`"));
        }
        self.error_help(
            loc,
            format!("`{text}` is not known in a kernel"),
            "constants of element types are, such as `f32::INFINITY` and `T::MAX`",
        )
    }

    fn variable(&mut self, name: &Ident) -> Operand {
        let loc = Loc::of(name);
        let text = name.to_string();
        match self.scopes.find(&text) {
            Some(slot) => match &self.scopes.get(slot).operand {
                Some(operand) => Operand { loc, ..operand.clone() },
                None => self.error_help(
                    loc,
                    format!("`{text}` may be used before it is assigned"),
                    format!("give it a first value where it is declared: `let mut {text} = ..;`"),
                ),
            },
            None => {
                if text == self.kernel.name.to_string() {
                    return self.error(loc, "a kernel cannot refer to itself");
                }
                if self.variant.types.iter().any(|(name, _)| *name == text) || DType::parse(&text).is_some() {
                    return self.error(loc, format!("`{text}` is a type, expected a value"));
                }
                let near = nearest(&text, self.scopes.names().map(str::to_string));
                match near {
                    Some(near) => self.error_help(
                        loc,
                        format!("`{text}` is not defined"),
                        format!("did you mean `{near}`?"),
                    ),
                    None => self.error(loc, format!("`{text}` is not defined")),
                }
            }
        }
    }

    /// `f32::INFINITY`, `T::MAX`, `f32::consts::PI`.
    fn type_constant(&self, path: &[Ident]) -> Option<Literal> {
        let names: Vec<String> = path.iter().map(Ident::to_string).collect();
        let names: Vec<&str> =
            names.iter().map(String::as_str).skip_while(|name| matches!(*name, "std" | "core")).collect();
        let dtype = |name: &str| {
            let declared = self.variant.types.iter().find(|(own, _)| own == name).map(|(_, dtype)| *dtype);
            declared.or_else(|| DType::parse(name))
        };
        let (dtype, value) = match names.as_slice() {
            [ty, "consts", name] => (dtype(ty)?, Number::Float(math_constant(name)?)),
            [ty, name] => {
                let dtype = dtype(ty)?;
                (dtype, limit(dtype, name)?)
            }
            _ => return None,
        };
        Some(Literal { value: LiteralValue::Number(value), dtype: Some(dtype), digits: false })
    }

    /// The type after `as`. A constant may also become a `usize`, as the arithmetic of const parameters does in Rust.
    fn cast_type(&mut self, operand: &Operand, ty: &crate::syntax::TypeName) -> Option<CastTo> {
        if matches!(operand.item, Item::Literal(_)) && matches!(ty.name.as_str(), "usize" | "isize") {
            return Some(CastTo::Constant);
        }
        self.resolve_type(ty).map(CastTo::Type)
    }

    // ---- operators

    fn unary(&mut self, op: UnaryOp, operand: &Expr, loc: Loc) -> Operand {
        let operand = self.expr(operand);
        let symbol = match op {
            UnaryOp::Neg => "`-`",
            UnaryOp::Not => "`!`",
        };
        let result = self.scalar(scalar::unary(op), symbol, loc, std::slice::from_ref(&operand));
        Operand { loc, ..result }
    }

    /// `lhs op rhs`; mistakes stand on the operator.
    pub(super) fn binary(&mut self, op: BinaryOp, op_loc: Loc, lhs: &Operand, rhs: &Operand) -> Operand {
        if let Some(result) = self.pointer_arithmetic(op, op_loc, lhs, rhs) {
            return result;
        }
        let symbol = format!("`{}`", op.symbol());
        self.scalar(scalar::binary(op), &symbol, op_loc, &[lhs.clone(), rhs.clone()])
    }

    /// The result when a side is a slice or pointer.
    fn pointer_arithmetic(
        &mut self,
        op: BinaryOp,
        op_loc: Loc,
        lhs: &Operand,
        rhs: &Operand,
    ) -> Option<Operand> {
        let address = |operand: &Operand| matches!(operand.item, Item::Slice(_) | Item::Pointer(_));
        let (pointer, by) = match (address(lhs), address(rhs)) {
            (false, false) => return None,
            (true, false) => (lhs, rhs),
            (false, true) if op == BinaryOp::Add => (rhs, lhs),
            _ => {
                let text = format!("`{}` does not take a slice on its right", op.symbol());
                return Some(self.error_help(
                    op_loc,
                    text,
                    "read memory first: `tl::load(slice + offsets, mask)`",
                ));
            }
        };
        if !matches!(op, BinaryOp::Add | BinaryOp::Sub) {
            let text = format!("`{}` does not take a slice", op.symbol());
            return Some(self.error_help(
                op_loc,
                text,
                "read memory first: `tl::load(slice + offsets, mask)`",
            ));
        }
        if let (Item::Slice(param), BinaryOp::Add) = (&pointer.item, op) {
            return Some(self.point_into(*param, by));
        }
        let base: Pointer = self.pointer(pointer, "pointer arithmetic")?;
        Some(self.move_pointer(base, by, op == BinaryOp::Sub, op_loc))
    }

    fn logic(&mut self, and: bool, op_loc: Loc, lhs: &Operand, rhs: &Operand, loc: Loc) -> Operand {
        let symbol = if and { "&&" } else { "||" };
        for operand in [lhs, rhs] {
            if let Item::Value(value) = operand.item
                && !self.ty(value).is_scalar()
            {
                let single = if and { "&" } else { "|" };
                return self.error_help(
                    op_loc,
                    format!("`{symbol}` takes scalars, found {}", self.describe(operand)),
                    format!("combine tiles of bools with `{single}`"),
                );
            }
        }
        let op = if and { BinaryOp::And } else { BinaryOp::Or };
        let flags = |operand: &Operand| match operand.item {
            Item::Literal(Literal { value: LiteralValue::Bool(value), .. }) => Some(value),
            _ => None,
        };
        // A constant side decides without the other one, so that `CAUSAL && ..` is a constant where it is false.
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

    /// Applies a row of the lanewise table; mistakes stand on `loc`.
    pub(super) fn scalar(
        &mut self,
        op: &'static ScalarOp,
        what: &str,
        loc: Loc,
        args: &[Operand],
    ) -> Operand {
        if args.iter().any(|arg| matches!(arg.item, Item::Failed)) {
            return self.failed(loc);
        }
        if let Some(folded) = self.fold(op, what, loc, args) {
            return folded;
        }
        let typed: Vec<&Operand> = args.iter().skip(usize::from(op.rule == Rule::Select)).collect();
        let Some(dtype) = self.common_type(what, loc, &typed) else { return self.failed(loc) };
        if !op.class.contains(dtype) {
            let text = format!("{what} takes {}, found {dtype}", op.class.describe());
            return match class_help(op, dtype) {
                Some(help) => self.error_help(loc, text, help),
                None => self.error(loc, text),
            };
        }
        let mut values: Vec<Value> = vec![];
        for (i, arg) in args.iter().enumerate() {
            let wanted = if op.rule == Rule::Select && i == 0 { DType::Bool } else { dtype };
            let role = if wanted == dtype {
                format!("an operand of {what}")
            } else {
                format!("the condition of {what}")
            };
            match self.value_as(arg, wanted, &role) {
                Some(value) => values.push(value),
                None => return self.failed(loc),
            }
        }
        let Some(shape) = self.common_shape(what, loc, &mut values) else { return self.failed(loc) };
        let result = if op.rule == Rule::Compare { DType::Bool } else { dtype };
        self.emit(Scalar::new(op, values), Type::tile(result, shape), loc)
    }

    /// The value of an operation on constants.
    fn fold(&mut self, op: &'static ScalarOp, what: &str, loc: Loc, args: &[Operand]) -> Option<Operand> {
        let literals: Vec<Literal> = args
            .iter()
            .map(|arg| match arg.item {
                Item::Literal(literal) => Some(literal),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let typed = &literals[usize::from(op.rule == Rule::Select)..];
        let dtype = {
            let operands: Vec<&Operand> = args.iter().skip(usize::from(op.rule == Rule::Select)).collect();
            let Some(dtype) = self.common_type(what, loc, &operands) else { return Some(self.failed(loc)) };
            dtype
        };
        let known = typed.iter().find_map(|literal| literal.dtype);
        let all_bools = typed.iter().all(|literal| matches!(literal.value, LiteralValue::Bool(_)));
        if !op.class.contains(dtype) || all_bools != (dtype == DType::Bool) {
            return None;
        }
        let value = if dtype.is_float() {
            let inputs: Option<Vec<f64>> = literals.iter().map(|literal| literal.as_float()).collect();
            let result = (op.float?.function)(&inputs?);
            if op.rule == Rule::Compare {
                LiteralValue::Bool(result != 0.0)
            } else {
                LiteralValue::Number(Number::Float(result))
            }
        } else {
            let inputs: Option<Vec<i128>> = literals.iter().map(|literal| literal.as_int()).collect();
            let result = (op.int?.function)(&inputs?, known.unwrap_or(DType::I64));
            if op.rule == Rule::Compare || dtype == DType::Bool {
                LiteralValue::Bool(result != 0)
            } else {
                LiteralValue::Number(Number::Int(known.map_or(result, |dtype| dtype.wrap(result))))
            }
        };
        let digits = literals.iter().all(|literal| literal.digits);
        let dtype = if op.rule == Rule::Compare { None } else { known };
        Some(self.wrap(Item::Literal(Literal { value, dtype, digits }), loc))
    }

    // ---- calls

    fn call(&mut self, path: &[Ident], generics: &[GenericArg], args: &[Expr], loc: Loc) -> Operand {
        let (Some(name), prefix) = (path.last(), &path[..path.len() - 1]) else { return self.failed(loc) };
        let text = name.to_string();
        let name_loc = Loc::of(name);
        let args: Vec<Operand> = args.iter().map(|arg| self.expr(arg)).collect();
        if prefix.last().is_none_or(|module| module != "tl") {
            return self.unknown_call(path, loc);
        }
        if let Some(op) = scalar::function(&text) {
            if !generics.is_empty() {
                return self.error(name_loc, format!("`tl::{text}` takes no type arguments"));
            }
            let params: Vec<Parameter> = op.params.iter().map(|param| ops::required(param)).collect();
            if !self.arity(&format!("`tl::{text}`"), &params, args.len(), loc) {
                return self.failed(loc);
            }
            let result = self.scalar(op, &format!("`tl::{text}`"), loc, &args);
            return Operand { loc, ..result };
        }
        let Some(function) = ops::functions().find(|function| function.name == text) else {
            let known =
                scalar::TABLE.iter().filter(|op| scalar::function(op.name).is_some()).map(|op| op.name);
            let names = known.chain(ops::functions().map(|function| function.name));
            return match other_name(&text).or_else(|| nearest(&text, names.map(str::to_string))) {
                Some(near) => self.error_help(
                    name_loc,
                    format!("`tl::{text}` does not exist"),
                    format!("did you mean `tl::{near}`?"),
                ),
                None => self.error(name_loc, format!("`tl::{text}` does not exist")),
            };
        };
        let what = format!("`tl::{text}`");
        if !self.arity(&what, function.params, args.len(), loc)
            || !self.generics(&what, function.generic, generics, name_loc)
        {
            return self.failed(loc);
        }
        let call = Call { name: text, name_loc, loc, generics: generics.to_vec(), args };
        (function.check)(self, &call)
    }

    fn unknown_call(&mut self, path: &[Ident], loc: Loc) -> Operand {
        let text = path.iter().map(Ident::to_string).collect::<Vec<_>>().join("::");
        let (start, end) = (Loc::of(&path[0]), Loc::of(&path[path.len() - 1]));
        let name = path[path.len() - 1].to_string();
        if path.len() == 1 && name == self.kernel.name.to_string() {
            return self.error(start.to(end), "a kernel cannot call itself");
        }
        let known =
            scalar::function(&name).is_some() || ops::functions().any(|function| function.name == name);
        let operand = if known {
            self.error_help(
                start.to(end),
                format!("`{text}` is not a function of the language"),
                format!("did you mean `tl::{name}`?"),
            )
        } else {
            self.error_help(
                start.to(end),
                format!("`{text}` cannot be called in a kernel"),
                "kernels call the functions of `tl::`",
            )
        };
        Operand { loc, ..operand }
    }

    fn method(
        &mut self,
        receiver: &Expr,
        name: &Ident,
        generics: &[GenericArg],
        args: &[Expr],
        loc: Loc,
    ) -> Operand {
        let text = name.to_string();
        let name_loc = Loc::of(name);
        let mut all = vec![self.expr(receiver)];
        all.extend(args.iter().map(|arg| self.expr(arg)));
        if matches!(all[0].item, Item::Failed) {
            return self.failed(loc);
        }
        let Some(method) = ops::methods().find(|method| method.name == text) else {
            let text_of = self.describe(&all[0]);
            let known =
                scalar::function(&text).is_some() || ops::functions().any(|function| function.name == text);
            return if known {
                self.error_help(
                    name_loc,
                    format!("`{text}` is not a method of {text_of}"),
                    format!("call the function: `tl::{text}(..)`"),
                )
            } else {
                match nearest(&text, ops::methods().map(|method| method.name.to_string())) {
                    Some(near) => self.error_help(
                        name_loc,
                        format!("`{text}` is not a method of {text_of}"),
                        format!("did you mean `{near}`?"),
                    ),
                    None => self.error(name_loc, format!("`{text}` is not a method of {text_of}")),
                }
            };
        };
        let what = format!("`{text}`");
        if !self.arity(&what, &method.params[1..], all.len() - 1, loc)
            || !self.generics(&what, method.generic, generics, name_loc)
        {
            return self.failed(loc);
        }
        let call = Call { name: text, name_loc, loc, generics: generics.to_vec(), args: all };
        (method.check)(self, &call)
    }

    fn arity(&mut self, what: &str, params: &[Parameter], found: usize, loc: Loc) -> bool {
        let least = params.iter().filter(|param| !param.optional).count();
        if (least..=params.len()).contains(&found) {
            return true;
        }
        let names: Vec<String> = params
            .iter()
            .map(|param| if param.optional { format!("{}?", param.name) } else { param.name.to_string() })
            .collect();
        let wanted = if least == params.len() {
            count(least, "argument")
        } else {
            format!("{least} to {}", count(params.len(), "argument"))
        };
        self.error(loc, format!("{what} takes {wanted} ({}), found {found}", names.join(", ")));
        false
    }

    fn generics(&mut self, what: &str, wanted: Generic, found: &[GenericArg], loc: Loc) -> bool {
        match (wanted, found) {
            (Generic::None | Generic::OptionalType, []) => true,
            (Generic::OptionalType | Generic::RequiredType, [GenericArg::Type(_)]) => true,
            (Generic::None, _) => {
                self.error(loc, format!("{what} takes no type arguments"));
                false
            }
            (Generic::RequiredType, []) => {
                self.error_help(
                    loc,
                    format!("{what} needs an element type"),
                    format!("write {}::<f32>(..)`", what.trim_end_matches('`')),
                );
                false
            }
            (Generic::OptionalType | Generic::RequiredType, _) => {
                self.error(loc, format!("{what} takes one element type"));
                false
            }
        }
    }
}

enum CastTo {
    Type(DType),
    Constant,
}

impl Literal {
    fn as_float(&self) -> Option<f64> {
        match self.value {
            LiteralValue::Number(Number::Float(value)) => Some(value),
            LiteralValue::Number(Number::Int(value)) if self.digits => Some(value as f64),
            LiteralValue::Number(Number::Int(_)) => None,
            LiteralValue::Bool(value) => Some(f64::from(u8::from(value))),
        }
    }

    fn as_int(&self) -> Option<i128> {
        match self.value {
            LiteralValue::Number(Number::Int(value)) => Some(value),
            LiteralValue::Number(Number::Float(_)) => None,
            LiteralValue::Bool(value) => Some(i128::from(value)),
        }
    }
}

/// What to do about an element type that an operation does not take.
fn class_help(op: &ScalarOp, dtype: DType) -> Option<String> {
    use crate::dtype::Class;
    match op.class {
        Class::Float if !dtype.is_float() => Some("convert it: `.to::<f32>()`".into()),
        Class::Integer | Class::Bits if dtype.is_float() => Some("convert it: `.to::<i32>()`".into()),
        Class::Signed if !dtype.is_signed() => Some("convert it to a signed type".into()),
        Class::Number if dtype == DType::Bool => Some("convert it: `.to::<i32>()`".into()),
        _ => None,
    }
}

/// The name here of what other languages call by another one.
fn other_name(name: &str) -> Option<String> {
    let own = match name {
        "where" | "where_" => "select",
        "dot_product" | "matmul" => "dot",
        "transpose" => "trans",
        "ln" => "log",
        "abs_" | "fabs" => "abs",
        "pow" | "powf" => "exp2",
        "fmax" => "max_num",
        "fmin" => "min_num",
        "mean" => "sum",
        "iota" => "arange",
        "permute_dims" => "permute",
        "broadcast" => "broadcast_to",
        _ => return None,
    };
    Some(own.into())
}

/// The candidate that differs least from `name`, if it differs little.
fn nearest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let limit = (name.len() / 3).max(1);
    candidates
        .map(|candidate| (distance(name, &candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Associated constants of element types, as Rust and the `half` crate name them.
fn limit(dtype: DType, name: &str) -> Option<Number> {
    if dtype.is_integer() {
        let (low, high) = dtype.range();
        return match name {
            "MAX" => Some(Number::Int(high)),
            "MIN" => Some(Number::Int(low)),
            "BITS" => Some(Number::Int(i128::from(dtype.bytes() * 8))),
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
        DType::F32 => (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), f64::from(f32::EPSILON)),
        DType::F64 => (f64::MAX, f64::MIN_POSITIVE, f64::EPSILON),
        _ => return None,
    };
    let value = match name {
        "INFINITY" => f64::INFINITY,
        "NEG_INFINITY" => f64::NEG_INFINITY,
        "NAN" => f64::NAN,
        "MAX" => max,
        "MIN" => -max,
        "MIN_POSITIVE" => min_positive,
        "EPSILON" => epsilon,
        _ => return None,
    };
    Some(Number::Float(value))
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

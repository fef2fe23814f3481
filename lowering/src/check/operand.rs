//! What the typing rules of operations are written with: values from operands, constants, conversions, broadcasting.

use super::{Call, Check, Item, Literal, LiteralValue, Operand, Pointer};
use crate::diagnostic::{Diagnostic, Loc};
use crate::dtype::DType;
use crate::ops::scalar::{self, Scalar};
use crate::ops::{Broadcast, Cast, Constant, ExpandDims, Kind, Number, Splat};
use crate::syntax::GenericArg;
use crate::tile::{Block, Func, ParamId, Shape, Type, Value, shape_problem};

impl Check<'_> {
    pub fn func(&self) -> &Func {
        self.builder.func
    }

    pub fn ty(&self, value: Value) -> &Type {
        self.builder.func.ty(value)
    }

    // ---- mistakes

    pub fn error(&mut self, loc: Loc, message: impl Into<String>) -> Operand {
        self.errors.push(loc, message);
        self.failed(loc)
    }

    pub fn error_help(&mut self, loc: Loc, message: impl Into<String>, help: impl Into<String>) -> Operand {
        self.errors.push_help(loc, message, help);
        self.failed(loc)
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> Operand {
        let loc = diagnostic.loc;
        self.errors.add(diagnostic);
        self.failed(loc)
    }

    /// An operand that stands for something already reported.
    pub fn failed(&self, loc: Loc) -> Operand {
        self.wrap(Item::Failed, loc)
    }

    // ---- operands

    pub fn wrap(&self, item: Item, loc: Loc) -> Operand {
        Operand { item, loc }
    }

    pub fn unit(&self, loc: Loc) -> Operand {
        self.wrap(Item::Unit, loc)
    }

    pub fn operand(&self, value: Value, loc: Loc) -> Operand {
        self.wrap(Item::Value(value), loc)
    }

    /// An integer known at build, without a type yet.
    pub fn integer(&self, value: i128, loc: Loc) -> Operand {
        self.wrap(Item::Literal(Literal::named(LiteralValue::Number(Number::Int(value)))), loc)
    }

    // ---- building

    pub fn push(&mut self, kind: impl Into<Kind>, types: Vec<Type>, loc: Loc) -> Vec<Value> {
        self.builder.loc = loc;
        self.builder.push(kind, types)
    }

    /// Builds an operation with one result.
    pub fn emit(&mut self, kind: impl Into<Kind>, ty: Type, loc: Loc) -> Operand {
        let value = self.push(kind, vec![ty], loc)[0];
        self.operand(value, loc)
    }

    pub fn begin_block(&mut self, args: Vec<Type>) -> Vec<Value> {
        self.builder.begin(args)
    }

    pub fn end_block(&mut self, yields: Vec<Value>) -> Block {
        self.builder.end(yields)
    }

    pub fn zero(&mut self, dtype: DType, loc: Loc) -> Value {
        let value = if dtype.is_float() { Number::Float(0.0) } else { Number::Int(0) };
        self.push(Constant { value }, vec![Type::scalar(dtype)], loc)[0]
    }

    pub fn splat(&mut self, value: Value, shape: &Shape, loc: Loc) -> Value {
        if shape.rank() == 0 {
            return value;
        }
        let dtype = self.ty(value).dtype;
        self.push(Splat { value }, vec![Type::tile(dtype, shape.clone())], loc)[0]
    }

    /// Broadcasts to a shape it is known to fit.
    pub fn broadcast(&mut self, value: Value, shape: &Shape, loc: Loc) -> Value {
        let ty = self.ty(value).clone();
        if ty.shape == *shape {
            return value;
        }
        if ty.is_scalar() {
            return self.splat(value, shape, loc);
        }
        let mut value = value;
        let mut from = ty.shape;
        while from.rank() < shape.rank() {
            from = from.with(0, 1);
            value =
                self.push(ExpandDims { value, axis: 0 }, vec![Type::tile(ty.dtype, from.clone())], loc)[0];
        }
        if from != *shape {
            value = self.push(Broadcast { value }, vec![Type::tile(ty.dtype, shape.clone())], loc)[0];
        }
        value
    }

    // ---- values

    /// The operand as a tile or scalar; a literal gets `i32`, `f32` or `bool`.
    pub fn value(&mut self, operand: &Operand) -> Option<Value> {
        match &operand.item {
            Item::Value(value) => Some(*value),
            Item::Literal(literal) => {
                let dtype = literal.dtype.unwrap_or(literal.default_type());
                self.literal(*literal, dtype, operand.loc)
            }
            Item::Failed => None,
            other => {
                let text = format!("expected a tile or scalar, found {}", other.describe());
                self.error(operand.loc, text);
                None
            }
        }
    }

    /// The operand as values of one element type: a literal becomes it, anything else must have it.
    pub fn value_as(&mut self, operand: &Operand, dtype: DType, what: &str) -> Option<Value> {
        if let Item::Literal(literal) = operand.item
            && literal.dtype.is_none_or(|own| own == dtype)
        {
            return self.literal(literal, dtype, operand.loc);
        }
        let value = self.value(operand)?;
        let found = self.ty(value).clone();
        if found.dtype == dtype {
            return Some(value);
        }
        self.error_help(
            operand.loc,
            format!("{what} is {dtype}, found {}", found.dtype),
            format!("convert it: `.to::<{dtype}>()`"),
        );
        None
    }

    /// A constant scalar of the given type.
    fn literal(&mut self, literal: Literal, dtype: DType, loc: Loc) -> Option<Value> {
        let value = match (literal.value, dtype) {
            (LiteralValue::Bool(value), DType::Bool) => Number::Int(i128::from(value)),
            (LiteralValue::Number(Number::Int(value)), dtype) if dtype.is_integer() => {
                let (low, high) = dtype.range();
                if !(low..=high).contains(&value) {
                    self.error(loc, format!("{value} does not fit in {dtype}, which holds {low} to {high}"));
                    return None;
                }
                Number::Int(value)
            }
            (LiteralValue::Number(Number::Int(value)), dtype) if dtype.is_float() && literal.digits => {
                Number::Float(value as f64)
            }
            (LiteralValue::Number(Number::Float(value)), dtype) if dtype.is_float() => Number::Float(value),
            (value, _) => {
                let help = match value {
                    LiteralValue::Number(_) => format!("convert it: `as {dtype}`"),
                    LiteralValue::Bool(_) => "compare to get a bool, or use `tl::select`".to_string(),
                };
                self.error_help(loc, format!("expected {dtype}, found {}", value.describe()), help);
                return None;
            }
        };
        Some(self.push(Constant { value }, vec![Type::scalar(dtype)], loc)[0])
    }

    /// The element type that operands of one operation share: that of those that have one.
    pub fn common_type(&mut self, what: &str, loc: Loc, operands: &[&Operand]) -> Option<DType> {
        let mut found: Option<DType> = None;
        for operand in operands {
            let dtype = match &operand.item {
                Item::Literal(literal) => literal.dtype,
                Item::Value(value) => Some(self.ty(*value).dtype),
                Item::Failed => return None,
                other => {
                    let text = format!("{what} takes tiles and scalars, found {}", other.describe());
                    self.error(operand.loc, text);
                    return None;
                }
            };
            match (found, dtype) {
                (Some(first), Some(second)) if first != second => {
                    let wider = wider(first, second);
                    self.error_help(
                        loc,
                        format!("{what} needs one element type, found {first} and {second}"),
                        format!("convert one side: `.to::<{wider}>()`"),
                    );
                    return None;
                }
                (None, Some(dtype)) => found = Some(dtype),
                _ => {}
            }
        }
        found.or_else(|| {
            // Literals alone: a float among them makes them floats.
            let types = operands.iter().filter_map(|operand| match &operand.item {
                Item::Literal(literal) => Some(literal.default_type()),
                _ => None,
            });
            types.max_by_key(|dtype| dtype.is_float())
        })
    }

    /// Broadcasts values to the shape they share.
    pub fn common_shape(&mut self, what: &str, loc: Loc, values: &mut [Value]) -> Option<Shape> {
        let mut shape = Shape::scalar();
        for &value in values.iter() {
            let next = self.ty(value).shape.clone();
            match shape.broadcast(&next) {
                Some(joined) => shape = joined,
                None => {
                    let text = format!("{what} needs shapes that broadcast, found {shape} and {next}");
                    self.error(loc, text);
                    return None;
                }
            }
        }
        let extents: Vec<i128> = shape.iter().map(|&extent| i128::from(extent)).collect();
        self.legal_shape(&extents, loc)?;
        for value in values.iter_mut() {
            *value = self.broadcast(*value, &shape, loc);
        }
        Some(shape)
    }

    /// Converts a tile, scalar or constant.
    pub fn cast(&mut self, operand: &Operand, dtype: DType, loc: Loc) -> Operand {
        if let Item::Literal(literal) = operand.item {
            return self.wrap(Item::Literal(literal.convert(dtype)), loc);
        }
        let Some(value) = self.value(operand) else { return self.failed(loc) };
        let ty = self.ty(value).clone();
        if ty.dtype == dtype {
            return self.operand(value, loc);
        }
        self.emit(Cast { value }, ty.with(dtype), loc)
    }

    // ---- constants

    /// An integer known at build; `what` names it in the message otherwise.
    pub fn constant(&mut self, operand: &Operand, what: &str) -> Option<i128> {
        match operand.item {
            Item::Literal(Literal { value: LiteralValue::Number(Number::Int(value)), .. }) => Some(value),
            Item::Failed => None,
            _ => {
                let text = format!("{what} is a constant integer, found {}", self.describe(operand));
                self.error_help(
                    operand.loc,
                    text,
                    "constants are literals and const parameters of the kernel",
                );
                None
            }
        }
    }

    /// A bool known at build.
    pub fn flag(&mut self, operand: &Operand, what: &str) -> Option<bool> {
        match operand.item {
            Item::Literal(Literal { value: LiteralValue::Bool(value), .. }) => Some(value),
            Item::Failed => None,
            _ => {
                let text = format!("{what} is a constant bool, found {}", self.describe(operand));
                self.error(operand.loc, text);
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
                self.error(operand.loc, text);
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
                self.error(operand.loc, text);
                None
            }
        }
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
        let axes = crate::diagnostic::list(0..rank);
        self.error(operand.loc, format!("axis {axis} is out of range: the axes here are {axes}"));
        None
    }

    /// The element type between `::<` and `>`, if one is given.
    pub fn generic_type(&mut self, call: &Call) -> Option<DType> {
        match call.generics.first() {
            Some(GenericArg::Type(ty)) => self.resolve_type(ty),
            _ => None,
        }
    }

    // ---- memory

    pub fn slice(&self, operand: &Operand) -> Option<ParamId> {
        match operand.item {
            Item::Slice(param) => Some(param),
            _ => None,
        }
    }

    /// The operand as addresses.
    pub fn pointer(&mut self, operand: &Operand, what: &str) -> Option<Pointer> {
        match &operand.item {
            Item::Pointer(pointer) => Some(pointer.clone()),
            Item::Slice(param) => {
                let offset = self.zero(DType::I32, operand.loc);
                Some(Pointer { param: *param, offset, shape: Shape::scalar() })
            }
            Item::Failed => None,
            other => {
                let text = format!("{what} takes a pointer, found {}", self.describe_item(other));
                self.error_help(operand.loc, text, "a slice parameter plus offsets makes one: `x + offsets`");
                None
            }
        }
    }

    /// `slice + offset`
    pub(super) fn point_into(&mut self, param: ParamId, by: &Operand) -> Operand {
        let Some(offset) = self.offset(by, DType::I32) else { return self.failed(by.loc) };
        let shape = self.ty(offset).shape.clone();
        self.wrap(Item::Pointer(Pointer { param, offset, shape }), by.loc)
    }

    /// The operand as element offsets; a bare literal becomes `literal_type` where it fits, else `i64`.
    fn offset(&mut self, by: &Operand, literal_type: DType) -> Option<Value> {
        let value = match &by.item {
            Item::Literal(literal) if literal.dtype.is_none() => {
                let dtype = if literal.fits(DType::I32) { literal_type } else { DType::I64 };
                self.value_as(by, dtype, "an offset")
            }
            _ => self.value(by),
        }?;
        let found = self.ty(value).clone();
        if !found.dtype.is_integer() {
            self.error_help(
                by.loc,
                format!("an offset is an integer, found {found}"),
                "convert it: `as i32`",
            );
            return None;
        }
        Some(value)
    }

    /// `pointer + offset` or `pointer - offset`. Offsets of different integer types meet in `i64`.
    pub(super) fn move_pointer(
        &mut self,
        pointer: Pointer,
        by: &Operand,
        negative: bool,
        loc: Loc,
    ) -> Operand {
        let mut offset = pointer.offset;
        let own_type = self.ty(offset).dtype;
        let Some(mut by_value) = self.offset(by, own_type) else { return self.failed(loc) };
        if own_type != self.ty(by_value).dtype {
            offset = self.to_i64(offset, loc);
            by_value = self.to_i64(by_value, loc);
        }
        let mut values = [offset, by_value];
        let Some(shape) = self.common_shape("pointer arithmetic", loc, &mut values) else {
            return self.failed(loc);
        };
        let row = scalar::row(if negative { "sub" } else { "add" }).expect("a row of the table");
        let ty = self.ty(values[0]).clone();
        let offset = self.push(Scalar::new(row, values.to_vec()), vec![ty], loc)[0];
        self.wrap(Item::Pointer(Pointer { param: pointer.param, offset, shape }), loc)
    }

    fn to_i64(&mut self, value: Value, loc: Loc) -> Value {
        let ty = self.ty(value).clone();
        if ty.dtype == DType::I64 {
            return value;
        }
        self.push(Cast { value }, vec![ty.with(DType::I64)], loc)[0]
    }

    // ---- words

    /// What an operand is, for messages: `a tile of type f32[1024]`.
    pub fn describe(&self, operand: &Operand) -> String {
        self.describe_item(&operand.item)
    }

    pub(super) fn describe_item(&self, item: &Item) -> String {
        match item {
            Item::Value(value) if self.ty(*value).is_scalar() => {
                format!("a scalar of type {}", self.ty(*value))
            }
            Item::Value(value) => format!("a tile of type {}", self.ty(*value)),
            other => other.describe(),
        }
    }

    /// `tl::static_print`.
    pub fn print(&mut self, operand: &Operand) {
        let text = match &operand.item {
            Item::Failed => return,
            Item::Literal(literal) => literal.value.describe_value(),
            Item::Text(text) => text.clone(),
            other => self.describe_item(other),
        };
        self.prints.push(text);
    }
}

/// The type of the two that holds more.
fn wider(a: DType, b: DType) -> DType {
    match (a.is_float(), b.is_float()) {
        (true, false) => a,
        (false, true) => b,
        _ if a.is_half() && b.is_half() => DType::F32,
        _ if a.bytes() >= b.bytes() => a,
        _ => b,
    }
}

impl Item {
    /// What it is, for messages; tiles and scalars are described with their types by [`Check::describe`].
    fn describe(&self) -> String {
        match self {
            Item::Literal(literal) => literal.value.describe(),
            Item::Value(_) => "a tile".into(),
            Item::Slice(_) => "a slice".into(),
            Item::Pointer(_) => "a pointer".into(),
            Item::Tuple(_) => "a tuple".into(),
            Item::List(_) => "a list".into(),
            Item::Text(_) => "a string".into(),
            Item::Range(_) => "a range".into(),
            Item::Unit => "nothing".into(),
            Item::Failed => "a mistake".into(),
        }
    }
}

impl LiteralValue {
    fn describe(self) -> String {
        match self {
            LiteralValue::Number(Number::Int(value)) => format!("the integer {value}"),
            LiteralValue::Number(Number::Float(value)) => format!("the float {value:?}"),
            LiteralValue::Bool(value) => format!("the bool {value}"),
        }
    }

    fn describe_value(self) -> String {
        match self {
            LiteralValue::Number(number) => number.to_string(),
            LiteralValue::Bool(value) => value.to_string(),
        }
    }
}

impl Literal {
    /// The type it has when nothing else decides.
    pub(super) fn default_type(&self) -> DType {
        self.dtype.unwrap_or(match self.value {
            LiteralValue::Number(Number::Int(value)) if DType::I32.wrap(value) == value => DType::I32,
            LiteralValue::Number(Number::Int(_)) => DType::I64,
            LiteralValue::Number(Number::Float(_)) => DType::F32,
            LiteralValue::Bool(_) => DType::Bool,
        })
    }

    fn fits(&self, dtype: DType) -> bool {
        match self.value {
            LiteralValue::Number(Number::Int(value)) => dtype.wrap(value) == value,
            LiteralValue::Number(Number::Float(_)) | LiteralValue::Bool(_) => true,
        }
    }

    /// As [`Cast`] converts values.
    fn convert(self, dtype: DType) -> Literal {
        let value = match self.value {
            LiteralValue::Bool(value) if dtype == DType::Bool => LiteralValue::Bool(value),
            LiteralValue::Bool(value) if dtype.is_integer() => {
                LiteralValue::Number(Number::Int(i128::from(value)))
            }
            LiteralValue::Bool(value) => LiteralValue::Number(Number::Float(f64::from(u8::from(value)))),
            LiteralValue::Number(Number::Int(value)) if dtype == DType::Bool => {
                LiteralValue::Bool(value != 0)
            }
            LiteralValue::Number(Number::Float(value)) if dtype == DType::Bool => {
                LiteralValue::Bool(value != 0.0)
            }
            LiteralValue::Number(Number::Int(value)) if dtype.is_integer() => {
                LiteralValue::Number(Number::Int(dtype.wrap(value)))
            }
            LiteralValue::Number(Number::Int(value)) => LiteralValue::Number(Number::Float(value as f64)),
            LiteralValue::Number(Number::Float(value)) if dtype.is_integer() => {
                let (low, high) = dtype.range();
                LiteralValue::Number(Number::Int((value as i128).clamp(low, high)))
            }
            LiteralValue::Number(Number::Float(value)) => LiteralValue::Number(Number::Float(value)),
        };
        Literal { value, dtype: Some(dtype), digits: self.digits }
    }
}

//! Helpers of typing rules: values from operands, constants, conversions, broadcasting.

use super::option::OPTION_HELP;
use super::{Call, Callee, Check, ErrorLoc, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::hint_method;
use crate::ir::{Block, Func, Op, ParamId, Shape, Type, Value};
use crate::ops::{Bitcast, Broadcast, Cast, Constant, ConstantValue, ExpandDims, Kind, Site, Splat};
use crate::ops::{broadcast_help, scalar};
use crate::support::diagnostic::{Diagnostic, Loc};
use crate::support::dtype::{Class, DType};

impl Check<'_> {
    pub fn func(&self) -> &Func {
        self.builder.func
    }

    /// Whether the kernel is `unchecked`: its caller vouches for every access.
    pub fn is_unchecked(&self) -> bool {
        self.kernel.options.unchecked
    }

    pub fn ty(&self, value: Value) -> &Type {
        self.builder.func.ty(value)
    }

    // ---- mistakes

    pub fn error(&mut self, loc: Loc, message: impl Into<String>) -> Operand {
        self.errors.push(loc, message);
        Operand::failed(loc)
    }

    pub fn error_help(&mut self, loc: Loc, message: impl Into<String>, help: impl Into<String>) -> Operand {
        self.errors.push_help(loc, message, help);
        Operand::failed(loc)
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> Operand {
        let loc = diagnostic.loc;
        self.errors.add(diagnostic);
        Operand::failed(loc)
    }

    // ---- operands

    // ---- building

    pub fn push(&mut self, kind: impl Into<Kind>, types: Vec<Type>, loc: Loc) -> Vec<Value> {
        self.builder.loc = self.site.unwrap_or(loc);
        self.builder.push(kind, types)
    }

    /// Builds an operation with one result.
    pub fn emit(&mut self, kind: impl Into<Kind>, ty: Type, loc: Loc) -> Operand {
        let value = self.push(kind, vec![ty], loc)[0];
        Operand::value(value, loc)
    }

    /// The operation that a call has just built, for a method after the call that sets an attribute of it.
    pub fn operation_of(&mut self, operand: &Operand) -> Option<&mut Op> {
        let ops = self.builder.innermost();
        // A block of a part of a view is read and then loses the axes that the part lacks.
        let axes_dropped = match (&*ops, &operand.item) {
            ([.., read, Op { kind: Kind::Reshape(reshape), results, loc }], Item::Value(value)) => {
                read.loc == *loc && read.results.contains(&reshape.value) && results.contains(value)
            }
            _ => false,
        };
        if axes_dropped {
            let read = ops.len() - 2;
            return Some(&mut ops[read]);
        }
        let op = ops.last_mut()?;
        let own = match operand.item {
            Item::Value(value) => op.results.contains(&value),
            // An operation without results is identified by its span.
            Item::Unit => op.results.is_empty() && op.loc == operand.loc,
            _ => false,
        };
        own.then_some(op)
    }

    /// Extends the span of the operation of `operand` to that of the methods after the call.
    pub fn extend_operation(&mut self, operand: &Operand, loc: Loc) {
        let Some(written) = self.operation_of(operand).map(|op| op.loc) else { return };
        for op in self.builder.innermost().iter_mut().rev().take_while(|op| op.loc == written) {
            op.loc.end = loc.end;
        }
    }

    /// Adds the source site of an operation that only debug builds have; returns its index.
    pub fn site(&mut self, site: Site) -> u32 {
        let sites = &mut self.builder.func.sites;
        let known = sites.iter().position(|other| *other == site);
        known.unwrap_or_else(|| {
            sites.push(site);
            sites.len() - 1
        }) as u32
    }

    pub fn begin_block(&mut self, args: Vec<Type>) -> Vec<Value> {
        self.builder.begin(args)
    }

    pub fn end_block(&mut self, yields: Vec<Value>) -> Block {
        self.builder.end(yields)
    }

    pub fn zero(&mut self, dtype: DType, loc: Loc) -> Value {
        let value = if dtype.is_float() { ConstantValue::Float(0.0) } else { ConstantValue::Int(0) };
        self.push(Constant { value }, vec![Type::scalar(dtype)], loc)[0]
    }

    /// Applies a row of the lanewise table, by name, to values of the right types.
    pub fn row(&mut self, name: &str, args: &[Value], loc: Loc) -> Value {
        let op = scalar::row(name).expect("a row of the table");
        let ty = self.ty(args[args.len() - 1]).clone();
        let ty = if op.rule == scalar::TypeRule::Compare { ty.with(DType::Bool) } else { ty };
        self.push(scalar::Scalar::new(op, args.to_vec()), vec![ty], loc)[0]
    }

    /// A tile of type `ty` with a constant in every element.
    pub fn filled(&mut self, value: ConstantValue, ty: &Type, loc: Loc) -> Value {
        let scalar = self.push(Constant { value }, vec![Type::scalar(ty.dtype)], loc)[0];
        self.splat(scalar, &ty.shape, loc)
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
                self.literal(*literal, dtype, operand.loc, None)
            }
            Item::Failed => None,
            other => {
                let text = format!("expected a tile or scalar, found {}", other.describe());
                self.unexpected(operand, text);
                None
            }
        }
    }

    /// The operand as a tile of at least one axis.
    pub fn tile(&mut self, operand: &Operand, what: &str) -> Option<Value> {
        let value = self.value(operand)?;
        let ty = self.ty(value).clone();
        if ty.is_scalar() {
            let text = format!("{what} takes a tile, found a scalar of type {ty}");
            self.error_help(operand.loc, text, "leave the call out, or make a tile: `tl::full([N], x)`");
            return None;
        }
        Some(value)
    }

    /// Reports an operand that is no tile and no scalar.
    pub(super) fn unexpected(&mut self, operand: &Operand, text: String) {
        match operand.item {
            Item::Slice(_) => {
                self.error_help(operand.loc, text, "read it first: `tl::load(slice + offsets, mask)`")
            }
            Item::Pointer(_) => {
                self.error_help(operand.loc, text, "read it first: `tl::load(pointer, mask)`")
            }
            Item::View(ref view) => {
                let help = self.view_help(view);
                self.error_help(operand.loc, text, help)
            }
            Item::Function(id) => {
                let help = match self.callee(id) {
                    Callee::Language(name) => format!("call it: `tl::{name}(..)`"),
                    Callee::Declared { .. } | Callee::Closure { .. } => "call it".into(),
                };
                self.error_help(operand.loc, text, help)
            }
            Item::Text(ref word) => match hint_method(word) {
                Some(help) => self.error_help(operand.loc, text, help),
                None => self.error(operand.loc, text),
            },
            Item::Optional { .. } => self.error_help(operand.loc, text, OPTION_HELP),
            Item::Tuple(_) => self.error_help(operand.loc, text, "a part of a tuple is `.0`, `.1`, .."),
            _ => self.error(operand.loc, text),
        };
    }

    /// The operand as values of one element type: a literal becomes it, anything else must have it.
    pub fn value_as(&mut self, operand: &Operand, dtype: DType, what: &str) -> Option<Value> {
        if let Item::Literal(literal) = operand.item
            && literal.dtype.is_none_or(|own| own == dtype)
        {
            return self.literal(literal, dtype, operand.loc, Some(what));
        }
        let value = self.value(operand)?;
        let found = self.ty(value).clone();
        if found.dtype == dtype {
            return Some(value);
        }
        let help = match dtype {
            DType::Bool => "compare: `x != 0`".to_string(),
            _ => format!("convert it: `.to::<{dtype}>()`"),
        };
        self.error_help(operand.loc, format!("{what} is {dtype}, found {}", found.dtype), help);
        None
    }

    /// A constant scalar of the given type.
    fn literal(&mut self, literal: Literal, dtype: DType, loc: Loc, what: Option<&str>) -> Option<Value> {
        if self.report_division(&literal, dtype, loc) {
            return None;
        }
        let value = match (literal.value, dtype) {
            (LiteralValue::Bool(value), DType::Bool) => ConstantValue::Int(i128::from(value)),
            (LiteralValue::Number(ConstantValue::Int(value)), dtype) if dtype.is_integer() => {
                let Some(bits) = literal.bits(value, dtype) else {
                    self.report_too_large(value, dtype, loc);
                    return None;
                };
                ConstantValue::Int(bits)
            }
            (LiteralValue::Number(ConstantValue::Int(value)), dtype)
                if dtype.is_float() && literal.digits =>
            {
                ConstantValue::Float(value as f64)
            }
            (LiteralValue::Number(ConstantValue::Float(value)), dtype) if dtype.is_float() => {
                ConstantValue::Float(value)
            }
            (value, _) => {
                // With another operand it is as likely that the other one is of the wrong type.
                let what = what.filter(|what| !what.starts_with("an operand"));
                let help = match value {
                    LiteralValue::Number(ConstantValue::Float(value))
                        if what.is_some() && dtype.is_integer() && value.trunc() == value =>
                    {
                        format!("write an integer: `{value}`")
                    }
                    LiteralValue::Number(ConstantValue::Float(_)) if what.is_some() && dtype.is_integer() => {
                        "write an integer".to_string()
                    }
                    LiteralValue::Number(_) if dtype == DType::Bool => "compare: `x != 0`".to_string(),
                    LiteralValue::Number(ConstantValue::Float(_)) => {
                        "write an integer, or convert the integers beside it: `as f32`".to_string()
                    }
                    LiteralValue::Number(ConstantValue::Int(_)) if what.is_none() => {
                        format!("convert it, `as {dtype}`, or the number beside it, `as i32`")
                    }
                    LiteralValue::Number(ConstantValue::Int(_)) | LiteralValue::Bool(_) => {
                        format!("convert it: `as {dtype}`")
                    }
                };
                let found = value.describe();
                let text = match what {
                    Some(what) => format!("{what} is {dtype}, found {found}"),
                    None => format!("expected {dtype}, found {found}"),
                };
                self.error_help(loc, text, help);
                return None;
            }
        };
        if let ConstantValue::Float(float) = value
            && dtype.overflows(float)
        {
            let text = match literal.value {
                LiteralValue::Number(number) => format!("{number} does not fit in {dtype}"),
                LiteralValue::Bool(_) => format!("this does not fit in {dtype}"),
            };
            let largest = super::names::largest(dtype);
            self.error(loc, format!("{text}, which holds up to {largest:e}"));
            return None;
        }
        Some(self.push(Constant { value }, vec![Type::scalar(dtype)], loc)[0])
    }

    /// The operand as elements of a slice; an error names the type as the slice's declaration does.
    pub fn value_for(&mut self, param: ParamId, operand: &Operand, what: &str) -> Option<Value> {
        let (elem, _) = self.func().slice(param);
        if let Item::Value(value) = operand.item
            && self.ty(value).dtype != elem
        {
            let text = format!("{what} is {elem}, found {}", self.ty(value).dtype);
            let help = format!("convert it: `.to::<{}>()`", self.written_elem(param));
            self.error_help(operand.loc, text, help);
            return None;
        }
        self.value_as(operand, elem, what)
    }

    /// The common element type of an operation's operands; literals without a type take it.
    pub fn common_type(&mut self, what: &str, error_loc: ErrorLoc, operands: &[&Operand]) -> Option<DType> {
        let mut found: Option<DType> = None;
        for operand in operands {
            let dtype = match &operand.item {
                Item::Literal(literal) => literal.dtype,
                Item::Value(value) => Some(self.ty(*value).dtype),
                Item::Failed => return None,
                other => {
                    let text = format!("{what} takes tiles and scalars, found {}", other.describe());
                    self.unexpected(operand, text);
                    return None;
                }
            };
            match (found, dtype) {
                (Some(first), Some(second)) if first != second => {
                    let wider = wider(first, second);
                    let loc = match error_loc {
                        ErrorLoc::Here(loc) => loc,
                        ErrorLoc::Operand => operand.loc,
                    };
                    let text = format!("{what} needs one element type, found {first} and {second}");
                    let help = match (first, second) {
                        (DType::Bool, _) | (_, DType::Bool) => {
                            "compare to make a bool of a number: `x != 0`".into()
                        }
                        _ => self.conversion_help(operands, wider),
                    };
                    let integer_init = operands.iter().find_map(|operand| self.integer_init(operand));
                    let help = match integer_init.filter(|_| first.is_float() || second.is_float()) {
                        Some((name, value)) => {
                            format!("`{name}` began as the integer {value}: begin with `{value}.0`")
                        }
                        None => help,
                    };
                    let note = operands.iter().find_map(|operand| self.shadowed_parameter(operand));
                    self.report(Diagnostic { loc, message: text, help: Some(help), note });
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

    /// How operands of two types become one of `wider`: which of them to convert.
    fn conversion_help(&mut self, operands: &[&Operand], wider: DType) -> String {
        if let [read, offsets] = operands
            && let Some(slice) = self.scalar_just_read(read)
            && let Item::Value(value) = offsets.item
            && self.ty(value).dtype.is_integer()
            && !self.ty(value).is_scalar()
        {
            let by = offsets.loc.word().unwrap_or_else(|| "offsets".into());
            return format!("to read at offsets, add them to the slice: `tl::load({slice} + {by})`");
        }
        if let Some(number) = operands.iter().find_map(|operand| self.without_suffix(operand, operands)) {
            return format!(
                "a number without a suffix has the type of what stands beside it: write `{number}`"
            );
        }
        let narrow = operands.iter().find(|operand| match operand.item {
            Item::Value(value) => self.ty(value).dtype != wider,
            _ => false,
        });
        match narrow.and_then(|operand| operand.loc.word()) {
            Some(word) => format!("convert one side: `{word}.to::<{wider}>()`"),
            None => format!("convert one side: `.to::<{wider}>()`"),
        }
    }

    /// The name of the slice whose first element an operand has just read.
    fn scalar_just_read(&mut self, operand: &Operand) -> Option<String> {
        let Item::Value(value) = operand.item else { return None };
        let op = self.builder.innermost().last().filter(|op| op.results.contains(&value))?;
        let Kind::Load(load) = &op.kind else { return None };
        let param = load.access.param;
        self.ty(value).is_scalar().then(|| self.func().params[param.index()].name.clone())
    }

    /// The carried variable that an operand is, if an integer literal without a type initialized it.
    fn integer_init(&self, operand: &Operand) -> Option<(String, i128)> {
        let Item::Value(value) = operand.item else { return None };
        self.scopes.carried.iter().find_map(|(slot, init)| {
            let Item::Literal(Literal {
                value: LiteralValue::Number(ConstantValue::Int(begin)),
                dtype: None,
                ..
            }) = init.item
            else {
                return None;
            };
            let (name, _) =
                self.scopes.names_of(value).find(|(name, _)| self.scopes.find(name) == Some(*slot))?;
            Some((name.to_string(), begin))
        })
    }

    /// A note that a variable shadows a slice or view parameter, if an operand is that variable.
    fn shadowed_parameter(&self, operand: &Operand) -> Option<String> {
        let Item::Value(value) = operand.item else { return None };
        self.scopes.names_of(value).find_map(|(name, variable)| {
            let parameter = self.scopes.outermost(name)?.operand.as_ref()?;
            let line = variable.assigned?.line();
            matches!(parameter.item, Item::Slice(_) | Item::View(_)).then(|| {
                format!("`{name}` is {} since line {line}, not the parameter", self.describe(operand))
            })
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
                    let (less, more) =
                        if shape.rank() < next.rank() { (&shape, &next) } else { (&next, &shape) };
                    self.error_help(loc, text, broadcast_help(less, more));
                    return None;
                }
            }
        }
        let shape = self.legal(shape, loc)?;
        for value in values.iter_mut() {
            *value = self.broadcast(*value, &shape, loc);
        }
        Some(shape)
    }

    /// Converts a tile, scalar or constant.
    pub fn cast(&mut self, operand: &Operand, dtype: DType, loc: Loc) -> Operand {
        if let Item::Literal(literal) = operand.item {
            if self.report_division(&literal, dtype, loc) || self.report_bare(&literal, dtype, loc) {
                return Operand::failed(loc);
            }
            let value = match literal.value {
                LiteralValue::Number(ConstantValue::Float(value)) if literal.dtype.is_none() => value,
                _ => 0.0,
            };
            if dtype.overflows(value) {
                // Reported as a literal that does not fit.
                self.value_as(operand, dtype, "the value");
                return Operand::failed(loc);
            }
            return Operand::new(Item::Literal(literal.convert(dtype)), loc);
        }
        let Some(value) = self.value(operand) else { return Operand::failed(loc) };
        let from = self.ty(value).dtype;
        let mut value = self.convert(value, dtype, loc);
        if (from, dtype) == (DType::U64, DType::I64) {
            // What the user converts has the bits of its type, in an offset too.
            let ty = self.ty(value).clone();
            value = self.push(Bitcast { value }, vec![ty], loc)[0];
        }
        Operand::value(value, loc)
    }

    /// Converts a value that has another element type.
    pub fn convert(&mut self, value: Value, dtype: DType, loc: Loc) -> Value {
        let ty = self.ty(value).clone();
        if ty.dtype == dtype {
            return value;
        }
        self.push(Cast::new(value), vec![ty.with(dtype)], loc)[0]
    }

    /// Whether the element type of a call's first argument is one that the function takes; reports it if not.
    pub fn takes(&mut self, call: &Call, ty: &Type, class: Class) -> bool {
        if class.contains(ty.dtype) {
            return true;
        }
        let text = format!("{} takes {}, found {ty}", call.what, class.describe());
        let help = match class {
            Class::Bool => "compare: `x != 0`",
            _ if ty.dtype.is_f8() => "convert it: `.to::<f32>()`",
            _ => "convert it: `.to::<i32>()`",
        };
        self.error_help(call.args[0].loc, text, help);
        false
    }

    // ---- descriptions

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
            Item::Struct(id, _) => format!("a `{}`", self.struct_item(*id).name),
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

/// The wider type of the two.
pub(super) fn wider(a: DType, b: DType) -> DType {
    match (a.is_float(), b.is_float()) {
        (true, false) => a,
        (false, true) => b,
        _ if a.bytes() == b.bytes() && a.is_float() => DType::F32,
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
            Item::View(_) => "a view".into(),
            Item::Optional { .. } => "an option".into(),
            Item::Pointer(_) => "a pointer".into(),
            Item::Tuple(_) => "a tuple".into(),
            Item::Struct(..) => "a struct".into(),
            Item::List(_) => "a list".into(),
            Item::Text(_) => "a string".into(),
            Item::Range(_) => "a range".into(),
            Item::Function(_) => "a function".into(),
            Item::Unit => "nothing".into(),
            Item::Failed => "a mistake".into(),
        }
    }
}

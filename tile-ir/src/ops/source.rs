//! Operations without operands: constants, the program's index in the grid, ranges.

use super::typing::{Call, Item, Operand, TypingCx};
use super::{Effect, Intrinsic, IntrinsicGeneric, Kind, Operation, Returns, expect_types, required};
use crate::ir::axis_info::{self, AxisEnv, AxisInfo};
use crate::ir::guard::Symbol;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::polynomial::{Atom, Polynomial, PolynomialEnv};
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParamId, ParamKind, ParseError, Shape, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// A constant of a known element type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ConstantValue {
    Int(i128),
    Float(f64),
}

impl ConstantValue {
    /// Whether all its bits are 0, in any type.
    pub fn is_zero(self) -> bool {
        match self {
            ConstantValue::Int(value) => value == 0,
            ConstantValue::Float(value) => value.to_bits() == 0,
        }
    }
}

/// Whether a value is 0 everywhere, by what defines values.
pub fn is_zero<'k>(defined: impl Fn(Value) -> Option<&'k Kind>, value: Value) -> bool {
    let scalar = match defined(value) {
        Some(Kind::Splat(splat)) => splat.value,
        Some(_) | None => value,
    };
    matches!(defined(scalar), Some(Kind::Constant(constant)) if constant.value.is_zero())
}

/// Floats have all their digits; a NaN with other bits than the usual ones is written as its bits.
impl FieldText for ConstantValue {
    fn write(&self, out: &mut TextWriter) {
        match self {
            ConstantValue::Float(value) if value.is_nan() && value.to_bits() != f64::NAN.to_bits() => {
                out.word(&format!("{:#x}", value.to_bits()));
            }
            ConstantValue::Int(_) | ConstantValue::Float(_) => out.word(&self.to_string()),
        }
    }

    fn read(input: &mut TextReader) -> Result<ConstantValue, ParseError> {
        input.number(|text| {
            if let Some(bits) = text.strip_prefix("0x") {
                return u64::from_str_radix(bits, 16).ok().map(f64::from_bits).map(ConstantValue::Float);
            }
            match text.parse() {
                Ok(value) => Some(ConstantValue::Int(value)),
                Err(_) => text.parse().ok().map(ConstantValue::Float),
            }
        })
    }
}

impl std::fmt::Display for ConstantValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConstantValue::Int(value) => write!(f, "{value}"),
            ConstantValue::Float(value) => write!(f, "{value:?}"),
        }
    }
}

/// A scalar known at build; a `bool` is 0 or 1.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    pub value: ConstantValue,
}

syntax!(Constant: "constant" value);

impl Operation for Constant {
    fn operands(&self) -> Vec<Value> {
        vec![]
    }

    fn map(&mut self, _: &mut dyn FnMut(Value) -> Value) {}

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(results[0]);
        expect_types("the result's shape", ty.shape.clone(), Shape::scalar())?;
        match self.value {
            ConstantValue::Int(value) => {
                let (low, high) = ty.dtype.range();
                let fits = !ty.dtype.is_float() && (low..=high).contains(&value);
                if fits { Ok(()) } else { Err(format!("{value} is not a {}", ty.dtype)) }
            }
            ConstantValue::Float(_) if ty.dtype.is_float() => Ok(()),
            ConstantValue::Float(value) => Err(format!("{value} is not a {}", ty.dtype)),
        }
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        match self.value {
            ConstantValue::Int(value) => vec![AxisInfo::constant(value)],
            ConstantValue::Float(_) => vec![AxisInfo::unknown(env.func().ty(results[0]))],
        }
    }

    fn polynomial(&self, _: &dyn PolynomialEnv, _: &Func, _: Value) -> Option<Polynomial> {
        match self.value {
            ConstantValue::Int(value) => Some(Polynomial::constant(value)),
            ConstantValue::Float(_) => None,
        }
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

/// This program's index along a grid axis, an `i32`.
#[derive(Clone, Copy, Debug)]
pub struct ProgramId {
    pub axis: u8,
}

/// The number of programs along a grid axis, an `i32`.
#[derive(Clone, Copy, Debug)]
pub struct NumPrograms {
    pub axis: u8,
}

/// The number of elements of a slice, an `i64`.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub param: ParamId,
}

macro_rules! nullary {
    ($ty:ident, $field:ident, $name:literal, $dtype:expr, |$self:ident| $low:expr, |$env:ident| $high:expr, $atom:expr) => {
        syntax!($ty: $name $field);

        impl Operation for $ty {
            fn operands(&self) -> Vec<Value> {
                vec![]
            }

            fn map(&mut self, _: &mut dyn FnMut(Value) -> Value) {}

            fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
                expect_types("the result", func.ty(results[0]), &Type::scalar($dtype))
            }

            fn axis_info(&$self, $env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
                let info = AxisInfo::unknown($env.func().ty(results[0]));
                vec![AxisInfo { range: ($low, $high), ..info }]
            }

            fn polynomial(&$self, _: &dyn PolynomialEnv, _: &Func, _: Value) -> Option<Polynomial> {
                Some(Polynomial::atom($atom))
            }

            fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
                LayoutRelation::Source
            }
        }
    };
}

nullary!(
    ProgramId,
    axis,
    "program_id",
    DType::I32,
    |self| 0,
    |env| env.most_programs(self.axis).map_or(i32::MAX.into(), |most| most - 1),
    Atom::Program(self.axis)
);
nullary!(
    NumPrograms,
    axis,
    "num_programs",
    DType::I32,
    |self| 1,
    |env| env.most_programs(self.axis).unwrap_or(i32::MAX.into()),
    Atom::Known(Symbol::Grid(self.axis))
);
nullary!(
    Length,
    param,
    "length",
    DType::I64,
    |self| 0,
    |_env| i64::MAX.into(),
    Atom::Known(Symbol::Length(self.param.0))
);

/// `start, start + 1, ..` as an `i32` tile of rank 1.
#[derive(Clone, Copy, Debug)]
pub struct Arange {
    pub start: i32,
}

syntax!(Arange: "arange" start);

impl Operation for Arange {
    fn operands(&self) -> Vec<Value> {
        vec![]
    }

    fn map(&mut self, _: &mut dyn FnMut(Value) -> Value) {}

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(results[0]);
        expect_types("the element type", ty.dtype, DType::I32)?;
        expect_types("the rank", ty.shape.rank(), 1)
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        vec![axis_info::arange(self.start, env.func().ty(results[0]).shape[0])]
    }

    fn polynomial(&self, _: &dyn PolynomialEnv, func: &Func, result: Value) -> Option<Polynomial> {
        let range = Atom::Range { axis: 0, extent: func.ty(result).shape[0] };
        Some(Polynomial::atom(range).add(&Polynomial::constant(i128::from(self.start))))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

/// A scalar in every element of a tile.
#[derive(Clone, Copy, Debug)]
pub struct Splat {
    pub value: Value,
}

syntax!(Splat: "splat" value);

impl Operation for Splat {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the operand", func.ty(self.value), &Type::scalar(func.ty(results[0]).dtype))
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        vec![axis_info::splat(&env.info(self.value), &env.func().ty(results[0]).shape)]
    }

    fn polynomial(&self, env: &dyn PolynomialEnv, _: &Func, _: Value) -> Option<Polynomial> {
        Some(env.polynomial(self.value))
    }

    fn axis_map(&self, _: &Func) -> Option<Vec<Option<usize>>> {
        Some(vec![])
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "program_id",
        returns: Returns::Tile,
        example: "let row = tl::program_id(0);",
        generic: IntrinsicGeneric::None,
        params: &[required("axis")],
        doc: "This program's index along grid axis 0, 1 or 2, an `i32`. Programs begin in no promised order: where loops of products make more turns in some of them, these begin first.",
        check: |cx, call| grid_axis(cx, call, |axis| ProgramId { axis }.into()),
    },
    Intrinsic {
        name: "num_programs",
        returns: Returns::Tile,
        example: "for row in tl::range(tl::program_id(0), n, tl::num_programs(0)) {\n    tl::store(out + row, 0.0);\n}",
        generic: IntrinsicGeneric::None,
        params: &[required("axis")],
        doc: "The number of programs along grid axis 0, 1 or 2, an `i32`.",
        check: |cx, call| grid_axis(cx, call, |axis| NumPrograms { axis }.into()),
    },
    Intrinsic {
        name: "arange",
        returns: Returns::Tile,
        example: "let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);",
        generic: IntrinsicGeneric::None,
        params: &[required("start"), required("end")],
        doc: "The integers `start..end` as an `i32` tile of shape `[end - start]`. Both ends are constants.",
        check: arange,
    },
    Intrinsic {
        name: "full",
        returns: Returns::Tile,
        example: "let lowest = tl::full([BLOCK], f32::NEG_INFINITY);",
        generic: IntrinsicGeneric::OptionalType,
        params: &[required("shape"), required("value")],
        doc: "A tile of the given shape with one value everywhere. The shape is a list of constants, `[M, N]`; the element type is the value's, or the one given as in `tl::full::<f32>([M], 0.0)`.",
        check: full,
    },
    Intrinsic {
        name: "zeros",
        returns: Returns::Tile,
        example: "let mut total = tl::zeros::<f32>([BLOCK]);",
        generic: IntrinsicGeneric::RequiredType,
        params: &[required("shape")],
        doc: "A tile of zeros: `tl::zeros::<f32>([M, N])`.",
        check: zeros,
    },
    Intrinsic {
        name: "zeros_like",
        returns: Returns::Tile,
        example: "let positive = tl::maximum(tile, tl::zeros_like(tile));",
        generic: IntrinsicGeneric::None,
        params: &[required("x")],
        doc: "Zeros of the shape and element type of `x`.",
        check: zeros_like,
    },
    Intrinsic {
        name: "next_power_of_2",
        returns: Returns::Constant,
        example: "let columns = tl::arange(0, tl::next_power_of_2(BLOCK));",
        generic: IntrinsicGeneric::None,
        params: &[required("n")],
        doc: "The smallest power of two that is at least the constant `n`.",
        check: next_power_of_2,
    },
];

pub(super) const METHODS: &[Intrinsic] = &[Intrinsic {
    name: "len",
    returns: Returns::Tile,
    example: "let offsets = tl::arange(0, BLOCK);\nlet mask = offsets.to::<i64>() < x.len();",
    generic: IntrinsicGeneric::None,
    params: &[required("self")],
    doc: "The number of elements of a slice, an `i64`.",
    check: length,
}];

fn grid_axis(cx: &mut dyn TypingCx, call: &Call, kind: fn(u8) -> Kind) -> Operand {
    let Some(axis) = cx.constant(&call.args[0], "the grid axis") else { return Operand::failed(call.loc) };
    if !(0..3).contains(&axis) {
        return cx.error(call.args[0].loc, format!("a grid has axes 0, 1 and 2, found {axis}"));
    }
    cx.emit(kind(axis as u8), Type::scalar(DType::I32), call.loc)
}

fn arange(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    if let Item::Value(_) = call.args[1].item {
        let text = format!("the end of a range is a constant integer, found {}", cx.describe(&call.args[1]));
        let end = call.args[1].loc.word().unwrap_or_else(|| "n".into());
        let help = format!(
            "a tile has a constant extent, such as a const parameter of the kernel, and a mask leaves elements out: `tl::arange(0, N) < {end}`"
        );
        return cx.error_help(call.args[1].loc, text, help);
    }
    let start = cx.constant(&call.args[0], "the start of a range");
    let end = cx.constant(&call.args[1], "the end of a range");
    let (Some(start), Some(end)) = (start, end) else { return Operand::failed(call.loc) };
    let (low, high) = DType::I32.range();
    if end <= start {
        return cx.error(call.loc, format!("{} needs start < end, found {start}..{end}", call.what));
    }
    if start < low || end > high {
        return cx.error(call.loc, format!("{} gives `i32`, which cannot hold {start}..{end}", call.what));
    }
    let Some(shape) = cx.legal_shape(&[end - start], call.loc) else { return Operand::failed(call.loc) };
    cx.emit(Arange { start: start as i32 }, Type::tile(DType::I32, shape), call.loc)
}

fn full(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    if let (first, Item::List(_)) = (&call.args[0], &call.args[1].item)
        && !matches!(first.item, Item::List(_) | Item::Failed)
    {
        let [value, shape] = [(first, "x"), (&call.args[1], "[N]")]
            .map(|(arg, other)| arg.loc.word().unwrap_or_else(|| other.into()));
        let text = format!("{} takes the shape before the value", call.what);
        return cx.error_help(call.args[1].loc, text, format!("write `tl::full({shape}, {value})`"));
    }
    let shape = cx.shape(&call.args[0]);
    let dtype = cx.generic_type();
    let value = match dtype {
        Some(dtype) => cx.value_as(&call.args[1], dtype, "the value of `tl::full`"),
        None => cx.value(&call.args[1]),
    };
    let (Some(shape), Some(value)) = (shape, value) else { return Operand::failed(call.loc) };
    if !cx.ty(value).is_scalar() {
        let found = cx.ty(value).clone();
        return cx
            .error(call.args[1].loc, format!("{} takes a scalar, found a tile of type {found}", call.what));
    }
    let tile = cx.splat(value, &shape, call.loc);
    Operand::value(tile, call.loc)
}

fn zeros(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let shape = cx.shape(&call.args[0]);
    let (Some(shape), Some(dtype)) = (shape, cx.generic_type()) else { return Operand::failed(call.loc) };
    zero_tile(cx, dtype, &shape, call)
}

fn zeros_like(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.value(&call.args[0]) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    zero_tile(cx, ty.dtype, &ty.shape, call)
}

fn zero_tile(cx: &mut dyn TypingCx, dtype: DType, shape: &Shape, call: &Call) -> Operand {
    let zero = cx.zero(dtype, call.loc);
    let tile = cx.splat(zero, shape, call.loc);
    Operand::value(tile, call.loc)
}

fn next_power_of_2(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(n) = cx.constant(&call.args[0], "the argument of `tl::next_power_of_2`") else {
        return Operand::failed(call.loc);
    };
    match u64::try_from(n).ok().and_then(u64::checked_next_power_of_two) {
        Some(power) => Operand::integer(i128::from(power), call.loc),
        None => cx.error(call.args[0].loc, format!("{n} has no next power of two")),
    }
}

fn length(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(param) = call.args[0].slice() else {
        let help = match call.args[0].item {
            Item::Text(_) => "a string is for messages alone: its length is not known here",
            _ => "the shape of a tile is known from the constants that made it",
        };
        return cx.error_help(call.args[0].loc, "`.len` is a method of slices", help);
    };
    debug_assert!(matches!(cx.func().params[param.index()].kind, ParamKind::Slice { .. }));
    cx.emit(Length { param }, Type::scalar(DType::I64), call.loc)
}

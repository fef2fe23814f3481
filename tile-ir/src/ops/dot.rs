//! The dot of tiles: matrix multiply-accumulate.

use super::atomic::choice;
use super::scalar::Scalar;
use super::typing::{Call, Item, Operand, TypingCx};
use super::{
    Cast, Intrinsic, IntrinsicGeneric, Kind, MethodChoice, Operation, Returns, expect_types, optional,
    required,
};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Block, Func, ParseError, Shape, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::diagnostic::{Loc, list};
use crate::support::dtype::DType;

/// `a · b + acc` over the last two axes: `[.., M, K] x [.., K, N] -> [.., M, N]`. It accumulates in the type of the
/// result; the order along K is unspecified but fixed for a variant.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    pub a: Value,
    pub b: Value,
    /// 0 everywhere, if it is not there.
    pub acc: Option<Value>,
    /// The most products of 8-bit floats that may be accumulated with fewer digits than the type has, where the kernel says so; 0 for
    /// none.
    pub imprecise: Option<u32>,
    pub input: InputPrecision,
    pub unit: DotUnit,
    /// Copies that a schedule prepared, which are started among its instructions.
    pub interleaved: Option<Value>,
}

/// Whose tensor cores multiply.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DotUnit {
    /// Those of each warp by itself (`mma`), or no tensor cores.
    #[default]
    Warp,
    /// Those of warpgroups (`wgmma`), which find both operands in shared memory, where all threads copy them.
    Wgmma,
    /// The same, but operand A is in registers.
    WgmmaRs,
}

/// Whether a dot is one of a block's own operations, and not of one nested in it.
pub fn has_own_dot(block: &Block) -> bool {
    block.ops.iter().any(|op| matches!(op.kind, Kind::Dot(_)))
}

impl DotUnit {
    const NAMES: [(&str, DotUnit); 3] =
        [("warp", DotUnit::Warp), ("wgmma", DotUnit::Wgmma), ("wgmma_rs", DotUnit::WgmmaRs)];

    pub fn is_warpgroup(self) -> bool {
        self != DotUnit::Warp
    }
}

impl FieldText for DotUnit {
    fn write(&self, out: &mut TextWriter) {
        let (name, _) = Self::NAMES[*self as usize];
        out.word(name);
    }

    fn read(input: &mut TextReader) -> Result<DotUnit, ParseError> {
        input.one_of(&DotUnit::NAMES)
    }

    fn absent() -> Option<DotUnit> {
        Some(DotUnit::default())
    }

    fn is_absent(&self) -> bool {
        *self == DotUnit::default()
    }
}

/// An operand of a dot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DotOperand {
    A,
    B,
}

impl DotOperand {
    pub const ALL: [DotOperand; 2] = [DotOperand::A, DotOperand::B];
}

impl Dot {
    pub fn operand(&self, which: DotOperand) -> Value {
        match which {
            DotOperand::A => self.a,
            DotOperand::B => self.b,
        }
    }

    pub fn operand_mut(&mut self, which: DotOperand) -> &mut Value {
        match which {
            DotOperand::A => &mut self.a,
            DotOperand::B => &mut self.b,
        }
    }
}

/// The precision of operands of `f32`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InputPrecision {
    /// All digits.
    #[default]
    Ieee,
    /// Eleven digits: operands are rounded to the nearest, halves to even.
    Tf32,
    /// Twice eleven digits, by three dots: of the rounded operands, and of each with the other's rounding error.
    Tf32x3,
}

impl InputPrecision {
    /// Each with what it is called.
    const NAMES: [(&str, InputPrecision); 3] =
        [("ieee", InputPrecision::Ieee), ("tf32", InputPrecision::Tf32), ("tf32x3", InputPrecision::Tf32x3)];

    fn name(self) -> &'static str {
        let (name, _) = Self::NAMES[self as usize];
        name
    }
}

impl FieldText for InputPrecision {
    fn write(&self, out: &mut TextWriter) {
        out.word(self.name());
    }

    fn read(input: &mut TextReader) -> Result<InputPrecision, ParseError> {
        input.one_of(&InputPrecision::NAMES)
    }

    fn absent() -> Option<InputPrecision> {
        Some(InputPrecision::default())
    }

    fn is_absent(&self) -> bool {
        *self == InputPrecision::default()
    }
}

/// What K of dots in TF32 is a multiple of.
const TF32_K_MULTIPLE: u32 = 8;

/// The types of a dot of one element type.
struct DotTypes {
    elem: DType,
    /// The element type of the accumulator.
    accumulator: DType,
    /// What K is a multiple of: an instruction takes that many at a time.
    k_multiple: u32,
}

const DOT_TYPES: [DotTypes; 7] = [
    DotTypes { elem: DType::F16, accumulator: DType::F32, k_multiple: 16 },
    DotTypes { elem: DType::BF16, accumulator: DType::F32, k_multiple: 16 },
    DotTypes { elem: DType::F32, accumulator: DType::F32, k_multiple: 1 },
    DotTypes { elem: DType::F64, accumulator: DType::F64, k_multiple: 4 },
    DotTypes { elem: DType::I8, accumulator: DType::I32, k_multiple: 32 },
    // Of bytes that were not converted, which a GPU does in fragments.
    DotTypes { elem: DType::F8E4M3, accumulator: DType::F32, k_multiple: 32 },
    DotTypes { elem: DType::F8E5M2, accumulator: DType::F32, k_multiple: 32 },
];

/// The element type of the operands after conversion: 8-bit floats are exact in `f16`.
fn operand_type(elem: DType) -> DType {
    if elem.is_f8() { DType::F16 } else { elem }
}

fn dot_types(elem: DType) -> Option<&'static DotTypes> {
    DOT_TYPES.iter().find(|types| types.elem == elem)
}

/// The shape of the dot of operands of these shapes, if they match.
fn dot_shape(a: &Shape, b: &Shape) -> Option<Shape> {
    let rank = a.rank();
    let fit = rank >= 2 && rank == b.rank() && a[..rank - 2] == b[..rank - 2] && a[rank - 1] == b[rank - 2];
    fit.then(|| a.without(rank - 1).with(rank - 1, b[rank - 1]))
}

/// The most products of 8-bit floats that are accumulated with fewer digits, where the kernel does not say.
const DEFAULT_IMPRECISE: u32 = 128;

impl Dot {
    /// The most products of 8-bit floats that may be accumulated with fewer digits; none if all digits are asked for.
    pub fn imprecise_products(&self) -> Option<u32> {
        Some(self.imprecise.unwrap_or(DEFAULT_IMPRECISE)).filter(|&most| most > 0)
    }

    /// The extent along K.
    pub fn inner(&self, func: &Func) -> u32 {
        let shape = &func.ty(self.a).shape;
        shape[shape.rank() - 1]
    }
}

syntax!(Dot: "dot" a, b ["add" acc] [imprecise] ["precision" input] ["by" unit] ["interleave" interleaved]);

impl Operation for Dot {
    fn operands(&self) -> Vec<Value> {
        [self.a, self.b].into_iter().chain(self.acc).chain(self.interleaved).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.a = change(self.a);
        self.b = change(self.b);
        self.acc = self.acc.map(&mut *change);
        self.interleaved = self.interleaved.map(change);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (a, b) = (func.ty(self.a), func.ty(self.b));
        expect_types("operand B's element type", b.dtype, a.dtype)?;
        let types = dot_types(a.dtype).ok_or_else(|| format!("no product of {}", a.dtype))?;
        let shape = dot_shape(&a.shape, &b.shape).ok_or_else(|| format!("{a} times {b}"))?;
        if !self.inner(func).is_multiple_of(types.k_multiple) {
            return Err(format!("an inner extent of {}", self.inner(func)));
        }
        if self.input != InputPrecision::Ieee {
            expect_types("the type of operands in TF32", a.dtype, DType::F32)?;
            expect_types("the rest of the inner extent", self.inner(func) % TF32_K_MULTIPLE, 0)?;
        }
        let wanted = Type::tile(types.accumulator, shape);
        expect_types("the result", func.ty(results[0]), &wanted)?;
        if let Some(copies) = self.interleaved {
            expect_types("what it interleaves", func.ty(copies), &Type::copies())?;
        }
        self.acc.map_or(Ok(()), |acc| expect_types("the accumulator", func.ty(acc), &wanted))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Dot { acc: self.acc }
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[Intrinsic {
    name: "dot",
    returns: Returns::Tile,
    example: "let rows = tl::reshape(tile, [8, 8]);\nlet square = tl::dot(rows, tl::trans(rows));\nlet again = tl::dot(rows, rows, square);",
    generic: IntrinsicGeneric::None,
    params: &[required("a"), required("b"), optional("acc")],
    doc: "The matrix product `a · b`, `[M, K]` times `[K, N]`, plus `acc` where it is given. A leading axis of both counts products that stand side by side.

| elements | of the result and of `acc` | K is a multiple of |
| --- | --- | --- |
| `f16`, `bf16`, `f8e4m3`, `f8e5m2` | `f32` | 16 |
| `f32` | `f32` | 1, by tensor cores (`.input_precision`) 8 |
| `f64` | `f64` | 4 |
| `i8` | `i32`, which wraps | 32 |

M and N may be any extent; a GPU's tensor cores take rows in sixteens and columns in eights, and repeat those of a smaller tile. Both factors have one element type. Either may be a transpose (`tl::trans`), or computed. Products of 16- and 8-bit floats are exact; those of `f32` and `f64` are added with one rounding (`f64` on x86-64 without FMA with two). The order of additions along K is unspecified but fixed for a variant; tensor cores cut sums of a few products to `f32` where a CPU rounds, and a GPU of capability 9.0 keeps fewer digits in sums of up to 128 products of 8-bit floats (`.max_num_imprecise_acc(n)`). NaN and infinities spread as in any sum of products.

A sum over tiles stays where it is, in the registers of the threads, if the loop carries it: `acc = tl::dot(a, b, acc)`.",
    check: dot,
}];

pub(super) const CHOICES: &[MethodChoice] = &[
    MethodChoice { what: "precision of its factors", methods: &["input_precision"] },
    MethodChoice { what: "number of imprecise products", methods: &["max_num_imprecise_acc"] },
];

pub(super) const METHODS: &[Intrinsic] = &[
    Intrinsic {
        name: "input_precision",
        returns: Returns::Tile,
        example: "let rows = tl::reshape(tile, [8, 8]);\nlet square = tl::dot(rows, tl::trans(rows)).input_precision(\"tf32\");",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("precision")],
        doc: "On `tl::dot` of `f32`: how many digits of the factors are multiplied. `\"ieee\"`, the default: all, by single threads of a GPU. `\"tf32\"`: eleven, by its tensor cores; both factors are rounded to the nearest such number, halves to even, on every processor, so that products are exact and are added in `f32`. `\"tf32x3\"`: nearly all, by tensor cores too: the rounded factors, and each with what rounding left of the other, are three products, and `a * b` is within `2^-21` of itself, where no factor rounds to infinity; a CPU multiplies all digits. In both of these K is a multiple of 8. `\"bf16x3\"` and `\"bf16x6\"`: by tensor cores of `bf16`, with each factor as a sum of two or three such numbers, and the largest three or six products of them: `a * b` is within `2^-16` or `2^-24` of itself, and `2^-130` times the other factor, on every processor, where no factor rounds to infinity; what a call adds up is added to `acc` once, in `f32`. It changes nothing for other element types. Written behind the call: `tl::dot(a, b, acc).input_precision(\"tf32\")`.",
        check: input_precision,
    },
    Intrinsic {
        name: "max_num_imprecise_acc",
        returns: Returns::Tile,
        example: "let rows = tl::reshape(tile, [2, 32]).to::<f8e4m3>();\nlet square = tl::dot(rows, tl::trans(rows)).max_num_imprecise_acc(128);",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("products")],
        doc: "On `tl::dot` of 8-bit floats: tensor cores may add up to that many products, a multiple of 32, with fewer digits before their sum is added to `acc` in `f32`; 128 where nothing is said, and with 0 none. Written behind the call: `tl::dot(a, b, acc).max_num_imprecise_acc(128)`. A GPU of capability 9.0 multiplies 8-bit floats at their full speed only so: of 32 products and the sum so far it keeps what is at least `2^-13` of the largest one, and as many digits of the new sum: each 32 products err by at most `34 * 2^-13` of the largest of these products and sums. It changes nothing for other element types and processors.",
        check: imprecise,
    },
];

/// What `.input_precision` names.
#[derive(Clone, Copy)]
enum NamedPrecision {
    Own(InputPrecision),
    /// As sums of so many `bf16`.
    Bf16Parts(usize),
}

fn input_precision(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let parts = [("bf16x3", NamedPrecision::Bf16Parts(2)), ("bf16x6", NamedPrecision::Bf16Parts(3))];
    let own = InputPrecision::NAMES.map(|(name, own)| (name, NamedPrecision::Own(own)));
    let Some(named) = choice(cx, call, &[&own[..], &parts].concat()) else {
        return Operand::failed(call.loc);
    };
    let Some(Kind::Dot(dot)) = cx.operation_of(&call.args[0]).map(|op| &mut op.kind) else {
        return not_a_dot(cx, call, "\"tf32\"");
    };
    let written = *dot;
    let ty = cx.ty(written.b).clone();
    let input = match named {
        NamedPrecision::Own(input) => input,
        NamedPrecision::Bf16Parts(parts) if ty.dtype == DType::F32 => {
            let result = cx.value(&call.args[0]).map(|value| cx.ty(value).clone());
            return result
                .map_or(Operand::failed(call.loc), |ty| by_bf16_parts(cx, &written, &ty, parts, call.loc));
        }
        NamedPrecision::Bf16Parts(_) => InputPrecision::Ieee,
    };
    let inner = ty.shape[ty.shape.rank() - 2];
    if input != InputPrecision::Ieee && ty.dtype == DType::F32 && !inner.is_multiple_of(TF32_K_MULTIPLE) {
        let text = format!(
            "a product in TF32 takes an inner extent that is a multiple of {TF32_K_MULTIPLE}, found {inner}"
        );
        let help = "load a wider tile, with 0 where there is nothing to multiply";
        return cx.error_help(call.args[0].loc, text, help);
    }
    if let Some(Kind::Dot(dot)) = cx.operation_of(&call.args[0]).map(|op| &mut op.kind)
        && ty.dtype == DType::F32
    {
        dot.input = input;
    }
    cx.extend_operation(&call.args[0], call.loc);
    Operand { loc: call.loc, ..call.args[0].clone() }
}

/// A dot of `f32` by dots of `bf16`: the products of parts whose places add up to less than their number, the smallest first. The dot as it was
/// written is left without a use.
fn by_bf16_parts(cx: &mut dyn TypingCx, dot: &Dot, result: &Type, parts: usize, loc: Loc) -> Operand {
    let [a, b] = [dot.a, dot.b].map(|whole| {
        let shape = cx.ty(whole).shape.clone();
        let [wide, narrow] = [DType::F32, DType::BF16].map(|dtype| vec![Type::tile(dtype, shape.clone())]);
        let mut rest = whole;
        let mut found = vec![];
        for _ in 0..parts {
            let part = cx.push(Cast::new(rest), narrow.clone(), loc)[0];
            let back = cx.push(Cast::new(part), wide.clone(), loc)[0];
            rest = cx.push(Scalar::named("sub", vec![rest, back]), wide.clone(), loc)[0];
            found.push(part);
        }
        found
    });
    let mut products = None;
    for sum in (0..parts).rev() {
        for place in 0..=sum {
            let product = Dot { a: a[place], b: b[sum - place], acc: products, ..*dot };
            products = Some(cx.push(product, vec![result.clone()], loc)[0]);
        }
    }
    let Some(products) = products else { return Operand::failed(loc) };
    // Tensor cores cut off digits of a large sum, which the smaller products are for.
    let sum = match dot.acc {
        Some(acc) => cx.push(Scalar::named("add", vec![acc, products]), vec![result.clone()], loc)[0],
        None => products,
    };
    Operand::value(sum, loc)
}

fn not_a_dot(cx: &mut dyn TypingCx, call: &Call, argument: &str) -> Operand {
    cx.error_help(
        call.name_loc,
        format!("{} belongs to `tl::dot`", call.what),
        format!("write it behind the call: `tl::dot(a, b).{}({argument})`", call.name),
    )
}

fn imprecise(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let most = cx.constant(&call.args[1], &format!("the argument of {}", call.what));
    let Some(most) = most else { return Operand::failed(call.loc) };
    let Some(most) = u32::try_from(most).ok().filter(|most| most.is_multiple_of(32)) else {
        let text = format!("{} takes 0 or a multiple of 32, found {most}", call.what);
        return cx.error(call.args[1].loc, text);
    };
    let Some(Kind::Dot(dot)) = cx.operation_of(&call.args[0]).map(|op| &mut op.kind) else {
        return not_a_dot(cx, call, "128");
    };
    dot.imprecise = Some(most);
    cx.extend_operation(&call.args[0], call.loc);
    Operand { loc: call.loc, ..call.args[0].clone() }
}

fn dot(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let a = cx.tile(&call.args[0], &call.what);
    let b = cx.tile(&call.args[1], &call.what);
    let (Some(a), Some(b)) = (a, b) else { return Operand::failed(call.loc) };
    let Some(result) = result_type(cx, call, [a, b]) else { return Operand::failed(call.loc) };
    let acc = match call.args.get(2) {
        None => None,
        Some(operand) => match accumulator(cx, operand, &result) {
            Some(acc) => Some(acc),
            None => return Operand::failed(call.loc),
        },
    };
    let [a, b] = [a, b].map(|operand| {
        let elem = operand_type(cx.ty(operand).dtype);
        cx.convert(operand, elem, call.loc)
    });
    cx.emit(
        Dot {
            a,
            b,
            acc,
            imprecise: None,
            input: InputPrecision::Ieee,
            unit: DotUnit::Warp,
            interleaved: None,
        },
        result,
        call.loc,
    )
}

/// The type of the dot of two tiles, if they match.
fn result_type(cx: &mut dyn TypingCx, call: &Call, operands: [Value; 2]) -> Option<Type> {
    let [a, b] = operands.map(|operand| cx.ty(operand).clone());
    let Some(types) = dot_types(operand_type(a.dtype)) else {
        let known = list(DOT_TYPES.iter().map(|types| format!("`{}`", types.elem)));
        let text = format!("{} takes tiles of {known}, found {a}", call.what);
        let help = if a.dtype.is_integer() { "`.to::<f32>()`, or `.to::<i8>()`" } else { "`.to::<f32>()`" };
        cx.error_help(call.args[0].loc, text, format!("convert both: {help}"));
        return None;
    };
    if a.dtype != b.dtype {
        let text = format!("{} needs one element type, found {} and {}", call.what, a.dtype, b.dtype);
        cx.error_help(call.args[1].loc, text, format!("convert one side: `.to::<{}>()`", a.dtype));
        return None;
    }
    for (operand, ty) in call.args.iter().zip([&a, &b]) {
        if !(2..=3).contains(&ty.shape.rank()) {
            let text = format!("{} multiplies tiles of 2 axes, or of 3, found shape {}", call.what, ty.shape);
            cx.error_help(operand.loc, text, "`x.row()` and `x.col()` make a matrix of one axis");
            return None;
        }
    }
    let Some(shape) = dot_shape(&a.shape, &b.shape) else {
        mismatch(cx, call, [&a.shape, &b.shape]);
        return None;
    };
    let inner = a.shape[a.shape.rank() - 1];
    if !inner.is_multiple_of(types.k_multiple) {
        let text = format!(
            "{} of {} takes an inner extent that is a multiple of {}, found {inner}",
            call.what, a.dtype, types.k_multiple
        );
        let loc = call.args[0].loc.to(call.args[1].loc);
        cx.error_help(loc, text, "load a wider tile, with 0 where there is nothing to multiply");
        return None;
    }
    let shape = cx.legal(shape, call.loc)?;
    Some(Type::tile(types.accumulator, shape))
}

/// Reports operands whose extents do not match.
fn mismatch(cx: &mut dyn TypingCx, call: &Call, [a, b]: [&Shape; 2]) {
    let loc = call.args[1].loc;
    if a.rank() != b.rank() {
        let text = format!("{} multiplies tiles of as many axes, found {a} and {b}", call.what);
        cx.error(loc, text);
        return;
    }
    let rank = a.rank();
    if a[..rank - 2] != b[..rank - 2] {
        let text =
            format!("{} multiplies as many matrices as there are on the left, found {a} and {b}", call.what);
        cx.error(loc, text);
        return;
    }
    let (columns, rows) = (a[rank - 1], b[rank - 2]);
    let text = format!(
        "{} needs as many rows on the right as columns on the left, {columns}, found {rows}: {a} times {b}",
        call.what
    );
    if b[rank - 1] == columns {
        cx.error_help(loc, text, "transpose it: `tl::trans(..)`");
    } else {
        cx.error(loc, text);
    }
}

/// The accumulator, of the result's type and shape.
fn accumulator(cx: &mut dyn TypingCx, operand: &Operand, result: &Type) -> Option<Value> {
    let extents: Vec<String> = result.shape.iter().map(u32::to_string).collect();
    let help = format!("begin with `tl::zeros::<{}>([{}])`", result.dtype, extents.join(", "));
    if let Item::Value(value) = operand.item
        && cx.ty(value).dtype != result.dtype
    {
        let text =
            format!("the accumulator of this product is {}, found {}", result.dtype, cx.ty(value).dtype);
        cx.error_help(operand.loc, text, format!("{help}, or convert it: `.to::<{}>()`", result.dtype));
        return None;
    }
    let acc = cx.value_as(operand, result.dtype, "the accumulator of this product")?;
    let found = cx.ty(acc).shape.clone();
    if found == result.shape {
        return Some(acc);
    }
    let text = format!("the accumulator of this product has shape {}, found {found}", result.shape);
    cx.error_help(operand.loc, text, help);
    None
}

//! The matrix product.

use super::atomic::choice;
use super::{Intrinsic, IntrinsicGeneric, Kind, Operation, Returns, expect_types, optional, required};
use crate::frontend::typeck::{Call, Check, Operand};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Shape, Type, Value};
use crate::support::diagnostic::list;
use crate::support::dtype::DType;

/// `a · b + acc` over the last two axes: `[.., M, K] x [.., K, N] -> [.., M, N]`. Products are added in the type of the
/// result; their order along K is unspecified but fixed for a variant.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    pub a: Value,
    pub b: Value,
    /// 0 everywhere, if it is not there.
    pub acc: Option<Value>,
    /// The most products of 8-bit floats whose sum may have fewer digits than its type.
    pub imprecise: Option<u32>,
    pub input: InputPrecision,
}

/// The digits of factors of `f32` that are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InputPrecision {
    /// All.
    #[default]
    Ieee,
    /// Eleven: factors are rounded to the nearest, halves to even.
    Tf32,
    /// Twice eleven, by three products: of the rounded factors, and of each with what the other's rounding left.
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

/// What the inner extent of products of TF32 is a multiple of.
const TF32_INNER: u32 = 8;

/// How elements of a type multiply.
struct DotTypes {
    elem: DType,
    /// What products are added in.
    accumulator: DType,
    /// What the inner extent is a multiple of: an instruction takes that many at a time.
    inner: u32,
}

const PRODUCTS: [DotTypes; 7] = [
    DotTypes { elem: DType::F16, accumulator: DType::F32, inner: 16 },
    DotTypes { elem: DType::BF16, accumulator: DType::F32, inner: 16 },
    DotTypes { elem: DType::F32, accumulator: DType::F32, inner: 1 },
    DotTypes { elem: DType::F64, accumulator: DType::F64, inner: 4 },
    DotTypes { elem: DType::I8, accumulator: DType::I32, inner: 32 },
    // Of bytes that were not converted, which a GPU does in fragments.
    DotTypes { elem: DType::F8E4M3, accumulator: DType::F32, inner: 32 },
    DotTypes { elem: DType::F8E5M2, accumulator: DType::F32, inner: 32 },
];

/// The type that elements are multiplied as: 8-bit floats are exact in `f16`.
fn multiplied_as(elem: DType) -> DType {
    if elem.is_f8() { DType::F16 } else { elem }
}

fn product(elem: DType) -> Option<&'static DotTypes> {
    PRODUCTS.iter().find(|product| product.elem == elem)
}

/// The shape of a product of factors of these shapes, if they go together.
fn product_shape(a: &Shape, b: &Shape) -> Option<Shape> {
    let rank = a.rank();
    let fit = rank >= 2 && rank == b.rank() && a[..rank - 2] == b[..rank - 2] && a[rank - 1] == b[rank - 2];
    fit.then(|| a.without(rank - 1).with(rank - 1, b[rank - 1]))
}

impl Dot {
    /// The extent that is summed over.
    pub fn inner(&self, func: &Func) -> u32 {
        let shape = &func.ty(self.a).shape;
        shape[shape.rank() - 1]
    }
}

impl Operation for Dot {
    fn name(&self) -> &'static str {
        "dot"
    }

    fn operands(&self) -> Vec<Value> {
        [self.a, self.b].into_iter().chain(self.acc).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.a = change(self.a);
        self.b = change(self.b);
        self.acc = self.acc.map(change);
    }

    fn text(&self, _: &Func, name: &mut dyn FnMut(Value) -> String) -> String {
        let factors = format!("dot {}, {}", name(self.a), name(self.b));
        let sum = self.acc.map_or(factors.clone(), |acc| format!("{factors} add {}", name(acc)));
        let sum = self.imprecise.map_or(sum.clone(), |most| format!("{sum} imprecise {most}"));
        if self.input == InputPrecision::Ieee { sum } else { format!("{sum} {}", self.input.name()) }
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (a, b) = (func.ty(self.a), func.ty(self.b));
        expect_types("the second factor's element type", b.dtype, a.dtype)?;
        let product = product(a.dtype).ok_or_else(|| format!("no product of {}", a.dtype))?;
        let shape = product_shape(&a.shape, &b.shape).ok_or_else(|| format!("{a} times {b}"))?;
        if !self.inner(func).is_multiple_of(product.inner) {
            return Err(format!("an inner extent of {}", self.inner(func)));
        }
        if self.input != InputPrecision::Ieee {
            expect_types("the type of factors in TF32", a.dtype, DType::F32)?;
            expect_types("the rest of the inner extent", self.inner(func) % TF32_INNER, 0)?;
        }
        let wanted = Type::tile(product.accumulator, shape);
        expect_types("the result", func.ty(results[0]), &wanted)?;
        self.acc.map_or(Ok(()), |acc| expect_types("the accumulator", func.ty(acc), &wanted))
    }

    fn spread(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Dot { acc: self.acc }
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[Intrinsic {
    name: "dot",
    gives: Returns::Tile,
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

M and N may be any extent; a GPU's tensor cores take rows in sixteens and columns in eights, and repeat those of a smaller tile. Both factors have one element type. Either may be a transpose (`tl::trans`), or computed. Products of 16- and 8-bit floats are exact; those of `f32` and `f64` are added with one rounding (`f64` on x86-64 without FMA with two). The order of additions along K is unspecified but fixed for a variant; tensor cores cut sums of a few products to `f32` where other processors round; `.max_num_imprecise_acc(n)` lets those of 8-bit floats keep fewer digits. NaN and infinities spread as in any sum of products.

A sum over tiles stays where it is, in the registers of the threads, if the loop carries it: `acc = tl::dot(a, b, acc)`.",
    check: dot,
}];

pub(super) const METHODS: &[Intrinsic] = &[
    Intrinsic {
        name: "input_precision",
        gives: Returns::Tile,
        example: "let rows = tl::reshape(tile, [8, 8]);\nlet square = tl::dot(rows, tl::trans(rows)).input_precision(\"tf32\");",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("precision")],
        doc: "On `tl::dot` of `f32`: how many digits of the factors are multiplied. `\"ieee\"`, the default: all, by single threads of a GPU. `\"tf32\"`: eleven, by its tensor cores; both factors are rounded to the nearest such number, halves to even, on every processor, so that products are exact and are added in `f32`. `\"tf32x3\"`: nearly all, by tensor cores too: the rounded factors, and each with what rounding left of the other, are three products, and `a * b` is within `2^-21` of itself, where no factor rounds to infinity; a CPU multiplies all digits. In both of these K is a multiple of 8. It changes nothing for other element types. Written behind the call: `tl::dot(a, b, acc).input_precision(\"tf32\")`.",
        check: input_precision,
    },
    Intrinsic {
        name: "max_num_imprecise_acc",
        gives: Returns::Tile,
        example: "let rows = tl::reshape(tile, [2, 32]).to::<f8e4m3>();\nlet square = tl::dot(rows, tl::trans(rows)).max_num_imprecise_acc(128);",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("products")],
        doc: "On `tl::dot` of 8-bit floats: tensor cores may add up to that many products, a multiple of 32, with fewer digits before their sum is added to `acc` in `f32`. Written behind the call: `tl::dot(a, b, acc).max_num_imprecise_acc(128)`. A GPU of capability 9.0 multiplies 8-bit floats at their full speed only so: of 32 products and the sum so far it keeps what is at least `2^-13` of the largest one, and as many digits of the new sum: each 32 products err by at most `34 * 2^-13` of the largest of these products and sums. It changes nothing for other element types and processors.",
        check: imprecise,
    },
];

fn input_precision(check: &mut Check, call: &Call) -> Operand {
    let Some(input) = choice(check, call, &InputPrecision::NAMES) else { return check.failed(call.loc) };
    let Some(Kind::Dot(dot)) = check.operation_of(&call.args[0]).map(|op| &mut op.kind) else {
        return no_product(check, call, "\"tf32\"");
    };
    let factor = dot.b;
    let ty = check.ty(factor).clone();
    let inner = ty.shape[ty.shape.rank() - 2];
    if input != InputPrecision::Ieee && ty.dtype == DType::F32 && !inner.is_multiple_of(TF32_INNER) {
        let text = format!(
            "a product in TF32 takes an inner extent that is a multiple of {TF32_INNER}, found {inner}"
        );
        let help = "load a wider tile, with 0 where there is nothing to multiply";
        return check.error_help(call.args[0].loc, text, help);
    }
    if let Some(Kind::Dot(dot)) = check.operation_of(&call.args[0]).map(|op| &mut op.kind)
        && ty.dtype == DType::F32
    {
        dot.input = input;
    }
    check.extend_operation(&call.args[0], call.loc);
    Operand { loc: call.loc, ..call.args[0].clone() }
}

fn no_product(check: &mut Check, call: &Call, argument: &str) -> Operand {
    check.error_help(
        call.name_loc,
        format!("{} belongs to `tl::dot`", call.what),
        format!("write it behind the call: `tl::dot(a, b).{}({argument})`", call.name),
    )
}

fn imprecise(check: &mut Check, call: &Call) -> Operand {
    let most = check.constant(&call.args[1], &format!("the argument of {}", call.what));
    let Some(most) = most else { return check.failed(call.loc) };
    let Some(most) = u32::try_from(most).ok().filter(|most| *most > 0 && most.is_multiple_of(32)) else {
        let text = format!("{} takes a positive multiple of 32, found {most}", call.what);
        return check.error(call.args[1].loc, text);
    };
    let Some(Kind::Dot(dot)) = check.operation_of(&call.args[0]).map(|op| &mut op.kind) else {
        return no_product(check, call, "128");
    };
    dot.imprecise = Some(most);
    check.extend_operation(&call.args[0], call.loc);
    Operand { loc: call.loc, ..call.args[0].clone() }
}

fn dot(check: &mut Check, call: &Call) -> Operand {
    let a = check.tile(&call.args[0], &call.what);
    let b = check.tile(&call.args[1], &call.what);
    let (Some(a), Some(b)) = (a, b) else { return check.failed(call.loc) };
    let Some(result) = result_type(check, call, [a, b]) else { return check.failed(call.loc) };
    let acc = match call.args.get(2) {
        None => None,
        Some(operand) => match accumulator(check, operand, &result) {
            Some(acc) => Some(acc),
            None => return check.failed(call.loc),
        },
    };
    let [a, b] = [a, b].map(|factor| {
        let elem = multiplied_as(check.ty(factor).dtype);
        check.convert(factor, elem, call.loc)
    });
    check.emit(Dot { a, b, acc, imprecise: None, input: InputPrecision::Ieee }, result, call.loc)
}

/// What the product of two tiles is, if they multiply.
fn result_type(check: &mut Check, call: &Call, factors: [Value; 2]) -> Option<Type> {
    let [a, b] = factors.map(|factor| check.ty(factor).clone());
    let Some(product) = product(multiplied_as(a.dtype)) else {
        let known = list(PRODUCTS.iter().map(|product| format!("`{}`", product.elem)));
        let text = format!("{} takes tiles of {known}, found {a}", call.what);
        let help = if a.dtype.is_integer() { "`.to::<f32>()`, or `.to::<i8>()`" } else { "`.to::<f32>()`" };
        check.error_help(call.args[0].loc, text, format!("convert both: {help}"));
        return None;
    };
    if a.dtype != b.dtype {
        let text = format!("{} needs one element type, found {} and {}", call.what, a.dtype, b.dtype);
        check.error_help(call.args[1].loc, text, format!("convert one side: `.to::<{}>()`", a.dtype));
        return None;
    }
    for (operand, factor) in call.args.iter().zip([&a, &b]) {
        if !(2..=3).contains(&factor.shape.rank()) {
            let text =
                format!("{} multiplies tiles of 2 axes, or of 3, found shape {}", call.what, factor.shape);
            check.error_help(operand.loc, text, "`x.row()` and `x.col()` make a matrix of one axis");
            return None;
        }
    }
    let Some(shape) = product_shape(&a.shape, &b.shape) else {
        mismatch(check, call, [&a.shape, &b.shape]);
        return None;
    };
    let inner = a.shape[a.shape.rank() - 1];
    if !inner.is_multiple_of(product.inner) {
        let text = format!(
            "{} of {} takes an inner extent that is a multiple of {}, found {inner}",
            call.what, a.dtype, product.inner
        );
        let loc = call.args[0].loc.to(call.args[1].loc);
        check.error_help(loc, text, "load a wider tile, with 0 where there is nothing to multiply");
        return None;
    }
    let shape = check.legal(shape, call.loc)?;
    Some(Type::tile(product.accumulator, shape))
}

/// Reports factors whose extents do not go together.
fn mismatch(check: &mut Check, call: &Call, [a, b]: [&Shape; 2]) {
    let loc = call.args[1].loc;
    if a.rank() != b.rank() {
        let text = format!("{} multiplies tiles of as many axes, found {a} and {b}", call.what);
        check.error(loc, text);
        return;
    }
    let rank = a.rank();
    if a[..rank - 2] != b[..rank - 2] {
        let text =
            format!("{} multiplies as many matrices as there are on the left, found {a} and {b}", call.what);
        check.error(loc, text);
        return;
    }
    let (columns, rows) = (a[rank - 1], b[rank - 2]);
    let text = format!(
        "{} needs as many rows on the right as columns on the left, {columns}, found {rows}: {a} times {b}",
        call.what
    );
    if b[rank - 1] == columns {
        check.error_help(loc, text, "transpose it: `tl::trans(..)`");
    } else {
        check.error(loc, text);
    }
}

/// The accumulator, of the result's type and shape.
fn accumulator(check: &mut Check, operand: &Operand, result: &Type) -> Option<Value> {
    let acc = check.value_as(operand, result.dtype, "the accumulator of this product")?;
    let found = check.ty(acc).shape.clone();
    if found == result.shape {
        return Some(acc);
    }
    let text = format!("the accumulator of this product has shape {}, found {found}", result.shape);
    let extents: Vec<String> = result.shape.iter().map(u32::to_string).collect();
    let help = format!("begin with `tl::zeros::<{}>([{}])`", result.dtype, extents.join(", "));
    check.error_help(operand.loc, text, help);
    None
}

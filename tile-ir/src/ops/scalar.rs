//! Lanewise operations: one row each.
//!
//! A row says what it is called, what it takes, what it means on one element ([`Oracle`]), and how it is built on a
//! scalar or a vector of machine values (`lanes`), the same for both targets. Adding an operation is adding a row.
//!
//! `lanes` names functions of `mlir`, a later layer. Nothing here resolves them: `mlir` expands the rows for itself by
//! `for_each_lanewise`.

pub mod elementary;
pub mod functions;
mod operation;

use super::ConstantValue;
use crate::ir::{Func, Value};
use crate::support::dtype::{Class, DType};
use crate::support::operator::{BinaryOp, UnaryOp};

/// How operand types determine the result's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeRule {
    /// All operands of one type, which is the result's.
    Same,
    /// All operands of one type; the result is `bool`.
    Compare,
    /// A `bool`, then two operands of one type, which is the result's.
    Select,
}

/// Whether a 16-bit float is computed with as it is, or in `f32` and rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfPolicy {
    Native,
    Widen,
}

/// What the operation is to analyses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArithKind {
    Add,
    Sub,
    Mul,
    /// `x * y + z`
    MulAdd,
    Div,
    /// The quotient rounded up.
    CeilDiv,
    Rem,
    Neg,
    Minimum,
    Maximum,
    And,
    Or,
    Shl,
    Shr,
    Select,
    /// e to the power of it.
    Exp,
    /// `lhs < rhs` and its like.
    Compare(BinaryOp),
    Other,
}

/// The value on one element, exact or in `f64`: folds constants, and is what tests compare with.
#[derive(Clone, Copy)]
pub struct Oracle<F> {
    pub function: F,
    /// Its Rust source, for the generated tests of the runtime's crate.
    pub source: &'static str,
}

macro_rules! oracle {
    ($function:expr) => {
        Some(Oracle { function: $function, source: stringify!($function) })
    };
}

pub type FloatOracle = Oracle<fn(&[f64]) -> f64>;
/// Operands, then the type, whose range the result is wrapped into.
pub type IntOracle = Oracle<fn(&[i128], DType) -> i128>;

/// The bound on the error of a float operation, in units in the last place of the result's type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ulp {
    pub f32: f64,
    pub f64: f64,
}

/// Correctly rounded.
const EXACT: Ulp = Ulp { f32: 0.5, f64: 0.5 };

/// What an operation may do on a GPU to numbers below the smallest normal `f32` when it computes in `f32`, as its doc
/// says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subnormal {
    Kept,
    /// A result may be zero.
    Result,
    /// An argument may count as zero.
    Argument,
}

/// One row of the table.
pub struct ScalarOp {
    /// Its place in [`TABLE`], and in every other table of the rows.
    pub index: usize,
    pub name: &'static str,
    pub doc: &'static str,
    pub params: &'static [&'static str],
    pub binary: Option<BinaryOp>,
    pub unary: Option<UnaryOp>,
    pub class: Class,
    pub rule: TypeRule,
    pub half_policy: HalfPolicy,
    pub arith: ArithKind,
    /// A last operand of zero is a mistake of integers where it is known at build.
    pub divides: bool,
    /// The identity element, which leaves any other operand as it is, bit for bit: a reduction can start from it.
    pub identity: Option<fn(DType) -> ConstantValue>,
    /// Cheap enough to compute again rather than move between threads.
    pub cheap: bool,
    pub ulp: Ulp,
    pub subnormal: Subnormal,
    /// Written in the language: a call of it is replaced by its body.
    pub in_language: bool,
    pub float: Option<FloatOracle>,
    /// The magnitude that a result counts as at least in its error bound; without it the error is relative to the result.
    pub error_floor: Option<FloatOracle>,
    pub int: Option<IntOracle>,
}

impl ScalarOp {
    /// Written between or before its operands, not called by name.
    pub fn is_operator(&self) -> bool {
        self.binary.is_some() || self.unary.is_some()
    }
}

impl std::fmt::Debug for ScalarOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const UNARY: ScalarOp = ScalarOp {
    index: 0,
    name: "",
    doc: "",
    params: &["x"],
    binary: None,
    unary: None,
    class: Class::Float,
    rule: TypeRule::Same,
    half_policy: HalfPolicy::Widen,
    arith: ArithKind::Other,
    divides: false,
    identity: None,
    cheap: false,
    ulp: EXACT,
    subnormal: Subnormal::Kept,
    in_language: false,
    float: None,
    error_floor: None,
    int: None,
};
const BINARY: ScalarOp = ScalarOp {
    params: &["x", "y"],
    class: Class::Number,
    cheap: true,
    half_policy: HalfPolicy::Native,
    ..UNARY
};
const COMPARE: ScalarOp = ScalarOp { rule: TypeRule::Compare, ..BINARY };

/// The rows, each with its place.
const fn numbered<const N: usize>(mut rows: [ScalarOp; N]) -> [ScalarOp; N] {
    let mut index = 0;
    while index < N {
        rows[index].index = index;
        index += 1;
    }
    rows
}

macro_rules! table {
    ($($(#[doc = $doc:literal])+ $name:ident: $base:ident {
        lanes: $lanes:expr $(, common: $common:expr)?;
        $($field:ident: $value:expr),* $(,)?
    })*) => {
        /// Every lanewise operation.
        pub static TABLE: &[ScalarOp] = &numbered([
            $(ScalarOp {
                name: stringify!($name),
                doc: concat!($($doc, "\n"),+),
                $($field: $value,)*
                ..$base
            }),*
        ]);
    };
}

include!("oracle.rs");

/// The source of what the oracles are written with, for the generated tests.
pub const ORACLE_SOURCE: &str = include_str!("oracle.rs");

/// The least and the greatest value of a type.
fn extremes(dtype: DType) -> (ConstantValue, ConstantValue) {
    if dtype.is_float() {
        return (ConstantValue::Float(f64::NEG_INFINITY), ConstantValue::Float(f64::INFINITY));
    }
    let (low, high) = dtype.range();
    (ConstantValue::Int(low), ConstantValue::Int(high))
}

/// Hands every row to a macro: what a stage does for all of them is a table that it expands. A row begins with how it is
/// built, which only `mlir` reads: `lanes` of any operands, and where there is a cheaper way for small ones, `common`.
#[rustfmt::skip]
#[macro_export]
macro_rules! for_each_lanewise { ($table:ident) => { $table! {
    /// The sum. Integers wrap, which a debug build reports; in an offset or a comparison they are exact.
    add: BINARY {
        lanes: lanes::add; binary: Some(BinaryOp::Add), arith: ArithKind::Add,
        identity: Some(|dtype| if dtype.is_float() { ConstantValue::Float(-0.0) } else { ConstantValue::Int(0) }),
        float: oracle!(|a| a[0] + a[1]), int: oracle!(|a, _| a[0] + a[1]),
    }
    /// The difference. Integers wrap, which a debug build reports; in an offset or a comparison they are exact.
    sub: BINARY {
        lanes: lanes::sub; binary: Some(BinaryOp::Sub), arith: ArithKind::Sub,
        float: oracle!(|a| a[0] - a[1]), int: oracle!(|a, _| a[0] - a[1]),
    }
    /// The product. Integers wrap, which a debug build reports; in an offset or a comparison they are exact.
    mul: BINARY {
        lanes: lanes::mul; binary: Some(BinaryOp::Mul), arith: ArithKind::Mul,
        float: oracle!(|a| a[0] * a[1]), int: oracle!(|a, _| a[0].wrapping_mul(a[1])),
    }
    /// The quotient. Integers truncate toward zero; `x / 0` is 0 and `MIN / -1` is `MIN`. Of floats it is correctly rounded,
    /// but for an `f32` on a GPU: there it is exact where the quotient is an `f32` and within 1 ULP elsewhere, or within 2 ULP
    /// where dividend or quotient is below 2^-100.
    div: BINARY {
        lanes: lanes::div;
        binary: Some(BinaryOp::Div), arith: ArithKind::Div, divides: true, half_policy: HalfPolicy::Widen,
        ulp: Ulp { f32: 2.0, f64: 0.5 },
        float: oracle!(|a| a[0] / a[1]), int: oracle!(|a, _| if a[1] == 0 { 0 } else { a[0] / a[1] }),
    }
    /// The remainder of the truncating quotient, with the sign of `x`, exact; `x % 0` is `x` of integers and NaN of floats. Of floats
    /// it is C's `fmod`, also for infinities, and takes a loop: two steps where the quotient is below 2^8, or 2^11 of `f64`.
    rem: BINARY {
        lanes: lanes::rem; binary: Some(BinaryOp::Rem), arith: ArithKind::Rem, divides: true, half_policy: HalfPolicy::Widen,
        float: oracle!(|a| a[0] % a[1]), int: oracle!(|a, _| if a[1] == 0 { a[0] } else { a[0] % a[1] }),
    }
    /// The sum modulo two to the power of the type's bits: of integers that are meant to wrap, such as hashes.
    wrapping_add: BINARY { lanes: lanes::add; class: Class::Integer, int: oracle!(|a, _| a[0] + a[1]) }
    /// The difference modulo two to the power of the type's bits.
    wrapping_sub: BINARY { lanes: lanes::sub; class: Class::Integer, int: oracle!(|a, _| a[0] - a[1]) }
    /// The product modulo two to the power of the type's bits.
    wrapping_mul: BINARY { lanes: lanes::mul; class: Class::Integer, int: oracle!(|a, _| a[0].wrapping_mul(a[1])) }
    /// Bitwise and; logical and of bools.
    and: BINARY {
        lanes: |b, a, _| b.and(a[0], a[1]); binary: Some(BinaryOp::And), arith: ArithKind::And, class: Class::Bits,
        identity: Some(|dtype| ConstantValue::Int(if dtype == DType::Bool { 1 } else { dtype.wrap(-1) })),
        int: oracle!(|a, _| a[0] & a[1]),
    }
    /// Bitwise or; logical or of bools.
    or: BINARY {
        lanes: |b, a, _| b.or(a[0], a[1]); binary: Some(BinaryOp::Or), arith: ArithKind::Or, class: Class::Bits,
        identity: Some(|_| ConstantValue::Int(0)),
        int: oracle!(|a, _| a[0] | a[1]),
    }
    /// Bitwise exclusive or; "differs" on bools.
    xor: BINARY {
        lanes: |b, a, _| b.xor(a[0], a[1]); binary: Some(BinaryOp::Xor), class: Class::Bits,
        identity: Some(|_| ConstantValue::Int(0)),
        int: oracle!(|a, _| a[0] ^ a[1]),
    }
    /// Shift to the left. As in Rust's release builds only the low bits of the amount count: 33 on an `i32` shifts by 1.
    shl: BINARY {
        lanes: lanes::shl; binary: Some(BinaryOp::Shl), arith: ArithKind::Shl, class: Class::Integer,
        int: oracle!(|a, dtype| a[0] << (a[1] & (dtype.bytes() * 8 - 1) as i128)),
    }
    /// Shift to the right, filling with the sign of a signed `x` and with zeros otherwise. Only the low bits of the
    /// amount count.
    shr: BINARY {
        lanes: lanes::shr; binary: Some(BinaryOp::Shr), arith: ArithKind::Shr, class: Class::Integer,
        int: oracle!(|a, dtype| a[0] >> (a[1] & (dtype.bytes() * 8 - 1) as i128)),
    }
    /// The negative. `-0.0` and `0.0` are each other's; `-MIN` is `MIN`, which a debug build reports.
    neg: BINARY {
        lanes: lanes::neg; params: &["x"], unary: Some(UnaryOp::Neg), arith: ArithKind::Neg, class: Class::Signed,
        float: oracle!(|a| -a[0]), int: oracle!(|a, _| -a[0]),
    }
    /// Every bit turned; "not" on bools.
    not: BINARY {
        lanes: |b, a, _| b.not(a[0]); params: &["x"], unary: Some(UnaryOp::Not), class: Class::Bits,
        int: oracle!(|a, dtype| if dtype == DType::Bool { 1 - a[0] } else { !a[0] }),
    }
    /// Equal. False when either is NaN; `-0.0 == 0.0`.
    eq: COMPARE {
        lanes: lanes::eq; binary: Some(BinaryOp::Eq), arith: ArithKind::Compare(BinaryOp::Eq), class: Class::Computed,
        float: oracle!(|a| f64::from(a[0] == a[1])), int: oracle!(|a, _| truth(a[0] == a[1])),
    }
    /// Not equal. True when either is NaN.
    ne: COMPARE {
        lanes: lanes::ne; binary: Some(BinaryOp::Ne), arith: ArithKind::Compare(BinaryOp::Ne), class: Class::Computed,
        float: oracle!(|a| f64::from(a[0] != a[1])), int: oracle!(|a, _| truth(a[0] != a[1])),
    }
    /// Less. False when either is NaN.
    lt: COMPARE {
        lanes: lanes::lt; binary: Some(BinaryOp::Lt), arith: ArithKind::Compare(BinaryOp::Lt),
        float: oracle!(|a| f64::from(a[0] < a[1])), int: oracle!(|a, _| truth(a[0] < a[1])),
    }
    /// Less or equal. False when either is NaN.
    le: COMPARE {
        lanes: lanes::le; binary: Some(BinaryOp::Le), arith: ArithKind::Compare(BinaryOp::Le),
        float: oracle!(|a| f64::from(a[0] <= a[1])), int: oracle!(|a, _| truth(a[0] <= a[1])),
    }
    /// Greater. False when either is NaN.
    gt: COMPARE {
        lanes: lanes::gt; binary: Some(BinaryOp::Gt), arith: ArithKind::Compare(BinaryOp::Gt),
        float: oracle!(|a| f64::from(a[0] > a[1])), int: oracle!(|a, _| truth(a[0] > a[1])),
    }
    /// Greater or equal. False when either is NaN.
    ge: COMPARE {
        lanes: lanes::ge; binary: Some(BinaryOp::Ge), arith: ArithKind::Compare(BinaryOp::Ge),
        float: oracle!(|a| f64::from(a[0] >= a[1])), int: oracle!(|a, _| truth(a[0] >= a[1])),
    }
    /// `x` where the condition holds, `y` elsewhere. Both sides are evaluated (Triton calls it `where`).
    select: BINARY {
        lanes: |b, a, _| b.select(a[0], a[1], a[2]);
        params: &["condition", "x", "y"], rule: TypeRule::Select, class: Class::Any, arith: ArithKind::Select,
        float: oracle!(|a| if a[0] != 0.0 { a[1] } else { a[2] }),
        int: oracle!(|a, _| if a[0] != 0 { a[1] } else { a[2] }),
    }
    /// The larger. NaN if either is NaN (`max_num` ignores it); `maximum(-0.0, 0.0)` is `0.0`.
    maximum: BINARY {
        lanes: lanes::maximum; arith: ArithKind::Maximum,
        identity: Some(|dtype| extremes(dtype).0),
        float: oracle!(|a| if a[0].is_nan() || a[1].is_nan() { f64::NAN } else { larger(a[0], a[1]) }),
        int: oracle!(|a, _| a[0].max(a[1])),
    }
    /// The smaller. NaN if either is NaN (`min_num` ignores it); `minimum(-0.0, 0.0)` is `-0.0`.
    minimum: BINARY {
        lanes: lanes::minimum; arith: ArithKind::Minimum,
        identity: Some(|dtype| extremes(dtype).1),
        float: oracle!(|a| if a[0].is_nan() || a[1].is_nan() { f64::NAN } else { smaller(a[0], a[1]) }),
        int: oracle!(|a, _| a[0].min(a[1])),
    }
    /// The larger, or the one that is not NaN. NaN only if both are; `max_num(-0.0, 0.0)` is `0.0`.
    max_num: BINARY {
        lanes: lanes::max_num; class: Class::Float, float: oracle!(|a| larger(a[0], a[1])),
    }
    /// The smaller, or the one that is not NaN. NaN only if both are; `min_num(-0.0, 0.0)` is `-0.0`.
    min_num: BINARY {
        lanes: lanes::min_num; class: Class::Float, float: oracle!(|a| smaller(a[0], a[1])),
    }
    /// `minimum(maximum(x, low), high)`: NaN if any is NaN, and `high` where `low > high`.
    clamp: BINARY {
        lanes: lanes::clamp; params: &["x", "low", "high"],
        float: oracle!(|a| if a.iter().any(|v| v.is_nan()) { f64::NAN } else { smaller(larger(a[0], a[1]), a[2]) }),
        int: oracle!(|a, _| a[0].max(a[1]).min(a[2])),
    }
    /// The magnitude; `abs(MIN)` is `MIN`, `abs(-0.0)` is `0.0`.
    abs: BINARY {
        lanes: lanes::abs; params: &["x"], float: oracle!(|a| a[0].abs()), int: oracle!(|a, _| a[0].abs()),
    }
    /// The largest integer not above `x`.
    floor: UNARY { lanes: |b, a, _| b.floor(a[0]); float: oracle!(|a| a[0].floor()) }
    /// The smallest integer not below `x`.
    ceil: UNARY { lanes: |b, a, _| b.ceil(a[0]); float: oracle!(|a| a[0].ceil()) }
    /// The integer nearest to `x`, halves away from zero: `round(2.5)` is `3.0`, `round(-2.5)` is `-3.0`. The sign of a
    /// zero result is that of `x`.
    round: UNARY { lanes: |b, a, _| b.round(a[0]); cheap: true, float: oracle!(|a| a[0].round()) }
    /// The integer nearest to `x`, halves to the even one: `round_ties_even(2.5)` is `2.0`. The sign of a zero result is
    /// that of `x`. One instruction on every processor but x86-64 without SSE4.1.
    round_ties_even: UNARY {
        lanes: |b, a, _| b.round_ties_even(a[0]); cheap: true, float: oracle!(|a| a[0].round_ties_even()),
    }
    /// `x` without its fraction: the nearest integer toward zero. The sign of a zero result is that of `x`.
    trunc: UNARY { lanes: |b, a, _| b.truncate(a[0]); cheap: true, float: oracle!(|a| a[0].trunc()) }
    /// Whether `x` is not a number.
    is_nan: UNARY {
        lanes: lanes::is_nan; rule: TypeRule::Compare, cheap: true, float: oracle!(|a| f64::from(a[0].is_nan())),
    }
    /// Whether `x` is neither infinite nor NaN.
    is_finite: UNARY {
        lanes: lanes::is_finite; rule: TypeRule::Compare, cheap: true, float: oracle!(|a| f64::from(a[0].is_finite())),
    }
    /// Whether `x` is an infinity of either sign.
    is_infinite: UNARY {
        lanes: lanes::is_infinite; rule: TypeRule::Compare, cheap: true,
        float: oracle!(|a| f64::from(a[0].is_infinite())),
    }
    /// The square root, correctly rounded; NaN below zero.
    sqrt: UNARY { lanes: |b, a, _| b.sqrt(a[0]); float: oracle!(|a| a[0].sqrt()) }
    /// The square root, correctly rounded, as `sqrt` is.
    sqrt_rn: UNARY { lanes: |b, a, _| b.sqrt(a[0]); float: oracle!(|a| a[0].sqrt()) }
    /// The quotient of floats, correctly rounded everywhere. On a GPU it takes a branch, and more instructions than `x / y`.
    div_rn: UNARY { lanes: lanes::div_rn; params: &["x", "y"], float: oracle!(|a| a[0] / a[1]) }
    /// `1 / sqrt(x)`. `rsqrt(0.0)` is infinity. Within 2 ULP. On a GPU a subnormal `f32` argument counts as zero.
    rsqrt: UNARY {
        lanes: math::rsqrt; ulp: Ulp { f32: 2.0, f64: 2.0 }, subnormal: Subnormal::Argument,
        float: oracle!(|a| 1.0 / a[0].sqrt()),
    }
    /// e to the power `x`, within 2 ULP. On a GPU the power of an `f32` sum, difference, product or quotient is within `3 + 2 * abs(x)` ULP,
    /// and 0 below the smallest normal `f32`. `exp(0.0)` is 1, so `exp(a - b)` is 1 where `a` equals `b`.
    exp: UNARY {
        lanes: math::exp; arith: ArithKind::Exp, ulp: Ulp { f32: 2.0, f64: 2.0 }, float: oracle!(|a| a[0].exp()),
    }
    /// 2 to the power `x`, within 3 ULP, and 2 of an `f64`. On a GPU a result below the smallest normal `f32` is 0.
    exp2: UNARY {
        lanes: math::exp2;
        ulp: Ulp { f32: 3.0, f64: 2.0 }, subnormal: Subnormal::Result, float: oracle!(|a| a[0].exp2()),
    }
    /// The natural logarithm, within 2 ULP. `log(0.0)` is negative infinity, NaN below zero.
    log: UNARY { lanes: math::log; ulp: Ulp { f32: 2.0, f64: 2.0 }, float: oracle!(|a| a[0].ln()) }
    /// The logarithm to base 2, within 2 ULP. `log2(0.0)` is negative infinity, NaN below zero.
    log2: UNARY { lanes: math::log2; ulp: Ulp { f32: 2.0, f64: 2.0 }, float: oracle!(|a| a[0].log2()) }
    /// `log(1 + x)`, within 2 ULP also near 0. Negative infinity at -1, NaN below; the sign of a zero result is that of `x`.
    log1p: UNARY { lanes: math::log1p; ulp: Ulp { f32: 2.0, f64: 2.0 }, float: oracle!(|a| a[0].ln_1p()) }
    /// The sine of `x` in radians, within 2 ULP for every finite `x`; NaN at infinity.
    sin: UNARY { lanes: math::sin; ulp: Ulp { f32: 2.0, f64: 2.0 }, float: oracle!(|a| a[0].sin()) }
    /// The cosine of `x` in radians, within 2 ULP for every finite `x`; NaN at infinity.
    cos: UNARY { lanes: math::cos; ulp: Ulp { f32: 2.0, f64: 2.0 }, float: oracle!(|a| a[0].cos()) }
    /// The tangent of `x` in radians, within 4 ULP for every finite `x`, and 3 of an `f64`; NaN at infinity.
    tan: UNARY { lanes: math::tan; ulp: Ulp { f32: 4.0, f64: 3.0 }, float: oracle!(|a| a[0].tan()) }
    /// The hyperbolic tangent, within 2 ULP.
    tanh: UNARY {
        lanes: math::tanh, common: Common { below: math::NEAR_TANH, lanes: math::near_tanh_f32 };
        ulp: Ulp { f32: 2.0, f64: 3.0 }, float: oracle!(|a| a[0].tanh()),
    }
    /// The error function, within 2 ULP.
    erf: UNARY { lanes: math::erf; ulp: Ulp { f32: 2.0, f64: 3.0 }, float: oracle!(|a| libm::erf(a[0])) }
    /// `1 / (1 + exp(-x))`, within 4 ULP. On a GPU a result below the smallest normal `f32`
    /// is 0.
    sigmoid: UNARY {
        lanes: math::sigmoid; ulp: Ulp { f32: 4.0, f64: 4.0 }, subnormal: Subnormal::Result,
        float: oracle!(|a| 1.0 / (1.0 + (-a[0]).exp())),
    }
    /// `x * y + z` with one rounding; an `f64` result is rounded twice on an x86-64 processor without FMA.
    fma: UNARY {
        lanes: rounding::fma; params: &["x", "y", "z"], cheap: true, arith: ArithKind::MulAdd,
        float: oracle!(|a| a[0].mul_add(a[1], a[2])),
    }
    /// The quotient rounded up: `ceil(x / y)` of integers, exact over the whole range; `cdiv(x, 0)` is 0.
    cdiv: BINARY {
        lanes: lanes::cdiv; arith: ArithKind::CeilDiv, class: Class::Integer, divides: true,
        int: oracle!(|a, _| if a[1] == 0 { 0 } else {
            a[0] / a[1] + truth(a[0] % a[1] != 0 && (a[0] < 0) == (a[1] < 0))
        }),
    }
    /// The upper half of the whole product: what `x * y` leaves out. Signed as the type is.
    mulhi: BINARY {
        lanes: lanes::mulhi; class: Class::Integer,
        int: oracle!(|a, dtype| high_half(a[0], a[1], (8 * dtype.bytes()) as i128)),
    }
    /// The upper half of the whole product of the operands' bits, read as unsigned numbers whatever their type: what a
    /// Philox round and a division by a constant are made of.
    umulhi: BINARY {
        lanes: lanes::umulhi; class: Class::Integer,
        int: oracle!(|a, dtype| {
            let bits = (8 * dtype.bytes()) as i128;
            high_half(a[0] & ((1 << bits) - 1), a[1] & ((1 << bits) - 1), bits)
        }),
    }
    /// How many bits of `x` are 1: CUDA's `__popc`.
    popc: BINARY {
        lanes: |b, a, _| b.op("llvm.intr.ctpop", a, a[0].ty);
        params: &["x"], class: Class::Integer, int: oracle!(|a, dtype| (0..bit_count(dtype)).map(|i| bit(a[0], i)).sum()),
    }
    /// How many bits of `x` are 0 above its highest 1, all of them for 0: CUDA's `__clz`.
    clz: BINARY {
        lanes: lanes::clz; params: &["x"], class: Class::Integer,
        int: oracle!(|a, dtype| (0..bit_count(dtype)).take_while(|i| bit(a[0], bit_count(dtype) - 1 - i) == 0).count() as i128),
    }
    /// The place of the lowest 1 of `x`, counted from 1, or 0 for 0: CUDA's `__ffs`.
    ffs: BINARY {
        lanes: lanes::ffs; params: &["x"], class: Class::Integer,
        int: oracle!(|a, dtype| (0..bit_count(dtype)).find(|&i| bit(a[0], i) == 1).map_or(0, |i| i + 1)),
    }
    /// The bits of `x` in reverse order: CUDA's `__brev`.
    brev: BINARY {
        lanes: |b, a, _| b.op("llvm.intr.bitreverse", a, a[0].ty);
        params: &["x"], class: Class::Integer,
        int: oracle!(|a, dtype| (0..bit_count(dtype)).map(|i| bit(a[0], i) << (bit_count(dtype) - 1 - i)).sum()),
    }
    /// The magnitude of `x` with the sign of `y`, which may be that of a zero or a NaN.
    copysign: UNARY {
        lanes: |b, a, _| b.op("llvm.intr.copysign", a, a[0].ty);
        params: &["x", "y"], cheap: true, float: oracle!(|a| a[0].copysign(a[1])),
    }
} } }

pub use for_each_lanewise;

for_each_lanewise!(table);

/// Any row of the table by name.
pub fn row(name: &str) -> Option<&'static ScalarOp> {
    TABLE.iter().find(|op| op.name == name)
}

pub fn binary(op: BinaryOp) -> &'static ScalarOp {
    TABLE.iter().find(|row| row.binary == Some(op)).expect("every operator has a row")
}

pub fn unary(op: UnaryOp) -> &'static ScalarOp {
    TABLE.iter().find(|row| row.unary == Some(op)).expect("every operator has a row")
}

/// A row applied to tiles of one shape, or to scalars.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub op: &'static ScalarOp,
    pub args: Vec<Value>,
    /// Integer arithmetic that was shown, or is checked at launch, to stay in range.
    pub exact: bool,
    /// A product of floats that may be fused with the sum that uses it.
    pub contract: bool,
}

impl Scalar {
    pub fn new(op: &'static ScalarOp, args: Vec<Value>) -> Scalar {
        Scalar { op, args, exact: false, contract: false }
    }

    /// The row of this name.
    pub fn named(name: &str, args: Vec<Value>) -> Scalar {
        Scalar::new(row(name).expect("a row of the table"), args)
    }

    /// Whether an offset or a comparison takes its result as a number of any size, not as one of its type (invariant 9 of
    /// ARCHITECTURE.md): sums, differences and products, and shifts whose amount `constant` knows.
    pub fn is_exact_in_index(&self, constant: impl Fn(Value) -> Option<i128>) -> bool {
        match self.op.arith {
            ArithKind::Add | ArithKind::Sub | ArithKind::Mul | ArithKind::Neg => true,
            ArithKind::Shl => self.power(constant).is_some(),
            _ => false,
        }
    }

    /// What a left shift of an `i32` by an amount that `constant` knows multiplies by.
    pub fn power(&self, constant: impl Fn(Value) -> Option<i128>) -> Option<i128> {
        let amount = (self.op.arith == ArithKind::Shl).then(|| constant(self.args[1]))??;
        (0..31).contains(&amount).then(|| 1 << amount)
    }

    /// The element type the row computes in: that of its last operand.
    pub fn dtype(&self, func: &Func) -> DType {
        func.ty(*self.args.last().expect("a row has operands")).dtype
    }

    /// Whether it is a quotient or a remainder of integers.
    pub fn divides_integers(&self, func: &Func) -> bool {
        self.op.divides && self.dtype(func).is_integer()
    }
}

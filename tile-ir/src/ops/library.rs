//! Functions of `tl::` that are written in the language itself, checked at each call like a `#[fuse_fn]`.

use super::typing::{Call, Item, Operand, TypingCx};
use super::{Intrinsic, IntrinsicGeneric, Returns, optional, required};
use crate::support::dtype::DType;

const ONE: &[super::IntrinsicParam] = &[required("x")];
const ALONG: &[super::IntrinsicParam] = &[required("x"), optional("axis")];
const GROUPED: &[super::IntrinsicParam] =
    &[required("i"), required("j"), required("size_i"), required("size_j"), required("size_g")];

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "relu",
        returns: Returns::Tile,
        example: "let y = tl::relu(tile);",
        generic: IntrinsicGeneric::None,
        params: ONE,
        doc: "`maximum(x, 0)` of floats: exact, NaN for NaN, and `0.0` for `-0.0`.",
        check: |cx, call| cx.call_library("relu", call),
    },
    Intrinsic {
        name: "gelu",
        returns: Returns::Tile,
        example: "let y = tl::gelu(tile);\nlet quick = tl::gelu::<bf16>(tile);",
        generic: IntrinsicGeneric::OptionalType,
        params: ONE,
        doc: "`x * P(x)` with `P` the normal distribution function, `(1 + erf(x / sqrt(2))) / 2`, of floats of any shape. Within 16 ULP for `f32` and `f64`, also where `x` is far below zero and `1 + erf` has no digits left (`f64` within `16 + x * x` on an x86-64 processor without FMA); `f16` and `bf16` are computed in `f32` and rounded once, within 0.75 ULP. On a GPU an `f32` result below the smallest normal one may be 0. `gelu` of infinity is infinity, of negative infinity 0, of NaN NaN.\n\nWith a 16-bit float between `::<` and `>`, `tl::gelu::<bf16>(x)` of an `f32` tile is only as exact as a result that will be rounded to that type needs, relative error below 2^-14 for `f16` (2^-12 from -9 to -5.7, and -1e-18 below) and below 2^-11 for `bf16` (2^-10 below -5.7), at half the instructions; it is `f32` all the same.",
        check: |cx, call| as_exact_as(cx, call, ["gelu", "gelu_f16", "gelu_bf16"]),
    },
    Intrinsic {
        name: "gelu_tanh",
        returns: Returns::Tile,
        example: "let y = tl::gelu_tanh(tile);\nlet quick = tl::gelu_tanh::<bf16>(tile);",
        generic: IntrinsicGeneric::OptionalType,
        params: ONE,
        doc: "`x * (1 + tanh(z)) / 2` with `z = sqrt(2 / pi) * (x + 0.044715 * x^3)`, the usual approximation of `gelu`, of floats of any shape. It is computed as `x * sigmoid(2 * z)`, which keeps its digits far below zero: within `8 + 5 * abs(z)` ULP for `f32` and `f64`; `f16` and `bf16` are computed in `f32` and rounded once, within 0.57 ULP. Where `sigmoid` is below the smallest normal `f32` the result may be 0 on a GPU, and of 16-bit floats anywhere. `gelu_tanh` of infinity is infinity, of negative infinity `-0.0`, of NaN NaN.\n\nWith a 16-bit float between `::<` and `>`, `tl::gelu_tanh::<bf16>(x)` of an `f32` tile is only as exact as a result that will be rounded to that type needs, relative error below 2^-15, at less than half the instructions; it is `f32` all the same.",
        check: |cx, call| as_exact_as(cx, call, ["gelu_tanh", "gelu_tanh_half", "gelu_tanh_half"]),
    },
    Intrinsic {
        name: "silu",
        returns: Returns::Tile,
        example: "let y = tl::silu(tile);\nlet quick = tl::silu::<bf16>(tile);",
        generic: IntrinsicGeneric::OptionalType,
        params: ONE,
        doc: "`x * sigmoid(x)`, also called swish, of floats of any shape. Within 5 ULP for `f32` and `f64`; `f16` and `bf16` are computed in `f32` and rounded once, within 0.57 ULP. Where `sigmoid` is below the smallest normal `f32` the result has as few digits; it is 0 on a GPU, and may be of 16-bit floats anywhere. `silu` of infinity is infinity, of negative infinity `-0.0`, of NaN NaN.\n\nWith a 16-bit float between `::<` and `>`, `tl::silu::<bf16>(x)` of an `f32` tile is only as exact as a result that will be rounded to that type needs, relative error below 2^-15, at half the instructions; it is `f32` all the same.",
        check: |cx, call| as_exact_as(cx, call, ["silu", "silu_half", "silu_half"]),
    },
    Intrinsic {
        name: "softplus",
        returns: Returns::Tile,
        example: "let y = tl::softplus(tile);",
        generic: IntrinsicGeneric::None,
        params: ONE,
        doc: "`log(1 + exp(x))` of floats of any shape, as `maximum(x, 0) + log(1 + exp(-abs(x)))`, so that nothing overflows and small results keep their digits. Within 8 ULP for `f32` and `f64`; `f16` and `bf16` are computed in `f32` and rounded once. `softplus` of 100 is 100, of infinity infinity, of negative infinity 0, of NaN NaN.",
        check: |cx, call| cx.call_library("softplus", call),
    },
    Intrinsic {
        name: "softmax",
        returns: Returns::Tile,
        example: "let y = tl::softmax(tile, 0);\nlet rows = tl::softmax(tile.row() + tile.col(), 1);",
        generic: IntrinsicGeneric::None,
        params: ALONG,
        doc: "`exp(x - m) / sum(exp(x - m))` along `axis`, the last one without it, with `m` the maximum there. Of floats, in the shape and element type of `x`; `f16` and `bf16` are computed in `f32` and rounded once. The relative error is that of `x - m`, at most half a unit in its last place, and a few units more. An element of negative infinity, which is what masks one off, gives 0. Where all of them are, or any is NaN or infinity, the results are NaN.",
        check: |cx, call| cx.call_library("softmax", call),
    },
    Intrinsic {
        name: "log_softmax",
        returns: Returns::Tile,
        example: "let y = tl::log_softmax(tile, 0);",
        generic: IntrinsicGeneric::None,
        params: ALONG,
        doc: "`x - m - log(sum(exp(x - m)))` along `axis`, the last one without it, with `m` the maximum there: the logarithm of `softmax`, with its digits where that is close to 0. Of floats, in the shape and element type of `x`; `f16` and `bf16` are computed in `f32` and rounded once. An element of negative infinity gives negative infinity. Where all of them are, or any is NaN or infinity, results are NaN.",
        check: |cx, call| cx.call_library("log_softmax", call),
    },
    Intrinsic {
        name: "nextafter",
        returns: Returns::Tile,
        example: "let above = tl::nextafter(tile, f32::INFINITY);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("y")],
        doc: "The next number of the element type from `x` towards `y`, floats of any shape: `y` where they are equal, a subnormal number next to 0, infinity next to the largest number, NaN if either is.",
        check: |cx, call| cx.call_library("nextafter", call),
    },
    Intrinsic {
        name: "swizzle2d",
        returns: Returns::Tuple(2),
        example: "let across = tl::cdiv(n, BLOCK);\nlet down = tl::num_programs(0) / across;\nlet (row, col) = tl::swizzle2d(0, tl::program_id(0), down, across, 8);",
        generic: IntrinsicGeneric::None,
        params: GROUPED,
        doc: "The row and the column of a `size_i x size_j` grid that come at place `i * size_j + j` when the grid is taken by groups of `size_g` rows, each group column by column: `(0, 0), (1, 0), .. (size_g - 1, 0), (0, 1), ..`, then the next group; the last has the rows that are left. Programs that take tiles of a matrix product in this order, and so run at once near each other, share what they read in the cache. Integers of one type, scalars or tiles; exact. Places count along `j` too: `i` is 0 where programs are counted along one axis. The places `0..size_i * size_j` give each row and column once; what others give means nothing.",
        check: |cx, call| cx.call_library("swizzle2d", call),
    },
];

/// What the functions above are made of. Beside its own type parameter `T` each knows the type it computes in, `Wide`,
/// which is `f64` where `T` is and `f32` for every other float, and the constants `HALF` and `DOUBLE`: whether `T` is a
/// 16-bit float, and whether it is `f64`. What is decided by one of them is decided at build.
///
/// `gelu` far below zero is `-t P(-t)` with `t = |x|`, and `P(-t) = exp(-t^2 / 2) R(t)` with a smooth `R` that falls like
/// `1 / t`: `u` times a polynomial in `u = 1 / (1 + 0.3 t)`. With 10 coefficients its error is 2^-28 up to `t = 14.5`,
/// with 25 2^-58 up to 39. For results of 16 bits `log2 P(-t)` is a polynomial of 8 coefficients, and one power all there
/// is besides: for `f16` with error 2^-14.4 up to `t = 5.7`, where its digits end, and 2^-12.4 up to 9; for `bf16` 2^-11.2
/// up to 5.7, 2^-10.1 up to 13.1, and from there on, where results are below the smallest normal one, 0.22 of their units.
/// Rounding `t^2 / 2` to `f32` would cost up to a hundred ULP in the power; what was rounded off is known exactly and
/// multiplied back on. Above zero it is `x - t P(-t)`, without cancellation: at most half is taken off.
///
/// `log(1 + e)` is `2 artanh(z)` with `z = e / (2 + e)`, at most 1/3: `z` times a polynomial in `z^2` with 5 coefficients,
/// error 2^-27.8, or 12, error 2^-64.
const SOURCE: &str = r#"
fn relu<T: Float>(x: Tile<T>) -> Tile<T> {
    tl::maximum(x, 0.0)
}

fn gelu<T: Float>(x: Tile<T>) -> Tile<T> {
    let x = x.to::<Wide>();
    let below = if DOUBLE {
        below_f64(x)
    } else if !HALF {
        below_f32(x)
    } else if T::EPSILON > 0.005 {
        below_bf16(x)
    } else {
        below_f16(x)
    };
    (tl::maximum(x, 0.0) - below).to::<T>()
}

/// `t P(-t)` of `t = |x|`.
fn below_f32(x: Tile<f32>) -> Tile<f32> {
    let t = tl::minimum(tl::abs(x), 15.0);
    let square = t * t;
    let exponent = square * -0.7213475108146667;
    let power = tl::exp2(exponent);
    // What rounding took from the square, from its product and from the constant.
    let from_square = tl::fma(t, t, -square);
    let from_product = tl::fma(square, -0.7213475108146667, -exponent);
    let rest = tl::fma(from_square, -0.5, from_product * 0.6931471824645996);
    let rest = tl::fma(square, -6.6748788718484775e-09, rest);
    let power = tl::fma(power, rest, power);
    let (tail, _) = tail_f32(t);
    t * power * tail
}

/// `P(-t) / exp(-t^2 / 2)`, and `u`.
fn tail_f32(t: Tile<f32>) -> (Tile<f32>, Tile<f32>) {
    let w = tl::fma(t, 0.3, 1.0);
    let u = tl::rsqrt(w * w);
    let p = -0.020623469725251198 * u + 0.11243561655282974;
    let p = p * u + -0.2282136082649231;
    let p = p * u + 0.19178453087806702;
    let p = p * u + -0.07942349463701248;
    let p = p * u + 0.09615683555603027;
    let p = p * u + 0.07838965207338333;
    let p = p * u + 0.11023542284965515;
    let p = p * u + 0.11957181245088577;
    let p = p * u + 0.11968669295310974;
    (p * u, u)
}

fn below_f16(x: Tile<f32>) -> Tile<f32> {
    let t = tl::minimum(tl::abs(x), 9.0);
    let p = -1.1104484656243585e-06 * t + 4.430409171618521e-05;
    let p = p * t + -0.0007682513678446412;
    let p = p * t + 0.007752406410872936;
    let p = p * t + -0.05215194448828697;
    let p = p * t + -0.46053317189216614;
    let p = p * t + -1.150353193283081;
    let p = p * t + -1.0000617504119873;
    t * tl::exp2(p)
}

fn below_bf16(x: Tile<f32>) -> Tile<f32> {
    let t = tl::minimum(tl::abs(x), 14.0);
    let p = -3.6994441643400933e-07 * t + 2.001243228733074e-05;
    let p = p * t + -0.0004555349296424538;
    let p = p * t + 0.005761268083006144;
    let p = p * t + -0.045669928193092346;
    let p = p * t + -0.4705240726470947;
    let p = p * t + -1.14462149143219;
    let p = p * t + -1.0005954504013062;
    t * tl::exp2(p)
}

/// For a result that will be rounded to `f16`.
fn gelu_f16(x: Tile<f32>) -> Tile<f32> {
    tl::maximum(x, 0.0) - below_f16(x)
}

/// For a result that will be rounded to `bf16`.
fn gelu_bf16(x: Tile<f32>) -> Tile<f32> {
    tl::maximum(x, 0.0) - below_bf16(x)
}

fn below_f64(x: Tile<f64>) -> Tile<f64> {
    let t = tl::minimum(tl::abs(x), 40.0);
    let square = t * t;
    let power = tl::exp(square * -0.5);
    let from_square = tl::fma(t, t, -square);
    let power = power - power * (from_square * 0.5);
    let (tail, _) = tail_f64(t);
    t * power * tail
}

/// `P(-t) / exp(-t^2 / 2)`, and `u`.
fn tail_f64(t: Tile<f64>) -> (Tile<f64>, Tile<f64>) {
    let u = 1.0 / (t * 0.3 + 1.0);
    let q = 2.0 * u - 1.0;
    let p = 3.2717196978684373e-10 * q + -1.0798243009093232e-09;
    let p = p * q + -7.115459993555751e-10;
    let p = p * q + 7.459174607319705e-09;
    let p = p * q + -7.229124776470899e-09;
    let p = p * q + -2.0861636745466945e-08;
    let p = p * q + 5.865215002480256e-08;
    let p = p * q + -4.262392049771922e-09;
    let p = p * q + -2.3068450139453214e-07;
    let p = p * q + 3.504722908099026e-07;
    let p = p * q + 5.182063217562724e-07;
    let p = p * q + -2.2482907348667135e-06;
    let p = p * q + 2.446349770060674e-07;
    let p = p * q + 1.0730852189492178e-05;
    let p = p * q + -1.1125589176221361e-05;
    let p = p * q + -4.9746268978545906e-05;
    let p = p * q + 9.013992223007015e-05;
    let p = p * q + 0.0002836369069502216;
    let p = p * q + -0.0005756425164135343;
    let p = p * q + -0.002423896547394862;
    let p = p * q + 0.0018171357955066518;
    let p = p * q + 0.027760365473703273;
    let p = p * q + 0.08654963741846165;
    let p = p * q + 0.16457948408616296;
    let p = p * q + 0.22197061383443278;
    (p * u, u)
}

fn gelu_tanh<T: Float>(x: Tile<T>) -> Tile<T> {
    if HALF {
        gelu_tanh_half(x.to::<f32>()).to::<T>()
    } else {
        // Below -30 the result is 0, and infinity times 0 is avoided.
        let x = tl::maximum(x, -30.0);
        let z = x * (1.5957691216057308 + 0.07135481627260025 * x * x);
        x * tl::sigmoid(z)
    }
}

fn gelu_tanh_half(x: Tile<f32>) -> Tile<f32> {
    let x = tl::maximum(x, -30.0);
    x * sigmoid_half(x * (-0.102943236 * (x * x) + -2.3022082))
}

fn silu<T: Float>(x: Tile<T>) -> Tile<T> {
    if HALF {
        silu_half(x.to::<f32>()).to::<T>()
    } else {
        let least = if DOUBLE { -800.0 } else { -110.0 };
        let x = tl::maximum(x, least);
        x * tl::sigmoid(x)
    }
}

fn silu_half(x: Tile<f32>) -> Tile<f32> {
    let x = tl::maximum(x, -110.0);
    x * sigmoid_half(x * -1.442695)
}

/// `1 / (1 + 2^x)`: the root's square is 0 only where the power is infinite.
fn sigmoid_half(x: Tile<f32>) -> Tile<f32> {
    let root = tl::rsqrt(1.0 + tl::exp2(x));
    root * root
}

fn softplus<T: Float>(x: Tile<T>) -> Tile<T> {
    let x = x.to::<Wide>();
    let e = tl::exp(-tl::abs(x));
    let z = e / (2.0 + e);
    let s = z * z;
    let p = if DOUBLE {
        let p = 0.16488285931389568 * s + 0.06980390498332432;
        let p = p * s + 0.10976616637947494;
        let p = p * s + 0.11715274668110426;
        let p = p * s + 0.13336876815743837;
        let p = p * s + 0.1538444706045997;
        let p = p * s + 0.18181823422495252;
        let p = p * s + 0.22222222119103674;
        let p = p * s + 0.28571428572622926;
        let p = p * s + 0.3999999999999287;
        let p = p * s + 0.6666666666666669;
        let p = p * s + 2.0;
        p
    } else {
        let p = 0.28157779574394226 * s + 0.27965158224105835;
        let p = p * s + 0.4002459645271301;
        let p = p * s + 0.6666632294654846;
        let p = p * s + 2.0;
        p
    };
    (tl::maximum(x, 0.0) + z * p).to::<T>()
}

fn softmax<T: Float>(x: Tile<T>, axis: usize) -> Tile<T> {
    let x = x.to::<Wide>();
    let power = tl::exp(x - tl::max(x, axis, true));
    (power * (1.0 / tl::sum(power, axis, true))).to::<T>()
}

fn log_softmax<T: Float>(x: Tile<T>, axis: usize) -> Tile<T> {
    let x = x.to::<Wide>();
    let shifted = x - tl::max(x, axis, true);
    (shifted - tl::log(tl::sum(tl::exp(shifted), axis, true))).to::<T>()
}

fn swizzle2d<T: Integer>(
    i: Tile<T>, j: Tile<T>, size_i: Tile<T>, size_j: Tile<T>, size_g: Tile<T>,
) -> (Tile<T>, Tile<T>) {
    let place = i * size_j + j;
    let first = place / (size_g * size_j) * size_g;
    let place = place % (size_g * size_j);
    let rows = tl::minimum(size_i - first, size_g);
    (first + place % rows, place / rows)
}

/// Which of two elements with their positions is the maximum: ties to the smaller position, NaN largest. The left one is, if it may stand
/// before the right one and either has the smaller position or the right one may not stand before it.
fn larger_first<T: Number>(a: (T, i32), b: (T, i32)) -> (T, i32) {
    let ((x, i), (y, j)) = (a, b);
    let first = ((x >= y) | (x != x)) & ((i < j) | !((y >= x) | (y != y)));
    (tl::select(first, x, y), tl::select(first, i, j))
}

fn smaller_first<T: Number>(a: (T, i32), b: (T, i32)) -> (T, i32) {
    let ((x, i), (y, j)) = (a, b);
    let first = ((x <= y) | (x != x)) & ((i < j) | !((y <= x) | (y != y)));
    (tl::select(first, x, y), tl::select(first, i, j))
}
"#;

/// The functions that are rows, of `scalar::elementary`.
const ELEMENTARY: &str = concat!(include_str!("library/elementary.tl"), include_str!("library/gamma.tl"));

/// The text of the library.
pub(crate) fn source() -> String {
    [SOURCE, ELEMENTARY].concat()
}

/// Calls the first function; of an `f32` argument with `f16` between `::<` and `>` the second one, which is only as exact as
/// that type, and with `bf16` the third.
fn as_exact_as(cx: &mut dyn TypingCx, call: &Call, [exact, f16, bf16]: [&str; 3]) -> Operand {
    let name = match cx.generic_type() {
        Some(DType::F16) if computes_in_f32(cx, call) => f16,
        Some(DType::BF16) if computes_in_f32(cx, call) => bf16,
        Some(_) | None => exact,
    };
    cx.call_library(name, call)
}

/// Whether the argument is `f32`.
fn computes_in_f32(cx: &mut dyn TypingCx, call: &Call) -> bool {
    match call.args[0].item {
        Item::Value(value) => cx.ty(value).dtype == DType::F32,
        _ => false,
    }
}

//! Rows of functions that are written in the language itself (`ops/library/elementary.tl`): a call of one is replaced by
//! its body, so that no later stage knows them.

use super::{FloatOracle, ScalarOp, UNARY, Ulp, inverse_erf};

const IN_LANGUAGE: ScalarOp = ScalarOp { in_language: true, ..UNARY };

macro_rules! rows {
    ($($(#[doc = $doc:literal])+ $name:ident: ($($param:literal),+) [$f32:literal, $f64:literal] $oracle:expr $(, error_floor: $floor:expr)?;)*) => {
        /// Every function of this kind.
        pub static FUNCTIONS: &[ScalarOp] = &[
            $(ScalarOp {
                name: stringify!($name),
                doc: concat!($($doc, "\n"),+),
                params: &[$($param),+],
                ulp: Ulp { f32: $f32, f64: $f64 },
                float: Some(FloatOracle { function: $oracle, source: stringify!($oracle) }),
                $(error_floor: Some(FloatOracle { function: $floor, source: stringify!($floor) }),)?
                ..IN_LANGUAGE
            }),*
        ];
    };
}

rows! {
    /// e to the power `x`, less 1, within 3 ULP also near 0. -1 at negative infinity; the sign of a zero is that of `x`.
    expm1: ("x") [3.0, 3.0] |a| a[0].exp_m1();
    /// The hyperbolic sine, within 3 ULP. The sign of a zero is that of `x`.
    sinh: ("x") [3.0, 3.0] |a| a[0].sinh();
    /// The hyperbolic cosine, within 2 ULP.
    cosh: ("x") [2.0, 2.0] |a| a[0].cosh();
    /// The inverse of `sinh`, within 3 ULP. The sign of a zero is that of `x`.
    asinh: ("x") [3.0, 3.0] |a| libm::asinh(a[0]);
    /// The inverse of `cosh`, at least 0, within 3 ULP; NaN below 1.
    acosh: ("x") [3.0, 3.0] |a| if a[0] < 1.0 { f64::NAN } else { libm::acosh(a[0]) };
    /// The inverse of `tanh`, within 3 ULP. Infinity at 1, negative infinity at -1, NaN beyond; the sign of a zero is that of `x`.
    atanh: ("x") [3.0, 3.0] |a| libm::atanh(a[0]);
    /// The arcsine in radians, from `-pi/2` to `pi/2`, within 2 ULP; NaN beyond -1 and 1. The sign of a zero is that of `x`.
    asin: ("x") [2.0, 2.0] |a| a[0].asin();
    /// The arccosine in radians, from 0 to `pi`, within 2 ULP; NaN beyond -1 and 1.
    acos: ("x") [2.0, 2.0] |a| a[0].acos();
    /// The arctangent in radians, from `-pi/2` to `pi/2`, within 2 ULP. The sign of a zero is that of `x`.
    atan: ("x") [2.0, 2.0] |a| a[0].atan();
    /// The angle of the point `(x, y)` in radians, from `-pi` to `pi`, within 2 ULP. It has the sign of `y`, which may be that of
    /// a zero. Zeros and infinities are as in C: `atan2(0.0, -0.0)` is `pi`, `atan2` of two infinities `pi/4`.
    atan2: ("y", "x") [2.0, 2.0] |a| a[0].atan2(a[1]);
    /// `sqrt(x * x + y * y)` within 1.5 ULP, without overflow of the squares. Infinity if either is infinite, also beside NaN.
    hypot: ("x", "y") [1.5, 1.5] |a| libm::hypot(a[0], a[1]);
    /// `1 - erf(x)`, within 6 ULP also where that is close to 0.
    erfc: ("x") [6.0, 6.0] |a| libm::erfc(a[0]);
    /// The inverse of `erf`, within 3 ULP, and 4 of an `f64`. Infinity at 1, negative infinity at -1, NaN beyond; the sign of a zero is
    /// that of `x`.
    erfinv: ("x") [3.0, 4.0] |a| inverse_erf(a[0]);
    /// The logarithm of the absolute value of the gamma function, within 5 ULP. Below 0 its zeros are between numbers: there
    /// the error is within 5 ULP of the result or of `x`, whichever is larger. Infinity at 0, at the negative integers and at both infinities.
    lgamma: ("x") [5.0, 5.0] |a| libm::lgamma(a[0]), error_floor: |a| if a[0] < 0.0 { -a[0] } else { 0.0 };
    /// The cube root, within 1 ULP; negative below 0. The sign of a zero is that of `x`.
    cbrt: ("x") [1.0, 1.0] |a| a[0].cbrt();
    /// `x` to the power `y`, within 2 ULP. Special values are those of C: 1 where `y` is 0 or `x` is 1, whatever the other one is;
    /// NaN of a negative `x` where `y` is no integer; the sign of `x` where `y` is an odd one, also of a zero or an infinity.
    pow: ("x", "y") [2.0, 2.0] |a| a[0].powf(a[1]);
}

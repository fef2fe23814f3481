//! Guards: conditions of a specialization on its arguments, evaluated at each launch.
//!
//! A guard that cannot be computed fails: on overflow, a missing parameter, or one that is no integer. The launcher then
//! takes a specialization with fewer guards.

use crate::dtype::DType;
use crate::kernel::{Guard, Param, Polynomial, Symbol, Term};

/// An argument as the kernel gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KernelArg {
    Slice { address: u64, len: usize },
    Scalar { dtype: DType, bits: u64 },
}

/// The arguments and the grid of a launch.
#[derive(Clone, Copy)]
pub(crate) struct LaunchArgs<'k> {
    /// By parameter.
    pub(crate) kernel_args: &'k [KernelArg],
    pub(crate) grid: [u32; 3],
}

impl LaunchArgs<'_> {
    /// Its value, if it is an integer.
    pub(crate) fn symbol(&self, symbol: Symbol) -> Option<i128> {
        match symbol {
            Symbol::Scalar(param) => match *self.kernel_args.get(usize::from(param))? {
                KernelArg::Scalar { dtype, bits } => dtype.integer(bits),
                KernelArg::Slice { .. } => None,
            },
            Symbol::Length(param) => match *self.kernel_args.get(usize::from(param))? {
                KernelArg::Slice { len, .. } => Some(len as i128),
                KernelArg::Scalar { .. } => None,
            },
            Symbol::Grid(axis) => self.grid.get(usize::from(axis)).map(|&extent| extent.into()),
            Symbol::CeilDiv { of, by } => {
                let by = self.term(&by).filter(|&by| by > 0)?;
                // Rounded up: the negative of the negative rounded down.
                Some(-self.term(&of)?.checked_neg()?.div_euclid(by))
            }
            Symbol::Div { of, by } => {
                let (of, by) = (self.term(&of)?, self.term(&by)?);
                (of >= 0 && by > 0).then(|| of / by)
            }
        }
    }

    /// The value of a parameter, if it is an `f32`.
    fn float(&self, param: u8) -> Option<f32> {
        match *self.kernel_args.get(usize::from(param))? {
            KernelArg::Scalar { dtype: DType::F32, bits } => Some(f32::from_bits(bits as u32)),
            _ => None,
        }
    }

    /// The address of a slice parameter.
    pub(crate) fn address(&self, param: u8) -> Option<u64> {
        match *self.kernel_args.get(usize::from(param))? {
            KernelArg::Slice { address, .. } => Some(address),
            KernelArg::Scalar { .. } => None,
        }
    }

    pub(crate) fn value(&self, polynomial: Polynomial) -> Option<i128> {
        polynomial.iter().try_fold(0i128, |sum, term| sum.checked_add(self.term(term)?))
    }

    fn term(&self, term: &Term) -> Option<i128> {
        let start = i128::from(term.coefficient);
        term.factors.iter().try_fold(start, |product, &factor| product.checked_mul(self.symbol(factor)?))
    }
}

impl Guard {
    pub(crate) fn holds(&self, launch_args: &LaunchArgs<'_>) -> bool {
        match *self {
            Guard::Aligned { param, bytes } => launch_args
                .address(param)
                .is_some_and(|address| bytes != 0 && address % u64::from(bytes) == 0),
            Guard::Divisible { value, by } => {
                launch_args.value(value).is_some_and(|value| by != 0 && value % i128::from(by) == 0)
            }
            Guard::Equal { param, value } => launch_args.symbol(Symbol::Scalar(param)) == Some(value.into()),
            Guard::Magnitude { param, least, most } => {
                let between = |value| power(least) <= value && value <= power(most);
                launch_args.float(param).is_some_and(between)
            }
            Guard::AtMost { low, high } => {
                launch_args.value(low).zip(launch_args.value(high)).is_some_and(|(low, high)| low <= high)
            }
        }
    }

    /// The guard as text, in terms of the kernel's parameters: `8 divides n_cols`.
    pub fn text(&self, params: &[Param]) -> String {
        match *self {
            Guard::Aligned { param, bytes } => format!("{} is {bytes}-byte aligned", name(params, param)),
            Guard::Divisible { value, by } => format!("{by} divides {}", polynomial(params, value)),
            Guard::Equal { param, value } => format!("{} is {value}", name(params, param)),
            Guard::Magnitude { param, least, most } => {
                format!("2^{least} <= {} <= 2^{most}", name(params, param))
            }
            Guard::AtMost { low, high } => {
                format!("{} <= {}", polynomial(params, low), polynomial(params, high))
            }
        }
    }

    /// Why it does not hold: `8 does not divide n_cols (1001)`.
    pub(crate) fn failure_text(&self, launch_args: &LaunchArgs<'_>, params: &[Param]) -> String {
        let with_value = |value| match launch_args.value(value) {
            Some(number) => format!("{} ({number})", polynomial(params, value)),
            None => format!("{} (too large to compute)", polynomial(params, value)),
        };
        match *self {
            Guard::Aligned { param, bytes } => {
                let address = launch_args.address(param).unwrap_or_default();
                format!("{} is not {bytes}-byte aligned ({address:#x})", name(params, param))
            }
            Guard::Divisible { value, by } => format!("{by} does not divide {}", with_value(value)),
            Guard::Equal { param, value } => {
                let found = launch_args.symbol(Symbol::Scalar(param)).unwrap_or_default();
                format!("{} is not {value} ({found})", name(params, param))
            }
            Guard::Magnitude { param, least, most } => {
                let found = launch_args.float(param).unwrap_or(f32::NAN);
                format!("{} is not between 2^{least} and 2^{most} ({found})", name(params, param))
            }
            Guard::AtMost { low, high } => format!("{} is not at most {}", with_value(low), with_value(high)),
        }
    }
}

/// Two to an exponent.
pub(crate) fn power(exponent: i8) -> f32 {
    f32::from(exponent).exp2()
}

/// `row_stride * grid.y - 4`
fn polynomial(params: &[Param], terms: Polynomial) -> String {
    let mut text = String::new();
    for term in terms {
        match (text.is_empty(), term.coefficient < 0) {
            (true, true) => text.push('-'),
            (true, false) => {}
            (false, true) => text.push_str(" - "),
            (false, false) => text.push_str(" + "),
        }
        text.push_str(&product(params, term));
    }
    if text.is_empty() { "0".to_string() } else { text }
}

/// A term without its sign.
fn product(params: &[Param], term: &Term) -> String {
    let coefficient = term.coefficient.unsigned_abs();
    let mut factors: Vec<_> = term.factors.iter().map(|&factor| symbol(params, factor)).collect();
    if coefficient != 1 || factors.is_empty() {
        factors.insert(0, coefficient.to_string());
    }
    factors.join(" * ")
}

fn symbol(params: &[Param], symbol: Symbol) -> String {
    match symbol {
        Symbol::Scalar(param) => name(params, param).to_string(),
        Symbol::Length(param) => format!("len({})", name(params, param)),
        Symbol::Grid(axis) => format!("grid.{}", ["x", "y", "z"].get(usize::from(axis)).unwrap_or(&"?")),
        Symbol::CeilDiv { of, by } => format!("cdiv({}, {})", product(params, &of), product(params, &by)),
        Symbol::Div { of, by } => format!("({} / {})", product(params, &of), product(params, &by)),
    }
}

/// The name of the parameter at a position.
pub(crate) fn name(params: &[Param], param: u8) -> &'static str {
    params.get(usize::from(param)).map_or("?", |param| param.name)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::dtype::Element;
    use crate::kernel::ParamKind;

    const PARAMS: &[Param] = &[
        Param { name: "x", kind: ParamKind::Slice },
        Param { name: "n", kind: ParamKind::Scalar },
        Param { name: "m", kind: ParamKind::Scalar },
        Param { name: "eps", kind: ParamKind::Scalar },
    ];
    const N: Polynomial = &[Term { coefficient: 1, factors: &[Symbol::Scalar(1)] }];
    const N_TIMES_M: Polynomial =
        &[Term { coefficient: 1, factors: &[Symbol::Scalar(1), Symbol::Scalar(2)] }];
    const LEN: Polynomial = &[Term { coefficient: 1, factors: &[Symbol::Length(0)] }];
    const TILES: Polynomial = &[
        Term { coefficient: -1024, factors: &[Symbol::Grid(0)] },
        Term { coefficient: 1, factors: &[Symbol::Scalar(1)] },
        Term { coefficient: 7, factors: &[] },
    ];

    /// With `x` of 1000 elements at `address`, and a grid of (3, 1, 1).
    fn check(guard: Guard, address: u64, (n, m): (i64, i64), expected: Expect) {
        let scalar = |value: i64| KernelArg::Scalar { dtype: DType::I64, bits: value.bits() };
        let eps = KernelArg::Scalar { dtype: DType::F32, bits: 1f32.bits() };
        let kernel_args = [KernelArg::Slice { address, len: 1000 }, scalar(n), scalar(m), eps];
        let launch_args = LaunchArgs { kernel_args: &kernel_args, grid: [3, 1, 1] };
        let found = if guard.holds(&launch_args) {
            "holds".to_string()
        } else {
            guard.failure_text(&launch_args, PARAMS)
        };
        expected.assert_eq(&format!("{}: {found}", guard.text(PARAMS)));
    }

    #[test]
    fn alignment() {
        let aligned = Guard::Aligned { param: 0, bytes: 16 };
        check(aligned, 0x7f00, (0, 0), expect!["x is 16-byte aligned: holds"]);
        check(aligned, 0x7f08, (0, 0), expect!["x is 16-byte aligned: x is not 16-byte aligned (0x7f08)"]);
        let scalar = Guard::Aligned { param: 1, bytes: 16 };
        check(scalar, 0, (0, 0), expect!["n is 16-byte aligned: n is not 16-byte aligned (0x0)"]);
    }

    #[test]
    fn divisibility() {
        let n = Guard::Divisible { value: N, by: 8 };
        check(n, 0, (-64, 0), expect!["8 divides n: holds"]);
        check(n, 0, (0, 0), expect!["8 divides n: holds"]);
        check(n, 0, (1001, 0), expect!["8 divides n: 8 does not divide n (1001)"]);
        let tiles = Guard::Divisible { value: TILES, by: 8 };
        check(tiles, 0, (9, 0), expect!["8 divides -1024 * grid.x + n + 7: holds"]);
        check(
            tiles,
            0,
            (8, 0),
            expect!["8 divides -1024 * grid.x + n + 7: 8 does not divide -1024 * grid.x + n + 7 (-3057)"],
        );
        let by_zero = Guard::Divisible { value: N, by: 0 };
        check(by_zero, 0, (0, 0), expect!["0 divides n: 0 does not divide n (0)"]);
    }

    #[test]
    fn equality() {
        let one = Guard::Equal { param: 1, value: 1 };
        check(one, 0, (1, 0), expect!["n is 1: holds"]);
        check(one, 0, (300, 0), expect!["n is 1: n is not 1 (300)"]);
        let slice = Guard::Equal { param: 0, value: 0 };
        check(slice, 0, (0, 0), expect!["x is 0: x is not 0 (0)"]);
    }

    #[test]
    fn magnitude() {
        let guard = Guard::Magnitude { param: 0, least: -40, most: 40 };
        let holds = |value: f32| {
            let kernel_args = [KernelArg::Scalar { dtype: DType::F32, bits: value.bits() }];
            guard.holds(&LaunchArgs { kernel_args: &kernel_args, grid: [1; 3] })
        };
        assert!([0.125, 1.0, 9.094947e-13, 1.0995116e12].into_iter().all(holds));
        assert!(![0.0, -0.125, 9e-13, 1.1e12, f32::INFINITY, f32::NAN].into_iter().any(holds));
        // An integer is none.
        check(
            Guard::Magnitude { param: 1, least: -40, most: 40 },
            0,
            (1, 0),
            expect!["2^-40 <= n <= 2^40: n is not between 2^-40 and 2^40 (NaN)"],
        );
    }

    #[test]
    fn order() {
        let fits = Guard::AtMost { low: N_TIMES_M, high: LEN };
        check(fits, 0, (10, 100), expect!["n * m <= len(x): holds"]);
        check(fits, 0, (-1, 100), expect!["n * m <= len(x): holds"]);
        check(fits, 0, (7, 143), expect!["n * m <= len(x): n * m (1001) is not at most len(x) (1000)"]);
        let nothing = Guard::AtMost { low: &[], high: N };
        check(nothing, 0, (0, 0), expect!["0 <= n: holds"]);
    }

    #[test]
    fn quotients() {
        const HALF: Symbol =
            Symbol::Div { of: Term::of(&[Symbol::Scalar(1)]), by: Term { coefficient: 2, factors: &[] } };
        const ROWS: Polynomial = &[Term { coefficient: 300, factors: &[HALF] }];
        let fits = Guard::AtMost { low: ROWS, high: LEN };
        check(fits, 0, (7, 0), expect!["300 * (n / 2) <= len(x): holds"]);
        check(
            fits,
            0,
            (8, 0),
            expect!["300 * (n / 2) <= len(x): 300 * (n / 2) (1200) is not at most len(x) (1000)"],
        );
        let launch_args = |n: i64| [KernelArg::Scalar { dtype: DType::I64, bits: n.bits() }; 2];
        let negative = LaunchArgs { kernel_args: &launch_args(-1), grid: [1; 3] };
        assert!(!Guard::AtMost { low: ROWS, high: N }.holds(&negative));
    }

    #[test]
    fn what_cannot_be_computed_does_not_hold() {
        const HUGE: Polynomial = &[Term {
            coefficient: i64::MIN,
            factors: &[Symbol::Scalar(1), Symbol::Scalar(1), Symbol::Scalar(1)],
        }];
        let huge = Guard::AtMost { low: HUGE, high: LEN };
        check(huge, 0, (1, 0), expect!["-9223372036854775808 * n * n * n <= len(x): holds"]);
        check(
            huge,
            0,
            (i64::MAX, 0),
            expect![[
                "-9223372036854775808 * n * n * n <= len(x): -9223372036854775808 * n * n * n (too large to compute) is not at most len(x) (1000)"
            ]],
        );
        const FLOAT: Polynomial = &[Term { coefficient: 1, factors: &[Symbol::Scalar(3)] }];
        assert!(
            !Guard::Divisible { value: FLOAT, by: 1 }.holds(&LaunchArgs { kernel_args: &[], grid: [1; 3] })
        );
    }
}

//! The law of divisions by one scalar: as those of each element, for every dividend and divisor of the type.

use tile_ir::support::dtype::DType;

use crate::ptx;
use crate::run::{Arg, load};
use lowering::backend::nvptx::Arch;

/// Elements of a tile; dividends fill several.
const TILE: usize = 64;

/// Quotients, remainders and quotients rounded up of any dividends and of those that are not negative, by any divisor and by
/// one that is at least 1.
fn source(dtype: DType) -> String {
    let results: String = [("v", "d"), ("tl::maximum(v, 0)", "d"), ("v", "e"), ("tl::maximum(v, 0)", "e")]
        .iter()
        .flat_map(|(v, d)| [format!("{v} / {d}"), format!("{v} % {d}"), format!("tl::cdiv({v}, {d})")])
        .enumerate()
        .map(|(i, result)| format!("tl::store(out + {} + at, {result});\n", i * TILE))
        .collect();
    format!(
        "#[fuse_kernel]
        fn k(x: &[{dtype}], out: &mut [{dtype}], divisor: i64) {{
            let at = tl::arange(0, {TILE});
            let v = tl::load(x + at);
            let d = divisor.to::<{dtype}>();
            let e = tl::maximum(d, 1);
            {results}
        }}"
    )
}

/// What the results of [`source`] are.
fn wanted(dtype: DType, x: &[i128], divisor: i128) -> Vec<i128> {
    let results =
        [|n: i128, d: i128| n / d, |n, d| n % d, |n, d| n / d + i128::from(n % d != 0 && (n < 0) == (d < 0))];
    let mut all = vec![];
    for (floor, d) in [(i128::MIN, divisor), (0, divisor), (i128::MIN, divisor.max(1)), (0, divisor.max(1))] {
        for (i, result) in results.into_iter().enumerate() {
            let by_zero = |n: i128| if i == 1 { n } else { 0 };
            all.extend(
                x.iter()
                    .map(|&n| n.max(floor))
                    .map(|n| dtype.wrap(if d == 0 { by_zero(n) } else { result(n, d) })),
            );
        }
    }
    all
}

/// Numbers around 0, the ends of the type, powers of two and their thirds, and some between.
fn numbers(dtype: DType) -> Vec<i128> {
    let (low, high) = dtype.range();
    let bits = dtype.bytes() * 8;
    let powers = (0..bits).flat_map(|bit| [1i128 << bit, (1i128 << bit) / 3]);
    let near = powers.flat_map(|power| [-power, power]).chain([0, low, high]);
    let mut all: Vec<i128> = near.flat_map(|number| [number - 1, number, number + 1]).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    all.extend((0..64).map(|i| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        dtype.wrap(i128::from(state >> (i % 60)))
    }));
    all.retain(|number| (low..=high).contains(number));
    all.sort();
    all.dedup();
    all
}

/// Reads or writes numbers as elements of memory.
trait Element: Copy + Default {
    fn of(number: i128) -> Self;
    fn number(self) -> i128;
}

macro_rules! elements {
    ($($ty:ident: $dtype:ident,)*) => {
        $(impl Element for $ty {
            fn of(number: i128) -> $ty {
                number as $ty
            }

            fn number(self) -> i128 {
                self.into()
            }
        })*

        #[test]
        fn divisions_by_a_scalar_are_those_of_elements() {
            $(check::<$ty>(DType::$dtype);)*
        }
    };
}

elements! { i8: I8, u8: U8, i16: I16, u16: U16, i32: I32, u32: U32, i64: I64, u64: U64, }

fn check<T: Element>(dtype: DType) {
    let kernels = load(&source(dtype));
    let mut dividends = numbers(dtype);
    let divisors = dividends.clone();
    dividends.resize(dividends.len().next_multiple_of(TILE), 0);
    for x in dividends.chunks(TILE) {
        for &divisor in &divisors {
            for loaded in &kernels {
                let mut data: Vec<T> = x.iter().map(|&number| T::of(number)).collect();
                let mut out = vec![T::default(); 12 * TILE];
                let divisor_bits = Arg::Scalar(divisor as u64);
                loaded.call([1, 1, 1], &mut [Arg::of(&mut data), Arg::of(&mut out), divisor_bits]);
                let out: Vec<i128> = out.into_iter().map(T::number).collect();
                assert_eq!(out, wanted(dtype, x, divisor), "{dtype} by {divisor}, {:?}: {x:?}", loaded.level);
            }
        }
    }
}

/// LLVM computes a quotient of `f64` that is rounded to `f32` in `f32`, where it is the same only if it is rounded correctly.
#[test]
fn a_quotient_that_is_narrowed_is_correctly_rounded() {
    let text = ptx(
        "#[fuse_kernel]
        fn k(x: &[f32], y: &[f32], out: &mut [f32]) {
            tl::store(out, (tl::load(x).to::<f64>() / tl::load(y).to::<f64>()).to::<f32>());
        }",
        Arch::SM_90A,
    );
    assert!(text.contains("div.rn.f") && !text.contains("div.full"), "{text}");
}

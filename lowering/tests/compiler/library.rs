//! The functions written in the language: their errors on the processor, and what they are made of on a GPU.

use std::fmt::Write;

use expect_test::expect;

use super::run::{Arg, run};

/// Runs `tl::name` on every value of `x`.
fn f32s(name: &str, x: &[f32]) -> Vec<f32> {
    let mut x = x.to_vec();
    x.resize(x.len().next_multiple_of(64), 1.0);
    let mut out = vec![f32::MAX; x.len()];
    let source = kernel(name, "f32");
    run(&source, [x.len() as u32 / 64, 1, 1], vec![Arg::F32(&mut x), Arg::F32(&mut out)]);
    out
}

fn f64s(name: &str, x: &[f64]) -> Vec<f64> {
    let mut x = x.to_vec();
    x.resize(x.len().next_multiple_of(64), 1.0);
    let mut out = vec![f64::MAX; x.len()];
    let source = kernel(name, "f64");
    run(&source, [x.len() as u32 / 64, 1, 1], vec![Arg::F64(&mut x), Arg::F64(&mut out)]);
    out
}

fn kernel(name: &str, elem: &str) -> String {
    format!(
        "#[fuse_kernel(T = [{elem}])] fn k<T: Float>(x: &[T], out: &mut [T]) {{
            let p = tl::program_id(0) * 64 + tl::arange(0, 64);
            tl::store(out + p, tl::{name}(tl::load(x + p)));
        }}"
    )
}

/// `x erfc(-x / sqrt(2)) / 2`
fn gelu(x: f64) -> f64 {
    // What rounding x / sqrt(2) takes is put back: erfc falls like exp(-a^2).
    let a = -x * std::f64::consts::FRAC_1_SQRT_2;
    let exact = |a: f64| (-x).mul_add(std::f64::consts::FRAC_1_SQRT_2, -a) - x * -4.833646656726457e-17;
    let rest = exact(a);
    let slope = if a > 1.0 {
        2.0 * a + 1.0 / a
    } else {
        std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() / libm::erfc(a)
    };
    x * 0.5 * libm::erfc(a) * (1.0 - rest * slope)
}

fn gelu_tanh(x: f64) -> f64 {
    silu_by(x, 2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x))
}

fn silu(x: f64) -> f64 {
    silu_by(x, x)
}

fn silu_by(x: f64, z: f64) -> f64 {
    if z < -700.0 { 0.0 } else { x / (1.0 + (-z).exp()) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The largest error over `x`, in units in the last place of `f32`.
fn worst_f32(name: &str, exact: fn(f64) -> f64, x: impl Iterator<Item = f32>) -> f64 {
    let x: Vec<f32> = x.collect();
    let found = f32s(name, &x);
    let errors = x.iter().zip(found).map(|(&x, found)| {
        let wanted = exact(f64::from(x));
        let unit = f64::from((wanted.abs() as f32).max(f32::MIN_POSITIVE));
        let unit = 2f64.powi(unit.log2().floor() as i32 - 23);
        (f64::from(found) - wanted).abs() / unit
    });
    errors.fold(0.0, f64::max)
}

fn worst_f64(name: &str, exact: fn(f64) -> f64, x: impl Iterator<Item = f64>) -> f64 {
    let x: Vec<f64> = x.collect();
    let found = f64s(name, &x);
    let errors = x.iter().zip(found).map(|(&x, found)| {
        let wanted = exact(x);
        let unit = 2f64.powi(wanted.abs().max(1e-280).log2().floor() as i32 - 52);
        (found - wanted).abs() / unit
    });
    errors.fold(0.0, f64::max)
}

/// Points from `low` to `high`, denser towards 0.
fn points(low: f64, high: f64) -> impl Iterator<Item = f64> {
    (0..20_000).map(move |i| {
        let part = f64::from(i % 10_000) / 10_000.0;
        let end = if i < 10_000 { low } else { high };
        end * if i % 3 == 0 { part.powi(12) } else { part }
    })
}

#[test]
fn errors_stay_within_what_is_documented() {
    type Exact = fn(f64) -> f64;
    let functions: [(&str, Exact, [f64; 3]); 4] = [
        ("gelu", gelu, [-12.9, -35.0, 16.0]),
        ("gelu_tanh", gelu_tanh, [-1.0, -1.0, 12.0]),
        ("silu", silu, [-87.0, -700.0, 5.0]),
        ("softplus", softplus, [-87.0, -700.0, 8.0]),
    ];
    for (name, exact, [least_f32, least_f64, bound]) in functions {
        let single = worst_f32(name, exact, points(least_f32, 90.0).map(|x| x as f32));
        let double = worst_f64(name, exact, points(least_f64, 700.0));
        // The reference has an error of its own in f64.
        assert!(single <= bound && double <= bound + 4.0, "{name}: {single} and {double} ULP");
    }
}

/// What is as exact as a 16-bit type alone: the largest relative error.
#[test]
fn short_forms_stay_within_what_is_documented() {
    type Exact = fn(f64) -> f64;
    let functions: [(&str, Exact, [f64; 2]); 6] = [
        ("gelu::<f16>", gelu, [-5.7, 14.0]),
        ("gelu::<f16>", gelu, [-9.0, 12.0]),
        ("gelu::<bf16>", gelu, [-5.7, 11.0]),
        ("gelu::<bf16>", gelu, [-12.9, 10.0]),
        ("gelu_tanh::<bf16>", gelu_tanh, [-9.5, 15.0]),
        ("silu::<bf16>", silu, [-85.0, 15.0]),
    ];
    for (name, exact, [least, digits]) in functions {
        let x: Vec<f32> = points(least, 90.0).map(|x| x as f32).filter(|x| x.abs() > 1e-30).collect();
        let found = f32s(name, &x);
        let worst = x.iter().zip(found).map(|(&x, found)| {
            let wanted = exact(f64::from(x));
            (f64::from(found) - wanted).abs() / wanted.abs()
        });
        let worst = worst.fold(0.0, f64::max);
        assert!(worst <= 2f64.powf(-digits), "{name} from {least}: 2^{}", worst.log2());
    }
}

#[test]
fn ends() {
    let x =
        [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0, 100.0, -100.0, 1e30, -1e30, f32::MAX, f32::MIN];
    let mut text = String::new();
    for name in ["gelu::<f16>", "gelu::<bf16>", "gelu_tanh::<bf16>", "silu::<f16>"] {
        let _ = writeln!(text, "{name}: {:?}", &f32s(name, &x)[..x.len()]);
    }
    for name in ["relu", "gelu", "gelu_tanh", "silu", "softplus"] {
        let _ = writeln!(text, "{name}: {:?}", &f32s(name, &x)[..x.len()]);
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let double: Vec<f32> = f64s(name, &wide)[..x.len()].iter().map(|&y| y as f32).collect();
        let _ = writeln!(text, "    {double:?}");
    }
    expect![[r#"
        gelu::<f16>: [inf, -1.0155567e-18, NaN, 0.0, 100.0, -1.0155567e-18, 1e30, -1.0155567e-18, 3.4028235e38, -1.0155567e-18]
        gelu::<bf16>: [inf, -9.8e-44, NaN, 0.0, 100.0, -9.8e-44, 1e30, -9.8e-44, 3.4028235e38, -9.8e-44]
        gelu_tanh::<bf16>: [inf, -0.0, NaN, -0.0, 100.0, -0.0, 1e30, -0.0, 3.4028235e38, -0.0]
        silu::<f16>: [inf, -0.0, NaN, -0.0, 100.0, -0.0, 1e30, -0.0, 3.4028235e38, -0.0]
        relu: [inf, 0.0, NaN, 0.0, 100.0, 0.0, 1e30, 0.0, 3.4028235e38, 0.0]
            [inf, 0.0, NaN, 0.0, 100.0, 0.0, 1e30, 0.0, 3.4028235e38, 0.0]
        gelu: [inf, 0.0, NaN, 0.0, 100.0, 0.0, 1e30, 0.0, 3.4028235e38, 0.0]
            [inf, 0.0, NaN, 0.0, 100.0, 0.0, 1e30, 0.0, 3.4028235e38, 0.0]
        gelu_tanh: [inf, -0.0, NaN, -0.0, 100.0, -0.0, 1e30, -0.0, 3.4028235e38, -0.0]
            [inf, -0.0, NaN, -0.0, 100.0, -0.0, 1e30, -0.0, 3.4028235e38, -0.0]
        silu: [inf, -0.0, NaN, -0.0, 100.0, -3.784e-42, 1e30, -0.0, 3.4028235e38, -0.0]
            [inf, -0.0, NaN, -0.0, 100.0, -3.72e-42, 1e30, -0.0, 3.4028235e38, -0.0]
        softplus: [inf, 0.0, NaN, 0.6931472, 100.0, 3.9e-44, 1e30, 0.0, 3.4028235e38, 0.0]
            [inf, 0.0, NaN, 0.6931472, 100.0, 3.8e-44, 1e30, 0.0, 3.4028235e38, 0.0]
    "#]]
    .assert_eq(&text);
}

#[test]
fn softmax_sums_to_one_and_its_logarithm_agrees() {
    let mut x: Vec<f32> = (0..64).map(|i| ((i * 37) % 64) as f32 - 20.0).collect();
    x[5] = f32::NEG_INFINITY;
    let (found, logs) = (f32s("softmax", &x), f32s("log_softmax", &x));
    let most = x.iter().fold(f64::MIN, |most, &x| most.max(f64::from(x)));
    let sum: f64 = x.iter().map(|&x| (f64::from(x) - most).exp()).sum();
    for ((x, found), log) in x.iter().zip(found).zip(logs) {
        let wanted = (f64::from(*x) - most).exp() / sum;
        assert!((f64::from(found) - wanted).abs() <= 4e-7 * wanted, "{x}: {found} for {wanted}");
        assert!(log == wanted.ln() as f32 || (f64::from(log) - wanted.ln()).abs() <= 4e-6, "{x}: {log}");
    }
    assert!(f32s("softmax", &[f32::NEG_INFINITY; 64]).iter().all(|y| y.is_nan()));
}

macro_rules! next {
    ($elem:literal, $bits:ident, $infinity:literal, $one:literal) => {{
        const SIGN: $bits = 1 << ($bits::BITS - 1);
        let magnitudes =
            [0, 1, 2, $infinity / 2, $one - 1, $one, $one + 1, $infinity - 1, $infinity, $infinity + 1];
        let ends: Vec<$bits> = magnitudes.into_iter().flat_map(|end| [end, end | SIGN]).collect();
        let pairs: Vec<[$bits; 2]> = ends.iter().flat_map(|&x| ends.iter().map(move |&y| [x, y])).collect();
        let operand = |i: usize| (0..448).map(|place| pairs[place % pairs.len()][i]).collect::<Vec<$bits>>();
        let (mut x, mut y, mut out) = (operand(0), operand(1), vec![0; 448]);
        let source = concat!(
            "#[fuse_kernel(T = [",
            $elem,
            "])] fn k<T: Float>(x: &[T], y: &[T], out: &mut [T]) {
                let p = tl::program_id(0) * 64 + tl::arange(0, 64);
                tl::store(out + p, tl::nextafter(tl::load(x + p), tl::load(y + p)));
            }"
        );
        run(source, [7, 1, 1], vec![Arg::of(&mut x), Arg::of(&mut y), Arg::of(&mut out)]);
        // Numbers in their order, zeros as one.
        let key = |bits: $bits| if bits & SIGN == 0 { bits as i128 } else { -((bits ^ SIGN) as i128) };
        for ((&x, &y), &found) in x.iter().zip(&y).zip(&out) {
            let is_nan = |bits: $bits| bits & !SIGN > $infinity;
            let wanted = match key(y) - key(x) {
                _ if is_nan(x) || is_nan(y) => {
                    assert!(is_nan(found), "{}: {x:#x} to {y:#x} is {found:#x}", $elem);
                    continue;
                }
                0 => y,
                apart => match key(x) + apart.signum() {
                    0 => x & SIGN,
                    next if next < 0 => (-next) as $bits | SIGN,
                    next => next as $bits,
                },
            };
            assert_eq!(found, wanted, "{}: {x:#x} to {y:#x}", $elem);
        }
    }};
}

#[test]
fn next_numbers_are_neighbors_in_the_order_of_bits() {
    next!("f16", u16, 0x7c00, 0x3c00);
    next!("bf16", u16, 0x7f80, 0x3f80);
    next!("f32", u32, 0x7f80_0000, 0x3f80_0000);
    next!("f64", u64, 0x7ff0_0000_0000_0000, 0x3ff0_0000_0000_0000);
}

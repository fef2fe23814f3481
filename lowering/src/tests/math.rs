//! Elementary functions on the host, at every level of processor, against an oracle of more precision: within the bound
//! that the operation table publishes, and exact where a value is special.

use super::run::{Arg, Loaded, load};
use crate::ops::scalar;

const CHUNK: usize = 1 << 16;

/// A kernel that applies a function to every element.
fn kernel(name: &str, dtype: &str) -> Vec<Loaded> {
    load(&format!(
        "#[fuse_kernel(T = [{dtype}])]
        pub fn apply<T: Float>(x: &[T], out: &mut [T], n: i32) {{
            let i = tl::program_id(0) * 1024 + tl::arange(0, 1024);
            tl::store(out + i, tl::{name}(tl::load(x + i, i < n)), i < n);
        }}"
    ))
}

/// The distance of `got` from `want` in units in the last place of an `f32` of `want`'s size; what overflows counts as
/// 2^128.
fn ulps(got: f32, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 && (got != 0.0 || got.is_sign_negative() != want.is_sign_negative()) {
        return f64::INFINITY;
    }
    let top = 2.0f64.powi(128);
    let (got, want) = (f64::from(got).clamp(-top, top), want.clamp(-top, top));
    let exponent = ((want.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (got - want).abs() / 2.0f64.powi(exponent - 23)
}

/// The worst error of a function over some arguments, for each level.
struct Worst {
    level: &'static str,
    ulps: f64,
    at: f32,
    got: f32,
}

impl std::fmt::Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Worst { level, ulps, at, got } = self;
        write!(f, "{level}: {ulps:.3} ulp at {at:e} ({:#010x}), which gave {got:e}", at.to_bits())
    }
}

fn worst_f32(name: &str, arguments: impl Iterator<Item = f32>) -> Vec<Worst> {
    let oracle = scalar::row(name).and_then(|row| row.float).expect("a float function").function;
    let loaded = kernel(name, "f32");
    let mut worst: Vec<Worst> =
        loaded.iter().map(|code| Worst { level: code.level.name(), ulps: -1.0, at: 0.0, got: 0.0 }).collect();
    let mut arguments = arguments.peekable();
    let mut out = vec![0.0f32; CHUNK];
    while arguments.peek().is_some() {
        let mut x: Vec<f32> = arguments.by_ref().take(CHUNK).collect();
        let want: Vec<f64> = x.iter().map(|&x| oracle(&[f64::from(x)])).collect();
        for (code, worst) in loaded.iter().zip(&mut worst) {
            let grid = [x.len().div_ceil(1024) as u32, 1, 1];
            let out = &mut out[..x.len()];
            let n = x.len() as u64;
            code.call(grid, &mut [Arg::F32(&mut x), Arg::F32(out), Arg::Scalar(n)]);
            for ((&x, &got), &want) in x.iter().zip(&*out).zip(&want) {
                let ulps = ulps(got, want);
                if ulps > worst.ulps {
                    *worst = Worst { ulps, at: x, got, ..*worst };
                }
            }
        }
    }
    worst
}

fn check_f32(name: &str, arguments: impl Iterator<Item = f32>) {
    let bound = scalar::row(name).expect("a row").ulp.f32;
    let worst = worst_f32(name, arguments);
    let text: Vec<String> = worst.iter().map(Worst::to_string).collect();
    println!("{name} of f32: {}", text.join("; "));
    assert!(
        worst.iter().all(|worst| worst.ulps <= bound),
        "{name} is beyond {bound} ulp: {}",
        text.join("; ")
    );
}

/// Every `bf16`, which is every special value and every size of number, and bit patterns of all kinds between them.
fn spread() -> impl Iterator<Item = f32> {
    let bf16 = (0..=0xffffu32).map(|bits| bits << 16);
    let stride = 1021;
    bf16.chain((0..u32::MAX / stride).map(move |i| i * stride)).map(f32::from_bits)
}

macro_rules! functions {
    ($($name:ident $all:ident)*) => {
        $(
            #[test]
            fn $name() {
                check_f32(stringify!($name), spread());
            }

            #[test]
            #[ignore = "every f32, some minutes; run it optimised"]
            fn $all() {
                check_f32(stringify!($name), (0..=u32::MAX).map(f32::from_bits));
            }
        )*
    };
}

functions! {
    exp every_exp
    exp2 every_exp2
    sigmoid every_sigmoid
    log every_log
    log2 every_log2
    sin every_sin
    cos every_cos
    tanh every_tanh
    erf every_erf
    rsqrt every_rsqrt
}

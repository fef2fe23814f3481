//! Rounding and narrow element types: what a GPU thread computes them with, and every value on the processor.

use expect_test::{Expect, expect};

use super::first;
use super::run::{Arg, run};
use super::site::lowering_beside;
use crate::body::{Requests, bodies};
use crate::mlir::Session;
use crate::target::nvptx::{self, Arch, Stages};

/// What the aligned body of a kernel does between its loads and its stores.
fn check_arithmetic(source: &str, arch: Arch, expected: Expect) {
    let _beside = lowering_beside();
    let (func, requests) = first(source);
    let bodies = bodies(&func, Requests { programs: Some(1), ..requests }).expect("bodies that fit");
    let named = [("entry".into(), &bodies[0])];
    let texts = nvptx::emit(&Session::new(), &named, &[arch], &mut Stages::default()).expect("PTX");
    let (_, ptx) = &texts[0];
    let lines = ptx.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let after: Vec<&str> = lines.skip_while(|line| !line.contains("ld.global")).collect();
    let last = after.iter().rposition(|line| line.contains("st.global")).expect("a store");
    let text: String = after[..=last].iter().map(|line| format!("{line}\n")).collect();
    expected.assert_eq(&text);
}

/// One conversion and a rounding instruction less; two bytes are packed by one instruction.
#[test]
fn quantising_to_bytes_on_the_gpu() {
    check_arithmetic(
        "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[f32], out: &mut [i8]) {
            let i = tl::arange(0, 128);
            tl::store(out + i, tl::round_ties_even(tl::load(x + i) * 3.0).to::<i8>());
        }",
        Arch::SM_80,
        expect![[r#"
            ld.global.nc.L2::cache_hint.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;
            mul.f32 	%r15, %r1, 0f40400000;
            mul.f32 	%r16, %r2, 0f40400000;
            mul.f32 	%r17, %r3, 0f40400000;
            mul.f32 	%r18, %r4, 0f40400000;
            cvt.rni.s32.f32 	%r10, %r15;
            cvt.rni.s32.f32 	%r9, %r16;
            cvt.rni.s32.f32 	%r6, %r17;
            cvt.rni.s32.f32 	%r5, %r18;
            mov.b32 	%r7, 0;
            cvt.pack.sat.s8.s32.b32 %r11, %r5, %r6, %r7;
            cvt.pack.sat.s8.s32.b32 %r8, %r9, %r10, %r11;
            add.s64 	%rd7, %rd4, %rd5;
            st.global.b32 	[%rd7], %r8;
        "#]],
    );
}

/// Halves, their neighbours, the ends of exactness, and what is no number.
fn numbers() -> Vec<f32> {
    let mut numbers = vec![0.0, f32::MIN_POSITIVE, 1e-40, f32::INFINITY, f32::NAN, f32::MAX];
    for power in -3..34 {
        let start = 2f32.powi(power);
        numbers.extend((0..8).map(|i| start + i as f32 * 0.5));
        numbers.extend([
            start.next_down(),
            start.next_up(),
            (start + 0.5).next_down(),
            (start + 0.5).next_up(),
        ]);
    }
    numbers.extend([0.5f32.next_down(), 8388607.5, 8388608.5, 4194303.8]);
    let negative: Vec<f32> = numbers.iter().map(|x| -x).collect();
    numbers.extend(negative);
    numbers
}

/// `one` on every number, at every level of this processor, bit for bit.
fn check_rounding(name: &str, one: fn(f32) -> f32) {
    let mut x = numbers();
    let mut out = vec![0f32; x.len()];
    let source = format!(
        "#[fuse_kernel()]
        fn k(x: &[f32], out: &mut [f32], n: i32) {{
            let i = tl::program_id(0) * 64 + tl::arange(0, 64);
            tl::store(out + i, tl::{name}(tl::load(x + i, i < n)), i < n);
        }}"
    );
    let (len, grid) = (x.len() as u64, [x.len().div_ceil(64) as u32, 1, 1]);
    run(&source, grid, vec![Arg::F32(&mut x), Arg::F32(&mut out), Arg::Scalar(len)]);
    for (x, found) in x.iter().zip(&out) {
        let same = found.to_bits() == one(*x).to_bits() || x.is_nan() && found.is_nan();
        assert!(same, "{name}({x:e}) is {:e}, found {found:e}", one(*x));
    }
}

#[test]
fn rounding_on_the_host() {
    check_rounding("round", f32::round);
    check_rounding("round_ties_even", f32::round_ties_even);
    check_rounding("trunc", f32::trunc);
    check_rounding("floor", f32::floor);
    check_rounding("ceil", f32::ceil);
}

#[test]
fn upper_halves_of_products_on_the_host() {
    let values: Vec<u64> = (0..64)
        .flat_map(|power| [1u64 << power, (1 << power) - 1, !(1 << power), 0x9e37_79b9_7f4a_7c15 >> power])
        .collect();
    let mut x: Vec<u64> = values.iter().flat_map(|_| values.clone()).collect();
    let mut y: Vec<u64> = values.iter().flat_map(|&y| values.iter().map(move |_| y)).collect();
    let mut out = vec![0u64; 2 * x.len()];
    let n = x.len();
    run(
        "#[fuse_kernel()]
        fn k(x: &[u64], y: &[u64], out: &mut [u64], n: i32) {
            let i = tl::program_id(0) * 64 + tl::arange(0, 64);
            let (x, y) = (tl::load(x + i), tl::load(y + i));
            tl::store(out + i, tl::umulhi(x, y));
            tl::store(out + n + i, tl::mulhi(x.bitcast::<i64>(), y.bitcast::<i64>()).bitcast::<u64>());
        }",
        [n as u32 / 64, 1, 1],
        vec![Arg::of(&mut x), Arg::of(&mut y), Arg::of(&mut out), Arg::Scalar(n as u64)],
    );
    for i in 0..n {
        let unsigned = (u128::from(x[i]) * u128::from(y[i]) >> 64) as u64;
        let signed = (i128::from(x[i] as i64) * i128::from(y[i] as i64) >> 64) as u64;
        assert_eq!([out[i], out[n + i]], [unsigned, signed], "{:#x} times {:#x}", x[i], y[i]);
    }
}

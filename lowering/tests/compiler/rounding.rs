//! Rounding and narrow element types: GPU instructions, and every value on the CPU.

use std::fmt::Debug;

use expect_test::{Expect, expect};
use half::{bf16, f16};
use tile_ir::support::dtype::{DType, Float8Format, to_f16};

use super::run::{Arg, run};
use super::{first, ptx};
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::Session;

/// What the aligned specialization of a kernel does between its loads and its stores.
fn check_arithmetic(source: &str, arch: Arch, expected: Expect) {
    let ptx = ptx(source, arch);
    let lines = ptx.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let after: Vec<&str> = lines.skip_while(|line| !line.contains("ld.global")).collect();
    let last = after.iter().rposition(|line| line.contains("st.global")).expect("a store");
    let text: String = after[..=last].iter().map(|line| format!("{line}\n")).collect();
    expected.assert_eq(&text);
}

/// One conversion and a rounding instruction less; two bytes are packed by one instruction.
#[test]
fn quantizing_to_bytes_on_the_gpu() {
    check_arithmetic(
        "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[f32], out: &mut [i8]) {
            let i = tl::arange(0, 128);
            tl::store(out + i, tl::round_ties_even(tl::load(x + i) * 3.0).to::<i8>());
        }",
        Arch::SM_80,
        expect![[r#"
            ld.global.L2::cache_hint.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;
            mul.rn.f32 	%r15, %r1, 0f40400000;
            mul.rn.f32 	%r16, %r2, 0f40400000;
            mul.rn.f32 	%r17, %r3, 0f40400000;
            mul.rn.f32 	%r18, %r4, 0f40400000;
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

/// Halves and adjacent values, the limits of exactness, and NaN.
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

/// `one` on every value, at every level of this CPU, bit for bit.
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
        let unsigned = ((u128::from(x[i]) * u128::from(y[i])) >> 64) as u64;
        let signed = ((i128::from(x[i] as i64) * i128::from(y[i] as i64)) >> 64) as u64;
        assert_eq!([out[i], out[n + i]], [unsigned, signed], "{:#x} times {:#x}", x[i], y[i]);
    }
}

/// The first instruction of each kind, and how often it comes: `cvt.rn.satfinite.e4m3x2.f32 8`.
fn check_conversions(source: &str, arch: Arch, expected: Expect) {
    let (func, requests) = first(source);
    let specializations =
        specializations(&func, KernelRequests { programs: Some(1), ..requests }).expect("bodies that fit");
    let named = [("entry".into(), &specializations[0])];
    let archs = [Arch::SM_80, Arch::SM_90A];
    let texts = nvptx::emit(&Session::new(), &named, &archs, None).expect("PTX");
    let (_, ptx) = texts.iter().find(|(other, _)| *other == arch).expect("the architecture");
    let mut counts: Vec<(&str, usize)> = vec![];
    let body = ptx.lines().map(str::trim).skip_while(|line| !line.contains("ld.global"));
    for name in body.filter(|line| line.ends_with(';')).filter_map(|line| line.split_whitespace().next()) {
        match counts.iter_mut().find(|(other, _)| *other == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let version = ptx.lines().find(|line| line.starts_with(".version")).unwrap_or_default();
    let lines: String = counts.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
    expected.assert_eq(&format!("{version}\n{lines}"));
}

const TO_F8: &str = "#[fuse_kernel(num_warps = 1)]
    fn k(x: &[bf16], out: &mut [f8e4m3]) {
        let i = tl::arange(0, 512);
        tl::store(out + i, tl::load(x + i).to::<f8e4m3>());
    }";

const FROM_F8: &str = "#[fuse_kernel(num_warps = 1)]
    fn k(x: &[f8e5m2], out: &mut [f32]) {
        let i = tl::arange(0, 512);
        tl::store(out + i, tl::load(x + i).to::<f32>() + 1.0);
    }";

#[test]
fn eight_bit_floats_two_at_a_time_where_the_gpu_can() {
    check_conversions(
        TO_F8,
        Arch::SM_90A,
        expect![[r#"
            .version 8.0
            ld.global.L2::cache_hint.v4.b32 2
            and.b32 8
            shl.b32 12
            cvt.rn.satfinite.e4m3x2.f32 8
            add.s64 1
            cvt.u32.u16 8
            or.b32 4
            st.global.v2.b32 2
            ret; 1
        "#]],
    );
    check_conversions(
        FROM_F8,
        Arch::SM_90A,
        expect![[r#"
            .version 8.0
            ld.global.b32 4
            cvt.u16.u32 4
            mov.b32 12
            cvt.rn.f16x2.e5m2x2 8
            cvt.f32.f16 16
            add.f32 16
            mul.wide.u32 1
            add.s64 1
            st.global.v4.b32 4
            ret; 1
        "#]],
    );
}

#[test]
fn eight_bit_floats_in_integers_on_an_older_gpu() {
    check_conversions(
        TO_F8,
        Arch::SM_80,
        expect![[r#"
            .version 7.4
            ld.global.L2::cache_hint.v4.b32 2
            shl.b32 20
            and.b32 44
            setp.gt.u32 16
            min.u32 16
            add.rn.f32 16
            bfe.u32 16
            or.b32 44
            add.s32 16
            shr.u32 28
            setp.lt.u32 16
            selp.b32 32
            add.s64 1
            st.global.v2.b32 2
            ret; 1
        "#]],
    );
    check_conversions(
        FROM_F8,
        Arch::SM_80,
        expect![[r#"
            .version 7.0
            ld.global.b32 4
            cvt.u16.u32 8
            and.b16 12
            shl.b16 4
            cvt.f32.f16 16
            shr.u32 4
            add.f32 16
            mul.wide.u32 1
            add.s64 1
            st.global.v4.b32 4
            ret; 1
        "#]],
    );
}

/// The value of an 8-bit float's bits.
fn number(bits: u8, dtype: DType) -> f64 {
    let Float8Format { fraction, bias, max } = Float8Format::of(dtype);
    let (exponent, rest) = (i32::from(bits & 0x7f) >> fraction, bits & ((1 << fraction) - 1));
    let significand = f64::from(rest) / f64::from(1 << fraction);
    let magnitude = match exponent {
        0 => significand * 2f64.powi(1 - bias),
        _ => (1.0 + significand) * 2f64.powi(exponent - bias),
    };
    let magnitude = match magnitude > max {
        true if dtype == DType::F8E5M2 && rest == 0 => f64::INFINITY,
        true => f64::NAN,
        false => magnitude,
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

/// Converts elements of `from`, given as their bits, to `to` on this CPU, and compares with `wanted`.
fn check_cast<A: Copy + Debug, B: Copy + PartialEq + Debug>(
    types: [DType; 2],
    values: &[A],
    wanted: impl Fn(A) -> B,
    is_nan: impl Fn(B) -> bool,
) {
    let [from, to] = types;
    let mut x = values.to_vec();
    while !x.len().is_multiple_of(64) {
        x.push(x[0]);
    }
    let mut out: Vec<B> = x.iter().map(|&value| wanted(value)).collect();
    let expected = out.clone();
    out.reverse();
    let source = format!(
        "#[fuse_kernel()]
        fn k(x: &[{from}], out: &mut [{to}]) {{
            let i = tl::program_id(0) * 64 + tl::arange(0, 64);
            tl::store(out + i, tl::load(x + i).to::<{to}>());
        }}"
    );
    run(&source, [x.len() as u32 / 64, 1, 1], vec![Arg::of(&mut x), Arg::of(&mut out)]);
    for ((value, found), wanted) in x.iter().zip(&out).zip(&expected) {
        let same = found == wanted || is_nan(*found) && is_nan(*wanted);
        assert!(same, "{value:?} of {from} as {to} is {wanted:?}, found {found:?}");
    }
}

const F8: [DType; 2] = [DType::F8E4M3, DType::F8E5M2];

fn is_nan(dtype: DType) -> impl Fn(u8) -> bool {
    move |bits| number(bits, dtype).is_nan()
}

#[test]
fn every_eight_bit_float_as_other_types_on_the_host() {
    let all: Vec<u8> = (0..=255).collect();
    for from in F8 {
        let of = |bits: u8| number(bits, from);
        check_cast(
            [from, DType::F32],
            &all,
            |bits| (of(bits) as f32).to_bits(),
            |x| f32::from_bits(x).is_nan(),
        );
        check_cast([from, DType::F64], &all, |bits| of(bits).to_bits(), |x| f64::from_bits(x).is_nan());
        check_cast(
            [from, DType::F16],
            &all,
            |bits| to_f16(of(bits)).to_bits(),
            |x| f16::from_bits(x).is_nan(),
        );
        check_cast([from, DType::I32], &all, |bits| of(bits) as i32, |_| false);
        check_cast([from, DType::I8], &all, |bits| of(bits) as i8, |_| false);
        check_cast([from, DType::Bool], &all, |bits| u8::from(of(bits) != 0.0), |_| false);
        for to in F8.into_iter().filter(|&to| to != from) {
            check_cast([from, to], &all, |bits| Float8Format::of(to).bits(of(bits)), is_nan(to));
        }
    }
}

#[test]
fn every_sixteen_bit_float_as_an_eight_bit_one_on_the_host() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for to in F8 {
        let narrow = Float8Format::of(to);
        check_cast([DType::F16, to], &all, |x| narrow.bits(f16::from_bits(x).to_f64()), is_nan(to));
        check_cast([DType::BF16, to], &all, |x| narrow.bits(bf16::from_bits(x).to_f64()), is_nan(to));
    }
}

/// The ties between adjacent values and what is next to them, where a second rounding would show.
#[test]
fn wide_floats_as_eight_bit_ones_on_the_host() {
    for to in F8 {
        let narrow = Float8Format::of(to);
        let finite: Vec<f64> = (0..=255).map(|bits| number(bits, to)).filter(|x| x.is_finite()).collect();
        let mut values =
            vec![f64::NAN, f64::INFINITY, f64::MAX, 1e-300, 1e-40, 464.0, 480.0, 61440.0, 65536.0];
        values.extend(finite.iter().flat_map(|&x| {
            let bits = narrow.bits(x);
            let tie = f64::midpoint(x, number(bits + u8::from(bits & 0x7f < 0x7b), to));
            [x, tie, tie.next_up(), tie.next_down(), f64::from((tie as f32).next_up())]
        }));
        values.extend(values.clone().iter().map(|x| -x));
        let single: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        check_cast([DType::F64, to], &values, |x| narrow.bits(x), is_nan(to));
        check_cast([DType::F32, to], &single, |x| narrow.bits(x.into()), is_nan(to));
        let mut generator = 0x2545_f491_4f6c_dd1du64;
        let random: Vec<f32> = std::iter::repeat_with(|| {
            generator = generator.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Exponents from 2^-20 to 2^19.
            f32::from_bits(
                ((generator >> 32) as u32 & 0x807f_ffff) | (107 + (generator >> 20) as u32 % 40) << 23,
            )
        })
        .take(1 << 18)
        .collect();
        check_cast([DType::F32, to], &random, |x| narrow.bits(x.into()), is_nan(to));
        let whole: Vec<i32> = (-70000..70000).collect();
        check_cast([DType::I32, to], &whole, |x| narrow.bits(x.into()), is_nan(to));
    }
}

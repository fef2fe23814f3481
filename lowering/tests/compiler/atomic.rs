//! Atomic operations: their PTX, which threads execute them, and their results on the CPU.

use expect_test::{Expect, expect};
use tile_ir::ir;
use tile_ir::testing::func;

use super::first;
use super::run::{Arg, run};
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::Session;

/// The atomic instructions of the general specialization, and the broadcast of the old values to other threads.
fn check_ptx(source: &str, arch: Arch, expected: Expect) {
    let (func, requests) = first(source);
    let specializations = specializations(&func, KernelRequests { programs: Some(1), ..requests })
        .expect("specializations that fit");
    let general = specializations.last().expect("a specialization");
    let named = [("entry".into(), general)];
    let archs = [Arch::SM_80, Arch::SM_90A];
    let texts = nvptx::emit(&Session::new(), &named, &archs, None).expect("PTX");
    let (_, ptx) = texts.iter().find(|(other, _)| *other == arch).expect("the architecture");
    let shown = ["atom.", "red.", "shfl.", "bar.", "st.shared", "ld.shared"];
    let lines = ptx.lines().map(str::trim).filter(|line| shown.iter().any(|word| line.contains(word)));
    expected.assert_eq(&lines.map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn order_scope_and_results() {
    check_ptx(
        "#[fuse_kernel(num_warps = 1)]
        fn k(out: &mut [f32], before: &mut [f32]) {
            let i = tl::arange(0, 32);
            tl::atomic_add(out + i, 1.0);
            tl::atomic_add(out + i, 2.0).sem(\"relaxed\").scope(\"cta\");
            tl::atomic_add(out + i, 3.0).sem(\"acquire\");
            tl::store(before + i, tl::atomic_add(out + i, 4.0));
            tl::store(before + i, tl::atomic_xchg(out + i, 5.0).scope(\"sys\").sem(\"release\"));
            tl::store(before + i, tl::atomic_cas(out + i, 6.0, 7.0));
        }",
        Arch::SM_80,
        expect![[r#"
            @%p1 red.release.gpu.global.add.f32 [%rd1], %r1;
            @%p1 red.relaxed.cta.global.add.f32 [%rd1], %r2;
            @%p1 red.relaxed.gpu.global.add.f32 [%rd1], %r3;
            bar.warp.sync 	-1;
            @%p1 atom.acq_rel.gpu.global.add.f32 %r4, [%rd1], %r5;
            bar.warp.sync 	-1;
            bar.warp.sync 	-1;
            @%p1 atom.release.sys.global.exch.b32 %r6, [%rd1], %r7;
            bar.warp.sync 	-1;
            @%p1 atom.acq_rel.gpu.global.cas.b32 %r8, [%rd1], %r9, %r10;
            bar.warp.sync 	-1;
        "#]],
    );
}

/// A tile of 4 elements in 128 threads: one thread changes each, and broadcasts to its warp, then to the other warps.
#[test]
fn one_thread_of_those_that_hold_an_element() {
    check_ptx(
        "#[fuse_kernel(num_warps = 4)]
        fn k(out: &mut [u64], before: &mut [u64]) {
            let i = tl::arange(0, 4);
            tl::store(before + i, tl::atomic_add(out + i, 1u64) * 2);
            tl::atomic_add(out, 1u64);
        }",
        Arch::SM_80,
        expect![[r#"
            @%p1 atom.acq_rel.gpu.global.add.u64 %rd6, [%rd7], %rd8;
            shfl.sync.idx.b32 	%r3, %r9, %r6, 31, -1;
            shfl.sync.idx.b32 	%r4, %r8, %r6, 31, -1;
            st.shared.v2.b32 	[%rd2], {%r3, %r4};
            bar.sync 	0;
            ld.shared.b64 	%rd16, [%rd2];
            bar.sync 	0;
            @%p6 red.release.gpu.global.add.u64 [%rd15], %rd8;
        "#]],
    );
}

/// A barrier stands before a release, so that it covers the writes of all threads, and behind an acquire; relaxed operations
/// need none.
#[test]
fn order_is_that_of_the_whole_program() {
    check_ptx(
        "#[fuse_kernel(num_warps = 4)]
        fn k(x: &[f32], parts: &mut [f32], counts: &mut [u32], out: &mut [f32]) {
            let i = tl::arange(0, 128);
            tl::store(parts + i, tl::load(x + i));
            if tl::atomic_add(counts, 1u32) == 3 {
                tl::store(out + i, tl::load(parts + 127 - i));
            }
            tl::store(out + 128 + i, 1.0);
            tl::store(out + 128 + i, tl::atomic_xchg(parts + i, 2.0).sem(\"acquire\"));
            tl::atomic_add(counts + 1, 1u32).sem(\"relaxed\");
        }",
        Arch::SM_90A,
        expect![[r#"
            bar.sync 	0;
            @%p3 atom.acq_rel.gpu.global.add.u32 %r4, [%rd9], %r5;
            shfl.sync.idx.b32 	%r2, %r4, 0, 31, -1;
            st.shared.b32 	[%rd2], %r2;
            bar.sync 	0;
            ld.shared.b32 	%r10, [%rd2];
            bar.sync 	0;
            @%p11 atom.acquire.gpu.global.exch.b32 %r16, [%rd29], %r17;
            bar.sync 	0;
            @%p12 red.relaxed.gpu.global.add.u32 [%rd30], %r18;
        "#]],
    );
}

#[test]
fn floats_by_their_bits_and_halves() {
    let source = "#[fuse_kernel(num_warps = 1)]
        fn k(out: &mut [f32], halves: &mut [bf16], x: &[f32]) {
            let i = tl::arange(0, 32);
            tl::atomic_max(out + i, tl::load(x + i));
            tl::atomic_add(halves + i, tl::load(x + i).to::<bf16>());
        }";
    check_ptx(
        source,
        Arch::SM_80,
        expect![[r#"
            @%p2 red.release.gpu.global.max.s32 [%rd2], %r3;
            @%p3 red.release.gpu.global.min.u32 [%rd2], %r3;
            bar.warp.sync 	-1;
            atom.acq_rel.gpu.global.cas.b16 %rs5, [%rd17], %rs3, %rs3;
            atom.acq_rel.gpu.global.cas.b16 %rs1, [%rd17], %rs5, %rs4;
        "#]],
    );
    check_ptx(
        source,
        Arch::SM_90A,
        expect![[r#"
            @%p2 red.release.gpu.global.max.s32 [%rd2], %r2;
            @%p3 red.release.gpu.global.min.u32 [%rd2], %r2;
            bar.warp.sync 	-1;
            @%p4 red.release.gpu.global.add.noftz.bf16 [%rd3], %rs1;
        "#]],
    );
}

#[test]
fn an_atomic_operation_prints_its_order() {
    let func = func(
        "#[fuse_kernel()]
        fn k(out: &mut [i32], n: i32) {
            let i = tl::arange(0, 64);
            let before = tl::atomic_cas(out + i, 1, 2, i < n).sem(\"acquire\");
            tl::atomic_min(out + i, before).scope(\"sys\");
        }",
    );
    expect![[r#"
        kernel k(out: &mut [i32], %0 n: i32) {
          %1 = arange 0 : i32[64]
          %2 = splat %0 : i32[64]
          %3 = lt %1, %2 : bool[64]
          %4 = constant 1 : i32
          %5 = splat %4 : i32[64]
          %6 = constant 2 : i32
          %7 = splat %6 : i32[64]
          %8 = atomic_cas %5, %7, out[%1] mask %3 order acquire scope gpu : i32[64]
          %9 = atomic_min %8, out[%1] order acq_rel scope sys : i32[64]
        }
    "#]]
    .assert_eq(&ir::print(&func, &|_| None));
}

// ---- on the CPU

/// Each element of a tile adds to its index and returns the old value: repeated, masked and out-of-bounds indices.
#[test]
fn additions_by_index_on_the_cpu() {
    let index: Vec<i32> = (0..256).map(|i| (i * 37) % 21 - 2).collect();
    let mut wanted = vec![100i64; 16];
    let mut before = vec![0i64; 256];
    for (i, &at) in index.iter().enumerate() {
        if (0..16).contains(&at) && i < 250 {
            before[i] = wanted[at as usize];
            wanted[at as usize] += i as i64;
        }
    }
    for relaxed in [true, false] {
        let (mut index, mut found) = (index.clone(), vec![-1i64; 256]);
        let source = format!(
            "#[fuse_kernel(unreported)]
            fn k(index: &[i32], out: &mut [i64], before: &mut [i64]) {{
                let i = tl::program_id(0) * 64 + tl::arange(0, 64);
                let old = tl::atomic_add(out + tl::load(index + i), i as i64, i < 250){};
                tl::store(before + i, old);
            }}",
            if relaxed { ".sem(\"relaxed\")" } else { "" }
        );
        for loaded in super::run::load(&source) {
            let mut out = vec![100i64; 16];
            loaded.call([4, 1, 1], &mut [Arg::of(&mut index), Arg::of(&mut out), Arg::of(&mut found)]);
            assert_eq!((&out, &found), (&wanted, &before));
        }
    }
}

/// The results for each pair of a value in memory and an operand.
fn check_pairs<T: Copy + PartialEq + std::fmt::Debug>(
    (change, dtype): (&str, &str),
    values: &[T],
    wanted: impl Fn(T, T) -> T,
) {
    let pairs: Vec<(T, T)> = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect();
    let n = pairs.len().div_ceil(64);
    let at = |i: usize| pairs[i % pairs.len()];
    let source = format!(
        "#[fuse_kernel()]
        fn k(x: &[{dtype}], out: &mut [{dtype}], before: &mut [{dtype}]) {{
            let i = tl::program_id(0) * 64 + tl::arange(0, 64);
            tl::store(before + i, tl::{change}(out + i, tl::load(x + i)));
        }}"
    );
    for loaded in super::run::load(&source) {
        let mut x: Vec<T> = (0..64 * n).map(|i| at(i).1).collect();
        let mut out: Vec<T> = (0..64 * n).map(|i| at(i).0).collect();
        let mut before = x.clone();
        loaded.call([n as u32, 1, 1], &mut [Arg::of(&mut x), Arg::of(&mut out), Arg::of(&mut before)]);
        for i in 0..64 * n {
            let (memory, value) = at(i);
            assert_eq!((before[i], out[i]), (memory, wanted(memory, value)), "{change} {memory:?} {value:?}");
        }
    }
}

#[test]
fn every_change_on_the_cpu() {
    let ints = [0i32, 1, -1, 7, i32::MIN, i32::MAX, 0x5555_5555];
    check_pairs(("atomic_add", "i32"), &ints, i32::wrapping_add);
    check_pairs(("atomic_max", "i32"), &ints, i32::max);
    check_pairs(("atomic_min", "i32"), &ints, i32::min);
    check_pairs(("atomic_and", "i32"), &ints, |a, b| a & b);
    check_pairs(("atomic_or", "i32"), &ints, |a, b| a | b);
    check_pairs(("atomic_xor", "i32"), &ints, |a, b| a ^ b);
    check_pairs(("atomic_xchg", "i32"), &ints, |_, b| b);
    let words = [0u64, 1, 1 << 63, u64::MAX, 0x1234_5678_9abc_def0];
    check_pairs(("atomic_max", "u64"), &words, u64::max);
    check_pairs(("atomic_min", "u64"), &words, u64::min);
    check_pairs(("atomic_add", "u64"), &words, u64::wrapping_add);
    // Floats as their bits, so that NaN and the sign of zero are compared too.
    let floats = [0.0f32, -0.0, 1.5, -1.5, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -1e-40, f32::MAX];
    let bits: Vec<u32> = floats.iter().map(|x| x.to_bits()).collect();
    let by = |pick: fn(f32, f32) -> bool| {
        move |a: u32, b: u32| if pick(f32::from_bits(a), f32::from_bits(b)) { a } else { b }
    };
    check_pairs(("atomic_max", "f32"), &bits, by(|a, b| a.total_cmp(&b).is_ge()));
    check_pairs(("atomic_min", "f32"), &bits, by(|a, b| a.total_cmp(&b).is_le()));
    check_pairs(("atomic_xchg", "f32"), &bits, |_, b| b);
    let wide: Vec<u64> = floats.iter().map(|&x| f64::from(x).to_bits()).collect();
    let larger = |a: u64, b: u64| if f64::from_bits(a).total_cmp(&f64::from_bits(b)).is_ge() { a } else { b };
    check_pairs(("atomic_max", "f64"), &wide, larger);
    let halves: Vec<u16> =
        [0.0f32, 1.0, -2.5, 1000.0, 65504.0].map(|x| half::f16::from_f32(x).to_bits()).into();
    let sum = |a: u16, b: u16| (half::f16::from_bits(a) + half::f16::from_bits(b)).to_bits();
    check_pairs(("atomic_add", "f16"), &halves, sum);
}

/// NaN replaces every value in memory, and stays there.
#[test]
fn not_a_number_wins_on_the_cpu() {
    for change in ["atomic_max", "atomic_min"] {
        let mut out = vec![1.0f32, -1.0, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 2.0, -2.0];
        let mut x = [f32::NAN, -f32::NAN].repeat(4);
        let source = format!(
            "#[fuse_kernel()]
            fn k(x: &[f32], out: &mut [f32]) {{
                let i = tl::arange(0, 8);
                tl::{change}(out + i, tl::load(x + i));
                tl::{change}(out + i, 3.0);
                tl::{change}(out + i, -3.0);
            }}"
        );
        run(&source, [1, 1, 1], vec![Arg::F32(&mut x), Arg::F32(&mut out)]);
        assert!(out.iter().all(|x| x.is_nan()), "{change}: {out:?}");
    }
}

#[test]
fn comparing_and_exchanging_on_the_cpu() {
    let source = "#[fuse_kernel()]
        fn k(out: &mut [f32], before: &mut [f32], n: i32) {
            let i = tl::arange(0, 8);
            tl::store(before + i, tl::atomic_cas(out + i, 0.0, 9.0, i < n));
            tl::store(before + 8, tl::atomic_cas(out, 9.0, 10.0));
        }";
    let start = [0.0f32, -0.0, 1.0, 0.0, f32::NAN, 0.0, 0.0, 0.0];
    for loaded in super::run::load(source) {
        let (mut out, mut before) = (start, [5.0f32; 9]);
        loaded.call([1, 1, 1], &mut [Arg::F32(&mut out), Arg::F32(&mut before), Arg::Scalar(6)]);
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(&[10.0, -0.0, 1.0, 9.0, f32::NAN, 9.0, 0.0, 0.0]));
        assert_eq!(bits(&before), bits(&[0.0, -0.0, 1.0, 0.0, f32::NAN, 0.0, 0.0, 0.0, 9.0]));
    }
}

/// Additions of contiguous elements in the aligned specialization: vectors where the GPU has them and no old value is used.
fn check_vectors(source: &str, arch: Arch, expected: Expect) {
    let (func, requests) = first(source);
    let specializations = specializations(&func, KernelRequests { programs: Some(1), ..requests })
        .expect("specializations that fit");
    assert_eq!(specializations[0].name, "aligned");
    let named = [("entry".into(), &specializations[0])];
    let texts = nvptx::emit(&Session::new(), &named, &[arch], None).expect("PTX");
    let lines = texts[0].1.lines().map(str::trim);
    let shown = lines.filter(|line| ["atom.", "red.", ".version"].iter().any(|word| line.contains(word)));
    expected.assert_eq(&shown.map(|line| format!("{line}\n")).collect::<String>());
}

const ROWS: &str = "#[fuse_kernel(num_warps = 1)]
    fn k(out: &mut [T], x: &[T], places: &[i32], n: i32) {
        let i = tl::arange(0, 256);
        let x = tl::load(x + tl::program_id(0) * n + i, i < n);
        tl::atomic_add(out + tl::load(places + tl::program_id(0)) * n + i, x, i < n).sem(\"relaxed\");
    }";

#[test]
fn contiguous_elements_are_added_as_vectors() {
    check_vectors(
        &ROWS.replace('T', "f32"),
        Arch::SM_90A,
        expect![[r#"
        .version 8.1
        @%p3 red.relaxed.gpu.global.add.v4.f32 [%rd4], {%r1, %r2, %r3, %r4};
        @%p4 red.relaxed.gpu.global.add.v4.f32 [%rd5], {%r5, %r6, %r7, %r8};
    "#]],
    );
    check_vectors(
        &ROWS.replace('T', "bf16"),
        Arch::SM_90A,
        expect![[r#"
        .version 8.1
        @%p2 red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%rd3], {%r1, %r2, %r3, %r4};
    "#]],
    );
    check_vectors(
        &ROWS.replace('T', "f16"),
        Arch::SM_80,
        expect![[r#"
        .version 7.4
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd3], %rs1;
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd4], %rs2;
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd5], %rs3;
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd6], %rs4;
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd7], %rs5;
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd8], %rs6;
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd9], %rs7;
        @%p2 red.relaxed.gpu.global.add.noftz.f16 [%rd10], %rs8;
    "#]],
    );
    check_vectors(
        &ROWS.replace('T', "i32"),
        Arch::SM_90A,
        expect![[r#"
        .version 8.0
        @%p3 red.relaxed.gpu.global.add.u32 [%rd4], %r1;
        @%p3 red.relaxed.gpu.global.add.u32 [%rd5], %r2;
        @%p3 red.relaxed.gpu.global.add.u32 [%rd6], %r3;
        @%p3 red.relaxed.gpu.global.add.u32 [%rd7], %r4;
        @%p4 red.relaxed.gpu.global.add.u32 [%rd8], %r5;
        @%p4 red.relaxed.gpu.global.add.u32 [%rd9], %r6;
        @%p4 red.relaxed.gpu.global.add.u32 [%rd10], %r7;
        @%p4 red.relaxed.gpu.global.add.u32 [%rd11], %r8;
    "#]],
    );
}

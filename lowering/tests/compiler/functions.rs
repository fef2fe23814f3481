//! What combine functions compute on every CPU level, and how a GPU thread combines its own elements.

use expect_test::expect;
use lowering::backend::nvptx::Arch;

use super::run::{Arg, run};
use super::{lines_with, ptx_of};

/// What a kernel writes on every CPU level, for these inputs.
fn written(statements: &str, input: &[f32], count: usize) -> Vec<f32> {
    let source = format!(
        "#[fuse_kernel(N = [{}])]
        fn k<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {{
            let c = tl::arange(0, N);
            let x = tl::load(x + c);
            {statements}
        }}",
        input.len()
    );
    let (mut input, mut out) = (input.to_vec(), vec![f32::MAX; count]);
    run(&source, [1, 1, 1], vec![Arg::F32(&mut input), Arg::F32(&mut out), Arg::Scalar(3)]);
    out
}

#[test]
fn the_first_of_equal_elements_and_the_first_nan_win() {
    let store = "tl::store(out, tl::argmax(x) as f32);
        tl::store(out + 1, tl::argmin(x, 0) as f32);
        let (most, at) = tl::max_index(x, 0);
        tl::store(out + 2, most);
        tl::store(out + 3, at as f32);";
    let mut x: Vec<f32> = (0..96).map(|i| (i % 32) as f32).collect();
    assert_eq!(written(store, &x, 4), [31.0, 0.0, 31.0, 31.0]);
    x[7] = f32::INFINITY;
    x[70] = f32::NEG_INFINITY;
    assert_eq!(written(store, &x, 4), [7.0, 70.0, f32::INFINITY, 7.0]);
    (x[50], x[90]) = (f32::NAN, f32::NAN);
    let found = written(store, &x, 4);
    assert_eq!((found[0], found[1], found[2].is_nan(), found[3]), (50.0, 50.0, true, 50.0));
    let zeros: Vec<f32> = (0..64).map(|i| if i % 2 == 0 { -0.0 } else { 0.0 }).collect();
    assert_eq!(written(store, &zeros, 4)[..2], [0.0, 0.0]);
}

/// A thread compares no positions of its own elements, and they are immediates; the lanes of a warp compare in two steps what they have.
#[test]
fn places_in_a_thread_are_in_order() {
    let source = "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[f32], out: &mut [i32]) {
            tl::store(out, tl::argmin(tl::load(x + tl::arange(0, 128)), 0));
        }";
    let ptx = ptx_of(source, Arch::SM_90A, |body| body.name == "general");
    let shown = lines_with(&ptx, &["setp", "selp", "redux"]);
    expect![[r#"
        setp.lt.s32 	%p1, %r7, %r11;
        setp.lt.s32 	%p2, %r8, %r11;
        setp.lt.s32 	%p3, %r9, %r11;
        setp.lt.s32 	%p4, %r10, %r11;
        setp.gt.u32 	%p6, %r16, 2139095040;
        selp.b32 	%r19, -2147483648, %r18, %p6;
        redux.sync.min.s32 	%r21, %r19, %r20;
        setp.eq.b32 	%p7, %r21, -2147483648;
        selp.f32 	%r27, 0fFF800000, %r26, %p7;
        setp.gtu.f32 	%p8, %r27, %r1;
        setp.gtu.f32 	%p9, %r27, %r2;
        setp.gtu.f32 	%p10, %r27, %r3;
        setp.gtu.f32 	%p11, %r27, %r4;
        selp.b32 	%r28, 96, 2147483647, %p11;
        selp.b32 	%r29, 64, %r28, %p10;
        selp.b32 	%r30, 32, %r29, %p9;
        selp.b32 	%r31, 0, %r30, %p8;
        setp.eq.b32 	%p12, %r31, 2147483647;
        selp.b32 	%r33, 2147483647, %r32, %p12;
        redux.sync.min.s32 	%r5, %r33, %r20;
        setp.gt.s64 	%p13, %rd8, 0;
        setp.eq.b32 	%p14, %r7, 0;
    "#]]
    .assert_eq(&shown);
}

/// Lanes of a warp are reduced by one instruction where an order of integers says the same, whatever function says so.
#[test]
fn lanes_are_reduced_as_integers() {
    let exchanges = |elem: &str, reduced: &str| {
        let source = format!(
            "#[fuse_kernel(num_warps = 1)]
            fn k(x: &[{elem}], out: &mut [{elem}], places: &mut [i32]) {{
                let at = tl::arange(0, 64);
                let x = tl::load(x + at);
                {reduced}
            }}"
        );
        let ptx = ptx_of(&source, Arch::SM_90A, |body| body.name == "general");
        let of = |word: &str| ptx.matches(word).count();
        let shuffles = of("shfl.sync.bfly");
        let redux =
            ptx.lines().filter_map(|line| line.trim().strip_prefix("redux.sync.")?.split_whitespace().next());
        format!("{} and {shuffles} shuffles", redux.collect::<Vec<_>>().join(" "))
    };
    // The larger of two values, the first of equal ones; NaN is none of either, or the larger.
    let own = |first: &str| {
        format!(
            "let (value, place) = tl::reduce((x, at), 0, |a, b| {{
                let first = {first};
                (tl::select(first, a.0, b.0), tl::select(first, a.1, b.1))
            }});
            tl::store(out, value);
            tl::store(places, place);"
        )
    };
    let (naive, whole) = (
        "(a.0 > b.0) | ((a.0 == b.0) & (a.1 < b.1))",
        "((a.0 > b.0) | ((a.0 != a.0) & (b.0 == b.0))) | (((a.0 == b.0) | ((a.0 != a.0) & (b.0 != b.0))) & (a.1 < b.1))",
    );
    let cases = [
        ("f32", "tl::store(out, tl::max(x));".to_string()),
        ("bf16", "tl::store(out, tl::min(x));".to_string()),
        ("u8", "tl::store(out, tl::max(x));".to_string()),
        ("i32", "tl::store(out, tl::sum(x));".to_string()),
        ("f32", "tl::store(out, tl::sum(x));".to_string()),
        ("i64", "tl::store(out, tl::max(x));".to_string()),
        (
            "f16",
            "let (value, place) = tl::max_index(x, 0); tl::store(out, value); tl::store(places, place);"
                .to_string(),
        ),
        (
            "i32",
            "let (value, place) = tl::min_index(x, 0); tl::store(out, value); tl::store(places, place);"
                .to_string(),
        ),
        ("f32", own(naive)),
        ("f32", own(whole)),
        ("i32", own(naive)),
    ];
    let lines = cases.map(|(elem, reduced)| exchanges(elem, &reduced) + "\n");
    expect![[r#"
         and 5 shuffles
         and 5 shuffles
        max.u32 and 0 shuffles
        add.s32 and 0 shuffles
         and 5 shuffles
         and 10 shuffles
        max.s32 min.s32 or.b32 and 0 shuffles
        min.s32 min.s32 and 0 shuffles
         and 10 shuffles
        max.s32 min.s32 or.b32 and 0 shuffles
        max.s32 min.s32 and 0 shuffles
    "#]]
    .assert_eq(&lines.concat());
}

/// Floats are sorted as integers, and each keeps its bits: NaN of either sign is last, a negative zero is before a positive one.
#[test]
fn sorted_floats_keep_their_bits() {
    let rising = [
        f32::NEG_INFINITY,
        f32::MIN,
        -1.5,
        -1e-45,
        -0.0,
        -0.0,
        0.0,
        1e-45,
        1.5,
        2.0,
        f32::MAX,
        f32::INFINITY,
    ];
    let nans = [0x7fc0_0000, 0x7fc0_0001, 0xffc0_0001, 0xffc0_0000];
    let rising: Vec<u32> = rising.into_iter().map(f32::to_bits).chain(nans).collect();
    let mixed: Vec<f32> = (0..16).map(|i| f32::from_bits(rising[i * 7 % 16])).collect();
    let bits = |sort: &str| -> Vec<u32> {
        let found = written(&format!("tl::store(out + c, {sort});"), &mixed, 16);
        found.into_iter().map(f32::to_bits).collect()
    };
    assert_eq!(bits("tl::sort(x, 0)"), rising);
    let falling: Vec<u32> = rising.iter().rev().copied().collect();
    assert_eq!(bits("tl::sort(x, 0, true)"), falling);
}

#[test]
fn welford_by_tuples() {
    let x: Vec<f32> = (0..192).map(|i| ((i * 7919) % 1000) as f32 / 8.0 + 1000.0).collect();
    let found = written(
        "let (n, mean, m2) = tl::reduce((1.0, x, 0.0), 0, |(n, mean, m2), (k, other, q)| {
            let total = n + k;
            let delta = other - mean;
            (total, mean + delta * (k / total), m2 + q + delta * delta * n * (k / total))
        });
        tl::store(out, n);
        tl::store(out + 1, mean);
        tl::store(out + 2, m2 / n);",
        &x,
        3,
    );
    let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / 192.0;
    let variance = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / 192.0;
    let close = |found: f32, want: f64| (f64::from(found) - want).abs() < 1e-5 * want;
    assert!(
        found[0] == 192.0 && close(found[1], mean) && close(found[2], variance),
        "{found:?} {mean} {variance}"
    );
}

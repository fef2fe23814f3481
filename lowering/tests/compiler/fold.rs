//! How GPU threads reduce their registers, and widen them before.

use expect_test::{Expect, expect};

use super::ptx;
use lowering::backend::nvptx::Arch;

/// How often each of these words stands in the first body of a kernel.
fn check_counts(source: &str, words: &[&str], expected: Expect) {
    let text = ptx(source, Arch::SM_90A);
    let counts: Vec<String> =
        words.iter().map(|word| format!("{} {word}", text.matches(word).count())).collect();
    expected.assert_eq(&counts.join(", "));
}

/// A row of 64 elements for each of 128 threads, in 16 vectors.
fn row(dtype: &str, sum: &str) -> String {
    format!(
        "#[fuse_kernel(num_warps = 4)]
        fn k(x: &[{dtype}], out: &mut [f32], n: i32, m: f32) {{
            let cols = tl::arange(0, 8192);
            let mask = cols < n;
            let x = tl::load(x + cols, mask, 1.0).to::<f32>();
            tl::store(out, {sum});
        }}"
    )
}

/// What is 0 beyond a mask is added up without it, and selected once for each vector.
#[test]
fn masked_sums_select_once_for_a_vector() {
    let selections = |sum: &str, expected| check_counts(&row("f32", sum), &["selp"], expected);
    selections("tl::sum(tl::select(mask, x - m, 0.0))", expect!["16 selp"]);
    selections("tl::sum(tl::select(mask, (x - m) * (x - m), 0.0))", expect!["16 selp"]);
    // A product of two such is another one.
    selections(
        "{ let c = tl::select(mask, x - m, 0.0); tl::sum(c * tl::select(mask, x + m, 0.0)) }",
        expect!["16 selp"],
    );
    selections("tl::max(tl::select(mask, x - m, 0.0))", expect!["16 selp"]);
}

#[test]
fn other_sums_select_each_element() {
    let selections = |sum: &str, expected| check_counts(&row("f32", sum), &["selp"], expected);
    selections("tl::sum(tl::select(mask, x - m, 2.0))", expect!["64 selp"]);
    // Of a negative number its own zero.
    selections("tl::sum(tl::select(mask, x - m, -0.0))", expect!["64 selp"]);
    selections("tl::sum(tl::select(mask, x - m, 0.0) + m)", expect!["64 selp"]);
    // A combination of a user's own may make anything of zeros.
    selections("tl::reduce(tl::select(mask, x - m, 0.0), 0, |a, b| a + b + 1.0)", expect!["64 selp"]);
}

/// Up to 16 partial results are read and added by every thread; of more each lane takes four, and lanes exchange sums.
#[test]
fn many_partial_results_are_shared_among_lanes() {
    for (blocks, warps, expected) in [
        (1, 8, expect!["2 ld.shared.v4.b32, 5 shfl.sync"]),
        (1, 16, expect!["4 ld.shared.v4.b32, 5 shfl.sync"]),
        (1, 32, expect!["1 ld.shared.v4.b32, 8 shfl.sync"]),
        (8, 32, expect!["2 ld.shared.v4.b32, 12 shfl.sync"]),
    ] {
        let source = format!(
            "#[fuse_kernel(num_ctas = {blocks}, num_warps = {warps}, unchecked)]
            fn k(x: &[f32], out: &mut [f32]) {{
                tl::store(out, tl::sum(tl::load(x + tl::arange(0, 32768))));
            }}"
        );
        check_counts(&source, &["ld.shared.v4.b32", "shfl.sync"], expected);
    }
}

/// Lanes that hold results of their own share nothing.
#[test]
fn partial_results_of_columns_are_read_by_every_lane() {
    check_counts(
        "#[fuse_kernel(num_warps = 32)]
        fn k(x: &[f32], out: &mut [f32]) {
            let (rows, cols) = (tl::arange(0, 32), tl::arange(0, 32));
            tl::store(out + cols, tl::sum(tl::load(x + rows.col() * 32 + cols.row()), 0));
        }",
        &["ld.shared.v4.b32", "shfl.sync"],
        expect!["8 ld.shared.v4.b32, 0 shfl.sync"],
    );
}

/// The lower halves of words are multiplied up, which takes other units than shifts and masks; not in few, and not beside random
/// numbers, which are products too.
#[test]
fn rows_of_bf16_are_widened_by_multiplication() {
    let words = ["mul.lo.s32", "shl.b32"];
    let sum = |sum: &str, expected| check_counts(&row("bf16", sum), &words, expected);
    sum("tl::sum(x)", expect!["32 mul.lo.s32, 2 shl.b32"]);
    sum("tl::sum(x * tl::rand(7, cols))", expect!["0 mul.lo.s32, 34 shl.b32"]);
    check_counts(
        "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[bf16], out: &mut [f32]) {
            let cols = tl::arange(0, 256);
            tl::store(out + cols, tl::load(x + cols).to::<f32>());
        }",
        &words,
        expect!["0 mul.lo.s32, 9 shl.b32"],
    );
}

/// In a loop each of the lanes that have the same sum stores it in one block of the cluster; where lanes have sums of their own, and
/// outside of loops, each stores in all blocks.
#[test]
fn lanes_share_the_blocks_of_a_cluster() {
    let stores = |statement: &str, expected| {
        let source = format!(
            "#[fuse_kernel(num_ctas = 8, num_warps = 4, unchecked)]
            fn k(x: &[f32], out: &mut [f32], n: i32) {{
                let (rows, cols) = (tl::arange(0, 512), tl::arange(0, 32));
                let x = x + rows.col() * 32 + cols.row();
                {statement}
            }}"
        );
        check_counts(&source, &["st.async", "mapa.shared"], expected);
    };
    stores(
        "for i in 0..n { tl::store(out + i, tl::sum(tl::load(x + i))); }",
        expect!["1 st.async, 2 mapa.shared"],
    );
    stores(
        "for i in 0..n { tl::store(out + i + cols, tl::sum(tl::load(x + i), 0)); }",
        expect!["8 st.async, 16 mapa.shared"],
    );
    stores("tl::store(out, tl::sum(tl::load(x)));", expect!["8 st.async, 16 mapa.shared"]);
}

/// Sixteen lanes have eight columns each, of which four warps leave a sum: the first of all lanes follow each other, then the second.
/// Beside each other the eight of a lane would be 128 bytes from those of the next one, in the same banks.
#[test]
fn sums_of_adjacent_lanes_use_different_banks() {
    let source = "#[fuse_kernel(num_warps = 4)]
        fn k(x: &[bf16], out: &mut [f32]) {
            let at = tl::arange(0, 16).col() * 128 + tl::arange(0, 128).row();
            tl::store(out + tl::arange(0, 128), tl::sum(tl::load(x + at).to::<f32>(), 0));
        }";
    let text = ptx(source, Arch::SM_90A);
    let reads = text.lines().filter(|line| line.contains("ld.shared.v4"));
    let offsets: Vec<u32> = reads
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .map(|(offset, _)| {
            offset.split_once('+').map_or(0, |(_, bytes)| bytes.trim().parse().expect("an offset"))
        })
        .collect();
    let mut sorted = offsets.clone();
    sorted.sort_unstable();
    assert_eq!(sorted[..8], [0, 256, 512, 768, 1024, 1280, 1536, 1792], "{offsets:?}");
}

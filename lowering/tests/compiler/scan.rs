//! Scans on the CPU, against loops, of small integers, so that every sum is exact; and the exchanges between GPU threads.

use expect_test::{Expect, expect};

use super::ptx;
use super::run::{Arg, load};
use lowering::backend::nvptx::Arch;

/// Runs `x -> scan(x)` over a tile of `shape`, the result written in the same order.
fn scanned(shape: [usize; 2], call: &str, x: &[f32]) -> Vec<f32> {
    let [m, n] = shape;
    let source = format!(
        "#[fuse_kernel] fn k(x: &[f32], out: &mut [f32]) {{
            let offsets = tl::arange(0, {m}).col() * {n} + tl::arange(0, {n}).row();
            let x = tl::load(x + offsets);
            tl::store(out + offsets, {call});
        }}"
    );
    let mut out = vec![f32::NAN; m * n];
    let mut input = x.to_vec();
    for loaded in load(&source) {
        out.fill(f32::NAN);
        loaded.call([1, 1, 1], &mut [Arg::F32(&mut input), Arg::F32(&mut out)]);
    }
    out
}

#[test]
fn sums_up_to_each_element() {
    for shape in [[1, 1], [1, 64], [12, 40], [64, 3]] {
        let [m, n] = shape;
        let x: Vec<f32> = (0..m * n).map(|i| ((i * 7) % 11) as f32 - 4.0).collect();
        let sum = |of: &dyn Fn(usize, usize) -> bool| -> Vec<f32> {
            let up_to = |i: usize| (0..m * n).filter(|&j| of(i, j)).map(|j| x[j]).sum();
            (0..m * n).map(up_to).collect()
        };
        let (row, col) = (|i: usize| i / n, |i: usize| i % n);
        assert_eq!(
            scanned(shape, "tl::cumsum(x, 1)", &x),
            sum(&|i, j| row(i) == row(j) && j <= i),
            "{shape:?}"
        );
        assert_eq!(
            scanned(shape, "tl::cumsum(x, 0)", &x),
            sum(&|i, j| col(i) == col(j) && j <= i),
            "{shape:?}"
        );
        let back = scanned(shape, "tl::cumsum(x, 1, true)", &x);
        assert_eq!(back, sum(&|i, j| row(i) == row(j) && j >= i), "{shape:?}");
    }
}

/// Shuffles, shared-memory accesses and selects of the first specialization of a kernel that scans `m x n` elements in four
/// warps.
fn check_exchanges(dtype: &str, [m, n]: [usize; 2], result: &str, expected: Expect) {
    let source = format!(
        "#[fuse_kernel(num_warps = 4)] fn k(x: &[{dtype}], out: &mut [f32]) {{
            let offsets = tl::arange(0, {m}).col() * {n} + tl::arange(0, {n}).row();
            let x = tl::load(x + offsets).to::<f32>();
            let sums = tl::associative_scan(x, 0, |a, b| a * 0.5 + b);
            {result}
        }}"
    );
    let text = ptx(&source, Arch::SM_90A);
    let counts = ["shfl.sync", "st.shared", "ld.shared", "selp"].map(|word| text.matches(word).count());
    expected.assert_eq(&format!("{counts:?}"));
}

/// A thread has contiguous elements of the columns: only warps exchange totals, and a branch adds them to a warp's elements.
#[test]
fn columns_are_scanned_in_registers() {
    let all = "tl::store(out + offsets, sums);";
    check_exchanges("f32", [32, 128], all, expect!["[0, 4, 4, 8]"]);
    check_exchanges("bf16", [32, 128], all, expect!["[0, 4, 4, 8]"]);
    // Two lanes of 16 columns each.
    check_exchanges("bf16", [64, 32], all, expect!["[6, 2, 2, 26]"]);
    // More columns than lanes and warps: nothing is exchanged.
    check_exchanges("f32", [8, 512], all, expect!["[0, 0, 0, 0]"]);
}

/// Only the warp that holds the row writes it to shared memory.
#[test]
fn indexing_exchanges_one_row() {
    check_exchanges(
        "f32",
        [32, 128],
        "tl::store(out + tl::arange(0, 128), tl::index(sums, 0, 31));",
        expect!["[0, 5, 5, 8]"],
    );
}

/// Where warps have both the low and the high bits of the axis, the offset of a thread's run depends on both: each element
/// needs a select.
#[test]
fn offsets_by_several_warp_bits_are_selected() {
    let source = "#[fuse_kernel(num_warps = 8, unchecked)] fn k(x: &[f32], out: &mut [f32]) {
        let offsets = tl::reshape(tl::arange(0, 32), [4, 8, 1]) * 128 + tl::reshape(tl::arange(0, 128), [1, 1, 128]);
        let x = tl::reshape(tl::load(x + offsets), [32, 128]);
        let sums = tl::associative_scan(x, 0, |a, b| a * 0.5 + b);
        tl::store(out + offsets, tl::reshape(sums, [4, 8, 128]));
    }";
    let text = ptx(source, Arch::SM_90A);
    let counts = ["bar.sync", "selp", "bra"].map(|word| text.matches(word).count());
    expect!["[3, 44, 0]"].assert_eq(&format!("{counts:?}"));
}

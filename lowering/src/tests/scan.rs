//! Scans on the host, against loops; numbers are small whole ones, so every sum is exact.

use super::run::{Arg, load};

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

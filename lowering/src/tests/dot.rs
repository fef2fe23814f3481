//! Products of matrices: what a kernel with them becomes, and their results on the processor at hand.

use super::run::{Arg, load};

/// `a[m, k] · b[k, n]`, once over tiles of `shape` and once with `+ a[0] * 2`-like accumulators, against sums in `f64`.
fn product(elem: &str, sum: &str, [m, n, k]: [usize; 3], transposed: bool) -> String {
    let right = if transposed {
        format!("tl::trans(tl::load(b + cols.col() * {k} + inner.row()))")
    } else {
        format!("tl::load(b + inner.col() * {n} + cols.row())")
    };
    format!(
        "#[fuse_kernel] fn k(a: &[{elem}], b: &[{elem}], out: &mut [{sum}]) {{
            let (rows, cols, inner) = (tl::arange(0, {m}), tl::arange(0, {n}), tl::arange(0, {k}));
            let a = tl::load(a + rows.col() * {k} + inner.row());
            let b = {right};
            let once = tl::dot(a, b);
            tl::store(out + rows.col() * {n} + cols.row(), tl::dot(a, b, once));
        }}"
    )
}

fn whole(count: usize, seed: usize) -> Vec<i64> {
    (0..count).map(|i| ((i * 7 + seed * 3 + i / 5) % 13) as i64 - 6).collect()
}

/// Twice the product of small whole numbers, which is exact in every type.
fn check<T: Copy, S: Copy + PartialEq + std::fmt::Debug>(
    [elem, sum]: [&str; 2],
    shape: [usize; 3],
    (from, to, nothing): (impl Fn(i64) -> T, impl Fn(i64) -> S, S),
) {
    let [m, n, k] = shape;
    for transposed in [false, true] {
        let (x, y) = (whole(m * k, 1), whole(k * n, 2));
        let right =
            |inner: usize, col: usize| if transposed { y[col * k + inner] } else { y[inner * n + col] };
        let wanted: Vec<S> = (0..m * n)
            .map(|i| to(2 * (0..k).map(|inner| x[i / n * k + inner] * right(inner, i % n)).sum::<i64>()))
            .collect();
        let mut a: Vec<T> = x.iter().copied().map(&from).collect();
        let mut b: Vec<T> = y.iter().copied().map(&from).collect();
        for loaded in load(&product(elem, sum, shape, transposed)) {
            let mut out = vec![nothing; m * n];
            loaded.call([1, 1, 1], &mut [Arg::of(&mut a), Arg::of(&mut b), Arg::of(&mut out)]);
            assert_eq!(out, wanted, "{elem} {shape:?} {transposed} {:?}", loaded.level);
        }
    }
}

#[test]
fn whole_numbers_multiply_exactly_on_the_host() {
    let half = || (|x: i64| half::f16::from_f64(x as f64), |x: i64| x as f32, f32::NAN);
    check(["f16", "f32"], [16, 16, 16], half());
    check(["f16", "f32"], [1, 8, 16], half());
    check(["f16", "f32"], [12, 40, 48], half());
    check(
        ["bf16", "f32"],
        [64, 32, 32],
        (|x: i64| half::bf16::from_f64(x as f64), |x: i64| x as f32, f32::NAN),
    );
    let single = || (|x: i64| x as f32, |x: i64| x as f32, f32::NAN);
    check(["f32", "f32"], [32, 64, 16], single());
    check(["f32", "f32"], [7, 3, 5], single());
    check(["f32", "f32"], [1, 1, 1], single());
    check(["f64", "f64"], [16, 24, 4], (|x: i64| x as f64, |x: i64| x as f64, f64::NAN));
    check(["i8", "i32"], [16, 16, 32], (|x: i64| x as i8, |x: i64| x as i32, i32::MIN));
}

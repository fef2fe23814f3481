//! Functions of `tl::` that are written in the language itself, checked at each call like a `#[fuse_fn]`.

/// What the functions below are made of. Beside its own type parameter `T` each knows `Wide`: `f64` where `T` is, and
/// `f32` for every other float.
pub(crate) const SOURCE: &str = r#"
/// Which of two elements with their positions is the maximum: ties to the left, NaN largest.
fn larger_first<T: Number>(a: (T, i32), b: (T, i32)) -> (T, i32) {
    let ((x, i), (y, j)) = (a, b);
    let tie = (x == y) | ((x != x) & (y != y));
    let wins = (x > y) | ((x != x) & (y == y));
    let first = wins | (tie & (i < j));
    (tl::select(first, x, y), tl::select(first, i, j))
}

fn smaller_first<T: Number>(a: (T, i32), b: (T, i32)) -> (T, i32) {
    let ((x, i), (y, j)) = (a, b);
    let tie = (x == y) | ((x != x) & (y != y));
    let wins = (x < y) | ((x != x) & (y == y));
    let first = wins | (tie & (i < j));
    (tl::select(first, x, y), tl::select(first, i, j))
}
"#;

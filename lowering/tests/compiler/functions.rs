//! What combine functions compute on every CPU level.

use super::run::{Arg, run};

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

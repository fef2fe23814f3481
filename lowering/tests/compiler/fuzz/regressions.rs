//! Regression tests of bugs that random kernels found, each shrunk.

use tile_ir::testing::func;

use crate::run::{Arg, load, load_bodies_of};

/// Runs host code and all GPU specializations without guards on `x`; returns the results, which must agree.
fn run_all(source: &str, x: &[i32], count: usize) -> Vec<i32> {
    let specializations = load_bodies_of(&func(source));
    let general =
        specializations.into_iter().filter(|(guards, _)| guards.is_empty()).flat_map(|(_, code)| code);
    let mut results = load(source).into_iter().chain(general).map(|code| {
        let (mut x, mut out) = (x.to_vec(), vec![0i32; count]);
        code.call([1, 1, 1], &mut [Arg::of(&mut x), Arg::of(&mut out)]);
        (code.level, out)
    });
    let (_, first) = results.next().expect("a level");
    results.for_each(|(level, result)| assert_eq!(result, first, "{level:?}"));
    first
}

/// Every step of a sort compares wrapped sums; no step may compare their exact values.
#[test]
fn sums_that_wrap_are_sorted() {
    let x: Vec<i32> = (0..16).map(|i: i32| i.wrapping_mul(0x2545_f491)).collect();
    let mut wanted: Vec<i32> = x.iter().map(|&x| x.wrapping_add(x)).collect();
    wanted.sort();
    let kernel = |result: &str| {
        format!(
            "#[fuse_kernel(unreported)]
            fn k(x: &[i32], out: &mut [i32]) {{
                let i = tl::arange(0, 16);
                let v = tl::load(x + i);
                let sum = v + v;
                tl::store(out + i, {result});
            }}"
        )
    };
    assert_eq!(run_all(&kernel("tl::sort(sum)"), &x, 16), wanted);
    assert_eq!(run_all(&kernel("tl::gather(sum, tl::argsort(sum), 0)"), &x, 16), wanted);
    wanted.reverse();
    let largest = "tl::topk(sum, 16).0";
    assert_eq!(run_all(&kernel(largest), &x, 16), wanted);
}

/// Differences that wrap are the largest of unsigned numbers, in each step of a sort.
#[test]
fn differences_that_wrap_are_sorted() {
    let x: Vec<i32> = (0..16).map(|i| i * 7 % 16).collect();
    for dtype in ["u32", "u64", "i64"] {
        let kernel = |result: &str| {
            format!(
                "#[fuse_kernel(unreported)]
                fn k(x: &[i32], out: &mut [i32]) {{
                    let i = tl::arange(0, 16);
                    let difference = tl::load(x + i).to::<{dtype}>() - tl::load(x + 1).to::<{dtype}>();
                    tl::store(out + i, ({result}).to::<i32>());
                }}"
            )
        };
        let mut wanted: Vec<i32> = x.iter().map(|value| value - x[1]).collect();
        if dtype == "i64" {
            wanted.sort()
        } else {
            wanted.sort_by_key(|&value| value as u32)
        }
        assert_eq!(run_all(&kernel("tl::sort(difference)"), &x, 16), wanted, "{dtype}");
        let gathered = "tl::gather(difference, tl::argsort(difference), 0)";
        assert_eq!(run_all(&kernel(gathered), &x, 16), wanted, "{dtype}");
        wanted.reverse();
        assert_eq!(run_all(&kernel("tl::topk(difference, 16).0"), &x, 16), wanted, "{dtype}");
    }
}

/// A product that wraps is counted in the bin of its wrapped value, though in 64 bits it is outside of all bins.
#[test]
fn products_that_wrap_are_counted() {
    let x: Vec<i32> = (0..16).map(|i| if i % 2 == 0 { 1 << 16 } else { i / 2 }).collect();
    let kernel = "#[fuse_kernel(unreported)]
        fn k(x: &[i32], out: &mut [i32]) {
            let v = tl::load(x + tl::arange(0, 16));
            tl::store(out + tl::arange(0, 64), tl::histogram(v * v, 64));
        }";
    let mut wanted = vec![0; 64];
    x.iter().for_each(|&x| wanted[x.wrapping_mul(x) as usize] += 1);
    assert_eq!(run_all(kernel, &x, 64), wanted);
}

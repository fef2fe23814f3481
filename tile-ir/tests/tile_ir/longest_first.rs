//! Programs whose loops have the most iterations.

use tile_ir::analysis::program_length::{LongestAxis, longest_axis};
use tile_ir::testing::func;

fn found(bounds: &str) -> Option<LongestAxis> {
    found_with("", bounds, "16")
}

fn found_with(before: &str, bounds: &str, step: &str) -> Option<LongestAxis> {
    longest_axis(&func(&format!(
        "#[fuse_kernel]
        fn k(a: &[f16], b: &[f16], lengths: &[i32], out: &mut [f32], n: i32) {{
            let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
            let at = i.col() * 16 + j.row();
            let (x, y, last) = (tl::program_id(0), tl::program_id(1), tl::num_programs(0) - 1);
            let length = tl::load(lengths + y);
            let a = tl::load(a + at + x + y + last + length + n);
            {before}
            let mut sum = tl::zeros::<f32>([16, 16]);
            for start in ({bounds}).step_by({step}) {{
                sum = tl::dot(a, tl::load(b + at + start), sum);
            }}
            tl::store(out + at, sum);
        }}"
    )))
}

#[test]
fn loop_bounds_give_the_longest_programs() {
    let (first, last) =
        (|axis| Some(LongestAxis { axis, last: false }), |axis| Some(LongestAxis { axis, last: true }));
    for (bounds, expected) in [
        ("0..tl::minimum(x * 16 + 16, n)", last(0)),
        ("0..n - y * 16", first(1)),
        ("x * 16..n", first(0)),
        ("0..(last - x) * 16", first(0)),
        ("0..tl::cdiv(y + 1, 4) * 64", last(1)),
        // A window; the same for all; what is read; two axes; one that both rises and falls; one of unknown sign.
        ("tl::maximum(x * 16 - 64, 0)..x * 16 + 16", None),
        ("0..n", None),
        ("0..length", None),
        ("0..x * 16 + y", None),
        ("0..x * 16 - x / 2", None),
        ("0..x * n", None),
    ] {
        assert_eq!(found(bounds), expected, "{bounds}");
    }
    // Programs take every so many iterations.
    assert_eq!(found_with("", "x..n", "tl::num_programs(0)"), None);
    // It may wait for another program.
    let wait = "let mut ready = 0; while ready < x { ready = tl::load(lengths + x); }";
    assert_eq!(found_with(wait, "0..x * 16", "16"), None);
}

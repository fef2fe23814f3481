//! Deferred scales leave results as they are.

use tile_ir::ir::Func;
use tile_ir::testing::func;
use tile_ir::transform::contract_floats::contract_floats;
use tile_ir::transform::defer_scale::defer_scale;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};
use tile_ir::transform::split_full_tiles::split_full_tiles;

use super::run::{Arg, load_plan};
use lowering::cpu::emit::CpuPlan;

/// A loop of scores `s`, of which `body` makes weights.
fn kernel(body: &str) -> Func {
    let mut func = func(&format!(
        "#[fuse_kernel]
        fn k(a: &[f16], b: &[f16], scales: &[f32], out: &mut [f32], n: i32, scale: f32, cap: f32) {{
            let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
            let at = i.col() * 16 + j.row();
            let a = tl::load(a + at);
            let mut sum = tl::zeros::<f32>([16]);
            for start in (0..n).step_by(16) {{
                let s = tl::dot(a, tl::load(b + at + start));
                {body}
            }}
            tl::store(out + i, sum);
        }}"
    ));
    split_full_tiles(&mut func);
    contract_floats(&mut func);
    func
}

/// The sums that a function computes.
fn sums(mut func: Func) -> Vec<f32> {
    legalize_index(&mut func, BoundsPolicy::Masked);
    let numbers = |seed: usize, count: usize| -> Vec<u16> {
        (0..count).map(|i| half::f16::from_f32(((i * seed) % 23) as f32 / 8.0 - 1.4).to_bits()).collect()
    };
    let (mut a, mut b, mut scales) = (numbers(7, 256), numbers(11, 1024), vec![0.75f32; 16]);
    let mut out = vec![f32::NAN; 16];
    let code = load_plan(&CpuPlan::new(func));
    let [scale, cap] = [0.375f32, 2.5].map(|number| Arg::Scalar(u64::from(number.to_bits())));
    let (a, b) = (Arg::of(&mut a), Arg::of(&mut b));
    let mut args = [a, b, Arg::F32(&mut scales), Arg::F32(&mut out), Arg::Scalar(40), scale, cap];
    code[0].call([1, 1, 1], &mut args);
    out
}

const SOFTMAX: &str = "sum += tl::sum(tl::exp(s - tl::max(s, 1).col()), 1);";

/// Scaled late or early, the results are those of the same formula.
#[test]
fn results_stay() {
    let masked = "let s = tl::select((start + j < n).row(), s * scale, f32::NEG_INFINITY);";
    for scores in [
        "let s = s * scale;",
        "let s = s * (scale * 1.5) / cap;",
        "let s = cap * tl::tanh(s * scale / cap);",
        "let s = if start > 4 { s * (scale * 1.5) } else { tl::full([16, 16], f32::NEG_INFINITY) };",
        masked,
        &format!("{masked} let s = s * cap;"),
        &format!("{masked} sum += tl::max(s, 1); let s = s * cap;"),
        &format!("{masked} let inner = s; let s = s * cap; sum += tl::max(inner, 1) + tl::max(s, 1);"),
    ] {
        let body = format!(
            "{scores} sum += tl::sum(tl::exp(s - 3.0 - tl::max(tl::max(s, 1), 0)), 1) + tl::max(s, 1);"
        );
        for body in [format!("{scores} sum += tl::max(s, 1); {SOFTMAX}"), body] {
            let early = kernel(&body);
            let mut late = early.clone();
            defer_scale(&mut late);
            for (early, late) in sums(early).into_iter().zip(sums(late)) {
                let close =
                    (early - late).abs() <= 1e-5 * early.abs().max(1.0) || early.to_bits() == late.to_bits();
                assert!(close, "{body}: {early} and {late}");
            }
        }
    }
}

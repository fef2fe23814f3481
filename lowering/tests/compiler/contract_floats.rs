//! Contracted float formulas are within the bounds on their errors.

use tile_ir::ir;
use tile_ir::testing::func;
use tile_ir::transform::contract_floats::contract_floats;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use super::math::ulps;
use super::run::{Arg, load_plan};
use lowering::cpu::emit::CpuPlan;

/// Within the bound of a quotient, whatever the divisor.
#[test]
fn quotients_by_rows_are_as_exact_as_quotients() {
    let mut func = func(
        "#[fuse_kernel] fn k(x: &[f32], rows: &[f32], out: &mut [f32], n: i32) {
            let (i, j) = (tl::program_id(0) * 4 + tl::arange(0, 4), tl::arange(0, 1024));
            let at = i.col() * 1024 + j.row();
            tl::store(out + at, tl::load(x + at) / tl::load(rows + i).col());
        }",
    );
    contract_floats(&mut func);
    let text = ir::print(&func, &|_| None);
    assert!(
        text.lines().filter(|line| line.contains("= div ")).all(|line| line.ends_with("f32[4, 1]")),
        "{text}"
    );
    legalize_index(&mut func, BoundsPolicy::Masked);
    let special = [0.0, 1.0, 3.0, 1e-45, 1.1e-41, f32::MIN_POSITIVE, 1e-38, 1.2e-30, 1e30, 3e37, f32::MAX];
    let special = special.into_iter().chain([f32::INFINITY, f32::NAN]).flat_map(|x| [x, -x]);
    let powers = (-149..128).map(|exponent| 1.37 * f64::from(exponent).exp2() as f32);
    let mut divisors: Vec<f32> = special.chain(powers).collect();
    divisors.resize(divisors.len().next_multiple_of(4), 1.0);
    let mut x: Vec<f32> = (0..1024 * divisors.len() as u32)
        .map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9) ^ i >> 9))
        .collect();
    for code in load_plan(&CpuPlan::new(func)) {
        let mut out = vec![0.0f32; x.len()];
        let grid = [divisors.len() as u32 / 4, 1, 1];
        code.call(grid, &mut [Arg::F32(&mut x), Arg::F32(&mut divisors), Arg::F32(&mut out), Arg::Scalar(0)]);
        for (i, (&x, &got)) in x.iter().zip(&out).enumerate() {
            let divisor = divisors[i / 1024];
            let error = ulps(got, f64::from(x) / f64::from(divisor));
            assert!(error <= 2.0, "{}: {x:e} / {divisor:e} gave {got:e}, {error} ulp", code.level.name());
        }
    }
}

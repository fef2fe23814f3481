//! Operands have the layouts that their operation asks for.

use tile_ir::ops::Kind;
use tile_ir::testing::func;

use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::layout::Distributed;
use lowering::gpu::layout::dot::required_layouts;

/// Checks loops and dots of every specialization; gives how many of either there are.
#[track_caller]
fn check_operands(source: &str) -> usize {
    let mut checked = 0;
    for specialization in specializations(&func(source), KernelRequests::default()).expect("specializations")
    {
        let Distributed { layouts, .. } = &specialization.plan.schedule.distributed;
        let func = &specialization.plan.laid_out;
        func.body.walk(&mut |op| {
            if let Kind::For(body) = &op.kind {
                for (init, arg) in body.inits.iter().zip(&body.body.args[1..]) {
                    assert_eq!(layouts.get(init), layouts.get(arg), "{}: {init:?}", specialization.name);
                }
                checked += 1;
            }
            if matches!(op.kind, Kind::Dot(_)) {
                for (operand, layout) in required_layouts(func, op, &layouts[&op.results[0]]) {
                    assert_eq!(layouts[&operand], layout, "{}: {operand:?}", specialization.name);
                }
                checked += 1;
            }
        });
    }
    checked
}

/// Both values that the loop carries start as one; the loop changes the second one without memory, or not at all.
#[test]
fn values_that_start_as_one_have_layouts_of_their_own() {
    let source = |constant: &str| {
        format!(
            "#[fuse_kernel(num_warps = 4)]
            fn k(x: &[f16], out: &mut [f32], n: i32) {{
                let at = tl::arange(0, 2).col() * 1024 + tl::arange(0, 1024).row();
                let mut sum = tl::zeros::<f32>([2, 1024]);
                let mut constant = tl::zeros::<f32>([2, 1024]);
                for i in 0..n {{
                    sum += tl::load(x + i * 2048 + at).to::<f32>();
                    constant = {constant};
                }}
                tl::store(out + tl::arange(0, 2), tl::sum(sum, 1) + tl::sum(constant, 1));
            }}"
        )
    };
    assert!(check_operands(&source("constant")) > 0);
    assert!(check_operands(&source("constant * 0.5 + 1.0")) > 0);
}

/// The fragments of operand A and of operand B differ.
#[test]
fn a_dot_of_a_tile_with_itself_reads_it_in_two_layouts() {
    for elem in ["f16", "f32"] {
        let source = format!(
            "#[fuse_kernel(num_warps = 4)]
            fn k(x: &[{elem}], out: &mut [f32]) {{
                let at = tl::arange(0, 64).col() * 64 + tl::arange(0, 64).row();
                let x = tl::load(x + at) * 2.0;
                tl::store(out + at, tl::dot(x, x, tl::zeros::<f32>([64, 64])));
            }}"
        );
        assert!(check_operands(&source) > 0);
    }
}

//! Dots that warpgroups cannot do, and what a launch says of them.

use tile_ir::testing::func;

use super::first;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::opt::select_wgmma::refused_dots;
use lowering::gpu::specialization::Gpus;

/// A product by views, with some of its text in another form.
fn product(changes: &[[&str; 2]]) -> String {
    let source = "#[fuse_kernel(num_warps = 4)]
        fn k(a: &View<bf16, 2>, b: &View<bf16, 2>, starts: &[i64], out: &mut View<f32, 2>, end: i64) {
            let mut acc = tl::zeros::<f32>([64, 64]);
            for start in (0..end).step_by(64) {
                acc = tl::dot(a.load::<64, 64>(0, start), b.load::<64, 64>(start, 0), acc);
            }
            out.store(acc, 0, 0);
        }";
    changes.iter().fold(source.to_string(), |text, [from, to]| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// Why TMA and warpgroups do not do the dots of a kernel.
fn reasons(source: &str) -> Vec<String> {
    let (func, requests) = first(source);
    let refused = refused_dots(&func, requests.num_warps.expect("the kernel says how many"));
    refused.into_iter().map(|(_, reason)| reason.to_string()).collect()
}

/// The reason of each dot that no warpgroups do; the same in all specializations.
fn refused(source: &str) -> Vec<String> {
    let (func, requests) = first(source);
    let found = specializations(&func, requests).expect("specializations that fit");
    let all = found.iter().map(|specialization| {
        let refused = specialization.refused_dots.iter();
        refused.map(|(_, reason)| reason.to_string()).collect::<Vec<_>>()
    });
    let all: Vec<Vec<String>> = all.collect();
    assert!(all.iter().all(|refused| *refused == all[0]), "{all:?}");
    all[0].clone()
}

#[test]
fn each_reason_is_a_sentence() {
    let b = "b.load::<64, 64>(start, 0)";
    let cases: &[(&[[&str; 2]], &str)] = &[
        (&[["num_warps = 4", "num_warps = 2"]], "`num_warps` is 2, and a warpgroup has 4 warps"),
        (
            &[["acc = tl::dot", "if start != 64 { acc = tl::dot"], ["acc);\n", "acc); }\n"]],
            "it is in a branch, in a `while` or in a loop inside a loop",
        ),
        (
            &[["(0..end)", "(0..tl::sum(tl::load(starts + tl::arange(0, 4)), 0))"]],
            "how often its loop runs does not follow from scalars alone",
        ),
        (
            &[[b, "tl::load(starts + tl::arange(0, 64).col() * 64 + tl::arange(0, 64).row()).to::<bf16>()"]],
            "operand B is not a block of a view or the transpose of one",
        ),
        (
            &[["[64, 64]", "[64, 8]"], [b, "b.load::<64, 8>(start, 0)"]],
            "the block of operand B has not 16 to 256 rows, a multiple of 16, of a multiple of 128 bytes",
        ),
        (
            &[[b, "b.load::<64, 64>(start, tl::sum(tl::load(starts + tl::arange(0, 4)), 0) * 64)"]],
            "where the block of operand B begins does not follow from scalars and the loop's variable alone",
        ),
        (
            &[[b, "b.load::<64, 64>(start + 4, end)"]],
            "the block of operand B is not known to begin at a multiple of 16 bytes along its last axis",
        ),
        (
            &[[b, "b.load::<64, 64>(start, 0).volatile()"]],
            "the memory of operand B may change while the kernel runs",
        ),
        (
            &[["View<bf16, 2>, b: &View<bf16, 2>", "View<f32, 2>, b: &View<f32, 2>"]],
            "there is no instruction for f32 with the operands in these orders and this precision",
        ),
        (
            &[["a.load::<64, 64>", "a.load::<32, 64>"], ["[64, 64]", "[32, 64]"]],
            "it has 32 rows, no multiple of 64",
        ),
    ];
    for (changes, reason) in cases {
        assert_eq!(reasons(&product(changes)), [*reason], "{changes:?}");
    }
}

/// Threads copy or store the operands that TMA does not load.
#[test]
fn warpgroups_multiply_what_threads_copy() {
    let b = "b.load::<64, 64>(start, 0)";
    let sum = "tl::sum(tl::load(starts + tl::arange(0, 4)), 0)";
    let computed = "tl::load(starts + tl::arange(0, 64).col() * 64 + tl::arange(0, 64).row()).to::<bf16>()";
    for change in [
        ["(0..end)", &format!("(0..{sum})")],
        [b, &format!("b.load::<64, 64>(start, {sum} * 64)")],
        [b, "b.load::<64, 64>(start + 4, end)"],
        [b, computed],
    ] {
        assert_eq!(refused(&product(&[change])), [""; 0], "{change:?}");
    }
    let narrow = [["[64, 64]", "[64, 8]"], [b, "b.load::<64, 8>(start, 0)"]];
    assert_eq!(refused(&product(&narrow)), [""; 0]);
    let few_warps = [["num_warps = 4", "num_warps = 2"]];
    assert_eq!(refused(&product(&few_warps)).len(), 1);
}

/// What a launch says is of a kernel without warpgroups: where a specialization has them, its guards say why it is passed over.
#[test]
fn nothing_is_refused_where_warpgroups_do_the_dots() {
    let found = specializations(&func(&product(&[])), KernelRequests::default()).expect("bodies that fit");
    assert!(found.iter().any(|specialization| specialization.gpus == Gpus::WithWgmma));
    assert!(found.iter().all(|specialization| specialization.refused_dots.is_empty()));
}

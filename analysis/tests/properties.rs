//! What holds of every graph.

use std::collections::BTreeSet;

use fuse_analysis::cost::Context;
use fuse_analysis::device::{Device, builtin};
use fuse_analysis::dtype::DType;
use fuse_analysis::fusion::{Analyzer, Candidate};
use fuse_analysis::graph::{Graph, Operation};
use fuse_analysis::measurements::Cache;
use proptest::prelude::*;

/// A step of a random graph: a kind, and which of the tensors so far it reads.
type Step = (usize, usize, usize);

const UNARY: [&str; 8] =
    ["relu", "gelu", "layer_norm", "softmax", "scale", "no_such_kind", "rms_norm", "mean_center"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..UNARY.len() + 4, any::<usize>(), any::<usize>()), 0..12)
}

/// Tensors of `rows x cols`, and matmuls with a square matrix.
fn graph(steps: &[Step], rows: u64, cols: u64) -> Graph {
    let mut graph = Graph::builder("random");
    graph.input("t0", [rows, cols], DType::Bf16).unwrap();
    graph.weight("w", [cols, cols], DType::Bf16).unwrap();
    for (place, &(kind, first, second)) in steps.iter().enumerate() {
        let (first, second) = (format!("t{}", first % (place + 1)), format!("t{}", second % (place + 1)));
        let (kind, reads) = match kind.checked_sub(UNARY.len()) {
            None => (UNARY[kind], vec![first]),
            Some(0) => ("linear", vec![first, "w".to_owned()]),
            Some(1) => ("attention", vec![first.clone(), second.clone(), second]),
            Some(_) => ("add", vec![first, second]),
        };
        let name = format!("op{place}");
        graph.op(Operation::new(&name, kind).reads(reads).writes([format!("t{}", place + 1)])).unwrap();
    }
    graph.finish().unwrap()
}

fn devices() -> impl Strategy<Value = Device> {
    prop_oneof![Just(builtin::h200()), Just(builtin::h100())]
}

fn extents() -> impl Strategy<Value = (u64, u64)> {
    let extent = || prop_oneof![Just(0u64), Just(1), Just(7), Just(256), Just(4096), Just(100_000)];
    (extent(), extent())
}

proptest! {
    #[test]
    fn fusing_never_costs_more(steps in steps(), (rows, cols) in extents(), device in devices()) {
        let graph = graph(&steps, rows, cols);
        for cache in [Cache::Cold, Cache::Warm] {
            let analysis = Analyzer::new(&graph, &device).cache(cache).run();
            let (before, after) = (&analysis.separate, &analysis.fused);
            prop_assert!(after.cost.bytes() <= before.cost.bytes());
            prop_assert!(after.cost.launches <= before.cost.launches);
            prop_assert!(after.time.total <= before.time.total * (1.0 + 1e-12));
            let flops = (before.cost.flops(), after.cost.flops());
            prop_assert!((flops.0 - flops.1).abs() <= flops.0 * 1e-12);
        }
    }

    #[test]
    fn an_operation_is_in_one_kernel(steps in steps(), (rows, cols) in extents()) {
        let graph = graph(&steps, rows, cols);
        let device = builtin::h200();
        let analysis = Analyzer::new(&graph, &device).run();
        let fused = analysis.fusions.iter().flat_map(|fusion| &fusion.ops).collect::<Vec<_>>();
        prop_assert_eq!(fused.len(), fused.iter().collect::<BTreeSet<_>>().len());
        let is_unknown = |name: &&String| analysis.unknown.iter().any(|op| op.name == **name);
        prop_assert!(!fused.iter().any(is_unknown));
    }

    #[test]
    fn scores_are_sums_of_their_criteria(steps in steps(), (rows, cols) in extents()) {
        let graph = graph(&steps, rows, cols);
        let device = builtin::h200();
        let analysis = Analyzer::new(&graph, &device).run();
        for candidate in analysis.fusions.iter().chain(&analysis.kept_separate) {
            let Candidate { verdict, .. } = candidate;
            prop_assert!((0.0..=1.0).contains(&verdict.score));
            let sum = verdict.criteria.iter().map(|criterion| criterion.score()).sum::<f64>();
            prop_assert!((sum - verdict.score).abs() < 1e-12);
            let weights = verdict.criteria.iter().map(|criterion| criterion.weight).sum::<f64>();
            prop_assert!((weights - 1.0).abs() < 1e-12);
            prop_assert!(!verdict.reasons.is_empty());
        }
        prop_assert!(analysis.fusions.is_sorted_by(|a, b| a.verdict.saving.seconds >= b.verdict.saving.seconds));
        prop_assert!(analysis.fusions.iter().all(|fusion| fusion.verdict.saving.seconds > 0.0));
    }

    /// Kernels can run one after the other: none waits for itself through another.
    #[test]
    fn kernels_have_an_order(steps in steps(), (rows, cols) in extents()) {
        let graph = graph(&steps, rows, cols);
        let device = builtin::h200();
        let analysis = Analyzer::new(&graph, &device).run();
        let kernel_of = |name: &str| {
            let fused = analysis.fusions.iter().position(|fusion| fusion.ops.iter().any(|op| op == name));
            fused.map_or_else(|| name.to_owned(), |place| format!("kernel {place}"))
        };
        let mut edges = BTreeSet::new();
        for id in graph.op_ids() {
            for &input in &graph.op(id).inputs {
                let Some(producer) = graph.producer(input) else { continue };
                let edge = (kernel_of(&graph.op(producer).name), kernel_of(&graph.op(id).name));
                if edge.0 != edge.1 {
                    edges.insert(edge);
                }
            }
        }
        // Those that nothing is left to wait for are taken out until none are left.
        while !edges.is_empty() {
            let waiting = edges.iter().map(|(_, to)| to.clone()).collect::<BTreeSet<_>>();
            let before = edges.len();
            edges.retain(|(from, _)| waiting.contains(from));
            prop_assert!(edges.len() < before, "{edges:?}");
        }
    }

    #[test]
    fn a_launch_takes_its_bound(steps in steps(), (rows, cols) in extents()) {
        let graph = graph(&steps, rows, cols);
        let device = builtin::h200();
        let cx = Context { graph: &graph, device: &device, cache: Cache::Cold };
        for id in graph.op_ids() {
            let time = cx.fused(&[id]).time;
            prop_assert_eq!(time.total, time.memory.max(time.compute) + time.launch);
            prop_assert!(time.total.is_finite() && time.total >= 0.0);
        }
    }
}

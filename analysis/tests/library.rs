//! The table of the library's kernels beside the library.

use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use fuse_analysis::graph::{Graph, Operation, Params};
use fuse_analysis::{dtype::DType, kernels, kind};

#[test]
fn kernels_that_the_table_names_and_the_library_lacks() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/src");
    // Files of families, and those that all of them share.
    let of =
        |folder: &Path| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, mut files): (Vec<_>, Vec<_>) = of(&source).partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| of(folder)));
    let mut missing = Vec::new();
    for path in kernels::paths() {
        let (module, name) = path.split_once("::").unwrap();
        let own = format!("{module}.rs");
        let file = files.iter().find(|path| path.ends_with(&own));
        let text = file.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        if !text.contains(&format!("pub struct {name}<")) && !missing.contains(&path) {
            missing.push(path);
        }
    }
    // Kernels that are on their way; whoever brings one takes it off this list.
    expect![[r#""#]].assert_eq(&missing.join("\n"));
}

#[test]
fn kinds_that_the_table_names_are_known() {
    let unknown = kernels::kinds().filter(|name| kind::find(name).is_none_or(|kind| kind.name != *name));
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn no_two_kinds_share_a_name() {
    let mut names = kind::all().flat_map(|kind| [&[kind.name], kind.aliases].concat()).collect::<Vec<_>>();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// A chain of kinds on one matrix, each reading the result before it and what else it needs.
fn check(kinds: &[&str], expected: Expect) {
    let mut graph = Graph::builder("chain");
    graph.input("t0", [64, 128], DType::F32).unwrap();
    graph.input("other", [64, 128], DType::F32).unwrap();
    graph.weight("w", [128, 128], DType::F32).unwrap();
    graph.weight("columns", [128], DType::F32).unwrap();
    for (place, kind) in kinds.iter().enumerate() {
        let mut reads = vec![format!("t{place}")];
        match *kind {
            "add" | "mul" => reads.push("other".to_owned()),
            "linear" => reads.push("w".to_owned()),
            "bias" | "qk_norm" => reads.push("columns".to_owned()),
            _ => {}
        }
        let mut writes = vec![format!("t{}", place + 1)];
        if *kind == "quantize" {
            writes.push("scales".to_owned());
        }
        let name = format!("op{place}");
        let operation = Operation::new(&name, kind).reads(reads).writes(writes);
        graph.op(operation.params(Params::default())).unwrap();
    }
    let graph = graph.finish().unwrap();
    let ops = graph.op_ids().collect::<Vec<_>>();
    let kernel = kernels::of_group(&graph, &ops);
    expected.assert_eq(&kernel.map_or("none".to_owned(), |kernel| kernel.path.to_owned()));
}

#[test]
fn chains_and_their_kernels() {
    check(&["add", "mul"], expect!["add_mul::AddMul"]);
    check(&["mul", "add"], expect!["none"]);
    check(&["add", "gelu"], expect!["add_activation::AddActivation"]);
    check(&["bias", "silu"], expect!["bias_activation::BiasActivation"]);
    check(&["bias", "gelu", "dropout"], expect!["dropout::BiasGeluDropout"]);
    check(&["bias", "gelu_tanh", "dropout", "add"], expect!["dropout::BiasGeluDropout"]);
    check(&["bias", "dropout", "add"], expect!["bias_dropout::BiasDropout"]);
    check(&["relu", "scale"], expect!["scale_relu::ScaleRelu"]);
    check(&["layer_norm", "gelu"], expect!["layer_norm_gelu::LayerNormGelu"]);
    check(&["rms_norm", "silu", "add"], expect!["norm_activation::NormActivation"]);
    check(&["layer_norm", "tanh"], expect!["none"]);
    check(&["add", "rms_norm"], expect!["rms_norm::AddRmsNorm"]);
    check(&["add", "layer_norm"], expect!["add_layer_norm::AddLayerNorm"]);
    check(&["rms_norm", "quantize"], expect!["quantize::Quantize"]);
    check(&["scale", "add", "softmax"], expect!["masked_softmax::MaskedSoftmax"]);
    check(&["qk_norm", "rope"], expect!["rope::QkNormRope"]);
    check(&["linear"], expect!["matmul::Matmul"]);
    check(&["linear", "bias", "gelu", "add"], expect!["matmul::Matmul"]);
    check(&["linear", "gelu", "bias"], expect!["none"]);
    check(&["layer_norm", "linear", "bias"], expect!["norm_linear::NormLinear"]);
    check(&["silu", "mul"], expect!["act_and_mul::ActAndMul"]);
    check(&["no_such_kind"], expect!["none"]);
}

//! What becomes one kernel, and why the rest does not.

use expect_test::{Expect, expect};
use fuse_analysis::device::{Device, builtin};
use fuse_analysis::fusion::Analyzer;
use fuse_analysis::fusion::verdict::Decision;
use fuse_analysis::model;
use fuse_analysis::units::bytes;

/// A line for each kernel of several operations, and one for each pair that stays apart.
fn check_on(device: &Device, text: &str, expected: Expect) {
    let model = model::parse(text, &[]).unwrap();
    let analysis = Analyzer::new(&model.graph, device).run();
    let mut found = String::new();
    for candidate in &analysis.fusions {
        let verdict = &candidate.verdict;
        let (before, after) = (verdict.separate.cost.bytes(), verdict.fused.cost.bytes());
        let kernel = verdict.kernel.map_or("no kernel", |kernel| kernel.path);
        let moved = format!("{} -> {}", bytes(before), bytes(after));
        found += &format!("fuse {}: {moved}, {:.2}, {kernel}\n", candidate.name(), verdict.score);
    }
    for candidate in &analysis.kept_separate {
        assert_eq!(candidate.verdict.decision, Decision::KeepSeparate);
        found += &format!("keep {}: {}\n", candidate.name(), candidate.verdict.reasons.join("; "));
    }
    for op in &analysis.unknown {
        found += &format!("unknown {}: {}, assumed shape: {}\n", op.name, op.kind, op.assumed_shape);
    }
    let launches = analysis.separate.cost.launches;
    found += &format!("{launches} launches, then {}\n", analysis.fused.cost.launches);
    expected.assert_eq(&found);
}

fn check(text: &str, expected: Expect) {
    check_on(&builtin::h200(), text, expected);
}

#[test]
fn nothing() {
    check(
        "",
        expect![[r#"
        0 launches, then 0
    "#]],
    );
}

#[test]
fn one_operation() {
    check(
        r#"
inputs = { x = [4096] }
op = [{ name = "a", kind = "relu", inputs = ["x"], outputs = ["y"] }]
"#,
        expect![[r#"
            1 launches, then 1
        "#]],
    );
}

#[test]
fn nothing_to_compute() {
    check(
        r#"
inputs = { x = [0, 4096] }
op = [
    { name = "norm", kind = "layer_norm", inputs = ["x"], outputs = ["y"] },
    { name = "act", kind = "gelu", inputs = ["y"], outputs = ["z"] },
]
"#,
        expect![[r#"
            keep norm + act: it would save no time; its score is 0.40, below 0.5: memory bandwidth savings 0 %, launch overhead 0 %
            0 launches, then 0
        "#]],
    );
}

#[test]
fn an_unknown_operation_is_a_barrier() {
    check(
        r#"
inputs = { x = [4096, 4096] }
op = [
    { name = "a", kind = "relu", inputs = ["x"], outputs = ["y"] },
    { name = "b", kind = "bias_free", inputs = ["y"], outputs = ["z"] },
    { name = "c", kind = "relu", inputs = ["z"], outputs = ["u"] },
    { name = "d", kind = "gelu", inputs = ["u"], outputs = ["v"] },
]
"#,
        expect![[r#"
            fuse c + d: 268 MB -> 134 MB, 0.85, no kernel
            keep a + b: `b` is of kind `bias_free`, which is not known
            keep b -> c + d: `b` is of kind `bias_free`, which is not known
            unknown b: bias_free, assumed shape: true
            4 launches, then 3
        "#]],
    );
}

#[test]
fn a_result_that_is_kept_is_written_and_not_read() {
    check(
        r#"
outputs = ["sum"]
inputs = { x = [4096, 4096], r = [4096, 4096] }
op = [
    { name = "add", kind = "add", inputs = ["x", "r"], outputs = ["sum"] },
    { name = "norm", kind = "rms_norm", inputs = ["sum"], outputs = ["y"] },
]
"#,
        expect![[r#"
            fuse add + norm: 336 MB -> 268 MB, 0.55, rms_norm::AddRmsNorm
            2 launches, then 1
        "#]],
    );
}

#[test]
fn two_readers_of_elementwise_results() {
    check(
        r#"
inputs = { x = [4096, 4096] }
op = [
    { name = "a", kind = "silu", inputs = ["x"], outputs = ["y"] },
    { name = "b", kind = "tanh", inputs = ["y"], outputs = ["z"] },
    { name = "c", kind = "mul", inputs = ["y", "z"], outputs = ["u"] },
]
"#,
        expect![[r#"
            fuse a + b + c: 470 MB -> 134 MB, 1.00, no kernel
            3 launches, then 1
        "#]],
    );
}

#[test]
fn an_operation_between() {
    // `mul` needs the column sums, which need all of `y`.
    check(
        r#"
inputs = { x = [4096, 4096] }
op = [
    { name = "act", kind = "relu", inputs = ["x"], outputs = ["y"] },
    { name = "sum", kind = "column_sum", inputs = ["y"], outputs = ["s"] },
    { name = "bias", kind = "bias", inputs = ["y", "s"], outputs = ["z"] },
]
"#,
        expect![[r#"
            fuse act + sum: 201 MB -> 134 MB, 0.65, no kernel
            keep act + sum -> bias: `sum` is a column reduction over all rows: `bias` would wait for all programs
            3 launches, then 2
        "#]],
    );
}

#[test]
fn rows_that_do_not_stay_on_chip() {
    check(
        r#"
inputs = { x = [64, 131072], r = [64, 131072] }
op = [
    { name = "add", kind = "add", inputs = ["x", "r"], outputs = ["s"] },
    { name = "softmax", kind = "softmax", inputs = ["s"], outputs = ["p"] },
]
"#,
        expect![[r#"
            keep add + softmax: `softmax` needs whole rows of 131072 elements: 524 kB in f32, and 262 kB stay on chip
            2 launches, then 2
        "#]],
    );
}

#[test]
fn rows_of_different_lengths() {
    check(
        r#"
inputs = { x = [4096, 4096], g = [128], h = [96] }
op = [
    { name = "norm", kind = "rms_norm", inputs = ["x"], outputs = ["y"] },
    { name = "heads", kind = "qk_norm", inputs = ["y", "g"], outputs = ["z"] },
    { name = "view", kind = "reshape", inputs = ["z"], outputs = ["v"], sizes = [524288, 32] },
    { name = "small", kind = "softmax", inputs = ["v"], outputs = ["w"] },
    { name = "other", kind = "reshape", inputs = ["w"], outputs = ["u"], sizes = [4096, 64, 64] },
    { name = "turned", kind = "transpose", inputs = ["u"], outputs = ["t"] },
    { name = "across", kind = "softmax", inputs = ["t"], outputs = ["end"] },
]
"#,
        expect![[r#"
            fuse norm + heads + small: 403 MB -> 134 MB, 0.87, no kernel
            keep norm + heads + small -> across: different parallelism: rows of `norm` are columns of `across` behind a transpose
            4 launches, then 2
        "#]],
    );
}

#[test]
fn heads_are_in_one_tile_of_a_product() {
    check(
        r#"
dtype = "bf16"
inputs = { x = [4096, 4096] }
weights = { w = [4096, 4096], g = [128] }
op = [
    { name = "q", kind = "linear", inputs = ["x", "w"], outputs = ["y"] },
    { name = "norm", kind = "qk_norm", inputs = ["y", "g"], outputs = ["z"] },
    { name = "rope", kind = "rope", inputs = ["z"], outputs = ["r"] },
]
"#,
        expect![[r#"
            fuse q + norm + rope: 235 MB -> 101 MB, 0.82, no kernel
            3 launches, then 1
        "#]],
    );
}

#[test]
fn registers_of_a_small_processor() {
    let device = Device { registers_per_thread: 32, ..builtin::h200() };
    check_on(
        &device,
        r#"
inputs = { x = [4096, 4096] }
op = [
    { name = "a", kind = "relu", inputs = ["x"], outputs = ["y1"] },
    { name = "b", kind = "relu", inputs = ["y1"], outputs = ["y2"] },
    { name = "c", kind = "softmax", inputs = ["y2"], outputs = ["y3"] },
    { name = "d", kind = "softmax", inputs = ["y3"], outputs = ["y4"] },
    { name = "e", kind = "relu", inputs = ["y4"], outputs = ["y5"] },
]
"#,
        expect![[r#"
            fuse a + b + c: 403 MB -> 134 MB, 1.00, no kernel
            fuse d + e: 268 MB -> 134 MB, 0.85, no kernel
            keep a + b + c -> d + e: about 35 registers a thread, and there are 32: it would spill
            5 launches, then 2
        "#]],
    );
}

#[test]
fn linear_combination() {
    check(
        r#"
inputs = { x = [4096, 4096], y = [4096, 4096], z = [4096, 4096] }
op = [
    { name = "ax", kind = "scale", inputs = ["x"], outputs = ["a"] },
    { name = "by", kind = "scale", inputs = ["y"], outputs = ["b"] },
    { name = "cz", kind = "scale", inputs = ["z"], outputs = ["c"] },
    { name = "sum", kind = "add", inputs = ["a", "b", "c"], outputs = ["out"] },
]
"#,
        expect![[r#"
            fuse ax + by + cz + sum: 671 MB -> 268 MB, 0.96, linear_combination::LinearCombination
            4 launches, then 1
        "#]],
    );
}

#[test]
fn a_softmax_between_products_whose_scores_are_kept() {
    check(
        r#"
dtype = "bf16"
outputs = ["s"]
inputs = { q = [8, 4096, 128], k = [8, 4096, 128], v = [8, 4096, 128] }
op = [
    { name = "scores", kind = "matmul", inputs = ["q", "k"], outputs = ["s"], transposed = true },
    { name = "softmax", kind = "softmax", inputs = ["s"], outputs = ["p"] },
    { name = "values", kind = "matmul", inputs = ["p", "v"], outputs = ["o"] },
]
"#,
        expect![[r#"
            fuse softmax + values: 822 MB -> 285 MB, 0.74, no kernel
            keep scores -> softmax + values: `values` needs whole rows of `scores`, which are in tiles of many programs; `s` is reused by what follows the graph: it has to be in memory anyway
            3 launches, then 2
        "#]],
    );
}

#[test]
fn gather_and_experts() {
    check(
        r#"
dtype = "bf16"
inputs = { ids = { shape = [4096], dtype = "i64" } }
weights = { table = [128256, 4096], w = [4096, 8], more = [8, 64] }
op = [
    { name = "embed", kind = "embedding", inputs = ["table", "ids"], outputs = ["x"] },
    { name = "norm", kind = "rms_norm", inputs = ["x"], outputs = ["n"] },
    { name = "router", kind = "linear", inputs = ["n", "w"], outputs = ["logits"] },
    { name = "gate", kind = "topk", inputs = ["logits"], outputs = ["weights", "experts"], k = 2 },
    { name = "rows", kind = "embedding", inputs = ["more", "experts"], outputs = ["chosen"] },
]
"#,
        expect![[r#"
            fuse embed + norm + router: 168 MB -> 33.7 MB, 0.80, no kernel
            keep embed + norm + router -> gate: its score is 0.35, below 0.5: memory bandwidth savings 0 %, code complexity high, maintainability low
            keep gate + rows: `rows` reads rows that other programs of `gate` choose
            5 launches, then 3
        "#]],
    );
}

#[test]
fn batch_norm_goes_over_its_input_twice() {
    check(
        r#"
inputs = { x = [64, 64, 4096], r = [64, 64, 4096], g = [64], b = [64] }
op = [
    { name = "before", kind = "relu", inputs = ["x"], outputs = ["y"] },
    { name = "norm", kind = "batch_norm", inputs = ["y", "g", "b"], outputs = ["n"] },
    { name = "add", kind = "add", inputs = ["n", "r"], outputs = ["s"] },
    { name = "after", kind = "relu", inputs = ["s"], outputs = ["z"] },
]
"#,
        expect![[r#"
            fuse norm + add + after: 537 MB -> 268 MB, 0.85, batch_norm::BatchNorm
            keep before -> norm + add + after: `norm` goes over its input 2 times, and would compute `before` each time
            5 launches, then 3
        "#]],
    );
}

#[test]
fn what_an_epilogue_reads() {
    // The residual is computed where it is added; a second matmul has tiles of its own.
    check(
        r#"
dtype = "bf16"
inputs = { x = [4096, 4096], r = [4096, 4096] }
weights = { v = [4096, 4096], w = [4096, 4096] }
op = [
    { name = "scale", kind = "scale", inputs = ["r"], outputs = ["s"] },
    { name = "first", kind = "linear", inputs = ["x", "v"], outputs = ["y"] },
    { name = "second", kind = "linear", inputs = ["x", "w"], outputs = ["z"] },
    { name = "add", kind = "add", inputs = ["s", "y", "z"], outputs = ["sum"] },
]
"#,
        expect![[r#"
            fuse scale + first + add: 302 MB -> 168 MB, 0.84, no kernel
            keep second -> scale + first + add: `second` and `first` have tiles of their own
            4 launches, then 2
        "#]],
    );
}

//! The numbers of the documents that the project reproduces, and the ones that come out here.

use std::path::Path;

use expect_test::{Expect, expect};
use fuse_analysis::cost::Context;
use fuse_analysis::device::{Ceiling, Device, builtin};
use fuse_analysis::dtype::DType;
use fuse_analysis::fusion::{Analyzer, Candidate};
use fuse_analysis::graph::{Graph, OpId, Operation};
use fuse_analysis::kind;
use fuse_analysis::measurements::Cache;
use fuse_analysis::model::{self, Model};
use fuse_analysis::units::{bytes, scaled, seconds};

fn shipped(name: &str, set: &[(&str, u64)]) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let set = set.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<Vec<_>>();
    model::parse(&text, &set).unwrap()
}

/// All operations of a graph as one kernel.
fn whole(graph: &Graph, device: &Device) -> Candidate {
    Analyzer::new(graph, device).judge(&graph.op_ids().collect::<Vec<_>>())
}

fn check(lines: impl IntoIterator<Item = String>, expected: Expect) {
    expected.assert_eq(&lines.into_iter().map(|line| line + "\n").collect::<String>());
}

/// Accesses for each element, in elements: what the documents count.
fn accesses(name: &str, elements: &str) -> String {
    let model = shipped(name, &[]);
    let tensor = model.graph.tensor(model.graph.find_tensor(elements).unwrap());
    let verdict = whole(&model.graph, &builtin::h200()).verdict;
    let (before, after) = (verdict.separate.cost.bytes(), verdict.fused.cost.bytes());
    let each = tensor.ty.bytes() as f64;
    format!(
        "{name}: {:.2} N -> {:.2} N, {:.0} % saved, {} -> {} launches, {} {:.2}",
        before as f64 / each,
        after as f64 / each,
        verdict.saving.bytes_share * 100.0,
        verdict.separate.cost.launches,
        verdict.fused.cost.launches,
        verdict.decision.name(),
        verdict.score,
    )
}

#[test]
fn accesses_of_the_documents_pairs() {
    // Documents: 5N -> 3N and 40 %; 6N -> 4N and 33 %; 4N -> 2N, 50 % and FUSE with 0.85; 6N -> 2N and 67 %.
    check(
        [
            accesses("add_gelu", "a"),
            accesses("add_mul", "x"),
            accesses("layer_norm_gelu", "x"),
            accesses("elementwise_chain", "x"),
            accesses("norm_activation_add", "x"),
        ],
        expect![[r#"
            add_gelu: 5.00 N -> 3.00 N, 40 % saved, 2 -> 1 launches, FUSE 0.79
            add_mul: 6.00 N -> 4.00 N, 33 % saved, 2 -> 1 launches, FUSE 0.75
            layer_norm_gelu: 4.00 N -> 2.00 N, 50 % saved, 2 -> 1 launches, FUSE 0.85
            elementwise_chain: 6.00 N -> 2.00 N, 67 % saved, 3 -> 1 launches, FUSE 1.00
            norm_activation_add: 7.00 N -> 3.00 N, 57 % saved, 3 -> 1 launches, FUSE 0.94
        "#]],
    );
}

#[test]
fn criteria_of_layer_norm_and_gelu() {
    let model = shipped("layer_norm_gelu", &[]);
    let candidate = whole(&model.graph, &builtin::h200());
    let lines = candidate.verdict.criteria.iter().map(|criterion| {
        let (name, met) = (criterion.name, if criterion.met { "met" } else { "missed" });
        format!(
            "{name} {}: {}, {}, {met}, {:.2}",
            criterion.weight,
            criterion.value,
            criterion.threshold,
            criterion.score()
        )
    });
    let registers = format!("registers {:?}", candidate.verdict.registers);
    // Document: 50 % and 50 %, about 15 registers, low complexity; 0.85 of 1.
    check(
        lines.chain([registers]),
        expect![[r#"
            memory bandwidth savings 0.4: 50 %, > 30 %, met, 0.30
            launch overhead 0.2: 50 %, > 10 %, met, 0.15
            register pressure 0.2: about 15, < 50 registers, met, 0.20
            code complexity 0.1: low, <= moderate, met, 0.10
            maintainability 0.1: high, high, met, 0.10
            registers [15, 15]
        "#]],
    );
}

#[test]
fn ten_operations_are_fifty_registers() {
    let candidate = whole(&chain(10), &builtin::h200());
    // Document: fusing 10 operations takes 50 registers. The criterion misses; nothing spills before 255.
    check(
        [format!(
            "{:?} {:.2} {}",
            candidate.verdict.registers,
            candidate.verdict.score,
            candidate.verdict.reasons.join("; ")
        )],
        expect![[r#"
            [50, 50] 0.78 839 MB for 8.39 GB; 9 launches less; register pressure misses: about 50
        "#]],
    );
}

#[test]
fn exercise_2_traffic_and_time() {
    let model = shipped("matmul_bias_gelu", &[]);
    let device = builtin::h200();
    let cx = Context { graph: &model.graph, device: &device, cache: Cache::Cold };
    let ops = model.graph.op_ids().collect::<Vec<_>>();
    let each = ops.iter().map(|&op| {
        let cost = cx.fused(&[op]).cost;
        format!("{}: {} bytes", model.graph.op(op).name, cost.bytes())
    });
    let (m, n, k) = (4096u64, 4096, 4096);
    let formulas = [(m * k + k * n + m * n) * 4, (2 * m * n + n) * 4, 2 * m * n * 4];
    let fused = cx.fused(&ops);
    assert_eq!(
        formulas.map(|bytes| format!("{bytes} bytes")).to_vec(),
        each.clone().map(|line| line.split_once(": ").unwrap().1.to_owned()).collect::<Vec<_>>()
    );
    assert_eq!(fused.cost.bytes(), (m * k + k * n + n + m * n) * 4);
    let separate = cx.separate(&ops);
    let totals = [
        format!("unfused {}, fused {}", bytes(separate.cost.bytes()), bytes(fused.cost.bytes())),
        format!("b) by traffic {:.2}x", separate.cost.bytes() as f64 / fused.cost.bytes() as f64),
        format!(
            "c) by the clock {:.3}x: {} -> {}",
            separate.time.total / fused.time.total,
            seconds(separate.time.total),
            seconds(fused.time.total)
        ),
    ];
    check(
        each.chain(totals),
        expect![[r#"
            matmul: 201326592 bytes
            bias: 134234112 bytes
            act: 134217728 bytes
            unfused 470 MB, fused 201 MB
            b) by traffic 2.33x
            c) by the clock 1.025x: 2.77 ms -> 2.71 ms
        "#]],
    );
}

/// The document's device: 1.5 TB/s and 10 us a launch.
fn document_device() -> Device {
    let value = |value| Ceiling { nominal: Some(value), measured: None, source: String::new() };
    Device {
        name: "the document's".to_owned(),
        bandwidth: value(1.5e12),
        l2_bandwidth: None,
        launch_overhead: value(10e-6),
        following_launch: None,
        product_overhead: None,
        ..builtin::h200()
    }
}

#[test]
fn example_of_tutorial_05() {
    let model = shipped("norm_activation_add", &[]);
    let verdict = whole(&model.graph, &document_device()).verdict;
    // Document: 5 transfers of 64 MB, 243 us; fused one of them, 53 us; 4.6 times. It counts neither what the first kernel reads
    // nor what both forms read of the residual: these are 7 and 3.
    check(
        [format!(
            "{} of {}: {} -> {} of {}, {:.2}x",
            bytes(verdict.separate.cost.bytes()),
            seconds(verdict.separate.time.total),
            bytes(verdict.fused.cost.bytes()),
            seconds(verdict.fused.time.total),
            seconds(verdict.fused.time.launch),
            verdict.saving.speedup
        )],
        expect![[r#"
            470 MB of 343 us: 201 MB -> 144 us of 10.0 us, 2.38x
        "#]],
    );
}

fn chain(length: usize) -> Graph {
    let mut graph = Graph::builder("chain");
    graph.input("y0", [104_857_600], DType::F32).unwrap();
    for place in 1..=length {
        let (reads, writes) = (format!("y{}", place - 1), format!("y{place}"));
        graph.op(Operation::new(&format!("f{place}"), "relu").reads([reads]).writes([writes])).unwrap();
    }
    graph.finish().unwrap()
}

#[test]
fn a_chain_of_k_operations_moves_k_times_as_much() {
    let device = builtin::h200();
    let lines = [1, 2, 3, 5, 8].map(|k| {
        let verdict = whole(&chain(k), &device).verdict;
        let n = 4 * 104_857_600;
        let (before, after) = (verdict.separate.cost.bytes() / n, verdict.fused.cost.bytes() / n);
        format!(
            "k = {k}: {before} N -> {after} N, at most {:.0}x, {:.2}x",
            verdict.saving.traffic_ratio, verdict.saving.speedup
        )
    });
    // Document: 2 (k + 1) N -> 2 N, about k + 1: it counts one tensor more than k operations write and read.
    check(
        lines,
        expect![[r#"
            k = 1: 2 N -> 2 N, at most 1x, 1.00x
            k = 2: 4 N -> 2 N, at most 2x, 1.99x
            k = 3: 6 N -> 2 N, at most 3x, 2.99x
            k = 5: 10 N -> 2 N, at most 5x, 4.97x
            k = 8: 16 N -> 2 N, at most 8x, 7.96x
        "#]],
    );
}

#[test]
fn operations_for_each_element() {
    let mut graph = Graph::builder("one of each");
    graph.input("x", [64, 4096], DType::F32).unwrap();
    let mut lines = Vec::new();
    for kind in ["relu", "gelu", "layer_norm", "softmax", "rms_norm"] {
        let id = graph.op(Operation::new(kind, kind).reads(["x"]).writes([format!("{kind}_y")])).unwrap();
        lines.push((kind, id));
    }
    let graph = graph.finish().unwrap();
    let device = builtin::h200();
    let cx = Context { graph: &graph, device: &device, cache: Cache::Cold };
    let line = |(kind, id): (&str, OpId)| {
        let cost = cx.fused(&[id]).cost;
        let elements = 64.0 * 4096.0;
        format!(
            "{kind}: {} an element, {} an access, {} a byte",
            cost.flops() / elements,
            cost.flops() / (cost.bytes() as f64 / 4.0),
            cost.intensity()
        )
    };
    // Documents: GELU 8, and 4 an access; LayerNorm and softmax about 5 in one document, and LayerNorm 3 in another, which counts mean,
    // variance and normalization as one each.
    check(
        lines.into_iter().map(line),
        expect![[r#"
            relu: 1 an element, 0.5 an access, 0.125 a byte
            gelu: 8 an element, 4 an access, 1 a byte
            layer_norm: 5 an element, 2.5 an access, 0.625 a byte
            softmax: 5 an element, 2.5 an access, 0.625 a byte
            rms_norm: 3 an element, 1.5 an access, 0.375 a byte
        "#]],
    );
}

#[test]
fn what_the_documents_decide() {
    let mut lines = Vec::new();
    for (name, set) in [
        ("transformer_layer", &[][..]),
        ("transformer_layer", &[("tokens", 16)][..]),
        ("matmul_layer_norm", &[]),
        ("matmul_layer_norm", &[("n", 256), ("k", 256)]),
        ("matmul_column_sum", &[]),
        ("norm_two_linears", &[]),
        ("unfused_attention", &[]),
        ("int8_linear", &[]),
        ("layer_norm_quantize", &[]),
    ] {
        let model = shipped(name, set);
        let device = builtin::h200();
        let analysis = Analyzer::new(&model.graph, &device).documents(&model.documents).run();
        for comparison in &analysis.documents {
            let verdict = &comparison.found.as_ref().unwrap().verdict;
            let set = set.iter().map(|(name, value)| format!(" {name}={value}")).collect::<String>();
            let ops = comparison.expected.ops.join(" + ");
            let expected = &comparison.expected.decision;
            lines.push(format!(
                "{name}{set}: {ops}: `{expected}` {} {:.2}",
                verdict.decision.name(),
                verdict.score
            ));
        }
    }
    check(
        lines,
        expect![[r#"
            transformer_layer: layernorm + linear: `fuse if the batch is small` KEEP SEPARATE 0.53
            transformer_layer: split + attention: `fuse, the parts are never copied` FUSE 0.91
            transformer_layer: attention + add_residual: `fuse` FUSE 0.53
            transformer_layer tokens=16: layernorm + linear: `fuse if the batch is small` FUSE 0.53
            transformer_layer tokens=16: split + attention: `fuse, the parts are never copied` FUSE 0.91
            transformer_layer tokens=16: attention + add_residual: `fuse` FUSE 0.53
            matmul_layer_norm: matmul + norm: `do not fuse` KEEP SEPARATE 0.76
            matmul_layer_norm n=256 k=256: matmul + norm: `do not fuse` FUSE 0.85
            matmul_column_sum: matmul + sum: `do not fuse` KEEP SEPARATE 0.72
            norm_two_linears: normalize + linear1: `do not fuse` KEEP SEPARATE 0.53
            unfused_attention: scores + softmax + values: `fuse` FUSE 0.97
            int8_linear: dequantize_x + dequantize_w + matmul + quantize: `fuse` FUSE 0.97
            layer_norm_quantize: norm + quantize: `fuse` FUSE 0.89
        "#]],
    );
}

#[test]
fn weights_and_kinds_are_listed() {
    let lines = kind::all().map(|kind| {
        let names = [&[kind.name], kind.aliases].concat().join("/");
        format!("{names}: {} [{}, {} + {}]", kind.formula, kind.pattern.name(), kind.live, kind.accumulators)
    });
    check(
        lines,
        expect![[r#"
            add/residual_add/add_residual: x + y + .. [elementwise, 5 + 0]
            sub: x - y [elementwise, 5 + 0]
            mul: x * y * .. [elementwise, 5 + 0]
            scale: x * factor, or x * factors[column] [elementwise, 5 + 0]
            bias/add_bias/bias_add: x + bias[column] [elementwise, 5 + 0]
            relu: max(x, 0) [elementwise, 5 + 0]
            gelu: x * Phi(x) [elementwise, 5 + 0]
            gelu_tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) [elementwise, 5 + 0]
            silu/swish: x / (1 + exp(-x)) [elementwise, 5 + 0]
            tanh: tanh(x) [elementwise, 5 + 0]
            sigmoid: 1 / (1 + exp(-x)) [elementwise, 5 + 0]
            exp: exp(x) [elementwise, 5 + 0]
            silu_and_mul/gate/swiglu: silu(a) * b of rows [a, b] [elementwise, 5 + 0]
            gelu_and_mul/geglu: gelu(a) * b of rows [a, b] [elementwise, 5 + 0]
            dropout: x / (1 - p) where rand >= p, else 0 [elementwise, 5 + 0]
            rope/rotary: pairs of x turned by cos and sin of their position [elementwise, 5 + 0]
            dequantize: q * scales[row], or one scale; dtype [elementwise, 5 + 0]
            quantize_static/requantize: round(x / scales[row]), or one scale; dtype [elementwise, 5 + 0]
            batch_norm_inference: x * scale[c] + shift[c] of [images, c, pixels] or [rows, c] [elementwise, 5 + 0]
            cast: x as another type; dtype [elementwise, 5 + 0]
            layer_norm/layernorm: (x - mean) / sqrt(var + eps) * gamma + beta [row reduction, 10 + 0]
            rms_norm/rmsnorm: x / sqrt(mean(x^2) + eps) * gamma [row reduction, 10 + 0]
            l2_norm: x / max(sqrt(sum(x^2)), eps) [row reduction, 10 + 0]
            mean_center/center: x - mean(x) [row reduction, 10 + 0]
            softmax: exp(x - max) / sum [row reduction, 10 + 0]
            cross_entropy: ln(sum(exp(x))) - x[target] [row reduction, 10 + 0]
            qk_norm: rms_norm of each head * gamma [row reduction, 10 + 0]
            group_norm: (x - mean) / sqrt(var + eps) * gamma[c] + beta[c]; groups [row reduction, 10 + 0]
            quantize: round(x / scale), scale = max|x| / largest; dtype [row reduction, 10 + 0]
            topk: the k largest of softmax(x) and their places; k [row reduction, 10 + 0]
            reduce/row_sum/mean: sum, mean or largest of each row [row reduction, 10 + 0]
            column_sum: the sum of each column [column reduction, 10 + 0]
            batch_norm: (x - mean) / sqrt(var + eps) * gamma[c] + beta[c] over images and pixels [column reduction, 10 + 0]
            matmul/linear: a . b of [.., m, k] and [.., k, n]; transposed, dtype, tf32 [matmul, 10 + 128]
            attention: softmax(q . k^T / sqrt(dim)) . v; heads, kv_heads, causal [attention, 20 + 128]
            split: parts of rows; sizes, materialize [view, 0 + 0]
            reshape/view: another shape; sizes, materialize [view, 0 + 0]
            transpose: the last two extents exchanged; materialize [view, 0 + 0]
            embedding: table[ids] [gather, 5 + 0]
        "#]],
    );
}

#[test]
fn ceilings_of_the_h200() {
    let device = builtin::h200();
    check(
        [
            scaled(device.memory_bandwidth(), "B/s"),
            scaled(device.tensor_peak("bf16"), "FLOP/s"),
            scaled(device.tensor_peak("f32"), "FLOP/s"),
            seconds(device.launch_seconds()),
        ],
        expect![[r#"
            4.18 TB/s
            800 TFLOP/s
            51.0 TFLOP/s
            3.90 us
        "#]],
    );
}

//! Bytes, operations and times of single launches.

use expect_test::{Expect, expect};
use fuse_analysis::cost::Context;
use fuse_analysis::device::builtin;
use fuse_analysis::measurements::Cache;
use fuse_analysis::model;
use fuse_analysis::units::{scaled, seconds};

/// A line for each operation on its own.
fn check_in(cache: Cache, text: &str, expected: Expect) {
    let model = model::parse(text, &[]).unwrap();
    let device = builtin::h200();
    let cx = Context { graph: &model.graph, device: &device, cache };
    let line = |id| {
        let estimate = cx.fused(&[id]);
        let (cost, time) = (&estimate.cost, &estimate.time);
        format!(
            "{}: reads {}, writes {}, {}, {} by {}\n",
            model.graph.op(id).name,
            cost.read,
            cost.written,
            scaled(cost.flops(), "FLOP"),
            seconds(time.total),
            time.bound().name(),
        )
    };
    expected.assert_eq(&model.graph.op_ids().map(line).collect::<String>());
}

fn check(text: &str, expected: Expect) {
    check_in(Cache::Cold, text, expected);
}

#[test]
fn empty_tensors_are_not_launched() {
    check(
        r#"
inputs = { x = [0, 8], w = [8, 8], rows = [4, 0], k = [4, 0], one = [] }
op = [
    { name = "relu", kind = "relu", inputs = ["x"], outputs = ["a"] },
    { name = "matmul", kind = "matmul", inputs = ["x", "w"], outputs = ["b"] },
    { name = "softmax", kind = "softmax", inputs = ["rows"], outputs = ["c"] },
    { name = "sums", kind = "reduce", inputs = ["rows"], outputs = ["d"] },
    { name = "inner", kind = "matmul", inputs = ["rows", "k"], outputs = ["e"], transposed = true },
    { name = "attention", kind = "attention", inputs = ["x", "x", "x"], outputs = ["f"] },
    { name = "number", kind = "relu", inputs = ["one"], outputs = ["g"] },
]
"#,
        expect![[r#"
            relu: reads 0, writes 0, 0 FLOP, 0.00 us by memory
            matmul: reads 0, writes 0, 0 FLOP, 0.00 us by memory
            softmax: reads 0, writes 0, 0 FLOP, 0.00 us by memory
            sums: reads 0, writes 16, 0 FLOP, 3.90 us by launch
            inner: reads 0, writes 64, 0 FLOP, 9.70 us by launch
            attention: reads 0, writes 0, 0 FLOP, 0.00 us by memory
            number: reads 4, writes 4, 1 FLOP, 3.90 us by launch
        "#]],
    );
}

#[test]
fn views_are_free_and_copies_are_not() {
    check(
        r#"
inputs = { x = [8, 96] }
op = [
    { name = "view", kind = "split", inputs = ["x"], outputs = ["q", "k", "v"] },
    { name = "copy", kind = "split", inputs = ["x"], outputs = ["a", "b"], materialize = true },
    { name = "reads_a_third", kind = "relu", inputs = ["q"], outputs = ["r"] },
    { name = "reads_x_twice", kind = "add", inputs = ["x", "x"], outputs = ["s"] },
]
"#,
        expect![[r#"
            view: reads 0, writes 0, 0 FLOP, 0.00 us by memory
            copy: reads 3072, writes 3072, 0 FLOP, 3.90 us by launch
            reads_a_third: reads 1024, writes 1024, 256 FLOP, 3.90 us by launch
            reads_x_twice: reads 3072, writes 3072, 768 FLOP, 3.90 us by launch
        "#]],
    );
}

#[test]
fn attention_counts_pairs() {
    check(
        r#"
dtype = "bf16"
inputs = { q = [1024, 4096], k = [1024, 1024], last = [1, 4096] }
op = [
    { name = "full", kind = "attention", inputs = ["q", "k", "k"], outputs = ["a"], heads = 32, kv_heads = 8 },
    { name = "causal", kind = "attention", inputs = ["q", "k", "k"], outputs = ["b"], heads = 32, kv_heads = 8, causal = true },
    { name = "decode", kind = "attention", inputs = ["last", "k", "k"], outputs = ["c"], heads = 32, kv_heads = 8, causal = true },
]
"#,
        expect![[r#"
            full: reads 10485760, writes 8388608, 17.2 GFLOP, 31.2 us by compute
            causal: reads 10485760, writes 8388608, 8.60 GFLOP, 20.4 us by compute
            decode: reads 2105344, writes 8192, 16.8 MFLOP, 10.2 us by launch
        "#]],
    );
}

#[test]
fn a_gather_reads_what_it_writes() {
    check(
        r#"
inputs = { table = [100000, 64], ids = { shape = [3, 2], dtype = "i64" } }
op = [{ name = "rows", kind = "embedding", inputs = ["table", "ids"], outputs = ["x"] }]
"#,
        expect![[r#"
            rows: reads 1584, writes 1536, 0 FLOP, 3.90 us by launch
        "#]],
    );
}

const IN_THE_CACHE: &str = r#"
dtype = "bf16"
inputs = { x = [1056, 4096] }
weights = { w = [4096, 1024] }
op = [
    { name = "first", kind = "relu", inputs = ["x"], outputs = ["y"] },
    { name = "second", kind = "relu", inputs = ["y"], outputs = ["z"] },
    { name = "linear", kind = "linear", inputs = ["z", "w"], outputs = ["u"] },
]
"#;

#[test]
fn what_was_just_written_is_in_the_cache() {
    check(
        IN_THE_CACHE,
        expect![[r#"
            first: reads 8650752, writes 8650752, 4.33 MFLOP, 8.04 us by memory
            second: reads 8650752, writes 8650752, 4.33 MFLOP, 7.15 us by launch
            linear: reads 17039360, writes 2162688, 8.86 GFLOP, 20.8 us by compute
        "#]],
    );
    check_in(
        Cache::Warm,
        IN_THE_CACHE,
        expect![[r#"
            first: reads 8650752, writes 8650752, 4.33 MFLOP, 6.27 us by launch
            second: reads 8650752, writes 8650752, 4.33 MFLOP, 6.27 us by launch
            linear: reads 17039360, writes 2162688, 8.86 GFLOP, 20.8 us by compute
        "#]],
    );
}

#[test]
fn a_product_of_f32_on_tensor_cores() {
    check(
        r#"
inputs = { a = [4096, 4096], b = [4096, 4096] }
op = [
    { name = "f32", kind = "matmul", inputs = ["a", "b"], outputs = ["x"] },
    { name = "tf32", kind = "matmul", inputs = ["a", "b"], outputs = ["y"], tf32 = true },
]
"#,
        expect![[r#"
            f32: reads 134217728, writes 67108864, 137 GFLOP, 2.70 ms by compute
            tf32: reads 134217728, writes 67108864, 137 GFLOP, 342 us by compute
        "#]],
    );
}

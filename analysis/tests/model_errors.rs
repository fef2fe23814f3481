//! What a model file gets that cannot be analyzed.

use expect_test::{Expect, expect};
use fuse_analysis::model;

fn check(text: &str, expected: Expect) {
    check_with(text, &[], expected);
}

fn check_with(text: &str, set: &[(&str, u64)], expected: Expect) {
    let set = set.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<Vec<_>>();
    let found = match model::parse(text, &set) {
        Ok(model) => {
            let tensors = model.graph.tensors().iter();
            tensors.map(|tensor| format!("{} {}\n", tensor.name, tensor.ty)).collect()
        }
        Err(errors) => format!("{errors}\n"),
    };
    expected.assert_eq(&found);
}

#[test]
fn shapes_that_do_not_fit() {
    check(
        r#"
inputs = { x = [4, 8], y = [4, 9] }
[[op]]
name = "sum"
kind = "add"
inputs = ["x", "y"]
outputs = ["z"]
"#,
        expect![[r#"
            line 4: operation `sum`: `x` is [4, 8] f32 and `y` is [4, 9] f32: shapes and types must be the same
        "#]],
    );
}

#[test]
fn inner_extents_of_a_product() {
    check(
        r#"
inputs = { a = [4, 8], b = [9, 5], c = [5, 8] }
op = [
    { name = "wrong", kind = "matmul", inputs = ["a", "b"], outputs = ["p"] },
    { name = "also", kind = "linear", inputs = ["a", "c"], outputs = ["q"] },
    { name = "right", kind = "linear", inputs = ["a", "c"], outputs = ["r"], transposed = true },
]
"#,
        expect![[r#"
            line 4: operation `wrong`: `a` is [4, 8] f32 and `b` is [9, 5] f32: a product needs [.., m, k] and [.., k, n]
            line 5: operation `also`: `a` is [4, 8] f32 and `c` is [5, 8] f32: a product needs [.., m, k] and [.., k, n]
        "#]],
    );
}

#[test]
fn types_that_do_not_fit() {
    check(
        r#"
inputs = { x = { shape = [8], dtype = "bf16" }, y = { shape = [8], dtype = "f32" } }
op = [{ name = "sum", kind = "add", inputs = ["x", "y"], outputs = ["z"] }]
"#,
        expect![[r#"
            line 3: operation `sum`: `x` is [8] bf16 and `y` is [8] f32: shapes and types must be the same
        "#]],
    );
}

#[test]
fn every_mistake_at_once_and_none_twice() {
    check(
        r#"
inputs = { x = [4, "cols"], y = { shape = [4], dtype = "f31" } }
op = [
    { name = "a", kind = "relu", inputs = ["x"], outputs = ["ax"] },
    { name = "b", kind = "relu", inputs = ["nowhere"], outputs = ["bx"] },
    { name = "c", kind = "add", inputs = ["ax", "bx"], outputs = ["cx"] },
]
"#,
        expect![[r#"
            line 2: `x`: no extent `cols` in [dims]
            line 2: `y`: no element type `f31`: there are f32, f16, bf16, f8e4m3, i8, i32, i64
            line 5: operation `b` reads `nowhere`, which no operation makes and no input or weight declares
        "#]],
    );
}

#[test]
fn made_twice() {
    check(
        r#"
inputs = { x = [4] }
op = [
    { name = "a", kind = "relu", inputs = ["x"], outputs = ["y"] },
    { name = "b", kind = "gelu", inputs = ["x"], outputs = ["y"] },
    { name = "c", kind = "gelu", inputs = ["y"], outputs = ["x"] },
    { name = "d", kind = "quantize", inputs = ["y"], outputs = ["q", "q"] },
]
"#,
        expect![[r#"
            line 5: `y` is made by operation `a` and again by operation `b`
            line 6: `x` is made by the inputs and again by operation `c`
            line 7: `q` is made by operation `d` and again by operation `d`
        "#]],
    );
}

#[test]
fn a_name_twice() {
    check(
        r#"
inputs = { x = [4] }
op = [
    { name = "a", kind = "relu", inputs = ["x"], outputs = ["y"] },
    { name = "a", kind = "gelu", inputs = ["x"], outputs = ["z"] },
]
"#,
        expect![[r#"
            line 5: two operations are named `a`
        "#]],
    );
}

#[test]
fn a_cycle() {
    check(
        r#"
inputs = { x = [4] }
op = [
    { name = "first", kind = "add", inputs = ["x", "c"], outputs = ["a"] },
    { name = "second", kind = "relu", inputs = ["a"], outputs = ["b"] },
    { name = "third", kind = "relu", inputs = ["b"], outputs = ["c"] },
    { name = "behind", kind = "relu", inputs = ["c"], outputs = ["d"] },
    { name = "itself", kind = "relu", inputs = ["e"], outputs = ["e"] },
]
"#,
        expect![[r#"
            line 5: operations wait for each other's results: second -> third -> first -> second
        "#]],
    );
}

#[test]
fn operations_in_any_order() {
    check(
        r#"
inputs = { x = [4] }
op = [
    { name = "last", kind = "relu", inputs = ["y"], outputs = ["z"] },
    { name = "first", kind = "relu", inputs = ["x"], outputs = ["y"] },
]
"#,
        expect![[r#"
            x [4] f32
            y [4] f32
            z [4] f32
        "#]],
    );
}

#[test]
fn declarations_are_checked() {
    check(
        r#"
outputs = ["nothing"]
inputs = { x = [4, 8] }
tensors = { y = [8, 4] }
op = [{ name = "norm", kind = "rms_norm", inputs = ["x"], outputs = ["y"] }]
"#,
        expect![[r#"
            line 5: `y` is declared [8, 4] f32, and operation `norm` makes it [4, 8] f32
        "#]],
    );
    check(
        r#"
outputs = ["nothing"]
inputs = { x = [4, 8] }
"#,
        expect![[r#"
            line 2: `nothing` is to be kept as an output, and there is no tensor of that name
        "#]],
    );
}

#[test]
fn numbers_of_inputs_and_outputs() {
    check(
        r#"
inputs = { x = [4, 8], g = [7] }
op = [
    { name = "none", kind = "layer_norm", outputs = ["a"] },
    { name = "gamma", kind = "layer_norm", inputs = ["x", "g"], outputs = ["b"] },
    { name = "scales", kind = "quantize", inputs = ["x"], outputs = ["q"] },
    { name = "parts", kind = "split", inputs = ["x"], outputs = ["l", "m", "r"] },
    { name = "sizes", kind = "split", inputs = ["x"], outputs = ["s", "t"], sizes = [3, 4] },
    { name = "experts", kind = "topk", inputs = ["x"], outputs = ["w", "e"] },
    { name = "shape", kind = "reshape", inputs = ["x"], outputs = ["v"], sizes = [5, 5] },
    { name = "heads", kind = "attention", inputs = ["x", "x", "x"], outputs = ["o"], heads = 3 },
]
"#,
        expect![[r#"
            line 4: operation `none`: needs 1 to 3 inputs, found 0
            line 5: operation `gamma`: `x` is [4, 8] f32 and `g` is [7] f32: there must be a number for each column
            line 6: operation `scales`: needs 2 outputs, found 1
            line 7: operation `parts`: `x` is [4, 8] f32: its rows do not split into 3 parts evenly
            line 8: operation `sizes`: `x` is [4, 8] f32: parts of [3, 4] do not add up to its rows
            line 9: operation `experts`: needs `k`, how many are chosen
            line 10: operation `shape`: `x` is [4, 8] f32: a shape of [5, 5] has another number of elements
            line 11: operation `heads`: `x` is [4, 8] f32 and `x` is [4, 8] f32: [.., queries, 3 * dim] and [.., keys, 3 * dim] are needed
        "#]],
    );
}

#[test]
fn extents_by_name() {
    let text = r#"
dims = { heads = 8, kv = "heads / 4", dim = 16, width = "(heads + 2 * kv) * dim" }
inputs = { x = ["heads - 7", "width"] }
"#;
    check(
        text,
        expect![[r#"
        x [1, 192] f32
    "#]],
    );
    check_with(
        text,
        &[("heads", 12)],
        expect![[r#"
        x [5, 288] f32
    "#]],
    );
    check_with(
        text,
        &[("heads", 9)],
        expect![[r#"
            [dims]: `heads / 4` divides 9 by 4
        "#]],
    );
    check_with(
        text,
        &[("head", 9)],
        expect![[r#"
        no extent `head` to set: the model has dim, heads, kv, width
    "#]],
    );
}

#[test]
fn extents_that_are_none() {
    check(
        "dims = { a = \"b\", b = \"a + 1\" }",
        expect![[r#"
            [dims]: extent `a` leads back to itself: a -> b
        "#]],
    );
    check(
        "inputs = { x = [\"3 +\", 4] }",
        expect![[r#"
        line 1: `x`: `3 +` ends where a number or a name should be
    "#]],
    );
    check(
        "inputs = { x = [\"3 4\"] }",
        expect![[r#"
            line 1: `x`: `3 4` has `4` where an operator should be
        "#]],
    );
    check(
        "inputs = { x = [\"(3\"] }",
        expect![[r#"
            line 1: `x`: `(3` ends where `)` should be
        "#]],
    );
    check(
        "inputs = { x = [\"4 - 5\"] }",
        expect![[r#"
        line 1: `x`: `4 - 5` is below 0 or beyond 64 bits
    "#]],
    );
    check(
        "inputs = { x = [-1] }",
        expect![[r#"
        line 1: an extent is 0 or more
    "#]],
    );
    check(
        "inputs = { x = 4 }",
        expect![[r#"
        line 1: invalid type: integer `4`, expected a shape, such as ["tokens", 64], or { shape = [..], dtype = ".." }
    "#]],
    );
    check(
        "inputs = { x = [4000000000, 4000000000, 4000000000] }",
        expect![[r#"
        line 1: `x` of shape [4000000000, 4000000000, 4000000000] has more bytes than 64 bits count
    "#]],
    );
}

#[test]
fn text_that_is_no_model() {
    check(
        "[[op]\n",
        expect![[r#"
        line 1: unclosed array table, expected `]`
    "#]],
    );
    check(
        "[[op]]\nname = \"a\"\n",
        expect![[r#"
        line 1: missing field `kind`
    "#]],
    );
    check(
        "[[op]]\nname = \"a\"\nkind = \"relu\"\ninput = [\"x\"]\n",
        expect![[r#"
        line 4: unknown field `input`, expected one of `name`, `kind`, `inputs`, `outputs`, `heads`, `kv_heads`, `causal`, `groups`, `k`, `sizes`, `dtype`, `transposed`, `materialize`, `tf32`
    "#]],
    );
}

#[test]
fn an_unknown_kind_needs_a_shape() {
    check(
        "op = [{ name = \"a\", kind = \"fft\", outputs = [\"y\"] }]",
        expect![[r#"
        line 1: operation `a`: `fft` is no kind that is known, and `y` is not declared
    "#]],
    );
}

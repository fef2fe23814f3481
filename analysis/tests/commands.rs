//! The binary, from its arguments to what it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::{Expect, expect};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scratch(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fuse-analysis-{}-{test}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a command prints, and its errors and exit code where it fails. No devices are stored.
fn run(args: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fuse-analysis"))
        .args(args.split_whitespace())
        .args(["--devices", "no-such-folder"])
        .current_dir(root())
        .output()
        .unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    if !output.status.success() {
        text += &String::from_utf8(output.stderr).unwrap();
        text += &format!("exit code {}\n", output.status.code().unwrap());
    }
    text
}

fn check(args: &str, expected: Expect) {
    expected.assert_eq(&run(args));
}

#[test]
fn analyze_says_everything() {
    check(
        "analyze models/layer_norm_gelu.toml --set tokens=4096",
        expect![[r#"
            LayerNorm + GELU
            NVIDIA H200; predicted with a cold cache
            separate: 2 launches, 134 MB, 38.6 us
            fused: 1 launch, 67.1 MB, 20.0 us

            operations, each in a kernel of its own
            | operation | kind       | pattern       |   bytes | operations | FLOP/byte | working set | bound  |    time |
            |-----------|------------|---------------|---------|------------|-----------|-------------|--------|---------|
            | norm      | layer_norm | row reduction | 67.1 MB | 83.9 MFLOP |      1.25 |     67.1 MB | memory | 20.0 us |
            | act       | gelu       | elementwise   | 67.1 MB |  134 MFLOP |      2.00 |     67.1 MB | memory | 20.0 us |

            fuse, what saves the most time first
            | # | operations | bytes             | saved | launches | FLOP/byte    | time               |   saved | speedup | kernel of the library          |
            |---|------------|-------------------|-------|----------|--------------|--------------------|---------|---------|--------------------------------|
            | 1 | norm + act | 134 MB -> 67.1 MB |  50 % | 2 -> 1   | 1.62 -> 3.25 | 38.6 us -> 20.0 us | 18.7 us |   1.93x | layer_norm_gelu::LayerNormGelu |

            criteria: what each adds to the score, and what was found (! where it misses the threshold)
            | operations | memory savings 0.4, > 30 % | launches 0.2, > 10 % | registers 0.2, < 50 | complexity 0.1, <= moderate | maintainability 0.1, high | score | verdict |
            |------------|----------------------------|----------------------|---------------------|-----------------------------|---------------------------|-------|---------|
            | norm + act |                0.30 (50 %) |          0.15 (50 %) |     0.20 (about 15) |                  0.10 (low) |               0.10 (high) |  0.85 | FUSE    |

            keep separate
            nothing

            what documents say
            | operations | document | its score | here | score | bytes saved | source                                                    |
            |------------|----------|-----------|------|-------|-------------|-----------------------------------------------------------|
            | norm + act | fuse     |      0.85 | FUSE |  0.85 |        50 % | day 22: 4N to 2N, two launches to one, about 15 registers |
        "#]],
    );
}

#[test]
fn a_transformer_layer_on_another_device() {
    check(
        "analyse models/transformer_layer.toml --device h100 --set tokens=16",
        expect![[r#"
            transformer layer
            NVIDIA H100 80GB HBM3; predicted with a cold cache
            separate: 12 launches, 376 MB, 194 us
            fused: 5 launches, 372 MB, 171 us

            operations, each in a kernel of its own
            | operation     | kind       | pattern       |   bytes | operations | FLOP/byte | working set | bound  |    time |
            |---------------|------------|---------------|---------|------------|-----------|-------------|--------|---------|
            | layernorm     | layer_norm | row reduction |  279 kB |  459 kFLOP |      1.65 |      279 kB | launch | 5.04 us |
            | linear        | linear     | matmul        |  101 MB | 1.61 GFLOP |      15.9 |      101 MB | memory | 46.0 us |
            | split         | split      | view          |  786 kB |     0 FLOP |      0.00 |      786 kB | launch | 5.14 us |
            | attention     | attention  | attention     |  524 kB | 2.23 MFLOP |      4.25 |      524 kB | launch | 12.2 us |
            | add_residual  | add        | elementwise   |  393 kB | 65.5 kFLOP |      0.17 |      393 kB | launch | 5.06 us |
            | layernorm2    | layer_norm | row reduction |  279 kB |  459 kFLOP |      1.65 |      279 kB | launch | 5.02 us |
            | up            | linear     | matmul        |  135 MB | 2.15 GFLOP |      15.9 |      135 MB | memory | 57.3 us |
            | up_bias       | bias       | elementwise   | 1.08 MB |  262 kFLOP |      0.24 |     1.08 MB | launch | 5.22 us |
            | gelu          | gelu       | elementwise   | 1.05 MB | 2.10 MFLOP |      2.00 |     1.05 MB | launch | 5.21 us |
            | down          | linear     | matmul        |  135 MB | 2.15 GFLOP |      15.9 |      135 MB | memory | 57.2 us |
            | down_bias     | bias       | elementwise   |  270 kB | 65.5 kFLOP |      0.24 |      270 kB | launch | 5.02 us |
            | add_residual2 | add        | elementwise   |  393 kB | 65.5 kFLOP |      0.17 |      393 kB | launch | 5.04 us |

            fuse, what saves the most time first
            | # | operations                       | bytes             | saved | launches | FLOP/byte    | time               |   saved | speedup | kernel of the library                       |
            |---|----------------------------------|-------------------|-------|----------|--------------|--------------------|---------|---------|---------------------------------------------|
            | 1 | up + up_bias + gelu              | 137 MB -> 135 MB  |   2 % | 3 -> 1   | 15.7 -> 15.9 | 64.2 us -> 57.3 us | 6.92 us |   1.12x | matmul::Matmul (bias, activation, residual) |
            | 2 | down + down_bias + add_residual2 | 136 MB -> 135 MB  |   0 % | 3 -> 1   | 15.8 -> 15.9 | 63.8 us -> 57.2 us | 6.53 us |   1.11x | matmul::Matmul (bias, activation, residual) |
            | 3 | split + attention                | 1.31 MB -> 524 kB |  60 % | 2 -> 1   | 1.70 -> 4.25 | 15.6 us -> 12.2 us | 3.39 us |   1.28x | attention::Attention (strided views)        |
            | 4 | layernorm + linear               | 101 MB -> 101 MB  |   0 % | 2 -> 1   | 15.9 -> 15.9 | 49.3 us -> 46.0 us | 3.26 us |   1.07x | norm_linear::NormLinear (bias, activation)  |
            | 5 | add_residual + layernorm2        | 672 kB -> 541 kB  |  20 % | 2 -> 1   | 0.78 -> 0.97 | 8.33 us -> 5.11 us | 3.22 us |   1.63x | add_layer_norm::AddLayerNorm                |

            criteria: what each adds to the score, and what was found (! where it misses the threshold)
            | operations                                                    | memory savings 0.4, > 30 % | launches 0.2, > 10 % | registers 0.2, < 50 | complexity 0.1, <= moderate | maintainability 0.1, high | score | verdict       |
            |---------------------------------------------------------------|----------------------------|----------------------|---------------------|-----------------------------|---------------------------|-------|---------------|
            | up + up_bias + gelu                                           |                0.00 (2 %!) |          0.20 (67 %) |     0.20 (about 20) |                  0.10 (low) |               0.10 (high) |  0.60 | FUSE          |
            | down + down_bias + add_residual2                              |                0.00 (0 %!) |          0.20 (67 %) |     0.20 (about 20) |                  0.10 (low) |               0.10 (high) |  0.60 | FUSE          |
            | split + attention                                             |                0.36 (60 %) |          0.15 (50 %) |     0.20 (about 20) |                  0.10 (low) |               0.10 (high) |  0.91 | FUSE          |
            | layernorm + linear                                            |                0.00 (0 %!) |          0.15 (50 %) |     0.20 (about 20) |             0.08 (moderate) |               0.10 (high) |  0.53 | FUSE          |
            | add_residual + layernorm2                                     |               0.00 (20 %!) |          0.15 (50 %) |     0.20 (about 15) |                  0.10 (low) |               0.10 (high) |  0.55 | FUSE          |
            | up + up_bias + gelu -> down + down_bias + add_residual2       |                0.00 (0 %!) |          0.15 (50 %) |     0.20 (about 40) |                0.00 (high!) |          0.00 (moderate!) |  0.35 | KEEP SEPARATE |
            | layernorm + linear -> split + attention                       |                0.00 (1 %!) |          0.15 (50 %) |     0.20 (about 40) |                0.00 (high!) |               0.00 (low!) |  0.35 | KEEP SEPARATE |
            | split + attention -> add_residual + layernorm2                |               0.00 (25 %!) |          0.15 (50 %) |     0.20 (about 35) |                0.00 (high!) |          0.00 (moderate!) |  0.35 | KEEP SEPARATE |
            | add_residual + layernorm2 -> up + up_bias + gelu              |                0.00 (0 %!) |          0.15 (50 %) |     0.20 (about 35) |                0.00 (high!) |               0.00 (low!) |  0.35 | KEEP SEPARATE |
            | add_residual + layernorm2 -> down + down_bias + add_residual2 |                0.00 (0 %!) |          0.15 (50 %) |     0.20 (about 35) |                0.00 (high!) |          0.00 (moderate!) |  0.35 | KEEP SEPARATE |

            keep separate
            | operations                                                    | would save | why not                                                                                  |
            |---------------------------------------------------------------|------------|------------------------------------------------------------------------------------------|
            | up + up_bias + gelu -> down + down_bias + add_residual2       |    10.6 us | `down` needs whole rows of `up`, which are in tiles of many programs                     |
            | layernorm + linear -> split + attention                       |    10.5 us | `attention` needs all keys before it begins, and programs of `linear` have tiles of them |
            | split + attention -> add_residual + layernorm2                |    3.26 us | rows of `layernorm2` are 4096 elements, and a program of `attention` has a head of 128   |
            | add_residual + layernorm2 -> up + up_bias + gelu              |    3.26 us | its score is 0.35, below 0.5: memory bandwidth savings 0 %, code complexity high,        |
            |                                                               |            | maintainability low                                                                      |
            | add_residual + layernorm2 -> down + down_bias + add_residual2 |    3.26 us | rows of `layernorm2` are 4096 elements, and a tile of `down` has 256; `up` stands        |
            |                                                               |            | between them                                                                             |

            what documents say
            | operations               | document                         | its score | here | score | bytes saved | source                         |
            |--------------------------|----------------------------------|-----------|------|-------|-------------|--------------------------------|
            | layernorm + linear       | fuse if the batch is small       |           | FUSE |  0.53 |         0 % | day 22, output of the analyzer |
            | split + attention        | fuse, the parts are never copied |           | FUSE |  0.91 |        60 % | day 22, output of the analyzer |
            | attention + add_residual | fuse                             |           | FUSE |  0.53 |        29 % | day 22, output of the analyzer |
        "#]],
    );
}

#[test]
fn an_empty_model() {
    let folder = scratch("empty");
    let path = folder.join("empty.toml");
    fs::write(&path, "name = \"nothing\"").unwrap();
    check(
        &format!("analyze {}", path.display()),
        expect![[r#"
        nothing
        NVIDIA H200; predicted with a cold cache
        no operations: nothing moves and nothing is launched
    "#]],
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn files_that_are_written() {
    let folder = scratch("files");
    let (json, html) = (folder.join("a.json"), folder.join("a.html"));
    run(&format!("analyze models/add_gelu.toml --json {} --html {}", json.display(), html.display()));
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let fusion = &json["fusions"][0];
    assert_eq!(fusion["ops"], serde_json::json!(["add", "act"]));
    assert_eq!(fusion["verdict"]["decision"], "fuse");
    let html = fs::read_to_string(&html).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    // Nothing is loaded from elsewhere.
    assert!(!html.contains("http") && !html.contains("src="));
    run(&format!("roofline measured/roofline_h200.json --out {}", folder.display()));
    let page = fs::read_to_string(folder.join("roofline.html")).unwrap();
    let svg = fs::read_to_string(folder.join("roofline.svg")).unwrap();
    assert!(page.contains(&svg));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_model_is_analyzed() {
    let mut names = fs::read_dir(root().join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect::<Vec<_>>();
    names.sort();
    let mut lines = String::new();
    for name in names {
        let name = name.into_string().unwrap();
        let text = run(&format!("analyze models/{name}"));
        let totals =
            text.lines().filter(|line| line.starts_with("separate: ") || line.starts_with("fused: "));
        lines += &format!("{name}: {}\n", totals.collect::<Vec<_>>().join("; "));
    }
    expect![[r#"
        add_gelu.toml: separate: 2 launches, 21.0 MB, 11.1 us; fused: 1 launch, 12.6 MB, 6.91 us
        add_layer_norm.toml: separate: 2 launches, 671 MB, 167 us; fused: 1 launch, 537 MB, 132 us
        add_mul.toml: separate: 2 launches, 2.52 GB, 609 us; fused: 1 launch, 1.68 GB, 405 us
        add_rms_norm.toml: separate: 2 launches, 671 MB, 167 us; fused: 1 launch, 537 MB, 132 us
        bias_dropout_add.toml: separate: 3 launches, 940 MB, 234 us; fused: 1 launch, 403 MB, 100 us
        bias_gelu_dropout.toml: separate: 3 launches, 805 MB, 202 us; fused: 1 launch, 268 MB, 68.1 us
        elementwise_chain.toml: separate: 3 launches, 403 MB, 105 us; fused: 1 launch, 134 MB, 36.0 us
        int8_linear.toml: separate: 4 launches, 453 MB, 2.77 ms; fused: 1 launch, 50.4 MB, 108 us
        layer_norm_gelu.toml: separate: 2 launches, 1.07 GB, 263 us; fused: 1 launch, 537 MB, 132 us
        layer_norm_in_parts.toml: separate: 3 launches, 101 MB, 29.8 us; fused: 1 launch, 33.6 MB, 11.9 us
        layer_norm_quantize.toml: separate: 2 launches, 940 MB, 231 us; fused: 1 launch, 403 MB, 100 us
        linear_combination.toml: separate: 5 launches, 5.03 GB, 1.22 ms; fused: 1 launch, 1.68 GB, 405 us
        llama_3_2_1b_layer.toml: separate: 12 launches, 885 MB, 863 us; fused: 7 launches, 528 MB, 772 us
        llama_3_8b_layer.toml: separate: 12 launches, 1.86 GB, 2.65 ms; fused: 7 launches, 1.22 GB, 2.49 ms
        matmul_bias_gelu.toml: separate: 3 launches, 470 MB, 2.77 ms; fused: 1 launch, 201 MB, 2.71 ms
        matmul_column_sum.toml: separate: 2 launches, 134 MB, 192 us; fused: 2 launches, 134 MB, 192 us
        matmul_layer_norm.toml: separate: 2 launches, 168 MB, 200 us; fused: 2 launches, 168 MB, 200 us
        norm_activation_add.toml: separate: 3 launches, 470 MB, 121 us; fused: 1 launch, 201 MB, 52.1 us
        norm_two_linears.toml: separate: 3 launches, 268 MB, 380 us; fused: 3 launches, 268 MB, 380 us
        rows.toml: separate: 3 launches, 403 MB, 105 us; fused: 3 launches, 403 MB, 105 us
        silu_mul.toml: separate: 2 launches, 902 MB, 222 us; fused: 1 launch, 541 MB, 133 us
        transformer_layer.toml: separate: 12 launches, 2.11 GB, 2.39 ms; fused: 6 launches, 1.17 GB, 2.13 ms
        unfused_attention.toml: separate: 3 launches, 4.43 GB, 1.08 ms; fused: 1 launch, 134 MB, 353 us
    "#]]
    .assert_eq(&lines);
}

/// How many times that memory bounds are as predicted, of chains and of a decoder's layers.
#[test]
fn predictions_of_chains_and_layers() {
    let mut lines = String::new();
    let layers = [("1b", 16), ("1b", 1024), ("1b", 4096), ("8b", 16), ("8b", 1024), ("8b", 4096)];
    let of = |card: &'static str| {
        layers.into_iter().map(move |(model, tokens)| format!("{model}_layer_{tokens}_{card}"))
    };
    for name in ["pairs_h200".to_owned()].into_iter().chain(of("h200")).chain(of("h100")) {
        let text = run(&format!("check --models models --measured measured/{name}.json"));
        let own = text.lines().find(|line| line.starts_with("of the library's"));
        lines += &format!("{name}: {}\n", own.unwrap_or("nothing is bound by memory"));
    }
    expect![[r#"
        pairs_h200: of the library's, 28 of 31 bound by memory are within 15 % of the prediction
        1b_layer_16_h200: of the library's, 2 of 2 bound by memory are within 15 % of the prediction
        1b_layer_1024_h200: of the library's, 1 of 1 bound by memory are within 15 % of the prediction
        1b_layer_4096_h200: of the library's, 5 of 6 bound by memory are within 15 % of the prediction
        8b_layer_16_h200: of the library's, 7 of 7 bound by memory are within 15 % of the prediction
        8b_layer_1024_h200: of the library's, 5 of 6 bound by memory are within 15 % of the prediction
        8b_layer_4096_h200: of the library's, 5 of 6 bound by memory are within 15 % of the prediction
        1b_layer_16_h100: of the library's, 3 of 3 bound by memory are within 15 % of the prediction
        1b_layer_1024_h100: of the library's, 1 of 1 bound by memory are within 15 % of the prediction
        1b_layer_4096_h100: of the library's, 6 of 6 bound by memory are within 15 % of the prediction
        8b_layer_16_h100: of the library's, 7 of 7 bound by memory are within 15 % of the prediction
        8b_layer_1024_h100: of the library's, 4 of 6 bound by memory are within 15 % of the prediction
        8b_layer_4096_h100: of the library's, 6 of 6 bound by memory are within 15 % of the prediction
    "#]]
    .assert_eq(&lines);
}

#[test]
fn predictions_beside_measurements() {
    check(
        "check --model models/add_mul.toml --measured measured/add_mul_h200.json --strict",
        expect![[r#"
            check of add + mul
            NVIDIA H200
            book/src/performance.md, add_mul: 100 Mi f32, medians of 100
            of the library's, 1 of 1 bound by memory are within 15 % of the prediction
            of other code's, 2 of 2 bound by memory are within 15 % of the prediction

            measured and predicted
            | operations | form    | code        |   bytes | bound  | predicted | measured | ratio |   |
            |------------|---------|-------------|---------|--------|-----------|----------|-------|---|
            | add + mul  | unfused | PyTorch     | 2.52 GB | memory |    609 us |   580 us |  0.95 |   |
            | add + mul  | fused   | the library | 1.68 GB | memory |    405 us |   381 us |  0.94 |   |
            | add + mul  | fused   | Triton      | 1.68 GB | memory |    405 us |   381 us |  0.94 |   |
        "#]],
    );
    check(
        "check --model models/layer_norm_gelu.toml --measured measured/layer_norm_gelu_h200.json --strict",
        expect![[r#"
            check of LayerNorm + GELU
            NVIDIA H200
            book/src/performance.md, layer_norm and layer_norm_gelu: 32768 x 4096 bf16, medians of 11
            of the library's, 2 of 2 bound by memory are within 15 % of the prediction
            of other code's, 0 of 3 bound by memory are within 15 % of the prediction

            measured and predicted
            | operations | form    | code        |   bytes | bound  | predicted | measured | ratio |             |
            |------------|---------|-------------|---------|--------|-----------|----------|-------|-------------|
            | norm       | unfused | the library |  537 MB | memory |    132 us |   129 us |  0.98 |             |
            | norm       | unfused | PyTorch     |  537 MB | memory |    132 us |   204 us |  1.54 | beyond 15 % |
            | norm + act | unfused | PyTorch     | 1.07 GB | memory |    263 us |   378 us |  1.43 | beyond 15 % |
            | norm + act | fused   | the library |  537 MB | memory |    132 us |   132 us |  0.99 |             |
            | norm + act | fused   | Triton      |  537 MB | memory |    132 us |   233 us |  1.76 | beyond 15 % |
        "#]],
    );
}

#[test]
fn what_does_not_work() {
    check(
        "analyze models/none.toml",
        expect![[r#"
        error: cannot read models/none.toml: No such file or directory (os error 2)
        exit code 1
    "#]],
    );
    check(
        "analyze models/add_mul.toml --device mi300",
        expect![[r#"
            error: no device `mi300`: there are NVIDIA H200, NVIDIA H100 80GB HBM3; `ceilings --measure-cpu` adds this processor as `cpu`
            exit code 1
        "#]],
    );
    check(
        "analyze models/add_mul.toml --set m=4",
        expect![[r#"
        error: models/add_mul.toml
        no extent `m` to set: the model has n
        exit code 1
    "#]],
    );
    check(
        "analyze models/add_mul.toml --set n=four",
        expect![[r#"
        error: invalid value 'n=four' for '--set <NAME=NUMBER>': `four` is no number of 0 or more

        For more information, try '--help'.
        exit code 2
    "#]],
    );
    check(
        "roofline measured/add_mul_h200.json --out out",
        expect![[r#"
        error: `add + mul` (unfused) needs `bytes` and `flops`
        exit code 1
    "#]],
    );
    check(
        "check --model models/add_gelu.toml --measured measured/add_mul_h200.json",
        expect![[r#"
        error: `add + mul` was measured, and the model has no operation `mul`: it has add, act
        exit code 1
    "#]],
    );
}

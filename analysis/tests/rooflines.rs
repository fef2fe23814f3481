//! Measurements: their places under a roof, what is drawn, and predictions beside them.

use expect_test::{Expect, expect};
use fuse_analysis::device::{Device, builtin};
use fuse_analysis::measurements::Measurements;
use fuse_analysis::roofline::{self, picture};
use fuse_analysis::{check, model};

fn h200() -> Device {
    builtin::h200()
}

fn check_points(json: &str, expected: Expect) {
    let found = Measurements::parse(json).and_then(|measured| {
        let device = h200();
        let roofline = roofline::place(&measured, &device)?;
        let mut page = roofline::page(&roofline, &measured.source, "");
        page.sections.truncate(1);
        Ok(page.to_text())
    });
    expected.assert_eq(&found.unwrap_or_else(|error| error + "\n"));
}

const PAIR: &str = r#"{ "device": "NVIDIA H200", "points": [
    { "name": "add_gelu", "form": "unfused", "bytes": 5e9, "flops": 9e9, "seconds": 1.5e-3, "peer": "PyTorch" },
    { "name": "add_gelu", "form": "fused", "bytes": 3e9, "flops": 9e9, "seconds": 0.75e-3 } ] }"#;

#[test]
fn fused_beside_unfused() {
    check_points(
        PAIR,
        expect![[r#"
            roofline of NVIDIA H200

            points
            | # | kernel   | form    | code        | FLOP/byte |     attained | bandwidth |    time | of its roof | speedup by fusing | doubts |
            |---|----------|---------|-------------|-----------|--------------|-----------|---------|-------------|-------------------|--------|
            | 1 | add_gelu | unfused | PyTorch     |      1.80 | 6.00 TFLOP/s | 3.33 TB/s | 1.50 ms |        80 % |             2.00x |        |
            | 2 | add_gelu | fused   | the library |      3.00 | 12.0 TFLOP/s | 4.00 TB/s |  750 us |        96 % |                   |        |
        "#]],
    );
}

#[test]
fn points_above_a_roof_are_doubted() {
    check_points(
        r#"{ "device": "NVIDIA H200", "points": [
            { "name": "cached", "form": "fused", "bytes": 1e9, "flops": 1e9, "seconds": 1e-4 },
            { "name": "reads", "form": "fused", "bytes": 4.4e9, "flops": 1e9, "seconds": 1e-3 },
            { "name": "matmul", "form": "fused", "bytes": 1e8, "flops": 137e9, "seconds": 170e-6, "unit": "bf16" },
            { "name": "f32", "form": "fused", "bytes": 1e8, "flops": 137e9, "seconds": 170e-6 } ] }"#,
        expect![[r#"
            roofline of NVIDIA H200
            3 points are above a ceiling: see the table

            points
            | # | kernel | form  | code        | FLOP/byte |     attained | bandwidth |    time | of its roof | speedup by fusing | doubts                                                                                   |
            |---|--------|-------|-------------|-----------|--------------|-----------|---------|-------------|-------------------|------------------------------------------------------------------------------------------|
            | 1 | cached | fused | the library |      1.00 | 10.0 TFLOP/s | 10.0 TB/s |  100 us |       239 % |                   | above its roof: a suspicious measurement                                                 |
            | 2 | reads  | fused | the library |      0.23 | 1.00 TFLOP/s | 4.40 TB/s | 1.00 ms |       105 % |                   | above the measured ceiling: it reads more than it writes, or the ceiling is to be        |
            |   |        |       |             |           |              |           |         |             |                   | measured again                                                                           |
            | 3 | matmul | fused | the library |      1370 |  806 TFLOP/s |  588 GB/s |  170 us |       101 % |                   |                                                                                          |
            | 4 | f32    | fused | the library |      1370 |  806 TFLOP/s |  588 GB/s |  170 us |      1580 % |                   | above its roof: a suspicious measurement                                                 |
        "#]],
    );
}

#[test]
fn points_without_a_place() {
    let point = |fields: &str| {
        format!(
            "{{ \"device\": \"NVIDIA H200\", \"points\": [{{ \"name\": \"x\", \"form\": \"fused\", {fields} }}] }}"
        )
    };
    check_points(
        &point("\"seconds\": 1e-3"),
        expect![[r#"
        `x` (fused) needs `bytes` and `flops`
    "#]],
    );
    check_points(
        &point("\"bytes\": 0, \"flops\": 1, \"seconds\": 1e-3"),
        expect![[r#"
        `x` (fused) moves no bytes: it has no place on logarithmic axes
    "#]],
    );
    check_points(
        &point("\"bytes\": 1, \"flops\": 0, \"seconds\": 1e-3"),
        expect![[r#"
        `x` (fused) computes nothing: it has no place on logarithmic axes
    "#]],
    );
    check_points(
        &point("\"bytes\": 1, \"flops\": 1, \"seconds\": 0"),
        expect![[r#"
        `x` took 0 seconds: a time above 0 is needed
    "#]],
    );
    check_points(
        &point("\"bytes\": -1, \"flops\": 1, \"seconds\": 1"),
        expect![[r#"
        `x` has negative or endless bytes
    "#]],
    );
    check_points(
        &point("\"bytes\": 1, \"flops\": 1, \"seconds\": 1, \"unit\": \"f64\""),
        expect![[r#"
        `x` has the unit `f64`, and NVIDIA H200 has ceilings for bf16, f16, f8e4m3, i8, tf32, f32
    "#]],
    );
    check_points(
        &point("\"byte\": 1"),
        expect![[r#"
            unknown field `byte`, expected one of `name`, `ops`, `model`, `set`, `form`, `bytes`, `flops`, `seconds`, `peer`, `unit` at line 1 column 76
        "#]],
    );
}

/// The texts of a picture, in order.
fn texts(svg: &str) -> String {
    let mut found = String::new();
    for element in svg.split("<text").skip(1) {
        let text = element.split_once('>').unwrap().1.split_once("</text>").unwrap().0;
        found += text.trim();
        found.push('\n');
    }
    found
}

#[test]
fn what_the_picture_says() {
    let measured = Measurements::parse(PAIR).unwrap();
    let device = h200();
    let svg = picture::svg(&roofline::place(&measured, &device).unwrap()).unwrap();
    expect![[r#"
        Roofline of NVIDIA H200
        operations in each second (FLOP/s)
        operations for each byte (FLOP/byte)
        1 T
        10 T
        100 T
        1
        10
        memory: 4.18 TB/s measured, 4.80 TB/s nominal
        f32: 51.0 TFLOP/s measured, 67.0 TFLOP/s nominal
        1
        2
        1
        add_gelu, unfused, PyTorch
        2
        add_gelu, fused
        whole line: the ceiling that counts; dashed: the other one
        arrow: from unfused to fused
    "#]]
    .assert_eq(&texts(&svg));
    let markers = svg.matches("<circle").count();
    // A ring is white below, and each stands in the legend again.
    assert_eq!(markers, 2 * (2 + 1));
}

#[test]
fn numbers_of_points_do_not_cover_each_other() {
    let point = |place: u32| {
        let seconds = 1e-3 + f64::from(place) * 1e-6;
        format!(
            "{{ \"name\": \"k{place}\", \"form\": \"fused\", \"bytes\": 3e9, \"flops\": 9e9, \"seconds\": {seconds} }}"
        )
    };
    let points = (0..24).map(point).collect::<Vec<_>>().join(", ");
    let json = format!("{{ \"device\": \"NVIDIA H200\", \"points\": [{points}] }}");
    let device = h200();
    let measured = Measurements::parse(&json).unwrap();
    let svg = picture::svg(&roofline::place(&measured, &device).unwrap()).unwrap();
    // The numbers in the chart are those whose text is centered.
    let mut places = Vec::new();
    for element in svg.split("<text").skip(1).filter(|text| text.contains("text-anchor=\"middle\"")) {
        let (attributes, text) = element.split_once('>').unwrap();
        if text.trim_start().starts_with(|c: char| c.is_ascii_digit()) && attributes.contains("#148") {
            let value = |name: &str| {
                let after = attributes.split_once(&format!(" {name}=\"")).unwrap().1;
                after.split_once('"').unwrap().0.parse::<i32>().unwrap()
            };
            places.push((value("x"), value("y")));
        }
    }
    assert_eq!(places.len(), 24);
    for (index, (x, y)) in places.iter().enumerate() {
        for (other_x, other_y) in &places[..index] {
            assert!((x - other_x).abs() >= 9 || (y - other_y).abs() >= 14, "{places:?}");
        }
    }
}

#[test]
fn no_points_are_no_picture() {
    let measured = Measurements::parse(r#"{ "device": "NVIDIA H200", "points": [] }"#).unwrap();
    let device = h200();
    let roofline = roofline::place(&measured, &device).unwrap();
    expect!["there are no points to draw"].assert_eq(&picture::svg(&roofline).unwrap_err());
}

fn check_predictions(text: &str, json: &str, expected: Expect) {
    let model = model::parse(text, &[]).unwrap();
    let measured = Measurements::parse(json).unwrap();
    let found = check::compare(&model.graph, &h200(), &measured)
        .map(|checked| check::page(model.graph.name(), &measured, &checked).to_text());
    expected.assert_eq(&found.unwrap_or_else(|error| error + "\n"));
}

const MODEL: &str = r#"
name = "pair"
dtype = "bf16"
inputs = { x = [32768, 4096] }
op = [
    { name = "norm", kind = "layer_norm", inputs = ["x"], outputs = ["y"] },
    { name = "act", kind = "gelu", inputs = ["y"], outputs = ["z"] },
]
"#;

#[test]
fn predictions_beside_measurements() {
    check_predictions(
        MODEL,
        r#"{ "device": "NVIDIA H200", "points": [
            { "name": "norm", "form": "unfused", "seconds": 129.2e-6 },
            { "name": "norm + act", "form": "unfused", "seconds": 377.9e-6, "peer": "PyTorch" },
            { "name": "norm + act", "form": "fused", "seconds": 131.5e-6 } ] }"#,
        expect![[r#"
            check of pair
            NVIDIA H200
            of the library's, 2 of 2 bound by memory are within 15 % of the prediction
            of other code's, 0 of 1 bound by memory are within 15 % of the prediction

            measured and predicted
            | operations | form    | code        |   bytes | bound  | predicted | measured | ratio |             |
            |------------|---------|-------------|---------|--------|-----------|----------|-------|-------------|
            | norm       | unfused | the library |  537 MB | memory |    132 us |   129 us |  0.98 |             |
            | norm + act | unfused | PyTorch     | 1.07 GB | memory |    263 us |   378 us |  1.43 | beyond 15 % |
            | norm + act | fused   | the library |  537 MB | memory |    132 us |   132 us |  0.99 |             |
        "#]],
    );
}

#[test]
fn a_measurement_of_something_else() {
    check_predictions(
        MODEL,
        r#"{ "device": "NVIDIA H200", "points": [{ "name": "norm + relu", "form": "fused", "seconds": 1e-4 }] }"#,
        expect![[r#"
            `norm + relu` was measured, and the model has no operation `relu`: it has norm, act
        "#]],
    );
}

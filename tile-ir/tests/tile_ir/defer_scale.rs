//! Scales of scores: joined, and deferred until after maxima.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::ir::guard::WithNames;
use tile_ir::testing::func;
use tile_ir::transform::contract_floats::contract_floats;
use tile_ir::transform::defer_scale::defer_scale;
use tile_ir::transform::split_full_tiles::split_full_tiles;

/// A loop of scores `s`, of which `body` makes weights.
fn kernel(body: &str) -> Func {
    let mut func = func(&format!(
        "#[fuse_kernel]
        fn k(a: &[f16], b: &[f16], scales: &[f32], out: &mut [f32], n: i32, scale: f32, cap: f32) {{
            let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
            let at = i.col() * 16 + j.row();
            let a = tl::load(a + at);
            let mut sum = tl::zeros::<f32>([16]);
            for start in (0..n).step_by(16) {{
                let s = tl::dot(a, tl::load(b + at + start));
                {body}
            }}
            tl::store(out + i, sum);
        }}"
    ));
    split_full_tiles(&mut func);
    contract_floats(&mut func);
    func
}

/// The operations after the dot, and the guards.
fn scaled(body: &str) -> String {
    let mut func = kernel(body);
    let guards = defer_scale(&mut func);
    ir::verify(&func).expect("valid tile IR");
    let text = ir::print(&func, &|_| None);
    let begin = text.find("dot").expect("a product");
    let end = text.rfind("store %").expect("a store behind the loop");
    let names: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let guards = guards.iter().map(|guard| WithNames(guard, &names).to_string());
    let lines = text[begin..end].lines().skip(1).map(|line| line.trim().to_string());
    lines.chain(guards).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn check(body: &str, expected: Expect) {
    expected.assert_eq(&scaled(body));
}

const SOFTMAX: &str = "sum += tl::sum(tl::exp(s - tl::max(s, 1).col()), 1);";

#[test]
fn a_maximum_is_scaled_and_a_difference_absorbs_the_scale() {
    check(
        &format!("let s = s * scale; {SOFTMAX}"),
        expect![[r#"
        %23 = reduce %22 axes [1] : f32[16] { |%24, %25|
        %26 = maximum %24, %25 : f32
        yield %26
        }
        %27 = splat %1 : f32[16]
        %28 = mul %23, %27 : f32[16]
        %29 = constant -1.4426950408889634 : f32
        %30 = splat %29 : f32[16]
        %31 = mul %28, %30 : f32[16]
        %32 = expand_dims %31 axis 1 : f32[16, 1]
        %33 = broadcast %32 : f32[16, 16]
        %34 = constant 1.4426950408889634 : f32
        %35 = mul %34, %1 : f32
        %36 = splat %35 : f32[16, 16]
        %37 = fma %22, %36, %33 : f32[16, 16]
        %38 = exp2 %37 : f32[16, 16]
        %39 = reduce %38 axes [1] : f32[16] { |%40, %41|
        %42 = add %40, %41 : f32
        yield %42
        }
        %43 = add %18, %39 : f32[16]
        yield %43
        }
        2^-40 <= scale <= 2^40"#]],
    );
}

#[test]
fn masks_may_stand_between() {
    let text = scaled(&format!(
        "let s = tl::select((start + j < n).row(), s * (scale * 1.5), f32::NEG_INFINITY); {SOFTMAX}"
    ));
    assert!(text.contains("if %") && text.contains("<= scale <="), "{text}");
    assert_eq!(text.matches("mul").count(), 4, "{text}");
}

#[test]
fn several_scales_are_one() {
    check(
        "sum += tl::sum(tl::tanh(s * scale / cap), 1);",
        expect![[r#"
        %23 = abs %2 : f32
        %24 = constant 1.0 : f32
        %25 = constant 7.888609052210118e-31 : f32
        %26 = constant 1.8446744073709552e19 : f32
        %27 = lt %23, %25 : bool
        %28 = select %27, %26, %24 : f32
        %29 = constant 1.2676506002282294e30 : f32
        %30 = constant 5.421010862427522e-20 : f32
        %31 = gt %23, %29 : bool
        %32 = select %31, %30, %28 : f32
        %33 = mul %2, %32 : f32
        %34 = div %24, %33 : f32
        %35 = mul %1, %34 : f32
        %36 = splat %35 : f32[16, 16]
        %37 = mul %22, %36 : f32[16, 16]
        %38 = tanh %37 : f32[16, 16]
        %39 = reduce %38 axes [1] : f32[16] { |%40, %41|
        %42 = add %40, %41 : f32
        yield %42
        }
        %43 = add %18, %39 : f32[16]
        yield %43
        }
        2^-40 <= scale <= 2^40
        2^-40 <= cap <= 2^40"#]],
    );
}

/// A product with 1 that two others use is removed, and one of these is joined with the next.
#[test]
fn products_with_one_are_removed() {
    let text = scaled("let s = s * 1.0; let t = s * scale * 1.5; sum += tl::sum(t + s * 0.5, 1);");
    assert_eq!(text.matches("f32[16, 16]").count() - text.matches("splat").count(), 3, "{text}");
}

/// Scores of scores, of which the inner ones are masked: their scale is not lost with that of the outer ones.
#[test]
fn of_two_nested_maxima_one_keeps_its_scale() {
    let masked = "let s = tl::select((start + j < n).row(), s * scale, f32::NEG_INFINITY); let t = s * cap;";
    let sums = "sum += tl::sum(tl::exp(t - tl::max(t, 1).col()), 1) + tl::max(s, 1);";
    let text = scaled(&format!("{masked} {sums}"));
    assert!(text.contains("<= scale") != text.contains("<= cap"), "{text}");
    let other = "sum += tl::max(s, 1); sum += tl::sum(tl::exp(t - tl::max(t, 1).col()), 1);";
    let text = scaled(&format!("{masked} {other}"));
    assert!(text.contains("<= scale") != text.contains("<= cap"), "{text}");
}

/// The scale of one branch alone is not defined where the maximum is taken.
#[test]
fn a_scale_that_is_made_in_a_branch_stays_there() {
    let text = scaled(&format!(
        "let s = if start > 4 {{ s * (scale * 1.5) }} else {{ tl::full([16, 16], f32::NEG_INFINITY) }}; {SOFTMAX}"
    ));
    assert!(!text.contains("<= scale"), "{text}");
}

#[test]
fn scales_of_unknown_sign_or_with_other_uses_stay() {
    for scores in [
        // Read, a number below 0, and one for each row.
        "let s = s * tl::load(scales);",
        "let s = s * (scale * -1.0);",
        "let s = s * tl::load(scales + i).col();",
        // A number that a mask gives is scaled too.
        "let s = tl::select((start + j < n).row(), s * scale, -1.0);",
        // Used by itself, or by a sum.
        "let s = s * scale; sum += tl::sum(s, 1);",
        "let t = s * scale; let s = tl::select((start + j < n).row(), t, 0.0); sum += tl::sum(t * t, 1);",
        // Beyond the bound of a product of scales.
        "let s = s * (scale * scale * scale * scale);",
    ] {
        let text = scaled(&format!("{scores} {SOFTMAX}"));
        assert!(!text.contains("<= scale"), "{scores}\n{text}");
    }
}

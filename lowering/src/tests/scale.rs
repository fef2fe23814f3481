//! Scales of scores: joined, and taken after maxima.

use expect_test::{Expect, expect};

use super::func;
use crate::analysis::contract::contract;
use crate::analysis::fact::Named;
use crate::analysis::full::split_off_full;
use crate::analysis::scale::scale_late;
use crate::tile;

/// A loop of scores `s`, of which `body` makes weights; what is done after the products, and the facts.
fn scaled(body: &str) -> String {
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
    split_off_full(&mut func);
    contract(&mut func);
    let facts = scale_late(&mut func);
    tile::verify(&func).expect("valid tile IR");
    let text = tile::print(&func, &|_| None);
    let begin = text.find("dot").expect("a product");
    let end = text.rfind("store out").expect("a store behind the loop");
    let names: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let facts = facts.iter().map(|fact| Named(fact, &names).to_string());
    let lines = text[begin..end].lines().skip(1).map(|line| line.trim().to_string());
    lines.chain(facts).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn check(body: &str, expected: Expect) {
    expected.assert_eq(&scaled(body));
}

const SOFTMAX: &str = "sum += tl::sum(tl::exp(s - tl::max(s, 1).col()), 1);";

#[test]
fn a_maximum_is_scaled_and_a_difference_takes_the_scale_in() {
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
fn masks_stand_between() {
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

/// A product with 1 that two others take is left out, and one of these is joined with the next.
#[test]
fn products_with_one_are_left_out() {
    let text = scaled("let s = s * 1.0; let t = s * scale * 1.5; sum += tl::sum(t + s * 0.5, 1);");
    assert_eq!(text.matches("f32[16, 16]").count() - text.matches("splat").count(), 3, "{text}");
}

#[test]
fn what_is_not_known_to_be_positive_or_is_used_otherwise_stays() {
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
        // Beyond what numbers are shown to hold.
        "let s = s * (scale * scale * scale * scale);",
    ] {
        let text = scaled(&format!("{scores} {SOFTMAX}"));
        assert!(!text.contains("<= scale"), "{scores}\n{text}");
    }
}

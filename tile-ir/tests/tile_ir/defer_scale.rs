//! Scales of scores, deferred until after maxima and differences.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::ir::guard::WithNames;
use tile_ir::testing::func;
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
            %27 = expand_dims %23 axis 1 : f32[16, 1]
            %28 = broadcast %27 : f32[16, 16]
            %29 = sub %22, %28 : f32[16, 16]
            %30 = constant 1.4426950408889634 : f32
            %31 = mul %1, %30 : f32
            %32 = splat %31 : f32[16, 16]
            %33 = mul %29, %32 : f32[16, 16]
            %34 = exp2 %33 : f32[16, 16]
            %35 = reduce %34 axes [1] : f32[16] { |%36, %37|
            %38 = add %36, %37 : f32
            yield %38
            }
            %39 = add %18, %35 : f32[16]
            yield %39
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
    assert_eq!(text.matches("mul").count(), 3, "{text}");
}

/// The product with each scale is rounded, so that maxima have all of them, one after the other.
#[test]
fn a_chain_of_scales_is_deferred_as_a_whole() {
    check(
        &format!("let s = s * scale * 1.5; sum += tl::max(s, 1); {SOFTMAX}"),
        expect![[r#"
            %23 = constant 1.5 : f32
            %24 = reduce %22 axes [1] : f32[16] { |%25, %26|
            %27 = maximum %25, %26 : f32
            yield %27
            }
            %28 = splat %1 : f32[16]
            %29 = mul %24, %28 : f32[16]
            %30 = splat %23 : f32[16]
            %31 = mul %29, %30 : f32[16]
            %32 = add %18, %31 : f32[16]
            %33 = reduce %22 axes [1] : f32[16] { |%34, %35|
            %36 = maximum %34, %35 : f32
            yield %36
            }
            %37 = expand_dims %33 axis 1 : f32[16, 1]
            %38 = broadcast %37 : f32[16, 16]
            %39 = sub %22, %38 : f32[16, 16]
            %40 = constant 1.4426950408889634 : f32
            %41 = mul %1, %23 : f32
            %42 = mul %41, %40 : f32
            %43 = splat %42 : f32[16, 16]
            %44 = mul %39, %43 : f32[16, 16]
            %45 = exp2 %44 : f32[16, 16]
            %46 = reduce %45 axes [1] : f32[16] { |%47, %48|
            %49 = add %47, %48 : f32
            yield %49
            }
            %50 = add %32, %46 : f32[16]
            yield %50
            }
            2^-40 <= scale <= 2^40"#]],
    );
}

/// A running maximum is carried without the scale, and scaled where the loop's result is used.
#[test]
fn a_running_maximum_is_carried_without_the_scale() {
    let mut func = func(
        "#[fuse_kernel]
        fn k(a: &[f16], b: &[f16], out: &mut [f32], n: i32, scale: f32) {
            let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
            let at = i.col() * 16 + j.row();
            let a = tl::load(a + at);
            let mut l = tl::zeros::<f32>([16]);
            let mut m = tl::full([16], f32::NEG_INFINITY);
            for start in (0..n).step_by(16) {
                let s = tl::dot(a, tl::load(b + at + start)) * scale;
                let new = tl::maximum(m, tl::max(s, 1));
                l = l * tl::exp(m - new) + tl::sum(tl::exp(s - new.col()), 1);
                m = new;
            }
            tl::store(out + i, m + tl::log(l));
        }",
    );
    let guards = defer_scale(&mut func);
    assert_eq!(guards.len(), 1);
    ir::verify(&func).expect("valid tile IR");
    let text = ir::print(&func, &|_| None);
    expect![[r#"
        for %16..%0 step %4 carry %13, %15 : f32[16], f32[16] { |%19, %20, %21|
            %22 = splat %19 : i32[16, 16]
            %23 = add %10, %22 : i32[16, 16]
            %24 = load b[%23] : f16[16, 16]
            %25 = dot %11, %24 : f32[16, 16]
            %26 = reduce %25 axes [1] : f32[16] { |%27, %28|
              %29 = maximum %27, %28 : f32
              yield %29
            }
            %30 = maximum %21, %26 : f32[16]
            %31 = sub %21, %30 : f32[16]
            %32 = constant 1.4426950408889634 : f32
            %33 = mul %1, %32 : f32
            %34 = splat %33 : f32[16]
            %35 = mul %31, %34 : f32[16]
            %36 = exp2 %35 : f32[16]
            %37 = mul %20, %36 : f32[16]
            %38 = expand_dims %30 axis 1 : f32[16, 1]
            %39 = broadcast %38 : f32[16, 16]
            %40 = sub %25, %39 : f32[16, 16]
            %41 = splat %33 : f32[16, 16]
            %42 = mul %40, %41 : f32[16, 16]
            %43 = exp2 %42 : f32[16, 16]
            %44 = reduce %43 axes [1] : f32[16] { |%45, %46|
              %47 = add %45, %46 : f32
              yield %47
            }
            %48 = add %37, %44 : f32[16]
            yield %48, %30
          }
          %49 = log %17 : f32[16]
          %50 = splat %1 : f32[16]
          %51 = mul %18, %50 : f32[16]
          %52 = add %51, %49 : f32[16]
          store %52, out[%2]
        }
    "#]]
    .assert_eq(&text[text.find("for").expect("a loop")..]);
}

/// A finite number that stands for minus infinity is not what it would be without the scale.
#[test]
fn a_finite_mask_keeps_the_scale() {
    let text = scaled(&format!("let s = tl::select((start + j < n).row(), s * scale, -1e30); {SOFTMAX}"));
    assert!(!text.contains("<= scale"), "{text}");
    let text = scaled(&format!("let s = tl::maximum(s * scale, -1e30); {SOFTMAX}"));
    assert!(!text.contains("<= scale"), "{text}");
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

/// A scale that is computed in a branch is computed again where it is needed.
#[test]
fn a_scale_may_be_made_in_a_branch() {
    let text = scaled(&format!(
        "let s = if start > 4 {{ s * (scale * 1.5) }} else {{ tl::full([16, 16], f32::NEG_INFINITY) }}; {SOFTMAX}"
    ));
    assert!(text.contains("<= scale"), "{text}");
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

//! Nothing a user can write makes the compiler panic: depth, length, extremes. Random tokens are in
//! `lowering/tests/compiler/fuzz/garbage.rs`.

use tile_ir::testing::survive;

fn survive_text(attribute: &str, item: &str) -> usize {
    survive(attribute.parse().expect("tokens"), item.parse().expect("tokens"))
}

/// Runs on a stack of the size that rustc gives its own threads.
fn on_a_compiler_thread(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(8 << 20).spawn(run).expect("a thread").join().expect("no panic");
}

#[test]
fn deep_nesting_is_an_error() {
    on_a_compiler_thread(|| {
        for (open, close) in [("(", ")"), ("{", "}"), ("-", ""), ("!", ""), ("tl::exp(", ")"), ("[", "]")] {
            for depth in [50, 5_000] {
                let value = format!("{}1.0{}", open.repeat(depth), close.repeat(depth));
                survive_text("", &format!("fn k(n: f32) {{ let y = {value}; }}"));
            }
        }
        for nested in ["if b { ", "while b { ", "for i in 0..n { "] {
            let body = format!("{}{}", nested.repeat(3_000), "}".repeat(3_000));
            assert_ne!(survive_text("", &format!("fn k(n: i32, b: bool) {{ {body} }}")), 0);
        }
        // Each of these loops is checked again when `s` turns out to be an `i64`.
        let loops = format!("{} s = m; {}", "for i in 0..n { ".repeat(40), "}".repeat(40));
        assert_ne!(survive_text("", &format!("fn k(n: i32, m: i64) {{ let mut s = 0; {loops} }}")), 0);
    });
}

#[test]
fn calls_that_grow_come_back() {
    on_a_compiler_thread(|| {
        // Each function calls the next one twice: 2^30 copies of the last.
        let doubling = |i: usize| format!("fn f{i}(x: i32) -> i32 {{ f{0}(x) + f{0}(x) }}", i + 1);
        let chain: String = (0..30).map(doubling).collect();
        assert_ne!(
            survive_text("", &format!("fn k(n: i32) {{ {chain} fn f30(x: i32) -> i32 {{ x }} f0(n); }}")),
            0
        );
        // Deep expressions whose calls are at their bottom, in functions that call each other.
        let deep = |i: usize| {
            format!("fn f{i}(x: i32) -> i32 {{ {}f{}(x){} }}", "(1 + ".repeat(100), i + 1, ")".repeat(100))
        };
        let chain: String = (0..60).map(deep).collect();
        survive_text("", &format!("fn k(n: i32) {{ {chain} fn f60(x: i32) -> i32 {{ x }} f0(n); }}"));
        assert_ne!(survive_text("", "fn k() { let w = |g, h| g(g, h); w(w, w); }"), 0);
        assert_ne!(
            survive_text("", "fn k(n: i32) { fn f(x: i32) -> i32 { let g = |y| f(y); g(x) } f(n); }"),
            0
        );
        assert_ne!(survive_text("", "fn k() { const A: i32 = B; const B: i32 = A + 1; let x = A; }"), 0);
        let nested = "if n > 0 { return; } for i in 0..n { if i > 3 { break; } ".repeat(10) + &"}".repeat(10);
        survive_text("", &format!("fn k(n: i32) {{ {nested} }}"));
        let arms: String = (0..250).map(|i| format!("{i} => n + {i}, ")).collect();
        survive_text("", &format!("fn k(n: i32) {{ let y = match n {{ {arms} _ => n }}; }}"));
    });
}

/// Copies of a statement, by the number of each: some, and so many that their nesting fills a stack.
fn survive_copies(copy: fn(usize) -> String, around: [&'static str; 2]) {
    on_a_compiler_thread(move || {
        for count in [200, 20_000] {
            let copies: String = (0..count).map(copy).collect();
            survive_text("", &format!("fn k(n: i32) {{ {}{copies}{} }}", around[0], around[1]));
        }
    });
}

#[test]
fn returns_come_back() {
    survive_copies(|i| format!("if n == {i} {{ return; }} "), ["", ""]);
}

#[test]
fn returned_values_come_back() {
    let around = ["fn f(n: i32) -> i32 { ", " 2 } f(n);"];
    survive_copies(|i| format!("if n == {i} {{ return 1; }} "), around);
}

#[test]
fn arms_of_a_match_come_back() {
    survive_copies(|i| format!("{i} => n + {i}, "), ["let y = match n { ", " _ => n };"]);
}

#[test]
fn long_expressions_come_back() {
    on_a_compiler_thread(|| {
        for link in [" + n", " * 2", ".to::<i64>()", " as i64", " && b"] {
            survive_text("", &format!("fn k(n: i32, b: bool) {{ let y = n{}; }}", link.repeat(5_000)));
        }
        let chain = "if b { } else ".repeat(2_000);
        survive_text("", &format!("fn k(b: bool) {{ {chain} {{ }} }}"));
    });
}

#[test]
fn extremes_of_constants_come_back() {
    for constant in [
        "0",
        "-1",
        "100",
        "1048576",
        "2147483648",
        "9223372036854775807",
        "-9223372036854775808",
        "1 << 63",
        "18446744073709551615",
        "99999999999999999999999999999999999999999",
        "0 - 9223372036854775807 - 9",
        "18446744073709551615 * 18446744073709551615",
        "1 / 0",
        "5 % 0",
        "-5 / 2",
        "1e400",
        "0.0",
        "1.5",
        "true",
    ] {
        for place in [
            "tl::arange(0, C)",
            "tl::arange(C, 64)",
            "tl::zeros::<f32>([C])",
            "tl::zeros::<f32>([C, C, C])",
            "x + C",
            "tl::program_id(C)",
            "tl::sum(t, C)",
            "tl::next_power_of_2(C)",
            "tl::full([4], C)",
            "t + C",
            "i << C",
            "tl::reshape(t, [C])",
            "tl::permute(t, [C])",
            "tl::range(C, C, C)",
            "(C)..(C)",
            "tl::cdiv(C, C)",
            "(C) as u8",
            "(C).to::<bool>()",
        ] {
            let value = place.replace('C', constant);
            let body = format!(
                "let t = tl::zeros::<f32>([64]); let i = tl::arange(0, 64); let y = {value};
                for j in tl::static_range({constant}, {constant}, 3) {{}} for j in (0..n).step_by({constant}) {{}}"
            );
            survive_text("", &format!("fn k(x: &[f32], n: i32) {{ {body} }}"));
        }
        survive_text(
            &format!("N = [{constant}]"),
            "fn k<const N: usize>(x: &[f32]) { let y = tl::arange(0, N); }",
        );
        survive_text(&format!("num_warps = {constant}"), "fn k(x: &[f32]) {}");
    }
}

#[test]
fn names_of_any_script_come_back() {
    let body =
        "let größe = n; let 数 = größe + 1; let r#fn = 数; let y = tl::größe(r#fn); let s = \"\\u{1F600}é\";";
    assert_ne!(survive_text("", &format!("fn k(x: &[größe], n: i32, r#type: r#match) {{ {body} }}")), 0);
}

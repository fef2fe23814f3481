//! Nothing a user can write makes the compiler panic: mutated kernels, token soup, extremes.

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use proptest::prelude::*;

use crate::check;
use crate::diagnostic::Errors;
use crate::syntax;

/// Parses and checks tokens; what matters is that it comes back.
fn survive(attribute: TokenStream, item: TokenStream) -> usize {
    let mut errors = Errors::new();
    let Some(kernel) = syntax::parse(attribute, item, &mut errors) else { return errors.len() };
    for variant in check::variants(&kernel, &mut errors).iter().take(2) {
        match check::check(&kernel, variant) {
            Ok(checked) => crate::tile::verify(&checked.func).expect("what checks is valid"),
            Err(found) => errors.extend(found),
        }
    }
    errors.len()
}

fn survive_text(attribute: &str, item: &str) -> usize {
    survive(attribute.parse().expect("tokens"), item.parse().expect("tokens"))
}

pub(super) const SEEDS: &[(&str, &str)] = &[
    (
        "T = [f32, bf16], BLOCK = [64]",
        "pub fn k<T: Float, const BLOCK: usize>(x: &[T], out: &mut [T], n: i32, eps: f32) {
            let row = tl::program_id(0);
            let cols = tl::arange(0, BLOCK);
            let mask = cols < n;
            let x = tl::load(x + row * n + cols, mask, 0.0).to::<f32>();
            let mean = tl::sum(x, 0) / n as f32;
            let y = tl::select(mask, x - mean, 0.0) * tl::rsqrt(mean + eps);
            tl::store(out + row * n + cols, y.to::<T>(), mask);
        }",
    ),
    (
        "configs = [{ M: 4, N: 8, num_warps: 4 }, { M: 8, N: 4 }]",
        "fn k<const M: usize, const N: usize>(i: &[i32], out: &mut [i32], n: i32, b: bool) {
            let (rows, columns) = (tl::arange(0, M).col(), tl::arange(0, N).row());
            let mut t = tl::zeros::<i32>([M, N]);
            let mut count = 0;
            for j in tl::range(0, n, 4).num_stages(2) {
                t += tl::load(i + rows * n + columns + j, columns + j < n, 7);
                if j > 10 && b { count += 1; } else { count = tl::max(t) % 3; }
            }
            while count > 0 { count = count / 2; t = tl::trans(tl::reshape(t, [N, M])); }
            for j in tl::static_range(0, 2) { tl::store(out + j + rows * N + columns, t << 1); }
            tl::static_assert(M * N == 32, \"extents\");
        }",
    ),
    (
        "N = [8], unreported",
        "fn k<const N: usize>(x: &[u8], n: u32, f: f32) {
            let v = tl::load(x + tl::arange(0, N));
            tl::assume(n > 0 && n % 16 == 0 && f < 2.0 && tl::num_programs(0) <= 9);
            tl::device_assert(v.row() < v.col(), \"shape\", tl::arange(0, N) < 3);
            tl::device_print(\"v\", (v, n, f), v > 1);
        }",
    ),
];

/// One change of a token list.
#[derive(Clone, Debug)]
enum Change {
    Delete(usize),
    Double(usize),
    Swap(usize, usize),
    Replace(usize, Word),
}

/// A token to put in another's place.
#[derive(Clone, Debug)]
enum Word {
    Name(&'static str),
    Integer(u64),
    Float(f64),
    Symbol(char),
    Empty,
}

impl Word {
    fn tree(&self) -> TokenTree {
        match self {
            Word::Name(name) => Ident::new(name, Span::call_site()).into(),
            Word::Integer(value) => Literal::u64_unsuffixed(*value).into(),
            Word::Float(value) => Literal::f64_unsuffixed(*value).into(),
            Word::Symbol(symbol) => Punct::new(*symbol, Spacing::Alone).into(),
            Word::Empty => Group::new(Delimiter::Parenthesis, TokenStream::new()).into(),
        }
    }
}

fn word() -> impl Strategy<Value = Word> {
    const NAMES: &[&str] = &[
        "tl",
        "load",
        "store",
        "sum",
        "x",
        "out",
        "n",
        "T",
        "N",
        "M",
        "f32",
        "bool",
        "u8",
        "i64",
        "true",
        "if",
        "for",
        "while",
        "let",
        "mut",
        "in",
        "to",
        "arange",
        "zeros",
        "reshape",
        "select",
        "MAX",
        "_",
        "größe",
        "as",
        "fn",
        "assume",
        "device_assert",
        "device_print",
    ];
    prop_oneof![
        prop::sample::select(NAMES).prop_map(Word::Name),
        prop_oneof![0..3u64, Just(100), Just(1 << 20), Just(1 << 31), Just(u64::MAX)].prop_map(Word::Integer),
        prop_oneof![Just(0.5), Just(1e300), Just(0.0)].prop_map(Word::Float),
        prop::sample::select(&['+', '-', '*', '/', '%', '&', '|', '!', '<', '=', '.', ',', ';', ':'][..])
            .prop_map(Word::Symbol),
        Just(Word::Empty),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let place = 0..400usize;
    prop_oneof![
        place.clone().prop_map(Change::Delete),
        place.clone().prop_map(Change::Double),
        (place.clone(), place.clone()).prop_map(|(a, b)| Change::Swap(a, b)),
        (place, word()).prop_map(|(at, word)| Change::Replace(at, word)),
    ]
}

/// A token, or the edge of a group, so that a tree can be changed as a list.
#[derive(Clone)]
pub(super) enum Flat {
    Token(TokenTree),
    Open(Delimiter),
    Close,
}

pub(super) fn flatten(tokens: TokenStream, flat: &mut Vec<Flat>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                flat.push(Flat::Open(group.delimiter()));
                flatten(group.stream(), flat);
                flat.push(Flat::Close);
            }
            token => flat.push(Flat::Token(token)),
        }
    }
}

/// The tree again; edges that have no partner are left out.
pub(super) fn unflatten(flat: &[Flat]) -> TokenStream {
    let mut open: Vec<(Delimiter, Vec<TokenTree>)> = vec![(Delimiter::None, vec![])];
    for token in flat {
        match token {
            Flat::Token(token) => open.last_mut().expect("the outermost").1.push(token.clone()),
            Flat::Open(delimiter) => open.push((*delimiter, vec![])),
            Flat::Close if open.len() > 1 => close(&mut open),
            Flat::Close => {}
        }
    }
    while open.len() > 1 {
        close(&mut open);
    }
    open.remove(0).1.into_iter().collect()
}

fn close(open: &mut Vec<(Delimiter, Vec<TokenTree>)>) {
    if let Some((delimiter, tokens)) = open.pop()
        && let Some((_, outer)) = open.last_mut()
    {
        outer.push(Group::new(delimiter, tokens.into_iter().collect()).into());
    }
}

fn apply(tokens: TokenStream, changes: &[Change]) -> TokenStream {
    let mut flat = vec![];
    flatten(tokens, &mut flat);
    for change in changes {
        let len = flat.len().max(1);
        if flat.is_empty() {
            break;
        }
        match change {
            Change::Delete(at) => {
                flat.remove(at % len);
            }
            Change::Double(at) => flat.insert(at % len, flat[at % len].clone()),
            Change::Swap(a, b) => flat.swap(a % len, b % len),
            Change::Replace(at, word) => flat[at % len] = Flat::Token(word.tree()),
        }
    }
    unflatten(&flat)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_kernels(seed in 0..SEEDS.len(), changes in prop::collection::vec(change(), 1..6)) {
        let (attribute, item) = SEEDS[seed];
        survive(attribute.parse().expect("tokens"), apply(item.parse().expect("tokens"), &changes));
    }

    #[test]
    fn changed_attributes(seed in 0..SEEDS.len(), changes in prop::collection::vec(change(), 1..4)) {
        let (attribute, item) = SEEDS[seed];
        survive(apply(attribute.parse().expect("tokens"), &changes), item.parse().expect("tokens"));
    }

    #[test]
    fn soup(words in prop::collection::vec(word(), 0..40)) {
        let body: TokenStream = words.iter().map(Word::tree).collect();
        let item = quote::quote! { fn k<T: Float, const N: usize>(x: &[T], out: &mut [T], n: i32) { #body } };
        survive("T = [f32], N = [64]".parse().expect("tokens"), item);
    }
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
        // Deep expressions whose calls stand at their bottom, in functions that call each other.
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
        for count in [200, 20_000] {
            let returns: String = (0..count).map(|i| format!("if n == {i} {{ return; }} ")).collect();
            survive_text("", &format!("fn k(n: i32) {{ {returns} }}"));
            let returns: String = (0..count).map(|i| format!("if n == {i} {{ return 1; }} ")).collect();
            survive_text("", &format!("fn k(n: i32) {{ fn f(n: i32) -> i32 {{ {returns} 2 }} f(n); }}"));
            let arms: String = (0..count).map(|i| format!("{i} => n + {i}, ")).collect();
            survive_text("", &format!("fn k(n: i32) {{ let y = match n {{ {arms} _ => n }}; }}"));
        }
    });
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

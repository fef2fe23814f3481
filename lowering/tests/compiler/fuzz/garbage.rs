//! Mutated token streams through the macro: it returns code or errors, never panics and never takes too long.

use std::ops::Range;
use std::time::Duration;

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use tile_ir::testing::survive;

use super::generate;
use super::token_list::{FlatToken, flatten, unflatten};
use crate::site::Site;
use lowering::devtools::fuzzgen::SplitMix64;
use lowering::driver::options::BuildOptions;
use lowering::{compile_module_with, compile_with};

/// How long the child processes that lower may print nothing.
const LIMIT: Duration = Duration::from_secs(500);

const WORDS: [&str; 44] = [
    "tl",
    "load",
    "store",
    "sum",
    "x0",
    "out1",
    "s0",
    "T",
    "N",
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
    "match",
    "return",
    "break",
    "continue",
    "else",
    "static_range",
    "sort",
    "reduce",
    "View",
    "const",
    "struct",
    "impl",
    "v1",
];
const SYMBOLS: [char; 20] =
    ['+', '-', '*', '/', '%', '&', '|', '!', '<', '>', '=', '.', ',', ';', ':', '#', '?', '@', '^', '\''];

/// Kernels to begin with, beside those of the corpus.
const SEEDS: &[(&str, &str)] = &[
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

/// The kernels to mutate: written by hand, and random ones.
struct Corpus {
    kernels: Vec<TokenStream>,
}

impl Corpus {
    fn new(random: &mut SplitMix64) -> Corpus {
        let text: TokenStream = include_str!("../corpus.txt").parse().expect("tokens");
        let mut kernels: Vec<TokenStream> = vec![];
        let mut own: Vec<TokenTree> = vec![];
        for token in text {
            if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#') && !own.is_empty() {
                kernels.push(std::mem::take(&mut own).into_iter().collect());
            }
            own.push(token);
        }
        kernels.push(own.into_iter().collect());
        let seeds = SEEDS.iter().map(|(attribute, item)| format!("#[fuse_kernel({attribute})] {item}"));
        kernels.extend(seeds.map(|text| text.parse::<TokenStream>().expect("tokens")));
        for _ in 0..4 {
            let source = generate::generate(random.bits()).source();
            kernels.push(source.parse().expect("tokens"));
        }
        Corpus { kernels }
    }

    fn pick(&self, random: &mut SplitMix64) -> Vec<FlatToken> {
        let mut token_list = vec![];
        flatten(self.kernels[random.below(self.kernels.len())].clone(), &mut token_list);
        token_list
    }
}

fn word(random: &mut SplitMix64) -> FlatToken {
    FlatToken::Token(match random.below(7) {
        0..=2 => Ident::new(random.of(&WORDS), Span::call_site()).into(),
        3 => {
            let value = random.of(&[0, 1, 2, 3, 64, 100, 1 << 20, 1 << 31, u64::MAX]);
            Literal::u64_unsuffixed(value).into()
        }
        4 => Literal::f64_unsuffixed(random.of(&[0.5, 1e300, 0.0])).into(),
        5 => Punct::new(random.of(&SYMBOLS), Spacing::Alone).into(),
        _ => {
            let delimiter =
                random.of(&[Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None]);
            Group::new(delimiter, TokenStream::new()).into()
        }
    })
}

/// Changes of any token.
fn changed(corpus: &Corpus, random: &mut SplitMix64) -> TokenStream {
    let mut token_list = corpus.pick(random);
    for _ in 0..1 + random.below(4) {
        let at = random.below(token_list.len());
        let other = random.below(token_list.len());
        match random.below(6) {
            0 => drop(token_list.remove(at)),
            1 => token_list.insert(at, token_list[at].clone()),
            2 => token_list.swap(at, other),
            3 => token_list[at] = word(random),
            4 => token_list.insert(at, word(random)),
            _ => {
                // A piece of another kernel.
                let from = corpus.pick(random);
                let start = random.below(from.len());
                let end = (start + 1 + random.below(20)).min(from.len());
                let until = (at + random.below(8)).min(token_list.len());
                token_list.splice(at..until, from[start..end].iter().cloned());
            }
        }
        if token_list.is_empty() {
            break;
        }
    }
    unflatten(&token_list)
}

/// Whether the grammar allows one token instead of the other.
fn alike(a: &FlatToken, b: &FlatToken) -> bool {
    let operator =
        |punct: &Punct| punct.spacing() == Spacing::Alone && "+-*/%&|^<>".contains(punct.as_char());
    match (a, b) {
        (FlatToken::Token(TokenTree::Ident(a)), FlatToken::Token(TokenTree::Ident(b))) => {
            [a, b].iter().all(|name| syn::parse_str::<Ident>(&name.to_string()).is_ok())
        }
        (
            FlatToken::Token(TokenTree::Literal(_)),
            FlatToken::Token(TokenTree::Literal(_) | TokenTree::Ident(_)),
        ) => true,
        (FlatToken::Token(TokenTree::Punct(a)), FlatToken::Token(TokenTree::Punct(b))) => {
            operator(a) && operator(b)
        }
        _ => false,
    }
}

/// Changes that leave what Rust's grammar takes, mostly: names, numbers and operators for others, and statements that
/// are missing, there twice or from elsewhere.
fn mistaken(corpus: &Corpus, random: &mut SplitMix64) -> TokenStream {
    let mut token_list = corpus.pick(random);
    for _ in 0..1 + random.below(3) {
        if random.below(4) == 0 {
            let (own, other) = (statement(&token_list, random), corpus.pick(random));
            let (Some(own), Some(new)) = (own, statement(&other, random)) else { continue };
            let new = match random.below(3) {
                0 => vec![],
                1 => [&token_list[own.clone()], &token_list[own.clone()]].concat(),
                _ => [&token_list[own.clone()], &other[new]].concat(),
            };
            token_list.splice(own, new);
            continue;
        }
        let from = if random.below(2) == 0 { token_list.clone() } else { corpus.pick(random) };
        for _ in 0..50 {
            let at = random.below(token_list.len());
            let new =
                if random.below(3) == 0 { word(random) } else { from[random.below(from.len())].clone() };
            if alike(&token_list[at], &new) {
                token_list[at] = new;
                break;
            }
        }
    }
    unflatten(&token_list)
}

/// Tokens from behind one semicolon to the next, in one block.
fn statement(token_list: &[FlatToken], random: &mut SplitMix64) -> Option<Range<usize>> {
    let ends = |token: &FlatToken| matches!(token, FlatToken::Token(TokenTree::Punct(punct)) if punct.as_char() == ';');
    let semicolons: Vec<usize> = (0..token_list.len()).filter(|&i| ends(&token_list[i])).collect();
    let whole = |range: &Range<usize>| {
        let depth = token_list[range.clone()].iter().try_fold(0usize, |depth, token| match token {
            FlatToken::Open(_) => Some(depth + 1),
            FlatToken::Close => depth.checked_sub(1),
            FlatToken::Token(_) => Some(depth),
        });
        depth == Some(0)
    };
    let all = semicolons.windows(2).map(|pair| pair[0] + 1..pair[1] + 1).filter(whole);
    let all: Vec<Range<usize>> = all.collect();
    (!all.is_empty()).then(|| all[random.below(all.len())].clone())
}

fn soup(random: &mut SplitMix64) -> TokenStream {
    let mut token_list: Vec<FlatToken> = vec![];
    for _ in 0..random.below(60) {
        token_list.push(match random.below(8) {
            0 => FlatToken::Open(random.of(&[Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket])),
            1 => FlatToken::Close,
            _ => word(random),
        });
    }
    let body = unflatten(&token_list);
    quote::quote! {
        #[fuse_kernel(T = [f32], N = [64])]
        fn k<T: Float, const N: usize>(x0: &[T], out1: &mut [T], s0: i32) { #body }
    }
}

/// The tokens of a number, as a kernel's attribute and item where they still begin like one.
pub fn generated(number: u64) -> TokenStream {
    let mut random = SplitMix64::new(number);
    let corpus = Corpus::new(&mut random);
    match random.below(10) {
        0 => soup(&mut random),
        1 | 2 => changed(&corpus, &mut random),
        _ => mistaken(&corpus, &mut random),
    }
}

/// Expands them as a build would, alone and in a module; the error says what was not an answer.
pub fn expand(number: u64) -> Result<&'static str, String> {
    let source = generated(number);
    let site = Site::new();
    let options = BuildOptions { limit: LIMIT, cache_dir: None, ..site.options() };
    let module = quote::quote! { mod m { #source } };
    answered(&compile_module_with(TokenStream::new(), module, &options))?;
    let (attribute, item) = taken_apart(source);
    let answer = answered(&compile_with(attribute, item.clone(), &options))?;
    if answer == UNREAD && syn::parse2::<syn::ItemFn>(item).is_ok() {
        return Err("no mistake and no code".to_string());
    }
    Ok(answer)
}

/// What rustc refuses before it asks the macro.
const UNREAD: &str = "left_to_rustc";

/// Code, or mistakes.
fn answered(expansion: &TokenStream) -> Result<&'static str, String> {
    let text = expansion.to_string();
    if let Some(at) = text.find("internal error") {
        return Err(text[at..].chars().take(600).collect());
    }
    if text.contains("compile_error") {
        return Ok("refused");
    }
    if !text.contains("global_asm") {
        return Ok(UNREAD);
    }
    match syn::parse2::<syn::File>(expansion.clone()) {
        Ok(_) => Ok("lowered"),
        Err(error) => Err(format!("no mistake and no items: {error}\n{text}")),
    }
}

/// The arguments of `#[fuse_kernel(..)]`, if that is what comes first, and the rest.
fn taken_apart(source: TokenStream) -> (TokenStream, TokenStream) {
    let all: Vec<TokenTree> = source.into_iter().collect();
    let [TokenTree::Punct(_), TokenTree::Group(mark), item @ ..] = &all[..] else {
        return (TokenStream::new(), all.into_iter().collect());
    };
    let arguments = mark.stream().into_iter().nth(1);
    let attribute = match arguments {
        Some(TokenTree::Group(arguments)) => arguments.stream(),
        _ => TokenStream::new(),
    };
    (attribute, item.iter().cloned().collect())
}

/// Far more of them than there is time to lower, as far as the checks.
#[test]
fn garbage_is_checked() {
    for number in 0..1000 {
        let (attribute, item) = taken_apart(generated(number));
        survive(attribute, item);
    }
}

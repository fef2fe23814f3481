//! Expands `macro_rules!` of a source file, for tests that read kernels from sources and have no rustc.
//!
//! Of the language of macros by example it has what our sources use: every fragment is an identifier, one token tree or what [`syn`]
//! parses, a repetition takes as much as it can, and hygiene is left out.

use std::collections::HashMap;
use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser};

/// The macros of a file, by name.
#[derive(Default)]
pub struct MacroRules(HashMap<String, Vec<Rule>>);

/// `(matcher) => { transcriber }`
struct Rule {
    matcher: Vec<MacroPart>,
    transcriber: Vec<MacroPart>,
}

/// A piece of a matcher or of a transcriber.
enum MacroPart {
    Token(TokenTree),
    Group(Delimiter, Vec<MacroPart>),
    /// `$name:fragment`, without a fragment in a transcriber.
    Variable {
        name: String,
        fragment: String,
    },
    /// `$( .. ) separator *`
    Repetition {
        parts: Vec<MacroPart>,
        separator: Option<TokenTree>,
    },
}

/// What a variable stands for.
#[derive(Clone)]
enum Bound {
    Tokens(TokenStream),
    /// For each time that a repetition matched.
    Repeated(Vec<Bound>),
}

type Bindings = HashMap<String, Bound>;

impl MacroRules {
    /// Adds the definition `macro_rules! name { .. }`.
    pub fn define(&mut self, name: &Ident, body: TokenStream) {
        let mut tokens = body.into_iter();
        let mut rules = vec![];
        while let Some(TokenTree::Group(matcher)) = tokens.next() {
            let transcriber = tokens.by_ref().find_map(|token| match token {
                TokenTree::Group(group) => Some(group.stream()),
                _ => None,
            });
            rules.push(Rule {
                matcher: parts(matcher.stream(), true),
                transcriber: parts(transcriber.expect("a rule has a transcriber"), false),
            });
            // The semicolon between rules.
            tokens.next();
        }
        self.0.insert(name.to_string(), rules);
    }

    /// What a call expands to, if the macro is one of these; panics where no rule matches.
    pub fn expand(&self, name: &Ident, arguments: &TokenStream) -> Option<TokenStream> {
        let rules = self.0.get(&name.to_string())?;
        let tokens: Vec<TokenTree> = arguments.clone().into_iter().collect();
        let expand = |rule: &Rule| {
            let mut bindings = Bindings::new();
            let rest = matched(&rule.matcher, &tokens, &mut bindings)?;
            rest.is_empty().then(|| transcribed(&rule.transcriber, &bindings))
        };
        Some(rules.iter().find_map(expand).unwrap_or_else(|| panic!("no rule of `{name}!` matches")))
    }
}

/// Reads a matcher, or a transcriber.
fn parts(tokens: TokenStream, is_matcher: bool) -> Vec<MacroPart> {
    let mut tokens = tokens.into_iter().peekable();
    let mut parts_read = vec![];
    while let Some(token) = tokens.next() {
        parts_read.push(match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => after_dollar(&mut tokens, is_matcher),
            TokenTree::Group(group) => MacroPart::Group(group.delimiter(), parts(group.stream(), is_matcher)),
            other => MacroPart::Token(other),
        });
    }
    parts_read
}

/// Reads a variable or a repetition.
fn after_dollar(tokens: &mut Peekable<IntoIter>, is_matcher: bool) -> MacroPart {
    match tokens.next() {
        Some(TokenTree::Ident(name)) => {
            let fragment = match is_matcher.then(|| (tokens.next(), tokens.next())) {
                Some((_, Some(TokenTree::Ident(fragment)))) => fragment.to_string(),
                _ => String::new(),
            };
            MacroPart::Variable { name: name.to_string(), fragment }
        }
        Some(TokenTree::Group(group)) => {
            let is_operator = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if "*+?".contains(punct.as_char()));
            let separator = tokens.next_if(|token| !is_operator(token));
            tokens.next();
            MacroPart::Repetition { parts: parts(group.stream(), is_matcher), separator }
        }
        other => panic!("`$` before {other:?}"),
    }
}

/// Matches the beginning of the tokens, binds variables and returns the other tokens.
fn matched<'a>(
    parts: &[MacroPart],
    tokens: &'a [TokenTree],
    bindings: &mut Bindings,
) -> Option<&'a [TokenTree]> {
    let mut tokens = tokens;
    for part in parts {
        tokens = match part {
            MacroPart::Token(wanted) => {
                let (first, rest) = tokens.split_first()?;
                (first.to_string() == wanted.to_string()).then_some(rest)?
            }
            MacroPart::Group(delimiter, inside) => {
                let (TokenTree::Group(group), rest) = tokens.split_first()? else { return None };
                let all: Vec<TokenTree> = group.stream().into_iter().collect();
                let fits = group.delimiter() == *delimiter && matched(inside, &all, bindings)?.is_empty();
                fits.then_some(rest)?
            }
            MacroPart::Variable { name, fragment } => {
                let length = fragment_length(fragment, tokens)?;
                let bound: TokenStream = tokens[..length].iter().cloned().collect();
                // An expression stays one, whatever operators are beside it.
                let bound = match fragment.as_str() {
                    "expr" => TokenTree::from(Group::new(Delimiter::None, bound)).into(),
                    _ => bound,
                };
                bindings.insert(name.clone(), Bound::Tokens(bound));
                &tokens[length..]
            }
            MacroPart::Repetition { parts, separator } => {
                matched_repeatedly(parts, separator.as_ref(), tokens, bindings)
            }
        };
    }
    Some(tokens)
}

/// Matches as often as the tokens allow.
fn matched_repeatedly<'a>(
    parts: &[MacroPart],
    separator: Option<&TokenTree>,
    tokens: &'a [TokenTree],
    bindings: &mut Bindings,
) -> &'a [TokenTree] {
    let mut names = vec![];
    variables(parts, &mut names);
    let mut repeated: Vec<Vec<Bound>> = vec![vec![]; names.len()];
    let mut rest = tokens;
    loop {
        let next = match separator.filter(|_| repeated.iter().any(|bounds| !bounds.is_empty())) {
            Some(separator) => match rest.split_first() {
                Some((first, after)) if first.to_string() == separator.to_string() => after,
                _ => break,
            },
            None => rest,
        };
        let mut of_one = Bindings::new();
        match matched(parts, next, &mut of_one) {
            Some(after) if after.len() < next.len() => rest = after,
            _ => break,
        }
        for (name, bounds) in names.iter().zip(&mut repeated) {
            bounds.extend(of_one.remove(*name));
        }
    }
    let lists = repeated.into_iter().map(Bound::Repeated);
    bindings.extend(names.into_iter().map(str::to_string).zip(lists));
    rest
}

/// The names of the variables in parts.
fn variables<'a>(parts: &'a [MacroPart], names: &mut Vec<&'a str>) {
    for part in parts {
        match part {
            MacroPart::Token(_) => {}
            MacroPart::Variable { name, .. } => names.push(name),
            MacroPart::Group(_, parts) | MacroPart::Repetition { parts, .. } => variables(parts, names),
        }
    }
}

/// How many tokens the fragment at the beginning has.
fn fragment_length(fragment: &str, tokens: &[TokenTree]) -> Option<usize> {
    match (fragment, tokens.first()?) {
        ("tt", _) | ("ident", TokenTree::Ident(_)) => Some(1),
        ("literal", _) => parsed_length::<syn::Lit>(tokens),
        ("expr", _) => parsed_length::<syn::Expr>(tokens),
        ("ty", _) => parsed_length::<syn::Type>(tokens),
        ("path", _) => parsed_length::<syn::Path>(tokens),
        ("meta", _) => parsed_length::<syn::Meta>(tokens),
        ("ident", _) => None,
        (other, _) => panic!("no macro of these sources has a fragment `{other}`"),
    }
}

/// How many of the tokens [`syn`] takes.
fn parsed_length<T: Parse>(tokens: &[TokenTree]) -> Option<usize> {
    let rest = |input: ParseStream<'_>| {
        input.parse::<T>()?;
        input.parse::<TokenStream>()
    };
    let rest = rest.parse2(tokens.iter().cloned().collect()).ok()?;
    Some(tokens.len() - rest.into_iter().count())
}

/// The transcriber with what its variables stand for.
fn transcribed(parts: &[MacroPart], bindings: &Bindings) -> TokenStream {
    let mut tokens = TokenStream::new();
    for part in parts {
        match part {
            MacroPart::Token(token) => tokens.extend([token.clone()]),
            MacroPart::Group(delimiter, inside) => {
                tokens.extend([TokenTree::from(Group::new(*delimiter, transcribed(inside, bindings)))]);
            }
            MacroPart::Variable { name, .. } => match bindings.get(name) {
                Some(Bound::Tokens(bound)) => tokens.extend(bound.clone()),
                Some(Bound::Repeated(_)) => panic!("`${name}` repeats"),
                // `$crate`, or a variable of a macro that is defined here.
                None => {
                    tokens.extend([
                        TokenTree::from(Punct::new('$', Spacing::Alone)),
                        Ident::new(name, proc_macro2::Span::call_site()).into(),
                    ]);
                }
            },
            MacroPart::Repetition { parts, separator } => {
                for (index, of_one) in repetitions(parts, bindings).enumerate() {
                    let before = separator.iter().filter(|_| index > 0);
                    tokens.extend(before.cloned().chain(transcribed(parts, &of_one)));
                }
            }
        }
    }
    tokens
}

/// What is bound each time that parts are repeated.
fn repetitions<'a>(parts: &'a [MacroPart], bindings: &'a Bindings) -> impl Iterator<Item = Bindings> {
    let mut names = vec![];
    variables(parts, &mut names);
    let repeated: Vec<(&str, &Vec<Bound>)> = names
        .into_iter()
        .filter_map(|name| match bindings.get(name) {
            Some(Bound::Repeated(bounds)) => Some((name, bounds)),
            _ => None,
        })
        .collect();
    let count = repeated.iter().map(|(_, bounds)| bounds.len()).min().expect("something repeats");
    (0..count).map(move |index| {
        let own = repeated.iter().map(|(name, bounds)| (name.to_string(), bounds[index].clone()));
        bindings.clone().into_iter().chain(own).collect()
    })
}

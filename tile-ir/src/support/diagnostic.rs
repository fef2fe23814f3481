//! What a user is told: every mistake of a kernel at once, each on the tokens that caused it.

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;

/// A stretch of the user's source: its first and last token.
#[derive(Clone, Copy, Debug)]
pub struct Loc {
    pub start: Span,
    pub end: Span,
}

impl Loc {
    pub fn of(tokens: impl ToTokens) -> Loc {
        let mut spans = tokens.to_token_stream().into_iter().map(|token| token.span());
        let start = spans.next().unwrap_or_else(Span::call_site);
        Loc { start, end: spans.last().unwrap_or(start) }
    }

    /// From the start of `self` to the end of `other`.
    pub fn to(self, other: Loc) -> Loc {
        Loc { start: self.start, end: other.end }
    }

    /// Where it starts and ends, as lines and columns.
    fn extent(self) -> [(usize, usize); 2] {
        let (start, end) = (self.start.start(), self.end.end());
        [(start.line, start.column), (end.line, end.column)]
    }

    /// The text of a single token.
    pub fn word(self) -> Option<String> {
        let [start, end] = [self.start.start(), self.end.start()];
        let is_one = (start.line, start.column) == (end.line, end.column);
        self.start.source_text().filter(|_| is_one)
    }

    /// Whether it is a part of `self`.
    fn contains(self, other: Loc) -> bool {
        let ([start, end], [first, last]) = (self.extent(), other.extent());
        start <= first && last <= end && self.start.file() == other.start.file()
    }

    /// Its file and line: `src/math.rs:12`.
    pub fn place(self) -> String {
        format!("{}:{}", self.start.file(), self.line())
    }

    /// The line of the first token, counted from one.
    pub fn line(self) -> usize {
        self.start.start().line
    }
}

/// The same stretch of source.
impl PartialEq for Loc {
    fn eq(&self, other: &Loc) -> bool {
        self.extent() == other.extent()
    }
}

impl From<Span> for Loc {
    fn from(span: Span) -> Loc {
        Loc { start: span, end: span }
    }
}

/// Tokens as they were written, with one space wherever there was white space.
pub fn source_text(tokens: TokenStream) -> String {
    let mut source = SourceText::default();
    source.tokens(tokens);
    source.text
}

#[derive(Default)]
struct SourceText {
    text: String,
    /// Line and column.
    end: Option<(usize, usize)>,
}

impl SourceText {
    fn push(&mut self, text: &str, [start, end]: [(usize, usize); 2]) {
        if self.end.is_some_and(|last| last != start) {
            self.text.push(' ');
        }
        self.text += text;
        self.end = Some(end);
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            let [start, end] = Loc::from(token.span()).extent();
            let TokenTree::Group(group) = token else {
                self.push(&token.to_string(), [start, end]);
                continue;
            };
            let delimiters = match group.delimiter() {
                Delimiter::Parenthesis => Some(("(", ")")),
                Delimiter::Brace => Some(("{", "}")),
                Delimiter::Bracket => Some(("[", "]")),
                Delimiter::None => None,
            };
            // A group that was parsed and printed again has a span, and none of its delimiters.
            if let Some((open, _)) = delimiters {
                self.push(open, [start, (start.0, start.1 + 1)]);
            }
            self.tokens(group.stream());
            if let Some((_, close)) = delimiters {
                self.push(close, [(end.0, end.1.saturating_sub(1)), end]);
            }
        }
    }
}

/// One mistake.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub loc: Loc,
    pub message: String,
    pub help: Option<String>,
    pub note: Option<String>,
}

impl Diagnostic {
    /// What the compiler prints: the message, then `help:` and `note:` on lines of their own.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (label, part) in [("help", &self.help), ("note", &self.note)] {
            if let Some(part) = part {
                text += &format!("\n{label}: {part}");
            }
        }
        text
    }
}

/// The mistakes of one kernel. None is there twice.
#[derive(Clone, Default, Debug)]
pub struct Errors {
    list: Vec<Diagnostic>,
}

impl Errors {
    pub fn new() -> Errors {
        Errors::default()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn push(&mut self, loc: Loc, message: impl Into<String>) {
        self.add(Diagnostic { loc, message: message.into(), help: None, note: None });
    }

    pub fn push_help(&mut self, loc: Loc, message: impl Into<String>, help: impl Into<String>) {
        self.add(Diagnostic { loc, message: message.into(), help: Some(help.into()), note: None });
    }

    pub fn add(&mut self, diagnostic: Diagnostic) {
        let same = |other: &Diagnostic| other.message == diagnostic.message && other.loc == diagnostic.loc;
        if !self.list.iter().any(same) {
            self.list.push(diagnostic);
        }
    }

    /// Adds a note to the mistakes from `first` on that have none yet.
    pub fn annotate(&mut self, first: usize, note: &str) {
        for diagnostic in self.list.iter_mut().skip(first).filter(|diagnostic| diagnostic.note.is_none()) {
            diagnostic.note = Some(note.to_string());
        }
    }

    /// Removes the mistakes from `first` on that have another message than the last one, but its help.
    pub fn drop_repeated_help(&mut self, first: usize) {
        let Some(Diagnostic { message, help: Some(help), .. }) = self.list.last().cloned() else { return };
        let mut index = 0;
        self.list.retain(|one| {
            index += 1;
            index <= first || one.message == message || one.help.as_ref() != Some(&help)
        });
    }

    /// Moves the mistakes from `first` on to a location in the user's source.
    pub fn relocate(&mut self, first: usize, loc: Loc) {
        self.list.iter_mut().skip(first).for_each(|diagnostic| diagnostic.loc = loc);
    }

    /// Moves those mistakes from `first` on that stand in the text of `function`, which is another module's, to the call of it.
    pub fn relocate_from(&mut self, first: usize, text: Loc, call: Loc, function: &str) {
        for diagnostic in self.list.iter_mut().skip(first).filter(|diagnostic| text.contains(diagnostic.loc))
        {
            let place = format!("in `{function}`, {}", diagnostic.loc.place());
            diagnostic.note = Some(match diagnostic.note.take() {
                Some(note) => format!("{place}; {note}"),
                None => place,
            });
            diagnostic.loc = call;
        }
    }

    pub fn extend(&mut self, others: impl Into<Errors>) {
        for diagnostic in others.into().list {
            self.add(diagnostic);
        }
    }

    /// In the order of the source.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|diagnostic| diagnostic.loc.extent());
    }

    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }

    /// `compile_error!` for each mistake, placed on its tokens.
    pub fn into_tokens(mut self) -> TokenStream {
        self.sort();
        self.list.iter().flat_map(compile_error).collect()
    }
}

impl From<syn::Error> for Errors {
    fn from(error: syn::Error) -> Errors {
        let list = error
            .into_iter()
            .map(|one| Diagnostic {
                loc: one.span().into(),
                message: one.to_string(),
                help: None,
                note: None,
            })
            .collect();
        Errors { list }
    }
}

/// `::core::compile_error! { "text" }`; rustc underlines from the first token's span to the last one's.
fn compile_error(diagnostic: &Diagnostic) -> TokenStream {
    let Loc { start, end } = diagnostic.loc;
    let punct = |ch, spacing| {
        let mut punct = Punct::new(ch, spacing);
        punct.set_span(start);
        TokenTree::from(punct)
    };
    let mut text = Literal::string(&diagnostic.text());
    text.set_span(end);
    let mut body = Group::new(Delimiter::Brace, TokenTree::from(text).into());
    body.set_span(end);
    TokenStream::from_iter([
        punct(':', Spacing::Joint),
        punct(':', Spacing::Alone),
        Ident::new("core", start).into(),
        punct(':', Spacing::Joint),
        punct(':', Spacing::Alone),
        Ident::new("compile_error", start).into(),
        punct('!', Spacing::Alone),
        body.into(),
    ])
}

/// `a`, `a and b`, `a, b and c`: for the lists in messages.
pub fn list<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// `no arguments`, `1 argument`, `2 arguments`.
pub fn count(n: usize, noun: &str) -> String {
    match n {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{n} {noun}s"),
    }
}

/// `1 axis`, `2 axes`.
pub fn axes(rank: usize) -> String {
    if rank == 1 { "1 axis".to_string() } else { format!("{rank} axes") }
}

/// The candidate that differs least from `name`, if it differs little.
pub fn nearest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let limit = (name.chars().count() + 1) / 3;
    candidates
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

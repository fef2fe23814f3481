//! Reports the syntax of Python and C in a function that no parser of Rust takes, with what to write instead. rustc reports
//! such tokens too, but does not know what they mean where they come from.

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};

use super::{Place, element_type, foreign_help};
use crate::support::diagnostic::{Errors, Loc, source_text};
use crate::support::dtype::DType;

/// Reports what is written as other languages write it; returns whether there is anything.
pub fn report_foreign_syntax(item: &TokenStream, errors: &mut Errors) -> bool {
    let before = errors.len();
    let body = item.clone().into_iter().last();
    if let Some(TokenTree::Group(body)) = body.filter(|body| is_group(body, Delimiter::Brace)) {
        scan(body.stream(), errors);
    }
    errors.len() > before
}

fn scan(tokens: TokenStream, errors: &mut Errors) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let place = TokenPlace { tokens: &tokens, at };
        let found = match token {
            TokenTree::Group(group) => place.index(group),
            TokenTree::Ident(word) => place.word(&word.to_string()),
            TokenTree::Punct(_) => place.operator(),
            TokenTree::Literal(_) => None,
        };
        match (found, token) {
            (Some(Mistake { loc, message, help }), _) => errors.push_help(loc, message, help),
            // The head of a loop in C was reported as a whole.
            (None, TokenTree::Group(group)) if !place.before().is_some_and(|token| is_word(token, "for")) => {
                scan(group.stream(), errors);
            }
            _ => {}
        }
    }
}

struct Mistake {
    loc: Loc,
    message: String,
    help: String,
}

/// A token among those beside it.
#[derive(Clone, Copy)]
struct TokenPlace<'t> {
    tokens: &'t [TokenTree],
    at: usize,
}

impl<'t> TokenPlace<'t> {
    fn loc(self) -> Loc {
        Loc::from(self.tokens[self.at].span())
    }

    fn mistake(self, message: impl Into<String>, help: impl Into<String>) -> Option<Mistake> {
        Some(Mistake { loc: self.loc(), message: message.into(), help: help.into() })
    }

    fn before(self) -> Option<&'t TokenTree> {
        self.tokens.get(self.at.checked_sub(1)?)
    }

    fn after(self) -> &'t [TokenTree] {
        &self.tokens[self.at + 1..]
    }

    /// Whether the token before this one ends an expression.
    fn follows_operand(self) -> bool {
        self.before().is_some_and(|token| match token {
            TokenTree::Ident(word) => !KEYWORDS.contains(&word.to_string().as_str()),
            TokenTree::Group(group) => group.delimiter() != Delimiter::Brace,
            TokenTree::Literal(_) => true,
            TokenTree::Punct(_) => false,
        })
    }

    fn begins_statement(self) -> bool {
        self.before().is_none_or(|token| is_punct(token, ';') || is_group(token, Delimiter::Brace))
    }

    /// `x[:, None]`, `x[a:b]`, `x[...]` and `x[i, j]`.
    fn index(self, group: &Group) -> Option<Mistake> {
        if group.delimiter() != Delimiter::Bracket || !self.follows_operand() {
            return None;
        }
        // `fn add[width: Int]` has parameters there.
        if self.at >= 2 && is_word(&self.tokens[self.at - 2], "fn") {
            return None;
        }
        let content: Vec<TokenTree> = group.stream().into_iter().collect();
        let written = source_text(group.stream());
        let parts: Vec<String> = content.split(|token| is_punct(token, ',')).map(text).collect();
        let is_slice = written.starts_with("...") || content.iter().any(|token| is_punct(token, ':'));
        let name = match self.before() {
            Some(TokenTree::Ident(name)) => name.to_string(),
            _ => "x".into(),
        };
        let is_new = |part: &String| part == "None" || part.ends_with("newaxis");
        let help = match &parts[..] {
            [_, second] if is_slice && is_new(second) => format!("a column is `{name}.col()`"),
            [first, _] if is_slice && is_new(first) => format!("a row is `{name}.row()`"),
            parts if parts.iter().any(is_new) => {
                format!("an axis of extent 1 is inserted by `tl::expand_dims({name}, axis)`")
            }
            [first, ..] if is_slice => {
                let (start, _) = first.split_once(':').unwrap_or_default();
                let start = if matches!(start.trim(), "" | "0") {
                    String::new()
                } else {
                    format!("{} + ", start.trim())
                };
                let access = self.access(&name, &format!("{start}tl::arange(0, N)"));
                match access.starts_with("write") {
                    true => access,
                    false => format!("{access}; a part of a tile is `tl::slice({name}, axis, start, end)`"),
                }
            }
            [_, _, ..] => {
                let access = self.access(&name, "row * stride + col");
                format!("{access}; of a view `{name}.load::<64, 64>(row, col)`")
            }
            _ => return None,
        };
        self.mistake(format!("the index `[{written}]` means nothing here"), help)
    }

    /// How an index is read, or written where `=` or `+=` follows.
    fn access(self, name: &str, offsets: &str) -> String {
        let pointer = format!("{name} + {offsets}");
        match self.after() {
            [TokenTree::Punct(first), ..] if first.as_char() == '=' && first.spacing() == Spacing::Alone => {
                format!("write memory with `tl::store({pointer}, value, mask)`")
            }
            [TokenTree::Punct(op), second, ..] if op.spacing() == Spacing::Joint && is_punct(second, '=') => {
                let op = op.as_char();
                format!(
                    "write memory with `tl::store({pointer}, tl::load({pointer}, mask) {op} value, mask)`"
                )
            }
            _ => format!("read memory with `tl::load({pointer}, mask)`"),
        }
    }

    fn word(self, word: &str) -> Option<Mistake> {
        let behind_dot = self.before().is_some_and(|token| is_punct(token, '.'))
            || self.at >= 2 && is_colons(&self.tokens[self.at - 2..self.at]);
        if behind_dot {
            let help = foreign_help(word, Place::Module).filter(|_| KEYWORDS.contains(&word))?;
            return self.mistake(format!("`{word}` is a keyword of Rust"), help);
        }
        match word {
            "if" if self.follows_operand() => self.conditional(),
            "if" | "elif" | "else" | "for" | "while" | "with" | "def" => {
                self.c_loop(word).or_else(|| self.header())
            }
            "and" | "or" if self.follows_operand() => {
                let (of_scalars, of_tiles) = if word == "and" { ("&&", "&") } else { ("||", "|") };
                let help = format!("write `{of_scalars}` of scalars, `{of_tiles}` of tiles");
                self.mistake(format!("`{word}` is no operator here"), help)
            }
            "lambda" => self.lambda(),
            "is" if self.follows_operand() => {
                let help =
                    "a kernel has no `None`: a const parameter `HAS: bool` says whether an argument is given";
                self.mistake("`is` is no operator here", help)
            }
            _ if self.begins_statement() => self.declaration(word),
            _ => None,
        }
    }

    /// `if condition:` and its like.
    fn header(self) -> Option<Mistake> {
        let rest = self.after();
        let end = rest.iter().position(|token| is_punct(token, ';') || is_group(token, Delimiter::Brace));
        let rest = &rest[..end.unwrap_or(rest.len())];
        let colon = (0..rest.len()).find(|&i| is_lone_colon(rest, i))?;
        let head = &self.tokens[self.at..self.at + 1 + colon];
        // `impl Shape for Row where ..:` has none.
        if is_word(&head[0], "for") && !head.iter().any(|token| is_word(token, "in")) {
            return None;
        }
        let head_text = text(head);
        let help = match (head_text.split(' ').next().unwrap_or_default(), python_range(head)) {
            ("for", Some(range)) => format!("write `{range} {{ .. }}`"),
            ("elif", _) => format!("write `else {} {{ .. }}`", &head_text[2..]),
            ("def", _) => "a function is `#[fuse_fn] fn f(x: Tile<f32>) -> Tile<f32> { .. }`".into(),
            ("with", _) => "leave it out: nothing in a kernel is opened or closed".into(),
            _ => format!("write `{head_text} {{ .. }}`"),
        };
        let colon = TokenPlace { at: self.at + 1 + colon, ..self };
        colon.mistake("a block stands between braces", help)
    }

    /// `for (int i = 0; i < n; i++)`
    fn c_loop(self, word: &str) -> Option<Mistake> {
        let [TokenTree::Group(head), ..] = self.after() else { return None };
        let is_c = word == "for" && head.stream().into_iter().any(|token| is_punct(&token, ';'));
        let help = "write `for i in 0..n { .. }`, or `(0..n).step_by(64)`";
        let head = TokenPlace { at: self.at + 1, ..self };
        is_c.then(|| head.mistake("a loop runs over a range", help))?
    }

    /// `a if condition else b`
    fn conditional(self) -> Option<Mistake> {
        let rest = self.after();
        let is_end = |token: &TokenTree| is_punct(token, ';') || is_punct(token, ',');
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        let otherwise = rest[..end].iter().position(|token| is_word(token, "else"))?;
        // Rust's own, behind the pattern of an arm.
        if rest[..otherwise].iter().any(|token| is_group(token, Delimiter::Brace)) {
            return None;
        }
        let is_start = |token: &TokenTree| is_end(token) || is_punct(token, '=') || is_word(token, "return");
        let start = self.tokens[..self.at].iter().rposition(is_start).map_or(0, |start| start + 1);
        let (then, condition) = (text(&self.tokens[start..self.at]), text(&rest[..otherwise]));
        let other = text(&rest[otherwise + 1..end]);
        self.mistake(
            "the condition stands before its values",
            format!(
                "write `if {condition} {{ {then} }} else {{ {other} }}`, of tiles `tl::select({condition}, {then}, {other})`"
            ),
        )
    }

    /// `lambda a, b: a + b`
    fn lambda(self) -> Option<Mistake> {
        let rest = self.after();
        let colon = (0..rest.len()).find(|&i| is_lone_colon(rest, i))?;
        let params = text(&rest[..colon]);
        self.mistake("`lambda` is no word of Rust", format!("a closure is `|{params}| ..`"))
    }

    /// `int z = 3;`, `float acc[4];`, `__shared__ float s[64];`
    fn declaration(self, word: &str) -> Option<Mistake> {
        let [TokenTree::Ident(name), next, ..] = self.after() else { return None };
        if KEYWORDS.contains(&word) && word != "const" {
            return None;
        }
        let dtype = DType::parse(word).or_else(|| element_type(word));
        let is_array = is_group(next, Delimiter::Bracket);
        let help = match dtype {
            Some(dtype) if is_array => format!("write `let {name} = tl::zeros::<{dtype}>([N]);`"),
            None if word == "const" && is_punct(next, ':') => return None,
            None if word == "const" => format!("write `let {} = ..;`", last_word(self.after())),
            None if matches!(word, "using" | "typedef") => {
                return self.mistake(
                    "a type has no other name here",
                    "write the element type itself, such as `f16`",
                );
            }
            None if let Some(help) = foreign_help(word, Place::Variable) => help,
            Some(_) => format!("write `let {name} = ..;`"),
            // The name of a type that only another language has.
            None if is_punct(next, '=') => format!("write `let {name} = ..;`"),
            None if let Some(help) = foreign_help(word, Place::Macro) => {
                return self.mistake(format!("`{word}` begins no statement of Rust"), help);
            }
            None => foreign_help(word, Place::Type)?,
        };
        self.mistake("a variable is declared by `let`", help)
    }

    /// `a @ b`, `@decorator`, `n // 2` is a comment of Rust's.
    fn operator(self) -> Option<Mistake> {
        if !is_punct(&self.tokens[self.at], '@') {
            return None;
        }
        if self.follows_operand() {
            return self.mistake("`@` is no operator here", "a product of matrices is `tl::dot(a, b)`");
        }
        let words = self.after().iter().map_while(|token| match token {
            TokenTree::Ident(word) => Some(Some(word.to_string())),
            TokenTree::Punct(dot) if dot.as_char() == '.' => Some(None),
            _ => None,
        });
        let last = words.flatten().last()?;
        let help = foreign_help(&last, Place::Function);
        self.mistake("a kernel has no decorators", help.unwrap_or_else(|| "leave it out".into()))
    }
}

/// `for k in 0..n` of the tokens of `for k in range(n)`.
fn python_range(head: &[TokenTree]) -> Option<String> {
    let [TokenTree::Ident(word), TokenTree::Ident(var), TokenTree::Ident(of), .., TokenTree::Group(args)] =
        head
    else {
        return None;
    };
    if word != "for" || of != "in" {
        return None;
    }
    let args: Vec<TokenTree> = args.stream().into_iter().collect();
    let parts: Vec<String> = args.split(|token| is_punct(token, ',')).map(text).collect();
    let is_range = head.iter().any(|token| is_word(token, "range") || is_word(token, "static_range"));
    let range = match &parts[..] {
        _ if !is_range || args.iter().any(|token| is_punct(token, '=')) => return None,
        [end] => format!("0..{end}"),
        [start, end] => format!("{start}..{end}"),
        [start, end, step] => format!("({start}..{end}).step_by({step})"),
        _ => return None,
    };
    Some(format!("for {var} in {range}"))
}

/// Tokens as they were written, with the bools of Python as those of Rust.
fn text(tokens: &[TokenTree]) -> String {
    let bools = tokens.iter().map(|token| match token {
        TokenTree::Ident(word) if word == "True" || word == "False" => {
            Ident::new(&word.to_string().to_lowercase(), word.span()).into()
        }
        token => token.clone(),
    });
    source_text(bools.collect())
}

/// The last word of a declaration, before what it is set to.
fn last_word(tokens: &[TokenTree]) -> String {
    let words = tokens.iter().map_while(|token| match token {
        TokenTree::Ident(word) => Some(word),
        _ => None,
    });
    words.last().map(Ident::to_string).unwrap_or_default()
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

fn is_word(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word == text)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

/// Whether two tokens are `::`.
fn is_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(first), second]
        if first.as_char() == ':' && first.spacing() == Spacing::Joint && is_punct(second, ':'))
}

/// Whether the token at `at` is a `:` that is no part of `::`.
fn is_lone_colon(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(&tokens[at], ':')
        && !(at > 0 && is_colons(&tokens[at - 1..=at]))
        && !(at + 1 < tokens.len() && is_colons(&tokens[at..=at + 1]))
}

/// Words that end no expression.
const KEYWORDS: [&str; 21] = [
    "as", "break", "const", "continue", "else", "fn", "for", "if", "in", "let", "loop", "match", "move",
    "mut", "ref", "return", "static", "type", "unsafe", "use", "where",
];

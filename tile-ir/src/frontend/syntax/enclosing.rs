//! The braces around a function in the text of its file: an attribute's tokens do not say whether an `impl` is around.

/// The kind of item that opened a brace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Brace {
    /// `impl` or `trait`
    Methods,
    Other,
}

/// Whether the token at `line` and `column`, the first of which is line 1 and column 0, is directly in an `impl` or
/// `trait`.
pub fn is_in_impl_or_trait(text: &str, line: usize, column: usize) -> bool {
    let mut scanner = Scanner { rest: text, braces: vec![], item_keyword: None };
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let within = text[start..].chars().take(column).map(char::len_utf8).sum::<usize>();
    let end = text.len() - start - within;
    while scanner.rest.len() > end && scanner.step() {}
    scanner.braces.last() == Some(&Brace::Methods)
}

struct Scanner<'t> {
    rest: &'t str,
    braces: Vec<Brace>,
    /// The kind of the item being read, from its first keyword.
    item_keyword: Option<Brace>,
}

impl Scanner<'_> {
    /// Reads one token; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        let length = match first {
            '/' if self.rest.starts_with("//") => self.rest.find('\n').unwrap_or(self.rest.len()),
            '/' if self.rest.starts_with("/*") => comment(self.rest),
            '"' => string(self.rest),
            '\'' => character(self.rest),
            'r' | 'b' | 'c' if raw_string(self.rest).is_some() => raw_string(self.rest).unwrap_or(1),
            _ if first.is_alphanumeric() || first == '_' => {
                let length = word(self.rest);
                self.keyword(&self.rest[..length]);
                length
            }
            '{' => {
                self.braces.push(self.item_keyword.take().unwrap_or(Brace::Other));
                1
            }
            '}' => {
                self.braces.pop();
                self.item_keyword = None;
                1
            }
            ';' => {
                self.item_keyword = None;
                1
            }
            other => other.len_utf8(),
        };
        self.rest = &self.rest[length..];
        true
    }

    /// The first keyword of an item decides: `fn f() -> impl Fn()` is a function.
    fn keyword(&mut self, word: &str) {
        let found = match word {
            "impl" | "trait" => Brace::Methods,
            "fn" | "mod" | "struct" | "enum" | "union" | "const" | "static" | "let" | "match" | "type" => {
                Brace::Other
            }
            _ => return,
        };
        self.item_keyword.get_or_insert(found);
    }
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// The length of a comment, which may contain others.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of `".."`.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

/// The length of `r#".."#`, with any prefix.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = rest.find('r').filter(|&at| at < 2)?;
    let hashes = rest[prefix + 1..].chars().take_while(|c| *c == '#').count();
    let open = prefix + 1 + hashes;
    if !rest[open..].starts_with('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let end = rest[open + 1..].find(&close).map(|at| open + 1 + at + close.len());
    Some(end.unwrap_or(rest.len()))
}

/// The length of `'x'`, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => chars.find(|(_, c)| *c == '\'').map_or(rest.len(), |(at, _)| at + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

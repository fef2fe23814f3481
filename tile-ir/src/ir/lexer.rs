//! The tokens of printed tile IR. A comment is what stands between `;` and the end of its line.

use std::fmt;

/// Where a text is not tile IR, and what was expected there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Counted from one.
    pub line: usize,
    /// In characters, counted from one.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// A name or a keyword.
    Word,
    /// The name of a value, `%` included.
    Value,
    Number,
    /// With its quotes.
    Quoted,
    Punctuation,
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Token<'t> {
    pub kind: TokenKind,
    pub text: &'t str,
    pub line: usize,
    pub column: usize,
}

impl Token<'_> {
    pub fn error(&self, message: String) -> ParseError {
        ParseError { line: self.line, column: self.column, message }
    }
}

/// Punctuation; a longer one comes before its beginning.
const PUNCTUATION: [&str; 18] =
    ["..=", "..", "<=", "(", ")", "[", "]", "{", "}", "<", ">", "|", ",", ":", "=", "+", "&", "."];

/// The tokens of a text, an end behind them.
pub fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut found = vec![];
    let mut line = 0;
    for (number, source) in text.lines().enumerate() {
        line = number + 1;
        let mut rest = source.trim_start();
        while !rest.is_empty() && !rest.starts_with(';') {
            let column = source[..source.len() - rest.len()].chars().count() + 1;
            let (kind, length) = first_token(rest).map_err(|message| ParseError { line, column, message })?;
            found.push(Token { kind, text: &rest[..length], line, column });
            rest = rest[length..].trim_start();
        }
    }
    found.push(Token { kind: TokenKind::End, text: "", line: line + 1, column: 1 });
    Ok(found)
}

/// The kind and the length of the token that a text begins with.
fn first_token(text: &str) -> Result<(TokenKind, usize), String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '#';
    let word_length = |text: &str| text.find(|c| !is_word(c)).unwrap_or(text.len());
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some('%'), Some(c)) if is_word(c) => Ok((TokenKind::Value, 1 + word_length(&text[1..]))),
        (Some('"'), _) => match quoted_length(text) {
            Some(length) => Ok((TokenKind::Quoted, length)),
            None => Err("this string has no end on its line".into()),
        },
        (Some('-'), Some(c)) if is_word(c) => Ok((TokenKind::Number, 1 + number_length(&text[1..]))),
        (Some(c), _) if c.is_ascii_digit() => Ok((TokenKind::Number, number_length(text))),
        (Some(c), _) if is_word(c) => Ok((TokenKind::Word, word_length(text))),
        (first, _) => match PUNCTUATION.iter().find(|punctuation| text.starts_with(**punctuation)) {
            Some(punctuation) => Ok((TokenKind::Punctuation, punctuation.len())),
            None => Err(format!("`{}` begins no token", first.unwrap_or_default())),
        },
    }
}

/// The length of a number without its sign: digits and letters, a fraction, and the sign of an exponent.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while let Some(&byte) = bytes.get(end) {
        let exponent = end > 0 && bytes[end - 1] == b'e' && !text.starts_with("0x");
        let fraction = byte == b'.' && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        if !(byte.is_ascii_alphanumeric() || fraction || byte == b'-' && exponent) {
            break;
        }
        end += 1;
    }
    end
}

/// The length of a string with its quotes, if it ends.
fn quoted_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// What a string with its quotes says; the escapes are those that `{:?}` writes.
pub fn unquoted(quoted: &str) -> Option<String> {
    let mut said = String::new();
    let mut chars = quoted.strip_prefix('"')?.strip_suffix('"')?.chars();
    while let Some(c) = chars.next() {
        said.push(if c == '\\' { escaped(&mut chars)? } else { c });
    }
    Some(said)
}

/// The character of an escape, behind its backslash.
fn escaped(chars: &mut std::str::Chars) -> Option<char> {
    Some(match chars.next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        'u' => {
            let (digits, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
            *chars = rest.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
        }
        c @ ('"' | '\\' | '\'') => c,
        _ => return None,
    })
}

//! The words and signs of a text of Rust. Comments have none, and a text in quotes is one sign.

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    Word(String),
    /// `::`
    Separator,
    Sign(char),
}

/// A token and the number of its line, from 1 on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedToken {
    pub token: Token,
    pub line: usize,
}

/// What a text consists of, without comments and what stands in quotes.
pub fn tokens(text: &str) -> Vec<PlacedToken> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line, mut counted) = (0, 1, 0);
    while let Some(&c) = chars.get(at) {
        line += chars[counted..at].iter().filter(|&&c| c == '\n').count();
        counted = at;
        let next = chars.get(at + 1).copied();
        match (c, next) {
            ('/', Some('/')) => at = end_of_line(&chars, at),
            ('/', Some('*')) => at = end_of_comment(&chars, at),
            ('"', _) => {
                tokens.push(PlacedToken { token: Token::Sign('"'), line });
                at = end_of_text(&chars, at);
            }
            ('\'', Some('\\')) => at = (at + 3..chars.len()).find(|&i| chars[i] == '\'').unwrap_or(at) + 1,
            ('\'', _) if chars.get(at + 2) == Some(&'\'') => at += 3,
            (':', Some(':')) => {
                tokens.push(PlacedToken { token: Token::Separator, line });
                at += 2;
            }
            _ if is_word(c) => {
                let end = (at..chars.len()).find(|&i| !is_word(chars[i])).unwrap_or(chars.len());
                let word: String = chars[at..end].iter().collect();
                at = end_of_raw_text(&chars, end).filter(|_| word.ends_with('r')).unwrap_or(end);
                if at == end {
                    tokens.push(PlacedToken { token: Token::Word(word), line });
                }
            }
            _ => {
                if !c.is_whitespace() {
                    tokens.push(PlacedToken { token: Token::Sign(c), line });
                }
                at += 1;
            }
        }
    }
    tokens
}

/// Where the bracket that opens here is closed.
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len() - 1
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn end_of_line(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len())
}

/// Comments may hold comments.
fn end_of_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn end_of_text(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&c) = chars.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of a raw text whose hashes and quote begin here.
fn end_of_raw_text(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|&&c| c == '#').count();
    let begin = at + hashes + 1;
    if chars.get(begin - 1) != Some(&'"') {
        return None;
    }
    let ends = |&i: &usize| chars[i] == '"' && (1..=hashes).all(|back| chars.get(i + back) == Some(&'#'));
    Some((begin..chars.len()).find(ends).map_or(chars.len(), |quote| quote + 1 + hashes))
}

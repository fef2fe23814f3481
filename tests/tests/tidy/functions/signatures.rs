//! Reads functions and structs from a text of Rust: where they are, what they take, what they consist of.

use crate::tokens::{PlacedToken, Token, closing, tokens};

/// A function, also within another one.
pub struct Function {
    pub name: String,
    /// Where `fn` stands.
    pub line: usize,
    /// From there to the closing brace.
    pub lines: usize,
    /// The elements' types of each parameter that is a tuple.
    pub tuples: Vec<Vec<String>>,
    /// Without its signature; nothing of a declaration.
    pub body: Vec<Token>,
}

/// All functions but those of tests.
pub fn functions(text: &str) -> Vec<Function> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(&tokens, at) {
            at = end_of_item(&tokens, at);
        }
        found.extend(function(&tokens, at));
        at += 1;
    }
    found
}

/// The names of the fields of a struct.
pub fn struct_fields(text: &str, name: &str) -> Option<Vec<String>> {
    let tokens: Vec<Token> = tokens(text).into_iter().map(|placed| placed.token).collect();
    let at = tokens.windows(2).position(|pair| is_word(&pair[0], "struct") && is_word(&pair[1], name))?;
    let open = (at..tokens.len()).find(|&i| is_sign(&tokens[i], '{'))?;
    let inside = &tokens[open + 1..closing(&tokens, open)];
    let mut fields = Vec::new();
    for field in split(inside) {
        let colon = field.iter().position(|token| is_sign(token, ':'));
        if let Some(Token::Word(name)) = colon.and_then(|colon| field.get(colon.checked_sub(1)?)) {
            fields.push(name.clone());
        }
    }
    Some(fields)
}

/// How many closures there are, those within others too.
pub fn closures(body: &[Token]) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < body.len() {
        if is_sign(&body[at], '|') && !begins_expression(&body[..at]) {
            // `||` is one operator.
            at += usize::from(body.get(at + 1).is_some_and(|next| is_sign(next, '|')));
        } else if is_sign(&body[at], '|') {
            count += 1;
            let mut end = at + 1;
            while end < body.len() && !is_sign(&body[end], '|') {
                let opens = matches!(body[end], Token::Sign('(' | '[' | '{'));
                end = if opens { closing(body, end) + 1 } else { end + 1 };
            }
            at = end;
        }
        at += 1;
    }
    count
}

/// Whether what follows these tokens is an expression, and no operator or alternative of a pattern.
fn begins_expression(before: &[Token]) -> bool {
    let Some(last) = before.last() else { return false };
    match last {
        Token::Sign('(' | '[' | '{' | '}' | ',' | ';' | '=' | ':' | '&' | '|') => true,
        Token::Sign('>') => before.len() > 1 && is_sign(&before[before.len() - 2], '='),
        Token::Word(word) => ["move", "return", "else", "in", "mut"].contains(&word.as_str()),
        _ => false,
    }
}

fn function(tokens: &[PlacedToken], at: usize) -> Option<Function> {
    let [first, second, ..] = &tokens[at..] else { return None };
    let Token::Word(name) = &second.token else { return None };
    if !is_word(&first.token, "fn") {
        return None;
    }
    let all: Vec<Token> = tokens[at..].iter().map(|placed| placed.token.clone()).collect();
    let open = if is_sign(&all[2], '<') { end_of_generics(&all, 2) } else { 2 };
    if !is_sign(all.get(open)?, '(') {
        return None;
    }
    let end_of_parameters = closing(&all, open);
    let tuples = split(&all[open + 1..end_of_parameters]).into_iter().filter_map(tuple).collect();
    let start = body_or_end(&all, end_of_parameters + 1);
    let end = if is_sign(&all[start], '{') { closing(&all, start) } else { start };
    let line = first.line;
    let lines = tokens[at + end].line - line + 1;
    Some(Function { name: name.clone(), line, lines, tuples, body: all[start..end].to_vec() })
}

/// The types of the elements, if a parameter is a tuple of two or more, or a reference to one.
fn tuple(parameter: &[Token]) -> Option<Vec<String>> {
    let mut depth = 0;
    let colon = parameter.iter().position(|token| {
        depth += match token {
            Token::Sign('(' | '[' | '{') => 1,
            Token::Sign(')' | ']' | '}') => -1,
            _ => 0,
        };
        depth == 0 && is_sign(token, ':')
    })?;
    let is_reference = |token: &&Token| is_sign(token, '&') || is_word(token, "mut");
    let skipped = parameter[colon + 1..].iter().take_while(is_reference).count();
    let ty = &parameter[colon + 1 + skipped..];
    let is_tuple = is_sign(ty.first()?, '(') && closing(ty, 0) + 1 == ty.len();
    let elements = is_tuple.then(|| split(&ty[1..ty.len() - 1]))?;
    (elements.len() > 1).then(|| elements.into_iter().map(written).collect())
}

fn written(tokens: &[Token]) -> String {
    let words = tokens.iter().map(|token| match token {
        Token::Word(word) => word.clone(),
        Token::Separator => "::".to_string(),
        Token::Sign(sign) => sign.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The parts between commas that stand in no bracket.
fn split(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(' | '[' | '{' | '<') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            Token::Sign('>') if !is_arrow(tokens, at) => depth -= 1,
            Token::Sign(',') if depth == 0 => {
                parts.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

fn is_arrow(tokens: &[Token], at: usize) -> bool {
    at > 0 && matches!(tokens[at - 1], Token::Sign('-' | '='))
}

/// The token behind generic parameters that open here.
fn end_of_generics(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Sign('<') => depth += 1,
            Token::Sign('>') if !is_arrow(tokens, at) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len() - 1
}

/// `#[cfg(test)]`
fn is_test_attribute(tokens: &[PlacedToken], at: usize) -> bool {
    let [hash, open, cfg, paren, test, ..] = &tokens[at..] else { return false };
    is_sign(&hash.token, '#')
        && is_sign(&open.token, '[')
        && is_word(&cfg.token, "cfg")
        && is_sign(&paren.token, '(')
        && is_word(&test.token, "test")
}

/// The last token of the item behind the attribute that begins here.
fn end_of_item(tokens: &[PlacedToken], attribute: usize) -> usize {
    let all: Vec<Token> = tokens[attribute..].iter().map(|placed| placed.token.clone()).collect();
    let behind = closing(&all, 1) + 1;
    attribute + closing(&all, body_or_end(&all, behind))
}

/// The brace that opens an item's body, or the semicolon of an item without one.
fn body_or_end(tokens: &[Token], from: usize) -> usize {
    let mut at = from;
    while at < tokens.len() {
        match tokens[at] {
            Token::Sign('{' | ';') => return at,
            Token::Sign('(' | '[') => at = closing(tokens, at),
            _ => {}
        }
        at += 1;
    }
    tokens.len() - 1
}

fn is_sign(token: &Token, sign: char) -> bool {
    *token == Token::Sign(sign)
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(own) if own == word)
}

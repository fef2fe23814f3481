//! Reads the paths that a text of Rust names. Takes no account of what is outside of the text; tests, comments and
//! texts in quotes name nothing.

use crate::tokens::{Token, closing, tokens};

/// A path as the code writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The modules within the text that it stands in.
    pub scope: Vec<String>,
    /// `crate`, `super` and `self` as they stand; `*` for all that a module has.
    pub path: Vec<String>,
    pub how: How,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum How {
    /// Within an item.
    Used,
    /// By `use`, with the name it has from there on.
    Imported(String),
    /// By `pub use`, with the same.
    Exported(String),
}

/// All paths, single words among them.
pub fn named(text: &str) -> Vec<Named> {
    let tokens: Vec<Token> = tokens(text).into_iter().map(|placed| placed.token).collect();
    let mut reader = Reader { tokens: &tokens, at: 0, depth: 0, scopes: Vec::new(), found: Vec::new() };
    while reader.at < tokens.len() {
        reader.step();
    }
    reader.found
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    /// Of braces.
    depth: usize,
    /// The modules that are open, with the depth at which each ends.
    scopes: Vec<(String, usize)>,
    found: Vec<Named>,
}

impl Reader<'_> {
    fn sign(&self, ahead: usize, sign: char) -> bool {
        self.tokens.get(self.at + ahead) == Some(&Token::Sign(sign))
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.tokens.get(self.at + ahead) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Reads one token, or all that belongs to it.
    fn step(&mut self) {
        match &self.tokens[self.at] {
            Token::Sign('#') if self.sign(1, '[') => self.attribute(),
            Token::Sign('{') => self.depth += 1,
            Token::Sign('}') => {
                self.depth = self.depth.saturating_sub(1);
                self.scopes.pop_if(|(_, depth)| *depth == self.depth);
            }
            Token::Word(word) if word == "mod" && self.sign(2, '{') => {
                let name = self.word(1).unwrap_or_default().to_string();
                self.scopes.push((name, self.depth));
                self.at += 1;
            }
            Token::Word(word) if word == "pub" => return self.visibility(),
            Token::Word(word) if word == "use" => return self.import(How::Imported),
            Token::Word(_) => return self.path(),
            _ => {}
        }
        self.at += 1;
    }

    /// `#[cfg(test)]` takes what it stands before with it. Stops at the last token that was read.
    fn attribute(&mut self) {
        let end = closing(self.tokens, self.at + 1);
        let inside = &self.tokens[self.at..end];
        let has = |word: &str| inside.contains(&Token::Word(word.to_string()));
        self.at = if has("cfg") && has("test") && !has("not") { self.end_of_item(end + 1) } else { end };
    }

    /// The last token of the item, after attributes, that begins here.
    fn end_of_item(&self, start: usize) -> usize {
        let mut at = start;
        let mut is_use = false;
        while let Some(token) = self.tokens.get(at) {
            match token {
                Token::Word(word) if word == "use" => is_use = true,
                Token::Sign(';') => return at,
                Token::Sign('{') if !is_use => return closing(self.tokens, at),
                Token::Sign('(' | '[' | '{') => at = closing(self.tokens, at),
                _ => {}
            }
            at += 1;
        }
        self.tokens.len() - 1
    }

    /// `pub`, with its place, and the `use` that may follow.
    fn visibility(&mut self) {
        self.at += 1;
        if self.sign(0, '(') {
            self.at = closing(self.tokens, self.at) + 1;
        }
        if self.word(0) == Some("use") {
            self.import(How::Exported);
        }
    }

    fn import(&mut self, how: fn(String) -> How) {
        self.at += 1;
        self.tree(&[], how);
    }

    /// `a::b`, `a::b as c`, `a::*` or `a::{b, c::d}`; leaves what follows.
    fn tree(&mut self, before: &[String], how: fn(String) -> How) {
        let mut path = before.to_vec();
        loop {
            if let Some(word) = self.word(0).map(str::to_string) {
                path.push(word);
            } else if self.sign(0, '*') {
                path.push("*".to_string());
            } else if self.sign(0, '{') {
                self.at += 1;
                while self.at < self.tokens.len() && !self.sign(0, '}') {
                    self.tree(&path, how);
                    self.at += usize::from(self.sign(0, ','));
                }
                self.at += 1;
                return;
            }
            self.at += 1;
            if self.tokens.get(self.at) != Some(&Token::Separator) {
                break;
            }
            self.at += 1;
        }
        // `a::{self}` is `a`.
        if path.len() > 1 {
            path.pop_if(|last| last == "self");
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.word(0) == Some("as") {
            name = self.word(1).unwrap_or_default().to_string();
            self.at += 2;
        }
        self.push(path, how(name));
    }

    /// A path within code.
    fn path(&mut self) {
        let before = self.at.checked_sub(1).map(|before| &self.tokens[before]);
        let begins = !matches!(before, Some(Token::Separator | Token::Sign('.')));
        let mut path = vec![self.word(0).unwrap_or_default().to_string()];
        self.at += 1;
        while self.tokens.get(self.at) == Some(&Token::Separator)
            && let Some(word) = self.word(1).map(str::to_string)
        {
            path.push(word);
            self.at += 2;
        }
        if begins {
            self.push(path, How::Used);
        }
    }

    fn push(&mut self, path: Vec<String>, how: How) {
        let scope = self.scopes.iter().map(|(name, _)| name.clone()).collect();
        self.found.push(Named { scope, path, how });
    }
}

//! Sentences that can be read at once: at most thirty words.

use super::{Source, sources};

/// The most words of a sentence.
const WORDS: usize = 30;

/// The documents that the rule is for.
fn applies(path: &str) -> bool {
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].contains(&path) || path.starts_with("book/src/")
}

/// The paragraphs, list items and so on of a document. Code, tables, headings, comments and includes are left out.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
            found.push(String::new());
        } else if is_code {
            continue;
        } else if line.is_empty() || ["|", "#", "<!--", "{{#"].iter().any(|start| line.starts_with(start)) {
            found.push(String::new());
        } else {
            if is_item(line) {
                found.push(String::new());
            }
            let paragraph = found.last_mut().expect("there is one");
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    found
}

fn is_item(line: &str) -> bool {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || digits.len() < line.len() && digits.starts_with(". ")
}

/// The sentences of a paragraph: what stands between backticks is one word, and a full stop ends one where the next
/// word begins another.
fn sentences(paragraph: &str) -> Vec<String> {
    let spans = paragraph.split('`').enumerate();
    let plain: String = spans.map(|(i, text)| if i % 2 == 0 { text } else { "code" }).collect();
    // Targets of links are no words.
    let plain: String = plain.split("](").enumerate().map(|(i, text)| without_target(i, text)).collect();
    let plain = plain.replace('[', "");
    let mut found = vec![String::new()];
    let words: Vec<&str> = plain.split_whitespace().collect();
    for (i, word) in words.iter().enumerate() {
        let sentence = found.last_mut().expect("there is one");
        if word.chars().any(char::is_alphanumeric) {
            sentence.push_str(word);
            sentence.push(' ');
        }
        let ends = word.trim_end_matches([')', '"', '*']).ends_with(['.', '?', '!']);
        let next = words.get(i + 1).and_then(|next| next.chars().find(|c| c.is_alphanumeric()));
        // After a code span at the beginning the case is unknown.
        let begins = words.get(i + 1).is_some_and(|next| next.starts_with("code"));
        if ends && (begins || next.is_none_or(|c| !c.is_lowercase())) {
            found.push(String::new());
        }
    }
    found
}

fn without_target(index: usize, text: &str) -> &str {
    if index == 0 { text } else { text.split_once(')').map_or(text, |(_, rest)| rest) }
}

#[test]
fn sentences_are_found() {
    let text = "# A heading\n\nOne `a b c` word. Two [words](to.md) here,\ne.g. more.\n- An item.\n\n| a | table |\n```\ncode here\n```\n";
    let all: Vec<String> = paragraphs(text)
        .iter()
        .flat_map(|paragraph| sentences(paragraph))
        .filter(|s| !s.is_empty())
        .collect();
    assert_eq!(all, ["One code word. ", "Two words here, e.g. more. ", "An item. "]);
}

#[test]
fn sentences_are_short() {
    let mut long = vec![];
    for Source { path, text } in sources(&["md"]).into_iter().filter(|source| applies(&source.path)) {
        for sentence in paragraphs(&text).iter().flat_map(|paragraph| sentences(paragraph)) {
            let count = sentence.split_whitespace().count();
            if count > WORDS {
                long.push(format!("{path}: {count} words: {sentence}"));
            }
        }
    }
    assert!(long.is_empty(), "more than {WORDS} words\n{}", long.join("\n"));
}

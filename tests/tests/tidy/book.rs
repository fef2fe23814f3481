//! The book and the pages at the root: what they link and include is there, and their code is tested code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{Source, root, sources};

const PAGES: &str = "book/src/";

/// The pages of the book, without its summary.
fn pages() -> impl Iterator<Item = Source> {
    let is_page = |source: &Source| source.path.starts_with(PAGES) && !source.path.ends_with("/SUMMARY.md");
    sources(&["md"]).into_iter().filter(is_page)
}

/// A path as seen from a file, without `..`.
fn beside(file: &str, path: &str) -> PathBuf {
    let mut found = PathBuf::new();
    let from = Path::new(file).parent().expect("a file is in a folder");
    for component in from.join(path).components() {
        match component {
            Component::ParentDir => {
                found.pop();
            }
            Component::Normal(part) => found.push(part),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    found
}

/// The targets of a text's links that name files: `[words](target)` outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = vec![];
    for line in prose(text) {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target.to_string());
            }
        }
    }
    found
}

/// The lines outside of fenced code, without what stands between backticks.
fn prose(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = vec![];
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.split('`').step_by(2).collect());
        }
    }
    lines
}

/// The name that a heading has in links.
fn fragment(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = fs::read_to_string(root().join(PAGES).join("SUMMARY.md")).expect("a summary");
    let listed = links(&summary);
    let unique: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let all: Vec<String> = pages().map(|page| page.path[PAGES.len()..].to_string()).collect();
    let written: BTreeSet<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(unique, written, "left what the summary lists, right what is there");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut lost = vec![];
    for Source { path, text } in sources(&["md"]) {
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = if file.is_empty() { PathBuf::from(&path) } else { beside(&path, file) };
            let there = root().join(&target);
            let has_heading = || {
                let text = fs::read_to_string(&there).unwrap_or_default();
                text.lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| fragment(line.trim_start_matches('#').trim()) == heading)
            };
            if !there.exists() || !heading.is_empty() && !has_heading() {
                lost.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(lost.is_empty(), "links to nothing\n{}", lost.join("\n"));
}

/// What a page includes: the file, and the anchor in it.
struct Include {
    page: String,
    file: PathBuf,
    anchor: Option<String>,
}

fn includes() -> Vec<Include> {
    let mut found = vec![];
    for Source { path, text } in pages() {
        for rest in text.split("{{#").skip(1) {
            let inside = rest.split_once("}}").expect("an include ends").0;
            let target = inside.strip_prefix("include ").unwrap_or_else(|| panic!("{path}: {inside}"));
            let (file, anchor) =
                target.split_once(':').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let (page, anchor) = (path.clone(), anchor.map(str::to_string));
            found.push(Include { file: beside(&path, file), page, anchor });
        }
    }
    assert!(found.len() > 3, "pages include their code");
    found
}

#[test]
fn what_pages_include_is_there() {
    let mut lost = vec![];
    for Include { page, file, anchor } in includes() {
        let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
        let has_mark = |mark: String| text.lines().filter(|line| line.trim() == mark).count() == 1;
        let has_anchor = anchor.as_ref().is_none_or(|anchor| {
            has_mark(format!("// ANCHOR: {anchor}")) && has_mark(format!("// ANCHOR_END: {anchor}"))
        });
        if text.is_empty() || !has_anchor {
            lost.push(format!("{page}: {} {}", file.display(), anchor.unwrap_or_default()));
        }
    }
    assert!(lost.is_empty(), "includes of nothing\n{}", lost.join("\n"));
}

#[test]
fn what_tests_write_for_pages_is_on_one() {
    let included: BTreeSet<PathBuf> = includes().into_iter().map(|include| include.file).collect();
    let mut unused = vec![];
    for folder in ["book/code/output", "book/code/mistakes"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = Path::new(folder).join(entry.expect("a readable folder").file_name());
            if !included.contains(&path) {
                unused.push(path.display().to_string());
            }
        }
    }
    assert!(unused.is_empty(), "no page includes these\n{}", unused.join("\n"));
}

/// The fenced blocks of a language, without their fences.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    let mut inside = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), inside) {
            (Some(info), None) => {
                inside = Some(info == language);
                if info == language {
                    found.push(String::new());
                }
            }
            (Some(_), Some(_)) => inside = None,
            (None, Some(true)) => found.last_mut().expect("a block began").push_str(&format!("{line}\n")),
            (None, _) => {}
        }
    }
    found
}

#[test]
fn rust_on_pages_is_included() {
    for Source { path, text } in pages() {
        for block in blocks(&text, "rust") {
            let own = block.lines().find(|line| !line.is_empty() && !line.starts_with("{{#include "));
            assert!(own.is_none(), "{path}: code that no test compiles: {own:?}");
        }
    }
}

#[test]
fn rust_in_the_readme_is_tested() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a readme");
    let tested = fs::read_to_string(root().join("book/code/src/readme.rs")).expect("the code of the readme");
    // Without the indentation, which is that of a function there.
    let lines = |text: &str| text.lines().map(|line| format!("{}\n", line.trim())).collect::<String>();
    let tested = lines(&tested);
    let blocks = blocks(&readme, "rust");
    assert!(!blocks.is_empty(), "the readme shows a kernel");
    for block in blocks {
        assert!(tested.contains(&lines(&block)), "not in book/code/src/readme.rs:\n{block}");
    }
}

/// The lines that the readme may have.
const README_LINES: usize = 150;

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a readme");
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, more than {README_LINES}");
}

/// Where the paths of the glossary begin.
const CRATES: [&str; 3] = ["", "lowering/src", "tile-ir/src"];

#[test]
fn the_glossary_names_files_that_exist() {
    let text = fs::read_to_string(root().join(PAGES).join("glossary.md")).expect("a glossary");
    let mut lost = vec![];
    let rows = text.lines().filter(|line| line.starts_with('|') && line.matches('|').count() == 4);
    for row in rows {
        let place = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for path in place.split('`').skip(1).step_by(2) {
            if !CRATES.iter().any(|folder| root().join(folder).join(path).exists()) {
                lost.push(path.to_string());
            }
        }
    }
    assert!(lost.is_empty(), "no such file: {}", lost.join(", "));
}

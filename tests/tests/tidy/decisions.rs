//! Pages of decisions: those that code and documents name exist, and the index has all of them.

use std::fs;

use super::{root, sources};

const FOLDER: &str = "docs/decisions/";

/// The digits of a page's number.
const DIGITS: usize = 4;

/// The file names of the pages.
fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join(FOLDER)).expect("a folder of decisions");
    let names = entries.map(|entry| entry.expect("a readable folder").file_name().display().to_string());
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit())).collect()
}

#[test]
fn decisions_that_are_named_exist() {
    let pages = pages();
    let mut lost = vec![];
    for source in sources(&["rs", "md", "toml", "py"]) {
        for (number, line) in source.text.lines().enumerate() {
            for (at, _) in line.match_indices(FOLDER) {
                let named = line[at + FOLDER.len()..].chars().take(DIGITS).collect::<String>();
                let is_number = named.len() == DIGITS && named.chars().all(|c| c.is_ascii_digit());
                if is_number && !pages.iter().any(|page| page.starts_with(&format!("{named}-"))) {
                    lost.push(format!("{}:{}: {FOLDER}{named}", source.path, number + 1));
                }
            }
        }
    }
    assert!(lost.is_empty(), "no page has these numbers\n{}", lost.join("\n"));
}

#[test]
fn the_index_has_every_decision() {
    let index = fs::read_to_string(root().join(FOLDER).join("README.md")).expect("an index");
    let missing: Vec<String> =
        pages().into_iter().filter(|page| !index.contains(&format!("({page})"))).collect();
    assert!(missing.is_empty(), "no row in {FOLDER}README.md\n{}", missing.join("\n"));
}

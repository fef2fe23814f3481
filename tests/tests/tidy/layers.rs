//! The layers of the compiler: imports run one way.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, is_test, sources};

/// The folders of the compiler from the lowest up: each imports those before it. A line is one layer, whose folders may import each other.
const LAYERS: &[&[&str]] = &[
    &["support"],
    // An operation is what the IR consists of.
    &["ir", "ops"],
    &["frontend/syntax"],
    &["analysis"],
    &["frontend/typeck"],
    &["transform"],
    &["gpu/layout"],
    &["gpu/opt"],
    &["mlir"],
    &["cpu"],
    &["gpu/emit"],
    &["gpu/specialization"],
    &["backend"],
    &["driver"],
    &["expand"],
    &["devtools"],
];

/// Imports that still run the other way, and what would end them. The list only gets shorter.
const UPWARD: &[(&str, &str, &str)] = &[];

/// The layer's folder that a file or a path of modules is in.
fn folder(path: &str) -> Option<&'static str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let all = LAYERS.iter().flat_map(|layer| layer.iter().copied());
    all.filter(|folder| path == *folder || path.starts_with(&format!("{folder}/")))
        .max_by_key(|folder| folder.len())
}

/// The paths of modules after `crate::` in a text, those of a group of imports one by one.
pub fn imports(text: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        expand(rest, "", &mut found);
    }
    found
}

/// Adds the paths that begin here: `a::b`, or `a::{b, c::d}`.
fn expand(text: &str, before: &str, found: &mut BTreeSet<String>) {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let own = text[..end].trim_end_matches(':').replace("::", "/");
    let path = if before.is_empty() { own } else { format!("{before}/{own}") };
    let Some(group) = text[end..].strip_prefix('{').filter(|_| text[..end].ends_with("::")) else {
        found.insert(path);
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' if depth == 0 => {
                expand(group[start..i].trim(), &path, found);
                start = i + 1;
            }
            '}' if depth == 0 => {
                let last = group[start..i].trim();
                if !last.is_empty() {
                    expand(last, &path, found);
                }
                return;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

#[test]
fn imports_are_read() {
    let text =
        "use crate::ir::{Func, guard::{Guard, Symbol}};\nlet a = crate::gpu::emit::declare(b); // crate::no";
    let expected = ["gpu/emit/declare", "ir/Func", "ir/guard/Guard", "ir/guard/Symbol"];
    assert_eq!(imports(text).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn imports_run_one_way() {
    let level = |folder: &str| LAYERS.iter().position(|layer| layer.contains(&folder));
    let mut upward: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for Source { path, text } in sources(&["rs"]) {
        let Some(inside) = path.strip_prefix("lowering/src/") else { continue };
        let Some(own) = folder(inside).filter(|_| !is_test(&path)) else { continue };
        for import in imports(&text) {
            if let Some(other) = folder(&import)
                && level(other) > level(own)
            {
                upward.entry((own, other)).or_default().push(format!("{path}: {import}"));
            }
        }
    }
    let known: BTreeSet<(&str, &str)> = UPWARD.iter().map(|&(from, to, _)| (from, to)).collect();
    let found: BTreeSet<(&str, &str)> = upward.keys().copied().collect();
    let new: Vec<&String> = found.difference(&known).flat_map(|edge| &upward[edge]).collect();
    assert!(
        new.is_empty(),
        "a stage that imports a later one cannot be read, built or tested without it\n{new:#?}"
    );
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "these imports are gone: take them off the list\n{gone:?}");
}

#[test]
fn zz_debug() {
    let modules = super::modules::Modules::read();
    for (file, imports) in modules.imports() {
        for import in imports {
            println!("EDGE {file} {import}");
        }
    }
}

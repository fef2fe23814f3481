//! The families of the kernel library: what a module imports is compiled whenever the module is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::layers::imports;
use super::root;

/// The words in double quotes, in order.
fn quoted(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

/// The features of a manifest, each with those that it enables directly.
fn features(manifest: &str) -> BTreeMap<&str, Vec<&str>> {
    let section = manifest.split_once("[features]\n").expect("the library has features").1;
    let section = section.split_once("\n\n").map_or(section, |(features, _)| features);
    let mut found = BTreeMap::new();
    for entry in section.split("]\n") {
        if let Some((name, enabled)) = entry.split_once(" = [") {
            found.insert(name, quoted(enabled));
        }
    }
    found
}

/// A feature and all that it enables.
fn closure<'a>(feature: &'a str, features: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let (mut all, mut pending) = (BTreeSet::new(), vec![feature]);
    while let Some(next) = pending.pop() {
        if all.insert(next) {
            pending.extend(&features[next]);
        }
    }
    all
}

/// A module of a root file.
#[derive(Debug)]
struct Module<'r> {
    /// The file, where the root names it.
    path: Option<&'r str>,
    /// Any of these features compiles it; without features it always is.
    features: Vec<&'r str>,
}

/// The modules of a root file.
fn modules(root_file: &str) -> BTreeMap<&str, Module<'_>> {
    let mut found = BTreeMap::new();
    let (mut condition, mut path) = ("", None);
    for line in root_file.lines() {
        if let Some(module) = line.trim_start_matches("pub ").strip_prefix("mod ") {
            assert!(!condition.contains("all(") && !condition.contains("not("), "{module}: {condition}");
            let features = quoted(condition);
            found.insert(module.trim_end_matches(';'), Module { path, features });
        }
        if line.starts_with("#[path") {
            path = quoted(line).first().copied();
        } else {
            (condition, path) = (if line.starts_with("#[cfg(") { line } else { "" }, None);
        }
    }
    found
}

#[test]
fn a_family_enables_those_that_it_imports() {
    let library = root().join("examples");
    let read = |path: &str| fs::read_to_string(library.join(path)).expect("a file of the library");
    let (manifest, root_file) = (read("Cargo.toml"), read("src/lib.rs"));
    let (features, modules) = (features(&manifest), modules(&root_file));
    assert!(features.len() > 3 && modules.len() > 3, "{features:?}, {modules:?}");

    let mut missing = Vec::new();
    for (module, Module { path, features: families }) in &modules {
        let own = format!("{module}.rs");
        let text = read(&format!("src/{}", path.unwrap_or(&own)));
        let shared = families.is_empty();
        assert!(!shared || !text.contains("#[fuse_kernel"), "{module} has kernels and no family");
        let imported: BTreeSet<String> = imports(&text, "crate")
            .iter()
            .filter_map(|path| path.split('/').next().map(str::to_string))
            .collect();
        let needed = imported.iter().filter_map(|path| modules.get_key_value(path.as_str()));
        for (import, any_of) in
            needed.map(|(import, of)| (import, &of.features)).filter(|(_, any_of)| !any_of.is_empty())
        {
            let lacks =
                |family: &&&str| !any_of.iter().any(|other| closure(family, &features).contains(other));
            missing.extend(
                families.iter().filter(lacks).map(|family| format!("{family}: {module} imports {import}")),
            );
            missing.extend(shared.then(|| format!("always: {module} imports {import}")));
        }
    }
    assert!(missing.is_empty(), "these families do not compile alone\n{missing:#?}");
    let default: BTreeSet<&str> = features["default"].iter().copied().collect();
    let off: Vec<_> =
        features.keys().filter(|name| **name != "default" && !default.contains(*name)).collect();
    assert!(off.is_empty(), "all families are on by default, but {off:?}");
}

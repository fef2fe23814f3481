//! Files import each other in one direction, so that each can be read and tested after those it needs.

mod circles;
mod modules;
mod reader;

use std::collections::BTreeSet;

use super::{is_test, sources};

pub use circles::{Graph, circles, shown};
pub use modules::imports;

/// The crates whose files do so; those of the compiler have layers.
const CRATES: [&str; 4] = ["dsl-runtime/src/", "analysis/src/", "examples/src/", "dsl-macros/src/"];

/// Circles that stay, as sets of files, and why.
const DECLARED: [(&[&str], &str); 0] = [];

#[test]
fn files_import_each_other_in_one_direction() {
    let files = sources(&["rs"]);
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for folder in CRATES {
        let inside = files.iter().filter(|source| !is_test(&source.path));
        let inside: Vec<(&str, &str)> = inside
            .filter_map(|source| Some((source.path.strip_prefix(folder)?, source.text.as_str())))
            .filter(|(file, _)| *file != "main.rs")
            .collect();
        let root = inside.iter().find(|(file, _)| *file == "lib.rs").map(|(_, text)| *text);
        let root = root.unwrap_or_else(|| panic!("no crate in {folder}"));
        // A file that the root names by its path is a module of the root.
        let module = |file: &'_ str| match root.contains(&format!("#[path = \"{file}\"]")) {
            true => file.rsplit('/').next().unwrap_or(file).to_string(),
            false => file.to_string(),
        };
        let inside: Vec<(String, &str)> = inside.iter().map(|(file, text)| (module(file), *text)).collect();
        let graph = imports(inside.iter().map(|(file, text)| (file.as_str(), *text)));
        for circle in circles(&graph) {
            let paths: Vec<String> = circle.iter().map(|file| format!("{folder}{file}")).collect();
            match DECLARED.iter().position(|(declared, _)| paths == *declared) {
                Some(declared) => seen.push(declared),
                None => found.push(format!("{folder}: {} among {circle:?}", shown(&graph, &circle))),
            }
        }
    }
    let why = "files that import each other can only be understood together";
    assert!(found.is_empty(), "{why}\n{}", found.join("\n"));
    let gone: Vec<_> = (0..DECLARED.len()).filter(|declared| !seen.contains(declared)).collect();
    assert!(gone.is_empty(), "these circles are gone: take them off the list: {gone:?}");
}

fn graph(edges: &[(&str, &str)]) -> Graph {
    let mut graph = Graph::new();
    for (from, to) in edges {
        graph.entry((*from).to_string()).or_default().insert((*to).to_string());
    }
    graph
}

#[test]
fn circles_are_found_and_shown() {
    let one_way = graph(&[("a", "b"), ("a", "c"), ("b", "c")]);
    assert_eq!(circles(&one_way), Vec::<Vec<String>>::new());

    let two = graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "d")]);
    assert_eq!(circles(&two), [vec!["b", "c"], vec!["d", "e", "f"]]);
    assert_eq!(shown(&two, &circles(&two)[0]), "b -> c -> b");
    assert_eq!(shown(&two, &circles(&two)[1]), "d -> e -> f -> d");

    let alone = graph(&[("a", "a"), ("b", "a")]);
    assert_eq!(circles(&alone), [["a"]]);
    assert_eq!(shown(&alone, &circles(&alone)[0]), "a -> a");

    // Two circles that share a node are one set, of which the shorter way is shown.
    let shared = graph(&[("b", "c"), ("c", "d"), ("d", "b"), ("b", "a"), ("a", "b")]);
    assert_eq!(circles(&shared), [["a", "b", "c", "d"]]);
    assert_eq!(shown(&shared, &circles(&shared)[0]), "a -> b -> a");
}

/// The imports of a small crate, as lines `a.rs -> b.rs c.rs`.
fn imports_of(files: &[(&str, &str)]) -> Vec<String> {
    let graph = imports(files.iter().copied());
    let line = |(file, imports): (&String, &BTreeSet<String>)| {
        format!("{file} -> {}", imports.iter().map(String::as_str).collect::<Vec<_>>().join(" "))
    };
    graph.iter().filter(|(_, imports)| !imports.is_empty()).map(line).collect()
}

#[test]
fn paths_of_every_form_are_imports() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::b::{self, B, inner::{C as D}}; fn f() { crate::c::g(); }"),
        ("b.rs", "pub(crate) mod inner; pub struct B(super::c::T);"),
        ("b/inner.rs", "use super::super::d::*; pub struct C;"),
        ("c.rs", "use crate::d; pub struct T; fn g() { d::h::<u8>() }"),
        ("d.rs", "pub fn h<T>() {}"),
        ("e.rs", "mod sealed { use crate::a; impl X for super::super::b::B {} type Y = a::Z; }"),
    ];
    let expected = [
        "a.rs -> b.rs b/inner.rs c.rs",
        "b.rs -> c.rs",
        "b/inner.rs -> d.rs",
        "c.rs -> d.rs",
        "e.rs -> a.rs b.rs",
    ];
    assert_eq!(imports_of(&files), expected);
}

#[test]
fn comments_texts_and_tests_import_nothing() {
    let text = r##"
        //! [`crate::b::B`]
        /* /* crate::b::B */ crate::b::B */
        const TEXTS: [&str; 4] = ["crate::b::B \" crate::b::B", r#"crate::b::B " crate::b::B"#, b"crate::b::B", "'"];
        const CHARS: [char; 3] = ['"', '\'', '\u{22}'];
        fn f<'a>(x: &'a str) -> &'a str { x.b::<u8>() }
        #[cfg(test)]
        use crate::b::{B, C};
        #[cfg(test)]
        #[path = "other.rs"]
        mod tests { use crate::b::B; fn g() -> [u8; 2] { crate::b::h() } }
        #[cfg(all(test, unix))]
        fn f() -> [u8; 2] { crate::b::h() }
        #[cfg(not(test))]
        use crate::c::C;
    "##;
    let files = [("lib.rs", "mod a; mod b; mod c;"), ("a.rs", text), ("b.rs", ""), ("c.rs", "")];
    assert_eq!(imports_of(&files), ["a.rs -> c.rs"]);
}

#[test]
fn a_module_that_hands_on_does_not_import() {
    // What is declared in the parent is an import of the parent; what it hands on, of where that is declared.
    let handing_on = "mod child; mod other; pub use child::Child; pub(super) use other::Other as Renamed;";
    let child = "use super::Renamed; pub struct Child(crate::parent::Renamed);";
    let files = |parent: &'static str, child: &'static str| {
        [
            ("lib.rs", "mod parent; mod user; pub use parent::Child;"),
            ("parent/mod.rs", parent),
            ("parent/child.rs", child),
            ("parent/other.rs", "pub struct Other;"),
            ("user.rs", "use crate::Child;"),
        ]
    };
    let expected = ["parent/child.rs -> parent/other.rs", "user.rs -> parent/child.rs"];
    assert_eq!(imports_of(&files(handing_on, child)), expected);

    let own = "mod child; mod other; pub use child::Child; pub use other::Other; pub struct Own;";
    let circle = imports_of(&files(own, "use super::Own; pub struct Child;"));
    assert_eq!(circle, ["parent/child.rs -> parent/mod.rs", "user.rs -> parent/child.rs"]);
    // It hands the name on and uses it as well.
    let using = "mod child; mod other; pub use child::Child; pub struct Own(Child);";
    assert_eq!(imports_of(&files(using, ""))[0], "parent/mod.rs -> parent/child.rs");
    let calling = "mod child; mod other; fn f() { child::g() }";
    assert_eq!(imports_of(&files(calling, ""))[0], "parent/mod.rs -> parent/child.rs");
    let importing = "mod child; mod other; use child::Child;";
    assert_eq!(imports_of(&files(importing, ""))[0], "parent/mod.rs -> parent/child.rs");
}

#[test]
fn what_is_of_other_crates_is_no_import() {
    let text = "use std::a::A; use other::a; fn f() { a::g(); std::a::h(); let a = x.a; }";
    let files = [("lib.rs", "mod a; mod b; pub use other;"), ("a.rs", "pub use other::A;"), ("b.rs", text)];
    assert_eq!(imports_of(&files), Vec::<String>::new());
}

#[test]
fn a_circle_of_files_is_found() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "pub struct A; fn f() { crate::b::f() }"),
        ("b.rs", "use crate::c; pub fn f() { c::f() }"),
        ("c.rs", "pub fn f() -> crate::A {}"),
    ];
    let graph = imports(files);
    assert_eq!(shown(&graph, &circles(&graph)[0]), "a.rs -> b.rs -> c.rs -> a.rs");
}

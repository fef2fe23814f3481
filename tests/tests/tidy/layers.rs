//! The layers of the compiler: imports run one way, and within a layer in no circle that nothing explains.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{CRATES, Modules};
use super::{Source, is_test, sources};

/// The folders of the compiler from the lowest up: each imports those before it. A line is one layer, whose folders may import each other.
const LAYERS: &[&[&str]] = &[
    &["tile-ir/src/support"],
    // An operation is what the IR consists of.
    &["tile-ir/src/ir", "tile-ir/src/ops"],
    &["tile-ir/src/frontend/syntax"],
    &["tile-ir/src/analysis"],
    &["tile-ir/src/frontend/typeck"],
    &["tile-ir/src/transform"],
    &["lowering/src/gpu/layout"],
    &["lowering/src/gpu/opt"],
    &["lowering/src/mlir"],
    &["lowering/src/cpu"],
    &["lowering/src/gpu/emit"],
    &["lowering/src/gpu/specialization"],
    &["lowering/src/backend"],
    &["lowering/src/driver"],
    &["lowering/src/expand"],
    &["lowering/src/devtools"],
];

/// Imports that still run the other way, and what would end them. The list only gets shorter.
const UPWARD: &[(&str, &str, &str)] = &[];

/// Files through which imports of their layer run in circles, and why they do by nature. No circle avoids all of them.
const CIRCLES: &[(&str, &str)] = &[
    (
        "tile-ir/src/ir/mod.rs",
        "a function consists of operations, and these of the function's values and blocks",
    ),
    ("tile-ir/src/ops/mod.rs", "`Kind` lists every operation, and each answers what `Operation` asks"),
    ("tile-ir/src/ops/typing.rs", "typing rules ask the checker, which hands on what operations hold"),
    (
        "tile-ir/src/frontend/syntax/expr.rs",
        "an expression holds blocks, and their statements hold expressions",
    ),
    (
        "tile-ir/src/frontend/typeck/mod.rs",
        "the checker's state holds the calls under way, which change that state",
    ),
    (
        "lowering/src/cpu/emit/mod.rs",
        "`Host` calls the emitter of an operation, which asks `Host` for its operands",
    ),
    (
        "lowering/src/gpu/emit/mod.rs",
        "`Gpu` holds what loops, dots and pipelines have under way, and each emits by it",
    ),
    (
        "lowering/src/gpu/emit/smem_alloc.rs",
        "shared memory is the sum of requests, and who asks gets an address from it",
    ),
    (
        "lowering/src/gpu/emit/smem_operand.rs",
        "how a loop copies an operand depends on how dots read it, and the other way",
    ),
    (
        "lowering/src/gpu/emit/warp_specialize.rs",
        "a pipeline's plan consists of those of its parts, which emit by the whole",
    ),
    (
        "lowering/src/gpu/emit/dot/mod.rs",
        "a dot chooses its method, which reads the operands that the dot has staged",
    ),
    ("lowering/src/driver/specialize.rs", "a specialization is the aligned one with other requests"),
];

/// The layer's folder that a file or a path of modules is in.
fn folder(path: &str) -> Option<&'static str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let all = LAYERS.iter().flat_map(|layer| layer.iter().copied());
    all.filter(|folder| path == *folder || path.starts_with(&format!("{folder}/")))
        .max_by_key(|folder| folder.len())
}

/// The paths of modules after `crate::`, or another root, in a text; those of a group of imports one by one.
pub fn imports(text: &str, root: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for rest in code.split(&format!("{root}::")).skip(1) {
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
    assert_eq!(imports(text, "crate").into_iter().collect::<Vec<_>>(), expected);
    assert!(imports(text, "tile_ir").is_empty());
}

#[test]
fn imports_run_one_way() {
    let level = |folder: &str| LAYERS.iter().position(|layer| layer.contains(&folder));
    let mut upward: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for Source { path, text } in sources(&["rs"]) {
        let Some(own) = folder(&path).filter(|_| !is_test(&path)) else { continue };
        for (source, name) in CRATES {
            let roots = if path.starts_with(source) { ["crate", name] } else { [name, name] };
            let paths: BTreeSet<String> = roots.iter().flat_map(|root| imports(&text, root)).collect();
            for import in paths {
                if let Some(other) = folder(&format!("{source}{import}"))
                    && level(other) > level(own)
                {
                    upward.entry((own, other)).or_default().push(format!("{path}: {import}"));
                }
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

/// Files that import each other in a circle, one after the other, none of which is `declared`.
fn circle<'a>(
    imports: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    files: &BTreeSet<&'a str>,
    declared: &BTreeSet<&str>,
) -> Option<Vec<&'a str>> {
    let mut left: BTreeSet<&str> = files.iter().copied().filter(|file| !declared.contains(file)).collect();
    // A file that imports none of those left is in no circle.
    let next = |file: &str, left: &BTreeSet<&'a str>| {
        imports[file].iter().copied().find(|other| left.contains(other))
    };
    while let Some(last) = left.iter().copied().find(|file| next(file, &left).is_none()) {
        left.remove(last);
    }
    let mut path = vec![left.first().copied()?];
    loop {
        let file = next(path[path.len() - 1], &left).expect("every file left imports another one");
        if let Some(start) = path.iter().position(|before| *before == file) {
            return Some(path.split_off(start));
        }
        path.push(file);
    }
}

#[test]
fn circles_are_found() {
    let edges =
        [("a", vec!["b"]), ("b", vec!["c", "d"]), ("c", vec!["d"]), ("d", vec!["b"]), ("e", vec!["a"])];
    let imports: BTreeMap<&str, BTreeSet<&str>> =
        edges.into_iter().map(|(file, imports)| (file, imports.into_iter().collect())).collect();
    let files = imports.keys().copied().collect();
    assert_eq!(circle(&imports, &files, &BTreeSet::new()), Some(vec!["b", "c", "d"]));
    assert_eq!(circle(&imports, &files, &["c"].into()), Some(vec!["b", "d"]));
    assert_eq!(circle(&imports, &files, &["d"].into()), None);
}

#[test]
fn files_of_a_layer_import_in_no_other_circle() {
    let modules = Modules::read();
    let imports = modules.imports();
    let declared: BTreeSet<&str> = CIRCLES.iter().map(|(file, _)| *file).collect();
    for layer in LAYERS {
        let files: BTreeSet<&str> = imports
            .keys()
            .copied()
            .filter(|file| folder(file).is_some_and(|own| layer.contains(&own)))
            .collect();
        assert!(!files.is_empty(), "{layer:?} has no files");
        let circle_without = |declared: &BTreeSet<&str>| circle(&imports, &files, declared);
        let found = circle_without(&declared);
        assert!(
            found.is_none(),
            "files that import each other in a circle cannot be read one after the other: move what they share\n{found:#?}"
        );
        for file in declared.iter().filter(|file| files.contains(*file)) {
            let others = declared.iter().copied().filter(|other| other != file).collect();
            assert!(
                circle_without(&others).is_some(),
                "{file} is in no circle any more: take it off the list"
            );
        }
    }
    let missing: Vec<&&str> = declared.iter().filter(|file| !imports.contains_key(*file)).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
}

//! The layers of the compiler: imports run one way, and within a layer in no circle that nothing explains.

use std::collections::{BTreeMap, BTreeSet};

use super::cycles::{self, Graph, circles, shown};
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
    &["lowering/src/gpu/schedule"],
    &["lowering/src/mlir"],
    &["lowering/src/cpu"],
    &["lowering/src/gpu/emit"],
    &["lowering/src/gpu/specialization"],
    &["lowering/src/backend"],
    &["lowering/src/driver"],
    &["lowering/src/expand"],
    &["lowering/src/devtools"],
];

/// The crates of the compiler: the folder of their sources, and what they are called in paths.
pub const CRATES: [(&str, &str); 2] = [("tile-ir/src/", "tile_ir"), ("lowering/src/", "lowering")];

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
        "lowering/src/gpu/schedule/verify.rs",
        "a schedule is verified role by role, and what is found in a role names operations as the schedule prints them",
    ),
    (
        "lowering/src/devtools/schedule_simulator/agent.rs",
        "an agent has what it waits for and holds, and operations are its steps",
    ),
    (
        "lowering/src/devtools/schedule_simulator/machine.rs",
        "a machine consists of agents, and a step of an agent reads and changes the machine",
    ),
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

#[test]
fn files_of_a_layer_import_in_no_other_circle() {
    let declared: BTreeSet<&str> = CIRCLES.iter().map(|(file, _)| *file).collect();
    let files = sources(&["rs"]);
    let mut imports = Graph::new();
    for source in CRATES.map(|(source, _)| source) {
        let own = files.iter().filter(|file| !is_test(&file.path));
        let own = own.filter_map(|file| Some((file.path.strip_prefix(source)?, file.text.as_str())));
        let place = |file: &String| format!("{source}{file}");
        let found = cycles::imports(own);
        imports.extend(found.iter().map(|(file, others)| (place(file), others.iter().map(place).collect())));
    }
    for layer in LAYERS {
        let is_own = |file: &str| folder(file).is_some_and(|own| layer.contains(&own));
        let circles_without = |declared: &BTreeSet<&str>| {
            let is_left = |file: &&String| is_own(file) && !declared.contains(file.as_str());
            let left = imports.iter().filter(|(file, _)| is_left(file));
            let left: Graph = left
                .map(|(file, others)| (file.clone(), others.iter().filter(is_left).cloned().collect()))
                .collect();
            circles(&left).iter().map(|circle| shown(&left, circle)).collect::<Vec<_>>()
        };
        assert!(imports.keys().any(|file| is_own(file)), "{layer:?} has no files");
        let found = circles_without(&declared);
        let why = "files that import each other can only be understood together: move what they share";
        assert!(found.is_empty(), "{why}\n{}", found.join("\n"));
        for file in declared.iter().filter(|file| is_own(file)) {
            let others = declared.iter().copied().filter(|other| other != file).collect();
            assert!(!circles_without(&others).is_empty(), "{file} is in no circle: take it off the list");
        }
    }
    let missing: Vec<&&str> = declared.iter().filter(|file| !imports.contains_key(**file)).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
}

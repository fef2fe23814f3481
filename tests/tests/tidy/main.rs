//! The rules of the code that text alone can show. Each says why; the text that breaks one is printed with its place.

mod book;
mod cycles;
mod decisions;
mod families;
mod functions;
mod layers;
mod sentences;
mod tokens;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use layers::CRATES;

/// The folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above its crates")
}

/// A file of the workspace, with its path from there.
struct Source {
    path: String,
    text: String,
}

/// The text files of the workspace with one of these extensions, or with none.
fn sources(extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    visit(root(), extensions, &mut found);
    assert!(found.len() > 3, "no files to look at under {}", root().display());
    found
}

fn visit(folder: &Path, extensions: &[&str], found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let built = folder == root() && name == "target";
        if built || name == "gpu-bundle" || name.starts_with('.') && name != ".ci" {
            continue;
        }
        if path.is_dir() {
            visit(&path, extensions, found);
        } else if extensions.contains(&extension)
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root()).expect("a path below the root").display().to_string();
            found.push(Source { path, text });
        }
    }
}

/// Fails with the place of each line that holds one of the words, in the files whose path `applies` to. A comment may
/// say what code may not.
fn forbid(words: &[&str], why: &str, applies: impl Fn(&str) -> bool) {
    let mut broken = Vec::new();
    for source in sources(&["rs"]).iter().filter(|source| applies(&source.path)) {
        for (number, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(word) = words.iter().find(|word| code.contains(**word)) {
                broken.push(format!("{}:{}: `{word}`: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    assert!(broken.is_empty(), "{why}\n{}", broken.join("\n"));
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/tidy/")
}

#[test]
fn only_the_macro_crate_speaks_to_rustc() {
    let why = "the compiler speaks proc_macro2, so that a test is a string";
    forbid(&["proc_macro::"], why, |path| !path.starts_with("dsl-macros/") && !is_test(path));
}

#[test]
fn mlir_is_named_in_two_folders() {
    let why = "every stage but emission can be read, tested and changed without MLIR";
    forbid(&["melior", "mlir_sys", "llvm_sys"], why, |path| {
        let emission = path.starts_with("lowering/src/mlir/") || path.starts_with("lowering/src/backend/");
        !emission && !is_test(path)
    });
}

/// Stages that a user's mistake reaches.
const PURE: [&str; 8] = [
    "tile-ir/src/support/",
    "tile-ir/src/frontend/",
    "tile-ir/src/ir/",
    "tile-ir/src/ops/",
    "tile-ir/src/analysis/",
    "tile-ir/src/transform/",
    "lowering/src/gpu/layout/",
    "lowering/src/gpu/opt/",
];

#[test]
fn early_stages_neither_touch_the_world_nor_give_up() {
    let words = [
        "std::fs",
        "std::env",
        "std::process",
        "std::net",
        "std::io",
        "println!",
        ".unwrap()",
        "panic!",
        "todo!",
        "unimplemented!",
    ];
    let why = "what a user writes is answered with errors; a law of our own is an `expect` that states it";
    forbid(&words, why, |path| !is_test(path) && PURE.iter().any(|stage| path.starts_with(stage)));
}

#[test]
fn nothing_is_left_half_done() {
    let why = "what is not supported is an error that says so";
    forbid(&["todo!", "unimplemented!", "dbg!"], why, |path| !is_test(path));
}

#[test]
fn what_runs_does_not_depend_on_the_compiler() {
    for manifest in ["dsl-runtime/Cargo.toml", "examples/Cargo.toml"] {
        let text = fs::read_to_string(root().join(manifest)).expect("a manifest");
        for compiler in ["lowering", "tile-ir", "melior", "mlir-sys"] {
            let depends = text.lines().any(|line| line.starts_with(compiler));
            assert!(!depends, "{manifest} depends on {compiler}: the compiler exists only at build time");
        }
    }
}

/// The arms of a `match` that end in `_`, by the indentation that rustfmt gives them.
fn arms_before(lines: &[&str], wildcard: usize) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(lines[wildcard]);
    let inside =
        lines[..wildcard].iter().rev().take_while(|line| line.trim().is_empty() || indent(line) >= own);
    inside.filter(|line| indent(line) == own).map(|line| line.trim().to_string()).collect()
}

/// Analyses that know some operations and lose nothing but precision on the rest.
const PRECISION_ONLY: [&str; 2] =
    ["tile-ir/src/transform/legalize_index.rs", "tile-ir/src/transform/legalize_index/widths.rs"];

#[test]
fn an_operation_is_never_forgotten() {
    let mut broken = Vec::new();
    for Source { path, text } in sources(&["rs"]) {
        let compiler = CRATES.iter().any(|(folder, _)| path.starts_with(folder));
        if !compiler || PRECISION_ONLY.contains(&path.as_str()) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (number, _) in lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("_ =>"))
        {
            let on_kind =
                |arm: &String| ["Kind::", "| Kind::", "Some(Kind::"].iter().any(|s| arm.starts_with(s));
            if arms_before(&lines, number).iter().any(on_kind) {
                broken.push(format!("{path}:{}", number + 1));
            }
        }
    }
    let why = "a new operation would pass here unseen; ask the operation for its property";
    assert!(broken.is_empty(), "{why}\n{}", broken.join("\n"));
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    for source in sources(&["rs"]) {
        // Texts of kernels; what tests do themselves, clippy looks after.
        if is_test(&source.path) || source.path.starts_with("tests/ui/") {
            continue;
        }
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            // A declaration promises nothing yet.
            let starts = [["unsafe", " {"].concat(), ["unsafe", " impl"].concat()];
            if !starts.iter().any(|start| code.contains(start.as_str())) || code.contains('"') {
                continue;
            }
            let reason =
                lines[number.saturating_sub(REASON)..=number].iter().any(|line| line.contains("SAFETY:"));
            assert!(reason, "{}:{}: no `// SAFETY:` above: {line}", source.path, number + 1);
        }
    }
}

/// Lines that a reason, and what stands between it and its block, may take.
const REASON: usize = 8;

/// The lines after which a file asks to be split.
const LONG: usize = 600;

/// Files that may be longer, and how long: they may not grow.
const EXCEPTIONS: [(&str, usize); 1] = [("lowering/src/mlir/builder.rs", 860)];

#[test]
fn files_are_short_enough_to_read() {
    for Source { path, text } in sources(&["rs", "py"]) {
        let excepted = EXCEPTIONS.iter().find(|(exception, _)| *exception == path);
        let most = excepted.map_or(LONG, |&(_, most)| most);
        // Whole outputs are tables.
        let lines = text.lines().count();
        assert!(lines <= most || is_test(&path), "{path} has {lines} lines, more than {most}");
    }
}

#[test]
fn commands_that_are_named_exist() {
    for source in sources(&["md"]) {
        for word in source.text.split(|c: char| !(c.is_ascii_alphanumeric() || "/_-.".contains(c))) {
            let word = word.trim_end_matches(['.', '-']);
            if word.starts_with("scripts/") && word.len() > "scripts/".len() {
                assert!(root().join(word).is_file(), "{} speaks of {word}, which is not there", source.path);
            }
        }
    }
}

#[test]
fn what_is_downloaded_comes_from_where_everybody_gets_it() {
    // Tools take what the machine is configured for; a file that names a server binds everybody to it.
    let hosts = [
        ["py", "pi.org"],
        ["crates", ".io/api"],
        ["arti", "factory"],
        ["index", "-url"],
        ["extra", "-index"],
    ];
    let hosts = hosts.map(|parts| parts.concat());
    for source in sources(&["rs", "toml", "py", "yml", ""]) {
        for (number, line) in source.text.lines().enumerate() {
            let host = hosts.iter().find(|host| line.contains(host.as_str()));
            assert!(host.is_none(), "{}:{}: a server: {line}", source.path, number + 1);
        }
    }
}

/// The packages that one is built from, itself first, with the edges that are asked for.
fn dependencies(package: &str, edges: &str) -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let line = ["tree", "--offline", "--prefix=none", "--package", package, "--edges", edges];
    let output = Command::new(cargo).args(line).current_dir(root()).output().expect("cargo runs");
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(tree.starts_with(package), "cargo tree says {}", String::from_utf8_lossy(&output.stderr));
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_string).collect()
}

#[test]
fn nothing_of_the_compiler_is_linked_into_what_runs() {
    let linked = dependencies("fused-kernels", "normal,no-proc-macro");
    assert!(linked.iter().any(|package| package == "dsl-runtime"), "{linked:?}");
    let compiler = ["lowering", "tile-ir", "melior", "mlir-sys"];
    let found: Vec<&String> = linked.iter().filter(|package| compiler.contains(&package.as_str())).collect();
    assert!(found.is_empty(), "the compiler exists only at build time, but is linked: {found:?}");
}

#[test]
fn the_tile_ir_is_built_and_tested_without_llvm() {
    let needed = dependencies("tile-ir", "normal,build,dev");
    assert!(needed.iter().any(|package| package == "expect-test"), "{needed:?}");
    let llvm = ["lowering", "melior", "mlir-sys", "llvm-sys", "tblgen"];
    let found: Vec<&String> = needed.iter().filter(|package| llvm.contains(&package.as_str())).collect();
    assert!(found.is_empty(), "a machine without LLVM cannot build {found:?}");
    assert!(!root().join("tile-ir/build.rs").exists(), "a build script asks for more than a compiler");
}

#[test]
fn every_module_says_what_it_is() {
    let files = sources(&["rs"]);
    // What rustc says of these has their line numbers.
    let written = files.iter().filter(|source| {
        !["tests/ui/", "book/code/mistakes/"].iter().any(|own| source.path.starts_with(own))
    });
    let silent: Vec<&str> = written
        .filter(|source| !source.text.is_empty() && !source.text.starts_with("//"))
        .map(|source| source.path.as_str())
        .collect();
    assert!(silent.is_empty(), "no words in the first line of {}", silent.join(", "));
}

#[test]
fn names_say_what_is_inside() {
    let empty = ["util", "utils", "helper", "helpers", "common", "misc", "manager"];
    for source in sources(&["rs", "py"]) {
        let name = Path::new(&source.path).with_extension("");
        let vague = name.components().find(|part| empty.iter().any(|word| part.as_os_str() == *word));
        assert!(vague.is_none(), "{}: a name that would fit anything", source.path);
    }
}

#[test]
fn files_speak_of_no_machine() {
    // In pieces, so that this file does not break its own rule.
    let places =
        [["/ro", "ot/"], ["/ho", "me/"], ["/wo", "rk/"], ["/Us", "ers/"]].map(|parts| parts.concat());
    for source in sources(&["rs", "toml", "md", "py", "json", "yml", ""]) {
        for (number, line) in source.text.lines().enumerate() {
            let place = places.iter().find(|place| line.contains(place.as_str()));
            assert!(place.is_none(), "{}:{}: a path of one machine: {line}", source.path, number + 1);
        }
    }
}

#[test]
fn text_ends_with_a_newline_and_lines_with_text() {
    for source in sources(&["rs", "toml", "md", "py", "yml", ""]) {
        let Source { path, text } = &source;
        assert!(text.is_empty() || text.ends_with('\n'), "{path} does not end with a newline");
        // A snapshot shows what is printed, spaces and all.
        if path.contains("LICENSE") || is_test(path) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            assert!(line == line.trim_end(), "{path}:{}: space at the end of the line", number + 1);
        }
    }
}

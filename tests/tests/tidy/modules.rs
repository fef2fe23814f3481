//! The modules of the compiler, one a file, and which files the code of each imports. A name is followed through
//! re-exports to the file that defines it, so that a `mod.rs` may list what is in its folder.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, is_test, sources};

/// The crates of the compiler: the folder of their sources, and what they are called in paths.
pub const CRATES: [(&str, &str); 2] = [("tile-ir/src/", "tile_ir"), ("lowering/src/", "lowering")];

/// The parts of a path such as `tile_ir::ir::Func`.
type Path = Vec<String>;

struct Module {
    file: String,
    /// The items that it defines.
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// What is left of its tokens without `use`, and of these the paths of more than one part.
    code: Vec<String>,
    paths: Vec<Path>,
}

/// A name that `use` brings into a module; `*` stands for all of a module's names.
struct Import {
    name: String,
    path: Path,
    is_public: bool,
}

/// The compiler's modules by their paths.
pub struct Modules(BTreeMap<Path, Module>);

impl Modules {
    pub fn read() -> Modules {
        Modules::of(sources(&["rs"]))
    }

    fn of(sources: Vec<Source>) -> Modules {
        let mut modules = BTreeMap::new();
        for Source { path: file, text } in sources {
            let known = CRATES.iter().find(|(folder, _)| file.starts_with(folder));
            let Some((folder, name)) = known.filter(|_| !is_test(&file)) else { continue };
            let parts = file[folder.len()..].trim_end_matches(".rs").split('/');
            let parts = parts.filter(|part| !["lib", "mod"].contains(part));
            let path: Path = [*name].into_iter().chain(parts).map(str::to_string).collect();
            let module = Module::new(file, &path, tokens(&text));
            modules.insert(path, module);
        }
        Modules(modules)
    }

    /// Each file with those that its code imports.
    pub fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut found = BTreeMap::new();
        for (own, module) in &self.0 {
            // A re-export alone is no use of what it names.
            let is_used = |import: &&Import| !import.is_public || module.code.contains(&import.name);
            let paths = module.imports.iter().filter(is_used).map(|import| &import.path).chain(&module.paths);
            let files = paths.filter_map(|path| self.definition(own, path, &mut BTreeSet::new()));
            found.insert(module.file.as_str(), files.filter(|file| *file != module.file).collect());
        }
        found
    }

    /// The file that defines what a path in a module names; none for a module, and for what other crates define.
    fn definition(&self, own: &[String], path: &[String], seen: &mut BTreeSet<Path>) -> Option<&str> {
        let path = self.absolute(own, path)?;
        if !seen.insert(path.clone()) {
            return None;
        }
        let depth = (1..=path.len()).rev().find(|&depth| self.0.contains_key(&path[..depth]))?;
        let (own, rest) = path.split_at(depth);
        let module = &self.0[own];
        let name = rest.first()?;
        if name == "*" || module.items.contains(name) {
            return Some(&module.file);
        }
        if let Some(import) = module.imports.iter().find(|import| import.name == *name) {
            return self.definition(own, &[&import.path[..], &rest[1..]].concat(), seen);
        }
        let all = module.imports.iter().filter(|import| import.name == "*");
        let behind = all.filter_map(|import| {
            let from = self.absolute(own, &import.path[..import.path.len() - 1])?;
            self.0.get(&from).filter(|module| module.items.contains(name))
        });
        // What no file declares comes out of a macro that the module calls.
        Some(behind.last().map_or(&module.file, |module| &module.file))
    }

    /// A path from the root of one of these crates.
    fn absolute(&self, own: &[String], path: &[String]) -> Option<Path> {
        if CRATES.iter().any(|(_, name)| path[0] == *name) {
            return Some(path.to_vec());
        }
        let child = [own, &path[..1]].concat();
        if self.0.contains_key(&child) {
            return Some([own, path].concat());
        }
        let import = self.0[own].imports.iter().find(|import| import.name == path[0])?;
        let is_ours = CRATES.iter().any(|(_, name)| import.path[0] == *name);
        is_ours.then(|| [&import.path[..], &path[1..]].concat())
    }
}

impl Module {
    fn new(file: String, own: &[String], tokens: Vec<String>) -> Module {
        let mut module =
            Module { file, items: BTreeSet::new(), imports: vec![], code: vec![], paths: vec![] };
        let (mut i, mut depth) = (0, 0);
        while i < tokens.len() {
            let next = |ahead: usize| tokens.get(i + ahead).map_or("", String::as_str);
            match tokens[i].as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "use" => {
                    let length = tokens[i..].iter().position(|token| token == ";").expect("`use` has an end");
                    let is_public =
                        module.code.last().is_some_and(|before| ["pub", ")"].contains(&before.as_str()));
                    let mut leaves = vec![];
                    expand(&tokens[i + 1..i + length], vec![], &mut leaves);
                    module.imports.extend(leaves.into_iter().map(|(name, path)| Import {
                        name,
                        path: from_root(own, path),
                        is_public,
                    }));
                    i += length + 1;
                    continue;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" if depth == 0 => {
                    module.items.insert(next(1).to_string());
                }
                "macro_rules" => {
                    module.items.insert(next(2).to_string());
                }
                _ => {}
            }
            module.code.push(tokens[i].clone());
            i += 1;
        }
        let mut parts: Path = vec![];
        for (i, token) in module.code.iter().enumerate() {
            if token == "::" {
                continue;
            }
            if i == 0 || module.code[i - 1] != "::" {
                module.paths.extend((parts.len() > 1).then(|| from_root(own, std::mem::take(&mut parts))));
                parts.clear();
            }
            parts.extend(is_word(token).then(|| token.clone()));
        }
        module
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// A path without `crate`, `self` and `super` before it.
fn from_root(own: &[String], path: Path) -> Path {
    let ups = path.iter().take_while(|part| *part == "super").count();
    match path[0].as_str() {
        "crate" => [&own[..1], &path[1..]].concat(),
        "self" => [own, &path[1..]].concat(),
        "super" => [&own[..own.len().saturating_sub(ups).max(1)], &path[ups..]].concat(),
        _ => path,
    }
}

/// The names that a `use` brings, each with its path.
fn expand(tokens: &[String], before: Path, found: &mut Vec<(String, Path)>) {
    let (mut path, mut i) = (before, 0);
    while i < tokens.len() {
        match tokens[i].as_str() {
            "::" => {}
            "as" => {
                found.push((tokens[i + 1].clone(), path));
                return;
            }
            "{" => {
                let (mut depth, mut start) = (0, i + 1);
                for (end, token) in tokens.iter().enumerate().skip(i + 1) {
                    match token.as_str() {
                        "{" => depth += 1,
                        "," | "}" if depth == 0 => {
                            if end > start {
                                expand(&tokens[start..end], path.clone(), found);
                            }
                            start = end + 1;
                        }
                        "}" => depth -= 1,
                        _ => {}
                    }
                }
                return;
            }
            "self" if !path.is_empty() => {}
            part => path.push(part.to_string()),
        }
        i += 1;
    }
    found.push((path.last().expect("a path has a part").clone(), path));
}

/// Words and signs of Rust source, without comments, texts and what is only compiled for tests.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut i) = (vec![], 0);
    let starts = |i: usize, sign: &str| sign.chars().enumerate().all(|(k, c)| chars.get(i + k) == Some(&c));
    while i < chars.len() {
        let c = chars[i];
        let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        if starts(i, "//") {
            i += chars[i..].iter().take_while(|c| **c != '\n').count();
        } else if starts(i, "r#\"") {
            i += 3;
            while i < chars.len() && !starts(i, "\"#") {
                i += 1;
            }
            i += 2;
        } else if c == '"' {
            i += 1;
            while i < chars.len() && chars[i] != '"' {
                i += if chars[i] == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if c == '\'' {
            // A character, else a lifetime.
            i += match (chars.get(i + 1), chars.get(i + 2)) {
                (Some('\\'), _) => 2 + chars[i + 2..].iter().skip(1).take_while(|c| **c != '\'').count() + 2,
                (_, Some('\'')) => 3,
                _ => 1,
            };
        } else if is_part(&c) {
            let length = chars[i..].iter().take_while(|c| is_part(c)).count();
            found.push(chars[i..i + length].iter().collect());
            i += length;
        } else {
            let length = if starts(i, "::") { 2 } else { 1 };
            found.extend((!c.is_whitespace()).then(|| chars[i..i + length].iter().collect::<String>()));
            i += length;
        }
    }
    found
}

#[test]
fn names_are_followed_to_their_files() {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let modules = Modules::of(vec![
        source(
            "tile-ir/src/ir/mod.rs",
            "pub mod value;\npub use value::{Value, Type as Ty};\npub struct Func;",
        ),
        source(
            "tile-ir/src/ir/value.rs",
            "use super::Func; // use super::Nothing\npub struct Value; pub struct Type;",
        ),
        source(
            "lowering/src/emit.rs",
            "use tile_ir::ir::{self, Ty};\nfn f(x: ir::Func) { \"crate::lib::y\"; }",
        ),
        source(
            "lowering/src/lib.rs",
            "mod emit;\nfn g() { emit::f() }\n#[cfg(test)]\nmod tests { use tile_ir::ir::Ty; }",
        ),
    ]);
    let imports = modules.imports();
    let expected: [(&str, &[&str]); 4] = [
        ("lowering/src/emit.rs", &["tile-ir/src/ir/mod.rs", "tile-ir/src/ir/value.rs"]),
        ("lowering/src/lib.rs", &["lowering/src/emit.rs"]),
        ("tile-ir/src/ir/mod.rs", &[]),
        ("tile-ir/src/ir/value.rs", &["tile-ir/src/ir/mod.rs"]),
    ];
    for (file, files) in expected {
        assert_eq!(imports[file].iter().copied().collect::<Vec<_>>(), files, "{file}");
    }
}

//! The files of a crate and which of them name items of which others.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::Graph;
use super::reader::{How, Named, named};

/// A path from the root of the crate.
type Path = Vec<String>;

/// The module of a file.
struct FileModule {
    file: String,
    named: Vec<Named>,
    /// By the name that `use` gives, behind the modules within the file: where in the crate it is, or `None` of another crate.
    aliases: BTreeMap<Path, Option<Path>>,
}

/// The modules of a crate that are files.
struct Modules(BTreeMap<Path, FileModule>);

/// How often a name may stand for another one.
const RENAMINGS: usize = 16;

/// For each file those that have items which it names. A name that a module only hands on leads to the file that declares it, and a
/// module that hands on names of the modules inside it does not import these.
pub fn imports<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Graph {
    let modules = Modules::read(files);
    let mut graph = Graph::new();
    for (path, module) in &modules.0 {
        let targets = module.named.iter().filter_map(|named| modules.target(path, named));
        let others: BTreeSet<String> = targets.filter(|file| *file != module.file).collect();
        graph.insert(module.file.clone(), others);
    }
    graph
}

/// The module of a file by its path from the folder of the crate's root.
fn module_of(file: &str) -> Path {
    let mut path: Path = file.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    path.pop_if(|last| last == "mod" || last == "lib");
    path
}

impl Modules {
    fn read<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Modules {
        let read = |(file, text): (&str, &str)| {
            let module = FileModule { file: file.to_string(), named: named(text), aliases: BTreeMap::new() };
            (module_of(file), module)
        };
        let mut modules = Modules(files.into_iter().map(read).collect());
        // The second time for those that begin with a name of the first.
        for _ in 0..2 {
            let found: Vec<_> =
                modules.0.iter().map(|(path, module)| modules.aliases(path, module)).collect();
            for (module, aliases) in modules.0.values_mut().zip(found) {
                module.aliases = aliases;
            }
        }
        modules
    }

    fn aliases(&self, path: &[String], module: &FileModule) -> BTreeMap<Path, Option<Path>> {
        let alias = |named: &Named| match &named.how {
            How::Imported(name) | How::Exported(name) => {
                let key = named.scope.iter().chain([name]).cloned().collect();
                Some((key, self.absolute(path, named)))
            }
            How::Used => None,
        };
        module.named.iter().filter_map(alias).collect()
    }

    /// The path from the root, or `None` of what is no part of the crate.
    fn absolute(&self, module: &[String], named: &Named) -> Option<Path> {
        let mut place: Path = module.iter().chain(&named.scope).cloned().collect();
        let mut rest = named.path.as_slice();
        match rest.first() {
            Some(first) if first == "crate" => {
                place.clear();
                rest = &rest[1..];
            }
            Some(first) if first == "self" || first == "super" => {
                while let Some(first) = rest.first().filter(|first| *first == "self" || *first == "super") {
                    if first == "super" {
                        place.pop();
                    }
                    rest = &rest[1..];
                }
            }
            Some(first) => {
                let aliases = &self.0.get(module)?.aliases;
                let inner: Path = named.scope.iter().chain([first]).cloned().collect();
                let alias = aliases.get(&inner).or_else(|| aliases.get(std::slice::from_ref(first)));
                place = match alias {
                    Some(alias) => alias.clone()?,
                    None => module.iter().chain([first]).cloned().collect(),
                };
                if alias.is_none() && !self.0.contains_key(&place) {
                    return None;
                }
                rest = &rest[1..];
            }
            None => return None,
        }
        place.extend_from_slice(rest);
        Some(place)
    }

    /// The file that has what a module names; `None` of what is no item of the crate or is only handed on.
    fn target(&self, module: &[String], named: &Named) -> Option<String> {
        let path = self.absolute(module, named)?;
        let (declaring, is_module) = self.declaring(path)?;
        let hands_on = matches!(named.how, How::Exported(_)) && declaring.starts_with(module);
        (!hands_on && !is_module).then(|| self.0[&declaring].file.clone())
    }

    /// The module that declares an item, and whether the item is that module itself.
    fn declaring(&self, mut path: Path) -> Option<(Path, bool)> {
        for _ in 0..RENAMINGS {
            let inside = (0..=path.len()).rev().find(|&len| self.0.contains_key(&path[..len]))?;
            let (module, item) = path.split_at(inside);
            if item.is_empty() {
                return Some((path, true));
            }
            let aliases = &self.0[module].aliases;
            let found = (1..=item.len()).find_map(|end| Some((end, aliases.get(&item[..end])?.as_ref()?)));
            match found {
                Some((end, alias)) if alias[..] != path[..inside + end] => {
                    path = alias.iter().chain(&item[end..]).cloned().collect();
                }
                _ => return Some((module.to_vec(), false)),
            }
        }
        None
    }
}

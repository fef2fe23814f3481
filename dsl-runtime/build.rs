//! Tells cargo of the places where a `ptxas` may appear or change, so that kernels are then expanded again: a macro can
//! name variables for cargo to watch, but no files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The most entries of a directory that cargo looks through at every build.
const MAX_ENTRIES: usize = 4096;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os);
    let mut directories: Vec<PathBuf> = homes.map(|home| Path::new(&home).join("bin")).collect();
    directories.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    // `target/debug/build/dsl-runtime-0123456789abcdef/out`
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for path in watched(&directories, out.ancestors().nth(4).unwrap_or(&out)) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Returns the first `ptxas` of these directories, or else those directories where one may appear. Cargo looks through a
/// directory with all below it, so that only those of programs count, and none that a build writes to.
fn watched(directories: &[PathBuf], target: &Path) -> Vec<PathBuf> {
    let mut found = directories.iter().map(|directory| directory.join("ptxas"));
    if let Some(found) = found.find(|path| path.is_file()) {
        return vec![found];
    }
    let has_target = |path: &PathBuf| path.starts_with(target) || target.starts_with(path);
    directories
        .iter()
        .filter(|path| path.is_absolute() && !has_target(path) && is_flat(path))
        .cloned()
        .collect()
}

/// Whether a directory exists, and has no other one in it and not too many files.
fn is_flat(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let is_file = |entry: fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_dir());
    entries.flatten().enumerate().all(|(i, entry)| i < MAX_ENTRIES && is_file(entry))
}

#[cfg(test)]
mod tests {
    use super::{env, fs, watched};

    #[test]
    fn an_assembler_is_watched_or_where_it_may_appear() {
        let root = env::temp_dir().join(format!("fuse-watched-{}", std::process::id()));
        let [plain, later, nested, target] =
            ["plain", "later", "nested", "target"].map(|name| root.join(name));
        for directory in [&plain, &later, &nested.join("below"), &target] {
            fs::create_dir_all(directory).unwrap();
        }
        let directories = [
            "relative".into(),
            root.join("absent"),
            nested,
            plain.clone(),
            target.clone(),
            root.clone(),
            later.clone(),
        ];
        assert_eq!(watched(&directories, &target), [plain, later.clone()]);
        let assembler = later.join("ptxas");
        fs::write(&assembler, "").unwrap();
        assert_eq!(watched(&directories, &target), [assembler]);
        fs::remove_dir_all(&root).unwrap();
    }
}

//! Hashes the sources of the compiler, in this crate and in `tile-ir`: a change makes every cached result stale. Tests are
//! not part of it.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    visit(Path::new("../tile-ir/src"), &mut hash);
    visit(Path::new("src"), &mut hash);
    println!("cargo::rustc-env=FUSE_COMPILER_HASH={hash:016x}");
}

/// FNV-1a over names and contents in a fixed order.
fn visit(path: &Path, hash: &mut u64) {
    let mut entries: Vec<_> =
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let is_test = |entry: &PathBuf| entry.ends_with("tests") || entry.ends_with("testing.rs");
    for entry in entries.into_iter().filter(|entry| !is_test(entry)) {
        println!("cargo::rerun-if-changed={}", entry.display());
        if entry.is_dir() {
            visit(&entry, hash);
            continue;
        }
        let name = entry.to_string_lossy().into_owned();
        let contents = fs::read(&entry).unwrap_or_default();
        for byte in name.as_bytes().iter().chain(&contents) {
            *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

//! A crate of somebody else, outside of the workspace: its kernels are made of the library's functions and its own, its tests pass on the best
//! device that there is, and editors find their way through them.

mod editor;

use std::path::{Path, PathBuf};
use std::process::Command;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// The folder of the crate, with the versions of the workspace.
fn versioned_folder() -> PathBuf {
    let folder = workspace().join("tests/external/kernels");
    std::fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock"))
        .expect("the workspace's versions");
    folder
}

/// The folder that the tests themselves are built in.
fn target_folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder")
}

/// Runs cargo in the crate with the workspace's profiles and versions, so that what both need is built once.
fn cargo(arguments: &[&str]) -> (bool, String) {
    let folder = versioned_folder();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).args(["--offline", "--config"]).arg(workspace().join("Cargo.toml"));
    command.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    let output = command.env("CARGO_TARGET_DIR", target_folder()).output().expect("cargo runs");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

#[test]
fn kernels_are_made_of_the_librarys_functions() {
    let _one = fuse_tests::alone();
    let (passed, text) = cargo(&["test", "--lib"]);
    assert!(passed && text.contains("3 passed"), "{text}");
}

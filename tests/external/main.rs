//! A crate of somebody else, outside of the workspace: its kernels are made of the library's functions and its own, and its tests pass on the best
//! device that there is.

use std::path::Path;
use std::process::Command;

/// Runs cargo in the crate with the workspace's profiles and versions, so that what both need is built once.
fn cargo(arguments: &[&str]) -> (bool, String) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("external/kernels");
    std::fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the workspace's versions");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).args(["--offline", "--config"]).arg(workspace.join("Cargo.toml"));
    command.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    // Of the folder that the tests themselves are built in.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let output = command.env("CARGO_TARGET_DIR", target).output().expect("cargo runs");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

#[test]
fn kernels_are_made_of_the_librarys_functions() {
    let (passed, text) = cargo(&["test", "--lib"]);
    assert!(passed && text.contains("2 passed"), "{text}");
}

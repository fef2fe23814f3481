//! The code for less capable CPUs, each in a process of its own: the level is read once.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

const LEVEL: &str = "FUSE_CPU_LEVEL";

/// Whether this process runs the code for any CPU of the target.
pub fn is_baseline() -> bool {
    std::env::var(LEVEL).is_ok_and(|level| level == "baseline")
}

/// One trial for each lower level; none in a process that runs at one.
pub fn trials() -> Vec<Trial> {
    if std::env::var_os(LEVEL).is_some() || !cfg!(target_arch = "x86_64") {
        return vec![];
    }
    ["baseline", "v3"]
        .into_iter()
        .map(|level| Trial::test(format!("levels::{level}"), move || run(level)))
        .collect()
}

fn run(level: &str) -> Result<(), Failed> {
    let binary = std::env::current_exe()?;
    let output =
        Command::new(binary).env(LEVEL, level).env("FUSE_DEVICE", "cpu").arg("--color=never").output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let failures = text.split_once("\nfailures:").map_or(text.as_ref(), |(_, failures)| failures);
    Err(format!("with {LEVEL}={level}: {failures}").into())
}

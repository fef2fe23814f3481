//! What the environment and the command line of a build ask for.

use lowering::backend::host_asm::CpuLevel;
use lowering::backend::nvptx::Arch;
use lowering::driver::options::{BuildOptions, debug_assertions};

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

#[test]
fn debug_assertions_are_those_of_rustc() {
    for line in [
        "rustc lib.rs",
        "rustc -C opt-level=0 lib.rs",
        "rustc -Copt-level=3 -C debug-assertions=on",
        "rustc --codegen debug-assertions -O",
        "rustc --codegen=debug-assertions=yes -O",
        "rustc -O -C opt-level=0",
        "rustc -C debug-assertions=off -Cdebug-assertions=true",
    ] {
        assert!(debug_assertions(&words(line)), "{line}");
    }
    for line in [
        "rustc -O lib.rs",
        "rustc -C opt-level=s",
        "rustc -Cdebug-assertions=no lib.rs",
        "rustc -C debug-assertions=on -C debug-assertions=off",
    ] {
        assert!(!debug_assertions(&words(line)), "{line}");
    }
}

#[test]
fn architectures_are_those_that_are_named() {
    let named = |text: &str| {
        let set = |name: &str| (name == "FUSE_ARCH").then(|| text.into());
        BuildOptions::read(&words("rustc lib.rs"), &set).map(|options| options.archs)
    };
    assert_eq!(named(""), Ok(vec![Arch::SM_80, Arch::SM_90A]));
    assert_eq!(named("none"), Ok(vec![]));
    assert_eq!(named("sm_90a"), Ok(vec![Arch::SM_90A]));
    assert_eq!(named("sm_90a, sm_80,sm_90a"), Ok(vec![Arch::SM_80, Arch::SM_90A]));
    let message = "FUSE_ARCH names `none`: architectures are sm_80 and sm_90a, or none";
    assert_eq!(named("sm_80,none"), Err(message.to_string()));
}

#[test]
fn levels_are_those_that_are_named() {
    let named = |triple: &str, text: &str| {
        let set = |name: &str| (name == "FUSE_CPU_LEVELS").then(|| text.into());
        let options = BuildOptions::read(&words(&format!("rustc --target {triple} lib.rs")), &set);
        options.map(|options| options.host.map_or(vec![], |host| host.levels))
    };
    use CpuLevel::{Baseline, V3, V4};
    let [x86, arm] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
    assert_eq!(named(x86, ""), Ok(vec![Baseline, V3, V4]));
    assert_eq!(named(x86, "v4, baseline,v4"), Ok(vec![Baseline, V4]));
    assert_eq!(named(arm, "baseline"), Ok(vec![Baseline]));
    assert_eq!(named("wasm32-unknown-unknown", "v3"), Ok(vec![]));
    let message = |text: &str| Err(text.to_string());
    let unknown = "FUSE_CPU_LEVELS names `v2`: levels are baseline, v3 and v4, or native";
    assert_eq!(named(x86, "v3,v2"), message(unknown));
    assert_eq!(named(arm, "v3"), message("FUSE_CPU_LEVELS names `v3`: levels are baseline, or native"));
    let [own, other] = if cfg!(target_arch = "x86_64") { [x86, arm] } else { [arm, x86] };
    assert_eq!(named(own, "native"), Ok(vec![CpuLevel::of_this_machine()]));
    let elsewhere = format!("FUSE_CPU_LEVELS is `native`, and the crate is built for another CPU, `{other}`");
    assert_eq!(named(other, "native"), message(&elsewhere));
}

#[test]
fn the_setting_wins_over_the_build() {
    let report = |line: &str, text: &str| {
        let set = |name: &str| (name == "FUSE_BOUNDS_REPORT").then(|| text.into());
        BuildOptions::read(&words(line), &set).map(|options| options.report)
    };
    let (debug, release) = ("rustc lib.rs", "rustc -O lib.rs");
    assert_eq!([report(debug, ""), report(release, "")], [Ok(true), Ok(false)]);
    assert_eq!([report(debug, "0"), report(release, "1")], [Ok(false), Ok(true)]);
    let message = "FUSE_BOUNDS_REPORT is `yes`: expected 0 or 1";
    assert_eq!(report(debug, "yes"), Err(message.to_string()));
}

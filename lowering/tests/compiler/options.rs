//! What the environment and the command line of a build ask for.

use super::site::{Site, in_own_process};
use lowering::backend::host_asm::CpuLevel;
use lowering::backend::nvptx::Arch;
use lowering::backend::ptxas;
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

/// The assembler that is found with these variables in a directory with `one/ptxas` and `cuda/bin/ptxas`, and whether the search
/// path decided.
fn found(variables: &[(&str, &str)]) -> Result<(Option<String>, bool), String> {
    let site = Site::new();
    let root = format!("{}/", site.path("").display()).replace("//", "/");
    for directory in ["one", "none", "cuda/bin"] {
        std::fs::create_dir_all(site.path(directory)).expect("a directory");
    }
    for file in ["one/ptxas", "cuda/bin/ptxas"] {
        std::fs::write(site.path(file), "").expect("a file");
    }
    let set = |name: &str| {
        let (_, value) = variables.iter().find(|(variable, _)| *variable == name)?;
        Some(value.replace("SITE/", &root).into())
    };
    let plain = |path: std::path::PathBuf| path.display().to_string().replace(&root, "SITE/");
    let search = ptxas::find(&set).map_err(|what| what.replace(&root, "SITE/"))?;
    Ok((search.found.map(plain), search.used_path))
}

#[test]
fn the_assembler_is_the_one_that_is_named_or_the_first() {
    let some = |path: &str| Some(path.to_string());
    assert_eq!(found(&[]), Ok((None, true)));
    assert_eq!(found(&[("PATH", "SITE/none")]), Ok((None, true)));
    assert_eq!(found(&[("PATH", "SITE/none:SITE/one")]), Ok((some("SITE/one/ptxas"), true)));
    let home = [("PATH", "SITE/one"), ("CUDA_HOME", "SITE/none"), ("CUDA_PATH", "SITE/cuda")];
    assert_eq!(found(&home), Ok((some("SITE/cuda/bin/ptxas"), false)));
    assert_eq!(found(&[("FUSE_PTXAS", "none"), home[0]]), Ok((None, false)));
    assert_eq!(found(&[("FUSE_PTXAS", "SITE/one/ptxas"), home[2]]), Ok((some("SITE/one/ptxas"), false)));
    assert_eq!(found(&[("FUSE_PTXAS", "ptxas"), home[0]]), Ok((some("SITE/one/ptxas"), true)));
    let message =
        "FUSE_PTXAS is `SITE/gone`, which is not a file: expected the path of NVIDIA's `ptxas`, or none";
    assert_eq!(found(&[("FUSE_PTXAS", "SITE/gone"), home[0]]), Err(message.to_string()));
}

/// Cargo expands a kernel again where another search path may lead to another assembler, and only there.
#[test]
fn the_search_path_is_tracked_where_it_decides() {
    in_own_process(|| {
        let site = Site::new();
        let source = "#[fuse_kernel] pub fn fill(out: &mut [f32]) { tl::store(out, 0.0); }";
        let tracks = |uses_path| {
            let options = BuildOptions { uses_path, archs: vec![], ..site.options() };
            site.expand(source, &options).contains("option_env ! (\"PATH\")")
        };
        assert_eq!([false, true].map(tracks), [false, true]);
    });
}

/// A library and a program of one package have one name, and may have one module in common.
#[test]
fn crates_of_one_name_are_told_apart() {
    let name = |line: &str| BuildOptions::read(&words(line), &|_| None).expect("options").crate_name;
    assert_eq!(name("rustc --crate-name k lib.rs"), "k");
    assert_eq!(name("rustc --crate-name k lib.rs -C metadata=12 -C extra-filename=-12"), "k12");
    assert_eq!(name("rustc --crate-name k main.rs -Cmetadata=34"), "k34");
}

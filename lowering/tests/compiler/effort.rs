//! How much is compiled, by who asks: a build everything, `cargo check` and rustdoc every error and no code, a language
//! server only the signature. An injected fault shows that nothing is lowered where it does not occur.

use expect_test::{Expect, expect};

use super::site::{Site, in_own_process};
use lowering::backend::inject::Injection;
use lowering::driver::options::{BuildOptions, Effort};

const WRONG: &str = "#[fuse_kernel(N = [32])]
fn fill<const N: usize>(out: &mut [f32]) {
    tl::store(out + tl::arange(0, N), tl::zeros::<i32>([N]));
}";

/// A command line and the variables set; what the build then does.
fn check_effort(line: &str, variables: &[&str], expected: (Effort, Expect)) {
    let site = Site::new();
    let out = site.path("deps").display().to_string();
    let line: Vec<String> = line.split(' ').chain(["--out-dir", &out]).map(str::to_string).collect();
    let set = |name: &str| variables.contains(&name).then(|| "1".into());
    let options = BuildOptions::read(&line, &set).expect("options");
    assert_eq!(options.effort, expected.0);
    let options = BuildOptions { inject: Some(Injection::Abort), ..options };
    let right = WRONG.replace("i32", "f32");
    let mut said = String::new();
    for source in [WRONG, &right] {
        let text = site.compile(source, &options);
        said += if text.is_empty() { "nothing\n" } else { &text };
    }
    expected.1.assert_eq(&said);
    if options.effort != Effort::Full {
        assert_eq!(site.files(""), Vec::<String>::new(), "nothing is written");
    }
}

#[test]
fn a_build_lowers() {
    in_own_process(|| {
        check_effort(
            "rustc --crate-name site --emit=dep-info,metadata,link -O",
            &[],
            (
                Effort::Full,
                expect![[r#"
        3: `tl::zeros::<i32>([N])`: a value stored to `out` is f32, found i32
            help: convert it: `.to::<f32>()`
        2: `fill`: internal error: `fill` (N = 32) failed in the stage PTX: ended by SIGABRT
            the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
            note: this is a mistake of the compiler, not of the kernel
    "#]],
            ),
        );
    });
}

#[test]
fn a_check_finds_mistakes_and_lowers_nothing() {
    in_own_process(|| {
        check_effort(
            "rustc --crate-name site --emit=dep-info,metadata",
            &[],
            (
                Effort::Check,
                expect![[r#"
        3: `tl::zeros::<i32>([N])`: a value stored to `out` is f32, found i32
            help: convert it: `.to::<f32>()`
        nothing
    "#]],
            ),
        );
    });
}

/// A search for doctests, which does not say what it emits.
#[test]
fn documentation_finds_mistakes_and_lowers_nothing() {
    in_own_process(|| {
        check_effort(
            "/usr/bin/rustdoc --crate-name site --test",
            &[],
            (
                Effort::Check,
                expect![[r#"
        3: `tl::zeros::<i32>([N])`: a value stored to `out` is f32, found i32
            help: convert it: `.to::<f32>()`
        nothing
    "#]],
            ),
        );
    });
}

#[test]
fn a_language_server_gets_the_signature() {
    in_own_process(|| {
        let server = &["RUST_ANALYZER_INTERNALS_DO_NOT_USE"];
        check_effort(
            "rustc --crate-name site --emit=dep-info,metadata,link -O",
            server,
            (
                Effort::Signature,
                expect![[r#"
        nothing
        nothing
    "#]],
            ),
        );
    });
}

/// The mistake in a variable, as the build reports it.
fn check_variable(name: &str, value: &str, expected: Expect) {
    let set = |asked: &str| (asked == name).then(|| value.into());
    expected.assert_eq(&BuildOptions::read(&[], &set).expect_err("a mistake"));
}

#[test]
fn variables_that_cannot_be_understood() {
    in_own_process(|| {
        check_variable(
            "FUSE_ARCH",
            "sm_80,sm_75",
            expect!["FUSE_ARCH names `sm_75`: architectures are sm_80 and sm_90a, or none"],
        );
        check_variable(
            "FUSE_DUMP",
            "tile,ptxx",
            expect![
                "FUSE_DUMP names `ptxx`: stages are tile, layout, schedule, mlir, llvm, ptx and asm, or all"
            ],
        );
        check_variable(
            "FUSE_INJECT",
            "explode",
            expect!["FUSE_INJECT names `explode`: failures are abort, crash, hang, panic and select"],
        );
    });
}

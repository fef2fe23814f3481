//! Every failure while a kernel is lowered is an error at that kernel, and the process survives.

use std::io::Write;
use std::time::Duration;

use expect_test::{Expect, expect};

use super::site::{Site, in_own_process, make_executable};
use lowering::backend::inject::Injection;
use lowering::backend::sandbox::{self, LIMIT, WorkQueue};
use lowering::driver::options::BuildOptions;

const KERNEL: &str = "#[fuse_kernel(N = [32, 64])]
pub fn fill<const N: usize>(out: &mut [f32]) {
    tl::store(out + tl::arange(0, N), tl::zeros::<f32>([N]));
}";

/// The errors of a build with this fault.
fn check_contained(injection: Injection, expected: Expect) {
    let site = Site::new();
    let limit = if injection == Injection::Hang { Duration::from_millis(1500) } else { site.options().limit };
    let options = BuildOptions { inject: Some(injection), limit, ..site.options() };
    expected.assert_eq(&site.compile(KERNEL, &options));
    assert_eq!(site.files("fuse-dump"), ["fill.N32.failed.tile"], "the tile IR is where the message says");
    assert_eq!(site.files("fuse-cache"), Vec::<String>::new(), "nothing of a failed build is kept");
    // The next build is not affected.
    assert_eq!(site.compile(KERNEL, &site.options()), "");
    assert_eq!(site.files("fuse-cache").len(), 2);
}

#[test]
fn a_failed_assertion() {
    in_own_process(|| {
        check_contained(
            Injection::Abort,
            expect![[r#"
            2: `fill`: internal error: `fill` (N = 32) failed in the stage PTX: ended by SIGABRT
                the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
                note: this is a mistake of the compiler, not of the kernel
        "#]],
        );
    });
}

#[test]
fn a_crash() {
    in_own_process(|| {
        check_contained(
            Injection::Crash,
            expect![[r#"
        2: `fill`: internal error: `fill` (N = 32) failed in the stage PTX: ended by SIGSEGV
            the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
            note: this is a mistake of the compiler, not of the kernel
    "#]],
        );
    });
}

#[test]
fn a_hang() {
    in_own_process(|| {
        check_contained(
            Injection::Hang,
            expect![[r#"
            2: `fill`: internal error: `fill` (N = 32) failed in the stage PTX: did not finish in 1.5 s
                the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
                note: this is a mistake of the compiler, not of the kernel
        "#]],
        );
    });
}

#[test]
fn a_panic() {
    in_own_process(|| {
        check_contained(
            Injection::Panic,
            expect![[r#"
            2: `fill`: internal error: `fill` (N = 32) failed in the stage PTX: panicked: injected
                the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
                note: this is a mistake of the compiler, not of the kernel
        "#]],
        );
    });
}

/// The stage is known, and the variant, though a backtrace follows.
#[test]
fn a_panic_with_a_backtrace() {
    in_own_process(|| {
        let frames = (0..30).map(|frame| format!("frame {frame}\n"));
        let backtrace: String = frames.collect();
        std::panic::set_hook(Box::new(move |_| {
            let _ = std::io::stderr().write_all(backtrace.as_bytes());
        }));
        check_contained(
            Injection::Panic,
            expect![[r#"
            2: `fill`: internal error: `fill` (N = 32) failed in the stage PTX: panicked: injected
                frame 10
                frame 11
                frame 12
                frame 13
                frame 14
                frame 15
                frame 16
                frame 17
                frame 18
                frame 19
                frame 20
                frame 21
                frame 22
                frame 23
                frame 24
                frame 25
                frame 26
                frame 27
                frame 28
                frame 29
                the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
                note: this is a mistake of the compiler, not of the kernel
        "#]],
        );
    });
}

#[test]
fn an_intrinsic_that_the_target_lacks() {
    in_own_process(|| {
        check_contained(
            Injection::Select,
            expect![[r#"
            2: `fill`: internal error: `fill` (N = 32) failed in the stage PTX: ended by SIGABRT
                LLVM ERROR: Cannot select: intrinsic %llvm.x86.rdtsc
                the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
                note: this is a mistake of the compiler, not of the kernel
        "#]],
        );
    });
}

#[test]
fn a_missing_assembler() {
    in_own_process(|| {
        let site = Site::new();
        let options = BuildOptions { ptxas: Some(site.path("ptxas")), ..site.options() };
        expect![[r#"
        2: `fill`: internal error: `fill` (N = 32) failed in the stage ptxas: SITE/ptxas: No such file or directory (os error 2)
            the tile IR is in SITE/fuse-dump/fill.N32.failed.tile
            note: this is a mistake of the compiler, not of the kernel
    "#]].assert_eq(&site.compile(KERNEL, &options));
    });
}

#[test]
fn children_take_each_number_once() {
    in_own_process(|| {
        let queue = WorkQueue::new(100).expect("a queue");
        let take_all = || Ok(std::iter::from_fn(|| queue.take()).collect::<Vec<usize>>());
        let children: Vec<sandbox::Child> =
            (0..3).map(|_| sandbox::start(take_all).expect("a process")).collect();
        let taken =
            children.into_iter().flat_map(|child| child.finish::<Vec<usize>>(LIMIT).expect("an answer"));
        let mut taken: Vec<usize> = taken.collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..100).collect::<Vec<usize>>());
        assert_eq!(
            WorkQueue::new(1 << 20).err().expect("too many").what,
            "1048576 numbers do not fit into a pipe"
        );
    });
}

#[test]
fn many_stages_that_together_take_longer_than_one_may() {
    in_own_process(|| {
        let limit = Duration::from_millis(1500);
        let child = sandbox::start(|| {
            for stage in 0..5 {
                // Past the test runner, which would keep it.
                let _ = writeln!(std::io::stderr(), "stage {stage}");
                std::thread::sleep(limit / 4);
            }
            Ok(7)
        });
        assert_eq!(child.expect("a process").finish::<i32>(limit).expect("an answer"), 7);
    });
}

#[test]
fn a_register_limit_below_what_instructions_need() {
    in_own_process(|| {
        let site = Site::new();
        let ptxas = site.path("ptxas");
        let said = "ptxas fatal   : (C7602) Insufficient registers (32) to compile instruction at line 720 in function f. \
                Try to compile with register target of 90 or higher.";
        std::fs::write(&ptxas, format!("#!/bin/sh\necho '{said}' >&2\nexit 255\n")).expect("a file");
        make_executable(&ptxas);
        let options = BuildOptions { ptxas: Some(ptxas), ..site.options() };
        let body = "fn fill<const N: usize>(x: &mut [f32]) {
    tl::store(x + tl::arange(0, N), 0.0);
}";
        expect![[r#"
        1: `32`: `fill` (N = 64) has too few registers a thread by this `maxnreg`
            help: it needs 90 or more here; smaller tiles or more warps need fewer
    "#]]
        .assert_eq(&site.compile(&format!("#[fuse_kernel(N = [64], maxnreg = 32)]\n{body}"), &options));
        let configs =
            "#[fuse_kernel(configs = [{ N: 32 }, { N: 64, maxnreg: 40 }, { N: 128, maxnreg: 40 }])]";
        let plain = site.compile(&format!("{configs}\n{body}"), &options);
        assert!(plain.contains("internal error: `fill` (N = 32) failed in the stage ptxas"), "{plain}");
        let configs = configs.replacen("{ N: 32 }, ", "", 1);
        expect![[r#"
        1: `40`: `fill` (N = 64) has too few registers a thread by this `maxnreg`
            help: it needs 90 or more here; smaller tiles or more warps need fewer
    "#]]
        .assert_eq(&site.compile(&format!("{configs}\n{body}"), &options));
    });
}

//! Every failure while a kernel is lowered is an error at that kernel, and the process survives.

use std::fs;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use expect_test::{Expect, expect};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{getpid, pipe};

use super::site::{Site, in_limited_process, in_own_process, make_executable};
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

/// A program for the site that stands in for an assembler.
fn script(site: &Site, text: &str) -> PathBuf {
    let path = site.path("ptxas");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
    make_executable(&path);
    path
}

/// What a build with this assembler says.
fn check_assembler(text: &str, expected: Expect) {
    let site = Site::new();
    let options = BuildOptions { ptxas: Some(script(&site, text)), ..site.options() };
    expected.assert_eq(&site.compile(KERNEL, &options));
    assert_eq!(site.files("fuse-cache"), Vec::<String>::new(), "nothing of a failed build is kept");
    assert_eq!(site.files("fuse-dump"), Vec::<String>::new(), "nobody has to look into the compiler");
}

#[test]
fn an_assembler_that_cannot_be_run() {
    in_own_process(|| {
        let site = Site::new();
        let options = BuildOptions { ptxas: Some(site.path("ptxas")), ..site.options() };
        expect![[r#"
            2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: SITE/ptxas cannot be run: No such file or directory (os error 2)
                help: set FUSE_PTXAS to the `ptxas` of CUDA 12 or later, or to `none` to build without it
        "#]].assert_eq(&site.compile(KERNEL, &options));
        fs::write(site.path("ptxas"), "no program").expect("a file");
        expect![[r#"
            2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: SITE/ptxas cannot be run: Permission denied (os error 13)
                help: set FUSE_PTXAS to the `ptxas` of CUDA 12 or later, or to `none` to build without it
        "#]].assert_eq(&site.compile(KERNEL, &options));
    });
}

#[test]
fn a_program_that_is_no_assembler() {
    in_own_process(|| {
        check_assembler(
            "exit 0",
            expect![[r#"
                2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: SITE/ptxas left no image: No such file or directory (os error 2)
                    help: set FUSE_PTXAS to the `ptxas` of CUDA 12 or later, or to `none` to build without it
            "#]],
        );
        check_assembler(
            "exit 1",
            expect![[r#"
                2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: SITE/ptxas ended with exit status: 1 and no message
                    help: set FUSE_PTXAS to the `ptxas` of CUDA 12 or later, or to `none` to build without it
            "#]],
        );
    });
}

#[test]
fn an_assembler_that_is_too_old() {
    in_own_process(|| {
        check_assembler(
            "echo \"ptxas fatal   : Unsupported .version 8.1; current version is '7.4'\" >&2; exit 255",
            expect![[r#"
                2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: ptxas rejects the PTX for sm_80: ptxas fatal   : Unsupported .version 8.1; current version is '7.4'
                    help: set FUSE_PTXAS to the `ptxas` of CUDA 12 or later, or to `none` to build without it
            "#]],
        );
    });
}

/// An assembler, or the child that runs it, which the system ends because memory ran out.
#[test]
fn a_process_that_is_killed() {
    in_own_process(|| {
        check_assembler(
            "kill -9 $$",
            expect![[r#"
                2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: SITE/ptxas was ended by SIGKILL, as the system does where memory runs out
                    help: free memory, or build fewer crates at once: `cargo build -j 1`
            "#]],
        );
        let site = Site::new();
        let options = BuildOptions { ptxas: Some(script(&site, "kill -9 $PPID")), ..site.options() };
        expect![[r#"
            2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: ended by SIGKILL, as the system does where memory runs out
                help: free memory, or build fewer crates at once: `cargo build -j 1`
        "#]]
        .assert_eq(&site.compile(KERNEL, &options));
    });
}

#[test]
fn too_few_descriptors() {
    in_limited_process("ulimit -n 6;", || {
        let site = Site::new();
        expect![[r#"
            2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage lowering: pipe: EMFILE: Too many open files
                help: allow more open files: `ulimit -n 1024`
        "#]]
        .assert_eq(&site.compile(KERNEL, &site.options()));
    });
}

/// What the standard library of Rust writes where memory runs out.
#[test]
fn a_child_without_memory() {
    in_own_process(|| {
        let child = sandbox::start::<()>(|| {
            let layout = std::alloc::Layout::new::<u64>();
            std::alloc::handle_alloc_error(layout)
        });
        let failure = child.expect("a process").finish::<()>(LIMIT).expect_err("it has no memory");
        assert_eq!(failure.what, "ended by SIGABRT");
        assert_eq!(failure.cure, Some("free memory, or build fewer crates at once: `cargo build -j 1`"));
    });
}

/// A child whose parent is killed ends too, though it hangs, and though the parent may be gone before the child first runs.
#[test]
fn a_child_ends_with_its_parent() {
    in_own_process(|| {
        let (ended, alive) = pipe().expect("a pipe");
        let parent = sandbox::start::<()>(|| {
            let hangs = || {
                std::thread::sleep(Duration::from_secs(600));
                Ok(())
            };
            let _child = sandbox::start::<()>(hangs).expect("a process");
            kill(getpid(), Signal::SIGKILL).map_err(|error| error.to_string())
        });
        let failure = parent.expect("a process").finish::<()>(LIMIT).expect_err("it is killed");
        assert_eq!(failure.what, "ended by SIGKILL, as the system does where memory runs out");
        // The child has the other end for as long as it lives.
        drop(alive);
        let mut waiting = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waiting, 10_000u16), Ok(1), "the child is alive");
        assert_eq!(File::from(ended).read(&mut [0]).expect("an end"), 0);
    });
}

/// An assembler that hangs ends with the child that runs it.
#[test]
fn an_assembler_ends_with_its_child() {
    in_own_process(|| {
        let site = Site::new();
        let id = site.path("id");
        let ptxas = script(&site, &format!("echo $$ > {}; exec sleep 600", id.display()));
        let limit = Duration::from_millis(1500);
        let options = BuildOptions { ptxas: Some(ptxas), limit, ..site.options() };
        let said = site.compile(KERNEL, &options);
        assert!(said.contains("did not finish in 1.5 s"), "{said}");
        let id = fs::read_to_string(id).expect("it ran");
        // A process that has ended is a zombie until whoever adopted it asks.
        let is_alive = || {
            let status = fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
            status
                .rsplit(')')
                .next()
                .is_some_and(|rest| !matches!(rest.trim().chars().next(), None | Some('Z')))
        };
        for _ in 0..100 {
            if !is_alive() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the assembler is alive");
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
        let said = "ptxas fatal   : (C7602) Insufficient registers (32) to compile instruction at line 720 in function f. \
                Try to compile with register target of 90 or higher.";
        let ptxas = script(&site, &format!("echo '{said}' >&2; exit 255"));
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

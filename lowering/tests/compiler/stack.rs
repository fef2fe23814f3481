//! A macro where the system limits the addresses of a process (`ulimit -v`).

use std::fs;

use expect_test::{Expect, expect};
use nix::sys::resource::{Resource, setrlimit};

use super::site::{Site, in_own_process};

const KERNEL: &str = "#[fuse_kernel(N = [32, 64])]
pub fn fill<const N: usize>(out: &mut [f32]) {
    tl::store(out + tl::arange(0, N), tl::zeros::<f32>([N]));
}";

/// The mistakes of a build that may have so many bytes beyond those that this process has.
fn check_with(bytes: u64, expected: Expect) {
    let site = Site::new();
    let options = site.options();
    // Whatever a first build allocates once.
    assert_eq!(site.compile(KERNEL, &options), "");
    let pages = fs::read_to_string("/proc/self/statm").expect("the pages of this process");
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number of pages");
    let limit = pages * 4096 + bytes;
    setrlimit(Resource::RLIMIT_AS, limit, limit).expect("a limit");
    expected.assert_eq(&site.compile(&KERNEL.replace("64", "128"), &options));
}

#[test]
fn less_stack_where_there_are_few_addresses() {
    in_own_process(|| check_with(700 << 20, expect![[""]]));
}

#[test]
fn an_error_where_there_are_too_few() {
    in_own_process(|| {
        check_with(
            20 << 20,
            expect![[r#"
        1: ``: there is no memory for a stack of 16 MiB, which a kernel is compiled on
            help: raise the limit of addresses that this process may have: `ulimit -v` says what it is, in KiB
    "#]],
        )
    });
}

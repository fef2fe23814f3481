//! The artifact cache: a kernel is lowered again only when an input of the result changes; and dumps. A counting assembler
//! replaces NVIDIA's.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use expect_test::{Expect, expect};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::site::{Site, in_limited_process, in_own_process, make_executable};
use lowering::backend::cache::{ArtifactCache, CacheKey};
use lowering::backend::nvptx::Arch;
use lowering::backend::sandbox;
use lowering::driver::options::{BuildOptions, DumpStage};

const KERNEL: &str = "#[fuse_kernel(N = [32])]
fn fill<const N: usize>(out: &mut [f32]) {
    tl::store(out + tl::arange(0, N), tl::zeros::<f32>([N]));
}";

/// An assembler that writes a line to `count` for each call.
fn counting(site: &Site, name: &str) -> PathBuf {
    let path = site.path(name);
    let count = site.path("count");
    // `-arch=sm_80 -v -o IMAGE SOURCE`
    fs::write(&path, format!("#!/bin/sh\necho $1 >> {}\necho {name} > \"$4\"\n", count.display()))
        .expect("a file");
    make_executable(&path);
    path
}

fn options(site: &Site) -> BuildOptions {
    BuildOptions { ptxas: Some(counting(site, "ptxas")), archs: vec![Arch::SM_80], ..site.options() }
}

/// How often code was assembled so far.
fn lowered(site: &Site) -> usize {
    fs::read_to_string(site.path("count")).unwrap_or_default().lines().count()
}

/// Whether a build with `source` and `options` lowers anything, after one of [`KERNEL`] with [`options`].
fn lowers(source: &str, change: impl FnOnce(&Site, &mut BuildOptions)) -> bool {
    let site = Site::new();
    let mut options = options(&site);
    assert_eq!(site.compile(KERNEL, &options), "");
    let before = lowered(&site);
    assert_eq!(before, 2, "once for each specialization");
    change(&site, &mut options);
    assert_eq!(site.compile(source, &options), "");
    lowered(&site) > before
}

#[test]
fn embedded_code_is_deflated_unless_disabled() {
    in_own_process(|| {
        let site = Site::new();
        let expansion = |deflate| site.expand(KERNEL, &BuildOptions { deflate, ..options(&site) });
        let [deflated, plain] = [true, false].map(expansion);
        let count = |text: &str, pattern: &str| text.matches(pattern).count();
        assert_eq!([&deflated, &plain].map(|text| count(text, "Packed :: Deflated")), [4, 0]);
        assert_eq!([&deflated, &plain].map(|text| count(text, "Packed :: Plain")), [0, 4]);
        assert_eq!([&deflated, &plain].map(|text| count(text, ".visible .entry fill")), [0, 2]);
    });
}

#[test]
fn the_same_again_is_taken_from_the_cache() {
    in_own_process(|| {
        assert!(!lowers(KERNEL, |_, _| {}));
        // The kernel's position and formatting do not matter.
        assert!(!lowers(&KERNEL.replace("\n", "\n\n"), |_, _| {}));
    });
}

#[test]
fn a_changed_input_is_lowered_again() {
    in_own_process(|| {
        assert!(lowers(
            &KERNEL.replace("zeros", "ones").replace("ones::<f32>([N])", "full([N], 1.0f32)"),
            |_, _| {}
        ));
        assert!(lowers(&KERNEL.replace("fill", "clear"), |_, _| {}), "another entry");
        assert!(lowers(&KERNEL.replace("[32]", "[64]"), |_, _| {}), "another variant");
        assert!(lowers(&KERNEL.replace("N = [32]", "N = [32], num_warps = 2"), |_, _| {}));
        assert!(lowers(&KERNEL.replace("N = [32]", "N = [32], unchecked"), |_, _| {}));
        assert!(lowers(KERNEL, |_, options| options.archs = vec![Arch::SM_80, Arch::SM_90A]));
        assert!(lowers(KERNEL, |_, options| options.host = None));
        assert!(lowers(KERNEL, |_, options| options.report = true));
    });
}

#[test]
fn another_assembler_assembles_again() {
    in_own_process(|| {
        assert!(lowers(KERNEL, |site, options| options.ptxas = Some(counting(site, "ptxas-2"))));
        // Another one under the same path.
        assert!(lowers(KERNEL, |_, options| {
            let path = options.ptxas.as_ref().expect("an assembler");
            let text = fs::read_to_string(path).expect("a script");
            fs::write(path, text + "\n# newer\n").expect("a file");
        }));
    });
}

#[test]
fn a_dump_lowers_again() {
    in_own_process(|| {
        assert!(lowers(KERNEL, |_, options| options.dump = vec![DumpStage::Ptx]));
    });
}

/// Entries of a cache that was tampered with.
fn survives(damage: fn(&mut Vec<u8>)) {
    let again = lowers(KERNEL, |site, _| {
        let names = site.files("fuse-cache");
        let [name] = &names[..] else { panic!("{names:?}") };
        let path = site.path("fuse-cache").join(name);
        let mut bytes = fs::read(&path).expect("an entry");
        damage(&mut bytes);
        fs::write(path, bytes).expect("an entry");
    });
    assert!(again, "a damaged entry is not used");
}

#[test]
fn a_damaged_entry_is_lowered_again() {
    in_own_process(|| {
        survives(|bytes| bytes.truncate(bytes.len() / 2));
        survives(|bytes| bytes.clear());
        survives(|bytes| bytes.push(0));
        // One letter of the PTX.
        survives(|bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
        survives(|bytes| bytes.reverse());
    });
}

/// The directory of a cache with the entries of two variants, and their names.
fn two_entries(site: &Site, options: &BuildOptions) -> (PathBuf, [String; 2]) {
    assert_eq!(site.compile(&KERNEL.replace("[32]", "[32, 64]"), options), "");
    let names = site.files("fuse-cache").try_into().expect("two entries");
    (site.path("fuse-cache"), names)
}

/// Entries that are whole, each under the name of the other one.
#[test]
fn exchanged_entries_are_lowered_again() {
    in_own_process(|| {
        let site = Site::new();
        let options = options(&site);
        let source = KERNEL.replace("[32]", "[32, 64]");
        let expansion = site.expand(&source, &options);
        let (cache, [one, other]) = two_entries(&site, &options);
        let before = lowered(&site);
        assert_eq!(before, 4, "each specialization of both, once");
        fs::rename(cache.join(&one), site.path("kept")).expect("an entry");
        fs::rename(cache.join(&other), cache.join(&one)).expect("an entry");
        fs::rename(site.path("kept"), cache.join(&other)).expect("an entry");
        assert_eq!(site.expand(&source, &options), expansion);
        assert_eq!(lowered(&site) - before, 4);
    });
}

/// Opening a pipe that nobody writes to would take forever.
#[test]
fn a_pipe_in_place_of_an_entry_is_lowered_again() {
    in_own_process(|| {
        assert!(lowers(KERNEL, |site, _| {
            let path = site.path("fuse-cache").join(&site.files("fuse-cache")[0]);
            fs::remove_file(&path).expect("an entry");
            mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
        }));
    });
}

/// Says to a copy of this program which directory it builds in.
const DIRECTORY: &str = "FUSE_TEST_DIRECTORY";

/// A compiler that is linked anew, with another LLVM for instance, takes nothing that the one before it left.
#[test]
fn another_linked_compiler_lowers_again() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let site = Site::at(directory.into());
        let ptxas = Some(site.path("ptxas"));
        let options = BuildOptions { ptxas, archs: vec![Arch::SM_80], ..site.options() };
        assert_eq!(site.compile(KERNEL, &options), "");
        // The directory is the other process's.
        return std::mem::forget(site);
    }
    let site = Site::new();
    counting(&site, "ptxas");
    let compiler = site.path("compiler");
    fs::copy(std::env::current_exe().expect("this program"), &compiler).expect("a copy");
    let build = || {
        let mut command = Command::new(&compiler);
        command.args(["--exact", "cache::another_linked_compiler_lowers_again", "--test-threads=1"]);
        let output = command.env(DIRECTORY, site.path("")).output().expect("a process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        lowered(&site)
    };
    assert_eq!([build(), build()], [2, 2]);
    let later = SystemTime::now() + Duration::from_secs(5);
    File::open(&compiler).expect("a program").set_modified(later).expect("a time");
    assert_eq!(build(), 4);
}

/// A disk that takes no more than 512 or 1024 bytes of a file.
const FULL_DISK: &str = "trap '' XFSZ; ulimit -f 1;";

#[test]
fn a_full_disk_costs_the_cache_alone() {
    in_limited_process(FULL_DISK, || {
        let site = Site::new();
        assert_eq!(site.compile(KERNEL, &BuildOptions { archs: vec![], ..site.options() }), "");
        assert_eq!(site.files("fuse-cache"), Vec::<String>::new(), "nothing partial is left");
    });
}

#[test]
fn a_full_disk_is_named_where_the_assembler_needs_it() {
    in_limited_process(FULL_DISK, || {
        let site = Site::new();
        let said = site.compile(KERNEL, &options(&site));
        let [first, last] = [said.lines().next(), said.lines().last()].map(Option::unwrap_or_default);
        let start =
            "2: `fill`: `fill` (N = 32) cannot be compiled on this machine: stage ptxas: SITE/fuse-cache/";
        assert!(first.starts_with(start) && first.ends_with(".ptx: File too large (os error 27)"), "{said}");
        assert_eq!(last.trim(), "help: make room on the disk");
        assert_eq!(site.files("fuse-cache"), Vec::<String>::new(), "nothing partial is left");
    });
}

/// Files and directories of processes that were killed go after an hour; entries stay.
#[test]
fn unfinished_files_are_swept() {
    let site = Site::new();
    let cache = ArtifactCache::at(Some(site.path("cache")));
    let key = CacheKey::of(&["a"]);
    cache.put(key, &7u32);
    let unfinished = |extension: &str| site.path("cache").join(format!("{}.{extension}", key.hex()));
    let old = SystemTime::now() - Duration::from_secs(7200);
    for name in ["100.0", "ptx"] {
        fs::write(unfinished(name), "").expect("a file");
        File::open(unfinished(name)).and_then(|file| file.set_modified(old)).expect("a time");
    }
    let directory = site.path("cache/100.2");
    fs::create_dir(&directory).and_then(|()| fs::write(directory.join("1.ptx"), "")).expect("a directory");
    File::open(&directory).and_then(|file| file.set_modified(old)).expect("a time");
    fs::write(unfinished("100.1"), "").expect("a file");
    File::open(site.path("cache").join(key.hex())).and_then(|file| file.set_modified(old)).expect("a time");
    cache.sweep();
    assert_eq!(site.files("cache"), [key.hex(), format!("{}.100.1", key.hex())]);
    assert_eq!(cache.get(key), Some(7u32));
}

/// Variants with the same body have their own entries.
#[test]
fn variants_with_the_same_body_have_their_own_entries() {
    in_own_process(|| {
        let site = Site::new();
        let source = "#[fuse_kernel(FLAG = [false, true])]
        fn fill<const FLAG: bool>(out: &mut [f32]) { tl::store(out, 0.0f32); }";
        let options = options(&site);
        let first = site.expand(source, &options);
        assert_eq!(first, site.expand(source, &options));
        assert_eq!(lowered(&site), 4, "once for each specialization of each variant");
    });
}

/// Concurrent builds of one crate: all are right, and leave a valid cache.
#[test]
fn two_processes_at_once() {
    in_own_process(|| {
        let site = Site::new();
        let options = options(&site);
        let build = || Ok(site.expand(KERNEL, &options));
        let children: Vec<_> = (0..4).map(|_| sandbox::start(build).expect("a process")).collect();
        let built: Vec<String> =
            children.into_iter().map(|child| child.finish(options.limit).expect("an expansion")).collect();
        assert!(built.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(site.files("fuse-cache").len(), 1, "{:?}", site.files("fuse-cache"));
        let before = lowered(&site);
        assert_eq!(site.expand(KERNEL, &options), built[0]);
        assert_eq!(lowered(&site), before);
    });
}

/// A cache returns an entry for its own key alone.
#[test]
fn keys_distinguish_parts() {
    let site = Site::new();
    let cache = ArtifactCache::at(Some(site.path("cache")));
    cache.put(CacheKey::of(&["a", "bc"]), &7u32);
    assert_eq!(cache.get::<u32>(CacheKey::of(&["a", "bc"])), Some(7));
    assert_eq!(cache.get::<u32>(CacheKey::of(&["ab", "c"])), None);
    assert_eq!(cache.get::<Vec<u64>>(CacheKey::of(&["a", "bc"])), None, "another type");
    assert_eq!(ArtifactCache::at(None).get::<u32>(CacheKey::of(&["a", "bc"])), None);
}

/// Trimming evicts the least recently used entries, down to three quarters of the limit.
#[test]
fn trimming_evicts_least_recently_used() {
    let site = Site::new();
    let directory = site.path("cache");
    let cache = ArtifactCache::at(Some(directory.clone()));
    cache.trim(0);
    let key = |i: usize| CacheKey::of(&[&i.to_string()]);
    let value = vec![1u8; 1000];
    for i in 0..8 {
        cache.put(key(i), &value);
        let long_ago = SystemTime::now() - Duration::from_secs(3600 * (8 - i as u64));
        let file = File::open(directory.join(key(i).hex())).expect("an entry");
        file.set_modified(long_ago).expect("a time");
    }
    let bytes = fs::metadata(directory.join(key(0).hex())).expect("an entry").len();
    assert_eq!(cache.get(key(1)), Some(value.clone()), "used again");
    cache.trim(8 * bytes);
    assert_eq!(site.files("cache").len(), 8, "all fit");
    cache.trim(8 * bytes - 1);
    let remaining: Vec<usize> = (0..8).filter(|&i| directory.join(key(i).hex()).exists()).collect();
    assert_eq!(remaining, [1, 4, 5, 6, 7]);
}

// ---- dumps

/// The files that a build with `FUSE_DUMP=list` writes, each with its first line.
fn check_dump(list: &str, expected: Expect) {
    let site = Site::new();
    let variables = |name: &str| match name {
        "FUSE_DUMP" => Some(list.into()),
        "FUSE_DUMP_DIR" => Some(site.path("dump").into()),
        _ => None,
    };
    let options = BuildOptions::read(&site.command_line(), &variables).expect("options");
    assert_eq!(site.compile(KERNEL, &options), "");
    let lines: String = site
        .files("dump")
        .iter()
        .map(|name| {
            let text = fs::read_to_string(site.path("dump").join(name)).expect("a text");
            let line = text.lines().find(|line| line.contains("fill") || line.contains("FUSE_HOST"));
            format!("{name}: {}\n", line.unwrap_or_default().trim())
        })
        .collect();
    expected.assert_eq(&lines);
}

#[test]
fn a_dump_has_the_requested_stages() {
    in_own_process(|| {
        check_dump(
            "tile, ptx",
            expect![[r#"
            fill.N32.aligned.sm_80.ptx: // .globl	fill_32_aligned
            fill.N32.aligned.sm_90a.ptx: // .globl	fill_32_aligned
            fill.N32.general.sm_80.ptx: // .globl	fill_32_general
            fill.N32.general.sm_90a.ptx: // .globl	fill_32_general
            fill.N32.tile: kernel fill(out: &mut [f32]) {
        "#]],
        );
        check_dump(
            "all",
            expect![[r#"
            fill.N32.aligned.layout: kernel fill(out: &mut [f32]) {
            fill.N32.aligned.ll: define ptx_kernel void @fill_32_aligned(ptr addrspace(1) %0, i64 %1, i32 %2, i32 %3, i32 %4) #0 {
            fill.N32.aligned.mlir: llvm.func @fill_32_aligned(%arg0: !llvm.ptr<1>, %arg1: i64, %arg2: i32, %arg3: i32, %arg4: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128>} {
            fill.N32.aligned.schedule: kernel fill(out: &mut [f32]) {
            fill.N32.aligned.sm_80.ptx: // .globl	fill_32_aligned
            fill.N32.aligned.sm_90a.ptx: // .globl	fill_32_aligned
            fill.N32.general.layout: kernel fill(out: &mut [f32]) {
            fill.N32.general.ll: define ptx_kernel void @fill_32_general(ptr addrspace(1) %0, i64 %1, i32 %2, i32 %3, i32 %4) #0 {
            fill.N32.general.mlir: llvm.func @fill_32_general(%arg0: !llvm.ptr<1>, %arg1: i64, %arg2: i32, %arg3: i32, %arg4: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128>} {
            fill.N32.general.schedule: kernel fill(out: &mut [f32]) {
            fill.N32.general.sm_80.ptx: // .globl	fill_32_general
            fill.N32.general.sm_90a.ptx: // .globl	fill_32_general
            fill.N32.host.baseline.ll: define internal void @FUSE_HOST_ENTRY_AT_LEVEL_program(ptr noalias %0, i64 %1, i32 %2, i32 %3, i32 %4, i32 %5, i32 %6, i32 %7, ptr noalias %8) {
            fill.N32.host.baseline.mlir: llvm.func internal @FUSE_HOST_ENTRY_AT_LEVEL_program(%arg0: !llvm.ptr {llvm.noalias}, %arg1: i64, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32, %arg8: !llvm.ptr {llvm.noalias}) {
            fill.N32.host.baseline.s: .hidden	FUSE_HOST_ENTRY_baseline
            fill.N32.host.v3.ll: define internal void @FUSE_HOST_ENTRY_AT_LEVEL_program(ptr noalias %0, i64 %1, i32 %2, i32 %3, i32 %4, i32 %5, i32 %6, i32 %7, ptr noalias %8) {
            fill.N32.host.v3.mlir: llvm.func internal @FUSE_HOST_ENTRY_AT_LEVEL_program(%arg0: !llvm.ptr {llvm.noalias}, %arg1: i64, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32, %arg8: !llvm.ptr {llvm.noalias}) {
            fill.N32.host.v3.s: .hidden	FUSE_HOST_ENTRY_v3
            fill.N32.host.v4.s: .hidden	FUSE_HOST_ENTRY_v4
            fill.N32.tile: kernel fill(out: &mut [f32]) {
        "#]],
        );
    });
}

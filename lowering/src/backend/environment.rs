//! Failures of the machine that builds, as opposed to mistakes of the compiler, and what a user can do about each.

use nix::errno::Errno;

/// The cure where memory ran out.
pub const FREE_MEMORY: &str = "free memory, or build fewer crates at once: `cargo build -j 1`";

/// Returns what the user can do where the system has no more of something; `None` for any other error.
pub fn cure(error: Errno) -> Option<&'static str> {
    match error {
        Errno::EMFILE | Errno::ENFILE => Some("allow more open files: `ulimit -n 1024`"),
        Errno::EAGAIN => {
            Some("allow more processes: `ulimit -u`, or build fewer crates at once: `cargo build -j 1`")
        }
        Errno::ENOMEM => Some(FREE_MEMORY),
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => Some("make room on the disk"),
        _ => None,
    }
}

/// Returns [`cure`] of an error of the standard library.
pub fn cure_of(error: &std::io::Error) -> Option<&'static str> {
    error.raw_os_error().and_then(|code| cure(Errno::from_raw(code)))
}

/// Whether a process that was ended wrote that it had no memory left, as the standard libraries of Rust and C++ and LLVM do.
pub fn ran_out_of_memory(output: &str) -> bool {
    ["memory allocation of ", "out of memory", "std::bad_alloc"].iter().any(|words| output.contains(words))
}

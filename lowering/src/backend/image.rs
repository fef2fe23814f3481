//! Identity of the program or library that this compiler is linked into: its own code, LLVM's and every other crate's.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::SystemTime;

use nix::libc;

use super::llvm;

/// The version of LLVM with the length and the time of the file that was linked with it. A hash of a hundred megabytes would take
/// a second in an unoptimized build.
static IDENTITY: LazyLock<String> = LazyLock::new(|| {
    // Without a file no other process shares an identity.
    let linked = linked().unwrap_or_else(|| format!("process {}", std::process::id()));
    format!("LLVM {} {linked}", llvm::version())
});

/// Returns what changes whenever this compiler, its LLVM or another crate that it is built of is linked anew.
pub fn identity() -> &'static str {
    &IDENTITY
}

fn linked() -> Option<String> {
    let metadata = std::fs::metadata(path()?).ok()?;
    let modified = metadata.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    // Whole seconds: archives that carry a target directory from one machine to another keep no more.
    Some(format!("{} {}", metadata.len(), modified.as_secs()))
}

/// The file that this function was loaded from.
fn path() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address within this image, and a valid out-pointer.
    let found = unsafe { libc::dladdr(identity as *const () as *const libc::c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's own string, which lives as long as the image, and so as this code.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

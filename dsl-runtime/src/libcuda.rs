//! The driver's library, for what the bindings lack: whether it is there, and functions that only newer drivers have.
//!
//! How the bindings reach the driver is decided for a whole graph of crates: they load it, unless any crate asks for
//! linking, as candle does. Their own handle of the library is gone then, so this module keeps another.

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;

use crate::error::{Error, Result};

/// In the order of the bindings, so that both load the same file.
const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so", "libcuda.so.1"] };

/// The library, if the program is linked with it or it can be loaded.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let load = || linked().or_else(|| NAMES.iter().find_map(|name| open(name)));
    LIBRARY.get_or_init(load).as_ref()
}

fn open(name: &str) -> Option<Library> {
    // SAFETY: loading the driver runs its initializers, which touch nothing of ours.
    unsafe { Library::new(name) }.ok()
}

/// The program itself, where the driver was linked into it: a file that is searched for by name may be another one.
#[cfg(unix)]
fn linked() -> Option<Library> {
    let program = Library::from(libloading::os::unix::Library::this());
    // SAFETY: the function is looked up and not called.
    let found = unsafe { program.get::<unsafe extern "C" fn(u32) -> u32>(c"cuInit") }.is_ok();
    found.then_some(program)
}

#[cfg(not(unix))]
fn linked() -> Option<Library> {
    None
}

/// Whether there is a driver.
pub(crate) fn is_present() -> bool {
    library().is_some()
}

/// The function of this name, if the driver has it. Without a driver there is none.
///
/// # Safety
/// `F` must be the type of the function.
pub(crate) unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: the caller's word; the library is never unloaded, so the function outlives its symbol.
    unsafe { library()?.get::<F>(name) }.ok().map(|symbol| *symbol)
}

/// The CUDA version that the driver is made for, 12080 for 12.8.
pub(crate) fn driver_version() -> Result<i32> {
    if !is_present() {
        return Err(Error::NoDriver);
    }
    let mut version = 0;
    // SAFETY: the library is there, and `version` lives for the call.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(Error::cuda("cuDriverGetVersion"))?;
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Version = unsafe extern "C" fn(*mut i32) -> u32;

    #[test]
    fn what_every_driver_has_is_found_where_there_is_a_driver() {
        // SAFETY: the type is that of `cuDriverGetVersion`.
        let version = unsafe { function::<Version>(c"cuDriverGetVersion") };
        assert_eq!(version.is_some(), is_present());
        // SAFETY: no driver has it.
        let none = unsafe { function::<Version>(c"cuNoSuchFunction") };
        assert!(none.is_none());
        let Some(version) = version else {
            eprintln!("skipped: there is no driver");
            return;
        };
        let mut found = 0;
        // SAFETY: `found` lives for the call.
        let status = unsafe { version(&mut found) };
        assert_eq!((status, Ok(found)), (0, driver_version()));
    }
}

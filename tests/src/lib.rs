//! Where a test binary runs its kernels, and one test at a time. Free of the compiler, so that a test binary runs on a machine that has
//! neither Rust nor LLVM.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dsl_runtime::prelude::*;

/// One test at a time. The driver lets nobody wait for a whole device while a stream of it is captured, and whoever waits
/// for a device next gets a report, which may be another test's.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This CPU, and a GPU where there is one.
pub fn devices() -> Vec<Device> {
    let gpu = Device::cuda(0).map_err(|error| eprintln!("no GPU: {error}"));
    std::iter::once(Device::cpu()).chain(gpu).collect()
}

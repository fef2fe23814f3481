//! Choosing among configs by measured time.
//!
//! A kernel declares several ways to compile it, and what the fastest depends on:
//!
//! ```
//! # mod m {
//! use dsl_runtime::prelude::*;
//!
//! #[fuse_kernel(
//!     T = [f32, bf16],
//!     configs = [{ BLOCK: 512, num_warps: 4 }, { BLOCK: 2048, num_warps: 8 }, { BLOCK: 2048, maxnreg: 64 }],
//!     tune(key = [n]),
//! )]
//! pub fn double<T: Number, const BLOCK: usize>(x: &[T], out: &mut [T], n: i32) {
//!     let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
//!     let mask = offsets < n;
//!     let x = tl::load(x + offsets, mask);
//!     tl::store(out + offsets, x + x, mask);
//! }
//! # }
//! # use dsl_runtime::prelude::*;
//! # let device = Device::cpu();
//! # let n = 1000;
//! # let x = device.upload(&vec![1.0f32; n])?;
//! # let mut out = device.zeros::<f32>(n)?;
//!
//! // `BLOCK` is left out, and the grid follows from what is chosen.
//! m::double(&x, &mut out, n as i32).grid_by(|chosen| n.div_ceil(chosen.constant("BLOCK"))).launch(&device)?;
//! # assert_eq!(out.download()?, vec![2.0; n]);
//! # Ok::<(), dsl_runtime::Error>(())
//! ```
//!
//! - `tune(key = [..])` leaves the constants that stand in `configs` to be chosen. Of a list, `BLOCK = _ in [512, 1024]`
//!   leaves the values open. Constants of other lists are named at the call, or follow from an expression, as always.
//! - The key is a list of expressions over the arguments. For each value of theirs, the first launch measures every config
//!   that the call leaves open, and later launches take what was fastest.
//! - `tune(.., when = BLOCK >= n_cols as usize)` leaves out configs that do not suit the arguments, at every launch.
//! - While one thread measures, launches of others take the first config unless the choice is known.
//! - [`Launch::only`](crate::Launch::only) names a config at the call: for tests, and to measure one by hand.
//!
//! # What a measurement does
//! It runs the call itself, on its own arguments. What `&mut` parameters hold is put back before each run, and before the
//! launch proper, so that a kernel which works in place does so once. A config that does not load or launch is left out;
//! so is, with a warning, one whose outputs are not those of the first that runs, within what another order of additions
//! explains. Each config runs for about 20 ms (on a GPU with the caches flushed before each run, timed by the device's
//! own events; on the CPU by the clock, on warm caches); the median counts, and a later config must be 1 % faster than
//! an earlier one. On a terminal a line on the standard error says how far it is. The copies take as much memory again as
//! the outputs; where there is not enough, the first config is taken. While a stream is captured nothing is measured: the
//! launch takes what was chosen before, or the first config.
//!
//! # Where choices are kept
//! In memory, and as one file each in the folder `FUSE_TUNE_DIR` (by default `fuse/tune` in the user's cache folder; the
//! empty string for none), under the kernel, its key and constants, the device's name, the driver's version, and the code
//! of every config: an edit of the kernel measures again. A file that cannot be read is ignored with a warning.
//!
//! [`export`] writes the choices of this process to a file that ships with the crate, `#[fuse_kernel(..,
//! tuned = "tuned/double.json")]`: the file is built in, and a program finds the choice for its device and key there without
//! measuring. It holds for the device's name, the key and a config that still exists, whatever else changed.
//! An empty file is fine to start with.
//!
//! `FUSE_TUNE=off` never measures: it takes what ships with the crate, what is on disk, or the first config.
//! `FUSE_TUNE=force` measures once in each process, whatever is known.

mod compare;
mod decision;
mod record;
mod search;
mod space;
mod tuner;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use decision::{Decision, Source};
pub use space::TuningSpace;

pub(crate) use compare::Output;
pub(crate) use search::Trials;
pub(crate) use tuner::{Ready, TunableCall, TuneRequest, tuner};

use crate::error::Result;

/// The choices of this process, by kernel and key.
///
/// # Errors
/// If `FUSE_TUNE` cannot be understood.
pub fn decisions() -> Result<Vec<Decision>> {
    Ok(tuner()?.decisions())
}

/// Forgets the choices of this process; the next launches look for them again, on disk too.
///
/// # Errors
/// If `FUSE_TUNE` cannot be understood.
pub fn forget() -> Result<()> {
    tuner()?.forget();
    Ok(())
}

/// Forgets all choices, those on disk too, of every program; gives how many files there were. Other files in `FUSE_TUNE_DIR` stay.
///
/// # Errors
/// If a file cannot be removed; if `FUSE_TUNE` cannot be understood.
pub fn clear() -> Result<usize> {
    tuner()?.clear()
}

/// Adds the choices of this process to a file for `#[fuse_kernel(.., tuned = "..")]`, each in place of the one for the same
/// kernel, device and key; gives how many they are. Choices that nothing was measured for are left out.
///
/// # Errors
/// If the file holds something else or cannot be written; if `FUSE_TUNE` cannot be understood.
pub fn export(path: impl AsRef<Path>) -> Result<usize> {
    tuner()?.export(path.as_ref())
}

//! The stack that a macro is expanded on: walks over definitions recurse as deep as a kernel has operations.

use std::num::NonZeroUsize;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use proc_macro2::TokenStream;
use tile_ir::support::diagnostic::{Errors, Loc};

/// Sizes of the stack in bytes, from the one that takes any kernel on. The system commits only what is used of it, but may limit
/// the addresses of a process or what all processes reserve: kernels that people write fit the least one.
const SIZES: [usize; 4] = [1 << 30, 1 << 28, 1 << 26, 1 << 24];

/// Expands on the largest stack that leaves as many addresses for all else; if there is none, that is the error.
pub fn with_stack(expand: impl FnOnce() -> TokenStream) -> TokenStream {
    match SIZES.into_iter().find(|&bytes| is_free(2 * bytes)) {
        Some(bytes) => stacker::grow(bytes, expand),
        None => {
            let mut errors = Errors::new();
            let text = format!(
                "there is no memory for a stack of {} MiB, which a kernel is compiled on",
                least() >> 20
            );
            let help = "raise the limit of addresses that this process may have: `ulimit -v` says what it is, in KiB";
            errors.push_help(Loc::from(proc_macro2::Span::call_site()), text, help);
            errors.into_tokens()
        }
    }
}

fn least() -> usize {
    SIZES[SIZES.len() - 1]
}

/// Whether the process can have so many bytes more.
fn is_free(bytes: usize) -> bool {
    let Some(length) = NonZeroUsize::new(bytes) else { return true };
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, at any address.
    let mapped = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) };
    // SAFETY: that mapping, which nothing points into.
    mapped.is_ok_and(|start| unsafe { munmap(start, bytes) }.is_ok())
}

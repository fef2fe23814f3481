//! The threads that kernels run on on the CPU: those of rayon.

use std::error::Error as _;
use std::sync::OnceLock;

use rayon::ThreadPoolBuilder;

use crate::error::{Error, Result};

/// The number of threads of the pool that this thread belongs to, or else of rayon's global pool.
///
/// Rayon starts the global pool when it is first used, and panics where it cannot: so it is started here.
pub(crate) fn count() -> Result<usize> {
    static STARTED: OnceLock<Result<()>> = OnceLock::new();
    if rayon::current_thread_index().is_none() {
        STARTED.get_or_init(start).clone()?;
    }
    Ok(rayon::current_num_threads())
}

fn start() -> Result<()> {
    let Err(error) = ThreadPoolBuilder::new().build_global() else { return Ok(()) };
    // An error of the system. Any other says that the program has started the pool before.
    let reason = error.source().map(ToString::to_string);
    reason.map_or(Ok(()), |reason| Err(Error::Threads { reason }))
}

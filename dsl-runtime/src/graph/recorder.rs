//! [`Recorder`]: the launches of a stream that is being captured.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUdeviceptr;

use super::buffers::GraphBuffers;
use super::memory_range::{MemoryRange, exposed_range};
use crate::device::On;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};
use crate::launch::cpu::Replay;
use crate::slice::UniqueBytes;

/// A launch that was recorded.
pub(crate) struct RecordedLaunch {
    pub(crate) kernel: &'static Kernel,
    pub(crate) variant: &'static Variant,
    /// With the name of the parameter.
    pub(crate) used: Vec<(&'static str, MemoryRange)>,
    pub(crate) work: RecordedWork,
}

/// What a graph launch executes.
pub(crate) enum RecordedWork {
    /// On the CPU, all of it.
    Host(Replay),
    /// On a GPU the graph's node does it; the address of its failure record is read later, if the code has one.
    Cuda(Option<CUdeviceptr>),
}

/// Temporary buffers of the launches, which the graph owns.
pub(crate) type Temporaries = Vec<Box<dyn GraphBuffers + Send + Sync>>;

/// Launches of a stream that is being captured.
pub(crate) struct Recorder {
    owned: Mutex<Vec<MemoryRange>>,
    /// Temporary buffers of the launches.
    temporaries: Mutex<Temporaries>,
    /// `None` once the capture has ended.
    launches: Mutex<Option<Vec<RecordedLaunch>>>,
}

impl Recorder {
    pub(crate) fn new(owned: Vec<MemoryRange>) -> Recorder {
        Recorder {
            owned: Mutex::new(owned),
            temporaries: Mutex::default(),
            launches: Mutex::new(Some(Vec::new())),
        }
    }

    fn launches(&self) -> MutexGuard<'_, Option<Vec<RecordedLaunch>>> {
        locked(&self.launches)
    }

    /// Whether a launch can be recorded.
    pub(crate) fn check(&self, kernel: &'static Kernel, used: &[(&'static str, MemoryRange)]) -> Result<()> {
        if self.launches().is_none() {
            return Err(Error::Capture { reason: "the capture of this stream has ended".to_string() });
        }
        check_owned(&locked(&self.owned), kernel, used)
    }

    /// Registers memory that the graph will own, so that launches may use it.
    pub(crate) fn register(&self, bytes: UniqueBytes<'_>, dtype: DType, on: On<'_>) {
        let range = exposed_range(bytes, dtype, on).expect("it was allocated there");
        locked(&self.owned).push(range);
    }

    /// Takes ownership of a registered buffer.
    pub(crate) fn adopt(&self, buffer: Box<dyn GraphBuffers + Send + Sync>) {
        locked(&self.temporaries).push(buffer);
    }

    /// Adds a launch that was checked.
    pub(crate) fn push(&self, recorded: RecordedLaunch) {
        if let Some(launches) = &mut *self.launches() {
            launches.push(recorded);
        }
    }

    /// Ends the capture; gives what was recorded, and the memory that goes with it.
    pub(crate) fn end(&self) -> (Vec<RecordedLaunch>, Temporaries) {
        (self.launches().take().unwrap_or_default(), std::mem::take(&mut *locked(&self.temporaries)))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that a launch uses only memory that the graph owns, and all of it as what it is.
pub(crate) fn check_owned(
    owned: &[MemoryRange],
    kernel: &'static Kernel,
    used: &[(&'static str, MemoryRange)],
) -> Result<()> {
    for (param, range) in used {
        if range.bytes == 0 || owned.iter().any(|owned| owned.covers(range)) {
            continue;
        }
        let what = match owned.iter().find(|owned| owned.contains(range)) {
            None => "is not kept by the graph".to_string(),
            Some(owned) if owned.dtype == range.dtype => "is kept by the graph to be read only".to_string(),
            Some(owned) => {
                format!("has elements of {}, and the graph keeps {} there", range.dtype, owned.dtype)
            }
        };
        return Err(Error::Capture { reason: format!("kernel `{}`: `{param}` {what}", kernel.name) });
    }
    Ok(())
}

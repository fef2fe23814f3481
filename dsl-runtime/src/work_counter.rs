//! Work counters of the dynamic persistent tile scheduler: blocks take their next program from one.
//!
//! Gives each stream one in device memory. Kernels of a stream run one after another, so they share it: it is 0 whenever
//! none of them runs. On any failure there is no counter, never an error: a kernel can do
//! without.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{
    self, CUdeviceptr, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use cudarc::driver::{CudaStream, DriverError, result};

use crate::libcuda;

/// A `u32`.
const COUNTER_BYTES: u64 = 4;
/// Memory is allocated for 1024 counters at a time.
const PAGE_BYTES: usize = 1024 * COUNTER_BYTES as usize;

/// The counters of a context. A stream keeps its own for good, also when it is destroyed: its work may still be
/// running.
#[derive(Default)]
pub(crate) struct WorkCounters(Mutex<CounterPool>);

#[derive(Default)]
struct CounterPool {
    by_stream: HashMap<u64, CUdeviceptr>,
    /// What no stream has yet of the page allocated last.
    unused: Range<CUdeviceptr>,
}

impl WorkCounters {
    /// The counter of a stream of this context, which must be current. There is none while the stream is being
    /// captured, because a graph may run beside the stream and beside other graphs; for drivers before CUDA 12; and
    /// without memory.
    pub(crate) fn of(&self, stream: &CudaStream) -> Option<CUdeviceptr> {
        let status = stream.capture_status().ok()?;
        if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return None;
        }
        let id = id(stream)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).of(id, page)
    }
}

impl CounterPool {
    fn of(&mut self, stream: u64, page: impl FnOnce() -> Option<CUdeviceptr>) -> Option<CUdeviceptr> {
        if let Some(&counter) = self.by_stream.get(&stream) {
            return Some(counter);
        }
        if self.unused.is_empty() {
            let start = page()?;
            self.unused = start..start + PAGE_BYTES as u64;
        }
        let counter = self.unused.start;
        self.unused.start += COUNTER_BYTES;
        self.by_stream.insert(stream, counter);
        Some(counter)
    }
}

/// The identity of a stream in the process, also among those destroyed before, whose handles are reused.
fn id(stream: &CudaStream) -> Option<u64> {
    type GetId = unsafe extern "C" fn(stream: CUstream, id: *mut u64) -> CUresult;
    static GET_ID: OnceLock<Option<GetId>> = OnceLock::new();
    // The bindings' own panics where the driver lacks the symbol, and is not there at all where a build finds CUDA 11.
    // SAFETY: the function has had this type since CUDA 12.0, the first that has it.
    let get_id = *GET_ID.get_or_init(|| unsafe { libcuda::function(c"cuStreamGetId") });
    let mut id = 0;
    // SAFETY: the stream lives as long as its borrow, and `id` for the call.
    let status = unsafe { get_id?(stream.cu_stream(), &mut id) };
    (status == CUresult::CUDA_SUCCESS).then_some(id)
}

/// Memory of the current context, zeroed when this returns.
fn page() -> Option<CUdeviceptr> {
    // Captures of other streams would forbid this thread to allocate, and end by it.
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: `mode` lives for the call, which stores the mode before in it.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result().ok()?;
    let page = zeroed_page();
    // SAFETY: as above.
    let restored = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result();
    page.and_then(|page| restored.map(|()| page)).ok()
}

fn zeroed_page() -> Result<CUdeviceptr, DriverError> {
    // SAFETY: the context is current. What was allocated is read by kernels alone, and they get it when it is zeroed.
    let page = unsafe { result::malloc_sync(PAGE_BYTES) }?;
    zero(page).inspect_err(|_| {
        // SAFETY: it was just allocated, and nobody else knows it. That it cannot be freed adds nothing to the error.
        let _ = unsafe { result::free_sync(page) };
    })?;
    Ok(page)
}

/// On a stream of its own: others would wait for the null stream, or could not while they are being captured.
fn zero(page: CUdeviceptr) -> Result<(), DriverError> {
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
    // SAFETY: the memory is as long as said, and the stream was just made.
    let zeroed = unsafe {
        result::memset_d8_async(page, 0, PAGE_BYTES, stream)
            .and_then(|()| result::stream::synchronize(stream))
    };
    // SAFETY: nobody else has the stream.
    zeroed.and(unsafe { result::stream::destroy(stream) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use cudarc::driver::sys::CUgraphInstantiate_flags;

    use super::*;
    use crate::device::Backend;
    use crate::launch::{exclusive, gpu};
    use crate::libcuda::driver_version;

    #[test]
    fn each_stream_has_one_counter_for_good() {
        let (mut pool, mut pages) = (CounterPool::default(), Vec::new());
        let mut of = |stream| {
            let page = || {
                pages.push(0x10000 * (pages.len() as u64 + 1));
                pages.last().copied()
            };
            pool.of(stream, page).unwrap()
        };
        let first: Vec<u64> = (0..3000).map(|stream| of(stream * 7)).collect();
        let again: Vec<u64> = (0..3000).map(|stream| of(stream * 7)).collect();
        assert_eq!(first, again);
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), 3000);
        assert_eq!(pages, [0x10000, 0x20000, 0x30000]);
        let inside = |counter: &u64| {
            pages.iter().any(|&page| (page..page + PAGE_BYTES as u64).contains(counter))
                && counter.is_multiple_of(4)
        };
        assert!(first.iter().all(inside));
    }

    #[test]
    fn without_memory_there_is_no_counter_until_there_is_some() {
        let mut pool = CounterPool::default();
        assert_eq!(pool.of(1, || None), None);
        assert_eq!(pool.of(1, || Some(0x1000)), Some(0x1000));
        assert_eq!(pool.of(1, || None), Some(0x1000));
        assert_eq!(pool.of(2, || None), Some(0x1004));
    }

    #[test]
    fn a_stream_that_is_captured_has_no_counter() {
        let Some(device) = gpu() else { return };
        let Backend::Cuda(device) = device.backend() else { panic!("it is a GPU") };
        if driver_version().unwrap() < 12000 {
            eprintln!("skipped: the driver is older than CUDA 12");
            return;
        }
        let _exclusive = exclusive();
        let stream = device.new_stream().unwrap();
        let counter = device.work_counters.of(&stream);
        assert!(counter.is_some());
        // This mode forbids the thread to allocate.
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        let (captured, other, page) =
            (device.work_counters.of(&stream), device.work_counters.of(&device.stream), page());
        stream.end_capture(CUgraphInstantiate_flags(0)).unwrap();
        assert_eq!(captured, None);
        assert!(other.is_some() && other != counter);
        assert!(page.is_some());
        assert_eq!(device.work_counters.of(&stream), counter);
    }
}

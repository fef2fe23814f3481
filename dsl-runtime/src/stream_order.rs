//! Orders streams that use the same memory.
//!
//! `cudarc` does it with two events per allocation, as long as a context has streams that it made: it counts them.
//! Every launch then waits for and records an event for each argument. A context that we opened ourselves enters that mode
//! with its second stream, and stays in it. A context that someone else made is in the mode in which its owner has it, and
//! nothing here changes that. While it has no streams but the default ones and those that were wrapped, memory is used in the
//! order of its *allocation stream*: a launch on another stream waits for the allocation stream, and that
//! for the launch. When `cudarc` may have stopped recording, the allocation streams wait for what was launched meanwhile.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{CUevent_wait_flags, CUstream, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, SyncOnDrop, result};

use crate::error::{Error, Result};

/// The order of the streams of one context.
pub(crate) struct StreamOrder {
    context: Arc<CudaContext>,
    owner: ContextOwner,
    /// While one thread records uses of buffers.
    recording: Mutex<()>,
}

/// Who decides whether `cudarc` records events in a context.
enum ContextOwner {
    /// We do: a stream keeps the context in the mode, which it would leave when its last stream is dropped, even with
    /// work of that stream still in flight.
    Us(Mutex<Option<Arc<CudaStream>>>),
    Other(Mutex<Vec<CrossStreamUse>>),
}

/// A stream used memory of another one while `cudarc` recorded events.
struct CrossStreamUse {
    by: StreamHandle,
    alloc_stream: Weak<CudaStream>,
}

/// A stream, to be compared with others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StreamHandle(CUstream);

// SAFETY: the driver takes a stream from any thread.
unsafe impl Send for StreamHandle {}

/// `CU_STREAM_LEGACY`, the null stream by another name, and `CU_STREAM_PER_THREAD`, which is another stream on each thread.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

impl StreamHandle {
    /// The stream in whose order memory of a stream is. The streams of threads and the null stream wait for each
    /// other, and of the two the null stream alone can be named from every thread.
    fn of(stream: &CudaStream) -> StreamHandle {
        match stream.cu_stream().addr() {
            LEGACY | PER_THREAD => StreamHandle(std::ptr::null_mut()),
            _ => StreamHandle(stream.cu_stream()),
        }
    }

    fn is(self, stream: &CudaStream) -> bool {
        self.0 == stream.cu_stream()
    }

    /// An event behind everything enqueued on it so far.
    fn record(self, context: &Arc<CudaContext>) -> Result<CudaEvent, DriverError> {
        let event = context.new_event(None)?;
        // SAFETY: both are of this context, which is current since the event was made. The stream lives: it is the null
        // stream, or whoever has its handle sees to it.
        unsafe { result::event::record(event.cu_event(), self.0) }?;
        Ok(event)
    }

    fn wait(self, event: &CudaEvent) -> Result<(), DriverError> {
        event.context().bind_to_thread()?;
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: as above.
        unsafe { result::stream::wait_event(self.0, event.cu_event(), flags) }
    }
}

/// Memory in use by a stream.
pub(crate) struct MemoryUse<'g> {
    /// Records the use in the memory's event.
    done: SyncOnDrop<'g>,
    by: &'g CudaStream,
    /// Of memory that is borrowed for `'g`, and so is the stream.
    alloc_stream: StreamHandle,
}

impl<'g> MemoryUse<'g> {
    /// By the stream that memory is of, or by none, where only an address is asked for.
    pub(crate) fn on_alloc_stream(by: &'g CudaStream, done: SyncOnDrop<'g>) -> MemoryUse<'g> {
        MemoryUse { done, by, alloc_stream: StreamHandle(by.cu_stream()) }
    }
}

/// Whether `cudarc` makes streams wait for each other's memory.
#[derive(PartialEq, Eq)]
enum TrackingMode {
    Events,
    /// It has made no stream.
    AllocStream,
    /// The owner has forbidden it, and does it by itself.
    Untracked,
}

impl TrackingMode {
    fn of(context: &CudaContext) -> TrackingMode {
        match (context.is_event_tracking(), context.is_in_multi_stream_mode()) {
            (true, true) => TrackingMode::Events,
            (true, false) => TrackingMode::AllocStream,
            (false, _) => TrackingMode::Untracked,
        }
    }
}

fn is_captured(stream: &CudaStream) -> Result<bool, DriverError> {
    Ok(stream.capture_status()? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

impl StreamOrder {
    /// Of a context that we opened.
    pub(crate) fn ours(context: &Arc<CudaContext>) -> StreamOrder {
        StreamOrder::new(context, ContextOwner::Us(Mutex::default()))
    }

    /// Of a context that someone else made.
    pub(crate) fn of_owner(context: &Arc<CudaContext>) -> StreamOrder {
        StreamOrder::new(context, ContextOwner::Other(Mutex::default()))
    }

    fn new(context: &Arc<CudaContext>, owner: ContextOwner) -> StreamOrder {
        StreamOrder { context: context.clone(), owner, recording: Mutex::new(()) }
    }

    /// From now on memory of a context of ours keeps track of its uses.
    pub(crate) fn track(&self) -> Result<()> {
        if let ContextOwner::Us(tracking) = &self.owner {
            let mut tracking = tracking.lock().unwrap_or_else(PoisonError::into_inner);
            if tracking.is_none() {
                *tracking = Some(self.context.new_stream().map_err(Error::cuda("cuStreamCreate"))?);
            }
        }
        Ok(())
    }

    /// Takes note that a stream uses memory, whose event `done` records; the stream waits for what used it before. It must
    /// be asked for after the address, with which `cudarc` waits in its own mode.
    pub(crate) fn begin<'g>(
        &self,
        by: &'g CudaStream,
        alloc_stream: &Arc<CudaStream>,
        done: SyncOnDrop<'g>,
    ) -> Result<MemoryUse<'g>> {
        let mut used = MemoryUse { done, by, alloc_stream: StreamHandle::of(alloc_stream) };
        let ContextOwner::Other(cross_uses) = &self.owner else { return Ok(used) };
        if used.alloc_stream.is(by) {
            return Ok(used);
        }
        match TrackingMode::of(&self.context) {
            TrackingMode::Untracked => {}
            TrackingMode::Events => {
                let by = StreamHandle::of(by);
                let mut cross_uses = cross_uses.lock().unwrap_or_else(PoisonError::into_inner);
                let same = |alloc_stream: &CudaStream| StreamHandle::of(alloc_stream) == used.alloc_stream;
                let known = |cross_use: &CrossStreamUse| {
                    cross_use.by == by
                        && cross_use.alloc_stream.upgrade().is_some_and(|alloc_stream| same(&alloc_stream))
                };
                if !cross_uses.iter().any(known) {
                    cross_uses.retain(|cross_use| cross_use.alloc_stream.strong_count() > 0);
                    cross_uses.push(CrossStreamUse { by, alloc_stream: Arc::downgrade(alloc_stream) });
                }
            }
            TrackingMode::AllocStream => {
                let failed = Error::cuda("cuStreamWaitEvent");
                // One that is being captured can wait for nothing outside: whoever launches the graph does.
                if is_captured(by).map_err(&failed)? {
                    used.alloc_stream = StreamHandle::of(by);
                } else {
                    self.join_recorded(cross_uses).map_err(&failed)?;
                    used.alloc_stream
                        .record(&self.context)
                        .and_then(|event| by.wait(&event))
                        .map_err(failed)?;
                }
            }
        }
        Ok(used)
    }

    /// Ends uses of memory that were enqueued: later uses on other streams wait for them.
    ///
    /// In `cudarc`'s mode memory remembers one read. To have that record stand for earlier reads on other streams as well, this
    /// stream first waits for the one recorded before; the lock keeps other threads from recording in between.
    pub(crate) fn release<'g>(&self, uses: impl IntoIterator<Item = MemoryUse<'g>>) {
        let managed = self.context.is_managing_stream_synchronization();
        let recording = managed.then(|| self.recording.lock().unwrap_or_else(PoisonError::into_inner));
        let mut alloc_streams = AllocStreams { order: self, event: None, waiting: Vec::new() };
        for MemoryUse { done, by, alloc_stream } in uses {
            if managed && let SyncOnDrop::Record(Some((event, stream))) = &done {
                self.context.record_err(stream.wait(event));
            }
            drop(done);
            self.context.record_err(alloc_streams.make_wait(by, alloc_stream));
        }
        drop(recording);
    }

    /// That a stream will not be launched on any more. Its owner may drop it, and with its last stream a context stops to
    /// wait for events of work that is still in flight.
    pub(crate) fn retire_stream(&self, stream: &CudaStream) {
        let ContextOwner::Other(cross_uses) = &self.owner else { return };
        let mut cross_uses = cross_uses.lock().unwrap_or_else(PoisonError::into_inner);
        let by = StreamHandle::of(stream);
        let retired: Vec<CrossStreamUse> =
            cross_uses.extract_if(.., |cross_use| cross_use.by == by).collect();
        // What it was captured for has not run.
        if retired.is_empty() || is_captured(stream).unwrap_or(true) {
            return;
        }
        self.context.record_err(self.join_alloc_streams(&retired));
    }

    /// The context has left event mode: the allocation streams wait for all uses made in it. Streams that it counted are
    /// gone, and `retire_stream` has handled them, so the others exist.
    fn join_recorded(&self, cross_uses: &Mutex<Vec<CrossStreamUse>>) -> Result<(), DriverError> {
        let mut cross_uses = cross_uses.lock().unwrap_or_else(PoisonError::into_inner);
        self.join_alloc_streams(&std::mem::take(&mut *cross_uses))
    }

    fn join_alloc_streams(&self, cross_uses: &[CrossStreamUse]) -> Result<(), DriverError> {
        for CrossStreamUse { by, alloc_stream } in cross_uses {
            // Without it there is no memory of it either.
            if let Some(alloc_stream) = alloc_stream.upgrade()
                && !is_captured(&alloc_stream)?
            {
                StreamHandle::of(&alloc_stream).wait(&by.record(&self.context)?)?;
            }
        }
        Ok(())
    }
}

/// The allocation streams of the memory that one launch uses.
struct AllocStreams<'o> {
    order: &'o StreamOrder,
    /// That the launch has run.
    event: Option<CudaEvent>,
    /// Those that wait for it.
    waiting: Vec<StreamHandle>,
}

impl AllocStreams<'_> {
    /// Makes the allocation stream wait for what was launched on `by`.
    fn make_wait(&mut self, by: &CudaStream, alloc_stream: StreamHandle) -> Result<(), DriverError> {
        let context = &self.order.context;
        let ours = matches!(self.order.owner, ContextOwner::Us(_));
        if ours
            || alloc_stream.is(by)
            || self.waiting.contains(&alloc_stream)
            || TrackingMode::of(context) != TrackingMode::AllocStream
        {
            return Ok(());
        }
        self.waiting.push(alloc_stream);
        if self.event.is_none() {
            self.event = Some(by.record_event(None)?);
        }
        self.event.as_ref().map_or(Ok(()), |event| alloc_stream.wait(event))
    }
}

//! Which stream waits for which, where several of them use the same memory.
//!
//! `cudarc` sees to it by events, two of each allocation, as long as a context has streams that it made: it counts them.
//! Every launch then waits for and records an event for each argument. A context that we opened ourselves enters that mode
//! with its second stream, and stays in it. A context that someone else made is in the mode in which its owner has it, and
//! nothing here changes that. While it has no streams but the default ones and those that were wrapped, memory is used in the
//! order of its *home*, the stream that it was allocated on: a launch on another stream waits for the home, and the home
//! for the launch. What was launched while `cudarc` recorded events is handed to the homes when it may have stopped.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{CUevent_wait_flags, CUstream, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, SyncOnDrop, result};

use crate::cuda::CudaDevice;
use crate::error::{Error, Result};

/// Who decides whether `cudarc` records events in a context.
pub(crate) enum Order {
    /// We do: a stream keeps the context in the mode, which it would leave when its last stream is dropped, even with
    /// work of that stream still in flight.
    Ours(Mutex<Option<Arc<CudaStream>>>),
    Owner(Mutex<Vec<Visit>>),
}

impl Order {
    pub(crate) fn ours() -> Order {
        Order::Ours(Mutex::default())
    }

    pub(crate) fn of_owner() -> Order {
        Order::Owner(Mutex::default())
    }
}

/// A stream used memory of another one while `cudarc` recorded events.
pub(crate) struct Visit {
    by: Handle,
    home: Weak<CudaStream>,
}

/// A stream, to be compared with others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle(CUstream);

// SAFETY: the driver takes a stream from any thread.
unsafe impl Send for Handle {}

/// `CU_STREAM_LEGACY`, the null stream by another name, and `CU_STREAM_PER_THREAD`, which is another stream on each thread.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

impl Handle {
    /// The stream in whose order memory of a stream is. The streams of threads and the null stream wait for each
    /// other, and of the two the null stream alone can be named from every thread.
    fn of(stream: &CudaStream) -> Handle {
        match stream.cu_stream().addr() {
            LEGACY | PER_THREAD => Handle(std::ptr::null_mut()),
            _ => Handle(stream.cu_stream()),
        }
    }

    fn is(self, stream: &CudaStream) -> bool {
        self.0 == stream.cu_stream()
    }

    /// What was put in line on it so far.
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
pub(crate) struct Use<'g> {
    /// Records the use in the memory's event.
    done: SyncOnDrop<'g>,
    by: &'g CudaStream,
    /// Of memory that is borrowed for `'g`, and so is the stream.
    home: Handle,
}

impl<'g> Use<'g> {
    /// By the stream that memory is of, or by none, where only an address is asked for.
    pub(crate) fn at_home(by: &'g CudaStream, done: SyncOnDrop<'g>) -> Use<'g> {
        Use { done, by, home: Handle(by.cu_stream()) }
    }
}

/// Whether `cudarc` makes streams wait for each other's memory.
#[derive(PartialEq, Eq)]
enum Mode {
    Events,
    /// It has made no stream.
    Homes,
    /// The owner has forbidden it, and does it by itself.
    Nothing,
}

impl Mode {
    fn of(context: &CudaContext) -> Mode {
        match (context.is_event_tracking(), context.is_in_multi_stream_mode()) {
            (true, true) => Mode::Events,
            (true, false) => Mode::Homes,
            (false, _) => Mode::Nothing,
        }
    }
}

fn is_captured(stream: &CudaStream) -> Result<bool, DriverError> {
    Ok(stream.capture_status()? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

impl CudaDevice {
    /// A stream beside the default one.
    pub(crate) fn new_stream(&self) -> Result<Arc<CudaStream>> {
        self.track()?;
        self.context.new_stream().map_err(Error::cuda("cuStreamCreate"))
    }

    /// From now on memory of a context of ours keeps track of its uses.
    pub(crate) fn track(&self) -> Result<()> {
        if let Order::Ours(tracking) = &self.order {
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
        home: &Arc<CudaStream>,
        done: SyncOnDrop<'g>,
    ) -> Result<Use<'g>> {
        let mut used = Use { done, by, home: Handle::of(home) };
        let Order::Owner(visits) = &self.order else { return Ok(used) };
        if used.home.is(by) {
            return Ok(used);
        }
        match Mode::of(&self.context) {
            Mode::Nothing => {}
            Mode::Events => {
                let by = Handle::of(by);
                let mut visits = visits.lock().unwrap_or_else(PoisonError::into_inner);
                let same = |home: &CudaStream| Handle::of(home) == used.home;
                let known =
                    |visit: &Visit| visit.by == by && visit.home.upgrade().is_some_and(|home| same(&home));
                if !visits.iter().any(known) {
                    visits.retain(|visit| visit.home.strong_count() > 0);
                    visits.push(Visit { by, home: Arc::downgrade(home) });
                }
            }
            Mode::Homes => {
                let failed = Error::cuda("cuStreamWaitEvent");
                // One that is being captured can wait for nothing outside: whoever launches the graph does.
                if is_captured(by).map_err(&failed)? {
                    used.home = Handle::of(by);
                } else {
                    self.settle(visits).map_err(&failed)?;
                    used.home.record(&self.context).and_then(|event| by.wait(&event)).map_err(failed)?;
                }
            }
        }
        Ok(used)
    }

    /// Ends uses of memory that were put in line: later uses on other streams wait for them.
    ///
    /// In `cudarc`'s mode memory remembers one read. To have that record stand for earlier reads on other streams as well, this
    /// stream first waits for the one recorded before; the lock keeps other threads from recording in between.
    pub(crate) fn release<'g>(&self, uses: impl IntoIterator<Item = Use<'g>>) {
        let managed = self.context.is_managing_stream_synchronization();
        let recording = managed.then(|| self.recording.lock().unwrap_or_else(PoisonError::into_inner));
        let mut homes = Homes { device: self, event: None, waiting: Vec::new() };
        for Use { done, by, home } in uses {
            if managed && let SyncOnDrop::Record(Some((event, stream))) = &done {
                self.context.record_err(stream.wait(event));
            }
            drop(done);
            self.context.record_err(homes.follow(by, home));
        }
        drop(recording);
    }

    /// That a stream will not be launched on any more. Its owner may drop it, and with its last stream a context stops to
    /// wait for events of work that is still in flight.
    pub(crate) fn leave(&self, stream: &CudaStream) {
        let Order::Owner(visits) = &self.order else { return };
        let mut visits = visits.lock().unwrap_or_else(PoisonError::into_inner);
        let by = Handle::of(stream);
        let left: Vec<Visit> = visits.extract_if(.., |visit| visit.by == by).collect();
        // What it was captured for has not run.
        if left.is_empty() || is_captured(stream).unwrap_or(true) {
            return;
        }
        self.context.record_err(self.hand_over(&left));
    }

    /// The context has left the mode of events: hands all that was used in it to the homes. Streams that it counted are
    /// gone, and `leave` has seen to them, so that the others are there.
    fn settle(&self, visits: &Mutex<Vec<Visit>>) -> Result<(), DriverError> {
        let mut visits = visits.lock().unwrap_or_else(PoisonError::into_inner);
        self.hand_over(&std::mem::take(&mut *visits))
    }

    fn hand_over(&self, visits: &[Visit]) -> Result<(), DriverError> {
        for Visit { by, home } in visits {
            // Without it there is no memory of it either.
            if let Some(home) = home.upgrade()
                && !is_captured(&home)?
            {
                Handle::of(&home).wait(&by.record(&self.context)?)?;
            }
        }
        Ok(())
    }
}

/// The homes of the memory that one launch uses.
struct Homes<'d> {
    device: &'d CudaDevice,
    /// That the launch has run.
    event: Option<CudaEvent>,
    /// Those that wait for it.
    waiting: Vec<Handle>,
}

impl Homes<'_> {
    /// Has the home wait for what was launched on `by`.
    fn follow(&mut self, by: &CudaStream, home: Handle) -> Result<(), DriverError> {
        let context = &self.device.context;
        let ours = matches!(self.device.order, Order::Ours(_));
        if ours || home.is(by) || self.waiting.contains(&home) || Mode::of(context) != Mode::Homes {
            return Ok(());
        }
        self.waiting.push(home);
        if self.event.is_none() {
            self.event = Some(by.record_event(None)?);
        }
        self.event.as_ref().map_or(Ok(()), |event| home.wait(event))
    }
}

//! Launching on a GPU.
//!
//! Takes checked arguments of the launch's own device. Gives the driver one launch, surrounded by the waits
//! and records with which `cudarc` orders uses of a buffer across streams; those cost nothing until a second stream
//! exists.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUresult};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, DriverError};

use super::arg::{Arg, Value};
use super::driver::{self, Shape};
use super::tensor_map::{Encoded, Refusal};
use super::trace::{BodyTrace, Trace, narrow, print};
use super::{Call, blocking, tracing};
use crate::cuda::CudaDevice;
use crate::error::{Error, Result};
use crate::fact::{Actual, Known};
use crate::kernel::{Body, MAX_MAPS};
use crate::module::{self, Code, Entry, Loaded, Resident};
use crate::order::Use;
use crate::report::Waited;
use crate::slice::{SharedBytes, UniqueBytes};

/// Where a launch goes.
#[derive(Clone, Copy)]
pub(super) struct Queue<'s> {
    pub(super) device: &'static CudaDevice,
    pub(super) stream: &'s Arc<CudaStream>,
    /// Whether the stream is being captured. It can wait for nothing outside then: whoever launches the graph does.
    pub(super) captured: bool,
}

/// The launch's memory, on the caller's stack.
pub(super) struct Frame<'f, 'g> {
    /// By parameter.
    pub(super) actuals: &'f mut [Actual],
    /// By parameter: what tells a buffer, once the launch is in line, that it is used.
    pub(super) guards: &'f mut [Option<Use<'g>>],
    /// One for each of the body's arguments but its maps.
    pub(super) values: &'f mut [u64],
    /// The first are those of the body.
    pub(super) maps: &'f mut [Option<Encoded>; MAX_MAPS],
    /// One for each of the body's arguments.
    pub(super) pointers: &'f mut [*mut c_void],
}

/// The body that runs.
struct Chosen<'c> {
    code: &'c Code,
    loaded: &'c Loaded,
    body: &'static Body,
    function: CUfunction,
    /// Of a counted body.
    counter: Option<CUdeviceptr>,
    /// Whether it runs in clusters of [`CLUSTER`] blocks, which load shared boxes for each other.
    multicast: bool,
}

impl Chosen<'_> {
    /// The CUDA grid that runs a kernel's grid.
    fn blocks(&self, grid: [u32; 3]) -> [u32; 3] {
        let [x, y, z] = blocks(grid, self.body, self.loaded.resident, self.counter);
        [if self.multicast { x.next_multiple_of(CLUSTER) } else { x }, y, z]
    }
}

/// Blocks of a cluster with multicast loads.
const CLUSTER: u32 = 2;

pub(super) fn launch<'g>(
    call: Call,
    queue: Queue<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut Frame<'_, 'g>,
) -> Result<()> {
    let Queue { device, stream, .. } = queue;
    let launched = enqueue(call, queue, args, frame);
    device.release(frame.guards.iter_mut().filter_map(Option::take));
    let record = launched?;
    device.recent.note(call.kernel);
    if let Some(record) = record {
        device.pending.note((call.kernel, call.variant), record, stream);
    }
    if blocking() {
        stream
            .synchronize()
            .map_err(|error| Error::cuda_of("cuStreamSynchronize", Some(call.kernel.name), error))?;
        device.pending.collect(stream, Waited::Stream)?;
    }
    Ok(())
}

/// Makes the launch a part of the graph that its stream is captured for; gives the address of its record, if it has one.
pub(super) fn record<'g>(
    call: Call,
    queue: Queue<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut Frame<'_, 'g>,
) -> Result<Option<CUdeviceptr>> {
    let launched = enqueue(call, queue, args, frame);
    queue.device.release(frame.guards.iter_mut().filter_map(Option::take));
    launched
}

pub(super) fn trace<'g>(
    call: Call,
    queue: Queue<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut Frame<'_, 'g>,
) -> Result<Trace> {
    let chosen = prepare(call, queue, args, frame);
    queue.device.release(frame.guards.iter_mut().filter_map(Option::take));
    Ok(describe(call, queue.device, frame.actuals, &chosen?))
}

/// Puts the launch in line; gives the address of its record, if it has one.
fn enqueue<'g>(
    call: Call,
    queue: Queue<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut Frame<'_, 'g>,
) -> Result<Option<CUdeviceptr>> {
    let Queue { device, stream, .. } = queue;
    let chosen = prepare(call, queue, args, frame)?;
    if tracing() {
        print(&describe(call, device, frame.actuals, &chosen));
    }
    let body = chosen.body;
    let mut used = 0;
    let mut push = |value: u64| {
        frame.values[used] = value;
        frame.pointers[used] = (&raw mut frame.values[used]).cast();
        used += 1;
    };
    for actual in frame.actuals.iter() {
        match *actual {
            Actual::Slice { address, len } => {
                push(address);
                push(len as u64);
            }
            // The kernel reads as many of the low bytes as the type has.
            Actual::Scalar { bits, .. } => push(bits),
        }
    }
    call.grid.into_iter().for_each(|extent| push(extent.into()));
    if body.counted {
        push(chosen.counter.unwrap_or(0));
    }
    let maps = frame.maps.iter_mut().take(body.maps.len()).flatten();
    for (pointer, map) in frame.pointers[used..].iter_mut().zip(maps) {
        *pointer = std::ptr::from_mut(map).cast();
    }
    let shape = Shape {
        blocks: chosen.blocks(call.grid),
        threads: body.threads,
        shared_bytes: body.shared_bytes,
        cluster: if chosen.multicast { CLUSTER } else { 1 },
        follows: chosen.loaded.follows,
    };
    // SAFETY: the function was loaded into this device's context, which is current and is the stream's. The pointers
    // are to as many values as the body takes, in its order and of its types (`arg::check`), and to its maps
    // (`prepare`); the driver copies all of them before it returns, into a graph too. The memory behind the addresses
    // belongs to this context and is borrowed by `args`; that it lives until the kernel has run, and is used by nobody
    // else before, is what the guards see to. A counter lives as long as the context, and is used by kernels of this
    // stream alone, of which each waits for the one before it.
    let launched = unsafe { driver::launch(chosen.function, shape, stream.cu_stream(), frame.pointers) };
    launched.map_err(|error| refused(call, device, error))?;
    Ok(chosen.loaded.record)
}

/// Finds the code, takes the arguments' addresses on the stream, and picks the body.
fn prepare<'g>(
    call: Call,
    queue: Queue<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut Frame<'_, 'g>,
) -> Result<Chosen<'static>> {
    let Queue { device, stream, captured } = queue;
    let ordered = if captured { &device.stream } else { stream };
    device.context.bind_to_thread().map_err(|error| device.failed("cuCtxSetCurrent", error))?;
    let code =
        device.modules.get_or_load(call.variant, || module::code(call.kernel, call.variant, device))?;
    for (i, arg) in args.iter_mut().enumerate() {
        let (home, (address, done)) = match &mut arg.value {
            Value::Shared(SharedBytes::Cuda(view)) => (view.stream().clone(), view.device_ptr(ordered)),
            Value::Unique(UniqueBytes::Cuda(view)) => (view.stream().clone(), view.device_ptr_mut(ordered)),
            Value::Scalar(bits) => {
                frame.actuals[i] = Actual::Scalar { dtype: arg.dtype, bits: *bits };
                continue;
            }
            Value::Shared(SharedBytes::Host(_)) | Value::Unique(UniqueBytes::Host(_)) => {
                debug_assert_eq!(arg.len, 0, "`arg::check` found host memory");
                frame.actuals[i] = Actual::Slice { address: 0, len: 0 };
                continue;
            }
        };
        frame.actuals[i] = Actual::Slice { address, len: arg.len };
        frame.guards[i] = Some(device.begin(ordered, &home, done)?);
    }
    let known = Known { actuals: frame.actuals, grid: call.grid };
    for entry in &code.entries {
        // A driver that knows no maps might not load the code either, so they come first.
        let holds = entry.body.facts.iter().all(|fact| fact.holds(&known))
            && too_many(call.grid, entry.body).is_none();
        if !holds {
            continue;
        }
        let multicast = pays_multicast(call, entry.body, &known, device.multiprocessors);
        if encode(call, entry.body, &known, multicast, frame.maps).is_ok() {
            let loaded = entry.load(call.kernel, call.variant, device)?;
            if let Ok(function) = loaded.function() {
                let body = entry.body;
                // Asked for only now: waiting for the arguments may have made the stream part of a capture.
                let counter = if body.counted && !captured { device.counters.of(stream) } else { None };
                return Ok(Chosen { code, loaded, body, function, counter, multicast });
            }
        }
    }
    Err(Error::NoBody {
        kernel: call.kernel.name,
        variant: call.variant.label,
        device: device.label(),
        reasons: code
            .entries
            .iter()
            .map(|entry| format!("{}: {}", entry.body.entry, obstacle(call, entry, &known)))
            .collect(),
    })
}

/// Bytes that all programs load from which on multicast pays for the microsecond and a half by which clusters start later
/// (docs/performance.md).
const MULTICAST_BYTES: u64 = 48 << 20;

/// Whether to launch a body in clusters with multicast loads: where rows of what it loads begin within 32-byte sectors, and L2 bounds
/// the programs.
fn pays_multicast(call: Call, body: &Body, known: &Known<'_>, processors: usize) -> bool {
    let programs = programs(call.grid);
    if programs < 2 || 2 * programs < processors as u64 {
        return false;
    }
    let shared = body.maps.iter().filter_map(|map| map.shared(known, call.variant.dtypes));
    let (bytes, within) =
        shared.fold((0u64, false), |(all, any), (bytes, within)| (all.saturating_add(bytes), any | within));
    within && bytes.saturating_mul(programs) >= MULTICAST_BYTES
}

/// Encodes a body's maps, up to the first that is refused.
fn encode(
    call: Call,
    body: &Body,
    known: &Known<'_>,
    multicast: bool,
    maps: &mut [Option<Encoded>; MAX_MAPS],
) -> Result<(), Refusal> {
    for (encoded, map) in maps[..body.maps.len()].iter_mut().zip(body.maps) {
        *encoded = Some(map.encode(known, call.variant.dtypes, multicast)?);
    }
    Ok(())
}

/// The first thing that keeps a body from being taken.
fn obstacle(call: Call, entry: &Entry, known: &Known<'_>) -> String {
    if let Some(failed) = entry.body.facts.iter().find(|fact| !fact.holds(known)) {
        return failed.refutation(known, call.kernel.params);
    }
    if let Some(programs) = too_many(call.grid, entry.body) {
        return format!("it runs at most {MOST_PROGRAMS} programs, not {programs}");
    }
    let mut encoded = entry.body.maps.iter().map(|map| map.encode(known, call.variant.dtypes, false));
    if let Some(refusal) = encoded.find_map(Result::err) {
        return refusal.text(call.kernel.params);
    }
    entry.loaded().and_then(|loaded| loaded.function().err()).unwrap_or_default().to_string()
}

fn describe(call: Call, device: &CudaDevice, actuals: &[Actual], chosen: &Chosen<'_>) -> Trace {
    let known = Known { actuals, grid: call.grid };
    let before = chosen.code.entries.iter().take_while(|entry| !std::ptr::eq(entry.body, chosen.body));
    let bodies = chosen.code.entries.iter().map(|entry| entry.body);
    Trace {
        kernel: call.kernel.name,
        variant: call.variant.label,
        device: device.label(),
        code: chosen.loaded.image.clone(),
        grid: call.grid,
        body: Some(BodyTrace {
            entry: chosen.body.entry,
            blocks: chosen.blocks(call.grid),
            cluster: if chosen.multicast { CLUSTER } else { chosen.body.blocks },
            threads: chosen.body.threads,
            shared_bytes: chosen.body.shared_bytes,
            passed_over: before.map(|entry| (entry.body.entry, obstacle(call, entry, &known))).collect(),
            narrow: narrow(call.kernel.params, bodies, chosen.body),
        }),
    }
}

/// The most programs of a persistent body.
const MOST_PROGRAMS: u64 = i32::MAX as u64;

fn programs(grid: [u32; 3]) -> u64 {
    grid.into_iter().fold(1, |product, extent| product.saturating_mul(extent.into()))
}

/// How many programs there are, if that is more than the body runs.
pub(super) fn too_many(grid: [u32; 3], body: &Body) -> Option<u64> {
    Some(programs(grid)).filter(|&programs| body.persistent && programs > MOST_PROGRAMS)
}

/// The CUDA grid that runs a kernel's grid, of at most as many programs as the body runs, on a device with room for
/// these blocks.
pub(super) fn blocks(
    grid: [u32; 3],
    body: &Body,
    resident: Resident,
    counter: Option<CUdeviceptr>,
) -> [u32; 3] {
    if body.persistent {
        let programs = programs(grid).min(MOST_PROGRAMS) as u32;
        let blocks = match counter {
            _ if !body.counted => resident.even(programs),
            Some(_) => programs.min(resident.all()),
            None => programs,
        };
        return [blocks, 1, 1];
    }
    let [x, y, z] = grid;
    [x.div_ceil(body.programs.max(1)).saturating_mul(body.blocks.max(1)), y, z]
}

/// The error of a launch: of this one, or of an earlier one whose kernel failed since and took the context with it.
fn refused(call: Call, device: &CudaDevice, error: DriverError) -> Error {
    let of_an_earlier_kernel = matches!(
        error.0,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
    );
    if of_an_earlier_kernel {
        device.failed("cuLaunchKernel", error)
    } else {
        Error::cuda_of("cuLaunchKernel", Some(call.kernel.name), error)
    }
}

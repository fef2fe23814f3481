//! Launching on a GPU.
//!
//! Takes checked arguments of the launch's own device. Gives the driver one launch, surrounded by the waits
//! and records with which `cudarc` orders uses of a buffer across streams; those cost nothing until a second stream
//! exists.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUresult};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, DriverError};

use super::arg::{Arg, ArgValue};
use super::call::KernelCall;
use super::driver::{self, LaunchConfig};
use super::environment::{blocking, tracing};
use super::tensor_map::{CuTensorMap, EncodeFailure};
use super::trace::{SpecializationTrace, Trace, narrow, print};
use crate::cuda::CudaDevice;
use crate::error::{Error, Result};
use crate::guard::{KernelArg, LaunchArgs};
use crate::kernel::{MAX_MAPS, Specialization};
use crate::module::{self, Entry, LoadedEntry, Occupancy, VariantCode};
use crate::report::SyncScope;
use crate::slice::{SharedBytes, UniqueBytes};
use crate::stream_order::MemoryUse;

/// Where a launch goes.
#[derive(Clone, Copy)]
pub(super) struct LaunchStream<'s> {
    pub(super) device: &'static CudaDevice,
    pub(super) stream: &'s Arc<CudaStream>,
    /// Whether the stream is being captured. It can wait for nothing outside then: whoever launches the graph does.
    pub(super) captured: bool,
}

/// The arrays of a launch, on the caller's stack.
pub(super) struct LaunchFrame<'f, 'g> {
    /// By parameter.
    pub(super) kernel_args: &'f mut [KernelArg],
    /// By parameter: the use of a buffer, recorded once the launch is enqueued.
    pub(super) uses: &'f mut [Option<MemoryUse<'g>>],
    /// One for each of the specialization's arguments but its maps.
    pub(super) values: &'f mut [u64],
    /// The first are those of the specialization.
    pub(super) maps: &'f mut [Option<CuTensorMap>; MAX_MAPS],
    /// One for each of the specialization's arguments.
    pub(super) pointers: &'f mut [*mut c_void],
}

/// The specialization that runs.
struct ChosenSpecialization<'c> {
    code: &'c VariantCode,
    loaded: &'c LoadedEntry,
    specialization: &'static Specialization,
    function: CUfunction,
    /// Of a specialization with a work counter.
    work_counter: Option<CUdeviceptr>,
    /// Whether it runs in clusters of [`CLUSTER`] blocks, which multicast their loads to each other.
    multicast: bool,
}

impl ChosenSpecialization<'_> {
    /// The CUDA grid that runs a kernel's grid.
    fn blocks(&self, grid: [u32; 3]) -> [u32; 3] {
        let [x, y, z] = blocks(grid, self.specialization, self.loaded.occupancy, self.work_counter);
        [if self.multicast { x.next_multiple_of(CLUSTER) } else { x }, y, z]
    }
}

/// Blocks of a cluster with multicast loads.
const CLUSTER: u32 = 2;

pub(super) fn launch<'g>(
    call: KernelCall,
    launch_stream: LaunchStream<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut LaunchFrame<'_, 'g>,
) -> Result<()> {
    let LaunchStream { device, stream, .. } = launch_stream;
    let launched = enqueue(call, launch_stream, args, frame);
    device.stream_order.release(frame.uses.iter_mut().filter_map(Option::take));
    let record = launched?;
    device.recent.note(call.kernel);
    if let Some(record) = record {
        device.pending.note((call.kernel, call.variant), record, stream);
    }
    if blocking() {
        stream
            .synchronize()
            .map_err(|error| Error::cuda_of("cuStreamSynchronize", Some(call.kernel.name), error))?;
        device.pending.collect(stream, SyncScope::Stream)?;
    }
    Ok(())
}

/// Adds the launch to the graph that captures its stream; returns the address of its failure record, if it has one.
pub(super) fn record<'g>(
    call: KernelCall,
    launch_stream: LaunchStream<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut LaunchFrame<'_, 'g>,
) -> Result<Option<CUdeviceptr>> {
    let launched = enqueue(call, launch_stream, args, frame);
    launch_stream.device.stream_order.release(frame.uses.iter_mut().filter_map(Option::take));
    launched
}

pub(super) fn trace<'g>(
    call: KernelCall,
    launch_stream: LaunchStream<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut LaunchFrame<'_, 'g>,
) -> Result<Trace> {
    let chosen = prepare(call, launch_stream, args, frame);
    launch_stream.device.stream_order.release(frame.uses.iter_mut().filter_map(Option::take));
    Ok(describe(call, launch_stream.device, frame.kernel_args, &chosen?))
}

/// Enqueues the launch; returns the address of its failure record, if it has one.
fn enqueue<'g>(
    call: KernelCall,
    launch_stream: LaunchStream<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut LaunchFrame<'_, 'g>,
) -> Result<Option<CUdeviceptr>> {
    let LaunchStream { device, stream, .. } = launch_stream;
    let chosen = prepare(call, launch_stream, args, frame)?;
    if tracing() {
        print(&describe(call, device, frame.kernel_args, &chosen));
    }
    let specialization = chosen.specialization;
    let mut used = 0;
    let mut push = |value: u64| {
        frame.values[used] = value;
        frame.pointers[used] = (&raw mut frame.values[used]).cast();
        used += 1;
    };
    for kernel_arg in frame.kernel_args.iter() {
        match *kernel_arg {
            KernelArg::Slice { address, len } => {
                push(address);
                push(len as u64);
            }
            // The kernel reads as many of the low bytes as the type has.
            KernelArg::Scalar { bits, .. } => push(bits),
        }
    }
    call.grid.into_iter().for_each(|extent| push(extent.into()));
    if specialization.uses_work_counter {
        push(chosen.work_counter.unwrap_or(0));
    }
    let maps = frame.maps.iter_mut().take(specialization.maps.len()).flatten();
    for (pointer, map) in frame.pointers[used..].iter_mut().zip(maps) {
        *pointer = std::ptr::from_mut(map).cast();
    }
    let config = LaunchConfig {
        blocks: chosen.blocks(call.grid),
        threads: specialization.threads,
        shared_bytes: specialization.shared_bytes,
        cluster: if chosen.multicast { CLUSTER } else { 1 },
        uses_pdl: chosen.loaded.uses_pdl,
    };
    // SAFETY: the function was loaded into this device's context, which is current and is the stream's. The pointers
    // are to as many values as the specialization takes, in its order and of its types (`arg::check`), and to its maps
    // (`prepare`); the driver copies all of them before it returns, into a graph too. The memory behind the addresses
    // belongs to this context and is borrowed by `args`; that it lives until the kernel has run, and is used by nobody
    // else before, the `uses` guarantee. A work counter lives as long as the context, and is used by kernels of this
    // stream alone, of which each waits for the one before it.
    let launched = unsafe { driver::launch(chosen.function, config, stream.cu_stream(), frame.pointers) };
    launched.map_err(|error| launch_error(call, device, error))?;
    Ok(chosen.loaded.record)
}

/// Finds the code, takes the arguments' addresses on the stream, and selects the specialization.
fn prepare<'g>(
    call: KernelCall,
    launch_stream: LaunchStream<'g>,
    args: &'g mut [Arg<'_>],
    frame: &mut LaunchFrame<'_, 'g>,
) -> Result<ChosenSpecialization<'static>> {
    let LaunchStream { device, stream, captured } = launch_stream;
    let ordering_stream = if captured { &device.stream } else { stream };
    device.context.bind_to_thread().map_err(|error| device.failed("cuCtxSetCurrent", error))?;
    let code = device
        .modules
        .get_or_load(call.variant, || module::code(call.kernel, call.variant, &device.properties))?;
    for (i, arg) in args.iter_mut().enumerate() {
        let (alloc_stream, (address, done)) = match &mut arg.value {
            ArgValue::Shared(SharedBytes::Cuda(view)) => {
                (view.stream().clone(), view.device_ptr(ordering_stream))
            }
            ArgValue::Unique(UniqueBytes::Cuda(view)) => {
                (view.stream().clone(), view.device_ptr_mut(ordering_stream))
            }
            ArgValue::Scalar(bits) => {
                frame.kernel_args[i] = KernelArg::Scalar { dtype: arg.dtype, bits: *bits };
                continue;
            }
            ArgValue::Shared(SharedBytes::Host(_)) | ArgValue::Unique(UniqueBytes::Host(_)) => {
                debug_assert_eq!(arg.len, 0, "`arg::check` found host memory");
                frame.kernel_args[i] = KernelArg::Slice { address: 0, len: 0 };
                continue;
            }
        };
        frame.kernel_args[i] = KernelArg::Slice { address, len: arg.len };
        frame.uses[i] = Some(device.stream_order.begin(ordering_stream, &alloc_stream, done)?);
    }
    let launch_args = LaunchArgs { kernel_args: frame.kernel_args, grid: call.grid };
    for entry in &code.entries {
        // A driver without tensor maps might not load the code either, so maps are encoded first.
        let holds = entry.specialization.guards.iter().all(|guard| guard.holds(&launch_args))
            && excess_programs(call.grid, entry.specialization).is_none();
        if !holds {
            continue;
        }
        let multicast =
            pays_multicast(call, entry.specialization, &launch_args, device.properties.multiprocessors);
        if encode(call, entry.specialization, &launch_args, multicast, frame.maps).is_ok() {
            let loaded = entry.load(call.kernel, call.variant, &device.properties)?;
            if let Ok(function) = loaded.function() {
                let specialization = entry.specialization;
                // Only now: waiting for the arguments may have made the stream part of a capture.
                let work_counter = if specialization.uses_work_counter && !captured {
                    device.work_counters.of(stream)
                } else {
                    None
                };
                return Ok(ChosenSpecialization {
                    code,
                    loaded,
                    specialization,
                    function,
                    work_counter,
                    multicast,
                });
            }
        }
    }
    Err(Error::NoSpecialization {
        kernel: call.kernel.name,
        variant: call.variant.label,
        device: device.label(),
        reasons: code
            .entries
            .iter()
            .map(|entry| {
                format!("{}: {}", entry.specialization.entry, rejection_reason(call, entry, &launch_args))
            })
            .collect(),
    })
}

/// Bytes that all programs load from which on multicast pays for the microsecond and a half by which clusters start later
/// (docs/decisions/0137).
const MULTICAST_BYTES: u64 = 48 << 20;

/// Whether to launch a specialization in clusters with multicast loads: where rows of its loads are not sector-aligned, and L2 bounds
/// the programs.
fn pays_multicast(
    call: KernelCall,
    specialization: &Specialization,
    launch_args: &LaunchArgs<'_>,
    multiprocessors: usize,
) -> bool {
    let programs = programs(call.grid);
    if programs < 2 || 2 * programs < multiprocessors as u64 {
        return false;
    }
    let loads =
        specialization.maps.iter().filter_map(|map| map.multicast_loads(launch_args, call.variant.dtypes));
    let (bytes, within) =
        loads.fold((0u64, false), |(all, any), (bytes, within)| (all.saturating_add(bytes), any | within));
    within && bytes.saturating_mul(programs) >= MULTICAST_BYTES
}

/// Encodes a specialization's maps, up to the first that is refused.
fn encode(
    call: KernelCall,
    specialization: &Specialization,
    launch_args: &LaunchArgs<'_>,
    multicast: bool,
    maps: &mut [Option<CuTensorMap>; MAX_MAPS],
) -> Result<(), EncodeFailure> {
    for (encoded, map) in maps[..specialization.maps.len()].iter_mut().zip(specialization.maps) {
        *encoded = Some(map.encode(launch_args, call.variant.dtypes, multicast)?);
    }
    Ok(())
}

/// The first reason why a specialization is not taken.
fn rejection_reason(call: KernelCall, entry: &Entry, launch_args: &LaunchArgs<'_>) -> String {
    if let Some(failed) = entry.specialization.guards.iter().find(|guard| !guard.holds(launch_args)) {
        return failed.failure_text(launch_args, call.kernel.params);
    }
    if let Some(programs) = excess_programs(call.grid, entry.specialization) {
        return format!("it runs at most {MAX_PROGRAMS} programs, not {programs}");
    }
    let mut encoded =
        entry.specialization.maps.iter().map(|map| map.encode(launch_args, call.variant.dtypes, false));
    if let Some(refusal) = encoded.find_map(Result::err) {
        return refusal.text(call.kernel.params);
    }
    entry.loaded().and_then(|loaded| loaded.function().err()).unwrap_or_default().to_string()
}

fn describe(
    call: KernelCall,
    device: &CudaDevice,
    kernel_args: &[KernelArg],
    chosen: &ChosenSpecialization<'_>,
) -> Trace {
    let launch_args = LaunchArgs { kernel_args, grid: call.grid };
    let before = chosen
        .code
        .entries
        .iter()
        .take_while(|entry| !std::ptr::eq(entry.specialization, chosen.specialization));
    let specializations = chosen.code.entries.iter().map(|entry| entry.specialization);
    Trace {
        kernel: call.kernel.name,
        variant: call.variant.label,
        device: device.label(),
        code: chosen.loaded.image.clone(),
        grid: call.grid,
        specialization: Some(SpecializationTrace {
            entry: chosen.specialization.entry,
            blocks: chosen.blocks(call.grid),
            cluster: if chosen.multicast { CLUSTER } else { chosen.specialization.blocks_per_program },
            threads: chosen.specialization.threads,
            shared_bytes: chosen.specialization.shared_bytes,
            passed_over: before
                .map(|entry| (entry.specialization.entry, rejection_reason(call, entry, &launch_args)))
                .collect(),
            narrow: narrow(call.kernel.params, specializations, chosen.specialization),
            refused_dots: chosen
                .specialization
                .refused_dots
                .iter()
                .map(|dot| (dot.line, dot.reason))
                .collect(),
        }),
    }
}

/// The most programs of a persistent specialization.
const MAX_PROGRAMS: u64 = i32::MAX as u64;

fn programs(grid: [u32; 3]) -> u64 {
    grid.into_iter().fold(1, |product, extent| product.saturating_mul(extent.into()))
}

/// The number of programs, if it exceeds what the specialization runs.
pub(super) fn excess_programs(grid: [u32; 3], specialization: &Specialization) -> Option<u64> {
    Some(programs(grid)).filter(|&programs| specialization.persistent && programs > MAX_PROGRAMS)
}

/// The CUDA grid that runs a kernel's grid, of at most as many programs as the specialization runs, on a device with room for
/// these blocks.
pub(super) fn blocks(
    grid: [u32; 3],
    specialization: &Specialization,
    occupancy: Occupancy,
    work_counter: Option<CUdeviceptr>,
) -> [u32; 3] {
    if specialization.persistent {
        let programs = programs(grid).min(MAX_PROGRAMS) as u32;
        let blocks = match work_counter {
            _ if !specialization.uses_work_counter => occupancy.balanced_blocks(programs),
            Some(_) => programs.min(occupancy.resident_blocks()),
            None => programs,
        };
        return [blocks, 1, 1];
    }
    let [x, y, z] = grid;
    [
        x.div_ceil(specialization.programs_per_block.max(1))
            .saturating_mul(specialization.blocks_per_program.max(1)),
        y,
        z,
    ]
}

/// The error of a launch: of this one, or of an earlier one whose kernel failed since and took the context with it.
fn launch_error(call: KernelCall, device: &CudaDevice, error: DriverError) -> Error {
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

//! Graphs: launches that are captured once and replayed by one call (CUDA graphs on a GPU).

mod buffers;
mod executable;
mod memory_range;
mod recorder;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use cudarc::driver::sys::CUstreamCaptureMode;
use cudarc::driver::{CudaStream, DeviceSlice, result};

use crate::cuda::CudaDevice;
use crate::device::On;
use crate::error::{Error, Result};
use crate::launch::blocking;
use crate::slice::{SharedBytes, UniqueBytes};
use crate::stream::Stream;
use crate::stream_order::MemoryUse;

pub use buffers::GraphBuffers;
pub(crate) use memory_range::{MemoryRange, shared_range, unique_range};
pub(crate) use recorder::{RecordedLaunch, RecordedWork, Recorder};

use buffers::{MemoryRegion, RegionBytes};
use executable::Executable;
use memory_range::exposed_range;
use recorder::{Temporaries, check_owned};

/// Launches that were recorded, with the memory they use. Made by [`Stream::capture`].
///
/// On a GPU a graph is launched by one call of the driver, and its kernels run back to back without the time that the CPU
/// takes to launch each: what counts for small shapes. On the CPU the launches run one after another.
///
/// The graph keeps the buffers, so they outlive it; between launches [`buffers_mut`](Graph::buffers_mut) lends them.
///
/// ```
/// # mod m {
/// # use dsl_runtime::prelude::*;
/// # #[fuse_kernel(BLOCK = [64])]
/// # pub fn double<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
/// #     let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
/// #     tl::store(out + i, tl::load(x + i, i < n) * 2.0, i < n);
/// # }
/// # }
/// # use m::double;
/// use dsl_runtime::prelude::*;
///
/// let device = Device::cpu();
/// let (x, y, z) = (device.upload(&[1.0f32; 100])?, device.zeros::<f32>(100)?, device.zeros::<f32>(100)?);
/// let mut graph = device.stream().capture((x, y, z), |(x, y, z), stream| {
///     double::<64>(&*x, &mut *y, 100).grid(2).launch(stream)?;
///     double::<64>(&*y, &mut *z, 100).grid(2).launch(stream)
/// })?;
/// graph.launch()?;
/// assert_eq!(graph.buffers().2.download()?, [4.0; 100]);
///
/// graph.buffers_mut().0.copy_from_host(&[3.0; 100])?;
/// graph.launch()?;
/// assert_eq!(graph.buffers().2.download()?, [12.0; 100]);
/// # Ok::<(), dsl_runtime::Error>(())
/// ```
pub struct Graph<H: GraphBuffers> {
    // Before the buffers, so that it goes first.
    code: GraphCode,
    recorded: Vec<RecordedLaunch>,
    temporaries: Temporaries,
    buffers: H,
}

enum GraphCode {
    Cpu,
    Cuda { device: &'static CudaDevice, stream: Stream, graph: Executable },
}

impl Stream {
    /// Records what `record` launches on the stream that it is given, for [`Graph::launch`] to run on this one. Nothing runs
    /// yet. `record` gets the buffers back to launch with; every slice that a launch takes must be part of them.
    ///
    /// The variant of a tuned kernel is the one that was chosen before, or the first: nothing is measured. While it records, no
    /// thread can wait for the whole GPU: the driver does not allow it.
    ///
    /// # Errors
    /// Those of `record`; [`Error::Capture`] if a launch uses memory that is not part of `buffers`, or if this stream is
    /// itself being captured; a CUDA error.
    pub fn capture<H: GraphBuffers>(
        &self,
        mut buffers: H,
        record: impl FnOnce(&mut H, &Stream) -> Result<()>,
    ) -> Result<Graph<H>> {
        if self.recorder().is_some() {
            return Err(Error::Capture { reason: "the stream is being captured already".to_string() });
        }
        let on = self.on();
        let recorder = Arc::new(Recorder::new(ranges(&mut buffers, on)?));
        let code = match on {
            On::Cpu => {
                let outcome = record(&mut buffers, &Stream::recording(Stream::cpu(), recorder.clone()));
                if let Err(error) = outcome {
                    recorder.end();
                    return Err(error);
                }
                GraphCode::Cpu
            }
            On::Cuda(device, _) => {
                // One that nobody else can launch on meanwhile.
                let own = device.new_stream()?;
                let start = own.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED);
                start.map_err(|error| device.failed("cuStreamBeginCapture", error))?;
                let capturing = Stream::recording(Stream::cuda(device, own.clone()), recorder.clone());
                let outcome = record(&mut buffers, &capturing);
                let graph = Executable::captured(&own);
                if let Err(error) = outcome {
                    recorder.end();
                    return Err(error);
                }
                let graph = graph.map_err(|error| device.failed("cuStreamEndCapture", error))?;
                let graph = graph
                    .ok_or_else(|| Error::Capture { reason: "the driver gives no graph".to_string() })?;
                GraphCode::Cuda { device, stream: self.clone(), graph }
            }
        };
        let (recorded, temporaries) = recorder.end();
        Ok(Graph { code, recorded, temporaries, buffers })
    }
}

impl<H: GraphBuffers> Graph<H> {
    /// Runs what was recorded, in the order recorded. As [`Launch::launch`](crate::Launch::launch), it returns before the
    /// kernels have run on a GPU, and after it on the CPU.
    ///
    /// # Errors
    /// If a buffer was replaced by another since, also where that has the other's address; those of a launch.
    pub fn launch(&mut self) -> Result<()> {
        let Graph { code, recorded, temporaries, buffers } = self;
        let check = |owned: &[MemoryRange]| {
            recorded.iter().try_for_each(|launch| check_owned(owned, launch.kernel, &launch.used))
        };
        match code {
            GraphCode::Cpu => {
                let mut owned = ranges(buffers, On::Cpu)?;
                for buffer in temporaries {
                    owned.extend(ranges(&mut **buffer, On::Cpu)?);
                }
                check(&owned)?;
                for launch in recorded.iter_mut() {
                    if let RecordedWork::Host(replay) = &mut launch.work {
                        // SAFETY: all memory that it uses is inside buffers of the graph, of the same element types and to be
                        // written where it writes (`check`). The graph is borrowed mutably, and its buffers with it.
                        unsafe { replay.run() }?;
                    }
                }
                Ok(())
            }
            GraphCode::Cuda { device, stream, graph } => {
                let On::Cuda(_, stream) = stream.on() else { unreachable!("it was captured on a GPU") };
                device.context.bind_to_thread().map_err(|error| device.failed("cuCtxSetCurrent", error))?;
                let mut regions = Vec::new();
                buffers.visit(&mut |region| regions.push(region));
                for buffer in temporaries {
                    buffer.visit(&mut |region| regions.push(region));
                }
                let (mut owned, mut uses) = (Vec::new(), Vec::new());
                for region in regions {
                    let Some((range, used)) = used(region, device, stream)? else { continue };
                    owned.push(range);
                    uses.push(used);
                }
                let launched = check(&owned).and_then(|()| {
                    // SAFETY: the graph was made in this context, which is current. The memory that its kernels use is inside
                    // the buffers, of the same element types (`check`), and `uses` order it with other uses of them.
                    unsafe { result::graph::launch(graph.raw(), stream.cu_stream()) }
                        .map_err(|error| device.failed("cuGraphLaunch", error))
                });
                device.stream_order.release(uses);
                launched?;
                for launch in recorded {
                    device.recent.note(launch.kernel);
                    if let RecordedWork::Cuda(Some(record)) = launch.work {
                        device.pending.note((launch.kernel, launch.variant), record, stream);
                    }
                }
                if blocking() { device.synchronize_stream(stream) } else { Ok(()) }
            }
        }
    }

    /// The number of launches.
    pub fn len(&self) -> usize {
        self.recorded.len()
    }

    /// Whether nothing was launched.
    pub fn is_empty(&self) -> bool {
        self.recorded.is_empty()
    }

    /// The buffers.
    pub fn buffers(&self) -> &H {
        &self.buffers
    }

    /// The buffers, to change what they hold.
    pub fn buffers_mut(&mut self) -> &mut H {
        &mut self.buffers
    }

    /// The buffers back.
    pub fn into_buffers(self) -> H {
        self.buffers
    }
}

impl<H: GraphBuffers> std::fmt::Debug for Graph<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.recorded.iter().map(|launch| launch.kernel.name).collect();
        write!(f, "graph of {names:?}")
    }
}

/// The address ranges that a graph owns; all must be on the graph's device.
fn ranges(buffers: &mut dyn GraphBuffers, on: On<'_>) -> Result<Vec<MemoryRange>> {
    let mut ranges = Vec::new();
    let mut off_device = false;
    buffers.visit(&mut |region| match range(region, on) {
        Some(range) => ranges.push(range),
        None => off_device = true,
    });
    if off_device {
        return Err(Error::Capture { reason: "a buffer is not on the device of the stream".to_string() });
    }
    Ok(ranges)
}

fn range(MemoryRegion { bytes, dtype }: MemoryRegion<'_>, on: On<'_>) -> Option<MemoryRange> {
    match bytes {
        RegionBytes::Shared(bytes) => shared_range(&bytes, dtype, on),
        RegionBytes::Unique(bytes) => exposed_range(bytes, dtype, on),
    }
}

/// A use of memory by a graph on a stream, which waits for those before it.
fn used<'h>(
    region: MemoryRegion<'h>,
    device: &'static CudaDevice,
    stream: &'h CudaStream,
) -> Result<Option<(MemoryRange, MemoryUse<'h>)>> {
    let (bytes, writes, home, (start, done)) = match region.bytes {
        RegionBytes::Shared(SharedBytes::Cuda(view)) => {
            (view.len(), false, view.stream().clone(), view.view_ptr(stream))
        }
        RegionBytes::Unique(UniqueBytes::Cuda(view)) => {
            (view.len(), true, view.stream().clone(), view.view_ptr_mut(stream))
        }
        RegionBytes::Shared(SharedBytes::Host(_)) | RegionBytes::Unique(UniqueBytes::Host(_)) => {
            return Ok(None);
        }
    };
    let used = device.stream_order.begin(stream, &home, done)?;
    Ok(Some((MemoryRange { start, bytes: bytes as u64, dtype: region.dtype, writes }, used)))
}

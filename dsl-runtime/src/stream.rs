//! [`Stream`]: a queue of work on a device, and [`LaunchOn`]: what a kernel can be launched on.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use crate::cuda::CudaDevice;
use crate::device::{Backend, Device, On};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::graph::Recorder;
use crate::temporary::Temporary;

/// A queue of launches that run one after another. On the CPU a launch is complete when it returns, and every stream is
/// the same.
#[derive(Clone)]
pub struct Stream {
    backend: StreamBackend,
    /// Records launches, on a stream that is being captured.
    recorder: Option<Arc<Recorder>>,
}

#[derive(Clone)]
enum StreamBackend {
    Cpu,
    Cuda(Arc<GpuStream>),
}

/// A stream of a GPU.
struct GpuStream {
    device: &'static CudaDevice,
    stream: Arc<CudaStream>,
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        self.device.stream_order.retire_stream(&self.stream);
    }
}

impl Stream {
    pub(crate) fn cpu() -> Stream {
        Stream { backend: StreamBackend::Cpu, recorder: None }
    }

    pub(crate) fn cuda(device: &'static CudaDevice, stream: Arc<CudaStream>) -> Stream {
        Stream { backend: StreamBackend::Cuda(Arc::new(GpuStream { device, stream })), recorder: None }
    }

    /// The same stream while it is being captured.
    pub(crate) fn recording(stream: Stream, recorder: Arc<Recorder>) -> Stream {
        Stream { recorder: Some(recorder), ..stream }
    }

    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.recorder.as_ref()
    }

    pub(crate) fn on(&self) -> On<'_> {
        match &self.backend {
            StreamBackend::Cpu => On::Cpu,
            StreamBackend::Cuda(gpu) => On::Cuda(gpu.device, &gpu.stream),
        }
    }

    /// A stream of the `cudarc` crate. Its context becomes a device as [`Device::from_context`] says.
    ///
    /// The context stays as its owner has it: no stream is made, and `cudarc` records events where it did before.
    ///
    /// # Errors
    /// A CUDA error.
    pub fn from_cuda(stream: Arc<CudaStream>) -> Result<Stream> {
        let device = crate::cuda::adopt(stream.context())?;
        device.stream_order.track()?;
        Ok(Stream::cuda(device, stream))
    }

    /// The device it belongs to.
    pub fn device(&self) -> Device {
        match &self.backend {
            StreamBackend::Cpu => Device::cpu(),
            StreamBackend::Cuda(gpu) => Device::of(gpu.device),
        }
    }

    /// Waits for everything that was launched on it.
    ///
    /// # Errors
    /// A CUDA error, also that of a kernel launched before; [`Error::Capture`] while the stream is being captured.
    pub fn synchronize(&self) -> Result<()> {
        if self.recorder.is_some() {
            return Err(Error::Capture { reason: "nothing runs yet that could be waited for".to_string() });
        }
        match &self.backend {
            StreamBackend::Cpu => Ok(()),
            StreamBackend::Cuda(gpu) => gpu.device.synchronize_stream(&gpu.stream),
        }
    }

    /// The stream as the `cudarc` crate knows it, if it is a GPU's.
    pub fn raw(&self) -> Option<&Arc<CudaStream>> {
        match &self.backend {
            StreamBackend::Cpu => None,
            StreamBackend::Cuda(gpu) => Some(&gpu.stream),
        }
    }
}

impl Device {
    /// The default stream: the one that launches on the device itself go to.
    pub fn stream(&self) -> Stream {
        match self.backend() {
            Backend::Cpu => Stream::cpu(),
            Backend::Cuda(cuda) => Stream::cuda(cuda, cuda.stream.clone()),
        }
    }

    /// A stream whose work can overlap with that of others. Launches that share a buffer, one of them to write it, still
    /// run in the order in which they were made, whatever their streams.
    ///
    /// # Errors
    /// A CUDA error.
    pub fn new_stream(&self) -> Result<Stream> {
        match self.backend() {
            Backend::Cpu => Ok(Stream::cpu()),
            Backend::Cuda(cuda) => Ok(Stream::cuda(cuda, cuda.new_stream()?)),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            StreamBackend::Cpu => f.write_str("stream of the cpu"),
            StreamBackend::Cuda(gpu) => {
                write!(f, "stream {:p} of {}", gpu.stream.cu_stream(), gpu.device.label())
            }
        }
    }
}

/// What a launch goes to: `&device`, for its default stream, or `&stream`.
pub trait LaunchOn: sealed::SealedTarget + Copy {
    #[doc(hidden)]
    fn target(&self) -> Target<'_>;

    /// Whether blocks that share a program (`num_ctas`) run as a cluster here: on GPUs of compute capability 9.0. Elsewhere
    /// one block does all of it, for which very long tiles have too few registers.
    fn has_clusters(&self) -> bool {
        match self.target().on {
            On::Cpu => false,
            On::Cuda(device, _) => device.properties.capability == 90,
        }
    }

    /// Whether tiles are multiplied by warpgroup mma here (`wgmma`), with operands in shared memory: on GPUs of compute capability 9.0. Other
    /// GPUs multiply by warps, and are faster with smaller tiles.
    fn has_wgmma(&self) -> bool {
        match self.target().on {
            On::Cpu => false,
            On::Cuda(device, _) => device.properties.capability == 90,
        }
    }

    /// The most shared memory that a block can have on this GPU, in bytes; `None` on a CPU. Kernels that would like more run
    /// slower code there.
    fn shared_bytes(&self) -> Option<usize> {
        match self.target().on {
            On::Cpu => None,
            On::Cuda(device, _) => Some(device.properties.shared_limit as usize),
        }
    }

    /// Memory of `len` elements for launches on it, with whatever it held before.
    ///
    /// # Errors
    /// If there is not enough memory; a CUDA error.
    fn temporary<T: Element>(&self, len: usize) -> Result<Temporary<T>> {
        let Target { on, recorder } = self.target();
        Temporary::new(on, recorder, len)
    }

    /// How many programs run at once: a GPU's multiprocessors, or the threads of the CPU.
    fn parallelism(&self) -> usize {
        self.target().on.parallelism()
    }
}

/// A device and one of its streams.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Target<'s> {
    pub(crate) on: On<'s>,
    pub(crate) recorder: Option<&'s Arc<Recorder>>,
}

mod sealed {
    pub trait SealedTarget {}
    impl SealedTarget for &crate::Device {}
    impl SealedTarget for &crate::Stream {}
    impl SealedTarget for super::Target<'_> {}
}

impl LaunchOn for &Device {
    fn target(&self) -> Target<'_> {
        Target { on: self.on(), recorder: None }
    }
}

/// What conditions of configs ask as `device`.
impl LaunchOn for Target<'_> {
    fn target(&self) -> Target<'_> {
        *self
    }
}

impl LaunchOn for &Stream {
    fn target(&self) -> Target<'_> {
        Target { on: self.on(), recorder: self.recorder() }
    }
}

//! [`Device`]: where buffers live and kernels run.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use crate::cpu_level::level;
use crate::cuda::{self, CudaDevice};
use crate::error::{Error, Result};
use crate::threads;

/// A CUDA GPU, or this CPU.
///
/// A handle that is free to copy. A GPU is opened once for a process, on its primary context, and stays open.
#[derive(Clone, Copy)]
pub struct Device(Backend);

#[derive(Clone, Copy)]
pub(crate) enum Backend {
    Cpu,
    Cuda(&'static CudaDevice),
}

impl Device {
    /// The first CUDA device if there is a driver and a device, and this CPU otherwise.
    ///
    /// The environment overrides it: `FUSE_DEVICE=cpu`, `FUSE_DEVICE=cuda` or `FUSE_DEVICE=cuda:1`.
    ///
    /// # Errors
    /// If the device named in `FUSE_DEVICE` does not exist; if there is a driver and it fails, for which
    /// `FUSE_DEVICE=cpu` is the way around.
    pub fn best() -> Result<Device> {
        match std::env::var("FUSE_DEVICE") {
            Ok(wanted) if !wanted.is_empty() => match parse(&wanted)? {
                DeviceSetting::Cpu => Ok(Device::cpu()),
                DeviceSetting::Cuda(ordinal) => Device::cuda(ordinal),
            },
            _ => match cuda::count() {
                Ok(0) | Err(Error::NoDriver) => Ok(Device::cpu()),
                Ok(_) => Device::cuda(0),
                Err(error) => Err(error),
            },
        }
    }

    /// The CUDA device with this ordinal.
    ///
    /// # Errors
    /// If there is no driver or no such device; a CUDA error.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        Ok(Device(Backend::Cuda(cuda::open(ordinal)?)))
    }

    /// This CPU. Kernels run on all its cores, in rayon's pool.
    pub fn cpu() -> Device {
        Device(Backend::Cpu)
    }

    /// The device of a context of the `cudarc` crate, so that its memory can be used here. The context is kept for as
    /// long as the process lives. If no device with its ordinal is open yet, [`Device::cuda`] gives this one from now
    /// on; otherwise the two share the GPU but not their buffers.
    ///
    /// # Errors
    /// A CUDA error.
    pub fn from_context(context: &Arc<CudaContext>) -> Result<Device> {
        Ok(Device(Backend::Cuda(cuda::adopt(context)?)))
    }

    /// Such as `NVIDIA H200` or `CPU, x86-64-v3, 16 threads`.
    pub fn name(&self) -> String {
        match self.0 {
            Backend::Cpu => format!("CPU, {}, {} threads", level(), self.parallelism()),
            Backend::Cuda(cuda) => cuda.properties.name.clone(),
        }
    }

    /// Whether it is a CUDA GPU.
    pub fn is_cuda(&self) -> bool {
        matches!(self.0, Backend::Cuda(_))
    }

    /// A GPU's compute capability, 90 for 9.0.
    pub fn capability(&self) -> Option<u32> {
        match self.0 {
            Backend::Cpu => None,
            Backend::Cuda(cuda) => Some(cuda.properties.capability),
        }
    }

    /// A GPU's multiprocessors; the threads that kernels run on on this CPU.
    pub fn parallelism(&self) -> usize {
        self.on().parallelism()
    }

    /// A GPU's context, for everything that the `cudarc` crate can do with it.
    pub fn context(&self) -> Option<&'static Arc<CudaContext>> {
        match self.0 {
            Backend::Cpu => None,
            Backend::Cuda(cuda) => Some(&cuda.context),
        }
    }

    /// Waits for everything that was launched on the device.
    ///
    /// # Errors
    /// A CUDA error, also that of a kernel launched before.
    pub fn synchronize(&self) -> Result<()> {
        match self.0 {
            Backend::Cpu => Ok(()),
            Backend::Cuda(cuda) => cuda.synchronize(),
        }
    }

    pub(crate) fn of(cuda: &'static CudaDevice) -> Device {
        Device(Backend::Cuda(cuda))
    }

    pub(crate) fn backend(&self) -> Backend {
        self.0
    }

    /// With its default stream.
    pub(crate) fn on(&self) -> On<'static> {
        match self.0 {
            Backend::Cpu => On::Cpu,
            Backend::Cuda(device) => On::Cuda(device, &device.stream),
        }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Backend::Cpu, Backend::Cpu) => true,
            (Backend::Cuda(one), Backend::Cuda(other)) => std::ptr::eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    /// `cpu` or `cuda:0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Backend::Cpu => f.write_str("cpu"),
            Backend::Cuda(cuda) => f.write_str(&cuda.label()),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.name())
    }
}

/// A device and one of its streams.
#[derive(Clone, Copy)]
pub(crate) enum On<'s> {
    Cpu,
    Cuda(&'static CudaDevice, &'s Arc<CudaStream>),
}

impl On<'_> {
    /// The same device, and its default stream.
    pub fn without_stream(self) -> On<'static> {
        match self {
            On::Cpu => On::Cpu,
            On::Cuda(device, _) => On::Cuda(device, &device.stream),
        }
    }

    pub fn parallelism(self) -> usize {
        match self {
            // Where none can be started, launches say so.
            On::Cpu => threads::count().unwrap_or(1),
            On::Cuda(device, _) => device.properties.multiprocessors,
        }
    }
}

#[derive(PartialEq, Debug)]
enum DeviceSetting {
    Cpu,
    Cuda(usize),
}

fn parse(wanted: &str) -> Result<DeviceSetting> {
    let ordinal = wanted.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
    match (wanted, ordinal) {
        ("cpu", _) => Ok(DeviceSetting::Cpu),
        ("cuda", _) => Ok(DeviceSetting::Cuda(0)),
        (_, Some(ordinal)) => Ok(DeviceSetting::Cuda(ordinal)),
        _ => Err(Error::Setting {
            name: "FUSE_DEVICE",
            value: wanted.to_string(),
            expected: "`cpu`, `cuda` or `cuda:1`",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_names_a_device() {
        assert_eq!(parse("cpu"), Ok(DeviceSetting::Cpu));
        assert_eq!(parse("cuda"), Ok(DeviceSetting::Cuda(0)));
        assert_eq!(parse("cuda:3"), Ok(DeviceSetting::Cuda(3)));
        assert_eq!(
            parse("gpu").unwrap_err().to_string(),
            "FUSE_DEVICE=`gpu`: expected `cpu`, `cuda` or `cuda:1`"
        );
        assert!(parse("cuda:x").is_err());
    }

    #[test]
    fn the_best_device_is_a_gpu_where_there_is_one() {
        if std::env::var_os("FUSE_DEVICE").is_some() {
            eprintln!("skipped: FUSE_DEVICE is set");
            return;
        }
        let gpus = cuda::count().unwrap_or(0);
        assert_eq!(Device::best().unwrap().is_cuda(), gpus > 0);
    }

    #[test]
    fn the_cpu_is_always_there() {
        let cpu = Device::cpu();
        assert_eq!(cpu, Device::cpu());
        assert_eq!((cpu.to_string().as_str(), cpu.is_cuda(), cpu.capability()), ("cpu", false, None));
        assert!(cpu.context().is_none());
        assert!(cpu.synchronize().is_ok());
        assert!(cpu.stream().raw().is_none());
    }
}

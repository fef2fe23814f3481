//! Where every case runs: on this CPU, and on a GPU where there is one.

use std::fmt;

use dsl_runtime::Device;

/// A device to test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Backend {
    Cpu,
    Cuda,
}

impl Backend {
    pub fn device(self) -> dsl_runtime::Result<Device> {
        match self {
            Backend::Cpu => Ok(Device::cpu()),
            Backend::Cuda => Device::cuda(0),
        }
    }

    /// Tiles along a side of a result, `per_gpu` on a GPU, that are more programs than it runs at once. On a CPU with fewer threads than
    /// that, they are two more than it has threads.
    pub fn tiles_in_turn(self, per_gpu: usize) -> usize {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Backend::Cpu => per_gpu.min(threads + 2),
            Backend::Cuda => per_gpu,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
        })
    }
}

/// `FUSE_DEVICE` narrows them, as it does for every program.
pub fn backends() -> Vec<Backend> {
    let wanted = std::env::var("FUSE_DEVICE").unwrap_or_default();
    let mut backends = vec![];
    if !wanted.starts_with("cuda") {
        backends.push(Backend::Cpu);
    }
    if wanted != "cpu" && Device::cuda(0).is_ok() {
        backends.push(Backend::Cuda);
    }
    backends
}

/// What ran, in words.
pub fn describe() -> String {
    let name = |backend: Backend| match backend.device() {
        Ok(device) => format!("{backend} ({})", device.name()),
        Err(error) => format!("{backend}: {error}"),
    };
    let mut text = backends().into_iter().map(name).collect::<Vec<_>>().join(", ");
    if let Err(error) = Device::cuda(0) {
        text += &format!("; no GPU: {error}");
    }
    text
}

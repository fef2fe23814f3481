//! Where every case runs: on this CPU, and on a GPU where there is one.

use std::fmt;

use dsl_runtime::Device;

/// A device to test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    Cpu,
    Cuda,
}

impl Place {
    pub fn device(self) -> dsl_runtime::Result<Device> {
        match self {
            Place::Cpu => Ok(Device::cpu()),
            Place::Cuda => Device::cuda(0),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Cpu => "cpu",
            Place::Cuda => "cuda",
        })
    }
}

/// `FUSE_DEVICE` narrows them, as it does for every program.
pub fn places() -> Vec<Place> {
    let wanted = std::env::var("FUSE_DEVICE").unwrap_or_default();
    let mut places = vec![];
    if !wanted.starts_with("cuda") {
        places.push(Place::Cpu);
    }
    if wanted != "cpu" && Device::cuda(0).is_ok() {
        places.push(Place::Cuda);
    }
    places
}

/// What ran, in words.
pub fn describe() -> String {
    let name = |place: Place| match place.device() {
        Ok(device) => format!("{place} ({})", device.name()),
        Err(error) => format!("{place}: {error}"),
    };
    let mut text = places().into_iter().map(name).collect::<Vec<_>>().join(", ");
    if let Err(error) = Device::cuda(0) {
        text += &format!("; no GPU: {error}");
    }
    text
}

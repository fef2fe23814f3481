//! [`Device`]: the ceilings of one device, and the file that keeps them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A limit, in the unit of the field that holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// As the vendor states it.
    #[serde(default)]
    pub nominal: Option<f64>,
    /// As a program attained it.
    #[serde(default)]
    pub measured: Option<f64>,
    /// Where both come from.
    #[serde(default)]
    pub source: String,
}

impl Ceiling {
    /// The measured value, or else the nominal one.
    pub fn best(&self) -> Option<f64> {
        self.measured.or(self.nominal)
    }

    /// Which of the two [`Ceiling::best`] is.
    pub fn standing(&self) -> &'static str {
        match (self.measured, self.nominal) {
            (Some(_), _) => "measured",
            (None, Some(_)) => "nominal",
            (None, None) => "unknown",
        }
    }

    /// The larger of both, which nothing can be above.
    pub fn most(&self) -> Option<f64> {
        let both = self.measured.into_iter().chain(self.nominal);
        both.reduce(f64::max)
    }
}

/// A device with its ceilings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// As its driver or operating system names it.
    pub name: String,
    /// Of the memory, in bytes a second, read and written together.
    pub bandwidth: Ceiling,
    /// Of the last cache that all multiprocessors share, in bytes a second.
    #[serde(default)]
    pub l2_bandwidth: Option<Ceiling>,
    /// The bytes of that cache.
    #[serde(default)]
    pub l2_bytes: u64,
    /// Of tensor cores, in operations a second, by the type of the operands; `tf32` beside the names of [`DType`](crate::dtype::DType).
    #[serde(default)]
    pub tensor: BTreeMap<String, Ceiling>,
    /// Of ordinary units, in operations a second; `f32` must be there.
    pub scalar: BTreeMap<String, Ceiling>,
    /// What a launch adds to the time of a kernel, in seconds.
    pub launch_overhead: Ceiling,
    /// What a launch adds that follows another one, in seconds; as much as the first one where it is not known.
    #[serde(default)]
    pub following_launch: Option<Ceiling>,
    /// What a matmul adds to a launch, in seconds: the time in which its operands' first tiles arrive and its last ones are stored.
    #[serde(default)]
    pub product_overhead: Option<Ceiling>,
    /// Multiprocessors, or cores of a CPU.
    #[serde(default)]
    #[serde(rename = "processors")]
    pub multiprocessors: u32,
    /// The registers of 32 bits that a thread can have; more values than that spill.
    pub registers_per_thread: u32,
    /// The bytes of a row that can stay on chip between two passes over it.
    pub on_chip_bytes: u64,
}

/// What is wrong with the file of a device, or with reading and writing it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The file cannot be read or written.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// `read`, `write` or `create`.
        what: &'static str,
        /// The file or the folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is no device.
    #[error("{}: {source}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the reader says, with line and column.
        source: serde_json::Error,
    },
    /// A ceiling that everything is divided by is missing or not positive.
    #[error("device `{device}` has no positive {ceiling}")]
    NoCeiling {
        /// The device.
        device: String,
        /// Its ceiling.
        ceiling: &'static str,
    },
    /// There is no device of that name.
    #[error("no device `{name}`: there are {known}; `ceilings --measure-cpu` adds this processor as `cpu`")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Built-in and stored names.
        known: String,
    },
    /// The system names no folder for caches.
    #[error("there is no folder for caches of this user; name one")]
    NoFolder,
}

impl Device {
    /// The bandwidth of memory, in bytes a second.
    pub fn memory_bandwidth(&self) -> f64 {
        self.bandwidth.best().unwrap_or(f64::INFINITY)
    }

    /// The seconds that a launch adds.
    pub fn launch_seconds(&self) -> f64 {
        self.launch_overhead.best().unwrap_or(0.0)
    }

    /// The seconds that a launch adds which follows another one, at most those of a first one.
    pub fn following_launch_seconds(&self) -> f64 {
        let first = self.launch_seconds();
        self.following_launch.as_ref().and_then(Ceiling::best).map_or(first, |seconds| seconds.min(first))
    }

    /// The seconds that a matmul adds to a launch; none where it is not known.
    pub fn matmul_seconds(&self) -> f64 {
        self.product_overhead.as_ref().and_then(Ceiling::best).unwrap_or(0.0)
    }

    /// Operations a second of ordinary units, in `f32`.
    pub fn scalar_peak(&self) -> f64 {
        self.scalar.get("f32").and_then(Ceiling::best).unwrap_or(f64::INFINITY)
    }

    /// Operations a second of matmuls of a type: on tensor cores where they have it, else on ordinary units.
    pub fn tensor_peak(&self, operands: &str) -> f64 {
        self.tensor.get(operands).and_then(Ceiling::best).unwrap_or_else(|| self.scalar_peak())
    }

    /// Reads a device from JSON.
    ///
    /// # Errors
    /// If there is no such file, it is no device, or a ceiling that times are divided by is missing.
    pub fn read(path: &Path) -> Result<Device, DeviceError> {
        let io = |source| DeviceError::Io { what: "read", path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(io)?;
        let format = |source| DeviceError::Format { path: path.to_owned(), source };
        let device: Device = serde_json::from_str(&text).map_err(format)?;
        device.checked()
    }

    /// Writes it into a folder under its name, and gives the path. What was there is replaced whole.
    ///
    /// # Errors
    /// If the folder or the file cannot be written.
    pub fn store(&self, folder: &Path) -> Result<PathBuf, DeviceError> {
        let path = folder.join(format!("{}.json", file_name(&self.name)));
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| DeviceError::Io { what, path, source }
        };
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        let format = |source| DeviceError::Format { path: path.clone(), source };
        let text = serde_json::to_string_pretty(self).map_err(format)?;
        // Another process that reads meanwhile finds the old file or the new one.
        let beside = path.with_extension(format!("{}.part", std::process::id()));
        fs::write(&beside, text).map_err(failed("write", &beside))?;
        fs::rename(&beside, &path).map_err(failed("write", &path))?;
        Ok(path)
    }

    fn checked(self) -> Result<Device, DeviceError> {
        let positive = |value: Option<f64>| value.is_some_and(|value| value > 0.0 && value.is_finite());
        let scalar = self.scalar.get("f32").and_then(Ceiling::best);
        for (ceiling, value) in [("bandwidth", self.bandwidth.best()), ("f32 peak", scalar)] {
            if !positive(value) {
                return Err(DeviceError::NoCeiling { device: self.name, ceiling });
            }
        }
        Ok(self)
    }
}

fn file_name(device: &str) -> String {
    let plain = device.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    plain.collect()
}

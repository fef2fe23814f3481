//! Measured times of kernels, as a program on a device writes them, for the roofline and for the check of predictions.
//!
//! ```json
//! {
//!   "device": "NVIDIA H200",
//!   "cache": "cold",
//!   "source": "the command that measured them",
//!   "points": [
//!     { "name": "norm + act", "form": "fused", "bytes": 537e6, "flops": 1.7e9, "seconds": 131.5e-6 },
//!     { "name": "norm + act", "form": "unfused", "bytes": 1074e6, "flops": 1.7e9, "seconds": 377.9e-6, "peer": "PyTorch" }
//!   ]
//! }
//! ```
//!
//! `name` joins the names of a model's operations by ` + ` where a check is wanted, and by ` ; ` those of launches that follow each
//! other (`ops` where `name` is a label); `model` and `set` name the model and its extents, where a file has points of several;
//! points of one name are one thing in its fused and unfused forms. `bytes` are those that must move, `flops` are counted as
//! [`crate::kind`] does, `seconds` is the time of all launches together. `peer` says whose code it is, nothing where it is the
//! library's. `unit` names the ceiling of its arithmetic (`f32`, `bf16`, ..), the ordinary units' `f32` if it is missing. `cache`
//! is `cold` where the cache was overwritten before each run, and `warm` where runs follow each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Which memory the inputs of a kernel are in as it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// All of them are in memory.
    #[default]
    Cold,
    /// Activations that fit are in the last cache; weights are in memory.
    Warm,
}

/// Whether operations ran in one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// In one kernel.
    Fused,
    /// In a kernel each.
    Unfused,
}

impl Form {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Fused => "fused",
            Form::Unfused => "unfused",
        }
    }
}

/// One measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// What was computed.
    pub name: String,
    /// The operations of the model, where `name` does not say them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops: Option<String>,
    /// The name of the model's file without its ending, where a check is not told one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Extents of that model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, u64>,
    /// In how many kernels.
    pub form: Form,
    /// Bytes that must move. A roofline needs them.
    #[serde(default)]
    pub bytes: Option<f64>,
    /// Operations. A roofline needs them.
    #[serde(default)]
    pub flops: Option<f64>,
    /// The time.
    pub seconds: f64,
    /// Whose code it is.
    #[serde(default)]
    pub peer: Option<String>,
    /// The ceiling of its arithmetic: `f32`, or a type of tensor cores.
    #[serde(default)]
    pub unit: Option<String>,
}

/// Times that were measured on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// The device.
    pub device: String,
    /// What was in the cache.
    #[serde(default)]
    pub cache: Cache,
    /// How they were measured.
    #[serde(default)]
    pub source: String,
    /// The times.
    pub points: Vec<Point>,
}

impl Measurements {
    /// Reads measurements from a file.
    ///
    /// # Errors
    /// In words with the path, if it cannot be read, is no such file, or has a time that is not positive.
    pub fn read(path: &Path) -> Result<Measurements, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Measurements::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads measurements from JSON.
    ///
    /// # Errors
    /// In words, if it is no such JSON, or has a time that is not positive, or negative bytes or operations.
    pub fn parse(text: &str) -> Result<Measurements, String> {
        let measurements: Measurements = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for point in &measurements.points {
            if !(point.seconds > 0.0 && point.seconds.is_finite()) {
                return Err(format!(
                    "`{}` took {} seconds: a time above 0 is needed",
                    point.name, point.seconds
                ));
            }
            for (what, value) in [("bytes", point.bytes), ("flops", point.flops)] {
                if value.is_some_and(|value| !(value >= 0.0 && value.is_finite())) {
                    return Err(format!("`{}` has negative or endless {what}", point.name));
                }
            }
        }
        Ok(measurements)
    }
}

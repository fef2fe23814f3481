//! The ceilings of a device: what it can move and compute in a second, and what a launch costs.
//!
//! A ceiling is nominal, as the vendor states it, or measured, by a program that runs on the device; predictions take the
//! measured one where there is one. Measured once and stored: [`Device::store`] writes them into a folder of the user, and
//! [`load`] prefers what is there to [`builtin`].
//!
//! The file is `<folder>/<name>.json`, the name in lower case with `-` for what is neither letter nor digit:
//!
//! ```json
//! {
//!   "name": "NVIDIA H200",
//!   "bandwidth": { "nominal": 4.8e12, "measured": 4.1e12, "source": "a copy of 512 MB" },
//!   "l2_bandwidth": null,
//!   "l2_bytes": 52428800,
//!   "tensor": { "bf16": { "nominal": 9.89e14, "measured": 8e14, "source": ".." } },
//!   "scalar": { "f32": { "nominal": 6.7e13, "measured": null, "source": ".." } },
//!   "launch_overhead": { "nominal": null, "measured": 5e-6, "source": ".." },
//!   "product_overhead": { "nominal": null, "measured": 4e-6, "source": ".." },
//!   "following_launch": { "nominal": null, "measured": 2e-6, "source": ".." },
//!   "processors": 132,
//!   "registers_per_thread": 255,
//!   "on_chip_bytes": 262144
//! }
//! ```

pub mod builtin;
mod ceilings;
pub mod cpu;
mod folder;

use crate::dtype::DType;

pub use ceilings::{Ceiling, Device, DeviceError};
pub use folder::{all, folder, load, stored};

/// The name of the ceiling of matmuls of a type, or of `f32` on tensor cores.
pub(crate) fn operand_name(dtype: DType, tf32: bool) -> &'static str {
    if tf32 && dtype == DType::F32 { "tf32" } else { dtype.name() }
}

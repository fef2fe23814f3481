//! Fused kernels to use as they are, and to copy from: each file holds a kernel, a safe function that checks shapes and
//! launches it, and the reference that its results are tested against.
//!
//! Every operation is a struct that names its inputs, has what it can do without as methods, and ends in
//! `launch(on, &mut out)`, where `on` is a device or a stream:
//!
//! ```
//! use dsl_runtime::prelude::*;
//! use fused_kernels::layer_norm::LayerNorm;
//!
//! let device = Device::best()?;
//! let x = device.upload(&[1.0f32, 2.0, 3.0, 6.0, 5.0, 4.0])?;
//! let (gamma, beta) = (device.upload(&[1.0f32; 3])?, device.zeros::<f32>(3)?);
//! let mut out = device.zeros::<f32>(6)?;
//! LayerNorm::new(&x, &gamma, &beta).eps(1e-5).launch(&device, &mut out)?;
//! let y = out.download()?;
//! assert!((y[0] + 1.2247).abs() < 1e-3 && (y[3] - 1.2247).abs() < 1e-3);
//! # Ok::<(), dsl_runtime::Error>(())
//! ```

#![warn(missing_docs)]

pub mod add_mul;
pub mod layer_norm;
pub mod reference;
pub mod rms_norm;
mod shape;

use dsl_runtime::kernel::Kernel;

/// Every kernel of the library, for programs that write them to files.
pub static KERNELS: [&Kernel; 6] = [
    &add_mul::add_mul::KERNEL,
    &layer_norm::layer_norm::KERNEL,
    &rms_norm::rms_norm::KERNEL,
    &rms_norm::rms_norm_long::KERNEL,
    &rms_norm::add_rms_norm::KERNEL,
    &rms_norm::add_rms_norm_long::KERNEL,
];

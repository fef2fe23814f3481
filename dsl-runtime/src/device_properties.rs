//! [`DeviceProperties`]: what a GPU is and how much of everything it has.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUdevice_attribute;

use crate::error::{Error, Result};
use crate::libcuda::driver_version;

/// What the driver says of a GPU, asked once.
pub(crate) struct DeviceProperties {
    ordinal: usize,
    pub(crate) name: String,
    /// 90 for 9.0.
    pub(crate) capability: u32,
    /// The most shared memory a block can have, static and dynamic, in bytes.
    pub(crate) shared_limit: u32,
    pub(crate) multiprocessors: usize,
    /// Whether the driver launches kernels before the one in front of them has ended, in graphs too.
    pub(crate) supports_pdl: bool,
}

/// The first CUDA version whose graphs have edges that a kernel need not wait at.
const PDL_DRIVER_VERSION: i32 = 12030;

impl DeviceProperties {
    pub(crate) fn of(context: &CudaContext) -> Result<DeviceProperties> {
        let (major, minor) =
            context.compute_capability().map_err(Error::cuda("cuDeviceGetAttribute(compute capability)"))?;
        let shared_limit = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            .map_err(Error::cuda("cuDeviceGetAttribute(shared memory)"))?;
        let multiprocessors = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(Error::cuda("cuDeviceGetAttribute(multiprocessors)"))?;
        Ok(DeviceProperties {
            ordinal: context.ordinal(),
            name: context.name().map_err(Error::cuda("cuDeviceGetName"))?,
            capability: (major * 10 + minor) as u32,
            shared_limit: shared_limit as u32,
            multiprocessors: multiprocessors as usize,
            supports_pdl: driver_version()? >= PDL_DRIVER_VERSION,
        })
    }

    /// `cuda:0`
    pub(crate) fn label(&self) -> String {
        format!("cuda:{}", self.ordinal)
    }
}

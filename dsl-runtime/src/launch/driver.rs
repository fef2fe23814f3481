//! The driver call that enqueues a kernel.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUfunction, CUresult, CUstream};
use cudarc::driver::{DriverError, result};

use crate::libcuda;

/// The CUDA grid and the resources of a block.
#[derive(Clone, Copy)]
pub(super) struct LaunchConfig {
    pub(super) blocks: [u32; 3],
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    /// Blocks of a cluster along the first axis, where the function does not say; 1 where there are none.
    pub(super) cluster: u32,
    /// Programmatic dependent launch: whether blocks may start while the kernel before it in the stream still runs.
    pub(super) uses_pdl: bool,
}

/// Launches a function.
///
/// # Safety
/// As for `cuLaunchKernel`: the function and the stream belong to the current context, `pointers` are to as many values
/// as the function takes, of its types, and the memory that these name lives until the kernel has ended and is used by
/// nobody else before. With PDL, it waits for the kernel before it in the stream before it accesses memory.
pub(super) unsafe fn launch(
    function: CUfunction,
    config: LaunchConfig,
    stream: CUstream,
    pointers: &mut [*mut c_void],
) -> Result<(), DriverError> {
    let LaunchConfig { blocks: [x, y, z], threads, shared_bytes, cluster, uses_pdl } = config;
    if !uses_pdl && cluster == 1 {
        // SAFETY: the caller's word.
        return unsafe {
            result::launch_kernel(function, (x, y, z), (threads, 1, 1), shared_bytes, stream, pointers)
        };
    }
    let Some(launch) = launch_kernel_ex() else { return Err(DriverError(CUresult::CUDA_ERROR_NOT_FOUND)) };
    // Three extents of 32 bits.
    let clusters = [u64::from(cluster) | 1 << 32, 1, 0, 0, 0, 0, 0, 0];
    let clusters = CuLaunchAttribute { id: CLUSTER_DIMENSION, value: clusters };
    let pdl = CuLaunchAttribute { id: PROGRAMMATIC_STREAM_SERIALIZATION, value: [1, 0, 0, 0, 0, 0, 0, 0] };
    let mut attributes = if uses_pdl { [pdl, clusters] } else { [clusters, pdl] };
    let cu_config = CuLaunchConfig {
        grid: [x, y, z],
        block: [threads, 1, 1],
        shared_bytes,
        stream,
        attributes: attributes.as_mut_ptr(),
        attribute_count: u32::from(uses_pdl) + u32::from(cluster > 1),
    };
    // SAFETY: the caller's word; the configuration and its attributes live for the call.
    unsafe { launch(&cu_config, function, pointers.as_mut_ptr(), ptr::null_mut()) }.result()
}

/// The type of `cuLaunchKernelEx`.
type LaunchKernelEx = unsafe extern "C" fn(
    config: *const CuLaunchConfig,
    function: CUfunction,
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult;

/// The driver's function, if it has it. The bindings have none where a build finds a CUDA before 11.8.
fn launch_kernel_ex() -> Option<LaunchKernelEx> {
    static EXTENDED: OnceLock<Option<LaunchKernelEx>> = OnceLock::new();
    // SAFETY: the function has had this type since CUDA 11.8, the first that has it.
    *EXTENDED.get_or_init(|| unsafe { libcuda::function(c"cuLaunchKernelEx") })
}

/// The driver's `CUlaunchConfig`.
#[repr(C)]
struct CuLaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: CUstream,
    attributes: *mut CuLaunchAttribute,
    attribute_count: u32,
}

/// The driver's `CUlaunchAttribute`, whose value is a union of 64 bytes.
#[repr(C)]
struct CuLaunchAttribute {
    id: u32,
    value: [u64; 8],
}

const _: () = assert!(size_of::<CuLaunchAttribute>() == 72 && size_of::<CuLaunchConfig>() == 56);

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
const CLUSTER_DIMENSION: u32 = 4;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`
const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

//! The call of the driver that puts a kernel in line.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUfunction, CUresult, CUstream};
use cudarc::driver::{DriverError, result};

use crate::libcuda;

/// Blocks, and what each of them takes.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) blocks: [u32; 3],
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    /// Blocks of a cluster along the first axis, where the function does not say; 1 where there are none.
    pub(super) cluster: u32,
    /// Whether blocks may start while the kernel in front still runs.
    pub(super) follows: bool,
}

/// Launches a function.
///
/// # Safety
/// As for `cuLaunchKernel`: the function and the stream belong to the current context, `pointers` are to as many values
/// as the function takes, of its types, and the memory that these name lives until the kernel has ended and is used by
/// nobody else before. If it follows, it waits for the kernel in front before it touches memory.
pub(super) unsafe fn launch(
    function: CUfunction,
    shape: Shape,
    stream: CUstream,
    pointers: &mut [*mut c_void],
) -> Result<(), DriverError> {
    let Shape { blocks: [x, y, z], threads, shared_bytes, cluster, follows } = shape;
    if !follows && cluster == 1 {
        // SAFETY: the caller's word.
        return unsafe {
            result::launch_kernel(function, (x, y, z), (threads, 1, 1), shared_bytes, stream, pointers)
        };
    }
    let Some(launch) = extended() else { return Err(DriverError(CUresult::CUDA_ERROR_NOT_FOUND)) };
    // Three extents of 32 bits.
    let clusters = [u64::from(cluster) | 1 << 32, 1, 0, 0, 0, 0, 0, 0];
    let clusters = Attribute { id: CLUSTER_DIMENSION, value: clusters };
    let starts_early = Attribute { id: PROGRAMMATIC_STREAM_SERIALIZATION, value: [1, 0, 0, 0, 0, 0, 0, 0] };
    let mut attributes = if follows { [starts_early, clusters] } else { [clusters, starts_early] };
    let config = Config {
        grid: [x, y, z],
        block: [threads, 1, 1],
        shared_bytes,
        stream,
        attributes: attributes.as_mut_ptr(),
        attribute_count: u32::from(follows) + u32::from(cluster > 1),
    };
    // SAFETY: the caller's word; the configuration and its attributes live for the call.
    unsafe { launch(&config, function, pointers.as_mut_ptr(), ptr::null_mut()) }.result()
}

/// The type of `cuLaunchKernelEx`.
type Extended = unsafe extern "C" fn(
    config: *const Config,
    function: CUfunction,
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult;

/// The driver's function, if it has it. The bindings have none where a build finds a CUDA before 11.8.
fn extended() -> Option<Extended> {
    static EXTENDED: OnceLock<Option<Extended>> = OnceLock::new();
    // SAFETY: the function has had this type since CUDA 11.8, the first that has it.
    *EXTENDED.get_or_init(|| unsafe { libcuda::function(c"cuLaunchKernelEx") })
}

/// The driver's `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: CUstream,
    attributes: *mut Attribute,
    attribute_count: u32,
}

/// The driver's `CUlaunchAttribute`, whose value is a union of 64 bytes.
#[repr(C)]
struct Attribute {
    id: u32,
    value: [u64; 8],
}

const _: () = assert!(size_of::<Attribute>() == 72 && size_of::<Config>() == 56);

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
const CLUSTER_DIMENSION: u32 = 4;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`
const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

//! The call of the driver that puts a kernel in line.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{
    self, CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
    CUstream,
};
use cudarc::driver::{DriverError, result};

/// Blocks, and what each of them takes.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) blocks: [u32; 3],
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
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
    let Shape { blocks: [x, y, z], threads, shared_bytes, follows } = shape;
    if !follows {
        // SAFETY: the caller's word.
        return unsafe {
            result::launch_kernel(function, (x, y, z), (threads, 1, 1), shared_bytes, stream, pointers)
        };
    }
    let mut follows = CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: shared_bytes,
        hStream: stream,
        attrs: &raw mut follows,
        numAttrs: 1,
    };
    // SAFETY: the caller's word; the configuration and its one attribute live for the call. Drivers that have the
    // attribute have the function.
    unsafe { sys::cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), ptr::null_mut()) }.result()
}

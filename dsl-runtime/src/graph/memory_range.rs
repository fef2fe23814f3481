//! [`MemoryRange`]: the addresses of borrowed memory, as launches that are recorded use them.

use cudarc::driver::DevicePtr;

use crate::cuda::CudaDevice;
use crate::device::On;
use crate::dtype::DType;
use crate::slice::{SharedBytes, UniqueBytes, context_of};
use crate::stream_order::MemoryUse;

/// Addresses that a launch uses, or that a graph owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryRange {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// The type of the elements: what writes others may leave values that are none of this type, such as a `bool` of 2.
    pub(crate) dtype: DType,
    pub(crate) writes: bool,
}

impl MemoryRange {
    /// Whether it contains all of `used`, whatever its elements are.
    pub(super) fn contains(&self, used: &MemoryRange) -> bool {
        used.start >= self.start && used.start + used.bytes <= self.start + self.bytes
    }

    /// Whether it contains all of `used`, which may be used so.
    pub(super) fn covers(&self, used: &MemoryRange) -> bool {
        self.contains(used) && self.dtype == used.dtype && (self.writes || !used.writes)
    }
}

/// The range of memory to write, for launches that use it by its address.
pub(super) fn exposed_range(mut bytes: UniqueBytes<'_>, dtype: DType, on: On<'_>) -> Option<MemoryRange> {
    if let UniqueBytes::Host(bytes) = &mut bytes {
        // The addresses that launches recorded before stand for this borrow from now on.
        bytes.as_mut_ptr().expose_provenance();
    }
    unique_range(&bytes, dtype, on)
}

/// The range of memory to read, without making any stream wait for it; `None` if it is on another device.
pub(crate) fn shared_range(bytes: &SharedBytes<'_>, dtype: DType, on: On<'_>) -> Option<MemoryRange> {
    match (bytes, on) {
        (SharedBytes::Host(bytes), On::Cpu) => Some(MemoryRange {
            start: bytes.as_ptr().expose_provenance() as u64,
            bytes: bytes.len() as u64,
            dtype,
            writes: false,
        }),
        (SharedBytes::Cuda(view), On::Cuda(device, _)) => {
            let context = context_of(view);
            device.owns(context).then(|| MemoryRange { dtype, writes: false, ..gpu_range(device, view) })
        }
        _ => None,
    }
}

/// The range of memory to write.
pub(crate) fn unique_range(bytes: &UniqueBytes<'_>, dtype: DType, on: On<'_>) -> Option<MemoryRange> {
    match (bytes, on) {
        (UniqueBytes::Host(bytes), On::Cpu) => {
            let (start, bytes) = (bytes.as_ptr().addr() as u64, bytes.len() as u64);
            Some(MemoryRange { start, bytes, dtype, writes: true })
        }
        (UniqueBytes::Cuda(view), On::Cuda(device, _)) => {
            let context = context_of(view);
            device.owns(context).then(|| MemoryRange { dtype, writes: true, ..gpu_range(device, view) })
        }
        _ => None,
    }
}

/// Bytes to read. The default stream, which is never captured, does the waiting that comes with asking for an address.
fn gpu_range(device: &'static CudaDevice, view: &impl DevicePtr<u8>) -> MemoryRange {
    let (start, done) = view.device_ptr(&device.stream);
    device.stream_order.release([MemoryUse::on_alloc_stream(&device.stream, done)]);
    MemoryRange { start, bytes: view.len() as u64, dtype: DType::U8, writes: false }
}

//! [`MemoryRange`]: the addresses of borrowed memory, as launches that are recorded use them.

use cudarc::driver::DevicePtr;

use crate::cuda::CudaDevice;
use crate::device::On;
use crate::slice::{SharedBytes, UniqueBytes, context_of};
use crate::stream_order::MemoryUse;

/// Addresses that a launch uses, or that a graph owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryRange {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: bool,
}

impl MemoryRange {
    /// Whether all of `used` lies within it and may be used so.
    pub(super) fn covers(&self, used: &MemoryRange) -> bool {
        let inside = used.start >= self.start && used.start + used.bytes <= self.start + self.bytes;
        inside && (self.writes || !used.writes)
    }
}

/// The range of memory to write, for launches that use it by its address.
pub(super) fn exposed_range(mut bytes: UniqueBytes<'_>, on: On<'_>) -> Option<MemoryRange> {
    if let UniqueBytes::Host(bytes) = &mut bytes {
        // The addresses that launches recorded before stand for this borrow from now on.
        bytes.as_mut_ptr().expose_provenance();
    }
    unique_range(&bytes, on)
}

/// The range of memory to read, without making any stream wait for it; `None` if it is on another device.
pub(crate) fn shared_range(bytes: &SharedBytes<'_>, on: On<'_>) -> Option<MemoryRange> {
    match (bytes, on) {
        (SharedBytes::Host(bytes), On::Cpu) => Some(MemoryRange {
            start: bytes.as_ptr().expose_provenance() as u64,
            bytes: bytes.len() as u64,
            writes: false,
        }),
        (SharedBytes::Cuda(view), On::Cuda(device, _)) => {
            let context = context_of(view);
            device.owns(context).then(|| gpu_range(device, view, false))
        }
        _ => None,
    }
}

/// The range of memory to write.
pub(crate) fn unique_range(bytes: &UniqueBytes<'_>, on: On<'_>) -> Option<MemoryRange> {
    match (bytes, on) {
        (UniqueBytes::Host(bytes), On::Cpu) => {
            Some(MemoryRange { start: bytes.as_ptr().addr() as u64, bytes: bytes.len() as u64, writes: true })
        }
        (UniqueBytes::Cuda(view), On::Cuda(device, _)) => {
            let context = context_of(view);
            device.owns(context).then(|| gpu_range(device, view, true))
        }
        _ => None,
    }
}

/// The default stream, which is never captured, does the waiting that comes with asking for an address.
fn gpu_range(device: &'static CudaDevice, view: &impl DevicePtr<u8>, writes: bool) -> MemoryRange {
    let (start, done) = view.device_ptr(&device.stream);
    device.stream_order.release([MemoryUse::on_alloc_stream(&device.stream, done)]);
    MemoryRange { start, bytes: view.len() as u64, writes }
}

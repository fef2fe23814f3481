//! Accesses outside their slice.
//!
//! Bounds mask such an access off: a read gives 0, or what the kernel says instead, and a write does nothing. The code of
//! a debug build also fills a [`Record`] with the first one of a launch, as `lowering::mlir::report` lays it out, and the
//! launcher makes an [`Error::OutOfBounds`] of it. On the CPU the record is the launch's own. On a GPU each loaded module
//! has one; [`Pending`] remembers the modules that were launched, and whoever waits for the device asks it.

use std::ffi::CStr;
use std::mem::size_of;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{CudaStream, DriverError, result};

use crate::error::{Error, Result};
use crate::kernel::Kernel;

/// The name of a GPU module's record.
pub(crate) const GLOBAL: &CStr = c"fuse_report";

/// The state of a record that is complete.
const WRITTEN: u32 = 2;

/// The first access of a launch that lay outside its slice.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// 0 for none, [`WRITTEN`] once the rest is valid.
    state: u32,
    /// 1 for a write, 0 for a read.
    writes: u32,
    /// Relative to the kernel's own line.
    line: i32,
    column: u32,
    param: u32,
    program: [u32; 3],
    index: i64,
    length: i64,
}

impl Record {
    /// What it says about a launch of `kernel`.
    pub(crate) fn error(&self, kernel: &'static Kernel) -> Option<Error> {
        (self.state == WRITTEN).then(|| Error::OutOfBounds {
            kernel: kernel.name,
            param: kernel.params.get(self.param as usize).map_or("?", |param| param.name),
            writes: self.writes != 0,
            index: self.index,
            len: self.length,
            program: self.program,
            file: kernel.file,
            line: kernel.line.wrapping_add_signed(self.line),
            column: self.column,
        })
    }

    /// Copies a record of a GPU to the host.
    ///
    /// # Safety
    /// `address` must be that of a record in the stream's context, which must be current.
    unsafe fn read(address: CUdeviceptr, stream: &CudaStream) -> Result<Record, DriverError> {
        let mut words = [0u64; size_of::<Record>() / 8];
        // SAFETY: the record is as long as `words`, which lives until the stream is synchronised.
        unsafe { result::memcpy_dtoh_async(&mut words, address, stream.cu_stream()) }?;
        stream.synchronize()?;
        // SAFETY: both are of one size, and any bits are a record.
        Ok(unsafe { std::mem::transmute::<[u64; size_of::<Record>() / 8], Record>(words) })
    }
}

/// A GPU module with a record that was launched on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Launched {
    kernel: *const Kernel,
    record: CUdeviceptr,
    stream: CUstream,
}

/// The launches of a device whose records nobody has read since they ended.
#[derive(Default)]
pub(crate) struct Pending(Mutex<Vec<Launched>>);

// SAFETY: the kernels are `&'static`, and a stream's handle is only compared.
unsafe impl Send for Pending {}
// SAFETY: as above; the list is behind a lock.
unsafe impl Sync for Pending {}

impl Pending {
    /// A launch of code that has a record.
    pub(crate) fn note(&self, kernel: &'static Kernel, record: CUdeviceptr, stream: &CudaStream) {
        let launched = Launched { kernel, record, stream: stream.cu_stream() };
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&launched) {
            list.push(launched);
        }
    }

    /// The first report there is, which it clears. To be called when `stream` was waited for, or, if `all`, the device;
    /// launches on other streams may not have ended, and stay to be asked again.
    pub(crate) fn collect(&self, stream: &CudaStream, waited: Waited) -> Result<()> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.is_empty() {
            return Ok(());
        }
        let failed = Error::cuda("cuMemcpyDtoHAsync");
        stream.context().bind_to_thread().map_err(&failed)?;
        let mut found = None;
        let mut left = Vec::new();
        for launched in list.drain(..) {
            if found.is_some() {
                left.push(launched);
                continue;
            }
            // SAFETY: the record belongs to a module that stays loaded, in this device's context.
            match unsafe { launched.take(stream) } {
                Ok(None) => {}
                Ok(Some(error)) => found = Some(error),
                Err(error) => found = Some(failed(error)),
            }
            if waited == Waited::Stream && launched.stream != stream.cu_stream() {
                left.push(launched);
            }
        }
        *list = left;
        found.map_or(Ok(()), Err)
    }
}

/// What a caller of [`Pending::collect`] has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    Stream,
    Device,
}

impl Launched {
    /// Reads the record and clears it.
    ///
    /// # Safety
    /// Its module must be loaded in the stream's context, which must be current.
    unsafe fn take(self, stream: &CudaStream) -> Result<Option<Error>, DriverError> {
        // SAFETY: passed on to the caller.
        if unsafe { Record::read(self.record, stream) }?.state != WRITTEN {
            return Ok(None);
        }
        // A kernel that still runs may have been writing: now the rest is as complete as the state says.
        // SAFETY: passed on to the caller.
        let record = unsafe { Record::read(self.record, stream) }?;
        // SAFETY: as above; the record is as long as said.
        unsafe { result::memset_d8_async(self.record, 0, size_of::<Record>(), stream.cu_stream()) }?;
        stream.synchronize()?;
        // SAFETY: `note` got it as a reference that never ends.
        Ok(record.error(unsafe { &*self.kernel }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Param, ParamKind};

    static GATHER: Kernel = Kernel {
        name: "gather",
        file: "src/lib.rs",
        line: 10,
        params: &[Param { name: "x", kind: ParamKind::Slice }],
        ..Kernel::TEST
    };

    #[test]
    fn a_record_says_who_went_where() {
        let record = Record {
            state: WRITTEN,
            line: 2,
            column: 20,
            program: [3, 0, 0],
            index: 1000,
            length: 1000,
            ..Record::default()
        };
        let said = |record: Record| record.error(&GATHER).map(|error| error.to_string());
        assert_eq!(
            said(record).unwrap(),
            "kernel `gather`: program (3, 0, 0) reads element 1000 of `x`, which has 1000 (src/lib.rs:12:20)"
        );
        assert_eq!(
            said(Record { writes: 1, index: -1, line: -1, ..record }).unwrap(),
            "kernel `gather`: program (3, 0, 0) writes element -1 of `x`, which has 1000 (src/lib.rs:9:20)"
        );
        assert_eq!([0, 1].map(|state| said(Record { state, ..record })), [None, None]);
    }
}

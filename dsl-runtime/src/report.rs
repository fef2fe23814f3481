//! Accesses outside their slice, assertions that fail and integers that overflow.
//!
//! Bounds mask such an access off: a read gives 0, or what the kernel says instead, and a write does nothing. The code of
//! a debug build also fills a [`FailureRecord`] with the first failure of a launch, in the layout of `lowering::mlir::report`, and
//! the launcher makes an [`Error::OutOfBounds`], [`Error::Assertion`] or [`Error::Overflow`] of it. On the CPU the record is the launch's own,
//! part of a [`HostRecord`]. On a GPU each loaded module has one; [`PendingReports`] remembers the modules that were launched,
//! and whoever synchronizes with the device reads it.

use std::ffi::CStr;
use std::mem::size_of;
use std::sync::atomic::AtomicU64;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{CudaStream, DriverError, result};

use crate::device_print::{PrintLine, element};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Site, Variant};
use crate::race::RaceCheck;

/// The name of a GPU module's record.
pub(crate) const REPORT_GLOBAL: &CStr = c"fuse_report";

/// The state of a record that is complete.
const COMPLETE: u32 = 2;

/// The `kind` of a record: a read or a write outside its slice, or an assertion that fails.
const WRITE: u32 = 1;
const FAILURE: u32 = 2;

/// The first failure of a launch.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct FailureRecord {
    /// 0 for none, [`COMPLETE`] once the rest is valid.
    state: u32,
    kind: u32,
    /// Relative to the kernel's own line.
    line: i32,
    column: u32,
    /// The slice's parameter, or the assertion's site.
    subject: u32,
    program: [u32; 3],
    index: i64,
    length: i64,
}

impl FailureRecord {
    /// What it says about a launch of a kernel's variant.
    pub(crate) fn error(&self, kernel: &'static Kernel, variant: &'static Variant) -> Option<Error> {
        if self.state != COMPLETE {
            return None;
        }
        let line = kernel.line.wrapping_add_signed(self.line);
        let site = variant.sites.get(self.subject as usize).filter(|_| self.kind == FAILURE);
        if let Some(&Site::Overflow { verb, dtype, shape }) = site {
            return Some(Error::Overflow {
                kernel: kernel.name,
                verb,
                dtype,
                element: element(shape, self.index),
                program: self.program,
                file: kernel.file,
                line,
                column: self.column,
            });
        }
        if self.kind == FAILURE {
            let (assumed, condition, message, shape) = match site {
                Some(&Site::Assert { condition, message, shape }) => (false, condition, message, shape),
                Some(&Site::Assume { condition }) => (true, condition, "", [].as_slice()),
                Some(Site::Overflow { .. } | Site::Print { .. }) | None => (false, "?", "", [].as_slice()),
            };
            return Some(Error::Assertion {
                kernel: kernel.name,
                assumed,
                condition,
                message,
                element: element(shape, self.index),
                program: self.program,
                file: kernel.file,
                line,
                column: self.column,
            });
        }
        Some(Error::OutOfBounds {
            kernel: kernel.name,
            param: kernel.params.get(self.subject as usize).map_or("?", |param| param.name),
            writes: self.kind == WRITE,
            index: self.index,
            len: self.length,
            program: self.program,
            file: kernel.file,
            line,
            column: self.column,
        })
    }

    /// Copies a record of a GPU to the host.
    ///
    /// # Safety
    /// `address` must be that of a record in the stream's context, which must be current.
    unsafe fn read(address: CUdeviceptr, stream: &CudaStream) -> Result<FailureRecord, DriverError> {
        let mut words = [0u64; size_of::<FailureRecord>() / 8];
        // SAFETY: the record is as long as `words`, which lives until the stream is synchronized.
        unsafe { result::memcpy_dtoh_async(&mut words, address, stream.cu_stream()) }?;
        stream.synchronize()?;
        // SAFETY: both are of one size, and any bits are a record.
        Ok(unsafe { std::mem::transmute::<[u64; size_of::<FailureRecord>() / 8], FailureRecord>(words) })
    }
}

/// What host code gets the address of.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HostRecord<'c> {
    record: FailureRecord,
    /// Called by host code that prints.
    print: unsafe extern "C" fn(*const HostRecord, *const PrintLine),
    /// The address of each parameter's shadow memory, or null for a launch whose races are not looked for.
    shadows: *const *const AtomicU64,
    /// Called by host code where two accesses meet.
    meet: unsafe extern "C" fn(*const HostRecord, u64, u64, u64),
    /// Called by host code that reads the clock.
    clock: unsafe extern "C" fn(*mut i64),
    variant: &'static Variant,
    check: Option<&'c RaceCheck>,
}

const _: () = assert!(std::mem::offset_of!(HostRecord, print) == 48);
const _: () = assert!(std::mem::offset_of!(HostRecord, shadows) == 56);
const _: () = assert!(std::mem::offset_of!(HostRecord, meet) == 64);
const _: () = assert!(std::mem::offset_of!(HostRecord, clock) == 72);

impl<'c> HostRecord<'c> {
    pub(crate) fn new(variant: &'static Variant, check: Option<&'c RaceCheck>) -> HostRecord<'c> {
        let shadows = check.map_or(std::ptr::null(), RaceCheck::shadows);
        let record = FailureRecord::default();
        HostRecord { record, print, shadows, meet, clock, variant, check }
    }

    /// What it says about a launch of `kernel`.
    pub(crate) fn error(&self, kernel: &'static Kernel) -> Option<Error> {
        let race = || self.check.and_then(|check| check.error(kernel));
        self.record.error(kernel, self.variant).or_else(race)
    }
}

/// Notes an access of an element whose shadow word has another one already.
unsafe extern "C" fn meet(record: *const HostRecord, param: u64, index: u64, access: u64) {
    // SAFETY: host code has the record from the launch that it runs for. Others may be writing its first field.
    if let Some(check) = unsafe { (*record).check } {
        check.meet(param as usize, index, access as u32);
    }
}

/// Writes the nanoseconds since the first call of this process.
unsafe extern "C" fn clock(time: *mut i64) {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // SAFETY: host code hands over a word of its own.
    unsafe { *time = START.elapsed().as_nanos() as i64 };
}

/// Prints a line of a launch.
unsafe extern "C" fn print(record: *const HostRecord, line: *const PrintLine) {
    // SAFETY: host code has both from the launch that it runs for. Others may be writing the first field of the record;
    // the variant is behind it and stays.
    unsafe { crate::device_print::print((*record).variant.sites, line) };
}

/// A GPU module with a record that was launched on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PendingRecord {
    kernel: *const Kernel,
    variant: *const Variant,
    record: CUdeviceptr,
    stream: CUstream,
}

/// The code of a launch.
pub(crate) type KernelVariant = (&'static Kernel, &'static Variant);

/// The launches of a device whose failure records were not read since they ended.
#[derive(Default)]
pub(crate) struct PendingReports(Mutex<Vec<PendingRecord>>);

// SAFETY: the kernels are `&'static`, and a stream's handle is only compared.
unsafe impl Send for PendingReports {}
// SAFETY: as above; the list is behind a lock.
unsafe impl Sync for PendingReports {}

impl PendingReports {
    /// A launch of code that has a record.
    pub(crate) fn note(&self, (kernel, variant): KernelVariant, record: CUdeviceptr, stream: &CudaStream) {
        let pending = PendingRecord { kernel, variant, record, stream: stream.cu_stream() };
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&pending) {
            list.push(pending);
        }
    }

    /// Reads and clears the first report. To be called when `stream` was synchronized, or with [`SyncScope::Device`] the device;
    /// launches on other streams may not have ended, and stay pending.
    pub(crate) fn collect(&self, stream: &CudaStream, scope: SyncScope) -> Result<()> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.is_empty() {
            return Ok(());
        }
        let failed = Error::cuda("cuMemcpyDtoHAsync");
        stream.context().bind_to_thread().map_err(&failed)?;
        let mut found = None;
        let mut left = Vec::new();
        for pending in list.drain(..) {
            if found.is_some() {
                left.push(pending);
                continue;
            }
            // SAFETY: the record belongs to a module that stays loaded, in this device's context.
            match unsafe { pending.take(stream) } {
                Ok(None) => {}
                Ok(Some(error)) => found = Some(error),
                Err(error) => found = Some(failed(error)),
            }
            if scope == SyncScope::Stream && pending.stream != stream.cu_stream() {
                left.push(pending);
            }
        }
        *list = left;
        found.map_or(Ok(()), Err)
    }
}

/// What a caller of [`PendingReports::collect`] has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SyncScope {
    Stream,
    Device,
}

impl PendingRecord {
    /// Reads the record and clears it.
    ///
    /// # Safety
    /// Its module must be loaded in the stream's context, which must be current.
    unsafe fn take(self, stream: &CudaStream) -> Result<Option<Error>, DriverError> {
        // SAFETY: passed on to the caller.
        if unsafe { FailureRecord::read(self.record, stream) }?.state != COMPLETE {
            return Ok(None);
        }
        // A kernel that still runs may have been writing: now the rest is as complete as the state says.
        // SAFETY: passed on to the caller.
        let record = unsafe { FailureRecord::read(self.record, stream) }?;
        // SAFETY: as above; the record is as long as said.
        unsafe { result::memset_d8_async(self.record, 0, size_of::<FailureRecord>(), stream.cu_stream()) }?;
        stream.synchronize()?;
        // SAFETY: `note` got both as references that never end.
        Ok(unsafe { record.error(&*self.kernel, &*self.variant) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Param, ParamKind, Variant};

    static GATHER: Kernel = Kernel {
        name: "gather",
        file: "src/lib.rs",
        line: 10,
        params: &[Param { name: "x", kind: ParamKind::Slice }],
        variants: &[Variant {
            label: "",
            types: &[],
            consts: &[],
            dtypes: &[],
            source: 0,
            modules: &[],
            hosts: &[],
            sites: &[
                Site::Assert { condition: "x >= 0.0", message: "", shape: &[] },
                Site::Assert { condition: "at < n", message: "no such row", shape: &[4, 8] },
                Site::Assume { condition: "n % 8 == 0" },
            ],
        }],
        ..Kernel::TEST
    };

    #[test]
    fn a_record_names_program_element_and_location() {
        let record = FailureRecord {
            state: COMPLETE,
            line: 2,
            column: 20,
            program: [3, 0, 0],
            index: 1000,
            length: 1000,
            ..FailureRecord::default()
        };
        let said =
            |record: FailureRecord| record.error(&GATHER, &GATHER.variants[0]).map(|error| error.to_string());
        assert_eq!(
            said(record).unwrap(),
            "kernel `gather`: program (3, 0, 0) reads element 1000 of `x`, which has 1000 (src/lib.rs:12:20)"
        );
        assert_eq!(
            said(FailureRecord { kind: WRITE, index: -1, line: -1, ..record }).unwrap(),
            "kernel `gather`: program (3, 0, 0) writes element -1 of `x`, which has 1000 (src/lib.rs:9:20)"
        );
        assert_eq!([0, 1].map(|state| said(FailureRecord { state, ..record })), [None, None]);
        let failure =
            |subject, index| said(FailureRecord { kind: FAILURE, subject, index, ..record }).unwrap();
        assert_eq!(
            failure(0, 0),
            "kernel `gather`: program (3, 0, 0): `tl::device_assert(x >= 0.0)` fails (src/lib.rs:12:20)"
        );
        assert_eq!(
            failure(1, 13),
            "kernel `gather`: program (3, 0, 0): `tl::device_assert(at < n)` fails for element (1, 5): no such row (src/lib.rs:12:20)"
        );
        assert_eq!(
            failure(2, 0),
            "kernel `gather`: program (3, 0, 0): `tl::assume(n % 8 == 0)` fails (src/lib.rs:12:20)"
        );
    }
}

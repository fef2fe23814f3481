//! CUDA devices: one context per device and process, its default stream, its memory, the code loaded into it.
//!
//! Takes ordinals or contexts, gives [`CudaDevice`]s that live as long as the process. Everything that can only be asked
//! of a driver is asked here, in what this file imports or in `launch`; without a driver each entry returns
//! [`Error::NoDriver`].

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUmemPool_attribute, CUresult};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut,
    DeviceSlice, DriverError, result,
};

use crate::device_properties::DeviceProperties;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::libcuda;
use crate::module::CodeTable;
use crate::report::{PendingReports, SyncScope};
use crate::stream_order::{MemoryUse, StreamOrder};
use crate::work_counter::WorkCounters;

/// A CUDA device with its context. There is one for each context, and it is never dropped.
pub(crate) struct CudaDevice {
    pub(crate) context: Arc<CudaContext>,
    /// The null stream.
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) properties: DeviceProperties,
    pub(crate) modules: CodeTable,
    pub(crate) recent: Recent,
    pub(crate) pending: PendingReports,
    pub(crate) work_counters: WorkCounters,
    pub(crate) stream_order: StreamOrder,
}

static DEVICES: Mutex<Vec<&'static CudaDevice>> = Mutex::new(Vec::new());

/// The number of devices; 0 where a driver finds none.
pub(crate) fn count() -> Result<usize> {
    if !libcuda::is_present() {
        return Err(Error::NoDriver);
    }
    match CudaContext::device_count() {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_STUB_LIBRARY)) => Ok(0),
        Err(error) => Err(Error::cuda("cuInit")(error)),
    }
}

/// The device with this ordinal, in the context that is registered for it, or else its primary context.
pub(crate) fn open(ordinal: usize) -> Result<&'static CudaDevice> {
    let count = count()?;
    if ordinal >= count {
        return Err(Error::NoDevice { ordinal, count });
    }
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = devices.iter().find(|device| device.context.ordinal() == ordinal) {
        return Ok(device);
    }
    let context = CudaContext::new(ordinal).map_err(Error::cuda("cuDevicePrimaryCtxRetain"))?;
    keep_freed_memory(&context)?;
    let stream_order = StreamOrder::ours(&context);
    register(&mut devices, context, stream_order)
}

/// Has the memory pool of a context keep what is freed for the next allocation: by default a wait for the device gives it all back, and
/// the next launch with temporary memory has it mapped again.
fn keep_freed_memory(context: &CudaContext) -> Result<()> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    let mut threshold = u64::MAX;
    // SAFETY: the device is this context's, its pool is there as long as the device, and this attribute is a `u64`.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device())
            .map_err(Error::cuda("cuDeviceGetDefaultMemPool"))?;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        result::mem_pool::set_attribute(pool, attribute, (&raw mut threshold).cast())
            .map_err(Error::cuda("cuMemPoolSetAttribute(release threshold)"))
    }
}

/// The device of a context that someone else made.
pub(crate) fn adopt(context: &Arc<CudaContext>) -> Result<&'static CudaDevice> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    match devices.iter().find(|device| Arc::ptr_eq(&device.context, context)) {
        Some(device) => Ok(device),
        None => register(&mut devices, context.clone(), StreamOrder::of_owner(context)),
    }
}

fn register(
    devices: &mut Vec<&'static CudaDevice>,
    context: Arc<CudaContext>,
    stream_order: StreamOrder,
) -> Result<&'static CudaDevice> {
    let device: &'static CudaDevice = Box::leak(Box::new(CudaDevice {
        stream: context.default_stream(),
        properties: DeviceProperties::of(&context)?,
        modules: CodeTable::default(),
        recent: Recent::default(),
        pending: PendingReports::default(),
        work_counters: WorkCounters::default(),
        stream_order,
        context,
    }));
    devices.push(device);
    Ok(device)
}

/// Bytes of the widest access of a thread, at a multiple of which it is aligned.
const VECTOR_BYTES: usize = 16;

impl CudaDevice {
    /// `cuda:0`
    pub(crate) fn label(&self) -> String {
        self.properties.label()
    }

    /// A stream beside the default one.
    pub(crate) fn new_stream(&self) -> Result<Arc<CudaStream>> {
        self.stream_order.track()?;
        self.context.new_stream().map_err(Error::cuda("cuStreamCreate"))
    }

    pub(crate) fn owns(&self, context: &Arc<CudaContext>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// Waits for all work on the device, and says what its kernels reported.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.context.synchronize().map_err(|error| self.failed("cuCtxSynchronize", error))?;
        self.pending.collect(&self.stream, SyncScope::Device)
    }

    /// Waits for the work of one stream, and says what kernels reported.
    pub(crate) fn synchronize_stream(&self, stream: &CudaStream) -> Result<()> {
        stream.synchronize().map_err(|error| self.failed("cuStreamSynchronize", error))?;
        self.pending.collect(stream, SyncScope::Stream)
    }

    /// An error that an earlier kernel may have caused.
    pub(crate) fn failed(&self, call: &'static str, error: DriverError) -> Error {
        Error::cuda(call)(error).since(|| self.recent.names())
    }

    /// Memory of a stream for `len` elements, with whatever it held before.
    ///
    /// # Safety
    /// Every element must be written before it is read.
    unsafe fn allocate<T: Element>(&self, stream: &Arc<CudaStream>, len: usize) -> Result<CudaSlice<T>> {
        let bytes = len as u128 * size_of::<T>() as u128;
        if bytes > isize::MAX as u128 {
            return Err(self.out_of_memory(bytes));
        }
        // Kernels read aligned vectors that hold an element, whatever is beside it: all of the last one is allocated.
        let whole = len.next_multiple_of(VECTOR_BYTES / size_of::<T>()).max(1);
        // SAFETY: passed on to the caller.
        let memory = unsafe { stream.alloc::<T>(whole) };
        let memory = memory.map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => self.out_of_memory(bytes),
            _ => self.failed("cuMemAlloc", error),
        })?;
        if len == whole {
            return Ok(memory);
        }
        // The buffer owns elements that nobody sees; one where it is empty, for CUDA cannot allocate no bytes.
        // SAFETY: the pointer was just allocated on this stream and is owned by nobody else.
        Ok(unsafe { stream.upgrade_device_ptr(memory.leak(), len) })
    }

    fn out_of_memory(&self, bytes: u128) -> Error {
        let free = self.context.mem_get_info().ok().map(|(free, total)| (free as u64, total as u64));
        Error::OutOfMemory { device: self.label(), bytes, free }
    }

    /// A copy of host memory; it is complete on return.
    pub(crate) fn upload<T: Element>(&self, host: &[T]) -> Result<CudaSlice<T>> {
        // SAFETY: all of it is written by the copy below.
        let mut memory = unsafe { self.allocate(&self.stream, host.len()) }?;
        if !host.is_empty() {
            self.stream
                .memcpy_htod(host, &mut memory)
                .map_err(|error| self.failed("cuMemcpyHtoDAsync", error))?;
            // The copy reads pinned host memory after it returned.
            self.synchronize_stream(&self.stream)?;
        }
        Ok(memory)
    }

    /// Another allocation with the same elements, of the same stream.
    pub(crate) fn copy_of<T: Element>(&self, memory: &CudaSlice<T>) -> Result<CudaSlice<T>> {
        let stream = memory.stream();
        // SAFETY: all of it is written below.
        let mut copy = unsafe { self.allocate(stream, memory.len()) }?;
        if !memory.is_empty() {
            // The copy records a read; this one before it waits for those of other streams.
            let (_, read) = memory.device_ptr(stream);
            self.stream_order.release([MemoryUse::on_alloc_stream(stream, read)]);
            stream.memcpy_dtod(memory, &mut copy).map_err(|error| self.failed("cuMemcpyDtoDAsync", error))?;
        }
        Ok(copy)
    }

    /// A copy, of `stream`, of the bytes of memory that is borrowed mutably, and so in use by no other stream once the
    /// device has been waited for; complete when `stream` has been.
    pub(crate) fn copy_of_bytes(
        &self,
        view: &CudaViewMut<'_, u8>,
        stream: &Arc<CudaStream>,
    ) -> Result<CudaSlice<u8>> {
        // SAFETY: all of it is written below.
        let mut copy = unsafe { self.allocate::<u8>(stream, view.len()) }?;
        if !view.is_empty() {
            stream.memcpy_dtod(view, &mut copy).map_err(|error| self.failed("cuMemcpyDtoDAsync", error))?;
        }
        Ok(copy)
    }

    /// Puts such a copy back, on the stream that made it.
    pub(crate) fn copy_back(
        &self,
        copy: &CudaSlice<u8>,
        view: &mut CudaViewMut<'_, u8>,
        stream: &Arc<CudaStream>,
    ) -> Result<()> {
        if view.is_empty() {
            return Ok(());
        }
        self.context.bind_to_thread().map_err(|error| self.failed("cuCtxSetCurrent", error))?;
        let alloc_stream = view.stream().clone();
        let (address, written) = view.device_ptr_mut(stream);
        let written = self.stream_order.begin(stream, &alloc_stream, written)?;
        let (from, read) = copy.device_ptr(stream);
        // SAFETY: both are of this context, which is current, and as long as each other: the one is a copy of the
        // other.
        let copied = unsafe { result::memcpy_dtod_async(address, from, copy.len(), stream.cu_stream()) };
        self.stream_order.release([written, MemoryUse::on_alloc_stream(stream, read)]);
        copied.map_err(|error| self.failed("cuMemcpyDtoDAsync", error))
    }

    /// Memory of a stream with whatever it held before, which is some number of any type but `bool`.
    pub(crate) fn uninit<T: Element>(&self, stream: &Arc<CudaStream>, len: usize) -> Result<CudaSlice<T>> {
        if T::DTYPE == DType::Bool {
            return self.zeros_of(stream, len);
        }
        // SAFETY: any bits are an element.
        unsafe { self.allocate(stream, len) }
    }

    pub(crate) fn zeros<T: Element>(&self, len: usize) -> Result<CudaSlice<T>> {
        self.zeros_of(&self.stream, len)
    }

    /// Zeros in memory of a stream.
    pub(crate) fn zeros_of<T: Element>(&self, stream: &Arc<CudaStream>, len: usize) -> Result<CudaSlice<T>> {
        // SAFETY: all of it is written below.
        let mut memory = unsafe { self.allocate(stream, len) }?;
        if len > 0 {
            stream.memset_zeros(&mut memory).map_err(|error| self.failed("cuMemsetD8Async", error))?;
        }
        Ok(memory)
    }
}

/// The elements behind a view, once all work that writes them is done.
pub(crate) fn download<T: Element>(view: &CudaView<'_, u8>) -> Result<Vec<T>> {
    let stream = view.stream();
    let device = adopt(stream.context())?;
    let len = view.len() / size_of::<T>();
    let mut host: Vec<T> = Vec::with_capacity(len);
    if len == 0 {
        return Ok(host);
    }
    let target: &mut [MaybeUninit<T>] = &mut host.spare_capacity_mut()[..len];
    device.context.bind_to_thread().map_err(|error| device.failed("cuCtxSetCurrent", error))?;
    let (address, read) = view.device_ptr(stream);
    // SAFETY: the view holds `len` elements, and `target` lives until the stream is synchronized below.
    let copied = unsafe { result::memcpy_dtoh_async(target, address, stream.cu_stream()) };
    device.stream_order.release([MemoryUse::on_alloc_stream(stream, read)]);
    copied.map_err(|error| device.failed("cuMemcpyDtoHAsync", error))?;
    device.synchronize_stream(stream)?;
    if T::DTYPE == DType::Bool {
        let bytes: *mut u8 = target.as_mut_ptr().cast();
        for i in 0..len {
            // SAFETY: `i < len`, and the copy wrote every byte. A byte that is neither 0 nor 1 is no `bool` yet.
            unsafe { *bytes.add(i) = u8::from(*bytes.add(i) != 0) };
        }
    }
    // SAFETY: the copy wrote all `len` elements, and any bits are a value of every element type but `bool`.
    unsafe { host.set_len(len) };
    Ok(host)
}

/// The bytes of memory that no stream uses any more.
pub(crate) fn download_bytes(view: &CudaViewMut<'_, u8>) -> Result<Vec<u8>> {
    let stream = view.stream().clone();
    let device = adopt(stream.context())?;
    let mut host = vec![0; view.len()];
    if !host.is_empty() {
        stream.memcpy_dtoh(view, &mut host).map_err(|error| device.failed("cuMemcpyDtoHAsync", error))?;
        device.synchronize_stream(&stream)?;
    }
    Ok(host)
}

/// The time between two events of one stream, in milliseconds; waits for both.
///
/// The bindings' own function asks for a symbol that drivers before 12.8 lack; every driver has this one.
pub(crate) fn elapsed_ms(start: &CudaEvent, end: &CudaEvent) -> Result<f32> {
    type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
    let failed = Error::cuda("cuEventElapsedTime");
    start.synchronize().map_err(&failed)?;
    end.synchronize().map_err(&failed)?;
    let mut ms = 0.0f32;
    // SAFETY: the function has had this type since CUDA 2.
    let elapsed = unsafe { libcuda::function::<ElapsedTime>(c"cuEventElapsedTime") };
    // SAFETY: both events live, and `ms` for the call.
    let status = unsafe { elapsed.ok_or(Error::NoDriver)?(&mut ms, start.cu_event(), end.cu_event()) };
    status.result().map_err(failed)?;
    Ok(ms)
}

/// The kernels launched last, for the error of a call that finds one of them failed.
#[derive(Default)]
pub(crate) struct Recent {
    kernels: [AtomicPtr<Kernel>; 8],
    launches: AtomicUsize,
}

impl Recent {
    pub(crate) fn note(&self, kernel: &'static Kernel) {
        let launch = self.launches.fetch_add(1, Ordering::Relaxed);
        self.kernels[launch % self.kernels.len()]
            .store(std::ptr::from_ref(kernel).cast_mut(), Ordering::Relaxed);
    }

    /// Latest first, each once.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        let launches = self.launches.load(Ordering::Relaxed);
        for back in 1..=self.kernels.len().min(launches) {
            let kernel = self.kernels[(launches - back) % self.kernels.len()].load(Ordering::Relaxed);
            // SAFETY: null, or from a `&'static Kernel` in `note`.
            if let Some(kernel) = unsafe { kernel.as_ref() }
                && !names.contains(&kernel.name)
            {
                names.push(kernel.name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ADD: Kernel = Kernel { name: "add", ..Kernel::TEST };
    static MUL: Kernel = Kernel { name: "mul", ..Kernel::TEST };

    #[test]
    fn recent_kernels_are_named_latest_first() {
        let recent = Recent::default();
        assert_eq!(recent.names(), Vec::<&str>::new());
        recent.note(&ADD);
        recent.note(&MUL);
        assert_eq!(recent.names(), ["mul", "add"]);
        for _ in 0..20 {
            recent.note(&ADD);
        }
        assert_eq!(recent.names(), ["add"]);
    }

    #[test]
    fn a_missing_driver_or_device_is_an_error_in_words() {
        match count() {
            Err(error) => assert_eq!(error, Error::NoDriver),
            Ok(count) => assert_eq!(open(count).err(), Some(Error::NoDevice { ordinal: count, count })),
        }
    }
}

//! Loads GPU code: selects the module of a variant that a device can run, loads it once, and finds it again on every
//! launch without taking a lock.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr, CUfunction_attribute, CUresult};
use cudarc::driver::{DriverError, result};

use crate::device_properties::DeviceProperties;
use crate::error::{Error, Result, format_bytes, reason};
use crate::kernel::{Arch, Kernel, Module, Packed, Specialization, Variant};
use crate::report::REPORT_GLOBAL;

/// Dynamic and static shared memory that a block gets without asking, in bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

/// A variant's code for a device.
pub(crate) struct VariantCode {
    /// From the one with the most guards to the one without.
    pub(crate) entries: Vec<Entry>,
}

/// A specialization; its code is loaded into the device's context at the first launch and stays there.
pub(crate) struct Entry {
    pub(crate) specialization: &'static Specialization,
    /// Its code for each architecture that the device runs, the latest first.
    modules: Vec<&'static Module>,
    loading: Mutex<()>,
    loaded: OnceLock<LoadedEntry>,
}

/// How many blocks of an entry a device runs at once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Occupancy {
    /// On a multiprocessor.
    pub blocks_per_multiprocessor: u32,
    pub multiprocessors: u32,
}

impl Occupancy {
    /// Of all multiprocessors.
    pub fn resident_blocks(self) -> u32 {
        self.blocks_per_multiprocessor * self.multiprocessors
    }

    /// The blocks of a persistent launch of so many programs of equal time: none runs more of them than with as
    /// many blocks as there are, so fewer do where they all end at once, which leaves the others more power and memory
    /// (docs/decisions/0044). Blocks that share a multiprocessor are as many as there is room for.
    pub fn balanced_blocks(self, programs: u32) -> u32 {
        let most = programs.min(self.resident_blocks());
        if self.blocks_per_multiprocessor > 1 || most == 0 {
            return most;
        }
        programs.div_ceil(programs.div_ceil(most))
    }
}

/// The loaded code of a specialization.
pub(crate) struct LoadedEntry {
    /// What was loaded, such as `cubin for sm_90a`.
    pub(crate) image: String,
    function: Result<sys::CUfunction, String>,
    pub(crate) occupancy: Occupancy,
    /// Whether it is launched with PDL: before the kernel in front of it in the stream has ended.
    pub(crate) uses_pdl: bool,
    /// Where the entry reports a failure, if it does.
    pub(crate) record: Option<CUdeviceptr>,
}

// SAFETY: a function handle is an opaque name that the driver accepts from any thread.
unsafe impl Send for LoadedEntry {}
// SAFETY: as above; the handle is never changed.
unsafe impl Sync for LoadedEntry {}

impl LoadedEntry {
    /// The function, or why this device cannot run it.
    pub(crate) fn function(&self) -> Result<sys::CUfunction, &str> {
        self.function.as_ref().copied().map_err(String::as_str)
    }
}

impl Entry {
    /// Its code in the device's context, which must be current.
    pub(crate) fn load(
        &self,
        kernel: &'static Kernel,
        variant: &'static Variant,
        device: &DeviceProperties,
    ) -> Result<&LoadedEntry> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let loaded = load(kernel, variant, device, &self.modules)?;
        Ok(self.loaded.get_or_init(|| loaded))
    }

    /// Its code, if it was loaded.
    pub(crate) fn loaded(&self) -> Option<&LoadedEntry> {
        self.loaded.get()
    }
}

impl Arch {
    /// Whether a device of this compute capability (90 for 9.0) runs PTX for this target.
    pub fn runs_on(self, capability: u32) -> bool {
        if self.exact { self.capability == capability } else { self.capability <= capability }
    }
}

impl std::fmt::Display for Arch {
    /// `sm_90a`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}{}", self.capability, if self.exact { "a" } else { "" })
    }
}

impl Module {
    /// The image assembled for this capability or the nearest one below it of the same major version.
    pub fn cubin(&self, capability: u32) -> Option<Packed> {
        let runs = |&&(built, _): &&(u32, Packed)| built / 10 == capability / 10 && built <= capability;
        self.cubins.iter().filter(runs).max_by_key(|(built, _)| *built).map(|&(_, image)| image)
    }
}

impl Variant {
    /// The modules that a device of this compute capability runs, those made for the latest architecture first.
    pub fn modules_for(&self, capability: u32) -> Vec<&'static Module> {
        let mut modules: Vec<_> =
            self.modules.iter().filter(|module| module.arch.runs_on(capability)).collect();
        modules.sort_by_key(|module| std::cmp::Reverse((module.arch.capability, module.arch.exact)));
        modules
    }
}

/// The code for the device; nothing is loaded yet.
pub(crate) fn code(
    kernel: &'static Kernel,
    variant: &'static Variant,
    device: &DeviceProperties,
) -> Result<VariantCode> {
    let entries = entries(variant, device.capability);
    if entries.is_empty() {
        let mut built: Vec<String> = variant.modules.iter().map(|module| module.arch.to_string()).collect();
        built.dedup();
        return Err(Error::NoCode {
            kernel: kernel.name,
            variant: variant.label,
            device: device.label(),
            capability: device.capability,
            built,
        });
    }
    Ok(VariantCode { entries })
}

fn entries(variant: &'static Variant, capability: u32) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for module in variant.modules_for(capability) {
        let specialization = &module.specialization;
        match entries.iter_mut().find(|entry| entry.specialization.entry == specialization.entry) {
            Some(entry) => entry.modules.push(module),
            None => entries.push(Entry {
                specialization,
                modules: vec![module],
                loading: Mutex::default(),
                loaded: OnceLock::new(),
            }),
        }
    }
    entries
}

/// Loads the best of a specialization's modules that the driver takes.
fn load(
    kernel: &'static Kernel,
    variant: &'static Variant,
    device: &DeviceProperties,
    modules: &[&'static Module],
) -> Result<LoadedEntry> {
    let mut first_failure = None;
    for module in modules {
        let cubin = module.cubin(device.capability).map(|code| (Image::Cubin, code));
        let ptx = (!module.ptx.is_empty()).then_some((Image::Ptx, module.ptx));
        for (image, code) in cubin.into_iter().chain(ptx) {
            let name = format!("{} for {}", image.kind(), module.arch);
            let failure = match image.load(code) {
                Ok(handle) => {
                    return link_entry(kernel, variant, device, LoadedModule { module, handle, name });
                }
                Err(failure) => failure,
            };
            let refused = Error::Load {
                kernel: kernel.name,
                variant: variant.label,
                image: name,
                reason: reason(failure.error),
                log: failure.log,
            };
            // Another image may suit an older driver. A fault in the code itself would only be hidden by one.
            if !is_version_mismatch(failure.error) {
                return Err(refused);
            }
            first_failure.get_or_insert(refused);
        }
    }
    Err(first_failure.unwrap_or(Error::Load {
        kernel: kernel.name,
        variant: variant.label,
        image: "code".to_string(),
        reason: "there is neither PTX nor a cubin for this device".to_string(),
        log: String::new(),
    }))
}

fn is_version_mismatch(error: DriverError) -> bool {
    matches!(
        error.0,
        CUresult::CUDA_ERROR_INVALID_IMAGE
            | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED
    )
}

struct LoadedModule {
    module: &'static Module,
    handle: sys::CUmodule,
    name: String,
}

/// The entry of a module that the driver took.
fn link_entry(
    kernel: &'static Kernel,
    variant: &'static Variant,
    device: &DeviceProperties,
    taken: LoadedModule,
) -> Result<LoadedEntry> {
    let LoadedModule { module, handle, name } = taken;
    let refused = |what: &str, error: DriverError| Error::Load {
        kernel: kernel.name,
        variant: variant.label,
        image: format!("{what} of the {name}"),
        reason: reason(error),
        log: String::new(),
    };
    let record = if module.reports {
        // SAFETY: the module was loaded and is never unloaded.
        let found = unsafe { result::module::get_global(handle, REPORT_GLOBAL.to_owned()) };
        let (address, _) = found.map_err(|error| refused("global `fuse_report`", error))?;
        Some(address)
    } else {
        None
    };
    let function = function(handle, &module.specialization, device.shared_limit)
        .map_err(|error| refused(&format!("entry `{}`", module.specialization.entry), error))?;
    let occupancy = match function {
        Ok(function) => occupancy(function, &module.specialization, device)
            .map_err(|error| refused(&format!("entry `{}`", module.specialization.entry), error))?,
        Err(_) => Occupancy::default(),
    };
    // An older architecture's code does not wait, where the driver takes no other.
    let uses_pdl = module.specialization.uses_pdl && device.supports_pdl;
    Ok(LoadedEntry { image: name, function, occupancy, uses_pdl, record })
}

fn occupancy(
    function: sys::CUfunction,
    specialization: &Specialization,
    device: &DeviceProperties,
) -> Result<Occupancy, DriverError> {
    // SAFETY: the function's module was loaded and is never unloaded.
    let each = unsafe {
        result::occupancy::max_active_block_per_multiprocessor(
            function,
            specialization.threads as i32,
            specialization.shared_bytes as usize,
        )
    }?;
    Ok(Occupancy {
        blocks_per_multiprocessor: each.max(1) as u32,
        multiprocessors: device.multiprocessors as u32,
    })
}

/// The entry's function, ready for its shared memory, or why the device is too small for it.
fn function(
    module: sys::CUmodule,
    specialization: &Specialization,
    shared_limit: u32,
) -> Result<Result<sys::CUfunction, String>, DriverError> {
    let name = CString::new(specialization.entry).map_err(|_| DriverError(CUresult::CUDA_ERROR_NOT_FOUND))?;
    // SAFETY: the module was loaded and is never unloaded.
    let function = unsafe { result::module::get_function(module, name) }?;
    // SAFETY: the function was just found.
    let static_shared = unsafe {
        result::function::get_function_attribute(
            function,
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        )
    }?;
    let shared = specialization.shared_bytes.saturating_add(static_shared as u32);
    if shared > shared_limit {
        let (needed, limit) = (format_bytes(shared.into()), format_bytes(shared_limit.into()));
        return Ok(Err(format!("it needs {needed} of shared memory, a block of this device has {limit}")));
    }
    if shared > DEFAULT_SHARED_BYTES {
        // SAFETY: the function was just found.
        unsafe {
            result::function::set_function_attribute(
                function,
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                specialization.shared_bytes as i32,
            )
        }?;
    }
    Ok(Ok(function))
}

#[derive(Clone, Copy)]
enum Image {
    Cubin,
    Ptx,
}

struct LoadFailure {
    error: DriverError,
    /// What the driver's compiler says.
    log: String,
}

impl LoadFailure {
    /// Of what the driver need not be asked for.
    fn invalid(what: &str) -> LoadFailure {
        LoadFailure { error: DriverError(CUresult::CUDA_ERROR_INVALID_SOURCE), log: what.to_string() }
    }
}

impl Image {
    fn kind(self) -> &'static str {
        match self {
            Image::Cubin => "cubin",
            Image::Ptx => "PTX",
        }
    }

    /// Loads it into the current context.
    fn load(self, code: Packed) -> Result<sys::CUmodule, LoadFailure> {
        let bytes = code.unpack().ok_or_else(|| LoadFailure::invalid("it cannot be unpacked"))?;
        match self {
            // The driver reads the headers in place, so the bytes move to a 16-byte boundary.
            Image::Cubin => {
                let mut aligned = vec![0u128; bytes.len().div_ceil(16)];
                // SAFETY: `aligned` has room for all bytes, and the two do not overlap.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), aligned.as_mut_ptr().cast(), bytes.len()) };
                // SAFETY: an ELF image says how long it is.
                unsafe { load_image(aligned.as_ptr().cast()) }
            }
            Image::Ptx => {
                let text = CString::new(bytes.into_owned())
                    .map_err(|_| LoadFailure::invalid("it holds a zero byte"))?;
                // SAFETY: the text ends in a zero byte.
                unsafe { load_image(text.as_ptr().cast()) }
            }
        }
    }
}

/// # Safety
/// `image` must point to a whole cubin, or to PTX that ends in a zero byte.
unsafe fn load_image(image: *const c_void) -> Result<sys::CUmodule, LoadFailure> {
    let mut log = vec![0u8; 16 << 10];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // An option's value travels in the pointer itself.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
    let mut module = ptr::null_mut();
    // SAFETY: the caller vouches for the image; the options and their values are as many as said, and the log is as long
    // as said.
    let status = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            image,
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    status.result().map_err(|error| {
        let written = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        LoadFailure { error, log: String::from_utf8_lossy(&log[..written]).into_owned() }
    })?;
    Ok(module)
}

/// Code by variant. It only grows, so a reader walks published links and never waits.
#[derive(Default)]
pub(crate) struct CodeTable {
    buckets: [Link; 32],
    loading: Mutex<()>,
}

type Link = OnceLock<Box<Node>>;

struct Node {
    variant: &'static Variant,
    code: VariantCode,
    next: Link,
}

impl CodeTable {
    pub(crate) fn get_or_load(
        &self,
        variant: &'static Variant,
        load: impl FnOnce() -> Result<VariantCode>,
    ) -> Result<&VariantCode> {
        if let Ok(code) = self.find(variant) {
            return Ok(code);
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        match self.find(variant) {
            Ok(code) => Ok(code),
            Err(end) => {
                // Only the holder of the lock writes, so the end of the chain is still empty.
                let node = Box::new(Node { variant, code: load()?, next: Link::new() });
                Ok(&end.get_or_init(|| node).code)
            }
        }
    }

    /// The variant's code, or the link at which it would be.
    fn find(&self, variant: &'static Variant) -> Result<&VariantCode, &Link> {
        let address = ptr::from_ref(variant).addr();
        let mut link = &self.buckets[(address >> 4) % self.buckets.len()];
        while let Some(node) = link.get() {
            if ptr::eq(node.variant, variant) {
                return Ok(&node.code);
            }
            link = &node.next;
        }
        Err(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn module(arch: Arch, cubins: &'static [(u32, Packed)]) -> Module {
        Module {
            arch,
            ptx: Packed::Plain(b""),
            cubins,
            specialization: specialization("general"),
            reports: false,
        }
    }

    const fn specialization(entry: &'static str) -> Specialization {
        Specialization {
            entry,
            threads: 32,
            programs_per_block: 1,
            blocks_per_program: 1,
            persistent: false,
            uses_work_counter: false,
            uses_pdl: false,
            shared_bytes: 0,
            guards: &[],
            maps: &[],
            accesses: &[],
            refused_dots: &[],
            resources: None,
        }
    }

    const SM_80: Arch = Arch { capability: 80, exact: false };
    const SM_90: Arch = Arch { capability: 90, exact: false };
    const SM_90A: Arch = Arch { capability: 90, exact: true };

    const VARIANT: Variant = Variant {
        label: "T = f32",
        types: &[],
        consts: &[],
        dtypes: &[],
        source: 0,
        modules: &[
            module(
                SM_80,
                &[(80, Packed::Plain(b"80")), (86, Packed::Plain(b"86")), (90, Packed::Plain(b"90"))],
            ),
            module(SM_90, &[]),
            module(SM_90A, &[(90, Packed::Plain(b"90a"))]),
        ],
        hosts: &[],
        sites: &[],
    };

    fn archs(capability: u32) -> Vec<String> {
        VARIANT.modules_for(capability).iter().map(|module| module.arch.to_string()).collect()
    }

    #[test]
    fn the_latest_architecture_that_runs_comes_first() {
        assert_eq!(archs(75), Vec::<String>::new());
        assert_eq!(archs(80), ["sm_80"]);
        assert_eq!(archs(89), ["sm_80"]);
        assert_eq!(archs(90), ["sm_90a", "sm_90", "sm_80"]);
        assert_eq!(archs(100), ["sm_90", "sm_80"]);
    }

    #[test]
    fn a_specialization_is_an_entry_with_the_modules_of_each_architecture() {
        const fn of(arch: Arch, entry: &'static str) -> Module {
            Module {
                arch,
                ptx: Packed::Plain(b""),
                cubins: &[],
                specialization: specialization(entry),
                reports: false,
            }
        }
        static BOTH: Variant = Variant {
            modules: &[
                of(SM_80, "aligned"),
                of(SM_80, "general"),
                of(SM_90A, "aligned"),
                of(SM_90A, "general"),
            ],
            ..VARIANT
        };
        let found = |capability| -> Vec<(&str, Vec<String>)> {
            let archs = |entry: &Entry| entry.modules.iter().map(|module| module.arch.to_string()).collect();
            entries(&BOTH, capability)
                .iter()
                .map(|entry| (entry.specialization.entry, archs(entry)))
                .collect()
        };
        let of = |archs: &[&str]| archs.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(found(90), [("aligned", of(&["sm_90a", "sm_80"])), ("general", of(&["sm_90a", "sm_80"]))]);
        assert_eq!(found(100), [("aligned", of(&["sm_80"])), ("general", of(&["sm_80"]))]);
        assert_eq!(found(75), []);
    }

    #[test]
    fn a_cubin_runs_on_its_major_version_from_its_minor_on() {
        let module = &VARIANT.modules[0];
        assert_eq!(module.cubin(80), Some(Packed::Plain(b"80")));
        assert_eq!(module.cubin(89), Some(Packed::Plain(b"86")));
        assert_eq!(module.cubin(90), Some(Packed::Plain(b"90")));
        assert_eq!(module.cubin(100), None);
        assert_eq!(VARIANT.modules[1].cubin(90), None);
    }

    #[test]
    fn each_variant_is_loaded_once() {
        let variants: &'static [Variant] =
            Vec::leak((0..100).map(|_| Variant { modules: &[], ..VARIANT }).collect());
        let table = CodeTable::default();
        let failure = || Err(Error::NoDriver);
        assert!(table.get_or_load(&variants[0], failure).is_err());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (i, variant) in variants.iter().enumerate() {
                        let load = || {
                            let entry = i.to_string().leak();
                            Ok(VariantCode {
                                entries: vec![Entry {
                                    specialization: Box::leak(Box::new(specialization(entry))),
                                    modules: Vec::new(),
                                    loading: Mutex::default(),
                                    loaded: OnceLock::new(),
                                }],
                            })
                        };
                        table.get_or_load(variant, load).unwrap();
                    }
                });
            }
        });
        for (i, variant) in variants.iter().enumerate() {
            assert_eq!(
                table.get_or_load(variant, failure).unwrap().entries[0].specialization.entry,
                i.to_string()
            );
        }
    }
}

//! LLVM through its C API: optimize a module and print it as text for one target.
//!
//! The functions come from the same static libraries that mlir-sys links; its bindings leave these headers out, so the
//! few that are needed are declared here.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, Once};
use std::{iter, ptr};

use mlir_sys::{LLVMContextRef, LLVMModuleRef, mlirTranslateModuleToLLVMIR};

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}
type TargetRef = *mut Opaque;
type MachineRef = *mut Opaque;
type BufferRef = *mut Opaque;
type ErrorRef = *mut Opaque;
type PassOptionsRef = *mut Opaque;
type DataLayoutRef = *mut Opaque;

unsafe extern "C" {
    fn LLVMContextCreate() -> LLVMContextRef;
    fn LLVMModuleCreateWithNameInContext(name: *const c_char, context: LLVMContextRef) -> LLVMModuleRef;
    fn LLVMContextDispose(context: LLVMContextRef);
    fn LLVMDisposeModule(module: LLVMModuleRef);
    fn LLVMCloneModule(module: LLVMModuleRef) -> LLVMModuleRef;
    fn LLVMSetTarget(module: LLVMModuleRef, triple: *const c_char);
    fn LLVMPrintModuleToString(module: LLVMModuleRef) -> *mut c_char;
    fn LLVMDisposeMessage(message: *mut c_char);
    fn LLVMGetFirstFunction(module: LLVMModuleRef) -> *mut Opaque;
    fn LLVMGetNextFunction(function: *mut Opaque) -> *mut Opaque;
    fn LLVMCountBasicBlocks(function: *mut Opaque) -> c_uint;
    fn LLVMGetFirstBasicBlock(function: *mut Opaque) -> *mut Opaque;
    fn LLVMGetNextBasicBlock(block: *mut Opaque) -> *mut Opaque;
    fn LLVMGetFirstInstruction(block: *mut Opaque) -> *mut Opaque;
    fn LLVMGetNextInstruction(instruction: *mut Opaque) -> *mut Opaque;
    fn LLVMVerifyModule(module: LLVMModuleRef, action: c_int, message: *mut *mut c_char) -> c_int;

    fn LLVMInitializeX86TargetInfo();
    fn LLVMInitializeX86Target();
    fn LLVMInitializeX86TargetMC();
    fn LLVMInitializeX86AsmPrinter();
    fn LLVMInitializeAArch64TargetInfo();
    fn LLVMInitializeAArch64Target();
    fn LLVMInitializeAArch64TargetMC();
    fn LLVMInitializeAArch64AsmPrinter();
    fn LLVMInitializeNVPTXTargetInfo();
    fn LLVMInitializeNVPTXTarget();
    fn LLVMInitializeNVPTXTargetMC();
    fn LLVMInitializeNVPTXAsmPrinter();

    fn LLVMGetTargetFromTriple(
        triple: *const c_char,
        target: *mut TargetRef,
        message: *mut *mut c_char,
    ) -> c_int;
    fn LLVMCreateTargetMachine(
        target: TargetRef,
        triple: *const c_char,
        cpu: *const c_char,
        features: *const c_char,
        level: c_int,
        relocation: c_int,
        code_model: c_int,
    ) -> MachineRef;
    fn LLVMDisposeTargetMachine(machine: MachineRef);
    fn LLVMCreateTargetDataLayout(machine: MachineRef) -> DataLayoutRef;
    fn LLVMSetModuleDataLayout(module: LLVMModuleRef, layout: DataLayoutRef);
    fn LLVMDisposeTargetData(layout: DataLayoutRef);
    fn LLVMTargetMachineEmitToMemoryBuffer(
        machine: MachineRef,
        module: LLVMModuleRef,
        kind: c_int,
        message: *mut *mut c_char,
        buffer: *mut BufferRef,
    ) -> c_int;
    fn LLVMGetBufferStart(buffer: BufferRef) -> *const c_char;
    fn LLVMGetBufferSize(buffer: BufferRef) -> usize;
    fn LLVMDisposeMemoryBuffer(buffer: BufferRef);

    fn LLVMCreatePassBuilderOptions() -> PassOptionsRef;
    fn LLVMDisposePassBuilderOptions(options: PassOptionsRef);
    fn LLVMPassBuilderOptionsSetVerifyEach(options: PassOptionsRef, on: c_int);
    fn LLVMRunPasses(
        module: LLVMModuleRef,
        passes: *const c_char,
        machine: MachineRef,
        options: PassOptionsRef,
    ) -> ErrorRef;
    fn LLVMGetErrorMessage(error: ErrorRef) -> *mut c_char;
    fn LLVMDisposeErrorMessage(message: *mut c_char);
    fn LLVMParseCommandLineOptions(argc: c_int, argv: *const *const c_char, overview: *const c_char);
    fn LLVMGetVersion(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint);
}

/// A target that text is printed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetCpu {
    pub triple: &'static str,
    pub cpu: &'static str,
    pub features: &'static str,
}

/// An LLVM module and the context it lives in.
pub struct LlvmModule {
    context: LLVMContextRef,
    owner: Owner,
    module: LLVMModuleRef,
}

/// Who owns a module's context.
#[derive(Clone, Copy)]
enum Owner {
    Module,
    Pool,
    /// The module that this one is a clone of.
    Original,
}

impl Drop for LlvmModule {
    fn drop(&mut self) {
        if !self.module.is_null() {
            // SAFETY: `translate` or `assemble` made it; it goes before its context.
            unsafe { LLVMDisposeModule(self.module) };
        }
        match self.owner {
            // SAFETY: it was made for this module, which is gone.
            Owner::Module => unsafe { LLVMContextDispose(self.context) },
            Owner::Pool => WITH_SLSR.release(self.context),
            Owner::Original => {}
        }
    }
}

/// The pass pipeline after emission, run once for all targets that code is printed for. It is the part of `default<O3>`
/// that changes such code; the rest took half of the time and changed nothing (docs/decisions/0176). It has no
/// vectorization and no unrolling: emission already chose the vectors and unrolled what pays, and one order of
/// operations on every target is worth more than what a second pass finds.
const PASSES: &CStr = c"always-inline,function(sroa<modify-cfg>,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,loop-mssa(loop-rotate,licm<allowspeculation>),gvn,dse,instcombine<no-verify-fixpoint>,adce,simplifycfg),globaldce";

/// For which modules LLVM's straight-line strength reduction (SLSR) runs at code generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StrengthReduction {
    /// As on CPUs, whose instructions have addresses of two registers and an offset.
    Never,
    Always,
    /// LLVM 22 takes the difference of each pair of addresses in a block, which is three quarters of the time that large modules take in
    /// all (docs/decisions/0174).
    IfSmall,
}

/// The most instructions of a small module, before any pass.
const SMALL_MODULE_INSTRUCTIONS: usize = 1024;

/// Contexts in which SLSR runs. A context decides once, when its first pass runs, whether passes are disabled: these
/// did before [`DISABLE_SLSR`] was parsed, and no later one runs it.
struct ContextPool {
    free: Mutex<Vec<PooledContext>>,
    returned: Condvar,
}

/// A context between two uses.
struct PooledContext(LLVMContextRef);

// SAFETY: a context may be used by any thread, if only one does at a time.
unsafe impl Send for PooledContext {}

static WITH_SLSR: ContextPool = ContextPool { free: Mutex::new(vec![]), returned: Condvar::new() };

/// As many threads use the pool at once; others wait.
const POOL_SIZE: usize = 16;

impl ContextPool {
    /// Makes the contexts.
    fn fill(&self) {
        let contexts = (0..POOL_SIZE).map(|_| {
            // SAFETY: what is created here is disposed here but for the context; a pass that needs no machine runs on an empty module.
            unsafe {
                let context = LLVMContextCreate();
                let module = LLVMModuleCreateWithNameInContext(c"".as_ptr(), context);
                let options = LLVMCreatePassBuilderOptions();
                let error = LLVMRunPasses(module, c"globaldce".as_ptr(), ptr::null_mut(), options);
                assert!(error.is_null(), "LLVM has that pass");
                LLVMDisposePassBuilderOptions(options);
                LLVMDisposeModule(module);
                PooledContext(context)
            }
        });
        self.free.lock().expect("no thread panics with the lock").extend(contexts);
    }

    fn acquire(&self) -> LLVMContextRef {
        let mut free = self.free.lock().expect("no thread panics with the lock");
        loop {
            match free.pop() {
                Some(PooledContext(context)) => return context,
                None => free = self.returned.wait(free).expect("no thread panics with the lock"),
            }
        }
    }

    fn release(&self, context: LLVMContextRef) {
        self.free.lock().expect("no thread panics with the lock").push(PooledContext(context));
        self.returned.notify_one();
    }
}

/// Whether a module is verified after every pass.
static VERIFY_EACH: AtomicBool = AtomicBool::new(false);
/// The most basic blocks of a module that is verified after every pass: LLVM verifies a whole function again for each
/// of its loops. A larger one is verified after all passes.
const MAX_BLOCKS_VERIFIED_PER_PASS: c_uint = 256;

const ASSEMBLY_FILE: c_int = 0;
const RETURN_STATUS: c_int = 2;
const OPTIMIZE_AGGRESSIVE: c_int = 3;
const RELOCATION_PIC: c_int = 2;
const CODE_MODEL_DEFAULT: c_int = 0;

/// Has every module of this process verified after each pass. Debian's LLVM has its assertions off, so our own tests do so; builds
/// need not.
pub fn verify_after_each_pass() {
    VERIFY_EACH.store(true, Ordering::Relaxed);
}

/// The linked LLVM, as `major.minor.patch`.
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three valid out-pointers.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// Command-line options of the back ends; there is no other way to set them through the C API.
const OPTIONS: &[&CStr] = &[
    c"lowering",
    // The language's own quotients of f32 are no `fdiv`: one is a quotient of f64 that is rounded to f32, which LLVM narrows.
    c"-nvptx-prec-divf32=2",
    c"-nvptx-prec-sqrtf32=1",
];

/// Parsed once the pool is filled.
const DISABLE_SLSR: &[&CStr] = &[c"lowering", c"-opt-disable=slsr"];

/// Initializes the back ends, once per process. A process that forks does so before: its children need not.
pub fn initialize() {
    static ONCE: Once = Once::new();
    // SAFETY: registration functions without arguments, called once; the option strings are static.
    ONCE.call_once(|| unsafe {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeAArch64TargetInfo();
        LLVMInitializeAArch64Target();
        LLVMInitializeAArch64TargetMC();
        LLVMInitializeAArch64AsmPrinter();
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
        let parse = |options: &[&CStr]| {
            let argv: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
            LLVMParseCommandLineOptions(argv.len() as c_int, argv.as_ptr(), ptr::null());
        };
        parse(OPTIONS);
        WITH_SLSR.fill();
        parse(DISABLE_SLSR);
    });
}

/// Takes ownership of a message LLVM allocated.
fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: LLVM returns NUL-terminated messages that the caller disposes.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        text
    }
}

impl LlvmModule {
    /// Translates an MLIR module whose operations are all of dialects that map to LLVM IR.
    pub fn translate(
        module: &melior::ir::Module,
        strength_reduction: StrengthReduction,
    ) -> Result<LlvmModule, String> {
        initialize();
        let owner = match strength_reduction {
            StrengthReduction::Never => Owner::Module,
            StrengthReduction::Always | StrengthReduction::IfSmall => Owner::Pool,
        };
        let translated = LlvmModule::translate_in(owner, module)?;
        match strength_reduction {
            StrengthReduction::IfSmall if translated.instructions() > SMALL_MODULE_INSTRUCTIONS => {
                LlvmModule::translate_in(Owner::Module, module)
            }
            _ => Ok(translated),
        }
    }

    /// Optimizes the module; `like` is one of the targets that it will be printed for.
    pub fn optimize(&self, like: TargetCpu) -> Result<(), String> {
        TargetMachine::new(like)?.optimize(self)
    }

    fn translate_in(owner: Owner, module: &melior::ir::Module) -> Result<LlvmModule, String> {
        // SAFETY: the operation is a live module; the LLVM module is owned by the one that is returned, which gives up its context.
        let found = unsafe {
            let context =
                if matches!(owner, Owner::Pool) { WITH_SLSR.acquire() } else { LLVMContextCreate() };
            let module = mlirTranslateModuleToLLVMIR(module.as_operation().to_raw(), context);
            LlvmModule { context, owner, module }
        };
        if found.module.is_null() {
            return Err("MLIR could not translate the module to LLVM IR".into());
        }
        Ok(found)
    }

    /// The module as LLVM IR text.
    pub fn text(&self) -> String {
        // SAFETY: a live module; the message is disposed by `take_message`.
        take_message(unsafe { LLVMPrintModuleToString(self.module) })
    }

    fn verify(&self) -> Result<(), String> {
        let mut message = ptr::null_mut();
        // SAFETY: a live module; the message is disposed by `take_message`.
        let broken = unsafe { LLVMVerifyModule(self.module, RETURN_STATUS, &mut message) } != 0;
        let text = take_message(message);
        if broken { Err(format!("invalid LLVM IR: {text}")) } else { Ok(()) }
    }

    fn functions(&self) -> impl Iterator<Item = *mut Opaque> {
        // SAFETY: a live module, which nothing changes while it is walked.
        unsafe { linked(LLVMGetFirstFunction(self.module), LLVMGetNextFunction) }
    }

    fn basic_blocks(&self) -> c_uint {
        // SAFETY: functions of a live module.
        self.functions().map(|function| unsafe { LLVMCountBasicBlocks(function) }).sum()
    }

    fn instructions(&self) -> usize {
        // SAFETY: functions of a live module.
        let blocks = |function| unsafe { linked(LLVMGetFirstBasicBlock(function), LLVMGetNextBasicBlock) };
        // SAFETY: blocks of a live module.
        let count = |block| unsafe { linked(LLVMGetFirstInstruction(block), LLVMGetNextInstruction) }.count();
        self.functions().flat_map(blocks).map(count).sum()
    }

    /// The module as assembly (PTX for a GPU) of a target.
    pub fn assemble(&self, target_cpu: TargetCpu) -> Result<String, String> {
        let machine = TargetMachine::new(target_cpu)?;
        // SAFETY: a live module; the clone shares its context, which `self` keeps alive past the clone. Printing changes
        // the module, so it is the clone's.
        let module = unsafe { LLVMCloneModule(self.module) };
        let copy = LlvmModule { context: self.context, owner: Owner::Original, module };
        machine.set_target(&copy);
        machine.print(&copy)
    }
}

/// Iterates over a linked list of LLVM, up to a null pointer.
unsafe fn linked(
    first: *mut Opaque,
    next: unsafe extern "C" fn(*mut Opaque) -> *mut Opaque,
) -> impl Iterator<Item = *mut Opaque> {
    let some = |found: *mut Opaque| (!found.is_null()).then_some(found);
    // SAFETY: the caller's.
    iter::successors(some(first), move |&last| some(unsafe { next(last) }))
}

struct TargetMachine {
    raw: MachineRef,
    triple: CString,
}

impl Drop for TargetMachine {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        unsafe { LLVMDisposeTargetMachine(self.raw) };
    }
}

impl TargetMachine {
    fn new(target_cpu: TargetCpu) -> Result<TargetMachine, String> {
        initialize();
        let text = |s: &str| CString::new(s).expect("no NUL in a target name");
        let (triple, cpu, features) =
            (text(target_cpu.triple), text(target_cpu.cpu), text(target_cpu.features));
        let mut target = ptr::null_mut();
        let mut message = ptr::null_mut();
        // SAFETY: NUL-terminated strings and valid out-pointers.
        unsafe {
            if LLVMGetTargetFromTriple(triple.as_ptr(), &mut target, &mut message) != 0 {
                return Err(take_message(message));
            }
            let raw = LLVMCreateTargetMachine(
                target,
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                OPTIMIZE_AGGRESSIVE,
                RELOCATION_PIC,
                CODE_MODEL_DEFAULT,
            );
            if raw.is_null() {
                return Err(format!("LLVM has no machine {target_cpu:?}"));
            }
            Ok(TargetMachine { raw, triple })
        }
    }

    /// Makes this machine the module's target.
    fn set_target(&self, module: &LlvmModule) {
        // SAFETY: live module and machine; the layout is disposed after it was copied into the module.
        unsafe {
            LLVMSetTarget(module.module, self.triple.as_ptr());
            let layout = LLVMCreateTargetDataLayout(self.raw);
            LLVMSetModuleDataLayout(module.module, layout);
            LLVMDisposeTargetData(layout);
        }
    }

    fn optimize(&self, module: &LlvmModule) -> Result<(), String> {
        self.set_target(module);
        module.verify()?;
        let verify = VERIFY_EACH.load(Ordering::Relaxed);
        let each = verify && module.basic_blocks() <= MAX_BLOCKS_VERIFIED_PER_PASS;
        // SAFETY: live module and machine; every object created here is disposed here.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            LLVMPassBuilderOptionsSetVerifyEach(options, c_int::from(each));
            let error = LLVMRunPasses(module.module, PASSES.as_ptr(), self.raw, options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return if verify { module.verify() } else { Ok(()) };
            }
            let message = LLVMGetErrorMessage(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeErrorMessage(message);
            Err(format!("LLVM's passes failed: {text}"))
        }
    }

    fn print(&self, module: &LlvmModule) -> Result<String, String> {
        let mut buffer = ptr::null_mut();
        let mut message = ptr::null_mut();
        // SAFETY: live module and machine, valid out-pointers; the buffer is copied before it is disposed.
        unsafe {
            if LLVMTargetMachineEmitToMemoryBuffer(
                self.raw,
                module.module,
                ASSEMBLY_FILE,
                &mut message,
                &mut buffer,
            ) != 0
            {
                return Err(format!("LLVM could not print assembly: {}", take_message(message)));
            }
            let bytes = std::slice::from_raw_parts(
                LLVMGetBufferStart(buffer).cast::<u8>(),
                LLVMGetBufferSize(buffer),
            );
            let text = String::from_utf8_lossy(bytes).into_owned();
            LLVMDisposeMemoryBuffer(buffer);
            Ok(text)
        }
    }
}

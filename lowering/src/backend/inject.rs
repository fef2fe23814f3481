//! Fault injection (`FUSE_INJECT`), to prove that no failure ends rustc. Faults occur in the child that lowers a
//! kernel, where real ones would.

use std::time::Duration;

use melior::ir::Module;
use nix::sys::signal::{SigHandler, Signal, raise, signal};

use super::llvm::{LlvmModule, StrengthReduction};
use super::nvptx::Arch;
use crate::mlir::Session;

/// A way to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injection {
    /// `abort()`, as a failed assertion in LLVM does.
    Abort,
    /// A segmentation fault.
    Crash,
    /// A hang.
    Hang,
    /// A panic of our own code.
    Panic,
    /// An operation that the GPU does not have: LLVM says so and ends the process.
    Select,
}

impl Injection {
    pub const ALL: [Injection; 5] =
        [Injection::Abort, Injection::Crash, Injection::Hang, Injection::Panic, Injection::Select];

    pub fn name(self) -> &'static str {
        match self {
            Injection::Abort => "abort",
            Injection::Crash => "crash",
            Injection::Hang => "hang",
            Injection::Panic => "panic",
            Injection::Select => "select",
        }
    }

    /// Fails.
    pub fn strike(self) -> Result<(), String> {
        match self {
            Injection::Abort => std::process::abort(),
            Injection::Crash => crash().map_err(|error| error.to_string()),
            Injection::Hang => {
                std::thread::sleep(Duration::from_secs(3600));
                Ok(())
            }
            Injection::Panic => panic!("injected"),
            Injection::Select => select(),
        }
    }
}

fn crash() -> nix::Result<()> {
    // SAFETY: the default action; no handler of ours or of rustc's is left half-way.
    unsafe { signal(Signal::SIGSEGV, SigHandler::SigDfl)? };
    raise(Signal::SIGSEGV)
}

/// An intrinsic of another target: the time-stamp counter of x86.
const UNKNOWN: &str = r#"llvm.func @unknown(%out: !llvm.ptr) {
    %count = llvm.call_intrinsic "llvm.x86.rdtsc"() : () -> i64
    llvm.store %count, %out : i64, !llvm.ptr
    llvm.return
}"#;

fn select() -> Result<(), String> {
    let session = Session::new();
    let module = Module::parse(session.context(), UNKNOWN).ok_or("the injected module does not parse")?;
    let target_cpu = Arch::SM_80.target_cpu();
    let llvm = LlvmModule::translate(&module, StrengthReduction::Always)?;
    llvm.optimize(target_cpu)?;
    llvm.assemble(target_cpu).map(drop)
}

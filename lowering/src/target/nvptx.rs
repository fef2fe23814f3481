//! PTX.

use super::llvm::{LlvmModule, Processor};
use crate::body::Body;
use crate::mlir::{Machine, Session, gpu};

/// An architecture that PTX is written for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Arch {
    pub capability: u32,
    /// Only this capability, with the instructions it alone has.
    pub exact: bool,
}

impl Arch {
    pub const SM_80: Arch = Arch { capability: 80, exact: false };
    pub const SM_90A: Arch = Arch { capability: 90, exact: true };

    pub fn name(self) -> &'static str {
        match self {
            Arch::SM_80 => "sm_80",
            _ => "sm_90a",
        }
    }

    /// The lowest PTX version that has the instructions we write, so that older drivers load it. For `sm_80` LLVM would
    /// choose 7.0, but the policies of cached reads are written in 7.4 (CUDA 11.4); `sm_90a` starts at 8.0.
    pub fn processor(self) -> Processor {
        let features = if self.capability < 90 { "+ptx74" } else { "" };
        Processor { triple: "nvptx64-nvidia-cuda", cpu: self.name(), features }
    }
}

/// The text of each stage, for `FUSE_DUMP`.
#[derive(Default, Debug)]
pub struct Stages {
    pub mlir: String,
    pub llvm: String,
}

/// One PTX module for each architecture, with an entry for each body.
pub fn emit(
    session: &Session,
    bodies: &[(String, &Body)],
    archs: &[Arch],
    stages: &mut Stages,
) -> Result<Vec<(Arch, String)>, String> {
    let mut module = session.module(Machine::Nvptx);
    gpu::declare(&mut module, bodies.iter().any(|(_, body)| body.reports()));
    for (entry, body) in bodies {
        body.plan.emit(&mut module, entry);
    }
    let built = module.finish()?;
    stages.mlir = built.text();
    let lowered = built.lower()?;
    let Some(first) = archs.first() else { return Ok(vec![]) };
    let llvm = LlvmModule::translate(&lowered, first.processor())?;
    stages.llvm = llvm.text();
    archs.iter().map(|&arch| Ok((arch, llvm.assemble(arch.processor())?))).collect()
}

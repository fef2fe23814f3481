//! Takes specializations, gives PTX for each architecture.

use std::sync::LazyLock;

use xxhash_rust::xxh3::Xxh3Default;

use super::StageTexts;
use super::llvm::{self, LlvmModule, StrengthReduction, TargetCpu};
use crate::gpu::specialization::Specialization;

use crate::gpu::emit::pdl;
use crate::mlir::session::BuiltModule;
use crate::mlir::{Machine, Session};

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

    /// Whether it has programmatic dependent launch (PDL).
    pub fn has_pdl(self) -> bool {
        self.capability >= pdl::CAPABILITY
    }

    /// LLVM picks the lowest PTX version that has the target.
    pub fn target_cpu(self) -> TargetCpu {
        TargetCpu { triple: "nvptx64-nvidia-cuda", cpu: self.name(), features: "" }
    }
}

/// Parts of inline PTX that are newer than their target, with the PTX version that introduced them. LLVM does not look
/// into inline PTX; for instructions of its own it raises the version itself.
const PTX_VERSIONS: &[(&str, PtxVersion)] = &[
    ("createpolicy.", PtxVersion(7, 4)),
    (".L2::cache_hint", PtxVersion(7, 4)),
    (".L1::", PtxVersion(7, 4)),
    // A predicate for what is filled with zeros.
    ("cp.async.c", PtxVersion(7, 5)),
    ("st.async.", PtxVersion(8, 1)),
    (".e4m3x2", PtxVersion(7, 8)),
    (".e5m2x2", PtxVersion(7, 8)),
    ("add.noftz.bf16", PtxVersion(7, 8)),
    (".global.add.v", PtxVersion(8, 1)),
    (".global.add.noftz.v", PtxVersion(8, 1)),
    (".global.add.noftz.bf16x2", PtxVersion(7, 8)),
];

/// `.version 7.4`
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PtxVersion(u32, u32);

/// The module with the lowest PTX version that has all its instructions, so that older drivers load it.
fn versioned(ptx: String) -> String {
    let needed =
        PTX_VERSIONS.iter().filter(|(part, _)| ptx.contains(part)).map(|&(_, version)| version).max();
    let declared = ptx.lines().find_map(|line| {
        let (major, minor) = line.strip_prefix(".version ")?.split_once('.')?;
        Some(PtxVersion(major.parse().ok()?, minor.parse().ok()?))
    });
    match (declared, needed) {
        (Some(declared), Some(needed)) if declared < needed => {
            let [old, new] =
                [declared, needed].map(|PtxVersion(major, minor)| format!(".version {major}.{minor}\n"));
            ptx.replacen(&old, &new, 1)
        }
        _ => ptx,
    }
}

/// The module without the PDL instructions, where the architecture has none: a kernel is then launched when the one
/// before it has ended.
fn without_pdl(ptx: String, arch: Arch) -> String {
    if arch.has_pdl() {
        return ptx;
    }
    let others = |line: &&str| !line.trim_start().starts_with(pdl::INSTRUCTION_PREFIX);
    ptx.split_inclusive('\n').filter(others).collect()
}

/// The module without negations that ptxas (12.9 to 13.3) gets wrong:
///
/// - It computes `neg.s16` and `abs.s16` in 32 bits, and a comparison with the result then finds 32768 where it is -32768. A
///   product wraps.
/// - It joins two maxima or two minima of `s32` to one instruction of three operands, and loses a `neg.s32` of the second one. It keeps
///   the sum of the complement and 1.
fn with_safe_negations(ptx: String) -> String {
    let has_extrema = ["max.s32", "min.s32"].iter().any(|name| ptx.contains(name));
    let is_unsafe = |name: &str| name.ends_with(".s16") || has_extrema;
    if !["neg.s16", "abs.s16", "neg.s32"].iter().any(|name| is_unsafe(name) && ptx.contains(name)) {
        return ptx;
    }
    let safe = |line: &str| {
        let statement = line.trim().trim_end_matches(';');
        let (name, operands) = statement.split_once(char::is_whitespace)?;
        let (to, from) = operands.split_once(", ")?;
        let to = to.trim_start();
        match name {
            "neg.s16" => Some(format!("\tmul.lo.s16 \t{to}, {from}, -1;\n")),
            "abs.s16" if to != from => {
                Some(format!("\tmul.lo.s16 \t{to}, {from}, -1;\n\tmax.s16 \t{to}, {to}, {from};\n"))
            }
            "neg.s32" if has_extrema => {
                Some(format!("\tnot.b32 \t{to}, {from};\n\tadd.s32 \t{to}, {to}, 1;\n"))
            }
            _ => None,
        }
    };
    ptx.split_inclusive('\n').map(|line| safe(line).unwrap_or_else(|| line.to_string())).collect()
}

/// One PTX module for each architecture, with an entry for each specialization. `stages`, for a dump, gets the texts of the stages before.
pub fn emit(
    session: &Session,
    specializations: &[(String, &Specialization)],
    archs: &[Arch],
    mut stages: Option<&mut StageTexts>,
) -> Result<Vec<(Arch, String)>, String> {
    let mut texts = vec![];
    for archs in groups(specializations, archs) {
        let built = build(session, specializations, archs)?;
        texts.extend(built.translate(stages.as_deref_mut())?.print(stages.as_deref_mut())?);
    }
    Ok(texts)
}

/// Architectures for which the same operations are emitted.
pub fn groups<'a>(
    specializations: &[(String, &Specialization)],
    archs: &'a [Arch],
) -> impl Iterator<Item = &'a [Arch]> {
    let own_code =
        specializations.iter().any(|(_, specialization)| specialization.plan.differs_by_capability());
    archs.chunks(if own_code { 1 } else { archs.len().max(1) })
}

/// A module of MLIR, for architectures of one group.
pub struct PtxModule<'a> {
    mlir: BuiltModule<'a>,
    archs: &'a [Arch],
    strength_reduction: StrengthReduction,
}

/// The same as LLVM takes it.
pub struct TranslatedModule<'a> {
    llvm: LlvmModule,
    archs: &'a [Arch],
}

/// A hash of Rust sources. Neither how they are formatted counts nor what they say of themselves.
pub fn source_hash(sources: &[&str]) -> u64 {
    let mut hash = Xxh3Default::new();
    for line in
        sources.iter().flat_map(|source| source.lines()).filter(|line| !line.trim_start().starts_with("//"))
    {
        line.split_whitespace().for_each(|word| hash.update(word.as_bytes()));
    }
    hash.digest()
}

/// The hash of the sources that tell MLIR and LLVM what to do.
static SOURCES: LazyLock<u64> = LazyLock::new(|| {
    source_hash(&[include_str!("../mlir/session.rs"), include_str!("llvm.rs"), include_str!("nvptx.rs")])
});

/// Builds and verifies a module with an entry for each specialization.
pub fn build<'a>(
    session: &'a Session,
    specializations: &[(String, &'a Specialization)],
    archs: &'a [Arch],
) -> Result<PtxModule<'a>, String> {
    let mut module = session.module(Machine::Nvptx);
    module.capability = archs.iter().map(|arch| arch.capability).min().unwrap_or_default();
    crate::gpu::emit::declare(
        &mut module,
        specializations.iter().map(|(_, specialization)| &specialization.plan),
    );
    for (entry, specialization) in specializations {
        specialization.plan.emit(&mut module, entry);
    }
    // General specializations are launched where no other one can be.
    let general = specializations.iter().all(|(_, specialization)| specialization.guards.is_empty());
    let strength_reduction = if general { StrengthReduction::IfSmall } else { StrengthReduction::Always };
    Ok(PtxModule { mlir: module.finish()?, archs, strength_reduction })
}

impl<'a> PtxModule<'a> {
    /// A hash of all that the PTX follows from: the module, the architectures, the linked MLIR and LLVM, and the sources that tell them
    /// what to do.
    pub fn hash(&self) -> u64 {
        let request = format!("{:?} {:?} {}", self.archs, self.strength_reduction, llvm::version());
        let mut hash = Xxh3Default::new();
        for part in [&SOURCES.to_le_bytes(), request.as_bytes(), &self.mlir.bytecode()] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.digest()
    }

    /// Lowers the module to LLVM IR.
    pub fn translate(self, stages: Option<&mut StageTexts>) -> Result<TranslatedModule<'a>, String> {
        if let Some(stages) = stages {
            stages.mlir = self.mlir.text();
        }
        let lowered = self.mlir.lower()?;
        Ok(TranslatedModule {
            llvm: LlvmModule::translate(&lowered, self.strength_reduction)?,
            archs: self.archs,
        })
    }
}

impl TranslatedModule<'_> {
    /// Optimizes the module and prints PTX of each architecture.
    pub fn print(self, stages: Option<&mut StageTexts>) -> Result<Vec<(Arch, String)>, String> {
        let Some(first) = self.archs.first() else { return Ok(vec![]) };
        self.llvm.optimize(first.target_cpu())?;
        if let Some(stages) = stages {
            stages.llvm = self.llvm.text();
        }
        let print = |&arch: &Arch| {
            let ptx = self.llvm.assemble(arch.target_cpu())?;
            Ok((arch, with_safe_negations(versioned(without_pdl(ptx, arch)))))
        };
        self.archs.iter().map(print).collect()
    }
}

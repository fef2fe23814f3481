//! Host assembly, one text for each CPU level, fit for `core::arch::global_asm!`.

use super::StageTexts;
use super::llvm::{LlvmModule, StrengthReduction, TargetCpu};
use crate::cpu::emit::CpuPlan;
use crate::mlir::{Machine, Session, Vectors};

/// The instruction set that host code needs of the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CpuLevel {
    Baseline,
    V3,
    V4,
}

/// The CPU family that kernels are built for besides GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    X86_64,
    AArch64,
}

impl Family {
    pub fn levels(self) -> &'static [CpuLevel] {
        match self {
            Family::X86_64 => &[CpuLevel::Baseline, CpuLevel::V3, CpuLevel::V4],
            Family::AArch64 => &[CpuLevel::Baseline],
        }
    }

    fn machine(self, level: CpuLevel, plan: &CpuPlan) -> Machine {
        Machine::Host(match (self, level) {
            (Family::X86_64, CpuLevel::Baseline) => Vectors::Baseline,
            // Levels with the same code share a module.
            (Family::X86_64, CpuLevel::V4) if plan.differs_by_registers() => Vectors::Wide,
            (Family::X86_64, CpuLevel::V3 | CpuLevel::V4) | (Family::AArch64, _) => Vectors::Fused,
        })
    }

    fn target_cpu(self, level: CpuLevel) -> TargetCpu {
        let (triple, cpu) = match (self, level) {
            (Family::X86_64, CpuLevel::Baseline) => ("x86_64-unknown-linux-gnu", "x86-64"),
            (Family::X86_64, CpuLevel::V3) => ("x86_64-unknown-linux-gnu", "x86-64-v3"),
            (Family::X86_64, CpuLevel::V4) => ("x86_64-unknown-linux-gnu", "x86-64-v4"),
            (Family::AArch64, _) => ("aarch64-unknown-linux-gnu", "generic"),
        };
        TargetCpu { triple, cpu, features: "" }
    }
}

impl CpuLevel {
    /// The highest level whose code this machine runs, by the features that the runtime asks for.
    #[cfg(target_arch = "x86_64")]
    pub fn of_this_machine() -> CpuLevel {
        macro_rules! has {
            ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
        }
        if !has!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "movbe" "popcnt" "sse4.2") {
            CpuLevel::Baseline
        } else if !has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl") {
            CpuLevel::V3
        } else {
            CpuLevel::V4
        }
    }

    /// Other families have one level.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn of_this_machine() -> CpuLevel {
        CpuLevel::Baseline
    }

    pub fn name(self) -> &'static str {
        match self {
            CpuLevel::Baseline => "baseline",
            CpuLevel::V3 => "v3",
            CpuLevel::V4 => "v4",
        }
    }
}

/// Stands for the level in names while several levels share one module.
const LEVEL: &str = "_AT_LEVEL";

/// The stages of a module, and the lowest level that it is for.
pub type StagesOf = (CpuLevel, StageTexts);

/// What host assembly is for: CPUs of one family, at some of its levels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostTarget {
    pub family: Family,
    /// From the lowest.
    pub levels: Vec<CpuLevel>,
}

/// Assembly for every level of `family`.
pub fn emit(
    session: &Session,
    plan: &CpuPlan,
    entry: &str,
    family: Family,
) -> Result<Vec<(CpuLevel, String)>, String> {
    HostTarget::every_level(family).emit(session, plan, entry, None)
}

impl HostTarget {
    pub fn every_level(family: Family) -> HostTarget {
        HostTarget { family, levels: family.levels().to_vec() }
    }

    /// The target in parts, each of levels that share a module.
    pub fn modules(&self, plan: &CpuPlan) -> Vec<HostTarget> {
        let machine = |level: &CpuLevel| self.family.machine(*level, plan);
        let parts = self.levels.chunk_by(|one, next| machine(one) == machine(next));
        parts.map(|levels| HostTarget { family: self.family, levels: levels.to_vec() }).collect()
    }

    /// Assembly for each level; its entry is `entry` followed by `_` and the level's name. `stages` collects the stages of each
    /// module.
    pub fn emit(
        &self,
        session: &Session,
        plan: &CpuPlan,
        entry: &str,
        mut stages: Option<&mut Vec<StagesOf>>,
    ) -> Result<Vec<(CpuLevel, String)>, String> {
        let mut texts = vec![];
        for HostTarget { family, levels } in self.modules(plan) {
            let Some(&lowest) = levels.first() else { continue };
            let mut module = session.module(family.machine(lowest, plan));
            plan.emit(&mut module, &format!("{entry}{LEVEL}"));
            let module = module.finish()?;
            let mlir = stages.is_some().then(|| module.text());
            let llvm = LlvmModule::translate(&module.lower()?, StrengthReduction::Never)?;
            llvm.optimize(family.target_cpu(lowest))?;
            if let (Some(stages), Some(mlir)) = (&mut stages, mlir) {
                stages.push((lowest, StageTexts { mlir, llvm: llvm.text() }));
            }
            for level in levels {
                let text = llvm.assemble(family.target_cpu(level))?;
                let name = format!("{entry}_{}", level.name());
                texts.push((level, embeddable(&text, &name, &format!("{entry}{LEVEL}"))?));
            }
        }
        Ok(texts)
    }
}

/// LLVM's text with the entry renamed, local labels made unique to the kernel, and everything in a section of its own
/// that the linker can drop.
fn embeddable(text: &str, name: &str, placeholder: &str) -> Result<String, String> {
    let section = format!("\t.section\t.text.{name},\"ax\",@progbits\n");
    let mut out = format!("\t.hidden\t{name}\n");
    for line in text.lines() {
        let directive = line.trim_start();
        if directive == ".text" {
            out += &section;
            continue;
        }
        let dropped = [".file", ".ident", ".addrsig", ".section\t\".note.GNU-stack\""];
        if dropped.iter().any(|start| directive.starts_with(start)) {
            continue;
        }
        // Comments carry nothing but length.
        let line = line.split_once('#').map_or(line, |(code, _)| code).trim_end();
        if line.is_empty() {
            continue;
        }
        let line = line.replace(placeholder, name);
        out += &rename_labels(&line, name);
        out.push('\n');
    }
    out += "\t.text\n";
    match foreign_symbol(&out, name) {
        Some(symbol) => Err(format!("host code calls `{symbol}`, which a kernel does not have")),
        None => Ok(out),
    }
}

/// `.LBB0_1` becomes `.L<name>_BB0_1`.
fn rename_labels(line: &str, name: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(position) = rest.find(".L") {
        let label = rest[position + 2..].starts_with(|c: char| c.is_ascii_alphabetic());
        let starts = !rest[..position].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        out += &rest[..position + 2];
        if label && starts {
            out += name;
            out.push('_');
        }
        rest = &rest[position + 2..];
    }
    out + rest
}

/// A function called that is neither this kernel's own nor one of those that every program has.
fn foreign_symbol(text: &str, name: &str) -> Option<String> {
    const KNOWN: [&str; 4] = ["memcpy", "memset", "memmove", "bcmp"];
    text.lines()
        .filter_map(|line| line.trim_start().split_once(['\t', ' ']))
        .filter(|(op, _)| matches!(*op, "callq" | "call" | "jmp" | "bl"))
        .map(|(_, target)| target.trim().trim_end_matches("@PLT"))
        .find(|target| {
            let symbol = target.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            symbol && !target.starts_with(name) && !KNOWN.contains(target)
        })
        .map(str::to_string)
}

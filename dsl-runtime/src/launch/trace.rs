//! [`Trace`]: which code a launch takes, and why not a faster one.

use std::fmt;

use super::environment::tracing;
use crate::error::{format_bytes, format_label};
use crate::kernel::{Access, Param, Specialization};

/// What a launch runs. Prints as one line, the one of `FUSE_TRACE=1`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Trace {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The variant's label.
    pub variant: &'static str,
    /// `cpu` or `cuda:0`.
    pub device: String,
    /// What was loaded: `cubin for sm_90a`, `PTX for sm_80`; on the CPU the level, `x86-64-v3`.
    pub code: String,
    /// The number of programs along each axis.
    pub grid: [u32; 3],
    /// How a GPU runs them.
    pub specialization: Option<SpecializationTrace>,
}

/// The specialization that a GPU runs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SpecializationTrace {
    /// The entry point's name.
    pub entry: &'static str,
    /// The CUDA grid.
    pub blocks: [u32; 3],
    /// Blocks of a cluster, which runs one program; 1 where there are none.
    pub cluster: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The entries with more guards, and the first that fails for each.
    pub passed_over: Vec<(&'static str, String)>,
    /// The accesses of tiles of which an instruction moves fewer than 16 bytes.
    pub narrow: Vec<NarrowAccess>,
    /// The dots that could not use `wgmma`, by line, and why.
    pub refused_dots: Vec<(u32, &'static str)>,
}

/// An access of which an instruction of a thread moves fewer bytes than it could.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NarrowAccess {
    /// The slice or view.
    pub param: &'static str,
    /// The line of the program, in its file.
    pub line: u32,
    /// Bytes that one instruction moves.
    pub bytes: u8,
    /// The first entry that moves more.
    pub wider: Option<&'static str>,
}

impl fmt::Display for NarrowAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NarrowAccess { param, line, bytes, wider } = self;
        let unit = if *bytes == 1 { "byte" } else { "bytes" };
        write!(f, "`{param}` on line {line} by {bytes} {unit}")?;
        match wider {
            Some(entry) => write!(f, ", by more in {entry}"),
            None => write!(f, " in every body"),
        }
    }
}

fn extents_text([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trace { kernel, variant, device, code, grid, specialization } = self;
        write!(f, "{kernel}{} on {device}, {code}: {} programs", format_label(variant), extents_text(*grid))?;
        let Some(specialization) = specialization else { return Ok(()) };
        let SpecializationTrace { entry, blocks, cluster, threads, shared_bytes, .. } = specialization;
        let shared = format_bytes((*shared_bytes).into());
        let clusters = if *cluster > 1 { format!(", {cluster} to a cluster") } else { String::new() };
        write!(
            f,
            ", {entry} in {} blocks of {threads} threads{clusters}, {shared} shared",
            extents_text(*blocks)
        )?;
        for (entry, reason) in &specialization.passed_over {
            write!(f, "; not {entry}: {reason}")?;
        }
        for access in &specialization.narrow {
            write!(f, "; {access}")?;
        }
        for (line, reason) in &specialization.refused_dots {
            write!(f, "; the dot on line {line} without wgmma: {reason}")?;
        }
        Ok(())
    }
}

/// The accesses of a specialization of which an instruction moves less than a vector, each with the first
/// specialization that moves more.
pub(super) fn narrow<'b>(
    params: &[Param],
    specializations: impl Iterator<Item = &'b Specialization> + Clone,
    taken: &Specialization,
) -> Vec<NarrowAccess> {
    let is_narrow = |access: &&Access| (1..VECTOR_BYTES).contains(&access.bytes);
    let of = |access: &Access| {
        let is_wider = |other: &Access| {
            let same = (other.line, other.param) == (access.line, access.param);
            same && (other.bytes == 0 || other.bytes > access.bytes)
        };
        let wider =
            specializations.clone().find(|specialization| specialization.accesses.iter().any(is_wider));
        NarrowAccess {
            param: params[usize::from(access.param)].name,
            line: access.line,
            bytes: access.bytes,
            wider: wider.map(|specialization| specialization.entry),
        }
    };
    taken.accesses.iter().filter(is_narrow).map(of).collect()
}

/// The most bytes that one instruction of a thread moves.
const VECTOR_BYTES: u8 = 16;

/// Prints the line of a launch.
pub(super) fn print(trace: &Trace) {
    eprintln!("fuse: {trace}");
}

/// Prints what a function that launches several kernels chose, as a line of `FUSE_TRACE=1`: `fuse: norm_linear: Fused, 16 rows`.
pub fn trace_choice(operation: &str, choice: fmt::Arguments<'_>) {
    if tracing() {
        eprintln!("fuse: {operation}: {choice}");
    }
}

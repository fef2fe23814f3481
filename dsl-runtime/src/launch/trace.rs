//! [`Trace`]: which code a launch takes, and why not a faster one.

use std::fmt;

use crate::error::{amount, bracketed};

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
    pub body: Option<BodyTrace>,
}

/// The body that a GPU runs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BodyTrace {
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
    /// The entries that ask for more, and the first thing that each does not get.
    pub passed_over: Vec<(&'static str, String)>,
}

fn product([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trace { kernel, variant, device, code, grid, body } = self;
        write!(f, "{kernel}{} on {device}, {code}: {} programs", bracketed(variant), product(*grid))?;
        let Some(BodyTrace { entry, blocks, cluster, threads, shared_bytes, passed_over }) = body else {
            return Ok(());
        };
        let shared = amount((*shared_bytes).into());
        let clusters = if *cluster > 1 { format!(", {cluster} to a cluster") } else { String::new() };
        write!(
            f,
            ", {entry} in {} blocks of {threads} threads{clusters}, {shared} shared",
            product(*blocks)
        )?;
        for (entry, reason) in passed_over {
            write!(f, "; not {entry}: {reason}")?;
        }
        Ok(())
    }
}

/// Prints the line of a launch.
pub(super) fn print(trace: &Trace) {
    eprintln!("fuse: {trace}");
}

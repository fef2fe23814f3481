//! Why a kernel has no specialization for some axes.

use std::fmt;

use crate::gpu::emit::SmemOverflow;

/// The most tensor maps that a launch passes.
pub const MAX_TENSOR_MAPS: usize = 8;

/// Why a specialization was not made.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// No dot is one that warpgroups do on blocks of views, or on tiles that a loop copies.
    NoWarpGroupDot,
    /// With producer warps, and shared memory for the tiles of the next program, half as many programs fit into a multiprocessor.
    RoomForProducers,
    /// Threads would wait for what they load beside the tiles that TMA loads.
    LoadsBesideTma,
    /// It takes more tensor maps than a launch passes.
    TensorMaps(usize),
    /// Its layouts need a power of two of warps.
    WarpCount(u32),
    /// Operations that take more shared memory than a block has.
    SharedMemory(SmemOverflow),
    /// A mistake of the compiler: the function is not valid after a pass.
    Invalid(InvalidBehind),
}

/// The pass behind which a function is not valid, and why.
#[derive(Clone, Debug)]
pub struct InvalidBehind {
    pub pass: &'static str,
    pub what: String,
}

impl From<InvalidBehind> for Refusal {
    fn from(invalid: InvalidBehind) -> Refusal {
        Refusal::Invalid(invalid)
    }
}

impl From<SmemOverflow> for Refusal {
    fn from(overflow: SmemOverflow) -> Refusal {
        Refusal::SharedMemory(overflow)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoWarpGroupDot => {
                f.write_str("no dot is of blocks of views or of copied tiles that warpgroups multiply")
            }
            Refusal::RoomForProducers => f.write_str(
                "half as many programs fit into a multiprocessor beside producer warps and their tiles",
            ),
            Refusal::LoadsBesideTma => {
                f.write_str("threads would wait in each iteration for what they load beside blocks of views")
            }
            Refusal::TensorMaps(count) => {
                write!(f, "it needs {count} tensor maps, and a launch passes {MAX_TENSOR_MAPS}")
            }
            Refusal::WarpCount(warps) => write!(f, "its layouts need a power of two of warps, not {warps}"),
            Refusal::SharedMemory(SmemOverflow(requests)) => {
                let bytes = requests.iter().map(|request| request.bytes).max().unwrap_or(0);
                write!(f, "it needs {bytes} bytes of shared memory")
            }
            Refusal::Invalid(InvalidBehind { pass, what }) => {
                write!(f, "it is not valid after {pass}: {what}")
            }
        }
    }
}

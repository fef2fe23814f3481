//! Why warpgroups cannot do a dot.

use std::fmt;

use tile_ir::ops::DotOperand;
use tile_ir::support::dtype::DType;

use crate::gpu::layout::warpgroup::{MAX_WGMMA_N, SWIZZLE_ROW_BYTES, WARPGROUP_WARPS, WGMMA_M};
use crate::gpu::opt::tma_box::{MAX_ROWS, ROW_MULTIPLE, TMA_ALIGNMENT};

/// Why a dot is none that warpgroups do on blocks that TMA loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DotRefusal {
    /// The warps of a program are no whole warpgroups.
    Warps(u32),
    /// It is in a branch, in a `while`, or in a loop inside another one.
    Nested,
    /// How often its loop runs is no scalar arithmetic.
    TripCount,
    /// It is a dot of tiles of so many axes.
    Rank(usize),
    /// An operand is no block of a view.
    NotAViewBlock(DotOperand),
    /// TMA has no box for the block of an operand.
    Box(DotOperand),
    /// Scalar arithmetic does not say where the block of an operand begins.
    Place(DotOperand),
    /// The block of an operand is not known to begin at a multiple of 16 bytes.
    Alignment(DotOperand),
    /// Its block is loaded where others store, or by `.volatile()`.
    Changing(DotOperand),
    /// There is no instruction for these elements with the operands in these orders.
    Instruction(DType),
    Rows(u32),
    Columns(u32),
}

impl fmt::Display for DotRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |operand| if operand == DotOperand::A { "A" } else { "B" };
        match *self {
            DotRefusal::Warps(warps) => {
                write!(f, "`num_warps` is {warps}, and a warpgroup has {WARPGROUP_WARPS} warps")
            }
            DotRefusal::Nested => f.write_str("it is in a branch, in a `while` or in a loop inside a loop"),
            DotRefusal::TripCount => {
                f.write_str("how often its loop runs does not follow from scalars alone")
            }
            DotRefusal::Rank(rank) => write!(f, "its tiles have {rank} axes"),
            DotRefusal::NotAViewBlock(operand) => {
                write!(f, "operand {} is not a block of a view or the transpose of one", name(operand))
            }
            DotRefusal::Box(operand) => write!(
                f,
                "the block of operand {} has not {ROW_MULTIPLE} to {MAX_ROWS} rows, a multiple of \
                 {ROW_MULTIPLE}, of a multiple of {SWIZZLE_ROW_BYTES} bytes",
                name(operand)
            ),
            DotRefusal::Place(operand) => write!(
                f,
                "where the block of operand {} begins does not follow from scalars and the loop's variable alone",
                name(operand)
            ),
            DotRefusal::Alignment(operand) => write!(
                f,
                "the block of operand {} is not known to begin at a multiple of {TMA_ALIGNMENT} bytes along its last axis",
                name(operand)
            ),
            DotRefusal::Changing(operand) => {
                write!(f, "the memory of operand {} may change while the kernel runs", name(operand))
            }
            DotRefusal::Instruction(dtype) => {
                write!(
                    f,
                    "there is no instruction for {dtype} with the operands in these orders and this precision"
                )
            }
            DotRefusal::Rows(rows) => write!(f, "it has {rows} rows, no multiple of {WGMMA_M}"),
            DotRefusal::Columns(columns) => write!(
                f,
                "its {columns} columns do not split into equal parts of at most {MAX_WGMMA_N} for the warpgroups"
            ),
        }
    }
}

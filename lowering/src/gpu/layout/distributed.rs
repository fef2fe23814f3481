//! Tile IR with a layout for every tile value.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Func, Value};
use tile_ir::ops::DotOperand;

use super::linear::Layout;
use super::smem_only::SmemOnlyTile;

/// A function whose every tile value has a layout.
#[derive(Debug)]
pub struct Distributed {
    pub func: Func,
    pub layouts: HashMap<Value, Layout>,
    /// Warps of a program.
    pub num_warps: u32,
    /// CTAs that these warps belong to: the upper bits of the warp index are the CTA.
    pub num_ctas: u32,
    /// The user's `num_stages`, where a loop has none of its own.
    pub num_stages: Option<u32>,
    /// Loads of tiles in loops with dots whose elements are all in a few bytes.
    pub sector_loads: HashSet<Value>,
    /// Tiles that are in shared memory alone, as operands of dots: loops copy them there.
    pub smem_only: HashMap<Value, SmemOnlyTile>,
    /// Operands that are written to shared memory before a loop: from the dot's result and the operand to the loop's
    /// induction variable.
    pub invariant_operands: HashMap<(Value, DotOperand), Value>,
}

impl AsRef<Func> for Distributed {
    fn as_ref(&self) -> &Func {
        &self.func
    }
}

//! Asynchronous operations that were begun and not waited for, or are about to begin.

use std::collections::{HashMap, VecDeque};

use tile_ir::ir::Value;

use super::CopyInstruction;
use crate::gpu::emit::dot::wgmma::IssuedWgmma;

/// Dots and copies that run while other operations do.
#[derive(Default)]
pub(in crate::gpu::emit) struct AsyncOperations {
    /// Dots that were issued and not waited for, by their results.
    pub dots: HashMap<Value, IssuedWgmma>,
    /// Whether the iterations of the loop around overlap.
    pub iterations_overlap: bool,
    /// The copies of the group that is being emitted.
    pub open_group: VecDeque<CopyInstruction>,
    /// Whether a dot will issue that group.
    pub prepares_copies: bool,
    /// Copies that are still to be issued by a dot.
    pub prepared_copies: HashMap<Value, VecDeque<CopyInstruction>>,
}

//! Tensor maps: the boxes of TMA copies in views.

use tile_ir::ir::ParamId;
use tile_ir::ir::launch_shape::LaunchShape;

/// A tensor map: the box of a TMA load or store in a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    pub memory: ParamId,
    /// The extents and strides along the axes of the box.
    pub shape: LaunchShape,
    pub block: Vec<u32>,
    /// Whether TMA rounds elements of `f32` to TF32, halves to even.
    pub tf32: bool,
    /// What a program loads by it, if the blocks of a cluster may load halves of each box for each other (multicast).
    pub multicast: Option<Multicast>,
}

/// Loads of a loop: along an axis of the box, so many elements and bytes in an iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    pub axis: u32,
    pub step: u32,
    pub bytes: u32,
}

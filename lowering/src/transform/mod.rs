//! Passes over tile IR that need no layout: they serve the GPU and the CPU alike.

pub mod check_overflow;
pub mod contract_floats;
pub mod defer_scale;
pub mod legalize_index;
pub mod read_unrotated;
pub mod rotate_rows;
pub mod single_iteration;
pub mod split_full_tiles;
pub mod strength_reduce;
pub mod transpose_operands;
pub mod unit_stride;
pub mod view_strides;

//! Passes over tile IR that need no layout: they serve the GPU and the CPU alike.
//!
//! - [`legalize_index`]: offsets and comparisons that cannot overflow; view tiles become accesses of elements.
//! - [`check_overflow`]: assertions of debug builds for integers that wrap.
//! - [`chain_divisions`]: quotients by products as quotients of quotients.
//! - [`strength_reduce`]: induction variables as multiples of the loop's variable.
//! - [`counted_loops`]: a `while` that counts up to a bound, as a `for`.
//! - [`contract_products`]: products that may be fused with a sum.
//! - [`contract_floats`]: on a GPU, `exp` to `exp2` and division to products.
//! - [`defer_scale`]: on a GPU, scales of scores after their maximum.
//! - [`split_full_tiles`]: selects under a branch, where iterations of full tiles do without them.
//! - [`single_iteration`]: loops of trip count 1 as straight-line code.
//! - [`transpose_operands`]: column-major dot operands.
//! - [`unit_stride`]: arguments that a specialization takes for 1.
//! - [`version_loops`]: loops under a branch on facts about what the kernel has loaded.
//! - [`view_strides`]: views whose last axis a specialization takes for contiguous.
//! - [`load_runs_once`]: elements that neighbors along an axis read, loaded once.
//! - [`rotate_rows`], [`read_unrotated`]: whole vectors of misaligned rows.

pub mod chain_divisions;
pub mod check_overflow;
pub mod contract_floats;
pub mod contract_products;
pub mod counted_loops;
pub mod defer_scale;
mod invariant;
pub mod legalize_index;
pub mod load_runs_once;
pub(crate) mod magnitude;
pub mod read_unrotated;
pub mod rotate_rows;
pub mod single_iteration;
pub mod split_full_tiles;
pub mod strength_reduce;
pub mod transpose_operands;
pub mod unit_stride;
pub mod version_loops;
pub mod view_strides;

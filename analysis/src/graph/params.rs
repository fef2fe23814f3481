//! [`Params`]: what an operation has beside its operands.

use crate::dtype::DType;

/// What else kinds of operations want to know. Each names the parameters that it reads in its formula.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Query heads of an attention; heads of a norm of heads.
    pub heads: Option<u64>,
    /// Key and value heads, as many as query heads if not given.
    pub kv_heads: Option<u64>,
    /// Whether queries see no later keys.
    pub causal: bool,
    /// Groups of channels.
    pub groups: Option<u64>,
    /// How many are chosen.
    pub k: Option<u64>,
    /// Extents of the parts of a split; of a reshape, those of its result.
    pub sizes: Vec<u64>,
    /// The type of what is made, where it does not follow.
    pub dtype: Option<DType>,
    /// Whether operand B is stored as `[n, k]`.
    pub transposed: bool,
    /// Whether a view is copied where it is not fused.
    pub materialize: bool,
    /// Whether a matmul of `f32` runs on tensor cores as `tf32`.
    pub tf32: bool,
}

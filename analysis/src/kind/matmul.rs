//! Matmul and attention.

use super::declaration::{Kind, Operands, Pattern};
use super::shapes;

/// The registers of a thread that the accumulators of the largest tiles take: 128 by 256 elements for 256 threads.
const MATMUL_ACCUMULATORS: u32 = 128;
/// Scores of 128 keys and 128 elements of a result, for each of 64 queries of 128 threads.
const ATTENTION_ACCUMULATORS: u32 = 128;

/// The matmuls.
pub(super) static KINDS: &[Kind] = &[
    Kind::new(
        "matmul",
        "a . b of [.., m, k] and [.., k, n]; transposed, dtype, tf32",
        Pattern::Matmul,
        shapes::matmul,
    )
    .also(&["linear"])
    .flops(|o| 2.0 * o.elements_out() * o.row_len(0) as f64)
    .live(10)
    .on_tensor_cores(MATMUL_ACCUMULATORS),
    Kind::new(
        "attention",
        "softmax(q . k^T / sqrt(dim)) . v; heads, kv_heads, causal",
        Pattern::Attention,
        shapes::attention,
    )
    .flops(attention_flops)
    .row(|o| o.row_len(0) / o.params.heads.unwrap_or(1).max(1))
    .live(20)
    .on_tensor_cores(ATTENTION_ACCUMULATORS),
];

/// Two matmuls over all pairs of queries and keys of a head; half of the pairs where it is causal and there are as many keys
/// as queries.
fn attention_flops(operands: &Operands<'_>) -> f64 {
    let extents = |index: usize| operands.inputs[index].1.shape.split_last_chunk::<2>();
    let (Some((batches, &[queries, width])), Some((_, &[keys, _]))) = (extents(0), extents(1)) else {
        return 0.0;
    };
    let pairs = if operands.params.causal {
        let diagonal = queries.min(keys) as f64;
        queries as f64 * keys as f64 - diagonal * (diagonal - 1.0) / 2.0
    } else {
        queries as f64 * keys as f64
    };
    4.0 * batches.iter().product::<u64>() as f64 * pairs * width as f64
}

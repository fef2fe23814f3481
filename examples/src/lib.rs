//! Fused kernels to use as they are, and to copy from: each file has a kernel, a safe function that checks shapes and
//! launches it, and the reference that its results are tested against.
//!
//! | module | operation |
//! | --- | --- |
//! | [`add_mul`], [`scale_relu`] | `(x + y) * z`; `max(x, 0) * scale + bias`, the bias a scalar or one for each column |
//! | [`linear_combination`], [`fusion_flags`] | `alpha * x + beta * y + gamma * z`; a bias and ReLU, each behind a flag at build time |
//! | [`matmul`], [`matmul_heuristic`], [`matmul_tiles`] | matmul of two matrices or batches, in any order, with a scale, a bias, an [`activation`] and a residual; its heuristic; its kernels |
//! | [`gemv`](mod@gemv) | products of one row, with a norm before and a gate behind them |
//! | [`norm_linear`](mod@norm_linear) | LayerNorm or RMSNorm and the linear layer behind it, in one kernel where rows are few |
//! | [`linear_norm`](mod@linear_norm) | a linear layer and the norm behind it, with an [`activation`], in one kernel where rows of the result are short |
//! | [`linear_rope`](mod@linear_rope) | queries, keys and values of tokens, rotated by their positions, in one kernel where they are few |
//! | [`feed_forward`] | norm, two linear layers, an activation or a gate between them, and the residual, in as few launches as pay |
//! | [`decoder_layer`] | a layer of a decoder: norms, attention with rotary embedding, a gated feed-forward |
//! | [`form`] | fused or separate operations |
//! | [`quantized_matmul`], [`quantized_tiles`] | the same of `i8` or `f8e4m3` with scales, to floats or back to `i8`; its kernels |
//! | [`attention`](mod@attention) | of any lengths and up to 256 elements, grouped heads, causal or in a window, with a cap, slopes, a bias, dropout |
//! | [`attention_projection`](mod@attention_projection) | attention and the linear layer behind it, in one kernel where rows of the result are short |
//! | [`attention_decode`] | of a few queries over many keys, split over programs |
//! | [`add_activation`], [`bias_activation`] | an [`activation`] of a sum, or of a matrix and a bias for each column |
//! | [`act_and_mul`] | gates: SiLU, GELU, GELU-tanh of one half of a row times the other; the gradient of SwiGLU |
//! | [`layer_norm`], [`rms_norm`] | norms of rows of any length; RMSNorm with a residual that is updated in place |
//! | [`add_layer_norm`], [`norm_activation`] | LayerNorm of a residual that is updated in place; LayerNorm or RMSNorm, an [`activation`] and a residual |
//! | [`layer_norm_gelu`], [`center`], [`l2_norm`], [`group_norm`] | LayerNorm and GELU; mean-centering; length 1; groups of channels |
//! | [`batch_norm`], [`batch_norm_kernels`] | BatchNorm in inference and in training, with a residual and ReLU; its kernels |
//! | [`layer_norm_backward`], [`rms_norm_backward`] | gradients of the input and the parameters, the same run after run |
//! | [`softmax`](mod@softmax), [`masked_softmax`] | probabilities or their logarithms, scaled, masked, of rows of any length |
//! | [`cross_entropy`] | the loss and its gradient, with an ignored class and label smoothing |
//! | [`dropout`], [`bias_dropout`] | bias, GELU, dropout and a residual, forward and backward, without a saved mask; the same without an activation |
//! | [`quantize`](mod@quantize) | rows or their norms to `i8` or `f8e4m3` with a scale each, and back onto a residual |
//! | [`rope`] | rotary embedding of heads; norm and rotation of queries and keys in a packed matrix |
//! | [`packed_qkv`](mod@packed_qkv) | norm and rotation of a part of each head in a packed matrix, with a row stride, and the write of keys and values to a cache |
//! | [`rotary_attention`](mod@rotary_attention) | attention of queries and keys that are not rotated in memory |
//! | [`recurrence`] | `h = a * h + b` along time, gated |
//! | [`gating`], [`embedding`] | the experts of a token; rows of a table |
//! | [`moe`], [`moe_kernels`], [`moe_reference`] | a mixture of experts in `i8`: tokens grouped by expert, gated and weighted, in five launches; its kernels; its reference |
//!
//! Every operation is a struct that names its inputs, has what it can do without as methods, and ends in
//! `launch(on, &mut out)`, where `on` is a device or a stream:
//!
//! ```
//! use dsl_runtime::prelude::*;
//! use fused_kernels::layer_norm::LayerNorm;
//!
//! let device = Device::best()?;
//! let x = device.upload(&[1.0f32, 2.0, 3.0, 6.0, 5.0, 4.0])?;
//! let (gamma, beta) = (device.upload(&[1.0f32; 3])?, device.zeros::<f32>(3)?);
//! let mut out = device.zeros::<f32>(6)?;
//! LayerNorm::new(&x, &gamma, &beta).eps(1e-5).launch(&device, &mut out)?;
//! let y = out.download()?;
//! assert!((y[0] + 1.2247).abs() < 1e-3 && (y[3] - 1.2247).abs() < 1e-3);
//! # Ok::<(), dsl_runtime::Error>(())
//! ```

#![warn(missing_docs)]

pub mod act_and_mul;
pub mod activation;
pub mod add_activation;
pub mod add_layer_norm;
pub mod add_mul;
pub mod attention;
pub mod attention_decode;
pub mod attention_projection;
pub mod attention_reference;
pub mod batch_norm;
pub mod batch_norm_kernels;
pub mod bias_activation;
pub mod bias_dropout;
pub mod center;
pub mod cross_entropy;
pub mod decoder_layer;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod form;
pub mod fusion_flags;
pub mod gating;
pub mod gemv;
pub mod group_norm;
pub mod l2_norm;
pub mod layer_norm;
pub mod layer_norm_backward;
pub mod layer_norm_gelu;
pub mod linear_combination;
pub mod linear_norm;
pub mod linear_rope;
pub mod masked_softmax;
pub mod matmul;
pub mod matmul_heuristic;
mod matmul_operands;
mod matmul_tf32;
pub mod matmul_tiles;
pub mod moe;
pub mod moe_kernels;
pub mod moe_reference;
pub mod norm_activation;
pub mod norm_linear;
pub mod packed_qkv;
pub mod partials;
pub mod quantize;
pub mod quantized_matmul;
pub mod quantized_tiles;
pub mod recurrence;
pub mod reference;
pub mod rms_norm;
pub mod rms_norm_backward;
pub mod rope;
pub mod rotary_attention;
pub mod scale_relu;
mod sequences;
mod shape;
pub mod softmax;
pub mod split_matmul;

use dsl_runtime::kernel::Kernel;

/// Every kernel of the library, for programs that write them to files.
pub static KERNELS: &[&Kernel] = &[
    &add_mul::add_mul::KERNEL,
    &add_activation::add_activation::KERNEL,
    &act_and_mul::act_and_mul::KERNEL,
    &act_and_mul::swiglu_backward::KERNEL,
    &bias_activation::bias_activation::KERNEL,
    &scale_relu::scale_relu::KERNEL,
    &scale_relu::scale_relu_columns::KERNEL,
    &fusion_flags::bias_relu::KERNEL,
    &linear_combination::linear_combination::KERNEL,
    &center::center::KERNEL,
    &center::center_long::KERNEL,
    &gemv::gemv::KERNEL,
    &gemv::norm_gemv::KERNEL,
    &group_norm::group_norm::KERNEL,
    &group_norm::group_norm_large::KERNEL,
    &l2_norm::l2_norm::KERNEL,
    &l2_norm::l2_norm_long::KERNEL,
    &layer_norm::layer_norm::KERNEL,
    &layer_norm::layer_norm_short::KERNEL,
    &layer_norm::layer_norm_cluster::KERNEL,
    &layer_norm::layer_norm_wide::KERNEL,
    &layer_norm::layer_norm_long::KERNEL,
    &layer_norm_gelu::layer_norm_gelu::KERNEL,
    &add_layer_norm::add_layer_norm::KERNEL,
    &add_layer_norm::add_layer_norm_long::KERNEL,
    &norm_activation::norm_activation::KERNEL,
    &norm_activation::norm_activation_long::KERNEL,
    &batch_norm_kernels::channel_statistics::KERNEL,
    &batch_norm_kernels::column_statistics::KERNEL,
    &batch_norm_kernels::join_statistics::KERNEL,
    &batch_norm_kernels::batch_norm::KERNEL,
    &batch_norm_kernels::batch_norm_columns::KERNEL,
    &layer_norm_backward::layer_norm_backward::KERNEL,
    &layer_norm_backward::layer_norm_backward_long::KERNEL,
    &rms_norm_backward::rms_norm_backward::KERNEL,
    &rms_norm_backward::rms_norm_backward_long::KERNEL,
    &partials::column_partials::KERNEL,
    &partials::sum_partials::KERNEL,
    &rms_norm::rms_norm::KERNEL,
    &rms_norm::rms_norm_short::KERNEL,
    &rms_norm::rms_norm_cluster::KERNEL,
    &rms_norm::rms_norm_long::KERNEL,
    &rms_norm::add_rms_norm::KERNEL,
    &rms_norm::add_rms_norm_long::KERNEL,
    &softmax::softmax::KERNEL,
    &softmax::softmax_short::KERNEL,
    &softmax::softmax_cluster::KERNEL,
    &softmax::softmax_long::KERNEL,
    &attention::attention::KERNEL,
    &attention_decode::attention_split::KERNEL,
    &attention_decode::combine_splits::KERNEL,
    &matmul_tiles::matmul::KERNEL,
    &matmul_tiles::matmul_f32::KERNEL,
    &matmul_tiles::matmul_small::KERNEL,
    &matmul_tiles::matmul_tf32::KERNEL,
    &matmul_tiles::matmul_tf32_split_k::KERNEL,
    &matmul_tiles::matmul_warp_split_k::KERNEL,
    &matmul_tiles::matmul_split_k::KERNEL,
    &matmul_tiles::reduce_split_k::KERNEL,
    &matmul_tiles::align_rows::KERNEL,
    &matmul_tiles::transpose_rows::KERNEL,
    &matmul_tiles::align_both::KERNEL,
    &quantized_tiles::quantized_matmul::KERNEL,
    &quantized_tiles::quantized_skinny::KERNEL,
    &quantized_tiles::quantized_warp_split_k::KERNEL,
    &quantized_tiles::quantized_split_k::KERNEL,
    &quantized_tiles::reduce_quantized_split_k::KERNEL,
    &linear_norm::linear_norm::KERNEL,
    &attention_projection::attention_projection::KERNEL,
    &linear_rope::interleave_rows::KERNEL,
    &linear_rope::linear_rope::KERNEL,
    &linear_rope::rotate_pairs::KERNEL,
    &norm_linear::fold_norm::KERNEL,
    &norm_linear::norm_linear::KERNEL,
    &masked_softmax::masked_softmax::KERNEL,
    &masked_softmax::masked_softmax_long::KERNEL,
    &cross_entropy::cross_entropy::KERNEL,
    &cross_entropy::cross_entropy_short::KERNEL,
    &cross_entropy::cross_entropy_row::KERNEL,
    &cross_entropy::cross_entropy_unaligned::KERNEL,
    &cross_entropy::cross_entropy_backward::KERNEL,
    &cross_entropy::cross_entropy_backward_in_place::KERNEL,
    &dropout::bias_gelu_dropout::KERNEL,
    &dropout::bias_gelu_dropout_backward::KERNEL,
    &bias_dropout::bias_dropout::KERNEL,
    &bias_dropout::bias_dropout_backward::KERNEL,
    &quantize::quantize::KERNEL,
    &quantize::quantize_short::KERNEL,
    &quantize::quantize_wide::KERNEL,
    &quantize::dequantize_add::KERNEL,
    &rope::rope::KERNEL,
    &rope::qk_norm_rope::KERNEL,
    &packed_qkv::packed_qkv::KERNEL,
    &rotary_attention::rotary_attention::KERNEL,
    &rotary_attention::rotate_heads::KERNEL,
    &recurrence::recurrence::KERNEL,
    &gating::topk_gating::KERNEL,
    &moe_kernels::group_by_expert::KERNEL,
    &moe_kernels::quantize_f32::KERNEL,
    &moe_kernels::experts_gate_up::KERNEL,
    &moe_kernels::experts_down::KERNEL,
    &moe_kernels::combine_choices::KERNEL,
    &embedding::embedding::KERNEL,
];

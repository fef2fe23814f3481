//! Fused kernels to use as they are, and to copy from: each operation has kernels, a safe function that checks shapes and launches them, and the
//! reference that its results are tested against. Kernels that several operations share, and large ones, have files of their own. Which kernel to
//! copy, and which line to change, is in the book's guide *Writing a kernel library*.
//!
//! | module | operation |
//! | --- | --- |
//! | [`add_mul`], [`scale_relu`] | `(x + y) * z`; `max(x, 0) * scale + bias`, the bias a scalar or one for each column |
//! | [`linear_combination`], [`fusion_flags`] | `alpha * x + beta * y + gamma * z`; a bias and ReLU, each behind a flag at build time |
//! | [`matmul`], [`matmul_heuristic`], [`matmul_tiles`] | matmul of two matrices or batches, in any order, with a scale, a bias, an [`activation`] and a residual; its heuristic; its kernels |
//! | [`norm_linear`](mod@norm_linear) | LayerNorm or RMSNorm and the linear layer behind it, in one kernel where rows are few |
//! | [`linear_norm`](mod@linear_norm) | a linear layer and the norm behind it, with an [`activation`], in one kernel where rows of the result are short |
//! | [`linear_rope`](mod@linear_rope) | queries, keys and values of tokens, rotated by their positions, in one kernel where they are few |
//! | [`feed_forward`] | norm, two linear layers, an activation or a gate between them, and the residual, in as few launches as pay |
//! | [`decoder_layer`] | a layer of a decoder: norms, attention with rotary embedding, a gated feed-forward |
//! | [`form`] | fused or separate operations |
//! | [`float`](mod@float) | the element types of the library, and traits that generic code is bound by |
//! | [`quantized_matmul`], [`quantized_tiles`] | the same of `i8` or `f8e4m3` with scales, to floats or back to `i8`; its kernels |
//! | [`attention_backward`], [`attention_backward_kernels`] | gradients of queries, keys and values, of any mask; their kernels |
//! | [`attention`](mod@attention), [`attention_kernels`] | of any lengths and up to 256 elements, grouped heads, causal or in a window, with a cap, slopes, a bias, dropout; its kernel |
//! | [`attention_projection`](mod@attention_projection) | attention and the linear layer behind it, in one kernel where rows of the result are short |
//! | [`attention_decode`] | of a few queries over many keys, split over programs |
//! | [`add_activation`], [`bias_activation`] | an [`activation`] of a sum, or of a matrix and a bias for each column |
//! | [`act_and_mul`] | gates: SiLU, GELU, GELU-tanh of one half of a row times the other; the gradient of SwiGLU |
//! | [`layer_norm`], [`rms_norm`], [`norm_kernels`] | norms of rows of any length; RMSNorm with a residual that is updated in place; their kernels |
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
//! | [`mainloop`], [`epilogues`], [`query_tile`], [`online_softmax`](mod@online_softmax), [`norms`] | functions for kernels of any crate: the loops of matmul and attention over tiles; epilogues of products; masks of attention; the softmax of blocks of scores; norms of rows |
//!
//! Kernels are compiled when the library is built, by the family: each is a feature, and all are on by default. With
//! `default-features = false` cargo builds the families that are named, and those that their functions call. [`activation`],
//! [`float`](mod@float), [`form`], [`reference`](mod@reference) and the functions for kernels of any crate belong to all.
//!
//! | feature | modules | turns on |
//! | --- | --- | --- |
//! | `elementwise` | [`act_and_mul`], [`add_activation`], [`add_mul`], [`bias_activation`], [`fusion_flags`], [`linear_combination`], [`scale_relu`] | |
//! | `norms` | [`add_layer_norm`], [`batch_norm`], [`batch_norm_kernels`], [`center`], [`group_norm`], [`l2_norm`], [`layer_norm`], [`layer_norm_backward`], [`layer_norm_gelu`], [`norm_activation`], [`norm_kernels`], [`partials`], [`rms_norm`], [`rms_norm_backward`] | |
//! | `softmax` | [`softmax`](mod@softmax), [`masked_softmax`], [`cross_entropy`] | |
//! | `dropout` | [`dropout`], [`bias_dropout`], [`partials`] | |
//! | `embedding`, `gating`, `recurrence` | [`embedding`], [`gating`], [`recurrence`] | |
//! | `rope` | [`rope`], [`packed_qkv`](mod@packed_qkv) | |
//! | `attention` | [`attention`](mod@attention), [`attention_backward`], [`attention_backward_kernels`], [`attention_decode`], [`attention_kernels`], [`attention_reference`] | `dropout` |
//! | `rotary-attention` | [`rotary_attention`](mod@rotary_attention) | `attention`, `rope` |
//! | `matmul` | [`matmul`], [`matmul_heuristic`], [`matmul_tiles`], [`split_matmul`] | `elementwise` |
//! | `layers` | [`attention_projection`](mod@attention_projection), [`decoder_layer`], [`feed_forward`], [`linear_norm`](mod@linear_norm), [`linear_rope`](mod@linear_rope), [`norm_linear`](mod@norm_linear) | `attention`, `elementwise`, `matmul`, `norms`, `rope` |
//! | `quantization` | [`quantize`](mod@quantize) | |
//! | `quantized-matmul` | [`quantized_matmul`], [`quantized_tiles`] | `matmul` |
//! | `moe` | [`moe`], [`moe_kernels`], [`moe_reference`] | `gating`, `quantization`, `quantized-matmul` |
//!
//! Every operation is a struct that names its inputs, has what it can do without as methods, and ends in
//! `launch(on, &mut out)`, where `on` is a device or a stream:
//!
#![cfg_attr(feature = "norms", doc = "```")]
#![cfg_attr(not(feature = "norms"), doc = "```ignore")]
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
//!
//! Norms, softmax, gates and dequantization take and write [`Rows`](dsl_runtime::Rows): memory in row-major order, or a view whose rows are any
//! distance apart, as the queries of a packed matrix are: `LayerNorm::new(qkv.view([tokens, 3 * width])?.slice(1, ..width), ..)`.
//!
//! A function `fn f<T: LibraryFloat>(..)` calls any operation with elements of type `T`: [`float::LibraryFloat`] is `f32`, `f16` or `bf16`.
//! Attention and quantization take [`float::HalfFloat`], which is `f16` or `bf16`.

#![warn(missing_docs)]
// What the families share, and what their documents point at, is in use and there when all are built.
#![cfg_attr(
    not(feature = "default"),
    allow(dead_code, unused_imports, unused_macros, rustdoc::broken_intra_doc_links)
)]

#[cfg(feature = "elementwise")]
#[path = "elementwise/act_and_mul.rs"]
pub mod act_and_mul;
#[path = "elementwise/activation.rs"]
pub mod activation;
#[cfg(feature = "elementwise")]
#[path = "elementwise/add_activation.rs"]
pub mod add_activation;
#[cfg(feature = "norms")]
#[path = "norms/add_layer_norm.rs"]
pub mod add_layer_norm;
#[cfg(feature = "elementwise")]
#[path = "elementwise/add_mul.rs"]
pub mod add_mul;
#[cfg(feature = "attention")]
#[path = "attention/attention.rs"]
pub mod attention;
#[cfg(feature = "attention")]
#[path = "attention/attention_backward.rs"]
pub mod attention_backward;
#[cfg(feature = "attention")]
#[path = "attention/attention_backward_kernels.rs"]
pub mod attention_backward_kernels;
#[cfg(feature = "attention")]
#[path = "attention/attention_decode.rs"]
pub mod attention_decode;
#[cfg(feature = "attention")]
#[path = "attention/attention_kernels.rs"]
pub mod attention_kernels;
#[cfg(feature = "layers")]
#[path = "attention/attention_projection.rs"]
pub mod attention_projection;
#[cfg(feature = "attention")]
#[path = "attention/attention_reference.rs"]
pub mod attention_reference;
#[cfg(feature = "norms")]
#[path = "norms/batch_norm.rs"]
pub mod batch_norm;
#[cfg(feature = "norms")]
#[path = "norms/batch_norm_kernels.rs"]
pub mod batch_norm_kernels;
#[cfg(feature = "elementwise")]
#[path = "elementwise/bias_activation.rs"]
pub mod bias_activation;
#[cfg(feature = "dropout")]
#[path = "dropout/bias_dropout.rs"]
pub mod bias_dropout;
#[cfg(feature = "norms")]
#[path = "norms/center.rs"]
pub mod center;
#[cfg(feature = "softmax")]
#[path = "softmax/cross_entropy.rs"]
pub mod cross_entropy;
#[cfg(feature = "layers")]
#[path = "layers/decoder_layer.rs"]
pub mod decoder_layer;
#[cfg(feature = "dropout")]
#[path = "dropout/dropout.rs"]
pub mod dropout;
#[cfg(feature = "embedding")]
pub mod embedding;
#[path = "matmul/epilogues.rs"]
pub mod epilogues;
#[cfg(feature = "layers")]
#[path = "layers/feed_forward.rs"]
pub mod feed_forward;
pub mod float;
pub mod form;
#[cfg(feature = "elementwise")]
#[path = "elementwise/fusion_flags.rs"]
pub mod fusion_flags;
#[cfg(feature = "gating")]
#[path = "moe/gating.rs"]
pub mod gating;
#[cfg(feature = "norms")]
#[path = "norms/group_norm.rs"]
pub mod group_norm;
#[cfg(feature = "norms")]
#[path = "norms/l2_norm.rs"]
pub mod l2_norm;
#[cfg(feature = "norms")]
#[path = "norms/layer_norm.rs"]
pub mod layer_norm;
#[cfg(feature = "norms")]
#[path = "norms/layer_norm_backward.rs"]
pub mod layer_norm_backward;
#[cfg(feature = "norms")]
#[path = "norms/layer_norm_gelu.rs"]
pub mod layer_norm_gelu;
#[cfg(feature = "elementwise")]
#[path = "elementwise/linear_combination.rs"]
pub mod linear_combination;
#[cfg(feature = "layers")]
#[path = "layers/linear_norm.rs"]
pub mod linear_norm;
#[cfg(feature = "layers")]
#[path = "layers/linear_rope.rs"]
pub mod linear_rope;
#[path = "matmul/mainloop.rs"]
pub mod mainloop;
#[cfg(feature = "softmax")]
#[path = "softmax/masked_softmax.rs"]
pub mod masked_softmax;
#[cfg(feature = "matmul")]
#[path = "matmul/matmul.rs"]
pub mod matmul;
#[cfg(feature = "matmul")]
#[path = "matmul/matmul_block.rs"]
mod matmul_block;
#[cfg(feature = "matmul")]
#[path = "matmul/matmul_dispatch.rs"]
mod matmul_dispatch;
#[cfg(feature = "matmul")]
#[path = "matmul/matmul_heuristic.rs"]
pub mod matmul_heuristic;
#[cfg(feature = "matmul")]
#[path = "matmul/matmul_operands.rs"]
mod matmul_operands;
#[cfg(feature = "matmul")]
#[path = "matmul/matmul_tf32.rs"]
mod matmul_tf32;
#[cfg(feature = "matmul")]
#[path = "matmul/matmul_tiles.rs"]
pub mod matmul_tiles;
#[cfg(feature = "moe")]
#[path = "moe/moe.rs"]
pub mod moe;
#[cfg(feature = "moe")]
#[path = "moe/moe_kernels.rs"]
pub mod moe_kernels;
#[cfg(feature = "moe")]
#[path = "moe/moe_reference.rs"]
pub mod moe_reference;
#[cfg(feature = "norms")]
#[path = "norms/norm_activation.rs"]
pub mod norm_activation;
#[cfg(feature = "norms")]
#[path = "norms/norm_kernels.rs"]
pub mod norm_kernels;
#[cfg(feature = "layers")]
#[path = "layers/norm_linear.rs"]
pub mod norm_linear;
#[path = "norms/norms.rs"]
pub mod norms;
#[path = "softmax/online_softmax.rs"]
pub mod online_softmax;
#[cfg(feature = "rope")]
#[path = "rope/packed_qkv.rs"]
pub mod packed_qkv;
#[cfg(any(feature = "dropout", feature = "norms"))]
pub mod partials;
#[cfg(feature = "quantization")]
#[path = "quantization/quantize.rs"]
pub mod quantize;
#[cfg(feature = "quantized-matmul")]
#[path = "quantization/quantized_matmul.rs"]
pub mod quantized_matmul;
#[cfg(feature = "quantized-matmul")]
#[path = "quantization/quantized_tiles.rs"]
pub mod quantized_tiles;
#[path = "attention/query_tile.rs"]
pub mod query_tile;
#[cfg(feature = "recurrence")]
pub mod recurrence;
pub mod reference;
#[cfg(feature = "norms")]
#[path = "norms/rms_norm.rs"]
pub mod rms_norm;
#[cfg(feature = "norms")]
#[path = "norms/rms_norm_backward.rs"]
pub mod rms_norm_backward;
#[cfg(feature = "rope")]
#[path = "rope/rope.rs"]
pub mod rope;
#[cfg(feature = "rotary-attention")]
#[path = "attention/rotary_attention.rs"]
pub mod rotary_attention;
#[cfg(feature = "elementwise")]
#[path = "elementwise/scale_relu.rs"]
pub mod scale_relu;
#[cfg(feature = "attention")]
mod sequences;
mod shape;
#[cfg(feature = "softmax")]
#[path = "softmax/softmax.rs"]
pub mod softmax;
#[cfg(feature = "matmul")]
#[path = "matmul/split_matmul.rs"]
pub mod split_matmul;

use dsl_runtime::kernel::Kernel;

/// The list of kernels, of the families that are built.
macro_rules! kernels {
    ($($families:meta => [$($module:ident::$kernel:ident,)+])+) => {
        /// Every kernel of the library, for programs that write them to files.
        pub static KERNELS: &[&Kernel] = &[$($(#[cfg($families)] &$module::$kernel::KERNEL,)+)+];
    };
}

kernels! {
    feature = "elementwise" => [
        add_mul::add_mul,
        add_activation::add_activation,
        act_and_mul::act_and_mul,
        act_and_mul::swiglu_backward,
        bias_activation::bias_activation,
        scale_relu::scale_relu,
        scale_relu::scale_relu_columns,
        fusion_flags::bias_relu,
        linear_combination::linear_combination,
    ]
    feature = "norms" => [
        center::center,
        center::center_long,
        group_norm::group_norm,
        group_norm::group_norm_large,
        l2_norm::l2_norm,
        l2_norm::l2_norm_long,
        norm_kernels::norm,
        norm_kernels::norm_short,
        norm_kernels::norm_cluster,
        norm_kernels::layer_norm_wide,
        norm_kernels::norm_long,
        norm_kernels::add_norm,
        norm_kernels::layer_norm_gelu,
        norm_activation::norm_activation,
        norm_activation::norm_activation_long,
        batch_norm_kernels::channel_statistics,
        batch_norm_kernels::column_statistics,
        batch_norm_kernels::join_statistics,
        batch_norm_kernels::batch_norm,
        batch_norm_kernels::batch_norm_columns,
        layer_norm_backward::layer_norm_backward,
        layer_norm_backward::layer_norm_backward_long,
        rms_norm_backward::rms_norm_backward,
        rms_norm_backward::rms_norm_backward_long,
    ]
    any(feature = "dropout", feature = "norms") => [
        partials::column_partials,
        partials::sum_partials,
    ]
    feature = "softmax" => [
        softmax::softmax,
        softmax::softmax_short,
        softmax::softmax_cluster,
        softmax::softmax_long,
        masked_softmax::masked_softmax,
        masked_softmax::masked_softmax_long,
        cross_entropy::cross_entropy,
        cross_entropy::cross_entropy_short,
        cross_entropy::cross_entropy_row,
        cross_entropy::cross_entropy_unaligned,
        cross_entropy::cross_entropy_backward,
        cross_entropy::cross_entropy_backward_in_place,
    ]
    feature = "dropout" => [
        dropout::bias_gelu_dropout,
        dropout::bias_gelu_dropout_backward,
        bias_dropout::bias_dropout,
        bias_dropout::bias_dropout_backward,
    ]
    feature = "attention" => [
        attention::attention,
        attention_backward_kernels::attention_delta,
        attention_backward_kernels::attention_dq,
        attention_backward_kernels::attention_dkdv,
        attention_decode::attention_split,
        attention_decode::combine_splits,
    ]
    feature = "rope" => [
        rope::rope,
        rope::qk_norm_rope,
        packed_qkv::packed_qkv,
    ]
    feature = "rotary-attention" => [
        rotary_attention::rotary_attention,
        rotary_attention::rotate_heads,
    ]
    feature = "matmul" => [
        matmul_tiles::gemv,
        matmul_tiles::matmul,
        matmul_tiles::matmul_f32,
        matmul_tiles::matmul_small,
        matmul_tiles::matmul_warp_split_k,
        matmul_tiles::matmul_split_k,
        matmul_tiles::reduce_split_k,
        matmul_tiles::align_rows,
        matmul_tiles::transpose_rows,
        matmul_tiles::align_both,
    ]
    feature = "layers" => [
        linear_norm::linear_norm,
        attention_projection::attention_projection,
        linear_rope::interleave_rows,
        linear_rope::linear_rope,
        linear_rope::rotate_pairs,
        norm_linear::fold_norm,
        norm_linear::norm_linear,
    ]
    feature = "quantization" => [
        quantize::quantize,
        quantize::quantize_short,
        quantize::quantize_wide,
        quantize::quantize_long,
        quantize::dequantize_add,
    ]
    feature = "quantized-matmul" => [
        quantized_tiles::quantized_matmul,
        quantized_tiles::quantized_skinny,
        quantized_tiles::quantized_warp_split_k,
        quantized_tiles::quantized_split_k,
        quantized_tiles::reduce_quantized_split_k,
    ]
    feature = "moe" => [
        moe_kernels::group_by_expert,
        moe_kernels::experts_gate_up,
        moe_kernels::experts_down,
        moe_kernels::combine_choices,
    ]
    feature = "gating" => [
        gating::topk_gating,
    ]
    feature = "embedding" => [
        embedding::embedding,
    ]
    feature = "recurrence" => [
        recurrence::recurrence,
    ]
}

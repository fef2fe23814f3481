//! Kernels that users of Triton write, ported line by line: slices, offsets and masks instead of views, sizes and strides as `i32`
//! arguments, one program for each tile. `bench/ports.py` holds the same kernels in Triton and measures both side by side.
//!
//! No kernel has a tuning attribute beyond what its Triton version has: extents of tiles, `num_warps`, and `num_stages` where a
//! tutorial gives it.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`elementwise`] | vector addition, seeded dropout, SwiGLU, GEGLU, AdamW |
//! | [`rows`] | softmax, layer norm and its gradient, RMSNorm, cross-entropy |
//! | [`channels`] | group norm of NHWC images, depthwise causal convolution, rotary embedding |
//! | [`products`] | matmul with strides and leaky ReLU, gathered rows times an expert's matrix, LoRA, gradient of a weight |
//! | [`persistent`] | split-K and stream-K matmul, persistent matmuls by pointers and by views, grouped matmul |
//! | [`indexed`] | block sparse rows times a dense matrix, both projections of a mixture of experts, compressed sparse rows times a dense matrix |
//! | [`reduced`] | nearest centroid, cross-entropy of a linear layer |
//! | [`convolution`] | 3 x 3 convolution of NHWC images as an implicit matmul |
//! | [`dequantized`] | matmuls with int4, int8 and ternary weights, and with fp8 weights that have a scale for each block |
//! | [`attention`] | FlashAttention-2 forward by pointers and by views, decoding of one query over a paged KV cache |
//! | [`backward`] | gradients of attention: keys and values, queries, by pointers and by views |
//! | [`decoding`] | multi-head latent attention of one query split along keys, decoding over an int8 KV cache |
//! | [`serving`] | attention of sequences of different lengths, attention of fp8, attention with a sink and a window |
//! | [`scan`] | Mamba's selective scan, the gated delta rule |
//! | [`recurrent`] | states and rows of the chunks of Mamba-2, gated linear attention in chunks |
//! | [`scatter`] | index_add, embedding and its gradient, embedding bag, segment sum, histogram |
//! | [`movement`] | transposing copy, copy of KV-cache pages, permutation of four axes, 5-point stencil |
//! | [`images`] | depth to space, bilinear upsampling, im2col, 2 x 2 max pooling |
//! | [`pairs`] | lower triangle of `x · xᵀ`, Gaussian kernels times a vector, intersection over union of boxes, matmul of maxima and sums |
//! | [`fused`] | batched matmul with bias and GELU, dilated 1-D convolution, Newton-Schulz iterations, attention within windows |
//! | [`sequences`] | instance norm, quantization by groups, LSTM cell, moving average, largest elements of rows, 3-D average pooling |
//! | [`transforms`] | Walsh-Hadamard and Fourier transforms, sort, logcumsumexp, edit distance, compaction |

#![warn(missing_docs)]

pub mod attention;
pub mod backward;
pub mod channels;
pub mod convolution;
pub mod decoding;
pub mod dequantized;
pub mod elementwise;
pub mod fused;
pub mod images;
pub mod indexed;
pub mod movement;
pub mod pairs;
pub mod persistent;
pub mod products;
pub mod recurrent;
pub mod reduced;
pub mod rows;
pub mod scan;
pub mod scatter;
pub mod sequences;
pub mod serving;
pub mod transforms;

use dsl_runtime::kernel::Kernel;

/// Every kernel, for programs that write them to files.
pub static KERNELS: &[&Kernel] = &[
    &elementwise::vector_add::KERNEL,
    &elementwise::dropout::KERNEL,
    &elementwise::swiglu::KERNEL,
    &elementwise::geglu::KERNEL,
    &elementwise::adamw::KERNEL,
    &rows::softmax::KERNEL,
    &rows::layer_norm::KERNEL,
    &rows::layer_norm_dx::KERNEL,
    &rows::rms_norm::KERNEL,
    &rows::cross_entropy::KERNEL,
    &channels::group_norm::KERNEL,
    &channels::causal_conv::KERNEL,
    &channels::rope::KERNEL,
    &products::matmul::KERNEL,
    &products::expert_matmul::KERNEL,
    &products::lora::KERNEL,
    &products::weight_gradient::KERNEL,
    &persistent::split_k_matmul::KERNEL,
    &persistent::stream_k_matmul::KERNEL,
    &persistent::persistent_matmul::KERNEL,
    &persistent::persistent_matmul_by_views::KERNEL,
    &persistent::grouped_matmul::KERNEL,
    &indexed::block_sparse_matmul::KERNEL,
    &indexed::expert_gate_up::KERNEL,
    &indexed::expert_down::KERNEL,
    &indexed::csr_matmul::KERNEL,
    &reduced::nearest_centroid::KERNEL,
    &reduced::linear_cross_entropy::KERNEL,
    &convolution::conv3x3::KERNEL,
    &dequantized::int4_matmul::KERNEL,
    &dequantized::fp8_matmul::KERNEL,
    &dequantized::int8_matmul::KERNEL,
    &dequantized::w8a16_matmul::KERNEL,
    &dequantized::ternary_matmul::KERNEL,
    &attention::flash_attention::KERNEL,
    &attention::attention_by_views::KERNEL,
    &attention::paged_decode::KERNEL,
    &backward::attention_dkdv::KERNEL,
    &backward::attention_dq::KERNEL,
    &backward::attention_dkdv_by_views::KERNEL,
    &backward::attention_dq_by_views::KERNEL,
    &decoding::mla_decode::KERNEL,
    &decoding::merge_parts::KERNEL,
    &decoding::int8_decode::KERNEL,
    &serving::varlen_attention::KERNEL,
    &serving::fp8_attention::KERNEL,
    &serving::sink_attention::KERNEL,
    &scan::selective_scan::KERNEL,
    &scan::gated_delta_rule::KERNEL,
    &recurrent::chunk_state::KERNEL,
    &recurrent::chunk_scan::KERNEL,
    &recurrent::gated_linear_attention::KERNEL,
    &scatter::index_add::KERNEL,
    &scatter::embedding::KERNEL,
    &scatter::embedding_gradient::KERNEL,
    &scatter::embedding_bag::KERNEL,
    &scatter::segment_sum::KERNEL,
    &scatter::histogram::KERNEL,
    &movement::transpose::KERNEL,
    &movement::copy_pages::KERNEL,
    &movement::permute4::KERNEL,
    &movement::stencil::KERNEL,
    &images::depth_to_space::KERNEL,
    &images::upsample_bilinear::KERNEL,
    &images::im2col::KERNEL,
    &images::max_pool_2x2::KERNEL,
    &pairs::gram::KERNEL,
    &pairs::rbf_matvec::KERNEL,
    &pairs::box_iou::KERNEL,
    &pairs::max_plus::KERNEL,
    &fused::batched_matmul_bias_gelu::KERNEL,
    &fused::conv1d::KERNEL,
    &fused::newton_schulz::KERNEL,
    &fused::window_attention::KERNEL,
    &sequences::instance_norm::KERNEL,
    &sequences::quantize_groups::KERNEL,
    &sequences::lstm_cell::KERNEL,
    &sequences::moving_average::KERNEL,
    &sequences::top_k::KERNEL,
    &sequences::avg_pool3d::KERNEL,
    &transforms::hadamard::KERNEL,
    &transforms::fft_rows::KERNEL,
    &transforms::sort_rows::KERNEL,
    &transforms::logcumsumexp::KERNEL,
    &transforms::edit_distance::KERNEL,
    &transforms::count_kept::KERNEL,
    &transforms::compact::KERNEL,
];

//! Every kernel of the library against `f64`, on every device.

// What the tests share is in use when all of them are built.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

#[cfg(feature = "elementwise")]
mod activations;
#[cfg(feature = "norms")]
mod add_layer_norm;
#[cfg(feature = "elementwise")]
mod add_mul;
#[cfg(feature = "attention")]
mod attention;
#[cfg(feature = "attention")]
mod attention_backward;
#[cfg(feature = "attention")]
mod attention_decode;
#[cfg(feature = "layers")]
mod attention_projection;
#[cfg(feature = "norms")]
mod batch_norm;
#[cfg(feature = "dropout")]
mod bias_dropout;
#[cfg(feature = "softmax")]
mod cross_entropy;
mod data;
#[cfg(feature = "layers")]
mod decoder_layer;
#[cfg(feature = "dropout")]
mod dropout;
#[cfg(feature = "layers")]
mod feed_forward;
#[cfg(feature = "elementwise")]
mod fusion_flags;
#[cfg(feature = "layers")]
mod gemv;
#[cfg(feature = "norms")]
mod layer_norm;
#[cfg(feature = "elementwise")]
mod linear_combination;
#[cfg(feature = "layers")]
mod linear_norm;
#[cfg(feature = "layers")]
mod linear_rope;
#[cfg(feature = "matmul")]
mod matmul;
#[cfg(feature = "matmul")]
mod matmul_columns;
#[cfg(feature = "matmul")]
mod matmul_tf32;
#[cfg(feature = "moe")]
mod moe;
#[cfg(feature = "norms")]
mod norm_activation;
#[cfg(feature = "norms")]
mod norm_backward;
#[cfg(feature = "layers")]
mod norm_linear;
#[cfg(feature = "norms")]
mod norms;
#[cfg(all(feature = "attention", feature = "rope"))]
mod packed_qkv;
#[cfg(all(feature = "norms", feature = "quantization"))]
mod quantize;
#[cfg(feature = "quantized-matmul")]
mod quantized_matmul;
#[cfg(feature = "norms")]
mod rms_norm;
#[cfg(feature = "rope")]
mod rope;
#[cfg(feature = "rotary-attention")]
mod rotary_attention;
#[cfg(all(feature = "embedding", feature = "gating", feature = "recurrence"))]
mod routing;
#[cfg(all(feature = "elementwise", feature = "norms", feature = "quantization", feature = "softmax"))]
mod rows;
#[cfg(feature = "softmax")]
mod softmax;

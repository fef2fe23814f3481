//! Every kernel of the library against `f64`, on every device.

mod activations;
mod add_mul;
mod attention;
mod attention_decode;
mod cross_entropy;
mod data;
mod dropout;
mod layer_norm;
mod matmul;
mod matmul_tf32;
mod norm_backward;
mod norms;
mod quantize;
mod quantized_matmul;
mod rms_norm;
mod rope;
mod routing;
mod softmax;

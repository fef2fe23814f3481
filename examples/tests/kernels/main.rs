//! Every kernel of the library against `f64`, on every device.

mod add_mul;
mod data;
mod layer_norm;
mod rms_norm;

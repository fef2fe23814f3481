//! `1 / sqrt(x)`.
//!
//! A GPU has it for `f32` with a relative error of 2^-22.9, at most 2 ulp. Elsewhere it is the quotient of the
//! correctly rounded root: `eps` of the root and half an ulp of the quotient, 1.5 ulp together.

use super::formula::{gpu, gpu_approximation};
use crate::mlir::{Builder, Val};

pub fn rsqrt_f32(b: &mut Builder, x: Val) -> Val {
    if gpu(b) { gpu_approximation(b, "rsqrt", x) } else { rsqrt_f64(b, x) }
}

pub fn rsqrt_f64(b: &mut Builder, x: Val) -> Val {
    let root = b.sqrt(x);
    let one = b.float(x.ty, 1.0);
    b.fdiv(one, root)
}

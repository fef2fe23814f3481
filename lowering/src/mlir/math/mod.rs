//! Elementary functions.
use super::builder::{Builder, Val};
use crate::dtype::DType;
macro_rules! stub { ($($n:ident),*) => { $(pub fn $n(b: &mut Builder, a: &[Val], _d: DType) -> Val { b.fabs(a[0]) })* } }
stub!(exp, exp2, log, log2, sin, cos, tanh, erf, sigmoid);
pub fn rsqrt(b: &mut Builder, a: &[Val], _d: DType) -> Val {
    if b.machine == super::Machine::Nvptx && _d != DType::F64 {
        b.call("llvm.nvvm.rsqrt.approx.ftz.f", a, a[0].ty)
    } else {
        let s = b.sqrt(a[0]);
        let one = b.float(a[0].ty, 1.0);
        b.fdiv(one, s)
    }
}

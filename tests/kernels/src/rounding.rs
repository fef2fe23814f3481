//! Conversions of floats that say how they round.

use dsl_runtime::prelude::*;

use crate::case::{Job, Run};

/// The types that [`TOWARD_ZERO`] rounds to, in order.
pub const ROUNDED: [DType; 6] =
    [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64];

#[fuse_kernel(T = [f16, bf16, f32, f64])]
fn toward_zero<T: Float>(
    x: &[T],
    to_f8e4m3: &mut [f8e4m3],
    to_f8e5m2: &mut [f8e5m2],
    to_f16: &mut [f16],
    to_bf16: &mut [bf16],
    to_f32: &mut [f32],
    to_f64: &mut [f64],
    n: i32,
) {
    let offsets = tl::program_id(0) * 1024 + tl::arange(0, 1024);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    tl::store(to_f8e4m3 + offsets, tl::cast::<f8e4m3>(x, "rtz"), mask);
    tl::store(to_f8e5m2 + offsets, tl::cast::<f8e5m2>(x, "rtz"), mask);
    tl::store(to_f16 + offsets, tl::cast::<f16>(x, "rtz"), mask);
    tl::store(to_bf16 + offsets, tl::cast::<bf16>(x, "rtz"), mask);
    tl::store(to_f32 + offsets, tl::cast::<f32>(x, "rtz"), mask);
    tl::store(to_f64 + offsets, tl::cast::<f64>(x, "rtz"), mask);
}

macro_rules! toward_zero {
    ($($elem:ident),*) => {
        /// Floats rounded toward zero to each of [`ROUNDED`].
        pub static TOWARD_ZERO: &[Run] = &[$(Run {
            dtype: <$elem as Element>::DTYPE,
            run: |job: &Job| {
                let x = job.operand::<$elem>(0)?;
                let (mut a, mut b) = (job.output::<f8e4m3>(1)?, job.output::<f8e5m2>(1)?);
                let (mut c, mut d) = (job.output::<f16>(1)?, job.output::<bf16>(1)?);
                let (mut e, mut f) = (job.output::<f32>(1)?, job.output::<f64>(1)?);
                toward_zero::<$elem>(&x, &mut a, &mut b, &mut c, &mut d, &mut e, &mut f, job.len())
                    .grid(job.grid())
                    .launch(&job.device)?;
                Ok([a.finish()?, b.finish()?, c.finish()?, d.finish()?, e.finish()?, f.finish()?].concat())
            },
        }),*];
    };
}

toward_zero!(f16, bf16, f32, f64);

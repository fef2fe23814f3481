//! The same operations as a careful engineer would write them without a compiler for tiles: rayon over pieces of a few
//! tens of kilobytes, sums in independent lanes so that they vectorize, every loop compiled for AVX-512, AVX2 and the
//! baseline, and the best one taken at run time.

use dsl_runtime::bf16;
use rayon::prelude::*;

/// Elements of a task: enough to hide the cost of handing it out, few enough to share the work evenly.
const TASK: usize = 1 << 14;

/// Independent sums: four registers of AVX-512, which hides the latency of an addition.
const LANES: usize = 64;

/// An element that is computed with in `f32`.
pub trait Lane: Copy + Send + Sync {
    fn widen(self) -> f32;
    fn narrow(value: f32) -> Self;
}

impl Lane for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(value: f32) -> f32 {
        value
    }
}

impl Lane for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// To nearest, ties to even; without branches, unlike the one of the `half` crate, so that it vectorizes.
    #[inline(always)]
    fn narrow(value: f32) -> bf16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        bf16::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

/// Compiles the function `$body` for each CPU feature level and calls the best that runs here.
macro_rules! for_this_cpu {
    ($body:ident::<$T:ident>($($arg:ident: $ty:ty),* $(,)?)) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]
            fn v4<$T: Lane>($($arg: $ty),*) {
                $body($($arg),*)
            }
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
            fn v3<$T: Lane>($($arg: $ty),*) {
                $body($($arg),*)
            }
            let v3_runs = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            let v4_runs = v3_runs
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if v4_runs {
                // SAFETY: this CPU has all features that the function asks for.
                return unsafe { v4($($arg),*) };
            }
            if v3_runs {
                // SAFETY: this CPU has all features that the function asks for.
                return unsafe { v3($($arg),*) };
            }
        }
        $body($($arg),*)
    }};
}

/// `(x + y) * z`
pub fn add_mul<T: Lane>([x, y, z]: [&[T]; 3], out: &mut [T]) {
    let inputs = x.par_chunks(TASK).zip(y.par_chunks(TASK)).zip(z.par_chunks(TASK));
    out.par_chunks_mut(TASK).zip(inputs).for_each(|(out, ((x, y), z))| add_mul_task(x, y, z, out));
}

fn add_mul_task<T: Lane>(x: &[T], y: &[T], z: &[T], out: &mut [T]) {
    for_this_cpu!(add_mul_loop::<T>(x: &[T], y: &[T], z: &[T], out: &mut [T]))
}

#[inline(always)]
fn add_mul_loop<T: Lane>(x: &[T], y: &[T], z: &[T], out: &mut [T]) {
    for (((out, x), y), z) in out.iter_mut().zip(x).zip(y).zip(z) {
        // A sum of T, rounded as such before it is multiplied.
        let sum = T::narrow(x.widen() + y.widen());
        *out = T::narrow(sum.widen() * z.widen());
    }
}

/// LayerNorm of each row of `x`.
pub fn layer_norm<T: Lane>([x, gamma, beta]: [&[T]; 3], out: &mut [T], eps: f32) {
    let task = TASK.div_ceil(gamma.len()) * gamma.len();
    let tasks = out.par_chunks_mut(task).zip(x.par_chunks(task));
    tasks.for_each(|(out, x)| layer_norm_task([x, gamma, beta], out, eps));
}

fn layer_norm_task<T: Lane>(inputs: [&[T]; 3], out: &mut [T], eps: f32) {
    for_this_cpu!(layer_norm_loop::<T>(inputs: [&[T]; 3], out: &mut [T], eps: f32))
}

#[inline(always)]
fn layer_norm_loop<T: Lane>([x, gamma, beta]: [&[T]; 3], out: &mut [T], eps: f32) {
    let cols = gamma.len();
    for (out, x) in out.chunks_exact_mut(cols).zip(x.chunks_exact(cols)) {
        let mean = sum(x, |x| x) / cols as f32;
        let variance = sum(x, |x| (x - mean) * (x - mean)) / cols as f32;
        let scale = 1.0 / (variance + eps).sqrt();
        for (((out, x), gamma), beta) in out.iter_mut().zip(x).zip(gamma).zip(beta) {
            *out = T::narrow((x.widen() - mean) * scale * gamma.widen() + beta.widen());
        }
    }
}

#[inline(always)]
fn sum<T: Lane>(values: &[T], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(value.widen());
        }
    }
    let rest: f32 = rest.iter().map(|value| term(value.widen())).sum();
    lanes.iter().sum::<f32>() + rest
}

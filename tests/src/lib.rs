//! Kernels of the tests, and what the harness in `numerics/` runs them with. Free of the compiler, so that a test binary
//! runs on a machine that has neither Rust nor LLVM.

pub mod ahead;
pub mod arrange;
pub mod atomic;
pub mod case;
pub mod cluster;
pub mod control;
pub mod dot;
pub mod functions;
pub mod group;
pub mod memory;
pub mod programs;
pub mod random;
pub mod reduce;
pub mod rounding;
pub mod scan;
pub mod shape;
pub mod table;
pub mod view;

use dsl_runtime::prelude::*;

/// `(x + y) * z`
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [1024])]
pub fn add_mul<T: Float, const BLOCK: usize>(x: &[T], y: &[T], z: &[T], out: &mut [T], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    let y = tl::load(y + offsets, mask);
    let z = tl::load(z + offsets, mask);
    tl::store(out + offsets, (x + y) * z, mask);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_mul_runs() {
        let device = Device::best().unwrap();
        let n = 5000usize;
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let bx = device.upload(&x).unwrap();
        let mut out = device.zeros::<f32>(n).unwrap();
        add_mul::<f32, 1024>(&bx, &bx, &bx, &mut out, n as i32)
            .grid(n.div_ceil(1024))
            .launch(&device)
            .unwrap();
        let got = out.download().unwrap();
        for i in 0..n {
            assert_eq!(got[i], 2.0 * x[i] * x[i]);
        }
    }
}

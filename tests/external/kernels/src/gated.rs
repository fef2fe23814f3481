//! A matmul whose result is squared above zero and scaled by a gate of each row.

use dsl_runtime::prelude::*;

/// Functions of this crate, for its kernels and for those of others.
#[fuse_module]
pub mod epilogues {
    use dsl_runtime::prelude::*;

    /// `max(x, 0)^2`. **Source.** So, Mańke, Liu, Dai, Shazeer, Le, *Primer*, 2021, arXiv:2109.08668.
    #[fuse_fn]
    pub fn squared_relu(x: Tile<f32>) -> Tile<f32> {
        let y = tl::relu(x);
        y * y
    }
}

// ANCHOR: kernel
/// `out = squared_relu(a * b) * gate`: `a` is `[m, k]`, `b` is `[k, n]`, `gate` has `m` elements.
#[fuse_kernel(T = [f32, f16], M = [32], N = [32], K = [32])]
pub fn gated_matmul<T: Float, const M: usize, const N: usize, const K: usize>(
    a: &View<T, 2>,
    b: &View<T, 2>,
    gate: &[f32],
    out: &mut View<T, 2>,
) {
    use fused_kernels::mainloop::matmul_mainloop;

    use crate::gated::epilogues::squared_relu;

    let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * N);
    let acc = matmul_mainloop::<T, i32, M, N, K, false>(a, b, row, col, 0, a.shape::<i32>(1));
    let rows = row + tl::arange(0, M);
    let scale = tl::load(gate + rows, rows < out.shape::<i32>(0));
    out.store((squared_relu(acc) * scale.col()).to::<T>(), row, col);
}
// ANCHOR_END: kernel

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_squared_and_gated() -> Result<(), Box<dyn std::error::Error>> {
        let (m, n, k) = (70, 45, 100);
        let number = |i: usize| ((i * 7919 % 193) as f32 - 96.0) / 64.0;
        let of = |count: usize, from: usize| -> Vec<f32> { (0..count).map(|i| number(i + from)).collect() };
        let (a, b, gate) = (of(m * k, 0), of(k * n, 1 << 20), of(m, 2 << 20));
        let device = Device::best()?;
        let (a_there, b_there, gate_there) = (device.upload(&a)?, device.upload(&b)?, device.upload(&gate)?);
        let mut out = device.upload(&vec![f32::NAN; m * n])?;
        gated_matmul::<f32, 32, 32, 32>(
            a_there.view([m, k])?,
            b_there.view([k, n])?,
            &gate_there,
            out.view_mut([m, n])?,
        )
        .grid((m.div_ceil(32), n.div_ceil(32)))
        .launch(&device)?;
        for (i, got) in out.download()?.into_iter().enumerate() {
            let (row, col) = (i / n, i % n);
            let products = (0..k).map(|x| f64::from(a[row * k + x]) * f64::from(b[x * n + col]));
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
            let want = f64::max(sum, 0.0).powi(2) * f64::from(gate[row]);
            let bound = (k as f64 + 4.0) * 2f64.powi(-23) * size * size * f64::from(gate[row]).abs();
            assert!((f64::from(got) - want).abs() <= bound, "{row} {col}: {got}, expected {want}");
        }
        Ok(())
    }
}

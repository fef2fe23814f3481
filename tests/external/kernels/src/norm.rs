//! A norm of a sum whose residual is scaled, as in a deep network that begins near the identity.

use dsl_runtime::prelude::*;

// ANCHOR: kernel
/// `residual = x + residual_scale * residual`, and its LayerNorm into `out`, or without a `beta` its RMSNorm. Matrices have rows of `n_cols`
/// elements, with a program for each.
#[fuse_kernel(T = [f32, f16], BLOCK = n_cols in [256, 1024])]
pub fn scaled_residual_norm<T: Float, const BLOCK: usize>(
    x: &[T],
    residual: &mut [T],
    gamma: &[T],
    beta: Option<&[T]>,
    out: &mut [T],
    n_cols: i32,
    residual_scale: f32,
    eps: f32,
) {
    use fused_kernels::norms::normalize;

    let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
    let (offsets, mask) = (row * n_cols + cols, cols < n_cols);
    let before = tl::load(residual + offsets, mask, 0.0).to::<f32>();
    let sum = tl::load(x + offsets, mask, 0.0).to::<f32>() + residual_scale * before;
    tl::store(residual + offsets, sum.to::<T>(), mask);
    let y = normalize::<T, 0>(sum, gamma, beta, cols, n_cols, eps);
    tl::store(out + offsets, y.to::<T>(), mask);
}
// ANCHOR_END: kernel

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_are_scaled_before_the_norm() -> Result<(), Box<dyn std::error::Error>> {
        let (rows, cols, scale, eps) = (5, 300, 0.5, 1e-5);
        let number = |i: usize| ((i * 7919 % 193) as f32 - 60.0) / 64.0;
        let of = |count: usize, from: usize| -> Vec<f32> { (0..count).map(|i| number(i + from)).collect() };
        let (x, before) = (of(rows * cols, 0), of(rows * cols, 1 << 20));
        let (gamma, beta) = (of(cols, 2 << 20), of(cols, 3 << 20));
        let device = Device::best()?;
        let (x_there, gamma_there) = (device.upload(&x)?, device.upload(&gamma)?);
        let beta_there = device.upload(&beta)?;
        for has_beta in [true, false] {
            let mut residual = device.upload(&before)?;
            let mut out = device.upload(&vec![f32::NAN; rows * cols])?;
            let beta_there = has_beta.then(|| Slice::from(&beta_there));
            scaled_residual_norm::<f32>(
                &x_there,
                &mut residual,
                &gamma_there,
                beta_there,
                &mut out,
                cols as i32,
                scale,
                eps,
            )
            .grid(rows)
            .launch(&device)?;
            let (found, sums) = (out.download()?, residual.download()?);
            for row in 0..rows {
                let of_row = row * cols..(row + 1) * cols;
                let sum: Vec<f64> = of_row
                    .clone()
                    .map(|i| f64::from(x[i]) + f64::from(scale) * f64::from(before[i]))
                    .collect();
                let mean = if has_beta { sum.iter().sum::<f64>() / cols as f64 } else { 0.0 };
                let squares: f64 = sum.iter().map(|x| (x - mean).powi(2)).sum();
                let factor = (squares / cols as f64 + f64::from(eps)).sqrt().recip();
                for (col, i) in of_row.enumerate() {
                    let added = if has_beta { f64::from(beta[col]) } else { 0.0 };
                    let want = (sum[col] - mean) * factor * f64::from(gamma[col]) + added;
                    assert!((f64::from(found[i]) - want).abs() <= 2e-6, "{row} {col}: {}, {want}", found[i]);
                    assert!((f64::from(sums[i]) - sum[col]).abs() <= 1e-6, "{row} {col}: {}", sums[i]);
                }
            }
        }
        Ok(())
    }
}

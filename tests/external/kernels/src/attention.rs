//! Attention whose scores decay with the distance of a key: `score * decay^distance`, as in retention.

// ANCHOR: kernel
use dsl_runtime::prelude::*;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;
    use fused_kernels::mainloop::attention_mainloop;
    use fused_kernels::query_tile::{AttentionMask, QueryTile};

    /// Heads `[heads, n, D]` of `q`, `k`, `v` and `out`. Scores are `qk / sqrt(D) * 2^(-decay * distance)`. The grid is
    /// `(1, n.div_ceil(M), heads)`.
    #[fuse_kernel(T = [f16, bf16], D = [64], M = [64], N = [32], mask = [AttentionMask::Causal, AttentionMask::None])]
    pub fn decayed_attention<T: Float, const D: usize, const M: usize, const N: usize>(
        q: &View<T, 3>,
        k: &View<T, 3>,
        v: &View<T, 3>,
        out: &mut View<T, 3>,
        mask: AttentionMask,
        scale: f32,
        decay: f32,
    ) {
        let tile = QueryTile::of_program::<M>(mask, q.shape::<i32>(1), k.shape::<i32>(1), 0, 0);
        let head = tile.batch_head;
        let (q, k, v) = (q.at(head).load::<M, D>(tile.row, 0), k.at(head), v.at(head));
        let score = |start| {
            let qk = tl::dot(q, tl::trans(k.load::<N, D>(start, 0)));
            let q_positions = tile.position + tl::arange(0, M);
            let distance = q_positions.col() - (start + tl::arange(0, N)).row();
            tile.masked::<M, N>(qk * tl::exp2(-decay * tl::abs(distance).to::<f32>()), start)
        };
        let (begin, end) = tile.visible_keys::<M>();
        let scale = scale * f32::consts::LOG2_E;
        let (acc, softmax) = attention_mainloop::<T, D, M, N>(v, begin, end, scale, score, |p, _start| p);
        let (l_safe, _) = softmax.sum_and_logarithm();
        out.at(head).store((acc / l_safe.col()).to::<T>(), tile.row, 0);
    }
}

pub use kernels::decayed_attention;

// ANCHOR_END: kernel

#[cfg(test)]
mod tests {
    use fused_kernels::query_tile::AttentionMask;

    use super::*;

    #[test]
    fn scores_decay_with_distance() -> Result<(), Box<dyn std::error::Error>> {
        let (heads, n, d) = (3, 150, 64);
        let number = |i: usize| bf16::from_f32(((i * 7919 % 193) as f32 - 96.0) / 64.0);
        let of = |from: usize| -> Vec<bf16> { (0..heads * n * d).map(|i| number(i + from)).collect() };
        let (q, k, v) = (of(0), of(1 << 20), of(2 << 20));
        let (scale, decay) = ((d as f32).powf(-0.5), 0.03);
        let device = Device::best()?;
        let [q_there, k_there, v_there] = [&q, &k, &v].map(|x| device.upload(x));
        let (q_there, k_there, v_there) = (q_there?, k_there?, v_there?);
        for mask in [AttentionMask::Causal, AttentionMask::None] {
            let mut out = device.upload(&vec![bf16::from_f32(f32::NAN); heads * n * d])?;
            let shape = [heads, n, d];
            decayed_attention::<bf16, 64, 64, 32>(
                q_there.view(shape)?,
                k_there.view(shape)?,
                v_there.view(shape)?,
                out.view_mut(shape)?,
                mask,
                scale,
                decay,
            )
            .grid((1, n.div_ceil(64), heads))
            .launch(&device)?;
            let found = out.download()?;
            let at = |x: &[bf16], head: usize, row: usize, col: usize| {
                f64::from(x[(head * n + row) * d + col].to_f32())
            };
            for head in 0..heads {
                for i in 0..n {
                    let score = |j: usize| -> f64 {
                        let dot: f64 = (0..d).map(|c| at(&q, head, i, c) * at(&k, head, j, c)).sum();
                        dot * f64::from(scale) * (-f64::from(decay) * i.abs_diff(j) as f64).exp2()
                    };
                    let end = if mask == AttentionMask::Causal { i + 1 } else { n };
                    let scores: Vec<f64> = (0..end).map(score).collect();
                    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                    let sum: f64 = weights.iter().sum();
                    for col in 0..d {
                        let mean = |of: &dyn Fn(f64) -> f64| -> f64 {
                            weights.iter().enumerate().map(|(j, w)| w * of(at(&v, head, j, col))).sum::<f64>()
                                / sum
                        };
                        let (want, bound) = (mean(&|x| x), mean(&f64::abs) * 0.02);
                        let got = at(&found, head, i, col);
                        assert!(
                            (got - want).abs() <= bound + 1e-6,
                            "{mask:?} {head} {i} {col}: {got}, expected {want}"
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

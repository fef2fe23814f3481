use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64])]
fn constants<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let c = tl::arange(0, n);
    let t = tl::zeros::<f32>([N, n]);
    let s = tl::sum(tl::zeros::<f32>([N]), n);
    for i in tl::static_range(0, n) {
        tl::store(out + i, 1.0);
    }
    tl::static_assert(n > 0, "n is positive");
    tl::static_assert(N > 64, "N is above 64");
}

fn main() {}

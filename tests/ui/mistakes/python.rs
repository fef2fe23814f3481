use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64])]
fn outer<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let lane = tl::arange(0, N);
    let y = tl::load(x + lane, mask=lane < n);
    let product = y[:, None] * y[None, :];
    if n == 0:
        return;
    tl::store(out + lane, jnp.where(lane < n, y, 0.0));
}

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    #[fuse_kernel]
    pub fn sum(x: &[f32], out: &mut [f32], n: i32) {
        float total = 0.0;
        for i in range(0, n): total += tl::load(x + i);
        tl::store(out, total);
    }
}

fn main() {}

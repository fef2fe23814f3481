use dsl_runtime::prelude::*;

// What comes from Triton, NumPy and C.
#[fuse_kernel(N = [64])]
fn triton<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let lane = tl::arange(0, N);
    let y = tl::load(x + lane, mask = lane < n, other = 0.0);
    let a = tl.arange(0, N);
    let b = tl::zeros([N], tl::float32);
    let c = tl::load(x + lane);
    let d = tl::max(c, 0.0);
    let e = tl::r#where(lane < n, c, 0.0);
    let f = c.shape[0];
    let g = tl::sum(c, -1);
    tl::store(out + lane, SCALE);
}

// What comes from Rust.
#[fuse_kernel]
fn rust(x: &[f32], out: &mut [f32], n: i32) {
    for (i, v) in x.iter().enumerate() {
        tl::store(out + i, v);
    }
    let a = n.pow(2);
    let b = f32::from(n);
    let c = match tl::load(x + tl::arange(0, 64)) {
        0 => 1.0,
        _ => 2.0,
    };
    let d = n?;
    n = 1;
    assert_eq!(n, 1);
}

fn main() {}

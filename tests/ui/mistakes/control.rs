use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64])]
fn control<const N: usize>(x: &[f32], out: &mut [f32], n: i32, scale: f32) {
    let before;
    tl::store(out, before);
    let mut total = 0.0;
    for start in (0..n).step_by(N) {
        total = total + tl::load(x + start + tl::arange(0, N));
    }
    let mut count = 0;
    while count < 10 {
        count = scale;
    }
    let either = if n > 0 { n } else { scale };
    let mut tile = tl::zeros::<f32>([N]);
    if n > 0 {
        tile = tl::zeros::<f32>([N, N]);
    }
    if tl::arange(0, N) < n {
        tl::store(out, 1.0);
    }
    for i in n {
        tl::store(out + i, 1.0);
    }
    let fixed = 1;
    fixed = 2;
}

fn main() {}

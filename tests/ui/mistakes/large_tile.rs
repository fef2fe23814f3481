use dsl_runtime::prelude::*;

#[fuse_kernel]
fn squared(x: &[f32], out: &mut [f32]) {
    let i = tl::arange(0, 1048576);
    let x = tl::load(x + i);
    let mut y = x;
    for _ in tl::static_range(0, 200) {
        y = y * y + x;
    }
    tl::store(out + i, y);
}

fn main() {}

use dsl_runtime::prelude::*;

#[fuse_kernel]
fn counted(x: &[u32], out: &mut [u32], before: &mut [u32]) {
    let i = tl::arange(0, 1048576);
    let x = tl::load(x + i);
    let old = tl::atomic_and(out + i, x) ^ tl::atomic_or(out + i / 2, x) ^ tl::atomic_xor(out + i * 3, x);
    tl::store(before + i, old);
}

fn main() {}

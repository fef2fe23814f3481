#![deny(deprecated)]
#![allow(dead_code)]
use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, f64], N = [64])]
fn forgotten<T: Float, const N: usize>(x: &[T], out: &mut [T], total: &mut [T], flag: &[i32], n: i32) {
    let lanes = tl::arange(0, N);
    while tl::load(flag) == 0 {}
    let row = tl::load(x + tl::program_id(0) * N + lanes, lanes < n);
    tl::store(out + lanes, row - tl::max(row), lanes < n);
    tl::store(total, tl::load(total) + tl::sum(row));
}

#[fuse_module]
mod drops {
    use dsl_runtime::prelude::*;

    #[fuse_fn]
    fn keep(seed: u64, lanes: Tile<i32>) -> Tile<bool> {
        tl::rand(seed, lanes) > 0.5
    }

    #[fuse_kernel(N = [64])]
    fn dropout<const N: usize>(x: &[f32], out: &mut [f32], seed: u64) {
        let lanes = tl::arange(0, N);
        let own = tl::program_id(0) * N + lanes;
        tl::store(out + own, tl::select(keep(seed, lanes), tl::load(x + own), 0.0));
    }
}

#[fuse_kernel(N = [64])]
#[allow(deprecated)]
fn allowed<const N: usize>(x: &[f32], out: &mut [f32]) {
    let lanes = tl::arange(0, N);
    tl::store(out + lanes, tl::load(x + tl::program_id(0) * N + lanes));
}

fn main() {}

//! Tokens that mean nothing in a kernel, and what `cfg` leaves of one: rustc takes parts out before the kernel is read.
//!
//! Mistakes and lints stand on the user's tokens there too.

use dsl_runtime::prelude::*;

#[fuse_kernel]
pub fn configured(x: &[f32], out: &mut [f32], #[cfg(test)] n: i32) {
    #[cfg(test)]
    let y = n;
    #[cfg(not(test))]
    tl::store(out, tl::load(y));
}

#[fuse_kernel]
pub fn unused(x: &[f32], out: &mut [f32]) {
    let seen = tl::load(x);
    #[cfg(not(test))]
    let unseen = tl::load(x);
    #[deny(unused_variables)]
    for i in 0..4 {
        #[cfg(test)]
        tl::store(out + i, seen);
        tl::store(out, seen);
    }
    #[allow(unused_variables)]
    let allowed = 1;
    #[expect(unused_variables)]
    let expected = 1;
}

#[fuse_kernel]
pub fn not_rust(out: &mut [f32]) {
    let mut y = 1.0;
    #[cfg(test)] y = 2.0;
    tl::store(out, y);
}

#[fuse_module]
mod module {
    use dsl_runtime::prelude::*;

    #[cfg(test)]
    #[fuse_fn]
    fn f(x: Tile<f32>) -> Tile<f32> {
        x + gone
    }

    #[cfg(not(test))]
    #[fuse_fn]
    fn f(x: Tile<f32>) -> Tile<f32> {
        x + undefined
    }

    #[fuse_kernel]
    pub fn k(out: &mut [f32]) {
        tl::store(out, f(1.0));
    }
}

#[fuse_kernel(N = [64k])]
pub fn attributes<const N: usize>(#[readonly] x: &[f32], out: &mut [f32]) {
    #[unroll(4)]
    for i in 0..4x {
        tl::store(out + i, 1 / 2 * tl::load(x + i));
    }
}

#[fuse_kernel]
#[fuse_kernel]
pub fn twice(out: &mut [f32]) {
    tl::store(out, 1.0);
}

#[fuse_module]
#[fuse_module]
mod twice_as_well {}

fn main() {}

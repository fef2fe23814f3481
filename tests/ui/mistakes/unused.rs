#![deny(unused)]

use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64])]
fn never_called<const N: usize>(x: &[f32], out: &mut [f32], n: i32, unused: i32) {
    let lane = tl::arange(0, N);
    let y = tl::load(x + lane, lane < n);
    let forgotten = y * 2.0;
    let mut needless = y + 1.0;
    let (a, mut b) = tl::split(tl::reshape(y, [32, 2]));
    tl::load(x + lane);
    y + 1.0;
    y;
    y < 0.0;
    -y;
    y.to::<f16>();
    let mut acc = 0.0;
    for i in 0..n {
        acc = acc + 1.0;
    }
    acc = 2.0;
    let mut total = 0;
    for _ in 0..n {
        total += 1;
    }
    let double = |v, w| v + v;
    fn inner(t: Tile<f32>) {}
    const K: i32 = 3;
    let late;
    if N == 64 {
        late = 1.0;
    }
    #[allow(unused_variables)]
    let allowed = 1;
    let _ignored = 2;
    tl::store(out + lane, needless);
    tl::atomic_add(out + lane, 1.0);
}

#[allow(unused_variables, unused_mut)]
#[fuse_kernel]
pub fn quiet(out: &mut [f32], n: i32) {
    tl::store(out, 1.0); let mut t = 1.0;
}

#[expect(unused_variables)]
#[fuse_kernel]
pub fn expected(out: &mut [f32]) {}

// Used: by the attribute, in a branch that one variant leaves out, by another variant.
#[fuse_kernel(N = _ in [64, 128], tune(key = [m], when = N as i32 > n))]
pub fn used<const N: usize>(out: &mut [f32], n: i32, m: i32, other: f32) {
    let late;
    if N == 64 {
        late = 1.0;
    } else {
        late = other;
    }
    let chosen = match n {
        0 => late,
        1 => {
            let part = late * 2.0;
            part + 1.0
        }
        _ => 2.0,
    };
    let (mut a, mut b) = (chosen, late);
    for i in tl::static_range(0, 4) {
        (a, b) = (b, a + i as f32);
        if N == 128 {
            a += 1.0;
            continue;
        }
    }
    tl::store(out + tl::arange(0, N), a + b);
}

#[fuse_module]
pub mod functions {
    use dsl_runtime::prelude::*;

    #[fuse_fn]
    fn scaled(x: Tile<f32>, by: Tile<f32>, spare: f32) -> Tile<f32> {
        let z = x;
        if tl::sum(by, 0) > 1.0 {
            return x;
        }
        x * 2.0
    }

    #[fuse_kernel]
    pub fn calls(out: &mut [f32]) {
        tl::store(out, scaled(1.0, tl::zeros::<f32>([4]), 2.0));
    }
}

fn main() {}

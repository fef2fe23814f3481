#![deny(deprecated, unreachable_patterns)]
#![allow(dead_code)]
use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64], UNUSED = [1, 2], T = [f32, f64])]
fn decided<T: Float, const N: usize, const UNUSED: usize>(x: &[T], out: &mut [T], count: &mut [i32], n: i32, u: u32) {
    let lanes = tl::program_id(0) * N + tl::arange(0, N);
    let y = tl::load(x + lanes, tl::arange(0, N) >= 0);
    for j in 10..0 {
        tl::store(out + lanes + j, y);
    }
    tl::store(out + lanes, 0.0, y == T::NAN);
    if u < 0 || 1 > 2 || tl::program_id(0) < 0 {
        tl::store(count + tl::program_id(0), n ^ 2);
    }
}

#[fuse_kernel]
fn nothing_is_written(x: &[f32]) {
    let _y = tl::load(x);
}

#[fuse_kernel]
fn arms(out: &mut [f32], n: i32) {
    const FIRST: i32 = 5;
    let number = match n {
        0 => 1.0,
        1 | 1 => 2.0,
        -1 | 0 => 3.0,
        FIRST => 4.0,
        2..=4 => 5.0,
        3 => 6.0,
        FIRST | 7 => 7.0,
        _ => 8.0,
    };
    match n > 3 {
        true => tl::store(out, number),
        true => tl::store(out + 1, number),
        false => {}
    }
}

#[fuse_kernel(MODE = [0, 1])]
fn taken<const MODE: u32>(out: &mut [f32], n: i64) {
    const FIRST: i64 = 5;
    const SAME: i64 = 5;
    const ON: bool = true;
    let number = match n {
        -3..=-1 | 9223372036854775807 => 1.0,
        0i64 => 2.0,
        FIRST | SAME => 3.0,
        6..=7 => 4.0,
        _ => 5.0,
    };
    match MODE {
        0 => tl::store(out, number),
        1 | 2 => tl::store(out + 1, number),
        _ => {}
    }
    match n > 3 {
        ON => tl::store(out + 2, number),
        true => {}
        false => tl::store(out + 3, number),
    }
}

macro_rules! made {
    ($name:ident, $t:ty, $steps:literal) => {
        #[fuse_kernel(UNUSED = [1])]
        pub fn $name<const UNUSED: usize>(out: &mut [$t], n: $t) {
            for i in 0..$steps {
                tl::store(out + i, n);
            }
            if n < 0 || $steps > 1 {
                tl::store(out, 1);
            }
        }
    };
}
made!(never, u32, 0);
made!(twice, i32, 2);

#[expect(unreachable_patterns)]
#[fuse_kernel]
pub fn expected(out: &mut [f32], n: i32) {
    match n {
        0..=3 => tl::store(out, 1.0),
        2 => tl::store(out, 2.0),
        _ => {}
    }
}

#[fuse_kernel(UNUSED = [1, 2])]
#[allow(deprecated, unreachable_patterns)]
fn allowed<const UNUSED: usize>(x: &[f32], n: i32, u: u32) {
    for j in 10..0 {
        let _y = tl::load(x + j, tl::load(x + j) == f32::NAN);
    }
    let _z = if u < 0 { n ^ 2 } else { 0 };
    match n {
        0 => {}
        0 => {}
        _ => {}
    }
}

fn main() {}

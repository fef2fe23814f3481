use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64])]
fn syntax<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let double = |v| v + v;
    let first = &x[0];
    let total = x.iter().map(|v| v * 2.0).sum();
    match n {
        0 => {}
        _ => {}
    }
    loop {
        break;
    }
    if n == 0 {
        return;
    }
    println!("{n}");
    let v = vec![1, 2];
    unsafe {}
    fn inner() {}
    out[0] = 1.0;
}

fn main() {}

use dsl_runtime::prelude::*;
use fuse_book::vector_add::vector_add;

// ANCHOR: launch
fn double(device: &Device, x: &mut Buffer<f32>) -> dsl_runtime::Result<()> {
    let n = x.len() as i32;
    vector_add::<f32, 1024>(&*x, &*x, &mut *x, n).grid(1).launch(device)
}

fn add(device: &Device, x: &Buffer<f16>, out: &mut Buffer<f16>) -> dsl_runtime::Result<()> {
    vector_add::<f16, 1024>(x, x, out, x.len() as i32).grid(1).launch(device)
}
// ANCHOR_END: launch

fn main() {}

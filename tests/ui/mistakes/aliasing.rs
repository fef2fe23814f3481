use dsl_runtime::prelude::*;

#[fuse_kernel]
fn copy(x: &[f32], out: &mut [f32], more: &mut [f32]) {
    tl::store(out, tl::load(x));
}

fn call(mut a: Buffer<f32>, mut b: Buffer<f32>, device: &Device) -> dsl_runtime::Result<()> {
    copy(&a, &mut a, &mut b).grid(1).launch(device)?;
    copy(&a, &mut b, &mut b).grid(1).launch(device)?;
    let kept = copy(&a, &mut b, &mut a);
    Ok(())
}

fn main() {}

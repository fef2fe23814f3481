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

#[fuse_kernel]
fn copy_block(x: &View<f32, 2>, out: &mut View<f32, 2>) {
    out.store(x.load::<4, 4>(0, 0), 0, 0);
}

fn call_with_views(mut a: Buffer<f32>, device: &Device) -> dsl_runtime::Result<()> {
    copy_block(a.view([4, 4])?, a.view_mut([4, 4])?).grid(1).launch(device)?;
    let mut view = a.view_mut([8, 8])?;
    copy_block(&view, &mut view).grid(1).launch(device)
}

fn main() {}

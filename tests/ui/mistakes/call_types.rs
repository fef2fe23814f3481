use dsl_runtime::Result;
use dsl_runtime::prelude::*;

#[fuse_kernel]
fn add(x: &[f32], out: &mut [f32], n: i32) {
    let i = tl::arange(0, 64);
    tl::store(out + i, tl::load(x + i, i < n), i < n);
}

#[fuse_kernel]
fn trace(x: &View<f32, 2>, sums: &View<i64, 1>, out: &mut View<f32, 2>) {
    let block = x.load::<16, 16>(0, 0);
    out.store(block * sums.shape(0).to::<f32>(), 0, 0);
}

fn slices(device: &Device, x: &Buffer<f32>, y: &mut Buffer<f32>, n: Vec<i32>) -> Result<()> {
    let _ = add(vec![1.0f32; 8], &mut *y, 8);
    let _ = add(&n, &mut *y, 8);
    let _ = add(x, x, 8);
    let _ = add(x, &vec![1.0f32; 8], 8);
    let _ = add(x, device.zeros::<f32>(8), 8);
    let _ = add(Some(x), &mut *y, 8);
    let _ = add(x.view([2, 4])?, &mut *y, 8);
    Ok(())
}

fn views(x: &Buffer<f32>, n: &Buffer<i64>, out: &mut Buffer<f32>) -> Result<()> {
    let _ = trace(x, n, &mut *out);
    let _ = trace(x.view([2, 4]), n.view([8])?, out.view_mut([2, 4]));
    let _ = trace(x.view([8])?, x.view([8])?, out.view_mut([2, 2, 2])?);
    let _ = trace(&x.view([2, 4])?, n.view([8])?, x.view([2, 4])?);
    Ok(())
}

fn grids(device: &Device, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
    add(x, &mut *y, 8).grid(1.5).launch(device)?;
    add(x, &mut *y, 8).grid("1").launch(device)?;
    add(x, &mut *y, 8).grid((1, 2, 3, 4)).launch(device)?;
    add(x, &mut *y, 8).grid((1, 2.5)).launch(device)?;
    add(x, &mut *y, 8).grid([1, 2]).launch(device)?;
    add(x, &mut *y, 8).grid_by(|_| 0.5).launch(device)?;
    add(x, &mut *y, 8).grid(1, 2).launch(device)
}

fn main() {}

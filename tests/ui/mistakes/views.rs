use dsl_runtime::prelude::*;

#[fuse_kernel]
fn signature(x: &View<f32, 6>, y: &View<f32>, z: View<f32, 2>) {}

#[fuse_kernel(N = [60, 64])]
fn blocks<const N: usize>(x: &View<f32, 2>, out: &mut View<f16, 2>) {
    let block = x.load::<N, 17>(0, 0);
    let line = x.load::<N>(0, 0);
    x.load::<N, 16>(0);
    out.store(x.load::<N, 16>(0, 0), 0, 0);
    out.store(tl::zeros::<f16>([N]), 0, 0);
    x.store(tl::zeros::<f32>([N, 16]), 0, 0);
    x.shape(2);
}

#[fuse_kernel]
fn copy(x: &View<f32, 1>, out: &mut View<f32, 1>) {
    out.store(x.load::<64>(0), 0);
}

fn call(mut a: Buffer<f32>, device: &Device) -> dsl_runtime::Result<()> {
    copy(a.view([8, 8])?, a.view_mut([64])?).grid(1).launch(device)
}

fn main() {}

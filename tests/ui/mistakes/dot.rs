use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f16], M = [16], K = [32])]
fn products<T: Float, const M: usize, const K: usize>(x: &[T], y: &[f32], out: &mut [f32]) {
    let (rows, inner) = (tl::arange(0, M), tl::arange(0, K));
    let a = tl::load(x + rows.col() * K + inner.row());
    let b = tl::load(y + rows.col() * K + inner.row());
    let c = tl::dot(a, a);
    let d = tl::dot(a, tl::trans(b));
    let e = tl::dot(a, tl::trans(a), tl::zeros::<T>([M, M]));
    let f = tl::dot(a, tl::trans(a), tl::zeros::<f32>([M, K]));
    let g = tl::dot(inner, a);
    let h = tl::dot(tl::slice(a, 1, 0, 8), tl::trans(tl::slice(a, 1, 0, 8)));
}

#[fuse_kernel(N = [256])]
fn too_large<const N: usize>(x: &[f32], out: &mut [f32]) {
    let places = tl::arange(0, N).col() * N + tl::arange(0, N).row();
    let tile = tl::load(x + places);
    tl::store(out + places, tl::dot(tile, tile));
}

fn main() {}

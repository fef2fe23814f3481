use dsl_runtime::prelude::*;

#[fuse_kernel(M = [256], N = [512])]
fn transposed<const M: usize, const N: usize>(x: &[f32], out: &mut [f32], squared: &mut [f32]) {
    let rows = tl::arange(0, M);
    let columns = tl::arange(0, N);
    let tile = tl::load(x + rows.col() * N + columns.row());
    tl::store(out + columns.col() * M + rows.row(), tl::trans(tile));
    let squares = tl::trans(tile * tile);
    tl::store(squared + columns.col() * M + rows.row(), squares);
}

fn main() {}

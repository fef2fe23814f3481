#![deny(unused_imports)]

// What a kernel uses counts as used, and what it lacks is reported once.
mod enough {
    use dsl_runtime::{Float, f16, fuse_kernel, tl};

    #[fuse_kernel(T = [f32, f16], N = [64])]
    fn enough<T: Float, const N: usize>(x: &[T], h: &[f16], out: &mut [T]) {
        tl::store(out + tl::arange(0, N), tl::load(x + tl::arange(0, N)));
    }
}

mod too_few {
    use dsl_runtime::fuse_kernel;

    #[fuse_kernel]
    fn too_few(x: &[f32], out: &mut [f32]) {
        tl::store(out, tl::load(x));
    }
}

fn main() {}

use dsl_runtime::prelude::*;

struct S;

impl S {
    #[fuse_kernel(N = [64])]
    pub fn with_self<const N: usize>(&self, x: &[f32]) {}

    #[fuse_kernel(N = [64])]
    pub fn associated<const N: usize>(out: &mut [f32]) {
        tl::store(out, 1.0);
    }
}

#[fuse_struct]
struct Alone {
    x: Tile<f32>,
}

trait Tr {
    #[fuse_kernel]
    fn in_trait(out: &mut [f32]) {
        tl::store(out, 1.0);
    }
}

#[fuse_kernel]
fn syntax_error(out: &mut [f32], n: i32) {
    let y = n +;
    tl::where(n > 0, 1, 2);
}

fn calls(out: &mut [f32]) {
    S.with_self::<64>(&[1.0f32][..]).grid(1);
    S::associated::<64>(&mut *out);
    syntax_error(out, 1);
}

fn forgotten<T: Float>(x: Tile<T>) -> Tile<T> {
    let y = tl::maximum(x, 0.0);
    y * 2.0 + x
}

#[fuse_kernel]
fn one() {}
#[fuse_kernel]
fn one() {}

mod private {
    use dsl_runtime::prelude::*;
    #[fuse_kernel]
    fn hidden(out: &mut [f32]) { tl::store(out, 1.0); }
}

macro_rules! kernel {
    ($name:ident, $n:literal, $t:ty, $e:expr) => {
        #[fuse_kernel(N = [$n], T = [$t])]
        pub fn $name<T: Float, const N: usize>(x: &[$t], out: &mut [T]) {
            let unused_here = $e;
            tl::store(out + tl::arange(0, N), ($e * 2.0).to::<T>() + tl::load(x + tl::arange(0, $n)));
        }
    };
}
kernel!(made, 64, f32, 1.0 + 2.0);

#[fuse_module]
mod m {
    use dsl_runtime::prelude::*;
    #[fuse_fn]
    fn never_called(x: Tile<f32>) -> Tile<f32> {
        undefined + x.too()
    }
}

#[fuse_module]
mod broken {
    use dsl_runtime::prelude::*;
    #[fuse_fn]
    fn never_called(x: Tile<f32>) -> Tile<f32> {
        x +
    }
}

fn main() {
    private::hidden(&mut [1.0f32][..]);
}

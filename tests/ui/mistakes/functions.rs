use dsl_runtime::prelude::*;

#[fuse_fn]
fn alone(x: Tile<f32>) -> Tile<f32> {
    x
}

#[fuse_kernel]
fn beside(out: &mut [f32]) {
    tl::store(out, alone(1.0));
}

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    const SLOPE: f32 = 0.01;

    #[fuse_fn]
    fn mixed<T: Float>(x: Tile<T>) -> Tile<T> {
        x * SLOPE
    }

    #[fuse_fn]
    fn forever(x: Tile<f32>) -> Tile<f32> {
        again(x)
    }

    #[fuse_fn]
    fn again(x: Tile<f32>) -> Tile<f32> {
        forever(x)
    }

    #[fuse_kernel(T = [f32, f16])]
    pub fn calls<T: Float>(x: &[T], out: &mut [f32], n: i32) {
        if n == 0 {
            return;
        }
        let y = mixed(tl::load(x + tl::arange(0, 64)));
        forever(1.0);
        let sum = tl::reduce(y, 0, |a, b| a + b * n);
        match n {
            1 => tl::store(out, 1.0),
            2 => return,
        }
    }
}

fn main() {}

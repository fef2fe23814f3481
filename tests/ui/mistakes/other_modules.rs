use dsl_runtime::prelude::*;

#[fuse_module]
mod math {
    use dsl_runtime::prelude::*;

    pub enum Activation {
        None,
        Relu,
    }

    #[fuse_fn]
    pub fn activate<T: Float, const ACT: u32>(x: Tile<T>) -> Tile<T> {
        match ACT {
            Activation::None => x,
            _ => tl::maximum(x, 0.0),
        }
    }

    #[fuse_fn]
    pub fn row_sums(x: Tile<f32>, scale: impl Fn(Tile<f32>) -> Tile<f32>) -> Tile<f32> {
        tl::sum(scale(x), 1)
    }

    mod inside {
        #[dsl_runtime::fuse_module]
        pub mod hidden {
            use dsl_runtime::prelude::*;

            #[fuse_fn]
            fn private(x: Tile<f32>) -> Tile<f32> {
                x
            }
        }
    }
    pub use inside::hidden;

    pub fn host(x: f32) -> f32 {
        x
    }
}

#[fuse_module]
mod calls {
    use super::math::{self, Activation, activate, row_sums};
    use dsl_runtime::prelude::*;

    #[fuse_kernel]
    pub fn too_few_axes(x: &[f32], out: &mut [f32]) {
        let x = tl::load(x + tl::arange(0, 64));
        tl::store(out, row_sums(x, |x| x));
    }

    #[fuse_kernel]
    pub fn too_many_arguments(x: &[f32], out: &mut [f32]) {
        tl::store(out, math::activate::<f32, 1>(tl::load(x), 2.0));
    }

    #[fuse_kernel]
    pub fn another_type(x: &[i32], out: &mut [i32]) {
        tl::store(out, activate::<i32, { Activation::Relu }>(tl::load(x)));
    }

    #[fuse_kernel]
    pub fn no_such_variant(x: &[f32], out: &mut [f32]) {
        tl::store(out, activate::<f32, { Activation::Gelu }>(tl::load(x)));
    }

    #[fuse_kernel]
    pub fn in_a_closure(x: &[f32], out: &mut [f32]) {
        let x = tl::load(x + tl::arange(0, 64)).row();
        tl::store(out + tl::arange(0, 1), row_sums(x, |x| x * sacle));
    }
}

#[fuse_kernel]
fn missing(x: &[f32], out: &mut [f32]) {
    use math::activat;
    tl::store(out, activat::<f32, 1>(tl::load(x)));
}

#[fuse_kernel]
fn private(x: &[f32], out: &mut [f32]) {
    use math::hidden::private as own;
    tl::store(out, own(tl::load(x)));
}

#[fuse_kernel]
fn of_rust(out: &mut [f32]) {
    use math::host;
    tl::store(out, host(1.0));
}

#[fuse_kernel]
fn not_used(x: &[f32], out: &mut [f32]) {
    tl::store(out, activate::<f32, 1>(tl::load(x)));
}

fn main() {}

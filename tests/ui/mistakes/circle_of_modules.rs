// Modules whose functions are made of each other's.
#[dsl_runtime::fuse_module]
mod a {
    use super::b::g;
    use dsl_runtime::prelude::*;

    #[fuse_fn]
    pub fn f(x: Tile<f32>) -> Tile<f32> {
        g(x)
    }
}

#[dsl_runtime::fuse_module]
mod b {
    use super::a::f;
    use dsl_runtime::prelude::*;

    #[fuse_fn]
    pub fn g(x: Tile<f32>) -> Tile<f32> {
        f(x)
    }
}

fn main() {}

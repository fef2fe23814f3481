//! What rustc takes out of kernels by `cfg`: statements, arms, parameters, items and elements. No build has the feature
//! `never`.

use dsl_runtime::prelude::*;

/// Stores 1 to 11, each at its place; everything that is configured out would store 100 or not compile.
#[fuse_kernel]
pub fn configured(
    #[cfg(feature = "never")] first: f32,
    out: &mut [i32],
    #[cfg(not(feature = "never"))] n: i32,
    #[cfg(any())] last: Unknown,
) {
    #[cfg(any())]
    tl::store(out, 100);
    #[cfg(not(feature = "never"))]
    tl::store(out, 1);
    #[cfg(debug_assertions)]
    tl::store(out + 1, 2);
    #[cfg(not(debug_assertions))]
    tl::store(out + 1, 2);
    #[cfg(feature = "never")]
    let third = n * 100;
    #[cfg(not(feature = "never"))]
    let third = n * 3;
    tl::store(out + 2, third);
    for i in 3..5 {
        #[cfg_attr(all(), allow(unused_variables))]
        let unused = i;
        tl::store(out + i, i + 1);
        #[cfg(any())]
        tl::store(out + i, 100);
    }
    #[cfg(any())]
    for i in 0..11 {
        tl::store(out + i, 100);
    }
    match n {
        #[cfg(any())]
        1 => tl::store(out + 5, 100),
        #[cfg(not(feature = "never"))]
        1 => tl::store(out + 5, 6),
        _ => {}
    }
    if n == 1 {
        #[cfg(any())]
        return;
    }
    #[cfg(any())]
    const SEVENTH: i32 = 100;
    #[cfg(unix)]
    const SEVENTH: i32 = 7;
    #[cfg(not(unix))]
    const SEVENTH: i32 = 7;
    tl::store(out + 6, SEVENTH);
    #[cfg(any())]
    fn eighth(x: i32) -> i32 {
        x * 100
    }
    #[cfg(not(feature = "never"))]
    fn eighth(#[cfg(any())] gone: i32, x: i32) -> i32 {
        x + 7
    }
    tl::store(
        out + 7,
        eighth(
            #[cfg(any())]
            100,
            n,
        ),
    );
    let pair = (
        #[cfg(any())]
        100,
        9,
        10,
    );
    tl::store(out + 8, pair.0);
    let last = |#[cfg(any())] gone: i32, x: i32| {
        #[cfg(any())]
        return 100;
        x + 1
    };
    tl::store(out + 9, pair.1);
    tl::store(out + 10, last(pair.1));
}

#[fuse_module]
mod module {
    use dsl_runtime::prelude::*;

    #[cfg(feature = "never")]
    const FIRST: i32 = 100;
    #[cfg(not(feature = "never"))]
    const FIRST: i32 = 1;

    #[cfg(any())]
    #[fuse_fn]
    fn twice(x: i32) -> i32 {
        x * 100
    }

    #[cfg(not(feature = "never"))]
    #[fuse_fn]
    fn twice(x: i32) -> i32 {
        #[cfg(any())]
        return x * 100;
        x * 2
    }

    #[cfg(any())]
    #[fuse_kernel]
    pub fn of_module(out: &mut [i32]) {
        tl::store(out, 100);
    }

    /// Stores 1 and 2.
    #[cfg_attr(all(), fuse_kernel)]
    pub fn of_module(out: &mut [i32]) {
        tl::store(out, FIRST);
        tl::store(out + 1, twice(FIRST));
    }
}

pub use module::of_module;

macro_rules! kernel {
    ($name:ident, $value:expr, $condition:meta) => {
        /// Stores the value, which the conditions leave alone.
        #[fuse_kernel]
        pub fn $name(out: &mut [i32]) {
            tl::store(out, $value);
            #[$condition]
            tl::store(out, 100);
            #[cfg(any())]
            tl::store(out, 100);
        }
    };
}

kernel! { of_macro, 1 + 2, cfg(any()) }

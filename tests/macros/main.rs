//! Kernels that a `macro_rules` makes: all have the place of the tokens in its body, and each has its own code. And kernels that use
//! functions, constants and enums of another crate.

use dsl_runtime::prelude::*;

/// Modules with a kernel of one name each.
macro_rules! scaled {
    ($($module:ident: $factor:literal),*) => {
        $(mod $module {
            use dsl_runtime::prelude::*;

            #[fuse_kernel(BLOCK = [64])]
            pub fn scaled<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
                let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
                let mask = offsets < n;
                tl::store(out + offsets, tl::load(x + offsets, mask) * $factor, mask);
            }
        })*
    };
}

// Three of one call, of which two are the same, and one of another call.
scaled!(five: 5.0, six: 6.0, also_six: 6.0);
scaled!(seven: 7.0);

#[test]
fn kernels_of_one_macro_have_their_own_code() {
    let (device, x) = (Device::cpu(), [1.0f32, 2.0]);
    let run = |kernel: for<'k> fn(&'k [f32], &'k mut [f32], i32) -> Launch<'k, 3>| {
        let mut out = [0.0f32; 2];
        kernel(&x, &mut out, 2).grid(1).launch(&device).expect("a launch");
        out
    };
    let found = [
        run(|x, out, n| five::scaled::<64>(x, out, n)),
        run(|x, out, n| six::scaled::<64>(x, out, n)),
        run(|x, out, n| also_six::scaled::<64>(x, out, n)),
        run(|x, out, n| seven::scaled::<64>(x, out, n)),
    ];
    assert_eq!(found, [[5.0, 10.0], [6.0, 12.0], [6.0, 12.0], [7.0, 14.0]]);
}

/// A function with a kernel of its own.
macro_rules! filled_with {
    ($function:ident, $value:literal) => {
        fn $function(device: &Device) -> f32 {
            #[fuse_kernel]
            fn fill(out: &mut [f32]) {
                tl::store(out, $value);
            }
            let mut out = [0.0f32];
            fill(&mut out).grid(1).launch(device).expect("a launch");
            out[0]
        }
    };
}

filled_with!(one, 1.0);
filled_with!(two, 2.0);

#[test]
fn kernels_in_functions_of_one_macro_have_their_own_code() {
    let device = Device::cpu();
    assert_eq!([one(&device), two(&device)], [1.0, 2.0]);
}

#[fuse_module]
mod of_another_crate {
    use dsl_runtime::prelude::*;
    use fuse_test_kernels::functions::terms::{self, BLOCK, Term, sum_of as sum};

    // Functions of `terms` mean their own.
    const EXPONENT: usize = 7;

    #[fuse_kernel(TERM = [Term::Itself, terms::Term::Power])]
    pub fn sums<const TERM: u32>(x: &[f32], out: &mut [f32], shift: f32) {
        let x = tl::load(x + tl::arange(0, BLOCK));
        tl::store(out, sum::<f32, TERM>(x, |x| x + shift));
        tl::store(out + 1, (EXPONENT as i32).to::<f32>());
    }
}

#[fuse_kernel]
fn names_in_its_body(x: &[f32], out: &mut [f32]) {
    use fuse_test_kernels::functions::terms::{BLOCK, Term, sum_of};
    tl::store(out, sum_of::<f32, { Term::Power }>(tl::load(x + tl::arange(0, BLOCK)), |x| x));
}

#[test]
fn kernels_use_items_of_another_crate() {
    use fuse_test_kernels::functions::terms::Term;

    let (device, x) = (Device::cpu(), [2.0f32; 64]);
    let mut out = [0.0f32; 2];
    of_another_crate::sums::<{ Term::Itself as u32 }>(&x, &mut out, 1.0)
        .grid(1)
        .launch(&device)
        .expect("a launch");
    assert_eq!(out, [3.0 * 64.0, 7.0]);
    of_another_crate::sums::<{ Term::Power as u32 }>(&x, &mut out, 1.0)
        .grid(1)
        .launch(&device)
        .expect("a launch");
    assert_eq!(out, [5.0 * 64.0, 7.0]);
    names_in_its_body(&x, &mut out).grid(1).launch(&device).expect("a launch");
    assert_eq!(out[0], 4.0 * 64.0);
}

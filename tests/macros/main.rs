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

/// `f16` and `bf16`.
trait Narrow: Float {}

impl Narrow for f16 {}
impl Narrow for bf16 {}

#[fuse_kernel(T = [f16, bf16], NEGATIVE = [false, true], BLOCK = [2])]
fn tripled<T: Narrow, const NEGATIVE: bool, const BLOCK: usize>(x: &[T], out: &mut [T]) {
    let i = tl::arange(0, BLOCK);
    let x = tl::load(x + i);
    tl::store(out + i, tl::select(NEGATIVE, -x - x - x, x + x + x));
}

/// The kernel's own bounds are enough: a caller names no variant.
fn triple<T: Narrow, const NEGATIVE: bool>(x: [f64; 2]) -> [f64; 2] {
    let (x, mut out) = (x.map(T::from_f64), [T::from_f64(0.0); 2]);
    let call = tripled::<T, NEGATIVE, 2>(&x, &mut out).grid(1);
    call.launch(&Device::cpu()).expect("a launch");
    out.map(T::to_f64)
}

#[test]
fn generic_code_calls_a_kernel_by_a_trait_of_its_own() {
    let found = [triple::<f16, false>([1.0, -2.0]), triple::<bf16, true>([1.0, -2.0])];
    assert_eq!(found, [[3.0, -6.0], [-3.0, 6.0]]);
}

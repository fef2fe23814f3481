//! Modules marked `#[fuse_module]`: their functions, constants and enums, as their kernels see them.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::testing::{module, render};

/// The tile IR of a module's kernels.
fn check_module(source: &str, expected: Expect) {
    let (funcs, errors) = module(source);
    assert!(errors.is_empty(), "{}", render(&errors, source));
    let texts: Vec<String> = funcs.iter().map(|func| ir::print(func, &|_| None)).collect();
    expected.assert_eq(&texts.concat());
}

/// Every mistake of a module.
fn check_errors(source: &str, expected: Expect) {
    let (_, errors) = module(source);
    expected.assert_eq(&render(&errors, source));
}

#[test]
fn functions_constants_and_enums() {
    check_module(
        "mod activations {
            const SLOPE: f32 = 1.0 / 128.0;
            pub const WIDTH: usize = 32 * 2;
            pub enum Activation { None, Relu = 4, Leaky }

            #[fuse_fn]
            fn activate<T: Float, const ACT: u32>(x: Tile<T>) -> Tile<T> {
                match ACT {
                    Activation::None => x,
                    Activation::Relu => tl::maximum(x, 0.0),
                    Activation::Leaky => leaky(x.to::<f32>()).to::<T>(),
                    _ => tl::no_such_function(x),
                }
            }

            #[fuse_fn]
            fn leaky(x: Tile<f32>) -> Tile<f32> { tl::select(x < 0.0, x * SLOPE, x) }

            #[fuse_kernel(T = [f16], ACT = [Activation::Leaky])]
            pub fn apply<T: Float, const ACT: u32>(out: &mut [T]) {
                let p = out + tl::arange(0, WIDTH);
                tl::store(p, activate::<_, ACT>(tl::load(p)));
            }

            #[fuse_kernel(ACT = [Activation::Relu])]
            pub fn apply_to_f32<const ACT: u32>(out: &mut [f32]) {
                let p = out + tl::arange(0, WIDTH);
                tl::store(p, activate::<f32, ACT>(tl::load(p)));
            }
        }",
        expect![[r#"
            kernel apply(out: &mut [f16]) {
              %0 = arange 0 : i32[64]
              %1 = load out[%0] : f16[64]
              %2 = cast %1 : f32[64]
              %3 = constant 0.0 : f32
              %4 = splat %3 : f32[64]
              %5 = lt %2, %4 : bool[64]
              %6 = constant 0.0078125 : f32
              %7 = splat %6 : f32[64]
              %8 = mul %2, %7 : f32[64]
              %9 = select %5, %8, %2 : f32[64]
              %10 = cast %9 : f16[64]
              store %10, out[%0]
            }
            kernel apply_to_f32(out: &mut [f32]) {
              %0 = arange 0 : i32[64]
              %1 = load out[%0] : f32[64]
              %2 = constant 0.0 : f32
              %3 = splat %2 : f32[64]
              %4 = maximum %1, %3 : f32[64]
              store %4, out[%0]
            }
        "#]],
    );
}

#[test]
fn mistakes_stand_where_they_are_made() {
    check_errors(
        "mod m {
            #[fuse_fn(inline)]
            #[cfg(unix)]
            fn f(x: Vec<f32>) -> Tile<f32> { x }
            #[fuse_fn]
            fn f(x: Tile<f32>) -> Tile<f32> { x }
            #[fuse_fn]
            fn mixed<T: Float>(x: Tile<T>) -> Tile<T> { x + 1i32 }
            #[fuse_fn]
            fn empty(x: Tile<f32>) -> Tile<f32> {}
            #[fuse_fn]
            fn full(x: Tile<f32>) { x }
            #[fuse_fn]
            fn of<T: Float, const N: usize>() -> Tile<T> { tl::zeros::<T>([N]) }
            const BIG: usize = size_of::<u8>();
            const LOOP: usize = LOOP + 1;
            enum E { A }

            #[fuse_kernel(T = [f16, f32])]
            fn k<T: Float>(x: &[T], out: &mut [f32]) {
                mixed(tl::load(x));
                empty(1.0);
                full(1.0);
                of::<f32>();
                of();
                of::<f32, BIG>();
                of::<f32, LOOP>();
                of::<f32, { E::B as usize }>();
                mixd(1.0);
                other::mixed(1.0);
            }
            #[fuse_kernel]
            fn l(out: &mut [f32]) { mixed(tl::load(out)); }
        }",
        expect![[r#"
            2: `inline`: `fuse_fn` takes no arguments
            4: `Vec<f32>`: this type has no meaning in a kernel
                help: memory is a slice, `&[f32]`: calls pass a buffer for it
            6: `f`: `f` is defined twice
            8: `+`: `+` needs one element type, found f16 and i32
                help: a number without a suffix has the type of what stands beside it: write `1.0`
                note: in the call of `mixed` on line 21
            8: `+`: `+` needs one element type, found f32 and i32
                help: a number without a suffix has the type of what stands beside it: write `1.0`
                note: in the call of `mixed` on line 33
            10: `}`: `empty` gives a value, but its body ends without one
                help: the value is the last expression, without a semicolon behind it
                note: in the call of `empty` on line 22
            12: `x`: `full` gives nothing, but its body ends with the float 1.0
                help: say what it gives: `-> Tile<f32>`
                note: in the call of `full` on line 23
            15: `size_of`: `size_of` cannot be called in a constant
                help: a kernel knows constants made of literals, operators and other constants
            16: `LOOP`: the value of `LOOP` is made of itself
            24: `of`: `of` takes 2 generic arguments, found 1
            25: `of`: the constant `N` of `of` is not known here
                help: give it: `of::<_, 64>(..)`
            28: `E::B`: `E` has no variant `B`
                help: it has `A`
            28: `usize`: `usize` is not an element type
                help: memory and scalars have a fixed width: use `i64` or `i32`
            29: `mixd`: `mixd` is not a function here
                help: did you mean `mixed`?
            30: `other::mixed`: `other::mixed` cannot be called in a kernel
                help: kernels call the functions of `tl::`, and those marked `#[fuse_fn]` in the same `#[fuse_module]`: one of another module is not seen
        "#]],
    );
}

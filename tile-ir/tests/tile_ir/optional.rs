//! Optional parameters: a variant for each set of those that are there.

use expect_test::{Expect, expect};
use tile_ir::frontend::typeck;
use tile_ir::ir;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::mistakes;
use tile_ir::testing::render;
use tile_ir::testing::sources::kernels;

/// The IR of every variant.
fn check_variants(source: &str, expected: Expect) {
    let kernel = kernels(source).remove(0);
    let mut text = String::new();
    for variant in typeck::variants(&kernel, &mut Errors::new()) {
        let checked = typeck::check(&kernel, &variant).unwrap_or_else(|errors| panic!("{errors:?}"));
        text += &format!("{variant}\n{}", ir::print(&checked.func, &|_| None));
    }
    expected.assert_eq(&text);
}

fn check_mistakes(source: &str, expected: Expect) {
    expected.assert_eq(&render(&mistakes(source), source));
}

#[test]
fn what_is_not_there_is_not_part_of_the_variant() {
    check_variants(
        "#[fuse_kernel(T = [f32])]
        fn k<T: Float>(x: &mut [T], bias: Option<&[T]>) {
            let y = tl::load(x);
            let y = if let Some(b) = bias { y + tl::load(b + 1) } else { y };
            tl::store(x, y, bias.is_none());
        }",
        expect![[r#"
            T = f32, bias_is_some = false
            kernel k(x: &mut [f32], bias: &[f32]) {
              %0 = constant 0 : i32
              %1 = load x[%0] : f32
              %2 = constant 1 : bool
              store %1, x[%0] mask %2
            }
            T = f32, bias_is_some = true
            kernel k(x: &mut [f32], bias: &[f32]) {
              %0 = constant 0 : i32
              %1 = load x[%0] : f32
              %2 = constant 1 : i32
              %3 = load bias[%2] : f32
              %4 = add %1, %3 : f32
              %5 = constant 0 : bool
              store %4, x[%0] mask %5
            }
        "#]],
    );
}

#[test]
fn functions_take_options() {
    check_variants(
        "#[fuse_kernel(sums_is_some = [true])]
        fn k(x: &View<f32, 1>, y: Option<&View<f32, 1>>, sums: Option<&mut View<f32, 1>>) {
            fn read<T: Float>(x: Option<&View<T, 1>>, at: i32) -> Tile<T> {
                match x {
                    None => tl::zeros::<T>([4]),
                    Some(x) => x.load::<4>(at),
                }
            }
            if let Some(sums) = sums {
                sums.store(x.load::<4>(0) + read(y, 8), 0);
            }
        }",
        expect![[r#"
            y_is_some = false, sums_is_some = true
            kernel k(x: &View<f32, 1>, %0 x.shape(0): i64, %1 x.stride(0): i64, y: &View<f32, 1>, %2 y.shape(0): i64, %3 y.stride(0): i64, sums: &mut View<f32, 1>, %4 sums.shape(0): i64, %5 sums.stride(0): i64) {
              %6 = constant 0 : i32
              %7 = load_view x(%6) : f32[4]
              %8 = constant 0.0 : f32
              %9 = splat %8 : f32[4]
              %10 = add %7, %9 : f32[4]
              store_view %10, sums(%6)
            }
            y_is_some = true, sums_is_some = true
            kernel k(x: &View<f32, 1>, %0 x.shape(0): i64, %1 x.stride(0): i64, y: &View<f32, 1>, %2 y.shape(0): i64, %3 y.stride(0): i64, sums: &mut View<f32, 1>, %4 sums.shape(0): i64, %5 sums.stride(0): i64) {
              %6 = constant 0 : i32
              %7 = load_view x(%6) : f32[4]
              %8 = constant 8 : i32
              %9 = load_view y(%8) : f32[4]
              %10 = add %7, %9 : f32[4]
              store_view %10, sums(%6)
            }
        "#]],
    );
}

#[test]
fn calls_of_functions_say_what_there_is() {
    check_variants(
        "#[fuse_kernel]
        fn k(x: &mut [f32], y: &[f32]) {
            fn read<T: Float>(x: Option<&[T]>, at: i32) -> T {
                if let Some(x) = x { tl::load(x + at) } else { 0.0 }
            }
            tl::store(x, read::<f32>(Some(y), 1) + read::<f32>(Some(y + 2), 1) + read::<f32>(None, 1));
        }",
        expect![[r#"

            kernel k(x: &mut [f32], y: &[f32]) {
              %0 = constant 1 : i32
              %1 = load y[%0] : f32
              %2 = constant 2 : i32
              %3 = add %2, %0 : i32
              %4 = load y[%3] : f32
              %5 = add %1, %4 : f32
              %6 = constant 0.0 : f32
              %7 = add %5, %6 : f32
              %8 = constant 0 : i32
              store %7, x[%8]
            }
        "#]],
    );
    check_mistakes(
        "#[fuse_kernel] fn k(x: &mut [f32], y: &[i32]) {
            fn read(x: Option<&[f32]>) -> f32 {
                if let Some(x) = x { tl::load(x) } else { 0.0 }
            }
            tl::store(x, read(Some(y)));
            tl::store(x, read(Some(1.0)));
            tl::store(x, tl::load(None));
            tl::store(x, tl::load(Some(x)));
        }",
        expect![[r#"
            5: `Some(y)`: argument 1 of `read` is memory of f32, found i32
                help: declare the parameter `&[i32]`
            6: `Some`: `Some` cannot be called in a kernel
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            7: `None`: `tl::load` takes a pointer, found an option
                help: bind what it holds: `if let Some(x) = x { .. }`
            8: `Some(x)`: `tl::load` takes a pointer, found an option
                help: bind what it holds: `if let Some(x) = x { .. }`
        "#]],
    );
}

#[test]
fn options_are_bound_before_they_are_used() {
    check_mistakes(
        "#[fuse_kernel] fn k(x: &mut [f32], bias: Option<&[f32]>, n: Option<i32>) {
            fn add(x: &[f32], y: Option<&[f32]>) {}
            tl::store(x, tl::load(bias));
            let y = bias + 1;
            let z = bias.len();
            add(bias, x);
            if let Some(b) = tl::load(x) { tl::store(x, 1.0); }
            if let Some((a, b)) = bias { tl::store(x, 1.0); }
            if let Some(b) = x { tl::store(x, 1.0); }
            tl::store(x, tl::load(bias.unwrap()));
            match bias { Some(b) => tl::store(x, tl::load(b)), None => y.undefined }
        }",
        expect![[r#"
            1: `i32`: an optional parameter is memory
                help: pass the scalar with a number that stands for none
            3: `bias`: `tl::load` takes a pointer, found an option
                help: bind what it holds: `if let Some(x) = x { .. }`
            4: `bias`: `+` takes tiles and scalars, found an option
                help: bind what it holds: `if let Some(x) = x { .. }`
            5: `len`: `len` is not a method of an option
                help: bind what it holds: `if let Some(x) = x { .. }`
            6: `bias`: argument 1 of `add` is a slice, or pointers into one, found an option
            6: `x`: argument 2 of `add` is an option, found a slice
            7: `tl::load(x)`: this pattern takes an optional parameter, by its name
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            8: `let Some((a, b)) = bias`: `if let` cannot be used in a kernel
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            9: `x`: this pattern is one of an option, found a slice
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            10: `unwrap`: calls may leave this parameter out, and then it is `None`
                help: bind what it holds: `if let Some(x) = x { .. }`
                note: in the variant bias_is_some = false
        "#]],
    );
}

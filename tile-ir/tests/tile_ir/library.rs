//! Mistakes in calls of the functions written in the language.

use expect_test::{Expect, expect};

use tile_ir::testing::{mistakes, render};

/// Every mistake of a kernel's body.
fn check_errors(statements: &str, expected: Expect) {
    let source = format!("#[fuse_kernel] fn k(x: &[f32], n: i32) {{\n{statements}\n}}");
    expected.assert_eq(&render(&mistakes(&source), &source));
}

#[test]
fn mistakes_stand_on_the_call() {
    check_errors(
        "let c = tl::arange(0, 64);
        tl::gelu(c);
        tl::gelu(c, c);
        tl::gelu(x);
        tl::softmax(1.0);
        tl::softmax(tl::load(x + c), 1);
        tl::softmax(tl::load(x + c), n);
        tl::softplus::<f32>(1.0);
        tl::softplus(x);
        tl::swizzle2d(0, n, 4, 4);
        tl::swizzle2d(0, n, 4, 4, 2.5);
        tl::swizzle2d(0, n, 4 as i64, 4, 2);
        let (row, col, rest) = tl::swizzle2d(0, 7, 4, 4, 2);
        tl::swizzle2d(0.0, 1.0, 4.0, 4.0, 2.0);",
        expect![[r#"
            3: `c`: `T` of `tl::gelu` is one of f16, bf16, f32 and f64, found i32
            4: `c`: `tl::gelu` takes 1 argument (x), found 2
                help: leave it out
            5: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            6: `1.0`: `tl::softmax` takes a tile, found the float 1.0
            7: `1`: axis 1 is out of range: the only axis here is 0
            8: `n`: an axis is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            9: `softplus`: `tl::softplus` takes no type arguments
                help: leave them out: types follow from the arguments
            10: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            11: `swizzle2d`: `tl::swizzle2d` takes 5 arguments (i, j, size_i, size_j, size_g), found 4
                help: write `tl::swizzle2d(0, n, 4, 4, size_g)`
            12: `2.5`: argument 5 of `tl::swizzle2d` is i32, found the float 2.5
                help: write an integer
            13: `4 as i64`: argument 3 of `tl::swizzle2d` is i32, found i64
                help: convert it: `.to::<i32>()`
            14: `(row, col, rest)`: this pattern has 3 parts, the tuple has 2
            15: `0.0`: `T` of `tl::swizzle2d` is one of i8, i16, i32, i64, u8, u16, u32 and u64, found f32
        "#]],
    );
}

//! Mistakes of inline PTX, and of hints about offsets.

use expect_test::expect;

use tile_ir::testing::{mistakes, render};

#[test]
fn mistakes_of_inline_ptx() {
    let source = "#[fuse_kernel()]
        fn k(x: &[f32], b: &[i8], out: &mut [f32], n: i32) {
            let i = tl::arange(0, 64);
            let x = tl::load(x + i);
            let y = tl::inline_ptx::<f32>(\"sin.approx.f32 $0, $2;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"sin.approx.f32 $1, $1;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"@p st.global.f32 [$1], $0;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"again: add.f32 $0, $1, $1; bra again;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=r,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (tl::load(b + i),), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (x,), |x, y| x);
            let y = tl::inline_ptx::<i32>(\"neg.f32 $0, $1;\", \"=r,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (x,), |x| tl::load(out + n));
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (x,), 3);
            let y = tl::inline_ptx::<f32>(n, \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f\", (), |x| x);
        }";
    expect![[r#"
        5: `"sin.approx.f32 $0, $2;"`: `$2` stands for nothing: there are 1 operands
        6: `"sin.approx.f32 $1, $1;"`: nothing is written to `$0`, the result
        7: `"@p st.global.f32 [$1], $0;"`: `st` does more than compute with registers
        8: `"again: add.f32 $0, $1, $1; bra again;"`: inline PTX has statements alone, without labels and comments
        9: `"=r,f"`: these constraints do not fit a result and operands of f32 and f32
            help: write `"=f,f"`
        10: `"=f,f"`: inline PTX has no register for i8
            help: convert it: `.to::<i32>()`
        11: `|x, y| x`: this function takes 2 arguments, found 1
        12: `x`: what this function gives is i32, found f32
            help: convert it: `.to::<i32>()`
        13: `out`: a combination cannot use a slice from outside of it
            help: it works on its own arguments and constants; what else it needs can be one more tile that is folded along
        13: `n`: a combination cannot use a scalar of type i32 from outside of it
            help: it works on its own arguments and constants; what else it needs can be one more tile that is folded along
        14: `3`: this is a function, found the integer 3
            help: such as `|x| x + 1.0`
        15: `n`: the PTX is a string, found a scalar of type i32
        16: `()`: expected a tile or scalar, found nothing
    "#]].assert_eq(&render(&mistakes(source), source));
}

#[test]
fn mistakes_of_hints() {
    let source = "#[fuse_kernel()]
        fn k(x: &[f32], n: i32) {
            let y = tl::multiple_of(n, 12);
            let y = tl::multiple_of(n, n);
            let y = tl::multiple_of(2.5, 4);
            let y = tl::max_contiguous(n, 4);
            let y = tl::max_constancy(n, 4);
            let y = tl::max_constancy(tl::load(x + tl::arange(0, 64)), 4);
            let y = tl::max_contiguous(tl::arange(0, 64) < n, 4);
            let y = tl::max_constancy(tl::arange(0, 64) < n, 0);
            let y = tl::max_constancy(tl::arange(0, 64) < n, 1);
        }";
    expect![[r#"
        3: `12`: `tl::multiple_of` takes a power of two, found 12
        4: `n`: what is claimed is a constant integer, found a scalar of type i32
            help: constants are literals and const parameters of the kernel
        5: `2.5`: `tl::multiple_of` takes integers, found f32
        6: `n`: `tl::max_contiguous` takes a tile, found a scalar
        7: `n`: `tl::max_constancy` takes a tile, found a scalar
        8: `tl::load(x + tl::arange(0, 64))`: `tl::max_constancy` takes integers or a mask, found f32[64]
        9: `tl::arange(0, 64) < n`: `tl::max_contiguous` takes integers, found bool[64]
        10: `0`: `tl::max_constancy` takes a power of two, found 0
    "#]]
    .assert_eq(&render(&mistakes(source), source));
}

//! The language reference: its examples are kernels, and its items are what the tables say.

use expect_test::{Expect, expect};

use super::{mistakes, render};
use crate::reference::{SETTING, examples, reference};

#[test]
fn every_example_is_a_kernel() {
    for (name, example) in examples() {
        let source = SETTING.replace("EXAMPLE", &example);
        let found = mistakes(&source);
        assert!(found.is_empty(), "the example of `{name}`:\n{}", render(&found, &source));
    }
}

/// The item called `name`.
fn check_item(name: &str, expected: Expect) {
    let file: syn::File = syn::parse2(reference()).expect("items");
    let mut found: Vec<String> = vec![];
    for item in file.items {
        match item {
            syn::Item::Fn(item) if item.sig.ident == name => found.push(text(&item.attrs, &item.sig)),
            syn::Item::Impl(item) => {
                for member in item.items {
                    if let syn::ImplItem::Fn(member) = member
                        && member.sig.ident == name
                        && !member.attrs.is_empty()
                    {
                        found.push(text(&member.attrs, &member.sig));
                    }
                }
            }
            _ => {}
        }
    }
    expected.assert_eq(&found.join("\n"));
}

fn text(attributes: &[syn::Attribute], signature: &syn::Signature) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if let syn::Meta::NameValue(meta) = &attribute.meta
            && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(doc), .. }) = &meta.value
        {
            text += &doc.value();
        }
    }
    format!("{text}{}\n", quote::quote! { #signature })
}

#[test]
fn rows_say_types_shapes_and_rounding() {
    check_item(
        "tanh",
        expect![[r#"
         The hyperbolic tangent, within 2 ULP.

        Element types: `f16`, `bf16`, `f32` and `f64`.

        `f16` and `bf16` are computed in `f32` and rounded once.

        ```ignore
        let y = tl::tanh(tile);
        ```
        fn tanh (x : impl Operand) -> Tile
    "#]],
    );
    check_item(
        "select",
        expect![[r#"
         `x` where the condition holds, `y` elsewhere. Both sides are evaluated (Triton calls it `where`).

        Element types: all.

        The condition is of `bool`, the other operands have one element type; all broadcast to one shape, which is the result's.

        ```ignore
        let y = tl::select(tile > 0.0, tile, 0.0);
        ```
        fn select (condition : impl Operand , x : impl Operand , y : impl Operand) -> Tile
    "#]],
    );
    check_item(
        "cdiv",
        expect![[r#"
         The quotient rounded up: `ceil(x / y)` of integers, exact over the whole range; `cdiv(x, 0)` is 0.

        Element types: `i8`, `i16`, `i32`, `i64`, `u8`, `u16`, `u32` and `u64`.

        The operands have one element type; all broadcast to one shape, which is the result's.

        ```ignore
        let y = tl::cdiv(n, BLOCK);
        ```
        fn cdiv (x : impl Operand , y : impl Operand) -> Tile
    "#]],
    );
    check_item(
        "shr",
        expect![[r#"
         Shift to the right, filling with the sign of a signed `x` and with zeros otherwise. Only the low bits of the
         amount count.

        Element types: `i8`, `i16`, `i32`, `i64`, `u8`, `u16`, `u32` and `u64`.

        The operands have one element type; all broadcast to one shape, which is the result's.

        fn shr (self , other : R) -> Tile
    "#]],
    );
}

#[test]
fn functions_and_methods_say_how_they_are_written() {
    check_item(
        "load",
        expect![[r#"
            Reads the elements a pointer tile points to; `slice + offsets` makes one. Where `mask` is false nothing is read and the element is `other`, or 0 without it. An offset outside the slice is masked off by the compiler, and reported by a debug build. The mask and `other` broadcast to the pointer's shape; a scalar pointer reads a scalar.

            Written `tl::load(pointer)` or `tl::load(pointer, mask)` or `tl::load(pointer, mask, other)`.

            ```ignore
            let offsets = tl::arange(0, BLOCK);
            let row = tl::load(x + offsets, offsets < n, f32::NEG_INFINITY);
            ```
            fn load (pointer : impl Operand , mask : impl Optional , other : impl Optional) -> Tile
        "#]],
    );
    check_item(
        "zeros",
        expect![[r#"
        A tile of zeros: `tl::zeros::<f32>([M, N])`.

        ```ignore
        let mut total = tl::zeros::<f32>([BLOCK]);
        ```
        fn zeros < T : crate :: Element > (shape : impl Operand) -> Tile
    "#]],
    );
    check_item(
        "expand_dims",
        expect![[r#"
        Inserts an axis of extent 1 before `axis`, as `tl::expand_dims`.

        ```ignore
        let planes = tile.expand_dims(0);
        ```
        fn expand_dims (self , axis : impl Operand) -> Tile

        Inserts an axis of extent 1 before `axis`: `[M]` becomes `[1, M]` for axis 0 and `[M, 1]` for axis 1.

        ```ignore
        let planes = tl::expand_dims(tile, 0);
        ```
        fn expand_dims (x : impl Operand , axis : impl Operand) -> Tile
    "#]],
    );
    check_item(
        "num_stages",
        expect![[r#"
            Keeps the loads of that many iterations in flight on a GPU: while one is computed, those of the next ones are copied into shared memory. It helps where iterations wait for memory, and takes shared memory from other programs. Without it the compiler chooses, up to 4, or 1 for a loop that reads a slice the kernel writes; 1 copies nothing ahead. What is copied is tiles whose places follow from the loop variable, not from loaded or carried values. Where the copies take more than 64 KB, those of a later iteration start when this one has read its own, and take the memory of one iteration less; where that is still more than a multiprocessor has, nothing is copied. It changes no result, and on a CPU nothing at all. `num_stages = n` in the attribute or a config is for the loops that do not say.

            ```ignore
            let mut sum = tile;
            for start in tl::range(0, n, BLOCK).num_stages(3) {
                sum += tl::load(x + start + tl::arange(0, BLOCK));
            }
            ```
            fn num_stages (self , stages : impl Operand) -> Range
        "#]],
    );
}

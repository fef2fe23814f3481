//! The language reference: its examples are kernels, and its items are what the tables say.

use expect_test::{Expect, expect};
use quote::ToTokens;
use tile_ir::testing::{mistakes, render};

use lowering::devtools::tl_reference::{EXAMPLE_KERNEL, examples, reference};

#[test]
fn every_example_is_a_kernel() {
    for (name, example) in examples() {
        let source = EXAMPLE_KERNEL.replace("EXAMPLE", &example);
        let found = mistakes(&source);
        assert!(found.is_empty(), "the example of `{name}`:\n{}", render(&found, &source));
    }
}

/// The item called `name`; a view's methods, which depend on its axes, with the type in front.
fn check_item(name: &str, expected: Expect) {
    let (view, name) = name.split_once("::").map_or((None, name), |(view, name)| (Some(view), name));
    let file: syn::File = syn::parse2(reference()).expect("items");
    let mut found: Vec<String> = vec![];
    for item in file.items {
        match item {
            syn::Item::Fn(item) if item.sig.ident == name => found.push(text(&item.attrs, &item.sig)),
            syn::Item::Impl(item) => {
                let own = item.self_ty.to_token_stream().to_string().replace(' ', "");
                if own.starts_with("View<") && view.is_none_or(|view| *view != own) {
                    continue;
                }
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

#[test]
fn methods_of_views_take_an_offset_for_each_axis() {
    check_item(
        "View<T,1>::load",
        expect![[r#"
        Reads the block of a view that begins at `offset`, one integer for each axis, negative ones too. The block's extents, constants, stand between `::<` and `>`; the tile has them as its shape, those of 1 included. Elements outside of the view's shape are 0 and are not read. What `tl::load` may be followed by, such as `.evict_first()`, may follow this.

        ```ignore
        let block = matrix.load::<64, 32>(tl::program_id(0) * 64, 0);
        ```
        fn load < const EXTENT_0 : usize > (& self , offset_0 : impl Operand) -> Tile

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
        "View<T,3>::store",
        expect![[r#"
        Writes a tile, which has as many axes as the view, to the block that begins at `offset`, one integer for each axis, negative ones too. Elements that come to lie outside of the view's shape are dropped. What `tl::store` may be followed by, such as `.write_through()`, may follow this.

        ```ignore
        let block = matrix.load::<64, 32>(0, 0);
        result.store(block * 2.0, 0, 0);
        ```
        fn store (& self , tile : impl Operand , offset_0 : impl Operand , offset_1 : impl Operand , offset_2 : impl Operand)

        Writes `value` to the elements a pointer tile points to, except where `mask` is false or the offset lies outside the slice. A debug build reports the latter. The value and mask broadcast to the pointer's shape. Two elements that go to one address leave either of them there.

        Written `tl::store(pointer, value)` or `tl::store(pointer, value, mask)`.

        ```ignore
        let offsets = tl::arange(0, BLOCK);
        tl::store(out + offsets, tile * 2.0, offsets < n);
        ```
        fn store (pointer : impl Operand , value : impl Operand , mask : impl Optional)
    "#]],
    );
    check_item(
        "View<T,5>::shape",
        expect![[r#"
            The extent of a view along a constant axis, an `i64`, or of the integer type between `::<` and `>`, as `.to` converts.

            ```ignore
            let columns = matrix.shape::<i32>(1);
            ```
            fn shape < To : crate :: Element > (& self , axis : impl Operand) -> Tile
        "#]],
    );
}

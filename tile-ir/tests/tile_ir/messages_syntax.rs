//! Messages of the attribute and of the signature, functions that no kernel calls, and what macros pass along.

use expect_test::{Expect, expect};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use tile_ir::frontend::syntax;
use tile_ir::frontend::typeck;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::{mistakes, module, render};

fn check_errors(source: &str, expected: Expect) {
    expected.assert_eq(&render(&mistakes(source), source));
}

/// Every mistake of an attribute.
fn check_attribute(attribute: &str, expected: Expect) {
    check_errors(
        &format!("#[fuse_kernel({attribute})] fn k<T: Float, const N: usize>(x: &[T], n: i32) {{}}"),
        expected,
    );
}

/// Every mistake of a signature.
fn check_signature(signature: &str, expected: Expect) {
    check_errors(&format!("#[fuse_kernel(T = [f32], N = [64])]\n{signature} {{}}"), expected);
}

/// The errors of the functions of a module that no kernel calls.
fn check_uncalled(source: &str, expected: Expect) {
    let mut errors = Errors::new();
    let tokens: TokenStream = source.parse().expect("tokens");
    let module = syntax::parse_module(TokenStream::new(), tokens, vec![], &mut errors).expect("a module");
    for function in module.uncalled() {
        errors.extend(typeck::check_function(function, module.items.clone()));
    }
    expected.assert_eq(&render(&errors, source));
}

/// The outline of a function for rustc's lints.
fn check_outline(source: &str, expected: Expect) {
    let item: TokenStream = source.parse().expect("tokens");
    let kernel = syntax::parse("N = n in [64]".parse().expect("tokens"), item, &mut Errors::new());
    expected.assert_eq(&kernel.expect("a kernel").source.outline.to_string());
}

#[test]
fn names_near_to_an_option_or_generic() {
    check_attribute(
        "T = [f32], N = [64], num_warp = 4, stages = 2, unchekced, warps = 3",
        expect![[r#"
        1: `num_warp`: `num_warp` is not a generic of `k`
            help: did you mean `num_warps`?
        1: `stages`: `stages` is not a generic of `k`
            help: did you mean `num_stages`?
        1: `unchekced`: `unchekced` is not an option of `fuse_kernel`
            help: did you mean `unchecked`?
        1: `warps`: `warps` is not a generic of `k`
            help: did you mean `num_warps`?
    "#]],
    );
    check_attribute(
        "T = [f32], NN = [64]",
        expect![[r#"
        1: `NN`: `NN` is not a generic of `k`
            help: did you mean `N`?
    "#]],
    );
    check_attribute(
        "t = [f32], n = [64]",
        expect![[r#"
        1: `t`: `t` is not a generic of `k`
            help: did you mean `T`?
        1: `n`: `n` is not a generic of `k`
            help: did you mean `N`?
    "#]],
    );
    check_attribute(
        "T = [f32], config = [{ N: 64 }]",
        expect![[r#"
        1: `config`: `config` is not an option of `fuse_kernel`
            help: did you mean `configs`?
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ n: 64 }, { N: 64, num_warp: 4 }]",
        expect![[r#"
        1: `n`: `n` is not a generic of `k`
            help: did you mean `N`?
        1: `num_warp`: `num_warp` is not a generic of `k`
            help: did you mean `num_warps`?
    "#]],
    );
}

#[test]
fn values_stand_behind_the_right_sign() {
    check_attribute(
        "T: [f32], N: [64, 128], num_warps(4)",
        expect![[r#"
        1: `:`: a value stands behind `=` here
            help: write `T = [f32]`
        1: `:`: a value stands behind `=` here
            help: write `N = [64, 128]`
        1: `num_warps`: the value of `num_warps` stands behind `=`
            help: write `num_warps = 4`
    "#]],
    );
    check_attribute(
        "T(f32, f16), N(64), deny(spills)",
        expect![[r#"
        1: `T`: the value of `T` stands behind `=`
            help: write `T = [f32, f16]`
        1: `N`: the value of `N` stands behind `=`
            help: write `N = [64]`
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N = 64, warps: 4 }], num_stages = 99",
        expect![[r#"
        1: `=`: a value stands behind `:` here
            help: write `N: 64`
        1: `warps`: `warps` is not a generic of `k`
            help: did you mean `num_warps`?
        1: `99`: `num_stages` is 1 to 8, found 99
    "#]],
    );
    check_attribute(
        "T = [f32], N = _ in [64, 128], tune(key: [n])",
        expect![[r#"
        1: `:`: a value stands behind `=` here
            help: write `key = [n]`
    "#]],
    );
}

#[test]
fn after_a_mistake_the_attribute_goes_on() {
    check_attribute(
        "T = [f32] N = [64], fast, num_warps = 3",
        expect![[r#"
        1: `N`: expected `,`
        1: `fast`: `fast` is not an option of `fuse_kernel`
            help: options are `NAME = [values]` for a generic, `configs = [{ .. }]`, `tune(key = [..])`, `tuned = "file"`, `num_warps = N`, `num_ctas = N`, `num_stages = N`, `maxnreg = N`, `unchecked`, `unreported` and `deny(spills)`
        1: `3`: `num_warps` is 1, 2, 4, 8, 16 or 32, found 3
    "#]],
    );
    check_attribute(
        "T = = [f32], fast",
        expect![[r#"
        1: `=`: expected an expression
        1: `fast`: `fast` is not an option of `fuse_kernel`
            help: options are `NAME = [values]` for a generic, `configs = [{ .. }]`, `tune(key = [..])`, `tuned = "file"`, `num_warps = N`, `num_ctas = N`, `num_stages = N`, `maxnreg = N`, `unchecked`, `unreported` and `deny(spills)`
    "#]],
    );
}

#[test]
fn keys_are_numbers() {
    check_attribute(
        "T = [f32], N = _ in [64, 128], tune(key = [n, \"n\", \"m\", x, n + 1])",
        expect![[r#"
        1: `"n"`: a key is a parameter or an expression of them, found a string
            help: write `n`
        1: `"m"`: a key is a parameter or an expression of them, found a string
            help: write it without quotes
        1: `x`: a key is a number, found a slice
            help: write `x.len()`
    "#]],
    );
}

#[test]
fn values_of_const_parameters() {
    check_attribute(
        "T = [f32], N = [64.0, 1.5, 1 << 7, 64..128, BLOCK, 2 * (32 + 4), f32, true, -1]",
        expect![[r#"
            1: `64.0`: `N` is a `usize`, found `64.0`
                help: write the number: `64`
            1: `1.5`: `N` is a `usize`, found `1.5`
                help: write the number
            1: `1 << 7`: `N` is a `usize`, found `1 << 7`
                help: write the number: `128`
            1: `64..128`: `N` is a `usize`, found `64..128`
                help: list the values: `N = [64, 128]`
            1: `BLOCK`: `N` is a `usize`, found `BLOCK`
                help: write the number; a constant's name stands for it where a `#[fuse_module]` holds both
            1: `2 * (32 + 4)`: `N` is a `usize`, found `2 * (32 + 4)`
                help: write the number: `72`
            1: `f32`: `N` is a `usize`, found `f32`
                help: write the number; a constant's name stands for it where a `#[fuse_module]` holds both
            1: `true`: `N` is a `usize`, found `true`
            1: `-1`: `N` is a `usize`, which holds 0 to 18446744073709551615, found -1
        "#]],
    );
    check_errors(
        "#[fuse_kernel(FLAG = [1.0, yes])] fn k<const FLAG: bool>(out: &mut [f32]) {}",
        expect![[r#"
        1: `1.0`: `FLAG` is a `bool`, found `1.0`
            help: write `false` or `true`
        1: `yes`: `FLAG` is a `bool`, found `yes`
            help: write `false` or `true`
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64.0 }]",
        expect![[r#"
            1: `64.0`: `N` is a `usize`, found `64.0`
                help: write the number: `64`
        "#]],
    );
}

#[test]
fn generics_of_kernels() {
    check_signature(
        "fn k<T: Float, const N: usize = 64>(x: &[T])",
        expect![[r#"
        2: `64`: a kernel's const parameter has no default: its values are declared in the attribute
            help: `#[fuse_kernel(N = [64])]`
    "#]],
    );
    check_signature(
        "fn k<T, const N: usize>(x: &[T]) where T: Float",
        expect![[r#"
        2: `where T: Float`: a kernel has no `where` clause; bounds are written on the type parameter
    "#]],
    );
    check_signature("fn k<T: Copy, const N: usize>(x: &[T])", expect![""]);
    check_signature("fn k<T: Float + Copy + library::Element16, const N: usize>(x: &[T])", expect![""]);
    check_signature(
        "fn k<T: Float + Integer, const N: usize>(x: &[T])",
        expect![[r#"
        2: `Float + Integer`: a kernel's type parameter is of one class
            help: bounds are `Float`, `Integer`, `Number`, `Element` and traits of your own
    "#]],
    );
}

#[test]
fn a_return_type_is_reported_once() {
    check_errors(
        "#[fuse_kernel] fn k(x: &[f32]) -> Result<(), ()> { Ok(()) }",
        expect![[r#"
        1: `Result<(), ()>`: a kernel returns nothing
            help: write results into a `&mut [T]` parameter with `tl::store`
    "#]],
    );
}

#[test]
fn a_loop_over_patterns_has_its_name() {
    check_errors(
        "#[fuse_kernel] fn k(x: &[f32]) { while let Some(v) = x.pop() {} }",
        expect![[r#"
        1: `while`: `while let` cannot be used in a kernel
            help: `while` takes a condition
    "#]],
    );
}

#[test]
fn functions_that_no_kernel_calls() {
    check_uncalled(
        "mod m {
            const SLOPE: f32 = 0.5;

            #[fuse_fn]
            fn right<T: Float, const N: usize>(x: Tile<T>, (a, b): (Tile, f32), p: &[T], f: impl Fn(T) -> T) -> Tile<T> {
                let mut y = x * SLOPE + T::MAX + a * b;
                let offsets = tl::arange(0, N);
                for i in 0..N {
                    if N == 4 { y = y + tl::load(p + offsets).to::<T>(); }
                }
                while tl::sum(y, 0) > 0.0 { y = f(y) - 1.0; }
                match N { 4 => called(y), _ => tl::reduce(y, 0, |a, b| a + b) }
            }

            #[fuse_fn]
            fn wrong(x: Tile<float>, n: i32) -> Tile<f32> {
                let y = undefined + x;
                let z = tl::no_such(x);
                if n > 0 { return x.too::<f32>(); }
                misspelled(called(y))
            }

            #[fuse_fn]
            fn called(x: Tile<f32>) -> Tile<f32> { unknown_but_called(x) }

            #[fuse_kernel]
            fn k(out: &mut [f32]) { tl::store(out, called(1.0)); }
        }",
        expect![[r#"
            16: `float`: `float` is not an element type
                help: did you mean `f32`?
            17: `undefined`: `undefined` is not defined
            18: `no_such`: `tl::no_such` does not exist
                help: the functions of `tl::` are those in its documentation; `tl::inline_ptx` writes any other instruction
            19: `too`: `too` is not a method of anything in a kernel
                help: did you mean `to`?
            20: `misspelled`: `misspelled` cannot be called in a kernel
                help: kernels call the functions of `tl::`, and those marked `#[fuse_fn]` in a `#[fuse_module]`: one of another module by a `use` with its name in the kernel's own module or body
        "#]],
    );
    assert!(module("mod m { #[fuse_fn] fn f(x: Tile) -> Tile { nothing } }").1.is_empty());
}

#[test]
fn the_outline_has_variables_and_where_they_are_used() {
    check_outline(
        "#[allow(unused_variables)] fn k<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
            let lane = tl::arange(0, N);
            let (a, mut b): (_, _) = tl::split(tl::load(x + lane));
            let late;
            if n > 0 { late = a; } else { late = b; }
            for i in 0..n { b += i; if b > N { continue; } }
            let f = |v| v * late;
            fn half(x: Tile<f32>) -> Tile<f32> { if x > K { return x; } x / 2.0 }
            const K: f32 = 2.0;
            let z = match n { 0 | K => 1.0, 1 => { a }, _ => half(f(a)) };
            (a, b) = (b, z);
            tl::store(out + lane, z);
            tl::load(x);
            a + 1.0;
            n;
        }",
        expect![
            "# [allow (unused_variables)] pub (super) fn body (x : :: core :: primitive :: i32 , out : :: core :: primitive :: i32 , n : :: core :: primitive :: i32) { :: dsl_runtime :: lint :: used (n) ; let lane : :: core :: primitive :: i32 = :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value (()) , :: dsl_runtime :: lint :: value (()) , :: dsl_runtime :: lint :: value (()) ,)) ; let (a , mut b ,) : (:: core :: primitive :: i32 , :: core :: primitive :: i32 ,) = :: dsl_runtime :: lint :: parts (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value (()) , :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value (()) , :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((x ,)) , :: dsl_runtime :: lint :: value ((lane ,)) ,)) ,)) ,))) ; # [allow (unused_mut , unused_assignments)] let mut late : :: core :: primitive :: i32 = :: dsl_runtime :: lint :: value (()) ; if :: dsl_runtime :: lint :: truth (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((n ,)) , :: dsl_runtime :: lint :: value (()) ,))) { late = :: dsl_runtime :: lint :: value ((a ,)) ; } else { late = :: dsl_runtime :: lint :: value ((b ,)) ; } for i in :: dsl_runtime :: lint :: iterations (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value (()) , :: dsl_runtime :: lint :: value ((n ,)) ,))) { b += :: dsl_runtime :: lint :: value ((i ,)) ; if :: dsl_runtime :: lint :: truth (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((b ,)) , :: dsl_runtime :: lint :: value (()) ,))) { continue ; } } let f : :: core :: primitive :: i32 = :: dsl_runtime :: lint :: value ((| v : :: core :: primitive :: i32 | { :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((v ,)) , :: dsl_runtime :: lint :: value ((late ,)) ,)) } ,)) ; fn half (x : :: core :: primitive :: i32) -> :: core :: primitive :: i32 { if :: dsl_runtime :: lint :: truth (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((x ,)) , :: dsl_runtime :: lint :: value ((K ,)) ,))) { return :: dsl_runtime :: lint :: value ((x ,)) ; } :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((x ,)) , :: dsl_runtime :: lint :: value (()) ,)) } const K : () = :: dsl_runtime :: lint :: known (()) ; let z : :: core :: primitive :: i32 = match :: dsl_runtime :: lint :: matched ((:: dsl_runtime :: lint :: value ((n ,)) , K ,)) { 0 | 18446744073709551616 => { :: dsl_runtime :: lint :: value (()) } 1 => { :: dsl_runtime :: lint :: value ((a ,)) } _ => { :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((half ,)) , :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((f ,)) , :: dsl_runtime :: lint :: value ((a ,)) ,)) ,)) } } ; :: dsl_runtime :: lint :: used (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((b ,)) , :: dsl_runtime :: lint :: value ((z ,)) ,))) ; a = :: dsl_runtime :: lint :: value (()) ; b = :: dsl_runtime :: lint :: value (()) ; :: dsl_runtime :: lint :: used (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value (()) , :: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value ((out ,)) , :: dsl_runtime :: lint :: value ((lane ,)) ,)) , :: dsl_runtime :: lint :: value ((z ,)) ,))) ; :: dsl_runtime :: lint :: unused (:: dsl_runtime :: lint :: value ((:: dsl_runtime :: lint :: value (()) , :: dsl_runtime :: lint :: value ((x ,)) ,))) ; :: dsl_runtime :: lint :: value ((a ,)) + :: dsl_runtime :: lint :: value (()) ; n ; }"
        ],
    );
}

/// The tokens with each `$(..)` as a group without delimiters, as rustc passes macro arguments.
fn with_fragments(tokens: TokenStream) -> TokenStream {
    let mut result: Vec<TokenTree> = vec![];
    for token in tokens {
        let TokenTree::Group(group) = token else {
            result.push(token);
            continue;
        };
        let marked = matches!(result.last(), Some(TokenTree::Punct(dollar)) if dollar.as_char() == '$');
        let delimiter = if marked { Delimiter::None } else { group.delimiter() };
        if marked {
            result.pop();
        }
        result.push(Group::new(delimiter, with_fragments(group.stream())).into());
    }
    result.into_iter().collect()
}

#[test]
fn macro_arguments() {
    let parse = |text: &str| with_fragments(text.parse().expect("tokens"));
    let mut errors = Errors::new();
    let kernel = syntax::parse(
        parse("T = [$(f32)], N = [$(64), $(-1)], M = $(2), num_warps = $(4), tune(key = [$(n + 1)])"),
        parse(
            "fn $(k)<T: $(Float), const $(N): $(i32), const M: i32>(x: $(&[T]), v: &View<$(T), $(2)>, $(n): $(i32)) {
                let $(y) = tl::load($(x) + $(n + 1) * $(2)).to::<$(f32)>();
                let z = $(y);
                tl::store(x, v.load::<$(4), $(4)>($(0), 0), $(n > 1));
            }",
        ),
        &mut errors,
    );
    assert!(errors.is_empty(), "{errors:?}");
    let kernel = kernel.expect("a kernel");
    let lists = kernel.options.lists.iter().map(|list| {
        let values: Vec<String> =
            list.values.iter().map(|value| syntax::describe_value(&value.kind)).collect();
        format!("{} = {values:?}\n", list.name)
    });
    expect![[r#"
        T = ["f32"]
        N = ["64", "-1"]
        M = ["2"]
    "#]]
    .assert_eq(&lists.collect::<String>());
    expect!["x : & [T] , v : & View < T , 2 > , n : i32"].assert_eq(&kernel.source.inputs.to_string());
    expect!["{ let y = tl :: load (x + (n + 1) * 2) . to :: < f32 > () ; let z = y ; tl :: store (x , v . load :: < 4 , 4 > (0 , 0) , (n > 1)) ; }"].assert_eq(&kernel.source.body.to_string());
}

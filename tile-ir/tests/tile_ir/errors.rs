//! Every error message of `syntax` and `typeck`, with the tokens of its span.

use expect_test::{Expect, expect};

use tile_ir::testing::{mistakes, render};

/// Every mistake of a kernel.
fn check_errors(source: &str, expected: Expect) {
    expected.assert_eq(&render(&mistakes(source), source));
}

/// Every mistake of statements in a kernel that has one of each kind of parameter.
fn check_body(statements: &str, expected: Expect) {
    let source = format!(
        "#[fuse_kernel(T = [f16], N = [64], FLAG = [true])]
        fn k<T: Float, const N: usize, const FLAG: bool>(x: &[T], i: &[i32], out: &mut [T], n: i32, a: f32, b: bool) {{
{statements}
        }}"
    );
    check_errors(&source, expected);
}

/// Every mistake of a signature.
fn check_signature(signature: &str, expected: Expect) {
    check_errors(&format!("#[fuse_kernel(T = [f32], N = [64])]\n{signature} {{}}"), expected);
}

/// Every mistake of an attribute.
fn check_attribute(attribute: &str, expected: Expect) {
    check_errors(
        &format!("#[fuse_kernel({attribute})] fn k<T: Float, const N: usize>(x: &[T]) {{}}"),
        expected,
    );
}

// ---- the attribute

#[test]
fn options_that_do_not_exist() {
    check_attribute(
        "T = [f32], N = [64], warps = 4, fast, deny(stores), unchecked = true",
        expect![[r#"
            1: `warps`: `warps` is not a generic of `k`
                help: did you mean `num_warps`?
            1: `fast`: `fast` is not an option of `fuse_kernel`
                help: options are `NAME = [values]` for a generic, `configs = [{ .. }]`, `tune(key = [..])`, `tuned = "file"`, `num_warps = N`, `num_ctas = N`, `num_stages = N`, `maxnreg = N`, `unchecked`, `unreported` and `deny(spills)`
            1: `stores`: `deny(stores)` is not known
                help: `deny(spills)` is
            1: `unchecked`: `unchecked` stands alone: it takes no value
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64], unchecked(yes)",
        expect![[r#"
        1: `unchecked`: `unchecked` stands alone: it takes no value
    "#]],
    );
    check_attribute(
        "T = [f32], N = [64] num_warps = 4",
        expect![[r#"
        1: `num_warps`: expected `,`
    "#]],
    );
}

#[test]
fn lists_that_are_empty_or_name_a_value_twice() {
    check_attribute(
        "T = [], N = [64, 128, 64]",
        expect![[r#"
        1: `[]`: the list of `T` is empty: declare at least one value
        1: `64`: `64` is listed twice for `N`
    "#]],
    );
    check_attribute(
        "T = [f32], N = [64], N = [128], T = f16",
        expect![[r#"
            1: `N`: `N` is declared twice
                help: write one list: `N = [64, 128]`
            1: `T`: `T` is declared twice
                help: keep one of the two
        "#]],
    );
    check_attribute(
        "T = [f32, f32], N = []",
        expect![[r#"
        1: `f32`: `f32` is listed twice for `T`
        1: `[]`: the list of `N` is empty: declare at least one value
    "#]],
    );
}

#[test]
fn values_that_a_generic_cannot_have() {
    check_attribute(
        "T = [f32, i32, 4], N = [f32, true, -1]",
        expect![[r#"
            1: `i32`: `T` is one of f16, bf16, f32 and f64, found i32
            1: `4`: `T` is a type, found `4`
            1: `f32`: `N` is a `usize`, found `f32`
                help: write the number; a constant's name stands for it where a `#[fuse_module]` holds both
            1: `true`: `N` is a `usize`, found `true`
            1: `-1`: `N` is a `usize`, which holds 0 to 18446744073709551615, found -1
        "#]],
    );
    check_attribute(
        "T = [usize, \"f32\"], N = [64 * 2, N]",
        expect![[r#"
            1: `usize`: a declared value is an element type, an integer or a bool
                help: element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64
            1: `"f32"`: `"f32"` is not an element type
                help: did you mean `f32`?
            1: `64 * 2`: `N` is a `usize`, found `64 * 2`
                help: write the number: `128`
            1: `N`: `N` is a `usize`, found `N`
                help: write the number; a constant's name stands for it where a `#[fuse_module]` holds both
        "#]],
    );
    check_errors(
        "#[fuse_kernel(B = [1, 2], U = [256, 255], I = [-129, 4])]
        fn k<const B: bool, const U: u8, const I: i8>(x: &[f32]) {}",
        expect![[r#"
            1: `1`: `B` is a `bool`, found `1`
            1: `2`: `B` is a `bool`, found `2`
            1: `256`: `U` is a `u8`, which holds 0 to 255, found 256
            1: `-129`: `I` is a `i8`, which holds -128 to 127, found -129
        "#]],
    );
    check_attribute(
        "T = x.len() in [f32], N = n.next_power_of_two() in [64]",
        expect![[r#"
        1: `x.len()`: `T` cannot be chosen by the arguments: only an integer can
    "#]],
    );
}

#[test]
fn generics_without_values() {
    check_attribute(
        "",
        expect![[r#"
        1: `T`: no values are declared for `T`
            help: declare them: `#[fuse_kernel(T = [f32])]`
        1: `N`: no values are declared for `N`
            help: declare them: `#[fuse_kernel(N = [1024])]`
    "#]],
    );
    check_errors(
        "#[fuse_kernel()] fn k<T: Integer, const B: bool>(x: &[T]) { tl::load(y); }",
        expect![[r#"
        1: `T`: no values are declared for `T`
            help: declare them: `#[fuse_kernel(T = [i32])]`
        1: `B`: no values are declared for `B`
            help: declare them: `#[fuse_kernel(B = [false, true])]`
        1: `y`: `y` is not defined
    "#]],
    );
}

#[test]
fn configs() {
    check_attribute(
        "configs = []",
        expect![[r#"
        1: `configs`: `configs` is empty: declare at least one set of constants
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 64 }, { M: 64 }]",
        expect![[r#"
            1: `{ N: 64 }`: the variant T = f32, N = 64 is declared twice
            1: `{ M: 64 }`: this config does not give `N`
                help: a list outside the configs gives it to all: `N = [1024]`
            1: `M`: `M` is not a generic of `k`
                help: its generics are `T` and `N`; the options are `configs = [{ .. }]`, `tune(key = [..])`, `tuned = "file"`, `num_warps = N`, `num_ctas = N`, `num_stages = N`, `maxnreg = N`, `unchecked`, `unreported` and `deny(spills)`
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64], configs = [{ N: 64, N: 128, num_warps: f32 }]",
        expect![[r#"
        1: `N`: `N` has a list and stands in `configs`: keep one
        1: `128`: `N` is given twice in this config
        1: `f32`: `num_warps` is an integer
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64, num_warps: 3 }, { N: 128, num_warps: 64 }]",
        expect![[r#"
        1: `3`: `num_warps` is 1, 2, 4, 8, 16 or 32, found 3
        1: `64`: `num_warps` is 1, 2, 4, 8, 16 or 32, found 64
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }], configs = [{ N: 128 }]",
        expect![[r#"
            1: `configs`: `configs` is declared twice
                help: keep one of the two
        "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N = 64 }]",
        expect![[r#"
            1: `=`: a value stands behind `:` here
                help: write `N: 64`
        "#]],
    );
}

#[test]
fn num_warps() {
    check_attribute(
        "T = [f32], N = [64], num_warps = 3",
        expect![[r#"
        1: `3`: `num_warps` is 1, 2, 4, 8, 16 or 32, found 3
    "#]],
    );
    check_attribute(
        "T = [f32], N = [64], num_warps = -1",
        expect![[r#"
            1: `-1`: `num_warps` is 1, 2, 4, 8, 16 or 32, found -1
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64], num_warps = f32",
        expect![[r#"
            1: `f32`: expected an integer, `N`, `size_of::<T>()`, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64, 1024], num_ctas = N / 64",
        expect![[r#"
        1: `N / 64`: `num_ctas` is 1, 2, 4 or 8, found 16
    "#]],
    );
    check_attribute(
        "T = [f32], N = [64, 256], num_warps = N / 64, num_stages = (N + 64).max(2) % 7, maxnreg = N - 64 * 2",
        expect![[r#"
            1: `N - 64 * 2`: `maxnreg` is 24 to 255, found -64
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64], num_warps = T, num_stages = N / 0, maxnreg = N.clamp(1, 2)",
        expect![[r#"
            1: `T`: expected an integer, `N`, `size_of::<T>()`, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
            1: `N / 0`: this overflows, or divides by 0
            1: `N.clamp(1, 2)`: expected an integer, `N`, `size_of::<T>()`, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
        "#]],
    );
    check_attribute(
        "T = [f32, f64], N = [96], num_warps = (N / size_of::<T>()).next_power_of_two(), num_stages = size_of::<N>(), num_ctas = (N - 97).next_power_of_two()",
        expect![[r#"
            1: `size_of::<N>()`: expected an integer, `N`, `size_of::<T>()`, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
            1: `(N - 97).next_power_of_two()`: this overflows, or divides by 0
        "#]],
    );
    // Each variant's own branch alone counts.
    check_attribute(
        "T = [f32, f64], N = [64, 96], num_warps = if size_of::<T>() == 8 && !(N < 96) || false { N / 24 } else if N != 64 { 2 } else { (1) }",
        expect![[""]],
    );
    check_attribute(
        "T = [f32], N = [64], num_warps = if N { 1 } else { 2 }, num_stages = if N > 64 { 1 }, num_ctas = if N == 64 { 3 } else { 1 }, maxnreg = if T > 1 { 32 } else { 64 }",
        expect![[r#"
            1: `N`: expected a comparison, or what `&&`, `||` and `!` make of such
            1: `if N > 64 { 1 }`: this `if` needs an `else`
            1: `if N == 64 { 3 } else { 1 }`: `num_ctas` is 1, 2, 4 or 8, found 3
            1: `T`: expected an integer, `N`, `size_of::<T>()`, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64], num_warps = if N == 64 { let n = 1; n } else { 2 }, num_stages = if N + 1 { 1 } else { 2 }",
        expect![[r#"
            1: `if N == 64 { let n = 1; n } else { 2 }`: expected an integer, `N`, `size_of::<T>()`, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
            1: `N + 1`: expected a comparison, or what `&&`, `||` and `!` make of such
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64], num_warps = [4, 8]",
        expect![[r#"
            1: `[4, 8]`: `num_warps` is one number
                help: declare several with `configs = [{ num_warps: .., .. }, { num_warps: .., .. }]`
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64], num_warps = 4, num_warps = 8, unchecked, unchecked",
        expect![[r#"
            1: `num_warps`: `num_warps` is declared twice
                help: keep one of the two
            1: `unchecked`: `unchecked` is declared twice
                help: keep one of the two
        "#]],
    );
}

#[test]
fn num_stages_and_maxnreg() {
    check_attribute(
        "T = [f32], N = [64], num_stages = 0, maxnreg = 16",
        expect![[r#"
        1: `0`: `num_stages` is 1 to 8, found 0
        1: `16`: `maxnreg` is 24 to 255, found 16
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64, num_stages: 9, maxnreg: true }]",
        expect![[r#"
        1: `9`: `num_stages` is 1 to 8, found 9
        1: `true`: `maxnreg` is an integer
    "#]],
    );
    check_attribute(
        "T = [f32], N = [64], maxnreg = [32, 64], num_stages = f32",
        expect![[r#"
            1: `[32, 64]`: `maxnreg` is one number
                help: declare several with `configs = [{ maxnreg: .., .. }, { maxnreg: .., .. }]`
            1: `f32`: expected an integer, `N`, `size_of::<T>()`, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
        "#]],
    );
    check_attribute("T = [f32], N = [64], num_stages = 3, maxnreg = 255", expect![[""]]);
}

#[test]
fn conditions_of_configs() {
    check_attribute(
        "T = [f32], configs = [{ N: 64, when: n <= 64 }, { N: 128, num_warps: 8 }, { N: 128 }]",
        expect![[""]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64, when: n <= 64, when: n > 0 }, { N: 128 }]",
        expect![[r#"
        1: `when`: `when` is given twice in this config: join the conditions with `&&`
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64, when: n <= 64 }, { N: 128 }], tune(key = [n])",
        expect![[r#"
            1: `tune`: `tune` measures which config is the fastest, and `when` in a config says which one to take
                help: keep one; `tune(key = [..], when = condition)` leaves configs out
        "#]],
    );
    check_attribute(
        "T = [f32], N = [64, 128], when = n <= 64",
        expect![[r#"
            1: `n <= 64`: `when` chooses nothing: it names no constant with listed values, and there are no configs
                help: `when = n <= BLOCK`, or a condition of one config, `configs = [{ .., when: n <= 64 }, { .. }]`
        "#]],
    );
    check_attribute("T = [f32], N = [64, 128], when = n <= N as i32", expect![[""]]);
}

#[test]
fn tune() {
    // Right: with configs that differ in their settings alone, and with lists left open.
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 64, num_warps: 8 }, { N: 64, maxnreg: 32 }, { N: 64, num_stages: 1 }], tune(key = [x.len()])",
        expect![[""]],
    );
    check_attribute(
        "T = [f32], N = _ in [64, 128], tune(key = [], when = N > 64), tuned = \"a.json\"",
        expect![[""]],
    );
    // What tells two configs apart must make a difference.
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 64, num_stages: 3 }, { num_stages: 3, N: 64 }, { N: 64 }], tune(key = [])",
        expect![[r#"
            1: `{ num_stages: 3, N: 64 }`: the variant T = f32, N = 64, num_stages = 3 is declared twice
            1: `{ N: 64 }`: the variant T = f32, N = 64 is declared twice
        "#]],
    );
    // Without `tune`, a call could not say which it means.
    check_attribute(
        "T = [f32], configs = [{ N: 64, num_stages: 2 }, { N: 64, num_stages: 3 }]",
        expect![[r#"
            1: `{ N: 64, num_stages: 3 }`: the variant T = f32, N = 64 is declared twice
                help: a call cannot tell the two apart; `tune(key = [..])` measures which is faster, and `when: condition` in a config says which one to take
        "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 128 }], tune()",
        expect![[r#"
        1: `tune`: `tune` does not say what the fastest choice depends on
            help: `tune(key = [n])` measures once for each value of `n`, `tune(key = [])` once for all
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 128 }], tune(key = n, n = 1)",
        expect![[r#"
        1: `n`: `key` is a list of expressions over the arguments
            help: `key = [n]`
    "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 128 }], tune(key = [n], keys = [n])",
        expect![[r#"
            1: `keys`: `tune` does not take `keys`
                help: `tune` takes `key = [..]` and `when = condition`
        "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 128 }], tune(key = [n], key = [n])",
        expect![[r#"
            1: `key`: `key` is given twice
        "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 128 }], tune(key: [n])",
        expect![[r#"
            1: `:`: a value stands behind `=` here
                help: write `key = [n]`
        "#]],
    );
    check_attribute(
        "T = [f32], configs = [{ N: 64 }, { N: 128 }], tune = [n], tuned = 3",
        expect![[r#"
        1: `tune`: `tune` is written `tune(key = [..])`
        1: `tuned`: `tuned` names a file of choices, relative to the folder of Cargo.toml
            help: `tuned = "tuned/choices.json"`
    "#]],
    );
    check_attribute(
        "T = [f32], N = [64, 128], tune(key = [n])",
        expect![[r#"
        1: `tune`: `tune` has nothing to choose among
            help: leave a list open, `N = _ in [1024, 2048]`, or declare several configs
    "#]],
    );
    check_attribute(
        "T = _ in [f32, f16], N = _ in [64], tuned = \"a.json\"",
        expect![[r#"
        1: `_`: `T` is a type, which the arguments of a call decide
        1: `_`: `_` leaves `N` to be measured, and nothing says what the choice depends on
            help: `tune(key = [n])` measures once for each value of `n`, `tune(key = [])` once for all
        1: `"a.json"`: `tuned` holds the choices of `tune(..)`, which is missing
    "#]],
    );
    check_attribute(
        "T = [f32], N = _ in [64, 128], tune(key = []), unchecked",
        expect![[r#"
        1: `tune`: an `unchecked` kernel is not tuned: a config that is wrong for its arguments could write anywhere
            help: declare one of the two
    "#]],
    );
}

#[test]
fn too_many_variants() {
    check_errors(
        "#[fuse_kernel(A = [0,1,2,3,4,5,6,7,8,9], B = [0,1,2,3,4,5,6,7,8,9], C = [0,1,2,3,4,5,6,7,8,9], D = [0,1])]
        fn k<const A: i32, const B: i32, const C: i32, const D: i32>(x: &[f32]) {}",
        expect![[r#"
            2: `k`: the lists of `k` declare more than 1024 variants
                help: declare the exact sets that are called with `configs = [{ .. }]`
        "#]],
    );
}

// ---- the signature

#[test]
fn what_a_kernel_is_not() {
    check_errors(
        "#[fuse_kernel()]
        pub const unsafe extern \"C\" fn k(x: &[f32]) -> f32 { 1.0 }",
        expect![[r#"
            2: `const unsafe extern "C"`: a kernel is a plain `fn`
                help: leave out `const unsafe extern "C"`
            2: `f32`: a kernel returns nothing
                help: write results into a `&mut [T]` parameter with `tl::store`
        "#]],
    );
    check_errors(
        "#[fuse_kernel()] async fn k(x: &[f32]) {}",
        expect![[r#"
            1: `async`: a kernel is a plain `fn`
                help: leave out `async`
        "#]],
    );
    check_errors(
        "#[fuse_kernel()] struct S;",
        expect![[r#"
        1: `struct S;`: `fuse_kernel` goes on a function
    "#]],
    );
    check_signature(
        "fn k<T: Float, const N: usize>(self, x: &[T]) where T: Copy",
        expect![[r#"
            2: `self`: a kernel is a free function: move it out of the `impl` or `trait`
            2: `where T: Copy`: a kernel has no `where` clause; bounds are written on the type parameter
        "#]],
    );
}

#[test]
fn generics_of_kinds_that_do_not_exist() {
    check_signature(
        "fn k<'a, T, const N: f32>(x: &'a [T], y: &mut [T])",
        expect![[r#"
            2: `'a`: a kernel has no lifetime parameters
                help: leave it out, also in the types: `x: &[T]`
            2: `T`: the type parameter `T` has no bound
                help: bounds are `Float`, `Integer`, `Number`, `Element` and traits of your own
            2: `f32`: a const parameter is an integer or a `bool`
                help: an enum of a `#[fuse_module]` is a parameter of its own, `mask: Mask`: each of its values has a variant
        "#]],
    );
    check_signature("fn k<T: Copy, const N: usize>(x: &[T])", expect![""]);
    check_signature(
        "fn k<T: Float + Copy = f32, const N: usize>(x: &[T])",
        expect![[r#"
            2: `f32`: a kernel's type parameter has no default: its types are declared in the attribute
        "#]],
    );
}

#[test]
fn parameters_of_types_that_do_not_exist() {
    check_signature(
        "fn k<T: Float, const N: usize>(a: Vec<T>, b: &T, c: &[usize], d: usize, e: [T; 4], (f, g): (T, T))",
        expect![[r#"
            2: `Vec<T>`: this type cannot be a kernel parameter
                help: memory is a slice, `&[T]`: calls pass a buffer for it
            2: `&T`: a reference parameter is a slice or a view
                help: parameters are `&[T]`, `&mut [T]`, `&View<T, 2>`, `&mut View<T, 2>` and scalars such as `i32` or `f32`
            2: `usize`: `usize` is not an element type
                help: memory and scalars have a fixed width: use `i64` or `i32`
            2: `usize`: `usize` is not an element type
                help: memory and scalars have a fixed width: use `i64` or `i32`
            2: `[T; 4]`: this type cannot be a kernel parameter
                help: parameters are `&[T]`, `&mut [T]`, `&View<T, 2>`, `&mut View<T, 2>` and scalars such as `i32` or `f32`
            2: `(f, g)`: a parameter is a plain name
                help: take one parameter for each part
        "#]],
    );
    check_signature(
        "fn k<T: Float, const N: usize>(mut x: &[T], x: f32, y: foo, N: i32)",
        expect![[r#"
            2: `mut`: a parameter cannot be reassigned
                help: bind it first: `let mut x = x;`
            2: `x`: the name `x` is used twice in the signature
            2: `foo`: `foo` is not an element type
                help: element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64
            2: `N`: the name `N` is used twice in the signature
        "#]],
    );
    check_errors(
        "#[fuse_kernel()] fn k(x: Vec<f32>, n: usize) { let y = tl::load(x + n); tl::store(x, y); }",
        expect![[r#"
            1: `Vec<f32>`: this type cannot be a kernel parameter
                help: memory is a slice, `&[f32]`: calls pass a buffer for it
            1: `usize`: `usize` is not an element type
                help: memory and scalars have a fixed width: use `i64` or `i32`
        "#]],
    );
}

// ---- Rust that a kernel does not use

#[test]
fn statements_that_do_not_exist() {
    check_body(
        "fn f() {}
        const C: i32 = 4;
        static S: i32 = 4;
        use std::mem;
        struct P;
        mod m {}
        println!(\"{}\", n);
        assert!(n > 0);
        vec![1];
        let Some(y) = x else { return };
        let ref y = n;
        let [p, q] = n;
        let y: Vec<f32> = n;",
        expect![[r#"
            5: `static`: a `static` item cannot be used in a kernel
                help: declare a `const`
            6: `use std::mem;`: this `use` declaration cannot be used in a kernel
                help: the functions of `tl::` need none; others are named one by one, `use path::{a, b};`
            7: `P`: a type definition cannot be used in a kernel
            8: `mod m {}`: an item cannot be used in a kernel
            9: `println`: the macro `println!` cannot be used in a kernel
                help: `tl::device_print("label", value)` prints in debug builds, `tl::static_print(value)` at build
            10: `assert`: the macro `assert!` cannot be used in a kernel
                help: `tl::static_assert(condition, "message")` checks constants at build, `tl::device_assert` what a debug build computes
            11: `vec`: the macro `vec!` cannot be used in a kernel
                help: `tl::full([N], value)` makes a constant tile
            12: `Some(y)`: this pattern cannot be used in a kernel
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            13: `ref y`: this pattern cannot be used in a kernel
                help: bind a name or a tuple of names
            14: `[p, q]`: this pattern cannot be used in a kernel
                help: values go together as a tuple: `let (p, q) = (..);`
            15: `Vec<f32>`: a `let` names an element type
                help: leave the type out: it follows from the value
        "#]],
    );
}

#[test]
fn expressions_that_do_not_exist() {
    check_body(
        "let f = |v| v + 1;
        let y = &n;
        let y = *x;
        let y = x[0];
        let y = (n, a).0;
        let y = match n { _ => 1 };
        let y = n?;
        let y = unsafe { n };
        let y = S { n };
        let y = [n; 4];
        let y = if let 1 = n { 1 } else { 2 };
        let y = async { n };
        let y = (n = 3);
        let y = (n += 3);
        let y = b'c';
        let y = f32::<i32>::MAX;
        let y = (|v| v)(n);
        let y = n as Vec<f32>;
        let y = ..n;
        let y = tl::zeros::<Vec<f32>>([N]);
        let y = const { 4 };",
        expect![[r#"
            4: `&n`: a reference cannot be used in a kernel
                help: tiles are values: leave out the `&`
            5: `*x`: dereferencing cannot be used in a kernel
                help: read memory with `tl::load(x)`
            6: `x[0]`: a slice cannot be indexed
                help: read memory with `tl::load(x + 0)`
            9: `?`: `?` cannot be used in a kernel
                help: nothing in a kernel fails: leave it out
            10: `unsafe`: an `unsafe` block cannot be used in a kernel
                help: leave it out: nothing in a kernel is unsafe
            11: `S`: a struct cannot be used in a kernel
                help: values go together as a tuple, `(a, b)`, or as a struct of a `#[fuse_module]` that is marked `#[fuse_struct]`
            12: `[n; 4]`: `[value; count]` cannot be used in a kernel
                help: `tl::full([4], n)` makes a constant tile; a kernel has no memory but its parameters
            13: `let 1 = n`: `if let` cannot be used in a kernel
                help: `if` takes a bool; `match` compares an integer with constants
            14: `async`: async code cannot be used in a kernel
            15: `=`: an assignment gives no value
            16: `+=`: an assignment gives no value
            17: `b'c'`: a byte's character cannot be used in a kernel
                help: write its number: `99u8`
            18: `f32::<i32>::MAX`: a path with type arguments that is not called cannot be used in a kernel
            19: `(|v| v)`: calling a value cannot be used in a kernel
            20: `Vec<f32>`: this type cannot be used in a kernel
                help: cast to an element type such as `f32`
            21: `..n`: a range needs both ends
                help: write `0..n`
            22: `Vec<f32>`: this type cannot be used in a kernel
                help: name an element type such as `f32`
            23: `const { 4 }`: this expression cannot be used in a kernel
        "#]],
    );
}

#[test]
fn control_flow_that_does_not_exist() {
    check_body(
        "loop { break; }
        'outer: for i in 0..n { continue; }
        'outer: while n > 0 { return; }
        for (i, j) in 0..n {}
        for mut i in 0..n {}
        for i in 0.. {}
        x[0] = 1.0;
        (n, a) = (1, 2.0);
        *out = 3;",
        expect![[r#"
            3: `loop`: `loop` cannot be used in a kernel
                help: use `for` over a range, or `while`
            4: `'outer:`: the label `'outer` cannot be used in a kernel
                help: `break` and `continue` mean the innermost loop: let a flag end the outer one, `while go { .. go = false; .. }`
            5: `'outer:`: the label `'outer` cannot be used in a kernel
                help: `break` and `continue` mean the innermost loop: let a flag end the outer one, `while go { .. go = false; .. }`
            6: `(i, j)`: a loop variable is a plain name
                help: a loop runs over integers: `for i in 0..n`
            7: `i`: a loop variable cannot be reassigned
            8: `0..`: a range needs both ends
                help: write `0..n`
            9: `x[0]`: a slice cannot be indexed
                help: write memory with `tl::store(x + 0, value)`
            10: `n`: `n` is a parameter, which cannot be assigned
                help: bind it again: `let mut n = n;`
            10: `a`: `a` is a parameter, which cannot be assigned
                help: bind it again: `let mut a = a;`
            11: `*out`: assigning through a pointer cannot be used in a kernel
                help: write memory with `tl::store(out, value)`
        "#]],
    );
}

#[test]
fn numbers_that_are_too_large() {
    check_body(
        "let y = 99999999999999999999999999999999999999999;
        let y = 18446744073709551616;
        let y = 300u8;
        let y = n + 2147483648;
        let y = 1i128;
        let y = 9223372036854775807 * 4;
        let y = 1 / 0;
        let y: u8 = 256;",
        expect![[r#"
            3: `99999999999999999999999999999999999999999`: this integer is too large: 64 bits hold up to 18446744073709551615
            4: `18446744073709551616`: this integer is too large: 64 bits hold up to 18446744073709551615
            5: `300u8`: 300 does not fit in u8, which holds 0 to 255
                help: `i32` holds it: `.to::<i32>()` converts what stands beside it
            6: `2147483648`: 2147483648 does not fit in i32, which holds -2147483648 to 2147483647
                help: `i64` holds it: `.to::<i64>()` converts what stands beside it
            7: `1i128`: `i128` is not an element type
                help: element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64
            8: `*`: this constant does not fit in 64 bits
            9: `0`: this divides by zero
            10: `256`: 256 does not fit in u8, which holds 0 to 255
                help: `i32` holds it: `.to::<i32>()` converts what stands beside it
        "#]],
    );
}

// ---- names

#[test]
fn names_that_are_not_defined() {
    check_body(
        "let y = mask + offset;
        let offsets = tl::arange(0, N);
        let y = offset;
        y = 3;
        z = 3;
        let y = T;
        let y = f32;
        let y = k;
        let y = tl::load;
        let y = std::f32::consts::PIE;
        let y = f32::BITS;
        let y = T::HUGE;",
        expect![[r#"
            3: `mask`: `mask` is not defined
            3: `offset`: `offset` is not defined
            5: `offset`: `offset` is not defined
                help: did you mean `offsets`?
            6: `y`: `y` cannot be assigned twice
                help: declare it `let mut y`, or bind it again: `let mut y = y;`
            7: `z`: `z` is not defined
                help: declare it: `let mut z = ..;`
            8: `T`: `T` is a type, expected a value
                help: an element type stands between angle brackets: `.to::<T>()`
            9: `f32`: `f32` is a type, expected a value
                help: an element type stands between angle brackets: `.to::<f32>()`
            10: `k`: a kernel cannot refer to itself
            12: `std::f32::consts::PIE`: `std::f32::consts::PIE` is not known in a kernel
                help: constants of element types are, such as `f32::INFINITY`, `T::MAX` and `f32::consts::PI`
            13: `f32::BITS`: `f32` has no constant `BITS`
                help: it has INFINITY, NEG_INFINITY, NAN, MAX, MIN, MIN_POSITIVE and EPSILON
            14: `T::HUGE`: `f16` has no constant `HUGE`
                help: it has INFINITY, NEG_INFINITY, NAN, MAX, MIN, MIN_POSITIVE and EPSILON
        "#]],
    );
}

#[test]
fn functions_that_do_not_exist() {
    check_body(
        "let y = tl::arrange(0, N);
        let y = tl::where_(b, 1, 2);
        let y = tl::frobnicate(n);
        let y = tl::add(n, 1);
        let y = load(x);
        let y = foo(n);
        let y = std::cmp::max(n, 1);
        let y = k(n);
        let y = tl::pow(a, 2.0);
        let y = tl::mean(a);
        let y = tl::matmul(a, a);",
        expect![[r#"
            3: `arrange`: `tl::arrange` does not exist
                help: did you mean `tl::arange`?
            4: `where_`: `tl::where_` does not exist
                help: it is `tl::select(condition, x, y)` here
            5: `frobnicate`: `tl::frobnicate` does not exist
                help: the functions of `tl::` are those in its documentation; `tl::inline_ptx` writes any other instruction
            6: `add`: `tl::add` does not exist
                help: use the operator `+`
            7: `load`: `load` is not a function of the language
                help: did you mean `tl::load(pointer)`?
            8: `foo`: `foo` cannot be called in a kernel
                help: kernels call the functions of `tl::`, and those marked `#[fuse_fn]` in a `#[fuse_module]`: one of another module by a `use` with its name in the kernel's own module or body
            9: `std::cmp::max`: `std::cmp::max` is not a function of the language
                help: of two tiles or scalars: `tl::maximum(a, b)`
            10: `k`: a kernel cannot call itself
            12: `mean`: `tl::mean` does not exist
                help: divide the sum: `tl::sum(x, axis) / n as f32`
            13: `matmul`: `tl::matmul` does not exist
                help: it is `tl::dot(a, b)` here
        "#]],
    );
    check_body(
        "let y = n.sqrt();
        let y = n.too::<f32>();
        let y = x.iter();
        let y = a.powi(2);
        let y = x.lens();",
        expect![[r#"
            3: `sqrt`: `sqrt` is not a method of a scalar of type i32
                help: call the function: `tl::sqrt(n)`
            4: `too`: `too` is not a method of a scalar of type i32
                help: did you mean `to`?
            5: `iter`: `iter` is not a method of a slice
                help: a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`
            6: `powi`: `powi` is not a method of a scalar of type f32
                help: it is `tl::pow(a, 2)` here
            7: `lens`: `lens` is not a method of a slice
                help: did you mean `len`?
        "#]],
    );
}

#[test]
fn arguments_of_the_wrong_number() {
    check_body(
        "let y = tl::load();
        let y = tl::load(x, b, 0.0, 1, 2);
        let y = tl::exp(a, a, a);
        let y = tl::fma(a, a);
        let y = tl::arange(N);
        let y = a.to::<f16>(1);
        let y = (0..n).step_by();",
        expect![[r#"
            3: `load`: `tl::load` takes 1 to 3 arguments (pointer, mask?, other?), found 0
            4: `1, 2`: `tl::load` takes 1 to 3 arguments (pointer, mask?, other?), found 5
                help: leave them out
            5: `a, a`: `tl::exp` takes 1 argument (x), found 3
                help: leave them out
            6: `fma`: `tl::fma` takes 3 arguments (x, y, z), found 2
                help: write `tl::fma(a, a, z)`
            7: `arange`: `tl::arange` takes 2 arguments (start, end), found 1
                help: write `tl::arange(0, N)`
            8: `1`: `.to` takes no arguments, found 1
                help: leave it out
            9: `step_by`: `.step_by` takes 1 argument (step), found 0
        "#]],
    );
}

#[test]
fn type_arguments_of_the_wrong_number() {
    check_body(
        "let y = tl::zeros([N]);
        let y = tl::zeros::<f32, f32>([N]);
        let y = tl::zeros::<64>([N]);
        let y = tl::exp::<f32>(a);
        let y = tl::load::<f32>(x);
        let y = a.to();
        let y = a.to::<foo>();
        let y = tl::full::<'a>([N], 1.0);",
        expect![[r#"
            3: `zeros`: `tl::zeros` needs an element type
                help: write `tl::zeros::<f32>(..)`
            4: `zeros`: `tl::zeros` takes one element type
            5: `zeros`: `tl::zeros` takes one element type
            6: `exp`: `tl::exp` takes no type arguments
                help: leave them out: types follow from the arguments
            7: `load`: `tl::load` takes no type arguments
                help: leave them out: types follow from the arguments
            8: `to`: `.to` needs an element type
                help: write `.to::<f32>(..)`
            9: `foo`: `foo` is not an element type
                help: element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64
            10: `'a`: this argument cannot be used in a kernel
        "#]],
    );
}

// ---- types

#[test]
fn bits_of_another_size() {
    check_body(
        "let y = a.bitcast::<u32>();
        let y = a.bitcast::<f64>();
        let y = b.bitcast::<u8>();
        let y = n.bitcast::<T>();
        let y = x.bitcast::<u16>();
        let y = a.bitcast();",
        expect![[r#"
            4: `bitcast`: `.bitcast` keeps the size of an element: f32 cannot become f64
                help: f32 can become i32 and u32; `.to::<f64>()` converts the value
            5: `bitcast`: `.bitcast` keeps the size of an element: bool cannot become u8
                help: make a number of it: `.to::<u8>()`
            6: `bitcast`: `.bitcast` keeps the size of an element: i32 cannot become f16
                help: i32 can become u32 and f32; `.to::<f16>()` converts the value
            7: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            8: `bitcast`: `.bitcast` needs an element type
                help: write `.bitcast::<f32>(..)`
        "#]],
    );
}

#[test]
fn eight_bit_floats_are_not_computed_with() {
    check_errors(
        "#[fuse_kernel(T = [f8e4m3])]
        fn k<T: Element>(x: &[T], out: &mut [T], y: &[f8e5m2], n: i32) {
            let i = tl::arange(0, 64);
            let v = tl::load(x + i);
            let w = v + v;
            let w = tl::exp(v);
            let w = v == v;
            let w = tl::sum(v);
            let w = -v;
            let w = tl::select(i < n, v, tl::load(y + i));
            tl::store(out + i, v.to::<f32>() * 2.0);
            let w = v.bitcast::<u16>();
            let top = f8e4m3::INFINITY;
            tl::store(out + i, tl::select(i < n, v, f8e4m3::MAX));
            let w = tl::cumsum(v);
            let w = tl::argmax(v);
            let w = tl::sort(v);
        }",
        expect![[r#"
            5: `v`: `+` takes numbers, found f8e4m3
                help: 8-bit floats are stored and converted: `.to::<f32>()`
            6: `v`: `tl::exp` takes floats, found f8e4m3
                help: 8-bit floats are stored and converted: `.to::<f32>()`
            7: `v`: `==` takes numbers or bools, found f8e4m3
                help: 8-bit floats are stored and converted: `.to::<f32>()`
            8: `v`: `tl::sum` takes numbers or bools, found f8e4m3[64]
                help: convert it: `.to::<f32>()`
            9: `v`: `-` takes signed numbers, found f8e4m3
                help: 8-bit floats are stored and converted: `.to::<f32>()`
            10: `tl::load(y + i)`: `tl::select` needs one element type, found f8e4m3 and f8e5m2
                help: convert one side: `v.to::<f32>()`
            11: `v.to::<f32>() * 2.0`: a value stored to `out` is f8e4m3, found f32
                help: convert it: `.to::<T>()`
            12: `bitcast`: `.bitcast` keeps the size of an element: f8e4m3 cannot become u16
                help: f8e4m3 can become i8, u8 and f8e5m2; `.to::<u16>()` converts the value
            13: `f8e4m3::INFINITY`: `f8e4m3` has no constant `INFINITY`
                help: it has NAN, MAX, MIN, MIN_POSITIVE and EPSILON
            15: `v`: `tl::cumsum` takes numbers or bools, found f8e4m3[64]
                help: convert it: `.to::<f32>()`
            16: `v`: `tl::argmax` takes numbers, found f8e4m3[64]
                help: convert it: `.to::<f32>()`
            17: `v`: `tl::sort` takes numbers, found f8e4m3[64]
                help: convert it: `.to::<f32>()`
        "#]],
    );
    check_errors(
        "#[fuse_kernel(T = [f8e4m3, f32])] fn k<T: Float>(x: &[T]) {}",
        expect![[r#"
        1: `f8e4m3`: `T` is one of f16, bf16, f32 and f64, found f8e4m3
    "#]],
    );
}

#[test]
fn types_that_mix() {
    check_body(
        "let t = tl::load(x + tl::arange(0, N));
        let u = t.to::<f32>();
        let y = t + u;
        let y = t * n;
        let y = n + 1.5;
        let y = n + a;
        let y = tl::maximum(u, t);
        let y = tl::fma(a, a, t);
        let y = tl::select(b, t, 1);
        let y = tl::select(n, t, t);
        let y = tl::select(b, t, u);
        let y = a < n;
        let y = b + b;
        let y = a & a;
        let y = a % b;
        let y = n << a;
        let y = !a;
        let y = -b;
        let y = tl::exp(n);
        let y = tl::cdiv(a, a);
        let y = tl::sqrt(4);
        let y = b + 1;
        let y = n == true;",
        expect![[r#"
            5: `+`: `+` needs one element type, found f16 and f32
                help: convert one side: `t.to::<f32>()`
            6: `*`: `*` needs one element type, found f16 and i32
                help: convert one side: `n.to::<f16>()`
            7: `1.5`: expected i32, found the float 1.5
                help: write an integer, or convert the integers beside it: `as f32`
            8: `+`: `+` needs one element type, found i32 and f32
                help: convert one side: `n.to::<f32>()`
            9: `t`: `tl::maximum` needs one element type, found f32 and f16
                help: convert one side: `t.to::<f32>()`
            10: `t`: `tl::fma` needs one element type, found f32 and f16
                help: convert one side: `t.to::<f32>()`
            12: `n`: the condition of `tl::select` is bool, found i32
                help: compare: `x != 0`
            13: `u`: `tl::select` needs one element type, found f16 and f32
                help: convert one side: `t.to::<f32>()`
            14: `<`: `<` needs one element type, found f32 and i32
                help: convert one side: `n.to::<f32>()`
            15: `b`: `+` takes numbers, found bool
                help: convert it: `.to::<i32>()`
            16: `a`: `&` takes integers or bools, found f32
                help: convert it, `.to::<i32>()`, or take its bits, `.bitcast::<i32>()`
            17: `b`: `%` takes numbers, found bool
                help: convert it: `.to::<i32>()`
            18: `a`: `<<` takes integers, found f32
                help: multiply or divide by a power of two: `x * 4.0`
            19: `a`: `!` takes integers or bools, found f32
                help: convert it, `.to::<i32>()`, or take its bits, `.bitcast::<i32>()`
            20: `b`: `-` takes signed numbers, found bool
                help: the opposite of a bool is `!b`
            21: `n`: `tl::exp` takes floats, found i32
                help: convert it: `.to::<f32>()`
            22: `a`: `tl::cdiv` takes integers, found f32
                help: convert it: `.to::<i32>()`
            23: `4`: `tl::sqrt` takes floats, found i32
                help: write a float: `4.0`
            24: `b`: `+` takes numbers, found bool
                help: convert it: `.to::<i32>()`
            25: `true`: expected i32, found the bool true
                help: convert it: `as i32`
        "#]],
    );
}

#[test]
fn values_of_the_wrong_kind() {
    check_body(
        "let y = [1, 2] + 1;
        let y = (n, a) + 1;
        let y = \"text\";
        let z = y + 1;
        let y = tl::exp(x);
        let y = tl::exp([1.0]);
        let y = (0..n) + 1;
        let y = x * 2;
        let y = 1 - x;
        let y = x + x;
        let y = x + a;
        let y = x + b;
        let y = (x + n) * 2;
        let y = -x;
        let y = x as f32;
        let y = tl::sum(x);
        let y = tl::store(out, 1.0) + 1;
        let z = tl::store(out, 1.0);
        0..n;
        let (p, q) = n;
        let (p, q, r) = (1, 2);
        let (p, q);",
        expect![[r#"
            3: `[1, 2]`: `+` takes tiles and scalars, found a list
            4: `(n, a)`: `+` takes tiles and scalars, found a tuple
                help: a part of a tuple is `.0`, `.1`, ..
            6: `y`: `+` takes tiles and scalars, found a string
            7: `x`: `tl::exp` takes tiles and scalars, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            8: `[1.0]`: `tl::exp` takes tiles and scalars, found a list
            9: `(0..n)`: `+` takes tiles and scalars, found a range
            10: `*`: `*` does not take a slice
                help: read memory first: `tl::load(slice + offsets, mask)`
            11: `-`: `-` does not take a slice on its right
                help: read memory first: `tl::load(slice + offsets, mask)`
            12: `+`: `+` does not take a slice on its right
                help: read memory first: `tl::load(slice + offsets, mask)`
            13: `a`: an offset is an integer, found f32
                help: convert it: `as i32`
            14: `b`: an offset is an integer, found bool
                help: convert it: `as i32`
            15: `*`: `*` does not take a slice
                help: read memory first: `tl::load(slice + offsets, mask)`
            16: `x`: `-` takes tiles and scalars, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            17: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            18: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            19: `tl::store(out, 1.0)`: `+` takes tiles and scalars, found nothing
            20: `tl::store(out, 1.0)`: this gives no value to bind
                help: let it be a statement of its own
            21: `0..n`: a range is not a statement
            22: `(p, q)`: a tuple pattern takes a tuple, found a scalar of type i32
                help: bind one name: `let x = ..`
            23: `(p, q, r)`: this pattern has 3 parts, the tuple has 2
            24: `let (p, q);`: a tuple pattern needs a value
        "#]],
    );
}

#[test]
fn annotations() {
    check_body(
        "let y: f32 = n;
        let y: usize = n;
        let y: foo = 1;
        let y: i32 = 1.5;
        let y: f32 = true;
        let y: T = a;",
        expect![[r#"
            3: `n`: the value is f32, found i32
                help: convert it: `.to::<f32>()`
            4: `usize`: `usize` is not an element type
                help: memory and scalars have a fixed width: use `i64` or `i32`
            5: `foo`: `foo` is not an element type
                help: element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64
            6: `1.5`: the value is i32, found the float 1.5
                help: write an integer
            7: `true`: the value is f32, found the bool true
                help: convert it: `as f32`
            8: `a`: the value is f16, found f32
                help: convert it: `.to::<f16>()`
        "#]],
    );
}

// ---- shapes

#[test]
fn shapes_that_do_not_fit() {
    check_body(
        "let t = tl::zeros::<f32>([N, 32]);
        let u = tl::zeros::<f32>([N]);
        let y = t + u;
        let y = tl::maximum(t, u);
        let y = x + tl::arange(0, 32) + tl::arange(0, 64);
        let y = tl::broadcast_to(t, [N]);
        let y = tl::reshape(t, [N]);
        let y = tl::trans(u);
        let y = tl::permute(t, [0, 0]);
        let y = tl::permute(t, [0, 1, 2]);
        let y = t.row();
        let y = a.col();
        let y = tl::sum(a);
        let y = tl::max(t > 0.0);
        let y = tl::full([N], u);
        let y = tl::reshape(a, [1]);
        let y = tl::cat(u, tl::zeros::<f32>([1]), 0);",
        expect![[r#"
            5: `+`: `+` needs shapes that broadcast, found [64, 32] and [64]
                help: shapes are aligned at the last axis: `x.col()` makes a column of a tile of one axis
            6: `tl::maximum(t, u)`: `tl::maximum` needs shapes that broadcast, found [64, 32] and [64]
                help: shapes are aligned at the last axis: `x.col()` makes a column of a tile of one axis
            7: `+`: pointer arithmetic needs shapes that broadcast, found [32] and [64]
                help: shapes are aligned at the last axis, and an extent of 1 repeats
            8: `[N]`: a tile of shape [64, 32] does not broadcast to [64]
                help: a broadcast keeps every axis: `tl::sum(x, axis)` folds one, `tl::reshape` joins them
            9: `[N]`: `tl::reshape` keeps the number of elements: [64, 32] has 2048, [64] has 64
                help: `[2048]` has as many
            10: `u`: `tl::trans` swaps the last two axes, found a tile of one axis
                help: `x.col()` makes a column of it, `x.row()` a row
            11: `[0, 0]`: the order of a tile of 2 axes names each of 0 and 1 once
            12: `[0, 1, 2]`: the order of a tile of 2 axes names each of 0 and 1 once
            13: `t`: `.row` takes a tile of one axis, found shape [64, 32]
                help: `tl::expand_dims(x, axis)` inserts an axis into any tile
            14: `a`: `.col` takes a tile, found a scalar of type f32
                help: leave the call out, or make a tile: `tl::full([N], x)`
            15: `a`: `tl::sum` takes a tile, found a scalar of type f32
                help: leave the call out, or make a tile: `tl::full([N], x)`
            16: `t > 0.0`: `tl::max` takes numbers, found bool[64, 32]
                help: convert it: `.to::<i32>()`
            17: `u`: `tl::full` takes a scalar, found a tile of type f32[64]
            18: `a`: `tl::reshape` takes a tile, found a scalar of type f32
                help: leave the call out, or make a tile: `tl::full([N], x)`
            19: `tl::zeros::<f32>([1])`: `tl::cat` takes two tiles of one shape, found [64] and [1]
                help: `tl::broadcast_to(x, [64])` repeats elements
        "#]],
    );
}

#[test]
fn extents_that_are_not_supported() {
    check_body(
        "let y = tl::arange(0, 100);
        let y = tl::arange(0, 0);
        let y = tl::arange(0, 2097152);
        let y = tl::arange(2147483640, 2147483656);
        let y = tl::zeros::<f32>([N, 0]);
        let y = tl::zeros::<f32>([1024, 2048]);
        let y = tl::zeros::<f32>([1, 1, 1, 1, 1, 1]);
        let y = tl::zeros::<f32>([17, 34]);
        let y = tl::zeros::<f32>(N);
        let y = tl::zeros::<f32>([-1]);",
        expect![[r#"
            3: `tl::arange(0, 100)`: a tile extent of 100 is not supported: an extent is a power of two, or one times 3, 5, 7, 9, 11, 13 or 15 (next to it are 96 and 104)
            4: `tl::arange(0, 0)`: `tl::arange` needs start < end, found 0..0
            5: `tl::arange(0, 2097152)`: a tile extent is at most 1048576, found 2097152
            6: `tl::arange(2147483640, 2147483656)`: `tl::arange` gives `i32`, which cannot hold 2147483640..2147483656
            7: `0`: a tile extent is at least 1, found 0
            8: `[1024, 2048]`: a tile has at most 1048576 elements, found 2097152: split it over programs or a loop
            9: `[1, 1, 1, 1, 1, 1]`: a tile has at most 5 axes, found 6
            10: `17`: a tile extent of 17 is not supported: an extent is a power of two, or one times 3, 5, 7, 9, 11, 13 or 15 (next to it are 16 and 18)
            10: `34`: a tile extent of 34 is not supported: an extent is a power of two, or one times 3, 5, 7, 9, 11, 13 or 15 (next to it are 32 and 36)
            11: `N`: a shape is a list such as `[M, N]`, found the integer 64
                help: write `[N]`
            12: `-1`: a tile extent is at least 1, found -1
        "#]],
    );
}

#[test]
fn axes_out_of_range() {
    check_body(
        "let t = tl::zeros::<f32>([N, 32]);
        let y = tl::sum(t, 2);
        let y = tl::max(t, -1);
        let y = tl::expand_dims(t, 3);
        let y = tl::sum(t, n);
        let y = tl::sum(t, 0, n);
        let y = tl::program_id(3);
        let y = tl::num_programs(n);
        let y = tl::permute(t, 1);
        let y = tl::sum(t, []);
        let y = tl::sum(t, [1, 1]);
        let y = tl::sum(t, [0, 2]);",
        expect![[r#"
            4: `2`: axis 2 is out of range: the axes here are 0 and 1
                help: axes count from 0: the last is 1
            5: `-1`: axis -1 is out of range: the axes here are 0 and 1
                help: the last is 1
            6: `3`: axis 3 is out of range: the axes here are 0, 1 and 2
                help: axes count from 0: the last is 2
            7: `n`: an axis is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            8: `n`: `keep_dims` is a constant bool, found a scalar of type i32
                help: write `true` or `false`
            9: `3`: a grid has axes 0, 1 and 2, found 3
            10: `n`: the grid axis is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            11: `1`: the order of axes is a list such as `[0, 1]`, found the integer 1
                help: write `[1, 0]`
            12: `[]`: this list names no axis
                help: leave it out to fold all axes
            13: `1`: axis 1 is named twice
            14: `2`: axis 2 is out of range: the axes here are 0 and 1
                help: axes count from 0: the last is 1
        "#]],
    );
}

#[test]
fn constants_that_are_not_constant() {
    check_body(
        "let y = tl::arange(0, n);
        let y = tl::zeros::<f32>([n, N]);
        let y = tl::full([N, a], 1.0);
        let y = tl::next_power_of_2(n);
        let y = tl::next_power_of_2(-3);
        for i in tl::static_range(0, n) { let y = i; }
        for i in tl::range(0, n).num_stages(n) { let y = z; }
        for i in tl::range(0, n).unroll(65) {}
        tl::static_assert(b);
        tl::static_assert(n > 0, \"n\");",
        expect![[r#"
            3: `n`: the end of a range is a constant integer, found a scalar of type i32
                help: a tile has a constant extent, such as a const parameter of the kernel, and a mask leaves elements out: `tl::arange(0, N) < n`
            4: `n`: a tile extent is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            5: `a`: a tile extent is a constant integer, found a scalar of type f32
                help: constants are literals and const parameters of the kernel
            6: `n`: the argument of `tl::next_power_of_2` is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            7: `-3`: -3 has no next power of two
            8: `n`: the end of a `static_range` is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            9: `n`: the argument of `.num_stages` is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            9: `z`: `z` is not defined
            10: `65`: `.unroll` takes 1 to 64, found 65
            11: `b`: the condition of `tl::static_assert` is a constant bool, found a scalar of type bool
                help: what is known at a launch is promised with `tl::assume(condition)`, or checked in a debug build with `tl::device_assert(condition)`
            12: `n > 0`: the condition of `tl::static_assert` is a constant bool, found a scalar of type bool
                help: what is known at a launch is promised with `tl::assume(condition)`, or checked in a debug build with `tl::device_assert(condition)`
        "#]],
    );
}

// ---- memory

#[test]
fn pointers_masks_and_others() {
    check_body(
        "let c = tl::arange(0, N);
        let y = tl::load(c);
        let y = tl::load(n, b);
        let y = tl::load(x + c, c);
        let y = tl::load(x + c, tl::arange(0, 32) < n);
        let y = tl::load(x + c, c < n, 0);
        let y = tl::load(x + c, c < n, a);
        let y = tl::load(x + c, c < n, tl::zeros::<T>([32]));
        let y = tl::load(x, c < n);
        let y = tl::load(x + c, x);",
        expect![[r#"
            4: `c`: `tl::load` takes a pointer, found a tile of type i32[64]
                help: a slice parameter plus offsets makes one: `x + offsets`
            5: `n`: `tl::load` takes a pointer, found a scalar of type i32
                help: a slice parameter plus offsets makes one: `x + offsets`
            6: `c`: a mask is made of bools, found i32[64]
                help: compare: `offsets < n`
            7: `tl::arange(0, 32) < n`: the mask has shape [32], which does not fit the pointer's shape [64]
                help: shapes are aligned at the last axis, and an extent of 1 repeats
            9: `a`: `other` is f16, found f32
                help: convert it: `.to::<T>()`
            10: `tl::zeros::<T>([32])`: `other` has shape [32], which does not fit the pointer's shape [64]
                help: shapes are aligned at the last axis, and an extent of 1 repeats
            11: `c < n`: the mask has shape [64], but the pointer is a scalar
                help: a slice plus a tile of offsets is a tile of pointers: `x + offsets`
            12: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
        "#]],
    );
}

#[test]
fn stores() {
    check_body(
        "let c = tl::arange(0, N);
        tl::store(x + c, 1.0);
        tl::store(out + c, c, c < n);
        tl::store(out + c, a);
        tl::store(out + c, tl::zeros::<T>([32]));
        tl::store(out + c, 1.0, 1);
        tl::store(out, tl::zeros::<T>([N]));
        tl::store(c, 1.0);
        out = 3;
        x += 1;
        let y = out.len() + tl::zeros::<f32>([N]).len();",
        expect![[r#"
            4: `x + c`: `x` is read-only: `tl::store` needs a `&mut` slice
                help: declare it `x: &mut [T]`
            5: `c`: a value stored to `out` is f16, found i32
                help: convert it: `.to::<T>()`
            6: `a`: a value stored to `out` is f16, found f32
                help: convert it: `.to::<T>()`
            7: `tl::zeros::<T>([32])`: the value has shape [32], which does not fit the pointer's shape [64]
                help: shapes are aligned at the last axis, and an extent of 1 repeats
            8: `1`: a mask is made of bools, found i32
                help: compare: `offsets < n`
            9: `tl::zeros::<T>([N])`: the value has shape [64], but the pointer is a scalar
                help: a slice plus a tile of offsets is a tile of pointers: `x + offsets`
            10: `c`: `tl::store` takes a pointer, found a tile of type i32[64]
                help: a slice parameter plus offsets makes one: `x + offsets`
            11: `out`: `out` cannot be assigned twice
                help: write memory with `tl::store(pointer, value, mask)`
            12: `x`: `x` cannot be assigned twice
                help: write memory with `tl::store(pointer, value, mask)`
            13: `tl::zeros::<f32>([N])`: `.len` is a method of slices
                help: the shape of a tile is known from the constants that made it
        "#]],
    );
}

// ---- control flow

#[test]
fn atomic_functions() {
    check_errors(
        "#[fuse_kernel()]
        fn k(x: &[i32], out: &mut [i32], h: &mut [f16], b: &mut [i8], f: &mut [f64]) {
            let i = tl::arange(0, 64);
            tl::atomic_add(x + i, 1);
            tl::atomic_add(b + i, 1);
            tl::atomic_max(h + i, 1.0);
            tl::atomic_and(f + i, 1.0);
            tl::atomic_add(out + i, 1.0);
            tl::atomic_add(out, i);
            tl::atomic_cas(out + i, 1);
            tl::atomic_add(out + i, 1, i);
            tl::atomic_add(out + i, 1).sem(\"seq_cst\");
            tl::atomic_add(out + i, 1).scope(1);
            let y = tl::load(x + i).sem(\"relaxed\");
            let y = (tl::atomic_add(out + i, 1) + 1).scope(\"gpu\");
        }",
        expect![[r#"
            4: `x + i`: `x` is read-only: `tl::atomic_add` needs a `&mut` slice
                help: declare it `x: &mut [i32]`
            5: `b + i`: `tl::atomic_add` takes i32, i64, u32, u64, f16, bf16, f32 and f64, found i8
            6: `h + i`: `tl::atomic_max` takes i32, i64, u32, u64, f32 and f64, found f16
            7: `f + i`: `tl::atomic_and` takes i32, i64, u32 and u64, found f64
            8: `1.0`: a value for `out` is i32, found the float 1.0
                help: write an integer: `1`
            9: `i`: the value has shape [64], but the pointer is a scalar
                help: a slice plus a tile of offsets is a tile of pointers: `x + offsets`
            10: `atomic_cas`: `tl::atomic_cas` takes 3 to 4 arguments (pointer, compare, value, mask?), found 2
            11: `i`: a mask is made of bools, found i32[64]
                help: compare: `offsets < n`
            12: `"seq_cst"`: `.sem` does not know `"seq_cst"`
                help: it is one of `"relaxed"`, `"acquire"`, `"release"` and `"acq_rel"`
            13: `1`: `.scope` takes a word, found the integer 1
                help: it is one of `"cta"`, `"gpu"` and `"sys"`
            14: `sem`: `.sem` belongs to an atomic function
                help: write it behind the call: `tl::atomic_add(pointer, value).sem(..)`
            15: `scope`: `.scope` belongs to an atomic function
                help: write it behind the call: `tl::atomic_add(pointer, value).scope(..)`
        "#]],
    );
}

#[test]
fn hints_without_an_access() {
    check_body(
        "let c = tl::arange(0, N);
        let y = tl::load(x + c).evict_first().no_allocate();
        let z = (y + y).evict_last();
        tl::store(out + c, y).write_through().evict_first();
        let w = tl::load(x + c).write_through();
        let v = y.evict_first(1);
        c.streaming();",
        expect![[r#"
            5: `evict_last`: `.evict_last` belongs to `tl::load` or `tl::store`
                help: write it behind the call: `tl::load(pointer).evict_last()`
            7: `write_through`: `.write_through` belongs to `tl::store`: a load writes nothing
            8: `1`: `.evict_first` takes no arguments, found 1
                help: leave it out
            9: `streaming`: `.streaming` belongs to `tl::load` or `tl::store`
                help: write it behind the call: `tl::load(pointer).streaming()`
        "#]],
    );
}

#[test]
fn input_precision_of_what_has_none() {
    check_body(
        "let a = tl::reshape(tl::load(x + tl::arange(0, 64)), [8, 8]).to::<f32>();
        let y = tl::dot(a, tl::trans(a)).input_precision(\"tf32\");
        let z = tl::dot(a, a).input_precision(\"ieee\");
        let z = tl::dot(a, a).input_precision(\"tf32x2\");
        let z = tl::dot(a, a).input_precision(32);
        let h = tl::reshape(a, [4, 16]).to::<f16>();
        let z = tl::dot(h, tl::trans(h)).input_precision(\"tf32\");
        let f = tl::reshape(a, [16, 4]);
        let z = tl::dot(f, tl::trans(f)).input_precision(\"tf32\");
        let z = tl::dot(f, tl::trans(f)).input_precision(\"tf32x3\");
        let z = (y + y).input_precision(\"tf32\");",
        expect![[r#"
            6: `"tf32x2"`: `.input_precision` does not know `"tf32x2"`
                help: it is one of `"ieee"`, `"tf32"`, `"tf32x3"`, `"bf16x3"` and `"bf16x6"`
            7: `32`: `.input_precision` takes a word, found the integer 32
                help: it is one of `"ieee"`, `"tf32"`, `"tf32x3"`, `"bf16x3"` and `"bf16x6"`
            11: `tl::dot(f, tl::trans(f))`: a product in TF32 takes an inner extent that is a multiple of 8, found 4
                help: load a wider tile, with 0 where there is nothing to multiply
            12: `tl::dot(f, tl::trans(f))`: a product in TF32 takes an inner extent that is a multiple of 8, found 4
                help: load a wider tile, with 0 where there is nothing to multiply
            13: `input_precision`: `.input_precision` belongs to `tl::dot`
                help: write it behind the call: `tl::dot(a, b).input_precision("tf32")`
        "#]],
    );
}

#[test]
fn roundings_and_axes_that_are_not_there() {
    check_body(
        "let a = tl::load(x + tl::arange(0, 64));
        let y = tl::cast::<f16>(a, \"rtz\");
        let y = tl::cast::<f16>(1.5, \"rtne\");
        let y = tl::cast::<i32>(a, \"rtz\");
        let y = tl::cast::<i32>(a);
        let y = tl::cast::<f16>(tl::arange(0, 64), \"rtz\");
        let y = tl::cast::<f16>(a, \"up\");
        let y = tl::cast::<f16>(a, 1);
        let y = tl::cast(a);
        let y = tl::cast::<f16>(x);
        let y = tl::squeeze(a, 0);
        let y = tl::squeeze(a.row(), 2);
        let y = tl::squeeze(1.0, 0);
        let y = tl::ravel(2);
        let y = tl::squeeze(a.row(), 0) + tl::ravel(a.col());",
        expect![[r#"
            6: `"rtz"`: `tl::cast` rounds floats to floats, found f16 to i32
                help: leave the rounding out: there is one for these types
            8: `"rtz"`: `tl::cast` rounds floats to floats, found i32 to f16
                help: leave the rounding out: there is one for these types
            9: `"up"`: `tl::cast` does not know `"up"`
                help: it is one of `"rtne"` and `"rtz"`
            10: `1`: `tl::cast` takes a word, found the integer 1
                help: it is one of `"rtne"` and `"rtz"`
            11: `cast`: `tl::cast` needs an element type
                help: write `tl::cast::<f32>(..)`
            12: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            13: `0`: `tl::squeeze` takes an axis of extent 1, axis 0 of [64] has 64
                help: `tl::index(x, axis, place)` picks one of several
            14: `2`: axis 2 is out of range: the axes here are 0 and 1
                help: axes count from 0: the last is 1
            15: `1.0`: `tl::squeeze` takes a tile, found a scalar of type f32
                help: leave the call out, or make a tile: `tl::full([N], x)`
            16: `2`: `tl::ravel` takes a tile, found a scalar of type i32
                help: leave the call out, or make a tile: `tl::full([N], x)`
        "#]],
    );
}

#[test]
fn imprecise_acc_without_a_dot() {
    check_body(
        "let a = tl::reshape(tl::load(x + tl::arange(0, 64)), [2, 32]).to::<f8e4m3>();
        let y = tl::dot(a, tl::trans(a)).max_num_imprecise_acc(128);
        let z = tl::dot(a, tl::trans(a)).max_num_imprecise_acc(48);
        let z = tl::dot(a, tl::trans(a)).max_num_imprecise_acc(0);
        let z = tl::dot(a, tl::trans(a)).max_num_imprecise_acc(n);
        let z = (y + y).max_num_imprecise_acc(32);",
        expect![[r#"
            5: `48`: `.max_num_imprecise_acc` takes 0 or a multiple of 32, found 48
            7: `n`: the argument of `.max_num_imprecise_acc` is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            8: `max_num_imprecise_acc`: `.max_num_imprecise_acc` belongs to `tl::dot`
                help: write it behind the call: `tl::dot(a, b).max_num_imprecise_acc(128)`
        "#]],
    );
}

#[test]
fn uses_before_assignment() {
    check_body(
        "let y;
        let z = y + 1;
        let mut u: i32;
        u += 1;
        let w;
        if b { w = 1; }
        let z = w;
        let y;
        for i in 0..n { y = i; }
        let z = y;",
        expect![[r#"
            4: `y`: `y` may be used before it is assigned
                help: give it a first value where it is declared: `let mut y = ..;`
            6: `u`: `u` is changed before it is assigned
            9: `w`: `w` may be used before it is assigned
                help: give it a first value where it is declared: `let mut w = ..;`
            12: `y`: `y` may be used before it is assigned
                help: give it a first value where it is declared: `let mut y = ..;`
        "#]],
    );
}

#[test]
fn variables_that_are_not_mutable() {
    check_body(
        "let y = 1;
        y = 2;
        n = 3;
        n += 1;
        for i in 0..n { i = 2; }
        let z;
        z = 1;
        z = 2;",
        expect![[r#"
            4: `y`: `y` cannot be assigned twice
                help: declare it `let mut y`, or bind it again: `let mut y = y;`
            5: `n`: `n` is a parameter, which cannot be assigned
                help: bind it again: `let mut n = n;`
            6: `n`: `n` is a parameter, which cannot be assigned
                help: bind it again: `let mut n = n;`
            7: `i`: `i` cannot be assigned twice
                help: declare it `let mut i`, or bind it again: `let mut i = i;`
            10: `z`: `z` cannot be assigned twice
                help: declare it `let mut z`, or bind it again: `let mut z = z;`
        "#]],
    );
}

#[test]
fn conditions_that_are_not_bools() {
    check_body(
        "if n { missing; }
        if tl::arange(0, N) < n { missing; } else { gone; }
        while n { missing; }
        while true {}
        if tl::arange(0, N) < n && b {}
        if b || tl::arange(0, N) < n {}
        if n && b {}
        if 1 {}
        if x {}
        let y = if b { 1 };",
        expect![[r#"
            3: `n`: the condition of `if` is a bool, found i32
                help: compare: `x != 0`
            3: `missing`: `missing` is not defined
            4: `tl::arange(0, N) < n`: the condition of `if` is a scalar, found a tile of type bool[64]
                help: choose by element with `tl::select(mask, a, b)`, or write where it holds: `tl::store(pointer, value, mask)`
            4: `missing`: `missing` is not defined
            4: `gone`: `gone` is not defined
            5: `n`: the condition of `while` is a bool, found i32
                help: compare: `x != 0`
            5: `missing`: `missing` is not defined
            6: `true`: this loop never ends
                help: `while` tests a value that the body changes
            7: `&&`: `&&` takes scalars, found a tile of type bool[64]
                help: combine tiles of bools with `&`
            8: `||`: `||` takes scalars, found a tile of type bool[64]
                help: combine tiles of bools with `|`
            9: `n`: `&&` takes bools, found a scalar of type i32
                help: compare: `x != 0`
            10: `1`: the condition of `if` is a bool, found i32
                help: compare: `x != 0`
            11: `x`: the condition of `if` is a bool, found a slice
            12: `1`: this gives the integer 1, but the `if` has no `else` that gives one as well
                help: end it with `else { .. }`, or with a semicolon behind the value
        "#]],
    );
}

#[test]
fn branches_that_differ() {
    check_body(
        "let y = if b { 1 } else { 1.5 };
        let y = if b { n } else { a };
        let y = if b { tl::arange(0, 32) } else { tl::arange(0, 64) };
        let y = if b { 1 } else { tl::store(out, 1.0); };
        let mut v = 0.0;
        if b { v = tl::zeros::<f32>([N]); }
        let mut w = n;
        if b { w = a; } else { w = n; }
        let mut p = x + 1;
        if b { p = x + tl::arange(0, N); }
        let mut q = x + 1;
        if b { q = out + 1; }
        let y = if b { (1, 2) } else { (1, 2.5) };
        let y = if b { \"a\" } else { \"b\" };",
        expect![[r#"
            4: `a`: the value of this `if` is f32 here and i32 in the other branch
                help: convert one side: `.to::<f32>()`
            5: `tl::arange(0, 64)`: the value of this `if` is i32[64] here and i32[32] in the other branch
                help: give both one shape: `tl::broadcast_to(x, [M, N])`, or `tl::reshape(x, [M, N])`
            6: `{ tl::store(out, 1.0); }`: one branch of this `if` gives the integer 1, the other nothing
                help: a branch's value is its last expression, without a semicolon behind it
            8: `tl::zeros::<f32>([N])`: `v` is f32[64] here and f32 before the `if`
                help: give both one shape: `tl::broadcast_to(x, [M, N])`, or `tl::reshape(x, [M, N])`
            10: `n`: `w` is i32 here and f32 in the other branch
                help: convert one side: `.to::<f32>()`
            12: `x + tl::arange(0, N)`: `p` is a pointer into `x` of shape [64] here and a pointer into `x` before the `if`
            14: `out + 1`: `q` is a pointer into `out` here and a pointer into `x` before the `if`
            16: `"a"`: a string cannot be assigned under a loop or `if`
        "#]],
    );
}

#[test]
fn carried_variables_that_change() {
    check_body(
        "let mut acc = 0.0;
        for i in 0..n { acc = acc + tl::zeros::<f32>([N]); }
        let mut t = tl::zeros::<f32>([N]);
        for i in 0..n { t = t.to::<f16>(); }
        let mut u = tl::zeros::<f32>([N]);
        while n > 0 { u = tl::zeros::<f32>([N, N]); }
        let mut i = 0;
        for j in 0..n { i = a; }
        let mut p = x + tl::arange(0, N);
        for j in 0..n { p = out + tl::arange(0, N); }
        let mut r = 0..n;
        for j in 0..n { r = 0..n; }",
        expect![[r#"
            4: `acc + tl::zeros::<f32>([N])`: `acc` is f32 before the loop and f32[64] at the end of its body
                help: start with a tile: `tl::zeros::<f32>([64])`
                note: a variable that a loop carries keeps its type and shape
            6: `t.to::<f16>()`: `t` is f32[64] before the loop and f16[64] at the end of its body
                help: convert it before it is assigned: `.to::<f32>()`
                note: a variable that a loop carries keeps its type and shape
            8: `tl::zeros::<f32>([N, N])`: `u` is f32[64] before the loop and f32[64, 64] at the end of its body
                note: a variable that a loop carries keeps its type and shape
            10: `a`: `i` is i32 before the loop and f32 at the end of its body
                help: start with a float: `0.0`
                note: a variable that a loop carries keeps its type and shape
            12: `out + tl::arange(0, N)`: `p` is a pointer into `x` of shape [64] before the loop and a pointer into `out` of shape [64] at the end of its body
                note: a variable that a loop carries keeps its type and shape
            13: `0..n`: a range cannot be assigned under a loop or `if`
        "#]],
    );
}

#[test]
fn ranges() {
    check_body(
        "for i in n { missing; }
        for i in 0..a { missing; }
        for i in 0.5..1.5 {}
        for i in 0..tl::arange(0, N) { missing; }
        for i in (0..n).step_by(a) {}
        for i in (0..n).step_by(2).step_by(3) {}
        for i in n.step_by(2) {}
        for i in tl::static_range(0, 5000) { missing; }
        for i in tl::static_range(0, 4, 0) { missing; }
        for i in tl::static_range(0, 4) { missing; }
        for i in tl::range(0, n, 2).num_stages(0) {}
        for i in missing..n { gone; }
        for i in 0..n { gone; }
        let mut y = missing;
        for i in 0..n { y = y + gone; }",
        expect![[r#"
            3: `n`: `for` runs over a range, found a scalar of type i32
                help: write `0..n`, `(0..n).step_by(BLOCK)` or `tl::range(0, n, BLOCK)`
            3: `missing`: `missing` is not defined
            4: `a`: the end of a range is `i32` or `i64`, found f32
                help: convert it: `as i32`
            4: `missing`: `missing` is not defined
            5: `0.5`: the start of a range is `i32` or `i64`, found f32
                help: convert it: `as i32`
            5: `1.5`: the end of a range is `i32` or `i64`, found f32
                help: convert it: `as i32`
            6: `tl::arange(0, N)`: the end of a range is a scalar, found a tile of type i32[64]
                help: a loop runs for the program as a whole: reduce the tile, `tl::max(x, 0)`
            6: `missing`: `missing` is not defined
            7: `a`: the step of a range is `i32` or `i64`, found f32
                help: convert it: `as i32`
            8: `step_by`: this range has a step already
            9: `step_by`: `.step_by` is a method of ranges
            10: `5000`: a `static_range` repeats its body at most 4096 times
                help: `tl::range` makes a loop
            10: `missing`: `missing` is not defined
            11: `0`: the step of a `static_range` is at least 1, found 0
            11: `missing`: `missing` is not defined
            12: `missing`: `missing` is not defined
            13: `0`: `.num_stages` takes 1 to 64, found 0
            14: `missing`: `missing` is not defined
            14: `gone`: `gone` is not defined
            15: `gone`: `gone` is not defined
            16: `missing`: `missing` is not defined
            17: `gone`: `gone` is not defined
        "#]],
    );
}

#[test]
fn assertions() {
    check_body(
        "tl::static_assert(N > 64);
        tl::static_assert(N > 64, \"N is too small\");
        tl::static_assert(FLAG, 5);
        tl::static_assert(N);
        tl::static_print(missing);",
        expect![[r#"
            3: `N > 64`: static assertion failed
            4: `N > 64`: static assertion failed: N is too small
            5: `5`: the message of `tl::static_assert` is a string literal
            6: `N`: the condition of `tl::static_assert` is a constant bool, found the integer 64
                help: write `true` or `false`
            7: `missing`: `missing` is not defined
        "#]],
    );
}

#[test]
fn what_debug_builds_do() {
    check_body(
        "let v = tl::load(x + tl::arange(0, N));
        tl::device_assert(v);
        tl::device_assert(v > 0.0, v > 1.0);
        tl::device_assert(v > 0.0, \"rows\", tl::arange(0, 32) < n);
        tl::device_assert(v > 0.0, \"mask\", n);
        tl::device_assert();
        tl::device_print(n);
        tl::device_print(\"x\", v, a);
        tl::device_print(\"x\", x);
        tl::device_print(\"shapes\", (v, tl::arange(0, 32)));
        tl::device_print(\"a\\0b\", n);
        tl::device_print(\"many\", (n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n));
        let largest = tl::reduce(v, 0, |p, q| { tl::device_assert(p > q); p });
        let y = tl::device_print(\"n\", n) + 1;",
        expect![[r#"
            4: `v`: the condition of `tl::device_assert` is bool, found f16
                help: compare: `x != 0`
            5: `v > 1.0`: the message of `tl::device_assert` is a string literal, found a tile of type bool[64]
                help: the mask comes after it
            6: `tl::device_assert(v > 0.0, "rows", tl::arange(0, 32) < n)`: `tl::device_assert` needs shapes that broadcast, found [64] and [32]
                help: shapes are aligned at the last axis, and an extent of 1 repeats
            7: `n`: a mask is bool, found i32
                help: compare: `x != 0`
            8: `device_assert`: `tl::device_assert` takes 1 to 3 arguments (condition, message?, mask?), found 0
            9: `n`: the label of `tl::device_print` is a string literal, found a scalar of type i32
                help: the values come after it
            10: `a`: a mask is made of bools, found f32
                help: several values are a tuple: `(x, y)`
            11: `x`: expected a tile or scalar, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
            12: `tl::device_print("shapes", (v, tl::arange(0, 32)))`: `tl::device_print` needs shapes that broadcast, found [64] and [32]
                help: shapes are aligned at the last axis, and an extent of 1 repeats
            13: `"a\0b"`: the label of `tl::device_print` ends at its zero byte
            14: `(n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n)`: `tl::device_print` takes up to 16 values, found 17
            15: `tl::device_assert(p > q)`: a combination works on single elements: `device_assert` has no place in it
                help: it may use operators, `if`, casts and the lanewise functions of `tl::`
            16: `tl::device_print("n", n)`: `+` takes tiles and scalars, found nothing
        "#]],
    );
    check_body(
        "let v = tl::load(x + tl::arange(0, N));
        tl::assume(v > 0.0);
        tl::assume(n);
        tl::assume(n > 0, \"message\");
        tl::assert(n > 0);
        tl::print(n);
        assert!(n > 0);
        println!(\"{n}\");",
        expect![[r#"
            4: `v > 0.0`: `tl::assume` takes a scalar, found a tile of type bool[64]
                help: a promise is about the arguments of a launch; `tl::device_assert` checks elements
            5: `n`: the condition of `tl::assume` is bool, found i32
                help: compare: `x != 0`
            6: `"message"`: `tl::assume` takes 1 argument (condition), found 2
                help: leave it out
            7: `assert`: `tl::assert` does not exist
                help: `tl::static_assert(condition, "message")` checks constants at build, `tl::device_assert` what a debug build computes
            8: `print`: `tl::print` does not exist
                help: `tl::device_print("label", value)` prints in debug builds, `tl::static_print(value)` at build
            9: `assert`: the macro `assert!` cannot be used in a kernel
                help: `tl::static_assert(condition, "message")` checks constants at build, `tl::device_assert` what a debug build computes
            10: `println`: the macro `println!` cannot be used in a kernel
                help: `tl::device_print("label", value)` prints in debug builds, `tl::static_print(value)` at build
        "#]],
    );
}

#[test]
fn results() {
    check_body(
        "let y = n; y",
        expect![[r#"
        3: `y`: a kernel returns nothing, but its body ends with a scalar of type i32
            help: write results into a `&mut [T]` parameter with `tl::store`
    "#]],
    );
    check_body(
        "if b { 1 } else { 2 }",
        expect![[r#"
        3: `if b { 1 } else { 2 }`: a kernel returns nothing, but its body ends with a scalar of type i32
            help: write results into a `&mut [T]` parameter with `tl::store`
    "#]],
    );
    check_body(
        "0..n",
        expect![[r#"
        3: `0..n`: a kernel returns nothing, but its body ends with a range
            help: write results into a `&mut [T]` parameter with `tl::store`
    "#]],
    );
}

// ---- variants

#[test]
fn a_mistake_of_some_variants_names_one() {
    check_errors(
        "#[fuse_kernel(T = [f32, f16, bf16], N = [64, 128])]
        fn k<T: Float, const N: usize>(x: &[T], out: &mut [T]) {
            let t = tl::load(x + tl::arange(0, N));
            let y = t + tl::zeros::<f32>([N]);
            tl::store(out + tl::arange(0, 64), t);
            tl::static_assert(N < 128, \"N is too large\");
            let z = missing;
        }",
        expect![[r#"
            4: `+`: `+` needs one element type, found f16 and f32
                help: convert one side: `t.to::<f32>()`
                note: in the variant T = f16, N = 64 and 3 others
            5: `t`: the value has shape [128], which does not fit the pointer's shape [64]
                help: shapes are aligned at the last axis, and an extent of 1 repeats
                note: in the variant T = f32, N = 128 and 2 others
            6: `N < 128`: static assertion failed: N is too large
                note: in the variant T = f32, N = 128 and 2 others
            7: `missing`: `missing` is not defined
        "#]],
    );
}

// ---- dots

#[test]
fn dot_operands_that_do_not_fit() {
    check_body(
        "let x = tl::load(x + tl::arange(0, 16).col() * 32 + tl::arange(0, 32).row());
         let wide = x.to::<f32>();
         let whole = x.to::<i32>();
         let a = tl::dot(x, x);
         let b = tl::dot(x, tl::zeros::<f16>([64, 16]));
         let c = tl::dot(x, wide);
         let d = tl::dot(whole, whole);
         let e = tl::dot(x, tl::trans(x), tl::zeros::<f16>([16, 16]));
         let e = tl::dot(x, tl::trans(x), tl::zeros::<f32>([16, 32]));
         let e = tl::dot(x, tl::trans(x), 0.0);
         let f = tl::dot(tl::arange(0, 16), x);
         let f = tl::dot(tl::zeros::<f16>([16]), x);
         let g = tl::dot(x, tl::zeros::<f16>([2, 32, 16]));
         let g = tl::dot(tl::zeros::<f16>([4, 16, 16]), tl::zeros::<f16>([2, 16, 16]));
         let h = tl::dot(tl::zeros::<f16>([16, 8]), tl::zeros::<f16>([8, 16]));
         let h = tl::dot(tl::zeros::<i8>([16, 16]), tl::zeros::<i8>([16, 16]));
         let i = tl::dot(n, x);
         let i = tl::dot(x);
         let j = tl::dot(tl::zeros::<f32>([4096, 2]), tl::zeros::<f32>([2, 4096]));
         let k = tl::dot(x > 0.0, x > 0.0);",
        expect![[r#"
            6: `x`: `tl::dot` needs as many rows on the right as columns on the left, 32, found 16: [16, 32] times [16, 32]
                help: transpose it: `tl::trans(..)`
            7: `tl::zeros::<f16>([64, 16])`: `tl::dot` needs as many rows on the right as columns on the left, 32, found 64: [16, 32] times [64, 16]
            8: `wide`: `tl::dot` needs one element type, found f16 and f32
                help: convert one side: `.to::<f16>()`
            9: `whole`: `tl::dot` takes tiles of `f16`, `bf16`, `f32`, `f64`, `i8`, `f8e4m3` and `f8e5m2`, found i32[16, 32]
                help: convert both: `.to::<f32>()`, or `.to::<i8>()`
            10: `tl::zeros::<f16>([16, 16])`: the accumulator of this product is f32, found f16
                help: begin with `tl::zeros::<f32>([16, 16])`, or convert it: `.to::<f32>()`
            11: `tl::zeros::<f32>([16, 32])`: the accumulator of this product has shape [16, 16], found [16, 32]
                help: begin with `tl::zeros::<f32>([16, 16])`
            12: `0.0`: the accumulator of this product has shape [16, 16], found []
                help: begin with `tl::zeros::<f32>([16, 16])`
            13: `tl::arange(0, 16)`: `tl::dot` takes tiles of `f16`, `bf16`, `f32`, `f64`, `i8`, `f8e4m3` and `f8e5m2`, found i32[16]
                help: convert both: `.to::<f32>()`, or `.to::<i8>()`
            14: `tl::zeros::<f16>([16])`: `tl::dot` multiplies tiles of 2 axes, or of 3, found shape [16]
                help: `x.row()` and `x.col()` make a matrix of one axis
            15: `tl::zeros::<f16>([2, 32, 16])`: `tl::dot` multiplies tiles of as many axes, found [16, 32] and [2, 32, 16]
            16: `tl::zeros::<f16>([2, 16, 16])`: `tl::dot` multiplies as many matrices as there are on the left, found [4, 16, 16] and [2, 16, 16]
            17: `tl::zeros::<f16>([16, 8]), tl::zeros::<f16>([8, 16])`: `tl::dot` of f16 takes an inner extent that is a multiple of 16, found 8
                help: load a wider tile, with 0 where there is nothing to multiply
            18: `tl::zeros::<i8>([16, 16]), tl::zeros::<i8>([16, 16])`: `tl::dot` of i8 takes an inner extent that is a multiple of 32, found 16
                help: load a wider tile, with 0 where there is nothing to multiply
            19: `n`: `tl::dot` takes a tile, found a scalar of type i32
                help: leave the call out, or make a tile: `tl::full([N], x)`
            20: `dot`: `tl::dot` takes 2 to 3 arguments (a, b, acc?), found 1
                help: write `tl::dot(x, b)`
            21: `tl::dot(tl::zeros::<f32>([4096, 2]), tl::zeros::<f32>([2, 4096]))`: a tile has at most 1048576 elements, found 16777216: split it over programs or a loop
            22: `x > 0.0`: `tl::dot` takes tiles of `f16`, `bf16`, `f32`, `f64`, `i8`, `f8e4m3` and `f8e5m2`, found bool[16, 32]
                help: convert both: `.to::<f32>()`
        "#]],
    );
}

#[test]
fn parts_and_complements() {
    check_body(
        "let pair = (1, 2.0);
        let y = pair.2;
        let y = a.0;
        let y = pair.first;
        let mut u = 0;
        let mut v = 0;
        (u, v) = (1, 2, 3);
        (u, v) += (1, 2);
        (u, x[0]) = (1, 2);
        (u, w) = (1, 2);
        let y = tl::zeros::<u8>([N]) & !0x100;
        let y = tl::zeros::<u8>([N]) & !0xff;
        let y = a.max(0.0);
        let y = a.maximum(0.0);
        let mut sum = 0;
        for i in 0..4 { sum += 0.5 * i as f32; }
        while let 1 = u { u = 2; }",
        expect![[r#"
            4: `pair.2`: this tuple has the parts `.0` to `.1`, found `.2`
            5: `a.0`: `.0` is a part of a tuple, found a scalar of type f32
                help: leave out `.0`
            6: `first`: `first` is not a field of a tuple
                help: a tuple has `.0`, `.1`, .., or is taken apart with `let (a, b) = ..`
            9: `(u, v)`: this pattern has 2 parts, the tuple has 3
            10: `(u, v)`: this assignment cannot be used in a kernel
                help: assign to a variable
            11: `x[0]`: a slice cannot be indexed
                help: write memory with `tl::store(x + 0, value)`
            12: `w`: `w` is not defined
                help: declare it: `let mut w = ..;`
            13: `!0x100`: -257 does not fit in u8, which holds 0 to 255
                help: `i32` holds it: `.to::<i32>()` converts what stands beside it
            15: `max`: `max` is not a method of a scalar of type f32
                help: of two tiles or scalars: `tl::maximum(a, 0.0)`
            16: `maximum`: `maximum` is not a method of a scalar of type f32
                help: call the function: `tl::maximum(a, 0.0)`
            18: `+=`: `+` needs one element type, found i32 and f32
                help: `sum` began as the integer 0: begin with `0.0`
            19: `while`: `while let` cannot be used in a kernel
                help: `while` takes a condition
        "#]],
    );
}

//! Tokens that mean nothing in a kernel are refused: attributes, suffixes, options and methods that are there twice, and
//! places for values in texts; and constants that are not the number that they look like.

use expect_test::{Expect, expect};

use tile_ir::testing::{mistakes, module, render};

/// Every mistake of a kernel.
fn check_kernel(source: &str, expected: Expect) {
    expected.assert_eq(&render(&mistakes(source), source));
}

/// Every mistake of statements in a kernel that has one of each kind of parameter.
fn check_body(statements: &str, expected: Expect) {
    let source = format!(
        "#[fuse_kernel(N = [64])] fn k<const N: usize>(x: &[f32], cnt: &[i32], out: &mut [f32], n: i32, s: f32) {{
            let y = tl::load(x + tl::arange(0, N));
{statements}
        }}"
    );
    check_kernel(&source, expected);
}

/// Every mistake of a kernel's attribute.
fn check_attribute(attribute: &str, expected: Expect) {
    check_kernel(
        &format!(
            "#[fuse_kernel({attribute})] fn k<const N: usize>(out: &mut [f32]) {{ tl::store(out, N as f32); }}"
        ),
        expected,
    );
}

/// Every mistake of a module.
fn check_module(source: &str, expected: Expect) {
    let (_, errors) = module(source);
    expected.assert_eq(&render(&errors, source));
}

// ---- attributes

#[test]
fn attributes_within_a_kernel_are_refused_by_name() {
    check_kernel(
        "#[fuse_kernel(N = [64])]
        #[doc = \"The kernel's own attributes are rustc's.\"]
        #[inline]
        fn k<#[packed] const N: usize>(#[readonly] x: &[f32], #[doc = \"d\"] out: &mut [f32], #[divisible(16)] n: i32) {
            #![allow(unused)]
            #[unroll(4)]
            for i in 0..n { tl::store(out + i, 0.0); }
            #[num_stages(2)] #[unroll]
            while n > 3 { #![warn(unused)] }
            #[inline(always)]
            fn f(#[restrict] x: i32) -> i32 { x }
            #[fuse_fn]
            fn g(x: i32) -> i32 { x }
            #[used]
            const C: i32 = 1;
            match n { #[likely] 3 => {} _ => {} }
            let z = |#[noalias] x| x + 1;
            let y = #[allow(unused)] f(#[cold] 3);
            #[my::own] #[must_use]
            tl::store(out, 1.0);
            #[num_warps(4)] { tl::store(out, #[shared] 1.0) }
        }",
        expect![[r#"
            4: `#[packed]`: `#[packed]` means nothing in a kernel
                help: leave it out; `#[cfg(..)]` and levels of lints, such as `#[allow(..)]`, are known here
            4: `#[readonly]`: `#[readonly]` means nothing in a kernel
                help: leave it out: a `&[T]` is only read, and a `&mut [T]` overlaps no other parameter
            4: `#[doc = "d"]`: documentation cannot stand here
                help: write a comment with `//`, or document it before the function
            4: `#[divisible(16)]`: `#[divisible]` means nothing in a kernel
                help: leave it out: a launch tests by itself what divides its arguments; `tl::assume(n % 16 == 0)` in the body says more
            5: `#![allow(unused)]`: `#![allow]` stands inside of a function
                help: write it before the function: `#[allow(..)]`
            6: `#[unroll(4)]`: `#[unroll]` means nothing in a kernel
                help: write `.unroll(4)` on the range: `for i in tl::range(0, n, 1).unroll(4)`
            8: `#[num_stages(2)]`: `#[num_stages]` means nothing in a kernel
                help: write `.num_stages(3)` on the range: `for i in tl::range(0, n, 1).num_stages(3)`
            8: `#[unroll]`: `#[unroll]` means nothing in a kernel
                help: write `.unroll(4)` on the range: `for i in tl::range(0, n, 1).unroll(4)`
            9: `#![warn(unused)]`: `#![warn]` stands inside of a function
                help: write it before the function: `#[warn(..)]`
            10: `#[inline(always)]`: `#[inline]` means nothing in a kernel
                help: leave it out: every call in a kernel is inlined
            11: `#[restrict]`: `#[restrict]` means nothing in a kernel
                help: leave it out: a `&[T]` is only read, and a `&mut [T]` overlaps no other parameter
            12: `#[fuse_fn]`: `#[fuse_fn]` means nothing in a kernel
                help: leave it out: a kernel calls the functions of its body as they are
            14: `#[used]`: `#[used]` means nothing in a kernel
                help: leave it out; `#[cfg(..)]` and levels of lints, such as `#[allow(..)]`, are known here
            16: `#[likely]`: `#[likely]` means nothing in a kernel
                help: leave it out; `#[cfg(..)]` and levels of lints, such as `#[allow(..)]`, are known here
            17: `#[noalias]`: `#[noalias]` means nothing in a kernel
                help: leave it out: a `&[T]` is only read, and a `&mut [T]` overlaps no other parameter
            18: `#[allow(unused)]`: the level of a lint cannot be set here
                help: set it before a statement, an arm of a `match`, a parameter or the function
            18: `#[cold]`: `#[cold]` means nothing in a kernel
                help: leave it out: every call in a kernel is inlined
            19: `#[my::own]`: `#[my::own]` means nothing in a kernel
                help: leave it out; `#[cfg(..)]` and levels of lints, such as `#[allow(..)]`, are known here
            19: `#[must_use]`: `#[must_use]` means nothing in a kernel
                help: leave it out: a result that is not used is reported anyway
            21: `#[num_warps(4)]`: `#[num_warps]` means nothing in a kernel
                help: it is an option of the kernel: `#[fuse_kernel(num_warps = 4)]`
            21: `#[shared]`: `#[shared]` means nothing in a kernel
                help: leave it out: the compiler decides where a tile is
        "#]],
    );
}

#[test]
fn levels_of_lints_documentation_and_conditions_stand_before_statements() {
    check_kernel(
        "#[fuse_kernel]
        fn k(#[allow(unused)] #[cfg(all())] x: &[f32], out: &mut [f32], n: i32) {
            #[allow(unused)] let a = 1;
            #[expect(unused_variables, reason = \"r\")] #[cfg(all())] let b = 1;
            #[deny(unused)] for i in 0..n { #[warn(unused)] tl::store(out + i, 0.0); }
            #[rustfmt::skip] #[clippy::msrv = \"1\"]
            tl::store(out, 1.0);
            #[forbid(unused)] { tl::store(out, 1.0); }
            match n { #[allow(unused)] 3 => {} _ => {} }
            /// documentation
            #[allow(dead_code)] fn f(#[allow(unused)] x: i32) -> i32 { x }
            /// documentation
            #[allow(dead_code)] const C: i32 = 1;
            #[allow(unused)] f(C);
        }",
        expect![""],
    );
}

#[test]
fn a_mark_is_there_once() {
    check_kernel(
        "#[fuse_kernel] #[dsl_runtime::fuse_kernel] #[fuse_fn] #[fuse_module] fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
        expect![[r#"
            1: `#[dsl_runtime::fuse_kernel]`: `fuse_kernel` is here twice
            1: `#[fuse_fn]`: a function is a `fuse_kernel` or a `fuse_fn`, not both
            1: `#[fuse_module]`: `fuse_module` goes on a module
        "#]],
    );
    check_module(
        "#[fuse_module] #[fuse_kernel] mod m {
            #[fuse_fn] #[fuse_fn] #[inline] fn f(x: Tile<f32>) -> Tile<f32> { x }
            #[fuse_fn] #[fuse_kernel] fn k(out: &mut [f32]) { tl::store(out, f(1.0)); }
            #[unroll] #[fuse_fn] #[allow(unused)] fn g(#[readonly] x: Tile<f32>) -> Tile<f32> { #[weird] tl::exp(x) }
        }",
        expect![[r#"
            1: `#[fuse_module]`: `fuse_module` is here twice
            1: `#[fuse_kernel]`: `fuse_kernel` goes on a function
            2: `#[fuse_fn]`: `fuse_fn` is here twice
            2: `#[inline]`: `#[inline]` means nothing in a kernel
                help: leave it out: every call in a kernel is inlined
            3: `#[fuse_fn]`: a function is a `fuse_kernel` or a `fuse_fn`, not both
            4: `#[unroll]`: `#[unroll]` means nothing in a kernel
                help: write `.unroll(4)` on the range: `for i in tl::range(0, n, 1).unroll(4)`
            4: `#[readonly]`: `#[readonly]` means nothing in a kernel
                help: leave it out: a `&[T]` is only read, and a `&mut [T]` overlaps no other parameter
            4: `#[weird]`: `#[weird]` means nothing in a kernel
                help: leave it out; `#[cfg(..)]` and levels of lints, such as `#[allow(..)]`, are known here
        "#]],
    );
    check_attribute(
        "N = [64], unchecked, unchecked, deny(spills, spills), num_warps = 4, num_warps = 8",
        expect![[r#"
            1: `unchecked`: `unchecked` is declared twice
                help: keep one of the two
            1: `spills`: `spills` is denied twice
            1: `num_warps`: `num_warps` is declared twice
                help: keep one of the two
        "#]],
    );
}

#[test]
fn conditions_are_put_before_statements() {
    check_body(
        "if cfg!(debug_assertions) { tl::store(out, 1.0); }",
        expect![[r#"
        3: `cfg`: the macro `cfg!` cannot be used in a kernel
            help: put `#[cfg(..)]` before a statement or an arm of a `match`
    "#]],
    );
}

// ---- suffixes

#[test]
fn suffixes_of_declared_values() {
    check_attribute(
        "N = [64k]",
        expect![[r#"
        1: `64k`: `k` is not a suffix of a number
            help: write `65536`
    "#]],
    );
    check_attribute(
        "N = [64u8, 64f32, 128zz, 64usize]",
        expect![[r#"
            1: `64u8`: `N` is a `usize`, found `64u8`
                help: write the number: `64`
            1: `64f32`: `64f32`: an integer is needed
                help: write `64`
            1: `128zz`: `zz` is not a suffix of a number
                help: write `128`
            1: `64usize`: `64` is listed twice for `N`
        "#]],
    );
    check_attribute(
        "N = -4x, num_warps = 4x, num_stages = (N / 32k).min(3q), maxnreg = 64f32",
        expect![[r#"
            1: `-4x`: `N` is a `usize`, which holds 0 to 18446744073709551615, found -4
            1: `4x`: `x` is not a suffix of a number
                help: write `4`
            1: `4x`: `x` is not a suffix of a number
                help: write `4`
            1: `N`: expected an integer, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
            1: `32k`: `k` is not a suffix of a number
                help: write `32768`
            1: `3q`: `q` is not a suffix of a number
                help: write `3`
            1: `64f32`: `64f32`: an integer is needed
                help: write `64`
        "#]],
    );
    check_attribute(
        "configs = [{ N: 64zz, num_stages: 3q }, { N: 2M, num_warps: 4u32 }]",
        expect![[r#"
            1: `64zz`: `zz` is not a suffix of a number
                help: write `64`
            1: `3q`: `q` is not a suffix of a number
                help: write `3`
            1: `2M`: `M` is not a suffix of a number
                help: write `2097152`
        "#]],
    );
}

#[test]
fn suffixes_in_a_body() {
    check_body(
        "let a = 1.0q + 1.0f + 2.0h;
        let b = 64k + 3u + 4ul + 0x10zz + 1.5i32 + 2.0usize;
        for i in 0..4x { tl::store(out + i, 0.0); }
        let c = tl::zeros::<f32>([64k]);
        const C: i32 = 4Ki;
        match n { 3x => {} _ => {} }
        fn f(x: i32) -> i32 { x + 2z }
        let d = 1f32 + 2f64 as f32 + 3i32 as f32 + 1u128 as f32 + 1bool as f32;",
        expect![[r#"
            3: `1.0q`: `q` is not a suffix of a number
                help: write `1.0`
            3: `1.0f`: `f` is not a suffix of a number
                help: write `1.0f32`
            3: `2.0h`: `h` is not a suffix of a number
                help: write `2.0f16`
            4: `64k`: `k` is not a suffix of a number
                help: write `65536`
            4: `3u`: `u` is not a suffix of a number
                help: write `3u32`
            4: `4ul`: `ul` is not a suffix of a number
                help: write `4u64`
            4: `0x10zz`: `zz` is not a suffix of a number
                help: write `16`
            4: `1.5i32`: `1.5i32`: this number is no integer
                help: write `1.5` and convert it: `as i32`
            4: `2.0usize`: `2.0usize`: this number is no integer
                help: write `2.0` and convert it: `as usize`
            5: `4x`: `x` is not a suffix of a number
                help: write `4`
            6: `64k`: `k` is not a suffix of a number
                help: write `65536`
            7: `4Ki`: `Ki` is not a suffix of a number
                help: write `4096`
            8: `3x`: `x` is not a suffix of a number
                help: write `3`
            9: `2z`: `z` is not a suffix of a number
                help: write `2`
            10: `1u128`: `u128` is not an element type
                help: element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64
            10: `1bool`: `bool` is not a suffix of a number
                help: write `1`
        "#]],
    );
    check_kernel(
        "#[fuse_kernel] fn k(x: &View<f32, 2k>) {}",
        expect![[r#"
        1: `2k`: `k` is not a suffix of a number
            help: write `2048`
        1: `2k`: how many axes a view has is written as a number from 1 to 5
    "#]],
    );
}

// ---- methods that choose

#[test]
fn an_access_has_one_of_each_choice() {
    check_body(
        "let at = tl::arange(0, N);
        let a = tl::load(x + at).evict_last().evict_first();
        let a = tl::load(x + at).evict_last().no_allocate().evict_last();
        tl::store(out + at, y).cache_global().evict_first().write_through();
        tl::store(out + at, y).no_allocate().no_allocate();
        tl::atomic_add(out, 1.0).sem(\"relaxed\").scope(\"gpu\").sem(\"acq_rel\");
        tl::atomic_add(out, 1.0).scope(\"gpu\").scope(\"gpu\");
        for i in tl::range(0, n, 1).unroll(2).num_stages(2).unroll(4) { tl::store(out + i, 1.0); }
        for i in (0..n).num_stages(2).num_stages(2) { tl::store(out + i, 1.0); }
        let t = tl::reshape(y, [8, 8]);
        let d = tl::dot(t, t).input_precision(\"tf32\").input_precision(\"ieee\");
        let d = tl::dot(t, t).max_num_imprecise_acc(32).max_num_imprecise_acc(64);",
        expect![[r#"
            4: `evict_first`: this has one eviction policy: `.evict_last` is another
                help: keep one of the two
            5: `evict_last`: `.evict_last` is here twice
                help: keep one of the two
            6: `write_through`: this has one cache modifier: `.cache_global` is another
                help: keep one of the two
            7: `no_allocate`: `.no_allocate` is here twice
                help: keep one of the two
            8: `sem`: `.sem` is here twice
                help: keep one of the two
            9: `scope`: `.scope` is here twice
                help: keep one of the two
            10: `unroll`: `.unroll` is here twice
                help: keep one of the two
            11: `num_stages`: `.num_stages` is here twice
                help: keep one of the two
            13: `input_precision`: `.input_precision` is here twice
                help: keep one of the two
            14: `max_num_imprecise_acc`: `.max_num_imprecise_acc` is here twice
                help: keep one of the two
        "#]],
    );
    check_body(
        "let at = tl::arange(0, N);
        let a = tl::load(x + at).evict_last().cache_global().no_allocate();
        let b = (a + tl::load(x + at).evict_first()).to::<f32>();
        tl::store(out + at, b).evict_first().streaming();
        tl::atomic_add(out, 1.0).sem(\"relaxed\").scope(\"gpu\");
        for i in tl::range(0, n, 1).unroll(2).num_stages(2) { tl::store(out + i, 1.0); }",
        expect![[""]],
    );
}

// ---- texts

#[test]
fn texts_have_no_places_for_values() {
    check_body(
        "tl::device_print(\"y = {}\", y);
        tl::device_print(\"{y:?}\");
        tl::device_print(\"n = %d\", n);
        tl::device_print(\"s: %.3f\", s);
        tl::static_print(\"N = {N}\");
        tl::static_assert(N > 3, \"{N} is small\");
        tl::device_assert(n > 0, \"n is {}\");",
        expect![[r#"
            3: `"y = {}"`: the label of `tl::device_print` is printed as it is: it has no `{}`
                help: write `tl::device_print("label", value)`
            4: `"{y:?}"`: the label of `tl::device_print` is printed as it is: it has no `{y:?}`
                help: write `tl::device_print("label", value)`
            5: `"n = %d"`: the label of `tl::device_print` is printed as it is: it has no `%d`
                help: write `tl::device_print("label", value)`
            6: `"s: %.3f"`: the label of `tl::device_print` is printed as it is: it has no `%.3f`
                help: write `tl::device_print("label", value)`
            7: `"N = {N}"`: the text of `tl::static_print` is printed as it is: it has no `{N}`
                help: `tl::static_print(N)` prints the value of a constant
            8: `"{N} is small"`: the message of `tl::static_assert` is printed as it is: it has no `{N}`
                help: `tl::static_print(N)` prints the value of a constant
            9: `"n is {}"`: the message of `tl::device_assert` is printed as it is: it has no `{}`
                help: `tl::device_print("label", value)` prints values
        "#]],
    );
    check_body(
        "tl::device_print(\"100% of y\", y);
        tl::device_print(\"50%d\", y);
        tl::device_print(\"a set }{\", y);
        tl::static_print(\"N\");
        tl::static_print(N);",
        expect![[""]],
    );
}

// ---- constants

#[test]
fn rounded_quotients_are_no_floats() {
    check_body(
        "let a = 1 / 2 * y;
        let b = y * (3 / 4);
        let half = 1 / 2;
        let c = s * half;
        let d = s * (1 / N);
        let e = (1 / N) as f32;
        let f = (1 / 2).to::<f32>() + tl::cast::<f32>(-7 / 2);
        let g: f32 = 5 / 2;
        const H: f32 = 1 / 3;
        let i = y + H;
        let j = tl::maximum(y, 10 - 3 / 2);
        let k = tl::full::<f32>([N], 1 / 2);
        let l = 2.0 * (7 / 2);
        fn m(x: f32) -> f32 { x }
        let o = m(1 / 4);
        tl::store(out, 9 / 4);
        let p = if n > 0 { s } else { 1 / 2 };
        let q = (7i32 / 2) as f32;",
        expect![[r#"
            3: `/`: `1 / 2` is an integer division: 0
                help: write `1.0 / 2.0`; `(1 / 2) as i32` is the integer
            4: `/`: `3 / 4` is an integer division: 0
                help: write `3.0 / 4.0`; `(3 / 4) as i32` is the integer
            5: `/`: `1 / 2` is an integer division: 0
                help: write `1.0 / 2.0`; `(1 / 2) as i32` is the integer
                note: it becomes f32 on line 6
            7: `/`: `1 / 64` is an integer division: 0
                help: divide floats: `a as f32 / b as f32`; `(a / b) as i32` is the integer
            8: `/`: `1 / 64` is an integer division: 0
                help: divide floats: `a as f32 / b as f32`; `(a / b) as i32` is the integer
            9: `/`: `1 / 2` is an integer division: 0
                help: write `1.0 / 2.0`; `(1 / 2) as i32` is the integer
            9: `/`: `-7 / 2` is an integer division: -3
                help: write `-7.0 / 2.0`; `(-7 / 2) as i32` is the integer
            10: `/`: `5 / 2` is an integer division: 2
                help: write `5.0 / 2.0`; `(5 / 2) as i32` is the integer
            11: `/`: `1 / 3` is an integer division: 0
                help: write `1.0 / 3.0`; `(1 / 3) as i32` is the integer
            13: `/`: `3 / 2` is an integer division: 1
                help: write `3.0 / 2.0`; `(3 / 2) as i32` is the integer
            14: `/`: `1 / 2` is an integer division: 0
                help: write `1.0 / 2.0`; `(1 / 2) as i32` is the integer
            15: `/`: `7 / 2` is an integer division: 3
                help: write `7.0 / 2.0`; `(7 / 2) as i32` is the integer
            17: `/`: `1 / 4` is an integer division: 0
                help: write `1.0 / 4.0`; `(1 / 4) as i32` is the integer
            18: `/`: `9 / 4` is an integer division: 2
                help: write `9.0 / 4.0`; `(9 / 4) as i32` is the integer
            19: `/`: `1 / 2` is an integer division: 0
                help: write `1.0 / 2.0`; `(1 / 2) as i32` is the integer
            20: `/`: `7 / 2` is an integer division: 3
                help: write `7.0 / 2.0`; `(7 / 2) as i32` is the integer
        "#]],
    );
    check_body(
        "let a = 4 / 2 * y;
        let b = (N / 32) as f32 * s;
        let c = y + ((7 / 2) as i32 as f32) + ((N / 3) as usize as f32);
        let h: i32 = 7 / 2;
        const HALF: usize = 7 / 2;
        const TYPED: i32 = 7 / 2;
        let d = y + h as f32 + HALF as f32 + TYPED as f32;
        tl::store(out + 7 / 2, 1.0 / 2.0);
        let e = tl::cdiv(7, 2) as f32 * s;
        let f = (n / 2) as f32;",
        expect![[""]],
    );
}

#[test]
fn constants_fit_the_integers_that_they_become() {
    check_body(
        "let a = (300 as i8, -129 as i8, 256 as u8, -1 as u8, 40000 as i16, 65536 as u16, -1 as u16);
        let b = (3_000_000_000 as i32, 5_000_000_000 as u32, -1 as u32, 9223372036854775808 as i64, -1 as u64);
        let c = 300.to::<i8>();
        let d = (200 + 100) as i8;
        let e = tl::cast::<u8>(256);",
        expect![[r#"
            3: `300 as i8`: 300 does not fit in i8, which holds -128 to 127
                help: its low bits are `300i32 as i8`
            3: `-129 as i8`: -129 does not fit in i8, which holds -128 to 127
                help: its low bits are `-129i32 as i8`
            3: `256 as u8`: 256 does not fit in u8, which holds 0 to 255
                help: its low bits are `256i32 as u8`
            3: `-1 as u8`: -1 does not fit in u8, which holds 0 to 255
                help: its low bits are `-1i32 as u8`
            3: `40000 as i16`: 40000 does not fit in i16, which holds -32768 to 32767
                help: its low bits are `40000i32 as i16`
            3: `65536 as u16`: 65536 does not fit in u16, which holds 0 to 65535
                help: its low bits are `65536i32 as u16`
            3: `-1 as u16`: -1 does not fit in u16, which holds 0 to 65535
                help: its low bits are `-1i32 as u16`
            4: `3_000_000_000 as i32`: 3000000000 does not fit in i32, which holds -2147483648 to 2147483647
                help: its low bits are `3000000000i64 as i32`
            4: `5_000_000_000 as u32`: 5000000000 does not fit in u32, which holds 0 to 4294967295
                help: its low bits are `5000000000i64 as u32`
            4: `-1 as u32`: -1 does not fit in u32, which holds 0 to 4294967295
                help: its low bits are `-1i32 as u32`
            4: `9223372036854775808 as i64`: 9223372036854775808 does not fit in i64, which holds -9223372036854775808 to 9223372036854775807
                help: its low bits are `9223372036854775808u64 as i64`
            4: `-1 as u64`: -1 does not fit in u64, which holds 0 to 18446744073709551615
                help: its low bits are `-1i32 as u64`
            5: `300.to::<i8>()`: 300 does not fit in i8, which holds -128 to 127
                help: its low bits are `300i32 as i8`
            6: `(200 + 100) as i8`: 300 does not fit in i8, which holds -128 to 127
                help: its low bits are `300i32 as i8`
            7: `tl::cast::<u8>(256)`: 256 does not fit in u8, which holds 0 to 255
                help: its low bits are `256i32 as u8`
        "#]],
    );
    check_body(
        "let a = (127 as i8, -128 as i8, 255 as u8, !0 as u8, 65535 as u16, !0 as u32, 18446744073709551615 as u64);
        let b = (300i32 as i8, -1i32 as u32, N as i8, n as i8, 1e20 as i32);",
        expect![[""]],
    );
}

/// A bool among numbers is no number, also where all are constants.
#[test]
fn bools_are_no_numbers() {
    check_body(
        "tl::store(out, 1.0 + true); tl::store(out, 2.0 * (N == 64)); let a = 3 - false;",
        expect![[r#"
            3: `true`: `+` takes numbers, found bool
                help: convert it: `.to::<i32>()`
            3: `(N == 64)`: `*` takes numbers, found bool
                help: where the bool is false a product is 0: `tl::select(mask, x, 0.0)`
            3: `false`: `-` takes numbers, found bool
                help: the opposite of a bool is `!false`
        "#]],
    );
}

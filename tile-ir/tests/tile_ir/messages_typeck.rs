//! Mistakes that come with the habits of other languages, and those that constants make certain.

use expect_test::{Expect, expect};

use tile_ir::testing::{mistakes, render};

/// Every mistake of a kernel.
fn check_errors(source: &str, expected: Expect) {
    expected.assert_eq(&render(&mistakes(source), source));
}

/// Every mistake of statements in a kernel that has one of each kind of parameter.
fn check_body(statements: &str, expected: Expect) {
    let source = format!(
        "#[fuse_kernel(T = [f16], N = [64])]
        fn k<T: Float, const N: usize>(x: &[T], i: &mut [i8], out: &mut [T], n: i32, a: f32, b: bool) {{
{statements}
        }}"
    );
    check_errors(&source, expected);
}

#[test]
fn arguments_have_no_names() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let m = lane < n;
        let t = tl::load(x + lane, mask = m, other = 0.0);
        let u = tl::load(x + lane, other = 0.0);
        let s = tl::sum(y, axis = 0, keep_dims = True);
        let p = tl::program_id(axis = 0);
        let q = y.multiple_of(n = 8);
        let f = |v| v;
        let r = f(v = 1);
        "#,
        expect![[r#"
            7: `mask =`: arguments have no names here
                help: write `m`
            7: `other =`: arguments have no names here
                help: write `0.0`
            8: `other =`: arguments have no names here
                help: write `0.0` in its place, of (pointer, mask, other)
            9: `axis =`: arguments have no names here
                help: write `0`
            9: `keep_dims =`: arguments have no names here
                help: write `true`
            10: `axis =`: arguments have no names here
                help: write `0`
            11: `multiple_of`: `multiple_of` is not a method of a tile of type f32[64]
                help: call the function: `tl::multiple_of(y, ..)`
            11: `n =`: arguments have no names here
                help: write `8`
            13: `v =`: arguments have no names here
                help: write `1`
        "#]],
    );
}

#[test]
fn tl_is_a_module() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = tl.arange(0, N);
        let b = tl.zeros(N);
        let c = tl.math.exp(y);
        let d = tl.float32;
        let e = tl.exp;
        let f = tl;
        "#,
        expect![[r#"
            6: `tl`: `tl` is a module, not a value
                help: write `tl::arange`
            7: `tl`: `tl` is a module, not a value
                help: write `tl::zeros`
            7: `zeros`: `tl::zeros` needs an element type
                help: write `tl::zeros::<f32>(..)`
            8: `tl.math`: `tl` is a module, not a value
                help: write `tl::exp`
            9: `tl.float32`: `tl::float32` does not exist
                help: an element type is written `f32`: `.to::<f32>()`, `tl::zeros::<f32>([N])`
            10: `tl`: `tl` is a module, not a value
                help: write `tl::exp`
            11: `tl`: `tl` is a module, not a value
                help: write `tl::` and a name
        "#]],
    );
}

#[test]
fn element_types_by_other_names() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = y.to(tl::float32);
        let b = tl::zeros([N], tl::float32);
        let c = tl::cast(y, tl::float32);
        let d = tl::zeros::<float32>([N]);
        let e = y.to::<half>();
        let f = y.to(f32);
        let g = y as double;
        let h = tl::bfloat17;
        "#,
        expect![[r#"
            6: `tl::float32`: `.to` takes its element type as a type argument
                help: the element type stands between angle brackets: `.to::<f32>()`
            7: `tl::float32`: `tl::zeros` takes its element type as a type argument
                help: the element type stands between angle brackets: `tl::zeros::<f32>(..)`
            8: `tl::float32`: `tl::cast` takes its element type as a type argument
                help: the element type stands between angle brackets: `tl::cast::<f32>(..)`
            9: `float32`: `float32` is not an element type
                help: did you mean `f32`?
            10: `half`: `half` is not an element type
                help: did you mean `f16`?
            11: `f32`: `.to` takes its element type as a type argument
                help: the element type stands between angle brackets: `.to::<f32>()`
            12: `double`: `double` is not an element type
                help: did you mean `f64`?
            13: `tl::bfloat17`: `tl::bfloat17` does not exist
                help: the functions of `tl::` are those in its documentation; `tl::inline_ptx` writes any other instruction
        "#]],
    );
}

#[test]
fn functions_by_other_names() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = tl::r#where(lane < n, y, 0.0);
        let b = tl::where_(lane < n, y, 0.0);
        let c = tl::power(y, 2.0);
        let d = tl::libdevice::pow(y, 2.0);
        let e = tl::concat(y, y);
        let f = tl::logsumexp(y, 0);
        let g = tl::make_block_ptr(x, 0);
        let h = tl::math::exp(y);
        let i = tl::unsqueeze(y, 0);
        let j = tl::debug_barrier();
        let k = tl::constexpr;
        "#,
        expect![[r#"
            6: `r#where`: `tl::where` does not exist
                help: it is `tl::select(condition, x, y)` here
            7: `where_`: `tl::where_` does not exist
                help: it is `tl::select(condition, x, y)` here
            8: `power`: `tl::power` does not exist
                help: it is `tl::pow(x, y)` here
            9: `tl::libdevice::pow`: `tl::libdevice::pow` is not a function of the language
                help: did you mean `tl::pow(x, y)`?
            10: `concat`: `tl::concat` does not exist
                help: it is `tl::cat(x, y, axis)` here
            11: `logsumexp`: `tl::logsumexp` does not exist
                help: with `let m = tl::max(x, 0);` it is `m + tl::log(tl::sum(tl::exp(x - m), 0))`
            12: `make_block_ptr`: `tl::make_block_ptr` does not exist
                help: take the parameter as a view, `x: &View<f32, 2>`: `x.load::<64, 64>(row, col)`
            13: `tl::math::exp`: `tl::math::exp` is not a function of the language
                help: did you mean `tl::exp(x)`?
            14: `unsqueeze`: `tl::unsqueeze` does not exist
                help: it is `tl::expand_dims(x, axis)` here
            15: `debug_barrier`: `tl::debug_barrier` does not exist
                help: a tile is a value: no threads need to wait for each other
            16: `tl::constexpr`: `tl::constexpr` does not exist
                help: constants are const parameters of the kernel, `fn k<const N: usize>(..)`, with values in the attribute, `N = [64, 128]`
        "#]],
    );
}

#[test]
fn the_larger_of_two_is_not_a_reduction() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = tl::max(y, 0.0);
        let b = tl::min(y, y);
        let c = tl::max(n, 1);
        let d = tl::max(y, n);
        let e = y.max(0.0);
        let f = n.min(4);
        let g = f32::max(y, 0.0);
        let h = std::cmp::max(n, 1);
        let j = tl::max(y, 0);
        "#,
        expect![[r#"
            6: `0.0`: `tl::max` reduces along an axis, found the float 0.0
                help: the larger of two is `tl::maximum(a, b)`
            7: `y`: `tl::min` reduces along an axis, found a tile of type f32[64]
                help: the smaller of two is `tl::minimum(a, b)`
            8: `1`: `tl::max` reduces along an axis, found the integer 1
                help: the larger of two is `tl::maximum(a, b)`
            9: `n`: `tl::max` reduces along an axis, found a scalar of type i32
                help: the larger of two is `tl::maximum(a, b)`
            10: `max`: `max` is not a method of a tile of type f32[64]
                help: of two tiles or scalars: `tl::maximum(y, 0.0)`
            11: `min`: `min` is not a method of a scalar of type i32
                help: of two tiles or scalars: `tl::minimum(n, 4)`
            12: `f32::max`: `f32::max` is not a function of the language
                help: of two tiles or scalars: `tl::maximum(a, b)`
            13: `std::cmp::max`: `std::cmp::max` is not a function of the language
                help: of two tiles or scalars: `tl::maximum(a, b)`
        "#]],
    );
}

#[test]
fn methods_of_other_languages() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = n.pow(2);
        let b = y.powi(2);
        let c = n.div_ceil(4);
        let d = x.iter();
        for j in (0..n).rev() { tl::store(out, a); }
        let f = |v| v * 2.0;
        let g = f.call(y);
        let h = y.into();
        let j = y.unwrap();
        let k = y.f();
        let l = y.bitcats::<u32>();
        let m = y.quux();
        let o = n.quux();
        let p = x.quux();
        let q = (0..n).quux();
        tl::store(out, a).quux();
        let r = (x + lane).quux();
        "#,
        expect![[r#"
            6: `pow`: `pow` is not a method of a scalar of type i32
                help: multiply: `n * n`
            7: `powi`: `powi` is not a method of a tile of type f32[64]
                help: it is `tl::pow(y, 2)` here
            8: `div_ceil`: `div_ceil` is not a method of a scalar of type i32
                help: it is `tl::cdiv(n, 4)` here
            9: `iter`: `iter` is not a method of a slice
                help: a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`
            10: `rev`: `rev` is not a method of a range
                help: to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
            12: `call`: `call` is not a method of a function
                help: call it: `f(..)`
            13: `into`: `into` is not a method of a tile of type f32[64]
                help: convert to a type by its name: `.to::<f32>()`, `.to::<i64>()`
            14: `unwrap`: `unwrap` is not a method of a tile of type f32[64]
                help: nothing in a kernel fails: leave it out
            15: `f`: `f` is not a method of a tile of type f32[64]
                help: call the function: `f(y)`
            16: `bitcats`: `bitcats` is not a method of a tile of type f32[64]
                help: did you mean `bitcast`?
            17: `quux`: `quux` is not a method of a tile of type f32[64]
                help: a tile has `to`, `bitcast`, `expand_dims`, `row`, `col`, `sem`, `scope`, `evict_first`, `evict_last`, `no_allocate`, `cache_global`, `streaming`, `volatile`, `input_precision` and `max_num_imprecise_acc`
            18: `quux`: `quux` is not a method of a scalar of type i32
                help: a scalar has `to` and `bitcast`
            19: `quux`: `quux` is not a method of a slice
                help: a slice has `len`
            20: `quux`: `quux` is not a method of a range
                help: a range has `step_by`, `num_stages` and `unroll`
            22: `quux`: `quux` is not a method of a pointer
                help: read memory with `tl::load(pointer)`
        "#]],
    );
}

#[test]
fn a_match_is_called_a_match() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = match y { 0 => 1.0, _ => 2.0 };
        let b = match n { 0 => 1.0, 1 => 2, 2 => n, _ => 3.0 };
        let c = match n { 0 => y, 1 => 1.0, _ => 2.0 };
        let d = match n { 0 => 1.0, _ => {} };
        let e = match x { 0 => 1.0, _ => 2.0 };
        let f = match n { 1.5 => 1.0, 0u8 => 3.0, _ => 2.0 };
        "#,
        expect![[r#"
            6: `y`: `match` takes a scalar, found a tile of type f32[64]
                help: choose by element with `tl::select(mask, a, b)`
            7: `3.0`: the value of this `match` is f32 here and i32 in the arm before
                help: convert one side: `.to::<f32>()`
            8: `1.0`: the value of this `match` is f32 here and f32[64] in the arm before
                help: give both one shape: `tl::broadcast_to(x, [M, N])`, or `tl::reshape(x, [M, N])`
            9: `{}`: this arm gives nothing, another one gives the float 1.0
            10: `x`: `match` takes a scalar, found a slice
            11: `1.5`: expected i32, found the float 1.5
                help: write an integer, or convert the integers beside it: `as f32`
            11: `0u8`: this pattern needs one element type, found i32 and u8
                help: a number without a suffix has the type of what stands beside it: write `0`
        "#]],
    );
}

#[test]
fn floats_for_integers() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = tl::load(x + 1.0);
        let b = tl::rand(1.5, lane);
        let c = tl::philox(1.0, lane, 0, 0, 0);
        tl::store(i, 1.5);
        let d = n + 1.0;
        let e: i32 = 1.0;
        "#,
        expect![[r#"
            6: `1.0`: an offset is i32, found the float 1.0
                help: write an integer: `1`
            7: `1.5`: a seed is u64, found the float 1.5
                help: write an integer
            8: `1.0`: a seed is u64, found the float 1.0
                help: write an integer: `1`
            8: `lane`: a word of the counter is u32, found i32
                help: convert it: `.to::<u32>()`
            9: `1.5`: a value stored to `i` is i8, found the float 1.5
                help: write an integer
            10: `1.0`: expected i32, found the float 1.0
                help: write an integer, or convert the integers beside it: `as f32`
            11: `1.0`: the value is i32, found the float 1.0
                help: write an integer: `1`
        "#]],
    );
}

#[test]
fn fields_and_indices() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let t = tl::reshape(y, [8, 8]);
        let a = t.T;
        let b = y.T;
        let c = t.shape[0];
        let d = x.shape;
        let e = x[0];
        let f = t[0];
        let g = (n, n)[1];
        let h = n.real;
        let j = x.dtype;
        let k = (y, y).first;
        "#,
        expect![[r#"
            7: `T`: `T` is not a field of a tile of type f32[8, 8]
                help: write `tl::trans(t)`
            8: `T`: `T` is not a field of a tile of type f32[64]
                help: a tile of one axis becomes a column with `y.col()`
            9: `shape`: `shape` is not a field of a tile of type f32[8, 8]
                help: the shape of a tile is made of constants that the kernel knows
            10: `shape`: `shape` is not a field of a slice
                help: the number of its elements is `x.len()`
            11: `x[0]`: a slice cannot be indexed
                help: read memory with `tl::load(x + 0)`
            12: `t[0]`: a tile of type f32[8, 8] cannot be indexed
                help: a tile has no element access: `tl::gather` picks elements, `row()` and `col()` add an axis
            13: `(n, n)[1]`: a tuple cannot be indexed
                help: a part of a tuple is `x.1`
            14: `real`: `real` is not a field of a scalar of type i32
                help: values here have methods and no fields
            15: `dtype`: `dtype` is not a field of a slice
                help: it is `T`, as the signature says: `.to::<T>()` converts to it
            16: `first`: `first` is not a field of a tuple
                help: a tuple has `.0`, `.1`, .., or is taken apart with `let (a, b) = ..`
        "#]],
    );
}

#[test]
fn fields_and_indices_of_views() {
    check_errors(
        r#"#[fuse_kernel] fn k(x: &View<f32, 2>, out: &mut View<f32, 2>) {
            let a = x.shape;
            let b = x.shape[0];
            let c = x.stride(-1);
            let d = x.T;
            let e = x[0];
            tl::store(out, 1.0);
            tl::load(x);
            let h = x.load::<64, 64>(0.0, 0);
            let g = x.load::<64, 64>(0, 0);
            out.store(0, 0, g);
            out.store(1.0, 0, 0);
            let t = tl::load(x + 1);
        }"#,
        expect![[r#"
            2: `shape`: `shape` is not a field of a view
                help: it is a method: `x.shape(0)`
            3: `shape`: `shape` is not a field of a view
                help: it is a method: `x.shape(0)`
            4: `-1`: axis -1 is out of range: the axes here are 0 and 1
                help: the last is 1
            5: `T`: `T` is not a field of a view
                help: read a tile first; `tl::trans(tile)` swaps its axes
            6: `x[0]`: a view cannot be indexed
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            7: `out`: `tl::store` takes a pointer, found a view
                help: a view is written in blocks: `out.store(tile, 0, 0)`
            8: `x`: `tl::load` takes a pointer, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            9: `0.0`: an offset is i32, found the float 0.0
                help: write an integer: `0`
            11: `g`: `.store` takes the block before its offsets
                help: the block comes first: `out.store(tile, 0, 0)`
            12: `1.0`: a block of `out` has 2 axes, found a scalar
                help: make a tile of it: `tl::full([64, 64], x)`
            13: `x`: `+` takes tiles and scalars, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
        "#]],
    );
}

#[test]
fn generics_that_an_argument_does_not_tell() {
    check_errors(
        r#"#[fuse_kernel(N = [64])] fn k<const N: usize>(out: &mut [f32]) {
            fn scaled<T: Float, const M: usize>(t: Tile<T>) -> Tile<T> { t }
            fn chosen<const FLAG: bool>(t: f32) -> f32 { t }
            let a = scaled(tl::zeros::<f32>([N]));
            let b = chosen(1.0);
        }"#,
        expect![[r#"
            4: `scaled`: the constant `M` of `scaled` is not known here
                help: give it: `scaled::<_, 64>(..)`
            5: `chosen`: the constant `FLAG` of `chosen` is not known here
                help: give it: `chosen::<true>(..)`
        "#]],
    );
}

#[test]
fn names_beside_a_kernel() {
    check_errors(
        r#"#[fuse_kernel(N = [64])] fn k<const N: usize>(out: &mut [f32], n: i32) {
            tl::store(out, SCALE);
            tl::store(out, MU);
            tl::store(out, scale);
            { let y = 1.0; }
            tl::store(out, y);
            let t = 2.0;
            fn nested(a: f32) -> f32 { a * t }
            tl::store(out, nested(1.0));
            if n > 0 { let z = 1.0; } else { let w = 2.0; }
            tl::store(out, w);
        }"#,
        expect![[r#"
            2: `SCALE`: `SCALE` is not defined
                help: constants beside a kernel are seen only in a `#[fuse_module]`; or declare it inside the body
            3: `MU`: `MU` is not defined
                help: constants beside a kernel are seen only in a `#[fuse_module]`; or declare it inside the body
            4: `scale`: `scale` is not defined
            6: `y`: `y` is not defined
                help: it ended with its block on line 5: declare it before the block
            8: `t`: `t` is not defined
                help: a nested `fn` sees no variables: give it `t` as an argument, or use a closure
                note: in the call of `nested` on line 9
            11: `w`: `w` is not defined
                help: it ended with its block on line 10: declare it before the block
        "#]],
    );
}

#[test]
fn exits_outside_of_a_loop_are_reported_alone() {
    check_body(
        r#"
        if n > 0 { continue; }
        if n > 1 { break; } else { tl::store(out, 1.0); }
        n
        "#,
        expect![[r#"
            4: `continue`: `continue` stands outside of a loop
            5: `break`: `break` stands outside of a loop
            6: `n`: a kernel returns nothing, but its body ends with a scalar of type i32
                help: write results into a `&mut [T]` parameter with `tl::store`
        "#]],
    );
}

#[test]
fn divisions_by_zero() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = n / 0;
        let b = n % 0;
        let c = lane / 0;
        let d = tl::cdiv(n, 0);
        let e = 1 / 0;
        let mut f = n;
        f /= 0;
        let g = n % (N - 64);
        let h = y / 0.0;
        if N == 0 { let j = n / 0; }
        "#,
        expect![[r#"
            6: `0`: this divides by zero
            7: `0`: this divides by zero
            8: `0`: this divides by zero
            9: `0`: this divides by zero
            10: `0`: this divides by zero
            12: `0`: this divides by zero
            13: `(N - 64)`: this divides by zero
        "#]],
    );
}

#[test]
fn shifts_beyond_the_width() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = n << -1;
        let b = n >> 32;
        let c = 1i32 << 32;
        let d = lane << 31;
        let e = 1 << 64;
        let f = 1u8 >> 8;
        let g = n.to::<i64>() << 32;
        let h = n << (N + 1);
        "#,
        expect![[r#"
            6: `-1`: a shift of i32 is by 0 to 31, found -1
            7: `32`: a shift of i32 is by 0 to 31, found 32
            8: `32`: a shift of i32 is by 0 to 31, found 32
            10: `64`: a shift of i64 is by 0 to 63, found 64
            11: `8`: a shift of u8 is by 0 to 7, found 8
            13: `(N + 1)`: a shift of i32 is by 0 to 31, found 65
        "#]],
    );
}

#[test]
fn constants_that_overflow() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = i32::MAX + 1;
        let b = 255u8 + 1;
        let c = i32::MAX * 2;
        let d = -i32::MIN;
        let e = 0u32 - 1;
        let f = u64::MAX * u64::MAX;
        let g = i32::MIN / -1;
        let h = i32::MAX - 1;
        let j = -128i8;
        let k = i32::MIN + 1;
        "#,
        expect![[r#"
            6: `+`: this overflows: 2147483648 does not fit in i32, which holds -2147483648 to 2147483647
            7: `+`: this overflows: 256 does not fit in u8, which holds 0 to 255
            8: `*`: this overflows: 4294967294 does not fit in i32, which holds -2147483648 to 2147483647
            9: `-i32::MIN`: this overflows: 2147483648 does not fit in i32, which holds -2147483648 to 2147483647
            10: `-`: this overflows: -1 does not fit in u32, which holds 0 to 4294967295
            11: `*`: this overflows: the result does not fit in u64, which holds 0 to 18446744073709551615
            12: `/`: this overflows: 2147483648 does not fit in i32, which holds -2147483648 to 2147483647
        "#]],
    );
}

#[test]
fn floats_that_do_not_fit() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = 1e400;
        let b = y * 1e39;
        let c = tl::full::<f32>([N], -1e39);
        let d = tl::full::<f16>([N], 65520.0);
        let e = tl::full::<f16>([N], 100000);
        let f = tl::full::<f64>([N], 1e39);
        let g = tl::full([N], f32::INFINITY);
        let h = f64::MAX as f32;
        let j = 1e39 as f32;
        let k = y * (1.0 / 0.0);
        tl::store(out, h);
        tl::store(out, j);
        "#,
        expect![[r#"
            6: `1e400`: this does not fit in f64, which holds up to 1.7976931348623157e308
                help: infinity is `f32::INFINITY`
            7: `1e39`: 1e39 does not fit in f32, which holds up to 3.4028234663852886e38
            8: `-1e39`: -1e39 does not fit in f32, which holds up to 3.4028234663852886e38
            9: `65520.0`: 65520.0 does not fit in f16, which holds up to 6.5504e4
            10: `100000`: 100000 does not fit in f16, which holds up to 6.5504e4
            14: `1e39`: 1e39 does not fit in f32, which holds up to 3.4028234663852886e38
            16: `h`: a value stored to `out` is f16, found f32
                help: convert it: `.to::<f16>()`
        "#]],
    );
}

#[test]
fn steps_below_one() {
    check_body(
        r#"
        for j in tl::range(0, n, 0) { tl::store(out, 1.0); }
        for j in (0..n).step_by(0) { tl::store(out, 1.0); }
        for j in (0..n).step_by(-2) { tl::store(out, 1.0); }
        for j in tl::range(n, 0, -1) { tl::store(out, 1.0); }
        for j in tl::range(0, n, N - 64) { tl::store(out, 1.0); }
        for j in tl::static_range(4, 0, -1) { tl::store(out, 1.0); }
        "#,
        expect![[r#"
            4: `0`: the step of a range is at least 1, found 0
            5: `0`: the step of a range is at least 1, found 0
            6: `-2`: the step of a range is at least 1, found -2
                help: to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
            7: `-1`: the step of a range is at least 1, found -1
                help: to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
            8: `N - 64`: the step of a range is at least 1, found 0
            9: `-1`: the step of a `static_range` is at least 1, found -1
                help: to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`
        "#]],
    );
}

#[test]
fn axes_from_the_end() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let t = tl::reshape(y, [8, 8]);
        let a = tl::sum(t, -1);
        let b = tl::softmax(t, -2);
        let c = tl::sum(t, 2);
        let d = tl::sum(y, 1);
        let e = tl::trans(y);
        "#,
        expect![[r#"
            7: `-1`: axis -1 is out of range: the axes here are 0 and 1
                help: the last is 1
            8: `-2`: axis -2 is out of range: the axes here are 0 and 1
                help: axes count from the first: write `0`
            9: `2`: axis 2 is out of range: the axes here are 0 and 1
                help: axes count from 0: the last is 1
            10: `1`: axis 1 is out of range: the only axis here is 0
            11: `y`: `tl::trans` swaps the last two axes, found a tile of one axis
                help: `x.col()` makes a column of it, `x.row()` a row
        "#]],
    );
}

#[test]
fn an_accumulator_initialized_with_an_integer() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let mut acc = 0;
        let mut best = 0;
        for j in 0..n { acc += tl::load(x + j).to::<f32>(); best = best + y; }
        let mut last = 0.0;
        for j in 0..n { last = y; }
        tl::store(out, last);
        let late;
        for j in 0..n { late = y; }
        tl::store(out + lane, late);
        tl::store(out + lane, late);
        "#,
        expect![[r#"
            8: `+=`: `+` needs one element type, found i32 and f32
                help: `acc` began as the integer 0: begin with `0.0`
            8: `+`: `+` needs one element type, found i32 and f32
                help: `best` began as the integer 0: begin with `0.0`
            10: `y`: `last` is f32 before the loop and f32[64] at the end of its body
                help: start with a tile: `tl::zeros::<f32>([64])`
                note: a variable that a loop carries keeps its type and shape
            14: `late`: `late` may be used before it is assigned
                help: give it a first value where it is declared: `let mut late = ..;`
        "#]],
    );
}

#[test]
fn conditions_of_loops() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        while y > 0.0 { tl::store(out, 1.0); }
        if y > 0.0 { tl::store(out, 1.0); }
        let done = !b && x;
        "#,
        expect![[r#"
            6: `y > 0.0`: the condition of `while` is a scalar, found a tile of type bool[64]
                help: `tl::any(mask)` says whether one of its elements holds
            7: `y > 0.0`: the condition of `if` is a scalar, found a tile of type bool[64]
                help: choose by element with `tl::select(mask, a, b)`, or write where it holds: `tl::store(pointer, value, mask)`
            8: `x`: `&&` takes bools, found a slice
                help: read it first: `tl::load(slice + offsets, mask)`
        "#]],
    );
}

#[test]
fn names_of_bad_patterns_are_not_reported() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        for (i, v) in x.iter().enumerate() { tl::store(out + i, v); }
        if let Some(v) = n { tl::store(out, v); }
        let [p, q] = n;
        tl::store(out + p, q);
        let Some(r) = n else { return };
        tl::store(out, r);
        "#,
        expect![[r#"
            6: `iter`: `iter` is not a method of a slice
                help: a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`
            7: `n`: this pattern is one of an option, found a scalar of type i32
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            8: `[p, q]`: this pattern cannot be used in a kernel
                help: values go together as a tuple: `let (p, q) = (..);`
            10: `Some(r)`: this pattern cannot be used in a kernel
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
        "#]],
    );
}

#[test]
fn closures_that_assign_or_take_too_much() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let mut total = 0.0;
        let f = |v: f32| total += v;
        f(1.0);
        let t = tl::reduce(y, 0, |a| a);
        let u = tl::reduce(y, 0, |a, b, c| a);
        fn apply(f: impl Fn(Tile) -> Tile, t: Tile) -> Tile { f(t) }
        let v = apply(|v, w| v, y);
        let w = apply(|| 1.0, y);
        let g = |a, b| a;
        let z = g(1);
        "#,
        expect![[r#"
            7: `total`: a closure cannot assign `total`, a variable around it
                help: let it give the new value, and assign that where it is called
            9: `|a| a`: a combination takes 2 arguments, this closure takes 1
                help: it makes one element of two: `|a, b| a + b`
            10: `|a, b, c| a`: a combination takes 2 arguments, this closure takes 3
                help: it makes one element of two: `|a, b| a + b`
            12: `|v, w| v`: this closure takes 2 arguments, `apply` gives it 1
                note: in the call of `apply` on line 12
            13: `|| 1.0`: this closure takes no arguments, `apply` gives it 1
                note: in the call of `apply` on line 13
            15: `g`: `g` takes 2 arguments, found 1
        "#]],
    );
}

#[test]
fn conversions_by_function() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        let a = f16::from(y);
        let b = f32::from(n);
        let c = i64::try_from(n);
        let d = f32::sqrt(y);
        "#,
        expect![[r#"
            6: `f16::from`: `f16::from` cannot be called in a kernel
                help: convert it: `.to::<f16>()`
            7: `f32::from`: `f32::from` cannot be called in a kernel
                help: convert it: `.to::<f32>()`
            8: `i64::try_from`: `i64::try_from` cannot be called in a kernel
                help: convert it: `.to::<i64>()`
            9: `f32::sqrt`: `f32::sqrt` is not a function of the language
                help: did you mean `tl::sqrt(x)`?
        "#]],
    );
}

#[test]
fn macros_and_what_fails() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let y = tl::load(x + lane, lane < n, 0.0).to::<f32>();
        assert_eq!(n, 1);
        panic!("no");
        todo!();
        unreachable!();
        let a = matches!(n, 0);
        let b = vec![0.0; 4];
        let c = n?;
        if let Some(q) = n { }
        let d = 'c';
        let e = b'c';
        "#,
        expect![[r#"
            6: `assert_eq`: the macro `assert_eq!` cannot be used in a kernel
                help: `tl::static_assert(condition, "message")` checks constants at build, `tl::device_assert` what a debug build computes
            7: `panic`: the macro `panic!` cannot be used in a kernel
                help: `tl::device_assert(condition, "message")` stops a debug build
            8: `todo`: the macro `todo!` cannot be used in a kernel
                help: `tl::device_assert(condition, "message")` stops a debug build
            9: `unreachable`: the macro `unreachable!` cannot be used in a kernel
                help: `tl::device_assert(condition, "message")` stops a debug build
            10: `matches`: the macro `matches!` cannot be used in a kernel
                help: compare, and join with `||` or, for tiles, `|`
            11: `vec`: the macro `vec!` cannot be used in a kernel
                help: `tl::full([N], value)` makes a constant tile
            12: `?`: `?` cannot be used in a kernel
                help: nothing in a kernel fails: leave it out
            13: `n`: this pattern is one of an option, found a scalar of type i32
                help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            14: `'c'`: a character cannot be used in a kernel
                help: write its number: `99`
            15: `b'c'`: a byte's character cannot be used in a kernel
                help: write its number: `99u8`
        "#]],
    );
}

#[test]
fn what_cannot_be_assigned() {
    check_body(
        r#"
        N = 3;
        n = n + 1;
        a += 1.0;
        x = out;
        let c = 1;
        c = 2;
        "#,
        expect![[r#"
            4: `N`: `N` is a const parameter, which cannot be assigned
                help: bind it to a variable: `let mut n = N;`
            5: `n`: `n` is a parameter, which cannot be assigned
                help: bind it again: `let mut n = n;`
            6: `a`: `a` is a parameter, which cannot be assigned
                help: bind it again: `let mut a = a;`
            7: `x`: `x` cannot be assigned twice
                help: write memory with `tl::store(pointer, value, mask)`
            9: `c`: `c` cannot be assigned twice
                help: declare it `let mut c`, or bind it again: `let mut c = c;`
        "#]],
    );
}

#[test]
fn names_that_hide_memory() {
    check_body(
        r#"
        let lane = tl::arange(0, N);
        let x = tl::load(x + lane).to::<f32>();
        let z = tl::load(x + lane);
        "#,
        expect![[r#"
            6: `+`: `+` needs one element type, found f32 and i32
                help: convert one side: `lane.to::<f32>()`
                note: `x` is a tile of type f32[64] since line 5, not the parameter
        "#]],
    );
}

#[test]
fn values_of_constants() {
    check_errors(
        r#"#[fuse_kernel] fn k(out: &mut [i32]) {
            const LIMIT: usize = compute();
            const OTHER: i32 = tl::cdiv(7, 2);
            tl::store(out + LIMIT, OTHER);
        }"#,
        expect![[r#"
            2: `compute`: `compute` cannot be called in a constant
                help: a kernel knows constants made of literals, operators and other constants
        "#]],
    );
}

#[test]
fn a_list_that_unrolls_to_too_much() {
    check_errors(
        r#"#[fuse_kernel(N = [64])] fn k<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
            let lane = tl::arange(0, N);
            let mut v = tl::zeros::<f32>([N]);
            for i in tl::static_range(0, 4096) { v = tl::maximum(v, tl::load(x + lane + i * n)); }
            for i in tl::static_range(0, 512) { v = tl::maximum(v, tl::load(x + lane + i * n)); }
            for i in tl::static_range(0, 5000) { v += 1.0; }
        }"#,
        expect![[r#"
            4: `tl::static_range(0, 4096)`: this `static_range` makes about 24576 operations in 4096 turns: at most 20000
                help: `tl::range` makes a loop
            6: `5000`: a `static_range` repeats its body at most 4096 times
                help: `tl::range` makes a loop
        "#]],
    );
}

#[test]
fn a_constant_of_one_variant_divides_by_zero() {
    check_errors(
        r#"#[fuse_kernel(N = [0, 4])] fn k<const N: usize>(out: &mut [i32], n: i32) {
            tl::store(out, n / N as i32);
            tl::store(out, n % N);
            if N > 0 { tl::store(out, n / N); }
        }"#,
        expect![[r#"
            2: `N as i32`: this divides by zero
                note: in the variant N = 0
            3: `N`: this divides by zero
                note: in the variant N = 0
        "#]],
    );
}

#[test]
fn element_types_of_attributes() {
    check_errors(
        r#"#[fuse_kernel(T = [float32, half, half::f16, bf17])] fn k<T: Float>(x: &[T], y: &[int32]) {}"#,
        expect![[r#"
            1: `float32`: `float32` is not an element type
                help: did you mean `f32`?
            1: `half`: `half` is not an element type
                help: did you mean `f16`?
            1: `half::f16`: `half::f16` is not an element type
                help: did you mean `f16`?
            1: `bf17`: a declared value is an element type, an integer or a bool
                help: element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64
            1: `int32`: `int32` is not an element type
                help: did you mean `i32`?
        "#]],
    );
}

#[test]
fn values_of_the_host_are_for_conditions() {
    check_errors(
        "#[fuse_kernel(N = [64, 128], when = block.columns(4) == N)]
        fn k<const N: usize>(out: &mut [f32], #[host] block: crate::Block<'_>, #[host] unasked: Option<bool>) {
            tl::store(out + tl::arange(0, N), 0.0);
            tl::store(out, block);
        }",
        expect![[r#"
            2: `unasked`: `unasked` chooses no variant: a parameter with `#[host]` is for conditions
                help: ask it in the attribute, `when = BLOCK == unasked`, or leave the mark out
            4: `block`: `block` is a value of the host, which conditions alone ask
                help: a number that the body needs is a parameter without `#[host]`
        "#]],
    );
}

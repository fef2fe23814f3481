//! Functions in kernels: nested ones, closures, and combine functions.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::testing::{func, mistakes, render};

/// The tile IR of a kernel's body.
fn check_body(statements: &str, expected: Expect) {
    let text = ir::print(&func(&kernel(statements)), &|_| None);
    let body: Vec<&str> = text.lines().skip(1).collect();
    expected.assert_eq(&(body.join("\n") + "\n"));
}

/// Every mistake of a kernel's body.
fn check_errors(statements: &str, expected: Expect) {
    let source = kernel(statements);
    expected.assert_eq(&render(&mistakes(&source), &source));
}

fn kernel(statements: &str) -> String {
    format!(
        "#[fuse_kernel(T = [f16], N = [64])]
        fn k<T: Float, const N: usize>(x: &[T], out: &mut [f32], all: &mut [i32], n: i32, a: f32) {{
            let c = tl::arange(0, N);
{statements}
        }}"
    )
}

#[test]
fn a_function_takes_the_types_and_shapes_of_each_call() {
    check_body(
        "fn square<E: Number>(x: Tile<E>) -> Tile<E> { x * x }
        fn scaled<const BY: usize>(x: Tile<f32>, add: f32) -> (Tile<f32>, f32) { (x * BY as f32, add + 1.0) }
        let (t, s) = scaled::<N>(square(tl::load(out + c)), a);
        tl::store(out + c, t + s);
        tl::store(all + c.col(), square(c.col()));",
        expect![[r#"
              %2 = arange 0 : i32[64]
              %3 = load out[%2] : f32[64]
              %4 = mul %3, %3 : f32[64]
              %5 = constant 64.0 : f32
              %6 = splat %5 : f32[64]
              %7 = mul %4, %6 : f32[64]
              %8 = constant 1.0 : f32
              %9 = add %1, %8 : f32
              %10 = splat %9 : f32[64]
              %11 = add %7, %10 : f32[64]
              store %11, out[%2]
              %12 = expand_dims %2 axis 1 : i32[64, 1]
              %13 = mul %12, %12 : i32[64, 1]
              store %13, all[%12]
            }
        "#]],
    );
}

#[test]
fn closures_capture_variables() {
    check_body(
        "let s = 2.0;
        let f = |x| x * s + a;
        let s = true;
        fn twice(x: Tile<f32>, f: impl Fn(Tile<f32>) -> Tile<f32>) -> Tile<f32> { f(f(x)) }
        if s { tl::store(out + c, twice(tl::load(out + c), f)); }
        tl::store(out, twice(tl::load(out), tl::exp));",
        expect![[r#"
              %2 = arange 0 : i32[64]
              %3 = load out[%2] : f32[64]
              %4 = constant 2.0 : f32
              %5 = splat %4 : f32[64]
              %6 = mul %3, %5 : f32[64]
              %7 = splat %1 : f32[64]
              %8 = add %6, %7 : f32[64]
              %9 = mul %8, %5 : f32[64]
              %10 = add %9, %7 : f32[64]
              store %10, out[%2]
              %11 = constant 0 : i32
              %12 = load out[%11] : f32
              %13 = exp %12 : f32
              %14 = exp %13 : f32
              store %14, out[%11]
            }
        "#]],
    );
}

#[test]
fn reductions_by_functions() {
    check_body(
        "let x = tl::load(out + c);
        let largest = tl::reduce(x, 0, |a, b| if a > b { a } else { b });
        let (n, mean, m2) = tl::reduce((1.0, x, 0.0), 0, |(n, mean, m2), (k, other, q)| {
            let total = n + k;
            let delta = other - mean;
            (total, mean + delta * (k / total), m2 + q + delta * delta * n * (k / total))
        });
        tl::store(out, largest + n + mean + m2);
        tl::store(out, tl::reduce(x, 0, tl::maximum));",
        expect![[r#"
              %2 = arange 0 : i32[64]
              %3 = load out[%2] : f32[64]
              %4 = reduce %3 axes [0] : f32 { |%5, %6|
                %7 = gt %5, %6 : bool
                %8 = select %7, %5, %6 : f32
                yield %8
              }
              %9 = constant 1.0 : f32
              %10 = constant 0.0 : f32
              %11 = splat %9 : f32[64]
              %12 = splat %10 : f32[64]
              %13, %14, %15 = reduce %11, %3, %12 axes [0] : f32, f32, f32 { |%16, %17, %18, %19, %20, %21|
                %22 = add %16, %19 : f32
                %23 = sub %20, %17 : f32
                %24 = div %19, %22 : f32
                %25 = mul %23, %24 : f32
                %26 = add %17, %25 : f32
                %27 = add %18, %21 : f32
                %28 = mul %23, %23 : f32
                %29 = mul %28, %16 : f32
                %30 = mul %29, %24 : f32
                %31 = add %27, %30 : f32
                yield %22, %26, %31
              }
              %32 = add %4, %13 : f32
              %33 = add %32, %14 : f32
              %34 = add %33, %15 : f32
              %35 = constant 0 : i32
              store %34, out[%35]
              %36 = reduce %3 axes [0] : f32 { |%37, %38|
                %39 = maximum %37, %38 : f32
                yield %39
              }
              store %36, out[%35]
            }
        "#]],
    );
}

#[test]
fn a_combine_region_has_its_own_constants() {
    check_body(
        "let x = tl::load(out + c) * 2.0;
        tl::store(out, tl::reduce(x, 0, |p, q| p + q * 2.0));
        tl::store(out + c, tl::associative_scan(x, 0, |p, q| p * 2.0 + q));",
        expect![[r#"
              %2 = arange 0 : i32[64]
              %3 = load out[%2] : f32[64]
              %4 = constant 2.0 : f32
              %5 = splat %4 : f32[64]
              %6 = mul %3, %5 : f32[64]
              %7 = reduce %6 axes [0] : f32 { |%8, %9|
                %10 = constant 2.0 : f32
                %11 = mul %9, %10 : f32
                %12 = add %8, %11 : f32
                yield %12
              }
              %13 = constant 0 : i32
              store %7, out[%13]
              %14 = scan %6 axis 0 : f32[64] { |%15, %16|
                %17 = constant 2.0 : f32
                %18 = mul %15, %17 : f32
                %19 = add %18, %16 : f32
                yield %19
              }
              store %14, out[%2]
            }
        "#]],
    );
}

#[test]
fn positions() {
    check_body(
        "tl::store(all, tl::argmax(tl::load(out + c)));",
        expect![[r#"
          %2 = arange 0 : i32[64]
          %3 = load out[%2] : f32[64]
          %4, %5 = reduce %3, %2 axes [0] : f32, i32 { |%6, %7, %8, %9|
            %10 = ge %6, %8 : bool
            %11 = ne %6, %6 : bool
            %12 = or %10, %11 : bool
            %13 = lt %7, %9 : bool
            %14 = ge %8, %6 : bool
            %15 = ne %8, %8 : bool
            %16 = or %14, %15 : bool
            %17 = not %16 : bool
            %18 = or %13, %17 : bool
            %19 = and %12, %18 : bool
            %20 = select %19, %6, %8 : f32
            %21 = select %19, %7, %9 : i32
            yield %20, %21
          }
          %22 = constant 0 : i32
          store %5, all[%22]
        }
    "#]],
    );
}

#[test]
fn mistakes_of_calls_and_combinations() {
    check_errors(
        "fn f(x: Tile<f32>) -> Tile<f32> { g(x) }
        fn g(x: Tile<f32>) -> Tile<f32> { f(x) }
        let y = f(tl::load(out + c));
        let y = f(c);
        let y = f(1.0, 2);
        fn h<E: Integer>(x: Tile<E>) -> Tile<f32> { x }
        let y = h(a);
        let y = h(c);
        let x = tl::load(out + c);
        let y = tl::reduce(x, 0, |p, q| p + q * a);
        let y = tl::reduce(x, 0, |p, q| p > q);
        let y = tl::reduce((x, c), 0, |p, q| p);
        let y = tl::reduce((x, c), 0, |(p, i), (q, j)| (p, i + tl::sum(c)));
        let y = tl::reduce(x, 0, |p| p);
        let y = tl::reduce(x, 0, a);
        let y = tl::reduce(x, 0, |p, q| { let mut s = p; for i in 0..3 { s += q; } s });
        let mut sum = 0.0;
        let add = |p| { sum += p; };
        add(a);
        let w = |g| g(g);
        w(w);",
        expect![[r#"
            5: `f`: `f` calls itself
                help: write a loop: `while condition { .. }`
                note: `f` calls `g`, which calls `f`
            7: `c`: argument 1 of `f` is f32, found i32
                help: convert it: `.to::<f32>()`
            8: `2`: `f` takes 1 argument, found 2
            9: `x`: what `h` gives is f32, found i32
                help: convert it: `.to::<f32>()`
                note: in the call of `h` on line 11
            10: `a`: `E` of `h` is one of i8, i16, i32, i64, u8, u16, u32 and u64, found f32
            13: `a`: a combination cannot use a scalar of type f32 from outside of it
                help: it works on its own arguments and constants; what else it needs can be one more tile that is folded along
            14: `p > q`: what this combination gives here is f32, found bool
                help: convert it: `.to::<f32>()`
            16: `c`: a combination cannot use a tile of type i32[64] from outside of it
                help: it works on its own arguments and constants; what else it needs can be one more tile that is folded along
            17: `|p| p`: a combination takes 2 arguments, this closure takes 1
                help: it makes one element of two: `|a, b| a + b`
            18: `a`: a combination is a function, found a scalar of type f32
                help: such as `|a, b| a + b`
            19: `for`: a combination works on single elements: `for` has no place in it
                help: it may use operators, `if`, casts and the lanewise functions of `tl::`
            21: `sum`: a closure cannot assign `sum`, a variable around it
                help: let it give the new value, and assign that where it is called
            23: `g`: calls nest too deeply here: at most 64
        "#]],
    );
}

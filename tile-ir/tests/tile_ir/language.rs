//! Every construct of the language, at ranks 1 to 3 and on every element type: source in, tile IR out.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::support::dtype::DType;
use tile_ir::testing::{func, mistakes, render};

/// The tile IR of statements in a kernel that has one of each kind of parameter.
fn check_body(statements: &str, expected: Expect) {
    let source = format!(
        "#[fuse_kernel(T = [f16], N = [64], FLAG = [true])]
        fn k<T: Float, const N: usize, const FLAG: bool>(
            x: &[T], i: &[i32], out: &mut [f32], all: &mut [i32], n: i32, m: i64, a: f32, b: bool,
        ) {{
            let c = tl::arange(0, N);
{statements}
        }}"
    );
    let text = ir::print(&func(&source), &|_| None);
    // The signature is the same everywhere.
    let body: Vec<&str> = text.lines().skip(1).collect();
    expected.assert_eq(&(body.join("\n") + "\n"));
}

#[test]
fn programs() {
    check_body(
        "let p = tl::program_id(0) + tl::program_id(1) * tl::num_programs(2);
        tl::store(all, p);",
        expect![[r#"
              %4 = program_id 0 : i32
              %5 = program_id 1 : i32
              %6 = num_programs 2 : i32
              %7 = mul %5, %6 : i32
              %8 = add %4, %7 : i32
              %9 = constant 0 : i32
              store %8, all[%9]
            }
        "#]],
    );
}

#[test]
fn tiles_of_constants() {
    check_body(
        "let u = tl::full([N], a) + tl::full::<f32>([N], 2) + tl::zeros::<f32>([N]);
        let v = tl::zeros_like(u) + tl::full([N], f32::NEG_INFINITY) * f32::consts::PI;
        tl::store(out + c, u + v);",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = splat %2 : f32[64]
              %6 = constant 2.0 : f32
              %7 = splat %6 : f32[64]
              %8 = add %5, %7 : f32[64]
              %9 = constant 0.0 : f32
              %10 = splat %9 : f32[64]
              %11 = add %8, %10 : f32[64]
              %12 = constant -inf : f32
              %13 = splat %12 : f32[64]
              %14 = constant 3.141592653589793 : f32
              %15 = splat %14 : f32[64]
              %16 = mul %13, %15 : f32[64]
              %17 = add %10, %16 : f32[64]
              %18 = add %11, %17 : f32[64]
              store %18, out[%4]
            }
        "#]],
    );
}

#[test]
fn pointers() {
    check_body(
        "let p = i + n * 4 + c;
        let q = p - 1 + m;
        let r = 2 + out;
        tl::store(r + c, tl::load(q).to::<f32>());
        tl::store(out, tl::load(i).to::<f32>() + x.len() as f32);",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = constant 4 : i32
              %6 = mul %0, %5 : i32
              %7 = splat %6 : i32[64]
              %8 = add %7, %4 : i32[64]
              %9 = constant 1 : i32
              %10 = splat %9 : i32[64]
              %11 = sub %8, %10 : i32[64]
              %12 = cast %11 : i64[64]
              %13 = splat %1 : i64[64]
              %14 = add %12, %13 : i64[64]
              %15 = constant 2 : i32
              %16 = splat %15 : i32[64]
              %17 = add %16, %4 : i32[64]
              %18 = load i[%14] : i32[64]
              %19 = cast %18 : f32[64]
              store %19, out[%17]
              %20 = constant 0 : i32
              %21 = load i[%20] : i32
              %22 = cast %21 : f32
              %23 = length x : i64
              %24 = cast %23 : f32
              %25 = add %22, %24 : f32
              store %25, out[%20]
            }
        "#]],
    );
}

#[test]
fn masks_and_others_broadcast() {
    check_body(
        "let rows = tl::arange(0, 4).col();
        let t = tl::load(i + rows * n + c.row(), rows < n, 7);
        let u = tl::load(i + c, b, n);
        let v = tl::load(i + n, b);
        tl::store(all + rows * n + c.row(), t + u, c < n);
        tl::store(all + c, v, b);",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = arange 0 : i32[4]
              %6 = expand_dims %5 axis 1 : i32[4, 1]
              %7 = splat %0 : i32[4, 1]
              %8 = mul %6, %7 : i32[4, 1]
              %9 = expand_dims %4 axis 0 : i32[1, 64]
              %10 = broadcast %8 : i32[4, 64]
              %11 = broadcast %9 : i32[4, 64]
              %12 = add %10, %11 : i32[4, 64]
              %13 = lt %6, %7 : bool[4, 1]
              %14 = broadcast %13 : bool[4, 64]
              %15 = constant 7 : i32
              %16 = splat %15 : i32[4, 64]
              %17 = load i[%12] mask %14 other %16 : i32[4, 64]
              %18 = splat %3 : bool[64]
              %19 = splat %0 : i32[64]
              %20 = load i[%4] mask %18 other %19 : i32[64]
              %21 = load i[%0] mask %3 : i32
              %22 = expand_dims %20 axis 0 : i32[1, 64]
              %23 = broadcast %22 : i32[4, 64]
              %24 = add %17, %23 : i32[4, 64]
              %25 = lt %4, %19 : bool[64]
              %26 = expand_dims %25 axis 0 : bool[1, 64]
              %27 = broadcast %26 : bool[4, 64]
              store %24, all[%12] mask %27
              %28 = splat %21 : i32[64]
              store %28, all[%4] mask %18
            }
        "#]],
    );
}

#[test]
fn operators() {
    check_body(
        "let t = tl::load(i + c);
        let mut u = ((t + 1) * 2 - 3) / 4 % 5;
        u = u & 6 | 7 ^ (u << 1) >> 2;
        u = !-u;
        let m = (u == t) | (u != t) & (u < t) ^ (u <= t) | !(u > t) & (u >= 0);
        tl::store(all + c, u, m);",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = load i[%4] : i32[64]
              %6 = constant 1 : i32
              %7 = splat %6 : i32[64]
              %8 = add %5, %7 : i32[64]
              %9 = constant 2 : i32
              %10 = splat %9 : i32[64]
              %11 = mul %8, %10 : i32[64]
              %12 = constant 3 : i32
              %13 = splat %12 : i32[64]
              %14 = sub %11, %13 : i32[64]
              %15 = constant 4 : i32
              %16 = splat %15 : i32[64]
              %17 = div %14, %16 : i32[64]
              %18 = constant 5 : i32
              %19 = splat %18 : i32[64]
              %20 = rem %17, %19 : i32[64]
              %21 = constant 6 : i32
              %22 = splat %21 : i32[64]
              %23 = and %20, %22 : i32[64]
              %24 = shl %20, %7 : i32[64]
              %25 = shr %24, %10 : i32[64]
              %26 = constant 7 : i32
              %27 = splat %26 : i32[64]
              %28 = xor %27, %25 : i32[64]
              %29 = or %23, %28 : i32[64]
              %30 = neg %29 : i32[64]
              %31 = not %30 : i32[64]
              %32 = eq %31, %5 : bool[64]
              %33 = ne %31, %5 : bool[64]
              %34 = lt %31, %5 : bool[64]
              %35 = and %33, %34 : bool[64]
              %36 = le %31, %5 : bool[64]
              %37 = xor %35, %36 : bool[64]
              %38 = or %32, %37 : bool[64]
              %39 = gt %31, %5 : bool[64]
              %40 = not %39 : bool[64]
              %41 = constant 0 : i32
              %42 = splat %41 : i32[64]
              %43 = ge %31, %42 : bool[64]
              %44 = and %40, %43 : bool[64]
              %45 = or %38, %44 : bool[64]
              store %31, all[%4] mask %45
            }
        "#]],
    );
}

#[test]
fn compound_assignment() {
    check_body(
        "let mut u = tl::load(i + c);
        u += 1; u -= 2; u *= 3; u /= 4; u %= 5; u &= 6; u |= 7; u ^= 8; u <<= 1; u >>= 2;
        tl::store(all + c, u);",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = load i[%4] : i32[64]
              %6 = constant 1 : i32
              %7 = splat %6 : i32[64]
              %8 = add %5, %7 : i32[64]
              %9 = constant 2 : i32
              %10 = splat %9 : i32[64]
              %11 = sub %8, %10 : i32[64]
              %12 = constant 3 : i32
              %13 = splat %12 : i32[64]
              %14 = mul %11, %13 : i32[64]
              %15 = constant 4 : i32
              %16 = splat %15 : i32[64]
              %17 = div %14, %16 : i32[64]
              %18 = constant 5 : i32
              %19 = splat %18 : i32[64]
              %20 = rem %17, %19 : i32[64]
              %21 = constant 6 : i32
              %22 = splat %21 : i32[64]
              %23 = and %20, %22 : i32[64]
              %24 = constant 7 : i32
              %25 = splat %24 : i32[64]
              %26 = or %23, %25 : i32[64]
              %27 = constant 8 : i32
              %28 = splat %27 : i32[64]
              %29 = xor %26, %28 : i32[64]
              %30 = shl %29, %7 : i32[64]
              %31 = shr %30, %10 : i32[64]
              store %31, all[%4]
            }
        "#]],
    );
}

#[test]
fn scalars_and_logic() {
    check_body(
        "let both = b && n > 0 || !b && a < 0.5;
        let y = if both && FLAG { n } else { -n };
        tl::store(all, y, both);",
        expect![[r#"
              %4 = constant 0 : i32
              %5 = gt %0, %4 : bool
              %6 = and %3, %5 : bool
              %7 = not %3 : bool
              %8 = constant 0.5 : f32
              %9 = lt %2, %8 : bool
              %10 = and %7, %9 : bool
              %11 = or %6, %10 : bool
              %12 = if %11 : i32 {
                yield %0
              } {
                %13 = neg %0 : i32
                yield %13
              }
              store %12, all[%4] mask %11
            }
        "#]],
    );
}

#[test]
fn lanewise_functions() {
    check_body(
        "let t = tl::load(x + c).to::<f32>();
        let u = tl::select(t > 0.0, tl::maximum(t, 1), tl::minimum(t, -1.0));
        let u = tl::clamp(u, -2.0, 2.0) + tl::abs(u) + tl::max_num(u, t) + tl::min_num(u, t);
        let u = tl::exp(u) + tl::exp2(u) + tl::log(u) + tl::log2(u) + tl::sqrt(u) + tl::rsqrt(u);
        let u = tl::sin(u) + tl::cos(u) + tl::tanh(u) + tl::erf(u) + tl::sigmoid(u);
        let u = tl::fma(tl::floor(u), tl::ceil(u), a);
        tl::store(out + c, u, c < tl::cdiv(n, 2));",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = load x[%4] : f16[64]
              %6 = cast %5 : f32[64]
              %7 = constant 0.0 : f32
              %8 = splat %7 : f32[64]
              %9 = gt %6, %8 : bool[64]
              %10 = constant 1.0 : f32
              %11 = splat %10 : f32[64]
              %12 = maximum %6, %11 : f32[64]
              %13 = constant -1.0 : f32
              %14 = splat %13 : f32[64]
              %15 = minimum %6, %14 : f32[64]
              %16 = select %9, %12, %15 : f32[64]
              %17 = constant -2.0 : f32
              %18 = constant 2.0 : f32
              %19 = splat %17 : f32[64]
              %20 = splat %18 : f32[64]
              %21 = clamp %16, %19, %20 : f32[64]
              %22 = abs %16 : f32[64]
              %23 = add %21, %22 : f32[64]
              %24 = max_num %16, %6 : f32[64]
              %25 = add %23, %24 : f32[64]
              %26 = min_num %16, %6 : f32[64]
              %27 = add %25, %26 : f32[64]
              %28 = exp %27 : f32[64]
              %29 = exp2 %27 : f32[64]
              %30 = add %28, %29 : f32[64]
              %31 = log %27 : f32[64]
              %32 = add %30, %31 : f32[64]
              %33 = log2 %27 : f32[64]
              %34 = add %32, %33 : f32[64]
              %35 = sqrt %27 : f32[64]
              %36 = add %34, %35 : f32[64]
              %37 = rsqrt %27 : f32[64]
              %38 = add %36, %37 : f32[64]
              %39 = sin %38 : f32[64]
              %40 = cos %38 : f32[64]
              %41 = add %39, %40 : f32[64]
              %42 = tanh %38 : f32[64]
              %43 = add %41, %42 : f32[64]
              %44 = erf %38 : f32[64]
              %45 = add %43, %44 : f32[64]
              %46 = sigmoid %38 : f32[64]
              %47 = add %45, %46 : f32[64]
              %48 = floor %47 : f32[64]
              %49 = ceil %47 : f32[64]
              %50 = splat %2 : f32[64]
              %51 = fma %48, %49, %50 : f32[64]
              %52 = constant 2 : i32
              %53 = cdiv %0, %52 : i32
              %54 = splat %53 : i32[64]
              %55 = lt %4, %54 : bool[64]
              store %51, out[%4] mask %55
            }
        "#]],
    );
}

#[test]
fn casts() {
    check_body(
        "let t = tl::load(x + c);
        let u = (t as f32 + n as f32).to::<T>();
        let v = u.to::<bool>().to::<i8>() as u64;
        let k = (N * 2) as i64;
        tl::store(all + c, (v.to::<i64>() + k).to::<i32>());",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = load x[%4] : f16[64]
              %6 = cast %5 : f32[64]
              %7 = cast %0 : f32
              %8 = splat %7 : f32[64]
              %9 = add %6, %8 : f32[64]
              %10 = cast %9 : f16[64]
              %11 = cast %10 : bool[64]
              %12 = cast %11 : i8[64]
              %13 = cast %12 : u64[64]
              %14 = cast %13 : i64[64]
              %15 = bitcast %14 : i64[64]
              %16 = constant 128 : i64
              %17 = splat %16 : i64[64]
              %18 = add %15, %17 : i64[64]
              %19 = cast %18 : i32[64]
              store %19, all[%4]
            }
        "#]],
    );
}

#[test]
fn shapes() {
    check_body(
        "let t = tl::load(i + c);
        let u = tl::reshape(t, [4, 16]);
        let u = tl::trans(u) + tl::broadcast_to(n, [16, 4]);
        let v = tl::expand_dims(u, 0) + tl::zeros::<i32>([2, 16, 4]);
        let w = tl::permute(v, [2, 0, 1]);
        let w = tl::trans(w);
        tl::store(all + tl::reshape(tl::arange(0, 128), [4, 16, 2]), w);
        tl::store(all + c.row() + c.col() * n, t.expand_dims(1) + t.row());",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = load i[%4] : i32[64]
              %6 = reshape %5 : i32[4, 16]
              %7 = permute %6 order [1, 0] : i32[16, 4]
              %8 = splat %0 : i32[16, 4]
              %9 = add %7, %8 : i32[16, 4]
              %10 = expand_dims %9 axis 0 : i32[1, 16, 4]
              %11 = constant 0 : i32
              %12 = splat %11 : i32[2, 16, 4]
              %13 = broadcast %10 : i32[2, 16, 4]
              %14 = add %13, %12 : i32[2, 16, 4]
              %15 = permute %14 order [2, 0, 1] : i32[4, 2, 16]
              %16 = permute %15 order [0, 2, 1] : i32[4, 16, 2]
              %17 = arange 0 : i32[128]
              %18 = reshape %17 : i32[4, 16, 2]
              store %16, all[%18]
              %19 = expand_dims %4 axis 0 : i32[1, 64]
              %20 = expand_dims %4 axis 1 : i32[64, 1]
              %21 = splat %0 : i32[64, 1]
              %22 = mul %20, %21 : i32[64, 1]
              %23 = broadcast %19 : i32[64, 64]
              %24 = broadcast %22 : i32[64, 64]
              %25 = add %23, %24 : i32[64, 64]
              %26 = expand_dims %5 axis 1 : i32[64, 1]
              %27 = expand_dims %5 axis 0 : i32[1, 64]
              %28 = broadcast %26 : i32[64, 64]
              %29 = broadcast %27 : i32[64, 64]
              %30 = add %28, %29 : i32[64, 64]
              store %30, all[%25]
            }
        "#]],
    );
}

#[test]
fn reductions() {
    check_body(
        "let t = tl::load(x + tl::reshape(tl::arange(0, 64), [2, 4, 8]));
        let u = tl::sum(t, 1);
        let v = tl::max(t, 2, true) + tl::min(t, 0, true);
        let w = tl::sum(v.to::<f32>(), 0) + tl::sum(u, 0, true).expand_dims(0);
        tl::store(out, tl::sum(w) + tl::max(u) + tl::sum(t > 0.0).to::<f32>());
        tl::store(out + 1 + tl::sum(tl::trans(t), [2, 0], true).to::<i32>(), tl::max(t.to::<f32>(), [0, 1, 2], true));
        tl::store(out + c.row() * 2, tl::max(tl::reshape(tl::load(x + c), [1, 64]).to::<f32>(), 0, true));",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = reshape %4 : i32[2, 4, 8]
              %6 = load x[%5] : f16[2, 4, 8]
              %7 = cast %6 : f32[2, 4, 8]
              %8 = reduce %7 axes [1] : f32[2, 8] { |%9, %10|
                %11 = add %9, %10 : f32
                yield %11
              }
              %12 = reduce %6 axes [2] : f16[2, 4] { |%13, %14|
                %15 = maximum %13, %14 : f16
                yield %15
              }
              %16 = expand_dims %12 axis 2 : f16[2, 4, 1]
              %17 = reduce %6 axes [0] : f16[4, 8] { |%18, %19|
                %20 = minimum %18, %19 : f16
                yield %20
              }
              %21 = expand_dims %17 axis 0 : f16[1, 4, 8]
              %22 = broadcast %16 : f16[2, 4, 8]
              %23 = broadcast %21 : f16[2, 4, 8]
              %24 = add %22, %23 : f16[2, 4, 8]
              %25 = cast %24 : f32[2, 4, 8]
              %26 = reduce %25 axes [0] : f32[4, 8] { |%27, %28|
                %29 = add %27, %28 : f32
                yield %29
              }
              %30 = reduce %8 axes [0] : f32[8] { |%31, %32|
                %33 = add %31, %32 : f32
                yield %33
              }
              %34 = expand_dims %30 axis 0 : f32[1, 8]
              %35 = expand_dims %34 axis 0 : f32[1, 1, 8]
              %36 = expand_dims %26 axis 0 : f32[1, 4, 8]
              %37 = broadcast %35 : f32[1, 4, 8]
              %38 = add %36, %37 : f32[1, 4, 8]
              %39 = reduce %38 axes [0, 1, 2] : f32 { |%40, %41|
                %42 = add %40, %41 : f32
                yield %42
              }
              %43 = reduce %8 axes [0, 1] : f32 { |%44, %45|
                %46 = maximum %44, %45 : f32
                yield %46
              }
              %47 = add %39, %43 : f32
              %48 = constant 0.0 : f16
              %49 = splat %48 : f16[2, 4, 8]
              %50 = gt %6, %49 : bool[2, 4, 8]
              %51 = cast %50 : i32[2, 4, 8]
              %52 = reduce %51 axes [0, 1, 2] : i32 { |%53, %54|
                %55 = add %53, %54 : i32
                yield %55
              }
              %56 = cast %52 : f32
              %57 = add %47, %56 : f32
              %58 = constant 0 : i32
              store %57, out[%58]
              %59 = constant 1 : i32
              %60 = permute %6 order [0, 2, 1] : f16[2, 8, 4]
              %61 = cast %60 : f32[2, 8, 4]
              %62 = reduce %61 axes [0, 2] : f32[8] { |%63, %64|
                %65 = add %63, %64 : f32
                yield %65
              }
              %66 = expand_dims %62 axis 0 : f32[1, 8]
              %67 = expand_dims %66 axis 2 : f32[1, 8, 1]
              %68 = cast %67 : i32[1, 8, 1]
              %69 = splat %59 : i32[1, 8, 1]
              %70 = add %69, %68 : i32[1, 8, 1]
              %71 = reduce %7 axes [0, 1, 2] : f32 { |%72, %73|
                %74 = maximum %72, %73 : f32
                yield %74
              }
              %75 = splat %71 : f32[1]
              %76 = expand_dims %75 axis 1 : f32[1, 1]
              %77 = expand_dims %76 axis 2 : f32[1, 1, 1]
              %78 = broadcast %77 : f32[1, 8, 1]
              store %78, out[%70]
              %79 = expand_dims %4 axis 0 : i32[1, 64]
              %80 = constant 2 : i32
              %81 = splat %80 : i32[1, 64]
              %82 = mul %79, %81 : i32[1, 64]
              %83 = load x[%4] : f16[64]
              %84 = reshape %83 : f16[1, 64]
              %85 = cast %84 : f32[1, 64]
              %86 = reduce %85 axes [0] : f32[64] { |%87, %88|
                %89 = maximum %87, %88 : f32
                yield %89
              }
              %90 = expand_dims %86 axis 0 : f32[1, 64]
              store %90, out[%82]
            }
        "#]],
    );
}

#[test]
fn loops_over_ranges() {
    check_body(
        "let mut s = 0;
        for j in 0..n { s += j; }
        for j in 1..=n { s += j; }
        for j in (0..n).step_by(N) { s += j; }
        for j in tl::range(0, n, 4).num_stages(3).unroll(2) { s += j; }
        for j in tl::static_range(0, 3) { s += j * n; }
        let mut far = m;
        for j in 0..m { far += j; }
        for _ in 0..2 { s = s * 2; }
        while s > 100 { s /= 2; }
        tl::store(all, s + far as i32);",
        expect![[r#"
              %4 = constant 0 : i32
              %5 = constant 1 : i32
              %6 = for %4..%0 step %5 carry %4 : i32 { |%7, %8|
                %9 = add %8, %7 : i32
                yield %9
              }
              %10 = for %5..=%0 step %5 carry %6 : i32 { |%11, %12|
                %13 = add %12, %11 : i32
                yield %13
              }
              %14 = constant 64 : i32
              %15 = for %4..%0 step %14 carry %10 : i32 { |%16, %17|
                %18 = add %17, %16 : i32
                yield %18
              }
              %19 = constant 4 : i32
              %20 = for %4..%0 step %19 carry %15 num_stages 3 unroll 2 : i32 { |%21, %22|
                %23 = add %22, %21 : i32
                yield %23
              }
              %24 = mul %4, %0 : i32
              %25 = add %20, %24 : i32
              %26 = mul %5, %0 : i32
              %27 = add %25, %26 : i32
              %28 = constant 2 : i32
              %29 = mul %28, %0 : i32
              %30 = add %27, %29 : i32
              %31 = constant 0 : i64
              %32 = constant 1 : i64
              %33 = for %31..%1 step %32 carry %1 : i64 { |%34, %35|
                %36 = add %35, %34 : i64
                yield %36
              }
              %37 = for %4..%28 step %5 carry %30 : i32 { |%38, %39|
                %40 = mul %39, %28 : i32
                yield %40
              }
              %41 = while carry %37 : i32 { |%42|
                %43 = constant 100 : i32
                %44 = gt %42, %43 : bool
                yield %44
              } { |%45|
                %46 = div %45, %28 : i32
                yield %46
              }
              %47 = cast %33 : i32
              %48 = add %41, %47 : i32
              store %48, all[%4]
            }
        "#]],
    );
}

#[test]
fn loops_inside_loops() {
    check_body(
        "let mut acc = tl::zeros::<f32>([N]);
        let mut best = f32::NEG_INFINITY;
        for j in 0..n {
            let mut inner = tl::zeros::<f32>([N]);
            for k in j..n { inner += tl::load(x + c + k * n).to::<f32>(); }
            if j % 2 == 0 { acc += inner; } else if j > 10 { acc -= inner; best = 0.0; }
            best = tl::maximum(best, tl::max(acc));
        }
        tl::store(out + c, acc * best);",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = constant 0.0 : f32
              %6 = splat %5 : f32[64]
              %7 = constant 0 : i32
              %8 = constant 1 : i32
              %9 = constant -inf : f32
              %10, %11 = for %7..%0 step %8 carry %6, %9 : f32[64], f32 { |%12, %13, %14|
                %15 = for %12..%0 step %8 carry %6 : f32[64] { |%16, %17|
                  %18 = mul %16, %0 : i32
                  %19 = splat %18 : i32[64]
                  %20 = add %4, %19 : i32[64]
                  %21 = load x[%20] : f16[64]
                  %22 = cast %21 : f32[64]
                  %23 = add %17, %22 : f32[64]
                  yield %23
                }
                %24 = constant 2 : i32
                %25 = rem %12, %24 : i32
                %26 = eq %25, %7 : bool
                %27, %28 = if %26 : f32[64], f32 {
                  %29 = add %13, %15 : f32[64]
                  yield %29, %14
                } {
                  %30 = constant 10 : i32
                  %31 = gt %12, %30 : bool
                  %32, %33 = if %31 : f32[64], f32 {
                    %34 = sub %13, %15 : f32[64]
                    yield %34, %5
                  } {
                    yield %13, %14
                  }
                  yield %32, %33
                }
                %35 = reduce %27 axes [0] : f32 { |%36, %37|
                  %38 = maximum %36, %37 : f32
                  yield %38
                }
                %39 = maximum %28, %35 : f32
                yield %27, %39
              }
              %40 = splat %11 : f32[64]
              %41 = mul %10, %40 : f32[64]
              store %41, out[%4]
            }
        "#]],
    );
}

#[test]
fn branches() {
    check_body(
        "let y = if n > 0 { 1 } else { n };
        let (p, q) = if b { (n, a) } else { (0, 1.0) };
        let z;
        if b { z = c + 1; } else { z = c; }
        if FLAG { tl::store(all + z, z); } else { tl::store(all, missing); }
        let w = { let y = y + p; y * 2 };
        tl::store(out, q + w as f32);",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = constant 0 : i32
              %6 = gt %0, %5 : bool
              %7 = if %6 : i32 {
                %8 = constant 1 : i32
                yield %8
              } {
                yield %0
              }
              %9, %10 = if %3 : i32, f32 {
                yield %0, %2
              } {
                %11 = constant 1.0 : f32
                yield %5, %11
              }
              %12 = if %3 : i32[64] {
                %13 = constant 1 : i32
                %14 = splat %13 : i32[64]
                %15 = add %4, %14 : i32[64]
                yield %15
              } {
                yield %4
              }
              store %12, all[%12]
              %16 = add %7, %9 : i32
              %17 = constant 2 : i32
              %18 = mul %16, %17 : i32
              %19 = cast %18 : f32
              %20 = add %10, %19 : f32
              store %20, out[%5]
            }
        "#]],
    );
}

#[test]
fn tuples_and_shadowing() {
    check_body(
        "let ((p, _), mut q) = ((n, m), 1);
        q += p;
        let p = q * 2;
        let (p, q) = (q, p);
        tl::store(all, p - q);",
        expect![[r#"
              %4 = constant 1 : i32
              %5 = add %4, %0 : i32
              %6 = constant 2 : i32
              %7 = mul %5, %6 : i32
              %8 = sub %5, %7 : i32
              %9 = constant 0 : i32
              store %8, all[%9]
            }
        "#]],
    );
}

#[test]
fn constants_of_bools() {
    check_body(
        "if !FLAG {
            tl::store(out, 1.0);
        }
        let mut seen = false;
        if FLAG {
            seen = true;
        }
        if !seen {
            tl::store(out + 1, 2.0);
        }
        if !!FLAG && !(N == 3) && (FLAG ^ false) {
            tl::store(out + 2, 3.0);
        }
        { if N == 64 { return; } }
        tl::store(out + 3, 4.0);",
        expect![[r#"
              %4 = constant 2 : i32
              %5 = constant 3.0 : f32
              store %5, out[%4]
            }
        "#]],
    );
}

#[test]
fn constants() {
    check_body(
        "tl::static_assert(FLAG && N % 2 == 0, \"N is odd\");
        tl::static_print(N);
        let half = tl::next_power_of_2(N / 2 + 1);
        let big = i64::MAX - 1;
        let y: u8 = 255;
        tl::store(all + c, half + tl::cdiv(N, 3), (c as i64) < big);
        tl::store(all, y as i32 + if N > 32 { 1 } else { 0 });",
        expect![[r#"
              %4 = arange 0 : i32[64]
              %5 = cast %4 : i64[64]
              %6 = constant 9223372036854775806 : i64
              %7 = splat %6 : i64[64]
              %8 = lt %5, %7 : bool[64]
              %9 = constant 86 : i32
              %10 = splat %9 : i32[64]
              store %10, all[%4] mask %8
              %11 = constant 0 : i32
              %12 = constant 256 : i32
              store %12, all[%11]
            }
        "#]],
    );
}

/// Loads, computes with, reduces and stores each element type, at each rank.
#[test]
fn every_element_type_at_every_rank() {
    let mut report = String::new();
    for dtype in DType::ALL {
        for (rank, offsets) in [
            (1, "tl::arange(0, 64)"),
            (2, "tl::arange(0, 8).col() * n + tl::arange(0, 8).row()"),
            (3, "tl::reshape(tl::arange(0, 64), [4, 4, 4])"),
        ] {
            let combine = if dtype == DType::Bool { "y ^ true" } else { "y + 1 * y - y / y" };
            let reduced = if dtype == DType::Bool { "tl::sum(y, 0) > 0" } else { "tl::max(y, 0)" };
            let source = format!(
                "#[fuse_kernel()]
                fn k(x: &[{dtype}], out: &mut [{dtype}], s: {dtype}, n: i32) {{
                    let offsets = {offsets};
                    let mask = offsets < n;
                    let y = tl::load(x + offsets, mask, s);
                    let y = tl::select(mask, {combine}, s);
                    tl::store(out + offsets, tl::select(y == {reduced}, y, s), mask);
                }}"
            );
            let found = mistakes(&source);
            if found.is_empty() {
                let func = func(&source);
                let text = ir::print(&func, &|_| None);
                let store = text.lines().rev().find(|line| line.contains("store")).unwrap_or_default();
                report += &format!("{dtype} at rank {rank}: {} lines,{store}\n", text.lines().count());
            } else {
                report += &format!("{dtype} at rank {rank}:\n{}", render(&found, &source));
            }
        }
    }
    expect![[r#"
        bool at rank 1:
        7: `>`: comparison operators cannot be chained
        bool at rank 2:
        7: `>`: comparison operators cannot be chained
        bool at rank 3:
        7: `>`: comparison operators cannot be chained
        i8 at rank 1: 22 lines,  store %20, out[%2] mask %4
        i8 at rank 2: 30 lines,  store %28, out[%9] mask %11
        i8 at rank 3: 24 lines,  store %22, out[%3] mask %5
        i16 at rank 1: 22 lines,  store %20, out[%2] mask %4
        i16 at rank 2: 30 lines,  store %28, out[%9] mask %11
        i16 at rank 3: 24 lines,  store %22, out[%3] mask %5
        i32 at rank 1: 22 lines,  store %20, out[%2] mask %4
        i32 at rank 2: 30 lines,  store %28, out[%9] mask %11
        i32 at rank 3: 24 lines,  store %22, out[%3] mask %5
        i64 at rank 1: 22 lines,  store %20, out[%2] mask %4
        i64 at rank 2: 30 lines,  store %28, out[%9] mask %11
        i64 at rank 3: 24 lines,  store %22, out[%3] mask %5
        u8 at rank 1: 22 lines,  store %20, out[%2] mask %4
        u8 at rank 2: 30 lines,  store %28, out[%9] mask %11
        u8 at rank 3: 24 lines,  store %22, out[%3] mask %5
        u16 at rank 1: 22 lines,  store %20, out[%2] mask %4
        u16 at rank 2: 30 lines,  store %28, out[%9] mask %11
        u16 at rank 3: 24 lines,  store %22, out[%3] mask %5
        u32 at rank 1: 22 lines,  store %20, out[%2] mask %4
        u32 at rank 2: 30 lines,  store %28, out[%9] mask %11
        u32 at rank 3: 24 lines,  store %22, out[%3] mask %5
        u64 at rank 1: 22 lines,  store %20, out[%2] mask %4
        u64 at rank 2: 30 lines,  store %28, out[%9] mask %11
        u64 at rank 3: 24 lines,  store %22, out[%3] mask %5
        f8e4m3 at rank 1:
        6: `y`: `*` takes numbers, found f8e4m3
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        6: `y`: `/` takes numbers, found f8e4m3
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        f8e4m3 at rank 2:
        6: `y`: `*` takes numbers, found f8e4m3
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        6: `y`: `/` takes numbers, found f8e4m3
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        f8e4m3 at rank 3:
        6: `y`: `*` takes numbers, found f8e4m3
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        6: `y`: `/` takes numbers, found f8e4m3
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        f8e5m2 at rank 1:
        6: `y`: `*` takes numbers, found f8e5m2
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        6: `y`: `/` takes numbers, found f8e5m2
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        f8e5m2 at rank 2:
        6: `y`: `*` takes numbers, found f8e5m2
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        6: `y`: `/` takes numbers, found f8e5m2
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        f8e5m2 at rank 3:
        6: `y`: `*` takes numbers, found f8e5m2
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        6: `y`: `/` takes numbers, found f8e5m2
            help: 8-bit floats are stored and converted: `.to::<f32>()`
        f16 at rank 1: 22 lines,  store %20, out[%2] mask %4
        f16 at rank 2: 30 lines,  store %28, out[%9] mask %11
        f16 at rank 3: 24 lines,  store %22, out[%3] mask %5
        bf16 at rank 1: 22 lines,  store %20, out[%2] mask %4
        bf16 at rank 2: 30 lines,  store %28, out[%9] mask %11
        bf16 at rank 3: 24 lines,  store %22, out[%3] mask %5
        f32 at rank 1: 22 lines,  store %20, out[%2] mask %4
        f32 at rank 2: 30 lines,  store %28, out[%9] mask %11
        f32 at rank 3: 24 lines,  store %22, out[%3] mask %5
        f64 at rank 1: 22 lines,  store %20, out[%2] mask %4
        f64 at rank 2: 30 lines,  store %28, out[%9] mask %11
        f64 at rank 3: 24 lines,  store %22, out[%3] mask %5
    "#]]
    .assert_eq(&report);
}

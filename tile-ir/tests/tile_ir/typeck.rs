//! Source to tile IR.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::testing::func;

fn check_tile(source: &str, expected: Expect) {
    expected.assert_eq(&ir::print(&func(source), &|_| None));
}

#[test]
fn add_mul() {
    check_tile(
        "#[fuse_kernel(T = [f32], BLOCK = [1024])]
        fn add_mul<T: Float, const BLOCK: usize>(x: &[T], y: &[T], z: &[T], out: &mut [T], n: i32) {
            let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
            let mask = offsets < n;
            let x = tl::load(x + offsets, mask);
            let y = tl::load(y + offsets, mask);
            let z = tl::load(z + offsets, mask);
            tl::store(out + offsets, (x + y) * z, mask);
        }",
        expect![[r#"
            kernel add_mul(x: &[f32], y: &[f32], z: &[f32], out: &mut [f32], %0 n: i32) {
              %1 = program_id 0 : i32
              %2 = constant 1024 : i32
              %3 = mul %1, %2 : i32
              %4 = arange 0 : i32[1024]
              %5 = splat %3 : i32[1024]
              %6 = add %5, %4 : i32[1024]
              %7 = splat %0 : i32[1024]
              %8 = lt %6, %7 : bool[1024]
              %9 = load x[%6] mask %8 : f32[1024]
              %10 = load y[%6] mask %8 : f32[1024]
              %11 = load z[%6] mask %8 : f32[1024]
              %12 = add %9, %10 : f32[1024]
              %13 = mul %12, %11 : f32[1024]
              store %13, out[%6] mask %8
            }
        "#]],
    );
}

#[test]
fn layer_norm() {
    check_tile(
        "#[fuse_kernel(T = [bf16], BLOCK = [1024])]
        fn layer_norm<T: Float, const BLOCK: usize>(
            x: &[T], gamma: &[T], beta: &[T], out: &mut [T], n_cols: i32, eps: f32,
        ) {
            let row = tl::program_id(0);
            let cols = tl::arange(0, BLOCK);
            let mask = cols < n_cols;
            let x = tl::load(x + row * n_cols + cols, mask, 0.0).to::<f32>();
            let mean = tl::sum(x, 0) / n_cols as f32;
            let centered = tl::select(mask, x - mean, 0.0);
            let var = tl::sum(centered * centered, 0) / n_cols as f32;
            let gamma = tl::load(gamma + cols, mask).to::<f32>();
            let beta = tl::load(beta + cols, mask).to::<f32>();
            let y = centered * tl::rsqrt(var + eps) * gamma + beta;
            tl::store(out + row * n_cols + cols, y.to::<T>(), mask);
        }",
        expect![[r#"
            kernel layer_norm(x: &[bf16], gamma: &[bf16], beta: &[bf16], out: &mut [bf16], %0 n_cols: i32, %1 eps: f32) {
              %2 = program_id 0 : i32
              %3 = arange 0 : i32[1024]
              %4 = splat %0 : i32[1024]
              %5 = lt %3, %4 : bool[1024]
              %6 = mul %2, %0 : i32
              %7 = splat %6 : i32[1024]
              %8 = add %7, %3 : i32[1024]
              %9 = constant 0.0 : bf16
              %10 = splat %9 : bf16[1024]
              %11 = load x[%8] mask %5 other %10 : bf16[1024]
              %12 = cast %11 : f32[1024]
              %13 = reduce %12 axes [0] : f32 { |%14, %15|
                %16 = add %14, %15 : f32
                yield %16
              }
              %17 = cast %0 : f32
              %18 = div %13, %17 : f32
              %19 = splat %18 : f32[1024]
              %20 = sub %12, %19 : f32[1024]
              %21 = constant 0.0 : f32
              %22 = splat %21 : f32[1024]
              %23 = select %5, %20, %22 : f32[1024]
              %24 = mul %23, %23 : f32[1024]
              %25 = reduce %24 axes [0] : f32 { |%26, %27|
                %28 = add %26, %27 : f32
                yield %28
              }
              %29 = div %25, %17 : f32
              %30 = load gamma[%3] mask %5 : bf16[1024]
              %31 = cast %30 : f32[1024]
              %32 = load beta[%3] mask %5 : bf16[1024]
              %33 = cast %32 : f32[1024]
              %34 = add %29, %1 : f32
              %35 = rsqrt %34 : f32
              %36 = splat %35 : f32[1024]
              %37 = mul %23, %36 : f32[1024]
              %38 = mul %37, %31 : f32[1024]
              %39 = add %38, %33 : f32[1024]
              %40 = cast %39 : bf16[1024]
              store %40, out[%8] mask %5
            }
        "#]],
    );
}

#[test]
fn loops_carry_scalars_tiles_and_pointers() {
    check_tile(
        "#[fuse_kernel(BLOCK = [128])]
        fn total<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
            let mut sum = 0.0;
            let mut tile = tl::zeros::<f32>([BLOCK]);
            let mut p = x + tl::arange(0, BLOCK);
            let mut count = 0;
            for start in (0..n).step_by(BLOCK) {
                let v = tl::load(p, start + tl::arange(0, BLOCK) < n);
                tile += v;
                sum = sum + tl::sum(v);
                if sum > 10.0 { count += 1; } else { count = 0; }
                p = p + BLOCK;
            }
            tl::store(out, sum + tl::sum(tile) + count as f32);
        }",
        expect![[r#"
            kernel total(x: &[f32], out: &mut [f32], %0 n: i32) {
              %1 = constant 0.0 : f32
              %2 = splat %1 : f32[128]
              %3 = arange 0 : i32[128]
              %4 = constant 0 : i32
              %5 = constant 128 : i32
              %6 = cast %3 exact : i64[128]
              %7, %8, %9, %10 = for %4..%0 step %5 carry %2, %1, %4, %6 : f32[128], f32, i32, i64[128] { |%11, %12, %13, %14, %15|
                %16 = splat %11 : i32[128]
                %17 = add %16, %3 : i32[128]
                %18 = splat %0 : i32[128]
                %19 = lt %17, %18 : bool[128]
                %20 = load x[%15] mask %19 : f32[128]
                %21 = add %12, %20 : f32[128]
                %22 = reduce %20 axes [0] : f32 { |%23, %24|
                  %25 = add %23, %24 : f32
                  yield %25
                }
                %26 = add %13, %22 : f32
                %27 = constant 10.0 : f32
                %28 = gt %26, %27 : bool
                %29 = if %28 : i32 {
                  %30 = constant 1 : i32
                  %31 = add %14, %30 : i32
                  yield %31
                } {
                  yield %4
                }
                %32 = constant 128 : i64
                %33 = splat %32 : i64[128]
                %34 = add %15, %33 : i64[128]
                yield %21, %26, %29, %34
              }
              %35 = reduce %7 axes [0] : f32 { |%36, %37|
                %38 = add %36, %37 : f32
                yield %38
              }
              %39 = add %8, %35 : f32
              %40 = cast %9 : f32
              %41 = add %39, %40 : f32
              store %41, out[%4]
            }
        "#]],
    );
}

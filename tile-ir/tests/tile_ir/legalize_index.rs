//! Offsets and comparisons after index legalization, with the guards that they rely on.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::ir::guard::{Guard, Symbol, SymbolicSum, WithNames, strongest};
use tile_ir::testing::func;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

fn check_legalized(source: &str, policy: BoundsPolicy, expected: Expect) {
    let mut func = func(source);
    let guards = legalize_index(&mut func, policy);
    ir::verify(&func).expect("valid tile IR");
    let names: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let guards: String = guards.iter().map(|guard| format!("{}\n", WithNames(guard, &names))).collect();
    expected.assert_eq(&format!("{}{guards}", ir::print(&func, &|_| None)));
}

const COPY: &str = "#[fuse_kernel(BLOCK = [1024])]
    fn copy<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
        let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
        let mask = offsets < n;
        tl::store(out + offsets, tl::load(x + offsets, mask), mask);
    }";

#[test]
fn one_comparison_at_launch_bounds_every_access() {
    check_legalized(
        COPY,
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel copy(x: &[f32], out: &mut [f32], %0 n: i32) {
              %1 = program_id 0 : i32
              %2 = constant 1024 : i32
              %3 = mul %1, %2 : i32
              %4 = arange 0 : i32[1024]
              %5 = splat %3 : i32[1024]
              %6 = add %5, %4 : i32[1024]
              %7 = splat %0 : i32[1024]
              %8 = lt %6, %7 : bool[1024]
              %9 = cast %1 : i64
              %10 = constant 1024 : i64
              %11 = mul %9, %10 : i64
              %12 = load x[%11 + %4] mask %8 inside : f32[1024]
              store %12, out[%11 + %4] mask %8 inside
            }
            -1 + 1024 * num_programs(0) <= 2147483647
            n <= x.len()
            n <= out.len()
        "#]],
    );
}

/// The last program reads the first rows: the subtracted program id is below the grid's extent.
#[test]
fn rows_indexed_from_the_end_are_inside_too() {
    check_legalized(
        "#[fuse_kernel(BLOCK = [1024])]
        fn reversed<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
            let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
            tl::store(out + row * BLOCK + cols, tl::load(x + (n - 1 - row) * BLOCK + cols));
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel reversed(x: &[f32], out: &mut [f32], %0 n: i32) {
              %1 = program_id 0 : i32
              %2 = arange 0 : i32[1024]
              %3 = cast %0 : i64
              %4 = constant 1 : i64
              %5 = sub %3, %4 : i64
              %6 = cast %1 : i64
              %7 = sub %5, %6 : i64
              %8 = constant 1024 : i64
              %9 = mul %7, %8 : i64
              %10 = load x[%9 + %2] inside : f32[1024]
              %11 = mul %6, %8 : i64
              store %10, out[%11 + %2] inside
            }
            1024 * num_programs(0) <= 1024 * n
            1024 * n <= x.len()
            1024 * num_programs(0) <= out.len()
        "#]],
    );
}

/// A loaded index may be any value; its mask bounds it.
#[test]
fn a_row_of_a_loaded_index_is_inside_where_its_mask_bounds_it() {
    check_legalized(
        "#[fuse_kernel(BLOCK = [1024])]
        fn embedding<const BLOCK: usize>(x: &[f32], ids: &[i64], out: &mut [f32], n: i64, dim: i32) {
            let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
            let id = tl::load(ids + row);
            let known = (id >= 0) & (id < n);
            let x = tl::load(x + id * dim.to::<i64>() + cols, (cols < dim) & known);
            tl::store(out + row * BLOCK + cols, x);
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel embedding(x: &[f32], ids: &[i64], out: &mut [f32], %0 n: i64, %1 dim: i32) {
              %2 = program_id 0 : i32
              %3 = arange 0 : i32[1024]
              %4 = cast %2 : i64
              %5 = constant 0 : i32
              %6 = load ids[%4 + %5] inside : i64
              %7 = constant 0 : i64
              %8 = ge %6, %7 : bool
              %9 = lt %6, %0 : bool
              %10 = and %8, %9 : bool
              %11 = cast %1 : i64
              %12 = mul %6, %11 : i64
              %13 = splat %1 : i32[1024]
              %14 = lt %3, %13 : bool[1024]
              %15 = splat %10 : bool[1024]
              %16 = and %14, %15 : bool[1024]
              %17 = load x[%12 + %3] mask %16 inside : f32[1024]
              %18 = constant 1024 : i64
              %19 = mul %4, %18 : i64
              store %17, out[%19 + %3] inside
            }
            num_programs(0) <= ids.len()
            0 <= n
            1 + n <= 9223372036854775807
            0 <= dim
            n * dim <= x.len()
            1024 * num_programs(0) <= out.len()
        "#]],
    );
}

#[test]
fn without_guards_the_kernel_compares() {
    check_legalized(
        COPY,
        BoundsPolicy::Masked,
        expect![[r#"
        kernel copy(x: &[f32], out: &mut [f32], %0 n: i32) {
          %1 = program_id 0 : i32
          %2 = arange 0 : i32[1024]
          %3 = cast %1 : i64
          %4 = constant 1024 : i64
          %5 = mul %3, %4 : i64
          %6 = cast %0 : i64
          %7 = sub %6, %5 : i64
          %8 = constant -64 : i64
          %9 = maximum %7, %8 : i64
          %10 = minimum %9, %4 : i64
          %11 = cast %10 : i32
          %12 = splat %11 : i32[1024]
          %13 = lt %2, %12 : bool[1024]
          %14 = load x[%5 + %2] mask %13 : f32[1024]
          store %14, out[%5 + %2] mask %13
        }
    "#]],
    );
}

const MATRIX: &str = "#[fuse_kernel(M = [64], N = [128])]
    fn scale<const M: usize, const N: usize>(x: &[f32], out: &mut [f32], rows: i32, cols: i32, stride: i32) {
        let r = tl::program_id(0) * M + tl::arange(0, M);
        let c = tl::program_id(1) * N + tl::arange(0, N);
        let mask = (r < rows).col() & (c < cols).row();
        let offsets = r.col() * stride + c.row();
        tl::store(out + offsets, tl::load(x + offsets, mask) * 2.0, mask);
    }";

#[test]
fn a_matrix_is_bounded_by_its_last_element() {
    check_legalized(
        MATRIX,
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel scale(x: &[f32], out: &mut [f32], %0 rows: i32, %1 cols: i32, %2 stride: i32) {
              %3 = program_id 0 : i32
              %4 = constant 64 : i32
              %5 = mul %3, %4 : i32
              %6 = arange 0 : i32[64]
              %7 = splat %5 : i32[64]
              %8 = add %7, %6 : i32[64]
              %9 = program_id 1 : i32
              %10 = constant 128 : i32
              %11 = mul %9, %10 : i32
              %12 = arange 0 : i32[128]
              %13 = splat %11 : i32[128]
              %14 = add %13, %12 : i32[128]
              %15 = splat %0 : i32[64]
              %16 = lt %8, %15 : bool[64]
              %17 = expand_dims %16 axis 1 : bool[64, 1]
              %18 = splat %1 : i32[128]
              %19 = lt %14, %18 : bool[128]
              %20 = expand_dims %19 axis 0 : bool[1, 128]
              %21 = broadcast %17 : bool[64, 128]
              %22 = broadcast %20 : bool[64, 128]
              %23 = and %21, %22 : bool[64, 128]
              %24 = splat %2 : i32[64, 1]
              %25 = cast %3 : i64
              %26 = constant 64 : i64
              %27 = mul %25, %26 : i64
              %28 = expand_dims %6 axis 1 : i32[64, 1]
              %29 = cast %2 : i64
              %30 = mul %27, %29 : i64
              %31 = mul %28, %24 exact : i32[64, 1]
              %32 = broadcast %31 : i32[64, 128]
              %33 = cast %9 : i64
              %34 = constant 128 : i64
              %35 = mul %33, %34 : i64
              %36 = expand_dims %12 axis 0 : i32[1, 128]
              %37 = broadcast %36 : i32[64, 128]
              %38 = add %30, %35 : i64
              %39 = add %32, %37 exact : i32[64, 128]
              %40 = load x[%38 + %39] mask %23 inside : f32[64, 128]
              %41 = constant 2.0 : f32
              %42 = splat %41 : f32[64, 128]
              %43 = mul %40, %42 : f32[64, 128]
              store %43, out[%38 + %39] mask %23 inside
            }
            -1 + 64 * num_programs(0) <= 2147483647
            -1 + 128 * num_programs(1) <= 2147483647
            0 <= stride
            rows * stride + cols - stride <= x.len()
            127 + 63 * stride <= 2147483647
            rows * stride + cols - stride <= out.len()
        "#]],
    );
}

#[test]
fn without_guards_a_stride_is_64_bits_wide() {
    check_legalized(
        MATRIX,
        BoundsPolicy::Masked,
        expect![[r#"
        kernel scale(x: &[f32], out: &mut [f32], %0 rows: i32, %1 cols: i32, %2 stride: i32) {
          %3 = program_id 0 : i32
          %4 = arange 0 : i32[64]
          %5 = program_id 1 : i32
          %6 = arange 0 : i32[128]
          %7 = cast %3 : i64
          %8 = constant 64 : i64
          %9 = mul %7, %8 : i64
          %10 = cast %0 : i64
          %11 = sub %10, %9 : i64
          %12 = constant -64 : i64
          %13 = maximum %11, %12 : i64
          %14 = minimum %13, %8 : i64
          %15 = cast %14 : i32
          %16 = splat %15 : i32[64]
          %17 = lt %4, %16 : bool[64]
          %18 = expand_dims %17 axis 1 : bool[64, 1]
          %19 = cast %5 : i64
          %20 = constant 128 : i64
          %21 = mul %19, %20 : i64
          %22 = cast %1 : i64
          %23 = sub %22, %21 : i64
          %24 = maximum %23, %12 : i64
          %25 = minimum %24, %20 : i64
          %26 = cast %25 : i32
          %27 = splat %26 : i32[128]
          %28 = lt %6, %27 : bool[128]
          %29 = expand_dims %28 axis 0 : bool[1, 128]
          %30 = broadcast %18 : bool[64, 128]
          %31 = broadcast %29 : bool[64, 128]
          %32 = and %30, %31 : bool[64, 128]
          %33 = cast %2 : i64
          %34 = mul %9, %33 : i64
          %35 = add %34, %21 : i64
          %36 = cast %4 : i64[64]
          %37 = expand_dims %36 axis 1 : i64[64, 1]
          %38 = splat %33 : i64[64, 1]
          %39 = mul %37, %38 : i64[64, 1]
          %40 = broadcast %39 : i64[64, 128]
          %41 = cast %6 : i64[128]
          %42 = expand_dims %41 axis 0 : i64[1, 128]
          %43 = broadcast %42 : i64[64, 128]
          %44 = add %40, %43 : i64[64, 128]
          %45 = load x[%35 + %44] mask %32 : f32[64, 128]
          %46 = constant 2.0 : f32
          %47 = splat %46 : f32[64, 128]
          %48 = mul %45, %47 : f32[64, 128]
          store %48, out[%35 + %44] mask %32
        }
    "#]],
    );
}

#[test]
fn a_loop_over_chunks_and_a_gather() {
    check_legalized(
        "#[fuse_kernel(BLOCK = [256])]
        fn gather<const BLOCK: usize>(x: &[f32], index: &[i32], out: &mut [f32], n: i32) {
            let row = tl::program_id(0);
            for start in (0..n).step_by(BLOCK) {
                let cols = start + tl::arange(0, BLOCK);
                let i = tl::load(index + cols, cols < n);
                tl::store(out + row * n + cols, tl::load(x + i), cols < n);
            }
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel gather(x: &[f32], index: &[i32], out: &mut [f32], %0 n: i32) {
              %1 = program_id 0 : i32
              %2 = constant 0 : i32
              %3 = constant 256 : i32
              for %2..%0 step %3 { |%4|
                %5 = arange 0 : i32[256]
                %6 = splat %4 : i32[256]
                %7 = add %6, %5 : i32[256]
                %8 = splat %0 : i32[256]
                %9 = lt %7, %8 : bool[256]
                %10 = cast %4 : i64
                %11 = load index[%10 + %5] mask %9 inside : i32[256]
                %12 = load x[%11] : f32[256]
                %13 = cast %1 : i64
                %14 = cast %0 : i64
                %15 = mul %13, %14 : i64
                %16 = add %15, %10 : i64
                store %12, out[%16 + %5] mask %9 inside
              }
            }
            254 + n <= 2147483647
            n <= index.len()
            0 <= n
            n * num_programs(0) <= out.len()
        "#]],
    );
}

/// 64-bit arithmetic wraps, polynomials do not: where a product of arguments could, a guard rules it out.
#[test]
fn what_could_wrap_is_checked_at_launch() {
    check_legalized(
        "#[fuse_kernel(BLOCK = [256])]
        fn copy<const BLOCK: usize>(x: &[f32], out: &mut [f32], a: i64, b: i64, n: i64) {
            let offsets = a * b + tl::arange(0, BLOCK) as i64;
            let mask = offsets < n;
            tl::store(out + offsets, tl::load(x + offsets, mask), mask);
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel copy(x: &[f32], out: &mut [f32], %0 a: i64, %1 b: i64, %2 n: i64) {
              %3 = mul %0, %1 : i64
              %4 = arange 0 : i32[256]
              %5 = cast %4 : i64[256]
              %6 = splat %3 : i64[256]
              %7 = add %6, %5 : i64[256]
              %8 = splat %2 : i64[256]
              %9 = lt %7, %8 : bool[256]
              %10 = load x[%3 + %4] mask %9 inside : f32[256]
              store %10, out[%3 + %4] mask %9 inside
            }
            0 <= a
            0 <= b
            256 + a * b <= x.len()
            256 + a * b <= out.len()
        "#]],
    );
}

#[test]
fn subtracted_terms_are_compared_with_the_others() {
    check_legalized(
        "#[fuse_kernel] fn halves(x: &[f32], out: &mut [f32], d: i32, gate: i32) {
            let cols = tl::arange(0, 64);
            let y = tl::load(x + tl::program_id(0) * 2 * d + (d - gate) + cols, cols < d);
            tl::store(out + cols, y);
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel halves(x: &[f32], out: &mut [f32], %0 d: i32, %1 gate: i32) {
              %2 = arange 0 : i32[64]
              %3 = program_id 0 : i32
              %4 = splat %0 : i32[64]
              %5 = lt %2, %4 : bool[64]
              %6 = cast %3 : i64
              %7 = constant 2 : i64
              %8 = mul %6, %7 : i64
              %9 = cast %0 : i64
              %10 = mul %8, %9 : i64
              %11 = cast %1 : i64
              %12 = sub %9, %11 : i64
              %13 = add %10, %12 : i64
              %14 = load x[%13 + %2] mask %5 inside : f32[64]
              store %14, out[%2] inside
            }
            0 <= d
            gate <= d
            2 * d * num_programs(0) - gate <= x.len()
            64 <= out.len()
        "#]],
    );
}

#[test]
fn rows_distributed_over_programs_are_bounded_by_the_last() {
    check_legalized(
        "#[fuse_kernel] fn rows(x: &[f32], out: &mut [f32], n_rows: i32, n_cols: i32) {
            let cols = tl::arange(0, 64);
            let mut sum = tl::zeros::<f32>([64]);
            for row in (tl::program_id(0)..n_rows).step_by(tl::num_programs(0)) {
                sum += tl::load(x + row * n_cols + cols, cols < n_cols);
            }
            tl::store(out + cols, sum);
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel rows(x: &[f32], out: &mut [f32], %0 n_rows: i32, %1 n_cols: i32) {
              %2 = arange 0 : i32[64]
              %3 = constant 0.0 : f32
              %4 = splat %3 : f32[64]
              %5 = program_id 0 : i32
              %6 = num_programs 0 : i32
              %7 = for %5..%0 step %6 carry %4 : f32[64] { |%8, %9|
                %10 = splat %1 : i32[64]
                %11 = lt %2, %10 : bool[64]
                %12 = cast %8 : i64
                %13 = cast %1 : i64
                %14 = mul %12, %13 : i64
                %15 = load x[%14 + %2] mask %11 inside : f32[64]
                %16 = add %9, %15 : f32[64]
                yield %16
              }
              store %7, out[%2] inside
            }
            0 <= n_cols
            n_rows * n_cols <= x.len()
            64 <= out.len()
        "#]],
    );
}

#[test]
fn a_remainder_is_below_a_guarded_divisor() {
    check_legalized(
        "#[fuse_kernel] fn repeated(x: &[f32], out: &mut [f32], rows: i32, n_cols: i32) {
            let cols = tl::arange(0, 64);
            let y = tl::load(x + tl::program_id(0) % rows * n_cols + cols, cols < n_cols);
            tl::store(out + cols, y);
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel repeated(x: &[f32], out: &mut [f32], %0 rows: i32, %1 n_cols: i32) {
              %2 = arange 0 : i32[64]
              %3 = program_id 0 : i32
              %4 = rem %3, %0 : i32
              %5 = splat %1 : i32[64]
              %6 = lt %2, %5 : bool[64]
              %7 = cast %4 : i64
              %8 = cast %1 : i64
              %9 = mul %7, %8 : i64
              %10 = load x[%9 + %2] mask %6 inside : f32[64]
              store %10, out[%2] inside
            }
            0 <= n_cols
            1 <= rows
            rows * n_cols <= x.len()
            64 <= out.len()
        "#]],
    );
}

/// A guard shows how far below zero an index is that is subtracted from a limit.
#[test]
fn a_difference_is_compared_in_32_bits_under_a_guard() {
    check_legalized(
        "#[fuse_kernel] fn tail(x: &[f32], out: &mut [f32], n: i32) {
            let i = n - tl::program_id(0) * 64 - tl::arange(0, 64);
            tl::store(out + tl::arange(0, 64), tl::load(x + i, (i >= 0) & (i < n)));
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel tail(x: &[f32], out: &mut [f32], %0 n: i32) {
              %1 = program_id 0 : i32
              %2 = constant 64 : i32
              %3 = mul %1, %2 : i32
              %4 = sub %0, %3 : i32
              %5 = arange 0 : i32[64]
              %6 = splat %4 : i32[64]
              %7 = sub %6, %5 : i32[64]
              %8 = constant 0 : i32
              %9 = splat %8 : i32[64]
              %10 = ge %7, %9 : bool[64]
              %11 = splat %0 : i32[64]
              %12 = lt %7, %11 : bool[64]
              %13 = and %10, %12 : bool[64]
              %14 = cast %0 : i64
              %15 = cast %1 : i64
              %16 = constant 64 : i64
              %17 = mul %15, %16 : i64
              %18 = sub %14, %17 : i64
              %19 = neg %5 exact : i32[64]
              %20 = load x[%18 + %19] mask %13 inside : f32[64]
              store %20, out[%5] inside
            }
            64 * num_programs(0) <= 2147483649 + n
            n <= x.len()
            64 <= out.len()
        "#]],
    );
}

/// A loaded number could be any: no guard keeps its multiple in 32 bits.
#[test]
fn a_comparison_that_no_guard_bounds_is_in_64_bits() {
    check_legalized(
        "#[fuse_kernel] fn tail(x: &[i32], out: &mut [i32], n: i32) {
            let i = n - tl::load(x + tl::arange(0, 64)) * 3;
            tl::store(out + tl::arange(0, 64), i, i >= 0);
        }",
        BoundsPolicy::Guarded,
        expect![[r#"
            kernel tail(x: &[i32], out: &mut [i32], %0 n: i32) {
              %1 = arange 0 : i32[64]
              %2 = load x[%1] inside : i32[64]
              %3 = constant 3 : i32
              %4 = splat %3 : i32[64]
              %5 = mul %2, %4 : i32[64]
              %6 = splat %0 : i32[64]
              %7 = sub %6, %5 : i32[64]
              %8 = cast %0 : i64
              %9 = constant 3 : i64
              %10 = constant 0 : i64
              %11 = sub %10, %8 : i64
              %12 = cast %2 : i64[64]
              %13 = splat %9 : i64[64]
              %14 = mul %12, %13 : i64[64]
              %15 = neg %14 : i64[64]
              %16 = splat %11 : i64[64]
              %17 = ge %15, %16 : bool[64]
              store %7, out[%1] mask %17 inside
            }
            64 <= x.len()
            64 <= out.len()
        "#]],
    );
}

fn at_most(low: &[(i64, &[Symbol])], high: i64) -> Guard {
    let terms = low.iter().map(|(coefficient, factors)| (*coefficient, factors.to_vec())).collect();
    Guard::AtMost { low: SymbolicSum { terms }, high: SymbolicSum { terms: vec![(high, vec![])] } }
}

#[test]
fn a_guard_that_another_one_implies_is_removed() {
    let (n, grid): (&[Symbol], &[Symbol]) = (&[Symbol::Scalar(0)], &[Symbol::Grid(0)]);
    let both: &[Symbol] = &[Symbol::Scalar(0), Symbol::Grid(0)];
    let guards = vec![
        at_most(&[(7, &[]), (64, grid)], 100),
        at_most(&[(64, grid)], 100),
        at_most(&[(-1, &[]), (64, grid)], 100),
        at_most(&[(64, grid), (9, &[])], 100),
        // Another end, another factor, another coefficient.
        at_most(&[(-1, &[]), (64, grid)], 99),
        at_most(&[(1, both)], 100),
        at_most(&[(1, n)], 100),
        at_most(&[(2, n)], 100),
        at_most(&[(5, &[])], 100),
        at_most(&[(-5, &[])], 100),
        Guard::Aligned { param: 1, bytes: 8 },
        Guard::Aligned { param: 1, bytes: 16 },
        Guard::Aligned { param: 1, bytes: 8 },
        Guard::Divisible { value: Symbol::Scalar(0), by: 8 },
        Guard::Divisible { value: Symbol::Scalar(0), by: 8 },
    ];
    let names = ["n".to_string(), "x".to_string()];
    let text: String =
        strongest(guards).iter().map(|guard| format!("{}\n", WithNames(guard, &names))).collect();
    expect![[r#"
        64 * num_programs(0) + 9 <= 100
        -1 + 64 * num_programs(0) <= 99
        n * num_programs(0) <= 100
        n <= 100
        2 * n <= 100
        5 <= 100
        x is 8-byte aligned
        x is 16-byte aligned
        8 divides n
    "#]]
    .assert_eq(&text);
}

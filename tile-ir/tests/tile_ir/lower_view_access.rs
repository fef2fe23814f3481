//! Views: parameters, view tiles, and the accesses that they are lowered to.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::ir::guard::WithNames;
use tile_ir::testing::{func, mistakes, render};
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};
use tile_ir::transform::view_strides::assume_contiguous;

fn names(func: &Func) -> Vec<String> {
    func.params.iter().map(|param| param.name.clone()).collect()
}

fn check_tile(source: &str, expected: Expect) {
    expected.assert_eq(&ir::print(&func(source), &|_| None));
}

/// After index legalization, with its guards; under guards the last axis is contiguous.
fn check_legalized(source: &str, policy: BoundsPolicy, expected: Expect) {
    let mut func = func(source);
    let mut guards = if policy == BoundsPolicy::Guarded { assume_contiguous(&mut func) } else { vec![] };
    guards.extend(legalize_index(&mut func, policy));
    ir::verify(&func).expect("valid tile IR");
    let names = names(&func);
    let guards: String = guards.iter().map(|fact| format!("{}\n", WithNames(fact, &names))).collect();
    expected.assert_eq(&format!("{}{guards}", ir::print(&func, &|_| None)));
}

fn check_mistakes(source: &str, expected: Expect) {
    expected.assert_eq(&render(&mistakes(source), source));
}

const COPY: &str = "#[fuse_kernel]
    fn copy(x: &View<f16, 2>, out: &mut View<f16, 2>) {
        let (row, col) = (tl::program_id(0) * 16, tl::program_id(1) * 128);
        out.store(x.load::<16, 128>(row, col).evict_first(), row, col);
    }";

#[test]
fn a_view_tile_is_one_operation_until_it_is_lowered() {
    check_tile(
        COPY,
        expect![[r#"
        kernel copy(x: &View<f16, 2>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<f16, 2>, %4 out.shape(0): i64, %5 out.shape(1): i64, %6 out.stride(0): i64, %7 out.stride(1): i64) {
          %8 = program_id 0 : i32
          %9 = constant 16 : i32
          %10 = mul %8, %9 : i32
          %11 = program_id 1 : i32
          %12 = constant 128 : i32
          %13 = mul %11, %12 : i32
          %14 = load_view x(%10, %13) evict_first : f16[16, 128]
          store_view %14, out(%10, %13)
        }
    "#]],
    );
}

#[test]
fn elements_outside_the_shape_are_masked() {
    check_legalized(
        COPY,
        BoundsPolicy::Masked,
        expect![[r#"
        kernel copy(x: &View<f16, 2>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<f16, 2>, %4 out.shape(0): i64, %5 out.shape(1): i64, %6 out.stride(0): i64, %7 out.stride(1): i64) {
          %8 = program_id 0 : i32
          %9 = program_id 1 : i32
          %10 = cast %8 : i64
          %11 = constant 16 : i64
          %12 = mul %10, %11 : i64
          %13 = mul %12, %2 : i64
          %14 = cast %9 : i64
          %15 = constant 128 : i64
          %16 = mul %14, %15 : i64
          %17 = mul %16, %3 : i64
          %18 = add %13, %17 : i64
          %19 = arange 0 : i32[16]
          %20 = cast %19 : i64[16]
          %21 = splat %2 : i64[16]
          %22 = mul %20, %21 : i64[16]
          %23 = expand_dims %22 axis 1 : i64[16, 1]
          %24 = broadcast %23 : i64[16, 128]
          %25 = arange 0 : i32[128]
          %26 = cast %25 : i64[128]
          %27 = splat %3 : i64[128]
          %28 = mul %26, %27 : i64[128]
          %29 = expand_dims %28 axis 0 : i64[1, 128]
          %30 = broadcast %29 : i64[16, 128]
          %31 = add %24, %30 : i64[16, 128]
          %32 = sub %0, %12 : i64
          %33 = constant -64 : i64
          %34 = constant 64 : i64
          %35 = maximum %32, %33 : i64
          %36 = minimum %35, %34 : i64
          %37 = cast %36 : i32
          %38 = splat %37 : i32[16]
          %39 = lt %19, %38 : bool[16]
          %40 = expand_dims %39 axis 1 : bool[16, 1]
          %41 = broadcast %40 : bool[16, 128]
          %42 = sub %1, %16 : i64
          %43 = maximum %42, %33 : i64
          %44 = minimum %43, %15 : i64
          %45 = cast %44 : i32
          %46 = splat %45 : i32[128]
          %47 = lt %25, %46 : bool[128]
          %48 = expand_dims %47 axis 0 : bool[1, 128]
          %49 = broadcast %48 : bool[16, 128]
          %50 = and %41, %49 : bool[16, 128]
          %51 = load x[%18 + %31] mask %50 inside evict_first : f16[16, 128]
          %52 = mul %12, %6 : i64
          %53 = mul %16, %7 : i64
          %54 = add %52, %53 : i64
          %55 = splat %6 : i64[16]
          %56 = mul %20, %55 : i64[16]
          %57 = expand_dims %56 axis 1 : i64[16, 1]
          %58 = broadcast %57 : i64[16, 128]
          %59 = splat %7 : i64[128]
          %60 = mul %26, %59 : i64[128]
          %61 = expand_dims %60 axis 0 : i64[1, 128]
          %62 = broadcast %61 : i64[16, 128]
          %63 = add %58, %62 : i64[16, 128]
          %64 = sub %4, %12 : i64
          %65 = maximum %64, %33 : i64
          %66 = minimum %65, %34 : i64
          %67 = cast %66 : i32
          %68 = splat %67 : i32[16]
          %69 = lt %19, %68 : bool[16]
          %70 = expand_dims %69 axis 1 : bool[16, 1]
          %71 = broadcast %70 : bool[16, 128]
          %72 = sub %5, %16 : i64
          %73 = maximum %72, %33 : i64
          %74 = minimum %73, %15 : i64
          %75 = cast %74 : i32
          %76 = splat %75 : i32[128]
          %77 = lt %25, %76 : bool[128]
          %78 = expand_dims %77 axis 0 : bool[1, 128]
          %79 = broadcast %78 : bool[16, 128]
          %80 = and %71, %79 : bool[16, 128]
          store %51, out[%54 + %63] mask %80 inside
        }
    "#]],
    );
    check_legalized(
        COPY,
        BoundsPolicy::Guarded,
        expect![[r#"
        kernel copy(x: &View<f16, 2> stride(%2, _), %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<f16, 2> stride(%6, _), %4 out.shape(0): i64, %5 out.shape(1): i64, %6 out.stride(0): i64, %7 out.stride(1): i64) {
          %8 = program_id 0 : i32
          %9 = program_id 1 : i32
          %10 = cast %8 : i64
          %11 = constant 16 : i64
          %12 = mul %10, %11 : i64
          %13 = mul %12, %2 : i64
          %14 = cast %9 : i64
          %15 = constant 128 : i64
          %16 = mul %14, %15 : i64
          %17 = add %13, %16 : i64
          %18 = arange 0 : i32[16]
          %19 = cast %2 : i32
          %20 = splat %19 : i32[16]
          %21 = mul %18, %20 exact : i32[16]
          %22 = expand_dims %21 axis 1 : i32[16, 1]
          %23 = broadcast %22 : i32[16, 128]
          %24 = arange 0 : i32[128]
          %25 = expand_dims %24 axis 0 : i32[1, 128]
          %26 = broadcast %25 : i32[16, 128]
          %27 = add %23, %26 exact : i32[16, 128]
          %28 = sub %0, %12 : i64
          %29 = constant -64 : i64
          %30 = constant 64 : i64
          %31 = maximum %28, %29 : i64
          %32 = minimum %31, %30 : i64
          %33 = cast %32 : i32
          %34 = splat %33 : i32[16]
          %35 = lt %18, %34 : bool[16]
          %36 = expand_dims %35 axis 1 : bool[16, 1]
          %37 = broadcast %36 : bool[16, 128]
          %38 = sub %1, %16 : i64
          %39 = maximum %38, %29 : i64
          %40 = minimum %39, %15 : i64
          %41 = cast %40 : i32
          %42 = splat %41 : i32[128]
          %43 = lt %24, %42 : bool[128]
          %44 = expand_dims %43 axis 0 : bool[1, 128]
          %45 = broadcast %44 : bool[16, 128]
          %46 = and %37, %45 : bool[16, 128]
          %47 = load x[%17 + %27] mask %46 inside evict_first : f16[16, 128]
          %48 = mul %12, %6 : i64
          %49 = add %48, %16 : i64
          %50 = cast %6 : i32
          %51 = splat %50 : i32[16]
          %52 = mul %18, %51 exact : i32[16]
          %53 = expand_dims %52 axis 1 : i32[16, 1]
          %54 = broadcast %53 : i32[16, 128]
          %55 = add %54, %26 exact : i32[16, 128]
          %56 = sub %4, %12 : i64
          %57 = maximum %56, %29 : i64
          %58 = minimum %57, %30 : i64
          %59 = cast %58 : i32
          %60 = splat %59 : i32[16]
          %61 = lt %18, %60 : bool[16]
          %62 = expand_dims %61 axis 1 : bool[16, 1]
          %63 = broadcast %62 : bool[16, 128]
          %64 = sub %5, %16 : i64
          %65 = maximum %64, %29 : i64
          %66 = minimum %65, %15 : i64
          %67 = cast %66 : i32
          %68 = splat %67 : i32[128]
          %69 = lt %24, %68 : bool[128]
          %70 = expand_dims %69 axis 0 : bool[1, 128]
          %71 = broadcast %70 : bool[16, 128]
          %72 = and %63, %71 : bool[16, 128]
          store %47, out[%49 + %55] mask %72 inside
        }
        x.stride(1) is 1
        out.stride(1) is 1
        127 + 15 * x.stride(0) <= 2147483647
        127 + 15 * out.stride(0) <= 2147483647
    "#]],
    );
}

#[test]
fn an_axis_of_extent_one_masks_the_whole_tile() {
    let source = "#[fuse_kernel]
        fn k(x: &View<f32, 3>, out: &mut View<f32, 3>, batch: i32, start: i64) {
            out.store(x.load::<1, 1, 64>(batch, start, 0), batch - 1, 0, 0);
        }";
    check_legalized(
        source,
        BoundsPolicy::Masked,
        expect![[r#"
        kernel k(x: &View<f32, 3>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.shape(2): i64, %3 x.stride(0): i64, %4 x.stride(1): i64, %5 x.stride(2): i64, out: &mut View<f32, 3>, %6 out.shape(0): i64, %7 out.shape(1): i64, %8 out.shape(2): i64, %9 out.stride(0): i64, %10 out.stride(1): i64, %11 out.stride(2): i64, %12 batch: i32, %13 start: i64) {
          %14 = constant 0 : i32
          %15 = cast %12 : i64
          %16 = mul %15, %3 : i64
          %17 = mul %13, %4 : i64
          %18 = add %16, %17 : i64
          %19 = constant 0 : i64
          %20 = arange 0 : i32[64]
          %21 = cast %20 : i64[64]
          %22 = splat %5 : i64[64]
          %23 = mul %21, %22 : i64[64]
          %24 = expand_dims %23 axis 0 : i64[1, 64]
          %25 = expand_dims %24 axis 1 : i64[1, 1, 64]
          %26 = lt %15, %0 : bool
          %27 = ge %15, %19 : bool
          %28 = and %27, %26 : bool
          %29 = lt %13, %1 : bool
          %30 = ge %13, %19 : bool
          %31 = and %30, %29 : bool
          %32 = and %28, %31 : bool
          %33 = constant -64 : i64
          %34 = constant 64 : i64
          %35 = maximum %2, %33 : i64
          %36 = minimum %35, %34 : i64
          %37 = cast %36 : i32
          %38 = select %32, %37, %14 : i32
          %39 = splat %38 : i32[64]
          %40 = lt %20, %39 : bool[64]
          %41 = expand_dims %40 axis 0 : bool[1, 64]
          %42 = expand_dims %41 axis 1 : bool[1, 1, 64]
          %43 = load x[%18 + %25] mask %42 inside : f32[1, 1, 64]
          %44 = constant 1 : i64
          %45 = sub %15, %44 : i64
          %46 = mul %45, %9 : i64
          %47 = splat %11 : i64[64]
          %48 = mul %21, %47 : i64[64]
          %49 = expand_dims %48 axis 0 : i64[1, 64]
          %50 = expand_dims %49 axis 1 : i64[1, 1, 64]
          %51 = lt %45, %6 : bool
          %52 = ge %45, %19 : bool
          %53 = and %52, %51 : bool
          %54 = lt %19, %7 : bool
          %55 = and %53, %54 : bool
          %56 = maximum %8, %33 : i64
          %57 = minimum %56, %34 : i64
          %58 = cast %57 : i32
          %59 = select %55, %58, %14 : i32
          %60 = splat %59 : i32[64]
          %61 = lt %20, %60 : bool[64]
          %62 = expand_dims %61 axis 0 : bool[1, 64]
          %63 = expand_dims %62 axis 1 : bool[1, 1, 64]
          store %43, out[%46 + %50] mask %63 inside
        }
    "#]],
    );
    check_legalized(
        source,
        BoundsPolicy::Guarded,
        expect![[r#"
        kernel k(x: &View<f32, 3> stride(%3, %4, _), %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.shape(2): i64, %3 x.stride(0): i64, %4 x.stride(1): i64, %5 x.stride(2): i64, out: &mut View<f32, 3> stride(%9, %10, %14), %6 out.shape(0): i64, %7 out.shape(1): i64, %8 out.shape(2): i64, %9 out.stride(0): i64, %10 out.stride(1): i64, %11 out.stride(2): i64, %12 batch: i32, %13 start: i64) {
          %14 = constant 1 : i64
          %15 = constant 0 : i32
          %16 = cast %12 : i64
          %17 = mul %16, %3 : i64
          %18 = mul %13, %4 : i64
          %19 = add %17, %18 : i64
          %20 = constant 0 : i64
          %21 = arange 0 : i32[64]
          %22 = expand_dims %21 axis 0 : i32[1, 64]
          %23 = expand_dims %22 axis 1 : i32[1, 1, 64]
          %24 = lt %16, %0 : bool
          %25 = lt %13, %1 : bool
          %26 = and %24, %25 : bool
          %27 = constant -64 : i64
          %28 = constant 64 : i64
          %29 = maximum %2, %27 : i64
          %30 = minimum %29, %28 : i64
          %31 = cast %30 : i32
          %32 = select %26, %31, %15 : i32
          %33 = splat %32 : i32[64]
          %34 = lt %21, %33 : bool[64]
          %35 = expand_dims %34 axis 0 : bool[1, 64]
          %36 = expand_dims %35 axis 1 : bool[1, 1, 64]
          %37 = load x[%19 + %23] mask %36 inside : f32[1, 1, 64]
          %38 = sub %16, %14 : i64
          %39 = mul %38, %9 : i64
          %40 = lt %38, %6 : bool
          %41 = lt %20, %7 : bool
          %42 = and %40, %41 : bool
          %43 = maximum %8, %27 : i64
          %44 = minimum %43, %28 : i64
          %45 = cast %44 : i32
          %46 = select %42, %45, %15 : i32
          %47 = splat %46 : i32[64]
          %48 = lt %21, %47 : bool[64]
          %49 = expand_dims %48 axis 0 : bool[1, 64]
          %50 = expand_dims %49 axis 1 : bool[1, 1, 64]
          store %37, out[%39 + %23] mask %50 inside
        }
        x.stride(2) is 1
        out.stride(2) is 1
        0 <= start
        1 <= batch
    "#]],
    );
}

#[test]
fn unsigned_offsets_do_not_become_negative() {
    check_legalized(
        "#[fuse_kernel]
        fn k(x: &View<f32, 1>, out: &mut [f32], start: u64) {
            tl::store(out + tl::arange(0, 32), x.load::<32>(start));
        }",
        BoundsPolicy::Masked,
        expect![[r#"
            kernel k(x: &View<f32, 1>, %0 x.shape(0): i64, %1 x.stride(0): i64, out: &mut [f32], %2 start: u64) {
              %3 = arange 0 : i32[32]
              %4 = constant 4611686018427387904 : u64
              %5 = minimum %2, %4 : u64
              %6 = cast %5 : i64
              %7 = mul %6, %1 : i64
              %8 = cast %3 : i64[32]
              %9 = splat %1 : i64[32]
              %10 = mul %8, %9 : i64[32]
              %11 = sub %0, %6 : i64
              %12 = constant -64 : i64
              %13 = constant 64 : i64
              %14 = maximum %11, %12 : i64
              %15 = minimum %14, %13 : i64
              %16 = cast %15 : i32
              %17 = splat %16 : i32[32]
              %18 = lt %3, %17 : bool[32]
              %19 = load x[%7 + %10] mask %18 inside : f32[32]
              store %19, out[%3]
            }
        "#]],
    );
}

#[test]
fn extents_and_strides_of_views_are_arguments() {
    check_tile(
        "#[fuse_kernel]
        fn k(x: &View<f32, 2>, out: &mut View<i64, 1>) {
            tl::assume(x.shape(1) % 16 == 0);
            out.store(tl::full([1], x.shape(0) * x.stride(0)), 0);
        }",
        expect![[r#"
            kernel k(x: &View<f32, 2>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<i64, 1>, %4 out.shape(0): i64, %5 out.stride(0): i64) assuming 16 divides x.shape(1) {
              %6 = constant 16 : i64
              %7 = rem %1, %6 : i64
              %8 = constant 0 : i64
              %9 = eq %7, %8 : bool
              device_assert %9 assume "x.shape(1) % 16 == 0"
              %10 = mul %0, %2 : i64
              %11 = splat %10 : i64[1]
              %12 = constant 0 : i32
              store_view %11, out(%12)
            }
        "#]],
    );
}

#[test]
fn a_view_takes_an_atomic_add() {
    let source = "#[fuse_kernel]
        fn k(x: &[f32], out: &mut View<f32, 1>, start: i32) {
            let was = out.atomic_add(tl::load(x + tl::arange(0, 32)), start).sem(\"relaxed\").scope(\"cta\");
            tl::static_print(was);
        }";
    check_tile(
        source,
        expect![[r#"
        kernel k(x: &[f32], out: &mut View<f32, 1>, %0 out.shape(0): i64, %1 out.stride(0): i64, %2 start: i32) {
          %3 = arange 0 : i32[32]
          %4 = load x[%3] : f32[32]
          %5 = add_view %4, out(%2) order relaxed scope cta : f32[32]
        }
    "#]],
    );
    check_legalized(
        source,
        BoundsPolicy::Guarded,
        expect![[r#"
        kernel k(x: &[f32], out: &mut View<f32, 1> stride(_), %0 out.shape(0): i64, %1 out.stride(0): i64, %2 start: i32) {
          %3 = arange 0 : i32[32]
          %4 = load x[%3] inside : f32[32]
          %5 = cast %2 : i64
          %6 = sub %0, %5 : i64
          %7 = constant -64 : i64
          %8 = constant 64 : i64
          %9 = maximum %6, %7 : i64
          %10 = minimum %9, %8 : i64
          %11 = cast %10 : i32
          %12 = splat %11 : i32[32]
          %13 = lt %3, %12 : bool[32]
          %14 = atomic_add %4, out[%5 + %3] mask %13 inside order relaxed scope cta : f32[32]
        }
        out.stride(0) is 1
        32 <= x.len()
        0 <= start
    "#]],
    );
}

#[test]
fn functions_take_views() {
    check_tile(
        "#[fuse_kernel]
        fn k(x: &View<f32, 2>, out: &mut View<f32, 2>) {
            fn twice<T: Float>(x: &View<T, 2>, out: &mut View<T, 2>, row: i32) {
                out.store(x.load::<4, 8>(row, 0) * 2.0, row, 0);
            }
            twice(x, out, tl::program_id(0) * 4);
        }",
        expect![[r#"
            kernel k(x: &View<f32, 2>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<f32, 2>, %4 out.shape(0): i64, %5 out.shape(1): i64, %6 out.stride(0): i64, %7 out.stride(1): i64) {
              %8 = program_id 0 : i32
              %9 = constant 4 : i32
              %10 = mul %8, %9 : i32
              %11 = constant 0 : i32
              %12 = load_view x(%10, %11) : f32[4, 8]
              %13 = constant 2.0 : f32
              %14 = splat %13 : f32[4, 8]
              %15 = mul %12, %14 : f32[4, 8]
              store_view %15, out(%10, %11)
            }
        "#]],
    );
}

#[test]
fn a_part_of_a_view_lacks_its_first_axes() {
    check_tile(
        "#[fuse_kernel]
        fn k(x: &View<f32, 3>, out: &mut View<f32, 2>) {
            fn row_sum(row: &View<f32, 1>) -> Tile<f32> {
                tl::sum(row.load::<8>(0).evict_first(), 0)
            }
            let plane = x.at(tl::program_id(0));
            let sums = plane.load::<4, 8>(1, 0) + row_sum(plane.at(3));
            out.at(plane.shape::<i32>(1)).store(tl::sum(sums, 1), 2);
            out.at(0).atomic_add(row_sum(plane.at(5)) + tl::zeros::<f32>([4]), 0).sem(\"relaxed\");
        }",
        expect![[r#"
            kernel k(x: &View<f32, 3>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.shape(2): i64, %3 x.stride(0): i64, %4 x.stride(1): i64, %5 x.stride(2): i64, out: &mut View<f32, 2>, %6 out.shape(0): i64, %7 out.shape(1): i64, %8 out.stride(0): i64, %9 out.stride(1): i64) {
              %10 = program_id 0 : i32
              %11 = constant 1 : i32
              %12 = constant 0 : i32
              %13 = load_view x(%10, %11, %12) : f32[1, 4, 8]
              %14 = reshape %13 : f32[4, 8]
              %15 = constant 3 : i32
              %16 = load_view x(%10, %15, %12) evict_first : f32[1, 1, 8]
              %17 = reshape %16 : f32[8]
              %18 = reduce %17 axes [0] : f32 { |%19, %20|
                %21 = add %19, %20 : f32
                yield %21
              }
              %22 = splat %18 : f32[4, 8]
              %23 = add %14, %22 : f32[4, 8]
              %24 = cast %2 : i32
              %25 = reduce %23 axes [1] : f32[4] { |%26, %27|
                %28 = add %26, %27 : f32
                yield %28
              }
              %29 = constant 2 : i32
              %30 = reshape %25 : f32[1, 4]
              store_view %30, out(%24, %29)
              %31 = constant 5 : i32
              %32 = load_view x(%10, %31, %12) evict_first : f32[1, 1, 8]
              %33 = reshape %32 : f32[8]
              %34 = reduce %33 axes [0] : f32 { |%35, %36|
                %37 = add %35, %36 : f32
                yield %37
              }
              %38 = constant 0.0 : f32
              %39 = splat %38 : f32[4]
              %40 = splat %34 : f32[4]
              %41 = add %40, %39 : f32[4]
              %42 = reshape %41 : f32[1, 4]
              %43 = add_view %42, out(%12, %12) order relaxed scope gpu : f32[1, 4]
            }
        "#]],
    );
    check_mistakes(
        "#[fuse_kernel] fn k(x: &View<f32, 2>, out: &mut View<f32, 2>, n: i32) {
            let row = x.at(n);
            row.at(0);
            row.load::<4, 4>(0, 0);
            row.store(tl::zeros::<f32>([4]), 0);
            x.at(n, 0);
            x.at(1.0);
            row.shape(1);
            row + 1.0;
            out.store(tl::zeros::<f32>([4]), 0);
            out.at(n).shape::<f32>(0);
        }",
        expect![[r#"
            3: `at`: a part of a view keeps one axis, and this is its last
                help: read a block of it: `row.load::<1>(0)`
            4: `0`: `.load` of a view of 1 axis takes 1 argument (1 offset), found 2
                help: a view is read and written in blocks: `x.at(..).load::<64>(0)`
            5: `row`: `x` is read-only: `.store` needs a `&mut` view
                help: declare it `x: &mut View<f32, 2>`
            6: `0`: `.at` of a view of 2 axes takes 1 argument (index), found 2
                help: one axis at a time: `x.at(i).at(j)`
            7: `1.0`: an offset is i32, found the float 1.0
                help: write an integer: `1`
            8: `1`: axis 1 is out of range: the only axis here is 0
            9: `row`: `+` takes tiles and scalars, found a view
                help: a view is read and written in blocks: `x.at(..).load::<64>(0)`
            10: `store`: `.store` of a view of 2 axes takes 3 arguments (tile, 2 offsets), found 2
                help: a view is written in blocks: `out.store(tile, 0, 0)`
            11: `shape`: `.shape` is an integer, not f32
                help: convert it: `.shape(0).to::<f32>()`
        "#]],
    );
}

#[test]
fn a_signature_says_what_its_views_are() {
    check_mistakes(
        "#[fuse_kernel] fn k(
            x: &View<f32, 0>, y: &View<f32, 6>, z: &View<f32>, v: View<f32, 2>, w: &View<f32, R>, u: &View<usize, 2>,
            t: &View<'a, f32, 2>, s: &View<[f32], 2>,
        ) {}",
        expect![[r#"
            2: `0`: a view has 1 to 5 axes, found 0
            2: `6`: a view has 1 to 5 axes, found 6
            2: `View<f32>`: a view names its element type and how many axes it has
                help: write `View<f32, 2>` for rows and columns of `f32`
            2: `View<f32, 2>`: a view is borrowed
                help: write `&View<T, 2>` or `&mut View<T, 2>`
            2: `R`: how many axes a view has is written as a number from 1 to 5
            2: `usize`: `usize` is not an element type
                help: memory and scalars have a fixed width: use `i64` or `i32`
            3: `'a`: a kernel has no lifetime parameters
                help: leave it out, also in the types: `x: &[T]`
            3: `[f32]`: a view's elements are of one element type
                help: write `View<f32, 2>` for rows and columns of `f32`
        "#]],
    );
}

const BODY: &str = "#[fuse_kernel] fn k(x: &View<f32, 2>, out: &mut View<f16, 2>, ids: &mut View<u8, 1>, y: &[f32], n: i32) {
            BODY
        }";

fn check_body(body: &str, expected: Expect) {
    check_mistakes(&BODY.replace("BODY", body), expected);
}

#[test]
fn view_tiles_have_an_offset_and_an_extent_for_each_axis() {
    check_body(
        "x.load::<16, 16>(0);
            x.load::<16, 16>(0, 0, n);
            x.load::<16>(0, 0);
            x.load::<16, 16, 4>(0, 0);
            x.load(0, 0);
            out.store(tl::zeros::<f16>([16, 16]), 0);
            out.store(tl::zeros::<f16>([16, 16]), 0, 0, 0);
            out.store(tl::zeros::<f16>([16]), 0, 0);
            out.store(0.0, 0, 0);
            ids.atomic_add(tl::zeros::<u8>([16]), 0);",
        expect![[r#"
            2: `load`: `.load` of a view of 2 axes takes 2 arguments (2 offsets), found 1
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            3: `n`: `.load` of a view of 2 axes takes 2 arguments (2 offsets), found 3
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            4: `load`: `.load` of a view of 2 axes takes 2 extents, found 1
                help: the block's extents are constants: `.load::<64, 64>(..)`
            5: `4`: `.load` of a view of 2 axes takes 2 extents, found 3
                help: the block's extents are constants: `.load::<64, 64>(..)`
            6: `load`: `.load` of a view of 2 axes takes 2 extents
                help: the block's extents are constants: `.load::<64, 64>(..)`
            7: `store`: `.store` of a view of 2 axes takes 3 arguments (tile, 2 offsets), found 2
                help: a view is written in blocks: `out.store(tile, 0, 0)`
            8: `0`: `.store` of a view of 2 axes takes 3 arguments (tile, 2 offsets), found 4
                help: a view is written in blocks: `out.store(tile, 0, 0)`
            9: `tl::zeros::<f16>([16])`: a block of `out` has 2 axes, found f16[16]
                help: `tl::reshape` or `tl::expand_dims` gives it axes of 1
            10: `0.0`: a block of `out` has 2 axes, found a scalar
                help: make a tile of it: `tl::full([64, 64], x)`
            11: `ids`: `.atomic_add` takes i32, i64, u32, u64, f16, bf16, f32 and f64, found u8
        "#]],
    );
}

#[test]
fn extents_are_legal_constants_and_offsets_integers() {
    check_body(
        "x.load::<16, 17>(0, 0);
            x.load::<n, 16>(0, 0);
            x.load::<_, { 4 * 4 }>(0, 0);
            x.load::<f32, 16>(0, 0);
            x.load::<1048576, 2>(0, 0);
            x.load::<16, 16>(0.5, 0);
            x.load::<16, 16>(tl::arange(0, 16), 0);
            x.load::<16, 16>(x, 0);",
        expect![[r#"
            2: `17`: a tile extent of 17 is not supported: an extent is a power of two, or one times 3, 5, 7, 9, 11, 13 or 15 (next to it are 16 and 18)
            3: `n`: the extent of a block is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            4: `_`: the extent of a block does not follow from anything: write it
            5: `f32`: `f32` is a type, expected a value
            6: `1048576, 2`: a tile has at most 1048576 elements, found 2097152: split it over programs or a loop
            7: `0.5`: an offset is i32, found the float 0.5
                help: write an integer
            8: `tl::arange(0, 16)`: a block begins at one offset along each axis, found a tile of type i32[16]
                help: write where the block begins, a scalar: its extent stands between angle brackets
            9: `x`: expected a tile or scalar, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
        "#]],
    );
}

#[test]
fn stored_elements_have_the_type_of_the_view() {
    check_body(
        "let block = x.load::<16, 16>(0, 0);
            out.store(block, 0, 0);
            x.store(block, 0, 0);
            x.atomic_add(block, 0, 0);
            x.store(tl::zeros::<i8>([4, 4]), n.to::<f32>(), 0);",
        expect![[r#"
            3: `block`: a value for `out` is f16, found f32
                help: convert it: `.to::<f16>()`
            4: `x`: `x` is read-only: `.store` needs a `&mut` view
                help: declare it `x: &mut View<f32, 2>`
            5: `x`: `x` is read-only: `.atomic_add` needs a `&mut` view
                help: declare it `x: &mut View<f32, 2>`
            6: `x`: `x` is read-only: `.store` needs a `&mut` view
                help: declare it `x: &mut View<f32, 2>`
            6: `tl::zeros::<i8>([4, 4])`: a value for `x` is f32, found i8
                help: convert it: `.to::<f32>()`
            6: `n.to::<f32>()`: an offset is an integer, found f32
                help: convert it: `as i32`
        "#]],
    );
}

#[test]
fn a_view_is_no_slice_and_no_tile() {
    check_body(
        "tl::load(x);
            tl::store(out + n, 1.0);
            let z = x + 1.0;
            tl::sum(x);
            x.len();
            x.laod::<16, 16>(0, 0);
            x.row();
            x.shape(2);
            x.stride(n);
            x.shape(0, 1);
            x.shape::<f32>(0);
            y.load::<16>(0);
            y.shape(0);
            x = out;
            n.store(0);",
        expect![[r#"
            2: `x`: `tl::load` takes a pointer, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            3: `out`: `+` takes tiles and scalars, found a view
                help: a view is read and written in blocks: `out.load::<64, 64>(0, 0)`
            4: `x`: `+` takes tiles and scalars, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            5: `x`: expected a tile or scalar, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            6: `len`: `len` is not a method of a view
                help: its extent along an axis is `x.shape(0)`
            7: `laod`: `laod` is not a method of a view
                help: a view has `at`, `load`, `store`, `atomic_add`, `shape` and `stride`
            8: `row`: `row` is not a method of a view
                help: a view has `at`, `load`, `store`, `atomic_add`, `shape` and `stride`
            9: `2`: axis 2 is out of range: the axes here are 0 and 1
                help: axes count from 0: the last is 1
            10: `n`: an axis is a constant integer, found a scalar of type i32
                help: constants are literals and const parameters of the kernel
            11: `1`: `.shape` of a view of 2 axes takes 1 argument (axis), found 2
                help: an axis is a number: `x.shape(0)`
            12: `shape`: `.shape` is an integer, not f32
                help: convert it: `.shape(0).to::<f32>()`
            13: `load`: `load` is not a method of a slice
                help: call the function: `tl::load(y + 0)`
            14: `shape`: `shape` is not a method of a slice
                help: the number of its elements is `y.len()`
            15: `x`: `x` cannot be assigned twice
                help: write memory with `x.store(tile, ..)`
            16: `store`: `store` is not a method of a scalar of type i32
                help: call the function: `tl::store(n, 0)`
        "#]],
    );
}

#[test]
fn views_pass_through_control_flow_and_functions() {
    check_body(
        "fn read(v: &View<f32, 1>) {}
            fn write(v: &mut View<f32, 2>) {}
            fn slice(v: &[f32]) {}
            fn tile(v: Tile<f32>) {}
            read(x);
            read(y);
            write(x);
            slice(x);
            tile(x);
            let mut v = x;
            for i in 0..n {
                v = x;
            }",
        expect![[r#"
            6: `x`: argument 1 of `read` is a `View<f32, 1>`, found a `View<f32, 2>`
            7: `y`: argument 1 of `read` is a view of f32, found a slice
            8: `x`: argument 1 of `write` is written to, found a view that is only read
            9: `x`: argument 1 of `slice` is a slice, or pointers into one, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            10: `x`: argument 1 of `tile` is a tile or scalar, found a view
                help: a view is read and written in blocks: `x.load::<64, 64>(0, 0)`
            11: `x`: a view cannot be assigned under a loop or `if`
        "#]],
    );
}

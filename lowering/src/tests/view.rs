//! Views: parameters, blocks, and what becomes of them.

use expect_test::{Expect, expect};

use super::{body, func, mistakes, render};
use crate::analysis::fact::Named;
use crate::analysis::split::{Trust, split};
use crate::analysis::view::contiguous;
use crate::body::{Requests, bodies};
use crate::tile::{self, Func};

fn names(func: &Func) -> Vec<String> {
    func.params.iter().map(|param| param.name.clone()).collect()
}

fn check_tile(source: &str, expected: Expect) {
    expected.assert_eq(&tile::print(&func(source), &|_| None));
}

/// After `split`, with what it relies on; for trust in the launcher with the last axis's neighbours side by side.
fn check_split(source: &str, trust: Trust, expected: Expect) {
    let mut func = func(source);
    let mut facts = if trust == Trust::Launch { contiguous(&mut func) } else { vec![] };
    facts.extend(split(&mut func, trust));
    tile::verify(&func).expect("valid tile IR");
    let names = names(&func);
    let facts: String = facts.iter().map(|fact| format!("{}\n", Named(fact, &names))).collect();
    expected.assert_eq(&format!("{}{facts}", tile::print(&func, &|_| None)));
}

fn check_aligned(source: &str, expected: Expect) {
    let func = func(source);
    let bodies = bodies(&func, Requests::default()).expect("bodies that fit");
    expected.assert_eq(&body::print(&bodies[0], &names(&func)));
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
fn a_block_is_one_operation_until_it_is_split() {
    check_tile(COPY, expect![[r#"
        kernel copy(x: &View<f16, 2>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<f16, 2>, %4 out.shape(0): i64, %5 out.shape(1): i64, %6 out.stride(0): i64, %7 out.stride(1): i64) {
          %8 = program_id 0 : i32
          %9 = constant 16 : i32
          %10 = mul %8, %9 : i32
          %11 = program_id 1 : i32
          %12 = constant 128 : i32
          %13 = mul %11, %12 : i32
          %14 = load_view x(%10, %13) evict_first : f16[16, 128]
          store_view out(%10, %13) = %14
        }
    "#]]);
}

#[test]
fn elements_inside_the_shape_take_part() {
    check_split(COPY, Trust::Nothing, expect![[r#"
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
          store out[%54 + %63] mask %80 inside = %51
        }
    "#]]);
    check_split(COPY, Trust::Launch, expect![[r#"
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
          %17 = add %13, %16 : i64
          %18 = arange 0 : i32[16]
          %19 = cast %2 : i32
          %20 = splat %19 : i32[16]
          %21 = mul exact %18, %20 : i32[16]
          %22 = expand_dims %21 axis 1 : i32[16, 1]
          %23 = broadcast %22 : i32[16, 128]
          %24 = arange 0 : i32[128]
          %25 = expand_dims %24 axis 0 : i32[1, 128]
          %26 = broadcast %25 : i32[16, 128]
          %27 = add exact %23, %26 : i32[16, 128]
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
          %52 = mul exact %18, %51 : i32[16]
          %53 = expand_dims %52 axis 1 : i32[16, 1]
          %54 = broadcast %53 : i32[16, 128]
          %55 = add exact %54, %26 : i32[16, 128]
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
          store out[%49 + %55] mask %72 inside = %47
        }
        x.stride(1) is 1
        out.stride(1) is 1
        127 + 15 * x.stride(0) <= 2147483647
        127 + 15 * out.stride(0) <= 2147483647
    "#]]);
}

#[test]
fn the_aligned_body_moves_vectors() {
    check_aligned(COPY, expect![[r#"
        aligned: 2 warps, 1 programs a block, 0 bytes shared
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
          %17 = add %13, %16 : i64
          %18 = arange 0 : i32[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %19 = cast %2 : i32
          %20 = splat %19 : i32[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %21 = mul exact %18, %20 : i32[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %22 = expand_dims %21 axis 1 : i32[16, 1]  // reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %23 = broadcast %22 : i32[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %24 = arange 0 : i32[128]  // reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %25 = expand_dims %24 axis 0 : i32[1, 128]  // reg(1@1 2@1 4@1) lane(8@1 16@1 32@1 64@1 -) warp(-)
          %26 = broadcast %25 : i32[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %27 = add exact %23, %26 : i32[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %28 = sub %0, %12 : i64
          %29 = constant -64 : i64
          %30 = constant 64 : i64
          %31 = maximum %28, %29 : i64
          %32 = minimum %31, %30 : i64
          %33 = cast %32 : i32
          %34 = splat %33 : i32[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %35 = lt %18, %34 : bool[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %36 = expand_dims %35 axis 1 : bool[16, 1]  // reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %37 = broadcast %36 : bool[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %38 = sub %1, %16 : i64
          %39 = maximum %38, %29 : i64
          %40 = minimum %39, %15 : i64
          %41 = cast %40 : i32
          %42 = splat %41 : i32[128]  // reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %43 = lt %24, %42 : bool[128]  // reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %44 = expand_dims %43 axis 0 : bool[1, 128]  // reg(1@1 2@1 4@1) lane(8@1 16@1 32@1 64@1 -) warp(-)
          %45 = broadcast %44 : bool[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %46 = and %37, %45 : bool[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %47 = load x[%17 + %27] mask %46 inside vector 8 evict_first : f16[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %48 = mul %12, %6 : i64
          %49 = add %48, %16 : i64
          %50 = cast %6 : i32
          %51 = splat %50 : i32[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %52 = mul exact %18, %51 : i32[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %53 = expand_dims %52 axis 1 : i32[16, 1]  // reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %54 = broadcast %53 : i32[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %55 = add exact %54, %26 : i32[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %56 = sub %4, %12 : i64
          %57 = maximum %56, %29 : i64
          %58 = minimum %57, %30 : i64
          %59 = cast %58 : i32
          %60 = splat %59 : i32[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %61 = lt %18, %60 : bool[16]  // reg(4 8) lane(- - - - 1) warp(2)
          %62 = expand_dims %61 axis 1 : bool[16, 1]  // reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %63 = broadcast %62 : bool[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %64 = sub %5, %16 : i64
          %65 = maximum %64, %29 : i64
          %66 = minimum %65, %15 : i64
          %67 = cast %66 : i32
          %68 = splat %67 : i32[128]  // reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %69 = lt %24, %68 : bool[128]  // reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %70 = expand_dims %69 axis 0 : bool[1, 128]  // reg(1@1 2@1 4@1) lane(8@1 16@1 32@1 64@1 -) warp(-)
          %71 = broadcast %70 : bool[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %72 = and %63, %71 : bool[16, 128]  // reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          store out[%49 + %55] mask %72 inside vector 8 = %47
        }
        x is 16-byte aligned
        out is 16-byte aligned
        x.stride(1) is 1
        out.stride(1) is 1
        8 divides x.shape(1)
        8 divides x.stride(0)
        8 divides out.shape(1)
        8 divides out.stride(0)
        127 + 15 * x.stride(0) <= 2147483647
        127 + 15 * out.stride(0) <= 2147483647
    "#]]);
}

#[test]
fn an_axis_of_one_element_decides_for_the_whole_block() {
    let source = "#[fuse_kernel]
        fn k(x: &View<f32, 3>, out: &mut View<f32, 3>, batch: i32, start: i64) {
            out.store(x.load::<1, 1, 64>(batch, start, 0), batch - 1, 0, 0);
        }";
    check_split(source, Trust::Nothing, expect![[r#"
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
          %33 = sub %2, %19 : i64
          %34 = constant -64 : i64
          %35 = constant 64 : i64
          %36 = maximum %33, %34 : i64
          %37 = minimum %36, %35 : i64
          %38 = cast %37 : i32
          %39 = select %32, %38, %14 : i32
          %40 = splat %39 : i32[64]
          %41 = lt %20, %40 : bool[64]
          %42 = expand_dims %41 axis 0 : bool[1, 64]
          %43 = expand_dims %42 axis 1 : bool[1, 1, 64]
          %44 = load x[%18 + %25] mask %43 inside : f32[1, 1, 64]
          %45 = constant 1 : i64
          %46 = sub %15, %45 : i64
          %47 = mul %46, %9 : i64
          %48 = splat %11 : i64[64]
          %49 = mul %21, %48 : i64[64]
          %50 = expand_dims %49 axis 0 : i64[1, 64]
          %51 = expand_dims %50 axis 1 : i64[1, 1, 64]
          %52 = lt %46, %6 : bool
          %53 = ge %46, %19 : bool
          %54 = and %53, %52 : bool
          %55 = lt %19, %7 : bool
          %56 = and %54, %55 : bool
          %57 = sub %8, %19 : i64
          %58 = maximum %57, %34 : i64
          %59 = minimum %58, %35 : i64
          %60 = cast %59 : i32
          %61 = select %56, %60, %14 : i32
          %62 = splat %61 : i32[64]
          %63 = lt %20, %62 : bool[64]
          %64 = expand_dims %63 axis 0 : bool[1, 64]
          %65 = expand_dims %64 axis 1 : bool[1, 1, 64]
          store out[%47 + %51] mask %65 inside = %44
        }
    "#]]);
    check_split(source, Trust::Launch, expect![[r#"
        kernel k(x: &View<f32, 3>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.shape(2): i64, %3 x.stride(0): i64, %4 x.stride(1): i64, %5 x.stride(2): i64, out: &mut View<f32, 3>, %6 out.shape(0): i64, %7 out.shape(1): i64, %8 out.shape(2): i64, %9 out.stride(0): i64, %10 out.stride(1): i64, %11 out.stride(2): i64, %12 batch: i32, %13 start: i64) {
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
          %27 = sub %2, %20 : i64
          %28 = constant -64 : i64
          %29 = constant 64 : i64
          %30 = maximum %27, %28 : i64
          %31 = minimum %30, %29 : i64
          %32 = cast %31 : i32
          %33 = select %26, %32, %15 : i32
          %34 = splat %33 : i32[64]
          %35 = lt %21, %34 : bool[64]
          %36 = expand_dims %35 axis 0 : bool[1, 64]
          %37 = expand_dims %36 axis 1 : bool[1, 1, 64]
          %38 = load x[%19 + %23] mask %37 inside : f32[1, 1, 64]
          %39 = sub %16, %14 : i64
          %40 = mul %39, %9 : i64
          %41 = lt %39, %6 : bool
          %42 = lt %20, %7 : bool
          %43 = and %41, %42 : bool
          %44 = sub %8, %20 : i64
          %45 = maximum %44, %28 : i64
          %46 = minimum %45, %29 : i64
          %47 = cast %46 : i32
          %48 = select %43, %47, %15 : i32
          %49 = splat %48 : i32[64]
          %50 = lt %21, %49 : bool[64]
          %51 = expand_dims %50 axis 0 : bool[1, 64]
          %52 = expand_dims %51 axis 1 : bool[1, 1, 64]
          store out[%40 + %23] mask %52 inside = %38
        }
        x.stride(2) is 1
        out.stride(2) is 1
        0 <= start
        1 <= batch
    "#]]);
}

#[test]
fn mistakes_stand_on_their_tokens() {
    check_mistakes("#[fuse_kernel] fn k(x: &View<f32, 0>, y: &View<f32, 6>, z: &View<f32>, v: View<f32, 2>) {}", expect![[r#"
        1: `0`: a view has 1 to 5 axes, found 0
        1: `6`: a view has 1 to 5 axes, found 6
        1: `View<f32>`: a view names its element type and how many axes it has
            help: write `View<f32, 2>` for rows and columns of `f32`
        1: `View<f32, 2>`: a view is borrowed
            help: write `&View<T, 2>` or `&mut View<T, 2>`
    "#]]);
}

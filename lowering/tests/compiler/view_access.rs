//! Accesses of view tiles: the aligned specialization, its PTX, and the two versions for CPUs.

use expect_test::{Expect, expect};
use tile_ir::ir::Func;
use tile_ir::ir::guard::WithNames;
use tile_ir::testing::func;
use tile_ir::transform::legalize_index::BoundsPolicy;

use super::{lines_with, ptx, specialization};
use lowering::backend::nvptx::Arch;
use lowering::driver::pipeline::host_plan;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::{Machine, Session, Vectors};

fn names(func: &Func) -> Vec<String> {
    func.params.iter().map(|param| param.name.clone()).collect()
}

fn check_aligned(source: &str, expected: Expect) {
    let func = func(source);
    let specializations = specializations(&func, KernelRequests::default()).expect("bodies that fit");
    expected.assert_eq(&specialization::print(&specializations[0], &names(&func)));
}

const COPY: &str = "#[fuse_kernel]
    fn copy(x: &View<f16, 2>, out: &mut View<f16, 2>) {
        let (row, col) = (tl::program_id(0) * 16, tl::program_id(1) * 128);
        out.store(x.load::<16, 128>(row, col).evict_first(), row, col);
    }";

#[test]
fn the_aligned_specialization_moves_vectors() {
    check_aligned(
        COPY,
        expect![[r#"
        aligned: 2 warps, 1 programs a block, 0 bytes shared
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
          %18 = arange 0 : i32[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %19 = cast %2 : i32
          %20 = splat %19 : i32[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %21 = mul %18, %20 exact : i32[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %22 = expand_dims %21 axis 1 : i32[16, 1]  ; reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %23 = broadcast %22 : i32[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %24 = arange 0 : i32[128]  ; reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %25 = expand_dims %24 axis 0 : i32[1, 128]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 32@1 64@1 -) warp(-)
          %26 = broadcast %25 : i32[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %27 = add %23, %26 exact : i32[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %28 = sub %0, %12 : i64
          %29 = constant -64 : i64
          %30 = constant 64 : i64
          %31 = maximum %28, %29 : i64
          %32 = minimum %31, %30 : i64
          %33 = cast %32 : i32
          %34 = splat %33 : i32[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %35 = lt %18, %34 : bool[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %36 = expand_dims %35 axis 1 : bool[16, 1]  ; reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %37 = broadcast %36 : bool[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %38 = sub %1, %16 : i64
          %39 = maximum %38, %29 : i64
          %40 = minimum %39, %15 : i64
          %41 = cast %40 : i32
          %42 = splat %41 : i32[128]  ; reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %43 = lt %24, %42 : bool[128]  ; reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %44 = expand_dims %43 axis 0 : bool[1, 128]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 32@1 64@1 -) warp(-)
          %45 = broadcast %44 : bool[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %46 = and %37, %45 : bool[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %47 = load x[%17 + %27] mask %46 inside vector 8 evict_first : f16[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %48 = mul %12, %6 : i64
          %49 = add %48, %16 : i64
          %50 = cast %6 : i32
          %51 = splat %50 : i32[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %52 = mul %18, %51 exact : i32[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %53 = expand_dims %52 axis 1 : i32[16, 1]  ; reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %54 = broadcast %53 : i32[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %55 = add %54, %26 exact : i32[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %56 = sub %4, %12 : i64
          %57 = maximum %56, %29 : i64
          %58 = minimum %57, %30 : i64
          %59 = cast %58 : i32
          %60 = splat %59 : i32[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %61 = lt %18, %60 : bool[16]  ; reg(4 8) lane(- - - - 1) warp(2)
          %62 = expand_dims %61 axis 1 : bool[16, 1]  ; reg(4@0 8@0) lane(- - - - 1@0) warp(2@0)
          %63 = broadcast %62 : bool[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %64 = sub %5, %16 : i64
          %65 = maximum %64, %29 : i64
          %66 = minimum %65, %15 : i64
          %67 = cast %66 : i32
          %68 = splat %67 : i32[128]  ; reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %69 = lt %24, %68 : bool[128]  ; reg(1 2 4) lane(8 16 32 64 -) warp(-)
          %70 = expand_dims %69 axis 0 : bool[1, 128]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 32@1 64@1 -) warp(-)
          %71 = broadcast %70 : bool[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          %72 = and %63, %71 : bool[16, 128]  ; reg(1@1 2@1 4@1 4@0 8@0) lane(8@1 16@1 32@1 64@1 1@0) warp(2@0)
          store %47, out[%49 + %55] mask %72 inside vector 8
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
    "#]],
    );
}

/// In the order in which the launcher checks them.
#[test]
fn offsets_that_are_arguments_have_guards() {
    let func = func(
        "#[fuse_kernel]
        fn k(x: &View<f32, 2>, out: &mut View<f32, 2>, from_row: i32, from_col: i32) {
            let (row, col) = (tl::program_id(0) * 8, tl::program_id(1) * 32);
            out.store(x.load::<8, 32>(row + from_row, col + from_col), row, col);
        }",
    );
    let specializations = specializations(&func, KernelRequests::default()).expect("bodies that fit");
    let names = names(&func);
    let facts: String =
        specializations[0].guards.iter().map(|fact| format!("{}\n", WithNames(fact, &names))).collect();
    expect![[r#"
        x is 16-byte aligned
        out is 16-byte aligned
        x.stride(1) is 1
        out.stride(1) is 1
        4 divides x.shape(1)
        4 divides x.stride(0)
        4 divides out.shape(1)
        4 divides out.stride(0)
        4 divides from_col
        31 + 7 * x.stride(0) <= 2147483647
        0 <= from_row
        0 <= from_col
        31 + 7 * out.stride(0) <= 2147483647
    "#]]
    .assert_eq(&facts);
}

/// Loads of later iterations are software-pipelined as those of slices are.
#[test]
fn view_tiles_in_a_loop_are_pipelined() {
    check_aligned(
        "#[fuse_kernel(num_warps = 1)]
        fn k(x: &View<f32, 2>, out: &mut View<f32, 1>) {
            let mut sum = tl::zeros::<f32>([1, 128]);
            for col in tl::range(0, x.shape(1), 128) {
                sum += x.load::<1, 128>(tl::program_id(0), col);
            }
            out.store(tl::sum(sum, 1), tl::program_id(0));
        }",
        expect![[r#"
            aligned: 1 warps, 4 programs a block, 8192 bytes shared
            kernel k(x: &View<f32, 2> stride(%2, _), %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<f32, 1>, %4 out.shape(0): i64, %5 out.stride(0): i64) {
              %6 = constant 0.0 : f32
              %7 = splat %6 : f32[1, 128]  ; reg(1@1 2@1) lane(4@1 8@1 16@1 32@1 64@1) warp()
              %8 = constant 0 : i64
              %9 = constant 128 : i64
              %10 = for %8..%1 step %9 carry %7 : f32[1, 128] { |%11, %12|  ; reg(1@1 2@1) lane(4@1 8@1 16@1 32@1 64@1) warp()
                %13 = program_id 0 : i32
                %14 = cast %13 : i64
                %15 = mul %14, %2 : i64
                %16 = add %15, %11 : i64
                %17 = arange 0 : i32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
                %18 = expand_dims %17 axis 0 : i32[1, 128]  ; reg(1@1 2@1) lane(4@1 8@1 16@1 32@1 64@1) warp()
                %19 = lt %14, %0 : bool
                %20 = sub %1, %11 : i64
                %21 = constant -64 : i64
                %22 = maximum %20, %21 : i64
                %23 = minimum %22, %9 : i64
                %24 = cast %23 : i32
                %25 = constant 0 : i32
                %26 = select %19, %24, %25 : i32
                %27 = splat %26 : i32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
                %28 = lt %17, %27 : bool[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
                %29 = expand_dims %28 axis 0 : bool[1, 128]  ; reg(1@1 2@1) lane(4@1 8@1 16@1 32@1 64@1) warp()
                %30 = load x[%16 + %18] mask %29 inside vector 4 : f32[1, 128]  ; reg(1@1 2@1) lane(4@1 8@1 16@1 32@1 64@1) warp()
                %31 = add %12, %30 : f32[1, 128]  ; reg(1@1 2@1) lane(4@1 8@1 16@1 32@1 64@1) warp()
                yield %31
              }
              %32 = reduce %10 axes [1] : f32[1] { |%33, %34|  ; reg() lane(- - - - -) warp()
                %35 = add %33, %34 : f32
                yield %35
              }
              %36 = program_id 0 : i32
              %37 = cast %36 : i64
              %38 = mul %37, %5 : i64
              %39 = constant 0 : i32
              %40 = splat %39 : i32[1]  ; reg() lane(- - - - -) warp()
              %41 = lt %37, %4 : bool
              %42 = splat %41 : bool[1]  ; reg() lane(- - - - -) warp()
              store %32, out[%38 + %40] mask %42 inside
            }
            x is 16-byte aligned
            x.stride(1) is 1
            4 divides x.shape(1)
            4 divides x.stride(0)
        "#]],
    );
}

/// A contiguous last axis is worth nothing where a tile has one element along it.
#[test]
fn a_column_is_read_at_any_stride() {
    check_aligned(
        "#[fuse_kernel]
        fn k(x: &View<f32, 2>, out: &mut View<f32, 2>) {
            out.store(x.load::<32, 1>(tl::program_id(0) * 32, 0), tl::program_id(0) * 32, 0);
        }",
        expect![[r#"
            aligned: 1 warps, 4 programs a block, 0 bytes shared
            kernel k(x: &View<f32, 2>, %0 x.shape(0): i64, %1 x.shape(1): i64, %2 x.stride(0): i64, %3 x.stride(1): i64, out: &mut View<f32, 2>, %4 out.shape(0): i64, %5 out.shape(1): i64, %6 out.stride(0): i64, %7 out.stride(1): i64) {
              %8 = program_id 0 : i32
              %9 = constant 0 : i32
              %10 = cast %8 : i64
              %11 = constant 32 : i64
              %12 = mul %10, %11 : i64
              %13 = mul %12, %2 : i64
              %14 = constant 0 : i64
              %15 = arange 0 : i32[32]  ; reg() lane(1 2 4 8 16) warp()
              %16 = cast %2 : i32
              %17 = splat %16 : i32[32]  ; reg() lane(1 2 4 8 16) warp()
              %18 = mul %15, %17 exact : i32[32]  ; reg() lane(1 2 4 8 16) warp()
              %19 = expand_dims %18 axis 1 : i32[32, 1]  ; reg() lane(1@0 2@0 4@0 8@0 16@0) warp()
              %20 = lt %14, %1 : bool
              %21 = sub %0, %12 : i64
              %22 = constant -64 : i64
              %23 = constant 64 : i64
              %24 = maximum %21, %22 : i64
              %25 = minimum %24, %23 : i64
              %26 = cast %25 : i32
              %27 = select %20, %26, %9 : i32
              %28 = splat %27 : i32[32]  ; reg() lane(1 2 4 8 16) warp()
              %29 = lt %15, %28 : bool[32]  ; reg() lane(1 2 4 8 16) warp()
              %30 = expand_dims %29 axis 1 : bool[32, 1]  ; reg() lane(1@0 2@0 4@0 8@0 16@0) warp()
              %31 = load x[%13 + %19] mask %30 inside : f32[32, 1]  ; reg() lane(1@0 2@0 4@0 8@0 16@0) warp()
              %32 = mul %12, %6 : i64
              %33 = cast %6 : i32
              %34 = splat %33 : i32[32]  ; reg() lane(1 2 4 8 16) warp()
              %35 = mul %15, %34 exact : i32[32]  ; reg() lane(1 2 4 8 16) warp()
              %36 = expand_dims %35 axis 1 : i32[32, 1]  ; reg() lane(1@0 2@0 4@0 8@0 16@0) warp()
              %37 = lt %14, %5 : bool
              %38 = sub %4, %12 : i64
              %39 = maximum %38, %22 : i64
              %40 = minimum %39, %23 : i64
              %41 = cast %40 : i32
              %42 = select %37, %41, %9 : i32
              %43 = splat %42 : i32[32]  ; reg() lane(1 2 4 8 16) warp()
              %44 = lt %15, %43 : bool[32]  ; reg() lane(1 2 4 8 16) warp()
              %45 = expand_dims %44 axis 1 : bool[32, 1]  ; reg() lane(1@0 2@0 4@0 8@0 16@0) warp()
              store %31, out[%32 + %36] mask %45 inside
            }
            31 * x.stride(0) <= 2147483647
            31 * out.stride(0) <= 2147483647
        "#]],
    );
}

/// The aligned specialization's accesses, and their guards.
#[test]
fn gpus_move_sixteen_bytes() {
    let text = ptx(COPY, Arch::SM_80);
    expect![[r#"
        mul.wide.u32 	%rd15, %r18, 16;
        mad.lo.s32 	%r27, %r21, %r22, %r26;
        mad.lo.s32 	%r30, %r22, 12, %r27;
        mul.wide.u32 	%rd29, %r20, 2;
        mul.wide.s32 	%rd31, %r27, 2;
        mul.wide.s32 	%rd32, %r28, 2;
        mul.wide.s32 	%rd33, %r29, 2;
        mul.wide.s32 	%rd34, %r30, 2;
        @%p1 ld.global.L1::evict_first.L2::cache_hint.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;
        @%p2 ld.global.L1::evict_first.L2::cache_hint.v4.b32 {%r5, %r6, %r7, %r8}, [%rd3], %rd2;
        @%p3 ld.global.L1::evict_first.L2::cache_hint.v4.b32 {%r9, %r10, %r11, %r12}, [%rd4], %rd2;
        @%p4 ld.global.L1::evict_first.L2::cache_hint.v4.b32 {%r13, %r14, %r15, %r16}, [%rd5], %rd2;
        mad.lo.s32 	%r37, %r21, %r34, %r26;
        mad.lo.s32 	%r40, %r34, 12, %r37;
        mul.wide.s32 	%rd45, %r37, 2;
        mul.wide.s32 	%rd46, %r38, 2;
        mul.wide.s32 	%rd47, %r39, 2;
        mul.wide.s32 	%rd48, %r40, 2;
        @%p5 st.global.v4.b32 [%rd6], {%r1, %r2, %r3, %r4};
        @%p6 st.global.v4.b32 [%rd7], {%r5, %r6, %r7, %r8};
        @%p7 st.global.v4.b32 [%rd8], {%r9, %r10, %r11, %r12};
        @%p8 st.global.v4.b32 [%rd9], {%r13, %r14, %r15, %r16};
    "#]]
    .assert_eq(&lines_with(&text, &["ld.global", "st.global", "mad.lo", "mul.wide"]));
}

/// Contiguous elements are loaded as vectors in a version of their own; the other one loads lane by lane.
#[test]
fn cpus_have_two_versions() {
    let source = "#[fuse_kernel]
        fn copy(x: &View<f32, 1>, out: &mut View<f32, 1>) {
            out.store(x.load::<16>(0), 0);
        }";
    let plan = host_plan(&func(source), BoundsPolicy::Masked);
    let session = Session::new();
    let mut module = session.module(Machine::Host(Vectors::Fused));
    plan.emit(&mut module, "entry");
    let text = module.finish().expect("valid MLIR").text();
    expect![[r#"
        llvm.func internal @entry_program(%arg0: !llvm.ptr {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: i64, %arg3: i64, %arg4: !llvm.ptr {llvm.noalias}, %arg5: i64, %arg6: i64, %arg7: i64, %arg8: i32, %arg9: i32, %arg10: i32, %arg11: i32, %arg12: i32, %arg13: i32, %arg14: !llvm.ptr {llvm.noalias}) {
        %46 = llvm.load %45 {alignment = 4 : i64} : !llvm.ptr -> f32
        llvm.store %45, %46 {alignment = 4 : i64} : f32, !llvm.ptr
        llvm.func internal @entry_special_program_1(%arg0: !llvm.ptr {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: i64, %arg3: i64, %arg4: !llvm.ptr {llvm.noalias}, %arg5: i64, %arg6: i64, %arg7: i64, %arg8: i32, %arg9: i32, %arg10: i32, %arg11: i32, %arg12: i32, %arg13: i32, %arg14: !llvm.ptr {llvm.noalias}) {
        %23 = scf.if %22 -> (vector<16xf32>) {
        %30 = llvm.load %29 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
        %45 = llvm.load %44 {alignment = 4 : i64} : !llvm.ptr -> f32
        scf.if %28 {
        llvm.store %23, %29 {alignment = 4 : i64} : vector<16xf32>, !llvm.ptr
        llvm.store %43, %44 {alignment = 4 : i64} : f32, !llvm.ptr
        llvm.func @entry(%arg0: !llvm.ptr, %arg1: i32, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: !llvm.ptr, %arg6: !llvm.ptr) {
        %1 = llvm.load %arg0 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
        %3 = llvm.load %2 {alignment = 8 : i64} : !llvm.ptr -> i64
        %5 = llvm.load %4 {alignment = 8 : i64} : !llvm.ptr -> i64
        %7 = llvm.load %6 {alignment = 8 : i64} : !llvm.ptr -> i64
        %9 = llvm.load %8 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
        %11 = llvm.load %10 {alignment = 8 : i64} : !llvm.ptr -> i64
        %13 = llvm.load %12 {alignment = 8 : i64} : !llvm.ptr -> i64
        %15 = llvm.load %14 {alignment = 8 : i64} : !llvm.ptr -> i64
        %16 = llvm.load %arg5 {alignment = 4 : i64} : !llvm.ptr -> i32
        %18 = llvm.load %17 {alignment = 4 : i64} : !llvm.ptr -> i32
        %20 = llvm.load %19 {alignment = 4 : i64} : !llvm.ptr -> i32
        scf.if %25 {
        llvm.call @entry_special_program_1(%1, %3, %5, %7, %9, %11, %13, %15, %26, %arg3, %arg4, %16, %18, %20, %arg6) : (!llvm.ptr, i64, i64, i64, !llvm.ptr, i64, i64, i64, i32, i32, i32, i32, i32, i32, !llvm.ptr) -> ()
        llvm.call @entry_program(%1, %3, %5, %7, %9, %11, %13, %15, %26, %arg3, %arg4, %16, %18, %20, %arg6) : (!llvm.ptr, i64, i64, i64, !llvm.ptr, i64, i64, i64, i32, i32, i32, i32, i32, i32, !llvm.ptr) -> ()
    "#]]
        .assert_eq(&lines_with(&text, &["llvm.func", "llvm.call", "llvm.load", "llvm.store", "scf.if"]));
}

//! The code that reports an out-of-bounds access, beside the code without it.

use expect_test::expect;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use super::first;
use lowering::backend::StageTexts;
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit as cpu_emit;
use lowering::driver::specialize::specializations;
use lowering::mlir::{Machine, Session, Vectors, report};

/// The MLIR of a kernel's general specialization.
fn gpu(source: &str, reports: bool) -> String {
    let (mut func, requests) = first(source);
    func.reports = reports;
    let specializations = specializations(&func, requests).expect("specializations that fit");
    let general = specializations.last().expect("a general specialization");
    assert_eq!(general.reports(), reports);
    let mut stages = StageTexts::default();
    nvptx::emit(&Session::new(), &[("entry".into(), general)], &[Arch::SM_80], Some(&mut stages))
        .expect("PTX");
    stages.mlir
}

/// The MLIR of one program on the CPU.
fn cpu(source: &str, reports: bool) -> String {
    let (mut func, _) = first(source);
    func.reports = reports;
    legalize_index(&mut func, BoundsPolicy::Masked);
    let plan = cpu_emit::CpuPlan::new(func);
    assert_eq!(plan.reports(), reports);
    let session = Session::new();
    let mut module = session.module(Machine::Host(Vectors::Fused));
    plan.emit(&mut module, "entry");
    module.finish().expect("valid MLIR").text()
}

const PICK: &str = "#[fuse_kernel]
    fn pick(x: &[f32], out: &mut [f32], at: i64, all: bool) {
        tl::store(out, tl::load(x + at, all));
    }";

const SHIFTED: &str = "#[fuse_kernel(num_warps = 4)]
    fn shifted(x: &[f32], out: &mut [f32], n: i32) {
        let i = tl::arange(0, 256);
        tl::store(out + i, tl::load(x + n + i, i < n), i < 3);
    }";

#[test]
fn one_comparison_for_all_elements_of_a_gpu_thread() {
    expect![[r#"
        module {
          llvm.mlir.global external @shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
          llvm.mlir.global external @fuse_report(dense<0> : tensor<6xi64>) {addr_space = 1 : i32, alignment = 8 : i64} : !llvm.array<6 x i64>
          llvm.func @entry(%arg0: !llvm.ptr<1>, %arg1: i64, %arg2: !llvm.ptr<1>, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128>} {
            %0 = llvm.mlir.constant(9 : i32) : i32
            %1 = llvm.mlir.constant(-128 : i32) : i32
            %2 = llvm.mlir.constant(28 : i32) : i32
            %3 = llvm.mlir.constant(2 : i32) : i32
            %4 = llvm.mlir.constant(false) : i1
            %5 = llvm.mlir.constant(1 : i32) : i32
            %6 = llvm.mlir.constant(2147483647 : i64) : i64
            %7 = llvm.mlir.constant(-2147483648 : i64) : i64
            %8 = llvm.mlir.constant(0 : i64) : i64
            %9 = llvm.mlir.constant(128 : i32) : i32
            %10 = llvm.mlir.constant(3 : i32) : i32
            %11 = llvm.mlir.constant(0 : i32) : i32
            %12 = llvm.mlir.constant(5 : i32) : i32
            %13 = llvm.mlir.constant(31 : i32) : i32
            %14 = nvvm.read.ptx.sreg.tid.x : i32
            %15 = llvm.and %14, %13 : i32
            %16 = llvm.lshr %14, %12 : i32
            %17 = nvvm.read.ptx.sreg.ctaid.x : i32
            %18 = nvvm.read.ptx.sreg.ctaid.y : i32
            %19 = nvvm.read.ptx.sreg.ctaid.z : i32
            %20 = llvm.inline_asm asm_dialect = att "createpolicy.fractional.L2::evict_last.b64 $0;", "=l"  : () -> i64
            %21 = llvm.and %15, %13 : i32
            %22 = llvm.shl %21, %11 : i32
            %23 = llvm.add %11, %22 {overflowFlags = #llvm.overflow<nsw>} : i32
            %24 = llvm.and %16, %10 : i32
            %25 = llvm.shl %24, %12 : i32
            %26 = llvm.add %23, %25 {overflowFlags = #llvm.overflow<nsw>} : i32
            %27 = llvm.add %26, %9 {overflowFlags = #llvm.overflow<nsw>} : i32
            %28 = llvm.add %26, %9 {overflowFlags = #llvm.overflow<nsw>} : i32
            %29 = llvm.icmp "slt" %26, %arg4 : i32
            %30 = llvm.icmp "slt" %28, %arg4 : i32
            %31 = llvm.sext %arg4 : i32 to i64
            llvm.inline_asm has_side_effects asm_dialect = att "griddepcontrol.wait;", "~{memory}"  : () -> ()
            %32 = llvm.getelementptr %arg0[%31] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %33 = llvm.sub %arg1, %31 : i64
            %34 = llvm.intr.smin(%33, %6) : (i64, i64) -> i64
            %35 = llvm.intr.smax(%34, %7) : (i64, i64) -> i64
            %36 = llvm.trunc %35 : i64 to i32
            %37 = llvm.sub %8, %31 : i64
            %38 = llvm.intr.smin(%37, %6) : (i64, i64) -> i64
            %39 = llvm.intr.smax(%38, %7) : (i64, i64) -> i64
            %40 = llvm.trunc %39 : i64 to i32
            %41 = llvm.sext %26 : i32 to i64
            %42 = llvm.getelementptr %32[%41] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %43 = llvm.icmp "slt" %26, %36 : i32
            %44 = llvm.icmp "sge" %26, %40 : i32
            %45 = llvm.and %44, %43 : i1
            %46 = llvm.sub %26, %40 : i32
            %47 = llvm.select %29, %46, %11 : i1, i32
            %48 = llvm.and %29, %45 : i1
            %49 = llvm.getelementptr %42[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %50 = llvm.icmp "slt" %28, %36 : i32
            %51 = llvm.icmp "sge" %28, %40 : i32
            %52 = llvm.and %51, %50 : i1
            %53 = llvm.sub %28, %40 : i32
            %54 = llvm.select %30, %53, %11 : i1, i32
            %55 = llvm.intr.umax(%47, %54) : (i32, i32) -> i32
            %56 = llvm.or %29, %30 : i1
            %57 = llvm.and %30, %52 : i1
            %58 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.b32 $0, [$1];", "=r,l,b,0" %42, %48, %11 : (!llvm.ptr<1>, i1, i32) -> i32
            %59 = llvm.bitcast %58 : i32 to f32
            %60 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.b32 $0, [$1];", "=r,l,b,0" %49, %57, %11 : (!llvm.ptr<1>, i1, i32) -> i32
            %61 = llvm.bitcast %60 : i32 to f32
            %62 = llvm.sub %36, %40 : i32
            %63 = llvm.icmp "uge" %55, %62 : i32
            %64 = llvm.and %56, %63 : i1
            scf.if %64 {
              %89 = llvm.add %55, %40 : i32
              %90 = llvm.sext %89 : i32 to i64
              %91 = llvm.add %31, %90 : i64
              %92 = llvm.mlir.addressof @fuse_report : !llvm.ptr<1>
              %93 = llvm.load %92 atomic monotonic {alignment = 4 : i64} : !llvm.ptr<1> -> i32
              %94 = llvm.icmp "eq" %93, %11 : i32
              %95 = scf.if %94 -> (i1) {
                %96 = llvm.cmpxchg %92, %11, %5 monotonic monotonic : !llvm.ptr<1>, i32
                %97 = llvm.extractvalue %96[0] : !llvm.struct<(i32, i1)> 
                %98 = llvm.extractvalue %96[1] : !llvm.struct<(i32, i1)> 
                scf.yield %98 : i1
              } else {
                scf.yield %4 : i1
              }
              scf.if %95 {
                %96 = llvm.getelementptr %92[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %11, %96 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %97 = llvm.getelementptr %92[8] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %3, %97 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %98 = llvm.getelementptr %92[12] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %2, %98 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %99 = llvm.getelementptr %92[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %11, %99 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %100 = llvm.getelementptr %92[20] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %17, %100 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %101 = llvm.getelementptr %92[24] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %18, %101 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %102 = llvm.getelementptr %92[28] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %19, %102 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %103 = llvm.getelementptr %92[32] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %91, %103 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                %104 = llvm.getelementptr %92[40] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %arg1, %104 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                llvm.store %3, %92 atomic release {alignment = 4 : i64} : i32, !llvm.ptr<1>
              }
            }
            %65 = llvm.sub %26, %10 {overflowFlags = #llvm.overflow<nsw>} : i32
            %66 = llvm.icmp "slt" %65, %11 : i32
            %67 = llvm.add %65, %9 {overflowFlags = #llvm.overflow<nsw>} : i32
            %68 = llvm.icmp "slt" %65, %1 : i32
            %69 = llvm.sub %arg3, %8 : i64
            %70 = llvm.intr.smin(%69, %6) : (i64, i64) -> i64
            %71 = llvm.intr.smax(%70, %7) : (i64, i64) -> i64
            %72 = llvm.trunc %71 : i64 to i32
            %73 = llvm.sext %26 : i32 to i64
            %74 = llvm.getelementptr %arg2[%73] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %75 = llvm.icmp "slt" %26, %72 : i32
            %76 = llvm.select %66, %26, %11 : i1, i32
            %77 = llvm.and %66, %75 : i1
            %78 = llvm.getelementptr %74[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %79 = llvm.icmp "slt" %28, %72 : i32
            %80 = llvm.select %68, %28, %11 : i1, i32
            %81 = llvm.intr.umax(%76, %80) : (i32, i32) -> i32
            %82 = llvm.or %66, %68 : i1
            %83 = llvm.and %68, %79 : i1
            %84 = llvm.bitcast %59 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %74, %77, %84 : (!llvm.ptr<1>, i1, i32) -> ()
            %85 = llvm.bitcast %61 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %78, %83, %85 : (!llvm.ptr<1>, i1, i32) -> ()
            %86 = llvm.intr.smax(%72, %11) : (i32, i32) -> i32
            %87 = llvm.icmp "uge" %81, %86 : i32
            %88 = llvm.and %82, %87 : i1
            scf.if %88 {
              %89 = llvm.sext %81 : i32 to i64
              %90 = llvm.mlir.addressof @fuse_report : !llvm.ptr<1>
              %91 = llvm.load %90 atomic monotonic {alignment = 4 : i64} : !llvm.ptr<1> -> i32
              %92 = llvm.icmp "eq" %91, %11 : i32
              %93 = scf.if %92 -> (i1) {
                %94 = llvm.cmpxchg %90, %11, %5 monotonic monotonic : !llvm.ptr<1>, i32
                %95 = llvm.extractvalue %94[0] : !llvm.struct<(i32, i1)> 
                %96 = llvm.extractvalue %94[1] : !llvm.struct<(i32, i1)> 
                scf.yield %96 : i1
              } else {
                scf.yield %4 : i1
              }
              scf.if %93 {
                %94 = llvm.getelementptr %90[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %5, %94 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %95 = llvm.getelementptr %90[8] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %3, %95 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %96 = llvm.getelementptr %90[12] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %0, %96 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %97 = llvm.getelementptr %90[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %5, %97 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %98 = llvm.getelementptr %90[20] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %17, %98 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %99 = llvm.getelementptr %90[24] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %18, %99 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %100 = llvm.getelementptr %90[28] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %19, %100 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %101 = llvm.getelementptr %90[32] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %89, %101 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                %102 = llvm.getelementptr %90[40] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %arg3, %102 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                llvm.store %3, %90 atomic release {alignment = 4 : i64} : i32, !llvm.ptr<1>
              }
            }
            llvm.return
          }
        }
    "#]].assert_eq(&gpu(SHIFTED, true));
}

#[test]
fn a_gpu_thread_that_does_not_report() {
    expect![[r#"
        module {
          llvm.mlir.global external @shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
          llvm.func @entry(%arg0: !llvm.ptr<1>, %arg1: i64, %arg2: !llvm.ptr<1>, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128>} {
            %0 = llvm.mlir.constant(-128 : i32) : i32
            %1 = llvm.mlir.constant(2147483647 : i64) : i64
            %2 = llvm.mlir.constant(-2147483648 : i64) : i64
            %3 = llvm.mlir.constant(0 : i64) : i64
            %4 = llvm.mlir.constant(128 : i32) : i32
            %5 = llvm.mlir.constant(3 : i32) : i32
            %6 = llvm.mlir.constant(0 : i32) : i32
            %7 = llvm.mlir.constant(5 : i32) : i32
            %8 = llvm.mlir.constant(31 : i32) : i32
            %9 = nvvm.read.ptx.sreg.tid.x : i32
            %10 = llvm.and %9, %8 : i32
            %11 = llvm.lshr %9, %7 : i32
            %12 = nvvm.read.ptx.sreg.ctaid.x : i32
            %13 = nvvm.read.ptx.sreg.ctaid.y : i32
            %14 = nvvm.read.ptx.sreg.ctaid.z : i32
            %15 = llvm.inline_asm asm_dialect = att "createpolicy.fractional.L2::evict_last.b64 $0;", "=l"  : () -> i64
            %16 = llvm.and %10, %8 : i32
            %17 = llvm.shl %16, %6 : i32
            %18 = llvm.add %6, %17 {overflowFlags = #llvm.overflow<nsw>} : i32
            %19 = llvm.and %11, %5 : i32
            %20 = llvm.shl %19, %7 : i32
            %21 = llvm.add %18, %20 {overflowFlags = #llvm.overflow<nsw>} : i32
            %22 = llvm.add %21, %4 {overflowFlags = #llvm.overflow<nsw>} : i32
            %23 = llvm.add %21, %4 {overflowFlags = #llvm.overflow<nsw>} : i32
            %24 = llvm.icmp "slt" %21, %arg4 : i32
            %25 = llvm.icmp "slt" %23, %arg4 : i32
            %26 = llvm.sext %arg4 : i32 to i64
            llvm.inline_asm has_side_effects asm_dialect = att "griddepcontrol.wait;", "~{memory}"  : () -> ()
            %27 = llvm.getelementptr %arg0[%26] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %28 = llvm.sub %arg1, %26 : i64
            %29 = llvm.intr.smin(%28, %1) : (i64, i64) -> i64
            %30 = llvm.intr.smax(%29, %2) : (i64, i64) -> i64
            %31 = llvm.trunc %30 : i64 to i32
            %32 = llvm.sub %3, %26 : i64
            %33 = llvm.intr.smin(%32, %1) : (i64, i64) -> i64
            %34 = llvm.intr.smax(%33, %2) : (i64, i64) -> i64
            %35 = llvm.trunc %34 : i64 to i32
            %36 = llvm.sext %21 : i32 to i64
            %37 = llvm.getelementptr %27[%36] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %38 = llvm.icmp "slt" %21, %31 : i32
            %39 = llvm.icmp "sge" %21, %35 : i32
            %40 = llvm.and %39, %38 : i1
            %41 = llvm.and %24, %40 : i1
            %42 = llvm.getelementptr %37[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %43 = llvm.icmp "slt" %23, %31 : i32
            %44 = llvm.icmp "sge" %23, %35 : i32
            %45 = llvm.and %44, %43 : i1
            %46 = llvm.and %25, %45 : i1
            %47 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.b32 $0, [$1];", "=r,l,b,0" %37, %41, %6 : (!llvm.ptr<1>, i1, i32) -> i32
            %48 = llvm.bitcast %47 : i32 to f32
            %49 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.b32 $0, [$1];", "=r,l,b,0" %42, %46, %6 : (!llvm.ptr<1>, i1, i32) -> i32
            %50 = llvm.bitcast %49 : i32 to f32
            %51 = llvm.sub %21, %5 {overflowFlags = #llvm.overflow<nsw>} : i32
            %52 = llvm.icmp "slt" %51, %6 : i32
            %53 = llvm.add %51, %4 {overflowFlags = #llvm.overflow<nsw>} : i32
            %54 = llvm.icmp "slt" %51, %0 : i32
            %55 = llvm.sub %arg3, %3 : i64
            %56 = llvm.intr.smin(%55, %1) : (i64, i64) -> i64
            %57 = llvm.intr.smax(%56, %2) : (i64, i64) -> i64
            %58 = llvm.trunc %57 : i64 to i32
            %59 = llvm.sext %21 : i32 to i64
            %60 = llvm.getelementptr %arg2[%59] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %61 = llvm.icmp "slt" %21, %58 : i32
            %62 = llvm.and %52, %61 : i1
            %63 = llvm.getelementptr %60[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %64 = llvm.icmp "slt" %23, %58 : i32
            %65 = llvm.and %54, %64 : i1
            %66 = llvm.bitcast %48 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %60, %62, %66 : (!llvm.ptr<1>, i1, i32) -> ()
            %67 = llvm.bitcast %50 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %63, %65, %67 : (!llvm.ptr<1>, i1, i32) -> ()
            llvm.return
          }
        }
    "#]].assert_eq(&gpu(SHIFTED, false));
}

#[test]
fn a_host_thread_reports_element_by_element() {
    expect![[r#"
        module {
          llvm.func internal @entry_program(%arg0: !llvm.ptr {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: !llvm.ptr {llvm.noalias}, %arg3: i64, %arg4: i64, %arg5: i8, %arg6: i32, %arg7: i32, %arg8: i32, %arg9: i32, %arg10: i32, %arg11: i32, %arg12: !llvm.ptr {llvm.noalias}, %arg13: !llvm.ptr) {
            %0 = llvm.mlir.constant(9 : i32) : i32
            %1 = llvm.mlir.constant(0 : i64) : i64
            %2 = llvm.mlir.constant(2 : i32) : i32
            %3 = llvm.mlir.constant(24 : i32) : i32
            %4 = llvm.mlir.constant(false) : i1
            %5 = llvm.mlir.constant(1 : i32) : i32
            %6 = llvm.mlir.constant(true) : i1
            %7 = llvm.mlir.constant(0.000000e+00 : f32) : f32
            %8 = llvm.mlir.constant(0 : i32) : i32
            %9 = llvm.mlir.constant(0 : i8) : i8
            %10 = llvm.icmp "ne" %arg5, %9 : i8
            %11 = llvm.sext %8 : i32 to i64
            %12 = llvm.add %arg4, %11 : i64
            %13 = llvm.icmp "ult" %12, %arg1 : i64
            %14 = llvm.xor %13, %6 : i1
            %15 = llvm.and %10, %14 : i1
            scf.if %15 {
              %22 = llvm.load %arg13 atomic monotonic {alignment = 4 : i64} : !llvm.ptr -> i32
              %23 = llvm.icmp "eq" %22, %8 : i32
              %24 = scf.if %23 -> (i1) {
                %25 = llvm.cmpxchg %arg13, %8, %5 monotonic monotonic : !llvm.ptr, i32
                %26 = llvm.extractvalue %25[0] : !llvm.struct<(i32, i1)> 
                %27 = llvm.extractvalue %25[1] : !llvm.struct<(i32, i1)> 
                scf.yield %27 : i1
              } else {
                scf.yield %4 : i1
              }
              scf.if %24 {
                %25 = llvm.getelementptr %arg13[4] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %8, %25 {alignment = 4 : i64} : i32, !llvm.ptr
                %26 = llvm.getelementptr %arg13[8] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %5, %26 {alignment = 4 : i64} : i32, !llvm.ptr
                %27 = llvm.getelementptr %arg13[12] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %3, %27 {alignment = 4 : i64} : i32, !llvm.ptr
                %28 = llvm.getelementptr %arg13[16] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %8, %28 {alignment = 4 : i64} : i32, !llvm.ptr
                %29 = llvm.getelementptr %arg13[20] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg6, %29 {alignment = 4 : i64} : i32, !llvm.ptr
                %30 = llvm.getelementptr %arg13[24] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg7, %30 {alignment = 4 : i64} : i32, !llvm.ptr
                %31 = llvm.getelementptr %arg13[28] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg8, %31 {alignment = 4 : i64} : i32, !llvm.ptr
                %32 = llvm.getelementptr %arg13[32] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %12, %32 {alignment = 8 : i64} : i64, !llvm.ptr
                %33 = llvm.getelementptr %arg13[40] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg1, %33 {alignment = 8 : i64} : i64, !llvm.ptr
                llvm.store %2, %arg13 atomic release {alignment = 4 : i64} : i32, !llvm.ptr
              }
            }
            %16 = llvm.and %10, %13 : i1
            %17 = scf.if %16 -> (f32) {
              %22 = llvm.getelementptr %arg0[%12] : (!llvm.ptr, i64) -> !llvm.ptr, i32
              %23 = llvm.load %22 {alignment = 4 : i64} : !llvm.ptr -> f32
              scf.yield %23 : f32
            } else {
              scf.yield %7 : f32
            }
            %18 = llvm.sext %8 : i32 to i64
            %19 = llvm.add %1, %18 : i64
            %20 = llvm.icmp "ult" %19, %arg3 : i64
            %21 = llvm.xor %20, %6 : i1
            scf.if %21 {
              %22 = llvm.load %arg13 atomic monotonic {alignment = 4 : i64} : !llvm.ptr -> i32
              %23 = llvm.icmp "eq" %22, %8 : i32
              %24 = scf.if %23 -> (i1) {
                %25 = llvm.cmpxchg %arg13, %8, %5 monotonic monotonic : !llvm.ptr, i32
                %26 = llvm.extractvalue %25[0] : !llvm.struct<(i32, i1)> 
                %27 = llvm.extractvalue %25[1] : !llvm.struct<(i32, i1)> 
                scf.yield %27 : i1
              } else {
                scf.yield %4 : i1
              }
              scf.if %24 {
                %25 = llvm.getelementptr %arg13[4] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %5, %25 {alignment = 4 : i64} : i32, !llvm.ptr
                %26 = llvm.getelementptr %arg13[8] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %5, %26 {alignment = 4 : i64} : i32, !llvm.ptr
                %27 = llvm.getelementptr %arg13[12] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %0, %27 {alignment = 4 : i64} : i32, !llvm.ptr
                %28 = llvm.getelementptr %arg13[16] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %5, %28 {alignment = 4 : i64} : i32, !llvm.ptr
                %29 = llvm.getelementptr %arg13[20] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg6, %29 {alignment = 4 : i64} : i32, !llvm.ptr
                %30 = llvm.getelementptr %arg13[24] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg7, %30 {alignment = 4 : i64} : i32, !llvm.ptr
                %31 = llvm.getelementptr %arg13[28] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg8, %31 {alignment = 4 : i64} : i32, !llvm.ptr
                %32 = llvm.getelementptr %arg13[32] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %19, %32 {alignment = 8 : i64} : i64, !llvm.ptr
                %33 = llvm.getelementptr %arg13[40] : (!llvm.ptr) -> !llvm.ptr, i8
                llvm.store %arg3, %33 {alignment = 8 : i64} : i64, !llvm.ptr
                llvm.store %2, %arg13 atomic release {alignment = 4 : i64} : i32, !llvm.ptr
              }
            }
            scf.if %20 {
              %22 = llvm.getelementptr %arg2[%19] : (!llvm.ptr, i64) -> !llvm.ptr, i32
              llvm.store %17, %22 {alignment = 4 : i64} : f32, !llvm.ptr
            }
            llvm.return
          }
          llvm.func @entry(%arg0: !llvm.ptr, %arg1: i32, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: !llvm.ptr, %arg6: !llvm.ptr) {
            %0 = llvm.mlir.constant(1 : i64) : i64
            %1 = llvm.load %arg0 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
            %2 = llvm.getelementptr %arg0[8] : (!llvm.ptr) -> !llvm.ptr, i8
            %3 = llvm.load %2 {alignment = 8 : i64} : !llvm.ptr -> i64
            %4 = llvm.getelementptr %arg0[16] : (!llvm.ptr) -> !llvm.ptr, i8
            %5 = llvm.load %4 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
            %6 = llvm.getelementptr %arg0[24] : (!llvm.ptr) -> !llvm.ptr, i8
            %7 = llvm.load %6 {alignment = 8 : i64} : !llvm.ptr -> i64
            %8 = llvm.getelementptr %arg0[32] : (!llvm.ptr) -> !llvm.ptr, i8
            %9 = llvm.load %8 {alignment = 8 : i64} : !llvm.ptr -> i64
            %10 = llvm.getelementptr %arg0[40] : (!llvm.ptr) -> !llvm.ptr, i8
            %11 = llvm.load %10 {alignment = 8 : i64} : !llvm.ptr -> i8
            %12 = llvm.getelementptr %arg0[48] : (!llvm.ptr) -> !llvm.ptr, i8
            %13 = llvm.load %12 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
            %14 = llvm.load %arg5 {alignment = 4 : i64} : !llvm.ptr -> i32
            %15 = llvm.getelementptr %arg5[4] : (!llvm.ptr) -> !llvm.ptr, i8
            %16 = llvm.load %15 {alignment = 4 : i64} : !llvm.ptr -> i32
            %17 = llvm.getelementptr %arg5[8] : (!llvm.ptr) -> !llvm.ptr, i8
            %18 = llvm.load %17 {alignment = 4 : i64} : !llvm.ptr -> i32
            %19 = llvm.zext %arg1 : i32 to i64
            %20 = llvm.zext %arg2 : i32 to i64
            scf.for %arg7 = %19 to %20 step %0  : i64 {
              %21 = llvm.trunc %arg7 : i64 to i32
              llvm.call @entry_program(%1, %3, %5, %7, %9, %11, %21, %arg3, %arg4, %14, %16, %18, %arg6, %13) : (!llvm.ptr, i64, !llvm.ptr, i64, i64, i8, i32, i32, i32, i32, i32, i32, !llvm.ptr, !llvm.ptr) -> ()
            }
            llvm.return
          }
        }
    "#]].assert_eq(&cpu(PICK, true));
}

#[test]
fn a_host_thread_that_does_not_report() {
    expect![[r#"
        module {
          llvm.func internal @entry_program(%arg0: !llvm.ptr {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: !llvm.ptr {llvm.noalias}, %arg3: i64, %arg4: i64, %arg5: i8, %arg6: i32, %arg7: i32, %arg8: i32, %arg9: i32, %arg10: i32, %arg11: i32, %arg12: !llvm.ptr {llvm.noalias}) {
            %0 = llvm.mlir.constant(0 : i64) : i64
            %1 = llvm.mlir.constant(0.000000e+00 : f32) : f32
            %2 = llvm.mlir.constant(0 : i32) : i32
            %3 = llvm.mlir.constant(0 : i8) : i8
            %4 = llvm.icmp "ne" %arg5, %3 : i8
            %5 = llvm.sext %2 : i32 to i64
            %6 = llvm.add %arg4, %5 : i64
            %7 = llvm.icmp "ult" %6, %arg1 : i64
            %8 = llvm.and %4, %7 : i1
            %9 = scf.if %8 -> (f32) {
              %13 = llvm.getelementptr %arg0[%6] : (!llvm.ptr, i64) -> !llvm.ptr, i32
              %14 = llvm.load %13 {alignment = 4 : i64} : !llvm.ptr -> f32
              scf.yield %14 : f32
            } else {
              scf.yield %1 : f32
            }
            %10 = llvm.sext %2 : i32 to i64
            %11 = llvm.add %0, %10 : i64
            %12 = llvm.icmp "ult" %11, %arg3 : i64
            scf.if %12 {
              %13 = llvm.getelementptr %arg2[%11] : (!llvm.ptr, i64) -> !llvm.ptr, i32
              llvm.store %9, %13 {alignment = 4 : i64} : f32, !llvm.ptr
            }
            llvm.return
          }
          llvm.func @entry(%arg0: !llvm.ptr, %arg1: i32, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: !llvm.ptr, %arg6: !llvm.ptr) {
            %0 = llvm.mlir.constant(1 : i64) : i64
            %1 = llvm.load %arg0 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
            %2 = llvm.getelementptr %arg0[8] : (!llvm.ptr) -> !llvm.ptr, i8
            %3 = llvm.load %2 {alignment = 8 : i64} : !llvm.ptr -> i64
            %4 = llvm.getelementptr %arg0[16] : (!llvm.ptr) -> !llvm.ptr, i8
            %5 = llvm.load %4 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
            %6 = llvm.getelementptr %arg0[24] : (!llvm.ptr) -> !llvm.ptr, i8
            %7 = llvm.load %6 {alignment = 8 : i64} : !llvm.ptr -> i64
            %8 = llvm.getelementptr %arg0[32] : (!llvm.ptr) -> !llvm.ptr, i8
            %9 = llvm.load %8 {alignment = 8 : i64} : !llvm.ptr -> i64
            %10 = llvm.getelementptr %arg0[40] : (!llvm.ptr) -> !llvm.ptr, i8
            %11 = llvm.load %10 {alignment = 8 : i64} : !llvm.ptr -> i8
            %12 = llvm.load %arg5 {alignment = 4 : i64} : !llvm.ptr -> i32
            %13 = llvm.getelementptr %arg5[4] : (!llvm.ptr) -> !llvm.ptr, i8
            %14 = llvm.load %13 {alignment = 4 : i64} : !llvm.ptr -> i32
            %15 = llvm.getelementptr %arg5[8] : (!llvm.ptr) -> !llvm.ptr, i8
            %16 = llvm.load %15 {alignment = 4 : i64} : !llvm.ptr -> i32
            %17 = llvm.zext %arg1 : i32 to i64
            %18 = llvm.zext %arg2 : i32 to i64
            scf.for %arg7 = %17 to %18 step %0  : i64 {
              %19 = llvm.trunc %arg7 : i64 to i32
              llvm.call @entry_program(%1, %3, %5, %7, %9, %11, %19, %arg3, %arg4, %12, %14, %16, %arg6) : (!llvm.ptr, i64, !llvm.ptr, i64, i64, i8, i32, i32, i32, i32, i32, i32, !llvm.ptr) -> ()
            }
            llvm.return
          }
        }
    "#]].assert_eq(&cpu(PICK, false));
}

#[test]
fn sites_depend_on_the_access_s_position_in_its_kernel() {
    let sites = |source: &str| {
        let (mut func, _) = first(source);
        func.reports = true;
        report::sites(&func)
    };
    assert_eq!(sites(SHIFTED), "2:28 2:9 ");
    assert_eq!(sites(&format!("\n\n{SHIFTED}")), sites(SHIFTED));
    assert_eq!(sites(&SHIFTED.replace("let i", "\nlet i")), "3:28 3:9 ");
    // An assertion is reported whether or not accesses are.
    let (checked, _) = first(&SHIFTED.replace("let i", "tl::device_assert(n > 0); let i"));
    assert_eq!(report::sites(&checked), "1:9 ");
}

//! The code that reports an access outside its slice, beside the code without it.

use expect_test::expect;

use super::first;
use crate::analysis::split::{Trust, split};
use crate::body::bodies;
use crate::mlir::{Machine, Session, Vectors, host, report};
use crate::target::nvptx::{self, Arch, Stages};

/// The MLIR of a kernel's general body.
fn gpu(source: &str, reports: bool) -> String {
    let (mut func, requests) = first(source);
    func.reports = reports;
    let bodies = bodies(&func, requests).expect("bodies that fit");
    let general = bodies.last().expect("a general body");
    assert_eq!(general.reports(), reports);
    let mut stages = Stages::default();
    nvptx::emit(&Session::new(), &[("entry".into(), general)], &[Arch::SM_80], &mut stages).expect("PTX");
    stages.mlir
}

/// The MLIR of one program on the host.
fn processor(source: &str, reports: bool) -> String {
    let (mut func, _) = first(source);
    func.reports = reports;
    split(&mut func, Trust::Nothing);
    let plan = host::Plan::new(func);
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
fn one_comparison_for_all_of_a_gpu_thread_s_elements() {
    expect![[r#"
        module {
          llvm.mlir.global external @shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
          llvm.mlir.global external @fuse_report(dense<0> : tensor<6xi64>) {addr_space = 1 : i32, alignment = 8 : i64} : !llvm.array<6 x i64>
          llvm.func @entry(%arg0: !llvm.ptr<1> {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: !llvm.ptr<1> {llvm.noalias}, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128>} {
            %0 = llvm.mlir.constant(9 : i32) : i32
            %1 = llvm.mlir.constant(28 : i32) : i32
            %2 = llvm.mlir.constant(2 : i32) : i32
            %3 = llvm.mlir.constant(false) : i1
            %4 = llvm.mlir.constant(1 : i32) : i32
            %5 = llvm.mlir.constant(2147483647 : i64) : i64
            %6 = llvm.mlir.constant(-2147483648 : i64) : i64
            %7 = llvm.mlir.constant(0 : i64) : i64
            %8 = llvm.mlir.constant(128 : i32) : i32
            %9 = llvm.mlir.constant(3 : i32) : i32
            %10 = llvm.mlir.constant(0 : i32) : i32
            %11 = llvm.mlir.constant(5 : i32) : i32
            %12 = llvm.mlir.constant(31 : i32) : i32
            %13 = nvvm.read.ptx.sreg.tid.x : i32
            %14 = llvm.and %13, %12 : i32
            %15 = llvm.lshr %13, %11 : i32
            %16 = nvvm.read.ptx.sreg.ctaid.x : i32
            %17 = nvvm.read.ptx.sreg.ctaid.y : i32
            %18 = nvvm.read.ptx.sreg.ctaid.z : i32
            %19 = llvm.inline_asm asm_dialect = att "createpolicy.fractional.L2::evict_last.b64 $0;", "=l"  : () -> i64
            %20 = llvm.and %14, %12 : i32
            %21 = llvm.shl %20, %10 : i32
            %22 = llvm.add %10, %21 {overflowFlags = #llvm.overflow<nsw>} : i32
            %23 = llvm.and %15, %9 : i32
            %24 = llvm.shl %23, %11 : i32
            %25 = llvm.add %22, %24 {overflowFlags = #llvm.overflow<nsw>} : i32
            %26 = llvm.add %25, %8 {overflowFlags = #llvm.overflow<nsw>} : i32
            %27 = llvm.add %25, %8 {overflowFlags = #llvm.overflow<nsw>} : i32
            %28 = llvm.icmp "slt" %25, %arg4 : i32
            %29 = llvm.icmp "slt" %27, %arg4 : i32
            %30 = llvm.sext %arg4 : i32 to i64
            %31 = llvm.getelementptr %arg0[%30] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %32 = llvm.sub %arg1, %30 : i64
            %33 = llvm.intr.smin(%32, %5) : (i64, i64) -> i64
            %34 = llvm.intr.smax(%33, %6) : (i64, i64) -> i64
            %35 = llvm.trunc %34 : i64 to i32
            %36 = llvm.sub %7, %30 : i64
            %37 = llvm.intr.smin(%36, %5) : (i64, i64) -> i64
            %38 = llvm.intr.smax(%37, %6) : (i64, i64) -> i64
            %39 = llvm.trunc %38 : i64 to i32
            %40 = llvm.sext %25 : i32 to i64
            %41 = llvm.getelementptr %31[%40] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %42 = llvm.icmp "slt" %25, %35 : i32
            %43 = llvm.icmp "sge" %25, %39 : i32
            %44 = llvm.and %43, %42 : i1
            %45 = llvm.sub %25, %39 : i32
            %46 = llvm.select %28, %45, %10 : i1, i32
            %47 = llvm.and %28, %44 : i1
            %48 = llvm.getelementptr %41[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %49 = llvm.icmp "slt" %27, %35 : i32
            %50 = llvm.icmp "sge" %27, %39 : i32
            %51 = llvm.and %50, %49 : i1
            %52 = llvm.sub %27, %39 : i32
            %53 = llvm.select %29, %52, %10 : i1, i32
            %54 = llvm.intr.umax(%46, %53) : (i32, i32) -> i32
            %55 = llvm.or %28, %29 : i1
            %56 = llvm.and %29, %51 : i1
            %57 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.nc.b32 $0, [$1];", "=r,l,b,0" %41, %47, %10 : (!llvm.ptr<1>, i1, i32) -> i32
            %58 = llvm.bitcast %57 : i32 to f32
            %59 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.nc.b32 $0, [$1];", "=r,l,b,0" %48, %56, %10 : (!llvm.ptr<1>, i1, i32) -> i32
            %60 = llvm.bitcast %59 : i32 to f32
            %61 = llvm.sub %35, %39 : i32
            %62 = llvm.icmp "uge" %54, %61 : i32
            %63 = llvm.and %55, %62 : i1
            scf.if %63 {
              %86 = llvm.add %54, %39 : i32
              %87 = llvm.sext %86 : i32 to i64
              %88 = llvm.add %30, %87 : i64
              %89 = llvm.mlir.addressof @fuse_report : !llvm.ptr<1>
              %90 = llvm.load %89 atomic monotonic {alignment = 4 : i64} : !llvm.ptr<1> -> i32
              %91 = llvm.icmp "eq" %90, %10 : i32
              %92 = scf.if %91 -> (i1) {
                %93 = llvm.cmpxchg %89, %10, %4 monotonic monotonic : !llvm.ptr<1>, i32
                %94 = llvm.extractvalue %93[0] : !llvm.struct<(i32, i1)> 
                %95 = llvm.extractvalue %93[1] : !llvm.struct<(i32, i1)> 
                scf.yield %95 : i1
              } else {
                scf.yield %3 : i1
              }
              scf.if %92 {
                %93 = llvm.getelementptr %89[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %10, %93 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %94 = llvm.getelementptr %89[8] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %2, %94 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %95 = llvm.getelementptr %89[12] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %1, %95 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %96 = llvm.getelementptr %89[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %10, %96 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %97 = llvm.getelementptr %89[20] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %16, %97 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %98 = llvm.getelementptr %89[24] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %17, %98 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %99 = llvm.getelementptr %89[28] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %18, %99 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %100 = llvm.getelementptr %89[32] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %88, %100 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                %101 = llvm.getelementptr %89[40] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %arg1, %101 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                llvm.store %2, %89 atomic release {alignment = 4 : i64} : i32, !llvm.ptr<1>
              }
            }
            %64 = llvm.icmp "slt" %25, %9 : i32
            %65 = llvm.icmp "slt" %27, %9 : i32
            %66 = llvm.sub %arg3, %7 : i64
            %67 = llvm.intr.smin(%66, %5) : (i64, i64) -> i64
            %68 = llvm.intr.smax(%67, %6) : (i64, i64) -> i64
            %69 = llvm.trunc %68 : i64 to i32
            %70 = llvm.sext %25 : i32 to i64
            %71 = llvm.getelementptr %arg2[%70] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %72 = llvm.icmp "slt" %25, %69 : i32
            %73 = llvm.select %64, %25, %10 : i1, i32
            %74 = llvm.and %64, %72 : i1
            %75 = llvm.getelementptr %71[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %76 = llvm.icmp "slt" %27, %69 : i32
            %77 = llvm.select %65, %27, %10 : i1, i32
            %78 = llvm.intr.umax(%73, %77) : (i32, i32) -> i32
            %79 = llvm.or %64, %65 : i1
            %80 = llvm.and %65, %76 : i1
            %81 = llvm.bitcast %58 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %71, %74, %81 : (!llvm.ptr<1>, i1, i32) -> ()
            %82 = llvm.bitcast %60 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %75, %80, %82 : (!llvm.ptr<1>, i1, i32) -> ()
            %83 = llvm.intr.smax(%69, %10) : (i32, i32) -> i32
            %84 = llvm.icmp "uge" %78, %83 : i32
            %85 = llvm.and %79, %84 : i1
            scf.if %85 {
              %86 = llvm.sext %78 : i32 to i64
              %87 = llvm.mlir.addressof @fuse_report : !llvm.ptr<1>
              %88 = llvm.load %87 atomic monotonic {alignment = 4 : i64} : !llvm.ptr<1> -> i32
              %89 = llvm.icmp "eq" %88, %10 : i32
              %90 = scf.if %89 -> (i1) {
                %91 = llvm.cmpxchg %87, %10, %4 monotonic monotonic : !llvm.ptr<1>, i32
                %92 = llvm.extractvalue %91[0] : !llvm.struct<(i32, i1)> 
                %93 = llvm.extractvalue %91[1] : !llvm.struct<(i32, i1)> 
                scf.yield %93 : i1
              } else {
                scf.yield %3 : i1
              }
              scf.if %90 {
                %91 = llvm.getelementptr %87[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %4, %91 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %92 = llvm.getelementptr %87[8] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %2, %92 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %93 = llvm.getelementptr %87[12] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %0, %93 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %94 = llvm.getelementptr %87[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %4, %94 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %95 = llvm.getelementptr %87[20] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %16, %95 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %96 = llvm.getelementptr %87[24] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %17, %96 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %97 = llvm.getelementptr %87[28] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %18, %97 {alignment = 4 : i64} : i32, !llvm.ptr<1>
                %98 = llvm.getelementptr %87[32] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %86, %98 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                %99 = llvm.getelementptr %87[40] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
                llvm.store %arg3, %99 {alignment = 8 : i64} : i64, !llvm.ptr<1>
                llvm.store %2, %87 atomic release {alignment = 4 : i64} : i32, !llvm.ptr<1>
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
          llvm.func @entry(%arg0: !llvm.ptr<1> {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: !llvm.ptr<1> {llvm.noalias}, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128>} {
            %0 = llvm.mlir.constant(2147483647 : i64) : i64
            %1 = llvm.mlir.constant(-2147483648 : i64) : i64
            %2 = llvm.mlir.constant(0 : i64) : i64
            %3 = llvm.mlir.constant(128 : i32) : i32
            %4 = llvm.mlir.constant(3 : i32) : i32
            %5 = llvm.mlir.constant(0 : i32) : i32
            %6 = llvm.mlir.constant(5 : i32) : i32
            %7 = llvm.mlir.constant(31 : i32) : i32
            %8 = nvvm.read.ptx.sreg.tid.x : i32
            %9 = llvm.and %8, %7 : i32
            %10 = llvm.lshr %8, %6 : i32
            %11 = nvvm.read.ptx.sreg.ctaid.x : i32
            %12 = nvvm.read.ptx.sreg.ctaid.y : i32
            %13 = nvvm.read.ptx.sreg.ctaid.z : i32
            %14 = llvm.inline_asm asm_dialect = att "createpolicy.fractional.L2::evict_last.b64 $0;", "=l"  : () -> i64
            %15 = llvm.and %9, %7 : i32
            %16 = llvm.shl %15, %5 : i32
            %17 = llvm.add %5, %16 {overflowFlags = #llvm.overflow<nsw>} : i32
            %18 = llvm.and %10, %4 : i32
            %19 = llvm.shl %18, %6 : i32
            %20 = llvm.add %17, %19 {overflowFlags = #llvm.overflow<nsw>} : i32
            %21 = llvm.add %20, %3 {overflowFlags = #llvm.overflow<nsw>} : i32
            %22 = llvm.add %20, %3 {overflowFlags = #llvm.overflow<nsw>} : i32
            %23 = llvm.icmp "slt" %20, %arg4 : i32
            %24 = llvm.icmp "slt" %22, %arg4 : i32
            %25 = llvm.sext %arg4 : i32 to i64
            %26 = llvm.getelementptr %arg0[%25] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %27 = llvm.sub %arg1, %25 : i64
            %28 = llvm.intr.smin(%27, %0) : (i64, i64) -> i64
            %29 = llvm.intr.smax(%28, %1) : (i64, i64) -> i64
            %30 = llvm.trunc %29 : i64 to i32
            %31 = llvm.sub %2, %25 : i64
            %32 = llvm.intr.smin(%31, %0) : (i64, i64) -> i64
            %33 = llvm.intr.smax(%32, %1) : (i64, i64) -> i64
            %34 = llvm.trunc %33 : i64 to i32
            %35 = llvm.sext %20 : i32 to i64
            %36 = llvm.getelementptr %26[%35] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %37 = llvm.icmp "slt" %20, %30 : i32
            %38 = llvm.icmp "sge" %20, %34 : i32
            %39 = llvm.and %38, %37 : i1
            %40 = llvm.and %23, %39 : i1
            %41 = llvm.getelementptr %36[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %42 = llvm.icmp "slt" %22, %30 : i32
            %43 = llvm.icmp "sge" %22, %34 : i32
            %44 = llvm.and %43, %42 : i1
            %45 = llvm.and %24, %44 : i1
            %46 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.nc.b32 $0, [$1];", "=r,l,b,0" %36, %40, %5 : (!llvm.ptr<1>, i1, i32) -> i32
            %47 = llvm.bitcast %46 : i32 to f32
            %48 = llvm.inline_asm has_side_effects asm_dialect = att "@$2 ld.global.nc.b32 $0, [$1];", "=r,l,b,0" %41, %45, %5 : (!llvm.ptr<1>, i1, i32) -> i32
            %49 = llvm.bitcast %48 : i32 to f32
            %50 = llvm.icmp "slt" %20, %4 : i32
            %51 = llvm.icmp "slt" %22, %4 : i32
            %52 = llvm.sub %arg3, %2 : i64
            %53 = llvm.intr.smin(%52, %0) : (i64, i64) -> i64
            %54 = llvm.intr.smax(%53, %1) : (i64, i64) -> i64
            %55 = llvm.trunc %54 : i64 to i32
            %56 = llvm.sext %20 : i32 to i64
            %57 = llvm.getelementptr %arg2[%56] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
            %58 = llvm.icmp "slt" %20, %55 : i32
            %59 = llvm.and %50, %58 : i1
            %60 = llvm.getelementptr %57[512] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
            %61 = llvm.icmp "slt" %22, %55 : i32
            %62 = llvm.and %51, %61 : i1
            %63 = llvm.bitcast %47 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %57, %59, %63 : (!llvm.ptr<1>, i1, i32) -> ()
            %64 = llvm.bitcast %49 : f32 to i32
            llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %60, %62, %64 : (!llvm.ptr<1>, i1, i32) -> ()
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
    "#]].assert_eq(&processor(PICK, true));
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
    "#]].assert_eq(&processor(PICK, false));
}

#[test]
fn code_depends_on_where_an_access_stands_in_its_kernel() {
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

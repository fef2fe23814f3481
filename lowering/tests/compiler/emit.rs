//! The output of the emitters: MLIR for the GPU and for the CPU, and the PTX and assembly from it.

use expect_test::{Expect, expect};
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use super::{first, lines_with, ptx};
use lowering::backend::StageTexts;
use lowering::backend::host_asm::{CpuLevel, Family};
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit as cpu_emit;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::{Machine, Session, Vectors};

/// The aligned specialization of a kernel for the GPU: MLIR and PTX.
fn check_gpu(source: &str, expected: [Expect; 2]) {
    let (func, requests) = first(source);
    let specializations = specializations(&func, KernelRequests { programs: Some(1), ..requests })
        .expect("specializations that fit");
    assert_eq!(specializations[0].name, "aligned");
    let mut stages = StageTexts::default();
    let texts = nvptx::emit(
        &Session::new(),
        &[("entry".into(), &specializations[0])],
        &[Arch::SM_80],
        Some(&mut stages),
    );
    let (_, ptx) = texts.expect("PTX").remove(0);
    let [mlir, text] = expected;
    mlir.assert_eq(&stages.mlir);
    text.assert_eq(&instructions(&ptx));
}

/// A kernel for the CPU: MLIR and assembly.
fn check_host(source: &str, expected: [Expect; 2]) {
    let (mut func, requests) = first(source);
    legalize_index(
        &mut func,
        if requests.unchecked { BoundsPolicy::Unchecked } else { BoundsPolicy::Masked },
    );
    let plan = cpu_emit::CpuPlan::new(func);
    let session = Session::new();
    let mut module = session.module(Machine::Host(Vectors::Fused));
    plan.emit(&mut module, "entry");
    let built = module.finish().expect("valid MLIR");
    let texts =
        lowering::backend::host_asm::emit(&session, &plan, "entry", Family::X86_64).expect("assembly");
    let (_, v3) = texts.into_iter().find(|(level, _)| *level == CpuLevel::V3).expect("level v3");
    let [mlir, text] = expected;
    let built = built.text();
    mlir.assert_eq(built.split("  llvm.func @entry(").next().unwrap_or_default());
    text.assert_eq(&program(&v3));
}

/// The function that computes one program, without directives.
fn program(assembly: &str) -> String {
    let lines = assembly.lines().skip_while(|line| *line != "entry_v3_program:");
    let own = lines.take_while(|line| !line.contains("func_end"));
    own.filter(|line| !line.starts_with("\t.")).map(|line| format!("{line}\n")).collect()
}

/// PTX without comments, blank lines, and the lists of parameters and registers, which the instructions imply.
fn instructions(ptx: &str) -> String {
    let noise = |line: &str| line.is_empty() || ["//", ".param", ".reg "].iter().any(|s| line.starts_with(s));
    ptx.lines().filter(|line| !noise(line.trim())).map(|line| format!("{line}\n")).collect()
}

const COPY: &str = "#[fuse_kernel]
    fn copy(x: &[f32], out: &mut [f32], n: i32) {
        let i = tl::program_id(0) * 64 + tl::arange(0, 64);
        tl::store(out + i, tl::load(x + i, i < n), i < n);
    }";

const ROW_SUM: &str = "#[fuse_kernel(num_warps = 2)]
    fn row_sum(x: &[f32], out: &mut [f32]) {
        let row = tl::program_id(0);
        let x = tl::load(x + row * 64 + tl::arange(0, 64));
        tl::store(out + row, tl::sum(x, 0));
    }";

#[test]
fn a_masked_copy_on_the_gpu() {
    check_gpu(
        COPY,
        [
            expect![[r#"
                module {
                  llvm.mlir.global external @shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
                  llvm.func @entry(%arg0: !llvm.ptr<1>, %arg1: i64, %arg2: !llvm.ptr<1>, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 32>} {
                    %0 = llvm.mlir.constant(64 : i64) : i64
                    %1 = llvm.mlir.constant(1 : i32) : i32
                    %2 = llvm.mlir.constant(64 : i32) : i32
                    %3 = llvm.mlir.constant(0 : i32) : i32
                    %4 = llvm.mlir.constant(5 : i32) : i32
                    %5 = llvm.mlir.constant(31 : i32) : i32
                    %6 = nvvm.read.ptx.sreg.tid.x : i32
                    %7 = llvm.and %6, %5 : i32
                    %8 = llvm.lshr %6, %4 : i32
                    %9 = nvvm.read.ptx.sreg.ctaid.x : i32
                    %10 = nvvm.read.ptx.sreg.ctaid.y : i32
                    %11 = nvvm.read.ptx.sreg.ctaid.z : i32
                    %12 = llvm.inline_asm asm_dialect = att "createpolicy.fractional.L2::evict_last.b64 $0;", "=l"  : () -> i64
                    %13 = llvm.mul %9, %2 : i32
                    %14 = llvm.and %7, %5 : i32
                    %15 = llvm.shl %14, %1 : i32
                    %16 = llvm.add %3, %15 {overflowFlags = #llvm.overflow<nsw>} : i32
                    %17 = llvm.add %16, %1 {overflowFlags = #llvm.overflow<nsw>} : i32
                    %18 = llvm.add %16, %1 {overflowFlags = #llvm.overflow<nsw>} : i32
                    %19 = llvm.add %13, %16 : i32
                    %20 = llvm.add %13, %18 : i32
                    %21 = llvm.icmp "slt" %19, %arg4 : i32
                    %22 = llvm.sext %9 : i32 to i64
                    %23 = llvm.mul %22, %0 : i64
                    llvm.inline_asm has_side_effects asm_dialect = att "griddepcontrol.wait;", "~{memory}"  : () -> ()
                    %24 = llvm.getelementptr %arg0[%23] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %25 = llvm.sext %16 : i32 to i64
                    %26 = llvm.getelementptr %24[%25] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %27 = llvm.inline_asm has_side_effects asm_dialect = att "@$3 ld.global.v2.b32 {$0, $1}, [$2];", "=r,=r,l,b,0,1" %26, %21, %3, %3 : (!llvm.ptr<1>, i1, i32, i32) -> !llvm.struct<(i32, i32)>
                    %28 = llvm.extractvalue %27[0] : !llvm.struct<(i32, i32)> 
                    %29 = llvm.extractvalue %27[1] : !llvm.struct<(i32, i32)> 
                    %30 = llvm.bitcast %28 : i32 to f32
                    %31 = llvm.bitcast %29 : i32 to f32
                    %32 = llvm.getelementptr %arg2[%23] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %33 = llvm.sext %16 : i32 to i64
                    %34 = llvm.getelementptr %32[%33] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %35 = llvm.bitcast %30 : f32 to i32
                    %36 = llvm.bitcast %31 : f32 to i32
                    llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.v2.b32 [$0], {$2, $3};", "l,b,r,r" %34, %21, %35, %36 : (!llvm.ptr<1>, i1, i32, i32) -> ()
                    llvm.return
                  }
                }
            "#]],
            expect![[r#"
                .version 7.0
                .target sm_80
                .address_size 64
                .visible .entry entry(
                )
                .reqntid 32
                {
                	ld.param.b64 	%rd3, [entry_param_0];
                	mov.u32 	%r3, %tid.x;
                	ld.param.b64 	%rd4, [entry_param_2];
                	mov.u32 	%r4, %ctaid.x;
                	shl.b32 	%r5, %r4, 6;
                	ld.param.b32 	%r6, [entry_param_4];
                	shl.b32 	%r7, %r3, 1;
                	and.b32 	%r8, %r7, 62;
                	or.b32 	%r9, %r5, %r8;
                	setp.lt.s32 	%p1, %r9, %r6;
                	mul.wide.u32 	%rd5, %r4, 256;
                	add.s64 	%rd6, %rd3, %rd5;
                	mul.wide.u32 	%rd7, %r8, 4;
                	add.s64 	%rd1, %rd6, %rd7;
                	mov.b32 	%r1, 0;
                	mov.b32 	%r2, %r1;
                	@%p1 ld.global.v2.b32 {%r1, %r2}, [%rd1];
                	add.s64 	%rd8, %rd4, %rd5;
                	add.s64 	%rd2, %rd8, %rd7;
                	@%p1 st.global.v2.b32 [%rd2], {%r1, %r2};
                	ret;
                }
            "#]],
        ],
    );
}

#[test]
fn a_row_sum_over_two_warps_on_the_gpu() {
    check_gpu(
        ROW_SUM,
        [
            expect![[r#"
                module {
                  llvm.mlir.global external @shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
                  llvm.func @entry(%arg0: !llvm.ptr<1>, %arg1: i64, %arg2: !llvm.ptr<1>, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 64>} {
                    %0 = llvm.mlir.constant(8 : i32) : i32
                    %1 = llvm.mlir.constant(4 : i32) : i32
                    %2 = llvm.mlir.constant(2 : i32) : i32
                    %3 = llvm.mlir.constant(-1 : i32) : i32
                    %4 = llvm.mlir.constant(64 : i64) : i64
                    %5 = llvm.mlir.constant(1 : i32) : i32
                    %6 = llvm.mlir.constant(16 : i32) : i32
                    %7 = llvm.mlir.constant(0 : i32) : i32
                    %8 = llvm.mlir.constant(5 : i32) : i32
                    %9 = llvm.mlir.constant(31 : i32) : i32
                    %10 = nvvm.read.ptx.sreg.tid.x : i32
                    %11 = llvm.and %10, %9 : i32
                    %12 = llvm.lshr %10, %8 : i32
                    %13 = nvvm.read.ptx.sreg.ctaid.x : i32
                    %14 = nvvm.read.ptx.sreg.ctaid.y : i32
                    %15 = nvvm.read.ptx.sreg.ctaid.z : i32
                    %16 = llvm.inline_asm asm_dialect = att "createpolicy.fractional.L2::evict_last.b64 $0;", "=l"  : () -> i64
                    %17 = llvm.mlir.addressof @shared : !llvm.ptr<3>
                    %18 = llvm.mul %7, %6 : i32
                    %19 = llvm.and %11, %9 : i32
                    %20 = llvm.shl %19, %7 : i32
                    %21 = llvm.add %7, %20 {overflowFlags = #llvm.overflow<nsw>} : i32
                    %22 = llvm.and %12, %5 : i32
                    %23 = llvm.shl %22, %8 : i32
                    %24 = llvm.add %21, %23 {overflowFlags = #llvm.overflow<nsw>} : i32
                    %25 = llvm.sext %13 : i32 to i64
                    %26 = llvm.mul %25, %4 : i64
                    llvm.inline_asm has_side_effects asm_dialect = att "griddepcontrol.wait;", "~{memory}"  : () -> ()
                    %27 = llvm.getelementptr %arg0[%26] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %28 = llvm.sext %24 : i32 to i64
                    %29 = llvm.getelementptr %27[%28] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %30 = llvm.load %29 {alignment = 4 : i64} : !llvm.ptr<1> -> i32
                    %31 = llvm.bitcast %30 : i32 to f32
                    %32 = llvm.bitcast %31 : f32 to i32
                    %33 = nvvm.shfl.sync  bfly %3, %32, %5, %9 : i32 -> i32
                    %34 = llvm.bitcast %33 : i32 to f32
                    %35 = llvm.fadd %31, %34 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : f32
                    %36 = llvm.bitcast %35 : f32 to i32
                    %37 = nvvm.shfl.sync  bfly %3, %36, %2, %9 : i32 -> i32
                    %38 = llvm.bitcast %37 : i32 to f32
                    %39 = llvm.fadd %35, %38 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : f32
                    %40 = llvm.bitcast %39 : f32 to i32
                    %41 = nvvm.shfl.sync  bfly %3, %40, %1, %9 : i32 -> i32
                    %42 = llvm.bitcast %41 : i32 to f32
                    %43 = llvm.fadd %39, %42 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : f32
                    %44 = llvm.bitcast %43 : f32 to i32
                    %45 = nvvm.shfl.sync  bfly %3, %44, %0, %9 : i32 -> i32
                    %46 = llvm.bitcast %45 : i32 to f32
                    %47 = llvm.fadd %43, %46 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : f32
                    %48 = llvm.bitcast %47 : f32 to i32
                    %49 = nvvm.shfl.sync  bfly %3, %48, %6, %9 : i32 -> i32
                    %50 = llvm.bitcast %49 : i32 to f32
                    %51 = llvm.fadd %47, %50 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : f32
                    %52 = llvm.lshr %12, %7 : i32
                    %53 = llvm.and %52, %5 : i32
                    %54 = llvm.shl %53, %7 : i32
                    %55 = llvm.or %7, %54 : i32
                    %56 = llvm.and %11, %9 : i32
                    %57 = llvm.icmp "eq" %56, %7 : i32
                    scf.if %57 {
                      %74 = llvm.mul %55, %1 : i32
                      %75 = llvm.add %7, %74 : i32
                      %76 = llvm.getelementptr %17[%75] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
                      %77 = llvm.bitcast %51 : f32 to i32
                      llvm.store %77, %76 {alignment = 4 : i64} : i32, !llvm.ptr<3>
                    }
                    nvvm.barrier
                    %58 = llvm.getelementptr %17[%7] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
                    %59 = llvm.load %58 {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
                    %60 = llvm.extractelement %59[%7 : i32] : vector<2xi32>
                    %61 = llvm.extractelement %59[%5 : i32] : vector<2xi32>
                    %62 = llvm.bitcast %60 : i32 to f32
                    %63 = llvm.bitcast %61 : i32 to f32
                    %64 = llvm.fadd %62, %63 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : f32
                    %65 = llvm.getelementptr %arg2[%25] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %66 = llvm.sext %7 : i32 to i64
                    %67 = llvm.getelementptr %65[%66] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
                    %68 = llvm.and %11, %9 : i32
                    %69 = llvm.icmp "eq" %68, %7 : i32
                    %70 = llvm.and %12, %5 : i32
                    %71 = llvm.icmp "eq" %70, %7 : i32
                    %72 = llvm.and %69, %71 : i1
                    %73 = llvm.bitcast %64 : f32 to i32
                    llvm.inline_asm has_side_effects asm_dialect = att "@$1 st.global.b32 [$0], $2;", "l,b,r" %67, %72, %73 : (!llvm.ptr<1>, i1, i32) -> ()
                    llvm.return
                  }
                }
            "#]],
            expect![[r#"
                .version 7.0
                .target sm_80
                .address_size 64
                .extern .shared .align 1024 .b8 shared[];
                .visible .entry entry(
                )
                .reqntid 64
                {
                	ld.param.b64 	%rd3, [entry_param_2];
                	ld.param.b64 	%rd4, [entry_param_0];
                	mov.u32 	%r4, %tid.x;
                	and.b32 	%r1, %r4, 31;
                	mov.u32 	%r5, %ctaid.x;
                	bfe.u32 	%r2, %r4, 5, 1;
                	and.b32 	%r6, %r4, 63;
                	cvt.u64.u32 	%rd1, %r5;
                	mul.wide.u32 	%rd5, %r5, 256;
                	add.s64 	%rd6, %rd4, %rd5;
                	mul.wide.u32 	%rd7, %r6, 4;
                	add.s64 	%rd8, %rd6, %rd7;
                	ld.global.b32 	%r7, [%rd8];
                	shfl.sync.bfly.b32 	%r8, %r7, 1, 31, -1;
                	add.f32 	%r9, %r7, %r8;
                	shfl.sync.bfly.b32 	%r10, %r9, 2, 31, -1;
                	add.f32 	%r11, %r9, %r10;
                	shfl.sync.bfly.b32 	%r12, %r11, 4, 31, -1;
                	add.f32 	%r13, %r11, %r12;
                	shfl.sync.bfly.b32 	%r14, %r13, 8, 31, -1;
                	add.f32 	%r15, %r13, %r14;
                	shfl.sync.bfly.b32 	%r16, %r15, 16, 31, -1;
                	setp.ne.b32 	%p1, %r1, 0;
                	@%p1 bra 	$L__BB0_2;
                	add.f32 	%r3, %r15, %r16;
                	mul.wide.u32 	%rd9, %r2, 4;
                	mov.b64 	%rd10, shared;
                	add.s64 	%rd2, %rd10, %rd9;
                	st.shared.b32 	[%rd2], %r3;
                $L__BB0_2:
                	bar.sync 	0;
                	ld.shared.v2.b32 	{%r18, %r19}, [shared];
                	add.f32 	%r17, %r18, %r19;
                	shl.b64 	%rd12, %rd1, 2;
                	add.s64 	%rd11, %rd3, %rd12;
                	or.b32 	%r20, %r1, %r2;
                	setp.eq.b32 	%p2, %r20, 0;
                	@%p2 st.global.b32 [%rd11], %r17;
                	ret;
                }
            "#]],
        ],
    );
}

/// Sixteen elements at a time, one by one where the mask or the end of the slice ends within them.
#[test]
fn a_masked_copy_on_the_host() {
    check_host(
        COPY,
        [
            expect![[r#"
                module {
                  llvm.func internal @entry_program(%arg0: !llvm.ptr {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: !llvm.ptr {llvm.noalias}, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32, %arg8: i32, %arg9: i32, %arg10: i32, %arg11: !llvm.ptr {llvm.noalias}) {
                    %0 = llvm.mlir.constant(dense<[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]> : vector<16xi32>) : vector<16xi32>
                    %1 = llvm.mlir.constant(1 : i32) : i32
                    %2 = llvm.mlir.constant(dense<[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]> : vector<16xi32>) : vector<16xi32>
                    %3 = llvm.mlir.constant(16 : i32) : i32
                    %4 = llvm.mlir.constant(15 : i64) : i64
                    %5 = llvm.mlir.constant(0 : i32) : i32
                    %6 = llvm.mlir.constant(dense<0.000000e+00> : vector<16xf32>) : vector<16xf32>
                    %7 = llvm.mlir.constant(16 : i64) : i64
                    %8 = llvm.mlir.constant(0 : i64) : i64
                    %9 = llvm.mlir.constant(-64 : i64) : i64
                    %10 = llvm.mlir.constant(64 : i64) : i64
                    %11 = llvm.sext %arg5 : i32 to i64
                    %12 = llvm.mul %11, %10 : i64
                    %13 = llvm.sext %arg4 : i32 to i64
                    %14 = llvm.sub %13, %12 : i64
                    %15 = llvm.intr.smax(%14, %9) : (i64, i64) -> i64
                    %16 = llvm.intr.smin(%15, %10) : (i64, i64) -> i64
                    %17 = llvm.trunc %16 : i64 to i32
                    scf.for %arg12 = %8 to %10 step %7  : i64 {
                      %18 = llvm.trunc %arg12 : i64 to i32
                      %19 = llvm.add %18, %5 : i32
                      %20 = llvm.sext %19 : i32 to i64
                      %21 = llvm.add %12, %20 : i64
                      %22 = llvm.add %arg12, %4 : i64
                      %23 = llvm.trunc %22 : i64 to i32
                      %24 = llvm.add %23, %5 : i32
                      %25 = llvm.icmp "slt" %24, %17 : i32
                      %26 = llvm.sub %arg1, %7 : i64
                      %27 = llvm.icmp "sge" %21, %8 : i64
                      %28 = llvm.icmp "sle" %21, %26 : i64
                      %29 = llvm.and %27, %28 : i1
                      %30 = llvm.and %25, %29 : i1
                      %31 = scf.if %30 -> (vector<16xf32>) {
                        %43 = llvm.getelementptr %arg0[%21] : (!llvm.ptr, i64) -> !llvm.ptr, i32
                        %44 = llvm.load %43 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
                        scf.yield %44 : vector<16xf32>
                      } else {
                        %43 = llvm.trunc %arg12 : i64 to i32
                        %44 = llvm.add %43, %5 : i32
                        %45 = llvm.mlir.poison : vector<16xi32>
                        %46 = llvm.insertelement %44, %45[%5 : i32] : vector<16xi32>
                        %47 = llvm.shufflevector %46, %46 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : vector<16xi32> 
                        %48 = llvm.add %47, %2 : vector<16xi32>
                        %49 = llvm.mlir.poison : vector<16xi32>
                        %50 = llvm.insertelement %17, %49[%5 : i32] : vector<16xi32>
                        %51 = llvm.shufflevector %50, %50 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : vector<16xi32> 
                        %52 = llvm.icmp "slt" %48, %51 : vector<16xi32>
                        %53 = llvm.zext %52 : vector<16xi1> to vector<16xi32>
                        %54 = "llvm.intr.vector.reduce.add"(%53) : (vector<16xi32>) -> i32
                        %55 = scf.for %arg13 = %5 to %54 step %1 iter_args(%arg14 = %6) -> (vector<16xf32>)  : i32 {
                          %56 = llvm.zext %arg13 : i32 to i64
                          %57 = llvm.add %21, %56 : i64
                          %58 = llvm.icmp "ult" %57, %arg1 : i64
                          %59 = scf.if %58 -> (vector<16xf32>) {
                            %60 = llvm.getelementptr %arg0[%57] : (!llvm.ptr, i64) -> !llvm.ptr, i32
                            %61 = llvm.load %60 {alignment = 4 : i64} : !llvm.ptr -> f32
                            %62 = llvm.insertelement %61, %arg14[%arg13 : i32] : vector<16xf32>
                            scf.yield %62 : vector<16xf32>
                          } else {
                            scf.yield %arg14 : vector<16xf32>
                          }
                          scf.yield %59 : vector<16xf32>
                        }
                        scf.yield %55 : vector<16xf32>
                      }
                      %32 = llvm.sext %19 : i32 to i64
                      %33 = llvm.add %12, %32 : i64
                      %34 = llvm.add %arg12, %4 : i64
                      %35 = llvm.trunc %34 : i64 to i32
                      %36 = llvm.add %35, %5 : i32
                      %37 = llvm.icmp "slt" %36, %17 : i32
                      %38 = llvm.sub %arg3, %7 : i64
                      %39 = llvm.icmp "sge" %33, %8 : i64
                      %40 = llvm.icmp "sle" %33, %38 : i64
                      %41 = llvm.and %39, %40 : i1
                      %42 = llvm.and %37, %41 : i1
                      scf.if %42 {
                        %43 = llvm.getelementptr %arg2[%33] : (!llvm.ptr, i64) -> !llvm.ptr, i32
                        llvm.store %31, %43 {alignment = 4 : i64} : vector<16xf32>, !llvm.ptr
                      } else {
                        %43 = llvm.trunc %arg12 : i64 to i32
                        %44 = llvm.add %43, %5 : i32
                        %45 = llvm.mlir.poison : vector<16xi32>
                        %46 = llvm.insertelement %44, %45[%5 : i32] : vector<16xi32>
                        %47 = llvm.shufflevector %46, %46 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : vector<16xi32> 
                        %48 = llvm.add %47, %0 : vector<16xi32>
                        %49 = llvm.mlir.poison : vector<16xi32>
                        %50 = llvm.insertelement %17, %49[%5 : i32] : vector<16xi32>
                        %51 = llvm.shufflevector %50, %50 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] : vector<16xi32> 
                        %52 = llvm.icmp "slt" %48, %51 : vector<16xi32>
                        %53 = llvm.zext %52 : vector<16xi1> to vector<16xi32>
                        %54 = "llvm.intr.vector.reduce.add"(%53) : (vector<16xi32>) -> i32
                        scf.for %arg13 = %5 to %54 step %1  : i32 {
                          %55 = llvm.zext %arg13 : i32 to i64
                          %56 = llvm.add %33, %55 : i64
                          %57 = llvm.extractelement %31[%arg13 : i32] : vector<16xf32>
                          %58 = llvm.icmp "ult" %56, %arg3 : i64
                          scf.if %58 {
                            %59 = llvm.getelementptr %arg2[%56] : (!llvm.ptr, i64) -> !llvm.ptr, i32
                            llvm.store %57, %59 {alignment = 4 : i64} : f32, !llvm.ptr
                          }
                        }
                      }
                    }
                    llvm.return
                  }
            "#]],
            expect![[r#"
                entry_v3_program:
                	pushq	%rbp
                	movq	%rsp, %rbp
                	pushq	%r15
                	pushq	%r14
                	pushq	%r13
                	pushq	%r12
                	pushq	%rbx
                	andq	$-32, %rsp
                	subq	$192, %rsp
                	movq	%rdx, %r11
                	movslq	%r9d, %rax
                	movq	%rax, %rdx
                	shlq	$6, %rdx
                	movslq	%r8d, %r8
                	subq	%rdx, %r8
                	cmpq	$-63, %r8
                	movq	$-64, %r10
                	cmovgeq	%r8, %r10
                	cmpq	$64, %r10
                	movl	$64, %r8d
                	cmovlq	%r10, %r8
                	vmovd	%r8d, %xmm0
                	vpbroadcastd	%xmm0, %ymm0
                	shlq	$8, %rax
                	movq	%rdi, 24(%rsp)
                	leaq	(%rdi,%rax), %rbx
                	movq	%r11, %rdi
                	addq	%r11, %rax
                	xorl	%r14d, %r14d
                	vmovdqa	.Lentry_v3_CPI0_0(%rip), %ymm1
                	vmovdqa	.Lentry_v3_CPI0_1(%rip), %ymm2
                	movq	%rdx, %r15
                	jmp	.Lentry_v3_BB0_1
                .Lentry_v3_BB0_14:
                	vmovdqu	%ymm3, (%rdi,%r12,4)
                	vmovdqu	%ymm4, 32(%rdi,%r12,4)
                .Lentry_v3_BB0_20:
                	addq	$16, %r14
                	addq	$64, %rbx
                	addq	$16, %r15
                	addq	$64, %rax
                	cmpq	$64, %r14
                	jge	.Lentry_v3_BB0_21
                .Lentry_v3_BB0_1:
                	movslq	%r14d, %r13
                	leaq	(%rdx,%r13), %r12
                	orl	$15, %r13d
                	cmpl	%r8d, %r13d
                	jge	.Lentry_v3_BB0_5
                	testq	%r12, %r12
                	js	.Lentry_v3_BB0_5
                	leaq	-16(%rsi), %r9
                	cmpq	%r9, %r12
                	jg	.Lentry_v3_BB0_5
                	movq	24(%rsp), %r9
                	vmovdqu	(%r9,%r12,4), %ymm3
                	vmovdqu	32(%r9,%r12,4), %ymm4
                	jmp	.Lentry_v3_BB0_11
                .Lentry_v3_BB0_5:
                	vmovd	%r14d, %xmm3
                	vpbroadcastd	%xmm3, %ymm3
                	vpor	%ymm1, %ymm3, %ymm4
                	vpor	%ymm2, %ymm3, %ymm3
                	vpcmpgtd	%ymm3, %ymm0, %ymm3
                	vpcmpgtd	%ymm4, %ymm0, %ymm4
                	vpackssdw	%ymm3, %ymm4, %ymm3
                	vpmovmskb	%ymm3, %r10d
                	testl	%r10d, %r10d
                	je	.Lentry_v3_BB0_6
                	vextracti128	$1, %ymm3, %xmm4
                	vpacksswb	%xmm4, %xmm3, %xmm3
                	vpshufd	$216, %xmm3, %xmm3
                	vpmovmskb	%xmm3, %r10d
                	popcntl	%r10d, %r10d
                	vpxor	%xmm3, %xmm3, %xmm3
                	xorl	%r11d, %r11d
                	vpxor	%xmm4, %xmm4, %xmm4
                	jmp	.Lentry_v3_BB0_8
                .Lentry_v3_BB0_10:
                	incq	%r11
                	cmpl	%r10d, %r11d
                	jge	.Lentry_v3_BB0_11
                .Lentry_v3_BB0_8:
                	leaq	(%r15,%r11), %r9
                	cmpq	%rsi, %r9
                	jae	.Lentry_v3_BB0_10
                	vmovd	(%rbx,%r11,4), %xmm5
                	vmovdqa	%ymm3, 32(%rsp)
                	vmovdqa	%ymm4, 64(%rsp)
                	movl	%r11d, %r9d
                	andl	$15, %r9d
                	vmovd	%xmm5, 32(%rsp,%r9,4)
                	vmovdqa	32(%rsp), %ymm3
                	vmovdqa	64(%rsp), %ymm4
                	jmp	.Lentry_v3_BB0_10
                .Lentry_v3_BB0_6:
                	vpxor	%xmm3, %xmm3, %xmm3
                	vpxor	%xmm4, %xmm4, %xmm4
                .Lentry_v3_BB0_11:
                	cmpl	%r8d, %r13d
                	jge	.Lentry_v3_BB0_15
                	testq	%r12, %r12
                	js	.Lentry_v3_BB0_15
                	leaq	-16(%rcx), %r9
                	cmpq	%r9, %r12
                	jle	.Lentry_v3_BB0_14
                .Lentry_v3_BB0_15:
                	vmovd	%r14d, %xmm5
                	vpbroadcastd	%xmm5, %ymm5
                	vpor	%ymm1, %ymm5, %ymm6
                	vpor	%ymm2, %ymm5, %ymm5
                	vpcmpgtd	%ymm5, %ymm0, %ymm5
                	vpcmpgtd	%ymm6, %ymm0, %ymm6
                	vpackssdw	%ymm5, %ymm6, %ymm5
                	vpmovmskb	%ymm5, %r9d
                	testl	%r9d, %r9d
                	je	.Lentry_v3_BB0_20
                	vextracti128	$1, %ymm5, %xmm6
                	vpacksswb	%xmm6, %xmm5, %xmm5
                	vpshufd	$216, %xmm5, %xmm5
                	vpmovmskb	%xmm5, %r9d
                	xorl	%r10d, %r10d
                	popcntl	%r9d, %r10d
                	xorl	%r11d, %r11d
                	jmp	.Lentry_v3_BB0_17
                .Lentry_v3_BB0_19:
                	incq	%r11
                	cmpl	%r10d, %r11d
                	jge	.Lentry_v3_BB0_20
                .Lentry_v3_BB0_17:
                	leaq	(%r15,%r11), %r9
                	cmpq	%rcx, %r9
                	jae	.Lentry_v3_BB0_19
                	vmovdqa	%ymm3, 96(%rsp)
                	vmovdqa	%ymm4, 128(%rsp)
                	movl	%r11d, %r9d
                	andl	$15, %r9d
                	vmovd	96(%rsp,%r9,4), %xmm5
                	vmovd	%xmm5, (%rax,%r11,4)
                	jmp	.Lentry_v3_BB0_19
                .Lentry_v3_BB0_21:
                	leaq	-40(%rbp), %rsp
                	popq	%rbx
                	popq	%r12
                	popq	%r13
                	popq	%r14
                	popq	%r15
                	popq	%rbp
                	vzeroupper
                	retq
            "#]],
        ],
    );
}

/// Four vectors are added, then their lanes; no bounds checks.
#[test]
fn a_row_sum_on_the_host() {
    check_host(
        &ROW_SUM.replace("num_warps = 2", "unchecked"),
        [
            expect![[r#"
        module {
          llvm.func internal @entry_program(%arg0: !llvm.ptr {llvm.noalias, llvm.readonly}, %arg1: i64, %arg2: !llvm.ptr {llvm.noalias}, %arg3: i64, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i32, %arg8: i32, %arg9: i32, %arg10: !llvm.ptr {llvm.noalias}) {
            %0 = llvm.mlir.constant(3 : i64) : i64
            %1 = llvm.mlir.constant(2 : i64) : i64
            %2 = llvm.mlir.constant(1 : i64) : i64
            %3 = llvm.mlir.constant(0 : i32) : i32
            %4 = llvm.mlir.constant(dense<0.000000e+00> : vector<16xf32>) : vector<16xf32>
            %5 = llvm.mlir.constant(16 : i64) : i64
            %6 = llvm.mlir.constant(4 : i64) : i64
            %7 = llvm.mlir.constant(0 : i64) : i64
            %8 = llvm.mlir.constant(64 : i64) : i64
            %9 = llvm.sext %arg4 : i32 to i64
            %10 = llvm.mul %9, %8 : i64
            %11 = llvm.mul %7, %5 : i64
            %12 = llvm.trunc %11 : i64 to i32
            %13 = llvm.add %12, %3 : i32
            %14 = llvm.sext %13 : i32 to i64
            %15 = llvm.add %10, %14 : i64
            %16 = llvm.getelementptr %arg0[%15] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            %17 = llvm.load %16 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
            %18 = llvm.mul %2, %5 : i64
            %19 = llvm.trunc %18 : i64 to i32
            %20 = llvm.add %19, %3 : i32
            %21 = llvm.sext %20 : i32 to i64
            %22 = llvm.add %10, %21 : i64
            %23 = llvm.getelementptr %arg0[%22] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            %24 = llvm.load %23 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
            %25 = llvm.mul %1, %5 : i64
            %26 = llvm.trunc %25 : i64 to i32
            %27 = llvm.add %26, %3 : i32
            %28 = llvm.sext %27 : i32 to i64
            %29 = llvm.add %10, %28 : i64
            %30 = llvm.getelementptr %arg0[%29] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            %31 = llvm.load %30 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
            %32 = llvm.mul %0, %5 : i64
            %33 = llvm.trunc %32 : i64 to i32
            %34 = llvm.add %33, %3 : i32
            %35 = llvm.sext %34 : i32 to i64
            %36 = llvm.add %10, %35 : i64
            %37 = llvm.getelementptr %arg0[%36] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            %38 = llvm.load %37 {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
            %39 = llvm.fadd %17, %24 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : vector<16xf32>
            %40 = llvm.fadd %31, %38 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : vector<16xf32>
            %41 = llvm.fadd %39, %40 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : vector<16xf32>
            %42 = llvm.shufflevector %41, %41 [0, 1, 2, 3, 4, 5, 6, 7] : vector<16xf32> 
            %43 = llvm.shufflevector %41, %41 [8, 9, 10, 11, 12, 13, 14, 15] : vector<16xf32> 
            %44 = llvm.fadd %42, %43 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : vector<8xf32>
            %45 = llvm.shufflevector %44, %44 [0, 1, 2, 3] : vector<8xf32> 
            %46 = llvm.shufflevector %44, %44 [4, 5, 6, 7] : vector<8xf32> 
            %47 = llvm.fadd %45, %46 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : vector<4xf32>
            %48 = llvm.shufflevector %47, %47 [0, 1] : vector<4xf32> 
            %49 = llvm.shufflevector %47, %47 [2, 3] : vector<4xf32> 
            %50 = llvm.fadd %48, %49 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : vector<2xf32>
            %51 = llvm.shufflevector %50, %50 [0] : vector<2xf32> 
            %52 = llvm.shufflevector %50, %50 [1] : vector<2xf32> 
            %53 = llvm.fadd %51, %52 {fastmathFlags = #llvm.fastmath<contract, reassoc>} : vector<1xf32>
            %54 = llvm.extractelement %53[%3 : i32] : vector<1xf32>
            %55 = llvm.sext %3 : i32 to i64
            %56 = llvm.add %9, %55 : i64
            %57 = llvm.getelementptr %arg2[%56] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            llvm.store %54, %57 {alignment = 4 : i64} : f32, !llvm.ptr
            llvm.return
          }
    "#]],
            expect![[r#"
        entry_v3_program:
        	movslq	%r8d, %rax
        	movq	%rax, %rcx
        	shlq	$8, %rcx
        	vmovups	(%rdi,%rcx), %ymm0
        	vmovups	32(%rdi,%rcx), %ymm1
        	vmovups	128(%rdi,%rcx), %ymm2
        	vaddps	64(%rdi,%rcx), %ymm0, %ymm0
        	vaddps	96(%rdi,%rcx), %ymm1, %ymm1
        	vmovups	160(%rdi,%rcx), %ymm3
        	vaddps	192(%rdi,%rcx), %ymm2, %ymm2
        	vaddps	%ymm2, %ymm0, %ymm0
        	vaddps	224(%rdi,%rcx), %ymm3, %ymm2
        	vaddps	%ymm2, %ymm1, %ymm1
        	vaddps	%ymm1, %ymm0, %ymm0
        	vextractf128	$1, %ymm0, %xmm1
        	vaddps	%xmm1, %xmm0, %xmm0
        	vshufpd	$1, %xmm0, %xmm0, %xmm1
        	vaddps	%xmm1, %xmm0, %xmm0
        	vmovshdup	%xmm0, %xmm1
        	vaddss	%xmm1, %xmm0, %xmm0
        	vmovss	%xmm0, (%rdx,%rax,4)
        	vzeroupper
        	retq
    "#]],
        ],
    );
}

/// The whole text of a kernel: hidden, in a section of its own, its labels its own, no symbol but its own.
#[test]
fn an_entry_computes_the_programs_of_one_row_of_the_grid() {
    let (mut func, _) = first(
        "#[fuse_kernel(unchecked)] fn index(out: &mut [i32]) {
        tl::store(out + tl::program_id(0), tl::program_id(0));
    }",
    );
    legalize_index(&mut func, BoundsPolicy::Unchecked);
    let session = Session::new();
    let texts =
        lowering::backend::host_asm::emit(&session, &cpu_emit::CpuPlan::new(func), "entry", Family::X86_64);
    let (level, text) = texts.expect("assembly").remove(0);
    assert_eq!(level, CpuLevel::Baseline);
    expect![[r#"
        	.hidden	entry_baseline
        	.section	.text.entry_baseline,"ax",@progbits
        	.p2align	4
        	.type	entry_baseline_program,@function
        entry_baseline_program:
        	.cfi_startproc
        	movslq	%edx, %rax
        	movl	%eax, (%rdi,%rax,4)
        	retq
        .Lentry_baseline_func_end0:
        	.size	entry_baseline_program, .Lentry_baseline_func_end0-entry_baseline_program
        	.cfi_endproc
        	.globl	entry_baseline
        	.p2align	4
        	.type	entry_baseline,@function
        entry_baseline:
        	.cfi_startproc
        	cmpl	%edx, %esi
        	jae	.Lentry_baseline_BB1_4
        	pushq	%rbp
        	.cfi_def_cfa_offset 16
        	pushq	%r15
        	.cfi_def_cfa_offset 24
        	pushq	%r14
        	.cfi_def_cfa_offset 32
        	pushq	%r13
        	.cfi_def_cfa_offset 40
        	pushq	%r12
        	.cfi_def_cfa_offset 48
        	pushq	%rbx
        	.cfi_def_cfa_offset 56
        	subq	$24, %rsp
        	.cfi_def_cfa_offset 80
        	.cfi_offset %rbx, -56
        	.cfi_offset %r12, -48
        	.cfi_offset %r13, -40
        	.cfi_offset %r14, -32
        	.cfi_offset %r15, -24
        	.cfi_offset %rbp, -16
        	movl	%r8d, %r15d
        	movl	%ecx, %r12d
        	movq	(%rdi), %rax
        	movq	%rax, 16(%rsp)
        	movq	8(%rdi), %rax
        	movq	%rax, 8(%rsp)
        	movl	(%r9), %eax
        	movl	%eax, 4(%rsp)
        	movl	4(%r9), %ebx
        	movl	8(%r9), %ebp
        	movl	%edx, %r14d
        	movl	%esi, %r13d
        	.p2align	4
        .Lentry_baseline_BB1_2:
        	subq	$8, %rsp
        	.cfi_adjust_cfa_offset 8
        	movq	24(%rsp), %rdi
        	movq	16(%rsp), %rsi
        	movl	%r13d, %edx
        	movl	%r12d, %ecx
        	movl	%r15d, %r8d
        	movl	12(%rsp), %r9d
        	pushq	88(%rsp)
        	.cfi_adjust_cfa_offset 8
        	pushq	%rbp
        	.cfi_adjust_cfa_offset 8
        	pushq	%rbx
        	.cfi_adjust_cfa_offset 8
        	callq	entry_baseline_program
        	addq	$32, %rsp
        	.cfi_adjust_cfa_offset -32
        	incq	%r13
        	cmpq	%r14, %r13
        	jl	.Lentry_baseline_BB1_2
        	addq	$24, %rsp
        	.cfi_def_cfa_offset 56
        	popq	%rbx
        	.cfi_def_cfa_offset 48
        	popq	%r12
        	.cfi_def_cfa_offset 40
        	popq	%r13
        	.cfi_def_cfa_offset 32
        	popq	%r14
        	.cfi_def_cfa_offset 24
        	popq	%r15
        	.cfi_def_cfa_offset 16
        	popq	%rbp
        	.cfi_def_cfa_offset 8
        	.cfi_restore %rbx
        	.cfi_restore %r12
        	.cfi_restore %r13
        	.cfi_restore %r14
        	.cfi_restore %r15
        	.cfi_restore %rbp
        .Lentry_baseline_BB1_4:
        	retq
        .Lentry_baseline_func_end1:
        	.size	entry_baseline, .Lentry_baseline_func_end1-entry_baseline
        	.cfi_endproc
        	.text
    "#]]
    .assert_eq(&text);
}

/// The loads and stores of a kernel's aligned specialization.
fn check_accesses(source: &str, expected: Expect) {
    let shown = ["ld.global", "st.global", "ld.volatile", "st.volatile", "createpolicy"];
    expected.assert_eq(&lines_with(&ptx(source, Arch::SM_80), &shown));
}

#[test]
fn hints_become_modifiers() {
    check_accesses(
        "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[f32], out: &mut [f32]) {
            let i = tl::arange(0, 128);
            tl::store(out + i, tl::load(x + i).evict_first()).evict_first();
            tl::store(out + i + 128, tl::load(x + i + 128).evict_last()).evict_last();
            tl::store(out + i + 256, tl::load(x + i + 256).no_allocate()).no_allocate();
            tl::store(out + i + 384, tl::load(x + i + 384).cache_global()).cache_global();
            tl::store(out + i + 512, tl::load(x + i + 512).streaming()).streaming();
            tl::store(out + i + 640, tl::load(x + i + 640).volatile()).volatile();
            tl::store(out + i + 768, tl::load(x + i + 768, i < 7).streaming().evict_first()).write_through();
            tl::store(out + i + 896, tl::load(out + i).streaming(), i < 7).write_through().evict_first();
        }",
        expect![[r#"
            createpolicy.fractional.L2::evict_last.b64 %rd5;
            createpolicy.fractional.L2::evict_first.b64 %rd2;
            ld.global.nc.L1::evict_first.L2::cache_hint.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;
            st.global.L1::evict_first.L2::cache_hint.v4.b32 [%rd3], {%r1, %r2, %r3, %r4}, %rd2;
            ld.global.nc.L1::evict_last.L2::cache_hint.v4.b32 {%r5, %r6, %r7, %r8}, [%rd4], %rd5;
            st.global.L1::evict_last.L2::cache_hint.v4.b32 [%rd6], {%r5, %r6, %r7, %r8}, %rd5;
            ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {%r9, %r10, %r11, %r12}, [%rd7], %rd5;
            st.global.L1::no_allocate.v4.b32 [%rd8], {%r9, %r10, %r11, %r12};
            ld.global.cg.nc.L2::cache_hint.v4.b32 {%r13, %r14, %r15, %r16}, [%rd9], %rd5;
            st.global.cg.v4.b32 [%rd10], {%r13, %r14, %r15, %r16};
            ld.global.cs.nc.v4.b32 {%r17, %r18, %r19, %r20}, [%rd11];
            st.global.cs.v4.b32 [%rd12], {%r17, %r18, %r19, %r20};
            ld.volatile.global.v4.b32 {%r21, %r22, %r23, %r24}, [%rd13];
            st.volatile.global.v4.b32 [%rd14], {%r21, %r22, %r23, %r24};
            @%p1 ld.global.cs.nc.L2::cache_hint.b32 %r25, [%rd15], %rd2;
            @%p2 ld.global.cs.nc.L2::cache_hint.b32 %r26, [%rd16], %rd2;
            @%p3 ld.global.cs.nc.L2::cache_hint.b32 %r27, [%rd17], %rd2;
            @%p4 ld.global.cs.nc.L2::cache_hint.b32 %r28, [%rd18], %rd2;
            st.global.wt.v4.b32 [%rd19], {%r25, %r26, %r27, %r28};
            ld.global.cs.v4.b32 {%r29, %r30, %r31, %r32}, [%rd3];
            @%p1 st.global.wt.L2::cache_hint.b32 [%rd20], %r29, %rd2;
            @%p2 st.global.wt.L2::cache_hint.b32 [%rd21], %r30, %rd2;
            @%p3 st.global.wt.L2::cache_hint.b32 [%rd22], %r31, %rd2;
            @%p4 st.global.wt.L2::cache_hint.b32 [%rd23], %r32, %rd2;
        "#]],
    );
}

/// ptxas loses a negation of the second of three operands of a maximum or minimum.
#[test]
fn negations_in_maxima_are_sums() {
    for value in [
        "tl::maximum(tl::maximum(x, -y), x + y)",
        "tl::minimum(-x, tl::minimum(-y, x + y))",
        "-tl::maximum(x, y)",
    ] {
        let source = format!(
            "#[fuse_kernel]
            fn k(x: &[i32], out: &mut [i32]) {{
                let i = tl::arange(0, 256);
                let (x, y) = (tl::load(x + i), tl::load(x + 256 + i));
                tl::store(out + i, {value});
            }}"
        );
        let text = ptx(&source, Arch::SM_90A);
        assert!(!text.contains("neg.s32") && text.contains("not.b32"), "{value}:\n{text}");
    }
}

/// ptxas compares the results of two instructions of 16 bits as if they had 32.
#[test]
fn negated_16_bits_wrap() {
    for value in ["-x", "tl::abs(x)", "0i16 - x", "tl::maximum(x, -x)"] {
        let source = format!(
            "#[fuse_kernel(unreported)]
            fn k(x: &[i16], out: &mut [i32]) {{
                let i = tl::arange(0, 256);
                let (x, y) = (tl::load(x + i), tl::load(x + 256 + i));
                tl::store(out + i, tl::select({value} > y, 1, 0));
            }}"
        );
        let text = ptx(&source, Arch::SM_90A);
        assert!(!text.contains("neg.s16") && !text.contains("abs.s16"), "{value}:\n{text}");
        assert!(text.contains("mul.lo.s16"), "{value}:\n{text}");
    }
}

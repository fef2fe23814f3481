//! Specializations after layout: layouts, vector widths, guards.

use expect_test::{Expect, expect};
use tile_ir::ir;
use tile_ir::ir::guard::WithNames;
use tile_ir::testing::func;

use super::first;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;
use lowering::mlir::Limit;

/// The tile IR of a specialization with its layouts, its block, and its guards.
pub fn print(specialization: &Specialization, params: &[String]) -> String {
    let plan = &specialization.plan;
    let distributed = &plan.schedule.distributed;
    ir::verify(&plan.laid_out).expect("valid tile IR");
    let layouts = |op: &ir::Op| {
        op.results.first().and_then(|result| distributed.layouts.get(result)).map(ToString::to_string)
    };
    let guards: String =
        specialization.guards.iter().map(|guard| format!("{}\n", WithNames(guard, params))).collect();
    format!(
        "{}: {} warps, {} programs a block, {} bytes shared\n{}{guards}",
        specialization.name,
        distributed.num_warps,
        plan.programs,
        plan.shared_bytes(),
        ir::print(&plan.laid_out, &layouts)
    )
}

fn check_aligned(source: &str, expected: Expect) {
    let func = func(source);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let specializations = specializations(&func, KernelRequests::default()).expect("bodies that fit");
    expected.assert_eq(&print(&specializations[0], &params));
}

/// In a loop a row stays narrow across a reduction to a scalar, and wide across one along an axis.
#[test]
fn narrow_rows_in_loops_stay_narrow_across_scalar_reductions() {
    let barriers = |sum: &str| {
        let source = "#[fuse_kernel(num_warps = 4)]
            fn k(x: &[bf16], out: &mut [bf16], n: i32) {
                let places = tl::arange(0, 256).col() * 32 + tl::arange(0, 32).row();
                for i in 0..n {
                    let x = tl::load(x + i * 8192 + places).to::<f32>();
                    tl::store(out + i * 8192 + places, (x - SUM).to::<bf16>());
                }
            }";
        let func = func(&source.replace("SUM", sum));
        let specializations = specializations(&func, KernelRequests::default()).expect("bodies that fit");
        ir::print(&specializations[0].plan.laid_out, &|_| None).matches("= remat_barrier").count()
    };
    assert_eq!(barriers("tl::sum(x)"), 1);
    assert_eq!(barriers("tl::sum(x, 1).col()"), 0);
}

/// The specialization for any alignment needs more registers than the one that was measured; alone it is that one.
#[test]
fn register_limits_hold_for_all_but_a_general_specialization_beside_another() {
    let limits = |source: &str| {
        let requests = KernelRequests { maxnreg: Some(64), ..KernelRequests::default() };
        let specializations = specializations(&func(source), requests).expect("bodies that fit");
        specializations
            .iter()
            .map(|specialization| (specialization.name.clone(), specialization.plan.limit))
            .collect::<Vec<_>>()
    };
    let rows = "#[fuse_kernel()]
        fn k(x: &[f32], out: &mut [f32]) {
            tl::store(out + tl::arange(0, 256), tl::load(x + tl::arange(0, 256)));
        }";
    assert_eq!(limits(rows), named([("aligned", Some(Limit::Registers(64))), ("general", None)]));
    let number = "#[fuse_kernel()] fn k(out: &mut [i32]) { tl::store(out, tl::program_id(0)); }";
    let found = limits(number);
    assert!(found.iter().all(|(name, limit)| (name == "general") == (limit.is_none() && found.len() > 1)));
}

fn named<const N: usize>(limits: [(&str, Option<Limit>); N]) -> Vec<(String, Option<Limit>)> {
    limits.map(|(name, limit)| (name.to_string(), limit)).to_vec()
}

/// The limits of the specializations of a kernel that asks for none.
fn default_limits(source: &str) -> Vec<(String, Option<Limit>)> {
    let specializations = specializations(&func(source), KernelRequests::default()).expect("bodies that fit");
    specializations
        .iter()
        .map(|specialization| (specialization.name.clone(), specialization.plan.limit))
        .collect()
}

/// Without a limit ptxas moves one load after the store of what another one loaded.
#[test]
fn loops_that_load_and_store_may_take_all_registers() {
    let source = |what: &str| {
        format!(
            "#[fuse_kernel(num_warps = 4)]
            fn k(x: &[bf16], y: &[bf16], out: &mut [bf16], n: i32) {{
                for i in tl::range(0, n, 1).num_stages(1) {{
                    let at = i * 128 + tl::arange(0, 128);
                    tl::store(out + at, {what});
                }}
            }}"
        )
    };
    let limit = |what: &str| default_limits(&source(what)).swap_remove(0);
    assert_eq!(limit("tl::load(x + at) + tl::load(y + at)").1, Some(Limit::Registers(255)));
    assert_eq!(limit("tl::load(x + at)").1, None);
}

/// Without a limit ptxas moves the second load after the arithmetic on the first.
#[test]
fn straight_line_code_has_registers_for_its_streaming_loads() {
    let limit = |block: u32, y: &str| {
        let source = format!(
            "#[fuse_kernel(num_warps = 4)]
            fn k(x: &[bf16], y: &[bf16], out: &mut [bf16], n: i32) {{
                let i = tl::arange(0, {block});
                let at = tl::program_id(0) * n + tl::program_id(1) * {block} + i;
                let x = tl::load(x + at, i < n).to::<f32>();
                let y = {y};
                tl::store(out + at, (x * tl::sigmoid(x) * y).to::<bf16>(), i < n);
            }}"
        );
        let (func, requests) = first(&source);
        let specializations = specializations(&func, requests).expect("bodies that fit");
        let general = specializations.last().expect("a body for any arguments");
        assert_eq!((general.name.as_str(), general.plan.limit), ("general", None));
        let aligned = specializations.iter().find(|specialization| specialization.name == "aligned");
        aligned.expect("a body in vectors").plan.limit
    };
    let own = "tl::load(y + at, i < n).to::<f32>()";
    assert_eq!(limit(1024, own), Some(Limit::Registers(48)));
    assert_eq!(limit(4096, own), Some(Limit::Registers(64)));
    // Other programs read the same, and more would not fit.
    assert_eq!(limit(1024, "tl::load(y + tl::program_id(1) * 1024 + i, i < n).to::<f32>()"), None);
    assert_eq!(limit(8192, own), None);
    // It waits anyway: for the reduction, or for each of several iterations.
    assert_eq!(limit(1024, &format!("tl::sum({own}, 0)")), None);
}

/// Accumulators of 8 x 8 per thread, and operands on their way to shared memory, leave room for a second block.
#[test]
fn fma_dots_leave_room_for_two_blocks_where_registers_do() {
    let source = |k: u32| {
        format!(
            "#[fuse_kernel(num_warps = 8)]
            fn k(a: &[f32], b: &[f32], out: &mut [f32], n: i32) {{
                let (at, steps) = (tl::arange(0, 128), tl::arange(0, {k}));
                let mut sum = tl::zeros::<f32>([128, 128]);
                for i in 0..n {{
                    let a = tl::load(a + i * 128 * {k} + at.col() * {k} + steps.row());
                    let b = tl::load(b + i * 128 * {k} + steps.col() * 128 + at.row());
                    sum = tl::dot(a, b, sum);
                }}
                tl::store(out + at.col() * 128 + at.row(), sum);
            }}"
        )
    };
    assert_eq!(default_limits(&source(16))[..1], named([("aligned", Some(Limit::Registers(128)))]));
    assert_eq!(default_limits(&source(32))[..1], named([("aligned", None)]));
}

/// As many blocks as fit with the live registers of a row, and of what is loaded beside it.
#[test]
fn unaligned_rows_leave_room_for_more_blocks() {
    let limit = |block: u32, num_warps: u32, w: &str| {
        let source = format!(
            "#[fuse_kernel(num_warps = {num_warps})]
            fn k(x: &[bf16], w: &[bf16], out: &mut [bf16], n: i32) {{
                let (row, i) = (tl::program_id(0), tl::arange(0, {block}));
                let x = tl::load(x + row * n + i, i < n, 0.0).to::<f32>();
                let x = x * tl::sum(x, 0){w};
                tl::store(out + row * n + i, x.to::<bf16>(), i < n);
            }}"
        );
        let (func, requests) = first(&source);
        let specializations = specializations(&func, requests).expect("bodies that fit");
        assert_eq!((specializations[0].name.as_str(), specializations[0].plan.limit), ("aligned", None));
        let own = specializations.iter().find(|specialization| specialization.name == "unaligned");
        own.expect("a body for rows that begin anywhere").plan.limit
    };
    let beside = " * tl::load(w + i, i < n, 0.0).to::<f32>()";
    let registers = |count| Some(Limit::Registers(count));
    assert_eq!(limit(8192, 8, ""), registers(48));
    assert_eq!(limit(12288, 8, ""), registers(64));
    assert_eq!(limit(8192, 8, beside), registers(64));
    assert_eq!(limit(12288, 8, beside), registers(80));
    // Between three blocks and two ptxas chooses by itself, as it does of one block of other sizes.
    assert_eq!(limit(16384, 8, beside), None);
    assert_eq!(limit(8192, 16, beside), None);
}

/// Tiles of several rows are not rotated, but need no comparison with the end of a slice either.
#[test]
fn tiles_of_several_rows_have_a_specialization_for_unaligned_rows() {
    let names = |source: &str| default_limits(source).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let matrix = "#[fuse_kernel()]
        fn k(x: &[bf16], out: &mut [bf16], rows: i32, cols: i32) {
            let (row, col) = (tl::program_id(0) * 16 + tl::arange(0, 16), tl::arange(0, 128));
            let mask = (row < rows).col() & (col < cols).row();
            let at = row.col() * cols + col.row();
            tl::store(out + at, tl::load(x + at, mask), mask);
        }";
    assert_eq!(names(matrix), ["aligned", "odd", "general"]);
}

/// ptxas spills a general specialization with dots, unless it is told how few blocks are enough.
#[test]
fn general_dots_ask_for_one_block() {
    let limits = |dtype: &str| {
        let source = format!(
            "#[fuse_kernel()]
            fn k(x: &[{dtype}], out: &mut [f32]) {{
                let at = tl::arange(0, 64).col() * 64 + tl::arange(0, 64).row();
                let x = tl::load(x + at);
                tl::store(out + at, tl::dot(x, tl::trans(x)).to::<f32>());
            }}"
        );
        let specializations =
            specializations(&func(&source), KernelRequests::default()).expect("bodies that fit");
        specializations
            .iter()
            .map(|specialization| (specialization.name.clone(), specialization.plan.limit))
            .collect::<Vec<_>>()
    };
    for dtype in ["i8", "f16", "f32"] {
        assert_eq!(limits(dtype), named([("aligned", None), ("general", Some(Limit::Blocks(1)))]), "{dtype}");
    }
}

#[test]
fn a_narrow_row_stays_narrow_across_its_reductions() {
    check_aligned(
        include_str!("layer_norm.txt"),
        expect![[r#"
            aligned: 4 warps, 1 programs a block, 32 bytes shared
            kernel layer_norm(x: &[bf16], gamma: &[bf16], beta: &[bf16], out: &mut [bf16], %0 n_cols: i32, %1 eps: f32) {
              %2 = program_id 0 : i32
              %3 = arange 0 : i32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %4 = splat %0 : i32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %5 = lt %3, %4 : bool[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %6 = cast %2 : i64
              %7 = cast %0 : i64
              %8 = mul %6, %7 : i64
              %9 = load x[%8 + %3] mask %5 inside vector 8 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %10 = cast %9 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %11 = load gamma[%3] mask %5 inside vector 8 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %12 = load beta[%3] mask %5 inside vector 8 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %13 = reduce %10 axes [0] : f32 { |%14, %15|
                %16 = add %14, %15 : f32
                yield %16
              }
              %17 = cast %0 : f32
              %18 = div %13, %17 : f32
              %19 = splat %18 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %20 = remat_barrier %9 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %21 = cast %20 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %22 = constant 0.0 : f32
              %23 = splat %22 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %24 = select %5, %19, %23 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %25 = sub %21, %24 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %26 = mul %25, %25 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %27 = reduce %26 axes [0] : f32 { |%28, %29|
                %30 = add %28, %29 : f32
                yield %30
              }
              %31 = div %27, %17 : f32
              %32 = remat_barrier %11 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %33 = cast %32 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %34 = remat_barrier %12 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %35 = cast %34 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %36 = add %31, %1 : f32
              %37 = rsqrt %36 : f32
              %38 = splat %37 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %39 = remat_barrier %20 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %40 = cast %39 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %41 = sub %40, %24 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %42 = mul %41, %38 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %43 = mul %42, %33 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %44 = add %43, %35 : f32[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              %45 = cast %44 : bf16[4096]  ; reg(1 2 4 1024 2048) lane(8 16 32 64 128) warp(256 512)
              store %45, out[%8 + %3] mask %5 inside vector 8
            }
            x is 16-byte aligned
            gamma is 16-byte aligned
            beta is 16-byte aligned
            out is 16-byte aligned
            8 divides n_cols
            0 <= n_cols
            n_cols * num_programs(0) <= x.len()
            n_cols <= gamma.len()
            n_cols <= beta.len()
            n_cols * num_programs(0) <= out.len()
        "#]],
    );
}

/// For each specialization of a kernel, the bytes that a thread moves at once, by line and argument.
fn accesses(source: &str) -> String {
    let specializations = specializations(&func(source), KernelRequests::default()).expect("bodies that fit");
    let of = |specialization: &Specialization| {
        let each = specialization.accesses().into_iter();
        let texts: Vec<String> = each
            .map(|access| format!("line {} of {}: {}", access.line, access.param.0, access.bytes))
            .collect();
        format!("{}: {}\n", specialization.name, texts.join(", "))
    };
    specializations.iter().map(of).collect::<String>()
}

/// What a trace says of an access: its line and how many bytes move at once; 0 for TMA.
#[test]
fn accesses_are_reported_by_line() {
    let gathered = "#[fuse_kernel]
        fn k(table: &[i32], x: &[bf16], out: &mut [bf16], n: i32) {
            let at = tl::arange(0, 256);
            let row = tl::load(table + tl::program_id(0));
            let values = tl::load(x + row * n + at, at < n) + tl::load(x + at * n);
            tl::store(out + tl::program_id(0) * n + at, values, at < n);
        }";
    let product = "#[fuse_kernel(num_warps = 4)]
        fn k(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>) {
            let mut sum = tl::zeros::<f32>([64, 64]);
            for start in (0..a.shape(1)).step_by(64) {
                sum = tl::dot(a.load::<64, 64>(0, start), b.load::<64, 64>(start, 0), sum);
            }
            out.store(sum, 0, 0);
        }";
    expect![[r#"
        aligned: line 5 of 1: 2, line 6 of 2: 16
        unaligned: line 5 of 1: 2, line 6 of 2: 16
        general: line 5 of 1: 2, line 6 of 2: 2
        tensor: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 0
        tensor_tn: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 0
        tensor_nt: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 0
        tensor_tt: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 0
        tensor_odd: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 4
        tensor_tn_odd: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 4
        tensor_nt_odd: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 4
        tensor_tt_odd: line 5 of 0: 0, line 5 of 5: 0, line 7 of 10: 4
        aligned: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 8
        odd_wgmma: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        odd: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        aligned_tn: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 8
        odd_wgmma_tn: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        odd_tn: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        aligned_nt: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 8
        odd_wgmma_nt: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        odd_nt: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        aligned_tt: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 8
        odd_wgmma_tt: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        odd_tt: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
        general: line 5 of 0: 2, line 5 of 5: 2, line 7 of 10: 4
    "#]]
    .assert_eq(&[gathered, product].map(accesses).concat());
}

#[test]
fn a_matrix_is_transposed_through_shared_memory() {
    check_aligned(
        "#[fuse_kernel(M = [32], N = [64])]
        fn transpose<const M: usize, const N: usize>(x: &[f32], out: &mut [f32]) {
            let (r, c) = (tl::arange(0, M), tl::arange(0, N));
            let x = tl::load(x + (r.col() * N + c.row()));
            tl::store(out + (c.col() * M + r.row()), tl::trans(x));
        }",
        expect![[r#"
            aligned: 4 warps, 1 programs a block, 8304 bytes shared
            kernel transpose(x: &[f32], out: &mut [f32]) {
              %0 = arange 0 : i32[32]  ; reg(1 2) lane(4 8 16 - -) warp(- -)
              %1 = arange 0 : i32[32]  ; reg(8 16) lane(- - - - 1) warp(2 4)
              %2 = arange 0 : i32[64]  ; reg(16 32) lane(- - - 1 2) warp(4 8)
              %3 = arange 0 : i32[64]  ; reg(1 2) lane(4 8 16 32 -) warp(- -)
              %4 = expand_dims %1 axis 1 : i32[32, 1]  ; reg(8@0 16@0) lane(- - - - 1@0) warp(2@0 4@0)
              %5 = constant 64 : i32
              %6 = splat %5 : i32[32, 1]  ; reg(8@0 16@0) lane(- - - - 1@0) warp(2@0 4@0)
              %7 = expand_dims %3 axis 0 : i32[1, 64]  ; reg(1@1 2@1) lane(4@1 8@1 16@1 32@1 -) warp(- -)
              %8 = broadcast %7 : i32[32, 64]  ; reg(1@1 2@1 8@0 16@0) lane(4@1 8@1 16@1 32@1 1@0) warp(2@0 4@0)
              %9 = mul %4, %6 exact : i32[32, 1]  ; reg(8@0 16@0) lane(- - - - 1@0) warp(2@0 4@0)
              %10 = broadcast %9 : i32[32, 64]  ; reg(1@1 2@1 8@0 16@0) lane(4@1 8@1 16@1 32@1 1@0) warp(2@0 4@0)
              %11 = add %10, %8 exact : i32[32, 64]  ; reg(1@1 2@1 8@0 16@0) lane(4@1 8@1 16@1 32@1 1@0) warp(2@0 4@0)
              %12 = load x[%11] inside vector 4 : f32[32, 64]  ; reg(1@1 2@1 8@0 16@0) lane(4@1 8@1 16@1 32@1 1@0) warp(2@0 4@0)
              %13 = expand_dims %2 axis 1 : i32[64, 1]  ; reg(16@0 32@0) lane(- - - 1@0 2@0) warp(4@0 8@0)
              %14 = constant 32 : i32
              %15 = splat %14 : i32[64, 1]  ; reg(16@0 32@0) lane(- - - 1@0 2@0) warp(4@0 8@0)
              %16 = expand_dims %0 axis 0 : i32[1, 32]  ; reg(1@1 2@1) lane(4@1 8@1 16@1 - -) warp(- -)
              %17 = broadcast %16 : i32[64, 32]  ; reg(1@1 2@1 16@0 32@0) lane(4@1 8@1 16@1 1@0 2@0) warp(4@0 8@0)
              %18 = convert_layout %12 : f32[32, 64]  ; reg(1@0 2@0 16@1 32@1) lane(4@0 8@0 16@0 1@1 2@1) warp(4@1 8@1)
              %19 = permute %18 order [1, 0] : f32[64, 32]  ; reg(1@1 2@1 16@0 32@0) lane(4@1 8@1 16@1 1@0 2@0) warp(4@0 8@0)
              %20 = mul %13, %15 exact : i32[64, 1]  ; reg(16@0 32@0) lane(- - - 1@0 2@0) warp(4@0 8@0)
              %21 = broadcast %20 : i32[64, 32]  ; reg(1@1 2@1 16@0 32@0) lane(4@1 8@1 16@1 1@0 2@0) warp(4@0 8@0)
              %22 = add %21, %17 exact : i32[64, 32]  ; reg(1@1 2@1 16@0 32@0) lane(4@1 8@1 16@1 1@0 2@0) warp(4@0 8@0)
              store %19, out[%22] inside vector 4
            }
            x is 16-byte aligned
            out is 16-byte aligned
            2048 <= x.len()
            2048 <= out.len()
        "#]],
    );
}

/// Every specialization of a small kernel: threads, programs, and guards.
fn check_blocks(source: &str, expected: Expect) {
    let func = func(source);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let lines: String = specializations(&func, KernelRequests::default())
        .expect("bodies that fit")
        .iter()
        .map(|specialization| {
            let guards: Vec<String> =
                specialization.guards.iter().map(|guard| WithNames(guard, &params).to_string()).collect();
            let plan = &specialization.plan;
            format!(
                "{}: {} threads, {} programs: {}\n",
                specialization.name,
                plan.threads(),
                plan.programs,
                guards.join(", ")
            )
        })
        .collect();
    expected.assert_eq(&lines);
}

#[test]
fn warps_follow_what_a_program_reads() {
    let add = "#[fuse_kernel(BLOCK = [SIZE])]
        fn add<const BLOCK: usize>(x: &[f32], y: &[f32], out: &mut [f32], n: i32) {
            let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
            tl::store(out + i, tl::load(x + i, i < n) + tl::load(y + i, i < n), i < n);
        }";
    check_blocks(
        &add.replace("SIZE", "128"),
        expect![[r#"
            aligned: 128 threads, 4 programs: x is 16-byte aligned, y is 16-byte aligned, out is 16-byte aligned, 4 divides n, -1 + 128 * num_programs(0) <= 2147483647, n <= x.len(), n <= y.len(), n <= out.len()
            general: 128 threads, 4 programs: 
        "#]],
    );
    check_blocks(
        &add.replace("SIZE", "4096"),
        expect![[r#"
            aligned: 256 threads, 1 programs: x is 16-byte aligned, y is 16-byte aligned, out is 16-byte aligned, 4 divides n, -1 + 4096 * num_programs(0) <= 2147483647, n <= x.len(), n <= y.len(), n <= out.len()
            general: 256 threads, 1 programs: 
        "#]],
    );
    // Eight warps would hold ten elements a thread, which are no whole vectors.
    check_blocks(
        &add.replace("SIZE", "2560"),
        expect![[r#"
        aligned: 128 threads, 1 programs: x is 16-byte aligned, y is 16-byte aligned, out is 16-byte aligned, 4 divides n, -1 + 2560 * num_programs(0) <= 2147483647, n <= x.len(), n <= y.len(), n <= out.len()
        general: 128 threads, 1 programs: 
    "#]],
    );
    check_blocks(
        &add.replace("SIZE", "96"),
        expect![[r#"
            aligned: 128 threads, 4 programs: x is 16-byte aligned, y is 16-byte aligned, out is 16-byte aligned, 4 divides n, -1 + 96 * num_programs(0) <= 2147483647, n <= x.len(), n <= y.len(), n <= out.len()
            general: 128 threads, 4 programs: 
        "#]],
    );
}

#[test]
fn a_long_chain_is_not_rematerialized() {
    let doubled = "y = y + y;".repeat(12);
    let source = format!(
        "#[fuse_kernel(N = [1024])]
        fn centre<const N: usize>(x: &[bf16], out: &mut [f32]) {{
            let i = tl::arange(0, N);
            let mut y = tl::load(x + i).to::<f32>();
            {doubled}
            tl::store(out + i, y - tl::sum(y, 0));
        }}"
    );
    let specializations =
        specializations(&func(&source), KernelRequests::default()).expect("bodies that fit");
    let mut names = vec![];
    specializations[0].plan.laid_out.body.walk(&mut |op| names.push(op.kind.operation().name()));
    assert_eq!(names.iter().filter(|name| **name == "add").count(), 12 + 1, "{names:?}");
    assert!(!names.contains(&"hold"), "{names:?}");
}

const STEPS: &str = "#[fuse_kernel(num_warps = 1)] fn k(x: &[f32], out: &mut [f32], n: i32, step: i32) {
        PROMISE
        let lanes = tl::arange(0, 128);
        let mut total = tl::zeros::<f32>([128]);
        for start in tl::range(0, n, step) {
            total += tl::load(x + start + lanes, start + lanes < n);
        }
        tl::store(out + lanes, total);
    }";

/// 0 and -4 are multiples of 4 too, and step by 1.
#[test]
fn a_step_that_may_be_below_1_implies_no_alignment() {
    check_aligned(
        &STEPS.replace("PROMISE", ""),
        expect![[r#"
        aligned: 1 warps, 4 programs a block, 8192 bytes shared
        kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 step: i32) {
          %2 = arange 0 : i32[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
          %3 = constant 0.0 : f32
          %4 = splat %3 : f32[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
          %5 = constant 0 : i32
          %6 = for %5..%0 step %1 carry %4 : f32[128] { |%7, %8|  ; reg(32 64) lane(1 2 4 8 16) warp()
            %9 = splat %7 : i32[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
            %10 = add %9, %2 : i32[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
            %11 = splat %0 : i32[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
            %12 = lt %10, %11 : bool[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
            %13 = cast %7 : i64
            %14 = load x[%13 + %2] mask %12 inside : f32[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
            %15 = add %8, %14 : f32[128]  ; reg(32 64) lane(1 2 4 8 16) warp()
            yield %15
          }
          store %6, out[%2] inside
        }
        126 + n <= 2147483647
        n <= x.len()
        128 <= out.len()
    "#]],
    );
    check_aligned(
        &STEPS.replace("PROMISE", "tl::assume(step > 0);"),
        expect![[r#"
        aligned: 1 warps, 4 programs a block, 8192 bytes shared
        kernel k(x: &[f32], out: &mut [f32], %0 n: i32, %1 step: i32) assuming 1 <= step {
          %2 = constant 0 : i32
          %3 = gt %1, %2 : bool
          device_assert %3 assume "step > 0"
          %4 = arange 0 : i32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
          %5 = constant 0.0 : f32
          %6 = splat %5 : f32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
          %7 = for %2..%0 step %1 carry %6 : f32[128] { |%8, %9|  ; reg(1 2) lane(4 8 16 32 64) warp()
            %10 = splat %8 : i32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
            %11 = add %10, %4 : i32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
            %12 = splat %0 : i32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
            %13 = lt %11, %12 : bool[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
            %14 = cast %8 : i64
            %15 = load x[%14 + %4] mask %13 inside vector 4 : f32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
            %16 = add %9, %15 : f32[128]  ; reg(1 2) lane(4 8 16 32 64) warp()
            yield %16
          }
          store %7, out[%4] inside vector 4
        }
        x is 16-byte aligned
        out is 16-byte aligned
        4 divides n
        4 divides step
        126 + n <= 2147483647
        n <= x.len()
        128 <= out.len()
        1 <= step
    "#]],
    );
}

/// Operands of FMA dots are loaded in vectors as far as they can be: both operands, or one of them.
#[test]
fn a_dot_of_f32_has_specializations_with_one_operand_in_vectors() {
    let product = "#[fuse_kernel(num_warps = 4)]
        fn k(a: &View<f32, 2>, b: &View<f32, 2>, out: &mut View<f32, 2>) {
            let mut sum = tl::zeros::<f32>([64, 64]);
            for start in (0..a.shape(1)).step_by(16) {
                sum = tl::dot(a.load::<64, 16>(0, start), b.load::<16, 64>(start, 0), sum);
            }
            out.store(sum, 0, 0);
        }";
    expect![[r#"
        aligned: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 16
        scalar_epilogue: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 4
        scalar_b: line 5 of 0: 16, line 5 of 5: 4, line 7 of 10: 4
        scalar_a: line 5 of 0: 4, line 5 of 5: 16, line 7 of 10: 4
        odd: line 5 of 0: 4, line 5 of 5: 4, line 7 of 10: 4
        aligned_tn: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 16
        scalar_epilogue_tn: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 4
        scalar_b_tn: line 5 of 0: 16, line 5 of 5: 4, line 7 of 10: 4
        scalar_a_tn: line 5 of 0: 4, line 5 of 5: 16, line 7 of 10: 4
        odd_tn: line 5 of 0: 4, line 5 of 5: 4, line 7 of 10: 4
        aligned_nt: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 16
        scalar_epilogue_nt: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 4
        scalar_b_nt: line 5 of 0: 16, line 5 of 5: 4, line 7 of 10: 4
        scalar_a_nt: line 5 of 0: 4, line 5 of 5: 16, line 7 of 10: 4
        odd_nt: line 5 of 0: 4, line 5 of 5: 4, line 7 of 10: 4
        aligned_tt: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 16
        scalar_epilogue_tt: line 5 of 0: 16, line 5 of 5: 16, line 7 of 10: 4
        scalar_b_tt: line 5 of 0: 16, line 5 of 5: 4, line 7 of 10: 4
        scalar_a_tt: line 5 of 0: 4, line 5 of 5: 16, line 7 of 10: 4
        odd_tt: line 5 of 0: 4, line 5 of 5: 4, line 7 of 10: 4
        general: line 5 of 0: 4, line 5 of 5: 4, line 7 of 10: 4
    "#]]
    .assert_eq(&accesses(product));
}

//! Warpgroup dots of operands that TMA loads.

use expect_test::{Expect, expect};
use tile_ir::ir;
use tile_ir::ir::Shape;
use tile_ir::ir::guard::{Symbol, SymbolicSum, WithNames};
use tile_ir::ir::launch_shape::LaunchShape;
use tile_ir::transform::transpose_operands::transpose_operands;

use super::layout::check_covers;
use super::{first, lines_with, ptx, ptx_of};
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::specializations;
use lowering::gpu::layout::Coord;
use lowering::gpu::layout::dot::{wgmma_a_layout, wgmma_acc_layout, wgmma_fragments};
use lowering::gpu::layout::warpgroup::WarpGroupTiling;
use lowering::gpu::schedule::TensorMap;
use lowering::gpu::specialization::Specialization;

// ---- layouts

/// Results and the warps that make them, with how many groups share the rows and how many the columns.
const RESULTS: [([u32; 2], u32, [u32; 2]); 11] = [
    ([64, 64], 4, [1, 1]),
    ([128, 256], 4, [1, 1]),
    ([192, 128], 4, [1, 1]),
    ([128, 256], 8, [2, 1]),
    ([256, 64], 8, [2, 1]),
    ([64, 256], 8, [1, 2]),
    ([192, 128], 8, [1, 2]),
    ([192, 128], 12, [3, 1]),
    ([128, 256], 16, [2, 2]),
    ([256, 64], 16, [4, 1]),
    ([64, 128], 16, [1, 4]),
];

/// The row and column that element `i` of a thread of a group has, as the PTX manual has it: in the result, and in a left
/// factor in registers.
fn documented(warp: u32, lane: u32, i: u32) -> [u32; 2] {
    [16 * warp + (lane >> 2) + 8 * (i >> 1 & 1), 8 * (i >> 2) + lane % 4 * 2 + (i & 1)]
}

fn at([row, column]: [u32; 2]) -> Coord {
    Coord::along(0, row).set(1, column)
}

#[test]
fn warpgroups_tile_rows_first() {
    for ([rows, columns], warps, [along_rows, along_columns]) in RESULTS {
        assert_eq!(
            WarpGroupTiling::new(rows, warps),
            WarpGroupTiling { along_rows, along_columns },
            "{rows} {columns} {warps}"
        );
    }
}

/// Each instruction of a group finds its elements in the registers of one thread, in the order of the manual.
#[test]
fn warpgroup_fragments_are_those_of_the_ptx_manual() {
    let [sum, factor] = wgmma_fragments();
    for (i, offset) in sum.offsets(&Shape::new([64, 8])).into_iter().enumerate() {
        assert_eq!(offset, at(documented(0, 0, i as u32)), "sum {i}");
    }
    for (i, offset) in factor.offsets(&Shape::new([64, 16])).into_iter().enumerate() {
        assert_eq!(offset, at(documented(0, 0, i as u32)), "factor {i}");
    }
    for ([rows, columns], warps, [along_rows, along_columns]) in RESULTS {
        let inner = 32;
        let sum = wgmma_acc_layout(&Shape::new([rows, columns]), warps);
        let factor = wgmma_a_layout(&Shape::new([rows, inner]), &sum);
        check_covers(&sum).expect("every element has a place");
        check_covers(&factor).expect("every element has a place");
        let share = columns / along_columns;
        // Groups that share the rows hold the same of the factor.
        for (layout, width, apart) in [(&sum, share, share), (&factor, inner, 0)] {
            let places = layout.registers_by_coord();
            for (set, i) in (0..rows / 64 / along_rows).flat_map(|set| (0..width / 2).map(move |i| (set, i)))
            {
                let [row, column] = documented(0, 0, i);
                let register = places[&at([set * 64 * along_rows + row, column])];
                for (warp, lane) in (0..warps).flat_map(|warp| (0..32).map(move |lane| (warp, lane))) {
                    let (group, [row, column]) = (warp / 4, documented(warp % 4, lane, i));
                    let before = [64 * (set * along_rows + group % along_rows), group / along_rows * apart];
                    let expected = at([before[0] + row, before[1] + column]);
                    let found = layout.coord(register, lane, warp);
                    assert_eq!(found, expected, "{rows} {columns} {warps}: {set} {i} {warp} {lane}");
                }
            }
        }
    }
}

/// A block that is both factors is awaited once and let go once.
#[test]
fn a_matrix_is_both_operands() {
    let text = ptx(
        "#[fuse_kernel(num_warps = 4)]
        fn squared(x: &View<f16, 2>, out: &mut View<f32, 2>) {
            let row = tl::program_id(0) * 64;
            let rows = x.load::<64, 64>(row, 0);
            out.store(tl::dot(rows, tl::trans(rows)), row, 0);
        }",
        Arch::SM_90A,
    );
    let (_, multiplies) = text.rsplit_once("cp.async.bulk.tensor.2d.shared").expect("a copy");
    let (before, behind) = multiplies.split_once("wgmma.fence").expect("a product");
    let (behind, _) = behind.split_once("cp.async.bulk.wait_group").expect("a block that leaves");
    expect![[r#"
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd13], %r133;
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd17], %r131;
    "#]]
    .assert_eq(&lines_with(before, &["try_wait"]));
    expect![[r#"
        @%p5 mbarrier.arrive.shared::cta.b64 _, [%rd18];
    "#]]
    .assert_eq(&lines_with(behind, &["mbarrier"]));
}

// ---- which products

const PRODUCT: &str = "#[fuse_kernel(num_warps = 4)]
    fn product(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>, table: &[i32]) {
        let (row, col) = (tl::program_id(0) * 64, tl::program_id(1) * 64);
        let mut sum = tl::zeros::<f32>([64, 64]);
        for start in (0..a.shape(1)).step_by(64) {
            sum = tl::dot(a.load::<64, 64>(row, start), b.load::<64, 64>(start, col), sum);
        }
        out.store(sum, row, col);
    }";

fn changed(changes: &[[&str; 2]]) -> String {
    changes.iter().fold(PRODUCT.to_string(), |text, [from, to]| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// With tiles of 128 x 128.
fn large(source: &str) -> String {
    let wider = [
        ["num_warps = 4", "num_warps = 8"],
        ["[64, 64]", "[128, 128]"],
        ["a.load::<64, 64>", "a.load::<128, 64>"],
        ["b.load::<64, 64>(start", "b.load::<64, 128>(start"],
        ["b.load::<64, 64>(0", "b.load::<64, 128>(0"],
        ["b.load::<64, 64>(col", "b.load::<128, 64>(col"],
        ["program_id(0) * 64", "program_id(0) * 128"],
        ["program_id(1) * 64", "program_id(1) * 128"],
    ];
    wider.iter().fold(source.to_string(), |text, [from, to]| text.replace(from, to))
}

fn all_specializations(source: &str) -> Vec<Specialization> {
    let (func, requests) = first(source);
    specializations(&func, requests).expect("bodies that fit")
}

/// The first body's name and products, for each list of changes.
fn check_products(cases: &[&[[&str; 2]]], expected: Expect) {
    let products = |changes: &&[[&str; 2]]| {
        let first = all_specializations(&changed(changes)).remove(0);
        let lines = lines_with(&ir::print(&first.plan.laid_out, &|_| None), &["dot "]);
        format!("{}: {lines}", first.name)
    };
    expected.assert_eq(&cases.iter().map(products).collect::<String>());
}

#[test]
fn dots_of_view_tiles_use_wgmma() {
    let right = "b.load::<64, 64>(start, col)";
    let left = "a.load::<64, 64>(row, start)";
    check_products(
        &[
            &[],
            &[
                ["num_warps = 4", "num_warps = 8"],
                [right, "b.load::<64, 128>(start, col)"],
                ["[64, 64]", "[64, 128]"],
            ],
            &[["bf16", "f16"]],
            &[[right, "tl::trans(b.load::<64, 64>(col, start))"]],
            &[[left, "tl::trans(a.load::<64, 64>(start, row))"]],
            &[[left, "tl::relu(a.load::<64, 64>(row, start))"]],
            &[
                ["b: &View<bf16, 2>", "b: &View<bf16, 3>"],
                [right, "tl::reshape(b.load::<1, 64, 64>(0, start, col), [64, 64])"],
            ],
            &[[right, "b.load::<64, 64>(start + tl::load(table).to::<i64>(), col)"]],
        ],
        expect![[r#"
            tensor: %25 = warp_group_dot [64, 64] of a(%22, %19), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
            tensor: %25 = warp_group_dot [64, 64] of a(%22, %19), [64, 128] of b(%19, %24) add %20 : f32[64, 128]
            tensor: %25 = warp_group_dot [64, 64] of a(%22, %19), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
            tensor: %25 = warp_group_dot [64, 64] of a(%22, %19), transposed [64, 64] of b(%24, %19) add %20 : f32[64, 64]
            tensor: %25 = warp_group_dot transposed [64, 64] of a(%19, %22), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
            tensor: %60 = warp_group_dot %59, [64, 64] of b(%19, %58) add %20 : f32[64, 64]
            tensor: %27 = warp_group_dot [64, 64] of a(%24, %21), [1, 64, 64] of b(%18, %21, %26) add %22 : f32[64, 64]
            aligned_wgmma: %93 = dot %53, %92 add %20 by wgmma : f32[64, 64]
        "#]],
    );
}

/// Bytes are multiplied where they are neighbors along what is summed over; 8-bit floats where their sums may be
/// imprecise.
#[test]
fn eight_bit_dots_use_wgmma() {
    let integers: &[[&str; 2]] = &[
        ["bf16", "i8"],
        ["b.load::<64, 64>(start, col)", "tl::trans(b.load::<64, 128>(col, start))"],
        ["a.load::<64, 64>", "a.load::<64, 128>"],
        ["step_by(64)", "step_by(128)"],
        ["zeros::<f32>", "zeros::<i32>"],
        ["out.store(sum,", "out.store(sum.to::<f32>(),"],
    ];
    let floats: &[[&str; 2]] = &[
        ["zeros::<i32>", "zeros::<f32>"],
        ["<i8, 2>, b", "<f8e4m3, 2>, b"],
        ["<i8, 2>, out", "<f8e4m3, 2>, out"],
        [", sum);\n        }", ", sum).max_num_imprecise_acc(128);\n        }"],
    ];
    let floats = [integers, floats].concat();
    let with = |more: &[[&'static str; 2]]| [integers, more].concat();
    let also = |more: &[[&'static str; 2]]| [&floats, more].concat();
    let straight = ["tl::trans(b.load::<64, 128>(col, start))", "b.load::<128, 64>(start, col)"];
    let turned = ["a.load::<64, 128>(row, start)", "tl::trans(a.load::<128, 64>(start, row))"];
    let cases = [
        with(&[]),
        // Lines that are no whole ones, a multiple of 8 columns, the other order of either factor, a computed one.
        with(&[
            ["step_by(128)", "step_by(64)"],
            ["::<64, 128>(row", "::<64, 64>(row"],
            ["::<64, 128>(col", "::<64, 64>(col"],
        ]),
        with(&[["::<64, 128>(col", "::<40, 128>(col"], ["[64, 64]", "[64, 40]"]]),
        with(&[straight]),
        with(&[turned]),
        with(&[["a.load::<64, 128>(row, start)", "tl::abs(a.load::<64, 128>(row, start))"]]),
        also(&[]),
        also(&[["(128);\n", "(32);\n"]]),
        also(&[["<f8e4m3, 2>, b", "<f8e5m2, 2>, b"], ["<f8e4m3, 2>, out", "<f8e5m2, 2>, out"]]),
        also(&[["::<64, 128>(col", "::<40, 128>(col"], ["[64, 64]", "[64, 40]"]]),
        // All digits are wanted.
        also(&[[".max_num_imprecise_acc(128)", ""]]),
        also(&[straight]),
        also(&[turned]),
    ];
    let cases: Vec<&[[&str; 2]]> = cases.iter().map(|case| &case[..]).collect();
    check_products(
        &cases,
        expect![[r#"
            tensor: %26 = warp_group_dot [64, 128] of a(%23, %19), transposed [64, 128] of b(%25, %19) add %20 : i32[64, 64]
            aligned_wgmma: %83 = dot %53, %82 add %20 by wgmma : i32[64, 64]
            aligned_wgmma: %86 = dot %54, %85 add %20 by wgmma : i32[64, 40]
            tensor_nt: %26 = warp_group_dot [64, 128] of a(%23, %19), transposed [64, 128] of b(%25, %19) add %20 : i32[64, 64]
            tensor_tn: %26 = warp_group_dot [64, 128] of a(%23, %19), transposed [64, 128] of b(%25, %19) add %20 : i32[64, 64]
            aligned_wgmma: %85 = dot %55, %84 add %20 by wgmma : i32[64, 64]
            tensor: %26 = warp_group_dot [64, 128] of a(%23, %19), transposed [64, 128] of b(%25, %19) add %20 imprecise 128 : f32[64, 64]
            tensor: %26 = warp_group_dot [64, 128] of a(%23, %19), transposed [64, 128] of b(%25, %19) add %20 imprecise 32 : f32[64, 64]
            tensor: %26 = warp_group_dot [64, 128] of a(%23, %19), transposed [64, 128] of b(%25, %19) add %20 imprecise 128 : f32[64, 64]
            aligned_wgmma: %86 = dot %54, %85 add %20 imprecise 128 by wgmma : f32[64, 40]
            tensor: %26 = warp_group_dot [64, 128] of a(%23, %19), transposed [64, 128] of b(%25, %19) add %20 imprecise 128 : f32[64, 64]
            aligned_wgmma: %87 = dot %56, %86 add %20 imprecise 128 by wgmma : f32[64, 64]
            aligned_wgmma: %89 = dot %57, %88 add %20 imprecise 128 by wgmma : f32[64, 64]
        "#]],
    );
}

/// What is summed over is contiguous in the right factor. Where it is not, the transpose is made; where it is in neither, warps multiply.
#[test]
fn tf32_dots_use_wgmma() {
    let source = changed(&[
        ["&View<bf16, 2>", "&View<f32, 2>"],
        ["step_by(64)", "step_by(32)"],
        ["a.load::<64, 64>(row, start)", "a.load::<128, 32>(row, start)"],
        ["b.load::<64, 64>(start, col)", "b.load::<32, 64>(start, col)"],
        ["[64, 64]", "[128, 64]"],
        [", sum);", ", sum).input_precision(\"tf32\");"],
    ]);
    let products = all_specializations(&source).into_iter().map(|body| {
        let lines = lines_with(&ir::print(&body.plan.laid_out, &|_| None), &["dot "]);
        let maps =
            body.plan.tensor_maps().iter().map(|map| format!("    {:?} tf32: {}\n", map.block, map.tf32));
        format!("{}: {lines}{}", body.name, maps.collect::<String>())
    });
    expect![[r#"
        tensor: %26 = warp_group_dot transposed [32, 64] of b(%19, %23), transposed [128, 32] of a(%25, %19) add %20 transposed : f32[128, 64]
            [32, 32] tf32: true
            [128, 32] tf32: true
            [64, 32] tf32: false
        tensor_nt: %26 = warp_group_dot [128, 32] of a(%23, %19), transposed [64, 32] of b(%25, %19) add %20 : f32[128, 64]
            [128, 32] tf32: true
            [64, 32] tf32: true
            [64, 32] tf32: false
        tensor_tt: %26 = warp_group_dot transposed [32, 128] of a(%19, %23), transposed [64, 32] of b(%25, %19) add %20 : f32[128, 64]
            [32, 32] tf32: true
            [64, 32] tf32: true
            [64, 32] tf32: false
        tensor_odd: %26 = warp_group_dot transposed [32, 64] of b(%19, %23), transposed [128, 32] of a(%25, %19) add %20 transposed : f32[128, 64]
            [32, 32] tf32: true
            [128, 32] tf32: true
        tensor_nt_odd: %26 = warp_group_dot [128, 32] of a(%23, %19), transposed [64, 32] of b(%25, %19) add %20 : f32[128, 64]
            [128, 32] tf32: true
            [64, 32] tf32: true
        tensor_tt_odd: %26 = warp_group_dot transposed [32, 128] of a(%19, %23), transposed [64, 32] of b(%25, %19) add %20 : f32[128, 64]
            [32, 32] tf32: true
            [64, 32] tf32: true
        aligned: %88 = dot %56, %87 add %20 precision tf32 : f32[128, 64]
        odd: %88 = dot %56, %87 add %20 precision tf32 : f32[128, 64]
        aligned_tn: %89 = dot %57, %88 add %20 precision tf32 : f32[128, 64]
        odd_tn: %88 = dot %56, %87 add %20 precision tf32 : f32[128, 64]
        aligned_nt: %87 = dot %55, %86 add %20 precision tf32 : f32[128, 64]
        odd_nt: %87 = dot %55, %86 add %20 precision tf32 : f32[128, 64]
        aligned_tt: %90 = dot %57, %89 add %20 precision tf32 : f32[128, 64]
        odd_tt: %90 = dot %57, %89 add %20 precision tf32 : f32[128, 64]
        general: %106 = dot %70, %105 add %20 precision tf32 : f32[128, 64]
    "#]].assert_eq(&products.collect::<String>());
}

#[test]
fn other_dots_use_mma() {
    let right = "b.load::<64, 64>(start, col)";
    let left = "a.load::<64, 64>(row, start)";
    let summed = "tl::sum(tl::load(table + tl::arange(0, 4)), 0)";
    check_products(
        &[
            // Rows of the result, bytes of a block's row, of a group's part of it, warps, the element type.
            &[[left, "a.load::<32, 64>(row, start)"], ["zeros::<f32>([64", "zeros::<f32>([32"]],
            &[[right, "b.load::<64, 32>(start, col)"], ["[64, 64]", "[64, 32]"]],
            &[["num_warps = 4", "num_warps = 8"]],
            &[["num_warps = 4", "num_warps = 2"]],
            &[["bf16", "f32"]],
            // A right factor that is no block, that changes, or that is read again.
            &[[right, "tl::relu(b.load::<64, 64>(start, col))"]],
            &[["b: &View", "b: &mut View"], ["out.store", "b.store(sum.to::<bf16>(), row, col); out.store"]],
            &[[right, "b.load::<64, 64>(start, col).volatile()"]],
            // It begins between two pieces of 16 bytes.
            &[[right, "b.load::<64, 64>(start, col + 4)"]],
            // Where it begins, and how often, is not for a warp of its own to say.
            &[[right, &format!("b.load::<64, 64>(start, col + {summed})")]],
            &[["a.shape(1)", summed]],
            &[["for start", "for _ in 0..2 { for start"], ["sum);", "sum); }"]],
        ],
        expect![[r#"
            aligned: %84 = dot %54, %83 add %20 : f32[32, 64]
            tensor_nt: %25 = warp_group_dot [64, 64] of a(%22, %19), transposed [32, 64] of b(%24, %19) add %20 : f32[64, 32]
            tensor_nt: %25 = warp_group_dot [64, 64] of a(%22, %19), transposed [64, 64] of b(%24, %19) add %20 : f32[64, 64]
            aligned: %82 = dot %53, %81 add %20 : f32[64, 64]
            aligned: %82 = dot %53, %81 add %20 : f32[64, 64]
            aligned_wgmma: %85 = dot %53, %84 add %20 by wgmma : f32[64, 64]
            aligned_wgmma: %82 = dot %53, %81 add %20 by wgmma : f32[64, 64]
            aligned_wgmma: %82 = dot %53, %81 add %20 by wgmma : f32[64, 64]
            tensor_nt: %27 = warp_group_dot [64, 64] of a(%22, %19), transposed [64, 64] of b(%26, %19) add %20 : f32[64, 64]
            aligned_wgmma: %101 = dot %57, %100 add %20 by wgmma : f32[64, 64]
            aligned_wgmma: %90 = dot %61, %89 add %26 by wgmma : f32[64, 64]
            aligned_wgmma: %88 = dot %59, %87 add %26 by wgmma : f32[64, 64]
        "#]],
    );
}

// ---- bodies

/// A GPU whose warps multiply together has a body of its own; what it does not take goes to the general one.
#[test]
fn each_gpu_has_its_specializations() {
    let specializations = all_specializations(PRODUCT);
    let of = |capability: u32| {
        let own =
            specializations.iter().filter(|body| body.gpus.include(capability)).map(Specialization::label);
        format!("sm_{capability}: {}\n", own.collect::<Vec<_>>().join(", "))
    };
    expect![[r#"
        sm_80: aligned, odd, aligned_tn, odd_tn, aligned_nt, odd_nt, aligned_tt, odd_tt, general
        sm_89: aligned, odd, aligned_tn, odd_tn, aligned_nt, odd_nt, aligned_tt, odd_tt, general
        sm_90: tensor, tensor_tn, tensor_nt, tensor_tt, tensor_odd, tensor_tn_odd, tensor_nt_odd, tensor_tt_odd, odd_wgmma, odd_wgmma_tn, odd_wgmma_nt, odd_wgmma_tt, general
        sm_100: aligned, odd, aligned_tn, odd_tn, aligned_nt, odd_nt, aligned_tt, odd_tt, general
    "#]]
    .assert_eq(&[80, 89, 90, 100].map(of).concat());
}

/// The shape of a map of a view with two axes in their own order.
fn in_order(map: &TensorMap) -> LaunchShape {
    let axes = |first: u32| [first, first + 1].map(|scalar| SymbolicSum::of(Symbol::Scalar(scalar))).to_vec();
    LaunchShape { extents: axes(map.memory.0 + 1), strides: axes(map.memory.0 + 3) }
}

/// A factor by columns is read as its transpose, for which the map has its last two axes in the other order.
#[test]
fn column_major_operands_are_loaded_in_their_layout() {
    let specializations = all_specializations(PRODUCT);
    let (func, _) = first(PRODUCT);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let of = |body: &Specialization| {
        let strides = body.guards.iter().map(|fact| WithNames(fact, &params).to_string());
        let strides: Vec<String> = strides.filter(|fact| fact.contains("stride")).collect();
        let maps: Vec<String> =
            body.plan.tensor_maps().iter().map(|map| (map.shape != in_order(map)).to_string()).collect();
        let products = lines_with(&ir::print(&body.plan.laid_out, &|_| None), &["dot "]);
        format!("{}: {}; transposed {}\n{products}", body.name, strides.join(", "), maps.join(", "))
    };
    expect![[r#"
        tensor: 8 divides a.stride(0), 8 divides b.stride(0), 4 divides out.stride(0), a.stride(1) is 1, b.stride(1) is 1, out.stride(1) is 1; transposed false, false, false
        %25 = warp_group_dot [64, 64] of a(%22, %19), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
        tensor_tn: 8 divides a.stride(1), 8 divides b.stride(0), 4 divides out.stride(0), a.stride(0) is 1, b.stride(1) is 1, out.stride(1) is 1; transposed true, false, false
        %25 = warp_group_dot transposed [64, 64] of a(%19, %22), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
        tensor_nt: 8 divides a.stride(0), 8 divides b.stride(1), 4 divides out.stride(0), a.stride(1) is 1, b.stride(0) is 1, out.stride(1) is 1; transposed false, true, false
        %25 = warp_group_dot [64, 64] of a(%22, %19), transposed [64, 64] of b(%24, %19) add %20 : f32[64, 64]
        tensor_tt: 8 divides a.stride(1), 8 divides b.stride(1), 4 divides out.stride(0), a.stride(0) is 1, b.stride(0) is 1, out.stride(1) is 1; transposed true, true, false
        %25 = warp_group_dot transposed [64, 64] of a(%19, %22), transposed [64, 64] of b(%24, %19) add %20 : f32[64, 64]
        tensor_odd: out.stride(1) is 1, 63 + 63 * out.stride(0) <= 2147483647, 8 divides a.stride(0), 8 divides b.stride(0), a.stride(1) is 1, b.stride(1) is 1; transposed false, false
        %25 = warp_group_dot [64, 64] of a(%22, %19), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
        tensor_tn_odd: out.stride(1) is 1, 63 + 63 * out.stride(0) <= 2147483647, 8 divides a.stride(1), 8 divides b.stride(0), a.stride(0) is 1, b.stride(1) is 1; transposed true, false
        %25 = warp_group_dot transposed [64, 64] of a(%19, %22), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
        tensor_nt_odd: out.stride(1) is 1, 63 + 63 * out.stride(0) <= 2147483647, 8 divides a.stride(0), 8 divides b.stride(1), a.stride(1) is 1, b.stride(0) is 1; transposed false, true
        %25 = warp_group_dot [64, 64] of a(%22, %19), transposed [64, 64] of b(%24, %19) add %20 : f32[64, 64]
        tensor_tt_odd: out.stride(1) is 1, 63 + 63 * out.stride(0) <= 2147483647, 8 divides a.stride(1), 8 divides b.stride(1), a.stride(0) is 1, b.stride(0) is 1; transposed true, true
        %25 = warp_group_dot transposed [64, 64] of a(%19, %22), transposed [64, 64] of b(%24, %19) add %20 : f32[64, 64]
    "#]].assert_eq(&specializations.iter().take(8).map(of).collect::<String>());
}

/// Orders are for few views that are only read, and read as factors.
#[test]
fn column_major_specializations_are_of_operands_only() {
    let count = |changes: &[[&str; 2]]| transpose_operands(&first(&changed(changes)).0).len();
    let right = "b.load::<64, 64>(start, col)";
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&[[right, "tl::trans(b.load::<64, 64>(col, start))"]]), 3);
    assert_eq!(count(&[[right, "tl::relu(b.load::<64, 64>(start, col))"]]), 1);
    // One that is written, or read in rows as well, stays as it is.
    let written = ["out.store", "b.store(sum.to::<bf16>(), row, col); out.store"];
    assert_eq!(count(&[["b: &View", "b: &mut View"], written]), 1);
    let also = "tl::device_assert(tl::sum(b.load::<1, 64>(0, 0).to::<f32>(), 1) != 0.5, \"x\"); out.store";
    assert_eq!(count(&[["out.store", also]]), 1);
}

#[test]
fn views_meet_the_needs_of_tma() {
    let (func, _) = first(PRODUCT);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let facts = |body: &Specialization| -> String {
        body.guards.iter().map(|fact| format!("{}\n", WithNames(fact, &params))).collect()
    };
    expect![[r#"
        1 <= a.shape(0)
        a.shape(0) <= 2147483392
        1 <= a.shape(1)
        a.shape(1) <= 2147483392
        1 <= b.shape(0)
        b.shape(0) <= 2147483392
        1 <= b.shape(1)
        b.shape(1) <= 2147483392
        1 <= out.shape(0)
        out.shape(0) <= 2147483392
        1 <= out.shape(1)
        out.shape(1) <= 2147483392
        a is 16-byte aligned
        b is 16-byte aligned
        out is 16-byte aligned
        8 divides a.stride(0)
        8 divides b.stride(0)
        4 divides out.shape(1)
        4 divides out.stride(0)
        a.stride(1) is 1
        b.stride(1) is 1
        out.stride(1) is 1
    "#]]
    .assert_eq(&facts(&all_specializations(PRODUCT)[0]));
}

/// What a block asks for: shared memory, threads and tensor maps.
fn needs(source: &str) -> String {
    let first = all_specializations(source).remove(0);
    let maps: Vec<String> = first.plan.tensor_maps().iter().map(|map| format!("{:?}", map.block)).collect();
    let (bytes, threads) = (first.plan.shared_bytes(), first.plan.threads());
    format!("{}: {bytes} bytes shared, {threads} threads, maps {}\n", first.name, maps.join(" "))
}

/// Loads of large tiles, in loops with equally many iterations in all programs, by maps of nothing else, of kernels that load nothing once.
#[test]
fn loads_that_may_be_multicast() {
    let right = "b.load::<64, 64>(start, col)";
    let cases: [&[[&str; 2]]; 5] = [
        &[],
        &[[right, "tl::trans(b.load::<64, 64>(col, start))"]],
        // Offsets that differ between the programs of a cluster in each iteration.
        &[[right, "b.load::<64, 64>(start + tl::program_id(0).to::<i64>() * 64, col)"]],
        &[["a.shape(1)", "tl::program_id(0).to::<i64>() * 64"]],
        &[[right, "b.load::<64, 64>(0, col)"]],
    ];
    let two_blocks = large(PRODUCT).replace("num_warps = 8", "num_warps = 8, num_ctas = 2");
    let sources =
        cases.iter().map(|changes| large(&changed(changes))).chain([two_blocks, PRODUCT.to_string()]);
    let shared = sources.map(|source| {
        let first = all_specializations(&source).remove(0);
        let maps: Vec<bool> = first.plan.tensor_maps().iter().map(|map| map.multicast.is_some()).collect();
        format!("{}: {maps:?}\n", first.name)
    });
    expect![[r#"
        tensor: [true, true, false]
        tensor: [true, true, false]
        tensor: [true, false, false]
        tensor: [false, false, false]
        tensor: [false, false, false]
        aligned: []
        tensor: [false, false, false]
    "#]]
    .assert_eq(&shared.collect::<String>());
}

/// As many turns are under way as are asked for, or as there is room for.
#[test]
fn stages_fall_until_they_fit() {
    let of = |[rows, columns, stages]: [u32; 3]| {
        let tile = format!("{rows}, {columns}");
        needs(&changed(&[
            ["num_warps = 4", &format!("num_warps = 8, num_stages = {stages}")],
            ["a.load::<64, 64>", &format!("a.load::<{rows}, 64>")],
            ["b.load::<64, 64>", &format!("b.load::<64, {columns}>")],
            ["[64, 64]", &format!("[{tile}]")],
        ]))
    };
    let cases = [[128, 128, 1], [128, 128, 2], [128, 128, 7], [128, 128, 8], [256, 256, 3], [256, 256, 4]];
    expect![[r#"
        tensor: 65616 bytes shared, 384 threads, maps [128, 64] [64, 64] [64, 32]
        tensor: 98400 bytes shared, 384 threads, maps [128, 64] [64, 64] [64, 32]
        tensor: 229536 bytes shared, 384 threads, maps [128, 64] [64, 64] [64, 32]
        tensor: 229536 bytes shared, 384 threads, maps [128, 64] [64, 64] [64, 32]
        tensor: 229488 bytes shared, 384 threads, maps [256, 64] [64, 64] [64, 32]
        tensor: 229488 bytes shared, 384 threads, maps [256, 64] [64, 64] [64, 32]
    "#]]
    .assert_eq(&cases.map(of).concat());
}

/// Nobody asked: a ring takes the memory that no second block, or third, could use, up to 8 stages; not where a counter gives programs.
#[test]
fn rings_take_memory_that_no_block_could_use() {
    let of = |[rows, columns]: [u32; 2], counted: bool| {
        let tile = format!("{rows}, {columns}");
        let mut changes = vec![
            ["a.load::<64, 64>".to_string(), format!("a.load::<{rows}, 64>")],
            ["b.load::<64, 64>".to_string(), format!("b.load::<64, {columns}>")],
            ["[64, 64]".to_string(), format!("[{tile}]")],
        ];
        if counted {
            changes.push(["(0..a.shape(1))".into(), "(0..row + 64)".into()]);
        }
        let changes: Vec<[&str; 2]> = changes.iter().map(|[from, to]| [from.as_str(), to.as_str()]).collect();
        let plan = all_specializations(&changed(&changes)).remove(0).plan;
        assert_eq!(plan.is_dynamic_persistent(), counted);
        let blocks = 228 * 1024 / (plan.shared_bytes() + 1024);
        format!("{rows} x {columns}: {} bytes, {blocks} blocks\n", plan.shared_bytes())
    };
    expect![[r#"
        64 x 64: 114848 bytes, 2 blocks
        64 x 64: 82056 bytes, 2 blocks
        64 x 128: 114816 bytes, 2 blocks
        64 x 256: 221328 bytes, 1 blocks
    "#]]
    .assert_eq(
        &[of([64, 64], false), of([64, 64], true), of([64, 128], false), of([64, 256], false)].concat(),
    );
}

/// Blocks that are copied once are all in shared memory at the same time.
#[test]
fn tiles_that_do_not_fit_are_not_loaded_by_tma() {
    let of = |inner: u32| {
        needs(&format!(
            "#[fuse_kernel(num_warps = 4)]
            fn twice(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>) {{
                let left = tl::dot(a.load::<64, {inner}>(0, 0), tl::trans(b.load::<64, {inner}>(0, 0)));
                let right = tl::dot(a.load::<64, {inner}>(0, {inner}), tl::trans(b.load::<64, {inner}>(0, {inner})));
                out.store(left * right, 0, 0);
            }}"
        ))
    };
    expect![[r#"
        tensor: 82112 bytes shared, 160 threads, maps [64, 64] [64, 64] [64, 32]
        tensor: 213120 bytes shared, 160 threads, maps [64, 64] [64, 64] [64, 32]
        tensor_tn: 214112 bytes shared, 160 threads, maps [64, 64] [64, 32]
    "#]]
    .assert_eq(&[64, 384, 512].map(of).concat());
}

/// Scratch memory comes first, then blocks, then what leaves: programs follow each other, so that none lies on another.
#[test]
fn tma_buffers_are_between_scratch_and_epilogue_buffers() {
    let narrow = ["out: &mut View<f32, 2>", "out: &mut View<bf16, 2>"];
    let stored = ["out.store(sum,", "out.store(sum.to::<bf16>(),"];
    let reduced: &[[&str; 2]] = &[
        ["num_warps = 4", "num_warps = 8"],
        ["b.load::<64, 64>", "b.load::<64, 128>"],
        ["[64, 64]", "[64, 128]"],
        ["sum);", "sum) - tl::max(sum, 1).col();"],
    ];
    let cases = [vec![], vec![narrow, stored], reduced.to_vec(), [reduced, &[narrow, stored]].concat()];
    expect![[r#"
        tensor: 114848 bytes shared, 160 threads, maps [64, 64] [64, 64] [64, 32]
        tensor: 73856 bytes shared, 160 threads, maps [64, 64] [64, 64] [64, 64]
        tensor: 230592 bytes shared, 384 threads, maps [64, 64] [64, 64] [64, 32]
        tensor: 214208 bytes shared, 384 threads, maps [64, 64] [64, 64] [64, 64]
    "#]]
    .assert_eq(&cases.map(|changes| needs(&changed(&changes))).concat());
}

// ---- code

#[test]
fn a_producer_warp_loads_for_consumer_warpgroups() {
    let kept = ["mbarrier", "cp.async.bulk", "wgmma", "setmaxnreg", "bar.sync", "elect", "reqntid"];
    expect![[r#"
        .reqntid 160
        mbarrier.init.shared::cta.b64 [%rd8], 1;
        mbarrier.init.shared::cta.b64 [%rd9], 1;
        mbarrier.init.shared::cta.b64 [%rd10], 1;
        mbarrier.init.shared::cta.b64 [%rd11], 1;
        mbarrier.init.shared::cta.b64 [%rd12], 1;
        mbarrier.init.shared::cta.b64 [%rd13], 1;
        mbarrier.init.shared::cta.b64 [%rd14], 4;
        mbarrier.init.shared::cta.b64 [%rd15], 4;
        mbarrier.init.shared::cta.b64 [%rd16], 4;
        mbarrier.init.shared::cta.b64 [%rd17], 4;
        mbarrier.init.shared::cta.b64 [%rd18], 4;
        mbarrier.init.shared::cta.b64 [%rd19], 4;
        mbarrier.init.shared::cta.b64 [%rd20], 1;
        mbarrier.init.shared::cta.b64 [%rd21], 1;
        mbarrier.init.shared::cta.b64 [%rd22], 4;
        mbarrier.init.shared::cta.b64 [%rd23], 4;
        fence.mbarrier_init.release.cluster;
        bar.sync 	0;
        elect.sync _|chosen, -1;
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd72], %r106;
        mbarrier.arrive.shared::cta.b64 _, [%rd74];
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd85], %r103;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd86], 16384;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd87], [%rd6, {%r100, %r87}], [%rd86];
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd88], [%rd7, {%r88, %r100}], [%rd86];
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd25], %r146;
        @%p3 mbarrier.arrive.shared::cta.b64 _, [%rd27];
        wgmma.wait_group.sync.aligned 0;
        @%p22 mbarrier.arrive.shared::cta.b64 _, [%rd36];
        @%p10 cp.async.bulk.wait_group.read 0;
        bar.sync 9, 128;
        bar.sync 9, 128;
        @%p10 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r48, %r49}], [%rd41];
        @%p10 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r50, %r49}], [%rd42];
        @%p10 cp.async.bulk.commit_group;
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd43], %r107;
        @%p3 mbarrier.arrive.shared::cta.b64 _, [%rd45];
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd31], %r147;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r143, %r142, %r141, %r140, %r139, %r138, %r137, %r136, %r135, %r134, %r133, %r132, %r131, %r130, %r129, %r128, %r127, %r126, %r125, %r124, %r123, %r122, %r121, %r120, %r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, again, 1, 1, 0, 1;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r143, %r142, %r141, %r140, %r139, %r138, %r137, %r136, %r135, %r134, %r133, %r132, %r131, %r130, %r129, %r128, %r127, %r126, %r125, %r124, %r123, %r122, %r121, %r120, %r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, all, 1, 1, 0, 1;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r143, %r142, %r141, %r140, %r139, %r138, %r137, %r136, %r135, %r134, %r133, %r132, %r131, %r130, %r129, %r128, %r127, %r126, %r125, %r124, %r123, %r122, %r121, %r120, %r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, all, 1, 1, 0, 1;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r143, %r142, %r141, %r140, %r139, %r138, %r137, %r136, %r135, %r134, %r133, %r132, %r131, %r130, %r129, %r128, %r127, %r126, %r125, %r124, %r123, %r122, %r121, %r120, %r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, all, 1, 1, 0, 1;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 1;
        @%p22 mbarrier.arrive.shared::cta.b64 _, [%rd35];
        cp.async.bulk.wait_group.read 0;
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd92], %r106;
        mbarrier.arrive.shared::cta.b64 _, [%rd94];
    "#]].assert_eq(&lines_with(&ptx(PRODUCT, Arch::SM_90A), &kept));
}

/// Blocks of a cluster of two load halves of what both take for both, and arrive at each other's barriers.
#[test]
fn blocks_of_a_cluster_multicast() {
    let kept = ["multicast", "cluster_nctarank", "cluster_ctarank", "@paired"];
    expect![[r#"
        mov.u32 	%r2, %cluster_nctarank;
        mov.u32 blocks, %cluster_nctarank;
        @paired barrier.cluster.arrive;
        @paired barrier.cluster.wait;
        mov.u32 which, %cluster_ctarank;
        @%p31 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [to], [%rd8, {%r114, row}], [%rd88], both;
        mov.u32 which, %cluster_ctarank;
        @%p32 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [to], [%rd9, {%r101, row}], [%rd88], both;
        mov.u32 which, %cluster_ctarank;
        @%p32 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [to], [%rd9, {%r102, row}], [%rd88], both;
        mov.u32 blocks, %cluster_nctarank;
        mov.u32 other, %cluster_ctarank;
        @paired mapa.shared::cluster.u64 far, %rd38, other;
        @paired mbarrier.arrive.shared::cluster.b64 _, [far];
        mov.u32 blocks, %cluster_nctarank;
        mov.u32 other, %cluster_ctarank;
        @paired mapa.shared::cluster.u64 far, %rd37, other;
        @paired mbarrier.arrive.shared::cluster.b64 _, [far];
        mov.u32 blocks, %cluster_nctarank;
        @paired barrier.cluster.arrive;
        @paired barrier.cluster.wait;
        mov.u32 blocks, %cluster_nctarank;
        @paired barrier.cluster.arrive;
        @paired barrier.cluster.wait;
    "#]].assert_eq(&lines_with(&ptx(&large(PRODUCT), Arch::SM_90A), &kept));
}

/// Integers stay in their sums from turn to turn; sums of 8-bit floats begin anew and are added as `f32`.
#[test]
fn eight_bit_wgmma_has_k_of_32() {
    let kept = ["expect_tx", "wgmma.mma", "wgmma.wait", "add.rn.f32", "add.f32"];
    let of = |changes: &[[&str; 2]]| {
        let narrow: &[[&str; 2]] = &[
            ["a.load::<64, 64>", "a.load::<64, 128>"],
            ["b.load::<64, 64>(start, col)", "tl::trans(b.load::<16, 128>(col, start))"],
            ["[64, 64]", "[64, 16]"],
            ["program_id(1) * 64", "program_id(1) * 16"],
            ["step_by(64)", "step_by(128)"],
        ];
        lines_with(&ptx(&changed(&[narrow, changes].concat()), Arch::SM_90A), &kept)
    };
    let integers = of(&[
        ["bf16", "i8"],
        ["zeros::<f32>", "zeros::<i32>"],
        ["out.store(sum,", "out.store(sum.to::<f32>(),"],
    ]);
    expect![[r#"
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd77], 10240;
        wgmma.wait_group.sync.aligned 0;
        wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, again;
        wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, all;
        wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, all;
        wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%r119, %r118, %r117, %r116, %r115, %r114, %r113, %r112}, left, right, all;
        wgmma.wait_group.sync.aligned 1;
    "#]].assert_eq(&integers);
    let floats = |most: &str| of(&[["bf16", "f8e5m2"], [", sum);\n        }", most]]);
    expect![[r#"
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd74], 10240;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}, left, right, none, 1, 1;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}, left, right, all, 1, 1;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}, left, right, all, 1, 1;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}, left, right, all, 1, 1;
        wgmma.wait_group.sync.aligned 0;
        add.f32 	%r108, %r108, %r30;
        add.f32 	%r109, %r109, %r31;
        add.f32 	%r110, %r110, %r32;
        add.f32 	%r111, %r111, %r33;
        add.f32 	%r112, %r112, %r34;
        add.f32 	%r113, %r113, %r35;
        add.f32 	%r114, %r114, %r36;
        add.f32 	%r115, %r115, %r37;
    "#]].assert_eq(&floats(", sum).max_num_imprecise_acc(128);\n        }"));
    expect![[r#"
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd74], 10240;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}, left, right, none, 1, 1;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r30, %r31, %r32, %r33, %r34, %r35, %r36, %r37}, left, right, all, 1, 1;
        wgmma.wait_group.sync.aligned 0;
        add.f32 	%r60, %r130, %r30;
        add.f32 	%r61, %r131, %r31;
        add.f32 	%r62, %r132, %r32;
        add.f32 	%r63, %r133, %r33;
        add.f32 	%r64, %r134, %r34;
        add.f32 	%r65, %r135, %r35;
        add.f32 	%r66, %r136, %r36;
        add.f32 	%r67, %r137, %r37;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r40, %r41, %r42, %r43, %r44, %r45, %r46, %r47}, left, right, none, 1, 1;
        wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e5m2 {%r40, %r41, %r42, %r43, %r44, %r45, %r46, %r47}, left, right, all, 1, 1;
        wgmma.wait_group.sync.aligned 0;
        add.f32 	%r130, %r60, %r40;
        add.f32 	%r131, %r61, %r41;
        add.f32 	%r132, %r62, %r42;
        add.f32 	%r133, %r63, %r43;
        add.f32 	%r134, %r64, %r44;
        add.f32 	%r135, %r65, %r45;
        add.f32 	%r136, %r66, %r46;
        add.f32 	%r137, %r67, %r47;
    "#]].assert_eq(&floats(", sum).max_num_imprecise_acc(64);\n        }"));
}

/// Three groups share 192 rows, unless warps pass each other parts of them.
#[test]
fn three_warpgroups_tile_rows() {
    let of = |stored: &str| {
        let source = changed(&[
            ["(num_warps = 4)", ""],
            ["a.load::<64, 64>", "a.load::<192, 64>"],
            ["b.load::<64, 64>", "b.load::<64, 128>"],
            ["[64, 64]", "[192, 128]"],
            ["out.store(sum", stored],
        ]);
        let first = &all_specializations(&source)[0];
        (first.name.clone(), first.plan.threads())
    };
    assert_eq!(of("out.store(sum"), ("tensor".to_string(), (12 + 4) * 32));
    assert_eq!(of("out.store(sum - tl::max(sum, 1).col()"), ("tensor".to_string(), (12 + 4) * 32));
    assert_eq!(of("out.store(sum - tl::max(sum, 0).row()"), ("tensor".to_string(), (8 + 4) * 32));
    assert_eq!(of("out.store(tl::cumsum(sum, 0)"), ("tensor".to_string(), (8 + 4) * 32));
}

/// Each body of a product of three groups, with a matrix of a batch of views to store to, and with one of another shape.
#[test]
fn three_warpgroups_store_to_any_view() {
    for (view, stored) in [
        ("View<f32, 3>", "out.store(tl::reshape(sum, [1, 192, 192]), 0, row, col)"),
        ("View<f32, 2>", "out.store(tl::reshape(sum, [96, 384]), row, col)"),
        ("View<f32, 1>", "out.store(tl::reshape(sum, [192 * 192]), row)"),
    ] {
        let source = changed(&[
            ["(num_warps = 4)", ""],
            ["a.load::<64, 64>", "a.load::<192, 64>"],
            ["b.load::<64, 64>", "b.load::<64, 192>"],
            ["[64, 64]", "[192, 192]"],
            ["out: &mut View<f32, 2>", &format!("out: &mut {view}")],
            ["out.store(sum, row, col)", stored],
        ]);
        for (name, gpus) in all_specializations(&source).iter().map(|body| (&body.name, body.gpus)) {
            let arch = if gpus.include(Arch::SM_90A.capability) { Arch::SM_90A } else { Arch::SM_80 };
            let text = ptx_of(&source, arch, |body| body.name == *name);
            assert!(text.contains(".entry"), "{name} of {stored}");
        }
    }
}

/// Quotients of a program's number are 0 behind a comparison, and remainders are made of them: one division for each pair.
#[test]
fn the_producer_divides_where_it_must() {
    let source = changed(&[[
        "(tl::program_id(0) * 64, tl::program_id(1) * 64)",
        "(tl::program_id(0) / out.shape(1).to::<i32>() * 64, tl::program_id(0) % out.shape(1).to::<i32>() * 64)",
    ]]);
    let text = ptx(&source, Arch::SM_90A);
    let first = text.split(".entry").nth(1).expect("an entry");
    // Its place in the grid, behind a comparison, and the quotient; and the same of its peer.
    expect![[r#"
        div.u32 	%r93, %r119, %r14;
        div.u32 	%r113, %r93, %r15;
        div.u32 	%r114, %r111, %r5;
    "#]]
    .assert_eq(&lines_with(first, &["div.", "rem."]));
}

/// Groups take their registers from the warps that copy: what all have together does not grow.
#[test]
fn registers_go_to_consumers() {
    let of = |warps: &str| {
        let source = changed(&[
            ["num_warps = 4", warps],
            ["a.load::<64, 64>", "a.load::<256, 64>"],
            ["[64, 64]", "[256, 64]"],
        ]);
        format!("{warps}\n{}", lines_with(&ptx(&source, Arch::SM_90A), &["maxnreg", "reqntid"]))
    };
    expect![[r#"
        num_warps = 4
        .reqntid 160
        num_warps = 8
        .reqntid 384
        setmaxnreg.dec.sync.aligned.u32 40;
        setmaxnreg.inc.sync.aligned.u32 232;
        num_warps = 8, maxnreg = 128
        .reqntid 384
        .maxnreg 128
        setmaxnreg.dec.sync.aligned.u32 32;
        setmaxnreg.inc.sync.aligned.u32 176;
        num_warps = 16
        .reqntid 640
        setmaxnreg.dec.sync.aligned.u32 32;
        setmaxnreg.inc.sync.aligned.u32 112;
    "#]]
    .assert_eq(
        &["num_warps = 4", "num_warps = 8", "num_warps = 8, maxnreg = 128", "num_warps = 16"]
            .map(of)
            .concat(),
    );
}

/// Where a block begins is computed in 64 bits and only then brought to the 32 that a copy takes: what is further out than
/// these say is outside of every view.
#[test]
fn loads_start_at_the_offsets_of_the_kernel() {
    let computed = |changes: &[[&str; 2]]| {
        let text = ptx(&changed(changes), Arch::SM_90A);
        let (copies, _) = text.rsplit_once("cp.async.bulk.tensor.2d.shared").expect("a copy");
        lines_with(copies, &["ctaid", "cvt.", "mul.", "shl.", "max.s64", "min.s64", "cp.async.bulk"])
    };
    let once = ["for start in (0..a.shape(1)).step_by(64) {", "{ let start = a.shape(1) / 64 * 64 - 64;"];
    expect![[r#"
        mov.u32 	%r130, %ctaid.x;
        mul.lo.s32 	%r106, %r8, %r9;
        mul.lo.s32 	%r3, %r106, %r10;
        mov.u32 	%r4, %nctaid.x;
        cvt.u32.u64 	%r108, %rd2;
        shl.b32 	%r116, %r131, 3;
        cvt.s64.s32 	%rd72, %r116;
        mul.wide.s32 	%rd76, %r127, 64;
        shl.b32 	%r117, %r126, 3;
        cvt.s64.s32 	%rd77, %r117;
        max.s64 	%rd79, %rd76, -2147483648;
        min.s64 	%rd80, %rd79, 2147483392;
        cvt.u32.u64 	%r114, %rd80;
        shl.b32 	%r118, %r126, 13;
        cvt.s64.s32 	%rd81, %r118;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd66], [%rd67, {%r113, %r114}], [%rd65];
        mul.wide.s32 	%rd82, %r128, 64;
        max.s64 	%rd83, %rd82, -2147483648;
        min.s64 	%rd84, %rd83, 2147483392;
        cvt.u32.u64 	%r115, %rd84;
    "#]]
    .assert_eq(&computed(&[once]));
    let by_stride = ["(tl::program_id(0) * 64, ", "(tl::program_id(0).to::<i64>() * a.stride(0), "];
    expect![[r#"
        mov.u32 	%r130, %ctaid.x;
        mul.lo.s32 	%r106, %r8, %r9;
        mul.lo.s32 	%r3, %r106, %r10;
        mov.u32 	%r4, %nctaid.x;
        cvt.u32.u64 	%r108, %rd2;
        shl.b32 	%r116, %r131, 3;
        cvt.s64.s32 	%rd74, %r116;
        cvt.s64.s32 	%rd78, %r127;
        mul.lo.s64 	%rd79, %rd3, %rd78;
        shl.b32 	%r117, %r126, 3;
        cvt.s64.s32 	%rd80, %r117;
        max.s64 	%rd82, %rd79, -2147483648;
        min.s64 	%rd83, %rd82, 2147483392;
        cvt.u32.u64 	%r114, %rd83;
        shl.b32 	%r118, %r126, 13;
        cvt.s64.s32 	%rd84, %r118;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd68], [%rd69, {%r113, %r114}], [%rd67];
        mul.wide.s32 	%rd85, %r128, 64;
        max.s64 	%rd86, %rd85, -2147483648;
        min.s64 	%rd87, %rd86, 2147483392;
        cvt.u32.u64 	%r115, %rd87;
    "#]]
    .assert_eq(&computed(&[once, by_stride]));
}

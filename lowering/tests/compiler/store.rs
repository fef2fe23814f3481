//! Stores of dots: which go through shared memory once, for whole vectors along a row, and where that memory is.

use expect_test::{Expect, expect};
use tile_ir::ir;
use tile_ir::ir::Shape;
use tile_ir::ops::InputPrecision;
use tile_ir::support::dtype::DType;

use super::{first, lines_with, ptx};
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::specializations;
use lowering::gpu::layout::Layout;
use lowering::gpu::layout::dot::{DotMethod, WarpTiling, method, mma_acc_layout, wgmma_acc_layout};
use lowering::gpu::layout::smem_tile::SmemTile;

const STORE: &str = "tl::store(out + rows.col() * n + cols.row(), sum.to::<bf16>());";

/// A kernel whose product is stored by `store`.
fn product(store: &str) -> String {
    format!(
        "#[fuse_kernel(num_warps = 4)]
        fn product(a: &[bf16], b: &[bf16], out: &mut [bf16], wide: &mut [f32], at: &[i32], n: i32) {{
            let (rows, cols, inner) = (tl::arange(0, 64), tl::arange(0, 64), tl::arange(0, 32));
            let a = tl::load(a + rows.col() * 32 + inner.row());
            let sum = tl::dot(a, tl::load(b + inner.col() * 64 + cols.row()));
            {store}
        }}"
    )
}

/// The conversions and stores of each body, behind its shared memory.
fn stored(source: &str) -> String {
    let (func, requests) = first(source);
    let specializations = specializations(&func, requests).expect("bodies that fit");
    specializations
        .iter()
        .map(|body| {
            let func = &body.plan.laid_out;
            let layout = |op: &ir::Op| {
                Some(body.plan.schedule.distributed.layouts.get(op.results.first()?)?.to_string())
            };
            let lines = lines_with(&ir::print(func, &layout), &["convert_layout", "store ", "atomic"]);
            format!("{}: {} bytes shared\n{lines}", body.label(), body.plan.shared_bytes())
        })
        .collect()
}

fn check_stored(store: &str, expected: Expect) {
    expected.assert_eq(&stored(&product(store)));
}

#[test]
fn a_narrow_dot_is_stored_in_whole_vectors() {
    check_stored(
        STORE,
        expect![[r#"
            aligned: 9728 bytes shared
            %32 = convert_layout %28 : bf16[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
            store %32, out[%31] inside vector 8
            partly_aligned: 9728 bytes shared
            store %30, out[%33] inside
            general: 10240 bytes shared
            store %26, out[%36]
        "#]],
    );
    check_stored(
        "tl::store(out + rows.col() * n + cols.row(), sum.to::<bf16>(), cols.row() < n);",
        expect![[r#"
            aligned: 9728 bytes shared
            %35 = convert_layout %28 : bf16[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
            store %35, out[%34] mask %31 inside vector 8
            partly_aligned: 9728 bytes shared
            store %30, out[%36] mask %33 inside
            general: 10240 bytes shared
            store %27, out[%40] mask %30
        "#]],
    );
}

/// Two neighbors of four bytes fill a sector with those of the lanes beside them.
#[test]
fn a_wide_dot_is_stored_in_its_layout() {
    check_stored(
        "tl::store(wide + rows.col() * n + cols.row(), sum);",
        expect![[r#"
            aligned: 9728 bytes shared
            store %27, wide[%32] inside vector 2
            partly_aligned: 9728 bytes shared
            store %27, wide[%32] inside
            general: 10240 bytes shared
            store %25, wide[%35]
        "#]],
    );
}

/// A loop multiplies on, a table says where to, a column has its neighbors elsewhere.
#[test]
fn other_dots_are_stored_in_their_layout() {
    check_stored(
        &format!("for _ in 0..n {{ {STORE} }}"),
        expect![[r#"
            aligned: 9728 bytes shared
            %35 = convert_layout %31 : bf16[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
            store %35, out[%34] inside vector 8
            partly_aligned: 9728 bytes shared
            store %33, out[%36] inside
            general: 10240 bytes shared
            store %29, out[%39]
        "#]],
    );
    check_stored(
        "tl::store(out + tl::load(at + rows).col() + cols.row(), sum.to::<bf16>());",
        expect![[r#"
            aligned: 10240 bytes shared
            %29 = convert_layout %28 : i64[64]  ; reg(8 16) lane(- - 1 2 4) warp(- 32)
            store %27, out[%35]
            general: 10752 bytes shared
            %29 = convert_layout %28 : i64[64]  ; reg(8 16) lane(- - 1 2 4) warp(- 32)
            store %27, out[%35]
        "#]],
    );
    check_stored(
        "tl::store(out + rows.col() + cols.row() * 64, sum.to::<bf16>());",
        expect![[r#"
        aligned: 9728 bytes shared
        store %30, out[%33] inside
        general: 10240 bytes shared
        store %30, out[%33]
    "#]],
    );
}

/// In a cluster every block would write all of it.
#[test]
fn blocks_of_a_cluster_store_in_the_layout_of_the_dot() {
    let source = product(STORE).replace("num_warps = 4", "num_warps = 4, num_ctas = 2");
    expect![[r#"
        aligned: 9728 bytes shared
        store %30, out[%33] inside vector 2
        partly_aligned: 9728 bytes shared
        store %30, out[%33] inside
        general: 10240 bytes shared
        store %26, out[%36]
        aligned.one_block: 9728 bytes shared
        %32 = convert_layout %28 : bf16[64, 64]  ; reg(1@1 2@1 4@1 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0 16@0)
        store %32, out[%31] inside vector 8
        partly_aligned.one_block: 9728 bytes shared
        store %30, out[%33] inside
        general.one_block: 10240 bytes shared
        store %26, out[%36]
    "#]].assert_eq(&stored(&source));
}

#[test]
fn a_large_dot_is_stored_in_its_layout() {
    let conversions = |columns: u32| {
        let source = product(STORE)
            .replace("tl::arange(0, 64), tl::arange(0, 64)", "tl::arange(0, 256), tl::arange(0, COLUMNS)");
        stored(&source.replace("COLUMNS", &columns.to_string())).matches("convert_layout").count()
    };
    assert_eq!([128, 256].map(conversions), [1, 0]);
}

/// What follows a loop lies where the loop had its copies, once all have read them.
#[test]
fn conversions_reuse_the_memory_of_rings() {
    let source = |store: &str| {
        format!(
            "#[fuse_kernel(num_warps = 4)]
            fn product(a: &[bf16], b: &[bf16], out: &mut [bf16], wide: &mut [f32], n: i32) {{
                let (rows, cols, inner) = (tl::arange(0, 64), tl::arange(0, 64), tl::arange(0, 32));
                let mut sum = tl::zeros::<f32>([64, 64]);
                for start in (0..n).step_by(32) {{
                    let a = tl::load(a + rows.col() * n + (start + inner).row());
                    sum = tl::dot(a, tl::load(b + (start + inner).col() * 64 + cols.row()), sum);
                }}
                {store}
            }}"
        )
    };
    let bytes = |store: &str| {
        let (func, requests) = first(&source(store));
        specializations(&func, requests).expect("bodies that fit")[0].plan.shared_bytes()
    };
    assert_eq!(bytes(STORE), bytes("tl::store(wide + rows.col() * n + cols.row(), sum);"));
    let text = ptx(&source(STORE), Arch::SM_80);
    let (_, behind) = text.rsplit_once("mma.sync").expect("a product");
    expect![[r#"
        bar.sync 	0;
        st.shared.b32 	[%rd47], %r157;
        st.shared.b32 	[%rd47+1152], %r158;
        st.shared.b32 	[%rd47+16], %r159;
        st.shared.b32 	[%rd47+1168], %r160;
        st.shared.b32 	[%rd47+32], %r161;
        st.shared.b32 	[%rd47+1184], %r162;
        st.shared.b32 	[%rd47+48], %r163;
        st.shared.b32 	[%rd47+1200], %r164;
        st.shared.b32 	[%rd47+2304], %r165;
        st.shared.b32 	[%rd47+3456], %r166;
        st.shared.b32 	[%rd47+2320], %r167;
        st.shared.b32 	[%rd47+3472], %r168;
        st.shared.b32 	[%rd47+2336], %r169;
        st.shared.b32 	[%rd47+3488], %r170;
        st.shared.b32 	[%rd47+2352], %r171;
        st.shared.b32 	[%rd47+3504], %r172;
        bar.sync 	0;
        ld.shared.v4.b32 	{%r183, %r184, %r185, %r186}, [%rd49];
        ld.shared.v4.b32 	{%r187, %r188, %r189, %r190}, [%rd49+2304];
        ld.shared.v4.b32 	{%r191, %r192, %r193, %r194}, [%rd49+4608];
        ld.shared.v4.b32 	{%r195, %r196, %r197, %r198}, [%rd49+6912];
        st.global.v4.b32 	[%rd51], {%r183, %r184, %r185, %r186};
        st.global.v4.b32 	[%rd53], {%r187, %r188, %r189, %r190};
        st.global.v4.b32 	[%rd55], {%r191, %r192, %r193, %r194};
        st.global.v4.b32 	[%rd57], {%r195, %r196, %r197, %r198};
    "#]]
    .assert_eq(&lines_with(behind, &["bar.sync", "shared", "st.global"]));
}

/// The fewest and the most words that the accesses of a warp to shared memory have in one bank, `words` to a lane: as many
/// lanes as read all banks once are served together.
fn banks(layout: &Layout, dtype: DType, words: u32) -> Vec<usize> {
    let staging = SmemTile::padded(layout.shape(), dtype);
    let together = 32 / words;
    let served = (0..32 / together).flat_map(|phase| {
        let mut uses = vec![0; 32];
        for lane in phase * together..(phase + 1) * together {
            let coord = layout.thread(lane, 0);
            let element: u32 =
                staging.strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum();
            let word = element * dtype.bytes() / 4;
            (word..word + words).for_each(|word| uses[word as usize % 32] += 1);
        }
        uses
    });
    let mut served: Vec<usize> = served.collect();
    served.sort_unstable();
    served.dedup();
    served
}

#[test]
fn conversions_have_no_bank_conflicts() {
    let DotMethod::Mma(instruction) = method(DType::BF16, InputPrecision::Ieee) else {
        panic!("tensor cores multiply bf16")
    };
    for extents in [[64, 64], [128, 64], [128, 128], [128, 256], [64, 256]] {
        let shape = Shape::new(extents);
        for deal in [WarpTiling::Square, WarpTiling::Rows] {
            assert_eq!(
                banks(&mma_acc_layout(instruction, &shape, 4, deal), DType::BF16, 1),
                [1],
                "{extents:?}"
            );
        }
        assert_eq!(banks(&wgmma_acc_layout(&shape, 8), DType::BF16, 1), [1], "{extents:?}");
        assert_eq!(banks(&Layout::of_vectors(&shape, 1, 8, 4), DType::BF16, 4), [1], "{extents:?}");
    }
}

/// The second half of a tile is computed while the GPU reads the first one, and no part of it before.
#[test]
fn what_is_stored_later_is_computed_later() {
    let source = "#[fuse_kernel(num_warps = 4)]
        fn product(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>) {
            let row = tl::program_id(0) * 64;
            let mut sum = tl::zeros::<f32>([64, 128]);
            for start in (0..a.shape(1)).step_by(64) {
                sum = tl::dot(a.load::<64, 64>(row, start), b.load::<64, 128>(start, 0), sum);
            }
            out.store(tl::exp2(sum * 0.5 + 1.0), row, 0);
        }";
    let text = ptx(source, Arch::SM_90A);
    // The loop stands behind what follows it.
    let halves: Vec<&str> = text.split("cp.async.bulk.commit_group;").take(2).collect();
    let each = |what: &str| halves.iter().map(|half| half.matches(what).count()).collect::<Vec<_>>();
    assert_eq!(each("ex2.approx"), [32, 32], "of 64 elements that a thread has");
    assert_eq!(each("fma.rn.f32"), [32, 32]);
}

//! Products by groups of four warps, of blocks that the GPU copies by itself.

use expect_test::{Expect, expect};

use super::layout::check_covers;
use super::{first, lines_with, ptx};
use crate::analysis::fact::Named;
use crate::analysis::stage::Groups;
use crate::body::{Body, bodies};
use crate::layout::Coord;
use crate::layout::dot::{group_factor_layout, group_fragments, group_layout};
use crate::target::nvptx::Arch;
use crate::tile::{self, Shape};

// ---- layouts

/// Results and the warps that make them, with how many groups share the rows and how many the columns.
const RESULTS: [([u32; 2], u32, [u32; 2]); 10] = [
    ([64, 64], 4, [1, 1]),
    ([128, 256], 4, [1, 1]),
    ([192, 128], 4, [1, 1]),
    ([128, 256], 8, [2, 1]),
    ([256, 64], 8, [2, 1]),
    ([64, 256], 8, [1, 2]),
    ([192, 128], 8, [1, 2]),
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
fn groups_share_rows_first() {
    for ([rows, columns], warps, [along_rows, along_columns]) in RESULTS {
        assert_eq!(
            Groups::new(rows, warps),
            Groups { along_rows, along_columns },
            "{rows} {columns} {warps}"
        );
    }
}

/// Each instruction of a group finds its elements in the registers of one thread, in the order of the manual.
#[test]
fn groups_hold_the_fragments_of_the_manual() {
    let [sum, factor] = group_fragments();
    for (i, offset) in sum.offsets(&Shape::new([64, 8])).into_iter().enumerate() {
        assert_eq!(offset, at(documented(0, 0, i as u32)), "sum {i}");
    }
    for (i, offset) in factor.offsets(&Shape::new([64, 16])).into_iter().enumerate() {
        assert_eq!(offset, at(documented(0, 0, i as u32)), "factor {i}");
    }
    for ([rows, columns], warps, [along_rows, along_columns]) in RESULTS {
        let inner = 32;
        let sum = group_layout(&Shape::new([rows, columns]), warps);
        let factor = group_factor_layout(&Shape::new([rows, inner]), &sum);
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

fn all_bodies(source: &str) -> Vec<Body> {
    let (func, requests) = first(source);
    bodies(&func, requests).expect("bodies that fit")
}

/// The first body's name and products, for each list of changes.
fn check_products(cases: &[&[[&str; 2]]], expected: Expect) {
    let products = |changes: &&[[&str; 2]]| {
        let first = all_bodies(&changed(changes)).remove(0);
        let lines = lines_with(&tile::print(&first.plan.distributed.func, &|_| None), &["dot "]);
        format!("{}: {lines}", first.name)
    };
    expected.assert_eq(&cases.iter().map(products).collect::<String>());
}

#[test]
fn blocks_of_views_are_multiplied_by_groups() {
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
            tensor: %25 = group_dot [64, 64] of a(%22, %19), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
            tensor: %25 = group_dot [64, 64] of a(%22, %19), [64, 128] of b(%19, %24) add %20 : f32[64, 128]
            tensor: %25 = group_dot [64, 64] of a(%22, %19), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
            tensor: %25 = group_dot [64, 64] of a(%22, %19), transposed [64, 64] of b(%24, %19) add %20 : f32[64, 64]
            tensor: %25 = group_dot transposed [64, 64] of a(%19, %22), [64, 64] of b(%19, %24) add %20 : f32[64, 64]
            tensor: %60 = group_dot %59, [64, 64] of b(%19, %58) add %20 : f32[64, 64]
            tensor: %27 = group_dot [64, 64] of a(%24, %21), [1, 64, 64] of b(%18, %21, %26) add %22 : f32[64, 64]
            tensor: %29 = group_dot [64, 64] of a(%26, %19), [64, 64] of b(%24, %28) add %20 : f32[64, 64]
        "#]],
    );
}

#[test]
fn other_products_are_multiplied_by_warps() {
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
            aligned: %86 = dot %54, %85 add %20 : f32[64, 32]
            aligned: %82 = dot %53, %81 add %20 : f32[64, 64]
            aligned: %82 = dot %53, %81 add %20 : f32[64, 64]
            aligned: %82 = dot %53, %81 add %20 : f32[64, 64]
            aligned: %85 = dot %53, %84 add %20 : f32[64, 64]
            aligned: %82 = dot %53, %81 add %20 : f32[64, 64]
            aligned: %82 = dot %53, %81 add %20 : f32[64, 64]
            aligned: %88 = dot %57, %87 add %20 : f32[64, 64]
            aligned: %102 = dot %101, %100 add %20 : f32[64, 64]
            aligned: %90 = dot %61, %89 add %26 : f32[64, 64]
            aligned: %88 = dot %59, %87 add %26 : f32[64, 64]
        "#]],
    );
}

// ---- bodies

/// A GPU whose warps multiply together has a body of its own; what it does not take goes to the general one.
#[test]
fn each_gpu_has_its_bodies() {
    let bodies = all_bodies(PRODUCT);
    let of = |capability: u32| {
        let own = bodies.iter().filter(|body| body.gpus.include(capability)).map(Body::label);
        format!("sm_{capability}: {}\n", own.collect::<Vec<_>>().join(", "))
    };
    expect![[r#"
        sm_80: aligned, general
        sm_89: aligned, general
        sm_90: tensor, general
        sm_100: aligned, general
    "#]]
    .assert_eq(&[80, 89, 90, 100].map(of).concat());
}

#[test]
fn views_are_what_copies_ask_for() {
    let (func, _) = first(PRODUCT);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let facts = |body: &Body| -> String {
        body.facts.iter().map(|fact| format!("{}\n", Named(fact, &params))).collect()
    };
    expect![[r#"
        out is 8-byte aligned
        out.stride(1) is 1
        4 divides out.shape(1)
        4 divides out.stride(0)
        63 + 63 * out.stride(0) <= 2147483647
        a is 16-byte aligned
        b is 16-byte aligned
        8 divides a.stride(0)
        8 divides b.stride(0)
        a.stride(1) is 1
        b.stride(1) is 1
        1 <= a.shape(0)
        1 <= a.shape(1)
        1 <= b.shape(0)
        1 <= b.shape(1)
        a.shape(0) <= 2147483647
        a.shape(1) <= 2147483647
        b.shape(0) <= 2147483647
        b.shape(1) <= 2147483647
    "#]]
    .assert_eq(&facts(&all_bodies(PRODUCT)[0]));
}

/// What a block asks for: shared memory, threads and tensor maps.
fn needs(source: &str) -> String {
    let first = all_bodies(source).remove(0);
    let maps: Vec<String> = first.plan.maps().iter().map(|map| format!("{:?}", map.block)).collect();
    let (bytes, threads) = (first.plan.shared_bytes(), first.plan.threads());
    format!("{}: {bytes} bytes shared, {threads} threads, maps {}\n", first.name, maps.join(" "))
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
        tensor: 32800 bytes shared, 384 threads, maps [128, 64] [64, 64]
        tensor: 65600 bytes shared, 384 threads, maps [128, 64] [64, 64]
        tensor: 229600 bytes shared, 384 threads, maps [128, 64] [64, 64]
        tensor: 229600 bytes shared, 384 threads, maps [128, 64] [64, 64]
        tensor: 196704 bytes shared, 384 threads, maps [256, 64] [64, 64]
        tensor: 196704 bytes shared, 384 threads, maps [256, 64] [64, 64]
    "#]]
    .assert_eq(&cases.map(of).concat());
}

/// Blocks that are copied once are all in shared memory at the same time.
#[test]
fn blocks_that_do_not_fit_are_not_copied() {
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
        tensor: 32832 bytes shared, 256 threads, maps [64, 64] [64, 64]
        tensor: 196672 bytes shared, 256 threads, maps [64, 64] [64, 64]
        aligned: 133120 bytes shared, 128 threads, maps 
    "#]]
    .assert_eq(&[64, 384, 512].map(of).concat());
}

/// Where nothing but what follows the last product takes scratch memory, that lies on the blocks of the products, and where
/// a loop takes some, beside them.
#[test]
fn scratch_lies_on_blocks_that_nobody_needs() {
    let narrow = ["out: &mut View<f32, 2>", "out: &mut View<bf16, 2>"];
    let stored = ["out.store(sum,", "out.store(sum.to::<bf16>(),"];
    let reduced: &[[&str; 2]] = &[
        ["num_warps = 4", "num_warps = 8"],
        ["b.load::<64, 64>", "b.load::<64, 128>"],
        ["[64, 64]", "[64, 128]"],
        ["sum);", "sum) - tl::max(sum, 1).col();"],
    ];
    let cases = [vec![], vec![narrow, stored], reduced.to_vec(), [reduced, &[narrow, stored]].concat()];
    // Programs that take equally long follow each other, and the next one's blocks come meanwhile.
    expect![[r#"
        tensor: 65664 bytes shared, 256 threads, maps [64, 64] [64, 64]
        tensor: 74880 bytes shared, 256 threads, maps [64, 64] [64, 64]
        tensor: 99456 bytes shared, 384 threads, maps [64, 64] [64, 64]
        tensor: 115840 bytes shared, 384 threads, maps [64, 64] [64, 64]
    "#]]
    .assert_eq(&cases.each_ref().map(|changes| needs(&changed(changes))).concat());
    let differing =
        |changes: &[[&str; 2]]| changed(&[changes, &[["a.shape(1))", "tl::program_id(0) * 64)"]]].concat());
    expect![[r#"
        tensor: 65664 bytes shared, 256 threads, maps [64, 64] [64, 64]
        tensor: 65664 bytes shared, 256 threads, maps [64, 64] [64, 64]
        tensor: 99456 bytes shared, 384 threads, maps [64, 64] [64, 64]
        tensor: 99456 bytes shared, 384 threads, maps [64, 64] [64, 64]
    "#]]
    .assert_eq(&cases.map(|changes| needs(&differing(&changes))).concat());
    let text = ptx(&differing(&[narrow, stored]), Arch::SM_90A);
    let (_, behind) = text.rsplit_once("wgmma").expect("a product");
    expect![[r#"
        @%p9 mbarrier.arrive.shared::cta.b64 _, [%rd45];
        @%p9 mbarrier.arrive.shared::cta.b64 _, [%rd46];
        bar.sync 	1, 128;
        st.shared.b32 	[%rd61], %r40;
        st.shared.b32 	[%rd61+1152], %r41;
        st.shared.b32 	[%rd61+16], %r42;
        st.shared.b32 	[%rd61+1168], %r43;
        st.shared.b32 	[%rd61+32], %r44;
        st.shared.b32 	[%rd61+1184], %r45;
        st.shared.b32 	[%rd61+48], %r46;
        st.shared.b32 	[%rd61+1200], %r47;
        st.shared.b32 	[%rd61+64], %r48;
        st.shared.b32 	[%rd61+1216], %r49;
        st.shared.b32 	[%rd61+80], %r50;
        st.shared.b32 	[%rd61+1232], %r51;
        st.shared.b32 	[%rd61+96], %r52;
        st.shared.b32 	[%rd61+1248], %r53;
        st.shared.b32 	[%rd61+112], %r54;
        st.shared.b32 	[%rd61+1264], %r55;
        bar.sync 	1, 128;
        ld.shared.v4.b32 	{%r24, %r25, %r26, %r27}, [%rd63];
        ld.shared.v4.b32 	{%r28, %r29, %r30, %r31}, [%rd63+2304];
        ld.shared.v4.b32 	{%r32, %r33, %r34, %r35}, [%rd63+4608];
        ld.shared.v4.b32 	{%r36, %r37, %r38, %r39}, [%rd63+6912];
        @%p10 st.global.v4.b32 [%rd47], {%r24, %r25, %r26, %r27};
        @%p11 st.global.v4.b32 [%rd48], {%r28, %r29, %r30, %r31};
        @%p12 st.global.v4.b32 [%rd49], {%r32, %r33, %r34, %r35};
        @%p13 st.global.v4.b32 [%rd50], {%r36, %r37, %r38, %r39};
    "#]]
    .assert_eq(&lines_with(behind, &["bar", "st.shared", "ld.shared", "st.global"]));
}

/// Scratch memory beside the blocks, as programs that follow each other need it, may leave no room for a second turn:
/// then they do not follow each other.
#[test]
fn turns_overlap_before_programs_do() {
    let of = |stages: u32| {
        let source = changed(&[
            ["num_warps = 4", &format!("num_warps = 8, num_stages = {stages}")],
            ["step_by(64)", "step_by(128)"],
            ["a.load::<64, 64>", "a.load::<128, 128>"],
            ["b.load::<64, 64>", "b.load::<128, 256>"],
            ["[64, 64]", "[128, 256]"],
            ["out: &mut View<f32, 2>", "out: &mut View<bf16, 2>"],
            ["out.store(sum,", "out.store(sum.to::<bf16>(),"],
        ]);
        let follow = all_bodies(&source)[0].plan.persistent();
        format!("{stages}, one after the other {follow}: {}", needs(&source))
    };
    expect![[r#"
        1, one after the other true: tensor: 165920 bytes shared, 384 threads, maps [128, 64] [128, 64]
        2, one after the other false: tensor: 196672 bytes shared, 384 threads, maps [128, 64] [128, 64]
        4, one after the other false: tensor: 196672 bytes shared, 384 threads, maps [128, 64] [128, 64]
    "#]]
    .assert_eq(&[1, 2, 4].map(of).concat());
}

// ---- code

#[test]
fn a_warp_copies_what_a_group_multiplies() {
    let kept = ["mbarrier", "cp.async.bulk", "wgmma", "setmaxnreg", "bar.sync", "elect", "reqntid"];
    expect![[r#"
        .reqntid 256
        mbarrier.init.shared::cta.b64 [%rd18], 1;
        mbarrier.init.shared::cta.b64 [%rd19], 1;
        mbarrier.init.shared::cta.b64 [%rd20], 1;
        mbarrier.init.shared::cta.b64 [%rd21], 1;
        mbarrier.init.shared::cta.b64 [%rd22], 1;
        mbarrier.init.shared::cta.b64 [%rd23], 1;
        mbarrier.init.shared::cta.b64 [%rd24], 1;
        mbarrier.init.shared::cta.b64 [%rd25], 1;
        mbarrier.init.shared::cta.b64 [%rd26], 4;
        mbarrier.init.shared::cta.b64 [%rd27], 4;
        mbarrier.init.shared::cta.b64 [%rd28], 4;
        mbarrier.init.shared::cta.b64 [%rd29], 4;
        mbarrier.init.shared::cta.b64 [%rd30], 4;
        mbarrier.init.shared::cta.b64 [%rd31], 4;
        mbarrier.init.shared::cta.b64 [%rd32], 4;
        mbarrier.init.shared::cta.b64 [%rd33], 4;
        fence.mbarrier_init.release.cluster;
        bar.sync 	0;
        elect.sync _|chosen, -1;
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd112], %r71;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd113], 8192;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd114], [%rd115, {%r63, %r64}], [%rd113];
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd116], %r71;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%rd117], 8192;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd118], [%rd119, {%r65, %r63}], [%rd117];
        bar.sync 	1, 128;
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd42], %r106;
        mbarrier.try_wait.parity.shared::cta.b64 done, [%rd43], %r106;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r104, %r103, %r102, %r101, %r100, %r99, %r98, %r97, %r96, %r95, %r94, %r93, %r92, %r91, %r90, %r89, %r88, %r87, %r86, %r85, %r84, %r83, %r82, %r81, %r80, %r79, %r78, %r77, %r76, %r75, %r74, %r73}, left, right, again, 1, 1, 0, 1;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r104, %r103, %r102, %r101, %r100, %r99, %r98, %r97, %r96, %r95, %r94, %r93, %r92, %r91, %r90, %r89, %r88, %r87, %r86, %r85, %r84, %r83, %r82, %r81, %r80, %r79, %r78, %r77, %r76, %r75, %r74, %r73}, left, right, all, 1, 1, 0, 1;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r104, %r103, %r102, %r101, %r100, %r99, %r98, %r97, %r96, %r95, %r94, %r93, %r92, %r91, %r90, %r89, %r88, %r87, %r86, %r85, %r84, %r83, %r82, %r81, %r80, %r79, %r78, %r77, %r76, %r75, %r74, %r73}, left, right, all, 1, 1, 0, 1;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r104, %r103, %r102, %r101, %r100, %r99, %r98, %r97, %r96, %r95, %r94, %r93, %r92, %r91, %r90, %r89, %r88, %r87, %r86, %r85, %r84, %r83, %r82, %r81, %r80, %r79, %r78, %r77, %r76, %r75, %r74, %r73}, left, right, all, 1, 1, 0, 1;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 1;
        @%p12 mbarrier.arrive.shared::cta.b64 _, [%rd58];
        @%p12 mbarrier.arrive.shared::cta.b64 _, [%rd59];
        wgmma.wait_group.sync.aligned 0;
        @%p12 mbarrier.arrive.shared::cta.b64 _, [%rd61];
        @%p12 mbarrier.arrive.shared::cta.b64 _, [%rd62];
    "#]].assert_eq(&lines_with(&ptx(PRODUCT, Arch::SM_90A), &kept));
}

/// Groups take their registers from the warps that copy: what all have together does not grow.
#[test]
fn registers_go_where_products_are() {
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
        .reqntid 256
        num_warps = 8
        .reqntid 384
        setmaxnreg.dec.sync.aligned.u32 40;
        setmaxnreg.inc.sync.aligned.u32 232;
        num_warps = 8, maxnreg = 128
        .reqntid 384
        .maxnreg 128
        setmaxnreg.dec.sync.aligned.u32 40;
        setmaxnreg.inc.sync.aligned.u32 168;
        num_warps = 16
        .reqntid 640
        setmaxnreg.dec.sync.aligned.u32 40;
        setmaxnreg.inc.sync.aligned.u32 104;
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
fn copies_begin_where_the_kernel_says() {
    let computed = |changes: &[[&str; 2]]| {
        let text = ptx(&changed(changes), Arch::SM_90A);
        let (copies, _) = text.rsplit_once("cp.async.bulk").expect("a copy");
        lines_with(copies, &["ctaid", "cvt.", "mul.", "shl.", "max.s64", "min.s64", "cp.async.bulk"])
    };
    let once = ["for start in (0..a.shape(1)).step_by(64) {", "{ let start = a.shape(1) / 64 * 64 - 64;"];
    expect![[r#"
        mov.u32 	%r2, %ctaid.x;
        cvt.u64.u32 	%rd73, %r7;
        mul.wide.u32 	%rd74, %r5, %r6;
        mul.lo.s64 	%rd3, %rd74, %rd73;
        cvt.u64.u32 	%rd101, %r2;
        cvt.u64.u32 	%rd1, %r5;
        cvt.u64.u32 	%rd2, %r6;
        mov.u32 	%r77, %nctaid.x;
        cvt.u64.u32 	%rd4, %r77;
        max.s64 	%rd80, %rd79, -2147483648;
        min.s64 	%rd81, %rd80, 2147483647;
        cvt.u32.u64 	%r86, %rd81;
        shl.b64 	%rd93, %rd103, 32;
        max.s64 	%rd95, %rd94, -2147483648;
        min.s64 	%rd96, %rd95, 2147483647;
        cvt.u32.u64 	%r87, %rd96;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd87], [%rd88, {%r86, %r87}], [%rd86];
        shl.b64 	%rd97, %rd104, 32;
        max.s64 	%rd99, %rd98, -2147483648;
        min.s64 	%rd100, %rd99, 2147483647;
        cvt.u32.u64 	%r88, %rd100;
    "#]]
    .assert_eq(&computed(&[once]));
    let by_stride = ["(tl::program_id(0) * 64, ", "(tl::program_id(0).to::<i64>() * a.stride(0), "];
    expect![[r#"
        mov.u32 	%r2, %ctaid.x;
        cvt.u64.u32 	%rd74, %r7;
        mul.wide.u32 	%rd75, %r5, %r6;
        mul.lo.s64 	%rd3, %rd75, %rd74;
        cvt.u64.u32 	%rd102, %r2;
        cvt.u64.u32 	%rd1, %r5;
        cvt.u64.u32 	%rd2, %r6;
        mov.u32 	%r77, %nctaid.x;
        cvt.u64.u32 	%rd4, %r77;
        max.s64 	%rd81, %rd80, -2147483648;
        min.s64 	%rd82, %rd81, 2147483647;
        cvt.u32.u64 	%r86, %rd82;
        cvt.s64.s32 	%rd94, %rd104;
        mul.lo.s64 	%rd95, %rd94, %rd10;
        max.s64 	%rd96, %rd95, -2147483648;
        min.s64 	%rd97, %rd96, 2147483647;
        cvt.u32.u64 	%r87, %rd97;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd88], [%rd89, {%r86, %r87}], [%rd87];
        shl.b64 	%rd98, %rd105, 32;
        max.s64 	%rd100, %rd99, -2147483648;
        min.s64 	%rd101, %rd100, 2147483647;
        cvt.u32.u64 	%r88, %rd101;
    "#]]
    .assert_eq(&computed(&[once, by_stride]));
}

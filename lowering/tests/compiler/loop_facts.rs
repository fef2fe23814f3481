//! Facts about arguments that real launches meet, and facts about loaded scalars, which the kernel itself checks.

use expect_test::{Expect, expect};
use tile_ir::ir;
use tile_ir::ir::guard::WithNames;
use tile_ir::ir::{Block, Func};
use tile_ir::ops::{If, Kind};

use super::copied_wgmma::{int, small};
use super::first;
use lowering::devtools::schedule_simulator::{Launch, check_schedule};
use lowering::driver::pipeline::shared;
use lowering::driver::specialize::specializations;
use lowering::gpu::specialization::Specialization;

fn bodies(source: &str) -> (Vec<Specialization>, Vec<String>) {
    let (mut func, requests) = first(source);
    ir::strip_debug(&mut func);
    shared(&mut func, requests).expect("valid tile IR");
    let params = func.params.iter().map(|param| param.name.clone()).collect();
    (specializations(&func, requests).expect("bodies that fit"), params)
}

/// Compares the guards of each specialization of a release build.
fn check_guards(source: &str, expected: Expect) {
    let (bodies, params) = bodies(source);
    let of = |body: &Specialization| {
        let guards = body.guards.iter().map(|guard| format!("  {}\n", WithNames(guard, &params)));
        format!("{}\n{}", body.name, guards.collect::<String>())
    };
    expected.assert_eq(&bodies.iter().map(of).collect::<String>());
}

/// Returns, for each specialization with two versions of a loop, the widest access of each version in elements.
fn versions(bodies: &[Specialization]) -> String {
    let mut text = String::new();
    for body in bodies {
        body.plan.laid_out.body.walk(&mut |op| {
            if let Kind::If(If { then, otherwise, .. }) = &op.kind {
                text += &format!("{}: {} else {}\n", body.name, widest(then), widest(otherwise));
            }
        });
    }
    text
}

fn widest(block: &Block) -> u32 {
    let mut widest = 0;
    block.walk(&mut |op| {
        widest = op.kind.operation().access().map_or(widest, |place| widest.max(place.vector));
    });
    widest
}

/// Simulates the specializations that have two versions of a loop, and compares them with the one that has none.
fn check_versions(source: &str, launches: &[&dyn Fn(&Func) -> Launch]) {
    let (bodies, _) = bodies(source);
    let versioned: Vec<_> =
        bodies.iter().filter(|body| !versions(std::slice::from_ref(body)).is_empty()).collect();
    assert!(!versioned.is_empty());
    let general = &bodies.last().expect("a body for any arguments").plan.laid_out;
    for body in versioned {
        let scheduled = &body.plan.schedule.distributed.func;
        for (number, launch) in launches.iter().enumerate() {
            check_schedule(scheduled, general, &launch(scheduled), 0.0)
                .unwrap_or_else(|fault| panic!("{}, launch {number}: {fault}", body.name));
        }
    }
}

const GROUPED: &str = "#[fuse_kernel(num_warps = 4)]
    fn grouped(a: &[bf16], b: &[bf16], c: &mut [f32], sizes: &[i32], starts: &[i64], groups: i32) {
        let columns = tl::arange(0, 64);
        let (mut tile, mut first) = (tl::program_id(0), 0);
        for group in 0..groups {
            let (rows, k) = (tl::load(sizes + group * 2), tl::load(sizes + group * 2 + 1));
            let (a, c) = (a + tl::load(starts + group * 2), c + tl::load(starts + group * 2 + 1));
            let end = first + tl::cdiv(rows, 64);
            while tile < end {
                let row = (tile - first) * 64 + tl::arange(0, 64);
                let mut acc = tl::zeros::<f32>([64, 64]);
                for start in (0..k).step_by(64) {
                    let inner = start + tl::arange(0, 64);
                    let mask = (row < rows).col() & (inner < k).row();
                    let left = tl::load(a + (row.col() * k + inner.row()), mask, 0.0);
                    let right = tl::load(b + (inner.col() * 64 + columns.row()), (inner < k).col(), 0.0);
                    acc = tl::dot(left, right, acc);
                }
                tl::store(c + (row.col() * 64 + columns.row()), acc, (row < rows).col());
                tile += tl::num_programs(0);
            }
            first = end;
        }
    }";

/// Groups of rows and K, all of them behind the `gap` first elements of their slices.
fn grouped(func: &Func, gap: usize, groups: &[[usize; 2]]) -> Launch {
    let (mut sizes, mut starts, mut end_a, mut end_c) = (vec![], vec![], gap, gap);
    for &[rows, k] in groups {
        sizes.extend([rows as f64, k as f64]);
        starts.extend([end_a as f64, end_c as f64]);
        (end_a, end_c) = (end_a + rows * k, end_c + rows * 64);
    }
    let k = groups.iter().map(|&[_, k]| k).max().unwrap_or(0);
    let [end_a, end_c] = [end_a, end_c].map(|end| end.next_multiple_of(8));
    let launch = Launch::new([2, 1, 1], 4).slice(func, "a", (0..end_a).map(small));
    let launch = launch.slice(func, "b", (0..k * 64).map(small)).slice(func, "c", vec![-1.0; end_c]);
    let launch = launch.slice(func, "sizes", sizes).slice(func, "starts", starts);
    launch.scalar(func, "groups", int(groups.len()))
}

/// Sizes and places of groups come from tables: a group whose K and place are multiples of a vector is copied in vectors, another
/// one in elements, both by the same launch.
#[test]
fn a_grouped_product_checks_each_group() {
    expect![[r#"
        aligned_wgmma: 8 else 8
        aligned: 8 else 8
    "#]]
    .assert_eq(&versions(&bodies(GROUPED).0));
    check_versions(
        GROUPED,
        &[
            &|func| grouped(func, 0, &[[64, 64], [72, 136]]),
            &|func| grouped(func, 0, &[[64, 64], [70, 67], [8, 128]]),
            &|func| grouped(func, 3, &[[64, 64], [8, 72]]),
        ],
    );
}

/// Accumulators leave both versions for a store behind them, whose place is known.
#[test]
fn a_result_leaves_the_versions_of_its_loop() {
    let source = GROUPED.replace("c + tl::load(starts + group * 2 + 1)", "c + group * 4096");
    check_versions(
        &source,
        &[&|func| grouped(func, 0, &[[64, 72], [64, 128]]), &|func| grouped(func, 1, &[[64, 64], [64, 67]])],
    );
}

/// Where every size is an argument, guards check them, and loops have one version.
#[test]
fn arguments_are_checked_by_guards_alone() {
    let source =
        GROUPED.replace("tl::load(sizes + group * 2 + 1)", "n").replace("groups: i32", "groups: i32, n: i32");
    let source = source.replace("tl::load(starts + group * 2)", "group * n * 64");
    let source = source.replace("tl::load(starts + group * 2 + 1)", "group * 64");
    assert_eq!(versions(&bodies(&source).0), "");
}

/// A stride of single elements beside a tile of rows is no reason to ask that it is 1.
#[test]
fn the_stride_of_a_small_store_is_no_unit_stride() {
    check_guards(
        "#[fuse_kernel(num_warps = 4)]
        fn k(x: &[bf16], out: &mut [bf16], sums: &mut [f32], start: &[i32], heads: i32) {
            let rows = tl::load(start + tl::program_id(0)) + tl::arange(0, 64);
            let head = tl::program_id(1);
            let at = rows.col() * heads * 128 + head * 128 + tl::arange(0, 128).row();
            let tile = tl::load(x + at);
            tl::store(out + at, tile);
            tl::store(sums + rows * heads + head, tl::sum(tile.to::<f32>(), 1));
        }",
        expect![[r#"
            aligned
              x is 16-byte aligned
              out is 16-byte aligned
              8 divides x.len()
              8 divides out.len()
              num_programs(0) <= start.len()
              0 <= heads
              127 + 8064 * heads <= 2147483647
              63 * heads <= 2147483647
            odd
              num_programs(0) <= start.len()
              0 <= heads
              127 + 8064 * heads <= 2147483647
              63 * heads <= 2147483647
            general
        "#]],
    );
}

/// A place may be before the first element where the mask is false.
#[test]
fn padding_may_have_any_size() {
    check_guards(
        "#[fuse_kernel(num_warps = 4)]
        fn k(x: &[f32], out: &mut [f32], n: i32, pad: i32) {
            let i = tl::program_id(0) * 1024 + tl::arange(0, 1024);
            let at = i % n + tl::program_id(1) - pad;
            tl::store(out + tl::program_id(1) * n + i, tl::load(x + at, (at >= 0) & (at < n), 0.0));
        }",
        expect![[r#"
            aligned
              out is 16-byte aligned
              4 divides n
              1 <= n
              -1 + 1024 * num_programs(0) <= 2147483647
              -2 + n - pad + num_programs(1) <= 2147483647
              n <= x.len()
              -n + n * num_programs(1) + 1024 * num_programs(0) <= out.len()
            unaligned
              out is 16-byte aligned
              1 <= n
              -1 + 1024 * num_programs(0) <= 2147483647
              -2 + n - pad + num_programs(1) <= 2147483647
              n <= x.len()
              -n + n * num_programs(1) + 1024 * num_programs(0) <= out.len()
            general
        "#]],
    );
}

/// Four operands with two strides each: all have contiguous rows, or all but one.
#[test]
fn one_operand_of_many_may_be_column_major() {
    let (found, params) = bodies(
        "#[fuse_kernel(num_warps = 4)]
        fn k(a: &[f32], b: &[f32], c: &[f32], out: &mut [f32],
            a0: i32, a1: i32, b0: i32, b1: i32, c0: i32, c1: i32, o0: i32, o1: i32) {
            let (i, j) = (tl::arange(0, 64).col(), tl::arange(0, 64).row());
            let sum = tl::load(a + i * a0 + j * a1) + tl::load(b + i * b0 + j * b1);
            tl::store(out + i * o0 + j * o1, sum + tl::load(c + i * c0 + j * c1));
        }",
    );
    let units = |body: &Specialization| {
        let texts = body.guards.iter().map(|guard| WithNames(guard, &params).to_string());
        let ones: Vec<String> = texts.filter(|text| text.ends_with(" is 1")).collect();
        format!("{}: {}\n", body.name, ones.join(", "))
    };
    expect![[r#"
        unit_strides: a1 is 1, b1 is 1, c1 is 1, o1 is 1
        unit_strides_odd: a1 is 1, b1 is 1, c1 is 1, o1 is 1
        unit_strides_2: a1 is 1, b1 is 1, c0 is 1, o1 is 1
        unit_strides_2_odd: a1 is 1, b1 is 1, c0 is 1, o1 is 1
        unit_strides_3: a1 is 1, b0 is 1, c1 is 1, o1 is 1
        unit_strides_3_odd: a1 is 1, b0 is 1, c1 is 1, o1 is 1
        unit_strides_4: a0 is 1, b1 is 1, c1 is 1, o1 is 1
        unit_strides_4_odd: a0 is 1, b1 is 1, c1 is 1, o1 is 1
        general: 
    "#]]
    .assert_eq(&found.iter().map(units).collect::<String>());
}

const ROWS: &str = "#[fuse_kernel(num_warps = 4)]
    fn rows(x: &[f32], out: &mut [f32], starts: &[i32], n: i32) {
        let start = FACT;
        for step in (0..n).step_by(512) {
            let i = step + tl::arange(0, 512);
            tl::store(out + i, tl::load(x + start + i, i < n, 0.0), i < n);
        }
    }";

/// A place that is loaded: without a statement of the user a loop without dots has one version.
#[test]
fn a_stated_multiple_is_checked_once() {
    let load = "tl::load(starts + tl::program_id(0))";
    let of = |fact: &str| ROWS.replace("FACT", fact);
    assert_eq!(versions(&bodies(&of(load)).0), "");
    let hinted = of(&format!("tl::multiple_of({load}, 16)"));
    let assumed = of(&format!("{load}; tl::assume(start % 16 == 0)"));
    let computed = of(&format!("tl::multiple_of({load} / 3, 16)"));
    for source in [hinted, assumed, computed] {
        assert_eq!(versions(&bodies(&source).0), "aligned: 4 else 4\n");
        let launch = |func: &Func, start: usize| {
            let launch = Launch::new([1, 1, 1], 4).slice(func, "x", (0..1024).map(small));
            let launch =
                launch.slice(func, "out", vec![-1.0; 1000]).slice(func, "starts", vec![start as f64]);
            launch.scalar(func, "n", int(1000))
        };
        check_versions(
            &source,
            &[&|func| launch(func, 16), &|func| launch(func, 13), &|func| launch(func, 400)],
        );
    }
}

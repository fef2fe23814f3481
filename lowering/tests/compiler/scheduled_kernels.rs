//! Schedules of kernels, simulated: with all passes, and without each of them, they do what the laid-out kernel does.

use tile_ir::ir::Func;
use tile_ir::testing::holds;

use super::first;
use lowering::devtools::schedule_simulator::number::Number;
use lowering::devtools::schedule_simulator::{Launch, check_schedule};
use lowering::driver::pipeline::{DisabledPasses, schedule_passes};
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::schedule::verify::verify_schedule;
use lowering::gpu::specialization::Specialization;

/// Stages of every ring of these kernels.
const STAGES: usize = 3;

/// A kernel, and a launch of it with so many iterations.
struct Case<'a> {
    source: &'a str,
    launch: &'a dyn Fn(&Func, usize) -> Launch,
    /// How far floats may be from the laid-out kernel's, in parts of themselves.
    tolerance: f64,
}

impl Case<'_> {
    /// The kernel's first specialization without these passes.
    fn specialization(&self, disabled: &str) -> Specialization {
        let (func, requests) = first(self.source);
        let disabled_passes = DisabledPasses::parse(disabled).expect("names of passes");
        let requests = KernelRequests { disabled_passes, ..requests };
        let specialization = specializations(&func, requests).expect("a kernel that fits").remove(0);
        assert!(specialization.name.starts_with("tensor"), "{}", specialization.name);
        specialization
    }

    /// The schedule with all passes.
    fn schedule(&self) -> String {
        self.schedule_without("")
    }

    fn schedule_without(&self, disabled: &str) -> String {
        self.specialization(disabled).plan.schedule.to_string()
    }

    /// Checks the schedule without these passes, in launches that the kernel's guards let through.
    fn check(&self, disabled: &str) {
        let Specialization { plan, guards, .. } = self.specialization(disabled);
        let (distributed, laid_out) = (&plan.schedule.distributed, &plan.laid_out);
        verify_schedule(&distributed.func, distributed.num_warps).expect("a schedule that obeys the laws");
        let mut runs = 0;
        for iterations in [0, 1, STAGES - 1, STAGES, STAGES + 3] {
            let launch = (self.launch)(laid_out, iterations);
            let (known, grid) = (launch.known(laid_out), launch.grid.map(i64::from));
            if !guards.iter().all(|guard| holds(guard, &known, grid)) {
                continue;
            }
            runs += 1;
            if let Err(fault) = check_schedule(&distributed.func, laid_out, &launch, self.tolerance) {
                panic!("{iterations} iterations, without {disabled:?}:\n{fault}\n{}", plan.schedule);
            }
        }
        assert!(runs >= 3, "guards let {runs} launches through");
    }

    /// The same with all passes, and without all that may be left out.
    fn check_both(&self) {
        self.check("");
        self.check(&optional().join(","));
    }

    /// The same without each pass that may be left out, if it does anything here.
    fn check_each(&self) {
        self.check_both();
        let whole = self.schedule();
        let passes = optional();
        let changing: Vec<&String> =
            passes.iter().filter(|pass| self.schedule_without(pass) != whole).collect();
        assert!(!changing.is_empty(), "no pass does anything");
        changing.into_iter().for_each(|pass| self.check(pass));
    }
}

fn optional() -> Vec<String> {
    schedule_passes().filter(|pass| pass.optional).map(|pass| format!("-{}", pass.name)).collect()
}

/// Small integers, so that sums are exact in any order.
fn small(i: usize) -> f64 {
    (i * 7 % 5) as f64 - 2.0
}

/// A source with other parts.
fn changed(source: &str, changes: &[[&str; 2]]) -> String {
    changes.iter().fold(source.to_string(), |text, [from, to]| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

// ---- products

const PRODUCT: &str = "#[fuse_kernel(num_warps = 4, num_stages = 3)]
    fn product(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>, end: i64) {
        let (row, col) = (tl::program_id(0) * 64, tl::program_id(1) * 64);
        let mut acc = tl::zeros::<f32>([64, 64]);
        for start in (0..end).step_by(64) {
            acc = tl::dot(a.load::<64, 64>(row, start), b.load::<64, 64>(start, col), acc);
        }
        out.store(acc, row, col);
    }";

const A: &str = "a.load::<64, 64>(row, start)";
const B: &str = "b.load::<64, 64>(start, col)";

/// The least extent of a view that TMA loads: one that is empty has another specialization.
const MIN_EXTENT: usize = 128;

/// The end of the loop.
fn with_end(launch: Launch, func: &Func, end: usize) -> Launch {
    launch.scalar(func, "end", Number::Int(end as i128))
}

/// A product of tiles of such extents, in a grid of two by two of them on two blocks.
fn product_launch(func: &Func, [rows, columns, inner]: [usize; 3], warps: u32) -> Launch {
    let mut launch = Launch::new([2, 2, 1], warps);
    launch.blocks = 2;
    let launch = with_end(launch, func, inner);
    let inner = inner.max(MIN_EXTENT);
    let launch = launch.view(func, "a", &[2 * rows, inner], small);
    launch.view(func, "b", &[inner, 2 * columns], small).view(func, "out", &[2 * rows, 2 * columns], |_| -1.0)
}

fn check_product(source: &str) {
    let launch = |func: &Func, iterations| product_launch(func, [64, 64, 64 * iterations], 4);
    Case { source, launch: &launch, tolerance: 0.0 }.check_both();
}

#[test]
fn products() {
    let launch = |func: &Func, iterations| product_launch(func, [64, 64, 64 * iterations], 4);
    Case { source: PRODUCT, launch: &launch, tolerance: 0.0 }.check_each();
}

/// A batch of products by pointers, with masks along all axes.
const BY_POINTERS: &str = "#[fuse_kernel(num_warps = 8, num_stages = 3)]
    fn product(a: &[bf16], b: &[bf16], out: &mut [f32], m: i32, n: i32, k: i32, row_stride: i32, batch_stride: i32) {
        let batch = tl::program_id(2);
        let rows = tl::program_id(0) * 128 + tl::arange(0, 128);
        let cols = tl::program_id(1) * 256 + tl::arange(0, 256);
        let a = a + batch * batch_stride;
        let mut acc = tl::zeros::<f32>([128, 256]);
        for start in (0..k).step_by(64) {
            let inner = start + tl::arange(0, 64);
            let at = rows.col() * row_stride + inner.row();
            let x = tl::load(a + at, (rows < m).col() & (inner < k).row(), 0.0);
            let y = tl::load(b + inner.col() * n + cols.row(), (inner < k).col() & (cols < n).row());
            acc = tl::dot(x, y, acc);
        }
        let at = batch * m * n + rows.col() * n + cols.row();
        tl::store(out + at, acc, (rows < m).col() & (cols < n).row());
    }";

/// Blocks of views have the elements that pointers read, and zeros where masks are false.
#[test]
fn products_by_pointers() {
    let (func, requests) = first(BY_POINTERS);
    let found = specializations(&func, requests).expect("a kernel that fits");
    let (tensor, general) = (&found[0], found.last().expect("a general body"));
    assert!(tensor.name.starts_with("tensor"), "{}", tensor.name);
    for [m, n, k, row_stride] in [[130, 264, 8, 24], [128, 256, 200, 200], [7, 8, 264, 272]] {
        let mut launch = Launch::new([2, 2, 2], 8);
        launch.blocks = 2;
        let batch_stride = (m + 1) * row_stride;
        for (name, number) in
            [("m", m), ("n", n), ("k", k), ("row_stride", row_stride), ("batch_stride", batch_stride)]
        {
            launch = launch.scalar(&func, name, Number::Int(number as i128));
        }
        let slices = [("a", 2 * batch_stride), ("b", k * n), ("out", 2 * m * n)];
        for (name, elements) in slices {
            launch = launch.slice(&func, name, (0..elements).map(small));
        }
        let (known, grid) = (launch.known(&func), launch.grid.map(i64::from));
        let failed = tensor.guards.iter().find(|guard| !holds(guard, &known, grid));
        assert_eq!(failed, None, "{m} x {n} x {k}");
        let schedule = &tensor.plan.schedule.distributed.func;
        let launch = launch.with_computed_views(schedule);
        if let Err(fault) = check_schedule(schedule, &general.plan.laid_out, &launch, 0.0) {
            panic!("{m} x {n} x {k}: {fault}\n{}", tensor.plan.schedule);
        }
    }
}

#[test]
fn products_over_all_of_a_view() {
    let source = changed(PRODUCT, &[["(0..end)", "(0..a.shape(1))"]]);
    // It has at least one iteration, which the schedule knows.
    let launch = |func: &Func, iterations: usize| product_launch(func, [64, 64, 64 * iterations.max(2)], 4);
    let case = Case { source: &source, launch: &launch, tolerance: 0.0 };
    assert!(case.schedule().contains(" runs"), "views are not empty");
    case.check_both();
}

#[test]
fn products_of_two_warpgroups() {
    let wide = changed(PRODUCT, &[["num_warps = 4", "num_warps = 8"], ["[64, 64]", "[64, 128]"]]);
    let wide = changed(
        &wide,
        &[[B, "b.load::<64, 128>(start, col)"], ["program_id(1) * 64", "program_id(1) * 128"]],
    );
    let launch = |func: &Func, iterations| product_launch(func, [64, 128, 64 * iterations], 8);
    Case { source: &wide, launch: &launch, tolerance: 0.0 }.check_both();
}

#[test]
fn products_of_computed_operands() {
    check_product(&changed(PRODUCT, &[[A, "tl::relu(a.load::<64, 64>(row, start))"]]));
}

#[test]
fn products_with_an_epilogue() {
    check_product(&changed(PRODUCT, &[["out.store(acc,", "out.store(tl::maximum(acc * 0.5, 0.0) + 1.0,"]]));
}

#[test]
fn products_that_add_to_the_result() {
    check_product(&changed(PRODUCT, &[["out.store(acc, row, col);", "out.atomic_add(acc, row, col);"]]));
}

#[test]
fn products_of_transposes() {
    let source = changed(
        PRODUCT,
        &[[A, "tl::trans(a.load::<64, 64>(start, row))"], [B, "tl::trans(b.load::<64, 64>(col, start))"]],
    );
    let launch = |func: &Func, iterations: usize| {
        let mut launch = Launch::new([2, 2, 1], 4);
        launch.blocks = 3;
        let launch = with_end(launch, func, 64 * iterations);
        let inner = (64 * iterations).max(MIN_EXTENT);
        let launch = launch.view(func, "a", &[inner, 128], small);
        launch.view(func, "b", &[128, inner], small).view(func, "out", &[128, 128], |_| -1.0)
    };
    Case { source: &source, launch: &launch, tolerance: 0.0 }.check_both();
}

#[test]
fn products_of_other_types() {
    check_product(&changed(PRODUCT, &[["bf16", "f16"]]));
    let tf32 = "acc = tl::dot(a.load::<64, 32>(row, start), b.load::<32, 64>(start, col), acc).input_precision(\"tf32\");";
    let dot = "acc = tl::dot(a.load::<64, 64>(row, start), b.load::<64, 64>(start, col), acc);";
    let source = changed(PRODUCT, &[["bf16", "f32"], [dot, tf32], ["step_by(64)", "step_by(32)"]]);
    let launch = |func: &Func, iterations| product_launch(func, [64, 64, 32 * iterations], 4);
    Case { source: &source, launch: &launch, tolerance: 0.0 }.check_both();
}

/// A product of bytes, whose right operand is K-major too.
fn check_bytes(elem: &str, acc: &str, precision: &str) {
    let source = format!(
        "#[fuse_kernel(num_warps = 4, num_stages = 3)]
        fn product(a: &View<{elem}, 2>, b: &View<{elem}, 2>, out: &mut View<{acc}, 2>, end: i64) {{
            let (row, col) = (tl::program_id(0) * 64, tl::program_id(1) * 64);
            let mut acc = tl::zeros::<{acc}>([64, 64]);
            for start in (0..end).step_by(128) {{
                acc = tl::dot(a.load::<64, 128>(row, start), tl::trans(b.load::<64, 128>(col, start)), acc){precision};
            }}
            out.store(acc, row, col);
        }}"
    );
    let launch = |func: &Func, iterations: usize| {
        let mut launch = Launch::new([2, 2, 1], 4);
        launch.blocks = 2;
        let launch = with_end(launch, func, 128 * iterations);
        let inner = (128 * iterations).max(MIN_EXTENT);
        let launch = launch.view(func, "a", &[128, inner], small);
        launch.view(func, "b", &[128, inner], small).view(func, "out", &[128, 128], |_| -1.0)
    };
    Case { source: &source, launch: &launch, tolerance: 0.0 }.check_both();
}

#[test]
fn products_of_bytes() {
    check_bytes("i8", "i32", "");
    check_bytes("f8e4m3", "f32", ".max_num_imprecise_acc(64)");
}

#[test]
fn products_of_tiles_that_stay() {
    let source = "#[fuse_kernel(num_warps = 4)]
        fn squared(x: &View<f16, 2>, out: &mut View<f32, 2>) {
            let row = tl::program_id(0) * 64;
            let rows = x.load::<64, 64>(row, 0);
            out.store(tl::dot(rows, tl::trans(rows)), row, 0);
        }";
    let launch = |func: &Func, tiles: usize| {
        let launch = Launch::new([tiles as u32, 1, 1], 4);
        launch.view(func, "x", &[64 * tiles, 64], small).view(func, "out", &[64 * tiles, 64], |_| -1.0)
    };
    Case { source, launch: &launch, tolerance: 0.0 }.check_both();
}

#[test]
fn programs_in_groups_share_quotients() {
    let origin = "let (row, col) = (tl::program_id(0) * 64, tl::program_id(1) * 64);";
    let grouped = "let (program, columns) = (tl::program_id(0).to::<i64>(), (out.shape(1) + 63) / 64);
        let (row, col) = (program / columns * 64, program % columns * 64);";
    let source = changed(PRODUCT, &[[origin, grouped]]);
    let launch = |func: &Func, iterations| {
        let mut launch = product_launch(func, [64, 64, 64 * iterations], 4);
        launch.grid = [4, 1, 1];
        launch
    };
    let case = Case { source: &source, launch: &launch, tolerance: 0.0 };
    assert!(case.schedule().contains("tile_quotient"), "the producer divides");
    case.check_both();
}

#[test]
fn programs_of_unequal_length() {
    let source = changed(PRODUCT, &[["(0..end)", "(0..tl::minimum(end, (row + 64).to::<i64>()))"]]);
    let launch = |func: &Func, iterations| product_launch(func, [64, 64, 64 * iterations], 4);
    let case = Case { source: &source, launch: &launch, tolerance: 0.0 };
    assert!(case.schedule().contains("work_tiles producer dynamic"), "a counter schedules programs");
    case.check_both();
}

#[test]
fn blocks_of_a_cluster_load_for_each_other() {
    let source = changed(PRODUCT, &[["num_warps = 4", "num_warps = 8"], ["[64, 64]", "[128, 128]"]]);
    let source = changed(
        &source,
        &[
            [A, "a.load::<128, 64>(row, start)"],
            [B, "b.load::<64, 128>(start, col)"],
            ["program_id(0) * 64", "program_id(0) * 128"],
            ["program_id(1) * 64", "program_id(1) * 128"],
        ],
    );
    for clusters in [false, true] {
        // The last program of an odd number has no peer.
        let launch = |func: &Func, iterations: usize| {
            let mut launch = Launch::new([3, 1, 1], 8);
            (launch.blocks, launch.clusters) = (2, clusters);
            let launch = with_end(launch, func, 64 * iterations);
            let inner = (64 * iterations).max(MIN_EXTENT);
            let launch = launch.view(func, "a", &[3 * 128, inner], small);
            launch.view(func, "b", &[inner, 128], small).view(func, "out", &[3 * 128, 128], |_| -1.0)
        };
        let case = Case { source: &source, launch: &launch, tolerance: 0.0 };
        assert!(case.schedule().contains(" multicast "), "loads that blocks share");
        case.check("");
    }
}

// ---- chained dots

const ATTENTION: &str = "#[fuse_kernel(num_warps = 8, num_stages = 3)]
    fn attention(q: &View<bf16, 2>, k: &View<bf16, 2>, v: &View<bf16, 2>, out: &mut View<f32, 2>, end: i32) {
        let row = tl::program_id(0) * 128;
        let queries = q.load::<128, 64>(row, 0);
        let mut acc = tl::zeros::<f32>([128, 64]);
        let mut m_i = tl::full([128], -1000.0);
        let mut l_i = tl::zeros::<f32>([128]);
        for start in (0..end).step_by(64) {
            let s = tl::dot(queries, tl::trans(k.load::<64, 64>(start, 0))) * 0.125;
            let s = if start >= end - 63 {
                tl::select((start + tl::arange(0, 64)).row() < end, s, -1000.0)
            } else {
                s
            };
            let m_next = tl::maximum(m_i, tl::max(s, 1));
            let alpha = tl::exp(m_i - m_next);
            let p = tl::exp(s - m_next.col());
            l_i = l_i * alpha + tl::sum(p, 1);
            acc = tl::dot(p.to::<bf16>(), v.load::<64, 64>(start, 0), acc * alpha.col());
            m_i = m_next;
        }
        out.store(acc / tl::maximum(l_i, 0.001).col(), row, 0);
    }";

/// Attention of two tiles of queries to so many tiles of keys, of which the last lacks a few.
fn attention_launch(func: &Func, iterations: usize) -> Launch {
    let (queries, keys) = (256, (64 * iterations).max(64));
    let mut launch = Launch::new([2, 1, 1], 8);
    launch.blocks = 1;
    let end = (64 * iterations).saturating_sub(10);
    let launch = launch.scalar(func, "end", Number::Int(end as i128));
    let launch = launch.view(func, "q", &[queries, 64], small).view(func, "k", &[keys, 64], small);
    launch.view(func, "v", &[keys, 64], small).view(func, "out", &[queries, 64], |_| -1.0)
}

fn attention(source: &str) -> Case<'_> {
    Case { source, launch: &attention_launch, tolerance: 1e-5 }
}

#[test]
fn attention_overlaps_iterations() {
    let case = attention(ATTENTION);
    let text = case.schedule();
    for word in ["overlapped", "mma_order wait", "iteration_bound", "smem_load"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    case.check_each();
}

#[test]
fn attention_rescales_between_dots() {
    // Operand A stays in shared memory, where the first dot reads it.
    let source = changed(ATTENTION, &[["q.load::<128, 64>(row, 0)", "tl::trans(q.load::<64, 128>(0, row))"]]);
    let launch = |func: &Func, iterations: usize| {
        attention_launch(func, iterations).view(func, "q", &[64, 256], small)
    };
    let case = Case { source: &source, launch: &launch, tolerance: 1e-5 };
    assert!(case.schedule().contains("rescale_rows"), "{}", case.schedule());
    case.check_both();
}

#[test]
fn attention_with_a_causal_mask() {
    let source = changed(
        ATTENTION,
        &[
            ["if start >= end - 63 {", "if start >= end - 63 || start > row - 63 {"],
            [
                "(start + tl::arange(0, 64)).row() < end, s",
                "(start + tl::arange(0, 64)).row() <= tl::minimum(row + tl::arange(0, 128), end - 1).col(), s",
            ],
            ["in (0..end)", "in (0..tl::minimum(end, row + 128))"],
        ],
    );
    attention(&source).check_both();
}

#[test]
fn attention_of_one_warpgroup() {
    let source = changed(ATTENTION, &[["num_warps = 8", "num_warps = 4"], ["128", "64"]]);
    let launch = |func: &Func, iterations| {
        let mut launch = attention_launch(func, iterations);
        (launch.num_warps, launch.grid) = (4, [4, 1, 1]);
        launch
    };
    Case { source: &source, launch: &launch, tolerance: 1e-5 }.check_both();
}

#[test]
fn chained_dots_that_share_a_tile() {
    attention(&changed(ATTENTION, &[["v.load::<64, 64>(start, 0)", "k.load::<64, 64>(start, 0)"]]))
        .check_both();
}

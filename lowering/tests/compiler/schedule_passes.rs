//! Passes of the GPU schedule in the simulator: with all of them, without each optional one, and with none of these, a kernel does what
//! its laid-out function does.

use super::first;
use lowering::devtools::schedule_simulator::number::Number;
use lowering::devtools::schedule_simulator::{Launch, check_schedule};
use lowering::driver::pipeline::DisabledPasses;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;
use tile_ir::ir::Func;

/// Sums differ by the order of their additions, and by no more.
const TOLERANCE: f64 = 1e-5;

const PRODUCT: &str = "#[fuse_kernel(num_warps = 4, num_stages = 3)]
    fn product(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>, end: i64) {
        let (row, col) = (tl::program_id(0) * 64, tl::program_id(1) * 64);
        let mut acc = tl::zeros::<f32>([64, 64]);
        for start in (0..end).step_by(64) {
            acc = tl::dot(a.load::<64, 64>(row, start), b.load::<64, 64>(start, col), acc);
        }
        out.store(acc, row, col);
    }";

/// Chained dots, with a branch in the first and in the last iterations.
const WEIGHED: &str = "#[fuse_kernel(num_warps = 8, num_stages = 3)]
    fn weighed(
        a: &View<bf16, 2>, b: &View<bf16, 2>, c: &View<bf16, 2>, out: &mut View<f32, 2>, sums: &mut View<f32, 2>, first: i32, least: i32
    ) {
        let row = tl::program_id(0) * 128;
        let left = a.load::<128, 64>(row, 0);
        let mut acc = tl::zeros::<f32>([128, 64]);
        let mut total = tl::zeros::<f32>([128]);
        let end = b.shape(0) as i32;
        for start in (first..end).step_by(KEYS) {
            let weights = tl::dot(left, tl::trans(b.load::<KEYS, 64>(start, 0)));
            let weights = if start + (KEYS - 1) >= end || start < least {
                let key = (start + tl::arange(0, KEYS)).row();
                tl::select((key < end) & (key >= least), weights, 0.0)
            } else {
                weights
            };
            total = total * 0.5 + tl::sum(weights, 1);
            acc = tl::dot(weights.to::<bf16>(), c.load::<KEYS, 64>(start, 0), acc * SCALE);
        }
        out.store(acc, row, 0);
        sums.store(total.col(), row, 0);
    }";

fn weighed(keys: &str, scale: &str) -> String {
    WEIGHED.replace("KEYS", keys).replace("SCALE", scale)
}

/// Small integers, so that many sums are exact.
fn small(i: usize) -> f64 {
    (i * 7 % 11) as f64 - 5.0
}

/// The specialization with warpgroup dots, without some passes.
fn tensor(source: &str, disabled_passes: DisabledPasses) -> Specialization {
    let (func, requests) = first(source);
    let requests = KernelRequests { programs: Some(1), disabled_passes, ..requests };
    let mut all = specializations(&func, requests).expect("specializations that fit").into_iter();
    all.find(|specialization| specialization.name == "tensor").expect("one with warpgroup dots")
}

/// With all passes, without each of these, which change the schedule, and without all optional ones.
fn check(source: &str, passes: &[&str], launches: &dyn Fn(&Func) -> Vec<(String, Launch)>) {
    let whole = tensor(source, DisabledPasses::default());
    let mut choices = vec![("no pass".to_string(), tensor(source, DisabledPasses::whole_schedule()))];
    for pass in passes {
        let disabled = DisabledPasses::parse(&format!("-{pass}")).expect("the name of an optional pass");
        let without = tensor(source, disabled);
        assert_ne!(without.plan.schedule.to_string(), whole.plan.schedule.to_string(), "{pass} does nothing");
        choices.push((format!("all but {pass}"), without));
    }
    choices.push(("all passes".into(), whole));
    for (choice, Specialization { plan, .. }) in &choices {
        for (label, launch) in launches(&plan.laid_out) {
            check_schedule(&plan.schedule.distributed.func, &plan.laid_out, &launch, TOLERANCE)
                .unwrap_or_else(|fault| panic!("{label}, {choice}: {}", fault.0));
        }
    }
}

#[test]
fn a_product_is_right_without_any_pass() {
    check(PRODUCT, &["async_dot", "position_before_waits"], &|func| {
        let launches = [0, 1, 2, 5].map(|iterations| {
            let inner = iterations.max(1) * 64;
            let mut launch = Launch::new([2, 1, 1], 4);
            launch.blocks = 1;
            let launch = launch.view(func, "a", &[128, inner], small).view(func, "b", &[inner, 64], small);
            let launch = launch.view(func, "out", &[128, 64], |_| -1.0);
            let launch = launch.scalar(func, "end", Number::Int(iterations as i128 * 64));
            (format!("{iterations} iterations"), launch)
        });
        launches.into()
    });
}

fn check_weighed(keys: &str, scale: &str, cases: &[([usize; 2], i32)]) {
    let passes = ["overlap_chained_dots", "ping_pong", "iteration_split"];
    check(&weighed(keys, scale), &passes, &|func| {
        let launches = cases.iter().map(|&([first, end], least)| {
            let launch = Launch::new([1, 1, 1], 8).view(func, "a", &[128, 64], |i| small(i) / 8.0);
            let launch = launch.view(func, "b", &[end, 64], small).view(func, "c", &[end, 64], small);
            let launch = launch.view(func, "out", &[128, 64], |_| -1.0);
            let launch = launch.view(func, "sums", &[128, 1], |_| -1.0);
            let launch = launch.scalar(func, "first", Number::Int(first as i128));
            let launch = launch.scalar(func, "least", Number::Int(least.into()));
            (format!("rows {first}..{end} from {least} on"), launch)
        });
        launches.collect()
    });
}

#[test]
fn chained_dots_are_right_without_any_pass() {
    check_weighed("64", "0.5", &[([64, 64], 0), ([0, 64], 0), ([0, 100], 30), ([3, 420], 150)]);
}

#[test]
fn chained_dots_with_scales_of_rows_are_right_without_any_pass() {
    check_weighed(
        "128",
        "(tl::max(weights, 1).col() * 0.0 + 0.5)",
        &[([200, 130], 0), ([0, 130], 0), ([0, 500], 140)],
    );
}

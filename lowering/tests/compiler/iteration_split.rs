//! Loops with warpgroup dots, and the persistent blocks that run their programs.

use expect_test::{Expect, expect};
use tile_ir::ir;

use super::{first, lines_with, ptx};
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::specializations;
use lowering::gpu::specialization::Specialization;

/// Rows of sums of rows of `c`, weighted by products, and the sum of each row's weights.
const WEIGHED: &str = "#[fuse_kernel(num_warps = 8)]
    fn weighed(
        a: &View<bf16, 2>, b: &View<bf16, 2>, c: &View<bf16, 2>, out: &mut View<f32, 2>, sums: &mut View<f32, 2>, end: i32
    ) {
        let row = tl::program_id(0) * 128;
        let left = a.load::<128, 64>(row, 0);
        let mut sum = tl::zeros::<f32>([128, 64]);
        let mut total = tl::zeros::<f32>([128]);
        for start in (0..end).step_by(64) {
            let weights = tl::dot(left, tl::trans(b.load::<64, 64>(start, 0)));
            let weights = if start + 63 >= end {
                tl::select((start + tl::arange(0, 64)).row() < end, weights, 0.0)
            } else {
                weights
            };
            total = total * 0.5 + tl::sum(weights, 1);
            sum = tl::dot(weights.to::<bf16>(), c.load::<64, 64>(start, 0), sum * 0.5);
        }
        out.store(sum, row, 0);
        sums.store(total.col(), row, 0);
    }";

fn changed(changes: &[[&str; 2]]) -> String {
    changes.iter().fold(WEIGHED.to_string(), |text, [from, to]| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

fn tensor(changes: &[[&str; 2]]) -> Specialization {
    let (func, requests) = first(&changed(changes));
    let body = specializations(&func, requests).expect("bodies that fit").remove(0);
    assert_eq!(body.name, "tensor");
    body
}

const TOTAL: &str = "total = total * 0.5 + tl::sum(weights, 1);";

/// The reductions of the first body.
fn check_sums(changes: &[[&str; 2]], expected: Expect) {
    let text = ir::print(&tensor(changes).plan.laid_out, &|_| None);
    expected.assert_eq(&lines_with(&text, &["reduce", "for ", "carry", "tma_store"]));
}

#[test]
fn lanes_carry_partial_sums() {
    check_sums(
        &[],
        expect![[r#"
        %28, %29 = for %22..%20 step %26 carry %27, %24 : f32[128, 4], f32[128, 64] { |%30, %31, %32|
        %55 = reduce %54 axes [1, 3] : f32[128, 4] { |%56, %57|
        %67 = reduce %28 axes [1] : f32[128] { |%68, %69|
        tma_store %29, out(%73, %74)
    "#]],
    );
    check_sums(
        &[[TOTAL, "total = tl::sum(weights, 1) + total;"]],
        expect![[r#"
        %28, %29 = for %22..%20 step %26 carry %27, %24 : f32[128, 4], f32[128, 64] { |%30, %31, %32|
        %53 = reduce %52 axes [1, 3] : f32[128, 4] { |%54, %55|
        %63 = reduce %28 axes [1] : f32[128] { |%64, %65|
        tma_store %29, out(%69, %70)
    "#]],
    );
    check_sums(
        &[[TOTAL, "total = tl::fma(total, tl::max(weights, 1), tl::sum(weights, 1));"]],
        expect![[r#"
            %28, %29 = for %22..%20 step %26 carry %27, %24 : f32[128, 4], f32[128, 64] { |%30, %31, %32|
            %52 = reduce %42 axes [1] : f32[128] { |%53, %54|
            %57 = reduce %56 axes [1, 3] : f32[128, 4] { |%58, %59|
            %70 = reduce %28 axes [1] : f32[128] { |%71, %72|
            tma_store %29, out(%76, %77)
        "#]],
    );
}

#[test]
fn other_sums_are_carried_whole() {
    let cases = [
        // It does not begin at 0; a turn takes it; it is no sum, or multiplied by itself.
        ["let mut total = tl::zeros::<f32>([128]);", "let mut total = tl::full([128], 1.0);"],
        ["sum * 0.5)", "sum * total.col())"],
        [TOTAL, "total = total * 0.5 + tl::max(weights, 1);"],
        [TOTAL, "total = total * total + tl::sum(weights, 1);"],
    ];
    for case in cases {
        let text = ir::print(&tensor(&[case]).plan.laid_out, &|_| None);
        assert!(!text.contains("axes [1, 3]"), "{case:?}: {text}");
    }
}

/// How many groups of products are started: one before the loops, two in each of them, and one behind. A condition that
/// may hold at first and at last has three loops.
#[test]
fn iterations_without_branches_are_the_main_loop() {
    let started = |changes: &[[&str; 2]], condition: &str| {
        let changes = [changes, &[["start + 63 >= end", condition]]].concat();
        let text = ptx(&changed(&changes), Arch::SM_90A);
        let (tensor, _) = text
            .split_once(".entry")
            .map(|(_, rest)| rest.split_once(".entry").unwrap_or((rest, "")))
            .unwrap();
        format!("{condition}: {}\n", tensor.matches("wgmma.commit_group").count())
    };
    let conditions = [
        "start >= end - 63",
        "start > row - 64 || start >= end - 63",
        "start < row",
        "start < row || start >= end - 63",
        "start % 128 == 0",
        "end > 7",
    ];
    expect![[r#"
        start >= end - 63: 6
        start > row - 64 || start >= end - 63: 6
        start < row: 6
        start < row || start >= end - 63: 8
        start % 128 == 0: 4
        end > 7: 4
    "#]]
    .assert_eq(&conditions.map(|condition| started(&[], condition)).concat());
    // A limit that changes from turn to turn, by what is carried or by what is read.
    let carried = [["let mut total", "let mut limit = end;\n let mut total"], [TOTAL, CARRIED]];
    let read =
        [["end: i32", "end: i32, limits: &mut [i32]"], ["let weights = tl::dot", READ], [TOTAL, WRITTEN]];
    expect![[r#"
        start >= limit: 4
        start >= limit: 4
    "#]]
    .assert_eq(&[&carried[..], &read].map(|changes| started(changes, "start >= limit")).concat());
}

const CARRIED: &str = "limit = limit - 100;\n total = total * 0.5 + tl::sum(weights, 1);";
const READ: &str = "let limit = tl::load(limits + row);\n let weights = tl::dot";
const WRITTEN: &str = "tl::store(limits + row, 7);\n total = total * 0.5 + tl::sum(weights, 1);";

/// What the counter gives is kept in memory: a register of a whole warp would be waited for at once.
#[test]
fn programs_of_different_length_have_a_dynamic_scheduler() {
    let counted = |changes: &[[&str; 2]]| {
        let body = tensor(changes);
        let text = ptx(&changed(changes), Arch::SM_90A);
        let kept = lines_with(&text, &["inc.u32", "volatile.shared"]);
        format!("{} {}\n{kept}", body.plan.persistent(), body.plan.is_dynamic_persistent())
    };
    expect![[r#"
        true false
    "#]]
    .assert_eq(&counted(&[]));
    expect![[r#"
        true true
        st.volatile.shared.b32 [%rd139], %r292;
        ld.volatile.shared.b32 %r318, [%rd139];
        @counts atom.relaxed.gpu.global.inc.u32 %r292, [%rd109], %r293;
    "#]]
    .assert_eq(&counted(&[["(0..end)", "(0..end - row)"]]));
    // A program's own numbers make its blocks begin elsewhere, and take no time.
    expect![[r#"
        true false
    "#]]
    .assert_eq(&counted(&[["(start, 0))", "(start + row, 0))"]]));
}

/// A quotient is computed by the thread that copies alone, where it is one of a program's own numbers.
#[test]
fn work_tiles_are_published_with_their_quotients() {
    let divisions = |row: &str| {
        let text = ptx(&changed(&[["tl::program_id(0) * 128", row]]), Arch::SM_90A);
        let (before, behind) = text.split_once("setmaxnreg.inc").expect("warps that multiply");
        let count = |text: &str| text.split(".entry").next().unwrap_or_default().matches("div.s32").count();
        let before = before.rsplit(".entry").next().unwrap_or_default();
        format!("{row}: {} and {}\n", count(before), count(behind))
    };
    let rows = [
        "tl::program_id(0) * 128",
        "tl::program_id(0) / end * 128",
        "tl::program_id(0) / end % 3 * 128 + tl::program_id(0) % (end + 1)",
        "tl::program_id(0) / 3 * 128",
    ];
    expect![[r#"
        tl::program_id(0) * 128: 0 and 0
        tl::program_id(0) / end * 128: 0 and 0
        tl::program_id(0) / end % 3 * 128 + tl::program_id(0) % (end + 1): 0 and 0
        tl::program_id(0) / 3 * 128: 0 and 0
    "#]]
    .assert_eq(&rows.map(divisions).concat());
}

/// A left factor of few words is loaded once before the loop, and its block let go there. Where the words are many all
/// registers that others can give are for these threads.
#[test]
fn a_small_operand_a_is_preloaded() {
    let loads = |columns: u32| {
        let [left, right] = [128, 64].map(|rows| format!("<{rows}, {columns}>"));
        let changes = [
            ["<128, 64>(row, 0)", &format!("{left}(row, 0)")],
            ["<64, 64>(start, 0)))", &format!("{right}(start, 0)))")],
        ];
        let text = ptx(&changed(&changes), Arch::SM_90A);
        let (_, dots_in) = text.split_once("setmaxnreg.inc").expect("warps that multiply");
        let (registers, rest) = dots_in.split_once(';').expect("a statement");
        let loads = rest.split(".entry").next().unwrap_or_default().matches("ldmatrix").count();
        format!("{columns}: {loads},{}\n", registers.trim_start_matches(".sync.aligned.u32"))
    };
    expect![[r#"
        64: 4, 232
        128: 8, 240
        192: 0, 232
    "#]]
    .assert_eq(&[64, 128, 192].map(loads).concat());
}

/// The code of the warps that multiply, of so many keys a turn and a sum that is scaled so.
fn dots_in(keys: &str, scaled: &str) -> String {
    let changes = [
        ["step_by(64)", &format!("step_by({keys})")],
        ["<64, 64>", &format!("<{keys}, 64>")],
        ["tl::arange(0, 64)", &format!("tl::arange(0, {keys})")],
        ["start + 63", &format!("start + ({keys} - 1)")],
        ["sum * 0.5", scaled],
    ];
    let text = ptx(&changed(&changes), Arch::SM_90A);
    let (_, tensor) = text.split_once("setmaxnreg.inc").expect("warps that multiply");
    tensor.split(".entry").next().unwrap_or_default().to_string()
}

/// What stands before and behind the changes of the sum in the loop: it is changed at the end of a turn, behind the wait
/// for its product, if it is as large as what the first product makes; otherwise where a turn begins.
#[test]
fn a_large_accumulator_is_rescaled_at_the_end_of_an_iteration() {
    let around = |keys: &str| {
        let tensor = dots_in(keys, "sum * 0.5");
        let known = ["$L__", "bar.sync", "bar.arrive", "commit_group", "wait_group", "mul.rn.f32"];
        let word = |line: &str| known.into_iter().find(|word| line.contains(word) && !line.contains("bra"));
        let mut words: Vec<&str> = tensor.lines().filter_map(word).collect();
        words.dedup();
        let changes = words.windows(3).filter(|words| words[1] == "mul.rn.f32");
        changes.map(|words| format!("{keys}: {} to {}\n", words[0], words[2])).collect::<String>()
    };
    expect![[r#"
        64: $L__ to wait_group
        64: wait_group to $L__
        128: $L__ to wait_group
        128: $L__ to bar.sync
    "#]]
    .assert_eq(&["64", "128"].map(around).concat());
}

/// Before a product starts a warp asks whether any of its rows' numbers is not 1; nobody asks where one number scales all
/// rows, or at the end of a turn.
#[test]
fn an_accumulator_is_not_rescaled_by_one() {
    let asks = |keys: &str, scaled: &str| dots_in(keys, scaled).matches("vote.sync.ballot").count();
    let rows = "sum * tl::max(weights, 1).col()";
    assert_eq!([asks("64", rows), asks("64", "sum * 0.5"), asks("128", "sum * 0.5")], [0; 3]);
    let asked = dots_in("128", rows);
    let (_, behind) = asked.split_once("vote.sync.ballot").expect("a question");
    let known = ["bra", "mul.rn.f32", "wgmma.mma"];
    let first = behind.lines().find_map(|line| known.into_iter().find(|word| line.contains(word)));
    assert_eq!(first, Some("bra"), "what stands behind the question");
}

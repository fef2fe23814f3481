//! Asynchronous copies of loops: the copies, the waits and the barriers of a GPU specialization.

use std::collections::HashSet;

use expect_test::{Expect, expect};

use super::{first, lines_with, ptx, ptx_of};
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::specializations;
use lowering::gpu::specialization::Gpus;

/// What a kernel does with memory, and where its threads meet.
fn check_memory(source: &str, expected: Expect) {
    let kept = ["cp.async", "ld.shared", "st.shared", "ld.global", "st.global", "bar."];
    expected.assert_eq(&lines_with(&ptx(source, Arch::SM_80), &kept));
}

const SUM: &str = "#[fuse_kernel(num_warps = 1)]
    fn sum(x: &[f32], out: &mut [f32], n: i32) {
        let lanes = tl::arange(0, 128);
        let mut total = tl::zeros::<f32>([128]);
        for i in tl::range(0, n)STAGES {
            total += tl::load(x + i * 128 + lanes);
        }
        tl::store(out + lanes, total);
    }";

/// Each turn is a group, an empty one too, so that all but the latest two are those of this turn and before.
#[test]
fn a_loop_prefetches_loads_of_later_iterations() {
    check_memory(
        &SUM.replace("STAGES", ".num_stages(3)"),
        expect![[r#"
            cp.async.ca.shared.global.L2::cache_hint [%r10 + 0], [%rd11], 16, %rd13;
            cp.async.commit_group;
            cp.async.ca.shared.global.L2::cache_hint [%r11 + 0], [%rd12], 16, %rd13;
            cp.async.commit_group;
            cp.async.commit_group;
            cp.async.wait_group 2;
            ld.shared.v4.b32 {%r14, %r15, %r16, %r17}, [%r19 + 0];
            cp.async.ca.shared.global.L2::cache_hint [%r13 + 0], [%rd16], 16, %rd13;
            st.global.v4.b32 	[%rd18], {%r20, %r21, %r22, %r23};
        "#]],
    );
}

#[test]
fn one_stage_copies_nothing() {
    check_memory(
        &SUM.replace("STAGES", ".num_stages(1)"),
        expect![[r#"
            ld.global.L2::cache_hint.v4.b32 {%r6, %r7, %r8, %r9}, [%rd9], %rd5;
            st.global.v4.b32 	[%rd12], {%r10, %r11, %r12, %r13};
        "#]],
    );
    let attribute = SUM.replace("num_warps = 1", "num_warps = 1, num_stages = 1").replace("STAGES", "");
    assert_eq!(ptx(&attribute, Arch::SM_80), ptx(&SUM.replace("STAGES", ".num_stages(1)"), Arch::SM_80));
}

#[test]
fn there_are_four_stages_by_default() {
    assert_eq!(
        ptx(&SUM.replace("STAGES", ""), Arch::SM_80),
        ptx(&SUM.replace("STAGES", ".num_stages(4)"), Arch::SM_80)
    );
}

/// The loop's own word counts, not the attribute's.
#[test]
fn stages_of_a_loop_override_those_of_its_kernel() {
    let both =
        SUM.replace("num_warps = 1", "num_warps = 1, num_stages = 6").replace("STAGES", ".num_stages(2)");
    assert_eq!(ptx(&both, Arch::SM_80), ptx(&SUM.replace("STAGES", ".num_stages(2)"), Arch::SM_80));
}

/// A place that was loaded or carried is known in its own turn only; an element of two bytes is too little to copy.
#[test]
fn loads_at_carried_addresses_are_not_prefetched() {
    check_memory(
        "#[fuse_kernel(num_warps = 1, unchecked)]
        fn k(x: &[i32], index: &[i32], narrow: &[i16], out: &mut [i32], n: i32) {
            let lanes = tl::arange(0, 32);
            let (mut at, mut total) = (lanes, tl::zeros::<i32>([32]));
            for i in 0..n {
                let hop = tl::load(index + i * 32 + lanes);
                total += tl::load(x + hop) + tl::load(narrow + i * 32 + lanes).to::<i32>();
                at = tl::load(index + at);
            }
            tl::store(out + at, total);
        }",
        expect![[r#"
            cp.async.ca.shared.global.L2::cache_hint [%r8 + 0], [%rd14], 4, %rd17;
            cp.async.commit_group;
            cp.async.ca.shared.global.L2::cache_hint [%r9 + 0], [%rd15], 4, %rd17;
            cp.async.commit_group;
            cp.async.ca.shared.global.L2::cache_hint [%r10 + 0], [%rd16], 4, %rd17;
            cp.async.commit_group;
            cp.async.commit_group;
            cp.async.wait_group 3;
            ld.shared.b32 %r13, [%r18 + 0];
            ld.global.nc.b32 	%r15, [%rd24];
            ld.global.nc.s16 	%r16, [%rd26];
            ld.global.nc.b32 	%r20, [%rd28];
            cp.async.ca.shared.global.L2::cache_hint [%r12 + 0], [%rd22], 4, %rd17;
            st.global.b32 	[%rd30], %r19;
        "#]],
    );
}

const REREAD: &str = "#[fuse_kernel(num_warps = 1STAGES)]
    fn k(x: &[f32], out: &mut [f32], n: i32) {
        let lanes = tl::arange(0, 32);
        for i in 0..n {
            let before = tl::load(out + i * 32 + lanes);
            tl::store(out + i * 32 + 32 + lanes, before + tl::load(x + i * 32 + lanes));
        }
    }";

/// What the kernel writes is never read early, and waits better without copies beside it unless they are asked for.
#[test]
fn a_slice_that_is_written_is_not_prefetched() {
    check_memory(
        &REREAD.replace("STAGES", ""),
        expect![[r#"
            bar.warp.sync 	-1;
            ld.global.b32 	%r5, [%rd11];
            ld.global.nc.b32 	%r6, [%rd12];
            st.global.b32 	[%rd15+128], %r7;
        "#]],
    );
    check_memory(
        &REREAD.replace("STAGES", ", num_stages = 2"),
        expect![[r#"
            cp.async.ca.shared.global.L2::cache_hint [%r9 + 0], [%rd12], 4, %rd13;
            cp.async.commit_group;
            cp.async.commit_group;
            cp.async.wait_group 1;
            bar.warp.sync 	-1;
            ld.global.b32 	%r14, [%rd18];
            ld.shared.b32 %r12, [%r16 + 0];
            st.global.b32 	[%rd21+128], %r15;
            cp.async.ca.shared.global.L2::cache_hint [%r11 + 0], [%rd16], 4, %rd13;
            cp.async.commit_group;
        "#]],
    );
}

/// The second loop's copies lie where the first one's did, for other threads: some read those after the reduction's last
/// barrier.
#[test]
fn a_barrier_separates_loops_whose_rings_share_memory() {
    check_memory(
        "#[fuse_kernel(num_warps = 2, num_stages = 2)]
        fn k(x: &[i32], y: &[i32], out: &mut [i32], n: i32) {
            let (lanes, wide) = (tl::arange(0, 64), tl::arange(0, 256));
            let (mut total, mut other) = (tl::zeros::<i32>([64]), tl::zeros::<i32>([256]));
            for i in 0..n {
                let largest = tl::max(tl::load(x + i * 64 + lanes), 0);
                total += tl::load(y + i * 64 + lanes) * largest;
            }
            for i in 0..n { other += tl::load(y + i * 256 + wide); }
            tl::store(out + lanes, total);
            tl::store(out + 64 + wide, other);
        }",
        expect![[r#"
            cp.async.ca.shared.global.L2::cache_hint [%r17 + 0], [%rd14], 4, %rd8;
            cp.async.ca.shared.global.L2::cache_hint [%r17 + 256], [%rd15], 4, %rd8;
            cp.async.commit_group;
            cp.async.commit_group;
            cp.async.wait_group 1;
            ld.shared.b32 %r20, [%r39 + 0];
            bar.sync 	0;
            ld.shared.v2.b32 	{%r24, %r25}, [%rd3];
            ld.shared.b32 %r23, [%r39 + 256];
            cp.async.ca.shared.global.L2::cache_hint [%r19 + 0], [%rd17], 4, %rd8;
            cp.async.ca.shared.global.L2::cache_hint [%r19 + 256], [%rd18], 4, %rd8;
            st.shared.b32 	[%rd4], %r7;
            cp.async.commit_group;
            bar.sync 	0;
            cp.async.ca.shared.global.L2::cache_hint [%r27 + 0], [%rd22], 16, %rd8;
            cp.async.commit_group;
            cp.async.commit_group;
            cp.async.wait_group 1;
            ld.shared.v4.b32 {%r34, %r35, %r36, %r37}, [%r41 + 0];
            cp.async.ca.shared.global.L2::cache_hint [%r33 + 0], [%rd25], 16, %rd8;
            cp.async.commit_group;
            st.global.b32 	[%rd26], %r40;
            st.global.v4.b32 	[%rd28+256], {%r42, %r43, %r44, %r45};
        "#]],
    );
}

/// Copies of a turn that would take too much beside another's go where this turn has read its own; what they are
/// computed by is not what this turn stores by.
#[test]
fn a_large_stage_refills_its_own_slot() {
    check_memory(
        "#[fuse_kernel(num_warps = 32, num_stages = 2, unchecked)]
        fn k(x: &[f32], out: &mut [f32], n: i32) {
            let lanes = tl::arange(0, 16384);
            for i in (tl::program_id(0)..n).step_by(tl::num_programs(0)) {
                tl::store(out + i * 16384 + lanes, tl::load(x + i * 16384 + lanes) + 1.0);
            }
        }",
        expect![[r#"
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 0], [%rd12], 16, %rd13;
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 16384], [%rd14], 16, %rd13;
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 32768], [%rd15], 16, %rd13;
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 49152], [%rd16], 16, %rd13;
            cp.async.commit_group;
            cp.async.commit_group;
            st.global.v4.b32 	[%rd25], {%r30, %r31, %r32, %r33};
            st.global.v4.b32 	[%rd25+16384], {%r34, %r35, %r36, %r37};
            st.global.v4.b32 	[%rd25+32768], {%r38, %r39, %r40, %r41};
            st.global.v4.b32 	[%rd25+49152], {%r42, %r43, %r44, %r45};
            cp.async.wait_group 0;
            ld.shared.v4.b32 {%r14, %r15, %r16, %r17}, [%r13 + 0];
            ld.shared.v4.b32 {%r18, %r19, %r20, %r21}, [%r13 + 16384];
            ld.shared.v4.b32 {%r22, %r23, %r24, %r25}, [%r13 + 32768];
            ld.shared.v4.b32 {%r26, %r27, %r28, %r29}, [%r13 + 49152];
            bar.warp.sync 	-1;
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 0], [%rd20], 16, %rd13;
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 16384], [%rd21], 16, %rd13;
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 32768], [%rd22], 16, %rd13;
            cp.async.cg.shared.global.L2::cache_hint [%r13 + 49152], [%rd23], 16, %rd13;
            cp.async.commit_group;
        "#]],
    );
}

const PRODUCT: &str = "#[fuse_kernel(num_warps = 4, num_stages = STAGES)]
    fn k(a: &[f16], b: &[f16], out: &mut [f32], k: i32) {
        let (rows, cols) = (tl::arange(0, SIDE), tl::arange(0, SIDE));
        let mut sum = tl::zeros::<f32>([SIDE, SIDE]);
        for start in (0..k).step_by(SIDE) {
            let at = rows.col() * k + start + cols.row();
            sum = tl::dot(tl::load(a + at), tl::trans(tl::load(b + at)), sum);
        }
        tl::store(out + rows.col() * SIDE + cols.row(), sum);
    }";

fn product(side: u32, stages: u32) -> String {
    PRODUCT.replace("SIDE", &side.to_string()).replace("STAGES", &stages.to_string())
}

/// A turn waits for its own copies and for all threads, behind which the part of the turn before is free; its copies are
/// started among what it multiplies. Fragments are read where the copies came.
#[test]
fn operands_of_dots_are_copied_to_shared_tiles() {
    let kept = ["cp.async", "bar.sync", "ldmatrix", "mma.sync", "shared.v4"];
    let text = lines_with(&ptx(&product(32, 3), Arch::SM_80), &kept);
    let opcodes: Vec<&str> = text.lines().map(|line| line.split('[').next().unwrap_or_default()).collect();
    let opcodes: Vec<&str> =
        opcodes.iter().map(|line| line.split('{').next().unwrap_or_default().trim()).collect();
    expect![[r#"
        cp.async.cg.shared.global.L2::cache_hint
        cp.async.cg.shared.global.L2::cache_hint
        cp.async.commit_group;
        cp.async.cg.shared.global.L2::cache_hint
        cp.async.cg.shared.global.L2::cache_hint
        cp.async.commit_group;
        cp.async.wait_group 1;
        bar.sync 	0;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16
        ldmatrix.sync.aligned.m8n8.x4.shared.b16
        ldmatrix.sync.aligned.m8n8.x4.shared.b16
        ldmatrix.sync.aligned.m8n8.x4.shared.b16
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        @%p4 cp.async.cg.shared.global.L2::cache_hint
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        @%p4 cp.async.cg.shared.global.L2::cache_hint
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        cp.async.commit_group;"#]]
    .assert_eq(&opcodes.join("\n"));
}

/// One stage has no ring: both factors are written from registers. A ring has a part for each stage, and where they do not all
/// fit, as many as do. If the user says nothing, two blocks fit where that leaves two stages.
#[test]
fn a_ring_of_tiles_has_as_many_slots_as_fit() {
    let bytes = |source: &str| {
        let (func, requests) = first(source);
        let found = specializations(&func, requests).expect("bodies that fit");
        let of_warps = found.iter().find(|specialization| specialization.gpus != Gpus::WithWgmma);
        of_warps.expect("a body for all GPUs").plan.shared_bytes()
    };
    let with = |side: u32, stages: u32| bytes(&product(side, stages));
    // Two factors of two bytes an element.
    assert_eq!([2, 3, 5, 8].map(|stages| with(32, stages)), [2, 3, 5, 8].map(|parts| parts * 4 * 32 * 32));
    assert_eq!(with(128, 8), 2 * 4 * 128 * 128);
    assert_eq!(with(32, 1), 2 * 2 * 32 * (32 + 8));
    let unasked = |side: u32| bytes(&product(side, 0).replace(", num_stages = 0", ""));
    assert_eq!([32, 64, 128].map(|side| unasked(side) / (4 * side * side)), [3, 3, 2]);
}

/// Everything but a product needs the elements in registers, and so does a product that cannot read them as matrices.
#[test]
fn operands_with_other_uses_are_not_copied_to_shared_tiles() {
    let matrices = |source: &str| {
        let text = ptx(source, Arch::SM_80);
        [text.matches("cp.async.c").count() > 0, text.matches("st.shared").count() > 0]
    };
    let product = product(32, 2);
    assert_eq!(matrices(&product), [true, false]);
    let used = product.replace("tl::trans(tl::load(b + at))", "tl::trans(tl::load(b + at) * 2.0)");
    assert_eq!(matrices(&used), [true, true]);
    let ieee = product.replace("f16", "f32");
    assert_eq!(matrices(&ieee), [true, true]);
    let masked = product.replace("tl::load(a + at)", "tl::load(a + at, cols.row() < k - start, 0.0)");
    assert_eq!(matrices(&masked), [true, false]);
    let other = product.replace("tl::load(a + at)", "tl::load(a + at, cols.row() < k - start, 1.0)");
    assert_eq!(matrices(&other), [true, true]);
}

/// The row of a product is the same for all programs, which would ask the second-level cache for the same few lines; and each warp reads
/// all of it. The other operand is every program's own.
#[test]
fn copies_of_what_programs_share_go_through_the_first_level_cache() {
    let counts = |rows: &str| {
        let source = format!(
            "#[fuse_kernel(num_warps = 4)]
            fn product(x: &[f16], w: &[f16], out: &mut [f32], k: i32) {{
                let (rows, cols) = (tl::program_id(0) * 4 + tl::arange(0, 4), tl::arange(0, 1024));
                let mut acc = tl::zeros::<f32>([4, 1024]);
                for start in (0..k).step_by(1024) {{
                    let x = tl::load(x + {rows} + (start + cols).row()).to::<f32>();
                    acc += x * tl::load(w + (rows * k).col() + (start + cols).row()).to::<f32>();
                }}
                tl::store(out + rows, tl::sum(acc, 1));
            }}"
        );
        let text = ptx_of(&source, Arch::SM_80, |specialization| specialization.name == "aligned");
        let copies = |operator: &str| text.matches(&format!("cp.async.{operator}.shared")).count();
        [copies("ca"), copies("cg")].map(|count| count > 0)
    };
    assert_eq!(counts("0"), [true, true]);
    // A row for each program: its warps share it.
    assert_eq!(counts("tl::program_id(0) * k"), [true, true]);
}

/// Queries of 256 elements are too many for registers.
#[test]
fn an_invariant_operand_is_written_once() {
    let text = ptx(
        "#[fuse_kernel(num_warps = 4)]
        fn k(q: &[f16], k: &[f16], out: &mut [f32], n: i32) {
            let (rows, cols) = (tl::arange(0, 64), tl::arange(0, 256));
            let at = rows.col() * 256 + cols.row();
            let q = tl::load(q + at);
            let mut sum = tl::zeros::<f32>([64, 64]);
            for i in 0..n {
                sum = tl::dot(q, tl::trans(tl::load(k + i * 16384 + at)), sum);
            }
            tl::store(out + rows.col() * 64 + rows.row(), sum);
        }",
        Arch::SM_80,
    );
    let (before, turn) = text.split_once("cp.async.wait_group").expect("a turn");
    assert_eq!([before, turn].map(|part| part.matches("st.shared").count()), [16, 0]);
    assert!(turn.matches("ldmatrix").count() > 0);
}

/// `add.s32 %r1, %r2, 4;` as `%r1` and the rest; what starts no value has none.
fn definition(line: &str) -> Option<(&str, &str)> {
    let (_, operands) = line.trim().split_once(|c: char| c.is_whitespace())?;
    let (result, rest) = operands.trim().split_once(',')?;
    result.trim().starts_with('%').then_some((result.trim(), rest))
}

fn registers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '%').filter(|word| word.starts_with('%'))
}

/// What the addresses that copies go to are computed by, back to the instructions that hide them from ptxas; the number of
/// those.
fn check_hidden(ptx: &str) -> usize {
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let mut todo: Vec<&str> = vec![];
    for line in lines.iter().filter(|line| line.contains("cp.async") && line.contains(".shared.global")) {
        let (_, operands) = line.split_once('[').expect("an address");
        todo.extend(registers(operands.split(']').next().unwrap_or_default()));
    }
    assert!(!todo.is_empty(), "nothing is copied:\n{ptx}");
    let (mut seen, mut hidden) = (HashSet::new(), HashSet::new());
    while let Some(register) = todo.pop() {
        if !seen.insert(register) {
            continue;
        }
        for (number, line) in lines.iter().enumerate() {
            let Some((_, rest)) = definition(line).filter(|(result, _)| *result == register) else {
                continue;
            };
            if line.starts_with("shfl.sync.idx.b32") {
                hidden.insert(number);
                continue;
            }
            assert!(!rest.contains("shared"), "a copy's address comes from `{line}` in plain sight:\n{ptx}");
            todo.extend(registers(rest));
        }
    }
    hidden.len()
}

/// `start_ahead` says what ptxas makes of an address it sees through. One address for each width.
#[test]
fn copy_addresses_are_hidden_from_ptxas() {
    assert_eq!(check_hidden(&ptx(&SUM.replace("STAGES", ""), Arch::SM_80)), 1);
    let two_widths = "#[fuse_kernel(num_warps = 4)]
        fn k(x: &[f32], y: &[f16], out: &mut [f32], n: i32) {
            let lanes = tl::arange(0, 512);
            let mut total = tl::zeros::<f32>([512]);
            for i in 0..n {
                let scale = tl::load(y + i * 512 + lanes).to::<f32>();
                total += tl::load(x + i * 512 + lanes).evict_first() * scale;
            }
            tl::store(out + lanes, total);
        }";
    assert_eq!(check_hidden(&ptx(two_widths, Arch::SM_80)), 2);
    // A tile is copied to by all threads: what is hidden is where the ring starts.
    assert_eq!(check_hidden(&ptx(&product(32, 3), Arch::SM_80)), 1);
}

/// A number that a turn loads for the next one stays where it comes: its address looks different from thread to thread, or
/// ptxas would wait for it at once. One that is used in its own turn has nothing to wait for.
#[test]
fn a_carried_scalar_load_is_not_waited_for() {
    let source = "#[fuse_kernel(BLOCK = [128], num_warps = 1)]
        fn scale<const BLOCK: usize>(x: &[f32], scales: &[f32], out: &mut [f32], n: i32) {
            let cols = tl::arange(0, BLOCK);
            let mut next = tl::load(scales + 0, n > 0);
            for row in 0..n {
                let scale = next;
                LOAD
                tl::store(out + row * BLOCK + cols, tl::load(x + row * BLOCK + cols) * scale);
            }
        }";
    let count =
        |load: &str, what: &str| ptx(&source.replace("LOAD", load), Arch::SM_90A).matches(what).count();
    let (ahead, own) =
        ("next = tl::load(scales + row + 1, row + 1 < n);", "let scale = scale * tl::load(scales + row);");
    assert_eq!(count(ahead, "shfl.sync.idx") - count(own, "shfl.sync.idx"), 1);
}

/// Pages that a table names: a turn's copies start with a look at the table, of turns that there are.
#[test]
fn a_loop_prefetches_pages_by_loaded_indices() {
    check_memory(
        "#[fuse_kernel(num_warps = 4)]
        fn k(keys: &[bf16], pages: &[i32], out: &mut [f32], n: i32) {
            let columns = tl::arange(0, 128).row();
            let mut sum = tl::zeros::<f32>([16, 128]);
            for i in tl::range(0, n).num_stages(3) {
                let page = tl::load(pages + i);
                sum += tl::load(keys + (page * 16 + tl::arange(0, 16)).col() * 128 + columns).to::<f32>();
            }
            tl::store(out + tl::arange(0, 16).col() * 128 + columns, sum);
        }",
        expect![[r#"
            ld.global.b32 	%r16, [%rd4];
            cp.async.cg.shared.global.L2::cache_hint [%r5 + 0], [%rd13], 16, %p3, %rd6;
            cp.async.cg.shared.global.L2::cache_hint [%r5 + 2048], [%rd14], 16, %p4, %rd6;
            cp.async.commit_group;
            ld.global.b32 	%r25, [%rd4+4];
            cp.async.cg.shared.global.L2::cache_hint [%r24 + 0], [%rd25], 16, %p10, %rd6;
            cp.async.cg.shared.global.L2::cache_hint [%r24 + 2048], [%rd26], 16, %p11, %rd6;
            cp.async.commit_group;
            cp.async.commit_group;
            cp.async.wait_group 2;
            ld.shared.v4.b32 {%r47, %r48, %r49, %r50}, [%r74 + 0];
            ld.shared.v4.b32 {%r51, %r52, %r53, %r54}, [%r74 + 2048];
            ld.global.b32 	%r44, [%rd41];
            cp.async.cg.shared.global.L2::cache_hint [%r41 + 0], [%rd38], 16, %p17, %rd6;
            cp.async.cg.shared.global.L2::cache_hint [%r41 + 2048], [%rd39], 16, %p18, %rd6;
            st.global.v4.b32 	[%rd53], {%r75, %r76, %r77, %r78};
            st.global.v4.b32 	[%rd53+16], {%r79, %r80, %r81, %r82};
            st.global.v4.b32 	[%rd53+4096], {%r83, %r84, %r85, %r86};
            st.global.v4.b32 	[%rd53+4112], {%r87, %r88, %r89, %r90};
        "#]],
    );
}

/// A table of elements is none of pages: it would be read twice for nothing.
#[test]
fn gathered_elements_are_not_prefetched() {
    check_memory(
        "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[f32], places: &[i32], out: &mut [f32], n: i32) {
            let lanes = tl::arange(0, 128);
            let mut sum = tl::zeros::<f32>([128]);
            for i in tl::range(0, n).num_stages(3) {
                sum += tl::load(x + tl::load(places + i * 128 + lanes));
            }
            tl::store(out + lanes, sum);
        }",
        expect![[r#"
            cp.async.ca.shared.global.L2::cache_hint [%r10 + 0], [%rd13], 16, %rd15;
            cp.async.commit_group;
            cp.async.ca.shared.global.L2::cache_hint [%r11 + 0], [%rd14], 16, %rd15;
            cp.async.commit_group;
            cp.async.commit_group;
            cp.async.wait_group 2;
            ld.shared.v4.b32 {%r14, %r15, %r16, %r17}, [%r23 + 0];
            @%p6 ld.global.nc.b32 %r18, [%rd19];
            @%p7 ld.global.nc.b32 %r19, [%rd20];
            @%p8 ld.global.nc.b32 %r20, [%rd21];
            @%p9 ld.global.nc.b32 %r21, [%rd22];
            cp.async.ca.shared.global.L2::cache_hint [%r13 + 0], [%rd18], 16, %rd15;
            st.global.v4.b32 	[%rd32], {%r24, %r25, %r26, %r27};
        "#]],
    );
}

/// A loop that reads what an earlier one has read gets it from the first-level cache; what is read once is copied ahead, and so is what the
/// user asks for.
#[test]
fn loads_that_are_read_again_are_not_prefetched() {
    let twice = |hint: &str, second: &str| {
        let source = format!(
            "#[fuse_kernel({hint})]
            fn k(x: &[f32], out: &mut [f32], n: i32) {{
                let lanes = tl::arange(0, 512);
                let mut total = tl::zeros::<f32>([512]);
                for start in (0..n).step_by(512) {{
                    total += tl::load(x + tl::program_id(0) * n + start + lanes, start + lanes < n);
                }}
                let mean = tl::sum(total, 0) / n as f32;
                for start in (0..n).step_by(512) {{
                    let at = {second} + start + lanes;
                    tl::store(out + at, tl::load(x + at, start + lanes < n) - mean, start + lanes < n);
                }}
            }}"
        );
        let text = ptx_of(&source, Arch::SM_80, |body| body.name == "aligned");
        text.matches("cp.async.wait_group").count()
    };
    expect![[r#"
        once again 1, another row 2, asked for 2
    "#]]
    .assert_eq(&format!(
        "once again {}, another row {}, asked for {}\n",
        twice("", "tl::program_id(0) * n"),
        twice("", "tl::program_id(0) * n + 4"),
        twice("num_stages = 3", "tl::program_id(0) * n"),
    ));
}

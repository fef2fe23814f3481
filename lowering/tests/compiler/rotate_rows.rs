//! Misaligned rows.

use expect_test::expect;
use tile_ir::ir;
use tile_ir::testing::func;

use super::ptx_of;
use super::run::{Arg, load_bodies};
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::{KernelRequests, specializations};

/// A row in one tile: loaded, summed, offset by a value per column, stored.
const ROW: &str = "#[fuse_kernel]
    fn k(x: &[u16], w: &[u16], out: &mut [u16], sums: &mut [i32], n: i32) {
        let row = tl::program_id(0);
        let i = tl::arange(0, 256);
        let mask = i < n;
        let x = tl::load(x + row * n + i, mask).to::<i32>();
        let w = tl::load(w + i, mask, 7).to::<i32>();
        tl::store(out + row * n + i, (x + w + i).to::<u16>(), mask);
        tl::store(sums + row, tl::sum(x * w, 0));
    }";

/// The same in a tile of one row, of kernels that take several short ones.
const TILE: &str = "#[fuse_kernel]
    fn k(x: &[u16], w: &[u16], out: &mut [u16], sums: &mut [i32], n: i32) {
        let rows = tl::program_id(0) + tl::arange(0, 1);
        let i = tl::arange(0, 256);
        let mask = (rows < tl::num_programs(0)).col() & (i < n).row();
        let at = (rows * n).col() + i.row();
        let x = tl::load(x + at, mask).to::<i32>();
        let w = tl::load(w + i, i < n, 7).to::<i32>().row();
        tl::store(out + at, (x + w + i.row()).to::<u16>(), mask);
        tl::store(sums + rows, tl::sum(x * w, 1));
    }";

/// The same in chunks.
const CHUNKS: &str = "#[fuse_kernel]
    fn k(x: &[u16], w: &[u16], out: &mut [u16], sums: &mut [i32], n: i32) {
        let row = tl::program_id(0);
        let i = tl::arange(0, 256);
        let mut all = tl::zeros::<i32>([256]);
        for first in (0..n).step_by(256) {
            let at = first + i;
            let x = tl::load(x + row * n + at, at < n).to::<i32>();
            let w = tl::load(w + at, at < n, 7).to::<i32>();
            tl::store(out + row * n + at, (x + w + at).to::<u16>(), at < n);
            all += x * w;
        }
        tl::store(sums + row, tl::sum(all, 0));
    }";

/// The same, read twice and written by the second loop, which is rotated for what it writes.
const TWICE: &str = "#[fuse_kernel]
    fn k(x: &[u16], w: &[u16], out: &mut [u16], sums: &mut [i32], n: i32) {
        let row = tl::program_id(0);
        let i = tl::arange(0, 256);
        let mut all = tl::zeros::<i32>([256]);
        for first in (0..n).step_by(256) {
            let at = first + i;
            let x = tl::load(x + row * n + at, at < n).to::<i32>();
            all += x * tl::load(w + at, at < n, 7).to::<i32>();
        }
        tl::store(sums + row, tl::sum(all, 0));
        for first in (0..n).step_by(256) {
            let at = first + i;
            let x = tl::load(x + row * n + at, at < n).to::<i32>();
            let w = tl::load(w + at, at < n, 7).to::<i32>();
            tl::store(out + row * n + at, (x + w + at).to::<u16>(), at < n);
        }
    }";

/// What a kernel computes with its body for such rows, of every number of elements that ends or begins somewhere else.
fn check(source: &str, widths: impl Iterator<Item = usize> + Clone) {
    let names: Vec<String> = specializations(&func(source), KernelRequests::default())
        .expect("bodies that fit")
        .into_iter()
        .map(|body| body.name)
        .collect();
    let body =
        names.iter().position(|name| *name == "unaligned").expect("a body for rows that begin anywhere");
    let loaded = &load_bodies(source)[body];
    for n in widths {
        for loaded in loaded {
            let rows = 17;
            let mut x: Vec<u16> = (0..rows * n).map(|i| (i * 37 % 101) as u16).collect();
            let mut w: Vec<u16> = (0..n).map(|i| (i * 11 % 13) as u16).collect();
            let (mut out, mut sums) = (vec![u16::MAX; rows * n + 9], vec![-1i32; rows]);
            let args = &mut [
                Arg::of(&mut x),
                Arg::of(&mut w),
                Arg::of(&mut out),
                Arg::of(&mut sums),
                Arg::Scalar(n as u64),
            ];
            loaded.call([rows as u32, 1, 1], args);
            for row in 0..rows {
                let of_row = &x[row * n..][..n];
                let sum: i32 = of_row.iter().zip(&w).map(|(&x, &w)| i32::from(x) * i32::from(w)).sum();
                assert_eq!(sums[row], sum, "row {row} of {n}");
                for i in 0..n {
                    let wanted = of_row[i] + w[i] + i as u16;
                    assert_eq!(out[row * n + i], wanted, "element {i} of row {row} of {n}");
                }
            }
            assert!(out[rows * n..].iter().all(|&x| x == u16::MAX), "behind rows of {n}");
        }
    }
}

#[test]
fn a_row_in_a_tile_is_cut_into_aligned_vectors() {
    check(ROW, (1..20).chain(60..70).chain(225..=256));
    check(TILE, (1..20).chain(225..=256));
}

#[test]
fn rows_in_chunks_are_rotated() {
    check(CHUNKS, (1..12).chain(250..265).chain(509..516));
    check(TWICE, (1..12).chain(250..265).chain(509..516));
}

/// The first loop reads rows of another pitch than the second one writes: each has a range of its own.
#[test]
fn loops_are_rotated_for_their_own_accesses() {
    let source = TWICE.replace("n: i32)", "n: i32, m: i32)").replace("out + row * n", "out + row * m");
    let body = specializations(&func(&source), KernelRequests::default()).expect("bodies that fit");
    let body =
        body.iter().find(|body| body.name == "unaligned").expect("a body for rows that begin anywhere");
    let text = ir::print(&body.plan.laid_out, &|_| None);
    let accesses: Vec<&str> = text.lines().map(str::trim).filter(|line| line.contains("vector")).collect();
    expect![[r#"
        %41 = load x[%40 + %11] mask %35 inside vector 4 rotated elements 8 limit 8 interval one_sided : u16[256]
        %45 = load w[%39 + %11] mask %35 inside vector 4 misaligned %15 elements 8 limit 8 interval one_sided other %44 : u16[256]
        %63 = load x[%62 + %20] mask %58 inside vector 4 misaligned %24 elements 8 limit 8 interval one_sided : u16[256]
        %67 = load w[%61 + %20] mask %58 inside vector 4 misaligned %26 elements 8 limit 8 interval one_sided other %66 : u16[256]
        store %71, out[%74 + %20] mask %58 inside vector 4 rotated elements 8 limit 8 interval one_sided"#]]
    .assert_eq(&accesses.join("\n"));
}

#[test]
fn tiles_whose_order_matters_are_not_rotated() {
    let rotated = |line: &str| {
        let source = ROW.replace("tl::store(sums", &format!("{line}\n tl::store(sums"));
        specializations(&func(&source), KernelRequests::default())
            .expect("bodies that fit")
            .iter()
            .any(|body| body.name == "unaligned")
    };
    assert!(rotated(""));
    assert!(rotated("tl::store(sums + 100 + row, tl::argmax(x, 0));"));
    assert!(!rotated("tl::store(sums + 100 + i, tl::cumsum(x, 0));"));
    assert!(!rotated("tl::store(sums + 100 + i, tl::sort(x));"));
    assert!(!rotated("tl::store(sums + 100 + i, tl::gather(x, (i + 1) % 256, 0));"));
    assert!(!rotated("tl::store(sums + 100 + tl::arange(1, 257), x);"));
    assert!(!rotated("tl::store(sums + 100 + tl::arange(0, 16), tl::sum(tl::reshape(x, [16, 16]), 1));"));
}

/// A row that is read and written in place, at another distance than the row that determines the rotation: a vector that no store could write
/// is stored, and changed atomically, element by element.
#[test]
fn rows_in_place_at_another_distance_are_stored_by_elements() {
    let accesses = |change: &str| {
        let func = func(&format!(
            "#[fuse_kernel]
            fn k(x: &mut [u32], out: &mut [u32], n: i32, x_stride: i32, out_stride: i32) {{
                let (row, i) = (tl::program_id(0), tl::arange(0, 256));
                let y = tl::load(x + row * x_stride + i, i < n) + 1;
                {change}(x + row * x_stride + i, y, i < n);
                tl::store(out + row * out_stride + i, y, i < n);
            }}"
        ));
        let bodies = specializations(&func, KernelRequests::default()).expect("bodies that fit");
        let body =
            bodies.iter().find(|body| body.name == "unaligned").expect("a body for rows that begin anywhere");
        let text = ir::print(&body.plan.laid_out, &|_| None);
        let lines = text.lines().map(str::trim);
        lines.filter(|line| line.contains("x[") || line.contains("out[")).collect::<Vec<&str>>().join("\n")
    };
    expect![[r#"
        %34 = load x[%33 + %21] mask %30 inside vector 4 misaligned %28 elements 4 limit 4 interval one_sided : u32[256]
        store %37, x[%33 + %21] mask %30 inside
        store %37, out[%39 + %21] mask %30 inside vector 4 rotated elements 4 limit 4 interval one_sided"#]].assert_eq(&accesses("tl::store"));
    expect![[r#"
        %34 = load x[%33 + %21] mask %30 inside vector 4 misaligned %28 elements 4 limit 4 interval one_sided : u32[256]
        %38 = atomic_add %37, x[%33 + %21] mask %30 inside order acq_rel scope gpu : u32[256]
        store %37, out[%40 + %21] mask %30 inside vector 4 rotated elements 4 limit 4 interval one_sided"#]].assert_eq(&accesses("tl::atomic_add"));
}

/// Whole vectors of the row, and vectors around those of the per-column operand; single elements only at the row's ends.
#[test]
fn rows_move_in_vectors() {
    let func = func(ROW);
    let body = specializations(&func, KernelRequests::default()).expect("bodies that fit");
    let body =
        body.iter().find(|body| body.name == "unaligned").expect("a body for rows that begin anywhere");
    let text = ir::print(&body.plan.laid_out, &|_| None);
    let accesses: Vec<&str> = text.lines().map(str::trim).filter(|line| line.contains("vector")).collect();
    expect![[r#"
        %29 = load x[%28 + %19] mask %25 inside vector 8 rotated elements 8 limit 8 interval one_sided : u16[256]
        %33 = load w[%19] mask %25 inside vector 8 misaligned %23 elements 8 limit 8 interval one_sided other %32 : u16[256]
        store %37, out[%28 + %19] mask %25 inside vector 8 rotated elements 8 limit 8 interval one_sided"#]]
    .assert_eq(&accesses.join("\n"));
    let text = ptx_of(ROW, Arch::SM_90A, |body| body.name == "unaligned");
    let counts = [
        "ld.global.L2::cache_hint.v4.b32",
        "ld.global.L2::cache_hint.b16",
        "st.global.v4.b32",
        "st.global.b16",
    ]
    .map(|word| format!("{} {word}", text.matches(word).count()));
    expect![[r#"
        3 ld.global.L2::cache_hint.v4.b32
        16 ld.global.L2::cache_hint.b16
        1 st.global.v4.b32
        8 st.global.b16"#]]
    .assert_eq(&counts.join("\n"));
}

/// Each of several rows in a tile has its own misalignment: aligned vectors around them are loaded, with one mask at a row's end.
#[test]
fn rows_of_a_tile_are_read_in_vectors() {
    let source = "#[fuse_kernel]
    fn k(x: &[u16], sums: &mut [i32], n: i32) {
        let rows = tl::program_id(0) * 8 + tl::arange(0, 8);
        let i = tl::arange(0, 128);
        let mask = (rows < 100).col() & (i < n).row();
        let x = tl::load(x + ((rows * n).col() + i.row()), mask).to::<i32>();
        tl::store(sums + rows, tl::sum(x, 1), rows < 100);
    }";
    let body = specializations(&func(source), KernelRequests::default()).expect("bodies that fit");
    let body = body.iter().find(|body| body.name == "odd").expect("a body for rows that begin anywhere");
    let text = ir::print(&body.plan.laid_out, &|_| None);
    let loads: Vec<&str> = text.lines().map(str::trim).filter(|line| line.contains("load x")).collect();
    expect!["%30 = load x[%25 + %29] mask %17 inside vector 8 unrotated elements 8 limit 8 : u16[8, 128]"]
        .assert_eq(&loads.join("\n"));
    let text = ptx_of(source, Arch::SM_90A, |body| body.name == "odd");
    let counts = ["ld.global.L2::cache_hint.v4.b32", "shr.u32"]
        .map(|word| format!("{} {word}", text.matches(word).count()));
    expect![[r#"
        4 ld.global.L2::cache_hint.v4.b32
        8 shr.u32"#]]
    .assert_eq(&counts.join("\n"));
    // A loop hoists masks and offsets.
    let in_loop = source
        .replace(
            "let x = tl::load(x + (",
            "let mut all = tl::zeros::<i32>([8, 128]);\n for turn in 0..n { all += tl::load(x + (turn + ",
        )
        .replace("mask).to::<i32>();", "mask).to::<i32>(); }")
        .replace("tl::sum(x, 1)", "tl::sum(all, 1)");
    let body = specializations(&func(&in_loop), KernelRequests::default()).expect("bodies that fit");
    assert!(body.iter().any(|body| body.name == "odd"));
    assert!(body.iter().all(|body| !ir::print(&body.plan.laid_out, &|_| None).contains(" unrotated")));
    // Stores of the same layout keep contiguous elements in adjacent threads.
    let stored = source.replace(
        "tl::store(sums",
        "tl::store(sums + ((rows * n).col() + i.row()), x, mask);\n tl::store(sums",
    );
    let body = specializations(&func(&stored), KernelRequests::default()).expect("bodies that fit");
    assert!(body.iter().all(|body| !ir::print(&body.plan.laid_out, &|_| None).contains(" unrotated")));
}

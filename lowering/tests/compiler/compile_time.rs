//! The time to lower a kernel grows at most with the square of its length: programs of each kind, and the same with
//! twice as many statements.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use tile_ir::ir::Func;
use tile_ir::testing::func;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use lowering::backend::host_asm;
use lowering::backend::host_asm::Family;
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit::CpuPlan;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::Session;

/// Twice the statements may take four times as long, with a margin for noise.
const MAX_GROWTH: f64 = 6.0;
/// Less is noise.
const NOISE: Duration = Duration::from_millis(300);
/// Longer programs show nothing more.
const ENOUGH: Duration = Duration::from_millis(700);

/// The CPU time of this thread.
fn now() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("usage");
    let of =
        |time: nix::sys::time::TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000);
    of(usage.user_time()) + of(usage.system_time())
}

/// What a build does with a kernel, but for the assembler; the time that each stage takes.
fn lower(source: &str) -> [(&'static str, Duration); 4] {
    let start = now();
    let checked: Func = func(source);
    let after_check = now();
    let specializations =
        specializations(&checked, KernelRequests { programs: Some(1), ..KernelRequests::default() })
            .expect("they fit");
    let after_bodies = now();
    let session = Session::new();
    for body in &specializations {
        let named = [("entry".into(), body)];
        nvptx::emit(&session, &named, &[Arch::SM_80], None).expect("PTX");
    }
    let after_ptx = now();
    let mut whole = checked;
    legalize_index(&mut whole, BoundsPolicy::Masked);
    let plan = CpuPlan::new(whole);
    host_asm::emit(&session, &plan, "kernel", Family::X86_64).expect("assembly");
    let after_host = now();
    [
        ("check", after_check - start),
        ("bodies", after_bodies - after_check),
        ("ptx", after_ptx - after_bodies),
        ("host", after_host - after_ptx),
    ]
}

/// A kernel around statements.
fn kernel(before: &str, statements: &str, after: &str) -> String {
    format!(
        "#[fuse_kernel]
        fn k(x: &[i32], f: &[f32], out: &mut [i32], y: &mut [f32], n: i32, m: i32) {{
            let lane = tl::arange(0, 32);
            let square = tl::arange(0, 16).col() * 16 + tl::arange(0, 16).row();
            {before}
            {statements}
            {after}
        }}"
    )
}

/// A kernel of `count` times the statement, in which `#` is the number of the copy.
fn repeated(before: &str, statement: &str, after: &str, count: usize) -> String {
    let statements: Vec<String> = (0..count).map(|i| statement.replace('#', &i.to_string())).collect();
    kernel(before, &statements.join("\n"), after)
}

/// `depth` nested blocks.
fn nested(before: &str, (open, close): (&str, &str), inside: &str, after: &str, depth: usize) -> String {
    let opened: Vec<String> = (0..depth).map(|i| open.replace('#', &i.to_string())).collect();
    kernel(before, &format!("{}{inside}{}", opened.join("\n"), close.repeat(depth)), after)
}

type Source = fn(usize) -> String;

/// Programs of a kind by their number of statements, and the largest number.
const KINDS: &[(&str, usize, Source)] = &[
    ("sums of an index", 256, |n| {
        repeated("let mut v = lane + n;", "v = v + v;", "tl::store(out + v, v);", n)
    }),
    ("powers of an index", 256, |n| {
        repeated("let mut v = lane ^ n;", "v = v * v + v;", "tl::store(out + v, v, v < m);", n)
    }),
    ("powers of an argument", 256, |n| {
        repeated("let mut v = n;", "v = v * v + m;", "tl::store(out + v + lane, lane, v + lane < m);", n)
    }),
    ("polynomials of program ids", 256, |n| {
        let start = "let mut v = tl::program_id(0) + lane;";
        repeated(start, "v = v * (tl::program_id(1) + n + #) + m;", "tl::store(out + v, v, v < m);", n)
    }),
    ("shared masks", 256, |n| {
        let start = "let mut mask = lane < n;";
        repeated(start, "mask = mask & mask & (lane + # < m);", "tl::store(out + lane, lane, mask);", n)
    }),
    ("masks one or another", 256, |n| {
        repeated("let mut c = n > 0;", "c = c | c | (m > #);", "if c { tl::store(out + lane, lane); }", n)
    }),
    ("conditions in a loop", 128, |n| {
        let start = "let mut v = lane; for i in 0..n { let mut c = i > m;";
        let end = "if c { v += tl::load(x + lane + i); } } tl::store(out + lane, v);";
        repeated(start, "c = c | c | (i > m + #);", end, n)
    }),
    ("loads", 256, |n| {
        let statement = "v = tl::maximum(v, tl::load(x + lane + # * n));";
        repeated("let mut v = lane;", statement, "tl::store(out + lane, v);", n)
    }),
    ("gathers", 128, |n| {
        let statement = "v = tl::load(x + v * n + v, v < m);";
        repeated("let mut v = lane;", statement, "tl::store(out + lane, v);", n)
    }),
    ("stores", 256, |n| repeated("", "tl::store(out + # * n + lane, lane, lane < m);", "", n)),
    ("stores that read what was stored", 128, |n| {
        repeated("", "tl::store(out + # * n + lane, tl::load(out + lane + # * m));", "", n)
    }),
    ("accesses in a loop", 128, |n| {
        let statement = "tl::store(out + # * n + i + lane, tl::load(out + lane + # * m + i));";
        repeated("for i in 0..n {", statement, "}", n)
    }),
    ("elements", 256, |n| {
        let start = "let mut v = tl::load(f + lane);";
        repeated(start, "v = v * v + tl::sqrt(v);", "tl::store(y + lane, v);", n)
    }),
    ("orders of elements", 32, |n| {
        let start = "let mut v = tl::load(x + square);";
        let statement = "v = v + tl::reshape(tl::trans(tl::reshape(v, [8, 32])), [16, 16]);";
        repeated(start, statement, "tl::store(out + square, v);", n)
    }),
    ("reductions", 128, |n| {
        let start = "let mut v = tl::load(x + square);";
        let statement = "v = v ^ tl::sum(v, #  % 2, true);";
        repeated(start, statement, "tl::store(out + square, v);", n)
    }),
    ("results of rows beside columns", 128, |n| {
        let start = "let mut v = tl::sum(tl::load(f + square), 1);";
        repeated(start, "v = v * v + v;", "tl::store(y + square, tl::load(f + square) / v);", n)
    }),
    ("masks of rows that begin anywhere", 64, |n| {
        let start = "let at = tl::program_id(0) * n + lane; let mut mask = lane < n;";
        let end = "tl::store(y + at, tl::load(f + at, mask, 0.0), mask);";
        repeated(start, "mask = mask & mask & (lane < m + #);", end, n)
    }),
    ("scans", 64, |n| {
        let start = "let mut v = tl::load(x + square);";
        repeated(start, "v = v ^ tl::cumsum(v, # % 2);", "tl::store(out + square, v);", n)
    }),
    ("sorts", 8, |n| repeated("let mut v = lane;", "v = tl::sort(v + v, 0);", "tl::store(out + v, v);", n)),
    ("selections", 256, |n| {
        let start = "let mut v = lane; let mut w = lane + n;";
        let statement = "v = tl::select(v < w, w, v + w); w = tl::select(w == v + #, v, w);";
        repeated(start, statement, "tl::store(out + v, w);", n)
    }),
    ("products of a product", 16, |n| {
        let start = "let mut t = tl::load(f + square);";
        repeated(start, "t = tl::dot(t + t, t * t);", "tl::store(y + square, t);", n)
    }),
    ("a product of shared operands", 64, |n| {
        let start = "let mut t = tl::zeros::<f32>([16, 16]) + n as f32;";
        repeated(start, "t = t + t;", "tl::store(y + square, tl::dot(t, t));", n)
    }),
    ("a carried tile", 128, |n| {
        let start = "let mut v = lane; for i in 0..n {";
        repeated(start, "v = v + v;", "} tl::store(out + v, v);", n)
    }),
    ("loops side by side", 64, |n| {
        let statement = "for i in 0..v { v = v + i; }";
        repeated("let mut v = n;", statement, "tl::store(out + v + lane, v + lane);", n)
    }),
    ("loops in loops", 12, |n| {
        let start = "let mut v = lane; let i = n;";
        let inside = "v = v + tl::load(x + i + v); ";
        nested(
            start,
            ("let end = i; for i in 0..end + i {", "v = v + v; }"),
            inside,
            "tl::store(out + v, v);",
            n,
        )
    }),
    ("ranges of all loops around", 12, |n| {
        let start = "let mut v = lane; let end = n;";
        let open = ("for i in 0..end { let end = end + i + end;", "}");
        nested(start, open, "v = v + tl::load(x + end + lane, lane < end);", "tl::store(out + lane, v);", n)
    }),
    ("branches in branches", 32, |n| {
        let start = "let mut v = lane;";
        let open = ("if n + # < m { v = v + #; ", "v = v + v; }");
        nested(start, open, "tl::store(out + v, v, v < n);", "tl::store(out + lane, v);", n)
    }),
    ("branches side by side", 128, |n| {
        let statement = "if n > # { v = v + v; } else { v = v * n; }";
        repeated("let mut v = lane;", statement, "tl::store(out + v, v);", n)
    }),
    ("turns written out", 256, |n| {
        let body = format!("for i in tl::static_range(0, {n}) {{ v = v + tl::load(x + lane + i * n); }}");
        kernel("let mut v = lane;", &body, "tl::store(out + lane, v);")
    }),
];

#[test]
fn twice_the_statements_take_four_times_as_long() {
    let mut found = String::new();
    for &(kind, most, source) in KINDS {
        let mut before: Option<Duration> = None;
        let mut count = 4.min(most);
        while count <= most {
            let stages = lower(&source(count));
            let time: Duration = stages.iter().map(|(_, time)| *time).sum();
            eprintln!("{kind}: {count}: {stages:?}");
            if let Some(before) = before
                && time > NOISE
                && time.as_secs_f64() > MAX_GROWTH * before.max(NOISE / 8).as_secs_f64()
            {
                found += &format!("{kind}: {before:?} for {}, {time:?} for {count}: {stages:?}\n", count / 2);
                break;
            }
            before = Some(time);
            if time > ENOUGH {
                break;
            }
            count *= 2;
        }
    }
    assert!(found.is_empty(), "{found}");
}

/// Kernels whose analysis did not end, or took long, and the most seconds that they may take.
const SAMPLES: &[(&str, u64, &str)] = &[
    ("a sorted range", 2, "let i = tl::arange(0, 16); tl::store(out + i, tl::sort(i, 0));"),
    (
        "a sort in a loop",
        2,
        "let short = tl::arange(0, 16);
        let mut t = tl::load(x + short);
        for i in 0..n { t = tl::sort(t, 0); t = tl::maximum(t, tl::load(x + i)); }
        tl::store(out + short, t);",
    ),
    (
        "an index doubled",
        2,
        "let mut v = lane + n;
        for i in tl::static_range(0, 20) { v = v + v; }
        tl::store(out + v, v);",
    ),
    (
        "an index squared",
        2,
        "let mut v = lane ^ n;
        for i in tl::static_range(0, 9) { v = v * v + v; }
        tl::store(out + lane, v);",
    ),
    (
        "512 turns written out",
        40,
        "let mut v = lane;
        for i in tl::static_range(0, 512) { v = tl::maximum(v, tl::load(x + lane + i * n)); }
        tl::store(out + lane, v);",
    ),
];

#[test]
fn samples_are_lowered_in_seconds() {
    for &(what, most, statements) in SAMPLES {
        let stages = lower(&kernel("", statements, ""));
        eprintln!("{what}: {stages:?}");
        let time: Duration = stages.iter().map(|(_, time)| *time).sum();
        assert!(time < Duration::from_secs(most), "{what}: {stages:?}");
    }
}

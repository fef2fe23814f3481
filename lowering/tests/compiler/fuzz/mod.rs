//! Fuzz tests: random kernels through the whole compiler and on this CPU against a reference; and mutated tokens.
//!
//! `generate` makes a kernel from a seed: of random statements, or an idiom with random choices (`idioms`). `program` prints
//! it, and `evaluate` is the reference, element by element in plain Rust. Floats that the language states within a bound
//! have that bound beside them (`approximate`). `differential` compares: host code, with reports too, GPU code on the host,
//! and schedules for tensor cores in the simulator (`simulate`). `bundle` writes kernels for `bench/fuzz.py`, which
//! launches them on a GPU. Kernels run in processes of their own (`watch`), so that a crash, an abort or
//! a hang is a finding like any other; `shrink` makes the kernel of a finding smaller.
//!
//! A test run takes a few seconds and the seeds of the day; `scripts/fuzz` takes a given time.

mod approximate;
mod bundle;
mod data;
mod differential;
mod element;
mod evaluate;
mod expression;
mod garbage;
pub mod generate;
mod idioms;
pub mod program;
mod regressions;
mod shrink;
mod simulate;
mod sketch;
mod tile;
mod token_list;
mod watch;

use std::time::{Duration, Instant, SystemTime};

use watch::{FROM, Finding, SECONDS, WITHOUT, WORK, Work, WorkerReport};

/// CPU time that a kernel may take in the compiler, which the tests build with little optimization.
const CPU_TIME_LIMIT: Duration = Duration::from_secs(20);

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The first number of the day, far from those of other days.
fn today() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a date after 1970");
    since.as_secs() / 86_400 * 1_000_000
}

/// Works for `seconds`, unless the environment says for how long and from which number on.
fn fuzz(work: Work, seconds: u64) {
    let seconds = variable(SECONDS).unwrap_or(seconds);
    let mut counts = watch::watch(work, seconds, variable("FUSE_FUZZ_SEED").unwrap_or_else(today));
    print_counts(&format!("{}: {}", work.name(), counts.text()));
    let findings = std::mem::take(&mut counts.findings);
    let texts: Vec<String> = findings.iter().map(|finding| described(work, finding)).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
    assert!(counts.kernels > 0, "nothing was tried");
}

/// A finding, shrunk, and the command that reproduces it.
fn described(work: Work, finding: &Finding) -> String {
    let number = finding.number;
    let again = format!("scripts/fuzz 0 {number} {} # does it again", work.name());
    if work == Work::Garbage {
        return format!("{}\n{}\n{again}\n", finding.text, garbage::generated(number));
    }
    let program = generate::generate(number);
    let (dropped, text) = shrink::shrink(finding, program.statements());
    let small = shrink::without(program.clone(), &dropped);
    format!("{}\n{}\nmade smaller: {text}\n{}\n{again}\n", finding.text, program.source(), small.source())
}

#[expect(clippy::print_stderr, reason = "the counts are what a longer run is for")]
fn print_counts(line: &str) {
    eprintln!("{line}");
}

/// A generated kernel has no mistakes; lowering it is what takes time.
#[test]
fn programs_are_accepted() {
    for number in today()..today() + 50 {
        let program = generate::generate(number);
        let source = program.source();
        if let Err(what) = differential::front(&source, program.variant()) {
            panic!("number {number}: {what}\n{source}");
        }
    }
}

#[test]
fn programs_do_what_the_reference_does() {
    fuzz(Work::Programs, 20);
}

#[test]
fn garbage_is_answered() {
    fuzz(Work::Garbage, 5);
}

/// The worker process of `watch`: one number after the other until time is up, but at least one.
#[test]
#[ignore = "a process that the tests above start"]
fn worker() {
    let work = std::env::var(WORK).unwrap_or_default();
    let (start, seconds) = (Instant::now(), Duration::from_secs(variable(SECONDS).unwrap_or(0)));
    for number in variable(FROM).unwrap_or(0).. {
        watch::begin(number);
        if work == Work::Garbage.name() {
            garbage_worker(number)
        } else {
            program_worker(number)
        }
        if start.elapsed() >= seconds {
            return;
        }
    }
}

/// Writes as many kernels as the environment says to a folder, from a number on, for `bench/fuzz.py`.
#[test]
#[ignore = "`scripts/fuzz --bundle` runs it"]
fn bundle() {
    let folder = std::path::PathBuf::from(std::env::var("FUSE_FUZZ_FOLDER").expect("a folder"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (count, first) =
        (variable("FUSE_FUZZ_KERNELS").unwrap_or(1), variable("FUSE_FUZZ_SEED").unwrap_or(0));
    let (mut kernels, mut specializations) = (0, 0);
    for number in (first..).take(20 * count as usize) {
        let written = bundle::write(number, &folder).unwrap_or_else(|what| panic!("number {number}: {what}"));
        (kernels, specializations) = (kernels + u64::from(written > 0), specializations + written);
        if kernels == count {
            break;
        }
    }
    print_counts(&format!("{kernels} kernels, {specializations} specializations"));
}

fn program_worker(number: u64) {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    let dropped: Vec<usize> = without.split(',').filter_map(|number| number.parse().ok()).collect();
    let program = shrink::without(generate::generate(number), &dropped);
    let report =
        differential::compare(&program, number).unwrap_or_else(|what| watch::exit_with_finding(&what));
    if report.lowering > CPU_TIME_LIMIT {
        watch::exit_with_finding(&format!("slow: {:?} of processor time", report.lowering));
    }
    let counts = [
        ("statements", report.statements as u64),
        ("comparisons", report.compared as u64),
        ("launches_beyond_64_bits", report.undefined as u64),
        ("too_large_for_a_block", u64::from(report.too_large)),
    ];
    watch::end(&WorkerReport { number, lowering: report.lowering.as_millis() as u64, counts: &counts });
}

fn garbage_worker(number: u64) {
    let start = differential::cpu_time();
    let answer = garbage::expand(number).unwrap_or_else(|what| watch::exit_with_finding(&what));
    let time = differential::cpu_time().saturating_sub(start);
    if time > CPU_TIME_LIMIT {
        watch::exit_with_finding(&format!("slow: {time:?} of processor time"));
    }
    watch::end(&WorkerReport { number, lowering: time.as_millis() as u64, counts: &[(answer, 1)] });
}

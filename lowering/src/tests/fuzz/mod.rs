//! Random kernels through the whole compiler, on the processor at hand against a reference; and what is no kernel.
//!
//! `generate` grows a kernel from a number, `program` prints it, `evaluate` says what it computes, element by element in
//! plain Rust, and `examine` compares. Kernels run in processes of their own (`watch`), so that a crash, an abort or
//! a hang is a finding like any other; `shrink` makes the kernel of a finding smaller.
//!
//! A test run takes a few seconds and the numbers of the day; `scripts/fuzz` takes as long as it is told.

mod element;
mod evaluate;
mod examine;
mod expression;
mod flat;
mod found;
mod garbage;
mod generate;
mod program;
mod shrink;
mod tile;
mod watch;

use std::time::{Duration, Instant, SystemTime};

use watch::{FROM, Finding, SECONDS, Said, WITHOUT, WORK, Work};

/// Processor time that a kernel may take in the compiler, which the tests build with little optimization.
const LIMIT: Duration = Duration::from_secs(20);

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
    say(&format!("{}: {}", work.name(), counts.text()));
    let findings = std::mem::take(&mut counts.findings);
    let texts: Vec<String> = findings.iter().map(|finding| described(work, finding)).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
    assert!(counts.kernels > 0, "nothing was tried");
}

/// A finding, as small as it gets, and the line that repeats it.
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
fn say(line: &str) {
    eprintln!("{line}");
}

#[test]
fn programs_do_what_the_reference_does() {
    fuzz(Work::Programs, 20);
}

#[test]
fn garbage_is_answered() {
    fuzz(Work::Garbage, 5);
}

/// What `watch` starts: one number after the other until time is up, but one at least.
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

fn program_worker(number: u64) {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    let dropped: Vec<usize> = without.split(',').filter_map(|number| number.parse().ok()).collect();
    let program = shrink::without(generate::generate(number), &dropped);
    let report = examine::examine(&program, number).unwrap_or_else(|what| watch::found(&what));
    if report.lowering > LIMIT {
        watch::found(&format!("slow: {:?} of processor time", report.lowering));
    }
    let counts = [
        ("statements", report.statements as u64),
        ("comparisons", report.compared as u64),
        ("launches_beyond_64_bits", report.unlawful as u64),
        ("too_large_for_a_block", u64::from(report.too_large)),
    ];
    watch::end(&Said { number, lowering: report.lowering.as_millis() as u64, counts: &counts });
}

fn garbage_worker(number: u64) {
    let start = examine::processor_time();
    let answer = garbage::expand(number).unwrap_or_else(|what| watch::found(&what));
    let time = examine::processor_time().saturating_sub(start);
    if time > LIMIT {
        watch::found(&format!("slow: {time:?} of processor time"));
    }
    watch::end(&Said { number, lowering: time.as_millis() as u64, counts: &[(answer, 1)] });
}

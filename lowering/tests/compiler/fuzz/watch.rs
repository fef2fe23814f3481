//! Runs worker processes and watches their output, with a timeout.
//!
//! A worker is this test program once more, running the one test `worker`. It prints every number before and after; a worker
//! that ends, or prints nothing for too long, has a finding with the number that it printed last.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a worker is to do, in its environment.
pub const WORK: &str = "FUSE_FUZZ_WORK";
pub const FROM: &str = "FUSE_FUZZ_FROM";
pub const SECONDS: &str = "FUSE_FUZZ_SECONDS";
/// The numbers of statements to leave out.
pub const WITHOUT: &str = "FUSE_FUZZ_WITHOUT";

/// The prefix of a worker's lines.
const MARK: &str = "fuzz: ";

/// How long a worker may print nothing, which finds deadlocks. One that computes ends sooner, by [`CPU_SECONDS`] of its
/// own CPU time.
const SILENCE_LIMIT: Duration = Duration::from_secs(600);

/// CPU time for one number: to compile, run and evaluate.
const CPU_SECONDS: u64 = 60;

/// What a worker does with a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A kernel through the compiler, and against the reference.
    Programs,
    /// Tokens that are hardly a kernel, through the macro.
    Garbage,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Programs => "programs",
            Work::Garbage => "garbage",
        }
    }
}

/// A number and what is wrong with its kernel.
#[derive(Clone, Debug)]
pub struct Finding {
    pub number: u64,
    pub text: String,
}

/// What was done, and what was found.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    pub kernels: u64,
    /// Sums of what the worker counts, by name.
    pub sums: Vec<(String, u64)>,
    /// The most milliseconds of CPU time, and the number that took them.
    pub slowest: (u64, u64),
    pub findings: Vec<Finding>,
}

/// A worker's line after each number.
pub struct WorkerReport<'a> {
    pub number: u64,
    /// Milliseconds of CPU time in the compiler.
    pub lowering: u64,
    pub counts: &'a [(&'a str, u64)],
}

#[expect(clippy::print_stderr, reason = "a worker tells what it does")]
pub fn begin(number: u64) {
    eprintln!("{MARK}begin {number}");
    limit_cpu_time();
}

/// Has the system end this process, and the children it starts, where one number takes too long.
fn limit_cpu_time() {
    // SAFETY: the calls get structures of ours to fill or to read.
    unsafe {
        let mut usage: nix::libc::rusage = std::mem::zeroed();
        nix::libc::getrusage(nix::libc::RUSAGE_SELF, &mut usage);
        let used = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) as u64;
        let mut limit: nix::libc::rlimit = std::mem::zeroed();
        nix::libc::getrlimit(nix::libc::RLIMIT_CPU, &mut limit);
        limit.rlim_cur = used + CPU_SECONDS;
        nix::libc::setrlimit(nix::libc::RLIMIT_CPU, &limit);
    }
}

#[expect(clippy::print_stderr, reason = "a worker tells what it did")]
pub fn end(report: &WorkerReport) {
    let counts: String = report.counts.iter().map(|(name, count)| format!(" {name}={count}")).collect();
    eprintln!("{MARK}end {} {}{counts}", report.number, report.lowering);
}

/// Ends the worker with a finding.
#[expect(clippy::print_stderr, reason = "a worker tells what it found")]
pub fn exit_with_finding(text: &str) -> ! {
    eprintln!("{text}");
    std::process::exit(3)
}

impl Counts {
    fn add(&mut self, line: &str) {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let (seed, lowering) = (number(), number());
        self.kernels += 1;
        self.slowest = self.slowest.max((lowering, seed));
        for (name, count) in words.filter_map(|word| word.split_once('=')) {
            let count: u64 = count.parse().unwrap_or(0);
            match self.sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => self.sums.push((name.to_string(), count)),
            }
        }
    }

    /// One line.
    pub fn text(&self) -> String {
        let sums: String = self.sums.iter().map(|(name, sum)| format!(", {sum} {name}")).collect();
        format!(
            "{} kernels{sums}; the slowest took {} ms of processor time (number {}); {} findings",
            self.kernels,
            self.slowest.0,
            self.slowest.1,
            self.findings.len()
        )
    }
}

/// Works for so long, from `seed` on; after a finding it goes on with the next number.
pub fn watch(work: Work, seconds: u64, seed: u64) -> Counts {
    let (mut counts, start) = (Counts::default(), Instant::now());
    let mut next = seed;
    loop {
        let left = Duration::from_secs(seconds).saturating_sub(start.elapsed());
        let environment = [(FROM, next.to_string()), (SECONDS, left.as_secs().to_string())];
        let Some(finding) = worker(work, &environment, &mut counts) else { return counts };
        next = finding.number + 1;
        counts.findings.push(finding);
        if start.elapsed() >= Duration::from_secs(seconds) {
            return counts;
        }
    }
}

/// Runs one worker to its end; what it found, if that was not of its own accord.
pub fn worker(work: Work, environment: &[(&str, String)], counts: &mut Counts) -> Option<Finding> {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--exact", "fuzz::worker", "--ignored", "--nocapture", "--test-threads=1"])
        .env(WORK, work.name())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a worker");
    let (send, receive) = channel();
    let output = BufReader::new(child.stderr.take().expect("its output"));
    let reader = std::thread::spawn(move || {
        let mut lines = output.split(b'\n').map_while(Result::ok);
        lines.try_for_each(|line| send.send(String::from_utf8_lossy(&line).into_owned()))
    });
    let (mut number, mut output_lines) = (None, vec![]);
    let hung = loop {
        match receive.recv_timeout(SILENCE_LIMIT) {
            Ok(line) => match line.strip_prefix(MARK).and_then(|line| line.split_once(' ')) {
                Some(("begin", rest)) => {
                    number = rest.parse().ok();
                    output_lines.clear();
                }
                Some((_, rest)) => {
                    counts.add(rest);
                    number = None;
                    output_lines.clear();
                }
                None => output_lines.push(line),
            },
            Err(RecvTimeoutError::Timeout) => break true,
            Err(RecvTimeoutError::Disconnected) => break false,
        }
    };
    if hung {
        // A worker that has ended meanwhile cannot be ended once more.
        let _ = child.kill();
    }
    let status = child.wait().expect("the worker's end");
    let _ = reader.join();
    let ending = match (hung, status.code()) {
        (true, _) => format!("hangs: nothing for {} s\n", SILENCE_LIMIT.as_secs()),
        (false, Some(0)) if number.is_none() => return None,
        (false, Some(_)) => String::new(),
        (false, None) if status.signal() == Some(nix::libc::SIGXCPU) => {
            format!("hangs: more than {CPU_SECONDS} s of processor time\n")
        }
        (false, None) => format!("crashes: {status}\n"),
    };
    Some(Finding { number: number.unwrap_or(0), text: format!("{ending}{}", output_lines.join("\n")) })
}

//! Every row of the lanewise table on every element type of its class.
//!
//! Each row runs twice: on operands that start on a cache line and number a multiple of the tile, and one element off
//! with a length that is a multiple of nothing, between canaries. `--ignored sweep` tries what takes one `f32` and is not
//! exact on every `f32`: some minutes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use dsl_runtime::DType;
use libtest_mimic::{Failed, Trial};

use fuse_test_kernels::case::{Case, Job, Run};
use fuse_test_kernels::table::CASES;

use crate::compare::{Law, show};
use crate::devices::{Backend, backends};
use crate::values;

/// The bound of a correctly rounded row, in units in the last place.
const EXACT: f64 = 0.5;

/// The largest error seen, by row, element type and backend.
static ERRORS: Mutex<BTreeMap<(&str, DType, Backend), f64>> = Mutex::new(BTreeMap::new());

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for case in CASES {
            for run in case.runs {
                let inexact = case.rows.iter().any(|row| row.ulp_f32 > EXACT);
                if case.params == 1 && run.dtype == DType::F32 && inexact {
                    let name = format!("sweep::{}::f32::{backend}", case.rows[0].name);
                    trials.push(Trial::test(name, move || sweep(case, run, backend)).with_ignored_flag(true));
                }
                for index in 0..case.rows.len() {
                    let name = format!("table::{}::{}::{backend}", case.rows[index].name, run.dtype);
                    trials.push(Trial::test(name, move || check(case, run, index, backend)));
                }
            }
        }
    }
    trials
}

fn check(case: &'static Case, run: &'static Run, index: usize, backend: Backend) -> Result<(), Failed> {
    let law = Law { row: &case.rows[index], rule: case.rule, dtype: run.dtype, backend };
    let dtypes: Vec<DType> = (0..case.params).map(|i| law.operand(i)).collect();
    let mut operands = values::operands(&dtypes, Job::BLOCK);
    let mut worst: f64 = 0.0;
    let (mut count, mut mistakes) = (0, vec![]);
    for shift in [0, 1] {
        if shift == 1 {
            operands.iter_mut().for_each(|operand| operand.truncate(operand.len() - 37));
        }
        let job = Job { device: backend.device()?, operands: operands.clone(), shift };
        let results = (run.run)(&job)?;
        count += results[index].len();
        for (i, &found) in results[index].iter().enumerate() {
            let tuple: Vec<u64> = operands.iter().map(|operand| operand[i]).collect();
            match law.check(&tuple, found) {
                Ok(error) => worst = worst.max(error),
                Err(wanted) => {
                    let shown: Vec<String> =
                        tuple.iter().enumerate().map(|(i, &bits)| show(bits, law.operand(i))).collect();
                    mistakes.push(format!(
                        "{} gives {}, not {wanted}",
                        shown.join(", "),
                        show(found, law.result())
                    ));
                }
            }
        }
    }
    record(law, worst);
    if mistakes.is_empty() {
        return Ok(());
    }
    let first = mistakes.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    Err(format!("{} results of {count} are wrong:\n{first}", mistakes.len()).into())
}

/// Every `f32` on the rows of a case that are not exact.
fn sweep(case: &'static Case, run: &'static Run, backend: Backend) -> Result<(), Failed> {
    const CHUNK: u64 = 1 << 20;
    const CHUNKS: u64 = 1 << 12;
    let next = AtomicU64::new(0);
    let mistakes = Mutex::new(vec![]);
    let work = || -> Result<(), Failed> {
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= CHUNKS {
                return Ok(());
            }
            let operand = (chunk * CHUNK..(chunk + 1) * CHUNK).collect();
            let job = Job { device: backend.device()?, operands: vec![operand], shift: 0 };
            let results = (run.run)(&job)?;
            for (row, results) in case.rows.iter().zip(&results).filter(|(row, _)| row.ulp_f32 > EXACT) {
                let law = Law { row, rule: case.rule, dtype: run.dtype, backend };
                let mut worst: f64 = 0.0;
                for (&bits, &found) in job.operands[0].iter().zip(results) {
                    match law.check(&[bits], found) {
                        Ok(error) => worst = worst.max(error),
                        Err(wanted) => {
                            let [x, found] = [bits, found].map(|bits| show(bits, run.dtype));
                            let mistake = format!("{} of {x} gives {found}, not {wanted}", row.name);
                            mistakes.lock().map_err(|_| "a worker panicked")?.push(mistake);
                            break;
                        }
                    }
                }
                record(law, worst);
            }
        }
    };
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;
    let mistakes = mistakes.into_inner()?;
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes.join("\n").into()) }
}

fn record(law: Law, worst: f64) {
    if let Ok(mut errors) = ERRORS.lock() {
        let seen = errors.entry((law.row.name, law.dtype, law.backend)).or_default();
        *seen = seen.max(worst);
    }
}

/// The largest errors seen of every row that is not exact, in units in the last place.
pub fn report() -> String {
    let mut text = String::new();
    let inexact = |name: &str| {
        CASES.iter().flat_map(|case| case.rows).any(|row| row.name == name && row.ulp_f32 > EXACT)
    };
    if let Ok(errors) = ERRORS.lock() {
        for ((name, dtype, backend), error) in errors.iter().filter(|((name, ..), _)| inexact(name)) {
            text += &format!("{name:10} {:5} {backend:12} {error:6.3} ulp\n", dtype.name());
        }
    }
    text
}

//! Every row of the lanewise table on every element type of its class.
//!
//! Each row runs twice: on operands that start on a cache line and number a multiple of the tile, and one element off
//! with a length that is a multiple of nothing, between canaries.

use std::collections::BTreeMap;
use std::sync::Mutex;

use dsl_runtime::DType;
use libtest_mimic::{Failed, Trial};

use fuse_tests::case::{Case, Job, Run};
use fuse_tests::table::CASES;

use crate::compare::{Law, show};
use crate::devices::{Place, places};
use crate::values;

/// The largest error seen, by row, element type and place.
static ERRORS: Mutex<BTreeMap<(&str, DType, Place), f64>> = Mutex::new(BTreeMap::new());

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for place in places() {
        for case in CASES {
            for run in case.runs {
                for index in 0..case.rows.len() {
                    let name = format!("table::{}::{}::{place}", case.rows[index].name, run.dtype);
                    trials.push(Trial::test(name, move || check(case, run, index, place)));
                }
            }
        }
    }
    trials
}

fn check(case: &'static Case, run: &'static Run, index: usize, place: Place) -> Result<(), Failed> {
    let law = Law { row: &case.rows[index], rule: case.rule, dtype: run.dtype, place };
    let dtypes: Vec<DType> = (0..case.params).map(|i| law.operand(i)).collect();
    let mut operands = values::operands(&dtypes, Job::BLOCK);
    let mut worst: f64 = 0.0;
    let (mut count, mut mistakes) = (0, vec![]);
    for shift in [0, 1] {
        if shift == 1 {
            operands.iter_mut().for_each(|operand| operand.truncate(operand.len() - 37));
        }
        let job = Job { device: place.device()?, operands: operands.clone(), shift };
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
    if let Ok(mut errors) = ERRORS.lock() {
        errors.insert((law.row.name, run.dtype, place), worst);
    }
    if mistakes.is_empty() {
        return Ok(());
    }
    let first = mistakes.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    Err(format!("{} results of {count} are wrong:\n{first}", mistakes.len()).into())
}

/// The largest errors seen of every row that is not exact, in units in the last place.
pub fn report() -> String {
    let mut text = String::new();
    let inexact =
        |name: &str| CASES.iter().flat_map(|case| case.rows).any(|row| row.name == name && row.ulp_f32 > 0.5);
    if let Ok(errors) = ERRORS.lock() {
        for ((name, dtype, place), error) in errors.iter().filter(|((name, ..), _)| inexact(name)) {
            text += &format!("{name:10} {:5} {place:12} {error:6.3} ulp\n", dtype.name());
        }
    }
    text
}

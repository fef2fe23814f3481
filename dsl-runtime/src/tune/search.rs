//! The search: which of several ways to run one call is the fastest.
//!
//! Knows nothing of kernels: what can be run, compared and timed is a [`Trials`]. A candidate that fails is left out, one
//! whose outputs are not those of the first is never timed, and each repetition starts from the same memory.

use std::time::{Duration, Instant};

use super::compare::{Output, difference};
use crate::error::{Error, Result};

/// A call that can be repeated in several ways.
pub(crate) trait Trials {
    /// Runs a candidate to its end on what the outputs held at first; gives what they hold then.
    fn run(&mut self, candidate: usize) -> Result<Vec<Output>>;

    /// How long each of so many runs takes, in milliseconds; all start from what the outputs held at first.
    fn time(&mut self, candidate: usize, times: usize) -> Result<Vec<f64>>;
}

/// How long a search may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// What the repetitions of one candidate take together, in milliseconds, give or take one.
    pub(super) candidate_ms: f64,
    /// After this long no further candidate is tried.
    pub(super) whole: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { candidate_ms: 20.0, whole: Duration::from_secs(20) }
    }
}

/// What is known of a candidate in the end.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum TrialResult {
    /// The median, in milliseconds.
    Median(f64),
    /// It does not run here: why.
    Failed(String),
    /// Its outputs are not those of the first candidate that runs: how they differ.
    Differs(String),
    /// There was no time left.
    NotTried,
}

/// The result of a search.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SearchOutcome {
    pub(super) best: usize,
    /// By candidate.
    pub(super) results: Vec<TrialResult>,
}

/// How much faster a later candidate must be than an earlier one to be taken, so that noise does not decide.
const MARGIN: f64 = 0.01;

/// A candidate whose first time exceeds the best by this ratio is not measured further.
const PRUNE_FACTOR: f64 = 2.0;

/// Tries `count` candidates; reports to `progress` how many were tried and the best so far.
///
/// # Errors
/// That of the first candidate if none runs.
pub(super) fn search(
    trials: &mut dyn Trials,
    count: usize,
    limits: Limits,
    progress: &mut dyn FnMut(usize, Option<(usize, f64)>),
) -> Result<SearchOutcome> {
    let start = Instant::now();
    let mut reference: Option<Vec<Output>> = None;
    let mut failure: Option<Error> = None;
    let mut best: Option<(usize, f64)> = None;
    let mut results = Vec::with_capacity(count);
    for candidate in 0..count {
        progress(candidate, best);
        if best.is_some() && start.elapsed() > limits.whole {
            results.push(TrialResult::NotTried);
            continue;
        }
        let result = match trials.run(candidate) {
            Err(error) => {
                let result = TrialResult::Failed(error.to_string());
                failure.get_or_insert(error);
                result
            }
            Ok(outputs) => match reference.as_ref().and_then(|reference| difference(reference, &outputs)) {
                Some(how) => TrialResult::Differs(how),
                None => {
                    reference.get_or_insert(outputs);
                    measure(trials, candidate, best.map(|(_, ms)| ms), limits)
                }
            },
        };
        if let TrialResult::Median(ms) = result
            && best.is_none_or(|(_, best)| ms < best)
        {
            best = Some((candidate, ms));
        }
        results.push(result);
    }
    let Some((_, shortest)) = best else {
        return Err(failure.unwrap_or(Error::NoDriver));
    };
    let close =
        |result: &TrialResult| matches!(result, TrialResult::Median(ms) if *ms <= shortest * (1.0 + MARGIN));
    let best = results.iter().position(close).unwrap_or(0);
    Ok(SearchOutcome { best, results })
}

fn measure(trials: &mut dyn Trials, candidate: usize, best: Option<f64>, limits: Limits) -> TrialResult {
    let mut attempt = || -> Result<f64> {
        // The first runs also warm up: clocks, caches of code, the driver's own.
        let first = trials.time(candidate, 3)?.into_iter().fold(f64::INFINITY, f64::min);
        if best.is_some_and(|best| first > PRUNE_FACTOR * best) {
            return Ok(first);
        }
        let times = (limits.candidate_ms / first.max(1e-6)) as usize;
        let mut samples = trials.time(candidate, times.clamp(5, 200))?;
        samples.sort_by(f64::total_cmp);
        Ok(samples[samples.len() / 2])
    };
    match attempt() {
        Ok(ms) => TrialResult::Median(ms),
        Err(error) => TrialResult::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    /// Hand-written candidates with scripted times.
    struct ScriptedTrials {
        /// By candidate: the output and the times of its runs, or the error.
        candidates: Vec<Result<(u8, Vec<f64>)>>,
        timed: Vec<(usize, usize)>,
    }

    impl Trials for ScriptedTrials {
        fn run(&mut self, candidate: usize) -> Result<Vec<Output>> {
            let (value, _) = self.candidates[candidate].clone()?;
            Ok(vec![Output { dtype: DType::U8, bytes: vec![value; 100] }])
        }

        fn time(&mut self, candidate: usize, times: usize) -> Result<Vec<f64>> {
            self.timed.push((candidate, times));
            let (_, samples) = self.candidates[candidate].clone()?;
            Ok(samples.into_iter().cycle().take(times).collect())
        }
    }

    fn find(candidates: Vec<Result<(u8, Vec<f64>)>>) -> (Result<SearchOutcome>, Vec<(usize, usize)>) {
        let count = candidates.len();
        let mut trials = ScriptedTrials { candidates, timed: Vec::new() };
        let outcome = search(&mut trials, count, Limits::default(), &mut |_, _| {});
        (outcome, trials.timed)
    }

    fn failed() -> Result<(u8, Vec<f64>)> {
        Err(Error::NoDriver)
    }

    #[test]
    fn the_shortest_median_wins() {
        // The second has the shortest single time, the third the shortest median.
        let (outcome, timed) = find(vec![
            Ok((7, vec![2.0])),
            Ok((7, vec![1.0, 9.0, 9.0])),
            Ok((7, vec![1.8])),
            Ok((7, vec![3.0])),
        ]);
        let took = [2.0, 9.0, 1.8, 3.0].map(TrialResult::Median);
        assert_eq!(outcome, Ok(SearchOutcome { best: 2, results: took.to_vec() }));
        assert_eq!(timed, [(0, 3), (0, 10), (1, 3), (1, 20), (2, 3), (2, 11), (3, 3), (3, 6)]);
    }

    #[test]
    fn noise_does_not_decide() {
        let best = |times: [f64; 3]| find(times.map(|ms| Ok((7, vec![ms]))).to_vec()).0.unwrap().best;
        assert_eq!(best([1.0, 0.995, 0.991]), 0);
        assert_eq!(best([1.0, 0.995, 0.98]), 2);
        assert_eq!(best([1.0, 0.985, 0.98]), 1);
    }

    #[test]
    fn slow_candidates_are_pruned() {
        let (outcome, timed) = find(vec![Ok((7, vec![1.0])), Ok((7, vec![2.5])), Ok((7, vec![0.5]))]);
        assert_eq!(outcome.unwrap().best, 2);
        assert_eq!(timed, [(0, 3), (0, 20), (1, 3), (2, 3), (2, 40)]);
    }

    #[test]
    fn a_wrong_candidate_is_never_timed() {
        let (outcome, timed) = find(vec![Ok((7, vec![1.0])), Ok((9, vec![0.1]))]);
        let SearchOutcome { best, results } = outcome.unwrap();
        assert_eq!(best, 0);
        let how = "element 0 of 100 is 9 and not 7, as are 99 others".to_string();
        assert_eq!(results[1], TrialResult::Differs(how));
        assert!(timed.iter().all(|&(candidate, _)| candidate == 0), "{timed:?}");
    }

    #[test]
    fn a_candidate_that_fails_is_left_out() {
        let (outcome, _) = find(vec![failed(), Ok((7, vec![1.0])), failed(), Ok((7, vec![0.5]))]);
        let outcome = outcome.unwrap();
        assert_eq!(outcome.best, 3);
        assert_eq!(outcome.results[0], TrialResult::Failed(Error::NoDriver.to_string()));
        assert_eq!(find(vec![failed(), failed()]).0, Err(Error::NoDriver));
    }

    #[test]
    fn time_runs_out() {
        let mut trials =
            ScriptedTrials { candidates: vec![Ok((7, vec![1.0])), Ok((7, vec![0.1]))], timed: Vec::new() };
        let limits = Limits { whole: Duration::ZERO, ..Limits::default() };
        let outcome = search(&mut trials, 2, limits, &mut |_, _| {}).unwrap();
        assert_eq!(
            outcome,
            SearchOutcome { best: 0, results: vec![TrialResult::Median(1.0), TrialResult::NotTried] }
        );
    }
}

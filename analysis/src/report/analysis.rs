//! The page of an analysis.

use super::Column::{Numbers, Words};
use super::{Page, Section};
use crate::cost::Estimate;
use crate::fusion::verdict::{Decision, Verdict};
use crate::fusion::{Analysis, Candidate, Comparison};
use crate::measurements::Cache;
use crate::units::{bytes, percent, scaled, seconds, three_digits};

/// Tables of operations, fusions with their criteria, what stays apart, and what documents expect.
pub fn page(analysis: &Analysis) -> Page {
    let cache = match analysis.cache {
        Cache::Cold => "a cold cache",
        Cache::Warm => "a warm cache",
    };
    let mut intro = vec![format!("{}; predicted with {cache}", analysis.device)];
    if analysis.ops.is_empty() {
        intro.push("no operations: nothing moves and nothing is launched".to_owned());
        return Page { title: analysis.graph.clone(), intro, ..Page::default() };
    }
    intro.push(total("separate", &analysis.separate));
    intro.push(total("fused", &analysis.fused));
    let mut sections = vec![operations(analysis), fusions(analysis), criteria(analysis), apart(analysis)];
    if !analysis.documents.is_empty() {
        sections.push(documents(&analysis.documents));
    }
    if !analysis.unknown.is_empty() {
        sections.push(unknown(analysis));
    }
    Page { title: analysis.graph.clone(), intro, picture: None, sections }
}

fn total(form: &str, estimate: &Estimate) -> String {
    let Estimate { cost, time } = estimate;
    let (moved, took) = (bytes(cost.bytes()), seconds(time.total));
    format!("{form}: {}, {moved}, {took}", launches(cost.launches))
}

fn launches(count: u32) -> String {
    if count == 1 { "1 launch".to_owned() } else { format!("{count} launches") }
}

fn operations(analysis: &Analysis) -> Section {
    let row = |op: &crate::fusion::OpReport| {
        let Estimate { cost, time } = &op.estimate;
        vec![
            op.name.clone(),
            op.kind.clone(),
            op.pattern.to_owned(),
            bytes(cost.bytes()),
            scaled(cost.flops(), "FLOP"),
            three_digits(op.intensity),
            bytes(cost.working_set),
            op.bound.name().to_owned(),
            seconds(time.total),
        ]
    };
    Section {
        title: "operations, each in a kernel of its own".to_owned(),
        columns: vec![
            Words("operation"),
            Words("kind"),
            Words("pattern"),
            Numbers("bytes"),
            Numbers("operations"),
            Numbers("FLOP/byte"),
            Numbers("working set"),
            Words("bound"),
            Numbers("time"),
        ],
        rows: analysis.ops.iter().map(row).collect(),
        empty: "none",
    }
}

fn fusions(analysis: &Analysis) -> Section {
    let row = |(number, candidate): (usize, &Candidate)| {
        let verdict = &candidate.verdict;
        let (before, after) = (&verdict.separate, &verdict.fused);
        vec![
            (number + 1).to_string(),
            candidate.name(),
            format!("{} -> {}", bytes(before.cost.bytes()), bytes(after.cost.bytes())),
            percent(verdict.saving.bytes_share),
            format!("{} -> {}", before.cost.launches, after.cost.launches),
            format!("{} -> {}", three_digits(before.cost.intensity()), three_digits(after.cost.intensity())),
            format!("{} -> {}", seconds(before.time.total), seconds(after.time.total)),
            seconds(verdict.saving.seconds),
            format!("{:.2}x", verdict.saving.speedup),
            kernel(verdict),
        ]
    };
    Section {
        title: "fuse, what saves the most time first".to_owned(),
        columns: vec![
            Numbers("#"),
            Words("operations"),
            Words("bytes"),
            Numbers("saved"),
            Words("launches"),
            Words("FLOP/byte"),
            Words("time"),
            Numbers("saved"),
            Numbers("speedup"),
            Words("kernel of the library"),
        ],
        rows: analysis.fusions.iter().enumerate().map(row).collect(),
        empty: "nothing",
    }
}

fn kernel(verdict: &Verdict) -> String {
    match &verdict.kernel {
        Some(kernel) if kernel.how.is_empty() => kernel.path.to_owned(),
        Some(kernel) => format!("{} ({})", kernel.path, kernel.how),
        None => "none of the library".to_owned(),
    }
}

fn criteria(analysis: &Analysis) -> Section {
    let all = analysis.fusions.iter().chain(&analysis.kept_separate);
    let row = |candidate: &Candidate| {
        let verdict = &candidate.verdict;
        let mut row = vec![candidate.name()];
        row.extend(verdict.criteria.iter().map(|criterion| {
            let mark = if criterion.met { "" } else { "!" };
            format!("{:.2} ({}{mark})", criterion.score(), criterion.value)
        }));
        row.push(format!("{:.2}", verdict.score));
        row.push(verdict.decision.name().to_owned());
        row
    };
    Section {
        title: "criteria: what each adds to the score, and what was found (! where it misses the threshold)"
            .to_owned(),
        columns: vec![
            Words("operations"),
            Numbers("memory savings 0.4, > 30 %"),
            Numbers("launches 0.2, > 10 %"),
            Numbers("registers 0.2, < 50"),
            Numbers("complexity 0.1, <= moderate"),
            Numbers("maintainability 0.1, high"),
            Numbers("score"),
            Words("verdict"),
        ],
        rows: all.map(row).collect(),
        empty: "none: no operation reads what another makes",
    }
}

fn apart(analysis: &Analysis) -> Section {
    let row = |candidate: &Candidate| {
        let verdict = &candidate.verdict;
        let saved = seconds(verdict.saving.seconds);
        vec![candidate.name(), saved, verdict.reasons.join("; ")]
    };
    Section {
        title: "keep separate".to_owned(),
        columns: vec![Words("operations"), Numbers("would save"), Words("why not")],
        rows: analysis.kept_separate.iter().map(row).collect(),
        empty: "nothing",
    }
}

fn documents(comparisons: &[Comparison]) -> Section {
    let score = |score: Option<f64>| score.map_or(String::new(), |score| format!("{score:.2}"));
    let row = |comparison: &Comparison| {
        let expected = &comparison.expected;
        let verdict = comparison.found.as_ref().map(|found| &found.verdict);
        let decision = |decision: Decision| decision.name().to_owned();
        vec![
            expected.ops.join(" + "),
            expected.decision.clone(),
            score(expected.score),
            verdict.map_or("no such operations".to_owned(), |verdict| decision(verdict.decision)),
            score(verdict.map(|verdict| verdict.score)),
            verdict.map_or(String::new(), |verdict| percent(verdict.saving.bytes_share)),
            expected.source.clone(),
        ]
    };
    Section {
        title: "what documents say".to_owned(),
        columns: vec![
            Words("operations"),
            Words("document"),
            Numbers("its score"),
            Words("here"),
            Numbers("score"),
            Numbers("bytes saved"),
            Words("source"),
        ],
        rows: comparisons.iter().map(row).collect(),
        empty: "nothing",
    }
}

fn unknown(analysis: &Analysis) -> Section {
    let row = |op: &crate::fusion::UnknownOp| {
        let shape = if op.assumed_shape { "assumed: that of its first input" } else { "as declared" };
        vec![op.name.clone(), op.kind.clone(), shape.to_owned()]
    };
    Section {
        title: "not known: nothing is fused with these, and their arithmetic is not counted".to_owned(),
        columns: vec![Words("operation"), Words("kind"), Words("shape of its result")],
        rows: analysis.unknown.iter().map(row).collect(),
        empty: "none",
    }
}

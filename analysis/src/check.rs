//! Measured times beside predicted ones.

use serde::Serialize;

use crate::cost::{Bound, Context, Estimate};
use crate::device::Device;
use crate::graph::{Graph, OpId};
use crate::measurements::{Cache, Form, Measurements, Point};
use crate::report::Column::{Numbers, Words};
use crate::report::{Page, Section};
use crate::units::{bytes, seconds};

/// How far a measured time of what is bound by memory may be from the predicted one.
pub const TOLERANCE: f64 = 0.15;

/// A measured time beside its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The operations.
    pub name: String,
    /// In how many kernels.
    pub form: Form,
    /// Whose code it is, if not the library's.
    pub peer: Option<String>,
    /// The prediction.
    pub predicted: Estimate,
    /// What it is bound by, as predicted.
    pub bound: Bound,
    /// Seconds that were measured.
    pub measured: f64,
    /// Measured by predicted.
    pub ratio: f64,
    /// Whether the prediction was to be within [`TOLERANCE`], and is not.
    pub is_beyond: bool,
}

/// Compares measured times of a graph's operations with the predictions.
///
/// # Errors
/// In words, if a point names an operation that the graph does not have.
pub fn compare(graph: &Graph, device: &Device, measured: &Measurements) -> Result<Vec<Checked>, String> {
    measured.points.iter().map(|point| compare_point(graph, device, (measured.cache, point))).collect()
}

/// Compares one measured time with the prediction.
///
/// # Errors
/// As [`compare`].
pub fn compare_point(
    graph: &Graph,
    device: &Device,
    (cache, point): (Cache, &Point),
) -> Result<Checked, String> {
    let cx = Context { graph, device, cache };
    let mut groups = launches(graph, point.ops.as_ref().unwrap_or(&point.name))?;
    if point.form == Form::Unfused && groups.len() == 1 {
        groups = groups.concat().into_iter().map(|op| vec![op]).collect();
    }
    let predicted = cx.sequence(&groups);
    let bound = predicted.time.bound();
    // What takes no time has no ratio: only operations on nothing.
    let ratio = point.seconds / predicted.time.total;
    Ok(Checked {
        name: point.name.clone(),
        form: point.form,
        peer: point.peer.clone(),
        bound,
        measured: point.seconds,
        ratio,
        is_beyond: bound == Bound::Memory && (ratio - 1.0).abs() > TOLERANCE,
        predicted,
    })
}

/// The operations of each launch.
fn launches(graph: &Graph, name: &str) -> Result<Vec<Vec<OpId>>, String> {
    let find = |part: &str| {
        let known = || graph.op_ids().map(|id| graph.op(id).name.as_str()).collect::<Vec<_>>().join(", ");
        graph.find_op(part).ok_or_else(|| {
            format!("`{name}` was measured, and the model has no operation `{part}`: it has {}", known())
        })
    };
    let group = |launch: &str| launch.split('+').map(|part| find(part.trim())).collect();
    name.split(';').map(group).collect()
}

/// The table of a check of what a model or a file is called.
pub fn page(of: &str, measured: &Measurements, checked: &[Checked]) -> Page {
    let mut intro = vec![measured.device.clone()];
    if !measured.source.is_empty() {
        intro.push(measured.source.clone());
    }
    let percent = TOLERANCE * 100.0;
    for (whose, is_own) in [("the library's", true), ("other code's", false)] {
        let lines =
            checked.iter().filter(|line| line.bound == Bound::Memory && line.peer.is_none() == is_own);
        let (within, all) = (lines.clone().filter(|line| !line.is_beyond).count(), lines.count());
        if all > 0 {
            intro.push(format!(
                "of {whose}, {within} of {all} bound by memory are within {percent:.0} % of the prediction"
            ));
        }
    }
    let row = |line: &Checked| {
        vec![
            line.name.clone(),
            line.form.name().to_owned(),
            line.peer.clone().unwrap_or_else(|| "the library".to_owned()),
            bytes(line.predicted.cost.bytes()),
            line.bound.name().to_owned(),
            seconds(line.predicted.time.total),
            seconds(line.measured),
            format!("{:.2}", line.ratio),
            if line.is_beyond { "beyond 15 %" } else { "" }.to_owned(),
        ]
    };
    let section = Section {
        title: "measured and predicted".to_owned(),
        columns: vec![
            Words("operations"),
            Words("form"),
            Words("code"),
            Numbers("bytes"),
            Words("bound"),
            Numbers("predicted"),
            Numbers("measured"),
            Numbers("ratio"),
            Words(""),
        ],
        rows: checked.iter().map(row).collect(),
        empty: "nothing was measured",
    };
    Page { title: format!("check of {of}"), intro, picture: None, sections: vec![section] }
}

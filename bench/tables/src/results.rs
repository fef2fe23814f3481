//! Reports in `bench/results`, as rows of named values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::root;

/// What the contenders of a case have in common. The rest of a contender's row is told apart by its name.
const SHARED: [&str; 5] = ["kernel", "group", "shape", "size", "dtype"];

/// A report: who measured what on which machine, and the rows.
#[derive(Debug)]
pub struct Report {
    /// The path below `bench/results`, without `.json`.
    pub name: String,
    /// All but the rows.
    pub header: Map<String, Value>,
    pub rows: Vec<Row>,
}

/// Values by name. An object's are named with a dot: `ours.us`.
#[derive(Clone, Debug, Default)]
pub struct Row(BTreeMap<String, Value>);

impl Row {
    /// A number, if it is known.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// A value as it is printed, if it is known.
    pub fn text(&self, name: &str) -> Option<String> {
        text(self.0.get(name)?)
    }

    /// A row with some of the values.
    pub fn only(&self, names: &[&str]) -> Row {
        Row(self
            .0
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect())
    }

    /// Adds the values of another row, their names behind a prefix.
    pub fn join(&mut self, prefix: &str, other: &Row) {
        for (name, value) in &other.0 {
            self.0.insert(format!("{prefix}{name}"), value.clone());
        }
    }

    fn flatten(&mut self, prefix: &str, object: &Map<String, Value>) {
        for (name, value) in object {
            match value {
                Value::Object(inner) => self.flatten(&format!("{prefix}{name}."), inner),
                _ => drop(self.0.insert(format!("{prefix}{name}"), value.clone())),
            }
        }
    }
}

/// A list of two figures is a range.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Array(figures) => {
            let mut texts: Vec<String> = figures.iter().filter_map(text_of_figure).collect();
            texts.dedup();
            Some(texts.join(" to "))
        }
        Value::Null | Value::Object(_) => None,
    }
}

fn text_of_figure(value: &Value) -> Option<String> {
    value.as_f64().map(|figure| figure.to_string())
}

impl Report {
    /// Reads a report by its path below `bench/results`, without `.json`.
    pub fn read(name: &str) -> Result<Self, String> {
        let path = root().join(format!("bench/results/{name}.json"));
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut header: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let rows = match header.remove("rows") {
            Some(Value::Array(rows)) => rows,
            _ => return Err(format!("{}: no list of rows", path.display())),
        };
        Ok(Self { name: name.into(), header, rows: cases(&rows) })
    }
}

/// The rows; those of the contenders of a case are one.
pub(crate) fn cases(rows: &[Value]) -> Vec<Row> {
    let mut found: Vec<Row> = vec![];
    for object in rows.iter().filter_map(Value::as_object) {
        let Some(contender) = object.get("contender").and_then(Value::as_str) else {
            let mut row = Row::default();
            row.flatten("", object);
            found.push(row);
            continue;
        };
        let mut of_case = Row::default();
        let (shared, own): (Map<_, _>, Map<_, _>) =
            object.clone().into_iter().partition(|(name, _)| SHARED.contains(&name.as_str()));
        of_case.flatten("", &shared);
        // Contenders of a case are neighbors, and cases differ in their shape or their kernel.
        let same = |row: &Row| ["kernel", "shape"].iter().all(|name| row.text(name) == of_case.text(name));
        if !found.last().is_some_and(same) {
            if let (Some(shape), Some(dtype)) = (of_case.text("shape"), of_case.text("dtype")) {
                let extents = shape.strip_suffix(&format!(" {dtype}")).unwrap_or(&shape);
                of_case.0.insert("extents".into(), extents.into());
            }
            found.push(of_case);
        }
        found.last_mut().expect("a case").flatten(&format!("{contender}."), &own);
    }
    found
}

/// All reports.
pub fn reports() -> Result<Vec<Report>, String> {
    let folder = root().join("bench/results");
    let mut paths = vec![];
    files(&folder, "json", &mut paths);
    let names =
        paths.iter().filter_map(|path| path.strip_prefix(&folder).ok()?.to_str()?.strip_suffix(".json"));
    names.map(Report::read).collect()
}

/// The files below a folder with an extension, in order.
pub(crate) fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::cases;

    #[test]
    fn contenders_of_a_case_are_one_row() {
        let row = |shape: &str, contender: &str, us: f64| json!({"kernel": "add", "shape": shape, "dtype": "f32", "contender": contender, "us": us});
        let rows = cases(&[
            row("8 f32", "ours", 1.5),
            row("8 f32", "torch.compile", 3.0),
            row("9 f32", "ours", 2.0),
        ]);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].number("torch.compile.us"), Some(3.0));
        assert_eq!(rows[0].text("extents").as_deref(), Some("8"));
        assert_eq!(rows[1].number("torch.compile.us"), None);
    }

    #[test]
    fn inner_values_are_named_with_a_dot() {
        let rows = cases(&[json!({"ours": {"us": 2.5}, "expected": [1.5, 2.0], "over": null})]);
        assert_eq!(rows[0].number("ours.us"), Some(2.5));
        assert_eq!(rows[0].text("expected").as_deref(), Some("1.5 to 2"));
        assert_eq!(rows[0].text("over"), None);
    }
}

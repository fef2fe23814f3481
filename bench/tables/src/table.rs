//! Tables as Markdown, from what is declared.

use serde_json::Value;

use crate::declared::{SUMMARIES, TABLES};
use crate::quantiles::{geometric_mean, quantile};
use crate::results::{Report, Row};
use crate::template::{fill, is_figure};

/// A table with a line for each row of its files.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    pub sources: &'static [Source],
    /// The values by which rows of several sources are one line.
    pub key: &'static [&'static str],
    pub columns: &'static [Column],
}

/// Rows of a file. Their values are known to the columns behind the prefix.
#[derive(Debug)]
pub struct Source {
    pub prefix: &'static str,
    pub file: &'static str,
    pub filter: &'static [Filter],
}

/// What a row has to be.
#[derive(Debug)]
pub enum Filter {
    Is(&'static str, &'static [&'static str]),
    IsNot(&'static str, &'static [&'static str]),
}

/// A column: its head, and its cells as [`crate::template`] has them.
#[derive(Debug)]
pub struct Column {
    pub head: &'static str,
    pub cell: &'static str,
}

/// A table that sums up the ratios of many cases, a line for a choice of them, side by side for each GPU.
#[derive(Debug)]
pub struct Summary {
    pub name: &'static str,
    pub ratio: &'static str,
    pub measures: &'static [Measure],
    pub lines: &'static [Line],
}

/// A number that many ratios are summed up by.
#[derive(Debug)]
pub enum Measure {
    GeometricMean,
    Median,
    TenthPercentile,
    Worst,
}

/// Cases of a summary, by the files of each GPU.
#[derive(Debug)]
pub struct Line {
    pub label: &'static str,
    pub h200: &'static [&'static str],
    pub h100: &'static [&'static str],
    pub filter: &'static [Filter],
}

/// A column of Markdown.
struct Printed {
    head: String,
    right: bool,
    cells: Vec<String>,
}

/// The table of a name.
pub fn table(name: &str) -> Result<String, String> {
    let columns = if let Some(table) = TABLES.iter().find(|table| table.name == name) {
        by_rows(table)?
    } else if let Some(summary) = SUMMARIES.iter().find(|summary| summary.name == name) {
        summed_up(summary)?
    } else {
        as_transcribed(
            &Report::read(name).map_err(|error| format!("no table `{name}` is declared; {error}"))?,
        )?
    };
    if columns.iter().all(|column| column.cells.is_empty()) {
        return Err(format!("table `{name}` has no rows"));
    }
    Ok(markdown(&columns))
}

fn markdown(columns: &[Printed]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(columns.iter().map(|column| column.head.as_str()).collect());
    out += &line(columns.iter().map(|column| if column.right { "---:" } else { "---" }).collect());
    for row in 0..columns.iter().map(|column| column.cells.len()).max().unwrap_or(0) {
        out += &line(columns.iter().map(|column| column.cells[row].as_str()).collect());
    }
    out
}

fn printed(head: &str, cell: &str, rows: &[Row]) -> Printed {
    Printed {
        head: head.into(),
        right: is_figure(cell),
        cells: rows.iter().map(|row| fill(cell, row)).collect(),
    }
}

fn holds(filter: &[Filter], row: &Row) -> bool {
    filter.iter().all(|filter| match filter {
        Filter::Is(name, values) => row.text(name).is_some_and(|text| values.contains(&text.as_str())),
        Filter::IsNot(name, values) => row.text(name).is_none_or(|text| !values.contains(&text.as_str())),
    })
}

fn by_rows(table: &Table) -> Result<Vec<Printed>, String> {
    let mut lines: Vec<Row> = vec![];
    for source in table.sources {
        for row in Report::read(source.file)?.rows.iter().filter(|row| holds(source.filter, row)) {
            let same = |line: &&mut Row| table.key.iter().all(|name| line.text(name) == row.text(name));
            let known = if table.key.is_empty() { None } else { lines.iter_mut().find(same) };
            let line = match known {
                Some(line) => line,
                None => {
                    lines.push(row.only(table.key));
                    lines.last_mut().expect("a line")
                }
            };
            line.join(source.prefix, row);
        }
    }
    Ok(table.columns.iter().map(|column| printed(column.head, column.cell, &lines)).collect())
}

/// A table whose file says its columns, as files do that were written down from a table.
fn as_transcribed(report: &Report) -> Result<Vec<Printed>, String> {
    let Some(Value::Array(columns)) = report.header.get("columns") else {
        return Err(format!("`{}` has no columns, and no table of it is declared", report.name));
    };
    let column = |column: &Value| {
        let key = column["key"].as_str()?;
        let cell = match column["digits"].as_u64() {
            Some(digits) => format!("{{{key}:.{digits}}}"),
            None => format!("{{{key}}}"),
        };
        Some(printed(column["head"].as_str()?, &cell, &report.rows))
    };
    let columns: Option<Vec<Printed>> = columns.iter().map(column).collect();
    columns.ok_or(format!("`{}` has a column without head or key", report.name))
}

/// A case's ratio, and its name.
struct Case {
    ratio: f64,
    name: String,
}

fn summed_up(summary: &Summary) -> Result<Vec<Printed>, String> {
    let labels = summary.lines.iter().map(|line| line.label.to_string()).collect();
    let mut columns = vec![Printed { head: "cases".into(), right: false, cells: labels }];
    for gpu in ["H200", "H100"] {
        let files = |line: &Line| if gpu == "H200" { line.h200 } else { line.h100 };
        if summary.lines.iter().all(|line| files(line).is_empty()) {
            continue;
        }
        let cases: Vec<Vec<Case>> = summary
            .lines
            .iter()
            .map(|line| cases(files(line), line.filter, summary.ratio))
            .collect::<Result<_, String>>()?;
        let column = |head: String, cell: &dyn Fn(&[Case]) -> String| {
            let filled = |cases: &Vec<Case>| if cases.is_empty() { String::new() } else { cell(cases) };
            Printed { head, right: true, cells: cases.iter().map(filled).collect() }
        };
        columns.push(column(format!("{gpu}, cases"), &|cases| cases.len().to_string()));
        for measure in summary.measures {
            columns.push(column(head(measure).into(), &|cases| measured(measure, cases)));
        }
    }
    Ok(columns)
}

/// The cases of some files, the worst first.
fn cases(files: &[&str], filter: &[Filter], ratio: &str) -> Result<Vec<Case>, String> {
    let mut found = vec![];
    for file in files {
        for row in Report::read(file)?.rows.iter().filter(|row| holds(filter, row)) {
            if let Some(ratio) = row.number(ratio) {
                found.push(Case { ratio, name: fill("{kernel} {shape}", row) });
            }
        }
    }
    found.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    Ok(found)
}

fn head(measure: &Measure) -> &'static str {
    match measure {
        Measure::GeometricMean => "geometric mean",
        Measure::Median => "median",
        Measure::TenthPercentile => "tenth percentile",
        Measure::Worst => "worst",
    }
}

fn measured(measure: &Measure, ordered: &[Case]) -> String {
    let ratios: Vec<f64> = ordered.iter().map(|case| case.ratio).collect();
    match measure {
        Measure::GeometricMean => format!("{:.2}", geometric_mean(&ratios)),
        Measure::Median => format!("{:.2}", quantile(&ratios, 0.5)),
        Measure::TenthPercentile => format!("{:.2}", quantile(&ratios, 0.1)),
        Measure::Worst => format!("{:.2} ({})", ordered[0].ratio, ordered[0].name),
    }
}

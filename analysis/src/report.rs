//! Pages of tables, for the terminal and as one HTML file that needs nothing else.

pub mod analysis;

use std::fmt::Write;

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width};

use crate::units::escape;

/// Longer cells of words go on in the next line.
const WIDEST: u16 = 90;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Of words, aligned left.
    Words(&'static str),
    /// Of numbers, aligned right.
    Numbers(&'static str),
}

impl Column {
    const fn title(self) -> &'static str {
        match self {
            Column::Words(title) | Column::Numbers(title) => title,
        }
    }
}

/// A table with a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Above the table.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// A cell for each column in each row.
    pub rows: Vec<Vec<String>>,
    /// What is said where there are no rows.
    pub empty: &'static str,
}

/// A title, sentences, a picture and tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// Sentences below the title.
    pub intro: Vec<String>,
    /// An SVG element for the HTML form.
    pub picture: Option<String>,
    /// The tables.
    pub sections: Vec<Section>,
}

impl Page {
    /// For the terminal, with tables as Markdown has them.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for sentence in &self.intro {
            text.push_str(sentence);
            text.push('\n');
        }
        for section in &self.sections {
            let _ = write!(text, "\n{}\n", section.title);
            if section.rows.is_empty() {
                text.push_str(section.empty);
            } else {
                text.push_str(&section.table());
            }
            text.push('\n');
        }
        text
    }

    /// One HTML file.
    pub fn to_html(&self) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\n{STYLE}\
             </style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        for sentence in &self.intro {
            let _ = writeln!(html, "<p>{}</p>", escape(sentence));
        }
        if let Some(picture) = &self.picture {
            let _ = writeln!(html, "<figure>\n{picture}\n</figure>");
        }
        for section in &self.sections {
            section.write_html(&mut html);
        }
        html.push_str("</body>\n</html>\n");
        html
    }
}

const STYLE: &str = "\
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color: #1b1b1b; }
h1 { font-size: 1.5em; }
h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; font-size: 0.92em; }
th, td { padding: 0.3em 0.7em; border-bottom: 1px solid #d8d8d8; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1em 0; }
figure svg { max-width: 100%; height: auto; }
";

impl Section {
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        table.set_header(self.columns.iter().map(|column| column.title()));
        for row in &self.rows {
            table.add_row(row);
        }
        for (index, column) in self.columns.iter().enumerate() {
            let Some(cells) = table.column_mut(index) else { continue };
            match column {
                Column::Words(_) => {
                    cells.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(WIDEST)));
                }
                Column::Numbers(_) => cells.set_cell_alignment(CellAlignment::Right),
            }
        }
        let lines = table.to_string();
        lines.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    fn write_html(&self, html: &mut String) {
        let _ = writeln!(html, "<h2>{}</h2>", escape(&self.title));
        if self.rows.is_empty() {
            let _ = writeln!(html, "<p>{}</p>", escape(self.empty));
            return;
        }
        let class = |column: &Column| match column {
            Column::Words(_) => "",
            Column::Numbers(_) => " class=\"n\"",
        };
        html.push_str("<table>\n<tr>");
        for column in &self.columns {
            let _ = write!(html, "<th{}>{}</th>", class(column), escape(column.title()));
        }
        html.push_str("</tr>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (column, cell) in self.columns.iter().zip(row) {
                let _ = write!(html, "<td{}>{}</td>", class(column), escape(cell));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</table>\n");
    }
}

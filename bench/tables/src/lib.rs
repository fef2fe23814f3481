//! The tables of the documents, from the results in `bench/results`.
//!
//! Takes a page with lines `<!-- table: name -->` and `<!-- end -->`, gives it with the named table between them. A table is declared in
//! [`declared`]: files, a filter, columns. A file that says its columns itself is a table under its path without `.json`.
//! Nothing is measured here, and no figure is written by hand.

pub mod declared;
mod quantiles;
mod results;
mod table;
mod template;

pub use results::{Report, Row, reports};
pub use table::table;

use std::path::{Path, PathBuf};

/// The first line of a table ends the line with this.
const START: &str = "<!-- table: ";
/// The line behind a table.
pub const END: &str = "<!-- end -->";

/// The folder of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace is two folders above")
}

/// The name in the line before a table.
pub fn name(line: &str) -> Option<&str> {
    line.strip_prefix(START)?.strip_suffix(" -->")
}

/// A page with its tables as the results have them.
pub fn render(page: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out += line;
        out.push('\n');
        if let Some(name) = name(line) {
            // A blank line on both sides, for a comment and a table are blocks of their own.
            out += &format!("\n{}\n", table(name)?);
            lines.by_ref().find(|line| *line == END).ok_or(format!("no `{END}` behind table `{name}`"))?;
            out += END;
            out.push('\n');
        }
    }
    Ok(out)
}

/// The pages that may have tables.
pub fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    for folder in ["book/src", "docs"] {
        results::files(&root().join(folder), "md", &mut found);
    }
    found
}

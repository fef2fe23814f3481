//! The tables of the documents are those of the results, and every result says where it is from.
//!
//! `UPDATE_EXPECT=1 cargo test -p fuse-tables` writes the tables anew.

use std::collections::BTreeSet;

use fuse_tables::{END, name, pages, render, reports, root};

/// The lines that one of two pages has alone, with the sign that a diff gives them.
fn difference(page: &str, made: &str) -> String {
    let [old, new] = [page, made].map(|text| text.lines().collect::<BTreeSet<_>>());
    let gone = page.lines().filter(|line| !new.contains(line)).map(|line| format!("-{line}\n"));
    let come = made.lines().filter(|line| !old.contains(line)).map(|line| format!("+{line}\n"));
    gone.chain(come).collect()
}

#[test]
fn tables_are_current() {
    let (mut tables, mut stale) = (0, String::new());
    for path in pages() {
        let page = std::fs::read_to_string(&path).expect("a page");
        let made = render(&page).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        tables += page.lines().filter(|line| name(line).is_some()).count();
        if page != made && std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, made).expect("a page that can be written");
        } else if page != made {
            stale += &format!("{}\n{}", path.display(), difference(&page, &made));
        }
    }
    assert!(tables > 0, "no page has a table");
    assert!(stale.is_empty(), "tables that `UPDATE_EXPECT=1 cargo test -p fuse-tables` makes anew:\n{stale}");
}

#[test]
fn figures_stand_in_made_tables_alone() {
    for path in ["README.md", "book/src/performance.md"] {
        let page = std::fs::read_to_string(root().join(path)).expect("a page");
        let mut made = false;
        for (number, line) in page.lines().enumerate() {
            made = name(line).is_some() || made && line != END;
            // What stands on the right is a figure.
            let figures = line.starts_with("| ") && line.contains("---:");
            assert!(
                made || !figures,
                "{path}:{}: a table of figures that is not made from results",
                number + 1
            );
        }
    }
}

#[test]
fn a_result_says_what_made_it_and_where() {
    let reports = reports().expect("reports that can be read");
    assert!(reports.len() > 10, "no results");
    for report in reports {
        let header = &report.header;
        let said = |key: &str| header.get(key).is_some_and(|value| !value.is_null());
        assert!(said("command") || said("source"), "{}: neither command nor source", report.name);
        assert!(!report.rows.is_empty(), "{}: no rows", report.name);
        let folder = report.name.split('/').next().unwrap_or_default();
        let key = if folder == "cpu" { "cpu" } else { "gpu" };
        let machine = header.get("machine").and_then(|machine| machine.get(key)?.as_str());
        let machine = machine.unwrap_or_else(|| panic!("{}: no machine", report.name)).to_lowercase();
        assert!(folder == "cpu" || machine.contains(folder), "{}: measured on {machine}", report.name);
    }
}

#[test]
fn a_page_without_an_end_is_refused() {
    let error = render("<!-- table: library -->\n").expect_err("no end");
    assert_eq!(error, "no `<!-- end -->` behind table `library`");
    let error = render("<!-- table: h200/nothing -->\n<!-- end -->\n").expect_err("no such table");
    assert!(error.starts_with("no table `h200/nothing` is declared; "), "{error}");
}

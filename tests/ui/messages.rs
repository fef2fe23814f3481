//! rustc's messages as text that is the same on every machine, and does not change with the lines of other files.

use serde_json::Value;

/// The file that rustc has checked, by its path in a crate, and the crate's path in the workspace.
#[derive(Clone, Copy)]
pub struct CheckedFile<'a> {
    pub krate: &'a str,
    pub path: &'a str,
}

impl CheckedFile<'_> {
    /// A place in a message as it is written, and whether it is in another file.
    fn place(self, place: &str) -> (String, bool) {
        let path = place.rsplitn(3, ':').last().unwrap_or_default();
        match place.strip_prefix(self.krate).and_then(|place| place.strip_prefix('/')) {
            Some(own) if own.starts_with(&format!("{}:", self.path)) => (own.to_string(), false),
            Some(_) => (path[self.krate.len() + 1..].to_string(), true),
            None if place.starts_with('/') => (path.to_string(), true),
            None => (format!("$WORKSPACE/{path}"), true),
        }
    }
}

/// rustc's messages about one file, as it would print them.
pub struct Messages(Vec<String>);

/// Lines that sum up.
const SUMMARIES: [&str; 3] = ["error: aborting due to", "For more information", "Some errors have"];

impl Messages {
    /// Reads what `--error-format=json` gives.
    pub fn parse(json: &str) -> Messages {
        let messages = json.lines().map(|line| match serde_json::from_str::<Value>(line) {
            Ok(message) => message["rendered"].as_str().unwrap_or_default().to_string(),
            // rustc has failed in a way that has no form.
            Err(_) => format!("{line}\n"),
        });
        let sums_up = |text: &String| {
            SUMMARIES.iter().any(|start| text.starts_with(start)) || text.trim_end().ends_with(" emitted")
        };
        Messages(messages.filter(|text| !sums_up(text)).collect())
    }

    /// All of them, in order.
    pub fn text(&self, file: CheckedFile) -> String {
        let texts: Vec<String> = self.0.iter().map(|message| portable(message, file)).collect();
        texts.join("\n")
    }
}

/// The digits of a line number, right-aligned before the bar or the sign of a change.
fn line_number(line: &str) -> Option<&str> {
    let digits = line.trim_start().split(' ').next().unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let rest = line.trim_start().get(digits.len() + 1..).unwrap_or_default();
    (is_number && rest.starts_with(['|', '+', '-', '~'])).then_some(digits)
}

/// A message without line numbers of other files, from which the width of its margin follows too.
fn portable(message: &str, file: CheckedFile) -> String {
    let mut lines = vec![];
    let (mut elsewhere, mut widths) = (false, [0, 0]);
    for line in message.trim_end().lines() {
        if let Some((before, place)) = line.split_once("--> ").or_else(|| line.split_once("::: ")) {
            let arrow = &line[before.len()..line.len() - place.len()];
            let place;
            (place, elsewhere) = file.place(&line[before.len() + arrow.len()..]);
            lines.push(format!("{before}{arrow}{place}"));
            continue;
        }
        elsewhere &= line.starts_with(' ') || line_number(line).is_some();
        let Some(digits) = line_number(line) else {
            lines.push(line.to_string());
            continue;
        };
        // Numbers of this file, and all of them.
        widths[1] = digits.len().max(widths[1]);
        if elsewhere {
            lines.push(line.replacen(digits, &" ".repeat(digits.len()), 1));
        } else {
            widths[0] = digits.len().max(widths[0]);
            lines.push(line.to_string());
        }
    }
    let surplus = " ".repeat(widths[1] - widths[0]);
    lines.iter().map(|line| line.strip_prefix(&surplus).unwrap_or(line).to_string() + "\n").collect()
}

#[test]
fn lines_of_other_files_do_not_matter() {
    let message = "error: no
    --> tests/ui/a.rs:36:2
     |
  36 |     x
     |     ^
     = note: a
             b
note: here
    --> runtime/lib.rs:1024:5
     |
1024 |     fn f()
     |        ^
";
    let expected = "error: no
  --> ui/a.rs:36:2
   |
36 |     x
   |     ^
   = note: a
           b
note: here
  --> $WORKSPACE/runtime/lib.rs
   |
   |     fn f()
   |        ^
";
    let file = CheckedFile { krate: "tests", path: "ui/a.rs" };
    assert_eq!(portable(message, file), expected);
    assert_eq!(file.place("tests/src/b.rs:3:4"), ("src/b.rs".to_string(), true));
}

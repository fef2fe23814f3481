//! rustc's messages as text that is the same on every machine, and does not change with the runtime's lines.

use std::path::Path;

use serde_json::Value;

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
    pub fn text(&self, workspace: &Path) -> String {
        let texts: Vec<String> = self.0.iter().map(|message| portable(message, workspace)).collect();
        texts.join("\n")
    }
}

/// A message without line numbers of other files, from which the width of its margin follows too.
fn portable(message: &str, workspace: &Path) -> String {
    let workspace = format!("{}/", workspace.display());
    let mut lines = vec![];
    let mut elsewhere = false;
    let margin_of = |line: &str| line.find(|c: char| !c.is_ascii_digit() && c != ' ').unwrap_or(0);
    for line in message.trim_end().lines() {
        let margin = margin_of(line);
        if let Some((before, place)) = line.split_once("--> ").or_else(|| line.split_once("::: ")) {
            let arrow = &line[before.len()..line.len() - place.len()];
            elsewhere = place.starts_with('/');
            let place = place.replacen(&workspace, "$WORKSPACE/", 1);
            let file = place.rsplitn(3, ':').last().unwrap_or_default();
            lines.push(format!("{before}{arrow}{}", if elsewhere { file } else { &place }));
        } else if elsewhere && line.starts_with(|c: char| c.is_ascii_digit()) {
            lines.push(format!("{}{}", " ".repeat(margin), &line[margin..]));
        } else {
            elsewhere &= line.starts_with(' ');
            lines.push(line.to_string());
        }
    }
    let digits = |line: &String| line.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    let wanted = lines.iter().map(digits).max().unwrap_or(0);
    // A margin ends with a space behind the number, or before the arrow.
    let arrow = lines.iter().find_map(|line| line.trim_start().starts_with("-->").then(|| margin_of(line)));
    let surplus = arrow.map_or(0, |width| width.saturating_sub(wanted));
    let narrow = |line: String| {
        let digits = digits(&line);
        let blank = line[digits..].find(|c| c != ' ').unwrap_or(line.len() - digits);
        let own = blank > surplus && (digits > 0 || line.starts_with(' '));
        if own { format!("{}{}\n", &line[..digits], &line[digits + surplus..]) } else { line + "\n" }
    };
    lines.into_iter().map(narrow).collect()
}

#[test]
fn lines_of_other_files_do_not_matter() {
    let message = "error: no
    --> ui/a.rs:36:2
     |
36   |     x
     |     ^
     = note: a
             b
note: here
    --> /w/lib.rs:1024:5
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
  --> $WORKSPACE/lib.rs
   |
   |     fn f()
   |        ^
";
    assert_eq!(portable(message, Path::new("/w")), expected);
}

//! File tests, `filetests/<pass>/*.ir`: a function as text, and below it what a pass makes of it.
//!
//! ```text
//! ; test legalize_index bounds=guarded
//! ; What the file shows.
//!
//! kernel copy(x: &[f32], out: &mut [f32], %n n: i32) {
//!   ..
//! }
//!
//! ; the whole output, or `unchanged`, and the guards that it relies on
//! ```
//!
//! With `source=kernel` the function is a kernel in Rust, `#[fuse_kernel] fn ..`.
//!
//! Whoever writes one leaves the output out and runs the test with `UPDATE_EXPECT=1`, which writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ir::guard::{Guard, WithNames};
use crate::ir::{self, Func};
use crate::testing::first_variant;
use crate::transform::legalize_index::BoundsPolicy;

/// A pass by its name: it takes a function and what a file asks for, and gives the output.
pub type PassTest = (&'static str, fn(&Func, &Request) -> String);

/// How tight bounds are, and for passes after layout the numbers of warps and of blocks, and what is known of addresses; for those of
/// the schedule what the file is, and the stages of its loops.
const OPTIONS: [&str; 6] = ["bounds", "warps", "blocks", "alignment", "source", "stages"];

/// What the first line of a file asks for: `; test pass option=value ..`.
pub struct Request<'t> {
    pass: &'t str,
    options: BTreeMap<&'t str, &'t str>,
}

impl Request<'_> {
    /// The pass of the file's folder.
    pub fn pass(&self) -> &str {
        self.pass
    }

    /// One of several values of an option; the first one where it is not there.
    pub fn one_of<T: Copy>(&self, option: &str, values: &[(&str, T)]) -> T {
        let Some(given) = self.options.get(option) else { return values[0].1 };
        let found = values.iter().find(|(value, _)| value == given);
        found.unwrap_or_else(|| panic!("{option}={given}")).1
    }

    pub fn bounds(&self) -> BoundsPolicy {
        let policies = [
            ("guarded", BoundsPolicy::Guarded),
            ("masked", BoundsPolicy::Masked),
            ("unchecked", BoundsPolicy::Unchecked),
        ];
        self.one_of("bounds", &policies)
    }

    pub fn warps(&self) -> u32 {
        self.number("warps").unwrap_or(4)
    }

    /// Blocks that run one program.
    pub fn blocks(&self) -> u32 {
        self.number("blocks").unwrap_or(1)
    }

    pub fn number(&self, option: &str) -> Option<u32> {
        self.options.get(option).map(|number| number.parse().unwrap_or_else(|_| panic!("{option}={number}")))
    }
}

/// A valid function as text, which parses as itself.
pub fn text(func: &Func) -> String {
    ir::verify(func).expect("valid tile IR");
    let text = ir::print(func, &|_| None);
    let again = ir::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(ir::print(&again, &|_| None), text);
    text
}

/// The function that a pass made of another one.
pub fn changed(before: &Func, after: &Func) -> String {
    let after = text(after);
    if text(before) == after { "unchanged\n".into() } else { after }
}

/// With the guards that it relies on.
pub fn guarded(before: &Func, after: &Func, guards: &[Guard]) -> String {
    let names: Vec<String> = before.params.iter().map(|param| param.name.clone()).collect();
    let lines: String = guards.iter().map(|guard| format!("{}\n", WithNames(guard, &names))).collect();
    changed(before, after) + &lines
}

/// What a pass that rewrites a function makes of it.
pub fn rewritten(func: &Func, pass: impl FnOnce(&mut Func)) -> String {
    let mut after = func.clone();
    pass(&mut after);
    changed(func, &after)
}

/// What a pass that returns guards makes of a function.
pub fn rewritten_under_guards(func: &Func, pass: impl FnOnce(&mut Func) -> Vec<Guard>) -> String {
    let mut after = func.clone();
    let guards = pass(&mut after);
    guarded(func, &after, &guards)
}

/// A file in two: what is given, and the comment below it, which is the output.
fn parts(file: &str) -> (String, String) {
    let lines: Vec<&str> = file.lines().collect();
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with(';');
    let end = lines.iter().rposition(is_code).map_or(0, |last| last + 1);
    let join = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    (join(&lines[..end]), join(&lines[end..]))
}

/// What a file asks for.
fn request(file: &str) -> Request<'_> {
    let first = file.lines().next().and_then(|line| line.strip_prefix("; test "));
    let mut words = first.expect("`; test <pass>` in the first line").split(' ');
    let pass = words.next().expect("the pass");
    let options: BTreeMap<&str, &str> =
        words.map(|word| word.split_once('=').expect("`option=value`")).collect();
    let unknown = options.keys().find(|option| !OPTIONS.contains(option));
    assert!(unknown.is_none(), "there is no option {unknown:?}, there are {OPTIONS:?}");
    Request { pass, options }
}

/// A kernel in Rust below the comments.
fn kernel(given: &str) -> Func {
    let lines = given.lines().filter(|line| !line.starts_with(';'));
    first_variant(&lines.map(|line| format!("{line}\n")).collect::<String>()).0
}

/// The output that a file should have: that of its pass, or of the folder `parse` the error.
fn output(given: &str, (name, pass): &PassTest) -> String {
    let request = request(given);
    assert_eq!(request.pass, *name, "the folder is that of the pass");
    let parsed = match request.options.get("source") {
        Some(&"kernel") => Ok(kernel(given)),
        _ => ir::parse(given),
    };
    let output = match parsed {
        Ok(func) => pass(&func, &request),
        Err(error) if *name == "parse" => format!("{error}\n"),
        Err(error) => panic!("{error}"),
    };
    let lines = output.lines().map(|line| format!("; {line}\n"));
    format!("\n{}", lines.collect::<String>())
}

/// The lines that differ, with two before them.
fn difference(wanted: &str, found: &str) -> String {
    let (wanted, found): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), found.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let before = same(&mut wanted.iter().zip(&found));
    let rest = wanted.len().min(found.len()) - before;
    let after = same(&mut wanted.iter().rev().zip(found.iter().rev()).take(rest));
    let lines =
        |sign: &str, lines: &[&str]| lines.iter().map(|line| format!("{sign} {line}\n")).collect::<String>();
    lines(" ", &wanted[before.saturating_sub(2)..before])
        + &lines("-", &wanted[before..wanted.len() - after])
        + &lines("+", &found[before..found.len() - after])
}

/// What is in a folder, in the order of the names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths
}

/// Checks the files of a folder, which has one folder for each of these passes.
pub fn check_files(root: &Path, passes: &[PassTest]) {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let folders = entries(root);
    let named: Vec<PathBuf> = passes.iter().map(|(pass, _)| root.join(pass)).collect();
    let stray: Vec<&PathBuf> = folders.iter().filter(|folder| !named.contains(folder)).collect();
    assert!(stray.is_empty(), "{stray:?}: each folder is one of a pass");
    let mut wrong = vec![];
    for pass in passes {
        let files = entries(&root.join(pass.0));
        assert!(files.len() > 1, "{}: a case that it changes, and one that it leaves alone", pass.0);
        for path in files {
            let file = fs::read_to_string(&path).expect("a text file");
            let (given, wanted) = parts(&file);
            let name = path.strip_prefix(root).expect("a file below the root").display();
            match std::panic::catch_unwind(|| output(&given, pass)) {
                Err(_) => wrong.push(format!("{name}: it panicked, as printed above")),
                Ok(found) if found == wanted => {}
                Ok(found) if update => fs::write(&path, given + &found).expect("the file is rewritten"),
                Ok(found) => wrong.push(format!("{name}:\n{}", difference(&wanted, &found))),
            }
        }
    }
    let why = "UPDATE_EXPECT=1 writes what was found; read the difference";
    assert!(wrong.is_empty(), "{}\n{why}", wrong.join("\n"));
}

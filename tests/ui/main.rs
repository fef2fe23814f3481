//! What rustc prints for each class of mistake, and for the wrong kernels of the book's pages. The words of every message are
//! tested in `lowering`; here are the spans, and the messages that are rustc's own. `UPDATE_EXPECT=1` blesses.
//!
//! rustc checks each file alone, beside the runtime that cargo has built for the tests.

mod messages;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use messages::Messages;

/// The runtime as cargo built it, with the folder of what it depends on.
struct BuiltRuntime {
    library: PathBuf,
    dependencies: PathBuf,
}

impl BuiltRuntime {
    /// Asks cargo, which builds nothing when it has been built.
    fn find() -> BuiltRuntime {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = ["build", "--quiet", "--package", "dsl-runtime", "--message-format", "json"];
        let output = Command::new(cargo).args(build).output().expect("cargo runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let runtime = messages.filter(|message| message["target"]["name"] == "dsl_runtime").last();
        let files = runtime.expect("an artifact of the runtime")["filenames"].clone();
        let files = files.as_array().into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from);
        // Cargo puts a copy of the library elsewhere, but the metadata stays beside what it needs.
        let library = files.into_iter().find(|file| file.extension().is_some_and(|kind| kind == "rmeta"));
        let library = library.expect("the runtime's metadata");
        BuiltRuntime { dependencies: library.parent().expect("a folder").to_path_buf(), library }
    }

    /// What rustc says of a file of a crate, by its path there.
    fn check(&self, root: &Path, file: &Path) -> Messages {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command.current_dir(root).args(["--edition=2024", "--crate-type=bin", "--error-format=json"]);
        command
            .args(["--check-cfg=cfg(docsrs,test)", "--emit=metadata", "--out-dir"])
            .arg(std::env::temp_dir());
        command.arg("-L").arg(format!("dependency={}", self.dependencies.display()));
        command.arg("--extern").arg(format!("dsl_runtime={}", self.library.display()));
        let output = command.arg(file).output().expect("rustc runs");
        assert!(!output.status.success(), "{} has no mistake", file.display());
        Messages::parse(&String::from_utf8_lossy(&output.stderr))
    }
}

/// The wrong files of a crate, by their paths there.
fn wrong_files(root: &Path, folder: &str) -> Vec<PathBuf> {
    let entries = root.join(folder).read_dir().expect("a folder of wrong files");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut files: Vec<PathBuf> = names.map(|name| Path::new(folder).join(name)).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "rs"));
    files.sort();
    assert!(!files.is_empty(), "{folder} has wrong files");
    files
}

/// Compares what rustc says of each file with the text beside it, or writes that text.
fn check(krate: &str, folder: &str) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let root = workspace.join(krate);
    let (runtime, files, next) = (BuiltRuntime::find(), wrong_files(&root, folder), AtomicUsize::new(0));
    let bless = std::env::var_os("UPDATE_EXPECT").is_some();
    let differences = || {
        let mut differences = String::new();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = runtime.check(&root, file).text(workspace);
            let path = root.join(file).with_extension("stderr");
            let expected = std::fs::read_to_string(&path).unwrap_or_default();
            if found != expected && bless {
                std::fs::write(&path, &found).expect("the expected text is written");
            } else if found != expected {
                differences += &format!("{}\nexpected:\n{expected}\nfound:\n{found}\n", file.display());
            }
        }
        differences
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let differences: String = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(differences)).collect();
        running.into_iter().map(|worker| worker.join().expect("a worker")).collect()
    });
    assert!(differences.is_empty(), "UPDATE_EXPECT=1 writes down what differs:\n{differences}");
}

#[test]
fn messages() {
    check("tests", "ui/mistakes");
}

/// Pages of the book include these kernels and what rustc says of them.
#[test]
fn messages_in_the_book() {
    check("book/code", "mistakes");
}

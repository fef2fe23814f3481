//! What rustc prints for each class of mistake, and for the wrong kernels of the book's pages. The words of every message are
//! tested in `lowering`; here are the spans, and the messages that are rustc's own. `UPDATE_EXPECT=1` blesses.
//!
//! rustc checks each file alone, beside the runtime as cargo has checked it.

mod messages;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use messages::{CheckedFile, Messages};

/// The metadata of what wrong files use, and the folder of what that depends on.
struct Libraries {
    libraries: Vec<(String, PathBuf)>,
    dependencies: PathBuf,
}

impl Libraries {
    /// Asks cargo, which makes metadata where there is none yet: no kernel is lowered for it.
    fn find() -> Libraries {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let check = ["check", "--quiet", "--package", "fuse-book", "--message-format", "json"];
        let output = Command::new(cargo).args(check).output().expect("cargo runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let mut libraries = vec![];
        for message in said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let name = message["target"]["name"].as_str().unwrap_or_default();
            let file = message["filenames"][0].as_str().unwrap_or_default();
            if ["dsl_runtime", "fuse_book"].contains(&name) && file.ends_with(".rmeta") {
                libraries.push((name.to_string(), PathBuf::from(file)));
            }
        }
        let [(_, first), _] = &libraries[..] else { panic!("two libraries, found {libraries:?}") };
        Libraries { dependencies: first.parent().expect("a folder").to_path_buf(), libraries }
    }

    /// What rustc says of a file. Paths of the workspace are those that cargo has given rustc.
    fn check(&self, workspace: &Path, file: CheckedFile) -> Messages {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        // Mistakes that only a GPU's limits make are among them.
        let mut command = Command::new(rustc);
        command.env_remove("FUSE_ARCH");
        command.current_dir(workspace).args(["--edition=2024", "--crate-type=bin", "--error-format=json"]);
        command
            .args(["--check-cfg=cfg(docsrs,test)", "--emit=metadata", "--out-dir"])
            .arg(std::env::temp_dir());
        command.arg("-L").arg(format!("dependency={}", self.dependencies.display()));
        for (name, library) in &self.libraries {
            command.arg("--extern").arg(format!("{name}={}", library.display()));
        }
        let output = command.arg(format!("{}/{}", file.krate, file.path)).output().expect("rustc runs");
        assert!(!output.status.success(), "{} has no mistake", file.path);
        Messages::parse(&String::from_utf8_lossy(&output.stderr))
    }
}

/// The wrong files in a folder of a crate, by their paths in the crate.
fn wrong_files(root: &Path, folder: &str) -> Vec<String> {
    let entries = root.join(folder).read_dir().expect("a folder of wrong files");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut files: Vec<String> = names.map(|name| format!("{folder}/{}", name.display())).collect();
    files.retain(|file| file.ends_with(".rs"));
    files.sort();
    assert!(!files.is_empty(), "{folder} has wrong files");
    files
}

/// Compares what rustc says of each file with the text beside it, or writes that text.
fn check(krate: &str, folder: &str) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let root = workspace.join(krate);
    let (libraries, files, next) = (Libraries::find(), wrong_files(&root, folder), AtomicUsize::new(0));
    let bless = std::env::var_os("UPDATE_EXPECT").is_some();
    let differences = || {
        let mut differences = String::new();
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let file = CheckedFile { krate, path };
            let found = libraries.check(workspace, file).text(file);
            let text = root.join(path).with_extension("stderr");
            let expected = std::fs::read_to_string(&text).unwrap_or_default();
            if found != expected && bless {
                std::fs::write(&text, &found).expect("the expected text is written");
            } else if found != expected {
                differences += &format!("{path}\nexpected:\n{expected}\nfound:\n{found}\n");
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

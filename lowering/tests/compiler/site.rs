//! A build directory: a compiler that runs in it, and what it reported.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use proc_macro2::{TokenStream, TokenTree};
use tile_ir::testing::tokens;

use lowering::compile_with;
use lowering::driver::options::BuildOptions;

/// Says to a process which test it is for.
const OWN_PROCESS: &str = "FUSE_TEST_IN_OWN_PROCESS";

/// Runs a test in a process that runs no other one. A child that lowers is a copy of its process, with the locks that other threads
/// held when it was made: rustc has no other threads in the compiler, but the test runner does.
pub fn in_own_process<F: FnOnce()>(test: F) {
    in_limited_process("", test);
}

/// [`in_own_process`], after these commands of a shell, such as `ulimit -n 6;`.
pub fn in_limited_process<F: FnOnce()>(limits: &str, test: F) {
    // `compiler::cache::two_processes_at_once::{{closure}}`
    let closure = std::any::type_name::<F>();
    let name = closure.split_once("::").and_then(|(_, path)| path.strip_suffix("::{{closure}}"));
    let name = name.expect("a closure in a test");
    if std::env::var(OWN_PROCESS).is_ok_and(|wanted| wanted == name) {
        return test();
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits} exec \"$0\" \"$@\"")]).arg(program);
    command.args(["--exact", name, "--test-threads=1"]).env(OWN_PROCESS, name);
    let output = command.output().expect("a process");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "it ran: {text}");
}

/// A build directory, gone with the value.
pub struct Site {
    directory: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Site {
    pub fn new() -> Site {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("fuse-site-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory");
        Site { directory }
    }

    /// The build directory of another process.
    pub fn at(directory: PathBuf) -> Site {
        Site { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What cargo asks of rustc when it builds a crate here for use.
    pub fn command_line(&self) -> Vec<String> {
        let out = self.path("deps").display().to_string();
        let line =
            ["rustc", "--crate-name", "site", "--emit=dep-info,metadata,link", "-O", "--out-dir", &out];
        line.map(str::to_string).to_vec()
    }

    /// The options of an ordinary build, without an assembler.
    pub fn options(&self) -> BuildOptions {
        BuildOptions::read(&self.command_line(), &|_| None).expect("options")
    }

    /// The expansion of a kernel, its symbols without the number that tells expansions apart.
    pub fn expand(&self, source: &str, options: &BuildOptions) -> String {
        let (attribute, item) = tokens(source);
        let text = compile_with(attribute, item, options).to_string();
        let mut parts = text.split("fuse_fill_");
        let first = parts.next().unwrap_or_default().to_string();
        let number = |c: char| c.is_ascii_hexdigit();
        parts.fold(first, |text, part| text + "fuse_fill_" + part.trim_start_matches(number))
    }

    /// What a build says: each mistake with the tokens it stands on, paths without this directory.
    pub fn compile(&self, source: &str, options: &BuildOptions) -> String {
        let (attribute, item) = tokens(source);
        let said = reports(compile_with(attribute, item, options), source);
        said.replace(&*self.directory.to_string_lossy(), "SITE")
    }

    /// The files of a directory by name.
    pub fn files(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// The `compile_error!`s of an expansion: line, tokens, text.
fn reports(expansion: TokenStream, source: &str) -> String {
    let all: Vec<TokenTree> = expansion.into_iter().collect();
    let mut said = String::new();
    for window in all.windows(3) {
        let [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Group(group)] = window else { continue };
        let Some(TokenTree::Literal(text)) = group.stream().into_iter().next() else { continue };
        if name != "compile_error" {
            continue;
        }
        let text = syn::parse_str::<syn::LitStr>(&text.to_string()).expect("a string").value();
        let (from, to) = (name.span().start(), group.span().end());
        let line: String = source.lines().nth(from.line - 1).unwrap_or_default().into();
        let end = if from.line == to.line { to.column.min(line.len()) } else { line.len() };
        let cut = &line[from.column.min(end)..end];
        said += &format!("{}: `{cut}`: {}\n", from.line, text.replace('\n', "\n    "));
    }
    said
}

/// Marks a file as a program.
pub fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

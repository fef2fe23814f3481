//! What editors show in the crate's kernels: an exchange with rust-analyzer, recorded in `editor.txt`. `UPDATE_EXPECT=1` blesses. Where
//! rust-analyzer is not installed, the test says so.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::{target_folder, versioned_folder, workspace};

/// Names in the crate: a file, a piece of its text, and the name in that.
const NAMES: [(&str, &str, &str); 12] = [
    ("attention.rs", "mainloop::attention_mainloop;", "attention_mainloop"),
    ("attention.rs", "attention_mainloop::<T, D, M, N>", "attention_mainloop"),
    ("attention.rs", "let (l_safe, _) = softmax.", "softmax"),
    ("attention.rs", "softmax.sum_and_logarithm()", "sum_and_logarithm"),
    ("gated.rs", "epilogues::squared_relu;", "squared_relu"),
    ("gated.rs", "squared_relu(acc)", "squared_relu"),
    ("gated.rs", "matmul_mainloop::<T, i32, M, N, K, false>", "matmul_mainloop"),
    ("gated.rs", "tl::program_id(0) * M", "M"),
    ("gated.rs", "row + tl::arange(0, M)", "arange"),
    ("gated.rs", "tl::load(gate + rows", "load"),
    ("gated.rs", "tl::load(gate + rows", "gate"),
    ("gated.rs", "gated_matmul::<f32, 32, 32, 32>", "gated_matmul"),
];

/// The longest that the server may say nothing: first it builds the macro.
const SILENCE: Duration = Duration::from_secs(1200);

/// An answer that was overtaken by a change of files.
const CONTENT_MODIFIED: i64 = -32801;

/// A rust-analyzer that has read the crate.
struct Server {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    requests: u64,
}

impl Server {
    /// Starts rust-analyzer in a folder with cargo's settings of the other test, and waits until it has loaded the macros.
    fn start(folder: &Path) -> Server {
        let mut command = Command::new("rust-analyzer");
        command.current_dir(folder).env("CARGO_TARGET_DIR", target_folder());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("rust-analyzer starts");
        let input = process.stdin.take().expect("its input");
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            while let Some(message) = receive(&mut output) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut server = Server { process, input, messages, requests: 0 };
        let options = json!({
            "cargo": { "extraArgs": ["--offline", "--config", workspace().join("Cargo.toml")], "metadataExtraArgs": ["--offline"] },
            "checkOnSave": false,
            "cachePriming": { "enable": false },
        });
        let capabilities = json!({
            "experimental": { "serverStatusNotification": true },
            "textDocument": { "hover": { "contentFormat": ["markdown"] } },
        });
        let parameters =
            json!({ "rootUri": uri(folder), "capabilities": capabilities, "initializationOptions": options });
        server.request("initialize", &parameters);
        server.send(&json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} }));
        loop {
            let message = server.next();
            let status = &message["params"];
            if message["method"] == "experimental/serverStatus" && status["quiescent"] == true {
                assert_eq!(status["health"], "ok", "{status}");
                return server;
            }
        }
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("rust-analyzer reads");
    }

    fn next(&self) -> Value {
        self.messages.recv_timeout(SILENCE).expect("rust-analyzer says something")
    }

    /// The result of a request.
    fn request(&mut self, method: &str, parameters: &Value) -> Value {
        loop {
            self.requests += 1;
            let id = self.requests;
            self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters }));
            let mut answer = self.next();
            while answer["id"] != id || answer["method"].is_string() {
                answer = self.next();
            }
            if answer["error"]["code"] != CONTENT_MODIFIED {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The next message: headers, an empty line, and as many bytes as a header says.
fn receive(output: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        output.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", bytes)) => length = bytes.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut content = vec![0; length];
    output.read_exact(&mut content).ok()?;
    serde_json::from_slice(&content).ok()
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// What a hover says, without the types that generics have in a call: these depend on whether the sources of `core` are installed.
fn hover(answer: &Value) -> String {
    let text = answer["contents"]["value"].as_str().unwrap_or("nothing");
    let parts = text.split("\n---\n").map(str::trim).filter(|part| !part.contains("` = `"));
    parts.collect::<Vec<_>>().join("\n\n")
}

/// The lines that a definition is at, with their files in the workspace.
fn definition(answer: &Value) -> String {
    let mut lines = String::new();
    for location in answer.as_array().into_iter().flatten() {
        let path = location["uri"].as_str().and_then(|uri| uri.strip_prefix("file://")).expect("a file");
        let text = std::fs::read_to_string(path).expect("its text");
        let line = location["range"]["start"]["line"].as_u64().expect("a line") as usize;
        let line = text.lines().nth(line).expect("a line of the file").trim();
        let path = Path::new(path).strip_prefix(workspace()).expect("a file of the workspace");
        writeln!(lines, "{}: {line}", path.display()).expect("a string grows");
    }
    lines
}

#[test]
fn editors_show_kernels_and_what_they_import() {
    let version = Command::new("rust-analyzer").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        eprintln!("rust-analyzer is not installed: `rustup component add rust-analyzer`");
        return;
    }
    let _one = fuse_tests::alone();
    let folder = versioned_folder();
    let mut server = Server::start(&folder);
    let mut record = String::new();
    for (file, piece, name) in NAMES {
        let path = folder.join("src").join(file);
        let text = std::fs::read_to_string(&path).expect("a file of the crate");
        let at = text.find(piece).expect("a piece of it") + piece.find(name).expect("a name");
        let (line, begin) =
            (text[..at].matches('\n').count(), text[..at].rfind('\n').map_or(0, |end| end + 1));
        let position = json!({ "line": line, "character": at - begin });
        let parameters = json!({ "textDocument": { "uri": uri(&path) }, "position": position });
        let hover = hover(&server.request("textDocument/hover", &parameters));
        let definition = definition(&server.request("textDocument/definition", &parameters));
        write!(record, "==== {file}: `{name}` in `{piece}`\n{hover}\n\n-> {definition}\n")
            .expect("a string grows");
    }
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("external/editor.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&recorded, &record).expect("the record is written");
    }
    let expected = std::fs::read_to_string(&recorded).expect("a record");
    let differs = |entry: &&str| !expected.contains(*entry);
    let differences: Vec<&str> = record.split("==== ").filter(differs).collect();
    assert!(record == expected, "UPDATE_EXPECT=1 writes down what differs:\n{}", differences.concat());
}

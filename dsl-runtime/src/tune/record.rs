//! A choice as it is kept in files.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};

/// Counts up when a reader of an older file would misread it.
const FORMAT: u32 = 1;

/// What a file of a choice starts with, of any format.
const MARK: &str = "{\n  \"format\": ";

/// How long a partial file may be there: beyond that the process that wrote it has ended.
const PARTIAL_LIFETIME: Duration = Duration::from_secs(3600);

/// One choice, and everything it depends on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct TuningRecord {
    format: u32,
    /// With the path of its module.
    pub(super) kernel: String,
    pub(super) key: Vec<i128>,
    pub(super) place: Place,
    /// The version of this crate.
    runtime: String,
    /// The label of the variant.
    pub(super) chosen: String,
    /// In the order declared.
    pub(super) candidates: Vec<Candidate>,
}

/// What the time of a kernel depends on besides its code and arguments.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) device: String,
    /// 90 for 9.0; a CPU has none.
    pub(super) capability: Option<u32>,
    /// The CUDA version of the driver, 12080 for 12.8; a CPU has none.
    pub(super) driver: Option<i32>,
}

/// A variant that could have been chosen.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Candidate {
    pub(super) label: String,
    /// Changes with the kernel's code and with the compiler.
    source: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ms: Option<f64>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

impl Candidate {
    pub(super) fn new(variant: &Variant) -> Candidate {
        Candidate { label: variant.label.to_string(), source: variant.source, ms: None, note: None }
    }
}

impl TuningRecord {
    pub(super) fn new(
        kernel: &Kernel,
        key: &[i128],
        place: Place,
        candidates: Vec<Candidate>,
    ) -> TuningRecord {
        TuningRecord {
            format: FORMAT,
            kernel: format!("{}::{}", kernel.module, kernel.name),
            key: key.to_vec(),
            place,
            runtime: env!("CARGO_PKG_VERSION").to_string(),
            chosen: String::new(),
            candidates,
        }
    }

    /// The same with this choice.
    pub(super) fn choosing(&self, label: &str) -> TuningRecord {
        TuningRecord { chosen: label.to_string(), ..self.clone() }
    }

    /// Whether the other was made of the same code, on the same machine and for the same call.
    fn matches(&self, request: &TuningRecord) -> bool {
        let code = |record: &TuningRecord| {
            record.candidates.iter().map(|one| (one.label.clone(), one.source)).collect::<Vec<_>>()
        };
        self.format == FORMAT
            && self.runtime == request.runtime
            && self.place == request.place
            && self.is_same_call(request)
            && code(self) == code(request)
            && self.candidates.iter().any(|one| one.label == self.chosen)
    }

    fn is_same_call(&self, request: &TuningRecord) -> bool {
        (&self.kernel, &self.key) == (&request.kernel, &request.key)
    }

    /// Whether it may stand in for a measurement in a program it ships with. The code may have changed since: what was
    /// the fastest still is one of the variants, and a good guess.
    fn applies_to(&self, request: &TuningRecord) -> bool {
        self.format == FORMAT
            && self.is_same_call(request)
            && self.place.device == request.place.device
            && request.candidates.iter().any(|one| one.label == self.chosen)
    }

    /// Whether a file has room for one of the two.
    fn replaces(&self, other: &TuningRecord) -> bool {
        let labels =
            |record: &TuningRecord| record.candidates.iter().map(|one| one.label.clone()).collect::<Vec<_>>();
        self.is_same_call(other) && self.place.device == other.place.device && labels(self) == labels(other)
    }

    /// The name of its file: by everything that must be the same.
    fn file_name(&self) -> String {
        let candidates: Vec<_> = self.candidates.iter().map(|one| (&one.label, one.source)).collect();
        let identity = format!("{:?}", (&self.kernel, &self.key, &self.place, &self.runtime, candidates));
        let plain = self.kernel.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
        format!("{plain}.{:016x}.json", xxhash_rust::xxh3::xxh3_64(identity.as_bytes()))
    }
}

/// Choices that ship with a crate.
pub(super) struct Shipped(Vec<TuningRecord>);

impl Shipped {
    /// Reads them; the error says what is wrong with the file.
    pub(super) fn parse(text: &str) -> Result<Shipped, String> {
        if text.trim().is_empty() {
            return Ok(Shipped(Vec::new()));
        }
        serde_json::from_str(text).map(Shipped).map_err(|error| error.to_string())
    }

    /// The record that applies to a request.
    pub(super) fn find(&self, request: &TuningRecord) -> Option<&TuningRecord> {
        self.0.iter().find(|record| record.applies_to(request))
    }
}

/// A folder of choices: one file each, so that processes that tune at once do not lose each other's.
#[derive(Clone, Debug)]
pub(super) struct Folder(pub(super) PathBuf);

/// Tells files that one process writes at once apart.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

impl Folder {
    /// The choice that matches a request. A file that cannot be read is none; the error says what is wrong with it.
    pub(super) fn get(&self, request: &TuningRecord) -> Result<Option<TuningRecord>, String> {
        let path = self.0.join(request.file_name());
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let record: TuningRecord =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(record.matches(request).then_some(record))
    }

    /// Keeps a choice: the file is there whole or not at all.
    pub(super) fn put(&self, record: &TuningRecord) -> Result<(), String> {
        self.sweep();
        write_whole(&self.0.join(record.file_name()), record).map_err(|error| error.to_string())
    }

    /// Removes partial files of processes that were ended.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|modified| modified.elapsed().ok());
            if is_partial(&entry.path()) && age.is_some_and(|age| age > PARTIAL_LIFETIME) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Takes all choices out, and no other file; gives how many there were.
    pub(super) fn clear(&self) -> Result<usize> {
        let failed = |error: std::io::Error| Error::File { path: self.0.clone(), reason: error.to_string() };
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed(error)),
        };
        let mut removed = 0;
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if is_choice(&path) {
                fs::remove_file(&path).map_err(failed)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Whether a file is that of a choice, by its name and its first bytes; it may be cut off.
fn is_choice(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let hash = name.strip_suffix(".json").and_then(|stem| stem.rsplit('.').next()).unwrap_or_default();
    if hash.len() != 16 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return false;
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MARK.len() as u64).read_to_end(&mut start));
    read.is_ok() && MARK.as_bytes().starts_with(&start)
}

/// The name of a file that is not written to its end yet.
fn partial_name() -> String {
    format!(".{}.{}.partial", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed))
}

/// Whether [`partial_name`] gave a file its name, in any process.
fn is_partial(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let numbers = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
    let parts = numbers.and_then(|numbers| numbers.split_once('.'));
    parts.is_some_and(|(process, number)| process.parse::<u32>().is_ok() && number.parse::<u64>().is_ok())
}

/// Adds choices to a file of them, each in the place of the one it replaces.
pub(super) fn export(path: &Path, records: &[TuningRecord]) -> Result<()> {
    let mut all: Vec<TuningRecord> = match fs::read_to_string(path) {
        Ok(text) => {
            Shipped::parse(&text).map_err(|reason| Error::File { path: path.to_path_buf(), reason })?.0
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::File { path: path.to_path_buf(), reason: error.to_string() }),
    };
    for record in records {
        all.retain(|other| !record.replaces(other));
        all.push(record.clone());
    }
    all.sort_by(|one, other| {
        (&one.kernel, &one.place.device, &one.key).cmp(&(&other.kernel, &other.place.device, &other.key))
    });
    write_whole(path, &all)
}

fn write_whole(path: &Path, content: &impl Serialize) -> Result<()> {
    let attempt = || -> std::io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let partial = folder.join(partial_name());
        let written = fs::write(&partial, serde_json::to_string_pretty(content)? + "\n");
        // A full disk leaves a part of it.
        written.and_then(|()| fs::rename(&partial, path)).inspect_err(|_| _ = fs::remove_file(&partial))
    };
    attempt().map_err(|error| Error::File { path: path.to_path_buf(), reason: error.to_string() })
}

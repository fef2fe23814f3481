//! ptxas, where the build machine has it: machine code that loads without the driver's JIT compiler, and a report of
//! each kernel's resources.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::Signal;
use nix::unistd::getpid;
use serde::{Deserialize, Serialize};

use super::compress::Deflated;
use super::nvptx::Arch;
use super::{environment, sandbox};

/// The resources of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resources {
    pub entry: String,
    pub registers: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    pub stack_bytes: u32,
    pub static_shared_bytes: u32,
}

/// A module assembled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cubin {
    pub image: Deflated,
    pub resources: Vec<Resources>,
    /// Warnings about code that could not run as written, such as serialized wgmma (C75xx).
    pub remarks: Vec<String>,
}

/// The outcome of the search for an assembler.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Search {
    pub found: Option<PathBuf>,
    /// Whether it depends on the search path.
    pub used_path: bool,
}

/// Searches for the assembler as these variables say: `FUSE_PTXAS` (`none` for none), then `CUDA_HOME` and `CUDA_PATH`, then the
/// search path. The error says that there is no program where `FUSE_PTXAS` names one.
pub fn find(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Search, String> {
    let search_path = variable("PATH").unwrap_or_default();
    let on_path = |name: &OsStr| {
        let mut candidates = std::env::split_paths(&search_path).map(|directory| directory.join(name));
        candidates.find(|candidate| candidate.is_file())
    };
    if let Some(chosen) = variable("FUSE_PTXAS") {
        if chosen.is_empty() || chosen == "none" {
            return Ok(Search::default());
        }
        let used_path = Path::new(&chosen).components().count() == 1;
        let found = if used_path { on_path(&chosen) } else { Some(PathBuf::from(&chosen)) };
        let found = found.filter(|path| path.is_file()).ok_or_else(|| {
            let chosen = chosen.display();
            format!("FUSE_PTXAS is `{chosen}`, which is not a file: expected the path of NVIDIA's `ptxas`, or none")
        })?;
        return Ok(Search { found: Some(found), used_path });
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable);
    let at_home = homes.map(|home| Path::new(&home).join("bin/ptxas")).find(|candidate| candidate.is_file());
    let used_path = at_home.is_none();
    Ok(Search { found: at_home.or_else(|| on_path("ptxas".as_ref())), used_path })
}

/// Identifies an assembler among those that may take its place: what results depend on.
pub fn identity(ptxas: &Path) -> String {
    let metadata = std::fs::metadata(ptxas).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    format!("{} {:?} {modified:?}", ptxas.display(), metadata.map(|metadata| metadata.len()))
}

/// An assembly that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssemblyError {
    pub what: String,
    /// What the user can do, where the machine is at fault and not the compiler.
    pub cure: Option<&'static str>,
}

/// The cure of an assembler that is none, or another version than the PTX asks for.
const CHOOSE: &str = "set FUSE_PTXAS to the `ptxas` of CUDA 12 or later, or to `none` to build without it";

/// Messages of a `ptxas` that is older than the PTX.
const TOO_OLD: [&str; 2] = ["Unsupported .version", "is not defined for option 'gpu-name'"];

impl AssemblyError {
    fn of_file(path: &Path, error: &io::Error) -> AssemblyError {
        AssemblyError { what: format!("{}: {error}", path.display()), cure: environment::cure_of(error) }
    }
}

/// A file that is removed with the value.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A directory for files in between, which is removed with the value: a process that is ended leaves its files there.
pub struct WorkDirectory(PathBuf);

impl WorkDirectory {
    /// A directory of its own in another one; it is made when a file needs it.
    pub fn inside(parent: &Path) -> WorkDirectory {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        WorkDirectory(parent.join(format!("{}.{number}", std::process::id())))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Assembles PTX for the architecture it was written for; `work` is a directory for files in between.
pub fn assemble(ptxas: &Path, arch: Arch, ptx: &str, work: &Path) -> Result<Cubin, AssemblyError> {
    std::fs::create_dir_all(work).map_err(|error| AssemblyError::of_file(work, &error))?;
    let unique = format!("{}-{:x}", std::process::id(), xxhash_rust::xxh3::xxh3_64(ptx.as_bytes()));
    let file = |extension: &str| TemporaryFile(work.join(format!("{unique}.{extension}")));
    let (source, image) = (file("ptx"), file("cubin"));
    std::fs::write(&source.0, ptx).map_err(|error| AssemblyError::of_file(&source.0, &error))?;
    let mut command = Command::new(ptxas);
    command.arg(format!("-arch={}", arch.name())).args(["-v", "-o"]).arg(&image.0).arg(&source.0);
    let parent = getpid();
    // SAFETY: it makes two system calls, both of which are safe between a fork and an exec.
    unsafe { command.pre_exec(move || Ok(sandbox::end_with(parent)?)) };
    let output = command.output().map_err(|error| AssemblyError {
        what: format!("{} cannot be run: {error}", ptxas.display()),
        cure: Some(environment::cure_of(&error).unwrap_or(CHOOSE)),
    })?;
    let report =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(failed(ptxas, arch, output.status, report.trim()));
    }
    let image = std::fs::read(&image.0).map_err(|error| AssemblyError {
        what: format!("{} left no image: {error}", ptxas.display()),
        cure: Some(CHOOSE),
    })?;
    Ok(Cubin { image: Deflated::new(&image), resources: parse(&report), remarks: remarks(&report) })
}

/// The error of an assembler that ended with a failure.
fn failed(ptxas: &Path, arch: Arch, status: ExitStatus, report: &str) -> AssemblyError {
    let (name, ptxas) = (arch.name(), ptxas.display());
    if status.signal() == Some(Signal::SIGKILL as i32) {
        let what = format!("{ptxas} was ended by SIGKILL, as the system does where memory runs out");
        return AssemblyError { what, cure: Some(environment::FREE_MEMORY) };
    }
    if report.is_empty() {
        return AssemblyError {
            what: format!("{ptxas} ended with {status} and no message"),
            cure: Some(CHOOSE),
        };
    }
    let cure = TOO_OLD.iter().any(|words| report.contains(words)).then_some(CHOOSE);
    AssemblyError { what: format!("ptxas rejects the PTX for {name}: {report}"), cure }
}

fn remarks(report: &str) -> Vec<String> {
    report.lines().filter(|line| line.contains("C75")).map(|line| line.trim().to_string()).collect()
}

/// Reads `ptxas -v`: an entry's lines follow `Compiling entry function 'name'`.
fn parse(report: &str) -> Vec<Resources> {
    let mut list: Vec<Resources> = vec![];
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or_default().to_string();
            list.push(Resources {
                entry,
                registers: 0,
                spill_store_bytes: 0,
                spill_load_bytes: 0,
                stack_bytes: 0,
                static_shared_bytes: 0,
            });
        }
        let Some(current) = list.last_mut() else { continue };
        let before = |words: &str| number_before(line, words);
        current.stack_bytes = before(" bytes stack frame").unwrap_or(current.stack_bytes);
        current.spill_store_bytes = before(" bytes spill stores").unwrap_or(current.spill_store_bytes);
        current.spill_load_bytes = before(" bytes spill loads").unwrap_or(current.spill_load_bytes);
        current.registers = before(" registers").unwrap_or(current.registers);
        current.static_shared_bytes = before(" bytes smem").unwrap_or(current.static_shared_bytes);
    }
    list
}

fn number_before(line: &str, words: &str) -> Option<u32> {
    let (before, _) = line.split_once(words)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

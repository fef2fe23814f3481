//! ptxas, where the build machine has it: machine code that loads without the driver's JIT compiler, and a report of
//! each kernel's resources.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::compress::Deflated;
use super::nvptx::Arch;

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

/// The assembler to use: `FUSE_PTXAS` (`none` for none), then `CUDA_HOME`, then the search path.
pub fn find() -> Option<PathBuf> {
    if let Ok(chosen) = std::env::var("FUSE_PTXAS") {
        return (chosen != "none" && !chosen.is_empty()).then(|| PathBuf::from(chosen));
    }
    let home = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let homes = home.map(|home| Path::new(&home).join("bin/ptxas"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("ptxas")).collect::<Vec<_>>();
    homes.chain(on_path).find(|candidate| candidate.is_file())
}

/// Identifies an assembler among those that may take its place: what results depend on.
pub fn identity(ptxas: &Path) -> String {
    let metadata = std::fs::metadata(ptxas).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    format!("{} {:?} {modified:?}", ptxas.display(), metadata.map(|metadata| metadata.len()))
}

/// Assembles PTX for the architecture it was written for.
pub fn assemble(ptxas: &Path, arch: Arch, ptx: &str, work: &Path) -> Result<Cubin, String> {
    let unique = format!("{}-{:x}", std::process::id(), xxhash_rust::xxh3::xxh3_64(ptx.as_bytes()));
    let (source, image) = (work.join(format!("{unique}.ptx")), work.join(format!("{unique}.cubin")));
    std::fs::write(&source, ptx).map_err(|error| format!("{}: {error}", source.display()))?;
    let output = Command::new(ptxas)
        .arg(format!("-arch={}", arch.name()))
        .args(["-v", "-o"])
        .arg(&image)
        .arg(&source)
        .output()
        .map_err(|error| format!("{}: {error}", ptxas.display()))?;
    let report =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let bytes = std::fs::read(&image);
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&image));
    if !output.status.success() {
        return Err(format!("ptxas rejects the PTX for {}: {}", arch.name(), report.trim()));
    }
    let image = bytes.map_err(|error| format!("ptxas left no image: {error}"))?;
    Ok(Cubin { image: Deflated::new(&image), resources: parse(&report), remarks: remarks(&report) })
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

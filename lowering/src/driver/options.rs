//! What the environment of a build says. Every variable that changes a result is named in [`VARIABLES`], which the
//! expansion mentions so that cargo expands again when one changes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::host_asm::{CpuLevel, Family, HostTarget};
use crate::backend::inject::Injection;
use crate::backend::nvptx::Arch;
use crate::backend::ptxas;
use crate::backend::ptxas::Search;
use crate::backend::sandbox;
use crate::driver::pipeline::DisabledPasses;

/// The variables that the result of an expansion depends on.
pub const VARIABLES: &[&str] = &[
    "FUSE_ARCH",
    "FUSE_CPU_LEVELS",
    "FUSE_PTXAS",
    "FUSE_BOUNDS_REPORT",
    "FUSE_DEFLATE",
    "CUDA_HOME",
    "CUDA_PATH",
    "FUSE_DUMP",
    "FUSE_PASSES",
    "FUSE_DUMP_DIR",
    "FUSE_INJECT",
];

/// A stage whose text `FUSE_DUMP` can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpStage {
    Tile,
    Layout,
    Schedule,
    Mlir,
    Llvm,
    Ptx,
    Asm,
}

impl DumpStage {
    pub const ALL: [DumpStage; 7] = [
        DumpStage::Tile,
        DumpStage::Layout,
        DumpStage::Schedule,
        DumpStage::Mlir,
        DumpStage::Llvm,
        DumpStage::Ptx,
        DumpStage::Asm,
    ];

    pub fn name(self) -> &'static str {
        match self {
            DumpStage::Tile => "tile",
            DumpStage::Layout => "layout",
            DumpStage::Schedule => "schedule",
            DumpStage::Mlir => "mlir",
            DumpStage::Llvm => "llvm",
            DumpStage::Ptx => "ptx",
            DumpStage::Asm => "asm",
        }
    }
}

/// How much of the work to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Everything: the code will be linked.
    Full,
    /// Every error a user can make, and no code: `cargo check`, `cargo doc`, the search for doctests.
    Check,
    /// Nothing but the signature: a language server expands on every keystroke.
    Signature,
}

/// The options of one build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    pub effort: Effort,
    pub archs: Vec<Arch>,
    /// The CPUs that the crate is built for, if kernels can run on their family.
    pub host: Option<HostTarget>,
    pub ptxas: Option<PathBuf>,
    /// Whether the search path decides which assembler is taken, or that there is none.
    pub uses_path: bool,
    /// Whether an access outside its slice is reported when it happens: in debug builds, or as `FUSE_BOUNDS_REPORT` says.
    pub report: bool,
    /// Whether programs embed GPU code deflated, unless `FUSE_DEFLATE` is 0: a package that is compressed as a whole gets
    /// smaller without.
    pub deflate: bool,
    /// Optional passes that `FUSE_PASSES` leaves out.
    pub disabled_passes: DisabledPasses,
    pub dump: Vec<DumpStage>,
    pub dump_dir: PathBuf,
    /// Where artifacts are cached between builds.
    pub cache_dir: Option<PathBuf>,
    /// Distinguishes this crate's symbols from those of others: its name, and cargo's hash of the package and target.
    pub crate_name: String,
    /// How long the lowering of a kernel may take before it counts as hung.
    pub limit: Duration,
    /// A failure on purpose, to test that failures are contained.
    pub inject: Option<Injection>,
}

impl BuildOptions {
    /// Reads the environment and the command line of the rustc that runs the macro; the error names a variable that
    /// cannot be understood.
    pub fn from_environment() -> Result<BuildOptions, String> {
        let args: Vec<String> = std::env::args().collect();
        let variable = |name: &str| std::env::var_os(name);
        let options = BuildOptions::read(&args, &variable)?;
        let search = if options.archs.is_empty() { Search::default() } else { ptxas::find(&variable)? };
        let uses_path = search.used_path && options.effort == Effort::Full;
        Ok(BuildOptions { ptxas: search.found, uses_path, ..options })
    }

    /// What a command line of rustc and the variables say; no assembler.
    pub fn read(
        args: &[String],
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<BuildOptions, String> {
        let value_of = |flag| value_of(args, flag);
        let text = |name: &str| {
            variable(name).map(|value| value.to_string_lossy().trim().to_string()).unwrap_or_default()
        };
        let out_dir = value_of("--out-dir").map(PathBuf::from);
        let target_dir = out_dir.as_ref().and_then(|dir| Some(dir.parent()?.to_path_buf()));
        let effort = effort(args, variable);
        let triple = value_of("--target").unwrap_or_else(|| format!("{}-", std::env::consts::ARCH));
        let dump_dir = variable("FUSE_DUMP_DIR").map(PathBuf::from);
        let temporary = std::env::temp_dir().join("fuse-dump");
        let beside_target = target_dir.as_ref().map(|dir| dir.join("fuse-dump"));
        Ok(BuildOptions {
            effort,
            archs: archs(&text("FUSE_ARCH"))?,
            host: host(&triple, &text("FUSE_CPU_LEVELS"))?,
            ptxas: None,
            uses_path: false,
            report: switch("FUSE_BOUNDS_REPORT", &text)?.unwrap_or_else(|| debug_assertions(args)),
            deflate: switch("FUSE_DEFLATE", &text)?.unwrap_or(true),
            disabled_passes: DisabledPasses::parse(&text("FUSE_PASSES"))
                .map_err(|what| format!("FUSE_PASSES: {what}"))?,
            dump: stages(&text("FUSE_DUMP"))?,
            dump_dir: dump_dir.or(beside_target).unwrap_or(temporary),
            cache_dir: target_dir.map(|dir| dir.join("fuse-cache")),
            crate_name: crate_name(args),
            limit: sandbox::LIMIT,
            inject: injection(&text("FUSE_INJECT"))?,
        })
    }
}

/// The value of a flag on a command line, behind `=` or as the next argument.
fn value_of(args: &[String], flag: &str) -> Option<String> {
    let joined = args.iter().find_map(|arg| arg.strip_prefix(&format!("{flag}=")).map(str::to_string));
    joined.or_else(|| args.iter().position(|arg| arg == flag).and_then(|at| args.get(at + 1).cloned()))
}

/// Returns the name of the crate and its `-C metadata`: a library and a program of one package have one name.
fn crate_name(args: &[String]) -> String {
    let name = value_of(args, "--crate-name").unwrap_or_else(|| "crate".into());
    let metadata = args.iter().find_map(|arg| arg.trim_start_matches("-C").strip_prefix("metadata="));
    name + metadata.unwrap_or_default()
}

/// What whoever runs the macro wants of it.
fn effort(args: &[String], variable: &dyn Fn(&str) -> Option<OsString>) -> Effort {
    let documents = args.first().is_some_and(|name| Path::new(name).file_stem() == Some("rustdoc".as_ref()));
    let links =
        value_of(args, "--emit").is_none_or(|kinds| kinds.split(',').any(|kind| kind.starts_with("link")));
    if variable("RUST_ANALYZER_INTERNALS_DO_NOT_USE").is_some() {
        Effort::Signature
    } else if links && !documents {
        Effort::Full
    } else {
        Effort::Check
    }
}

/// `FUSE_CPU_LEVELS=v3,v4`, levels of the family that `triple` names; empty for all of them, `native` for that of this machine.
fn host(triple: &str, text: &str) -> Result<Option<HostTarget>, String> {
    let Some(family) = family(triple) else { return Ok(None) };
    let known = family.levels();
    let named = match text {
        "" => known.to_vec(),
        "native" if self::family(std::env::consts::ARCH) == Some(family) => vec![CpuLevel::of_this_machine()],
        "native" => {
            return Err(format!(
                "FUSE_CPU_LEVELS is `native`, and the crate is built for another CPU, `{triple}`"
            ));
        }
        _ => text.split(',').map(|name| level(name.trim(), known)).collect::<Result<_, _>>()?,
    };
    let levels = known.iter().copied().filter(|level| named.contains(level)).collect();
    Ok(Some(HostTarget { family, levels }))
}

fn level(name: &str, known: &[CpuLevel]) -> Result<CpuLevel, String> {
    known.iter().copied().find(|level| level.name() == name).ok_or_else(|| {
        let known = tile_ir::support::diagnostic::list(known.iter().map(|level| level.name()));
        format!("FUSE_CPU_LEVELS names `{name}`: levels are {known}, or native")
    })
}

fn family(triple: &str) -> Option<Family> {
    if triple.starts_with("x86_64") {
        Some(Family::X86_64)
    } else if triple.starts_with("aarch64") {
        Some(Family::AArch64)
    } else {
        None
    }
}

/// `FUSE_DEFLATE=1` or `0`; nothing if it is empty.
fn switch(name: &str, text: &dyn Fn(&str) -> String) -> Result<Option<bool>, String> {
    match text(name).as_str() {
        "" => Ok(None),
        "0" => Ok(Some(false)),
        "1" => Ok(Some(true)),
        other => Err(format!("{name} is `{other}`: expected 0 or 1")),
    }
}

/// Whether a rustc with these arguments sets `cfg(debug_assertions)`: as an option says, else where it does not
/// optimize.
pub fn debug_assertions(args: &[String]) -> bool {
    let mut explicit = None;
    let mut optimized = false;
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        let option = match arg {
            "-O" => {
                optimized = true;
                continue;
            }
            "-C" | "--codegen" => rest.next(),
            _ => arg.strip_prefix("--codegen=").or_else(|| arg.strip_prefix("-C")),
        };
        let Some(option) = option else { continue };
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "debug-assertions" => explicit = Some(matches!(value, "" | "y" | "yes" | "on" | "true")),
            "opt-level" => optimized = value != "0",
            _ => {}
        }
    }
    explicit.unwrap_or(!optimized)
}

/// `FUSE_ARCH=sm_80,sm_90a`; empty for the default of both, `none` for no GPU code.
fn archs(text: &str) -> Result<Vec<Arch>, String> {
    match text.trim() {
        "" => return Ok(vec![Arch::SM_80, Arch::SM_90A]),
        "none" => return Ok(vec![]),
        _ => {}
    }
    let mut archs: Vec<Arch> = text
        .split(',')
        .map(|name| match name.trim() {
            "sm_80" => Ok(Arch::SM_80),
            "sm_90a" => Ok(Arch::SM_90A),
            other => Err(format!("FUSE_ARCH names `{other}`: architectures are sm_80 and sm_90a, or none")),
        })
        .collect::<Result<_, _>>()?;
    archs.sort_by_key(|arch| arch.capability);
    archs.dedup();
    Ok(archs)
}

/// `FUSE_DUMP=tile,ptx` or `all`.
fn stages(text: &str) -> Result<Vec<DumpStage>, String> {
    match text.trim() {
        "" => return Ok(vec![]),
        "all" => return Ok(DumpStage::ALL.to_vec()),
        _ => {}
    }
    text.split(',')
        .map(|name| {
            DumpStage::ALL.into_iter().find(|stage| stage.name() == name.trim()).ok_or_else(|| {
                let known = tile_ir::support::diagnostic::list(DumpStage::ALL.map(DumpStage::name));
                format!("FUSE_DUMP names `{}`: stages are {known}, or all", name.trim())
            })
        })
        .collect()
}

/// `FUSE_INJECT=abort`.
fn injection(text: &str) -> Result<Option<Injection>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = Injection::ALL.into_iter().find(|injection| injection.name() == text);
    found.map(Some).ok_or_else(|| {
        let known = tile_ir::support::diagnostic::list(Injection::ALL.map(Injection::name));
        format!("FUSE_INJECT names `{text}`: failures are {known}")
    })
}

//! What `FUSE_DUMP` asks for, and what a build says on its standard error.

use std::io::Write;
use std::path::{Path, PathBuf};

use tile_ir::frontend::typeck::Variant;
use tile_ir::ir;
use tile_ir::ir::Func;

use crate::backend::StageTexts;
use crate::backend::host_asm::{CpuLevel, StagesOf};
use crate::backend::nvptx::Arch;
use crate::driver::options::{BuildOptions, DumpStage};
use crate::gpu::specialization::Specialization;

/// The path of a dump, without an extension.
pub(super) fn dump_path(name: &str, variant: &Variant, what: &str, options: &BuildOptions) -> PathBuf {
    let label: String = variant
        .to_string()
        .replace('-', "minus_")
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ','))
        .map(|c| if c == ',' { '.' } else { c })
        .collect();
    let parts = [name, &label, what].into_iter().filter(|part| !part.is_empty());
    options.dump_dir.join(parts.collect::<Vec<_>>().join("."))
}

fn write_dump(path: &Path, text: &str) {
    let written =
        path.parent().map(std::fs::create_dir_all).transpose().and_then(|_| std::fs::write(path, text));
    if let Err(error) = written {
        print_line(&format!("FUSE_DUMP: {}: {error}", path.display()));
    }
}

pub(super) fn dump_tiles(
    func: &Func,
    specializations: &[Specialization],
    variant: &Variant,
    options: &BuildOptions,
) {
    if options.dump.contains(&DumpStage::Tile) {
        write_dump(&dump_path(&func.name, variant, "tile", options), &ir::print(func, &|_| None));
    }
    if options.dump.contains(&DumpStage::Schedule) {
        for specialization in specializations {
            let text = specialization.plan.schedule.to_string();
            let what = format!("{}.schedule", specialization.label());
            write_dump(&dump_path(&func.name, variant, &what, options), &text);
        }
    }
    if options.dump.contains(&DumpStage::Layout) {
        for specialization in specializations {
            let plan = &specialization.plan;
            let distributed = &plan.schedule.distributed;
            let layouts = |op: &ir::Op| {
                op.results.first().and_then(|result| distributed.layouts.get(result)).map(ToString::to_string)
            };
            let text = ir::print(&plan.laid_out, &layouts);
            let path = dump_path(&func.name, variant, &format!("{}.layout", specialization.label()), options);
            write_dump(&path, &text);
        }
    }
}

/// A file of a module, whose path starts with `stem`.
fn with_extension(stem: &Path, extension: &str) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(extension);
    PathBuf::from(path)
}

/// Dumps the stages that were asked for, to files that start with `stem`.
fn dump_stages(stages: &StageTexts, stem: &Path, options: &BuildOptions) {
    if options.dump.contains(&DumpStage::Mlir) {
        write_dump(&with_extension(stem, ".mlir"), &stages.mlir);
    }
    if options.dump.contains(&DumpStage::Llvm) {
        write_dump(&with_extension(stem, ".ll"), &stages.llvm);
    }
}

pub(super) fn dump_gpu(stages: &StageTexts, texts: &[(Arch, String)], stem: &Path, options: &BuildOptions) {
    dump_stages(stages, stem, options);
    if options.dump.contains(&DumpStage::Ptx) {
        for (arch, text) in texts {
            write_dump(&with_extension(stem, &format!(".{}.ptx", arch.name())), text);
        }
    }
}

pub(super) fn dump_host(
    stages: &[StagesOf],
    texts: &[(CpuLevel, String)],
    stem: &Path,
    options: &BuildOptions,
) {
    for (level, stages) in stages {
        dump_stages(stages, &with_extension(stem, &format!(".{}", level.name())), options);
    }
    if options.dump.contains(&DumpStage::Asm) {
        for (level, text) in texts {
            write_dump(&with_extension(stem, &format!(".{}.s", level.name())), text);
        }
    }
}

/// Dumps the input of a failed lowering; returns the path.
pub(super) fn save_input(func: &Func, variant: &Variant, options: &BuildOptions) -> String {
    let path = dump_path(&func.name, variant, "failed.tile", options);
    write_dump(&path, &ir::print(func, &|_| None));
    path.display().to_string()
}

/// Writes a line of `static_print` or of a failed dump to the build's output, and a child's progress to its parent.
pub(super) fn print_line(line: &str) {
    // Nothing can be done about a build that has no standard error.
    let _ = writeln!(std::io::stderr(), "{line}");
}

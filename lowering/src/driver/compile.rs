//! From a parsed kernel to the code of its variants: the stages in order, for every declared variant.

use std::io::Write;
use std::path::{Path, PathBuf};

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck;
use tile_ir::frontend::typeck::{MergedErrors, Variant};
use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::ir::pass::{NamedPass, PassRunner};
use tile_ir::support::diagnostic::{Diagnostic, Errors};
use tile_ir::transform::check_overflow::check_overflow;
use tile_ir::transform::contract_floats::contract_floats;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};
use tile_ir::transform::split_full_tiles::split_full_tiles;
use tile_ir::transform::strength_reduce::strength_reduce;
use tile_ir::transform::transpose_operands::transpose_operands;
use tile_ir::transform::unit_stride::{assume_unit_strides, unit_strides};
use tile_ir::transform::view_strides::assume_contiguous;

use crate::backend::StageTexts;
use crate::backend::cache::{ArtifactCache, CacheKey};
use crate::backend::compress::Deflated;
use crate::backend::host_asm::{CpuLevel, StagesOf};
use crate::backend::llvm;
use crate::backend::nvptx;
use crate::backend::nvptx::Arch;
use crate::backend::ptxas;
use crate::backend::ptxas::Cubin;
use crate::backend::sandbox;
use crate::backend::sandbox::Failure;
use crate::driver::artifact::{GpuModule, LoweredVariant, VariantCode, entry_name};
use crate::driver::options::{BuildOptions, DumpStage, Effort};
use crate::driver::specialize::{KernelRequests, specializations};
use crate::driver::variant_errors::{internal_error, report_spills, too_few_registers, too_many_elements};
use crate::gpu::emit::{SmemOverflow, SmemRequest};
use crate::gpu::schedule::MAX_SHARED_BYTES;
use crate::gpu::specialization::Specialization;
use crate::mlir::{Session, report};

/// Stands for a variant's host entry in cached assembly; the expansion puts a symbol of its own in its place.
pub const HOST_ENTRY: &str = "FUSE_HOST_ENTRY";

/// A variant before its code exists.
struct PreparedVariant {
    func: Func,
    specializations: Vec<Specialization>,
    host: Option<crate::cpu::emit::CpuPlan>,
    key: CacheKey,
    source: u64,
}

/// Checks and lowers every variant; what is wrong goes to `errors`.
pub fn lower_variants(
    kernel: &Kernel,
    variants: &[Variant],
    options: &BuildOptions,
    errors: &mut Errors,
) -> Option<Vec<LoweredVariant>> {
    let mut prepared = vec![];
    let mut found = MergedErrors::default();
    for variant in variants {
        match prepare(kernel, variant, options) {
            Ok(one) => prepared.push(one),
            Err(list) => found.add(variant, list),
        }
    }
    found.report(variants.len(), errors);
    if !errors.is_empty() {
        return None;
    }
    let codes = if options.effort == Effort::Check {
        prepared.iter().map(|_| VariantCode::default()).collect()
    } else {
        match codes(kernel, variants, &prepared, options) {
            Ok(codes) => codes,
            Err(diagnostic) => {
                errors.add(*diagnostic);
                return None;
            }
        }
    };
    let lowered = prepared.into_iter().zip(codes).map(|(prepared, code)| LoweredVariant {
        scratch_bytes: prepared.host.as_ref().map_or(0, crate::cpu::emit::CpuPlan::scratch_bytes),
        host_reports: prepared.host.as_ref().is_some_and(crate::cpu::emit::CpuPlan::reports),
        source: prepared.source,
        sites: prepared.func.sites,
        specializations: prepared.specializations,
        code,
    });
    let lowered: Vec<LoweredVariant> = lowered.collect();
    if kernel.options.deny_spills {
        report_spills(kernel, variants, &lowered, errors);
    }
    Some(lowered)
}

/// Checks one variant and plans its specializations: everything that can be the user's mistake.
fn prepare(kernel: &Kernel, variant: &Variant, options: &BuildOptions) -> Result<PreparedVariant, Errors> {
    let checked = typeck::check(kernel, variant)?;
    for line in &checked.prints {
        print_line(&format!("{} ({variant}): {line}", kernel.name));
    }
    let mut func = checked.func;
    func.reports = options.report && !kernel.options.unreported && !kernel.options.unchecked;
    let internal = |stage: &str, what: String| {
        let mut errors = Errors::new();
        errors.add(internal_error(kernel, variant, stage, &what));
        errors
    };
    if !options.report {
        ir::strip_debug(&mut func);
    } else if !kernel.options.unreported {
        check_overflow(&mut func);
    }
    ir::verify(&func).map_err(|what| internal("check", what))?;
    transform(&mut func, PassRunner::default())
        .map_err(|InvalidBehind { pass, what }| internal(pass, what))?;
    let disabled_passes = options.disabled_passes;
    let requests = KernelRequests { disabled_passes, ..KernelRequests::of(kernel, variant) };
    let specializations = specializations(&func, requests).map_err(|SmemOverflow(too_large)| {
        let mut errors = Errors::new();
        for SmemRequest { loc, bytes } in too_large {
            let text = format!(
                "this needs {bytes} bytes of shared memory, more than the {MAX_SHARED_BYTES} a block has"
            );
            errors.push_help(loc, text, "make the tile smaller, or use fewer warps");
        }
        errors
    })?;
    too_many_elements(&specializations)?;
    for specialization in &specializations {
        ir::verify(&specialization.plan.schedule.distributed.func)
            .map_err(|what| internal("layout", what))?;
    }
    let bounds = if kernel.options.unchecked { BoundsPolicy::Unchecked } else { BoundsPolicy::Masked };
    let host = options.host.as_ref().map(|_| host_plan(&func, bounds));
    let sites = report::sites(&func);
    // Variants may have the same tile IR: the names of the entries count too.
    let assembler = options.ptxas.as_deref().map(ptxas::identity);
    let targets = format!("{:?} {:?} {assembler:?} {requests:?}", options.archs, options.host);
    let text = ir::print(&func, &|_| None);
    let key = CacheKey::of(&[&text, &variant.to_string(), &sites, &targets]);
    let source = CacheKey::of(&[&text, &format!("{requests:?}")]).short();
    dump_tiles(&func, &specializations, variant, options);
    Ok(PreparedVariant { func, specializations, host, key, source })
}

/// What all specializations and the CPU share, in this order.
const SHARED_PASSES: [NamedPass<Func>; 3] = [
    ("strength_reduce", strength_reduce),
    ("split_full_tiles", split_full_tiles),
    ("contract_floats", contract_floats),
];

/// The pass behind which a function is not valid, and why.
#[derive(Debug)]
pub struct InvalidBehind {
    pub pass: &'static str,
    pub what: String,
}

/// Runs the passes that all specializations and the CPU share.
pub fn transform(func: &mut Func, runner: PassRunner) -> Result<(), InvalidBehind> {
    SHARED_PASSES.into_iter().try_for_each(|(pass, run)| {
        runner.run(pass, func, run);
        ir::verify(func).map_err(|what| InvalidBehind { pass, what })
    })
}

/// A CPU plan of a kernel, and versions of it for contiguous elements where there are views, or pointers with strides.
/// Views that are operands of dots may be contiguous along either axis.
pub fn host_plan(func: &Func, bounds: BoundsPolicy) -> crate::cpu::emit::CpuPlan {
    let mut general = func.clone();
    legalize_index(&mut general, bounds);
    let mut plan = crate::cpu::emit::CpuPlan::new(general);
    let first = unit_strides(func, BoundsPolicy::Masked).into_iter().next().unwrap_or_default();
    for mut unit in std::iter::once(func.clone()).chain(transpose_operands(func)) {
        let mut strides = assume_contiguous(&mut unit);
        strides.extend(assume_unit_strides(&mut unit, &first));
        if !strides.is_empty() {
            legalize_index(&mut unit, bounds);
            plan = plan.with_specialized(&strides, unit);
        }
    }
    plan
}

/// The code of every variant, from the cache or from child processes that lower what is missing, as many at once as
/// there are CPUs.
fn codes(
    kernel: &Kernel,
    variants: &[Variant],
    prepared: &[PreparedVariant],
    options: &BuildOptions,
) -> Result<Vec<VariantCode>, Box<Diagnostic>> {
    let cache = ArtifactCache::at(options.cache_dir.clone());
    let fresh = !options.dump.is_empty() || options.inject.is_some();
    let mut codes: Vec<Option<VariantCode>> =
        prepared.iter().map(|one| if fresh { None } else { cache.get(one.key) }).collect();
    let missing: Vec<usize> = (0..prepared.len()).filter(|&i| codes[i].is_none()).collect();
    if missing.is_empty() {
        return Ok(codes.into_iter().flatten().collect());
    }
    let session = Session::new();
    llvm::initialize();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
    let share = |worker: usize| missing.iter().copied().skip(worker).step_by(workers).collect::<Vec<usize>>();
    let fail = |index: usize, failure: &Failure| {
        lowering_error(
            kernel,
            &variants[index],
            failure,
            &save_input(&prepared[index], &variants[index], options),
        )
    };
    let mut children = vec![];
    for worker in 0..workers {
        let own = share(worker);
        let first = own[0];
        let job = || {
            own.iter()
                .map(|&index| lower(&session, kernel, &variants[index], &prepared[index], options))
                .collect()
        };
        let child = sandbox::start::<Vec<VariantCode>>(job).map_err(|failure| fail(first, &failure))?;
        children.push((share(worker), child));
    }
    for (own, child) in children {
        let lowered: Vec<VariantCode> = child
            .finish(options.limit)
            .map_err(|failure| fail(failed_variant(variants, &own, &failure), &failure))?;
        for (index, code) in own.into_iter().zip(lowered) {
            cache.put(prepared[index].key, &code);
            codes[index] = Some(code);
        }
    }
    Ok(codes.into_iter().flatten().collect())
}

/// What a child's failure at a variant is to the user; `input` is where its tile IR was saved.
fn lowering_error(kernel: &Kernel, variant: &Variant, failure: &Failure, input: &str) -> Box<Diagnostic> {
    let stage = failure.output.lines().rev().find_map(|line| line.strip_prefix(STAGE)).unwrap_or("lowering");
    let reported = |line: &&str| line.starts_with(STAGE) || line.starts_with(VARIANT);
    let output: String =
        failure.output.lines().filter(|line| !reported(line)).map(|line| format!("{line}\n")).collect();
    let what = format!("{}\n{output}the tile IR is in {input}", failure.what);
    let too_few = too_few_registers(kernel, variant, &failure.what);
    Box::new(too_few.unwrap_or_else(|| internal_error(kernel, variant, stage, &what)))
}

/// The variant at which a child failed, of those that it was to lower: the last one that it reported.
fn failed_variant(variants: &[Variant], own: &[usize], failure: &Failure) -> usize {
    let reported = failure.output.lines().rev().find_map(|line| line.strip_prefix(VARIANT));
    let index = own.iter().copied().find(|&index| Some(variants[index].to_string().as_str()) == reported);
    index.unwrap_or(own[0])
}

/// Lines with which a child reports its progress, should it not live to return.
const STAGE: &str = "fuse stage: ";
const VARIANT: &str = "fuse variant: ";

/// Lowers one variant; runs in a child.
fn lower(
    session: &Session,
    kernel: &Kernel,
    variant: &Variant,
    prepared: &PreparedVariant,
    options: &BuildOptions,
) -> Result<VariantCode, String> {
    print_line(&format!("{VARIANT}{variant}"));
    let mut code = VariantCode::default();
    let wants_stages = options.dump.iter().any(|stage| matches!(stage, DumpStage::Mlir | DumpStage::Llvm));
    if !options.archs.is_empty() {
        print_line(&format!("{STAGE}PTX"));
        if let Some(injection) = options.inject {
            injection.strike()?;
        }
        for (index, specialization) in prepared.specializations.iter().enumerate() {
            let entry = entry_name(kernel, variant, specialization);
            let mut stages = StageTexts::default();
            let archs: Vec<Arch> = options
                .archs
                .iter()
                .copied()
                .filter(|arch| specialization.gpus.include(arch.capability))
                .collect();
            if archs.is_empty() {
                continue;
            }
            let texts = nvptx::emit(
                session,
                &[(entry, specialization)],
                &archs,
                wants_stages.then_some(&mut stages),
            )?;
            let stem = dump_path(&kernel.name.to_string(), variant, &specialization.label(), options);
            dump_gpu(&stages, &texts, &stem, options);
            for (arch, ptx) in texts {
                print_line(&format!("{STAGE}ptxas"));
                let work = options.cache_dir.clone().unwrap_or_else(std::env::temp_dir);
                let cubin =
                    options.ptxas.as_ref().map(|path| assemble(path, arch, &ptx, &work)).transpose()?;
                let (Arch { capability, exact }, ptx) = (arch, Deflated::new(ptx.as_bytes()));
                code.modules.push(GpuModule { capability, exact, specialization: index, ptx, cubin });
            }
            print_line(&format!("{STAGE}PTX"));
        }
        // By architecture, and in the order of the specializations.
        code.modules.sort_by_key(|module| (module.capability, module.exact));
    }
    if let (Some(target), Some(plan)) = (&options.host, &prepared.host) {
        print_line(&format!("{STAGE}host assembly"));
        let mut stages = vec![];
        let texts = target.emit(session, plan, HOST_ENTRY, wants_stages.then_some(&mut stages))?;
        let stem = dump_path(&kernel.name.to_string(), variant, "host", options);
        dump_host(&stages, &texts, &stem, options);
        code.hosts = texts.into_iter().map(|(level, text)| (level.name().to_string(), text)).collect();
    }
    Ok(code)
}

fn assemble(ptxas: &Path, arch: Arch, ptx: &str, work: &Path) -> Result<Cubin, String> {
    std::fs::create_dir_all(work).map_err(|error| format!("{}: {error}", work.display()))?;
    ptxas::assemble(ptxas, arch, ptx, work)
}

// ---- dumps

fn dump_path(name: &str, variant: &Variant, what: &str, options: &BuildOptions) -> PathBuf {
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

fn dump_tiles(func: &Func, specializations: &[Specialization], variant: &Variant, options: &BuildOptions) {
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

fn dump_gpu(stages: &StageTexts, texts: &[(Arch, String)], stem: &Path, options: &BuildOptions) {
    dump_stages(stages, stem, options);
    if options.dump.contains(&DumpStage::Ptx) {
        for (arch, text) in texts {
            write_dump(&with_extension(stem, &format!(".{}.ptx", arch.name())), text);
        }
    }
}

fn dump_host(stages: &[StagesOf], texts: &[(CpuLevel, String)], stem: &Path, options: &BuildOptions) {
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
fn save_input(prepared: &PreparedVariant, variant: &Variant, options: &BuildOptions) -> String {
    let path = dump_path(&prepared.func.name, variant, "failed.tile", options);
    write_dump(&path, &ir::print(&prepared.func, &|_| None));
    path.display().to_string()
}

/// Writes a line of `static_print` or of a failed dump to the build's output, and a child's progress to its parent.
fn print_line(line: &str) {
    // Nothing can be done about a build that has no standard error.
    let _ = writeln!(std::io::stderr(), "{line}");
}

//! From a parsed kernel to the code of its variants: the stages in order, for every declared variant.

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck;
use tile_ir::frontend::typeck::{MergedErrors, Variant};
use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::support::diagnostic::Errors;
use tile_ir::transform::check_overflow::check_overflow;
use tile_ir::transform::legalize_index::BoundsPolicy;

use crate::backend::cache::CacheKey;
use crate::backend::image;
use crate::backend::ptxas;
use crate::backend::ptxas::WorkDirectory;
use crate::driver::artifact::{LoweredVariant, VariantCode};
use crate::driver::dump::{dump_tiles, print_line};
use crate::driver::options::{BuildOptions, Effort};
use crate::driver::pipeline::refusal::{InvalidBehind, Refusal};
use crate::driver::pipeline::{KernelRequests, host_plan, shared};
use crate::driver::specialize::specializations;
use crate::driver::variant_errors::{internal_error, report_spills, too_many_elements};
use crate::driver::workers::{KernelLowering, PreparedVariant};
use crate::gpu::emit::{SmemOverflow, SmemRequest};
use crate::gpu::schedule::MAX_SHARED_BYTES;
use crate::gpu::specialization::Specialization;
use crate::mlir::report;

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
        let parent = options.cache_dir.clone().unwrap_or_else(std::env::temp_dir);
        let work = WorkDirectory::inside(&parent);
        match (KernelLowering { kernel, variants, prepared: &prepared, options, work }).codes() {
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
        noted: prepared.host.as_ref().map(|host| host.noted().clone()).unwrap_or_default(),
        source: prepared.source,
        sites: prepared.func.sites,
        warnings: prepared.warnings,
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
    let (mut func, warnings) = (checked.func, checked.warnings);
    func.reports = options.report && !kernel.options.unreported && !kernel.options.unchecked;
    if !options.report {
        ir::strip_debug(&mut func);
    } else if !kernel.options.unreported {
        check_overflow(&mut func);
    }
    ir::verify(&func).map_err(|what| internal(kernel, variant, "check", &what))?;
    let disabled_passes = options.disabled_passes;
    let requests = KernelRequests { disabled_passes, ..KernelRequests::of(kernel, variant) };
    shared(&mut func, requests)
        .map_err(|InvalidBehind { pass, what }| internal(kernel, variant, pass, &what))?;
    let specializations = if options.archs.is_empty() {
        vec![]
    } else {
        gpu_specializations(kernel, variant, &func, requests)?
    };
    let bounds = if kernel.options.unchecked { BoundsPolicy::Unchecked } else { BoundsPolicy::Masked };
    let host = options.host.as_ref().map(|_| host_plan(&func, bounds));
    let sites = report::sites(&func);
    // Variants may have the same tile IR: the names of the entries count too.
    let assembler = options.ptxas.as_deref().map(ptxas::identity);
    let targets = format!("{:?} {:?} {assembler:?} {requests:?}", options.archs, options.host);
    let text = ir::print(&func, &|_| None);
    let key = CacheKey::of(&[&text, &variant.to_string(), &sites, &targets, image::identity()]);
    let source = CacheKey::of(&[&text, &format!("{requests:?}")]).short();
    dump_tiles(&func, &specializations, variant, options);
    Ok(PreparedVariant { func, specializations, host, key, source, warnings })
}

/// Plans a variant for GPUs: everything that can be the user's mistake there.
fn gpu_specializations(
    kernel: &Kernel,
    variant: &Variant,
    func: &Func,
    requests: KernelRequests,
) -> Result<Vec<Specialization>, Errors> {
    let specializations = specializations(func, requests).map_err(|refusal| match refusal {
        Refusal::SharedMemory(overflow) => shared_memory_errors(&overflow),
        Refusal::Invalid(InvalidBehind { pass, what }) => internal(kernel, variant, pass, &what),
        other => internal(kernel, variant, "specialization", &other.to_string()),
    })?;
    too_many_elements(&specializations)?;
    Ok(specializations)
}

/// What does not fit into shared memory, as mistakes of the user.
fn shared_memory_errors(SmemOverflow(requests): &SmemOverflow) -> Errors {
    let mut errors = Errors::new();
    for &SmemRequest { loc, bytes } in requests {
        let text = format!(
            "this needs {bytes} bytes of shared memory, more than the {MAX_SHARED_BYTES} a block has"
        );
        errors.push_help(loc, text, "make the tile smaller, or use fewer warps");
    }
    errors
}

/// The mistake of the compiler in a stage.
fn internal(kernel: &Kernel, variant: &Variant, stage: &str, what: &str) -> Errors {
    let mut errors = Errors::new();
    errors.add(internal_error(kernel, variant, stage, what));
    errors
}

//! Diagnostics of a kernel's variants behind the checker.

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck;
use tile_ir::frontend::typeck::Variant;
use tile_ir::support::diagnostic::{Diagnostic, Errors, Loc};

use crate::backend::nvptx::Arch;
use crate::driver::artifact::{LoweredVariant, entry_name};
use crate::gpu::specialization::Specialization;

/// Each is an instruction at least: LLVM takes minutes for more, and hours for many more.
const MAX_ELEMENTS: usize = 1 << 16;

/// Rejects tiles of which every thread would have thousands of elements in each of many operations.
pub(crate) fn too_many_elements(specializations: &[Specialization]) -> Result<(), Errors> {
    let counts = specializations.iter().map(Specialization::elements);
    let Some((total, Some((loc, most)))) = counts.max_by_key(|&(total, _)| total) else { return Ok(()) };
    if total <= MAX_ELEMENTS {
        return Ok(());
    }
    let mut errors = Errors::new();
    let text = format!(
        "a thread has {most} elements of this tile, and computes {total} in all: more than {MAX_ELEMENTS} are not compiled"
    );
    errors.push_help(loc, text, "make the tile smaller, or loop over pieces of it");
    Err(errors)
}

/// `layer_norm` (T = f32, N = 64)
fn label(kernel: &Kernel, variant: &Variant) -> String {
    let choices = variant.to_string();
    let choices = if choices.is_empty() { choices } else { format!(" ({choices})") };
    format!("`{}`{choices}", kernel.name)
}

/// The diagnostic for ptxas's error that instructions need more registers than `maxnreg` leaves them.
pub(crate) fn too_few_registers(kernel: &Kernel, variant: &Variant, message: &str) -> Option<Diagnostic> {
    let (_, rest) = message.split_once("Insufficient registers (")?;
    let loc = typeck::maxnreg_loc(kernel, variant)?;
    let least = rest.split_once("register target of ").and_then(|(_, rest)| rest.split(' ').next());
    Some(Diagnostic {
        loc,
        message: format!("{} has too few registers a thread by this `maxnreg`", label(kernel, variant)),
        help: Some(match least {
            Some(least) => format!("it needs {least} or more here; smaller tiles or more warps need fewer"),
            None => "smaller tiles or more warps need fewer".into(),
        }),
        note: None,
    })
}

/// The diagnostic for a failure of the machine that builds, and not of the compiler.
pub(crate) fn environment_error(kernel: &Kernel, variant: &Variant, what: &str, cure: &str) -> Diagnostic {
    Diagnostic {
        loc: Loc::of(&kernel.name),
        message: format!("{} cannot be compiled on this machine: {what}", label(kernel, variant)),
        help: Some(cure.into()),
        note: None,
    }
}

pub(crate) fn internal_error(kernel: &Kernel, variant: &Variant, stage: &str, what: &str) -> Diagnostic {
    Diagnostic {
        loc: Loc::of(&kernel.name),
        message: format!("internal error: {} failed in the stage {stage}: {what}", label(kernel, variant)),
        help: None,
        note: Some("this is a mistake of the compiler, not of the kernel".into()),
    }
}

/// `deny(spills)`: a spilled register is a mistake, unless reports of a debug build cause it.
pub(crate) fn report_spills(
    kernel: &Kernel,
    variants: &[Variant],
    lowered: &[LoweredVariant],
    errors: &mut Errors,
) {
    for (variant, LoweredVariant { specializations, code, .. }) in variants.iter().zip(lowered) {
        let reporting: Vec<String> = specializations
            .iter()
            .filter(|specialization| specialization.reports())
            .map(|specialization| entry_name(kernel, variant, specialization))
            .collect();
        let assembled = code.modules.iter().filter_map(|module| Some((module, module.cubin.as_ref()?)));
        for (module, resources) in
            assembled.flat_map(|(module, cubin)| cubin.resources.iter().map(move |used| (module, used)))
        {
            let spilled = resources.spill_store_bytes + resources.spill_load_bytes;
            if spilled > 0 && !reporting.contains(&resources.entry) {
                let arch = Arch { capability: module.capability, exact: module.exact };
                let specialization = &specializations[module.specialization];
                let text = format!(
                    "{} spills on {}: its {} body stores {} bytes and loads {} a thread, at {} registers",
                    label(kernel, variant),
                    arch.name(),
                    specialization.label(),
                    resources.spill_store_bytes,
                    resources.spill_load_bytes,
                    resources.registers
                );
                let help = format!(
                    "smaller tiles or more warps leave a thread less to keep; `num_warps` is {} here",
                    specialization.plan.schedule.distributed.num_warps
                        / specialization.plan.schedule.distributed.num_ctas
                );
                errors.push_help(Loc::of(&kernel.name), text, help);
                break;
            }
        }
    }
}
